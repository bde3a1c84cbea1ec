//! `kymo list`: every event of this machine, by kind, as text or JSON; or those
//! of a recording.
//!
//! Gathering is in `list/gather.rs`, the two forms of output in `list/show.rs`,
//! recordings in `list/recording.rs`.

mod gather;
mod recording;
mod sdt;
mod show;
mod ust;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kymo_files::RecordingFormat;
use kymo_kernel::events::Catalog;

/// Flags of `kymo list`.
#[derive(clap::Args)]
#[command(after_long_help = "\
KINDS
  hw (hardware)   CPU events with a generic name
  sw (software)   events counted by the kernel
  tool            values measured by kymo itself
  cache (hwcache) cache and TLB events
  pmu             events described by PMUs in sysfs
  raw             syntax for an event by number
  mem (breakpoint) syntax for a hardware breakpoint
  tracepoint      static and dynamic tracepoints of the kernel
  probe           only dynamic ones (kprobes, uprobes, synthetic events)
  ust             events of programs that run and have tracepoints of their own, and
                  their counters (kymo count -u); the programs with -v
  vmstat          counters of /proc/vmstat
  sdt [BINARY…]   USDT probes of binaries; without one, of all that processes run, with
                  -p of a process. `kymo probe -x BINARY %PROVIDER:NAME` adds one,
                  `kymo run -e 'usdt:BINARY:PROVIDER:NAME { … }'` runs a program there

MARKS
  [not supported here]   the kernel cannot open this event
  [no permission: …]     you may not open it; it may not exist
  [user mode only: …]    you may count it in user space only
Tracepoints are checked once for all: the kernel can open every tracepoint that has an ID, so the
answer depends only on permission.

JSON
An array of objects with the keys: name, alias (string or null), kind (as above),
label, description, support (\"yes\", \"no\", \"denied\", \"user-only\", or null where
there is nothing to ask), reason (string or null). PMU events add pmu, terms,
unit, scale, cpus. With -v tracepoints add id, fields (array of {name, type,
offset, size, signed}) and print_fmt; PMU events add formats. Dynamic events
add definition; USDT probes add binary, args, places. Events of programs add programs (array of {pid, comm, exe, uid}),
level, source, print_fmt and fields; counters add source, keyed and programs. With -i the objects are those of a recording,
alike for all formats: docs/json.md.")]
pub(crate) struct Args {
    /// Event kinds (hw sw tool cache pmu raw mem tracepoint probe ust vmstat sdt), globs or parts
    /// of names [default: all events]
    #[arg(value_name = "GLOB")]
    globs: Vec<String>,

    /// List the events of this recording with their counts; a glob also lists events without hits
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// With `sdt`: only probes in files mapped by these processes
    #[arg(short = 'p', long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,

    /// Only events of this PMU (msr, uncore_*, software, tracepoint, breakpoint, cpu, tool)
    #[arg(long, value_name = "PMU", visible_alias = "cputype", conflicts_with = "input")]
    unit: Option<String>,

    /// Also show descriptions, tracepoint fields and print formats, and PMU formats and CPUs
    #[arg(short = 'v', long, visible_alias = "details")]
    verbose: bool,

    /// Print a JSON array of objects (keys: see --help)
    #[arg(short = 'j', long)]
    json: bool,

    /// Print only the names, on one line, for shell completion
    #[arg(long, conflicts_with_all = ["json", "verbose"])]
    raw_dump: bool,
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = recording(&mut args) {
        return recording::run(&args, path);
    }
    match args.globs.split_first() {
        Some((kind, binaries)) if kind == "sdt" => return sdt::run(&args, binaries),
        _ if !args.pid.is_empty() => anyhow::bail!("-p is of `kymo list sdt`"),
        _ => {}
    }
    let catalog = Catalog::open();
    let filter = gather::ListFilter::new(&args.globs, args.unit.as_deref())?;
    let found = gather::gather(&catalog, &filter, args.verbose);

    crate::screen::page();
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    if args.json {
        show::json(&mut out, &found.entries)?;
    } else if args.raw_dump {
        show::names(&mut out, &found.entries)?;
    } else {
        show::text(&mut out, &found.entries, args.verbose)?;
    }
    out.flush()?;
    drop(out);
    for note in &found.notes {
        sayln!("kymo list: {note}");
    }
    if found.entries.is_empty() && found.notes.is_empty() && filter.has_patterns() {
        // The grammar's own error names what is nearest.
        for glob in &args.globs {
            catalog.parse(glob)?;
        }
        anyhow::bail!("nothing to list for {}", args.globs.join(" "));
    }
    if let Some(unit) = args.unit.as_deref().filter(|_| found.entries.is_empty()) {
        let pmus: Vec<&str> = catalog.pmus().iter().map(|pmu| &*pmu.name).collect();
        anyhow::bail!("--unit: no event of a PMU {unit}; here are {}", pmus.join(", "));
    }
    if found.entries.is_empty() && found.notes.is_empty() {
        sayln!("kymo list: no {} events here", args.globs.join(" or "));
    }
    if found.entries.is_empty() && !found.notes.is_empty() {
        // A requested lookup failed: that is no success.
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The recording that is meant, if any: a file named instead of the first glob is one.
fn recording(args: &mut Args) -> Option<PathBuf> {
    if args.input.is_some() {
        return args.input.take();
    }
    let first = args.globs.first().map(Path::new)?;
    RecordingFormat::of(first)?;
    Some(args.globs.remove(0).into())
}

//! `kymo report`: where the samples of a recording come from.

mod ctf;
mod entries;
mod fields;
pub(crate) mod header;
mod info;
mod json;
mod keys;
mod meaning;
mod page;
mod text;
mod timeline;
mod trace;
mod tracedat;
pub(crate) mod trust;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use kymo_analysis::histogram::{Choice, Histogram, Key, histogram};
use kymo_analysis::profile::{EventProfile, LoadOptions, Profile, Stack};
use kymo_files::Kind;
use kymo_files::perfdata::{Entry, EventDesc, PerfData};
use kymo_model::{NoteKind, Sample, SampleType};

use super::ending;
use super::finding::Finding;

/// Flags of `kymo report`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Recording to read: perf.data, trace.dat, the folder of CTF traces or of a session with both; `-` is the standard input
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Recording to read, without -i
    #[arg(value_name = "FILE", conflicts_with = "input")]
    file: Option<PathBuf>,
    /// Plain text; this is the only face there is
    #[arg(long)]
    stdio: bool,
    /// Call graphs: none|graph|fractal|flat|folded|caller|callee, srcline to tell lines apart, a least percentage; comma-separated
    #[arg(short = 'g', long, value_name = "SPEC", num_args = 0..=1, default_missing_value = "graph,caller")]
    call_graph: Option<String>,
    /// Add to each function what it called
    #[arg(long, overrides_with = "no_children")]
    children: bool,
    /// Show each function's own share only
    #[arg(long)]
    no_children: bool,
    /// Group by these keys: comm,dso,symbol,pid (thread),tgid (process),cpu,parent,srcline,srcfile; of tracepoints: trace, trace_fields, FIELD, EVENT.FIELD;
    /// of trace.dat and CTF traces: event,comm,pid,cpu,instance,stack, FIELD, EVENT.FIELD
    #[arg(short, long, value_name = "KEYS")]
    sort: Option<String>,
    /// Columns to show: overhead,overhead_children,sample,period and sort keys
    #[arg(short = 'F', long, value_name = "FIELDS")]
    fields: Option<String>,
    /// Only these task names
    #[arg(short, long, value_name = "NAMES")]
    comms: Option<String>,
    /// Only these binaries
    #[arg(short, long, value_name = "NAMES")]
    dsos: Option<String>,
    /// Only these symbols
    #[arg(short = 'S', long, value_name = "NAMES")]
    symbols: Option<String>,
    /// Leave out entries below this percentage, and branches, unless -g states another one for them
    #[arg(long, value_name = "PERCENT")]
    percent_limit: Option<f64>,
    /// Show where and how it was recorded, too
    #[arg(long)]
    header: bool,
    /// Show only where and how it was recorded
    #[arg(long)]
    header_only: bool,
    /// Show all that the header tells: processors, caches, memory, clock
    #[arg(short = 'I', long)]
    show_info: bool,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Show the number of samples
    #[arg(short = 'n', long)]
    show_nr_samples: bool,
    /// Show the sum of periods
    #[arg(long)]
    show_total_period: bool,
    /// Separate columns by this, without filling up
    #[arg(short = 't', long, value_name = "SEP")]
    field_separator: Option<String>,
    /// Show functions that the compiler inlined in call graphs, out of debugging information (this is the default)
    #[arg(long, overrides_with = "no_inline")]
    inline: bool,
    /// Show no inlined functions
    #[arg(long)]
    no_inline: bool,
    /// Show whole paths of source files
    #[arg(long)]
    full_source_path: bool,
    #[command(flatten)]
    finding: Finding,
    /// Tell apart by the first caller whose name matches; the key `parent` alone looks for ^sys_|^do_page_fault
    #[arg(short, long, value_name = "REGEX")]
    parent: Option<String>,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let path = args.input.clone().or_else(|| args.file.clone());
    let path = path.unwrap_or_else(super::default_recording);
    match Kind::of(&path) {
        Some(Kind::TraceDat | Kind::Ctf | Kind::Session) => return timeline::run(&args, &path),
        // What is neither is explained below.
        Some(Kind::PerfData) | None => {}
    }
    let mut meant = meaning::Meaning::of(&args)?;
    let mut file = PerfData::open(&path)?;
    let color = std::io::stdout().is_terminal() && !args.json;
    let mut out = std::io::BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
    if args.header_only {
        header::write(&mut out, &file, &path, args.show_info)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    meant.settle(file.events());
    let symbols = args.finding.options(&path);
    let mut labels = trace::Labels::new(&meant.trace, symbols.bundle.clone());
    let mut label = |entry: &Entry<'_>, sample: &Sample<'_>| labels.label(entry, sample);
    let options = LoadOptions {
        symbols,
        merge_threads: !meant.has(Key::Pid) && !meant.has(Key::Tid),
        label: (!meant.trace.is_empty()).then_some(&mut label),
        by_cpu: meant.has(Key::Cpu),
        no_chains: meant.needs_no_chains(),
        inlines: meant.inlines && !meant.needs_no_chains() && file.events().iter().any(has_chains),
        lines: meant.needs_lines(),
        ..LoadOptions::default()
    };
    let profile = Profile::read(&mut file, options).context("report")?;
    meant.check(&labels, profile.stats.samples > 0)?;
    let left = |e: &EventProfile| e.stacks().any(|(s, _)| meant.wants(&profile, &s));
    let nothing = !meant.wants_all() && !profile.events.iter().any(left);
    let ledger = std::thread::scope(|scope| {
        // It is printed last.
        let ledger = scope.spawn(|| {
            let mut ledger = trust::ledger(&profile, &file);
            if nothing {
                ledger.tell(NoteKind::Nothing, "no sample passes what was asked for", None);
            }
            ledger
        });
        let ledger = || ledger.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if args.json {
            let ledger = ledger();
            json::write(&mut out, &profile, &meant, &labels, &ledger)?;
            return anyhow::Ok(ledger);
        }
        let mut report =
            text::Text { out: &mut out, profile: &profile, meant: &meant, labels: &labels, color };
        report.prologue()?;
        if args.header || args.show_info {
            header::write(report.out, &file, &path, args.show_info)?;
        }
        for (number, event) in profile.events.iter().enumerate() {
            if event.samples == 0 && (profile.events.len() > 1 || event.desc.name == "dummy:HG") {
                continue;
            }
            let shape = meant.shape(number, event, &labels);
            let entries = grouped(&profile, event, &shape, &meant);
            report.event(event, &shape, &entries)?;
        }
        let ledger = ledger();
        report.epilogue(&ledger)?;
        Ok(ledger)
    })?;
    out.flush()?;
    let damage = profile.stats.damaged.as_ref().map(|d| format!("{d}; what came before is shown"));
    let code = ending::status(path.display(), damage.as_deref(), &ledger, args.strict);
    // The process ends here; giving each piece back takes longer than the rest.
    std::mem::forget(profile);
    Ok(code)
}

pub(crate) fn has_chains(event: &EventDesc) -> bool {
    event.attr.sample_type.contains(SampleType::CALLCHAIN)
}

/// The groups that the flags ask for.
fn grouped(
    profile: &Profile,
    event: &EventProfile,
    shape: &meaning::Shape,
    meant: &meaning::Meaning,
) -> Histogram {
    let is_parent = |f| profile.function(f).is_some_and(|name| meant.parent.is_match(name));
    let wanted = |s: &Stack| meant.wants(profile, s);
    let choice = Choice { wanted: &wanted, is_parent: &is_parent };
    histogram(profile, event, &shape.histogram, &choice)
}

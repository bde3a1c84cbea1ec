//! `kymo profile`: record a command and say what it spent its time on, for
//! someone who has never profiled. A recording into a temporary file (or `-o`),
//! then one pass over it.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use kymo_analysis::offcpu::{WakerInfo, count_recorded_waits};
use kymo_analysis::profile::{LoadOptions, Profile};
use kymo_events::EventSource;
use kymo_kernel::clock::monotonic_ns;
use kymo_kernel::events::{Catalog, EventSpec, paranoid};
use kymo_kernel::target;
use kymo_model::{Note, NoteKind};
use kymo_record::{CallGraph, Output, RecordOptions, RecordSummary, record};
use kymo_view::Ledger;
use kymo_view::profile_page::{CommandRun, ProfileTimes, build_page, page_ledger};

use super::scratch::ScratchDirectory;
use crate::args::symbols::DebuginfodArgs;
use crate::args::values::call_graph;

/// Flags of `kymo profile`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kymo profile -- gzip -9 -c /usr/bin/perl > /dev/null")]
pub(crate) struct Args {
    /// Keep the recording in FILE (perf.data format) for `kymo report` and `kymo script`
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,

    /// Samples per second and CPU
    #[arg(short = 'F', long = "freq", value_name = "N", default_value_t = 4000)]
    freq: u64,

    /// How to record call chains: fp (frame pointers), dwarf[,BYTES] (copies of the stack, for
    /// programs without frame pointers)
    #[arg(long, value_name = "MODE", value_parser = call_graph, default_value = "fp")]
    call_graph: CallGraph,

    /// Leave aside what the command waits for: cheaper where it often does
    #[arg(long)]
    cpu_only: bool,

    /// Number of functions to show
    #[arg(short = 'n', long = "top", value_name = "N", default_value_t = 15)]
    top: usize,

    #[command(flatten)]
    servers: DebuginfodArgs,

    /// Exit with status 3 when anything limits the trust in the result
    #[arg(long)]
    strict: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Events that tell what a command waits for, and who wakes it.
const WAIT_EVENTS: [&str; 3] = ["sched:sched_switch", WAKE_UP, "sched:sched_wakeup_new"];
const WAKE_UP: &str = "sched:sched_waking";

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let scratch = ScratchDirectory::new(args.output.is_none())?;
    let path = args.output.clone().unwrap_or_else(|| scratch.file());
    let more_events = if args.cpu_only { Vec::new() } else { wait_events() };
    let has_waits = !more_events.is_empty();
    let options = RecordOptions {
        more_events,
        command: args.command.clone(),
        freq: Some(args.freq),
        call_graph: Some(args.call_graph),
        switch_events: true,
        output: Output::File { path: path.clone(), force: false },
        command_line: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..RecordOptions::default()
    };
    let summary = record(&options)?;
    // The clock of the recording.
    let end = monotonic_ns();
    let symbols = kymo_symbols::ResolverOptions {
        debuginfod: args.servers.client(),
        ..kymo_symbols::ResolverOptions::default()
    };
    let load = LoadOptions {
        symbols: symbols.clone(),
        off_intervals: has_waits,
        ..LoadOptions::default()
    };
    let mut profile = Profile::load(&path, load)?;
    let first_thread = profile.on_cpu.first_thread();
    let (threads, intervals) = std::mem::take(&mut profile.on_cpu).finish(end);
    let waits = match intervals {
        Some(intervals) => {
            let source = EventSource::open(std::slice::from_ref(&path), symbols)?;
            let mut waits = count_recorded_waits(&source, intervals)?;
            waits.wakers.iter_mut().for_each(name_waker);
            Some(waits)
        }
        None => None,
    };
    let times = ProfileTimes::new(threads, waits);
    let notes = notes(&summary, &options);
    let run = CommandRun { first_thread, notes, ..command_run(&args, &summary) };
    let page = build_page(&run, &profile, &times, args.top);
    let ledger = page_ledger(&run, &profile, &times);
    // Standard output is the command's: `kymo profile -- gzip -c FILE > FILE.gz`
    // must give the same file as without.
    let mut out = std::io::stderr().lock();
    out.write_all(b"\n")?;
    out.write_all(page.to_text().as_bytes())?;
    if args.output.is_some() {
        writeln!(out, "\nThe recording is in {}: kymo report -i {0}", path.display())?;
    }
    if !ledger.is_empty() {
        write!(out, "\n{}", ledger.to_text(""))?;
    }
    out.flush()?;
    Ok(status(&args, &summary, &ledger))
}

/// What the recording has to say, with advice that this command has flags for.
fn notes(summary: &RecordSummary, options: &RecordOptions) -> Vec<Note> {
    let mut notes = summary.ledger_notes(options);
    // The page says how many samples there are.
    notes.retain(|note| note.kind != NoteKind::Empty);
    for note in notes.iter_mut().filter(|note| note.kind == NoteKind::Lost) {
        note.advice = Some("record less: --cpu-only, a lower -F, --call-graph fp".to_owned());
    }
    notes
}

/// Adds to a task of another process, which the recording has no name for, the one it has now.
fn name_waker(waker: &mut WakerInfo) {
    let tid = std::str::from_utf8(&waker.comm).ok().and_then(|c| c.strip_prefix(':')?.parse().ok());
    let Some(tid) = tid else { return };
    let name = target::comm(tid).map_or_else(String::new, |name| format!(" (now {name})"));
    waker.comm = format!("task {tid}{name}").into_bytes();
}

/// The events of waits, if this user may record them.
fn wait_events() -> Vec<EventSpec> {
    let rights = paranoid();
    if !rights.privileged && rights.level.is_none_or(|level| level > -1) {
        return Vec::new();
    }
    let catalog = Catalog::open();
    let mut events: Vec<EventSpec> =
        WAIT_EVENTS.iter().flat_map(|name| catalog.parse(name).unwrap_or_default()).collect();
    for event in &mut events {
        event.terms.period = Some(1);
        // Whoever wakes the command may be of another process.
        event.terms.system_wide = event.name == WAKE_UP;
    }
    if events.len() == WAIT_EVENTS.len() { events } else { Vec::new() }
}

fn command_run(args: &Args, summary: &RecordSummary) -> CommandRun {
    let words: Vec<_> = args.command.iter().map(|w| w.to_string_lossy()).collect();
    let usage = summary.usage.unwrap_or_default();
    CommandRun {
        command: words.join(" "),
        elapsed: summary.elapsed,
        ended: summary.usage.is_some(),
        user: usage.user,
        system: usage.system,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        voluntary_switches: usage.voluntary_switches,
        involuntary_switches: usage.involuntary_switches,
        rate: args.freq,
        notes: Vec::new(),
        first_thread: None,
        stack_reason: match args.call_graph {
            CallGraph::FramePointers => " (code built without frame pointers)",
            CallGraph::Dwarf(_) => " (code without unwinding information, or deeper than the copy)",
        },
        stack_advice: match args.call_graph {
            CallGraph::FramePointers => "kymo profile --call-graph dwarf -- COMMAND",
            CallGraph::Dwarf(_) => "a larger copy: --call-graph dwarf,32768",
        },
    }
}

/// The command's own status, unless `--strict` finds something to object to.
fn status(args: &Args, summary: &RecordSummary, ledger: &Ledger) -> ExitCode {
    match summary.exit {
        Some(code) if code != 0 => ExitCode::from(code),
        _ if args.strict && ledger.has_doubts() => ExitCode::from(Ledger::STRICT_STATUS),
        _ => ExitCode::SUCCESS,
    }
}

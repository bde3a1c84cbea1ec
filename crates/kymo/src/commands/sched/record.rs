//! `kymo sched record`: the scheduler's events of the machine into a perf.data, or into a
//! trace.dat.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_analysis::tasks::SCHED_EVENTS;
use kymo_files::tracedat::Compression;
use kymo_files::tracedat::write::Format;
use kymo_kernel::cpus;
use kymo_kernel::events::{Catalog, EventSpec};
use kymo_kernel::ftrace::Selection;
use kymo_record::ftrace::{TraceError, TraceEvent, TraceOptions, TraceOutput, record_trace};
use kymo_record::{CallGraph, Output, RecordClock, RecordOptions, Target};
use kymo_view::Ledger;

use super::super::tracing;
use crate::args::values::{Ring, bytes, call_graph, millis, ring};

/// Events that are recorded if the kernel has them: CONFIG_SCHEDSTATS.
const SCHEDSTATS: [&str; 3] =
    ["sched:sched_stat_wait", "sched:sched_stat_sleep", "sched:sched_stat_iowait"];

/// Flags of `kymo sched record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records sched_switch, sched_waking (sched_wakeup where the kernel has no other), sched_wakeup_new,
sched_migrate_task, sched_process_fork, sched_stat_runtime and, where the kernel has them,
sched_stat_{wait,sleep,iowait}, of everybody on all CPUs.

EXAMPLES
  kymo sched record -- make -j4
  kymo sched record -g --timeout 5000          five seconds, with call chains
  kymo sched record -o x.dat -- ./program      a trace.dat: the cheaper way")]
pub(super) struct Args {
    /// File to write: a perf.data, or a trace.dat if its name ends in .dat
    #[arg(short = 'o', long, value_name = "FILE", default_value = "perf.data")]
    output: PathBuf,
    /// Overwrite a file that is not a recording
    #[arg(short = 'f', long)]
    force: bool,
    /// Record call chains by frame pointers (perf.data)
    #[arg(short = 'g')]
    graph: bool,
    /// How to record call chains: fp, dwarf[,BYTES] (perf.data)
    #[arg(long, value_name = "MODE", value_parser = call_graph)]
    call_graph: Option<CallGraph>,
    /// Only on these CPUs
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<String>,
    /// The whole machine (accepted for compatibility: that is recorded anyway)
    #[arg(short = 'a', long)]
    all_cpus: bool,
    /// Size of each ring, in pages or with a suffix B, K, M, G (perf.data)
    #[arg(short = 'm', long, value_name = "PAGES|SIZE", value_parser = ring, default_value = "1024")]
    mmap_pages: Ring,
    /// Room in the ring for each CPU, such as 8M (trace.dat)
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    buffer_size: Option<u64>,
    /// Stop after this time in milliseconds, and the command with it
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<Duration>,
    /// Say nothing but errors
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Exit with status 3 if anything was lost
    #[arg(long)]
    strict: bool,
    /// The command that is waited for
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let cpus = args.cpu.as_deref().map(cpus::parse_list).transpose().context("-C")?;
    let cpus = cpus.unwrap_or_default();
    let catalog = Catalog::open();
    let events = events(&catalog)?;
    match args.output.extension().is_some_and(|e| e == "dat") {
        true => record_trace_dat(&args, &events, cpus),
        false => record_perf_data(&args, events, cpus),
    }
}

/// The events that the kernel has.
fn events(catalog: &Catalog) -> anyhow::Result<Vec<EventSpec>> {
    let mut specs = Vec::new();
    let has_waking = catalog.parse("sched:sched_waking").is_ok();
    for name in SCHED_EVENTS.into_iter().chain(SCHEDSTATS) {
        // The same wake-up once more.
        if name == "sched:sched_wakeup" && has_waking {
            continue;
        }
        match catalog.parse(name) {
            Ok(found) => specs.extend(found),
            Err(e) if name == "sched:sched_switch" => return Err(e.into()),
            Err(_) => {}
        }
    }
    Ok(specs)
}

fn record_perf_data(
    args: &Args,
    events: Vec<EventSpec>,
    cpus: Vec<u32>,
) -> anyhow::Result<ExitCode> {
    if args.buffer_size.is_some() {
        bail!("--buffer-size is for a trace.dat (-o FILE.dat); -m is for a perf.data");
    }
    let mut command_line = vec!["kymo".to_owned()];
    command_line.extend(std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()));
    let options = RecordOptions {
        events,
        target: Target::System,
        command: args.command.clone(),
        cpus,
        period: Some(1),
        call_graph: args.call_graph.or(args.graph.then_some(CallGraph::FramePointers)),
        timeout: args.timeout,
        pages: Some(args.mmap_pages.0),
        clock: RecordClock::default(),
        output: Output::File { path: args.output.clone(), force: args.force },
        command_line,
        version: format!("kymo {}", env!("CARGO_PKG_VERSION")),
        ..RecordOptions::default()
    };
    let mut summary = kymo_record::record(&options)?;
    let ledger = Ledger::from_notes(summary.ledger_notes(&options));
    tell(args, summary.bytes, summary.samples, &ledger);
    if let Some(running) = summary.running.take() {
        summary.exit = Some(running.wait().context("cannot wait for the command")?);
    }
    Ok(status(args, &ledger, summary.exit))
}

fn record_trace_dat(args: &Args, events: &[EventSpec], cpus: Vec<u32>) -> anyhow::Result<ExitCode> {
    if args.graph || args.call_graph.is_some() {
        bail!("-g is for a perf.data: name one with -o");
    }
    let event = |spec: &EventSpec| {
        Ok(TraceEvent { selection: Selection::parse(&spec.name)?, filter: None })
    };
    let options = TraceOptions {
        events: events.iter().map(event).collect::<anyhow::Result<_>>()?,
        command: args.command.clone(),
        pids: Vec::new(),
        system_wide: true,
        follow: true,
        cpus,
        clock: "mono".to_owned(),
        buffer_kb: args.buffer_size.map(|b| b.div_ceil(1024)),
        stacks: false,
        output: TraceOutput::File { path: args.output.clone(), force: args.force },
        format: Format { version: 7, compression: Compression::None },
        switch: None,
        keep_files: None,
        max_size: None,
        timeout: args.timeout,
    };
    let tracefs = tracing::open()?;
    let mut summary = match record_trace(&tracefs, &options) {
        Ok(summary) => summary,
        Err(TraceError::Spawn(e)) => {
            sayln!("kymo: {e}");
            return Ok(ExitCode::from(e.shell_status()));
        }
        Err(e) => return Err(e.into()),
    };
    let ledger = Ledger::from_notes(summary.ledger_notes());
    tell(args, summary.bytes, summary.events, &ledger);
    if let Some(running) = summary.running.take() {
        summary.exit = Some(running.wait()?);
    }
    Ok(status(args, &ledger, summary.exit))
}

fn tell(args: &Args, bytes: u64, events: u64, ledger: &Ledger) {
    if args.quiet {
        return;
    }
    let megabytes = bytes as f64 / (1024.0 * 1024.0);
    let name = args.output.display();
    let text = format!("[ kymo sched record: wrote {megabytes:.3} MB {name} ({events} events) ]\n");
    // Nobody may be there to read it; the recording is done all the same.
    let _ = anstream::stderr().write_all((text + &ledger.to_text("")).as_bytes());
}

/// The command's exit status, unless doubts weigh more.
fn status(args: &Args, ledger: &Ledger, command: Option<u8>) -> ExitCode {
    match args.strict && ledger.has_doubts() {
        true => ExitCode::from(Ledger::STRICT_STATUS),
        false => ExitCode::from(command.unwrap_or(0)),
    }
}

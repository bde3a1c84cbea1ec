//! Recording events that a command chooses itself: what `record` of `kymo sched`, `kymo kmem`
//! and the like share. The events of the machine go into a perf.data, or into a trace.dat.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_files::tracedat::Compression;
use kymo_files::tracedat::write::Format;
use kymo_kernel::cpu_quota::QuotaWatch;
use kymo_kernel::cpus;
use kymo_kernel::events::{Catalog, EventSpec};
use kymo_kernel::ftrace::Selection;
use kymo_record::ftrace::{
    KernelSymbols, RENAME, TraceEvent, TraceOptions, TraceOutput, TraceSetup, record_trace,
};
use kymo_record::{CallGraph, ChosenTasks, Output, RecordClock, RecordOptions, Target};
use kymo_view::Ledger;

use super::cpu_quotas::quota_notes;
use super::{container_files, tracing};
use crate::args::targets::note_kernel_numbers;
use crate::args::values::{Ring, bytes, call_graph, millis, ring};
use crate::exit;

/// Flags of a `record` sub-command.
#[derive(clap::Args)]
pub(crate) struct EventRecordingArgs {
    /// File to write: a perf.data, or a trace.dat for names in .dat; `-`: standard output
    #[arg(short = 'o', long, value_name = "FILE", default_value = "perf.data")]
    pub(crate) output: PathBuf,
    /// Overwrite a file that is not a recording
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Record call chains by frame pointers (perf.data)
    #[arg(short = 'g')]
    pub(crate) graph: bool,
    /// Call chain recording mode: fp, dwarf[,BYTES] (perf.data)
    #[arg(long, value_name = "MODE", value_parser = call_graph)]
    pub(crate) call_graph: Option<CallGraph>,
    /// Only these CPUs
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub(crate) cpu: Option<String>,
    /// Profile the whole machine [default] (accepted for compatibility)
    #[arg(short = 'a', long)]
    pub(crate) all_cpus: bool,
    /// Record the cgroup of each event, for --cgroup in reports (perf.data)
    #[arg(long)]
    pub(crate) all_cgroups: bool,
    /// Size of each ring buffer, in pages or with a suffix B, K, M, G (perf.data)
    #[arg(short = 'm', long, value_name = "PAGES|SIZE", value_parser = ring, default_value = "1024")]
    pub(crate) mmap_pages: Ring,
    /// Size of each CPU's ring buffer, such as 8M (trace.dat)
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) buffer_size: Option<u64>,
    /// Stop after this time in milliseconds, and stop the command
    #[arg(long, value_name = "MS", value_parser = millis)]
    pub(crate) timeout: Option<Duration>,
    /// Print only errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Process of the command, for the caller
    #[arg(skip)]
    pub(crate) spawned: Option<Arc<OnceLock<u32>>>,
    /// Tasks that the recording is about, for the caller
    #[arg(skip)]
    pub(crate) chosen: ChosenTasks,
    /// Exit with status 3 if anything was lost
    #[arg(long)]
    pub(crate) strict: bool,
    /// Command to run; recording stops when it ends
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Name of threads that read what is being recorded; those that they start inherit it.
pub(crate) const READER: &str = "kymo-live";

/// Systems of the calls that wait for what is recorded, where the recorder makes them.
pub(crate) const CALLS: [&str; 2] = ["raw_syscalls", "syscalls"];

/// Event of the switches of CPUs between tasks.
const SWITCH: &str = "sched:sched_switch";

/// Events that a command records.
pub(crate) struct RecordedEvents {
    /// The command, as it is typed: `kymo sched record`.
    pub(crate) command: &'static str,
    required: Vec<String>,
    optional: Vec<String>,
}

impl RecordedEvents {
    /// Events of a command; none yet.
    pub(crate) fn of(command: &'static str) -> RecordedEvents {
        RecordedEvents { command, required: Vec::new(), optional: Vec::new() }
    }

    /// Switches, and those of these events of tasks that the kernel has.
    pub(crate) fn of_tasks<'a>(
        command: &'static str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> RecordedEvents {
        let required = SWITCH;
        // With both of them each wake-up would be recorded twice.
        let twice = has_event("sched:sched_waking").then_some("sched:sched_wakeup");
        let names = names.into_iter().filter(|name| *name != required && Some(*name) != twice);
        RecordedEvents::of(command).require([required]).prefer(names)
    }

    /// Adds events without which there is nothing to show.
    pub(crate) fn require<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.required.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds events that are recorded if the kernel has them.
    pub(crate) fn prefer<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.optional.extend(names.into_iter().map(Into::into));
        self
    }

    /// Events that the kernel has, each once; of these systems without those of the recorder's own,
    /// and of threads that read along.
    pub(crate) fn specs(&self, without_own: &[&str]) -> anyhow::Result<Vec<EventSpec>> {
        let catalog = Catalog::open();
        let mut specs = Vec::new();
        for name in &self.required {
            specs.extend(catalog.parse(name)?);
        }
        for name in &self.optional {
            specs.extend(catalog.parse(name).into_iter().flatten());
        }
        let own = format!("common_pid != {} && comm != \"{READER}\"", std::process::id());
        let is_left_out = |spec: &&mut EventSpec| {
            let system = spec.tracepoint.as_ref().map(|(system, _)| &**system);
            system.is_some_and(|system| without_own.contains(&system))
        };
        specs.iter_mut().filter(is_left_out).for_each(|spec| spec.filter = Some(own.clone()));
        Ok(specs)
    }
}

/// Whether the kernel has an event.
pub(crate) fn has_event(name: &str) -> bool {
    Catalog::open().parse(name).is_ok()
}

/// Records system-wide events, until the command ends that is named, or the user
/// stops it.
pub(crate) fn record_events(
    args: &EventRecordingArgs,
    events: &RecordedEvents,
) -> anyhow::Result<ExitCode> {
    let cpus = args.cpu.as_deref().map(cpus::parse_list).transpose().context("-C")?;
    let cpus = cpus.unwrap_or_default();
    let specs = events.specs(&CALLS)?;
    match args.output.extension().is_some_and(|e| e == "dat") {
        true => record_trace_dat(args, events.command, &specs, cpus),
        false => record_perf_data(args, events.command, specs, cpus),
    }
}

fn record_perf_data(
    args: &EventRecordingArgs,
    name: &str,
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
        spawned: args.spawned.clone(),
        chosen: args.chosen.clone(),
        cpus,
        period: Some(1),
        call_graph: args.call_graph.or(args.graph.then_some(CallGraph::FramePointers)),
        timeout: args.timeout,
        pages: Some(args.mmap_pages.0),
        clock: RecordClock::default(),
        cgroup_records: args.all_cgroups,
        output: match args.output.as_os_str() == "-" {
            true => Output::Stdout,
            false => Output::File { path: args.output.clone(), force: args.force },
        },
        command_line,
        version: format!("kymo {}", env!("CARGO_PKG_VERSION")),
        ..RecordOptions::default()
    };
    let quotas = (!args.quiet && is_of_tasks(&options.events)).then(QuotaWatch::of_machine);
    let mut summary = kymo_record::record(&options)?;
    container_files::keep(&mut summary);
    let notes = summary.ledger_notes(&options).into_iter().chain(note_kernel_numbers());
    let quotas = quotas.iter().flat_map(|quotas| quota_notes(&quotas.throttled()));
    let ledger = Ledger::from_notes(notes.chain(quotas));
    tell(args, name, summary.bytes, summary.samples, &ledger);
    if let Some(running) = summary.running.take() {
        summary.exit = Some(running.wait().context("cannot wait for the command")?);
    }
    Ok(exit::of_command(summary.exit, &ledger, args.strict))
}

fn record_trace_dat(
    args: &EventRecordingArgs,
    name: &str,
    events: &[EventSpec],
    cpus: Vec<u32>,
) -> anyhow::Result<ExitCode> {
    if args.call_graph.is_some() {
        bail!("--call-graph is for a perf.data: name one with -o; -g records stacks of the kernel");
    }
    if args.all_cgroups {
        bail!("--all-cgroups is for a perf.data: the kernel's own rings have no cgroups");
    }
    let event = |spec: &EventSpec| {
        let filter = spec.filter.clone();
        Ok(TraceEvent { selection: Selection::parse(&spec.name)?, filter })
    };
    let mut traced: Vec<TraceEvent> = events.iter().map(event).collect::<anyhow::Result<_>>()?;
    // The kernel's rings have no names of tasks: they hold from a change on.
    if has_event(RENAME) && events.iter().all(|spec| spec.name != RENAME) {
        traced.push(TraceEvent { selection: Selection::parse(RENAME)?, filter: None });
    }
    let setup = TraceSetup {
        events: traced,
        command: args.command.clone(),
        pids: Vec::new(),
        system_wide: true,
        follow: true,
        cpus,
        clock: "mono".to_owned(),
        buffer_kb: args.buffer_size.map(|b| b.div_ceil(1024)),
        stacks: args.graph,
        delay: None,
        timeout: args.timeout,
    };
    let options = TraceOptions {
        symbols: KernelSymbols::default(),
        setup,
        output: TraceOutput::File { path: args.output.clone(), force: args.force },
        format: Format { version: 7, compression: Compression::None },
        switch: None,
        keep_files: None,
        max_size: None,
    };
    let tracefs = tracing::open()?;
    let quotas = (!args.quiet && is_of_tasks(events)).then(QuotaWatch::of_machine);
    let mut summary = record_trace(&tracefs, &options)?;
    let notes = summary.ledger_notes().into_iter().chain(note_kernel_numbers());
    let quotas = quotas.iter().flat_map(|quotas| quota_notes(&quotas.throttled()));
    let ledger = Ledger::from_notes(notes.chain(quotas));
    tell(args, name, summary.bytes, summary.events, &ledger);
    if let Some(running) = summary.running.take() {
        summary.exit = Some(running.wait()?);
    }
    Ok(exit::of_command(summary.exit, &ledger, args.strict))
}

/// Whether the events are of what tasks wait for.
fn is_of_tasks(events: &[EventSpec]) -> bool {
    events.iter().any(|spec| spec.name == SWITCH)
}

fn tell(args: &EventRecordingArgs, command: &str, bytes: u64, events: u64, ledger: &Ledger) {
    if args.quiet {
        return;
    }
    let megabytes = bytes as f64 / (1024.0 * 1024.0);
    let name = args.output.display();
    let text = format!("[ {command}: wrote {megabytes:.3} MB {name} ({events} events) ]\n");
    // The message may have no reader; the recording is done all the same.
    let _ = crate::streams::stderr().write_all((text + &ledger.to_text("")).as_bytes());
}

//! `kymo record`: samples and tracepoints of a command, of processes or of the
//! machine, into perf.data.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use kymo_analysis::bundle::write_bundle;
use kymo_files::perfdata::write::CompressedForm;
use kymo_kernel::events::Catalog;
use kymo_kernel::{cpus, process};
use kymo_model::{NoteKind, counted};
use kymo_record::{
    CallGraph, ChosenTasks, ControlSource, Output, RecordClock, RecordOptions, RecordSummary,
    SwitchOn, Synthesis, Target,
};
use kymo_symbols::ResolverOptions as SymbolOptions;
use kymo_symbols::bundle_writer::Contents;
use kymo_view::Ledger;
use kymo_view::bundle::{bundle_ledger, bundle_text};

use super::buildid_cache::cache_binaries;
use super::container_files;
use super::frame_pointers::without_frame_pointers;
use super::profile_recording::StackChoice;
use crate::args::contents::ContentArgs;
use crate::args::event_filters::EventArgs;
use crate::args::probes::{ProbeArgs, TemporaryProbes};
use crate::args::symbols::SymbolArgs;
use crate::args::targets::{named_target, note_kernel_numbers};
use crate::args::values::{
    ChainMode, Rate, Ring, bytes, chain_mode, control, delay, millis, ring, sample_rate, switch_on,
    synthesis,
};
use crate::called_name::CalledName;
use crate::exit;

/// Flags of `kymo record`.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("switching").args(["switch_output", "switch_output_event"]).multiple(true))]
pub(crate) struct Args {
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    probes: ProbeArgs,
    /// Samples per second, or `max`
    #[arg(short = 'F', long = "freq", value_name = "HZ", value_parser = sample_rate)]
    freq: Option<Rate>,
    /// Events per sample
    #[arg(short = 'c', long = "count", value_name = "N", conflicts_with = "freq",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Record call chains by frame pointers
    #[arg(short = 'g')]
    graph: bool,
    /// Call chain recording mode: fp, dwarf[,BYTES], or auto: copies if binaries of the program
    /// keep no frame pointers
    #[arg(long, value_name = "MODE", value_parser = chain_mode)]
    call_graph: Option<ChainMode>,
    /// Record system-wide
    #[arg(short = 'a', long)]
    all_cpus: bool,
    /// Only these processes
    #[arg(short = 'p', long, value_name = "PID,…")]
    pid: Option<String>,
    /// Only these threads, without their children
    #[arg(short = 't', long, value_name = "TID,…")]
    tid: Option<String>,
    /// Only these CPUs
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<String>,
    /// Only the processes of this user
    #[arg(short = 'u', long, value_name = "USER")]
    uid: Option<String>,
    /// Only this cgroup, or one cgroup per event (on all CPUs)
    #[arg(short = 'G', long, value_name = "NAME,…", value_delimiter = ',')]
    cgroup: Vec<String>,
    /// Start after MS milliseconds; -1: when `--control` receives `enable`
    #[arg(short = 'D', long, value_name = "MS", allow_negative_numbers = true,
          value_parser = delay)]
    delay: Option<std::time::Duration>,
    /// Read commands (enable, disable, snapshot, stop, ping) from fd:CTL[,ACK] or fifo:CTL[,ACK]
    #[arg(long, value_name = "WHERE", value_parser = control)]
    control: Option<ControlSource>,
    /// Read the ring buffers with this real-time priority (SCHED_FIFO)
    #[arg(short = 'r', long, value_name = "PRIORITY",
          value_parser = clap::value_parser!(u8).range(1..=99))]
    realtime: Option<u8>,
    /// Check options and events, then exit
    #[arg(long)]
    dry_run: bool,
    /// Stop after MS milliseconds, and stop the command
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<std::time::Duration>,
    /// Size of each ring buffer, in pages or with a suffix B, K, M, G
    #[arg(short = 'm', long = "mmap-pages", value_name = "PAGES|SIZE", value_parser = ring)]
    mmap_pages: Option<Ring>,
    /// Clock of the timestamps: monotonic, monotonic_raw, boottime, realtime, tai, perf
    #[arg(short = 'k', long = "clockid", value_name = "CLOCK")]
    clockid: Option<String>,
    /// File to write, or `-` for standard output
    #[arg(short = 'o', long, value_name = "FILE", default_value = "perf.data")]
    output: OsString,
    /// Overwrite a file that is not a recording
    #[arg(short = 'f', long)]
    force: bool,
    /// Compress with zstd: -z, -z9, --compression-level=9
    #[arg(short = 'z', long = "compression-level", value_name = "LEVEL", num_args = 0..=1,
          require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(i32).range(1..=22))]
    compression_level: Option<i32>,
    /// Exclude tracepoint events of kymo itself
    #[arg(long)]
    exclude_perf: bool,
    /// Record counts per thread
    #[arg(short = 's', long)]
    stat: bool,
    #[command(flatten)]
    contents: ContentArgs,
    /// Count without taking samples
    #[arg(short = 'n', long)]
    no_samples: bool,
    /// Put all events into one group
    #[arg(long)]
    group: bool,
    /// Record enabled and running times in samples of read groups (`{…}:S`)
    #[arg(long)]
    running_time: bool,
    /// Fail if the kernel does not allow the frequency
    #[arg(long)]
    strict_freq: bool,
    /// Write each record immediately
    #[arg(long)]
    no_buffering: bool,
    /// Record cgroups, and the cgroup of each sample
    #[arg(long)]
    all_cgroups: bool,
    /// Existing state to record first: all, task, mmap, cgroup, no
    #[arg(long, value_name = "KIND", default_value = "all", value_parser = synthesis)]
    synth: Synthesis,
    /// Also record non-executable mappings
    #[arg(long)]
    data_mmap: bool,
    /// Record context switches
    #[arg(long)]
    switch_events: bool,
    /// Record context switches for `report --latency`
    #[arg(long)]
    latency: bool,
    /// Record namespaces
    #[arg(long)]
    namespaces: bool,
    /// Rotate the output file on SIGUSR2, or at a size (10M) or time (30s)
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_missing_value = "signal", value_parser = switch_on)]
    switch_output: Option<SwitchOn>,
    /// Rotate the output file when any task hits this tracepoint or probe
    #[arg(long, value_name = "EVENT")]
    switch_output_event: Vec<String>,
    /// Number of newest --switch-output files to keep
    #[arg(long, value_name = "N", requires = "switching",
          value_parser = clap::value_parser!(u32).range(1..))]
    switch_max_files: Option<u32>,
    /// Append the time to the file name
    #[arg(long)]
    timestamp_filename: bool,
    /// Record the times of the first and last sample (always on; accepted for compatibility)
    #[arg(long)]
    timestamp_boundary: bool,
    /// Keep only the newest events; write them on SIGUSR2 and at the end
    #[arg(long)]
    overwrite: bool,
    /// Stop recording at this size (10M); the command keeps running
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_size: Option<u64>,
    /// Do not follow children
    #[arg(short = 'i', long)]
    no_inherit: bool,
    /// Do not follow children (same as -i; ring buffers are always per CPU)
    #[arg(long)]
    per_thread: bool,
    /// Record build-ids of all binaries (always on; accepted for compatibility)
    #[arg(long)]
    buildid_all: bool,
    /// Record build-ids in mapping records (always on where the kernel reports them correctly)
    #[arg(long)]
    buildid_mmap: bool,
    /// Do not record BPF programs (never recorded; accepted for compatibility)
    #[arg(long)]
    no_bpf_event: bool,
    /// Write no build-ids to the file
    #[arg(short = 'B', long)]
    no_buildid: bool,
    /// Do not add binaries to perf's build-id cache (done only under the name perf)
    #[arg(short = 'N', long)]
    no_buildid_cache: bool,
    /// Timeout for reading the maps of one process, in milliseconds
    #[arg(long, value_name = "MS", default_value = "500", value_parser = millis)]
    proc_map_timeout: std::time::Duration,
    /// Print only errors
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Print more details
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Exit with status 3 if requested data was lost or left out
    #[arg(long)]
    strict: bool,
    /// Also write a bundle for reading the recording on another machine
    #[arg(long)]
    bundle: bool,
    /// Command to record
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    let probes = args.probes.add(None)?;
    probes.iter().flat_map(TemporaryProbes::events).for_each(|e| args.events.push(e));
    let result = record(&args);
    if let Some(probes) = probes {
        probes.remove()?;
    }
    result
}

fn record(args: &Args) -> anyhow::Result<ExitCode> {
    let mut options = options(args)?;
    let stacks = (args.call_graph == Some(ChainMode::Auto))
        .then(|| StackChoice::of((None, options.freq), &options.target, &options.command));
    if let Some(stacks) = &stacks {
        options.call_graph = Some(stacks.mode);
        options.freq = options.freq.or(Some(stacks.freq)).filter(|_| options.period.is_none());
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(priority) = args.realtime {
        process::hurry(priority).context("-r: the kernel refuses SCHED_FIFO")?;
    }
    if args.bundle && options.output == Output::Stdout {
        bail!("--bundle needs a recording in a file, not on standard output");
    }
    if options.output == Output::Stdout && crate::streams::stdout().is_terminal() {
        bail!("a recording is not for a terminal: send standard output to a file or a pipe");
    }
    // Known now, and of no use only when all is recorded.
    if options.call_graph == Some(CallGraph::FramePointers)
        && !args.quiet
        && CalledName::get() != CalledName::Perf
        && options.records_user_chains()
        && stacks.is_none()
        && let Some(program) = without_frame_pointers(&options.target, &options.command)
    {
        sayln!(
            "kymo record: {} keeps no frame pointers: its stacks will lack callers, which \
             --call-graph auto records",
            program.display()
        );
    }
    let mut summary = kymo_record::record(&options)?;
    if !args.no_buildid_cache
        && let Some((kept, directory)) = container_files::keep(&mut summary)
        && !args.quiet
    {
        let (caller, files) = (CalledName::get().word(), counted(kept as u64, "file", "files"));
        let directory = directory.display();
        sayln!("[ {caller} record: {files} of containers copied to {directory} ]");
    }
    let mut ledger = Ledger::default();
    summary.ledger_notes(&options).into_iter().for_each(|note| ledger.push(note));
    stacks.and_then(|stacks| stacks.note).into_iter().for_each(|note| ledger.push(note));
    let mut events = options.events.iter().chain(&options.more_events);
    if events.any(|event| event.is_tracepoint()) {
        note_kernel_numbers().into_iter().for_each(|note| ledger.push(note));
    }
    if args.all_cpus && options.target != Target::System {
        ledger.tell(
            NoteKind::Target,
            "-a is left out: -p, -t, -u and -G choose whom to record",
            None,
        );
    }
    if !args.quiet {
        tell(&summary, &ledger, args.verbose);
    }
    if let Some(running) = summary.running.take() {
        // perf ends the command here; its user wanted a small recording, not that.
        if !args.quiet {
            let caller = CalledName::get().word();
            sayln!("[ {caller} record: The command runs on, unrecorded ]");
        }
        summary.exit = Some(running.wait().context("cannot wait for the command")?);
    }
    if args.bundle {
        make_bundle(args, &summary)?;
    }
    let cached = !args.no_buildid && !args.no_buildid_cache;
    if CalledName::get() == CalledName::Perf && cached {
        summary.switched.iter().chain(&summary.path).for_each(|path| cache_binaries(path));
    }
    Ok(exit::of_command(summary.exit, &ledger, args.strict))
}

/// Makes a bundle for each file that was written.
fn make_bundle(args: &Args, summary: &RecordSummary) -> anyhow::Result<()> {
    for path in summary.switched.iter().chain(&summary.path) {
        // A bundle that lies there is of another recording.
        let symbols =
            SymbolOptions { bundle: None, no_bundle: None, ..SymbolArgs::default().options(path) };
        let bundle = write_bundle(path, symbols, None, Contents::Seen)?;
        let ledger = bundle_ledger(&bundle);
        if !args.quiet {
            say!("{}{}", bundle_text(&bundle), ledger.to_text(""));
        }
    }
    Ok(())
}

fn options(args: &Args) -> anyhow::Result<RecordOptions> {
    let catalog = Catalog::open();
    let mut command_line = vec!["kymo".to_owned()];
    command_line.extend(std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()));
    let cpus = args.cpu.as_deref().map(cpus::parse_list).transpose().context("-C")?;
    let clock = match &args.clockid {
        None => RecordClock::default(),
        Some(name) => RecordClock::parse(name).with_context(|| {
            format!(
                "there is no clock {name:?}; there are monotonic, monotonic_raw, boottime, \
                 realtime, tai and perf"
            )
        })?,
    };
    let output = if args.output == "-" {
        Output::Stdout
    } else {
        Output::File { path: args.output.clone().into(), force: args.force }
    };
    let mut events = args.events.specs(&catalog)?;
    if args.group {
        events.iter_mut().for_each(|event| event.group = Some(0));
    }
    let mut switch_at = Vec::new();
    for event in &args.switch_output_event {
        switch_at.extend(catalog.parse(event).context("--switch-output-event")?);
    }
    Ok(RecordOptions {
        spawned: None,
        chosen: ChosenTasks::default(),
        events,
        replace_cycles: CalledName::get() == CalledName::Perf,
        more_events: Vec::new(),
        target: target(args)?,
        command: args.command.clone(),
        pinned: Vec::new(),
        cpus: cpus.unwrap_or_default(),
        freq: args.freq.map(|r| r.0),
        period: args.count,
        call_graph: match args.call_graph {
            Some(ChainMode::Fixed(mode)) => Some(mode),
            // As the program needs it.
            Some(ChainMode::Auto) => None,
            None => args.graph.then_some(CallGraph::FramePointers),
        },
        contents: args.contents.contents(),
        exclude: args.contents.exclude(),
        no_samples: args.no_samples,
        running_time: args.running_time,
        no_buffering: args.no_buffering,
        strict_frequency: args.strict_freq,
        cgroup_records: args.all_cgroups,
        synthesis: args.synth,
        inherit_stat: args.stat,
        switch_events: args.switch_events || args.latency,
        data_mappings: args.data_mmap,
        namespaces: args.namespaces,
        inherit: !args.no_inherit && !args.per_thread,
        skip_gone: args.uid.is_some(),
        delay: args.delay,
        control: args.control.clone(),
        timeout: args.timeout,
        max_size: args.max_size,
        pages: args.mmap_pages.map(|r| r.0),
        clock,
        output,
        compress: args.compression_level,
        compressed_form: match CalledName::get() {
            CalledName::Perf => CompressedForm::Aligned,
            _ => CompressedForm::Plain,
        },
        exclude_self: args.exclude_perf,
        // As on a signal, unless there is another reason, too.
        switch: args.switch_output.or((!switch_at.is_empty()).then_some(SwitchOn::Signal)),
        switch_at,
        most_files: args.switch_max_files,
        stamped_name: args.timestamp_filename,
        overwrite: args.overwrite,
        build_ids: !args.no_buildid,
        map_timeout: args.proc_map_timeout,
        command_line,
        version: format!("kymo {}", env!("CARGO_PKG_VERSION")),
    })
}

fn target(args: &Args) -> anyhow::Result<Target> {
    let (pid, tid, uid) = (args.pid.as_deref(), args.tid.as_deref(), args.uid.as_deref());
    Ok(match named_target(pid, tid, uid, &args.cgroup)? {
        Some(target) => target,
        // As with perf: without a command and a task, the whole machine.
        None if args.all_cpus || args.cpu.is_some() || args.command.is_empty() => Target::System,
        None => Target::Command,
    })
}

/// `-z9` and `-Iax,bx` as perf takes them, in the one form that clap knows for a value that
/// may be left out: `-z=9`. Gives the arguments with the first such argument changed.
pub(crate) fn value_with_equals_instead(args: &[OsString]) -> Option<Vec<OsString>> {
    let ours = args.iter().take_while(|a| *a != "--").enumerate();
    let (at, changed) = ours.filter_map(|(i, a)| Some((i, value_with_equals(a)?))).next()?;
    let mut args = args.to_vec();
    *args.get_mut(at)? = changed.into();
    Some(args)
}

fn value_with_equals(arg: &OsString) -> Option<String> {
    let text = arg.to_str()?.strip_prefix('-')?;
    if let Some(registers) = text.strip_prefix('I') {
        let is_first = registers.starts_with(|c: char| c.is_ascii_alphabetic() || c == '?');
        return is_first.then(|| format!("-I={registers}"));
    }
    let (flags, level) = text.rsplit_once('z')?;
    let flags_only = flags.chars().all(|c| c.is_ascii_alphabetic());
    let number = !level.is_empty() && level.chars().all(|c| c.is_ascii_digit());
    (flags_only && number).then(|| format!("-{flags}z={level}"))
}

fn tell(s: &RecordSummary, ledger: &Ledger, verbose: bool) {
    let mut text = String::new();
    let caller = CalledName::get().word();
    for path in &s.switched {
        text.push_str(&format!("[ {caller} record: Dump {} ]\n", path.display()));
    }
    if verbose || CalledName::get() == CalledName::Perf {
        text.push_str(&format!(
            "[ {caller} record: Woken up {} times to write data ]\n",
            s.wakeups
        ));
    }
    let name = s.path.as_ref().map_or("-".into(), |p| p.display().to_string());
    text.push_str(&format!(
        "[ {caller} record: Captured and wrote {:.3} MB {name} ({} samples) ]\n",
        s.bytes as f64 / (1024.0 * 1024.0),
        s.samples
    ));
    text.push_str(&ledger.to_text(""));
    // The message may have no reader; the recording is done all the same.
    let _ = crate::streams::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_may_be_attached() {
        let args = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            value_with_equals_instead(&args(&["kymo", "record", "-qz9", "-Iax", "x"])),
            Some(args(&["kymo", "record", "-qz=9", "-Iax", "x"]))
        );
        assert_eq!(
            value_with_equals_instead(&args(&["kymo", "record", "--", "gzip", "-z9"])),
            None
        );
        assert_eq!(value_with_equals_instead(&args(&["kymo", "record", "-z", "true"])), None);
    }
}

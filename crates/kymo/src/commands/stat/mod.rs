//! `kymo stat`: counts events for a command, tasks, cgroups or the machine.
//!
//! `recorded.rs` has `stat record` and `stat report`, `options.rs` turns the flags into what is meant, `output.rs` prints; counting is
//! `kymo_record::count`, the layout `kymo_view::counts`.

mod metrics;
mod options;
mod output;
mod recorded;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use kymo_kernel::process::{Signal, die_by};
use kymo_model::NoteKind;

use kymo_record::ControlSource;
use kymo_record::count::{CountFileOptions, CountOptions};
use kymo_view::Ledger;

use self::options::{count_options, count_style, output_target, title};
use self::output::{CountOutput, OutputOptions, RunScripts};
use crate::args::event_filters::EventArgs;
use crate::args::probes::{ProbeArgs, TemporaryProbes};
use crate::args::values::control;
use crate::exit;

/// Flags of `kymo stat`.
#[derive(clap::Args)]
#[command(after_help = "\
RECORDINGS
  kymo stat record [FLAGS] [-o FILE] -- COMMAND     write counts to a perf.data
  kymo stat report [-i FILE] [FLAGS]                show such a file, also one from perf;
                                                    also by CPU, core, die, socket or node")]
pub(crate) struct Args {
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    probes: ProbeArgs,
    /// Exclude the kernel from all events
    #[arg(long, conflicts_with = "all_kernel")]
    all_user: bool,
    /// Exclude user space from all events
    #[arg(long)]
    all_kernel: bool,
    /// Count all events as one group
    #[arg(long)]
    group: bool,
    /// Run this shell command before each run
    #[arg(long, value_name = "SCRIPT")]
    pre: Option<String>,
    /// Run this shell command after each run
    #[arg(long, value_name = "SCRIPT")]
    post: Option<String>,
    /// Clear the screen before each interval
    #[arg(long, requires = "interval_print")]
    interval_clear: bool,
    /// Count on all CPUs, for all tasks
    #[arg(short = 'a', long)]
    all_cpus: bool,
    /// Count on these CPUs (`0-3,5`)
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<String>,
    /// Show each CPU separately
    #[arg(short = 'A', long)]
    no_aggr: bool,
    /// Sum by physical core
    #[arg(long)]
    per_core: bool,
    /// Sum by cluster of cores
    #[arg(long)]
    per_cluster: bool,
    /// Sum by cache instance: L1 to L4 [default: last level]
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = options::cache_level)]
    per_cache: Option<u8>,
    /// Sum by die
    #[arg(long)]
    per_die: bool,
    /// Sum by memory node
    #[arg(long)]
    per_node: bool,
    /// Sum by socket
    #[arg(long)]
    per_socket: bool,
    /// Sum by thread
    #[arg(long)]
    per_thread: bool,
    /// Count these processes
    #[arg(short = 'p', long, value_name = "PIDS")]
    pid: Option<String>,
    /// Count these threads
    #[arg(short = 't', long, value_name = "TIDS")]
    tid: Option<String>,
    /// Count in these cgroups: one per event, or one for all
    #[arg(short = 'G', long, value_name = "NAMES", conflicts_with = "for_each_cgroup")]
    cgroup: Option<String>,
    /// Count every event in each of these cgroups
    #[arg(long, value_name = "NAMES")]
    for_each_cgroup: Option<String>,
    /// Do not count child tasks
    #[arg(short = 'i', long)]
    no_inherit: bool,
    /// Run the command N times and print mean and spread; 0: until interrupted
    #[arg(short = 'r', long, value_name = "N", allow_negative_numbers = true)]
    repeat: Option<u32>,
    /// Print the counts every MS milliseconds
    #[arg(short = 'I', long, value_name = "MS", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..))]
    interval_print: Option<u64>,
    /// Stop after N intervals
    #[arg(long, value_name = "N", requires = "interval_print")]
    interval_count: Option<u64>,
    /// Also print the sums after the intervals
    #[arg(long, requires = "interval_print")]
    summary: bool,
    /// Omit the `summary` prefix of --summary lines in -x output
    #[arg(long)]
    no_csv_summary: bool,
    /// Print only derived metrics: ratios, not counts and rates
    #[arg(long, conflicts_with = "repeat")]
    metric_only: bool,
    /// Count these metrics (insn_per_cycle, cs_per_second, …)
    ///
    /// In addition to -e, or instead of the default events; an unknown name lists all metrics.
    #[arg(short = 'M', long, value_name = "NAMES", value_delimiter = ',')]
    metrics: Vec<String>,
    /// With -r, also print the time of each run
    #[arg(long)]
    table: bool,
    /// Do not sum the same event of several PMUs (never done; accepted for compatibility)
    #[arg(long)]
    no_merge: bool,
    /// Run the command without printing a result
    #[arg(long)]
    quiet: bool,
    /// Stop after MS milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Start MS milliseconds after the command; -1: when `--control` receives `enable`
    #[arg(short = 'D', long, value_name = "MS", allow_negative_numbers = true)]
    delay: Option<i64>,
    /// Take `enable`, `disable`, `stop` and `ping` from fd:CTL[,ACK] or fifo:CTL[,ACK]
    #[arg(long, value_name = "WHERE", value_parser = control)]
    control: Option<ControlSource>,
    /// Separate fields with SEP, for scripts
    #[arg(short = 'x', long, value_name = "SEP", conflicts_with = "json_output")]
    field_separator: Option<String>,
    /// Print one JSON object per line
    #[arg(short = 'j', long)]
    json_output: bool,
    /// Print to this file
    #[arg(short = 'o', long, value_name = "FILE", conflicts_with = "log_fd")]
    output: Option<PathBuf>,
    /// Print to this open file descriptor
    #[arg(long, value_name = "FD")]
    log_fd: Option<u32>,
    /// With record, overwrite a file that is not a recording
    #[arg(long)]
    force: bool,
    /// Append to the file of -o
    #[arg(long)]
    append: bool,
    /// Add cache events; -dd adds TLBs, -ddd prefetches
    #[arg(short = 'd', long, action = clap::ArgAction::Count)]
    detailed: u8,
    /// Print large numbers with thousands separators
    #[arg(short = 'B', long)]
    big_num: bool,
    /// Print large numbers without thousands separators
    #[arg(long, conflicts_with = "big_num")]
    no_big_num: bool,
    /// Count no events, only measure the time
    #[arg(short = 'n', long)]
    null: bool,
    /// Write caches to disk before each run
    #[arg(short = 'S', long)]
    sync: bool,
    /// Show each counter as it is read
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Scale up counts of multiplexed counters [default]
    #[arg(long, overrides_with = "no_scale")]
    scale: bool,
    /// Do not
    #[arg(long)]
    no_scale: bool,
    /// Exit with status 3 if there are warnings, such as a requested event that cannot be counted
    #[arg(long)]
    strict: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let finished = match recorded::run(&args) {
        Some(finished) => finished,
        None => with_probes(args, None),
    };
    match finished? {
        Finished::Status(status) => Ok(status),
        // The parent sees the signal that ended kymo, and a shell ends its loop.
        Finished::Signal(signal) => die_by(signal),
    }
}

/// Counts, into a file too if one is given, with the probes that are wanted for that time.
fn with_probes(mut args: Args, file: Option<CountFileOptions>) -> anyhow::Result<Finished> {
    let probes = args.probes.add(None)?;
    probes.iter().flat_map(TemporaryProbes::events).for_each(|e| args.events.push(e));
    let finished = count(&args, file);
    if let Some(probes) = probes {
        probes.remove()?;
    }
    finished
}

/// Outcome of `stat`.
enum Finished {
    Status(ExitCode),
    /// It was asked to end, and has done what it had to.
    Signal(Signal),
}

fn count(args: &Args, file: Option<CountFileOptions>) -> anyhow::Result<Finished> {
    let options = CountOptions { file, ..count_options(args)? };
    let style = count_style(args, options.by);
    let output = OutputOptions {
        target: output_target(args),
        title: title(args),
        quiet: args.quiet,
        table: args.table,
        // A run is announced where there are several.
        announce_runs: args.verbose > 0 && options.runs != 1,
        raw_counters: args.verbose > 0,
        scripts: RunScripts { before: args.pre.clone(), after: args.post.clone() },
        clears: args.interval_clear,
    };
    let mut output = CountOutput::open(output, style)?;
    let summary = kymo_record::count::count(&options, &mut output)?;
    let mut ledger = Ledger::default();
    if args.all_cpus && (args.pid.is_some() || args.tid.is_some()) {
        let fact = "-a is left out: -p and -t choose whom to count";
        ledger.tell(NoteKind::Target, fact, None);
    }
    summary.notes.into_iter().for_each(|note| ledger.push(note));
    output.finish(&ledger)?;
    if !exit::save(&ledger) {
        return Ok(Finished::Status(ExitCode::FAILURE));
    }
    if let Some(signal) = summary.signal {
        return Ok(Finished::Signal(signal));
    }
    Ok(Finished::Status(match summary.status {
        0 if args.strict && ledger.has_doubts() => ExitCode::from(Ledger::STRICT_STATUS),
        status => ExitCode::from(status),
    }))
}

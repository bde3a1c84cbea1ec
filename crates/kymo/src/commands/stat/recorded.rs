//! `kymo stat record` and `kymo stat report`: counts into a perf.data and out of one.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::Command;
use kymo_files::perfdata::PerfData;
use kymo_model::{Aggregation, Note, NoteKind};
use kymo_record::count::{
    CountFileFacts, CountFileOptions, CountFileReading, CountSink as _, read_counts,
};
use kymo_view::Ledger;
use kymo_view::counts::{CountStyle, MetricWords};

use super::options::{count_format, only_aggregation};
use super::output::{CountOutput, OutputOptions, OutputTarget, RunScripts};
use super::{Args, Finished};
use crate::called_name::CalledName;
use crate::exit;

/// Flags of `kymo stat report`.
#[derive(clap::Args)]
pub(super) struct ReportArgs {
    /// Recording (perf.data); `-`: standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: PathBuf,
    /// Show each CPU separately
    #[arg(short = 'A', long)]
    no_aggr: bool,
    /// Sum by physical core
    #[arg(long)]
    per_core: bool,
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
    /// Separate fields with SEP, for scripts
    #[arg(short = 'x', long, value_name = "SEP", conflicts_with = "json_output")]
    field_separator: Option<String>,
    /// Print one JSON object per line
    #[arg(short = 'j', long)]
    json_output: bool,
    /// Print to this file
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Large numbers without separators of thousands
    #[arg(long)]
    no_big_num: bool,
    /// Exit with status 3 if anything lessens the trust in the result
    #[arg(long)]
    strict: bool,
}

/// Sub-command in place of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Record,
    Report,
}

/// Runs `stat record` or `stat report`, if that was typed.
pub(super) fn run(args: &Args) -> Option<anyhow::Result<Finished>> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let at = typed.len().checked_sub(args.command.len())?;
    let action = match args.command.first()?.to_str()? {
        "record" => Action::Record,
        "report" => Action::Report,
        _ => return None,
    };
    // `kymo stat -- record` counts a command of that name.
    if typed.get(at.checked_sub(1)?)? == "--" {
        return None;
    }
    let stat = typed.iter().take(at).position(|word| word == "stat")?;
    // Flags before the word count as those behind it.
    let flags = typed.get(stat + 1..at)?.iter().chain(typed.get(at + 1..)?).cloned();
    Some(match action {
        Action::Record => record(parsed(Command::new("kymo stat record"), flags)),
        Action::Report => report(&parsed(Command::new("kymo stat report"), flags)),
    })
}

/// Flags, or the end with what is wrong with them.
fn parsed<T: clap::Args>(command: Command, flags: impl Iterator<Item = OsString>) -> T {
    let command = T::augment_args(command).infer_long_args(true);
    let words = [OsString::from(command.get_name())].into_iter().chain(flags);
    let parsed = command.try_get_matches_from(words).and_then(|m| T::from_arg_matches(&m));
    parsed.unwrap_or_else(|error| {
        let _ = error.print();
        let usage = CalledName::get().usage_status();
        std::process::exit(if error.use_stderr() { usage } else { 0 })
    })
}

fn record(mut args: Args) -> anyhow::Result<Finished> {
    let cgroups = args.cgroup.is_some() || args.for_each_cgroup.is_some();
    if args.repeat.is_some_and(|runs| runs != 1) {
        anyhow::bail!("stat record records one run: leave -r out");
    }
    if cgroups {
        anyhow::bail!("a perf.data does not contain cgroups of counts: omit -G");
    }
    if args.per_cluster || args.per_cache.is_some() {
        anyhow::bail!("a perf.data of counts does not contain clusters and caches: omit --per-…");
    }
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let file = CountFileOptions {
        path: args.output.take().unwrap_or_else(|| "perf.data".into()),
        force: args.force,
        command_line: words.collect(),
        version: format!("kymo {}", env!("CARGO_PKG_VERSION")),
    };
    if file.path.as_os_str() == "-" && crate::streams::stdout().is_terminal() {
        anyhow::bail!("a recording is not for a terminal: -o FILE, or into a pipe");
    }
    super::with_probes(args, Some(file))
}

fn report(args: &ReportArgs) -> anyhow::Result<Finished> {
    let mut data = PerfData::open(&args.input)?;
    let by = only_aggregation(&[
        (args.no_aggr, Aggregation::Cpu),
        (args.per_core, Aggregation::Core),
        (args.per_die, Aggregation::Die),
        (args.per_socket, Aggregation::Socket),
        (args.per_node, Aggregation::Node),
        (args.per_thread, Aggregation::Thread),
    ])?;
    let mut shown: Option<CountOutput> = None;
    let read = read_counts(&mut data, by, &mut |facts, reading| {
        let output = match &mut shown {
            Some(output) => output,
            None => shown.insert(output(args, facts).map_err(io::Error::other)?),
        };
        match reading {
            CountFileReading::Interval(reading) => output.interval(&reading),
            CountFileReading::Result(result) => output.result(&result),
        }
    })?;
    let mut ledger = Ledger::default();
    let damage = read.damaged.as_ref().map(|d| format!("{d}; everything before it is shown"));
    if let Some(damage) = &damage {
        ledger.push(Note::doubt(NoteKind::Damaged, damage.clone(), None));
    }
    if let Some(output) = shown {
        output.finish(&ledger)?;
    }
    Ok(Finished::Status(exit::status(data.name(), damage.as_deref(), &ledger, args.strict)))
}

fn output(args: &ReportArgs, facts: &CountFileFacts) -> anyhow::Result<CountOutput> {
    let style = CountStyle {
        format: count_format(args.field_separator.as_deref(), args.json_output, args.no_big_num),
        by: facts.by,
        metrics: match CalledName::get() {
            CalledName::Perf => MetricWords::Name(None),
            _ => MetricWords::Unit,
        },
        metric_only: false,
        intervals: facts.intervals,
        csv_summary: true,
    };
    let target = match &args.output {
        Some(path) => OutputTarget::File { path: path.clone(), append: false },
        None => OutputTarget::Stderr,
    };
    let command = facts.command_line.as_ref().map(|words| words.join(" "));
    let options = OutputOptions {
        target,
        // As perf says it of what comes through a pipe.
        title: format!("'{}'", command.as_deref().unwrap_or("pipe")),
        quiet: false,
        scripts: RunScripts::default(),
        clears: false,
        table: false,
        announce_runs: false,
        raw_counters: false,
    };
    CountOutput::open(options, style)
}

//! `kymo sched stats`: what the scheduler counts itself (`/proc/schedstat`), live, into a file,
//! out of one, and two of them compared.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use kymo_events::notes_on_perf_data;
use kymo_files::perfdata::PerfData;
use kymo_files::perfdata::schedstat::read_schedstats;
use kymo_kernel::cpus;
use kymo_model::schedstat::SchedStats;
use kymo_model::{Note, NoteKind};
use kymo_record::schedstat::{SchedStatsOptions, SchedStatsReading, measure, write_file};
use kymo_view::Ledger;
use kymo_view::sched::SchedStatsView;

use super::super::{analysis::stdout, default_recording};
use crate::args::values::millis;
use crate::exit;

/// Flags of `kymo sched stats`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Shows the change of the counters in /proc/schedstat: switches, wake-ups, run and wait times, and
load balancing per scheduling domain. The kernel counts only while sysctl kernel.sched_schedstats is
1; kymo sets it for the measurement. Counters have little overhead and lose nothing, but do not
identify tasks (use `kymo sched record` for that). The file format is that of perf sched stats.

A counter is followed by its share of another one in percent (sched_goidle of sched_count,
ttwu_local of ttwu_count, run_delay of rq_cpu_time), or by the mean number of jiffies between two
events.

EXAMPLES
  kymo sched stats -- make -j4              counters of a command
  kymo sched stats record -- make -j4       write the counters to a perf.data
  kymo sched stats report -v                its counters, with descriptions
  kymo sched stats diff perf.data.old perf.data"
)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    measure: MeasureArgs,
    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Subcommand)]
enum Action {
    /// Write the counters before and after to a perf.data
    Record(RecordArgs),
    /// Show the counters of a recording
    Report(ReportArgs),
    /// Compare two recordings
    Diff(DiffArgs),
}

#[derive(clap::Args)]
struct MeasureArgs {
    /// Only these CPUs (`0,2-3`)
    #[arg(short = 'C', long, value_name = "LIST")]
    cpu: Option<String>,
    /// Stop after this time in milliseconds, and stop the command
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<Duration>,
    /// Command to run [default: measure until Ctrl-C]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
struct ShowArgs {
    /// Show descriptions of the counters instead of their names
    #[arg(short, long)]
    verbose: bool,
    /// Machine-readable output (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

#[derive(clap::Args)]
struct RecordArgs {
    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    output: PathBuf,
    /// Overwrite a file that is not a recording
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    measure: MeasureArgs,
}

#[derive(clap::Args)]
struct ReportArgs {
    /// Recording to read
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Only these CPUs (`0,2-3`)
    #[arg(short = 'C', long, value_name = "LIST")]
    cpu: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

#[derive(clap::Args)]
struct DiffArgs {
    /// Earlier recording
    #[arg(value_name = "FILE", default_value = "perf.data.old")]
    before: PathBuf,
    /// Later recording
    #[arg(value_name = "FILE", default_value = "perf.data")]
    after: PathBuf,
    #[command(flatten)]
    show: ShowArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.action {
        None => live(&args.measure, &args.show),
        Some(Action::Record(args)) => record(args),
        Some(Action::Report(args)) => report(args),
        Some(Action::Diff(args)) => diff(args),
    }
}

fn measured(args: &MeasureArgs) -> anyhow::Result<SchedStatsReading> {
    let cpus = args.cpu.as_deref().map(cpus::parse_list).transpose().context("-C")?;
    let options = SchedStatsOptions {
        command: args.command.clone(),
        cpus: cpus.unwrap_or_default(),
        timeout: args.timeout,
    };
    Ok(measure(&options)?)
}

fn live(args: &MeasureArgs, show_args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let reading = measured(args)?;
    let mut ledger = Ledger::default();
    let difference = difference(&reading.before, &reading.after, "", &mut ledger)?;
    show(&[difference], show_args, &ledger)?;
    Ok(exit::of_command(reading.exit, &ledger, show_args.strict))
}

fn record(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let reading = measured(&args.measure)?;
    let mut command_line = vec!["kymo".to_owned()];
    command_line.extend(std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()));
    let version = format!("kymo {}", env!("CARGO_PKG_VERSION"));
    let readings = [&reading.before, &reading.after];
    let bytes = write_file(&args.output, args.force, &readings, &command_line, &version)?;
    let text = format!("[ kymo sched stats: wrote {bytes} bytes {} ]\n", args.output.display());
    // The message may have no reader; the recording is done all the same.
    let _ = crate::streams::stderr().write_all(text.as_bytes());
    Ok(ExitCode::from(reading.exit.unwrap_or(0)))
}

fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let path = args.input.clone().unwrap_or_else(default_recording);
    let mut ledger = Ledger::default();
    let mut stats = of_file(&path, "", &mut ledger)?;
    if let Some(list) = &args.cpu {
        let wanted = cpus::parse_list(list).context("-C")?;
        stats.cpus.retain(|c| wanted.contains(&c.cpu));
    }
    show(&[stats], &args.show, &ledger)?;
    Ok(exit::status(path.display(), None, &ledger, args.show.strict))
}

fn diff(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let mut ledger = Ledger::default();
    let both =
        [of_file(&args.before, "1: ", &mut ledger)?, of_file(&args.after, "2: ", &mut ledger)?];
    if both[0].version != both[1].version {
        bail!(
            "the counters of schedstat version {} and {} cannot be compared",
            both[0].version,
            both[1].version
        );
    }
    show(&both, &args.show, &ledger)?;
    let names = format!("{}, {}", args.before.display(), args.after.display());
    Ok(exit::status(names, None, &ledger, args.show.strict))
}

/// Returns the difference between the first and the last reading of a recording.
fn of_file(path: &Path, name: &str, ledger: &mut Ledger) -> anyhow::Result<SchedStats> {
    let mut data = PerfData::open(path)?;
    let (readings, read) = read_schedstats(&mut data)?;
    let [before, .., after] = &readings[..] else {
        bail!(
            "{} has no two readings of /proc/schedstat; kymo sched stats record makes them",
            path.display()
        );
    };
    for note in notes_on_perf_data(&data, &read) {
        ledger.push(Note { fact: format!("{name}{}", note.fact), ..note });
    }
    if let Some(damage) = &read.damaged {
        ledger.note(NoteKind::Damaged, format!("{name}{damage}"), None);
    }
    difference(before, after, name, ledger)
}

fn difference(
    before: &SchedStats,
    after: &SchedStats,
    name: &str,
    ledger: &mut Ledger,
) -> anyhow::Result<SchedStats> {
    let (difference, changed) = after.since(before)?;
    if !changed.is_empty() {
        let list: Vec<String> = changed.iter().map(u32::to_string).collect();
        let fact = format!(
            "{name}CPUs {} went online or offline, or their domains changed: they are left out",
            list.join(",")
        );
        ledger.note(NoteKind::NotCounted, fact, None);
    }
    Ok(difference)
}

fn show(measured: &[SchedStats], args: &ShowArgs, ledger: &Ledger) -> anyhow::Result<()> {
    let mut out = stdout();
    let view = SchedStatsView { measured, meanings: args.verbose };
    if args.json {
        view.write_json(&mut out)?
    } else {
        view.write_text(&mut out, ledger)?
    }
    Ok(out.flush()?)
}

//! `kymo sched`: who runs, who waits for a CPU and why; `record` chooses the events, the
//! others read them out of recordings of any format.

mod latency;
mod map;
mod record;
mod timehist;

use std::io::{BufWriter, StdoutLock, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use kymo_analysis::tasks::{SchedRead, SchedSelection, sched_notes};
use kymo_events::{EventSelection, EventSource, parse_times};
use kymo_view::Ledger;
use kymo_view::sched::TimeUnits;

use crate::args::symbols::SymbolArgs;
use crate::exit;

/// Flags of `kymo sched`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Recordings are perf.data (of perf sched record, too), trace.dat or directories of LTTng's kernel
traces. sched_switch is needed, sched_waking or sched_wakeup for delays after wake-ups,
sched_wakeup_new for those of new tasks. All CPUs have to be recorded: a task may be woken and go
on anywhere.

WORDS
  run time          on a CPU
  wait time         between two runs: asleep, preempted, or waiting for a CPU after a wake-up
  scheduling delay  the part of it in which the task could have run

EXAMPLES
  kymo sched record -- make -j4            everything that runs meanwhile, into perf.data
  kymo sched record -o x.dat -- make -j4   the same into a trace.dat, at a fraction of the cost
  kymo sched latency                       who waits longest for a CPU
  kymo sched latency -p --causes           by task; after wake-ups and preemptions apart
  kymo sched timehist --state -w           each run and the wait before it, and wake-ups
  kymo sched map                           what each CPU runs")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record the scheduler's events of the machine
    Record(Box<record::Args>),
    /// Show how long tasks waited for a CPU
    #[command(visible_alias = "lat")]
    Latency(latency::Args),
    /// Show each run of a task and the wait before it
    #[command(disable_version_flag = true)]
    Timehist(Box<timehist::Args>),
    /// Show which task each CPU ran
    Map(map::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Record(args) => record::run(*args),
        Action::Latency(args) => latency::run(&args),
        Action::Timehist(args) => timehist::run(&args),
        Action::Map(args) => map::run(&args),
    }
}

/// Flags that all of them share.
#[derive(clap::Args)]
struct ReadArgs {
    /// Recording to read: perf.data, trace.dat, the directory of CTF traces or of a session; `-` is the standard input
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Recordings to read, without -i; several of one machine are merged by time
    #[arg(value_name = "FILE", conflicts_with = "input")]
    files: Vec<PathBuf>,
    /// Only what is between START,STOP (seconds; either may be missing; several
    /// space-separated), or in a share of the whole: 10%/2, 0%-10%; the state before is known
    #[arg(long, value_name = "START,STOP", allow_hyphen_values = true)]
    time: Option<String>,
    /// Only what happens on these CPUs (`0,2-3`)
    #[arg(short = 'C', long, visible_alias = "CPU", value_name = "LIST")]
    cpu: Option<String>,
    /// Only tasks with these names
    #[arg(long, visible_alias = "comms", value_name = "NAMES", value_delimiter = ',')]
    comm: Vec<String>,
    /// Machine-readable output (docs/json.md)
    #[arg(long)]
    json: bool,
    /// Times in nanoseconds
    #[arg(long)]
    ns: bool,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

impl ReadArgs {
    fn open(&self, symbols: &SymbolArgs) -> anyhow::Result<EventSource> {
        let mut paths = self.files.clone();
        paths.extend(self.input.clone());
        if paths.is_empty() {
            paths.push(super::default_recording());
        }
        let first = paths.first().cloned().unwrap_or_default();
        Ok(EventSource::open(&paths, symbols.options(&first))?)
    }

    /// The conditions, with those on tasks that each command has flags of its own for.
    fn selection(
        &self,
        source: &EventSource,
        pids: &[u32],
        tids: &[u32],
    ) -> anyhow::Result<SchedSelection> {
        let mut events = EventSelection::of_tasks(self.comm.clone(), pids.to_vec(), tids.to_vec());
        if let Some(text) = &self.time {
            let span = if text.contains('%') { source.span()? } else { None };
            events.times = parse_times(text, span)?;
        }
        if let Some(cpus) = &self.cpu {
            events.set_cpus(cpus)?;
        }
        Ok(SchedSelection { events })
    }

    fn units(&self) -> TimeUnits {
        TimeUnits { nanos: self.ns }
    }

    /// Exit status, after everything was written.
    fn close(
        &self,
        mut out: BufWriter<StdoutLock<'_>>,
        source: &EventSource,
        read: &SchedRead,
        ledger: &Ledger,
    ) -> anyhow::Result<ExitCode> {
        out.flush()?;
        let damage =
            read.summary.is_damaged(source).then_some("damaged; what can be read is counted");
        Ok(exit::status(source.name(), damage, ledger, self.strict))
    }
}

fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, std::io::stdout().lock())
}

/// What the readers and the state machine have to say.
fn ledger(source: &EventSource, read: &SchedRead) -> Ledger {
    Ledger::from_notes(read.summary.notes(source).into_iter().chain(sched_notes(read)))
}

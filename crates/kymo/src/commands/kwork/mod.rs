//! `kymo kwork`: interrupts, softirqs and work items; `record` chooses the events, the others
//! read them out of recordings of any format.

mod latency;
mod record;
mod report;
mod timehist;
mod top;

use std::process::ExitCode;

use clap::Subcommand;
use kymo_analysis::kwork::{KworkConfig, KworkKind, KworkRead, kwork_notes};
use kymo_events::EventSource;
use kymo_view::Ledger;

use super::analysis::AnalysisArgs;
use super::live::WatchArgs;
use crate::args::symbols::SymbolArgs;

/// Flags of `kymo kwork`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Recordings are perf.data (of perf kwork record, too), trace.dat or directories of LTTng's kernel
traces.

WORDS
  run time   from the start of an interrupt handler, softirq or work item to its end
  delay      from the first request to the start
  held up    a task that did not go on while interrupts and softirqs ran on its CPU

EXAMPLES
  kymo kwork record -- make -j4
  kymo kwork report                      by time, and the tasks that they delay
  kymo kwork latency -s max              which wait longest
  kymo kwork -k irq,softirq timehist     each of them
  kymo kwork -k irq,softirq,workqueue,sched record -- make -j4
  kymo kwork top                         the CPUs' time, by task")]
pub(crate) struct Args {
    /// Only these kinds: irq, softirq, workqueue; of recordings and top sched, too
    #[arg(short = 'k', long, value_name = "KINDS", value_delimiter = ',')]
    kwork: Vec<String>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record events of interrupts, softirqs and work items
    Record(Box<record::Args>),
    /// Show run times, and the tasks that were held up
    Report(Box<report::Args>),
    /// Show delays from the request to the start
    #[command(visible_alias = "lat")]
    Latency(Box<latency::Args>),
    /// Show each interrupt, softirq and work item
    Timehist(Box<timehist::Args>),
    /// Show what the CPUs spend their time on
    Top(Box<top::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let kinds = args.kwork;
    match args.action {
        Action::Record(args) => record::run(&args, kinds),
        Action::Report(args) => report::run(*args, &kinds),
        Action::Latency(args) => latency::run(*args, &kinds),
        Action::Timehist(args) => timehist::run(*args, &kinds),
        Action::Top(args) => top::run(*args, &kinds),
    }
}

/// Flags that those have in common which read.
#[derive(clap::Args)]
struct ReadArgs {
    #[command(flatten)]
    analysis: AnalysisArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Only these kinds: irq, softirq, workqueue
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    kwork: Vec<String>,
    /// Only those with this name
    #[arg(short = 'n', long, value_name = "NAME")]
    name: Option<String>,
    /// Only in these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only in these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
}

impl ReadArgs {
    /// What happens now is watched.
    fn watch(&mut self, live: &WatchArgs) -> anyhow::Result<()> {
        self.analysis.watch_machine(live, &self.pid, &self.tid)
    }

    /// What is read; `kinds` are those named before the sub-command, as perf has them.
    fn config(&self, source: &EventSource, kinds: &[String]) -> anyhow::Result<KworkConfig> {
        // Switches are read by `top` alone.
        let named = kinds.iter().chain(&self.kwork).filter(|kind| *kind != "sched");
        let kinds = named.map(|kind| kind.trim().parse()).collect::<Result<Vec<KworkKind>, _>>();
        Ok(KworkConfig {
            selection: self.analysis.selection(source, &self.pid, &self.tid)?,
            kinds: kinds.map_err(anyhow::Error::msg)?,
            ..KworkConfig::default()
        })
    }
}

/// What the readers and the tables have to say.
fn ledger(source: &EventSource, read: &KworkRead) -> Ledger {
    Ledger::from_notes(read.summary.notes(source).into_iter().chain(kwork_notes(read)))
}

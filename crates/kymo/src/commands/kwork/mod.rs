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
Reads perf.data (also from perf kwork record), trace.dat, and directories of LTTng kernel traces.

WORDS
  run time   time from the start of an interrupt handler, softirq or work item to its end
  delay      time from the first request to the start
  held up    time in which interrupts and softirqs on its CPU delayed a task

EXAMPLES
  kymo kwork record -- make -j4
  kymo kwork report                      by run time, with the delayed tasks
  kymo kwork latency -s max              by longest delay
  kymo kwork -k irq,softirq timehist     each interrupt and softirq
  kymo kwork -k irq,softirq,workqueue,sched record -- make -j4
  kymo kwork top                         CPU time, by task")]
pub(crate) struct Args {
    /// Only these kinds: irq, softirq, workqueue; for record and top also sched
    #[arg(short = 'k', long, value_name = "KINDS", value_delimiter = ',')]
    kwork: Vec<String>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record events of interrupts, softirqs and work items
    Record(Box<record::Args>),
    /// Show run times, and the tasks that were delayed
    Report(Box<report::Args>),
    /// Show delays from the request to the start
    #[command(visible_alias = "lat")]
    Latency(Box<latency::Args>),
    /// Show each interrupt, softirq and work item
    Timehist(Box<timehist::Args>),
    /// Show how CPUs spend their time
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
    /// Only interrupts, softirqs and work items with this name
    #[arg(short = 'n', long, value_name = "NAME")]
    name: Option<String>,
    /// Only these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
}

impl ReadArgs {
    /// Selects live events.
    fn watch(&mut self, live: &WatchArgs) -> anyhow::Result<()> {
        self.analysis.watch_machine(live, &self.pid, &self.tid)
    }

    /// Options of reading work. `kinds`: those named before the sub-command, as in perf.
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

/// Builds the ledger from the notes of the readers and the tables.
fn ledger(source: &EventSource, read: &KworkRead) -> Ledger {
    Ledger::from_notes(read.summary.notes(source).into_iter().chain(kwork_notes(read)))
}

//! `kymo io`: requests to block devices; `record` chooses the events, the others read them out of
//! recordings of any format.

mod latency;
mod record;
mod timehist;
mod top;

use std::process::ExitCode;

use clap::Subcommand;
use kymo_analysis::block_io::{BlockConfig, BlockDevice, BlockRead, block_notes};
use kymo_events::EventSource;
use kymo_kernel::system::SystemRoot;
use kymo_view::Ledger;

use super::analysis::AnalysisArgs;
use crate::args::symbols::SymbolArgs;

/// Flags of `kymo io`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Recordings are perf.data, trace.dat or directories of LTTng's kernel traces, with block_rq_issue and
block_rq_complete at least.

WORDS
  queue     from the first event of a request (it is made, or queued) until the driver has it
  device    from there until it is done: driver and device
  waited    a task that slept uninterruptibly until the completion of a request woke it

EXAMPLES
  kymo io record -- make -j4
  kymo io latency                     how long requests take, by device; who waited
  kymo io top                         for whom they are
  kymo io timehist --time 10%/1       each of them")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record events of block requests, and switches of tasks
    Record(Box<record::Args>),
    /// Show histograms of queue and device times, and who waited
    #[command(visible_alias = "lat")]
    Latency(Box<latency::Args>),
    /// Show requests by process and device
    Top(Box<top::Args>),
    /// Show each request
    Timehist(Box<timehist::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Record(args) => record::run(&args),
        Action::Latency(args) => latency::run(*args),
        Action::Top(args) => top::run(*args),
        Action::Timehist(args) => timehist::run(&args),
    }
}

/// Flags that those have in common which read.
#[derive(clap::Args)]
struct ReadArgs {
    #[command(flatten)]
    analysis: AnalysisArgs,
    /// Only these devices, by number (`254,0`)
    #[arg(short = 'd', long, value_name = "MAJOR,MINOR", value_parser = device)]
    device: Vec<BlockDevice>,
    /// Only of these processes
    #[arg(short = 'p', long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only of these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
}

fn device(text: &str) -> Result<BlockDevice, String> {
    let numbers = text.split_once([',', ':']).and_then(|(major, minor)| {
        let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
        (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
    });
    numbers.map(BlockDevice).ok_or_else(|| format!("{text:?} is no MAJOR,MINOR, such as 254,0"))
}

impl ReadArgs {
    fn open(&self) -> anyhow::Result<EventSource> {
        self.analysis.open(&SymbolArgs::default())
    }

    fn config(&self, source: &EventSource) -> anyhow::Result<BlockConfig> {
        let selection = self.analysis.selection(source, &self.pid, &self.tid)?;
        Ok(BlockConfig { selection, devices: self.device.clone() })
    }
}

/// Names of devices as this machine has them, if it made the recording.
fn device_names(source: &EventSource) -> impl Fn(BlockDevice) -> Option<String> + use<> {
    let machine = SystemRoot::machine();
    let here = machine.hostname();
    let of_recording = |n| source.perf(n).and_then(|data| data.features().hostname.clone());
    let is_here = source.timeline().is_none()
        && here.is_some()
        && (0..source.perf_count()).all(|n| of_recording(n) == here);
    move |device| {
        let (major, minor) = device.numbers();
        machine.block_device_name(major, minor).filter(|_| is_here)
    }
}

/// What the readers and the tables have to say.
fn ledger(source: &EventSource, read: &BlockRead) -> Ledger {
    Ledger::from_notes(read.summary.notes(source).into_iter().chain(block_notes(read)))
}

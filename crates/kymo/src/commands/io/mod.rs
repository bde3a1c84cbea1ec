//! `kymo io`: requests to block devices; `record` chooses the events, the others read them out of
//! recordings of any format.

mod file_names;
mod latency;
mod record;
mod timehist;
mod top;

use std::process::ExitCode;

use clap::{Arg, Subcommand};
use kymo_analysis::block_io::{
    BLOCK_FILE_EVENTS, BlockConfig, BlockDevice, BlockRead, BlockTable, block_notes,
};
use kymo_events::EventSource;
use kymo_kernel::system::SystemRoot;
use kymo_model::{Note, NoteKind};
use kymo_view::Ledger;

use file_names::KnownNames;

use super::analysis::AnalysisArgs;
use super::event_recording::has_event;
use super::live::WatchArgs;
use crate::args::symbols::SymbolArgs;

/// Flags of `kymo io`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Reads perf.data, trace.dat, and directories of LTTng kernel traces. They need at least
block_rq_issue and block_rq_complete.

WORDS
  queue     time from the first event of a request until it is issued to the driver
  device    time from there to completion: driver and device
  waited    uninterruptible sleep of a task, ended by the completion of a request
  file      file that a request reads or writes, if it is certain; or (metadata), (journal), (pages
            of the device), (several files) for merged requests, (unknown)

EXAMPLES
  kymo io record -- make -j4
  kymo io latency                     latency of requests by device, and waiting tasks
  kymo io top                         requests by process
  kymo io top --by file --find        requests by file
  kymo io timehist --time 10%/1       each request")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record block requests and task switches of the whole machine
    Record(Box<record::Args>),
    /// Show histograms of queue and device times, and the tasks that waited
    #[command(visible_alias = "lat")]
    Latency(Box<latency::Args>),
    /// Show requests by process, by file or by device
    Top(Box<top::Args>),
    /// Show each request
    Timehist(Box<timehist::Args>),
}

/// `-E` of tables that show a number of rows as text, and all of them otherwise.
fn entries(limit: Arg, shown: &str) -> Arg {
    let help = format!("Maximum number of rows [default: {shown} as text]");
    limit.short('E').long("entries").visible_alias("limit").help(help)
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
    /// Only these processes
    #[arg(short = 'p', long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
}

fn device(text: &str) -> Result<BlockDevice, String> {
    let numbers = text.split_once([',', ':']).and_then(|(major, minor)| {
        let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
        (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
    });
    numbers.map(BlockDevice).ok_or_else(|| format!("{text:?} is not MAJOR,MINOR, such as 254,0"))
}

impl ReadArgs {
    /// Selects live events: of a command those that its tasks made.
    fn watch(&mut self, live: &WatchArgs) -> anyhow::Result<()> {
        self.analysis.watch(live, &self.pid, &self.tid)
    }

    fn open(&self) -> anyhow::Result<EventSource> {
        self.analysis.open(&SymbolArgs::default())
    }

    fn config(&self, source: &EventSource) -> anyhow::Result<BlockConfig> {
        let selection = self.analysis.selection(source, &self.pid, &self.tid)?;
        let is_complete = self.analysis.is_live()
            && BLOCK_FILE_EVENTS.iter().any(|e| e.contains("writeback_dirty") && has_event(e));
        Ok(BlockConfig { selection, devices: self.device.clone(), is_complete })
    }
}

/// Whether this machine made the recording.
fn is_of_this_machine(source: &EventSource) -> bool {
    let here = SystemRoot::machine().hostname();
    let of_recording = |n| source.perf(n).and_then(|data| data.features().hostname.clone());
    source.timeline().is_none()
        && here.is_some()
        && (0..source.perf_count()).all(|n| of_recording(n) == here)
}

/// Names of devices as this machine has them, if it made the recording.
fn device_names(source: &EventSource) -> impl Fn(BlockDevice) -> Option<String> + use<> {
    let machine = SystemRoot::machine();
    let is_here = is_of_this_machine(source);
    move |device| {
        let (major, minor) = device.numbers();
        machine.block_device_name(major, minor).filter(|_| is_here)
    }
}

/// Builds the ledger from the notes of the readers and the tables.
fn ledger(source: &EventSource, read: &BlockRead) -> Ledger {
    let notes = block_notes(read, source);
    Ledger::from_notes(read.summary.notes(source).into_iter().chain(notes))
}

/// Builds the ledger of tables. `wants_files`: the owners of requests are shown.
fn table_ledger(
    source: &EventSource,
    table: &BlockTable,
    known: &KnownNames,
    wants_files: bool,
) -> Ledger {
    let mut ledger = ledger(source, &table.read);
    if table.crowded > 0 {
        let fact =
            format!("{} requests and waits of more than have rows of their own", table.crowded);
        ledger.push(Note::doubt(NoteKind::Entries, fact, None));
    }
    if wants_files && !table.read.has_owners && table.read.machine.counts.events > 0 {
        let fact = "there are no bio events: the files of requests are unknown".to_owned();
        let advice = Some("record them: kymo io record".to_owned());
        ledger.push(Note::choice(NoteKind::Events, fact, advice));
    }
    if known.is_cut {
        let fact = "not all directories were searched for names: the limit is 10 s";
        ledger.push(Note::doubt(NoteKind::Cut, fact.to_owned(), None));
    }
    ledger
}

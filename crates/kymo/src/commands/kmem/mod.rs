//! `kymo kmem`: who allocates memory of the kernel, and what stays; `record` chooses the events,
//! the others read them out of recordings of any format.

mod pagealloc;
mod record;
mod stat;

use std::process::ExitCode;

use clap::Subcommand;
use kymo_analysis::kmem::KmemRead;
use kymo_events::EventSource;
use kymo_model::Note;
use kymo_view::Ledger;

/// Flags of `kymo kmem`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Reads perf.data (also from perf kmem record), trace.dat, and directories of LTTng kernel traces.

EXAMPLES
  kymo kmem record -- make -j4           objects and pages, into a perf.data
  kymo kmem record --page -o x.dat -- make -j4   only pages, into a trace.dat
  kymo kmem stat                         summary of both allocators
  kymo kmem stat --caller -s live -l 20  callers that hold the most memory
  kymo kmem pagealloc                    the page allocator by process and call chain
  kymo kmem pagealloc -- make -j4        live, compared with /proc/vmstat")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record events of the slab and the page allocator
    Record(Box<record::Args>),
    /// Show allocations by caller and address
    Stat(Box<stat::Args>),
    /// Show page allocations by process, and pages that are not freed
    Pagealloc(Box<pagealloc::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Record(args) => record::run(*args),
        Action::Stat(args) => stat::run(*args),
        Action::Pagealloc(args) => pagealloc::run(*args),
    }
}

/// Builds the ledger from the notes of the readers and the tables.
fn ledger(source: &EventSource, read: &KmemRead, of_tables: Vec<Vec<Note>>) -> Ledger {
    let notes = read.summary.notes(source).into_iter();
    Ledger::from_notes(notes.chain(of_tables.into_iter().flatten()))
}

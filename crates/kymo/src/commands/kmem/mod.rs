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
Recordings are perf.data (of perf kmem record, too), trace.dat or directories of LTTng's kernel
traces.

EXAMPLES
  kymo kmem record -- make -j4           objects and pages, into perf.data
  kymo kmem record --page -o x.dat -- make -j4   pages alone, into a trace.dat
  kymo kmem stat                         both allocators in a summary
  kymo kmem stat --caller -s live -l 20  who holds most memory
  kymo kmem pagealloc                    the page allocator by process and call chain
  kymo kmem pagealloc -- make -j4        while make runs, beside what /proc/vmstat counted")]
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
    /// Show events of the page allocator by process, and what stays
    Pagealloc(Box<pagealloc::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Record(args) => record::run(*args),
        Action::Stat(args) => stat::run(*args),
        Action::Pagealloc(args) => pagealloc::run(*args),
    }
}

/// What the readers and the tables have to say.
fn ledger(source: &EventSource, read: &KmemRead, of_tables: Vec<Vec<Note>>) -> Ledger {
    let notes = read.summary.notes(source).into_iter();
    Ledger::from_notes(notes.chain(of_tables.into_iter().flatten()))
}

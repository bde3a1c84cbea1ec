//! `kymo kmem pagealloc`: events of the page allocator by process, what stays, and what the
//! kernel's own counters say of the same time.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_analysis::kmem::{KmemConfig, PageallocTables, page_notes, process_notes, read_kmem};
use kymo_kernel::vmstat::Snapshot;
use kymo_view::kmem::PageProcessView;

use super::super::analysis::{AnalysisArgs, show_live, stdout};
use super::super::live::WatchArgs;
use crate::args::symbols::SymbolArgs;
use crate::args::tables::{MainTable, TableArgs, sort_by};

/// Flags of `kymo kmem pagealloc`.
#[derive(clap::Args)]
#[command(mut_arg("sort", sort_by("allocd, freed, live", "allocd,freed")))]
#[command(mut_arg("limit", |arg| arg.short('l').visible_alias("line").help("Maximum number of rows per table")))]
#[command(after_help = "\
The columns are those of Mel Gorman's trace-pagealloc-postprocess.pl: pages allocated, and those
under the zone lock; pages freed directly and in batches; pages drained from per-CPU lists, the
number of drains and of refills; fallbacks to blocks of another mobility type, those that fragment a
pageblock or change its type, and their severity. The last columns are bytes allocated and bytes
still live at the end.

A batch ends with the next page allocator event of the same process. Parent names come from
sched_process_fork and are ? for processes older than the recording.

EXAMPLES
  kymo kmem pagealloc -i perf.data --ignore-pid
  kymo kmem pagealloc --prepend-parent -l 20
  kymo kmem pagealloc -- make -j4            live, compared with /proc/vmstat")]
pub(super) struct Args {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Show one row for all processes with the same name
    #[arg(long)]
    ignore_pid: bool,
    /// Show the parent of each process
    #[arg(long)]
    prepend_parent: bool,
    #[command(flatten)]
    table: TableArgs,
    /// Maximum number of functions per call chain; 0: no call chains
    #[arg(long, value_name = "N", default_value_t = 6)]
    max_stack: usize,
    /// Compare with copies of /proc/vmstat from before and after the recording
    #[arg(long, value_name = "BEFORE,AFTER", value_delimiter = ',', num_args = 2)]
    vmstat: Vec<PathBuf>,
    /// Only events of these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only events of these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Counters of /proc/vmstat that changed and are of what the events tell, the largest first.
fn differences(before: &Snapshot, after: &Snapshot) -> Vec<(String, i64)> {
    const PREFIXES: [&str; 9] = [
        "pgalloc_",
        "pgfree",
        "nr_free_pages",
        "nr_anon_pages",
        "nr_file_pages",
        "nr_slab_",
        "nr_kernel_stack",
        "nr_page_table_pages",
        "allocstall_",
    ];
    let mut all: Vec<(String, i64)> = after
        .since(before)
        .filter(|(name, delta)| *delta != 0 && PREFIXES.iter().any(|p| name.starts_with(p)))
        .map(|(name, delta)| (name.to_owned(), delta))
        .collect();
    all.sort_by_key(|(_, delta)| std::cmp::Reverse(delta.unsigned_abs()));
    all
}

const PROCESSES: MainTable = MainTable {
    answer: "kmem_pagealloc",
    table: "processes",
    alike: &[],
    aliases: &[("allocd", "allocated"), ("freed", "freed"), ("live", "live_bytes")],
};

/// Call chains in a file or a pipe.
const CHAINS: usize = 10;
/// Processes and call chains on a screen, which has room for both tables and what follows.
const SCREEN_PROCESSES: usize = 12;
const SCREEN_CHAINS: usize = 5;

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.table.check(&PROCESSES)?;
    let Some(watch) = args.watch.take() else { return show(&args, None) };
    args.read.watch_machine(&watch, &args.pid, &args.tid)?;
    if !args.vmstat.is_empty() {
        bail!("--vmstat is for recordings: what happens now is compared by itself");
    }
    let (events, before) = (super::record::events(false, true), read_counters()?);
    let show = |args: &Args| show(args, Some(before));
    show_live(&watch, &events, true, args, |args| &mut args.read, show)
}

fn read_counters() -> anyhow::Result<Snapshot> {
    Snapshot::read().context("cannot read the counters of memory")
}

/// Shows a recording, or what is recorded until its end since these counters were read.
fn show(args: &Args, before: Option<Snapshot>) -> anyhow::Result<ExitCode> {
    let source = args.read.open(&args.symbols)?;
    let config = KmemConfig {
        selection: args.read.selection(&source, &args.pid, &args.tid)?,
        pages: true,
        processes: true,
        ..KmemConfig::default()
    };
    let read = read_kmem(&source, &config)?;
    let counters = match (before, args.vmstat.as_slice()) {
        (Some(before), _) => Some((before, read_counters()?)),
        (None, [before, after]) => {
            let read = |path: &PathBuf| {
                Snapshot::read_from(path).with_context(|| path.display().to_string())
            };
            Some((read(before)?, read(after)?))
        }
        _ => None,
    };
    let ledger = super::ledger(&source, &read, vec![page_notes(&read), process_notes(&read)]);
    let mut answer = read.pagealloc_answer(PageallocTables {
        ignore_pid: args.ignore_pid,
        by_parent: args.prepend_parent,
        max_stack: args.max_stack,
        vmstat: counters.map(|(before, after)| differences(&before, &after)),
    });
    let mut out = stdout();
    answer.limit("chains", args.table.most(None));
    let json = (args.read.json, &ledger);
    args.table.write(&mut out, (&mut answer, &PROCESSES), json, |answer, out| {
        let is_screen = args.read.screen_rows().is_some();
        let view = PageProcessView {
            answer,
            prepend_parent: args.prepend_parent,
            most: args.table.most(is_screen.then_some(SCREEN_PROCESSES)),
            most_chains: args.table.most(Some(if is_screen { SCREEN_CHAINS } else { CHAINS })),
            is_screen,
            recording: source.arguments().to_owned(),
        };
        view.write_text(out, &ledger)
    })?;
    args.read.close(out, &source, &read.summary, &ledger)
}

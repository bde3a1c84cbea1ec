//! `kymo kmem stat`: allocations by caller and by address.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use kymo_analysis::kmem::{KmemConfig, page_notes, read_kmem, slab_notes};
use kymo_view::kmem::{KmemKey, PageView, SlabView};
use serde_json::json;

use super::super::analysis::{AnalysisArgs, show_live, stdout};
use super::super::live::WatchArgs;
use crate::args::symbols::SymbolArgs;

/// Flags of `kymo kmem stat`.
#[derive(clap::Args)]
#[command(after_help = "\
Without --slab and --page it shows what the recording has. Times, CPUs and tasks choose
allocations; frees count with the allocation they end. Ping-pong are objects that were freed on
another CPU; cross CPU allocations took memory of another NUMA node than the CPU's. Live is what is
allocated at the end of the recording, or of --time. A command, -a or --timeout take events while
they happen, and nothing is recorded.

EXAMPLES
  kymo kmem stat --caller -s live -l 10 -- make -j4
  kymo kmem stat --caller -l 10
  kymo kmem stat --slab --alloc -s pingpong -l 10
  kymo kmem stat --page --caller --live
  kymo kmem stat --json --caller | jq '.slab.callers[] | select(.live_bytes > 1e6)'")]
pub(super) struct Args {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// Only the slab allocator
    #[arg(long)]
    slab: bool,
    /// Only the page allocator (with --slab: both)
    #[arg(long)]
    page: bool,
    /// Show a row for each caller
    #[arg(long)]
    caller: bool,
    /// Show a row for each object, or page
    #[arg(long)]
    alloc: bool,
    /// Sort by these: ptr, callsite, bytes, hit, pingpong, frag, live; of pages: page, callsite, bytes, hit, order, migtype, gfp, live
    #[arg(short = 's', long, value_name = "KEYS", value_delimiter = ',')]
    sort: Vec<KmemKey>,
    /// Rows of each table at most
    #[arg(short = 'l', long = "line", value_name = "N")]
    lines: Option<usize>,
    /// Show only what is alive at the end
    #[arg(long)]
    live: bool,
    /// Show addresses instead of functions
    #[arg(long)]
    raw_ip: bool,
    /// Only allocations of these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only allocations of these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
}

impl Args {
    /// Keys that a table has, or those that perf sorts it by.
    fn keys(&self, has: impl Fn(&KmemKey) -> bool, usual: &[KmemKey]) -> Vec<KmemKey> {
        let named: Vec<KmemKey> = self.sort.iter().copied().filter(|k| has(k)).collect();
        match named.is_empty() {
            true if self.live => [&[KmemKey::Live], usual].concat(),
            true => usual.to_vec(),
            false => named,
        }
    }
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    if !args.sort.is_empty() && !args.caller && !args.alloc {
        bail!("--sort is for the rows of --caller or --alloc");
    }
    let Some(watch) = args.watch.take() else { return show(&args) };
    args.read.watch_machine(&watch, &args.pid, &args.tid)?;
    let both = args.slab == args.page;
    let events = super::record::events(args.slab || both, args.page || both);
    show_live(&watch, &events, args.page || both, args, |args| &mut args.read, show)
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let source = args.read.open(&args.symbols)?;
    let both = args.slab == args.page;
    let config = KmemConfig {
        selection: args.read.selection(&source, &args.pid, &args.tid)?,
        slab: args.slab || both,
        slab_by_ptr: args.alloc,
        pages: args.page || both,
        pages_by_page: args.alloc,
        processes: false,
    };
    let read = read_kmem(&source, &config)?;
    // What the recording does not have is shown if it was asked for.
    let slab = args.slab || both && (read.events.0 > 0 || read.events.1 == 0);
    let pages = args.page || both && read.events.1 > 0;
    let mut notes = Vec::new();
    if slab {
        notes.push(slab_notes(&read));
    }
    if pages {
        notes.push(page_notes(&read));
    }
    let ledger = super::ledger(&source, &read, notes);
    let arguments = source.arguments();
    let input = if arguments.is_empty() { String::new() } else { format!(" {arguments}") };
    let slab_view = slab.then(|| SlabView {
        read: &read,
        by_caller: args.caller,
        by_ptr: args.alloc,
        sort: args.keys(|k| k.is_of_slab(), &[KmemKey::Frag, KmemKey::Hit, KmemKey::Bytes]),
        live_only: args.live,
        lines: args.lines.or(args.read.screen_rows()),
        raw_ip: args.raw_ip,
        input: input.clone(),
    });
    let page_view = pages.then(|| PageView {
        read: &read,
        by_caller: args.caller,
        by_page: args.alloc,
        sort: args.keys(|k| k.is_of_pages(), &[KmemKey::Bytes, KmemKey::Hit]),
        live_only: args.live,
        lines: args.lines.or(args.read.screen_rows()),
        raw_ip: args.raw_ip,
        input: input.clone(),
    });
    let mut out = stdout();
    if args.read.json {
        let page = json!({
            "slab": slab_view.map(|view| view.to_json()),
            "pages": page_view.map(|view| view.to_json()),
            "first_ns": read.span.map(|s| s.0),
            "last_ns": read.span.map(|s| s.1),
            "ledger": ledger.to_json(),
        });
        writeln!(out, "{page:#}")?;
    } else {
        if let Some(view) = slab_view {
            view.write_text(&mut out)?;
        }
        if let Some(view) = page_view {
            view.write_text(&mut out)?;
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
    }
    args.read.close(out, &source, &read.summary, &ledger)
}

//! `kymo kmem stat`: allocations by caller and by address.

use std::process::ExitCode;

use anyhow::bail;
use clap::Arg;
use kymo_analysis::kmem::{KmemConfig, KmemTables, page_notes, read_kmem, slab_notes};
use kymo_view::kmem::{PageView, SlabView};

use super::super::analysis::{AnalysisArgs, show_live, stdout};
use super::super::live::WatchArgs;
use crate::args::symbols::SymbolArgs;
use crate::args::tables::{OneTable, TableArgs};
use crate::called_name::CalledName;

/// Flags of `kymo kmem stat`.
#[derive(clap::Args)]
#[command(mut_arg("sort", sort_words))]
#[command(mut_arg("limit", |arg| arg.short('l').visible_alias("line").help("Maximum number of rows per table")))]
#[command(after_help = "\
Without --slab and --page, kymo shows what the recording contains. Options for times, CPUs and tasks
select allocations; a free counts with its allocation. Ping-pong: objects freed on another CPU.
Cross CPU allocations: memory from a NUMA node other than the CPU's. Live: still allocated at the
end of the recording or of --time. With a command, -a or --timeout, kymo analyzes events live and
writes no recording.

EXAMPLES
  kymo kmem stat --caller -s live -l 10 -- make -j4
  kymo kmem stat --caller -l 10
  kymo kmem stat --slab --alloc -s pingpong -l 10
  kymo kmem stat --page --caller --live
  kymo kmem stat --slab --caller --csv > callers.csv
  kymo kmem stat --json --caller | jq '.slab_callers[] | select(.live_bytes > 1e6)'")]
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
    /// Only the page allocator (together with --slab: both)
    #[arg(long)]
    page: bool,
    /// Show a row for each caller
    #[arg(long)]
    caller: bool,
    /// Show a row for each object or page
    #[arg(long)]
    alloc: bool,
    #[command(flatten)]
    table: TableArgs,
    /// Show only allocations that are not freed
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

fn sort_words(arg: Arg) -> Arg {
    arg.help(
        "Sort keys: ptr, callsite, bytes, hit, pingpong, frag, live; for pages: page, callsite, \
         bytes, hit, order, migtype, gfp, live; or columns",
    )
}

impl Args {
    /// Tables that there are of the slab allocator, and of pages.
    fn tables(&self, slab: bool, pages: bool) -> Vec<OneTable> {
        let live = if self.live { &["live"][..] } else { &[] };
        let usual = |keys: &[&'static str]| [live, keys].concat();
        let slab_aliases = vec![
            ("callsite", "callsite_address"),
            ("hit", "hits"),
            ("bytes", "allocated_bytes"),
            ("frag", "fragmentation_percent"),
            ("live", "live_bytes"),
        ];
        let by_ptr = [("ptr", "ptr_address"), ("pingpong", "pingpong")];
        // Of what is alive perf counts the rest.
        let [bytes, hits] =
            if self.live { ["live_bytes", "kept"] } else { ["allocated_bytes", "hits"] };
        let page_aliases = vec![
            ("callsite", "callsite_address"),
            ("hit", hits),
            ("bytes", bytes),
            ("live", "live_bytes"),
            ("order", "-order"),
            ("migtype", "migrate_number"),
            ("gfp", "-gfp"),
        ];
        let slab_table =
            |name, aliases| OneTable { name, aliases, usual: usual(&["frag", "hit", "bytes"]) };
        let page_table =
            |name, aliases| OneTable { name, aliases, usual: usual(&["bytes", "hit"]) };
        let mut tables = Vec::new();
        if slab && self.caller {
            tables.push(slab_table("slab_callers", slab_aliases.clone()));
        }
        if slab && self.alloc {
            tables.push(slab_table("slab_addresses", [slab_aliases, by_ptr.to_vec()].concat()));
        }
        if pages && self.caller {
            tables.push(page_table("page_callers", page_aliases.clone()));
        }
        if pages && self.alloc {
            let by_page = vec![("page", "page_number")];
            tables.push(page_table("page_addresses", [page_aliases, by_page].concat()));
        }
        tables
    }
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    if args.table.is_sorted() && !args.caller && !args.alloc {
        bail!("--sort is for the rows of --caller or --alloc");
    }
    args.table.check_keys("kmem_stat", &args.tables(true, true))?;
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
    let mut answer = read.stat_answer(KmemTables {
        slab,
        pages,
        callers: args.caller,
        addresses: args.alloc,
        live_only: args.live,
    });
    let tables = args.tables(slab, pages);
    // All tables together fit on a screen.
    let rows = match tables.len() {
        0 | 1 => 20,
        2 => 10,
        _ => 3,
    };
    let most = args.table.most(args.read.screen_rows().map(|_| rows));
    let mut out = stdout();
    args.table.write_tables(
        &mut out,
        &mut answer,
        &tables,
        (args.read.json, &ledger),
        |answer, out| {
            let (raw_ip, input) = (args.raw_ip, input.as_str());
            let (by_caller, by_address) = (args.caller, args.alloc);
            let (style, columns) = (CalledName::get().table_style(), args.read.screen_columns());
            let by_ptr = by_address;
            let view = SlabView { answer, by_caller, by_ptr, most, style, columns, raw_ip, input };
            view.write_text(out)?;
            let view = PageView {
                answer,
                by_caller,
                by_page: by_address,
                live_only: args.live,
                most,
                style,
                columns,
                raw_ip,
                input,
            };
            view.write_text(out)?;
            if !ledger.is_empty() {
                write!(out, "\n{}", ledger.to_text(""))?;
            }
            Ok(())
        },
    )?;
    args.read.close(out, &source, &read.summary, &ledger)
}

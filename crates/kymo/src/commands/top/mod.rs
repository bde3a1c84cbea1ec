//! `kymo top`: what the machine spends its time on, while it happens; on a terminal as screens
//! that keys lead through, elsewhere (and with `--stdio`) as text.

mod backend;
mod keys;
mod options;
mod screen;
mod session;
mod stdio;
mod tasks;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use kymo_kernel::process;
use kymo_kernel::system::return_large_pieces;
use kymo_record::CallGraph;

use crate::args::event_filters::EventArgs;
use crate::args::symbols::DebuginfodArgs;
use crate::args::values::{Rate, Ring, call_graph, millis, ring, sample_rate};

/// Flags of `kymo top`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
kymo top                         the whole machine; press ? for the keys\n  \
kymo top -g -p 1234              one process with call chains: tree and flame graph\n  \
kymo top --stdio -d 1 --timeout 10000 -o slow.data\n                                   \
ten updates as text, and the samples as a perf.data")]
pub(crate) struct Args {
    #[command(flatten)]
    events: EventArgs,
    /// Samples per second, or `max`
    #[arg(short = 'F', long = "freq", value_name = "HZ", value_parser = sample_rate)]
    freq: Option<Rate>,
    /// Events per sample
    #[arg(short = 'c', long = "count", value_name = "N", conflicts_with = "freq",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Record call chains by frame pointers
    #[arg(short = 'g')]
    graph: bool,
    /// Call chain recording mode: fp, dwarf[,BYTES]
    #[arg(long, value_name = "MODE", value_parser = call_graph)]
    call_graph: Option<CallGraph>,
    /// Profile the whole machine [default]
    #[arg(short = 'a', long)]
    all_cpus: bool,
    /// Only these processes
    #[arg(short = 'p', long, value_name = "PID,…")]
    pid: Option<String>,
    /// Only these threads
    #[arg(short = 't', long, value_name = "TID,…")]
    tid: Option<String>,
    /// Only these CPUs
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<String>,
    /// Only the processes of this user
    #[arg(short = 'u', long, value_name = "USER")]
    uid: Option<String>,
    /// Only this cgroup, or one cgroup per event (on all CPUs)
    #[arg(short = 'G', long, value_name = "NAME,…", value_delimiter = ',')]
    cgroup: Vec<String>,
    /// Also show the time off CPU by call chain (implies -g; press o to switch)
    #[arg(long, conflicts_with_all = ["cgroup", "tasks"])]
    off_cpu: bool,
    /// Do not follow children
    #[arg(short = 'i', long)]
    no_inherit: bool,
    /// Read the ring buffers with this real-time priority (SCHED_FIFO)
    #[arg(short = 'r', long, value_name = "PRIORITY",
          value_parser = clap::value_parser!(u8).range(1..=99))]
    realtime: Option<u8>,
    /// Size of each ring buffer, in pages or with a suffix B, K, M, G
    #[arg(short = 'm', long = "mmap-pages", value_name = "PAGES|SIZE", value_parser = ring)]
    mmap_pages: Option<Ring>,
    /// Timeout for reading the maps of one process, in milliseconds
    #[arg(long, value_name = "MS", default_value = "500", value_parser = millis)]
    proc_map_timeout: Duration,
    /// Update interval in seconds [default: 2, or 1 with --tasks]
    #[arg(short = 'd', long, value_name = "SECONDS", value_parser = options::seconds)]
    delay: Option<Duration>,
    /// Time covered by a screen, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = options::seconds)]
    window: Duration,
    /// Show only the time since the previous update
    #[arg(short = 'z', long)]
    zero: bool,
    /// Time to keep for stepping back and saving, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = options::seconds)]
    history: Duration,
    /// Stop after MS milliseconds
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<Duration>,
    /// Group by these keys: comm, pid, tgid, cpu, dso, symbol, srcline
    #[arg(short = 's', long, value_name = "KEYS")]
    sort: Option<String>,
    /// Exclude kernel samples
    #[arg(short = 'K', long = "hide_kernel_symbols", visible_alias = "hide-kernel-symbols")]
    hide_kernel: bool,
    /// Exclude user-space samples
    #[arg(short = 'U', long = "hide_user_symbols", visible_alias = "hide-user-symbols")]
    hide_user: bool,
    /// Only tasks with these names
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    comms: Vec<String>,
    /// Only these binaries
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    dsos: Vec<String>,
    /// Only these functions
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    symbols: Vec<String>,
    /// Maximum number of frames per call chain, innermost first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_stack: Option<u16>,
    /// Base of percentages: all samples (absolute) or the shown ones (relative)
    #[arg(long, value_name = "OF", default_value = "absolute",
          value_parser = ["absolute", "relative"])]
    percentage: String,
    /// Hide rows below this percentage
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    percent_limit: f64,
    /// Only rows with more samples than this (--stdio)
    #[arg(short = 'f', long, value_name = "N", default_value_t = 0)]
    count_filter: u64,
    /// Maximum number of rows (--stdio)
    #[arg(short = 'E', long, value_name = "N", default_value_t = 20)]
    entries: usize,
    /// Include callees in each function's overhead [default with call chains]
    #[arg(long, overrides_with = "no_children")]
    children: bool,
    /// Show only each function's own overhead
    #[arg(long)]
    no_children: bool,
    /// Show the number of samples
    #[arg(short = 'n', long)]
    show_nr_samples: bool,
    /// Show the sum of periods
    #[arg(long)]
    show_total_period: bool,
    /// Show tasks instead of functions, as text: running, runnable, or blocked and the cause
    #[arg(long, conflicts_with_all = [
        "event", "filter", "graph", "call_graph", "sort", "output", "freq", "count", "uid", "cgroup",
        "dsos", "symbols", "hide_kernel", "hide_user", "max_stack", "window", "history", "zero",
        "children", "no_children", "percentage", "percent_limit", "count_filter",
        "show_nr_samples", "show_total_period",
    ])]
    tasks: bool,
    /// Print plain text [default if standard output is not a terminal]
    #[arg(long)]
    stdio: bool,
    /// File for saved samples: with --stdio all kept samples, at the end; on a terminal the shown
    /// ones, on a key
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    servers: DebuginfodArgs,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    // Files are read in large pieces, by several threads, for hours.
    return_large_pieces();
    if let Some(priority) = args.realtime {
        process::hurry(priority).context("-r: the kernel refuses SCHED_FIFO")?;
    }
    if args.tasks {
        return tasks::run(&args);
    }
    let is_terminal = std::io::stdin().is_terminal() && crate::streams::stdout().is_terminal();
    // Where a cursor cannot be moved, pages follow each other.
    let can_draw = std::env::var_os("TERM").is_some_and(|term| term != "dumb" && !term.is_empty());
    if is_terminal && can_draw && !args.stdio { screen::run(&args) } else { stdio::run(&args) }
}

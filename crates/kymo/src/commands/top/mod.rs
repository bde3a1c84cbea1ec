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
use kymo_record::CallGraph;

use crate::args::event_filters::EventArgs;
use crate::args::symbols::DebuginfodArgs;
use crate::args::values::{Rate, Ring, call_graph, millis, ring, sample_rate};

/// Flags of `kymo top`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
kymo top                         the whole machine, on the terminal; ? shows the keys\n  \
kymo top -g -p 1234              one process with call chains: tree and flame graph\n  \
kymo top --stdio -d 1 --timeout 10000 -o slow.data\n                                   \
ten pages of text, and what they were made of as perf.data")]
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
    /// Take call chains by frame pointers
    #[arg(short = 'g')]
    graph: bool,
    /// How to take call chains: fp, dwarf[,BYTES]
    #[arg(long, value_name = "MODE", value_parser = call_graph)]
    call_graph: Option<CallGraph>,
    /// System-wide, which is the default
    #[arg(short = 'a', long)]
    all_cpus: bool,
    /// These processes
    #[arg(short = 'p', long, value_name = "PID,…")]
    pid: Option<String>,
    /// These threads
    #[arg(short = 't', long, value_name = "TID,…")]
    tid: Option<String>,
    /// Only on these CPUs
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<String>,
    /// The processes of a user
    #[arg(short = 'u', long, value_name = "USER")]
    uid: Option<String>,
    /// Only in this cgroup, or one for each event (on all CPUs)
    #[arg(short = 'G', long, value_name = "NAME,…", value_delimiter = ',')]
    cgroup: Vec<String>,
    /// Show the time off the CPU, too, by call chains (implies -g); its order, tree and flame
    /// graph: key o
    #[arg(long, conflicts_with_all = ["cgroup", "tasks"])]
    off_cpu: bool,
    /// Do not follow children
    #[arg(short = 'i', long)]
    no_inherit: bool,
    /// Read the rings as a real-time task (SCHED_FIFO) of this priority
    #[arg(short = 'r', long, value_name = "PRIORITY",
          value_parser = clap::value_parser!(u8).range(1..=99))]
    realtime: Option<u8>,
    /// Size of each ring, in pages or with a suffix B, K, M, G
    #[arg(short = 'm', long = "mmap-pages", value_name = "PAGES|SIZE", value_parser = ring)]
    mmap_pages: Option<Ring>,
    /// Timeout for reading the maps of one process, in milliseconds
    #[arg(long, value_name = "MS", default_value = "500", value_parser = millis)]
    proc_map_timeout: Duration,
    /// Seconds between two pages: 2, or 1 with --tasks
    #[arg(short = 'd', long, value_name = "SECONDS", value_parser = options::seconds)]
    delay: Option<Duration>,
    /// Seconds that a page is about
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = options::seconds)]
    window: Duration,
    /// Pages about the time since the page before alone
    #[arg(short = 'z', long)]
    zero: bool,
    /// Seconds that are kept, to step back into and to save
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = options::seconds)]
    history: Duration,
    /// Stop after MS milliseconds
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<Duration>,
    /// What rows are about: comm, pid, tgid, cpu, dso, symbol, srcline
    #[arg(short = 's', long, value_name = "KEYS")]
    sort: Option<String>,
    /// Leave out samples in the kernel
    #[arg(short = 'K', long = "hide_kernel_symbols", visible_alias = "hide-kernel-symbols")]
    hide_kernel: bool,
    /// Leave out samples in programs
    #[arg(short = 'U', long = "hide_user_symbols", visible_alias = "hide-user-symbols")]
    hide_user: bool,
    /// Only these tasks, by name
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    comms: Vec<String>,
    /// Only these binaries
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    dsos: Vec<String>,
    /// Only these functions
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    symbols: Vec<String>,
    /// Frames of a call chain that are counted: the innermost ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_stack: Option<u16>,
    /// Percentages of all samples (absolute), or of those that are shown (relative)
    #[arg(long, value_name = "OF", default_value = "absolute",
          value_parser = ["absolute", "relative"])]
    percentage: String,
    /// Only rows of at least this percentage
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    percent_limit: f64,
    /// Only rows of more samples than this (--stdio)
    #[arg(short = 'f', long, value_name = "N", default_value_t = 0)]
    count_filter: u64,
    /// Rows of a page (--stdio)
    #[arg(short = 'E', long, value_name = "N", default_value_t = 20)]
    entries: usize,
    /// Weigh functions with what they call (the default with call chains)
    #[arg(long, overrides_with = "no_children")]
    children: bool,
    /// Weigh functions by themselves alone
    #[arg(long)]
    no_children: bool,
    /// Show numbers of samples
    #[arg(short = 'n', long)]
    show_nr_samples: bool,
    /// Show sums of periods
    #[arg(long)]
    show_total_period: bool,
    /// Show tasks instead of functions: who runs, who waits for a CPU, who is blocked on what; one
    /// page a second (-d) out of scheduler events, as text
    #[arg(long, conflicts_with_all = ["event", "graph", "call_graph", "sort", "output", "freq"])]
    tasks: bool,
    /// Pages of text, which is the default where standard output is no terminal
    #[arg(long)]
    stdio: bool,
    /// File that samples are saved to: with --stdio those of all that was kept, at the end; on a
    /// terminal what is shown, when a key says so
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    servers: DebuginfodArgs,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
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

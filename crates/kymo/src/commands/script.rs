//! `kymo script`: the events of a recording as text, laid out as perf script
//! or trace-cmd report do, or as JSON lines.
//!
//! `perf_data` reads perf.data, `timeline` trace.dat and CTF traces, which it merges; lines
//! are made by `kymo-render`, on several threads.

mod ctf_header;
mod output;
mod perf_data;
mod timeline;

use std::path::PathBuf;
use std::process::ExitCode;

use kymo_events::EventSelection;
use kymo_files::RecordingFormat;
use kymo_render::perf_script::{LineStyle, TimeOrigin};

use crate::args::events::EventSelectionArgs;

/// Flags of `kymo script`.
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0; 1 when the recording is damaged or cannot be read (what \
comes before the damage is printed first); 3 under --strict when anything is doubtful.")]
pub(crate) struct Args {
    /// The recording: perf.data, trace.dat, the directory of CTF traces or of a session with both;
    /// `-` is the standard input
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The recording, without -i; several of one machine are merged by time, whatever their format
    #[arg(value_name = "FILE", conflicts_with = "input")]
    files: Vec<PathBuf>,
    /// Fields to print, `[type:]a,b,…` or `+a,-b`: comm, tid, pid, time, cpu, event, trace, ip,
    /// sym, symoff, dso, addr, period, misc, iregs, uregs, brstack, brstacksym, weight, ins_lat,
    /// data_src, phys_addr, data_page_size, code_page_size, cgroup, srcline; types: hw, sw, trace, raw
    #[arg(short = 'F', long, value_name = "SPEC", allow_hyphen_values = true)]
    fields: Vec<String>,
    /// Print one JSON object per line, with typed fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    select: EventSelectionArgs,
    /// Only events of tasks with these names
    #[arg(short = 'c', long, visible_alias = "comms", value_name = "NAMES", value_delimiter = ',')]
    comm: Vec<String>,
    /// Only samples in these functions, or at these addresses (hexadecimal)
    #[arg(short = 'S', long, value_name = "NAMES", value_delimiter = ',')]
    symbols: Vec<String>,
    /// Bytes of code behind the addresses of -S that count, too
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    addr_range: u64,
    /// Only samples in these binaries
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    dsos: Vec<String>,
    /// End call chains at these functions
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    stop_bt: Vec<String>,
    #[command(flatten)]
    finding: crate::args::symbols::SymbolArgs,
    /// Print no call chains
    #[arg(short = 'G', long)]
    hide_call_graph: bool,
    /// Show functions that the compiler inlined in call chains (this is the default)
    #[arg(long, overrides_with = "no_inline")]
    inline: bool,
    /// Show no inlined functions
    #[arg(long)]
    no_inline: bool,
    /// Print whole paths of source files
    #[arg(long)]
    full_source_path: bool,
    /// Put the user part of call chains that was recorded later into their samples (this is the default)
    #[arg(long, overrides_with = "no_merge_callchains")]
    merge_callchains: bool,
    /// Print the user part of such call chains by itself, and the number that stands for it in their samples
    #[arg(long, conflicts_with = "json")]
    no_merge_callchains: bool,
    /// Print at most N frames of a call chain
    #[arg(long, value_name = "N", default_value_t = 127)]
    max_stack: usize,
    /// Print times in nanoseconds
    #[arg(short = 't', long)]
    ns: bool,
    /// Print times since the first event
    #[arg(long, conflicts_with = "deltatime")]
    reltime: bool,
    /// Print times since the event before
    #[arg(long)]
    deltatime: bool,
    /// Print times of CTF traces in seconds since 1970 instead of their clock's seconds
    #[arg(long)]
    real_time: bool,
    /// Print the flags of each event of a trace.dat: interrupts off, rescheduling wanted,
    /// hard or soft interrupt, preemption and migration disabled
    #[arg(short, long, visible_alias = "Latency", visible_short_alias = 'L')]
    latency: bool,
    /// Print the header of the recording first
    #[arg(long)]
    header: bool,
    /// Print the header: processors, caches, memory, clock
    #[arg(short = 'I', long)]
    show_info: bool,
    /// Print only that
    #[arg(long)]
    header_only: bool,
    /// Dump every record's bytes
    #[arg(short = 'D', long, visible_alias = "dump-unsorted-raw-trace")]
    dump_raw_trace: bool,
    /// Also print FORK, COMM and EXIT records
    #[arg(long)]
    show_task_events: bool,
    /// Also print MMAP records
    #[arg(long)]
    show_mmap_events: bool,
    /// Also print LOST records
    #[arg(long)]
    show_lost_events: bool,
    /// Also print SWITCH records
    #[arg(long)]
    show_switch_events: bool,
    /// Also print NAMESPACES records
    #[arg(long)]
    show_namespace_events: bool,
    /// Also print CGROUP records
    #[arg(long)]
    show_cgroup_events: bool,
    /// Also print KSYMBOL and BPF_EVENT records
    #[arg(long)]
    show_bpf_events: bool,
    /// Also print FINISHED_ROUND records (they have no time and come first)
    #[arg(long)]
    show_round_events: bool,
    /// Also print KSYMBOL and TEXT_POKE records
    #[arg(long)]
    show_text_poke_events: bool,
    #[command(flatten)]
    switch: crate::args::switch::SwitchArgs,
    /// Ignore the owner of the file [always on]
    #[arg(short, long)]
    force: bool,
    /// Exit with status 3 if anything makes the output less than trustworthy
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut paths = args.files.clone();
    paths.extend(args.input.clone());
    if paths.is_empty() {
        paths.push(super::default_recording());
    }
    // Lines are shown from the first on.
    crate::progress::end();
    // What comes by a pipe may happen now.
    if paths.iter().all(|path| path.is_file()) {
        crate::screen::page();
    }
    match paths.as_slice() {
        // What is no recording at all is explained there.
        [path] if matches!(RecordingFormat::of(path), None | Some(RecordingFormat::PerfData)) => {
            perf_data::run(&args, path)
        }
        _ => timeline::run(&args, &paths),
    }
}

impl Args {
    /// Layout of the starts of lines.
    fn style(&self) -> LineStyle {
        let since = match (self.reltime, self.deltatime) {
            (true, _) => TimeOrigin::First,
            (_, true) => TimeOrigin::Last,
            _ => TimeOrigin::Epoch,
        };
        LineStyle { ragged: false, ns: self.ns, since }
    }

    /// Conditions on events. `span` tells when the first and the last event happened, where
    /// that is known.
    fn selection(
        &self,
        span: impl FnOnce() -> anyhow::Result<Option<(u64, u64)>>,
    ) -> anyhow::Result<EventSelection> {
        let mut selection = self.select.selection(self.comm.clone(), span)?;
        selection.switch = self.switch.switch();
        Ok(selection)
    }
}

/// Why nothing was printed: silence would look like a failure.
fn nothing(args: &Args) -> &'static str {
    let conditions = !args.select.is_everything()
        || args.switch.is_given()
        || !args.comm.is_empty()
        || !args.symbols.is_empty()
        || !args.dsos.is_empty();
    if conditions { "no events of the recording match" } else { "the recording holds no events" }
}

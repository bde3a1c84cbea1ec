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
use kymo_render::perf_script::{FrameAddresses, LineStyle, TimeOrigin};

use crate::args::events::EventSelectionArgs;
use crate::called_name::CalledName;

/// Flags of `kymo script`.
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0; 1 if the recording cannot be read or is damaged \
                        (everything before the damage is printed); 3 if there are warnings, with \
                        --strict.")]
pub(crate) struct Args {
    /// Recording to read
    ///
    /// A perf.data, a trace.dat, or a directory of CTF traces or of a session; `-`: standard input.
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Recordings to read; several of one machine are merged by time
    #[arg(value_name = "FILE", conflicts_with = "input")]
    files: Vec<PathBuf>,
    /// Fields to print: `a,b,…`, or `+a,-b` to change the default
    ///
    /// Prefix `type:` for one type of events: hw, sw, trace, raw. Fields: comm, tid, pid, time,
    /// cpu, event, trace, ip, sym, symoff, dso, addr, period, misc, iregs, uregs, brstack,
    /// brstacksym, weight, ins_lat, data_src, phys_addr, data_page_size, code_page_size, cgroup,
    /// srcline.
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
    /// Also match this many bytes after the addresses given with -S
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
    /// Do not print call chains
    #[arg(short = 'G', long)]
    hide_call_graph: bool,
    /// Show inlined functions in call chains [default]
    #[arg(long, overrides_with = "no_inline")]
    inline: bool,
    /// Do not show inlined functions
    #[arg(long)]
    no_inline: bool,
    /// Print full paths of source files
    #[arg(long)]
    full_source_path: bool,
    /// Add deferred user-space call chains to their samples [default]
    #[arg(long, overrides_with = "no_merge_callchains")]
    merge_callchains: bool,
    /// Print deferred user-space call chains separately, with the cookie in their samples
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
    /// Print times since the previous event
    #[arg(long)]
    deltatime: bool,
    /// Print times of CTF traces in seconds since 1970, not in their clock's seconds
    #[arg(long)]
    real_time: bool,
    /// Print the flags of each trace.dat event: irqs off, need-resched, hardirq/softirq, preemption
    /// depth, migration disabled
    #[arg(short, long, visible_alias = "Latency", visible_short_alias = 'L')]
    latency: bool,
    /// Print the header of the recording first
    #[arg(long)]
    header: bool,
    /// Print the full header: processors, caches, memory, clock
    #[arg(short = 'I', long)]
    show_info: bool,
    /// Print only the header
    #[arg(long)]
    header_only: bool,
    /// Dump the bytes of each record
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
    /// Also print FINISHED_ROUND records (first, as they have no time)
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
    /// Exit with status 3 if there are warnings
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

    /// Conditions on events. `span`: times of the first and the last event, where known.
    fn selection(
        &self,
        span: impl FnOnce() -> anyhow::Result<Option<(u64, u64)>>,
    ) -> anyhow::Result<EventSelection> {
        let mut selection = self.select.selection(self.comm.clone(), span)?;
        selection.switch = self.switch.switch();
        Ok(selection)
    }
}

/// Addresses of call chains in text: perf 7.2 prints those in the process.
fn frame_addresses() -> FrameAddresses {
    match CalledName::get() {
        CalledName::Perf => FrameAddresses::Process,
        _ => FrameAddresses::Binary,
    }
}

/// Reason why nothing was printed: silence would look like a failure.
fn nothing(args: &Args) -> &'static str {
    let conditions = !args.select.is_everything()
        || args.switch.is_given()
        || !args.comm.is_empty()
        || !args.symbols.is_empty()
        || !args.dsos.is_empty();
    if conditions { "no events of the recording match" } else { "the recording holds no events" }
}

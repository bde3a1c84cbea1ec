//! `kymo trace`: events of the running kernel as they happen, or with `-o` into
//! a trace.dat or to a listener (`out.rs`).
//!
//! Each run works in a trace instance of its own, which `kymo-record` makes and takes away.
//! Live, `follow.rs` shows its events until the end, which the event layer hands out and
//! `kymo-render` writes as `kymo script` does; `live_output.rs` is where lines go. Events of
//! programs with tracepoints of their own are `ust/`, both together `both.rs`. Without events
//! it is system calls (`syscalls.rs`), with stacks and page faults out of perf rings
//! (`sampled.rs`), or those of a recording (`recorded.rs`); `call_feed.rs` is what the last two
//! share.

mod both;
mod call_feed;
mod follow;
mod live_output;
mod out;
mod perf_form;
mod recorded;
mod sampled;
mod syscalls;
mod traced_tasks;
mod tracer;
pub(in crate::commands) mod ust;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_events::{EventSelection, FilterExpr};
use kymo_kernel::ftrace::Selection;
use kymo_kernel::{cpus, target};
use kymo_record::ftrace::{TraceEvent, TraceSetup};
use kymo_view::Ledger;

use crate::args::event_filters::EventArgs;
use crate::args::probes::{ProbeArgs, TemporaryProbes};
use crate::args::targets::kernel_numbers;
use crate::args::values::{Ring, bytes, millis, ring};
use crate::exit;

/// Flags of `kymo trace`.
#[derive(clap::Args)]
#[command(after_long_help = "\
EVENTS
  sched:sched_switch   one event            sched   a group
  'sched:*wak*'        a pattern            '*:*'   everything
Separate several with commas, or repeat -e. A --filter applies to the -e before it.

PROBES
  --probe 'vfs_read count'                  added for this run only
  -x ./prog --probe 'work n' --probe 'work%return $retval'
  --probe '/usr/bin/prog work n'
See `kymo probe --help` for the syntax. Filter the event by its name: -e 'probe_prog:work' --filter
'n > 3'.

TARGETS
  -- CMD    the command and its children, from the first instruction
  -p PID    a process with all threads and later children; an additional command only
            sets the duration (kymo trace -p PID sleep 5)
  neither   system-wide; with -a also while a command runs

SYSTEM CALLS
Without -e, kymo shows system calls, one line per return: name, arguments, result, <seconds>. `-e
openat,close` selects calls like --calls, also by strace's classes (`-e %file`, `-e trace=%network`)
or inverted (`-e '!futex'`). The program is not stopped: BPF programs read the data behind arguments
(paths, buffers, socket addresses, vectors, struct stat) at entry and return. Without CAP_BPF and
CAP_PERFMON, kymo reads paths and written buffers from the task's memory a moment later, and shows
them only if the call was still in progress, otherwise the address. With -i the calls come from a
recording (`kymo syscalls record`, `perf trace record`), which has only numbers and addresses.

STACKS, PAGE FAULTS, SWITCHES
With --call-graph the stack of each call is printed below it, in the format of `kymo script`. With
--pf page faults appear between the calls: minfault or majfault, [code location], and => the
binary@address of the data. These options read perf ring buffers, as do --cgroup, --sched,
--summary-mode cgroup, --switch-on EVENT and --switch-off EVENT, which show only the lines between
two events (any from `kymo list`). With -i they depend on the contents of the recording.

USER-SPACE EVENTS
-u shows events of programs that link kymo-tracepoint (listed by `kymo list ust`), including
programs that start later: your own or, for root, those of all users and containers; with -- CMD
those of the command and its children. It needs no root. A --filter applies to all of -u and is
evaluated in the program; it supports == != < <= > >= && || ! & and strings with * and ?. -o DIR
writes a directory with a CTF trace for each program.

KERNEL AND USER-SPACE EVENTS
With both -e and -u, kernel and user-space events are merged by time; a note states how well the two
clocks agree. -o DIR records them as DIR/kernel/trace.dat and DIR/ust/…; `kymo script DIR` merges
them, `kymo report DIR` and `kymo list DIR` count them.

LIVE OUTPUT
Without -o, the output has the format of `kymo script`, as lines or, with --json, as objects. kymo
reads the ring buffers of all CPUs every 20 ms (those of programs every 50 ms) and merges them by
time, so an event appears after at most two such intervals unless the output blocks. A line marks
lost events; their numbers follow at the end.")]
pub(crate) struct Args {
    #[command(flatten)]
    out: out::OutArgs,
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    ust: ust::UstArgs,
    #[command(flatten)]
    probes: ProbeArgs,
    /// Binary of the --probe functions [default: the kernel]
    #[arg(short = 'x', long, value_name = "BINARY", requires = "probes")]
    exec: Option<PathBuf>,
    #[command(flatten)]
    call: syscalls::CallArgs,
    #[command(flatten)]
    sampled: sampled::SampledArgs,
    #[command(flatten)]
    tracer: tracer::TracerArgs,
    /// System-wide, even with a command
    #[arg(short = 'a', long)]
    all_cpus: bool,
    /// Only these processes
    #[arg(short = 'p', long, value_name = "PID,…")]
    pid: Option<String>,
    /// Only these CPUs
    #[arg(short = 'C', long, value_name = "CPUS")]
    cpu: Option<String>,
    /// Show the kernel stack of each event
    #[arg(short = 'T', long)]
    stacks: bool,
    /// Clock of the timestamps
    #[arg(long, value_name = "CLOCK", default_value = "mono")]
    clock: String,
    /// Size of each CPU's ring buffer [default: 8M]
    #[arg(short = 'm', long, value_name = "SIZE", value_parser = bytes)]
    buffer_size: Option<u64>,
    /// Size of each CPU's ring buffer, in pages or with a unit
    #[arg(long, value_name = "PAGES", value_parser = ring, conflicts_with = "buffer_size")]
    mmap_pages: Option<Ring>,
    /// Only processes of this user
    #[arg(long, value_name = "USER", conflicts_with = "pid")]
    uid: Option<String>,
    /// Show the system calls of a recording
    ///
    /// A perf.data, a trace.dat or a CTF trace from LTTng.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["output", "command", "all_cpus",
          "probes", "stacks", "buffer_size", "timeout", "uid", "user_events", "instance", "delay"])]
    input: Option<PathBuf>,
    /// Do not follow children
    #[arg(long)]
    no_inherit: bool,
    /// Start MS milliseconds after the command starts
    #[arg(short = 'D', long, value_name = "MS", value_parser = millis,
          conflicts_with_all = ["user_events", "tracer"])]
    delay: Option<Duration>,
    /// Stop after MS milliseconds
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<Duration>,
    /// Stop after N events
    #[arg(
        short = 'n',
        long,
        visible_alias = "max-events",
        value_name = "N",
        conflicts_with = "output"
    )]
    count: Option<u64>,
    /// One JSON object per line
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Only events of tasks with these names
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "output")]
    comm: Vec<String>,
    /// Only events of these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',', conflicts_with = "output")]
    tid: Vec<u32>,
    /// Print the flags of kernel events, as `kymo script -l`
    #[arg(long, conflicts_with_all = ["output", "user_events"])]
    latency: bool,
    /// Print times in nanoseconds
    #[arg(long, conflicts_with = "output")]
    ns: bool,
    /// Omit task names from lines (only under the name perf)
    #[arg(long)]
    no_comm: bool,
    /// Show and consume the events of an existing trace instance; -e and --filter select among them
    #[arg(long, value_name = "NAME", conflicts_with_all =
          ["pid", "all_cpus", "stacks", "buffer_size", "output", "command", "probes"])]
    instance: Option<String>,
    /// Print only errors
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Exit with status 3 if anything was lost
    #[arg(long)]
    strict: bool,
    /// Command to trace
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    let names: Vec<String> =
        args.events.with_filters()?.into_iter().map(|(name, _)| name).collect();
    args.buffer_size = args.buffer_size.or(args.mmap_pages.map(|pages| pages.0 as u64 * 4096));
    if syscalls::are_calls(&names) {
        args.events = EventArgs::default();
        args.call.calls.extend(names);
    } else if let Some(flag) = args.call_flag().filter(|_| !names.is_empty()) {
        bail!("{flag} is for system calls, not for events (-e)");
    }
    let beside = [
        (args.ust.given(), "-u"),
        (args.instance.is_some(), "--instance"),
        (args.tracer.given(), "--tracer"),
        (args.probes.given(), "--probe"),
    ];
    if let Some(flag) = args.sampled.given()
        && let Some((_, other)) = beside.iter().find(|(is_given, _)| *is_given)
    {
        bail!("{flag} is for system calls, not beside {other}");
    }
    args.call.check(args.sampled.sched)?;
    if let Some(path) = &args.input {
        return recorded::run(&args, path);
    }
    let mut wanted = args.wanted()?;
    args.check_numbers(!wanted.is_empty() || args.probes.given())?;
    if args.tracer.given() {
        if args.probes.given() {
            bail!("--probe adds events, and a --tracer shows functions: take one of them");
        }
        return tracer::run(&args);
    }
    let probes = args.probes.add(args.exec.as_deref())?;
    for event in probes.iter().flat_map(TemporaryProbes::events) {
        wanted.push(TraceEvent { selection: Selection::parse(&event)?, filter: None });
    }
    let result = trace(&args, wanted);
    if let Some(probes) = probes {
        probes.remove()?;
    }
    result
}

/// Prints the ledger of a run, and returns its exit status.
fn close(args: &Args, ledger: &Ledger, command: Option<u8>) -> ExitCode {
    if !args.quiet {
        exit::tell(ledger);
    }
    exit::of_command(command, ledger, args.strict)
}

fn trace(args: &Args, wanted: Vec<TraceEvent>) -> anyhow::Result<ExitCode> {
    if args.ust.given() {
        return if wanted.is_empty() { ust::run(args) } else { both::run(args, wanted) };
    }
    match (args.out.given(), wanted.is_empty() && args.instance.is_none()) {
        (true, true) => bail!("which events? -e names them, `kymo event list` shows them"),
        (true, false) => out::record(args, wanted),
        (false, true) if args.sampled.given().is_some() || args.call.has_cgroups() => {
            sampled::run(args)
        }
        (false, true) => syscalls::run(args),
        (false, false) => follow::run(args, &wanted),
    }
}

impl Args {
    /// Returns the events to enable, and their tasks.
    fn setup(&self, events: Vec<TraceEvent>) -> anyhow::Result<TraceSetup> {
        Ok(TraceSetup {
            events,
            command: self.command.clone(),
            pids: self.pids()?,
            system_wide: self.all_cpus,
            follow: !self.no_inherit,
            cpus: self.cpus()?,
            clock: self.clock.clone(),
            buffer_kb: self.buffer_size.map(|b| b.div_ceil(1024)),
            stacks: self.stacks,
            timeout: self.timeout,
            delay: self.delay,
        })
    }

    /// The flag that is for system calls alone, if one was given.
    fn call_flag(&self) -> Option<&'static str> {
        self.call.given().or_else(|| self.sampled.given())
    }

    /// Whether the calls of all tasks are traced.
    fn is_of_machine(&self) -> anyhow::Result<bool> {
        if self.sampled.is_of_cgroup() {
            return Ok(true);
        }
        Ok(self.all_cpus || self.command.is_empty() && self.pids()?.is_empty())
    }

    /// Events with their filters, in the order they were typed.
    fn wanted(&self) -> anyhow::Result<Vec<TraceEvent>> {
        let mut wanted = Vec::new();
        for (name, filter) in self.events.with_filters()? {
            wanted.push(TraceEvent { selection: Selection::parse(&name)?, filter });
        }
        Ok(wanted)
    }

    /// In a container events of other tasks would be taken for the wanted ones.
    fn check_numbers(&self, events: bool) -> anyhow::Result<()> {
        let traced = events || self.tracer.given();
        let calls = !traced && !self.ust.given() && self.instance.is_none();
        let some = self.pid.is_some() || !self.command.is_empty() && !self.all_cpus;
        if !(calls || traced && some) || target::has_kernel_pids() {
            return Ok(());
        }
        let all = if calls { None } else { Some("trace system-wide (-a)") };
        kernel_numbers(all)
    }

    /// Selection of the shown events.
    fn selection(&self) -> anyhow::Result<EventSelection> {
        let mut selection =
            EventSelection::of_tasks(self.comm.clone(), Vec::new(), self.tid.clone());
        // Of an instance of ours the kernel selects.
        if self.instance.is_none() {
            return Ok(selection);
        }
        let (names, filters): (Vec<_>, Vec<_>) = self.events.with_filters()?.into_iter().unzip();
        let group = |name: &String| {
            if name.contains(':') {
                vec![name.clone()]
            } else {
                vec![name.clone(), format!("{name}:*")]
            }
        };
        selection.set_events(&names.iter().flat_map(group).collect::<Vec<_>>())?;
        if filters.iter().any(|f| *f != filters[0]) {
            bail!("with --instance one --filter holds for all events: take one -e before it");
        }
        let filter = filters.into_iter().flatten().next();
        selection.filter = filter.map(|f| FilterExpr::parse(&f)).transpose()?;
        Ok(selection)
    }

    /// Whether a command is what is traced, and does not just say how long.
    fn command_alone(&self) -> bool {
        !self.all_cpus && self.pid.is_none() && self.uid.is_none()
    }

    fn pids(&self) -> anyhow::Result<Vec<u32>> {
        if let Some(user) = &self.uid {
            let pids = target::processes_of_user(target::user_id(user)?)?;
            if pids.is_empty() {
                bail!("user {user} has no processes");
            }
            return Ok(pids);
        }
        Ok(self.pid.as_deref().map(target::parse_ids).transpose()?.unwrap_or_default())
    }

    fn cpus(&self) -> anyhow::Result<Vec<u32>> {
        let cpus = self.cpu.as_deref().map(cpus::parse_list).transpose().context("-C")?;
        Ok(cpus.unwrap_or_default())
    }
}

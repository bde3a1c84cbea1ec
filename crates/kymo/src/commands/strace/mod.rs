//! `kymo strace`, and kymo under the name strace: system calls and signals in strace's words, by
//! ptrace(2). The program stands still at each call, so that everything that a call points to can
//! be read; tracing rights are not needed for programs of one's own.

mod outputs;
mod task_view;

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_kernel::descriptors;
use kymo_kernel::process::{self, GatedChild, Signal, Signals};
use kymo_kernel::ptrace::{TaskStop, TracedProcesses};
use kymo_kernel::target;
use kymo_render::syscalls::strace::{
    BegunCall, CallFilter, CallLineStyle, CountOrder, CountedTime, HexTexts, StopTime, StraceLog,
    StraceStyle, TaskEnd, TimeStyle,
};

use outputs::Outputs;
use task_view::LiveTask;

/// Flags of `kymo strace`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Output and options are those of strace; lines go to standard error, or to the file of -o. Like
strace, it stops the program twice per call: on a virtual machine a one-byte call took 0.12 ms
(strace 0.11 ms) instead of 0.3 us. `kymo trace` does not stop programs, but needs tracing
permissions and shows an address when it cannot read a string in time.

TARGETS
  COMMAND   the command, starting with its execve(2)
  -p PID    running processes with all their threads; Ctrl-C detaches

Processes also keep running if kymo is killed.

EXPRESSIONS of -e
  trace=LIST      calls by name, class (%file, %network, …) or pattern; a leading ! inverts
  status=LIST     successful, failed, unfinished
  signal=LIST     signals to show
  abbrev=none     structures, environments and lists to their end, as -v
The default is trace=.

EXAMPLES
  kymo strace -f -o calls.txt make
  kymo strace -e trace=%file -z ls
  kymo strace -c -f ./server
  kymo strace -p 1234 -T -tt")]
pub(crate) struct Args {
    /// Follow children; -ff with -o: one file per task, FILE.PID
    #[arg(short = 'f', long = "follow-forks", action = clap::ArgAction::Count)]
    follow: u8,
    /// Print only a table of calls, errors and system times at the end
    #[arg(short = 'c', long = "summary-only", conflicts_with = "lines_and_counts")]
    counts: bool,
    /// Print lines, and a table at the end
    #[arg(short = 'C', long = "summary")]
    lines_and_counts: bool,
    /// Sum elapsed time in the table instead of system time
    #[arg(short = 'w', long = "summary-wall-clock")]
    wall_clock: bool,
    /// Order of the table's rows
    #[arg(short = 'S', long = "summary-sort-by", value_name = "ORDER", default_value = "time")]
    order: TableOrder,
    /// Selection of calls and signals: trace=, status=, signal=
    #[arg(short = 'e', value_name = "EXPR")]
    expressions: Vec<String>,
    /// Calls to show, as with -e trace=
    #[arg(long = "trace", value_name = "LIST")]
    traced: Vec<String>,
    /// Signals to show, as with -e signal=
    #[arg(long = "signal", value_name = "LIST")]
    signals: Vec<String>,
    /// Results to show, as with -e status=
    #[arg(long = "status", value_name = "LIST")]
    statuses: Vec<String>,
    /// Only calls with this path, or with a file descriptor of it
    #[arg(short = 'P', long = "trace-path", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only calls that succeed
    #[arg(short = 'z', long = "successful-only", conflicts_with = "failed")]
    successful: bool,
    /// Only calls that fail
    #[arg(short = 'Z', long = "failed-only")]
    failed: bool,
    /// Print paths of file descriptors
    #[arg(short = 'y', long = "decode-fds", action = clap::ArgAction::Count)]
    descriptors: u8,
    /// Print the time of day; -tt: with microseconds; -ttt: seconds since 1970
    #[arg(short = 't', action = clap::ArgAction::Count)]
    times: u8,
    /// Print the time since the previous line
    #[arg(short = 'r')]
    relative: bool,
    /// Print the time spent in each call
    #[arg(short = 'T', long = "syscall-times")]
    duration: bool,
    /// Maximum length of printed strings, in bytes
    #[arg(short = 's', long = "string-limit", value_name = "N", default_value_t = 32)]
    string_limit: u16,
    /// Print non-ASCII strings in hexadecimal; -xx: all strings
    #[arg(short = 'x', action = clap::ArgAction::Count)]
    hex: u8,
    /// Print structures, environments and lists to their end
    #[arg(short = 'v', long = "no-abbrev")]
    whole: bool,
    /// Column of results in a line
    #[arg(short = 'a', long = "columns", value_name = "COLUMN", default_value_t = 40)]
    column: u16,
    /// Write lines to this file
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Append to the file of -o
    #[arg(short = 'A', long = "output-append-mode", requires = "output")]
    append: bool,
    /// Trace this process (repeatable)
    #[arg(short = 'p', long = "attach", value_name = "PID", value_delimiter = ',')]
    pids: Vec<u32>,
    /// Suppress messages about attaching; -qq: also about exits
    #[arg(short = 'q', action = clap::ArgAction::Count)]
    quiet: u8,
    /// Refused: stacks of calls
    #[arg(short = 'k', hide = true)]
    stacks: bool,
    /// Command to trace
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Order of the table's rows, with strace's synonyms.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TableOrder {
    /// Longest time first
    #[value(alias = "time_total", alias = "total_time")]
    Time,
    /// Most calls first
    #[value(alias = "count")]
    Calls,
    /// Most errors first
    #[value(alias = "error")]
    Errors,
    /// By name
    #[value(alias = "syscall", alias = "syscall_name")]
    Name,
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        if self.stacks {
            bail!("-k: stacks are not read here; use `kymo trace --call-graph dwarf`");
        }
        if self.descriptors > 1 {
            bail!("-yy: only paths of descriptors are read; use -y");
        }
        if self.command.is_empty() && self.pids.is_empty() {
            bail!("no command and no process; name a COMMAND or -p PID");
        }
        if self.follow > 1 && (self.counts || self.lines_and_counts) {
            bail!("-ff writes a file for each task, and -c counts them together; use -f -c");
        }
        Ok(())
    }

    fn filter(&self) -> anyhow::Result<CallFilter> {
        let mut filter = CallFilter::default();
        for expression in &self.expressions {
            let (word, list) = expression.split_once('=').unwrap_or(("trace", expression));
            match word {
                // Structures are decoded, and never in hexadecimal.
                "verbose" | "v" if list == "all" => Ok(()),
                "abbrev" | "a" if matches!(list, "none" | "all" | "!all" | "!none") => Ok(()),
                "trace" | "t" => filter.set_calls(list),
                "signal" | "signals" | "s" => filter.set_signals(list),
                "status" => filter.set_statuses(list),
                "inject" | "fault" => {
                    bail!("-e {word}=: calls are watched, not changed; use strace to inject faults")
                }
                _ => bail!(
                    "-e {word}=: not supported; there are trace=, status=, signal= and abbrev=none"
                ),
            }
            .with_context(|| format!("-e {expression}"))?;
        }
        for list in &self.traced {
            filter.set_calls(list)?;
        }
        for list in &self.signals {
            filter.set_signals(list)?;
        }
        for list in &self.statuses {
            filter.set_statuses(list)?;
        }
        if self.successful {
            filter.set_statuses("successful")?;
        }
        if self.failed {
            filter.set_statuses("failed")?;
        }
        for path in &self.paths {
            use std::os::unix::ffi::OsStrExt as _;
            filter.paths.push(path.as_os_str().as_bytes().to_vec());
            if let Ok(whole) = path.canonicalize() {
                filter.paths.push(whole.as_os_str().as_bytes().to_vec());
            }
        }
        Ok(filter)
    }

    fn has_abbreviations_off(&self) -> bool {
        let off = ["abbrev=none", "abbrev=!all", "a=none", "a=!all"];
        self.expressions.iter().any(|expression| off.contains(&expression.as_str()))
    }

    /// Time that the table sums, if there is one.
    fn counted_time(&self) -> Option<CountedTime> {
        let time = if self.wall_clock { CountedTime::Wall } else { CountedTime::System };
        (self.counts || self.lines_and_counts).then_some(time)
    }

    fn style(&self) -> StraceStyle {
        StraceStyle {
            string_limit: usize::from(self.string_limit),
            hex: match self.hex {
                0 => HexTexts::None,
                1 => HexTexts::NonPlain,
                _ => HexTexts::All,
            },
            paths: self.descriptors > 0,
            whole: self.whole || self.has_abbreviations_off(),
            local_time: Some(kymo_kernel::calendar::format_local_time),
        }
    }

    fn lines(&self) -> CallLineStyle {
        let is_separate = self.follow > 1 && self.output.is_some();
        CallLineStyle {
            time: match self.times {
                0 => TimeStyle::None,
                1 => TimeStyle::Seconds,
                2 => TimeStyle::Microseconds,
                _ => TimeStyle::Epoch,
            },
            is_relative: self.relative,
            has_duration: self.duration,
            column: usize::from(self.column),
            has_numbers: self.output.is_some()
                && !is_separate
                && (self.follow > 0 || self.pids.len() > 1),
            is_separate,
            has_brackets: self.output.is_none(),
            shows_lines: !self.counts,
            hides_ends: self.quiet > 1,
        }
    }

    /// Whether descriptors are looked up.
    fn wants_descriptors(&self) -> bool {
        self.descriptors > 0 || !self.paths.is_empty()
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    args.check()?;
    let log = StraceLog::new(args.style(), args.lines(), args.filter()?, args.counted_time());
    let outputs = Outputs::open(args.output.as_deref(), args.lines().is_separate, args.append)?;
    let signals = Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup, Signal::Quit])
        .context("listening for signals")?;
    let command =
        if args.command.is_empty() { None } else { Some(GatedChild::spawn(&args.command)?) };
    let traced = TracedProcesses::new(args.follow > 0).context("listening for children")?;
    let mut session = StraceSession {
        traced,
        log,
        outputs,
        signals,
        wants_descriptors: args.wants_descriptors(),
        reports: args.quiet == 0 && args.output.is_none(),
        status: 0,
        killed_by: None,
        command: None,
        attached: HashSet::new(),
    };
    session.attach(&args.pids, args.quiet > 0)?;
    if let Some(child) = command {
        session.start(child)?;
    }
    let end = session.follow(args.output.is_some() && !args.command.is_empty())?;
    session.finish(end, args.quiet > 0)?;
    if let Some(table) = session.log.counts(match args.order {
        TableOrder::Time => CountOrder::Time,
        TableOrder::Calls => CountOrder::Calls,
        TableOrder::Errors => CountOrder::Errors,
        TableOrder::Name => CountOrder::Name,
    }) {
        session.outputs.write(0, &table)?;
    }
    // A command that ended by itself may have found no program.
    if end.is_none()
        && let Some(error) = session.command.as_ref().and_then(GatedChild::exec_error)
    {
        return Err(error.into());
    }
    match (end, session.killed_by) {
        (Some(signal), _) if session.command.is_none() => process::die_by(signal),
        (None, Some(number)) => process::die_as_killed(number),
        _ => Ok(ExitCode::from(session.status)),
    }
}

/// Tasks that are traced, and what is written about them.
struct StraceSession {
    traced: TracedProcesses,
    log: StraceLog,
    outputs: Outputs,
    signals: Signals,
    wants_descriptors: bool,
    /// Whether new tasks are reported on standard error.
    reports: bool,
    status: u8,
    /// The signal that has ended the command.
    killed_by: Option<i32>,
    command: Option<GatedChild>,
    attached: HashSet<u32>,
}

/// Stops between two looks at signals.
const STOPS_PER_LOOK: usize = 64;

impl StraceSession {
    fn view(&self, tid: u32) -> LiveTask {
        LiveTask { tid, wants_descriptors: self.wants_descriptors }
    }

    /// Seizes running processes.
    fn attach(&mut self, pids: &[u32], is_quiet: bool) -> anyhow::Result<()> {
        for pid in pids {
            target::check_alive(*pid)?;
            self.traced.seize_process(*pid).map_err(|error| {
                let reason = match error.raw_os_error() {
                    Some(libc::EPERM) => {
                        ": it belongs to another user, is traced already, or \
                         kernel.yama.ptrace_scope forbids it"
                    }
                    _ => "",
                };
                anyhow::anyhow!("cannot trace process {pid}: {error}{reason}")
            })?;
            let threads = target::threads_of(*pid)?;
            for tid in &threads {
                self.log.add_task(*tid, false);
                self.attached.insert(*tid);
            }
            if !is_quiet {
                match threads.len() {
                    0 | 1 => sayln!("strace: Process {pid} attached"),
                    count => sayln!("strace: Process {pid} attached with {count} threads"),
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, mut child: GatedChild) -> anyhow::Result<()> {
        let pid = child.pid();
        self.traced.seize_child(&child).with_context(|| {
            "cannot trace the command: a container's seccomp filter or \
             kernel.yama.ptrace_scope = 3 forbids ptrace"
        })?;
        self.log.add_task(pid, true);
        child.open_gate()?;
        self.command = Some(child);
        Ok(())
    }

    /// Writes until all tasks have ended, or a signal asks to end: that one.
    fn follow(&mut self, ignores_signals: bool) -> anyhow::Result<Option<Signal>> {
        loop {
            let mut is_idle = false;
            for _ in 0..STOPS_PER_LOOK {
                let Some((tid, stop)) = self.traced.next_stop().context("waiting for tasks")?
                else {
                    is_idle = true;
                    break;
                };
                self.take(tid, stop)?;
                for (key, text) in self.log.take_output() {
                    self.outputs.write(key, &text)?;
                }
            }
            if self.traced.is_empty() {
                return Ok(None);
            }
            while let Some(signal) = self.signals.next()? {
                if !ignores_signals {
                    return Ok(Some(signal));
                }
            }
            // The last task that stopped runs on when the next is asked for.
            if !is_idle {
                continue;
            }
            let mut fds =
                [descriptors::readable(&self.traced), descriptors::readable(&self.signals)];
            descriptors::wait(&mut fds, Duration::MAX)?;
        }
    }

    /// Lets the tasks that are left run on.
    fn finish(&mut self, end: Option<Signal>, is_quiet: bool) -> anyhow::Result<()> {
        if let Some(signal) = end {
            self.traced.signal_child(signal.number());
            self.status = 128 + signal.number() as u8;
        }
        for tid in self.traced.detach_all() {
            self.log.detached(tid);
            for (key, text) in self.log.take_output() {
                self.outputs.write(key, &text)?;
            }
            if !is_quiet {
                sayln!("strace: Process {tid} detached");
            }
        }
        Ok(())
    }

    /// Writes about one stop.
    fn take(&mut self, tid: u32, stop: TaskStop) -> anyhow::Result<()> {
        let now = StopTime {
            wall: kymo_kernel::calendar::wall_time(),
            monotonic: process::monotonic(),
            system: self.traced.system_time(tid),
        };
        let mut view = self.view(tid);
        match stop {
            TaskStop::Enter(call) => {
                let call = BegunCall::new(call.architecture, call.number, call.args, call.stack);
                self.log.begin(tid, call, now, &mut view);
            }
            TaskStop::Leave { result, is_error } => {
                self.log.end(tid, (result, is_error), now, &mut view);
            }
            TaskStop::Signal(info) => {
                self.log.signal(tid, info.signal, &info.bytes, now, &mut view);
            }
            TaskStop::Stopped(signal) => self.log.stopped(tid, signal, now, &mut view),
            TaskStop::Started { .. } => {
                self.log.add_task(tid, false);
                if self.reports {
                    sayln!("strace: Process {tid} attached");
                }
            }
            TaskStop::Executed { former } => {
                if former != tid {
                    self.log.renumber(former, tid, now, &mut view);
                }
            }
            TaskStop::Exiting => self.log.exiting(tid, now, &mut view),
            TaskStop::Exited(status) => {
                self.end(tid, TaskEnd::Exited(status), status as u8, now);
            }
            TaskStop::Killed { signal, with_core } => {
                self.end(tid, TaskEnd::Killed(signal, with_core), 128 + signal as u8, now);
            }
        }
        Ok(())
    }

    fn end(&mut self, tid: u32, end: TaskEnd, status: u8, now: StopTime) {
        let mut view = self.view(tid);
        if self.command.as_ref().is_some_and(|child| child.pid() == tid) {
            self.status = status;
            self.killed_by = match end {
                TaskEnd::Killed(signal, _) => Some(signal),
                _ => None,
            };
        }
        self.log.ended(tid, end, now, &mut view);
    }
}

//! Lines of calls, signals and ends of tasks, as strace writes them: a call whose line another
//! task interrupts is finished and resumed.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::time::Duration;

use super::filter::{CallFilter, CallStatus};
use super::printer::CallPrinter;
use super::results::{self, ResultForm};
use super::signals::{self, signal_text};
use super::summary::{CallCounts, CountOrder};
use super::{BegunCall, StraceStyle, TaskView};

/// The time before a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeStyle {
    /// None.
    #[default]
    None,
    /// The time of day in seconds (`-t`).
    Seconds,
    /// The time of day in microseconds (`-tt`).
    Microseconds,
    /// Seconds since 1970 in microseconds (`-ttt`).
    Epoch,
}

/// Style of the start and the end of lines.
#[derive(Clone, Debug)]
pub struct CallLineStyle {
    /// The time before them.
    pub time: TimeStyle,
    /// Whether the time since the line before stands there (`-r`).
    pub is_relative: bool,
    /// Whether the time in the call stands at the end (`-T`).
    pub has_duration: bool,
    /// The column of results (`-a`).
    pub column: usize,
    /// Whether each line has the number of its task, in a file of several.
    pub has_numbers: bool,
    /// Whether each task has an output of its own (`-ff -o`).
    pub is_separate: bool,
    /// Whether the number of a task stands in brackets as soon as there are several.
    pub has_brackets: bool,
    /// Whether calls, signals and ends are shown (not with `-c`).
    pub shows_lines: bool,
    /// Whether ends of tasks are left out (`-qq`).
    pub hides_ends: bool,
}

impl Default for CallLineStyle {
    fn default() -> CallLineStyle {
        CallLineStyle {
            time: TimeStyle::None,
            is_relative: false,
            has_duration: false,
            column: 40,
            has_numbers: false,
            is_separate: false,
            has_brackets: true,
            shows_lines: true,
            hides_ends: false,
        }
    }
}

/// End of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// With a status.
    Exited(i32),
    /// By a signal; whether a core file was written.
    Killed(i32, bool),
    /// It was superseded by this thread, which executed a program.
    Superseded(u32),
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct StopTime {
    /// Since 1970.
    pub wall: Duration,
    /// On the monotonic clock.
    pub monotonic: Duration,
    /// System time of the task's process so far.
    pub system: Duration,
}

/// Time that the table of calls sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedTime {
    /// In the kernel, on a CPU.
    System,
    /// From the start to the end of a call.
    Wall,
}

/// A call that is in progress.
#[derive(Debug)]
struct OpenCall {
    call: BegunCall,
    began: StopTime,
    /// Text of the arguments so far.
    begun: Vec<u8>,
    is_shown: bool,
    /// Whether its line is written when it has ended.
    waits: bool,
}

/// State of a task.
#[derive(Debug, Default)]
struct TaskLines {
    open: Option<OpenCall>,
    /// Name of the call before.
    last: Option<String>,
    is_compat: bool,
    /// Calls are hidden until it executes a program: those of the tracer's child.
    is_hidden: bool,
}

/// The line that is not finished.
#[derive(Clone, Copy, Debug)]
struct PartialLine {
    tid: u32,
    width: usize,
}

/// Lines of the tasks that are traced.
#[derive(Debug)]
pub struct StraceLog {
    style: StraceStyle,
    lines: CallLineStyle,
    filter: CallFilter,
    tasks: HashMap<u32, TaskLines>,
    /// By output: 0, or the task's number where each has its own.
    partial: HashMap<u32, PartialLine>,
    output: BTreeMap<u32, Vec<u8>>,
    counts: Option<(CountedTime, CallCounts)>,
    previous: Option<Duration>,
}

impl StraceLog {
    /// Writes in this style what the filter leaves; with `counts` the table of `-c`, too.
    pub fn new(
        style: StraceStyle,
        lines: CallLineStyle,
        filter: CallFilter,
        counts: Option<CountedTime>,
    ) -> StraceLog {
        StraceLog {
            style,
            lines,
            filter,
            tasks: HashMap::new(),
            partial: HashMap::new(),
            output: BTreeMap::new(),
            counts: counts.map(|time| (time, CallCounts::default())),
            previous: None,
        }
    }

    /// Takes the output, by task where each has its own.
    pub fn take_output(&mut self) -> BTreeMap<u32, Vec<u8>> {
        std::mem::take(&mut self.output)
    }

    /// A task is traced from now on; `hidden` until it has executed a program.
    pub fn add_task(&mut self, tid: u32, is_hidden: bool) {
        self.tasks.entry(tid).or_default().is_hidden = is_hidden;
    }

    /// Whether a task's program has not begun yet.
    pub fn is_hidden(&self, tid: u32) -> bool {
        self.tasks.get(&tid).is_some_and(|task| task.is_hidden)
    }

    fn key(&self, tid: u32) -> u32 {
        if self.lines.is_separate { tid } else { 0 }
    }

    /// Begins a line of a task, or continues it; the bytes are counted for the column.
    fn write(&mut self, tid: u32, text: &[u8]) {
        let key = self.key(tid);
        self.output.entry(key).or_default().extend_from_slice(text);
        if let Some(partial) = self.partial.get_mut(&key) {
            partial.width += text.len();
        }
    }

    /// The beginning of a line: what was begun of another is broken off.
    fn leader(&mut self, tid: u32, now: StopTime, task: &mut dyn TaskView) {
        let key = self.key(tid);
        if self.partial.remove(&key).is_some() {
            let out = self.output.entry(key).or_default();
            out.extend_from_slice(b" <unfinished ...>\n");
        }
        self.partial.insert(key, PartialLine { tid, width: 0 });
        let mut text = Vec::new();
        let several = self.tasks.len() > 1;
        if self.lines.has_numbers {
            let _ = write!(text, "{tid:<5} ");
        } else if several && self.lines.has_brackets {
            let _ = write!(text, "[pid {tid:5}] ");
        }
        let seconds = i64::try_from(now.wall.as_secs()).unwrap_or(i64::MAX);
        let micros = now.wall.subsec_micros();
        if self.lines.time != TimeStyle::None {
            let _ = match self.lines.time {
                TimeStyle::Epoch => write!(text, "{seconds}.{micros:06} "),
                TimeStyle::Microseconds => {
                    write!(text, "{}.{micros:06} ", task.time_of_day(seconds))
                }
                _ => write!(text, "{} ", task.time_of_day(seconds)),
            };
        }
        if self.lines.is_relative {
            let before = self.previous.replace(now.monotonic).unwrap_or(now.monotonic);
            let since = now.monotonic.saturating_sub(before);
            let (seconds, micros) = (since.as_secs(), since.subsec_micros());
            let _ = match self.lines.time {
                TimeStyle::None => write!(text, "{seconds:6}.{micros:06} "),
                _ => write!(text, "(+{seconds:6}.{micros:06}) "),
            };
        }
        self.write(tid, &text);
    }

    /// Ends the line.
    fn end_line(&mut self, tid: u32, text: &[u8]) {
        self.write(tid, text);
        let key = self.key(tid);
        self.output.entry(key).or_default().push(b'\n');
        self.partial.remove(&key);
    }

    /// Fills up to the column of results.
    fn move_to_column(&mut self, tid: u32) {
        let width = self.partial.get(&self.key(tid)).map_or(0, |partial| partial.width);
        let spaces = vec![b' '; self.lines.column.saturating_sub(width)];
        self.write(tid, &spaces);
    }

    fn is_on_line(&self, tid: u32) -> bool {
        self.partial.get(&self.key(tid)).is_some_and(|partial| partial.tid == tid)
    }

    /// A call begins.
    pub fn begin(&mut self, tid: u32, mut call: BegunCall, now: StopTime, task: &mut dyn TaskView) {
        let known = self.tasks.entry(tid).or_default();
        let is_hidden = known.is_hidden && call.name != "execve";
        let has_switched =
            std::mem::replace(&mut known.is_compat, call.is_compat) != call.is_compat;
        let waits = known.is_hidden || self.filter.waits_for_end();
        let last = known.last.replace(call.name.clone());
        let is_shown = !is_hidden && self.filter.has_call(&call);
        if has_switched && self.lines.shows_lines && !is_hidden {
            let bits = if call.is_compat { 32 } else { 64 };
            self.leader(tid, now, task);
            self.end_line(
                tid,
                format!("[ Process PID={tid} runs in {bits} bit mode. ]").as_bytes(),
            );
        }
        let mut begun = Vec::new();
        if is_shown && self.lines.shows_lines {
            begun = match call.name.as_str() {
                "restart_syscall" => {
                    let last = last.unwrap_or_else(|| "system call".to_owned());
                    format!("<... resuming interrupted {last} ...>").into_bytes()
                }
                _ => call.begin(task, &self.style),
            };
            if !waits {
                self.leader(tid, now, task);
                self.write(tid, call.name.as_bytes());
                self.write(tid, b"(");
                self.write(tid, &begun);
            }
        }
        let open = OpenCall { call, began: now, begun, is_shown, waits };
        self.tasks.entry(tid).or_default().open = Some(open);
    }

    /// A call returns.
    pub fn end(
        &mut self,
        tid: u32,
        (result, is_error): (i64, bool),
        now: StopTime,
        task: &mut dyn TaskView,
    ) {
        let known = self.tasks.entry(tid).or_default();
        let Some(mut open) = known.open.take() else { return };
        if known.is_hidden {
            // The child looks for its program: the attempt that succeeds is the first line.
            if is_error || open.call.name != "execve" {
                return;
            }
            known.is_hidden = false;
        }
        if !open.is_shown {
            return;
        }
        let time = now.monotonic.saturating_sub(open.began.monotonic);
        let status = if is_error { CallStatus::Failed } else { CallStatus::Successful };
        let waited = self.filter.waits_for_end();
        if self.lines.shows_lines {
            let end = open.call.end((result, is_error), task, &self.style);
            if !self.filter.has_status(status) || !self.filter.has_paths(&open.call.paths) {
                return;
            }
            self.resume(tid, &open, now, task);
            self.write(tid, &end.rest);
            self.write(tid, b") ");
            self.move_to_column(tid);
            let mut text = self.result_text(&open.call, result, is_error, task);
            if let Some(aside) = end.aside {
                text.extend_from_slice(b" (");
                text.extend_from_slice(&aside);
                text.push(b')');
            }
            if self.lines.has_duration {
                let _ = write!(text, " <{}.{:06}>", time.as_secs(), time.subsec_micros());
            }
            self.end_line(tid, &text);
        } else if waited && !self.filter.has_status(status) {
            return;
        }
        if let Some((counted, counts)) = &mut self.counts {
            let time = match counted {
                CountedTime::System => now.system.saturating_sub(open.began.system),
                CountedTime::Wall => time,
            };
            counts.add((open.call.number, &open.call.name), is_error, time);
        }
    }

    /// Continues the line of a call, which others may have interrupted.
    fn resume(&mut self, tid: u32, open: &OpenCall, now: StopTime, task: &mut dyn TaskView) {
        let name = open.call.name.as_bytes();
        if self.is_on_line(tid) {
            return;
        }
        self.leader(tid, if open.waits { open.began } else { now }, task);
        if !open.waits {
            self.write(tid, b"<... ");
            self.write(tid, name);
            self.write(tid, b" resumed>");
        } else {
            self.write(tid, name);
            self.write(tid, b"(");
            self.write(tid, &open.begun);
        }
    }

    fn result_text(
        &self,
        call: &BegunCall,
        result: i64,
        is_error: bool,
        task: &mut dyn TaskView,
    ) -> Vec<u8> {
        let mut out = b"= ".to_vec();
        if is_error {
            let errno = i32::try_from(result.unsigned_abs()).unwrap_or(i32::MAX);
            let _ = match (restart_text(errno), super::super::errno_name(errno)) {
                (Some((name, text)), _) => write!(out, "? {name} ({text})"),
                (None, Some(name)) => {
                    let text = crate::syscalls::errno::errno_text(errno);
                    write!(out, "-1 {name} ({text})")
                }
                (None, None) => write!(out, "-1 (errno {errno})"),
            };
            return out;
        }
        let _ = match results::form(&call.name, &call.args) {
            ResultForm::Decimal => write!(out, "{result}"),
            ResultForm::Hexadecimal if result == 0 => write!(out, "0"),
            ResultForm::Hexadecimal => write!(out, "{result:#x}"),
            ResultForm::Octal => {
                let digits = if result < 0o100 { 2 } else { 0 };
                write!(out, "0{result:0digits$o}")
            }
            ResultForm::Descriptor => {
                let mut printer = call.printer(task, &self.style);
                printer.descriptor(result as i32);
                out.extend_from_slice(&printer.out);
                Ok(())
            }
        };
        out
    }

    /// The task is about to end: a call that it is in has no result.
    pub fn exiting(&mut self, tid: u32, now: StopTime, task: &mut dyn TaskView) {
        let Some(open) = self.tasks.entry(tid).or_default().open.take() else { return };
        let is_hidden = self.is_hidden(tid);
        let is_shown = open.is_shown && !is_hidden && self.filter.has_paths(&open.call.paths);
        if !is_shown || !self.filter.has_status(CallStatus::Unfinished) {
            return;
        }
        if self.lines.shows_lines {
            self.resume(tid, &open, now, task);
            if open.call.is_unfinished() {
                self.write(tid, b" <unfinished ...>");
            }
            self.write(tid, b") ");
            self.move_to_column(tid);
            self.end_line(tid, b"= ?");
        }
    }

    /// A line about a task that is no call.
    fn remark(&mut self, tid: u32, now: StopTime, task: &mut dyn TaskView, text: &[u8]) {
        if self.lines.shows_lines && !self.is_hidden(tid) {
            self.leader(tid, now, task);
            self.end_line(tid, text);
        }
    }

    /// A signal is delivered; `info` is its `siginfo_t`.
    pub fn signal(
        &mut self,
        tid: u32,
        signal: i32,
        info: &[u8],
        now: StopTime,
        task: &mut dyn TaskView,
    ) {
        if !self.filter.has_signal(signal) {
            return;
        }
        let style = self.style.clone();
        let mut printer = CallPrinter {
            out: Vec::new(),
            args: [0; 6],
            result: None,
            saved: 0,
            kept: Vec::new(),
            task,
            style: &style,
            aside: None,
            paths: Vec::new(),
        };
        let _ = write!(printer.out, "--- {} ", signal_text(signal.cast_unsigned()));
        signals::info_text(&mut printer, info);
        printer.text(" ---");
        let text = printer.out;
        self.remark(tid, now, task, &text);
    }

    /// The task is stopped by job control.
    pub fn stopped(&mut self, tid: u32, signal: i32, now: StopTime, task: &mut dyn TaskView) {
        if self.filter.has_signal(signal) {
            let name = signal_text(signal.cast_unsigned());
            self.remark(tid, now, task, format!("--- stopped by {name} ---").as_bytes());
        }
    }

    /// The task has ended.
    pub fn ended(&mut self, tid: u32, end: TaskEnd, now: StopTime, task: &mut dyn TaskView) {
        let text = match end {
            TaskEnd::Exited(status) => format!("+++ exited with {status} +++"),
            TaskEnd::Killed(signal, with_core) => {
                let core = if with_core { " (core dumped)" } else { "" };
                format!("+++ killed by {}{core} +++", signal_text(signal.cast_unsigned()))
            }
            TaskEnd::Superseded(by) => format!("+++ superseded by execve in pid {by} +++"),
        };
        if !self.lines.hides_ends {
            self.remark(tid, now, task, text.as_bytes());
        }
        self.tasks.remove(&tid);
    }

    /// A thread has executed a program and continues under the number of its process.
    pub fn renumber(&mut self, former: u32, tid: u32, now: StopTime, task: &mut dyn TaskView) {
        if self.is_on_line(former) {
            let key = self.key(former);
            self.partial.remove(&key);
            self.output.entry(key).or_default().extend_from_slice(b" <unfinished ...>\n");
        }
        let state = self.tasks.remove(&former).unwrap_or_default();
        self.ended(tid, TaskEnd::Superseded(former), now, task);
        self.tasks.insert(tid, state);
    }

    /// Tracing ends while the task runs on.
    pub fn detached(&mut self, tid: u32) {
        if self.is_on_line(tid) {
            self.end_line(tid, b" <detached ...>");
        }
        self.tasks.remove(&tid);
    }

    /// The table of calls.
    pub fn counts(&self, order: CountOrder) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.counts.as_ref()?.1.write(order, &mut out);
        Some(out)
    }
}

/// Errors that programs never see: the kernel makes the call anew.
fn restart_text(errno: i32) -> Option<(&'static str, &'static str)> {
    Some(match errno {
        512 => ("ERESTARTSYS", "To be restarted if SA_RESTART is set"),
        513 => ("ERESTARTNOINTR", "To be restarted"),
        514 => ("ERESTARTNOHAND", "To be restarted if no handler"),
        516 => ("ERESTART_RESTARTBLOCK", "Interrupted by signal"),
        _ => return None,
    })
}

//! A call's beginning and its end, put together to a line.
//!
//! A line is written when the call returns, so lines are in the order of
//! returns. What has not returned when the task or the trace ends has `?` for a
//! result.

use std::io::Write as _;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use kymo_format::{EventFormat, json_string};
use kymo_kernel::ftrace::TraceDir;
use kymo_model::{Endian, NoteKind};
use kymo_view::Ledger;
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::Args;
use super::super::names::Tasks;
use super::args::{self, Call, Kind, Side};
use super::look::{Look, Looks, seconds};
use super::summary::Summary;
use super::{errno, numbers};

/// Results from here on are errors: -4095 … -1.
const ERRORS: i64 = -4095;

/// Turns the events of calls into lines.
pub(super) struct Lines {
    pub(super) out: Vec<u8>,
    pub(super) shown: u64,
    pub(super) lost: u64,
    pub(super) damaged: u64,
    /// Events that were read so far.
    pub(super) sighted: u64,
    formats: Formats,
    dir: TraceDir,
    calls: FxHashMap<i64, Rc<Call>>,
    open: FxHashMap<i32, Begun>,
    looks: Looks,
    texts: u64,
    gone: u64,
    late: u64,
    tasks: Tasks,
    seen: FxHashSet<i32>,
    /// Our own code in the command's process, before it becomes the command.
    gated: Option<i32>,
    summary: Option<Summary>,
    style: Style,
    left: Option<u64>,
    fresh: bool,
}

/// What lines look like.
#[derive(Clone, Copy)]
struct Style {
    lines: bool,
    json: bool,
    times: bool,
    colour: bool,
    /// Whether the trace's clock is the one that is asked when memory is read.
    monotonic: bool,
}

/// The four events that are followed.
struct Formats {
    enter: EventFormat,
    exit: EventFormat,
    exec: EventFormat,
    end: EventFormat,
}

/// A call that has not returned.
struct Begun {
    time: u64,
    number: i64,
    call: Rc<Call>,
    args: [u64; 6],
    look: Look,
}

/// A call's end.
#[derive(Clone, Copy)]
enum End {
    /// It returned.
    Returned { at: u64, value: i64 },
    /// The task ended in it.
    Task,
    /// The trace ended before it did.
    Trace,
}

impl Lines {
    pub(super) fn new(
        dir: &TraceDir,
        child: Option<u32>,
        args: &Args,
        colour: bool,
    ) -> anyhow::Result<Lines> {
        let format = |system: &str, name: &str| {
            let text = dir.tracefs().event_format(system, name)?;
            EventFormat::parse(&text).with_context(|| format!("{system}:{name}"))
        };
        let formats = Formats {
            enter: format("raw_syscalls", "sys_enter")?,
            exit: format("raw_syscalls", "sys_exit")?,
            exec: format("sched", "sched_process_exec")?,
            end: format("sched", "sched_process_exit")?,
        };
        let table = args.call.summary || args.call.with_summary;
        Ok(Lines {
            out: Vec::new(),
            shown: 0,
            lost: 0,
            damaged: 0,
            sighted: 0,
            formats,
            dir: dir.clone(),
            calls: FxHashMap::default(),
            open: FxHashMap::default(),
            looks: Looks::default(),
            texts: 0,
            gone: 0,
            late: 0,
            tasks: Tasks::new(dir, false),
            seen: FxHashSet::default(),
            gated: child.map(|c| c as i32),
            summary: table.then(Summary::default),
            style: Style {
                lines: !args.call.summary,
                json: args.json,
                times: args.call.times,
                colour,
                monotonic: dir.clocks()?.current == "mono",
            },
            left: args.count,
            fresh: false,
        })
    }

    pub(super) fn is_full(&self) -> bool {
        self.left == Some(0)
    }

    /// Whether tasks' memory is looked at, which makes haste.
    pub(super) fn looks_up(&self) -> bool {
        self.style.lines
    }

    /// Names of tasks may have changed.
    pub(super) fn stale(&mut self) {
        self.fresh = false;
    }

    /// A call was read from the ring and may still go on: now is the time to look
    /// at what its arguments point to.
    pub(super) fn sight(&mut self, time: u64, payload: &[u8]) {
        self.sighted += 1;
        if !self.style.lines || self.id(payload) != Some(self.formats.enter.id) {
            return;
        }
        let (tid, number, args) = self.enter(payload);
        let call = self.call(number);
        self.looks.enter(tid, time, &call, &args);
    }

    pub(super) fn event(&mut self, time: u64, payload: &[u8]) {
        match self.id(payload) {
            Some(id) if id == self.formats.enter.id => self.begin(time, payload),
            Some(id) if id == self.formats.exit.id => self.end(time, payload),
            Some(id) if id == self.formats.exec.id => self.exec(payload),
            Some(id) if id == self.formats.end.id => {
                let tid = tid_of(payload);
                if let Some(begun) = self.open.remove(&tid) {
                    self.line(tid, begun, End::Task);
                }
                self.looks.forget(tid);
            }
            _ => {}
        }
    }

    pub(super) fn lost(&mut self, cpu: u32, count: Option<u64>) {
        self.lost += count.unwrap_or(1);
        // Beginnings and ends do not belong together any more.
        self.open.clear();
        if self.style.lines {
            let count = count.map_or(String::new(), |n| format!("{n} "));
            let _ = match self.style.json {
                true => writeln!(self.out, "{{\"lost\":true,\"cpu\":{cpu}}}"),
                false => writeln!(self.out, "CPU:{cpu} [LOST {count}EVENTS]"),
            };
        }
    }

    /// The trace is over: what has not returned, and the table.
    pub(super) fn finish(&mut self) {
        let mut rest: Vec<(i32, Begun)> = self.open.drain().collect();
        rest.sort_by_key(|(_, b)| b.time);
        for (tid, begun) in rest {
            if !self.is_full() {
                self.line(tid, begun, End::Trace);
            }
        }
        if let Some(summary) = self.summary.take() {
            if self.style.lines && !self.out.is_empty() {
                self.out.push(b'\n');
            }
            summary.write(&mut self.out);
        }
    }

    pub(super) fn note(&self, ledger: &mut Ledger) {
        let (gone, texts) = (self.gone, self.texts);
        if gone > 0 {
            let fact = format!(
                "{gone} of {texts} texts are shown as addresses: their task had ended or gone on"
            );
            ledger.note(NoteKind::Unread, fact, None);
        }
        if self.late > 0 {
            let fact = format!(
                "{} texts, marked ~, were read after their call had returned; they may have \
                 changed since",
                self.late
            );
            ledger.tell(NoteKind::Late, fact, None);
        }
    }

    fn id(&self, payload: &[u8]) -> Option<u32> {
        EventFormat::payload_id(payload, Endian::NATIVE).map(u32::from)
    }

    fn call(&mut self, number: i64) -> Rc<Call> {
        let tracefs = self.dir.tracefs();
        let load = || Rc::new(Call::load(tracefs, number));
        Rc::clone(self.calls.entry(number).or_insert_with(load))
    }

    fn enter(&self, payload: &[u8]) -> (i32, i64, [u64; 6]) {
        let number = int(&self.formats.enter, "id", payload);
        let mut args = [0; 6];
        if let Some(field) = self.formats.enter.field("args") {
            let words = field.bytes(payload, Endian::NATIVE).chunks_exact(size_of::<usize>());
            for (arg, word) in args.iter_mut().zip(words) {
                *arg = word.try_into().map(usize::from_ne_bytes).unwrap_or(0) as u64;
            }
        }
        (tid_of(payload), number, args)
    }

    fn begin(&mut self, time: u64, payload: &[u8]) {
        let (tid, number, args) = self.enter(payload);
        let look = self.looks.take(tid, time).unwrap_or_default();
        // Of what happens before the command is there only the execve(2) that succeeds
        // is shown, and that is not known yet.
        if self.gated == Some(tid) && numbers::name(number) != Some("execve") {
            return;
        }
        let call = self.call(number);
        let before = self.open.insert(tid, Begun { time, number, call, args, look });
        if let Some(before) = before.filter(|_| self.gated != Some(tid)) {
            // Its end was lost, or it is one that never returns here (rt_sigreturn).
            self.line(tid, before, End::Task);
        }
    }

    fn end(&mut self, at: u64, payload: &[u8]) {
        let tid = tid_of(payload);
        let number = int(&self.formats.exit, "id", payload);
        let value = int(&self.formats.exit, "ret", payload);
        if self.open.get(&tid).is_some_and(|b| b.number == number)
            && let Some(begun) = self.open.remove(&tid)
            && self.gated != Some(tid)
        {
            self.line(tid, begun, End::Returned { at, value });
        }
    }

    /// The program's name comes with the event; the memory it stood in is gone.
    fn exec(&mut self, payload: &[u8]) {
        let tid = tid_of(payload);
        if self.gated == Some(tid) {
            self.gated = None;
        }
        let field = self.formats.exec.field("filename");
        let name = field.map(|f| f.bytes(payload, Endian::NATIVE)).unwrap_or_default();
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        if let Some(begun) = self.open.get_mut(&tid)
            && begun.call.name == "execve"
            && let Some(side) = begun.look.sides.first_mut()
        {
            *side = Side::Memory { bytes: name.to_vec(), whole: true, late: false };
            begun.look.read_at = None;
        }
        self.looks.forget(tid);
    }

    fn line(&mut self, tid: i32, mut begun: Begun, end: End) {
        let value = match end {
            End::Returned { value, .. } => Some(value),
            End::Task | End::Trace => None,
        };
        let failed = value.is_some_and(|v| (ERRORS..0).contains(&v));
        if let (Some(summary), End::Returned { at, .. }) = (&mut self.summary, end) {
            let took = Duration::from_nanos(at.saturating_sub(begun.time));
            summary.count(begun.number, &begun.call.name, failed, took);
        }
        if self.style.lines && !self.is_full() {
            self.settle(tid, &mut begun, end);
            if let Some(value) = value {
                self.descriptors(tid, &begun, value);
            }
            match self.style.json {
                true => self.json(tid, &begun, end),
                false => self.text(tid, &begun, end),
            }
            self.shown += 1;
            self.left = self.left.map(|n| n.saturating_sub(1));
        }
    }

    /// What was found out about the arguments, as of the call's own time.
    fn settle(&mut self, tid: i32, begun: &mut Begun, end: End) {
        let late = match (end, begun.look.read_at) {
            (End::Returned { at, .. }, Some(read)) => !self.style.monotonic || read > at,
            _ => false,
        };
        let sides = begun.look.sides.iter_mut();
        for ((arg, value), side) in begun.call.args.iter().zip(&begun.args).zip(sides) {
            match (arg.kind, &mut *side) {
                (Kind::Text | Kind::Bytes(_), side) if *value != 0 => {
                    self.texts += 1;
                    match side {
                        Side::Memory { late: mark, .. } if late => {
                            *mark = true;
                            self.late += 1;
                        }
                        Side::Memory { .. } => {}
                        _ => self.gone += 1,
                    }
                }
                (Kind::Fd | Kind::DirFd, _) => {
                    if let Some(path) = self.looks.known(tid, *value as i32) {
                        *side = Side::File(path.to_owned());
                    }
                }
                _ => {}
            }
        }
    }

    /// Keeps account of what descriptors stand for.
    fn descriptors(&mut self, tid: i32, begun: &Begun, value: i64) {
        let arg = |n: usize| begun.args.get(n).map_or(-1, |a| *a as i32);
        match begun.call.name.as_str() {
            "close" => self.looks.closed(tid, arg(0)),
            "dup" | "dup2" | "dup3" if value >= 0 => {
                let path = self.looks.known(tid, arg(0)).map(str::to_owned);
                self.looks.opened(tid, value as i32, path.as_deref());
            }
            _ if begun.call.returns_fd && value >= 0 => {
                let path = begun.look.sides.iter().find_map(|s| match s {
                    Side::Memory { bytes, .. } => Some(String::from_utf8_lossy(bytes)),
                    _ => None,
                });
                self.looks.opened(tid, value as i32, path.as_deref());
            }
            _ => {}
        }
    }

    fn text(&mut self, tid: i32, begun: &Begun, end: End) {
        self.seen.insert(tid);
        let paint =
            |style: anstyle::Style| if self.style.colour { style } else { anstyle::Style::new() };
        let name = paint(anstyle::AnsiColor::Yellow.on_default().bold());
        let bad = paint(anstyle::AnsiColor::Red.on_default());
        if self.seen.len() > 1 {
            let _ = write!(self.out, "[pid {tid:>5}] ");
        }
        if self.style.times {
            let _ = write!(self.out, "{} ", seconds(Duration::from_nanos(begun.time)));
        }
        let _ = write!(self.out, "{name}{}{name:#}(", begun.call.name);
        for (i, arg) in shown(begun).enumerate() {
            self.out.extend_from_slice(if i > 0 { b", " } else { b"" });
            self.out.extend_from_slice(&arg);
        }
        self.out.extend_from_slice(b") = ");
        let _ = match end {
            End::Task => writeln!(self.out, "?"),
            End::Trace => writeln!(self.out, "? <unfinished ...>"),
            End::Returned { at, value } => {
                let result = self.result(tid, begun, value);
                let style = if (ERRORS..0).contains(&value) { bad } else { anstyle::Style::new() };
                let took = seconds(Duration::from_nanos(at.saturating_sub(begun.time)));
                writeln!(self.out, "{style}{result}{style:#} <{took}>")
            }
        };
    }

    fn result(&mut self, tid: i32, begun: &Begun, value: i64) -> String {
        match value {
            ERRORS..0 => {
                let number = -value as i32;
                let name = errno::name(number).map_or_else(|| number.to_string(), str::to_owned);
                format!("-1 {name} ({})", errno::text(number))
            }
            0 if begun.call.returns_pointer => "NULL".to_owned(),
            _ if begun.call.returns_pointer => format!("{value:#x}"),
            _ if begun.call.returns_fd => match self.looks.known(tid, value as i32) {
                Some(path) => format!("{value}<{path}>"),
                None => value.to_string(),
            },
            _ => value.to_string(),
        }
    }

    fn json(&mut self, tid: i32, begun: &Begun, end: End) {
        if !std::mem::replace(&mut self.fresh, true) {
            self.tasks.refresh();
        }
        self.out.extend_from_slice(b"{\"comm\":");
        json_string(&mut self.out, self.tasks.comm(tid));
        let (s, ns) = (begun.time / 1_000_000_000, begun.time % 1_000_000_000);
        let _ = write!(self.out, ",\"tid\":{tid},\"time\":{s}.{ns:09},\"syscall\":");
        json_string(&mut self.out, begun.call.name.as_bytes());
        self.out.extend_from_slice(b",\"args\":{");
        for (i, (text, arg)) in shown(begun).zip(&begun.call.args).enumerate() {
            self.out.extend_from_slice(if i > 0 { b"," } else { b"" });
            json_string(&mut self.out, arg.name.as_bytes());
            self.out.push(b':');
            json_string(&mut self.out, &text);
        }
        self.out.push(b'}');
        if let End::Returned { at, value } = end {
            let _ = write!(self.out, ",\"ret\":{value}");
            if (ERRORS..0).contains(&value) {
                let name = errno::name(-value as i32).unwrap_or("?");
                let _ = write!(self.out, ",\"errno\":\"{name}\"");
            }
            let took = Duration::from_nanos(at.saturating_sub(begun.time));
            let _ = write!(self.out, ",\"duration\":{}.{:09}", took.as_secs(), took.subsec_nanos());
        }
        self.out.extend_from_slice(b"}\n");
    }
}

/// The arguments' texts. The mode of open(2) counts only where a file is made.
fn shown(begun: &Begun) -> impl Iterator<Item = Vec<u8>> + '_ {
    let makes =
        |flags: u64| flags & (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u64 != 0;
    let all = begun.call.args.iter().zip(&begun.args).zip(&begun.look.sides).enumerate();
    all.filter(move |(i, ((arg, _), _))| {
        let before = i.checked_sub(1).and_then(|i| begun.args.get(i));
        !matches!(arg.kind, Kind::CreateMode) || before.is_some_and(|f| makes(*f))
    })
    .map(|(_, ((arg, value), side))| {
        let mut text = Vec::new();
        args::write(&mut text, arg.kind, *value, side);
        text
    })
}

fn int(format: &EventFormat, field: &str, payload: &[u8]) -> i64 {
    format.field(field).and_then(|f| f.int(payload, Endian::NATIVE)).unwrap_or(-1)
}

/// `common_pid` stands at the same place in every event.
fn tid_of(payload: &[u8]) -> i32 {
    let bytes = payload.get(4..8).and_then(|b| b.first_chunk().copied());
    bytes.map_or(0, i32::from_ne_bytes)
}

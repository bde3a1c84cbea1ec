//! Events of the event layer as lines, one by one: those of perf.data among other recordings,
//! and whatever comes from rings that are read while they are written. Lines and JSON objects
//! are those that `script` prints of a recording.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use kymo_events::live::LiveItem;
use kymo_events::trace_dat::TaskName;
use kymo_events::{
    ClockUnit, EventHead, EventSelection, FieldId, KernelPayload, ProgramPayload, RecordedEvent,
    TaskInfo,
};
use kymo_files::ctf::CodeMapping;
use kymo_format::ring::Missed;
use kymo_format::{EventFormat, json_string};
use kymo_model::{Note, NoteKind, UntrustedText, counted};

use crate::ctf::{CtfBody, CtfClasses, CtfEventLine, CtfFieldsError, CtfLines, CtfOptions};
use crate::perf_script::ChainOptions;
use crate::perf_script::chain_lines::ChainLines;
use crate::perf_script::sample_json::write_head;
use crate::perf_trace::{PerfTraceOptions, PerfTraceStarts};
use crate::program_event::CodeNames;
use crate::trace_cmd::{
    KernelLine, OpenFunction, TraceCmdOptions, TraceCmdStarts, Unrendered, write_lost_json,
    write_lost_text,
};

const TASK: Style = AnsiColor::Cyan.on_default();
const EVENT: Style = AnsiColor::Yellow.on_default().bold();
const LOST: Style = AnsiColor::Red.on_default().bold();

/// Writes events with their newlines.
pub struct EventLines {
    options: TraceCmdOptions,
    /// Whether the clock of events of the kernel counts something else than time.
    counts: bool,
    colour: bool,
    starts: TraceCmdStarts,
    tasks: ShownTasks,
    programs: Option<ProgramLines>,
    /// Call chains of each perf.data, if they are shown.
    chains: Option<(ChainOptions, Vec<ChainLines>)>,
    /// A function that began with the last event.
    open: Option<OpenFunction>,
    /// Events of the kernel are written as perf trace writes them.
    perf_trace: Option<PerfTraceStarts>,
    unrendered: Unrendered,
}

/// Events of programs, each with what it says of its classes and code.
struct ProgramLines {
    lines: CtfLines,
    programs: Vec<Option<ShownProgram>>,
    everything: EventSelection,
    /// Events that end before their last field.
    cut: u64,
}

struct ShownProgram {
    classes: CtfClasses,
    code: CodeNames,
}

impl EventLines {
    /// Lines of events of perf.data and of the kernel.
    pub fn new(options: TraceCmdOptions) -> EventLines {
        EventLines {
            options,
            counts: false,
            colour: false,
            starts: TraceCmdStarts::default(),
            tasks: ShownTasks::default(),
            programs: None,
            chains: None,
            open: None,
            perf_trace: None,
            unrendered: Unrendered::default(),
        }
    }

    /// Events of the kernel as perf trace writes them.
    #[must_use]
    pub fn as_perf_trace(self, options: PerfTraceOptions) -> EventLines {
        EventLines { perf_trace: Some(PerfTraceStarts::new(options)), ..self }
    }

    /// Lines of events of programs, too; `beside`: with events of the kernel.
    ///
    /// # Errors
    /// If fields are asked for that events of programs do not have.
    pub fn with_programs(
        mut self,
        options: &CtfOptions,
        beside: bool,
    ) -> Result<EventLines, CtfFieldsError> {
        let lines = CtfLines::new(options, beside)?;
        let (programs, everything) = Default::default();
        self.programs = Some(ProgramLines { lines, programs, everything, cut: 0 });
        Ok(self)
    }

    /// Lines of samples with their call chains. Inlined functions come into a text of samples
    /// of one recording with [`add_sources`](Self::add_sources).
    #[must_use]
    pub(crate) fn with_chains(mut self, options: Option<ChainOptions>) -> EventLines {
        self.chains = options.map(|options| (options, Vec::new()));
        self
    }

    /// Puts inlined functions into lines of a perf.data that were written into `text` from its
    /// begin on; `ends` are places in it that move.
    pub(crate) fn add_sources(&mut self, recording: usize, text: &mut Vec<u8>, ends: &mut [usize]) {
        let chains = self.chains.as_mut().and_then(|(_, all)| all.get_mut(recording));
        chains.into_iter().for_each(|lines| lines.fill(text, ends));
    }

    /// Call chains of an event's recording.
    fn chains_of(&mut self, event: &RecordedEvent<'_>) -> Option<&mut ChainLines> {
        let (options, all) = self.chains.as_mut()?;
        let recording = event.class.recording;
        if all.len() <= recording {
            all.resize_with(recording + 1, || ChainLines::new(*options));
        }
        all.get_mut(recording)
    }

    /// Lines on a terminal: task and event have colors.
    #[must_use]
    pub fn with_colour(mut self, colour: bool) -> EventLines {
        self.colour = colour && !self.options.json;
        self
    }

    /// Sets the clock of events of the kernel, by which their times are printed.
    #[must_use]
    pub fn with_clock(mut self, clock: &str) -> EventLines {
        self.counts = !ClockUnit::of_trace_clock(clock).is_time();
        self
    }

    /// A program that runs has these mappings now; `names` finds binaries as it sees them.
    pub fn set_mappings(
        &mut self,
        program: u32,
        mappings: Vec<CodeMapping>,
        names: impl FnOnce() -> CodeNames,
    ) {
        let Some(lines) = &mut self.programs else { return };
        let index = program as usize;
        if lines.programs.len() <= index {
            lines.programs.resize_with(index + 1, || None);
        }
        if let Some(slot) = lines.programs.get_mut(index) {
            let new = || ShownProgram { classes: CtfClasses::default(), code: names() };
            slot.get_or_insert_with(new).code.set_mappings(mappings);
        }
    }

    /// Appends what comes out of a live stream.
    pub fn write_item(&mut self, item: LiveItem<'_, '_>, out: &mut Vec<u8>) {
        match item {
            LiveItem::Event(event) => self.write(event, out),
            LiveItem::Lost { cpu, count } => self.write_lost(cpu, count, out),
        }
    }

    fn write_lost(&mut self, cpu: u32, count: Option<u64>, out: &mut Vec<u8>) {
        self.finish(out);
        let missed = count.map_or(Missed::Unknown, Missed::Count);
        if self.options.json {
            return write_lost_json(cpu, missed, "", out);
        }
        let style = if self.colour { LOST } else { Style::new() };
        let _ = write!(out, "{style}");
        write_lost_text(cpu, missed, out);
        if self.colour {
            // Its newline stays the last byte.
            out.pop();
            let _ = writeln!(out, "{style:#}");
        }
    }

    /// Appends what waits for an event that does not come.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(function) = self.open.take() {
            self.write_function(&function, None, out);
        }
    }

    /// Finishes an open function that has waited long.
    pub fn finish_overdue(&mut self, out: &mut Vec<u8>) {
        if self.open.as_ref().is_some_and(OpenFunction::is_overdue) {
            self.finish(out);
        }
    }

    fn write_function(&self, function: &OpenFunction, leaf: Option<u64>, out: &mut Vec<u8>) {
        let start = out.len();
        function.write(leaf, out);
        if self.colour {
            paint(out, start);
        }
    }

    /// Appends the function that began with the event before. `true`: this event is its exit,
    /// and is shown with it.
    fn close_function(&mut self, event: &RecordedEvent<'_>, out: &mut Vec<u8>) -> bool {
        let Some(function) = self.open.take() else { return false };
        let leaf = event.kernel_payload().and_then(|payload| {
            let graph = payload.known.ok()?.graph.as_ref()?;
            let tid = event.task().tid?.cast_signed();
            function.duration(graph, (tid, payload.bytes), payload.endian)
        });
        self.write_function(&function, leaf, out);
        leaf.is_some()
    }

    /// Appends an event. A line of text that begins a function comes with the event after it:
    /// if that is its exit, both are one line.
    pub fn write(&mut self, event: &RecordedEvent<'_>, out: &mut Vec<u8>) {
        if self.open.is_some() && self.close_function(event, out) {
            return;
        }
        let start = out.len();
        if let Some(payload) = event.kernel_payload() {
            self.kernel(event, &payload, out);
        } else if let Some(payload) = event.program_payload() {
            self.program(event, &payload, out);
        } else {
            if self.options.json { self.perf_json(event, out) } else { self.perf_text(event, out) }
        }
        if self.open.is_some() {
            return;
        }
        if out.last() != Some(&b'\n') {
            out.push(b'\n');
        }
        if self.colour {
            paint(out, start);
        }
    }

    fn kernel(
        &mut self,
        event: &RecordedEvent<'_>,
        payload: &KernelPayload<'_>,
        out: &mut Vec<u8>,
    ) {
        let Some(id) = EventFormat::payload_id(payload.bytes, payload.endian) else {
            self.unrendered.short += 1;
            return;
        };
        let task = event.task();
        let tid = task.tid.unwrap_or(u32::MAX).cast_signed();
        let line = KernelLine {
            time: event.time.unwrap_or(0),
            counts: self.counts,
            cpu: event.cpu().unwrap_or(u32::MAX),
            tid,
            pid: task.pid,
            flags: payload.flags,
            id,
            known: payload.known,
            payload: payload.bytes,
            endian: payload.endian,
            names: payload.names,
            leaf: None,
        };
        if self.options.json {
            line.write_json(task.comm(), event.instance(), out);
        } else if let (Some(starts), Ok(known)) = (&mut self.perf_trace, payload.known) {
            starts.time(line.time, out);
            starts.task(task.comm(), tid, out);
            let event = (&*known.full_name, &known.format);
            starts.event(event, payload.bytes, payload.endian, out);
        } else {
            if !self.tasks.same(task) {
                self.starts.forget(tid);
            }
            let comm = || TaskName::new(task.comm());
            if payload.known.is_ok_and(|k| k.graph.is_some()) {
                self.open = line.open_function(self.options, &mut self.starts, comm);
            }
            if self.open.is_none() {
                line.write_text(self.options, &mut self.starts, comm, out);
            }
        }
        if let Err(why) = payload.known {
            self.unrendered.add(id, why);
        }
    }

    fn program(
        &mut self,
        event: &RecordedEvent<'_>,
        payload: &ProgramPayload<'_>,
        out: &mut Vec<u8>,
    ) {
        let Some(ProgramLines { lines, programs, everything, cut }) = &mut self.programs else {
            debug_assert!(false, "unexpected event of a program");
            return;
        };
        let Some(Some(program)) = programs.get_mut(payload.program as usize) else {
            debug_assert!(false, "event of an unannounced program");
            return;
        };
        let comms = payload.kernel_names.map(|names| names.borrow());
        let view = CtfEventLine {
            class: payload.event.class,
            name: &event.class.full_name,
            when: (payload.event.time, payload.event.cpu),
            trace: 0,
            task: payload.owner,
            comms: comms.as_deref(),
            filter: everything,
        };
        payload.read(&mut |reader| {
            let ctf = reader.ctf();
            // The program says more of its events than before.
            if program.classes.len() != ctf.class_count() {
                program.classes = CtfClasses::new(ctf, lines.is_beside());
            }
            let mut body = CtfBody::Whole(reader, payload.event.body);
            let end = lines.write(&view, &program.classes, &mut program.code, &mut body, out);
            *cut += u64::from(end.is_err());
        });
    }

    fn perf_text(&mut self, event: &RecordedEvent<'_>, out: &mut Vec<u8>) {
        let task = event.task();
        let tid = task.tid.unwrap_or(u32::MAX).cast_signed();
        if !self.tasks.same(task) {
            self.starts.forget(tid);
        }
        let name = || TaskName::new(task.comm());
        self.starts.write(tid, event.cpu().unwrap_or(u32::MAX), name, out);
        self.starts.write_time(event.time.unwrap_or(0), self.options.ns, out);
        let title = format!("{}:", UntrustedText::new(&event.class.name).to_text());
        let _ = write!(out, "{title:<21} ");
        event.write_perf_text(out);
        self.chains_of(event).into_iter().for_each(|chains| chains.write_text(event, out));
    }

    fn perf_json(&mut self, event: &RecordedEvent<'_>, out: &mut Vec<u8>) {
        write_perf_members(event, out);
        self.chains_of(event).into_iter().for_each(|chains| chains.write_json(event, out));
        out.extend_from_slice(b"}\n");
    }

    /// Notes on events that could not be rendered.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes = Unrendered::notes(std::iter::once(&self.unrendered));
        let cut = self.programs.as_ref().map_or(0, |p| p.cut);
        if cut > 0 {
            let fact = counted(cut, "event of programs ends early", "events of programs end early");
            notes.push(Note::doubt(NoteKind::Malformed, fact, None));
        }
        notes
    }
}

/// Appends the members of an event of a perf.data but for its call chain.
fn write_perf_members(event: &RecordedEvent<'_>, out: &mut Vec<u8>) {
    let task = event.task();
    let head = EventHead {
        comm: task.comm(),
        pid: task.pid.unwrap_or(u32::MAX),
        tid: task.tid.unwrap_or(u32::MAX),
        cpu: event.cpu(),
        time: event.time,
    };
    write_head(&head, &event.class.full_name, out);
    out.extend_from_slice(b",\"fields\":{");
    let mut first = true;
    for (n, field) in event.class.fields.iter().enumerate() {
        if field.common {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        json_string(out, field.name.as_bytes());
        out.push(b':');
        event.field(FieldId(n as u32)).write_json(out);
    }
    out.push(b'}');
    event.write_perf_message(out);
}

/// Tasks as they were shown last, to see when one has another name.
struct ShownTasks {
    slots: Vec<TaskInfo>,
}

impl Default for ShownTasks {
    fn default() -> Self {
        ShownTasks { slots: vec![TaskInfo::default(); 256] }
    }
}

impl ShownTasks {
    /// Whether the task was the last one that was shown in its place. It is remembered.
    #[inline]
    fn same(&mut self, task: &TaskInfo) -> bool {
        let at = task.tid.unwrap_or(0) as usize % 256;
        let Some(slot) = self.slots.get_mut(at) else { return false };
        let same = slot == task;
        if !same {
            *slot = *task;
        }
        same
    }
}

/// Colors the task that a line from `start` on begins with, and the name of its event.
fn paint(out: &mut Vec<u8>, start: usize) {
    let line = out.split_off(start);
    let find = |from: usize, what: &[u8]| {
        let behind = line.get(from..).unwrap_or(&[]);
        behind.windows(what.len()).position(|w| w == what).map_or(line.len(), |n| from + n)
    };
    let task = find(0, b" [");
    let event = (find(task, b": ") + 2).min(line.len());
    // Its newline stays the last byte.
    let payload = find(event, b": ").min(line.len().saturating_sub(1)).max(event);
    for (style, from, to) in [
        (TASK, 0, task),
        (Style::new(), task, event),
        (EVENT, event, payload),
        (Style::new(), payload, line.len()),
    ] {
        let _ = write!(out, "{style}");
        out.extend_from_slice(line.get(from..to).unwrap_or(&[]));
        let _ = write!(out, "{style:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_change_no_letter() {
        let strip = |text: &str| {
            let pieces = text.split('\u{1b}');
            let behind =
                |piece: &str| piece.split_once('m').map_or("", |(_, rest)| rest).to_owned();
            pieces.enumerate().map(|(n, p)| if n == 0 { p.to_owned() } else { behind(p) }).collect()
        };
        for (line, name) in [
            ("   ls-1     [000]     1.234567: sched_switch:         a=1\n", "sched_switch"),
            ("ls     1 [000]     1.234567: shop:sale: a: 1\n", "shop:sale"),
            ("CPU:0\n", ""),
        ] {
            let mut out = line.as_bytes().to_vec();
            paint(&mut out, 0);
            let text = String::from_utf8(out).unwrap();
            let shown: String = strip(&text);
            assert_eq!(shown, line);
            assert!(text.contains(&format!("\u{1b}[33m{name}\u{1b}[0m")), "{text:?}");
        }
    }
}

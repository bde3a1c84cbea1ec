//! One event of a program as a line, laid out as perf script's or, beside events of the
//! kernel, as trace-cmd's, or as a JSON object; from a file or from a ring that is read
//! while it is written.

use std::sync::Arc;

use kymo_events::ctf::EventTask;
use kymo_events::trace_dat::{TaskName, TaskNames};
use kymo_events::{EventHead, EventSelection};
use kymo_files::ctf::read::{
    Body, Ctf, DecodeError, FieldInfo, Group, Packed, Part, Reader, TaskField, Visit,
};
use kymo_model::{Misc, RecordKind};

use crate::perf_script::line_start::LineStarts;
use crate::perf_script::sample_json::write_thread_head;
use crate::perf_script::{FieldSet, FieldSpec, LineStyle};
use crate::program_event::{
    CodeNames, EventObject, EventPayload, PayloadBuffers, PayloadLine, PrintFormat, write_message,
};
use crate::trace_cmd::TraceCmdStarts;

/// Fields that can be printed of an event.
const ALL: FieldSet = FieldSet(FieldSet::COMMON.0 | FieldSet::PID.0 | FieldSet::TRACE.0);
/// Fields that are printed by default.
const ALL_USUAL: FieldSet = FieldSet(FieldSet::COMMON.0 | FieldSet::TRACE.0);

/// Form of the lines of CTF traces.
#[derive(Clone, Debug)]
pub struct CtfOptions {
    /// Fields to print.
    pub fields: FieldSpec,
    /// Layout of the starts of lines.
    pub style: LineStyle,
    /// Lines are JSON objects.
    pub json: bool,
}

/// Fields were asked for that events of CTF traces do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("-F: of a CTF trace there are comm pid tid time cpu event trace")]
pub struct CtfFieldsError;

/// Facts about the classes of a trace, prepared before their events.
#[derive(Clone, Default)]
pub(crate) struct CtfClasses {
    /// Text before the values of an event, by class.
    pub(super) titles: Arc<[Vec<u8>]>,
    /// Print formats, by class.
    formats: Arc<[Option<PrintFormat>]>,
}

impl CtfClasses {
    /// `beside`: with events of the kernel.
    pub(crate) fn new(ctf: &Ctf, beside: bool) -> CtfClasses {
        let classes = 0..ctf.class_count() as u32;
        let format = |n| ctf.class(n).and_then(|c| PrintFormat::of(&c));
        CtfClasses {
            titles: classes.clone().map(|n| title(ctf, n, beside)).collect(),
            formats: classes.map(format).collect(),
        }
    }

    /// Number of classes.
    pub(crate) fn len(&self) -> usize {
        self.titles.len()
    }
}

/// An event that is to be written.
pub(crate) struct CtfEventLine<'e> {
    pub(crate) class: u32,
    pub(crate) name: &'e str,
    /// When and on which CPU it happened.
    pub(crate) when: (u64, Option<u32>),
    /// Place of its trace among those whose addresses have names.
    pub(crate) trace: usize,
    /// Facts about its task known in advance.
    pub(crate) task: EventTask,
    /// Kernel's names of threads.
    pub(crate) comms: Option<&'e TaskNames>,
    pub(crate) filter: &'e EventSelection,
}

/// The values of an event, and what shows them.
pub(crate) enum CtfBody<'b, 'c> {
    /// Copied to other bytes.
    Packed(&'b mut Reader<'c>, Packed, &'b [u8]),
    /// Body at its original position.
    Whole(&'b mut Reader<'c>, Body<'b>),
}

impl CtfBody<'_, '_> {
    #[inline]
    fn see(&mut self, class: u32, visitor: &mut impl Visit) -> Result<(), DecodeError> {
        match self {
            CtfBody::Packed(reader, body, bytes) => reader.see_packed(class, *body, bytes, visitor),
            CtfBody::Whole(reader, body) => reader.see(class, body, visitor),
        }
    }
}

/// Writes events, whatever trace they are of.
pub(crate) struct CtfLines {
    fields: FieldSet,
    style: LineStyle,
    json: bool,
    /// Beside events of the kernel: the starts of lines as those have them.
    beside: Option<TraceCmdStarts>,
    starts: LineStarts,
    names: LastTasks,
    buffers: PayloadBuffers,
}

impl CtfLines {
    /// `beside`: with events of the kernel. Fails if fields are asked for that there are not.
    pub(crate) fn new(options: &CtfOptions, beside: bool) -> Result<CtfLines, CtfFieldsError> {
        let (fields, asked) = options.fields.of_tracepoints();
        if !ALL.has(asked) {
            return Err(CtfFieldsError);
        }
        Ok(CtfLines {
            fields,
            style: options.style,
            json: options.json,
            beside: beside.then(TraceCmdStarts::default),
            starts: LineStarts::default(),
            names: LastTasks::default(),
            buffers: PayloadBuffers::default(),
        })
    }

    /// Renderer for another thread, without its own state.
    pub(crate) fn fork_for_thread(&self) -> CtfLines {
        CtfLines {
            beside: self.beside.as_ref().map(|_| TraceCmdStarts::default()),
            starts: LineStarts::default(),
            names: LastTasks::default(),
            buffers: PayloadBuffers::default(),
            ..*self
        }
    }

    /// Whether lines are those that are written if nothing else is asked for.
    pub(crate) fn is_usual(&self) -> bool {
        let usual = self.fields == ALL_USUAL && self.style == LineStyle::default();
        usual && !self.json && self.beside.is_none()
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether events of the kernel come beside.
    pub(crate) fn is_beside(&self) -> bool {
        self.beside.is_some()
    }

    /// Appends an event; what is whole of it, if it ends early.
    pub(crate) fn write(
        &mut self,
        event: &CtfEventLine<'_>,
        classes: &CtfClasses,
        code: &mut CodeNames,
        body: &mut CtfBody<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        if self.json {
            self.json(event, classes, code, body, out)
        } else {
            self.text(event, classes, code, body, out)
        }
    }

    fn text(
        &mut self,
        event: &CtfEventLine<'_>,
        classes: &CtfClasses,
        code: &mut CodeNames,
        body: &mut CtfBody<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let index = event.class as usize;
        let format = classes.formats.get(index).and_then(Option::as_ref);
        let mut line = CtfLine {
            when: event.when,
            title: classes.titles.get(index).map_or(&[], |t| t),
            task: event.task,
            comms: event.comms,
            out,
            fields: self.fields,
            style: self.style,
            filter: event.filter,
            starts: &mut self.starts,
            beside: self.beside.as_mut(),
            names: &mut self.names,
            payload: EventPayload::new(&mut self.buffers, format, code, event.trace),
            state: LineState::Context,
            contexts: Vec::new(),
        };
        let end = body.see(event.class, &mut line);
        line.end();
        end
    }

    fn json(
        &mut self,
        event: &CtfEventLine<'_>,
        classes: &CtfClasses,
        code: &mut CodeNames,
        body: &mut CtfBody<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let mut object = EventObject::new(event.task, code, event.trace);
        let end = body.see(event.class, &mut object);
        let mut task = object.task;
        event.comms.into_iter().for_each(|c| task.rename(|tid| c.find(tid)));
        let head = head(event.when, &task);
        if event.filter.is_restricted() && !event.filter.wants_head(&head) {
            return end;
        }
        // A trace that identifies threads alone does not identify processes.
        let pid = task.pid.or((task.tid.is_none()).then_some(u32::MAX));
        write_thread_head(&head, pid, event.name, out);
        object.write(out);
        let format = classes.formats.get(event.class as usize).and_then(Option::as_ref);
        if format.is_some() {
            let mut message = Vec::new();
            let payload = EventPayload::new(&mut self.buffers, format, code, event.trace);
            let mut sentence = PayloadLine::new(payload, &mut message);
            // Whatever is missing stands as the format names it.
            let _ = body.see(event.class, &mut sentence);
            sentence.end();
            write_message(&message, out);
        }
        out.extend_from_slice(b"}\n");
        end
    }
}

/// The name of a kind of event as it stands in a line. It is up to the traced program,
/// and keeps to its line.
fn title(ctf: &Ctf, class: u32, beside: bool) -> Vec<u8> {
    let name = ctf.class(class).map_or("", |c| &c.event.name);
    let shown = |c: char| if c.is_control() { '?' } else { c };
    let title = format!("{}:", name.chars().map(shown).collect::<String>());
    if beside { format!("{title:<21} ").into_bytes() } else { format!("{title} ").into_bytes() }
}

/// When and where an event happened, and whose it is.
pub(super) fn head((time, cpu): (u64, Option<u32>), task: &EventTask) -> EventHead<'_> {
    // -1, the kernel's "none".
    let pid = task.pid.or(task.tid).unwrap_or(u32::MAX);
    let tid = task.tid.unwrap_or(pid);
    let (comm, time) = (task.comm(), Some(time));
    EventHead { comm, pid, tid, cpu, time }
}

/// Those of the fields that are known of an event.
pub(super) fn known(mut fields: FieldSet, head: &EventHead<'_>, task: &EventTask) -> FieldSet {
    if !task.named {
        fields = fields.without(FieldSet::COMM);
    }
    if head.tid == u32::MAX {
        fields = fields.without(FieldSet::TID.with(FieldSet::PID));
    }
    if head.cpu.is_none() {
        fields = fields.without(FieldSet::CPU);
    }
    fields
}

/// Tasks as they were last, to see when one has another name.
struct LastTasks {
    slots: Vec<Option<EventTask>>,
}

impl Default for LastTasks {
    fn default() -> Self {
        LastTasks { slots: vec![None; 256] }
    }
}

impl LastTasks {
    /// Whether no other task can have had the task's number under another name. The result is
    /// cached.
    #[inline]
    fn same(&mut self, task: &EventTask) -> bool {
        let at = task.tid.or(task.pid).unwrap_or(0) as usize % 256;
        let Some(slot) = self.slots.get_mut(at) else { return false };
        let same = slot.as_ref().is_none_or(|s| s == task);
        if !same || slot.is_none() {
            *slot = Some(*task);
        }
        same
    }
}

/// Progress of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineState {
    /// In the stream's contexts; nothing is written.
    Context,
    /// The start is written.
    Values,
    /// It is not wanted.
    Unwanted,
}

/// A line being written.
struct CtfLine<'p> {
    /// When and on which CPU it happened.
    when: (u64, Option<u32>),
    title: &'p [u8],
    task: EventTask,
    /// Kernel's names of threads.
    comms: Option<&'p TaskNames>,
    out: &'p mut Vec<u8>,
    fields: FieldSet,
    style: LineStyle,
    filter: &'p EventSelection,
    starts: &'p mut LineStarts,
    beside: Option<&'p mut TraceCmdStarts>,
    names: &'p mut LastTasks,
    payload: EventPayload<'p>,
    state: LineState,
    /// Contexts that say something else than whose the event is.
    contexts: Vec<u8>,
}

impl<'p> CtfLine<'p> {
    /// Writes the start of the line.
    fn start(&mut self) {
        if self.state != LineState::Context {
            return;
        }
        self.comms.into_iter().for_each(|c| self.task.rename(|tid| c.find(tid)));
        let head = head(self.when, &self.task);
        if self.filter.is_restricted() && !self.filter.wants_head(&head) {
            self.state = LineState::Unwanted;
            return;
        }
        self.state = LineState::Values;
        if let Some(starts) = &mut self.beside {
            let tid = head.tid.cast_signed();
            if !self.names.same(&self.task) {
                starts.forget(tid);
            }
            let comm = || TaskName::new(if self.task.named { self.task.comm() } else { b"<...>" });
            starts.write(tid, head.cpu.unwrap_or(u32::MAX), comm, self.out);
            starts.write_time(self.when.0, self.style.ns, self.out);
            self.title();
            return;
        }
        let fields = known(self.fields, &head, &self.task);
        if !self.names.same(&self.task) {
            self.starts.forget();
        }
        let misc = (RecordKind::SAMPLE, Misc(0));
        self.starts.write(fields, self.style, (&head, misc), || self.task.comm(), self.out);
        self.title();
    }

    /// Writes what the event is, and its contexts.
    fn title(&mut self) {
        if self.fields.has(FieldSet::EVENT) {
            self.out.extend_from_slice(self.title);
        }
        if self.fields.has(FieldSet::TRACE) && !self.contexts.is_empty() {
            self.out.push(b'[');
            self.out.extend_from_slice(&self.contexts);
            self.out.extend_from_slice(b"] ");
        }
        self.payload.begin_list();
    }

    fn end(&mut self) {
        self.start();
        if self.state == LineState::Values {
            let sentence = self.fields.has(FieldSet::TRACE) && self.payload.end(self.out);
            while !sentence && self.out.last() == Some(&b' ') {
                self.out.pop();
            }
            self.out.push(b'\n');
        }
    }

    /// Current destination of values.
    #[inline]
    fn place(&mut self) -> Option<(&mut EventPayload<'p>, &mut Vec<u8>)> {
        let out = match self.state {
            LineState::Context => &mut self.contexts,
            LineState::Values if self.fields.has(FieldSet::TRACE) => &mut *self.out,
            _ => return None,
        };
        Some((&mut self.payload, out))
    }
}

impl Visit for CtfLine<'_> {
    fn part(&mut self, part: Part) {
        if part != Part::StreamContext {
            self.start();
        }
        self.payload.part(part);
    }

    #[inline]
    fn int(&mut self, field: &FieldInfo, value: u64) {
        if field.task.is_some()
            && self.state == LineState::Context
            && self.task.number(field, value)
        {
            return;
        }
        if let Some((payload, out)) = self.place() {
            payload.int(field, value, out);
        }
    }

    fn float(&mut self, field: &FieldInfo, value: f64, single: bool) {
        if let Some((payload, out)) = self.place() {
            payload.float(field, value, single, out);
        }
    }

    fn text(&mut self, field: &FieldInfo, text: &[u8]) {
        if field.task == Some(TaskField::Name) && self.state == LineState::Context {
            self.task.name(text);
            return;
        }
        if let Some((payload, out)) = self.place() {
            payload.text(field, text, out);
        }
    }

    fn open(&mut self, field: &FieldInfo, group: Group, _count: u64) {
        if let Some((payload, out)) = self.place() {
            payload.open(field, group, out);
        }
    }

    fn close(&mut self, group: Group) {
        if let Some((payload, out)) = self.place() {
            payload.close(group, out);
        }
    }
}

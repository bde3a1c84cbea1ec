//! An event as a line, laid out as perf script's or, beside events of the kernel, as
//! trace-cmd's, or as a JSON object.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use kymo_events::ctf::{EventTask, TraceOwners};
use kymo_events::trace_dat::{TaskName, TaskNames};
use kymo_events::{EventHead, EventSelection};
use kymo_files::ctf::read::{Ctf, FieldInfo, Group, Part, Reader, Stop, TaskField, Visit};
use kymo_format::LineWriter;
use kymo_model::{Misc, Note, NoteKind, RecordKind};
use rustc_hash::FxHashMap;

use super::batch::{CtfBatch, CtfItem, EventOrigin};
use super::plan::{CtfPlan, PlanWriter, TaskViews};
use crate::perf_script::line_start::LineStarts;
use crate::perf_script::sample_json::write_head;
use crate::perf_script::{FieldSet, FieldSpec, LineStyle};
use crate::program_event::{
    CodeNames, EventObject, EventPayload, PayloadBuffers, PayloadLine, PrintFormat, write_message,
};
use crate::trace_cmd::{self, TraceCmdStarts};

/// What can be printed of an event.
const ALL: FieldSet = FieldSet(FieldSet::COMMON.0 | FieldSet::PID.0 | FieldSet::TRACE.0);
/// What is printed if nothing else is asked for.
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

/// Renders events.
pub(crate) struct CtfRenderer<'c> {
    ctf: &'c Ctf,
    reader: Reader<'c>,
    owner: TraceOwners,
    filter: EventSelection,
    /// What stands before the values of each kind of event.
    titles: Arc<[Vec<u8>]>,
    /// How events are written that need no second look, by kind.
    plans: Arc<[Option<CtfPlan>]>,
    writer: PlanWriter,
    /// Whether the names in the filter are those of an event, by its kind.
    wanted: FxHashMap<u32, bool>,
    fields: FieldSet,
    style: LineStyle,
    json: bool,
    /// Beside events of the kernel: the starts of lines as those have them.
    beside: Option<TraceCmdStarts>,
    starts: LineStarts,
    names: LastTasks,
    /// Print formats of events, by kind.
    formats: Arc<[Option<PrintFormat>]>,
    code: CodeNames,
    buffers: PayloadBuffers,
    pub(crate) shown: bool,
    /// Events that end before their last field, by kind.
    cut: BTreeMap<u32, (Stop, u64)>,
}

impl<'c> CtfRenderer<'c> {
    /// `beside`: with events of the kernel.
    pub(crate) fn new(
        options: &CtfOptions,
        ctf: &'c Ctf,
        filter: EventSelection,
        beside: bool,
    ) -> Result<CtfRenderer<'c>, CtfFieldsError> {
        let (fields, asked) = options.fields.of_tracepoints();
        let (style, json) = (options.style, options.json);
        if !ALL.has(asked) {
            return Err(CtfFieldsError);
        }
        let titles: Arc<[Vec<u8>]> =
            (0..ctf.class_count() as u32).map(|n| title(ctf, n, beside)).collect();
        let usual = fields == ALL_USUAL && style == LineStyle::default();
        let plans = match usual && !filter.is_restricted() && !json && !beside {
            true => plans(ctf, &titles),
            false => Arc::default(),
        };
        Ok(CtfRenderer {
            ctf,
            reader: ctf.reader(),
            owner: TraceOwners::new(ctf),
            filter,
            titles,
            plans,
            writer: PlanWriter::default(),
            wanted: FxHashMap::default(),
            fields,
            style,
            json,
            beside: beside.then(TraceCmdStarts::default),
            starts: LineStarts::default(),
            names: LastTasks::default(),
            formats: (0..ctf.class_count() as u32)
                .map(|n| ctf.class(n).and_then(|c| PrintFormat::of(&c)))
                .collect(),
            code: CodeNames::recorded(ctf),
            buffers: PayloadBuffers::default(),
            shown: false,
            cut: BTreeMap::new(),
        })
    }

    /// Renderer for another thread, which has seen nothing.
    pub(crate) fn fork_for_thread(&self) -> CtfRenderer<'c> {
        CtfRenderer {
            reader: self.ctf.reader(),
            owner: self.owner.clone(),
            filter: self.filter.clone(),
            titles: Arc::clone(&self.titles),
            plans: Arc::clone(&self.plans),
            writer: PlanWriter::default(),
            wanted: FxHashMap::default(),
            beside: self.beside.as_ref().map(|_| TraceCmdStarts::default()),
            starts: LineStarts::default(),
            names: LastTasks::default(),
            formats: Arc::clone(&self.formats),
            code: self.code.fork_for_thread(),
            buffers: PayloadBuffers::default(),
            cut: BTreeMap::new(),
            ..*self
        }
    }

    fn print(
        &mut self,
        item: &CtfItem,
        source: EventOrigin,
        bytes: &[u8],
        comms: Option<&TaskNames>,
        out: &mut Vec<u8>,
    ) {
        if source.missed > 0 && self.filter.wants_time(Some(item.time)) {
            self.lost(source, out);
        }
        let Some(class) = self.ctf.class(item.class) else { return };
        let name = class.event.name.as_str();
        if self.filter.is_restricted() && !self.wants_event(item.class, name) {
            return;
        }
        let task = self.owner.get(class.trace as u32);
        let before = out.len();
        let end = match self.json {
            true => self.json((item, source.cpu), (class.trace, name), (task, comms), bytes, out),
            false => self.text((item, source.cpu), class.trace, (task, comms), bytes, out),
        };
        if let Err(stop) = end {
            self.cut.entry(item.class).or_insert((stop, 0)).1 += 1;
        }
        self.shown |= out.len() > before;
    }

    fn wants_event(&mut self, class: u32, name: &str) -> bool {
        let filter = &self.filter;
        let bare = name.split_once(':').map_or(name, |(_, bare)| bare);
        *self.wanted.entry(class).or_insert_with(|| filter.wants_event(&[name, bare]))
    }

    fn text(
        &mut self,
        (item, cpu): (&CtfItem, Option<u32>),
        trace: usize,
        (task, comms): (EventTask, Option<&TaskNames>),
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let format = self.formats.get(item.class as usize).and_then(Option::as_ref);
        let mut line = CtfLine {
            when: (item.time, cpu),
            title: self.titles.get(item.class as usize).map_or(&[], |t| t),
            task,
            comms,
            out,
            fields: self.fields,
            style: self.style,
            filter: &self.filter,
            starts: &mut self.starts,
            beside: self.beside.as_mut(),
            names: &mut self.names,
            payload: EventPayload::new(&mut self.buffers, format, &mut self.code, trace),
            state: LineState::Context,
            contexts: Vec::new(),
        };
        let end = self.reader.see_packed(item.class, item.body, bytes, &mut line);
        line.end();
        end
    }

    fn json(
        &mut self,
        (item, cpu): (&CtfItem, Option<u32>),
        (trace, name): (usize, &str),
        (task, comms): (EventTask, Option<&TaskNames>),
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let mut object = EventObject::new(task, &mut self.code, trace);
        let end = self.reader.see_packed(item.class, item.body, bytes, &mut object);
        let mut task = object.task;
        comms.into_iter().for_each(|c| task.rename(|tid| c.find(tid)));
        let head = head((item.time, cpu), &task);
        if self.filter.is_restricted() && !self.filter.wants_head(&head) {
            return end;
        }
        write_head(&head, name, out);
        object.write(out);
        let format = self.formats.get(item.class as usize).and_then(Option::as_ref);
        if format.is_some() {
            let mut message = Vec::new();
            let payload = EventPayload::new(&mut self.buffers, format, &mut self.code, trace);
            let mut sentence = PayloadLine::new(payload, EventTask::default(), &mut message);
            // Whatever is missing stands as the format names it.
            let _ = self.reader.see_packed(item.class, item.body, bytes, &mut sentence);
            sentence.end();
            write_message(&message, out);
        }
        out.extend_from_slice(b"}\n");
        end
    }

    /// A mark where events are missing.
    fn lost(&self, source: EventOrigin, out: &mut Vec<u8>) {
        let n = source.missed;
        let _ = match (self.json, source.cpu) {
            (true, Some(cpu)) => writeln!(out, "{{\"cpu\":{cpu},\"lost\":{n}}}"),
            (true, None) => writeln!(out, "{{\"lost\":{n}}}"),
            (false, Some(cpu)) => writeln!(out, "CPU:{cpu} [{n} EVENTS DROPPED]"),
            (false, None) => writeln!(out, "[{n} EVENTS DROPPED]"),
        };
    }
}

/// The name of a kind of event as it stands in a line. It is up to the traced program,
/// and keeps to its line.
fn title(ctf: &Ctf, class: u32, beside: bool) -> Vec<u8> {
    let name = ctf.class(class).map_or("", |c| &c.event.name);
    let shown = |c: char| if c.is_control() { '?' } else { c };
    let title = format!("{}:", name.chars().map(shown).collect::<String>());
    match beside {
        true => format!("{title:<21} ").into_bytes(),
        false => format!("{title} ").into_bytes(),
    }
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

/// How each kind of event is written, where that is simple.
fn plans(ctf: &Ctf, titles: &[Vec<u8>]) -> Arc<[Option<CtfPlan>]> {
    let mut kinds = TaskViews::default();
    let plan =
        |(n, title): (usize, &Vec<u8>)| CtfPlan::new(&ctf.class(n as u32)?, title, &mut kinds);
    titles.iter().enumerate().map(plan).collect()
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
    /// Whether nobody with the task's number can have had another name. It is
    /// remembered.
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

/// How far a line is.
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
    /// What the kernel calls threads.
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
            trace_cmd::write_time(self.when.0, false, self.style.ns, self.out);
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

    /// Where values go now.
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

impl CtfRenderer<'_> {
    /// Renders events of a batch. `comms`: what the kernel calls threads.
    pub(crate) fn render(
        &mut self,
        batch: &CtfBatch,
        events: Range<usize>,
        comms: Option<&TaskNames>,
        out: &mut Vec<u8>,
    ) {
        let plans = Arc::clone(&self.plans);
        let mut items = batch.items.get(events).unwrap_or(&[]);
        while !items.is_empty() {
            items = self.planned(&plans, batch, items, out);
            if let Some((item, rest)) = items.split_first() {
                self.print(item, batch.source(item), &batch.bytes, comms, out);
                items = rest;
            }
        }
    }

    /// Renders events by their plans; what is left begins with one that has none.
    fn planned<'b>(
        &mut self,
        plans: &[Option<CtfPlan>],
        batch: &CtfBatch,
        items: &'b [CtfItem],
        out: &mut Vec<u8>,
    ) -> &'b [CtfItem] {
        let (ctf, owner, writer) = (self.ctf, &self.owner, &mut self.writer);
        let mut line = LineWriter::new(out);
        let mut done = 0;
        for item in items {
            let source = batch.source(item);
            let place = line.position();
            let written = match plans.get(item.class as usize) {
                Some(Some(plan)) if source.missed == 0 => {
                    item.body.bytes(&batch.bytes).and_then(|body| {
                        let task = || {
                            ctf.class(item.class)
                                .map_or_else(EventTask::default, |c| owner.get(c.trace as u32))
                        };
                        writer.write(plan, (item.time, source.cpu), body, task, &mut line)
                    })
                }
                _ => None,
            };
            if written.is_none() {
                line.rewind(place);
                break;
            }
            done += 1;
        }
        line.finish();
        self.shown |= done > 0;
        items.get(done..).unwrap_or(&[])
    }
}

/// Notes on events that end before their last field.
pub(crate) fn ctf_notes<'p, 'c: 'p>(
    mut renderers: impl Iterator<Item = &'p CtfRenderer<'c>> + Clone,
) -> Vec<Note> {
    let mut all = BTreeMap::<u32, (Stop, u64)>::new();
    for (class, (stop, n)) in renderers.clone().flat_map(|r| &r.cut) {
        all.entry(*class).or_insert((*stop, 0)).1 += n;
    }
    let ctf = renderers.next().map(|r| r.ctf);
    let note = |(class, (stop, n))| {
        let name = ctf.and_then(|c| c.class(class)).map_or("?", |c| &*c.event.name);
        Note::doubt(NoteKind::Malformed, format!("{n} events {name} end early: {stop:?}"), None)
    };
    all.into_iter().map(note).collect()
}

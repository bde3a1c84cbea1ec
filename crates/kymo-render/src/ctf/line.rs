//! Renders batches of events of CTF traces: which of them are wanted, and how those are
//! written that need no second look.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use kymo_events::EventSelection;
use kymo_events::ctf::{EventTask, TraceOwners};
use kymo_events::trace_dat::TaskNames;
use kymo_files::ctf::read::{Ctf, DecodeError, Reader};
use kymo_format::LineWriter;
use kymo_model::{Note, NoteKind};
use rustc_hash::FxHashMap;

use super::batch::{CtfBatch, CtfItem, EventOrigin};
use super::event_line::{CtfBody, CtfClasses, CtfEventLine, CtfFieldsError, CtfLines, CtfOptions};
use super::plan::{CtfPlan, PlanWriter, TaskViews};
use crate::program_event::CodeNames;

/// Renders events.
pub(crate) struct CtfRenderer<'c> {
    ctf: &'c Ctf,
    reader: Reader<'c>,
    owner: TraceOwners,
    filter: EventSelection,
    classes: CtfClasses,
    /// Plans of events that need no special handling, by class.
    plans: Arc<[Option<CtfPlan>]>,
    writer: PlanWriter,
    /// Whether the names in the filter are those of an event, by its kind.
    wanted: FxHashMap<u32, bool>,
    lines: CtfLines,
    code: CodeNames,
    pub(crate) shown: bool,
    /// Events that end before their last field, by kind.
    cut: BTreeMap<u32, (DecodeError, u64)>,
}

impl<'c> CtfRenderer<'c> {
    /// `beside`: with events of the kernel.
    pub(crate) fn new(
        options: &CtfOptions,
        ctf: &'c Ctf,
        filter: EventSelection,
        beside: bool,
    ) -> Result<CtfRenderer<'c>, CtfFieldsError> {
        let lines = CtfLines::new(options, beside)?;
        let classes = CtfClasses::new(ctf, beside);
        let plans = if lines.is_usual() && !filter.is_restricted() {
            plans(ctf, &classes.titles)
        } else {
            Arc::default()
        };
        Ok(CtfRenderer {
            ctf,
            reader: ctf.reader(),
            owner: TraceOwners::new(ctf),
            filter,
            classes,
            plans,
            writer: PlanWriter::default(),
            wanted: FxHashMap::default(),
            lines,
            code: CodeNames::recorded(ctf),
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
            classes: self.classes.clone(),
            plans: Arc::clone(&self.plans),
            writer: PlanWriter::default(),
            wanted: FxHashMap::default(),
            lines: self.lines.fork_for_thread(),
            code: self.code.fork_for_thread(),
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
        let before = out.len();
        let event = CtfEventLine {
            class: item.class,
            name,
            when: (item.time, source.cpu),
            trace: class.trace,
            task: self.owner.get(class.trace as u32),
            comms,
            filter: &self.filter,
        };
        let mut body = CtfBody::Packed(&mut self.reader, item.body, bytes);
        let end = self.lines.write(&event, &self.classes, &mut self.code, &mut body, out);
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

    /// A mark where events are missing.
    fn lost(&self, source: EventOrigin, out: &mut Vec<u8>) {
        let n = source.missed;
        let _ = match (self.lines.is_json(), source.cpu) {
            (true, Some(cpu)) => writeln!(out, "{{\"cpu\":{cpu},\"lost\":{n}}}"),
            (true, None) => writeln!(out, "{{\"lost\":{n}}}"),
            (false, Some(cpu)) => writeln!(out, "CPU:{cpu} [{n} EVENTS DROPPED]"),
            (false, None) => writeln!(out, "[{n} EVENTS DROPPED]"),
        };
    }
}

/// Plans of each event class, where that is simple.
fn plans(ctf: &Ctf, titles: &[Vec<u8>]) -> Arc<[Option<CtfPlan>]> {
    let mut kinds = TaskViews::default();
    let plan =
        |(n, title): (usize, &Vec<u8>)| CtfPlan::new(&ctf.class(n as u32)?, title, &mut kinds);
    titles.iter().enumerate().map(plan).collect()
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
    let mut all = BTreeMap::<u32, (DecodeError, u64)>::new();
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

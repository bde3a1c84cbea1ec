//! The events one by one, packed in chunks: time, class, task, CPU, and the text of their fields
//! as far as there is room for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use kymo_events::{FieldId, FieldPart, FieldType, FieldValue, RecordedClass, RecordedEvent};

use super::density::EventDensity;
use super::packed::{Columns, DeflateEffort, DeflatedBytes, step_between, time_after};

/// Events of a chunk.
pub const EVENTS_PER_CHUNK: usize = 1 << 16;

/// Consecutive events.
#[derive(Clone, Debug, Default)]
pub struct EventChunk {
    /// For each event: time since the one before (zigzag), class, task + 1, CPU + 1; by columns.
    pub heads: DeflatedBytes,
    /// For each event its layout and the texts of its fields, with a unit separator (0x1f)
    /// before each, ended by a newline.
    pub texts: DeflatedBytes,
    /// Time that the first one's counts from.
    pub start: u64,
    /// Time of the earliest.
    pub first: u64,
    /// Time of the latest.
    pub last: u64,
    /// Number of events.
    pub count: usize,
}

/// All events.
#[derive(Clone, Debug, Default)]
pub struct EventList {
    /// In the order of the recording.
    pub chunks: Vec<EventChunk>,
    /// Names of classes.
    pub classes: Vec<String>,
    /// Fields by layout: names, and of which type each is: `n`umber, `f`loat, `t`ext,
    /// `e`numeration (its name, then 0x1e and the number), `c`ompound.
    pub class_fields: Vec<Vec<(String, char)>>,
    /// Events of each class.
    pub class_counts: Vec<u64>,
    /// Events in all.
    pub count: u64,
    /// Events whose fields are left out, as there is no room.
    pub textless: u64,
    pub(super) density: EventDensity,
}

/// An event of the list, without its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedEvent {
    /// Time relative to the start of the tracks.
    pub time: u64,
    /// Number of its class in `classes`.
    pub class: u32,
    /// Number of the task, where it is known.
    pub task: Option<u32>,
    /// CPU, where it is known.
    pub cpu: Option<u32>,
}

impl EventList {
    /// The events, chunk by chunk as they are unpacked.
    pub fn iter(&self) -> impl Iterator<Item = ListedEvent> + '_ {
        self.chunks.iter().flat_map(|chunk| {
            let columns = Columns::<4>::of_bytes(&chunk.heads.plain());
            let mut time = chunk.start;
            let event = |[step, class, task, cpu]: [u64; 4]| {
                time = time_after(time, step);
                ListedEvent {
                    time,
                    class: class as u32,
                    task: task.checked_sub(1).map(|task| task as u32),
                    cpu: cpu.checked_sub(1).map(|cpu| cpu as u32),
                }
            };
            columns.rows().map(event).collect::<Vec<_>>()
        })
    }
}

/// The events while they are read.
#[derive(Debug, Default)]
pub(super) struct GrowingEvents {
    pub(super) list: EventList,
    /// The chunk at the end, and its columns as they are before they are packed.
    chunk: EventChunk,
    heads: Columns<4>,
    texts: Vec<u8>,
    /// Full chunks, which threads of their own pack.
    packing: VecDeque<(EventChunk, JoinHandle<[DeflatedBytes; 2]>)>,
    by_layout: Vec<Option<ClassPlan>>,
    before: u64,
    text_bytes: usize,
}

/// Chunks that are packed at a time.
const MOST_PACKING: usize = 2;

#[derive(Clone, Debug)]
struct ClassPlan {
    number: u32,
    /// Number of its fields in `class_fields`.
    layout: u32,
    fields: Vec<FieldId>,
}

/// Place of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventPlace {
    pub(super) time: u64,
    pub(super) task: Option<u32>,
    pub(super) cpu: Option<u32>,
}

impl GrowingEvents {
    /// Adds an event; texts of at most `text_limit` bytes are kept in all.
    pub(super) fn push(&mut self, event: &RecordedEvent<'_>, at: EventPlace, text_limit: usize) {
        let layout = event.class.layout.index();
        if self.by_layout.get(layout).is_none_or(Option::is_none) {
            self.learn(event.class, layout);
        }
        if self.chunk.count >= EVENTS_PER_CHUNK {
            self.end_chunk();
        }
        let Some(Some(plan)) = self.by_layout.get(layout) else { return };
        let chunk = &mut self.chunk;
        if chunk.count == 0 {
            (chunk.start, chunk.first, chunk.last) = (at.time, at.time, at.time);
            self.before = at.time;
        }
        let step = step_between(self.before, at.time);
        self.before = at.time;
        self.heads.push([
            step,
            plan.number.into(),
            at.task.map_or(0, |t| u64::from(t) + 1),
            at.cpu.map_or(0, |c| u64::from(c) + 1),
        ]);
        (chunk.first, chunk.last) = (chunk.first.min(at.time), chunk.last.max(at.time));
        chunk.count += 1;
        self.list.count += 1;
        self.list.density.add(at.time);
        if let Some(count) = self.list.class_counts.get_mut(plan.number as usize) {
            *count += 1;
        }
        let from = self.texts.len();
        if self.text_bytes < text_limit {
            write_fields(event, plan, &mut self.texts);
        } else {
            self.list.textless += u64::from(!plan.fields.is_empty());
        }
        self.texts.push(b'\n');
        self.text_bytes += self.texts.len() - from;
    }

    /// Packs the chunk at the end, beside the reading where that can be.
    fn end_chunk(&mut self) {
        let mut chunk = std::mem::take(&mut self.chunk);
        let (next, room) = (self.heads.next(), self.texts.len());
        let heads = std::mem::replace(&mut self.heads, next);
        let texts = std::mem::replace(&mut self.texts, Vec::with_capacity(room));
        let heads = Arc::new((heads, texts));
        let effort = DeflateEffort::for_events(self.list.count);
        let pack = move |(heads, texts): &(Columns<4>, Vec<u8>)| {
            [DeflatedBytes::new(&heads.to_bytes(), effort), DeflatedBytes::new(texts, effort)]
        };
        let shared = Arc::clone(&heads);
        let thread = std::thread::Builder::new().name("deflate".into());
        match thread.spawn(move || pack(&shared)) {
            Ok(thread) => self.packing.push_back((chunk, thread)),
            Err(_) => {
                while !self.packing.is_empty() {
                    self.take_packed();
                }
                [chunk.heads, chunk.texts] = pack(&heads);
                self.list.chunks.push(chunk);
            }
        }
        if self.packing.len() > MOST_PACKING {
            self.take_packed();
        }
    }

    /// Waits for the first of the chunks that are packed.
    fn take_packed(&mut self) {
        let Some((mut chunk, thread)) = self.packing.pop_front() else { return };
        [chunk.heads, chunk.texts] =
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        self.list.chunks.push(chunk);
    }

    /// All events, when no more come.
    pub(super) fn finish(mut self) -> EventList {
        if self.chunk.count > 0 {
            self.end_chunk();
        }
        while !self.packing.is_empty() {
            self.take_packed();
        }
        self.list
    }

    #[cold]
    fn learn(&mut self, class: &RecordedClass, layout: usize) {
        let name = &class.full_name;
        let known = self.list.classes.iter().position(|c| c == name);
        let number = known.unwrap_or_else(|| {
            self.list.classes.push(name.clone());
            self.list.class_counts.push(0);
            self.list.classes.len() - 1
        });
        let own = (0u32..).zip(&class.fields);
        let own = own.filter(|(_, f)| !f.common && f.part == FieldPart::Own);
        let (mut fields, mut described) = (Vec::new(), Vec::new());
        for (id, field) in own {
            fields.push(FieldId(id));
            let kind = match field.field_type {
                FieldType::Text => 't',
                FieldType::Enumeration => 'e',
                FieldType::Compound => 'c',
                FieldType::Float => 'f',
                _ => 'n',
            };
            described.push((field.name.clone(), kind));
        }
        let known = self.list.class_fields.iter().position(|c| *c == described);
        let fields_number = known.unwrap_or_else(|| {
            self.list.class_fields.push(described);
            self.list.class_fields.len() - 1
        });
        if self.by_layout.len() <= layout {
            self.by_layout.resize(layout + 1, None);
        }
        if let Some(slot) = self.by_layout.get_mut(layout) {
            *slot = Some(ClassPlan { number: number as u32, layout: fields_number as u32, fields });
        }
    }
}

/// Longest text of one event.
const LONGEST: usize = 2000;

fn write_fields(event: &RecordedEvent<'_>, plan: &ClassPlan, out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(itoa::Buffer::new().format(plan.layout).as_bytes());
    for id in &plan.fields {
        out.push(0x1f);
        match event.field(*id) {
            FieldValue::Absent => out.push(0x1d),
            value => {
                event.write_field_cell(*id, out);
                if let (FieldValue::Enumeration { .. }, Some(number)) = (&value, value.number()) {
                    out.push(0x1e);
                    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
                }
            }
        }
        if out.len() - from > LONGEST {
            out.truncate(from + LONGEST);
            out.extend_from_slice("…".as_bytes());
            return;
        }
    }
}

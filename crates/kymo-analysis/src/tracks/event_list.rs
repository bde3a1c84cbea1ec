//! The events one by one, packed in chunks: time, class, task, CPU, and the text of their fields
//! as far as there is room for it.

use kymo_events::{FieldId, FieldPart, FieldType, FieldValue, RecordedClass, RecordedEvent};

use super::packed::push_number;

/// Events of a chunk.
pub const EVENTS_PER_CHUNK: usize = 1 << 16;

/// Consecutive events.
#[derive(Clone, Debug, Default)]
pub struct EventChunk {
    /// For each event: time since the one before (zigzag), class, task + 1, CPU + 1.
    pub heads: Vec<u8>,
    /// For each event its layout and the texts of its fields, with a unit separator (0x1f)
    /// before each, ended by a newline.
    pub texts: Vec<u8>,
    /// Time that the first one's counts from.
    pub start: u64,
    /// Time of the earliest.
    pub first: u64,
    /// Time of the latest.
    pub last: u64,
    /// How many there are.
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
    by_layout: Vec<Option<ClassPlan>>,
    before: u64,
    text_bytes: usize,
}

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

impl EventList {
    /// Adds an event; texts of at most `text_limit` bytes are kept in all.
    pub(super) fn push(&mut self, event: &RecordedEvent<'_>, at: EventPlace, text_limit: usize) {
        let layout = event.class.layout.index();
        if self.by_layout.get(layout).is_none_or(Option::is_none) {
            self.learn(event.class, layout);
        }
        let Some(Some(plan)) = self.by_layout.get(layout) else { return };
        if self.chunks.last().is_none_or(|c| c.count >= EVENTS_PER_CHUNK) {
            // What a vector has room for beyond its end is a fourth of it on average.
            if let Some(full) = self.chunks.last_mut() {
                full.heads.shrink_to_fit();
                full.texts.shrink_to_fit();
            }
            let (start, first, last) = (at.time, at.time, at.time);
            self.chunks.push(EventChunk { start, first, last, ..EventChunk::default() });
            self.before = at.time;
        }
        let Some(chunk) = self.chunks.last_mut() else { return };
        let step = at.time.wrapping_sub(self.before) as i64;
        self.before = at.time;
        push_number(&mut chunk.heads, ((step << 1) ^ (step >> 63)) as u64);
        push_number(&mut chunk.heads, plan.number.into());
        push_number(&mut chunk.heads, at.task.map_or(0, |t| u64::from(t) + 1));
        push_number(&mut chunk.heads, at.cpu.map_or(0, |c| u64::from(c) + 1));
        (chunk.first, chunk.last) = (chunk.first.min(at.time), chunk.last.max(at.time));
        chunk.count += 1;
        self.count += 1;
        if let Some(count) = self.class_counts.get_mut(plan.number as usize) {
            *count += 1;
        }
        let from = chunk.texts.len();
        if self.text_bytes < text_limit {
            write_fields(event, plan, &mut chunk.texts);
        } else {
            self.textless += u64::from(!plan.fields.is_empty());
        }
        chunk.texts.push(b'\n');
        self.text_bytes += chunk.texts.len() - from;
    }

    #[cold]
    fn learn(&mut self, class: &RecordedClass, layout: usize) {
        let name = &class.full_name;
        let known = self.classes.iter().position(|c| c == name);
        let number = known.unwrap_or_else(|| {
            self.classes.push(name.clone());
            self.class_counts.push(0);
            self.classes.len() - 1
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
        let known = self.class_fields.iter().position(|c| *c == described);
        let fields_number = known.unwrap_or_else(|| {
            self.class_fields.push(described);
            self.class_fields.len() - 1
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
                value.write_cell(out);
                if let (FieldValue::Enumeration { .. }, Some(number)) = (&value, value.number()) {
                    out.push(0x1e);
                    out.extend_from_slice(number.to_string().as_bytes());
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

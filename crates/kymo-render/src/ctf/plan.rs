//! Lines of events whose fields always lie at the same places: what is the same in all of
//! them is made once, and a line is a row of moves of text and of numbers into it.
//!
//! What is written is to the byte what [`CtfLines`](super::event_line) writes, which does the rest.

use kymo_events::ctf::{EventTask, ValueText, write_printable};
use kymo_files::ctf::read::{Class, FieldInfo, FixedField, Part, Stored, TaskField};
use kymo_format::LineWriter;
use kymo_model::Endian;

use super::event_line::{head, known};
use crate::number::SecondText;
use crate::perf_script::FieldSet;
use crate::perf_script::line_start::{self, LineStyle};
use crate::program_event::{PrintFormat, PrintPiece, write_int};
use crate::start_cache::{CachedStart, StartCache};

/// Bytes between the first and the last of what a start says of the task.
const LONG: usize = 64;
/// Bytes of text of one operation.
const PIECE: usize = 16;

/// Task property of a context field, and its position.
type TaskContext = (usize, Stored, TaskField);

/// Plan for writing the events of a class.
pub(super) struct CtfPlan {
    /// Bytes of its body.
    bytes: usize,
    /// Position of the task's numbers and name; from the first to the last of them.
    task: Vec<TaskContext>,
    key: (usize, usize),
    /// Plans with the same see tasks alike.
    kind: u32,
    ops: Vec<PlanStep>,
    /// FieldSet that [`ValueText`] writes.
    fields: Vec<FieldInfo>,
}

/// ValueText, and what follows it.
struct PlanStep {
    text: [u8; PIECE],
    len: usize,
    at: usize,
    value: StepValue,
}

/// A value.
#[derive(Clone, Copy)]
enum StepValue {
    None,
    Unsigned(u8, Endian),
    Signed(u8, Endian),
    Hex(u8, Endian),
    /// With its name and whatever belongs to it, by number among the fields.
    Other(usize, Stored),
    /// As it stands in a sentence, by number among the fields.
    InSentence(usize, Stored),
}

/// Task contexts that the plans of a trace share.
#[derive(Default)]
pub(super) struct TaskViews(Vec<(usize, Vec<TaskContext>)>);

impl TaskViews {
    fn of(&mut self, trace: usize, task: &[TaskContext]) -> u32 {
        let known = self.0.iter().position(|(t, task_of)| *t == trace && task_of == task);
        let kind = known.unwrap_or_else(|| {
            self.0.push((trace, task.to_vec()));
            self.0.len() - 1
        });
        kind as u32
    }
}

impl CtfPlan {
    /// `title` is what stands before the values. `None`: the event is not so simple.
    pub(super) fn new(class: &Class<'_>, title: &[u8], kinds: &mut TaskViews) -> Option<CtfPlan> {
        let places = class.layout()?;
        // Its name is resolved.
        if places.iter().any(|p| p.field.address) {
            return None;
        }
        let bytes = places.iter().map(end).max().unwrap_or(0);
        let mut task = Vec::new();
        let (mut contexts, mut values) = (Vec::new(), Vec::new());
        for place in places {
            match (place.field.task, place.stored) {
                (Some(TaskField::Name), Stored::Chars(_)) => {}
                (Some(TaskField::Name), _) | (Some(_), Stored::Chars(_)) => return None,
                (Some(_), Stored::Int(..)) => {}
                (None, _) if place.field.part == Part::StreamContext => {
                    contexts.push(place);
                    continue;
                }
                (None, _) => {
                    values.push(place);
                    continue;
                }
            }
            task.extend(place.field.task.map(|t| (place.at, place.stored, t)));
        }
        let from = task.iter().map(|t| t.0).min().unwrap_or(0);
        let to = task.iter().map(|(at, stored, _)| at + size(*stored)).max().unwrap_or(0);
        if to - from > LONG {
            return None;
        }
        let kind = kinds.of(class.trace, &task);
        let mut plan =
            CtfPlan { bytes, task, key: (from, to), kind, ops: Vec::new(), fields: Vec::new() };
        let mut text = title.to_vec();
        if !contexts.is_empty() {
            text.push(b'[');
            plan.values(&contexts, &mut text);
            text.extend_from_slice(b"] ");
        }
        match PrintFormat::of(class) {
            Some(format) => plan.sentence(&values, &format, &mut text),
            None => {
                plan.values(&values, &mut text);
                // Blanks at the end of a line are left out; values do not end with one.
                while text.last() == Some(&b' ') {
                    text.pop();
                }
            }
        }
        text.push(b'\n');
        plan.push(&text, (0, StepValue::None));
        Some(plan)
    }

    /// Appends the operations for some values; `text` is what is to be written before the
    /// first of them, and then what is to be written behind the last.
    fn values(&mut self, places: &[FixedField<'_>], text: &mut Vec<u8>) {
        for (i, place) in places.iter().enumerate() {
            if i > 0 {
                text.push(b' ');
            }
            let field = place.field;
            let value = match place.stored {
                Stored::Int(size, endian) if field.labels.is_none() => match field.base {
                    16 => Some(StepValue::Hex(size, endian)),
                    8 | 2 => None,
                    _ if field.signed => Some(StepValue::Signed(size, endian)),
                    _ => Some(StepValue::Unsigned(size, endian)),
                },
                _ => None,
            };
            let value = value.unwrap_or_else(|| {
                self.fields.push(field.clone());
                StepValue::Other(self.fields.len() - 1, place.stored)
            });
            if !matches!(value, StepValue::Other(..)) {
                text.extend_from_slice(field.name.as_bytes());
                text.extend_from_slice(if matches!(value, StepValue::Hex(..)) {
                    b"=0x"
                } else {
                    b"="
                });
            }
            self.push(text, (place.at, value));
            text.clear();
        }
    }

    /// Adds the steps of values in a sentence; those of a context come before it.
    fn sentence(&mut self, places: &[FixedField<'_>], format: &PrintFormat, text: &mut Vec<u8>) {
        let of_context = |p: &&FixedField<'_>| p.field.part != Part::Fields;
        let contexts: Vec<FixedField<'_>> = places.iter().filter(of_context).copied().collect();
        let fields: Vec<&FixedField<'_>> = places.iter().filter(|p| !of_context(p)).collect();
        if !contexts.is_empty() {
            self.values(&contexts, text);
            text.push(b' ');
        }
        for piece in format.pieces() {
            let (place, hex) = match piece {
                PrintPiece::Text(piece) => {
                    text.extend_from_slice(piece.as_bytes());
                    continue;
                }
                PrintPiece::Field { place, hex, .. } => (fields.get(*place), *hex),
            };
            // The format's places are those of the class's fields, all of which lie somewhere.
            let Some(place) = place else { continue };
            let field = place.field;
            let value = match place.stored {
                Stored::Int(size, endian) if hex => {
                    text.extend_from_slice(b"0x");
                    StepValue::Hex(size, endian)
                }
                Stored::Int(size, endian) if field.labels.is_none() => match field.base {
                    16 => {
                        text.extend_from_slice(b"0x");
                        StepValue::Hex(size, endian)
                    }
                    10 if field.signed => StepValue::Signed(size, endian),
                    10 => StepValue::Unsigned(size, endian),
                    _ => self.in_sentence(place),
                },
                _ => self.in_sentence(place),
            };
            self.push(text, (place.at, value));
            text.clear();
        }
    }

    fn in_sentence(&mut self, place: &FixedField<'_>) -> StepValue {
        self.fields.push(place.field.clone());
        StepValue::InSentence(self.fields.len() - 1, place.stored)
    }

    fn push(&mut self, text: &[u8], (at, value): (usize, StepValue)) {
        let mut pieces = text.chunks(PIECE).peekable();
        while let Some(piece) = pieces.next() {
            let mut op =
                PlanStep { text: [0; PIECE], len: piece.len(), at: 0, value: StepValue::None };
            op.text.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
            if pieces.peek().is_none() {
                (op.at, op.value) = (at, value);
            }
            self.ops.push(op);
        }
        if text.is_empty() {
            self.ops.push(PlanStep { text: [0; PIECE], len: 0, at, value });
        }
    }
}

fn size(stored: Stored) -> usize {
    match stored {
        Stored::Int(bytes, _) => bytes.into(),
        Stored::Chars(n) => n,
    }
}

fn end(place: &FixedField<'_>) -> usize {
    place.at + size(place.stored)
}

/// A number that is stored in a body.
#[inline]
fn load(body: &[u8], at: usize, size: u8, endian: Endian) -> Option<u64> {
    let from = body.get(at..)?;
    Some(match (size, endian) {
        (8, Endian::Little) => u64::from_le_bytes(*from.first_chunk()?),
        (4, Endian::Little) => u32::from_le_bytes(*from.first_chunk()?).into(),
        (2, Endian::Little) => u16::from_le_bytes(*from.first_chunk()?).into(),
        (8, Endian::Big) => u64::from_be_bytes(*from.first_chunk()?),
        (4, Endian::Big) => u32::from_be_bytes(*from.first_chunk()?).into(),
        (2, Endian::Big) => u16::from_be_bytes(*from.first_chunk()?).into(),
        _ => u64::from(*from.first()?),
    })
}

/// Loads an integer with its sign extended.
#[inline]
fn load_signed(body: &[u8], at: usize, size: u8, endian: Endian) -> Option<u64> {
    let unused = 64 - 8 * u32::from(size.clamp(1, 8));
    load(body, at, size, endian).map(|n| ((n << unused) as i64 >> unused) as u64)
}

/// Bytes of text up to its NUL.
fn chars(body: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    let text = body.get(at..at + len)?;
    text.split(|b| *b == 0).next()
}

/// Key of a start: the stored task, with the plans' view of tasks and the CPU.
#[derive(Clone, Debug)]
struct PlannedKey {
    view: u32,
    cpu: Option<u32>,
    stored: [u8; LONG],
    len: usize,
}

/// Writes lines by their plans; remembers what they have in common.
#[derive(Default)]
pub(super) struct PlanWriter {
    starts: StartCache<PlannedKey>,
    second: SecondText,
    values: ValueText,
    scratch: Vec<u8>,
}

impl PlanWriter {
    /// Writes an event. `owner`: what is known of the task besides. `None`: it is not as
    /// planned, and nothing was written.
    #[inline]
    pub(super) fn write(
        &mut self,
        plan: &CtfPlan,
        (time, cpu): (u64, Option<u32>),
        body: &[u8],
        owner: impl FnOnce() -> EventTask,
        line: &mut LineWriter<'_>,
    ) -> Option<()> {
        let body = body.get(..plan.bytes)?;
        let start = self.start(plan, cpu, body, owner)?;
        line.write_prefix(&start.text, start.len);
        let (text, len, micros) = self.second.of(time);
        line.write_prefix(text, len);
        line.micros(micros);
        for op in &plan.ops {
            line.write_prefix(&op.text, op.len);
            match op.value {
                StepValue::None => {}
                StepValue::Unsigned(size, e) => line.decimal(load(body, op.at, size, e)?),
                StepValue::Signed(size, e) => {
                    line.signed(load_signed(body, op.at, size, e)?.cast_signed());
                }
                StepValue::Hex(size, e) => line.hex(load(body, op.at, size, e)?, 0),
                StepValue::Other(field, stored) => {
                    self.other(plan.fields.get(field)?, stored, body, op.at)?;
                    line.text(&self.scratch);
                }
                StepValue::InSentence(field, stored) => {
                    self.in_sentence(plan.fields.get(field)?, stored, body, op.at)?;
                    line.text(&self.scratch);
                }
            }
        }
        Some(())
    }

    /// The start of a line.
    #[inline]
    fn start(
        &mut self,
        plan: &CtfPlan,
        cpu: Option<u32>,
        body: &[u8],
        owner: impl FnOnce() -> EventTask,
    ) -> Option<&CachedStart<PlannedKey>> {
        let stored = body.get(plan.key.0..plan.key.1)?;
        let is_same = |key: &PlannedKey| {
            key.view == plan.kind && key.cpu == cpu && key.stored.get(..key.len) == Some(stored)
        };
        let place = place(stored);
        if self.starts.get(place, is_same).is_none() {
            let (key, text) = make_start(plan, cpu, stored, body, owner())?;
            self.starts.put(place, key, &text);
        }
        self.starts.get(place, is_same)
    }

    /// A value that is no plain number.
    fn other(&mut self, field: &FieldInfo, stored: Stored, body: &[u8], at: usize) -> Option<()> {
        self.scratch.clear();
        match stored {
            Stored::Int(size, e) if field.signed => {
                let value = load_signed(body, at, size, e)?;
                self.values.int(field, value, true, &mut self.scratch);
            }
            Stored::Int(size, e) => {
                let value = load(body, at, size, e)?;
                self.values.int(field, value, true, &mut self.scratch);
            }
            Stored::Chars(n) => {
                self.values.text(field, chars(body, at, n)?, true, &mut self.scratch);
            }
        }
        Some(())
    }
}

impl PlanWriter {
    /// A value that is no plain number, as it stands in a sentence.
    fn in_sentence(
        &mut self,
        field: &FieldInfo,
        stored: Stored,
        body: &[u8],
        at: usize,
    ) -> Option<()> {
        self.scratch.clear();
        match stored {
            Stored::Int(size, e) => {
                let value = if field.signed {
                    load_signed(body, at, size, e)?
                } else {
                    load(body, at, size, e)?
                };
                write_int(&mut self.scratch, field, value, false);
            }
            Stored::Chars(n) => write_printable(&mut self.scratch, chars(body, at, n)?),
        }
        Some(())
    }
}

/// Place of a start in the cache.
#[inline]
fn place(stored: &[u8]) -> usize {
    let words = stored.as_chunks::<4>().0;
    let sum = words.iter().fold(0, |sum, w| u32::from_le_bytes(*w).wrapping_add(sum));
    (sum ^ sum >> 8) as usize
}

/// Makes a start.
#[cold]
#[inline(never)]
fn make_start(
    plan: &CtfPlan,
    cpu: Option<u32>,
    stored: &[u8],
    body: &[u8],
    mut task: EventTask,
) -> Option<(PlannedKey, Vec<u8>)> {
    for (at, stored, of) in &plan.task {
        match *stored {
            Stored::Int(size, e) => _ = task.number_of(*of, load(body, *at, size, e)?),
            Stored::Chars(n) => task.name(chars(body, *at, n)?),
        }
    }
    let head = head((0, cpu), &task);
    let mut text = Vec::with_capacity(LONG);
    let fields = known(FieldSet::COMMON, &head, &task);
    line_start::who(fields, LineStyle::default(), &head, &mut text);
    let mut key = PlannedKey { view: plan.kind, cpu, stored: [0; LONG], len: stored.len() };
    key.stored.get_mut(..stored.len())?.copy_from_slice(stored);
    Some((key, text))
}

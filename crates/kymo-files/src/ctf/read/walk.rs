//! What a type compiles to, and the walk through bytes along it.
//!
//! A program is flat: structures, rows and variants are spans of steps, so that
//! an event costs loads and calls of the visitor, nothing else.

use std::sync::Arc;

use super::super::types::Label;
use super::bits::{Bits, Load, Stop, extend};

/// Elements without a size that a walk passes before it gives up.
const MAX_EMPTY: u64 = 1 << 16;
/// No value is kept.
pub(crate) const NO_SLOT: u16 = u16::MAX;

/// The part of an event that fields belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What all events of a stream begin with.
    StreamContext,
    /// What this event has besides.
    EventContext,
    /// Its own fields.
    Fields,
}

/// What a context says of the task that an event is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskField {
    /// `procname`
    Name,
    /// `pid`
    Pid,
    /// `tid`
    Tid,
    /// `vpid`: the process as its own namespace numbers it
    VirtualPid,
    /// `vtid`
    VirtualTid,
}

impl TaskField {
    /// By the name of a context.
    pub(crate) fn of(name: &str) -> Option<TaskField> {
        Some(match name {
            "procname" => TaskField::Name,
            "pid" => TaskField::Pid,
            "tid" => TaskField::Tid,
            "vpid" => TaskField::VirtualPid,
            "vtid" => TaskField::VirtualTid,
            _ => return None,
        })
    }
}

/// What readers themselves make of a field of a header or packet context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    None,
    Magic,
    Uuid,
    StreamId,
    StreamInstance,
    Begin,
    End,
    ContentSize,
    PacketSize,
    Discarded,
    Sequence,
    Cpu,
    Anchor,
    AnchorError,
    EventId,
    Time,
}

/// What is the same in each occurrence of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldInfo {
    /// Its name as it is shown; empty for elements of rows.
    pub name: String,
    /// The part of the event it belongs to.
    pub part: Part,
    /// Whether it is a field of the part itself and not of something in it.
    pub top: bool,
    /// Bits of a number.
    pub size: u32,
    /// Whether a number is signed.
    pub signed: bool,
    /// The base a number is shown in.
    pub base: u8,
    /// Whether a number is an address in the program.
    pub address: bool,
    /// Whether it is a truth value: an enumeration of `false` and `true`.
    pub boolean: bool,
    /// The names of an enumeration.
    pub labels: Option<Arc<[Label]>>,
    /// What it is, in words.
    pub type_text: String,
    /// What it says of the task, if it is a context that does.
    pub task: Option<TaskField>,
    pub(crate) role: Role,
}

impl FieldInfo {
    /// The names of a value, in the order of the declaration. An enumeration may have
    /// several for one.
    pub fn labels(&self, value: u64) -> impl Iterator<Item = &str> {
        let value = if self.signed { i128::from(value as i64) } else { i128::from(value) };
        let labels = self.labels.iter().flat_map(|l| l.iter());
        labels.filter(move |l| l.from <= value && value <= l.to).map(|l| l.name.as_str())
    }

    /// The first of the names of a value.
    pub fn first_label(&self, value: u64) -> Option<&str> {
        self.labels(value).next()
    }
}

/// What is around fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Fields with names.
    Struct,
    /// Elements without.
    Row,
    /// The one field that a variant is.
    Option,
}

/// Is shown the values of an event, one after the other. All do nothing by default.
pub trait Visit {
    /// A part of the event begins. It goes on to the next part.
    fn part(&mut self, _part: Part) {}
    /// An integer; of a signed one `value` is the sign-extended bits.
    fn int(&mut self, _field: &FieldInfo, _value: u64) {}
    /// A floating-point number. `single`: it was stored as a `float`.
    fn float(&mut self, _field: &FieldInfo, _value: f64, _single: bool) {}
    /// Text: a string, or a row of characters up to its NUL.
    fn text(&mut self, _field: &FieldInfo, _text: &[u8]) {}
    /// A structure or row begins; `count` of fields or elements.
    fn open(&mut self, _field: &FieldInfo, _group: Group, _count: u64) {}
    /// The innermost one ends.
    fn close(&mut self, _group: Group) {}
}

/// Sees nothing: for sizes.
pub(crate) struct Blind;

impl Visit for Blind {}

/// How many elements a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Len {
    Is(u64),
    In(u16),
}

/// A step; `field` and `end` are places in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Part(Part),
    Align(u32),
    Int {
        field: u32,
        align: u32,
        load: Load,
        size: u8,
        save: u16,
    },
    Float {
        field: u32,
        align: u32,
        load: Load,
    },
    Text {
        field: u32,
    },
    /// Bytes that are text.
    Chars {
        field: u32,
        len: Len,
    },
    /// Up to `end` lies a structure.
    Struct {
        field: u32,
        count: u32,
        align: u32,
        end: u32,
    },
    /// Up to `end` lies what one element is.
    Row {
        field: u32,
        len: Len,
        align: u32,
        end: u32,
    },
    /// Up to `end` lie the options, which `choices` tells apart.
    Choose {
        field: u32,
        tag: u16,
        choices: u32,
        end: u32,
    },
}

/// Values of a tag, and the steps they choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// As the tag's bits, in the order of its signedness.
    pub(crate) from: i128,
    pub(crate) to: i128,
    pub(crate) steps: (u32, u32),
}

/// The choices of a variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    pub(crate) signed: bool,
    pub(crate) of: Vec<Choice>,
}

/// A type, compiled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
    pub(crate) fields: Vec<FieldInfo>,
    pub(crate) choices: Vec<Choices>,
    /// Its size in bits, if it is the same wherever it lies at a whole byte.
    pub(crate) fixed: Option<u64>,
}

/// Values that others depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(pub(crate) Vec<u64>);

impl Slots {
    #[inline]
    fn set(&mut self, slot: u16, value: u64) {
        if let Some(place) = self.0.get_mut(usize::from(slot)) {
            *place = value;
        }
    }

    #[inline]
    fn get(&self, slot: u16) -> u64 {
        self.0.get(usize::from(slot)).copied().unwrap_or(0)
    }
}

impl Program {
    /// Shows the visitor what lies there and moves behind it.
    #[inline]
    pub(crate) fn walk<V: Visit>(
        &self,
        bits: &mut Bits<'_>,
        slots: &mut Slots,
        visit: &mut V,
    ) -> Result<(), Stop> {
        let mut walk = Walk { program: self, slots, visit, empty: 0 };
        walk.span(0, self.steps.len(), bits)
    }

    /// Moves behind what lies there.
    #[inline]
    pub(crate) fn skip(&self, bits: &mut Bits<'_>, slots: &mut Slots) -> Result<(), Stop> {
        if let Some(size) = self.fixed
            && bits.pos.is_multiple_of(8)
        {
            bits.pos += size;
            return if bits.within() { Ok(()) } else { Err(Stop::End) };
        }
        self.walk(bits, slots, &mut Blind)
    }

    #[inline]
    fn field(&self, at: u32) -> &FieldInfo {
        // Made with the steps; there is no other.
        &self.fields[at as usize]
    }
}

struct Walk<'p, V> {
    program: &'p Program,
    slots: &'p mut Slots,
    visit: &'p mut V,
    empty: u64,
}

impl<V: Visit> Walk<'_, V> {
    fn span(&mut self, mut at: usize, end: usize, bits: &mut Bits<'_>) -> Result<(), Stop> {
        let program = self.program;
        while at < end {
            let Some(step) = program.steps.get(at) else { break };
            at += 1;
            match *step {
                Step::Int { field, align, load, size, save } => {
                    bits.align(align);
                    let info = program.field(field);
                    let mut value = bits.load(load, u32::from(size))?;
                    if info.signed {
                        value = extend(value, u32::from(size)) as u64;
                    }
                    if save != NO_SLOT {
                        self.slots.set(save, value);
                    }
                    self.visit.int(info, value);
                }
                Step::Text { field } => {
                    bits.align(8);
                    let text = bits.text()?;
                    self.visit.text(program.field(field), text);
                }
                Step::Chars { field, len } => {
                    bits.align(8);
                    let text = bits.take(self.len(len))?;
                    let end = memchr::memchr(0, text).unwrap_or(text.len());
                    self.visit.text(program.field(field), text.get(..end).unwrap_or(&[]));
                }
                Step::Float { field, align, load } => {
                    bits.align(align);
                    let single = program.field(field).size == 32;
                    let raw = bits.load(load, program.field(field).size)?;
                    let value = match single {
                        true => f64::from(f32::from_bits(raw as u32)),
                        false => f64::from_bits(raw),
                    };
                    self.visit.float(program.field(field), value, single);
                }
                Step::Part(part) => self.visit.part(part),
                Step::Align(align) => bits.align(align),
                Step::Struct { field, count, align, end } => {
                    bits.align(align);
                    self.visit.open(program.field(field), Group::Struct, u64::from(count));
                    self.span(at, end as usize, bits)?;
                    self.visit.close(Group::Struct);
                    at = end as usize;
                }
                Step::Row { field, len, align, end } => {
                    bits.align(align);
                    let count = self.len(len);
                    self.visit.open(program.field(field), Group::Row, count);
                    self.row(at, end as usize, count, bits)?;
                    self.visit.close(Group::Row);
                    at = end as usize;
                }
                Step::Choose { field, tag, choices, end } => {
                    let (from, to) = self.choose(tag, choices)?;
                    self.visit.open(program.field(field), Group::Option, 1);
                    self.span(from as usize, to as usize, bits)?;
                    self.visit.close(Group::Option);
                    at = end as usize;
                }
            }
            // Alignment alone may lead beyond the end.
            if !bits.within() {
                return Err(Stop::End);
            }
        }
        Ok(())
    }

    fn len(&self, len: Len) -> u64 {
        match len {
            Len::Is(n) => n,
            Len::In(slot) => self.slots.get(slot),
        }
    }

    fn row(&mut self, at: usize, end: usize, n: u64, bits: &mut Bits<'_>) -> Result<(), Stop> {
        for _ in 0..n {
            let before = bits.pos;
            self.span(at, end, bits)?;
            if bits.pos == before {
                self.empty += 1;
                if self.empty > MAX_EMPTY {
                    return Err(Stop::Empty);
                }
            }
        }
        Ok(())
    }

    fn choose(&self, tag: u16, choices: u32) -> Result<(u32, u32), Stop> {
        let value = self.slots.get(tag);
        let choices = self.program.choices.get(choices as usize).ok_or(Stop::NoOption)?;
        let value = match choices.signed {
            true => i128::from(value as i64),
            false => i128::from(value),
        };
        let chosen = choices.of.iter().find(|c| c.from <= value && value <= c.to);
        chosen.map(|c| c.steps).ok_or(Stop::NoOption)
    }
}

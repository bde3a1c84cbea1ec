//! Compiled form of a type, and the walk through bytes along it.
//!
//! A program is flat: structures, rows and variants are spans of steps, so that an event costs
//! loads and calls of the visitor, nothing else.

use std::sync::Arc;

use kymo_model::Endian;

use super::super::types::{Encoding, EnumMapping};
use super::bits::{Bits, DecodeError, Load, extend, mask};

/// Elements without a size that a walk passes before it gives up.
const MAX_EMPTY: u64 = 1 << 16;
/// No value is kept.
pub(crate) const NO_SLOT: u16 = u16::MAX;

/// The part of an event that fields belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Stream context, at the start of all events of a stream.
    StreamContext,
    /// Additional context of this event.
    EventContext,
    /// Its own fields.
    Fields,
}

/// Property of the event's task that a context field holds.
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

/// Use of a field of a header or packet context by the reader itself.
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

/// Constant properties of a field.
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
    pub labels: Option<Arc<[EnumMapping]>>,
    /// Whether the names are those of bits, by their numbers.
    pub bit_names: bool,
    /// Description of its type in words.
    pub type_text: String,
    /// Property of the task that it holds, if it is such a context.
    pub task: Option<TaskField>,
    pub(crate) role: Role,
    /// More roles of the same number.
    pub(crate) more_roles: Box<[Role]>,
}

impl FieldInfo {
    /// The names of a value, in the order of the declaration. An enumeration may have
    /// several for one.
    pub fn labels(&self, value: u64) -> impl Iterator<Item = &str> {
        let number = if self.signed { i128::from(value as i64) } else { i128::from(value) };
        let labels = self.labels.iter().flat_map(|l| l.iter());
        let is_of = move |l: &&EnumMapping| {
            if self.bit_names {
                value & bits_between(l.from, l.to) != 0
            } else {
                l.from <= number && number <= l.to
            }
        };
        // A name of bits may have several ranges of them.
        let mut last: Option<&str> = None;
        labels
            .filter(is_of)
            .map(|l| l.name.as_str())
            .filter(move |name| !(self.bit_names && last.replace(name) == Some(name)))
    }

    /// The first of the names of a value.
    pub fn first_label(&self, value: u64) -> Option<&str> {
        self.labels(value).next()
    }
}

/// Bits from one to another, both included.
fn bits_between(from: i128, to: i128) -> u64 {
    let below = |n: i128| mask(n.clamp(0, 64) as u32);
    below(to.saturating_add(1)) & !below(from)
}

/// Structure around fields.
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
    /// Starts a part of the event. The walk continues with the next part.
    fn part(&mut self, _part: Part) {}
    /// An integer of as many bits as its value needs.
    fn var_int(&mut self, field: &FieldInfo, value: u64, _bits: u32) {
        self.int(field, value);
    }
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

/// End of a text of wide characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WideLen {
    /// At a NUL.
    Nul,
    /// After a number of bytes.
    Of(Len),
}

/// Number of elements of a row.
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
    /// An integer in LEB128.
    VarInt {
        field: u32,
        save: u16,
    },
    /// Text in UTF-16 or UTF-32.
    Wide {
        field: u32,
        len: WideLen,
        encoding: Encoding,
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
    /// The options, which extend to `end`, are distinguished by `choices`.
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
    /// Whether nothing may be chosen, and what is chosen stands for itself.
    pub(crate) optional: bool,
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
    ) -> Result<(), DecodeError> {
        self.walk_first(self.steps.len(), bits, slots, visit)
    }

    /// Shows the visitor the fields of the first steps alone.
    #[inline]
    pub(crate) fn walk_first<V: Visit>(
        &self,
        steps: usize,
        bits: &mut Bits<'_>,
        slots: &mut Slots,
        visit: &mut V,
    ) -> Result<(), DecodeError> {
        let mut walk = Walk { program: self, slots, visit, empty: 0 };
        walk.span(0, steps, bits)
    }

    /// Moves behind what lies there.
    #[inline]
    pub(crate) fn skip(&self, bits: &mut Bits<'_>, slots: &mut Slots) -> Result<(), DecodeError> {
        if let Some(size) = self.fixed
            && bits.pos.is_multiple_of(8)
        {
            bits.pos += size;
            return if bits.within() { Ok(()) } else { Err(DecodeError::End) };
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
    fn span(&mut self, mut at: usize, end: usize, bits: &mut Bits<'_>) -> Result<(), DecodeError> {
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
                    let size = program.field(field).size;
                    let raw = bits.load(load, size)?;
                    let value = match size {
                        32 => f64::from(f32::from_bits(raw as u32)),
                        16 => half(raw),
                        _ => f64::from_bits(raw),
                    };
                    self.visit.float(program.field(field), value, size <= 32);
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
                    let choices =
                        program.choices.get(choices as usize).ok_or(DecodeError::NoOption)?;
                    match self.choose(tag, choices) {
                        Some((from, to)) if choices.optional => {
                            self.span(from as usize, to as usize, bits)?;
                        }
                        Some((from, to)) => {
                            self.visit.open(program.field(field), Group::Option, 1);
                            self.span(from as usize, to as usize, bits)?;
                            self.visit.close(Group::Option);
                        }
                        None if choices.optional => {}
                        None => return Err(DecodeError::NoOption),
                    }
                    at = end as usize;
                }
                Step::VarInt { field, save } => {
                    bits.align(8);
                    let info = program.field(field);
                    let (value, size) = bits.leb128(info.signed)?;
                    if save != NO_SLOT {
                        self.slots.set(save, value);
                    }
                    self.visit.var_int(info, value, size);
                }
                Step::Wide { field, len, encoding } => {
                    bits.align(8);
                    let text = match len {
                        WideLen::Nul => bits.units(encoding.unit())?,
                        WideLen::Of(len) => bits.take(self.len(len))?,
                    };
                    let text = wide_text(text, encoding);
                    self.visit.text(program.field(field), text.as_bytes());
                }
            }
            // Alignment alone may lead beyond the end.
            if !bits.within() {
                return Err(DecodeError::End);
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

    fn row(
        &mut self,
        at: usize,
        end: usize,
        n: u64,
        bits: &mut Bits<'_>,
    ) -> Result<(), DecodeError> {
        for _ in 0..n {
            let before = bits.pos;
            self.span(at, end, bits)?;
            if bits.pos == before {
                self.empty += 1;
                if self.empty > MAX_EMPTY {
                    return Err(DecodeError::Empty);
                }
            }
        }
        Ok(())
    }

    fn choose(&self, tag: u16, choices: &Choices) -> Option<(u32, u32)> {
        let value = self.slots.get(tag);
        let value = if choices.signed { i128::from(value as i64) } else { i128::from(value) };
        let chosen = choices.of.iter().find(|c| c.from <= value && value <= c.to);
        chosen.map(|c| c.steps)
    }
}

/// The value of a number of 16 bits in the format of IEEE 754.
#[cold]
fn half(bits: u64) -> f64 {
    let (sign, exponent, fraction) = (bits >> 15 & 1, bits >> 10 & 0x1f, bits & 0x3ff);
    let value = match exponent {
        0 => fraction as f64 * 2f64.powi(-24),
        31 if fraction == 0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024 + fraction) as f64 * 2f64.powi(exponent as i32 - 25),
    };
    if sign == 1 { -value } else { value }
}

/// Text of wide characters up to a NUL; what is no character is replaced.
#[cold]
fn wide_text(bytes: &[u8], encoding: Encoding) -> String {
    match encoding {
        Encoding::Utf16(endian) => {
            let unit = |u: &[u8; 2]| match endian {
                Endian::Little => u16::from_le_bytes(*u),
                Endian::Big => u16::from_be_bytes(*u),
            };
            let units = bytes.as_chunks().0.iter().map(unit).take_while(|u| *u != 0);
            let chars = char::decode_utf16(units);
            chars.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        Encoding::Utf32(endian) => {
            let unit = |u: &[u8; 4]| match endian {
                Endian::Little => u32::from_le_bytes(*u),
                Endian::Big => u32::from_be_bytes(*u),
            };
            let units = bytes.as_chunks().0.iter().map(unit).take_while(|u| *u != 0);
            units.map(|u| char::from_u32(u).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        Encoding::None | Encoding::Utf8 | Encoding::Ascii => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    }
}

//! Several fields of one event, read without looking for its payload each time.

use std::borrow::Cow;

use kymo_format::FieldKind;
use kymo_model::Endian;

use crate::event::RecordedEvent;
use crate::schema::{FieldId, FieldPlace, RecordedClass};
use crate::task_info::TaskComm;
use crate::value::FieldValue;

/// Fields of one event.
pub struct EventFields<'a, 'e> {
    event: &'a RecordedEvent<'e>,
    payload: Option<(&'a [u8], Endian)>,
}

impl<'e> RecordedEvent<'e> {
    /// Its fields, for who reads several of them.
    #[inline(always)]
    pub fn fields(&self) -> EventFields<'_, 'e> {
        EventFields { event: self, payload: self.payload() }
    }
}

/// A field of a class, with its place in payloads found once for all events.
#[derive(Clone, Copy, Debug)]
pub struct FieldReader {
    id: FieldId,
    place: ReaderPlace,
}

#[derive(Clone, Copy, Debug)]
enum ReaderPlace {
    Integer {
        at: usize,
        size: u32,
        signed: bool,
    },
    Text {
        at: usize,
        size: usize,
    },
    /// `__data_loc char[]`: where it is and how long it is stands at `at`.
    DynText {
        at: usize,
    },
    /// By the description of the field.
    Described,
}

impl RecordedClass {
    /// A reader of a field.
    pub fn reader(&self, id: FieldId) -> FieldReader {
        let place = match self.field_desc(id).map(|desc| &desc.place) {
            Some(FieldPlace::Payload(field)) => {
                let at = field.offset as usize;
                match field.kind {
                    FieldKind::Int => {
                        ReaderPlace::Integer { at, size: field.size, signed: field.signed }
                    }
                    FieldKind::String if field.size > 0 => {
                        ReaderPlace::Text { at, size: field.size as usize }
                    }
                    FieldKind::DynString { relative: false } if field.probe_text.is_none() => {
                        ReaderPlace::DynText { at }
                    }
                    _ => ReaderPlace::Described,
                }
            }
            _ => ReaderPlace::Described,
        };
        FieldReader { id, place }
    }
}

impl<'a> EventFields<'a, '_> {
    /// Value of an integer, sign-extended, by its reader.
    #[inline(always)]
    pub fn read_integer(&self, reader: &FieldReader) -> Option<i64> {
        if let (ReaderPlace::Integer { at, size, signed }, Some((payload, endian))) =
            (reader.place, self.payload)
        {
            match (size, signed) {
                (4, true) => return endian.u32_at(payload, at).map(|n| i64::from(n as i32)),
                (4, false) => return endian.u32_at(payload, at).map(i64::from),
                (8, _) => return endian.u64_at(payload, at).map(|n| n as i64),
                (1, false) => return payload.get(at).map(|n| i64::from(*n)),
                // Seldom.
                _ => {}
            }
        }
        self.integer(reader.id)
    }

    /// Text, up to its terminating zero, by its reader; empty where it is none.
    #[inline]
    pub fn read_text(&self, reader: &FieldReader) -> Cow<'a, [u8]> {
        if let (ReaderPlace::Text { at, size }, Some((payload, _))) = (reader.place, self.payload)
            && let Some(bytes) = at.checked_add(size).and_then(|end| payload.get(at..end))
        {
            let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
            return Cow::Borrowed(bytes.get(..end).unwrap_or(bytes));
        }
        self.text(reader.id)
    }

    /// Name of a task, by the reader of its field; empty where it is none.
    #[inline(always)]
    pub fn read_comm(&self, reader: &FieldReader) -> TaskComm {
        if let (ReaderPlace::Text { at, size: 16 }, Some((payload, _))) =
            (reader.place, self.payload)
            && let Some(bytes) = payload.get(at..).and_then(<[u8]>::first_chunk)
        {
            return TaskComm::from_field(bytes);
        }
        if let (ReaderPlace::DynText { at }, Some((payload, endian))) = (reader.place, self.payload)
            && let Some(loc) = endian.u32_at(payload, at)
            && let Some(bytes) = payload.get((loc & 0xffff) as usize..)
            && let Some(text) = bytes.get(..(loc >> 16) as usize)
        {
            return TaskComm::new(text);
        }
        TaskComm::new(&self.read_text(reader))
    }

    /// Value of an integer, sign-extended.
    #[inline]
    pub fn integer(&self, id: FieldId) -> Option<i64> {
        if let Some((payload, endian)) = self.payload
            && let FieldPlace::Payload(field) = &self.event.class.field_desc(id)?.place
        {
            return field.int(payload, endian);
        }
        self.event.field(id).number().map(|n| n as i64)
    }

    /// Copies the numbers of an array of 32 or 64 bits each, at most `count`.
    #[inline]
    pub fn read_array(&self, id: FieldId, count: usize, out: &mut [u64]) {
        let Some((payload, endian)) = self.payload else { return };
        let Some(desc) = self.event.class.field_desc(id) else { return };
        let FieldPlace::Payload(field) = &desc.place else { return };
        let bytes = field.bytes(payload, endian);
        if bytes.len() >= count * 8 {
            out.iter_mut().zip(bytes.as_chunks().0).for_each(|(o, b)| *o = endian.u64(*b));
        } else {
            out.iter_mut().zip(bytes.as_chunks().0).for_each(|(o, b)| *o = endian.u32(*b).into());
        }
    }

    /// Text, up to its terminating zero; empty where it is none.
    #[inline]
    pub fn text(&self, id: FieldId) -> Cow<'a, [u8]> {
        let Some(desc) = self.event.class.field_desc(id) else { return Cow::Borrowed(&[]) };
        if let (Some((payload, endian)), FieldPlace::Payload(field)) = (self.payload, &desc.place) {
            let bytes = field.bytes(payload, endian);
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            return Cow::Borrowed(bytes.get(..end).unwrap_or(bytes));
        }
        match self.event.field(id) {
            FieldValue::Text(text) => Cow::Owned(text.into_owned()),
            _ => Cow::Borrowed(&[]),
        }
    }
}

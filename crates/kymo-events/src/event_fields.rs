//! Several fields of one event, read without looking for its payload each time.

use std::borrow::Cow;

use kymo_model::Endian;

use crate::event::RecordedEvent;
use crate::schema::{FieldId, FieldPlace};
use crate::value::FieldValue;

/// Fields of one event.
pub struct EventFields<'a, 'e> {
    event: &'a RecordedEvent<'e>,
    payload: Option<(&'a [u8], Endian)>,
}

impl<'e> RecordedEvent<'e> {
    /// Its fields, for who reads several of them.
    #[inline]
    pub fn fields(&self) -> EventFields<'_, 'e> {
        EventFields { event: self, payload: self.payload() }
    }
}

impl<'a> EventFields<'a, '_> {
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

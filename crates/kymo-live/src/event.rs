//! One event and the values of its fields.

use std::borrow::Cow;

use kymo_events::{FieldValue, RecordedEvent};

/// An event. It is valid while it is handed out.
pub struct LiveEvent<'a, 'e> {
    event: &'a RecordedEvent<'e>,
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LiveValue<'e> {
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A truth value.
    Bool(bool),
    /// An address.
    Address(u64),
    /// A floating-point number.
    Float(f64),
    /// Text; bytes that are no UTF-8 are replaced.
    Text(Cow<'e, str>),
    /// A value with a name: the number, sign-extended, and number and name as they are shown.
    Enumeration(i64, String),
    /// Several values, as JSON.
    Compound(String),
}

impl<'a, 'e> LiveEvent<'a, 'e> {
    pub(crate) fn new(event: &'a RecordedEvent<'e>) -> LiveEvent<'a, 'e> {
        LiveEvent { event }
    }

    /// Name with its system or provider: `sched:sched_switch`.
    pub fn name(&self) -> &'a str {
        let class = self.event.class;
        class.full_name.as_str()
    }

    /// Time of `CLOCK_MONOTONIC` in nanoseconds.
    pub fn time(&self) -> Option<u64> {
        self.event.time
    }

    /// CPU that it happened on.
    pub fn cpu(&self) -> Option<u32> {
        self.event.cpu()
    }

    /// Process that it happened in.
    pub fn pid(&self) -> Option<u32> {
        self.event.task().pid
    }

    /// Thread that it happened in.
    pub fn tid(&self) -> Option<u32> {
        self.event.task().tid
    }

    /// Name of the thread.
    pub fn comm(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.event.task().comm())
    }

    /// Number of events that were lost on its CPU right before it; `Some(0)`: some were.
    pub fn lost_before(&self) -> Option<u64> {
        self.event.lost
    }

    /// Value of a field; `None` if the event has no such field.
    pub fn value(&self, field: &str) -> Option<LiveValue<'_>> {
        typed(self.event.field(self.event.class.field(field)?))
    }

    /// A field that is an integer, an address, a truth value or an enumerator. Of unsigned
    /// 64-bit values beyond `i64::MAX` ask [`Self::value`].
    pub fn integer(&self, field: &str) -> Option<i64> {
        let value = self.event.field(self.event.class.field(field)?);
        i64::try_from(value.number()?).ok()
    }

    /// A field that is text.
    pub fn text(&self, field: &str) -> Option<Cow<'_, str>> {
        match self.value(field)? {
            LiveValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Function of the kernel that a field's address lies in.
    pub fn function(&self, field: &str) -> Option<String> {
        let value = self.event.field(self.event.class.field(field)?);
        let address = u64::try_from(value.number()?).ok()?;
        let symbol = self.event.kernel_symbol(address).map(|(name, _)| name);
        symbol.or_else(|| self.event.function(address, true))
    }

    /// Names and values of its own fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, LiveValue<'_>)> {
        let class = self.event.class;
        class.own_fields().filter_map(move |field| {
            let value = self.event.field(class.field(&field.name)?);
            Some((field.name.as_str(), typed(value)?))
        })
    }

    /// Functions of its call chain, innermost first, where call chains are taken.
    pub fn call_chain(&self) -> Vec<String> {
        self.event.stack_names()
    }
}

fn typed(value: FieldValue<'_>) -> Option<LiveValue<'_>> {
    let text = |bytes: Cow<'_, [u8]>| String::from_utf8_lossy(&bytes).into_owned();
    let number = value.number();
    Some(match value {
        FieldValue::Signed(v) => LiveValue::Signed(v),
        FieldValue::Unsigned(v) => LiveValue::Unsigned(v),
        FieldValue::Bool(v) => LiveValue::Bool(v),
        FieldValue::Address(v) => LiveValue::Address(v),
        FieldValue::Float(v) => LiveValue::Float(v),
        FieldValue::Text(Cow::Borrowed(bytes)) => LiveValue::Text(String::from_utf8_lossy(bytes)),
        FieldValue::Text(bytes) => LiveValue::Text(text(bytes).into()),
        FieldValue::Enumeration { shown, .. } => {
            LiveValue::Enumeration(number? as i64, text(shown.into()))
        }
        FieldValue::Compound(shown) => LiveValue::Compound(text(shown.into())),
        FieldValue::Unread | FieldValue::Absent => return None,
    })
}

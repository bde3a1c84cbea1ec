//! Properties of JSON objects, with errors that name them.

use serde_json::{Map, Value};

/// Error in a fragment.
pub(super) type Wrong = String;

/// A JSON object whose properties are looked at.
#[derive(Clone, Copy)]
pub(super) struct Object<'j>(&'j Map<String, Value>);

impl<'j> Object<'j> {
    pub(super) fn new(value: &'j Value) -> Result<Object<'j>, Wrong> {
        value
            .as_object()
            .map(Object)
            .ok_or_else(|| format!("an object is expected, not {}", short(value)))
    }

    pub(super) fn get(self, name: &str) -> Option<&'j Value> {
        self.0.get(name)
    }

    /// A property that must be there.
    pub(super) fn need(self, name: &str) -> Result<&'j Value, Wrong> {
        self.get(name).ok_or_else(|| format!("`{name}` is missing"))
    }

    /// A property of text.
    pub(super) fn text(self, name: &str) -> Result<Option<&'j str>, Wrong> {
        self.typed(name, "text", Value::as_str)
    }

    /// A property of text that must be there.
    pub(super) fn need_text(self, name: &str) -> Result<&'j str, Wrong> {
        self.need(name)?;
        self.text(name).map(Option::unwrap_or_default)
    }

    /// A number from 0 on.
    pub(super) fn unsigned(self, name: &str) -> Result<Option<u64>, Wrong> {
        self.typed(name, "a number from 0 on", Value::as_u64)
    }

    /// A number.
    pub(super) fn signed(self, name: &str) -> Result<Option<i64>, Wrong> {
        self.typed(name, "a number of 64 bits", Value::as_i64)
    }

    /// The elements of an array; none if the property is missing.
    pub(super) fn array(self, name: &str) -> Result<&'j [Value], Wrong> {
        let array = self.typed(name, "an array", |v| v.as_array().map(Vec::as_slice))?;
        Ok(array.unwrap_or(&[]))
    }

    /// An object.
    pub(super) fn object(self, name: &str) -> Result<Option<Object<'j>>, Wrong> {
        self.typed(name, "an object", |v| v.as_object().map(Object))
    }

    pub(super) fn entries(self) -> impl Iterator<Item = (&'j str, &'j Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    fn typed<T>(
        self,
        name: &str,
        what: &str,
        read: impl Fn(&'j Value) -> Option<T>,
    ) -> Result<Option<T>, Wrong> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let wrong = || format!("`{name}` is {what}, not {}", short(value));
        read(value).map(Some).ok_or_else(wrong)
    }
}

/// A range of integers, both ends included.
pub(super) type Range = (i128, i128);

/// A set of ranges of integers.
pub(super) fn ranges(value: &Value) -> Result<Vec<Range>, Wrong> {
    let wrong = |value: &Value| format!("a range is two numbers in order, not {}", short(value));
    let range = |value: &Value| {
        let bounds = value.as_array().map(Vec::as_slice);
        let Some([from, to]) = bounds else { return Err(wrong(value)) };
        match (integer(from), integer(to)) {
            (Some(from), Some(to)) if from <= to => Ok((from, to)),
            _ => Err(wrong(value)),
        }
    };
    match value.as_array() {
        Some(ranges) if !ranges.is_empty() => ranges.iter().map(range).collect(),
        _ => Err(format!("ranges of integers are expected, not {}", short(value))),
    }
}

fn integer(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}

/// A value in messages.
pub(super) fn short(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::String(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        other => other.to_string(),
    }
}

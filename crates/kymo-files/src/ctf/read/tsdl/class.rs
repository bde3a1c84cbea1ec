//! Attributes, and the types that are nothing but attributes: integers, numbers,
//! strings.

use kymo_model::Endian;

use super::lex::{Token, Wrong};
use super::{MAX_ALIGN, Parser};
use crate::ctf::types::{Encoding, FieldPath, Float, Int};

/// The value of an attribute.
pub(super) enum Value {
    Number { negative: bool, value: u64 },
    Text(String),
    Path(Vec<String>),
}

impl Value {
    pub(super) fn unsigned(&self) -> Option<u64> {
        match self {
            Value::Number { negative: false, value } => Some(*value),
            _ => None,
        }
    }

    pub(super) fn signed(&self) -> Option<i64> {
        match self {
            Value::Number { negative: false, value } => i64::try_from(*value).ok(),
            Value::Number { negative: true, value } => 0i64.checked_sub_unsigned(*value),
            _ => None,
        }
    }

    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Value::Number { value, .. } => Some(*value != 0),
            Value::Path(words) => match words.as_slice() {
                [w] if matches!(w.as_str(), "true" | "TRUE") => Some(true),
                [w] if matches!(w.as_str(), "false" | "FALSE") => Some(false),
                _ => None,
            },
            Value::Text(_) => None,
        }
    }

    /// A word or a text.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(t) => Some(t),
            Value::Path(words) => match words.as_slice() {
                [w] => Some(w),
                _ => None,
            },
            Value::Number { .. } => None,
        }
    }
}

impl Parser<'_> {
    /// Reads the value of an attribute.
    pub(super) fn value(&mut self) -> Result<Value, Wrong> {
        let negative = match &self.next.1 {
            Token::Mark("-") => true,
            Token::Mark("+") => false,
            Token::Text(_) => match self.advance().1 {
                Token::Text(text) => return Ok(Value::Text(text)),
                _ => return self.unexpected("a value"),
            },
            Token::Number(_) => return self.number(false),
            _ => return self.path().map(|p| Value::Path(p.0)),
        };
        self.advance();
        self.number(negative)
    }

    fn number(&mut self, negative: bool) -> Result<Value, Wrong> {
        let Token::Number(value) = self.next.1 else { return self.unexpected("a number") };
        self.advance();
        Ok(Value::Number { negative, value })
    }

    /// `a.b.c`, or `a -> b`.
    pub(super) fn path(&mut self) -> Result<FieldPath, Wrong> {
        let mut words = vec![self.word("a name")?];
        while self.eat(".") || self.eat("->") {
            words.push(self.word("a name")?);
        }
        Ok(FieldPath(words))
    }

    /// `{ name = value; … }`; each is handed on with where it begins.
    fn attributes(
        &mut self,
        mut each: impl FnMut(&mut Self, usize, &str, Value) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        self.expect("{")?;
        while !self.eat("}") {
            let at = self.at();
            let name = self.path()?.to_string();
            self.expect("=")?;
            let value = self.value()?;
            self.expect(";")?;
            each(self, at, &name, value)?;
        }
        Ok(())
    }

    pub(super) fn align(&self, at: usize, value: &Value) -> Result<u32, Wrong> {
        match value.unsigned() {
            Some(n) if n.is_power_of_two() && n <= MAX_ALIGN => Ok(n as u32),
            _ => Err(Wrong::new(at, format!("an alignment is a power of two up to {MAX_ALIGN}"))),
        }
    }

    fn byte_order(&self, at: usize, value: &Value) -> Result<Endian, Wrong> {
        match value.text() {
            Some("le") => Ok(Endian::Little),
            Some("be" | "network") => Ok(Endian::Big),
            Some("native") => Ok(self.native),
            _ => Err(Wrong::new(at, "a byte order is le, be, network or native")),
        }
    }

    fn remark(&mut self, of: &str, name: &str) {
        let text = format!("attribute `{name}` of {of} means nothing here");
        if self.remarks.len() < 16 && !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }

    pub(super) fn integer(&mut self) -> Result<Int, Wrong> {
        let begin = self.at();
        let mut int = Int::unsigned(0, self.native);
        let mut align = None;
        self.attributes(|p, at, name, value| {
            let wrong = |what: &str| Err(Wrong::new(at, what));
            match name {
                "size" => match value.unsigned() {
                    Some(n @ 1..=64) => int.size = n as u32,
                    _ => return wrong("the size of an integer is 1 to 64 bits"),
                },
                "align" => align = Some(p.align(at, &value)?),
                "signed" => match value.truth() {
                    Some(yes) => int.signed = yes,
                    None => return wrong("`signed` is true or false"),
                },
                "byte_order" => int.byte_order = p.byte_order(at, &value)?,
                "base" => {
                    int.base = base(at, &value)?;
                    int.address = value.text() == Some("p");
                }
                "encoding" => int.encoding = encoding(at, &value)?,
                "map" => match &value {
                    Value::Path(words) => match words.as_slice() {
                        [clock, name, last] if clock == "clock" && last == "value" => {
                            int.clock = Some(name.as_str().into());
                        }
                        _ => return wrong("a map is `clock.NAME.value`"),
                    },
                    _ => return wrong("a map is `clock.NAME.value`"),
                },
                other => p.remark("an integer", other),
            }
            Ok(())
        })?;
        if int.size == 0 {
            return Err(Wrong::new(begin, "an integer needs a size"));
        }
        int.align = align.unwrap_or(if int.size.is_multiple_of(8) { 8 } else { 1 });
        Ok(int)
    }

    pub(super) fn floating_point(&mut self) -> Result<Float, Wrong> {
        let begin = self.at();
        let mut float = Float::double(self.native);
        (float.exp_dig, float.mant_dig, float.align) = (0, 0, 0);
        self.attributes(|p, at, name, value| {
            let digits = || match value.unsigned() {
                Some(n @ 1..=64) => Ok(n as u32),
                _ => Err(Wrong::new(at, format!("`{name}` is a number of digits"))),
            };
            match name {
                "exp_dig" => float.exp_dig = digits()?,
                "mant_dig" => float.mant_dig = digits()?,
                "align" => float.align = p.align(at, &value)?,
                "byte_order" => float.byte_order = p.byte_order(at, &value)?,
                other => p.remark("a number", other),
            }
            Ok(())
        })?;
        if !matches!((float.exp_dig, float.mant_dig), (8, 24) | (11, 53)) {
            return Err(Wrong::new(
                begin,
                format!(
                    "numbers have 8 and 24 or 11 and 53 digits, not {} and {}",
                    float.exp_dig, float.mant_dig
                ),
            ));
        }
        if float.align == 0 {
            float.align = 8;
        }
        Ok(float)
    }

    pub(super) fn string(&mut self) -> Result<Encoding, Wrong> {
        let mut of = Encoding::Utf8;
        if self.is("{") {
            self.attributes(|p, at, name, value| {
                match name {
                    "encoding" => of = encoding(at, &value)?,
                    other => p.remark("a string", other),
                }
                Ok(())
            })?;
        }
        Ok(of)
    }
}

fn base(at: usize, value: &Value) -> Result<u8, Wrong> {
    let number = value.unsigned();
    match (number, value.text()) {
        (Some(10), _) | (_, Some("decimal" | "dec" | "d" | "i" | "u")) => Ok(10),
        (Some(16), _) | (_, Some("hexadecimal" | "hex" | "x" | "X" | "p")) => Ok(16),
        (Some(8), _) | (_, Some("octal" | "oct" | "o")) => Ok(8),
        (Some(2), _) | (_, Some("binary" | "b")) => Ok(2),
        _ => Err(Wrong::new(at, "a base is 2, 8, 10 or 16")),
    }
}

fn encoding(at: usize, value: &Value) -> Result<Encoding, Wrong> {
    match value.text() {
        Some("none") => Ok(Encoding::None),
        Some("UTF8" | "utf8" | "UTF-8" | "utf-8") => Ok(Encoding::Utf8),
        Some("ASCII" | "ascii") => Ok(Encoding::Ascii),
        _ => Err(Wrong::new(at, "an encoding is UTF8, ASCII or none")),
    }
}

//! The blocks that make up the metadata: `trace`, `env`, `clock`, `stream`,
//! `event`. `callsite` blocks are passed over.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Parser;
use super::class::Value;
use super::lex::{Token, Wrong};
use crate::ctf::attributes;
use crate::ctf::types::{ClockClass, EnvValue, EventClass, StreamClass, Struct};

/// Streams of one trace, at most.
const MAX_STREAMS: usize = 1 << 12;

/// An event as it is declared.
pub(super) struct Declared {
    at: usize,
    stream: Option<u64>,
    event: EventClass,
}

/// Content of the braces of a block.
enum Item {
    Value(String, Value),
    Scope(String, Arc<Struct>),
}

impl Parser<'_> {
    /// Reads the whole text.
    pub(super) fn all(&mut self) -> Result<(), Wrong> {
        let mut traces = 0;
        loop {
            if self.declaration()? || self.eat(";") {
                continue;
            }
            let word = match &self.next.1 {
                Token::End if self.failed.is_none() => return Ok(()),
                Token::Word(word) => word.clone(),
                _ => return self.unexpected("a declaration"),
            };
            match word.as_str() {
                "struct" | "variant" | "enum" | "integer" | "floating_point" | "string" => {
                    self.named_type()?;
                    continue;
                }
                "trace" => {
                    traces += 1;
                    if traces > 1 {
                        return self.wrong("there is more than one `trace` block");
                    }
                    self.trace()?;
                }
                "env" => self.env()?,
                "clock" => self.clock()?,
                "stream" => self.stream()?,
                "event" => self.event()?,
                "callsite" => self.pass_over()?,
                _ => return self.unexpected("a declaration"),
            }
            if !self.eat(";") {
                return self.unexpected("`;`");
            }
        }
    }

    /// The items of a block.
    fn block(
        &mut self,
        mut each: impl FnMut(&mut Self, usize, Item) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        self.advance();
        self.expect("{")?;
        self.scopes.open();
        while !self.eat("}") {
            let at = self.at();
            if self.declaration()? {
                continue;
            }
            if let Some("struct" | "variant" | "enum") = self.peek_word() {
                self.named_type()?;
                continue;
            }
            let name = self.path()?.to_string();
            let item = if self.eat(":=") {
                Item::Scope(name, self.scope()?)
            } else {
                self.expect("=")?;
                Item::Value(name, self.value()?)
            };
            self.expect(";")?;
            each(self, at, item)?;
        }
        self.scopes.close();
        Ok(())
    }

    fn pass_over(&mut self) -> Result<(), Wrong> {
        self.advance();
        self.expect("{")?;
        let mut depth = 1u64;
        while depth > 0 {
            match self.advance().1 {
                Token::Mark("{") => depth += 1,
                Token::Mark("}") => depth -= 1,
                Token::End => return self.unexpected("`}`"),
                _ => {}
            }
        }
        Ok(())
    }

    fn unknown(&mut self, block: &str, name: &str) {
        let text = format!("attribute `{name}` of a {block} means nothing here");
        if self.remarks.len() < 16 && !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }

    fn trace(&mut self) -> Result<(), Wrong> {
        self.block(|p, at, item| {
            match item {
                Item::Scope(name, of) if name == "packet.header" => p.out.packet_header = Some(of),
                Item::Scope(name, _) => p.unknown("trace", &name),
                Item::Value(name, value) => match name.as_str() {
                    "major" if value.unsigned() != Some(1) => {
                        return Err(Wrong::new(at, "only version 1.8 is known"));
                    }
                    "minor" if value.unsigned() != Some(8) => {
                        return Err(Wrong::new(at, "only version 1.8 is known"));
                    }
                    "uuid" => p.out.uuid = Some(uuid(at, &value)?),
                    "major" | "minor" | "byte_order" => {}
                    other => p.unknown("trace", other),
                },
            }
            Ok(())
        })
    }

    fn env(&mut self) -> Result<(), Wrong> {
        self.block(|p, at, item| {
            let Item::Value(name, value) = item else {
                return Err(Wrong::new(at, "the environment holds values"));
            };
            let value = match (&value, value.text()) {
                (_, Some(text)) => EnvValue::Text(text.to_owned()),
                (Value::Number { negative: false, value }, _) => EnvValue::Int(*value as i64),
                _ => match value.signed() {
                    Some(n) => EnvValue::Int(n),
                    None => return Err(Wrong::new(at, "a value is a number or text")),
                },
            };
            match p.out.env.iter_mut().find(|(n, _)| *n == name) {
                Some((_, slot)) => *slot = value,
                None => p.out.env.push((name, value)),
            }
            Ok(())
        })
    }

    fn clock(&mut self) -> Result<(), Wrong> {
        let begin = self.at();
        let mut clock = ClockClass::new("");
        self.block(|p, at, item| {
            let Item::Value(name, value) = item else {
                return Err(Wrong::new(at, "a clock has values alone"));
            };
            let signed = || value.signed().ok_or_else(|| Wrong::new(at, "a number is expected"));
            match name.as_str() {
                "name" => clock.name = value.text().unwrap_or_default().to_owned(),
                "uuid" => clock.uuid = Some(uuid(at, &value)?),
                "description" => {
                    value.text().unwrap_or_default().clone_into(&mut clock.description);
                }
                "freq" => match value.unsigned() {
                    Some(freq @ 1..) => clock.freq = freq,
                    _ => return Err(Wrong::new(at, "a frequency is a number above 0")),
                },
                "precision" => clock.precision = value.unsigned().unwrap_or(0),
                "offset_s" => clock.offset_s = signed()?,
                "offset" => clock.offset = signed()?,
                "absolute" => clock.absolute = value.truth().unwrap_or(false),
                other => p.unknown("clock", other),
            }
            Ok(())
        })?;
        if clock.name.is_empty() {
            return Err(Wrong::new(begin, "a clock has no name"));
        }
        if self.out.clocks.iter().any(|c| c.name == clock.name) {
            return Err(Wrong::new(begin, format!("clock `{}` is declared twice", clock.name)));
        }
        self.out.clocks.push(clock);
        Ok(())
    }

    fn stream(&mut self) -> Result<(), Wrong> {
        let begin = self.at();
        let mut stream = StreamClass::default();
        self.block(|p, at, item| {
            match item {
                Item::Scope(name, of) => match name.as_str() {
                    "packet.context" => stream.packet_context = Some(of),
                    "event.header" => stream.event_header = Some(of),
                    "event.context" => stream.event_context = Some(of),
                    other => p.unknown("stream", other),
                },
                Item::Value(name, value) => match (name.as_str(), value.unsigned()) {
                    ("id", Some(id)) => stream.id = id,
                    ("id", None) => return Err(Wrong::new(at, "an id is a number")),
                    (other, _) => p.unknown("stream", other),
                },
            }
            Ok(())
        })?;
        if self.out.streams.iter().any(|s| s.id == stream.id) {
            return Err(Wrong::new(begin, format!("stream {} is declared twice", stream.id)));
        }
        if self.out.streams.len() >= MAX_STREAMS {
            return Err(Wrong::new(begin, format!("more than {MAX_STREAMS} streams")));
        }
        self.out.streams.push(stream);
        Ok(())
    }

    fn event(&mut self) -> Result<(), Wrong> {
        let at = self.at();
        let mut event = EventClass { doc: self.comment.take(), ..EventClass::default() };
        let mut stream = None;
        self.block(|p, at, item| {
            match item {
                Item::Scope(name, of) => match name.as_str() {
                    "context" => event.context = Some(of),
                    "fields" => event.fields = Some(of),
                    other => p.unknown("event", other),
                },
                Item::Value(name, value) => match (name.as_str(), value.unsigned()) {
                    ("name", _) => event.name = value.text().unwrap_or_default().to_owned(),
                    ("id", Some(id)) => event.id = id,
                    ("stream_id", Some(id)) => stream = Some(id),
                    ("id" | "stream_id", None) => {
                        return Err(Wrong::new(at, "an id is a number"));
                    }
                    ("loglevel", _) => event.loglevel = value.signed(),
                    ("model.emf.uri", _) => event.emf_uri = value.text().map(str::to_owned),
                    (other, _) => p.unknown("event", other),
                },
            }
            Ok(())
        })?;
        self.events.push(Declared { at, stream, event });
        Ok(())
    }

    /// Gives each event to its stream.
    pub(super) fn finish(&mut self) -> Result<(), Wrong> {
        let mut wrong = None;
        let mut index: FxHashMap<u64, usize> =
            self.out.streams.iter().enumerate().map(|(i, s)| (s.id, i)).collect();
        let mut seen = FxHashSet::default();
        let only = self.out.streams.first().map(|s| s.id).filter(|_| self.out.streams.len() == 1);
        for Declared { at, stream, event } in std::mem::take(&mut self.events) {
            let id = stream.or(only).unwrap_or(0);
            if self.out.streams.is_empty() {
                self.out.streams.push(StreamClass { id, ..StreamClass::default() });
                index.insert(id, 0);
            }
            let of = index.get(&id).and_then(|i| self.out.streams.get_mut(*i));
            match of {
                None => {
                    let what = format!("event `{}` is of stream {id}, which is not", event.name);
                    wrong.get_or_insert(Wrong::new(at, what));
                }
                Some(_) if !seen.insert((id, event.id)) => {
                    let what = format!("stream {id} has two events of number {}", event.id);
                    wrong.get_or_insert(Wrong::new(at, what));
                }
                Some(of) => of.events.push(event),
            }
        }
        for name in attributes::take(&mut self.out) {
            self.unknown("trace's environment", &name);
        }
        wrong.map_or(Ok(()), Err)
    }
}

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
fn uuid(at: usize, value: &Value) -> Result<[u8; 16], Wrong> {
    let wrong = || Wrong::new(at, "a uuid is 32 hexadecimal digits in five groups");
    let text = value.text().ok_or_else(wrong)?;
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    if text.len() != 36 || digits.len() != 32 {
        return Err(wrong());
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(uuid)
}

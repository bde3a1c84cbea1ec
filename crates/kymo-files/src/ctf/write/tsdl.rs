//! [`Metadata`] as TSDL, in a form that babeltrace2 reads without a remark.

use std::fmt::{self, Write};

use kymo_model::Endian;

use crate::ctf::attributes;
use crate::ctf::types::{
    ClockClass, Encoding, Enum, EnvValue, EventClass, Float, Int, Metadata, StreamClass, Struct,
    StructureMember, Type,
};

impl Metadata {
    /// The text of the `metadata` file. Documentation of events stands before them as
    /// comments. The text ends before a type that only CTF 2 has.
    pub fn to_tsdl(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail; types of CTF 2 are the reader's.
        let _ = self.print(&mut Printer { out: &mut out, native: self.byte_order, depth: 0 });
        out
    }

    fn print(&self, p: &mut Printer<'_>) -> fmt::Result {
        p.line("/* CTF 1.8 */\n")?;
        self.print_trace(p)?;
        let attributes = attributes::of(self);
        if !self.env.is_empty() || !attributes.is_empty() {
            p.open("env")?;
            for (name, value) in self.env.iter().chain(&attributes) {
                match value {
                    EnvValue::Int(n) => p.value(name, n)?,
                    EnvValue::Text(t) => p.text(name, t)?,
                }
            }
            p.close()?;
        }
        self.clocks.iter().try_for_each(|c| c.print(p))?;
        self.streams.iter().try_for_each(|s| s.print(p))
    }

    fn print_trace(&self, p: &mut Printer<'_>) -> fmt::Result {
        p.open("trace")?;
        p.value("major", 1)?;
        p.value("minor", 8)?;
        if let Some(id) = &self.uuid {
            p.text("uuid", &uuid(id))?;
        }
        p.value("byte_order", order(self.byte_order))?;
        p.scope("packet.header", self.packet_header.as_deref())?;
        p.close()
    }
}

impl ClockClass {
    fn print(&self, p: &mut Printer<'_>) -> fmt::Result {
        p.open("clock")?;
        p.text("name", &self.name)?;
        if let Some(id) = &self.uuid {
            p.text("uuid", &uuid(id))?;
        }
        if !self.description.is_empty() {
            p.text("description", &self.description)?;
        }
        p.value("freq", self.freq)?;
        if self.precision != 0 {
            p.value("precision", self.precision)?;
        }
        p.value("offset_s", self.offset_s)?;
        p.value("offset", self.offset)?;
        p.value("absolute", if self.absolute { "true" } else { "false" })?;
        p.close()
    }
}

impl StreamClass {
    fn print(&self, p: &mut Printer<'_>) -> fmt::Result {
        p.open("stream")?;
        p.value("id", self.id)?;
        p.scope("packet.context", self.packet_context.as_deref())?;
        p.scope("event.header", self.event_header.as_deref())?;
        p.scope("event.context", self.event_context.as_deref())?;
        p.close()?;
        self.events.iter().try_for_each(|e| e.print(self.id, p))
    }
}

impl EventClass {
    /// The text of this event's declaration, to be added to metadata that were written
    /// before. `byte_order` is that of the trace.
    pub fn to_tsdl(&self, stream: u64, byte_order: Endian) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.print(stream, &mut Printer { out: &mut out, native: byte_order, depth: 0 });
        out
    }

    fn print(&self, stream: u64, p: &mut Printer<'_>) -> fmt::Result {
        if let Some(doc) = &self.doc {
            p.line("/*")?;
            for line in doc.lines() {
                // Nothing in it may end the comment.
                p.line(format!(" * {}", line.replace("*/", "* /")).trim_end())?;
            }
            p.line(" */")?;
        }
        p.open("event")?;
        p.text("name", &self.name)?;
        p.value("id", self.id)?;
        p.value("stream_id", stream)?;
        if let Some(level) = self.loglevel {
            p.value("loglevel", level)?;
        }
        if let Some(uri) = &self.emf_uri {
            p.text("model.emf.uri", uri)?;
        }
        p.scope("context", self.context.as_deref())?;
        p.scope("fields", self.fields.as_deref())?;
        p.close()
    }
}

struct Printer<'o> {
    out: &'o mut String,
    native: Endian,
    depth: usize,
}

impl Printer<'_> {
    fn line(&mut self, text: &str) -> fmt::Result {
        writeln!(self.out, "{}{text}", "\t".repeat(self.depth))
    }

    fn open(&mut self, block: &str) -> fmt::Result {
        self.line(&format!("{block} {{"))?;
        self.depth += 1;
        Ok(())
    }

    fn close(&mut self) -> fmt::Result {
        self.depth -= 1;
        self.line("};\n")
    }

    fn value(&mut self, name: &str, value: impl fmt::Display) -> fmt::Result {
        self.line(&format!("{name} = {value};"))
    }

    fn text(&mut self, name: &str, text: &str) -> fmt::Result {
        self.line(&format!("{name} = {};", quoted(text)))
    }

    fn scope(&mut self, name: &str, of: Option<&Struct>) -> fmt::Result {
        let Some(of) = of else { return Ok(()) };
        write!(self.out, "{}{name} := ", "\t".repeat(self.depth))?;
        self.structure(of)?;
        self.out.write_str(";\n")
    }

    fn structure(&mut self, of: &Struct) -> fmt::Result {
        self.out.write_str("struct ")?;
        self.fields(&of.fields)?;
        if of.align > 1 {
            write!(self.out, " align({})", of.align)?;
        }
        Ok(())
    }

    fn fields(&mut self, fields: &[StructureMember]) -> fmt::Result {
        self.out.write_str("{\n")?;
        self.depth += 1;
        for field in fields {
            write!(self.out, "{}", "\t".repeat(self.depth))?;
            self.field(field)?;
        }
        self.depth -= 1;
        write!(self.out, "{}}}", "\t".repeat(self.depth))
    }

    /// Lengths stand behind the name, the outermost first.
    fn field(&mut self, field: &StructureMember) -> fmt::Result {
        let mut lengths = String::new();
        let mut of = &field.of;
        loop {
            of = match of {
                Type::Array(inner, n) => {
                    write!(lengths, "[{n}]")?;
                    inner
                }
                Type::Sequence(inner, path) => {
                    write!(lengths, "[{path}]")?;
                    inner
                }
                _ => break,
            };
        }
        self.class(of)?;
        writeln!(self.out, " {}{lengths};", field.name)
    }

    fn class(&mut self, of: &Type) -> fmt::Result {
        match of {
            Type::Int(int) => self.integer(int),
            Type::Float(float) => self.float(float),
            Type::Enum(e) => self.enumeration(e),
            Type::Text(Encoding::Ascii) => self.out.write_str("string { encoding = ASCII; }"),
            Type::Text(Encoding::Utf16(_) | Encoding::Utf32(_)) => Err(fmt::Error),
            Type::Text(_) => self.out.write_str("string"),
            Type::Struct(of) => self.structure(of),
            Type::Variant(of) => {
                write!(self.out, "variant <{}> ", of.tag)?;
                self.fields(&of.options)
            }
            Type::VarInt(_) | Type::Selection(_) | Type::Aligned(..) => Err(fmt::Error),
            // Taken off by the field.
            Type::Array(of, _) | Type::Sequence(of, _) => self.class(of),
        }
    }

    fn order(&mut self, of: Endian) -> fmt::Result {
        if of == self.native {
            return Ok(());
        }
        write!(self.out, " byte_order = {};", order(of))
    }

    fn integer(&mut self, int: &Int) -> fmt::Result {
        let Int { size, align, signed, .. } = int;
        write!(self.out, "integer {{ size = {size}; align = {align}; signed = {signed};")?;
        if int.address {
            self.out.write_str(" base = p;")?;
        } else if int.base != 10 {
            write!(self.out, " base = {};", int.base)?;
        }
        match int.encoding {
            Encoding::None => {}
            Encoding::Utf8 => self.out.write_str(" encoding = UTF8;")?,
            Encoding::Ascii => self.out.write_str(" encoding = ASCII;")?,
            Encoding::Utf16(_) | Encoding::Utf32(_) => return Err(fmt::Error),
        }
        self.order(int.byte_order)?;
        if let Some(clock) = &int.clock {
            write!(self.out, " map = clock.{clock}.value;")?;
        }
        self.out.write_str(" }")
    }

    fn float(&mut self, float: &Float) -> fmt::Result {
        let Float { exp_dig, mant_dig, align, byte_order, .. } = *float;
        let digits = format!("exp_dig = {exp_dig}; mant_dig = {mant_dig};");
        write!(self.out, "floating_point {{ {digits} align = {align};")?;
        self.order(byte_order)?;
        self.out.write_str(" }")
    }

    fn enumeration(&mut self, of: &Enum) -> fmt::Result {
        self.out.write_str("enum : ")?;
        self.integer(&of.int)?;
        self.out.write_str(" {\n")?;
        self.depth += 1;
        for label in of.labels.iter() {
            let name = quoted(&label.name);
            if label.from == label.to {
                self.line(&format!("{name} = {},", label.from))?
            } else {
                self.line(&format!("{name} = {} ... {},", label.from, label.to))?
            }
        }
        self.depth -= 1;
        write!(self.out, "{}}}", "\t".repeat(self.depth))
    }
}

fn order(of: Endian) -> &'static str {
    match of {
        Endian::Little => "le",
        Endian::Big => "be",
    }
}

pub(super) fn uuid(id: &[u8; 16]) -> String {
    let mut out = String::with_capacity(36);
    for (i, byte) in id.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// A text in quotes.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            // Octal: a digit that follows is not taken for one of it.
            c if c.is_ascii_control() => _ = write!(out, "\\{:03o}", c as u32),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

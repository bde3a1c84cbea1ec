//! An event of a program as a line or a JSON object: its print format with the
//! fields put in, or the fields by their names.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use kymo_format::json_string;
use kymo_record::ust::PacketEvent;
use kymo_ust::{EventRecord, FieldRecord, Kind, Shape};

use super::functions::Functions;

const TASK: Style = AnsiColor::Cyan.on_default();
const EVENT: Style = AnsiColor::Yellow.on_default().bold();

/// How events are shown.
pub(super) struct Text {
    pub(super) json: bool,
    pub(super) colour: bool,
    /// Letters between CPU and time that events of the kernel beside have.
    pub(super) flags: usize,
}

/// What is so in a program: no interrupt, nothing switched off.
const FLAGS: &str = "..... ";

impl Text {
    /// Appends an event and the line's end.
    pub(super) fn event(
        &self,
        comm: &str,
        cpu: i32,
        time: u64,
        event: &PacketEvent<'_>,
        functions: &mut Functions,
        out: &mut Vec<u8>,
    ) {
        let record = event.record;
        let values = values(record, event.payload);
        if self.json {
            return json(comm, cpu, time, event, &values, functions, out);
        }
        // As the kernel's own lines round.
        let micros = time.saturating_add(500) / 1000;
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let (task, name) = match self.colour {
            true => (TASK, EVENT),
            false => (Style::new(), Style::new()),
        };
        let cpu = if cpu < 0 { "[ - ]".to_owned() } else { format!("[{cpu:03}]") };
        let flags = match self.flags {
            0 => "",
            n => FLAGS.get(FLAGS.len().saturating_sub(n + 1)..).unwrap_or(FLAGS),
        };
        let _ = write!(
            out,
            "{task}{comm:>16}-{:<7}{task:#} {cpu} {flags}{seconds:>5}.{micros:06}: \
             {name}{}:{}{name:#}: ",
            event.tid, record.provider, record.name
        );
        payload(record, &values, functions, out);
        out.push(b'\n');
    }
}

/// The bytes of each field.
fn values<'a>(record: &'a EventRecord, mut payload: &'a [u8]) -> Vec<(&'a FieldRecord, &'a [u8])> {
    let mut values = Vec::with_capacity(record.fields.len());
    for field in &record.fields {
        let Some((value, rest)) =
            field.shape.size_in(payload).and_then(|len| payload.split_at_checked(len))
        else {
            break;
        };
        payload = rest;
        values.push((field, value));
    }
    values
}

fn payload(
    record: &EventRecord,
    values: &[(&FieldRecord, &[u8])],
    functions: &mut Functions,
    out: &mut Vec<u8>,
) {
    if record.format.is_empty() {
        for (i, (field, value)) in values.iter().enumerate() {
            let blank = if i == 0 { "" } else { " " };
            let _ = write!(out, "{blank}{}=", printable(&field.name));
            one(field, value, false, functions, out);
        }
        return;
    }
    let mut rest = record.format.as_str();
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        out.extend_from_slice(printable(before).as_bytes());
        let brace = &from[..1];
        if let Some(behind) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
            out.extend_from_slice(brace.as_bytes());
            rest = behind;
            continue;
        }
        let inside = from.strip_prefix('{').and_then(|f| f.split_once('}'));
        let Some((inside, behind)) = inside else {
            out.extend_from_slice(brace.as_bytes());
            rest = &from[1..];
            continue;
        };
        let (name, how) = inside.split_once(':').unwrap_or((inside, ""));
        match values.iter().find(|(f, _)| f.name == name) {
            Some((field, value)) => one(field, value, how.contains('x'), functions, out),
            None => out.extend_from_slice(printable(&format!("{{{inside}}}")).as_bytes()),
        }
        rest = behind;
    }
    out.extend_from_slice(printable(rest).as_bytes());
}

/// Control characters of a program must not reach the terminal.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// A value as text.
fn one(field: &FieldRecord, value: &[u8], hex: bool, functions: &mut Functions, out: &mut Vec<u8>) {
    let shape = field.shape;
    match shape.kind {
        Kind::String => out.extend_from_slice(printable(&text_of(value)).as_bytes()),
        Kind::Bool => out.extend_from_slice(truth(value)),
        Kind::Enum => {
            let number = integer(value, shape);
            match named(field, number) {
                Some(name) if !hex => out.extend_from_slice(printable(name).as_bytes()),
                _ => element(value, shape, hex, out),
            }
        }
        Kind::Symbol => match function(value, functions) {
            Some(name) if !hex => out.extend_from_slice(printable(&name).as_bytes()),
            _ => element(value, shape, true, out),
        },
        Kind::Int | Kind::Float => element(value, shape, hex, out),
        Kind::Array | Kind::Sequence => {
            out.push(b'[');
            for (i, e) in elements(value, shape).enumerate() {
                if i > 0 {
                    out.extend_from_slice(b", ");
                }
                element(e, shape, hex, out);
            }
            out.push(b']');
        }
    }
}

fn truth(value: &[u8]) -> &'static [u8] {
    if value == [0] { b"false" } else { b"true" }
}

/// What is at an address in the program, as function and offset.
fn function(value: &[u8], functions: &mut Functions) -> Option<String> {
    let (name, within) = functions.name(u64::from_le_bytes(value.try_into().ok()?))?;
    Some(format!("{name}+{within:#x}"))
}

fn elements(value: &[u8], shape: Shape) -> impl Iterator<Item = &[u8]> {
    let from = if shape.kind == Kind::Sequence { 4 } else { 0 };
    value.get(from..).unwrap_or_default().chunks_exact(usize::from(shape.size).max(1))
}

fn element(bytes: &[u8], shape: Shape, hex: bool, out: &mut Vec<u8>) {
    let floats = shape.kind == Kind::Float || shape.flags & Shape::FLOATS != 0;
    let _ = match (floats, bytes.try_into(), bytes.try_into()) {
        (true, Ok(four), _) => write!(out, "{}", f32::from_le_bytes(four)),
        (true, _, Ok(eight)) => write!(out, "{}", f64::from_le_bytes(eight)),
        _ if hex || shape.flags & Shape::HEX != 0 => {
            write!(out, "{:#x}", integer(bytes, Shape { flags: 0, ..shape }))
        }
        _ => write!(out, "{}", integer(bytes, shape)),
    };
}

/// Up to eight bytes, little endian, with their sign.
fn integer(bytes: &[u8], shape: Shape) -> i128 {
    let mut wide = [0; 16];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    let value = i128::from_le_bytes(wide);
    let bits = 8 * bytes.len().min(8) as u32;
    let negative = shape.flags & Shape::SIGNED != 0 && bits > 0 && value >> (bits - 1) & 1 == 1;
    if negative { value - (1 << bits) } else { value }
}

fn named(field: &FieldRecord, number: i128) -> Option<&str> {
    let of = |(low, high, _): &&(i64, i64, String)| {
        (i128::from(*low)..=i128::from(*high)).contains(&number)
    };
    field.entries.iter().find(of).map(|(_, _, name)| name.as_str())
}

fn text_of(value: &[u8]) -> String {
    let text = value.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn json(
    comm: &str,
    cpu: i32,
    time: u64,
    event: &PacketEvent<'_>,
    values: &[(&FieldRecord, &[u8])],
    functions: &mut Functions,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"comm\":");
    json_string(out, comm.as_bytes());
    let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
    let _ = write!(
        out,
        ",\"tid\":{},\"cpu\":{cpu},\"time\":{seconds}.{nanoseconds:09},\"event\":",
        event.tid
    );
    json_string(out, format!("{}:{}", event.record.provider, event.record.name).as_bytes());
    out.extend_from_slice(b",\"fields\":{");
    for (i, (field, value)) in values.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        json_string(out, field.name.as_bytes());
        out.push(b':');
        json_value(field, value, functions, out);
    }
    out.extend_from_slice(b"}}\n");
}

fn json_value(field: &FieldRecord, value: &[u8], functions: &mut Functions, out: &mut Vec<u8>) {
    match field.shape.kind {
        Kind::String => json_string(out, text_of(value).as_bytes()),
        Kind::Bool => out.extend_from_slice(truth(value)),
        Kind::Enum => match named(field, integer(value, field.shape)) {
            Some(name) => json_string(out, name.as_bytes()),
            None => json_number(value, field.shape, out),
        },
        Kind::Symbol => match function(value, functions) {
            Some(name) => json_string(out, name.as_bytes()),
            None => json_number(value, field.shape, out),
        },
        Kind::Int | Kind::Float => json_number(value, field.shape, out),
        Kind::Array | Kind::Sequence => {
            out.push(b'[');
            for (i, e) in elements(value, field.shape).enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                json_number(e, field.shape, out);
            }
            out.push(b']');
        }
    }
}

/// JSON has no hexadecimal numbers, and no infinite ones.
fn json_number(bytes: &[u8], shape: Shape, out: &mut Vec<u8>) {
    let mut text = Vec::new();
    element(bytes, Shape { flags: shape.flags & !Shape::HEX, ..shape }, false, &mut text);
    match text.iter().all(|b| b.is_ascii_digit() || b"+-.e".contains(b)) {
        true => out.extend_from_slice(&text),
        false => json_string(out, &text),
    }
}

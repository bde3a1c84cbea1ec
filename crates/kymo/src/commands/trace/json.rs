//! One JSON object per line: task, CPU, flags, time, event and its typed fields.

use std::io::Write as _;

use kymo_format::{flag_letters, json_string};
use kymo_model::Endian;

use super::names::{Formats, Tasks};
use kymo_events::payload;

/// Appends an event; false if its format is not known any more.
pub(super) fn event(
    tasks: &mut Tasks,
    formats: &mut Formats,
    (cpu, time, bytes): (u32, u64, &[u8]),
    out: &mut Vec<u8>,
) -> bool {
    let Some(format) = formats.of(bytes) else { return false };
    let [_, _, flags, preempt, a, b, c, d, ..] = *bytes else { return false };
    let tid = i32::from_ne_bytes([a, b, c, d]);
    out.extend_from_slice(b"{\"comm\":");
    json_string(out, tasks.comm(tid));
    let _ = write!(out, ",\"tid\":{tid},\"cpu\":{cpu},\"flags\":");
    json_string(out, &flag_letters(flags, preempt));
    let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
    let _ = write!(out, ",\"time\":{seconds}.{nanoseconds:09},\"event\":");
    json_string(out, format!("{}:{}", format.system, format.name).as_bytes());
    out.extend_from_slice(b",\"fields\":");
    payload::json(format, bytes, Endian::NATIVE, out);
    out.extend_from_slice(b"}\n");
    true
}

pub(super) fn lost(cpu: u32, count: Option<u64>, out: &mut Vec<u8>) {
    let _ = match count {
        Some(n) => writeln!(out, "{{\"lost\":{n},\"cpu\":{cpu}}}"),
        None => writeln!(out, "{{\"lost\":null,\"cpu\":{cpu}}}"),
    };
}

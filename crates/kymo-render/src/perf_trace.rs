//! Tracepoints as perf trace writes them: `system:name(field: value, …)`, without fields that are
//! zero.

use std::io::Write as _;

use kymo_format::{EventFormat, Field, FieldKind};
use kymo_model::Endian;

use crate::enum_names::EnumNames;

/// Layout of the lines, and what they need beside the event.
#[derive(Clone, Debug, Default)]
pub struct PerfTraceOptions {
    /// Lines begin with the thread's number alone.
    pub no_comm: bool,
    /// Names of the values of enumerations.
    pub enums: EnumNames,
}

/// Beginnings of lines, with times since the first one.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerfTraceStarts {
    pub(crate) options: PerfTraceOptions,
    origin: Option<u64>,
}

impl PerfTraceStarts {
    pub(crate) fn new(options: PerfTraceOptions) -> PerfTraceStarts {
        PerfTraceStarts { options, origin: None }
    }

    /// Appends milliseconds since the first line. Lines of calls come in the order of their ends,
    /// so one may begin before the first.
    pub(crate) fn time(&mut self, time: u64, out: &mut Vec<u8>) {
        let origin = *self.origin.get_or_insert(time);
        let since = (i128::from(time) - i128::from(origin)) as f64 / 1e6;
        let _ = write!(out, "{since:>10.3} ");
    }

    /// Appends who it was.
    pub(crate) fn task(&self, comm: &[u8], tid: i32, out: &mut Vec<u8>) {
        if !self.options.no_comm {
            out.extend(comm.iter().map(|b| if b.is_ascii_control() { b'?' } else { *b }));
            out.push(b'/');
        }
        let _ = write!(out, "{tid} ");
    }

    /// Appends an event's name and fields.
    pub(crate) fn event(
        &self,
        (name, format): (&str, &EventFormat),
        payload: &[u8],
        endian: Endian,
        out: &mut Vec<u8>,
    ) {
        let _ = write!(out, "{name}(");
        let mut separator = "";
        for field in format.own_fields() {
            let mut value = Vec::new();
            self.value(field, payload, endian, &mut value);
            if !value.is_empty() {
                let _ = write!(out, "{separator}{}: ", field.name);
                out.extend(value);
                separator = ", ";
            }
        }
        out.push(b')');
    }

    /// Appends a value, nothing of one that is zero or empty.
    fn value(&self, field: &Field, payload: &[u8], endian: Endian, out: &mut Vec<u8>) {
        match field.kind {
            FieldKind::String | FieldKind::DynString { .. } => {
                let bytes = field.bytes(payload, endian);
                let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
                let text = String::from_utf8_lossy(text);
                if !text.is_empty() {
                    let _ = write!(out, "\"{}\"", text.escape_debug());
                }
            }
            FieldKind::Int | FieldKind::Bool | FieldKind::Pointer => {
                let Some(value) = field.int(payload, endian) else { return };
                if let Some(name) = self.options.enums.name(&field.type_text, value) {
                    let _ = write!(out, "{name}");
                } else if value != 0 {
                    let _ = match (&field.kind, field.signed) {
                        (FieldKind::Pointer, _) => write!(out, "{value:#x}"),
                        (_, true) => write!(out, "{value}"),
                        (_, false) => write!(out, "{}", value.cast_unsigned()),
                    };
                }
            }
            _ => {
                let bytes = field.bytes(payload, endian);
                if bytes.iter().any(|b| *b != 0) {
                    let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
                    let _ = write!(out, "{}", hex.join(" "));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: hrtimer_start\nID: 7\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \n\
        \tfield:void * hrtimer;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:s64 expires;\toffset:16;\tsize:8;\tsigned:1;\n\
        \tfield:enum hrtimer_mode mode;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:bool was_armed;\toffset:28;\tsize:1;\tsigned:0;\n\
        \tfield:char name[3];\toffset:29;\tsize:3;\tsigned:0;\n\
        \nprint fmt: \"x\"\n";

    #[test]
    fn zeros_are_left_out_and_enumerations_named() {
        let format = EventFormat::parse(FORMAT).unwrap();
        let mut payload = vec![0u8; 8];
        payload.extend(0xffff_8886_u64.to_le_bytes());
        payload.extend((-5i64).to_le_bytes());
        payload.extend(0u32.to_le_bytes());
        payload.extend([0, b'a', b'"', 0]);
        let enums = EnumNames::new(|name| match name {
            "hrtimer_mode" => vec![(0, "HRTIMER_MODE_ABS".to_owned())],
            _ => Vec::new(),
        });
        let mut starts = PerfTraceStarts::new(PerfTraceOptions { no_comm: true, enums });
        let mut line = Vec::new();
        starts.time(1_000_000, &mut line);
        starts.task(b"task", 42, &mut line);
        starts.event(("timer:hrtimer_start", &format), &payload, Endian::Little, &mut line);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "     0.000 42 timer:hrtimer_start(hrtimer: 0xffff8886, expires: -5, mode: \
             HRTIMER_MODE_ABS, name: \"a\\\"\")"
        );
        let mut line = Vec::new();
        starts.time(500_000, &mut line);
        starts.options.no_comm = false;
        starts.task(b"a\x1bb", 1, &mut line);
        assert_eq!(line, b"    -0.500 a?b/1 ");
    }
}

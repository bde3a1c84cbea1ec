//! Text of values and maps.

use std::io::Write as _;

use kymo_bpf::ValueType;

use super::PrintedMap;
use super::histogram::write_bars;
use super::json::key_text;
use crate::address_names::local_time;
use crate::value::ProgramValue;

/// A map: a line an entry; histograms and time series have a block each.
pub(super) fn write_map(out: &mut Vec<u8>, map: &PrintedMap<'_>, is_old: bool) {
    for (key, value) in &map.entries {
        out.extend(map.name.as_bytes());
        if let Some(key) = key {
            out.push(b'[');
            if is_old {
                write_old_key(out, key)
            } else {
                write_key(out, key)
            }
            out.push(b']');
        }
        match value {
            ProgramValue::Histogram(buckets) => {
                out.extend(if is_old { &b": \n"[..] } else { b":\n" });
                write_bars(out, buckets);
                out.push(b'\n');
            }
            ProgramValue::Series(interval, points) => {
                out.extend(b":\n");
                write_series(out, *interval, points);
                out.push(b'\n');
            }
            value => {
                out.extend(b": ");
                write_map_value(out, value, is_old);
                out.push(b'\n');
            }
        }
    }
    let is_statistics =
        matches!(map.value_type, ValueType::Average { .. } | ValueType::Statistics { .. });
    if is_old && is_statistics && !map.entries.is_empty() {
        out.push(b'\n');
    }
}

/// A value of a map.
pub(super) fn write_map_value(out: &mut Vec<u8>, value: &ProgramValue, is_old: bool) {
    match value {
        ProgramValue::Statistics(count, average, total) if is_old => {
            let (average, total) = (average.to_text(), total.to_text());
            let _ = write!(out, "count {count}, average {average}, total {total}");
        }
        value => write_value(out, value),
    }
}

/// A key as bpftrace 0.17 has it: structures without blanks, stacks less far to the right.
fn write_old_key(out: &mut Vec<u8>, key: &ProgramValue) {
    match key {
        ProgramValue::Tuple(parts) => {
            for (i, part) in parts.iter().enumerate() {
                if i > 0 {
                    out.extend(b", ");
                }
                write_old_key(out, part);
            }
        }
        ProgramValue::Record(_) => out.extend(key_text(key)),
        ProgramValue::Stack(lines) | ProgramValue::RawStack(lines) => {
            out.push(b'\n');
            lines.iter().for_each(|line| out.extend(format!("    {line}\n").as_bytes()));
        }
        key => write_value(out, key),
    }
}

/// A key: parts of a tuple stand without parentheses.
fn write_key(out: &mut Vec<u8>, key: &ProgramValue) {
    match key {
        ProgramValue::Tuple(parts) => write_list(out, parts),
        key => write_value(out, key),
    }
}

fn write_list(out: &mut Vec<u8>, parts: &[ProgramValue]) {
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            out.extend(b", ");
        }
        write_value(out, part);
    }
}

/// A value.
pub(crate) fn write_value(out: &mut Vec<u8>, value: &ProgramValue) {
    let _ = match value {
        ProgramValue::Empty => Ok(()),
        ProgramValue::Signed(n) => write!(out, "{n}"),
        ProgramValue::Unsigned(n) => write!(out, "{n}"),
        ProgramValue::Boolean(b) => write!(out, "{b}"),
        ProgramValue::Pointer(address) => write!(out, "0x{address:x}"),
        ProgramValue::Enumerator(_, name) => out.write_all(name.as_bytes()),
        ProgramValue::Number(digits) => out.write_all(digits.as_bytes()),
        ProgramValue::Text(text) => out.write_all(text),
        ProgramValue::Bytes(bytes) => {
            write_escaped(out, bytes);
            Ok(())
        }
        ProgramValue::Tuple(parts) => {
            out.push(b'(');
            write_list(out, parts);
            out.write_all(b")")
        }
        ProgramValue::Array(elements) => {
            out.push(b'[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_value(out, element);
            }
            out.write_all(b"]")
        }
        ProgramValue::Record(members) => {
            write_members(out, members.iter().map(|(name, value)| (name.as_str(), value)));
            Ok(())
        }
        ProgramValue::Statistics(count, average, total) => {
            let count = ProgramValue::Unsigned(*count);
            let members = [("count", &count), ("average", average), ("total", total)];
            write_members(out, members.into_iter());
            Ok(())
        }
        ProgramValue::Stack(lines) => {
            out.push(b'\n');
            lines.iter().try_for_each(|line| writeln!(out, "        {line}"))
        }
        ProgramValue::RawStack(lines) => {
            out.push(b'\n');
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))
        }
        ProgramValue::Histogram(buckets) => {
            write_bars(out, buckets);
            Ok(())
        }
        ProgramValue::Series(interval, points) => {
            write_series(out, *interval, points);
            Ok(())
        }
    };
}

impl ProgramValue {
    /// The value as it is printed.
    pub fn to_text(&self) -> String {
        let mut out = Vec::new();
        write_value(&mut out, self);
        String::from_utf8_lossy(&out).trim_end().to_owned()
    }
}

fn write_members<'v>(
    out: &mut Vec<u8>,
    members: impl Iterator<Item = (&'v str, &'v ProgramValue)>,
) {
    out.extend(b"{ ");
    for (i, (name, value)) in members.enumerate() {
        let _ = write!(out, "{}.{name} = ", if i > 0 { ", " } else { "" });
        write_value(out, value);
    }
    out.extend(b" }");
}

/// Bytes that are no printable ASCII as `\xNN`.
pub(super) fn write_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        let _ = match byte {
            b' '..=b'~' => out.write_all(&[*byte]),
            byte => write!(out, "\\x{byte:02x}"),
        };
    }
}

/// A line a point: when, a star between the smallest and the largest value, and the value.
fn write_series(out: &mut Vec<u8>, interval: u64, points: &[(u64, Option<i64>)]) {
    const WIDTH: i128 = 52;
    let values = || points.iter().filter_map(|(_, value)| *value);
    let (least, most) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
    let span = (i128::from(most) - i128::from(least)).max(1);
    let wall = kymo_kernel::clock::KernelClock::Realtime.now().unwrap_or(0);
    let since = wall.wrapping_sub(kymo_kernel::clock::monotonic_ns());
    let format = if interval < 1_000_000_000 { "%H:%M:%S.%f" } else { "%H:%M:%S" };
    let title = format!("{least}");
    let _ = writeln!(out, "{:16} {title:<26}{most:>26}", "");
    for (time, value) in points {
        let time = local_time(format, time.wrapping_add(since));
        let place = value.map(|v| ((i128::from(v) - i128::from(least)) * WIDTH / span) as usize);
        let star = place.map_or(String::new(), |at| format!("{}*", " ".repeat(at)));
        let value = value.map_or("-".to_owned(), |v| v.to_string());
        let _ = writeln!(out, "{time:<16} |{star:<53}| {value}");
    }
}

//! JSON of values and maps: an object a line, its members as bpftrace names them.

use std::io::Write as _;

use kymo_bpf::ValueType;

use super::histogram::used_buckets;
use super::text;
use super::{BenchmarkResult, PrintedMap, TestResult};
use crate::value::{HistogramBucket, ProgramValue};

/// A map: `{"type": "map", "data": {"@name": …}}`.
pub(super) fn write_map(out: &mut Vec<u8>, map: &PrintedMap<'_>, is_old: bool) {
    let kind = match map.value_type {
        ValueType::Histogram { .. } | ValueType::LinearHistogram { .. } => "hist",
        ValueType::Average { .. } | ValueType::Statistics { .. } => "stats",
        ValueType::TimeSeries { .. } => "tseries",
        _ => "map",
    };
    if map.entries.is_empty() {
        return;
    }
    let _ = write!(out, "{{\"type\": \"{kind}\", \"data\": {{");
    write_text(out, map.name.as_bytes());
    out.extend(b": ");
    match map.entries.as_slice() {
        [(None, value)] => write_value(out, value, is_old),
        entries => {
            out.push(b'{');
            for (i, (key, value)) in entries.iter().enumerate() {
                if i > 0 {
                    out.extend(b", ");
                }
                write_text(out, &key_text(key.as_ref().unwrap_or(&ProgramValue::Empty)));
                out.extend(b": ");
                write_value(out, value, is_old);
            }
            out.push(b'}');
        }
    }
    out.extend(b"}}\n");
}

/// A line of text.
pub(super) fn write_message(out: &mut Vec<u8>, kind: &str, text: &[u8]) {
    let _ = write!(out, "{{\"type\": \"{kind}\", \"data\": ");
    write_text(out, text);
    out.extend(b"}\n");
}

/// Result of a test.
pub(super) fn write_test_result(out: &mut Vec<u8>, result: &TestResult) {
    out.extend(b"{\"type\": \"test_result\", \"data\": {");
    write_text(out, result.name.as_bytes());
    let duration = result.duration.as_nanos();
    let passed = result.has_passed;
    let _ = write!(out, ": {{\"duration\": {duration}, \"passed\": {passed}, \"output\": ");
    write_text(out, &result.output);
    out.extend(b"}}}\n");
}

/// Result of a benchmark.
pub(super) fn write_benchmark_result(out: &mut Vec<u8>, result: &BenchmarkResult) {
    out.extend(b"{\"type\": \"benchmark_result\", \"data\": {");
    write_text(out, result.name.as_bytes());
    let BenchmarkResult { average, runs, .. } = result;
    let _ = writeln!(out, ": {{\"average\": {average}, \"iters\": {runs}}}}}}}");
}

/// An error of the program at a place in it.
pub(super) fn write_runtime_error(
    out: &mut Vec<u8>,
    text: &str,
    file: &str,
    at: kymo_bpf::ProgramPosition,
) {
    out.extend(b"{\"type\": \"runtime_error\", \"msg\": ");
    write_text(out, text.as_bytes());
    out.extend(b", \"filename\": ");
    write_text(out, file.as_bytes());
    let _ = writeln!(out, ", \"line\": {}, \"col\": {}}}", at.line, at.column);
}

/// `print(value)`.
pub(super) fn write_printed_value(out: &mut Vec<u8>, value: &ProgramValue, is_old: bool) {
    out.extend(b"{\"type\": \"value\", \"data\": ");
    write_value(out, value, is_old);
    out.extend(b"}\n");
}

/// Members of JSON objects are text: parts of a key are joined by commas.
pub(super) fn key_text(key: &ProgramValue) -> Vec<u8> {
    match key {
        ProgramValue::Tuple(parts) => {
            let parts: Vec<Vec<u8>> = parts.iter().map(key_text).collect();
            parts.join(&b","[..])
        }
        ProgramValue::Record(members) => {
            let member = |(name, value): &(String, ProgramValue)| {
                [format!(".{name}=").as_bytes(), &key_text(value)].concat()
            };
            let members: Vec<Vec<u8>> = members.iter().map(member).collect();
            [b"{", members.join(&b","[..]).as_slice(), b"}"].concat()
        }
        ProgramValue::Stack(lines) | ProgramValue::RawStack(lines) => {
            format!("\n{}\n", lines.join("\n")).into_bytes()
        }
        key => {
            let mut out = Vec::new();
            text::write_value(&mut out, key);
            out
        }
    }
}

fn write_value(out: &mut Vec<u8>, value: &ProgramValue, is_old: bool) {
    let _ = match value {
        ProgramValue::Empty => out.write_all(b"null"),
        ProgramValue::Signed(n) => write!(out, "{n}"),
        ProgramValue::Unsigned(n) => write!(out, "{n}"),
        ProgramValue::Pointer(n) if !is_old => write!(out, "{n}"),
        ProgramValue::Enumerator(n, _) if !is_old => write!(out, "{n}"),
        ProgramValue::Boolean(b) => write!(out, "{b}"),
        // JSON has no infinity.
        ProgramValue::Number(digits) if digits.ends_with(|c: char| c.is_ascii_digit()) => {
            out.write_all(digits.as_bytes())
        }
        ProgramValue::Tuple(parts) | ProgramValue::Array(parts) => {
            out.push(b'[');
            for (i, part) in parts.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_value(out, part, is_old);
            }
            out.write_all(b"]")
        }
        ProgramValue::Record(members) => {
            write_members(out, members.iter().map(|(name, value)| (name.as_str(), value)), is_old);
            Ok(())
        }
        ProgramValue::Statistics(count, average, total) => {
            let count = ProgramValue::Unsigned(*count);
            let members = [("count", &count), ("average", average), ("total", total)];
            write_members(out, members.into_iter(), false);
            Ok(())
        }
        ProgramValue::Histogram(buckets) => {
            write_buckets(out, used_buckets(buckets));
            Ok(())
        }
        ProgramValue::Series(interval, points) => {
            write_points(out, *interval, points);
            Ok(())
        }
        text => {
            write_text(out, &key_text(text));
            Ok(())
        }
    };
}

fn write_members<'v>(
    out: &mut Vec<u8>,
    members: impl Iterator<Item = (&'v str, &'v ProgramValue)>,
    is_old: bool,
) {
    out.extend(if is_old { &b"{ "[..] } else { b"{" });
    for (i, (name, value)) in members.enumerate() {
        if i > 0 {
            out.extend(b", ");
        }
        write_text(out, name.as_bytes());
        out.extend(b": ");
        write_value(out, value, is_old);
    }
    out.extend(if is_old { &b" }"[..] } else { b"}" });
}

fn write_buckets(out: &mut Vec<u8>, buckets: &[HistogramBucket]) {
    out.push(b'[');
    for (i, bucket) in buckets.iter().enumerate() {
        out.extend(if i > 0 { &b",{"[..] } else { b"{" });
        if let Some(from) = bucket.from {
            let _ = write!(out, "\"min\": {from}, ");
        }
        if let Some(to) = bucket.to {
            let _ = write!(out, "\"max\": {}, ", to.wrapping_sub(1));
        }
        let _ = write!(out, "\"count\": {}}}", bucket.count);
    }
    out.push(b']');
}

fn write_points(out: &mut Vec<u8>, interval: u64, points: &[(u64, Option<i64>)]) {
    out.push(b'[');
    for (i, (time, value)) in points.iter().enumerate() {
        let value = value.map_or("null".to_owned(), |v| v.to_string());
        let comma = if i > 0 { "," } else { "" };
        let end = time.saturating_add(interval);
        let _ = write!(
            out,
            "{comma}{{\"interval_start\": {time}, \"interval_end\": {end}, \"value\": {value}}}"
        );
    }
    out.push(b']');
}

/// A JSON string; what is no UTF-8 becomes replacement characters.
fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let _ = serde_json::to_writer(out, text.as_ref());
}

//! Values as programs leave them in maps and records: bytes → values, by their types.

use std::net::{Ipv4Addr, Ipv6Addr};

use kymo_bpf::{
    MapDefinition, StackMode, StackSettings, TypedField, ValueType, histogram_bucket_range,
    histogram_buckets,
};
use kymo_model::UntrustedText;

use crate::address_names::AddressNames;
use crate::bytes::u64_at;
use crate::series::decode_series;

/// A value to print.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramValue {
    /// None.
    Empty,
    /// A signed number.
    Signed(i64),
    /// An unsigned number.
    Unsigned(u64),
    /// True or false.
    Boolean(bool),
    /// An address.
    Pointer(u64),
    /// Name of an enumerator, and its value.
    Enumerator(i64, String),
    /// Digits of a number that is no integer of 64 bits.
    Number(String),
    /// Text, in any encoding.
    Text(Vec<u8>),
    /// Bytes that need not be text.
    Bytes(Vec<u8>),
    /// Values without names.
    Tuple(Vec<ProgramValue>),
    /// Elements.
    Array(Vec<ProgramValue>),
    /// Members of a structure.
    Record(Vec<(String, ProgramValue)>),
    /// Lines of a stack.
    Stack(Vec<String>),
    /// Lines of a stack of addresses.
    RawStack(Vec<String>),
    /// Count, average and total.
    Statistics(u64, Box<ProgramValue>, Box<ProgramValue>),
    /// Buckets of a histogram.
    Histogram(Vec<HistogramBucket>),
    /// Points of a time series: nanoseconds of the monotonic clock, and a value if there was one.
    Series(u64, Vec<(u64, Option<i64>)>),
}

/// A bucket: `[from, to)`, each where it is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramBucket {
    /// First value.
    pub from: Option<i64>,
    /// First value behind it.
    pub to: Option<i64>,
    /// Whether it is for a single value.
    pub is_single: bool,
    /// Events.
    pub count: u64,
}

impl ProgramValue {
    /// Order of values in a printed map.
    pub(crate) fn rank(&self) -> i128 {
        match self {
            ProgramValue::Signed(n) => (*n).into(),
            ProgramValue::Unsigned(n) | ProgramValue::Pointer(n) => (*n).into(),
            ProgramValue::Boolean(b) => (*b).into(),
            ProgramValue::Statistics(_, average, _) => average.rank(),
            ProgramValue::Histogram(buckets) => buckets.iter().map(|b| i128::from(b.count)).sum(),
            _ => 0,
        }
    }

    /// The number that it is, if it is one.
    pub fn number(&self) -> Option<i128> {
        match self {
            ProgramValue::Signed(n) => Some((*n).into()),
            ProgramValue::Unsigned(n) | ProgramValue::Pointer(n) => Some((*n).into()),
            ProgramValue::Boolean(b) => Some((*b).into()),
            _ => None,
        }
    }

    /// The number that it is, as bits.
    pub(crate) fn bits(&self) -> u64 {
        match self {
            ProgramValue::Signed(n) => *n as u64,
            ProgramValue::Unsigned(n) | ProgramValue::Pointer(n) => *n,
            ProgramValue::Boolean(b) => (*b).into(),
            _ => 0,
        }
    }

    /// Returns the value in units of `div`.
    pub(crate) fn divide(self, div: u32) -> ProgramValue {
        let n = i64::from(div);
        if div <= 1 {
            return self;
        }
        match self {
            ProgramValue::Signed(v) => ProgramValue::Signed(v / n),
            ProgramValue::Unsigned(v) => ProgramValue::Unsigned(v / u64::from(div)),
            ProgramValue::Statistics(count, average, total) => {
                let part = |v: ProgramValue| Box::new(v.divide(div));
                ProgramValue::Statistics(count, part(*average), part(*total))
            }
            ProgramValue::Histogram(buckets) => {
                let scale =
                    |b: HistogramBucket| HistogramBucket { count: b.count / u64::from(div), ..b };
                ProgramValue::Histogram(buckets.into_iter().map(scale).collect())
            }
            other => other,
        }
    }
}

/// Makes values of bytes.
pub(crate) struct ValueDecoder<'a> {
    /// Names of addresses.
    pub names: &'a mut AddressNames,
    /// Frames of a stack: index of the map among those of stacks, and id.
    pub stack: &'a dyn Fn(u32, i32) -> Vec<u64>,
    /// Texts of the type that numbers probes.
    pub probe_names: &'a [String],
    /// Texts go to a terminal: one that was read colors nothing.
    pub is_for_terminal: bool,
}

impl ValueDecoder<'_> {
    /// Value of a type.
    pub(crate) fn decode(&mut self, of: &ValueType, bytes: &[u8]) -> ProgramValue {
        match of {
            ValueType::None => ProgramValue::Empty,
            ValueType::Integer { signed, .. } => integer(bytes, *signed),
            ValueType::Boolean => ProgramValue::Boolean(unsigned(bytes) != 0),
            ValueType::Pointer => ProgramValue::Pointer(unsigned(bytes)),
            ValueType::Enumerator { variants, otherwise, .. } => {
                let value = signed(bytes);
                let named = variants.iter().find(|(v, _)| *v == value).map(|(_, name)| name);
                match named.or(otherwise.as_ref()) {
                    Some(name) => ProgramValue::Enumerator(value, name.clone()),
                    None => ProgramValue::Signed(value),
                }
            }
            ValueType::Float { size: 4 } => {
                let number = bytes.first_chunk().map_or(0.0, |b| f32::from_le_bytes(*b));
                let is_plain = number == 0.0 || (1e-5..1e9).contains(&number.abs());
                let is_plain = is_plain || !number.is_finite();
                let text = if is_plain { number.to_string() } else { format!("{number:e}") };
                ProgramValue::Number(text)
            }
            ValueType::Float { .. } => {
                let number = f64::from_bits(u64_at(bytes, 0));
                let is_plain = number == 0.0 || (1e-5..1e16).contains(&number.abs());
                let is_plain = is_plain || !number.is_finite();
                let text = if is_plain { number.to_string() } else { format!("{number:e}") };
                ProgramValue::Number(text)
            }
            ValueType::Wide { signed } => {
                let number = bytes.first_chunk().map_or(0, |b| u128::from_le_bytes(*b));
                ProgramValue::Number(if *signed {
                    (number as i128).to_string()
                } else {
                    number.to_string()
                })
            }
            // Of a text that was not read it is known where it is.
            ValueType::TextElsewhere { data, length } => {
                let (data, length) =
                    (u64_at(bytes, *data as usize), u64_at(bytes, *length as usize));
                text(&format!("<{length} bytes at {data:#x}>"))
            }
            ValueType::Text { .. } => {
                let text = until_nul(bytes);
                ProgramValue::Text(match self.is_for_terminal && text.contains(&0x1b) {
                    true => UntrustedText::new(text).escaped().into_owned(),
                    false => text.to_vec(),
                })
            }
            ValueType::Buffer { .. } => {
                let len = u64_at(bytes, 0) as u32 as usize;
                let data = bytes.get(4..).unwrap_or_default();
                ProgramValue::Bytes(data.get(..len.min(data.len())).unwrap_or_default().to_vec())
            }
            ValueType::Array { element, element_size, count } => {
                // Behind the last one is what fills the word.
                let elements = bytes.chunks_exact((*element_size).max(1) as usize);
                let elements = elements.take(*count as usize);
                ProgramValue::Array(elements.map(|e| self.decode(element, e)).collect())
            }
            ValueType::Tuple(fields) => {
                ProgramValue::Tuple(fields.iter().map(|f| self.field(f, bytes)).collect())
            }
            ValueType::Structure { fields, .. } => {
                let member = |f: &TypedField| (f.name.clone(), self.field(f, bytes));
                ProgramValue::Record(fields.iter().map(member).collect())
            }
            _ => self.decode_named(of, bytes),
        }
    }

    /// A part of a tuple, structure or record.
    pub(crate) fn field(&mut self, field: &TypedField, bytes: &[u8]) -> ProgramValue {
        let begin = (field.offset as usize).min(bytes.len());
        let part = bytes.get(begin..bytes.len().min(begin + field.size as usize));
        let part = part.unwrap_or_default();
        let Some((first, count)) = field.bits else { return self.decode(&field.value_type, part) };
        let raw = unsigned(part) >> first.min(63);
        let count = count.clamp(1, 64);
        let is_signed = matches!(field.value_type, ValueType::Integer { signed: true, .. });
        let shifted = raw << (64 - count);
        if is_signed {
            ProgramValue::Signed(shifted as i64 >> (64 - count))
        } else {
            ProgramValue::Unsigned(shifted >> (64 - count))
        }
    }

    /// Values that stand for names.
    fn decode_named(&mut self, of: &ValueType, bytes: &[u8]) -> ProgramValue {
        let number = u64_at(bytes, 0);
        match of {
            ValueType::KernelSymbol => text(&self.names.kernel_function(number)),
            ValueType::UserSymbol => {
                text(&self.names.user_function(u64_at(bytes, 8) as u32, number))
            }
            ValueType::KernelStack(settings) => self.stack_lines(number, None, *settings),
            ValueType::UserStack(settings) => {
                self.stack_lines(number, Some(u64_at(bytes, 8) as u32), *settings)
            }
            ValueType::InternetAddress => text(&internet_address(bytes)),
            ValueType::MacAddress => {
                let parts: Vec<String> = bytes.iter().take(6).map(|b| format!("{b:02X}")).collect();
                text(&parts.join(":"))
            }
            ValueType::Timestamp { format, clock } => {
                text(&self.names.time(format, number, *clock))
            }
            ValueType::ErrorText => text(&crate::address_names::error_text(number as i32)),
            ValueType::CgroupPath { hierarchy } => text(&self.names.cgroup(number, hierarchy)),
            ValueType::ProbeName => {
                text(self.probe_names.get(number as usize).map_or("", String::as_str))
            }
            ValueType::UserName => text(&self.names.user(number as u32)),
            ValueType::SyscallName => match syscalls::Sysno::new(number as usize) {
                Some(call) => text(call.name()),
                None => ProgramValue::Unsigned(number),
            },
            ValueType::SignalName => text(&signal_name(number)),
            _ => decode_aggregate(of, bytes),
        }
    }

    fn stack_lines(
        &mut self,
        reference: u64,
        pid: Option<u32>,
        settings: StackSettings,
    ) -> ProgramValue {
        // Above the map's number is that of the frames, for `len()`.
        let (id, map) = (reference as u32 as i32, u32::from((reference >> 32) as u16));
        if id < 0 {
            return ProgramValue::Stack(Vec::new());
        }
        let frames = (self.stack)(map, id);
        let frames = frames.iter().take(settings.depth as usize).copied();
        let mode = settings.mode;
        let line = |address: u64| match (mode, pid) {
            (StackMode::BuildId, Some(pid)) => self.names.build_id_frame(pid, address),
            (StackMode::Raw | StackMode::BuildId, _) => format!("{address:x}"),
            (StackMode::Bpftrace, None) => self.names.kernel_frame(address),
            (StackMode::Bpftrace, Some(pid)) => self.names.user_frame(pid, address),
            (StackMode::Perf, None) => self.names.kernel_frame_of_perf(address),
            (StackMode::Perf, Some(pid)) => self.names.user_frame_of_perf(pid, address),
        };
        let lines = frames.map(line).collect();
        match mode {
            StackMode::Raw | StackMode::BuildId => ProgramValue::RawStack(lines),
            _ => ProgramValue::Stack(lines),
        }
    }
}

fn decode_aggregate(of: &ValueType, bytes: &[u8]) -> ProgramValue {
    let number = |signed: bool, at: usize| {
        if signed {
            ProgramValue::Signed(u64_at(bytes, at) as i64)
        } else {
            ProgramValue::Unsigned(u64_at(bytes, at))
        }
    };
    match of {
        ValueType::Count => ProgramValue::Unsigned(u64_at(bytes, 0)),
        ValueType::Sum { signed }
        | ValueType::Minimum { signed }
        | ValueType::Maximum { signed } => number(*signed, 0),
        ValueType::Average { signed } => average(bytes, *signed),
        ValueType::Statistics { signed } => {
            let mean = average(bytes, *signed);
            ProgramValue::Statistics(u64_at(bytes, 8), Box::new(mean), Box::new(number(*signed, 0)))
        }
        ValueType::Histogram { bits } => ProgramValue::Histogram(power_buckets(bytes, *bits)),
        ValueType::LinearHistogram { min, max, step } => {
            ProgramValue::Histogram(linear_buckets(bytes, *min, *max, *step))
        }
        ValueType::TimeSeries { interval_ns, intervals, aggregate, signed } => {
            let points = decode_series(bytes, *interval_ns, *intervals, *aggregate, *signed);
            ProgramValue::Series(*interval_ns, points)
        }
        _ => ProgramValue::Empty,
    }
}

fn average(bytes: &[u8], signed: bool) -> ProgramValue {
    let (total, count) = (u64_at(bytes, 0), u64_at(bytes, 8).max(1));
    if signed {
        ProgramValue::Signed((total as i64).checked_div(count as i64).unwrap_or(0))
    } else {
        ProgramValue::Unsigned(total / count)
    }
}

fn power_buckets(bytes: &[u8], bits: u8) -> Vec<HistogramBucket> {
    let bucket = |n: u32| {
        let (from, to) = histogram_bucket_range(bits, n);
        HistogramBucket {
            from: from.map(|v| i64::try_from(v).unwrap_or(i64::MAX)),
            to: to.and_then(|v| i64::try_from(v).ok()),
            is_single: from.is_some() && to == from.and_then(|v| v.checked_add(1)),
            count: u64_at(bytes, n as usize * 8),
        }
    };
    (0..histogram_buckets(bits)).map(bucket).collect()
}

fn linear_buckets(bytes: &[u8], min: i64, max: i64, step: i64) -> Vec<HistogramBucket> {
    let count = bytes.len() / 8;
    let bucket = |n: usize| {
        let at = |n: usize| min.saturating_add((n as i64).saturating_mul(step));
        let (from, to) = match n {
            0 => (None, Some(min)),
            n if n + 1 == count => (Some(max), None),
            n => (Some(at(n - 1)), Some(at(n).min(max))),
        };
        let is_single = step == 1 && from.is_some() && to.is_some();
        HistogramBucket { from, to, is_single, count: u64_at(bytes, n * 8) }
    };
    (0..count).map(bucket).collect()
}

/// Values of all CPUs → one, in the same form.
pub(crate) fn merge_cpus(map: &MapDefinition, bytes: &[u8]) -> Vec<u8> {
    let size = map.value_size as usize;
    let values = bytes.chunks(size.next_multiple_of(8).max(8)).map(|v| v.get(..size).unwrap_or(v));
    merge_values(&map.value_type, values, size)
}

fn merge_values<'v>(
    of: &ValueType,
    values: impl Iterator<Item = &'v [u8]>,
    size: usize,
) -> Vec<u8> {
    let mut merged = vec![0u8; size];
    for value in values {
        match of {
            ValueType::Minimum { signed } => merge_extreme(&mut merged, value, *signed, true),
            ValueType::Maximum { signed } => merge_extreme(&mut merged, value, *signed, false),
            ValueType::Count
            | ValueType::Sum { .. }
            | ValueType::Average { .. }
            | ValueType::Statistics { .. }
            | ValueType::Histogram { .. }
            | ValueType::LinearHistogram { .. } => add_words(&mut merged, value),
            ValueType::TimeSeries { intervals, aggregate, signed, .. } => {
                crate::series::merge_series(&mut merged, value, *intervals, *aggregate, *signed);
            }
            // What is set, not added up, is of the CPU that set it.
            _ if value.iter().any(|b| *b != 0) => merged.copy_from_slice(value),
            _ => {}
        }
    }
    merged
}

fn add_words(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.chunks_exact_mut(8).zip(from.chunks_exact(8)) {
        let sum = u64_at(to, 0).wrapping_add(u64_at(from, 0));
        to.copy_from_slice(&sum.to_ne_bytes());
    }
}

fn merge_extreme(to: &mut [u8], from: &[u8], signed: bool, smallest: bool) {
    if u64_at(from, 8) == 0 {
        return;
    }
    let (a, b) = (u64_at(to, 0), u64_at(from, 0));
    let is_less = if signed { (b as i64) < (a as i64) } else { b < a };
    if u64_at(to, 8) == 0 || is_less == smallest {
        to.copy_from_slice(from);
    }
}

/// Whether a value was ever written, of a map that says so.
pub(crate) fn was_written(map: &MapDefinition, value: &[u8]) -> bool {
    if map.has_written_mark {
        return u64_at(value, value.len().saturating_sub(8)) != 0;
    }
    match map.value_type {
        _ if map.key_type.is_some() => true,
        ValueType::Count => u64_at(value, 0) != 0,
        ValueType::Sum { .. }
        | ValueType::Minimum { .. }
        | ValueType::Maximum { .. }
        | ValueType::Average { .. }
        | ValueType::Statistics { .. } => u64_at(value, 8) != 0,
        ValueType::Histogram { .. }
        | ValueType::LinearHistogram { .. }
        | ValueType::TimeSeries { .. } => value.iter().any(|b| *b != 0),
        _ => true,
    }
}

fn unsigned(bytes: &[u8]) -> u64 {
    u64_at(bytes, 0)
}

fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (unsigned(bytes) << unused) as i64 >> unused
}

fn integer(bytes: &[u8], is_signed: bool) -> ProgramValue {
    if is_signed {
        ProgramValue::Signed(signed(bytes))
    } else {
        ProgramValue::Unsigned(unsigned(bytes))
    }
}

fn text(text: &str) -> ProgramValue {
    ProgramValue::Text(text.as_bytes().to_vec())
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    bytes.get(..end).unwrap_or_default()
}

fn internet_address(bytes: &[u8]) -> String {
    let address = bytes.get(8..).unwrap_or_default();
    match (u64_at(bytes, 0), address.first_chunk::<4>(), address.first_chunk::<16>()) {
        (2, Some(v4), _) => Ipv4Addr::from(*v4).to_string(),
        (10, _, Some(v6)) => Ipv6Addr::from(*v6).to_string(),
        _ => String::new(),
    }
}

/// Description of a signal, as strsignal(3) has it.
fn signal_name(number: u64) -> String {
    const NAMES: [&str; 31] = [
        "Hangup",
        "Interrupt",
        "Quit",
        "Illegal instruction",
        "Trace/breakpoint trap",
        "Aborted",
        "Bus error",
        "Floating point exception",
        "Killed",
        "User defined signal 1",
        "Segmentation fault",
        "User defined signal 2",
        "Broken pipe",
        "Alarm clock",
        "Terminated",
        "Stack fault",
        "Child exited",
        "Continued",
        "Stopped (signal)",
        "Stopped",
        "Stopped (tty input)",
        "Stopped (tty output)",
        "Urgent I/O condition",
        "CPU time limit exceeded",
        "File size limit exceeded",
        "Virtual timer expired",
        "Profiling timer expired",
        "Window changed",
        "I/O possible",
        "Power failure",
        "Bad system call",
    ];
    const MOST: u64 = 64;
    match (number.checked_sub(1).and_then(|place| NAMES.get(place as usize)), number) {
        (Some(name), _) => (*name).to_owned(),
        (None, 34..=MOST) => format!("Real-time signal {}", number - 34),
        (None, 0..=MOST) => format!("Unknown signal {number}"),
        (None, _) => "N/A".to_owned(),
    }
}

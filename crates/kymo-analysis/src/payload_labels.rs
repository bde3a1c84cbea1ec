//! Sort keys out of single samples: fields of tracepoint payloads (`trace`, the whole text,
//! `prev_pid`, `sched_switch.next_comm`, `*` and `trace_fields` for all of them), and what the
//! kernel put into the sample (`time`, `weight`, `cgroup`, `code_page_size`). Each sample gets the
//! number of its combination of values.

use std::sync::Arc;

use kymo_events::perf_data::{TracepointPayloads, payload_endian};
use kymo_files::perfdata::{Entry, EventDesc};
use kymo_format::{Field, FieldKind, Value};
use kymo_model::{Endian, Sample, SampleType};
use kymo_symbols::bundle::Bundle;
use rustc_hash::FxHashMap;

/// Sort key that looks into payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayloadKey {
    /// The payload's text.
    Output,
    /// One field, or all of them, of one event or of any.
    Fields {
        /// Name of the event, with or without its system.
        event: Option<String>,
        /// Name of the field.
        name: Option<String>,
    },
    /// Part of the sample itself.
    Sample(SampleKey),
}

/// Sort key that is part of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are perf's sort keys")]
pub enum SampleKey {
    Time,
    Cgroup,
    CodePageSize,
    Weight,
    LocalWeight,
    InstructionLatency,
    LocalInstructionLatency,
}

impl SampleKey {
    /// perf's words and headings.
    const ALL: [(SampleKey, &'static str, &'static str); 7] = [
        (SampleKey::Time, "time", "Time"),
        (SampleKey::Cgroup, "cgroup", "Cgroup"),
        (SampleKey::CodePageSize, "code_page_size", "Code Page Size"),
        (SampleKey::Weight, "weight", "Weight"),
        (SampleKey::LocalWeight, "local_weight", "Local Weight"),
        (SampleKey::InstructionLatency, "ins_lat", "INSTR Latency"),
        (SampleKey::LocalInstructionLatency, "local_ins_lat", "Local INSTR Latency"),
    ];

    /// The word of the key and its heading.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        let own = SampleKey::ALL.iter().find(|(key, ..)| *key == self);
        own.map_or(("", ""), |(_, word, heading)| (*word, *heading))
    }

    /// The option of `record` that samples have it by, where they do not have it anyway.
    pub(crate) fn option(self) -> &'static str {
        match self {
            SampleKey::Time => "-T",
            SampleKey::Cgroup => "--all-cgroups",
            SampleKey::CodePageSize => "--code-page-size",
            _ => "-W",
        }
    }

    /// Whether samples of an event have it.
    fn is_of(self, event: &EventDesc) -> bool {
        let has = |part| event.attr.sample_type.contains(part);
        match self {
            SampleKey::Time => has(SampleType::TIME),
            SampleKey::Cgroup => has(SampleType::CGROUP),
            SampleKey::CodePageSize => has(SampleType::CODE_PAGE_SIZE),
            SampleKey::Weight | SampleKey::LocalWeight => {
                has(SampleType::WEIGHT) || has(SampleType::WEIGHT_STRUCT)
            }
            SampleKey::InstructionLatency | SampleKey::LocalInstructionLatency => {
                has(SampleType::WEIGHT_STRUCT)
            }
        }
    }

    /// The value in a sample; of times the start of their span.
    fn value(self, sample: &Sample<'_>, event: &EventDesc, times: TimeSpans) -> u64 {
        let weight = sample.weight.unwrap_or(0);
        match self {
            SampleKey::Time => {
                let time = sample.time.unwrap_or(0);
                time - time.checked_rem(times.length).unwrap_or(0)
            }
            SampleKey::Cgroup => sample.cgroup.unwrap_or(0),
            SampleKey::CodePageSize => sample.code_page_size.unwrap_or(0),
            // Three numbers in one: the weight is the lower half.
            SampleKey::Weight | SampleKey::LocalWeight => {
                if event.attr.sample_type.contains(SampleType::WEIGHT_STRUCT) {
                    weight & u64::from(u32::MAX)
                } else {
                    weight
                }
            }
            SampleKey::InstructionLatency | SampleKey::LocalInstructionLatency => {
                weight >> 32 & u64::from(u16::MAX)
            }
        }
    }

    fn text(self, value: u64, times: TimeSpans) -> String {
        match self {
            SampleKey::Time => times.text(value),
            // The path comes when all are known.
            SampleKey::Cgroup if value == 0 => "N/A".to_owned(),
            SampleKey::Cgroup => "unknown".to_owned(),
            SampleKey::CodePageSize => match value {
                0 => "N/A".to_owned(),
                n if n.is_multiple_of(1 << 30) => format!("{}G", n >> 30),
                n if n.is_multiple_of(1 << 20) => format!("{}M", n >> 20),
                n if n.is_multiple_of(1 << 10) => format!("{}K", n >> 10),
                n => n.to_string(),
            },
            _ => value.to_string(),
        }
    }

    /// Whether larger values come first.
    fn falls(self) -> bool {
        !matches!(self, SampleKey::Time | SampleKey::Cgroup | SampleKey::CodePageSize)
    }
}

/// Grouping and format of times.
#[derive(Clone, Copy, Debug)]
pub struct TimeSpans {
    /// Length of a span in nanoseconds.
    pub length: u64,
    /// Times have nine digits after the point.
    pub in_nanoseconds: bool,
}

impl TimeSpans {
    /// Width of the column, as in perf.
    fn width(self) -> usize {
        if self.in_nanoseconds { 16 } else { 12 }
    }

    /// A time in seconds. As in perf, digits that do not fit the column are cut off: those of a
    /// machine that is up for more than a day. Whole seconds always stay.
    fn text(self, time: u64) -> String {
        let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
        let mut text = if self.in_nanoseconds {
            format!("{seconds}.{nanos:09}")
        } else {
            format!("{seconds}.{:06}", nanos / 1000)
        };
        let whole = text.find('.').unwrap_or(text.len());
        text.truncate(self.width().max(whole));
        text
    }
}

impl Default for TimeSpans {
    fn default() -> TimeSpans {
        TimeSpans { length: 100_000_000, in_nanoseconds: false }
    }
}

impl PayloadKey {
    /// Reads a word that is no key of its own.
    pub fn parse(word: &str) -> PayloadKey {
        if let Some((key, ..)) = SampleKey::ALL.iter().find(|(_, own, _)| *own == word) {
            return PayloadKey::Sample(*key);
        }
        let field = |name: &str| (name != "*").then(|| name.to_string());
        match word.rsplit_once('.') {
            _ if word == "trace" => PayloadKey::Output,
            _ if word == "trace_fields" => PayloadKey::Fields { event: None, name: None },
            Some((event, name)) => {
                PayloadKey::Fields { event: Some(event.to_string()), name: field(name) }
            }
            None => PayloadKey::Fields { event: None, name: field(word) },
        }
    }

    fn wants(&self, desc: &EventDesc) -> bool {
        if let PayloadKey::Sample(key) = self {
            return key.is_of(desc);
        }
        let PayloadKey::Fields { event: Some(event), .. } = self else { return true };
        let short = desc.name.rsplit(':').next().unwrap_or(&desc.name);
        desc.name == *event || short == event
    }
}

/// A column of one event.
#[derive(Clone, Debug)]
struct PayloadColumn {
    key: usize,
    value: ColumnValue,
}

/// Source of the values of a column.
#[derive(Clone, Debug, PartialEq)]
enum ColumnValue {
    /// The whole text.
    Text,
    Field(Box<Field>),
    Sample(SampleKey),
}

/// Label columns of one event.
struct EventLabels {
    columns: Vec<PayloadColumn>,
    /// Offset from which payloads differ: fields that all events have are not shown.
    own: usize,
    /// Values come out of the payload alone.
    is_of_payload: bool,
    known: KnownPayloads,
}

/// Labels by payload: many are equal, and to look one up is faster than to render it.
#[derive(Default)]
struct KnownPayloads {
    labels: FxHashMap<Box<[u8]>, u32>,
    asked: u32,
    found: u32,
}

impl KnownPayloads {
    /// Payloads that are remembered at most.
    const MOST: usize = 1 << 14;
    /// Longer ones are not.
    const LONGEST: usize = 512;

    /// Whether it pays to remember payloads of the event.
    #[inline]
    fn pays(&self) -> bool {
        self.asked < 4096 || self.found > self.asked / 4
    }

    #[inline]
    fn get(&mut self, payload: &[u8]) -> Option<u32> {
        if !self.pays() {
            return None;
        }
        let label = self.labels.get(payload).copied();
        // Half of each counts on: what was long ago matters less.
        if self.asked == u32::MAX {
            (self.asked, self.found) = (self.asked / 2, self.found / 2);
        }
        self.asked += 1;
        self.found += u32::from(label.is_some());
        label
    }

    fn add(&mut self, payload: &[u8], label: u32) {
        if self.labels.len() < Self::MOST && payload.len() <= Self::LONGEST && self.pays() {
            self.labels.insert(payload.into(), label);
        }
    }
}

struct PayloadValue {
    /// Bytes by which values are distinguished and sorted.
    raw: Vec<u8>,
    text: String,
}

/// Combinations of values that samples had, by number.
#[derive(Default)]
pub struct PayloadLabels {
    keys: Vec<PayloadKey>,
    payloads: TracepointPayloads,
    /// By event.
    events: Vec<Option<EventLabels>>,
    ids: FxHashMap<(usize, Vec<u8>), u32>,
    /// By label, then by column of its event.
    values: Vec<Vec<PayloadValue>>,
    times: TimeSpans,
    /// Fields are shown as they are, not as the print format shows them.
    raw: bool,
}

impl PayloadLabels {
    /// Labels by these keys; a bundle may have what print formats need.
    pub fn new(keys: &[PayloadKey], bundle: Option<Arc<Bundle>>) -> PayloadLabels {
        PayloadLabels {
            keys: keys.to_vec(),
            // Label 0 is that of samples without a payload.
            values: vec![Vec::new()],
            payloads: TracepointPayloads::new(bundle),
            ..PayloadLabels::default()
        }
    }

    /// Groups times in these spans.
    pub fn with_times(self, times: TimeSpans) -> PayloadLabels {
        PayloadLabels { times, ..self }
    }

    /// Shows fields raw: numbers, not the words of the print format.
    pub fn with_raw_fields(self, raw: bool) -> PayloadLabels {
        PayloadLabels { raw, ..self }
    }

    /// Gives cgroups their paths, by id, once all of them are known.
    pub fn name_cgroups(&mut self, path: &dyn Fn(u64) -> Option<String>) {
        let ids = std::mem::take(&mut self.ids);
        for ((event, _), label) in &ids {
            let is_cgroup = |c: &PayloadColumn| c.value == ColumnValue::Sample(SampleKey::Cgroup);
            let places = self.columns(*event).iter().enumerate();
            let places: Vec<usize> =
                places.filter(|(_, c)| is_cgroup(c)).map(|(place, _)| place).collect();
            let Some(values) = self.values.get_mut(*label as usize) else { continue };
            for place in places {
                let Some(value) = values.get_mut(place) else { continue };
                let id = value.raw.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                if let Some(path) = path(id) {
                    value.text = path;
                }
            }
        }
        self.ids = ids;
    }

    /// Labels by the same keys, for another thread.
    pub(crate) fn fork_for_thread(&self) -> PayloadLabels {
        PayloadLabels {
            keys: self.keys.clone(),
            values: vec![Vec::new()],
            payloads: self.payloads.fork_for_thread(),
            times: self.times,
            raw: self.raw,
            ..PayloadLabels::default()
        }
    }

    /// Takes over the labels of another thread; answers the number of each of them here.
    pub(crate) fn merge(&mut self, other: PayloadLabels) -> Vec<u32> {
        self.events.resize_with(self.events.len().max(other.events.len()), || None);
        for (mine, theirs) in self.events.iter_mut().zip(other.events) {
            if mine.is_none() {
                *mine = theirs;
            }
        }
        let mut numbers = vec![0; other.values.len()];
        let mut values: Vec<_> = other.values.into_iter().map(Some).collect();
        for (key, label) in other.ids {
            let next = self.values.len() as u32;
            let id = *self.ids.entry(key).or_insert(next);
            if id == next {
                let value = values.get_mut(label as usize).and_then(Option::take);
                self.values.push(value.unwrap_or_default());
            }
            if let Some(number) = numbers.get_mut(label as usize) {
                *number = id;
            }
        }
        numbers
    }

    /// Learns which columns the event of an entry has.
    pub(crate) fn learn(&mut self, entry: &Entry<'_>) -> Option<()> {
        let (at, desc) = (entry.event, entry.desc()?);
        if self.events.get(at).is_none_or(Option::is_none) {
            let (columns, own) = columns(&self.keys, desc, &mut self.payloads, entry);
            self.events.resize_with(self.events.len().max(at + 1), || None);
            let is_of_payload = !columns.iter().any(|c| matches!(c.value, ColumnValue::Sample(_)));
            let known = KnownPayloads::default();
            let labels = EventLabels { columns, own, is_of_payload, known };
            *self.events.get_mut(at)? = Some(labels);
        }
        Some(())
    }

    /// The number of a sample's combination of values.
    pub fn label(&mut self, entry: &Entry<'_>, sample: &Sample<'_>) -> u32 {
        if self.learn(entry).is_none() {
            return 0;
        }
        let Some(Some(event)) = self.events.get_mut(entry.event) else { return 0 };
        if !event.is_of_payload {
            return self.render(entry, sample, sample.raw.unwrap_or_default());
        }
        let Some(raw) = sample.raw else { return 0 };
        let own = raw.get(event.own..).unwrap_or(raw);
        if let Some(label) = event.known.get(own) {
            return label;
        }
        let label = self.render(entry, sample, raw);
        if let Some(Some(event)) = self.events.get_mut(entry.event) {
            event.known.add(own, label);
        }
        label
    }

    /// The number of the values of a payload.
    fn render(&mut self, entry: &Entry<'_>, sample: &Sample<'_>, raw: &[u8]) -> u32 {
        let Some(desc) = entry.desc() else { return 0 };
        let (at, endian) = (entry.event, payload_endian(entry));
        let mut printed = Vec::new();
        let event = self.events.get(at).and_then(Option::as_ref);
        let of_payload = |c: &PayloadColumn| !matches!(c.value, ColumnValue::Sample(_));
        match event.is_some_and(|e| e.columns.iter().any(of_payload)) {
            true if self.raw => {
                let format = self.payloads.format(entry);
                for field in format.iter().flat_map(|format| format.own_fields()) {
                    printed.extend([b" ", field.name.as_bytes(), b"="].concat());
                    write_field(field, raw, endian, &mut printed);
                }
            }
            true => self.payloads.write(entry, raw, &mut printed),
            false => {}
        }
        let mut values = Vec::new();
        let mut whole = Vec::new();
        let event = self.events.get(at).and_then(Option::as_ref);
        for column in event.iter().flat_map(|e| &e.columns) {
            let value = match &column.value {
                ColumnValue::Text => PayloadValue { raw: printed.clone(), text: lossy(&printed) },
                ColumnValue::Sample(key) => {
                    let value = key.value(sample, desc, self.times);
                    // Bytes that are in the order of the numbers.
                    let raw = value.to_be_bytes().to_vec();
                    PayloadValue { raw, text: key.text(value, self.times) }
                }
                ColumnValue::Field(f) => {
                    let bytes = f.bytes(raw, endian).to_vec();
                    let printed = if self.raw { &[] } else { &printed[..] };
                    PayloadValue { raw: bytes, text: text(f, raw, entry, printed) }
                }
            };
            whole.extend((value.raw.len() as u64).to_ne_bytes());
            whole.extend_from_slice(&value.raw);
            values.push(value);
        }
        let next = self.values.len() as u32;
        let id = *self.ids.entry((at, whole)).or_insert(next);
        if id == next {
            self.values.push(values);
        }
        id
    }

    fn columns(&self, event: usize) -> &[PayloadColumn] {
        self.events.get(event).and_then(Option::as_ref).map_or(&[], |e| &e.columns)
    }

    /// The columns that key number `key` stands for in an event.
    pub fn columns_of(&self, event: usize, key: usize) -> impl Iterator<Item = u8> {
        let own = self.columns(event).iter().enumerate();
        own.filter(move |(_, c)| c.key == key).map(|(i, _)| i as u8)
    }

    /// Whether any event has what key number `key` names.
    pub fn known(&self, key: usize) -> bool {
        self.events.iter().flatten().flat_map(|e| &e.columns).any(|c| c.key == key)
    }

    /// Heading of a column, its least width, and whether it stands to the right.
    pub fn heading(&self, event: usize, column: u8) -> (String, usize, bool) {
        let f = match self.columns(event).get(usize::from(column)).map(|c| &c.value) {
            Some(ColumnValue::Field(f)) => f,
            Some(ColumnValue::Sample(key)) => {
                let width = if *key == SampleKey::Time { self.times.width() } else { 0 };
                return (key.names().1.to_owned(), width, false);
            }
            Some(ColumnValue::Text) | None => return ("Trace output".into(), 0, false),
        };
        let size = f.size as usize;
        let text = matches!(f.kind, FieldKind::String | FieldKind::DynString { .. });
        // Room for the number in hexadecimal, as in perf.
        (f.name.clone(), if text { size } else { size * 2 + 2 }, true)
    }

    /// The word of a column that is part of samples.
    pub fn sample_word(&self, event: usize, column: u8) -> Option<&'static str> {
        match self.columns(event).get(usize::from(column))?.value {
            ColumnValue::Sample(key) => Some(key.names().0),
            _ => None,
        }
    }

    /// Text of a value.
    pub fn text(&self, label: u32, column: u8) -> &str {
        let values = self.values.get(label as usize);
        values.and_then(|v| v.get(usize::from(column))).map_or("", |v| &v.text)
    }

    /// Puts two labels in the order of a column: texts rise, fields fall by
    /// their bytes, as in perf.
    pub fn order(&self, event: usize, column: u8) -> Vec<u32> {
        let raw = |label: usize| {
            let values = self.values.get(label);
            values.and_then(|v| v.get(usize::from(column))).map_or(&[][..], |v| &v.raw)
        };
        let mut sorted: Vec<usize> = (0..self.values.len()).collect();
        let falls = match self.columns(event).get(usize::from(column)).map(|c| &c.value) {
            Some(ColumnValue::Sample(key)) => key.falls(),
            Some(ColumnValue::Field(_)) => true,
            Some(ColumnValue::Text) | None => false,
        };
        sorted.sort_by(|a, b| if falls { raw(*b).cmp(raw(*a)) } else { raw(*a).cmp(raw(*b)) });
        let mut ranks = vec![0; sorted.len()];
        let mut rank = 0;
        for run in sorted.chunk_by(|a, b| raw(*a) == raw(*b)) {
            rank += 1;
            for label in run {
                if let Some(slot) = ranks.get_mut(*label) {
                    *slot = rank;
                }
            }
        }
        ranks
    }
}

/// The columns of an event, and the byte from which on its payloads can differ in them.
fn columns(
    keys: &[PayloadKey],
    desc: &EventDesc,
    payloads: &mut TracepointPayloads,
    entry: &Entry<'_>,
) -> (Vec<PayloadColumn>, usize) {
    let mut found: Vec<PayloadColumn> = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        if let PayloadKey::Sample(own) = key
            && own.is_of(desc)
        {
            found.push(PayloadColumn { key: number, value: ColumnValue::Sample(*own) });
        }
    }
    let Some(format) = payloads.format(entry) else { return (found, 0) };
    let own = if format.print_fmt.contains("common_") {
        0
    } else {
        format.own_fields().map(|f| f.offset as usize).min().unwrap_or(0)
    };
    for (number, key) in keys.iter().enumerate().filter(|(_, k)| k.wants(desc)) {
        let name = match key {
            PayloadKey::Fields { name, .. } => name,
            PayloadKey::Output => {
                found.push(PayloadColumn { key: number, value: ColumnValue::Text });
                continue;
            }
            PayloadKey::Sample(_) => continue,
        };
        let wanted = |f: &&Field| name.as_ref().is_none_or(|n| *n == f.name);
        for field in format.own_fields().filter(wanted) {
            let known = found.iter().any(|c| match &c.value {
                ColumnValue::Field(own) => **own == *field,
                _ => false,
            });
            // Numbers of columns are small.
            if !known && found.len() < usize::from(u8::MAX) {
                let value = ColumnValue::Field(Box::new(field.clone()));
                found.push(PayloadColumn { key: number, value });
            }
        }
    }
    (found, own)
}

/// A value as the event's own text shows it, where that says `name=value`.
/// Texts may hold blanks, so that they are taken from the payload.
fn text(f: &Field, raw: &[u8], entry: &Entry<'_>, printed: &[u8]) -> String {
    let endian = payload_endian(entry);
    if !matches!(f.kind, FieldKind::String | FieldKind::DynString { .. }) {
        let named = printed.split(|b| *b == b' ').find_map(|word| {
            word.strip_prefix(f.name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
        });
        if let Some(value) = named {
            return lossy(value);
        }
    }
    let mut out = Vec::new();
    write_field(f, raw, endian, &mut out);
    lossy(&out)
}

/// Appends a value as it is; as in perf, unsigned words of the machine are hexadecimal.
fn write_field(f: &Field, raw: &[u8], endian: Endian, out: &mut Vec<u8>) {
    match f.value(raw, endian) {
        Value::Unsigned(v) if f.type_text.contains("long") => Value::Pointer(v),
        value => value,
    }
    .write(out, endian);
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_perfs_width_however_long_the_machine_is_up() {
        let text = |seconds: u64, in_nanoseconds| {
            let times = TimeSpans { in_nanoseconds, ..TimeSpans::default() };
            (times.text(seconds * 1_000_000_000 + 750_123_456), times.width())
        };
        let check = |seconds, micros: &str, nanos: &str| {
            assert_eq!(text(seconds, false), (micros.to_owned(), 12));
            assert_eq!(text(seconds, true), (nanos.to_owned(), 16));
        };
        // As perf 7.2 shows a recording whose times were moved.
        check(109, "109.750123", "109.750123456");
        check(3509, "3509.750123", "3509.750123456");
        check(12_509, "12509.750123", "12509.750123456");
        check(100_509, "100509.75012", "100509.750123456");
        check(1_003_509, "1003509.7501", "1003509.75012345");
        check(10_000_000_000, "10000000000.", "10000000000.7501");
    }
}

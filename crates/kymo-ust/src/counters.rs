//! The file of a program's counters and histograms: what there is, keys, and values, of which each
//! CPU has its own copy.

use std::fmt;

use crate::bytes::{Take, until_nul};
use crate::error::UstFormatError;

/// Start of a finished file of counters.
pub const COUNTERS_MAGIC: [u8; 8] = *b"KYMOCNT\0";
/// Bytes of the header.
pub const COUNTERS_HEADER: usize = 4096;
/// Most counters and histograms of a program.
pub const MAX_COUNTERS: u32 = 1024;
/// Bytes of a record.
pub const COUNTER_RECORD: usize = 512;
/// Bytes of an area: a CPU's copy of the values.
pub const COUNTER_AREA: u32 = 1 << 21;
/// Most areas.
pub const MAX_COUNTER_AREAS: u32 = 8192;
/// Bytes of an entry of a table of keys, and of what stands before the entries.
pub const KEY_ENTRY: usize = 64;
/// Most bytes of a key.
pub const KEY_BYTES: usize = 40;
/// Processes whose descendant a program is that the header names.
pub const COUNTER_ANCESTORS: usize = 16;
/// Buckets of a histogram: below 0, 0, and one for each power of two.
pub const HISTOGRAM_BUCKETS: usize = 65;

const VERSION: u32 = 1;
const HEADER_READ: usize = 136;
const TEXTS: [(usize, usize); 4] = [(32, 64), (96, 64), (160, 224), (384, 128)];
/// Offset of the least and the largest value in a histogram.
const EXTREMES_AT: usize = 16 * HISTOGRAM_BUCKETS;

/// A counter or a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CounterKind {
    /// A sum.
    Counter = 1,
    /// Values by powers of two.
    Histogram = 2,
}

impl CounterKind {
    /// By its number.
    pub fn from_number(number: u8) -> Option<CounterKind> {
        match number {
            1 => Some(CounterKind::Counter),
            2 => Some(CounterKind::Histogram),
            _ => None,
        }
    }

    /// Bytes of a value.
    pub const fn value_bytes(self) -> u32 {
        match self {
            CounterKind::Counter => 8,
            CounterKind::Histogram => EXTREMES_AT as u32 + 16,
        }
    }

    /// Most keys.
    pub const fn keys(self) -> u32 {
        match self {
            CounterKind::Counter => 256,
            CounterKind::Histogram => 64,
        }
    }

    /// Entries of a table of keys: twice the number of keys, so that looking for one that has no
    /// place ends soon.
    pub const fn table_entries(self) -> u32 {
        2 * self.keys()
    }
}

/// Bucket of a value.
#[inline(always)]
pub const fn bucket_of(value: i64) -> usize {
    if value < 0 {
        return 0;
    }
    (64 - value.leading_zeros() + 1) as usize
}

/// Values of a bucket: from, and up to but without; none where it is open.
pub fn bucket_range(bucket: usize) -> (Option<i64>, Option<i64>) {
    match bucket {
        0 => (None, Some(0)),
        1 => (Some(0), Some(1)),
        n => {
            let from = 1i64.checked_shl(n as u32 - 2).filter(|from| *from > 0);
            (from, from.and_then(|from| from.checked_mul(2)))
        }
    }
}

/// Head of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersHeader {
    /// Process id in the program's own namespace.
    pub pid: u32,
    /// Its start time, field 22 of `/proc/PID/stat`.
    pub start_time: u64,
    /// CPUs that have areas; one more area belongs to no CPU.
    pub cpus: u32,
    /// Records that are complete.
    pub counters: u32,
    /// Counters that found no place.
    pub refused: u32,
    /// Bytes in use from the start of an area: values without a key.
    pub low: u32,
    /// Offset of the values with keys, which extend to the end of an area.
    pub high: u32,
    /// Offset of the records.
    pub records: u32,
    /// Offset of the first area.
    pub areas: u64,
    /// Processes that it descends from, the nearest first, if a tool counted when it started.
    pub ancestors: [u32; COUNTER_ANCESTORS],
    /// It ended in order, and left the file for those who counted then.
    pub ended: bool,
}

impl CountersHeader {
    /// Bytes that [`CountersHeader::parse`] needs.
    pub const BYTES: usize = HEADER_READ;
    /// Offset of the byte that becomes 1 when the program ends in order.
    pub const ENDED_AT: u64 = 128;
    /// Lowest offset of the tables of keys.
    pub const TABLES: u32 = (COUNTERS_HEADER + COUNTER_RECORD * MAX_COUNTERS as usize) as u32;
    /// Offset of the areas in files that programs create.
    pub const AREAS: u64 = 5 << 20;
    /// Offset in the header of the number of records, followed by that of refused counters, then
    /// `low` and `high`.
    pub const COUNTS_AT: u64 = 28;

    /// The header, but for the magic number.
    pub fn encode(&self) -> [u8; HEADER_READ] {
        let mut out = [0; HEADER_READ];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(8, &VERSION.to_le_bytes());
        put(12, &self.pid.to_le_bytes());
        put(16, &self.start_time.to_le_bytes());
        put(24, &self.cpus.to_le_bytes());
        put(Self::COUNTS_AT as usize, &self.encode_counts());
        put(44, &self.records.to_le_bytes());
        put(48, &COUNTER_AREA.to_le_bytes());
        put(52, &1u32.to_le_bytes());
        put(56, &self.areas.to_le_bytes());
        for (i, pid) in self.ancestors.iter().enumerate() {
            put(64 + 4 * i, &pid.to_le_bytes());
        }
        put(Self::ENDED_AT as usize, &[u8::from(self.ended)]);
        out
    }

    /// Encodes the part of the header that changes when counters are added.
    pub fn encode_counts(&self) -> [u8; 16] {
        let mut out = [0; 16];
        let counts = [self.counters, self.refused, self.low, self.high];
        for (to, count) in out.chunks_exact_mut(4).zip(counts) {
            to.copy_from_slice(&count.to_le_bytes());
        }
        out
    }

    /// From the first bytes of a file of `file_size` bytes.
    ///
    /// # Errors
    /// What is wrong; records and areas lie within the file.
    pub fn parse(bytes: &[u8], file_size: u64) -> Result<Self, UstFormatError> {
        let short = UstFormatError::Short { what: "file of counters", found: bytes.len() };
        let mut take = Take(bytes);
        if take.bytes(8).ok_or(short)? != COUNTERS_MAGIC {
            return Err(UstFormatError::Magic { what: "file of counters" });
        }
        let version = take.u32().ok_or(short)?;
        if version != VERSION {
            return Err(UstFormatError::Version { found: version });
        }
        let mut read = || -> Option<(Self, u32, u32)> {
            let mut header = Self {
                pid: take.u32()?,
                start_time: take.u64()?,
                cpus: take.u32()?,
                counters: take.u32()?,
                refused: take.u32()?,
                low: take.u32()?,
                high: take.u32()?,
                records: take.u32()?,
                areas: 0,
                ancestors: [0; COUNTER_ANCESTORS],
                ended: false,
            };
            let (area, order) = (take.u32()?, take.u32()?);
            header.areas = take.u64()?;
            for ancestor in &mut header.ancestors {
                *ancestor = take.u32()?;
            }
            header.ended = take.u8()? != 0;
            take.bytes(HEADER_READ - Self::ENDED_AT as usize - 1)?;
            Some((header, area, order))
        };
        let (header, area, order) = read().ok_or(short)?;
        let field = |name, ok: bool, value: u64| {
            if ok { Ok(()) } else { Err(UstFormatError::Field { name, value }) }
        };
        field("byte order mark", order == 1, order.into())?;
        field("bytes of an area", area == COUNTER_AREA, area.into())?;
        field("number of CPUs", header.cpus < MAX_COUNTER_AREAS, header.cpus.into())?;
        field("number of counters", header.counters <= MAX_COUNTERS, header.counters.into())?;
        let used = header.low <= header.high && header.high <= COUNTER_AREA;
        field("bytes in use", used, header.low.into())?;
        let records_end =
            u64::from(header.records) + u64::from(header.counters) * COUNTER_RECORD as u64;
        let ok = header.records as usize >= COUNTERS_HEADER && records_end <= file_size;
        field("records", ok, header.records.into())?;
        let areas_end = header.areas.checked_add(header.areas_bytes());
        let ok = header.areas >= records_end && areas_end.is_some_and(|end| end <= file_size);
        field("areas", ok, header.areas)?;
        Ok(header)
    }

    /// Number of areas.
    pub fn area_count(&self) -> u32 {
        self.cpus + 1
    }

    /// Bytes of all areas.
    pub fn areas_bytes(&self) -> u64 {
        u64::from(self.area_count()) * u64::from(COUNTER_AREA)
    }

    /// Offset of an area.
    pub fn area_at(&self, area: u32) -> u64 {
        self.areas + u64::from(area) * u64::from(COUNTER_AREA)
    }

    /// Offset of a record.
    pub fn record_at(&self, counter: u32) -> u64 {
        u64::from(self.records) + u64::from(counter) * COUNTER_RECORD as u64
    }
}

/// A counter or histogram of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterRecord {
    /// Which of both.
    pub kind: CounterKind,
    /// It is hit with keys; what has none is what found no place in the table.
    pub keyed: bool,
    /// Its library was unloaded.
    pub gone: bool,
    /// Line of the declaration.
    pub line: u32,
    /// Offset in an area of the value without a key.
    pub value: u32,
    /// Offset in an area of the values with keys.
    pub key_values: u32,
    /// Offset in the file of the table of keys.
    pub table: u32,
    /// Provider.
    pub provider: String,
    /// Its name.
    pub name: String,
    /// Description.
    pub doc: String,
    /// Source file of the declaration.
    pub file: String,
}

impl CounterRecord {
    /// Offset of the flags in a record.
    pub const FLAGS_AT: u64 = 1;
    /// Flag: it is hit with keys.
    pub const KEYED: u8 = 1;
    /// Flag: its library was unloaded.
    pub const GONE: u8 = 2;
    /// Most bytes of a provider or a name.
    pub const NAME: usize = TEXTS[0].1 - 1;

    /// The record; texts that are too long are cut.
    pub fn encode(&self) -> [u8; COUNTER_RECORD] {
        let mut out = [0; COUNTER_RECORD];
        out[0] = self.kind as u8;
        out[1] = if self.keyed { Self::KEYED } else { 0 } | if self.gone { Self::GONE } else { 0 };
        let numbers = [self.line, self.value, self.key_values, self.table];
        for (i, number) in numbers.iter().enumerate() {
            out[4 + 4 * i..8 + 4 * i].copy_from_slice(&number.to_le_bytes());
        }
        let texts = [&self.provider, &self.name, &self.doc, &self.file];
        for ((at, size), text) in TEXTS.iter().zip(texts) {
            let text = &text.as_bytes()[..text.len().min(size - 1)];
            out[*at..at + text.len()].copy_from_slice(text);
        }
        out
    }

    /// From the bytes of a record.
    ///
    /// # Errors
    /// If it is invalid; values lie within the part in use by the header.
    pub fn parse(bytes: &[u8], header: &CountersHeader) -> Result<Self, UstFormatError> {
        let short = UstFormatError::Short { what: "record of a counter", found: bytes.len() };
        let bytes = bytes.get(..COUNTER_RECORD).ok_or(short)?;
        let mut take = Take(bytes);
        let kind = take.u8().ok_or(short)?;
        let kind = CounterKind::from_number(kind)
            .ok_or(UstFormatError::Field { name: "kind of a counter", value: kind.into() })?;
        let flags = take.u8().ok_or(short)?;
        let mut numbers = [0; 4];
        take.u16().ok_or(short)?;
        for number in &mut numbers {
            *number = take.u32().ok_or(short)?;
        }
        let text = |n: usize| {
            let (at, size) = TEXTS[n];
            String::from_utf8_lossy(until_nul(&bytes[at..at + size])).into_owned()
        };
        let [line, value, key_values, table] = numbers;
        let record = Self {
            kind,
            keyed: flags & Self::KEYED != 0,
            gone: flags & Self::GONE != 0,
            line,
            value,
            key_values,
            table,
            provider: text(0),
            name: text(1),
            doc: text(2),
            file: text(3),
        };
        let field = |name, ok: bool, value: u32| {
            if ok { Ok(()) } else { Err(UstFormatError::Field { name, value: value.into() }) }
        };
        let end = value.checked_add(kind.value_bytes());
        field("place of a value", end.is_some_and(|end| end <= header.low), value)?;
        if record.keyed {
            let bytes = kind.keys() * kind.value_bytes();
            let end = key_values.checked_add(bytes);
            let ok = key_values >= header.high && end.is_some_and(|end| end <= COUNTER_AREA);
            field("place of values with keys", ok, key_values)?;
            let end = u64::from(table) + record.table_bytes() as u64;
            let ok = u64::from(table) >= header.record_at(header.counters) && end <= header.areas;
            field("table of keys", ok, table)?;
        }
        Ok(record)
    }

    /// Bytes of its table of keys, if it has one.
    pub fn table_bytes(&self) -> usize {
        KEY_ENTRY * (1 + self.kind.table_entries() as usize)
    }

    /// The keys of its table, each with the offset in an area of its value. Entries that are not
    /// finished, and what cannot be, are passed over. Without keys the places are not those of
    /// anything.
    pub fn keys(&self, table: &[u8]) -> Vec<(CountedKey, u32)> {
        if !self.keyed {
            return Vec::new();
        }
        let mut seen = vec![false; self.kind.keys() as usize];
        let entries =
            table.chunks_exact(KEY_ENTRY).skip(1).take(self.kind.table_entries() as usize);
        let of = |entry: &[u8]| {
            let (key, index) = CountedKey::parse(entry)?;
            // Two keys with one value would be counted twice.
            let first = seen.get_mut(index as usize).filter(|seen| !**seen)?;
            *first = true;
            Some((key, self.key_values + index * self.kind.value_bytes()))
        };
        entries.filter_map(of).collect()
    }
}

/// A key of a counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountedKey {
    /// A number.
    Unsigned(u64),
    /// A number.
    Signed(i64),
    /// A text, or the first [`KEY_BYTES`] bytes of a longer one.
    Text(String),
    /// Text that was longer.
    Cut(String),
}

impl CountedKey {
    /// Tags of entries: a text, numbers, a text that was cut.
    pub const TEXT: u8 = 1;
    /// An unsigned number.
    pub const UNSIGNED: u8 = 2;
    /// A signed number.
    pub const SIGNED: u8 = 3;
    /// A text that was cut.
    pub const CUT: u8 = 4;
    /// State of an entry that is finished.
    pub const READY: u32 = 2;

    /// Key and number of its value, if the entry is finished.
    fn parse(entry: &[u8]) -> Option<(CountedKey, u32)> {
        let mut take = Take(entry);
        let hash = take.u64()?;
        let (state, index) = (take.u32()?, take.u32()?);
        let (tag, len) = (take.u8()?, take.u8()?);
        take.bytes(6)?;
        let bytes = take.bytes(KEY_BYTES)?;
        if hash == 0 || state != Self::READY {
            return None;
        }
        let number = || Take(bytes).u64();
        let text = || {
            let text = bytes.get(..len.into())?;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        let key = match tag {
            Self::TEXT => CountedKey::Text(text()?),
            Self::CUT => CountedKey::Cut(text()?),
            Self::UNSIGNED => CountedKey::Unsigned(number()?),
            Self::SIGNED => CountedKey::Signed(number()? as i64),
            _ => return None,
        };
        Some((key, index))
    }
}

impl fmt::Display for CountedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CountedKey::Unsigned(n) => n.fmt(f),
            CountedKey::Signed(n) => n.fmt(f),
            CountedKey::Text(text) => f.write_str(text),
            CountedKey::Cut(text) => write!(f, "{text}…"),
        }
    }
}

/// Value of a counter or histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterValue {
    /// A sum.
    Count(u64),
    /// Values by powers of two.
    Histogram(Box<HistogramCounts>),
}

/// Values of a histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramCounts {
    /// Number of values in each bucket.
    pub buckets: [u64; HISTOGRAM_BUCKETS],
    /// Their sum.
    pub sum: i128,
    /// Least and largest value; known of all since the start alone.
    pub extremes: Option<(i64, i64)>,
}

impl HistogramCounts {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, n| sum.wrapping_add(*n))
    }
}

impl CounterValue {
    /// Nothing.
    pub fn zero(kind: CounterKind) -> CounterValue {
        match kind {
            CounterKind::Counter => CounterValue::Count(0),
            CounterKind::Histogram => CounterValue::Histogram(Box::new(HistogramCounts {
                buckets: [0; HISTOGRAM_BUCKETS],
                sum: 0,
                extremes: None,
            })),
        }
    }

    /// Adds the value of one area.
    pub fn add_area(&mut self, bytes: &[u8]) {
        let word = |at: usize| bytes.get(at..).and_then(|b| Take(b).u64()).unwrap_or(0);
        match self {
            CounterValue::Count(count) => *count = count.wrapping_add(word(0)),
            CounterValue::Histogram(counts) => {
                for (i, bucket) in counts.buckets.iter_mut().enumerate() {
                    *bucket = bucket.wrapping_add(word(16 * i));
                    counts.sum += i128::from(word(16 * i + 8) as i64);
                }
                // Both count up from 0, which is less than any value has.
                let (least, most) = (!word(EXTREMES_AT), word(EXTREMES_AT + 8));
                if (least, most) != (u64::MAX, 0) {
                    counts.widen((from_ordered(least), from_ordered(most)));
                }
            }
        }
    }

    /// Adds what else was counted.
    pub fn add(&mut self, other: &CounterValue) {
        match (self, other) {
            (CounterValue::Count(count), CounterValue::Count(other)) => {
                *count = count.wrapping_add(*other);
            }
            (CounterValue::Histogram(counts), CounterValue::Histogram(other)) => {
                for (bucket, other) in counts.buckets.iter_mut().zip(other.buckets) {
                    *bucket = bucket.wrapping_add(other);
                }
                counts.sum = counts.sum.wrapping_add(other.sum);
                other.extremes.into_iter().for_each(|extremes| counts.widen(extremes));
            }
            _ => {}
        }
    }

    /// Subtracts an earlier value. The least and the largest value of the difference are not known.
    pub fn subtract(&mut self, earlier: &CounterValue) {
        match (self, earlier) {
            (CounterValue::Count(count), CounterValue::Count(earlier)) => {
                *count = count.wrapping_sub(*earlier);
            }
            (CounterValue::Histogram(counts), CounterValue::Histogram(earlier)) => {
                for (bucket, earlier) in counts.buckets.iter_mut().zip(earlier.buckets) {
                    *bucket = bucket.saturating_sub(earlier);
                }
                counts.sum = counts.sum.wrapping_sub(earlier.sum);
                if earlier.count() != 0 {
                    counts.extremes = None;
                }
            }
            _ => {}
        }
    }

    /// Hits of a histogram; what a counter has come to.
    pub fn count(&self) -> u64 {
        match self {
            CounterValue::Count(count) => *count,
            CounterValue::Histogram(counts) => counts.count(),
        }
    }
}

impl HistogramCounts {
    fn widen(&mut self, (least, most): (i64, i64)) {
        let (low, high) = self.extremes.unwrap_or((least, most));
        self.extremes = Some((low.min(least), high.max(most)));
    }
}

/// A number whose order as unsigned is that of the value.
#[inline(always)]
pub const fn to_ordered(value: i64) -> u64 {
    value as u64 ^ (1 << 63)
}

fn from_ordered(word: u64) -> i64 {
    (word ^ (1 << 63)) as i64
}

/// Offset in a histogram of two words, of its least and its largest value: the largest
/// [`to_ordered`] ever, of the inverted value and of the value.
pub const HISTOGRAM_EXTREMES: usize = EXTREMES_AT;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn header() -> CountersHeader {
        CountersHeader {
            pid: 7,
            start_time: 8,
            cpus: 2,
            counters: 3,
            refused: 0,
            low: 2 * 1056,
            high: COUNTER_AREA - 64 * 1056,
            records: 4096,
            areas: CountersHeader::AREAS,
            ancestors: [9; COUNTER_ANCESTORS],
            ended: true,
        }
    }

    fn record() -> CounterRecord {
        CounterRecord {
            kind: CounterKind::Histogram,
            keyed: true,
            gone: false,
            line: 12,
            value: 1056,
            key_values: header().high,
            table: CountersHeader::TABLES,
            provider: "shop".into(),
            name: "wait".into(),
            doc: "Time.".into(),
            file: "shop.rs".into(),
        }
    }

    const SIZE: u64 = CountersHeader::AREAS + 3 * COUNTER_AREA as u64;

    /// Places of a table that there is not were added up before, beyond 32 bits.
    #[test]
    fn a_counter_without_keys_has_none() {
        let record = CounterRecord { keyed: false, key_values: u32::MAX, ..record() };
        let mut table = vec![0; record.table_bytes()];
        let entry = &mut table[KEY_ENTRY..2 * KEY_ENTRY];
        entry[0] = 1;
        entry[8..12].copy_from_slice(&CountedKey::READY.to_le_bytes());
        entry[12..16].copy_from_slice(&1u32.to_le_bytes());
        entry[16] = CountedKey::UNSIGNED;
        assert_eq!(record.keys(&table), []);
        let keyed = CounterRecord { keyed: true, key_values: 0, ..record };
        assert_eq!(keyed.keys(&table).len(), 1);
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = header().encode().to_vec();
        bytes[..8].copy_from_slice(&COUNTERS_MAGIC);
        bytes
    }

    #[test]
    fn headers_and_records_survive_their_bytes() {
        assert_eq!(CountersHeader::parse(&bytes(), SIZE).unwrap(), header());
        assert_eq!(CounterRecord::parse(&record().encode(), &header()).unwrap(), record());
        let long = CounterRecord { doc: "x".repeat(999), ..record() };
        let cut = CounterRecord::parse(&long.encode(), &header()).unwrap();
        assert_eq!(cut.doc.len(), 223);
    }

    #[test]
    fn lies_are_found() {
        assert!(CountersHeader::parse(&bytes(), SIZE - 1).is_err());
        assert!(CountersHeader::parse(&bytes()[..135], SIZE).is_err());
        for (at, value) in [(0, 1), (8, 2), (24, 3), (25, 0x20), (29, 5), (38, 0xff), (42, 0xff)] {
            let mut lie = bytes();
            lie[at] = value;
            assert!(CountersHeader::parse(&lie, SIZE).is_err(), "a change at {at} went unseen");
        }
        for (at, value) in [(45, 0), (47, 1), (48, 1), (52, 2), (63, 0x80), (58, 0)] {
            let mut lie = bytes();
            lie[at] = value;
            assert!(CountersHeader::parse(&lie, SIZE).is_err(), "a change at {at} went unseen");
        }
        for (at, value) in [(0, 3), (9, 9), (15, 1), (18, 0), (14, 0x20), (16, 1), (19, 1)] {
            let mut lie = record().encode();
            lie[at] = value;
            let parsed = CounterRecord::parse(&lie, &header());
            assert!(parsed.is_err() || at == 16, "a change at {at} went unseen");
        }
    }

    #[test]
    fn buckets_are_powers_of_two() {
        let of = |value: i64| bucket_range(bucket_of(value));
        assert_eq!(of(i64::MIN), (None, Some(0)));
        assert_eq!(of(-1), (None, Some(0)));
        assert_eq!(of(0), (Some(0), Some(1)));
        assert_eq!(of(1), (Some(1), Some(2)));
        assert_eq!(of(3), (Some(2), Some(4)));
        assert_eq!(of(4), (Some(4), Some(8)));
        assert_eq!(of(i64::MAX), (Some(1 << 62), None));
        assert_eq!(bucket_of(i64::MAX), HISTOGRAM_BUCKETS - 1);
    }

    #[test]
    fn keys_without_an_end_are_passed_over() {
        let record = record();
        let mut table = vec![0; record.table_bytes()];
        let mut put = |n: usize, state: u32, index: u32, tag: u8, len: u8, key: &[u8]| {
            let entry = &mut table[KEY_ENTRY * (1 + n)..];
            entry[0] = 1;
            entry[8..12].copy_from_slice(&state.to_le_bytes());
            entry[12..16].copy_from_slice(&index.to_le_bytes());
            (entry[16], entry[17]) = (tag, len);
            entry[24..24 + key.len()].copy_from_slice(key);
        };
        put(0, 2, 5, CountedKey::TEXT, 4, b"card");
        put(1, 2, 6, CountedKey::UNSIGNED, 8, &[7]);
        put(2, 1, 7, CountedKey::UNSIGNED, 8, &[8]);
        put(3, 2, 64, CountedKey::UNSIGNED, 8, &[9]);
        put(4, 2, 6, CountedKey::UNSIGNED, 8, &[10]);
        put(5, 2, 8, CountedKey::TEXT, 41, b"x");
        put(6, 2, 9, 9, 8, b"x");
        put(127, 2, 63, CountedKey::SIGNED, 8, &[0xff; 8]);
        let at = |index: u32| record.key_values + 1056 * index;
        assert_eq!(
            record.keys(&table),
            [
                (CountedKey::Text("card".into()), at(5)),
                (CountedKey::Unsigned(7), at(6)),
                (CountedKey::Signed(-1), at(63))
            ]
        );
    }

    #[test]
    fn areas_add_up() {
        let mut area = vec![0; 1056];
        let at = 16 * bucket_of(-3);
        area[at] = 2;
        area[at + 8..at + 16].copy_from_slice(&(-6i64).to_le_bytes());
        area[1040..1048].copy_from_slice(&(!to_ordered(-3)).to_le_bytes());
        area[1048..1056].copy_from_slice(&to_ordered(-3).to_le_bytes());
        let mut value = CounterValue::zero(CounterKind::Histogram);
        value.add_area(&vec![0; 1056]);
        let before = value.clone();
        value.add_area(&area);
        let CounterValue::Histogram(counts) = &value else { unreachable!() };
        assert_eq!((counts.count(), counts.sum, counts.extremes), (2, -6, Some((-3, -3))));
        value.subtract(&before);
        assert_eq!(value.count(), 2);
    }
}

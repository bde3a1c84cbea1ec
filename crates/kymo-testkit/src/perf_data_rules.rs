//! Rules of perf.data files as perf's readers enforce them, checked on files that kymo wrote. Nothing
//! here is shared with kymo's writer or reader.

use std::collections::BTreeMap;

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

const SAMPLE: u32 = 9;
const FIRST_OF_PERF: u32 = 64;
const HEADER_ATTR: u32 = 64;
const HEADER_TRACING_DATA: u32 = 66;
const HEADER_BUILD_ID: u32 = 67;
const FINISHED_ROUND: u32 = 68;
const AUXTRACE: u32 = 71;
const HEADER_FEATURE: u32 = 80;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;
const TRACEPOINT: u32 = 2;
const SAMPLE_ID_ALL: u64 = 1 << 18;
/// A CPU takes the time of a record before it is written, and may be held up in between, on a busy
/// virtual machine above all: nanoseconds.
const LATE: u64 = 50_000_000;
/// Bits of `sample_type`.
const TIME: u64 = 1 << 2;
const ID: u64 = 1 << 6;
const IDENTIFIER: u64 = 1 << 16;
/// Fields of one word before the parts of variable size, in their order.
const LEADING: [u64; 9] = [1 << 16, 1, 1 << 1, 1 << 2, 1 << 3, 1 << 6, 1 << 9, 1 << 7, 1 << 8];
/// Fields that follow other records, in their order: task, time, id, stream, CPU, identifier.
const TRAILING: [u64; 6] = [1 << 1, 1 << 2, 1 << 6, 1 << 9, 1 << 7, 1 << 16];
/// Feature sections that are one string.
const STRINGS: [u32; 6] = [3, 4, 5, 6, 8, 9];

/// An event as its attribute states it.
#[derive(Clone, Debug, Default)]
struct Event {
    kind: u32,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    branch_type: u64,
    regs_user: u64,
    regs_intr: u64,
}

/// Number of samples and records in a file that breaks no rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedPerfData {
    /// Samples.
    pub samples: u64,
    /// All records.
    pub records: u64,
    /// Samples that lie after a round that had records with a time.
    pub after_rounds: u64,
}

/// Checks a perf.data of either form that was written on this machine.
///
/// # Errors
/// Names the rules that are broken, at most 20, with the offset.
pub fn check_perf_data(bytes: &[u8]) -> Result<CheckedPerfData, String> {
    let mut check = Check { bytes, ..Check::default() };
    check.file();
    if check.broken.is_empty() { Ok(check.counts) } else { Err(check.broken.join("\n")) }
}

#[derive(Default)]
struct Check<'b> {
    bytes: &'b [u8],
    events: Vec<Event>,
    ids: BTreeMap<u64, usize>,
    broken: Vec<String>,
    counts: CheckedPerfData,
    is_pipe: bool,
    has_tracing_data: bool,
    /// Largest time; that at the last round; that up to which a reader has delivered.
    times: (u64, u64, u64),
    decoder: Option<Decoder<'static>>,
    unpacked: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

impl<'b> Check<'b> {
    fn wrong(&mut self, at: usize, what: impl Into<String>) {
        if self.broken.len() < 20 {
            self.broken.push(format!("at {at}: {}", what.into()));
        }
    }

    fn file(&mut self) {
        let bytes = self.bytes;
        if !bytes.starts_with(b"PERFILE2") {
            return self.wrong(0, "the magic is not PERFILE2");
        }
        match word(bytes, 8) {
            Some(16) => {
                self.is_pipe = true;
                self.records(16, bytes.len());
            }
            Some(104) => self.file_form(),
            size => return self.wrong(8, format!("the header states a size of {size:?}")),
        }
        if !self.unpacked.is_empty() {
            let left = self.unpacked.len();
            self.wrong(bytes.len(), format!("compressed data end {left} bytes into a record"));
        }
    }

    /// A section that lies in the file.
    fn section(&mut self, at: usize, what: &str) -> Option<(usize, &'b [u8])> {
        let bytes = self.bytes;
        let (offset, size) = (word(bytes, at)? as usize, word(bytes, at + 8)? as usize);
        let found = offset.checked_add(size).and_then(|end| bytes.get(offset..end));
        if found.is_none() {
            self.wrong(at, format!("{what}: {size} bytes at {offset} are not in the file"));
        }
        found.map(|found| (offset, found))
    }

    fn file_form(&mut self) {
        let bytes = self.bytes;
        let entry = word(bytes, 16).unwrap_or(0) as usize;
        if !(80..=4096).contains(&entry) || !entry.is_multiple_of(8) {
            return self.wrong(16, format!("attributes take {entry} bytes"));
        }
        let Some((attrs_at, attrs)) = self.section(24, "attributes") else { return };
        if !attrs.len().is_multiple_of(entry) {
            self.wrong(24, "the attributes are not a multiple of their size");
        }
        for (n, own) in attrs.chunks_exact(entry).enumerate() {
            let at = attrs_at + n * entry;
            self.attr(own.get(..entry - 16).unwrap_or_default(), entry - 16, at);
            if let Some((ids_at, ids)) = self.section(at + entry - 16, "ids") {
                self.add_ids(ids, ids_at);
            }
        }
        let Some((data_at, data)) = self.section(40, "records") else { return };
        let end = data_at + data.len();
        self.records(data_at, end);
        let bits: Vec<u32> = (0..256u32)
            .filter(|n| bytes.get(72 + *n as usize / 8).is_some_and(|b| b & 1 << (n % 8) != 0))
            .collect();
        for (n, feature) in bits.iter().enumerate() {
            let at = end + 16 * n;
            // Reserved: a mark of a file whose recorder was killed.
            if *feature == 0 {
                continue;
            }
            match self.section(at, &format!("feature {feature}")) {
                Some((offset, own)) => self.feature(*feature, own, offset),
                None if word(bytes, at + 8).is_none() => self.wrong(at, "the table is cut"),
                None => {}
            }
        }
    }

    fn attr(&mut self, attr: &[u8], stated: usize, at: usize) {
        let own = half(attr, 4).unwrap_or(0) as usize;
        if own != stated || !own.is_multiple_of(8) || own < 64 {
            self.wrong(at, format!("an attribute states {own} bytes, its place has {stated}"));
        }
        let w = |at: usize| word(attr, at).unwrap_or(0);
        self.events.push(Event {
            kind: half(attr, 0).unwrap_or(0),
            sample_type: w(24),
            read_format: w(32),
            flags: w(40),
            branch_type: w(72),
            regs_user: w(80),
            regs_intr: w(96),
        });
    }

    fn add_ids(&mut self, ids: &[u8], at: usize) {
        if !ids.len().is_multiple_of(8) {
            self.wrong(at, "ids are not a multiple of 8 bytes");
        }
        let event = self.events.len().saturating_sub(1);
        for id in ids.as_chunks::<8>().0 {
            if self.ids.insert(u64::from_le_bytes(*id), event).is_some() {
                self.wrong(at, "an id belongs to two events");
            }
        }
    }

    fn feature(&mut self, feature: u32, bytes: &[u8], at: usize) {
        let string = |at: usize| {
            let len = half(bytes, at)? as usize;
            bytes
                .get(at + 4..at + 4 + len)
                .filter(|text| text.contains(&0))
                .map(|t| at + 4 + t.len())
        };
        if STRINGS.contains(&feature) && string(0).is_none() {
            self.wrong(at, format!("feature {feature} is not a string"));
        }
        if feature == 11 {
            let count = half(bytes, 0).unwrap_or(0);
            let end = (0..count).try_fold(4, |at, _| string(at));
            if end != Some(bytes.len()) {
                self.wrong(at, "the command line is not its number of strings");
            }
        }
        if feature == 2 {
            let mut from = 0;
            while from < bytes.len() {
                let size = half(bytes, from + 4).map_or(0, |word| (word >> 16) as usize);
                if size < 37 || from + size > bytes.len() {
                    return self.wrong(at + from, format!("a build-id takes {size} bytes"));
                }
                from += size;
            }
        }
        if feature == 21 && bytes.len() != 16 {
            self.wrong(at, format!("the times of samples take {} bytes", bytes.len()));
        }
    }

    fn records(&mut self, from: usize, end: usize) {
        let mut at = from;
        while at < end {
            let Some(kind) = half(self.bytes, at) else {
                return self.wrong(at, "a header is cut");
            };
            let size = half(self.bytes, at + 4).map_or(0, |word| (word >> 16) as usize);
            let record = self.bytes.get(at..at + size).filter(|_| at + size <= end);
            let Some(record) = record.filter(|_| size >= 8) else {
                return self.wrong(at, format!("a record of kind {kind} states {size} bytes"));
            };
            // perf writes these so itself.
            let may_be_odd = [HEADER_FEATURE, COMPRESSED, HEADER_TRACING_DATA].contains(&kind);
            if !size.is_multiple_of(8) && !may_be_odd {
                self.wrong(
                    at,
                    format!("a record of kind {kind} takes {size} bytes, not 8 times n"),
                );
            }
            let body = record.get(8..).unwrap_or_default();
            at += size;
            match kind {
                COMPRESSED => self.unpack(body, at - size),
                COMPRESSED2 => {
                    let length = word(body, 0).unwrap_or(0) as usize;
                    match body.get(8..8 + length) {
                        Some(packed) => self.unpack(packed, at - size),
                        None => self.wrong(at - size, "compressed bytes reach beyond the record"),
                    }
                }
                HEADER_TRACING_DATA => {
                    let length = half(body, 0).unwrap_or(0) as usize;
                    if !length.is_multiple_of(8) {
                        self.wrong(at - size, "tracing data are not a multiple of 8 bytes");
                    }
                    self.has_tracing_data = true;
                    at += length;
                }
                AUXTRACE => at += word(body, 0).unwrap_or(0) as usize,
                _ => self.record(kind, record, at - size),
            }
        }
        if at != end {
            self.wrong(at, "the last record reaches beyond the records");
        }
    }

    fn unpack(&mut self, packed: &[u8], at: usize) {
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => match Decoder::new() {
                Ok(decoder) => decoder,
                Err(error) => return self.wrong(at, error.to_string()),
            },
        };
        let mut input = InBuffer::around(packed);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let mut output = OutBuffer::around(&mut buffer[..]);
            if let Err(error) = decoder.run(&mut input, &mut output) {
                return self.wrong(at, format!("compressed bytes do not decode: {error}"));
            }
            let made = output.pos();
            self.unpacked.extend_from_slice(buffer.get(..made).unwrap_or_default());
            if input.pos() == packed.len() && made < buffer.len() {
                break;
            }
        }
        self.decoder = Some(decoder);
        let unpacked = std::mem::take(&mut self.unpacked);
        let mut from = 0;
        while let (Some(kind), Some(word)) = (half(&unpacked, from), half(&unpacked, from + 4)) {
            let size = (word >> 16) as usize;
            if size < 8 || !size.is_multiple_of(8) {
                self.wrong(at, format!("a compressed record of kind {kind} states {size} bytes"));
                return;
            }
            let Some(record) = unpacked.get(from..from + size) else { break };
            self.record(kind, record, at);
            from += size;
        }
        self.unpacked = unpacked.get(from..).unwrap_or_default().to_vec();
    }

    fn record(&mut self, kind: u32, record: &[u8], at: usize) {
        self.counts.records += 1;
        let body = record.get(8..).unwrap_or_default();
        match kind {
            HEADER_ATTR => {
                let stated = half(body, 4).unwrap_or(0) as usize;
                let Some(attr) = body.get(..stated) else {
                    return self.wrong(at, "an attribute reaches beyond its record");
                };
                self.attr(attr, stated, at);
                self.add_ids(body.get(stated..).unwrap_or_default(), at);
            }
            HEADER_BUILD_ID if body.len() < 29 || !body.contains(&0) => {
                self.wrong(at, "a build-id without a name");
            }
            FINISHED_ROUND => self.times = (self.times.0, self.times.0, self.times.1),
            SAMPLE => self.sample(body, at),
            kind if kind < FIRST_OF_PERF => self.other(kind, body, at),
            _ => {}
        }
    }

    /// The event of an id, which is the first one where records have none.
    fn event_of(&mut self, id: Option<u64>, at: usize) -> Option<Event> {
        if self.events.is_empty() {
            self.wrong(at, "a record before any attribute");
            return None;
        }
        let number = match id {
            None if self.events.len() == 1 => Some(0),
            None => {
                self.wrong(at, "several events, and a record without an id");
                None
            }
            Some(id) => self.ids.get(&id).copied(),
        };
        if number.is_none() {
            self.wrong(at, format!("id {id:?} is of no event"));
        }
        self.events.get(number?).cloned()
    }

    fn time(&mut self, time: Option<u64>, at: usize) {
        let Some(time) = time.filter(|time| *time != 0 && *time != u64::MAX) else { return };
        if time.saturating_add(LATE) < self.times.2 {
            let before = self.times.2;
            self.wrong(at, format!("time {time} after two rounds that had {before}"));
        }
        self.times.0 = self.times.0.max(time);
    }

    fn sample(&mut self, body: &[u8], at: usize) {
        self.counts.samples += 1;
        self.counts.after_rounds += u64::from(self.times.1 > 0);
        // All events have the identifier at one place.
        let shared = self.events.first().map_or(0, |e| e.sample_type);
        let place = |field: u64, of: u64| {
            let before = LEADING.iter().take_while(|f| **f != field).filter(|f| of & **f != 0);
            (of & field != 0).then(|| before.count() * 8)
        };
        let id = match shared & IDENTIFIER {
            0 => place(ID, shared).and_then(|at| word(body, at)),
            _ => word(body, 0),
        };
        let Some(event) = self.event_of(id, at) else { return };
        if self.is_pipe && event.kind == TRACEPOINT && !self.has_tracing_data {
            self.wrong(at, "a sample of a tracepoint before the tracing data");
        }
        self.time(place(TIME, event.sample_type).and_then(|at| word(body, at)), at);
        match layout(&event, body) {
            // Raw data are padded.
            Some(end) if body.len() - end < 8 => {}
            end => {
                let len = body.len();
                self.wrong(at, format!("the fields of a sample end at {end:?} of {len} bytes"));
            }
        }
    }

    fn other(&mut self, kind: u32, body: &[u8], at: usize) {
        let Some(first) = self.events.first().cloned() else {
            return self.wrong(at, format!("a record of kind {kind} before any attribute"));
        };
        if first.flags & SAMPLE_ID_ALL == 0 {
            return;
        }
        // Records that were made for what existed before are of no event, or of the first.
        let id = match first.sample_type & (IDENTIFIER | ID) {
            0 => None,
            // The identifier is the last word, whatever else the event has.
            shared if shared & IDENTIFIER != 0 => {
                body.len().checked_sub(8).and_then(|last| word(body, last))
            }
            _ => trailing_word(first.sample_type, ID, body),
        };
        let event = match id.filter(|id| *id != 0) {
            Some(_) => self.event_of(id, at).unwrap_or(first),
            None => first,
        };
        if trailing_fields(event.sample_type).count() * 8 > body.len() {
            return self.wrong(at, format!("a record of kind {kind} has no room for its trailer"));
        }
        let time = trailing_word(event.sample_type, TIME, body);
        self.time(time, at);
    }
}

/// Fields that follow the records of an event, in their order.
fn trailing_fields(sample_type: u64) -> impl Iterator<Item = u64> {
    TRAILING.into_iter().filter(move |field| sample_type & field != 0)
}

/// Value of a field in the trailer of a record.
fn trailing_word(sample_type: u64, field: u64, body: &[u8]) -> Option<u64> {
    let start = body.len().checked_sub(trailing_fields(sample_type).count() * 8)?;
    let number = trailing_fields(sample_type).position(|f| f == field)?;
    word(body, start + number * 8)
}

/// End of a sample's fields; `None`: beyond the record.
fn layout(event: &Event, body: &[u8]) -> Option<usize> {
    let has = |bit: u32| event.sample_type & 1 << bit != 0;
    let mut at = LEADING.iter().filter(|f| event.sample_type & **f != 0).count() * 8;
    let skip = |at: &mut usize, count: u64, each: usize| {
        let size = usize::try_from(count).ok()?.checked_mul(each)?;
        *at = at.checked_add(size).filter(|end| *end <= body.len())?;
        Some(())
    };
    let take = |at: &mut usize| {
        let found = word(body, *at)?;
        *at += 8;
        Some(found)
    };
    if has(4) {
        let format = |bit: u32| event.read_format >> bit & 1;
        let each = 1 + format(2) + format(4);
        let count = if format(3) == 1 { take(&mut at)? } else { 1 };
        skip(&mut at, format(0) + format(1), 8)?;
        skip(&mut at, count, each as usize * 8)?;
    }
    if has(5) {
        let count = take(&mut at)?;
        skip(&mut at, count, 8)?;
    }
    if has(10) {
        let size = half(body, at)?;
        at += 4;
        skip(&mut at, size.into(), 1)?;
        at = at.next_multiple_of(8);
    }
    if has(11) {
        let count = take(&mut at)?;
        skip(&mut at, event.branch_type >> 17 & 1, 8)?;
        skip(&mut at, count, 24)?;
        skip(&mut at, count * (event.branch_type >> 19 & 1), 8)?;
    }
    let registers = |at: &mut usize, mask: u64| {
        let abi = take(at)?;
        skip(at, if abi == 0 { 0 } else { mask.count_ones().into() }, 8)
    };
    if has(12) {
        registers(&mut at, event.regs_user)?;
    }
    if has(13) {
        let size = take(&mut at)?;
        skip(&mut at, size, 1)?;
        skip(&mut at, u64::from(size > 0), 8)?;
    }
    skip(&mut at, u64::from(has(14) || has(24)) + u64::from(has(15)) + u64::from(has(17)), 8)?;
    if has(18) {
        registers(&mut at, event.regs_intr)?;
    }
    let last = [19, 21, 22, 23].iter().filter(|bit| has(**bit)).count();
    skip(&mut at, last as u64, 8)?;
    (at <= body.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = (8 + body.len()) as u16;
        [&kind.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), body].concat()
    }

    /// A pipe with an event whose samples have an identifier and a time.
    fn pipe(records: &[Vec<u8>]) -> Vec<u8> {
        let mut attr = [0; 64];
        attr[4] = 64;
        attr[24..32].copy_from_slice(&(IDENTIFIER | TIME).to_le_bytes());
        let head = record(HEADER_ATTR, &[&attr[..], &7u64.to_le_bytes()].concat());
        [&b"PERFILE2\x10\0\0\0\0\0\0\0"[..], &head, &records.concat()].concat()
    }

    fn sample(id: u64, time: u64) -> Vec<u8> {
        record(SAMPLE, &[id.to_le_bytes(), time.to_le_bytes()].concat())
    }

    #[track_caller]
    fn refused(records: &[Vec<u8>], why: &str) {
        let error = check_perf_data(&pipe(records)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn each_rule_is_seen() {
        let round = || record(FINISHED_ROUND, &[]);
        let s = |n: u64| sample(7, n * 1_000_000_000);
        let right = [s(5), round(), s(9), round(), s(6)];
        assert_eq!(check_perf_data(&pipe(&right)).map(|c| c.samples), Ok(3));
        refused(&[s(5), round(), round(), s(4)], "after two rounds");
        refused(&[sample(8, 5)], "of no event");
        refused(&[record(SAMPLE, &[7, 0, 0, 0, 0, 0, 0, 0])], "the fields of a sample end");
        refused(&[record(HEADER_BUILD_ID, &[0; 92])], "not 8 times n");
        refused(&[vec![9, 0, 0, 0, 0, 0, 4, 0]], "states 4 bytes");
        refused(&[vec![9, 0, 0, 0, 0, 0, 99, 0]], "states 99 bytes");
        let late = [&b"PERFILE2\x10\0\0\0\0\0\0\0"[..], &sample(7, 1)].concat();
        assert!(check_perf_data(&late).unwrap_err().contains("before any attribute"));
    }
}

//! Records of the last minutes, kept in memory so that what was seen can be saved: pieces
//! of about a second, compressed, the oldest dropped first. Of what is dropped the records
//! that tell of tasks and mappings stay, as later samples need them; those of processes that
//! ended go when they have become many.

use std::collections::VecDeque;
use std::io;

use kymo_model::{Attr, Endian, LeadingFields, RawRecord, RecordHeader, RecordKind, Sideband};
use rustc_hash::FxHashSet;

/// A piece is closed when it has this many bytes.
const PIECE: usize = 1 << 20;
/// Memory takes part of one processor's time: the fastest level is small enough.
const LEVEL: i32 = -1;

/// The last records of rings.
pub(crate) struct RecordHistory {
    attr: Attr,
    /// Place of the time in a sample, its header included.
    time_at: Option<usize>,
    /// Most bytes of compressed pieces.
    most: usize,
    /// Records of tasks and mappings before the oldest piece.
    sideband: Vec<u8>,
    /// Size at which `sideband` is compacted again.
    next_look: usize,
    pieces: VecDeque<HistoryPiece>,
    bytes: usize,
    /// The piece that grows; it ends where all rings were read.
    open: Vec<u8>,
    compressor: zstd::bulk::Compressor<'static>,
}

struct HistoryPiece {
    /// Time of its newest sample.
    newest: u64,
    compressed: Vec<u8>,
    size: usize,
}

/// Size below which `sideband` is not compacted.
const LEAST_LOOK: usize = 1 << 20;

impl RecordHistory {
    /// For records of events of which `attr` is the first; keeps about `most` bytes.
    pub(crate) fn new(attr: &Attr, most: usize) -> io::Result<RecordHistory> {
        let time_at = LeadingFields::new(attr.sample_type).time;
        Ok(RecordHistory {
            attr: attr.clone(),
            time_at: time_at.map(|at| RecordHeader::SIZE + at),
            most,
            sideband: Vec::new(),
            next_look: LEAST_LOOK,
            pieces: VecDeque::new(),
            bytes: 0,
            open: Vec::new(),
            compressor: zstd::bulk::Compressor::new(LEVEL)?,
        })
    }

    /// Takes records that tell of what existed before.
    pub(crate) fn tell(&mut self, records: &[u8]) {
        self.sideband.extend_from_slice(records);
        self.next_look = self.next_look.max(self.sideband.len() * 2);
    }

    /// Takes whole records that lie in two pieces.
    pub(crate) fn push(&mut self, first: &[u8], second: &[u8]) {
        self.open.extend_from_slice(first);
        self.open.extend_from_slice(second);
    }

    /// All rings were read: the piece may end here.
    pub(crate) fn end_round(&mut self) -> io::Result<()> {
        if self.open.len() < PIECE {
            return Ok(());
        }
        let compressed = self.compressor.compress(&self.open)?;
        self.bytes += compressed.len();
        let samples = records(&self.open).filter(|r| r.kind == RecordKind::SAMPLE);
        let newest = samples.filter_map(|r| self.time(&r)).max().unwrap_or(0);
        self.pieces.push_back(HistoryPiece { newest, compressed, size: self.open.len() });
        self.open.clear();
        self.open.shrink_to(2 * PIECE);
        while self.bytes > self.most && self.pieces.len() > 1 {
            self.drop_oldest()?;
        }
        Ok(())
    }

    /// Drops what happened before `time`, as far as whole pieces are older.
    pub(crate) fn forget_before(&mut self, time: u64) -> io::Result<()> {
        while self.pieces.front().is_some_and(|piece| piece.newest < time) {
            self.drop_oldest()?;
        }
        Ok(())
    }

    fn drop_oldest(&mut self) -> io::Result<()> {
        let Some(piece) = self.pieces.pop_front() else { return Ok(()) };
        self.bytes -= piece.compressed.len();
        let bytes = unpack(&piece)?;
        for record in records(&bytes).filter(|r| tells_of_tasks(r.kind)) {
            self.sideband.extend_from_slice(record.bytes);
        }
        if self.sideband.len() >= self.next_look {
            self.drop_ended();
            self.next_look = LEAST_LOOK.max(self.sideband.len() * 2);
        }
        Ok(())
    }

    /// Drops the records of processes that ended from `sideband`.
    fn drop_ended(&mut self) {
        // A number may be given again: what counts is what came after the last end.
        let mut ended: FxHashSet<u32> = FxHashSet::default();
        let all: Vec<HistoryRecord<'_>> = records(&self.sideband).collect();
        let mut kept: Vec<&[u8]> = Vec::with_capacity(all.len());
        for record in all.iter().rev() {
            let (process, is_end) = record.process();
            if is_end {
                process.map(|pid| ended.insert(pid));
            }
            if process.is_none_or(|pid| !ended.contains(&pid)) {
                kept.push(record.bytes);
            }
        }
        kept.reverse();
        self.sideband = kept.concat();
    }

    /// Time of a record, where it has one.
    fn time(&self, record: &HistoryRecord<'_>) -> Option<u64> {
        match record.kind {
            RecordKind::SAMPLE => Endian::NATIVE.u64_at(record.bytes, self.time_at?),
            _ => record.raw().sample_id(&self.attr).ok()?.time,
        }
    }

    /// Hands over what a recording of `[from, to)` has: all records of tasks and mappings, samples
    /// and losses of that time; after each piece a call without bytes.
    pub(crate) fn replay(
        &self,
        (from, to): (u64, u64),
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        sink(&self.sideband)?;
        let mut piece = |bytes: &[u8]| -> io::Result<()> {
            for record in records(bytes) {
                let within = || self.time(&record).is_some_and(|t| (from..to).contains(&t));
                if tells_of_tasks(record.kind) || within() {
                    sink(record.bytes)?;
                }
            }
            sink(&[])
        };
        for kept in &self.pieces {
            piece(&unpack(kept)?)?;
        }
        piece(&self.open)
    }
}

fn unpack(piece: &HistoryPiece) -> io::Result<Vec<u8>> {
    zstd::bulk::decompress(&piece.compressed, piece.size)
}

/// Whether records of a kind say what later samples need.
fn tells_of_tasks(kind: RecordKind) -> bool {
    let kinds = [
        RecordKind::MMAP,
        RecordKind::MMAP2,
        RecordKind::COMM,
        RecordKind::FORK,
        RecordKind::EXIT,
        RecordKind::KSYMBOL,
        RecordKind::CGROUP,
        RecordKind::NAMESPACES,
    ];
    kinds.contains(&kind)
}

struct HistoryRecord<'a> {
    kind: RecordKind,
    header: RecordHeader,
    bytes: &'a [u8],
}

impl<'a> HistoryRecord<'a> {
    fn raw(&self) -> RawRecord<'a> {
        let body = self.bytes.get(RecordHeader::SIZE..).unwrap_or_default();
        RawRecord { kind: self.kind, misc: self.header.misc, body, endian: Endian::NATIVE }
    }

    /// Process that it is about, and whether it reports its end.
    fn process(&self) -> (Option<u32>, bool) {
        match Sideband::parse(&self.raw()) {
            Ok(Some(Sideband::Mmap(m))) => (Some(m.pid).filter(|pid| *pid != u32::MAX), false),
            Ok(Some(Sideband::Comm(c))) => (Some(c.pid), false),
            Ok(Some(Sideband::Fork(t))) => (Some(t.pid), false),
            // The process ends with its last thread, which need not be the first; without
            // the first nothing is asked of it by that number.
            Ok(Some(Sideband::Exit(t))) => (Some(t.pid), t.pid == t.tid),
            _ => (None, false),
        }
    }
}

/// Records that lie one behind the other; ends where there is no whole one.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = HistoryRecord<'_>> {
    std::iter::from_fn(move || {
        let header = RecordHeader::parse(bytes, Endian::NATIVE).ok()?;
        let size = usize::from(header.size).max(RecordHeader::SIZE);
        let (record, rest) = bytes.split_at_checked(size)?;
        bytes = rest;
        Some(HistoryRecord { kind: header.kind, header, bytes: record })
    })
}

#[cfg(test)]
mod tests {
    use kymo_files::perfdata::write::synth::Synth;
    use kymo_model::{AttrFlags, SampleType};

    use super::*;

    fn attr() -> Attr {
        let sample_type = SampleType::TID | SampleType::TIME;
        Attr { sample_type, flags: AttrFlags::SAMPLE_ID_ALL, ..Attr::default() }
    }

    /// A sample of `tid` at a time, with noise that does not compress.
    fn sample(time: u64) -> Vec<u8> {
        let mut bytes = vec![9, 0, 0, 0, 0, 0, 24, 0];
        bytes.extend(7u64.to_ne_bytes());
        bytes.extend(time.to_ne_bytes());
        bytes
    }

    fn times(history: &RecordHistory, span: (u64, u64)) -> Vec<u64> {
        let mut times = Vec::new();
        let mut see = |bytes: &[u8]| {
            let samples = records(bytes).filter(|r| r.kind == RecordKind::SAMPLE);
            times.extend(samples.filter_map(|r| history.time(&r)));
            Ok(())
        };
        history.replay(span, &mut see).unwrap();
        times
    }

    #[test]
    fn samples_of_a_time_come_back() {
        let mut history = RecordHistory::new(&attr(), 1 << 20).unwrap();
        for time in 0..200_000u64 {
            let bytes = sample(time);
            // Records lie across the end of a ring.
            history.push(&bytes[..10], &bytes[10..]);
            history.end_round().unwrap();
        }
        assert!(history.pieces.len() > 2, "{}", history.pieces.len());
        assert_eq!(times(&history, (99_998, 100_002)), [99_998, 99_999, 100_000, 100_001]);
        history.forget_before(150_000).unwrap();
        let left = times(&history, (0, u64::MAX));
        assert!(left[0] <= 150_000 && left[0] > 50_000, "{}", left[0]);
        assert_eq!(left.last(), Some(&199_999));
    }

    #[test]
    fn processes_that_ended_are_forgotten() {
        let mut history = RecordHistory::new(&attr(), 1).unwrap();
        let mut synth = Synth::new(&attr(), 1);
        let mut end = synth.fork(5, 5, 1, 1).to_vec();
        end[0] = RecordKind::EXIT.0 as u8;
        // Process 5 ends and comes again; 6 stays; 7 ends.
        let mut records = synth.comm(5, 5, b"old").to_vec();
        records.extend(&end);
        records.extend(synth.comm(5, 5, b"new"));
        records.extend(synth.comm(6, 6, b"six"));
        records.extend(synth.comm(7, 7, b"seven"));
        let mut end = synth.fork(7, 7, 1, 1).to_vec();
        end[0] = RecordKind::EXIT.0 as u8;
        records.extend(&end);
        history.tell(&records);
        history.drop_ended();
        let names: Vec<_> = super::records(&history.sideband)
            .filter_map(|r| match Sideband::parse(&r.raw()) {
                Ok(Some(Sideband::Comm(c))) => Some(String::from_utf8_lossy(c.comm).into_owned()),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["new", "six"]);
    }
}

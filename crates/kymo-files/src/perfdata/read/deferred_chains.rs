//! Call chains whose user part was recorded later: a sample taken in the kernel holds a cookie
//! in its place (`defer_callchain`), and a CALLCHAIN_DEFERRED record of the same thread with that
//! cookie, written before it returns to user space, the addresses.
//!
//! Such samples wait for that record and are handed on at its place, with the chain made whole, as
//! perf does. A record of the thread with another cookie, or the end, lets them go without their
//! user part.

use std::ops::Range;
use std::sync::Arc;

use kymo_model::{
    AttrFlags, ChainContext, Endian, RawRecord, RecordHeader, RecordKind, Sample, SampleId,
};
use rustc_hash::FxHashMap;

use super::block::{Block, Origin};
use super::order::{Batch, Key};
use super::{Entry, EventDesc};

/// Bytes of samples that wait at most.
const MAX_WAITING: usize = 64 << 20;
/// The marker of a deferred chain and its cookie, in bytes.
const MARKER: usize = 16;

/// Whether any event asks for such chains.
pub(super) fn are_asked_for(events: &[EventDesc]) -> bool {
    events.iter().any(|e| e.attr.flags.contains(AttrFlags::DEFER_CALLCHAIN))
}

/// Samples that wait for their user part.
#[derive(Debug, Default)]
pub(super) struct DeferredChains {
    waiting: FxHashMap<u32, Vec<WaitingSample>>,
    bytes: usize,
    /// Samples that were let go without their user part.
    pub(super) missing: u64,
}

#[derive(Debug)]
struct WaitingSample {
    /// The whole record.
    record: Vec<u8>,
    /// The addresses of its chain in it, marker and cookie included.
    chain: Range<usize>,
    cookie: u64,
    time: u64,
    event: u32,
}

/// Records that replace others, and where they stand in the file.
#[derive(Default)]
struct NewRecords {
    bytes: Vec<u8>,
    keys: Vec<Key>,
}

impl DeferredChains {
    /// Takes samples that wait out of a batch and puts those in that waited.
    pub(super) fn merge(&mut self, batch: Batch) -> Batch {
        let endian = if batch.big_endian { Endian::Big } else { Endian::Little };
        let block = batch.blocks.len() as u32;
        let mut new = NewRecords::default();
        let mut offset = 0;
        for key in &batch.keys {
            let entry = batch.entry(key, endian);
            match entry.raw.kind {
                RecordKind::SAMPLE => {
                    if let Some((tid, sample)) = WaitingSample::of(&entry, key) {
                        offset = entry.offset;
                        self.bytes += sample.record.len();
                        self.waiting.entry(tid).or_default().push(sample);
                        if self.bytes > MAX_WAITING {
                            self.let_go(endian, block, &mut new);
                        }
                        continue;
                    }
                }
                RecordKind::CALLCHAIN_DEFERRED => self.take(&entry, block, &mut new),
                _ => {}
            }
            new.keys.push(*key);
        }
        if new.bytes.is_empty() {
            return Batch { keys: new.keys, ..batch };
        }
        let made = Arc::new(Block::exact(&new.bytes, Origin::Inside(offset)));
        let blocks = batch.blocks.iter().cloned().chain([made]).collect();
        Batch { keys: new.keys, blocks, ..batch }
    }

    /// The samples that still wait, without their user part.
    pub(super) fn finish(&mut self, endian: Endian) -> Option<Batch> {
        let mut new = NewRecords::default();
        self.let_go(endian, 0, &mut new);
        let block = Arc::new(Block::exact(&new.bytes, Origin::Inside(0)));
        (!new.keys.is_empty()).then(|| Batch {
            keys: new.keys,
            blocks: Arc::new([block]),
            events: Arc::default(),
            features: Arc::default(),
            big_endian: endian == Endian::Big,
        })
    }

    /// Gives the samples of a thread the chain that was recorded for them.
    fn take(&mut self, entry: &Entry<'_>, block: u32, new: &mut NewRecords) {
        let raw = &entry.raw;
        let mut c = raw.cursor();
        let attr = entry.events.get(entry.event).map(|e| &e.attr);
        let id = attr.and_then(|attr| SampleId::parse_trailer(raw.body, raw.endian, attr).ok());
        let Some((_, tid)) = id.and_then(|id| id.tid) else { return };
        let (Ok(cookie), Ok(count)) = (c.u64(), c.u64()) else { return };
        let size = usize::try_from(count).ok().and_then(|n| n.checked_mul(8));
        let Ok(user) = c.bytes(size.unwrap_or(usize::MAX)) else { return };
        for sample in self.waiting.remove(&tid).unwrap_or_default() {
            self.bytes -= sample.record.len();
            let user = Some(user).filter(|_| sample.cookie == cookie);
            self.missing += u64::from(!sample.write(raw.endian, user, block, new));
        }
    }

    /// Lets all samples go, by time.
    fn let_go(&mut self, endian: Endian, block: u32, new: &mut NewRecords) {
        let mut all: Vec<WaitingSample> = self.waiting.drain().flat_map(|(_, w)| w).collect();
        all.sort_by_key(|w| w.time);
        self.missing += all.len() as u64;
        self.bytes = 0;
        for sample in all {
            sample.write(endian, None, block, new);
        }
    }
}

impl WaitingSample {
    /// A sample whose chain ends in a marker and a cookie, with its thread.
    fn of(entry: &Entry<'_>, key: &Key) -> Option<(u32, WaitingSample)> {
        let attr = &entry.desc()?.attr;
        if !attr.flags.contains(AttrFlags::DEFER_CALLCHAIN) {
            return None;
        }
        let RawRecord { kind, misc, body, endian } = entry.raw;
        let sample = Sample::parse(&entry.raw, attr).ok()?;
        let chain = sample.callchain_bytes();
        let marker = endian.u64_from_end(chain, MARKER)?;
        if ChainContext(marker) != ChainContext::USER_DEFERRED {
            return None;
        }
        let cookie = endian.u64_from_end(chain, 8)?;
        let (_, tid) = sample.tid?;
        let at = RecordHeader::SIZE + (chain.as_ptr().addr() - body.as_ptr().addr());
        let size = u16::try_from(RecordHeader::SIZE + body.len()).ok()?;
        let header = RecordHeader { kind, misc, size };
        let record = [&header_bytes(header, endian)[..], body].concat();
        let chain = at..at + chain.len();
        Some((tid, WaitingSample { record, chain, cookie, time: key.time, event: key.event }))
    }

    /// Writes the record with its user part in the place of the cookie, or without both.
    /// `false`: there is none, or no room for it.
    fn write(self, endian: Endian, user: Option<&[u8]>, block: u32, new: &mut NewRecords) -> bool {
        let room = usize::from(u16::MAX) + 8 - self.record.len();
        let user = user.filter(|u| u.len() <= room);
        let kept = self.chain.len() - if user.is_some() { 8 } else { MARKER };
        let words = (kept + user.map_or(0, <[u8]>::len)) / 8;
        let (before, after) = (&self.record[..self.chain.start], &self.record[self.chain.end..]);
        let Ok(header) = RecordHeader::parse(before, endian) else { return false };
        let size = before.len() + 8 * words + after.len();
        let header = RecordHeader { size: size as u16, ..header };
        let at = new.bytes.len() as u32;
        new.keys.push(Key { time: self.time, block, at, event: self.event });
        new.bytes.extend(header_bytes(header, endian));
        // What stands between header and chain ends with the chain's length.
        new.bytes.extend(&before[RecordHeader::SIZE..before.len() - 8]);
        new.bytes.extend(match endian {
            Endian::Little => (words as u64).to_le_bytes(),
            Endian::Big => (words as u64).to_be_bytes(),
        });
        new.bytes.extend(&self.record[self.chain.start..self.chain.start + kept]);
        new.bytes.extend(user.unwrap_or(&[]));
        new.bytes.extend(after);
        user.is_some()
    }
}

/// A header in the byte order of the recording.
fn header_bytes(header: RecordHeader, endian: Endian) -> [u8; RecordHeader::SIZE] {
    let mut bytes = header.to_bytes();
    if endian != Endian::NATIVE {
        bytes[..4].reverse();
        bytes[4..6].reverse();
        bytes[6..].reverse();
    }
    bytes
}

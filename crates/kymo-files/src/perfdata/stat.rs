//! Counts in a perf.data, as `perf stat record` writes them: STAT_CONFIG, then for each reading a
//! STAT record for every counter, closed by a STAT_ROUND
//! (`tools/lib/perf/include/perf/event.h` names the fields). Counts are those since the start.

use std::ops::ControlFlow;

use kymo_model::{RawRecord, RecordKind, Truncated};

use super::read::{Entry, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder};
use super::write::synth;

/// Tags of STAT_CONFIG.
const AGGREGATION: u64 = 0;
const INTERVAL: u64 = 1;
const SCALE: u64 = 2;
/// Kinds of rounds.
const ROUND_INTERVAL: u64 = 0;
const ROUND_FINAL: u64 = 1;
/// Most terms of a configuration, and threads, that are taken from a file.
const MOST: u64 = 1 << 16;

/// Interpretation of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatConfig {
    /// perf's number of what they are summed by, which differs between versions above 3.
    pub aggregation: u64,
    /// Milliseconds between readings; 0: there is one.
    pub interval: u64,
    /// Counts of events that shared a counter are to be scaled up.
    pub scale: bool,
}

impl StatConfig {
    /// The STAT_CONFIG record.
    pub fn to_record(self) -> Vec<u8> {
        let terms = [
            (AGGREGATION, self.aggregation),
            (INTERVAL, self.interval),
            (SCALE, self.scale.into()),
        ];
        let mut body = (terms.len() as u64).to_ne_bytes().to_vec();
        for (tag, value) in terms {
            body.extend(tag.to_ne_bytes());
            body.extend(value.to_ne_bytes());
        }
        synth::record(RecordKind::STAT_CONFIG, 0, &body).unwrap_or_default()
    }

    fn parse(raw: &RawRecord<'_>) -> Result<StatConfig, Truncated> {
        let (mut config, mut c) =
            (StatConfig { scale: true, ..StatConfig::default() }, raw.cursor());
        for _ in 0..c.u64()?.min(MOST) {
            let (tag, value) = (c.u64()?, c.u64()?);
            match tag {
                AGGREGATION => config.aggregation = value,
                INTERVAL => config.interval = value,
                SCALE => config.scale = value != 0,
                _ => {}
            }
        }
        Ok(config)
    }
}

/// Value of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatValue {
    /// The counter.
    pub id: u64,
    /// Its CPU; -1 where it followed a task.
    pub cpu: i32,
    /// Its thread, as a place in the thread map.
    pub thread: u32,
    /// Number of events.
    pub value: u64,
    /// Nanoseconds the event was enabled.
    pub enabled: u64,
    /// Nanoseconds the event was on a counter.
    pub running: u64,
}

impl StatValue {
    /// The STAT record.
    pub fn to_record(self) -> Vec<u8> {
        let mut body = self.id.to_ne_bytes().to_vec();
        body.extend(self.cpu.to_ne_bytes());
        body.extend(self.thread.to_ne_bytes());
        [self.value, self.enabled, self.running].iter().for_each(|n| body.extend(n.to_ne_bytes()));
        synth::record(RecordKind::STAT, 0, &body).unwrap_or_default()
    }

    fn parse(raw: &RawRecord<'_>) -> Result<StatValue, Truncated> {
        let mut c = raw.cursor();
        Ok(StatValue {
            id: c.u64()?,
            cpu: c.u32()?.cast_signed(),
            thread: c.u32()?,
            value: c.u64()?,
            enabled: c.u64()?,
            running: c.u64()?,
        })
    }
}

/// The end of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatRound {
    /// It is the last.
    pub is_final: bool,
    /// Nanoseconds since the start.
    pub time: u64,
}

impl StatRound {
    /// The STAT_ROUND record.
    pub fn to_record(self) -> Vec<u8> {
        let kind = if self.is_final { ROUND_FINAL } else { ROUND_INTERVAL };
        let body = [kind.to_ne_bytes(), self.time.to_ne_bytes()].concat();
        synth::record(RecordKind::STAT_ROUND, 0, &body).unwrap_or_default()
    }

    fn parse(raw: &RawRecord<'_>) -> Result<StatRound, Truncated> {
        let mut c = raw.cursor();
        Ok(StatRound { is_final: c.u64()? == ROUND_FINAL, time: c.u64()? })
    }
}

/// A record that is about counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatRecord {
    /// Interpretation of the counts.
    Config(StatConfig),
    /// The threads that were counted, -1 for all, with their names.
    Threads(Vec<(i64, String)>),
    /// A counter.
    Value(StatValue),
    /// The end of a reading.
    Round(StatRound),
}

impl StatRecord {
    /// Parses a record, if it is one of counts.
    pub fn parse(raw: &RawRecord<'_>) -> Option<Result<StatRecord, Truncated>> {
        Some(match raw.kind {
            RecordKind::STAT_CONFIG => StatConfig::parse(raw).map(StatRecord::Config),
            RecordKind::THREAD_MAP => threads(raw).map(StatRecord::Threads),
            RecordKind::STAT => StatValue::parse(raw).map(StatRecord::Value),
            RecordKind::STAT_ROUND => StatRound::parse(raw).map(StatRecord::Round),
            _ => return None,
        })
    }
}

/// Hands the records about counts to `sink`, in their order, each with what is read with it;
/// `Break` ends the reading.
pub fn read_stats(
    data: &mut PerfData,
    sink: &mut dyn FnMut(&Entry<'_>, StatRecord) -> ControlFlow<()>,
) -> Result<PerfDataReadStats, PerfDataReadError> {
    let mut malformed = 0;
    let mut read = data.for_each(RecordOrder::File, &mut |entry| {
        let Some(record) = StatRecord::parse(&entry.raw) else { return ControlFlow::Continue(()) };
        match record {
            Ok(record) => sink(entry, record),
            Err(_) => {
                malformed += 1;
                ControlFlow::Continue(())
            }
        }
    })?;
    read.malformed += malformed;
    Ok(read)
}

fn threads(raw: &RawRecord<'_>) -> Result<Vec<(i64, String)>, Truncated> {
    let mut c = raw.cursor();
    let mut threads = Vec::new();
    for _ in 0..c.u64()?.min(MOST) {
        let (tid, name) = (c.u64()?.cast_signed(), c.bytes(16)?);
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        threads.push((tid, String::from_utf8_lossy(name).into_owned()));
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use kymo_model::{Endian, Misc};

    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let raw = |bytes: &[u8]| {
            let kind = u32::from_ne_bytes(bytes[..4].try_into().unwrap());
            let body = bytes[8..].to_vec();
            (RecordKind(kind), body)
        };
        let read = |(kind, body): &(RecordKind, Vec<u8>)| {
            let misc = Misc::default();
            let raw = RawRecord { kind: *kind, misc, body, endian: Endian::NATIVE };
            match *kind {
                RecordKind::STAT_CONFIG => StatRecord::Config(StatConfig::parse(&raw).unwrap()),
                RecordKind::STAT => StatRecord::Value(StatValue::parse(&raw).unwrap()),
                _ => StatRecord::Round(StatRound::parse(&raw).unwrap()),
            }
        };
        let config = StatConfig { aggregation: 3, interval: 100, scale: true };
        assert_eq!(read(&raw(&config.to_record())), StatRecord::Config(config));
        let value = StatValue { id: 9, cpu: -1, thread: 2, value: 7, enabled: 8, running: 6 };
        assert_eq!(read(&raw(&value.to_record())), StatRecord::Value(value));
        let round = StatRound { is_final: true, time: 1_000 };
        assert_eq!(read(&raw(&round.to_record())), StatRecord::Round(round));
    }
}

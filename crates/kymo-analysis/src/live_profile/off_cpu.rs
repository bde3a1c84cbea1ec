//! Time off the CPU: from a context switch's sample, whose stack it has, until the record that the
//! same thread continues. It is kept as a sample of the end whose period is that time.

use kymo_model::{RawRecord, RecordKind, Sideband};
use rustc_hash::FxHashMap;

use super::LiveSample;

/// Thread that perf states of what happens while a thread ends: it does not come back.
const ENDING: u32 = u32::MAX;

/// Threads that are off the CPU, and since when.
#[derive(Debug, Default)]
pub(super) struct OffCpu {
    /// The event whose samples are context switches.
    pub(super) event: u32,
    /// Start of the pending time, by thread.
    pub(super) pending: FxHashMap<u32, LiveSample>,
    /// Threads that went on in this batch.
    went_on: Vec<(u64, u32)>,
    /// Begins whose ends were not seen.
    pub(super) without_end: u64,
}

impl OffCpu {
    pub(super) fn new(event: usize) -> OffCpu {
        OffCpu { event: event as u32, ..OffCpu::default() }
    }

    /// Takes note of a switch record of a thread.
    pub(super) fn switch(&mut self, record: &RawRecord<'_>, tid: Option<u32>, time: Option<u64>) {
        let is_switch = matches!(record.kind, RecordKind::SWITCH | RecordKind::SWITCH_CPU_WIDE);
        if is_switch
            && let (Some(tid), Some(time)) = (tid, time)
            && let Ok(Some(Sideband::Switch(switch))) = Sideband::parse(record)
            && !switch.out
        {
            self.went_on.push((time, tid));
        }
    }

    /// Makes times of a batch's samples, each with its thread, in the order of time: those of
    /// switches begin one, those of other events say that their threads run.
    pub(super) fn take(&mut self, samples: Vec<(LiveSample, u32)>) -> Vec<LiveSample> {
        let mut out = Vec::with_capacity(samples.len());
        let mut went_on = std::mem::take(&mut self.went_on);
        went_on.sort_unstable();
        let mut went_on = went_on.into_iter().peekable();
        for (sample, tid) in samples {
            while let Some((time, tid)) = went_on.next_if(|w| w.0 <= sample.time) {
                out.extend(self.end(time, tid));
            }
            if self.pending.remove(&tid).is_some() {
                self.without_end += 1;
            }
            if sample.event != self.event {
                out.push(sample);
            } else if tid != 0 && tid != ENDING {
                self.pending.insert(tid, sample);
            }
        }
        for (time, tid) in went_on {
            out.extend(self.end(time, tid));
        }
        out
    }

    fn end(&mut self, time: u64, tid: u32) -> Option<LiveSample> {
        let begin = self.pending.remove(&tid)?;
        Some(LiveSample { time, period: time.saturating_sub(begin.time), ..begin })
    }
}

/// Returns the part of a time off CPU that lies between two times, in ns.
pub(super) fn overlap(sample: &LiveSample, (from, to): (u64, u64)) -> u64 {
    let begin = sample.time.saturating_sub(sample.period);
    sample.time.min(to).saturating_sub(begin.max(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::SlotId;

    fn sample(time: u64, event: u32) -> LiveSample {
        LiveSample { time, period: 1, slot: SlotId(7), event }
    }

    #[test]
    fn times_end_where_their_threads_go_on() {
        let mut off = OffCpu::new(1);
        off.went_on = vec![(60, 6), (30, 5), (95, 8)];
        let samples = vec![
            (sample(10, 1), 5),
            (sample(20, 1), 6),
            (sample(25, 0), 9),
            // The idle task waits for nothing.
            (sample(40, 1), 0),
            (sample(50, 1), ENDING),
            (sample(55, 1), ENDING),
            (sample(70, 1), 5),
            // It runs, but its start is not known.
            (sample(80, 0), 5),
            (sample(90, 1), 8),
            (sample(100, 1), 8),
        ];
        let out = off.take(samples);
        let times: Vec<_> = out.iter().map(|s| (s.time, s.period, s.event)).collect();
        assert_eq!(times, [(25, 1, 0), (30, 20, 1), (60, 40, 1), (80, 1, 0), (95, 5, 1)]);
        assert_eq!((off.without_end, off.pending.len()), (1, 1));
        assert_eq!(off.pending[&8].time, 100);
    }

    #[test]
    fn what_lies_outside_does_not_count() {
        let wait = LiveSample { period: 100, ..sample(300, 1) };
        let cases = [((0, 1000), 100), ((250, 1000), 50), ((0, 210), 10), ((220, 230), 10)];
        for (times, within) in cases {
            assert_eq!(overlap(&wait, times), within, "{times:?}");
        }
        assert_eq!(overlap(&wait, (0, 200)) + overlap(&wait, (300, 400)), 0);
    }
}

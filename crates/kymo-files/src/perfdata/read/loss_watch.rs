//! Losses of a perf.data, found before later records are handed out.
//!
//! A ring that was full states its losses with the next record that finds room, so a loss lies
//! between the last record of a CPU and its LOST record. Records are held back until each CPU
//! has a later one, within a limit: a CPU that stays silent for longer may have lost events that
//! become known too late, which is counted.

use kymo_model::{EventType, LossWindows, RecordKind};

use super::EventDesc;

/// CPUs whose records are followed; a recording that states others is damaged.
const MOST_CPUS: usize = 1 << 13;

/// Losses under way. CPU `n` has place `n + 1`, records without a CPU have place 0.
#[derive(Debug)]
pub(super) struct LossWatch {
    windows: LossWindows,
    /// Time of the last record of each CPU; 0: none yet.
    last: Vec<u64>,
    /// Tracepoints that the kernel has throttled, by place and id, and since when.
    throttled: Vec<(usize, u64, u64)>,
}

impl LossWatch {
    pub(super) fn new(windows: LossWindows) -> LossWatch {
        LossWatch { windows, last: Vec::new(), throttled: Vec::new() }
    }

    #[inline]
    fn place(cpu: Option<u32>) -> usize {
        cpu.map_or(0, |cpu| (cpu as usize).saturating_add(1).min(MOST_CPUS))
    }

    /// Takes note of a sample.
    #[inline]
    pub(super) fn sample(&mut self, cpu: Option<u32>, time: u64) {
        let place = Self::place(cpu);
        if self.last.len() <= place {
            self.last.resize(place + 1, 0);
        }
        if let Some(last) = self.last.get_mut(place) {
            *last = time.max(*last);
        }
    }

    /// Takes note of another record; those up to `delivered` have been handed out.
    pub(super) fn sideband(
        &mut self,
        kind: RecordKind,
        event: Option<(&EventDesc, u64)>,
        (cpu, time): (Option<u32>, u64),
        delivered: u64,
    ) {
        let place = Self::place(cpu);
        match kind {
            RecordKind::LOST => {
                let from = self.last.get(place).copied().unwrap_or(0).min(time);
                self.add(from, time, delivered);
                self.sample(cpu, time);
            }
            // What other events lack are samples, not events.
            RecordKind::THROTTLE | RecordKind::UNTHROTTLE => {
                let Some((desc, id)) = event else { return };
                if desc.attr.kind != EventType::TRACEPOINT {
                    return;
                }
                let open = self.throttled.iter().position(|t| (t.0, t.1) == (place, id));
                let since = open.map(|at| self.throttled.swap_remove(at).2);
                match (kind, since) {
                    (RecordKind::UNTHROTTLE, Some(since)) => self.add(since, time, delivered),
                    (RecordKind::THROTTLE, since) => {
                        self.throttled.push((place, id, since.unwrap_or(time)));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, from: u64, to: u64, delivered: u64) {
        self.windows.add(from, to);
        if from < delivered {
            self.windows.note_late();
        }
    }

    /// Time up to which all losses are known.
    pub(super) fn settled(&self) -> u64 {
        let open = self.throttled.iter().map(|t| t.2);
        self.last.iter().copied().filter(|t| *t != 0).chain(open).min().unwrap_or(u64::MAX)
    }

    /// Nothing more comes: a tracepoint that is throttled stays so.
    pub(super) fn finish(&mut self, delivered: u64) {
        for (_, _, since) in std::mem::take(&mut self.throttled) {
            self.add(since, u64::MAX, delivered);
        }
    }
}

#[cfg(test)]
mod tests {
    use kymo_model::Attr;

    use super::*;

    #[test]
    fn a_loss_lies_between_the_last_record_of_its_cpu_and_its_lost_record() {
        let windows = LossWindows::default();
        let mut watch = LossWatch::new(windows.clone());
        assert_eq!(watch.settled(), u64::MAX);
        watch.sample(Some(0), 10);
        watch.sample(Some(1), 25);
        watch.sample(Some(0), 20);
        assert_eq!(watch.settled(), 20);
        watch.sideband(RecordKind::LOST, None, (Some(0), 30), 20);
        assert_eq!((windows.to_spans(), windows.late()), (vec![(20, 30)], 0));
        assert_eq!(watch.settled(), 25);
        // Records up to 28 were handed out although CPU 1 had none since 25.
        watch.sideband(RecordKind::LOST, None, (Some(1), 40), 28);
        assert_eq!((windows.to_spans(), windows.late()), (vec![(20, 40)], 1));
    }

    #[test]
    fn a_throttled_tracepoint_loses_events_and_other_events_do_not() {
        let windows = LossWindows::default();
        let mut watch = LossWatch::new(windows.clone());
        let desc =
            |kind| EventDesc { attr: Attr { kind, ..Attr::default() }, ..EventDesc::default() };
        let (software, tracepoint) = (desc(EventType::SOFTWARE), desc(EventType::TRACEPOINT));
        for event in [&software, &tracepoint] {
            watch.sideband(RecordKind::THROTTLE, Some((event, 7)), (Some(0), 10), 0);
            watch.sideband(RecordKind::UNTHROTTLE, Some((event, 7)), (Some(0), 20), 0);
        }
        assert_eq!(windows.to_spans(), [(10, 20)]);
        watch.sideband(RecordKind::THROTTLE, Some((&tracepoint, 7)), (Some(0), 30), 0);
        assert_eq!(watch.settled(), 30);
        watch.finish(0);
        assert_eq!(windows.to_spans(), [(10, 20), (30, u64::MAX)]);
    }
}

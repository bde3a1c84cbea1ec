//! The events of all CPUs and instances by time: a heap of streams, each of
//! which is in order by itself. Between equal times the earlier stream of the
//! file comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::ops::ControlFlow;

use super::pages::{Sizes, Stream};
use super::{Clock, Event, ReadError, ReadStats, TraceDat};

/// All windows together take about this much, more where pages are larger.
const WINDOWS: usize = 8 << 20;
/// One page of each run, or one chunk, together may take this much.
const MOST: usize = 512 << 20;

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// Only of these CPUs.
    pub cpus: Option<Vec<u32>>,
    /// Only of these instances, by index.
    pub buffers: Option<Vec<usize>>,
    /// Nothing before this time is wanted: pages that end before it may be
    /// passed over. Events before it can still come.
    pub from: u64,
    /// Times as they are in the ring, without the corrections the file asks for.
    pub raw_times: bool,
}

impl TraceDat {
    /// Hands every event to `sink`, by time. `Break` stops without error.
    /// Damage is not an error: what is readable is delivered, the rest is in
    /// the statistics. Memory does not grow with the file.
    pub fn for_each(
        &self,
        select: &Select,
        sink: &mut dyn FnMut(&Event<'_>) -> ControlFlow<()>,
    ) -> Result<ReadStats, ReadError> {
        let mut stats = ReadStats::default();
        let Some(file) = &self.file else { return Ok(stats) };
        let clock = if select.raw_times { Clock::default() } else { self.clock() };
        let mut streams = self.streams(select, &mut stats);
        let mut heap = BinaryHeap::with_capacity(streams.len());
        for (i, s) in streams.iter_mut().enumerate() {
            if select.from > 0 && clock == Clock::default() {
                s.skip_to_time(file, select.from)?;
            }
            if s.fill(file, &mut stats)?
                && let Some(time) = s.time()
            {
                heap.push(Reverse((time, i)));
            }
        }
        while let Some(Reverse((_, i))) = heap.pop() {
            let until = heap.peek().map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
            let Some(s) = streams.get_mut(i) else { continue };
            match run(s, (until, i), file, clock, &mut stats, sink)? {
                Run::Waits(time) => heap.push(Reverse((time, i))),
                Run::Ended => {}
                Run::Stopped => break,
            }
        }
        Ok(stats)
    }

    pub(super) fn streams(&self, select: &Select, stats: &mut ReadStats) -> Vec<Stream> {
        let wanted = |cpu: u32, buffer: usize| {
            select.cpus.as_ref().is_none_or(|c| c.contains(&cpu))
                && select.buffers.as_ref().is_none_or(|b| b.contains(&buffer))
        };
        let count: usize = self.buffers.iter().map(|b| b.cpus.len()).sum();
        let mut streams = Vec::new();
        for (i, b) in self.buffers.iter().enumerate() {
            let layout = match self.layout_of(b) {
                Ok(layout) => layout,
                Err(e) => {
                    stats.damage(0, format!("instance {:?}: {e}", b.name));
                    continue;
                }
            };
            let share = MOST / count.max(1);
            if layout.page_size as usize > share {
                let what = format!(
                    "instance {:?}: pages of {} bytes of {count} runs are more than is held at once",
                    b.name, layout.page_size
                );
                stats.damage(0, what);
                continue;
            }
            let ask = (WINDOWS / count.max(1)).clamp(4 << 10, 1 << 20);
            let sizes = Sizes { ask, most: share.max(256 << 10) as u64 };
            for data in b.cpus.iter().filter(|c| wanted(c.cpu, i)) {
                streams.extend(Stream::open((i, b), data, layout, self.compression, sizes));
            }
        }
        streams
    }
}

enum Run {
    /// The next event of another stream is earlier than this.
    Waits(u64),
    Ended,
    Stopped,
}

/// Delivers from one stream as long as it is the earliest.
fn run(
    s: &mut Stream,
    (until, index): ((u64, usize), usize),
    file: &File,
    clock: Clock,
    stats: &mut ReadStats,
    sink: &mut dyn FnMut(&Event<'_>) -> ControlFlow<()>,
) -> Result<Run, ReadError> {
    loop {
        while let Some((slot, payload, missed)) = s.event() {
            if (slot.time, index) > until {
                return Ok(Run::Waits(slot.time));
            }
            stats.events += 1;
            let time = clock.correct(slot.time);
            let event = Event { buffer: s.buffer, cpu: s.cpu, time, payload, missed, stream: s };
            if sink(&event).is_break() {
                return Ok(Run::Stopped);
            }
            s.step();
        }
        if !s.fill(file, stats)? {
            return Ok(Run::Ended);
        }
    }
}

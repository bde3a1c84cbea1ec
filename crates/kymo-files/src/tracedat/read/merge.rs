//! The events of all CPUs and instances by time. Between equal times the earlier
//! stream of the file comes first.

use std::ops::ControlFlow;

use kymo_model::LossWindows;

use super::pages::{Sizes, Stream};
use super::{Clock, TraceDat, TraceDatEvent, TraceDatReadError, TraceDatReadStats};
use crate::RecordingBytes;
use crate::merge_heap::{Lane, Merge};

/// All windows together take about this much, more where pages are larger.
const WINDOWS: usize = 8 << 20;
/// One page of each run, or one chunk, together may take this much.
const MOST: usize = 512 << 20;

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct TraceDatSelect {
    /// Only of these CPUs.
    pub cpus: Option<Vec<u32>>,
    /// Only of these instances, by index.
    pub buffers: Option<Vec<usize>>,
    /// Nothing before this time is wanted: pages that end before it may be
    /// passed over. Events before it can still come.
    pub from: u64,
    /// Times as they are in the ring, without the corrections the file asks for.
    pub raw_times: bool,
    /// Receives the time spans in which events were lost, before later events are handed out.
    pub losses: LossWindows,
}

/// State for finding the next event.
struct Context<'d> {
    file: &'d RecordingBytes,
    stats: TraceDatReadStats,
    clock: Clock,
    losses: LossWindows,
}

impl Lane<Context<'_>> for Stream {
    type Error = TraceDatReadError;

    #[inline]
    fn time(&self) -> u64 {
        Stream::time(self).unwrap_or(u64::MAX)
    }

    #[inline]
    fn advance(&mut self, context: &mut Context<'_>) -> Result<bool, TraceDatReadError> {
        if self.step() {
            return Ok(true);
        }
        // Only pages state losses, before their first event.
        let before = self.last_time().unwrap_or(0);
        let is_there = self.fill(context.file, &mut context.stats)?;
        if self.is_after_loss()
            && let Some(time) = self.time()
        {
            let clock = context.clock;
            context.losses.add(clock.correct(before), clock.correct(time));
        }
        Ok(is_there)
    }
}

/// The events of a recording, handed out piece by piece.
pub(crate) struct Walk<'d> {
    merge: Merge<Stream>,
    /// `None`: there is no file to read.
    context: Option<Context<'d>>,
    clock: Clock,
}

impl<'d> Walk<'d> {
    /// The time of the event that comes next.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.merge.next_time().map(|t| self.clock.correct(t))
    }

    /// Hands out what is not later than `until` of the ring's own time. After a `Break`
    /// nothing more may be asked for.
    pub(crate) fn run(
        &mut self,
        until: u64,
        sink: &mut dyn FnMut(&TraceDatEvent<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, TraceDatReadError> {
        let Some(context) = &mut self.context else { return Ok(ControlFlow::Continue(())) };
        let clock = self.clock;
        self.merge.run(until, context, |s, _, _, context: &mut Context<'d>| {
            let Some((slot, payload, missed)) = s.event() else { return ControlFlow::Continue(()) };
            context.stats.events += 1;
            let time = clock.correct(slot.time);
            sink(&TraceDatEvent { buffer: s.buffer, cpu: s.cpu, time, payload, missed, stream: s })
        })
    }

    /// Statistics of the events read so far.
    pub(crate) fn stats(self) -> TraceDatReadStats {
        self.context.map(|c| c.stats).unwrap_or_default()
    }
}

impl TraceDat {
    /// Hands every event to `sink`, by time. `Break` stops without error.
    /// Damage is not an error: what is readable is delivered, the rest is in
    /// the statistics. Memory does not grow with the file.
    pub fn for_each(
        &self,
        select: &TraceDatSelect,
        sink: &mut dyn FnMut(&TraceDatEvent<'_>) -> ControlFlow<()>,
    ) -> Result<TraceDatReadStats, TraceDatReadError> {
        let mut walk = self.walk(select)?;
        let _ = walk.run(u64::MAX, sink)?;
        Ok(walk.stats())
    }

    /// Starts a walk that hands out events piece by piece.
    pub(crate) fn walk(&self, select: &TraceDatSelect) -> Result<Walk<'_>, TraceDatReadError> {
        let mut stats = TraceDatReadStats::default();
        let clock = if select.raw_times { Clock::default() } else { self.clock() };
        let mut streams = self.streams(select, &mut stats);
        let Some(file) = &self.file else {
            return Ok(Walk { merge: Merge::empty(), context: None, clock });
        };
        if select.from > 0 && clock == Clock::default() {
            streams.iter_mut().try_for_each(|s| s.skip_to_time(file, select.from))?;
        }
        let losses = select.losses.clone();
        let mut context = Context { file, stats, clock, losses };
        let merge = Merge::new(streams, &mut context)?;
        Ok(Walk { merge, context: Some(context), clock })
    }

    pub(super) fn streams(
        &self,
        select: &TraceDatSelect,
        stats: &mut TraceDatReadStats,
    ) -> Vec<Stream> {
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
                    "instance {:?}: pages of {} bytes of {count} runs exceed the memory limit",
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

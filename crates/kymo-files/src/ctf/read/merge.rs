//! The events of all streams by time: a heap of streams, each of which is in
//! order by itself. Between equal times the earlier stream comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use super::event::{Body, Event};
use super::stream::Stream;
use super::{Ctf, ReadError, ReadStats};

/// All windows together take about this much.
const WINDOWS: usize = 8 << 20;
/// The least and the most that one takes.
const WINDOW: (usize, usize) = (16 << 10, 1 << 20);

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// Nothing before this time is wanted: packets that end before it may be passed
    /// over. Events before it can still come.
    pub from: u64,
}

impl Ctf {
    /// Hands every event to `sink`, by time. `Break` stops without error. Damage is not
    /// an error: what is readable is delivered, the rest is in the statistics.
    pub fn for_each(
        &self,
        select: &Select,
        sink: &mut dyn FnMut(&Event<'_>) -> ControlFlow<()>,
    ) -> Result<ReadStats, ReadError> {
        let mut stats = ReadStats::default();
        let step = (WINDOWS / self.streams.len().max(1)).clamp(WINDOW.0, WINDOW.1);
        let mut streams: Vec<Stream> =
            self.streams.iter().map(|parts| Stream::new(parts.clone(), step)).collect();
        let mut heap = BinaryHeap::with_capacity(streams.len());
        for (i, s) in streams.iter_mut().enumerate() {
            if s.advance(&self.traces, select.from, &mut stats)? {
                heap.push(Reverse((s.pending.time, i)));
            }
        }
        while let Some(Reverse((_, i))) = heap.pop() {
            let until = heap.peek().map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
            let Some(s) = streams.get_mut(i) else { continue };
            loop {
                stats.events += 1;
                if sink(&event(s, i)).is_break() {
                    return Ok(stats);
                }
                if !s.advance(&self.traces, select.from, &mut stats)? {
                    break;
                }
                let time = s.pending.time;
                if (time, i) > until {
                    heap.push(Reverse((time, i)));
                    break;
                }
            }
        }
        Ok(stats)
    }

    /// The times of the first and the last event. All are read for it.
    pub fn span(&self) -> Result<Option<(u64, u64)>, ReadError> {
        let mut span: Option<(u64, u64)> = None;
        self.for_each(&Select::default(), &mut |e| {
            let (from, to) = span.get_or_insert((e.time, e.time));
            (*from, *to) = ((*from).min(e.time), (*to).max(e.time));
            ControlFlow::Continue(())
        })?;
        Ok(span)
    }
}

#[inline]
fn event(s: &Stream, i: usize) -> Event<'_> {
    let (bytes, base, outer) = s.body();
    let p = &s.pending;
    Event {
        time: p.time,
        class: p.class,
        stream: i as u32,
        trace: s.trace as u32,
        cpu: s.cpu(),
        missed: p.missed,
        body: Body { bytes, base, from: p.body.0, to: p.body.1, outer },
    }
}

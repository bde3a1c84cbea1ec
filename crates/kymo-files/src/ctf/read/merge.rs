//! The events of all streams by time. Between equal times the earlier stream comes first.

use std::ops::ControlFlow;

use kymo_model::LossWindows;

use super::event::{Body, CtfEvent};
use super::run::{Run, Short};
use super::stream::Stream;
use super::trace::Trace;
use super::{Ctf, CtfReadError, CtfReadStats};
use crate::merge_heap::{Lane, Merge};

/// All windows together take about this much.
const WINDOWS: usize = 8 << 20;
/// The least and the most that one takes.
const WINDOW: (usize, usize) = (16 << 10, 1 << 20);

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct CtfSelect {
    /// Nothing before this time is wanted: packets that end before it may be passed
    /// over. Events before it can still come.
    pub from: u64,
    /// Receives the time spans in which events were lost, before later events are handed out.
    pub losses: LossWindows,
}

/// Next part of a trace.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// One event.
    Event(&'a CtfEvent<'a>),
    /// Several in one piece.
    Run(&'a Run<'a>),
}

/// State for finding the next event.
#[derive(Debug)]
struct Context<'c> {
    traces: &'c [Trace],
    from: u64,
    losses: LossWindows,
    stats: CtfReadStats,
    /// Events of a run.
    found: Vec<Short>,
}

impl Lane<Context<'_>> for Stream {
    type Error = CtfReadError;

    #[inline]
    fn time(&self) -> u64 {
        self.pending.time
    }

    #[inline]
    fn advance(&mut self, context: &mut Context<'_>) -> Result<bool, CtfReadError> {
        let before = self.last;
        let is_there = Stream::advance(self, context.traces, context.from, &mut context.stats)?;
        if is_there && self.pending.missed.is_some() {
            context.losses.add(before, self.pending.time);
        }
        Ok(is_there)
    }
}

/// The events of traces, handed out piece by piece.
#[derive(Debug)]
pub(crate) struct Walk<'c> {
    merge: Merge<Stream>,
    context: Context<'c>,
}

impl<'c> Walk<'c> {
    /// The time of the event that comes next.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.merge.next_time()
    }

    /// Hands out what is not later than `until`. After a `Break` nothing more may be
    /// asked for.
    pub(crate) fn run(
        &mut self,
        until: u64,
        sink: &mut dyn FnMut(&CtfEvent<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, CtfReadError> {
        self.merge.run(until, &mut self.context, |s, i, _, context: &mut Context<'c>| {
            context.stats.events += 1;
            sink(&event(s, i))
        })
    }

    /// Hands out events, several in one piece where possible.
    pub(crate) fn run_in_pieces(
        &mut self,
        until: u64,
        sink: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, CtfReadError> {
        self.merge.run(until, &mut self.context, |s, i, head, context: &mut Context<'c>| {
            if !s.pending.plain {
                context.stats.events += 1;
                return sink(Piece::Event(&event(s, i)));
            }
            let (stats, found) = (&mut context.stats, &mut context.found);
            s.run(context.traces, head, &mut stats.out_of_order, found);
            stats.events += found.len() as u64;
            sink(Piece::Run(&Run::new(s, i, found)))
        })
    }

    /// Statistics of the events read so far.
    pub(crate) fn stats(self) -> CtfReadStats {
        self.context.stats
    }
}

impl Ctf {
    /// Hands every event to `sink`, by time. `Break` stops without error. Damage is not
    /// an error: what is readable is delivered, the rest is in the statistics.
    pub fn for_each(
        &self,
        select: &CtfSelect,
        sink: &mut dyn FnMut(&CtfEvent<'_>) -> ControlFlow<()>,
    ) -> Result<CtfReadStats, CtfReadError> {
        let mut walk = self.walk(select)?;
        let _ = walk.run(u64::MAX, sink)?;
        Ok(walk.stats())
    }

    /// Starts a walk that hands out events piece by piece.
    pub(crate) fn walk(&self, select: &CtfSelect) -> Result<Walk<'_>, CtfReadError> {
        let step = (WINDOWS / self.streams.len().max(1)).clamp(WINDOW.0, WINDOW.1);
        let streams = self.streams.iter().map(|parts| Stream::new(parts.clone(), step)).collect();
        let (traces, from) = (self.traces.as_slice(), select.from);
        let mut context = Context {
            traces,
            from,
            losses: select.losses.clone(),
            stats: CtfReadStats::default(),
            found: Vec::new(),
        };
        let merge = Merge::new(streams, &mut context)?;
        Ok(Walk { merge, context })
    }

    /// The highest CPU of the first packets of all streams: tracers write a stream for each CPU.
    ///
    /// # Errors
    /// If reading fails.
    pub fn highest_cpu(&self) -> Result<Option<u32>, CtfReadError> {
        let walk = self.walk(&CtfSelect::default())?;
        Ok(walk.merge.lanes().iter().filter_map(Stream::cpu).max())
    }

    /// The times of the first and the last event. All are read for it.
    pub fn span(&self) -> Result<Option<(u64, u64)>, CtfReadError> {
        let mut span: Option<(u64, u64)> = None;
        self.for_each(&CtfSelect::default(), &mut |e| {
            let (from, to) = span.get_or_insert((e.time, e.time));
            (*from, *to) = ((*from).min(e.time), (*to).max(e.time));
            ControlFlow::Continue(())
        })?;
        Ok(span)
    }
}

#[inline]
fn event(s: &Stream, i: usize) -> CtfEvent<'_> {
    let (bytes, base, outer) = s.body();
    let p = &s.pending;
    CtfEvent {
        time: p.time,
        class: p.class,
        stream: i as u32,
        trace: s.trace as u32,
        cpu: s.cpu(),
        missed: p.missed,
        body: Body { bytes, base, from: p.body.0, to: p.body.1, outer },
    }
}

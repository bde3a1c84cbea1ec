//! Relation of the clocks of traces: to each other, to real time, and to `CLOCK_MONOTONIC`, which
//! the kernel's recordings have.

use std::sync::Arc;

use super::clock::{Scale, real_offset};
use super::curve::{Agreement, Curve, Reading, Readings};
use super::stream::{Part, read_head};
use super::trace::Trace;
use super::walk::Slots;
use super::window::Window;
use super::{Ctf, CtfReadError, Times};
use crate::ctf::types::{ClockClass, ClockOrigin};

/// Why times cannot be laid on `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NotMonotonic {
    #[error("trace {trace} has no clock")]
    NoClock { trace: String },
    #[error(
        "the clock of trace {trace} is `{clock}`, which is only related to real time, not to \
         CLOCK_MONOTONIC"
    )]
    OtherClock { trace: String, clock: String },
    #[error("trace {trace} is of another machine or another start of it than {first}")]
    OtherMachine { trace: String, first: String },
}

impl Ctf {
    /// Gathers what is known of the traces' clocks.
    pub(super) fn read_anchors(&mut self) {
        for trace in &mut self.traces {
            trace.readings = stated(trace);
        }
        for part in self.streams.iter().flatten() {
            let Some(trace) = self.traces.get(part.trace) else { continue };
            let Some(mut readings) = trace.readings.clone() else { continue };
            of_packets(trace, part, &mut readings);
            if let Some(trace) = self.traces.get_mut(part.trace) {
                trace.readings = Some(readings);
            }
        }
    }

    /// Checks that offsets of clocks can be compared, where nothing but these relates them.
    pub(super) fn check_origins(&self) -> Result<(), CtfReadError> {
        let mut first: Option<(&Trace, &ClockClass)> = None;
        let clocks = self.traces.iter().filter(|t| t.readings.is_none());
        for (trace, clock) in clocks.filter_map(|t| Some((t, t.clock()?))) {
            let Some((known, of)) = first else {
                first = Some((trace, clock));
                continue;
            };
            let is_same = clock.uuid.is_some() && clock.uuid == of.uuid;
            if is_same || clock.origin == of.origin {
                continue;
            }
            let text = |clock: &ClockClass| match &clock.origin {
                ClockOrigin::UnixEpoch => "1970".to_owned(),
                ClockOrigin::Custom(origin) => origin.clone(),
                ClockOrigin::Unstated => "one that is not stated".to_owned(),
            };
            return Err(CtfReadError::Origins {
                first: known.name().to_owned(),
                other: trace.name().to_owned(),
                first_origin: text(of),
                other_origin: text(clock),
            });
        }
        Ok(())
    }

    /// Whether the clocks of all traces are one.
    pub(super) fn one_clock(&self) -> bool {
        let with_readings = self.traces.iter().filter(|t| t.readings.is_some()).count();
        if with_readings == self.traces.len() {
            return true;
        }
        if with_readings > 0 {
            return self.monotonic().is_ok();
        }
        let mut clocks = self
            .traces
            .iter()
            .map(|t| t.clock().map(|c| (c.uuid.is_some(), c.uuid, c.freq, real_offset(c))));
        let first = clocks.next().flatten();
        clocks.all(|c| match (first, c) {
            // Offsets of the same clock are measured anew by each session.
            (Some((true, a, f, _)), Some((true, b, g, _))) => a == b && f == g,
            (Some((.., f, x)), Some((.., g, y))) => f == g && x == y,
            (a, b) => a.is_none() && b.is_none(),
        })
    }

    /// Counts times otherwise.
    pub fn set_times(&mut self, times: Times) {
        self.times = times;
        let curves = self.curves();
        for (t, curve) in self.traces.iter_mut().zip(curves) {
            let real = times == Times::Real;
            t.scale = match (curve, &t.readings) {
                (Some(curve), Some(readings)) => {
                    Scale::along(t.clock(), curve, real.then(|| readings.first().ticks))
                }
                _ => Scale::of(t.clock(), real),
            };
        }
    }

    /// For each trace with readings its curve: one for all where they fit together.
    fn curves(&self) -> Vec<Option<Arc<Curve>>> {
        let all = || self.traces.iter().filter_map(|t| t.readings.as_ref());
        let mut shared = None;
        if let Some(first) = all().next()
            && all().all(|r| fit(first, r))
        {
            let mut together = first.clone();
            all().skip(1).for_each(|r| together.join(r));
            shared = Some(Arc::new(together.curve()));
        }
        let of = |t: &Trace| {
            let own = t.readings.as_ref()?;
            Some(shared.clone().unwrap_or_else(|| Arc::new(own.curve())))
        };
        self.traces.iter().map(of).collect()
    }

    /// Agreement of the times of all traces with `CLOCK_MONOTONIC` of one machine.
    ///
    /// # Errors
    /// If they cannot be converted to it, with the reason.
    pub fn monotonic(&self) -> Result<Agreement, NotMonotonic> {
        let (mut first, mut named): (Option<&Trace>, Option<&Trace>) = (None, None);
        let name = |t: &Trace| match t.name() {
            "" => self.name().to_owned(),
            name => name.to_owned(),
        };
        for trace in &self.traces {
            let other = |first: &Trace| {
                Err(NotMonotonic::OtherMachine { trace: name(trace), first: name(first) })
            };
            if let Some(readings) = &trace.readings {
                match first.and_then(|f| Some((f, f.readings.as_ref()?))) {
                    Some((first, known)) if !fit(known, readings) => return other(first),
                    Some(_) => {}
                    None => first = Some(trace),
                }
                continue;
            }
            let Some(clock) = trace.clock() else {
                return Err(NotMonotonic::NoClock { trace: name(trace) });
            };
            if !trace.is_monotonic() {
                let clock = clock.name.clone();
                return Err(NotMonotonic::OtherClock { trace: name(trace), clock });
            }
            match named {
                Some(first) if first.clock().and_then(|c| c.uuid) != clock.uuid => {
                    return other(first);
                }
                Some(_) => {}
                None => named = Some(trace),
            }
        }
        let curve = self.curves().into_iter().flatten().next();
        Ok(curve.map_or(Agreement::default(), |c| c.agreement))
    }
}

/// Clock readings in the metadata of a trace.
fn stated(trace: &Trace) -> Option<Readings> {
    let anchors = trace.metadata.anchors();
    let reading =
        |a: &super::super::Anchor| Reading { ticks: a.ticks, nanos: a.monotonic, error: a.error };
    let mut readings = Readings::new(trace.clock()?.freq, reading(anchors.first()?));
    anchors.iter().skip(1).for_each(|a| readings.add(reading(a)));
    Some(readings)
}

/// Adds the clock readings in the packets of a file. The second part of a packet that was split has
/// no reading of its own, which its error, the largest possible, marks.
fn of_packets(trace: &Trace, part: &Part, readings: &mut Readings) {
    let (mut window, mut slots) = (Window::new(0), Slots::default());
    if part.open().and_then(|bytes| window.open(bytes)).is_err() {
        return;
    }
    let mut start = 0u64;
    while start < window.len() && window.want(start, 512).is_ok() {
        let head = read_head(trace, window.from(start).0, &mut slots);
        let Ok((facts, _, behind)) = head else { return };
        if let (Some(ticks), Some(nanos), Some(error)) =
            (facts.begin, facts.anchor, facts.anchor_error)
            && error < u64::from(u32::MAX)
        {
            readings.add(Reading { ticks, nanos, error });
        }
        facts.begin.into_iter().chain(facts.end).for_each(|ticks| readings.reach(ticks));
        match facts.packet_size.or(facts.content_size) {
            Some(size) if size >= behind.max(8) => start = start.saturating_add(size / 8),
            _ => return,
        }
    }
}

/// Whether readings can be of the same two clocks.
fn fit(a: &Readings, b: &Readings) -> bool {
    a.freq().abs_diff(b.freq()) <= a.freq() / 1000 && a.fits(b.first())
}

//! Spans of time in which events were lost. What a CPU's ring lost is known with the next event
//! of that CPU; but intervals that the span touches may have ended by then: so losses are
//! collected in a pass of their own.

use std::ops::ControlFlow;

use kymo_events::name_map::recorded_names;
use kymo_events::{EventSelection, EventSource, ReadOptions, SourceError};

/// Spans kept apart; where there are more, neighbors are joined.
const MOST: usize = 1 << 16;

/// Spans of time in which events were lost, by their begin and without overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossWindows(Vec<(u64, u64)>);

impl LossWindows {
    /// Windows of these spans, in any order.
    pub fn new(mut spans: Vec<(u64, u64)>) -> LossWindows {
        spans.sort_unstable();
        let mut windows: Vec<(u64, u64)> = Vec::new();
        for (from, to) in spans {
            match windows.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => windows.push((from, to)),
            }
        }
        while windows.len() > MOST {
            // Marks more than it must, never less.
            let joined = |pair: &[(u64, u64)]| (pair[0].0, pair[pair.len() - 1].1);
            windows = windows.chunks(2).map(joined).collect();
        }
        LossWindows(windows)
    }

    /// The spans.
    pub(crate) fn into_spans(self) -> Vec<(u64, u64)> {
        self.0
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of spans.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether events were lost between two times.
    #[inline]
    pub fn touches(&self, from: u64, to: u64) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let ended = self.0.partition_point(|w| w.1 < from);
        self.0.get(ended).is_some_and(|w| w.0 <= to)
    }
}

/// More CPUs than a kernel can have; a recording that states another is damaged.
pub const MOST_CPUS: u32 = 1 << 13;

/// Conditions that chosen events fulfill, and no others; names are those of the kernel, and
/// those that perf and LTTng have for them.
pub fn select_events(names: &[&str]) -> EventSelection {
    let mut selection = EventSelection::default();
    let names = names.iter().flat_map(|name| recorded_names(name));
    selection.set_event_names(names.map(str::to_owned).collect());
    selection
}

/// What has to be known of events before they are counted.
#[derive(Clone, Debug, Default)]
pub struct EventScan {
    /// Spans in which events were lost.
    pub losses: LossWindows,
    /// Number of CPUs: the highest that has an event, and all below it.
    pub cpus: usize,
}

/// Looks through recordings that can be read twice; nothing is known of others.
///
/// # Errors
/// If reading fails.
pub fn scan_events(
    source: &EventSource,
    selection: &EventSelection,
) -> Result<EventScan, SourceError> {
    if source.is_piped() {
        return Ok(EventScan::default());
    }
    let mut last: Vec<u64> = Vec::new();
    let mut losses = Vec::new();
    let summary = source.for_each(selection, ReadOptions::default(), &mut |event| {
        let (Some(time), Some(cpu)) = (event.time, event.cpu().filter(|c| *c < MOST_CPUS)) else {
            return ControlFlow::Continue(());
        };
        let at = cpu as usize;
        if last.len() <= at {
            last.resize(at + 1, 0);
        }
        if let Some(slot) = last.get_mut(at) {
            let before = std::mem::replace(slot, time);
            if event.lost.is_some() {
                losses.push((before.min(time), time));
            }
        }
        ControlFlow::Continue(())
    })?;
    // Nothing came behind these: until when events were lost is not known.
    for cpu in summary.untold_losses {
        let from = match cpu {
            Some(cpu) => last.get(cpu as usize).copied().unwrap_or(0),
            None => last.iter().copied().min().unwrap_or(0),
        };
        losses.push((from, u64::MAX));
    }
    Ok(EventScan { losses: LossWindows::new(losses), cpus: last.len() })
}

/// Counts events with the losses known before: in one pass where nothing was lost, else in a
/// second one. A pass says whether an event told of a loss; `names` are the events whose losses
/// count.
pub(crate) fn count_with_losses<T>(
    source: &EventSource,
    names: &[&str],
    mut pass: impl FnMut(LossWindows, &mut bool) -> Result<T, SourceError>,
) -> Result<T, SourceError> {
    let mut lost = false;
    let counted = pass(LossWindows::default(), &mut lost)?;
    if !lost || source.is_piped() {
        return Ok(counted);
    }
    drop(counted);
    pass(scan_events(source, &select_events(names))?.losses, &mut lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_joined_and_found() {
        let w = LossWindows::new(vec![(30, 40), (10, 20), (15, 25)]);
        assert_eq!(w, LossWindows(vec![(10, 25), (30, 40)]));
        assert!(w.touches(0, 10) && w.touches(12, 13) && w.touches(26, 30) && w.touches(0, 99));
        assert!(!w.touches(0, 9) && !w.touches(26, 29) && !w.touches(41, 50));
        let many = LossWindows::new((0..200_000).map(|n| (n * 10, n * 10 + 1)).collect());
        assert!(many.len() <= MOST && many.touches(1_999_990, 1_999_990));
    }
}

//! Slices of all tracks: which ones lie within others.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

/// Duration of a slice whose end is not recorded.
pub(crate) const NO_END: u64 = u64::MAX;

/// Kind of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceCategory {
    Syscall,
    Irq,
    Softirq,
    Function,
    Program,
    Marker,
}

impl SliceCategory {
    pub(crate) fn text(self) -> &'static str {
        match self {
            SliceCategory::Syscall => "syscall",
            SliceCategory::Irq => "irq",
            SliceCategory::Softirq => "softirq",
            SliceCategory::Function => "function",
            SliceCategory::Program => "program",
            SliceCategory::Marker => "trace_marker",
        }
    }
}

/// A slice as it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawSlice {
    pub(crate) ts: i64,
    /// Nanoseconds, or [`NO_END`].
    pub(crate) dur: u64,
    /// Numbers of the events that start and end it: they order what has equal times.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) track: u32,
    pub(crate) name: u32,
    pub(crate) args: Option<u32>,
    pub(crate) category: SliceCategory,
}

/// Place of a slice among the others of its timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NestedSlice {
    /// Number of the track among those of the timeline: slices of one do not overlap unless one
    /// lies within the other.
    pub(crate) lane: u32,
    pub(crate) depth: u32,
    /// Row of the slice around it.
    pub(crate) parent: Option<u32>,
}

/// Sorts slices by their start, and finds those around each.
pub(crate) fn nest(slices: &mut [RawSlice]) -> Vec<NestedSlice> {
    slices.sort_unstable_by_key(|slice| (slice.ts, slice.start));
    // For each track, in each lane, ends and rows of the slices that are open.
    let mut open: FxHashMap<u32, Vec<Vec<(u64, u32)>>> = FxHashMap::default();
    let mut nested = Vec::with_capacity(slices.len());
    for (row, slice) in (0u32..).zip(slices.iter()) {
        let lanes = match open.entry(slice.track) {
            Entry::Occupied(lanes) => lanes.into_mut(),
            Entry::Vacant(lanes) => lanes.insert(Vec::new()),
        };
        let mut place = None;
        for (number, lane) in (0u32..).zip(lanes.iter_mut()) {
            while lane.pop_if(|(end, _)| *end < slice.start).is_some() {}
            if lane.last().is_none_or(|(end, _)| slice.end <= *end) {
                let parent = lane.last().map(|(_, row)| *row);
                place = Some(NestedSlice { lane: number, depth: lane.len() as u32, parent });
                lane.push((slice.end, row));
                break;
            }
        }
        nested.push(place.unwrap_or_else(|| {
            lanes.push(vec![(slice.end, row)]);
            NestedSlice { lane: lanes.len() as u32 - 1, depth: 0, parent: None }
        }));
    }
    nested
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_lie_within_others_or_on_lanes_of_their_own() {
        // Numbers of the events that start and end each, all at one time of a coarse clock.
        let of = |track: u32, start: u64, end: u64| RawSlice {
            ts: 5,
            dur: 0,
            start,
            end,
            track,
            name: 0,
            args: None,
            category: SliceCategory::Program,
        };
        // a(1-10) b(2-5) c(3-4) d(6-12: ends after a) e(7-8: within a) f(13-14), and one of track 1.
        let mut slices = [
            of(0, 2, 5),
            of(0, 3, 4),
            of(0, 1, 10),
            of(1, 9, 11),
            of(0, 6, 12),
            of(0, 13, 14),
            of(0, 7, 8),
        ];
        let nested = nest(&mut slices);
        let starts: Vec<u64> = slices.iter().map(|slice| slice.start).collect();
        assert_eq!(starts, [1, 2, 3, 6, 7, 9, 13]);
        let found: Vec<_> = nested.iter().map(|n| (n.lane, n.depth, n.parent)).collect();
        let expected = [
            (0, 0, None),
            (0, 1, Some(0)),
            (0, 2, Some(1)),
            (1, 0, None),
            (0, 1, Some(0)),
            (0, 0, None),
            (0, 0, None),
        ];
        assert_eq!(found, expected);
    }
}

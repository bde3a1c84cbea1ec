//! Events of several lanes by time, for the readers of all formats: a heap of lanes,
//! each of which is in order by itself. Between equal times the earlier lane comes first.
//!
//! A lane that is the earliest is asked until another is, so that events that come in
//! runs cost no more than without the others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

/// Events in order, seen one at a time. `C` is what it takes to find the next one.
pub(crate) trait Lane<C> {
    type Error;

    /// The time of the event that is seen.
    fn time(&self) -> u64;

    /// Goes to the next event, at first to the first. `false`: there is none.
    fn advance(&mut self, context: &mut C) -> Result<bool, Self::Error>;
}

/// The event of another lane that comes next, and the number of the lane whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeHead((u64, usize), usize);

impl MergeHead {
    /// Whether an event of that time still comes before those of all other lanes.
    #[inline]
    pub(crate) fn has(self, time: u64) -> bool {
        (time, self.1) <= self.0
    }
}

/// Lanes under way.
#[derive(Debug)]
pub(crate) struct Merge<L> {
    lanes: Vec<L>,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<L> Merge<L> {
    /// Merge without lanes.
    pub(crate) fn empty() -> Merge<L> {
        Merge { lanes: Vec::new(), heap: BinaryHeap::new() }
    }

    /// Goes to the first event of each lane.
    pub(crate) fn new<C, E>(mut lanes: Vec<L>, context: &mut C) -> Result<Merge<L>, E>
    where
        L: Lane<C, Error = E>,
    {
        let mut heap = BinaryHeap::with_capacity(lanes.len());
        for (i, lane) in lanes.iter_mut().enumerate() {
            if lane.advance(context)? {
                heap.push(Reverse((lane.time(), i)));
            }
        }
        Ok(Merge { lanes, heap })
    }

    /// The lanes.
    pub(crate) fn lanes(&self) -> &[L] {
        &self.lanes
    }

    /// The time of the event that comes next.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, _))| *time)
    }

    /// Hands out events that are not later than `until`, each with the number of its lane, and the
    /// time up to which that lane's events precede those of all others: the receiver of an event
    /// may take more of them. After a `Break`, the merge must not be used again.
    pub(crate) fn run<C, E>(
        &mut self,
        until: u64,
        context: &mut C,
        mut each: impl FnMut(&mut L, usize, MergeHead, &mut C) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, E>
    where
        L: Lane<C, Error = E>,
    {
        while let Some(Reverse((time, i))) = self.heap.peek().copied() {
            if time > until {
                break;
            }
            self.heap.pop();
            let other = self.heap.peek().map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
            let head = other.min((until, usize::MAX));
            let Some(lane) = self.lanes.get_mut(i) else { continue };
            loop {
                if each(lane, i, MergeHead(head, i), context).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                if !lane.advance(context)? {
                    break;
                }
                let time = lane.time();
                if !MergeHead(head, i).has(time) {
                    self.heap.push(Reverse((time, i)));
                    break;
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers(std::vec::IntoIter<u64>, u64);

    impl Lane<u32> for Numbers {
        type Error = ();

        fn time(&self) -> u64 {
            self.1
        }

        fn advance(&mut self, asked: &mut u32) -> Result<bool, ()> {
            *asked += 1;
            self.1 = self.0.next().unwrap_or(u64::MAX);
            Ok(self.1 < u64::MAX)
        }
    }

    #[test]
    fn lanes_come_by_time_then_by_number_and_stop_at_a_time() {
        let lanes = [vec![1, 4, 4, 9], vec![], vec![2, 3, 4, 5, 9], vec![4]];
        let lanes = lanes.map(|l| Numbers(l.into_iter(), 0)).into();
        let mut asked = 0;
        let mut merge = Merge::new(lanes, &mut asked).unwrap();
        let mut seen = Vec::new();
        let mut until = |until, asked: &mut u32| {
            let end = merge.run(until, asked, |lane, i, _, _| {
                seen.push((lane.time(), i));
                ControlFlow::Continue(())
            });
            assert_eq!(end, Ok(ControlFlow::Continue(())));
            (std::mem::take(&mut seen), merge.next_time())
        };
        assert_eq!(until(0, &mut asked), (vec![], Some(1)));
        let expected = [(1, 0), (2, 2), (3, 2), (4, 0), (4, 0), (4, 2), (4, 3)];
        assert_eq!(until(4, &mut asked), (expected.into(), Some(5)));
        assert_eq!(until(8, &mut asked), (vec![(5, 2)], Some(9)));
        assert_eq!(until(u64::MAX, &mut asked), (vec![(9, 0), (9, 2)], None));
        assert_eq!(asked, 14, "each event and each end once");
    }
}

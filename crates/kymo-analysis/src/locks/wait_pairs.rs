//! Waits for locks by the stack of who waits and of who ends the wait.

use rustc_hash::FxHashMap;

use crate::offcpu::StackNode;

/// Combinations of lock and stacks; more lose their stacks.
const MAX_CELLS: usize = 1 << 17;

/// Task that ends waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockWaker {
    /// Name of the task.
    pub comm: Vec<u8>,
    /// Its stack.
    pub stack: Option<StackNode>,
}

/// Waits of one stack that one waker's stack ended.
#[derive(Clone, Debug)]
pub struct WaitCell {
    /// Stack of who waits.
    pub stack: Option<StackNode>,
    /// Task that woke it, where that was seen.
    pub waker: Option<LockWaker>,
    /// Number of waits.
    pub count: u64,
    /// Nanoseconds together.
    pub total: u64,
    /// The longest.
    pub max: u64,
}

/// Row, stack of who waits, who ended it.
type CellKey = (usize, Option<StackNode>, Option<LockWaker>);

/// Waits as they are counted.
#[derive(Debug, Default)]
pub(super) struct WaitPairs {
    cells: FxHashMap<CellKey, (u64, u64, u64)>,
    /// Waits whose stacks there was no room for.
    pub(super) crowded: u64,
}

impl WaitPairs {
    /// Takes in a wait that ended after this many nanoseconds.
    pub(super) fn add(
        &mut self,
        row: usize,
        stack: Option<StackNode>,
        waker: Option<LockWaker>,
        nanos: u64,
    ) {
        let mut key = (row, stack, waker);
        if self.cells.len() >= MAX_CELLS && !self.cells.contains_key(&key) {
            self.crowded += 1;
            key = (row, None, None);
        }
        let cell = self.cells.entry(key).or_default();
        *cell = (cell.0 + 1, cell.1.saturating_add(nanos), cell.2.max(nanos));
    }

    /// The waits with the numbers of their rows, the largest total of each row first.
    pub(super) fn into_cells(self) -> Vec<(usize, WaitCell)> {
        let cell = |((row, stack, waker), (count, total, max))| {
            (row, WaitCell { stack, waker, count, total, max })
        };
        let mut cells: Vec<(usize, WaitCell)> = self.cells.into_iter().map(cell).collect();
        cells.sort_by_key(|(row, c)| (*row, std::cmp::Reverse(c.total), c.stack));
        cells
    }
}

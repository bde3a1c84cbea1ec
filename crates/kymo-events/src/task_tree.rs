//! The tasks of one command: itself and what it starts, as their forks tell while records are
//! read.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use kymo_model::Task;
use rustc_hash::FxHashSet;

/// The process of a command, and all that it and its children start.
#[derive(Clone, Debug, Default)]
pub struct TaskTree {
    root: Arc<OnceLock<u32>>,
    started: Arc<RwLock<FxHashSet<u32>>>,
}

impl TaskTree {
    /// Where the number of the command's process is put, before its first event comes.
    pub fn root(&self) -> Arc<OnceLock<u32>> {
        Arc::clone(&self.root)
    }

    /// Whether a task is the command or was started by it. Also of one that has ended: its last
    /// events come later.
    pub fn has(&self, tid: u32) -> bool {
        let started = self.started.read().unwrap_or_else(PoisonError::into_inner);
        self.root.get() == Some(&tid) || started.contains(&tid)
    }

    /// Takes note of a task that begins; a number may have been that of a task that ended.
    pub(crate) fn fork(&self, task: &Task) {
        let is_own = self.has(task.ptid) || self.has(task.ppid);
        let mut started = self.started.write().unwrap_or_else(PoisonError::into_inner);
        match is_own {
            true => started.insert(task.tid),
            false => started.remove(&task.tid),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_children_are_of_the_tree_and_numbers_that_come_again_are_not() {
        let tree = TaskTree::default();
        assert!(!tree.has(7));
        tree.root().set(7).unwrap();
        let fork = |pid, ppid, tid, ptid| tree.fork(&Task { pid, ppid, tid, ptid, time: 0 });
        fork(8, 7, 8, 7);
        // A thread of the child, and what that starts.
        fork(8, 8, 9, 8);
        fork(10, 8, 10, 9);
        fork(11, 1, 11, 1);
        assert_eq!([7, 8, 9, 10, 11].map(|tid| tree.has(tid)), [true, true, true, true, false]);
        fork(10, 1, 10, 1);
        assert!(!tree.has(10));
    }
}

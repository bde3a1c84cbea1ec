//! The tasks of one command: itself and what it starts, as their forks tell while records are
//! read; or those of cgroups, as samples tell, too.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use kymo_model::Task;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cgroup_pattern::CgroupPattern;

/// The process of a command, and all that it and its children start.
#[derive(Clone, Debug, Default)]
pub struct TaskTree {
    root: Arc<OnceLock<u32>>,
    started: Arc<RwLock<FxHashSet<u32>>>,
    cgroups: Option<Arc<WantedCgroups>>,
}

/// Cgroups, and which of those that samples named they are.
#[derive(Debug)]
struct WantedCgroups {
    patterns: Vec<CgroupPattern>,
    known: RwLock<FxHashMap<u64, bool>>,
}

impl TaskTree {
    /// The tasks that are seen in cgroups while samples are read, and what they start: a task that
    /// was in one counts from then on.
    ///
    /// # Errors
    /// If a path is a glob that is none.
    pub fn of_cgroups(paths: &[String]) -> Result<TaskTree, String> {
        let patterns = CgroupPattern::parse(paths)?;
        let cgroups = WantedCgroups { patterns, known: RwLock::default() };
        Ok(TaskTree { cgroups: Some(Arc::new(cgroups)), ..TaskTree::default() })
    }

    /// Whether cgroups choose its tasks, not a command.
    pub fn is_of_cgroups(&self) -> bool {
        self.cgroups.is_some()
    }

    /// Takes note of a task that runs in a cgroup.
    pub(crate) fn see(&self, tid: u32, id: u64, path: impl FnOnce() -> Option<Arc<[u8]>>) {
        let Some(cgroups) = self.cgroups.as_ref().filter(|_| tid != 0) else { return };
        let known = cgroups.known.read().unwrap_or_else(PoisonError::into_inner).get(&id).copied();
        let is_wanted = known.unwrap_or_else(|| {
            let Some(path) = path() else { return false };
            let is_wanted = cgroups.patterns.iter().any(|p| p.is_match(&path));
            cgroups.known.write().unwrap_or_else(PoisonError::into_inner).insert(id, is_wanted);
            is_wanted
        });
        if is_wanted && !self.has(tid) {
            self.started.write().unwrap_or_else(PoisonError::into_inner).insert(tid);
        }
    }

    /// Number of the command's process, to be set before its first event arrives.
    pub fn root(&self) -> Arc<OnceLock<u32>> {
        Arc::clone(&self.root)
    }

    /// Whether a thread is the first of the command.
    pub fn is_command(&self, tid: u32) -> bool {
        self.root.get() == Some(&tid)
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
        if is_own {
            started.insert(task.tid)
        } else {
            started.remove(&task.tid)
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

    #[test]
    fn tasks_of_cgroups_are_those_that_were_seen_there_and_their_children() {
        let tree = TaskTree::of_cgroups(&["/a/*".to_owned()]).unwrap();
        assert!(TaskTree::of_cgroups(&["a[".to_owned()]).is_err());
        let path = |text: &str| Some(Arc::from(text.as_bytes()));
        tree.see(3, 1, || path("/a"));
        tree.see(4, 2, || path("/a/b/c"));
        // No path yet, and then one that is known.
        tree.see(5, 3, || None);
        tree.see(6, 3, || path("/a/d"));
        tree.see(7, 3, || None);
        tree.see(0, 3, || None);
        tree.fork(&Task { pid: 8, ppid: 4, tid: 8, ptid: 4, time: 0 });
        assert_eq!(
            [0, 3, 4, 5, 6, 7, 8].map(|t| tree.has(t)),
            [false, false, true, false, true, true, true]
        );
    }
}

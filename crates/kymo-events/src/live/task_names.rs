//! Names of tasks that run: those that the kernel has saved, those that events give, and
//! what /proc says of the others.

use std::cell::{Cell, RefCell};

use kymo_kernel::target;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::Endian;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::trace_dat::{KnownEvent, TaskName, TaskNames, saved_lines};

/// Kernel's placeholder for a task whose name it has not saved.
const UNNAMED: &str = "<...>";

/// Names of running tasks. Once known a name is kept until an event or the kernel states another.
pub struct LiveTaskNames {
    tracefs: Tracefs,
    names: RefCell<TaskNames>,
    /// Tasks that had ended when /proc was asked.
    missing: RefCell<FxHashSet<i32>>,
    /// Names that the kernel had saved of tasks that ended before events were read: their numbers
    /// may be reused.
    ended: FxHashMap<i32, TaskName>,
    stale: Cell<bool>,
}

impl LiveTaskNames {
    /// To be made before events are recorded; see [`of_filled_ring`](Self::of_filled_ring).
    pub fn new(tracefs: &Tracefs) -> LiveTaskNames {
        let text = tracefs.saved_cmdlines().unwrap_or_default();
        let had_ended = |tid: i32| !u32::try_from(tid).is_ok_and(target::is_there);
        let ended = saved_lines(&text).filter(|(tid, _)| had_ended(*tid));
        LiveTaskNames {
            tracefs: tracefs.clone(),
            names: RefCell::new(TaskNames::new("")),
            missing: RefCell::default(),
            ended: ended.map(|(tid, comm)| (tid, TaskName::new(comm.as_bytes()))).collect(),
            stale: Cell::new(true),
        }
    }

    /// Sets that events were recorded before: names of tasks that have ended since are used.
    #[must_use]
    pub fn of_filled_ring(self) -> LiveTaskNames {
        LiveTaskNames { ended: FxHashMap::default(), ..self }
    }

    /// Another batch of events begins: the kernel may have saved other names.
    pub fn expire(&self) {
        self.stale.set(true);
    }

    /// Reads what the kernel has saved since. Its list is short (128 tasks), and is read
    /// before the first event of each batch.
    #[inline]
    pub fn refresh(&self) {
        if self.stale.replace(false) {
            self.read_saved();
        }
    }

    #[cold]
    fn read_saved(&self) {
        let mut names = self.names.borrow_mut();
        let text = self.tracefs.saved_cmdlines().unwrap_or_default();
        for (tid, comm) in saved_lines(&text).filter(|(_, comm)| *comm != UNNAMED) {
            let name = TaskName::new(comm.as_bytes());
            if self.ended.get(&tid) != Some(&name) {
                names.save(tid, name);
            }
        }
    }

    /// Takes over the names that an event gives to tasks; answers that of the thread it happened
    /// in, where it has another one after it.
    pub(super) fn learn(&self, known: &KnownEvent, event: (i32, &[u8])) -> Option<TaskName> {
        self.names.borrow_mut().learn(known, event, Endian::NATIVE, |_| {})
    }

    /// The name of a task, if there is one.
    pub fn find(&self, tid: i32) -> Option<TaskName> {
        let known = self.names.borrow().find(tid);
        known.or_else(|| self.ask(tid))
    }

    /// Asks /proc, once for each task.
    #[cold]
    fn ask(&self, tid: i32) -> Option<TaskName> {
        if self.missing.borrow().contains(&tid) {
            return None;
        }
        let comm = u32::try_from(tid).ok().and_then(target::comm);
        let Some(comm) = comm else {
            self.missing.borrow_mut().insert(tid);
            return None;
        };
        let name = TaskName::new(comm.as_bytes());
        self.names.borrow_mut().save(tid, name);
        Some(name)
    }

    /// The name of a task, as the kernel's `trace` file shows it.
    pub fn get(&self, tid: i32) -> TaskName {
        self.find(tid).unwrap_or_else(|| TaskName::new(UNNAMED.as_bytes()))
    }

    /// Names that are known, for threads of programs.
    pub(super) fn saved(&self) -> &RefCell<TaskNames> {
        &self.names
    }
}

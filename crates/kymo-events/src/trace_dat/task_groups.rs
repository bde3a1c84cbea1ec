//! Processes that threads are of. The kernel's ring has thread ids alone, and so have the
//! sections of a trace.dat; what some events say of it is remembered from there on. A thread
//! of which nothing was said has no process here.

use kymo_format::{EventFormat, Field, FieldKind};
use kymo_model::Endian;
use rustc_hash::{FxHashMap, FxHashSet};

use super::KnownEvent;

/// `CLONE_THREAD` of clone(2): the new task is of the same process.
const CLONE_THREAD: i64 = 0x0001_0000;
/// Threads that are remembered at most.
const MOST: usize = 4 << 20;

/// An event that says which process a thread is of.
#[derive(Clone, Debug)]
pub enum TaskGroupEvent {
    /// `task:task_newtask`, with the flags of clone(2).
    NewTask {
        /// The new thread.
        pid: Field,
        /// The flags.
        clone_flags: Field,
    },
    /// `sched:sched_process_exec`: the thread leads its process from then on.
    Exec {
        /// The thread.
        pid: Field,
    },
    /// `sched:sched_process_fork`, which does not tell threads from processes: what is known
    /// of the number is of an earlier thread.
    Fork {
        /// The new thread.
        child_pid: Field,
    },
    /// `sched:sched_process_free`: the number may be given to a new thread.
    Free {
        /// The thread.
        pid: Field,
    },
    /// `ftrace:user_stack`, which names the process.
    UserStack {
        /// The process.
        tgid: Field,
    },
}

impl TaskGroupEvent {
    pub(super) fn of(format: &EventFormat) -> Option<TaskGroupEvent> {
        let int = |name: &str| format.field(name).filter(|f| f.kind == FieldKind::Int).cloned();
        Some(match (format.system.as_str(), format.name.as_str()) {
            ("task", "task_newtask") => {
                TaskGroupEvent::NewTask { pid: int("pid")?, clone_flags: int("clone_flags")? }
            }
            ("sched", "sched_process_exec") => TaskGroupEvent::Exec { pid: int("pid")? },
            ("sched", "sched_process_fork") => {
                TaskGroupEvent::Fork { child_pid: int("child_pid")? }
            }
            ("sched", "sched_process_free") => TaskGroupEvent::Free { pid: int("pid")? },
            ("ftrace", "user_stack") => TaskGroupEvent::UserStack { tgid: int("tgid")? },
            _ => return None,
        })
    }
}

/// Processes by thread.
#[derive(Clone, Debug, Default)]
pub struct TaskGroups {
    of: FxHashMap<i32, u32>,
    /// New threads whose clone(2) was seen, until their fork is.
    cloned: FxHashSet<i32>,
}

impl TaskGroups {
    /// The process of a thread, if it is known.
    #[inline]
    pub fn get(&self, tid: i32) -> Option<u32> {
        match tid {
            // The idle tasks.
            0 => Some(0),
            // Most recordings say nothing of it.
            _ if self.of.is_empty() => None,
            _ => self.of.get(&tid).copied(),
        }
    }

    /// The thread is of that process, or of one that is not known.
    pub fn set(&mut self, tid: i32, pid: Option<u32>) {
        match pid {
            Some(pid) if self.of.len() < MOST => _ = self.of.insert(tid, pid),
            _ => _ = self.of.remove(&tid),
        }
    }

    /// Takes note of an event in a thread; hands `new` the thread whose process it says.
    pub fn learn(
        &mut self,
        known: &KnownEvent,
        (tid, payload): (i32, &[u8]),
        endian: Endian,
        mut new: impl FnMut(i32, Option<u32>),
    ) {
        let Some(event) = &known.group else { return };
        let int = |field: &Field| field.int(payload, endian);
        let thread = |field: &Field| int(field).and_then(|n| i32::try_from(n).ok());
        let (task, pid) = match event {
            TaskGroupEvent::NewTask { pid, clone_flags } => {
                let (Some(task), Some(flags)) = (thread(pid), int(clone_flags)) else { return };
                self.cloned.insert(task);
                match flags & CLONE_THREAD {
                    0 => (task, u32::try_from(task).ok()),
                    _ => (task, self.get(tid)),
                }
            }
            TaskGroupEvent::Exec { pid } => match thread(pid) {
                Some(task) => (task, u32::try_from(task).ok()),
                None => return,
            },
            // Its clone(2) comes right before it.
            TaskGroupEvent::Fork { child_pid } => match thread(child_pid) {
                Some(task) if !self.cloned.remove(&task) => (task, None),
                _ => return,
            },
            TaskGroupEvent::Free { pid } => match thread(pid) {
                Some(task) => (task, None),
                None => return,
            },
            TaskGroupEvent::UserStack { tgid } => {
                (tid, thread(tgid).and_then(|n| u32::try_from(n).ok()))
            }
        };
        if self.get(task) != pid {
            self.set(task, pid);
            new(task, pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

    fn known(system: &str, name: &str, fields: &[(&str, usize)]) -> KnownEvent {
        let mut text = format!("name: {name}\nID: 9\nformat:\n{COMMON}");
        let mut offset = 8;
        for (field, size) in fields {
            text += &format!("\tfield:{field};\toffset:{offset};\tsize:{size};\tsigned:0;\n");
            offset += size;
        }
        KnownEvent::parse(system, &(text + "\nprint fmt: \"x\"\n"), 8).unwrap()
    }

    #[test]
    fn threads_are_of_the_process_that_events_say() {
        let newtask =
            known("task", "task_newtask", &[("pid_t pid", 4), ("unsigned int clone_flags", 4)]);
        let exec = known("sched", "sched_process_exec", &[("pid_t pid", 4)]);
        let fork = known("sched", "sched_process_fork", &[("pid_t child_pid", 4)]);
        let free = known("sched", "sched_process_free", &[("pid_t pid", 4)]);
        let stack = known("ftrace", "user_stack", &[("unsigned int tgid", 4)]);
        let mut groups = TaskGroups::default();
        let mut see = |known: &KnownEvent, tid: i32, words: &[u32], thread: i32| {
            let words = words.iter().flat_map(|w| w.to_le_bytes());
            let payload: Vec<u8> = [0; 8].into_iter().chain(words).collect();
            groups.learn(known, (tid, &payload), Endian::Little, |_, _| {});
            groups.get(thread)
        };
        let thread = CLONE_THREAD as u32;
        // A thread of which process its creator is a thread is not known.
        assert_eq!(see(&newtask, 70, &[71, thread], 71), None);
        assert_eq!(see(&newtask, 70, &[80, 0], 80), Some(80));
        assert_eq!(see(&fork, 70, &[80], 80), Some(80));
        assert_eq!(see(&newtask, 80, &[81, thread], 81), Some(80));
        assert_eq!(see(&fork, 80, &[81], 81), Some(80));
        assert_eq!(see(&exec, 70, &[70], 70), Some(70));
        assert_eq!(see(&stack, 72, &[70], 72), Some(70));
        // The number is a new thread's, or may become one's.
        assert_eq!(see(&fork, 80, &[81], 81), None);
        assert_eq!(see(&free, 0, &[80], 80), None);
        assert_eq!(see(&free, 0, &[72], 0), Some(0));
    }
}

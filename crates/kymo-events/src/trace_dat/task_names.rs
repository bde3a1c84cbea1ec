//! The names of tasks in time: those that events state, and for tasks that no event has named so
//! far those that the kernel had saved when the recording ended.

use std::cell::Cell;

use kymo_format::{EventFormat, Field};
use kymo_model::{Endian, Note, NoteKind, counted};
use rustc_hash::{FxHashMap, FxHashSet};

use super::KnownEvent;

/// A task's name, as the kernel keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskName {
    bytes: [u8; 16],
    len: u8,
}

impl TaskName {
    /// The name up to its terminating zero, cut to 16 bytes.
    pub fn new(text: &[u8]) -> TaskName {
        let text = text.split(|b| *b == 0).next().unwrap_or_default();
        let len = text.len().min(16);
        let mut bytes = [0; 16];
        bytes[..len].copy_from_slice(&text[..len]);
        TaskName { bytes, len: len as u8 }
    }

    /// The bytes of the name.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }
}

/// Tasks that are remembered at most; a recording has some thousands.
const MOST: usize = 4 << 20;

/// Names of tasks at one time. What an event states holds from that event on, until another one
/// states something else or the task is freed; what the kernel had saved when the recording ended
/// is used for tasks that no event has named so far. (trace-cmd shows the saved name, which is the
/// last one, for all times.)
#[derive(Clone, Debug, Default)]
pub struct TaskNames {
    stated: FxHashMap<i32, TaskName>,
    /// Each with a mark where it was the answer.
    saved: FxHashMap<i32, (TaskName, Cell<bool>)>,
    /// Tasks whose stated names differ although no event has changed them.
    silently_changed: FxHashSet<i32>,
    /// An event changed a name: what was stated is not outdated by changes that no event states.
    has_changes: bool,
    /// The saved names are those at the end of a recording.
    is_over: bool,
}

/// Event that changes the name of a task, where its fields are not a name beside a number.
#[derive(Clone, Debug)]
pub enum NameChange {
    /// `task:task_rename`: the event happens under the old name.
    Rename {
        /// The task; the one in which the event happens where the field is missing.
        pid: Option<Field>,
        /// Name before the event.
        old: Field,
        /// Name after it.
        new: Field,
    },
    /// `sched:sched_process_exec`: the program's file names the task.
    Exec {
        /// Path of the program.
        filename: Field,
    },
    /// `sched:sched_process_free`: the number may be given to another task.
    Free {
        /// The task.
        pid: Field,
    },
}

impl NameChange {
    pub(super) fn of(format: &EventFormat) -> Option<NameChange> {
        let field = |name: &str| format.field(name).cloned();
        Some(match (format.system.as_str(), format.name.as_str()) {
            ("task", "task_rename") => NameChange::Rename {
                pid: field("pid"),
                old: field("oldcomm")?,
                new: field("newcomm")?,
            },
            ("sched", "sched_process_exec") => NameChange::Exec { filename: field("filename")? },
            ("sched", "sched_process_free") => NameChange::Free { pid: field("pid")? },
            _ => return None,
        })
    }
}

/// New facts about the name of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewName {
    /// The task.
    pub tid: i32,
    /// Its name; `None`: no event states it any more.
    pub name: Option<TaskName>,
    /// It holds after the event only.
    pub is_after: bool,
}

impl TaskNames {
    /// Reads `saved_cmdlines`: lines of `pid name`.
    pub fn new(saved_cmdlines: &str) -> TaskNames {
        let mut names = TaskNames { is_over: !saved_cmdlines.is_empty(), ..TaskNames::default() };
        names.save(0, TaskName::new(b"<idle>"));
        for (pid, comm) in saved_lines(saved_cmdlines) {
            names.save(pid, TaskName::new(comm.as_bytes()));
        }
        names
    }

    /// Takes over a name that the kernel has saved. Where it had saved another one before, this
    /// is later than what events have stated, unless changes are events themselves: those may
    /// still come.
    pub fn save(&mut self, pid: i32, comm: TaskName) {
        let before = self.saved.insert(pid, (comm, Cell::new(false)));
        if !self.has_changes && before.is_none_or(|(before, _)| before != comm) {
            self.stated.remove(&pid);
        }
    }

    /// The name of a task; `<...>` if it is not known, as trace-cmd shows it.
    #[inline]
    pub fn get(&self, pid: i32) -> TaskName {
        self.find(pid).unwrap_or_else(|| TaskName::new(b"<...>"))
    }

    /// The name of a task, if it is known.
    #[inline]
    pub fn find(&self, pid: i32) -> Option<TaskName> {
        if let Some(name) = self.stated.get(&pid) {
            return Some(*name);
        }
        let (name, is_used) = self.saved.get(&pid)?;
        is_used.set(true);
        Some(*name)
    }

    /// Whether an event has changed a name.
    pub fn has_changes(&self) -> bool {
        self.has_changes
    }

    /// Takes note that an event has changed a name.
    pub fn set_changes(&mut self) {
        self.has_changes = true;
    }

    /// Note on tasks whose names are the last ones, whatever they were called in the events: no
    /// event states names or their changes.
    pub fn note(&self) -> Option<Note> {
        TaskNames::note_on(std::iter::once(self))
    }

    /// [`TaskNames::note`] on the names that several readers of one recording have used.
    pub fn note_on<'n>(all: impl Iterator<Item = &'n TaskNames> + Clone) -> Option<Note> {
        let mut used: FxHashSet<i32> = FxHashSet::default();
        let mut changed: FxHashSet<i32> = FxHashSet::default();
        for names in all.clone() {
            changed.extend(&names.silently_changed);
            let saved = names.saved.iter().filter(|(pid, (_, used))| **pid != 0 && used.get());
            used.extend(saved.map(|(pid, _)| *pid));
        }
        let (tasks, changed) = (used.len() as u64, changed.len() as u64);
        let is_stated = all.clone().any(|names| names.has_changes || !names.is_over);
        if tasks + changed == 0 || is_stated {
            return None;
        }
        let of_end = match tasks {
            0 => None,
            1 => Some("the name of 1 task is from the end of the recording".to_owned()),
            _ => {
                let tasks = counted(tasks, "task", "tasks");
                Some(format!("the names of {tasks} are from the end of the recording"))
            }
        };
        let changed = match changed {
            0 => None,
            1 => Some("1 task changed its name at an unknown time".to_owned()),
            n => Some(format!(
                "{} changed their names at unknown times",
                counted(n, "task", "tasks")
            )),
        };
        let fact: Vec<String> = of_end.into_iter().chain(changed).collect();
        let fact = format!("{}: no event states a change", fact.join(", "));
        let advice = "record `task:task_rename` too for names at the time".to_owned();
        Some(Note::choice(NoteKind::Names, fact, Some(advice)))
    }

    /// Sets the name that an event states; `None`: none does any more.
    pub fn set(&mut self, pid: i32, name: Option<TaskName>) {
        match name {
            Some(name) if self.stated.len() < MOST || self.stated.contains_key(&pid) => {
                self.stated.insert(pid, name);
            }
            // A name that is known to be wrong is worse than none.
            Some(_) => {}
            None => _ = self.stated.remove(&pid),
        }
    }

    /// Applies what an event in the thread `tid` states of names, and hands each change to `new`.
    /// Answers the name of that thread in the event, where it has another one after it.
    #[inline]
    pub fn learn(
        &mut self,
        known: &KnownEvent,
        (tid, payload): (i32, &[u8]),
        endian: Endian,
        mut new: impl FnMut(NewName),
    ) -> Option<TaskName> {
        let task = |pid: &Field| i32::try_from(pid.int(payload, endian)?).ok();
        for (comm, pid) in &known.names_of_tasks {
            let Some(pid) = task(pid) else { continue };
            // A child is born with its parent's name, and most take another: where no event reports
            // that, the name at the end is more likely.
            let is_birth = comm.name == "child_comm" && self.is_over && !self.has_changes;
            if is_birth && self.saved.contains_key(&pid) {
                if self.stated.remove(&pid).is_some() {
                    new(NewName { tid: pid, name: None, is_after: false });
                }
                continue;
            }
            let text = comm.bytes(payload, endian);
            if comm.name != "child_comm" && self.differs(pid, text) {
                self.silently_changed.insert(pid);
            }
            self.state(pid, text, &mut new);
        }
        let change = known.name_change.as_ref()?;
        self.has_changes |= !matches!(change, NameChange::Free { .. });
        let (pid, after) = match change {
            NameChange::Rename { pid, old, new: name } => {
                let pid = pid.as_ref().map_or(Some(tid), task)?;
                self.state(pid, old.bytes(payload, endian), &mut new);
                (pid, Some(TaskName::new(name.bytes(payload, endian))))
            }
            NameChange::Exec { filename } => {
                let path = filename.bytes(payload, endian);
                let path = path.split(|b| *b == 0).next().unwrap_or_default();
                let file = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
                // The kernel keeps 15 bytes.
                self.state(tid, file.get(..15).unwrap_or(file), &mut new);
                return None;
            }
            NameChange::Free { pid } => (task(pid)?, None),
        };
        let before = self.find(tid);
        self.set(pid, after);
        new(NewName { tid: pid, name: after, is_after: true });
        before.filter(|_| pid == tid)
    }

    /// Whether a task got another name than the stated one, and no event is known to change names.
    fn differs(&self, pid: i32, text: &[u8]) -> bool {
        !self.has_changes
            && pid != 0
            && self.silently_changed.len() < MOST
            && self.stated.get(&pid).is_some_and(|name| *name != TaskName::new(text))
    }

    /// Takes note of a name that holds in an event.
    fn state(&mut self, pid: i32, text: &[u8], new: &mut impl FnMut(NewName)) {
        let name = TaskName::new(text);
        // Each CPU has an idle task of its own, and all have one name here.
        if pid == 0 || name.as_bytes().is_empty() || self.stated.get(&pid) == Some(&name) {
            return;
        }
        self.set(pid, Some(name));
        new(NewName { tid: pid, name: Some(name), is_after: false });
    }
}

/// The lines of `saved_cmdlines`: `pid name`.
pub fn saved_lines(text: &str) -> impl Iterator<Item = (i32, &str)> {
    let pairs = text.lines().filter_map(|line| line.trim_start().split_once(' '));
    pairs.filter_map(|(pid, comm)| Some((pid.parse().ok()?, comm)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

    /// An event with a number, and texts of 16 bytes.
    fn known(system: &str, name: &str, pid: &str, texts: &[&str]) -> KnownEvent {
        let mut text = format!("name: {name}\nID: 9\nformat:\n{COMMON}");
        text += &format!("\tfield:pid_t {pid};\toffset:8;\tsize:4;\tsigned:1;\n");
        for (at, field) in texts.iter().enumerate() {
            let offset = 12 + 16 * at;
            text += &format!("\tfield:char {field}[16];\toffset:{offset};\tsize:16;\tsigned:0;\n");
        }
        KnownEvent::parse(system, &(text + "\nprint fmt: \"x\"\n"), 8).unwrap()
    }

    fn payload(pid: i32, texts: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes.extend(pid.to_le_bytes());
        for text in texts {
            let mut field = [0; 16];
            field[..text.len()].copy_from_slice(text.as_bytes());
            bytes.extend(field);
        }
        bytes
    }

    #[test]
    fn the_name_of_a_birth_yields_to_the_last_one_unless_renames_are_recorded() {
        let fork = known("sched", "sched_process_fork", "child_pid", &["child_comm"]);
        let rename = known("task", "task_rename", "pid", &["oldcomm", "newcomm"]);
        let learn = |names: &mut TaskNames, event: &KnownEvent, payload: &[u8]| {
            names.learn(event, (3, payload), Endian::Little, |_| {});
        };
        let mut names = TaskNames::new("12 ls\n");
        learn(&mut names, &fork, &payload(12, &["sh"]));
        learn(&mut names, &fork, &payload(13, &["sh"]));
        assert_eq!((&*name(&names, 12), &*name(&names, 13)), ("ls", "sh"));
        learn(&mut names, &rename, &payload(3, &["a", "b"]));
        learn(&mut names, &fork, &payload(12, &["sh"]));
        assert_eq!(name(&names, 12), "sh");
        // What the kernel has saved by now is older than what happens.
        let mut names = TaskNames::new("");
        names.save(12, TaskName::new(b"old"));
        learn(&mut names, &fork, &payload(12, &["sh"]));
        assert_eq!(name(&names, 12), "sh");
    }

    #[test]
    fn a_change_that_no_event_states_is_noted() {
        let switch = known("sched", "sched_switch", "next_pid", &["next_comm"]);
        let rename = known("task", "task_rename", "pid", &["oldcomm", "newcomm"]);
        let mut names = TaskNames::new("12 ls\n");
        let learn = |names: &mut TaskNames, event: &KnownEvent, payload: &[u8]| {
            names.learn(event, (3, payload), Endian::Little, |_| {});
        };
        learn(&mut names, &switch, &payload(12, &["sh"]));
        assert_eq!(names.note(), None);
        learn(&mut names, &switch, &payload(12, &["ls"]));
        let fact = names.note().unwrap().fact;
        assert_eq!(fact, "1 task changed its name at an unknown time: no event states a change");
        learn(&mut names, &rename, &payload(13, &["sh", "ls"]));
        assert_eq!(names.note(), None);
    }

    fn name(names: &TaskNames, pid: i32) -> String {
        String::from_utf8_lossy(names.get(pid).as_bytes()).into_owned()
    }

    #[test]
    fn names_are_those_of_their_time() {
        let rename = known("task", "task_rename", "pid", &["oldcomm", "newcomm"]);
        let exit = known("sched", "sched_process_exit", "pid", &["comm"]);
        let free = known("sched", "sched_process_free", "pid", &["comm"]);
        let mut names = TaskNames::new("12 last\n  13 name with blanks\nnonsense\n");
        assert_eq!((name(&names, 0), name(&names, 15)), ("<idle>".into(), "<...>".into()));
        assert_eq!(
            (name(&names, 12), name(&names, 13)),
            ("last".into(), "name with blanks".into())
        );
        let mut changes = Vec::new();
        let mut see = |names: &mut TaskNames, known, pid, texts: &[&str]| {
            let own = names.learn(known, (pid, &payload(pid, texts)), Endian::Little, |change| {
                changes.push((change.name.map(|n| n.as_bytes().to_vec()), change.is_after));
            });
            own.map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
        };
        // The event itself happens under the old name.
        assert_eq!(see(&mut names, &rename, 12, &["first", "second"]).as_deref(), Some("first"));
        assert_eq!(name(&names, 12), "second");
        assert_eq!(see(&mut names, &exit, 12, &["second"]), None);
        assert_eq!(see(&mut names, &free, 12, &["second"]).as_deref(), Some("second"));
        // The next owner of the number is another task, whose name was saved.
        assert_eq!(name(&names, 12), "last");
        assert_eq!(see(&mut names, &exit, 0, &["swapper/0"]), None);
        assert_eq!(name(&names, 0), "<idle>");
        let some = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(changes, [(some("first"), false), (some("second"), true), (None, true)]);
    }

    #[test]
    fn a_program_that_is_executed_names_its_task() {
        let exec = known("sched", "sched_process_exec", "pid", &["filename"]);
        let mut names = TaskNames::new("");
        let bytes = payload(7, &["/usr/bin/true"]);
        assert_eq!(names.learn(&exec, (7, &bytes), Endian::Little, |_| {}), None);
        assert_eq!(name(&names, 7), "true");
    }

    #[test]
    fn a_name_that_is_saved_anew_is_later_than_stated_ones() {
        let exit = known("sched", "sched_process_exit", "pid", &["comm"]);
        let mut names = TaskNames::new("7 sh\n");
        names.learn(&exit, (7, &payload(7, &["stated"])), Endian::Little, |_| {});
        names.save(7, TaskName::new(b"sh"));
        assert_eq!(name(&names, 7), "stated");
        names.save(7, TaskName::new(b"app\0rest"));
        assert_eq!(name(&names, 7), "app");
        // Where renames are events, the one that explains it may still come.
        let rename = known("task", "task_rename", "pid", &["oldcomm", "newcomm"]);
        names.learn(&rename, (7, &payload(7, &["app", "second"])), Endian::Little, |_| {});
        names.save(7, TaskName::new(b"third"));
        assert_eq!(name(&names, 7), "second");
    }
}

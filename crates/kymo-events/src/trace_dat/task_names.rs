//! The names of tasks: those the kernel had saved when the recording ended,
//! and for others what the events themselves say.

use rustc_hash::FxHashMap;

use super::KnownEvent;
use kymo_model::Endian;

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

/// Names by task.
#[derive(Clone, Debug, Default)]
pub struct TaskNames {
    /// The name, and whether the kernel had saved it.
    of: FxHashMap<i32, (TaskName, bool)>,
}

impl TaskNames {
    /// Reads `saved_cmdlines`: lines of `pid name`.
    pub fn new(saved_cmdlines: &str) -> TaskNames {
        let mut names = TaskNames::default();
        names.save(0, TaskName::new(b"<idle>"));
        for (pid, comm) in saved_lines(saved_cmdlines) {
            names.save(pid, TaskName::new(comm.as_bytes()));
        }
        names
    }

    /// Takes over a name that the kernel has saved.
    pub fn save(&mut self, pid: i32, comm: TaskName) {
        self.of.insert(pid, (comm, true));
    }

    /// The name of a task; `<...>` if it is not known, as trace-cmd shows it.
    #[inline]
    pub fn get(&self, pid: i32) -> TaskName {
        self.find(pid).unwrap_or_else(|| TaskName::new(b"<...>"))
    }

    /// The name of a task, if it is known.
    #[inline]
    pub fn find(&self, pid: i32) -> Option<TaskName> {
        self.of.get(&pid).map(|(comm, _)| *comm)
    }

    /// Names the task, unless the kernel had saved its name; `true` if that is news.
    pub fn add(&mut self, pid: i32, comm: TaskName) -> bool {
        match self.of.get_mut(&pid) {
            Some((_, true)) => false,
            Some((had, _)) if *had == comm => false,
            Some((had, _)) => {
                *had = comm;
                true
            }
            None => {
                let room = self.of.len() < MOST;
                if room {
                    self.of.insert(pid, (comm, false));
                }
                room
            }
        }
    }

    /// Hands `new` the tasks that an event gives another name than they had.
    #[inline]
    pub fn learn(
        &mut self,
        known: &KnownEvent,
        payload: &[u8],
        endian: Endian,
        mut new: impl FnMut(i32, TaskName),
    ) {
        for (comm, pid) in &known.names_of_tasks {
            let Some(pid) = pid.int(payload, endian) else { continue };
            let Ok(pid) = i32::try_from(pid) else { continue };
            if self.of.get(&pid).is_some_and(|(_, saved)| *saved) {
                continue;
            }
            let text = TaskName::new(comm.bytes(payload, endian));
            if !text.as_bytes().is_empty() && self.add(pid, text) {
                new(pid, text);
            }
        }
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

    #[test]
    fn saved_names_count_before_learnt_ones() {
        let mut c = TaskNames::new("12 cat\n  13 name with blanks\nnonsense\n");
        let name = |c: &TaskNames, pid| String::from_utf8_lossy(c.get(pid).as_bytes()).into_owned();
        assert!(!c.add(12, TaskName::new(b"dog")));
        assert!(c.add(14, TaskName::new(b"egg")));
        assert!(c.add(14, TaskName::new(b"bird\0rest")));
        assert!(!c.add(14, TaskName::new(b"bird")));
        assert_eq!(name(&c, 12), "cat");
        assert_eq!(name(&c, 13), "name with blanks");
        assert_eq!(name(&c, 14), "bird");
        assert_eq!((name(&c, 0), name(&c, 15)), ("<idle>".into(), "<...>".into()));
    }
}

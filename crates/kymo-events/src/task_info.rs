//! The task of an event: process, thread and name.

/// Bytes of a task's name that are kept.
const NAME: usize = 32;

/// The task of an event, as far as the recording tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskInfo {
    /// Process id, where the recording tells: ftrace states the thread alone, and some events
    /// say more.
    pub pid: Option<u32>,
    /// Thread id.
    pub tid: Option<u32>,
    /// Whether the name is known; else it is what the format's own tool shows instead.
    pub is_named: bool,
    comm: [u8; NAME],
    len: u8,
}

impl TaskInfo {
    /// A task with a name.
    pub fn new(pid: Option<u32>, tid: Option<u32>, comm: &[u8]) -> TaskInfo {
        let mut task = TaskInfo { pid, tid, is_named: true, ..TaskInfo::default() };
        task.set_comm(comm);
        task
    }

    fn set_comm(&mut self, comm: &[u8]) {
        let comm = comm.get(..NAME).unwrap_or(comm);
        self.comm[..comm.len()].copy_from_slice(comm);
        self.len = comm.len() as u8;
    }

    /// The same with a placeholder instead of a name.
    pub(crate) fn unnamed(pid: Option<u32>, tid: Option<u32>, shown: &[u8]) -> TaskInfo {
        TaskInfo { is_named: false, ..TaskInfo::new(pid, tid, shown) }
    }

    /// Its name, or the placeholder.
    pub fn comm(&self) -> &[u8] {
        self.comm.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

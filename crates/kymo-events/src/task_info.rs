//! The task of an event: process, thread and name.

/// Bytes of a task's name that are kept.
const NAME: usize = 32;

/// A task's name as events of the kernel state it: at most 16 bytes (`TASK_COMM_LEN`), zeros
/// behind the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaskComm([u8; 16]);

impl TaskComm {
    /// A name; what is longer is cut.
    pub fn new(name: &[u8]) -> TaskComm {
        let mut bytes = [0; 16];
        let len = name.len().min(bytes.len());
        bytes[..len].copy_from_slice(&name[..len]);
        TaskComm::from_field(bytes)
    }

    /// The name in a field of an event; behind its terminating zero may be anything.
    #[inline]
    pub fn from_field(bytes: [u8; 16]) -> TaskComm {
        let all = u128::from_le_bytes(bytes);
        // The lowest of these bits is that of the first byte that is zero.
        let ones = u128::from_le_bytes([1; 16]);
        let zeros = all.wrapping_sub(ones) & !all & (ones << 7);
        let kept = zeros.trailing_zeros() & !7;
        let kept = if kept == 128 { all } else { all & ((1 << kept) - 1) };
        TaskComm(kept.to_le_bytes())
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_their_first_zero() {
        let of = |field: &[u8; 16]| TaskComm::from_field(*field);
        assert_eq!(of(b"cat\0garbage\0\xff\x80\x01\0"), TaskComm::new(b"cat"));
        assert_eq!(of(b"\0garbage\0\0\0\0\0\0\0\0"), TaskComm::default());
        assert_eq!(of(b"sixteen bytes of").as_bytes(), b"sixteen bytes of");
        assert_eq!(
            of(b"\x01\x80\xff\0\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01"),
            TaskComm::new(b"\x01\x80\xff")
        );
        assert_eq!(TaskComm::new(b"sixteen bytes of it").as_bytes(), b"sixteen bytes of");
        assert!(TaskComm::new(b"").is_empty() && !TaskComm::new(b"a").is_empty());
    }
}

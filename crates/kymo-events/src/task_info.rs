//! The task of an event: process, thread and name.

/// Bytes of a task's name that are kept.
const NAME: usize = 32;

/// A task's name as events of the kernel state it: at most 16 bytes (`TASK_COMM_LEN`), zeros
/// behind the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaskComm {
    // Words, not bytes: they stay in registers from the event to the comparison.
    first: u64,
    second: u64,
}

impl TaskComm {
    /// A name, up to its terminating zero if it has one; what is longer than 16 bytes is cut.
    #[inline]
    pub fn new(name: &[u8]) -> TaskComm {
        let len = name.len().min(16);
        // Words that overlap where the name is no whole number of them.
        let word = |at: usize| name.get(at..)?.first_chunk().map(|w| u64::from_le_bytes(*w));
        let half = |at: usize| name.get(at..)?.first_chunk().map(|w| u32::from_le_bytes(*w));
        let byte = |at: usize| name.get(at).map_or(0, |b| u64::from(*b) << (8 * at));
        let (first, second) = match len {
            8.. => {
                let last = word(len - 8).unwrap_or(0);
                (word(0).unwrap_or(0), last.checked_shr(8 * (16 - len as u32)).unwrap_or(0))
            }
            4..8 => {
                let (low, high) = (half(0).unwrap_or(0), half(len - 4).unwrap_or(0));
                (u64::from(low) | u64::from(high) << (8 * (len - 4)), 0)
            }
            _ => (byte(0) | byte(1) | byte(2), 0),
        };
        TaskComm::of_words(first, second)
    }

    /// The name in a field of an event; behind its terminating zero may be anything.
    #[inline]
    pub fn from_field(bytes: &[u8; 16]) -> TaskComm {
        let all = u128::from_le_bytes(*bytes);
        TaskComm::of_words(all as u64, (all >> 64) as u64)
    }

    #[inline]
    fn of_words(first: u64, second: u64) -> TaskComm {
        let (kept, rest) = (bits_to_zero(first), bits_to_zero(second));
        TaskComm {
            first: first & low_bits(kept),
            second: if kept == u64::BITS { second & low_bits(rest) } else { 0 },
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.first == 0
    }

    /// Its bytes, with zeros behind them.
    pub fn padded(&self) -> [u8; 16] {
        (u128::from(self.first) | u128::from(self.second) << 64).to_le_bytes()
    }

    /// Number of its bytes.
    pub fn len(&self) -> usize {
        self.padded().iter().position(|b| *b == 0).unwrap_or(16)
    }
}

/// Bits of a word before its first byte that is zero.
#[inline]
fn bits_to_zero(word: u64) -> u32 {
    let ones = u64::from_le_bytes([1; 8]);
    // The lowest of these bits is in the first byte that is zero.
    let zeros = word.wrapping_sub(ones) & !word & (ones << 7);
    zeros.trailing_zeros() & !7
}

#[inline]
fn low_bits(count: u32) -> u64 {
    u64::MAX.checked_shl(count).map_or(u64::MAX, |high| !high)
}

/// Task of an event, as far as the recording states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskInfo {
    /// Process id, where the recording states it: ftrace has the thread alone, and some events say
    /// more.
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

    /// Task with a placeholder instead of a name.
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
    fn names_end_at_their_first_zero_or_after_16_bytes() {
        let text = b"sixteen bytes of it";
        for len in 0..=text.len() {
            let name = &text[..len];
            let kept = &name[..len.min(16)];
            let mut field = [0xee; 16];
            field[..kept.len()].copy_from_slice(kept);
            field[kept.len()..].iter_mut().take(1).for_each(|b| *b = 0);
            let comm = TaskComm::from_field(&field);
            assert_eq!((&comm.padded()[..comm.len()], comm.len()), (kept, kept.len()));
            assert_eq!(TaskComm::new(name), comm);
            assert_eq!(TaskComm::new(&[name, b"\0garbage"].concat()), comm);
            assert_eq!(comm.is_empty(), len == 0);
        }
        // Bytes beside 0x00 and 0x80, which the search for zeros could take for them.
        let odd = b"\x01\x80\xff\x01\x80\x7f\x81\x01\x01\x80\xff\x01\x80\x7f\x81\x01";
        assert_eq!(TaskComm::from_field(odd).padded(), *odd);
        assert_eq!(TaskComm::new(odd), TaskComm::from_field(odd));
    }
}

//! State in which a task leaves a CPU: `prev_state` of `sched_switch`.

/// Bits of `prev_state` that are states, with the letters of ps(1) that the kernel's own
/// print format has for them; the lowest that is set counts.
const LETTERS: [u8; 8] = *b"SDTtXZPI";

/// State in which a task leaves a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwitchOutState {
    /// It could go on (`R`): it was preempted on its way to user space, or yielded.
    Runnable,
    /// It could go on, and was preempted in the kernel (`R+`).
    Preempted,
    /// It waits for something: the letter of its state.
    Blocked(u8),
    /// It has ended (`X`, `Z`).
    Dead(u8),
}

impl SwitchOutState {
    /// Reads `prev_state`. Kernels 4.14 and later tell of preemption by bit 8 (`0x100`),
    /// older ones by a higher one, in both cases beside no state.
    pub fn from_kernel(prev_state: i64) -> SwitchOutState {
        let state = prev_state as u64;
        let bit = (state & 0xff).trailing_zeros() as usize;
        match LETTERS.get(bit) {
            Some(letter @ (b'X' | b'Z')) => SwitchOutState::Dead(*letter),
            Some(letter) => SwitchOutState::Blocked(*letter),
            None if state == 0 => SwitchOutState::Runnable,
            None => SwitchOutState::Preempted,
        }
    }

    /// Whether it still wants the CPU.
    pub fn is_runnable(self) -> bool {
        matches!(self, SwitchOutState::Runnable | SwitchOutState::Preempted)
    }

    /// As ftrace shows it.
    pub fn text(self) -> &'static str {
        match self {
            SwitchOutState::Runnable => "R",
            SwitchOutState::Preempted => "R+",
            SwitchOutState::Blocked(letter) | SwitchOutState::Dead(letter) => match letter {
                b'S' => "S",
                b'D' => "D",
                b'T' => "T",
                b't' => "t",
                b'X' => "X",
                b'Z' => "Z",
                b'P' => "P",
                _ => "I",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_letters_of_the_print_format() {
        let text = |state| SwitchOutState::from_kernel(state).text();
        let all = [0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x100].map(text);
        assert_eq!(all, ["R", "S", "D", "T", "t", "X", "Z", "P", "I", "R+"]);
        // Kernels before 4.14: TASK_STATE_MAX, and TASK_NOLOAD beside a state.
        assert_eq!((text(4096), text(1026)), ("R+", "D"));
        assert!(SwitchOutState::from_kernel(0x100).is_runnable());
        assert!(!SwitchOutState::from_kernel(1).is_runnable());
    }
}

//! The flags of an event of the kernel as letters.

/// The letters for a payload's `common_flags` and `common_preempt_count`:
/// interrupts off, need to reschedule, in an interrupt, preemption depth and,
/// since Linux 5.17, depth of disabled migration.
pub fn flag_letters(flags: u8, preempt: u8) -> [u8; 5] {
    let has = |bit: u8| flags & bit != 0;
    let irqs = match (has(0x01), has(0x80)) {
        (true, true) => b'D',
        (true, false) => b'd',
        (false, true) => b'b',
        (false, false) => b'.',
    };
    // Lazy rescheduling is of Linux 6.13; its bit said before that the machine
    // cannot tell, which none of today says.
    let resched = match (has(0x04), has(0x02), has(0x20)) {
        (true, true, true) => b'B',
        (true, false, true) => b'N',
        (false, true, true) => b'L',
        (true, true, false) => b'b',
        (true, false, false) => b'n',
        (false, false, true) => b'p',
        (false, true, false) => b'l',
        (false, false, false) => b'.',
    };
    let context = match (has(0x40), has(0x08), has(0x10)) {
        (true, true, _) => b'Z',
        (true, false, _) => b'z',
        (false, true, true) => b'H',
        (false, true, false) => b'h',
        (false, false, true) => b's',
        (false, false, false) => b'.',
    };
    let depth = |n: u8| match n {
        0 => b'.',
        n => *b"0123456789abcdef".get(usize::from(n & 15)).unwrap_or(&b'?'),
    };
    [irqs, resched, context, depth(preempt & 15), depth(preempt >> 4)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_letters() {
        let text = |flags, preempt| String::from_utf8(flag_letters(flags, preempt).into()).unwrap();
        assert_eq!(text(0, 0), ".....");
        assert_eq!(text(0x01, 0x02), "d..2.");
        assert_eq!(text(0x01 | 0x20 | 0x04 | 0x08, 0x10), "dNh.1");
        assert_eq!(text(0x80 | 0x10, 0xff), "b.sff");
        assert_eq!(text(0x81 | 0x02 | 0x40, 0), "Dlz..");
        assert_eq!(text(0x26 | 0x18, 0), ".BH..");
    }
}

//! Size of a program's bytes, where it does not depend on their contents.

use super::bits::Load;
use super::walk::{Len, Step, WideLen};

/// The size of steps in bits, if it is the same at any whole byte.
pub(crate) fn fixed(steps: &[Step], from: usize, to: usize) -> Option<u64> {
    let (mut size, mut at) = (0u64, from);
    let aligned = |size: u64, align: u32| (align <= 8).then(|| size.next_multiple_of(align.into()));
    while at < to {
        let step = steps.get(at)?;
        at += 1;
        match *step {
            Step::Part(_) => {}
            Step::Align(align) => size = aligned(size, align)?,
            Step::Int { align, size: bits, .. } => {
                size = aligned(size, align)?.checked_add(bits.into())?;
            }
            Step::Float { align, load, .. } => {
                let bits = match load {
                    Load::Le32 | Load::Be32 => 32,
                    Load::Le64 | Load::Be64 => 64,
                    // At any bit, or in another order of bits.
                    _ => return None,
                };
                size = aligned(size, align)?.checked_add(bits)?;
            }
            Step::Chars { len: Len::Is(n), .. } => {
                size = aligned(size, 8)?.checked_add(n.checked_mul(8)?)?;
            }
            Step::Struct { align, end, .. } => {
                let inner = fixed(steps, at, end as usize)?;
                size = aligned(size, align)?;
                // What lies in it begins where it begins.
                if !size.is_multiple_of(8) {
                    return None;
                }
                size = size.checked_add(inner)?;
                at = end as usize;
            }
            Step::Row { len: Len::Is(n), align, end, .. } => {
                let inner = fixed(steps, at, end as usize)?;
                size = aligned(size, align)?;
                if !size.is_multiple_of(8) || !inner.is_multiple_of(8) {
                    return None;
                }
                size = size.checked_add(inner.checked_mul(n)?)?;
                at = end as usize;
            }
            Step::Wide { len: WideLen::Of(Len::Is(n)), .. } => {
                size = aligned(size, 8)?.checked_add(n.checked_mul(8)?)?;
            }
            Step::Wide { .. } | Step::VarInt { .. } => return None,
            Step::Text { .. } | Step::Chars { .. } | Step::Row { .. } | Step::Choose { .. } => {
                return None;
            }
        }
    }
    (size < 1 << 40).then_some(size)
}

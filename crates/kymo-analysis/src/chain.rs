//! The addresses of a call chain and what they stand for. A caller's frame holds
//! the address behind its call, which may be of another line, another inlined
//! copy, or another function. Whoever asks what code a frame is in asks for
//! [`Place::code`]: this is the one place that knows which addresses those are.

use kymo_model::{CALLCHAIN_CONTEXT_MIN, ChainContext, Misc};

/// Where a chain comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The kernel recorded it: the first address of each part is where the
    /// processor was, the others are return addresses.
    Recorded,
    /// It was unwound here: every address is in the instruction itself.
    Unwound,
}

/// A frame of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose address it is: a mode of [`Misc`].
    pub mode: u16,
    /// The address as it stands there.
    pub ip: u64,
    /// It is a return address.
    pub returns: bool,
}

impl Place {
    /// Where the processor was.
    pub fn exact(mode: u16, ip: u64) -> Place {
        Place { mode, ip, returns: false }
    }

    /// An address in the instruction that is executed.
    pub fn code(self) -> u64 {
        self.ip - u64::from(self.returns)
    }
}

/// A word of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A frame.
    Frame(Place),
    /// A marker that nobody knows.
    Unknown,
}

/// The frames of a chain, innermost first, beginning in `mode`.
pub fn walk(
    chain: impl Iterator<Item = u64>,
    mode: u16,
    origin: Origin,
) -> impl Iterator<Item = Step> {
    let mut mode = mode;
    let mut first = true;
    chain.filter_map(move |word| {
        if word < CALLCHAIN_CONTEXT_MIN {
            // Nobody returns to 0: it ends chains of programs without frame pointers.
            let returns = origin == Origin::Recorded && !first && word > 0;
            first = false;
            return Some(Step::Frame(Place { mode, ip: word, returns }));
        }
        first = true;
        mode = match ChainContext(word) {
            ChainContext::KERNEL => Misc::KERNEL,
            ChainContext::USER | ChainContext::USER_DEFERRED => Misc::USER,
            ChainContext::HV => Misc::HYPERVISOR,
            ChainContext::GUEST_KERNEL => Misc::GUEST_KERNEL,
            ChainContext::GUEST | ChainContext::GUEST_USER => Misc::GUEST_USER,
            _ => {
                mode = 0;
                return Some(Step::Unknown);
            }
        };
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_callers_that_were_recorded_hold_return_addresses() {
        let (kernel, user) = (ChainContext::KERNEL.0, ChainContext::USER.0);
        let chain = [kernel, 0xffff_1000, 0xffff_2000, user, 0x10, 0x20, 0];
        let code = |origin| {
            let steps = walk(chain.into_iter(), Misc::USER, origin);
            let place = |s| match s {
                Step::Frame(p) => Some((p.mode == Misc::KERNEL, p.code())),
                Step::Unknown => None,
            };
            steps.map(place).collect::<Option<Vec<_>>>()
        };
        let expected =
            [(true, 0xffff_1000), (true, 0xffff_1fff), (false, 0x10), (false, 0x1f), (false, 0)];
        assert_eq!(code(Origin::Recorded).as_deref(), Some(&expected[..]));
        let unwound: Vec<u64> = code(Origin::Unwound).unwrap().iter().map(|c| c.1).collect();
        assert_eq!(unwound, [0xffff_1000, 0xffff_2000, 0x10, 0x20, 0]);
        let odd = walk([ChainContext::KERNEL.0 - 1, 5].into_iter(), Misc::USER, Origin::Recorded);
        assert_eq!(odd.collect::<Vec<_>>(), [Step::Unknown, Step::Frame(Place::exact(0, 5))]);
    }
}

//! The addresses of a call chain and what they stand for. A caller's frame holds the address behind
//! its call, which may be of another line, another inlined copy, or another function. The code that
//! a frame is in is [`ChainAddress::code`]: this is the one place that knows which addresses those
//! are. No callers are those whom something interrupted: the innermost frame of each part of a
//! chain, what lies beneath the entry of an interrupt or exception, a function that a thunk of an
//! indirect call is about to go to, and the trampoline that a signal handler returns to (which
//! [`returns_of_signals`] finds, by its code).

use std::sync::Arc;

use kymo_model::{CALLCHAIN_CONTEXT_MIN, ChainContext, Misc};
use kymo_symbols::{DsoId, KernelTable, Resolver};

use crate::address::{BinaryAddress, CodeAddress};

/// Source of a call chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The kernel recorded it: the first address of each part is where the
    /// processor was, as is what an interrupt came upon; the others are return
    /// addresses.
    Recorded,
    /// It was unwound here: every address is in the instruction itself.
    Unwound,
}

/// Address of a frame of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainAddress {
    /// Context of the address: a mode of [`Misc`].
    pub mode: u16,
    /// The address as it stands there.
    pub ip: u64,
    /// It is a return address.
    pub returns: bool,
}

impl ChainAddress {
    /// Address of the interrupted instruction.
    pub fn exact(mode: u16, ip: u64) -> ChainAddress {
        ChainAddress { mode, ip, returns: false }
    }

    /// Address in the instruction that is executed.
    pub fn code(self) -> CodeAddress {
        if self.returns { CodeAddress::of_return(self.ip) } else { CodeAddress::exact(self.ip) }
    }
}

/// A word of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A frame.
    Frame(ChainAddress),
    /// Unknown marker.
    Unknown,
}

/// Lookup of the entry code of the recorded kernel.
pub trait Entries {
    /// Whether an interrupt or exception enters the kernel by the code at `addr`.
    fn is_entry(&self, addr: u64) -> bool;
    /// Whether `addr` lies in the padding before a function, where no call is.
    fn is_padding(&self, addr: u64) -> bool;
}

/// Functions with padding before them begin at multiples of this.
const ALIGNED: u64 = 16;

impl Entries for Option<Arc<KernelTable>> {
    fn is_entry(&self, addr: u64) -> bool {
        self.as_ref().is_some_and(|k| k.is_entry(addr))
    }

    fn is_padding(&self, addr: u64) -> bool {
        self.as_ref().is_some_and(|k| k.is_padding(addr))
    }
}

/// The frames of a chain, innermost first, beginning in `mode`.
pub fn walk<'a>(
    chain: impl Iterator<Item = u64> + 'a,
    mode: u16,
    origin: Origin,
    entries: &'a impl Entries,
) -> impl Iterator<Item = Step> + 'a {
    let mut mode = mode;
    let mut interrupted = true;
    chain.filter_map(move |word| {
        if word < CALLCHAIN_CONTEXT_MIN {
            // 0 is not a return address: it ends chains of programs without frame pointers.
            let returns = origin == Origin::Recorded && !interrupted && word > 0;
            // A thunk of an indirect call that is about to go there has it on the stack.
            let begins = returns
                && mode == Misc::KERNEL
                && word.is_multiple_of(ALIGNED)
                && entries.is_padding(CodeAddress::of_return(word).get());
            let returns = returns && !begins;
            let place = ChainAddress { mode, ip: word, returns };
            // Such code was not called.
            interrupted = mode == Misc::KERNEL
                && origin == Origin::Recorded
                && entries.is_entry(place.code().get());
            return Some(Step::Frame(place));
        }
        interrupted = true;
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

/// For each place in a binary that a signal handler may have returned to, given as the instruction
/// before it: whether it is a trampoline.
pub fn returns_of_signals(symbols: &Resolver, dso: DsoId, before: &[BinaryAddress]) -> Vec<bool> {
    let returned_to: Vec<u64> = before.iter().map(|a| a.return_address().get()).collect();
    symbols.trampolines(dso, &returned_to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel whose code between two addresses interrupts enter by.
    struct At(u64, u64);

    impl Entries for At {
        fn is_entry(&self, addr: u64) -> bool {
            (self.0..self.1).contains(&addr)
        }

        fn is_padding(&self, addr: u64) -> bool {
            addr == 0x8fff
        }
    }

    #[test]
    fn what_an_interrupt_came_upon_is_no_caller() {
        let (kernel, user) = (ChainContext::KERNEL.0, ChainContext::USER.0);
        // A handler, the entry of the interrupt up to its last byte, what it interrupted,
        // its caller; in a program such an address means nothing.
        let chain = [kernel, 0x1000, 0x2010, 0x3000, 0x4000, user, 0x2010, 0x2010, 0x5000];
        let code = |origin| -> Vec<u64> {
            let steps = walk(chain.into_iter(), Misc::USER, origin, &At(0x2000, 0x2010));
            let code = |s| match s {
                Step::Frame(p) => p.code().get(),
                Step::Unknown => 0,
            };
            steps.map(code).collect()
        };
        let expected = [0x1000, 0x200f, 0x3000, 0x3fff, 0x2010, 0x200f, 0x4fff];
        assert_eq!(code(Origin::Recorded), expected);
        assert_eq!(code(Origin::Unwound), [0x1000, 0x2010, 0x3000, 0x4000, 0x2010, 0x2010, 0x5000]);
        // A thunk is about to go to a function: the padding before it contains no call.
        let chain = [kernel, 0x1000, 0x9000, 0x4000];
        let steps = walk(chain.into_iter(), Misc::USER, Origin::Recorded, &At(0, 0));
        let at = |ip, returns| Step::Frame(ChainAddress { mode: Misc::KERNEL, ip, returns });
        let expected = [at(0x1000, false), at(0x9000, false), at(0x4000, true)];
        assert_eq!(steps.collect::<Vec<_>>(), expected);
        // A processor may have stood in the entry itself.
        let chain = [kernel, 0x2008, 0x3000];
        let steps = walk(chain.into_iter(), Misc::USER, Origin::Recorded, &At(0x2000, 0x2010));
        assert_eq!(steps.last(), Some(Step::Frame(ChainAddress::exact(Misc::KERNEL, 0x3000))));
    }

    #[test]
    fn only_callers_that_were_recorded_hold_return_addresses() {
        let (kernel, user) = (ChainContext::KERNEL.0, ChainContext::USER.0);
        let chain = [kernel, 0xffff_1000, 0xffff_2000, user, 0x10, 0x20, 0];
        let code = |origin| {
            let steps = walk(chain.into_iter(), Misc::USER, origin, &At(0, 0));
            let place = |s| match s {
                Step::Frame(p) => Some((p.mode == Misc::KERNEL, p.code().get())),
                Step::Unknown => None,
            };
            steps.map(place).collect::<Option<Vec<_>>>()
        };
        let expected =
            [(true, 0xffff_1000), (true, 0xffff_1fff), (false, 0x10), (false, 0x1f), (false, 0)];
        assert_eq!(code(Origin::Recorded).as_deref(), Some(&expected[..]));
        let unwound: Vec<u64> = code(Origin::Unwound).unwrap().iter().map(|c| c.1).collect();
        assert_eq!(unwound, [0xffff_1000, 0xffff_2000, 0x10, 0x20, 0]);
        let odd = [ChainContext::KERNEL.0 - 1, 5].into_iter();
        let odd = walk(odd, Misc::USER, Origin::Recorded, &At(0, 0));
        assert_eq!(
            odd.collect::<Vec<_>>(),
            [Step::Unknown, Step::Frame(ChainAddress::exact(0, 5))]
        );
    }
}

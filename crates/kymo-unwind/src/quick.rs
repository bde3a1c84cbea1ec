//! Most functions are left with two registers: the frame begins at an offset from the
//! stack pointer or the frame pointer, and the caller's frame pointer is saved or
//! unchanged. Rules of that kind fit in a few bytes, and following them needs no
//! other register. [`quick_walk`] follows them, and says when a stack has a frame of
//! another kind: [`walk`](crate::walk), which knows all registers, then goes over it
//! from the start. Where both can go they answer the same.

use crate::Arch;
use crate::quick_rule::{Quick, QuickRule, RETURN};
use crate::registers::Registers;
use crate::stack::{Failed, StackWindow, load};
use crate::walk::{Code, Frame, Left, Walked, follow};

impl Quick {
    fn leave(self, here: &Two, stack: &StackWindow<'_>) -> Option<Left<Two>> {
        let left = |caller| Some(Left { caller, signal: false, guess: false });
        let (from, saved) = match self.kind {
            QuickRule::Sp => (Some(here.sp), false),
            QuickRule::SpSaved => (Some(here.sp), true),
            QuickRule::Fp => (here.fp, false),
            QuickRule::FpSaved => (here.fp, true),
            QuickRule::Outermost => return left(Ok(None)),
            QuickRule::Guess => return Some(Left::guessed(here, stack)),
            QuickRule::Nothing | QuickRule::Other => return None,
        };
        let Some(from) = from else { return left(Err(Failed::Unknown)) };
        let sp = from.wrapping_add_signed(i64::from(self.cfa));
        let ip = match load(stack, sp.wrapping_add_signed(RETURN)) {
            Ok(ip) => ip,
            Err(why) => return left(Err(why)),
        };
        let mut fp = here.fp;
        if saved {
            fp = match load(stack, sp.wrapping_add_signed(i64::from(self.fp))) {
                Ok(fp) => Some(fp),
                // What is below the stack pointer was taken back already.
                Err(Failed::Missing(place)) if place < stack.start() => fp,
                Err(_) => None,
            };
        }
        left(Ok(Some(Two { ip, sp, fp })))
    }
}

/// The registers that quick rules need.
#[derive(Clone, Copy, Debug)]
struct Two {
    ip: u64,
    sp: u64,
    fp: Option<u64>,
}

impl Frame for Two {
    fn ip(&self) -> Option<u64> {
        Some(self.ip)
    }

    fn sp(&self) -> Option<u64> {
        Some(self.sp)
    }

    fn fp(&self) -> Option<u64> {
        self.fp
    }

    fn by_frame_pointer(&self, ip: u64, sp: u64, fp: u64) -> Two {
        Two { ip, sp, fp: Some(fp) }
    }
}

/// As [`walk`](crate::walk); `None` where that is needed, after some frames.
pub fn quick_walk(
    start: &Registers,
    stack: &StackWindow<'_>,
    code: &mut impl Code,
    frame: impl FnMut(u64),
) -> Option<Walked> {
    if start.arch() != Arch::X86_64 {
        return None;
    }
    let start = Two { ip: start.ip()?, sp: start.sp()?, fp: start.fp() };
    let mut other = false;
    let leave = |code: &mut _, here: &Two, place, interrupted| {
        let rule = Code::quick(code, place, interrupted);
        other = rule.kind == QuickRule::Other;
        rule.leave(here, stack)
    };
    let walked = follow(start, stack, code, leave, |code, ip| code.is_code(ip), frame);
    (!other).then_some(walked)
}

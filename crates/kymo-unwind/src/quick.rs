//! Most functions are left with two registers: the frame begins at an offset from the
//! stack pointer or the frame pointer, and the caller's frame pointer is saved or
//! unchanged. Rules of that kind fit in a few bytes, and following them needs no
//! other register. [`quick_walk`] follows them, and says when a stack has a frame of
//! another kind: [`walk`](crate::walk), which knows all registers, then goes over it
//! from the start. Where both can go they answer the same.

use crate::Arch;
use crate::registers::Registers;
use crate::rule::{Cfa, Failed, Row, Rule, Saved, load};
use crate::stack::Stack;
use crate::walk::{Code, Frame, Left, Walked, follow};

/// A rule in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quick {
    /// Where the frame begins, from the register on.
    cfa: i32,
    /// Where the caller's frame pointer is, from the frame's begin on.
    fp: i32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// From the stack pointer on; the frame pointer is unchanged.
    Sp,
    /// The same with a saved frame pointer.
    SpSaved,
    /// From the frame pointer on, which is unchanged.
    Fp,
    /// The same, saved.
    FpSaved,
    /// Nobody called.
    Outermost,
    Guess,
    Nothing,
    /// Takes more than that.
    Other,
}

/// The return address lies right below the caller's frame.
const RETURN: i64 = -8;

impl Quick {
    /// There is no code.
    pub const NOTHING: Quick = Quick { cfa: 0, fp: 0, kind: Kind::Nothing };

    /// Nothing says how: by the frame pointer.
    pub const GUESS: Quick = Quick { kind: Kind::Guess, ..Quick::NOTHING };

    /// Of a rule.
    pub fn of(rule: &Rule) -> Quick {
        let other = Quick { kind: Kind::Other, ..Quick::NOTHING };
        match rule {
            Rule::Guess => Quick::GUESS,
            Rule::Nothing => Quick::NOTHING,
            Rule::Row(row) => Quick::of_row(row).unwrap_or(other),
        }
    }

    fn of_row(row: &Row) -> Option<Quick> {
        const ARCH: Arch = Arch::X86_64;
        let rule = |register| row.saved.iter().find(|(r, _)| *r == register).map(|(_, s)| s);
        if row.signal || row.return_address != ARCH.ip() || rule(ARCH.sp()).is_some() {
            return None;
        }
        let Cfa::Register(from, cfa) = row.cfa else { return None };
        let by_fp = from == ARCH.fp();
        if !by_fp && from != ARCH.sp() {
            return None;
        }
        let cfa = i32::try_from(cfa).ok()?;
        match rule(ARCH.ip()) {
            Some(Saved::At(RETURN)) => {}
            // A frame pointer that is not known must be told from one that is.
            Some(Saved::Undefined) if !by_fp => {
                return Some(Quick { cfa, fp: 0, kind: Kind::Outermost });
            }
            _ => return None,
        }
        let (fp, kind) = match (rule(ARCH.fp()), by_fp) {
            (None, false) => (0, Kind::Sp),
            (None, true) => (0, Kind::Fp),
            (Some(Saved::At(fp)), false) => (i32::try_from(*fp).ok()?, Kind::SpSaved),
            (Some(Saved::At(fp)), true) => (i32::try_from(*fp).ok()?, Kind::FpSaved),
            _ => return None,
        };
        Some(Quick { cfa, fp, kind })
    }

    fn leave(self, here: &Two, stack: &Stack<'_>) -> Option<Left<Two>> {
        let left = |caller| Some(Left { caller, signal: false, guess: false });
        let (from, saved) = match self.kind {
            Kind::Sp => (Some(here.sp), false),
            Kind::SpSaved => (Some(here.sp), true),
            Kind::Fp => (here.fp, false),
            Kind::FpSaved => (here.fp, true),
            Kind::Outermost => return left(Ok(None)),
            Kind::Guess => return Some(Left::guessed(here, stack)),
            Kind::Nothing | Kind::Other => return None,
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
    stack: &Stack<'_>,
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
        other = rule.kind == Kind::Other;
        rule.leave(here, stack)
    };
    let walked = follow(start, stack, code, leave, |code, ip| code.is_code(ip), frame);
    (!other).then_some(walked)
}

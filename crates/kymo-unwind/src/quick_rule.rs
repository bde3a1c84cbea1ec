//! Rules of unwinding that two registers suffice for, in a few bytes.

use crate::Arch;
use crate::rule::{Cfa, Row, Rule, Saved};

/// A rule in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quick {
    /// Offset of the frame's start from the register.
    pub(crate) cfa: i32,
    /// Offset of the caller's frame pointer from the frame's start.
    pub(crate) fp: i32,
    pub(crate) kind: QuickRule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuickRule {
    /// From the stack pointer on; the frame pointer is unchanged.
    Sp,
    /// From the stack pointer on; the frame pointer is saved.
    SpSaved,
    /// From the frame pointer on, which is unchanged.
    Fp,
    /// From the frame pointer on, which is saved.
    FpSaved,
    /// Outermost frame, without a caller.
    Outermost,
    Guess,
    Nothing,
    /// Takes more than that.
    Other,
}

/// The return address lies right below the caller's frame.
pub(crate) const RETURN: i64 = -8;

impl Quick {
    /// There is no code.
    pub const NOTHING: Quick = Quick { cfa: 0, fp: 0, kind: QuickRule::Nothing };

    /// Nothing says how: by the frame pointer.
    pub const GUESS: Quick = Quick { kind: QuickRule::Guess, ..Quick::NOTHING };

    /// Quick form of a rule.
    pub fn of(rule: &Rule) -> Quick {
        let other = Quick { kind: QuickRule::Other, ..Quick::NOTHING };
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
            // A frame pointer that is not known must be distinguished from one that is.
            Some(Saved::Undefined) if !by_fp => {
                return Some(Quick { cfa, fp: 0, kind: QuickRule::Outermost });
            }
            _ => return None,
        }
        let (fp, kind) = match (rule(ARCH.fp()), by_fp) {
            (None, false) => (0, QuickRule::Sp),
            (None, true) => (0, QuickRule::Fp),
            (Some(Saved::At(fp)), false) => (i32::try_from(*fp).ok()?, QuickRule::SpSaved),
            (Some(Saved::At(fp)), true) => (i32::try_from(*fp).ok()?, QuickRule::FpSaved),
            _ => return None,
        };
        Some(Quick { cfa, fp, kind })
    }
}

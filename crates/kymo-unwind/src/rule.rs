//! Unwind rules: how to leave a function at one of its addresses.

use gimli::{CfaRule, EndianSlice, RegisterRule, RunTimeEndian, UnwindSection, UnwindTableRow};

use crate::Arch;
use crate::expression;
use crate::registers::Registers;
use crate::stack::{Failed, StackWindow, load};

/// Why there is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Nothing covers the address.
    #[error("no call frame information for {0:#x}")]
    None(u64),
    /// Call frame information that covers the address is damaged.
    #[error("damaged call frame information: {0}")]
    Damaged(#[from] gimli::Error),
}

/// Rule that leads from a frame to that of its caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// As the call frame information says.
    Row(Row),
    /// Nothing says it: if the frame pointer points into the stack, it is
    /// believed.
    Guess,
    /// There is no code.
    Nothing,
}

/// A row of the call frame information.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Start of the frame.
    pub cfa: Cfa,
    /// Registers of the caller that are not what they are here.
    pub saved: Box<[(u16, Saved)]>,
    /// Which of them is the return address.
    pub return_address: u16,
    /// The frame was made by a signal: its caller was not calling.
    pub signal: bool,
}

/// The canonical frame address: the caller's stack pointer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// A register plus an offset.
    Register(u16, i64),
    /// A DWARF expression.
    Expression(Box<[u8]>),
}

/// Location of the caller's value of a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Saved {
    /// Nowhere. Of a return address: there is no caller.
    Undefined,
    /// In memory, at an offset from the frame address.
    At(i64),
    /// The frame address plus this.
    Value(i64),
    /// In another register.
    Register(u16),
    /// In memory where an expression says.
    AtExpression(Box<[u8]>),
    /// DWARF expression.
    Expression(Box<[u8]>),
}

/// Rule of an outermost function, which was not called.
pub fn outermost(arch: Arch) -> Rule {
    let return_address = match arch {
        Arch::X86_64 => arch.ip(),
        Arch::Aarch64 => 30,
    };
    let saved = [(return_address, Saved::Undefined)].into();
    Rule::Row(Row { cfa: Cfa::Register(arch.sp(), 0), saved, return_address, signal: false })
}

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

impl Row {
    /// Copies what is needed of a row of a machine with `count` registers.
    pub(crate) fn of<'a, S: UnwindSection<Slice<'a>>>(
        row: &UnwindTableRow<usize>,
        section: &S,
        count: u16,
        return_address: u16,
        signal: bool,
    ) -> Result<Row, RuleError> {
        let bytes = |e: &gimli::UnwindExpression<usize>| -> Result<Box<[u8]>, RuleError> {
            Ok(e.get(section)?.0.slice().into())
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
            CfaRule::Expression(e) => Cfa::Expression(bytes(e)?),
        };
        let mut saved = Vec::new();
        for (register, rule) in row.registers() {
            if register.0 >= count {
                continue;
            }
            let rule = match rule {
                RegisterRule::Undefined => Saved::Undefined,
                RegisterRule::Offset(n) => Saved::At(*n),
                RegisterRule::ValOffset(n) => Saved::Value(*n),
                RegisterRule::Register(r) => Saved::Register(r.0),
                RegisterRule::Expression(e) => Saved::AtExpression(bytes(e)?),
                RegisterRule::ValExpression(e) => Saved::Expression(bytes(e)?),
                // As it is, or of a register that is none.
                _ => continue,
            };
            saved.push((register.0, rule));
        }
        Ok(Row { cfa, saved: saved.into(), return_address, signal })
    }

    /// The registers of the caller.
    pub(crate) fn leave(
        &self,
        here: &Registers,
        stack: &StackWindow<'_>,
    ) -> Result<Option<Registers>, Failed> {
        let arch = here.arch();
        let cfa = match &self.cfa {
            Cfa::Register(r, offset) => {
                here.get(*r).ok_or(Failed::Unknown)?.wrapping_add_signed(*offset)
            }
            Cfa::Expression(e) => expression::value(e, None, here, stack)?,
        };
        let mut caller = *here;
        caller.set(arch.sp(), cfa);
        let mut address = None;
        for (register, saved) in &self.saved {
            let is_address = *register == self.return_address;
            let value = match saved {
                Saved::Undefined if is_address => return Ok(None),
                Saved::Undefined => Err(Failed::Unknown),
                Saved::At(n) => load(stack, cfa.wrapping_add_signed(*n)),
                Saved::Value(n) => Ok(cfa.wrapping_add_signed(*n)),
                Saved::Register(r) => here.get(*r).ok_or(Failed::Unknown),
                Saved::AtExpression(e) => expression::value(e, Some(cfa), here, stack)
                    .and_then(|place| load(stack, place)),
                Saved::Expression(e) => expression::value(e, Some(cfa), here, stack),
            };
            match value {
                Ok(value) => caller.set(*register, value),
                Err(why) if is_address => return Err(why),
                // What is below the stack pointer was taken back already.
                Err(Failed::Missing(place)) if place < stack.start() => {}
                Err(_) => caller.forget(*register),
            }
            if is_address {
                address = caller.get(*register);
            }
        }
        // A leaf of a machine whose calls store nothing has no rule for it.
        let address = address.or_else(|| here.get(self.return_address)).ok_or(Failed::Unknown)?;
        caller.set(arch.ip(), arch.strip(address));
        Ok(Some(caller))
    }
}

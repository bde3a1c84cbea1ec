//! Functions that are about to return, by their instructions.
//!
//! Compilers may describe only those places of a function where it can throw or
//! call (LLVM's synchronous tables, which Rust's own libraries are built with):
//! when the registers were restored already, the call frame information still
//! says where they were, and a caller is lost. What is left to do in such a
//! place is plain: pop registers, and return or jump into another function.

use crate::rule::{Cfa, Row, Rule, Saved};

const RBP: u16 = 6;
const RETURN_ADDRESS: u16 = 16;
/// Bytes before the place that [`epilogue`] looks at.
pub const BEFORE: usize = 2;
/// Bytes from the place on that are enough: six registers and a jump.
pub const BEHIND: usize = 18;

/// The rule of an x86-64 function that is about to return. `before` are the
/// [`BEFORE`] bytes before the place, `behind` those from there on. Of callers
/// this is not to be asked: they have their calls still to come back from.
pub fn epilogue(before: &[u8], behind: &[u8]) -> Option<Rule> {
    let mut rest = behind;
    let mut popped: Vec<u16> = Vec::new();
    while let Some((register, behind)) = pop(rest) {
        popped.push(register);
        rest = behind;
    }
    let leaves = match rest {
        [0xc3, ..] | [0xf3, 0xc3, ..] | [0xc2, _, _, ..] => true,
        // A jump may as well be one inside of the function, unless registers of
        // the caller were restored right before.
        [0xe9, _, _, _, _, ..] | [0xff, 0xe0..=0xe7, ..] | [0x41, 0xff, 0xe0..=0xe7, ..] => {
            !popped.is_empty() || pops(before)
        }
        _ => false,
    };
    if !leaves {
        return None;
    }
    let size = 8 * (popped.len() as i64 + 1);
    let places = popped.iter().zip(0i64..).map(|(r, n)| (*r, Saved::At(8 * n - size)));
    let saved = places.chain([(RETURN_ADDRESS, Saved::At(-8))]).collect();
    let cfa = Cfa::Register(7, size);
    Some(Rule::Row(Row { cfa, saved, return_address: RETURN_ADDRESS, signal: false }))
}

/// A pop of a register that belongs to the caller, and what follows.
fn pop(code: &[u8]) -> Option<(u16, &[u8])> {
    match code {
        [0x5b, rest @ ..] => Some((3, rest)),
        [0x5d, rest @ ..] => Some((RBP, rest)),
        [0x41, n @ 0x5c..=0x5f, rest @ ..] => Some((u16::from(*n - 0x58) + 8, rest)),
        _ => None,
    }
}

/// Whether the last instruction was such a pop.
fn pops(before: &[u8]) -> bool {
    matches!(before, [.., 0x5b | 0x5d] | [.., 0x41, 0x5c..=0x5f])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(before: &[u8], behind: &[u8]) -> Option<(i64, Vec<(u16, i64)>)> {
        let Rule::Row(row) = epilogue(before, behind)? else { return None };
        let Cfa::Register(7, size) = row.cfa else { return None };
        let place = |(r, s): &(u16, Saved)| match s {
            Saved::At(n) => (*r, *n),
            other => panic!("{other:?}"),
        };
        Some((size, row.saved.iter().map(place).collect()))
    }

    #[test]
    fn what_is_left_to_pop_is_where_the_stack_pointer_is() {
        let none = [0x90, 0x90];
        // ret
        assert_eq!(frame(&none, &[0xc3, 0xcc]), Some((8, vec![(16, -8)])));
        // pop %r12; pop %rbp; ret
        let rest = [0x41, 0x5c, 0x5d, 0xc3];
        assert_eq!(frame(&none, &rest), Some((24, vec![(12, -24), (6, -16), (16, -8)])));
        // jmp *%rax, which is a jump inside of the function or one out of it
        assert_eq!(frame(&none, &[0xff, 0xe0]), None);
        assert_eq!(frame(&[0x41, 0x5d], &[0xff, 0xe0]), Some((8, vec![(16, -8)])));
        // pop %rbx; jmp f
        let rest = [0x5b, 0xe9, 1, 2, 3, 4];
        assert_eq!(frame(&none, &rest), Some((16, vec![(3, -16), (16, -8)])));
        // pop %rdi; ret, and bytes that end too soon
        for rest in [&[0x5f, 0xc3][..], &[0x5b, 0xe9, 1], &[0x5d], &[]] {
            assert_eq!(frame(&none, rest), None);
        }
    }
}

//! Ends of walks: each reason by a stack and rules made for it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kymo_model::Endian;
use kymo_unwind::{
    Arch, Cfa, Code, End, Registers, Row, Rule, Saved, StackWindow, Walked, quick_walk, walk,
};

const SP: u16 = 7;
const FP: u16 = 6;
const RA: u16 = 16;
/// Start address of the copied stack.
const STACK: u64 = 0x7ffe_0000_0000;

/// Rules by address, in pages of the code.
struct Program(Vec<Rule>);

impl Code for Program {
    fn rule(&mut self, address: u64, _interrupted: bool) -> &Rule {
        let page = (address >> 12).checked_sub(1).and_then(|n| usize::try_from(n).ok());
        page.and_then(|n| self.0.get(n)).unwrap_or(&Rule::Nothing)
    }

    fn is_code(&mut self, address: u64) -> bool {
        *self.rule(address, false) != Rule::Nothing
    }
}

fn row(cfa: Cfa, saved: &[(u16, Saved)], signal: bool) -> Rule {
    Rule::Row(Row { cfa, saved: saved.into(), return_address: RA, signal })
}

/// A function with a frame of that size, the return address included.
fn frame(size: i64) -> Rule {
    row(Cfa::Register(SP, size), &[(RA, Saved::At(-8))], false)
}

fn outermost() -> Rule {
    row(Cfa::Register(SP, 8), &[(RA, Saved::Undefined)], false)
}

/// An address in the code of rule number `n`, not its first.
fn at(n: u64) -> u64 {
    ((n + 1) << 12) + 0x10
}

fn walked(rules: Vec<Rule>, stack: &[u64], fp: u64) -> (Walked, Vec<u64>) {
    let bytes: Vec<u8> = stack.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut registers = Registers::new(Arch::X86_64);
    [(SP, STACK), (FP, fp), (RA, at(0))].iter().for_each(|(r, v)| registers.set(*r, *v));
    let mut frames = Vec::new();
    let stack = StackWindow::new(STACK, &bytes, Endian::Little);
    let mut program = Program(rules);
    let walked = walk(&registers, &stack, &mut program, |a| frames.push(a));
    assert_eq!(walked.frames, frames.len());
    let mut quickly = Vec::new();
    let quick = quick_walk(&registers, &stack, &mut program, |a| quickly.push(a));
    assert!(quick.is_none_or(|quick| (quick, quickly) == (walked, frames.clone())), "{quick:?}");
    (walked, frames)
}

#[test]
fn up_to_the_outermost_frame() {
    let stack = [0, at(1), 0, 0, at(2), 99];
    let (walked, frames) = walked(vec![frame(16), frame(24), outermost()], &stack, 0);
    assert_eq!((walked.end, walked.guessed), (End::Outermost, 0));
    // The outermost frame begins where its caller's stack pointer would be.
    assert_eq!(walked.top, Some(STACK + 40));
    assert_eq!(frames, [at(0), at(1) - 1, at(2) - 1]);
    // A return address of 0 says the same.
    let (walked, frames) = self::walked(vec![frame(16), frame(24)], &[0, at(1), 0, 0, 0], 0);
    assert_eq!((walked.end, frames.len()), (End::Outermost, 2));
}

#[test]
fn most_rules_are_quick_and_others_are_left_to_the_walk() {
    let mut registers = Registers::new(Arch::X86_64);
    [(SP, STACK), (RA, at(0))].iter().for_each(|(r, v)| registers.set(*r, *v));
    let words = [at(1), STACK + 24, at(2), 0, at(3), 0];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let stack = StackWindow::new(STACK, &bytes, Endian::Little);
    let saves = [(3, Saved::At(-24)), (FP, Saved::At(-16)), (RA, Saved::At(-8))];
    let by_fp = row(Cfa::Register(FP, 16), &[(FP, Saved::At(-16)), (RA, Saved::At(-8))], false);
    let rules = vec![frame(8), row(Cfa::Register(SP, 16), &saves, false), by_fp, outermost()];
    let mut frames = Vec::new();
    let quick =
        quick_walk(&registers, &stack, &mut Program(rules.clone()), |a| frames.push(a)).unwrap();
    assert_eq!((quick.end, quick.frames, quick.top), (End::Outermost, 4, Some(STACK + 40)));
    assert_eq!(frames, [at(0), at(1) - 1, at(2) - 1, at(3) - 1]);
    for other in [
        row(Cfa::Register(10, 16), &[(RA, Saved::At(-8))], false),
        row(Cfa::Expression([0x77, 8][..].into()), &[(RA, Saved::At(-8))], false),
        row(Cfa::Register(SP, 16), &[(RA, Saved::At(-8))], true),
        row(Cfa::Register(SP, 16), &[(RA, Saved::At(-16))], false),
        row(Cfa::Register(SP, 16), &[(SP, Saved::At(-16)), (RA, Saved::At(-8))], false),
        row(Cfa::Register(SP, 16), &[(FP, Saved::Register(3)), (RA, Saved::At(-8))], false),
        row(Cfa::Register(SP, 1 << 40), &[(RA, Saved::At(-8))], false),
    ] {
        let mut rules = rules.clone();
        rules[2] = other;
        let quick = quick_walk(&registers, &stack, &mut Program(rules.clone()), |_| {});
        assert_eq!(quick, None, "{:?}", rules[2]);
    }
}

#[test]
fn beyond_the_copy() {
    let (walked, frames) = walked(vec![frame(16), frame(4096)], &[0, at(1), 0, 0], 0);
    assert_eq!((walked.end, frames.len()), (End::Cut, 2));
    let (walked, _) = self::walked(vec![frame(8)], &[], 0);
    assert_eq!(walked.end, End::Cut);
}

#[test]
fn where_there_is_no_code_or_no_rule() {
    let (walked, frames) = walked(vec![frame(8)], &[0xdead_0000_0000], 0);
    assert_eq!(walked.end, End::NoCode(0xdead_0000_0000 - 1));
    assert_eq!(frames.len(), 2);
    // The frame pointer leads on, twice; the second return address is none.
    let stack = [7, STACK + 24, at(1), STACK + 48, at(2), 7, 5, 6];
    let rules = || vec![Rule::Guess, Rule::Guess, Rule::Guess];
    let (walked, frames) = self::walked(rules(), &stack, STACK + 8);
    assert_eq!((walked.end, walked.guessed), (End::NoRule(at(2) - 1), 3));
    assert_eq!(frames, [at(0), at(1) - 1, at(2) - 1]);
    // One that leads nowhere adds no frame.
    for fp in [0, 5, STACK + 4, STACK - 8, STACK + 4096, u64::MAX] {
        let (walked, frames) = self::walked(rules(), &stack, fp);
        assert_eq!((walked.end, frames.len()), (End::NoRule(at(0)), 1), "{fp:#x}");
    }
}

#[test]
fn what_would_not_end() {
    // A frame of no size, and one that shrinks the stack.
    for size in [0, -8, -4096, i64::MIN] {
        let cfa = Cfa::Register(SP, size);
        // Its return address is in a register that says it is the same function.
        let rules = vec![frame(8), row(cfa, &[(RA, Saved::Register(FP))], false)];
        let (walked, _) = walked(rules, &[at(1), 0, 0], at(1));
        assert!(matches!(walked.end, End::Wrong(_) | End::OtherStack), "{size}: {walked:?}");
        assert!(walked.frames < 5, "{size}: {walked:?}");
    }
    // Frames of 8 bytes as far as the largest copy goes.
    let deep = vec![at(0); 1 << 14];
    let (walked, _) = walked(vec![frame(8)], &deep, 0);
    assert_eq!((walked.end, walked.frames), (End::TooDeep, 4096));
}

#[test]
fn through_a_signal_onto_an_alternate_stack() {
    let (away, below) = (0x5555_0000_0000, STACK + 64);
    for (sp, end, top) in [(below, End::Outermost, Some(below + 8)), (away, End::OtherStack, None)]
    {
        // The context that the kernel saved: stack pointer, instruction pointer.
        let saved = [(SP, Saved::At(0)), (RA, Saved::At(8))];
        let signal = row(Cfa::Register(SP, 0), &saved, true);
        let rules = vec![frame(8), signal, frame(8), outermost()];
        let stack = [at(1), sp, at(2), 0, 0, 0, 0, 0, at(3), 0];
        let (walked, frames) = walked(rules, &stack, 0);
        assert_eq!((walked.end, walked.top), (end, top));
        // What was interrupted was not calling; the trampoline was not called.
        assert_eq!(frames[..3], [at(0), at(1), at(2)]);
    }
}

#[test]
fn registers_that_are_not_known() {
    let cfa = |r| row(Cfa::Register(r, 16), &[(RA, Saved::At(-8))], false);
    let (walked, _) = walked(vec![cfa(9)], &[0; 4], 0);
    assert_eq!(walked.end, End::Wrong(at(0)));
    let expression = Cfa::Expression([0x2f, 0xfd, 0xff].into());
    let (walked, _) = self::walked(vec![row(expression, &[], false)], &[0; 4], 0);
    assert_eq!(walked.end, End::Wrong(at(0)), "an endless expression");
    let none = Registers::new(Arch::X86_64);
    let stack = StackWindow::new(0, &[], Endian::Little);
    let walked = walk(&none, &stack, &mut Program(vec![]), |_| panic!("a frame"));
    assert_eq!(walked.end, End::NoRegisters);
}

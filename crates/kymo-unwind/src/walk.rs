//! From the innermost frame outwards.

use crate::registers::Registers;
use crate::rule::{Failed, Rule, load};
use crate::stack::Stack;

/// The program's code, asked for rules.
pub trait Code {
    /// How to leave the function at an address. That of a caller is the last
    /// byte of its call, as the return address may be in another function.
    fn rule(&mut self, address: u64) -> &Rule;

    /// Whether there is code at an address.
    fn is_code(&mut self, address: u64) -> bool;
}

/// Why there are no more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The last frame has no caller: the stack is complete.
    Outermost,
    /// The caller's part of the stack was not copied.
    Cut,
    /// The stack goes on at another place, of which nothing was copied: a
    /// signal's own stack, a coroutine, a stack that grew in pieces.
    OtherStack,
    /// Nothing says how to leave the code at this address.
    NoRule(u64),
    /// A return address that is none: there is no code.
    NoCode(u64),
    /// The call frame information at this address leads nowhere.
    Wrong(u64),
    /// Too many frames for what is left of the room.
    TooDeep,
    /// The sample has no registers to begin with.
    NoRegisters,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Why it ended.
    pub end: End,
    /// Frames, the innermost included.
    pub frames: usize,
    /// Frames that were left by the frame pointer because nothing said how.
    pub guessed: usize,
    /// Of a complete stack: where its outermost frame begins.
    pub top: Option<u64>,
}

/// Frames of at least 16 bytes in the largest copy that the kernel makes.
const MOST_FRAMES: usize = 4096;
/// A signal's frame holds the processor's state, which may be so large.
const SIGNAL_FRAME: u64 = 64 << 10;
/// No thread has more stack.
const LARGEST_STACK: u64 = 1 << 30;

/// Calls `frame` with the address of each frame, innermost first; those of
/// callers are one less than the return address. Answers how it ended.
pub fn walk(
    start: &Registers,
    stack: &Stack<'_>,
    code: &mut impl Code,
    mut frame: impl FnMut(u64),
) -> Walked {
    let mut walked = Walked { end: End::NoRegisters, frames: 0, guessed: 0, top: None };
    let mut here = *start;
    // Whether the frame was left by a call: not the first one, and not one
    // that a signal interrupted.
    let mut called = false;
    while let (Some(ip), Some(sp)) = (here.ip(), here.sp()) {
        let address = if called { ip.wrapping_sub(1) } else { ip };
        if walked.frames >= MOST_FRAMES {
            walked.end = End::TooDeep;
            break;
        }
        frame(address);
        walked.frames += 1;
        let (next, signal) = match code.rule(address) {
            Rule::Row(row) => (row.leave(&here, stack), row.signal),
            Rule::Guess => {
                walked.guessed += 1;
                (by_frame_pointer(&here, stack), false)
            }
            Rule::Nothing => {
                walked.end = End::NoCode(address);
                break;
            }
        };
        let guessed = matches!(code.rule(address), Rule::Guess);
        here = match next {
            Ok(Some(caller)) if caller.ip() != Some(0) => caller,
            Ok(_) => {
                walked.end = End::Outermost;
                walked.top = Some(sp);
                break;
            }
            Err(why) => {
                walked.end = failed(why, guessed, address, sp, stack);
                break;
            }
        };
        if let Some(end) = implausible(&here, sp, stack, signal, called, address) {
            walked.end = end;
            break;
        }
        if guessed && !here.ip().is_some_and(|ip| code.is_code(ip.wrapping_sub(1))) {
            walked.end = End::NoRule(address);
            break;
        }
        called = !signal;
    }
    walked
}

/// The caller by the frame pointer: the place it points to holds that of the
/// caller, and the return address.
fn by_frame_pointer(here: &Registers, stack: &Stack<'_>) -> Result<Option<Registers>, Failed> {
    let (fp, sp) = here.fp().zip(here.sp()).ok_or(Failed::Unknown)?;
    if fp < sp || !fp.is_multiple_of(8) {
        return Err(Failed::Unknown);
    }
    let (outer, address) = (load(stack, fp)?, load(stack, fp.wrapping_add(8))?);
    let arch = here.arch();
    let mut caller = *here;
    caller.set(arch.fp(), outer);
    caller.set(arch.sp(), fp.wrapping_add(16));
    caller.set(arch.ip(), arch.strip(address));
    Ok(Some(caller))
}

fn failed(why: Failed, guessed: bool, address: u64, sp: u64, stack: &Stack<'_>) -> End {
    match why {
        _ if guessed => End::NoRule(address),
        Failed::Missing(place) if place >= stack.end() && place - stack.end() < LARGEST_STACK => {
            End::Cut
        }
        Failed::Missing(_) if sp < stack.start() || sp > stack.end() => End::OtherStack,
        _ => End::Wrong(address),
    }
}

/// Whether going on from a caller's stack pointer would lead nowhere.
fn implausible(
    caller: &Registers,
    sp: u64,
    stack: &Stack<'_>,
    signal: bool,
    called: bool,
    address: u64,
) -> Option<End> {
    let Some(above) = caller.sp() else { return Some(End::Wrong(address)) };
    let copied = (stack.start()..=stack.end()).contains(&above);
    if signal {
        let near = above > sp && above < stack.end().saturating_add(SIGNAL_FRAME);
        return (!copied && !near).then_some(End::OtherStack);
    }
    if !copied && (above < stack.start() || above - stack.end() > LARGEST_STACK) {
        return Some(End::OtherStack);
    }
    // A leaf of a machine whose calls store nothing has no frame.
    let grows = above > sp || (above == sp && !called);
    (!grows).then_some(End::Wrong(address))
}

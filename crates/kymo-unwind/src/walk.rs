//! From the innermost frame outwards.

use crate::quick_rule::Quick;
use crate::registers::Registers;
use crate::rule::Rule;
use crate::stack::{Failed, StackWindow, load};

/// The program's code, asked for rules.
pub trait Code {
    /// Rule to leave the function at an address. That of a caller is the last byte of its call, as
    /// the return address may be in another function. A function that did not call was
    /// `interrupted`: it may be in the middle of returning.
    fn rule(&mut self, address: u64, interrupted: bool) -> &Rule;

    /// Short form of the rule; an implementation that has it ready need not derive it.
    fn quick(&mut self, address: u64, interrupted: bool) -> Quick {
        Quick::of(self.rule(address, interrupted))
    }

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
    /// The stack continues elsewhere, of which nothing was copied: a signal's own stack, a
    /// coroutine, a stack that grew in pieces.
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

/// Result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Why it ended.
    pub end: End,
    /// Frames, the innermost included.
    pub frames: usize,
    /// Frames that were left by the frame pointer because nothing said how.
    pub guessed: usize,
    /// Start of the outermost frame of a complete stack.
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
    stack: &StackWindow<'_>,
    code: &mut impl Code,
    frame: impl FnMut(u64),
) -> Walked {
    let leave = |code: &mut _, here: &Registers, place, interrupted| match Code::rule(
        code,
        place,
        interrupted,
    ) {
        Rule::Row(row) => {
            let caller = row.leave(here, stack);
            Some(Left { caller, signal: row.signal, guess: false })
        }
        Rule::Guess => Some(Left::guessed(here, stack)),
        Rule::Nothing => None,
    };
    follow(*start, stack, code, leave, |code, ip| code.is_code(ip), frame)
}

/// Known registers of a frame.
pub(crate) trait Frame: Copy {
    /// The instruction pointer.
    fn ip(&self) -> Option<u64>;

    /// The stack pointer.
    fn sp(&self) -> Option<u64>;

    /// The frame pointer.
    fn fp(&self) -> Option<u64>;

    /// The frame of a caller that was found by the frame pointer.
    fn by_frame_pointer(&self, ip: u64, sp: u64, fp: u64) -> Self;
}

impl Frame for Registers {
    fn ip(&self) -> Option<u64> {
        Registers::ip(self)
    }

    fn sp(&self) -> Option<u64> {
        Registers::sp(self)
    }

    fn fp(&self) -> Option<u64> {
        Registers::fp(self)
    }

    fn by_frame_pointer(&self, ip: u64, sp: u64, fp: u64) -> Registers {
        let arch = self.arch();
        let mut caller = *self;
        caller.set(arch.fp(), fp);
        caller.set(arch.sp(), sp);
        caller.set(arch.ip(), arch.strip(ip));
        caller
    }
}

/// A frame that was left.
pub(crate) struct Left<F> {
    /// Registers of the caller; `None` for an outermost frame.
    pub(crate) caller: Result<Option<F>, Failed>,
    /// A signal made the frame.
    pub(crate) signal: bool,
    /// By the frame pointer, for want of better.
    pub(crate) guess: bool,
}

impl<F: Frame> Left<F> {
    /// By the frame pointer: the place it points to holds that of the caller, and the
    /// return address.
    pub(crate) fn guessed(here: &F, stack: &StackWindow<'_>) -> Left<F> {
        let caller = || {
            let (fp, sp) = here.fp().zip(here.sp()).ok_or(Failed::Unknown)?;
            if fp < sp || !fp.is_multiple_of(8) {
                return Err(Failed::Unknown);
            }
            let (outer, address) = (load(stack, fp)?, load(stack, fp.wrapping_add(8))?);
            Ok(Some(here.by_frame_pointer(address, fp.wrapping_add(16), outer)))
        };
        Left { caller: caller(), signal: false, guess: true }
    }
}

/// The walk, whatever is known of frames: `leave` leaves one at a place that may have
/// been interrupted, and has no answer where there is no code.
#[inline]
pub(crate) fn follow<F: Frame, C>(
    start: F,
    stack: &StackWindow<'_>,
    code: &mut C,
    mut leave: impl FnMut(&mut C, &F, u64, bool) -> Option<Left<F>>,
    is_code: impl Fn(&mut C, u64) -> bool,
    mut frame: impl FnMut(u64),
) -> Walked {
    let mut walked = Walked { end: End::NoRegisters, frames: 0, guessed: 0, top: None };
    let mut here = start;
    // Whether the frame was left by a call: not the first one, and not one
    // that a signal interrupted.
    let mut called = false;
    // Whether the stack pointer went to where nothing was copied.
    let mut switched = false;
    while let (Some(ip), Some(sp)) = (here.ip(), here.sp()) {
        let place = if called { ip.wrapping_sub(1) } else { ip };
        if walked.frames >= MOST_FRAMES {
            walked.end = End::TooDeep;
            break;
        }
        walked.frames += 1;
        let Some(Left { caller, signal, guess }) = leave(code, &here, place, !called) else {
            frame(place);
            walked.end = End::NoCode(place);
            break;
        };
        walked.guessed += usize::from(guess);
        // A signal returns to the start of a function that was not called.
        frame(if signal { ip } else { place });
        here = match caller {
            Ok(Some(caller)) if caller.ip() != Some(0) => caller,
            Ok(_) => {
                (walked.end, walked.top) = (End::Outermost, Some(sp));
                break;
            }
            Err(_) if guess => {
                walked.end = End::NoRule(place);
                break;
            }
            Err(why) => {
                walked.end = if switched { End::OtherStack } else { failed(why, place, stack) };
                break;
            }
        };
        if guess && !here.ip().is_some_and(|ip| is_code(code, ip.wrapping_sub(1))) {
            walked.end = End::NoRule(place);
            break;
        }
        match step(here.sp().unwrap_or(0), sp, stack, signal, called) {
            Step::Outwards => {}
            Step::Elsewhere if !switched => switched = true,
            Step::Elsewhere => {
                walked.end = End::OtherStack;
                break;
            }
            Step::Nowhere => {
                walked.end = End::Wrong(place);
                break;
            }
        }
        called = !signal;
    }
    walked
}

fn failed(why: Failed, place: u64, stack: &StackWindow<'_>) -> End {
    match why {
        Failed::Missing(at) if at.checked_sub(stack.end()).is_some_and(|d| d < LARGEST_STACK) => {
            End::Cut
        }
        _ => End::Wrong(place),
    }
}

/// Position of the caller's stack pointer relative to the frame's.
enum Step {
    /// Further out on the same stack.
    Outwards,
    /// On another stack, of which nothing was copied.
    Elsewhere,
    /// Impossible position: following it would not end.
    Nowhere,
}

fn step(above: u64, sp: u64, stack: &StackWindow<'_>, signal: bool, called: bool) -> Step {
    let beyond = if signal { SIGNAL_FRAME } else { LARGEST_STACK };
    if above < stack.start() || above.saturating_sub(stack.end()) > beyond {
        return Step::Elsewhere;
    }
    // A leaf of a machine whose calls store nothing has no frame.
    if above > sp || (above == sp && !called) { Step::Outwards } else { Step::Nowhere }
}

//! Types that fields can have, and how their values get into a payload.

use kymo_ust::{FieldTag, Shape};

use crate::site::EnumEntry;

/// A type of fields: `u8` … `i64`, `f32`, `f64`, `bool`, `str`, `[T]`, `[T; N]`,
/// [`Symbol`], and enums made by [`tracepoint_enum!`](crate::tracepoint_enum).
///
/// # Safety
/// `put` writes exactly `exact_size` bytes, which is no more than `size`.
pub unsafe trait FieldType {
    /// Type of the argument in the program.
    type Given<'a>;
    /// Layout in the payload.
    const SHAPE: Shape;
    /// Names of values.
    const ENTRIES: &'static [EnumEntry] = &[];
    /// As an SDT argument: bytes, negative if signed.
    const SDT: i32;

    /// Upper bound of the size in the payload in bytes, quickly computed.
    fn size(given: &Self::Given<'_>) -> usize;

    /// Bytes in the payload.
    fn exact_size(given: &Self::Given<'_>) -> usize {
        Self::size(given)
    }

    /// Writes it, and returns the start of the next field.
    ///
    /// # Safety
    /// `size` bytes can be written at `at`.
    unsafe fn put(given: &Self::Given<'_>, at: *mut u8) -> *mut u8;

    /// As an SDT argument: a number, or where the value lies. `room` is for what has to be copied, as
    /// texts have for the NUL at their end; they are cut to it.
    fn word(given: &Self::Given<'_>, room: &mut &mut [u8]) -> u64;
}

/// An integer or a float, as elements of arrays and sequences.
///
/// # Safety
/// Every bit pattern of the memory of a value is initialised.
pub unsafe trait Element: Copy + FieldType {}

const fn shape(kind: FieldTag, size: usize, flags: u8) -> Shape {
    Shape { kind, size: size as u8, flags, count: 0 }
}

macro_rules! numbers {
    ($($type:ty: $kind:expr, $flags:expr, $sign:expr, $word:expr;)*) => {$(
        // SAFETY: `put` writes the value's bytes, `size` of them.
        unsafe impl FieldType for $type {
            type Given<'a> = $type;
            const SHAPE: Shape = shape($kind, size_of::<$type>(), $flags);
            const SDT: i32 = [size_of::<$type>() as i32, -(size_of::<$type>() as i32)][$sign];

            #[inline(always)]
            fn size(_: &$type) -> usize {
                size_of::<$type>()
            }

            #[inline(always)]
            unsafe fn put(given: &$type, at: *mut u8) -> *mut u8 {
                // SAFETY: the caller's promise.
                unsafe {
                    at.cast::<$type>().write_unaligned(*given);
                    at.add(size_of::<$type>())
                }
            }

            #[inline]
            fn word(given: &$type, _: &mut &mut [u8]) -> u64 {
                let word: fn($type) -> u64 = $word;
                word(*given)
            }
        }

        // SAFETY: a number.
        unsafe impl Element for $type {}
    )*};
}

numbers! {
    u8: FieldTag::Int, 0, 0, |v| v.into();
    u16: FieldTag::Int, 0, 0, |v| v.into();
    u32: FieldTag::Int, 0, 0, |v| v.into();
    u64: FieldTag::Int, 0, 0, |v| v;
    usize: FieldTag::Int, 0, 0, |v| v as u64;
    i8: FieldTag::Int, Shape::SIGNED, 1, |v| v as u64;
    i16: FieldTag::Int, Shape::SIGNED, 1, |v| v as u64;
    i32: FieldTag::Int, Shape::SIGNED, 1, |v| v as u64;
    i64: FieldTag::Int, Shape::SIGNED, 1, |v| v as u64;
    isize: FieldTag::Int, Shape::SIGNED, 1, |v| v as u64;
    f32: FieldTag::Float, 0, 0, |v| v.to_bits().into();
    f64: FieldTag::Float, 0, 0, |v| v.to_bits();
}

// SAFETY: `put` writes one byte.
unsafe impl FieldType for bool {
    type Given<'a> = bool;
    const SHAPE: Shape = shape(FieldTag::Bool, 1, 0);
    const SDT: i32 = 1;

    fn size(_: &bool) -> usize {
        1
    }

    unsafe fn put(given: &bool, at: *mut u8) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { u8::put(&(*given).into(), at) }
    }

    fn word(given: &bool, _: &mut &mut [u8]) -> u64 {
        (*given).into()
    }
}

// SAFETY: `put` writes the text up to a NUL in it, and a NUL.
unsafe impl FieldType for str {
    type Given<'a> = &'a str;
    const SHAPE: Shape = shape(FieldTag::String, 1, 0);
    const SDT: i32 = 8;

    #[inline(always)]
    fn size(given: &&str) -> usize {
        given.len() + 1
    }

    fn exact_size(given: &&str) -> usize {
        until_nul(given.as_bytes()) + 1
    }

    #[inline(always)]
    unsafe fn put(given: &&str, at: *mut u8) -> *mut u8 {
        let text = given.as_bytes();
        let words: Option<[[u8; 8]; 2]> = match (text.first_chunk(), text.last_chunk()) {
            (Some(first), Some(last)) if text.len() <= 16 => Some([*first, *last]),
            _ => None,
        };
        // SAFETY: the caller's promise: room for the whole text and a NUL, more than eight bytes in
        // the first case.
        unsafe {
            let len = match words.map(|words| words.map(u64::from_ne_bytes)) {
                // Two words that may overlap: without a call.
                Some([first, last]) if !has_nul(first) && !has_nul(last) => {
                    at.cast::<u64>().write_unaligned(first);
                    at.add(text.len() - 8).cast::<u64>().write_unaligned(last);
                    text.len()
                }
                _ => put_text(text, at),
            };
            at.add(len).write(0);
            at.add(len + 1)
        }
    }

    fn word(given: &&str, room: &mut &mut [u8]) -> u64 {
        let all = std::mem::take(room);
        let len = until_nul(given.as_bytes()).min(all.len().saturating_sub(1));
        let (text, rest) = all.split_at_mut(all.len().min(len + 1));
        *room = rest;
        for (to, byte) in text.iter_mut().zip(given.as_bytes()[..len].iter().chain(&[0])) {
            *to = *byte;
        }
        text.as_ptr() as u64
    }
}

/// Whether a byte of the word is zero.
#[inline(always)]
fn has_nul(word: u64) -> bool {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    word.wrapping_sub(LOW) & !word & HIGH != 0
}

/// Copies a text up to a NUL in it; returns how many bytes that are.
///
/// # Safety
/// `text.len()` bytes can be written at `at`.
#[inline(never)]
unsafe fn put_text(text: &[u8], at: *mut u8) -> usize {
    let len = until_nul(text);
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), at, len) };
    len
}

fn until_nul(bytes: &[u8]) -> usize {
    // SAFETY: looks at no more than these bytes.
    let nul = unsafe { libc::memchr(bytes.as_ptr().cast(), 0, bytes.len()) };
    if nul.is_null() { bytes.len() } else { nul.addr() - bytes.as_ptr().addr() }
}

const fn elements(kind: FieldTag, element: Shape, count: usize) -> Shape {
    let floats = if matches!(element.kind, FieldTag::Float) { Shape::FLOATS } else { 0 };
    Shape { kind, size: element.size, flags: element.flags | floats, count: count as u32 }
}

// SAFETY: `put` writes the number of elements and as many elements.
unsafe impl<T: Element + 'static> FieldType for [T] {
    type Given<'a> = &'a [T];
    const SHAPE: Shape = elements(FieldTag::Sequence, T::SHAPE, 0);
    const SDT: i32 = 8;

    fn size(given: &&[T]) -> usize {
        4 + size_of_val(*given)
    }

    unsafe fn put(given: &&[T], at: *mut u8) -> *mut u8 {
        // SAFETY: the caller's promise; more elements than the number can tell are more bytes than
        // an event may have, and refused by then.
        unsafe {
            let at = u32::put(&(given.len() as u32), at);
            std::ptr::copy_nonoverlapping(given.as_ptr().cast::<u8>(), at, size_of_val(*given));
            at.add(size_of_val(*given))
        }
    }

    fn word(given: &&[T], _: &mut &mut [u8]) -> u64 {
        given.as_ptr() as u64
    }
}

// SAFETY: `put` writes all elements.
unsafe impl<T: Element + 'static, const N: usize> FieldType for [T; N] {
    type Given<'a> = &'a [T; N];
    const SHAPE: Shape = elements(FieldTag::Array, T::SHAPE, N);
    const SDT: i32 = 8;

    fn size(_: &&[T; N]) -> usize {
        size_of::<[T; N]>()
    }

    unsafe fn put(given: &&[T; N], at: *mut u8) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(given.as_ptr().cast(), at, size_of::<[T; N]>());
            at.add(size_of::<[T; N]>())
        }
    }

    fn word(given: &&[T; N], _: &mut &mut [u8]) -> u64 {
        given.as_ptr() as u64
    }
}

/// An address in the program, shown as the function it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol(pub u64);

impl<T> From<*const T> for Symbol {
    fn from(pointer: *const T) -> Self {
        Self(pointer as *const () as u64)
    }
}

// SAFETY: `put` writes a u64.
unsafe impl FieldType for Symbol {
    type Given<'a> = Symbol;
    const SHAPE: Shape = shape(FieldTag::Symbol, 8, Shape::HEX);
    const SDT: i32 = 8;

    fn size(_: &Symbol) -> usize {
        8
    }

    unsafe fn put(given: &Symbol, at: *mut u8) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { u64::put(&given.0, at) }
    }

    fn word(given: &Symbol, _: &mut &mut [u8]) -> u64 {
        given.0
    }
}

/// Layout of an enum in the payload; for [`tracepoint_enum!`](crate::tracepoint_enum).
pub const fn enum_shape(number: Shape) -> Shape {
    Shape { kind: FieldTag::Enum, ..number }
}

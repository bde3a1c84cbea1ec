//! Printer of the decoders: numbers, words, texts and structures in strace's forms, from the memory
//! of the task.

use std::io::Write as _;

use super::words::Words;
use super::{HexTexts, StraceStyle, TaskView};

/// A call's arguments while they are written.
pub(super) struct CallPrinter<'a> {
    pub(super) out: Vec<u8>,
    pub(super) args: [u64; 6],
    /// The result, at the end of the call; whether it is an error.
    pub(super) result: Option<(i64, bool)>,
    /// A number that the call's beginning left for its end: a size that the kernel overwrites.
    pub(super) saved: u64,
    /// Text that it left.
    pub(super) kept: Vec<u8>,
    pub(super) task: &'a mut dyn TaskView,
    pub(super) style: &'a StraceStyle,
    /// Text after the result, in parentheses.
    pub(super) aside: Option<Vec<u8>>,
    /// Paths that the arguments name, for `-P`.
    pub(super) paths: Vec<Vec<u8>>,
}

/// Longest path that the kernel takes, with its NUL.
const PATH_MAX: usize = 4096;

impl CallPrinter<'_> {
    pub(super) fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Whether the call has ended with an error.
    pub(super) fn failed(&self) -> bool {
        self.result.is_some_and(|(_, is_error)| is_error)
    }

    /// The result of a call that has succeeded.
    pub(super) fn returned(&self) -> u64 {
        self.result.filter(|(_, failed)| !failed).map_or(0, |(value, _)| value.cast_unsigned())
    }

    pub(super) fn address(&mut self, value: u64) {
        match value {
            0 => self.text("NULL"),
            _ => drop(write!(self.out, "{value:#x}")),
        }
    }

    pub(super) fn hex(&mut self, value: u64) {
        match value {
            0 => self.text("0"),
            _ => drop(write!(self.out, "{value:#x}")),
        }
    }

    pub(super) fn signed(&mut self, value: i64) {
        let _ = write!(self.out, "{value}");
    }

    pub(super) fn unsigned(&mut self, value: u64) {
        let _ = write!(self.out, "{value}");
    }

    /// One of several values.
    pub(super) fn word(&mut self, words: Words, value: u64, unknown: &str) {
        match words.iter().find(|(v, _)| *v == value) {
            Some((_, name)) => self.text(name),
            None if value == 0 => drop(write!(self.out, "0 /* {unknown} */")),
            None => drop(write!(self.out, "{value:#x} /* {unknown} */")),
        }
    }

    /// Bits joined with `|`; a number without any name is followed by `unknown`.
    pub(super) fn bits(&mut self, words: Words, value: u64, unknown: &str) {
        match self.named_bits(words, value, true) {
            (0, true) => self.text("0"),
            (rest, true) => drop(write!(self.out, "{rest:#x} /* {unknown} */")),
            (0, false) => {}
            (rest, false) => drop(write!(self.out, "|{rest:#x}")),
        }
    }

    /// Bits after other words, joined with `|`.
    pub(super) fn more_bits(&mut self, words: Words, value: u64) {
        let (rest, _) = self.named_bits(words, value, false);
        if rest != 0 {
            let _ = write!(self.out, "|{rest:#x}");
        }
    }

    /// The bits without names, and whether none was written.
    pub(super) fn named_bits(
        &mut self,
        words: Words,
        value: u64,
        mut is_first: bool,
    ) -> (u64, bool) {
        let mut rest = value;
        for (bits, name) in words.iter().filter(|(bits, _)| *bits != 0) {
            if rest & bits == *bits {
                rest &= !bits;
                let bar = if std::mem::take(&mut is_first) { "" } else { "|" };
                self.text(bar);
                self.text(name);
            }
        }
        (rest, is_first)
    }

    /// Octal permissions.
    pub(super) fn permissions(&mut self, mode: u64) {
        // C's `%#03o`.
        let digits = if mode < 0o100 { 2 } else { 0 };
        let _ = write!(self.out, "0{mode:0digits$o}");
    }

    pub(super) fn descriptor(&mut self, fd: i32) {
        self.signed(fd.into());
        if fd < 0 {
            return;
        }
        if let Some(path) = self.task.descriptor(fd) {
            if self.style.paths {
                self.out.push(b'<');
                escape(&mut self.out, &path, b"<>", HexTexts::None, true);
                self.out.push(b'>');
            }
            self.paths.push(path);
        }
    }

    /// Text in quotes.
    pub(super) fn quote(&mut self, bytes: &[u8], is_whole: bool) {
        quote(&mut self.out, bytes, is_whole, self.style.hex);
    }

    /// Bytes from the task's memory, exactly this number; `None`: they cannot be read.
    pub(super) fn bytes(&mut self, address: u64, size: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; size];
        let read = self.task.read(address, &mut bytes);
        (address != 0 && read == size).then_some(bytes)
    }

    pub(super) fn u32_at(&mut self, address: u64) -> Option<u32> {
        self.bytes(address, 4).map(|b| u32_in(&b, 0))
    }

    pub(super) fn u64_at(&mut self, address: u64) -> Option<u64> {
        self.bytes(address, 8).map(|b| u64_in(&b, 0))
    }

    /// A text up to its NUL, at most `most` bytes of it, and whether that is all of it; `None`:
    /// it cannot be read.
    pub(super) fn nul_text(&mut self, address: u64, most: usize) -> Option<(Vec<u8>, bool)> {
        if address == 0 {
            return None;
        }
        let mut bytes = vec![0; (most + 1).min(PATH_MAX * 8)];
        // Most texts are short, and what lies behind them need not be there.
        let mut done = 0;
        while done < bytes.len() {
            let to_page = 4096 - ((address.wrapping_add(done as u64)) & 4095) as usize;
            let end = bytes.len().min(done + to_page.min(256));
            let at = address.wrapping_add(done as u64);
            let Some(piece) = bytes.get_mut(done..end) else { break };
            let size = piece.len();
            if self.task.read(at, piece) < size {
                return None;
            }
            if let Some(nul) = piece.iter().position(|b| *b == 0) {
                bytes.truncate(done + nul);
                let is_whole = bytes.len() <= most;
                bytes.truncate(most);
                return Some((bytes, is_whole));
            }
            done = end;
        }
        bytes.truncate(most);
        Some((bytes, false))
    }

    /// A path.
    pub(super) fn path(&mut self, address: u64) {
        match self.nul_text(address, PATH_MAX - 1) {
            Some((path, is_whole)) => {
                self.quote(&path, is_whole);
                self.paths.push(path);
            }
            None => self.address(address),
        }
    }

    /// A text up to its NUL.
    pub(super) fn nul_quoted(&mut self, address: u64) {
        match self.nul_text(address, self.style.string_limit) {
            Some((text, is_whole)) => self.quote(&text, is_whole),
            None => self.address(address),
        }
    }

    /// A buffer of this size.
    pub(super) fn buffer(&mut self, address: u64, size: u64) {
        let limit = self.style.string_limit;
        let shown = usize::try_from(size).unwrap_or(limit).min(limit);
        if address == 0 {
            return self.text("NULL");
        }
        if size == 0 {
            return self.text("\"\"");
        }
        match self.bytes(address, shown) {
            Some(bytes) => self.quote(&bytes, shown as u64 == size),
            None => self.address(address),
        }
    }

    /// Numbers joined with `, ` in brackets.
    pub(super) fn array(&mut self, count: usize, mut item: impl FnMut(&mut Self, usize)) {
        self.text("[");
        for n in 0..count {
            self.text(if n > 0 { ", " } else { "" });
            item(self, n);
        }
        self.text("]");
    }
}

pub(super) fn u16_in(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_ne_bytes(*b))
}

pub(super) fn u32_in(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

pub(super) fn i32_in(bytes: &[u8], at: usize) -> i32 {
    u32_in(bytes, at).cast_signed()
}

pub(super) fn u64_in(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b))
}

/// Text in quotes, with octal escapes as short as they may be.
pub(super) fn quote(out: &mut Vec<u8>, bytes: &[u8], is_whole: bool, hex: HexTexts) {
    out.push(b'"');
    escape(out, bytes, b"\"\\", hex, false);
    out.extend_from_slice(if is_whole { b"\"" } else { b"\"..." });
}

/// Bytes with escapes; `special` ones take a backslash, or in paths of descriptors a number.
fn escape(out: &mut Vec<u8>, bytes: &[u8], special: &[u8], hex: HexTexts, is_path: bool) {
    let is_plain = |b: u8| (b' '..=b'~').contains(&b) || (b'\t'..=b'\r').contains(&b);
    let all_hex = match hex {
        HexTexts::All => true,
        HexTexts::NonPlain => bytes.iter().any(|b| !is_plain(*b)),
        HexTexts::None => false,
    };
    for (n, b) in bytes.iter().enumerate() {
        let name = match b {
            b'\t' => b't',
            b'\n' => b'n',
            0x0b => b'v',
            0x0c => b'f',
            b'\r' => b'r',
            _ => 0,
        };
        if all_hex {
            let _ = write!(out, "\\x{b:02x}");
        } else if name != 0 {
            out.extend_from_slice(&[b'\\', name]);
        } else if special.contains(b) && !is_path {
            out.extend_from_slice(&[b'\\', *b]);
        } else if (b' '..=b'~').contains(b) && !special.contains(b) {
            out.push(*b);
        } else if bytes.get(n + 1).is_some_and(u8::is_ascii_digit) {
            let _ = write!(out, "\\{b:03o}");
        } else {
            let _ = write!(out, "\\{b:o}");
        }
    }
}

//! The helpers that write text: flags, symbols, arrays, hex, bit maps.

use kymo_model::{Endian, UntrustedText};

use crate::context::Symbols;
use crate::expr::{Expr, Scope, TextFn, Val};
use crate::field::{load, until_nul};
use crate::spec::{Conv, Shape, hex, integer};

/// The most bytes one event is rendered to (the kernel's own limit is 8 KiB a line).
pub(crate) const MAX_OUTPUT: usize = 64 << 10;

/// Appends what the helper prints.
pub(crate) fn write(f: &TextFn, out: &mut Vec<u8>, s: Scope<'_>) {
    match f {
        TextFn::Flags { value, delim, table } => {
            let mut left = value.int(s);
            let mut first = true;
            for (mask, name) in &table.rows {
                if left == 0 {
                    break;
                }
                if left & mask == *mask {
                    left &= !mask;
                    join(out, delim, &mut first);
                    out.extend_from_slice(name);
                }
            }
            if left != 0 {
                join(out, delim, &mut first);
                out.extend_from_slice(b"0x");
                hex(out, left, 0);
            }
        }
        TextFn::Symbolic { value, table } => {
            let v = value.int(s);
            match table.find(v) {
                Some(name) => out.extend_from_slice(name),
                None => {
                    out.extend_from_slice(b"0x");
                    hex(out, v, 0);
                }
            }
        }
        TextFn::Hex { bytes, len, joined } => {
            let sep: &[u8] = if *joined { b"" } else { b" " };
            hex_bytes(out, take(bytes, len, s), sep);
        }
        TextFn::Array { bytes, count, elem } => array(out, bytes, count.as_deref(), elem, s),
        TextFn::HexDump { prefix, kind, row, group, bytes, len, ascii } => {
            let layout = Dump { prefix, kind: *kind, row: *row, group: *group, ascii: *ascii };
            hex_dump(out, layout, take(bytes, len, s), s.endian);
        }
        TextFn::Bitmask { bytes } => {
            if let Val::Bytes(b) = bytes.eval(s) {
                bitmap(out, b, b.len().saturating_mul(8), s);
            }
        }
        TextFn::ErrorType(e) => out.extend_from_slice(match e.int(s) {
            0 => b"Corrected",
            1 => b"Uncorrected",
            2 => b"Deferred",
            3 => b"Fatal",
            _ => b"Info",
        }),
        TextFn::Unknown { name, args } => {
            out.extend_from_slice(name.as_bytes());
            let mut first = true;
            out.push(b'(');
            for a in args {
                join(out, b", ", &mut first);
                argument(out, a, s);
            }
            out.push(b')');
        }
    }
}

fn argument(out: &mut Vec<u8>, e: &Expr, s: Scope<'_>) {
    match e.eval(s) {
        Val::Int(v) => {
            out.extend_from_slice(b"0x");
            hex(out, v, 0);
        }
        Val::Bytes(b) => hex_bytes(out, b, b" "),
        Val::Null => out.extend_from_slice(b"(null)"),
        Val::Text(_) => out.extend_from_slice(b"?"),
    }
}

fn join(out: &mut Vec<u8>, delim: &[u8], first: &mut bool) {
    if !std::mem::replace(first, false) {
        out.extend_from_slice(delim);
    }
}

/// The bytes an expression stands for, at most `len` of them.
fn take<'v>(bytes: &'v Expr, len: &Expr, s: Scope<'v>) -> &'v [u8] {
    let n = usize::try_from(len.int(s) as i64).unwrap_or(0);
    match bytes.eval(s) {
        Val::Bytes(b) => b.get(..n).unwrap_or(b),
        _ => &[],
    }
}

/// Two digits a byte.
pub(crate) fn hex_bytes(out: &mut Vec<u8>, bytes: &[u8], sep: &[u8]) {
    for (i, b) in bytes.iter().take(MAX_OUTPUT / 3).enumerate() {
        if i > 0 {
            out.extend_from_slice(sep);
        }
        hex(out, u64::from(*b), 2);
    }
}

fn array(out: &mut Vec<u8>, bytes: &Expr, count: Option<&Expr>, elem: &Expr, s: Scope<'_>) {
    let size = elem.int(s);
    let Val::Bytes(b) = bytes.eval(s) else {
        out.extend_from_slice(b"{}");
        return;
    };
    let step = match size {
        1 | 2 | 4 | 8 => size as u8,
        _ => 1,
    };
    let there = b.len() / usize::from(step);
    let n = count.map_or(there, |c| usize::try_from(c.int(s) as i64).unwrap_or(0).min(there));
    out.push(b'{');
    for i in 0..n.min(MAX_OUTPUT / 5) {
        if i > 0 {
            out.push(b',');
        }
        if !matches!(size, 1 | 2 | 4 | 8) {
            out.extend_from_slice(b"BAD SIZE:");
            crate::spec::decimal(out, size);
            out.push(b' ');
        }
        let at = (i * usize::from(step)) as u32;
        out.extend_from_slice(b"0x");
        hex(out, load(b, at, step, false, s.endian).unwrap_or(0), 0);
    }
    out.push(b'}');
}

/// `%*pb`: 32 bits a group, the highest first.
pub(crate) fn bitmap(out: &mut Vec<u8>, bytes: &[u8], bits: usize, s: Scope<'_>) {
    let bits = bits.min(bytes.len().saturating_mul(8)).min(MAX_OUTPUT);
    let groups = bits.div_ceil(32);
    for i in (0..groups).rev() {
        let in_group = if i + 1 == groups && !bits.is_multiple_of(32) { bits % 32 } else { 32 };
        let word = word32(bytes, i, s) & (u32::MAX >> (32 - in_group as u32));
        if i + 1 != groups {
            out.push(b',');
        }
        hex(out, u64::from(word), in_group.div_ceil(4));
    }
}

/// Bits `32 * i …`: the kernel's maps are arrays of longs.
fn word32(bytes: &[u8], i: usize, s: Scope<'_>) -> u32 {
    // On big-endian machines the halves of a 64-bit word are the other way round.
    let slot = if s.endian == kymo_model::Endian::Big { i ^ 1 } else { i };
    let at = u32::try_from(slot * 4).unwrap_or(u32::MAX);
    load(bytes, at, 4, false, s.endian).map_or_else(|| short_word(bytes, slot * 4), |v| v as u32)
}

fn short_word(bytes: &[u8], at: usize) -> u32 {
    let rest = bytes.get(at..).unwrap_or(&[]);
    rest.iter().take(4).enumerate().fold(0, |w, (k, b)| w | (u32::from(*b) << (8 * k)))
}

/// `%*pbl`: ranges such as `0-3,7`.
pub(crate) fn bitmap_list(out: &mut Vec<u8>, bytes: &[u8], bits: usize, s: Scope<'_>) {
    let bits = bits.min(bytes.len().saturating_mul(8)).min(MAX_OUTPUT);
    let set = |i: usize| i < bits && word32(bytes, i / 32, s) >> (i % 32) & 1 == 1;
    let (mut i, mut first) = (0, true);
    while i < bits {
        if !set(i) {
            i += 1;
            continue;
        }
        let start = i;
        while set(i) {
            i += 1;
        }
        join(out, b",", &mut first);
        crate::spec::decimal(out, start as u64);
        if i - start > 1 {
            out.push(b'-');
            crate::spec::decimal(out, i as u64 - 1);
        }
    }
}

struct Dump<'a> {
    prefix: &'a [u8],
    kind: u8,
    row: u64,
    group: u64,
    ascii: bool,
}

/// As the kernel's `seq_buf_hex_dump` and `hex_dump_to_buffer`.
fn hex_dump(out: &mut Vec<u8>, d: Dump<'_>, bytes: &[u8], endian: Endian) {
    let row = if d.row == 32 { 32 } else { 16 };
    let begin = out.len();
    out.push(b'\n');
    for (i, line) in bytes.chunks(row).enumerate() {
        if out.len() - begin > MAX_OUTPUT {
            return;
        }
        // A line whose length is no multiple of the group is dumped by bytes.
        let group = match d.group {
            g @ (2 | 4 | 8) if (line.len() as u64).is_multiple_of(g) => g as usize,
            _ => 1,
        };
        out.extend_from_slice(d.prefix);
        if d.kind == 2 {
            let s = Shape { zero: true, width: 8, ..Shape::default() };
            integer(out, (i * row) as u64, 4, Conv::Hex, s);
            out.extend_from_slice(b": ");
        }
        let start = out.len();
        for (k, g) in line.chunks(group).enumerate() {
            if k > 0 {
                out.push(b' ');
            }
            // Groups are numbers.
            match endian {
                Endian::Little => g.iter().rev().for_each(|b| hex(out, u64::from(*b), 2)),
                Endian::Big => g.iter().for_each(|b| hex(out, u64::from(*b), 2)),
            }
        }
        if d.ascii {
            let column = start + row * 2 + row / group + 1;
            out.resize(out.len().max(column), b' ');
            let shown = |b: &u8| if (0x20..0x7f).contains(b) { *b } else { b'.' };
            out.extend(line.iter().map(shown));
        }
        out.push(b'\n');
    }
}

/// Text that a program or user chose, appended. At the end of a line it may end it, as texts of
/// `trace_marker` do.
pub(crate) fn foreign_text(out: &mut Vec<u8>, text: &[u8], is_last: bool) {
    match text.strip_suffix(b"\n").filter(|_| is_last) {
        Some(text) => {
            UntrustedText::new(text).write_escaped(out);
            out.push(b'\n');
        }
        None => UntrustedText::new(text).write_escaped(out),
    }
}

/// `%s` of any value; `is_last`: nothing follows it in its line.
pub(crate) fn string(
    out: &mut Vec<u8>,
    v: Val<'_>,
    s: Scope<'_>,
    (precision, is_last): (Option<usize>, bool),
    symbols: &dyn Symbols,
) {
    match v {
        Val::Bytes(b) => {
            // With a precision the kernel reads no further than that.
            let b = precision.and_then(|p| b.get(..p)).unwrap_or(b);
            foreign_text(out, until_nul(b), is_last);
        }
        Val::Text(t) => write(t, out, s),
        Val::Null | Val::Int(0) => out.extend_from_slice(b"(null)"),
        // A string in the kernel's memory: known if tracefs lists it.
        Val::Int(v) => match symbols.printk_string(v) {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => {
                out.extend_from_slice(b"0x");
                hex(out, v, 0);
            }
        },
    }
}

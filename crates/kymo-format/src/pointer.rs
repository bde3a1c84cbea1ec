//! The kernel's extensions behind `%p`: symbols, addresses of the network,
//! UUIDs, hex strings, bit maps.
//!
//! Where the kernel follows a pointer that is not in the payload (`%pd` of a
//! dentry, `%pV`), the address is printed.

use crate::context::{PointerStyle, RenderContext};
use crate::expr::{Scope, Val};
use crate::field::{load, until_nul};
use crate::spec::{self, Conv, Shape, decimal, fit, hex, repeat};
use crate::text;
use kymo_model::Endian;

/// Writes `v` as `%p` followed by `ext`.
pub(crate) fn write(
    out: &mut Vec<u8>,
    ext: &str,
    v: Val<'_>,
    shape: Shape,
    s: Scope<'_>,
    ctx: &RenderContext<'_>,
) {
    let start = out.len();
    let kind = ext.as_bytes().first().copied().unwrap_or(0);
    match (kind, v) {
        (b'S' | b's' | b'f' | b'F' | b'B', Val::Int(a)) => symbol(out, a, kind, ctx),
        (b'I' | b'i', Val::Bytes(b)) => network(out, ext, b, s),
        (b'M' | b'm', Val::Bytes(b)) => mac(out, ext, b),
        (b'U', Val::Bytes(b)) => uuid(out, ext, b),
        (b'h', Val::Bytes(b)) => {
            let sep: &[u8] = match ext.as_bytes().get(1) {
                Some(b'C') => b":",
                Some(b'D') => b"-",
                Some(b'N') => b"",
                _ => b" ",
            };
            let n = shape.width.clamp(1, 64);
            text::hex_bytes(out, b.get(..n).unwrap_or(b), sep);
            return;
        }
        (b'b', Val::Bytes(b)) => {
            if ext.ends_with('l') {
                text::bitmap_list(out, b, shape.width, s);
            } else {
                text::bitmap(out, b, shape.width, s);
            }
            return;
        }
        (b'a', Val::Bytes(b)) => {
            let size = if b.len() >= 8 { 8 } else { 4 };
            out.extend_from_slice(b"0x");
            hex(out, load(b, 0, size, false, s.endian).unwrap_or(0), usize::from(size) * 2);
        }
        (b'e', Val::Int(a)) if (-4095..0).contains(&(a as i64)) => {
            match errno((a as i64).unsigned_abs()) {
                Some(name) => {
                    out.push(b'-');
                    out.extend_from_slice(name.as_bytes());
                }
                None => return plain_pointer(out, a, shape, ctx),
            }
        }
        (_, Val::Int(a)) => return plain_pointer(out, a, shape, ctx),
        (b'd' | b'D', Val::Bytes(b)) => out.extend_from_slice(until_nul(b)),
        (_, Val::Null) => return plain_pointer(out, 0, shape, ctx),
        // The address of the ring's own memory: not in a recording.
        (_, Val::Bytes(b)) => text::hex_bytes(out, b.get(..16).unwrap_or(b), b""),
        (_, Val::Text(t)) => text::write(t, out, s),
    }
    fit(out, start, shape);
}

fn symbol(out: &mut Vec<u8>, address: u64, kind: u8, ctx: &RenderContext<'_>) {
    // A return address may lie behind its function: %pB looks before it.
    let at = if kind == b'B' { address.wrapping_sub(1) } else { address };
    let Some(sym) = ctx.symbols.kernel(at) else {
        out.extend_from_slice(b"0x");
        hex(out, address, 0);
        return;
    };
    out.extend_from_slice(sym.name.as_bytes());
    if matches!(kind, b'S' | b'F' | b'B') {
        let offset = sym.offset.wrapping_add(u64::from(kind == b'B'));
        out.extend_from_slice(b"+0x");
        hex(out, offset, 0);
        if ctx.symbol_sizes {
            out.extend_from_slice(b"/0x");
            hex(out, sym.size, 0);
        }
    }
    if let Some(module) = sym.module {
        out.extend_from_slice(b" [");
        out.extend_from_slice(module.as_bytes());
        out.push(b']');
    }
}

fn mac(out: &mut Vec<u8>, ext: &str, b: &[u8]) {
    let sep: &[u8] = match ext.as_bytes() {
        [b'M', b'F', ..] => b"-",
        [b'M', ..] => b":",
        _ => b"",
    };
    let mut six = [0u8; 6];
    for (to, from) in six.iter_mut().zip(b) {
        *to = *from;
    }
    if ext.ends_with('R') {
        six.reverse();
    }
    text::hex_bytes(out, &six, sep);
}

fn uuid(out: &mut Vec<u8>, ext: &str, b: &[u8]) {
    const BIG: [usize; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    const LITTLE: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let order = if ext.contains(['l', 'L']) { LITTLE } else { BIG };
    let start = out.len();
    for (i, at) in order.into_iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        hex(out, u64::from(b.get(at).copied().unwrap_or(0)), 2);
    }
    if ext.contains(['B', 'L'])
        && let Some(text) = out.get_mut(start..)
    {
        text.make_ascii_uppercase();
    }
}

fn network(out: &mut Vec<u8>, ext: &str, b: &[u8], s: Scope<'_>) {
    let dotted_zeros = ext.starts_with('i');
    match ext.as_bytes().get(1) {
        Some(b'4') => {
            let little = ext.contains('l') || (ext.contains('h') && s.endian == Endian::Little);
            ipv4(out, b, dotted_zeros, little);
        }
        Some(b'6') if ext.contains('c') => ipv6_short(out, b),
        Some(b'6') => ipv6_long(out, b, dotted_zeros),
        _ => socket(out, ext, b, s),
    }
}

fn ipv4(out: &mut Vec<u8>, b: &[u8], zeros: bool, reversed: bool) {
    for i in 0..4 {
        if i > 0 {
            out.push(b'.');
        }
        let at = if reversed { 3 - i } else { i };
        let v = b.get(at).copied().unwrap_or(0);
        if zeros {
            repeat(out, b'0', usize::from(v < 100) + usize::from(v < 10));
        }
        decimal(out, u64::from(v));
    }
}

fn group(b: &[u8], i: usize) -> u64 {
    let byte = |k: usize| u64::from(b.get(k).copied().unwrap_or(0));
    byte(2 * i) << 8 | byte(2 * i + 1)
}

fn ipv6_long(out: &mut Vec<u8>, b: &[u8], joined: bool) {
    for i in 0..8 {
        if i > 0 && !joined {
            out.push(b':');
        }
        hex(out, group(b, i), 4);
    }
}

/// RFC 5952, with mapped and ISATAP addresses ending in IPv4 form.
fn ipv6_short(out: &mut Vec<u8>, b: &[u8]) {
    let mapped = (0..5).all(|i| group(b, i) == 0) && group(b, 5) == 0xffff;
    let isatap = group(b, 4) & !0x0200 == 0 && group(b, 5) == 0x5efe;
    let v4 = mapped || isatap;
    let range = if v4 { 6 } else { 8 };
    let (mut best, mut best_len, mut i) = (usize::MAX, 1, 0);
    while i < range {
        let run = (i..range).take_while(|k| group(b, *k) == 0).count();
        if run > best_len {
            (best, best_len) = (i, run);
        }
        i += run.max(1);
    }
    let (mut colon, mut i) = (false, 0);
    while i < range {
        if i == best {
            // One colon may be there already.
            out.extend_from_slice(if colon || i == 0 { b"::" } else { b":" });
            colon = false;
            i += best_len;
            continue;
        }
        if colon {
            out.push(b':');
        }
        hex(out, group(b, i), 0);
        colon = true;
        i += 1;
    }
    if v4 {
        if colon {
            out.push(b':');
        }
        ipv4(out, b.get(12..).unwrap_or(&[]), false, false);
    }
}

fn socket(out: &mut Vec<u8>, ext: &str, b: &[u8], s: Scope<'_>) {
    let family = load(b, 0, 2, false, s.endian).unwrap_or(0);
    let options = ext.get(2..).unwrap_or("");
    let port = options.contains('p');
    let compressed = options.contains('c');
    let number = |out: &mut Vec<u8>| {
        out.push(b':');
        decimal(out, load(b, 2, 2, false, Endian::Big).unwrap_or(0));
    };
    match family {
        2 => {
            ipv4(out, b.get(4..).unwrap_or(&[]), ext.starts_with('i'), false);
            if port {
                number(out);
            }
        }
        10 => {
            let brackets = port || options.contains(['f', 's']);
            let address = b.get(8..).unwrap_or(&[]);
            if brackets {
                out.push(b'[');
            }
            if compressed {
                ipv6_short(out, address);
            } else {
                ipv6_long(out, address, ext.starts_with('i'));
            }
            if brackets {
                out.push(b']');
            }
            if port {
                number(out);
            }
            if options.contains('f') {
                out.push(b'/');
                let info = load(b, 4, 4, false, Endian::Big).unwrap_or(0);
                decimal(out, info & 0x0fff_ffff);
            }
            if options.contains('s') {
                out.push(b'%');
                decimal(out, load(b, 24, 4, false, s.endian).unwrap_or(0));
            }
        }
        // The kernel writes the pointer's digits over this text.
        _ => out.extend_from_slice(b"(einval)"),
    }
}

/// Names of the error numbers tracepoints commonly carry.
fn errno(n: u64) -> Option<&'static str> {
    Some(match n {
        1 => "EPERM",
        2 => "ENOENT",
        3 => "ESRCH",
        4 => "EINTR",
        5 => "EIO",
        6 => "ENXIO",
        7 => "E2BIG",
        9 => "EBADF",
        10 => "ECHILD",
        11 => "EAGAIN",
        12 => "ENOMEM",
        13 => "EACCES",
        14 => "EFAULT",
        16 => "EBUSY",
        17 => "EEXIST",
        18 => "EXDEV",
        19 => "ENODEV",
        20 => "ENOTDIR",
        21 => "EISDIR",
        22 => "EINVAL",
        24 => "EMFILE",
        25 => "ENOTTY",
        27 => "EFBIG",
        28 => "ENOSPC",
        29 => "ESPIPE",
        30 => "EROFS",
        32 => "EPIPE",
        34 => "ERANGE",
        38 => "ENOSYS",
        61 => "ENODATA",
        71 => "EPROTO",
        75 => "EOVERFLOW",
        95 => "EOPNOTSUPP",
        110 => "ETIMEDOUT",
        512 => "ERESTARTSYS",
        524 => "ENOTSUPP",
        _ => return None,
    })
}

/// `%p`: the value in digits.
fn plain_pointer(out: &mut Vec<u8>, v: u64, shape: Shape, ctx: &RenderContext<'_>) {
    match ctx.pointers {
        PointerStyle::Kernel => {
            let width = if shape.width == 0 { 16 } else { shape.width };
            let zero = shape.width == 0 || shape.zero;
            spec::integer(out, v, 8, Conv::Hex, Shape { width, zero, ..shape });
        }
        PointerStyle::Short if v == 0 => {
            let start = out.len();
            out.extend_from_slice(b"(nil)");
            spec::fit(out, start, Shape { precision: None, ..shape });
        }
        PointerStyle::Short => {
            spec::integer(out, v, 8, Conv::Hex, Shape { alt: true, ..shape });
        }
    }
}

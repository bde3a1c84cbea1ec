//! A print format compiled: a flat list of operations, with the common ones
//! (a number, a name, nothing around it) in forms that run without a tree walk.

use crate::ctype::{IntTy, Ty};
use crate::expr::{Expr, TextFn};
use crate::field::{Field, ProbeText};
use crate::lex::{Tok, tokens};
use crate::parse::{ParseOptions, Parser, Reason};
use crate::spec::{Amount, Conv, Piece, Spec, pieces};

/// The most tokens of one print format.
const MAX_TOKENS: usize = 200_000;
/// The most operations of one plan.
const MAX_OPS: usize = 4096;

/// One step of rendering.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Bytes as they are.
    Literal(Box<[u8]>),
    /// Few bytes as they are.
    Short([u8; 16], u8),
    /// `%d`, `%u` and their kin of a field as wide as the conversion.
    Decimal { offset: u32, size: u8, signed: bool },
    /// `%x`, `%08lx`, `%#x` of a field.
    Hex { offset: u32, size: u8, signed: bool, mask: u64, digits: u8 },
    /// A few bytes, then a decimal number: one step where most formats have two.
    ThenDecimal { text: [u8; 8], len: u8, offset: u32, size: u8, signed: bool },
    /// A few bytes, then a hexadecimal number.
    ThenHex { text: [u8; 8], len: u8, offset: u32, size: u8, signed: bool, mask: u64, digits: u8 },
    /// `%s` of a `char` array.
    Chars { offset: u32, len: u32 },
    /// `%s` of a dynamic string.
    DynChars { offset: u32, relative: bool, probe: Option<ProbeText> },
    /// `%s` of a helper that writes text.
    Text(Box<TextFn>),
    /// Everything else.
    General { spec: Box<Spec>, arg: Box<Expr>, ty: Ty },
    /// An argument was missing.
    Missing,
}

/// A compiled print format.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) ops: Vec<Op>,
    /// Rendered field by field, since the text could not be compiled.
    pub(crate) by_fields: bool,
    /// Notes on differences from the kernel's output, with the reason.
    pub(crate) notes: Vec<String>,
    /// The kernel's `bprint`: a format address and binary arguments.
    pub(crate) binary_printf: bool,
}

/// Whether a conversion shows an address as a function: `%pS` and its kin.
fn names_function(spec: &Spec) -> bool {
    spec.conv == Conv::Pointer && spec.ext.starts_with(['S', 's', 'F', 'f', 'B'])
}

impl Plan {
    /// Whether the text has names for addresses of functions (`%pS` and its kin), or is the text of
    /// `trace_printk`: values that the fields hold as numbers.
    pub(crate) fn names_addresses(&self) -> bool {
        let is_name = |op: &Op| match op {
            Op::General { spec, .. } => names_function(spec),
            _ => false,
        };
        self.binary_printf || self.ops.iter().any(is_name)
    }

    /// Whether the text has the name of the function whose address is in the field at an offset.
    pub(crate) fn names_function_at(&self, field: u32) -> bool {
        fn loads(e: &Expr, field: u32) -> bool {
            match e {
                Expr::Load { offset, .. } => *offset == field,
                Expr::Cast(_, of) => loads(of, field),
                _ => false,
            }
        }
        self.ops.iter().any(|op| match op {
            Op::General { spec, arg, .. } => names_function(spec) && loads(arg, field),
            _ => false,
        })
    }

    /// Compiles `text`. Never fails: what cannot be compiled is noted and
    /// rendered field by field.
    pub(crate) fn compile(
        event: &str,
        text: &str,
        fields: &[Field],
        options: &ParseOptions<'_>,
    ) -> Plan {
        let mut toks = tokens(text, MAX_TOKENS);
        unwrap_record(&mut toks);
        let mut p = Parser {
            toks: &toks,
            pos: 0,
            fields,
            long: if options.long_size == 4 { 4 } else { 8 },
            constants: options.constants,
            notes: Vec::new(),
            unresolved: Vec::new(),
            depth: 0,
            nodes: 0,
            vars: Vec::new(),
        };
        let compiled = compile(&mut p);
        let mut notes = p.notes;
        if !p.unresolved.is_empty() {
            p.unresolved.sort();
            p.unresolved.dedup();
            notes.push(format!("values not known: {}", p.unresolved.join(", ")));
        }
        notes.sort();
        notes.dedup();
        let binary_printf = event == "bprint" && fields.iter().any(|f| f.name == "fmt");
        match compiled {
            Ok(mut ops) => {
                set_lengths(&mut ops, fields);
                Plan { ops, by_fields: false, notes, binary_printf }
            }
            Err(reason) => {
                notes.push(format!("shown field by field: {reason}"));
                Plan { ops: Vec::new(), by_fields: true, notes, binary_printf }
            }
        }
    }
}

/// Has texts end where the fields of their lengths say.
fn set_lengths(ops: &mut [Op], fields: &[Field]) {
    for op in ops {
        if let Op::DynChars { offset, probe, .. } = op {
            *probe = fields.iter().find(|f| f.offset == *offset).and_then(|f| f.probe_text);
        }
    }
}

/// `(REC)` is `REC`.
fn unwrap_record(toks: &mut Vec<Tok<'_>>) {
    let rec = |w: &[Tok<'_>]| {
        matches!(w, [Tok::Punct("("), Tok::Ident("REC"), Tok::Punct(")"), Tok::Punct("->")])
    };
    if !toks.windows(4).any(rec) {
        return;
    }
    let mut out = Vec::with_capacity(toks.len());
    let mut i = 0;
    while let Some(t) = toks.get(i) {
        if toks.get(i..i + 4).is_some_and(rec) {
            out.push(Tok::Ident("REC"));
            i += 3;
        } else {
            out.push(*t);
            i += 1;
        }
    }
    *toks = out;
}

fn compile(p: &mut Parser<'_>) -> Result<Vec<Op>, Reason> {
    let format = p.literal().ok_or("no format string")?;
    let mut args = Vec::new();
    while p.eat(",") {
        let a = p.argument()?;
        args.push(a);
    }
    if p.peek() != Tok::End {
        return Err(format!("unexpected {:?} after the arguments", p.peek()));
    }
    let mut args = args.into_iter();
    let mut ops = Vec::new();
    for piece in pieces(&format, p.long) {
        if ops.len() >= MAX_OPS {
            return Err("too many conversions".to_owned());
        }
        match piece {
            Piece::Literal(l) => ops.push(literal(l)),
            Piece::Conversion { mut spec, star_width, star_precision } => {
                let star = |on: bool, fixed, next: Option<_>| match (on, next) {
                    (true, Some(crate::parse::Typed { expr, .. })) => Amount::Arg(Box::new(expr)),
                    _ => fixed,
                };
                let width = if star_width { args.next() } else { None };
                spec.width = star(star_width, spec.width, width);
                let precision = if star_precision { args.next() } else { None };
                spec.precision = star(star_precision, spec.precision, precision);
                ops.push(match args.next() {
                    Some(a) => op(spec, a.expr, a.ty),
                    None => Op::Missing,
                });
            }
        }
    }
    if ops.iter().any(|o| matches!(o, Op::Missing)) {
        p.notes.push("fewer arguments than conversions".to_owned());
    }
    if ops.iter().any(reads_kernel_text) {
        p.notes.push(KERNEL_TEXT.to_owned());
    }
    Ok(joined(ops))
}

/// Puts few bytes and the number behind them into one step.
fn joined(ops: Vec<Op>) -> Vec<Op> {
    let mut out: Vec<Op> = Vec::with_capacity(ops.len());
    for op in ops {
        let before = match out.last() {
            Some(Op::Short(bytes, len @ ..=8)) => bytes.first_chunk().map(|text| (*text, *len)),
            _ => None,
        };
        let both = match (before, &op) {
            (Some((text, len)), &Op::Decimal { offset, size, signed }) => {
                Some(Op::ThenDecimal { text, len, offset, size, signed })
            }
            (Some((text, len)), &Op::Hex { offset, size, signed, mask, digits }) => {
                Some(Op::ThenHex { text, len, offset, size, signed, mask, digits })
            }
            _ => None,
        };
        if both.is_some() {
            out.pop();
        }
        out.push(both.unwrap_or(op));
    }
    out
}

fn literal(bytes: Vec<u8>) -> Op {
    if bytes.len() > 16 {
        return Op::Literal(bytes.into());
    }
    let mut all = [0; 16];
    for (to, from) in all.iter_mut().zip(&bytes) {
        *to = *from;
    }
    Op::Short(all, bytes.len() as u8)
}

/// The note on strings that only their address is recorded of.
const KERNEL_TEXT: &str = "text at a kernel address, known only if printk_formats lists it";

fn reads_kernel_text(op: &Op) -> bool {
    let Op::General { spec, arg, .. } = op else { return false };
    spec.conv == Conv::Str && matches!(**arg, Expr::Load { .. })
}

/// Picks the cheapest operation for a conversion.
fn op(spec: Spec, arg: Expr, ty: Ty) -> Op {
    let no_flags = !spec.left && !spec.plus && !spec.space;
    let no_precision = matches!(spec.precision, Amount::None);
    let no_width = matches!(spec.width, Amount::None);
    if no_flags && no_precision {
        match (&spec.conv, &arg) {
            (Conv::Signed | Conv::Unsigned, Expr::Load { offset, size, signed })
                if no_width && !spec.alt && !spec.zero =>
            {
                if let Some(signed) = decimal_sign(*size, *signed, &spec) {
                    return Op::Decimal { offset: *offset, size: *size, signed };
                }
            }
            (Conv::Hex, Expr::Load { offset, size, signed }) if !spec.alt => {
                let digits = match spec.width {
                    Amount::None => Some(0),
                    Amount::Fixed(w @ 0..=16) if spec.zero => Some(w as u8),
                    Amount::Fixed(0..=1) => Some(0),
                    _ => None,
                };
                if let Some(digits) = digits {
                    let mask = IntTy { size: spec.size, signed: false }.wrap(u64::MAX);
                    let (offset, size, signed) = (*offset, *size, *signed);
                    return Op::Hex { offset, size, signed, mask, digits };
                }
            }
            (Conv::Str, Expr::Bytes { offset, len, .. }) if no_width && *len > 0 => {
                return Op::Chars { offset: *offset, len: *len };
            }
            (Conv::Str, Expr::Dynamic { offset, relative, .. }) if no_width => {
                // Set once all fields are known.
                return Op::DynChars { offset: *offset, relative: *relative, probe: None };
            }
            _ => {}
        }
        if matches!(spec.conv, Conv::Str) && no_width {
            return match arg {
                Expr::Text(t) => Op::Text(t),
                arg => Op::General { spec: Box::new(spec), arg: Box::new(arg), ty },
            };
        }
    }
    Op::General { spec: Box::new(spec), arg: Box::new(arg), ty }
}

/// Whether a decimal conversion of a field can print its value as loaded, and
/// how: the argument is promoted to an int, then read at the conversion's size.
fn decimal_sign(size: u8, signed: bool, spec: &Spec) -> Option<bool> {
    let want = spec.conv == Conv::Signed;
    if size == spec.size {
        return Some(want);
    }
    // A narrower unsigned value fits everywhere; a narrower signed one where
    // the conversion is signed too.
    (size < spec.size && (!signed || want)).then_some(signed)
}

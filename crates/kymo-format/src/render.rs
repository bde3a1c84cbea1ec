//! Running a plan over a payload.

use kymo_model::UntrustedText;

use crate::context::RenderContext;
use crate::ctype::{IntTy, Ty};
use crate::expr::{Expr, Scope, Val};
use crate::field::{FAULT, dynamic, fixed, load, nul16, until_nul};
use crate::format::EventFormat;
use crate::line_writer::LineWriter;
use crate::print_fmt::{Op, Plan};
use crate::spec::{self, Amount, Conv, MAX_WIDTH, Shape, Spec};
use crate::text::{self, MAX_OUTPUT};
use crate::{binprintf, pointer};

impl EventFormat {
    /// Appends the text the kernel's `trace` file shows for `payload` (the raw
    /// record from `common_type` on). A payload shorter than the format says
    /// reads as zeros and empty strings; at most 64 KiB are appended.
    pub fn render(&self, out: &mut Vec<u8>, payload: &[u8], ctx: &RenderContext<'_>) {
        let mut line = LineWriter::new(out);
        self.write(&mut line, payload, ctx);
        line.finish();
    }

    /// Writes a payload to a line writer, for many lines.
    pub fn write(&self, line: &mut LineWriter<'_>, payload: &[u8], ctx: &RenderContext<'_>) {
        let start = line.position();
        if self.plan.binary_printf
            && line.buffered(|out| binprintf::render(self, out, payload, ctx))
        {
            return;
        }
        if self.plan.by_fields {
            line.buffered(|out| self.render_fields(out, payload, ctx));
        } else {
            run(&self.plan, line, payload, ctx);
        }
        if line.position() > start + MAX_OUTPUT {
            line.rewind(start + MAX_OUTPUT);
        }
    }
}

#[inline]
fn run(plan: &Plan, line: &mut LineWriter<'_>, payload: &[u8], ctx: &RenderContext<'_>) {
    let end = line.position() + MAX_OUTPUT;
    let endian = ctx.endian;
    let scope = Scope { payload, endian, hz: ctx.hz };
    for (n, op) in plan.ops.iter().enumerate() {
        match op {
            Op::Literal(l) => line.text(l),
            Op::Short(bytes, n) => line.write_prefix(bytes, usize::from(*n)),
            Op::Decimal { offset, size, signed } => {
                let v = load(payload, *offset, *size, *signed, endian).unwrap_or(0);
                decimal(line, v, *signed);
            }
            Op::ThenDecimal { text, len, offset, size, signed } => {
                line.write_prefix(text, usize::from(*len));
                let v = load(payload, *offset, *size, *signed, endian).unwrap_or(0);
                decimal(line, v, *signed);
            }
            Op::ThenHex { text, len, offset, size, signed, mask, digits } => {
                line.write_prefix(text, usize::from(*len));
                let v = load(payload, *offset, *size, *signed, endian).unwrap_or(0);
                line.hex(v & mask, usize::from(*digits));
            }
            Op::Hex { offset, size, signed, mask, digits } => {
                let v = load(payload, *offset, *size, *signed, endian).unwrap_or(0);
                line.hex(v & mask, usize::from(*digits));
            }
            Op::Chars { offset, len } => {
                let bytes = fixed(payload, *offset, *len);
                match bytes.first_chunk::<16>().filter(|_| bytes.len() == 16) {
                    Some(comm) => short_text(line, comm),
                    None => foreign_text(line, until_nul(bytes), n + 1 == plan.ops.len()),
                }
            }
            Op::DynChars { offset, relative, probe } => {
                let text = match probe {
                    Some(probe) => {
                        probe.read(payload, (*offset, *relative), endian).unwrap_or(FAULT)
                    }
                    None => dynamic(payload, *offset, *relative, endian),
                };
                let text = until_nul(text);
                foreign_text(line, text, n + 1 == plan.ops.len());
            }
            Op::Text(t) => line.buffered(|out| text::write(t, out, scope)),
            Op::General { spec, arg, ty } => {
                let argument =
                    GeneralArgument { expr: arg, ty: *ty, is_last: n + 1 == plan.ops.len() };
                line.buffered(|out| general(out, spec, argument, scope, ctx));
            }
            Op::Missing => line.text(b"(missing)"),
        }
        if line.position() > end {
            return;
        }
    }
}

/// Writes the name of a task.
#[inline]
fn short_text(line: &mut LineWriter<'_>, text: &[u8; 16]) {
    let len = nul16(text);
    let name = UntrustedText::new(text.get(..len).unwrap_or(text));
    if name.is_printable_ascii() {
        line.write_prefix(text, len)
    } else {
        line.text(&name.escaped())
    }
}

/// Writes text that a program or user chose. As the last field it may end its line, as texts
/// of `trace_marker` do.
#[inline]
fn foreign_text(line: &mut LineWriter<'_>, text: &[u8], is_last: bool) {
    match text.strip_suffix(b"\n").filter(|_| is_last) {
        Some(text) => {
            line.text(&UntrustedText::new(text).escaped());
            line.text(b"\n");
        }
        None => line.text(&UntrustedText::new(text).escaped()),
    }
}

#[inline]
fn decimal(line: &mut LineWriter<'_>, v: u64, signed: bool) {
    if signed {
        line.signed(v as i64);
    } else {
        line.decimal(v);
    }
}

/// Settles `*` amounts.
fn shape(spec: &Spec, s: Scope<'_>) -> Shape {
    let mut shape = Shape {
        left: spec.left,
        plus: spec.plus,
        space: spec.space,
        alt: spec.alt,
        zero: spec.zero,
        width: 0,
        precision: None,
    };
    match &spec.width {
        Amount::None => {}
        Amount::Fixed(n) => shape.width = *n,
        Amount::Arg(e) => {
            let w = IntTy::INT.wrap(e.int(s)) as i64;
            shape.left |= w < 0;
            shape.width = (w.unsigned_abs() as usize).min(MAX_WIDTH);
        }
    }
    shape.precision = match &spec.precision {
        Amount::None => None,
        Amount::Fixed(n) => Some(*n),
        Amount::Arg(e) => {
            let p = IntTy::INT.wrap(e.int(s)) as i64;
            Some(usize::try_from(p).unwrap_or(0).min(MAX_OUTPUT))
        }
    };
    shape
}

/// Argument of a conversion that no operation of its own renders.
struct GeneralArgument<'a> {
    expr: &'a Expr,
    ty: Ty,
    /// Nothing follows it in its line.
    is_last: bool,
}

fn general(
    out: &mut Vec<u8>,
    spec: &Spec,
    GeneralArgument { expr: arg, ty, is_last }: GeneralArgument<'_>,
    s: Scope<'_>,
    ctx: &RenderContext<'_>,
) {
    let shape = shape(spec, s);
    let start = out.len();
    match spec.conv {
        Conv::Str => {
            text::string(out, arg.eval(s), s, (shape.precision, is_last), ctx.symbols);
            spec::fit(out, start, shape);
        }
        Conv::Char => {
            UntrustedText::new(&[arg.int(s) as u8]).write_escaped(out);
            spec::fit(out, start, Shape { precision: None, ..shape });
        }
        Conv::Pointer => pointer::write(out, &spec.ext, arg.eval(s), shape, s, ctx),
        conv => match arg.eval(s) {
            Val::Int(v) => {
                // Narrow arguments arrive as ints.
                let v = match ty {
                    Ty::Int(i) => i.wrap(v),
                    _ => v,
                };
                spec::integer(out, v, spec.size, conv, shape);
            }
            other => text::string(out, other, s, (shape.precision, is_last), ctx.symbols),
        },
    }
}

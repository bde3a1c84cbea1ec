//! Running a plan over a payload.

use crate::context::{PointerStyle, RenderContext};
use crate::ctype::{IntTy, Ty};
use crate::expr::{Expr, Scope, Val};
use crate::field::{dynamic, fixed, load, nul16, until_nul};
use crate::format::EventFormat;
use crate::pen::Pen;
use crate::plan::{Op, Plan};
use crate::spec::{self, Amount, Conv, MAX_WIDTH, Shape, Spec};
use crate::text::{self, MAX_OUTPUT};
use crate::{binprintf, pointer};

impl EventFormat {
    /// Appends the text the kernel's `trace` file shows for `payload` (the raw
    /// record from `common_type` on). A payload shorter than the format says
    /// reads as zeros and empty strings; at most 64 KiB are appended.
    pub fn render(&self, out: &mut Vec<u8>, payload: &[u8], ctx: &RenderContext<'_>) {
        let mut pen = Pen::new(out);
        self.write(&mut pen, payload, ctx);
        pen.end();
    }

    /// The same where many lines are written.
    pub fn write(&self, pen: &mut Pen<'_>, payload: &[u8], ctx: &RenderContext<'_>) {
        let start = pen.place();
        if self.plan.binary_printf && pen.apart(|out| binprintf::render(self, out, payload, ctx)) {
            return;
        }
        if self.plan.by_fields {
            pen.apart(|out| self.render_fields(out, payload, ctx));
        } else {
            run(&self.plan, pen, payload, ctx);
        }
        if pen.place() > start + MAX_OUTPUT {
            pen.back(start + MAX_OUTPUT);
        }
    }
}

#[inline]
fn run(plan: &Plan, pen: &mut Pen<'_>, payload: &[u8], ctx: &RenderContext<'_>) {
    let end = pen.place() + MAX_OUTPUT;
    let endian = ctx.endian;
    let scope = Scope { payload, endian, hz: ctx.hz };
    for op in &plan.ops {
        match op {
            Op::Literal(l) => pen.text(l),
            Op::Short(bytes, n) => pen.some(bytes, usize::from(*n)),
            Op::Decimal { offset, size, signed } => {
                let v = load(payload, *offset, *size, *signed, endian).unwrap_or(0);
                decimal(pen, v, *signed);
            }
            Op::ThenDecimal { text, len, offset, size, signed } => {
                pen.some(text, usize::from(*len));
                let v = load(payload, *offset, *size, *signed, endian).unwrap_or(0);
                decimal(pen, v, *signed);
            }
            Op::ThenHex { text, len, offset, size, signed, mask, digits } => {
                pen.some(text, usize::from(*len));
                let v = load(payload, *offset, *size, *signed, endian).unwrap_or(0);
                pen.hex(v & mask, usize::from(*digits));
            }
            Op::Hex { offset, size, signed, mask, digits } => {
                let v = load(payload, *offset, *size, *signed, endian).unwrap_or(0);
                pen.hex(v & mask, usize::from(*digits));
            }
            Op::Chars { offset, len } => {
                let bytes = fixed(payload, *offset, *len);
                match bytes.try_into() {
                    Ok(comm) => pen.some(comm, nul16(comm)),
                    Err(_) => pen.text(until_nul(bytes)),
                }
            }
            Op::DynChars { offset, relative } => {
                pen.text(until_nul(dynamic(payload, *offset, *relative, endian)));
            }
            Op::Text(t) => pen.apart(|out| text::write(t, out, scope)),
            Op::General { spec, arg, ty } => {
                pen.apart(|out| general(out, spec, arg, *ty, scope, ctx));
            }
            Op::Missing => pen.text(b"(missing)"),
        }
        if pen.place() > end {
            return;
        }
    }
}

#[inline]
fn decimal(pen: &mut Pen<'_>, v: u64, signed: bool) {
    if signed {
        pen.signed(v as i64);
    } else {
        pen.decimal(v);
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

fn general(
    out: &mut Vec<u8>,
    spec: &Spec,
    arg: &Expr,
    ty: Ty,
    s: Scope<'_>,
    ctx: &RenderContext<'_>,
) {
    let shape = shape(spec, s);
    let start = out.len();
    match spec.conv {
        Conv::Str => {
            text::string(out, arg.eval(s), s, shape.precision, ctx.symbols);
            spec::fit(out, start, shape);
        }
        Conv::Char => {
            out.push(arg.int(s) as u8);
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
            other => text::string(out, other, s, shape.precision, ctx.symbols),
        },
    }
}

/// `%p`: the value in digits.
pub(crate) fn plain_pointer(out: &mut Vec<u8>, v: u64, shape: Shape, ctx: &RenderContext<'_>) {
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

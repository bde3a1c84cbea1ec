//! `ftrace:bprint`: what `trace_printk` leaves in the ring is the address of
//! its format and the arguments in binary.

use kymo_model::UntrustedText;

use crate::context::RenderContext;
use crate::expr::{Scope, Val};
use crate::field::{Field, load, until_nul};
use crate::format::EventFormat;
use crate::spec::{self, Amount, Conv, Piece, Shape, pieces};
use crate::text::MAX_OUTPUT;
use crate::{pointer, text};

/// Renders such an event; false if the format string is not known.
pub(crate) fn render(
    event: &EventFormat,
    out: &mut Vec<u8>,
    payload: &[u8],
    ctx: &RenderContext<'_>,
) -> bool {
    let address = |name| event.field(name).and_then(|f: &Field| f.int(payload, ctx.endian));
    let (Some(ip), Some(fmt)) = (address("ip"), address("fmt")) else { return false };
    let Some(format) = ctx.symbols.printk_string(fmt as u64) else { return false };
    let Some(buf) = event.field("buf") else { return false };
    let scope = Scope { payload, endian: ctx.endian, hz: ctx.hz };
    pointer::write(out, "s", Val::Int(ip as u64), Shape::default(), scope, ctx);
    out.extend_from_slice(b": ");
    // Fields of this event are as wide as a `long` of the recorded machine.
    let long = event.field("ip").map_or(8, |f| if f.size == 4 { 4 } else { 8 });
    let mut args = Args { bytes: buf.bytes(payload, ctx.endian), at: 0, long, scope };
    let start = out.len();
    for piece in pieces(format.as_bytes(), long) {
        if out.len() - start > MAX_OUTPUT {
            break;
        }
        match piece {
            Piece::Literal(l) => out.extend_from_slice(&l),
            Piece::Conversion { spec, star_width, star_precision } => {
                let mut shape = Shape {
                    left: spec.left,
                    plus: spec.plus,
                    space: spec.space,
                    alt: spec.alt,
                    zero: spec.zero,
                    width: fixed(&spec.width).unwrap_or(0),
                    precision: fixed(&spec.precision),
                };
                if star_width {
                    let w = args.int(4) as u32 as i32;
                    shape.left |= w < 0;
                    shape.width = (w.unsigned_abs() as usize).min(spec::MAX_WIDTH);
                }
                if star_precision {
                    let p = args.int(4) as u32 as i32;
                    shape.precision = Some(usize::try_from(p).unwrap_or(0));
                }
                one(out, &spec, shape, &mut args, ctx);
            }
        }
    }
    true
}

fn fixed(a: &Amount) -> Option<usize> {
    if let Amount::Fixed(n) = a { Some(*n) } else { None }
}

fn one(
    out: &mut Vec<u8>,
    spec: &spec::Spec,
    shape: Shape,
    args: &mut Args<'_>,
    ctx: &RenderContext<'_>,
) {
    let start = out.len();
    match spec.conv {
        Conv::Str => {
            let s = args.string();
            text::string(out, Val::Bytes(s), args.scope, (shape.precision, false), ctx.symbols);
            spec::fit(out, start, shape);
        }
        Conv::Char => {
            UntrustedText::new(&[args.int(1) as u8]).write_escaped(out);
            spec::fit(out, start, Shape { precision: None, ..shape });
        }
        Conv::Pointer => match spec.ext.as_bytes().first() {
            None | Some(b'S' | b's' | b'f' | b'F' | b'K' | b'x' | b'e') => {
                let v = args.int(args.long);
                pointer::write(out, &spec.ext, Val::Int(v), shape, args.scope, ctx);
            }
            // Others were made text when the event was recorded.
            _ => {
                let s = args.string();
                UntrustedText::new(s).write_escaped(out);
            }
        },
        conv => {
            let v = args.int(spec.size);
            spec::integer(out, v, spec.size, conv, shape);
        }
    }
}

/// Arguments as `vbin_printf` packs them: aligned to their size, at most 4.
struct Args<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes of a `long` and of a pointer.
    long: u8,
    scope: Scope<'a>,
}

impl<'a> Args<'a> {
    fn int(&mut self, size: u8) -> u64 {
        let align = usize::from(size.min(4));
        self.at = self.at.next_multiple_of(align.max(1));
        let v = load(self.bytes, self.at as u32, size, false, self.scope.endian).unwrap_or(0);
        self.at += usize::from(size);
        v
    }

    fn string(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let s = until_nul(rest);
        self.at += s.len() + 1;
        s
    }
}

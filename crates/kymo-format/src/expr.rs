//! The tree a print format's arguments are compiled to, and how it is evaluated.
//!
//! Field names are resolved and constant parts folded when the tree is built;
//! evaluating allocates nothing. A tree's depth is bounded by the parser.

use kymo_model::Endian;

use crate::ctype::IntTy;
use crate::field::{dynamic, fixed, load, tail};

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinOp {
    Mul,
    Div,
    Rem,
    Add,
    Sub,
    Shl,
    Shr,
    Lt,
    Gt,
    Le,
    Ge,
    Eq,
    Ne,
    And,
    Xor,
    Or,
    LogAnd,
    LogOr,
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnOp {
    Neg,
    BitNot,
    Not,
}

/// A value and its name.
pub(crate) type Row = (u64, Box<[u8]>);

/// Rows of `__print_flags` and `__print_symbolic`.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
    /// Row of each value below its length (`u16::MAX`: none), for symbolic
    /// tables with small values.
    pub(crate) dense: Vec<u16>,
}

/// Helpers whose result is text.
#[derive(Clone, Debug)]
pub(crate) enum TextFn {
    Flags {
        value: Box<Expr>,
        delim: Box<[u8]>,
        table: Table,
    },
    Symbolic {
        value: Box<Expr>,
        table: Table,
    },
    Hex {
        bytes: Box<Expr>,
        len: Box<Expr>,
        joined: bool,
    },
    Array {
        bytes: Box<Expr>,
        count: Option<Box<Expr>>,
        elem: Box<Expr>,
    },
    HexDump {
        prefix: Box<[u8]>,
        kind: u8,
        row: u64,
        group: u64,
        bytes: Box<Expr>,
        len: Box<Expr>,
        ascii: bool,
    },
    Bitmask {
        bytes: Box<Expr>,
    },
    ErrorType(Box<Expr>),
    /// A function of the kernel that is not exported: name and arguments are shown.
    Unknown {
        name: Box<str>,
        args: Vec<Expr>,
    },
}

/// A node. The type of an integer node is the one it evaluates to.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Const(u64),
    Str(Box<[u8]>),
    Null,
    /// A scalar field.
    Load {
        offset: u32,
        size: u8,
        signed: bool,
    },
    /// Bytes of a fixed array; length 0 means the rest of the payload.
    Bytes {
        offset: u32,
        len: u32,
    },
    /// Bytes behind a `__data_loc` word.
    Dynamic {
        offset: u32,
        relative: bool,
    },
    /// Length behind a `__data_loc` word.
    DynamicLen {
        offset: u32,
    },
    Un(UnOp, IntTy, Box<Expr>),
    Bin(BinOp, IntTy, Box<(Expr, Expr)>),
    Cond(Box<(Expr, Expr, Expr)>),
    Cast(IntTy, Box<Expr>),
    /// Element of bytes.
    Index(IntTy, Box<(Expr, Expr)>),
    /// Jiffies to milliseconds.
    Jiffies(Box<Expr>),
    Text(Box<TextFn>),
}

/// Result of evaluating a node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Val<'v> {
    Int(u64),
    Bytes(&'v [u8]),
    Text(&'v TextFn),
    Null,
}

/// The payload a tree is evaluated on.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'v> {
    pub(crate) payload: &'v [u8],
    pub(crate) endian: Endian,
    pub(crate) hz: u32,
}

impl Expr {
    /// Evaluates the tree.
    pub(crate) fn eval<'v>(&'v self, s: Scope<'v>) -> Val<'v> {
        match self {
            Expr::Const(v) => Val::Int(*v),
            Expr::Str(b) => Val::Bytes(b),
            Expr::Null => Val::Null,
            Expr::Load { offset, size, signed } => {
                Val::Int(load(s.payload, *offset, *size, *signed, s.endian).unwrap_or(0))
            }
            Expr::Bytes { offset, len: 0 } => Val::Bytes(tail(s.payload, *offset)),
            Expr::Bytes { offset, len } => Val::Bytes(fixed(s.payload, *offset, *len)),
            Expr::Dynamic { offset, relative } => {
                Val::Bytes(dynamic(s.payload, *offset, *relative, s.endian))
            }
            Expr::DynamicLen { offset } => {
                Val::Int(load(s.payload, *offset, 4, false, s.endian).unwrap_or(0) >> 16)
            }
            Expr::Cond(c) => {
                if c.0.truth(s) {
                    c.1.eval(s)
                } else {
                    c.2.eval(s)
                }
            }
            // Each operand is evaluated once: a chain must not double the work.
            Expr::Un(op, ty, e) => Val::Int(match op {
                UnOp::Neg => ty.wrap(e.int(s).wrapping_neg()),
                UnOp::BitNot => ty.wrap(!e.int(s)),
                UnOp::Not => u64::from(!e.truth(s)),
            }),
            Expr::Bin(op, ty, ab) => Val::Int(match op {
                BinOp::LogAnd => u64::from(ab.0.truth(s) && ab.1.truth(s)),
                BinOp::LogOr => u64::from(ab.0.truth(s) || ab.1.truth(s)),
                _ => binary(*op, *ty, ab.0.int(s), ab.1.int(s)),
            }),
            Expr::Cast(ty, e) => match e.eval(s) {
                Val::Int(v) => Val::Int(ty.wrap(v)),
                // A pointer into the record has no address here.
                Val::Null => Val::Int(0),
                other => other,
            },
            Expr::Index(ty, be) => {
                let Val::Bytes(b) = be.0.eval(s) else { return Val::Int(0) };
                let at = be.1.int(s).saturating_mul(u64::from(ty.size));
                let at = u32::try_from(at).unwrap_or(u32::MAX);
                Val::Int(load(b, at, ty.size, ty.signed, s.endian).unwrap_or(0))
            }
            Expr::Jiffies(e) => {
                let hz = u64::from(s.hz.max(1));
                Val::Int(IntTy::UINT.wrap(e.int(s).wrapping_mul(1000).wrapping_div(hz)))
            }
            Expr::Text(t) => Val::Text(t),
        }
    }

    /// Nodes of the tree.
    pub(crate) fn size(&self) -> usize {
        1 + match self {
            Expr::Un(_, _, e) | Expr::Cast(_, e) | Expr::Jiffies(e) => e.size(),
            Expr::Bin(_, _, ab) | Expr::Index(_, ab) => ab.0.size() + ab.1.size(),
            Expr::Cond(c) => c.0.size() + c.1.size() + c.2.size(),
            Expr::Text(t) => match &**t {
                TextFn::Flags { value: e, .. }
                | TextFn::Symbolic { value: e, .. }
                | TextFn::Bitmask { bytes: e }
                | TextFn::ErrorType(e) => e.size(),
                TextFn::Hex { bytes, len, .. } | TextFn::HexDump { bytes, len, .. } => {
                    bytes.size() + len.size()
                }
                TextFn::Array { bytes, count, elem } => {
                    bytes.size() + elem.size() + count.as_ref().map_or(0, |c| c.size())
                }
                TextFn::Unknown { args, .. } => args.iter().map(Expr::size).sum(),
            },
            _ => 0,
        }
    }

    /// Evaluates to an integer; whatever is none counts as 0.
    pub(crate) fn int(&self, s: Scope<'_>) -> u64 {
        match self.eval(s) {
            Val::Int(v) => v,
            _ => 0,
        }
    }

    /// Whether the value is not zero, as `if` sees it.
    pub(crate) fn truth(&self, s: Scope<'_>) -> bool {
        match self.eval(s) {
            Val::Int(v) => v != 0,
            Val::Null => false,
            Val::Bytes(_) | Val::Text(_) => true,
        }
    }
}

/// One operation on operands that were converted to `ty` (for shifts: the left one).
pub(crate) fn binary(op: BinOp, ty: IntTy, a: u64, b: u64) -> u64 {
    let (a, bits) = (ty.wrap(a), u32::from(ty.size) * 8);
    let shift = (b as u32) & (bits - 1);
    if matches!(op, BinOp::Shl) {
        return ty.wrap(a << shift);
    }
    if matches!(op, BinOp::Shr) {
        return if ty.signed { ((a as i64) >> shift) as u64 } else { a >> shift };
    }
    let b = ty.wrap(b);
    let order = if ty.signed { (a as i64).cmp(&(b as i64)) } else { a.cmp(&b) };
    match op {
        BinOp::Mul => ty.wrap(a.wrapping_mul(b)),
        BinOp::Add => ty.wrap(a.wrapping_add(b)),
        BinOp::Sub => ty.wrap(a.wrapping_sub(b)),
        BinOp::Div | BinOp::Rem if b == 0 => 0,
        BinOp::Div if ty.signed => ty.wrap((a as i64).wrapping_div(b as i64) as u64),
        BinOp::Rem if ty.signed => ty.wrap((a as i64).wrapping_rem(b as i64) as u64),
        BinOp::Div => a / b,
        BinOp::Rem => a % b,
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Lt => u64::from(order.is_lt()),
        BinOp::Gt => u64::from(order.is_gt()),
        BinOp::Le => u64::from(order.is_le()),
        BinOp::Ge => u64::from(order.is_ge()),
        BinOp::Eq => u64::from(order.is_eq()),
        BinOp::Ne => u64::from(order.is_ne()),
        BinOp::Shl | BinOp::Shr | BinOp::LogAnd | BinOp::LogOr => 0,
    }
}

impl Table {
    /// Builds a table; `lookup` makes it fast to find a value.
    pub(crate) fn new(rows: Vec<Row>, lookup: bool) -> Table {
        let mut dense = Vec::new();
        if lookup && rows.len() > 8 {
            let top = rows.iter().map(|r| r.0).filter(|v| *v < 1024).max().unwrap_or(0);
            dense = vec![u16::MAX; top as usize + 1];
            for (i, (v, _)) in rows.iter().enumerate().take(u16::MAX as usize).rev() {
                if let Some(slot) = dense.get_mut(*v as usize) {
                    *slot = i as u16;
                }
            }
        }
        Table { rows, dense }
    }

    /// The name of a value.
    pub(crate) fn find(&self, v: u64) -> Option<&[u8]> {
        if v < self.dense.len() as u64 {
            let i = *self.dense.get(v as usize)?;
            return self.rows.get(usize::from(i)).map(|r| &*r.1);
        }
        self.rows.iter().find(|r| r.0 == v).map(|r| &*r.1)
    }
}

//! Recursive descent over the C expressions of print formats, straight to
//! [`Expr`] trees with fields resolved.
//!
//! Depth and size are bounded: a text that goes beyond is an error of that
//! print format, which then falls back to showing its fields.

use crate::constants::Constants;
use crate::ctype::{self, IntTy, Ty};
use crate::expr::{BinOp, Expr, Scope, UnOp, Val, binary};
use crate::field::{Field, FieldKind};
use crate::lex::{Tok, unescape};

/// Facts that a format text omits.
#[derive(Clone, Copy)]
pub struct ParseOptions<'a> {
    /// Bytes of a `long` on the machine that wrote it: 8 or 4.
    pub long_size: u8,
    /// Lookup of enumerator names that the kernel left in the text.
    pub constants: &'a dyn Constants,
}

impl Default for ParseOptions<'_> {
    fn default() -> Self {
        Self { long_size: 8, constants: &crate::constants::Builtin }
    }
}

/// Why a print format could not be compiled.
pub(crate) type Reason = String;

/// End of the reason for a name that could not be resolved.
pub(crate) const UNKNOWN: &str = " is not known";

/// Deepest nesting of expressions.
const MAX_DEPTH: u32 = 96;
/// Most nodes of one print format.
const MAX_NODES: u32 = 20_000;

/// Most nodes of one tree after constants are folded; keeps evaluation short and its recursion
/// within any stack.
const MAX_TREE: usize = 1000;

/// An expression with its static type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) expr: Expr,
    pub(crate) ty: Ty,
}

/// The state of parsing one print format.
pub(crate) struct Parser<'a> {
    pub(crate) toks: &'a [Tok<'a>],
    pub(crate) pos: usize,
    pub(crate) fields: &'a [Field],
    pub(crate) long: u8,
    pub(crate) constants: &'a dyn Constants,
    /// Notes on parts that could not be parsed exactly.
    pub(crate) notes: Vec<String>,
    /// Names of unknown value.
    pub(crate) unresolved: Vec<String>,
    pub(crate) depth: u32,
    pub(crate) nodes: u32,
    /// Variables of `({ int x = …; … })`.
    pub(crate) vars: Vec<(&'a str, Typed)>,
}

impl<'a> Parser<'a> {
    pub(crate) fn peek(&self) -> Tok<'a> {
        self.toks.get(self.pos).copied().unwrap_or(Tok::End)
    }

    fn peek_at(&self, n: usize) -> Tok<'a> {
        self.toks.get(self.pos + n).copied().unwrap_or(Tok::End)
    }

    pub(crate) fn bump(&mut self) -> Tok<'a> {
        let t = self.peek();
        self.pos += 1;
        t
    }

    pub(crate) fn eat(&mut self, p: &str) -> bool {
        let hit = matches!(self.peek(), Tok::Punct(q) if q == p);
        self.pos += usize::from(hit);
        hit
    }

    pub(crate) fn expect(&mut self, p: &str) -> Result<(), Reason> {
        if self.eat(p) { Ok(()) } else { Err(format!("expected {p:?}, found {:?}", self.peek())) }
    }

    /// String literals in a row, joined.
    pub(crate) fn literal(&mut self) -> Option<Vec<u8>> {
        let Tok::Str(_) = self.peek() else { return None };
        let mut out = Vec::new();
        while let Tok::Str(s) = self.peek() {
            out.extend(unescape(s));
            self.pos += 1;
        }
        Some(out)
    }

    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, Reason>) -> Result<T, Reason> {
        self.nodes += 1;
        if self.depth >= MAX_DEPTH || self.nodes > MAX_NODES {
            return Err("expression is nested too deep or too long".to_owned());
        }
        self.depth += 1;
        let r = f(self);
        self.depth -= 1;
        r
    }

    /// One argument of the format. An argument that depends on an unknown value, such as the
    /// kernel's `jiffies` at the time of printing, shows as `?`.
    pub(crate) fn argument(&mut self) -> Result<Typed, Reason> {
        let start = self.pos;
        match self.expr() {
            Err(reason) if reason.ends_with(UNKNOWN) => {
                self.pos = start;
                self.depth = 0;
                self.skip_argument();
                let ty = Ty::Ptr { size: 1, elem: Some(IntTy::CHAR) };
                Ok(Typed { expr: Expr::Str((*b"?").into()), ty })
            }
            other => other,
        }
    }

    fn skip_argument(&mut self) {
        let mut depth = 0i32;
        loop {
            match self.peek() {
                Tok::Punct("(" | "{" | "[") => depth += 1,
                Tok::Punct(")" | "}" | "]") => depth -= 1,
                Tok::Punct(",") if depth <= 0 => return,
                Tok::End => return,
                _ => {}
            }
            self.pos += 1;
        }
    }

    /// A whole expression, ternary included.
    pub(crate) fn expr(&mut self) -> Result<Typed, Reason> {
        self.deeper(|p| {
            let cond = p.binary_expr(0)?;
            if !p.eat("?") {
                return Ok(cond);
            }
            let elvis = matches!(p.peek(), Tok::Punct(":"));
            let yes = if elvis { bounded(cond.clone())? } else { p.expr()? };
            p.expect(":")?;
            let no = p.expr()?;
            if let Expr::Const(c) = cond.expr {
                return Ok(if c != 0 { yes } else { no });
            }
            bounded(p.conditional(cond, yes, no))
        })
    }

    fn conditional(&self, cond: Typed, yes: Typed, no: Typed) -> Typed {
        let (mut a, mut b, mut ty) = (yes.expr, no.expr, yes.ty);
        if let (Ty::Int(x), Ty::Int(y)) = (yes.ty, no.ty) {
            let t = x.common(y);
            ty = Ty::Int(t);
            a = convert(a, x, t);
            b = convert(b, y, t);
        } else if matches!(yes.ty, Ty::Int(_)) {
            ty = no.ty;
        }
        Typed { expr: Expr::Cond(Box::new((cond.expr, a, b))), ty }
    }

    fn binary_expr(&mut self, min: u8) -> Result<Typed, Reason> {
        let mut left = self.unary()?;
        while let Tok::Punct(p) = self.peek() {
            let Some((op, level)) = operator(p) else { break };
            if level < min {
                break;
            }
            self.pos += 1;
            let right = self.deeper(|q| q.binary_expr(level + 1))?;
            left = bounded(self.combine(op, left, right))?;
        }
        Ok(left)
    }

    fn combine(&mut self, op: BinOp, a: Typed, b: Typed) -> Typed {
        let long = self.long;
        // Pointer arithmetic counts in elements.
        let (a, b, ptr) = match (op, a.ty, b.ty) {
            (BinOp::Add | BinOp::Sub, Ty::Ptr { size, .. }, Ty::Int(i)) => {
                let ty = a.ty;
                (a, scale(b, i, size, long), Some(ty))
            }
            (BinOp::Add, Ty::Int(i), Ty::Ptr { size, .. }) => {
                let ty = b.ty;
                (scale(a, i, size, long), b, Some(ty))
            }
            _ => (a, b, None),
        };
        let (x, y) = (a.ty.int(long), b.ty.int(long));
        let (work, result) = match op {
            BinOp::Shl | BinOp::Shr => (x.promote(), x.promote()),
            BinOp::LogAnd | BinOp::LogOr => (IntTy::INT, IntTy::INT),
            BinOp::Lt | BinOp::Gt | BinOp::Le | BinOp::Ge | BinOp::Eq | BinOp::Ne => {
                (x.common(y), IntTy::INT)
            }
            _ => (x.common(y), x.common(y)),
        };
        let ty = ptr.unwrap_or(Ty::Int(result));
        if let (Expr::Const(l), Expr::Const(r)) = (&a.expr, &b.expr) {
            let v = match op {
                BinOp::LogAnd => u64::from(*l != 0 && *r != 0),
                BinOp::LogOr => u64::from(*l != 0 || *r != 0),
                _ => binary(op, work, *l, *r),
            };
            return Typed { expr: Expr::Const(v), ty };
        }
        Typed { expr: Expr::Bin(op, work, Box::new((a.expr, b.expr))), ty }
    }

    fn unary(&mut self) -> Result<Typed, Reason> {
        self.deeper(|p| {
            let Tok::Punct(op) = p.peek() else { return p.postfix() };
            match op {
                "-" | "~" | "!" | "+" => {
                    p.pos += 1;
                    let e = p.unary()?;
                    Ok(p.apply_unary(op, e))
                }
                "&" => {
                    p.pos += 1;
                    let e = p.unary()?;
                    Ok(address_of(e))
                }
                "*" => {
                    p.pos += 1;
                    let e = p.unary()?;
                    let zero = Typed { expr: Expr::Const(0), ty: Ty::Int(IntTy::INT) };
                    Ok(index(e, zero))
                }
                "(" => p.parenthesis(),
                _ => p.postfix(),
            }
        })
    }

    fn apply_unary(&self, op: &str, e: Typed) -> Typed {
        let ty = e.ty.int(self.long).promote();
        let (op, result) = match op {
            "-" => (UnOp::Neg, ty),
            "~" => (UnOp::BitNot, ty),
            "!" => (UnOp::Not, IntTy::INT),
            _ => return e,
        };
        if let Expr::Const(v) = e.expr {
            let v = match op {
                UnOp::Neg => ty.wrap(v.wrapping_neg()),
                UnOp::BitNot => ty.wrap(!v),
                UnOp::Not => u64::from(v == 0),
            };
            return Typed { expr: Expr::Const(v), ty: Ty::Int(result) };
        }
        Typed { expr: Expr::Un(op, ty, Box::new(e.expr)), ty: Ty::Int(result) }
    }

    /// `(type)expr`, `({ … })` or a parenthesised expression.
    fn parenthesis(&mut self) -> Result<Typed, Reason> {
        if matches!(self.peek_at(1), Tok::Punct("{")) {
            self.pos += 2;
            let inner = self.statements()?;
            return self.postfix_of(inner);
        }
        let start = self.pos;
        self.pos += 1;
        if let Some((ty, certain)) = self.type_name()
            && self.eat(")")
        {
            let operand = match self.peek() {
                Tok::Ident(_) | Tok::Number { .. } | Tok::Str(_) | Tok::Char(_) => true,
                Tok::Punct("(" | "!" | "~") => true,
                Tok::Punct("-" | "+" | "*" | "&") => certain,
                _ => false,
            };
            if operand {
                let e = self.unary()?;
                return Ok(cast(e, ty, self.long));
            }
        }
        self.pos = start + 1;
        let inner = self.expr()?;
        self.expect(")")?;
        self.postfix_of(inner)
    }

    /// Reads a type name; `certain` when it cannot be an expression.
    fn type_name(&mut self) -> Option<(Ty, bool)> {
        let start = self.pos;
        let mut words: Vec<&str> = Vec::new();
        while let Tok::Ident(w) = self.peek() {
            if (w == "typeof" || w == "__typeof__") && matches!(self.peek_at(1), Tok::Punct("(")) {
                self.pos += 2;
                let e = self.expr().ok()?;
                self.expect(")").ok()?;
                return Some((self.stars(e.ty, 1), true));
            }
            if words.len() >= 8 {
                break;
            }
            words.push(w);
            self.pos += 1;
        }
        let last = *words.last()?;
        if words.contains(&"REC") {
            self.pos = start;
            return None;
        }
        let known = ctype::from_words(words.iter().copied(), self.long);
        let ty = match known {
            Some(t) => t,
            None if words.len() == 1 => {
                // A typedef of this kernel: a field of that type states its size.
                if self.constants.value(last).is_some() || self.vars.iter().any(|v| v.0 == last) {
                    self.pos = start;
                    return None;
                }
                let like = self.fields.iter().find(|f| f.type_text == last);
                let (size, signed) = like.map_or((self.long, false), |f| (f.size as u8, f.signed));
                if matches!(size, 1 | 2 | 4 | 8) {
                    Ty::Int(IntTy { size, signed })
                } else {
                    Ty::Struct
                }
            }
            None => return None,
        };
        let starred = self.stars(ty, ctype::struct_size(last));
        Some((starred, known.is_some() || matches!(starred, Ty::Ptr { .. })))
    }

    fn stars(&mut self, base: Ty, struct_size: u32) -> Ty {
        let mut ty = base;
        loop {
            if self.eat("*") {
                ty = match ty {
                    Ty::Int(i) => Ty::Ptr { size: u32::from(i.size), elem: Some(i) },
                    Ty::Struct => Ty::Ptr { size: struct_size.max(1), elem: None },
                    Ty::Ptr { .. } => Ty::Ptr {
                        size: u32::from(self.long),
                        elem: Some(IntTy { size: self.long, signed: false }),
                    },
                };
            } else if matches!(self.peek(), Tok::Ident("const" | "volatile" | "__user")) {
                self.pos += 1;
            } else if matches!((self.peek(), self.peek_at(1)), (Tok::Punct("["), Tok::Punct("]"))) {
                self.pos += 2;
            } else {
                return ty;
            }
        }
    }

    /// `({ int a = (x); int b = (y); a < b ? a : b; })` after its two brackets.
    fn statements(&mut self) -> Result<Typed, Reason> {
        let outer = self.vars.len();
        loop {
            if let Some((name, ty)) = self.declaration() {
                let value = self.expr()?;
                self.expect(";")?;
                let value = cast(value, ty, self.long);
                self.vars.push((name, value));
                continue;
            }
            let value = self.expr()?;
            self.expect(";")?;
            if self.eat("}") {
                self.expect(")")?;
                self.vars.truncate(outer);
                return Ok(value);
            }
        }
    }

    /// `int name =`, if that is what comes.
    fn declaration(&mut self) -> Option<(&'a str, Ty)> {
        let rest = self.toks.get(self.pos..)?;
        let words: Vec<&'a str> = rest
            .iter()
            .take(8)
            .map_while(|t| if let Tok::Ident(w) = t { Some(*w) } else { None })
            .collect();
        let (name, ty) = words.split_last()?;
        if ty.is_empty() || rest.get(words.len()) != Some(&Tok::Punct("=")) {
            return None;
        }
        let ty = ctype::from_words(ty.iter().copied(), self.long)?;
        self.pos += words.len() + 1;
        Some((name, ty))
    }

    fn postfix(&mut self) -> Result<Typed, Reason> {
        let e = self.primary()?;
        self.postfix_of(e)
    }

    fn postfix_of(&mut self, mut e: Typed) -> Result<Typed, Reason> {
        while self.eat("[") {
            let i = self.expr()?;
            self.expect("]")?;
            e = bounded(index(e, i))?;
        }
        if matches!(self.peek(), Tok::Punct("." | "->")) {
            return Err("member of a structure the format does not describe".to_owned());
        }
        Ok(e)
    }

    fn primary(&mut self) -> Result<Typed, Reason> {
        if let Some(s) = self.literal() {
            let ty = Ty::Ptr { size: 1, elem: Some(IntTy::CHAR) };
            return Ok(Typed { expr: Expr::Str(s.into()), ty });
        }
        match self.bump() {
            Tok::Number { value, unsigned, long, decimal } => {
                let ty = literal_type(value, unsigned, long, decimal, self.long);
                Ok(Typed { expr: Expr::Const(value), ty: Ty::Int(ty) })
            }
            Tok::Char(c) => Ok(Typed {
                expr: Expr::Const(IntTy::CHAR.wrap(u64::from(c))),
                ty: Ty::Int(IntTy::INT),
            }),
            Tok::Ident("REC") => self.member(),
            Tok::Ident("sizeof") => self.size_of(),
            Tok::Ident(name) if matches!(self.peek(), Tok::Punct("(")) => {
                self.pos += 1;
                self.call(name)
            }
            Tok::Ident(name) => self.name(name),
            other => Err(format!("unexpected {other:?}")),
        }
    }

    fn name(&mut self, name: &str) -> Result<Typed, Reason> {
        if let Some((_, v)) = self.vars.iter().rev().find(|v| v.0 == name) {
            let v = v.clone();
            self.nodes += v.expr.size() as u32;
            return bounded(v);
        }
        if ctype::from_words([name, "int"].into_iter(), self.long).is_some() {
            return Err("a declaration of other than integers".to_owned());
        }
        let (v, ty) = match self.constants.value(name) {
            Some(v) if i32::try_from(v).is_ok() => (v as u64, IntTy::INT),
            Some(v) => (v as u64, IntTy { size: 8, signed: false }),
            None => {
                self.unresolved.push(name.to_owned());
                return Err(format!("value of {name}{UNKNOWN}"));
            }
        };
        Ok(Typed { expr: Expr::Const(v), ty: Ty::Int(ty) })
    }

    /// After `REC`: `->name`, perhaps with `.name` behind it.
    fn member(&mut self) -> Result<Typed, Reason> {
        self.expect("->")?;
        let Tok::Ident(mut name) = self.bump() else { return Err("no field after REC->".into()) };
        let mut joined = name.to_owned();
        while matches!(self.peek(), Tok::Punct(".")) {
            self.pos += 1;
            let Tok::Ident(inner) = self.bump() else { return Err("no name after a dot".into()) };
            joined = format!("{joined}.{inner}");
            name = inner;
        }
        let field = self
            .fields
            .iter()
            .find(|f| f.name == joined)
            .or_else(|| self.fields.iter().find(|f| f.name == name))
            .ok_or_else(|| format!("no field {joined}"))?;
        Ok(field_value(field, self.long))
    }

    fn size_of(&mut self) -> Result<Typed, Reason> {
        self.expect("(")?;
        let start = self.pos;
        let ty = match self.type_name() {
            Some((t, _)) if matches!(self.peek(), Tok::Punct(")")) => t,
            _ => {
                self.pos = start;
                let e = self.expr()?;
                if let Expr::Bytes { len, .. } = e.expr {
                    self.expect(")")?;
                    return Ok(size_value(u64::from(len), self.long));
                }
                e.ty
            }
        };
        self.expect(")")?;
        Ok(size_value(ty.size(self.long), self.long))
    }

    /// Finds the field a `__get_…(name)` helper names.
    pub(crate) fn field_argument(&mut self) -> Result<&'a Field, Reason> {
        let Tok::Ident(name) = self.bump() else { return Err("helper names no field".into()) };
        self.expect(")")?;
        self.fields.iter().find(|f| f.name == name).ok_or_else(|| format!("no field {name}"))
    }
}

/// Refuses trees that have grown too large.
fn bounded(e: Typed) -> Result<Typed, Reason> {
    if e.expr.size() > MAX_TREE { Err("expression is too long".to_owned()) } else { Ok(e) }
}

fn size_value(v: u64, long: u8) -> Typed {
    let ty = IntTy { size: long, signed: false };
    Typed { expr: Expr::Const(v), ty: Ty::Int(ty) }
}

fn operator(p: &str) -> Option<(BinOp, u8)> {
    Some(match p {
        "||" => (BinOp::LogOr, 1),
        "&&" => (BinOp::LogAnd, 2),
        "|" => (BinOp::Or, 3),
        "^" => (BinOp::Xor, 4),
        "&" => (BinOp::And, 5),
        "==" => (BinOp::Eq, 6),
        "!=" => (BinOp::Ne, 6),
        "<" => (BinOp::Lt, 7),
        ">" => (BinOp::Gt, 7),
        "<=" => (BinOp::Le, 7),
        ">=" => (BinOp::Ge, 7),
        "<<" => (BinOp::Shl, 8),
        ">>" => (BinOp::Shr, 8),
        "+" => (BinOp::Add, 9),
        "-" => (BinOp::Sub, 9),
        "*" => (BinOp::Mul, 10),
        "/" => (BinOp::Div, 10),
        "%" => (BinOp::Rem, 10),
        _ => return None,
    })
}

/// The type C gives an integer literal.
fn literal_type(v: u64, unsigned: bool, longs: u8, decimal: bool, long: u8) -> IntTy {
    let sizes: &[u8] = match longs {
        0 => &[4, 8],
        1 if long == 4 => &[4, 8],
        _ => &[8],
    };
    for &size in sizes {
        let bits = u32::from(size) * 8;
        let fits_signed = v >> (bits - 1) == 0;
        let fits = bits == 64 || v >> bits == 0;
        if !unsigned && fits_signed {
            return IntTy { size, signed: true };
        }
        if fits && (unsigned || !decimal) {
            return IntTy { size, signed: false };
        }
    }
    IntTy { size: 8, signed: !unsigned && v >> 63 == 0 }
}

fn convert(e: Expr, from: IntTy, to: IntTy) -> Expr {
    // Widening keeps the 64-bit form unless a sign must be dropped.
    if from == to || (to.size == 8) || (to.size > from.size && (to.signed || !from.signed)) {
        return e;
    }
    match e {
        Expr::Const(v) => Expr::Const(to.wrap(v)),
        e => Expr::Cast(to, Box::new(e)),
    }
}

fn scale(e: Typed, int: IntTy, size: u32, long: u8) -> Typed {
    let wide = IntTy { size: long, signed: int.signed };
    let ty = Ty::Int(wide);
    match e.expr {
        expr if size <= 1 => Typed { expr, ty },
        Expr::Const(v) => {
            Typed { expr: Expr::Const(wide.wrap(v.wrapping_mul(u64::from(size)))), ty }
        }
        expr => {
            let by = Expr::Const(u64::from(size));
            Typed { expr: Expr::Bin(BinOp::Mul, wide, Box::new((expr, by))), ty }
        }
    }
}

fn cast(e: Typed, ty: Ty, long: u8) -> Typed {
    let Ty::Int(to) = ty else {
        // A pointer: bytes keep their place and change what they are made of.
        return match (ty, e.expr) {
            (_, Expr::Const(0)) => Typed { expr: Expr::Null, ty },

            (_, x) => Typed { expr: x, ty },
        };
    };
    let from = e.ty.int(long);
    let expr = match e.expr {
        Expr::Const(v) => Expr::Const(to.wrap(v)),
        Expr::Null => Expr::Const(0),
        x if from == to => x,
        // Reading a field and extending it already gives the wider value.
        x @ Expr::Load { .. } if to.size == 8 => x,
        Expr::Load { offset, size, .. } if size == to.size => {
            Expr::Load { offset, size, signed: to.signed }
        }
        x => Expr::Cast(to, Box::new(x)),
    };
    Typed { expr, ty }
}

fn index(base: Typed, at: Typed) -> Typed {
    let elem = match base.ty {
        Ty::Ptr { elem: Some(i), .. } => i,
        _ => IntTy::U8,
    };
    // A constant element of a fixed array is a field of its own.
    if let (Expr::Bytes { offset, len, .. }, Expr::Const(i)) = (&base.expr, &at.expr) {
        let start = i.saturating_mul(u64::from(elem.size));
        if let Ok(start) = u32::try_from(start)
            && (*len == 0 || start.saturating_add(u32::from(elem.size)) <= *len)
            && let Some(offset) = offset.checked_add(start)
        {
            let expr = Expr::Load { offset, size: elem.size, signed: elem.signed };
            return Typed { expr, ty: Ty::Int(elem) };
        }
    }
    let expr = Expr::Index(elem, Box::new((base.expr, at.expr)));
    Typed { expr, ty: Ty::Int(elem) }
}

fn address_of(e: Typed) -> Typed {
    match (e.expr, e.ty) {
        (Expr::Load { offset, size, .. }, Ty::Int(i)) => Typed {
            expr: Expr::Bytes { offset, len: u32::from(size) },
            ty: Ty::Ptr { size: u32::from(size), elem: Some(i) },
        },
        (expr, ty) => Typed { expr, ty },
    }
}

/// The value of `REC->field`.
fn field_value(f: &Field, long: u8) -> Typed {
    let int = |size: u32| match size {
        s @ (1 | 2 | 4 | 8) => Some(IntTy { size: s as u8, signed: f.signed }),
        _ => None,
    };
    let bytes = |elem: IntTy| Typed {
        expr: Expr::Bytes { offset: f.offset, len: f.size },
        ty: Ty::Ptr { size: u32::from(elem.size), elem: Some(elem) },
    };
    match (&f.kind, int(f.size)) {
        (FieldKind::Pointer, Some(i)) => Typed {
            expr: Expr::Load { offset: f.offset, size: i.size, signed: false },
            ty: Ty::Ptr { size: 1, elem: None },
        },
        (FieldKind::Int | FieldKind::Bool, Some(i)) => {
            // A syscall argument has its own type's name in a long's place.
            Typed {
                expr: Expr::Load { offset: f.offset, size: i.size, signed: i.signed },
                ty: Ty::Int(i),
            }
        }
        (FieldKind::String, _) => bytes(IntTy::CHAR),
        (FieldKind::Array { elem, signed }, _) => bytes(IntTy { size: *elem, signed: *signed }),
        (
            FieldKind::DynString { .. } | FieldKind::DynArray { .. } | FieldKind::DynBitmask { .. },
            _,
        ) => {
            // The word itself, as the kernel's structure has it.
            Typed {
                expr: Expr::Load { offset: f.offset, size: 4, signed: false },
                ty: Ty::Int(IntTy { size: 4.min(long), signed: false }),
            }
        }
        _ => bytes(IntTy::U8),
    }
}

/// The value of a tree that uses no field.
pub(crate) fn constant(e: &Expr) -> Option<u64> {
    let scope = Scope { payload: &[], endian: kymo_model::Endian::Little, hz: 1 };
    match e {
        Expr::Const(v) => Some(*v),
        Expr::Cast(..) | Expr::Bin(..) | Expr::Un(..) if pure(e) => match e.eval(scope) {
            Val::Int(v) => Some(v),
            _ => None,
        },
        _ => None,
    }
}

fn pure(e: &Expr) -> bool {
    match e {
        Expr::Const(..) => true,
        Expr::Cast(_, x) | Expr::Un(_, _, x) => pure(x),
        Expr::Bin(_, _, ab) => pure(&ab.0) && pure(&ab.1),
        _ => false,
    }
}

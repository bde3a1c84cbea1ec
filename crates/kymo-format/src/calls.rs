//! The helper functions print formats call: `__print_flags`, `__get_str`, ….

use crate::ctype::{IntTy, Ty};
use crate::expr::{Expr, Row, Table, TextFn};
use crate::field::{Field, FieldKind};
use crate::lex::Tok;
use crate::parse::{Parser, Reason, Typed, UNKNOWN, constant};

const TEXT: Ty = Ty::Ptr { size: 1, elem: Some(IntTy::CHAR) };
/// The most rows of a table that are read.
const MAX_ROWS: usize = 4096;

fn text(f: TextFn) -> Typed {
    Typed { expr: Expr::Text(Box::new(f)), ty: TEXT }
}

fn int(expr: Expr, ty: IntTy) -> Typed {
    Typed { expr, ty: Ty::Int(ty) }
}

impl<'a> Parser<'a> {
    /// A call, after its opening bracket.
    pub(crate) fn call(&mut self, name: &'a str) -> Result<Typed, Reason> {
        match name {
            "__print_flags" | "__print_flags_u64" => {
                let value = Box::new(self.expr()?.expr);
                self.expect(",")?;
                let delim = match self.literal() {
                    Some(d) => d,
                    None => {
                        self.expr()?;
                        Vec::new()
                    }
                };
                let table = Table::new(self.rows()?, false);
                Ok(text(TextFn::Flags { value, delim: delim.into(), table }))
            }
            "__print_symbolic" | "__print_symbolic_u64" => {
                let value = Box::new(self.expr()?.expr);
                let table = Table::new(self.rows()?, true);
                Ok(text(TextFn::Symbolic { value, table }))
            }
            "__print_hex" | "__print_hex_str" => {
                let [bytes, len] = self.two()?;
                let joined = name == "__print_hex_str";
                Ok(text(TextFn::Hex { bytes, len, joined }))
            }
            "__print_array" => {
                let [bytes, count] = self.two_open()?;
                self.expect(",")?;
                let elem = Box::new(self.expr()?.expr);
                self.expect(")")?;
                Ok(text(TextFn::Array { bytes, count: Some(count), elem }))
            }
            "__print_dynamic_array" => {
                let Tok::Ident(field) = self.bump() else { return Err("no field".into()) };
                let field = self.field_named(field)?;
                let bytes = Box::new(dynamic(field).expr);
                self.expect(",")?;
                let elem = Box::new(self.expr()?.expr);
                self.expect(")")?;
                Ok(text(TextFn::Array { bytes, count: None, elem }))
            }
            "__print_hex_dump" => self.hex_dump(),
            "__get_bitmask" | "__get_cpumask" | "__get_rel_bitmask" | "__get_rel_cpumask" => {
                let field = self.field_argument()?;
                Ok(text(TextFn::Bitmask { bytes: Box::new(dynamic(field).expr) }))
            }
            "__get_str" | "__get_rel_str" => {
                let field = self.field_argument()?;
                let mut e = dynamic(field);
                e.ty = TEXT;
                Ok(e)
            }
            "__get_dynamic_array"
            | "__get_rel_dynamic_array"
            | "__get_sockaddr"
            | "__get_rel_sockaddr" => Ok(dynamic(self.field_argument()?)),
            "__get_dynamic_array_len" | "__get_rel_dynamic_array_len" => {
                let offset = self.field_argument()?.offset;
                Ok(int(Expr::DynamicLen { offset }, IntTy::INT))
            }
            "__print_ns_to_secs" | "__print_ns_without_secs" => self.nanoseconds(name),
            "__builtin_expect" | "likely" | "unlikely" => {
                let e = self.expr()?;
                while self.eat(",") {
                    self.expr()?;
                }
                self.expect(")")?;
                Ok(e)
            }
            "jiffies_to_msecs" | "jiffies_to_usecs" => {
                let e = self.expr()?;
                self.expect(")")?;
                let mut x = Expr::Jiffies(Box::new(e.expr));
                if name == "jiffies_to_usecs" {
                    let k = Expr::Const(1000);
                    x = Expr::Bin(crate::expr::BinOp::Mul, IntTy::UINT, Box::new((x, k)));
                }
                Ok(int(x, IntTy::UINT))
            }
            "mc_event_error_type" => {
                let e = self.expr()?;
                self.expect(")")?;
                Ok(text(TextFn::ErrorType(Box::new(e.expr))))
            }
            "trace_seq_buffer_ptr" | "trace_seq_printf" => Err(format!("{name} in an argument")),
            _ => self.unknown_call(name),
        }
    }

    fn field_named(&self, name: &str) -> Result<&'a Field, Reason> {
        self.fields.iter().find(|f| f.name == name).ok_or_else(|| format!("no field {name}"))
    }

    fn two_open(&mut self) -> Result<[Box<Expr>; 2], Reason> {
        let a = Box::new(self.expr()?.expr);
        self.expect(",")?;
        Ok([a, Box::new(self.expr()?.expr)])
    }

    fn two(&mut self) -> Result<[Box<Expr>; 2], Reason> {
        let r = self.two_open()?;
        self.expect(")")?;
        Ok(r)
    }

    /// `, { value, "name" }, … )`. Rows with an unknown value are left out and noted: a value that
    /// has no row prints as a number.
    fn rows(&mut self) -> Result<Vec<Row>, Reason> {
        let mut rows = Vec::new();
        let mut ended = false;
        while self.eat(",") {
            if !self.eat("{") {
                // A trailing comma, or `{}` written otherwise.
                break;
            }
            if self.eat("}") {
                break;
            }
            let start = self.pos;
            let value = match self.expr() {
                Ok(e) => constant(&e.expr),
                Err(reason) if reason.ends_with(UNKNOWN) => {
                    self.pos = start;
                    self.skip_to_comma();
                    None
                }
                Err(e) => return Err(e),
            };
            self.expect(",")?;
            let name = match self.literal() {
                Some(n) => Some(n),
                // `{ -1, ((void *)0) }` ends the table.
                None => match self.expr()?.expr {
                    Expr::Str(s) => Some(s.into_vec()),
                    _ => None,
                },
            };
            self.eat(",");
            self.expect("}")?;
            ended |= name.is_none();
            if let (Some(v), Some(n), false) = (value, name, ended)
                && rows.len() < MAX_ROWS
            {
                rows.push((v, n.into()));
            }
        }
        self.expect(")")?;
        Ok(rows)
    }

    fn skip_to_comma(&mut self) {
        let mut depth = 0i32;
        loop {
            match self.peek() {
                Tok::Punct("(") => depth += 1,
                Tok::Punct(")") => depth -= 1,
                Tok::Punct("," | "}") if depth <= 0 => return,
                Tok::End => return,
                _ => {}
            }
            self.pos += 1;
        }
    }

    fn hex_dump(&mut self) -> Result<Typed, Reason> {
        let prefix = self.literal().unwrap_or_default();
        self.expect(",")?;
        let mut numbers = [0u64; 3];
        let kind = match self.peek() {
            Tok::Ident("DUMP_PREFIX_NONE") => Some(0),
            Tok::Ident("DUMP_PREFIX_ADDRESS") => Some(1),
            Tok::Ident("DUMP_PREFIX_OFFSET") => Some(2),
            _ => None,
        };
        for (i, n) in numbers.iter_mut().enumerate() {
            *n = match (i, kind) {
                (0, Some(k)) => {
                    self.pos += 1;
                    k
                }
                _ => constant(&self.expr()?.expr).unwrap_or(0),
            };
            self.expect(",")?;
        }
        let [bytes, len] = self.two_open()?;
        self.expect(",")?;
        let ascii = constant(&self.expr()?.expr).unwrap_or(0) != 0;
        self.expect(")")?;
        let [kind, row, group] = numbers;
        if kind == 1 {
            self.notes.push("addresses in a dump are those of the kernel's buffer".into());
        }
        Ok(text(TextFn::HexDump {
            prefix: prefix.into(),
            kind: kind as u8,
            row,
            group,
            bytes,
            len,
            ascii,
        }))
    }

    fn nanoseconds(&mut self, name: &str) -> Result<Typed, Reason> {
        let e = self.expr()?;
        self.expect(")")?;
        let k = Expr::Const(1_000_000_000);
        let secs = name == "__print_ns_to_secs";
        let op = if secs { crate::expr::BinOp::Div } else { crate::expr::BinOp::Rem };
        let x = Expr::Bin(op, IntTy::U64, Box::new((e.expr, k)));
        Ok(int(x, if secs { IntTy::U64 } else { IntTy::UINT }))
    }

    /// A function only the kernel has. Its arguments are shown in its place.
    fn unknown_call(&mut self, name: &str) -> Result<Typed, Reason> {
        let mut args = Vec::new();
        while !self.eat(")") {
            // The trace_seq `p` is the kernel's own output buffer.
            if matches!(self.peek(), Tok::Ident("p")) {
                self.pos += 1;
            } else {
                args.push(self.expr()?.expr);
            }
            if !self.eat(",") {
                self.expect(")")?;
                break;
            }
        }
        self.notes.push(format!("{name}() is known to the kernel alone"));
        Ok(text(TextFn::Unknown { name: name.into(), args }))
    }
}

/// The bytes behind a dynamic field; a fixed one gives its own.
fn dynamic(f: &Field) -> Typed {
    let (relative, elem) = match f.kind {
        FieldKind::DynString { relative } => (relative, IntTy::CHAR),
        FieldKind::DynArray { relative, elem, signed } => (relative, IntTy { size: elem, signed }),
        FieldKind::DynBitmask { relative } => (relative, IntTy::U8),
        _ => {
            let ty = Ty::Ptr { size: 1, elem: Some(IntTy::U8) };
            return Typed { expr: Expr::Bytes { offset: f.offset, len: f.size }, ty };
        }
    };
    Typed {
        expr: Expr::Dynamic { offset: f.offset, relative },
        ty: Ty::Ptr { size: u32::from(elem.size), elem: Some(elem) },
    }
}

//! Arguments of a description → fetch arguments at one place.

use super::Result;
use super::die::Die;
use super::finder::{Options, SymbolOf};
use super::location::{Context, ExprBase, Loc};
use super::member::Part;
use super::regs;
use super::unit::Dwarf;
use crate::probe::{Arg, ArgValue, Base, Deref, Fetch, FetchArg, Step, is_symbol};

/// What became of one argument at one place.
pub(crate) enum Fetched {
    /// Fetch arguments; one, except for `$vars`, `$params` and Rust's strings.
    Args(Vec<FetchArg>),
    /// Not there at this place, though it may be at another, and why.
    Missing(String),
    /// Not possible anywhere, and why.
    Refused(String),
}

/// Everything that finding values at a place needs.
pub(crate) struct Values<'d, 's> {
    pub(super) dwarf: &'d Dwarf<'s>,
    pub(super) context: Context<'d, 's>,
    /// Where variables are looked for.
    pub(super) scope: Die<'s>,
    pub(super) options: &'d Options<'d>,
}

type Formed = Result<std::result::Result<FetchArg, String>>;

impl<'s> Values<'_, 's> {
    pub(super) fn fetch(&self, arg: &Arg) -> Result<Fetched> {
        match &arg.value {
            ArgValue::Raw(text) => Ok(Fetched::Args(vec![FetchArg {
                name: arg.name.clone(),
                fetch: Fetch::of(Base::Raw(text.clone())),
                kind: arg.cast.clone(),
            }])),
            ArgValue::Vars => self.expand(false),
            ArgValue::Params => self.expand(true),
            ArgValue::Variable { address_of, name, steps } => {
                self.variable(arg, *address_of, name, steps)
            }
        }
    }

    /// All variables alive here, each under its own name.
    fn expand(&self, parameters_only: bool) -> Result<Fetched> {
        let mut args: Vec<FetchArg> = Vec::new();
        for seen in self.dwarf.variables_at(&self.scope, self.context.pc)? {
            if parameters_only && (!seen.parameter || seen.inlined) {
                continue;
            }
            let Some(name) = self.dwarf.name(&seen.die)? else { continue };
            let wanted = Arg {
                name: None,
                value: ArgValue::Variable {
                    address_of: false,
                    name: name.clone(),
                    steps: Vec::new(),
                },
                cast: None,
                user: false,
                span: (0, 0),
            };
            // A name means its innermost variable, once.
            let innermost = self.dwarf.variable_at(&self.scope, &name, self.context.pc)?;
            if !innermost.is_some_and(|i| i.die == seen.die) || !is_symbol(&name) {
                continue;
            }
            if let Fetched::Args(more) = self.fetch(&wanted)? {
                args.extend(
                    more.into_iter()
                        .filter(|m| args.iter().all(|a| a.name != m.name))
                        .collect::<Vec<_>>(),
                );
            }
        }
        Ok(Fetched::Args(args))
    }

    fn variable(&self, arg: &Arg, address_of: bool, name: &str, steps: &[Step]) -> Result<Fetched> {
        let die = match self.dwarf.variable_at(&self.scope, name, self.context.pc)? {
            Some(seen) => seen.die,
            None => match self.dwarf.global(&self.scope, name)? {
                Some(die) => die,
                None => return Ok(Fetched::Missing(format!("no variable {name} here"))),
            },
        };
        let entry = self.dwarf.entry(&die)?;
        let loc = match self.context.locate(&die, &entry)? {
            Some(Loc::Gone(why)) => {
                return Ok(Fetched::Missing(format!("{name} cannot be read here: {why}")));
            }
            Some(loc) => loc,
            None => return Ok(Fetched::Missing(format!("{name} is optimised out here"))),
        };
        let kind = self.dwarf.real_type(&die)?;
        let mut part = Part { loc, kind, bits: None, user: false };
        let mut what = name.to_owned();
        for step in steps {
            part = match self.dwarf.step(part, &what, step, arg.user)? {
                Ok(part) => part,
                Err(why) => return Ok(Fetched::Refused(why)),
            };
            match step {
                Step::Dot(n) => what.push_str(&format!(".{n}")),
                Step::Arrow(n) => what.push_str(&format!("->{n}")),
                Step::Index(i) => what.push_str(&format!("[{i}]")),
            }
        }
        if let Loc::Gone(why) = &part.loc {
            return Ok(Fetched::Missing(format!("{what} cannot be read here: {why}")));
        }
        let label = label(arg, name, steps);
        if address_of {
            return Ok(match self.address(part, &what, &label)? {
                Ok(arg) => Fetched::Args(vec![arg]),
                Err(why) => Fetched::Missing(why),
            });
        }
        self.shaped(arg, part, &what, &label)
    }

    /// The value in the shape its type asks for.
    fn shaped(&self, arg: &Arg, part: Part<'s>, what: &str, label: &str) -> Result<Fetched> {
        let one = |formed: std::result::Result<FetchArg, String>| match formed {
            Ok(arg) => Fetched::Args(vec![arg]),
            Err(why) => Fetched::Missing(why),
        };
        let cast = arg.cast.as_deref();
        let is_c = part.kind.as_ref().is_none_or(|k| k.unit.is_c);
        if let Some(cast @ ("string" | "ustring")) = cast.or((!is_c).then_some("string")) {
            let data = if is_c { None } else { self.rust_text(&part, what, arg.user)? };
            if let Some((data, length)) = data {
                return self.text_and_length(data, length, what, label, cast);
            }
            if arg.cast.is_some() {
                return Ok(one(self.c_string(arg, part, what, label, cast)?));
            }
        }
        if cast.is_none()
            && !is_c
            && let Some(tag) = self.dwarf.discriminant(&part)?
        {
            return Ok(one(self.plain(None, tag, what, label)?));
        }
        if let Some(count) = cast.and_then(|c| c.strip_prefix('[')) {
            return Ok(one(self.array(part, what, label, count)?));
        }
        Ok(one(self.plain(cast, part, what, label)?))
    }

    /// The data and the length of Rust's `&str` and `String`.
    fn rust_text(
        &self,
        part: &Part<'s>,
        what: &str,
        user: bool,
    ) -> Result<Option<(Part<'s>, Part<'s>)>> {
        let Some(kind) = &part.kind else { return Ok(None) };
        // A reference to a String is looked through.
        let mut part = part.clone();
        let mut kind = kind.clone();
        if self.dwarf.is_pointer(&part)? {
            match self.dwarf.pointee(part, what, user)? {
                Ok(Part { kind: Some(k), loc, bits, user }) => {
                    kind = k.clone();
                    part = Part { kind: Some(k), loc, bits, user };
                }
                _ => return Ok(None),
            }
        }
        if !matches!(self.dwarf.name(&kind)?.as_deref(), Some("&str" | "&mut str" | "String")) {
            return Ok(None);
        }
        let length = self.dwarf.length_of(&part, what, user)?;
        Ok(self.dwarf.data_pointer(part, what, user)?.zip(length))
    }

    fn text_and_length(
        &self,
        data: Part<'s>,
        length: Part<'s>,
        what: &str,
        label: &str,
        cast: &str,
    ) -> Result<Fetched> {
        let Ok(target) = self.dwarf.pointee(data, what, false)? else {
            return Ok(Fetched::Missing(format!("the text of {what} cannot be reached here")));
        };
        let text = self.finish(target, what, label, Some(cast.to_owned()))?;
        let length = self.finish(length, what, &format!("{label}_len"), Some("u64".into()))?;
        Ok(match (text, length) {
            (Ok(text), Ok(length)) => Fetched::Args(vec![text, length]),
            (Err(why), _) | (_, Err(why)) => Fetched::Missing(why),
        })
    }

    fn c_string(&self, arg: &Arg, part: Part<'s>, what: &str, label: &str, cast: &str) -> Formed {
        let Some(kind) = part.kind.clone() else { return Ok(Err(format!("{what} has no type"))) };
        let is_array = self.dwarf.tag(&kind)? == gimli::DW_TAG_array_type;
        if !is_array && !self.dwarf.is_pointer(&part)? {
            return Ok(Err(format!(
                "{what} is neither a pointer nor an array, so it is no string"
            )));
        }
        let element = self.dwarf.real_type(&kind)?;
        let of_chars = match &element {
            Some(e) => self.dwarf.is_char(e)?,
            None => false,
        };
        if !of_chars {
            return Ok(Err(format!("{what} is not made of char, so it is no string")));
        }
        let part = if is_array {
            part
        } else {
            match self.dwarf.pointee(part, what, arg.user)? {
                Ok(target) => target,
                Err(why) => return Ok(Err(why)),
            }
        };
        self.finish(part, what, label, Some(cast.to_owned()))
    }

    /// `VAR:[N]`: N elements of an array.
    fn array(&self, part: Part<'s>, what: &str, label: &str, count: &str) -> Formed {
        let Some(kind) = part.kind.clone() else { return Ok(Err(format!("{what} has no type"))) };
        let part = match self.dwarf.tag(&kind)? {
            gimli::DW_TAG_array_type => Part { kind: self.dwarf.real_type(&kind)?, ..part },
            gimli::DW_TAG_pointer_type => match self.dwarf.pointee(part, what, false)? {
                Ok(target) => target,
                Err(why) => return Ok(Err(why)),
            },
            _ => return Ok(Err(format!("{what} is neither a pointer nor an array"))),
        };
        let element = self.type_name(None, &part)?.unwrap_or_else(|| "x64".into());
        self.finish(part, what, label, Some(format!("{element}[{count}")))
    }

    fn plain(&self, cast: Option<&str>, part: Part<'s>, what: &str, label: &str) -> Formed {
        let kind = match cast {
            Some(cast) if !matches!(cast, "x" | "u" | "s") => Some(cast.to_owned()),
            _ => self.type_name(cast, &part)?,
        };
        self.finish(part, what, label, kind)
    }

    /// The kernel's name for the type of a value.
    fn type_name(&self, cast: Option<&str>, part: &Part<'s>) -> Result<Option<String>> {
        if let Some((width, offset, container)) = part.bits {
            return Ok(Some(format!("b{width}@{offset}/{container}")));
        }
        let Some(kind) = &part.kind else { return Ok(None) };
        let prefix = match cast {
            Some(cast) => cast,
            None if self.dwarf.is_signed(kind)? => "s",
            None => "x",
        };
        let Some(size) = self.dwarf.byte_size(kind)?.filter(|s| *s > 0) else { return Ok(None) };
        let size = size.min(8);
        // Values of 3, 5, 6, 7 bytes have no type; the next smaller one is read.
        let size = if size.is_power_of_two() { size } else { size.next_power_of_two() / 2 };
        Ok(Some(format!("{prefix}{}", size * 8)))
    }

    fn address(&self, part: Part<'s>, what: &str, label: &str) -> Formed {
        let Loc::Memory(e) = part.loc else {
            return Ok(Err(format!("{what} is not in memory here, so it has no address")));
        };
        let plain = e.add == 0 && !matches!(e.base, ExprBase::Address(_));
        if !plain {
            return Ok(Err(format!(
                "the address of {what} is a sum, which fetch arguments cannot express; record what it is counted from"
            )));
        }
        self.finish(
            Part { loc: Loc::Value(e), kind: None, bits: None, user: part.user },
            what,
            label,
            Some("x64".into()),
        )
    }

    /// Writes the location down.
    fn finish(&self, part: Part<'s>, what: &str, label: &str, kind: Option<String>) -> Formed {
        let (mut expr, memory) = match part.loc {
            Loc::Value(e) => (e, false),
            Loc::Memory(e) => (e, true),
            Loc::Pieces(pieces) => match pieces.into_iter().next() {
                // The first part stands for the whole, as far as 8 bytes go.
                Some((_, first)) => {
                    return self.finish(Part { loc: first, ..part }, what, label, kind);
                }
                None => return Ok(Err(format!("{what} is nowhere"))),
            },
            Loc::Extern(name) => return Ok(self.external(&name, label, kind)),
            Loc::Gone(why) => return Ok(Err(format!("{what} cannot be read here: {why}"))),
        };
        if let Some(n) = expr.as_number().filter(|_| !memory) {
            return Ok(Ok(immediate(n, part.bits, label, kind)));
        }
        if memory {
            expr.derefs.push(Deref { offset: expr.add, user: part.user });
        } else if expr.add != 0 {
            return Ok(Err(format!(
                "{what} is a sum (a register plus {}), which fetch arguments cannot express",
                expr.add
            )));
        }
        let base = match expr.base {
            ExprBase::Register(number) => {
                match regs::name(self.dwarf.sections.architecture, number) {
                    Some(name) => Base::Register(name),
                    None => {
                        return Ok(Err(format!(
                            "{what} is in register {number}, which a probe cannot read"
                        )));
                    }
                }
            }
            ExprBase::Number(n) => {
                return Ok(Err(format!("{what} is at the fixed address {n:#x}")));
            }
            ExprBase::Address(addr) => match self.global_base(addr, &expr.derefs, memory) {
                Ok(base) => base,
                Err(why) => return Ok(Err(format!("{what}: {why}"))),
            },
        };
        let base = match base {
            // A symbol's offset belongs to the first read.
            Base::Symbol(ref name) => match name.rsplit_once('+') {
                Some((symbol, offset)) => {
                    if let (Some(first), Ok(offset)) =
                        (expr.derefs.first_mut(), offset.parse::<i64>())
                    {
                        first.offset = first.offset.wrapping_add(offset);
                    }
                    Base::Symbol(symbol.to_owned())
                }
                None => base,
            },
            other => other,
        };
        Ok(Ok(named(label, Fetch { base, derefs: expr.derefs }, kind)))
    }

    /// How memory at an address of the binary is named.
    fn global_base(
        &self,
        addr: u64,
        derefs: &[Deref],
        memory: bool,
    ) -> std::result::Result<Base, String> {
        if derefs.is_empty() || (!memory && derefs.is_empty()) {
            return Err("an address of the binary itself cannot be a value".into());
        }
        match &self.options.data {
            SymbolOf::Kernel(symbol) => match symbol(addr) {
                Some((name, 0)) => Ok(Base::Symbol(name)),
                Some((name, offset)) => Ok(Base::Symbol(format!("{name}+{offset}"))),
                None => Err(format!("no symbol is known at {addr:#x}")),
            },
            // The kernel counts from where the file's code is mapped.
            SymbolOf::File { bias } => Ok(Base::FileOffset(addr.wrapping_sub(*bias))),
        }
    }

    fn external(
        &self,
        name: &str,
        label: &str,
        kind: Option<String>,
    ) -> std::result::Result<FetchArg, String> {
        match &self.options.data {
            SymbolOf::Kernel(_) => {
                let fetch = Fetch {
                    base: Base::Symbol(name.to_owned()),
                    derefs: vec![Deref { offset: 0, user: false }],
                };
                Ok(named(label, fetch, kind))
            }
            SymbolOf::File { .. } => {
                Err(format!("{name} is defined in another file, whose place is not known"))
            }
        }
    }
}

/// A constant; of some bits of one, those bits.
fn immediate(n: i64, bits: Option<(u64, u64, u64)>, label: &str, kind: Option<String>) -> FetchArg {
    let Some((width, offset, _)) = bits.filter(|b| b.0 < 64 && b.1 < 64) else {
        return named(label, Fetch::of(Base::Immediate(n)), kind);
    };
    let value = (n as u64 >> offset) & ((1 << width) - 1);
    named(
        label,
        Fetch::of(Base::Immediate(value as i64)),
        Some(format!("x{}", width.next_power_of_two().max(8))),
    )
}

fn named(label: &str, fetch: Fetch, kind: Option<String>) -> FetchArg {
    FetchArg { name: Some(label.to_owned()), fetch, kind }
}

/// The argument's name: given, or of the last field, or of the variable and its
/// type.
fn label(arg: &Arg, variable: &str, steps: &[Step]) -> String {
    if let Some(name) = &arg.name {
        return name.clone();
    }
    let mut text = variable.to_owned();
    for step in steps {
        match step {
            // A field of a tuple needs the name of the tuple, too.
            Step::Dot(n) | Step::Arrow(n) if n.starts_with(|c: char| c.is_ascii_digit()) => {
                text = format!("{text}_{n}");
            }
            Step::Dot(n) | Step::Arrow(n) => text.clone_from(n),
            Step::Index(_) => {}
        }
    }
    if steps.is_empty()
        && let Some(cast) = &arg.cast
    {
        text = format!("{text}_{cast}");
    }
    let mut safe: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    while safe.ends_with('_') && safe.len() > 1 && text != safe {
        safe.pop();
    }
    if safe.starts_with(|c: char| c.is_ascii_digit()) {
        safe.insert(0, '_');
    }
    safe
}

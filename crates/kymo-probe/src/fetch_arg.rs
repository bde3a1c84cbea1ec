//! An argument of a description → fetch arguments at one probe point: the variable is resolved, its
//! location at the point becomes an expression over registers and memory, its type becomes a type
//! of the kernel's.

use kymo_debuginfo::dwarf::{
    BitSlice, Die, Dwarf, LocationBase, LocationContext, Result, VariableLocation,
};
use kymo_model::probe::{Dereference, FetchArg, FetchBase, FetchExpr, FetchType, IntegerFormat};

use crate::finder_options::{DataNaming, FinderOptions};
use crate::grammar::{ArgDescription, ArgValue, FieldStep, is_symbol};
use crate::registers;
use crate::value_steps::{ValueExpr, ValueLocation, ValuePart, ValueSteps};

/// Outcome of one argument at one probe point.
pub(crate) enum FetchedArg {
    /// Fetch arguments; one, except for `$vars`, `$params` and Rust's strings.
    Args(Vec<FetchArg>),
    /// Not there at this place, though it may be at another, and why.
    Missing(String),
    /// Not possible anywhere, and why.
    Refused(String),
}

/// Fetches values at one probe point.
pub(crate) struct ArgFetcher<'d, 's> {
    pub(crate) dwarf: &'d Dwarf<'s>,
    pub(crate) steps: ValueSteps<'d, 's>,
    pub(crate) context: LocationContext<'d, 's>,
    /// Scope in which variables are searched.
    pub(crate) scope: Die<'s>,
    pub(crate) options: &'d FinderOptions<'d>,
}

type Formed = Result<std::result::Result<FetchArg, String>>;

impl<'s> ArgFetcher<'_, 's> {
    pub(crate) fn fetch(&self, arg: &ArgDescription) -> Result<FetchedArg> {
        match &arg.value {
            ArgValue::Raw(text) => {
                let fetch_type = match &arg.cast {
                    Some(cast) => Some(FetchType::parse(cast)),
                    None if text == "$retval" => match self.return_type()? {
                        Ok(returned) => returned,
                        Err(why) => return Ok(FetchedArg::Refused(why)),
                    },
                    None => None,
                };
                Ok(FetchedArg::Args(vec![FetchArg {
                    name: arg.name.clone(),
                    expr: FetchExpr::from_base(FetchBase::Verbatim(text.clone())),
                    fetch_type,
                }]))
            }
            ArgValue::Vars => self.expand(false),
            ArgValue::Params => self.expand(true),
            ArgValue::Variable { address_of, name, steps } => {
                self.variable(arg, *address_of, name, steps)
            }
        }
    }

    /// Type of what the function returns in the register that `$retval` is; none where it
    /// returns nothing, or no type is known.
    fn return_type(&self) -> Result<std::result::Result<Option<FetchType>, String>> {
        let Some(kind) = self.dwarf.real_type(&self.context.function)? else { return Ok(Ok(None)) };
        let location = ValueExpr::of_number(0);
        let location = ValueLocation::Memory(location);
        let part =
            ValuePart { location, kind: Some(kind.clone()), bits: None, user: false, indexed: 0 };
        let part = self.steps.unwrapped(part, "$retval")?;
        let is_text_or_array = match &part.kind {
            Some(kind) => self.dwarf.tag(kind)? == gimli::DW_TAG_array_type,
            None => false,
        };
        if let (false, None) = (is_text_or_array, self.unfetchable(&part, "$retval")?) {
            return Ok(Ok(self.fetch_type(None, &part)?));
        }
        let text = self.dwarf.type_text(&self.context.function)?.unwrap_or_default();
        if let Some(kind) = &part.kind
            && self.dwarf.is_float(kind)?
        {
            return Ok(Err(format!(
                "the function returns {text} in a floating-point register, which a probe cannot \
                 read"
            )));
        }
        Ok(Err(format!(
            "the function returns {text}, which is not a single number in a register; $retval:x64 \
             records the register"
        )))
    }

    /// Reason why a value cannot be fetched whole, if so; arrays may be fetched as such.
    fn unfetchable(&self, part: &ValuePart<'s>, what: &str) -> Result<Option<String>> {
        let Some(kind) = &part.kind else { return Ok(None) };
        if let Some(BitSlice { width, offset, container }) = part.bits
            && self.dwarf.is_signed(kind)?
            && !is_low_number(width, offset)
        {
            return Ok(Some(format!(
                "{what} is a signed bit field of {width} bits, which fetch arguments do not \
                 support: {what}:b{width}@{offset}/{container} records it unsigned, and `kymo \
                 run` reads the signed number"
            )));
        }
        if self.dwarf.is_float(kind)? {
            let bits = self.dwarf.byte_size(kind)?.unwrap_or(8).saturating_mul(8).min(64);
            let as_bits = self.plain(Some(&format!("x{bits}")), part.clone(), what, "bits")?;
            let way_out = match as_bits {
                Ok(_) => format!(": {what}:x{bits} records its bits"),
                Err(why) => format!("; {why}"),
            };
            return Ok(Some(format!(
                "{what} is a floating-point number, which fetch arguments do not support{way_out}"
            )));
        }
        let size = self.dwarf.byte_size(kind)?;
        match self.dwarf.tag(kind)? {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let kind = self.dwarf.complete_type(kind)?.unwrap_or_else(|| kind.clone());
                let known = self.dwarf.member_names(&kind)?.join(", ");
                Ok(Some(format!("{what} is not a single value: select a field ({known})")))
            }
            gimli::DW_TAG_array_type => Ok(None),
            _ if size.is_some_and(|size| !matches!(size, 0 | 1 | 2 | 4 | 8)) => Ok(Some(format!(
                "{what} has {} bytes; fetch arguments have at most 8",
                size.unwrap_or_default()
            ))),
            _ => Ok(None),
        }
    }

    /// An array as it was declared, if the kernel can fetch one of its type.
    fn whole_array(&self, part: ValuePart<'s>, what: &str, label: &str) -> Result<FetchedArg> {
        let refused = |why: String| Ok(FetchedArg::Refused(why));
        let Some(kind) = part.kind.clone() else { return refused(format!("{what} has no type")) };
        let dimensions = self.dwarf.dimensions(&kind)?.unwrap_or_default();
        let count = match dimensions.get(part.indexed..).unwrap_or_default() {
            [] => return refused(format!("{what} is an array of unknown length: use {what}:[N]")),
            [count] => *count,
            _ => {
                return refused(format!(
                    "{what} has several dimensions: select a row or an \
                                        element"
                ));
            }
        };
        let element = ValuePart { kind: self.dwarf.real_type(&kind)?, indexed: 0, ..part.clone() };
        if let Some(element_kind) = &element.kind
            && self.dwarf.is_char(element_kind)?
            && kind.unit.is_c
        {
            return refused(format!(
                "{what} is an array of char: {what}:string records it up to its NUL, {what}:[N] \
                 its bytes"
            ));
        }
        if let Some(why) = self.unfetchable(&element, &format!("{what}[N]"))? {
            return refused(why);
        }
        if !matches!(part.location, ValueLocation::Memory(_)) {
            return refused(format!("{what} is not in memory here: select an element"));
        }
        if !(1..=MOST_ELEMENTS).contains(&count) {
            return refused(format!(
                "{what} has {count} elements; a fetch argument records at most {MOST_ELEMENTS}: \
                 {what}:[{MOST_ELEMENTS}]"
            ));
        }
        Ok(match self.array(part, what, label, &count.to_string())? {
            Ok(arg) => FetchedArg::Args(vec![arg]),
            Err(why) => FetchedArg::Refused(why),
        })
    }

    /// All variables alive here, each under its own name.
    fn expand(&self, parameters_only: bool) -> Result<FetchedArg> {
        let mut args: Vec<FetchArg> = Vec::new();
        for seen in self.dwarf.variables_at(&self.scope, self.context.pc)? {
            if parameters_only && (!seen.parameter || seen.inlined) {
                continue;
            }
            let Some(name) = self.dwarf.name(&seen.die)? else { continue };
            let wanted = ArgDescription {
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
            if let FetchedArg::Args(more) = self.fetch(&wanted)? {
                args.extend(
                    more.into_iter()
                        .filter(|m| args.iter().all(|a| a.name != m.name))
                        .collect::<Vec<_>>(),
                );
            }
        }
        Ok(FetchedArg::Args(args))
    }

    fn variable(
        &self,
        arg: &ArgDescription,
        address_of: bool,
        name: &str,
        steps: &[FieldStep],
    ) -> Result<FetchedArg> {
        let die = match self.dwarf.variable_at(&self.scope, name, self.context.pc)? {
            Some(seen) => seen.die,
            None => match self.dwarf.global(&self.scope, name)? {
                Some(die) => die,
                None => return Ok(FetchedArg::Missing(format!("no variable {name} here"))),
            },
        };
        let entry = self.dwarf.entry(&die)?;
        let location = match self.context.locate(&die, &entry)? {
            Some(VariableLocation::Gone(why)) => {
                return Ok(FetchedArg::Missing(format!("{name} cannot be read here: {why}")));
            }
            Some(location) => ValueLocation::from(location),
            None => return Ok(FetchedArg::Missing(format!("{name} is optimized out here"))),
        };
        let kind = self.dwarf.real_type(&die)?;
        let mut part = ValuePart { location, kind, bits: None, user: false, indexed: 0 };
        let mut what = name.to_owned();
        for step in steps {
            part = match self.steps.step(part, &what, step, arg.user)? {
                Ok(part) => part,
                Err(why) => return Ok(FetchedArg::Refused(why)),
            };
            match step {
                FieldStep::Dot(n) => what.push_str(&format!(".{n}")),
                FieldStep::Arrow(n) => what.push_str(&format!("->{n}")),
                FieldStep::Index(i) => what.push_str(&format!("[{i}]")),
            }
        }
        if let ValueLocation::Gone(why) = &part.location {
            return Ok(FetchedArg::Missing(format!("{what} cannot be read here: {why}")));
        }
        let label = label(arg, name, steps);
        if address_of {
            return Ok(match self.address(part, &what, &label)? {
                Ok(arg) => FetchedArg::Args(vec![arg]),
                Err(why) => FetchedArg::Missing(why),
            });
        }
        self.shaped(arg, part, &what, &label)
    }

    /// The value in the shape its type asks for.
    fn shaped(
        &self,
        arg: &ArgDescription,
        part: ValuePart<'s>,
        what: &str,
        label: &str,
    ) -> Result<FetchedArg> {
        let one = |formed: std::result::Result<FetchArg, String>| match formed {
            Ok(arg) => FetchedArg::Args(vec![arg]),
            Err(why) => FetchedArg::Missing(why),
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
            && let Some(tag) = self.steps.discriminant(&part)?
        {
            // It identifies the variant, and is not the value.
            let own = format!("{label}_variant");
            let label = if arg.name.is_some() { label } else { &own };
            return Ok(one(self.plain(None, tag, what, label)?));
        }
        if let Some(count) = cast.and_then(|c| c.strip_prefix('[')) {
            return Ok(one(self.array(part, what, label, count)?));
        }
        if cast.is_some() {
            return Ok(one(self.plain(cast, part, what, label)?));
        }
        let part = self.steps.unwrapped(part, what)?;
        if let Some(why) = self.unfetchable(&part, what)? {
            return Ok(FetchedArg::Refused(why));
        }
        if let Some(kind) = &part.kind
            && self.dwarf.tag(kind)? == gimli::DW_TAG_array_type
        {
            return self.whole_array(part, what, label);
        }
        Ok(one(self.plain(cast, part, what, label)?))
    }

    /// The data and the length of Rust's `&str` and `String`.
    fn rust_text(
        &self,
        part: &ValuePart<'s>,
        what: &str,
        user: bool,
    ) -> Result<Option<(ValuePart<'s>, ValuePart<'s>)>> {
        let Some(kind) = &part.kind else { return Ok(None) };
        // A reference to a String is looked through.
        let mut part = part.clone();
        let mut kind = kind.clone();
        if self.steps.is_pointer(&part)? {
            match self.steps.pointee(part, what, user)? {
                Ok(ValuePart { kind: Some(k), location, bits, user, indexed }) => {
                    kind = k.clone();
                    part = ValuePart { kind: Some(k), location, bits, user, indexed };
                }
                _ => return Ok(None),
            }
        }
        if !matches!(self.dwarf.name(&kind)?.as_deref(), Some("&str" | "&mut str" | "String")) {
            return Ok(None);
        }
        let length = self.steps.length_of(&part, what, user)?;
        Ok(self.steps.data_pointer(part, what, user)?.zip(length))
    }

    fn text_and_length(
        &self,
        data: ValuePart<'s>,
        length: ValuePart<'s>,
        what: &str,
        label: &str,
        cast: &str,
    ) -> Result<FetchedArg> {
        let Ok(target) = self.steps.pointee(data, what, false)? else {
            return Ok(FetchedArg::Missing(format!("the text of {what} is not accessible here")));
        };
        let text = self.finish(target, what, label, Some(FetchType::parse(cast)))?;
        let length =
            self.finish(length, what, &format!("{label}_len"), Some(FetchType::unsigned(64)))?;
        Ok(match (text, length) {
            (Ok(text), Ok(length)) => FetchedArg::Args(vec![text, length]),
            (Err(why), _) | (_, Err(why)) => FetchedArg::Missing(why),
        })
    }

    fn c_string(
        &self,
        arg: &ArgDescription,
        part: ValuePart<'s>,
        what: &str,
        label: &str,
        cast: &str,
    ) -> Formed {
        let Some(kind) = part.kind.clone() else { return Ok(Err(format!("{what} has no type"))) };
        let is_array = self.dwarf.tag(&kind)? == gimli::DW_TAG_array_type;
        if !is_array && !self.steps.is_pointer(&part)? {
            return Ok(Err(format!(
                "{what} is neither a pointer nor an array, hence not a string"
            )));
        }
        let element = self.dwarf.real_type(&kind)?;
        let of_chars = match &element {
            Some(e) => self.dwarf.is_char(e)?,
            None => false,
        };
        if !of_chars {
            return Ok(Err(format!("{what} does not consist of char, hence is not a string")));
        }
        let part = if is_array {
            part
        } else {
            match self.steps.pointee(part, what, arg.user)? {
                Ok(target) => target,
                Err(why) => return Ok(Err(why)),
            }
        };
        self.finish(part, what, label, Some(FetchType::parse(cast)))
    }

    /// `VAR:[N]`: N elements of an array.
    fn array(&self, part: ValuePart<'s>, what: &str, label: &str, count: &str) -> Formed {
        let Some(kind) = part.kind.clone() else { return Ok(Err(format!("{what} has no type"))) };
        let part = match self.dwarf.tag(&kind)? {
            gimli::DW_TAG_array_type => {
                ValuePart { kind: self.dwarf.real_type(&kind)?, indexed: 0, ..part }
            }
            gimli::DW_TAG_pointer_type => match self.steps.pointee(part, what, false)? {
                Ok(target) => target,
                Err(why) => return Ok(Err(why)),
            },
            _ => return Ok(Err(format!("{what} is neither a pointer nor an array"))),
        };
        let element = self.fetch_type(None, &part)?.unwrap_or(FetchType::hexadecimal(64));
        let length = count.strip_suffix(']').unwrap_or(count).to_owned();
        let array = FetchType::Array { element: Box::new(element), length };
        self.finish(part, what, label, Some(array))
    }

    fn plain(&self, cast: Option<&str>, part: ValuePart<'s>, what: &str, label: &str) -> Formed {
        let format = match cast {
            Some("x") => Some(IntegerFormat::Hexadecimal),
            Some("u") => Some(IntegerFormat::Unsigned),
            Some("s") => Some(IntegerFormat::Signed),
            _ => None,
        };
        let fetch_type = match cast.filter(|_| format.is_none()) {
            Some(cast) => Some(FetchType::parse(cast)),
            None => self.fetch_type(format, &part)?,
        };
        self.finish(part, what, label, fetch_type)
    }

    /// The kernel's type for a value of the source.
    fn fetch_type(
        &self,
        format: Option<IntegerFormat>,
        part: &ValuePart<'s>,
    ) -> Result<Option<FetchType>> {
        if let Some(BitSlice { width, offset, container }) = part.bits {
            let is_signed = match &part.kind {
                Some(kind) => self.dwarf.is_signed(kind)?,
                None => false,
            };
            // What begins in the lowest bit of a register and is as wide as a number is one.
            return Ok(Some(match u32::try_from(width) {
                Ok(bits) if is_signed && is_low_number(width, offset) => FetchType::signed(bits),
                _ => FetchType::Bitfield { width, offset, container },
            }));
        }
        let Some(kind) = &part.kind else { return Ok(None) };
        let format = match format {
            Some(format) => format,
            None if self.dwarf.is_signed(kind)? => IntegerFormat::Signed,
            None => IntegerFormat::Hexadecimal,
        };
        let bits = match self.dwarf.byte_size(kind)? {
            None | Some(0) => return Ok(None),
            Some(1) => 8,
            // Values of 3, 5, 6, 7 bytes have no type; the next smaller one is read.
            Some(2..=3) => 16,
            Some(4..=7) => 32,
            Some(_) => 64,
        };
        Ok(Some(FetchType::Integer { format, bits }))
    }

    fn address(&self, part: ValuePart<'s>, what: &str, label: &str) -> Formed {
        let ValueLocation::Memory(e) = part.location else {
            return Ok(Err(format!("{what} is not in memory here, so it has no address")));
        };
        let plain = e.add == 0 && !matches!(e.base, LocationBase::Address(_));
        if !plain {
            return Ok(Err(format!(
                "the address of {what} is a sum, which fetch arguments cannot express; record its \
                 operands"
            )));
        }
        self.finish(
            ValuePart {
                location: ValueLocation::Value(e),
                kind: None,
                bits: None,
                user: part.user,
                indexed: 0,
            },
            what,
            label,
            Some(FetchType::hexadecimal(64)),
        )
    }

    /// Writes the location down.
    fn finish(
        &self,
        part: ValuePart<'s>,
        what: &str,
        label: &str,
        fetch_type: Option<FetchType>,
    ) -> Formed {
        let (mut expr, memory) = match part.location {
            ValueLocation::Value(e) => (e, false),
            ValueLocation::Memory(e) => (e, true),
            ValueLocation::Pieces(pieces) => match pieces.into_iter().next() {
                // The first part stands for the whole, as far as 8 bytes go.
                Some((_, first)) => {
                    return self.finish(
                        ValuePart { location: first, ..part },
                        what,
                        label,
                        fetch_type,
                    );
                }
                None => return Ok(Err(format!("{what} has no location"))),
            },
            ValueLocation::Extern(name) => return Ok(self.external(&name, label, fetch_type)),
            ValueLocation::Gone(why) => {
                return Ok(Err(format!("{what} cannot be read here: {why}")));
            }
        };
        if let Some(n) = expr.as_number().filter(|_| !memory) {
            return Ok(Ok(immediate(n, part.bits, label, fetch_type)));
        }
        if memory {
            expr.dereferences.push(Dereference { offset: expr.add, user: part.user });
        } else if expr.add != 0 {
            return Ok(Err(format!(
                "{what} is a sum (a register plus {}), which fetch arguments cannot express",
                expr.add
            )));
        }
        let base = match expr.base {
            LocationBase::Register(number) => {
                match registers::kernel_name(self.dwarf.architecture(), number) {
                    Some(name) => FetchBase::Register(name),
                    None => {
                        let register = registers::name(self.dwarf.architecture(), number);
                        return Ok(Err(format!(
                            "{what} is in {register}, which a probe cannot read"
                        )));
                    }
                }
            }
            LocationBase::Number(n) => {
                return Ok(Err(format!("{what} is at the fixed address {n:#x}")));
            }
            LocationBase::Address(addr) => match self.global_base(addr, &expr.dereferences) {
                Ok(base) => base,
                Err(why) => return Ok(Err(format!("{what}: {why}"))),
            },
        };
        let base = match base {
            // A symbol's offset belongs to the first read.
            FetchBase::Symbol(ref name) => match name.rsplit_once('+') {
                Some((symbol, offset)) => {
                    if let (Some(first), Ok(offset)) =
                        (expr.dereferences.first_mut(), offset.parse::<i64>())
                    {
                        first.offset = first.offset.wrapping_add(offset);
                    }
                    FetchBase::Symbol(symbol.to_owned())
                }
                None => base,
            },
            other => other,
        };
        Ok(Ok(named(label, FetchExpr { base, dereferences: expr.dereferences }, fetch_type)))
    }

    /// Returns the base for memory at an address of the binary.
    fn global_base(
        &self,
        addr: u64,
        dereferences: &[Dereference],
    ) -> std::result::Result<FetchBase, String> {
        if dereferences.is_empty() {
            return Err("an address of the binary cannot be a value".into());
        }
        match &self.options.data {
            DataNaming::Kernel(symbol) => match symbol(addr) {
                Some((name, 0)) => Ok(FetchBase::Symbol(name)),
                Some((name, offset)) => Ok(FetchBase::Symbol(format!("{name}+{offset}"))),
                None => Err(format!("no symbol at {addr:#x}")),
            },
            // The kernel counts from where the file's code is mapped.
            DataNaming::File { bias } => Ok(FetchBase::FileOffset(addr.wrapping_sub(*bias))),
        }
    }

    fn external(
        &self,
        name: &str,
        label: &str,
        fetch_type: Option<FetchType>,
    ) -> std::result::Result<FetchArg, String> {
        match &self.options.data {
            DataNaming::Kernel(_) => {
                let fetch = FetchExpr {
                    base: FetchBase::Symbol(name.to_owned()),
                    dereferences: vec![Dereference { offset: 0, user: false }],
                };
                Ok(named(label, fetch, fetch_type))
            }
            DataNaming::File { .. } => {
                Err(format!("{name} is defined in another file with an unknown location"))
            }
        }
    }
}

/// Elements of an array that the kernel fetches at most.
const MOST_ELEMENTS: u64 = 64;

/// Whether bits are those of a number that begins in the lowest of a register.
fn is_low_number(width: u64, offset: u64) -> bool {
    offset == 0 && matches!(width, 8 | 16 | 32 | 64)
}

/// A constant; of some bits of one, those bits.
fn immediate(
    n: i64,
    bits: Option<BitSlice>,
    label: &str,
    fetch_type: Option<FetchType>,
) -> FetchArg {
    let Some(bits) = bits.filter(|b| b.width < 64 && b.offset < 64) else {
        return named(label, FetchExpr::from_base(FetchBase::Immediate(n)), fetch_type);
    };
    let value = (n as u64 >> bits.offset) & ((1 << bits.width) - 1);
    let fetch_type = u32::try_from(bits.width.next_power_of_two().max(8)).ok();
    named(
        label,
        FetchExpr::from_base(FetchBase::Immediate(value as i64)),
        fetch_type.map(FetchType::hexadecimal),
    )
}

fn named(label: &str, expr: FetchExpr, fetch_type: Option<FetchType>) -> FetchArg {
    FetchArg { name: Some(label.to_owned()), expr, fetch_type }
}

/// The argument's name: given, or of the last field, or of the variable and its
/// type.
fn label(arg: &ArgDescription, variable: &str, steps: &[FieldStep]) -> String {
    if let Some(name) = &arg.name {
        return name.clone();
    }
    let mut text = variable.to_owned();
    for step in steps {
        match step {
            // A field of a tuple needs the name of the tuple, too.
            FieldStep::Dot(n) | FieldStep::Arrow(n)
                if n.starts_with(|c: char| c.is_ascii_digit()) =>
            {
                text = format!("{text}_{n}");
            }
            FieldStep::Dot(n) | FieldStep::Arrow(n) => text.clone_from(n),
            FieldStep::Index(_) => {}
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

//! Types: classes with attributes, structures, variants, enumerations, and what
//! declarators make of them.

use std::sync::Arc;

use kymo_model::Endian;

use super::lex::{Token, Wrong};
use super::scope::Deep;
use super::{MAX_ALIGN, MAX_DEPTH, Parser};
use crate::ctf::types::{
    Encoding, Enum, Field, FieldPath, Float, Int, Label, Struct, Type, Variant,
};

/// Words of C that types are named with.
const C_WORDS: [&str; 12] = [
    "void",
    "char",
    "short",
    "int",
    "long",
    "float",
    "double",
    "signed",
    "unsigned",
    "_Bool",
    "_Complex",
    "_Imaginary",
];

/// Words that cannot name a field.
const RESERVED: [&str; 16] = [
    "align",
    "callsite",
    "const",
    "clock",
    "enum",
    "env",
    "event",
    "floating_point",
    "integer",
    "stream",
    "string",
    "struct",
    "trace",
    "typealias",
    "typedef",
    "variant",
];

/// The value of an attribute.
pub(super) enum Value {
    Number { negative: bool, value: u64 },
    Text(String),
    Path(Vec<String>),
}

impl Value {
    pub(super) fn unsigned(&self) -> Option<u64> {
        match self {
            Value::Number { negative: false, value } => Some(*value),
            _ => None,
        }
    }

    pub(super) fn signed(&self) -> Option<i64> {
        match self {
            Value::Number { negative: false, value } => i64::try_from(*value).ok(),
            Value::Number { negative: true, value } => 0i64.checked_sub_unsigned(*value),
            _ => None,
        }
    }

    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Value::Number { value, .. } => Some(*value != 0),
            Value::Path(words) => match words.as_slice() {
                [w] if matches!(w.as_str(), "true" | "TRUE") => Some(true),
                [w] if matches!(w.as_str(), "false" | "FALSE") => Some(false),
                _ => None,
            },
            Value::Text(_) => None,
        }
    }

    /// A word or a text.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(t) => Some(t),
            Value::Path(words) => match words.as_slice() {
                [w] => Some(w),
                _ => None,
            },
            Value::Number { .. } => None,
        }
    }
}

impl Parser<'_> {
    /// Reads the value of an attribute.
    pub(super) fn value(&mut self) -> Result<Value, Wrong> {
        let negative = match &self.next.1 {
            Token::Mark("-") => true,
            Token::Mark("+") => false,
            Token::Text(_) => match self.advance().1 {
                Token::Text(text) => return Ok(Value::Text(text)),
                _ => return self.unexpected("a value"),
            },
            Token::Number(_) => return self.number(false),
            _ => return self.path().map(|p| Value::Path(p.0)),
        };
        self.advance();
        self.number(negative)
    }

    fn number(&mut self, negative: bool) -> Result<Value, Wrong> {
        let Token::Number(value) = self.next.1 else { return self.unexpected("a number") };
        self.advance();
        Ok(Value::Number { negative, value })
    }

    /// `a.b.c`, or `a -> b`.
    pub(super) fn path(&mut self) -> Result<FieldPath, Wrong> {
        let mut words = vec![self.word("a name")?];
        while self.eat(".") || self.eat("->") {
            words.push(self.word("a name")?);
        }
        Ok(FieldPath(words))
    }

    /// `{ name = value; … }`; each is handed on with where it begins.
    fn attributes(
        &mut self,
        mut each: impl FnMut(&mut Self, usize, &str, Value) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        self.expect("{")?;
        while !self.eat("}") {
            let at = self.at();
            let name = self.path()?.to_string();
            self.expect("=")?;
            let value = self.value()?;
            self.expect(";")?;
            each(self, at, &name, value)?;
        }
        Ok(())
    }

    /// Reads the specifiers of a type: a class with its braces, a name, words of C.
    /// `None` is a name that is not a type by itself (`void`, before `*`).
    fn specifiers(&mut self) -> Result<(Option<Deep>, String), Wrong> {
        let (mut name, mut found) = (String::new(), None);
        while let Some(word) = self.peek_word() {
            if word == "const" {
                self.advance();
                continue;
            }
            if found.is_some() {
                break;
            }
            if C_WORDS.contains(&word) {
                if !name.is_empty() {
                    name.push(' ');
                }
                name.push_str(word);
                self.advance();
                continue;
            }
            if !name.is_empty() {
                break;
            }
            let word = word.to_owned();
            found = Some(match word.as_str() {
                "integer" | "floating_point" | "string" | "struct" | "variant" | "enum" => {
                    self.advance();
                    self.class(&word)?
                }
                _ => match self.scopes.alias(&word).cloned() {
                    Some(known) => {
                        self.advance();
                        name = word;
                        known
                    }
                    None => return self.wrong(format!("no type `{word}` is declared before")),
                },
            });
        }
        if found.is_none() && name.is_empty() {
            return self.unexpected("a type");
        }
        let found = found.or_else(|| self.scopes.alias(&name).cloned());
        Ok((found, name))
    }

    fn class(&mut self, word: &str) -> Result<Deep, Wrong> {
        let flat = |of| Deep { of, depth: 0 };
        match word {
            "integer" => self.integer().map(|i| flat(Type::Int(i))),
            "floating_point" => self.floating_point().map(|f| flat(Type::Float(f))),
            "string" => self.string().map(|e| flat(Type::Text(e))),
            "enum" => self.enumeration().map(|e| flat(Type::Enum(e))),
            "variant" => self.deeper(Self::variant),
            _ => self.deeper(Self::structure),
        }
    }

    fn align(&self, at: usize, value: &Value) -> Result<u32, Wrong> {
        match value.unsigned() {
            Some(n) if n.is_power_of_two() && n <= MAX_ALIGN => Ok(n as u32),
            _ => Err(Wrong::new(at, format!("an alignment is a power of two up to {MAX_ALIGN}"))),
        }
    }

    fn byte_order(&self, at: usize, value: &Value) -> Result<Endian, Wrong> {
        match value.text() {
            Some("le") => Ok(Endian::Little),
            Some("be" | "network") => Ok(Endian::Big),
            Some("native") => Ok(self.native),
            _ => Err(Wrong::new(at, "a byte order is le, be, network or native")),
        }
    }

    fn remark(&mut self, of: &str, name: &str) {
        let text = format!("attribute `{name}` of {of} means nothing here");
        if self.remarks.len() < 16 && !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }

    fn integer(&mut self) -> Result<Int, Wrong> {
        let begin = self.at();
        let mut int = Int::unsigned(0, self.native);
        let mut align = None;
        self.attributes(|p, at, name, value| {
            let wrong = |what: &str| Err(Wrong::new(at, what));
            match name {
                "size" => match value.unsigned() {
                    Some(n @ 1..=64) => int.size = n as u32,
                    _ => return wrong("the size of an integer is 1 to 64 bits"),
                },
                "align" => align = Some(p.align(at, &value)?),
                "signed" => match value.truth() {
                    Some(yes) => int.signed = yes,
                    None => return wrong("`signed` is true or false"),
                },
                "byte_order" => int.byte_order = p.byte_order(at, &value)?,
                "base" => int.base = base(at, &value)?,
                "encoding" => int.encoding = encoding(at, &value)?,
                "map" => match &value {
                    Value::Path(words) => match words.as_slice() {
                        [clock, name, last] if clock == "clock" && last == "value" => {
                            int.clock = Some(name.as_str().into());
                        }
                        _ => return wrong("a map is `clock.NAME.value`"),
                    },
                    _ => return wrong("a map is `clock.NAME.value`"),
                },
                other => p.remark("an integer", other),
            }
            Ok(())
        })?;
        if int.size == 0 {
            return Err(Wrong::new(begin, "an integer needs a size"));
        }
        int.align = align.unwrap_or(if int.size.is_multiple_of(8) { 8 } else { 1 });
        Ok(int)
    }

    fn floating_point(&mut self) -> Result<Float, Wrong> {
        let begin = self.at();
        let mut float = Float { exp_dig: 0, mant_dig: 0, align: 0, byte_order: self.native };
        self.attributes(|p, at, name, value| {
            let digits = || match value.unsigned() {
                Some(n @ 1..=64) => Ok(n as u32),
                _ => Err(Wrong::new(at, format!("`{name}` is a number of digits"))),
            };
            match name {
                "exp_dig" => float.exp_dig = digits()?,
                "mant_dig" => float.mant_dig = digits()?,
                "align" => float.align = p.align(at, &value)?,
                "byte_order" => float.byte_order = p.byte_order(at, &value)?,
                other => p.remark("a number", other),
            }
            Ok(())
        })?;
        if !matches!((float.exp_dig, float.mant_dig), (8, 24) | (11, 53)) {
            return Err(Wrong::new(
                begin,
                format!(
                    "numbers have 8 and 24 or 11 and 53 digits, not {} and {}",
                    float.exp_dig, float.mant_dig
                ),
            ));
        }
        if float.align == 0 {
            float.align = 8;
        }
        Ok(float)
    }

    fn string(&mut self) -> Result<Encoding, Wrong> {
        let mut of = Encoding::Utf8;
        if self.is("{") {
            self.attributes(|p, at, name, value| {
                match name {
                    "encoding" => of = encoding(at, &value)?,
                    other => p.remark("a string", other),
                }
                Ok(())
            })?;
        }
        Ok(of)
    }

    /// A name that is neither a brace nor a mark.
    fn optional_name(&mut self) -> Result<Option<String>, Wrong> {
        match self.peek_word() {
            Some(_) => self.word("a name").map(Some),
            None => Ok(None),
        }
    }

    fn structure(&mut self) -> Result<Deep, Wrong> {
        // `struct align(8) {…}` is not in the language: `align` here is a name.
        let name = self.optional_name()?;
        let at = self.at();
        let declared = self.is("{");
        let (mut of, depth) = if declared {
            let (fields, depth) = self.fields("structure")?;
            (Arc::new(Struct { fields, align: 0 }), depth)
        } else {
            let Some(name) = &name else { return self.unexpected("`{`") };
            match self.scopes.structure(name) {
                Some((of, depth)) => (Arc::clone(of), *depth),
                None => return self.wrong(format!("no structure `{name}` is declared before")),
            }
        };
        if self.peek_word() == Some("align") {
            self.advance();
            self.expect("(")?;
            let at = self.at();
            let value = self.value()?;
            let align = self.align(at, &value)?;
            self.expect(")")?;
            let align = align.max(of.align);
            of = Arc::new(Struct { fields: of.fields.clone(), align });
        }
        if let (Some(name), true) = (name, declared) {
            let taken = format!("structure `{name}` is declared twice");
            if !self.scopes.add_structure(name, (Arc::clone(&of), depth)) {
                return Err(Wrong::new(at, taken));
            }
        }
        Ok(Deep { of: Type::Struct(of), depth: depth + 1 })
    }

    fn variant(&mut self) -> Result<Deep, Wrong> {
        let name = self.optional_name()?;
        let at = self.at();
        let tag = self.tag()?;
        let (options, depth) = if self.is("{") {
            let (options, depth) = self.fields("variant")?;
            if let Some(name) = name {
                let taken = format!("variant `{name}` is declared twice");
                if !self.scopes.add_variant(name, (options.clone(), depth)) {
                    return Err(Wrong::new(at, taken));
                }
            }
            (options, depth)
        } else {
            let Some(name) = &name else { return self.unexpected("`{`") };
            match self.scopes.variant(name) {
                Some(known) => known.clone(),
                None => return self.wrong(format!("no variant `{name}` is declared before")),
            }
        };
        // The tag may stand behind the braces, too.
        let tag = match tag {
            Some(tag) => tag,
            None => self.tag()?.unwrap_or(FieldPath(Vec::new())),
        };
        Ok(Deep { of: Type::Variant(Arc::new(Variant { tag, options })), depth: depth + 1 })
    }

    fn tag(&mut self) -> Result<Option<FieldPath>, Wrong> {
        if !self.eat("<") {
            return Ok(None);
        }
        let tag = self.path()?;
        self.expect(">")?;
        Ok(Some(tag))
    }

    fn enumeration(&mut self) -> Result<Enum, Wrong> {
        let name = self.optional_name()?;
        let at = self.at();
        if !self.is(":") && !self.is("{") {
            let Some(name) = &name else { return self.unexpected("`{`") };
            return match self.scopes.enumeration(name) {
                Some(known) => Ok(known.clone()),
                None => self.wrong(format!("no enumeration `{name}` is declared before")),
            };
        }
        let of = match self.eat(":") {
            true => self.specifiers()?.0,
            false => self.scopes.alias("int").cloned(),
        };
        let Some(Deep { of: Type::Int(int), .. }) = of else {
            return Err(Wrong::new(at, "an enumeration is of an integer type"));
        };
        let labels = self.labels()?.into();
        let of = Enum { int, labels };
        if let Some(name) = name {
            let taken = format!("enumeration `{name}` is declared twice");
            if !self.scopes.add_enumeration(name, of.clone()) {
                return Err(Wrong::new(at, taken));
            }
        }
        Ok(of)
    }

    fn labels(&mut self) -> Result<Vec<Label>, Wrong> {
        self.expect("{")?;
        let mut labels = Vec::new();
        let mut following = 0i128;
        while !self.is("}") {
            let name = match self.value()? {
                Value::Text(text) => text,
                Value::Path(words) if words.len() == 1 => words.concat(),
                _ => return self.unexpected("a name"),
            };
            let (mut from, mut to) = (following, following);
            if self.eat("=") {
                from = self.constant()?;
                to = if self.eat("...") { self.constant()? } else { from };
            }
            // Readers take a range that is written backwards for none.
            labels.push(Label { name, from, to });
            following = to.saturating_add(1);
            if !self.eat(",") {
                break;
            }
        }
        self.expect("}")?;
        match labels.is_empty() {
            true => self.wrong("an enumeration has no names"),
            false => Ok(labels),
        }
    }

    fn constant(&mut self) -> Result<i128, Wrong> {
        match self.value()? {
            Value::Number { negative, value } => {
                let value = i128::from(value);
                Ok(if negative { -value } else { value })
            }
            _ => self.unexpected("a number"),
        }
    }

    /// `{ type name; … }`, and how deep the types are.
    fn fields(&mut self, of: &str) -> Result<(Vec<Field>, u32), Wrong> {
        self.expect("{")?;
        self.scopes.open();
        let mut fields: Vec<Field> = Vec::new();
        let mut names = rustc_hash::FxHashSet::default();
        let mut deepest = 0;
        while !self.eat("}") {
            if self.declaration()? {
                continue;
            }
            let (base, name) = self.specifiers()?;
            // `struct x {…};` declares and places nothing.
            if self.is(";") {
                self.advance();
                continue;
            }
            loop {
                let at = self.at();
                let (name, deep) = self.declarator(base.as_ref(), &name)?;
                if RESERVED.contains(&name.as_str()) || C_WORDS.contains(&name.as_str()) {
                    return Err(Wrong::new(at, format!("`{name}` cannot name a field")));
                }
                if !names.insert(name.clone()) {
                    return Err(Wrong::new(at, format!("the {of} has two fields `{name}`")));
                }
                if deep.depth >= MAX_DEPTH {
                    let what = format!("more than {MAX_DEPTH} types within types");
                    return Err(Wrong::new(at, what));
                }
                deepest = deepest.max(deep.depth);
                fields.push(Field { name, of: deep.of });
                if !self.eat(",") {
                    break;
                }
            }
            self.expect(";")?;
        }
        self.scopes.close();
        Ok((fields, deepest))
    }

    /// `*name[2][len]`: the name, and what it makes of the type before it.
    fn declarator(
        &mut self,
        base: Option<&Deep>,
        type_name: &str,
    ) -> Result<(String, Deep), Wrong> {
        let pointers = self.pointers(type_name);
        let base = match pointers {
            None => base.cloned(),
            Some(pointer) => match self.scopes.alias(&pointer) {
                Some(known) => Some(known.clone()),
                None => return self.wrong(format!("no type `{pointer}` is declared before")),
            },
        };
        let Some(base) = base else {
            return self.wrong(format!("no type `{type_name}` is declared before"));
        };
        let name = self.word("a name")?;
        if self.is(":") {
            return self.wrong("bit fields of C are not in use: an integer has a size of its own");
        }
        let of = self.dimensions(base)?;
        Ok((name, of))
    }

    /// `* *` behind a name: the name of the pointer's type.
    fn pointers(&mut self, name: &str) -> Option<String> {
        let mut pointer = None;
        while self.eat("*") {
            let name = pointer.get_or_insert_with(|| name.to_owned());
            name.push_str(" *");
            while self.peek_word() == Some("const") {
                self.advance();
            }
        }
        pointer
    }

    fn dimensions(&mut self, base: Deep) -> Result<Deep, Wrong> {
        enum Length {
            Is(u64),
            In(FieldPath),
        }
        let mut lengths = Vec::new();
        let at = self.at();
        while self.eat("[") {
            lengths.push(match self.next.1 {
                Token::Number(n) => {
                    self.advance();
                    Length::Is(n)
                }
                _ => Length::In(self.path()?),
            });
            self.expect("]")?;
        }
        let depth = base.depth.saturating_add(lengths.len() as u32);
        if depth >= MAX_DEPTH && !lengths.is_empty() {
            return Err(Wrong::new(at, format!("more than {MAX_DEPTH} types within types")));
        }
        let of = lengths.into_iter().rev().fold(base.of, |of, length| match length {
            Length::Is(n) => Type::Array(Arc::new(of), n),
            Length::In(path) => Type::Sequence(Arc::new(of), path),
        });
        Ok(Deep { of, depth })
    }

    /// `typedef …;` or `typealias …;`, if it is next.
    pub(super) fn declaration(&mut self) -> Result<bool, Wrong> {
        match self.peek_word() {
            Some("typedef") => {
                self.advance();
                self.typedef()?;
            }
            Some("typealias") => {
                self.advance();
                self.typealias()?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn typedef(&mut self) -> Result<(), Wrong> {
        let (base, type_name) = self.specifiers()?;
        loop {
            let (name, of) = self.declarator(base.as_ref(), &type_name)?;
            self.alias(name, of)?;
            if !self.eat(",") {
                break;
            }
        }
        self.expect(";")
    }

    fn typealias(&mut self) -> Result<(), Wrong> {
        let (base, type_name) = self.specifiers()?;
        let base = match self.pointers(&type_name) {
            None => base,
            Some(pointer) => self.scopes.alias(&pointer).cloned(),
        };
        let Some(base) = base else {
            return self.wrong(format!("no type `{type_name}` is declared before"));
        };
        let of = self.dimensions(base)?;
        self.expect(":=")?;
        let mut name = String::new();
        while let Some(word) = self.peek_word() {
            if word != "const" {
                if !name.is_empty() {
                    name.push(' ');
                }
                name.push_str(word);
            }
            self.advance();
        }
        if name.is_empty() {
            return self.unexpected("a name");
        }
        let name = self.pointers(&name).unwrap_or(name);
        self.alias(name, of)?;
        self.expect(";")
    }

    fn alias(&mut self, name: String, of: Deep) -> Result<(), Wrong> {
        let taken = format!("type `{name}` is declared twice");
        if self.scopes.add_alias(name, of) { Ok(()) } else { self.wrong(taken) }
    }

    /// Reads `struct …`, `variant …` or `enum …` between blocks, for its name alone. Old
    /// tracers leave out the `;`.
    pub(super) fn named_type(&mut self) -> Result<(), Wrong> {
        let word = self.word("a type")?;
        self.class(&word)?;
        self.eat(";");
        Ok(())
    }

    /// Reads what a scope is made of, which is a structure.
    pub(super) fn scope(&mut self) -> Result<Arc<Struct>, Wrong> {
        let at = self.at();
        match self.specifiers()?.0 {
            Some(Deep { of: Type::Struct(of), .. }) => Ok(of),
            _ => Err(Wrong::new(at, "a structure is expected")),
        }
    }
}

fn base(at: usize, value: &Value) -> Result<u8, Wrong> {
    let number = value.unsigned();
    match (number, value.text()) {
        (Some(10), _) | (_, Some("decimal" | "dec" | "d" | "i" | "u")) => Ok(10),
        (Some(16), _) | (_, Some("hexadecimal" | "hex" | "x" | "X" | "p")) => Ok(16),
        (Some(8), _) | (_, Some("octal" | "oct" | "o")) => Ok(8),
        (Some(2), _) | (_, Some("binary" | "b")) => Ok(2),
        _ => Err(Wrong::new(at, "a base is 2, 8, 10 or 16")),
    }
}

fn encoding(at: usize, value: &Value) -> Result<Encoding, Wrong> {
    match value.text() {
        Some("none") => Ok(Encoding::None),
        Some("UTF8" | "utf8" | "UTF-8" | "utf-8") => Ok(Encoding::Utf8),
        Some("ASCII" | "ascii") => Ok(Encoding::Ascii),
        _ => Err(Wrong::new(at, "an encoding is UTF8, ASCII or none")),
    }
}

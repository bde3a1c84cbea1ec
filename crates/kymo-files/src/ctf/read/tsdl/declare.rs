//! Types by name or in place: structures, variants, enumerations, and what declarators
//! make of them.

use std::sync::Arc;

use super::class::Value;
use super::lex::{Token, Wrong};
use super::scope::Deep;
use super::{MAX_DEPTH, Parser};
use crate::ctf::types::{Enum, EnumMapping, FieldPath, Struct, StructureMember, Type, Variant};

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

impl Parser<'_> {
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
        let of =
            if self.eat(":") { self.specifiers()?.0 } else { self.scopes.alias("int").cloned() };
        let Some(Deep { of: Type::Int(int), .. }) = of else {
            return Err(Wrong::new(at, "an enumeration is of an integer type"));
        };
        let labels = self.labels()?.into();
        let of = Enum { int, labels, bits: false };
        if let Some(name) = name {
            let taken = format!("enumeration `{name}` is declared twice");
            if !self.scopes.add_enumeration(name, of.clone()) {
                return Err(Wrong::new(at, taken));
            }
        }
        Ok(of)
    }

    fn labels(&mut self) -> Result<Vec<EnumMapping>, Wrong> {
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
            labels.push(EnumMapping { name, from, to });
            following = to.saturating_add(1);
            if !self.eat(",") {
                break;
            }
        }
        self.expect("}")?;
        if labels.is_empty() { self.wrong("an enumeration has no names") } else { Ok(labels) }
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
    fn fields(&mut self, of: &str) -> Result<(Vec<StructureMember>, u32), Wrong> {
        self.expect("{")?;
        self.scopes.open();
        let mut fields: Vec<StructureMember> = Vec::new();
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
                fields.push(StructureMember { name, of: deep.of });
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

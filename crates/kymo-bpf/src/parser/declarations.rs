//! C declarations of a program: structures, unions, enumerations, typedefs.

use super::{Parsed, ProgramParser};
use crate::ast::{
    EnumerationDeclaration, MemberDeclaration, RecordDeclaration, TypeName, TypedefDeclaration,
};
use crate::lexer::{TokenKind, error_at};

/// The most members of one declaration.
const MAX_MEMBERS: usize = 4096;

impl ProgramParser<'_> {
    /// `struct x { … };`, `enum y { … };`
    pub(super) fn type_declaration(&mut self) -> Parsed<()> {
        self.record_or_enumeration()?;
        self.accept(";");
        Ok(())
    }

    /// `typedef struct { … } name;`, `typedef unsigned long name;`
    pub(super) fn typedef(&mut self) -> Parsed<()> {
        self.at += 1;
        let base = self.member_type()?;
        let (name, type_name) = self.declarator(base)?;
        self.expect(";")?;
        let of_header = !self.header.is_empty();
        self.tree.typedefs.push(TypedefDeclaration { name, type_name, of_header });
        Ok(())
    }

    /// Declares it, if a body follows; returns its type.
    pub(super) fn record_or_enumeration(&mut self) -> Parsed<TypeName> {
        let word = self.expect_name("a type")?;
        let packed = self.attributes()?;
        let tag = match self.kind().clone() {
            TokenKind::Name(tag) => {
                self.at += 1;
                tag
            }
            _ => format!("anonymous@{}{}", self.header, self.at),
        };
        let named = TypeName::Named(format!("{word} {tag}"));
        if !self.accept("{") {
            return Ok(named);
        }
        if word == "enum" {
            self.enumeration_body(tag)?;
        } else {
            self.nested(|p| p.record_body(tag, word == "union", packed))?;
        }
        Ok(named)
    }

    fn enumeration_body(&mut self, name: String) -> Parsed<()> {
        let (mut variants, mut next) = (Vec::new(), 0i64);
        while !self.accept("}") {
            let variant = self.expect_name("an enumerator")?;
            if self.accept("=") {
                let negative = self.accept("-");
                let TokenKind::Integer(value) = self.next() else {
                    self.at -= 1;
                    return Err(self.unexpected("an integer"));
                };
                next = if negative { (value as i64).wrapping_neg() } else { value as i64 };
            }
            variants.push((next, variant));
            next = next.wrapping_add(1);
            if !self.accept(",") && !self.is_mark("}") {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        self.tree.enumerations.push(EnumerationDeclaration { name, variants });
        Ok(())
    }

    fn record_body(&mut self, name: String, is_union: bool, packed: bool) -> Parsed<()> {
        let mut members = Vec::new();
        while !self.accept("}") {
            let base = self.member_type()?;
            if self.accept(";") {
                // A structure without a name: its members count as ours.
                members.push(MemberDeclaration {
                    name: String::new(),
                    type_name: base,
                    bits: None,
                });
                continue;
            }
            loop {
                let (name, type_name) = self.declarator(base.clone())?;
                let mut bits = None;
                if self.accept(":") {
                    match self.next() {
                        TokenKind::Integer(n) if (1..=64).contains(&n) => bits = Some(n as u8),
                        _ => {
                            self.at -= 1;
                            return Err(self.unexpected("a number of bits"));
                        }
                    }
                }
                members.push(MemberDeclaration { name, type_name, bits });
                if members.len() > MAX_MEMBERS {
                    return Err(error_at(self.position(), "structure has too many members"));
                }
                if !self.accept(",") {
                    break;
                }
            }
            // C accepts a last member without its semicolon, with a warning.
            if !self.is_mark("}") {
                self.expect(";")?;
            }
        }
        let packed = self.attributes()? || packed;
        let of_header = !self.header.is_empty();
        self.tree.records.push(RecordDeclaration { name, is_union, members, packed, of_header });
        Ok(())
    }

    /// `__attribute__((packed))`
    fn attributes(&mut self) -> Parsed<bool> {
        let mut packed = false;
        while self.accept_name("__attribute__") {
            let mut open = 0;
            loop {
                match self.next() {
                    TokenKind::Mark("(") => open += 1,
                    TokenKind::Mark(")") => open -= 1,
                    TokenKind::Name(name) if name == "aligned" || name == "__aligned__" => {
                        self.at -= 1;
                        let what = "the attribute `aligned` is not supported";
                        return Err(error_at(self.position(), what));
                    }
                    TokenKind::Name(name) => packed |= name == "packed" || name == "__packed__",
                    TokenKind::End => return Err(self.unexpected("`)`")),
                    _ => {}
                }
                if open == 0 {
                    break;
                }
            }
        }
        Ok(packed)
    }

    fn member_type(&mut self) -> Parsed<TypeName> {
        while self.accept_name("const") || self.accept_name("volatile") {}
        if self.is_name("struct") || self.is_name("union") || self.is_name("enum") {
            return self.record_or_enumeration();
        }
        let mut words = vec![self.expect_name("a type")?];
        const MORE: &[&str] = &["int", "long", "short", "char", "unsigned", "signed"];
        while let TokenKind::Name(name) = self.kind().clone() {
            if MORE.contains(&name.as_str()) && MORE.contains(&words[0].as_str()) {
                words.push(name);
            } else if name != "const" && name != "volatile" {
                break;
            }
            self.at += 1;
        }
        Ok(TypeName::Named(words.join(" ")))
    }

    /// `*name[4]`, `(*name)(…)`
    fn declarator(&mut self, base: TypeName) -> Parsed<(String, TypeName)> {
        let mut type_name = base;
        while self.is_mark("*") || self.is_name("const") || self.is_name("volatile") {
            if self.accept("*") {
                type_name = TypeName::Pointer(Box::new(type_name));
            } else {
                self.at += 1;
            }
        }
        if self.accept("(") {
            // A pointer to a function.
            self.expect("*")?;
            let name = self.expect_name("a member's name")?;
            self.expect(")")?;
            self.expect("(")?;
            let mut open = 1;
            while open > 0 {
                match self.next() {
                    TokenKind::Mark("(") => open += 1,
                    TokenKind::Mark(")") => open -= 1,
                    TokenKind::End => return Err(self.unexpected("`)`")),
                    _ => {}
                }
            }
            let void = TypeName::Named("void".into());
            return Ok((name, TypeName::Pointer(Box::new(void))));
        }
        let name = self.expect_name("a member's name")?;
        let mut counts = Vec::new();
        while self.accept("[") {
            counts.push(match self.kind() {
                TokenKind::Integer(n) => u32::try_from(*n).unwrap_or(u32::MAX).min(1 << 24),
                TokenKind::Mark("]") => 0,
                _ => return Err(self.unexpected("a number of elements")),
            });
            self.at += usize::from(!self.is_mark("]"));
            self.expect("]")?;
            if counts.len() > 4 {
                return Err(error_at(self.position(), "too many dimensions"));
            }
        }
        for count in counts.into_iter().rev() {
            type_name = TypeName::Array(Box::new(type_name), count);
        }
        Ok((name, type_name))
    }
}

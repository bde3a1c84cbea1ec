//! C declarations of a program: structures, unions, enumerations, typedefs.

use std::rc::Rc;

use super::{Parsed, ProgramParser};
use crate::ast::{
    AlignmentDeclaration, EnumerationDeclaration, Expression, ExpressionKind, MemberDeclaration,
    RecordDeclaration, TypeName, TypedefDeclaration,
};
use crate::lexer::{TokenKind, error_at};
use crate::lower::fold_constant;

/// The most members of one declaration.
const MAX_MEMBERS: usize = 4096;
/// Bytes of `aligned` without a number.
const LARGEST_ALIGNMENT: u32 = 16;
/// The largest alignment that is taken.
const MAX_ALIGNMENT: u32 = 4096;

impl ProgramParser<'_> {
    /// `struct x { … };`, `enum y { … };`
    pub(super) fn type_declaration(&mut self) -> Parsed<()> {
        self.record_or_enumeration()?;
        self.accept(";");
        Ok(())
    }

    /// `typedef struct { … } name;`, `typedef unsigned long name, *other;`
    pub(super) fn typedef(&mut self) -> Parsed<()> {
        self.at += 1;
        let base = self.member_type()?;
        let of_header = !self.header.is_empty();
        loop {
            let (name, type_name) = self.declarator(base.clone())?;
            self.attributes()?;
            self.tree.typedefs.push(TypedefDeclaration { name, type_name, of_header });
            if !self.accept(",") {
                return self.expect(";");
            }
        }
    }

    /// Declares it, if a body follows; returns its type.
    pub(super) fn record_or_enumeration(&mut self) -> Parsed<TypeName> {
        let word = self.expect_name("a type")?;
        let mut alignment = self.attributes()?;
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
            alignment.most = self.pack;
            self.nested(|p| p.record_body(tag, word == "union", alignment))?;
        }
        Ok(named)
    }

    fn enumeration_body(&mut self, name: String) -> Parsed<()> {
        let (mut variants, mut next) = (Vec::<(i64, String)>::new(), 0i64);
        while !self.accept("}") {
            let variant = self.expect_name("an enumerator")?;
            self.attributes()?;
            if self.accept("=") {
                let position = self.position();
                let value = self.expression()?;
                let known = |kind: &ExpressionKind| {
                    let ExpressionKind::Name(name) = kind else { return None };
                    let of_others = self.tree.enumerations.iter().flat_map(|e| &e.variants);
                    let found = variants.iter().chain(of_others).find(|(_, own)| own == name);
                    found.map(|(value, _)| *value)
                };
                next = match fold_constant(&value, &known) {
                    Some(value) => value,
                    None => {
                        return Err(error_at(
                            position,
                            "value of an enumerator must be a \
                                                           constant",
                        ));
                    }
                };
            }
            variants.push((next, variant));
            next = next.wrapping_add(1);
            if !self.accept(",") && !self.is_mark("}") {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        self.attributes()?;
        self.tree.enumerations.push(EnumerationDeclaration { name, variants });
        Ok(())
    }

    fn record_body(
        &mut self,
        name: String,
        is_union: bool,
        alignment: AlignmentDeclaration,
    ) -> Parsed<()> {
        let mut members = Vec::new();
        while !self.accept("}") {
            while self.accept_name("__extension__") {}
            let base = self.member_type()?;
            if self.accept(";") {
                // A structure without a name: its members count as ours.
                members.push(MemberDeclaration {
                    name: String::new(),
                    type_name: base,
                    bits: None,
                    alignment: AlignmentDeclaration::default(),
                });
                continue;
            }
            loop {
                // A bit field without a name only takes room.
                let (name, type_name) = if self.is_mark(":") {
                    (String::new(), base.clone())
                } else {
                    self.declarator(base.clone())?
                };
                let mut bits = None;
                if self.accept(":") {
                    match self.next() {
                        TokenKind::Integer(n) if n <= 64 && (n > 0 || name.is_empty()) => {
                            bits = Some(n as u8);
                        }
                        _ => {
                            self.at -= 1;
                            return Err(self.unexpected("a number of bits"));
                        }
                    }
                }
                let alignment = self.attributes()?;
                members.push(MemberDeclaration { name, type_name, bits, alignment });
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
        let after = self.attributes()?;
        let alignment = AlignmentDeclaration {
            is_packed: alignment.is_packed || after.is_packed,
            least: alignment.least.max(after.least),
            most: alignment.most,
        };
        let of_header = !self.header.is_empty();
        let declared = RecordDeclaration { name, is_union, members, alignment, of_header };
        self.tree.records.push(declared);
        Ok(())
    }

    /// `__attribute__((packed, aligned(8)))`
    fn attributes(&mut self) -> Parsed<AlignmentDeclaration> {
        let mut alignment = AlignmentDeclaration::default();
        while self.accept_name("__attribute__") || self.accept_name("__attribute") {
            let mut open = 0;
            loop {
                match self.next() {
                    TokenKind::Mark("(") => open += 1,
                    TokenKind::Mark(")") => open -= 1,
                    TokenKind::Name(name) if name == "aligned" || name == "__aligned__" => {
                        alignment.least = alignment.least.max(self.alignment()?);
                    }
                    TokenKind::Name(name) => {
                        alignment.is_packed |= name == "packed" || name == "__packed__";
                        // A type of another size than the one that is written.
                        if name == "mode" || name == "__mode__" || name.contains("vector_size") {
                            self.at -= 1;
                            return Err(self.unexpected(
                                "an attribute that does not change the \
                                                        size",
                            ));
                        }
                    }
                    TokenKind::End => return Err(self.unexpected("`)`")),
                    _ => {}
                }
                if open == 0 {
                    break;
                }
            }
        }
        Ok(alignment)
    }

    /// `(8)` of `aligned`.
    fn alignment(&mut self) -> Parsed<u32> {
        if !self.accept("(") {
            return Ok(LARGEST_ALIGNMENT);
        }
        let value = self.expression()?;
        let value = fold_constant(&value, &|_| None).and_then(|n| u32::try_from(n).ok());
        match value.filter(|n| n.is_power_of_two() && *n <= MAX_ALIGNMENT) {
            Some(value) => {
                self.expect(")")?;
                Ok(value)
            }
            None => Err(self.unexpected("an alignment that is a power of two, and")),
        }
    }

    fn member_type(&mut self) -> Parsed<TypeName> {
        const KEPT: &[&str] = &["const", "volatile", "__extension__", "__restrict", "register"];
        let passes = |p: &mut Self| KEPT.iter().any(|word| p.accept_name(word));
        while passes(self) {}
        if self.is_name("struct") || self.is_name("union") || self.is_name("enum") {
            let named = self.record_or_enumeration()?;
            while passes(self) {}
            return Ok(named);
        }
        let mut words = vec![self.expect_name("a type")?];
        const MORE: &[&str] = &["int", "long", "short", "char", "unsigned", "signed", "double"];
        while let TokenKind::Name(name) = self.kind().clone() {
            if MORE.contains(&name.as_str()) && MORE.contains(&words[0].as_str()) {
                words.push(name);
            } else if !KEPT.contains(&name.as_str()) {
                break;
            }
            self.at += 1;
        }
        self.attributes()?;
        Ok(TypeName::Named(words.join(" ")))
    }

    /// `*name[4]`, `(*name)(…)`
    fn declarator(&mut self, base: TypeName) -> Parsed<(String, TypeName)> {
        const KEPT: &[&str] =
            &["const", "volatile", "restrict", "__restrict", "__restrict__", "__extension__"];
        let mut type_name = base;
        loop {
            if self.accept("*") {
                type_name = TypeName::Pointer(Box::new(type_name));
            } else if !KEPT.iter().any(|word| self.accept_name(word)) {
                break;
            }
        }
        if self.accept("(") {
            // A pointer to a function.
            self.expect("*")?;
            while KEPT.iter().any(|word| self.accept_name(word)) {}
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
        let mut counts: Vec<Option<Expression>> = Vec::new();
        while self.accept("[") {
            let is_flexible = self.accept("]");
            counts.push(if is_flexible { None } else { Some(self.expression()?) });
            if !is_flexible {
                self.expect("]")?;
            }
            if counts.len() > 4 {
                return Err(error_at(self.position(), "too many dimensions"));
            }
        }
        for count in counts.into_iter().rev() {
            let element = Box::new(type_name);
            type_name = match count {
                None => TypeName::Array(element, 0),
                Some(count) => match &*count.kind {
                    ExpressionKind::Integer(n) => {
                        let n = u32::try_from(*n).unwrap_or(u32::MAX).min(1 << 24);
                        TypeName::Array(element, n)
                    }
                    _ => TypeName::Counted(element, Rc::new(count)),
                },
            };
        }
        Ok((name, type_name))
    }
}

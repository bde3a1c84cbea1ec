//! Types of BTF as C has them: names, declarations, definitions with members.

use std::cell::Cell;
use std::fmt::Write as _;

use super::{BtfKind, BtfMember, BtfType, BtfTypes};

/// Types within types are followed this far: BTF of a kernel needs a dozen.
const DEPTH: u32 = 40;
/// Types that are looked at for one text: one that is damaged may be a thousand times in itself.
const STEPS: u32 = 200_000;

impl<B: AsRef<[u8]>> BtfTypes<B> {
    /// A declaration of `name`, or the type's name alone if that is empty: `char *name[4]`. Structures
    /// without name are written with their members.
    pub fn declaration(&self, id: u32, name: &str) -> String {
        let mut text = String::new();
        CWriter::new(self).declare(&mut text, id, name, 0);
        text
    }

    /// Definition of a structure, union or enumeration with its members, and without a semicolon.
    pub fn definition(&self, id: u32) -> Option<String> {
        let found = self.get(id).filter(|t| is_record(t.kind) || is_enumeration(t.kind))?;
        let mut text = String::new();
        CWriter::new(self).define(&mut text, &found, 0);
        Some(text)
    }
}

/// Writer of C declarations.
struct CWriter<'t, B> {
    types: &'t BtfTypes<B>,
    steps: Cell<u32>,
}

impl<'t, B: AsRef<[u8]>> CWriter<'t, B> {
    fn new(types: &'t BtfTypes<B>) -> CWriter<'t, B> {
        CWriter { types, steps: Cell::new(STEPS) }
    }

    /// A type, as long as there are steps left.
    fn get(&self, id: u32) -> Option<BtfType<'t>> {
        self.steps.set(self.steps.get().checked_sub(1)?);
        self.types.get(id)
    }

    fn declare(&self, out: &mut String, id: u32, name: &str, level: u32) {
        let (mut id, mut declarator) = (id, name.to_owned());
        // Qualifiers of what the declarator so far is or points to.
        let mut qualifiers: Vec<&str> = Vec::new();
        for _ in 0..DEPTH {
            let Some(found) = self.get(id) else {
                return write_named(out, &qualifiers, "void", &declarator);
            };
            match found.kind {
                BtfKind::CONST | BtfKind::VOLATILE | BtfKind::RESTRICT => {
                    let word = match found.kind {
                        BtfKind::CONST => "const",
                        BtfKind::VOLATILE => "volatile",
                        _ => "restrict",
                    };
                    // An array and its elements may both be.
                    if !qualifiers.contains(&word) {
                        qualifiers.push(word);
                    }
                }
                BtfKind::TYPE_TAG => {}
                BtfKind::PTR => {
                    // The last that was met is written first.
                    let own: String = qualifiers.drain(..).rev().map(|q| format!(" {q}")).collect();
                    let parts = declarator.starts_with('(') || !own.is_empty();
                    let gap = if parts && !declarator.is_empty() { " " } else { "" };
                    declarator = format!("*{own}{gap}{declarator}");
                    let behind = self.get(self.unqualified(found.size_or_type)).map(|t| t.kind);
                    if matches!(behind, Some(BtfKind::ARRAY | BtfKind::FUNC_PROTO)) {
                        declarator = format!("({declarator})");
                    }
                }
                BtfKind::ARRAY => {
                    let Some((element, count)) = found.array() else { return };
                    _ = write!(declarator, "[{count}]");
                    id = element;
                    continue;
                }
                BtfKind::FUNC_PROTO => {
                    let parameters = self.types.parameters(&found);
                    let one = |(_, of): &(&str, u32)| match of {
                        0 => "...".to_owned(),
                        of => {
                            let mut text = String::new();
                            self.declare(&mut text, *of, "", level + 1);
                            text
                        }
                    };
                    let parameters: Vec<String> = if level < DEPTH {
                        parameters.iter().map(one).collect()
                    } else {
                        Vec::new()
                    };
                    let list =
                        if parameters.is_empty() { "void".into() } else { parameters.join(", ") };
                    _ = write!(declarator, "({list})");
                    // Qualifiers of functions mean nothing.
                    qualifiers.clear();
                }
                kind if is_record(kind) || is_enumeration(kind) => {
                    if found.name.is_empty() && level < DEPTH {
                        qualifiers.iter().rev().for_each(|q| _ = write!(out, "{q} "));
                        self.define(out, &found, level);
                        if !declarator.is_empty() {
                            _ = write!(out, " {declarator}");
                        }
                        return;
                    }
                    let name = format!("{} {}", keyword(kind), found.name);
                    return write_named(out, &qualifiers, &name, &declarator);
                }
                BtfKind::FORWARD => {
                    let keyword = if found.is_union_forward() { "union" } else { "struct" };
                    let name = format!("{keyword} {}", found.name);
                    return write_named(out, &qualifiers, &name, &declarator);
                }
                _ => return write_named(out, &qualifiers, found.name, &declarator),
            }
            id = found.size_or_type;
        }
    }

    fn define(&self, out: &mut String, of: &BtfType<'_>, level: u32) {
        let indent = "\t".repeat(level as usize);
        let space = if of.name.is_empty() { "" } else { " " };
        _ = writeln!(out, "{}{space}{} {{", keyword(of.kind), of.name);
        for (value, name) in self.types.enumerators(of) {
            _ = match (of.kind, of.is_signed_enumeration()) {
                (BtfKind::ENUM64, true) => writeln!(out, "{indent}\t{name} = {value}LL,"),
                (BtfKind::ENUM64, false) => {
                    writeln!(out, "{indent}\t{name} = {}ULL,", value as u64)
                }
                _ => writeln!(out, "{indent}\t{name} = {value},"),
            };
        }
        let members = self.types.members(of);
        for member in &members {
            _ = write!(out, "{indent}\t");
            self.declare(out, member.type_id, member.name, level + 1);
            if let Some(bits) = member.bit_size {
                _ = write!(out, ": {bits}");
            }
            out.push_str(";\n");
        }
        if is_record(of.kind) && members.is_empty() {
            // An empty one is written on one line.
            out.truncate(out.len() - 1);
            out.push('}');
        } else {
            _ = write!(out, "{indent}}}");
        }
        if of.kind == BtfKind::STRUCT && self.is_packed(of, &members, 0) {
            out.push_str(" __attribute__((packed))");
        }
        if is_enumeration(of.kind) && of.size_or_type == 1 {
            out.push_str(" __attribute__((mode(byte)))");
        }
    }

    fn alignment(&self, id: u32, depth: u32) -> u64 {
        let Some(found) = self.get(self.types.resolve(id)).filter(|_| depth < DEPTH) else {
            return 1;
        };
        match found.kind {
            BtfKind::PTR => 8,
            BtfKind::ARRAY => {
                found.array().map_or(1, |(element, _)| self.alignment(element, depth + 1))
            }
            BtfKind::STRUCT | BtfKind::UNION => {
                let members = self.types.members(&found);
                if found.kind == BtfKind::STRUCT && self.is_packed(&found, &members, depth + 1) {
                    return 1;
                }
                let aligns = members.iter().map(|m| self.alignment(m.type_id, depth + 1));
                aligns.max().unwrap_or(1)
            }
            BtfKind::INT | BtfKind::FLOAT | BtfKind::ENUM | BtfKind::ENUM64 => {
                u64::from(found.size_or_type).clamp(1, 8).next_power_of_two()
            }
            _ => 1,
        }
    }

    /// Whether members stand where their types' alignment does not let them.
    fn is_packed(&self, of: &BtfType<'_>, members: &[BtfMember<'_>], depth: u32) -> bool {
        let mut most = 1;
        for member in members {
            let align = self.alignment(member.type_id, depth);
            most = most.max(align);
            if member.bit_size.is_none() && !u64::from(member.bit_offset).is_multiple_of(align * 8)
            {
                return true;
            }
        }
        !u64::from(of.size_or_type).is_multiple_of(most)
    }

    /// The type behind qualifiers, but not behind typedefs.
    fn unqualified(&self, mut id: u32) -> u32 {
        use BtfKind as K;
        for _ in 0..DEPTH {
            match self.get(id) {
                Some(t) if [K::CONST, K::VOLATILE, K::RESTRICT, K::TYPE_TAG].contains(&t.kind) => {
                    id = t.size_or_type;
                }
                _ => break,
            }
        }
        id
    }
}

/// `const NAME DECLARATOR`
fn write_named(out: &mut String, qualifiers: &[&str], name: &str, declarator: &str) {
    qualifiers.iter().rev().for_each(|q| _ = write!(out, "{q} "));
    let gap = if declarator.is_empty() { "" } else { " " };
    _ = write!(out, "{name}{gap}{declarator}");
}

fn keyword(kind: BtfKind) -> &'static str {
    match kind {
        BtfKind::STRUCT => "struct",
        BtfKind::UNION => "union",
        _ => "enum",
    }
}

fn is_record(kind: BtfKind) -> bool {
    kind == BtfKind::STRUCT || kind == BtfKind::UNION
}

fn is_enumeration(kind: BtfKind) -> bool {
    kind == BtfKind::ENUM || kind == BtfKind::ENUM64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[u8] = b"\0int\0pair\0a\0b\0char\0fn\0E\0ONE\0";

    /// 1: int; 2: char; 3: pointer to 2; 4: const 2; 5: pointer to 4; 6: const 5; 7: 3[4]; 8: 1[2][3];
    /// 10: int fn(const char *, ...); 11: pointer to 10; 12: pointer to 8; 13: pair; 14: union without
    /// name; 15: enumeration; 16: pointer to 17:
    /// char *fn(void); 18: const 19: 4[2].
    fn types() -> BtfTypes<Vec<u8>> {
        let kind = |kind: u32, members: u32| kind << 24 | members;
        let types: [&[u32]; 19] = [
            &[1, kind(1, 0), 4, 1 << 24 | 32],
            &[14, kind(1, 0), 1, 8],
            &[0, kind(2, 0), 2],
            &[0, kind(10, 0), 2],
            &[0, kind(2, 0), 4],
            &[0, kind(10, 0), 5],
            &[0, kind(3, 0), 0, 3, 1, 4],
            &[0, kind(3, 0), 0, 9, 1, 2],
            &[0, kind(3, 0), 0, 1, 1, 3],
            &[0, kind(13, 2), 1, 0, 5, 0, 0],
            &[0, kind(2, 0), 10],
            &[0, kind(2, 0), 8],
            &[5, kind(4, 4) | 1 << 31, 24, 10, 1, 0, 12, 1, 3 << 24 | 32, 0, 14, 64, 10, 11, 128],
            &[0, kind(5, 1), 4, 10, 1, 0],
            &[22, kind(6, 1) | 1 << 31, 4, 24, u32::MAX],
            &[0, kind(2, 0), 17],
            &[0, kind(13, 0), 3],
            &[0, kind(10, 0), 19],
            &[0, kind(3, 0), 0, 4, 1, 2],
        ];
        let words: Vec<u32> = types.concat();
        let size = words.len() as u32 * 4;
        let header = [0x0001_eb9f, 24, 0, size, size, NAMES.len() as u32];
        let bytes = header.iter().chain(&words).flat_map(|w| w.to_le_bytes());
        BtfTypes::parse(bytes.chain(NAMES.iter().copied()).collect(), None).unwrap()
    }

    #[test]
    fn declarations_are_those_of_c() {
        let types = types();
        let check = |id: u32, name: &str, expected: &str| {
            assert_eq!(types.declaration(id, name), expected, "{id}");
        };
        check(0, "", "void");
        check(1, "x", "int x");
        check(3, "x", "char *x");
        check(3, "", "char *");
        check(5, "x", "const char *x");
        check(6, "x", "const char * const x");
        check(7, "x", "char *x[4]");
        check(8, "x", "int x[2][3]");
        check(11, "x", "int (*x)(const char *, ...)");
        check(12, "x", "int (*x)[2][3]");
        check(16, "x", "char * (*x)(void)");
        check(18, "x", "const char x[2]");
        check(13, "x", "struct pair x");
        check(15, "", "enum E");
    }

    #[test]
    fn definitions_have_members() {
        let types = types();
        let pair = "struct pair {\n\tint a;\n\tint b: 3;\n\tunion {\n\t\tint a;\n\t};\n\t\
                    int (*a)(const char *, ...);\n}";
        assert_eq!(types.definition(13).unwrap(), pair);
        assert_eq!(types.definition(15).unwrap(), "enum E {\n\tONE = -1,\n}");
        assert_eq!(types.definition(1), None);
    }
}

//! Types of BTF by name and by number: structures, enumerations, functions. One pass notes
//! where each type begins; names are looked for in the text, not in an index, because a
//! program asks for a handful of a hundred thousand.

use std::rc::Rc;

use memchr::memmem;

use super::{BtfError, MAGIC};

/// Kind of a BTF type, by the numbers of `include/uapi/linux/btf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtfKind(pub u8);

#[allow(missing_docs, reason = "the names are the kernel's")]
impl BtfKind {
    pub const INT: BtfKind = BtfKind(1);
    pub const PTR: BtfKind = BtfKind(2);
    pub const ARRAY: BtfKind = BtfKind(3);
    pub const STRUCT: BtfKind = BtfKind(4);
    pub const UNION: BtfKind = BtfKind(5);
    pub const ENUM: BtfKind = BtfKind(6);
    pub const FORWARD: BtfKind = BtfKind(7);
    pub const TYPEDEF: BtfKind = BtfKind(8);
    pub const VOLATILE: BtfKind = BtfKind(9);
    pub const CONST: BtfKind = BtfKind(10);
    pub const RESTRICT: BtfKind = BtfKind(11);
    pub const FUNC: BtfKind = BtfKind(12);
    pub const FUNC_PROTO: BtfKind = BtfKind(13);
    pub const FLOAT: BtfKind = BtfKind(16);
    pub const TYPE_TAG: BtfKind = BtfKind(18);
    pub const ENUM64: BtfKind = BtfKind(19);
}

/// A type.
#[derive(Clone, Copy, Debug)]
pub struct BtfType<'a> {
    /// Kind.
    pub kind: BtfKind,
    /// Name or empty.
    pub name: &'a str,
    /// Size in bytes, or the number of the type that this one refers to.
    pub size_or_type: u32,
    /// The flag of the kind: signed enumeration, members with bit fields.
    flag: bool,
    /// Bytes after the header.
    data: &'a [u8],
}

/// A member of a structure or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtfMember<'a> {
    /// Name or empty.
    pub name: &'a str,
    /// Number of its type.
    pub type_id: u32,
    /// Bits from the start of the structure.
    pub bit_offset: u32,
    /// Bits, of a bit field.
    pub bit_size: Option<u8>,
}

/// Types of the kernel, or of a module on top of them.
#[derive(Debug)]
pub struct BtfTypes<B> {
    bytes: B,
    strings: (usize, usize),
    /// Offset of each type in `bytes`.
    begins: Vec<u32>,
    /// Number of the first type that is not the base's.
    first: u32,
    base: Option<Rc<BtfTypes<B>>>,
}

/// References are followed this far.
const DEPTH: usize = 32;

impl<B: AsRef<[u8]>> BtfTypes<B> {
    /// Notes where types begin. `base` are the kernel's types, for those of a module.
    pub fn parse(bytes: B, base: Option<Rc<BtfTypes<B>>>) -> Result<BtfTypes<B>, BtfError> {
        let data = bytes.as_ref();
        let begin = data.first_chunk().map_or(0, |b| u16::from_le_bytes(*b));
        if begin != MAGIC {
            return Err(BtfError::Magic { begin });
        }
        let header = |i: usize| word(data, i * 4).map(|w| w as usize);
        let part = |at: Option<usize>, len: Option<usize>| {
            let begin = header(1)?.checked_add(at?)?;
            let end = begin.checked_add(len?)?;
            data.get(begin..end).map(|_| (begin, end))
        };
        let cut =
            || BtfError::Short(kymo_model::Truncated { offset: data.len(), needed: 24, left: 0 });
        let (mut at, end) = part(header(2), header(3)).ok_or_else(cut)?;
        let strings = part(header(4), header(5)).ok_or_else(cut)?;
        let first = base.as_ref().map_or(1, |base| base.count());
        let mut begins = Vec::with_capacity((end - at) / 32);
        while at < end {
            let info = word(data, at + 4).ok_or_else(cut)?;
            let number = first + begins.len() as u32;
            let len = data_len(info).ok_or(BtfError::Kind { number, kind: info >> 24 & 31 })?;
            begins.push(at as u32);
            at += 12 + len;
            if at > end {
                return Err(cut());
            }
        }
        Ok(BtfTypes { bytes, strings, begins, first, base })
    }

    /// The number behind that of the last type.
    pub fn count(&self) -> u32 {
        self.first + self.begins.len() as u32
    }

    /// Number of the type of one of these kinds that has the name.
    pub fn find(&self, name: &str, kinds: &[BtfKind]) -> Option<u32> {
        let own =
            || self.name_offsets(name).into_iter().find_map(|offset| self.find_at(offset, kinds));
        match &self.base {
            Some(base) => base.find(name, kinds).or_else(own),
            None => own(),
        }
    }

    /// Numbers and names of all types of a kind, without the base's.
    pub fn all_of(&self, kind: BtfKind) -> impl Iterator<Item = (u32, &str)> {
        (self.first..self.count()).filter_map(move |id| {
            let found = self.get(id).filter(|t| t.kind == kind && !t.name.is_empty())?;
            Some((id, found.name))
        })
    }

    fn find_at(&self, name: u32, kinds: &[BtfKind]) -> Option<u32> {
        let data = self.bytes.as_ref();
        let is_wanted = |at: &u32| {
            let at = *at as usize;
            word(data, at) == Some(name)
                && word(data, at + 4).is_some_and(|info| kinds.contains(&kind_of(info)))
        };
        self.begins.iter().position(is_wanted).map(|i| self.first + i as u32)
    }

    /// Offsets of a name in the strings; for a module, in its base's as well.
    fn name_offsets(&self, name: &str) -> Vec<u32> {
        let mut needle = Vec::with_capacity(name.len() + 2);
        needle.push(0);
        needle.extend(name.as_bytes());
        needle.push(0);
        let own_begin = self.base.as_ref().map_or(0, |base| base.strings_end());
        let strings = self.own_strings();
        let mut found: Vec<u32> = match &self.base {
            Some(base) => base.name_offsets(name),
            None => Vec::new(),
        };
        if strings.starts_with(&needle[1..]) {
            found.push(own_begin);
        }
        found.extend(memmem::find(strings, &needle).map(|at| own_begin + at as u32 + 1));
        found
    }

    fn own_strings(&self) -> &[u8] {
        self.bytes.as_ref().get(self.strings.0..self.strings.1).unwrap_or_default()
    }

    fn strings_end(&self) -> u32 {
        let own = (self.strings.1 - self.strings.0) as u32;
        self.base.as_ref().map_or(0, |base| base.strings_end()) + own
    }

    /// Type by its number; 0 is `void` and no type.
    pub fn get(&self, id: u32) -> Option<BtfType<'_>> {
        if id < self.first {
            return self.base.as_ref()?.get(id);
        }
        let at = *self.begins.get((id - self.first) as usize)? as usize;
        let data = self.bytes.as_ref();
        let info = word(data, at + 4)?;
        Some(BtfType {
            kind: kind_of(info),
            name: self.text(word(data, at)?),
            size_or_type: word(data, at + 8)?,
            flag: info >> 31 == 1,
            data: data.get(at + 12..at + 12 + data_len(info)?)?,
        })
    }

    /// Number of the type behind typedefs and qualifiers.
    pub fn resolve(&self, mut id: u32) -> u32 {
        for _ in 0..DEPTH {
            match self.get(id) {
                Some(t) if is_alias(t.kind) => id = t.size_or_type,
                _ => break,
            }
        }
        id
    }

    /// Members of a structure or union.
    pub fn members<'a>(&'a self, of: &BtfType<'a>) -> Vec<BtfMember<'a>> {
        let members = of.data.chunks_exact(12).filter(|_| is_record(of.kind));
        let member = |m: &[u8]| {
            let offset = word(m, 8)?;
            let (bit_offset, bits) =
                if of.flag { (offset & 0xff_ffff, (offset >> 24) as u8) } else { (offset, 0) };
            let name = self.text(word(m, 0)?);
            let bit_size = Some(bits).filter(|bits| *bits > 0);
            Some(BtfMember { name, type_id: word(m, 4)?, bit_offset, bit_size })
        };
        members.filter_map(member).collect()
    }

    /// Parameters of a function's prototype: name and type. The last of a variadic one
    /// has type 0.
    pub fn parameters<'a>(&'a self, of: &BtfType<'a>) -> Vec<(&'a str, u32)> {
        let is_prototype = of.kind == BtfKind::FUNC_PROTO;
        let parameters = of.data.chunks_exact(8).filter(|_| is_prototype);
        parameters.filter_map(|p| Some((self.text(word(p, 0)?), word(p, 4)?))).collect()
    }

    /// Names and values of an enumeration.
    pub fn enumerators<'a>(&'a self, of: &BtfType<'a>) -> Vec<(i64, &'a str)> {
        let width = match of.kind {
            BtfKind::ENUM => 8,
            BtfKind::ENUM64 => 12,
            _ => return Vec::new(),
        };
        let enumerator = |e: &[u8]| {
            let low = word(e, 4)?;
            let value = match word(e, 8) {
                Some(high) => (u64::from(high) << 32 | u64::from(low)) as i64,
                None if of.flag => i64::from(low as i32),
                None => i64::from(low),
            };
            Some((value, self.text(word(e, 0)?)))
        };
        of.data.chunks_exact(width).filter_map(enumerator).collect()
    }

    /// Value of an enumerator of any enumeration, and the id of that.
    pub fn enumerator(&self, name: &str) -> Option<(i64, u32)> {
        let offsets = self.name_offsets(name);
        let is_enumeration = |k: BtfKind| k == BtfKind::ENUM || k == BtfKind::ENUM64;
        (self.first..self.count()).find_map(|id| {
            let at = *self.begins.get((id - self.first) as usize)? as usize;
            let info = word(self.bytes.as_ref(), at + 4)?;
            let found = self.get(id).filter(|_| is_enumeration(kind_of(info)))?;
            let width = if found.kind == BtfKind::ENUM { 8 } else { 12 };
            let mut names = found.data.chunks_exact(width).filter_map(|e| word(e, 0));
            let place = names.position(|name| offsets.contains(&name))?;
            self.enumerators(&found).get(place).map(|(value, _)| (*value, id))
        })
    }

    fn text(&self, offset: u32) -> &str {
        let own_begin = match &self.base {
            Some(base) if offset < base.strings_end() => return base.text(offset),
            Some(base) => base.strings_end(),
            None => 0,
        };
        let rest = self.own_strings().get((offset - own_begin) as usize..).unwrap_or_default();
        let end = memchr::memchr(0, rest).unwrap_or(0);
        std::str::from_utf8(rest.get(..end).unwrap_or_default()).unwrap_or_default()
    }
}

impl BtfType<'_> {
    /// Encoding of an integer: bits, and whether it is signed, a `char`, a boolean.
    pub fn integer(&self) -> (u32, bool, bool, bool) {
        let info = word(self.data, 0).unwrap_or(0);
        let encoding = info >> 24;
        let is_char = encoding & 2 != 0 || (self.name == "char");
        (info & 0xff, encoding & 1 != 0, is_char, encoding & 4 != 0)
    }

    /// Element type and number of elements of an array.
    pub fn array(&self) -> Option<(u32, u32)> {
        Some((word(self.data, 0)?, word(self.data, 8)?)).filter(|_| self.kind == BtfKind::ARRAY)
    }

    /// Whether a forward declaration is of a union.
    pub fn is_union_forward(&self) -> bool {
        self.kind == BtfKind::FORWARD && self.flag
    }

    /// Whether an enumeration has negative values.
    pub fn is_signed_enumeration(&self) -> bool {
        self.flag
    }
}

fn is_alias(kind: BtfKind) -> bool {
    use BtfKind as K;
    [K::TYPEDEF, K::VOLATILE, K::CONST, K::RESTRICT, K::TYPE_TAG].contains(&kind)
}

fn is_record(kind: BtfKind) -> bool {
    kind == BtfKind::STRUCT || kind == BtfKind::UNION
}

fn kind_of(info: u32) -> BtfKind {
    BtfKind((info >> 24 & 31) as u8)
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// Bytes behind the header of a type; `None` of a kind that is not known.
pub(super) fn data_len(info: u32) -> Option<usize> {
    let members = info as usize & 0xffff;
    Some(match info >> 24 & 31 {
        // Integer, variable, declaration tag; array.
        1 | 14 | 17 => 4,
        3 => 12,
        // Structure, union, section, wide enumeration; function prototype, enumeration.
        4 | 5 | 15 | 19 => members * 12,
        6 | 13 => members * 8,
        // Pointer, forward, typedef, qualifiers, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn btf(types: &[u32], names: &[u8]) -> Vec<u8> {
        let size = types.len() as u32 * 4;
        let header = [0x0001_eb9f, 24, 0, size, size, names.len() as u32];
        let words = header.iter().chain(types).flat_map(|w| w.to_le_bytes());
        words.chain(names.iter().copied()).collect()
    }

    const KERNEL: &[u8] = b"\0int\0pair\0a\0b\0u\0E\0ONE\0";

    /// 1: int; 2: struct pair { int a; int b:3; }; 3: typedef pair u; 4: enum E { ONE = 1 }.
    fn kernel() -> Vec<u8> {
        let kind = |kind: u32, members: u32| kind << 24 | members;
        let int = [1, kind(1, 0), 4, 1 << 24 | 32];
        let pair = [5, kind(4, 2) | 1 << 31, 8, 10, 1, 0, 12, 1, 3 << 24 | 32];
        let alias = [14, kind(8, 0), 2];
        let enumeration = [16, kind(6, 1), 4, 18, 1];
        btf(&[&int[..], &pair, &alias, &enumeration].concat(), KERNEL)
    }

    #[test]
    fn types_are_found_by_name_and_say_their_members() {
        let types = BtfTypes::parse(kernel(), None).unwrap();
        let pair = types.find("pair", &[BtfKind::STRUCT]).unwrap();
        assert_eq!((pair, types.find("pair", &[BtfKind::UNION])), (2, None));
        assert_eq!(types.resolve(types.find("u", &[BtfKind::TYPEDEF]).unwrap()), 2);
        let members = types.members(&types.get(pair).unwrap());
        let a = BtfMember { name: "a", type_id: 1, bit_offset: 0, bit_size: None };
        let b = BtfMember { name: "b", type_id: 1, bit_offset: 32, bit_size: Some(3) };
        assert_eq!(members, [a, b]);
        assert_eq!(types.get(1).unwrap().integer(), (32, true, false, false));
        assert_eq!(
            (types.enumerator("ONE").map(|e| e.0), types.enumerator("TWO")),
            (Some(1), None)
        );
    }

    #[test]
    fn types_of_a_module_stand_on_those_of_the_kernel() {
        let base = Rc::new(BtfTypes::parse(kernel(), None).unwrap());
        // 5: struct m { int a; }, its name in the module's own strings, its member's in the
        // kernel's.
        let own = KERNEL.len() as u32;
        let module = btf(&[own, 4 << 24 | 1, 4, 10, 1, 0], b"m\0");
        let types = BtfTypes::parse(module, Some(base)).unwrap();
        let m = types.find("m", &[BtfKind::STRUCT]).unwrap();
        assert_eq!((m, types.members(&types.get(m).unwrap())[0].name), (5, "a"));
        assert_eq!(types.find("int", &[BtfKind::INT]), Some(1));
    }

    #[test]
    fn cut_or_changed_anywhere_nothing_panics() {
        let whole = kernel();
        for len in 0..whole.len() {
            assert!(BtfTypes::parse(whole[..len].to_vec(), None).is_err(), "{len}");
        }
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let Ok(types) = BtfTypes::parse(bytes, None) else { continue };
                for id in 0..=types.count() {
                    let Some(found) = types.get(types.resolve(id)) else { continue };
                    types.members(&found);
                    types.parameters(&found);
                    types.enumerators(&found);
                }
                types.find("pair", &[BtfKind::STRUCT]);
                (1..types.count())
                    .for_each(|id| _ = (types.declaration(id, "x"), types.definition(id)));
                types.enumerator("ONE");
            }
        }
    }
}

//! Field classes into types.

use std::sync::Arc;

use kymo_model::Endian;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::super::tsdl::{MAX_ALIGN, MAX_DEPTH};
use super::object::{Object, Wrong, ranges, short};
use super::own_attributes;
use crate::ctf::types::{
    ANY, CtfRole, Encoding, Enum, EnumMapping, FieldPath, Float, Int, Struct, StructureMember,
    Type, TypeOption, TypeSelection, VarInt,
};

/// Bytes of the names of one field's values, each counted once for every range.
const MAX_LABEL_BYTES: usize = 16 << 20;

/// A type and how many types are within it.
#[derive(Clone, Debug)]
pub(super) struct DeepClass {
    pub(super) of: Type,
    depth: u32,
}

fn flat(of: Type) -> DeepClass {
    DeepClass { of, depth: 0 }
}

/// Field classes by their names.
#[derive(Default)]
pub(super) struct Aliases(FxHashMap<String, DeepClass>);

impl Aliases {
    pub(super) fn add(&mut self, name: &str, of: DeepClass) -> Result<(), Wrong> {
        match self.0.insert(name.to_owned(), of) {
            Some(_) => Err(format!("alias `{name}` is declared twice")),
            None => Ok(()),
        }
    }

    /// A field class, or the name of one.
    pub(super) fn class(&self, value: &Value) -> Result<DeepClass, Wrong> {
        if let Some(name) = value.as_str() {
            let known = self.0.get(name).cloned();
            return known.ok_or_else(|| format!("no alias `{name}` is declared before"));
        }
        let of = Object::new(value)?;
        let kind = of.need_text("type")?;
        match kind {
            "fixed-length-bit-array" => bits(of).map(|i| flat(Type::Int(i.in_base(16)))),
            "fixed-length-bit-map" => bit_map(of),
            "fixed-length-boolean" => boolean(of),
            // Integers with `mappings` have types of their own in the draft.
            "fixed-length-unsigned-integer" | "fixed-length-unsigned-enumeration" => {
                integer(of, false)
            }
            "fixed-length-signed-integer" | "fixed-length-signed-enumeration" => integer(of, true),
            "fixed-length-floating-point-number" => float(of),
            "variable-length-unsigned-integer" | "variable-length-unsigned-enumeration" => {
                var_int(of, false)
            }
            "variable-length-signed-integer" | "variable-length-signed-enumeration" => {
                var_int(of, true)
            }
            "null-terminated-string" => Ok(flat(Type::Text(encoding(of)?))),
            "static-length-string" => {
                Ok(bytes(length(of)?.into(), Int { encoding: encoding(of)?, ..byte() }))
            }
            "dynamic-length-string" => {
                Ok(bytes(location(of)?.into(), Int { encoding: encoding(of)?, ..byte() }))
            }
            "static-length-blob" => {
                Ok(bytes(length(of)?.into(), Int { roles: roles(of)?, base: 16, ..byte() }))
            }
            "dynamic-length-blob" => Ok(bytes(location(of)?.into(), byte().in_base(16))),
            "structure" => self.structure(of),
            "static-length-array" => self.array(of, length(of)?.into()),
            "dynamic-length-array" => self.array(of, location(of)?.into()),
            "optional" => self.optional(of),
            "variant" => self.variant(of),
            other => Err(format!("no field class has the type `{other}`")),
        }
        .map_err(|wrong| match kind {
            // Those name what is within them.
            "structure"
            | "static-length-array"
            | "dynamic-length-array"
            | "optional"
            | "variant" => wrong,
            kind => format!("{kind}: {wrong}"),
        })
    }

    fn structure(&self, of: Object<'_>) -> Result<DeepClass, Wrong> {
        let (mut fields, mut names, mut deepest) = (Vec::new(), FxHashSet::default(), 0);
        for member in of.array("member-classes")? {
            let member = Object::new(member)?;
            let name = member.need_text("name")?;
            let class = self.class(member.need("field-class")?);
            let class = class.map_err(|wrong| format!("`{name}`: {wrong}"))?;
            if !names.insert(name) {
                return Err(format!("a structure has two members `{name}`"));
            }
            deepest = deepest.max(class.depth);
            fields.push(StructureMember::new(name, class.of));
        }
        let align = alignment(of, "minimum-alignment")?;
        let of = Type::Struct(Arc::new(Struct { fields, align }));
        deeper(of, deepest)
    }

    fn array(&self, of: Object<'_>, length: Length) -> Result<DeepClass, Wrong> {
        let element = self.class(of.need("element-field-class")?)?;
        let align = alignment(of, "minimum-alignment")?;
        let row = length.of(element.of);
        let row = if align > 1 { Type::Aligned(Arc::new(row), align) } else { row };
        deeper(row, element.depth)
    }

    fn optional(&self, of: Object<'_>) -> Result<DeepClass, Wrong> {
        let class = self.class(of.need("field-class")?)?;
        let selector = field_path(of.need("selector-field-location")?)?;
        let ranges = match of.get("selector-field-ranges") {
            Some(set) => ranges(set)?,
            // The selector is a truth value.
            None => vec![(1, ANY)],
        };
        let options = vec![TypeOption { name: String::new(), ranges, of: class.of }];
        let of = TypeSelection { selector, options, optional: true };
        deeper(Type::Selection(Arc::new(of)), class.depth)
    }

    fn variant(&self, of: Object<'_>) -> Result<DeepClass, Wrong> {
        let selector = field_path(of.need("selector-field-location")?)?;
        let (mut options, mut deepest) = (Vec::new(), 0);
        for option in of.array("options")? {
            let option = Object::new(option)?;
            let ranges = ranges(option.need("selector-field-ranges")?)?;
            let name = match (option.text("name")?, ranges.first()) {
                (Some(name), _) => name.to_owned(),
                (None, Some((from, to))) if from == to => from.to_string(),
                (None, Some((from, to))) => format!("{from}..{to}"),
                (None, None) => String::new(),
            };
            let class = self.class(option.need("field-class")?);
            let class = class.map_err(|wrong| format!("option `{name}`: {wrong}"))?;
            deepest = deepest.max(class.depth);
            options.push(TypeOption { name, ranges, of: class.of });
        }
        if options.is_empty() {
            return Err("a variant has no options".to_owned());
        }
        let of = TypeSelection { selector, options, optional: false };
        deeper(Type::Selection(Arc::new(of)), deepest)
    }

    /// A structure field class of a fragment, if it has one.
    pub(super) fn scope(
        &self,
        fragment: Object<'_>,
        name: &str,
    ) -> Result<Option<Arc<Struct>>, Wrong> {
        let Some(value) = fragment.get(name) else { return Ok(None) };
        let within = |wrong| format!("`{name}`: {wrong}");
        match self.class(value).map_err(within)?.of {
            Type::Struct(of) => Ok(Some(of)),
            _ => Err(within("a structure is expected".to_owned())),
        }
    }
}

/// One type more around others.
fn deeper(of: Type, within: u32) -> Result<DeepClass, Wrong> {
    match within + 1 {
        depth if depth <= MAX_DEPTH => Ok(DeepClass { of, depth }),
        _ => Err(format!("more than {MAX_DEPTH} types within types")),
    }
}

/// Number of elements or bytes.
enum Length {
    Is(u64),
    In(FieldPath),
}

impl Length {
    fn of(self, element: Type) -> Type {
        match self {
            Length::Is(n) => Type::Array(Arc::new(element), n),
            Length::In(path) => Type::Sequence(Arc::new(element), path),
        }
    }
}

impl From<u64> for Length {
    fn from(n: u64) -> Length {
        Length::Is(n)
    }
}

impl From<FieldPath> for Length {
    fn from(path: FieldPath) -> Length {
        Length::In(path)
    }
}

fn byte() -> Int {
    Int::unsigned(8, Endian::Little)
}

fn bytes(length: Length, byte: Int) -> DeepClass {
    flat(length.of(Type::Int(byte)))
}

fn length(of: Object<'_>) -> Result<u64, Wrong> {
    of.unsigned("length")?.ok_or_else(|| "`length` is missing".to_owned())
}

fn location(of: Object<'_>) -> Result<FieldPath, Wrong> {
    field_path(of.need("length-field-location")?)
}

/// A field location as a path: from a scope, or outwards from where it stands. In the draft it
/// is an array that begins with the scope.
fn field_path(value: &Value) -> Result<FieldPath, Wrong> {
    let (origin, path) = match value.as_array().map(Vec::as_slice) {
        Some([Value::String(origin), path @ ..]) => (Some(origin.as_str()), path),
        _ => {
            let of = Object::new(value)?;
            (of.text("origin")?, of.array("path")?)
        }
    };
    let origin: &[&str] = match origin {
        None => &["."],
        Some("packet-header") => &["trace", "packet", "header"],
        Some("packet-context") => &["stream", "packet", "context"],
        Some("event-record-header") => &["stream", "event", "header"],
        Some("event-record-common-context") => &["stream", "event", "context"],
        Some("event-record-specific-context") => &["event", "context"],
        Some("event-record-payload") => &["event", "fields"],
        Some(other) => return Err(format!("no location has the origin `{other}`")),
    };
    let relative = origin == ["."];
    let mut words: Vec<String> = origin.iter().map(|w| (*w).to_owned()).collect();
    let mut names = 0;
    for element in path {
        match element {
            Value::String(name) => {
                words.push(format!("_{name}"));
                names += 1;
            }
            // Out of the structure that the name before led into.
            Value::Null if names > 0 => {
                words.pop();
                names -= 1;
            }
            Value::Null if relative => words.push("..".to_owned()),
            other => return Err(format!("`path` has no {} there", short(other))),
        }
    }
    match names {
        0 => Err("`path` names no field".to_owned()),
        _ => Ok(FieldPath(words)),
    }
}

fn alignment(of: Object<'_>, name: &str) -> Result<u32, Wrong> {
    match of.unsigned(name)? {
        None => Ok(1),
        Some(n) if n.is_power_of_two() && n <= MAX_ALIGN => Ok(n as u32),
        Some(n) => Err(format!("`{name}` is a power of two up to {MAX_ALIGN}, not {n}")),
    }
}

/// The integer of classes with a fixed number of bits.
fn bits(of: Object<'_>) -> Result<Int, Wrong> {
    let size = match length(of)? {
        n @ 1..=64 => n as u32,
        n => return Err(format!("{n} bits are not read: 1 to 64 are")),
    };
    let (byte_order, reversed) = byte_and_bit_order(of)?;
    let int = Int::unsigned(size, byte_order);
    Ok(Int { align: alignment(of, "alignment")?, reversed, ..int })
}

/// The byte order, and whether the order of bits is not the usual one of it.
fn byte_and_bit_order(of: Object<'_>) -> Result<(Endian, bool), Wrong> {
    let byte_order = match of.need_text("byte-order")? {
        "little-endian" => Endian::Little,
        "big-endian" => Endian::Big,
        other => return Err(format!("no byte order is called `{other}`")),
    };
    let reversed = match (of.text("bit-order")?, byte_order) {
        (None, _)
        | (Some("first-to-last"), Endian::Little)
        | (Some("last-to-first"), Endian::Big) => false,
        (Some("first-to-last" | "last-to-first"), _) => true,
        (Some(other), _) => return Err(format!("no bit order is called `{other}`")),
    };
    Ok((byte_order, reversed))
}

fn integer(of: Object<'_>, signed: bool) -> Result<DeepClass, Wrong> {
    let address = own_attributes(of).and_then(|own| own.get("is-address")?.as_bool());
    let address = address.unwrap_or(false);
    let int = Int { signed, base: base(of)?, roles: roles(of)?, address, ..bits(of)? };
    Ok(flat(match labels(of, "mappings")? {
        Some(labels) => Type::Enum(Enum::new(int, labels)),
        None => Type::Int(int),
    }))
}

fn var_int(of: Object<'_>, signed: bool) -> Result<DeepClass, Wrong> {
    let labels = labels(of, "mappings")?.map(Arc::from);
    Ok(flat(Type::VarInt(VarInt { signed, base: base(of)?, labels, roles: roles(of)? })))
}

fn bit_map(of: Object<'_>) -> Result<DeepClass, Wrong> {
    let int = bits(of)?.in_base(16);
    let labels = labels(of, "flags")?.ok_or_else(|| "`flags` is missing".to_owned())?;
    Ok(flat(Type::Enum(Enum { int, labels: labels.into(), bits: true })))
}

fn boolean(of: Object<'_>) -> Result<DeepClass, Wrong> {
    let labels =
        [EnumMapping::of("false", 0), EnumMapping { name: "true".into(), from: 1, to: ANY }];
    Ok(flat(Type::Enum(Enum::new(bits(of)?, labels))))
}

fn float(of: Object<'_>) -> Result<DeepClass, Wrong> {
    let (byte_order, reversed) = byte_and_bit_order(of)?;
    let (exp_dig, mant_dig) = match length(of)? {
        16 => (5, 11),
        32 => (8, 24),
        64 => (11, 53),
        n => return Err(format!("{n} bits are not read: 16, 32 and 64 are")),
    };
    let align = alignment(of, "alignment")?;
    Ok(flat(Type::Float(Float { exp_dig, mant_dig, align, byte_order, reversed })))
}

fn base(of: Object<'_>) -> Result<u8, Wrong> {
    match of.unsigned("preferred-display-base")? {
        None => Ok(10),
        Some(base @ (2 | 8 | 10 | 16)) => Ok(base as u8),
        Some(other) => Err(format!("`preferred-display-base` is 2, 8, 10 or 16, not {other}")),
    }
}

fn encoding(of: Object<'_>) -> Result<Encoding, Wrong> {
    Ok(match of.text("encoding")? {
        None | Some("utf-8") => Encoding::Utf8,
        Some("utf-16be") => Encoding::Utf16(Endian::Big),
        Some("utf-16le") => Encoding::Utf16(Endian::Little),
        Some("utf-32be") => Encoding::Utf32(Endian::Big),
        Some("utf-32le") => Encoding::Utf32(Endian::Little),
        Some(other) => return Err(format!("no encoding is called `{other}`")),
    })
}

fn roles(of: Object<'_>) -> Result<Vec<CtfRole>, Wrong> {
    let role = |value: &Value| {
        let role = value.as_str().and_then(CtfRole::from_name);
        role.ok_or_else(|| format!("no role is called {}", short(value)))
    };
    of.array("roles")?.iter().map(role).collect()
}

/// Names for ranges of values or bits; none if there are none.
fn labels(of: Object<'_>, name: &str) -> Result<Option<Vec<EnumMapping>>, Wrong> {
    let Some(map) = of.object(name)? else { return Ok(None) };
    let (mut labels, mut bytes) = (Vec::new(), 0usize);
    for (name, set) in map.entries() {
        let set = ranges(set).map_err(|wrong| format!("`{name}`: {wrong}"))?;
        bytes = bytes.saturating_add(set.len().saturating_mul(name.len()));
        if bytes > MAX_LABEL_BYTES {
            return Err(format!("names of values of more than {MAX_LABEL_BYTES} bytes"));
        }
        labels.extend(set.iter().map(|(from, to)| EnumMapping {
            name: name.to_owned(),
            from: *from,
            to: *to,
        }));
    }
    Ok(Some(labels).filter(|l| !l.is_empty()))
}

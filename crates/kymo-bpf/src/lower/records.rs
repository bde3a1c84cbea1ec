//! Types of C: those the program declares, and those the machine knows.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::types::{AddressSpace, Type, words};
use crate::ast::{Expression, ExpressionKind, ProgramTree, RecordDeclaration, TypeName};
use crate::facts::{CType, EnumerationFacts, NamedConstant, RecordLayout, RecordMember, TypeFacts};
use crate::object::{TypedField, ValueType};

/// Types that the program declares have ids from here on.
const DECLARED: u32 = 1 << 31;
/// The deepest nesting of records that is followed.
const MAX_NESTING: u32 = 16;
/// The largest record.
const MAX_RECORD: u64 = 1 << 20;

/// All types.
pub(crate) struct TypeTable<'f> {
    facts: &'f dyn TypeFacts,
    records: Vec<Rc<RecordLayout>>,
    enumerations: Vec<Rc<EnumerationFacts>>,
    names: HashMap<String, CType>,
    constants: HashMap<String, (i64, u32)>,
    /// Header records with members of unknown types.
    broken: HashSet<u32>,
    /// Alignment of declared records.
    alignments: Vec<u64>,
}

/// A member found: type, offset in bytes, and of a bit field first bit and number of bits.
#[derive(Clone, Debug)]
pub(crate) struct MemberPlace {
    pub(crate) ctype: CType,
    pub(crate) offset: u32,
    pub(crate) bits: Option<(u32, u32)>,
}

impl<'f> TypeTable<'f> {
    pub(crate) fn new(tree: &ProgramTree, facts: &'f dyn TypeFacts) -> Result<Self, String> {
        let mut table = TypeTable {
            facts,
            records: Vec::new(),
            enumerations: Vec::new(),
            names: HashMap::new(),
            constants: HashMap::new(),
            broken: HashSet::new(),
            alignments: vec![1; tree.records.len()],
        };
        for declared in &tree.enumerations {
            let id = DECLARED | table.enumerations.len() as u32;
            for (value, name) in &declared.variants {
                table.constants.insert(name.clone(), (*value, id));
            }
            let signed = declared.variants.iter().any(|(value, _)| *value < 0);
            let fits = |v: i64| i32::try_from(v).is_ok() || (!signed && u32::try_from(v).is_ok());
            let size = if declared.variants.iter().all(|(v, _)| fits(*v)) { 4 } else { 8 };
            let ctype = CType::Enumeration { size, signed, id };
            table.names.insert(format!("enum {}", declared.name), ctype);
            let facts = EnumerationFacts {
                name: declared.name.clone(),
                variants: declared.variants.clone(),
                otherwise: None,
            };
            table.enumerations.push(Rc::new(facts));
        }
        // Pointers to records that are declared later, and to the record itself, are fine:
        // ids come first, layouts after.
        for (n, declared) in tree.records.iter().enumerate() {
            let kind = if declared.is_union { "union" } else { "struct" };
            let ctype = CType::Record { id: DECLARED | n as u32 };
            table.names.insert(format!("{kind} {}", declared.name), ctype);
            table.records.push(Rc::new(RecordLayout {
                name: declared.name.clone(),
                is_union: declared.is_union,
                size: 0,
                members: Vec::new(),
            }));
        }
        for declared in &tree.typedefs {
            match table.resolve(&declared.type_name) {
                Ok(ctype) => _ = table.names.insert(declared.name.clone(), ctype),
                Err(_) if declared.of_header => {}
                Err(what) => return Err(what),
            }
        }
        for (n, declared) in tree.records.iter().enumerate() {
            match table.lay_out(declared) {
                Ok((layout, alignment)) => {
                    table.records[n] = Rc::new(layout);
                    table.alignments[n] = alignment;
                }
                Err(_) if declared.of_header => _ = table.broken.insert(DECLARED | n as u32),
                Err(what) => return Err(what),
            }
        }
        Ok(table)
    }

    /// Places of the members of a record whose members' types are laid out.
    fn lay_out(&self, declared: &RecordDeclaration) -> Result<(RecordLayout, u64), String> {
        let of_record = declared.alignment;
        let (mut bit, mut size, mut align, mut members) = (0u64, 0u64, 1u64, Vec::new());
        for member in &declared.members {
            let ctype = self.resolve(&member.type_name)?;
            let (bytes, alignment) = (self.size(&ctype), self.alignment(&ctype, 0));
            let is_packed = of_record.is_packed || member.alignment.is_packed;
            let alignment = if is_packed { 1 } else { alignment };
            let alignment = match of_record.most {
                0 => alignment,
                most => alignment.min(u64::from(most)),
            };
            let alignment = alignment.max(u64::from(member.alignment.least));
            if declared.is_union {
                bit = 0;
            }
            match member.bits {
                // The next member begins a unit of its own.
                Some(0) => bit = bit.next_multiple_of(u64::from(bytes.max(1)) * 8),
                Some(bits) if !is_packed => {
                    let unit = u64::from(bytes.max(1)) * 8;
                    if bit / unit != (bit + u64::from(bits) - 1) / unit {
                        bit = bit.next_multiple_of(unit);
                    }
                }
                Some(_) => {}
                None => bit = bit.next_multiple_of(alignment * 8),
            }
            let is_padding = member.name.is_empty() && member.bits.is_some();
            if is_padding {
                bit += member.bits.map_or(0, u64::from);
                size = size.max(bit.div_ceil(8));
                continue;
            }
            members.push(RecordMember {
                name: member.name.clone(),
                ctype,
                bit_offset: bit as u32,
                bit_size: member.bits,
            });
            bit += member.bits.map_or(u64::from(bytes) * 8, u64::from);
            size = size.max(bit.div_ceil(8));
            align = align.max(alignment);
        }
        if size > MAX_RECORD {
            return Err(format!("struct {} is larger than {MAX_RECORD} bytes", declared.name));
        }
        align = align.max(u64::from(of_record.least));
        let layout = RecordLayout {
            name: declared.name.clone(),
            is_union: declared.is_union,
            size: size.next_multiple_of(align) as u32,
            members,
        };
        Ok((layout, align))
    }

    /// A number that declarations compute of constants and of sizes of types.
    pub(crate) fn counted(&self, count: &Expression) -> Option<u32> {
        let known = |kind: &ExpressionKind| match kind {
            ExpressionKind::SizeofType(of) => Some(i64::from(self.size(&self.resolve(of).ok()?))),
            ExpressionKind::Name(name) => self.constants.get(name).map(|(value, _)| *value),
            _ => None,
        };
        let count = super::fold_constant(count, &known)?;
        u32::try_from(count).ok().filter(|count| *count <= 1 << 24)
    }

    /// Whether it is, or has in it, a record of a header that could not be laid out.
    fn is_broken(&self, ctype: &CType) -> bool {
        match ctype {
            CType::Record { id } => self.broken.contains(id),
            CType::Array { element, .. } => self.is_broken(element),
            _ => false,
        }
    }

    /// The type that a written one means.
    pub(crate) fn resolve(&self, type_name: &TypeName) -> Result<CType, String> {
        Ok(match type_name {
            TypeName::Pointer(target) => {
                // What a pointer points to need not be known.
                let target = self.resolve(target).unwrap_or(CType::Void);
                CType::Pointer { target: Box::new(target), user: false }
            }
            TypeName::Array(element, count) => {
                CType::Array { element: Box::new(self.resolve(element)?), count: *count }
            }
            TypeName::Counted(element, count) => {
                let count = self.counted(count).ok_or("number of elements must be a constant")?;
                CType::Array { element: Box::new(self.resolve(element)?), count }
            }
            TypeName::Named(name) => match self.find(name) {
                Some(ctype) => ctype,
                None => return Err(format!("unknown type `{name}`")),
            },
            TypeName::Of(_) => return Err("typeof is not possible here".into()),
        })
    }

    /// Whether a type is declared by the program or a header, or a base type of C.
    pub(crate) fn is_declared(&self, name: &str) -> bool {
        match self.names.get(name) {
            Some(ctype) => !self.is_broken(ctype),
            None => base_type(name).is_some(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<CType> {
        if let Some(ctype) = self.names.get(name) {
            // The kernel may have another one of that name, which is not meant.
            return Some(ctype.clone()).filter(|ctype| !self.is_broken(ctype));
        }
        base_type(name).or_else(|| self.facts.find_type(name))
    }

    pub(crate) fn layout(&self, id: u32) -> Option<Rc<RecordLayout>> {
        match id.checked_sub(DECLARED) {
            Some(n) => self.records.get(n as usize).cloned(),
            None => self.facts.record_layout(id),
        }
    }

    pub(crate) fn enumeration(&self, id: u32) -> Option<Rc<EnumerationFacts>> {
        match id.checked_sub(DECLARED) {
            Some(n) => self.enumerations.get(n as usize).cloned(),
            None => self.facts.enumerators(id),
        }
    }

    /// An enumerator, or another constant.
    pub(crate) fn constant(&self, name: &str) -> Option<NamedConstant> {
        if let Some((value, id)) = self.constants.get(name) {
            let ctype = CType::Enumeration { size: 4, signed: *value < 0, id: *id };
            return Some(NamedConstant { value: *value, ctype: Some(ctype) });
        }
        self.facts.constant(name)
    }

    /// Bytes of a type.
    pub(crate) fn size(&self, ctype: &CType) -> u32 {
        match ctype {
            CType::Void => 1,
            CType::Integer { size, .. } | CType::Enumeration { size, .. } => u32::from(*size),
            CType::Boolean => 1,
            CType::Wide { .. } => 16,
            CType::Float { size } => u32::from(*size),
            CType::Pointer { .. } => 8,
            CType::Array { element, count } => self.size(element).saturating_mul(*count),
            CType::Record { id } => self.layout(*id).map_or(0, |l| l.size),
            CType::Text { size, .. } => *size,
        }
    }

    pub(crate) fn alignment(&self, ctype: &CType, depth: u32) -> u64 {
        match ctype {
            CType::Array { element, .. } => self.alignment(element, depth),
            CType::Float { size } => u64::from(*size).max(1),
            CType::Wide { .. } => 16,
            CType::Record { id } if *id >= DECLARED => {
                self.alignments.get((id - DECLARED) as usize).copied().unwrap_or(1)
            }
            CType::Record { id } if depth < MAX_NESTING => {
                let layout = self.layout(*id);
                let members = layout.iter().flat_map(|l| &l.members);
                members.map(|m| self.alignment(&m.ctype, depth + 1)).max().unwrap_or(1)
            }
            _ => u64::from(self.size(ctype).clamp(1, 8)).next_power_of_two(),
        }
    }

    /// Finds a member, also in members without name.
    pub(crate) fn member(&self, id: u32, name: &str) -> Option<MemberPlace> {
        self.member_below(id, name, 0, 0)
    }

    fn member_below(&self, id: u32, name: &str, base: u32, depth: u32) -> Option<MemberPlace> {
        let layout = self.layout(id)?;
        for member in &layout.members {
            let bit = base.checked_add(member.bit_offset)?;
            if member.name == name {
                return Some(place_of(self, member, bit));
            }
            if member.name.is_empty()
                && depth < MAX_NESTING
                && let CType::Record { id } = member.ctype
                && let Some(found) = self.member_below(id, name, bit, depth + 1)
            {
                return Some(found);
            }
        }
        None
    }

    /// Names of members, for messages.
    pub(crate) fn member_names(&self, id: u32) -> Vec<String> {
        let layout = self.layout(id);
        let members = layout.iter().flat_map(|l| &l.members);
        members.map(|m| m.name.clone()).filter(|n| !n.is_empty()).collect()
    }

    /// Bytes that a value takes in maps and records.
    pub(crate) fn storage(&self, value: &Type) -> u32 {
        match value {
            Type::Nothing => 0,
            Type::Text(n) => words(*n),
            Type::Buffer(n) => words(n + 4),
            Type::Record(id) => words(self.layout(*id).map_or(0, |l| l.size)),
            Type::Number(ctype) => words(self.size(ctype)),
            Type::Array { element, count } => words(self.size(element).saturating_mul(*count)),
            Type::Tuple(parts, _) => {
                parts.iter().fold(0u32, |sum, p| sum.saturating_add(self.storage(p)))
            }
            Type::UserSymbol | Type::UserStack(_) => 16,
            Type::Internet => 24,
            Type::Aggregate(value) => aggregate_size(value),
            _ => 8,
        }
    }

    /// The type as the runtime takes it.
    pub(crate) fn value_type(&self, value: &Type) -> ValueType {
        match value {
            Type::Nothing | Type::Arguments => ValueType::None,
            Type::Unknown => ValueType::Integer { size: 8, signed: true },
            Type::Integer { size, signed } => ValueType::Integer { size: *size, signed: *signed },
            Type::Boolean => ValueType::Boolean,
            Type::Enumeration { id, size, signed } => match self.enumeration(*id) {
                Some(facts) => {
                    let name = facts.name.clone();
                    let otherwise = facts.otherwise.clone();
                    ValueType::Enumerator { name, variants: facts.variants.clone(), otherwise }
                }
                None => ValueType::Integer { size: *size, signed: *signed },
            },
            Type::Pointer { .. } => ValueType::Pointer,
            Type::Text(n) => ValueType::Text { size: words(*n) },
            Type::Buffer(n) => ValueType::Buffer { size: words(n + 4) },
            Type::Number(ctype) => self.c_value_type(ctype, 0),
            Type::Record(_) | Type::Array { .. } => self.c_value_type(&self.ctype_of(value), 0),
            Type::Tuple(parts, names) => {
                let mut offset = 0;
                let field = |(n, part): (usize, &Type)| {
                    let size = self.storage(part);
                    let value_type = self.value_type(part);
                    let name = names.get(n).cloned().unwrap_or_default();
                    let field = TypedField { name, offset, size, bits: None, value_type };
                    offset += size;
                    field
                };
                let fields = parts.iter().enumerate().map(field).collect();
                if names.is_empty() {
                    ValueType::Tuple(fields)
                } else {
                    ValueType::Structure { name: String::new(), fields }
                }
            }
            Type::KernelSymbol => ValueType::KernelSymbol,
            Type::UserSymbol => ValueType::UserSymbol,
            Type::KernelStack(settings) => ValueType::KernelStack(*settings),
            Type::UserStack(settings) => ValueType::UserStack(*settings),
            Type::Internet => ValueType::InternetAddress,
            Type::Mac => ValueType::MacAddress,
            Type::Timestamp { format, clock } => {
                ValueType::Timestamp { format: format.clone(), clock: *clock }
            }
            Type::ErrorText => ValueType::ErrorText,
            Type::CgroupPath(hierarchy) => ValueType::CgroupPath { hierarchy: hierarchy.clone() },
            Type::ProbeName => ValueType::ProbeName,
            Type::UserName => ValueType::UserName,
            Type::SyscallName => ValueType::SyscallName,
            Type::SignalName => ValueType::SignalName,
            Type::Aggregate(value) => value.clone(),
        }
    }

    fn ctype_of(&self, value: &Type) -> CType {
        match value {
            Type::Record(id) => CType::Record { id: *id },
            Type::Array { element, count } => {
                CType::Array { element: Box::new(element.clone()), count: *count }
            }
            _ => CType::Void,
        }
    }

    fn c_value_type(&self, ctype: &CType, depth: u32) -> ValueType {
        match ctype {
            CType::Void => ValueType::None,
            CType::Text { data, length, .. } => {
                ValueType::TextElsewhere { data: *data, length: *length }
            }
            CType::Float { size } if matches!(size, 4 | 8) => ValueType::Float { size: *size },
            CType::Float { size } => ValueType::Array {
                element: Box::new(ValueType::Integer { size: 1, signed: false }),
                element_size: 1,
                count: u32::from(*size),
            },
            CType::Wide { signed } => ValueType::Wide { signed: *signed },
            CType::Integer { size, signed, .. } => {
                ValueType::Integer { size: *size, signed: *signed }
            }
            CType::Boolean => ValueType::Boolean,
            CType::Enumeration { size, signed, id } => {
                let (size, signed, id) = (*size, *signed, *id);
                self.value_type(&Type::Enumeration { size, signed, id })
            }
            CType::Pointer { .. } => ValueType::Pointer,
            CType::Array { element, count }
                if matches!(**element, CType::Integer { is_char: true, .. }) =>
            {
                ValueType::Text { size: *count }
            }
            CType::Array { element, count } => {
                let element_size = self.size(element);
                let element = Box::new(self.c_value_type(element, depth + 1));
                ValueType::Array { element, element_size, count: *count }
            }
            CType::Record { id } => {
                let Some(layout) = self.layout(*id).filter(|_| depth < MAX_NESTING) else {
                    return ValueType::None;
                };
                let field = |member: &RecordMember| {
                    let place = place_of(self, member, member.bit_offset);
                    let size = self.size(&place.ctype);
                    let value_type = self.c_value_type(&place.ctype, depth + 1);
                    let (name, offset, bits) = (member.name.clone(), place.offset, place.bits);
                    match value_type {
                        // Members of one without a name count as the record's own.
                        ValueType::Structure { fields, .. } if name.is_empty() => {
                            let at = |f: TypedField| TypedField { offset: f.offset + offset, ..f };
                            fields.into_iter().map(at).collect()
                        }
                        value_type => vec![TypedField { name, offset, size, bits, value_type }],
                    }
                };
                let fields = layout.members.iter().flat_map(field).collect();
                ValueType::Structure { name: layout.name.clone(), fields }
            }
        }
    }
}

fn place_of(table: &TypeTable<'_>, member: &RecordMember, bit: u32) -> MemberPlace {
    let ctype = member.ctype.clone();
    match member.bit_size {
        Some(bits) if bits > 0 => {
            // Read in units of the declared type.
            let unit = table.size(&ctype).clamp(1, 8) * 8;
            let begin = bit / unit * unit;
            let bits = Some((bit - begin, u32::from(bits)));
            MemberPlace { ctype, offset: begin / 8, bits }
        }
        _ => MemberPlace { ctype, offset: bit / 8, bits: None },
    }
}

/// Bytes of an aggregation's value.
pub(crate) fn aggregate_size(value: &ValueType) -> u32 {
    match value {
        ValueType::Count => 8,
        ValueType::Histogram { bits } => crate::object::histogram_buckets(*bits) * 8,
        ValueType::LinearHistogram { min, max, step } => {
            let buckets = max.saturating_sub(*min) / (*step).max(1);
            (u32::try_from(buckets).unwrap_or(0) + 2) * 8
        }
        ValueType::TimeSeries { intervals, .. } => intervals.saturating_mul(24),
        _ => 16,
    }
}

/// The value that a C type has in an expression.
pub(crate) fn value_of_ctype(ctype: &CType, space: AddressSpace) -> Type {
    match ctype {
        CType::Void => Type::Integer { size: 1, signed: false },
        CType::Integer { size, signed, .. } => Type::Integer { size: *size, signed: *signed },
        CType::Boolean => Type::Boolean,
        CType::Enumeration { size, signed, id } => {
            Type::Enumeration { size: *size, signed: *signed, id: *id }
        }
        CType::Pointer { target, user } => {
            let space = match (user, space) {
                (true, _) => AddressSpace::User,
                // Pointers in a record point out of it.
                (false, AddressSpace::Record) => AddressSpace::Kernel,
                (false, space) => space,
            };
            Type::Pointer { target: (**target).clone(), space }
        }
        CType::Array { element, count } => {
            Type::Array { element: (**element).clone(), count: *count }
        }
        CType::Record { id } => Type::Record(*id),
        // Read where it is used: see `load_c`.
        CType::Text { size, .. } => Type::Buffer(*size),
        CType::Float { .. } | CType::Wide { .. } => Type::Number(ctype.clone()),
    }
}

/// Types that C and bpftrace know without declaration.
fn base_type(name: &str) -> Option<CType> {
    let integer = |size, signed, is_char| Some(CType::Integer { size, signed, is_char });
    let words: Vec<&str> = name.split(' ').collect();
    const OF_C: [&str; 6] = ["int", "long", "short", "char", "unsigned", "signed"];
    if words.iter().all(|word| OF_C.contains(word)) {
        let signed = !words.contains(&"unsigned");
        let size = match () {
            () if words.contains(&"char") => 1,
            () if words.contains(&"short") => 2,
            () if words.contains(&"long") => 8,
            () => 4,
        };
        return integer(size, signed, size == 1);
    }
    match name {
        "void" => Some(CType::Void),
        "bool" | "_Bool" => Some(CType::Boolean),
        "float" | "_Float32" => Some(CType::Float { size: 4 }),
        "double" | "_Float64" | "_Float32x" => Some(CType::Float { size: 8 }),
        "long double" | "__float128" | "_Float128" | "_Float64x" => Some(CType::Float { size: 16 }),
        "int8" | "s8" | "__s8" | "int8_t" => integer(1, true, false),
        "uint8" | "u8" | "__u8" | "uint8_t" => integer(1, false, false),
        "int16" | "s16" | "__s16" | "int16_t" => integer(2, true, false),
        "uint16" | "u16" | "__u16" | "uint16_t" => integer(2, false, false),
        "int32" | "s32" | "__s32" | "int32_t" | "pid_t" => integer(4, true, false),
        "uint32" | "u32" | "__u32" | "uint32_t" | "dev_t" => integer(4, false, false),
        "int64" | "s64" | "__s64" | "int64_t" | "ssize_t" | "loff_t" | "off_t" | "ptrdiff_t"
        | "intptr_t" => integer(8, true, false),
        "uint64" | "u64" | "__u64" | "uint64_t" | "size_t" | "uintptr_t" => {
            integer(8, false, false)
        }
        "wchar_t" => integer(4, true, false),
        "umode_t" => integer(2, false, false),
        "sector_t" => integer(8, false, false),
        "gfp_t" | "uid_t" | "gid_t" => integer(4, false, false),
        _ => None,
    }
}

//! Types of the running kernel, from its BTF, as C types.

use std::cell::RefCell;
use std::rc::Rc;

use kymo_bpf::{
    ArgumentPlace, CType, EnumerationFacts, FunctionArgument, FunctionFacts, RecordLayout,
    RecordMember,
};
use kymo_debuginfo::{BtfKind, BtfTypes};
use kymo_kernel::system::SystemRoot;
use rustc_hash::FxHashMap;

/// Types of the kernel. Ids that the compiler gets are BTF's.
pub(crate) struct KernelTypes {
    btf: BtfTypes<Vec<u8>>,
    records: RefCell<FxHashMap<u32, Rc<RecordLayout>>>,
}

/// Pointers to pointers are followed this far.
const DEPTH: u32 = 8;

impl KernelTypes {
    /// Those of the running kernel, if it tells them.
    pub(crate) fn running() -> Option<KernelTypes> {
        let bytes = SystemRoot::machine().kernel_btf().ok()?;
        let btf = BtfTypes::parse(bytes, None).ok()?;
        Some(KernelTypes { btf, records: RefCell::default() })
    }

    /// Type by its C name.
    pub(crate) fn find(&self, name: &str) -> Option<CType> {
        use BtfKind as K;
        let (kinds, name): (&[K], &str) = match name.split_once(' ') {
            Some(("struct", rest)) => (&[K::STRUCT], rest),
            Some(("union", rest)) => (&[K::UNION], rest),
            Some(("enum", rest)) => (&[K::ENUM, K::ENUM64], rest),
            _ => (&[K::TYPEDEF, K::INT], name),
        };
        Some(self.ctype(self.btf.find(name.trim(), kinds)?, 0))
    }

    /// Members of a structure or union.
    pub(crate) fn record(&self, id: u32) -> Option<Rc<RecordLayout>> {
        if let Some(known) = self.records.borrow().get(&id) {
            return Some(Rc::clone(known));
        }
        let found = self.btf.get(id)?;
        if found.kind != BtfKind::STRUCT && found.kind != BtfKind::UNION {
            return None;
        }
        let members = self.btf.members(&found).into_iter().map(|m| RecordMember {
            name: m.name.to_owned(),
            ctype: self.ctype(m.type_id, 0),
            bit_offset: m.bit_offset,
            bit_size: m.bit_size,
        });
        let layout = Rc::new(RecordLayout {
            name: found.name.to_owned(),
            is_union: found.kind == BtfKind::UNION,
            size: found.size_or_type,
            members: members.collect(),
        });
        self.records.borrow_mut().insert(id, Rc::clone(&layout));
        Some(layout)
    }

    /// Names and values of an enumeration.
    pub(crate) fn enumeration(&self, id: u32) -> Option<Rc<EnumerationFacts>> {
        let found = self.btf.get(id)?;
        let variants = self.btf.enumerators(&found);
        let variants = variants.into_iter().map(|(value, name)| (value, name.to_owned())).collect();
        Some(Rc::new(EnumerationFacts { name: found.name.to_owned(), variants, otherwise: None }))
    }

    /// Value of an enumerator.
    pub(crate) fn constant(&self, name: &str) -> Option<i64> {
        self.btf.constant(name)
    }

    /// Arguments and return value of a function.
    pub(crate) fn function(&self, name: &str) -> Result<Rc<FunctionFacts>, String> {
        let id = self.function_id(name).ok_or_else(|| format!("BTF has no function {name}"))?;
        let prototype = self.btf.get(id).map_or(0, |f| f.size_or_type);
        Ok(self.prototype(prototype, 0))
    }

    /// Arguments of a raw tracepoint.
    pub(crate) fn tracepoint(&self, event: &str) -> Result<Rc<FunctionFacts>, String> {
        let unknown = || format!("BTF has no tracepoint {event}");
        let id = self.tracepoint_id(event).ok_or_else(unknown)?;
        let pointer = self.btf.get(self.btf.resolve(id)).ok_or_else(unknown)?;
        // The first argument is the registered data, which programs do not get.
        Ok(self.prototype(self.btf.resolve(pointer.size_or_type), 1))
    }

    /// Number of a function's type.
    pub(crate) fn function_id(&self, name: &str) -> Option<u32> {
        self.btf.find(name, &[BtfKind::FUNC])
    }

    /// Number of a tracepoint's type.
    pub(crate) fn tracepoint_id(&self, event: &str) -> Option<u32> {
        self.btf.find(&format!("btf_trace_{event}"), &[BtfKind::TYPEDEF])
    }

    /// Names of all functions, and of all tracepoints.
    pub(crate) fn function_names(&self) -> impl Iterator<Item = &str> {
        self.btf.all_of(BtfKind::FUNC).map(|(_, name)| name)
    }

    pub(crate) fn tracepoint_names(&self) -> impl Iterator<Item = &str> {
        let names = self.btf.all_of(BtfKind::TYPEDEF).map(|(_, name)| name);
        names.filter_map(|name| name.strip_prefix("btf_trace_"))
    }

    fn prototype(&self, id: u32, skipped: usize) -> Rc<FunctionFacts> {
        let nothing = || Rc::new(FunctionFacts { arguments: Vec::new(), returns: CType::Void });
        let Some(prototype) = self.btf.get(id) else { return nothing() };
        let parameters = self.btf.parameters(&prototype).into_iter().skip(skipped);
        let argument = |(n, (name, type_id)): (usize, (&str, u32))| FunctionArgument {
            name: name.to_owned(),
            ctype: self.ctype(type_id, 0),
            place: ArgumentPlace::Index(n as u8),
        };
        Rc::new(FunctionFacts {
            arguments: parameters.enumerate().take(12).map(argument).collect(),
            returns: self.ctype(prototype.size_or_type, 0),
        })
    }

    fn ctype(&self, id: u32, depth: u32) -> CType {
        use BtfKind as K;
        let id = self.btf.resolve(id);
        let Some(found) = self.btf.get(id).filter(|_| depth < DEPTH) else { return CType::Void };
        match found.kind {
            K::INT => {
                let (bits, signed, is_char, is_boolean) = found.integer();
                match is_boolean {
                    true => CType::Boolean,
                    false => CType::Integer { size: (bits / 8).max(1) as u8, signed, is_char },
                }
            }
            K::PTR => {
                let user = self
                    .btf
                    .get(found.size_or_type)
                    .is_some_and(|tag| tag.kind == K::TYPE_TAG && tag.name == "user");
                let target = Box::new(self.ctype(found.size_or_type, depth + 1));
                CType::Pointer { target, user }
            }
            K::ARRAY => match found.array() {
                Some((element, count)) => {
                    CType::Array { element: Box::new(self.ctype(element, depth + 1)), count }
                }
                None => CType::Void,
            },
            K::STRUCT | K::UNION => CType::Record { id },
            K::ENUM | K::ENUM64 => {
                let size = found.size_or_type as u8;
                CType::Enumeration { size, signed: found.is_signed_enumeration(), id }
            }
            K::FLOAT => {
                CType::Integer { size: found.size_or_type as u8, signed: false, is_char: false }
            }
            _ => CType::Void,
        }
    }
}

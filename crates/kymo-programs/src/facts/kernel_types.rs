//! Types of the running kernel and of its modules, from their BTF, as C types.

use std::cell::RefCell;
use std::rc::Rc;

use kymo_bpf::{
    ArgumentPlace, CType, EnumerationFacts, FunctionArgument, FunctionFacts, NamedConstant,
    RecordLayout, RecordMember,
};
use kymo_debuginfo::{BtfKind, BtfTypes};
use kymo_kernel::system::SystemRoot;
use rustc_hash::FxHashMap;

/// Types of the kernel and of its modules. Ids that the compiler gets are BTF's, with the number
/// of the module above them where the type is a module's own.
pub(crate) struct KernelTypes {
    kernel: Rc<TypeSpace>,
    /// Those that were asked for: the first has number 1.
    modules: RefCell<Vec<Rc<TypeSpace>>>,
    records: RefCell<FxHashMap<u32, Rc<RecordLayout>>>,
}

/// BTF of the kernel, or of a module on top of it.
pub(crate) struct TypeSpace {
    /// Empty for the kernel.
    pub(crate) module: String,
    btf: Rc<BtfTypes<Vec<u8>>>,
    /// Number of the first type of a module, and the bits above its ids.
    first: u32,
    tag: u32,
}

/// A function in C.
pub(crate) struct PrototypeText {
    /// Types and names of the arguments.
    pub(crate) arguments: Vec<(String, String)>,
    /// Type of what it returns.
    pub(crate) returns: String,
}

/// Pointers to pointers are followed this far.
const DEPTH: u32 = 8;
/// Bits of BTF's ids; above them is the number of a module.
const ID_BITS: u32 = 24;
const MOST_MODULES: usize = 63;

impl KernelTypes {
    /// Types of the running kernel, if it has them.
    pub(crate) fn running() -> Option<KernelTypes> {
        let bytes = SystemRoot::machine().kernel_btf().ok()?;
        let btf = Rc::new(BtfTypes::parse(bytes, None).ok()?);
        let kernel = Rc::new(TypeSpace { module: String::new(), btf, first: 0, tag: 0 });
        Some(KernelTypes { kernel, modules: RefCell::default(), records: RefCell::default() })
    }

    /// Types of a module, if it has them; no name is the kernel.
    pub(crate) fn space(&self, module: &str) -> Option<Rc<TypeSpace>> {
        if module.is_empty() || module == "vmlinux" {
            return Some(Rc::clone(&self.kernel));
        }
        let mut modules = self.modules.borrow_mut();
        if let Some(known) = modules.iter().find(|space| space.module == module) {
            return Some(Rc::clone(known));
        }
        let first = self.kernel.btf.count();
        let bytes = SystemRoot::machine().module_btf(module).ok()?;
        let btf = Rc::new(BtfTypes::parse(bytes, Some(Rc::clone(&self.kernel.btf))).ok()?);
        if modules.len() >= MOST_MODULES || btf.count() >> ID_BITS != 0 {
            return None;
        }
        let tag = (modules.len() as u32 + 1) << ID_BITS;
        let space = Rc::new(TypeSpace { module: module.to_owned(), btf, first, tag });
        modules.push(Rc::clone(&space));
        Some(space)
    }

    /// The types that an id is of, and BTF's id.
    fn place(&self, id: u32) -> Option<(Rc<TypeSpace>, u32)> {
        let space = match (id >> ID_BITS) as usize {
            0 => Rc::clone(&self.kernel),
            number => Rc::clone(self.modules.borrow().get(number - 1)?),
        };
        Some((space, id & ((1 << ID_BITS) - 1)))
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
        let of = |space: &TypeSpace| Some(space.ctype(space.btf.find(name.trim(), kinds)?, 0));
        // Of modules, those whose probes were asked for.
        of(&self.kernel).or_else(|| self.modules.borrow().iter().find_map(|space| of(space)))
    }

    /// Offset of a member of a structure of the kernel, in bytes.
    pub(crate) fn member_offset(&self, structure: &str, member: &str) -> Option<u32> {
        let btf = &self.kernel.btf;
        let structure = btf.get(btf.find(structure, &[BtfKind::STRUCT])?)?;
        let members = btf.members(&structure);
        let member = members.iter().find(|m| m.name == member)?;
        Some(member.bit_offset / 8)
    }

    /// Members of a structure or union.
    pub(crate) fn record(&self, id: u32) -> Option<Rc<RecordLayout>> {
        if let Some(known) = self.records.borrow().get(&id) {
            return Some(Rc::clone(known));
        }
        let (space, btf_id) = self.place(id)?;
        let found = space.btf.get(btf_id)?;
        if found.kind != BtfKind::STRUCT && found.kind != BtfKind::UNION {
            return None;
        }
        let members = space.btf.members(&found).into_iter().map(|m| RecordMember {
            name: m.name.to_owned(),
            ctype: space.ctype(m.type_id, 0),
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
        let (space, id) = self.place(id)?;
        let found = space.btf.get(id)?;
        let variants = space.btf.enumerators(&found);
        let variants = variants.into_iter().map(|(value, name)| (value, name.to_owned())).collect();
        Some(Rc::new(EnumerationFacts { name: found.name.to_owned(), variants, otherwise: None }))
    }

    /// An enumerator.
    pub(crate) fn constant(&self, name: &str) -> Option<NamedConstant> {
        let modules = self.modules.borrow();
        let of = |space: &TypeSpace| {
            let (value, id) = space.btf.enumerator(name)?;
            Some(NamedConstant { value, ctype: Some(space.ctype(id, 0)) })
        };
        of(&self.kernel).or_else(|| modules.iter().find_map(|space| of(space)))
    }

    /// The kernel, as `vmlinux`, and modules with types.
    pub(crate) fn module_names(&self) -> Vec<String> {
        SystemRoot::machine().btf_modules()
    }
}

impl TypeSpace {
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
        let prototype = self.tracepoint_prototype(event, id).ok_or_else(unknown)?;
        // The first argument is the registered data, which programs do not get.
        Ok(self.prototype(prototype, 1))
    }

    /// Arguments of a function as C has them, and the type of what it returns.
    pub(crate) fn function_text(&self, name: &str) -> Option<PrototypeText> {
        let function = self.btf.get(self.function_id(name)?)?;
        self.prototype_text(function.size_or_type, 0)
    }

    /// Returns the prototype of a raw tracepoint as text.
    pub(crate) fn tracepoint_text(&self, event: &str) -> Option<PrototypeText> {
        let id = self.tracepoint_id(event)?;
        self.prototype_text(self.tracepoint_prototype(event, id)?, 1)
    }

    /// Prototype of what is called for a tracepoint. That of its type has no names of arguments; the
    /// function that calls those who are attached has the same ones, with names.
    fn tracepoint_prototype(&self, event: &str, id: u32) -> Option<u32> {
        let pointer = self.btf.get(self.btf.resolve(id))?;
        let own = self.btf.resolve(pointer.size_or_type);
        let types = |prototype: u32| -> Option<Vec<u32>> {
            let found = self.btf.get(prototype)?;
            Some(self.btf.parameters(&found).into_iter().map(|(_, of)| of).collect())
        };
        let caller = self.function_id(&format!("__traceiter_{event}"));
        let named = caller.and_then(|caller| Some(self.btf.get(caller)?.size_or_type));
        Some(named.filter(|named| types(*named) == types(own)).unwrap_or(own))
    }

    fn prototype_text(&self, id: u32, skipped: usize) -> Option<PrototypeText> {
        let prototype = self.btf.get(id)?;
        let parameters = self.btf.parameters(&prototype).into_iter().skip(skipped);
        let text = |(name, of): (&str, u32)| match (name, of) {
            ("", 0) => ("...".to_owned(), String::new()),
            _ => (self.btf.declaration(of, ""), name.to_owned()),
        };
        let returns = self.btf.declaration(prototype.size_or_type, "");
        Some(PrototypeText { arguments: parameters.map(text).collect(), returns })
    }

    /// Names of the structures (or unions, or enumerations) that a pattern is of, sorted, and their
    /// numbers.
    pub(crate) fn named_types(
        &self,
        keyword: &str,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Vec<(String, u32)> {
        let kinds: &[BtfKind] = match keyword {
            "struct" => &[BtfKind::STRUCT],
            "union" => &[BtfKind::UNION],
            _ => &[BtfKind::ENUM, BtfKind::ENUM64],
        };
        let all = kinds.iter().flat_map(|kind| self.btf.all_of(*kind));
        let found = all.filter(|(_, name)| is_wanted(name));
        let mut found: Vec<(String, u32)> = found.map(|(id, name)| (name.to_owned(), id)).collect();
        found.sort();
        // Of several that have the name, the first, as programs get it.
        found.dedup_by(|a, b| a.0 == b.0);
        found
    }

    /// A type with its members in C.
    pub(crate) fn definition(&self, id: u32) -> Option<String> {
        self.btf.definition(id)
    }

    /// Number of a function's type.
    pub(crate) fn function_id(&self, name: &str) -> Option<u32> {
        match self.module.is_empty() {
            true => self.btf.find(name, &[BtfKind::FUNC]),
            // The kernel may have a function of that name, too.
            false => self.btf.all_of(BtfKind::FUNC).find(|(_, own)| *own == name).map(|(id, _)| id),
        }
    }

    /// Number of a tracepoint's type.
    pub(crate) fn tracepoint_id(&self, event: &str) -> Option<u32> {
        self.btf.find(&format!("btf_trace_{event}"), &[BtfKind::TYPEDEF])
    }

    /// Names of all tracepoints.
    pub(crate) fn tracepoint_names(&self) -> impl Iterator<Item = &str> {
        let names = self.btf.all_of(BtfKind::TYPEDEF).map(|(_, name)| name);
        names.filter_map(|name| name.strip_prefix("btf_trace_"))
    }

    /// Names of all functions.
    pub(crate) fn function_names(&self) -> impl Iterator<Item = &str> {
        self.btf.all_of(BtfKind::FUNC).map(|(_, name)| name)
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

    /// The id that the compiler gets.
    fn outer_id(&self, id: u32) -> u32 {
        if id < self.first { id } else { id | self.tag }
    }

    fn ctype(&self, id: u32, depth: u32) -> CType {
        use BtfKind as K;
        let id = self.btf.resolve(id);
        let Some(found) = self.btf.get(id).filter(|_| depth < DEPTH) else { return CType::Void };
        match found.kind {
            K::INT => {
                let (bits, signed, is_char, is_boolean) = found.integer();
                if is_boolean {
                    CType::Boolean
                } else {
                    CType::Integer { size: (bits / 8).max(1) as u8, signed, is_char }
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
            K::STRUCT | K::UNION => CType::Record { id: self.outer_id(id) },
            K::ENUM | K::ENUM64 => {
                let size = found.size_or_type as u8;
                let id = self.outer_id(id);
                CType::Enumeration { size, signed: found.is_signed_enumeration(), id }
            }
            K::FLOAT => {
                CType::Integer { size: found.size_or_type as u8, signed: false, is_char: false }
            }
            _ => CType::Void,
        }
    }
}

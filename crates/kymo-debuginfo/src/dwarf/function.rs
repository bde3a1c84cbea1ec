//! The functions of a unit, with the path of namespaces and types they are in.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use gimli::UnitOffset;
use kymo_model::glob::{glob_match, is_glob};
use rustc_hash::FxHashMap;

use super::budget::MemoryCharge;
use super::die::{Die, WalkStep, unsigned};
use super::names::{path_matches, without_generics};
use super::unit::{Dwarf, DwarfUnit};
use super::{Entry, Result, Value};

/// A function's entry: a definition, an abstract one of which copies are
/// inlined, or a copy out of line.
#[derive(Clone, Debug)]
pub struct DwarfFunction<'s> {
    /// Offset of its entry in the unit.
    pub offset: UnitOffset,
    /// Its own or inherited name.
    pub(super) name: &'s [u8],
    /// Name for the linker, if stated.
    pub(super) linkage: Option<&'s [u8]>,
    /// Enclosing scope, like `mycrate::module`; empty for C.
    pub(super) scope: Rc<str>,
    /// A declaration without code.
    pub declared_only: bool,
}

/// All functions of a unit in the order of the file, and their code.
pub struct UnitFunctions<'s> {
    /// In the order of the file.
    pub all: Vec<DwarfFunction<'s>>,
    /// `(start, end, list)`, sorted.
    code: Vec<(u64, u64, u32)>,
    /// Function of each list of spans; of several that share one the last.
    owners: Vec<u32>,
    /// Count of its bytes.
    _memory: MemoryCharge,
}

impl<'s> DwarfFunction<'s> {
    /// `scope::name`.
    pub(super) fn path(&self) -> String {
        let name = String::from_utf8_lossy(self.name);
        if self.scope.is_empty() { name.into_owned() } else { format!("{}::{name}", self.scope) }
    }

    /// Linkage name, or `scope::name`.
    pub(super) fn stored_name(&self) -> String {
        let linkage = self.linkage.and_then(|l| std::str::from_utf8(l).ok());
        linkage.map_or_else(|| self.path(), str::to_owned)
    }

    /// The name a person knows it by: demangled if it has a linker's name.
    pub(super) fn readable(&self) -> String {
        let mangled = self.linkage.and_then(|l| std::str::from_utf8(l).ok());
        match mangled.map(crate::demangle) {
            Some(std::borrow::Cow::Owned(name)) => name,
            _ => self.path(),
        }
    }

    /// Whether a name, a path or a glob of a description means this function.
    pub fn matches(&self, pattern: &str) -> bool {
        let Ok(name) = std::str::from_utf8(self.name) else { return false };
        if name == pattern || self.linkage == Some(pattern.as_bytes()) {
            return true;
        }
        let is_path = pattern.contains("::") || pattern.starts_with('<');
        if !is_path {
            let stem = without_generics(name);
            return stem == pattern
                || (is_glob(pattern) && (glob_match(pattern, name) || glob_match(pattern, &stem)));
        }
        path_matches(pattern, &self.path())
            || (self.linkage.is_some() && path_matches(pattern, &self.readable()))
    }
}

impl<'s> UnitFunctions<'s> {
    /// Index of the function whose code covers `pc`.
    pub(super) fn at(&self, pc: u64) -> Option<usize> {
        let after = self.code.partition_point(|c| c.0 <= pc);
        // Spans may nest (a function in a function): take the innermost.
        let candidates = self.code.get(after.saturating_sub(64)..after)?;
        let covering = candidates.iter().rev().find(|c| pc < c.1)?;
        self.owners.get(covering.2 as usize).map(|owner| *owner as usize)
    }
}

/// Entries that can hold functions.
fn holds_functions(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_module
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_imported_unit
    )
}

struct Gather<'d, 's> {
    dwarf: &'d Dwarf<'s>,
    unit: Rc<DwarfUnit<'s>>,
    all: Vec<DwarfFunction<'s>>,
    code: Vec<(u64, u64, u32)>,
    owners: Vec<u32>,
    /// Lists of spans that were read, by offset: entries may share one.
    lists: FxHashMap<usize, u32>,
    memory: MemoryCharge,
    /// Names of what the walk is inside of, with the depth of each.
    scopes: Vec<(isize, Rc<str>)>,
    /// Path of every function entry, for definitions that stand elsewhere.
    paths: HashMap<usize, Rc<str>>,
}

impl<'s> Dwarf<'s> {
    /// Functions of a unit.
    pub fn functions(&self, unit: &Rc<DwarfUnit<'s>>) -> Result<Rc<UnitFunctions<'s>>> {
        if let Some(known) = unit.functions.get() {
            return Ok(known.clone());
        }
        let mut g = Gather {
            dwarf: self,
            unit: unit.clone(),
            all: Vec::new(),
            code: Vec::new(),
            owners: Vec::new(),
            lists: FxHashMap::default(),
            memory: self.budget.open(),
            scopes: vec![(0, Rc::from(""))],
            paths: HashMap::new(),
        };
        let wanted = if unit.is_c {
            |tag| tag == gimli::DW_TAG_subprogram
        } else {
            |tag| tag == gimli::DW_TAG_subprogram || holds_functions(tag)
        };
        unit.walk_tags(unit.inner.header.root_offset(), wanted, &mut |entry| g.visit(entry))?;
        g.code.sort_unstable();
        let made = Rc::new(UnitFunctions {
            all: g.all,
            code: g.code,
            owners: g.owners,
            _memory: g.memory,
        });
        Ok(unit.functions.get_or_init(|| made).clone())
    }

    /// The function of a unit whose code covers an address.
    pub fn function_at(&self, unit: &Rc<DwarfUnit<'s>>, pc: u64) -> Result<Option<Die<'s>>> {
        let functions = self.functions(unit)?;
        let found = functions.at(pc).and_then(|i| functions.all.get(i));
        Ok(found.map(|f| unit.die(f.offset)))
    }
}

impl<'s> Gather<'_, 's> {
    fn visit(&mut self, entry: &Entry<'s>) -> Result<WalkStep> {
        while self.scopes.len() > 1 && self.scopes.last().is_some_and(|s| s.0 >= entry.depth()) {
            self.scopes.pop();
        }
        if entry.tag() == gimli::DW_TAG_subprogram {
            self.function(entry)?;
            return Ok(if self.unit.is_c { WalkStep::Past } else { WalkStep::Into });
        }
        if self.unit.is_c || !holds_functions(entry.tag()) {
            return Ok(WalkStep::Past);
        }
        if let Some(name) =
            entry.attr_value(gimli::DW_AT_name).and_then(|v| self.dwarf.string(&self.unit, v))
        {
            let name = String::from_utf8_lossy(name);
            let scope = self.join(&name)?;
            self.scopes.push((entry.depth(), scope));
        }
        Ok(WalkStep::Into)
    }

    fn charge(&mut self, bytes: usize) -> Result<()> {
        self.memory.add(bytes)
    }

    fn join(&mut self, name: &str) -> Result<Rc<str>> {
        let outer = self.scopes.last().map(|s| s.1.clone()).unwrap_or_default();
        self.charge(outer.len() + name.len())?;
        Ok(if outer.is_empty() { Rc::from(name) } else { Rc::from(format!("{outer}::{name}")) })
    }

    fn function(&mut self, entry: &Entry<'s>) -> Result<()> {
        let mut scope = self.scopes.last().map(|s| s.1.clone()).unwrap_or_default();
        let mut name =
            entry.attr_value(gimli::DW_AT_name).and_then(|v| self.dwarf.string(&self.unit, v));
        let own = linkage(entry).and_then(|v| self.dwarf.string(&self.unit, v));
        let mut linkage_name = own;
        let die = self.unit.die(entry.offset());
        let mut origin = self.dwarf.origin(&die, entry)?;
        for _ in 0..4 {
            let Some(die) = origin else { break };
            let e = self.dwarf.entry(&die)?;
            name = name
                .or(e.attr_value(gimli::DW_AT_name).and_then(|v| self.dwarf.string(&die.unit, v)));
            linkage_name =
                linkage_name.or(linkage(&e).and_then(|v| self.dwarf.string(&die.unit, v)));
            if die.unit.index == self.unit.index
                && let Some(path) = self.paths.get(&die.offset.0)
            {
                scope = path.clone();
            }
            origin = self.dwarf.origin(&die, &e)?;
        }
        self.paths.insert(entry.offset().0, scope.clone());
        // A function in a function is in the scope of the outer one.
        if !self.unit.is_c
            && let Some(name) = name
        {
            self.charge(scope.len() + name.len())?;
            let inner = format!(
                "{}{}{}",
                scope,
                if scope.is_empty() { "" } else { "::" },
                String::from_utf8_lossy(name)
            );
            self.scopes.push((entry.depth(), Rc::from(inner)));
        }
        // What is kept of an entry, whatever it says.
        self.charge(size_of::<DwarfFunction<'_>>() + 2 * size_of::<(usize, Rc<str>)>())?;
        let has_code = entry.has_attr(gimli::DW_AT_low_pc) || self.has_spans(entry)?;
        let declared = entry.has_attr(gimli::DW_AT_declaration);
        let declared_only =
            declared || (!has_code && !entry.has_attr(gimli::DW_AT_inline) && !is_abstract(entry));
        let Some(name) = name else { return Ok(()) };
        if !declared_only {
            self.code_of(entry, self.all.len() as u32)?;
        }
        self.all.push(DwarfFunction {
            offset: entry.offset(),
            name,
            linkage: linkage_name,
            scope,
            declared_only,
        });
        Ok(())
    }
}

impl<'s> Gather<'_, 's> {
    fn has_spans(&self, entry: &Entry<'s>) -> Result<bool> {
        let mut any = false;
        self.dwarf.each_span(&self.unit, entry, &mut |_, _| {
            any = true;
            ControlFlow::Break(())
        })?;
        Ok(any)
    }

    /// Notes the code of function number `function`.
    fn code_of(&mut self, entry: &Entry<'s>, function: u32) -> Result<()> {
        let offset = self.dwarf.span_list(&self.unit, entry)?;
        if let Some(known) = offset.and_then(|offset| self.lists.get(&offset))
            && let Some(owner) = self.owners.get_mut(*known as usize)
        {
            *owner = function;
            return Ok(());
        }
        let list = self.owners.len() as u32;
        self.owners.push(function);
        self.lists.extend(offset.map(|offset| (offset, list)));
        let spans = self.dwarf.spans(&self.unit, entry)?;
        self.charge(spans.len() * size_of::<(u64, u64, u32)>())?;
        self.code.extend(spans.into_iter().map(|(begin, end)| (begin, end, list)));
        Ok(())
    }
}

fn linkage<'s>(entry: &Entry<'s>) -> Option<Value<'s>> {
    entry
        .attr_value(gimli::DW_AT_linkage_name)
        .or_else(|| entry.attr_value(gimli::DW_AT_MIPS_linkage_name))
}

/// Whether copies of it are inlined.
fn is_abstract(entry: &Entry<'_>) -> bool {
    matches!(entry.attr_value(gimli::DW_AT_inline), Some(v) if unsigned(&v).is_some_and(|n| n != 0))
}

//! Names of types, by the braces they are declared in.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ctf::types::{Enum, Struct, StructureMember, Type};

/// A type and how many types are within it.
#[derive(Clone, Debug)]
pub(super) struct Deep {
    pub(super) of: Type,
    pub(super) depth: u32,
}

/// The names declared between two braces.
#[derive(Default)]
struct Scope {
    aliases: FxHashMap<String, Deep>,
    structs: FxHashMap<String, (Arc<Struct>, u32)>,
    variants: FxHashMap<String, (Vec<StructureMember>, u32)>,
    enums: FxHashMap<String, Enum>,
}

/// Scopes, the innermost last.
pub(super) struct Scopes(Vec<Scope>);

impl Default for Scopes {
    fn default() -> Self {
        Scopes(vec![Scope::default()])
    }
}

/// `false`: the name is taken in this scope.
type New = bool;

impl Scopes {
    pub(super) fn open(&mut self) {
        self.0.push(Scope::default());
    }

    pub(super) fn close(&mut self) {
        if self.0.len() > 1 {
            self.0.pop();
        }
    }

    fn find<'s, T>(&'s self, of: impl Fn(&'s Scope) -> Option<&'s T>) -> Option<&'s T> {
        self.0.iter().rev().find_map(of)
    }

    pub(super) fn alias(&self, name: &str) -> Option<&Deep> {
        self.find(|s| s.aliases.get(name))
    }

    pub(super) fn structure(&self, name: &str) -> Option<&(Arc<Struct>, u32)> {
        self.find(|s| s.structs.get(name))
    }

    pub(super) fn variant(&self, name: &str) -> Option<&(Vec<StructureMember>, u32)> {
        self.find(|s| s.variants.get(name))
    }

    pub(super) fn enumeration(&self, name: &str) -> Option<&Enum> {
        self.find(|s| s.enums.get(name))
    }

    pub(super) fn add_alias(&mut self, name: String, of: Deep) -> New {
        let scope = self.0.last_mut();
        scope.is_some_and(|s| s.aliases.insert(name, of).is_none())
    }

    pub(super) fn add_structure(&mut self, name: String, of: (Arc<Struct>, u32)) -> New {
        let scope = self.0.last_mut();
        scope.is_some_and(|s| s.structs.insert(name, of).is_none())
    }

    pub(super) fn add_variant(&mut self, name: String, of: (Vec<StructureMember>, u32)) -> New {
        let scope = self.0.last_mut();
        scope.is_some_and(|s| s.variants.insert(name, of).is_none())
    }

    pub(super) fn add_enumeration(&mut self, name: String, of: Enum) -> New {
        let scope = self.0.last_mut();
        scope.is_some_and(|s| s.enums.insert(name, of).is_none())
    }
}

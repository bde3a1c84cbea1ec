//! The alignment that a type asks of what it is in.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::types::{Struct, Type};

/// Works out alignments. Structures that are shared are looked through once, so that
/// types within types within types cost no more than their text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aligns(FxHashMap<usize, u32>);

impl Aligns {
    /// Alignment of a structure: the largest of its fields', and its own.
    pub(crate) fn of_struct(&mut self, of: &Struct) -> u32 {
        let fields = of.fields.iter().map(|f| self.of(&f.of)).max();
        fields.unwrap_or(1).max(of.align).max(1)
    }

    /// Alignment of any type.
    pub(crate) fn of(&mut self, of: &Type) -> u32 {
        match of {
            Type::Int(i) => i.align,
            Type::Float(f) => f.align,
            Type::Enum(e) => e.int.align,
            Type::Text(_) | Type::VarInt(_) => 8,
            // It is aligned as what is chosen.
            Type::Variant(_) | Type::Selection(_) => 1,
            Type::Aligned(of, align) => self.of(of).max(*align),
            Type::Array(of, _) | Type::Sequence(of, _) => self.of(of),
            Type::Struct(of) => {
                let key = Arc::as_ptr(of).addr();
                if let Some(known) = self.0.get(&key) {
                    return *known;
                }
                let align = self.of_struct(of);
                self.0.insert(key, align);
                align
            }
        }
    }
}

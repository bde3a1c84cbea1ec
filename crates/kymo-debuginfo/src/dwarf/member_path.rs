//! The name that the source has for bytes within a static variable: `pool.lock`, `slots[3].lock`.

use gimli::Reader as _;

use super::die::{Die, WalkStep};
use super::names::last_name;
use super::unit::{Dwarf, DwarfUnit};
use super::{Entry, Result};

/// Members within members at most.
const DEPTH: usize = 16;

impl<'s> Dwarf<'s> {
    /// Path from the static variable `name` at `addr` to the innermost member that the byte
    /// `distance` behind its begin is in, and the distance from there. Members of the C library's
    /// and the compiler's own (`__data`) are not entered.
    pub fn member_path(
        &self,
        name: &str,
        addr: u64,
        distance: u64,
    ) -> Result<Option<(String, u64)>> {
        // `count.0` is a static variable of a function.
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('.');
        let plain = if plain.len() + 1 < name.len() && !plain.is_empty() { plain } else { name };
        for index in self.units_naming(&last_name(plain)) {
            let unit = self.unit(index)?;
            let mut found = None;
            unit.walk(unit.inner.header.root_offset(), &mut |e| {
                Ok(match e.tag() {
                    gimli::DW_TAG_namespace
                    | gimli::DW_TAG_subprogram
                    | gimli::DW_TAG_lexical_block => WalkStep::Into,
                    gimli::DW_TAG_variable if is_at(&unit, e, addr) => {
                        found = Some(unit.die(e.offset()));
                        WalkStep::Stop
                    }
                    _ => WalkStep::Past,
                })
            })?;
            if let Some(die) = found {
                return self.path_below(die, distance).map(Some);
            }
        }
        Ok(None)
    }

    fn path_below(&self, variable: Die<'s>, mut rest: u64) -> Result<(String, u64)> {
        let (mut path, mut die) = (String::new(), variable);
        for _ in 0..DEPTH {
            let Some(kind) = self.real_type(&die)? else { break };
            match self.tag(&kind)? {
                gimli::DW_TAG_array_type => {
                    let Some(element) = self.real_type(&kind)? else { break };
                    let size = self.byte_size(&element)?.filter(|size| *size > 0);
                    let (Some(size), true) = (size, self.has_one_dimension(&kind)?) else { break };
                    path.push_str(&format!("[{}]", rest / size));
                    rest %= size;
                    die = kind;
                }
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type => {
                    let Some((member, offset)) = self.member_around(&kind, rest)? else { break };
                    match self.name(&member)? {
                        Some(name) if is_reserved(&name) => break,
                        Some(name) if self.tag(&member)? == gimli::DW_TAG_member => {
                            path.push('.');
                            path.push_str(&name);
                        }
                        _ => {}
                    }
                    rest -= offset;
                    die = member;
                }
                _ => break,
            }
        }
        Ok((path, rest))
    }

    /// The first member that a byte is in, and where it begins.
    fn member_around(&self, kind: &Die<'s>, byte: u64) -> Result<Option<(Die<'s>, u64)>> {
        let unit = kind.unit.clone();
        let mut found = None;
        unit.walk(kind.offset, &mut |e| {
            // A static member lies elsewhere.
            let is_member = match e.tag() {
                gimli::DW_TAG_member => !e.has_attr(gimli::DW_AT_external),
                tag => tag == gimli::DW_TAG_inheritance,
            };
            if !is_member {
                return Ok(WalkStep::Past);
            }
            let die = unit.die(e.offset());
            let offset = self.member_offset(&die)?;
            let size = match self.real_type(&die)? {
                Some(kind) => self.byte_size(&kind)?.unwrap_or(0),
                None => 0,
            };
            if byte < offset || byte - offset >= size {
                return Ok(WalkStep::Past);
            }
            found = Some((die, offset));
            Ok(WalkStep::Stop)
        })?;
        Ok(found)
    }

    fn has_one_dimension(&self, kind: &Die<'s>) -> Result<bool> {
        let mut dimensions = 0;
        kind.unit.walk(kind.offset, &mut |e| {
            dimensions += u32::from(e.tag() == gimli::DW_TAG_subrange_type);
            Ok(WalkStep::Past)
        })?;
        Ok(dimensions == 1)
    }
}

/// Whether a variable is at an address of the binary.
fn is_at(unit: &DwarfUnit<'_>, entry: &Entry<'_>, addr: u64) -> bool {
    let location = entry.attr_value(gimli::DW_AT_location).and_then(|v| v.exprloc_value());
    let Some(location) = location.filter(|e| e.0.len() <= 16) else { return false };
    let first = location.operations(unit.inner.encoding()).next();
    matches!(first, Ok(Some(gimli::Operation::Address { address })) if address == addr)
}

/// Whether a name belongs to the compiler and the C library.
fn is_reserved(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next() == Some('_')
        && letters.next().is_some_and(|second| second == '_' || second.is_ascii_uppercase())
}

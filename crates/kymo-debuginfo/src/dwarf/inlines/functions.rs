//! The functions of a unit and the copies inlined into them, as far as they
//! cover addresses that are asked for. Entries are read in the order of the file;
//! of what covers nothing, nothing is kept.

use gimli::{AttributeSpecification, DwTag, UnitOffset};

use super::super::die::unsigned;
use super::super::{Reader, Result, Value};
use super::Budget;

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// A function or an inlined copy that covers an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// The caller that a copy is inlined into; [`NONE`] of a function.
    pub(super) parent: u32,
    /// Its entry.
    pub(super) entry: UnitOffset,
    /// Call site of a copy: file number, line, column.
    pub(super) call: (u64, u32, u32),
}

/// Functions that cover each address.
#[derive(Debug, Default)]
pub(super) struct InlineNodes {
    pub(super) nodes: Vec<Node>,
    /// Innermost node of each address, and the length of the span that contains it.
    pub(super) best: Vec<(u32, u64)>,
}

/// An entry that the walk is inside of.
struct Open {
    depth: isize,
    is_copy: bool,
    node: Node,
    /// Its number among the nodes, once something is found in it.
    number: u32,
}

/// Code range attributes of an entry.
#[derive(Default)]
struct Code<'s> {
    low: Option<u64>,
    high: Option<Value<'s>>,
    ranges: Option<Value<'s>>,
    sibling: Option<UnitOffset>,
    call: (u64, u32, u32),
}

/// Walks over a unit.
pub(super) struct Walk<'u, 's> {
    pub(super) dwarf: &'u gimli::Dwarf<Reader<'s>>,
    pub(super) unit: &'u gimli::Unit<Reader<'s>>,
    /// Ascending.
    pub(super) addresses: &'u [(u64, u32)],
    pub(super) budget: &'u mut Budget,
}

/// Entries that functions can lie in.
fn holds_functions(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_compile_unit
            | gimli::DW_TAG_partial_unit
            | gimli::DW_TAG_skeleton_unit
            | gimli::DW_TAG_namespace
            | gimli::DW_TAG_module
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_interface_type
    )
}

impl<'s> Walk<'_, 's> {
    /// Finds the functions that cover the addresses. Functions in unusual positions are searched in
    /// a second walk, if addresses are left.
    pub(super) fn run(&mut self) -> (InlineNodes, Result<()>) {
        let mut found =
            InlineNodes { nodes: Vec::new(), best: vec![(NONE, u64::MAX); self.addresses.len()] };
        let mut result = self.pass(&mut found, false);
        if result.is_ok() && found.best.iter().any(|b| b.0 == NONE) {
            result = self.pass(&mut found, true);
        }
        (found, result)
    }

    fn pass(&mut self, found: &mut InlineNodes, everywhere: bool) -> Result<()> {
        let mut raw = self.unit.entries_raw(None)?;
        let mut open: Vec<Open> = Vec::new();
        // Entries deeper than this are below one that is passed over.
        let mut past: Option<isize> = None;
        let mut base = 0isize;
        while !raw.is_empty() {
            let (offset, depth) = (raw.next_offset(), raw.next_depth() + base);
            let Some(abbreviation) = raw.read_abbreviation()? else { continue };
            let (tag, specs) = (abbreviation.tag(), abbreviation.attributes());
            if past.is_some_and(|p| depth > p) {
                raw.skip_attributes(specs)?;
                continue;
            }
            past = None;
            open.truncate(open.iter().rposition(|o| o.depth < depth).map_or(0, |last| last + 1));
            let sibling;
            let into = match tag {
                gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine => {
                    let code = self.code(&mut raw, specs)?;
                    sibling = code.sibling;
                    let node = Node { parent: NONE, entry: offset, call: code.call };
                    let is_copy = tag == gimli::DW_TAG_inlined_subroutine;
                    open.push(Open { depth, is_copy, node, number: NONE });
                    // A copy in one that covers nothing may still cover something.
                    self.cover(&code, &mut open, found)? || is_copy
                }
                _ if open.last().is_some() || holds_functions(tag) => {
                    sibling = self.sibling(&mut raw, specs)?;
                    let leaf = matches!(tag, gimli::DW_TAG_GNU_call_site | gimli::DW_TAG_call_site);
                    !leaf
                }
                _ => {
                    sibling = self.sibling(&mut raw, specs)?;
                    false
                }
            };
            if into || everywhere || !abbreviation.has_children() {
                continue;
            }
            match sibling.filter(|s| *s > offset) {
                Some(next) => {
                    raw = self.unit.entries_raw(Some(next))?;
                    base = depth;
                }
                None => past = Some(depth),
            }
        }
        Ok(())
    }

    fn sibling(
        &self,
        raw: &mut gimli::EntriesRaw<'_, Reader<'s>>,
        specs: &[AttributeSpecification],
    ) -> Result<Option<UnitOffset>> {
        let at = specs.iter().position(|s| s.name() == gimli::DW_AT_sibling);
        let Some((before, [spec, after @ ..])) = at.and_then(|at| specs.split_at_checked(at))
        else {
            raw.skip_attributes(specs)?;
            return Ok(None);
        };
        raw.skip_attributes(before)?;
        let value = raw.read_attribute(*spec)?.value();
        raw.skip_attributes(after)?;
        Ok(match value {
            Value::UnitRef(offset) => Some(offset),
            _ => None,
        })
    }

    fn code(
        &self,
        raw: &mut gimli::EntriesRaw<'_, Reader<'s>>,
        specs: &[AttributeSpecification],
    ) -> Result<Code<'s>> {
        let mut code = Code::default();
        let number = |v: &Value<'s>| u32::try_from(unsigned(v).unwrap_or(0)).unwrap_or(u32::MAX);
        for spec in specs {
            match spec.name() {
                gimli::DW_AT_low_pc => {
                    let value = raw.read_attribute(*spec)?.value();
                    code.low = self.dwarf.attr_address(self.unit, value)?;
                }
                gimli::DW_AT_high_pc => code.high = Some(raw.read_attribute(*spec)?.value()),
                gimli::DW_AT_ranges => code.ranges = Some(raw.read_attribute(*spec)?.value()),
                gimli::DW_AT_sibling => {
                    if let Value::UnitRef(offset) = raw.read_attribute(*spec)?.value() {
                        code.sibling = Some(offset);
                    }
                }
                gimli::DW_AT_call_file => {
                    code.call.0 = unsigned(&raw.read_attribute(*spec)?.value()).unwrap_or(0);
                }
                gimli::DW_AT_call_line => {
                    code.call.1 = number(&raw.read_attribute(*spec)?.value());
                }
                gimli::DW_AT_call_column => {
                    code.call.2 = number(&raw.read_attribute(*spec)?.value());
                }
                _ => raw.skip_attributes(std::slice::from_ref(spec))?,
            }
        }
        Ok(code)
    }

    /// Notes what the innermost open entry covers; answers whether it covers anything.
    fn cover(
        &mut self,
        code: &Code<'s>,
        open: &mut [Open],
        found: &mut InlineNodes,
    ) -> Result<bool> {
        let mut any = false;
        if let (Some(low), Some(high)) = (code.low, &code.high) {
            let end = match self.dwarf.attr_address(self.unit, *high)? {
                Some(end) => end,
                None => low.saturating_add(unsigned(high).unwrap_or(0)),
            };
            any |= self.span(low, end, open, found)?;
        } else if let Some(ranges) = &code.ranges
            && let Some(mut ranges) = self.dwarf.attr_ranges(self.unit, *ranges)?
        {
            while let Some(range) = ranges.next()? {
                self.budget.spend(1)?;
                any |= self.span(range.begin, range.end, open, found)?;
            }
        }
        Ok(any)
    }

    fn span(
        &mut self,
        start: u64,
        end: u64,
        open: &mut [Open],
        found: &mut InlineNodes,
    ) -> Result<bool> {
        let from = self.addresses.partition_point(|(a, _)| *a < start);
        let inside = self.addresses.get(from..).unwrap_or_default();
        let count = inside.partition_point(|(a, _)| *a < end);
        if count == 0 || start >= end {
            return Ok(false);
        }
        self.budget.spend(count as u64)?;
        let number = number(open, &mut found.nodes);
        for best in found.best.iter_mut().skip(from).take(count) {
            // What is inside of something is not longer than it.
            if end - start <= best.1 {
                *best = (number, end - start);
            }
        }
        Ok(true)
    }
}

/// The number of the innermost open entry, which gets one if need be, and so do
/// the callers it is inlined into.
fn number(open: &mut [Open], nodes: &mut Vec<Node>) -> u32 {
    // From the function on, or from the first copy that has a number.
    let first = open.iter().rposition(|o| o.number != NONE || !o.is_copy).unwrap_or(0);
    let mut parent = NONE;
    for o in open.iter_mut().skip(first) {
        if o.number == NONE {
            o.node.parent = parent;
            o.number = nodes.len() as u32;
            nodes.push(o.node);
        }
        parent = o.number;
    }
    parent
}

//! Resolution of field references: paths of CTF 1.8 and locations of CTF 2 into slots.

use super::super::types::FieldPath;
use super::compile::{CompileError, Compiler, FieldTarget, MAX_SLOTS, Names, OUTER_SLOTS, Scope};
use super::walk::{NO_SLOT, Step};

/// Fields of which one is a length or selector, by what is chosen.
const MAX_OPTIONS: usize = 256;

impl Compiler<'_> {
    /// The slot of an integer of this program, by its step; beyond the steps lie those of
    /// the outer scopes.
    pub(super) fn slot(&mut self, step: usize) -> Result<u16, CompileError> {
        if let Some(slot) = step.checked_sub(OUTSIDE) {
            self.uses_outer = true;
            return Ok(slot as u16);
        }
        let next = self.slots;
        match self.out.steps.get_mut(step) {
            Some(Step::Int { save, .. } | Step::VarInt { save, .. }) if *save == NO_SLOT => {
                if next >= MAX_SLOTS {
                    return self.fail(format!("more than {MAX_SLOTS} lengths and tags"));
                }
                *save = next as u16;
                self.slots += 1;
                Ok(next as u16)
            }
            Some(Step::Int { save, .. } | Step::VarInt { save, .. }) => Ok(*save),
            _ => self.fail("a length or tag is not a number"),
        }
    }

    /// Finds what a path names: first absolutely, then from the innermost structure
    /// outwards, then in the scopes before, the last first.
    pub(super) fn look_up(
        &mut self,
        path: &FieldPath,
    ) -> Result<Option<FieldTarget>, CompileError> {
        let words: Vec<&str> = path.0.iter().map(String::as_str).collect();
        if let Some((&".", rest)) = words.split_first() {
            return Ok(self.located_around(rest));
        }
        let after = |scope: Scope| words.strip_prefix(scope.path()).filter(|r| !r.is_empty());
        if let Some(rest) = after(self.scope) {
            return Ok(self.located(0, rest));
        }
        for root in &self.done {
            if let Some(rest) = after(root.scope) {
                return Ok(find(&root.names, rest));
            }
        }
        for root in self.roots {
            if let Some(rest) = after(root.scope) {
                let found = find(&root.names, rest);
                return self.outside(root.scope, found);
            }
        }
        let inner = self.open.iter().rev().find_map(|open| find(&open.names, &words));
        let done = || self.done.iter().rev().find_map(|r| find(&r.names, &words));
        if let Some(found) = inner.or_else(done) {
            return Ok(Some(found));
        }
        for root in self.roots.iter().rev() {
            if let Some(found) = find(&root.names, &words) {
                return self.outside(root.scope, Some(found));
            }
        }
        Ok(None)
    }

    /// A place in another program.
    fn outside(
        &mut self,
        scope: Scope,
        found: Option<FieldTarget>,
    ) -> Result<Option<FieldTarget>, CompileError> {
        match found {
            Some(FieldTarget::Int { step, signed, labels }) => match self.outer.slot((scope, step))
            {
                Some(slot) => {
                    let step = OUTSIDE + usize::from(slot);
                    Ok(Some(FieldTarget::Int { step, signed, labels }))
                }
                None => self.fail(format!("depends on more than {OUTER_SLOTS} outer values")),
            },
            other => Ok(other),
        }
    }

    /// The slot of the number at a place, and whether it is signed.
    pub(super) fn slot_of(
        &mut self,
        found: Option<&FieldTarget>,
    ) -> Result<Option<(u16, bool)>, CompileError> {
        let mut numbers = Vec::new();
        if !found.is_some_and(|place| numbers_of(place, &mut numbers)) {
            return Ok(None);
        }
        let Some((first, signed)) = numbers.first().copied() else { return Ok(None) };
        if numbers.len() > MAX_OPTIONS || numbers.iter().any(|(_, s)| *s != signed) {
            return Ok(None);
        }
        let slot = self.slot(first)?;
        for (step, _) in numbers.iter().skip(1) {
            match self.out.steps.get_mut(*step) {
                Some(Step::Int { save, .. } | Step::VarInt { save, .. })
                    if *save == NO_SLOT || *save == slot =>
                {
                    *save = slot;
                }
                _ => return self.fail("a length or selector is one of too many fields"),
            }
        }
        Ok(Some((slot, signed)))
    }

    /// Target of a location without an origin: `..` for each structure outwards, then names.
    pub(super) fn located_around(&self, words: &[&str]) -> Option<FieldTarget> {
        let outwards = words.iter().take_while(|w| **w == "..").count();
        let level = self.open.len().checked_sub(outwards + 1)?;
        self.located(level, words.get(outwards..)?)
    }

    /// Target of a path from an open structure on. It may lead into one that is not complete.
    pub(super) fn located(&self, level: usize, path: &[&str]) -> Option<FieldTarget> {
        let (first, rest) = path.split_first()?;
        let open = self.open.get(level)?;
        if open.names.iter().any(|(name, _)| name == first) {
            return find(&open.names, path);
        }
        let inner = level + 1;
        self.open.get(inner).filter(|open| open.entered == *first)?;
        self.located(inner, rest)
    }
}

/// Beyond the steps of any program.
const OUTSIDE: usize = 1 << 32;

pub(super) fn find(names: &Names, path: &[&str]) -> Option<FieldTarget> {
    let (first, rest) = path.split_first()?;
    let (_, place) = names.iter().find(|(n, _)| n == first)?;
    find_in(place, rest)
}

fn find_in(place: &FieldTarget, path: &[&str]) -> Option<FieldTarget> {
    match (place, path) {
        (place, []) => Some(place.clone()),
        (FieldTarget::Names(names), path) => find(names, path),
        (FieldTarget::Options(places), path) => {
            let found: Option<Vec<FieldTarget>> = places.iter().map(|p| find_in(p, path)).collect();
            found.map(FieldTarget::Options)
        }
        _ => None,
    }
}

/// The integers that a place may be, with their signedness. `false`: it may be something else.
fn numbers_of(place: &FieldTarget, numbers: &mut Vec<(usize, bool)>) -> bool {
    match place {
        FieldTarget::Int { step, signed, .. } => {
            numbers.push((*step, *signed));
            true
        }
        FieldTarget::Options(places) => {
            places.len() <= MAX_OPTIONS && places.iter().all(|p| numbers_of(p, numbers))
        }
        FieldTarget::Names(_) | FieldTarget::Other => false,
    }
}

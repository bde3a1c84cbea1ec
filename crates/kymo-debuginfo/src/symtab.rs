//! A sorted table of functions: which name covers an address. Aliases at one
//! address are resolved the way perf resolves them, so that the two agree.

use std::ops::Range;

/// Strength of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are ELF's")]
pub enum Binding {
    Local,
    Global,
    Weak,
}

/// Type of a symbol, if stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolType {
    /// A label.
    NoType,
    /// A function, an indirect function or an object.
    Typed,
}

/// A symbol before the table is built.
#[derive(Clone, Copy, Debug)]
pub struct RawSymbol<'a> {
    /// First address.
    pub start: u64,
    /// Bytes; 0 when not stated.
    pub size: u64,
    /// Latest end of a symbol without a stated size: the end of its section.
    pub limit: u64,
    /// Name as stored.
    pub name: &'a [u8],
    /// Strength.
    pub binding: Binding,
    /// Kind.
    pub kind: SymbolType,
}

/// Function that covers an address, and the part of a table's names that is its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolPlace {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Its name among all names of the table.
    pub name: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    end: u64,
    name: u32,
    len: u32,
}

/// Symbols looked back at for a long one that covers an address.
pub(crate) const LOOK_BACK: usize = 16;

/// The table. Names live in one buffer.
#[derive(Clone, Debug, Default)]
pub struct SymbolTable {
    entries: Vec<Entry>,
    names: Vec<u8>,
}

impl SymbolTable {
    /// Sorts, drops aliases, and gives symbols without a size the room up to
    /// the next one, inside of their section.
    pub fn build(mut raw: Vec<RawSymbol<'_>>) -> SymbolTable {
        raw.sort_by_key(|s| s.start);
        let raw: Vec<RawSymbol<'_>> =
            raw.chunk_by(|a, b| a.start == b.start).filter_map(best).collect();
        let mut table = SymbolTable::default();
        table.entries.reserve(raw.len());
        for (i, s) in raw.iter().enumerate() {
            let next = raw.get(i + 1).map(|n| n.start);
            let end = match (s.size, next) {
                (0, Some(next)) => next.min(s.limit),
                // The last one: to the end of its page and one more.
                (0, None) => (s.start | 0xfff).saturating_add(1 + 4096).min(s.limit),
                (size, _) => s.start.saturating_add(size),
            };
            table.push(s.start, end, s.name);
        }
        table
    }

    fn push(&mut self, start: u64, end: u64, name: &[u8]) {
        let at = self.names.len();
        // Names beyond 4 GiB could not be addressed; such a file lies.
        let (Ok(at), Ok(len)) = (u32::try_from(at), u32::try_from(name.len())) else { return };
        self.names.extend_from_slice(name);
        self.entries.push(Entry { start, end, name: at, len });
    }

    /// Adds symbols where the table has none that begins there.
    pub fn merge(&mut self, other: &SymbolTable) {
        let mine = self.entries.len();
        for e in &other.entries {
            let after = self.entries[..mine].partition_point(|x| x.start <= e.start);
            let before = after.checked_sub(1).and_then(|i| self.entries.get(i));
            if before.is_none_or(|x| x.start != e.start && x.end <= e.start) {
                self.push(e.start, e.end, other.name(*e));
            }
        }
        self.entries.sort_by_key(|e| e.start);
    }

    /// Takes the names out, for a caller that keeps them in another form. What is left
    /// answers [`place`](Self::place) alone, in no more memory than it needs.
    pub fn take_names(&mut self) -> Vec<u8> {
        self.entries.shrink_to_fit();
        std::mem::take(&mut self.names)
    }

    /// Bytes of memory in use.
    pub fn memory_used(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.names.capacity()
    }

    fn name(&self, e: Entry) -> &[u8] {
        let start = e.name as usize;
        self.names.get(start..start + e.len as usize).unwrap_or_default()
    }

    /// `(start, end, name)` of the symbol that covers `addr`.
    pub fn lookup(&self, addr: u64) -> Option<(u64, u64, &[u8])> {
        self.entry(addr).map(|e| (e.start, e.end, self.name(*e)))
    }

    /// The symbol that covers `addr`, with the place of its name.
    pub fn place(&self, addr: u64) -> Option<SymbolPlace> {
        let e = self.entry(addr)?;
        let name = e.name as usize;
        Some(SymbolPlace { start: e.start, end: e.end, name: name..name + e.len as usize })
    }

    fn entry(&self, addr: u64) -> Option<&Entry> {
        let after = self.entries.partition_point(|e| e.start <= addr);
        // A short symbol inside a long one hides it behind its own end; look
        // back a little for the long one.
        let near = self.entries.get(after.saturating_sub(LOOK_BACK)..after)?;
        near.iter().rev().find(|e| addr < e.end || addr == e.start)
    }

    /// `(start, end, name)` of all symbols by start.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &[u8])> {
        self.entries.iter().map(|e| (e.start, e.end, self.name(*e)))
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Preference among several names for one address. The greatest is used; of equals the first one.
///
/// perf compares readable names. They are made only of names that are equal in everything else:
/// where a linker folded equal functions into one there are many, and the choice among them carries
/// little information about the callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SymbolRank {
    sized: bool,
    typed: bool,
    strong: bool,
    global: bool,
}

impl SymbolRank {
    pub(crate) fn of(s: &RawSymbol<'_>) -> SymbolRank {
        SymbolRank {
            sized: s.size > 0,
            typed: s.kind == SymbolType::Typed,
            strong: s.binding != Binding::Weak,
            global: s.binding == Binding::Global,
        }
    }
}

/// Preference among names of equal [`SymbolRank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Looks {
    underscores: std::cmp::Reverse<usize>,
    length: usize,
    no_syscall_alias: bool,
}

impl Looks {
    pub(crate) fn of(name: &[u8]) -> Looks {
        let name = String::from_utf8_lossy(name);
        let name = crate::demangle(&name);
        let underscores = name.bytes().take_while(|c| *c == b'_').count();
        Looks {
            underscores: std::cmp::Reverse(underscores),
            length: name.len(),
            no_syscall_alias: !name.starts_with("SyS") && !name.starts_with("compat_SyS"),
        }
    }
}

/// The best of several symbols at one address.
fn best<'a>(run: &[RawSymbol<'a>]) -> Option<RawSymbol<'a>> {
    let facts = run.iter().map(SymbolRank::of).max()?;
    let mut equal = run.iter().filter(|s| SymbolRank::of(s) == facts);
    let first = *equal.next()?;
    let mut rest = equal.peekable();
    if rest.peek().is_none() {
        return Some(first);
    }
    let mut kept = (Looks::of(first.name), first);
    for s in rest {
        let looks = Looks::of(s.name);
        if looks > kept.0 {
            kept = (looks, *s);
        }
    }
    Some(kept.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, size: u64, name: &str, binding: Binding) -> RawSymbol<'_> {
        RawSymbol {
            start,
            size,
            limit: u64::MAX,
            name: name.as_bytes(),
            binding,
            kind: SymbolType::Typed,
        }
    }

    fn at(table: &SymbolTable, addr: u64) -> Option<String> {
        table.lookup(addr).map(|(_, _, n)| String::from_utf8_lossy(n).into_owned())
    }

    #[test]
    fn the_alias_that_perf_prefers_is_kept() {
        let table = SymbolTable::build(vec![
            symbol(0x10, 4, "weak", Binding::Weak),
            symbol(0x10, 4, "__global", Binding::Global),
            symbol(0x10, 4, "global", Binding::Global),
            symbol(0x10, 4, "local_and_long", Binding::Local),
            symbol(0x10, 0, "global_without_size", Binding::Global),
            symbol(0x20, 0, "open_end", Binding::Local),
            symbol(0x30, 0x40, "outer", Binding::Global),
            symbol(0x40, 4, "inner", Binding::Local),
        ]);
        assert_eq!(table.len(), 4);
        assert_eq!(at(&table, 0x13).as_deref(), Some("global"));
        assert_eq!(at(&table, 0x14), None);
        assert_eq!(at(&table, 0x2f).as_deref(), Some("open_end"));
        assert_eq!(at(&table, 0x41).as_deref(), Some("inner"));
        assert_eq!(at(&table, 0x50).as_deref(), Some("outer"));
        assert_eq!(at(&table, 0x0), None);
        assert_eq!(at(&table, u64::MAX), None);
    }

    #[test]
    fn merging_fills_holes_only() {
        let mut table = SymbolTable::build(vec![symbol(0x10, 0x10, "a", Binding::Global)]);
        table.merge(&SymbolTable::build(vec![
            symbol(0x8, 8, "x@plt", Binding::Global),
            symbol(0x14, 4, "no", Binding::Global),
        ]));
        assert_eq!(at(&table, 0x8).as_deref(), Some("x@plt"));
        assert_eq!(at(&table, 0x15).as_deref(), Some("a"));
    }
}

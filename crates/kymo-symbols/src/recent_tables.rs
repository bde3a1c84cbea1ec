//! Symbol tables of the binaries that were asked for last, within a limit of memory, for who
//! resolves addresses for hours while programs come and go. Names, most of a table, are kept packed
//! and unpacked by the block: a linker's table of 20 MB takes 6.
//!
//! A binary that is asked for a few times has no table: one pass over its file finds the names.

use std::io;

use kymo_debuginfo::{Load, SymbolPlace, SymbolTable};
use rustc_hash::FxHashMap;

use crate::dso::DsoId;
use crate::symbol_cache::Table;

/// Questions from which on a table is worth its memory.
const OFTEN: u32 = 3;
/// Bytes of names that are packed together.
const BLOCK: usize = 64 << 10;
/// Bytes that a table takes beside its contents, also an empty one of a file that is gone.
const OVERHEAD: usize = 512;
/// zstd's level: names repeat so much that more effort gains little.
const LEVEL: i32 = 1;

/// A symbol table whose names are packed.
#[derive(Debug)]
pub(crate) struct PackedTable {
    symbols: SymbolTable,
    /// Segments, to get from a place in the file to an address.
    loads: Option<Vec<Load>>,
    blocks: Vec<Box<[u8]>>,
}

/// A block of names that was unpacked last.
#[derive(Debug, Default)]
pub(crate) struct UnpackedBlock {
    number: Option<usize>,
    bytes: Vec<u8>,
}

impl PackedTable {
    /// Packs a table.
    pub(crate) fn new(table: Table) -> io::Result<PackedTable> {
        let Table { mut symbols, elf } = table;
        let names = symbols.take_names();
        let pack = |block: &[u8]| Ok(zstd::bulk::compress(block, LEVEL)?.into_boxed_slice());
        let blocks: io::Result<Vec<Box<[u8]>>> = names.chunks(BLOCK).map(pack).collect();
        Ok(PackedTable { symbols, loads: elf.map(|elf| elf.loads), blocks: blocks? })
    }

    /// The symbol at a place in the file, and the stated address of the place.
    pub(crate) fn place(&self, offset: u64) -> Option<(SymbolPlace, u64)> {
        let address = match &self.loads {
            Some(loads) => kymo_debuginfo::vaddr(loads, offset)?,
            None => offset,
        };
        Some((self.symbols.place(address)?, address))
    }

    /// The name of a symbol as its file stores it.
    pub(crate) fn name(&self, place: &SymbolPlace, last: &mut UnpackedBlock) -> Vec<u8> {
        let mut name = Vec::with_capacity(place.name.len());
        let mut at = place.name.start;
        while at < place.name.end {
            let number = at / BLOCK;
            if last.number != Some(number) {
                let block = self.blocks.get(number).map_or(&[][..], |block| block);
                // What was packed here is unpacked again.
                last.bytes = zstd::bulk::decompress(block, BLOCK).unwrap_or_default();
                last.number = Some(number);
            }
            let end = place.name.end.min((number + 1) * BLOCK);
            let part = last.bytes.get(at % BLOCK..at % BLOCK + (end - at));
            name.extend_from_slice(part.unwrap_or_default());
            at = end;
        }
        name
    }

    /// Bytes of memory in use.
    fn memory_used(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(|b| b.len() + size_of::<Box<[u8]>>()).sum();
        OVERHEAD + self.symbols.memory_used() + blocks
    }
}

/// The tables.
#[derive(Debug)]
pub(crate) struct RecentTables {
    most: usize,
    held: FxHashMap<DsoId, HeldTable>,
    /// Questions since a binary had a table last; of one whose table alone is too large: `TOO_LARGE`.
    /// The second number: how often it had one, from which on it waits eight times as long.
    asked: FxHashMap<DsoId, (u32, u32)>,
    used: usize,
    clock: u64,
}

const TOO_LARGE: u32 = u32::MAX;

#[derive(Debug)]
struct HeldTable {
    table: PackedTable,
    size: usize,
    /// Time of the last question.
    last: u64,
}

impl RecentTables {
    /// Tables of at most this many bytes.
    pub(crate) fn new(most: usize) -> RecentTables {
        let (held, asked) = (FxHashMap::default(), FxHashMap::default());
        RecentTables { most, held, asked, used: 0, clock: 0 }
    }

    /// Whether a binary has a table, or is asked for so often that it should have one. `bytes` are
    /// those of its symbols in the file: reading all of a very large table takes several times the
    /// memory of what is kept.
    pub(crate) fn wants(&mut self, id: DsoId, bytes: impl FnOnce() -> u64) -> bool {
        self.clock += 1;
        if let Some(held) = self.held.get_mut(&id) {
            held.last = self.clock;
            return true;
        }
        let (asked, had) = self.asked.entry(id).or_default();
        *asked = asked.saturating_add(1);
        let is_wanted = *had != TOO_LARGE && *asked >= OFTEN << (3 * *had).min(24);
        if is_wanted && bytes() > self.most as u64 / 2 * 3 {
            *had = TOO_LARGE;
            return false;
        }
        is_wanted
    }

    /// The table of a binary, read with `read` if it is not held; `answer` is called with it before
    /// it may be found too large to be kept.
    pub(crate) fn with<T>(
        &mut self,
        id: DsoId,
        read: impl FnOnce() -> Table,
        answer: impl FnOnce(&PackedTable) -> T,
    ) -> io::Result<T> {
        if let Some(held) = self.held.get(&id) {
            return Ok(answer(&held.table));
        }
        let table = PackedTable::new(read())?;
        let (answer, size) = (answer(&table), table.memory_used());
        if size > self.most {
            self.asked.insert(id, (0, TOO_LARGE));
            return Ok(answer);
        }
        let (asked, had) = self.asked.entry(id).or_default();
        (*asked, *had) = (0, had.saturating_add(1).min(9));
        while self.used + size > self.most {
            let Some(oldest) = self.held.iter().min_by_key(|(_, h)| h.last).map(|(id, _)| *id)
            else {
                break;
            };
            self.used -= self.held.remove(&oldest).map_or(0, |held| held.size);
        }
        self.used += size;
        self.held.insert(id, HeldTable { table, size, last: self.clock });
        Ok(answer)
    }

    /// Bytes of the tables that are held, and their number.
    #[cfg(test)]
    pub(crate) fn held(&self) -> (usize, usize) {
        let used = self.held.values().map(|h| h.table.memory_used()).sum();
        assert_eq!(used, self.used);
        (used, self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Resolver, ResolverOptions};

    /// Programs that come and go: hard links of a few real ones stand for as many binaries, each of
    /// which is asked for until its table would be kept.
    #[test]
    fn tables_of_many_binaries_stay_within_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let real = [own.as_path(), Path::new("/bin/bash"), Path::new("/usr/bin/env")];
        let real: Vec<&Path> = real.into_iter().filter(|path| path.is_file()).collect();
        let offsets: Vec<u64> = (0..2_000_000u64).step_by(4001).collect();
        // Room for two tables of each.
        let mut sized = Resolver::new(ResolverOptions::default());
        sized.limit_tables(1 << 40);
        for path in &real {
            let id = sized.dso(path.to_str().unwrap(), None, 1);
            (0..OFTEN).for_each(|_| _ = sized.symbols_of(&[(id, offsets.clone())]));
        }
        let most_bytes = 2 * sized.recent_tables().unwrap().held().0;
        let mut unlimited = Resolver::new(ResolverOptions::default());
        let mut first = Resolver::new(ResolverOptions::default());
        first.limit_tables(most_bytes);
        let (mut named, mut most) = (0, 0);
        for number in 0..24 {
            let copy = dir.path().join(format!("program-{number}"));
            std::os::unix::fs::symlink(real[number % real.len()], &copy).unwrap();
            let name = copy.to_str().unwrap();
            let (id, same) = (first.dso(name, None, 1), unlimited.dso(name, None, 1));
            let expected = unlimited.symbols_of(&[(same, offsets.clone())]).remove(0);
            let expected: Vec<_> =
                expected.into_iter().map(|s| s.map(|s| unlimited.name(s))).collect();
            // The passes before there is a table, the table, and what is left when it was dropped.
            for question in 0..5 {
                let found = first.symbols_of(&[(id, offsets.clone())]).remove(0);
                let found: Vec<_> = found.into_iter().map(|s| s.map(|s| first.name(s))).collect();
                assert_eq!(found, expected, "{name}, question {question}");
                named += found.iter().flatten().count();
                let (used, count) = first.recent_tables().unwrap().held();
                assert!(used <= most_bytes, "{used} bytes of {count} tables");
                most = most.max(count);
            }
        }
        // Each of the 24 has had one.
        assert!(named > 1000 && most > 1 && most < 24, "{named} names, {most} tables");
    }

    #[test]
    fn a_table_that_is_too_large_is_not_kept_and_not_read_again() {
        let mut resolver = Resolver::new(ResolverOptions::default());
        resolver.limit_tables(1000);
        let own = std::env::current_exe().unwrap();
        let id = resolver.dso(own.to_str().unwrap(), None, 1);
        let offsets: Vec<u64> = (0..400_000u64).step_by(30_011).collect();
        let first = resolver.symbols_of(&[(id, offsets.clone())]);
        for _ in 0..6 {
            assert_eq!(resolver.symbols_of(&[(id, offsets.clone())]), first);
            assert_eq!(resolver.recent_tables().unwrap().held(), (0, 0));
        }
        let asked = resolver.recent_tables().unwrap().asked.get(&id);
        assert!(asked.is_some_and(|asked| asked.1 == TOO_LARGE));
    }

    #[test]
    fn names_across_blocks_are_whole() {
        use kymo_debuginfo::{Binding, RawSymbol, SymbolType};
        let names: Vec<String> =
            (0..9000).map(|n| format!("function_{n}_{}", "x".repeat(n % 40))).collect();
        let raw = names.iter().zip(0u64..).map(|(name, n)| RawSymbol {
            start: n * 16,
            size: 16,
            limit: u64::MAX,
            name: name.as_bytes(),
            binding: Binding::Global,
            kind: SymbolType::Typed,
        });
        let table = Table { symbols: SymbolTable::build(raw.collect()), elf: None };
        let packed = PackedTable::new(table).unwrap();
        assert!(packed.blocks.len() > 3 && packed.memory_used() < 400_000);
        let mut last = UnpackedBlock::default();
        for (n, name) in names.iter().enumerate() {
            let (place, address) = packed.place(n as u64 * 16 + 3).unwrap();
            assert_eq!((place.start, address), (n as u64 * 16, n as u64 * 16 + 3));
            assert_eq!(packed.name(&place, &mut last), name.as_bytes());
        }
    }
}

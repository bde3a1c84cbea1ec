//! Variables of programs at addresses of their memory: where a binary's data lies follows from
//! where its code is mapped, as its segments keep their distances.

use std::sync::{Mutex, PoisonError};

use kymo_debuginfo::demangle;
use object::elf::{PF_X, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::read::{Object as _, ObjectSymbol as _};
use object::{SymbolKind, elf};
use rustc_hash::FxHashMap;

use crate::files::{Binary, Finder, open};

/// Segments of a binary, and its variables by address.
#[derive(Debug, Default)]
pub(crate) struct VariableTable {
    segments: Vec<DataSegment>,
    /// Address, size and name, by address.
    variables: Vec<(u64, u64, Box<str>)>,
    /// Resolved variables, by address.
    answers: Mutex<FxHashMap<u64, String>>,
}

/// Most addresses of one binary whose members are resolved by debugging information.
const MOST_ANSWERS: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct DataSegment {
    offset: u64,
    vaddr: u64,
    /// Bytes in memory: more than in the file where it begins as zeros.
    size: u64,
    executable: bool,
}

impl VariableTable {
    /// Reads a binary, and its debug file where that has the symbols.
    pub(crate) fn read(files: &Finder, binary: &Binary<'_>) -> Option<VariableTable> {
        let pages = open(&files.binary(binary)?)?;
        let header = elf::FileHeader64::<object::Endianness>::parse(&pages).ok()?;
        let endian = header.endian().ok()?;
        let loads = header.program_headers(endian, &pages).ok()?.iter();
        let loads = loads.filter(|s| s.p_type(endian) == PT_LOAD);
        let segments = loads.map(|s| DataSegment {
            offset: s.p_offset(endian),
            vaddr: s.p_vaddr(endian),
            size: s.p_memsz(endian),
            executable: s.p_flags(endian).0 & PF_X.0 != 0,
        });
        let segments = segments.collect();
        let symbols = open(&files.symbols(binary)?)?;
        let file = object::File::parse(&symbols).ok()?;
        let data = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|s| s.kind() == SymbolKind::Data && s.size() > 0 && s.is_definition());
        let named =
            |s: object::Symbol<'_, '_, _>| Some((s.address(), s.size(), s.name().ok()?.into()));
        let mut variables: Vec<(u64, u64, Box<str>)> = data.filter_map(named).collect();
        variables.sort_unstable();
        variables.dedup_by_key(|v| v.0);
        Some(VariableTable { segments, variables, answers: Mutex::default() })
    }

    /// Name of the variable at `addr` of a process that has code of the binary from `pgoff` on
    /// mapped at `start`; with the member that `members` finds by the variable's raw name, its
    /// address and the distance from its begin, or with that distance.
    pub(crate) fn name_at(
        &self,
        (start, pgoff): (u64, u64),
        addr: u64,
        members: impl FnOnce(&str, u64, u64) -> Option<(String, u64)>,
    ) -> Option<String> {
        // The mapping begins with the page that the segment begins in.
        let code = self.segments.iter().find(|s| {
            s.executable && s.offset & !0xfff <= pgoff && pgoff < s.offset.saturating_add(s.size)
        })?;
        let mapped = code.vaddr.wrapping_sub(code.offset.wrapping_sub(pgoff));
        let vaddr = addr.wrapping_sub(start.wrapping_sub(mapped));
        let within = |s: &&DataSegment| vaddr >= s.vaddr && vaddr - s.vaddr < s.size;
        let _ = self.segments.iter().find(within)?;
        let after = self.variables.partition_point(|v| v.0 <= vaddr);
        let (first, size, raw) = self.variables.get(after.checked_sub(1)?)?;
        let distance = vaddr - first;
        if distance >= *size {
            return None;
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = answers.get(&vaddr) {
            return Some(known.clone());
        }
        let name = demangle(raw);
        let may_ask = answers.len() < MOST_ANSWERS;
        let member = may_ask.then(|| members(&name, *first, distance)).flatten();
        let (path, rest) = member.unwrap_or((String::new(), distance));
        let rest = if rest > 0 { format!("+{rest:#x}") } else { String::new() };
        let answer = format!("{name}{path}{rest}");
        if may_ask {
            answers.insert(vaddr, answer.clone());
        }
        Some(answer)
    }
}

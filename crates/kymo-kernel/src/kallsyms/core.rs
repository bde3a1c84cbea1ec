//! The running kernel's own symbols in a form that is searched where it lies, to be kept on disk:
//! the kernel takes tens of milliseconds to print them. They do not change until the next boot.
//! What is behind them in the list does (modules, BPF programs, trampolines of ftrace), often
//! without a trace elsewhere, so none of it is kept. Numbers are little-endian:
//!
//! ```text
//!    0  id of the boot, 40 bytes, zeroes behind it
//!   40  the first bytes of the list, 1024 of them
//! 1064  address of the first symbol, u64
//! 1072  symbols of perf's choice, u32    1076  of the kernel's choice, u32
//! 1080  symbols of perf's choice: distance from the first address, u32; place of the name, u32
//!    …  symbols of the kernel's choice, likewise
//!    …  names: length, u16; bytes
//! ```
//!
//! The first bytes of the list are compared with what the kernel prints now: they hold addresses,
//! so a user who may not see those today gets none from an earlier run.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;

use super::{Entry, Kallsyms, NameChoice, parse_line};
use crate::system_root::system_path;

/// Version of the layout.
pub const VERSION: u32 = 1;

const BOOT: usize = 40;
const FIRST: usize = 1024;
const HEAD: usize = BOOT + FIRST + 16;
/// Distances are of four bytes.
const REACH: u64 = 1 << 32;

/// Stored form of the symbols.
pub type Kept = Box<dyn AsRef<[u8]> + Send + Sync>;

/// The table of one choice.
pub(super) struct Core {
    kept: Kept,
    base: u64,
    /// Offset and number of the symbols.
    symbols: (usize, usize),
    names: usize,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("base", &self.base).field("symbols", &self.symbols).finish()
    }
}

impl Core {
    /// Takes what was kept if it is of this boot, and the kernel shows addresses now.
    pub(super) fn open(kept: Kept, choice: NameChoice) -> Option<Core> {
        let bytes = (*kept).as_ref();
        let same = bytes.get(..BOOT) == Some(&boot()?) && bytes.get(BOOT..)?.starts_with(&first()?);
        if !same {
            return None;
        }
        let base = u64::from_le_bytes(*bytes.get(HEAD - 16..)?.first_chunk()?);
        let count = |at: usize| Some(u32_of(bytes.get(at..)?.first_chunk()?) as usize);
        let (perfs, kernels) = (count(HEAD - 8)?, count(HEAD - 4)?);
        let names = HEAD + 8 * perfs.checked_add(kernels)?;
        let symbols = match choice {
            NameChoice::Last => (HEAD, perfs),
            NameChoice::First => (HEAD + 8 * perfs, kernels),
        };
        let core = Core { base, symbols, names, kept };
        (names <= core.bytes().len() && core.symbols().len() == core.symbols.1).then_some(core)
    }

    fn bytes(&self) -> &[u8] {
        (*self.kept).as_ref()
    }

    fn symbols(&self) -> &[[u8; 8]] {
        let (start, count) = self.symbols;
        self.bytes().get(start..start + 8 * count).unwrap_or_default().as_chunks().0
    }

    fn start(&self, symbol: &[u8; 8]) -> u64 {
        self.base + u64::from(u32_of(&[symbol[0], symbol[1], symbol[2], symbol[3]]))
    }

    fn name(&self, symbol: &[u8; 8]) -> &[u8] {
        let at = self.names + u32_of(&[symbol[4], symbol[5], symbol[6], symbol[7]]) as usize;
        let rest = self.bytes().get(at..).unwrap_or_default();
        let Some((size, rest)) = rest.split_first_chunk() else { return &[] };
        rest.get(..usize::from(u16::from_le_bytes(*size))).unwrap_or_default()
    }

    /// `(start, end, name)` of a symbol; not of the last one, whose end is not known.
    fn span(&self, number: usize) -> Option<(u64, u64, &[u8])> {
        let [symbol, next] = self.symbols().get(number..)?.first_chunk()?;
        Some((self.start(symbol), self.start(next), self.name(symbol)))
    }

    /// The first bytes of the list.
    pub(super) fn first_lines(&self) -> &[u8] {
        self.bytes().get(BOOT..BOOT + FIRST).unwrap_or_default()
    }

    /// The symbol that covers an address; none outside of the kernel's own code and data.
    pub(super) fn lookup(&self, addr: u64) -> Option<(u64, u64, &str)> {
        let distance = u32::try_from(addr.checked_sub(self.base)?).ok()?;
        let after =
            self.symbols().partition_point(|s| u32_of(&[s[0], s[1], s[2], s[3]]) <= distance);
        let (start, end, name) = self.span(after.checked_sub(1)?)?;
        Some((start, end, std::str::from_utf8(name).unwrap_or_default()))
    }

    /// All of them, by address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64, &[u8])> {
        (0..self.symbols.1).filter_map(|n| self.span(n))
    }
}

fn u32_of(bytes: &[u8; 4]) -> u32 {
    u32::from_le_bytes(*bytes)
}

/// Which boot this is.
fn boot() -> Option<[u8; BOOT]> {
    let text = std::fs::read(system_path("/proc/sys/kernel/random/boot_id")).ok()?;
    let id = text.trim_ascii();
    let mut boot = [0; BOOT];
    boot.get_mut(..id.len())?.copy_from_slice(id);
    Some(boot)
}

/// First bytes of the current list.
fn first() -> Option<[u8; FIRST]> {
    let mut first = [0; FIRST];
    File::open(system_path("/proc/kallsyms")).ok()?.read_exact(&mut first).ok()?;
    Some(first)
}

/// Stored form of the whole list: none where addresses are hidden.
pub(super) fn pack(all: &Kallsyms) -> Option<Vec<u8>> {
    let text = &all.text;
    let (boot, first) = (boot()?, text.get(..FIRST)?);
    let base = base(text)?;
    let choose = |choice| Kallsyms::parse_choosing(text.clone(), choice);
    let [perfs, kernels] = [choose(NameChoice::Last), choose(NameChoice::First)];
    let (mut names, mut places) = (Vec::new(), HashMap::new());
    let mut tables = [Vec::new(), Vec::new()];
    for (table, of) in tables.iter_mut().zip([&perfs, &kernels]) {
        for entry in own(&of.entries, base) {
            let place = *places.entry(entry.name).or_insert_with(|| {
                let place = names.len() as u32;
                let name = of.piece(entry.name, entry.len);
                names.extend((name.len() as u16).to_le_bytes());
                names.extend(name.as_bytes());
                place
            });
            table.extend(((entry.addr - base) as u32).to_le_bytes());
            table.extend(place.to_le_bytes());
        }
    }
    // One symbol says nothing, as it has no end.
    if tables.iter().any(|t| t.len() < 16) {
        return None;
    }
    let counts = tables.each_ref().map(|t| ((t.len() / 8) as u32).to_le_bytes());
    let [perfs, kernels] = tables;
    Some(
        [&boot, first, &base.to_le_bytes(), counts.as_flattened(), &perfs, &kernels, &names]
            .concat(),
    )
}

/// Start of the kernel's image.
fn base(text: &[u8]) -> Option<u64> {
    let starts = text
        .split(|b| *b == b'\n')
        .filter(|line| line.ends_with(b" _text") || line.ends_with(b" _stext"));
    let addresses = starts.filter_map(|line| Some(parse_line(line, 0, NameChoice::First)?.addr));
    addresses.min().filter(|addr| *addr != 0)
}

/// The symbols of the image: from its beginning to whatever has a name in brackets.
/// None of those is ever in between, as the image is one piece.
fn own(entries: &[Entry], base: u64) -> impl Iterator<Item = &Entry> {
    let start = entries.partition_point(|e| e.addr < base);
    let rest = entries.get(start..).unwrap_or_default().iter();
    rest.take_while(move |e| e.module_len == 0 && e.addr - base < REACH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Vec<u8> {
        std::fs::read("/proc/kallsyms").unwrap()
    }

    /// Every symbol, its ends and what is behind it, by both choices, as without.
    #[test]
    fn what_is_kept_answers_as_the_list_does() {
        for choice in [NameChoice::Last, NameChoice::First] {
            let whole = Kallsyms::parse_choosing(list(), choice);
            let Some(packed) = pack(&whole) else {
                assert!(whole.hidden() || whole.is_empty() || boot().is_none());
                return;
            };
            let kept = Kallsyms::kept(Box::new(packed), choice).unwrap();
            assert!(!kept.is_empty() && !kept.hidden());
            let core = kept.core.as_ref().unwrap();
            let spans: Vec<_> = whole.iter().filter(|s| s.3.is_none()).collect();
            let own: Vec<_> = core.table.iter().collect();
            assert!(own.len() * 10 > spans.len() * 9, "{} of {}", own.len(), spans.len());
            for (start, end, name) in &own {
                let name = std::str::from_utf8(name).unwrap();
                assert_eq!(whole.lookup(*start), Some((*start, *end, name, None)));
                for addr in [*start, *end - 1] {
                    assert_eq!(core.table.lookup(addr), Some((*start, *end, name)));
                }
            }
            assert!(core.live.get().is_none(), "nothing was asked of the list");
            assert!(kept.own().count() >= own.len());
            let (first, last) = (own.first().unwrap().0, own.last().unwrap().1);
            for addr in [0, first - 1, last, last + 0x10_0000, u64::MAX] {
                assert_eq!(core.table.lookup(addr), None, "{addr:x}");
                assert_eq!(kept.lookup(addr), whole.lookup(addr), "{addr:x}");
            }
        }
    }

    #[test]
    fn what_is_of_earlier_boot_or_damaged_is_not_taken() {
        let Some(packed) = pack(&Kallsyms::parse(list())) else { return };
        let taken = |bytes: Vec<u8>| Kallsyms::kept(Box::new(bytes), NameChoice::Last).is_some();
        assert!(taken(packed.clone()));
        // The id, the addresses that were seen.
        for at in [0, BOOT + 3] {
            let mut other = packed.clone();
            other[at] ^= 1;
            assert!(!taken(other), "{at}");
        }
        for size in [0, BOOT, HEAD - 1, HEAD + 100] {
            assert!(!taken(packed[..size].to_vec()), "{size}");
        }
        let mut counts = packed;
        counts[HEAD - 8..HEAD].fill(0xff);
        assert!(!taken(counts));
    }

    #[test]
    fn modules_and_hidden_addresses_are_never_kept() {
        let line = |addr: u64, name: &str| format!("{addr:016x} T {name}\n");
        let base = 0xffff_ffff_8100_0000;
        let many = |hidden: bool| {
            let at = |n: u64| if hidden { 0 } else { base + n * 16 };
            let own: String = (1..100).map(|n| line(at(n), &format!("f{n}"))).collect();
            line(at(0), "_text") + &own + &line(at(0x1_0000), "m\t[mod]") + &line(at(0x1_0010), "n")
        };
        let Some(packed) = pack(&Kallsyms::parse(many(false).into_bytes())) else {
            assert!(boot().is_none());
            return;
        };
        let text = String::from_utf8_lossy(&packed[HEAD..]).into_owned();
        assert!(text.contains("f99") && !text.contains('m') && !text.ends_with('n'));
        assert!(pack(&Kallsyms::parse(many(true).into_bytes())).is_none());
    }
}

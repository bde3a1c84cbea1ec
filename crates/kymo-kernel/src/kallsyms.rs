//! `/proc/kallsyms`: every symbol of the kernel and its modules. Sizes are not
//! stated; a symbol reaches to the next one. The kernel's own may come from what
//! was kept of an earlier look.

mod core;

use std::sync::OnceLock;

use kymo_format::{KernelSymbol, Symbols};
use memchr::{memchr, memchr2, memrchr};

use self::core::Core;

pub use self::core::{Kept, VERSION};
use crate::system_root::system_path;

/// The parsed table; names live in the text it was made of.
#[derive(Debug, Default)]
pub struct Kallsyms {
    text: Vec<u8>,
    entries: Vec<Entry>,
    hidden: bool,
    /// Instead of text and entries.
    core: Option<OfCore>,
}

/// The kernel's own symbols as they were kept, and the whole list, which is read
/// when something else is asked for.
#[derive(Debug)]
struct OfCore {
    table: Core,
    choice: NameChoice,
    live: OnceLock<Box<Kallsyms>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    addr: u64,
    name: u32,
    len: u32,
    module: u32,
    module_len: u32,
}

/// Name in an excerpt of the first symbol that it leaves out.
const OUTSIDE: &str = "?";

/// Which of several names of one address is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChoice {
    /// The last, and only code and data, as perf has it.
    Last,
    /// The first, as the kernel's own `%ps` has it.
    First,
}

impl Kallsyms {
    /// Parses lines of `address type name [module]` and chooses among names as
    /// perf does. Lines that are not of this form are passed over.
    pub fn parse(text: Vec<u8>) -> Kallsyms {
        Kallsyms::parse_choosing(text, NameChoice::Last)
    }

    /// Parses the list, choosing among names as the kernel does when it prints one.
    pub fn parse_as_kernel(text: Vec<u8>) -> Kallsyms {
        Kallsyms::parse_choosing(text, NameChoice::First)
    }

    /// The running kernel's symbols, chosen as it does. Empty if they cannot be read.
    pub fn running() -> Kallsyms {
        Kallsyms::live(NameChoice::First)
    }

    /// The running kernel's symbols as it prints them now; that takes tens of
    /// milliseconds. Empty if they cannot be read.
    pub fn live(choice: NameChoice) -> Kallsyms {
        let text = std::fs::read(system_path("/proc/kallsyms")).unwrap_or_default();
        Kallsyms::parse_choosing(text, choice)
    }

    /// The running kernel's symbols, its own ones by what [`keep`](Self::keep) gave
    /// since the last boot. None if it was before, or may not be seen any more.
    pub fn kept(bytes: Kept, choice: NameChoice) -> Option<Kallsyms> {
        let core = OfCore { table: Core::open(bytes, choice)?, choice, live: OnceLock::new() };
        Some(Kallsyms { core: Some(core), ..Kallsyms::default() })
    }

    /// Form of symbols that were [read](Self::live) just now for storage until the next boot.
    pub fn keep(&self) -> Option<Vec<u8>> {
        core::pack(self)
    }

    /// Reads the list if it is not stored: a later caller does not wait.
    pub fn prepare(&self) {
        self.whole();
    }

    /// The table with every symbol.
    fn whole(&self) -> &Kallsyms {
        match &self.core {
            None => self,
            Some(core) => core.live.get_or_init(|| Box::new(Kallsyms::live(core.choice))),
        }
    }

    fn parse_choosing(text: Vec<u8>, choice: NameChoice) -> Kallsyms {
        let mut entries: Vec<Entry> = Vec::with_capacity(text.len() / 45);
        let mut zeros = 0usize;
        let mut start = 0;
        while let Some(left) = text.get(start..) {
            let at = start;
            let line = left.get(..memchr(b'\n', left).unwrap_or(left.len())).unwrap_or(left);
            start += line.len() + 1;
            let Some(e) = parse_line(line, at, choice) else { continue };
            if e.addr == 0 {
                zeros += 1;
            }
            entries.push(e);
        }
        // A kernel that hides its addresses prints all of them as zero. A few
        // real symbols (per-CPU offsets) may be near zero anyway.
        let hidden = !entries.is_empty() && zeros == entries.len();
        if hidden {
            entries.clear();
        }
        // Stable: names of one address stay in their order.
        entries.sort_by_key(|e| e.addr);
        entries.dedup_by(|later, kept| {
            let same = later.addr == kept.addr;
            if same && choice == NameChoice::Last {
                *kept = *later;
            }
            same
        });
        Kallsyms { text, entries, hidden, core: None }
    }

    /// Symbols from elsewhere, such as a kernel image: sorted by address, one an
    /// address.
    pub fn of_symbols<'a>(symbols: impl Iterator<Item = (u64, &'a [u8])>) -> Kallsyms {
        let (mut text, mut entries) = (Vec::new(), Vec::new());
        for (addr, name) in symbols {
            let (Ok(at), Ok(len)) = (u32::try_from(text.len()), u32::try_from(name.len())) else {
                break;
            };
            text.extend_from_slice(name);
            entries.push(Entry { addr, name: at, len, module: at, module_len: 0 });
        }
        Kallsyms { text, entries, hidden: false, core: None }
    }

    /// Whether the addresses were all zero: `kptr_restrict` hides them.
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.core.is_none() && self.entries.is_empty()
    }

    /// Start of the kernel's text, by its symbol `_text` or `_stext`: its difference between boots
    /// is the kernel's relocation.
    pub fn text_start(&self, symbol: &str) -> Option<u64> {
        // Of symbols at one address the first lines have all, what was kept one.
        let lines = self.core.as_ref().map_or(&*self.text, |core| core.table.first_lines());
        let ending = format!(" {symbol}");
        let line = lines.split(|b| *b == b'\n').find(|line| line.ends_with(ending.as_bytes()));
        let listed = line.and_then(|line| {
            let address = std::str::from_utf8(line.split(|b| *b == b' ').next()?).ok()?;
            u64::from_str_radix(address, 16).ok()
        });
        let kept = || {
            let mut own = self.core.as_ref()?.table.iter();
            own.find(|(_, _, name)| *name == symbol.as_bytes()).map(|(start, ..)| start)
        };
        listed.or_else(kept).filter(|address| *address != 0)
    }

    /// The kernel's own symbols, moved by a distance. Modules do not move with it: theirs are
    /// left out.
    #[must_use]
    pub fn moved(&self, distance: u64) -> Kallsyms {
        Kallsyms::of_symbols(self.own().map(|(addr, _, name)| (addr.wrapping_add(distance), name)))
    }

    /// `(start, end, name, module)` of the symbol that covers `addr`.
    pub fn lookup(&self, addr: u64) -> Option<(u64, u64, &str, Option<&str>)> {
        if let Some((start, end, name)) = self.core.as_ref().and_then(|c| c.table.lookup(addr)) {
            return Some((start, end, name, None));
        }
        let whole = self.whole();
        let after = whole.entries.partition_point(|e| e.addr <= addr);
        whole.span(after.checked_sub(1)?).filter(|(_, end, ..)| addr < *end)
    }

    fn span(&self, number: usize) -> Option<(u64, u64, &str, Option<&str>)> {
        let e = self.entries.get(number)?;
        let name = self.piece(e.name, e.len);
        if name == OUTSIDE {
            return None;
        }
        let last = (e.addr | 0xfff).saturating_add(1 + 4096);
        let end = match self.entries.get(number + 1) {
            Some(next) if next.module_len == e.module_len => next.addr,
            Some(next) => next.addr.min(last),
            None => last,
        };
        let module = (e.module_len > 0).then(|| self.piece(e.module, e.module_len));
        Some((e.addr, end, name, module))
    }

    /// Every symbol by address: `(start, end, name, module)`.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &str, Option<&str>)> {
        let whole = self.whole();
        (0..whole.entries.len()).filter_map(|n| whole.span(n))
    }

    /// The kernel's own symbols by address, without those of modules: `(start, end, name)`.
    pub fn own(&self) -> impl Iterator<Item = (u64, u64, &[u8])> {
        let kept = self.core.iter().flat_map(|core| core.table.iter());
        // Where those were kept there are no entries.
        let read = (0..self.entries.len()).filter_map(|n| self.span(n));
        let read = read.filter(|s| s.3.is_none());
        kept.chain(read.map(|(start, end, name, _)| (start, end, name.as_bytes())))
    }

    /// Lines that answer for these addresses, which ascend, and for no others:
    /// where the next symbol is none of them, a line with the name `?` ends the
    /// one before.
    pub fn excerpt(&self, addresses: &[u64]) -> String {
        self.whole().excerpt_of_list(addresses)
    }

    fn excerpt_of_list(&self, addresses: &[u64]) -> String {
        let mut wanted: Vec<usize> = addresses
            .iter()
            .filter(|a| self.lookup(**a).is_some())
            .filter_map(|a| self.entries.partition_point(|e| e.addr <= *a).checked_sub(1))
            .collect();
        wanted.dedup();
        let mut text = String::new();
        let mut line = |n: usize, name: Option<&str>| {
            let Some(e) = self.entries.get(n) else { return };
            let name = name.unwrap_or(self.piece(e.name, e.len));
            text.push_str(&format!("{:016x} T {name}", e.addr));
            if e.module_len > 0 {
                text.push_str(&format!("\t[{}]", self.piece(e.module, e.module_len)));
            }
            text.push('\n');
        };
        for (i, n) in wanted.iter().enumerate() {
            line(*n, None);
            if wanted.get(i + 1) != Some(&(n + 1)) {
                line(n + 1, Some(OUTSIDE));
            }
        }
        text
    }

    fn piece(&self, at: u32, len: u32) -> &str {
        let at = at as usize;
        let bytes = self.text.get(at..at + len as usize).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl Symbols for Kallsyms {
    fn kernel(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let (start, end, name, module) = self.lookup(address)?;
        Some(KernelSymbol { name, offset: address - start, size: end - start, module })
    }
}

/// Values of hexadecimal digits; 0xff of other bytes.
const HEX_VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut n = 0;
    while n < 16 {
        values[b"0123456789abcdef"[n] as usize] = n as u8;
        values[b"0123456789ABCDEF"[n] as usize] = n as u8;
        n += 1;
    }
    values
};

/// Offset of a variable that each CPU has, of the running kernel: an absolute symbol, which
/// [`Kallsyms`] leaves out.
pub fn per_cpu_offset(name: &str) -> Option<u64> {
    let text = std::fs::read(system_path("/proc/kallsyms")).ok()?;
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut words = line.split(u8::is_ascii_whitespace);
        let (address, kind, own) = (words.next()?, words.next()?, words.next()?);
        let is_it = own == name.as_bytes() && kind.eq_ignore_ascii_case(b"a");
        u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok().filter(|_| is_it)
    })
}

fn parse_line(line: &[u8], at: usize, choice: NameChoice) -> Option<Entry> {
    let (mut addr, mut pos) = (0u64, 0);
    for byte in line {
        let digit = HEX_VALUES[usize::from(*byte)];
        if digit > 0xf {
            break;
        }
        addr = addr << 4 | u64::from(digit);
        pos += 1;
    }
    if !(1..=16).contains(&pos) || line.get(pos) != Some(&b' ') {
        return None;
    }
    let kind = line.get(pos + 1)?.to_ascii_uppercase();
    let wanted = match choice {
        NameChoice::Last => matches!(kind, b'T' | b'W' | b'D' | b'B'),
        // Absolute symbols are offsets into per-CPU data, not places.
        NameChoice::First => kind != b'A',
    };
    if !wanted {
        return None;
    }
    let name = pos + 3;
    let rest = line.get(name..)?;
    let len = memchr2(b'\t', b' ', rest).unwrap_or(rest.len());
    if len == 0 {
        return None;
    }
    // The kernel's own symbols, most of all, have nothing behind their names.
    let behind = rest.get(len..).filter(|behind| !behind.is_empty());
    let brackets = behind.and_then(|b| Some((memchr(b'[', b)?, memrchr(b']', b)?)));
    let (module, module_len) = match brackets {
        Some((open, close)) if open < close => (len + open + 1, close - open - 1),
        _ => (0, 0),
    };
    Some(Entry {
        addr,
        name: u32::try_from(at + name).ok()?,
        len: len as u32,
        module: u32::try_from(at + name + module).ok()?,
        module_len: module_len as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_ranges() {
        let text = "ffffffff81000000 T _stext\nffffffff81000000 T _text\nnonsense\n\
                    ffffffff81000040 t helper\nffffffffc0000000 t mod_fn\t[my_mod]\n";
        let k = Kallsyms::parse(text.as_bytes().to_vec());
        let at = |a| k.lookup(a).map(|(s, _, n, m)| (s & 0xffff, n, m));
        assert_eq!(at(0xffff_ffff_8100_003f), Some((0, "_text", None)));
        assert_eq!(at(0xffff_ffff_8100_0041), Some((0x40, "helper", None)));
        assert_eq!(at(0xffff_ffff_9000_0000), None);
        assert_eq!(at(0xffff_ffff_c000_0001), Some((0, "mod_fn", Some("my_mod"))));
        assert_eq!(at(1), None);
        assert!(!k.hidden());
    }

    #[test]
    fn an_excerpt_answers_for_what_was_asked_and_for_nothing_else() {
        let text = "0000000000001000 T a\n0000000000001040 t b\n0000000000001080 T c\n\
                    00000000000010c0 T d\n00000000c0000000 t m\t[mod]\n00000000c0000100 t n\t[mod]\n";
        let whole = Kallsyms::parse(text.to_ascii_uppercase().into_bytes());
        let asked = [0x1001, 0x1002, 0x1041, 0xc000_0004, 0xc000_0104];
        let part = Kallsyms::parse(whole.excerpt(&asked).into_bytes());
        for address in asked {
            assert_eq!(part.lookup(address), whole.lookup(address), "{address:x}");
            assert!(part.lookup(address).is_some());
        }
        assert_eq!((part.lookup(0x1081), part.lookup(0x10c1)), (None, None));
    }

    #[test]
    fn the_kernel_prints_the_first_of_several_names() {
        let text = "0000000000001000 A per_cpu\nffffffff81000000 T _stext\n\
                    ffffffff81000000 T _text\nffffffff81000040 r table\n";
        let k = Kallsyms::parse_as_kernel(text.as_bytes().to_vec());
        let name = |a| k.kernel(a).map(|s| (s.name, s.offset, s.size));
        assert_eq!(name(0xffff_ffff_8100_0001), Some(("_stext", 1, 0x40)));
        assert_eq!(name(0xffff_ffff_8100_0041).map(|n| n.0), Some("table"));
        assert_eq!(name(0x1001), None);
    }

    #[test]
    fn all_zeros_means_hidden() {
        let k = Kallsyms::parse(b"0000000000000000 T _stext\n0000000000000000 t x\n".to_vec());
        assert!(k.hidden() && k.is_empty());
    }
}

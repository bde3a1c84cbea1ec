//! A function's code, instruction by instruction, with what each cost and where
//! it comes from.

use std::cell::OnceCell;

use kymo_debuginfo::disasm::{self, Flow, LONGEST, Names, Syntax};
use kymo_debuginfo::dwarf::Sections;
use kymo_debuginfo::dwarf::inlines::{Answers, Inlines, SourceFrame};
use kymo_debuginfo::{CodeSymbols, Elf, SymbolTable, demangle};
use kymo_symbols::{CodeFile, NoCode};
use kymo_view::arrows::Arrows;

use super::cost::{Hot, Sums, add};

/// An instruction.
pub(super) struct Row {
    pub(super) line: disasm::Line,
    pub(super) bytes: Vec<u8>,
    pub(super) cost: Option<Sums>,
    /// Where it is in the source, innermost function first.
    pub(super) source: Vec<Place>,
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) line: u32,
}

/// A function.
pub(super) struct Listing {
    pub(super) rows: Vec<Row>,
    pub(super) arrows: Arrows,
    /// Samples that are not where an instruction begins.
    pub(super) off: u64,
    /// Bytes that are not shown.
    pub(super) cut: u64,
    /// Where the code is from, if it is not the code as it ran.
    pub(super) unlike: Option<String>,
    /// What is wrong with the debugging information.
    pub(super) damage: Vec<String>,
}

/// Jumps side by side.
const LANES: usize = 6;

/// Where a function's code is, and how what it refers to is called.
pub(super) struct Function<'a> {
    pub(super) code: &'a [u8],
    pub(super) start: u64,
    /// Bytes behind the code that are not shown.
    pub(super) cut: u64,
}

/// What is known about the addresses of instructions.
pub(super) struct Known<'a> {
    pub(super) names: &'a dyn Names,
    /// The address of an instruction, of one in the terms of the recording.
    pub(super) stated: &'a dyn Fn(u64) -> Option<u64>,
    /// The source of addresses, in their order.
    pub(super) sources: &'a dyn Fn(&[u64]) -> Option<Answers>,
    pub(super) plain: bool,
}

impl Known<'_> {
    pub(super) fn list(&self, function: &Function<'_>, hot: &Hot, syntax: Syntax) -> Listing {
        let Function { code, start, cut } = *function;
        let lines = disasm::disassemble(code, start, syntax, self.names);
        let addresses: Vec<u64> = lines.iter().map(|l| l.addr).collect();
        let sources = (self.sources)(&addresses);
        let mut listing = Listing {
            rows: Vec::with_capacity(lines.len()),
            arrows: arrows(&lines),
            off: 0,
            cut,
            unlike: None,
            damage: sources.as_ref().map(|s| s.damage.clone()).unwrap_or_default(),
        };
        for (number, line) in lines.into_iter().enumerate() {
            let at = (line.addr - start) as usize;
            let bytes = code.get(at..at + usize::from(line.len)).unwrap_or_default().to_vec();
            let source = sources.as_ref().map(|s| self.places(s, number)).unwrap_or_default();
            listing.rows.push(Row { line, bytes, cost: None, source });
        }
        for (recorded, sums) in &hot.places {
            let row = (self.stated)(*recorded).and_then(|a| {
                let at = listing.rows.binary_search_by_key(&a, |r| r.line.addr).ok()?;
                listing.rows.get_mut(at)
            });
            match row {
                Some(row) => add(row.cost.get_or_insert_default(), sums),
                None => listing.off += sums.iter().map(|s| s.samples).sum::<u64>(),
            }
        }
        listing
    }

    fn places(&self, answers: &Answers, number: usize) -> Vec<Place> {
        let place = |f: &SourceFrame| Place {
            function: readable(answers.text(f.function), self.plain),
            file: answers.text(f.file).to_string(),
            line: f.line,
        };
        answers.frames(number).iter().map(place).collect()
    }
}

fn readable(name: &str, plain: bool) -> String {
    if plain { name.to_string() } else { demangle(name).into() }
}

/// A binary that functions are listed of.
pub(super) struct Binary<'a> {
    file: &'a CodeFile,
    symbols: CodeSymbols<'a>,
    /// What may be in no symbol table but the dynamic one, and entries of the procedure
    /// linkage table.
    rest: SymbolTable,
    sections: Option<&'a Sections<'a>>,
    inlines: OnceCell<Inlines<'a>>,
    /// Every named place, ascending.
    named: Vec<u64>,
    plain: bool,
}

impl<'a> Binary<'a> {
    /// Reads the symbols. `plain` leaves names as the compiler mangled them.
    pub(super) fn new(
        file: &'a CodeFile,
        sections: Option<&'a Sections<'a>>,
        plain: bool,
    ) -> Result<Binary<'a>, NoCode> {
        let symbols = file.symbols()?;
        let Elf { symbols: mut rest, plt, .. } = Elf::parse(file.binary()).unwrap_or_default();
        rest.merge(&plt);
        let mut named: Vec<u64> = symbols.all().map(|s| s.addr).collect();
        named.extend(rest.iter().map(|(start, ..)| start));
        named.sort_unstable();
        named.dedup();
        Ok(Binary { file, symbols, rest, sections, inlines: OnceCell::new(), named, plain })
    }

    /// Lists a function, which has a name at `start`.
    pub(super) fn list(&self, hot: &Hot, start: u64, syntax: Syntax) -> Option<Listing> {
        let named = self.symbols.function_span(start).map(|(_, start, end)| (start, end));
        let stub = || self.rest.lookup(start).map(|(start, end, _)| (start, end));
        let (start, end) = named.or_else(stub)?;
        let function = self.function(start, end)?;
        let known = Known {
            names: self,
            stated: &|offset| self.symbols.address(offset),
            sources: &|addresses| self.sources(addresses),
            plain: self.plain,
        };
        Some(known.list(&function, hot, syntax))
    }

    fn function(&self, start: u64, end: u64) -> Option<Function<'_>> {
        let from = usize::try_from(self.symbols.file_offset(start)?).ok()?;
        let size = usize::try_from(end.checked_sub(start)?).ok()?;
        let whole = self.file.binary().get(from..)?;
        let code = whole.get(..size.min(whole.len()).min(LONGEST))?;
        Some(Function { code, start, cut: (size - code.len()) as u64 })
    }

    fn sources(&self, addresses: &[u64]) -> Option<Answers> {
        let sections = self.sections?;
        Some(self.inlines.get_or_init(|| Inlines::new(sections)).resolve(addresses))
    }
}

impl Names for Binary<'_> {
    /// What covers the address, or else what begins before it in its section, as
    /// objdump does it.
    fn name(&self, addr: u64) -> Option<(String, u64)> {
        let before = self.named.partition_point(|a| *a <= addr).checked_sub(1)?;
        let nearest = *self.named.get(before)?;
        let section = |a| self.symbols.section_at(a).map(|s| s.addr);
        if section(nearest) != section(addr) {
            return None;
        }
        let begins = |table: &SymbolTable| {
            let (start, _, name) = table.lookup(nearest)?;
            (start == nearest).then(|| String::from_utf8_lossy(name).into_owned())
        };
        let [code, data] = self.symbols.tables();
        let tables = [code, &self.rest, data];
        let name = tables.into_iter().find_map(begins)?;
        Some((readable(&name, self.plain), addr - nearest))
    }
}

fn arrows(lines: &[disasm::Line]) -> Arrows {
    let row = |addr: u64| lines.binary_search_by_key(&addr, |l| l.addr).ok();
    let jumps = lines.iter().enumerate().filter_map(|(from, l)| match l.flow {
        Flow::Jump(target) => row(target).map(|to| (from, to)),
        _ => None,
    });
    Arrows::new(jumps, LANES)
}

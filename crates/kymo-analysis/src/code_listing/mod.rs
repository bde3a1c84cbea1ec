//! Listing of a function's code: each instruction with its cost and its place in the
//! source. Code of files is read here, that of the kernel and of just-in-time compilers
//! in `kernel` and `jit`.

mod jit;
mod kernel;

use std::cell::OnceCell;
use std::path::PathBuf;

use kymo_debuginfo::disasm::{self, Flow, LONGEST, Names, Syntax};
use kymo_debuginfo::dwarf::Sections;
use kymo_debuginfo::dwarf::inlines::{Answers, Inlines, SourceFrame};
use kymo_debuginfo::{CodeSymbols, Elf, SymbolTable, demangle};
use kymo_symbols::{CodeFile, DsoKind, FilePart, NoCode, Resolver};

use crate::function_cost::{CostSums, FunctionCost, add_columns};

/// Lists a function; `plain` leaves names as the compiler mangled them. The error says
/// why its code cannot be had.
pub fn list_function(
    symbols: &Resolver,
    cost: &FunctionCost,
    syntax: Syntax,
    plain: bool,
) -> Result<CodeListing, String> {
    let (_, start) = symbols.start(cost.symbol);
    match symbols.get(cost.dso).map(|d| d.kind) {
        Some(DsoKind::Kernel | DsoKind::Module) => {
            let mut listing = kernel::list(symbols, cost, start, syntax)?;
            listing.file = symbols.kernel_file(cost.dso, FilePart::Dwarf).map(|f| f.path.clone());
            Ok(listing)
        }
        Some(DsoKind::PerfMap) => jit::list(symbols, cost, start, syntax),
        _ => list_of_file(symbols, cost, start, syntax, plain),
    }
}

/// Lists a function of a file.
fn list_of_file(
    symbols: &Resolver,
    cost: &FunctionCost,
    start: u64,
    syntax: Syntax,
    plain: bool,
) -> Result<CodeListing, String> {
    let file = symbols.code(cost.dso).map_err(|e| e.to_string())?;
    let companions = file.companions(symbols.files());
    let mut notes = Vec::new();
    let sections = file.sections(&companions).unwrap_or_else(|e| {
        notes.push(e.to_string());
        None
    });
    if let Some(absent) = sections.as_ref().and_then(Sections::absent_text) {
        notes.push(format!("{}: {absent}", file.path.display()));
    }
    let binary = ListedBinary::new(&file, sections.as_ref(), plain).map_err(|e| e.to_string())?;
    let listing = binary.list(cost, start, syntax);
    let mut listing = listing.ok_or_else(|| format!("its file has no code at {start:#x}"))?;
    (listing.debug_notes, listing.file) = (notes, Some(file.path.clone()));
    Ok(listing)
}

/// Instruction of a listing.
#[derive(Debug)]
pub struct CodeRow {
    /// Its text.
    pub line: disasm::ListingLine,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its cost, where it has samples.
    pub cost: Option<CostSums>,
    /// Position in the source, innermost function first.
    pub source: Vec<SourcePosition>,
}

/// Place in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePosition {
    /// Function, which may be an inlined one.
    pub function: String,
    /// Path of the file when it was compiled.
    pub file: String,
    /// Line; 0 for code of no line.
    pub line: u32,
}

/// Listing of a function.
#[derive(Debug, Default)]
pub struct CodeListing {
    /// Instructions in the order of their addresses.
    pub rows: Vec<CodeRow>,
    /// Samples that are not where an instruction begins.
    pub off: u64,
    /// Bytes that are not shown.
    pub cut: u64,
    /// Origin of the code, if it differs from the code that ran.
    pub unlike: Option<String>,
    /// Damage of the debugging information of the function.
    pub damage: Vec<String>,
    /// Reasons why debugging information could not be opened, or not all of it.
    pub debug_notes: Vec<String>,
    /// File that the code or its debugging information is from.
    pub file: Option<PathBuf>,
}

impl CodeListing {
    /// Jumps from row to row.
    pub fn jumps(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let row = |addr: u64| self.rows.binary_search_by_key(&addr, |r| r.line.addr).ok();
        self.rows.iter().enumerate().filter_map(move |(from, r)| match r.line.flow {
            Flow::Jump(target) => row(target).map(|to| (from, to)),
            _ => None,
        })
    }
}

/// Code of a function.
struct FunctionCode<'a> {
    code: &'a [u8],
    start: u64,
    /// Bytes behind the code that are not shown.
    cut: u64,
}

/// Sources of what is known about the addresses of instructions.
struct AddressFacts<'a> {
    names: &'a dyn Names,
    /// The address of an instruction, of one in the terms of the recording.
    stated: &'a dyn Fn(u64) -> Option<u64>,
    /// The source of addresses, in their order.
    sources: &'a dyn Fn(&[u64]) -> Option<Answers>,
    plain: bool,
}

impl AddressFacts<'_> {
    fn list(&self, function: &FunctionCode<'_>, hot: &FunctionCost, syntax: Syntax) -> CodeListing {
        let FunctionCode { code, start, cut } = *function;
        let lines = disasm::disassemble(code, start, syntax, self.names);
        let addresses: Vec<u64> = lines.iter().map(|l| l.addr).collect();
        let sources = (self.sources)(&addresses);
        let mut listing = CodeListing {
            rows: Vec::with_capacity(lines.len()),
            cut,
            damage: sources.as_ref().map(|s| s.damage.clone()).unwrap_or_default(),
            ..CodeListing::default()
        };
        for (number, line) in lines.into_iter().enumerate() {
            let at = (line.addr - start) as usize;
            let bytes = code.get(at..at + usize::from(line.len)).unwrap_or_default().to_vec();
            let source = sources.as_ref().map(|s| self.places(s, number)).unwrap_or_default();
            listing.rows.push(CodeRow { line, bytes, cost: None, source });
        }
        for (recorded, sums) in &hot.places {
            let row = (self.stated)(*recorded).and_then(|a| {
                let at = listing.rows.binary_search_by_key(&a, |r| r.line.addr).ok()?;
                listing.rows.get_mut(at)
            });
            match row {
                Some(row) => add_columns(row.cost.get_or_insert_default(), sums),
                None => listing.off += sums.iter().map(|s| s.samples).sum::<u64>(),
            }
        }
        listing
    }

    fn places(&self, answers: &Answers, number: usize) -> Vec<SourcePosition> {
        let place = |f: &SourceFrame| SourcePosition {
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
struct ListedBinary<'a> {
    file: &'a CodeFile,
    symbols: CodeSymbols<'a>,
    /// Symbols of the dynamic table alone, and entries of the procedure linkage table.
    rest: SymbolTable,
    sections: Option<&'a Sections<'a>>,
    inlines: OnceCell<Inlines<'a>>,
    /// Every named place, ascending.
    named: Vec<u64>,
    plain: bool,
}

impl<'a> ListedBinary<'a> {
    /// Reads the symbols. `plain` leaves names as the compiler mangled them.
    fn new(
        file: &'a CodeFile,
        sections: Option<&'a Sections<'a>>,
        plain: bool,
    ) -> Result<ListedBinary<'a>, NoCode> {
        let symbols = file.symbols()?;
        let Elf { symbols: mut rest, plt, .. } = Elf::parse(file.binary()).unwrap_or_default();
        rest.merge(&plt);
        let mut named: Vec<u64> = symbols.all().map(|s| s.addr).collect();
        named.extend(rest.iter().map(|(start, ..)| start));
        named.sort_unstable();
        named.dedup();
        Ok(ListedBinary { file, symbols, rest, sections, inlines: OnceCell::new(), named, plain })
    }

    /// Lists a function, which has a name at `start`.
    fn list(&self, hot: &FunctionCost, start: u64, syntax: Syntax) -> Option<CodeListing> {
        let named = self.symbols.function_span(start).map(|(_, start, end)| (start, end));
        let stub = || self.rest.lookup(start).map(|(start, end, _)| (start, end));
        let (start, end) = named.or_else(stub)?;
        let function = self.function(start, end)?;
        let known = AddressFacts {
            names: self,
            stated: &|offset| self.symbols.address(offset),
            sources: &|addresses| self.sources(addresses),
            plain: self.plain,
        };
        Some(known.list(&function, hot, syntax))
    }

    fn function(&self, start: u64, end: u64) -> Option<FunctionCode<'_>> {
        let from = usize::try_from(self.symbols.file_offset(start)?).ok()?;
        let size = usize::try_from(end.checked_sub(start)?).ok()?;
        let whole = self.file.binary().get(from..)?;
        let code = whole.get(..size.min(whole.len()).min(LONGEST))?;
        Some(FunctionCode { code, start, cut: (size - code.len()) as u64 })
    }

    fn sources(&self, addresses: &[u64]) -> Option<Answers> {
        let sections = self.sections?;
        Some(self.inlines.get_or_init(|| Inlines::new(sections)).resolve(addresses))
    }
}

impl Names for ListedBinary<'_> {
    /// Returns the symbol that covers the address, or else the last one before it in its section,
    /// as objdump does.
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

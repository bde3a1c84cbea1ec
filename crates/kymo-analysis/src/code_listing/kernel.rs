//! Functions of the kernel and its modules. Their addresses are those of the recording; the code is
//! what the running kernel has in its memory where that is the recorded one, else what its file
//! has; the source comes from the file with its debugging information.

use std::sync::Arc;

use kymo_debuginfo::CodeSymbols;
use kymo_debuginfo::disasm::{LONGEST, Names, Syntax};
use kymo_debuginfo::dwarf::inlines::{Answers, Inlines};
use kymo_symbols::{CodeFile, FilePart, KernelFile, Resolver};

use super::{AddressFacts, CodeListing, FunctionCode};
use crate::function_cost::FunctionCost;

/// Lists the function at `start`.
pub(super) fn list(
    symbols: &Resolver,
    hot: &FunctionCost,
    start: u64,
    syntax: Syntax,
) -> Result<CodeListing, String> {
    let Some((start, end)) = span(symbols, hot, start) else {
        return Err("the kernel's symbols do not contain its size".into());
    };
    // Symbols without a size reach to the next one.
    let end = end.min(start.saturating_add(LONGEST as u64));
    let (code, unlike) = match symbols.kernel_code(start, end) {
        Ok(code) => (code, None),
        Err(e) => match symbols.kernel_image(hot.dso, FilePart::Code) {
            Some((file, at)) => {
                let (code, unknown) = code_of(symbols, &file, &at, start, end)?;
                let mut from = file.path.display().to_string();
                if unknown > 0 {
                    from += &format!(" ({unknown} references to data or other modules are open)");
                }
                (code, Some(from))
            }
            None => return Err(format!("{e}, and no file of it was found (-k names a vmlinux)")),
        },
    };
    let dwarf = symbols.kernel_image(hot.dso, FilePart::Dwarf);
    let companions = dwarf.as_ref().map(|(file, _)| file.companions(symbols.files()));
    let mut notes = Vec::new();
    let sections = dwarf.as_ref().zip(companions.as_ref()).and_then(|((file, _), companions)| {
        file.sections(companions).unwrap_or_else(|e| {
            notes.push(e.to_string());
            None
        })
    });
    let sources = |addresses: &[u64]| -> Option<Answers> {
        let at: &Arc<KernelFile> = &dwarf.as_ref()?.1;
        // A function lies in one section, so its addresses keep their order.
        let stated: Option<Vec<u64>> = addresses.iter().map(|a| at.stated(*a)).collect();
        Some(Inlines::new(sections.as_ref()?).resolve(&stated?))
    };
    let known =
        AddressFacts { names: &Kernel(symbols), stated: &Some, sources: &sources, plain: true };
    let mut listing = known.list(&FunctionCode { code: &code, start, cut: 0 }, hot, syntax);
    (listing.unlike, listing.debug_notes) = (unlike, notes);
    Ok(listing)
}

/// First address of a function and the one behind it.
fn span(symbols: &Resolver, hot: &FunctionCost, start: u64) -> Option<(u64, u64)> {
    if let Some((start, end, ..)) = symbols.kernel_span(start) {
        return Some((start, end));
    }
    let (file, at) = symbols.kernel_image(hot.dso, FilePart::Symbols)?;
    let (_, from, to) = file.symbols().ok()?.function_span(at.stated(start)?)?;
    Some((at.running(from)?, at.running(from)? + (to - from)))
}

/// The code out of a file, with what the loader of modules would put into it, and how
/// many places are not known.
fn code_of(
    symbols: &Resolver,
    file: &CodeFile,
    at: &KernelFile,
    start: u64,
    end: u64,
) -> Result<(Vec<u8>, usize), String> {
    let own: CodeSymbols<'_> = file.symbols().map_err(|e| e.to_string())?;
    let stated = at.stated(start);
    let bytes = stated.and_then(|stated| Some((stated, own.bytes_at(stated, end - start)?)));
    let Some((stated, bytes)) = bytes else {
        return Err(format!("{} has no code at {start:#x}", file.path.display()));
    };
    let mut code = bytes.to_vec();
    let named = |name: &str| symbols.kernel_address(name);
    let unknown = own.link(stated, &mut code, &|a| at.running(a), &named);
    Ok((code, unknown))
}

/// Names of the kernel's functions.
struct Kernel<'a>(&'a Resolver);

impl Names for Kernel<'_> {
    fn name(&self, addr: u64) -> Option<(String, u64)> {
        let (start, _, name, _) = self.0.kernel_span(addr)?;
        Some((name.to_string(), addr - start))
    }
}

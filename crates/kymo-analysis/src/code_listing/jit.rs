//! Functions that a just-in-time compiler made: their code is in its jitdump file,
//! with lines if it likes.

use kymo_debuginfo::disasm::{Names, Syntax};
use kymo_debuginfo::dwarf::inlines::{Answers, SourceFrame};
use kymo_symbols::{JitCode, Resolver};

use super::{AddressFacts, CodeListing, FunctionCode};
use crate::function_cost::FunctionCost;

/// Lists the function at `start`.
pub(super) fn list(
    symbols: &Resolver,
    hot: &FunctionCost,
    start: u64,
    syntax: Syntax,
) -> Result<CodeListing, String> {
    let made = symbols.jit_code(hot.dso, start).map_err(|e| e.to_string())?;
    let name = symbols.name(hot.symbol);
    let names = Own { start: made.start, end: made.start + made.code.len() as u64, name };
    let sources = |addresses: &[u64]| sources(&made, name, addresses);
    let known = AddressFacts { names: &names, stated: &Some, sources: &sources, plain: true };
    let function = FunctionCode { code: &made.code, start: made.start, cut: 0 };
    Ok(known.list(&function, hot, syntax))
}

fn sources(made: &JitCode, name: &str, addresses: &[u64]) -> Option<Answers> {
    let mut answers = Answers::default();
    let function = answers.intern(name);
    for addr in addresses {
        let after = made.lines.partition_point(|l| l.0 <= *addr);
        let line = after.checked_sub(1).and_then(|n| made.lines.get(n));
        let frame = line.map(|(_, file, line)| {
            let file = answers.intern(file);
            SourceFrame { function, file, line: *line, column: 0 }
        });
        answers.push(frame);
    }
    (!made.lines.is_empty()).then_some(answers)
}

/// The function itself: what it calls is not known by name.
struct Own<'a> {
    start: u64,
    end: u64,
    name: &'a str,
}

impl Names for Own<'_> {
    fn name(&self, addr: u64) -> Option<(String, u64)> {
        let within = (self.start..self.end).contains(&addr);
        within.then(|| (self.name.to_string(), addr - self.start))
    }
}

//! Self-tests of check the requirements of recording.

use kymo_debuginfo::CodeSymbols;
use kymo_kernel::tracefs::Tracefs;
use kymo_kernel::workloads::WORKLOADS;

/// One test.
pub(super) struct SelfTest {
    pub(super) name: &'static str,
    pub(super) run: fn() -> Outcome,
}

/// A result, with what was seen or the reason.
pub(super) enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

pub(super) const SELF_TESTS: &[SelfTest] = &[
    SelfTest { name: "Symbols", run: symbols },
    SelfTest { name: "Tracepoints", run: tracepoints },
];

impl SelfTest {
    /// Whether a word names it: by its number, or by a part of its name.
    pub(super) fn is_meant(&self, index: usize, word: &str) -> bool {
        match word.parse::<usize>() {
            Ok(number) => number == index + 1,
            Err(_) => self.name.to_lowercase().contains(&word.to_lowercase()),
        }
    }
}

impl Outcome {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Outcome::Passed(_) => "Ok",
            Outcome::Failed(_) => "FAILED!",
            Outcome::Skipped(_) => "Skip",
        }
    }

    /// Lines for who wants to know more.
    pub(super) fn details(&self) -> String {
        match self {
            Outcome::Passed(text) => text.clone(),
            Outcome::Failed(why) | Outcome::Skipped(why) => format!("  {why}\n"),
        }
    }
}

/// This program's own symbols are read, and its workloads are among them.
fn symbols() -> Outcome {
    let bytes = std::env::current_exe().and_then(std::fs::read);
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => return Outcome::Failed(format!("this program's file: {error}")),
    };
    let symbols = match CodeSymbols::load(&bytes, None) {
        Ok(symbols) => symbols,
        Err(error) => return Outcome::Failed(format!("this program's symbols: {error}")),
    };
    let mut lines = String::new();
    for name in WORKLOADS.iter().flat_map(|workload| workload.symbols) {
        let found = [true, false].iter().find_map(|code| symbols.named(name, *code));
        let Some(found) = found else {
            return Outcome::Failed(format!("no symbol {name} in this program"));
        };
        lines.push_str(&format!(" {:016x} t {name}\n", found.addr));
    }
    Outcome::Passed(lines)
}

/// Tracefs is there, and lists events.
fn tracepoints() -> Outcome {
    let systems = match Tracefs::open().and_then(|tracefs| tracefs.systems()) {
        Ok(systems) => systems,
        Err(error) => return Outcome::Skipped(error.to_string()),
    };
    match systems.len() {
        0 => Outcome::Failed("tracefs lists no events".to_owned()),
        number => Outcome::Passed(format!("  {number} systems of events\n")),
    }
}

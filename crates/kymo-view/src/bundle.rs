//! Output about a written bundle.

use std::path::Path;

use kymo_analysis::bundle::WrittenBundle;
use kymo_model::NoteKind;
use kymo_symbols::bundle_writer::BundleSummary;

use crate::ledger::Ledger;
use crate::trust::{byte_size, note_symbols};

/// Lines that say what is in a bundle.
pub fn bundle_text(bundle: &WrittenBundle) -> String {
    let BundleSummary { binaries, symbols, ref sources, bytes, .. } = bundle.summary;
    let counted =
        |n: usize, one: &str, more: &str| format!("{n} {}", if n == 1 { one } else { more });
    let sources_counted = match sources.len() {
        0 => String::new(),
        n => format!(", {}", counted(n, "source", "sources")),
    };
    let mut text = format!(
        "[ kymo bundle: Wrote {} {} ({}, {}{sources_counted}) ]\n",
        byte_size(bytes),
        bundle.path.display(),
        counted(binaries, "binary", "binaries"),
        counted(symbols, "symbol", "symbols"),
    );
    // What leaves the machine is for its user to see.
    for source in sources {
        text.push_str(&format!("  {}\n", plain(source)));
    }
    text
}

/// Warnings about missing contents of a bundle.
pub fn bundle_ledger(bundle: &WrittenBundle) -> Ledger {
    let mut ledger = Ledger::default();
    if let Some(damage) = &bundle.damage {
        ledger.note(NoteKind::Damaged, damage.clone(), None);
    }
    note_symbols(&bundle.symbols, &mut ledger);
    let summary = &bundle.summary;
    if summary.sources_missing > 0 {
        let (missing, there) = (summary.sources_missing, summary.sources.len());
        let fact = format!(
            "{missing} source files are not in the bundle, {there} are: the others are missing, \
             too large, not sources by name or contents, or not world-readable"
        );
        ledger.tell(NoteKind::Sources, fact, None);
    }
    if summary.missing > 0 {
        let fact = format!("{} binaries were not found here either", summary.missing);
        ledger.note(NoteKind::Missing, fact, None);
    }
    ledger
}

/// A path on one line: names of files may hold anything.
fn plain(path: &Path) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    path.to_string_lossy().chars().map(shown).collect()
}

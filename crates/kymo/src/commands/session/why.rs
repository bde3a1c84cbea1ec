//! The explanation of a snapshot: the critical path of the task that took too long.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kymo_analysis::critical_path::{PathConfig, PathTarget, find_paths, path_notes};
use kymo_events::EventSource;
use kymo_view::Ledger;
use kymo_view::critical_path::PathView;
use kymo_view::trust::note_chains;
use kymo_view::units::TimeUnits;

use super::super::{analysis::stdout, output};
use crate::args::symbols::SymbolArgs;

/// Parts of the path with their stacks.
const PARTS: usize = 4;

/// Writes what a task's time went to into a file beside the snapshot, and to standard output.
pub(super) fn explain(snapshot: &Path, task: Option<u32>, times: (u64, u64)) -> anyhow::Result<()> {
    let Some(tid) = task else {
        bail!("the condition does not identify a task: add `by pid`");
    };
    let symbols = SymbolArgs::default().options(snapshot);
    let source = EventSource::open(&[snapshot.to_owned()], symbols)?.in_nanoseconds()?;
    let config = PathConfig { target: PathTarget::Thread(tid), times: Some(times) };
    let table = find_paths(&source, &config)?;
    let notes = table.read.summary.notes(&source).into_iter().chain(path_notes(&table));
    let mut ledger = Ledger::from_notes(notes);
    note_chains(&table.read.summary, &mut ledger);
    let view = PathView {
        table: &table,
        worst: PARTS,
        columns: None,
        units: TimeUnits::default(),
        recording: source.arguments().to_owned(),
    };
    let mut text = Vec::new();
    view.write_text(&mut text, &ledger)?;
    let file = beside(snapshot);
    let recordings = [snapshot.to_owned()];
    output::write_contents(&file, &recordings, false, &mut |out| out.write_all(&text))
        .with_context(|| file.display().to_string())?;
    let mut out = stdout();
    out.write_all(&text)?;
    Ok(out.flush()?)
}

fn beside(snapshot: &Path) -> PathBuf {
    let mut name = snapshot.as_os_str().to_owned();
    name.push(".why.txt");
    name.into()
}

//! Flags that commands over a profile share: the recording, where its symbols come
//! from, and which of its samples count.

use std::path::{Path, PathBuf};

use kymo_events::{EventSelection, EventSource};

use super::events::EventSelectionArgs;
use super::symbols::SymbolArgs;

/// Flags that name the recording and where its symbols come from.
#[derive(clap::Args)]
pub(crate) struct RecordingArgs {
    /// Recording to read; `-`: standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) finding: SymbolArgs,
}

impl RecordingArgs {
    pub(crate) fn symbols(&self, recording: &Path) -> kymo_symbols::ResolverOptions {
        self.finding.options(recording)
    }
}

/// Flags that say which samples count.
#[derive(clap::Args, Default)]
pub(crate) struct SampleArgs {
    /// Only tasks with these names
    #[arg(short, long, visible_alias = "comm", value_name = "NAMES", value_delimiter = ',')]
    comms: Vec<String>,
    /// Only samples taken in these binaries
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) dsos: Vec<String>,
    #[command(flatten)]
    select: EventSelectionArgs,
}

impl SampleArgs {
    /// Selection by the flags; the caller with symbols applies that of binaries.
    pub(crate) fn selection(&self, source: &EventSource) -> anyhow::Result<EventSelection> {
        let selection = self.select.selection(self.comms.clone(), || Ok(source.span()?))?;
        source.check_events(&selection)?;
        Ok(selection)
    }
}

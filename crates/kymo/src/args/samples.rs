//! Flags that commands over a profile share: the recording, where its symbols come
//! from, and which of its samples count.

use std::path::{Path, PathBuf};

use kymo_analysis::sample_filter::SampleFilter;
use kymo_files::perfdata::EventDesc;

use super::symbols::SymbolArgs;

/// Flags that name the recording and where its symbols come from.
#[derive(clap::Args)]
pub(crate) struct RecordingArgs {
    /// Recording to read; `-` is the standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) finding: SymbolArgs,
}

impl RecordingArgs {
    pub(crate) fn symbols(&self, recording: &Path) -> kymo_symbols::Options {
        self.finding.options(recording)
    }
}

/// Flags that say which samples count.
#[derive(clap::Args, Default)]
pub(crate) struct SampleArgs {
    /// Only tasks with these names
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    comms: Vec<String>,
    /// Only samples taken in these binaries
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    dsos: Vec<String>,
    /// Only these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Only samples between START,STOP (seconds; either may be missing; space-separated), or in a share of the whole: 10%/2 (the second tenth), 0%-10%,30%-40%
    #[arg(long, value_name = "START,STOP", allow_hyphen_values = true)]
    time: Option<String>,
    /// Only these events (names or globs)
    #[arg(short, long = "event", value_name = "NAMES", value_delimiter = ',')]
    events: Vec<String>,
}

impl SampleArgs {
    /// The spans of time that count; all of it where there are none. `span` is when the
    /// recording begins and ends, where that is known.
    pub(crate) fn times(&self, span: Option<(u64, u64)>) -> anyhow::Result<Vec<(u64, u64)>> {
        let Some(text) = &self.time else { return Ok(Vec::new()) };
        Ok(kymo_events::parse_times(text, span)?)
    }

    /// Whether for times the recording's span must be known.
    pub(crate) fn asks_for_shares(&self) -> bool {
        self.time.as_ref().is_some_and(|t| t.contains('%'))
    }

    /// Whether binaries were named.
    pub(crate) fn names_binaries(&self) -> bool {
        !self.dsos.is_empty()
    }

    /// Whether events of a task count.
    pub(crate) fn wants_task(&self, comm: &[u8], pid: u32, tid: u32) -> bool {
        (self.comms.is_empty() || self.comms.iter().any(|c| c.as_bytes() == comm))
            && (self.pid.is_empty() || self.pid.contains(&pid))
            && (self.tid.is_empty() || self.tid.contains(&tid))
    }

    /// Whether an event with these names counts.
    pub(crate) fn wants_event(&self, names: &[&str]) -> bool {
        self.events.is_empty() || self.events.iter().any(|e| is_named(e, names))
    }

    /// Each name must be one of an event: `is_any` asks the recording's events.
    pub(crate) fn check_events(
        &self,
        is_any: impl Fn(&dyn Fn(&[&str]) -> bool) -> bool,
    ) -> anyhow::Result<()> {
        for name in &self.events {
            globset::Glob::new(name)?;
            if !is_any(&|names| is_named(name, names)) {
                anyhow::bail!("-e {name}: the recording has no such event");
            }
        }
        Ok(())
    }

    /// Whether threads must be told apart to choose.
    pub(crate) fn by_task(&self) -> bool {
        !self.pid.is_empty() || !self.tid.is_empty()
    }

    /// Whether events were named.
    pub(crate) fn names_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Which of the recorded events are named; all where none is.
    pub(crate) fn events(&self, all: &[EventDesc]) -> anyhow::Result<Vec<bool>> {
        if self.events.is_empty() {
            return Ok(vec![true; all.len()]);
        }
        let mut wanted = vec![false; all.len()];
        for name in &self.events {
            let glob = globset::Glob::new(name)?.compile_matcher();
            let mut any = false;
            for (desc, wanted) in all.iter().zip(&mut wanted) {
                // Modifiers need not be named.
                let plain = desc.name.rsplit_once(':').map_or(&*desc.name, |(name, _)| name);
                if desc.name == *name || plain == name || glob.is_match(&desc.name) {
                    *wanted = true;
                    any = true;
                }
            }
            if !any {
                let names: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
                anyhow::bail!(
                    "-e {name}: no such event was recorded; there are {}",
                    names.join(", ")
                );
            }
        }
        Ok(wanted)
    }

    /// The filter of stacks that these flags are.
    pub(crate) fn filter(&self) -> SampleFilter<'_> {
        SampleFilter { comms: &self.comms, dsos: &self.dsos, pids: &self.pid, tids: &self.tid }
    }
}

/// Whether a name or glob is one of the names.
fn is_named(wanted: &str, names: &[&str]) -> bool {
    let glob = globset::Glob::new(wanted).map(|g| g.compile_matcher());
    names.iter().any(|n| *n == wanted || glob.as_ref().is_ok_and(|g| g.is_match(n)))
}

//! The bundle of a recording: all that its addresses are resolved with, gathered and written.

use std::io;
use std::path::{Path, PathBuf};

use kymo_files::perfdata::{PerfData, PerfDataReadError};
use kymo_symbols::bundle::{Bundle, Recording};
use kymo_symbols::bundle_writer::{self, BundleSummary, Contents};
use kymo_symbols::{Resolver, ResolverOptions};

use crate::referenced_addresses::seen;

/// A bundle that was written.
pub struct WrittenBundle {
    /// Its file.
    pub path: PathBuf,
    /// Contents of the bundle.
    pub summary: BundleSummary,
    /// Reason why it does not cover the whole recording.
    pub damage: Option<String>,
    /// Resolver that found its symbols.
    pub symbols: Resolver,
}

/// A bundle cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BundleWriteError {
    /// The recording cannot be opened.
    #[error("{}: {error}", path.display())]
    Open {
        /// The recording.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// The recording cannot be read.
    #[error(transparent)]
    Read(#[from] PerfDataReadError),
    /// The bundle cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The bundle.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
}

/// Writes the bundle of a recording; beside it, if no `output` is named.
///
/// # Errors
/// If the recording cannot be read or the bundle not written.
pub fn write_bundle(
    recording: &Path,
    symbols: ResolverOptions,
    output: Option<&Path>,
    contents: Contents,
) -> Result<WrittenBundle, BundleWriteError> {
    let path = output.map_or_else(|| Bundle::beside(recording), Path::to_owned);
    let identity = Recording::of(recording)
        .map_err(|error| BundleWriteError::Open { path: recording.to_owned(), error })?;
    let mut file = PerfData::open(recording)?;
    let mut seen = seen(&mut file, symbols)?;
    seen.places.constants = kymo_events::perf_data::recorded_constants(&file);
    let damage = seen.stats.damaged.as_ref();
    let damage = damage.map(|d| format!("{d}; everything before it is in the bundle"));
    let damage = damage.or_else(|| (!file.notes().is_empty()).then(|| file.notes().join("; ")));
    let mut symbols = seen.machine.symbols;
    let summary = bundle_writer::write(&mut symbols, seen.places, identity, contents, &path)
        .map_err(|error| BundleWriteError::Write { path: path.clone(), error })?;
    Ok(WrittenBundle { path, summary, damage, symbols })
}

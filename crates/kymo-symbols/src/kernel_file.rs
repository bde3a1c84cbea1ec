//! A file with code of the recorded kernel, and where that code was in memory.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use kymo_model::BuildId;
use rustc_hash::FxHashMap;

use crate::dso::DsoId;
use crate::files::FilePart;

/// A file with code of the kernel.
#[derive(Debug)]
pub struct KernelFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Build-id.
    pub(crate) build_id: Option<BuildId>,
    /// By running address.
    spans: Vec<Span>,
}

/// A section with code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Start address when it was recorded.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Address stated in the file, or assumed in that of a module.
    pub(crate) stated: u64,
}

/// Files found, by binary and requested part.
#[derive(Debug, Default)]
pub(crate) struct PlacedFiles(pub(crate) Mutex<FileByDso>);

pub(crate) type FileByDso = FxHashMap<(DsoId, FilePart), Option<Arc<KernelFile>>>;

impl KernelFile {
    /// The file's address of one of the recording.
    pub fn stated(&self, running: u64) -> Option<u64> {
        let after = self.spans.partition_point(|s| s.start <= running);
        let span = self.spans.get(after.checked_sub(1)?)?;
        (running < span.end).then(|| (running - span.start).wrapping_add(span.stated))
    }

    /// The address in the recording of one of the file.
    pub fn running(&self, stated: u64) -> Option<u64> {
        let holds = |s: &&Span| stated >= s.stated && stated - s.stated < s.end - s.start;
        self.spans.iter().find(holds).map(|s| (stated - s.stated).wrapping_add(s.start))
    }

    pub(crate) fn new(
        path: PathBuf,
        build_id: Option<BuildId>,
        mut spans: Vec<Span>,
    ) -> Option<KernelFile> {
        spans.sort_by_key(|s| s.start);
        (!spans.is_empty()).then_some(KernelFile { path, build_id, spans })
    }
}

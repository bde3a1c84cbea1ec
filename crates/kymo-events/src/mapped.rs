//! Recordings read where the kernel has them in memory. A copy of a stack has many kilobytes, of
//! which unwinding reads some words: copying all of it once more takes longer than the rest. Other
//! samples are read completely, and bytes just copied are in the processor's cache.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use kymo_files::perfdata::{EventDesc, FileMapping, PerfData};
use kymo_kernel::mapped::MappedFile;
use kymo_model::SampleType;

#[derive(Debug)]
struct Mapped(MappedFile);

impl FileMapping for Mapped {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn forget(&self, part: &[u8]) {
        self.0.forget(part);
    }

    fn expect(&self, part: Range<usize>) {
        self.0.expect(part);
    }

    fn was_cut(&self) -> bool {
        self.0.was_cut()
    }
}

/// Has a recording with copies of stacks read from memory if it is a regular file.
pub fn map(recording: &mut PerfData) {
    let has_stack = |e: &EventDesc| e.attr.sample_type.contains(SampleType::STACK_USER);
    if recording.events().iter().any(has_stack) {
        map_any(recording);
    }
}

/// Maps any recording: where several threads read some of its records, and no thread reads some of
/// their bytes, a copy of all is in no thread's cache.
pub(crate) fn map_any(recording: &mut PerfData) {
    recording.map(|file: &File| Some(Arc::new(Mapped(MappedFile::of(file).ok()?))));
}

//! Recordings read where the kernel has them in memory. A copy of a stack has many
//! kilobytes, of which unwinding looks at some words: copying all of it once more
//! takes longer than the rest. Of other samples all is looked at, and those that were
//! just copied are nearer to the processor.

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

/// The same of any recording: where some of its records are looked at by several threads, and
/// some of their bytes by nobody, a copy of all is near to none of them.
pub(crate) fn map_any(recording: &mut PerfData) {
    recording.map(|file: &File| Some(Arc::new(Mapped(MappedFile::of(file).ok()?))));
}

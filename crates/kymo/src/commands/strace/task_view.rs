//! A task that stands still, as the decoder reads it.

use kymo_kernel::{memory, process, target};
use kymo_render::syscalls::strace::TaskView;

/// A stopped task of this machine.
pub(super) struct LiveTask {
    pub(super) tid: u32,
    /// Whether descriptors are looked up.
    pub(super) wants_descriptors: bool,
}

impl TaskView for LiveTask {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> usize {
        memory::read(self.tid, address, bytes).unwrap_or(0)
    }

    fn descriptor(&mut self, fd: i32) -> Option<Vec<u8>> {
        let fd = u32::try_from(fd).ok().filter(|_| self.wants_descriptors)?;
        target::descriptor_bytes(self.tid, fd)
    }

    fn directory(&mut self) -> Option<Vec<u8>> {
        if self.wants_descriptors { target::directory(self.tid) } else { None }
    }

    fn time_of_day(&mut self, seconds: i64) -> String {
        kymo_kernel::calendar::format_local_time("%H:%M:%S", seconds)
    }

    fn local_time(&mut self, seconds: i64) -> String {
        kymo_kernel::calendar::format_local_time("%Y-%m-%dT%H:%M:%S%z", seconds)
    }
}

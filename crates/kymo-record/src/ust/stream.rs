//! The file of a stream. Packets that are copied are appended; those that are not go past the
//! page cache where that can be and is quick enough, so that a long trace costs the machine neither
//! its cache nor the time to fill it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Instant;

use rustix::fs::OFlags;

use super::whole::Whole;

/// What a disk can be given directly: multiples of this, at multiples of this.
const PAGE: u64 = 4096;
/// Less than that is not worth waiting for a disk.
const DIRECTLY: u64 = 128 << 10;
const DIRECT: i32 = OFlags::DIRECT.bits().cast_signed();

/// The file, and how far it is written.
#[derive(Debug)]
pub(super) struct Stream {
    file: File,
    /// The same past the page cache, where that can be.
    direct: Option<File>,
    end: u64,
    pace: Pace,
}

/// Nanoseconds for a byte as measured, 0 where that is not known.
#[derive(Debug, Default)]
struct Pace {
    direct: f64,
    cached: f64,
}

impl Pace {
    /// Whether the disk is given what it is directly. In no hurry it is; else whatever has
    /// been quicker.
    fn is_direct(&mut self, hurry: bool) -> bool {
        let direct = !hurry || self.direct < self.cached;
        // What is not tried is forgotten: it may be quicker by now.
        let other = if direct { &mut self.cached } else { &mut self.direct };
        *other *= 0.99;
        direct
    }

    fn measured(&mut self, direct: bool, since: Instant, bytes: u64) {
        let now = since.elapsed().as_nanos() as f64 / bytes.max(1) as f64;
        let known = if direct { &mut self.direct } else { &mut self.cached };
        *known = if *known == 0.0 { now } else { (*known * 3.0 + now) / 4.0 };
    }
}

impl Stream {
    /// Of a file that was just made.
    pub(super) fn new(file: File, path: &Path) -> Stream {
        // File systems that know nothing of it refuse it here or at the first write.
        let direct = File::options().write(true).custom_flags(DIRECT).open(path).ok();
        Stream { file, direct, end: 0, pace: Pace::default() }
    }

    /// Appends a packet, or nothing.
    pub(super) fn packet(&mut self, packet: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(packet, self.end);
        self.appended(written, packet.len() as u64)
    }

    /// Appends packets, or nothing.
    pub(super) fn whole(&mut self, whole: &Whole<'_>) -> io::Result<()> {
        let (memory, pieces, bytes) = (whole.memory, &whole.pieces, whole.bytes);
        let fits = self.end.is_multiple_of(PAGE) && bytes >= DIRECTLY;
        if let Some(direct) = self.direct.as_ref().filter(|_| fits)
            && self.pace.is_direct(whole.behind)
        {
            let since = Instant::now();
            if memory.write_to(direct, pieces, self.end).is_ok() {
                self.pace.measured(true, since, bytes);
                return self.appended(Ok(()), bytes);
            }
            // Whatever it is, the next try says it again or does without.
            self.direct = None;
        }
        let since = Instant::now();
        let written = memory.write_to(&self.file, pieces, self.end);
        self.pace.measured(false, since, bytes);
        self.appended(written, bytes)
    }

    fn appended(&mut self, written: io::Result<()>, bytes: u64) -> io::Result<()> {
        match &written {
            Ok(()) => self.end += bytes,
            // That this fails, too, costs a broken last packet.
            Err(_) => drop(self.file.set_len(self.end)),
        }
        written
    }
}

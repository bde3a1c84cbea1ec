//! The file of a stream. Packets that are copied are appended; those that are not go past the
//! page cache where that can be and the ring has room for as long as it takes, so that a long
//! trace costs the machine neither its cache nor the time to fill it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use kymo_kernel::file_space::UNCACHED;

use super::complete_packets::CompletePackets;

/// Alignment of sizes and offsets for direct I/O.
const PAGE: u64 = 4096;
/// Less than that is not worth waiting for a disk.
const DIRECTLY: u64 = 128 << 10;

/// The file, and how far it is written.
#[derive(Debug)]
pub(super) struct Stream {
    file: File,
    /// File opened for writes past the page cache, where that is possible.
    direct: Option<File>,
    end: u64,
    pace: Pace,
}

/// Measured rates of incoming bytes and of writing; 0 where not measured.
#[derive(Debug, Default)]
struct Pace {
    since: Option<Instant>,
    /// Bytes a second that come.
    comes: f64,
    /// The longest that a disk has kept us waiting, seconds; what is long ago counts less.
    stalls: f64,
    /// Seconds for a byte into the page cache.
    cached: f64,
}

impl Pace {
    /// Whether the disk is given what it is directly: if what comes while it keeps us waiting
    /// finds room in the ring, twice over. Else the page cache takes it, unless that is too slow.
    fn is_direct(&mut self, bytes: u64, free: u64) -> bool {
        let now = Instant::now();
        if let Some(since) = self.since.replace(now) {
            let comes = bytes as f64 / (now - since).as_secs_f64().max(1e-6);
            self.comes = if self.comes == 0.0 { comes } else { (self.comes * 3.0 + comes) / 4.0 };
        }
        // What is not tried any more is forgotten: the disk may be quicker by now.
        self.stalls *= 0.99;
        self.comes * self.stalls * 2.0 <= free as f64 || self.comes * self.cached > 0.8
    }

    fn was_direct(&mut self, took: Duration) {
        self.stalls = self.stalls.max(took.as_secs_f64());
    }

    fn was_cached(&mut self, took: Duration, bytes: u64) {
        let one = took.as_secs_f64() / bytes.max(1) as f64;
        self.cached = if self.cached == 0.0 { one } else { (self.cached * 3.0 + one) / 4.0 };
    }
}

impl Stream {
    /// Creates the stream of a new file.
    pub(super) fn new(file: File, path: &Path) -> Stream {
        // File systems that know nothing of it refuse it here or at the first write.
        let direct = File::options().write(true).custom_flags(UNCACHED).open(path).ok();
        Stream { file, direct, end: 0, pace: Pace::default() }
    }

    /// Appends a packet, or nothing.
    pub(super) fn packet(&mut self, packet: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(packet, self.end);
        self.appended(written, packet.len() as u64)
    }

    /// Appends packets, or nothing.
    pub(super) fn whole(&mut self, whole: &CompletePackets<'_>) -> io::Result<()> {
        let (memory, pieces, bytes) = (whole.memory, &whole.pieces, whole.bytes);
        let fits = self.end.is_multiple_of(PAGE) && bytes >= DIRECTLY;
        if let Some(direct) = self.direct.as_ref().filter(|_| fits)
            && self.pace.is_direct(bytes, whole.free)
        {
            let since = Instant::now();
            if memory.write_to(direct, pieces, self.end).is_ok() {
                self.pace.was_direct(since.elapsed());
                return self.appended(Ok(()), bytes);
            }
            // Whatever it is, the next try says it again or does without.
            self.direct = None;
        }
        let since = Instant::now();
        let written = memory.write_to(&self.file, pieces, self.end);
        self.pace.was_cached(since.elapsed(), bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_stalls_is_left_to_the_page_cache_while_that_keeps_up() {
        const ROOM: u64 = 8 << 20;
        let mut pace = Pace::default();
        assert!(pace.is_direct(1 << 20, ROOM), "nothing is known");
        // 100 MB/s, and a disk that once took 10 ms: a megabyte came meanwhile.
        (pace.comes, pace.stalls) = (100e6, 0.01);
        assert!(pace.comes * pace.stalls * 2.0 < ROOM as f64);
        let direct = |pace: &mut Pace, free| {
            // As if it had come at that rate.
            pace.since = None;
            pace.is_direct(1 << 20, free)
        };
        assert!(direct(&mut pace, ROOM));
        assert!(!direct(&mut pace, 1 << 20), "the ring is all but full");
        pace.was_direct(Duration::from_millis(80));
        assert!(!direct(&mut pace, ROOM));
        pace.was_cached(Duration::from_millis(20), 1 << 20);
        assert!(direct(&mut pace, ROOM), "the page cache takes 50 MB/s only");
        pace.cached = 0.0;
        // The stall is forgotten.
        assert!((0..1000).any(|_| direct(&mut pace, ROOM)));
    }
}

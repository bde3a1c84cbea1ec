//! Statistics of one CPU's ring: number of events that it holds and has lost.

use super::dir::TraceDir;
use super::error::FtraceError;

/// Figures of `per_cpu/cpuN/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStats {
    /// Unread events in the ring.
    pub entries: u64,
    /// Events that newer ones wrote over.
    pub overrun: u64,
    /// Events lost because nested writers filled the whole ring.
    pub commit_overrun: u64,
    /// Bytes that are used.
    pub bytes: u64,
    /// Events that found the ring full (option `overwrite` off).
    pub dropped: u64,
    /// Events that were read.
    pub read: u64,
    /// The oldest event's time in nanoseconds; absent for clocks that do not
    /// count time.
    pub oldest_ns: Option<u64>,
    /// The clock's time of asking, in nanoseconds.
    pub now_ns: Option<u64>,
}

impl CpuStats {
    /// Events that will never be read.
    pub fn lost(&self) -> u64 {
        self.overrun + self.commit_overrun + self.dropped
    }

    /// Reads the file's text. Lines that are not known are passed over.
    pub fn parse(text: &str) -> CpuStats {
        let mut s = CpuStats::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            let number = || value.parse().unwrap_or(0);
            match name {
                "entries" => s.entries = number(),
                "overrun" => s.overrun = number(),
                "commit overrun" => s.commit_overrun = number(),
                "bytes" => s.bytes = number(),
                "dropped events" => s.dropped = number(),
                "read events" => s.read = number(),
                "oldest event ts" => s.oldest_ns = nanoseconds(value),
                "now ts" => s.now_ns = nanoseconds(value),
                _ => {}
            }
        }
        s
    }
}

/// `12.000345` seconds; a bare number counts something else.
fn nanoseconds(value: &str) -> Option<u64> {
    let (seconds, micros) = value.split_once('.')?;
    let (seconds, micros): (u64, u64) = (seconds.parse().ok()?, micros.parse().ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(micros.checked_mul(1000)?)
}

impl TraceDir {
    /// The figures of one CPU's ring.
    pub fn stats(&self, cpu: u32) -> Result<CpuStats, FtraceError> {
        Ok(CpuStats::parse(&self.read(&format!("per_cpu/cpu{cpu}/stats"))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_real_file() {
        let text = "entries: 129\noverrun: 3\ncommit overrun: 1\nbytes: 1208\n\
                    oldest event ts: 11357.000777\nnow ts: 11357.641777\n\
                    dropped events: 2\nread events: 42\n";
        let s = CpuStats::parse(text);
        assert_eq!((s.entries, s.overrun, s.bytes, s.read, s.lost()), (129, 3, 1208, 42, 6));
        assert_eq!(s.oldest_ns, Some(11_357_000_777_000));
        assert_eq!(CpuStats::parse("now ts: 5\nnonsense\n"), CpuStats::default());
    }
}

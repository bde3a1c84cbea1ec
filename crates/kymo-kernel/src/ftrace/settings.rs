//! A trace directory's single values: buffer size, clock, options, whose and which
//! CPUs' events, the tracer.

use super::dir::TraceDir;
use super::error::FtraceError;

/// The clocks of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The one in use.
    pub current: String,
    /// All of them.
    pub offered: Vec<String>,
}

/// The most ids in one write; the file is parsed word by word.
const PIDS_A_WRITE: usize = 500;

impl TraceDir {
    /// Whether the ring takes events.
    pub fn tracing(&self) -> Result<bool, FtraceError> {
        Ok(self.read_number("tracing_on")? != 0)
    }

    /// Lets the ring take events, or not. Enabled events stay enabled.
    pub fn set_tracing(&self, on: bool) -> Result<(), FtraceError> {
        self.set("tracing_on", if on { "1" } else { "0" })
    }

    /// The ring's size per CPU in KiB. `None` if the CPUs differ.
    pub fn buffer_size_kb(&self) -> Result<Option<u64>, FtraceError> {
        match self.read_number("buffer_size_kb") {
            Ok(kb) => Ok(Some(kb)),
            // `X`: see per_cpu/cpuN/buffer_size_kb.
            Err(FtraceError::Unexpected { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Resizes every CPU's ring. The kernel rounds up to whole pages.
    pub fn set_buffer_size_kb(&self, kb: u64) -> Result<(), FtraceError> {
        self.expand_top();
        self.set("buffer_size_kb", &kb.to_string())
    }

    /// The top's ring has a few pages until tracing is first used. Older kernels
    /// (6.1) note for all rings in one place that this was done, also when only an
    /// instance's is resized, and the top's then stays small for good. Switching
    /// an event off, which is off, gives it its size before.
    fn expand_top(&self) {
        let small = || {
            let size = self.tracefs().read("buffer_size_kb");
            size.is_ok_and(|text| text.contains("expanded"))
        };
        if self.name().is_some() && small() {
            // Where that is refused, nothing is worse than before.
            let _ = self.set("events/sched/sched_switch/enable", "0");
        }
    }

    /// The clock of the timestamps, and which others there are.
    pub fn clocks(&self) -> Result<Clocks, FtraceError> {
        let text = self.read("trace_clock")?;
        let mut clocks = Clocks { current: String::new(), offered: Vec::new() };
        for word in text.split_whitespace() {
            let name = word.trim_start_matches('[').trim_end_matches(']');
            if name.len() != word.len() {
                clocks.current = name.to_owned();
            }
            clocks.offered.push(name.to_owned());
        }
        Ok(clocks)
    }

    /// Chooses the clock. This empties the ring.
    pub fn set_clock(&self, name: &str) -> Result<(), FtraceError> {
        self.set("trace_clock", name)
    }

    /// An option such as `overwrite`, `event-fork`, `record-tgid`,
    /// `stacktrace`; `None` if the kernel does not have it.
    pub fn option(&self, name: &str) -> Option<bool> {
        self.read(&format!("options/{name}")).ok().map(|text| text.trim() == "1")
    }

    /// Sets an option.
    pub fn set_option(&self, name: &str, on: bool) -> Result<(), FtraceError> {
        self.set(&format!("options/{name}"), if on { "1" } else { "0" })
    }

    /// Tasks whose events are taken; empty means system-wide.
    pub fn pids(&self) -> Result<Vec<u32>, FtraceError> {
        let text = self.read("set_event_pid")?;
        Ok(text.lines().filter_map(|l| l.trim().parse().ok()).collect())
    }

    /// Takes only events of these threads; an empty list is system-wide.
    /// With the option `event-fork` their children's as well.
    pub fn set_pids(&self, tids: &[u32]) -> Result<(), FtraceError> {
        self.set("set_event_pid", "")?;
        self.add_pids(tids)
    }

    /// Takes these threads' events too.
    pub fn add_pids(&self, tids: &[u32]) -> Result<(), FtraceError> {
        for some in tids.chunks(PIDS_A_WRITE) {
            let words: Vec<String> = some.iter().map(u32::to_string).collect();
            self.add("set_event_pid", &words.join(" "))?;
        }
        Ok(())
    }

    /// The CPUs whose rings there are, sorted. Ones that were never online have none.
    pub fn cpus(&self) -> Result<Vec<u32>, FtraceError> {
        let path = self.path("per_cpu");
        let entries = std::fs::read_dir(&path)
            .map_err(|error| FtraceError::Pipe { path: path.clone(), error })?;
        let mut cpus: Vec<u32> = entries
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.strip_prefix("cpu")?.parse().ok())
            .collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Takes only events of these CPUs.
    pub fn set_cpus(&self, cpus: &[u32]) -> Result<(), FtraceError> {
        self.set("tracing_cpumask", &mask_text(cpus))
    }

    /// The tracer in use; `nop` if there are only events.
    pub fn tracer(&self) -> Result<String, FtraceError> {
        Ok(self.read("current_tracer")?.trim().to_owned())
    }

    /// The tracers this kernel was built with.
    pub fn tracers(&self) -> Result<Vec<String>, FtraceError> {
        Ok(self.read("available_tracers")?.split_whitespace().map(str::to_owned).collect())
    }

    /// Starts a tracer; `nop` stops it.
    pub fn set_tracer(&self, name: &str) -> Result<(), FtraceError> {
        self.set("current_tracer", name)
    }
}

/// A set of CPUs as the kernel reads it: hexadecimal groups of 32 bits, the
/// highest first.
pub fn mask_text(cpus: &[u32]) -> String {
    let groups = cpus.iter().map(|c| c / 32 + 1).max().unwrap_or(1);
    let words: Vec<String> = (0..groups)
        .rev()
        .map(|g| {
            let bits = cpus.iter().filter(|c| **c / 32 == g).fold(0u32, |m, c| m | 1 << (c % 32));
            format!("{bits:08x}")
        })
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracefs::Tracefs;

    #[test]
    fn masks_are_groups_of_32() {
        assert_eq!(mask_text(&[0, 1]), "00000003");
        assert_eq!(mask_text(&[31, 32, 64]), "00000001,00000001,80000000");
        assert_eq!(mask_text(&[]), "00000000");
    }

    #[test]
    fn values_are_read_as_the_kernel_writes_them() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("trace_clock", "local global [mono] x86-tsc\n");
        write("buffer_size_kb", "X\n");
        write("options/overwrite", "1\n");
        write("set_event_pid", "12\n7\n");
        write("per_cpu/cpu0/stats", "");
        write("per_cpu/cpu10/stats", "");
        write("per_cpu/cpu2/stats", "");
        let dir = TraceDir::top(&Tracefs::at(root.path()));
        let clocks = dir.clocks().unwrap();
        assert_eq!((clocks.current.as_str(), clocks.offered.len()), ("mono", 4));
        assert_eq!(dir.buffer_size_kb().unwrap(), None);
        assert_eq!((dir.option("overwrite"), dir.option("no-such")), (Some(true), None));
        assert_eq!(dir.pids().unwrap(), [12, 7]);
        assert_eq!(dir.cpus().unwrap(), [0, 2, 10]);
        let many: Vec<u32> = (1..=1200).collect();
        dir.set_pids(&many).unwrap();
        // The kernel splits writes at blanks; a plain file joins them.
        assert!(dir.read("set_event_pid").unwrap().starts_with("1 2 3 "));
    }
}

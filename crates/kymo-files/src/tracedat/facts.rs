//! Facts about the machine and the recording, beside the events.

/// Conversion of the x86-tsc clock to nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TscToNsec {
    /// Multiplier.
    pub mult: u32,
    /// Bits to shift right after that.
    pub shift: u32,
    /// Nanoseconds to add.
    pub offset: u64,
}

/// A guest that was recorded together with its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Its recording's [`TraceDatOptions::trace_id`].
    pub trace_id: u64,
    /// Virtual CPU and the host's task that runs it.
    pub vcpus: Vec<(u32, u32)>,
}

/// Difference between the clocks of one CPU of a guest and its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuShift {
    /// Guest times the others belong to.
    pub times: Vec<u64>,
    /// Difference then.
    pub offsets: Vec<i64>,
    /// Ratio then.
    pub scalings: Vec<u64>,
}

/// Time synchronisation between guest and host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeShift {
    /// [`TraceDatOptions::trace_id`] of the other recording.
    pub peer: u64,
    /// Flags of the protocol.
    pub flags: u32,
    /// One entry for each CPU.
    pub cpus: Vec<CpuShift>,
}

/// The options of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceDatOptions {
    /// Offset from times to the time of day, as written.
    pub date: Option<String>,
    /// Text of each CPU's `stats`, and the headings between instances.
    pub cpustat: Vec<String>,
    /// Content of `trace_clock`.
    pub trace_clock: Option<String>,
    /// The machine, as uname(1) names it.
    pub uname: Option<String>,
    /// Events connected by name.
    pub hooks: Vec<String>,
    /// Offset added to every time, as written.
    pub offset: Option<String>,
    /// CPUs of the machine.
    pub cpu_count: Option<u32>,
    /// The program that recorded.
    pub version: Option<String>,
    /// Memory maps of traced processes.
    pub procmaps: Vec<String>,
    /// Number of the recording.
    pub trace_id: Option<u64>,
    /// Synchronisation with another machine.
    pub time_shift: Option<TimeShift>,
    /// Guests recorded with this host.
    pub guests: Vec<Guest>,
    /// Conversion of TSC times.
    pub tsc2nsec: Option<TscToNsec>,
    /// Options this code does not know.
    pub unknown: Vec<(u16, Vec<u8>)>,
}

impl TraceDatOptions {
    /// The clock marked in `trace_clock`: `[local] global …`.
    pub fn clock(&self) -> Option<&str> {
        let text = self.trace_clock.as_deref()?;
        match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
            Some((name, _)) => Some(name),
            None => Some(text.trim()),
        }
    }

    /// Whether the recorder says that it took what a ring held that overwrites.
    pub fn is_flight_recorder(&self) -> bool {
        self.version.as_deref().is_some_and(|version| version.ends_with(FLIGHT_RECORDER))
    }

    /// Events that the kernel counted as lost or overwritten on all CPUs, from the start of the
    /// ring until the recorder read its `stats`; `None` if it did not, or for several instances,
    /// whose figures follow each other.
    pub fn lost_by_counters(&self) -> Option<u64> {
        self.counted(&["overrun", "commit overrun", "dropped events"])
    }

    /// Events of these that found the ring full, in a ring that does not overwrite: pages do not
    /// say so of what came last.
    pub fn dropped_by_counters(&self) -> Option<u64> {
        self.counted(&["dropped events"])
    }

    fn counted(&self, names: &[&str]) -> Option<u64> {
        let is_instance = |text: &&String| !text.starts_with("CPU: ");
        if self.cpustat.is_empty() || self.cpustat.iter().any(|text| is_instance(&text)) {
            return None;
        }
        let lines = self.cpustat.iter().flat_map(|text| text.lines());
        let figures = lines.filter_map(|line| line.split_once(": "));
        figures.filter(|(name, _)| names.contains(name)).try_fold(0u64, |sum, (_, figure)| {
            Some(sum.saturating_add(figure.trim().parse().ok()?))
        })
    }
}

/// Behind the version of the recorder: the file is what a ring held that overwrites its oldest
/// events.
pub const FLIGHT_RECORDER: &str = " (flight recorder)";

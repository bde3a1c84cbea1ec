//! What to record, for whom, where to, until when.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use kymo_kernel::events::EventSpec;

/// Whose events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// The command's and its children's.
    #[default]
    Command,
    /// Everything on the CPUs (`-a`, `-C`).
    System,
    /// These processes (`-p`, `-u`).
    Processes(Vec<u32>),
    /// These threads (`-t`).
    Threads(Vec<u32>),
    /// These cgroups, on all CPUs: one for all events, or one for each (`-G`).
    Cgroups(Vec<String>),
}

/// How call chains are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallGraph {
    /// The kernel follows frame pointers.
    FramePointers,
    /// Registers and this many bytes of stack, to be unwound later.
    Dwarf(u32),
}

/// The clock of the timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`, which user-space events can share.
    #[default]
    Monotonic,
    /// `CLOCK_MONOTONIC_RAW`.
    MonotonicRaw,
    /// `CLOCK_REALTIME`.
    Realtime,
    /// `CLOCK_BOOTTIME`.
    Boottime,
    /// `CLOCK_TAI`.
    Tai,
    /// perf's own, the scheduler's.
    Perf,
}

impl Clock {
    /// By the names perf takes.
    pub fn parse(name: &str) -> Option<Clock> {
        let name = name.to_ascii_lowercase();
        Some(match name.strip_prefix("clock_").unwrap_or(&name) {
            "monotonic" | "mono" => Clock::Monotonic,
            "monotonic_raw" | "raw" => Clock::MonotonicRaw,
            "realtime" | "real" => Clock::Realtime,
            "boottime" | "boot" => Clock::Boottime,
            "tai" => Clock::Tai,
            "perf" | "sched" => Clock::Perf,
            _ => return None,
        })
    }

    /// All of them.
    pub const ALL: [Clock; 6] = [
        Clock::Monotonic,
        Clock::MonotonicRaw,
        Clock::Perf,
        Clock::Boottime,
        Clock::Realtime,
        Clock::Tai,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Monotonic => "monotonic",
            Clock::MonotonicRaw => "monotonic_raw",
            Clock::Realtime => "realtime",
            Clock::Boottime => "boottime",
            Clock::Tai => "tai",
            Clock::Perf => "perf",
        }
    }

    /// The kernel's number; none for perf's own clock.
    pub fn id(self) -> Option<i32> {
        Some(match self {
            Clock::Realtime => 0,
            Clock::Monotonic => 1,
            Clock::MonotonicRaw => 4,
            Clock::Boottime => 7,
            Clock::Tai => 11,
            Clock::Perf => return None,
        })
    }
}

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A file; an older recording there is kept as `FILE.old`.
    File {
        /// Its name.
        path: PathBuf,
        /// Replace a file that is not a recording.
        force: bool,
    },
    /// Standard output, in pipe form.
    Stdout,
}

/// When to rotate the output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchOn {
    /// On SIGUSR2.
    Signal,
    /// When the file has this many bytes.
    Size(u64),
    /// Every so often.
    Time(Duration),
}

/// A whole recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// What; empty means `cycles`, or `cpu-clock` where there are none.
    pub events: Vec<EventSpec>,
    /// Whose.
    pub target: Target,
    /// The command to run, if any.
    pub command: Vec<OsString>,
    /// CPUs; empty means all online.
    pub cpus: Vec<u32>,
    /// Samples per second; `u64::MAX` for the most the kernel allows.
    pub freq: Option<u64>,
    /// Events per sample, instead of a frequency.
    pub period: Option<u64>,
    /// Call chains.
    pub call_graph: Option<CallGraph>,
    /// Data addresses in samples (`-d`).
    pub addresses: bool,
    /// Counts per thread at its end (`-s`).
    pub inherit_stat: bool,
    /// The CPU in every sample (`--sample-cpu`; always on with `System`).
    pub sample_cpu: bool,
    /// The period in every sample (`-P`).
    pub sample_period: bool,
    /// What else an event gives, as bytes, in every sample (`-R`; tracepoints' always).
    pub raw: bool,
    /// Records of context switches (`--switch-events`).
    pub switch_events: bool,
    /// Records of namespaces (`--namespaces`).
    pub namespaces: bool,
    /// Follow children and new threads.
    pub inherit: bool,
    /// Processes of the target that end before they are opened are left out: nobody
    /// named them.
    pub skip_gone: bool,
    /// Wait so long before counting.
    pub delay: Option<Duration>,
    /// Stop after.
    pub timeout: Option<Duration>,
    /// Stop when so much was written.
    pub max_size: Option<u64>,
    /// Data pages of each ring; none for a size that fits the machine.
    pub pages: Option<usize>,
    /// The clock.
    pub clock: Clock,
    /// Where to.
    pub output: Output,
    /// zstd level.
    pub compress: Option<i32>,
    /// Leave events of this program itself out.
    pub exclude_self: bool,
    /// Several files.
    pub switch: Option<SwitchOn>,
    /// Keep only the newest events, and write them when asked or at the end.
    pub overwrite: bool,
    /// Put build-ids into the file.
    pub build_ids: bool,
    /// For reading one process's maps.
    pub map_timeout: Duration,
    /// The command line, to be kept in the file.
    pub command_line: Vec<String>,
    /// The version, to be kept in the file.
    pub version: String,
}

impl Options {
    /// Whether mappings without code are recorded: for data addresses, and for
    /// unwinding, whose tables (`.eh_frame_hdr`) lie in such a mapping.
    pub(crate) fn data_mappings(&self) -> bool {
        let unwound = |e: &EventSpec| e.terms.call_graph.as_deref() == Some("dwarf");
        self.addresses
            || matches!(self.call_graph, Some(CallGraph::Dwarf(_)))
            || self.events.iter().any(unwound)
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            events: Vec::new(),
            target: Target::Command,
            command: Vec::new(),
            cpus: Vec::new(),
            freq: None,
            period: None,
            call_graph: None,
            addresses: false,
            inherit_stat: false,
            sample_cpu: false,
            sample_period: false,
            raw: false,
            switch_events: false,
            namespaces: false,
            inherit: true,
            skip_gone: false,
            delay: None,
            timeout: None,
            max_size: None,
            pages: None,
            clock: Clock::default(),
            output: Output::File { path: "perf.data".into(), force: false },
            compress: None,
            exclude_self: false,
            switch: None,
            overwrite: false,
            build_ids: true,
            map_timeout: Duration::from_millis(500),
            command_line: Vec::new(),
            version: String::new(),
        }
    }
}

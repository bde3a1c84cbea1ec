//! Options of a recording: events, target, output and end.

use kymo_kernel::task_ends::TaskEnds;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kymo_files::perfdata::write::CompressedForm;
use kymo_kernel::blocked::BlockedAtStart;
use kymo_kernel::events::EventSpec;
use kymo_model::{AttrFlags, BranchType, SampleType};

use crate::control::ControlSource;

/// Target of a recording.
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

/// Tasks that a recording of all CPUs is about.
#[derive(Clone, Debug, Default)]
pub struct ChosenTasks {
    /// Processes. The recording ends when all of them and all threads have ended.
    pub processes: Vec<u32>,
    /// Threads.
    pub threads: Vec<u32>,
    /// Their threads, of which those that are blocked are read once events are enabled.
    pub at_start: BlockedAtStart,
}

/// Recording mode of call chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallGraph {
    /// The kernel follows frame pointers.
    FramePointers,
    /// Registers and this many bytes of stack, to be unwound later.
    Dwarf(u32),
}

/// The clock of the timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordClock {
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

impl RecordClock {
    /// By the names perf takes.
    pub fn parse(name: &str) -> Option<RecordClock> {
        let name = name.to_ascii_lowercase();
        Some(match name.strip_prefix("clock_").unwrap_or(&name) {
            "monotonic" | "mono" => RecordClock::Monotonic,
            "monotonic_raw" | "raw" => RecordClock::MonotonicRaw,
            "realtime" | "real" => RecordClock::Realtime,
            "boottime" | "boot" => RecordClock::Boottime,
            "tai" => RecordClock::Tai,
            "perf" | "sched" => RecordClock::Perf,
            _ => return None,
        })
    }

    /// All of them.
    pub const ALL: [RecordClock; 6] = [
        RecordClock::Monotonic,
        RecordClock::MonotonicRaw,
        RecordClock::Perf,
        RecordClock::Boottime,
        RecordClock::Realtime,
        RecordClock::Tai,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            RecordClock::Monotonic => "monotonic",
            RecordClock::MonotonicRaw => "monotonic_raw",
            RecordClock::Realtime => "realtime",
            RecordClock::Boottime => "boottime",
            RecordClock::Tai => "tai",
            RecordClock::Perf => "perf",
        }
    }

    /// The kernel's number; none for perf's own clock.
    pub fn id(self) -> Option<i32> {
        Some(match self {
            RecordClock::Realtime => 0,
            RecordClock::Monotonic => 1,
            RecordClock::MonotonicRaw => 4,
            RecordClock::Boottime => 7,
            RecordClock::Tai => 11,
            RecordClock::Perf => return None,
        })
    }
}

/// Output of a recording.
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

/// Condition for rotating the output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchOn {
    /// On SIGUSR2.
    Signal,
    /// Size of the file in bytes.
    Size(u64),
    /// Every so often.
    Time(Duration),
}

/// Optional contents of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleContents {
    /// Fields of their own.
    pub fields: SampleType,
    /// Selection of branches (`-b`, `-j`), as `PERF_SAMPLE_BRANCH_*`; none for no branch stack.
    pub branches: BranchType,
    /// Mask of registers of user space (`--user-regs`).
    pub user_registers: u64,
    /// Mask of registers at the interrupt (`-I`).
    pub interrupt_registers: u64,
}

/// Selection of the records synthesized for the state before the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synthesis {
    /// Tasks and their mappings.
    #[default]
    All,
    /// Tasks alone.
    Tasks,
    /// None.
    None,
}

/// A whole recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Events; empty means `cycles`, or `cpu-clock` where there are none.
    pub events: Vec<EventSpec>,
    /// A clock takes the place of cycles that were named and that the machine does not count.
    pub replace_cycles: bool,
    /// Events in addition to the chosen or the default ones.
    pub more_events: Vec<EventSpec>,
    /// Target.
    pub target: Target,
    /// The command to run, if any.
    pub command: Vec<OsString>,
    /// CPUs that the command may run on; none for those of its parent.
    pub pinned: Vec<u32>,
    /// Receives the command's process, before its first event comes.
    pub spawned: Option<Arc<OnceLock<u32>>>,
    /// Tasks that the recording is about, if it has those of others, too.
    pub chosen: ChosenTasks,
    /// CPUs; empty means all online.
    pub cpus: Vec<u32>,
    /// Samples per second; `u64::MAX` for the most the kernel allows.
    pub freq: Option<u64>,
    /// Events per sample, instead of a frequency.
    pub period: Option<u64>,
    /// Call chains.
    pub call_graph: Option<CallGraph>,
    /// Optional contents of samples.
    pub contents: SampleContents,
    /// Sides that are left out of all events: the kernel's, the user's, or those of call chains.
    pub exclude: AttrFlags,
    /// Count only, without samples (`-n`).
    pub no_samples: bool,
    /// Record the times that groups of `:S` were enabled and running (`--running-time`).
    pub running_time: bool,
    /// Wake the recorder for each record (`--no-buffering`).
    pub no_buffering: bool,
    /// A frequency that the kernel does not allow is an error (`--strict-freq`).
    pub strict_frequency: bool,
    /// Records of cgroups (`--all-cgroups`).
    pub cgroup_records: bool,
    /// Records of the state before the recording (`--synth`).
    pub synthesis: Synthesis,
    /// Counts per thread at its end (`-s`).
    pub inherit_stat: bool,
    /// Records of context switches (`--switch-events`).
    pub switch_events: bool,
    /// Mappings without code, too.
    pub data_mappings: bool,
    /// Records of namespaces (`--namespaces`).
    pub namespaces: bool,
    /// Follow children and new threads.
    pub inherit: bool,
    /// Processes of the target that end before they are opened are left out: they were not named.
    pub skip_gone: bool,
    /// Wait so long before counting; `Duration::MAX` until [`Self::control`] says so.
    pub delay: Option<Duration>,
    /// Source of control commands during the recording (`--control`).
    pub control: Option<ControlSource>,
    /// Stop after.
    pub timeout: Option<Duration>,
    /// Stop when so much was written.
    pub max_size: Option<u64>,
    /// Data pages of each ring; none for a size that fits the machine.
    pub pages: Option<usize>,
    /// The clock.
    pub clock: RecordClock,
    /// Output.
    pub output: Output,
    /// zstd level.
    pub compress: Option<i32>,
    /// Form of compressed records.
    pub compressed_form: CompressedForm,
    /// Leave events of this program itself out.
    pub exclude_self: bool,
    /// Several files.
    pub switch: Option<SwitchOn>,
    /// Tracepoints at which a new file begins, as on SIGUSR2 (`--switch-output-event`).
    pub switch_at: Vec<EventSpec>,
    /// Number of files that are kept; the oldest are removed.
    pub most_files: Option<u32>,
    /// The time in the name of the file (`--timestamp-filename`).
    pub stamped_name: bool,
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

impl RecordOptions {
    /// Whether mappings without code are recorded: for data addresses, and for
    /// unwinding, whose tables (`.eh_frame_hdr`) lie in such a mapping.
    pub(crate) fn takes_data_mappings(&self) -> bool {
        let unwound = |e: &EventSpec| e.terms.call_graph.as_deref() == Some("dwarf");
        self.data_mappings
            || self.contents.fields.contains(SampleType::ADDR)
            || matches!(self.call_graph, Some(CallGraph::Dwarf(_)))
            || self.events.iter().any(unwound)
    }

    /// The tasks that are attached to or chosen, whose end is that of the recording.
    pub(crate) fn ends(&self) -> TaskEnds {
        match &self.target {
            Target::Processes(pids) => TaskEnds::of(pids, &[]),
            Target::Threads(tids) => TaskEnds::of(&[], tids),
            Target::System => TaskEnds::of(&self.chosen.processes, &self.chosen.threads),
            Target::Command | Target::Cgroups(_) => TaskEnds::default(),
        }
    }

    /// Whether call chains have a part of user space.
    pub fn records_user_chains(&self) -> bool {
        let user = AttrFlags::EXCLUDE_USER.union(AttrFlags::EXCLUDE_CALLCHAIN_USER);
        let is_left_out = |flags: AttrFlags| flags.intersects(user);
        !is_left_out(self.exclude)
            && (self.events.is_empty()
                || self.events.iter().any(|event| !is_left_out(event.attr.flags)))
    }
}

impl Default for RecordOptions {
    fn default() -> Self {
        RecordOptions {
            events: Vec::new(),
            replace_cycles: false,
            more_events: Vec::new(),
            target: Target::Command,
            command: Vec::new(),
            pinned: Vec::new(),
            spawned: None,
            chosen: ChosenTasks::default(),
            cpus: Vec::new(),
            freq: None,
            period: None,
            call_graph: None,
            contents: SampleContents::default(),
            exclude: AttrFlags::empty(),
            no_samples: false,
            running_time: false,
            no_buffering: false,
            strict_frequency: false,
            cgroup_records: false,
            synthesis: Synthesis::All,
            inherit_stat: false,
            switch_events: false,
            data_mappings: false,
            namespaces: false,
            inherit: true,
            skip_gone: false,
            delay: None,
            control: None,
            timeout: None,
            max_size: None,
            pages: None,
            clock: RecordClock::default(),
            output: Output::File { path: "perf.data".into(), force: false },
            compress: None,
            compressed_form: CompressedForm::default(),
            exclude_self: false,
            switch: None,
            switch_at: Vec::new(),
            most_files: None,
            stamped_name: false,
            overwrite: false,
            build_ids: true,
            map_timeout: Duration::from_millis(500),
            command_line: Vec::new(),
            version: String::new(),
        }
    }
}

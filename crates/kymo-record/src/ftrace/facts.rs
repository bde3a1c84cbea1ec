//! Facts about the machine and the recording in a trace.dat, gathered from tracefs and /proc.

use std::collections::BTreeMap;

use kymo_files::Machine;
use kymo_files::tracedat::write::{BufferSpec, Format, TraceFacts, trace_header};
use kymo_files::tracedat::{FLIGHT_RECORDER, TraceDatOptions};
use kymo_kernel::ftrace::{EventName, TraceDir};
use kymo_kernel::system::{self, KernelName, SystemRoot};

use super::error::TraceError;
use super::trace_header::{GrowingHeader, Layout};
use crate::reported_losses::{ReportedLosses, RingStats, ring_stats};

/// Facts that stay the same from the start to the end of a recording.
#[derive(Debug)]
pub(crate) struct Gathered {
    facts: TraceFacts,
    pub(crate) buffers: Vec<BufferSpec>,
    format: Format,
    /// Losses that earlier files have reported.
    reported: ReportedLosses,
    /// Figures of the rings, if not those of the time of asking.
    stats: Option<RingStats>,
    names: TaskNames,
}

/// The most names of tasks that are written.
const MAX_TASKS: usize = 100_000;

/// Names of tasks seen in the course of a recording. The kernel's list has some thousand places
/// and gives them to other tasks, so that a name may be gone when the recording ends.
#[derive(Debug, Default)]
struct TaskNames(BTreeMap<u32, String>);

impl TaskNames {
    fn add(&mut self, pid: u32, comm: String) {
        if pid > 0 && (self.0.len() < MAX_TASKS || self.0.contains_key(&pid)) {
            self.0.insert(pid, comm);
        }
    }

    /// Adds the tasks of the kernel's list, `saved_cmdlines`.
    fn add_list(&mut self, list: &str) {
        let entries = list.lines().filter_map(|line| line.split_once(' '));
        for (pid, comm) in entries.filter_map(|(pid, comm)| Some((pid.parse().ok()?, comm))) {
            self.add(pid, comm.to_owned());
        }
    }

    /// The names as a file has them.
    fn lines(&self) -> String {
        self.0.iter().map(|(pid, comm)| format!("{pid} {}\n", comm.replace('\n', "?"))).collect()
    }
}

impl Gathered {
    /// Looks at the machine. `events` are those whose formats are needed.
    pub(crate) fn new(
        dir: &TraceDir,
        events: &[EventName],
        cpus: &[u32],
        format: Format,
        symbols: KernelSymbols,
    ) -> Result<Gathered, TraceError> {
        let tree = dir.tracefs();
        let mut formats = Vec::new();
        for e in events {
            formats.push((e.system.clone(), tree.event_format(&e.system, &e.name)?));
        }
        let ftrace = tree.events("ftrace")?;
        let needs_symbols = match symbols {
            KernelSymbols::All => true,
            KernelSymbols::IfPrinted => prints_functions(dir, events, &formats),
        };
        let machine = Machine {
            header_page: tree.header_page()?,
            header_event: tree.header_event()?,
            ftrace_formats: ftrace
                .iter()
                .filter_map(|name| tree.event_format("ftrace", name).ok())
                .collect(),
            formats,
            // Unreadable for who is not root: then functions have no names.
            kallsyms: if needs_symbols {
                SystemRoot::machine().kallsyms_text().unwrap_or_default().into()
            } else {
                String::new().into()
            },
            printk_formats: tree.printk_formats().unwrap_or_default(),
            saved_cmdlines: String::new(),
        };
        let clocks = dir.read("trace_clock")?;
        let options = TraceDatOptions {
            trace_clock: Some(clocks),
            uname: Some(uname()),
            cpu_count: Some(cpus.iter().max().map_or(1, |c| c + 1)),
            version: Some(format!("kymo {}", env!("CARGO_PKG_VERSION"))),
            trace_id: Some(trace_id()),
            ..TraceDatOptions::default()
        };
        let facts = TraceFacts {
            page_size: system::page_size() as u32,
            machine,
            options,
            ..TraceFacts::default()
        };
        let buffer = BufferSpec {
            name: String::new(),
            clock: dir.clocks()?.current,
            page_size: dir.page_size() as u32,
            cpus: cpus.to_vec(),
        };
        let reported = ReportedLosses::default();
        let names = TaskNames::default();
        Ok(Gathered { facts, buffers: vec![buffer], format, reported, stats: None, names })
    }

    /// With earlier figures of the rings, and after files that stated losses.
    pub(crate) fn with_stats(self, stats: RingStats, reported: ReportedLosses) -> Gathered {
        Gathered { stats: Some(stats), reported, ..self }
    }

    /// A file ends: it states what is counted as lost now.
    pub(crate) fn end_file(&mut self, dir: &TraceDir, cpus: &[u32]) {
        self.stats = Some(ring_stats(dir, cpus));
    }

    /// The next one states what is counted from then on.
    pub(crate) fn begin_file(&mut self) {
        self.reported = self.stats.take().as_ref().map(ReportedLosses::all_of).unwrap_or_default();
    }

    /// Marks the ring as one that overwrites its oldest events.
    pub(crate) fn of_flight_recorder(mut self) -> Gathered {
        if let Some(version) = &mut self.facts.options.version {
            version.push_str(FLIGHT_RECORDER);
        }
        self
    }

    /// Remembers the names of tasks that the kernel has noted so far.
    pub(crate) fn see_names(&mut self, dir: &TraceDir) {
        self.names.add_list(&dir.tracefs().saved_cmdlines().unwrap_or_default());
    }

    /// The facts as they are now: tasks have got names, rings have figures.
    pub(crate) fn facts(&mut self, dir: &TraceDir, cpus: &[u32]) -> TraceFacts {
        // What lives now, then what the kernel noted while it was traced.
        for pid in kymo_kernel::target::processes().unwrap_or_default() {
            if let Some(comm) = kymo_kernel::target::comm(pid) {
                self.names.add(pid, comm);
            }
        }
        self.see_names(dir);
        let mut facts = self.facts.clone();
        facts.machine.saved_cmdlines = self.names.lines();
        let stats = self.stats.clone().unwrap_or_else(|| ring_stats(dir, cpus));
        let stats = self.reported.rest_of(stats).into_iter();
        facts.options.cpustat = stats.map(|(cpu, text)| format!("CPU: {cpu}\n{text}")).collect();
        facts
    }

    /// The header of a file now.
    pub(crate) fn header(
        &mut self,
        dir: &TraceDir,
        cpus: &[u32],
    ) -> Result<GrowingHeader, TraceError> {
        let made = trace_header(&self.facts(dir, cpus), self.format, &self.buffers)?;
        let layout = Layout {
            len: made.bytes.len() as u64,
            slots: made.places,
            section_size: made.section_size,
            big_endian: cfg!(target_endian = "big"),
            page_size: self.buffers.first().map_or(4096, |b| b.page_size),
        };
        Ok(GrowingHeader { bytes: made.bytes, layout })
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }
}

/// Whether a trace.dat has the kernel's symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelSymbols {
    /// If an event prints functions, or stacks are recorded. They take 5 to 7 MB.
    #[default]
    IfPrinted,
    /// In any case.
    All,
}

/// Whether the text of an event may have names of functions.
fn prints_functions(dir: &TraceDir, events: &[EventName], formats: &[(String, String)]) -> bool {
    // `%ps` and its like; a bare pointer may be a lock, which has a name, too; probes have a
    // function of their own.
    let by_format = |text: &str| text.contains("%p") || text.contains("__probe_");
    let is_set = |file, unset: &str| dir.read(file).map_or(true, |text| text.trim() != unset);
    // `stacktrace`, alone or with a count.
    let has_stacks = |event: &EventName| {
        let trigger = dir.read(&format!("events/{}/{}/trigger", event.system, event.name));
        trigger.is_ok_and(|text| text.lines().any(|line| line.starts_with("stacktrace")))
    };
    events.iter().any(|event| event.system == "ftrace" || has_stacks(event))
        || formats.iter().any(|(_, text)| by_format(text))
        || is_set("current_tracer", "nop")
        || is_set("options/stacktrace", "0")
        || is_set("options/userstacktrace", "0")
}

fn uname() -> String {
    let name = KernelName::running();
    [name.system, name.node, name.release, name.version, name.machine].join(" ")
}

/// Random number that identifies this recording.
fn trace_id() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map_or(0, |d| d.as_nanos() as u64);
    nanos ^ (u64::from(std::process::id()) << 40)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_gave_up_are_remembered() {
        let mut names = TaskNames::default();
        names.add_list("7 first\n8 sh\n0 none\nx y\n");
        names.add_list("8 made by it\n9 new\nname\n");
        assert_eq!(names.lines(), "7 first\n8 made by it\n9 new\n");
    }
}

//! Named sessions: trace instances that outlive the command that made them.
//!
//! The state is read from the kernel: whether it traces, which events are on, how full the rings
//! are. A session exists if its instance does; a note of its making (`crate::sessions`) without an
//! instance shows that it was lost.

use std::path::{Path, PathBuf};

use kymo_files::tracedat::write::Format;
use kymo_kernel::ftrace::{CpuStats, EventName, FtraceError, Instance, Selection, TraceDir};
use kymo_kernel::target;
use kymo_kernel::tracefs::Tracefs;

use super::capture::sources;
use super::error::TraceError;
use super::facts::{Gathered, KernelSymbols};
use super::growing::Growing;
use super::movers::{Current, ToFile};
use super::pack;
use super::pump::{Pump, PumpError};
use super::setup::{TraceEvent, enable};
use crate::output;
use crate::reported_losses::{ReportedLosses, ring_stats};
use crate::sessions::note::{self, Part};

/// Prefix of the names of session instances.
const PREFIX: &str = "kymo-session-";
/// Room for each CPU.
const BUFFER_KB: u64 = 4096;

/// Behavior of a full ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferMode {
    /// New events replace the oldest: a flight recorder.
    Overwrite,
    /// New events are dropped until there is room.
    Discard,
}

/// Options of a new session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Behavior of a full ring.
    pub mode: BufferMode,
    /// Room for each CPU in KiB.
    pub buffer_kb: Option<u64>,
    /// The clock.
    pub clock: String,
    /// Only these processes and their children; empty for everybody.
    pub pids: Vec<u32>,
}

/// Way in which the rings were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenBy {
    /// The kernel swapped the rings, at one moment for all CPUs.
    Kernel,
    /// The rings were read one after the other while tracing went on.
    Reading,
}

/// Written snapshot of the kernel's events.
#[derive(Clone, Debug)]
pub struct KernelSnapshot {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Bytes of events in it.
    pub stored: u64,
    /// Way in which the rings were read.
    pub by: TakenBy,
    /// The time of the oldest event there was, of the session's clock.
    pub oldest_ns: Option<u64>,
    /// Events that found the rings full since they were taken last.
    pub dropped: u64,
}

/// Current state of a session.
#[derive(Clone, Debug)]
pub struct SessionState {
    /// Its name.
    pub name: String,
    /// The ring takes events.
    pub tracing: bool,
    /// Behavior of a full ring.
    pub mode: BufferMode,
    /// Room for each CPU in KiB; none if they differ.
    pub buffer_kb: Option<u64>,
    /// The clock.
    pub clock: String,
    /// The events that are on, with their filters.
    pub events: Vec<(EventName, Option<String>)>,
    /// Tasks whose events are taken, if it is not system-wide.
    pub pids: Vec<u32>,
    /// The figures of each CPU's ring.
    pub stats: Vec<(u32, CpuStats)>,
    /// Creation time in seconds since 1970, if known.
    pub made: Option<u64>,
}

/// A session that is there.
#[derive(Debug)]
pub struct KernelSession {
    name: String,
    dir: TraceDir,
}

fn check_name(name: &str) -> Result<(), TraceError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(good) {
        return Err(TraceError::Session(format!(
            "{name:?} cannot be a session's name: letters, digits, `-`, `_` and `.`"
        )));
    }
    Ok(())
}

impl KernelSession {
    /// Makes a session; nothing is traced yet.
    pub fn create(
        tracefs: &Tracefs,
        name: &str,
        options: &SessionOptions,
    ) -> Result<KernelSession, TraceError> {
        check_name(name)?;
        let instance =
            Instance::create_named(tracefs, &format!("{PREFIX}{name}")).map_err(|e| {
                match e.errno() {
                    Some(errno) if errno == kymo_kernel::errno::EEXIST => {
                        TraceError::Session(format!("there is a session {name} already"))
                    }
                    _ => e.into(),
                }
            })?;
        instance.set_clock(&options.clock)?;
        instance.set_buffer_size_kb(options.buffer_kb.unwrap_or(BUFFER_KB))?;
        instance.set_option("overwrite", options.mode == BufferMode::Overwrite)?;
        if !options.pids.is_empty() {
            if instance.option("event-fork").is_some() {
                instance.set_option("event-fork", true)?;
            }
            instance.set_pids(&target::threads_of_all(&options.pids)?)?;
        }
        if instance.has("snapshot") {
            // Takes the memory now, not when there is trouble.
            instance.set("snapshot", "1")?;
            instance.set("snapshot", "2")?;
        }
        note::add(name, Part::Kernel)
            .map_err(|error| TraceError::State { path: note::path(name), error })?;
        Ok(KernelSession { name: name.to_owned(), dir: instance.keep() })
    }

    /// A session that was made before, if it is there.
    pub fn find(tracefs: &Tracefs, name: &str) -> Result<Option<KernelSession>, TraceError> {
        check_name(name)?;
        let instance = format!("{PREFIX}{name}");
        let there = TraceDir::instances(tracefs)?.contains(&instance);
        Ok(there.then(|| KernelSession {
            name: name.to_owned(),
            dir: TraceDir::named(tracefs, &instance),
        }))
    }

    /// The kernel's top instance, which traces a boot if the kernel's command line says so.
    pub fn of_boot(tracefs: &Tracefs) -> KernelSession {
        KernelSession { name: "boot".to_owned(), dir: TraceDir::top(tracefs) }
    }

    /// The names of all sessions.
    pub fn names(tracefs: &Tracefs) -> Result<Vec<String>, TraceError> {
        let instances = TraceDir::instances(tracefs)?;
        let name = |i: &String| i.strip_prefix(PREFIX).map(str::to_owned);
        Ok(instances.iter().filter_map(name).collect())
    }

    /// Whether a session may have this name.
    pub fn check_name(name: &str) -> Result<(), TraceError> {
        check_name(name)
    }

    /// Removes a session, its instance and its file. Returns whether there was one.
    pub fn destroy(tracefs: &Tracefs, name: &str) -> Result<bool, TraceError> {
        check_name(name)?;
        let removed = match Instance::remove_named(tracefs, &format!("{PREFIX}{name}")) {
            Ok(()) => true,
            Err(FtraceError::Lacking { .. }) => false,
            Err(e) => return Err(e.into()),
        };
        let noted = note::remove(name, Part::Kernel);
        Ok(removed || noted)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory in tracefs.
    pub fn dir(&self) -> &TraceDir {
        &self.dir
    }

    /// Switches events on.
    pub fn enable(&self, events: &[TraceEvent]) -> Result<Vec<EventName>, TraceError> {
        enable(&self.dir, events)
    }

    /// Switches events off.
    pub fn disable(&self, selection: &Selection) -> Result<Vec<EventName>, TraceError> {
        Ok(self.dir.disable(selection)?)
    }

    /// Whether any event is on.
    pub fn has_events(&self) -> Result<bool, TraceError> {
        Ok(!self.dir.enabled()?.is_empty())
    }

    /// Lets the ring take events, or not.
    pub fn set_tracing(&self, on: bool) -> Result<(), TraceError> {
        Ok(self.dir.set_tracing(on)?)
    }

    /// Returns the current state.
    pub fn state(&self) -> Result<SessionState, TraceError> {
        let mut events = Vec::new();
        for event in self.dir.enabled()? {
            let filter = self.dir.filter(&event)?;
            events.push((event, filter));
        }
        let mut stats = Vec::new();
        for cpu in self.dir.cpus()? {
            stats.push((cpu, self.dir.stats(cpu)?));
        }
        let overwrite = self.dir.option("overwrite").unwrap_or(true);
        Ok(SessionState {
            name: self.name.clone(),
            tracing: self.dir.tracing()?,
            mode: if overwrite { BufferMode::Overwrite } else { BufferMode::Discard },
            buffer_kb: self.dir.buffer_size_kb()?,
            clock: self.dir.clocks()?.current,
            events,
            pids: self.dir.pids()?,
            stats,
            made: note::made(&self.name),
        })
    }

    /// Losses that earlier files have stated.
    fn reported(&self) -> ReportedLosses {
        if self.is_named() { note::reported_losses(&self.name) } else { ReportedLosses::default() }
    }

    fn set_reported(&self, reported: &ReportedLosses) {
        if self.is_named() {
            // Without a directory for notes the next file states them once more.
            let _ = note::set_reported_losses(&self.name, reported);
        }
    }

    /// Whether it is one that was made, not the kernel's own.
    fn is_named(&self) -> bool {
        self.dir.name().is_some()
    }

    /// Writes what is in the rings to a file, while tracing continues. The events leave the rings:
    /// the next file begins where this one ends.
    pub fn take(
        &self,
        path: &Path,
        force: bool,
        format: Format,
        by_kernel: bool,
    ) -> Result<KernelSnapshot, TraceError> {
        let cpus = self.dir.cpus()?;
        let is_flight_recorder = self.dir.option("overwrite").unwrap_or(false);
        let mut stats = ring_stats(&self.dir, &cpus);
        let figures = stats.iter().map(|(_, text)| CpuStats::parse(text));
        let oldest_ns = figures.filter(|s| s.entries > 0).filter_map(|s| s.oldest_ns).min();
        // Rings that the kernel swaps take their counters along, which cannot be read any more:
        // where new events are dropped, they are wanted.
        let by_kernel = by_kernel && is_flight_recorder && self.dir.has("snapshot");
        if by_kernel {
            // First, so that nothing that is done now gets into it: what an earlier
            // snapshot left goes away, then the rings change places.
            self.dir.set("snapshot", "2")?;
            self.dir.set("snapshot", "1")?;
        }
        let raw = if by_kernel { "snapshot_raw" } else { "trace_pipe_raw" };
        let sources = sources(&self.dir, &cpus, raw)?;
        let page = self.dir.page_size();
        let (file, stream) = output::create(path, force)?;
        if stream || !file.metadata().is_ok_and(|m| m.is_file()) {
            return Err(TraceError::NotAFile(path.to_owned()));
        }
        let write = |kept| move |error| TraceError::Write { path: path.to_owned(), error, kept };
        // The rings first: what the header needs takes time, during which a busy ring
        // would lose its oldest events.
        let growing = Growing::without_front(file, cpus.len(), page as u32).map_err(write(0))?;
        let current = Current::new(growing);
        let mut pump = Pump::new(sources, page).map_err(write(0))?;
        let room = self.dir.buffer_size_kb()?.unwrap_or(1 << 20) * 1024;
        pump.once(&mut ToFile { current: current.clone(), alarm: None }, room + page as u64)
            .map_err(|e| {
                // Pages without a header are of no use.
                let _ = current.get().file().set_len(0);
                match e {
                    PumpError::Ring(e) => TraceError::Ring(e),
                    PumpError::Sink(e) => write(current.get().total())(e),
                }
            })?;
        drop(pump);
        if !by_kernel {
            stats = ring_stats(&self.dir, &cpus);
        }
        let reported = self.reported();
        let now_reported =
            if by_kernel { ReportedLosses::default() } else { ReportedLosses::all_of(&stats) };
        let rest = reported.rest_of(stats.clone());
        let dropped = rest.iter().map(|(_, text)| CpuStats::parse(text).dropped).sum();
        let mut growing = super::movers::take(current).map_err(write(0))?;
        let stored = growing.total();
        let (events, symbols) = (self.dir.enabled()?, KernelSymbols::default());
        let mut gathered =
            Gathered::new(&self.dir, &events, &cpus, format, symbols)?.with_stats(stats, reported);
        if is_flight_recorder {
            gathered = gathered.of_flight_recorder();
        }
        let header = gathered.header(&self.dir, &cpus)?;
        growing.replace_header(&header).map_err(write(stored))?;
        growing.begin().map_err(write(stored))?;
        let packed = format.compression != Default::default();
        let bytes = if packed {
            let facts = gathered.facts(&self.dir, &cpus);
            pack::pack(&growing, path, &facts, &gathered)?
        } else {
            growing.finish(true).map_err(write(stored))?.1
        };
        self.set_reported(&now_reported);
        let by = if by_kernel { TakenBy::Kernel } else { TakenBy::Reading };
        Ok(KernelSnapshot { path: path.to_owned(), bytes, stored, by, oldest_ns, dropped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_names() {
        for good in ["a", "web-1.2_x", "1"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", ".x", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}

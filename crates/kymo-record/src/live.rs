//! Perf events while they happen: opened as for a recording, their rings read until the end
//! and handed to who watches. They die with their descriptors: nothing stays enabled when this
//! is dropped.

use kymo_kernel::task_ends::TaskEnds;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use kymo_files::perfdata::write::{PerfDataWriter, synth, update};
use kymo_files::perfdata::{EventDesc, Feature, Features};
use kymo_kernel::process::{GatedChild, Usage};
use kymo_kernel::{proc_maps, process};
use kymo_model::{AttrFlags, Note};

use crate::error::RecordError;
use crate::facts;
use crate::history::RecordHistory;
use crate::opened_events::{OpenedEvents, system};
use crate::options::{RecordOptions, Target};
use crate::output;
use crate::scan::Scan;
use crate::session::{about, end_child};
use crate::synthesize::{ExistingTasks, Synthesizer, ToldMappings};

/// Perf events that are watched.
pub struct PerfCapture {
    opened: OpenedEvents,
    options: RecordOptions,
    /// Processes that are attached to, until they end.
    watched: TaskEnds,
    /// Rings whose owner has ended.
    hung: Vec<bool>,
    began: Instant,
    used_before: Usage,
    /// History for saving, if requested.
    history: Option<RecordHistory>,
}

/// A recording that was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedRecording {
    /// Samples in it.
    pub samples: u64,
    /// Its size.
    pub bytes: u64,
}

/// Reason for the end of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureEnd {
    /// The command or the processes ended.
    Task,
    /// Ctrl-C or its like.
    Signal,
    /// The time is over.
    Time,
}

/// Result of a live capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureSummary {
    /// The command's exit status.
    pub exit: Option<u8>,
    /// From the start to the end.
    pub elapsed: Duration,
    /// Time of the processor that this program used meanwhile.
    pub used: Duration,
}

impl PerfCapture {
    /// Opens the events; nothing is traced before [`start`](PerfCapture::start). Of the options
    /// those on the output mean nothing.
    ///
    /// # Errors
    /// If there are no such events, or the kernel refuses what is asked for.
    pub fn open(options: &RecordOptions) -> Result<PerfCapture, RecordError> {
        let opened = OpenedEvents::open(options)?;
        // Beside a command tasks do not end it.
        let watched = if opened.child.is_some() { TaskEnds::default() } else { options.ends() };
        Ok(PerfCapture {
            hung: vec![false; opened.rings.rings.len()],
            opened,
            options: options.clone(),
            watched,
            began: Instant::now(),
            used_before: Usage::default(),
            history: None,
        })
    }

    /// Keeps what is read from now on, about `most` bytes of it, compressed.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn keep_history(&mut self, most: usize) -> Result<(), RecordError> {
        let first = self.opened.rings.events.first().map(|e| e.attr.clone()).unwrap_or_default();
        let history = RecordHistory::new(&first, most).map_err(system("cannot compress"))?;
        self.history = Some(history);
        Ok(())
    }

    /// Drops what is kept and older than `time`.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn forget_before(&mut self, time: u64) -> Result<(), RecordError> {
        let history = self.history.as_mut();
        history.map_or(Ok(()), |h| h.forget_before(time)).map_err(system("cannot decompress"))
    }

    /// Saves the kept samples of `[from, to)` as a perf.data; a recording that lies there is
    /// kept as `FILE.old`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path, times: (u64, u64)) -> Result<SavedRecording, RecordError> {
        let Some(history) = &self.history else { return Err(RecordError::Nothing) };
        let (file, _) = output::create(path, false)?;
        let write_error = |source| RecordError::Write { path: path.to_owned(), source, kept: 0 };
        let events = self.opened.rings.events.clone();
        let mut scan = Scan::new(&events.first().map(|e| e.attr.clone()).unwrap_or_default());
        let mut sections = facts::at_start(&self.options, &events, &self.opened.specs);
        if let Some(tracing) = &self.opened.tracing {
            sections.insert(Feature::TRACING_DATA, tracing.to_bytes());
        }
        let write = || {
            let mut writer = PerfDataWriter::file(file, events, &sections)?;
            writer.record(&about(&writer, &self.opened.tids, &self.opened.cpus))?;
            writer.record(&update::id_index(&self.opened.rings.index))?;
            history.replay(times, &mut |record| match record {
                [] => writer.record(&synth::finished_round()),
                _ => {
                    scan.piece(record);
                    writer.record(record)
                }
            })?;
            facts::at_end(&scan, self.options.build_ids, &mut sections);
            writer.finish(&sections)
        };
        let bytes = write().map_err(write_error)?;
        Ok(SavedRecording { samples: scan.samples, bytes })
    }

    /// Notes about the captured events.
    pub fn notes(&self) -> &[Note] {
        &self.opened.notes
    }

    /// The events as they were opened, and what a reader must know of the machine.
    pub fn described(&self) -> (Vec<EventDesc>, Features) {
        let described = self.opened.rings.events.iter().map(|e| EventDesc {
            name: e.name.clone(),
            attr: e.attr.clone(),
            ids: e.ids.clone(),
            unit: e.unit.clone(),
            scale: (e.scale != 1.0).then_some(e.scale),
        });
        let mut sections = facts::of_kernel();
        if let Some(tracing) = &self.opened.tracing {
            sections.insert(Feature::TRACING_DATA, tracing.to_bytes());
        }
        (described.collect(), Features::from_sections(sections))
    }

    /// Hands over records of what exists by now: the names of tasks, with `mappings` also what
    /// they and the kernel have mapped.
    ///
    /// # Errors
    /// If the processes cannot be listed.
    pub fn tell_existing(
        &mut self,
        mappings: bool,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), RecordError> {
        let events = &self.opened.rings.events;
        let tracker = events.iter().find(|e| e.attr.flags.contains(AttrFlags::TASK));
        let Some(tracker) = tracker.or(events.first()) else { return Ok(()) };
        let history = &mut self.history;
        let mut synthesizer = Synthesizer {
            synth: synth::Synth::new(&tracker.attr, tracker.ids.first().copied().unwrap_or(0)),
            record: &mut |bytes| {
                sink(bytes);
                history.iter_mut().for_each(|h| h.tell(bytes));
                Ok(())
            },
            build_ids: tracker.attr.flags.contains(AttrFlags::BUILD_ID),
            mappings: match (mappings, self.options.takes_data_mappings()) {
                (false, _) => ToldMappings::None,
                (true, false) => ToldMappings::Code,
                (true, true) => ToldMappings::All,
            },
            timeout: self.options.map_timeout,
        };
        let mut notes = Vec::new();
        let existing = ExistingTasks::of(&self.options.target, &self.opened.tids);
        // The kernel's text is found by reading a long list, which others need not wait for.
        let told = std::thread::scope(|scope| {
            let text = mappings.then(|| scope.spawn(proc_maps::kernel_text));
            if self.options.cgroup_records {
                synthesizer.cgroups()?;
            }
            synthesizer.tasks(&existing, &mut notes)?;
            let gone = || Err(io::ErrorKind::Other.into());
            match text {
                Some(text) => {
                    synthesizer.kernel_at(text.join().unwrap_or_else(|_| gone()), &mut notes)
                }
                None => Ok(()),
            }
        });
        self.opened.notes.append(&mut notes);
        told.map_err(system("cannot list the processes"))
    }

    /// Lets the events and the command go.
    ///
    /// # Errors
    /// If the events cannot be started, or the command cannot be executed.
    pub fn start(&mut self) -> Result<(), RecordError> {
        self.began = Instant::now();
        self.used_before = process::own_usage();
        if self.options.target != Target::Command {
            self.switch(true).map_err(system("cannot start the events"))?;
        }
        if let Some(child) = &mut self.opened.child {
            child.release()?;
        }
        Ok(())
    }

    fn switch(&self, on: bool) -> io::Result<()> {
        self.opened.rings.set.switch(on, |_| true)
    }

    /// Reads all rings once: hands over what each holds, whole records in two pieces.
    pub fn round(&mut self, sink: &mut dyn FnMut(&[u8], &[u8])) {
        let history = &mut self.history;
        for ring in &mut self.opened.rings.rings {
            let read = ring.ring.read(|first, second| {
                sink(first, second);
                history.iter_mut().for_each(|h| h.push(first, second));
                Ok::<(), std::convert::Infallible>(())
            });
            match read {
                Ok(_) => {}
                Err(never) => match never {},
            }
        }
        // Without memory for it there is nothing to save; what is shown stays right.
        if history.as_mut().is_some_and(|h| h.end_round().is_err()) {
            self.history = None;
        }
    }

    /// Waits at most so long until a ring is half full; returns whether it is time to end.
    ///
    /// # Errors
    /// If it cannot be waited for something.
    pub fn wait(&mut self, most: Duration) -> Result<Option<CaptureEnd>, RecordError> {
        self.wait_with(most, &[])
    }

    /// As [`wait`](PerfCapture::wait), also until one of `more` can be read.
    ///
    /// # Errors
    /// If it cannot be waited for something.
    pub fn wait_with(
        &mut self,
        most: Duration,
        more: &[BorrowedFd<'_>],
    ) -> Result<Option<CaptureEnd>, RecordError> {
        let left = self.options.timeout.map(|t| t.saturating_sub(self.began.elapsed()));
        let most = left.map_or(most, |left| left.min(most));
        let most = self.watched.limit(Some(most)).unwrap_or(most);
        let signals = [self.opened.signals.as_fd()];
        let child = self.opened.child.iter().map(|child| child.as_fd());
        let watched = child.chain(self.watched.fds());
        let others: Vec<BorrowedFd<'_>> =
            signals.into_iter().chain(watched).chain(more.iter().copied()).collect();
        let waited = self.opened.rings.wait(&others, most, &mut self.hung);
        waited.map_err(system("cannot wait for events"))?;
        self.over()
    }

    fn over(&mut self) -> Result<Option<CaptureEnd>, RecordError> {
        while let Some(signal) = self.opened.signals.next().map_err(system("signals"))? {
            if signal.is_end() {
                return Ok(Some(CaptureEnd::Signal));
            }
        }
        if self.options.timeout.is_some_and(|t| self.began.elapsed() >= t) {
            return Ok(Some(CaptureEnd::Time));
        }
        if let Some(child) = &mut self.opened.child {
            let exit = child.try_wait().map_err(system("the command's end"))?;
            return Ok(exit.map(|_| CaptureEnd::Task));
        }
        let gone = self.watched.all_ended().map_err(system("the tasks' end"))?;
        Ok(gone.then_some(CaptureEnd::Task))
    }

    /// Whether the signal that ended it has reached a command that another started, too.
    pub fn has_reached(&self, command: &GatedChild) -> bool {
        self.opened.signals.has_reached(command)
    }

    /// Stops the events; what is in the rings can still be read.
    ///
    /// # Errors
    /// If they cannot be stopped.
    pub fn stop(&self) -> Result<(), RecordError> {
        self.switch(false).map_err(system("cannot stop the events"))
    }

    /// Record of the losses that the kernel counted beyond the `reported` ones of the rings,
    /// reported, if any: the last losses are in no ring.
    pub fn unreported_losses(&self, reported: u64) -> Option<Vec<u8>> {
        let rest = self.opened.rings.lost()?.checked_sub(reported).filter(|rest| *rest > 0)?;
        let first = self.opened.rings.events.first()?;
        let id = first.ids.first().copied().unwrap_or(0);
        Some(synth::Synth::new(&first.attr, id).lost(rest).to_vec())
    }

    /// Ends it, and the command that still runs: its time is over.
    pub fn finish(mut self) -> CaptureSummary {
        let (elapsed, used) = (self.began.elapsed(), process::own_usage());
        let signals = &self.opened.signals;
        let exit = self.opened.child.as_mut().and_then(|child| end_child(child, signals));
        let time = |u: &Usage| u.user + u.system;
        CaptureSummary {
            exit: exit.map(|e| if e.by_us { 0 } else { e.exit.code() }),
            elapsed,
            used: time(&used).saturating_sub(time(&self.used_before)),
        }
    }
}

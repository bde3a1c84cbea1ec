//! A recording from start to end: open, tell what exists, start, drain until
//! it is time to stop, and describe what was recorded.

mod drain;
mod foreign_wakeups;
mod switch_trigger;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kymo_files::perfdata::Feature;
use kymo_files::perfdata::write::{
    Compressor, EventMeta, FeatureSections, PerfDataWriter, TracingBlob, features, synth, update,
};
use kymo_kernel::clock::monotonic_ns;
use kymo_kernel::events::EventSpec;
use kymo_kernel::process::{Exit, GatedChild, PreferredThread, Signal, Signals, Usage};
use kymo_kernel::target;
use kymo_kernel::task_ends::TaskEnds;
use kymo_model::{AttrFlags, Note};

use crate::container_files::{ContainerFile, ContainerFiles};
use crate::control::ControlChannel;
use crate::error::RecordError;
use crate::facts;
use crate::open::{OpenedEvent, RingSet};
use crate::opened_events::{OpenedEvents, system};
use crate::options::{Output, RecordOptions, Synthesis, Target};
use crate::output;
use crate::scan::Scan;
use crate::selection::{set_id_children, set_id_note};
use crate::synthesize::{ExistingTasks, Synthesizer, ToldMappings};
use foreign_wakeups::ForeignWakeups;
use switch_trigger::SwitchTrigger;

/// Result of a recording.
#[derive(Debug, Default)]
pub struct RecordSummary {
    /// The (last) file; none for standard output.
    pub path: Option<PathBuf>,
    /// Files completed before it by `switch`.
    pub switched: Vec<PathBuf>,
    /// Size of the (last) file.
    pub bytes: u64,
    /// Samples in it.
    pub samples: u64,
    /// Records lost because a ring was full.
    pub lost: u64,
    /// Samples the hardware lost.
    pub lost_samples: u64,
    /// Times the kernel slowed an event down.
    pub throttled: u64,
    /// Number of wake-ups of the recorder after which data was written.
    pub wakeups: u64,
    /// The command's exit status.
    pub exit: Option<u8>,
    /// Resource usage of the command, once it has ended.
    pub usage: Option<Usage>,
    /// Start time of the command (or the recording), by `CLOCK_MONOTONIC`, in nanoseconds.
    pub began: u64,
    /// From the start of the command (or of the recording) to its end.
    pub elapsed: Duration,
    /// The signal that ended the recording.
    pub signal: Option<Signal>,
    /// Samples in all files.
    pub recorded: u64,
    /// Bytes of the largest ring.
    pub ring: usize,
    /// The command, where it was left running because the file has its full size.
    pub running: Option<Running>,
    /// Programs in the command that the kernel records nothing of, as they run as another user.
    pub hidden_children: Vec<PathBuf>,
    /// Binaries of containers that were mapped, still open.
    pub container_files: Vec<ContainerFile>,
    /// Notes about the recording.
    pub notes: Vec<Note>,
}

/// A command that runs on after its recording ended.
#[derive(Debug)]
pub struct Running {
    pub(crate) child: GatedChild,
    pub(crate) signals: Signals,
}

impl Running {
    /// Waits for its end and gives its exit status; a signal that asks us to
    /// end is passed on to it.
    pub fn wait(mut self) -> io::Result<u8> {
        loop {
            if let Some(exit) = self.child.try_wait()? {
                return Ok(exit.code());
            }
            self.signals.wait(Some(&self.child), None)?;
            while let Some(signal) = self.signals.next()? {
                if signal.is_end() {
                    self.child.kill(signal.number())?;
                }
            }
        }
    }
}

/// Makes a recording by `options`. Returns when the command or the processes
/// end, on Ctrl-C or SIGTERM, or when time or size is used up. When writing
/// fails (a full disk), what was written before stays readable.
pub fn record(options: &RecordOptions) -> Result<RecordSummary, RecordError> {
    Session::new(options)?.run()
}

struct Session<'a> {
    options: &'a RecordOptions,
    specs: Vec<EventSpec>,
    rings: RingSet,
    tracing: Option<TracingBlob>,
    child: Option<GatedChild>,
    /// The processes or threads whose end is that of the recording.
    watched: TaskEnds,
    tids: Vec<u32>,
    cpus: Vec<u32>,
    signals: Signals,
    control: Option<ControlChannel>,
    writer: Option<PerfDataWriter>,
    file: Option<File>,
    path: Option<PathBuf>,
    features: FeatureSections,
    scan: Scan,
    /// Filter of the events in system-wide rings that are written.
    wakeups: Option<ForeignWakeups>,
    containers: ContainerFiles,
    trigger: Option<SwitchTrigger>,
    /// `max_size` was reached.
    full: bool,
    /// Lost records by event, as counted by the kernel, after the end.
    lost_by_event: Option<Vec<u64>>,
    summary: RecordSummary,
}

impl<'a> Session<'a> {
    fn new(options: &'a RecordOptions) -> Result<Session<'a>, RecordError> {
        let to = match &options.output {
            Output::Stdout => Path::new("-"),
            Output::File { path, .. } => path,
        };
        if options.switch.is_some() || options.stamped_name {
            output::check_renamable(to)?;
        }
        output::keep_apart(to).map_err(system("cannot keep standard output"))?;
        let OpenedEvents { specs, rings, tracing, child, tids, cpus, signals, mut notes } =
            OpenedEvents::open(options)?;
        let trigger = SwitchTrigger::open(&options.switch_at, &mut notes)?;
        let control = options.control.as_ref().map(ControlChannel::open).transpose();
        let control = control.map_err(system("cannot open what --control names"))?;
        // Only now, so that a refused recording leaves no file; the command still
        // waits at its gate.
        let (file, path, stream) = match &options.output {
            Output::Stdout => (None, None, true),
            Output::File { path, force } => {
                let (file, stream) = output::create(path, *force)?;
                (Some(file), Some(path.clone()), stream)
            }
        };
        let ring = rings.rings.iter().map(|r| r.ring.size()).max().unwrap_or(0);
        let scan = scan_of(&rings);
        let wakeups = ForeignWakeups::new(&rings, tracing.as_ref(), &tids);
        let mut session = Session {
            options,
            specs,
            rings,
            tracing,
            child,
            watched: TaskEnds::default(),
            tids,
            cpus,
            signals,
            control,
            writer: None,
            file,
            path,
            features: FeatureSections::new(),
            scan,
            wakeups,
            containers: ContainerFiles::new(),
            trigger,
            full: false,
            lost_by_event: None,
            summary: RecordSummary { notes, ring, ..RecordSummary::default() },
        };
        session.watch();
        session.begin(stream)?;
        Ok(session)
    }

    /// Starts (or stops) the events; `tracking` chooses those that only tell of tasks.
    fn switch(&self, on: bool, tracking: bool) -> io::Result<()> {
        self.rings.set.switch(on, |event| event.sideband_only == tracking)
    }

    /// Watches the tasks that are attached to for their end.
    fn watch(&mut self) {
        // Beside a command tasks do not end the recording.
        if self.child.is_none() {
            self.watched = self.options.ends();
        }
    }

    /// Begins a file (or the pipe) with what exists by now.
    fn begin(&mut self, stream: bool) -> Result<(), RecordError> {
        let events = self.rings.events.clone();
        self.features = facts::at_start(self.options, &events, &self.specs);
        let level = self.options.compress;
        if let Some(level) = level {
            // The ratio is known at the end; readers need only the size.
            self.compressed_feature(level, 1);
        }
        if let Some(tracing) = &self.tracing {
            self.features.insert(Feature::TRACING_DATA, tracing.to_bytes());
        }
        let first = events.first().cloned().unwrap_or_default();
        let mut writer = match (&self.file, stream) {
            (Some(file), false) => {
                let file = file.try_clone().map_err(system("cannot write"))?;
                PerfDataWriter::file(file, events, &self.features)
            }
            (file, _) => {
                let out: Box<dyn io::Write + Send> = match file {
                    Some(f) => Box::new(f.try_clone().map_err(system("cannot write"))?),
                    None => Box::new(io::stdout()),
                };
                let tracing = self.features.get(&Feature::TRACING_DATA).map(Vec::as_slice);
                PerfDataWriter::pipe(out, events, &self.features, tracing)
            }
        }
        .map_err(|e| self.write_error(e, 0))?;
        let tracker = self.rings.events.iter().find(|e| e.attr.flags.contains(AttrFlags::TASK));
        let tracker = tracker.unwrap_or(&first);
        // Without samples of the kernel its symbols are not needed.
        let excludes = |e: &EventMeta| e.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL);
        let user_only = writer.events().iter().all(excludes);
        let mut about = about(&writer, &self.tids, &self.cpus);
        about.extend(update::id_index(&self.rings.index));
        let containers = &mut self.containers;
        let mut synthesizer = Synthesizer {
            synth: synth::Synth::new(&tracker.attr, tracker.ids.first().copied().unwrap_or(0)),
            record: &mut |bytes| {
                containers.records(bytes);
                writer.record(bytes)
            },
            build_ids: tracker.attr.flags.contains(AttrFlags::BUILD_ID),
            mappings: match (self.options.synthesis, self.options.takes_data_mappings()) {
                (Synthesis::Tasks | Synthesis::None, _) => ToldMappings::None,
                (Synthesis::All, true) => ToldMappings::All,
                (Synthesis::All, false) => ToldMappings::Code,
            },
            timeout: self.options.map_timeout,
        };
        let existing = match self.options.synthesis {
            Synthesis::None => ExistingTasks::None,
            _ => ExistingTasks::of(&self.options.target, &self.tids),
        };
        let cgroups = self.options.cgroup_records && self.options.synthesis == Synthesis::All;
        let mut notes = std::mem::take(&mut self.summary.notes);
        let mut unasked = Vec::new();
        let told = (synthesizer.record)(&about)
            .and_then(|()| synthesizer.kernel(if user_only { &mut unasked } else { &mut notes }))
            .and_then(|()| if cgroups { synthesizer.cgroups() } else { Ok(()) })
            .and_then(|()| synthesizer.tasks(&existing, &mut notes))
            .and_then(|()| (synthesizer.record)(&synth::finished_init()))
            .and_then(|()| writer.mark());
        self.summary.notes = notes;
        told.map_err(|e| self.write_error(e, writer.data_size()))?;
        if let Some(level) = level {
            writer
                .compress(level, self.options.compressed_form)
                .map_err(system("cannot compress"))?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    fn compressed_feature(&mut self, level: i32, ratio: u32) {
        let bytes =
            features::compressed(level.unsigned_abs(), ratio, Compressor::EXPANDS_TO as u32);
        self.features.insert(Feature::COMPRESSED, bytes);
    }

    fn write_error(&self, source: io::Error, kept: u64) -> RecordError {
        let path = self.path.clone().unwrap_or_else(|| "standard output".into());
        RecordError::Write { path, source, kept }
    }

    fn run(mut self) -> Result<RecordSummary, RecordError> {
        let start = system("cannot start the events");
        let on_exec = self.options.target == Target::Command && self.options.delay.is_none();
        if !on_exec {
            let tracking_on_exec = self.options.target == Target::Command;
            if !tracking_on_exec {
                self.switch(true, true).map_err(&start)?;
            }
            if self.options.delay.is_none() {
                self.switch(true, false).map_err(&start)?;
            }
        }
        // Not before: their rings are not read while the file is begun.
        self.rings.set.switch(true, |event| event.spec.terms.system_wide).map_err(&start)?;
        self.trigger.as_ref().map_or(Ok(()), SwitchTrigger::start).map_err(&start)?;
        let began = Instant::now();
        self.summary.began = monotonic_ns();
        self.options.chosen.at_start.read(self.summary.began);
        if let Some(child) = &mut self.child {
            child.release()?;
        }
        // The most frequent wakers keep the CPUs busy, too: read before their rings are full.
        let preferred = self.wakeups.as_ref().and_then(|_| PreferredThread::new());
        let ended = self.drain_until_end();
        drop(preferred);
        self.summary.elapsed = began.elapsed();
        // What was switched on is switched off, also after an error.
        let off = self.switch(false, false);
        let off = off.and(self.switch(false, true));
        let exit = match &mut self.child {
            Some(child) if ended.is_ok() && !self.full => end_child(child, &self.signals),
            _ => None,
        };
        ended.and_then(|()| self.drain().map(|_| ())).map_err(|e| self.failed(e))?;
        if self.options.overwrite {
            self.dump_overwritten().map_err(|e| self.failed(e))?;
        }
        off.map_err(system("cannot stop the events"))?;
        self.lost_by_event = self.rings.lost_by_event();
        self.summary.exit = exit.map(|e| match (e.by_us, self.summary.signal) {
            // The signal that ended us ended it; the end of its time is no failure.
            (true, Some(signal)) => 128 + signal.number() as u8,
            (true, None) => 0,
            (false, _) => e.exit.code(),
        });
        self.summary.usage = exit.map(|e| e.exit.usage);
        self.finish()?;
        self.summary.container_files = std::mem::take(&mut self.containers.files);
        let stamped = self.options.switch.is_some() || self.options.stamped_name;
        if let Some(path) = self.path.as_ref().filter(|_| stamped) {
            self.summary.path = Some(output::set_aside(path)?);
            self.remove_oldest(1)?;
        }
        if let (true, Some(child)) = (self.full, self.child) {
            self.summary.running = Some(Running { child, signals: self.signals });
        }
        Ok(self.summary)
    }

    /// Removes the oldest of the completed files where there are more than were asked for, with
    /// `more` beside those completed before.
    fn remove_oldest(&mut self, more: usize) -> Result<(), RecordError> {
        let Some(most) = self.options.most_files else { return Ok(()) };
        let switched = &mut self.summary.switched;
        let surplus = (switched.len() + more).saturating_sub(most as usize).min(switched.len());
        for path in switched.drain(..surplus) {
            std::fs::remove_file(&path).map_err(|source| RecordError::Create { path, source })?;
        }
        Ok(())
    }

    /// The error of a failed write, after making what is there readable.
    fn failed(&mut self, source: io::Error) -> RecordError {
        let kept = self.writer.take().map_or(0, |w| w.abandon(&self.features).unwrap_or(0));
        self.write_error(source, kept)
    }

    /// Ends the file with its sections.
    fn finish(&mut self) -> Result<(), RecordError> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let kept = writer.data_size();
        let mut features = std::mem::take(&mut self.features);
        let done = self.finish_with(&mut writer, &mut features);
        let size = done.and_then(|()| writer.finish(&features));
        let size = size.map_err(|e| self.write_error(e, kept))?;
        let s = &mut self.summary;
        s.path = self.path.clone();
        s.bytes = size;
        s.samples = self.scan.samples;
        s.recorded += self.scan.samples;
        s.lost = s.lost.saturating_add(self.scan.lost);
        s.lost_samples = s.lost_samples.saturating_add(self.scan.lost_samples);
        s.throttled += self.scan.throttled;
        Ok(())
    }

    fn finish_with(
        &mut self,
        writer: &mut PerfDataWriter,
        f: &mut FeatureSections,
    ) -> io::Result<()> {
        writer.flush()?;
        if let (Some(level), Some(ratio)) = (self.options.compress, writer.ratio()) {
            self.compressed_feature(level, ratio.round() as u32);
            f.append(&mut self.features);
        } else if let Some(file) = self.file.as_ref().filter(|_| !writer.is_pipe()) {
            writer.seal_mark()?;
            self.scan.file(file, writer.data_offset(), writer.data_size())?;
        }
        // As perf does: a total of each event, which knows what was lost behind the last record.
        // Of files before this one only the sum of all events is known.
        let mut totals = self.lost_by_event.take().unwrap_or_default();
        let all = totals.iter().fold(0u64, |sum, lost| sum.saturating_add(*lost));
        if self.summary.lost > 0 {
            totals = vec![all.saturating_sub(self.summary.lost)];
        }
        for (event, lost) in self.rings.events.iter().zip(&totals).filter(|(_, lost)| **lost > 0) {
            let id = event.ids.first().copied().unwrap_or(0);
            writer.record(synth::Synth::new(&event.attr, id).lost_samples(*lost))?;
        }
        writer.flush()?;
        if self.options.build_ids {
            let maps = self.containers.read_jit_maps().into_iter();
            self.scan.binaries.extend(maps.map(|(name, id)| (name, Some(id))));
        }
        if self.options.target == Target::Command {
            let children = set_id_children(&self.options.command, &self.scan);
            self.summary.notes.extend(children.iter().map(|path| set_id_note(path)));
            self.summary.hidden_children.extend(children);
        }
        let told = self.summary.lost.saturating_add(self.scan.lost);
        self.scan.lost = self.scan.lost.saturating_add(all.saturating_sub(told));
        if !writer.is_pipe() {
            facts::at_end(&self.scan, self.options.build_ids, f);
        } else if self.options.build_ids {
            for entry in facts::build_id_list(&self.scan) {
                writer.record(&features::build_id_record(&entry))?;
            }
        }
        Ok(())
    }
}

/// A scan for samples of these events.
fn scan_of(rings: &RingSet) -> Scan {
    let first: Option<&OpenedEvent> = rings.set.events.first();
    Scan::new(&first.map(|e| e.planned.attr.clone()).unwrap_or_default())
}

/// Records that describe the events, and the threads and CPUs for which they were opened.
pub(crate) fn about(writer: &PerfDataWriter, tids: &[u32], cpus: &[u32]) -> Vec<u8> {
    let pipe = writer.is_pipe();
    let mut records: Vec<u8> =
        writer.events().iter().flat_map(|e| update::event_updates(e, pipe)).collect();
    let name = |&tid: &u32| (tid as i32, target::comm(tid).unwrap_or_default());
    let mut threads: Vec<_> = tids.iter().map(name).collect();
    if threads.is_empty() {
        threads.push((-1, String::new()));
    }
    records.extend(update::thread_map(&threads));
    records.extend(update::cpu_map(cpus));
    records
}

/// Ends a command that still runs at the requested end of the recording.
pub(crate) fn end_child(child: &mut GatedChild, signals: &Signals) -> Option<Ended> {
    if let Ok(Some(exit)) = child.try_wait() {
        return Some(Ended { exit, by_us: false });
    }
    let exit = signals.end_command(child).ok()?;
    Some(Ended { exit, by_us: exit.code() == 128 + Signal::Term.number() as u8 })
}

/// Outcome of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// By the signal that we sent it.
    pub(crate) by_us: bool,
}

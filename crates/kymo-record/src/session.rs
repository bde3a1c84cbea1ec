//! A recording from start to end: open, tell what exists, start, drain until
//! it is time to stop, and describe what was recorded.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kymo_files::perfdata::Feature;
use kymo_files::perfdata::write::{
    Compressor, FeatureSections, TracingBlob, Writer, features, synth, update,
};
use kymo_kernel::events::EventSpec;
use kymo_kernel::process::{Exit, GatedChild, Signal, Signals, Usage};
use kymo_kernel::ring::Mode;
use kymo_kernel::target;
use kymo_model::{AttrFlags, Note, NoteKind, RecordKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::asked::{blame_clock, chosen, clamp_note, places, tids, user_only, user_only_helps};
use crate::attrs::{self, Kernel, Planned};
use crate::error::RecordError;
use crate::existing::{Existing, Teller};
use crate::facts;
use crate::open::Opened;
use crate::options::{Options, Output, SwitchOn, Target};
use crate::output;
use crate::scan::Scan;

/// A killed recorder has lost no more than what was written in this time.
const MARK_EVERY: Duration = Duration::from_millis(250);

/// What a recording came to.
#[derive(Debug, Default)]
pub struct Summary {
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
    /// How often the recorder woke up.
    pub wakeups: u64,
    /// The command's exit status.
    pub exit: Option<u8>,
    /// What the command used, once it has ended.
    pub usage: Option<Usage>,
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
    /// What else to know.
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
            self.signals.wait(None)?;
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
pub fn record(options: &Options) -> Result<Summary, RecordError> {
    Session::new(options)?.run()
}

struct Session<'a> {
    options: &'a Options,
    specs: Vec<EventSpec>,
    plan: Vec<Planned>,
    opened: Opened,
    tracing: Option<TracingBlob>,
    child: Option<GatedChild>,
    watched: Vec<OwnedFd>,
    tids: Vec<u32>,
    cpus: Vec<u32>,
    signals: Signals,
    writer: Option<Writer>,
    file: Option<File>,
    path: Option<PathBuf>,
    features: FeatureSections,
    scan: Scan,
    /// `max_size` was reached.
    full: bool,
    /// What the kernel counted as lost, once it is over.
    all_lost: Option<u64>,
    summary: Summary,
}

fn system(what: &'static str) -> impl Fn(io::Error) -> RecordError {
    move |source| RecordError::System { what, source }
}

impl<'a> Session<'a> {
    fn new(options: &'a Options) -> Result<Session<'a>, RecordError> {
        let mut notes = Vec::new();
        if options.command.is_empty() && options.target == Target::Command {
            return Err(RecordError::Nothing);
        }
        let mut specs = chosen(options, &mut notes)?;
        // SIGUSR2 without a meaning here, and a file that may not grow, are no reason to
        // die in the middle of a file: a write then fails, and says so.
        let signals = [
            Signal::Int,
            Signal::Term,
            Signal::Hup,
            Signal::Quit,
            Signal::Child,
            Signal::Usr2,
            Signal::FileSize,
        ];
        let signals = Signals::listen(&signals).map_err(system("cannot listen for signals"))?;
        let child = match options.command.is_empty() {
            true => None,
            false => Some(GatedChild::spawn(&options.command)?),
        };
        let tids = tids(options, child.as_ref())?;
        let places = places(options, &tids, specs.len())?;
        let mut plan = attrs::plan(options, &specs, Kernel::probe())?;
        clamp_note(options, &plan, &mut notes);
        let opened = match Opened::open(&mut plan, &places, options.pages, &mut notes) {
            Err(RecordError::Open { source, .. }) if user_only_helps(&source, &specs) => {
                specs.iter_mut().for_each(EventSpec::restrict_to_user);
                notes.push(user_only(&source));
                plan = attrs::plan(options, &specs, Kernel::probe())?;
                plan.iter_mut().for_each(|p| p.attr.flags |= AttrFlags::EXCLUDE_KERNEL);
                Opened::open(&mut plan, &places, options.pages, &mut notes)?
            }
            other => other.map_err(|e| blame_clock(e, options, &plan))?,
        };
        let tracing = facts::tracing(&specs)?;
        // Only now, so that a refused recording leaves no file; the command still
        // waits at its gate.
        let (file, path, stream) = match &options.output {
            Output::Stdout => (None, None, true),
            Output::File { path, force } => {
                let (file, stream) = output::create(path, *force)?;
                (Some(file), Some(path.clone()), stream)
            }
        };
        let ring = opened.buffers.iter().map(|b| b.ring.size()).max().unwrap_or(0);
        let scan = Scan::new(&plan.first().map(|p| p.attr.clone()).unwrap_or_default());
        let mut session = Session {
            options,
            specs,
            plan,
            opened,
            tracing,
            child,
            watched: Vec::new(),
            tids,
            cpus: places.cpus,
            signals,
            writer: None,
            file,
            path,
            features: FeatureSections::new(),
            scan,
            full: false,
            all_lost: None,
            summary: Summary { notes, ring, ..Summary::default() },
        };
        session.watch();
        session.begin(stream)?;
        Ok(session)
    }

    /// Watches the processes that are attached to for their end.
    fn watch(&mut self) {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        if let Target::Processes(pids) = &self.options.target {
            let open = |&p: &u32| pidfd_open(Pid::from_raw(p as i32)?, PidfdFlags::empty()).ok();
            self.watched = pids.iter().filter_map(open).collect();
        }
    }

    /// Begins a file (or the pipe) with what exists by now.
    fn begin(&mut self, stream: bool) -> Result<(), RecordError> {
        let events = self.opened.events.clone();
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
                Writer::file(file, events, &self.features)
            }
            (file, _) => {
                let out: Box<dyn io::Write + Send> = match file {
                    Some(f) => Box::new(f.try_clone().map_err(system("cannot write"))?),
                    None => Box::new(io::stdout()),
                };
                Writer::pipe(out, events, &self.features, self.tracing.as_ref())
            }
        }
        .map_err(|e| self.write_error(e, 0))?;
        let tracker = self.opened.events.iter().find(|e| e.attr.flags.contains(AttrFlags::TASK));
        let tracker = tracker.unwrap_or(&first);
        let mut teller = Teller {
            synth: synth::Synth::new(&tracker.attr, tracker.ids.first().copied().unwrap_or(0)),
            writer: &mut writer,
            build_ids: tracker.attr.flags.contains(AttrFlags::BUILD_ID),
            data: self.options.data_mappings(),
            timeout: self.options.map_timeout,
        };
        let existing = match &self.options.target {
            Target::Command => Existing::None,
            Target::System | Target::Cgroups(_) => Existing::All,
            Target::Processes(_) | Target::Threads(_) => Existing::Tids(self.tids.clone()),
        };
        let mut notes = std::mem::take(&mut self.summary.notes);
        // Without samples of the kernel nobody misses its symbols.
        let user_only =
            teller.writer.events().iter().all(|e| e.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL));
        let mut unasked = Vec::new();
        let mut about = about(teller.writer, &self.tids, &self.cpus);
        about.extend(update::id_index(&self.opened.index));
        let told = teller
            .writer
            .record(&about)
            .and_then(|()| teller.kernel(if user_only { &mut unasked } else { &mut notes }))
            .and_then(|()| teller.tasks(&existing, &mut notes))
            .and_then(|()| teller.writer.record(&synth::finished_init()))
            .and_then(|()| teller.writer.mark());
        self.summary.notes = notes;
        told.map_err(|e| self.write_error(e, writer.data_size()))?;
        if let Some(level) = level {
            writer.compress(level).map_err(system("cannot compress"))?;
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

    fn run(mut self) -> Result<Summary, RecordError> {
        let start = system("cannot start the events");
        let on_exec = self.options.target == Target::Command && self.options.delay.is_none();
        if !on_exec {
            let tracking_on_exec = self.options.target == Target::Command;
            if !tracking_on_exec {
                self.opened.switch(&self.plan, true, true).map_err(&start)?;
            }
            if self.options.delay.is_none() {
                self.opened.switch(&self.plan, true, false).map_err(&start)?;
            }
        }
        let began = Instant::now();
        if let Some(child) = &mut self.child {
            child.release()?;
        }
        let ended = self.drain_until_end();
        self.summary.elapsed = began.elapsed();
        // What was switched on is switched off, also after an error.
        let off = self.opened.switch(&self.plan, false, false);
        let off = off.and(self.opened.switch(&self.plan, false, true));
        let exit = match &mut self.child {
            Some(child) if ended.is_ok() && !self.full => end_child(child),
            _ => None,
        };
        ended.and_then(|()| self.drain().map(|_| ())).map_err(|e| self.failed(e))?;
        if self.options.overwrite {
            self.dump_overwritten().map_err(|e| self.failed(e))?;
        }
        off.map_err(system("cannot stop the events"))?;
        self.all_lost = self.opened.lost(&self.plan);
        self.summary.exit = exit.map(|e| match (e.by_us, self.summary.signal) {
            // The signal that ended us ended it; the end of its time is no failure.
            (true, Some(signal)) => 128 + signal.number() as u8,
            (true, None) => 0,
            (false, _) => e.exit.code(),
        });
        self.summary.usage = exit.map(|e| e.exit.usage);
        self.finish()?;
        if let (Some(SwitchOn::Size(_) | SwitchOn::Time(_) | SwitchOn::Signal), Some(path)) =
            (self.options.switch, &self.path)
        {
            self.summary.path = Some(output::set_aside(path)?);
        }
        if let (true, Some(child)) = (self.full, self.child) {
            self.summary.running = Some(Running { child, signals: self.signals });
        }
        Ok(self.summary)
    }

    /// The error of a failed write, after making what is there readable.
    fn failed(&mut self, source: io::Error) -> RecordError {
        let kept = self.writer.take().map_or(0, |w| w.abandon(&self.features).unwrap_or(0));
        self.write_error(source, kept)
    }

    fn drain_until_end(&mut self) -> io::Result<()> {
        let began = Instant::now();
        let mut delay = self.options.delay;
        let mut file_began = began;
        let mut hung = vec![false; self.opened.buffers.len()];
        let (mut unmarked, mut marked) = (false, began);
        loop {
            let mut wait = self.wait_for(began, file_began, delay, hung.iter().any(|h| *h));
            if unmarked {
                let rest = MARK_EVERY.saturating_sub(marked.elapsed());
                wait = Some(wait.map_or(rest, |w| w.min(rest)));
            }
            self.wait(wait, &mut hung)?;
            unmarked |= self.drain()? > 0;
            if unmarked && marked.elapsed() >= MARK_EVERY {
                if let Some(w) = &mut self.writer {
                    w.mark()?;
                }
                (unmarked, marked) = (false, Instant::now());
            }
            let mut switch = false;
            while let Some(signal) = self.signals.next()? {
                if signal.is_end() {
                    self.summary.signal = Some(signal);
                    return Ok(());
                }
                switch |= signal == Signal::Usr2;
            }
            if delay.is_some_and(|d| began.elapsed() >= d) {
                delay = None;
                self.opened.switch(&self.plan, true, false)?;
            }
            let size = self.writer.as_ref().map_or(0, Writer::data_size);
            match self.options.switch {
                Some(SwitchOn::Size(s)) => switch |= size >= s,
                Some(SwitchOn::Time(t)) => switch |= file_began.elapsed() >= t,
                _ => {}
            }
            if self.ended(began, size)? {
                return Ok(());
            }
            if switch && (self.options.switch.is_some() || self.options.overwrite) {
                self.switch_file().map_err(io::Error::other)?;
                file_began = Instant::now();
            }
        }
    }

    /// How long to sleep at most.
    fn wait_for(
        &self,
        began: Instant,
        file_began: Instant,
        delay: Option<Duration>,
        hung: bool,
    ) -> Option<Duration> {
        let left = |since: Instant, all: Duration| all.saturating_sub(since.elapsed());
        let mut wait = delay.map(|d| left(began, d));
        let mut least = |d: Duration| wait = Some(wait.map_or(d, |w: Duration| w.min(d)));
        if let Some(t) = self.options.timeout {
            least(left(began, t + self.options.delay.unwrap_or_default()));
        }
        if let Some(SwitchOn::Time(t)) = self.options.switch {
            least(left(file_began, t));
        }
        // Threads have no descriptor to wait on, nor has a ring whose owner ended.
        if hung || matches!(self.options.target, Target::Threads(_)) {
            least(Duration::from_millis(100));
        }
        wait
    }

    fn wait(&mut self, wait: Option<Duration>, hung: &mut [bool]) -> io::Result<()> {
        let wait = wait.map(|w| Timespec {
            tv_sec: w.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: w.subsec_nanos().into(),
        });
        let mut fds = vec![PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
        fds.extend(self.watched.iter().map(|f| PollFd::new(f, PollFlags::IN)));
        let first = fds.len();
        let mut of_ring = Vec::new();
        for (i, b) in self.opened.buffers.iter().enumerate() {
            // An overwritten ring has nothing to be woken for.
            if b.ring.mode() == Mode::Keep
                && !hung[i]
                && let Some(fd) = self.opened.fd(b)
            {
                of_ring.push(i);
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        self.summary.wakeups += 1;
        for (fd, i) in fds[first..].iter().zip(of_ring) {
            hung[i] |= fd.revents().intersects(PollFlags::HUP | PollFlags::ERR);
        }
        let ended: Vec<bool> =
            fds[1..first].iter().map(|f| f.revents().contains(PollFlags::IN)).collect();
        let mut ended = ended.into_iter();
        self.watched.retain(|_| !ended.next().unwrap_or(false));
        Ok(())
    }

    fn ended(&mut self, began: Instant, size: u64) -> io::Result<bool> {
        let o = self.options;
        let full_time = |t: Duration| began.elapsed() >= t + o.delay.unwrap_or_default();
        if o.timeout.is_some_and(full_time) {
            return Ok(true);
        }
        if let Some(max) = o.max_size.filter(|m| size >= *m) {
            self.summary.notes.push(Note::choice(
                NoteKind::MaxSize,
                format!("stopped: {max} bytes were reached"),
                None,
            ));
            self.full = true;
            return Ok(true);
        }
        if let Some(child) = &mut self.child {
            return Ok(child.try_wait()?.is_some());
        }
        Ok(match &o.target {
            Target::Processes(_) => self.watched.is_empty(),
            Target::Threads(tids) => tids.iter().all(|&t| target::check_thread(t).is_err()),
            _ => false,
        })
    }

    /// One pass over all rings; gives the bytes written.
    fn drain(&mut self) -> io::Result<usize> {
        let Some(writer) = &mut self.writer else { return Ok(0) };
        let look = writer.is_pipe() || self.options.compress.is_some();
        let mut total = 0;
        for b in self.opened.buffers.iter_mut().filter(|b| b.ring.mode() == Mode::Keep) {
            total += b.ring.read(|first, second| {
                if look {
                    self.scan.piece(first);
                    self.scan.piece(second);
                }
                writer.spans(first, second)
            })?;
        }
        if total > 0 {
            writer.record(&synth::finished_round())?;
            if writer.is_pipe() {
                writer.flush()?;
            }
        }
        Ok(total)
    }

    /// Takes what the overwriting rings hold.
    fn dump_overwritten(&mut self) -> io::Result<()> {
        self.opened.pause(true)?;
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let look = writer.is_pipe() || self.options.compress.is_some();
        for b in self.opened.buffers.iter_mut().filter(|b| b.ring.mode() == Mode::Overwrite) {
            b.ring.read(|first, second| {
                if look {
                    self.scan.piece(first);
                    self.scan.piece(second);
                }
                writer.spans(first, second)
            })?;
        }
        writer.record(&synth::finished_round())?;
        self.opened.pause(false)
    }

    /// Completes the file and begins the next.
    fn switch_file(&mut self) -> Result<(), RecordError> {
        if self.options.overwrite {
            self.dump_overwritten().map_err(|e| self.failed(e))?;
        }
        let Some(path) = self.path.clone() else { return Ok(()) };
        self.finish()?;
        self.summary.switched.push(output::set_aside(&path)?);
        let (file, stream) = output::create(&path, true)?;
        self.file = Some(file);
        self.scan = Scan::new(&self.plan.first().map(|p| p.attr.clone()).unwrap_or_default());
        self.begin(stream)
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
        s.lost += self.scan.lost;
        s.lost_samples += self.scan.lost_samples;
        s.throttled += self.scan.throttled;
        Ok(())
    }

    fn finish_with(&mut self, writer: &mut Writer, f: &mut FeatureSections) -> io::Result<()> {
        writer.flush()?;
        if let (Some(level), Some(ratio)) = (self.options.compress, writer.ratio()) {
            self.compressed_feature(level, ratio.round() as u32);
            f.append(&mut self.features);
        } else if let Some(file) = self.file.as_ref().filter(|_| !writer.is_pipe()) {
            self.scan.file(file, writer.data_offset(), writer.data_size())?;
        }
        let told = self.summary.lost + self.scan.lost;
        if let Some(rest) = self.all_lost.and_then(|all| all.checked_sub(told)).filter(|r| *r > 0) {
            let first = self.opened.events.first().cloned().unwrap_or_default();
            let id = first.ids.first().copied().unwrap_or(0);
            writer.record(synth::Synth::new(&first.attr, id).lost(rest))?;
            writer.flush()?;
            self.scan.lost += rest;
        }
        if !writer.is_pipe() {
            facts::at_end(&self.scan, self.options.build_ids, f);
        } else if self.options.build_ids {
            for entry in facts::build_id_list(&self.scan) {
                let mut record = features::build_id(&entry);
                record[..4].copy_from_slice(&RecordKind::HEADER_BUILD_ID.0.to_ne_bytes());
                writer.record(&record)?;
            }
        }
        Ok(())
    }
}

/// What the events are, and on whom and where they were opened.
fn about(writer: &Writer, tids: &[u32], cpus: &[u32]) -> Vec<u8> {
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

/// Ends a command that still runs when the recording was told to end.
pub(crate) fn end_child(child: &mut GatedChild) -> Option<Ended> {
    if let Ok(Some(exit)) = child.try_wait() {
        return Some(Ended { exit, by_us: false });
    }
    let _ = child.kill(libc_sigterm());
    let exit = child.wait().ok()?;
    Some(Ended { exit, by_us: exit.code() == 128 + libc_sigterm() as u8 })
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// By the signal that we sent it.
    pub(crate) by_us: bool,
}

fn libc_sigterm() -> i32 {
    Signal::Term.number()
}

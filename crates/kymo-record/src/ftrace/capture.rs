//! A recording from start to end: an instance of its own, events switched on in
//! it, pages moved until it is time to stop, and what was lost.

use kymo_kernel::task_ends::TaskEnds;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kymo_files::tracedat::write::Format;
use kymo_kernel::descriptors;
use kymo_kernel::ftrace::{EventName, Instance, TraceDir};
use kymo_kernel::process::{GatedChild, Signal, Signals};
use kymo_kernel::system;
use kymo_kernel::target;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::{Note, NoteKind};

use super::error::TraceError;
use super::facts::{Gathered, KernelSymbols};
use super::growing::Growing;
use super::movers::{self, Current, Movers, SizeAlarm, ToFile};
use super::pack;
use super::pump::{self, CpuRing, PumpError};
use super::setup::{TraceSetup, enable};
use super::stream::{Remote, Secret, SendError};
use crate::options::SwitchOn;
use crate::output;
use crate::session::{Running, end_child};
use crate::ust::UstError;

/// Room in the ring for each CPU: a third of a second of what one CPU can say.
const BUFFER_KB: u64 = 8 << 10;
/// All rings together take at most this share of the memory.
const MEMORY_SHARE: u64 = 32;
/// Fill level of a ring in percent at which its mover is woken.
const WAKE_PERCENT: u8 = 25;
/// The kernel's own default.
const LEAST_KB: u64 = 1408;

/// Output of a trace.
#[derive(Clone, Debug)]
pub enum TraceOutput {
    /// Into a file.
    File {
        /// Its name.
        path: PathBuf,
        /// Overwrite a file that is not a recording.
        force: bool,
    },
    /// To a listener.
    Remote {
        /// `HOST:PORT`.
        address: String,
        /// Secret that both sides know.
        secret: Option<Secret>,
        /// The directory's name over there.
        name: String,
    },
}

/// A whole recording.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// Events, and whose.
    pub setup: TraceSetup,
    /// Output of the trace.
    pub output: TraceOutput,
    /// Format of the file.
    pub format: Format,
    /// Condition for including the kernel's symbols.
    pub symbols: KernelSymbols,
    /// Go on in another file.
    pub switch: Option<SwitchOn>,
    /// Keep this many of them.
    pub keep_files: Option<usize>,
    /// Stop at this many bytes of events.
    pub max_size: Option<u64>,
}

/// Result of a recording.
#[derive(Debug, Default)]
pub struct TraceSummary {
    /// The (last) file, or the directory at the listener.
    pub path: PathBuf,
    /// Files completed before it.
    pub switched: Vec<PathBuf>,
    /// Bytes of the last file; of events sent, for a listener.
    pub bytes: u64,
    /// Events in all files.
    pub events: u64,
    /// Events lost because the ring was full.
    pub lost: u64,
    /// Room for each CPU in KiB.
    pub buffer_kb: u64,
    /// The command's exit status.
    pub exit: Option<u8>,
    /// The signal that ended the recording.
    pub signal: Option<Signal>,
    /// From the start to the end of tracing.
    pub elapsed: Duration,
    /// The command, where it was left running because the file has its full size.
    pub running: Option<Running>,
    /// Notes about the recording.
    pub notes: Vec<Note>,
}

pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> TraceError {
    move |error| TraceError::System { what, error }
}

/// Records until the command or the processes end, until a signal asks to
/// end, or until time or size is used up. What was switched on is switched off.
pub fn record_trace(tracefs: &Tracefs, options: &TraceOptions) -> Result<TraceSummary, TraceError> {
    record_trace_beside(tracefs, options, &mut |_| Ok(()))
}

/// Records a trace. `begin` starts what is recorded beside it, when all is ready and the command
/// waits; it gets the command's process.
pub fn record_trace_beside(
    tracefs: &Tracefs,
    options: &TraceOptions,
    begin: &mut dyn FnMut(Option<u32>) -> Result<(), UstError>,
) -> Result<TraceSummary, TraceError> {
    let mut wanted = vec![Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];
    if options.switch == Some(SwitchOn::Signal) {
        wanted.push(Signal::Usr2);
    }
    let signals = Signals::listen(&wanted).map_err(system("cannot listen for signals"))?;
    let child = if options.setup.command.is_empty() {
        None
    } else {
        Some(GatedChild::spawn(&options.setup.command)?)
    };
    let instance = Instance::create(tracefs, "trace")?;
    let mut summary = TraceSummary::default();
    let events = set_up(&instance, &options.setup, child.as_ref(), &mut summary)?;
    let cpus = instance.cpus()?;
    let gathered = Gathered::new(&instance, &events, &cpus, options.format, options.symbols)?;
    begin(child.as_ref().map(GatedChild::pid))?;
    let capture = Capture {
        options,
        instance: &instance,
        cpus,
        gathered,
        signals,
        child,
        watched: TaskEnds::of_processes(&options.setup.pids),
        full: false,
        summary,
    };
    match &options.output {
        TraceOutput::File { path, force } => capture.into_file(path, *force),
        TraceOutput::Remote { address, secret, name } => {
            capture.into_listener(address, secret.as_ref(), name)
        }
    }
}

/// Everything but the start. Gives the events that will be recorded.
fn set_up(
    dir: &TraceDir,
    options: &TraceSetup,
    child: Option<&GatedChild>,
    summary: &mut TraceSummary,
) -> Result<Vec<EventName>, TraceError> {
    dir.set_clock(&options.clock)?;
    let kb = options.buffer_kb.unwrap_or_else(|| default_buffer(dir));
    dir.set_buffer_size_kb(kb)?;
    // Early, because on a busy machine it takes a while until a woken mover runs. Kernels before
    // 4.20 do not have it and wake immediately.
    if dir.has("buffer_percent") {
        dir.set_wake_percent(WAKE_PERCENT)?;
    }
    summary.buffer_kb = dir.buffer_size_kb()?.unwrap_or(kb);
    if !options.cpus.is_empty() {
        dir.set_cpus(&options.cpus)?;
    }
    let tids = match (child, options.system_wide) {
        (_, true) => Vec::new(),
        (Some(child), _) if options.pids.is_empty() => vec![child.pid()],
        _ => target::threads_of_all(&options.pids)?,
    };
    if !tids.is_empty() {
        if dir.option("event-fork").is_some() {
            dir.set_option("event-fork", options.follow)?;
        } else if options.follow {
            let fact = "children are not followed: this kernel has no event-fork (Linux 4.7)";
            summary.notes.push(Note::doubt(NoteKind::Children, fact, None));
        }
        dir.set_pids(&tids)?;
    }
    if options.stacks {
        dir.set_option("stacktrace", true)?;
    }
    enable(dir, &options.events)?;
    Ok(dir.enabled()?)
}

fn default_buffer(dir: &TraceDir) -> u64 {
    let cpus = dir.cpus().map_or(1, |c| c.len().max(1) as u64);
    let memory_kb = system::total_memory() / 1024;
    BUFFER_KB.min(memory_kb / MEMORY_SHARE / cpus).max(LEAST_KB)
}

/// The rings of a directory, for a pump.
pub(crate) fn sources(
    dir: &TraceDir,
    cpus: &[u32],
    name: &str,
) -> Result<Vec<CpuRing>, TraceError> {
    let mut sources = Vec::new();
    for (stream, cpu) in cpus.iter().enumerate() {
        let path = dir.path(&format!("per_cpu/cpu{cpu}/{name}"));
        let raw = descriptors::open_nonblocking(&path).map_err(TraceError::Ring)?;
        sources.push(CpuRing { raw, stream });
    }
    Ok(sources)
}

/// The connection, which only one mover has.
struct Once(Option<Remote>);

impl Once {
    fn remote(&mut self) -> io::Result<&mut Remote> {
        self.0.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl pump::Sink for Once {
    fn ready(&mut self) -> io::Result<bool> {
        self.remote()?.ready()
    }

    fn pipe(&mut self, stream: usize, pipe: &OwnedFd, len: usize) -> io::Result<()> {
        self.remote()?.pipe(stream, pipe, len)
    }

    fn bytes(&mut self, stream: usize, pages: &[u8]) -> io::Result<()> {
        self.remote()?.bytes(stream, pages)
    }

    fn attend(&mut self) -> io::Result<()> {
        Ok(self.remote()?.attend()?)
    }
}

/// Interval at which names of tasks are read, which the kernel may give up before the end.
const NAMES_EVERY: Duration = Duration::from_secs(1);

/// A file that pages go to, and the alarm of its size.
struct GrowingFile<'a> {
    current: &'a Arc<Current>,
    path: &'a Path,
    alarm: Option<&'a SizeAlarm>,
}

struct Capture<'a> {
    options: &'a TraceOptions,
    instance: &'a Instance,
    cpus: Vec<u32>,
    gathered: Gathered,
    signals: Signals,
    child: Option<GatedChild>,
    watched: TaskEnds,
    /// `max_size` was reached.
    full: bool,
    summary: TraceSummary,
}

impl Capture<'_> {
    fn into_file(mut self, path: &Path, force: bool) -> Result<TraceSummary, TraceError> {
        let growing = self.begin_file(path, force)?;
        let current = Current::new(growing);
        let (sources, page) = self.sources()?;
        let threads = system("cannot start threads");
        let alarm = self.alarm().map_err(&threads)?;
        let movers = Movers::start(sources, (page, self.summary.buffer_kb * 1024), false, || {
            ToFile { current: current.clone(), alarm: alarm.clone() }
        })
        .map_err(&threads)?;
        let file = GrowingFile { current: &current, path, alarm: alarm.as_deref() };
        let ran = self.run(&movers, Some(file));
        let (sinks, moved) = movers.stop();
        drop(sinks);
        self.after()?;
        let growing = movers::take(current).map_err(system("a file is still written to"))?;
        let kept = growing.total();
        let failed = |error| TraceError::Write { path: path.to_owned(), error, kept };
        let finished = self.finish(growing, path, ran.is_ok() && moved.is_ok());
        ran?;
        match moved {
            Ok(_) => {}
            Err(PumpError::Ring(e)) => return Err(TraceError::Ring(e)),
            Err(PumpError::Sink(e)) => return Err(failed(e)),
        }
        self.summary.bytes = finished?;
        self.summary.path = path.to_owned();
        if self.options.switch.is_some() {
            self.summary.path = output::set_aside(path)?;
            self.prune();
        }
        Ok(self.end())
    }

    fn into_listener(
        mut self,
        address: &str,
        secret: Option<&Secret>,
        name: &str,
    ) -> Result<TraceSummary, TraceError> {
        let header = self.gathered.header(self.instance, &self.cpus)?;
        let ending = Arc::new(AtomicBool::new(false));
        // One thread has all CPUs, so a sink is asked for once.
        let mut remote = Some(Remote::connect(address, name, &header, secret, ending.clone())?);
        let (sources, page) = self.sources()?;
        let movers = Movers::start(sources, (page, self.summary.buffer_kb * 1024), true, || {
            Once(remote.take())
        })
        .map_err(system("cannot start threads"))?;
        let ran = self.run(&movers, None);
        ending.store(true, Ordering::Relaxed);
        let (sinks, moved) = movers.stop();
        self.after()?;
        let Some(mut remote) = sinks.into_iter().find_map(|once| once.0) else {
            return Err(SendError::Gone(io::ErrorKind::BrokenPipe.into()).into());
        };
        let header = self.gathered.header(self.instance, &self.cpus)?;
        let sent = match moved {
            Ok(_) => remote.finish(Some(&header)),
            Err(PumpError::Ring(e)) => return Err(TraceError::Ring(e)),
            Err(PumpError::Sink(e)) => Err(match e.downcast::<SendError>() {
                Ok(e) => e,
                Err(e) => SendError::Gone(e),
            }),
        };
        ran?;
        sent.map_err(|error| {
            let left = self.left_in_ring();
            let missing = format!("{}; {left} events were left in the ring", remote.missing());
            TraceError::Sent { error: Box::new(error), missing }
        })?;
        self.summary.bytes = remote.sent();
        self.summary.path = format!("tcp://{address}/{}/trace.dat", remote.directory()).into();
        Ok(self.end())
    }

    fn sources(&self) -> Result<(Vec<CpuRing>, usize), TraceError> {
        Ok((sources(self.instance, &self.cpus, "trace_pipe_raw")?, self.instance.page_size()))
    }

    fn begin_file(&mut self, path: &Path, force: bool) -> Result<Growing, TraceError> {
        let (file, stream) = output::create(path, force)?;
        let regular = file.metadata().is_ok_and(|m| m.is_file());
        if stream || !regular {
            return Err(TraceError::NotAFile(path.to_owned()));
        }
        let header = self.gathered.header(self.instance, &self.cpus)?;
        Growing::with_header(file, &header).map_err(|error| TraceError::Write {
            path: path.to_owned(),
            error,
            kept: 0,
        })
    }

    /// Completes a file: names and figures of the end, no holes, compressed if
    /// asked. Gives its size.
    fn finish(
        &mut self,
        mut growing: Growing,
        path: &Path,
        is_whole: bool,
    ) -> Result<u64, TraceError> {
        let kept = growing.total();
        let write = |error| TraceError::Write { path: path.to_owned(), error, kept };
        // Of a disk that is full the header is left as it is.
        if is_whole
            && let Ok(header) = self.gathered.header(self.instance, &self.cpus)
            && header.layout.len <= growing.room_for_header()
        {
            growing.replace_header(&header).map_err(write)?;
        }
        if is_whole && self.gathered.format().compression != Default::default() {
            let facts = self.gathered.facts(self.instance, &self.cpus);
            match pack::pack(&growing, path, &facts, &self.gathered) {
                Ok(size) => return Ok(size),
                Err(e) => {
                    let fact = format!("{} is not compressed: {e}", path.display());
                    self.summary.notes.push(Note::doubt(NoteKind::Compression, fact, None));
                }
            }
        }
        Ok(growing.finish(is_whole).map_err(write)?.1)
    }

    /// From the start of tracing to its end.
    fn run<S: pump::Sink + Send + 'static>(
        &mut self,
        movers: &Movers<S>,
        file: Option<GrowingFile<'_>>,
    ) -> Result<(), TraceError> {
        let delay = self.options.setup.delay;
        if delay.is_none() {
            self.instance.set_tracing(true)?;
        }
        let began = Instant::now();
        let released = match &mut self.child {
            Some(child) => child.release().map_err(TraceError::from),
            None => Ok(()),
        };
        let ran = released.and_then(|()| self.wait_for_end(movers, file, began));
        self.summary.elapsed = began.elapsed();
        let off = self.instance.set_tracing(false);
        ran?;
        Ok(off?)
    }

    fn wait_for_end<S: pump::Sink + Send + 'static>(
        &mut self,
        movers: &Movers<S>,
        file: Option<GrowingFile<'_>>,
        began: Instant,
    ) -> Result<(), TraceError> {
        let size = || file.as_ref().map_or(0, |f| f.current.get().total());
        let alarm = file.as_ref().and_then(|f| f.alarm).map(SizeAlarm::reached);
        let (mut file_began, mut names_seen) = (began, began);
        let delay = self.options.setup.delay;
        let mut waits = delay;
        let waiting = system("cannot wait");
        loop {
            let mut fds = vec![descriptors::readable(&self.signals)];
            fds.extend(movers.ended().map(descriptors::readable_fd));
            let own = fds.len();
            fds.extend(alarm.map(descriptors::readable));
            fds.extend(self.child.as_ref().map(descriptors::readable));
            fds.extend(self.watched.fds().map(descriptors::readable_fd));
            let look = self.next_look(began, file_began);
            let look = self.watched.limit(Some(look)).unwrap_or(look);
            let left = waits.map_or(look, |delay| delay.saturating_sub(began.elapsed()).min(look));
            descriptors::wait(&mut fds, left).map_err(&waiting)?;
            let ready: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
            if waits.is_some_and(|delay| began.elapsed() >= delay) {
                waits = None;
                self.instance.set_tracing(true)?;
            }
            // A mover that ends by itself has failed.
            if ready.iter().take(own).skip(1).any(|r| *r) {
                return Ok(());
            }
            if let Some(alarm) = alarm {
                alarm.clear();
            }
            drop(fds);
            if names_seen.elapsed() >= NAMES_EVERY {
                self.gathered.see_names(self.instance);
                names_seen = Instant::now();
            }
            if self.watched.all_ended().map_err(&waiting)? {
                return Ok(());
            }
            let mut switch = false;
            while let Some(signal) = self.signals.next().map_err(&waiting)? {
                if signal.is_end() {
                    self.summary.signal = Some(signal);
                    return Ok(());
                }
                switch |= signal == Signal::Usr2;
            }
            if let Some(child) = &mut self.child
                && child.try_wait().map_err(&waiting)?.is_some()
            {
                return Ok(());
            }
            let limit = |t: Duration| t.saturating_add(delay.unwrap_or_default());
            if self.options.setup.timeout.is_some_and(|t| began.elapsed() >= limit(t)) {
                return Ok(());
            }
            let switched: u64 = self.summary.bytes;
            if self.options.max_size.is_some_and(|m| switched + size() >= m) {
                self.full = true;
                return Ok(());
            }
            match self.options.switch {
                Some(SwitchOn::Size(s)) => switch |= size() >= s,
                Some(SwitchOn::Time(t)) => switch |= file_began.elapsed() >= t,
                _ => {}
            }
            if let (true, Some(file)) = (switch, &file) {
                self.switch_file(file.current, file.path)?;
                file_began = Instant::now();
            }
        }
    }

    /// For the size at which a file is full, if one was asked for.
    fn alarm(&self) -> io::Result<Option<Arc<SizeAlarm>>> {
        let switch = match self.options.switch {
            Some(SwitchOn::Size(size)) => Some(size),
            _ => None,
        };
        let most = self.options.max_size.into_iter().chain(switch).min();
        most.map(|most| SizeAlarm::new(most).map(Arc::new)).transpose()
    }

    fn next_look(&self, began: Instant, file_began: Instant) -> Duration {
        let mut most = NAMES_EVERY;
        // The size of several files is not a file's own.
        if self.options.max_size.is_some() && self.options.switch.is_some() {
            most = Duration::from_millis(50);
        }
        if let Some(t) = self.options.setup.timeout {
            let t = t.saturating_add(self.options.setup.delay.unwrap_or_default());
            most = most.min(t.saturating_sub(began.elapsed()));
        }
        if let Some(SwitchOn::Time(t)) = self.options.switch {
            most = most.min(t.saturating_sub(file_began.elapsed()));
        }
        most
    }

    /// Continues in a new file; the one before gets a name with the time.
    fn switch_file(&mut self, current: &Arc<Current>, path: &Path) -> Result<(), TraceError> {
        let aside = output::set_aside(path)?;
        let before = match self.begin_file(path, false) {
            Ok(next) => current.switch(next),
            Err(e) => {
                // The old file continues under its old name.
                let _ = std::fs::rename(&aside, path);
                return Err(e);
            }
        };
        self.summary.bytes += before.total();
        self.gathered.end_file(self.instance, &self.cpus);
        self.finish(before, &aside, true)?;
        self.gathered.begin_file();
        self.summary.switched.push(aside);
        self.prune();
        Ok(())
    }

    /// Removes the oldest files beyond the number to keep.
    fn prune(&mut self) {
        let Some(keep) = self.options.keep_files else { return };
        while self.summary.switched.len() >= keep.max(1) {
            let oldest = self.summary.switched.remove(0);
            // One that is gone already is gone.
            let _ = std::fs::remove_file(oldest);
        }
    }

    /// Takes the command's end and the rings' figures.
    fn after(&mut self) -> Result<(), TraceError> {
        if self.full {
            // The command continues; its end is not our concern.
        } else if let Some(child) = &mut self.child {
            self.summary.exit = end_child(child, &self.signals).map(|e| e.exit.code());
        }
        for cpu in &self.cpus {
            let stats = self.instance.stats(*cpu)?;
            self.summary.events += stats.read;
            self.summary.lost += stats.lost();
        }
        Ok(())
    }

    fn left_in_ring(&self) -> u64 {
        self.cpus.iter().filter_map(|c| self.instance.stats(*c).ok()).map(|s| s.entries).sum()
    }

    fn end(self) -> TraceSummary {
        let mut summary = self.summary;
        if let (true, Some(child)) = (self.full, self.child) {
            summary.running = Some(Running { child, signals: self.signals });
        }
        summary
    }
}

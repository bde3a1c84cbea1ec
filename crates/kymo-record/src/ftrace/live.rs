//! Events of the kernel while they happen: an instance of its own, set up as asked for, or
//! one that is there, whose rings are read until the end. Whatever was switched on is off
//! again when this is dropped.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use kymo_kernel::ftrace::{
    FtraceError, Instance, Item, Selection, Stream, TraceDir, wait_readable,
};
use kymo_kernel::process::{GatedChild, Signal, Signals};
use kymo_kernel::target;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::{Note, NoteKind};

use super::capture::system;
use super::error::TraceError;
use super::setup::{TraceSetup, enable};
use kymo_kernel::task_ends::TaskEnds;

/// Event that changes the name of a task.
pub const RENAME: &str = "task:task_rename";
/// Between two looks at the rings.
const TICK: Duration = Duration::from_millis(20);
/// Until the next look, when one event must not wait for another.
const SOON: Duration = Duration::from_millis(1);
/// Fill level at which a ring is read before the tick.
const WAKE_PERCENT: u8 = 20;

/// Room in each CPU's ring if nothing else is asked for.
const BUFFER_KB: u64 = 8 << 10;

/// Options of a live capture.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Events, and whose.
    pub setup: TraceSetup,
    /// Instance that is read instead of one of its own.
    pub instance: Option<String>,
    /// Pace at which events are read.
    pub pace: LivePace,
}

/// Everything that is open during a run. Dropped from the top to the bottom:
/// rings before the instance, and signals last, so that none ends the program
/// while the instance is taken away.
pub struct LiveCapture {
    stream: Stream,
    directory: LiveDirectory,
    child: Option<GatedChild>,
    /// Processes whose end is that of the run.
    ends: TaskEnds,
    cpus: Vec<u32>,
    pace: LivePace,
    limited: bool,
    timeout: Option<Duration>,
    delay: Option<Duration>,
    /// Start of tracing, as long as it is pending.
    begins: Option<Instant>,
    until: Option<Instant>,
    signals: Signals,
    has_own_renames: bool,
    notes: Vec<Note>,
}

enum LiveDirectory {
    Own(Instance),
    /// Instance of another owner.
    Named(TraceDir),
}

/// Delay with which events are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LivePace {
    /// At the tick, in batches.
    Tick,
    /// As soon as there is one.
    AtOnce,
}

impl LivePace {
    fn percent(self) -> u8 {
        match self {
            LivePace::Tick => WAKE_PERCENT,
            LivePace::AtOnce => 0,
        }
    }
}

/// Reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveEnd {
    /// The command or the processes ended.
    Task,
    /// Ctrl-C or its like.
    Signal,
    /// The time is over.
    Time,
    /// The named instance does not record any more and its ring is empty.
    Dry,
}

/// Events that were lost, by CPU.
pub type LostByCpu = Vec<(u32, u64)>;

impl LiveCapture {
    /// Sets an instance up; nothing is traced before [`start`](LiveCapture::start).
    ///
    /// # Errors
    /// If there are no such events, or the kernel refuses what is asked for.
    pub fn open(tracefs: &Tracefs, options: &LiveOptions) -> Result<LiveCapture, TraceError> {
        let setup = &options.setup;
        let signals = Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup])
            .map_err(system("cannot listen for signals"))?;
        let mut notes = Vec::new();
        let mut has_own_renames = false;
        let (directory, child) = match &options.instance {
            Some(name) => (LiveDirectory::Named(TraceDir::open(tracefs, name)?), None),
            None => {
                // Before anything is made: are there such events?
                for event in &setup.events {
                    TraceDir::top(tracefs).select(&event.selection)?;
                }
                let instance = Instance::create(tracefs, "trace")?;
                let child = set_tasks(&instance, setup, &mut notes)?;
                configure(&instance, setup, &mut notes)?;
                // Kernels before 4.20 have no threshold and wake at each event.
                let _ = instance.set_wake_percent(options.pace.percent());
                enable(&instance, &setup.events)?;
                // Old kernels and small ones lack it: names are those that the kernel saves then.
                let on = Selection::parse(RENAME).and_then(|rename| instance.enable(&rename));
                has_own_renames = on.is_ok_and(|on| !on.is_empty());
                (LiveDirectory::Own(instance), child)
            }
        };
        let mut cpus = directory.dir().cpus()?;
        cpus.retain(|c| setup.cpus.is_empty() || setup.cpus.contains(c));
        let stream = Stream::open(directory.dir(), &cpus)?;
        let pids = match options.instance {
            Some(_) => Vec::new(),
            None => setup.pids.clone(),
        };
        Ok(LiveCapture {
            stream,
            directory,
            limited: !pids.is_empty() || child.is_some() && !setup.system_wide,
            // Beside a command processes do not end it.
            ends: if child.is_some() { TaskEnds::default() } else { TaskEnds::of_processes(&pids) },
            child,
            cpus,
            pace: options.pace,
            timeout: setup.timeout,
            delay: setup.delay,
            begins: None,
            until: None,
            signals,
            has_own_renames,
            notes,
        })
    }

    /// Whether [`RENAME`] is on for the names of tasks only.
    pub fn has_own_renames(&self) -> bool {
        self.has_own_renames
    }

    /// Notes about the captured events.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Reads the rings once: hands out, by time, what is complete; all of it if the run is over.
    /// Returns whether there is more to read immediately.
    ///
    /// # Errors
    /// If a ring cannot be read.
    pub fn round(
        &mut self,
        last: bool,
        sink: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<bool, TraceError> {
        Ok(self.stream.round(last, sink)?)
    }

    /// First half of a [`round`](Self::round): reads the rings; `sight` gets each event as soon as
    /// it is read, before it is its turn. Returns whether there is more to read.
    ///
    /// # Errors
    /// If a ring cannot be read.
    pub fn read(&mut self, sight: &mut dyn FnMut(u64, &[u8])) -> Result<bool, TraceError> {
        Ok(self.stream.read(sight)?)
    }

    /// Second half of a [`round`](Self::round).
    pub fn hand_out(&mut self, last: bool, sink: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>) {
        self.stream.hand_out(last, sink);
    }

    /// The directory that is read.
    pub fn dir(&self) -> &TraceDir {
        self.directory.dir()
    }

    /// Whether only some tasks' events are taken, which are not ours.
    pub fn has_tasks(&self) -> bool {
        self.limited
    }

    /// The command's process.
    pub fn child_id(&self) -> Option<u32> {
        self.child.as_ref().map(GatedChild::pid)
    }

    /// Lets the events and the command go.
    ///
    /// # Errors
    /// If tracing cannot be switched on, or the command cannot be run.
    pub fn start(&mut self) -> Result<(), TraceError> {
        let now = Instant::now();
        let limit = self.timeout.map(|t| t.saturating_add(self.delay.unwrap_or_default()));
        self.until = limit.and_then(|t| now.checked_add(t));
        self.begins = self.delay.and_then(|delay| now.checked_add(delay));
        if self.begins.is_none() {
            self.directory.begin()?;
        }
        Ok(self.child.as_mut().map_or(Ok(()), GatedChild::release)?)
    }

    /// Waits for the next look at the rings, unless there is `more` to read already; returns
    /// whether the run is over, which it may be while events come faster than they are read.
    ///
    /// # Errors
    /// If it cannot be waited for something.
    pub fn wait(&mut self, more: bool) -> Result<Option<LiveEnd>, TraceError> {
        if !more {
            self.sleep()?;
        }
        if self.begins.is_some_and(|begins| begins <= Instant::now()) {
            self.begins = None;
            self.directory.begin()?;
        }
        self.over()
    }

    fn sleep(&self) -> Result<(), TraceError> {
        let exit = self.child.as_ref().map(|child| child.as_fd());
        let fds: Vec<BorrowedFd<'_>> = exit
            .into_iter()
            .chain([self.signals.as_fd()])
            .chain(self.ends.fds())
            .chain(self.stream.fds())
            .collect();
        // What was read needs a next round to be complete.
        let most = match (self.pace, self.stream.pending()) {
            (LivePace::AtOnce, true) => SOON,
            _ => TICK,
        };
        let begins = self.begins.map(|b| b.saturating_duration_since(Instant::now()));
        let most = begins.map_or(most, |left| left.min(most));
        wait_readable(&fds, Some(most)).map_err(system("cannot wait for events"))?;
        Ok(())
    }

    fn over(&mut self) -> Result<Option<LiveEnd>, TraceError> {
        if self.signals.next().map_err(system("signals"))?.is_some() {
            return Ok(Some(LiveEnd::Signal));
        }
        if self.until.is_some_and(|u| u <= Instant::now()) {
            return Ok(Some(LiveEnd::Time));
        }
        if let Some(child) = &mut self.child {
            let exit = child.try_wait().map_err(system("the command's end"))?;
            return Ok(exit.map(|_| LiveEnd::Task));
        }
        if self.ends.all_ended().map_err(system("the processes' end"))? {
            return Ok(Some(LiveEnd::Task));
        }
        match &self.directory {
            LiveDirectory::Named(dir) if !dir.tracing()? => Ok(Some(LiveEnd::Dry)),
            _ => Ok(None),
        }
    }

    /// Ends a run that came to `result`; after Ctrl-C the command is asked to end, too. What
    /// the rings lost by CPU, and the command's exit status.
    ///
    /// # Errors
    /// Those of the result, and of switching off.
    pub fn end<E: From<TraceError>>(
        mut self,
        result: Result<Option<LiveEnd>, E>,
    ) -> Result<(LostByCpu, Option<u8>), E> {
        self.stop()?;
        if result? == Some(LiveEnd::Signal) {
            self.end_command().map_err(system("the command's end"))?;
        }
        let lost = self.lost();
        Ok((lost, self.finish()?))
    }

    /// Ends the tracing; what is in the rings can still be read.
    ///
    /// # Errors
    /// If it cannot be switched off.
    pub fn stop(&self) -> Result<(), TraceError> {
        if let LiveDirectory::Own(instance) = &self.directory {
            instance.set_tracing(false)?;
        }
        Ok(())
    }

    /// Ends the command, which may have got Ctrl-C itself.
    fn end_command(&mut self) -> io::Result<()> {
        if let Some(child) = &mut self.child {
            self.signals.end_command(child)?;
        }
        Ok(())
    }

    /// Events that the rings lost, by CPU.
    fn lost(&self) -> LostByCpu {
        let stats = |cpu: &u32| Some((*cpu, self.dir().stats(*cpu).ok()?.lost()));
        self.cpus.iter().filter_map(stats).filter(|(_, n)| *n > 0).collect()
    }

    /// Waits for the command (which has the terminal's Ctrl-C too) and removes the
    /// instance: the command's exit status.
    fn finish(mut self) -> Result<Option<u8>, TraceError> {
        let code = match &mut self.child {
            Some(child) => Some(child.wait().map_err(system("the command's end"))?.code()),
            None => None,
        };
        drop(self.stream);
        if let LiveDirectory::Own(instance) = self.directory {
            instance.remove()?;
        }
        drop(self.signals);
        Ok(code)
    }
}

impl LiveDirectory {
    /// Lets the events of an own instance go.
    fn begin(&self) -> Result<(), TraceError> {
        if let LiveDirectory::Own(instance) = self {
            instance.set_tracing(true)?;
        }
        Ok(())
    }

    fn dir(&self) -> &TraceDir {
        match self {
            LiveDirectory::Own(instance) => instance,
            LiveDirectory::Named(dir) => dir,
        }
    }
}

/// Restricts the events to the command or to some processes, or leaves them system-wide.
fn set_tasks(
    instance: &Instance,
    options: &TraceSetup,
    notes: &mut Vec<Note>,
) -> Result<Option<GatedChild>, TraceError> {
    let child =
        if options.command.is_empty() { None } else { Some(GatedChild::spawn(&options.command)?) };
    let mut tids = target::threads_of_all(&options.pids)?;
    // Beside processes the command says only how long, as in `record`.
    if !options.system_wide && options.pids.is_empty() {
        tids.extend(child.as_ref().map(GatedChild::pid));
    }
    if !tids.is_empty() {
        if options.follow
            && let Err(e) = instance.set_option("event-fork", true)
        {
            let fact = format!("events of children are missing: {e}");
            notes.push(Note::doubt(NoteKind::Children, fact, None));
        }
        instance.set_pids(&tids)?;
    }
    Ok(child)
}

/// An error with the flag that asked for what failed.
fn flag(flag: &'static str) -> impl Fn(FtraceError) -> TraceError {
    move |error| TraceError::Flag { flag, error }
}

fn configure(
    instance: &Instance,
    options: &TraceSetup,
    notes: &mut Vec<Note>,
) -> Result<(), TraceError> {
    // A new instance takes over how the top one records.
    for (option, on) in [("overwrite", true), ("record-cmd", true), ("stacktrace", options.stacks)]
    {
        if instance.option(option).is_some_and(|is| is != on) {
            instance.set_option(option, on)?;
        }
    }
    let size = options.buffer_kb.unwrap_or(BUFFER_KB);
    instance.set_buffer_size_kb(size).map_err(flag("--buffer-size"))?;
    if let Err(e) = instance.set_clock(&options.clock) {
        if options.clock != "mono" {
            return Err(flag("--clock")(e));
        }
        let fact = format!("times are of the clock {}: {e}", instance.clocks()?.current);
        notes.push(Note::choice(NoteKind::Clock, fact, None));
    }
    if !options.cpus.is_empty() {
        instance.set_cpus(&options.cpus).map_err(flag("-C"))?;
    }
    Ok(())
}

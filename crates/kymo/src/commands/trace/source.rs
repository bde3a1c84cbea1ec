//! Where the events of a run come from: an instance of its own, set up from the
//! flags, or one that was named. Whatever was switched on is off again when this
//! is dropped.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kymo_kernel::ftrace::{Instance, Stream, TraceDir, wait_readable};
use kymo_kernel::process::{GatedChild, Signal, Signals, SpawnError};
use kymo_kernel::target;
use kymo_model::NoteKind;
use kymo_record::ftrace::TraceEvent;
use kymo_view::Ledger;

use super::Args;
use crate::commands::tracing;

/// Between two looks at the rings.
const TICK: Duration = Duration::from_millis(20);
/// Until the next look, when one event must not wait for another.
const SOON: Duration = Duration::from_millis(1);
/// A ring this full is looked at before the tick.
const WAKE_PERCENT: u8 = 20;

/// Room in each CPU's ring if nothing else is asked for.
const BUFFER: u64 = 8 << 20;

/// Everything that is open during a run. Dropped from the top to the bottom:
/// rings before the instance, and signals last, so that none ends the program
/// while the instance is taken away.
pub(super) struct Source {
    pub(super) stream: Stream,
    place: Place,
    child: Option<(GatedChild, OwnedFd)>,
    /// Of `-p`: whom to wait for.
    pids: Vec<u32>,
    cpus: Vec<u32>,
    pace: Pace,
    limited: bool,
    pub(super) header: String,
    timeout: Option<Duration>,
    until: Option<Instant>,
    signals: Signals,
}

enum Place {
    Own(Instance),
    /// Somebody else's.
    Named(TraceDir),
}

/// How soon events are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// At the tick, many at once.
    Tick,
    /// As soon as there is one.
    AtOnce,
}

impl Pace {
    fn percent(self) -> u8 {
        match self {
            Pace::Tick => WAKE_PERCENT,
            Pace::AtOnce => 0,
        }
    }
}

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
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
type Lost = Vec<(u32, u64)>;

impl Source {
    /// Sets an instance up; nothing is traced before [`start`](Source::start).
    pub(super) fn open(
        args: &Args,
        events: &[TraceEvent],
        pace: Pace,
        ledger: &mut Ledger,
    ) -> anyhow::Result<Source> {
        let signals = Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup])?;
        let tracefs = tracing::open()?;
        let wanted_cpus = args.cpus()?;
        let (place, child, pids) = match &args.instance {
            Some(name) => (Place::Named(TraceDir::open(&tracefs, name)?), None, Vec::new()),
            None => {
                // Before anything is made: are there such events?
                for event in events {
                    TraceDir::top(&tracefs).select(&event.selection)?;
                }
                let instance = Instance::create(&tracefs, "trace")?;
                let (child, pids) = whose(&instance, args, ledger)?;
                configure(&instance, args, &wanted_cpus, ledger)?;
                // Kernels before 4.20 have no threshold and wake at each event.
                let _ = instance.set_wake_percent(pace.percent());
                enable(&instance, events)?;
                (Place::Own(instance), child, pids)
            }
        };
        let dir = place.dir();
        let mut cpus = dir.cpus()?;
        cpus.retain(|c| wanted_cpus.is_empty() || wanted_cpus.contains(c));
        let header = header(dir)?;
        let stream = Stream::open(dir, &cpus)?;
        let (timeout, until) = (args.timeout, None);
        let limited = !pids.is_empty() || child.is_some() && !args.all_cpus;
        Ok(Source {
            stream,
            place,
            child,
            pids,
            cpus,
            pace,
            limited,
            header,
            timeout,
            until,
            signals,
        })
    }

    /// The directory that is read.
    pub(super) fn dir(&self) -> &TraceDir {
        self.place.dir()
    }

    /// Whether only some tasks' events are taken, which are not ours.
    pub(super) fn has_tasks(&self) -> bool {
        self.limited
    }

    /// The command's process.
    pub(super) fn child_id(&self) -> Option<u32> {
        self.child.as_ref().map(|(child, _)| child.pid())
    }

    /// Lets the events and the command go.
    pub(super) fn start(&mut self) -> anyhow::Result<Result<(), SpawnError>> {
        self.until = self.timeout.and_then(|t| Instant::now().checked_add(t));
        if let Place::Own(instance) = &self.place {
            instance.set_tracing(true)?;
        }
        Ok(self.child.as_mut().map_or(Ok(()), |(child, _)| child.release()))
    }

    /// Waits for the next look at the rings, unless there is `more` to read already; tells
    /// if the run is over, which it may be while events come faster than they are read.
    pub(super) fn wait(&mut self, more: bool) -> anyhow::Result<Option<End>> {
        if !more {
            self.sleep()?;
        }
        self.over()
    }

    fn sleep(&self) -> anyhow::Result<()> {
        let exit = self.child.as_ref().map(|(_, fd)| fd.as_fd());
        let fds: Vec<BorrowedFd<'_>> =
            exit.into_iter().chain([self.signals.as_fd()]).chain(self.stream.fds()).collect();
        // What was read needs a next round to be complete.
        let most = match (self.pace, self.stream.pending()) {
            (Pace::AtOnce, true) => SOON,
            _ => TICK,
        };
        wait_readable(&fds, Some(most))?;
        Ok(())
    }

    fn over(&mut self) -> anyhow::Result<Option<End>> {
        if self.signals.next()?.is_some() {
            return Ok(Some(End::Signal));
        }
        if self.until.is_some_and(|u| u <= Instant::now()) {
            return Ok(Some(End::Time));
        }
        if let Some((child, _)) = &mut self.child {
            return Ok(child.try_wait()?.map(|_| End::Task));
        }
        if !self.pids.is_empty() && self.pids.iter().all(|p| target::threads_of(*p).is_err()) {
            return Ok(Some(End::Task));
        }
        match &self.place {
            Place::Named(dir) if !dir.tracing()? => Ok(Some(End::Dry)),
            _ => Ok(None),
        }
    }

    /// Ends a run that came to `result`; after Ctrl-C the command is asked to end, too. What
    /// the rings lost by CPU, and the command's exit status.
    pub(super) fn end(
        self,
        result: anyhow::Result<Option<End>>,
    ) -> anyhow::Result<(Lost, Option<u8>)> {
        self.stop()?;
        if result? == Some(End::Signal) {
            self.end_command();
        }
        let lost = self.lost();
        Ok((lost, self.finish()?))
    }

    /// Ends the tracing; what is in the rings can still be read.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        if let Place::Own(instance) = &self.place {
            instance.set_tracing(false)?;
        }
        Ok(())
    }

    /// Asks the command to end; it may have heard of Ctrl-C itself.
    fn end_command(&self) {
        if let Some((child, _)) = &self.child {
            // It may be gone already, which is as good.
            let _ = child.kill(Signal::Term.number());
        }
    }

    /// What the rings lost, by CPU.
    fn lost(&self) -> Lost {
        let stats = |cpu: &u32| Some((*cpu, self.dir().stats(*cpu).ok()?.lost()));
        self.cpus.iter().filter_map(stats).filter(|(_, n)| *n > 0).collect()
    }

    /// Waits for the command (which has the terminal's Ctrl-C too) and removes the
    /// instance: the command's exit status.
    fn finish(mut self) -> anyhow::Result<Option<u8>> {
        let code = match &mut self.child {
            Some((child, _)) => Some(child.wait()?.code()),
            None => None,
        };
        drop(self.stream);
        if let Place::Own(instance) = self.place {
            instance.remove()?;
        }
        drop(self.signals);
        Ok(code)
    }
}

impl Place {
    fn dir(&self) -> &TraceDir {
        match self {
            Place::Own(instance) => instance,
            Place::Named(dir) => dir,
        }
    }
}

type Child = Option<(GatedChild, OwnedFd)>;

/// Whose events are taken: the command's, some processes', everybody's.
fn whose(
    instance: &Instance,
    args: &Args,
    ledger: &mut Ledger,
) -> anyhow::Result<(Child, Vec<u32>)> {
    let child = match args.command.is_empty() {
        true => None,
        false => {
            let child = GatedChild::spawn(&args.command)?;
            let pidfd = child.pidfd()?;
            Some((child, pidfd))
        }
    };
    let pids = args.pids()?;
    let mut tids = target::threads_of_all(&pids)?;
    if !args.all_cpus {
        tids.extend(child.as_ref().map(|(c, _)| c.pid()));
    }
    if !tids.is_empty() {
        if !args.no_inherit
            && let Err(e) = instance.set_option("event-fork", true)
        {
            ledger.note(NoteKind::Children, format!("events of children are missing: {e}"), None);
        }
        instance.set_pids(&tids)?;
    }
    Ok((child, pids))
}

fn configure(
    instance: &Instance,
    args: &Args,
    cpus: &[u32],
    ledger: &mut Ledger,
) -> anyhow::Result<()> {
    // A new instance takes over how the top one prints.
    for (option, on) in [
        ("context-info", true),
        ("irq-info", true),
        ("overwrite", true),
        ("record-cmd", true),
        ("record-tgid", false),
        ("latency-format", false),
        ("stacktrace", args.stacks),
    ] {
        if instance.option(option).is_some_and(|is| is != on) {
            instance.set_option(option, on)?;
        }
    }
    let size = args.buffer_size.unwrap_or(BUFFER);
    instance.set_buffer_size_kb(size.div_ceil(1024)).context("--buffer-size")?;
    if let Err(e) = instance.set_clock(&args.clock) {
        if args.clock != "mono" {
            return Err(e).context("--clock");
        }
        let clock = instance.clocks()?.current;
        ledger.tell(NoteKind::Clock, format!("times are of the clock {clock}: {e}"), None);
    }
    if !cpus.is_empty() {
        instance.set_cpus(cpus).context("-C")?;
    }
    Ok(())
}

/// Filters first: nothing that they exclude is recorded.
fn enable(instance: &Instance, events: &[TraceEvent]) -> anyhow::Result<()> {
    for TraceEvent { selection, filter } in events {
        if let Some(filter) = filter {
            for event in instance.select(selection)? {
                instance.set_filter(&event, filter)?;
            }
        }
        instance.enable(selection)?;
    }
    Ok(())
}

/// The lines that begin the directory's own `trace` file.
pub(super) fn header(dir: &TraceDir) -> anyhow::Result<String> {
    use std::io::{BufRead as _, BufReader};
    let path = dir.path("trace");
    let file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
    let mut header = String::new();
    for line in BufReader::new(file).lines() {
        let line = line.with_context(|| path.display().to_string())?;
        if !line.starts_with('#') {
            break;
        }
        header.push_str(&line);
        header.push('\n');
    }
    Ok(header)
}

//! A count from start to end: runs the command, keeps the time, reads the counters on
//! the way and at the end, as often as the command is to run.

use kymo_kernel::task_ends::TaskEnds;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use kymo_kernel::ftrace::wait_readable;
use kymo_kernel::process::{Exit, GatedChild, Signal, Signals, Usage};
use kymo_kernel::target;
use kymo_model::{CountRow, Note, NoteKind};

use super::counters::{Count, CounterOptions, Counters};
use super::error::system;
use super::metrics::derive;
use super::recording::CountRecording;
use super::repeat::{RepeatedRows, Spread};
use super::rows::{RowOptions, RunTimes, rows};
use super::trust;
use super::{CountError, CountOptions, CountTarget, StartDelay};
use crate::control::{ControlChannel, ControlCommand};
use crate::open::CounterScope;
use crate::output::keep_apart;
use crate::selection::note_set_id;

/// Receiver of a running count. Errors end the count.
pub trait CountSink {
    /// A run begins; they are numbered from 1.
    fn run_begins(&mut self, number: u32) -> io::Result<()>;

    /// With a delay: whether the events count from now on.
    fn switched(&mut self, on: bool) -> io::Result<()>;

    /// One counter as it was read; none where the machine does not have the event.
    fn counter(&mut self, name: &str, count: Option<Count>) -> io::Result<()>;

    /// A reading on the way.
    fn interval(&mut self, reading: &CountReading) -> io::Result<()>;

    /// The result of a run, or of all of them.
    fn result(&mut self, result: &CountResult) -> io::Result<()>;
}

/// A reading on the way.
#[derive(Clone, Debug)]
pub struct CountReading {
    /// Rows of what was added since the reading before.
    pub rows: Vec<CountRow>,
    /// Time since the start.
    pub elapsed: Duration,
}

/// A result.
#[derive(Clone, Debug)]
pub struct CountResult {
    /// Rows; the last reading's only, after intervals that are not to be summed up.
    pub rows: Vec<CountRow>,
    /// Time of the (last) run.
    pub elapsed: Duration,
    /// Resource usage of the command, where it was the target.
    pub usage: Option<Usage>,
    /// More of several runs, of which the rows are the means.
    pub repeated: Option<Repetition>,
}

/// Several runs.
#[derive(Clone, Debug)]
pub struct Repetition {
    /// Number of runs.
    pub runs: u32,
    /// Their times, in seconds.
    pub elapsed: Spread,
    /// The time of each.
    pub times: Vec<f64>,
}

/// Outcome of a count.
#[derive(Debug)]
pub struct CountSummary {
    /// Status of the command; 0 where it was ended by the time-out.
    pub status: u8,
    /// The signal that ended the count.
    pub signal: Option<Signal>,
    /// Warnings about the result, and notes on choices that were made.
    pub notes: Vec<Note>,
}

/// Counts by `options`. Returns when the command or the tasks end, on Ctrl-C, SIGTERM or
/// SIGHUP, or when the time is over.
pub fn count(options: &CountOptions, sink: &mut dyn CountSink) -> Result<CountSummary, CountError> {
    let signals = [Signal::Int, Signal::Term, Signal::Hup];
    let signals = Signals::listen(&signals).map_err(system("cannot listen for signals"))?;
    let control = options.control.as_ref().map(ControlChannel::open).transpose();
    let control = control.map_err(system("cannot open what --control names"))?;
    Session { options, signals, control, sink, notes: Vec::new(), recording: None }.run()
}

/// Outcome of a run.
struct EndedRun {
    exit: Option<Exit>,
    signal: Option<Signal>,
    /// The time was over before anything else ended it.
    timed_out: bool,
    elapsed: Duration,
    rows: Vec<CountRow>,
}

/// Reason for the early end of waiting.
enum WaitEnd {
    Exit(Exit),
    Signal(Signal),
    /// Every task that was attached to has ended.
    Gone,
}

/// State of a run: its counters and the tasks it waits for.
struct Run {
    counters: Counters,
    child: Option<GatedChild>,
    tids: Vec<u32>,
    /// Tasks whose end is that of the run.
    ends: TaskEnds,
}

/// State that all runs share.
struct Session<'a> {
    options: &'a CountOptions,
    signals: Signals,
    control: Option<ControlChannel>,
    sink: &'a mut dyn CountSink,
    notes: Vec<Note>,
    /// The file that counts go into.
    recording: Option<CountRecording>,
}

fn cannot_write(source: io::Error) -> CountError {
    CountError::System { what: "cannot write the result", source }
}

impl Session<'_> {
    fn run(mut self) -> Result<CountSummary, CountError> {
        let options = self.options;
        let shows_result = options.interval.is_none() || options.summary;
        let mut repeated = RepeatedRows::default();
        let mut repetition = Repetition { runs: 0, elapsed: Spread::default(), times: Vec::new() };
        let ended = loop {
            let mut ended = self.run_once(repetition.runs.saturating_add(1))?;
            repetition.runs = repetition.runs.saturating_add(1);
            let seconds = ended.elapsed.as_secs_f64();
            repetition.elapsed.add(seconds);
            let rows = std::mem::take(&mut ended.rows);
            match options.runs {
                0 | 1 if shows_result => self.result(rows, &ended, None)?,
                // Forever: nothing may pile up.
                0 | 1 => {}
                _ => {
                    repetition.times.push(seconds);
                    if shows_result {
                        repeated.add(rows);
                    }
                }
            }
            let all_done = options.runs != 0 && repetition.runs >= options.runs;
            if ended.signal.is_some() || all_done {
                break ended;
            }
        };
        if options.runs > 1 && options.interval.is_none() {
            self.result(repeated.rows(), &ended, Some(repetition))?;
        }
        let status = match ended.exit {
            // The command was ended by the time-out, not by a fault of its own.
            Some(exit) if !ended.timed_out => exit.code(),
            _ => 0,
        };
        Ok(CountSummary { status, signal: ended.signal, notes: self.notes })
    }

    fn result(
        &mut self,
        mut rows: Vec<CountRow>,
        ended: &EndedRun,
        repeated: Option<Repetition>,
    ) -> Result<(), CountError> {
        let covered = match &repeated {
            Some(r) => Duration::from_secs_f64(r.elapsed.mean().max(0.0)),
            None => ended.elapsed,
        };
        derive(&mut rows, covered.as_nanos() as f64);
        let is_of_command = self.options.target == CountTarget::Command;
        let usage = ended.exit.filter(|_| is_of_command).map(|exit| exit.usage);
        let result = CountResult { rows, elapsed: ended.elapsed, usage, repeated };
        self.sink.result(&result).map_err(cannot_write)
    }

    fn run_once(&mut self, number: u32) -> Result<EndedRun, CountError> {
        let options = self.options;
        self.sink.run_begins(number).map_err(cannot_write)?;
        if options.sync {
            // sync(1) of the system; what it cannot do does not spoil the count.
            let _ = std::process::Command::new("sync").status();
        }
        if let Some(file) = &options.file {
            keep_apart(&file.path).map_err(cannot_write)?;
        }
        let child = match options.command.as_slice() {
            [] => None,
            command => Some(GatedChild::spawn(command)?),
        };
        if let Some(child) = child.as_ref().filter(|_| !options.pinned.is_empty()) {
            let what = "cannot pin the command to its CPUs";
            child.pin(&options.pinned).map_err(|source| CountError::System { what, source })?;
        }
        let on_exec = options.target == CountTarget::Command && options.delay == StartDelay::None;
        let mut run = self.open(child, on_exec)?;
        if let Some(file) = &options.file {
            self.recording = Some(CountRecording::begin(file, options, &run.counters, &run.tids)?);
        }
        run.counters.start_vmstat()?;
        let released = Instant::now();
        if !on_exec && options.delay == StartDelay::None {
            run.counters.enable()?;
        }
        if let Some(child) = &mut run.child {
            child.release()?;
        }
        let (begun, early) = self.delay(&mut run, released)?;
        let mut ended = self.watch(&mut run, begun, early)?;
        self.end_command(&mut run, &mut ended)?;
        if let Some(recording) = self.recording.take() {
            recording.finish()?;
        }
        Ok(ended)
    }

    /// Opens the counters of a run, whose command waits at its gate.
    fn open(&mut self, child: Option<GatedChild>, on_exec: bool) -> Result<Run, CountError> {
        let options = self.options;
        let tids = match &options.target {
            CountTarget::Command => child.iter().map(GatedChild::pid).collect(),
            CountTarget::Processes(pids) => target::threads_of_all(pids)?,
            CountTarget::Threads(tids) => {
                tids.iter().try_for_each(|&tid| target::check_thread(tid))?;
                tids.clone()
            }
            CountTarget::AllThreads => target::all_threads()?,
            CountTarget::Machine => Vec::new(),
        };
        let scope = match (&options.target, &options.cpus) {
            (CountTarget::Machine, cpus) => CounterScope::Cpus(cpus.clone().unwrap_or_default()),
            (_, Some(cpus)) => CounterScope::TasksOn { tids: tids.clone(), cpus: cpus.clone() },
            (_, None) => CounterScope::Tasks(tids.clone()),
        };
        let how = CounterOptions { inherit: options.inherit, on_exec };
        let mut notes = Vec::new();
        if options.target == CountTarget::Command {
            note_set_id(&options.command, &mut notes);
        }
        let counters = Counters::open(&options.events, &scope, how, &mut notes)?;
        self.add_notes(notes);
        let ends = match &options.target {
            _ if child.is_some() => TaskEnds::default(),
            CountTarget::Processes(pids) => TaskEnds::of_processes(pids),
            CountTarget::Threads(tids) => TaskEnds::of_threads(tids),
            _ => TaskEnds::default(),
        };
        Ok(Run { counters, child, tids, ends })
    }

    /// Lets the delay pass, if there is one: gives when counting began, and why the run
    /// ended meanwhile.
    fn delay(
        &mut self,
        run: &mut Run,
        released: Instant,
    ) -> Result<(Instant, Option<WaitEnd>), CountError> {
        let delay = match self.options.delay {
            StartDelay::None => return Ok((released, None)),
            StartDelay::Never => {
                self.sink.switched(false).map_err(cannot_write)?;
                return Ok((released, None));
            }
            StartDelay::For(delay) => delay,
        };
        self.sink.switched(false).map_err(cannot_write)?;
        let early = self.wait(run, Some(released + delay))?;
        run.counters.start_vmstat()?;
        run.counters.enable()?;
        let begun = Instant::now();
        self.sink.switched(true).map_err(cannot_write)?;
        Ok((begun, early))
    }

    /// Counts until the end, with readings on the way.
    fn watch(
        &mut self,
        run: &mut Run,
        begun: Instant,
        early: Option<WaitEnd>,
    ) -> Result<EndedRun, CountError> {
        let options = self.options;
        let timeout = options.timeout.map(|t| begun + t);
        let (mut ticks, mut last) = (0u32, begun);
        let mut early = early;
        loop {
            let tick = options.interval.map(|i| begun + i.saturating_mul(ticks.saturating_add(1)));
            let until = [tick, timeout].into_iter().flatten().min();
            let end = match early.take() {
                Some(end) => Some(end),
                None => self.wait(run, until)?,
            };
            let now = Instant::now();
            let timed_out = end.is_none() && timeout.is_some_and(|t| now >= t);
            let mut finished = end.is_some() || timed_out;
            if !finished && tick.is_some() {
                ticks += 1;
                finished = options.interval_count.is_some_and(|n| u64::from(ticks) >= n);
            }
            if finished && options.target != CountTarget::Command {
                run.counters.disable()?;
            }
            run.counters.read()?;
            let usage = match &end {
                Some(WaitEnd::Exit(exit)) => exit.usage,
                _ => Usage::default(),
            };
            let elapsed = now - begun;
            if let Some(recording) = &mut self.recording {
                recording.reading(&run.counters, elapsed, options.interval.is_none())?;
            }
            let rows = match options.interval {
                Some(_) => {
                    let rows = self.read_rows(run, now - last, usage)?;
                    self.interval(rows, elapsed, now - last)?
                }
                None => self.read_rows(run, elapsed, usage)?,
            };
            last = now;
            if finished {
                return Ok(self.ended_run(run, end, elapsed, rows));
            }
        }
    }

    /// Hands on a reading of the last `covered` time, and gives its rows back.
    fn interval(
        &mut self,
        mut rows: Vec<CountRow>,
        elapsed: Duration,
        covered: Duration,
    ) -> Result<Vec<CountRow>, CountError> {
        derive(&mut rows, covered.as_nanos() as f64);
        let reading = CountReading { rows, elapsed };
        self.sink.interval(&reading).map_err(cannot_write)?;
        Ok(reading.rows)
    }

    /// Rows of what was read, which covers so much time.
    fn read_rows(
        &mut self,
        run: &Run,
        covered: Duration,
        usage: Usage,
    ) -> Result<Vec<CountRow>, CountError> {
        for counter in run.counters.iter() {
            let name = &counter.spec.name;
            if !counter.supported {
                self.sink.counter(name, None).map_err(cannot_write)?;
                continue;
            }
            for (_, count) in counter.counts() {
                self.sink.counter(name, Some(count)).map_err(cannot_write)?;
            }
        }
        Ok(rows(&run.counters, self.row_options(), run_times(covered, usage)))
    }

    fn row_options(&self) -> RowOptions {
        RowOptions { by: self.options.by, scale: self.options.scale }
    }

    /// Keeps notes that are new: every run has its own.
    fn add_notes(&mut self, notes: Vec<Note>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    fn ended_run(
        &mut self,
        run: &mut Run,
        end: Option<WaitEnd>,
        elapsed: Duration,
        mut last_rows: Vec<CountRow>,
    ) -> EndedRun {
        let (exit, signal) = match end {
            Some(WaitEnd::Exit(exit)) => (Some(exit), None),
            Some(WaitEnd::Signal(signal)) => (None, Some(signal)),
            Some(WaitEnd::Gone) | None => (None, None),
        };
        if self.options.interval.is_some() && self.options.summary {
            run.counters.sum_up();
            let usage = exit.map(|e| e.usage).unwrap_or_default();
            last_rows = rows(&run.counters, self.row_options(), run_times(elapsed, usage));
        }
        self.add_notes(trust::notes(self.options, &last_rows, &run.counters));
        let timed_out = exit.is_none() && signal.is_none();
        EndedRun { exit, signal, timed_out, elapsed, rows: last_rows }
    }

    /// Ends a command that still runs. What it then used counts where it is the target.
    fn end_command(&self, run: &mut Run, ended: &mut EndedRun) -> Result<(), CountError> {
        let Some(child) = &mut run.child else { return Ok(()) };
        if ended.exit.is_some() {
            return Ok(());
        }
        if self.options.target != CountTarget::Command {
            let _ = self.signals.end_command(child);
            return Ok(());
        }
        if ended.signal.is_none() || !self.signals.has_reached(child) {
            let _ = child.kill(ended.signal.unwrap_or(Signal::Term).number());
        }
        let exit = self.signals.wait_for_end(child);
        ended.exit = Some(exit.map_err(system("cannot wait for the command"))?);
        Ok(())
    }

    /// Waits for the command's end, a signal, or the moment `until`, for which it gives none.
    fn wait(
        &mut self,
        run: &mut Run,
        until: Option<Instant>,
    ) -> Result<Option<WaitEnd>, CountError> {
        loop {
            while let Some(signal) = self.signals.next().map_err(system("cannot read signals"))? {
                if signal.is_end() {
                    return Ok(Some(WaitEnd::Signal(signal)));
                }
            }
            if let Some(child) = &mut run.child {
                let exit = child.try_wait().map_err(system("cannot wait for the command"))?;
                if let Some(exit) = exit {
                    return Ok(Some(WaitEnd::Exit(exit)));
                }
            }
            if self.take_commands(run)? {
                return Ok(Some(WaitEnd::Gone));
            }
            if run.ends.all_ended().map_err(system("cannot wait for the tasks"))? {
                return Ok(Some(WaitEnd::Gone));
            }
            let left = until.map(|t| t.saturating_duration_since(Instant::now()));
            if left.is_some_and(|l| l.is_zero()) {
                return Ok(None);
            }
            let fds: Vec<BorrowedFd<'_>> = [self.signals.as_fd()]
                .into_iter()
                .chain(self.control.as_ref().map(AsFd::as_fd))
                .chain(run.child.as_ref().map(AsFd::as_fd))
                .chain(run.ends.fds())
                .collect();
            wait_readable(&fds, run.ends.limit(left)).map_err(system("cannot wait"))?;
        }
    }

    /// Does what another program asks for by `--control`; whether it is the end.
    fn take_commands(&mut self, run: &mut Run) -> Result<bool, CountError> {
        let Some(mut control) = self.control.take() else { return Ok(false) };
        let mut ends = false;
        for command in control.take().map_err(system("cannot read what --control names"))? {
            match command {
                ControlCommand::Enable => {
                    run.counters.start_vmstat()?;
                    run.counters.enable()?;
                }
                ControlCommand::Disable => run.counters.disable()?,
                ControlCommand::Stop => ends = true,
                ControlCommand::Ping => {}
                ControlCommand::SwitchFile | ControlCommand::Unknown(_) => {
                    let fact = format!("--control: unknown command {command}");
                    let advice = "there are enable, disable, stop and ping".to_owned();
                    self.add_notes(vec![Note::doubt(NoteKind::Control, fact, Some(advice))]);
                    continue;
                }
            }
            control.acknowledge();
        }
        if !control.closed {
            self.control = Some(control);
        }
        Ok(ends)
    }
}

fn run_times(covered: Duration, usage: Usage) -> RunTimes {
    RunTimes { elapsed_ns: covered.as_nanos() as u64, usage }
}

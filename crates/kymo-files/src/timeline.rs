//! Recordings of one machine on one time: the kernel's (trace.dat) and those of programs (CTF), as
//! a session's directory holds them, or named one by one.
//!
//! They are merged only if their clocks are one: `CLOCK_MONOTONIC`, on which the kernel puts its
//! events (`mono`) and kymo's and LTTng's tracers of programs theirs. [`Timeline::agreement`]
//! states the precision; traces that cannot be converted to it are refused.

use std::ops::ControlFlow;
use std::path::PathBuf;

use kymo_model::LossWindows;

use crate::ctf::read::{Agreement, Ctf, NotMonotonic, Piece};
use crate::recording_format::{RecordingFormat, kernel_recordings, unreadable_files};
use crate::tracedat::TraceDat;
use crate::{ctf, tracedat};

/// The kernel's clock that is `CLOCK_MONOTONIC`.
const MONO: &str = "mono";

/// Recordings that belong together.
#[derive(Debug)]
pub struct Timeline {
    name: String,
    kernels: Vec<TraceDat>,
    programs: Option<Ctf>,
    left_out: Vec<String>,
}

/// An event of any of them.
#[derive(Clone, Copy)]
pub enum Moment<'a> {
    /// Event of the kernel, with the number of its recording.
    Kernel(usize, &'a tracedat::TraceDatEvent<'a>),
    /// Event of a program.
    Program(&'a ctf::read::CtfEvent<'a>),
    /// Several of a program in one piece, if requested.
    Run(&'a ctf::read::Run<'a>),
}

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct TimelineSelect {
    /// Selects events of these CPUs among the kernel's. Those of programs are always delivered.
    pub cpus: Option<Vec<u32>>,
    /// Nothing before this time is wanted. Events before it can still come.
    pub from: u64,
    /// Whether events of programs are handed out several in one piece where possible.
    pub runs: bool,
    /// The kernel's times are wanted as they are in the ring, since others are laid beside
    /// them; so they are in any case where recordings are merged here.
    pub raw_times: bool,
    /// Receives the time spans in which events were lost, before later events are handed out.
    pub losses: LossWindows,
}

/// Statistics of what was read.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Statistics of each kernel recording.
    pub kernels: Vec<tracedat::TraceDatReadStats>,
    /// Statistics of the programs' traces.
    pub programs: Option<ctf::CtfReadStats>,
    /// Whether all of one kind lay before all of the other, although both had events.
    pub apart: bool,
}

/// Recordings cannot be read, or not together.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TimelineError {
    #[error(transparent)]
    Kernel(#[from] tracedat::TraceDatReadError),
    #[error(transparent)]
    Programs(#[from] ctf::CtfReadError),
    #[error("{path} is neither a trace.dat nor a directory of traces")]
    Neither { path: String },
    #[error(
        "{path} is a perf.data file, which is shown alone: only trace.dat files and directories of traces are merged"
    )]
    PerfData { path: String },
    #[error(
        "{name} cannot be laid on the time of the other recordings: its clock is `{clock}`, \
         not `mono` (CLOCK_MONOTONIC)"
    )]
    Clock { name: String, clock: String },
    #[error("{name} cannot be laid on the time of the other recordings: {why}")]
    NotMonotonic { name: String, why: NotMonotonic },
    #[error("{name} was recorded on another machine, or another kernel, than {first}")]
    OtherMachine { name: String, first: String },
}

impl Timeline {
    /// Opens recordings: files, directories of traces, directories of sessions. Several are put on
    /// one time.
    ///
    /// # Errors
    /// If one cannot be read, or their clocks are not one.
    pub fn open(paths: &[PathBuf]) -> Result<Timeline, TimelineError> {
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        let mut left_out = Vec::new();
        for path in paths {
            match RecordingFormat::of(path) {
                Some(RecordingFormat::TraceDat) => files.push(path.clone()),
                Some(RecordingFormat::Ctf) => {
                    directories.push(path.clone());
                    left_out.extend(unreadable_files(path));
                }
                Some(RecordingFormat::Session) => {
                    files.extend(kernel_recordings(path));
                    if Ctf::is_in(path) {
                        directories.push(path.clone());
                    } else {
                        left_out.extend(ctf::read::unreadable_traces(path));
                    }
                    left_out.extend(unreadable_files(path));
                }
                Some(RecordingFormat::PerfData) if paths.len() > 1 => {
                    return Err(TimelineError::PerfData { path: path.display().to_string() });
                }
                None if paths.len() > 1 || path.is_dir() => {
                    return Err(TimelineError::Neither { path: path.display().to_string() });
                }
                // What is wrong with it is explained there.
                _ => files.push(path.clone()),
            }
        }
        let kernels = files.iter().map(TraceDat::open).collect::<Result<Vec<_>, _>>()?;
        let programs =
            if directories.is_empty() { None } else { Some(Ctf::open_all(&directories)?) };
        let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
        let timeline = Timeline { name: names.join(", "), kernels, programs, left_out };
        timeline.check()?;
        Ok(timeline)
    }

    /// Name of the recordings in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Parts of the directories that cannot be read, or not beside the others, with the reasons.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Those of the kernel.
    pub fn kernels(&self) -> &[TraceDat] {
        &self.kernels
    }

    /// Those of programs.
    pub fn programs(&self) -> Option<&Ctf> {
        self.programs.as_ref()
    }

    /// Traces of programs, mutable, to change their time base. Only for timelines without kernel
    /// recordings.
    pub fn programs_mut(&mut self) -> Option<&mut Ctf> {
        self.programs.as_mut()
    }

    /// Whether events of the kernel and of programs come together.
    pub fn is_mixed(&self) -> bool {
        !self.kernels.is_empty() && self.programs.is_some()
    }

    /// Agreement of the times of programs with the kernel's; `None` if there are not both.
    pub fn agreement(&self) -> Option<Agreement> {
        let programs = self.programs.as_ref().filter(|_| self.is_mixed())?;
        programs.monotonic().ok()
    }

    /// Whether recordings can be laid on one time.
    fn check(&self) -> Result<(), TimelineError> {
        if !self.is_mixed() && self.kernels.len() < 2 {
            return Ok(());
        }
        self.check_monotonic()
    }

    /// Whether all can be laid on the time of recordings whose clock is `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// Names the one that cannot.
    pub fn check_monotonic(&self) -> Result<(), TimelineError> {
        if let Some(programs) = &self.programs {
            programs.monotonic().map_err(|why| {
                let name = programs.name().to_owned();
                TimelineError::NotMonotonic { name, why }
            })?;
        }
        for data in &self.kernels {
            if let Some(first) = self.kernels.first()
                && let Some((a, b)) = host(first).zip(host(data))
                && a != b
            {
                let (name, first) = (data.name().to_owned(), first.name().to_owned());
                return Err(TimelineError::OtherMachine { name, first });
            }
            if let Some(b) = data.buffers().iter().find(|b| b.clock != MONO) {
                let clock = if b.clock.is_empty() { "not stated" } else { &b.clock };
                let (name, clock) = (data.name().to_owned(), clock.to_owned());
                return Err(TimelineError::Clock { name, clock });
            }
        }
        Ok(())
    }

    /// Whether the kernel's times are taken as they are in the ring, because those of the
    /// file were moved (to real time, say) and are to be laid beside others.
    pub fn undoes_corrections(&self) -> bool {
        let together = self.is_mixed() || self.kernels.len() > 1;
        together && self.kernels.iter().any(TraceDat::corrects_times)
    }

    /// The times of the first and the last event. All of programs are read for it.
    ///
    /// # Errors
    /// If reading fails.
    pub fn span(&self) -> Result<Option<(u64, u64)>, TimelineError> {
        let raw = self.undoes_corrections();
        let span = |k: &TraceDat| if raw { k.raw_span() } else { k.span() };
        let mut spans: Vec<(u64, u64)> = self.kernels.iter().filter_map(span).collect();
        if let Some(programs) = &self.programs {
            spans.extend(programs.span()?);
        }
        let first = spans.iter().map(|s| s.0).min();
        Ok(first.zip(spans.iter().map(|s| s.1).max()))
    }

    /// Hands every event to `sink`, by time; of equal times the kernel's first. `Break`
    /// stops without error. Damage is in the statistics.
    ///
    /// # Errors
    /// If reading fails.
    pub fn for_each(
        &self,
        select: &TimelineSelect,
        sink: &mut dyn FnMut(Moment<'_>) -> ControlFlow<()>,
    ) -> Result<Stats, TimelineError> {
        let mut walk = self.walk(select)?;
        let _ = walk.run(u64::MAX, sink)?;
        Ok(walk.into_stats())
    }

    /// Starts a walk that hands out moments piece by piece.
    ///
    /// # Errors
    /// If reading fails.
    pub fn walk(&self, select: &TimelineSelect) -> Result<TimelineWalk<'_>, TimelineError> {
        Ok(TimelineWalk { walks: self.walks(select)?, runs: select.runs })
    }

    fn walks(&self, select: &TimelineSelect) -> Result<Vec<Walk<'_>>, TimelineError> {
        let TimelineSelect { cpus, from, losses, .. } = select.clone();
        let raw_times = select.raw_times || self.undoes_corrections();
        let kernel = tracedat::TraceDatSelect {
            cpus,
            from,
            raw_times,
            losses: losses.clone(),
            buffers: None,
        };
        let mut walks = Vec::new();
        for (number, data) in self.kernels.iter().enumerate() {
            walks.push(Walk::Kernel(number, data.walk(&kernel)?, None));
        }
        if let Some(programs) = &self.programs {
            walks
                .push(Walk::Programs(programs.walk(&ctf::read::CtfSelect { from, losses })?, None));
        }
        Ok(walks)
    }
}

/// The events of recordings, handed out piece by piece.
pub struct TimelineWalk<'t> {
    walks: Vec<Walk<'t>>,
    runs: bool,
}

impl TimelineWalk<'_> {
    /// Hands out what is not later than `limit`. After a `Break` nothing more may be asked
    /// for.
    ///
    /// # Errors
    /// If reading fails.
    pub fn run(
        &mut self,
        limit: u64,
        sink: &mut dyn FnMut(Moment<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, TimelineError> {
        loop {
            let times =
                || self.walks.iter().enumerate().filter_map(|(i, w)| Some((w.next_time()?, i)));
            let Some((first, i)) = times().min() else { break };
            if first > limit {
                break;
            }
            // As long as it is earlier than all others.
            let until = times().filter(|(_, other)| *other != i).min();
            let until = match until {
                None => u64::MAX,
                Some((time, other)) if other > i => time,
                Some((time, _)) => time.saturating_sub(1),
            };
            let Some(walk) = self.walks.get_mut(i) else { break };
            if walk.run(until.min(limit), self.runs, sink)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Statistics of what was read so far.
    pub fn into_stats(self) -> Stats {
        stats(self.walks)
    }
}

/// The times of the first and the last event that were handed out.
type Seen = Option<(u64, u64)>;

/// One recording under way.
enum Walk<'t> {
    Kernel(usize, tracedat::read::Walk<'t>, Seen),
    Programs(ctf::read::Walk<'t>, Seen),
}

impl Walk<'_> {
    fn next_time(&self) -> Option<u64> {
        match self {
            Walk::Kernel(_, walk, _) => walk.next_time(),
            Walk::Programs(walk, _) => walk.next_time(),
        }
    }

    fn run(
        &mut self,
        until: u64,
        runs: bool,
        sink: &mut dyn FnMut(Moment<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, TimelineError> {
        let mut last = 0;
        let first = self.next_time().unwrap_or(0);
        let (flow, seen) = match self {
            Walk::Kernel(number, walk, seen) => {
                let flow = walk.run(until, &mut |e| {
                    last = e.time;
                    sink(Moment::Kernel(*number, e))
                })?;
                (flow, seen)
            }
            Walk::Programs(walk, seen) if runs => {
                let flow = walk.run_in_pieces(until, &mut |piece| match piece {
                    Piece::Event(e) => {
                        last = e.time;
                        sink(Moment::Program(e))
                    }
                    Piece::Run(run) => {
                        last = run.events.last().map_or(last, |e| e.time);
                        sink(Moment::Run(run))
                    }
                })?;
                (flow, seen)
            }
            Walk::Programs(walk, seen) => {
                let flow = walk.run(until, &mut |e| {
                    last = e.time;
                    sink(Moment::Program(e))
                })?;
                (flow, seen)
            }
        };
        seen.get_or_insert((first, last)).1 = last;
        Ok(flow)
    }
}

fn stats(walks: Vec<Walk<'_>>) -> Stats {
    let mut stats = Stats::default();
    let (mut kernel, mut program): (Seen, Seen) = (None, None);
    for walk in walks {
        let (all, seen) = match walk {
            Walk::Kernel(_, walk, seen) => {
                stats.kernels.push(walk.stats());
                (&mut kernel, seen)
            }
            Walk::Programs(walk, seen) => {
                stats.programs = Some(walk.stats());
                (&mut program, seen)
            }
        };
        *all = match (*all, seen) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }
    stats.apart = kernel.zip(program).is_some_and(|(k, p)| k.1 < p.0 || p.1 < k.0);
    stats
}

/// The machine and the release of its kernel, where the file says them.
fn host(data: &TraceDat) -> Option<(&str, &str)> {
    let mut words = data.options().uname.as_deref()?.split_whitespace().skip(1);
    Some((words.next()?, words.next()?))
}

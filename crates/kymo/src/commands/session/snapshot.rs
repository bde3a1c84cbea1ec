//! `kymo session snapshot`: now, or by itself when something happens or takes too
//! long. The command stays and waits; nothing waits without it.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_files::ctf::types::CtfVersion;
use kymo_files::tracedat::Compression;
use kymo_files::tracedat::write::Format;
use kymo_kernel::process::{Signal, Signals};
use kymo_model::{Note, NoteKind, counted};
use kymo_record::ftrace::{self, Condition, ConditionWatch, Met, On, OnLatency, TakenBy};
use kymo_record::sessions::{Session, SessionSnapshot, Sessions, TakeOptions};
use kymo_view::Ledger;

use super::super::page_command::become_view;
use super::program_condition::ProgramCondition;
use super::why;
use crate::args::values::{ctf_version, millis};
use crate::exit;

#[derive(clap::Args)]
pub(super) struct Snapshot {
    /// Name of the session
    name: String,
    /// File [default: NAME.dat], or directory with user-space events [default: NAME]; with a
    /// condition, the time is appended
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite a file that is not a recording
    #[arg(short = 'f', long)]
    force: bool,
    /// Write a snapshot each time this event occurs: 'EVENT' or 'EVENT if FILTER'
    #[arg(long, value_name = "CONDITION", conflicts_with = "on_latency")]
    on: Option<String>,
    /// Write a snapshot each time this latency is exceeded: 'A -> B > 5ms by pid'
    #[arg(long, value_name = "CONDITION")]
    on_latency: Option<String>,
    /// Print the critical path of each slow case, also to NAME.why.txt (needs sched_switch and
    /// sched_waking)
    #[arg(long, requires = "on_latency")]
    why: bool,
    /// Open the snapshot in the browser (`kymo view`) until Ctrl-C; with a condition, take only one
    #[arg(long)]
    view: bool,
    /// Exit after N snapshots
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Take the snapshot MS milliseconds after the condition is met
    #[arg(long, value_name = "MS", default_value = "0", value_parser = millis)]
    after: Duration,
    /// Exit after MS milliseconds without a match
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<Duration>,
    /// Version of the trace.dat: 6 or 7
    #[arg(long, value_name = "N", default_value = "7",
          value_parser = clap::value_parser!(u32).range(6..=7))]
    file_version: u32,
    /// CTF version for user-space events: 1.8 or 2
    #[arg(long, value_name = "VERSION", default_value = "1.8", value_parser = ctf_version)]
    ctf: CtfVersion,
    /// Exit with status 3 if there are warnings
    #[arg(long)]
    strict: bool,
    /// Print only errors
    #[arg(short = 'q', long)]
    quiet: bool,
}

pub(super) fn run(sessions: &Sessions, args: &Snapshot) -> anyhow::Result<ExitCode> {
    let mut session = sessions.open(&args.name)?;
    let path = super::output(&session, args.output.as_ref());
    let format = Format { version: args.file_version, compression: Compression::None };
    let options =
        TakeOptions { force: args.force, format, by_kernel: true, stamped: false, ctf: args.ctf };
    let condition = match (&args.on, &args.on_latency) {
        (Some(on), _) => Condition::On(On::parse(on)?),
        (_, Some(on)) => Condition::OnLatency(OnLatency::parse(on)?),
        _ => {
            let taken = session.take(&path, options)?;
            let status = tell(&taken, None, args.quiet, args.strict);
            if args.view {
                match become_view(&taken.path, None, None)? {}
            }
            return Ok(status);
        }
    };
    if let Some(kernel) = session.kernel() {
        let clock = kernel.state()?.clock;
        if clock != "mono" {
            bail!(
                "session {} has the clock {clock}; a condition needs mono, to compare times with",
                args.name
            );
        }
    }
    let mut taker = Taker { session, path, options, args, condition: &condition, taken: 0 };
    let next = match ProgramCondition::of(&condition)? {
        Some(programs) => taker.watch_programs(programs)?,
        None => taker.watch_kernel(sessions)?,
    };
    match next {
        Some(Next::View(path, span)) => match become_view(&path, span, None)? {},
        Some(Next::End(status)) => Ok(status),
        // A missed number of snapshots makes the exit status a failure.
        _ if args.count.is_some() => Ok(ExitCode::FAILURE),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Step after a snapshot.
enum Next {
    Watch,
    End(ExitCode),
    /// The page of what was written, and of the time that it is about.
    View(PathBuf, Option<(u64, u64)>),
}

/// Takes a snapshot each time a condition is met.
struct Taker<'a> {
    session: Session,
    path: PathBuf,
    options: TakeOptions,
    args: &'a Snapshot,
    condition: &'a Condition,
    taken: u64,
}

impl Taker<'_> {
    fn watch_programs(&mut self, condition: ProgramCondition) -> anyhow::Result<Option<Next>> {
        if !self.args.quiet {
            say("watching in user space, in rings of programs of its own");
        }
        let mut after = None;
        let notes = condition.watch(self.args.timeout, |met| {
            // The events that come meanwhile wait in their rings.
            std::thread::sleep(self.args.after);
            after = Some(self.take(met)?);
            Ok(match after {
                Some(Next::Watch) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            })
        })?;
        for note in notes.iter().filter(|note| note.is_doubt) {
            say(&format!("of the condition's events: {}", note.fact));
        }
        Ok(after.filter(|next| !matches!(next, Next::Watch)))
    }

    fn watch_kernel(&mut self, sessions: &Sessions) -> anyhow::Result<Option<Next>> {
        let ends = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];
        let signals = Signals::listen(&ends).context("cannot listen for signals")?;
        let mut watch = ConditionWatch::start(sessions.tracefs()?, self.condition)?;
        if !self.args.quiet {
            say(&format!("watching in user space, in the instance {}", watch.instance()));
        }
        let until = self.args.timeout.map(|t| Instant::now() + t);
        let mut lost = 0;
        loop {
            let met = watch.wait(&signals, until)?;
            if watch.lost > lost {
                lost = watch.lost;
                say(&format!(
                    "events of the condition were lost {lost} times: it may have been missed"
                ));
            }
            let Some(met) = met else { return Ok(None) };
            if !self.args.after.is_zero() {
                signals.wait(None, Some(self.args.after))?;
            }
            let next = self.take(met)?;
            watch.told();
            if !matches!(next, Next::Watch) {
                return Ok(Some(next));
            }
        }
    }

    fn take(&mut self, met: Met) -> anyhow::Result<Next> {
        let args = self.args;
        let options = TakeOptions { stamped: true, ..self.options };
        let snapshot = self.session.take(&self.path, options)?;
        self.taken += 1;
        let status = tell(&snapshot, Some(met), false, args.strict);
        let span = match met {
            Met::TooLong(l) => Some((l.from, l.to)),
            Met::Event(_) => None,
        };
        if let (true, Condition::OnLatency(latency), Met::TooLong(met)) =
            (args.why, self.condition, met)
            && let Err(error) = why::explain(&snapshot.path, latency.task(&met), (met.from, met.to))
        {
            // The snapshot is there, and the next one may be explained.
            say(&format!("no explanation of {}: {error:#}", snapshot.path.display()));
        }
        Ok(match args.count {
            // The page ends by the signals that are held back while the condition is watched for.
            _ if args.view => Next::View(snapshot.path, span),
            Some(n) if self.taken >= n => Next::End(status),
            _ => Next::Watch,
        })
    }
}

fn say(text: &str) {
    // The message may have no reader; the snapshots matter more.
    let _ = writeln!(crate::streams::stderr(), "[ kymo session: {text} ]");
}

/// Prints the written snapshot, its reason, and what is missing. Returns the exit status.
pub(super) fn tell(
    taken: &SessionSnapshot,
    met: Option<Met>,
    quiet: bool,
    strict: bool,
) -> ExitCode {
    let mut parts = Vec::new();
    if let Some(kernel) = &taken.kernel {
        parts.push(of_kernel(kernel, met));
    }
    let mut ledger = Ledger::default();
    if let Some(dropped) = taken.kernel.as_ref().map(|kernel| kernel.dropped).filter(|n| *n > 0) {
        let fact = format!("{dropped} events found the rings full since they were taken last");
        let advice = "a larger --buffer-size, or rotate more often".to_owned();
        ledger.push(Note::doubt(NoteKind::Lost, fact, Some(advice)));
    }
    if let Some((stats, notes)) = &taken.programs {
        parts.push(match stats.programs {
            0 => "no events of programs".to_owned(),
            n => {
                format!("{} bytes of events of {}", stats.bytes, counted(n, "program", "programs"))
            }
        });
        stats.notes(notes.as_slice()).into_iter().for_each(|note| ledger.push(note));
    }
    if !quiet {
        say(&format!("{}{}, {}", reason(met), taken.path.display(), parts.join("; ")));
        let _ = write!(crate::streams::stderr(), "{}", ledger.to_text(""));
    }
    exit::of_command(None, &ledger, strict)
}

fn reason(met: Option<Met>) -> String {
    let seconds = |ns: u64| format!("{:.6}", ns as f64 / 1e9);
    match met {
        None => String::new(),
        Some(Met::Event(time)) => format!("event at {}: ", seconds(time)),
        Some(Met::TooLong(l)) => format!(
            "{:.3} ms from {} to {}, key {}: ",
            (l.to - l.from) as f64 / 1e6,
            seconds(l.from),
            seconds(l.to),
            l.key
        ),
    }
}

fn of_kernel(taken: &ftrace::KernelSnapshot, met: Option<Met>) -> String {
    let how = match taken.by {
        TakenBy::Kernel => "taken by the kernel at one moment",
        TakenBy::Reading => "read from the rings while tracing continued",
    };
    let mut text = format!("{} bytes of events, {how}", taken.stored);
    if taken.stored == 0 {
        text += "; there were no events";
    }
    if let (Some(met), Some(oldest)) = (met, taken.oldest_ns) {
        let begin = match met {
            Met::Event(time) => time,
            Met::TooLong(l) => l.from,
        };
        if oldest > begin {
            text += "; the ring no longer held the beginning: a larger --buffer-size";
        }
    }
    text
}

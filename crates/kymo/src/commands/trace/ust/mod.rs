//! `kymo trace -u`: events of programs with tracepoints of their own, live or into a
//! directory of CTF traces. No root, no kernel: files that the programs share.

pub(super) mod live;
mod text;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_kernel::ftrace::own_name;
use kymo_kernel::process::{GatedChild, Signal, Signals};
use kymo_model::{NoteKind, format_width};
use kymo_record::ust::{
    ChannelOptions, ChannelWatch, Drain, DrainStats, Draining, MountNamespace, UstError,
    WatchOptions,
};
use kymo_ust::EventRule;
use kymo_view::Ledger;

use super::{Args, close};
use crate::commands::counted;

/// Flags of `kymo trace` for events of programs.
#[derive(clap::Args)]
pub(super) struct UstArgs {
    /// Events of programs that have tracepoints of their own: PROVIDER:NAME with * and ?
    #[arg(short = 'u', long = "user-event", value_name = "PROVIDER:NAME", value_delimiter = ',',
          conflicts_with_all = ["cpu", "instance"])]
    user_events: Vec<String>,
    /// Of these events, those of at most this level: emerg … debug, or 0 … 14
    #[arg(long, value_name = "LEVEL", requires = "user_events", value_parser = level)]
    level: Option<u8>,
}

/// Room for each CPU of a program.
const ROOM: u64 = 4 << 20;
/// Of that, a sub-buffer.
const SUB_BUFFERS: u32 = 8;
/// The clock of events of the kernel beside which those of programs can be put.
pub(super) const CLOCK: &str = "mono";
/// How often is looked.
pub(super) const ROUND: Duration = Duration::from_millis(50);
/// How long a program's last events are waited for.
pub(super) const FORGET: Duration = Duration::from_millis(20);

/// The levels by their names, as syslog and LTTng number them.
const LEVELS: [&str; 15] = [
    "emerg",
    "alert",
    "crit",
    "err",
    "warning",
    "notice",
    "info",
    "debug-system",
    "debug-program",
    "debug-process",
    "debug-module",
    "debug-unit",
    "debug-function",
    "debug-line",
    "debug",
];

/// The level that lets all pass.
pub(in crate::commands) const MAX_LEVEL: u8 = LEVELS.len() as u8 - 1;

/// How a level is called.
pub(in crate::commands) fn level_name(level: u8) -> &'static str {
    LEVELS.get(usize::from(level)).unwrap_or(&"debug")
}

pub(in crate::commands) fn level(text: &str) -> Result<u8, String> {
    let lower = text.to_ascii_lowercase().replace('_', "-");
    let named = LEVELS.iter().position(|l| *l == lower).map(|n| n as u8);
    let number = lower.parse().ok().filter(|n| usize::from(*n) < LEVELS.len());
    named.or(number).ok_or_else(|| format!("levels are {}", LEVELS.join(", ")))
}

/// What rules say: patterns with one filter.
pub(in crate::commands) fn rules(
    patterns: &[String],
    level: Option<u8>,
    filter: Option<&str>,
) -> anyhow::Result<Vec<EventRule>> {
    let filter = match filter {
        None => Vec::new(),
        Some(text) => kymo_ust::compile(text).map_err(|e| anyhow::anyhow!(caret(text, &e)))?,
    };
    let rule = |pattern: &String| {
        let pattern = pattern.trim();
        if pattern.is_empty() {
            bail!("an empty pattern of events");
        }
        let pattern = match pattern.contains(':') || pattern == "*" {
            true => pattern.to_owned(),
            false => format!("{pattern}:*"),
        };
        let max_level = level.unwrap_or(MAX_LEVEL);
        Ok(EventRule { pattern, max_level, exclude: false, filter: filter.clone() })
    };
    patterns.iter().map(rule).collect()
}

/// A filter's fault with a mark under it.
fn caret(text: &str, error: &kymo_ust::FilterError) -> String {
    let at = match error {
        kymo_ust::FilterError::Syntax { at, .. } => *at,
        _ => return format!("--filter: {error}"),
    };
    let blanks = format_width(text.get(..at).map_or(0, |t| t.chars().count()));
    format!("--filter: {error}\n  {text}\n  {:blanks$}^", "")
}

/// Sub-buffers for so much room on each CPU.
pub(in crate::commands) fn sub_buffers(room: Option<u64>) -> (u32, u32) {
    let size = (room.unwrap_or(ROOM) / u64::from(SUB_BUFFERS)).max(1).next_power_of_two();
    (size.clamp(4096, 64 << 20) as u32, SUB_BUFFERS)
}

impl UstArgs {
    /// Whether it is about programs at all.
    pub(super) fn given(&self) -> bool {
        !self.user_events.is_empty()
    }
}

/// What the flags ask of programs, as far as no process needs to be there.
pub(super) fn asked(args: &Args) -> anyhow::Result<Vec<EventRule>> {
    let filter = args.events.for_programs();
    rules(&args.ust.user_events, args.ust.level, filter.as_deref())
}

/// Switches the events on; `command`: the process of a command that is alone meant.
pub(super) fn watch(
    args: &Args,
    rules: Vec<EventRule>,
    pids: Vec<u32>,
    command: Option<u32>,
) -> Result<ChannelWatch, UstError> {
    let (sub_buffer, sub_buffers) = sub_buffers(args.buffer_size);
    let options = WatchOptions {
        channel: ChannelOptions {
            session: own_name("trace"),
            channel: "channel0".into(),
            rules,
            overwrite: false,
            sub_buffer,
            sub_buffers,
            pids: [command.unwrap_or(0), 0, 0, 0],
        },
        running: command.is_none() || !pids.is_empty(),
        pids,
    };
    let namespaces =
        if command.is_some() { vec![MountNamespace::here()] } else { MountNamespace::all() };
    let watch = ChannelWatch::start(&namespaces, &options)?;
    if options.running && command.is_none() && watch.programs() == 0 && !args.quiet {
        sayln!("kymo: no program that runs has such events; waiting for one that starts");
    }
    Ok(watch)
}

/// Takes what comes into a directory.
pub(super) fn drain(watch: ChannelWatch, directory: &Path) -> Result<Draining, UstError> {
    // Rings that filled by a quarter since the last look are looked at sooner.
    Draining::start(watch, Drain::new(directory, own_name("trace")), ROOM / 4)
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.stacks || args.clock != CLOCK {
        bail!("-T and --clock are for events of the kernel: name some with -e");
    }
    let rules = asked(args)?;
    let signals =
        Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup, Signal::Quit, Signal::Child])
            .context("cannot listen for signals")?;
    let mut child = match args.command.is_empty() {
        true => None,
        false => match GatedChild::spawn(&args.command) {
            Ok(child) => Some(child),
            Err(e) => {
                sayln!("kymo: {e}");
                return Ok(ExitCode::from(e.shell_status()));
            }
        },
    };
    let command = child.as_ref().filter(|_| !args.all_cpus).map(GatedChild::pid);
    let output = args.out.directory()?;
    if let Some(directory) = output {
        check_new(directory)?;
    }
    let mut watch = watch(args, rules, args.pids()?, command)?;
    if let Some(child) = &mut child
        && let Err(e) = child.release()
    {
        sayln!("kymo: {e}");
        return Ok(ExitCode::from(e.shell_status()));
    }
    let mut run = Run { args, signals, child, started: Instant::now(), exit: None };
    match output {
        Some(directory) => {
            let draining = drain(watch, directory)?;
            while !run.wait(ROUND)? && !draining.failed() {}
            run.end_child()?;
            let (notes, stats) = draining.finish()?;
            run.end(&notes, &stats, Some(directory))
        }
        None => {
            let mut live = live::Live::new(args, 0);
            run.follow(&mut watch, &mut live)?;
            let notes = watch.notes().to_vec();
            drop(watch);
            run.end(&notes, &live.stats(), None)
        }
    }
}

/// A directory that is to become a trace: not there, or empty.
pub(in crate::commands) fn check_new(directory: &Path) -> anyhow::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).with_context(|| directory.display().to_string()),
    };
    if entries.into_iter().next().is_some() {
        bail!(
            "{} is not empty; a trace of programs is a directory of its own",
            directory.display()
        );
    }
    Ok(())
}

struct Run<'a> {
    args: &'a Args,
    signals: Signals,
    child: Option<GatedChild>,
    started: Instant,
    exit: Option<u8>,
}

impl Run<'_> {
    /// Waits for the next round; true if there is none.
    fn wait(&mut self, pause: Duration) -> anyhow::Result<bool> {
        let left = self.args.timeout.map(|t| t.saturating_sub(self.started.elapsed()));
        if left == Some(Duration::ZERO) {
            return Ok(true);
        }
        self.signals.wait(Some(left.map_or(pause, |l| l.min(pause))))?;
        while let Some(signal) = self.signals.next()? {
            if signal != Signal::Child {
                return Ok(true);
            }
        }
        if let Some(child) = &mut self.child
            && let Some(exit) = child.try_wait()?
        {
            self.exit = Some(exit.code());
            return Ok(true);
        }
        Ok(false)
    }

    fn follow(&mut self, watch: &mut ChannelWatch, live: &mut live::Live) -> anyhow::Result<()> {
        loop {
            live.begin_round();
            watch.round(|channel, program| live.take(channel, program, &|_| None))?;
            if live.end_round(live.horizon())? || self.wait(ROUND)? {
                break;
            }
        }
        self.end_child()?;
        watch.stop();
        std::thread::sleep(FORGET);
        watch.round(|channel, program| live.take(channel, program, &|_| None))?;
        live.end_round(u64::MAX)?;
        Ok(())
    }

    /// A command that is still there when tracing ends has been asked to end with it.
    fn end_child(&mut self) -> anyhow::Result<()> {
        if let Some(child) = &mut self.child
            && self.exit.is_none()
        {
            child.kill(Signal::Term.number())?;
            self.exit = Some(child.wait()?.code());
        }
        Ok(())
    }

    fn end(
        &self,
        notes: &[String],
        stats: &DrainStats,
        directory: Option<&Path>,
    ) -> anyhow::Result<ExitCode> {
        let mut ledger = Ledger::default();
        note(&mut ledger, notes, stats);
        if stats.programs == 0 {
            ledger.tell(NoteKind::Programs, "no program had such events", None);
        }
        if let Some(directory) = directory.filter(|_| !self.args.quiet) {
            let mb = stats.bytes as f64 / (1024.0 * 1024.0);
            let directory = directory.display();
            let programs = counted(stats.programs, "program", "programs");
            sayln!("[ kymo trace: wrote {mb:.3} MB {directory} ({programs}) ]");
        }
        Ok(close(self.args, &ledger, self.exit))
    }
}

/// What is missing of what programs wrote.
pub(in crate::commands) fn note(ledger: &mut Ledger, notes: &[String], stats: &DrainStats) {
    for text in notes {
        ledger.note(NoteKind::Program, text.clone(), None);
    }
    let shared = || MountNamespace::here().base().display().to_string();
    if stats.without_memory > 0 {
        let (n, shared) = (stats.without_memory, shared());
        let fact = format!("{n} events discarded: there was no memory for rings in {shared}");
        ledger.note(NoteKind::Lost, fact, Some(format!("make room in {shared}: df -h {shared}")));
    }
    let discarded = stats.discarded.saturating_sub(stats.without_memory);
    if discarded > 0 {
        let large = match stats.too_large {
            0 => String::new(),
            n => format!(" ({n} larger than a sub-buffer)"),
        };
        let advice = "more room: --buffer-size 64M; or a --filter".to_owned();
        ledger.note(
            NoteKind::Lost,
            format!("{discarded} events discarded: rings were full{large}"),
            Some(advice),
        );
    }
    if stats.overwritten > 0 {
        // Whoever has rings that overwrite has asked for that.
        let events = stats.overwritten_events;
        let packets = stats.overwritten;
        let fact = match events {
            0 => format!("{packets} packets were overwritten before they were taken"),
            _ => format!(
                "{events} events ({packets} packets) were overwritten before they were taken"
            ),
        };
        ledger.tell(
            NoteKind::Overwritten,
            fact,
            Some("to keep more: a larger --buffer-size".into()),
        );
    }
    if stats.without_ring > 0 {
        let fact = format!("{} events lost: a program could not make its ring", stats.without_ring);
        ledger.note(NoteKind::Lost, fact, Some(format!("make room in {0}: df -h {0}", shared())));
    }
    if stats.damaged > 0 {
        let fact = format!("{} places in rings did not hold what they should", stats.damaged);
        ledger.note(NoteKind::Damaged, fact, None);
    }
}

/// The error of a round is the trace's.
type RoundResult = Result<(), UstError>;

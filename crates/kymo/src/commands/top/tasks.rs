//! `kymo top --tasks`: what tasks do, by the second, out of the scheduler's events.

use std::io::{IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_analysis::losses::select_events;
use kymo_analysis::task_activity::{ActivityInterval, ActivityRow, TaskActivities};
use kymo_analysis::tasks::SCHED_EVENTS;
use kymo_events::live::LiveSamples;
use kymo_kernel::cpus;
use kymo_kernel::process::{Signal, Signals};
use kymo_kernel::target;
use kymo_kernel::terminal::{RawTerminal, TERMINAL_SIGNALS, terminal_size};
use kymo_model::{AttrFlags, Note, NoteKind};
use kymo_record::{CallGraph, PerfCapture, RecordOptions, Target};
use kymo_symbols::ResolverOptions;
use kymo_view::Ledger;
use kymo_view::top::{ActivityColumns, ActivitySort, TopKey, write_tasks};

use super::super::event_recording::{CALLS, RecordedEvents};
use super::Args;
use super::keys::keys;
use crate::args::targets::{kernel_numbers, named_target, note_kernel_numbers};
use crate::exit;
use crate::streams::CLEAR;

/// Rings are read so often, or when one is half full.
const TICK: Duration = Duration::from_millis(100);
/// Pages of a ring: the scheduler's events come in bursts.
const PAGES: usize = 1024;

/// Events that are recorded; accounted run times and migrations are not needed.
fn recorded() -> RecordedEvents {
    let names =
        ["waking", "wakeup", "wakeup_new", "process_fork"].map(|n| format!("sched:sched_{n}"));
    RecordedEvents::of_tasks("kymo top --tasks", names.iter().map(String::as_str))
}

/// Tasks whose rows are shown.
struct TaskChoice {
    target: Option<Target>,
    comms: Vec<String>,
}

impl TaskChoice {
    fn of(args: &Args) -> anyhow::Result<TaskChoice> {
        let named = named_target(args.pid.as_deref(), args.tid.as_deref(), None, &[])?;
        let chosen = match &named {
            Some(Target::Processes(ids) | Target::Threads(ids)) => &**ids,
            _ => &[],
        };
        if !chosen.is_empty() {
            kernel_numbers(Some("show all tasks, without -p and -t"))?;
        }
        if let Some(gone) = chosen.iter().find(|id| !target::is_alive(**id)) {
            bail!("no such task: {gone}");
        }
        Ok(TaskChoice { target: named, comms: args.comms.clone() })
    }

    fn has(&self, row: &ActivityRow) -> bool {
        let is_target = match &self.target {
            Some(Target::Processes(ids)) => row.task.info.pid.is_some_and(|pid| ids.contains(&pid)),
            Some(Target::Threads(ids)) => ids.contains(&row.task.tid),
            _ => true,
        };
        let is_named = |name: &String| row.task.comm() == name.as_bytes();
        is_target && (self.comms.is_empty() || self.comms.iter().any(is_named))
    }
}

/// A terminal whose keys choose the order of rows.
struct TaskTerminal<'a> {
    raw: RawTerminal,
    signals: Signals,
    /// Interval on the screen, which stays while `is_held` is set.
    shown: Option<ActivityInterval>,
    is_held: bool,
    cpus: usize,
    sort: ActivitySort,
    choice: &'a TaskChoice,
}

/// Keys, on the last line of the terminal.
const KEYS: &str =
    "order: r run, w wait, b blocked, s switches, l longest, n name; space holds, q ends";

impl TaskTerminal<'_> {
    /// Takes note of an interval, and draws it unless another is held.
    fn take(&mut self, interval: ActivityInterval, lost: u64) -> anyhow::Result<()> {
        if self.is_held {
            return Ok(());
        }
        self.shown = Some(interval);
        self.draw(lost)
    }

    fn draw(&mut self, lost: u64) -> anyhow::Result<()> {
        let Some(interval) = &mut self.shown else { return Ok(()) };
        self.sort.apply(&mut interval.rows);
        let (width, height) = self.raw.size().context("the terminal")?;
        let (width, rows) = (usize::from(width), usize::from(height).saturating_sub(4));
        let mut text = Vec::new();
        if lost > 0 {
            writeln!(text, "{lost} events lost: times are wrong")?;
        }
        let columns = ActivityColumns { cpus: self.cpus, most: rows, width };
        write_tasks(&mut text, interval, columns, &|row| self.choice.has(row))?;
        let held = if self.is_held { "held; " } else { "" };
        let keys: String = format!("{held}{KEYS}").chars().take(width).collect();
        let mut out = CLEAR.as_bytes().to_vec();
        for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(keys.as_bytes());
        self.raw.write(&out).context("the terminal")
    }

    /// Handles keys and signals; returns whether to end.
    fn listen(&mut self) -> anyhow::Result<bool> {
        while let Some(signal) = self.signals.next()? {
            match signal {
                Signal::Stop => self.raw.stop_program().context("the terminal")?,
                Signal::Continue => self.raw.resume().context("the terminal")?,
                _ => {}
            }
            self.draw(0)?;
        }
        let mut bytes = [0; 256];
        let count = self.raw.read_keys(&mut bytes)?;
        let pressed = keys(bytes.get(..count).unwrap_or_default());
        for key in &pressed {
            match key {
                TopKey::Char('q' | 'Q') | TopKey::Escape => return Ok(true),
                TopKey::Char(' ') => self.is_held = !self.is_held,
                TopKey::Char(letter) => self.sort = ActivitySort::of(*letter).unwrap_or(self.sort),
                _ => {}
            }
        }
        if !pressed.is_empty() {
            self.draw(0)?;
        }
        Ok(false)
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let is_screen = crate::streams::stdout().is_terminal() && std::io::stdin().is_terminal();
    let is_screen = is_screen && !args.stdio;
    let choice = TaskChoice::of(args)?;
    // Before any thread begins, which would be sent the signals otherwise.
    let signals = if is_screen {
        Some(Signals::listen(&TERMINAL_SIGNALS).context("cannot listen for signals")?)
    } else {
        None
    };
    let cpu_list = args.cpu.as_deref().map(cpus::parse_list).transpose().context("-C")?;
    let options = RecordOptions {
        events: recorded().specs(&CALLS)?,
        target: Target::System,
        cpus: cpu_list.clone().unwrap_or_default(),
        period: Some(1),
        // The kernel's functions show the cause of a wait; the program's are not needed.
        call_graph: Some(CallGraph::FramePointers),
        exclude: AttrFlags::EXCLUDE_CALLCHAIN_USER,
        pages: Some(args.mmap_pages.map_or(PAGES, |ring| ring.0)),
        timeout: args.timeout,
        ..RecordOptions::default()
    };
    let mut capture = PerfCapture::open(&options)?;
    let selection = select_events(&SCHED_EVENTS);
    let symbols = ResolverOptions::default();
    let mut samples = LiveSamples::new(&selection, capture.described(), &symbols);
    let mut existing = Vec::new();
    capture.tell_existing(true, &mut |record| existing.extend_from_slice(record))?;
    samples.push(&existing, &[]);
    drop(existing);
    capture.start()?;
    let count = cpu_list.map_or_else(|| cpus::online().len(), |list| list.len());
    let mut tasks = TaskActivities::default();
    let mut next = Instant::now() + args.delay();
    let (began, mut lost_before) = (Instant::now(), 0);
    let mut is_any_shown = false;
    let mut terminal = match signals {
        Some(signals) => Some(TaskTerminal {
            raw: RawTerminal::enter().context("the terminal")?,
            signals,
            shown: None,
            is_held: false,
            cpus: count,
            sort: ActivitySort::default(),
            choice: &choice,
        }),
        None => None,
    };
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let end = capture.wait(TICK.min(left))?;
        let quits = terminal.as_mut().map_or(Ok(false), TaskTerminal::listen)?;
        let is_over = end.is_some() || quits;
        if is_over {
            // What was switched on is switched off.
            capture.stop()?;
        }
        capture.round(&mut |first, second| samples.push(first, second));
        let mut take = |event: &kymo_events::RecordedEvent<'_>| {
            tasks.event(event);
            ControlFlow::Continue(())
        };
        let _ = if is_over { samples.finish(&mut take) } else { samples.end_round(&mut take) };
        if Instant::now() >= next || is_over {
            next += args.delay();
            let lost = samples.lost() - std::mem::replace(&mut lost_before, samples.lost());
            let interval = tasks.end_interval();
            is_any_shown |= interval.rows.iter().any(|row| choice.has(row));
            match &mut terminal {
                Some(terminal) if !quits => terminal.take(interval, lost)?,
                Some(_) => {}
                None => show(args, &choice, &interval, count, lost)?,
            }
        }
        if is_over {
            break;
        }
    }
    // The terminal is given back before anything is said on it.
    drop(terminal);
    let mut ledger = Ledger::from_notes(capture.notes().iter().cloned());
    if samples.lost() > 0 {
        let fact = format!("{} events lost: times of their tasks are wrong", samples.lost());
        ledger.note(NoteKind::Lost, fact, Some("a larger ring: -m".into()));
    }
    ledger.extend(Ledger::from_notes(note_kernel_numbers()));
    if !is_any_shown {
        let fact = "no task matches -p, -t and --comms, or none ran";
        ledger.note(NoteKind::Empty, fact, None);
    }
    let mismatched = tasks.machine().counts.mismatched;
    if mismatched > 0 {
        let fact = format!("{mismatched} switches away from a task that was not seen to run");
        ledger.note(NoteKind::Lost, fact, None);
    }
    let finished = capture.finish();
    let (used, elapsed) = (finished.used.as_secs_f64(), began.elapsed().as_secs_f64());
    let share = used * 100.0 / elapsed.max(f64::MIN_POSITIVE);
    let fact = format!("kymo itself used {share:.1}% of one CPU: {used:.3} s in {elapsed:.3} s");
    ledger.push(Note::choice(NoteKind::Overhead, fact, None));
    write!(crate::streams::styled_stdout(), "\n{}", ledger.to_text("# "))
        .context("standard output")?;
    Ok(exit::of_command(None, &ledger, args.strict))
}

/// Writes a page about the time since the one before.
fn show(
    args: &Args,
    choice: &TaskChoice,
    interval: &ActivityInterval,
    cpus: usize,
    lost: u64,
) -> anyhow::Result<()> {
    let mut columns = ActivityColumns { cpus, most: args.entries, width: usize::MAX };
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    if out.get_ref().is_terminal() && !args.stdio {
        crate::streams::control_stdout(CLEAR)?;
        if let Some((width, height)) = terminal_size() {
            columns.width = usize::from(width);
            // Both lines of the head, that of losses, and the cursor's.
            columns.most = usize::from(height).saturating_sub(4);
        }
    } else {
        writeln!(out)?;
    }
    if lost > 0 {
        writeln!(out, "{lost} events lost: times are wrong")?;
    }
    write_tasks(&mut out, interval, columns, &|row| choice.has(row)).context("standard output")?;
    Ok(())
}

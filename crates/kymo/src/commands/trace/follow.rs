//! Reading a run's events until its end, and saying what is missing.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::ops::ControlFlow;
use std::process::ExitCode;

use kymo_kernel::ftrace::Item;
use kymo_model::NoteKind;
use kymo_record::ftrace::TraceEvent;
use kymo_view::Ledger;

use super::names::{Formats, Tasks};
use super::source::{End, Pace, Source};
use super::text::Text;
use super::{Args, close, json};

/// Text is written in pieces of this size.
const OUTPUT: usize = 256 << 10;

pub(super) fn run(args: &Args, events: &[TraceEvent]) -> anyhow::Result<ExitCode> {
    let mut ledger = Ledger::default();
    let mut source = Source::open(args, events, Pace::Tick, &mut ledger)?;
    let mut printer = Printer::new(args, &source)?;
    printer.flush()?;
    if let Err(e) = source.start()? {
        sayln!("kymo: {e}");
        return Ok(ExitCode::from(e.shell_status()));
    }
    let result = until_the_end(&mut source, &mut printer);
    let (lost, code) = source.end(result)?;
    let (shown, unreadable) = printer.counts();
    note_lost(&mut ledger, shown, unreadable, &lost);
    Ok(close(args, &ledger, code))
}

/// `None`: as many events as were asked for.
fn until_the_end(source: &mut Source, printer: &mut Printer) -> anyhow::Result<Option<End>> {
    let mut end = None;
    loop {
        let more = source.stream.round(end.is_some(), &mut |item| printer.item(item))?;
        printer.flush()?;
        if printer.is_full() {
            return Ok(None);
        }
        if end.is_none() {
            end = source.wait(more)?;
            if end.is_some() {
                source.stop()?;
            }
        } else if !more {
            return Ok(end);
        }
    }
}

/// What is missing: events beside those shown, with what was said inline and what
/// the rings count; pages that were damaged and events of no known format.
pub(super) fn note_lost(
    ledger: &mut Ledger,
    (shown, inline): (u64, u64),
    (damaged, unknown): (u64, u64),
    lost: &[(u32, u64)],
) {
    let by_ring: u64 = lost.iter().map(|(_, n)| n).sum();
    let n = by_ring.max(inline);
    if n > 0 {
        let cpus: Vec<String> = lost.iter().map(|(cpu, n)| format!("CPU {cpu}: {n}")).collect();
        let cpus = if cpus.is_empty() { String::new() } else { format!(" ({})", cpus.join(", ")) };
        let advice = "a larger ring: --buffer-size 64M; or a --filter".to_owned();
        ledger.note(
            NoteKind::Lost,
            format!("{n} events lost beside {shown} shown{cpus}"),
            Some(advice),
        );
    }
    if damaged > 0 {
        let fact = format!("{damaged} ring pages could not be read to their end");
        ledger.note(NoteKind::Damaged, fact, None);
    }
    if unknown > 0 {
        let fact = format!("{unknown} events whose format is gone are not shown");
        ledger.note(NoteKind::Unknown, fact, None);
    }
}

/// Turns what comes into output.
pub(super) struct Printer {
    text: Text,
    json: bool,
    formats: Formats,
    tasks: Tasks,
    stale: bool,
    out: Vec<u8>,
    failed: Option<std::io::Error>,
    left: Option<u64>,
    shown: u64,
    lost: u64,
    damaged: u64,
    unknown: u64,
}

impl Printer {
    pub(super) fn new(args: &Args, source: &Source) -> anyhow::Result<Printer> {
        let colour = stdout().is_terminal()
            && anstream::AutoStream::choice(&stdout()) != anstream::ColorChoice::Never;
        let dir = source.dir();
        let out = if args.json { Vec::new() } else { source.header.clone().into_bytes() };
        Ok(Printer {
            text: Text::new(dir, &source.header, colour)?,
            json: args.json,
            formats: Formats::new(dir),
            tasks: Tasks::new(dir, dir.option("record-tgid") == Some(true)),
            stale: true,
            out,
            failed: None,
            left: args.count,
            shown: 0,
            lost: 0,
            damaged: 0,
            unknown: 0,
        })
    }

    /// Letters between CPU and time.
    pub(super) fn flags(&self) -> usize {
        if self.json { 0 } else { self.text.flags() }
    }

    /// The line of what comes, with its time; a mark of lost events waits for the event
    /// behind it.
    pub(super) fn line(&mut self, item: Item<'_>) -> Option<(u64, Vec<u8>)> {
        let time = if let Item::Event { time, .. } = item { Some(time) } else { None };
        let shown = self.shown;
        // Nothing is written before it is asked for.
        let _ = self.item(item);
        let time = time.filter(|_| self.shown > shown)?;
        Some((time, std::mem::take(&mut self.out)))
    }

    /// Begins a batch: names may have changed.
    pub(super) fn refresh(&mut self) {
        self.stale = true;
    }

    /// What tasks are called now.
    pub(super) fn tasks(&mut self) -> &Tasks {
        if std::mem::take(&mut self.stale) {
            self.tasks.refresh();
        }
        &self.tasks
    }

    /// What was shown, lost, damaged and unknown, for [`note_lost`].
    pub(super) fn counts(&self) -> ((u64, u64), (u64, u64)) {
        ((self.shown, self.lost), (self.damaged, self.unknown))
    }

    /// Whether nothing more is to be shown.
    fn is_full(&self) -> bool {
        self.left == Some(0)
    }

    fn item(&mut self, item: Item<'_>) -> ControlFlow<()> {
        match item {
            Item::Event { cpu, time, payload } => {
                if std::mem::take(&mut self.stale) {
                    self.tasks.refresh();
                }
                self.event(cpu, time, payload);
            }
            Item::Lost { cpu, count } => {
                self.lost += count.unwrap_or(1);
                match self.json {
                    true => json::lost(cpu, count, &mut self.out),
                    false => self.text.lost(cpu, count, &mut self.out),
                }
            }
            Item::Damaged { .. } => self.damaged += 1,
        }
        if self.out.len() >= OUTPUT {
            self.write();
        }
        match self.is_full() || self.failed.is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn event(&mut self, cpu: u32, time: u64, payload: &[u8]) {
        let event = (cpu, time, payload);
        let known = match self.json {
            true => json::event(&mut self.tasks, &mut self.formats, event, &mut self.out),
            false => self.text.event(&mut self.tasks, &mut self.formats, event, &mut self.out),
        };
        if !known {
            self.unknown += 1;
            return;
        }
        self.shown += 1;
        self.left = self.left.map(|n| n.saturating_sub(1));
    }

    fn write(&mut self) {
        if self.failed.is_none() {
            let mut out = stdout().lock();
            self.failed = out.write_all(&self.out).and_then(|()| out.flush()).err();
        }
        self.out.clear();
    }

    /// Ends a batch: what there is goes out, and names may change.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        if !self.out.is_empty() {
            self.write();
        }
        self.stale = true;
        match self.failed.take() {
            Some(e) => Err(e.into()),
            None => Ok(()),
        }
    }
}

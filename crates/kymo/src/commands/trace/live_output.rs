//! Output of live events: counted lines to the standard output, in pieces.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use kymo_events::live::{LiveEvents, LiveItem};
use kymo_kernel::ftrace::Item;
use kymo_model::NoteKind;
use kymo_record::ftrace::{LiveCapture, LostByCpu, RENAME};
use kymo_record::ust::ProgramNews;
use kymo_render::EventLines;
use kymo_render::ctf::CtfOptions;
use kymo_render::perf_script::{FieldSpec, LineStyle, TimeOrigin};
use kymo_render::program_event::CodeNames;
use kymo_render::trace_cmd::TraceCmdOptions;
use kymo_view::Ledger;

use super::Args;
use super::perf_form::perf_trace_options;

/// Text is written in pieces of this size.
const PIECE: usize = 256 << 10;

/// Lines on their way out.
pub(super) struct LiveOutput {
    lines: EventLines,
    out: Vec<u8>,
    failed: Option<std::io::Error>,
    left: Option<u64>,
    /// Renames are there for the names of tasks only.
    hides_renames: bool,
    shown: u64,
    lost: u64,
    damaged: u64,
}

/// Sources of events.
pub(super) enum LiveKinds<'k> {
    /// The kernel's, with times of this clock.
    Kernel(&'k str),
    /// Those of programs.
    Programs,
    /// Both.
    Both,
}

impl LiveOutput {
    /// `capture`: the rings of the kernel, if events of the kernel are shown.
    pub(super) fn new(
        args: &Args,
        kinds: LiveKinds<'_>,
        capture: Option<&LiveCapture>,
    ) -> anyhow::Result<LiveOutput> {
        let options = TraceCmdOptions { json: args.json, latency: args.latency, ns: args.ns };
        let lines = EventLines::new(options).with_colour(is_coloured());
        let lines = match perf_trace_options(args) {
            Some(options) => lines.as_perf_trace(options),
            None => lines,
        };
        let style = LineStyle { ragged: false, ns: args.ns, since: TimeOrigin::Epoch };
        let of_programs = CtfOptions { fields: FieldSpec::parse(&[])?, style, json: args.json };
        let lines = match kinds {
            LiveKinds::Kernel(clock) => lines.with_clock(clock),
            LiveKinds::Programs => lines.with_programs(&of_programs, false)?,
            LiveKinds::Both => lines.with_programs(&of_programs, true)?,
        };
        Ok(LiveOutput {
            lines,
            out: Vec::new(),
            failed: None,
            left: args.count,
            hides_renames: capture.is_some_and(LiveCapture::has_own_renames),
            shown: 0,
            lost: 0,
            damaged: 0,
        })
    }

    /// Takes what a ring of the kernel holds, which comes in order.
    pub(super) fn ring_item(
        &mut self,
        live: &mut LiveEvents<'_>,
        item: Item<'_>,
    ) -> ControlFlow<()> {
        match item {
            Item::Event { cpu, time, payload } => {
                live.kernel_event((cpu, time, payload), &mut |item| self.item(item))
            }
            Item::Lost { cpu, count } => self.item(LiveItem::Lost { cpu, count }),
            Item::Damaged { .. } => {
                self.add_damaged();
                ControlFlow::Continue(())
            }
        }
    }

    /// A page could not be read to its end.
    pub(super) fn add_damaged(&mut self) {
        self.damaged += 1;
    }

    /// Appends what comes; `Break` when nothing more is to be shown.
    pub(super) fn item(&mut self, item: LiveItem<'_, '_>) -> ControlFlow<()> {
        if let LiveItem::Event(event) = &item
            && self.hides_renames
            && event.class.is_named(RENAME)
        {
            return ControlFlow::Continue(());
        }
        self.lines.write_item(item, &mut self.out);
        match item {
            LiveItem::Event(_) => {
                self.shown += 1;
                self.left = self.left.map(|n| n.saturating_sub(1));
            }
            LiveItem::Lost { count, .. } => self.lost += count.unwrap_or(1),
        }
        if self.out.len() >= PIECE {
            self.write();
        }
        if self.is_full() || self.failed.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Takes over what is heard of a program; its events go into the window.
    pub(super) fn news(&mut self, live: &mut LiveEvents<'_>, number: u32, news: ProgramNews<'_>) {
        match news {
            ProgramNews::Trace(trace) => live.set_program(number, trace),
            ProgramNews::Mappings { pid, root, mappings } => {
                let names = || CodeNames::running(pid, root.map(Path::to_owned));
                self.lines.set_mappings(number, mappings, names);
            }
            ProgramNews::Event { time, event } => live.push_program_event(number, time, event),
        }
    }

    /// Whether nothing more is to be shown.
    pub(super) fn is_full(&self) -> bool {
        self.left == Some(0)
    }

    fn write(&mut self) {
        if self.failed.is_none() {
            let mut out = crate::streams::stdout().lock();
            self.failed = out.write_all(&self.out).and_then(|()| out.flush()).err();
        }
        self.out.clear();
    }

    /// Writes what there is.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.lines.finish_overdue(&mut self.out);
        self.write_out()
    }

    /// Writes what there is at the end.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        self.lines.finish(&mut self.out);
        self.write_out()
    }

    fn write_out(&mut self) -> anyhow::Result<()> {
        if !self.out.is_empty() {
            self.write();
        }
        match self.failed.take() {
            Some(e) => Err(e.into()),
            None => Ok(()),
        }
    }

    /// Adds warnings about events that rings lost, by CPU, and events that could not be shown.
    pub(super) fn note(&self, lost: &LostByCpu, ledger: &mut Ledger) {
        note_lost(ledger, (self.shown, self.lost), self.damaged, lost);
        self.lines.notes().into_iter().for_each(|note| ledger.push(note));
    }
}

/// Whether lines are for a terminal with colors.
pub(super) fn is_coloured() -> bool {
    crate::streams::stdout().is_terminal() && crate::streams::is_colored()
}

/// Adds warnings about lost events, beside those shown, from the inline marks and the counts of the
/// rings; and about damaged pages.
pub(super) fn note_lost(
    ledger: &mut Ledger,
    (shown, inline): (u64, u64),
    damaged: u64,
    lost: &LostByCpu,
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
}

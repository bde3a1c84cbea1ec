//! Events of a perf.data file: read and ordered on one thread, rendered on
//! others.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use kymo_files::perfdata::{Batch, Entry, Order, PerfData, ReadStats};
use kymo_format::Pen;
use kymo_model::{NoteKind, RecordKind};
use kymo_view::Ledger;

use super::Args;
use super::fields::Spec;
use super::filter::Filter;
use super::pool::{self, Job, Worker};
use super::sources::Wanted;
use super::symbols::Symbols;
use super::{json, output, sideband, text};
use crate::commands::report::header;
use crate::commands::{ending, losses};

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    let spec = Spec::parse(&args.fields)?;
    let mut data = PerfData::open(path)?;
    let filter = Filter::new(args, data.features().sample_time)?;
    if args.header || args.header_only {
        let mut text = Vec::new();
        header::write(&mut text, &data, path, false)?;
        output::write(&text)?;
        if args.header_only {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let order = if args.dump_raw_trace { Order::File } else { Order::Time };
    let first = Printer::new(args, spec, filter, data.name().to_owned());
    let n = number_of_printers(args, &data);
    let printers = std::iter::repeat_with(|| first.another()).take(n).collect();
    let (stats, printers) = read_and_print(&mut data, order, printers)?;
    let mut ledger = ledger(&data, &stats);
    note(&printers, &mut ledger);
    if !printers.iter().any(|p| p.shown) {
        ledger.tell(NoteKind::Nothing, super::nothing(args), None);
    }
    std::io::stderr().write_all(ledger.to_text("").as_bytes())?;
    let damage = stats.damaged.as_ref().map(|d| format!("{d}; what came before was printed"));
    Ok(ending::status(data.name(), damage.as_deref(), &ledger, args.strict))
}

/// Reads and orders on one thread, renders on others.
fn read_and_print(
    data: &mut PerfData,
    order: Order,
    printers: Vec<Printer>,
) -> anyhow::Result<(ReadStats, Vec<Printer>)> {
    let (stats, printers) = pool::run(printers, |give| {
        data.for_each_batch(order, &mut |batch| {
            let for_all = batch.others().next().is_some();
            give(Job { job: batch, for_all })
        })
    })?;
    Ok((stats?, printers))
}

/// More threads than this only wait for the reader.
const MOST_PRINTERS: usize = 4;

/// How many render. What a pipe tells of binaries comes bit by bit, and is not for all.
fn number_of_printers(args: &Args, data: &PerfData) -> usize {
    if data.is_pipe() || args.reltime || args.deltatime {
        return 1;
    }
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST_PRINTERS)
}

/// Everything that turns an entry into text.
struct Printer {
    filter: Filter,
    text: text::Text,
    sideband: sideband::Show,
    json: bool,
    dump: bool,
    file: String,
    /// Something was printed.
    shown: bool,
}

fn how(args: &Args, file: &str) -> text::How {
    text::How {
        chains: !args.hide_call_graph,
        max_stack: args.max_stack,
        style: args.style(),
        only: args.symbols.clone(),
        finding: args.finding.options(Path::new(file)),
        sources: Wanted { inlines: !args.no_inline, full_paths: args.full_source_path },
    }
}

impl Printer {
    fn new(args: &Args, spec: Spec, filter: Filter, file: String) -> Printer {
        Printer {
            filter,
            text: text::Text::new(spec, how(args, &file)),
            sideband: sideband::Show {
                tasks: args.show_task_events,
                mmaps: args.show_mmap_events,
                lost: args.show_lost_events,
                switches: args.show_switch_events,
            },
            json: args.json,
            dump: args.dump_raw_trace,
            file,
            shown: false,
        }
    }

    #[inline]
    fn print(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> anyhow::Result<()> {
        if self.dump {
            sideband::dump(entry, &self.file, out);
            return Ok(());
        }
        if entry.raw.kind != RecordKind::SAMPLE {
            self.text.apply(entry);
            if self.sideband.wants(entry.raw.kind) && !self.json {
                self.sideband.print(entry, &mut self.text, out);
            }
            return Ok(());
        }
        if self.json {
            json::print(entry, &self.filter, &mut self.text, out)
        } else {
            self.text.print(entry, &self.filter, out)
        }
    }

    fn print_all(&mut self, batch: &Batch, out: &mut Vec<u8>) -> anyhow::Result<()> {
        if self.dump || self.json || !self.text.is_usual(&self.filter) {
            return batch.entries().try_for_each(|e| self.print(&e, out));
        }
        let mut entries = batch.entries();
        loop {
            let mut pen = Pen::new(out);
            let other = entries
                .find(|e| e.raw.kind != RecordKind::SAMPLE || !self.text.print_plain(e, &mut pen));
            pen.end();
            let Some(other) = other else { return Ok(()) };
            self.print(&other, out)?;
        }
    }

    /// One that begins with nothing seen.
    fn another(&self) -> Printer {
        Printer {
            filter: self.filter.clone(),
            text: self.text.another(),
            file: self.file.clone(),
            ..*self
        }
    }
}

impl Worker<Batch> for Printer {
    fn render(&mut self, batch: &Batch, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let before = out.len();
        let printed = self.print_all(batch, out);
        self.text.end_batch(before, out);
        printed?;
        self.shown |= out.len() > before;
        Ok(())
    }

    fn pass(&mut self, batch: &Batch) {
        batch.others().for_each(|e| self.text.apply(&e));
    }
}

/// What the printers met.
fn note(printers: &[Printer], ledger: &mut Ledger) {
    let n: u64 = printers.iter().map(|p| p.text.malformed).sum();
    if n > 0 {
        ledger.note(
            NoteKind::Malformed,
            format!("{n} samples are shorter than their fields"),
            None,
        );
    }
    let notes = kymo_events::perf_data::note(printers.iter().map(|p| &p.text.trace));
    notes.into_iter().for_each(|n| ledger.push(n));
    Symbols::note(printers.iter().map(|p| &p.text.symbols), ledger);
}

/// What could make the output less than the truth.
fn ledger(data: &PerfData, s: &ReadStats) -> Ledger {
    let mut l = Ledger::default();
    losses::note(s, &data.features().cmdline, &mut l);
    if s.throttled > 0 {
        let advice = "record at a lower frequency: -F".to_owned();
        l.note(
            NoteKind::Throttled,
            format!("sampling was throttled {} times", s.throttled),
            Some(advice),
        );
    }
    for (kind, n) in &s.unknown_kinds {
        l.note(NoteKind::Unknown, format!("{n} records of unknown kind {kind} passed over"), None);
    }
    if s.unknown_ids > 0 {
        l.note(NoteKind::Unknown, format!("{} samples of no known event", s.unknown_ids), None);
    }
    if s.malformed > 0 {
        l.note(NoteKind::Malformed, format!("{} records are too short", s.malformed), None);
    }
    if s.cut_compressed > 0 {
        let n = s.cut_compressed;
        let fact = format!(
            "the compressed data ends {n} bytes into a record, as perf record -z at times \
             leaves it: the last event is missing, those before are complete"
        );
        l.note(NoteKind::Cut, fact, None);
    }
    if s.out_of_order > 0 {
        l.note(NoteKind::Order, format!("{} events are out of order", s.out_of_order), None);
    }
    if s.forced_flushes > 0 {
        let n = s.forced_flushes;
        l.note(NoteKind::Order, format!("the reorder window overflowed {n} times"), None);
    }
    if s.unfinished {
        l.note(NoteKind::Unfinished, "the recorder did not finish the file: its size is 0", None);
    }
    for note in data.notes() {
        l.note(NoteKind::Damaged, note.clone(), None);
    }
    l
}

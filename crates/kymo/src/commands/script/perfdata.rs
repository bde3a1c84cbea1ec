//! Events of a perf.data file: read and ordered on one thread, rendered on
//! another.

mod header;

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use kymo_files::perfdata::{Batch, Entry, Order, PerfData, ReadError, ReadStats};
use kymo_view::Ledger;

use super::Args;
use super::fields::Spec;
use super::filter::Filter;
use super::output::{Output, PIECE};
use super::{json, sideband, text};

/// Batches under way between the threads.
const IN_FLIGHT: usize = 3;

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    let spec = Spec::parse(&args.fields)?;
    let filter = Filter::new(args)?;
    let mut data = PerfData::open(path)?;
    let mut out = Output::default();
    if args.header || args.header_only {
        header::write(&data, &mut out.text);
        out.flush()?;
        if args.header_only {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let order = if args.dump_raw_trace { Order::File } else { Order::Time };
    let mut printer = Printer::new(args, spec, filter, data.name().to_owned());
    let stats = read_and_print(&mut data, order, &mut printer, &mut out)?;
    out.flush()?;
    let mut ledger = ledger(&data, &stats);
    printer.note(&mut ledger);
    std::io::stderr().write_all(ledger.to_text("").as_bytes())?;
    if let Some(damage) = &stats.damaged {
        anstream::eprintln!("kymo: {}: {damage}; what came before was printed", data.name());
        return Ok(ExitCode::FAILURE);
    }
    if args.strict && ledger.has_doubts() {
        return Ok(ExitCode::from(Ledger::STRICT_STATUS));
    }
    Ok(ExitCode::SUCCESS)
}

/// The reader runs on a thread of its own and sends batches; used ones go back.
fn read_and_print(
    data: &mut PerfData,
    order: Order,
    printer: &mut Printer,
    out: &mut Output,
) -> anyhow::Result<ReadStats> {
    let (send, receive): (SyncSender<Batch>, Receiver<Batch>) = sync_channel(IN_FLIGHT);
    let (give_back, used) = sync_channel::<Batch>(IN_FLIGHT + 2);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || -> Result<ReadStats, ReadError> {
            data.for_each_batch(order, &mut |batch| {
                let spare = used.try_recv().ok();
                match send.send(batch) {
                    Ok(()) => (ControlFlow::Continue(()), spare),
                    // The printing side gave up: a closed pipe, a full disk.
                    Err(_) => (ControlFlow::Break(()), None),
                }
            })
        });
        let mut result = Ok(());
        for batch in &receive {
            result = batch.entries().try_for_each(|e| {
                printer.print(&e, &mut out.text)?;
                out.drain(PIECE)
            });
            if result.is_err() {
                break;
            }
            let _ = give_back.try_send(batch);
            // Whoever follows a live recording wants to see what there is.
            result = out.drain(if printer.live { 1 } else { PIECE });
            if result.is_err() {
                break;
            }
        }
        drop(receive);
        let stats = reader.join().map_err(|_| anyhow::anyhow!("the reading thread failed"))??;
        result?;
        Ok(stats)
    })
}

/// Everything that turns an entry into text.
struct Printer {
    filter: Filter,
    text: text::Text,
    sideband: sideband::Show,
    json: bool,
    dump: bool,
    live: bool,
    file: String,
}

impl Printer {
    fn new(args: &Args, spec: Spec, filter: Filter, file: String) -> Printer {
        Printer {
            filter,
            text: text::Text::new(spec, !args.hide_call_graph, args.ns),
            sideband: sideband::Show {
                tasks: args.show_task_events,
                mmaps: args.show_mmap_events,
                lost: args.show_lost_events,
                switches: args.show_switch_events,
            },
            json: args.json,
            dump: args.dump_raw_trace,
            live: file == "standard input",
            file,
        }
    }

    #[inline]
    fn print(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> anyhow::Result<()> {
        if self.dump {
            sideband::dump(entry, &self.file, out);
            return Ok(());
        }
        if entry.raw.kind != kymo_model::RecordKind::SAMPLE {
            self.text.symbols.apply(entry);
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

    fn note(&self, ledger: &mut Ledger) {
        let n = self.text.malformed;
        if n > 0 {
            ledger.note("malformed", format!("{n} samples are shorter than their fields"), None);
        }
        self.text.trace.note(ledger);
        self.text.symbols.note(ledger);
    }
}

/// What could make the output less than the truth.
fn ledger(data: &PerfData, s: &ReadStats) -> Ledger {
    let mut l = Ledger::default();
    let more = || Some("record with larger rings: -m 1024".to_owned());
    if s.lost > 0 {
        l.note("lost", format!("{} events lost in {} places", s.lost, s.lost_chunks), more());
    }
    // Recorders of today count what LOST records say once more, by event, at the end.
    if s.lost_samples > s.lost {
        l.note("lost", format!("{} samples lost", s.lost_samples), more());
    }
    if s.throttled > 0 {
        let advice = "record at a lower frequency: -F".to_owned();
        l.note("throttled", format!("sampling was throttled {} times", s.throttled), Some(advice));
    }
    for (kind, n) in &s.unknown_kinds {
        l.note("unknown", format!("{n} records of unknown kind {kind} passed over"), None);
    }
    if s.unknown_ids > 0 {
        l.note("unknown", format!("{} samples of no known event", s.unknown_ids), None);
    }
    if s.malformed > 0 {
        l.note("malformed", format!("{} records are too short", s.malformed), None);
    }
    if s.out_of_order > 0 {
        l.note("order", format!("{} events are out of order", s.out_of_order), None);
    }
    if s.forced_flushes > 0 {
        let n = s.forced_flushes;
        l.note("order", format!("the reorder window overflowed {n} times"), None);
    }
    if s.unfinished {
        l.note("unfinished", "the recorder did not finish the file: its size is 0", None);
    }
    for note in data.notes() {
        l.note("damaged", note.clone(), None);
    }
    l
}

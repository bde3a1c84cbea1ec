//! `kymo script`: the events of a recording as text, laid out as perf script
//! does, or as JSON lines.
//!
//! Reading and ordering happen on one thread, rendering on another.

mod fields;
mod filter;
mod json;
mod number;
mod sideband;
mod symbols;
mod text;
mod trace;

use std::io::{Write, stdout};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::Context as _;
use kymo_files::perfdata::{Batch, Entry, Feature, Order, PerfData, ReadError, ReadStats};
use kymo_view::Ledger;

use fields::Spec;
use filter::Filter;

/// Flags of `kymo script`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The recording; `-` is the standard input
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Fields to print, `[type:]a,b,…` or `+a,-b`: comm, tid, pid, time, cpu, event, trace, ip,
    /// sym, symoff, dso, addr, period, weight, data_src, phys_addr; types: hw, sw, trace, raw
    #[arg(short = 'F', long, value_name = "SPEC", allow_hyphen_values = true)]
    fields: Vec<String>,
    /// Print one JSON object a line, with typed fields
    #[arg(long)]
    json: bool,
    /// Only events between START,STOP (seconds; either may be missing)
    #[arg(long, value_name = "START,STOP", allow_hyphen_values = true)]
    time: Option<String>,
    /// Only events of these CPUs (`0,2-3`)
    #[arg(short = 'C', long, value_name = "LIST")]
    cpu: Option<String>,
    /// Only events of tasks with these names
    #[arg(short = 'c', long, visible_alias = "comms", value_name = "NAMES", value_delimiter = ',')]
    comm: Vec<String>,
    /// Only events of these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only events of these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Only these events (names or globs)
    #[arg(long = "event", value_name = "NAMES", value_delimiter = ',')]
    events: Vec<String>,
    /// Print no call chains
    #[arg(short = 'G', long)]
    hide_call_graph: bool,
    /// Print times in nanoseconds
    #[arg(long)]
    ns: bool,
    /// Print what the recording says of the machine first
    #[arg(long)]
    header: bool,
    /// Print only that
    #[arg(long)]
    header_only: bool,
    /// Dump every record's bytes
    #[arg(short = 'D', long)]
    dump_raw_trace: bool,
    /// Also print FORK, COMM and EXIT records
    #[arg(long)]
    show_task_events: bool,
    /// Also print MMAP records
    #[arg(long)]
    show_mmap_events: bool,
    /// Also print LOST records
    #[arg(long)]
    show_lost_events: bool,
    /// Also print SWITCH records
    #[arg(long)]
    show_switch_events: bool,
    /// Exit with status 3 if anything makes the output less than trustworthy
    #[arg(long)]
    strict: bool,
}

/// Text is written in pieces of this size.
const OUTPUT: usize = 256 << 10;
/// Batches under way between the threads.
const IN_FLIGHT: usize = 3;

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let path = args.input.clone().unwrap_or_else(PerfData::default_path);
    let spec = Spec::parse(&args.fields)?;
    let filter = Filter::new(&args)?;
    let mut data = PerfData::open(&path)?;
    let mut out = Output::default();
    if args.header || args.header_only {
        header(&data, &mut out.text);
        out.flush()?;
        if args.header_only {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let order = if args.dump_raw_trace { Order::File } else { Order::Time };
    let mut printer = Printer::new(&args, spec, filter, data.name().to_owned());
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
                out.drain(OUTPUT)
            });
            if result.is_err() {
                break;
            }
            let _ = give_back.try_send(batch);
            // Whoever follows a live recording wants to see what there is.
            result = out.drain(if printer.live { 1 } else { OUTPUT });
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

/// Text on its way to the standard output.
#[derive(Default)]
struct Output {
    text: Vec<u8>,
}

impl Output {
    #[inline]
    fn drain(&mut self, at_least: usize) -> anyhow::Result<()> {
        if self.text.len() < at_least { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let mut stdout = stdout().lock();
        stdout.write_all(&self.text).and_then(|()| stdout.flush()).context("standard output")?;
        self.text.clear();
        Ok(())
    }
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

/// What the feature sections say, as perf's `--header` lays it out.
fn header(data: &PerfData, out: &mut Vec<u8>) {
    let f = data.features();
    let mut line = |text: std::fmt::Arguments<'_>| {
        let _ = writeln!(out, "# {text}");
    };
    line(format_args!("========"));
    line(format_args!("header version : {}", data.version()));
    let (offset, size) = data.data_range();
    line(format_args!("data offset    : {offset}"));
    line(format_args!("data size      : {size}"));
    line(format_args!("feat offset    : {}", offset + size));
    for (name, value) in [
        ("hostname", &f.hostname),
        ("os release", &f.osrelease),
        ("perf version", &f.version),
        ("arch", &f.arch),
    ] {
        if let Some(value) = value {
            line(format_args!("{name} : {value}"));
        }
    }
    if let Some((available, online)) = f.nrcpus {
        line(format_args!("nrcpus online : {online}"));
        line(format_args!("nrcpus avail : {available}"));
    }
    if let Some(v) = &f.cpudesc {
        line(format_args!("cpudesc : {v}"));
    }
    if let Some(v) = &f.cpuid {
        line(format_args!("cpuid : {v}"));
    }
    if let Some(v) = f.total_mem {
        line(format_args!("total memory : {v} kB"));
    }
    if !f.cmdline.is_empty() {
        line(format_args!("cmdline : {} ", f.cmdline.join(" ")));
    }
    for e in data.events() {
        let a = &e.attr;
        line(format_args!(
            "event : name = {}, type = {}, size = {}, config = {:#x}, {{ sample_period, \
             sample_freq }} = {}, sample_type = {:#x}",
            e.name,
            a.kind.0,
            kymo_model::Attr::SIZE,
            a.config,
            a.sample_period,
            a.sample_type.bits()
        ));
    }
    if let Some((first, last)) = f.sample_time {
        let seconds = |t: u64| format!("{}.{:06}", t / 1_000_000_000, t % 1_000_000_000 / 1000);
        line(format_args!("time of first sample : {}", seconds(first)));
        line(format_args!("time of last sample : {}", seconds(last)));
        let ms = last.saturating_sub(first) as f64 / 1e6;
        line(format_args!("sample duration : {ms:10.3} ms"));
    }
    let others: Vec<String> = f
        .raw
        .keys()
        .filter(|k| **k > Feature::SAMPLE_TIME)
        .map(|k| k.name().map_or_else(|| k.0.to_string(), str::to_owned))
        .collect();
    if !others.is_empty() {
        line(format_args!("other sections : {}", others.join(" ")));
    }
    line(format_args!("========"));
    line(format_args!(""));
}

//! Events of a trace.dat file, laid out as `trace-cmd report` does. They are
//! merged and gathered on one thread, rendered on others.

mod batch;
mod line;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use kymo_files::tracedat::{Buffer, TraceDat};
use kymo_view::Ledger;

use super::filter::Filter;
use super::payload::{KallsymsSource, Names};
use super::{Args, output, pool};
use crate::commands::tracedat::{Formats, damaged, ledger};
use line::Printer;

/// More threads than this only wait for the one that merges.
const MOST_PRINTERS: usize = 6;

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    refuse(args)?;
    let data = TraceDat::open(path)?;
    let shares = args.time.as_ref().is_some_and(|t| t.contains('%'));
    let filter = Filter::new(args, shares.then(|| data.span()).flatten())?;
    if args.header || args.header_only {
        output::write(header(&data).as_bytes())?;
        if args.header_only {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let machine = data.machine();
    let kallsyms = KallsymsSource::EmbeddedByKernel(machine.kallsyms.clone());
    let names = Names::new(kallsyms, &machine.printk_formats);
    let formats = Formats::new(&data);
    if !args.json {
        output::write(cpus(&data).as_bytes())?;
    }
    texts(&data)?;
    let n = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_PRINTERS);
    let first = Printer::new(args, &data, &formats, &names, filter.clone());
    let printers = std::iter::repeat_with(|| first.another()).take(n).collect();
    let feed = batch::Feed::new(&data, &formats, &filter, !args.json);
    let (stats, printers) = pool::run(printers, |give| feed.run(give))?;
    let stats = stats?;
    let mut ledger = ledger(&data, &stats);
    line::note(&printers, &mut ledger);
    std::io::stderr().write_all(ledger.to_text("").as_bytes())?;
    if damaged(&data, &stats) {
        anstream::eprintln!("kymo: {}: damaged; what can be read was printed", data.name());
        return Ok(ExitCode::FAILURE);
    }
    if args.strict && ledger.has_doubts() {
        return Ok(ExitCode::from(Ledger::STRICT_STATUS));
    }
    Ok(ExitCode::SUCCESS)
}

/// Flags that mean nothing for ring pages.
fn refuse(args: &Args) -> anyhow::Result<()> {
    let shows = args.show_task_events
        || args.show_mmap_events
        || args.show_lost_events
        || args.show_switch_events;
    for (given, flag) in [
        (!args.fields.is_empty(), "-F"),
        (args.dump_raw_trace, "-D"),
        (shows, "--show-…-events"),
        (args.reltime, "--reltime"),
        (args.deltatime, "--deltatime"),
        (!args.symbols.is_empty(), "-S"),
    ] {
        if given {
            bail!("{flag} is for perf.data, not for a trace.dat");
        }
    }
    Ok(())
}

/// The line trace-cmd begins with.
fn cpus(data: &TraceDat) -> String {
    let most = data.buffers().iter().map(|b| b.cpus.len() as u32).max().unwrap_or(0);
    format!("cpus={}\n", data.options().cpu_count.unwrap_or(most))
}

/// Recordings of latency tracers hold the kernel's own text.
fn texts(data: &TraceDat) -> anyhow::Result<()> {
    for buffer in data.buffers().iter().filter(|b| b.text.is_some()) {
        data.read_text(buffer, &mut output::write)?;
    }
    Ok(())
}

/// What the file says of the machine and of itself.
fn header(data: &TraceDat) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        for (i, value) in value.trim_end().lines().enumerate() {
            let name = if i == 0 { name } else { "" };
            let colon = if i == 0 { ':' } else { ' ' };
            out.push_str(&format!("# {name:<14}{colon} {value}\n"));
        }
    };
    let o = data.options();
    line("version", &data.version().to_string());
    line("byte order", if data.endian() == kymo_model::Endian::Big { "big" } else { "little" });
    line("page size", &data.page_size().to_string());
    line("compression", data.compression().name());
    for (name, value) in [("uname", &o.uname), ("recorded by", &o.version), ("date", &o.date)] {
        line(name, value.as_deref().unwrap_or(""));
    }
    if let Some(id) = o.trace_id {
        line("trace id", &format!("{id:#x}"));
    }
    data.buffers().iter().for_each(|b| line("instance", &instance(b)));
    for stat in &o.cpustat {
        line("statistics", stat);
    }
    out
}

fn instance(b: &Buffer) -> String {
    let bytes: u64 = b.cpus.iter().map(|c| c.size).sum();
    let name = if b.name.is_empty() { "(top)" } else { &b.name };
    format!("{name}, clock {}, {} CPUs, {bytes} bytes", b.clock, b.cpus.len())
}

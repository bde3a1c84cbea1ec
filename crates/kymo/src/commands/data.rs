//! `kymo data convert`: a perf.data as JSON, or as a CTF trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use kymo_events::state_history::StateTracker;
use kymo_events::{EventSelection, notes_on_perf_data, parse_times};
use kymo_files::ctf::types::CtfVersion;
use kymo_files::ctf::write::Directory;
use kymo_files::perfdata::{PerfData, PerfDataReadStats, RecordOrder};
use kymo_format::json_string;
use kymo_kernel::calendar::format_utc_time;
use kymo_model::{Note, NoteKind};
use kymo_render::perf_ctf::PerfCtf;
use kymo_render::perf_script::{
    DataJsonWriter, FrameAddresses, LineStyle, SampleTextOptions, SourceOptions,
};
use kymo_symbols::Resolver;
use kymo_view::Ledger;
use kymo_view::trust::note_symbols;

use super::output;
use crate::args::symbols::SymbolArgs;
use crate::args::values::ctf_version;
use crate::exit;

/// Flags of `kymo data`.
#[derive(clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Subcommand)]
enum DataCommand {
    /// Convert a perf.data to JSON or CTF
    Convert(Box<Convert>),
}

/// Flags of `kymo data convert`.
#[derive(clap::Args)]
#[command(after_help = "\
--to-json writes perf's JSON layout: a header and an array with one object per sample (task, CPU,
call chain, and tracepoint fields as text). `kymo script --json` writes one object per line, with
typed fields, for any recording.")]
struct Convert {
    /// The perf.data
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write JSON to this file
    #[arg(long, value_name = "FILE", required_unless_present = "to_ctf")]
    to_json: Option<PathBuf>,
    /// Write a CTF trace to this new directory
    #[arg(long, value_name = "DIR", conflicts_with = "to_json")]
    to_ctf: Option<PathBuf>,
    /// Version of CTF: 1.8 or 2
    #[arg(long, value_name = "VERSION", default_value = "1.8", value_parser = ctf_version)]
    ctf: CtfVersion,
    /// With --to-ctf: also write tasks and mappings
    #[arg(long, conflicts_with = "to_json")]
    all: bool,
    /// With --to-ctf: write times since 1970 (needs `record -k`)
    #[arg(long, conflicts_with = "to_json")]
    tod: bool,
    /// Only this time range: START,STOP in seconds, or a share (10%-20%)
    ///
    /// START or STOP may be omitted. Shares of the recording: 0%-10%, or 10%/2 for the second
    /// tenth.
    #[arg(long, value_name = "START,STOP", allow_hyphen_values = true)]
    time: Option<String>,
    #[command(flatten)]
    finding: SymbolArgs,
    /// Overwrite an existing file
    #[arg(short, long)]
    force: bool,
    /// No effect: warnings are always shown
    #[arg(short, long)]
    verbose: bool,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let DataCommand::Convert(args) = args.command;
    let path = args.input.clone().unwrap_or_else(PerfData::default_path);
    let mut data = PerfData::open(&path)?;
    let mut selection = EventSelection::default();
    if let Some(times) = &args.time {
        selection.times = parse_times(times, data.sample_span()?)?;
    }
    let mut ledger = Ledger::default();
    let stats = match &args.to_ctf {
        Some(directory) => to_ctf(&args, directory, &mut data, &selection, &mut ledger)?,
        None => to_json(&args, &path, &mut data, selection.clone(), &mut ledger)?,
    };
    let mut all = Ledger::from_notes(notes_on_perf_data(&data, &stats));
    selection.unmet_notes_in(&mut data).into_iter().for_each(|note| all.push(note));
    all.extend(ledger);
    say!("{}", all.to_text(""));
    let damage = stats.damaged.as_ref().map(|d| format!("{d}; everything before it was converted"));
    Ok(exit::status(data.name(), damage.as_deref(), &all, args.strict))
}

fn to_json(
    args: &Convert,
    path: &Path,
    data: &mut PerfData,
    selection: EventSelection,
    ledger: &mut Ledger,
) -> anyhow::Result<PerfDataReadStats> {
    let symbols = args.finding.options(path);
    let bundle = symbols.bundle.clone();
    let mut tracker = StateTracker::new(Resolver::new(symbols));
    let options = SampleTextOptions {
        chains: true,
        max_stack: usize::MAX,
        addresses: FrameAddresses::Binary,
        style: LineStyle::default(),
        stop_at: Vec::new(),
        only: Vec::new(),
        addr_range: 0,
        dsos: Vec::new(),
        bundle,
        sources: SourceOptions { inlines: false, full_paths: false },
    };
    let mut writer = DataJsonWriter::new(tracker.reader(), options, selection)?;
    let mut stats = PerfDataReadStats::default();
    let target = args.to_json.clone().unwrap_or_default();
    output::write(Some(&target), args.force, &mut |out| {
        let mut text = Vec::new();
        json_header(path, data, &mut text);
        text.extend_from_slice(b",\n\t\"samples\": [");
        let mut failed = Ok(());
        let read = data.for_each_batch(RecordOrder::Time, &mut |records| {
            let state = tracker.apply(&records);
            failed = writer
                .write(&records, &state, &mut text)
                .map_err(std::io::Error::other)
                .and_then(|()| out.write_all(&text));
            text.clear();
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        failed?;
        stats = read.map_err(std::io::Error::other)?;
        out.write_all(&text)?;
        out.write_all(b"\n\t]\n}\n")
    })?;
    note_malformed(writer.malformed(), ledger);
    note_symbols(&tracker.into_machine().symbols, ledger);
    sayln!("[ kymo data convert: wrote {} samples to {} ]", writer.samples, target.display());
    Ok(stats)
}

/// Header of the file: its version, and where and how it was recorded.
fn json_header(path: &Path, data: &PerfData, out: &mut Vec<u8>) {
    let f = data.features();
    let (offset, size) = data.data_range();
    let _ = write!(
        out,
        "{{\n\t\"linux-perf-json-version\": 1,\n\t\"headers\": {{\n\t\t\"header-version\": {}",
        // perf counts from 0.
        data.version().saturating_sub(1)
    );
    let text = |out: &mut Vec<u8>, name: &str, value: &str| {
        let _ = write!(out, ",\n\t\t\"{name}\": ");
        json_string(out, value.as_bytes());
    };
    let number = |out: &mut Vec<u8>, name: &str, value: u64| {
        let _ = write!(out, ",\n\t\t\"{name}\": {value}");
    };
    if let Ok(meta) = std::fs::metadata(path) {
        text(out, "captured-on", &format_utc_time("%Y-%m-%dT%H:%M:%SZ", meta.mtime()));
    }
    number(out, "data-offset", offset);
    number(out, "data-size", size);
    number(out, "feat-offset", offset.saturating_add(size));
    let known = [
        ("hostname", &f.hostname),
        ("os-release", &f.osrelease),
        ("arch", &f.arch),
        ("cpu-desc", &f.cpudesc),
        ("cpuid", &f.cpuid),
    ];
    for (name, value) in known {
        if let Some(value) = value {
            text(out, name, value);
        }
    }
    if let Some((available, online)) = f.nrcpus {
        number(out, "nrcpus-online", online.into());
        number(out, "nrcpus-avail", available.into());
    }
    if let Some(moment) = f.clock_data(data.endian()) {
        number(out, "clockid", moment.clock_id.into());
        number(out, "clock-time", moment.clock_time);
        number(out, "real-time", moment.time_of_day);
    }
    text(out, "perf-version", f.version.as_deref().unwrap_or_default());
    out.extend_from_slice(b",\n\t\t\"cmdline\": [");
    for (n, word) in f.cmdline.iter().enumerate() {
        out.extend_from_slice(if n > 0 { b",\n\t\t\t" } else { b"\n\t\t\t" });
        json_string(out, word.as_bytes());
    }
    out.extend_from_slice(b"\n\t\t]\n\t}");
}

fn to_ctf(
    args: &Convert,
    directory: &Path,
    data: &mut PerfData,
    selection: &EventSelection,
    ledger: &mut Ledger,
) -> anyhow::Result<PerfDataReadStats> {
    if data.is_pipe() {
        bail!("the events of a stream are known only while it is read: name a file with -i");
    }
    let offset = match (args.tod, data.features().clock_data(data.endian())) {
        (true, Some(moment)) => {
            Some(i128::from(moment.time_of_day) - i128::from(moment.clock_time))
        }
        (true, None) => bail!("the recording does not tell real time: record with -k CLOCK"),
        (false, _) => None,
    };
    let what = || format!("cannot write {}", directory.display());
    if args.force {
        remove_trace(directory).with_context(what)?;
    } else if directory.exists() {
        bail!("{} already exists; --force replaces a trace", directory.display());
    }
    let mut ctf = PerfCtf::new(data, args.all);
    let mut metadata = ctf.metadata(data, offset);
    metadata.version = args.ctf;
    let made = Directory::create(directory, &metadata).with_context(what)?;
    let mut streams: BTreeMap<u32, File> = BTreeMap::new();
    let mut write = |(cpu, packet): (u32, Vec<u8>)| -> std::io::Result<()> {
        let stream = match streams.entry(cpu) {
            std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(made.stream(&format!("perf_stream_{cpu}"))?)
            }
        };
        stream.write_all(&packet)
    };
    let mut failed = Ok(());
    let stats = data.for_each(RecordOrder::Time, &mut |entry| {
        let packet = ctf.record(entry, selection.wants_time(entry.time));
        failed = packet.map_or(Ok(()), &mut write);
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed.and_then(|()| ctf.finish().try_for_each(&mut write)).with_context(what)?;
    note_malformed(ctf.malformed, ledger);
    let (samples, others) = ctf.written;
    let others = if args.all { format!(", {others} other records") } else { String::new() };
    sayln!("[ kymo data convert: wrote {samples} samples{others} to {} ]", directory.display());
    Ok(stats)
}

/// Removes the files of a trace that was written before, and nothing else.
fn remove_trace(directory: &Path) -> std::io::Result<()> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let name = entry?.file_name();
        let bytes = name.as_encoded_bytes();
        if bytes == b"metadata" || bytes.starts_with(b"perf_stream_") {
            std::fs::remove_file(directory.join(name))?;
        }
    }
    Ok(())
}

fn note_malformed(count: u64, ledger: &mut Ledger) {
    if count > 0 {
        let fact = format!("{count} samples are shorter than their fields");
        ledger.push(Note::doubt(NoteKind::Malformed, fact, None));
    }
}

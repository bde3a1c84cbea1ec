//! `kymo list -i FILE`: the events of a trace.dat, of CTF traces or of a session with
//! both, how many of each there are, and what they look like.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use globset::{Glob, GlobSet, GlobSetBuilder};
use kymo_files::{Moment, RecordingFormat, Select, Stats, Timeline, TimelineError};
use kymo_format::EventFormat;
use kymo_model::NoteKind;
use kymo_view::Ledger;
use serde_json::{Value, json};

use super::{Args, ctf};
use crate::exit;
use kymo_events::trace_dat::FormatTable;
use kymo_events::{is_damaged, notes_on_timeline};

/// Events of the kernel by name, with their formats and how often they happened.
type Entries<'f> = BTreeMap<&'f str, (&'f EventFormat, u64)>;

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    if RecordingFormat::of(path) == Some(RecordingFormat::PerfData) {
        bail!("{} is a perf.data file: kymo report --header-only names its events", path.display());
    }
    let timeline = Timeline::open(&[path.to_owned()])?;
    let formats: Vec<FormatTable<'_>> = timeline.kernels().iter().map(FormatTable::new).collect();
    let globs = globs(&args.globs)?;
    let (counts, stats) = count(&timeline, &formats)?;
    let mut ledger = Ledger::from_notes(notes_on_timeline(&timeline, &stats));
    let (mut kernel, mut others) = (Entries::new(), 0);
    for (formats, counts) in formats.iter().zip(&counts.kernels) {
        others += add(&mut kernel, formats, counts, globs.as_ref(), &mut ledger);
    }
    let mut programs = ctf::Entries::new();
    if let Some(traces) = timeline.programs() {
        let more;
        (programs, more) = ctf::entries(traces, &counts.programs, globs.as_ref());
        others += more;
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        as_json(&mut out, objects(&kernel).chain(ctf::objects(&programs)))?;
    } else if args.raw_dump {
        let mut names = kernel.keys().chain(programs.keys());
        names.try_for_each(|name| write!(out, "{name} "))?;
        writeln!(out)?;
    } else {
        text(&mut out, &kernel, args.verbose)?;
        ctf::text(&mut out, &programs, args.verbose)?;
        if globs.is_none() && others > 0 {
            writeln!(out, "\n  and {others} more events that did not happen: name them, or '*'")?;
        }
    }
    out.flush()?;
    io::stderr().write_all(ledger.to_text("").as_bytes())?;
    let damage = is_damaged(&timeline, &stats).then_some("damaged; what can be read is counted");
    Ok(exit::status(timeline.name(), damage, &ledger, false))
}

/// Takes in the events of one recording; how many others there are.
fn add<'f>(
    entries: &mut Entries<'f>,
    formats: &'f FormatTable<'_>,
    counts: &[u64],
    globs: Option<&GlobSet>,
    ledger: &mut Ledger,
) -> u64 {
    let mut others = 0;
    for known in formats.iter() {
        let known = match known {
            Ok(known) => known,
            Err(why) => {
                ledger.note(NoteKind::Format, why, None);
                continue;
            }
        };
        let id = usize::try_from(known.format.id).unwrap_or(usize::MAX);
        let events = counts.get(id).copied().unwrap_or(0);
        // Without globs only what happened; with globs all that could have.
        let wanted = match globs {
            None => events > 0,
            Some(set) => set.is_match(&known.full_name) || set.is_match(&known.format.name),
        };
        match wanted {
            true => entries.entry(&known.full_name).or_insert((&known.format, 0)).1 += events,
            false => others += 1,
        }
    }
    let known = |id: &usize| u16::try_from(*id).is_ok_and(|id| formats.get(id).is_ok());
    for (id, n) in counts.iter().enumerate().filter(|(id, n)| **n > 0 && !known(id)) {
        ledger.note(
            NoteKind::Unknown,
            format!("{n} events of number {id}, which has no format"),
            None,
        );
    }
    others
}

fn globs(patterns: &[String]) -> anyhow::Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for p in patterns {
        set.add(Glob::new(p).with_context(|| format!("event {p}"))?);
    }
    Ok(Some(set.build()?))
}

/// How often events happened.
struct Counts {
    /// For each recording of the kernel by number.
    kernels: Vec<Vec<u64>>,
    /// By kind of event.
    programs: Vec<u64>,
}

fn count(
    timeline: &Timeline,
    formats: &[FormatTable<'_>],
) -> Result<(Counts, Stats), TimelineError> {
    let mut counts = Counts {
        kernels: vec![vec![0; 1 << 16]; formats.len()],
        programs: vec![0; timeline.programs().map_or(0, |p| p.class_count())],
    };
    let select = Select { runs: true, ..Select::default() };
    let stats = timeline.for_each(&select, &mut |moment| {
        let place = match moment {
            Moment::Kernel(number, e) => {
                let id = formats.get(number).and_then(|f| f.id(e.payload)).unwrap_or(0);
                counts.kernels.get_mut(number).and_then(|c| c.get_mut(usize::from(id)))
            }
            Moment::Program(e) => counts.programs.get_mut(e.class as usize),
            Moment::Run(run) => {
                let classes = run.events.iter().map(|e| e.class as usize);
                classes.for_each(|c| counts.programs.get_mut(c).into_iter().for_each(|n| *n += 1));
                None
            }
        };
        place.into_iter().for_each(|n| *n += 1);
        ControlFlow::Continue(())
    })?;
    Ok((counts, stats))
}

fn text(out: &mut impl Write, entries: &Entries<'_>, verbose: bool) -> io::Result<()> {
    for (name, (format, events)) in entries {
        writeln!(out, "  {name:<50} {events:>10} events")?;
        if !verbose {
            continue;
        }
        writeln!(out, "       id {}", format.id)?;
        for f in &format.fields {
            let declared = format!("{} {}", f.type_text, f.name);
            let sign = if f.signed { "signed" } else { "unsigned" };
            let (offset, size) = (f.offset, f.size);
            writeln!(out, "       {declared:<44} offset {offset:>4}  size {size:>3}  {sign}")?;
        }
        writeln!(out, "       print fmt: {}\n", format.print_fmt)?;
    }
    Ok(())
}

fn objects(entries: &Entries<'_>) -> impl Iterator<Item = Value> {
    entries.iter().map(|(name, (format, events))| {
        let field = |f: &kymo_format::Field| {
            json!({"name": f.name, "type": f.type_text, "offset": f.offset, "size": f.size,
                   "signed": f.signed})
        };
        let fields: Vec<Value> = format.fields.iter().map(field).collect();
        json!({
            "name": name, "kind": "tracepoint", "events": events, "id": format.id,
            "fields": fields, "print_fmt": format.print_fmt,
        })
    })
}

fn as_json(out: &mut impl Write, objects: impl Iterator<Item = Value>) -> io::Result<()> {
    write!(out, "[")?;
    for (i, object) in objects.enumerate() {
        write!(out, "{}{object}", if i > 0 { ",\n" } else { "\n" })?;
    }
    writeln!(out, "\n]")
}

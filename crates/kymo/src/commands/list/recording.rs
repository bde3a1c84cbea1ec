//! `kymo list -i FILE`: the events of a trace.dat, how many of each it holds,
//! and what they look like.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use globset::{Glob, GlobSet, GlobSetBuilder};
use kymo_files::Kind;
use kymo_files::tracedat::{ReadStats, Select, TraceDat};
use kymo_format::EventFormat;
use serde_json::json;

use super::Args;
use crate::commands::tracedat::{Formats, damaged, ledger};

/// An event of the file.
struct Entry<'a> {
    format: &'a EventFormat,
    name: &'a str,
    events: u64,
}

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    let kind = Kind::of(path);
    if kind == Some(Kind::Ctf) {
        return super::ctf::run(args, path);
    }
    if kind == Some(Kind::Session) {
        bail!("{} holds several recordings: name one of them", path.display());
    }
    if kind == Some(Kind::PerfData) {
        bail!("{} is a perf.data file: kymo report --header-only names its events", path.display());
    }
    let data = TraceDat::open(path)?;
    let formats = Formats::new(&data);
    let globs = globs(&args.globs)?;
    let (counts, stats) = count(&data, &formats)?;
    let mut entries = Vec::new();
    let (mut others, mut unreadable) = (0, Vec::new());
    for known in formats.iter() {
        let known = match known {
            Ok(known) => known,
            Err(why) => {
                unreadable.push(why.to_owned());
                continue;
            }
        };
        let id = usize::try_from(known.format.id).unwrap_or(usize::MAX);
        let events = counts.get(id).copied().unwrap_or(0);
        // Without globs only what happened; with globs all that could have.
        let wanted = match &globs {
            None => events > 0,
            Some(set) => set.is_match(&known.full_name) || set.is_match(&known.format.name),
        };
        if wanted {
            entries.push(Entry { format: &known.format, name: &known.full_name, events });
        } else {
            others += 1;
        }
    }
    entries.sort_by_key(|e| e.name);
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        as_json(&mut out, &entries)?;
    } else if args.raw_dump {
        entries.iter().try_for_each(|e| write!(out, "{} ", e.name))?;
        writeln!(out)?;
    } else {
        text(&mut out, &entries, args.verbose)?;
        if globs.is_none() && others > 0 {
            writeln!(out, "\n  and {others} more events that did not happen: name them, or '*'")?;
        }
    }
    out.flush()?;
    let mut ledger = ledger(&data, &stats);
    for why in unreadable {
        ledger.note("format", why, None);
    }
    let known = |id: &usize| u16::try_from(*id).is_ok_and(|id| formats.get(id).is_ok());
    for (id, n) in counts.iter().enumerate().filter(|(id, n)| **n > 0 && !known(id)) {
        ledger.note("unknown", format!("{n} events of number {id}, which has no format"), None);
    }
    io::stderr().write_all(ledger.to_text("").as_bytes())?;
    Ok(if damaged(&data, &stats) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

pub(super) fn globs(patterns: &[String]) -> anyhow::Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for p in patterns {
        set.add(Glob::new(p).with_context(|| format!("event {p}"))?);
    }
    Ok(Some(set.build()?))
}

/// How many events of each number there are.
fn count(data: &TraceDat, formats: &Formats<'_>) -> anyhow::Result<(Vec<u64>, ReadStats)> {
    let mut counts = vec![0; 1 << 16];
    let stats = data.for_each(&Select::default(), &mut |e| {
        let id = formats.id(e.payload).unwrap_or(0);
        if let Some(n) = counts.get_mut(usize::from(id)) {
            *n += 1;
        }
        ControlFlow::Continue(())
    })?;
    Ok((counts, stats))
}

fn text(out: &mut impl Write, entries: &[Entry<'_>], verbose: bool) -> io::Result<()> {
    for e in entries {
        writeln!(out, "  {:<50} {:>10} events", e.name, e.events)?;
        if !verbose {
            continue;
        }
        writeln!(out, "       id {}", e.format.id)?;
        for f in &e.format.fields {
            let declared = format!("{} {}", f.type_text, f.name);
            let sign = if f.signed { "signed" } else { "unsigned" };
            let (offset, size) = (f.offset, f.size);
            writeln!(out, "       {declared:<44} offset {offset:>4}  size {size:>3}  {sign}")?;
        }
        writeln!(out, "       print fmt: {}\n", e.format.print_fmt)?;
    }
    Ok(())
}

fn as_json(out: &mut impl Write, entries: &[Entry<'_>]) -> io::Result<()> {
    write!(out, "[")?;
    for (i, e) in entries.iter().enumerate() {
        let fields: Vec<_> = e
            .format
            .fields
            .iter()
            .map(|f| {
                json!({"name": f.name, "type": f.type_text, "offset": f.offset, "size": f.size,
                       "signed": f.signed})
            })
            .collect();
        let object = json!({
            "name": e.name, "kind": "tracepoint", "events": e.events, "id": e.format.id,
            "fields": fields, "print_fmt": e.format.print_fmt,
        });
        write!(out, "{}{object}", if i > 0 { ",\n" } else { "\n" })?;
    }
    writeln!(out, "\n]")
}

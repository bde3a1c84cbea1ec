//! `kymo list -i DIR`: the events of CTF traces, how many of each there are, and what
//! they look like.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use kymo_files::ctf::read::{Class, Ctf, Part, Select};
use serde_json::json;

use super::Args;
use super::recording::globs;
use crate::commands::ctf::{damaged, ledger};

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    let ctf = Ctf::open(path)?;
    let globs = globs(&args.globs)?;
    let mut counts = vec![0u64; ctf.class_count()];
    let stats = ctf.for_each(&Select::default(), &mut |e| {
        if let Some(n) = counts.get_mut(e.class as usize) {
            *n += 1;
        }
        ControlFlow::Continue(())
    })?;
    // Traces of several processes declare the same events.
    let mut entries: BTreeMap<&str, (Class<'_>, u64)> = BTreeMap::new();
    let mut others = 0;
    for (n, events) in counts.iter().enumerate() {
        let Some(class) = ctf.class(n as u32) else { continue };
        let name = class.event.name.as_str();
        let bare = name.split_once(':').map_or(name, |(_, bare)| bare);
        // Without globs only what happened; with globs all that could have.
        let wanted = match &globs {
            None => *events > 0,
            Some(set) => set.is_match(name) || set.is_match(bare),
        };
        match wanted {
            true => entries.entry(name).or_insert((class, 0)).1 += events,
            false => others += 1,
        }
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        as_json(&mut out, &entries)?;
    } else if args.raw_dump {
        entries.keys().try_for_each(|name| write!(out, "{name} "))?;
        writeln!(out)?;
    } else {
        text(&mut out, &entries, args.verbose)?;
        if globs.is_none() && others > 0 {
            writeln!(out, "\n  and {others} more events that did not happen: name them, or '*'")?;
        }
    }
    out.flush()?;
    io::stderr().write_all(ledger(&ctf, &stats).to_text("").as_bytes())?;
    Ok(if damaged(&ctf, &stats) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

type Entries<'c> = BTreeMap<&'c str, (Class<'c>, u64)>;

fn part(of: Part) -> &'static str {
    match of {
        Part::StreamContext => "context",
        Part::EventContext => "event context",
        Part::Fields => "field",
    }
}

fn text(out: &mut impl Write, entries: &Entries<'_>, verbose: bool) -> io::Result<()> {
    for (name, (class, events)) in entries {
        writeln!(out, "  {name:<50} {events:>10} events")?;
        if !verbose {
            continue;
        }
        for line in class.event.doc.iter().flat_map(|d| d.lines()) {
            writeln!(out, "       {line}")?;
        }
        writeln!(out, "       id {} of stream {}", class.event.id, class.stream)?;
        if let Some(level) = class.event.loglevel {
            writeln!(out, "       level {level}")?;
        }
        for f in class.fields().iter().filter(|f| f.top) {
            writeln!(out, "       {:<13} {} {}", part(f.part), f.type_text, f.name)?;
            for l in f.labels.iter().flat_map(|l| l.iter()) {
                let range = match l.from == l.to {
                    true => l.from.to_string(),
                    false => format!("{} … {}", l.from, l.to),
                };
                writeln!(out, "       {:<13}   {} = {range}", "", l.name)?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

fn as_json(out: &mut impl Write, entries: &Entries<'_>) -> io::Result<()> {
    write!(out, "[")?;
    for (i, (name, (class, events))) in entries.iter().enumerate() {
        let fields = class.fields().iter().filter(|f| f.top);
        let fields: Vec<_> = fields
            .map(|f| json!({"name": f.name, "type": f.type_text, "part": part(f.part)}))
            .collect();
        let object = json!({
            "name": name, "kind": "ctf", "events": events, "id": class.event.id,
            "stream": class.stream, "level": class.event.loglevel,
            "description": class.event.doc, "fields": fields,
        });
        write!(out, "{}{object}", if i > 0 { ",\n" } else { "\n" })?;
    }
    writeln!(out, "\n]")
}

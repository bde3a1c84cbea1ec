//! The events of CTF traces for `kymo list -i DIR`: how many of each there are, and what
//! they look like.

use std::collections::BTreeMap;
use std::io::{self, Write};

use globset::GlobSet;
use kymo_files::ctf::read::{Class, Ctf, Part};
use serde_json::{Value, json};

/// Events by name, with how often they happened. Traces of several processes declare the
/// same events.
pub(super) type Entries<'c> = BTreeMap<&'c str, (Class<'c>, u64)>;

/// Those that are wanted, and how many others there are.
pub(super) fn entries<'c>(
    ctf: &'c Ctf,
    counts: &[u64],
    globs: Option<&GlobSet>,
) -> (Entries<'c>, u64) {
    let mut entries: Entries<'c> = BTreeMap::new();
    let mut others = 0;
    for (n, events) in counts.iter().enumerate() {
        let Some(class) = ctf.class(n as u32) else { continue };
        let name = class.event.name.as_str();
        let bare = name.split_once(':').map_or(name, |(_, bare)| bare);
        // Without globs only what happened; with globs all that could have.
        let wanted = match globs {
            None => *events > 0,
            Some(set) => set.is_match(name) || set.is_match(bare),
        };
        match wanted {
            true => entries.entry(name).or_insert((class, 0)).1 += events,
            false => others += 1,
        }
    }
    (entries, others)
}

fn part(of: Part) -> &'static str {
    match of {
        Part::StreamContext => "context",
        Part::EventContext => "event context",
        Part::Fields => "field",
    }
}

pub(super) fn text(out: &mut impl Write, entries: &Entries<'_>, verbose: bool) -> io::Result<()> {
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

pub(super) fn objects(entries: &Entries<'_>) -> impl Iterator<Item = Value> {
    entries.iter().map(|(name, (class, events))| {
        let fields = class.fields().iter().filter(|f| f.top);
        let fields: Vec<_> = fields
            .map(|f| json!({"name": f.name, "type": f.type_text, "part": part(f.part)}))
            .collect();
        json!({
            "name": name, "kind": "ctf", "events": events, "id": class.event.id,
            "stream": class.stream, "level": class.event.loglevel,
            "description": class.event.doc, "fields": fields,
        })
    })
}

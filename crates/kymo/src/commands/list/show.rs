//! The list as text in perf's layout, as JSON, as bare names.

use std::io::{self, Write};

use kymo_format::{EventFormat, Field};
use kymo_kernel::events::{Support, paranoid};
use serde_json::{Map, Value, json};

use super::gather::{EntryDetail, EventCategory, ListEntry};

/// Width of perf's name column.
const NAME_WIDTH: usize = 50;

pub(super) fn text(out: &mut impl Write, entries: &[ListEntry], verbose: bool) -> io::Result<()> {
    let denied = denial();
    let mut last: Option<(EventCategory, Option<&str>)> = None;
    for entry in entries {
        let section = (entry.kind, system(entry));
        if last.as_ref().is_some_and(|l| *l != section && (verbose || l.0 != section.0)) {
            writeln!(out)?;
        }
        last = Some(section);
        let name = match &entry.alias {
            Some(alias) => format!("{} OR {alias}", entry.name),
            None => entry.name.clone(),
        };
        write!(out, "  {name:<NAME_WIDTH$} [{}]", entry.label)?;
        match entry.support {
            None | Some(Support::Yes) => writeln!(out)?,
            Some(Support::No(_)) => writeln!(out, " [not supported here]")?,
            Some(Support::Denied) => writeln!(out, " [no permission: {denied}]")?,
            Some(Support::UserOnly) => writeln!(out, " [user mode only: {denied}]")?,
        }
        if verbose {
            details(out, entry)?;
        }
    }
    Ok(())
}

/// Tracepoints are set apart by system when details make them long.
fn system(entry: &ListEntry) -> Option<&str> {
    entry.name.split_once(':').map(|(system, _)| system)
}

fn denial() -> String {
    match paranoid().level {
        Some(level) => format!("perf_event_paranoid = {level}"),
        None => "perf events are refused".into(),
    }
}

fn details(out: &mut impl Write, entry: &ListEntry) -> io::Result<()> {
    match &entry.detail {
        EntryDetail::None if entry.about.is_empty() => Ok(()),
        EntryDetail::None => writeln!(out, "       {}", entry.about),
        EntryDetail::Pmu { pmu, terms, unit, scale, cpus, formats } => {
            writeln!(out, "       {pmu}/{terms}/")?;
            if !unit.is_empty() {
                writeln!(out, "       unit {unit}, scale {scale}")?;
            }
            if let Some(cpus) = cpus {
                let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
                writeln!(out, "       on CPU {}", list.join(","))?;
            }
            for (term, bits) in formats {
                writeln!(out, "       term {term:<20} {bits}")?;
            }
            Ok(())
        }
        EntryDetail::Tracepoint { definition, layout } => {
            if let Some(definition) = definition {
                writeln!(out, "       {definition}")?;
            }
            layout.as_ref().map_or(Ok(()), |l| fields(out, l))
        }
        EntryDetail::Ust { event, programs } => {
            super::ust::details(out, &entry.about, event, programs)
        }
        EntryDetail::Counter { record, programs } => {
            super::ust::counter_details(out, record, programs)
        }
    }
}

fn fields(out: &mut impl Write, layout: &EventFormat) -> io::Result<()> {
    writeln!(out, "       id {}", layout.id)?;
    for f in &layout.fields {
        let declared = format!("{} {}", f.type_text, f.name);
        let sign = if f.signed { "signed" } else { "unsigned" };
        writeln!(out, "       {declared:<44} offset {:>4}  size {:>3}  {sign}", f.offset, f.size)?;
    }
    writeln!(out, "       print fmt: {}", layout.print_fmt)
}

pub(super) fn names(out: &mut impl Write, entries: &[ListEntry]) -> io::Result<()> {
    for entry in entries {
        write!(out, "{} ", entry.name)?;
    }
    writeln!(out)
}

pub(super) fn json(out: &mut impl Write, entries: &[ListEntry]) -> io::Result<()> {
    let denied = denial();
    write!(out, "[")?;
    for (i, entry) in entries.iter().enumerate() {
        write!(out, "{}", if i > 0 { ",\n" } else { "\n" })?;
        serde_json::to_writer(&mut *out, &object(entry, &denied))?;
    }
    writeln!(out, "\n]")
}

fn object(entry: &ListEntry, denied: &str) -> Value {
    let (support, reason) = match entry.support {
        None => (Value::Null, Value::Null),
        Some(Support::Yes) => (json!("yes"), Value::Null),
        Some(Support::No(errno)) => {
            (json!("no"), json!(io::Error::from_raw_os_error(errno).to_string()))
        }
        Some(Support::Denied) => (json!("denied"), json!(denied)),
        Some(Support::UserOnly) => (json!("user-only"), json!(denied)),
    };
    let mut o = Map::new();
    o.insert("name".into(), json!(entry.name));
    o.insert("alias".into(), json!(entry.alias));
    o.insert("kind".into(), json!(entry.kind.word()));
    o.insert("label".into(), json!(entry.label));
    o.insert("description".into(), json!(entry.about));
    o.insert("support".into(), support);
    o.insert("reason".into(), reason);
    match &entry.detail {
        EntryDetail::None => {}
        EntryDetail::Pmu { pmu, terms, unit, scale, cpus, formats } => {
            o.insert("pmu".into(), json!(pmu));
            o.insert("terms".into(), json!(terms));
            o.insert("unit".into(), json!(unit));
            o.insert("scale".into(), json!(scale));
            o.insert("cpus".into(), json!(cpus));
            if !formats.is_empty() {
                o.insert("formats".into(), json!(formats));
            }
        }
        EntryDetail::Tracepoint { definition, layout } => {
            if let Some(definition) = definition {
                o.insert("definition".into(), json!(definition));
            }
            if let Some(layout) = layout {
                o.insert("id".into(), json!(layout.id));
                o.insert("fields".into(), layout.fields.iter().map(field).collect());
                o.insert("print_fmt".into(), json!(layout.print_fmt));
            }
        }
        EntryDetail::Ust { event, programs } => super::ust::object(&mut o, event, programs),
        EntryDetail::Counter { record, programs } => {
            super::ust::counter_object(&mut o, record, programs);
        }
    }
    Value::Object(o)
}

fn field(f: &Field) -> Value {
    json!({"name": f.name, "type": f.type_text, "offset": f.offset, "size": f.size, "signed": f.signed})
}

//! Events of the programs that run and have tracepoints of their own, and their counters: one
//! entry each, with the programs that have it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kymo_record::ust::{MountNamespace, Program, UstError};
use kymo_ust::{CounterKind, CounterRecord, EventRecord, FieldRecord, FieldTag, Shape};
use serde_json::{Map, Value, json};

use super::gather::{EntryDetail, EventCategory, EventListing, ListEntry, ListFilter};

/// A program that has an event.
#[derive(Debug)]
pub(super) struct OwningProgram {
    pid: u32,
    uid: u32,
    comm: String,
    exe: String,
}

pub(super) fn gather(filter: &ListFilter, found: &mut EventListing) {
    let mut events: BTreeMap<String, (EventRecord, Vec<OwningProgram>)> = BTreeMap::new();
    let mut counters = OwnedCounters::new();
    for namespace in MountNamespace::all() {
        let (users, refused) = namespace.users();
        found.notes.extend(refused.iter().map(ToString::to_string));
        for user in users {
            let (programs, refused) = Program::all(&user);
            found.notes.extend(refused.iter().map(ToString::to_string));
            for program in programs {
                if program.is_alive().unwrap_or(false) {
                    add(&program, filter, &mut events);
                    let damage = add_counters(&program, filter, &mut counters);
                    found.notes.extend(damage.iter().map(ToString::to_string));
                }
            }
        }
    }
    for (name, (event, programs)) in events {
        found.entries.push(ListEntry {
            kind: EventCategory::Ust,
            name,
            alias: None,
            label: "User event",
            about: event.doc.clone(),
            support: None,
            detail: EntryDetail::Ust { event: Box::new(event), programs },
        });
    }
    for ((name, kind), (record, programs)) in counters {
        let label = match kind {
            CounterKind::Counter => "User counter",
            CounterKind::Histogram => "User histogram",
        };
        found.entries.push(ListEntry {
            kind: EventCategory::Ust,
            name,
            alias: None,
            label,
            about: record.doc.trim().to_owned(),
            support: None,
            detail: EntryDetail::Counter { record: Box::new(record), programs },
        });
    }
}

/// Counters and histograms by name, with the programs that have them.
type OwnedCounters = BTreeMap<(String, CounterKind), (CounterRecord, Vec<OwningProgram>)>;

fn add_counters(
    program: &Program,
    filter: &ListFilter,
    counters: &mut OwnedCounters,
) -> Option<UstError> {
    let (records, damage) = match program.counters() {
        Ok(read) => read,
        // It ended meanwhile.
        Err(UstError::Shared(e)) if e.is_missing() => return None,
        Err(e) => return Some(e),
    };
    for record in records.into_iter().filter(|record| !record.gone) {
        let name = format!("{}:{}", plain(&record.provider), plain(&record.name));
        if filter.wants(EventCategory::Ust, &[&name]) {
            let entry = counters.entry((name, record.kind));
            let (_, programs) = entry.or_insert_with(|| (record, Vec::new()));
            programs.push(OwningProgram::of(program));
        }
    }
    damage
}

impl OwningProgram {
    fn of(program: &Program) -> OwningProgram {
        let control = program.control();
        OwningProgram {
            pid: control.pid,
            uid: control.uid,
            comm: plain(&program.comm()),
            exe: plain(&String::from_utf8_lossy(&control.exe)),
        }
    }
}

fn add(
    program: &Program,
    filter: &ListFilter,
    events: &mut BTreeMap<String, (EventRecord, Vec<OwningProgram>)>,
) {
    for event in program.present() {
        let name = format!("{}:{}", plain(&event.provider), plain(&event.name));
        if !filter.wants(EventCategory::Ust, &[&name]) {
            continue;
        }
        let (_, programs) = events.entry(name).or_insert_with(|| (event.clone(), Vec::new()));
        programs.push(OwningProgram::of(program));
    }
}

/// Escapes control characters of a program's names, which must not reach the terminal.
fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

pub(super) fn details(
    out: &mut impl Write,
    about: &str,
    event: &EventRecord,
    programs: &[OwningProgram],
) -> io::Result<()> {
    for line in about.lines() {
        writeln!(out, "       {}", plain(line.trim()))?;
    }
    for field in &event.fields {
        writeln!(out, "       {:<28} {}", plain(&field.name), type_of(field))?;
    }
    if !event.format.is_empty() {
        writeln!(out, "       print fmt: {}", plain(&event.format))?;
    }
    writeln!(out, "       level {}, {}:{}", event.level, plain(&event.file), event.line)?;
    write_programs(out, programs)
}

pub(super) fn counter_details(
    out: &mut impl Write,
    record: &CounterRecord,
    programs: &[OwningProgram],
) -> io::Result<()> {
    for line in record.doc.lines().filter(|line| !line.trim().is_empty()) {
        writeln!(out, "       {}", plain(line.trim()))?;
    }
    let keys = if record.keyed { "by key, " } else { "" };
    writeln!(out, "       {keys}{}:{}", plain(&record.file), record.line)?;
    write_programs(out, programs)
}

fn write_programs(out: &mut impl Write, programs: &[OwningProgram]) -> io::Result<()> {
    for p in programs {
        writeln!(out, "       pid {} {} {} (user {})", p.pid, p.comm, p.exe, p.uid)?;
    }
    Ok(())
}

/// A field's type in Rust's words.
fn type_of(field: &FieldRecord) -> String {
    let Shape { kind, size, flags, count } = field.shape;
    let number = |floats: bool| {
        let letter = match (floats, flags & Shape::SIGNED != 0) {
            (true, _) => 'f',
            (false, true) => 'i',
            (false, false) => 'u',
        };
        format!("{letter}{}", u32::from(size) * 8)
    };
    match kind {
        FieldTag::Int => number(false),
        FieldTag::Float => number(true),
        FieldTag::Bool => "bool".into(),
        FieldTag::String => "str".into(),
        FieldTag::Symbol => "symbol".into(),
        FieldTag::Array => format!("[{}; {count}]", number(flags & Shape::FLOATS != 0)),
        FieldTag::Sequence => format!("[{}]", number(flags & Shape::FLOATS != 0)),
        FieldTag::Enum => {
            let name = |(low, high, name): &(i64, i64, String)| {
                if low == high {
                    format!("{} = {low}", plain(name))
                } else {
                    format!("{} = {low}..{high}", plain(name))
                }
            };
            let names: Vec<String> = field.entries.iter().map(name).collect();
            format!("{} {{ {} }}", number(false), names.join(", "))
        }
    }
}

pub(super) fn object(o: &mut Map<String, Value>, event: &EventRecord, programs: &[OwningProgram]) {
    let field = |f: &FieldRecord| json!({ "name": f.name, "type": type_of(f) });
    o.insert("level".into(), json!(event.level));
    o.insert("source".into(), json!(format!("{}:{}", event.file, event.line)));
    o.insert("print_fmt".into(), json!(event.format));
    o.insert("fields".into(), event.fields.iter().map(field).collect());
    o.insert("programs".into(), programs_json(programs));
}

pub(super) fn counter_object(
    o: &mut Map<String, Value>,
    record: &CounterRecord,
    programs: &[OwningProgram],
) {
    o.insert("source".into(), json!(format!("{}:{}", record.file, record.line)));
    o.insert("keyed".into(), json!(record.keyed));
    o.insert("programs".into(), programs_json(programs));
}

fn programs_json(programs: &[OwningProgram]) -> Value {
    let program =
        |p: &OwningProgram| json!({ "pid": p.pid, "comm": p.comm, "exe": p.exe, "uid": p.uid });
    programs.iter().map(program).collect()
}

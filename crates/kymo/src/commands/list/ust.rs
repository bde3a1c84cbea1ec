//! Events of the programs that run and have tracepoints of their own: one entry an
//! event, with the programs that have it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kymo_record::ust::{MountNamespace, Program};
use kymo_ust::{EventRecord, FieldRecord, FieldTag, Shape};
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
    for namespace in MountNamespace::all() {
        let (users, refused) = namespace.users();
        found.notes.extend(refused.iter().map(ToString::to_string));
        for user in users {
            let (programs, refused) = Program::all(&user);
            found.notes.extend(refused.iter().map(ToString::to_string));
            for program in programs {
                if program.is_alive().unwrap_or(false) {
                    add(&program, filter, &mut events);
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
        let control = program.control();
        let (_, programs) = events.entry(name).or_insert_with(|| (event.clone(), Vec::new()));
        programs.push(OwningProgram {
            pid: control.pid,
            uid: control.uid,
            comm: plain(&program.comm()),
            exe: plain(&String::from_utf8_lossy(&control.exe)),
        });
    }
}

/// What a program calls things must not reach the terminal as it is.
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
            let name = |(low, high, name): &(i64, i64, String)| match low == high {
                true => format!("{} = {low}", plain(name)),
                false => format!("{} = {low}..{high}", plain(name)),
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
    let program =
        |p: &OwningProgram| json!({ "pid": p.pid, "comm": p.comm, "exe": p.exe, "uid": p.uid });
    o.insert("programs".into(), programs.iter().map(program).collect());
}

//! The event classes of recordings of any format as text and as JSON: how often they happened,
//! their fields, print formats and attributes.

use std::collections::BTreeMap;
use std::io::{self, Write};

use kymo_events::{ClassOrigin, FieldDesc, FieldPart, RecordedClass};
use kymo_model::{Attr, AttrFlags};
use serde_json::{Value, json};

use crate::units::{visible, write_line};

/// Classes by what makes their events and by name; those of several recordings that have one
/// name are one entry.
#[derive(Default)]
pub struct ClassList {
    entries: BTreeMap<(u8, String), (RecordedClass, u64)>,
    /// Classes that are not in it.
    pub others: u64,
}

impl ClassList {
    /// Takes classes with their counts. With `is_named`, the selected ones are listed; else those
    /// that happened, and the events that a perf.data was recorded with.
    pub fn new(
        classes: Vec<(RecordedClass, u64)>,
        is_named: Option<&dyn Fn(&str) -> bool>,
    ) -> ClassList {
        let mut list = ClassList::default();
        for (class, events) in classes {
            let wanted = match is_named {
                None => events > 0 || class.attr.is_some(),
                Some(is_named) => class.names().into_iter().any(is_named),
            };
            if !wanted {
                list.others += 1;
                continue;
            }
            let rank = match class.origin {
                ClassOrigin::Sample => 0,
                ClassOrigin::Kernel => 1,
                ClassOrigin::Program => 2,
            };
            let key = (rank, class.full_name.clone());
            list.entries.entry(key).or_insert((class, 0)).1 += events;
        }
        list
    }

    /// Writes the names in one line.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_names(&self, out: &mut dyn Write) -> io::Result<()> {
        self.entries.keys().try_for_each(|(_, name)| write!(out, "{} ", visible(name)))?;
        writeln!(out)
    }

    /// Writes a line for each class; `verbose`: with its fields.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_text(&self, out: &mut dyn Write, verbose: bool) -> io::Result<()> {
        for ((_, name), (class, events)) in &self.entries {
            let word = if *events == 1 { "event" } else { "events" };
            writeln!(out, "  {:<50} {events:>10} {word}", visible(name))?;
            if verbose {
                write_details(out, class)?;
            }
        }
        Ok(())
    }

    /// Writes an array of objects (docs/json.md).
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "[")?;
        for (i, (class, events)) in self.entries.values().enumerate() {
            write!(out, "{}{}", if i > 0 { ",\n" } else { "\n" }, object(class, *events))?;
        }
        writeln!(out, "\n]")
    }
}

fn write_details(out: &mut dyn Write, class: &RecordedClass) -> io::Result<()> {
    let ctf = class.ctf.as_ref();
    for line in ctf.iter().flat_map(|c| &c.doc).flat_map(|d| d.lines()) {
        write_line(out, format_args!("       {line}"))?;
    }
    match (class.id, ctf) {
        (Some(id), Some(ctf)) => writeln!(out, "       id {id} of stream {}", ctf.stream)?,
        (Some(id), None) => writeln!(out, "       id {id}")?,
        (None, _) => {}
    }
    if let Some(level) = ctf.and_then(|c| c.level) {
        writeln!(out, "       level {level}")?;
    }
    if let Some(attr) = &class.attr {
        write_attr(out, attr)?;
    }
    fields(class).into_iter().try_for_each(|f| write_field(out, f))?;
    if let Some(format) = &class.print_format {
        write_line(out, format_args!("       print fmt: {format}"))?;
    }
    writeln!(out)
}

/// The fields, as they lie in an event.
fn fields(class: &RecordedClass) -> Vec<&FieldDesc> {
    let mut fields: Vec<&FieldDesc> = class.fields.iter().collect();
    fields.sort_by_key(|f| match f.part {
        FieldPart::Common | FieldPart::StreamContext => 0,
        FieldPart::EventContext => 1,
        FieldPart::Own => 2,
        FieldPart::Sample => 3,
    });
    fields
}

fn write_attr(out: &mut dyn Write, attr: &Attr) -> io::Result<()> {
    writeln!(out, "       type {}  config {:#x}", attr.kind.0, attr.config)?;
    if attr.flags.contains(AttrFlags::FREQ) {
        writeln!(out, "       frequency {} Hz", attr.sample_period)?
    } else {
        writeln!(out, "       period {}", attr.sample_period)?
    }
    let names = |names: Vec<&str>| names.join("|");
    writeln!(out, "       samples {}", names(sample_names(attr)))?;
    writeln!(out, "       flags {}", names(flag_names(attr)))
}

fn write_field(out: &mut dyn Write, field: &FieldDesc) -> io::Result<()> {
    if let (Some((offset, size)), Some(signed)) = (field.offset_and_size(), field.signed()) {
        let declared = format!("{} {}", field.type_name, field.name);
        let sign = if signed { "signed" } else { "unsigned" };
        write_line(
            out,
            format_args!("       {declared:<44} offset {offset:>4}  size {size:>3}  {sign}"),
        )?;
    } else {
        let part = field.part.name();
        write_line(out, format_args!("       {part:<13} {} {}", field.type_name, field.name))?;
    }
    for l in field.labels.iter().flat_map(|l| l.iter()) {
        let range =
            if l.from == l.to { l.from.to_string() } else { format!("{} … {}", l.from, l.to) };
        write_line(out, format_args!("       {:<13}   {} = {range}", "", l.name))?;
    }
    Ok(())
}

fn sample_names(attr: &Attr) -> Vec<&'static str> {
    attr.sample_type.iter_names().map(|(name, _)| name).collect()
}

fn flag_names(attr: &Attr) -> Vec<&'static str> {
    attr.flags.iter_names().map(|(name, _)| name).collect()
}

fn object(class: &RecordedClass, events: u64) -> Value {
    let format = match (&class.attr, &class.ctf) {
        (Some(_), _) => "perf.data",
        (None, Some(_)) => "ctf",
        (None, None) => "trace.dat",
    };
    let kind = match class.origin {
        ClassOrigin::Sample => "sample",
        ClassOrigin::Kernel | ClassOrigin::Program => "tracepoint",
    };
    let ctf = class.ctf.as_ref();
    json!({
        "name": class.full_name,
        "kind": kind,
        "format": format,
        "events": events,
        "id": class.id,
        "stream": ctf.map(|c| c.stream),
        "level": ctf.and_then(|c| c.level),
        "description": ctf.and_then(|c| c.doc.as_ref()),
        "attributes": class.attr.as_ref().map(|a| attributes(a)),
        "fields": fields(class).into_iter().map(field).collect::<Vec<_>>(),
        "print_fmt": class.print_format,
    })
}

fn attributes(attr: &Attr) -> Value {
    let rate = if attr.flags.contains(AttrFlags::FREQ) { "frequency" } else { "period" };
    json!({
        "type": attr.kind.0,
        "config": attr.config,
        rate: attr.sample_period,
        "sample_type": sample_names(attr),
        "flags": flag_names(attr),
    })
}

fn field(field: &FieldDesc) -> Value {
    let place = field.offset_and_size();
    let labels = |labels: &[kymo_files::ctf::types::EnumMapping]| -> Vec<Value> {
        // Numbers beyond 64 bits do not occur in traces.
        let number = |n: i128| i64::try_from(n).map_or_else(|_| json!(n as u64), |n| json!(n));
        let label = |l: &kymo_files::ctf::types::EnumMapping| json!({"name": l.name, "from": number(l.from), "to": number(l.to)});
        labels.iter().map(label).collect()
    };
    json!({
        "name": field.name,
        "type": field.type_name,
        "part": field.part.name(),
        "offset": place.map(|p| p.0),
        "size": place.map(|p| p.1),
        "signed": field.signed(),
        "labels": field.labels.as_ref().map(|l| labels(l)),
    })
}

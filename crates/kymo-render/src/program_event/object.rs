//! An event as the members of a JSON object: its contexts and fields with their types, and the
//! sentence of its print format.

use std::io::Write as _;

use kymo_files::ctf::read::{FieldInfo, Group, Part, TaskField, Visit};
use kymo_format::json_string;

use super::code_names::CodeNames;
use kymo_events::ctf::{EventTask, ValueJson};

/// Contexts and fields of an event on their way into an object.
pub(crate) struct EventObject<'o> {
    /// Task of the event, as far as it is known.
    pub(crate) task: EventTask,
    code: &'o mut CodeNames,
    trace: usize,
    /// Each part's name, and where its members are.
    parts: Vec<(&'static str, usize, usize)>,
    json: ValueJson,
}

impl<'o> EventObject<'o> {
    /// `trace`: the place of the event's trace in `code`.
    pub(crate) fn new(task: EventTask, code: &'o mut CodeNames, trace: usize) -> EventObject<'o> {
        EventObject { task, code, trace, parts: Vec::new(), json: ValueJson::default() }
    }

    /// Closes what is open.
    fn close_part(&mut self) {
        self.json.begin();
        let here = self.json.out.len();
        if let Some(last) = self.parts.last_mut() {
            last.2 = here;
        }
    }

    /// The event has been seen: writes its members, behind others.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) {
        self.close_part();
        for (name, from, to) in &self.parts {
            let _ = write!(out, ",\"{name}\":{{");
            out.extend_from_slice(self.json.out.get(*from..*to).unwrap_or(&[]));
            out.push(b'}');
        }
    }
}

/// Writes the sentence of an event's print format as a member, behind others.
pub(crate) fn write_message(message: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"message\":");
    json_string(out, message);
}

impl Visit for EventObject<'_> {
    fn part(&mut self, part: Part) {
        self.close_part();
        let name = match part {
            Part::StreamContext => "context",
            Part::EventContext => "event_context",
            Part::Fields => "fields",
        };
        let here = self.json.out.len();
        self.parts.push((name, here, here));
    }

    fn int(&mut self, field: &FieldInfo, value: u64) {
        self.task.number(field, value);
        let name = if field.address { self.code.find(self.trace, value) } else { None };
        match name {
            Some(name) => self.json.named(field, value, name),
            None => self.json.int(field, value),
        }
    }

    fn float(&mut self, field: &FieldInfo, value: f64, single: bool) {
        self.json.float(field, value, single);
    }

    fn text(&mut self, field: &FieldInfo, text: &[u8]) {
        if field.task == Some(TaskField::Name) {
            self.task.name(text);
        }
        self.json.text(field, text);
    }

    fn open(&mut self, field: &FieldInfo, group: Group, count: u64) {
        self.json.open(field, group, count);
    }

    fn close(&mut self, group: Group) {
        self.json.close(group);
    }
}

//! Payload of an event in a line, after its name: the sentence of its print format, or its values
//! one by one. For a program's event it is equal live and from a file.

use kymo_files::ctf::read::{FieldInfo, Group, Part, Visit};

use super::code_names::CodeNames;
use super::print_format::{PrintFormat, SentenceValues};
use kymo_events::ctf::ValueText;

/// Buffers that are reused from event to event.
#[derive(Debug, Default)]
pub(crate) struct PayloadBuffers {
    list: ValueText,
    sentence: SentenceValues,
}

/// The payload of one event on its way into a line.
pub(crate) struct EventPayload<'p> {
    buffers: &'p mut PayloadBuffers,
    format: Option<&'p PrintFormat>,
    code: &'p mut CodeNames,
    /// The trace whose program the event is of.
    trace: usize,
    in_fields: bool,
    first: bool,
}

impl<'p> EventPayload<'p> {
    /// `trace`: the place of the event's trace in `code`.
    pub(crate) fn new(
        buffers: &'p mut PayloadBuffers,
        format: Option<&'p PrintFormat>,
        code: &'p mut CodeNames,
        trace: usize,
    ) -> EventPayload<'p> {
        buffers.list.reset();
        buffers.sentence.begin();
        EventPayload { buffers, format, code, trace, in_fields: false, first: true }
    }

    /// A part of the event begins.
    pub(crate) fn part(&mut self, part: Part) {
        self.in_fields = part == Part::Fields;
    }

    /// A list begins: nothing stands before it.
    pub(crate) fn begin_list(&mut self) {
        self.first = true;
    }

    /// The print format, if what comes goes into its sentence.
    fn sentence(&self) -> Option<&'p PrintFormat> {
        self.format.filter(|_| self.in_fields)
    }

    /// Whether the next value of a list is the first one outside of all groups.
    #[inline]
    fn is_first(&mut self) -> bool {
        let outside = self.buffers.list.is_outside();
        outside && std::mem::replace(&mut self.first, false)
    }

    /// Takes an integer.
    #[inline]
    pub(crate) fn int(&mut self, field: &FieldInfo, bits: u64, out: &mut Vec<u8>) {
        let name = if field.address { self.code.find(self.trace, bits) } else { None };
        match (self.format.filter(|_| self.in_fields), name) {
            (Some(format), Some(name)) => self.buffers.sentence.named(format, field, bits, name),
            (Some(format), None) => self.buffers.sentence.int(format, field, bits),
            (None, Some(name)) => {
                let outside = self.buffers.list.is_outside();
                let first = outside && std::mem::replace(&mut self.first, false);
                self.buffers.list.named(field, name, first, out);
            }
            (None, None) => {
                let first = self.is_first();
                self.buffers.list.int(field, bits, first, out);
            }
        }
    }

    /// Takes a floating-point number.
    pub(crate) fn float(&mut self, field: &FieldInfo, value: f64, single: bool, out: &mut Vec<u8>) {
        if let Some(format) = self.sentence() {
            return self.buffers.sentence.float(format, field, value, single);
        }
        let first = self.is_first();
        self.buffers.list.float(field, value, single, first, out);
    }

    /// Takes text.
    pub(crate) fn text(&mut self, field: &FieldInfo, text: &[u8], out: &mut Vec<u8>) {
        if let Some(format) = self.sentence() {
            return self.buffers.sentence.text(format, field, text);
        }
        let first = self.is_first();
        self.buffers.list.text(field, text, first, out);
    }

    /// Opens a group.
    pub(crate) fn open(&mut self, field: &FieldInfo, group: Group, out: &mut Vec<u8>) {
        if let Some(format) = self.sentence() {
            return self.buffers.sentence.open(format, field, group);
        }
        let first = self.is_first();
        self.buffers.list.open(field, group, first, out);
    }

    /// Takes the end of the innermost group.
    pub(crate) fn close(&mut self, group: Group, out: &mut Vec<u8>) {
        match self.sentence() {
            Some(format) => self.buffers.sentence.close(format, group),
            None => self.buffers.list.close(group, out),
        }
    }

    /// The event has been seen. Returns whether a sentence was written, which stays as it is.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(format) = self.sentence() else { return false };
        if !self.first {
            out.push(b' ');
        }
        self.buffers.sentence.finish_sentence(format, out);
        true
    }
}

/// Writes the payload of an event.
pub(crate) struct PayloadLine<'p> {
    payload: EventPayload<'p>,
    out: &'p mut Vec<u8>,
    /// Its own contexts and fields have begun.
    begun: bool,
}

impl<'p> PayloadLine<'p> {
    /// Nothing is written yet.
    pub(crate) fn new(payload: EventPayload<'p>, out: &'p mut Vec<u8>) -> PayloadLine<'p> {
        PayloadLine { payload, out, begun: false }
    }

    /// The event has been seen.
    pub(crate) fn end(mut self) {
        self.payload.end(self.out);
    }
}

impl Visit for PayloadLine<'_> {
    fn part(&mut self, part: Part) {
        self.begun = part != Part::StreamContext;
        self.payload.part(part);
    }

    fn int(&mut self, field: &FieldInfo, value: u64) {
        if self.begun {
            self.payload.int(field, value, self.out);
        }
    }

    fn float(&mut self, field: &FieldInfo, value: f64, single: bool) {
        if self.begun {
            self.payload.float(field, value, single, self.out);
        }
    }

    fn text(&mut self, field: &FieldInfo, text: &[u8]) {
        if self.begun {
            self.payload.text(field, text, self.out);
        }
    }

    fn open(&mut self, field: &FieldInfo, group: Group, _count: u64) {
        if self.begun {
            self.payload.open(field, group, self.out);
        }
    }

    fn close(&mut self, group: Group) {
        if self.begun {
            self.payload.close(group, self.out);
        }
    }
}

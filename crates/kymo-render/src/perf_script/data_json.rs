//! Samples as `perf data convert --to-json` lays them out: one after the other in an array,
//! with the fields of tracepoints as texts.

use std::io::Write as _;

use kymo_analysis::sample_reads::SampleReads;
use kymo_events::EventSelection;
use kymo_events::chain::Origin;
use kymo_events::perf_data::payload_endian;
use kymo_events::state_history::{StateMark, StateReader};
use kymo_files::perfdata::{Batch, Entry, EventDesc};
use kymo_format::{Field, Value, json_string};
use kymo_model::{Endian, RecordKind, SampleType};

use super::fields::FieldSpec;
use super::recorded_names::{dso_of, frames};
use super::sample_text::{SampleRenderer, SampleTextOptions, event_name, unwinds};
use crate::error::{FieldSpecError, RenderError};

/// Writes samples.
pub struct DataJsonWriter {
    text: SampleRenderer,
    selection: EventSelection,
    /// Counts of groups of which only the leader is sampled, while the recording has `events`.
    reads: Option<SampleReads>,
    events: usize,
    /// Samples that were written.
    pub samples: u64,
}

impl DataJsonWriter {
    /// Writer for a recording whose tasks and mappings `state` holds; `selection`: samples that
    /// count.
    ///
    /// # Errors
    /// None: the fields are the usual ones.
    pub fn new(
        state: StateReader,
        options: SampleTextOptions,
        selection: EventSelection,
    ) -> Result<DataJsonWriter, FieldSpecError> {
        let text = SampleRenderer::new(FieldSpec::parse(&[])?, options, state);
        Ok(DataJsonWriter { text, selection, reads: None, events: 0, samples: 0 })
    }

    /// Samples that are shorter than their fields.
    pub fn malformed(&self) -> u64 {
        self.text.malformed
    }

    /// Appends the samples of a batch that begins in this state.
    ///
    /// # Errors
    /// If an event cannot be rendered.
    pub fn write(
        &mut self,
        records: &Batch,
        state: &StateMark,
        out: &mut Vec<u8>,
    ) -> Result<(), RenderError> {
        self.text.begin_batch(state);
        for entry in records.entries() {
            match entry.raw.kind {
                RecordKind::SAMPLE => self.samples_of(&entry, out)?,
                _ => self.text.pass(&entry),
            }
        }
        Ok(())
    }

    /// A sample, or those of the events of a group of which only the leader is sampled.
    fn samples_of(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> Result<(), RenderError> {
        if self.events != entry.events.len() {
            self.events = entry.events.len();
            self.reads = SampleReads::of(entry.events);
        }
        match self.reads.as_mut().and_then(|reads| reads.member_samples(entry)) {
            Some(members) => members.iter().try_for_each(|m| self.sample(&m.entry, out)),
            None => self.sample(entry, out),
        }
    }

    fn sample(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> Result<(), RenderError> {
        let Some(s) = self.text.see(entry)? else { return Ok(()) };
        let comm = self.text.names.comm(s.tid);
        if self.selection.is_restricted() && !self.selection.wants(&s.head(comm), event_name(entry))
        {
            return Ok(());
        }
        out.extend_from_slice(if self.samples > 0 { b",\n\t\t{" } else { b"\n\t\t{" });
        self.samples += 1;
        let _ = write!(out, "\n\t\t\t\"timestamp\": {},", s.time.unwrap_or(0));
        let _ = write!(out, "\n\t\t\t\"pid\": {},\n\t\t\t\"tid\": {},", s.pid as i32, s.tid as i32);
        // Where others have one, a sample without states -1.
        let has_cpu = |e: &EventDesc| e.attr.sample_type.contains(SampleType::CPU);
        if s.cpu.is_some() || entry.events.iter().any(has_cpu) {
            let _ = write!(out, "\n\t\t\t\"cpu\": {},", s.cpu.map_or(-1, |cpu| cpu as i32));
        }
        out.extend_from_slice(b"\n\t\t\t\"comm\": ");
        json_string(out, comm);
        out.extend_from_slice(b",\n\t\t\t\"callchain\": [");
        self.chain(entry, out)?;
        out.extend_from_slice(b"\n\t\t\t]");
        if let (Some(raw), Some(format)) = (s.raw, self.text.trace.format(entry)) {
            let endian = payload_endian(entry);
            for field in format.own_fields() {
                out.extend_from_slice(b",\n\t\t\t");
                json_string(out, field.name.as_bytes());
                out.extend_from_slice(b": ");
                json_string(out, &field_text(field, raw, endian));
            }
        }
        out.extend_from_slice(b"\n\t\t}");
        Ok(())
    }

    /// The frames of the call chain, or the one where a sample without was taken.
    fn chain(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> Result<(), RenderError> {
        let Some(s) = self.text.see(entry)? else { return Ok(()) };
        let mode = entry.raw.misc.cpumode();
        let has = entry.desc().map(|desc| desc.attr.sample_type);
        let mut places = Vec::new();
        if has.is_some_and(|has| has.contains(SampleType::CALLCHAIN)) {
            let kernel = self.text.names.kernel();
            places.extend(frames(s.chain(entry.raw.endian), mode, Origin::Recorded, &kernel));
            if entry.desc().is_some_and(|desc| unwinds(&desc.attr)) {
                let user = self.text.names.unwind(entry);
                places.extend(frames(user.into_iter(), mode, Origin::Unwound, &None));
            }
        } else if let Some(ip) = s.ip {
            places.push(kymo_events::chain::ChainAddress::exact(mode, ip));
        }
        for (n, place) in places.into_iter().enumerate() {
            let at = self.text.names.locate(s.pid, place.ip, place.mode);
            out.extend_from_slice(if n > 0 { b",\n\t\t\t\t{" } else { b"\n\t\t\t\t{" });
            let _ = write!(out, "\n\t\t\t\t\t\"ip\": \"{:#x}\"", place.ip);
            let symbols = &self.text.names.state.symbols;
            if let Some(symbol) = at.symbol {
                out.extend_from_slice(b",\n\t\t\t\t\t\"symbol\": ");
                json_string(out, symbols.name(symbol).as_bytes());
                let path = dso_of(symbols, &at);
                out.extend_from_slice(b",\n\t\t\t\t\t\"dso\": ");
                json_string(out, path.rsplit('/').next().unwrap_or(path).as_bytes());
            }
            out.extend_from_slice(b"\n\t\t\t\t}");
        }
        Ok(())
    }
}

/// A field as libtraceevent prints single fields.
fn field_text(field: &Field, payload: &[u8], endian: Endian) -> Vec<u8> {
    let mut out = Vec::new();
    match field.value(payload, endian) {
        // A word of the machine is mostly an address.
        Value::Unsigned(v) if field.type_text.contains("long") && field.size == 8 => {
            let _ = write!(out, "{v:#x}");
        }
        Value::Array(_) | Value::Bytes(_) | Value::Bitmask(_) => {
            let bytes = field.bytes(payload, endian).iter().map(|byte| format!("{byte:02x}"));
            let _ = write!(out, "ARRAY[{}]", bytes.collect::<Vec<_>>().join(", "));
        }
        value => value.write(&mut out, endian),
    }
    out
}

//! One trace: its metadata, compiled.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::super::types::{ClockClass, EventClass, Metadata};
use super::clock::Scale;
use super::compile::{self, OUTER_SLOTS, StreamPrograms};
use super::curve::Readings;
use super::packet::HeaderPlan;
use super::walk::{FieldInfo, Part, Program};
use super::{CtfReadError, json, metadata, tsdl};
use crate::RecordingBytes;

/// Values from outside that go with an event.
pub(crate) const OUTER_EVENT: usize = OUTER_SLOTS;
/// Numbers of events that are looked up without searching.
const DENSE: u64 = 1 << 12;
const NONE: u32 = u32::MAX;

/// A trace of the directory.
#[derive(Debug)]
pub struct Trace {
    /// Its directory below the one that was opened; empty for that one.
    pub(crate) name: String,
    pub(crate) metadata: Metadata,
    pub(crate) packet_header: Program,
    pub(crate) streams: Vec<StreamClass>,
    pub(crate) scale: Scale,
    /// Its clock beside `CLOCK_MONOTONIC`, where the tracer read both (kymo's does): its
    /// ticks are no clock that others have.
    pub(crate) readings: Option<Readings>,
    /// Slots that any of its programs needs.
    pub(crate) slots: usize,
    /// Damage of its metadata.
    pub(crate) damage: Vec<String>,
    /// Parts of its metadata that are ignored.
    pub(crate) remarks: Vec<String>,
}

impl Trace {
    /// Its directory below the one that was opened; empty for that one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Metadata of the trace.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The clock of its events.
    pub fn clock(&self) -> Option<&ClockClass> {
        clock(&self.metadata)
    }

    /// Whether its clock is `CLOCK_MONOTONIC` itself, as LTTng's is: only the name shows it.
    pub(crate) fn is_monotonic(&self) -> bool {
        self.readings.is_none()
            && self.clock().is_some_and(|c| c.name == "monotonic" && c.freq == 1_000_000_000)
    }
}

/// The clock that event headers use.
pub(crate) fn clock(metadata: &Metadata) -> Option<&ClockClass> {
    use super::super::types::{Struct, Type};
    fn named(of: &Struct) -> Option<&str> {
        of.fields.iter().find_map(|f| match &f.of {
            Type::Int(int) => int.clock.as_deref(),
            Type::Struct(of) => named(of),
            Type::Variant(of) => of.options.iter().find_map(|o| match &o.of {
                Type::Int(int) => int.clock.as_deref(),
                Type::Struct(of) => named(of),
                _ => None,
            }),
            _ => None,
        })
    }
    let headers = metadata.streams.iter().filter_map(|s| s.event_header.as_deref());
    let contexts = metadata.streams.iter().filter_map(|s| s.packet_context.as_deref());
    let name = headers.chain(contexts).find_map(named);
    match name {
        Some(name) => metadata.clocks.iter().find(|c| c.name == name),
        None => metadata.clocks.first().filter(|_| metadata.clocks.len() == 1),
    }
}

/// A kind of stream.
#[derive(Debug)]
pub(crate) struct StreamClass {
    pub(crate) programs: StreamPrograms,
    pub(crate) plan: HeaderPlan,
    /// Its first event's place among those of all traces.
    pub(crate) first_class: u32,
    dense: Vec<u32>,
    /// Body sizes of the same events in bytes, if constant; else 0.
    bytes: Vec<u32>,
    sparse: FxHashMap<u64, u32>,
}

/// The bytes of bodies that [`StreamClass::plain`] knows.
const PLAIN: u64 = 1 << 16;

impl StreamClass {
    fn new(programs: StreamPrograms, events: &[EventClass], first_class: u32) -> StreamClass {
        let (mut dense, mut sparse) = (Vec::new(), FxHashMap::default());
        let mut bytes = Vec::new();
        for (n, event) in events.iter().enumerate() {
            if event.id >= DENSE {
                sparse.insert(event.id, n as u32);
                continue;
            }
            let at = event.id as usize;
            dense.resize(dense.len().max(at + 1), NONE);
            if let Some(place) = dense.get_mut(at) {
                *place = n as u32;
            }
            bytes.resize(dense.len(), 0);
            if let Some(place) = bytes.get_mut(at) {
                *place = programs.events.get(n).map_or(0, plain);
            }
        }
        StreamClass { plan: HeaderPlan::of(&programs), programs, first_class, dense, bytes, sparse }
    }

    /// The place of an event by its number.
    #[inline]
    pub(crate) fn event(&self, id: u64) -> Option<u32> {
        match self.dense.get(id as usize) {
            Some(n) if *n != NONE && id < DENSE => Some(*n),
            _ => self.sparse.get(&id).copied(),
        }
    }

    /// The place of an event among those of all traces and the bytes of its body, if it
    /// always has as many.
    #[inline]
    pub(crate) fn plain(&self, id: u64) -> Option<(u32, usize)> {
        let bytes = self.bytes.get(id as usize).copied().filter(|b| *b > 0 && id < DENSE)?;
        Some((self.first_class + self.dense.get(id as usize)?, bytes as usize))
    }
}

/// The bytes of an event's body if they always are as many and depend on nothing else.
fn plain(program: &Result<compile::EventProgram, compile::CompileError>) -> u32 {
    let bits = program.as_ref().ok().filter(|p| !p.outer).and_then(|p| p.body.fixed);
    match bits {
        Some(bits) if bits.is_multiple_of(8) && bits / 8 < PLAIN => (bits / 8) as u32,
        _ => 0,
    }
}

/// A kind of event, of one of the traces.
#[derive(Clone, Copy, Debug)]
pub struct Class<'c> {
    /// Its trace, by place.
    pub trace: usize,
    /// The number of its stream.
    pub stream: u64,
    /// Declaration in the metadata.
    pub event: &'c EventClass,
    pub(crate) program: Option<&'c compile::EventProgram>,
}

impl<'c> Class<'c> {
    /// All its fields, those in others too, in their order.
    pub fn fields(&self) -> &'c [FieldInfo] {
        self.program.map_or(&[], |p| &p.body.fields)
    }

    /// A field of a part, by its shown name. The number is its place in [`Class::fields`].
    pub fn field(&self, part: Part, name: &str) -> Option<(usize, &'c FieldInfo)> {
        let fields = self.fields().iter().enumerate();
        fields.into_iter().find(|(_, f)| f.top && f.part == part && f.name == name)
    }
}

/// Reads the metadata of a trace; `path` is that of their file. `first_class`: how many events
/// other traces have.
pub(crate) fn open(
    path: &Path,
    bytes: std::io::Result<RecordingBytes>,
    name: String,
    first_class: u32,
) -> Result<Trace, CtfReadError> {
    let shown = || path.display().to_string();
    let text = bytes.and_then(|bytes| metadata::read(&bytes));
    let text = text.map_err(|error| CtfReadError::Io { path: shown(), error })?;
    let parsed = match text.text.first() {
        Some(&json::RECORD_SEPARATOR) => json::parse(&text.text),
        _ => tsdl::parse(&text.text),
    };
    let parsed = parsed.map_err(|error| CtfReadError::Metadata { path: shown(), error })?;
    let mut damage = Vec::new();
    if let Some((at, what)) = text.damage {
        damage.push(format!("metadata at offset {at}: {what}"));
    }
    if let Some(error) = parsed.error {
        // Metadata of a tracer that was killed end somewhere; what does not even describe
        // a stream is of no use.
        if parsed.metadata.streams.is_empty() {
            return Err(CtfReadError::Metadata { path: shown(), error });
        }
        damage.push(format!("metadata, {error}; what follows is not known"));
    }
    for error in parsed.skipped {
        damage.push(format!("metadata, {error}; what is declared there is not known"));
    }
    if parsed.metadata.streams.is_empty() && !damage.is_empty() {
        let what = damage.join("; ");
        return Err(CtfReadError::Types { path: shown(), what });
    }
    let fail =
        |e: compile::CompileError| CtfReadError::Types { path: shown(), what: e.to_string() };
    let trace = compile(parsed.metadata, name, first_class).map_err(fail)?;
    damage.extend(trace.damage);
    Ok(Trace { damage, remarks: parsed.remarks, ..trace })
}

/// Makes a trace of its metadata. `first_class`: how many events other traces have.
pub(crate) fn compile(
    metadata: Metadata,
    name: String,
    mut first_class: u32,
) -> Result<Trace, compile::CompileError> {
    let (mut damage, mut steps) = (Vec::new(), 0);
    let packet_header = compile::packet_header(&metadata)?;
    let mut streams = Vec::new();
    for stream in &metadata.streams {
        let programs = compile::stream(&metadata, stream, &mut steps)?;
        for error in programs.events.iter().filter_map(|e| e.as_ref().err()).take(16) {
            damage.push(format!("metadata: event {error}"));
        }
        streams.push(StreamClass::new(programs, &stream.events, first_class));
        first_class += stream.events.len() as u32;
    }
    let slots = streams.iter().map(|s| s.programs.slots).max().unwrap_or(0).max(OUTER_SLOTS);
    let scale = Scale::of(clock(&metadata), false);
    let (remarks, readings) = (Vec::new(), None);
    Ok(Trace { name, metadata, packet_header, streams, scale, readings, slots, damage, remarks })
}

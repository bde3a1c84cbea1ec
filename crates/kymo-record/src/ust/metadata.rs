//! CTF metadata of a program and its events.

use std::collections::HashSet;
use std::sync::Arc;

use kymo_files::ctf::types::{
    ClockClass, CtfVersion, Encoding, Enum, EnumMapping, EnvValue, EventClass, FieldPath, Float,
    Int, Metadata, StreamClass, Struct, StructureMember, Type, Variant,
};
use kymo_files::ctf::{Anchor, UNFINISHED};
use kymo_model::Endian;
use kymo_ring::{ClockFacts, Config};
use kymo_ust::{EventRecord, FieldRecord, FieldTag, Shape};

use super::program::Program;

const LE: Endian = Endian::Little;
const CLOCK: &str = "monotonic";

/// The metadata of a trace of one channel. `clock` is the latest that is known of it, with
/// readings of it beside `CLOCK_MONOTONIC`. It is that of a trace that is not finished.
pub(super) fn metadata(
    program: &Program,
    ring: &Config,
    (clock, anchors): &(ClockFacts, Vec<Anchor>),
    (session, version): (&str, CtfVersion),
) -> Metadata {
    let mut metadata = Metadata::new(LE);
    metadata.version = version;
    metadata.uuid = Some(ring.uuid);
    metadata.packet_header = Some(Arc::new(Struct::new([
        StructureMember::plain("magic", uint(32)),
        StructureMember::plain("uuid", Type::Array(Arc::new(uint(8)), 16)),
        StructureMember::plain("stream_id", uint(32)),
    ])));
    let text = |s: &[u8]| EnvValue::Text(String::from_utf8_lossy(s).into_owned());
    let control = program.control();
    metadata.env = vec![
        ("domain".into(), EnvValue::Text("ust".into())),
        ("tracer_name".into(), EnvValue::Text("kymo".into())),
        ("session".into(), EnvValue::Text(session.into())),
        ("procname".into(), text(&control.comm)),
        ("exe".into(), text(&control.exe)),
        ("vpid".into(), EnvValue::Int(control.pid.into())),
        ("vuid".into(), EnvValue::Int(control.uid.into())),
    ];
    // Its writer may be killed, or its disk be full: the end takes this out.
    metadata.env.push((UNFINISHED.into(), EnvValue::Int(1)));
    metadata.add_anchors(anchors.iter().copied());
    metadata.clocks = vec![clock_of(clock)];
    metadata.streams = vec![StreamClass {
        id: ring.stream.into(),
        packet_context: Some(Arc::new(packet_context())),
        event_header: Some(Arc::new(event_header())),
        event_context: Some(Arc::new(Struct::new([StructureMember::new("vtid", int(32, true))]))),
        events: events(program.events()),
    }];
    metadata
}

/// Ticks, and when the first was: seconds and ticks after 1970.
fn clock_of(facts: &ClockFacts) -> ClockClass {
    let frequency = i128::from(facts.frequency.max(1));
    let since_1970 = i128::from(facts.realtime) * frequency / 1_000_000_000;
    let offset = since_1970 - i128::from(facts.ticks);
    let mut clock = ClockClass::new(CLOCK);
    clock.freq = facts.frequency;
    clock.description = "Ticks of the counter that the kernel keeps CLOCK_MONOTONIC by".into();
    clock.precision =
        (u128::from(facts.error_ns) * frequency.unsigned_abs() / 1_000_000_000) as u64;
    clock.offset_s = offset.div_euclid(frequency) as i64;
    clock.offset = offset.rem_euclid(frequency) as i64;
    clock.absolute = true;
    clock
}

fn packet_context() -> Struct {
    let word = |name: &str| StructureMember::plain(name, uint(64));
    let time =
        |name: &str| StructureMember::plain(name, Type::Int(Int::unsigned(64, LE).of_clock(CLOCK)));
    Struct::new([
        word("packet_seq_num"),
        time("timestamp_begin"),
        time("timestamp_end"),
        word("content_size"),
        word("packet_size"),
        word("events_discarded"),
        word("events_before"),
        word("events_overwritten"),
        word("anchor_monotonic"),
        StructureMember::plain("anchor_error", uint(32)),
        StructureMember::plain("cpu_id", int(32, true)),
    ])
}

/// The compact header: 5 bits of number and 27 of time, with two escapes.
fn event_header() -> Struct {
    let mut number = Int::unsigned(5, LE);
    number.align = 8;
    let label = |name: &str, from, to| EnumMapping { name: name.into(), from, to };
    let labels = [label("compact", 0, 28), label("wide", 29, 29), label("extended", 30, 31)];
    let short =
        || StructureMember::plain("timestamp", Type::Int(Int::unsigned(27, LE).of_clock(CLOCK)));
    let long =
        StructureMember::plain("timestamp", Type::Int(Int::unsigned(64, LE).of_clock(CLOCK)));
    let option = |name: &str, fields: Vec<StructureMember>| {
        StructureMember::plain(name, Type::Struct(Arc::new(Struct::new(fields))))
    };
    // Behind 27 bits, without a gap.
    let mut wide = Int::unsigned(16, LE);
    wide.align = 1;
    let options = vec![
        option("compact", vec![short()]),
        option("wide", vec![short(), StructureMember::plain("id", Type::Int(wide))]),
        // Begins at the next byte.
        option("extended", vec![StructureMember::plain("id", uint(32)), long]),
    ];
    Struct::new([
        StructureMember::plain("id", Type::Enum(Enum::new(number, labels))),
        StructureMember::plain(
            "v",
            Type::Variant(Arc::new(Variant { tag: FieldPath(vec!["id".into()]), options })),
        ),
    ])
}

/// The events of a table, each number once: a table may hold anything.
fn events(table: &[EventRecord]) -> Vec<EventClass> {
    let mut numbers = HashSet::new();
    table.iter().filter(|record| numbers.insert(record.id)).map(event).collect()
}

fn event(record: &EventRecord) -> EventClass {
    let mut names = HashSet::new();
    let mut fields = Vec::new();
    for (i, f) in record.fields.iter().enumerate() {
        let mut name = identifier(&f.name, i);
        while !names.insert(name.clone()) {
            name = format!("{name}_{i}");
        }
        fields.extend(field(f, &name));
    }
    EventClass {
        id: record.id.into(),
        name: format!("{}:{}", record.provider, record.name),
        loglevel: Some(record.level.into()),
        emf_uri: None,
        print_format: Some(record.format.clone()).filter(|f| !f.is_empty()),
        doc: Some(record.doc.clone()).filter(|d| !d.is_empty()),
        context: None,
        fields: Some(Arc::new(Struct::new(fields))),
    }
}

/// A name that metadata may hold: names of events are texts there, names of fields are not.
fn identifier(name: &str, index: usize) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    if name.is_empty() { format!("field{index}") } else { name }
}

fn field(record: &FieldRecord, name: &str) -> Vec<StructureMember> {
    let shape = record.shape;
    let bits = 8 * u32::from(shape.size);
    let number = || {
        let number = Int::new(bits, shape.flags & Shape::SIGNED != 0, LE);
        if shape.flags & Shape::HEX != 0 { number.in_base(16) } else { number }
    };
    let element = || match (shape.flags & Shape::FLOATS != 0, bits) {
        (true, 32) => Type::Float(Float::single(LE)),
        (true, _) => Type::Float(Float::double(LE)),
        (false, _) => Type::Int(number()),
    };
    let of = match shape.kind {
        FieldTag::Int => Type::Int(number()),
        FieldTag::Float if bits == 32 => Type::Float(Float::single(LE)),
        FieldTag::Float => Type::Float(Float::double(LE)),
        FieldTag::Symbol => Type::Int(Int::unsigned(64, LE).of_address()),
        FieldTag::Bool => Type::Enum(Enum::boolean(LE)),
        FieldTag::Enum if record.entries.is_empty() => Type::Int(number()),
        FieldTag::Enum => {
            let labels = record.entries.iter().map(|(low, high, name)| EnumMapping {
                name: name.clone(),
                from: (*low).into(),
                to: (*high.max(low)).into(),
            });
            Type::Enum(Enum::new(number(), labels.collect::<Vec<_>>()))
        }
        FieldTag::String => Type::Text(Encoding::Utf8),
        FieldTag::Array => Type::Array(Arc::new(element()), shape.count.into()),
        FieldTag::Sequence => {
            let length = format!("{name}_length");
            let path = FieldPath::sibling(&length);
            return vec![
                StructureMember::new(&length, uint(32)),
                StructureMember::new(name, Type::Sequence(Arc::new(element()), path)),
            ];
        }
    };
    vec![StructureMember::new(name, of)]
}

fn uint(bits: u32) -> Type {
    Type::Int(Int::unsigned(bits, LE))
}

fn int(bits: u32, signed: bool) -> Type {
    Type::Int(Int::new(bits, signed, LE))
}

//! Traces made here with every type, in both byte orders, packed to bytes and to bits
//! and aligned as C would, with all kinds of headers.

use std::path::Path;
use std::sync::Arc;

use kymo_files::ctf::Metadata;
use kymo_files::ctf::types::{
    ClockClass, Encoding, Enum, EnumMapping, EnvValue, EventClass, FieldPath, Float, Int,
    StreamClass, Struct, StructureMember, Type, Variant,
};
use kymo_files::ctf::write::Directory;
use kymo_model::Endian;

use crate::packet_writer::{PacketWriter, Value};

pub(crate) const UUID: [u8; 16] = *b"kymo-ctf-test-17";

/// Packing of numbers in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Bytes,
    Bits,
    Natural,
}

/// Header of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// 5 and 27 bits.
    Compact,
    /// 16 and 32 bits.
    Large,
    /// An id and all of the time.
    Plain,
}

/// Makes types of one form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) endian: Endian,
    pub(crate) packing: Packing,
    pub(crate) header: Header,
}

impl Form {
    pub(crate) fn all() -> impl Iterator<Item = Form> {
        let headers = [Header::Compact, Header::Large, Header::Plain];
        let packings = [Packing::Bytes, Packing::Bits, Packing::Natural];
        [Endian::Little, Endian::Big].into_iter().flat_map(move |endian| {
            packings.into_iter().flat_map(move |packing| {
                headers.into_iter().map(move |header| Form { endian, packing, header })
            })
        })
    }

    fn align(self, size: u32) -> u32 {
        match self.packing {
            _ if !size.is_multiple_of(8) => 1,
            Packing::Bytes => 8,
            Packing::Bits => 1,
            Packing::Natural => size.next_power_of_two(),
        }
    }

    fn int(self, size: u32, signed: bool) -> Int {
        let mut int = Int::new(size, signed, self.endian);
        int.align = self.align(size);
        int
    }

    fn uint(self, size: u32) -> Type {
        Type::Int(self.int(size, false))
    }

    fn time(self, size: u32) -> Type {
        Type::Int(self.int(size, false).of_clock("ticks"))
    }

    fn float(self, double: bool) -> Type {
        let of = if double { Float::double(self.endian) } else { Float::single(self.endian) };
        Type::Float(Float { align: self.align(of.exp_dig + of.mant_dig), ..of })
    }

    fn character(self) -> Type {
        let mut int = Int::new(8, false, self.endian);
        (int.align, int.encoding) = (8, Encoding::Utf8);
        Type::Int(int)
    }

    /// Header of events, and its values.
    fn header(self) -> Struct {
        let (id, short) = match self.header {
            Header::Compact => (5, 27),
            Header::Large => (16, 32),
            Header::Plain => {
                let fields = [
                    StructureMember::plain("id", self.uint(16)),
                    StructureMember::plain("t", self.time(64)),
                ];
                return Struct::new(fields);
            }
        };
        let last = (1 << id) - 1;
        let compact = EnumMapping { name: "compact".into(), from: 0, to: last - 1 };
        let labels = [compact, EnumMapping::of("extended", last)];
        let id = Enum::new(self.int(id, false), labels);
        let compact = Struct::new([StructureMember::plain("timestamp", self.time(short))]);
        let extended = Struct::new([
            StructureMember::plain("id", self.uint(32)),
            StructureMember::plain("timestamp", self.time(64)),
        ]);
        let v = Variant {
            tag: FieldPath(vec!["id".into()]),
            options: vec![
                StructureMember::plain("compact", Type::Struct(Arc::new(compact))),
                StructureMember::plain("extended", Type::Struct(Arc::new(extended))),
            ],
        };
        let fields = [
            StructureMember::plain("id", Type::Enum(id)),
            StructureMember::plain("v", Type::Variant(Arc::new(v))),
        ];
        Struct::new(fields).aligned(8)
    }

    pub(crate) fn head(self, id: u64, time: u64, extended: bool) -> Vec<Value> {
        let (bits, escape) = match self.header {
            Header::Plain => return vec![id.into(), time.into()],
            Header::Compact => (27, 31),
            Header::Large => (32, 65535),
        };
        let (tag, name, values) = if extended || id >= escape {
            (escape, "extended", vec![id.into(), time.into()])
        } else {
            (id, "compact", vec![(time & ((1 << bits) - 1)).into()])
        };
        vec![tag.into(), Value::Option(name.into(), Box::new(Value::Struct(values)))]
    }

    pub(crate) fn metadata(self) -> Metadata {
        let mut m = Metadata::new(self.endian);
        m.uuid = Some(UUID);
        m.packet_header = Some(Arc::new(Struct::new([
            StructureMember::plain("magic", self.uint(32)),
            StructureMember::plain("uuid", Type::Array(Arc::new(self.bytes()), 16)),
            StructureMember::plain("stream_id", self.uint(32)),
            StructureMember::plain("stream_instance_id", self.uint(64)),
        ])));
        m.env = vec![
            ("domain".into(), EnvValue::Text("ust \"quoted\" \\ \u{e4}\n\t\u{1}7".into())),
            ("tracer_major".into(), EnvValue::Int(-2)),
        ];
        let mut clock = ClockClass::new("ticks");
        (clock.uuid, clock.freq) = (Some(UUID), 1_000_000_000);
        (clock.offset_s, clock.offset, clock.precision) = (1_700_000_000, 5, 10);
        clock.description = "ticks of a test".into();
        m.clocks = vec![clock];
        m.streams = vec![self.stream()];
        m
    }

    fn bytes(self) -> Type {
        let mut byte = Int::new(8, false, self.endian);
        byte.align = 8;
        Type::Int(byte)
    }

    fn stream(self) -> StreamClass {
        let context = Struct::new([
            StructureMember::plain("timestamp_begin", self.time(64)),
            StructureMember::plain("timestamp_end", self.time(64)),
            StructureMember::plain("content_size", self.uint(64)),
            StructureMember::plain("packet_size", self.uint(64)),
            StructureMember::plain("packet_seq_num", self.uint(64)),
            StructureMember::plain("events_discarded", self.uint(64)),
            StructureMember::plain("cpu_id", self.uint(32)),
        ]);
        StreamClass {
            id: 0,
            packet_context: Some(Arc::new(context)),
            event_header: Some(Arc::new(self.header())),
            event_context: Some(Arc::new(Struct::new([
                StructureMember::new("vpid", Type::Int(self.int(32, true))),
                StructureMember::new("vtid", Type::Int(self.int(32, true))),
                StructureMember::new("procname", Type::Array(Arc::new(self.character()), 16)),
            ]))),
            events: self.events(),
        }
    }

    fn events(self) -> Vec<EventClass> {
        let event = |id, name: &str, fields: Vec<StructureMember>| EventClass {
            id,
            name: name.into(),
            loglevel: Some(6),
            doc: Some(format!("What {name} means.\n\nIn two parts: /* x.")),
            emf_uri: Some("http://example.org/x".into()),
            print_format: Some("so {i8:x} it \"is\"".into()),
            context: None,
            fields: Some(Arc::new(Struct::new(fields))),
        };
        let mut rows = event(2, "made:rows", self.rows());
        let flag = StructureMember::new("weight", Type::Int(self.int(3, false)));
        rows.context = Some(Arc::new(Struct::new([flag])));
        vec![
            event(0, "made:numbers", self.numbers()),
            event(1, "made:nothing", Vec::new()),
            rows,
            event(40_000, "made:far", vec![StructureMember::new("n", self.uint(8))]),
        ]
    }

    fn numbers(self) -> Vec<StructureMember> {
        let mut fields = Vec::new();
        for (size, signed) in [
            (1, false),
            (7, true),
            (8, true),
            (13, false),
            (16, true),
            (24, false),
            (32, true),
            (33, true),
            (57, false),
            (64, true),
        ] {
            let name = format!("{}{size}", if signed { "i" } else { "u" });
            fields.push(StructureMember::new(&name, Type::Int(self.int(size, signed))));
            let other = Type::Int(self.int(size, signed).in_base(16));
            fields.push(StructureMember::new(format!("{name}h"), other));
        }
        fields.push(StructureMember::new("code", Type::Int(self.int(64, false).of_address())));
        let mut network = self.int(32, false);
        network.byte_order = Endian::Big;
        fields.push(StructureMember::new("net", Type::Int(network)).padded(self));
        fields.push(StructureMember::new("oct", Type::Int(self.int(16, false).in_base(8))));
        fields.push(StructureMember::new("bin", Type::Int(self.int(16, false).in_base(2))));
        fields.push(StructureMember::new("f", self.float(false)));
        fields.push(StructureMember::new("d", self.float(true)));
        let labels = [
            EnumMapping { name: "few".into(), from: -3, to: -1 },
            EnumMapping::of("none \"really\"", 0),
            EnumMapping { name: "some".into(), from: 1, to: 5 },
            EnumMapping::of("five", 5),
        ];
        let int = self.int(8, true);
        fields.push(StructureMember::new("e", Type::Enum(Enum::new(int, labels))));
        fields
    }

    fn rows(self) -> Vec<StructureMember> {
        let pair = Struct::new([
            StructureMember::new("a", self.uint(3)),
            StructureMember::new("b", self.uint(16)),
        ]);
        let pair = Type::Struct(Arc::new(pair));
        let labels =
            [EnumMapping::of("number", 0), EnumMapping::of("words", 1), EnumMapping::of("pair", 2)];
        let choice = Enum::new(self.int(8, false), labels);
        let v = Variant {
            tag: FieldPath::sibling("choice"),
            options: vec![
                StructureMember::plain("number", self.uint(32)),
                StructureMember::plain("words", Type::Text(Encoding::Utf8)),
                StructureMember::plain("pair", pair.clone()),
            ],
        };
        let of = |t: Type| Arc::new(t);
        let many = FieldPath::sibling("many");
        vec![
            StructureMember::new("many", self.uint(8)),
            StructureMember::new("text", Type::Text(Encoding::Utf8)),
            StructureMember::new("fixed", Type::Array(of(self.uint(16)), 3)),
            StructureMember::new("square", Type::Array(of(Type::Array(of(self.uint(8)), 3)), 2)),
            StructureMember::new("numbers", Type::Sequence(of(self.uint(12)), many.clone())),
            StructureMember::new("chars", Type::Sequence(of(self.character()), many.clone())),
            StructureMember::new("pairs", Type::Sequence(of(pair), many)),
            StructureMember::new("choice", Type::Enum(choice)),
            StructureMember::new("chosen", Type::Variant(Arc::new(v))),
            StructureMember::new("after", self.uint(64)),
        ]
    }

    /// The values of the n-th event of a kind.
    pub(crate) fn values(self, kind: usize, n: u64) -> Vec<Value> {
        match kind {
            0 => {
                let mut values = Vec::new();
                for i in 0..10 {
                    let bits = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(i);
                    values.extend([Value::Uint(bits), Value::Uint(!bits)]);
                }
                values.extend([n << 20, n, n * 3, n * 5].map(Value::Uint));
                values.push(Value::Float(n as f64 / 3.0));
                values.push(Value::Float(-(n as f64) * 1e200 / 7.0));
                values.push(Value::Int(n as i64 % 10 - 4));
                values
            }
            2 => {
                let many = 1 + n % 4;
                let row = |of: &dyn Fn(u64) -> Value| Value::Row((0..many).map(of).collect());
                let pair = |i: u64| Value::Struct(vec![Value::Uint(i & 7), Value::Uint(n * 7 + i)]);
                let chosen = match n % 3 {
                    0 => Value::Option("number".into(), Box::new(Value::Uint(n))),
                    1 => Value::Option("words".into(), Box::new("of \"text\"\n".into())),
                    _ => Value::Option("pair".into(), Box::new(pair(n))),
                };
                let three = |k: u64| Value::Row((0..3).map(|i| Value::Uint(k * 10 + i)).collect());
                vec![
                    Value::Uint(many),
                    Value::Text(format!("text {n} \u{e4}").into()),
                    Value::Row((0..3).map(|i| Value::Uint(n + i)).collect()),
                    Value::Row(vec![three(0), three(1)]),
                    row(&|i| Value::Uint((n * 17 + i) & 0xfff)),
                    Value::Text(b"abcdefgh"[..many as usize].to_vec()),
                    row(&pair),
                    Value::Uint(n % 3),
                    chosen,
                    Value::Uint(n << 40),
                ]
            }
            3 => vec![Value::Uint(n & 0xff)],
            _ => Vec::new(),
        }
    }
}

trait Padded {
    fn padded(self, form: Form) -> Self;
}

impl Padded for StructureMember {
    /// The order of bits may change at whole bytes alone.
    fn padded(mut self, form: Form) -> StructureMember {
        if let Type::Int(int) = &mut self.of {
            int.align = int.align.max(8);
            if form.packing == Packing::Bits {
                int.byte_order = form.endian;
            }
        }
        self
    }
}

/// A stream that is written.
pub(crate) struct Stream {
    pub(crate) form: Form,
    pub(crate) metadata: Metadata,
    pub(crate) cpu: u64,
    pub(crate) sequence: u64,
    pub(crate) discarded: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(form: Form, cpu: u64) -> Stream {
        let (sequence, discarded, bytes) = (0, 0, Vec::new());
        Stream { form, metadata: form.metadata(), cpu, sequence, discarded, bytes }
    }

    /// Writes a packet of events: kind, number, time.
    pub(crate) fn packet(&mut self, events: &[(usize, u64, u64)]) {
        let stream = &self.metadata.streams[0];
        let header = self.metadata.packet_header.clone().unwrap();
        let context = stream.packet_context.clone().unwrap();
        let times = (events[0].2, events[events.len() - 1].2);
        let uuid = Value::Row(UUID.iter().map(|b| Value::Uint((*b).into())).collect());
        let head = [Value::Uint(0xc1fc_1fc1), uuid, Value::Uint(0), Value::Uint(self.cpu)];
        let context_of = |content: u64, size: u64| {
            [times.0, times.1, content, size, self.sequence, self.discarded, self.cpu]
                .map(Value::Uint)
        };
        let mut w = PacketWriter::new();
        w.structure(&header, &head);
        w.structure(&context, &context_of(0, 0));
        for (i, (kind, n, time)) in events.iter().enumerate() {
            let event = &stream.events[*kind];
            // Where the time before is not known, the header holds all of it.
            let extended = i % 5 == 4;
            let head = self.form.head(event.id, *time, extended);
            w.structure(stream.event_header.as_ref().unwrap(), &head);
            let context = [Value::Int(100 + *n as i64), Value::Int(-5), "prog".into()];
            w.structure(stream.event_context.as_ref().unwrap(), &context);
            if let Some(of) = &event.context {
                w.structure(of, &[Value::Uint(n % 8)]);
            }
            let values = self.form.values(*kind, *n);
            w.structure(event.fields.as_ref().unwrap(), &values);
        }
        let content = w.bits();
        w.pad(w.bytes().len().next_multiple_of(64) + 64);
        let size = w.bits();
        w.seek(0);
        w.structure(&header, &head);
        w.structure(&context, &context_of(content, size));
        self.bytes.extend(w.bytes());
        self.sequence += 1;
    }
}

/// Writes a trace with two streams of a form.
pub(crate) fn write(form: Form, directory: &Path) {
    let made = Directory::create(directory, &form.metadata()).unwrap();
    let mut time = 0x1234_5678_9abc;
    let mut streams = [Stream::new(form, 0), Stream::new(form, 1)];
    for packet in 0..6u64 {
        for (cpu, s) in streams.iter_mut().enumerate() {
            let mut events = Vec::new();
            for i in 0..23u64 {
                // Between events 27 bits may wrap once.
                time += if i % 7 == 3 { 100_000_000 } else { 1_000 + i };
                let kind = [0, 1, 2, 0, 2, 2, 3][(i as usize + cpu) % 7];
                events.push((kind, packet * 23 + i, time));
            }
            s.packet(&events);
        }
    }
    for s in streams {
        use std::io::Write as _;
        made.stream(&format!("stream_{}", s.cpu)).unwrap().write_all(&s.bytes).unwrap();
    }
}

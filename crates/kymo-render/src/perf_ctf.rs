//! The records of a perf.data as events of CTF, by the names that `perf data convert --to-ctf`
//! gives them: packets of streams by CPU, and the metadata that describe them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kymo_analysis::sample_reads::{MemberSample, SampleReads};
use kymo_events::perf_data::{TracepointPayloads, payload_endian};
use kymo_files::ctf::types::{
    ClockClass, Encoding, EnvValue, EventClass, FieldPath, Int, Metadata, StreamClass, Struct,
    StructureMember, Type,
};
use kymo_files::perfdata::{Entry, EventDesc, PerfData};
use kymo_format::{Field, FieldKind};
use kymo_model::{Endian, RecordKind, Sample, SampleType, Sideband};

const LE: Endian = Endian::Little;
const CLOCK: &str = "perf_clock";
/// CPUs that have a stream of their own.
const MOST_CPUS: u32 = 4096;
/// Bytes of events that make a packet.
const PACKET: usize = 1 << 18;
/// Bytes before the events of a packet: magic and stream, three times and sizes, and so on.
const PACKET_HEADER: usize = 8 + 5 * 8 + 4;

/// Numbers of events that are no samples, behind those of the recording.
const OTHERS: [(RecordKind, &str); 5] = [
    (RecordKind::COMM, "perf_comm"),
    (RecordKind::EXIT, "perf_exit"),
    (RecordKind::FORK, "perf_fork"),
    (RecordKind::MMAP, "perf_mmap"),
    (RecordKind::MMAP2, "perf_mmap2"),
];

/// Makes packets of records.
pub struct PerfCtf {
    payloads: TracepointPayloads,
    events: usize,
    /// Also records that are no samples.
    all: bool,
    /// Counts of groups of which only the leader is sampled.
    reads: Option<SampleReads>,
    /// Open packets by CPU.
    open: BTreeMap<u32, OpenPacket>,
    /// Samples, and other records.
    pub written: (u64, u64),
    /// Samples that are shorter than their fields.
    pub malformed: u64,
}

/// Events of a packet.
#[derive(Default)]
struct OpenPacket {
    span: Option<(u64, u64)>,
    bytes: Vec<u8>,
}

impl PerfCtf {
    /// Conversion of a recording; with `all`, records that are not samples are included.
    pub fn new(data: &PerfData, all: bool) -> PerfCtf {
        PerfCtf {
            payloads: TracepointPayloads::default(),
            events: data.events().len(),
            all,
            reads: SampleReads::of(data.events()),
            open: BTreeMap::new(),
            written: (0, 0),
            malformed: 0,
        }
    }

    /// Metadata of the packets. `offset`: nanoseconds from 1970 to the start of the clock.
    pub fn metadata(&mut self, data: &PerfData, offset: Option<i128>) -> Metadata {
        let mut metadata = Metadata::new(LE);
        metadata.packet_header = Some(Arc::new(Struct::new([
            StructureMember::plain("magic", uint(32)),
            StructureMember::plain("stream_id", uint(32)),
        ])));
        let f = data.features();
        let text = |of: &Option<String>| EnvValue::Text(of.clone().unwrap_or_default());
        metadata.env = vec![
            ("host".into(), text(&f.hostname)),
            ("sysname".into(), EnvValue::Text("Linux".into())),
            ("release".into(), text(&f.osrelease)),
            ("version".into(), text(&f.version)),
            ("machine".into(), text(&f.arch)),
            ("domain".into(), EnvValue::Text("kernel".into())),
            ("tracer_name".into(), EnvValue::Text("perf".into())),
        ];
        let mut clock = ClockClass::new(CLOCK);
        clock.description = "perf clock".into();
        if let Some(offset) = offset {
            clock.offset_s = offset.div_euclid(1_000_000_000) as i64;
            clock.offset = offset.rem_euclid(1_000_000_000) as i64;
            clock.absolute = true;
        }
        metadata.clocks = vec![clock];
        let time = || Type::Int(Int::unsigned(64, LE).of_clock(CLOCK));
        let plain = StructureMember::plain;
        let mut events: Vec<EventClass> = Vec::new();
        for (id, desc) in (0u64..).zip(data.events()) {
            let format = self.payloads.format_of(data, id as usize);
            let mut fields = sample_fields(desc);
            match format {
                Some(format) => {
                    let mut names: BTreeSet<String> =
                        fields.iter().map(|field| field.shown().to_owned()).collect();
                    for field in &format.fields {
                        let name = identifier(&field.name, &mut names);
                        fields.extend(payload_field(field, &name));
                    }
                }
                None if has(desc, SampleType::RAW) => {
                    fields.extend(sequence("raw_data", "raw_len", uint(8)));
                }
                None => {}
            }
            events.push(class(id, &desc.name, fields));
        }
        if self.all {
            let first = self.events as u64;
            let others = OTHERS.iter().zip(first..);
            events.extend(others.map(|((kind, name), id)| class(id, name, other_fields(*kind))));
        }
        metadata.streams = vec![StreamClass {
            id: 0,
            packet_context: Some(Arc::new(Struct::new([
                plain("timestamp_begin", time()),
                plain("timestamp_end", time()),
                plain("content_size", uint(64)),
                plain("packet_size", uint(64)),
                plain("events_discarded", uint(64)),
                plain("cpu_id", uint(32)),
            ]))),
            event_header: Some(Arc::new(Struct::new([
                plain("id", uint(32)),
                plain("timestamp", time()),
            ]))),
            event_context: None,
            events,
        }];
        metadata
    }

    /// Takes a record; a packet that is full comes out, with its CPU. A sample that is not wanted
    /// is not written.
    pub fn record(&mut self, entry: &Entry<'_>, is_wanted: bool) -> Option<(u32, Vec<u8>)> {
        let cpu = match entry.raw.kind {
            RecordKind::SAMPLE => self.samples(entry, is_wanted),
            _ if self.all => self.other(entry),
            _ => None,
        }?;
        let full = self.open.get(&cpu).is_some_and(|packet| packet.bytes.len() >= PACKET);
        full.then(|| self.open.remove(&cpu).map(|packet| (cpu, packet.close(cpu)))).flatten()
    }

    /// The packets that are left.
    pub fn finish(&mut self) -> impl Iterator<Item = (u32, Vec<u8>)> + use<> {
        std::mem::take(&mut self.open).into_iter().map(|(cpu, packet)| (cpu, packet.close(cpu)))
    }

    /// A sample, or those of the events of a group of which only the leader is sampled.
    fn samples(&mut self, entry: &Entry<'_>, is_wanted: bool) -> Option<u32> {
        // Also one that is not wanted has counts that the next one's count from.
        match self.reads.as_mut().and_then(|reads| reads.member_samples(entry)) {
            _ if !is_wanted => None,
            Some(members) => {
                let written = members.iter().map(|m| self.sample(&m.entry, Some(m)));
                written.fold(None, |last, cpu| cpu.or(last))
            }
            None => self.sample(entry, None),
        }
    }

    fn sample(&mut self, entry: &Entry<'_>, member: Option<&MemberSample<'_>>) -> Option<u32> {
        let desc = entry.desc()?;
        let Ok(mut sample) = Sample::parse(&entry.raw, &desc.attr) else {
            self.malformed += 1;
            return None;
        };
        if let Some(member) = member {
            (sample.id, sample.period) = (Some(member.id), Some(member.period));
        }
        let cpu = stream_of(sample.cpu);
        let out = self.open.entry(cpu).or_default().event(entry.event, sample.time);
        let word = |out: &mut Vec<u8>, value: Option<u64>| {
            out.extend_from_slice(&value.unwrap_or(0).to_le_bytes());
        };
        if has(desc, SampleType::IP) {
            word(out, sample.ip);
        }
        if has(desc, SampleType::TID) {
            let (pid, tid) = sample.tid.unwrap_or((0, 0));
            out.extend_from_slice(&tid.to_le_bytes());
            out.extend_from_slice(&pid.to_le_bytes());
        }
        for (kind, value) in [
            (SampleType::ID | SampleType::IDENTIFIER, sample.id),
            (SampleType::STREAM_ID, sample.stream_id),
            (SampleType::PERIOD, sample.period),
            (SampleType::WEIGHT | SampleType::WEIGHT_STRUCT, sample.weight),
            (SampleType::DATA_SRC, sample.data_src),
            (SampleType::TRANSACTION, sample.transaction),
        ] {
            if desc.attr.sample_type.intersects(kind) {
                word(out, value);
            }
        }
        if has(desc, SampleType::CALLCHAIN) {
            let chain = sample.callchain();
            out.extend_from_slice(&(chain.len() as u32).to_le_bytes());
            chain.for_each(|ip| word(out, Some(ip)));
        }
        let raw = sample.raw.unwrap_or_default();
        match self.payloads.format(entry) {
            Some(format) => {
                let endian = payload_endian(entry);
                format.fields.iter().for_each(|field| write_payload(field, raw, endian, out));
            }
            None if has(desc, SampleType::RAW) => {
                out.extend_from_slice(&(raw.len() as u32).to_le_bytes());
                out.extend_from_slice(raw);
            }
            None => {}
        }
        self.written.0 += 1;
        Some(cpu)
    }

    fn other(&mut self, entry: &Entry<'_>) -> Option<u32> {
        let place = OTHERS.iter().position(|(kind, _)| *kind == entry.raw.kind)?;
        let id = entry.desc().and_then(|desc| entry.raw.sample_id(&desc.attr).ok());
        let id = id.unwrap_or_default();
        let record = Sideband::parse(&entry.raw).ok()??;
        let cpu = stream_of(id.cpu);
        let out = self.open.entry(cpu).or_default().event(self.events + place, id.time);
        let mut numbers = |of: &[u32]| of.iter().for_each(|n| out.extend(n.to_le_bytes()));
        match record {
            Sideband::Comm(comm) => {
                numbers(&[comm.pid, comm.tid]);
                text(comm.comm, out);
            }
            Sideband::Fork(task) | Sideband::Exit(task) => {
                numbers(&[task.pid, task.ppid, task.tid, task.ptid]);
                out.extend_from_slice(&task.time.to_le_bytes());
            }
            Sideband::Mmap(map) => {
                numbers(&[map.pid, map.tid]);
                out.extend_from_slice(&map.start.to_le_bytes());
                text(map.filename, out);
            }
            _ => {}
        }
        self.written.1 += 1;
        Some(cpu)
    }
}

impl OpenPacket {
    /// Begins an event; what follows are its fields.
    fn event(&mut self, id: usize, time: Option<u64>) -> &mut Vec<u8> {
        let time = time.unwrap_or(0);
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
        self.bytes.extend_from_slice(&(id as u32).to_le_bytes());
        self.bytes.extend_from_slice(&time.to_le_bytes());
        &mut self.bytes
    }

    fn close(self, cpu: u32) -> Vec<u8> {
        const MAGIC: u32 = 0xc1fc_1fc1;
        let (first, last) = self.span.unwrap_or_default();
        let bits = ((PACKET_HEADER + self.bytes.len()) * 8) as u64;
        let mut packet = MAGIC.to_le_bytes().to_vec();
        packet.extend_from_slice(&0u32.to_le_bytes());
        [first, last, bits, bits, 0].iter().for_each(|word| packet.extend(word.to_le_bytes()));
        packet.extend_from_slice(&cpu.to_le_bytes());
        packet.extend_from_slice(&self.bytes);
        packet
    }
}

/// The stream of a CPU; of one that cannot be it is the first.
fn stream_of(cpu: Option<u32>) -> u32 {
    cpu.filter(|cpu| *cpu < MOST_CPUS).unwrap_or(0)
}

fn has(desc: &EventDesc, part: SampleType) -> bool {
    desc.attr.sample_type.contains(part)
}

fn class(id: u64, name: &str, fields: Vec<StructureMember>) -> EventClass {
    let fields = Some(Arc::new(Struct::new(fields)));
    EventClass { id, name: name.to_owned(), fields, ..EventClass::default() }
}

/// Fields that the kernel puts into samples of the event.
fn sample_fields(desc: &EventDesc) -> Vec<StructureMember> {
    let member = StructureMember::new;
    let (word, hex) = (|| uint(64), || Type::Int(Int::unsigned(64, LE).in_base(16)));
    let mut fields = Vec::new();
    if has(desc, SampleType::IP) {
        fields.push(member("perf_ip", hex()));
    }
    if has(desc, SampleType::TID) {
        fields.extend(["perf_tid", "perf_pid"].map(|name| member(name, int(32))));
    }
    for (kind, name) in [
        (SampleType::ID | SampleType::IDENTIFIER, "perf_id"),
        (SampleType::STREAM_ID, "perf_stream_id"),
        (SampleType::PERIOD, "perf_period"),
        (SampleType::WEIGHT | SampleType::WEIGHT_STRUCT, "perf_weight"),
        (SampleType::DATA_SRC, "perf_data_src"),
        (SampleType::TRANSACTION, "perf_transaction"),
    ] {
        if desc.attr.sample_type.intersects(kind) {
            fields.push(member(name, word()));
        }
    }
    if has(desc, SampleType::CALLCHAIN) {
        fields.extend(sequence("perf_callchain", "perf_callchain_size", hex()));
    }
    fields
}

fn other_fields(kind: RecordKind) -> Vec<StructureMember> {
    let member = |name: &str, of| StructureMember::new(name, of);
    let numbers = |names: &[&str]| names.iter().map(|name| member(name, uint(32))).collect();
    let mut fields: Vec<StructureMember> = match kind {
        RecordKind::EXIT | RecordKind::FORK => numbers(&["pid", "ppid", "tid", "ptid"]),
        _ => numbers(&["pid", "tid"]),
    };
    match kind {
        RecordKind::COMM => fields.push(member("comm", Type::Text(Encoding::Utf8))),
        RecordKind::EXIT | RecordKind::FORK => fields.push(member("time", uint(64))),
        _ => {
            fields.push(member("start", Type::Int(Int::unsigned(64, LE).in_base(16))));
            fields.push(member("filename", Type::Text(Encoding::Utf8)));
        }
    }
    fields
}

/// A name that metadata may hold, and that no field before has.
fn identifier(name: &str, names: &mut BTreeSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let mut name: String = name.chars().map(plain).collect();
    while !names.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// Whether a field is a number of as many bytes as numbers have.
fn is_number(field: &Field) -> bool {
    let is_one = matches!(field.kind, FieldKind::Int | FieldKind::Bool | FieldKind::Pointer);
    is_one && matches!(field.size, 1 | 2 | 4 | 8)
}

/// The members that a field of a tracepoint becomes.
fn payload_field(field: &Field, name: &str) -> Vec<StructureMember> {
    let number = |size: u32, signed: bool| Int::new(size * 8, signed, LE);
    let one = |of: Type| vec![StructureMember::new(name, of)];
    let length = format!("{name}_length");
    match field.kind {
        FieldKind::Pointer if is_number(field) => {
            one(Type::Int(number(field.size, false).in_base(16)))
        }
        _ if is_number(field) => one(Type::Int(number(field.size, field.signed))),
        FieldKind::String | FieldKind::DynString { .. } => one(Type::Text(Encoding::Utf8)),
        FieldKind::Array { elem, signed } | FieldKind::DynArray { elem, signed, .. }
            if matches!(elem, 1 | 2 | 4 | 8) =>
        {
            sequence(name, &length, Type::Int(number(elem.into(), signed)))
        }
        _ => sequence(name, &length, Type::Int(Int::unsigned(8, LE).in_base(16))),
    }
}

fn write_payload(field: &Field, payload: &[u8], endian: Endian, out: &mut Vec<u8>) {
    let bytes = field.bytes(payload, endian);
    match field.kind {
        _ if is_number(field) => {
            let size = field.size as usize;
            match bytes.len() == size {
                true => numbers(bytes, size, endian, out),
                // A payload that is cut has no more.
                false => out.extend(std::iter::repeat_n(0, size)),
            }
        }
        FieldKind::String | FieldKind::DynString { .. } => text(bytes, out),
        FieldKind::Array { elem, .. } | FieldKind::DynArray { elem, .. }
            if matches!(elem, 1 | 2 | 4 | 8) =>
        {
            let size = usize::from(elem);
            let count = (bytes.len() / size) as u32;
            out.extend_from_slice(&count.to_le_bytes());
            numbers(bytes, size, endian, out);
        }
        _ => {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }
}

/// Numbers of the machine that was recorded, of `size` bytes each.
fn numbers(bytes: &[u8], size: usize, endian: Endian, out: &mut Vec<u8>) {
    for number in bytes.chunks_exact(size.max(1)) {
        match endian {
            Endian::Little => out.extend_from_slice(number),
            Endian::Big => out.extend(number.iter().rev()),
        }
    }
}

/// Bytes up to a NUL, and the NUL.
fn text(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(bytes.iter().take_while(|byte| **byte != 0));
    out.push(0);
}

fn sequence(name: &str, length: &str, of: Type) -> Vec<StructureMember> {
    let elements = Type::Sequence(Arc::new(of), FieldPath::sibling(length));
    vec![StructureMember::new(length, uint(32)), StructureMember::new(name, elements)]
}

fn uint(bits: u32) -> Type {
    Type::Int(Int::unsigned(bits, LE))
}

fn int(bits: u32) -> Type {
    Type::Int(Int::signed(bits, LE))
}

//! Metadata of a trace, as data: made by the parsers from TSDL (CTF 1.8) and JSON (CTF 2), by
//! tracers for the writer, which prints TSDL.
//!
//! Types are trees whose shared parts are shared (`Arc`), so that a text that names one type in
//! many places costs no more than its length.

use std::sync::Arc;

use kymo_model::Endian;

pub use super::attributes::CodeMapping;

/// The whole of a trace's metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Metadata {
    /// The version of the format, which says how fields have their roles.
    pub version: CtfVersion,
    /// The trace's identity; packets repeat it.
    pub uuid: Option<[u8; 16]>,
    /// Byte order of types that state none.
    pub byte_order: Endian,
    /// Header of each packet.
    pub packet_header: Option<Arc<Struct>>,
    /// The environment: names and values, meanings up to the tracer.
    pub env: Vec<(String, EnvValue)>,
    /// The clocks.
    pub clocks: Vec<ClockClass>,
    /// The kinds of streams.
    pub streams: Vec<StreamClass>,
    /// The code that the traced program had mapped: names for fields that hold its addresses.
    pub mappings: Vec<CodeMapping>,
}

impl Metadata {
    /// Metadata of a trace without declarations.
    pub fn new(byte_order: Endian) -> Metadata {
        Metadata {
            version: CtfVersion::V1_8,
            uuid: None,
            byte_order,
            packet_header: None,
            env: Vec::new(),
            clocks: Vec::new(),
            streams: Vec::new(),
            mappings: Vec::new(),
        }
    }

    /// The value of a name in the environment.
    pub fn env(&self, name: &str) -> Option<&EnvValue> {
        self.env.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }
}

/// The namespace of kymo's own attributes in CTF 2.
pub(crate) const KYMO_NAMESPACE: &str = "kymo";

/// A version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtfVersion {
    /// Metadata in TSDL; fields have roles by their names.
    V1_8,
    /// Metadata in JSON; fields state their roles.
    V2,
}

/// A value in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    /// A number.
    Int(i64),
    /// Text.
    Text(String),
}

impl std::fmt::Display for EnvValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EnvValue::Int(n) => write!(f, "{n}"),
            EnvValue::Text(t) => f.write_str(t),
        }
    }
}

/// Moment that the offset of a clock is counted from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClockOrigin {
    /// 1970.
    #[default]
    UnixEpoch,
    /// One that the metadata of CTF 2 name, as JSON.
    Custom(String),
    /// One that the metadata do not name.
    Unstated,
}

/// A clock and how it stands to its origin: `offset_s` seconds and `offset` ticks
/// after that its value was 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockClass {
    /// Name that fields refer to.
    pub name: String,
    /// UUID, equal in all traces that use the clock.
    pub uuid: Option<[u8; 16]>,
    /// Description.
    pub description: String,
    /// Ticks a second.
    pub freq: u64,
    /// Uncertainty of measurements, in ticks.
    pub precision: u64,
    /// Seconds of the offset.
    pub offset_s: i64,
    /// Ticks of the offset.
    pub offset: i64,
    /// Whether its values mean the same everywhere.
    pub absolute: bool,
    /// Moment that the offset is counted from.
    pub origin: ClockOrigin,
}

impl ClockClass {
    /// A clock of nanoseconds without an offset.
    pub fn new(name: impl Into<String>) -> ClockClass {
        ClockClass {
            name: name.into(),
            uuid: None,
            description: String::new(),
            freq: 1_000_000_000,
            precision: 0,
            offset_s: 0,
            offset: 0,
            absolute: false,
            origin: ClockOrigin::UnixEpoch,
        }
    }
}

/// A kind of stream: what its packets and events begin with, and its events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamClass {
    /// Its number, which packet headers name.
    pub id: u64,
    /// Context after the packet header.
    pub packet_context: Option<Arc<Struct>>,
    /// Header of each event.
    pub event_header: Option<Arc<Struct>>,
    /// Context after the header of each event.
    pub event_context: Option<Arc<Struct>>,
    /// The events.
    pub events: Vec<EventClass>,
}

/// A kind of event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventClass {
    /// Its number within the stream, which event headers name.
    pub id: u64,
    /// Its name, `provider:event` by custom.
    pub name: String,
    /// Its severity, as in syslog, and 8 to 14 for debugging.
    pub loglevel: Option<i64>,
    /// `model.emf.uri`.
    pub emf_uri: Option<String>,
    /// Format of an event's text: `{field}`, `{field:x}`, `{{` and `}}` within text. An attribute
    /// of kymo's, kept in the environment, where other readers ignore it.
    pub print_format: Option<String>,
    /// Documentation of the event. Written as a comment before it, and read from there.
    pub doc: Option<String>,
    /// Context between the stream's context and the fields.
    pub context: Option<Arc<Struct>>,
    /// Its own fields.
    pub fields: Option<Arc<Struct>>,
}

/// Fields in a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Struct {
    /// The fields in their order.
    pub fields: Vec<StructureMember>,
    /// Alignment in bits beyond that of its fields; 0 or 1 for none.
    pub align: u32,
}

impl Struct {
    /// A structure of these fields.
    pub fn new(fields: impl IntoIterator<Item = StructureMember>) -> Struct {
        Struct { fields: fields.into_iter().collect(), align: 0 }
    }

    /// Sets the minimum alignment, in bits.
    pub fn aligned(mut self, bits: u32) -> Struct {
        self.align = bits;
        self
    }
}

/// A field of a structure, or an option of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct StructureMember {
    /// Its name as the metadata writes it.
    pub name: String,
    /// Its type.
    pub of: Type,
}

impl StructureMember {
    /// A field whose name is written as it is: of headers and packet contexts.
    pub fn plain(name: impl Into<String>, of: Type) -> StructureMember {
        StructureMember { name: name.into(), of }
    }

    /// A field whose name is written behind an underscore, so that it cannot clash with
    /// a word of the language. Readers take the underscore off.
    pub fn new(name: impl AsRef<str>, of: Type) -> StructureMember {
        StructureMember { name: format!("_{}", name.as_ref()), of }
    }

    /// Its name as readers show it.
    pub fn shown(&self) -> &str {
        shown(&self.name)
    }
}

/// A name without the underscore that protects it.
pub(crate) fn shown(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// An integer.
    Int(Int),
    /// A floating-point number.
    Float(Float),
    /// An integer with names.
    Enum(Enum),
    /// Bytes up to a NUL.
    Text(Encoding),
    /// Fields in a row.
    Struct(Arc<Struct>),
    /// An integer of as many bytes as its value needs. CTF 2.
    VarInt(VarInt),
    /// One of several types.
    Variant(Arc<Variant>),
    /// One of several types, or one or nothing, by ranges of another field's values. CTF 2.
    Selection(Arc<TypeSelection>),
    /// A type with an alignment in bits beyond its own. CTF 2.
    Aligned(Arc<Type>, u32),
    /// Elements of one type.
    Array(Arc<Type>, u64),
    /// As many of a type as another field says.
    Sequence(Arc<Type>, FieldPath),
}

/// The field that another depends on, as the metadata names it: from an enclosing
/// structure on (`len`), or from one of the scopes (`stream.event.header.id`).
///
/// Locations of CTF 2 are exact: those with an origin are paths from that scope; of others the
/// first word is `.`, the structure that contains the dependent field, and each `..` behind it
/// the structure around that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(pub Vec<String>);

impl FieldPath {
    /// A field before this one in the same structure, protected as by [`StructureMember::new`].
    pub fn sibling(name: impl AsRef<str>) -> FieldPath {
        FieldPath(vec![format!("_{}", name.as_ref())])
    }
}

impl std::fmt::Display for FieldPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// Text encoding of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// They are not.
    #[default]
    None,
    /// UTF-8.
    Utf8,
    /// ASCII.
    Ascii,
    /// UTF-16. CTF 2.
    Utf16(Endian),
    /// UTF-32. CTF 2.
    Utf32(Endian),
}

impl Encoding {
    /// Bytes of a code unit.
    pub fn unit(self) -> usize {
        match self {
            Encoding::None | Encoding::Utf8 | Encoding::Ascii => 1,
            Encoding::Utf16(_) => 2,
            Encoding::Utf32(_) => 4,
        }
    }
}

/// Role of a number for readers, as CTF 2 declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the specification")]
pub enum CtfRole {
    DataStreamClassId,
    DataStreamId,
    DefaultClockTimestamp,
    DiscardedEventRecordCounterSnapshot,
    EventRecordClassId,
    MetadataStreamUuid,
    PacketContentLength,
    PacketEndDefaultClockTimestamp,
    PacketMagicNumber,
    PacketSequenceNumber,
    PacketTotalLength,
}

impl CtfRole {
    /// The role of a name.
    pub fn from_name(name: &str) -> Option<CtfRole> {
        Some(match name {
            "data-stream-class-id" => CtfRole::DataStreamClassId,
            "data-stream-id" => CtfRole::DataStreamId,
            "default-clock-timestamp" => CtfRole::DefaultClockTimestamp,
            "discarded-event-record-counter-snapshot" => {
                CtfRole::DiscardedEventRecordCounterSnapshot
            }
            "event-record-class-id" => CtfRole::EventRecordClassId,
            "metadata-stream-uuid" => CtfRole::MetadataStreamUuid,
            "packet-content-length" => CtfRole::PacketContentLength,
            "packet-end-default-clock-timestamp" => CtfRole::PacketEndDefaultClockTimestamp,
            "packet-magic-number" => CtfRole::PacketMagicNumber,
            "packet-sequence-number" => CtfRole::PacketSequenceNumber,
            "packet-total-length" => CtfRole::PacketTotalLength,
            _ => return None,
        })
    }
}

/// An integer of 1 to 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Int {
    /// Bits.
    pub size: u32,
    /// Alignment in bits, a power of two.
    pub align: u32,
    /// Whether it is signed.
    pub signed: bool,
    /// Its byte order.
    pub byte_order: Endian,
    /// The base it is shown in: 2, 8, 10 or 16.
    pub base: u8,
    /// Whether it is an address in the program: base `p`, which is shown as 16.
    pub address: bool,
    /// Whether it is a character.
    pub encoding: Encoding,
    /// The clock that its value is a time of.
    pub clock: Option<Arc<str>>,
    /// Whether its bits are in the order opposite to the usual one of its byte order. CTF 2.
    pub reversed: bool,
    /// Its roles. CTF 2.
    pub roles: Vec<CtfRole>,
}

impl Int {
    /// An integer of a number of bits, packed to bytes, or to bits if it is not of whole bytes.
    pub fn new(size: u32, signed: bool, byte_order: Endian) -> Int {
        let align = if size.is_multiple_of(8) { 8 } else { 1 };
        let (base, encoding, clock) = (10, Encoding::None, None);
        let (address, reversed, roles) = (false, false, Vec::new());
        Int { size, align, signed, byte_order, base, address, encoding, clock, reversed, roles }
    }

    /// Unsigned.
    pub fn unsigned(size: u32, byte_order: Endian) -> Int {
        Int::new(size, false, byte_order)
    }

    /// Signed.
    pub fn signed(size: u32, byte_order: Endian) -> Int {
        Int::new(size, true, byte_order)
    }

    /// Shown in another base.
    pub fn in_base(mut self, base: u8) -> Int {
        self.base = base;
        self
    }

    /// An address in the program.
    pub fn of_address(mut self) -> Int {
        (self.base, self.address) = (16, true);
        self
    }

    /// A time of this clock.
    pub fn of_clock(mut self, clock: &str) -> Int {
        self.clock = Some(clock.into());
        self
    }
}

/// A binary floating-point number of IEEE 754.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float {
    /// Bits of the exponent.
    pub exp_dig: u32,
    /// Digits of the mantissa, the leading one included.
    pub mant_dig: u32,
    /// Alignment in bits.
    pub align: u32,
    /// Its byte order.
    pub byte_order: Endian,
    /// Whether its bits are in the order opposite to the usual one of its byte order. CTF 2.
    pub reversed: bool,
}

impl Float {
    /// `float`, packed to bytes.
    pub fn single(byte_order: Endian) -> Float {
        Float { exp_dig: 8, mant_dig: 24, align: 8, byte_order, reversed: false }
    }

    /// `double`, packed to bytes.
    pub fn double(byte_order: Endian) -> Float {
        Float { exp_dig: 11, mant_dig: 53, align: 8, byte_order, reversed: false }
    }
}

/// An integer with names for ranges of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enum {
    /// The integer.
    pub int: Int,
    /// The names, which may repeat and overlap.
    pub labels: Arc<[EnumMapping]>,
    /// Whether the names are those of bits, by their numbers, not of values. CTF 2.
    pub bits: bool,
}

impl Enum {
    /// Names for ranges of values.
    pub fn new(int: Int, labels: impl Into<Arc<[EnumMapping]>>) -> Enum {
        Enum { int, labels: labels.into(), bits: false }
    }

    /// A truth value of a byte: CTF 1.8 has no type for it, so it is an enumeration of `false`
    /// and `true`.
    pub fn boolean(byte_order: Endian) -> Enum {
        let labels =
            [EnumMapping::of("false", 0), EnumMapping { name: "true".into(), from: 1, to: 255 }];
        Enum::new(Int::unsigned(8, byte_order), labels)
    }
}

/// The largest value that a truth value of CTF 2 may have.
pub(crate) const ANY: i128 = u64::MAX as i128;

/// Whether the names of an enumeration are those of [`Enum::boolean`].
pub(crate) fn is_boolean(labels: &[EnumMapping]) -> bool {
    let span = |l: &EnumMapping| (l.from, l.to);
    match labels {
        [no, yes] => {
            (&*no.name, span(no)) == ("false", (0, 0))
                && yes.name == "true"
                && matches!(span(yes), (1, 255 | ANY))
        }
        _ => false,
    }
}

/// A name for the values of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnumMapping {
    /// The name.
    pub name: String,
    /// The first value.
    pub from: i128,
    /// The last value.
    pub to: i128,
}

impl EnumMapping {
    /// A name for one value.
    pub fn of(name: impl Into<String>, value: i128) -> EnumMapping {
        EnumMapping { name: name.into(), from: value, to: value }
    }
}

/// One of several types; which one, another field's name for its value says.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The enumeration that chooses.
    pub tag: FieldPath,
    /// The types, by the names of the enumeration.
    pub options: Vec<StructureMember>,
}

/// An integer in LEB128: seven bits of each byte, the lowest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VarInt {
    /// Whether it is signed.
    pub signed: bool,
    /// The base it is shown in: 2, 8, 10 or 16.
    pub base: u8,
    /// Names for ranges of its values.
    pub labels: Option<Arc<[EnumMapping]>>,
    /// Its roles.
    pub roles: Vec<CtfRole>,
}

/// Types of which another field's value chooses one.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeSelection {
    /// The field that chooses.
    pub selector: FieldPath,
    /// The types.
    pub options: Vec<TypeOption>,
    /// Whether there may be nothing; the type has then one option, without a name.
    pub optional: bool,
}

/// A type and the values that choose it.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeOption {
    /// Its name.
    pub name: String,
    /// The first and the last value of each range.
    pub ranges: Vec<(i128, i128)>,
    /// The type.
    pub of: Type,
}

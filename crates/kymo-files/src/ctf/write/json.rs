//! [`Metadata`] as fragments of JSON (CTF 2). Packets are those of CTF 1.8: what names mean
//! there is a role here.

use std::fmt;

use kymo_model::Endian;
use serde_json::{Map, Value, json};

use crate::ctf::attributes;
use crate::ctf::read::{LOG_LEVELS, RECORD_SEPARATOR};
use crate::ctf::types::{
    ClockClass, ClockOrigin, CtfVersion, Encoding, Enum, EnumMapping, EnvValue, EventClass,
    FieldPath, Int, KYMO_NAMESPACE, Metadata, StreamClass, Struct, StructureMember, Type, Variant,
    is_boolean, shown,
};

/// The namespace of attributes that babeltrace's own writer has for log levels.
const BABELTRACE: &str = "babeltrace.org,2020";

impl Metadata {
    /// The `metadata` file, in the format of its version.
    pub fn to_text(&self) -> String {
        match self.version {
            CtfVersion::V1_8 => self.to_tsdl(),
            CtfVersion::V2 => self.to_fragments(),
        }
    }

    /// The `metadata` file of CTF 2. Types that only readers have are left out, with the event
    /// they are in.
    fn to_fragments(&self) -> String {
        let mut out = String::new();
        let mut preamble = json!({"type": "preamble", "version": 2});
        if let Some(uuid) = &self.uuid {
            insert(&mut preamble, "uuid", json!(uuid));
        }
        push(&mut out, &preamble);
        let attributes = attributes::of(self);
        let value = |value: &EnvValue| match value {
            EnvValue::Int(n) => json!(n),
            EnvValue::Text(text) => json!(text),
        };
        let env = self.env.iter().chain(&attributes).map(|(name, of)| (name.clone(), value(of)));
        let env: Map<String, Value> = env.collect();
        let mut trace = json!({"type": "trace-class", "environment": env});
        scope(&mut trace, "packet-header-field-class", self.packet_header.as_deref());
        push(&mut out, &trace);
        self.clocks.iter().for_each(|clock| push(&mut out, &clock_fragment(clock)));
        let clock = self.clocks.first().map(|clock| clock.name.as_str());
        for stream in &self.streams {
            push(&mut out, &stream_fragment(stream, clock));
            for event in &stream.events {
                if let Some(fragment) = event_fragment(event, stream) {
                    push(&mut out, &fragment);
                }
            }
        }
        out
    }
}

/// Appends a fragment.
fn push(out: &mut String, fragment: &Value) {
    out.push(char::from(RECORD_SEPARATOR));
    out.push_str(&fragment.to_string());
    out.push('\n');
}

fn insert(object: &mut Value, name: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(name.to_owned(), value);
    }
}

/// Adds the structure of a scope, if there is one.
fn scope(fragment: &mut Value, name: &str, of: Option<&Struct>) {
    if let Some(class) = of.and_then(|of| structure(of, &mut vec![of]).ok()) {
        insert(fragment, name, class);
    }
}

fn clock_fragment(clock: &ClockClass) -> Value {
    let mut of = json!({
        "type": "clock-class",
        "id": clock.name,
        "name": clock.name,
        "frequency": clock.freq,
        "precision": clock.precision,
        "offset-from-origin": {"seconds": clock.offset_s, "cycles": clock.offset},
    });
    match &clock.origin {
        ClockOrigin::UnixEpoch => insert(&mut of, "origin", json!("unix-epoch")),
        // It was JSON when it was read.
        ClockOrigin::Custom(text) => {
            let origin = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
            insert(&mut of, "origin", origin);
        }
        ClockOrigin::Unstated => {}
    }
    if !clock.description.is_empty() {
        insert(&mut of, "description", json!(clock.description));
    }
    if let Some(uuid) = &clock.uuid {
        insert(&mut of, "uid", json!(super::uuid(uuid)));
    }
    of
}

fn stream_fragment(stream: &StreamClass, clock: Option<&str>) -> Value {
    let mut of = json!({"type": "data-stream-class", "id": stream.id});
    if let Some(clock) = clock {
        insert(&mut of, "default-clock-class-id", json!(clock));
    }
    scope(&mut of, "packet-context-field-class", stream.packet_context.as_deref());
    scope(&mut of, "event-record-header-field-class", stream.event_header.as_deref());
    scope(&mut of, "event-record-common-context-field-class", stream.event_context.as_deref());
    of
}

fn event_fragment(event: &EventClass, stream: &StreamClass) -> Option<Value> {
    let mut of = json!({
        "type": "event-record-class",
        "id": event.id,
        "data-stream-class-id": stream.id,
        "name": event.name,
    });
    for (name, scope) in
        [("specific-context-field-class", &event.context), ("payload-field-class", &event.fields)]
    {
        if let Some(fields) = scope.as_deref() {
            insert(&mut of, name, structure(fields, &mut vec![fields]).ok()?);
        }
    }
    let mut known = json!({});
    let level = event.loglevel.and_then(|level| LOG_LEVELS.get(usize::try_from(level).ok()?));
    if let Some(level) = level {
        insert(&mut known, "log-level", json!(level));
    }
    if let Some(uri) = &event.emf_uri {
        insert(&mut known, "emf-uri", json!(uri));
    }
    let mut attributes = json!({});
    if known.as_object().is_some_and(|known| !known.is_empty()) {
        insert(&mut attributes, BABELTRACE, known);
    }
    if let Some(doc) = &event.doc {
        insert(&mut attributes, KYMO_NAMESPACE, json!({"description": doc.trim()}));
    }
    if attributes.as_object().is_some_and(|attributes| !attributes.is_empty()) {
        insert(&mut of, "attributes", attributes);
    }
    Some(of)
}

/// A field class. `around`: the structures that it stands in, the outermost first. An error: it
/// has a type that is only read.
type FieldClass = Result<Value, fmt::Error>;

fn structure<'m>(of: &'m Struct, around: &mut Vec<&'m Struct>) -> FieldClass {
    let mut members = Vec::new();
    for member in &of.fields {
        let class = member_class(member, around)?;
        members.push(json!({"name": member.shown(), "field-class": class}));
    }
    let mut class = json!({"type": "structure", "member-classes": members});
    if of.align > 1 {
        insert(&mut class, "minimum-alignment", json!(of.align));
    }
    Ok(class)
}

/// The class of a member, with the roles that its name means.
fn member_class<'m>(member: &'m StructureMember, around: &mut Vec<&'m Struct>) -> FieldClass {
    if let (Type::Array(of, 16), "uuid") = (&member.of, &*member.name)
        && matches!(**of, Type::Int(Int { size: 8, .. }))
    {
        let roles = ["metadata-stream-uuid"];
        return Ok(json!({"type": "static-length-blob", "length": 16, "roles": roles}));
    }
    let mut class = field_class(&member.of, around)?;
    // Names of fields of events stand behind an underscore.
    let role = match (&*member.name, clock_of(&member.of)) {
        ("timestamp_end", true) => "packet-end-default-clock-timestamp",
        (_, true) => "default-clock-timestamp",
        ("magic", _) => "packet-magic-number",
        ("stream_id", _) => "data-stream-class-id",
        ("stream_instance_id", _) => "data-stream-id",
        ("id", _) => "event-record-class-id",
        ("content_size", _) => "packet-content-length",
        ("packet_size", _) => "packet-total-length",
        ("packet_seq_num", _) => "packet-sequence-number",
        ("events_discarded", _) => "discarded-event-record-counter-snapshot",
        _ => return Ok(class),
    };
    if matches!(member.of, Type::Int(_) | Type::Enum(_)) {
        insert(&mut class, "roles", json!([role]));
    }
    Ok(class)
}

/// Whether it is a time.
fn clock_of(of: &Type) -> bool {
    match of {
        Type::Int(int) => int.clock.is_some(),
        _ => false,
    }
}

fn field_class<'m>(of: &'m Type, around: &mut Vec<&'m Struct>) -> FieldClass {
    match of {
        Type::Int(of) => integer(of),
        Type::Float(of) => Ok(json!({
            "type": "fixed-length-floating-point-number",
            "length": of.exp_dig + of.mant_dig,
            "byte-order": byte_order(of.byte_order),
            "alignment": of.align.max(1),
        })),
        Type::Enum(of) => enumeration(of),
        Type::Text(encoding) => {
            let mut class = json!({"type": "null-terminated-string"});
            insert(&mut class, "encoding", json!(encoding_name(*encoding)));
            Ok(class)
        }
        Type::Struct(of) => {
            around.push(of);
            let class = structure(of, around);
            around.pop();
            class
        }
        Type::Variant(of) => variant(of, around),
        Type::Array(element, length) => {
            row(element, "static-length", ("length", json!(length)), around)
        }
        Type::Sequence(element, path) => {
            let location = ("length-field-location", location(path, around));
            row(element, "dynamic-length", location, around)
        }
        Type::VarInt(_) | Type::Selection(_) | Type::Aligned(..) => Err(fmt::Error),
    }
}

/// Elements of one type; characters are a string.
fn row<'m>(
    element: &'m Type,
    kind: &str,
    (length, value): (&str, Value),
    around: &mut Vec<&'m Struct>,
) -> FieldClass {
    let mut class = match element {
        Type::Int(Int {
            size: 8, encoding: encoding @ (Encoding::Utf8 | Encoding::Ascii), ..
        }) => {
            json!({"type": format!("{kind}-string"), "encoding": encoding_name(*encoding)})
        }
        _ => {
            let element = field_class(element, around)?;
            json!({"type": format!("{kind}-array"), "element-field-class": element})
        }
    };
    insert(&mut class, length, value);
    Ok(class)
}

fn integer(int: &Int) -> FieldClass {
    let kind =
        if int.signed { "fixed-length-signed-integer" } else { "fixed-length-unsigned-integer" };
    let mut class = json!({
        "type": kind,
        "length": int.size,
        "byte-order": byte_order(int.byte_order),
        "alignment": int.align.max(1),
    });
    if int.base != 10 {
        insert(&mut class, "preferred-display-base", json!(int.base));
    }
    if int.address {
        insert(&mut class, "attributes", json!({KYMO_NAMESPACE: {"is-address": true}}));
    }
    Ok(class)
}

fn enumeration(of: &Enum) -> FieldClass {
    let mut class = integer(&of.int)?;
    if is_boolean(&of.labels) {
        insert(&mut class, "type", json!("fixed-length-boolean"));
        return Ok(class);
    }
    let mut names: Map<String, Value> = Map::new();
    for EnumMapping { name, from, to } in of.labels.iter() {
        let ranges = names.entry(name.clone()).or_insert_with(|| json!([]));
        if let Some(ranges) = ranges.as_array_mut() {
            ranges.push(json!([number(*from)?, number(*to)?]));
        }
    }
    let (kind, mappings) = match of.bits {
        true => ("fixed-length-bit-map", "flags"),
        false if names.is_empty() => return Ok(class),
        false => ("", "mappings"),
    };
    if !kind.is_empty() {
        insert(&mut class, "type", json!(kind));
    }
    insert(&mut class, mappings, Value::Object(names));
    Ok(class)
}

/// A number that JSON's readers take: of 64 bits, signed or not.
fn number(n: i128) -> FieldClass {
    let signed = i64::try_from(n).map(|n| json!(n));
    signed.or_else(|_| u64::try_from(n).map(|n| json!(n))).map_err(|_| fmt::Error)
}

/// One of several types, by the names of an enumeration's values.
fn variant<'m>(of: &'m Variant, around: &mut Vec<&'m Struct>) -> FieldClass {
    let tag = of.tag.0.last().map_or("", |name| shown(name));
    let find = |of: &&'m Struct| of.fields.iter().find(|field| field.shown() == tag);
    let selector = around.iter().rev().find_map(find);
    let Some(Type::Enum(selector)) = selector.map(|field| &field.of) else {
        return Err(fmt::Error);
    };
    let mut options = Vec::new();
    for option in &of.options {
        let of_option = |label: &&EnumMapping| label.name == option.shown();
        let labels = selector.labels.iter().filter(of_option);
        let ranges: Result<Vec<Value>, fmt::Error> =
            labels.map(|label| Ok(json!([number(label.from)?, number(label.to)?]))).collect();
        let ranges = ranges?;
        let class = field_class(&option.of, around)?;
        if !ranges.is_empty() {
            let name = option.shown();
            options.push(json!({
                "name": name, "selector-field-ranges": ranges, "field-class": class,
            }));
        }
    }
    let location = location(&of.tag, around);
    Ok(json!({"type": "variant", "selector-field-location": location, "options": options}))
}

/// Location of another field: from a scope on, or outwards from the innermost structure.
fn location(path: &FieldPath, around: &[&Struct]) -> Value {
    const SCOPES: [(&[&str], &str); 6] = [
        (&["trace", "packet", "header"], "packet-header"),
        (&["stream", "packet", "context"], "packet-context"),
        (&["stream", "event", "header"], "event-record-header"),
        (&["stream", "event", "context"], "event-record-common-context"),
        (&["event", "context"], "event-record-specific-context"),
        (&["event", "fields"], "event-record-payload"),
    ];
    let words: Vec<&str> = path.0.iter().map(|word| shown(word)).collect();
    for (scope, origin) in SCOPES {
        if let Some(rest) = words.strip_prefix(scope).filter(|rest| !rest.is_empty()) {
            return json!({"origin": origin, "path": rest});
        }
    }
    let has = |of: &&Struct| of.fields.iter().any(|f| Some(&f.shown()) == words.first());
    let out = around.iter().rev().position(has).unwrap_or(0);
    let mut path = vec![Value::Null; out];
    path.extend(words.into_iter().map(|word| json!(word)));
    json!({"path": path})
}

fn byte_order(of: Endian) -> &'static str {
    match of {
        Endian::Little => "little-endian",
        Endian::Big => "big-endian",
    }
}

fn encoding_name(of: Encoding) -> &'static str {
    match of {
        Encoding::None | Encoding::Utf8 | Encoding::Ascii => "utf-8",
        Encoding::Utf16(Endian::Big) => "utf-16be",
        Encoding::Utf16(Endian::Little) => "utf-16le",
        Encoding::Utf32(Endian::Big) => "utf-32be",
        Encoding::Utf32(Endian::Little) => "utf-32le",
    }
}

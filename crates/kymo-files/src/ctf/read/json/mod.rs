//! The metadata of CTF 2 into [`Metadata`]: fragments of JSON, each behind a record separator
//! (RFC 7464).
//!
//! The text is not believed: fragments have a limit, as types within types have. A fragment
//! that cannot be understood costs what it declares; those behind it are read.
//!
//! Some traces follow the draft CTF2-SPECRC-7.0, which has the same preamble. Its names for
//! what has another one in the specification are read, too, and it is remarked.

mod field_class;
mod object;

use kymo_model::Endian;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::tsdl::{MetadataError, Parsed};
use crate::ctf::attributes;
use crate::ctf::types::{
    ClockClass, ClockOrigin, CtfVersion, EnvValue, EventClass, KYMO_NAMESPACE, Metadata,
    StreamClass,
};
use field_class::Aliases;
use object::{Object, Wrong, short};

/// The byte that each fragment begins behind.
pub(crate) const RECORD_SEPARATOR: u8 = 0x1e;
/// Bytes of one fragment: as JSON in memory it takes a multiple.
const MAX_FRAGMENT: usize = 8 << 20;
/// Streams of one trace, at most.
const MAX_STREAMS: usize = 1 << 12;
/// Mistakes that are kept.
const MAX_SKIPPED: usize = 16;

/// Reads the text of metadata. An error: it is not that of a trace that can be read.
pub(crate) fn parse(text: &[u8]) -> Result<Parsed, MetadataError> {
    let mut reader = FragmentReader::new();
    let (mut line, mut skipped) = (1, Vec::new());
    let mut fragments = text.split(|b| *b == RECORD_SEPARATOR);
    // Nothing stands before the first separator.
    line += newlines(fragments.next().unwrap_or(&[]));
    for fragment in fragments {
        let begin = line;
        line += newlines(fragment);
        if fragment.trim_ascii().is_empty() {
            continue;
        }
        let Err((at, column, what)) = reader.read(fragment) else { continue };
        let mistake = MetadataError { line: begin + at, column, what };
        if !reader.begun {
            return Err(mistake);
        }
        if skipped.len() < MAX_SKIPPED {
            skipped.push(mistake);
        }
    }
    if !reader.begun {
        let what = "there is no preamble fragment".to_owned();
        return Err(MetadataError { line: 1, column: 1, what });
    }
    let FragmentReader { mut out, mut remarks, clock, draft, .. } = reader;
    if draft {
        remarks.push("the metadata follow the draft CTF2-SPECRC-7.0 of CTF 2".to_owned());
    }
    // Clocks of no stream mean nothing.
    out.clocks.retain(|c| clock.as_deref() == Some(c.name.as_str()));
    for name in attributes::take(&mut out) {
        remarks.push(format!("attribute `{name}` of a trace's environment means nothing here"));
    }
    Ok(Parsed { metadata: out, error: None, skipped, remarks })
}

fn newlines(text: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', text).count()
}

/// Reads fragments.
struct FragmentReader {
    out: Metadata,
    /// Whether the preamble was read.
    begun: bool,
    aliases: Aliases,
    /// Places of clocks by their internal names.
    clocks: FxHashMap<String, usize>,
    /// The clock that streams use.
    clock: Option<String>,
    /// Places of streams by their numbers.
    streams: FxHashMap<u64, usize>,
    /// Streams and numbers of events.
    events: FxHashSet<(u64, u64)>,
    has_trace: bool,
    /// Whether a name was read that only the draft has.
    draft: bool,
    remarks: Vec<String>,
}

impl FragmentReader {
    fn new() -> FragmentReader {
        let mut out = Metadata::new(Endian::Little);
        out.version = CtfVersion::V2;
        FragmentReader {
            out,
            begun: false,
            aliases: Aliases::default(),
            clocks: FxHashMap::default(),
            clock: None,
            streams: FxHashMap::default(),
            events: FxHashSet::default(),
            has_trace: false,
            draft: false,
            remarks: Vec::new(),
        }
    }

    /// Reads a fragment. An error has its line in the fragment, from 0, and its column.
    fn read(&mut self, text: &[u8]) -> Result<(), (usize, usize, Wrong)> {
        let at_begin = |what: Wrong| (0, 1, what);
        if text.len() > MAX_FRAGMENT {
            let what = format!("a fragment has {} bytes, more than {MAX_FRAGMENT}", text.len());
            return Err(at_begin(what));
        }
        let value: Value = serde_json::from_slice(text)
            .map_err(|e| (e.line().saturating_sub(1), e.column(), format!("JSON: {e}")))?;
        self.fragment(&value).map_err(at_begin)
    }

    fn fragment(&mut self, value: &Value) -> Result<(), Wrong> {
        let of = Object::new(value)?;
        let kind = of.need_text("type")?;
        if !self.begun && kind != "preamble" {
            return Err(format!("the first fragment is a {kind}, not a preamble"));
        }
        match kind {
            "preamble" => self.preamble(of),
            "field-class-alias" => self.alias(of),
            "trace-class" => self.trace(of),
            "clock-class" => self.clock_class(of),
            "data-stream-class" => self.stream(of),
            "event-record-class" => self.event(of),
            other => Err(format!("no fragment has the type `{other}`")),
        }
        .map_err(|wrong| format!("{kind}: {wrong}"))
    }

    fn preamble(&mut self, of: Object<'_>) -> Result<(), Wrong> {
        if self.begun {
            return Err("there is more than one".to_owned());
        }
        match of.unsigned("version")? {
            Some(2) => {}
            Some(other) => {
                return Err(format!("version {other} is not known, only 2 is supported"));
            }
            None => return Err("`version` is missing".to_owned()),
        }
        // They may change what everything else means.
        if let Some((namespace, names)) = of.object("extensions")?.and_then(|e| e.entries().next())
        {
            let name = Object::new(names)?.entries().next().map_or("", |(name, _)| name);
            return Err(format!("it needs the extension `{namespace}: {name}`"));
        }
        self.uuid(of)?;
        self.begun = true;
        Ok(())
    }

    /// The UUID of a trace: of the preamble, in the draft of the trace class.
    fn uuid(&mut self, of: Object<'_>) -> Result<(), Wrong> {
        if of.get("uuid").is_none() {
            return Ok(());
        }
        let bytes: Option<Vec<u8>> = of
            .array("uuid")?
            .iter()
            .map(|b| b.as_u64().and_then(|b| u8::try_from(b).ok()))
            .collect();
        let uuid = bytes.and_then(|b| <[u8; 16]>::try_from(b).ok());
        self.out.uuid = Some(uuid.ok_or("`uuid` is 16 numbers of a byte")?);
        Ok(())
    }

    /// Name of the specification's property in the draft, where an object uses that.
    fn drafted<'n>(&mut self, of: Object<'_>, name: &'n str, in_draft: &'n str) -> &'n str {
        if of.get(name).is_some() || of.get(in_draft).is_none() {
            return name;
        }
        self.draft = true;
        in_draft
    }

    fn alias(&mut self, of: Object<'_>) -> Result<(), Wrong> {
        let class = self.aliases.class(of.need("field-class")?)?;
        self.aliases.add(of.need_text("name")?, class)
    }

    fn trace(&mut self, of: Object<'_>) -> Result<(), Wrong> {
        if std::mem::replace(&mut self.has_trace, true) {
            return Err("there is more than one".to_owned());
        }
        for (name, value) in of.object("environment")?.into_iter().flat_map(Object::entries) {
            let value = match (value.as_i64(), value.as_u64(), value.as_str()) {
                (Some(n), ..) => EnvValue::Int(n),
                (_, Some(n), _) => EnvValue::Int(n as i64),
                (.., Some(text)) => EnvValue::Text(text.to_owned()),
                _ => return Err(format!("`{name}` is a number or text, not {}", short(value))),
            };
            self.out.env.push((name.to_owned(), value));
        }
        if of.get("uuid").is_some() {
            self.draft = true;
            self.uuid(of)?;
        }
        self.out.packet_header = self.aliases.scope(of, "packet-header-field-class")?;
        Ok(())
    }

    fn clock_class(&mut self, of: Object<'_>) -> Result<(), Wrong> {
        // In the draft a clock has its name only.
        let id = of.need_text(self.drafted(of, "id", "name"))?;
        if self.clocks.contains_key(id) {
            return Err(format!("clock `{id}` is declared twice"));
        }
        let taken = |name: &&str| self.out.clocks.iter().all(|c| c.name != *name);
        let mut clock = ClockClass::new(of.text("name")?.filter(taken).unwrap_or(id));
        clock.freq = match of.unsigned("frequency")? {
            Some(freq @ 1..) => freq,
            _ => return Err("`frequency` is a number above 0".to_owned()),
        };
        of.text("description")?.unwrap_or_default().clone_into(&mut clock.description);
        clock.precision = of.unsigned("precision")?.unwrap_or(0);
        // Another text names the clock, too, but only this can be compared with CTF 1.8.
        clock.uuid = of.text("uid")?.and_then(parse_uuid);
        let offset = of.object("offset-from-origin")?;
        if let Some(offset) = offset {
            clock.offset_s = offset.signed("seconds")?.unwrap_or(0);
            clock.offset = offset.signed("cycles")?.unwrap_or(0);
        }
        clock.origin = match of.get("origin") {
            Some(Value::String(known)) if known == "unix-epoch" => ClockOrigin::UnixEpoch,
            Some(custom) => ClockOrigin::Custom(custom.to_string()),
            None => ClockOrigin::Unstated,
        };
        if clock.origin != ClockOrigin::UnixEpoch {
            let name = &clock.name;
            self.remarks.push(format!(
                "clock `{name}` does not count from 1970: its times are from an origin of its own"
            ));
        }
        self.clocks.insert(id.to_owned(), self.out.clocks.len());
        self.out.clocks.push(clock);
        Ok(())
    }

    fn stream(&mut self, of: Object<'_>) -> Result<(), Wrong> {
        let id = of.unsigned("id")?.unwrap_or(0);
        if self.streams.contains_key(&id) {
            return Err(format!("stream {id} is declared twice"));
        }
        if self.out.streams.len() >= MAX_STREAMS {
            return Err(format!("more than {MAX_STREAMS} streams"));
        }
        let clock = self.drafted(of, "default-clock-class-id", "default-clock-class-name");
        if let Some(clock) = of.text(clock)? {
            self.take_clock(clock)?;
        }
        let scope = |name: &str| self.aliases.scope(of, name);
        let stream = StreamClass {
            id,
            packet_context: scope("packet-context-field-class")?,
            event_header: scope("event-record-header-field-class")?,
            event_context: scope("event-record-common-context-field-class")?,
            events: Vec::new(),
        };
        self.streams.insert(id, self.out.streams.len());
        self.out.streams.push(stream);
        Ok(())
    }

    /// Takes note of the clock of a stream. All streams of a trace have the same one.
    fn take_clock(&mut self, id: &str) -> Result<(), Wrong> {
        let known = self.clocks.get(id).and_then(|n| self.out.clocks.get(*n));
        let name = &known.ok_or_else(|| format!("no clock `{id}` is declared before"))?.name;
        match &self.clock {
            Some(first) if first != name => {
                Err(format!("streams with the clocks `{first}` and `{name}` are not read together"))
            }
            _ => {
                self.clock = Some(name.clone());
                Ok(())
            }
        }
    }

    fn event(&mut self, of: Object<'_>) -> Result<(), Wrong> {
        let id = of.unsigned("id")?.unwrap_or(0);
        let stream = of.unsigned("data-stream-class-id")?.unwrap_or(0);
        let name = of.text("name")?.unwrap_or_default();
        let within = |wrong| format!("`{name}` ({id}): {wrong}");
        let scope = |member: &str| self.aliases.scope(of, member).map_err(within);
        let (loglevel, emf_uri) = attributes_of(of)?;
        let doc = own_attributes(of).and_then(|own| own.text("description").ok().flatten());
        let event = EventClass {
            id,
            name: name.to_owned(),
            loglevel,
            emf_uri,
            doc: doc.map(str::to_owned),
            context: scope("specific-context-field-class")?,
            fields: scope("payload-field-class")?,
            ..EventClass::default()
        };
        let of = self.streams.get(&stream).and_then(|n| self.out.streams.get_mut(*n));
        let of = of.ok_or_else(|| within(format!("no stream {stream} is declared before")))?;
        if !self.events.insert((stream, id)) {
            return Err(within(format!("duplicate event number in stream {stream}")));
        }
        of.events.push(event);
        Ok(())
    }
}

/// The namespaces whose attributes say what those of events in CTF 1.8 said.
const NAMESPACES: [&str; 2] = ["lttng.org,2009", "babeltrace.org,2020"];

/// kymo's own attributes of an event or field class.
fn own_attributes(of: Object<'_>) -> Option<Object<'_>> {
    of.object("attributes").ok().flatten()?.object(KYMO_NAMESPACE).ok().flatten()
}

/// Log level and EMF URI of an event.
fn attributes_of(event: Object<'_>) -> Result<(Option<i64>, Option<String>), Wrong> {
    let (mut level, mut uri) = (None, None);
    let attributes = match event.object("attributes")? {
        // Their name in the draft.
        None => event.object("user-attributes")?,
        stated => stated,
    };
    let Some(attributes) = attributes else { return Ok((None, None)) };
    for namespace in NAMESPACES {
        // Attributes are anything: what is not as expected means nothing.
        let Ok(Some(of)) = attributes.object(namespace) else { continue };
        let stated = of.get("log-level");
        level = level.or_else(|| stated?.as_i64().or_else(|| log_level(stated?.as_str()?)));
        uri = uri.or_else(|| of.text("emf-uri").ok().flatten().map(str::to_owned));
    }
    Ok((level, uri))
}

/// Log levels by their numbers in CTF 1.8.
pub(crate) const LOG_LEVELS: [&str; 15] = [
    "emergency",
    "alert",
    "critical",
    "error",
    "warning",
    "notice",
    "info",
    "debug:system",
    "debug:program",
    "debug:process",
    "debug:module",
    "debug:unit",
    "debug:function",
    "debug:line",
    "debug",
];

/// The number of a log level in CTF 1.8.
fn log_level(name: &str) -> Option<i64> {
    LOG_LEVELS.iter().position(|level| *level == name).map(|n| n as i64)
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    if groups != [8, 4, 4, 4, 12] || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let digit = |b: u8| char::from(b).to_digit(16).unwrap_or(0) as u8;
    let bytes: Vec<u8> =
        digits.as_chunks().0.iter().map(|[a, b]| digit(*a) << 4 | digit(*b)).collect();
    bytes.try_into().ok()
}

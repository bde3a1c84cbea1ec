//! The formats that a perf.data file carries, by event, and the payloads of its
//! samples.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kymo_files::perfdata::{Entry, EventDesc, Features, PerfData};
use kymo_format::{Builtin, Constants, EventFormat, LineWriter, ParseOptions};
use kymo_model::{Endian, EventType, Note, NoteKind};
use kymo_symbols::bundle::Bundle;

use crate::payload::{self, KallsymsSource, KernelNames};
use crate::running_kernel;

/// Formats of all events known at some time, and the names their payloads need.
#[derive(Default)]
struct Formats {
    /// Format per event, or the reason why it is missing; `None` for events that are not
    /// tracepoints.
    of: Vec<Option<Result<EventFormat, String>>>,
    names: KernelNames,
    /// Events whose format is the running kernel's.
    borrowed: Vec<String>,
    /// The recording does not say whether it was made under that kernel.
    guess: bool,
}

impl Formats {
    fn read(
        (events, features, endian): (&[EventDesc], &Features, Endian),
        bundle: Option<&Bundle>,
    ) -> Formats {
        let tracing = features.tracing_data.as_ref();
        let release = running_kernel::release();
        let same_kernel = features.osrelease.as_deref() == Some(&*release);
        // A recorder that was killed leaves neither formats nor the kernel's release.
        let guess = features.osrelease.is_none();
        let (values, running) = (
            running_kernel::EnumeratorValues::default(),
            running_kernel::RunningFormats::default(),
        );
        let long_size = tracing.map_or(8, |t| t.long_size);
        let bundled = bundle.and_then(Bundle::constants).map(Bundled);
        let constants: &dyn Constants = match (&bundled, same_kernel) {
            (Some(bundled), _) => bundled,
            (None, true) => &values,
            (None, false) => &Builtin,
        };
        let options = ParseOptions { long_size, constants };
        let parse = |system: &str, text: &str| {
            let parsed = EventFormat::parse_with(text, &options);
            parsed.map(|f| f.with_system(system)).map_err(|e| e.to_string())
        };
        let mut borrowed = Vec::new();
        let mut format = |event: &EventDesc| {
            if let Some((system, text)) = tracing.and_then(|t| t.format(event.attr.config)) {
                return parse(system, text);
            }
            if (same_kernel || guess)
                && endian == Endian::NATIVE
                && let Some((system, text)) = running.format(event.attr.config)
            {
                borrowed.push(event.name.clone());
                return parse(&system, &text);
            }
            Err("the recording has no format of it".to_owned())
        };
        let tracepoint = |e: &EventDesc| e.attr.kind == EventType::TRACEPOINT;
        let of = events.iter().map(|e| tracepoint(e).then(|| format(e))).collect();
        Formats { of, names: names(features, &release, bundle), borrowed, guess }
    }
}

/// TracepointPayloads of the recording's tracepoints; formats are read when first needed, once
/// for all printers.
#[derive(Default)]
pub struct TracepointPayloads {
    shared: Arc<Mutex<Arc<Formats>>>,
    formats: Arc<Formats>,
    bundle: Option<Arc<Bundle>>,
    /// Samples by event whose payload could not be rendered, with the reason.
    unrendered: BTreeMap<String, (String, u64)>,
}

impl TracepointPayloads {
    /// Payloads of a recording with or without a bundle.
    pub fn new(bundle: Option<Arc<Bundle>>) -> TracepointPayloads {
        TracepointPayloads { bundle, ..TracepointPayloads::default() }
    }

    /// One that shares the formats.
    pub fn fork_for_thread(&self) -> TracepointPayloads {
        TracepointPayloads {
            shared: Arc::clone(&self.shared),
            ..TracepointPayloads::new(self.bundle.clone())
        }
    }

    /// The format of an entry's event.
    #[inline]
    pub fn format(&mut self, entry: &Entry<'_>) -> Option<&EventFormat> {
        if self.formats.of.len() != entry.events.len() {
            self.update(entry);
        }
        self.formats.of.get(entry.event)?.as_ref()?.as_ref().ok()
    }

    /// The format of an event of a recording that is not read yet.
    pub fn format_of(&mut self, data: &PerfData, event: usize) -> Option<&EventFormat> {
        if self.formats.of.len() != data.events().len() {
            let of = (data.events(), data.features(), data.endian());
            self.formats = Arc::new(Formats::read(of, self.bundle.as_deref()));
        }
        self.formats.of.get(event)?.as_ref()?.as_ref().ok()
    }

    #[cold]
    fn update(&mut self, entry: &Entry<'_>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.of.len() != entry.events.len() {
            let of = (entry.events, entry.features, entry.raw.endian);
            *shared = Arc::new(Formats::read(of, self.bundle.as_deref()));
        }
        self.formats = Arc::clone(&shared);
    }

    /// Writes the text of a payload whose format is known. `false`: it is not.
    #[inline]
    pub fn write_known(
        &mut self,
        entry: &Entry<'_>,
        raw: &[u8],
        line: &mut LineWriter<'_>,
    ) -> bool {
        if self.formats.of.len() != entry.events.len() {
            self.update(entry);
        }
        let Some(Some(Ok(format))) = self.formats.of.get(entry.event) else { return false };
        payload::write(format, raw, payload_endian(entry), &self.formats.names, true, line);
        true
    }

    /// Appends the member `message` of a payload whose text names addresses.
    pub fn write_json_message(&mut self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
        if self.formats.of.len() != entry.events.len() {
            self.update(entry);
        }
        if let Some(Some(Ok(format))) = self.formats.of.get(entry.event) {
            let endian = payload_endian(entry);
            payload::json_message(format, raw, endian, &self.formats.names, true, out);
        }
    }

    /// Appends the text of a payload.
    #[inline]
    pub fn write(&mut self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
        if self.formats.of.len() != entry.events.len() {
            self.update(entry);
        }
        match self.formats.of.get(entry.event) {
            Some(Some(Ok(format))) => {
                payload::text(format, raw, payload_endian(entry), &self.formats.names, true, out);
            }
            Some(Some(Err(why))) => {
                let name = entry.desc().map_or("", |e| &e.name);
                let slot = self.unrendered.entry(name.to_owned());
                slot.or_insert_with(|| (why.clone(), 0)).1 += 1;
                out.extend_from_slice(b"raw:");
                for byte in raw {
                    out.push(b' ');
                    const HEX: &[u8; 16] = b"0123456789abcdef";
                    let digit = |n: u8| HEX[usize::from(n & 15)];
                    out.extend_from_slice(&[digit(byte >> 4), digit(*byte)]);
                }
            }
            _ => {}
        }
    }
}

/// Notes on payloads that none of them could render, and on formats that were borrowed.
pub fn note<'p>(all: impl Iterator<Item = &'p TracepointPayloads>) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    let mut add = |note: Note| {
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    let mut sum = BTreeMap::new();
    for payloads in all {
        for (event, (why, n)) in &payloads.unrendered {
            *sum.entry((event, why)).or_insert(0) += n;
        }
        // Readers of fields only have their formats from a fork of this.
        let shared = Arc::clone(&*payloads.shared.lock().unwrap_or_else(PoisonError::into_inner));
        let Formats { borrowed, guess, .. } = &*shared;
        if borrowed.is_empty() {
            continue;
        }
        let events = borrowed.join(", ");
        let fact = format!("no format of {events} in the recording: the running kernel's is used");
        if *guess {
            let fact = fact + "; the recording does not say under which kernel it was made";
            add(Note::doubt(NoteKind::Payload, fact, None));
        } else {
            add(Note::choice(NoteKind::Payload, fact, None));
        }
    }
    for ((event, why), n) in sum {
        let fact = format!("{n} payloads of {event} are shown as bytes: {why}");
        add(Note::doubt(NoteKind::Payload, fact, None));
    }
    notes
}

/// Payloads are in the byte order the tracing data states; it is the file's.
pub fn payload_endian(entry: &Entry<'_>) -> Endian {
    entry.raw.endian
}

/// Enumerators as a bundle has them.
struct Bundled(BTreeMap<String, i64>);

impl Constants for Bundled {
    fn value(&self, name: &str) -> Option<i64> {
        Builtin.value(name).or_else(|| self.0.get(name).copied())
    }
}

/// Notes what is asked for.
struct Noted {
    values: running_kernel::EnumeratorValues,
    asked: RefCell<BTreeMap<String, i64>>,
}

impl Constants for Noted {
    fn value(&self, name: &str) -> Option<i64> {
        let value = self.values.value(name)?;
        if Builtin.value(name).is_none() {
            self.asked.borrow_mut().insert(name.to_owned(), value);
        }
        Some(value)
    }
}

/// Enumerators and their values that print formats of a recording take from the running kernel, if
/// it was made under it.
pub fn recorded_constants(file: &PerfData) -> BTreeMap<String, i64> {
    let features = file.features();
    let noted =
        Noted { values: running_kernel::EnumeratorValues::default(), asked: RefCell::default() };
    if let Some(tracing) = &features.tracing_data
        && features.osrelease.as_deref() == Some(&*running_kernel::release())
    {
        let options = ParseOptions { long_size: tracing.long_size, constants: &noted };
        for event in file.events() {
            if let Some((_, text)) = tracing.format(event.attr.config) {
                // Parse errors are reported where the event is shown.
                let _ = EventFormat::parse_with(text, &options);
            }
        }
    }
    noted.asked.into_inner()
}

fn names(features: &Features, running: &str, bundle: Option<&Bundle>) -> KernelNames {
    let Some(t) = &features.tracing_data else { return KernelNames::default() };
    let source = if let Some(text) = bundle.and_then(Bundle::kallsyms) {
        KallsymsSource::Embedded(text)
    } else if !t.machine.kallsyms.is_empty() {
        KallsymsSource::Embedded((*t.machine.kallsyms).clone())
    } else if features.osrelease.as_deref() == Some(running) {
        KallsymsSource::Running
    } else {
        KallsymsSource::None
    };
    KernelNames::new(source, &t.machine.printk_formats)
}

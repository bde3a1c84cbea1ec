//! The formats that a perf.data file carries, by event, and the payloads of its
//! samples.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kymo_files::perfdata::{Entry, EventDesc, Features};
use kymo_format::{Builtin, Constants, EventFormat, ParseOptions};
use kymo_model::{Endian, EventType};
use kymo_view::Ledger;

use super::payload::{self, KallsymsSource, Names};
use super::{machine, number};

/// Formats of all events known at some time, and the names their payloads need.
#[derive(Default)]
struct Formats {
    /// Of other events than tracepoints `None`; else the format, or why there is none.
    of: Vec<Option<Result<EventFormat, String>>>,
    names: Names,
    /// Events whose format is the running kernel's.
    borrowed: Vec<String>,
    /// The recording does not say whether it was made under that kernel.
    guess: bool,
}

impl Formats {
    fn read(entry: &Entry<'_>) -> Formats {
        let features = entry.features;
        let tracing = features.tracing_data.as_ref();
        let release = machine::release();
        let same_kernel = features.osrelease.as_deref() == Some(&*release);
        // A recorder that was killed leaves neither formats nor the kernel's release.
        let guess = features.osrelease.is_none();
        let (values, running) = (machine::Values::default(), machine::Running::default());
        let long_size = tracing.map_or(8, |t| t.long_size);
        let constants: &dyn Constants = if same_kernel { &values } else { &Builtin };
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
                && entry.raw.endian == Endian::NATIVE
                && let Some((system, text)) = running.format(event.attr.config)
            {
                borrowed.push(event.name.clone());
                return parse(&system, &text);
            }
            Err("the recording has no format of it".to_owned())
        };
        let tracepoint = |e: &EventDesc| e.attr.kind == EventType::TRACEPOINT;
        let of = entry.events.iter().map(|e| tracepoint(e).then(|| format(e))).collect();
        Formats { of, names: names(features, &release), borrowed, guess }
    }
}

/// Payloads of the recording's tracepoints; formats are read when first needed, once
/// for all printers.
#[derive(Default)]
pub(crate) struct Payloads {
    shared: Arc<Mutex<Arc<Formats>>>,
    formats: Arc<Formats>,
    /// Samples by event whose payload could not be rendered, with the reason.
    unrendered: BTreeMap<String, (String, u64)>,
}

impl Payloads {
    /// One that shares the formats.
    pub(super) fn another(&self) -> Payloads {
        Payloads { shared: Arc::clone(&self.shared), ..Payloads::default() }
    }

    /// The format of an entry's event.
    #[inline]
    pub(crate) fn format(&mut self, entry: &Entry<'_>) -> Option<&EventFormat> {
        if self.formats.of.len() != entry.events.len() {
            self.update(entry);
        }
        self.formats.of.get(entry.event)?.as_ref()?.as_ref().ok()
    }

    #[cold]
    fn update(&mut self, entry: &Entry<'_>) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.of.len() != entry.events.len() {
            *shared = Arc::new(Formats::read(entry));
        }
        self.formats = Arc::clone(&shared);
    }

    /// Appends the text of a payload.
    #[inline]
    pub(crate) fn write(&mut self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
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
                    number::hex_byte(out, *byte);
                }
            }
            _ => {}
        }
    }
}

/// What could not be rendered by any of them.
pub(super) fn note<'p>(all: impl Iterator<Item = &'p Payloads>, ledger: &mut Ledger) {
    let mut sum = BTreeMap::new();
    for payloads in all {
        for (event, (why, n)) in &payloads.unrendered {
            *sum.entry((event, why)).or_insert(0) += n;
        }
        let Formats { borrowed, guess, .. } = &*payloads.formats;
        if borrowed.is_empty() {
            continue;
        }
        let events = borrowed.join(", ");
        let fact = format!("no format of {events} in the recording: the running kernel's is used");
        if *guess {
            let fact = fact + "; the recording does not say under which kernel it was made";
            ledger.note("payload", fact, None);
        } else {
            ledger.tell("payload", fact, None);
        }
    }
    for ((event, why), n) in sum {
        let fact = format!("{n} payloads of {event} are shown as bytes: {why}");
        ledger.note("payload", fact, None);
    }
}

/// Payloads are in the byte order the tracing data states; it is the file's.
pub(crate) fn payload_endian(entry: &Entry<'_>) -> Endian {
    entry.raw.endian
}

fn names(features: &Features, running: &str) -> Names {
    let Some(t) = &features.tracing_data else { return Names::default() };
    let source = if !t.kallsyms.is_empty() {
        KallsymsSource::Embedded(t.kallsyms.clone())
    } else if features.osrelease.as_deref() == Some(running) {
        KallsymsSource::Running
    } else {
        KallsymsSource::None
    };
    Names::new(source, &t.printk_formats)
}

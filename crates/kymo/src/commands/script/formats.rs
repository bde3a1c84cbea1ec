//! The formats that a perf.data file carries, by event, and the payloads of its
//! samples.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kymo_files::perfdata::{Entry, EventDesc, Features};
use kymo_format::{EventFormat, ParseOptions};
use kymo_model::{Endian, EventType};
use kymo_view::Ledger;

use super::payload::{self, KallsymsSource, Names};

/// Formats of all events known at some time, and the names their payloads need.
#[derive(Default)]
struct Formats {
    /// Of other events than tracepoints `None`; else the format, or why there is none.
    of: Vec<Option<Result<EventFormat, String>>>,
    names: Names,
}

impl Formats {
    fn read(entry: &Entry<'_>) -> Formats {
        let tracing = entry.features.tracing_data.as_ref();
        let format = |event: &EventDesc| {
            let Some((t, (system, text))) =
                tracing.and_then(|t| Some((t, t.format(event.attr.config)?)))
            else {
                return Err("the recording has no format of it".to_owned());
            };
            let options = ParseOptions { long_size: t.long_size, ..ParseOptions::default() };
            let parsed = EventFormat::parse_with(text, &options);
            parsed.map(|f| f.with_system(system)).map_err(|e| e.to_string())
        };
        let tracepoint = |e: &EventDesc| e.attr.kind == EventType::TRACEPOINT;
        let of = entry.events.iter().map(|e| tracepoint(e).then(|| format(e))).collect();
        Formats { of, names: names(entry.features) }
    }
}

/// Payloads of the recording's tracepoints; formats are read when first needed, once
/// for all printers.
#[derive(Default)]
pub(super) struct Payloads {
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
    pub(super) fn format(&mut self, entry: &Entry<'_>) -> Option<&EventFormat> {
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
    pub(super) fn write(&mut self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
        if self.formats.of.len() != entry.events.len() {
            self.update(entry);
        }
        match self.formats.of.get(entry.event) {
            Some(Some(Ok(format))) => {
                payload::text(format, raw, payload_endian(entry), &self.formats.names, out);
            }
            Some(Some(Err(why))) => {
                let name = entry.desc().map_or("", |e| &e.name);
                let slot = self.unrendered.entry(name.to_owned());
                slot.or_insert_with(|| (why.clone(), 0)).1 += 1;
            }
            _ => {}
        }
    }
}

/// What could not be rendered by any of them.
pub(super) fn note<'p>(all: impl Iterator<Item = &'p Payloads>, ledger: &mut Ledger) {
    let mut sum = BTreeMap::new();
    for (event, (why, n)) in all.flat_map(|p| &p.unrendered) {
        *sum.entry((event, why)).or_insert(0) += n;
    }
    for ((event, why), n) in sum {
        let fact = format!("{n} payloads of {event} are not shown: {why}");
        ledger.note("payload", fact, None);
    }
}

/// Payloads are in the byte order the tracing data states; it is the file's.
pub(super) fn payload_endian(entry: &Entry<'_>) -> Endian {
    entry.raw.endian
}

fn names(features: &Features) -> Names {
    let Some(t) = &features.tracing_data else { return Names::default() };
    let running = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let source = if !t.kallsyms.is_empty() {
        KallsymsSource::Embedded(t.kallsyms.clone())
    } else if features.osrelease.as_deref() == Some(running.trim()) {
        KallsymsSource::Running
    } else {
        KallsymsSource::None
    };
    Names::new(source, &t.printk_formats)
}

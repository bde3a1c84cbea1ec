//! The formats that a perf.data file carries, by event, and the payloads of its
//! samples.

use std::collections::BTreeMap;

use kymo_files::perfdata::{Entry, Features};
use kymo_format::{EventFormat, ParseOptions};
use kymo_model::{Endian, EventType};
use kymo_view::Ledger;

use super::payload::{self, KallsymsSource, Names};

/// Formats of the recording's tracepoints, read when first needed.
#[derive(Default)]
pub(super) struct Payloads {
    formats: Vec<Option<EventFormat>>,
    names: Names,
    /// Samples by event whose payload could not be rendered, with the reason.
    unrendered: BTreeMap<String, (String, u64)>,
}

impl Payloads {
    /// The format of an entry's event.
    #[inline]
    pub(super) fn format(&mut self, entry: &Entry<'_>) -> Option<&EventFormat> {
        if self.formats.len() != entry.events.len() {
            self.read(entry);
        }
        self.formats.get(entry.event)?.as_ref()
    }

    fn read(&mut self, entry: &Entry<'_>) {
        self.formats.clear();
        self.names = names(entry.features);
        let tracing = entry.features.tracing_data.as_ref();
        for event in entry.events {
            if event.attr.kind != EventType::TRACEPOINT {
                self.formats.push(None);
                continue;
            }
            let found = tracing.and_then(|t| Some((t, t.format(event.attr.config)?)));
            let parsed = match found {
                None => Err("the recording has no format of it".to_owned()),
                Some((t, (system, text))) => {
                    let options =
                        ParseOptions { long_size: t.long_size, ..ParseOptions::default() };
                    EventFormat::parse_with(text, &options)
                        .map(|f| f.with_system(system))
                        .map_err(|e| e.to_string())
                }
            };
            self.formats.push(match parsed {
                Ok(format) => Some(format),
                Err(why) => {
                    self.unrendered.insert(event.name.clone(), (why, 0));
                    None
                }
            });
        }
    }

    /// Appends the text of a payload.
    #[inline]
    pub(super) fn write(&mut self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
        self.format(entry);
        let endian = payload_endian(entry);
        match self.formats.get(entry.event) {
            Some(Some(format)) => {
                payload::text(format, raw, endian, &self.names, out);
            }
            _ => {
                if let Some((_, n)) = entry.desc().and_then(|e| self.unrendered.get_mut(&e.name)) {
                    *n += 1;
                }
            }
        }
    }

    pub(super) fn note(&self, ledger: &mut Ledger) {
        for (event, (why, n)) in &self.unrendered {
            if *n > 0 {
                let fact = format!("{n} payloads of {event} are not shown: {why}");
                ledger.note("payload", fact, None);
            }
        }
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

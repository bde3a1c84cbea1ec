//! Tracepoint payloads: the formats come with the recording, and the kernel's
//! print format says what the text is.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use kymo_files::perfdata::{Entry, Features};
use kymo_format::{EventFormat, KernelSymbol, ParseOptions, RenderContext, Symbols};
use kymo_model::{Endian, EventType};
use kymo_symbols::Kallsyms;
use kymo_view::Ledger;
use rustc_hash::FxHashMap;

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
        self.names.prepare(entry.features);
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
                let symbols: &dyn Symbols = &self.names;
                format.render(out, raw, &RenderContext { endian, symbols, ..Default::default() });
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

/// Kernel symbols and strings for `%pS` and `%ps`.
#[derive(Default)]
struct Names {
    embedded: String,
    same_kernel: bool,
    kallsyms: OnceCell<Kallsyms>,
    strings: FxHashMap<u64, String>,
}

impl Names {
    fn prepare(&mut self, features: &Features) {
        let running = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        self.same_kernel = features.osrelease.as_deref() == Some(running.trim());
        let Some(t) = &features.tracing_data else { return };
        self.embedded.clone_from(&t.kallsyms);
        self.kallsyms.take();
        for line in t.printk_formats.lines() {
            // `0xffff… : "text\n"`
            let Some((address, text)) = line.split_once(':') else { continue };
            let address = address.trim().trim_start_matches("0x");
            let text = text.trim().trim_matches('"');
            if let Ok(address) = u64::from_str_radix(address, 16) {
                self.strings.insert(address, unescape(text));
            }
        }
    }
}

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"").replace("\\\\", "\\")
}

impl Symbols for Names {
    fn kernel(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let table = self.kallsyms.get_or_init(|| {
            let text = if !self.embedded.is_empty() {
                self.embedded.clone().into_bytes()
            } else if self.same_kernel {
                std::fs::read("/proc/kallsyms").unwrap_or_default()
            } else {
                Vec::new()
            };
            Kallsyms::parse(text)
        });
        let (start, end, name, module) = table.lookup(address)?;
        Some(KernelSymbol { name, offset: address - start, size: end - start, module })
    }

    fn printk_string(&self, address: u64) -> Option<&str> {
        self.strings.get(&address).map(String::as_str)
    }
}

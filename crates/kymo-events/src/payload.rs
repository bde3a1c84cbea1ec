//! Conversion of a tracepoint's payload to text or JSON, from any source: a format, the bytes, and
//! the names that the recorded kernel gave to addresses.

use std::sync::{Arc, OnceLock};

use kymo_format::{
    EventFormat, KernelSymbol, LineWriter, PointerStyle, RenderContext, Symbols, json_string,
};
use kymo_model::Endian;
use kymo_symbols::{Kallsyms, NameChoice, running_symbols};
use rustc_hash::FxHashMap;

/// Kernel symbols for `%pS` and its kin, and strings of the kernel for `%s`.
#[derive(Debug, Default)]
pub struct KernelNames {
    source: KallsymsSource,
    kallsyms: OnceLock<Kallsyms>,
    strings: FxHashMap<u64, String>,
}

/// Source of a recording's kernel symbols; read when the first is requested.
#[derive(Debug, Default)]
pub enum KallsymsSource {
    /// Nowhere.
    #[default]
    None,
    /// The recording holds their text.
    Embedded(String),
    /// The recording holds their text; of several names for an address, the kernel's choice is
    /// used, not perf's.
    EmbeddedByKernel(Arc<String>),
    /// It was made under the kernel that runs now.
    Running,
    /// The events are of the kernel that runs now, and their text is to be its own.
    Live,
}

impl KernelNames {
    /// `printk_formats` is the text of the tracefs file of that name.
    pub fn new(source: KallsymsSource, printk_formats: &str) -> KernelNames {
        let mut strings = FxHashMap::default();
        for line in printk_formats.lines() {
            // `0xffff… : "text\n"`
            let Some((address, text)) = line.split_once(':') else { continue };
            let address = address.trim().trim_start_matches("0x");
            let text = text.trim().trim_matches('"');
            if let Ok(address) = u64::from_str_radix(address, 16) {
                strings.insert(address, unescape(text));
            }
        }
        KernelNames { source, kallsyms: OnceLock::new(), strings }
    }
}

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"").replace("\\\\", "\\")
}

impl Symbols for KernelNames {
    fn kernel(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let table = self.kallsyms.get_or_init(|| match &self.source {
            KallsymsSource::None => Kallsyms::default(),
            KallsymsSource::Embedded(text) => Kallsyms::parse(text.clone().into_bytes()),
            KallsymsSource::EmbeddedByKernel(text) => {
                Kallsyms::parse_as_kernel(text.as_bytes().to_vec())
            }
            KallsymsSource::Running => running_symbols(NameChoice::Last),
            KallsymsSource::Live => running_symbols(NameChoice::First),
        });
        let (start, end, name, module) = table.lookup(address)?;
        Some(KernelSymbol { name, offset: address - start, size: end - start, module })
    }

    fn printk_string(&self, address: u64) -> Option<&str> {
        self.strings.get(&address).map(String::as_str)
    }
}

/// Appends the text of a payload, `common_type` and all. `symbol_sizes`: the kernel's and perf's
/// `%pS` prints them, trace-cmd's does not.
#[inline]
pub fn text(
    format: &EventFormat,
    payload: &[u8],
    endian: Endian,
    names: &KernelNames,
    symbol_sizes: bool,
    out: &mut Vec<u8>,
) {
    format.render(out, payload, &context(endian, names, symbol_sizes));
}

/// Writes a payload to a line writer, for many lines.
#[inline]
pub fn write(
    format: &EventFormat,
    payload: &[u8],
    endian: Endian,
    names: &KernelNames,
    symbol_sizes: bool,
    line: &mut LineWriter<'_>,
) {
    format.write(line, payload, &context(endian, names, symbol_sizes));
}

#[inline]
fn context(endian: Endian, names: &KernelNames, symbol_sizes: bool) -> RenderContext<'_> {
    let symbols: &dyn Symbols = names;
    let pointers = PointerStyle::Short;
    RenderContext { endian, symbols, pointers, symbol_sizes, ..Default::default() }
}

/// Appends a payload's text as the member `message`, after others, if it names addresses that the
/// fields hold as numbers.
pub fn json_message(
    format: &EventFormat,
    payload: &[u8],
    endian: Endian,
    names: &KernelNames,
    symbol_sizes: bool,
    out: &mut Vec<u8>,
) {
    if !format.names_addresses() {
        return;
    }
    let mut message = Vec::new();
    text(format, payload, endian, names, symbol_sizes, &mut message);
    out.extend_from_slice(b",\"message\":");
    json_string(out, message.trim_ascii_end());
}

/// Appends a payload's own fields as a JSON object.
pub fn json(format: &EventFormat, payload: &[u8], endian: Endian, out: &mut Vec<u8>) {
    let mut line = LineWriter::new(out);
    format.write_json(&mut line, payload, endian);
    line.finish();
}

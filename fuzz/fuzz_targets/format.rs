//! Any bytes as the text of a `format` file, and its fields read from them.
#![no_main]

use kymo_format::EventFormat;
use kymo_model::Endian;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let Ok(format) = EventFormat::parse(&text) else { return };
    let mut out = Vec::new();
    for field in &format.fields {
        out.clear();
        format.value(field, data, Endian::Little).write_json(&mut out, Endian::Little);
    }
});

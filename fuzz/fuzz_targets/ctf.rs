//! Any bytes as a CTF trace: the metadata up to the first NUL, packets of a stream
//! behind it. What the metadata say is printed and read again, which must give the same.
#![no_main]

use std::ops::ControlFlow;

use kymo_files::RecordingBytes;
use kymo_files::ctf::Metadata;
use kymo_files::ctf::read::{Ctf, CtfSelect, CtfTraceBytes, FieldInfo, Visit};
use libfuzzer_sys::fuzz_target;

/// Looks at all values.
struct Look;

impl Visit for Look {
    fn int(&mut self, field: &FieldInfo, value: u64) {
        std::hint::black_box(field.labels(value).count());
    }

    fn text(&mut self, _: &FieldInfo, text: &[u8]) {
        std::hint::black_box(text);
    }
}

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (text, rest) = data.split_at(end);
    if let Ok(text) = std::str::from_utf8(text)
        && let Ok(metadata) = Metadata::parse(text)
    {
        // Text of types that are shared can be longer than any memory.
        // What is of CTF 2 is not written.
        let is_tsdl = !text.starts_with('\u{1e}');
        if is_tsdl && text.len() < 4096 && !text.contains("struct") {
            let again = Metadata::parse(&metadata.to_tsdl()).expect("what was printed is read");
            assert_eq!(again.clocks, metadata.clocks);
        }
    }
    let memory = |bytes: &[u8]| RecordingBytes::from_memory(bytes.to_vec());
    let trace = CtfTraceBytes {
        name: String::new(),
        metadata: memory(text),
        streams: vec![("stream".to_owned(), memory(rest.get(1..).unwrap_or(&[])))],
    };
    if let Ok(ctf) = Ctf::from_bytes("input", [trace]) {
        let mut reader = ctf.reader();
        let _ = ctf.for_each(&CtfSelect::default(), &mut |event| {
            let _ = reader.see(event.class, &event.body, &mut Look);
            ControlFlow::Continue(())
        });
    }
});

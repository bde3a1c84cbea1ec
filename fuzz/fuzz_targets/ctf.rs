//! Any bytes as a CTF trace: the metadata up to the first NUL, packets of a stream
//! behind it. The reader takes directories, so each input goes through one in memory.
//! What the metadata say is printed and read again, which must give the same.
#![no_main]

use std::ops::ControlFlow;
use std::path::PathBuf;

use kymo_files::ctf::Metadata;
use kymo_files::ctf::read::{Ctf, CtfSelect, FieldInfo, Visit};
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

fn directory() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    let dir = if shm.is_dir() { shm } else { std::env::temp_dir() };
    dir.join(format!("kymo-fuzz-ctf-{}", std::process::id()))
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
    let directory = directory();
    std::fs::create_dir_all(&directory).expect("a directory in memory");
    std::fs::write(directory.join("metadata"), text).expect("room in memory");
    std::fs::write(directory.join("stream"), rest.get(1..).unwrap_or(&[])).expect("room in memory");
    if let Ok(ctf) = Ctf::open(&directory) {
        let mut reader = ctf.reader();
        let _ = ctf.for_each(&CtfSelect::default(), &mut |event| {
            let _ = reader.see(event.class, &event.body, &mut Look);
            ControlFlow::Continue(())
        });
    }
    let _ = std::fs::remove_dir_all(&directory);
});

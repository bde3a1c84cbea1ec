//! Any bytes as a trace.dat file, read wholly; the reader takes paths, so each
//! input goes through a file in memory.
#![no_main]

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

use kymo_files::tracedat::{TraceDat, TraceDatSelect};
use libfuzzer_sys::fuzz_target;

fn path() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    let dir = if shm.is_dir() { shm } else { std::env::temp_dir() };
    dir.join(format!("kymo-fuzz-tracedat-{}", std::process::id()))
}

fuzz_target!(|data: &[u8]| {
    let path = path();
    let mut file = std::fs::File::create(&path).expect("a file in memory");
    file.write_all(data).expect("room in memory");
    drop(file);
    if let Ok(recording) = TraceDat::open(&path) {
        let _ = recording.for_each(&TraceDatSelect::default(), &mut |event| {
            std::hint::black_box((event.time, event.payload, event.offset()));
            ControlFlow::Continue(())
        });
        std::hint::black_box(recording.span());
        for buffer in recording.buffers() {
            let _ = recording.read_text(buffer, &mut |text| {
                std::hint::black_box(text);
                Ok::<(), kymo_files::tracedat::Damage>(())
            });
        }
    }
    let _ = std::fs::remove_file(&path);
});

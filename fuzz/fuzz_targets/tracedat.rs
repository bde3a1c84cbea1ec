//! Any bytes as a trace.dat file, read wholly.
#![no_main]

use std::ops::ControlFlow;

use kymo_files::RecordingBytes;
use kymo_files::tracedat::{TraceDat, TraceDatSelect};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let bytes = RecordingBytes::from_memory(data.to_vec());
    if let Ok(recording) = TraceDat::from_bytes("input", bytes) {
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
});

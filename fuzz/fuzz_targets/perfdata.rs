//! Any bytes as a perf.data file, read in both orders of records.
#![no_main]

use std::ops::ControlFlow;

use kymo_files::RecordingBytes;
use kymo_files::perfdata::{PerfData, RecordOrder};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let bytes = RecordingBytes::from_memory(data.to_vec());
    for order in [RecordOrder::File, RecordOrder::Time] {
        let Ok(mut recording) = PerfData::from_bytes("input", bytes.clone()) else { break };
        let _ = recording.for_each(order, &mut |entry| {
            std::hint::black_box(entry);
            ControlFlow::Continue(())
        });
    }
});

//! Any bytes as a perf.data file, read in both channel configurations; the reader takes paths,
//! so each input goes through a file in memory.
#![no_main]

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

use kymo_files::perfdata::{PerfData, RecordOrder};
use libfuzzer_sys::fuzz_target;

fn path() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    let dir = if shm.is_dir() { shm } else { std::env::temp_dir() };
    dir.join(format!("kymo-fuzz-perfdata-{}", std::process::id()))
}

fuzz_target!(|data: &[u8]| {
    let path = path();
    let mut file = std::fs::File::create(&path).expect("a file in memory");
    file.write_all(data).expect("room in memory");
    drop(file);
    for order in [RecordOrder::File, RecordOrder::Time] {
        let Ok(mut recording) = PerfData::open(&path) else { break };
        let _ = recording.for_each(order, &mut |entry| {
            std::hint::black_box(entry);
            ControlFlow::Continue(())
        });
    }
    let _ = std::fs::remove_file(&path);
});

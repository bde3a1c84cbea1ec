//! Any bytes as a profile of pprof, packed or not, or as folded stacks: frames name functions that
//! are there, and no weight is below 0.
#![no_main]

use kymo_files::stack_file::StackFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = StackFile::parse(data, None) else { return };
    assert!(!file.stacks.is_empty());
    for stack in &file.stacks {
        assert!(stack.weight >= 0.0 && stack.weight.is_finite());
        assert!(stack.frames.iter().all(|f| (f.function as usize) < file.functions.len()));
    }
});

//! Any bytes as what a just-in-time compiler wrote of a process: its functions, and
//! how to leave them. Such files are found by their names, so each input goes
//! through one in memory.
#![no_main]

use std::path::PathBuf;

use kymo_symbols::{Resolver, ResolverOptions};
use kymo_unwind::CfiContext;
use libfuzzer_sys::fuzz_target;

const PROCESS: u32 = 1;

fn directory() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    let dir = if shm.is_dir() { shm } else { std::env::temp_dir() };
    dir.join(format!("kymo-fuzz-jitdump-{}", std::process::id()))
}

fuzz_target!(|data: &[u8]| {
    let directory = directory();
    std::fs::create_dir_all(&directory).expect("a directory in memory");
    let path = directory.join(format!("jit-{PROCESS}.dump"));
    std::fs::write(&path, data).expect("room in memory");
    let mut resolver = Resolver::new(ResolverOptions::default());
    let _ = resolver.dso(path.as_os_str().as_encoded_bytes(), None, PROCESS);
    let made = resolver.dso("//anon", None, PROCESS);
    let code = resolver.binaries().get(made);
    let mut context = CfiContext::default();
    for address in (0x1000..0x5000).step_by(8) {
        if let Some((symbol, _)) = resolver.symbol(made, address) {
            std::hint::black_box(resolver.name(symbol));
        }
        if let Ok(code) = &code {
            let _ = code.rule(&mut context, address, false);
        }
    }
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_dir(&directory);
});

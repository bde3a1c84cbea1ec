//! Any bytes as a bundle beside a recording: the archive, its manifest, what it
//! says of the kernel and of a program. Bundles are files, so each input goes
//! through one in memory.
#![no_main]

use std::path::PathBuf;
use std::sync::Arc;

use kymo_symbols::bundle::{Bundle, Recording};
use kymo_symbols::{Resolver, ResolverOptions};
use libfuzzer_sys::fuzz_target;

fn path() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    let dir = if shm.is_dir() { shm } else { std::env::temp_dir() };
    dir.join(format!("kymo-fuzz-bundle-{}", std::process::id()))
}

fuzz_target!(|data: &[u8]| {
    let path = path();
    std::fs::write(&path, data).expect("room in memory");
    // That of the manifests this begins with.
    let recording = Recording { size: 12, checksum: 0xdead_beef };
    if let Ok(bundle) = Bundle::open(&path, recording) {
        std::hint::black_box((bundle.kallsyms(), bundle.constants()));
        let options =
            ResolverOptions { bundle: Some(Arc::new(bundle)), ..ResolverOptions::default() };
        let mut resolver = Resolver::new(options);
        let program = resolver.dso("/p", None, 1);
        let _ = resolver.symbol(program, 0x1000);
        std::hint::black_box(resolver.problems().len());
    }
    let _ = std::fs::remove_file(&path);
});

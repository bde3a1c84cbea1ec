//! Any bytes as the tar of an archive of binaries by build-id. Nothing is written but into the
//! cache, which is in memory, and every link in there leads to a directory of it.
#![no_main]

use std::io::Read;
use std::path::PathBuf;

use kymo_symbols::BuildIdDirectory;
use kymo_symbols::build_id_archive::unpack_tar;
use kymo_symbols::build_id_cache::BuildIdCache;
use libfuzzer_sys::fuzz_target;

fn root() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    let directory = if shm.is_dir() { shm } else { std::env::temp_dir() };
    directory.join(format!("kymo-fuzz-archive-{}", std::process::id()))
}

fuzz_target!(|data: &[u8]| {
    let root = root();
    std::fs::create_dir_all(&root).expect("room in memory");
    let cache = BuildIdCache::new(BuildIdDirectory::at(root.join("cache")));
    let mut bytes = data;
    let mut other = |name: &str, bytes: &mut dyn Read| {
        assert!(!name.contains('/') && name != "..");
        std::io::copy(bytes, &mut std::io::sink()).map(drop)
    };
    let unpacked = unpack_tar(&mut bytes, &cache, &mut other);
    let entries = std::fs::read_dir(&root).expect("the directory is there");
    for entry in entries.flatten() {
        assert_eq!(entry.file_name(), "cache");
    }
    if let Ok(unpacked) = unpacked {
        let binaries = cache.binaries().expect("the cache can be read");
        assert!(binaries.len() <= unpacked.binaries);
    }
    std::fs::remove_dir_all(&root).expect("it is ours");
});

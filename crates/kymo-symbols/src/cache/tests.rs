//! Tests of the cache's files: what is stored comes back, what is not right is
//! named and not used.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its files has failed")]

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const KIND: CacheKind = CacheKind { name: "test", version: 3 };

fn key(n: u8) -> BuildId {
    BuildId::new(&[n; 20])
}

fn cache() -> (tempfile::TempDir, SymbolCache) {
    let directory = tempfile::tempdir().unwrap();
    let cache = SymbolCache::at(directory.path().join("a/kymo"));
    (directory, cache)
}

#[test]
fn what_is_stored_comes_back_and_is_listed() {
    let (_directory, cache) = cache();
    assert!(cache.load(KIND, key(1)).unwrap().is_none());
    assert!(cache.list().unwrap().is_empty());
    let payload: Vec<u8> = (0..10_001u32).map(|i| i as u8).collect();
    cache.store(KIND, key(1), "/bin/first", b"old").unwrap();
    cache.store(KIND, key(1), "/bin/first", &payload).unwrap();
    cache.store(KIND, key(2), "", b"").unwrap();
    assert_eq!(&**cache.load(KIND, key(1)).unwrap().as_ref().unwrap(), &payload[..]);
    assert_eq!(&**cache.load(KIND, key(2)).unwrap().as_ref().unwrap(), b"");
    assert!(cache.load(CacheKind { name: "other", ..KIND }, key(1)).unwrap().is_none());
    let mode = fs::metadata(cache.directory()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut listed = cache.list().unwrap();
    listed.sort_by_key(|l| l.size);
    assert_eq!(listed.len(), 2);
    assert_eq!((listed[1].key, listed[1].label.as_str()), (Some(key(1)), "/bin/first"));
    assert_eq!((listed[1].kind.as_str(), listed[1].size > 10_001), ("test", true));
    assert!(cache.remove(KIND, key(2)).unwrap());
    assert!(!cache.remove(KIND, key(2)).unwrap());
    assert!(cache.load(KIND, key(2)).unwrap().is_none());
}

#[test]
fn every_damaged_byte_is_seen() {
    let (_directory, cache) = cache();
    cache.store(KIND, key(1), "/bin/x", b"0123456789abcdefghijklmnopqrstuvwxyz0123456789").unwrap();
    let path = cache.list().unwrap().remove(0).path;
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        for bits in [1 << (at % 8), 0xff] {
            let mut bad = good.clone();
            bad[at] ^= bits;
            fs::write(&path, &bad).unwrap();
            let seen = cache.load(KIND, key(1));
            assert!(
                matches!(seen, Err(CacheError::Damaged { .. } | CacheError::Version { .. })),
                "byte {at} bits {bits:#x}: {seen:?}"
            );
        }
        fs::write(&path, &good[..at]).unwrap();
        assert!(cache.load(KIND, key(1)).is_err(), "cut at {at}");
    }
    fs::write(&path, &good).unwrap();
    assert!(cache.load(KIND, key(1)).unwrap().is_some());
    // Another binary's file under this name, and another version.
    let other = cache.directory().join(format!("{}.test", key(9)));
    fs::copy(&path, other).unwrap();
    assert!(matches!(cache.load(KIND, key(9)), Err(CacheError::Damaged { .. })));
    let newer = cache.load(CacheKind { version: 4, ..KIND }, key(1));
    assert!(matches!(newer, Err(CacheError::Version { found: 3, wanted: 4, .. })));
}

#[test]
fn what_others_can_write_is_not_trusted() {
    let (_directory, cache) = cache();
    cache.store(KIND, key(1), "", b"x").unwrap();
    let path = cache.list().unwrap().remove(0).path;
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&path, 0o666);
    assert!(matches!(cache.load(KIND, key(1)), Err(CacheError::Foreign { .. })));
    mode(&path, 0o600);
    mode(cache.directory(), 0o777);
    assert!(matches!(cache.load(KIND, key(1)), Err(CacheError::Foreign { .. })));
    assert!(matches!(cache.store(KIND, key(1), "", b"y"), Err(CacheError::Foreign { .. })));
    mode(cache.directory(), 0o755);
    assert!(cache.load(KIND, key(1)).unwrap().is_some());
    // A link could lead anywhere.
    fs::rename(&path, cache.directory().join("real")).unwrap();
    std::os::unix::fs::symlink(cache.directory().join("real"), &path).unwrap();
    assert!(matches!(cache.load(KIND, key(1)), Err(CacheError::Io { .. })));
}

#[test]
fn the_one_longest_not_used_goes_first() {
    let (_directory, mut cache) = cache();
    cache.limit = 5000;
    for n in 1..=4 {
        cache.store(KIND, key(n), "", &[n; 1000]).unwrap();
        let old = SystemTime::now() - Duration::from_secs(1000 - u64::from(n));
        let file = File::open(cache.path(KIND, key(n))).unwrap();
        file.set_modified(old).unwrap();
    }
    // The first one is used again.
    assert!(cache.load(KIND, key(1)).unwrap().is_some());
    cache.store(KIND, key(5), "", &[5; 1000]).unwrap();
    let there = |n| cache.load(KIND, key(n)).unwrap().is_some();
    assert_eq!([1, 2, 3, 4, 5].map(there), [true, false, true, true, true]);
    let large = vec![0; 6000];
    assert!(matches!(
        cache.store(KIND, key(6), "", &large),
        Err(CacheError::TooLarge { size: 6000 })
    ));
}

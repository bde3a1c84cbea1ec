//! A file under way is whole at any moment; finished it has no gaps.

use kymo_files::tracedat::{Recording, TraceDat, WriteError};
use kymo_model::Endian;

use super::made::{ENDS, events, facts, formats, pages, specs};

#[test]
fn at_any_moment_what_was_committed_is_read() {
    for format in formats() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.dat");
        let f = facts(Endian::Little, 8);
        let recording = Recording::create(&path, format, &f, specs()).unwrap();
        let rings = pages(&f);
        let mut sinks = recording.sinks();
        assert_eq!(sinks.len(), 6);
        let count = || {
            let data = TraceDat::open(&path).unwrap();
            assert_eq!(data.damage(), [], "{format:?}");
            let version = data.options().version.clone().unwrap();
            assert_eq!(version, "by hand (recording not finished)");
            let (seen, stats) = events(&data);
            assert_eq!(stats.damaged_places, 0);
            seen.len()
        };
        assert_eq!(count(), 0);
        for round in 0..4 {
            for sink in &mut sinks {
                let ring = &rings[sink.buffer()][sink.cpu() as usize];
                sink.write(&ring[round * 4096..][..4096]).unwrap();
            }
            assert_eq!(count(), (round + 1) * 300);
            assert_eq!(recording.recorded(), (round as u64 + 1) * 6 * 4096);
        }
        drop(sinks);
        recording.finish(&f).unwrap();
        let data = TraceDat::open(&path).unwrap();
        assert_eq!(data.damage(), []);
        assert_eq!((data.version(), data.compression()), (format.version, format.compression));
        assert_eq!(data.options().version.as_deref(), Some("by hand"));
        let (seen, _) = events(&data);
        assert!(seen.iter().map(|e| e.3).eq(0..1200), "{format:?}");
        assert!(data.len() < 200_000, "{} bytes, gaps and all", data.len());
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}

#[test]
fn pages_moved_by_others_count_once_they_are_committed() {
    use std::os::unix::fs::FileExt as _;
    for endian in ENDS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.dat");
        let f = facts(endian, 8);
        let recording = Recording::create(&path, formats()[0], &f, specs()).unwrap();
        let ring = &pages(&f)[0][0];
        let mut sink = recording.sinks().remove(0);
        assert_eq!(sink.room(), recording.region_size());
        let at = sink.offset();
        sink.file().write_all_at(ring, at).unwrap();
        assert_eq!(events(&TraceDat::open(&path).unwrap()).0.len(), 0);
        sink.commit(8192).unwrap();
        assert_eq!(sink.offset(), at + 8192);
        assert_eq!(events(&TraceDat::open(&path).unwrap()).0.len(), 100);
        sink.commit(8192).unwrap();
        assert_eq!(events(&TraceDat::open(&path).unwrap()).0.len(), 200);
        let full = sink.commit(recording.region_size()).unwrap_err();
        assert!(matches!(full, WriteError::RegionFull { cpu: 0, .. }), "{full}");
    }
}

#[test]
fn a_recording_that_cannot_be_finished_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.dat");
    let f = facts(Endian::Little, 8);
    let recording = Recording::create(&path, formats()[1], &f, specs()).unwrap();
    recording.sinks()[0].write(&pages(&f)[0][0]).unwrap();
    // Something stands where the finished file would be put together.
    let name = format!("trace.dat.{}.tmp", std::process::id());
    std::fs::create_dir(dir.path().join(name)).unwrap();
    let error = recording.finish(&f).unwrap_err().to_string();
    assert!(error.contains("create"), "{error}");
    assert_eq!(events(&TraceDat::open(&path).unwrap()).0.len(), 200);
}

//! Recordings made on the spot by the installed perf, and what a reader makes
//! of them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Cursor, Write as _};
use std::ops::ControlFlow;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use kymo_files::RecordingBytes;
use kymo_files::perfdata::{
    FileMapping, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder,
};
use tempfile::NamedTempFile;

/// Records `shell` with perf and gives the bytes of the file or pipe.
pub(crate) fn record(args: &[&str], shell: &str) -> Vec<u8> {
    let file = NamedTempFile::new().unwrap();
    let mut perf = Command::new("perf");
    perf.args(["record", "-q"]).args(args);
    let to_pipe = args.contains(&"-");
    if !to_pipe {
        perf.arg("-o").arg(file.path());
    }
    let shell = format!("{shell} >/dev/null");
    perf.args(["--", "sh", "-c", &shell]).stderr(Stdio::null());
    let output = perf.output().expect("perf is installed");
    assert!(output.status.success(), "perf record {args:?}: {}", output.status);
    if to_pipe { output.stdout } else { std::fs::read(file.path()).unwrap() }
}

/// The bytes as a file.
pub(crate) fn write_temp(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// `(kind, time, event, body)` of a record.
pub(crate) type Record = (u32, Option<u64>, usize, Vec<u8>);

/// Everything a reader delivers.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) records: Vec<Record>,
    pub(crate) stats: PerfDataReadStats,
}

impl Collected {
    pub(crate) fn of(
        data: &mut PerfData,
        order: RecordOrder,
    ) -> Result<Collected, PerfDataReadError> {
        let mut records = Vec::new();
        let stats = data.for_each(order, &mut |e| {
            records.push((e.raw.kind.0, e.time, e.event, e.raw.body.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(Collected { records, stats })
    }
}

/// A recording of these bytes.
pub(crate) fn open(bytes: &[u8]) -> Result<PerfData, PerfDataReadError> {
    PerfData::from_bytes("recording", RecordingBytes::from_memory(bytes.to_vec()))
}

/// Reads the bytes as a file; where that is mapped, or they are in memory or behind a reader, the
/// same must come out.
pub(crate) fn collect(bytes: &[u8], order: RecordOrder) -> Result<Collected, PerfDataReadError> {
    let file = write_temp(bytes);
    let read = Collected::of(&mut PerfData::open(file.path())?, order)?;
    let behind = RecordingBytes::from_reader(Cursor::new(bytes.to_vec()));
    let mut others = vec![open(bytes)?, PerfData::from_bytes("reader", behind)?];
    let opened = PerfData::open(file.path())?;
    if !opened.is_pipe() {
        others.push(opened.reopen()?);
    }
    for mut other in others {
        let again = Collected::of(&mut other, order)?;
        assert_eq!(again.records, read.records);
        assert_eq!(format!("{:?}", again.stats), format!("{:?}", read.stats));
    }
    let mut mapped = PerfData::open(file.path())?;
    let memory = Arc::new(Memory { bytes: bytes.to_vec(), forgotten: Mutex::default() });
    let map = Arc::clone(&memory);
    mapped.map(|_| Some(map));
    let again = Collected::of(&mut mapped, order)?;
    same(&again.records, &read.records, order);
    assert_eq!(format!("{:?}", again.stats), format!("{:?}", read.stats));
    let whole = read.stats.damaged.is_none() && !mapped.is_pipe();
    let (offset, size) = mapped.data_range();
    if whole && size > 0 {
        let end = usize::try_from(offset + size).unwrap();
        let kept = memory.never_forgotten(usize::try_from(offset).unwrap()..end);
        assert_eq!(kept, 0, "bytes of records that were not given back");
    }
    Ok(read)
}

/// Asserts that two passes deliver equal records in equal order. By time, records without one, such
/// as round marks, come as early as they are read: their position among the others depends on the
/// portions.
fn same(mapped: &[Record], read: &[Record], order: RecordOrder) {
    if mapped == read {
        return;
    }
    let parts = |all: &[Record]| -> [Vec<Record>; 2] {
        let (timed, untimed) =
            all.iter().cloned().partition(|r| order == RecordOrder::File || r.1.is_some());
        [timed, untimed]
    };
    for (mapped, read) in parts(mapped).iter().zip(&parts(read)) {
        if let Some(at) = mapped.iter().zip(read).position(|(a, b)| a != b) {
            panic!("record {at} differs: mapped {:?}, read {:?}", mapped[at], read[at]);
        }
        assert_eq!(mapped.len(), read.len());
    }
}

/// Stands for a mapped file; keeps what was given back.
#[derive(Debug)]
struct Memory {
    bytes: Vec<u8>,
    forgotten: Mutex<Vec<Range<usize>>>,
}

impl Memory {
    fn never_forgotten(&self, part: Range<usize>) -> usize {
        let mut kept = vec![true; part.len()];
        for range in self.forgotten.lock().unwrap().iter() {
            let from = range.start.max(part.start) - part.start;
            let to = range.end.min(part.end).saturating_sub(part.start);
            if from < to {
                kept[from..to].fill(false);
            }
        }
        kept.iter().filter(|kept| **kept).count()
    }
}

impl FileMapping for Memory {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn forget(&self, part: &[u8]) {
        let start = part.as_ptr() as usize - self.bytes.as_ptr() as usize;
        self.forgotten.lock().unwrap().push(start..start + part.len());
    }

    fn expect(&self, _: std::ops::Range<usize>) {}

    fn was_cut(&self) -> bool {
        false
    }
}

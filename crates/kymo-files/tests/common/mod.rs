//! Recordings made on the spot by the installed perf, and what a reader makes
//! of them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Write as _;
use std::ops::ControlFlow;
use std::process::{Command, Stdio};

use kymo_files::perfdata::{Order, PerfData, ReadError, ReadStats};
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
    pub(crate) stats: ReadStats,
}

impl Collected {
    pub(crate) fn of(data: &mut PerfData, order: Order) -> Result<Collected, ReadError> {
        let mut records = Vec::new();
        let stats = data.for_each(order, &mut |e| {
            records.push((e.raw.kind.0, e.time, e.event, e.raw.body.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok(Collected { records, stats })
    }
}

pub(crate) fn collect(bytes: &[u8], order: Order) -> Result<Collected, ReadError> {
    let file = write_temp(bytes);
    Collected::of(&mut PerfData::open(file.path())?, order)
}

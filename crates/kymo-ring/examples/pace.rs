//! How long a write into the ring takes, beside a loop that reads the counter and
//! stores 24 bytes: `cargo run --release -p kymo-ring --example pace`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::hint::black_box;
use std::time::Instant;

use kymo_ring::{Clock, Config, HEADROOM, Header, Line, Memory, Mode, Ring, Rseq, SLACK};

fn main() {
    let events: u64 = std::env::args().nth(1).map_or(5_000_000, |n| n.parse().unwrap());
    for _ in 0..5 {
        let floor = floor(events);
        let on_cpu = ring(events, Rseq::find());
        let shared = ring(events, None);
        println!("floor {floor:.1} ns  on its CPU {on_cpu:.1} ns  shared {shared:.1} ns");
    }
}

fn floor(events: u64) -> f64 {
    let mut memory = vec![0u64; 64 << 10];
    let start = Instant::now();
    let mut at = 0;
    for i in 0..events {
        let to = &mut black_box(&mut memory)[at..at + 3];
        to.copy_from_slice(&[Clock::Tsc.now(), i, i]);
        at = (at + 3) % (60 << 10);
    }
    start.elapsed().as_nanos() as f64 / events as f64
}

fn ring(events: u64, rseq: Option<Rseq>) -> f64 {
    let config = Config {
        mode: Mode::Overwrite,
        cpu_areas: if rseq.is_some() { 64 } else { 0 },
        shared_areas: 2,
        sub_buffer: 128 << 10,
        sub_buffers: 4,
        stream: 0,
        uuid: [0; 16],
        clock: Clock::best(true).facts(None),
    };
    let size = Header::new(config).unwrap().file_size();
    let mut lines = vec![Line([0; 64]); size as usize / 64];
    let ring = Ring::create(Memory::from_lines(&mut lines), config, rseq).unwrap();
    let start = Instant::now();
    for i in 0..events {
        let mut record = [0u64; (HEADROOM + 16 + SLACK) / 8];
        record[2] = i;
        record[3] = i + 1;
        // SAFETY: words seen as bytes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(record.as_mut_ptr().cast(), 40) };
        ring.write(1, 7, bytes, 16);
    }
    start.elapsed().as_nanos() as f64 / events as f64
}

//! Measures the cost of an event: `pace KIND MODE EVENTS THREADS` prints ns of a thread's own CPU
//! time per event. KIND: `empty` (a loop that does nothing), `disabled`, `floor` (reads the counter
//! and stores 24 bytes), `two` (two u64), `string` (a u64 and 16 bytes of text), `handler` (two
//! u64, in a signal handler), `rejected` (by a filter); `counter`, `counter-text`,
//! `counter-number`, `histogram`, `histogram-text` (hits of those, by keys), `atomic` (an addition
//! to one word of all threads); MODE: `overwrite` or `discard`. With KIND `paced` it waits until it
//! is traced, hits EVENTS a second for four seconds and prints the number of events and of seconds;
//! with KIND `flat` it hits as fast as its threads can. Compared with LTTng by `cargo xtask bench
//! ust`.
#![allow(clippy::unwrap_used, reason = "an example")]

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kymo_tracepoint::{counter, emit, histogram, tracepoint};
use kymo_ust::{ChannelConfig, EventRule};

tracepoint! {
    pace: two(a: u64, b: u64) {
        fields { a: u64 = a, b: u64 = b }
        print "{a} {b}"
    }
}

tracepoint! {
    pace: text(a: u64, s: &str) {
        fields { a: u64 = a, s: str = s }
        print "{a} {s}"
    }
}

static EVENTS: AtomicU64 = AtomicU64::new(0);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, mode, events, threads] = args.as_slice() else {
        panic!("pace KIND MODE EVENTS THREADS");
    };
    match kind.as_str() {
        "paced" => return paced(events.parse().unwrap()),
        "flat" => return flat(threads.parse().unwrap()),
        _ => {}
    }
    if std::env::var_os("KYMO_UST_DIR").is_none() {
        std::process::exit(traced(kind, mode, events));
    }
    let (events, threads) = (events.parse::<u64>().unwrap(), threads.parse::<usize>().unwrap());
    EVENTS.store(events, Ordering::Relaxed);
    // SAFETY: the handler does what signal handlers may do, and hits a tracepoint.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    let times: Vec<f64> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(|| time(kind, events))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    println!("{:.3}", times.iter().sum::<f64>() / times.len() as f64);
}

fn time(kind: &str, events: u64) -> f64 {
    if std::env::var_os("KYMO_PACE_COUNTED").is_some() {
        pretend_sequences();
    }
    run(kind, events / 10);
    let start = cpu_ns();
    if kind == "handler" {
        // SAFETY: the handler is installed.
        unsafe { libc::raise(libc::SIGUSR1) };
    } else {
        run(kind, events);
    }
    (cpu_ns() - start) as f64 / events as f64
}

const LONG: Duration = Duration::from_secs(4);

fn until_traced() {
    while !two::enabled() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(300));
}

fn flat(threads: usize) {
    until_traced();
    let start = Instant::now();
    let one = || {
        let mut done = 0;
        while start.elapsed() < LONG {
            two_numbers(1000);
            done += 1000;
        }
        done
    };
    let done: u64 = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{done} {:.3}", start.elapsed().as_secs_f64());
}

/// Events a second, in bursts of a millisecond's.
fn paced(per_second: u64) {
    until_traced();
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < LONG {
        let due = start.elapsed().as_nanos() as u64 * per_second / 1_000_000_000;
        two_numbers(due.saturating_sub(done));
        done = done.max(due);
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{done} {:.3}", start.elapsed().as_secs_f64());
}

/// valgrind, which counts instructions, knows no restartable sequences, and the C library has none
/// then. Alone, and without interruption, this thread may take its place for a registered one, so
/// that the instructions are counted that run outside.
#[cfg(target_arch = "x86_64")]
fn pretend_sequences() {
    unsafe extern "C" {
        static __rseq_offset: isize;
        static __rseq_size: u32;
    }
    // SAFETY: the size is a word of the C library's that only the tracepoints read, on a page made
    // writable before; the area of this thread is unused, since nothing is registered.
    unsafe {
        let size = (&raw const __rseq_size).cast_mut();
        let page = size.map_addr(|at| at & !4095);
        libc::mprotect(page.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE);
        size.write_volatile(32);
        std::arch::asm!(
            "mov dword ptr fs:[{at} + 4], 0",
            at = in(reg) __rseq_offset,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn pretend_sequences() {}

fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

extern "C" fn handler(_: i32) {
    two_numbers(EVENTS.load(Ordering::Relaxed));
}

fn run(kind: &str, events: u64) {
    match kind {
        "empty" => (0..events).for_each(|i| {
            black_box(i);
        }),
        "floor" => floor(events),
        "string" => (0..events).for_each(|i| emit!(text(black_box(i), "fifteen letters"))),
        "atomic" => {
            static SUM: AtomicU64 = AtomicU64::new(0);
            (0..events).for_each(|i| {
                SUM.fetch_add(black_box(i) & 1, Ordering::Relaxed);
            });
        }
        "counter" => (0..events).for_each(|i| counter!(pace: hits, black_box(i) & 1)),
        "counter-text" => {
            (0..events).for_each(|i| counter!(pace: texts, by METHODS[black_box(i) as usize % 4]));
        }
        "counter-number" => {
            (0..events).for_each(|i| counter!(pace: numbers, by black_box(i) % 4));
        }
        "histogram" => (0..events).for_each(|i| histogram!(pace: sizes, black_box(i))),
        "histogram-text" => (0..events).for_each(|i| {
            histogram!(pace: times, black_box(i), by METHODS[i as usize % 4]);
        }),
        _ => two_numbers(events),
    }
}

const METHODS: [&str; 4] = ["GET", "POST", "DELETE", "PROPFIND"];

#[inline(never)]
fn two_numbers(events: u64) {
    for i in 0..events {
        emit!(two(black_box(i), i + 1));
    }
}

fn floor(events: u64) {
    let mut memory = vec![0u64; 96 << 10];
    let mut at = 0;
    for i in 0..events {
        let to = &mut black_box(&mut memory)[at..at + 3];
        to.copy_from_slice(&[kymo_ring::Clock::Tsc.now(), i, i]);
        at = if at < 90 << 10 { at + 3 } else { 0 };
    }
}

/// Runs this program again, with what `kind` needs switched on.
fn traced(kind: &str, mode: &str, events: &str) -> i32 {
    let directory = PathBuf::from(format!("/dev/shm/kymo-pace-{}", std::process::id()));
    // SAFETY: no arguments.
    let user = directory.join(format!("kymo-{}", unsafe { libc::geteuid() }));
    std::fs::create_dir_all(user.join("wanted")).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&user, private).unwrap();
    let count: u64 = events.parse().unwrap();
    let filter = if kind == "rejected" { kymo_ust::compile("b == 0").unwrap() } else { Vec::new() };
    let room = (count * 32).next_power_of_two().clamp(1 << 20, 1 << 29) as u32;
    let config = ChannelConfig {
        overwrite: mode == "overwrite",
        sub_buffer: if mode == "overwrite" { 256 << 10 } else { room / 4 },
        sub_buffers: if mode == "overwrite" { 4 } else { 8 },
        uuid: [0; 16],
        pids: [0; 4],
        session: "pace".into(),
        channel: "channel0".into(),
        rules: vec![EventRule { pattern: "pace:*".into(), max_level: 14, exclude: false, filter }],
    };
    if kind != "disabled" {
        std::fs::write(user.join("wanted/pace"), config.encode().unwrap()).unwrap();
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(std::env::args().skip(1)).env("KYMO_UST_DIR", &directory);
    let status = command.status().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    status.code().unwrap_or(1)
}

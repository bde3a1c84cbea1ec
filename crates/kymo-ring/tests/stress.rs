//! The ring under what can happen to a program: many threads on few CPUs that are moved
//! between them, signals whose handlers write, a process that shares the ring, packets
//! that run over, and a reader that works on the file meanwhile. Every event is accounted
//! for, none is torn, and those of a thread are in order.
#![cfg(target_os = "linux")]
#![cfg(not(miri))]
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::incompatible_msrv, reason = "tests need not build with the oldest compiler")]

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Event, RingBytes, drain, state};
use kymo_ring::{Clock, Config, HEADROOM, Header, Memory, Mode, Ring, Rseq, SLACK, WriteOutcome};

/// Architectures whose restartable sequences the ring has.
const HAS_SEQUENCES: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
/// The kernel's name of the clock source that reads the processor's counter.
const COUNTER: &str = if cfg!(target_arch = "aarch64") { "arch_sys_counter" } else { "tsc" };

/// A ring in a file, as the tool finds it.
struct RingFile(File);

impl RingBytes for RingFile {
    fn read(&self, offset: u64, bytes: &mut [u8]) {
        self.0.read_exact_at(bytes, offset).unwrap();
    }

    fn take(&self, offset: u64, value: u8) {
        self.0.write_all_at(&[value], offset).unwrap();
    }
}

fn make(mode: Mode, cpus: bool, sub_buffer: u32) -> (&'static Ring<'static>, RingFile) {
    // SAFETY: plain calls; the results are checked.
    let fd = unsafe { libc::memfd_create(c"kymo-ring-test".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: just made, and not shared.
    let file = unsafe { File::from_raw_fd(fd) };
    let rseq = Rseq::find().filter(|_| cpus);
    // SAFETY: no arguments that could be wrong.
    let cpu_count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as u32;
    let config = Config {
        mode,
        cpu_areas: if rseq.is_some() { cpu_count } else { 0 },
        shared_areas: 4,
        sub_buffer,
        sub_buffers: 8,
        stream: 0,
        uuid: *b"0123456789abcdef",
        clock: Clock::best(COUNTER.as_bytes()).facts(None),
    };
    let size = Header::new(config).unwrap().file_size();
    file.set_len(size).unwrap();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file that is long enough and stays so; never unmapped.
    let memory = unsafe {
        let (null, size) = (std::ptr::null_mut(), size as usize);
        let at = libc::mmap(null, size, protection, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        Memory::from_raw(at.cast(), size)
    };
    let ring = Ring::create(memory, config, rseq).unwrap();
    (Box::leak(Box::new(ring)), RingFile(file))
}

/// A payload is: length, number of the event in its thread, noise, checksum.
const MIN: usize = 4 + 8 + 4;

fn length(payload: &[u8]) -> usize {
    u32::from_le_bytes(payload[..4].try_into().unwrap()) as usize
}

fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193))
}

fn write(ring: &Ring<'_>, tid: u32, number: u64) -> WriteOutcome {
    let noise = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % 90;
    let len = MIN + noise;
    let mut record = [0; HEADROOM + MIN + 90 + SLACK];
    let payload = &mut record[HEADROOM..HEADROOM + len];
    payload[..4].copy_from_slice(&(len as u32).to_le_bytes());
    payload[4..12].copy_from_slice(&number.to_le_bytes());
    payload[12..len - 4].fill((number as u8) ^ (tid as u8));
    let sum = checksum(&payload[..len - 4]);
    payload[len - 4..].copy_from_slice(&sum.to_le_bytes());
    let id = if number.is_multiple_of(7) { 300 } else { 1 };
    ring.write(id, tid, &mut record, len)
}

#[derive(Default)]
struct Counts {
    written: AtomicU64,
    discarded: AtomicU64,
}

impl Counts {
    fn add(&self, outcome: WriteOutcome) {
        match outcome {
            WriteOutcome::Written => &self.written,
            WriteOutcome::Discarded => &self.discarded,
        }
        .fetch_add(1, Ordering::Relaxed);
    }
}

static HANDLER_RING: AtomicPtr<Ring<'static>> = AtomicPtr::new(std::ptr::null_mut());
static HANDLER_COUNTS: Counts = Counts { written: AtomicU64::new(0), discarded: AtomicU64::new(0) };

thread_local! {
    static TID: Cell<u32> = const { Cell::new(0) };
    static IN_HANDLER: Cell<u64> = const { Cell::new(0) };
}

const ENDLESS: u64 = u64::MAX;

/// Events of handlers count as those of a thread of their own.
const HANDLER: u32 = 1 << 20;

extern "C" fn handler(_: i32) {
    // SAFETY: null, or the leaked ring.
    let Some(ring) = (unsafe { HANDLER_RING.load(Ordering::Acquire).as_ref() }) else { return };
    let (tid, number) = (TID.get(), IN_HANDLER.get());
    if tid != 0 {
        IN_HANDLER.set(number + 1);
        HANDLER_COUNTS.add(write(ring, tid + HANDLER, number));
    }
}

/// Threads write until they are stopped, and are moved from CPU to CPU and signalled by a
/// tormentor: for a while, until the number of handled signals reaches the one requested below, and
/// everything is written.
fn torment(ring: &'static Ring<'static>, each: u64, read: impl FnMut()) -> Counts {
    const THREADS: u32 = 12;
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    let ids: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    let at_work = AtomicU64::new(THREADS.into());
    let mut read = read;
    std::thread::scope(|scope| {
        for (i, id) in ids.iter().enumerate() {
            let (stop, counts, at_work) = (&stop, &counts, &at_work);
            scope.spawn(move || {
                TID.set(i as u32 + 1);
                // SAFETY: no arguments.
                id.store(unsafe { libc::pthread_self() }, Ordering::Release);
                let mut number = 0;
                while number < each && !stop.load(Ordering::Relaxed) {
                    counts.add(write(ring, i as u32 + 1, number));
                    number += 1;
                    if number.is_multiple_of(512) {
                        move_to((number / 512) as usize + i);
                        if each != ENDLESS {
                            // Stays until the signals come.
                            std::thread::sleep(Duration::from_millis(3));
                        }
                    }
                }
                at_work.fetch_sub(1, Ordering::Release);
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(100));
                }
                // Not signalled any more from here on.
                id.store(0, Ordering::Release);
                while !SIGNALS_OVER.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
        }
        let begin = Instant::now();
        let is_over = || {
            let done = each == ENDLESS || at_work.load(Ordering::Acquire) == 0;
            let enough = handled() > FEW && done && begin.elapsed() > Duration::from_millis(600);
            enough || begin.elapsed() > Duration::from_secs(60)
        };
        let mut attempt = 0;
        while !is_over() {
            for _ in 0..50 {
                let id = ids[attempt % ids.len()].load(Ordering::Acquire);
                if id != 0 {
                    // SAFETY: the thread lives until SIGNALS_OVER.
                    unsafe { libc::pthread_kill(id, libc::SIGUSR1) };
                }
                attempt += 1;
            }
            read();
            std::thread::sleep(Duration::from_micros(200));
        }
        stop.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
        SIGNALS_OVER.store(true, Ordering::Release);
    });
    counts
}

/// Less than this is no torment.
const FEW: u64 = 100;

/// Events of handlers, lost ones included.
fn handled() -> u64 {
    let all = [&HANDLER_COUNTS.written, &HANDLER_COUNTS.discarded];
    all.iter().map(|c| c.load(Ordering::Relaxed)).sum()
}

static SIGNALS_OVER: AtomicBool = AtomicBool::new(false);

fn move_to(attempt: usize) {
    // SAFETY: a CPU set is plain bits; the call is about this thread. It fails where there is only one CPU.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(attempt % libc::sysconf(libc::_SC_NPROCESSORS_ONLN) as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn install(ring: &'static Ring<'static>) {
    HANDLER_RING.store(std::ptr::from_ref(ring).cast_mut(), Ordering::Release);
    // SAFETY: the handler only writes into a ring and its own thread's cells.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
}

/// No event is torn, and each thread's numbers rise, whichever areas they lie in.
/// Numbers of a thread may be missing only if `gaps`.
fn check(events: &[Event], gaps: bool) {
    let mut of_thread: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for event in events {
        let p = &event.payload;
        let sum = u32::from_le_bytes(p[p.len() - 4..].try_into().unwrap());
        assert_eq!(sum, checksum(&p[..p.len() - 4]), "a torn event: {event:?}");
        let number = u64::from_le_bytes(p[4..12].try_into().unwrap());
        assert_eq!(event.id, if number.is_multiple_of(7) { 300 } else { 1 });
        of_thread.entry(event.tid).or_default().push((event.time, number));
    }
    for (tid, mut events) in of_thread {
        events.sort_unstable();
        for pair in events.windows(2) {
            let (a, b) = (pair[0].1, pair[1].1);
            assert!(if gaps { a < b } else { a + 1 == b }, "thread {tid}: {a} then {b}");
        }
    }
}

/// With `each` less than endless, the ring is large enough for all of it.
fn scenario(mode: Mode, cpus: bool, each: u64) {
    let (ring, file) = make(mode, cpus, if each == ENDLESS { 16 << 10 } else { 4 << 20 });
    install(ring);
    // A child without a life of its own in between: it shares the mapping, as after a bare clone.
    // SAFETY: the child calls nothing but ring writes and _exit.
    let child = unsafe { libc::fork() };
    const FROM_CHILD: u64 = 30_000;
    if child == 0 {
        // Areas without a CPU may all be held by threads that do not run.
        let must = cpus && mode == Mode::Overwrite;
        let written =
            (0..FROM_CHILD).filter(|n| write(ring, 999, *n) == WriteOutcome::Written).count();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit((must && written as u64 != FROM_CHILD).into()) };
    }
    let header = *ring.header();
    let mut next = vec![0; header.areas() as usize];
    let mut events = Vec::new();
    let counts = torment(ring, each, || {
        if mode == Mode::Discard {
            for (area, next) in next.iter_mut().enumerate() {
                drain(&file, &header, area as u32, next, false, length, &mut events);
            }
        }
    });
    let mut status = 0;
    // SAFETY: our own child, and a valid place for its status.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);

    let (mut count, mut discarded, mut overwritten) = (0, 0, 0);
    for (area, next) in next.iter_mut().enumerate() {
        let state = state(&file, &header, area as u32);
        count += state.count;
        discarded += state.discarded;
        if mode == Mode::Overwrite && state.pos != 0 {
            *next = (state.pos / u64::from(header.config().sub_buffer)).saturating_sub(7);
        }
        let contexts = drain(&file, &header, area as u32, next, true, length, &mut events);
        overwritten += contexts.last().map_or(0, |c| c.overwritten);
    }
    let sum = |f: fn(&Counts) -> &AtomicU64| {
        f(&counts).load(Ordering::Relaxed) + f(&HANDLER_COUNTS).load(Ordering::Relaxed)
    };
    let (written, lost) = (sum(|c| &c.written), sum(|c| &c.discarded));
    // written + discarded + overwritten = produced, the child's included.
    assert_eq!(count + discarded, written + lost + FROM_CHILD);
    assert_eq!(events.len() as u64 + overwritten, count);
    assert!(handled() > FEW);
    assert!(each == ENDLESS || lost + overwritten == 0, "the ring was not large enough");
    eprintln!("{} read, {discarded} discarded, {overwritten} overwritten", events.len());
    check(&events, discarded + overwritten > 0);
}

// One test per process, as nextest runs them: signal handlers and counters are global.

#[test]
fn nothing_is_missing_from_a_ring_that_is_large_enough() {
    scenario(Mode::Discard, true, 50_000);
}

#[test]
fn discarding_on_cpus() {
    scenario(Mode::Discard, true, ENDLESS);
}

#[test]
fn overwriting_on_cpus() {
    scenario(Mode::Overwrite, true, ENDLESS);
}

#[test]
fn discarding_without_restartable_sequences() {
    scenario(Mode::Discard, false, ENDLESS);
}

#[test]
fn overwriting_without_restartable_sequences() {
    scenario(Mode::Overwrite, false, ENDLESS);
}

#[test]
fn the_c_library_here_has_registered_sequences() {
    // Not a property of the ring, but if it fails the tests above test only half.
    // SAFETY: no arguments.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    assert!(!HAS_SEQUENCES || Rseq::find().is_some(), "glibc {version:?}");
}

//! Small programs inside this one, for trying recordings: `perf test -w NAME`. Their functions
//! and data have the symbol names that perf's have, so that a script written for those finds them.

use std::ffi::c_int;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A workload by name.
pub struct SampleWorkload {
    /// As it is typed.
    pub name: &'static str,
    /// Symbols in which it spends its time, the innermost first.
    pub symbols: &'static [&'static str],
    run: fn(&WorkloadArgs<'_>) -> io::Result<()>,
}

/// All workloads.
pub const WORKLOADS: &[SampleWorkload] = &[
    SampleWorkload { name: "noploop", symbols: &["noploop"], run: run_noploop },
    SampleWorkload { name: "thloop", symbols: &["test_loop", "thfunc"], run: run_thloop },
    SampleWorkload { name: "leafloop", symbols: &["leaf", "parent"], run: run_leafloop },
    SampleWorkload { name: "sqrtloop", symbols: &["sqrtloop"], run: run_sqrtloop },
    SampleWorkload {
        name: "brstack",
        symbols: &["brstack_bar", "brstack_foo", "brstack_bench"],
        run: run_brstack,
    },
    SampleWorkload {
        name: "datasym",
        symbols: &["datasym", "workload_datasym_buf1"],
        run: run_datasym,
    },
    SampleWorkload { name: "landlock", symbols: &["landlock"], run: run_landlock },
    SampleWorkload { name: "traploop", symbols: &["trap_bench"], run: run_traploop },
    SampleWorkload { name: "inlineloop", symbols: &["inlineloop_parent"], run: run_inlineloop },
    SampleWorkload { name: "code_with_type", symbols: &["test_rs"], run: run_code_with_type },
];

/// Arguments as typed after the name.
pub struct WorkloadArgs<'a>(pub &'a [String]);

/// Threads of `thloop`, at most.
const MAX_THREADS: u32 = 4096;
/// Rounds of workloads that count rounds.
const ROUNDS: u32 = 999_999;
/// `landlock_add_rule`, the same on all architectures.
const LANDLOCK_ADD_RULE: libc::c_long = 445;

impl SampleWorkload {
    /// Runs it to its end.
    pub fn run(&self, args: &[String]) -> io::Result<()> {
        (self.run)(&WorkloadArgs(args))
    }
}

impl WorkloadArgs<'_> {
    fn parse<T: std::str::FromStr>(&self, at: usize, what: &str, default: T) -> io::Result<T> {
        let Some(text) = self.0.get(at) else { return Ok(default) };
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{what}: '{text}'"));
        text.parse().map_err(|_| invalid())
    }

    /// The first argument, in seconds; fractions are allowed.
    fn duration(&self) -> io::Result<Duration> {
        let seconds: f64 = self.parse(0, "invalid number of seconds", 1.0)?;
        match Duration::try_from_secs_f64(seconds) {
            Ok(duration) if !duration.is_zero() => Ok(duration),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("number of seconds must be positive: {seconds}"),
            )),
        }
    }
}

/// Set by the timer, or by an interrupt from the keyboard.
static DONE: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: c_int) {
    DONE.store(true, Ordering::Relaxed);
}

fn is_done() -> bool {
    DONE.load(Ordering::Relaxed)
}

/// Body of a loop. `number` differs from function to function: link-time optimization gives
/// functions with equal instructions one address, and then only one of their names is shown.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the symbols above it are what profiles show")]
fn spin(number: u32) {
    while !is_done() {
        black_box(number);
    }
}

/// Ends the loops after a time.
fn start_timer(duration: Duration) -> io::Result<()> {
    let handler = stop as extern "C" fn(c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGALRM] {
        // SAFETY: the handler stores into an atomic, nothing else.
        if unsafe { libc::signal(signal, handler) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    let time = libc::timeval {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        // A timer of zero never expires.
        tv_usec: i64::from(duration.subsec_micros()).max(i64::from(duration.as_secs() == 0)),
    };
    let timer =
        libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: time };
    // SAFETY: the kernel reads the timer and writes no old one.
    match unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Names the thread; names are cut to 15 bytes by the kernel.
fn set_thread_name(name: &std::ffi::CStr) {
    // SAFETY: the kernel copies the string, which ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

fn run_noploop(args: &WorkloadArgs<'_>) -> io::Result<()> {
    set_thread_name(c"perf-noploop");
    start_timer(args.duration()?)?;
    noploop();
    Ok(())
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn noploop() {
    spin(1);
}

fn run_thloop(args: &WorkloadArgs<'_>) -> io::Result<()> {
    let duration = args.duration()?;
    let threads: u32 = args.parse(1, "invalid number of threads", 2)?;
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("number of threads must be 1 to {MAX_THREADS}: {threads}"),
        ));
    }
    start_timer(duration)?;
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let started = std::thread::Builder::new().spawn_scoped(scope, || thfunc());
            if let Err(error) = started {
                // The others end.
                DONE.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        test_loop();
        Ok(())
    })
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn thfunc() {
    test_loop();
    // Without it the call would be a jump, and this function no caller.
    black_box(2);
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn test_loop() {
    spin(3);
}

fn run_leafloop(args: &WorkloadArgs<'_>) -> io::Result<()> {
    start_timer(args.duration()?)?;
    parent();
    Ok(())
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn parent() {
    leaf();
    black_box(4);
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn leaf() {
    spin(5);
}

fn run_sqrtloop(args: &WorkloadArgs<'_>) -> io::Result<()> {
    let duration = args.duration()?;
    // SAFETY: this process has one thread here, so the child may do what it likes.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = i32::from(start_timer(duration).map(|()| sqrtloop()).is_err());
            // SAFETY: ends the child without what its parent registered for its own end.
            unsafe { libc::_exit(status) }
        }
        child => {
            // SAFETY: waits for the child above; no status is written.
            match unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    }
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn sqrtloop() {
    let mut number = 1.0_f64;
    while !is_done() {
        number = black_box(number + 1.0);
        black_box(number.sqrt());
    }
}

/// Counted by the branches of `brstack`.
static BRANCHES: AtomicU32 = AtomicU32::new(0);

fn run_brstack(args: &WorkloadArgs<'_>) -> io::Result<()> {
    let rounds = args.parse(0, "invalid number of rounds", ROUNDS)?;
    while BRANCHES.fetch_add(1, Ordering::Relaxed) <= rounds {
        brstack_bench();
    }
    Ok(())
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn brstack_bench() {
    let indirect: extern "C" fn() = black_box(brstack_foo);
    if !BRANCHES.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
        brstack_foo();
    }
    brstack_bar();
    indirect();
    black_box(());
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn brstack_foo() {
    brstack_bar();
    black_box(());
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn brstack_bar() {
    black_box(());
}

/// Two members at the ends of a line of the cache.
#[repr(C, align(64))]
struct CacheLine {
    first: AtomicU64,
    between: [u8; 48],
    last: AtomicU64,
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(export_name = "workload_datasym_buf1")]
static CACHE_LINE: CacheLine = CacheLine {
    first: AtomicU64::new(0),
    // Not all zero, so that it is data and no space to be cleared.
    between: [1; 48],
    last: AtomicU64::new(0),
};

fn run_datasym(args: &WorkloadArgs<'_>) -> io::Result<()> {
    start_timer(args.duration()?)?;
    datasym();
    Ok(())
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn datasym() {
    let line = black_box(&CACHE_LINE);
    black_box(line.between);
    while !is_done() {
        let count = line.first.load(Ordering::Relaxed).wrapping_add(1);
        line.first.store(count, Ordering::Relaxed);
        line.last.store(line.last.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }
}

fn run_landlock(_: &WorkloadArgs<'_>) -> io::Result<()> {
    landlock();
    Ok(())
}

/// Two calls of `landlock_add_rule` that fail: their arguments are what matters.
// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn landlock() {
    #[repr(C, packed)]
    struct PathBeneath {
        allowed_access: u64,
        parent_fd: i32,
    }
    #[repr(C)]
    struct NetPort {
        allowed_access: u64,
        port: u64,
    }
    let path = PathBeneath { allowed_access: 1 << 2, parent_fd: 14 };
    let port = NetPort { allowed_access: 1 << 1, port: 19 };
    let (ruleset, flags) = (11, 45);
    // SAFETY: the kernel reads the attributes, if at all; flags it does not know make it fail.
    unsafe {
        libc::syscall(LANDLOCK_ADD_RULE, ruleset, 1, &raw const path, flags);
        libc::syscall(LANDLOCK_ADD_RULE, ruleset, 2, &raw const port, flags);
    }
}

fn run_traploop(args: &WorkloadArgs<'_>) -> io::Result<()> {
    for _ in 0..args.parse(0, "invalid number of rounds", ROUNDS)? {
        trap_bench();
    }
    Ok(())
}

/// Reads an identification register, which the kernel emulates, where there are such.
// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn trap_bench() {
    #[cfg(target_arch = "aarch64")]
    {
        let value: u64;
        // SAFETY: the kernel emulates the read for programs; only the output register changes.
        unsafe { std::arch::asm!("mrs {}, ID_AA64ISAR0_EL1", out(reg) value) };
        black_box(value);
    }
    black_box(());
}

/// Added up by the loop of `inlineloop`.
static SUM: AtomicU32 = AtomicU32::new(0);

fn run_inlineloop(args: &WorkloadArgs<'_>) -> io::Result<()> {
    set_thread_name(c"perf-inlineloop");
    start_timer(args.duration()?)?;
    inlineloop_parent(black_box(1));
    Ok(())
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn inlineloop_parent(step: u32) {
    inlined_middle(step);
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "an inlined function is what the workload is for")]
fn inlined_middle(step: u32) {
    inlined_leaf(step);
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "an inlined function is what the workload is for")]
fn inlined_leaf(step: u32) {
    while !is_done() {
        SUM.fetch_add(step, Ordering::Relaxed);
    }
}

/// A structure that is looked for by its type.
struct Buf {
    data1: u64,
    data2: String,
    data3: u64,
}

fn run_code_with_type(args: &WorkloadArgs<'_>) -> io::Result<()> {
    set_thread_name(c"perf-code-with-type");
    let rounds = args.parse(1, "invalid number of rounds", 100)?;
    start_timer(args.duration()?)?;
    while !is_done() {
        test_rs(rounds);
    }
    Ok(())
}

// SAFETY: no other symbol of the program has this name, as the linker checks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn test_rs(count: u32) {
    let mut buf = Buf { data1: 0, data2: String::from("data"), data3: 0 };
    for _ in 1..count {
        let buf = black_box(&mut buf);
        buf.data1 += 1;
        buf.data3 += buf.data1;
    }
    black_box((buf.data2.len(), buf.data3));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_positive_and_may_have_fractions() {
        let duration = |text: &str| WorkloadArgs(&[text.to_owned()]).duration();
        assert_eq!(WorkloadArgs(&[]).duration().unwrap(), Duration::from_secs(1));
        assert_eq!(duration("0.25").unwrap(), Duration::from_millis(250));
        for wrong in ["0", "-1", "nan", "1e300", "x", ""] {
            assert_eq!(duration(wrong).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{wrong}");
        }
    }

    #[test]
    fn names_and_symbols_are_unique() {
        let mut names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WORKLOADS.len());
    }

    /// Names of equal functions become names of one function at link time.
    #[test]
    fn each_function_has_an_address_of_its_own() {
        let functions: [extern "C" fn(); 8] =
            [noploop, test_loop, thfunc, leaf, parent, sqrtloop, brstack_foo, datasym];
        let mut addresses = functions.map(|function| black_box(function) as usize);
        addresses.sort_unstable();
        assert!(addresses.windows(2).all(|w| w[0] != w[1]), "{addresses:x?}");
    }
}

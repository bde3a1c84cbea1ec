//! A signal whose handler hits the tracepoint at every instruction of hitting it: the program is
//! stepped through one event, then stopped by the processor's breakpoint at each address in turn,
//! restartable sequences included, and gets the signal there. Nothing is lost, torn or out of order.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Shared, config, is_role};
use kymo_testkit::{Need, require};
use kymo_tracepoint::{emit, tracepoint};

tracepoint! {
    windows: hit(writer: u64, number: u64, text: &str) {
        fields { writer: u64 = writer, number: u64 = number, text: str = text, sum: u64 = number ^ 77 }
        print "{writer} {number}"
    }
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_: i32) {
    emit!(hit(1, HANDLED.fetch_add(1, Ordering::Relaxed), "in the handler"));
}

/// Stops before each event; what the one who steps it does with it is not seen here.
fn program(rounds: u64) {
    // SAFETY: the handler does what signal handlers may do, and hits a tracepoint; the parent traces.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t);
        libc::ptrace(libc::PTRACE_TRACEME);
    }
    // The ring is made before it gets interesting, which takes long in steps.
    emit!(hit(2, 0, "first"));
    for number in 0..rounds {
        // SAFETY: the tracer continues after it.
        unsafe { std::arch::asm!("int3") };
        emit!(hit(0, number, "outside"));
        // So that no step reaches the next stop.
        (0..2000).for_each(|i| {
            std::hint::black_box(i);
        });
    }
}

/// The test harness runs the program in a thread, which is the one that is traced.
fn wait(thread: i32) -> (i32, ExitStatus) {
    let mut status = 0;
    // SAFETY: a child of this test or its thread, and a valid place for its status.
    let who = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    assert!(who > 0, "{}", std::io::Error::last_os_error());
    (who, ExitStatus::from_raw(status))
}

fn go_on(pid: i32, how: libc::c_uint, signal: i32) -> ExitStatus {
    // SAFETY: a traced child that is stopped; the data is a signal.
    let done = unsafe { libc::ptrace(how, pid, 0, i64::from(signal)) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    wait(pid).1
}

/// Places in `struct user` of the debug registers.
const DEBUG_REGISTERS: usize = std::mem::offset_of!(libc::user, u_debugreg);

fn set_register(pid: i32, number: usize, value: u64) {
    // SAFETY: a traced child that is stopped; one word of its registers.
    let done =
        unsafe { libc::ptrace(libc::PTRACE_POKEUSER, pid, DEBUG_REGISTERS + 8 * number, value) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// The address of the next instruction.
fn instruction(pid: i32) -> u64 {
    // SAFETY: the registers are plain numbers, and the child is traced and stopped.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let done = libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers);
        assert_eq!(done, 0);
        registers.rip
    }
}

/// Steps through one event; the addresses of its instructions, and those close behind them,
/// where steps may not come since each ends a restartable sequence.
fn addresses(pid: i32) -> BTreeSet<u64> {
    let mut addresses = BTreeSet::new();
    for _ in 0..900 {
        let status = go_on(pid, libc::PTRACE_SINGLESTEP, 0);
        assert_eq!(status.stopped_signal(), Some(libc::SIGTRAP), "{status:?}");
        let at = instruction(pid);
        addresses.extend(at..at + 9);
    }
    addresses
}

/// Some ten thousand times each of the two waits for the other: neither waits for anybody else.
fn hurry() {
    // SAFETY: a CPU set is plain bits, and the calls are about this thread; children inherit it. That it fails
    // costs time.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().try_into().unwrap(), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        let priority = libc::sched_param { sched_priority: 1 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority);
    }
}

fn stop_everywhere(role: &str, tunables: &str, least: usize) {
    /// More than there are addresses.
    const ROUNDS: u64 = 3500;
    if is_role() {
        return program(ROUNDS);
    }
    if !require(&[Need::Root, Need::Babeltrace]) {
        return;
    }
    hurry();
    let shared = Shared::new();
    shared.want("s", &config("windows:*", "sum != 1000000"));
    let mut command = shared.program(role);
    command.env("GLIBC_TUNABLES", tunables).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let (pid, mut status) = wait(-1);
    let at_int3 = |status: ExitStatus| status.stopped_signal() == Some(libc::SIGTRAP);
    assert!(at_int3(status), "{status:?}");
    let places = addresses(pid);
    status = go_on(pid, libc::PTRACE_CONT, 0);
    let mut hit = BTreeSet::new();
    let mut rounds = 1;
    for place in places {
        assert!(at_int3(status), "{status:?}");
        // A breakpoint of the processor at an instruction: the code stays as it is.
        set_register(pid, 0, place);
        set_register(pid, 7, 1);
        rounds += 1;
        let outside = instruction(pid);
        status = go_on(pid, libc::PTRACE_CONT, 0);
        set_register(pid, 7, 0);
        if at_int3(status) && instruction(pid) != outside {
            hit.insert(place);
            status = go_on(pid, libc::PTRACE_CONT, libc::SIGUSR1);
        }
        if rounds + 1 == ROUNDS {
            break;
        }
    }
    while at_int3(status) {
        status = go_on(pid, libc::PTRACE_CONT, 0);
    }
    assert!(status.success() && child.wait().unwrap().success(), "{status:?}");
    assert!(hit.len() >= least, "interrupted at {} instructions", hit.len());
    check(&shared, ROUNDS, hit.len() as u64);
}

fn check(shared: &Shared, rounds: u64, signals: u64) {
    let programs = shared.programs();
    let lines = programs[0].babeltrace(0, 1);
    let mut next = [0; 3];
    for line in &lines {
        let value = |name: &str| -> u64 {
            let rest = line.split_once(&format!(" {name} = ")).expect(line).1;
            rest.split([',', ' ']).next().unwrap().parse().unwrap()
        };
        let (writer, number) = (value("writer") as usize, value("number"));
        assert_eq!(number, next[writer], "{line}");
        next[writer] += 1;
        assert_eq!(value("sum"), number ^ 77, "{line}");
        assert!(
            line.contains(["\"outside\"", "\"in the handler\"", "\"first\""][writer]),
            "{line}"
        );
    }
    assert_eq!(next, [rounds, signals, 1]);
    assert_eq!(programs[0].ring(0, 1).counts(), (rounds + signals + 1, 0));
}

#[test]
fn a_signal_at_every_instruction() {
    stop_everywhere("a_signal_at_every_instruction", "", 200);
}

/// In areas without a CPU all of writing can be stepped through.
#[test]
fn a_signal_at_every_instruction_without_restartable_sequences() {
    stop_everywhere(
        "a_signal_at_every_instruction_without_restartable_sequences",
        "glibc.pthread.rseq=0",
        200,
    );
}

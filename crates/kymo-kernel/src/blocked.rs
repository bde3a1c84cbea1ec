//! Threads that are blocked when a trace starts: the system call that each is in, since events
//! report calls and waits only when they start or end.

use std::fs;
use std::sync::{Arc, OnceLock};

use crate::system_root::system_path;
use crate::target;

/// A system call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallInProgress {
    /// Its number in the task's ABI.
    pub number: i64,
    /// Its arguments.
    pub args: [u64; 6],
}

impl CallInProgress {
    /// Address and operation of a call of futex(2).
    pub fn futex(&self) -> Option<(u64, i64)> {
        let [address, op, ..] = self.args;
        (self.number == libc::SYS_futex).then_some((address, op as i64))
    }
}

/// A thread that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedThread {
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub pid: Option<u32>,
    /// Its name.
    pub comm: Vec<u8>,
    /// Its state, as the letter of /proc/PID/status.
    pub state: u8,
    /// CPU that it ran on last.
    pub cpu: Option<u32>,
    /// Functions of the kernel that it is in, innermost first, where they may be read.
    pub stack: Vec<String>,
    /// The function of the kernel that it is blocked in, where that may be read.
    pub function: Option<String>,
    /// The call that it is in, if it is in one.
    pub call: Option<CallInProgress>,
    /// Number of context switches.
    switches: u64,
}

/// Threads that were blocked at a moment, and have not run since.
#[derive(Clone, Debug, Default)]
pub struct BlockedThreads {
    threads: Vec<BlockedThread>,
}

impl BlockedThreads {
    /// Those of these threads that are blocked now.
    pub fn of(tids: &[u32]) -> BlockedThreads {
        BlockedThreads { threads: tids.iter().filter_map(|&tid| blocked(tid)).collect() }
    }

    /// Leaves out those that have run or ended since.
    pub fn retain_unmoved(&mut self) {
        self.threads.retain(|thread| switches_of_blocked(thread.tid) == Some(thread.switches));
    }

    /// The threads.
    pub fn threads(&self) -> &[BlockedThread] {
        &self.threads
    }
}

/// Selected threads, and those of them that are blocked when the events of a capture are enabled:
/// the recorder reads them then. Copies share the result.
#[derive(Clone, Debug, Default)]
pub struct BlockedAtStart {
    tids: Vec<u32>,
    found: Arc<OnceLock<(u64, BlockedThreads)>>,
}

impl BlockedAtStart {
    /// Selects threads, which are read later.
    pub fn of(tids: Vec<u32>) -> BlockedAtStart {
        BlockedAtStart { tids, ..BlockedAtStart::default() }
    }

    /// Reads the threads. `time`: the start of the events, by their clock.
    pub fn read(&self, time: u64) {
        if !self.tids.is_empty() {
            self.found.get_or_init(|| (time, BlockedThreads::of(&self.tids)));
        }
    }

    /// Start of the events, and the threads that were blocked then; none before they were read.
    pub fn found(&self) -> Option<(u64, &[BlockedThread])> {
        self.found.get().map(|(time, threads)| (*time, threads.threads()))
    }
}

fn blocked(tid: u32) -> Option<BlockedThread> {
    let read = |name: &str| fs::read_to_string(system_path(format!("/proc/{tid}/{name}"))).ok();
    let status = status(tid)?;
    let switches = switches_in(&status)?;
    let pid = value_in(&status, "Tgid:").and_then(|pid| pid.parse().ok());
    let state = value_in(&status, "State:")?.bytes().next()?;
    let mut comm = fs::read(system_path(format!("/proc/{tid}/comm"))).unwrap_or_default();
    if comm.last() == Some(&b'\n') {
        comm.pop();
    }
    let stat = fs::read(system_path(format!("/proc/{tid}/stat"))).unwrap_or_default();
    let cpu = cpu_in(&String::from_utf8_lossy(&stat));
    let stack = target::kernel_stack(tid).map(|(_, functions)| functions).unwrap_or_default();
    let call = read("syscall").and_then(|text| parse_call(&text));
    let function = read("wchan").filter(|name| !name.is_empty() && name != "0");
    // What was read is of one wait.
    (switches_of_blocked(tid) == Some(switches)).then_some(BlockedThread {
        tid,
        pid,
        comm,
        state,
        cpu,
        stack,
        function,
        call,
        switches,
    })
}

/// Number of context switches of a thread, if it does not run: it runs only to switch again.
fn switches_of_blocked(tid: u32) -> Option<u64> {
    switches_in(&status(tid)?)
}

fn status(tid: u32) -> Option<String> {
    let status = fs::read(system_path(format!("/proc/{tid}/status"))).ok()?;
    Some(String::from_utf8_lossy(&status).into_owned())
}

/// Value of a line of /proc/PID/status.
fn value_in<'t>(status: &'t str, name: &str) -> Option<&'t str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// CPU in a /proc/PID/stat: its field 39, of which the name, the second one, may contain anything.
fn cpu_in(stat: &str) -> Option<u32> {
    let behind = stat.get(stat.rfind(')')? + 1..)?;
    behind.split_ascii_whitespace().nth(36)?.parse().ok()
}

fn switches_in(status: &str) -> Option<u64> {
    let value = |name: &str| value_in(status, name);
    if !value("State:")?.starts_with(['S', 'D', 'T', 't', 'I']) {
        return None;
    }
    let number = |name: &str| value(name)?.parse::<u64>().ok();
    number("voluntary_ctxt_switches:")?.checked_add(number("nonvoluntary_ctxt_switches:")?)
}

/// `NUMBER ARGUMENT… SP PC`, the arguments as hexadecimal numbers; `-1 SP PC` or `running` of a
/// thread that is in no call.
fn parse_call(text: &str) -> Option<CallInProgress> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse::<i64>().ok().filter(|number| *number >= 0)?;
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(CallInProgress { number, args })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_call_is_read_as_the_kernel_writes_it() {
        let text = "7 0x7ffc 0x1 0xffffffffffffffff 0x0 0x0 0x0 0x7ffc12 0x7f01\n";
        let call = CallInProgress { number: 7, args: [0x7ffc, 1, u64::MAX, 0, 0, 0] };
        assert_eq!(parse_call(text), Some(call));
        for none in ["running\n", "-1 0x7ffc 0x7f01\n", "", "7 0x1\n", "x\n"] {
            assert_eq!(parse_call(none), None, "{none}");
        }
        let status = "Name:\tx y\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t3\n\
                      nonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(switches_in(status), Some(7));
        assert_eq!(switches_in(&status.replace("S (sleeping)", "R (running)")), None);
        // Field 39 of proc_pid_stat(5).
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        assert_eq!(cpu_in(&format!("7 (a) b) S {}", fields.join(" "))), Some(39));
        let futex = CallInProgress { number: libc::SYS_futex, args: [0x7f00, 128, 2, 0, 0, 0] };
        assert_eq!((futex.futex(), call.futex()), (Some((0x7f00, 128)), None));
    }

    #[test]
    fn threads_at_the_start_are_read_once() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let begin = Instant::now();
        while BlockedThreads::of(&[pid]).threads().first().is_none_or(|t| t.call.is_none()) {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        let start = BlockedAtStart::of(vec![pid]);
        assert_eq!(start.found(), None);
        start.clone().read(7);
        start.read(8);
        let (time, threads) = start.found().unwrap();
        assert_eq!((time, threads.len()), (7, 1));
        assert_eq!((threads[0].tid, threads[0].pid), (pid, Some(pid)));
        assert_eq!((&threads[0].comm[..], threads[0].state), (&b"cat"[..], b'S'));
        drop(child.stdin.take());
        child.wait().unwrap();
        let none = BlockedAtStart::default();
        none.read(7);
        assert_eq!(none.found(), None);
    }

    #[test]
    fn a_reader_is_blocked_until_it_has_run() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let begin = Instant::now();
        // SYS_read of the descriptor 0.
        let reads = |thread: &BlockedThread| {
            thread.call.is_some_and(|call| call.number == libc::SYS_read && call.args[0] == 0)
        };
        let mut blocked = loop {
            let blocked = BlockedThreads::of(&[child.id()]);
            if blocked.threads().first().is_some_and(reads) {
                break blocked;
            }
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        };
        blocked.retain_unmoved();
        assert_eq!(blocked.threads().len(), 1);
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"x").unwrap();
        while !blocked.threads().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60));
            blocked.retain_unmoved();
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(BlockedThreads::of(&[child.id()]).threads().is_empty());
    }
}

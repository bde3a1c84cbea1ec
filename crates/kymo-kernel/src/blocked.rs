//! Threads that are blocked when a trace starts: the system call that each is in, since events
//! report calls and waits only when they start or end.

use std::fs;

use crate::system_root::system_path;

/// A system call that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallInProgress {
    /// Its number in the task's ABI.
    pub number: i64,
    /// Its arguments.
    pub args: [u64; 6],
}

/// A thread that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedThread {
    /// Its number.
    pub tid: u32,
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

fn blocked(tid: u32) -> Option<BlockedThread> {
    let read = |name: &str| fs::read_to_string(system_path(format!("/proc/{tid}/{name}"))).ok();
    let switches = switches_of_blocked(tid)?;
    let call = read("syscall").and_then(|text| parse_call(&text));
    let function = read("wchan").filter(|name| !name.is_empty() && name != "0");
    // What was read is of one wait.
    (switches_of_blocked(tid) == Some(switches)).then_some(BlockedThread {
        tid,
        function,
        call,
        switches,
    })
}

/// Number of context switches of a thread, if it does not run: it runs only to switch again.
fn switches_of_blocked(tid: u32) -> Option<u64> {
    let status = fs::read(system_path(format!("/proc/{tid}/status"))).ok()?;
    switches_in(&String::from_utf8_lossy(&status))
}

fn switches_in(status: &str) -> Option<u64> {
    let value = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)).map(str::trim)
    };
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

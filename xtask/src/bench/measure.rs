//! One run of one command: how long, how much memory, what it printed.

#![allow(unsafe_code, reason = "the standard library does not hand out a child's rusage")]

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// Cost of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) time: Duration,
    /// The largest resident set, in bytes.
    pub(crate) peak: u64,
}

/// Runs a command with its output thrown away.
pub(crate) fn cost(mut command: Command) -> anyhow::Result<Cost> {
    let text = format!("{command:?}").replace('"', "");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A child starts with the largest resident set of its parent's life as its own: what
    // this process needed before is not the command's. Where that cannot be reset, the
    // figure is too large, never too small.
    // SAFETY: it takes no pointers; what is in use stays.
    unsafe { libc::malloc_trim(0) };
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot run `{text}`"))?;
    let (status, peak) = wait4(child.id()).with_context(|| format!("waiting for `{text}`"))?;
    let time = start.elapsed();
    if status != 0 {
        bail!("`{text}` failed: wait status {status:#x}");
    }
    Ok(Cost { time, peak })
}

/// [`cost`] of a command that may take forever: `None` when it was stopped after `seconds`.
pub(crate) fn cost_within(seconds: u32, command: &Command) -> anyhow::Result<Option<Cost>> {
    let mut limited = Command::new("timeout");
    limited.arg(seconds.to_string()).arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        limited.current_dir(dir);
    }
    const STOPPED: &str = "wait status 0x7c00";
    match cost(limited) {
        Err(e) if e.to_string().ends_with(STOPPED) => Ok(None),
        cost => cost.map(Some),
    }
}

/// Has the kernel drop what it holds of files in memory, so that the next who reads
/// them waits for the disk.
pub(crate) fn drop_pages(files: &[&Path]) -> anyhow::Result<()> {
    for path in files {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        // What is not on the disk yet cannot be dropped.
        file.sync_all().with_context(|| path.display().to_string())?;
        // SAFETY: the descriptor is open during the call, which takes no pointers.
        let refused =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if refused != 0 {
            let error = std::io::Error::from_raw_os_error(refused);
            return Err(error).with_context(|| path.display().to_string());
        }
    }
    Ok(())
}

/// The median of rounds each of which begins with these files on the disk only.
pub(crate) fn cold(
    rounds: usize,
    files: &[&Path],
    commands: &[&dyn Fn() -> Command],
) -> anyhow::Result<Vec<Cost>> {
    let fresh = |command: &dyn Fn() -> Command| {
        drop_pages(files)?;
        cost(command())
    };
    medians(rounds, commands, &fresh)
}

/// Output and cost of a child.
pub(crate) struct Ended {
    /// On stderr.
    pub(crate) said: String,
    /// CPU time, user and system.
    pub(crate) cpu: Duration,
}

/// Waits for a child that writes to a pipe on stderr.
pub(crate) fn ended(mut child: std::process::Child) -> anyhow::Result<Ended> {
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        std::io::Read::read_to_string(&mut stderr, &mut said).context("what a child says")?;
    }
    let (status, usage) = usage(child.id()).context("waiting for a child")?;
    if status != 0 {
        bail!("wait status {status:#x}: {}", said.trim());
    }
    let time = |t: libc::timeval| {
        Duration::new(t.tv_sec.unsigned_abs(), t.tv_usec.unsigned_abs() as u32 * 1000)
    };
    Ok(Ended { said, cpu: time(usage.ru_utime) + time(usage.ru_stime) })
}

/// Waits for a child and gives its wait status and largest resident set.
fn wait4(pid: u32) -> std::io::Result<(i32, u64)> {
    let (status, usage) = usage(pid)?;
    Ok((status, u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024))
}

fn usage(pid: u32) -> std::io::Result<(i32, libc::rusage)> {
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to locals that outlive the call, and the pid is that of a child
        // of ours which no other code waits for.
        let got = unsafe { libc::wait4(pid.cast_signed(), &raw mut status, 0, &raw mut usage) };
        if got > 0 {
            return Ok((status, usage));
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// An installed program by its path, as a load: perf 7.2 starts programs that lie beside it, which
/// need the libraries that it has, and for bpftrace 0.27 a name that two directories have is none.
pub(crate) fn installed(name: &str) -> anyhow::Result<String> {
    let path = std::env::var_os("PATH").context("no PATH")?;
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file());
    Ok(found.with_context(|| format!("no {name}"))?.display().to_string())
}

/// The program and the option that keep a load on one CPU, with a blank behind.
pub(crate) fn on_one_cpu() -> anyhow::Result<String> {
    Ok(format!("{} -c 0 ", installed("taskset")?))
}

/// Runs a command and gives what it printed.
pub(crate) fn output(mut command: Command) -> anyhow::Result<String> {
    let text = format!("{command:?}").replace('"', "");
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{text}`"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("`{text}` failed: {}: {}", output.status, why.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The middle of the values; of an even number the upper middle.
pub(crate) fn median<T: Copy + PartialOrd>(values: &[T]) -> Option<T> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    sorted.get(sorted.len() / 2).copied()
}

/// Runs each command once per round, so that a slow minute of the machine hits all
/// of them, and gives each one's median time and median peak.
pub(crate) fn interleaved(
    rounds: usize,
    commands: &[&dyn Fn() -> Command],
) -> anyhow::Result<Vec<Cost>> {
    medians(rounds, commands, &|command| cost(command()))
}

fn medians(
    rounds: usize,
    commands: &[&dyn Fn() -> Command],
    run: &dyn Fn(&dyn Fn() -> Command) -> anyhow::Result<Cost>,
) -> anyhow::Result<Vec<Cost>> {
    let mut costs = vec![Vec::new(); commands.len()];
    for _ in 0..rounds {
        for (command, costs) in commands.iter().zip(&mut costs) {
            costs.push(run(command)?);
        }
    }
    costs
        .iter()
        .map(|costs| {
            let times: Vec<_> = costs.iter().map(|c| c.time).collect();
            let peaks: Vec<_> = costs.iter().map(|c| c.peak).collect();
            let (time, peak) = median(&times).zip(median(&peaks)).context("no rounds")?;
            Ok(Cost { time, peak })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_its_time_and_peak() {
        let mut sleep = Command::new("sh");
        sleep.args(["-c", "sleep 0.05"]);
        let cost = cost(sleep).unwrap();
        assert!(cost.time >= Duration::from_millis(50), "{cost:?}");
        assert!((100_000..100_000_000).contains(&cost.peak), "{cost:?}");
    }

    #[test]
    fn memory_of_this_process_is_not_the_commands() {
        const LARGE: u64 = 400 << 20;
        drop(std::hint::black_box(vec![1u8; LARGE as usize]));
        let cost = cost(Command::new("true")).unwrap();
        assert!(cost.peak < LARGE / 2, "{cost:?}");
    }

    #[test]
    fn a_failure_is_named() {
        let mut fails = Command::new("sh");
        fails.args(["-c", "exit 3"]);
        let error = cost(fails).unwrap_err().to_string();
        assert_eq!(error, "`sh -c exit 3` failed: wait status 0x300");
    }

    #[test]
    fn what_takes_too_long_is_stopped() {
        let mut sleep = Command::new("sleep");
        assert!(cost_within(1, sleep.arg("30")).unwrap().is_none());
        assert!(cost_within(30, &Command::new("true")).unwrap().is_some());
        assert!(cost_within(30, &Command::new("false")).is_err());
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median::<u32>(&[]), None);
    }
}

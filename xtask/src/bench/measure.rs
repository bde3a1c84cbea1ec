//! One run of one command: how long, how much memory, what it printed.

#![allow(unsafe_code, reason = "the standard library does not hand out a child's rusage")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// What one run cost.
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
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot run `{text}`"))?;
    let (status, peak) = wait4(child.id()).with_context(|| format!("waiting for `{text}`"))?;
    let time = start.elapsed();
    if status != 0 {
        bail!("`{text}` failed: wait status {status:#x}");
    }
    Ok(Cost { time, peak })
}

/// Waits for a child and gives its wait status and largest resident set.
fn wait4(pid: u32) -> std::io::Result<(i32, u64)> {
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to locals that outlive the call, and the pid is
        // that of a child of ours which nobody else waits for.
        let got = unsafe { libc::wait4(pid.cast_signed(), &raw mut status, 0, &raw mut usage) };
        if got > 0 {
            return Ok((status, u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024));
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
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
    let mut costs = vec![Vec::new(); commands.len()];
    for _ in 0..rounds {
        for (command, costs) in commands.iter().zip(&mut costs) {
            costs.push(cost(command())?);
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
    fn a_failure_is_named() {
        let mut fails = Command::new("sh");
        fails.args(["-c", "exit 3"]);
        let error = cost(fails).unwrap_err().to_string();
        assert_eq!(error, "`sh -c exit 3` failed: wait status 0x300");
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median::<u32>(&[]), None);
    }
}

//! A run of a program in the kernel until its target, the user or itself ends it: what `kymo run`
//! and `kymo count` share; `ring_run` is the same in user space.

pub(crate) mod ring_run;

use std::ffi::OsString;
use std::time::Duration;

use kymo_kernel::descriptors::{self, readable};
use kymo_kernel::process::{GatedChild, Signal, Signals};
use kymo_kernel::target::{TargetError, check_thread};
use kymo_kernel::task_ends::TaskEnds;
use kymo_programs::{ProbeCost, ProgramSinks, RunState, RunningProgram};

/// Process of `-p`, command of `-c`.
pub(crate) struct RunTarget {
    pid: Option<u32>,
    child: Option<GatedChild>,
    ends: TaskEnds,
    /// The keys that ended the run have reached the command, too.
    has_keys: bool,
}

const SIGTERM: i32 = 15;

impl RunTarget {
    /// Checks that the process is there; forks the command, which waits.
    pub(crate) fn new(pid: Option<u32>, command: Option<&str>) -> anyhow::Result<RunTarget> {
        let words = command.map(split_words).unwrap_or_default();
        if command.is_some() && words.is_empty() {
            anyhow::bail!("the command is empty");
        }
        RunTarget::of_words(pid, &words)
    }

    /// Creates the target from a command that is split into words; none is no command.
    pub(crate) fn of_words(pid: Option<u32>, command: &[OsString]) -> anyhow::Result<RunTarget> {
        if let Some(pid) = pid {
            check_thread(pid).map_err(|e| match e {
                TargetError::NoThread(pid) => TargetError::NoProcess(pid),
                e => e,
            })?;
        }
        let child = match command {
            [] => None,
            words => Some(GatedChild::spawn(words)?),
        };
        let ends = TaskEnds::of_processes(pid.as_slice());
        Ok(RunTarget { pid, child, ends, has_keys: false })
    }

    /// Process of the command.
    pub(crate) fn child_pid(&self) -> Option<u32> {
        self.child.as_ref().map(GatedChild::pid)
    }

    /// Either process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid.or(self.child_pid())
    }

    /// Lets the command run.
    pub(crate) fn release(&mut self) -> anyhow::Result<()> {
        if let Some(child) = &mut self.child {
            child.release()?;
        }
        Ok(())
    }

    /// Whether the process or the command has ended.
    pub(crate) fn has_ended(&mut self) -> anyhow::Result<bool> {
        if let Some(child) = &mut self.child {
            return Ok(child.try_wait()?.is_some());
        }
        Ok(self.ends.all_ended()?)
    }

    /// The run ended by a signal; `has_reached` knows whether a command has it, too.
    pub(crate) fn interrupted(&mut self, has_reached: impl Fn(&GatedChild) -> bool) {
        self.has_keys = self.child.as_ref().is_some_and(has_reached);
    }

    /// Ends the command if it still runs; gives its status if it ended by itself.
    pub(crate) fn end(mut self) -> Option<u8> {
        let child = self.child.as_mut()?;
        match child.try_wait() {
            Ok(Some(exit)) => return Some(exit.code()),
            Ok(None) if self.has_keys => _ = child.wait(),
            Ok(None) if child.kill(SIGTERM).is_ok() => _ = child.wait(),
            _ => {}
        }
        None
    }
}

/// Waits between looks at the ring: as long as records come, and at most.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

/// Handles records until the program, its target or the user ends it.
pub(crate) fn follow_program(
    mut running: RunningProgram,
    target: &mut RunTarget,
    signals: &Signals,
    sinks: &mut ProgramSinks<'_>,
) -> anyhow::Result<RunningProgram> {
    target.release()?;
    let mut wait = SHORTEST;
    let mut ticks = 0u32;
    loop {
        let state = running.poll(sinks)?;
        if state == RunState::Ended {
            return Ok(running);
        }
        match signals.next()? {
            Some(Signal::Usr1) => running.handle_signal(sinks)?,
            Some(signal) if signal.is_end() => {
                running.interrupt();
                target.interrupted(|command| signals.has_reached(command));
                return Ok(running);
            }
            _ => {}
        }
        // A command continues without its probes.
        let is_over = running.is_detached && state == RunState::Idle && target.pid().is_none()
            || !running.awaits_events && state == RunState::Idle && target.child.is_none();
        if is_over || target.has_ended()? {
            return Ok(running);
        }
        // Libraries come one by one in the first milliseconds.
        if let (Some(pid), true) = (target.pid(), ticks < 8 || ticks.is_multiple_of(4)) {
            running.remember_process(pid);
        }
        ticks = ticks.wrapping_add(1);
        wait = if state == RunState::Busy { SHORTEST } else { (wait * 2).min(LONGEST) };
        descriptors::wait(&mut [readable(signals)], wait)?;
    }
}

/// A share of a CPU.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let percent =
        text.trim_end_matches('%').parse::<f64>().ok().filter(|p| p.is_finite() && *p > 0.0);
    percent.ok_or_else(|| "a share is a number above 0, like 5 or 0.5".to_owned())
}

/// Prints the costs of probes.
pub(crate) fn say_costs(costs: &[ProbeCost], budget: Option<f64>) {
    sayln!("{:>12} {:>8} {:>9}  PROBE", "HITS/S", "NS/HIT", "% OF CPU");
    for cost in costs {
        let more =
            if cost.points > 1 { format!(" and {} more", cost.points - 1) } else { String::new() };
        let (hits, ns, percent) = (cost.hits, cost.hit_ns, cost.percent());
        sayln!("{hits:>12.0} {ns:>8} {percent:>9.3}  {}{more}", cost.point);
    }
    let total: f64 = costs.iter().map(ProbeCost::percent).sum();
    let over = budget.is_some_and(|budget| total > budget);
    let over = if over { ", more than the budget" } else { "" };
    sayln!("about {total:.3} % of a CPU{over}: hits counted for a second, nanoseconds estimated");
}

/// Program that a command names.
pub(crate) fn program_of(command: &str) -> Option<String> {
    split_words(command).into_iter().next()?.into_string().ok()
}

/// Words of a command: blanks part them, quotes and backslashes keep them together.
fn split_words(command: &str) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take().map(OsString::from)),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.map(OsString::from));
    words
}

#[cfg(test)]
mod tests {
    use super::split_words;

    #[test]
    fn commands_are_split_as_a_shell_does() {
        let check = |command: &str, words: &[&str]| assert_eq!(split_words(command), words);
        check("ls -l  /tmp", &["ls", "-l", "/tmp"]);
        check("sh -c 'echo \"a b\"' \"c d\"e", &["sh", "-c", "echo \"a b\"", "c de"]);
        check(r"a\ b ''", &["a b", ""]);
        check(" ", &[]);
    }
}

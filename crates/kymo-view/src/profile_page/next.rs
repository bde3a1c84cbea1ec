//! Next steps: the command with details about the largest share of the time.

use kymo_analysis::offcpu::OffCpuCause;
use kymo_model::shell_word;

/// Profiled target, as words of a command line.
#[derive(Clone, Debug, Default)]
pub enum ProfileTarget {
    /// Nothing that another command could look at.
    #[default]
    Unknown,
    /// A command, quoted as the shell wants it.
    Command(String),
    /// Processes by their ids, separated by commas.
    Processes(String),
    /// Everybody.
    Machine,
    /// A recording, and whether it has the switches of all CPUs.
    Recording(String, bool),
}

/// A command that says more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextStep {
    /// Purpose of the command.
    pub what: &'static str,
    /// The command.
    pub command: String,
}

/// Commands for what most of the time off the CPU went to, with the thread of which it is most, if
/// it is much; and for the function that runs longest, if that is.
pub(super) fn next_steps(
    target: &ProfileTarget,
    waits: Option<(OffCpuCause, u32)>,
    function: Option<&str>,
) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let live = match target {
        ProfileTarget::Command(words) => format!(" -- {words}"),
        ProfileTarget::Processes(pids) => format!(" --live --timeout 5000 --pid {pids}"),
        ProfileTarget::Machine => " --live --timeout 5000".to_owned(),
        ProfileTarget::Recording(..) | ProfileTarget::Unknown => String::new(),
    };
    let mut step = |what, command| steps.push(NextStep { what, command });
    if let Some((cause, tid)) = waits {
        let lock = "locks and their waiters";
        let answer = match cause {
            _ if live.is_empty() => None,
            OffCpuCause::Futex => Some((lock, "kymo lock contention --futex")),
            OffCpuCause::Mutex | OffCpuCause::Rwsem | OffCpuCause::KernelLock => {
                Some((lock, "kymo lock contention"))
            }
            OffCpuCause::Disk | OffCpuCause::PageFault | OffCpuCause::AsyncIo => {
                Some(("block requests by process and device", "kymo io top"))
            }
            OffCpuCause::Preempted | OffCpuCause::Woken | OffCpuCause::New => {
                Some(("waits for a CPU, by task", "kymo sched latency -p"))
            }
            _ => None,
        };
        if let Some((what, command)) = answer {
            step(what, format!("{command}{live}"));
        }
        let why = "critical path through other tasks";
        match target {
            _ if cause.is_runnable() => {}
            ProfileTarget::Command(words) => step(why, format!("kymo why -- {words}")),
            ProfileTarget::Processes(pids) if !pids.contains(',') => {
                let record = "kymo why record --timeout 5000";
                step(why, format!("{record} && kymo why --pid {pids}"));
            }
            ProfileTarget::Recording(file, true) => {
                step(why, format!("kymo why -i {file} --tid {tid}"));
            }
            _ => {}
        }
    }
    if let Some(function) = function {
        let what = "its instructions and source lines";
        let name = shell_word(function);
        match target {
            ProfileTarget::Command(words) => {
                step(what, format!("kymo record -g -- {words} && kymo annotate {name}"));
            }
            ProfileTarget::Processes(pids) => step(
                what,
                format!("kymo record -g --timeout 5000 -p {pids} && kymo annotate {name}"),
            ),
            ProfileTarget::Machine => {
                step(what, format!("kymo record -g -a --timeout 5000 && kymo annotate {name}"));
            }
            ProfileTarget::Recording(file, _) => {
                step(what, format!("kymo annotate -i {file} {name}"));
            }
            ProfileTarget::Unknown => {}
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_for_what_was_profiled() {
        let commands = |target: &ProfileTarget, cause, function| -> Vec<String> {
            next_steps(target, cause, function).into_iter().map(|s| s.command).collect()
        };
        let program = ProfileTarget::Command("./a 'b c'".to_owned());
        assert_eq!(
            commands(&program, Some((OffCpuCause::Futex, 7)), None),
            ["kymo lock contention --futex -- ./a 'b c'", "kymo why -- ./a 'b c'"]
        );
        assert_eq!(
            commands(&ProfileTarget::Machine, Some((OffCpuCause::Woken, 7)), Some("a(b)")),
            [
                "kymo sched latency -p --live --timeout 5000",
                "kymo record -g -a --timeout 5000 && kymo annotate 'a(b)'"
            ]
        );
        let kept = ProfileTarget::Recording("x.data".to_owned(), false);
        assert!(commands(&kept, Some((OffCpuCause::Disk, 7)), None).is_empty());
        let all = ProfileTarget::Recording("x.data".to_owned(), true);
        let why = commands(&all, Some((OffCpuCause::Disk, 7)), None);
        assert_eq!(why, ["kymo why -i x.data --tid 7"]);
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }
}

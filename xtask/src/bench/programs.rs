//! Cost of programs in the kernel, compared with bpftrace's newest release and the installed one:
//! added time of a system call, start until attached, memory, records per second.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::Effort;
use super::measure::{cost, installed, median};
use super::rows::{Bench, Row};

/// Programs whose added cost is measured, with the share of bpftrace's that is the goal.
const ADDED: [(&str, &str, f64); 4] = [
    ("@ = count()", "@ = count();", 0.6),
    ("@[tid] = count()", "@[tid] = count();", 0.8),
    ("@ = hist(args->id)", "@ = hist(args->id);", 0.8),
    ("@[kstack] = count()", "@[kstack] = count();", 0.8),
];

/// Calls at a rate: their number is the first argument, those per second the second.
const PACED: &str = r#"
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int argc, char **argv) {
    long calls = atol(argv[1]), rate = atol(argv[2]);
    double begin = now();
    for (long i = 0; i < calls; i++) {
        while (i % 64 == 0 && now() < begin + (double)i / rate);
        syscall(SYS_getppid);
    }
}
"#;
/// Rates at which it is seen whether lines are lost.
const RATES: [u64; 4] = [1_000_000, 2_000_000, 3_000_000, 4_000_000];

/// Runner of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runner {
    Newest,
    Installed,
    Kymo,
}

impl Runner {
    const ALL: [Runner; 3] = [Runner::Newest, Runner::Installed, Runner::Kymo];
}

impl Bench<'_> {
    /// `kymo run` beside bpftrace.
    pub(crate) fn programs(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = self.added_cost()?;
        rows.push(self.attached()?);
        rows.push(self.memory()?);
        rows.push(self.listing()?);
        rows.push(self.records()?);
        rows.push(self.paced_records()?);
        Ok(rows)
    }

    fn runner(&self, runner: Runner) -> Command {
        match runner {
            Runner::Kymo => self.kymo_with(&["run"]),
            Runner::Newest => kymo_testkit::peer("bpftrace").command(),
            Runner::Installed => Command::new("bpftrace"),
        }
    }

    /// Nanoseconds of a getppid(2), bare or while a program counts system calls.
    fn call(&self, calls: u64, traced: Option<(Runner, &str)>) -> anyhow::Result<f64> {
        let load = format!("{} bench -f simple syscall basic -l {calls}", installed("perf")?);
        let mut command = match traced {
            None => {
                let mut command = Command::new("perf");
                command.args(load.split(' ').skip(1));
                command
            }
            Some((runner, body)) => {
                let mut command = self.runner(runner);
                let text = format!("tracepoint:raw_syscalls:sys_enter {{ {body} }}");
                command.args(["-q", "-e", &text, "-c", &load]);
                command
            }
        };
        let out = command.stdin(Stdio::null()).output().context("cannot run it")?;
        let text = String::from_utf8_lossy(&out.stdout);
        let seconds = text.lines().find_map(|line| line.trim().parse::<f64>().ok());
        let said = || String::from_utf8_lossy(&out.stderr).into_owned();
        let seconds = seconds.with_context(|| format!("perf bench says no seconds: {}", said()))?;
        Ok(seconds * 1e9 / calls as f64)
    }

    fn added_cost(&self) -> anyhow::Result<Vec<Row>> {
        let calls = if self.effort() == Effort::Full { 3_000_000 } else { 300_000 };
        let mut rows = Vec::new();
        for (what, body, goal) in ADDED {
            let mut times: [Vec<f64>; 4] = Default::default();
            for _ in 0..self.rounds(5) {
                times[3].push(self.call(calls, None)?);
                for (times, runner) in times.iter_mut().zip(Runner::ALL) {
                    times.push(self.call(calls, Some((runner, body)))?);
                }
            }
            let [theirs, older, ours, bare] = times.map(|times| median(&times).unwrap_or(f64::NAN));
            let (theirs, older, ours) = (theirs - bare, older - bare, ours - bare);
            rows.push(Row {
                what: format!(
                    "`{what}` on raw_syscalls:sys_enter, added to a call of {bare:.0} ns"
                ),
                newest: format!("{theirs:.0} ns"),
                installed: format!("{older:.0} ns"),
                kymo: format!("{ours:.0} ns"),
                verdict: format!(
                    "{:.2} of bpftrace's (goal {goal}), {:.2} of the older one's",
                    ours / theirs,
                    ours / older
                ),
            });
        }
        Ok(rows)
    }

    /// Time from exec until a program has run its first probe with all attached.
    fn first_event(&self, runner: Runner) -> anyhow::Result<Duration> {
        let text = "tracepoint:raw_syscalls:sys_enter { printf(\"x\\n\"); exit(); }";
        let mut command = self.runner(runner);
        command.args(["-q", "-B", "none", "-e", text]);
        let start = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run it")?;
        let mut first = [0u8; 1];
        let read = child.stdout.as_mut().map(|out| out.read(&mut first));
        let time = start.elapsed();
        child.wait()?;
        match read {
            Some(Ok(1)) => Ok(time),
            _ => bail!("the program printed nothing"),
        }
    }

    fn attached(&self) -> anyhow::Result<Row> {
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..self.rounds(7) {
            for (times, runner) in times.iter_mut().zip(Runner::ALL) {
                times.push(self.first_event(runner)?.as_secs_f64() * 1e3);
            }
        }
        let [theirs, older, ours] = times.map(|times| median(&times).unwrap_or(f64::NAN));
        Ok(Row {
            what: "exec until the first event of a program is printed".into(),
            newest: format!("{theirs:.0} ms"),
            installed: format!("{older:.0} ms"),
            kymo: format!("{ours:.1} ms"),
            verdict: format!("{:.0}× (goal: 20 ms)", theirs / ours),
        })
    }

    fn memory(&self) -> anyhow::Result<Row> {
        let text =
            "tracepoint:raw_syscalls:sys_enter { @[tid] = count(); } interval:ms:300 { exit(); }";
        let peak = |runner| -> anyhow::Result<f64> {
            let mut command = self.runner(runner);
            command.args(["-q", "-e", text]);
            Ok(cost(command)?.peak as f64 / 1e6)
        };
        let (theirs, older) = (peak(Runner::Newest)?, peak(Runner::Installed)?);
        let ours = peak(Runner::Kymo)?;
        Ok(Row {
            what: "memory of a program that counts by thread".into(),
            newest: format!("{theirs:.0} MB"),
            installed: format!("{older:.0} MB"),
            kymo: format!("{ours:.1} MB"),
            verdict: format!("{:.0}× (goal: 15 MB)", theirs / ours),
        })
    }

    fn listing(&self) -> anyhow::Result<Row> {
        let time = |runner| -> anyhow::Result<f64> {
            let mut costs = Vec::new();
            for _ in 0..self.rounds(5) {
                let mut command = self.runner(runner);
                command.args(["-l", "tracepoint:*"]);
                costs.push(cost(command)?.time.as_secs_f64() * 1e3);
            }
            median(&costs).context("no rounds")
        };
        let (theirs, older) = (time(Runner::Newest)?, time(Runner::Installed)?);
        let ours = time(Runner::Kymo)?;
        Ok(Row {
            what: "`-l 'tracepoint:*'`".into(),
            newest: format!("{theirs:.0} ms"),
            installed: format!("{older:.0} ms"),
            kymo: format!("{ours:.1} ms"),
            verdict: format!("{:.0}× (goal: 30 ms)", theirs / ours),
        })
    }

    /// The highest of some rates of calls at which each line of `printf` comes.
    fn paced_records(&self) -> anyhow::Result<Row> {
        let load = kymo_testkit::Workload::compile("paced", PACED);
        let seconds = if self.effort() == Effort::Full { 2 } else { 1 };
        let text = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { printf(\"%d %d\\n\", tid, 110); }";
        let highest = |runner| -> anyhow::Result<String> {
            let mut without_loss = None;
            for rate in RATES {
                let calls = rate * seconds;
                let mut command = self.runner(runner);
                command.args(["-q", "-e", text, "-c", &format!("{} {calls} {rate}", load.arg())]);
                let out = command.stdin(Stdio::null()).output().context("cannot run it")?;
                let lines = out.stdout.split(|b| *b == b'\n');
                let printed = lines.filter(|line| line.ends_with(b" 110")).count() as u64;
                if printed < calls {
                    let missing = calls - printed;
                    let below = without_loss
                        .map_or("none".to_owned(), |r: u64| format!("{} M/s", r / 1_000_000));
                    return Ok(format!(
                        "{below} ({missing} of {calls} lost at {} M/s)",
                        rate / 1_000_000
                    ));
                }
                without_loss = Some(rate);
            }
            Ok("4 M/s".to_owned())
        };
        let (theirs, older) = (highest(Runner::Newest)?, highest(Runner::Installed)?);
        Ok(Row {
            what:
                "highest of 1, 2, 3 and 4 M system calls a second of which `printf` loses no line"
                    .into(),
            newest: theirs,
            installed: older,
            kymo: highest(Runner::Kymo)?,
            verdict: "goal: 1 M/s".into(),
        })
    }

    /// Lines that `printf` of each system call gives, and how many are missing.
    fn records(&self) -> anyhow::Result<Row> {
        let calls: u64 = if self.effort() == Effort::Full { 3_000_000 } else { 300_000 };
        let text = "tracepoint:raw_syscalls:sys_enter /pid == cpid && args->id == 110/ \
                    { printf(\"%d %d\\n\", tid, args->id); }";
        let run = |runner| -> anyhow::Result<(f64, u64)> {
            let load = format!("{} bench syscall basic -l {calls}", installed("perf")?);
            let mut command = self.runner(runner);
            command.args(["-q", "-e", text, "-c", &load]).current_dir(self.dir());
            let start = Instant::now();
            let out = command.stdin(Stdio::null()).output().context("cannot run it")?;
            let rate = calls as f64 / start.elapsed().as_secs_f64() / 1e6;
            let lines = out.stdout.split(|b| *b == b'\n');
            let printed = lines.filter(|line| line.ends_with(b" 110")).count() as u64;
            Ok((rate, calls.saturating_sub(printed)))
        };
        let said = |(rate, lost): (f64, u64)| format!("{rate:.2} M/s, {lost} lost");
        let (theirs, older) = (said(run(Runner::Newest)?), said(run(Runner::Installed)?));
        let ours = run(Runner::Kymo)?;
        Ok(Row {
            what: format!("{calls} system calls printed with `printf`"),
            newest: theirs,
            installed: older,
            kymo: said(ours),
            verdict: "goal: 1 M/s, none lost".into(),
        })
    }
}

//! Cost of watching: `kymo top` compared with perf top, 4000 samples per second on each CPU, while
//! two programs burn; and the delay of the first screen.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::Effort;
use super::measure::median;
use super::rows::{Bench, Each, Row, megabytes};

/// Ticks of /proc/PID/stat.
const TICKS: f64 = 100.0;
/// Time for the initial reading and resolving, which does not count as the cost of watching.
const SETTLE: Duration = Duration::from_secs(3);

/// Children that are ended with this.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn burn() -> anyhow::Result<Children> {
    let mut burners = Children(Vec::new());
    for _ in 0..2 {
        let burner = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        burners.0.push(burner.context("cannot run sh")?);
    }
    Ok(burners)
}

/// Share of a CPU, and the largest resident set, of a command while it watches.
fn watched(mut command: Command, time: Duration) -> anyhow::Result<(f64, u64)> {
    // perf top asks its standard input for keys: that must stay open and say nothing.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = Children(vec![command.spawn().context("cannot run it")?]);
    let pid = child.0.first().map_or(0, Child::id);
    std::thread::sleep(SETTLE);
    let before = ticks(pid)?;
    let start = Instant::now();
    std::thread::sleep(time);
    let used = (ticks(pid)? - before) / TICKS;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let peak: u64 = peak.context("no VmHWM")?.trim().parse()?;
    Ok((used * 100.0 / start.elapsed().as_secs_f64(), peak * 1024))
}

/// User and system time of a process and its threads.
fn ticks(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("it ended")?;
    let (_, fields) = stat.rsplit_once(')').context("no process")?;
    let times = fields.split_whitespace().skip(11).take(2);
    times.map(|t| t.parse::<f64>().context("no time")).sum()
}

impl Bench<'_> {
    /// `kymo top` beside perf top.
    pub(crate) fn top(&self) -> anyhow::Result<Vec<Row>> {
        let time = Duration::from_secs(if self.effort() == Effort::Full { 10 } else { 2 });
        let burners = burn()?;
        let mut rows = Vec::new();
        for (chains, goal) in [(&[][..], " (goal 1.5% and 60 MB)"), (&["-g"][..], "")] {
            let common = ["top", "--stdio", "-e", "cpu-clock", "-F", "4000", "-d", "2"];
            let args = [&common[..], chains].concat();
            let peer = kymo_testkit::peer("perf");
            let newest = if peer.is_newest() {
                Some(watched(self.placed(peer.command(), &args), time)?)
            } else {
                None
            };
            let seen = Each {
                newest,
                installed: watched(self.perf_with(&args), time)?,
                kymo: watched(self.kymo_with(&args), time)?,
            };
            let shares = seen.map(|(cpu, _)| *cpu).shares();
            let what = args.join(" ");
            rows.push(seen.row(
                format!("`{what}`, two programs burn: share of one CPU, peak memory"),
                |(cpu, peak)| format!("{cpu:.1}%, {}", megabytes(*peak)),
                format!("{shares} of perf's{goal}"),
            ));
        }
        let times: anyhow::Result<Vec<f64>> =
            (0..self.rounds(7)).map(|_| self.first_screen()).collect();
        let first = median(&times?).unwrap_or(f64::NAN) * 1e3;
        drop(burners);
        rows.push(Row {
            what: "`top -g` on a terminal: until the first screen has samples".to_owned(),
            kymo: format!("{first:.0} ms"),
            verdict: "goal 150 ms".to_owned(),
            ..Row::default()
        });
        Ok(rows)
    }

    /// Seconds from exec until a screen says how many samples it is about.
    fn first_screen(&self) -> anyhow::Result<f64> {
        let line = self.kymo_with(&["top", "-g"]);
        let line = format!("{} top -g", line.get_program().to_string_lossy());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let start = Instant::now();
        let mut child = Children(vec![command.spawn().context("cannot run script")?]);
        let out = child.0.first_mut().and_then(|c| c.stdout.take());
        let mut out = out.context("no output")?;
        let (mut text, mut bytes) = (Vec::new(), [0; 1 << 14]);
        loop {
            match out.read(&mut bytes)? {
                0 => bail!("it ended: {}", String::from_utf8_lossy(&text)),
                n => text.extend_from_slice(&bytes[..n]),
            }
            // The first one says that there are none yet.
            if text.windows(8).any(|w| w == b" samples") && text.contains(&b'%') {
                let shown = String::from_utf8_lossy(&text);
                if shown.matches('%').count() > 3 {
                    return Ok(start.elapsed().as_secs_f64());
                }
            }
        }
    }
}

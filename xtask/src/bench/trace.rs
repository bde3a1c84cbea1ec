//! Cost of tracing through the ftrace ring, compared with trace-cmd and perf, and the speed of
//! reading a trace.dat.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::Effort;
use super::inputs::statistics;
use super::measure::{Cost, installed, median, on_one_cpu};
use super::rows::{Bench, Row, megabytes, time_row};

/// Calls and returns of one round trip of `perf bench sched pipe`.
const EVENTS_PER_LOOP: u64 = 8;
const EVENTS: &str = "raw_syscalls:*";

/// A finished command: its output, what it said, how long it took.
struct Ran {
    stdout: String,
    stderr: String,
    time: Duration,
}

fn run(mut command: Command) -> anyhow::Result<Ran> {
    let text = format!("{command:?}").replace('"', "");
    let start = Instant::now();
    let out =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{text}`"))?;
    let time = start.elapsed();
    let (stdout, stderr) = (out.stdout, String::from_utf8_lossy(&out.stderr).into_owned());
    if !out.status.success() {
        bail!("`{text}` failed: {}: {}", out.status, stderr.trim());
    }
    Ok(Ran { stdout: String::from_utf8_lossy(&stdout).into_owned(), stderr, time })
}

/// The number before a word in what kymo says.
fn before(text: &str, word: &str) -> Option<u64> {
    let at = text.find(word)?;
    let digits = text.get(..at)?.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Events recorded and lost.
fn events(said: &str) -> (u64, u64) {
    let lost = said.find(" events lost").and_then(|at| {
        let line = said.get(..at)?.rsplit('\n').next()?;
        line.split_once("lost:").map_or(line, |(_, l)| l).trim().split(' ').next()?.parse().ok()
    });
    (before(said, " events) ]").unwrap_or(0), lost.unwrap_or(0))
}

fn args(command: &mut Command, words: &str) {
    command.args(words.split(' '));
}

impl Bench<'_> {
    pub(crate) fn trace(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = self.overhead()?;
        rows.extend(self.reading()?);
        rows.push(self.live()?);
        rows.push(self.tbench()?);
        Ok(rows)
    }

    fn loops(&self, full: u64) -> u64 {
        if self.effort() == Effort::Full { full } else { full / 10 }
    }

    /// `perf bench sched pipe` bare and traced in three ways.
    fn overhead(&self) -> anyhow::Result<Vec<Row>> {
        let loops = self.loops(100_000);
        // On one CPU: else the scheduler's choice of two changes the figure twofold.
        let load = format!(
            "{}{} bench -f simple sched pipe -l {loops}",
            on_one_cpu()?,
            installed("perf")?
        );
        let bare = || {
            let (program, rest) = load.split_once(' ').unwrap_or((&load, ""));
            let mut c = Command::new(program);
            args(&mut c, rest);
            c
        };
        let kymo = || {
            let mut c = self.kymo_with(&[]);
            args(&mut c, &format!("trace -o pipe.dat -e {EVENTS} -- {load}"));
            c
        };
        let perf = |command: Command| {
            let mut c = self.placed(command, &[]);
            args(&mut c, &format!("record -q -e {EVENTS} -o pipe.data -- {load}"));
            c
        };
        let newest = kymo_testkit::peer("perf");
        let trace_cmd = || {
            let mut c = Command::new("trace-cmd");
            args(&mut c, &format!("record -q -o pipe-tc.dat -e raw_syscalls {load}"));
            c.current_dir(self.dir());
            c
        };
        let micros = |ran: &Ran| -> anyhow::Result<f64> {
            let seconds = ran.stdout.lines().find_map(|l| l.trim().parse::<f64>().ok());
            Ok(seconds.context("no seconds in the output")? * 1e6 / loops as f64)
        };
        let mut times: [Vec<f64>; 6] = Default::default();
        let (mut recorded, mut lost, mut perf_counts) = (0, 0, (0, 0));
        let mut refused = None;
        for _ in 0..self.rounds(5) {
            times[0].push(micros(&run(bare())?)?);
            times[4].push(micros(&self.unread(EVENTS, || run(bare()))?)?);
            let ran = run(kymo())?;
            times[1].push(micros(&ran)?);
            let (n, l) = events(&ran.stderr);
            (recorded, lost) = (recorded + n, lost + l);
            if newest.is_newest() {
                times[5].push(micros(&run(perf(newest.command()))?)?);
            }
            times[2].push(micros(&run(perf(Command::new("perf")))?)?);
            let found = statistics(&self.dir().join("pipe.data"))?;
            perf_counts = (perf_counts.0 + found.samples, perf_counts.1 + found.lost);
            // Where functions may not be traced it does not begin.
            match run(trace_cmd()) {
                Ok(ran) => times[3].push(micros(&ran)?),
                Err(e) => refused = Some(e),
            }
        }
        let size = |name: &str| std::fs::metadata(self.dir().join(name)).map_or(0, |m| m.len());
        let with = size("pipe.dat");
        let mut empty = self.kymo_with(&[]);
        args(&mut empty, &format!("trace -q -o empty.dat -e {EVENTS} -- true"));
        run(empty)?;
        let rounds = self.rounds(5) as u64;
        let per_event =
            with.saturating_sub(size("empty.dat")) as f64 / (recorded / rounds).max(1) as f64;
        let perf_per_event = size("pipe.data") as f64 / (perf_counts.0 / rounds).max(1) as f64;
        let best = |v: &[f64]| v.iter().copied().min_by(f64::total_cmp);
        let least = |v: &[f64]| best(v).context("no rounds");
        let (bare, kymo, perf) = (least(&times[0])?, least(&times[1])?, least(&times[2])?);
        let floor = least(&times[4])?;
        let theirs = match (best(&times[3]), refused) {
            (Some(t), _) => format!("trace-cmd {t:.1}, perf record {perf:.1} µs/op"),
            (None, _) => format!("trace-cmd does not start here; perf record {perf:.1} µs/op"),
        };
        Ok(vec![
            Row {
                what: format!(
                    "`trace -o`, `{EVENTS}` of `perf bench sched pipe`, best of the rounds (bare: \
                     {bare:.1} µs/op; into a ring without a reader: {floor:.1})"
                ),
                newest: best(&times[5])
                    .map_or_else(String::new, |t| format!("perf record {t:.1} µs/op")),
                installed: theirs,
                kymo: format!("{kymo:.1} µs/op"),
                verdict: format!(
                    "{:.2} of bare (goal: ≤ 1.05; the kernel's part alone {:.2}), perf record {:.2}",
                    kymo / bare,
                    floor / bare,
                    perf / bare
                ),
            },
            Row {
                what: "the same, bytes per event in the file".into(),
                installed: format!("perf record {perf_per_event:.0}"),
                kymo: format!("{per_event:.0}"),
                ..Row::default()
            },
            Row {
                what: "the same, events lost in all rounds".into(),
                installed: format!(
                    "perf record {} of {}",
                    perf_counts.1,
                    perf_counts.0 + perf_counts.1
                ),
                kymo: format!("{lost} of {}", recorded + lost),
                verdict: "goal: none".into(),
                ..Row::default()
            },
        ])
    }

    /// `script` of two million events.
    fn reading(&self) -> anyhow::Result<Vec<Row>> {
        let loops = self.loops(250_000) * 11 / 10;
        let mut record = self.kymo_with(&[]);
        args(
            &mut record,
            &format!("trace -m 64M -o big.dat -e {EVENTS} -- perf bench sched pipe -l {loops}"),
        );
        let (count, lost) = events(&run(record)?.stderr);
        if count < loops * EVENTS_PER_LOOP * 9 / 10 {
            bail!("big.dat has {count} events, {lost} were lost");
        }
        let peer = kymo_testkit::peer("trace-cmd");
        let report = ["report", "-i", "big.dat"];
        let newest = || self.placed(peer.command(), &report);
        let newest: &dyn Fn() -> Command = &newest;
        let costs = self.costs(
            3,
            peer.is_newest().then_some(newest),
            &|| self.placed(Command::new("trace-cmd"), &report),
            &|| self.kymo_with(&["script", "-i", "big.dat"]),
        )?;
        let what = format!("`script` of a trace.dat, {count} events (trace-cmd report)");
        let rate = |c: &Cost| {
            let rate = count as f64 / c.time.as_secs_f64() / 1e6;
            format!("{rate:.2} M/s; {}", megabytes(c.peak))
        };
        Ok(vec![
            time_row(what, &costs, "20×, least 8×"),
            costs.row("the same, events a second; peak memory".into(), rate, String::new()),
        ])
    }

    /// Text while it happens: what is shown of a program that does nothing but calls.
    fn live(&self) -> anyhow::Result<Row> {
        let calls = self.loops(1_000_000);
        let mut c = self.kymo_with(&[]);
        let load = format!("perf bench syscall basic -l {calls}");
        args(&mut c, &format!("trace -m 64M -e {EVENTS} -- {load}"));
        let ran = run(c)?;
        let lines = ran.stdout.lines().filter(|l| l.contains("NR ")).count();
        Ok(Row {
            what: "live `trace`, text of a program that does nothing but calls".into(),
            kymo: format!("{:.2} M/s", lines as f64 / ran.time.as_secs_f64() / 1e6),
            verdict: format!("{lines} of about {} events shown", calls * 2),
            ..Row::default()
        })
    }

    /// Runs something while events go into a ring that is not read: the kernel's part of the cost.
    fn unread<T>(
        &self,
        events: &str,
        load: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let session = |words: &str| {
            let mut c = self.kymo_with(&["session"]);
            args(&mut c, words);
            run(c)
        };
        session(&format!("create bench -e {events} --buffer-size 8M"))?;
        let result = session("start bench").and_then(|_| load());
        session("destroy bench")?;
        result
    }

    /// tbench over loopback with the events that LTTng's authors switched on.
    fn tbench(&self) -> anyhow::Result<Row> {
        let server = Server(
            Command::new("tbench_srv")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .context("tbench_srv (Debian: dbench)")?,
        );
        std::thread::sleep(Duration::from_millis(300));
        let seconds = if self.effort() == Effort::Full { 10 } else { 2 };
        let load = format!("tbench -t {seconds} 1 127.0.0.1");
        let throughput = |ran: &Ran| -> anyhow::Result<f64> {
            let line = ran.stdout.lines().find(|l| l.starts_with("Throughput"));
            let line = line.context("tbench says no throughput")?;
            Ok(line.split_whitespace().nth(1).context("no number")?.parse()?)
        };
        let (mut bare, mut traced, mut lost, mut all) = (Vec::new(), Vec::new(), 0, 0);
        let mut unread = Vec::new();
        let plain = || {
            let mut c = Command::new("sh");
            c.args(["-c", &load]).current_dir(self.dir());
            run(c)
        };
        for _ in 0..self.rounds(3) {
            bare.push(throughput(&plain()?)?);
            unread.push(throughput(&self.unread("sched,raw_syscalls,net", plain)?)?);
            let mut c = self.kymo_with(&[]);
            args(&mut c, "trace -a -o tbench.dat -e sched -e raw_syscalls -e net --");
            args(&mut c, &load);
            let ran = run(c)?;
            traced.push(throughput(&ran)?);
            let (n, l) = events(&ran.stderr);
            (all, lost) = (all + n + l, lost + l);
        }
        drop(server);
        let middle = |v: &[f64]| median(v).context("no rounds");
        let (bare, traced, unread) = (middle(&bare)?, middle(&traced)?, middle(&unread)?);
        let slower = |with: f64| (1.0 - with / bare) * 100.0;
        Ok(Row {
            what: format!("tbench over loopback, sched, syscalls and net (bare: {bare:.0} MB/s)"),
            newest: "LTTng, published: 18.2 % slower at worst, 5 % typically".into(),
            installed: String::new(),
            kymo: format!("{traced:.0} MB/s"),
            verdict: format!(
                "{:.1} % slower (the kernel's part alone {:.1} %); {lost} of {all} events lost",
                slower(traced),
                slower(unread)
            ),
        })
    }
}

/// A server that ends with us.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kymo_says_is_understood() {
        let said = "[ kymo trace: wrote 7.059 MB x.dat (3000 events) ]\n";
        assert_eq!(events(said), (3000, 0));
        let said =
            format!("{said}Trust:\n  lost: 26 of 3026 events lost (0.9%): the ring was full\n");
        assert_eq!(events(&said), (3000, 26));
    }
}

//! The page that `kymo profile` prints: plain words first, then functions, the
//! hot path and threads. `build` makes it of a profile; here it becomes text.

mod build;
mod json;
mod next;
mod tree;
mod verdict;
mod waits;

use std::fmt::Write as _;
use std::time::Duration;

use crate::units::visible;

pub use build::{CommandRun, ProfileTimes, build_page, page_ledger};
pub use next::{NextStep, ProfileTarget};
pub use tree::TimeStep;
pub use waits::WaitSection;

/// CPU times below which the parts of programs and of the kernel are rough.
const ROUGH_BELOW: Duration = Duration::from_millis(100);
/// Times below this say little.
const UNSURE: Duration = Duration::from_millis(10);
/// Characters in a line of a terminal.
const SCREEN_COLUMNS: usize = 100;
/// Characters before a line of the summary.
const SUMMARY_INDENT: usize = 12;
/// Functions on the first screen.
const SCREEN_FUNCTIONS: usize = 6;
/// Share of the time from which a cause has a row of its own there.
const SCREEN_SHARE: f64 = 0.005;

/// Model of the page.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "fields are named like what they count")]
pub struct ProfilePage {
    /// The command as typed.
    pub command: String,
    /// From its start to its end, or as long as it was looked at.
    pub elapsed: Duration,
    /// It was there before and may be there still: the kernel accounts nothing of this time.
    pub attached: bool,
    /// All processes of the machine were looked at.
    pub is_machine: bool,
    /// Kinds of records that were lost, in words.
    pub lost: Option<&'static str>,
    /// The kernel recorded nothing of the program, for this reason.
    pub unseen: Option<String>,
    /// A program in the command of which the kernel recorded nothing.
    pub hidden: Option<String>,
    /// User and system time, as the kernel accounts them to the command.
    pub user: Duration,
    pub system: Duration,
    /// On a CPU, over all threads; `None` where not recorded.
    pub on_cpu: Option<Duration>,
    /// Off the CPU though able to run, over all threads; `None` where not recorded.
    pub ready: Option<Duration>,
    /// Off the CPU by its own doing, over all threads.
    pub blocked: Option<Duration>,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// Samples, the event they count and how often it was taken.
    pub samples: u64,
    pub event: String,
    pub rate: Option<u64>,
    /// Waits of the threads, where recorded.
    pub waits: Option<WaitSection>,
    /// Most expensive first.
    pub functions: Vec<FunctionShare>,
    /// The path of the largest share, outermost first.
    pub path: Vec<PathStep>,
    /// All time by callers, on and off the CPU.
    pub tree: Vec<TimeStep>,
    /// Programs; the most time on CPUs first.
    pub programs: Vec<ProgramShare>,
    /// Most expensive first.
    pub threads: Vec<ThreadShare>,
    /// Commands that say more.
    pub next: Vec<NextStep>,
}

/// Processes of one name and their time.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "fields are named like the columns")]
pub struct ProgramShare {
    pub name: String,
    /// Process, if the program has only one.
    pub pid: Option<u32>,
    pub processes: u64,
    pub threads: u64,
    pub on_cpu: Duration,
    pub ready: Duration,
    pub blocked: Duration,
}

/// Function and its share of the samples, in percent.
#[allow(missing_docs, reason = "fields are named like the columns")]
#[derive(Debug, Clone)]
pub struct FunctionShare {
    pub own: f64,
    pub total: f64,
    pub name: String,
    pub object: String,
}

/// Frame of the hot path, with the largest of the calls that leave it.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "fields are named like the columns")]
pub struct PathStep {
    pub depth: usize,
    /// First of one of the branches of a fork.
    pub is_branch: bool,
    pub share: f64,
    pub name: String,
}

/// Thread and its share of the samples, in percent.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "fields are named like the columns")]
pub struct ThreadShare {
    pub name: String,
    pub pid: u32,
    pub tid: u32,
    pub share: f64,
    pub on_cpu: Option<Duration>,
    pub ready: Option<Duration>,
    pub blocked: Option<Duration>,
    /// The function it spent most in; empty where there is no sample.
    pub hottest: String,
    /// Cause of its longest waits, if they are longer than its time on CPU.
    pub waits_for: Option<String>,
}

/// Lines of at most this number of characters, where words are not longer.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

impl ProfilePage {
    /// Text of the page.
    pub fn to_text(&self) -> String {
        let mut o = String::new();
        self.summary(usize::MAX, &mut o);
        if let Some(waits) = &self.waits {
            waits.write(&mut o, 0.0);
        }
        self.program_table(&mut o);
        self.thread_table(&mut o);
        tree::write(
            &self.tree,
            self.waits.as_ref().map_or(Duration::ZERO, WaitSection::all),
            &mut o,
        );
        if let Some(waits) = &self.waits {
            waits.write_pairs(&mut o);
        }
        self.function_table(usize::MAX, &mut o);
        self.hot_path(&mut o);
        if !self.next.is_empty() {
            self.next_steps(&mut o);
        }
        o
    }

    /// The sections that answer the question, for the first screen of a terminal.
    pub fn to_screen(&self) -> String {
        let mut o = String::new();
        self.summary(SCREEN_COLUMNS, &mut o);
        if let Some(waits) = &self.waits {
            waits.write(&mut o, SCREEN_SHARE);
        }
        self.function_table(SCREEN_FUNCTIONS, &mut o);
        self.next_steps(&mut o);
        o.push_str(
            "  call trees, threads, waits with stacks: -v; as a page in the browser: --view\n",
        );
        o
    }

    fn next_steps(&self, o: &mut String) {
        let _ = writeln!(o, "\nWhere to look next");
        for NextStep { what, command } in &self.next {
            let _ = writeln!(o, "  {what}:\n    {command}");
        }
    }

    fn program_table(&self, o: &mut String) {
        if self.programs.len() < 2 {
            return;
        }
        let _ = writeln!(o, "\nBy program");
        let _ = writeln!(o, "      on CPU    blocked      ready processes   threads  program");
        for p in &self.programs {
            let _ = writeln!(
                o,
                "  {:>10} {:>10} {:>10}  {:>8}  {:>8}  {}{}",
                time(p.on_cpu),
                time(p.blocked),
                time(p.ready),
                number(p.processes),
                number(p.threads),
                visible(&p.name),
                p.pid.map_or_else(String::new, |pid| format!(" {pid}"))
            );
        }
    }

    /// Time on the CPUs, and whether it is not that which the kernel accounts.
    pub(super) fn cpu(&self) -> (Duration, bool) {
        let accounted = self.user + self.system;
        // The kernel accounts a child to its parent when the parent waits for it.
        let left_out = self.on_cpu.filter(|c| *c > accounted.mul_f64(1.5) + UNSURE);
        let left_out = left_out.or(self.on_cpu.filter(|_| self.attached));
        // What the kernel accounts begins before the command is executed, and comes in
        // ticks: the switches know better how long, the account only for whom.
        let cpu = match self.on_cpu.filter(|c| *c < accounted && !c.is_zero()) {
            Some(less) => less,
            None => left_out.unwrap_or(accounted),
        };
        (cpu, left_out.is_some())
    }

    fn summary(&self, columns: usize, o: &mut String) {
        let accounted = self.user + self.system;
        let (cpu, is_left_out) = self.cpu();
        let part = |of: Duration| cpu.mul_f64(ratio(of.as_secs_f64(), accounted.as_secs_f64()));
        let (user, system) = if is_left_out {
            (self.user, self.system)
        } else {
            (part(self.user), part(self.system))
        };
        let busy = ratio(cpu.as_secs_f64(), self.elapsed.as_secs_f64());
        let _ = writeln!(o, "{}\n", visible(&self.command));
        if let Some(verdict) = self.in_short() {
            let lines = wrapped(&verdict, columns.saturating_sub(SUMMARY_INDENT));
            let _ = writeln!(o, "  In short  {}", lines.join("\n            "));
        }
        let elapsed = time(self.elapsed);
        let _ = match (self.attached, self.on_cpu) {
            // A recording of one moment, or without times.
            (true, None) if self.elapsed.is_zero() => writeln!(
                o,
                "  Time      not known: the recording has no two samples with different times"
            ),
            (true, None) => writeln!(
                o,
                "  Time      {elapsed} from the first to the last event; how long of it tasks ran \
                 is not known: no switches of these tasks are recorded"
            ),
            (attached, _) => writeln!(
                o,
                "  Time      {elapsed} {}; {} on CPU ({busy:.2} CPUs busy on average)",
                if attached { "observed" } else { "from start to end" },
                time(cpu)
            ),
        };
        if self.attached {
            // Nothing is accounted.
        } else if is_left_out {
            let _ =
                writeln!(o, "            (by context switches: it did not wait for its children)");
        } else {
            // The kernel divides by the ticks of its clock that it met (cputime_adjust).
            let is_short = user.saturating_add(system) < ROUGH_BELOW;
            let how = if is_short { " (from clock ticks: rough)" } else { "" };
            let _ = writeln!(
                o,
                "            {} in programs, {} in the kernel on their behalf{how}",
                time(user),
                time(system)
            );
        }
        if let (Some(blocked), Some(ready)) = (self.blocked, self.ready) {
            let _ = writeln!(
                o,
                "  Waiting   {} asleep or blocked, {} able to run but without a CPU (all threads)",
                time(blocked),
                time(ready)
            );
        }
        if !self.attached {
            self.account(o);
        }
        if self.event.is_empty() {
            return;
        }
        let rate = self.rate.map_or(String::new(), |r| format!(", {} a second", number(r)));
        let _ =
            writeln!(o, "  Samples   {} of {}{rate}", number(self.samples), visible(&self.event));
    }

    /// Writes the kernel's accounting of a command.
    fn account(&self, o: &mut String) {
        let _ = writeln!(
            o,
            "  Faults    {} page faults, {} of them read from disk",
            number(self.minor_faults + self.major_faults),
            number(self.major_faults)
        );
        let _ = writeln!(
            o,
            "  Switches  {} context switches: {} to wait, {} preempted",
            number(self.voluntary_switches + self.involuntary_switches),
            number(self.voluntary_switches),
            number(self.involuntary_switches)
        );
    }

    fn function_table(&self, limit: usize, o: &mut String) {
        if self.functions.is_empty() {
            return;
        }
        let _ = writeln!(
            o,
            "\nWhere the CPU time went (self: the function alone; total: with callees)"
        );
        let _ = writeln!(o, "    self   total  function");
        for f in self.functions.iter().take(limit) {
            // The kernel's name has brackets of its own.
            let object = f.object.trim_start_matches('[').trim_end_matches(']');
            let (name, object) = (visible(&f.name), visible(object));
            let _ = writeln!(o, "  {:5.1}%  {:5.1}%  {name}  [{object}]", f.own, f.total);
        }
    }

    fn hot_path(&self, o: &mut String) {
        if self.path.is_empty() {
            return;
        }
        let _ = writeln!(o, "\nThe hot path (share of all samples that pass through)");
        for s in &self.path {
            let indent = "  ".repeat(s.depth - usize::from(s.is_branch));
            let mark = if s.is_branch { "+ " } else { "" };
            let _ = writeln!(o, "  {:5.1}%  {indent}{mark}{}", s.share, visible(&s.name));
        }
    }

    fn thread_table(&self, o: &mut String) {
        if self.threads.len() < 2 {
            return;
        }
        let _ = writeln!(o, "\nBy thread");
        let _ = writeln!(
            o,
            "   share     on CPU    blocked      ready  thread                     mostly in, or waiting for"
        );
        for t in &self.threads {
            let cell = |d: Option<Duration>| d.map_or("-".to_owned(), time);
            let who = format!("{} {}/{}", visible(&t.name), t.pid, t.tid);
            let _ = writeln!(
                o,
                "  {} {:>10} {:>10} {:>10}  {who:<25}  {}",
                // Who has no sample may have run nevertheless.
                if t.hottest.is_empty() {
                    "     -".to_owned()
                } else {
                    format!("{:5.1}%", t.share)
                },
                cell(t.on_cpu),
                cell(t.blocked),
                cell(t.ready),
                match &t.waits_for {
                    Some(cause) if t.hottest.is_empty() => cause.clone(),
                    Some(cause) => format!("{}, {cause}", visible(&t.hottest)),
                    None => visible(&t.hottest).into_owned(),
                }
            );
        }
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// A duration in the unit a person would use.
fn time(d: Duration) -> String {
    let s = d.as_secs_f64();
    match s {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 0.001 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} us", s * 1e6),
    }
}

/// A number with commas between thousands.
fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_read_like_a_persons() {
        assert_eq!([number(7), number(1234), number(1_234_567)], ["7", "1,234", "1,234,567"]);
        let t = |us| time(Duration::from_micros(us));
        assert_eq!(
            [t(12), t(1500), t(2_345_678), t(123_000_000)],
            ["12 us", "1.5 ms", "2.35 s", "123 s"]
        );
    }

    #[test]
    fn what_matters_is_said_first() {
        let ms = Duration::from_millis;
        let of = |elapsed, user, system, ready, blocked| {
            let (ready, blocked) = (Some(ms(ready)), Some(ms(blocked)));
            let (elapsed, user, system) = (ms(elapsed), ms(user), ms(system));
            let on_cpu = Some(user + system);
            ProfilePage { elapsed, user, system, ready, blocked, on_cpu, ..ProfilePage::default() }
                .to_text()
        };
        assert!(of(1000, 950, 20, 0, 0).contains("In short  it is busy"));
        assert!(
            of(1000, 50, 250, 0, 700)
                .contains("it waits for 70% of the time; 83% of its CPU time is in the kernel")
        );
        assert!(of(1000, 300, 0, 600, 100).contains("it waits for a CPU"));
        assert!(of(1000, 3000, 100, 0, 0).contains("keeps 3.1 CPUs busy"));
        assert!(!of(5, 1, 1, 0, 0).contains("In short"));
        let of_one =
            |elapsed, user, system| ProfilePage { elapsed, user, system, ..ProfilePage::default() };
        let orphaned = ProfilePage {
            elapsed: ms(1000),
            on_cpu: Some(ms(800)),
            user: ms(1),
            ..ProfilePage::default()
        };
        assert!(orphaned.to_text().contains("800.0 ms on CPU (0.80 CPUs"));
        // One thread is on one CPU at most, whatever its account begins with.
        let short = ProfilePage { on_cpu: Some(ms(8)), ..of_one(ms(10), ms(12), ms(4)) }.to_text();
        assert!(short.contains("10.0 ms from start to end; 8.0 ms on CPU (0.80 CPUs"), "{short}");
        assert!(short.contains("6.0 ms in programs, 2.0 ms in the kernel"), "{short}");
    }

    #[test]
    fn a_single_thread_needs_no_table() {
        let thread = ThreadShare {
            name: "a".into(),
            pid: 1,
            tid: 1,
            share: 100.0,
            on_cpu: None,
            ready: None,
            blocked: None,
            hottest: "main".into(),
            waits_for: None,
        };
        let mut page = ProfilePage { threads: vec![thread.clone()], ..ProfilePage::default() };
        assert!(!page.to_text().contains("By thread"));
        page.threads.push(thread);
        assert!(page.to_text().contains("a 1/1"));
    }
}

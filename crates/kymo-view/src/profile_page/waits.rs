//! Time of a command, on and off CPU, and the wakers of its longest waits.

use std::fmt::Write as _;
use std::time::Duration;

use kymo_analysis::offcpu::{OffCpuCause, OffCpuCell, StackNode, WaitPath, WaitTable, WakerId};
use kymo_model::counted;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::{number, ratio, time};
use crate::offcpu::{waits, write_beside};
use crate::units::{shown, visible};

/// Waits that are shown with their stacks.
const PAIRS: usize = 3;
/// Waits below this share of all the time are not.
const LEAST_SHARE: f64 = 0.05;

/// Time of one cause.
#[derive(Clone, Debug)]
pub(super) struct TimeRow {
    what: &'static str,
    code: &'static str,
    total: Duration,
    count: Option<u64>,
    max: Option<Duration>,
    /// The part of threads that never ran, and how many waits that are.
    idle: (u64, Duration),
}

/// Wait with the stack of who waited, and that of who ended it.
#[derive(Clone, Debug)]
pub(super) struct WaitPair {
    title: String,
    stack: Vec<String>,
    by: String,
    waker: Vec<String>,
    json: Value,
}

/// Parts of the critical path, and what is said of them.
#[derive(Clone, Debug, Default)]
pub(super) struct PathShares {
    pub(super) running: f64,
    pub(super) without_cpu: f64,
    /// Running or not: events were lost.
    pub(super) uncertain: f64,
    /// Blocked or throttled, the most first, with cause and place in words.
    pub(super) blocked: Vec<(OffCpuCause, f64, String)>,
    /// The largest wait for a lock that another thread of the program held.
    pub(super) lock: Option<(f64, String)>,
    /// Waits of a server that may have nothing to do, the largest of them in words.
    pub(super) idle: Option<(f64, String)>,
}

impl PathShares {
    fn new(table: &WaitTable, path: &WaitPath) -> Option<PathShares> {
        let all = path.total();
        if all == 0 {
            return None;
        }
        let part = |nanos: u64| ratio(nanos as f64, all as f64);
        let causes = path.causes().into_iter();
        let blocked = causes
            .map(|(cause, nanos)| (cause, part(nanos), text_of(table, cause, path.stack(cause))));
        let lock = path
            .locks(&table.stacks)
            .map(|(nanos, stack)| (part(nanos), text_of(table, OffCpuCause::Futex, Some(stack))));
        Some(PathShares {
            running: part(path.running),
            without_cpu: part(path.without_cpu),
            uncertain: part(path.uncertain),
            blocked: blocked.collect(),
            lock,
            idle: path
                .idle(&table.stacks)
                .map(|(nanos, cause, stack)| (part(nanos), text_of(table, cause, stack))),
        })
    }
}

impl PathShares {
    /// Whether most of it is spent on a CPU.
    pub(super) fn is_busy(&self) -> bool {
        let blocked = self.blocked.first().map_or(0.0, |(_, share, _)| *share);
        self.running >= blocked.max(self.without_cpu)
    }

    /// The wait that most of the path went to, or went around: a lock that threads of the program
    /// hold each other up on is worth a look where the holder runs, too.
    fn largest_wait(&self) -> Option<OffCpuCause> {
        let blocked = self.blocked.first();
        let others = blocked.map_or(0.0, |(_, share, _)| *share).max(self.without_cpu);
        if self.lock.as_ref().is_some_and(|(share, _)| *share > others) {
            return Some(OffCpuCause::Futex);
        }
        match blocked.filter(|(_, share, _)| *share >= self.without_cpu) {
            Some((cause, ..)) => Some(*cause),
            None => (self.without_cpu > 0.0).then_some(OffCpuCause::Woken),
        }
    }
}

/// Section of the page.
#[derive(Clone, Debug, Default)]
pub struct WaitSection {
    rows: Vec<TimeRow>,
    pairs: Vec<WaitPair>,
    /// Threads that never ran, where others did.
    idle_threads: u64,
    /// Largest cause of time off CPU, and its position in the program.
    pub(super) largest: Option<String>,
    /// Largest cause of time off CPU.
    pub(super) cause: Option<OffCpuCause>,
    /// Parts of the critical path, where it is known.
    pub(super) path: Option<PathShares>,
}

impl WaitSection {
    /// Section of a path alone.
    #[cfg(test)]
    pub(super) fn of_path(path: PathShares) -> WaitSection {
        WaitSection { path: Some(path), ..WaitSection::default() }
    }

    /// Section of these waits; `running` is the time on the CPU, `ran` says whether a thread is
    /// one of those that run.
    pub fn new(table: &WaitTable, running: u64, ran: &dyn Fn(u32) -> bool) -> WaitSection {
        let mut rows = vec![TimeRow {
            what: "running on a CPU",
            code: "running",
            total: Duration::from_nanos(running),
            count: None,
            max: None,
            idle: <(u64, Duration)>::default(),
        }];
        let idle = idle_waits(table, running, ran);
        for (cause, stats) in table.causes.iter().filter(|(_, stats)| !stats.is_empty()) {
            rows.push(TimeRow {
                what: cause.text(),
                code: cause.code(),
                total: Duration::from_nanos(stats.waits.total.saturating_add(stats.open.1)),
                count: Some(stats.waits.count + stats.open.0),
                max: stats.waits.max.map(|m| Duration::from_nanos(m.0)),
                idle: idle.of(*cause),
            });
        }
        let uncertain = table.causes.iter().map(|(_, stats)| stats.uncertain);
        let uncertain = uncertain.fold((0, 0u64), |a, b| (a.0 + b.0, a.1.saturating_add(b.1)));
        if uncertain.0 > 0 {
            rows.push(TimeRow {
                what: "not certain: events were lost",
                code: "uncertain",
                total: Duration::from_nanos(uncertain.1),
                count: Some(uncertain.0),
                max: None,
                idle: <(u64, Duration)>::default(),
            });
        }
        // Waits of idle workers come last.
        let worker = OffCpuCause::IdleWorker.text();
        let key = |r: &TimeRow| (r.what == worker, std::cmp::Reverse(r.shown()));
        rows[1..].sort_by_key(key);
        let all: Duration = rows.iter().map(TimeRow::shown).sum();
        let least = (all.as_nanos() as f64 * LEAST_SHARE) as u64;
        let pairs = stacks_of_waits(table).into_iter().filter(|w| w.cell.total >= least);
        let pairs = pairs.take(PAIRS).map(|wait| pair(table, &wait)).collect();
        let path = table.path.as_ref().and_then(|path| PathShares::new(table, path));
        let cause = match &path {
            Some(path) => path.largest_wait(),
            None => largest_cause(table, ran),
        };
        let largest = cause.map(|cause| largest_text(table, cause, ran));
        WaitSection { rows, pairs, largest, cause, path, idle_threads: idle.threads }
    }

    /// The time of which shares are: that of threads that ran, if any did.
    pub(super) fn all(&self) -> Duration {
        self.rows.iter().map(TimeRow::shown).sum()
    }

    /// The table as JSON.
    pub(super) fn times_json(&self) -> Vec<Value> {
        let nanos = |d: Duration| d.as_nanos() as u64;
        let row = |r: &TimeRow| {
            json!({
                "cause": r.code,
                "total_ns": nanos(r.total),
                "count": r.count,
                "max_ns": r.max.map(nanos),
            })
        };
        self.rows.iter().map(row).collect()
    }

    /// Waits with their stacks as JSON.
    pub(super) fn pairs_json(&self) -> Vec<Value> {
        self.pairs.iter().map(|p| p.json.clone()).collect()
    }

    /// Appends the table; several causes with shares below `least` share one row.
    pub(super) fn write(&self, o: &mut String, least: f64) {
        let all = self.all();
        let share = |time: Duration| 100.0 * ratio(time.as_secs_f64(), all.as_secs_f64());
        let has_time = |r: &&TimeRow| r.idle.1.is_zero() || !r.shown().is_zero();
        let is_small = |r: &TimeRow| share(r.shown()) < 100.0 * least;
        let rest = self.rows.iter().filter(has_time).filter(|r| is_small(r));
        let rest = rest.fold((0, Duration::ZERO), |(count, sum), r| (count + 1, sum + r.shown()));
        // A single row says more than "1 other cause", on the same number of lines.
        let folds = rest.0 > 1;
        let _ = writeln!(o, "\nWhere the time went (all threads, on and off the CPU)");
        let _ = writeln!(
            o,
            "  {:<34} {:>10} {:>7} {:>9} {:>10}",
            "time", "total", "share", "count", "longest"
        );
        for row in self.rows.iter().filter(has_time).filter(|r| !folds || !is_small(r)) {
            let share = share(row.shown());
            let count = row.count.map(|count| count.saturating_sub(row.idle.0));
            let line = format!(
                "  {:<34} {:>10} {share:>6.1}% {:>9} {:>10}",
                row.what,
                time(row.shown()),
                count.map_or(String::new(), number),
                row.max.map_or(String::new(), time)
            );
            let _ = writeln!(o, "{}", visible(line.trim_end()));
        }
        if folds {
            let what = format!("{} other causes", rest.0);
            let _ = writeln!(o, "  {what:<34} {:>10} {:>6.1}%", time(rest.1), share(rest.1));
        }
        if self.idle_threads > 0 {
            let what =
                counted(self.idle_threads, "thread that never ran", "threads that never ran");
            let idle: Duration = self.rows.iter().map(|r| r.idle.1).sum();
            let mut causes: Vec<&TimeRow> =
                self.rows.iter().filter(|r| !r.idle.1.is_zero()).collect();
            causes.sort_by_key(|r| std::cmp::Reverse(r.idle.1));
            let causes: Vec<&str> = causes.into_iter().map(|r| r.what).collect();
            let _ = writeln!(o, "  {what:<34} {:>10}  {}", time(idle), visible(&causes.join("; ")));
        }
    }

    /// Appends the longest waits with their stacks.
    pub(super) fn write_pairs(&self, o: &mut String) {
        if self.pairs.is_empty() {
            return;
        }
        let _ = writeln!(o, "\nLongest waits, with the stacks that ended them");
        for pair in &self.pairs {
            let _ = writeln!(o, "  {}", visible(&pair.title));
            let stack: Vec<&str> = pair.stack.iter().map(String::as_str).collect();
            let waker: Vec<&str> = pair.waker.iter().map(String::as_str).collect();
            let mut text = Vec::new();
            // Memory takes everything.
            let _ = write_beside(&mut text, &stack, (&pair.by, &waker));
            o.push_str(&String::from_utf8_lossy(&text));
        }
    }
}

impl TimeRow {
    /// Its time without that of threads that never ran.
    fn shown(&self) -> Duration {
        self.total.saturating_sub(self.idle.1)
    }
}

/// Waits of threads that never ran, where others did: those of a pool that nothing was asked of.
/// They are longer than all others together, and no part of what the program does.
#[derive(Debug, Default)]
pub(super) struct IdleWaits {
    threads: u64,
    causes: FxHashMap<OffCpuCause, (u64, u64)>,
}

impl IdleWaits {
    /// Number and time of those of a cause.
    fn of(&self, cause: OffCpuCause) -> (u64, Duration) {
        let (count, nanos) = self.causes.get(&cause).copied().unwrap_or_default();
        (count, Duration::from_nanos(nanos))
    }

    /// Time of those of a cause, in nanoseconds.
    pub(super) fn nanos(&self, cause: OffCpuCause) -> u64 {
        self.causes.get(&cause).map_or(0, |(_, nanos)| *nanos)
    }
}

pub(super) fn idle_waits(table: &WaitTable, running: u64, ran: &dyn Fn(u32) -> bool) -> IdleWaits {
    let mut idle = IdleWaits::default();
    if running == 0 {
        return idle;
    }
    for (_, causes) in table.threads.iter().filter(|(tid, _)| !ran(**tid)) {
        // Who never ran waits for one thing; for a CPU it would have been able to run.
        if let [(cause, nanos)] = causes[..]
            && !cause.is_runnable()
        {
            idle.threads += 1;
            let (count, sum) = idle.causes.entry(cause).or_default();
            (*count, *sum) = (*count + 1, sum.saturating_add(nanos));
        }
    }
    idle
}

/// Waits of one cause in one stack, with who ended most of their time.
struct StackWaits {
    cause: OffCpuCause,
    stack: StackNode,
    waker: Option<WakerId>,
    cell: OffCpuCell,
}

/// Waits of blocked tasks by stack, the largest total first.
fn stacks_of_waits(table: &WaitTable) -> Vec<StackWaits> {
    let mut places: FxHashMap<(OffCpuCause, StackNode), usize> = FxHashMap::default();
    let mut all: Vec<StackWaits> = Vec::new();
    for ((cause, stack, waker), cell) in table.cells.iter().filter(|((c, ..), _)| !c.is_idle()) {
        let Some(stack) = stack.filter(|_| !cause.is_runnable()) else { continue };
        let at = *places.entry((*cause, stack)).or_insert(all.len());
        match all.get_mut(at) {
            // Cells come with the largest first.
            Some(known) => {
                known.waker = known.waker.or(*waker);
                known.cell.count += cell.count;
                known.cell.total = known.cell.total.saturating_add(cell.total);
                known.cell.max = known.cell.max.max(cell.max);
            }
            None => all.push(StackWaits { cause: *cause, stack, waker: *waker, cell: *cell }),
        }
    }
    all.sort_by_key(|w| std::cmp::Reverse(w.cell.total));
    all
}

fn names(table: &WaitTable, stack: Option<StackNode>) -> Vec<String> {
    let names = stack.map_or_else(Vec::new, |s| table.stacks.names(s));
    names.into_iter().map(str::to_owned).collect()
}

/// Functions that the sentence names.
const NAMED: usize = 5;

/// The innermost functions of the program that have names of their own: those that wait for
/// everybody say nothing.
fn functions(table: &WaitTable, stack: StackNode) -> String {
    let frames = table.stacks.frames(stack).filter(|f| !table.stacks.is_kernel(*f));
    let names: Vec<&str> = frames.map(|f| table.stacks.frame_name(f)).collect();
    let is_library = |n: &str| {
        n.starts_with(['[', '_'])
            || n.contains('@')
            || n.starts_with("pthread_")
            || ["syscall", "epoll_wait", "poll", "select", "main"].contains(&n)
    };
    let own: Vec<&str> = names.iter().copied().filter(|n| !is_library(n)).take(NAMED).collect();
    let named = if own.is_empty() { names.first().into_iter().copied().collect() } else { own };
    let named: Vec<String> = named.iter().map(|n| shown(n.as_bytes())).collect();
    named.join(" < ")
}

/// The cause that most time went to, of threads that ran: those of a pool that nothing was asked
/// of sleep all the time.
fn largest_cause(table: &WaitTable, ran: &dyn Fn(u32) -> bool) -> Option<OffCpuCause> {
    let mut sums: Vec<(OffCpuCause, u64)> = Vec::new();
    for (cause, nanos) in table.threads.iter().filter(|(tid, _)| ran(**tid)).flat_map(|t| t.1) {
        // Waits for a CPU are one cause, however they begin.
        let cause = if cause.is_runnable() { &OffCpuCause::Woken } else { cause };
        match sums.iter_mut().find(|(known, _)| known == cause) {
            Some((_, sum)) => *sum = sum.saturating_add(*nanos),
            None => sums.push((*cause, *nanos)),
        }
    }
    sums.retain(|(_, nanos)| *nanos > 0);
    let most = sums.into_iter().max_by_key(|(cause, nanos)| (!cause.is_idle(), *nanos, *cause));
    most.or(table.largest()).map(|(cause, _)| cause)
}

fn largest_text(table: &WaitTable, cause: OffCpuCause, ran: &dyn Fn(u32) -> bool) -> String {
    if cause.is_runnable() {
        return "for a CPU".to_owned();
    }
    let mut sums: FxHashMap<StackNode, u64> = FxHashMap::default();
    for ((of, stack), cell) in table.thread_waits.iter().filter(|(t, _)| ran(**t)).flat_map(|t| t.1)
    {
        if let (true, Some(stack)) = (*of == cause, stack) {
            *sums.entry(*stack).or_default() += cell.total;
        }
    }
    let most = sums.into_iter().max_by_key(|(stack, nanos)| (*nanos, *stack)).map(|most| most.0);
    let all = || stacks_of_waits(table).into_iter().find(|w| w.cause == cause).map(|w| w.stack);
    text_of(table, cause, most.or_else(all))
}

/// A cause with its object and the functions of the program that wait.
fn text_of(table: &WaitTable, cause: OffCpuCause, stack: Option<StackNode>) -> String {
    let names = stack.map_or_else(Vec::new, |stack| table.stacks.names(stack));
    let object = names.first().and_then(|name| name.strip_prefix("[futex ")?.strip_suffix(']'));
    let object = object.map_or_else(String::new, |name| format!(" {}", shown(name.as_bytes())));
    let place = stack.map_or_else(String::new, |stack| functions(table, stack));
    let place = if place.is_empty() { place } else { format!(", in {place}") };
    format!("{}{object}{place}", cause.text().replace("blocked: ", "blocked on "))
}

fn pair(table: &WaitTable, wait: &StackWaits) -> WaitPair {
    let StackWaits { cause, stack, waker, cell } = wait;
    let waker = waker.and_then(|w| table.waker(w));
    let by = match waker {
        Some(w) => match w.context.text() {
            Some(interrupt) => format!("ended by {interrupt}, in"),
            None => format!("ended by {}, in", shown(&w.comm)),
        },
        None => String::new(),
    };
    let json = json!({
        "cause": cause.code(),
        "count": cell.count,
        "total_ns": cell.total,
        "max_ns": cell.max,
        "stack": names(table, Some(*stack)),
        "waker": waker.map(|w| json!({
            "comm": String::from_utf8_lossy(&w.comm),
            "context": w.context.code(),
            "stack": names(table, w.stack),
        })),
    });
    WaitPair {
        json,
        title: format!(
            "{}: {} in {}, at most {}",
            cause.text(),
            time(Duration::from_nanos(cell.total)),
            waits(cell.count),
            time(Duration::from_nanos(cell.max)),
        ),
        stack: names(table, Some(*stack)),
        by,
        waker: names(table, waker.and_then(|w| w.stack)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_small_cause_is_not_folded() {
        let row = |what: &'static str, millis: u64| TimeRow {
            what,
            code: what,
            total: Duration::from_millis(millis),
            count: Some(1),
            max: None,
            idle: <(u64, Duration)>::default(),
        };
        let text = |rows: Vec<TimeRow>| {
            let mut text = String::new();
            WaitSection { rows, ..WaitSection::default() }.write(&mut text, 0.01);
            text
        };
        let one = text(vec![row("running", 1000), row("disk", 500), row("pipe", 1)]);
        assert!(one.contains("\n  pipe ") && !one.contains("other cause"), "{one}");
        let two = text(vec![row("running", 1000), row("pipe", 1), row("poll", 2)]);
        assert!(two.contains("\n  2 other causes ") && !two.contains("pipe"), "{two}");
    }
}

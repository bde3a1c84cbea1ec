//! Running the command, keeping the time, printing.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kymo_kernel::events::Source;
use kymo_kernel::perf_event::FOR_THE_KERNELS_SIDE;
use kymo_kernel::process::{Exit, GatedChild, Signal, Signals, local_time};
use kymo_kernel::target;
use kymo_model::{EventType, Note, NoteKind, Weight, sw};
use kymo_view::Ledger;

use super::counters::{Counter, Counters, Manner, Place};
use super::metric_only;
use super::plan::{Delay, Output, Plan, Target};
use super::print::{Form, Reading, interval_header, lines};
use super::rows::{Own, Repeated, Row, Spread, State, rows};

/// Interval text repeats its header after so many readings.
const HEADER_EVERY: u64 = 25;
/// How often to look whether the counted tasks still run.
const ALIVE_EVERY: Duration = Duration::from_millis(50);

/// How a run ended.
struct Ended {
    exit: Option<Exit>,
    signal: Option<Signal>,
    timed_out: bool,
    elapsed: Duration,
}

/// What stays the same over the runs.
struct Session<'a> {
    plan: &'a Plan,
    signals: Signals,
    out: Box<dyn Write>,
    ledger: Ledger,
    readings: u64,
    /// Seconds of each run, for `--table`.
    times: Vec<f64>,
}

/// How a run of `stat` came to its end.
pub(super) enum Finished {
    Status(ExitCode),
    /// It was asked to end, and has done what it had to.
    Signal(Signal),
}

pub(super) fn run(plan: Plan) -> anyhow::Result<Finished> {
    let signals = Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup, Signal::Child])
        .context("cannot listen for signals")?;
    let out = open_output(&plan)?;
    let mut ledger = Ledger::default();
    if plan.all_overridden {
        ledger.tell(NoteKind::Target, "-a is left out: -p and -t choose whom to count", None);
    }
    let mut session = Session { plan: &plan, signals, out, ledger, readings: 0, times: Vec::new() };
    let (mut repeated, mut elapsed) = (Repeated::default(), Spread::default());
    let mut done = 0;
    let ended = loop {
        let (ended, rows) = match session.run_once(done + 1) {
            Ok(run) => run,
            Err(e) => {
                let Some(status) = e
                    .downcast_ref::<kymo_kernel::process::SpawnError>()
                    .map(kymo_kernel::process::SpawnError::shell_status)
                else {
                    return Err(e);
                };
                sayln!("kymo: {e:#}");
                return Ok(Finished::Status(ExitCode::from(status)));
            }
        };
        done += 1;
        elapsed.add(ended.elapsed.as_secs_f64());
        if plan.table {
            session.times.push(ended.elapsed.as_secs_f64());
        }
        if plan.interval.is_none() || plan.summary {
            if plan.runs == 1 || plan.runs == 0 {
                session.print(&rows, &ended, None)?;
            } else {
                repeated.add(rows);
            }
        }
        if ended.signal.is_some() || (plan.runs != 0 && done >= plan.runs) {
            break ended;
        }
    };
    if plan.runs > 1 && plan.interval.is_none() {
        session.print(&repeated.rows(), &ended, Some((done, elapsed)))?;
    }
    let Session { signals, mut out, ledger, .. } = session;
    out.flush().context("cannot write the result")?;
    drop(out);
    drop(signals);
    finish(&plan, &ended, &ledger)
}

fn finish(plan: &Plan, ended: &Ended, ledger: &Ledger) -> anyhow::Result<Finished> {
    let mut err = std::io::stderr().lock();
    err.write_all(notes(plan, ledger).as_bytes())?;
    err.flush()?;
    if let Some(signal) = ended.signal {
        return Ok(Finished::Signal(signal));
    }
    let status = match ended.exit {
        // The command was ended by the time-out, not by a fault of its own.
        Some(exit) if !ended.timed_out => exit.code(),
        _ => 0,
    };
    Ok(Finished::Status(match status {
        0 if plan.strict && ledger.has_doubts() => ExitCode::from(Ledger::STRICT_STATUS),
        status => ExitCode::from(status),
    }))
}

/// The ledger below the result. Lines for programs that share standard error with
/// it say `<not supported>` themselves, and what else there is stands in comments.
fn notes(plan: &Plan, ledger: &Ledger) -> String {
    let for_programs = !matches!(plan.form, Form::Text { .. });
    match plan.output {
        Output::Stderr if for_programs && !plan.quiet => {
            let mut doubts = Ledger::default();
            let doubt = |n: &&Note| n.weight == Weight::Doubt;
            ledger.notes().iter().filter(doubt).for_each(|n| doubts.push(n.clone()));
            doubts.to_text("# ")
        }
        _ => ledger.to_text(""),
    }
}

fn open_output(plan: &Plan) -> anyhow::Result<Box<dyn Write>> {
    if plan.quiet {
        return Ok(Box::new(std::io::sink()));
    }
    let mut out: Box<dyn Write> = match &plan.output {
        Output::Stderr => return Ok(Box::new(std::io::stderr())),
        Output::File { path, append } => {
            let mut options = OpenOptions::new();
            options.create(true).write(true).append(*append).truncate(!*append);
            let file =
                options.open(path).with_context(|| format!("cannot write {}", path.display()))?;
            Box::new(file)
        }
        Output::Descriptor(fd) => {
            let path = format!("/proc/self/fd/{fd}");
            let file: File = OpenOptions::new()
                .append(true)
                .open(path)
                .with_context(|| format!("descriptor {fd} of --log-fd is not open for writing"))?;
            Box::new(file)
        }
    };
    if matches!(plan.output, Output::File { .. }) {
        write!(out, "# started on {}\n\n", local_time()).context("cannot write the result")?;
    }
    Ok(out)
}

impl Session<'_> {
    fn run_once(&mut self, number: u32) -> anyhow::Result<(Ended, Vec<Row>)> {
        let plan = self.plan;
        if plan.verbose && plan.runs != 1 {
            sayln!("[ kymo stat: executing run #{number} ... ]");
        }
        if plan.sync {
            // sync(1) of the system; what it cannot do does not spoil the count.
            let _ = std::process::Command::new("sync").status();
        }
        let mut child = match plan.command.as_slice() {
            [] => None,
            command => Some(GatedChild::spawn(command)?),
        };
        let own = child.as_ref().map(GatedChild::pid);
        let tids = match &plan.target {
            Target::Command => own.into_iter().collect(),
            Target::Processes(pids) => target::threads_of_all(pids)?,
            Target::Threads(tids) => {
                tids.iter().try_for_each(|&tid| target::check_thread(tid))?;
                tids.clone()
            }
            Target::AllThreads => target::all_threads()?,
            Target::Machine => Vec::new(),
        };
        let place = match (&plan.target, &plan.cpus) {
            (Target::Machine, cpus) => Place::Cpus(cpus.clone().unwrap_or_default()),
            (_, Some(cpus)) => Place::TasksOn(tids.clone(), cpus.clone()),
            (_, None) => Place::Tasks(tids.clone()),
        };
        let on_exec = plan.target == Target::Command && plan.delay == Delay::None;
        let manner = Manner { inherit: plan.inherit, on_exec };
        let mut counters = Counters::open(&plan.wanted, &place, manner, &mut self.ledger)?;
        counters.start_other()?;

        let mut begun = Instant::now();
        if !on_exec && plan.delay == Delay::None {
            counters.enable()?;
        }
        if let Some(child) = &mut child {
            child.release()?;
        }
        let mut early = None;
        match plan.delay {
            Delay::None => {}
            Delay::Never => sayln!("Events disabled"),
            Delay::For(delay) => {
                sayln!("Events disabled");
                early = self.wait(child.as_mut(), &tids, Some(begun + delay))?;
                counters.start_other()?;
                counters.enable()?;
                begun = Instant::now();
                sayln!("Events enabled");
            }
        }
        let (mut ended, rows) = self.watch(&mut counters, child.as_mut(), &tids, begun, early)?;
        if let Some(child) = &mut child
            && ended.exit.is_none()
            && plan.target == Target::Command
        {
            // The time is over; a Ctrl-C has reached the command as well as us.
            let _ = child.kill(match ended.signal {
                Some(signal) => signal.number(),
                None => Signal::Term.number(),
            });
            ended.exit = Some(child.wait().context("cannot wait for the command")?);
        } else if let Some(child) = &mut child
            && ended.exit.is_none()
        {
            let _ = child.kill(Signal::Term.number());
            let _ = child.wait();
        }
        Ok((ended, rows))
    }

    /// Counts until the end, printing intervals on the way.
    fn watch(
        &mut self,
        counters: &mut Counters,
        mut child: Option<&mut GatedChild>,
        tids: &[u32],
        begun: Instant,
        early: Option<End>,
    ) -> anyhow::Result<(Ended, Vec<Row>)> {
        let plan = self.plan;
        let timeout = plan.timeout.map(|t| begun + t);
        let (mut ticks, mut last) = (0u32, begun);
        let mut over = early;
        loop {
            let tick = plan.interval.map(|i| begun + i * (ticks + 1));
            let until = [tick, timeout].into_iter().flatten().min();
            let end = match over.take() {
                Some(end) => Some(end),
                None => self.wait(child.as_deref_mut(), tids, until)?,
            };
            let now = Instant::now();
            let timed_out = end.is_none() && timeout.is_some_and(|t| now >= t);
            let mut finished = end.is_some() || timed_out;
            if !finished && tick.is_some() {
                ticks += 1;
                finished = plan.interval_count.is_some_and(|n| u64::from(ticks) >= n);
            }
            if finished && plan.target != Target::Command {
                counters.disable()?;
            }
            let elapsed = now - begun;
            let exit = match &end {
                Some(End::Exit(exit)) => Some(*exit),
                _ => None,
            };
            let covered = if plan.interval.is_some() { now - last } else { elapsed };
            counters.read()?;
            last = now;
            let own = Own {
                elapsed_ns: covered.as_nanos() as u64,
                usage: exit.map(|e| e.usage).unwrap_or_default(),
            };
            let rows = rows(counters, plan.by, plan.scale, own);
            self.verbose(counters);
            if plan.interval.is_some() {
                self.print_interval(&rows, elapsed, covered)?;
            }
            if finished {
                let mut rows = rows;
                if plan.interval.is_some() && plan.summary {
                    counters.sum_up();
                    let own = Own { elapsed_ns: elapsed.as_nanos() as u64, ..own };
                    rows = super::rows::rows(counters, plan.by, plan.scale, own);
                }
                self.account(&rows, counters);
                let signal = match end {
                    Some(End::Signal(signal)) => Some(signal),
                    _ => None,
                };
                let ended =
                    Ended { exit, signal, timed_out: exit.is_none() && signal.is_none(), elapsed };
                return Ok((ended, rows));
            }
        }
    }

    /// Waits for the command's end, a signal, or the moment `until`, for which it gives `None`.
    fn wait(
        &self,
        mut child: Option<&mut GatedChild>,
        tids: &[u32],
        until: Option<Instant>,
    ) -> anyhow::Result<Option<End>> {
        let attached = child.is_none() && !tids.is_empty();
        loop {
            while let Some(signal) = self.signals.next().context("cannot read signals")? {
                if signal.is_end() {
                    return Ok(Some(End::Signal(signal)));
                }
            }
            if let Some(child) = child.as_deref_mut()
                && let Some(exit) = child.try_wait().context("cannot wait for the command")?
            {
                return Ok(Some(End::Exit(exit)));
            }
            if attached && !tids.iter().any(|&tid| target::check_thread(tid).is_ok()) {
                return Ok(Some(End::Gone));
            }
            let left = until.map(|t| t.saturating_duration_since(Instant::now()));
            if left.is_some_and(|l| l.is_zero()) {
                return Ok(None);
            }
            let most = if attached {
                Some(left.map_or(ALIVE_EVERY, |l| l.min(ALIVE_EVERY)))
            } else {
                left
            };
            self.signals.wait(most).context("cannot wait")?;
        }
    }

    fn verbose(&self, counters: &Counters) {
        if !self.plan.verbose {
            return;
        }
        for counter in &counters.list {
            let name = &counter.wanted.spec.name;
            if !counter.supported {
                sayln!("{name}: not supported");
            }
            for cell in counter.cells.iter().filter(|_| counter.supported) {
                let c = cell.count;
                sayln!("{name}: {} {} {}", c.value, c.enabled, c.running);
            }
        }
    }

    fn print_interval(
        &mut self,
        rows: &[Row],
        elapsed: Duration,
        covered: Duration,
    ) -> anyhow::Result<()> {
        let mut text = String::new();
        let reading = self.reading(Some(elapsed.as_secs_f64()), covered);
        let is_text = matches!(self.plan.form, Form::Text { .. });
        if is_text && self.readings.is_multiple_of(HEADER_EVERY) || self.readings == 0 {
            match (self.plan.metric_only, is_text) {
                (true, _) => text.push_str(&metric_only::header(rows, reading)),
                (false, true) => text.push_str(interval_header(self.plan.by)),
                (false, false) => {}
            }
        }
        text.push_str(&lines(rows, reading));
        self.readings += 1;
        self.write(&text)
    }

    fn reading(&self, interval: Option<f64>, covered: Duration) -> Reading<'_> {
        Reading {
            form: &self.plan.form,
            by: self.plan.by,
            interval,
            summary: self.plan.interval.is_some() && interval.is_none() && self.plan.csv_summary,
            metric_only: self.plan.metric_only,
            elapsed_ns: covered.as_nanos() as f64,
        }
    }

    fn print(
        &mut self,
        rows: &[Row],
        ended: &Ended,
        repeated: Option<(u32, Spread)>,
    ) -> anyhow::Result<()> {
        let covered =
            repeated.map_or(ended.elapsed, |(_, s)| Duration::from_secs_f64(s.mean().max(0.0)));
        let reading = self.reading(None, covered);
        let mut body = lines(rows, reading);
        if self.plan.metric_only && self.plan.interval.is_none() {
            body.insert_str(0, &metric_only::header(rows, reading));
        }
        if !matches!(self.plan.form, Form::Text { .. }) {
            return self.write(&body);
        }
        let runs = repeated.map_or_else(String::new, |(n, _)| format!(" ({n} runs)"));
        let mut text =
            format!("\n Performance counter stats for {}{runs}:\n\n{body}\n", self.plan.title);
        if rows.is_empty() {
            text.truncate(text.len() - 1);
        }
        if let Some((_, spread)) = repeated {
            text.push_str(&table(&self.times, spread));
        }
        text.push_str(&footer(self.plan, ended, repeated));
        self.write(&text)
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.out.write_all(text.as_bytes()).context("cannot write the result")
    }

    /// Notes what lessens the trust in these rows.
    fn account(&mut self, rows: &[Row], counters: &Counters) {
        let unsupported: Vec<&str> = counters
            .list
            .iter()
            .filter(|c| !c.supported)
            .map(|c| c.wanted.spec.name.as_str())
            .collect();
        if !unsupported.is_empty() {
            let fact = format!(
                "{} of {} events: {}",
                unsupported.len(),
                counters.list.len(),
                unsupported.join(", ")
            );
            let advice = Some("`kymo list` shows what this machine can count".into());
            // What the user did not name is not missing from what was asked for.
            self.ledger.push(match self.plan.default_events {
                true => Note::choice(NoteKind::NotSupported, fact, advice),
                false => Note::doubt(NoteKind::NotSupported, fact, advice),
            });
        }
        self.account_user_only(counters);
        for row in rows {
            match row.state {
                State::NotCounted if self.plan.interval.is_none() => self.ledger.note(
                    NoteKind::NotCounted,
                    format!("{} never ran while it was counted", row.name),
                    None,
                ),
                State::Counted if row.running < row.enabled => self.ledger.note(
                    NoteKind::Multiplexed,
                    format!(
                        "{} was counted {:.2}% of the time and scaled up",
                        row.name,
                        row.share()
                    ),
                    Some("name fewer events at once".into()),
                ),
                _ => {}
            }
        }
        let of_all: Vec<&str> = counters
            .list
            .iter()
            .filter(|c| matches!(c.wanted.spec.source, Source::Vmstat(_)))
            .map(|c| c.wanted.spec.name.as_str())
            .collect();
        if self.plan.target != Target::Machine && !of_all.is_empty() {
            let is = if of_all.len() == 1 { "is" } else { "are" };
            let fact = format!("{} {is} of the whole machine", of_all.join(", "));
            self.ledger.note(NoteKind::Scope, fact, None);
        }
    }

    /// Notes events whose kernel side could not be had.
    fn account_user_only(&mut self, counters: &Counters) {
        let limited: Vec<&Counter> =
            counters.list.iter().filter(|c| c.supported && c.user_only.is_some()).collect();
        let Some(level) = limited.first().and_then(|c| c.user_only) else { return };
        let mut fact = format!(
            "{} of {} events are counted in user space only: kernel.perf_event_paranoid is {level}",
            limited.len(),
            counters.list.len()
        );
        // They happen in the kernel alone, so that the zero of :u says nothing.
        let always_zero = |c: &&&Counter| {
            let attr = &c.wanted.spec.attr;
            attr.kind == EventType::SOFTWARE
                && [sw::CONTEXT_SWITCHES, sw::CPU_MIGRATIONS].contains(&attr.config)
        };
        let zero: Vec<&str> =
            limited.iter().filter(always_zero).map(|c| c.wanted.spec.name.as_str()).collect();
        if !zero.is_empty() {
            fact.push_str(&format!(" ({} cannot be seen from there)", zero.join(", ")));
        }
        self.ledger.note(NoteKind::UserOnly, fact, Some(FOR_THE_KERNELS_SIDE.into()));
    }
}

/// Why waiting ended before its time.
enum End {
    Exit(Exit),
    Signal(Signal),
    /// Every task that was attached to has ended.
    Gone,
}

/// So many digits that two of the error's are shown.
fn digits(error: f64) -> usize {
    let digits = if error > 0.0 && error < 1.0 { (-error.log10()).ceil() as usize + 2 } else { 2 };
    digits.min(12)
}

/// The time of each run with its distance from the mean; nothing without `--table`.
fn table(times: &[f64], spread: Spread) -> String {
    if times.is_empty() {
        return String::new();
    }
    let (mean, digits) = (spread.mean(), digits(spread.error()));
    let mut text = String::from("          # Table of individual measurements:\n");
    for run in times {
        let bar = "#".repeat(1 + ((100.0 * (run - mean) / run) as i64 / 5).unsigned_abs() as usize);
        text.push_str(&format!(" {run:17.digits$} ({:+.digits$}) {bar}\n", run - mean));
    }
    text + "\n          # Final result:\n"
}

/// The times below the counts.
fn footer(plan: &Plan, ended: &Ended, repeated: Option<(u32, Spread)>) -> String {
    if let Some((_, elapsed)) = repeated {
        let (mean, error) = (elapsed.mean(), elapsed.error());
        let digits = digits(error);
        return format!(
            " {mean:17.digits$} +- {error:.digits$} seconds time elapsed  ( +-{:6.2}% )\n\n",
            elapsed.percent()
        );
    }
    let mut text = format!(" {:17.9} seconds time elapsed\n\n", ended.elapsed.as_secs_f64());
    if let Some(exit) = ended.exit
        && plan.target == Target::Command
    {
        text.push_str(&format!(
            " {:17.9} seconds user\n {:17.9} seconds sys\n\n\n",
            exit.usage.user.as_secs_f64(),
            exit.usage.system.as_secs_f64()
        ));
    }
    text
}

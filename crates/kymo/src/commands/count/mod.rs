//! `kymo count`: events counted and measured in the kernel, by flags. The flags become a
//! program of `kymo run`'s language, which `--show-program` shows. `programs` has the counters
//! inside programs (`-u`), `program_events` the events of programs' own tracepoints.

mod program_events;
mod programs;

use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_bpf::{
    CountMeasure, CountProgram, CountRequest, CountedTasks, GONE_TASKS, SourceMessage,
    is_probe_type, write_count_program,
};
use kymo_events::note_blocked;
use kymo_kernel::blocked::BlockedThreads;
use kymo_kernel::events::Catalog;
use kymo_kernel::probe_events::ProbeFile;
use kymo_kernel::process::{Signal, Signals};
use kymo_kernel::target;
use kymo_kernel::terminal_output;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::{Note, NoteKind};
use kymo_probe::bench::{ProbedInstruction, hit_cost};
use kymo_programs::{
    InterpretedProgram, MachineFacts, PrintedMap, ProgramError, ProgramOptions, ProgramSinks,
    RunningProgram, compile_program, measure_costs,
};
use kymo_record::Target;
use kymo_view::Ledger;
use kymo_view::event_counts::{CountedMap, EventCounts};

use crate::args::targets::note_kernel_numbers;
use crate::args::values::{Ring, millis, ring};
use crate::commands::program_run::ring_run::{RingRun, RingScope, UserSpaceReason};
use crate::commands::program_run::{RunTarget, follow_program, percent, say_costs};

/// Flags of `kymo count`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Fields are those of the event (see kymo list -v EVENT), and comm, pid, tid, cpu, uid, cgroup, stack,
ustack and event. Keys of type char * are read as strings; use str(FIELD) elsewhere and for buffers.

EXAMPLES
  kymo count -e raw_syscalls:sys_enter --by comm --top 10
  kymo count -e sched:sched_switch --by stack -- make
  kymo count -e 'syscalls:sys_enter_*' -i 1000 --top 5
  kymo count -e raw_syscalls:sys_enter --by args.id -p 1234 --timeout 5000
  kymo count -e block:block_rq_issue --hist bytes --by comm
  kymo count --latency 'sched:sched_wakeup -> sched:sched_switch by args.pid = next_pid'
  kymo count -e syscalls:sys_exit_read --sum ret --filter 'ret > 0' -- cat /etc/hosts
  kymo count -e shop:sale --hist id --by payment -- ./shop
  kymo count --latency 'shop:begin -> shop:end by id' -- ./shop
  kymo count -u
  kymo count -u 'shop:*' --by pid -i 1000
  kymo count -u -- make test")]
pub(crate) struct Args {
    /// Events: SYSTEM:NAME with wildcards, software events, probes (kprobe:vfs_read), or user-space
    /// tracepoints PROVIDER:NAME (ust:PROVIDER:NAME if ambiguous)
    #[arg(short = 'e', long, value_name = "EVENT", value_delimiter = ',')]
    event: Vec<String>,
    /// Show counters and histograms in programs (PROVIDER:NAME with * and ?) [default: all]; with a
    /// command or -i, their changes
    #[arg(short = 'u', long = "user-event", value_name = "PROVIDER:NAME", value_delimiter = ',',
          num_args = 0..=1, default_missing_value = "*",
          conflicts_with_all = ["event", "filter", "Measure", "show_program", "no_bpf"])]
    user_events: Option<Vec<String>>,
    /// With -u: afterwards remove counters of killed programs
    #[arg(long, requires = "user_events")]
    forget: bool,
    /// Count only events with matching fields
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Count by these fields; with -u: pid or comm
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    by: Vec<String>,
    #[command(flatten)]
    measure: Measure,
    /// Maximum number of entries, largest first; 0: all
    #[arg(long, value_name = "N", default_value = "20")]
    top: u32,
    /// Show the counts of each interval of MS milliseconds
    #[arg(short = 'i', long, value_name = "MS")]
    interval: Option<u64>,
    /// Stop after MS milliseconds
    #[arg(long, value_name = "MS", value_parser = millis, conflicts_with_all = ["user_events", "command"])]
    timeout: Option<Duration>,
    /// Count events of this process
    #[arg(short = 'p', long, value_name = "PID")]
    pid: Option<u32>,
    /// Count events of all processes while the command runs
    #[arg(short = 'a', long)]
    all: bool,
    /// Count in user space, without BPF, as for users without permission
    #[arg(long)]
    no_bpf: bool,
    /// Report the current rate and the estimated cost of each probe before attaching
    #[arg(long, conflicts_with = "user_events")]
    preflight: bool,
    /// Detach if the BPF programs use more than PERCENT of a CPU
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "user_events")]
    budget: Option<f64>,
    /// Size of each ring buffer, in pages or with a suffix B, K, M, G
    #[arg(short = 'm', long, value_name = "PAGES|SIZE", value_parser = ring)]
    mmap_pages: Option<Ring>,
    /// Print a JSON object, or one per line for each interval
    #[arg(long)]
    json: bool,
    /// Show the generated program without running it
    #[arg(long)]
    show_program: bool,
    /// Exit with status 3 if anything was lost
    #[arg(long)]
    strict: bool,
    /// Command to run and count, with its children (-a: count all processes)
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Measured value, if not the number of events.
#[derive(clap::Args, Default)]
#[group(multiple = false)]
struct Measure {
    /// Histogram of a field with power-of-two buckets
    #[arg(long, value_name = "FIELD")]
    hist: Option<String>,
    /// Histogram of a field with equal buckets
    #[arg(long, value_name = "FIELD:FROM:TO:STEP")]
    lhist: Option<String>,
    /// Sum of a field
    #[arg(long, value_name = "FIELD")]
    sum: Option<String>,
    /// Average of a field
    #[arg(long, value_name = "FIELD")]
    avg: Option<String>,
    /// Smallest value of a field
    #[arg(long, value_name = "FIELD")]
    min: Option<String>,
    /// Largest value of a field
    #[arg(long, value_name = "FIELD")]
    max: Option<String>,
    /// Count, average and sum of a field
    #[arg(long, value_name = "FIELD")]
    stats: Option<String>,
    /// Time between two events: 'A -> B by KEY' or 'A -> B by KEY = KEY'
    #[arg(long, value_name = "A -> B by KEY")]
    latency: Option<String>,
}

impl Measure {
    fn meant(self) -> anyhow::Result<CountMeasure> {
        use CountMeasure as M;
        if let Some(text) = self.lhist {
            let parts: Vec<&str> = text.split(':').collect();
            let [field, from, to, step] = parts.as_slice() else {
                bail!("--lhist takes FIELD:FROM:TO:STEP, not {text:?}");
            };
            let number = |text: &str| {
                text.parse::<i64>().with_context(|| format!("--lhist: not a number: {text:?}"))
            };
            return Ok(M::LinearHistogram(
                (*field).to_owned(),
                number(from)?,
                number(to)?,
                number(step)?,
            ));
        }
        let choices = [
            self.hist.map(M::Histogram),
            self.sum.map(M::Sum),
            self.avg.map(M::Average),
            self.min.map(M::Minimum),
            self.max.map(M::Maximum),
            self.stats.map(M::Statistics),
            self.latency.map(M::Latency),
        ];
        Ok(choices.into_iter().flatten().next().unwrap_or_default())
    }
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    if args.user_events.is_some() {
        return programs::run(&args);
    }
    let tasks = match (args.pid, args.command.is_empty() || args.all) {
        (Some(pid), _) => CountedTasks::Process(pid),
        (None, true) => CountedTasks::All,
        (None, false) => CountedTasks::Command,
    };
    let request = CountRequest {
        events: std::mem::take(&mut args.event),
        filter: args.filter.take(),
        by: std::mem::take(&mut args.by),
        measure: std::mem::take(&mut args.measure).meant()?,
        tasks,
        in_own_rings: args.no_bpf,
        interval_ms: args.interval,
        top: args.top,
    };
    check_names(&request.events)?;
    if let Some(names) = program_events::names(&request.events, &request.measure)? {
        return program_events::run(&args, request, &names);
    }
    let CountProgram { text, keys } = count_program(&request, args.timeout)?;
    if args.show_program {
        crate::streams::stdout().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let tids = args.pid.and_then(|pid| target::threads_of_all(&[pid]).ok()).unwrap_or_default();
    let blocked = BlockedThreads::of(&tids);
    let opening = CountOpening {
        request: &request,
        pid: args.pid,
        command: &args.command,
        timeout: args.timeout,
        pages: args.mmap_pages.map(|ring| ring.0),
        facts: MachineFacts::new(args.pid),
        preflight: args.preflight,
        budget: args.budget,
    };
    let (counting, mut target) = match args.no_bpf {
        true if args.preflight || args.budget.is_some() => bail!("{KERNEL_ONLY}"),
        true => opening.in_rings(UserSpaceReason::wanted(), None)?,
        false => opening.open(&text)?,
    };
    let end = Cell::new(None);
    // Timers run since then, whatever else was looked for since.
    let attached_at = match &counting {
        Counting::Kernel(run) => run.0.attached_at,
        Counting::Rings { .. } => None,
    };
    let mut screen = CountScreen {
        end: &end,
        request: &request,
        keys: &keys,
        is_json: args.json,
        columns: terminal_output::output_columns(),
        begin: attached_at.unwrap_or_else(Instant::now),
        maps: Vec::new(),
        earlier: CountedMap::default(),
        shortest: None,
    };
    let mut listen = |map: PrintedMap<'_>| screen.take(map);
    let (mut output, mut diagnostics) = (io::sink(), crate::streams::stderr());
    let mut sinks = ProgramSinks {
        output: &mut output,
        diagnostics: &mut diagnostics,
        maps: Some(&mut listen),
    };
    let summary = match counting {
        Counting::Kernel(run) => {
            let (running, signals) = *run;
            let running = follow_program(running, &mut target, &signals, &mut sinks)?;
            end.set(Some(Instant::now()));
            // From here on a second Ctrl-C ends immediately.
            drop(signals);
            running.finish(&mut sinks)?
        }
        Counting::Rings { run, reason, notes } => {
            let mut summary = run.follow(&mut target, &reason, &mut sinks, &end)?;
            summary.notes.splice(0..0, notes);
            summary
        }
    };
    let status = target.end().unwrap_or(summary.status);
    let mut notes = summary.notes;
    let may_count_gone = |e: &String| e.contains('*') || GONE_TASKS.ends_with(e.trim());
    if request.tasks == CountedTasks::Command && !request.events.iter().any(may_count_gone) {
        notes.retain(|note| !note.fact.starts_with(GONE_TASKS));
    }
    let idle = note_idle(&blocked, tids.len());
    let is_empty = screen.maps.iter().all(|map| map.entries.is_empty());
    // Of probes of programs, the run has noted it.
    let is_noted = notes.iter().any(|note| note.kind == NoteKind::Scope);
    let scope = note_children(args.pid.filter(|_| !is_noted), is_empty).into_iter();
    let scope = scope.chain(request.filter.as_ref().and_then(|_| note_kernel_numbers()));
    let cautions = opening.facts.cautions();
    let notes = notes.into_iter().chain(idle).chain(scope).chain(cautions);
    let ledger = Ledger::from_notes(notes.chain(screen.note_probe_cost()));
    screen.finish(&ledger)?;
    Ok(crate::exit::of_command(Some(status), &ledger, args.strict))
}

/// Note on a process of this number of threads that were all blocked all the time: calls in
/// progress have no event.
fn note_idle(blocked: &BlockedThreads, threads: usize) -> Option<Note> {
    let mut unmoved = blocked.clone();
    unmoved.retain_unmoved();
    let is_idle = threads > 0 && unmoved.threads().len() == threads;
    note_blocked(blocked, false).filter(|_| is_idle)
}

/// Note on children of the process, which are not counted: where there are some, or nothing was.
fn note_children(pid: Option<u32>, is_empty: bool) -> Option<Note> {
    let pid = pid?;
    let has_children = target::with_descendants(&[pid]).is_ok_and(|all| all.len() > 1);
    let fact = format!("children of process {pid} are not counted");
    let advice = format!("kymo stat -p {pid} also counts those that start later");
    (has_children || is_empty).then(|| Note::choice(NoteKind::Scope, fact, Some(advice)))
}

/// Refuses names that are no event of the kernel and much like one: `ust:` in front names those of
/// programs.
fn check_names(events: &[String]) -> anyhow::Result<()> {
    let catalog = Catalog::open();
    for name in events.iter().map(|name| name.trim()) {
        let is_plain = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_:-".contains(c));
        let parts: Vec<&str> = name.split(':').collect();
        let is_probe = parts.len() > 1 && is_probe_type(parts[0]);
        if !is_plain || is_probe || parts.len() > 2 || catalog.parse(name).is_ok() {
            continue;
        }
        let near = catalog.tracepoints_like(name);
        if let [first, rest @ ..] = near.as_slice() {
            let or = rest.iter().map(|name| format!(" or {name}")).collect::<String>();
            bail!("no event is called {name}; did you mean {first}{or}?");
        }
    }
    Ok(())
}

/// The program that counts, and ends by itself where a time is given.
fn count_program(
    request: &CountRequest,
    timeout: Option<Duration>,
) -> anyhow::Result<CountProgram> {
    let mut program = write_count_program(request).map_err(anyhow::Error::msg)?;
    if let Some(timeout) = timeout {
        program.text.push_str(&format!("interval:ms:{} {{ exit(); }}\n", timeout.as_millis()));
    }
    Ok(program)
}

/// A count that waits for its start.
enum Counting {
    Kernel(Box<(RunningProgram, Signals)>),
    Rings { run: Box<RingRun>, reason: UserSpaceReason, notes: Vec<Note> },
}

/// Arguments of a count: the request and its target.
struct CountOpening<'a> {
    request: &'a CountRequest,
    pid: Option<u32>,
    command: &'a [OsString],
    timeout: Option<Duration>,
    pages: Option<usize>,
    facts: MachineFacts,
    preflight: bool,
    budget: Option<f64>,
}

const KERNEL_ONLY: &str = "--preflight and --budget are for programs that run in the kernel";

impl CountOpening<'_> {
    fn options(&self, target: &RunTarget, in_user_space: bool) -> ProgramOptions {
        ProgramOptions {
            name: "count".into(),
            pid: self.pid,
            child_pid: target.child_pid(),
            in_user_space,
            ..ProgramOptions::default()
        }
    }

    /// Returns the reason if only the events that follow the command cannot be read.
    fn of_formats(&self) -> Option<UserSpaceReason> {
        let follows = self.request.tasks == CountedTasks::Command;
        UserSpaceReason::of_formats().filter(|_| follows)
    }

    /// In the kernel, or where that runs no programs, in rings.
    fn open(&self, text: &str) -> anyhow::Result<(Counting, RunTarget)> {
        let target = RunTarget::of_words(self.pid, self.command)?;
        let options = self.options(&target, false);
        let mut program = match compile_program(text, &options, &self.facts) {
            Ok(program) => program,
            // The formats of the events that follow a command may not be readable.
            Err(error) => match UserSpaceReason::of_refusal().or_else(|| self.of_formats()) {
                Some(reason) => return self.in_rings(reason, Some(target)),
                None => return Err(explain(&error)),
            },
        };
        // Lines of a program that the user has not seen say nothing.
        program.error_sites.iter_mut().for_each(|site| site.position.line = 0);
        let ends = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];
        let signals = Signals::listen(&ends).context("cannot listen for signals")?;
        if self.preflight {
            let costs = measure_costs(&program, &options, &self.facts, Duration::from_secs(1));
            say_costs(&costs.map_err(|e| explain(&e))?, self.budget);
        }
        let error = match RunningProgram::start(program, &options, &self.facts) {
            Ok(mut running) => {
                if let Some(percent) = self.budget {
                    let set = running.set_budget(percent);
                    set.context("this kernel does not measure programs (--budget)")?;
                }
                return Ok((Counting::Kernel(Box::new((running, signals))), target));
            }
            Err(error) => error,
        };
        drop(signals);
        match UserSpaceReason::of_refusal() {
            Some(_) if self.budget.is_some() => Err(explain(&error).context(KERNEL_ONLY)),
            Some(reason) => self.in_rings(reason, Some(target)),
            None => Err(explain(&error)),
        }
    }

    /// In user space: as in the kernel, or if that is not permitted, by the events of the command's
    /// own tasks.
    fn in_rings(
        &self,
        reason: UserSpaceReason,
        target: Option<RunTarget>,
    ) -> anyhow::Result<(Counting, RunTarget)> {
        let target = match target {
            Some(target) => target,
            None => RunTarget::of_words(self.pid, self.command)?,
        };
        let is_latency = matches!(self.request.measure, CountMeasure::Latency(_));
        let own = target.pid().map(|pid| Target::Processes(vec![pid]));
        let scope = match (own, self.request.tasks) {
            (Some(own), CountedTasks::Process(_) | CountedTasks::Command) if !is_latency => own,
            // A latency may end in a task of others.
            _ => Target::System,
        };
        let scope = RingScope { pages: self.pages, ..RingScope::of(scope) };
        let error = match self.open_rings(self.request, &target, scope, &reason) {
            Ok(run) => return Ok((Counting::Rings { run, reason, notes: Vec::new() }, target)),
            Err(error) => error,
        };
        let own = match self.request.tasks {
            CountedTasks::All => return Err(error),
            CountedTasks::Process(_) if !is_latency => return Err(error),
            CountedTasks::Process(pid) => Target::Processes(vec![pid]),
            CountedTasks::Command => Target::Command,
        };
        let (request, target, command) = match own {
            Target::Command => {
                target.end();
                let request = CountRequest { tasks: CountedTasks::All, ..self.request.clone() };
                (request, RunTarget::of_words(None, &[])?, self.command.to_vec())
            }
            _ => (self.request.clone(), target, Vec::new()),
        };
        let scope = RingScope { command, pages: self.pages, ..RingScope::of(own) };
        let run = self.open_rings(&request, &target, scope, &reason)?;
        let mut notes = Vec::new();
        if is_latency {
            let fact = format!("ends in tasks of others are not seen: {error:#}");
            notes.push(Note::doubt(NoteKind::Scope, fact, None));
        }
        Ok((Counting::Rings { run, reason, notes }, target))
    }

    fn open_rings(
        &self,
        request: &CountRequest,
        target: &RunTarget,
        scope: RingScope,
        reason: &UserSpaceReason,
    ) -> anyhow::Result<Box<RingRun>> {
        let request = CountRequest { in_own_rings: true, ..request.clone() };
        let text = count_program(&request, self.timeout)?.text;
        let options = self.options(target, true);
        let because = |e: ProgramError| match &e {
            ProgramError::Compile(messages) if messages.iter().any(|m| m.needs_kernel) => {
                reason.explain(&explain(&e))
            }
            _ => explain(&e),
        };
        let mut program = compile_program(&text, &options, &self.facts).map_err(because)?;
        program.error_sites.iter_mut().for_each(|site| site.position.line = 0);
        let program = InterpretedProgram::new(program, &options).map_err(because)?;
        Ok(Box::new(RingRun::open(program, scope)?))
    }
}

/// Median of a latency from which on probes do not matter on any machine.
const SHORT_NS: u64 = 500_000;

/// Median from which on probes hardly matter, where their cost cannot be measured.
const UNMEASURED_NS: u64 = 20_000;

/// Whether a latency is between probes on programs.
fn is_of_functions(text: &str) -> bool {
    let kind = |event: &str| event.trim().split(':').next().unwrap_or_default().to_owned();
    let is_probe = |event: &str| ["uprobe", "u", "uretprobe", "ur"].contains(&kind(event).as_str());
    text.split_once("->").is_some_and(|(from, to)| is_probe(from) && is_probe(to))
}

/// Shows what the program prints: with an interval each time, else at the end.
struct CountScreen<'a> {
    request: &'a CountRequest,
    keys: &'a [String],
    is_json: bool,
    columns: Option<usize>,
    begin: Instant,
    /// End of counting: detaching takes a while.
    end: &'a Cell<Option<Instant>>,
    maps: Vec<CountedMap>,
    /// The result at the interval before, of a measure that only grows.
    earlier: CountedMap,
    /// The shortest median of the intervals that were shown.
    shortest: Option<u64>,
}

impl CountScreen<'_> {
    fn take(&mut self, map: PrintedMap<'_>) -> io::Result<()> {
        // The result is the last map that is printed each time.
        let is_last = map.name == "@";
        self.maps.push(CountedMap::of_printed(map));
        match is_last && self.request.interval_ms.is_some() {
            true => self.show_interval(),
            false => Ok(()),
        }
    }

    fn counts(&self) -> EventCounts<'_> {
        let elapsed = self.end.get().unwrap_or_else(Instant::now).duration_since(self.begin);
        EventCounts {
            measure: &self.request.measure,
            keys: self.keys,
            maps: &self.maps,
            elapsed_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
            top: self.request.top as usize,
            columns: self.columns,
        }
    }

    /// Note on times of functions that are not much longer than the hits of the probes take.
    fn note_probe_cost(&self) -> Option<Note> {
        let CountMeasure::Latency(text) = &self.request.measure else { return None };
        if !is_of_functions(text) {
            return None;
        }
        let medians = [self.shortest, self.counts().shortest_median()];
        let shortest = medians.into_iter().flatten().min()?;
        if shortest >= SHORT_NS {
            return None;
        }
        let tracefs = Tracefs::open().ok();
        let cost = tracefs
            .and_then(|tracefs| hit_cost(&tracefs, ProbeFile::User, ProbedInstruction::Return));
        let fact = match cost {
            Some(ns) if shortest as f64 >= 10.0 * ns => return None,
            Some(ns) => format!(
                "the times contain the cost of the probes, {:.1} us for a call of a function that \
                 does nothing on this machine, and that of probes on functions called within",
                ns / 1e3
            ),
            None if shortest >= UNMEASURED_NS => return None,
            None => "the times contain the cost of the probes, some microseconds for each call, \
                     and that of probes on functions called within"
                .to_owned(),
        };
        let advice = "kymo profile shows times without probes".to_owned();
        Some(Note::choice(NoteKind::Cost, fact, Some(advice)))
    }

    fn show_interval(&mut self) -> io::Result<()> {
        if matches!(self.request.measure, CountMeasure::Latency(_)) {
            let medians = [self.shortest, self.counts().shortest_median()];
            self.shortest = medians.into_iter().flatten().min();
        }
        if self.request.measure.only_grows()
            && let Some(now) = self.maps.pop()
        {
            self.maps.push(now.since(&self.earlier, self.request.top as usize));
            self.earlier = now;
        }
        let mut out = crate::streams::stdout().lock();
        match self.is_json {
            true => writeln!(out, "{}", self.counts().to_json())?,
            false => {
                self.counts().write_text(&mut out)?;
                writeln!(out)?;
            }
        }
        out.flush()?;
        self.maps.clear();
        self.begin = Instant::now();
        Ok(())
    }

    fn finish(self, ledger: &Ledger) -> anyhow::Result<()> {
        let mut out = crate::streams::stdout().lock();
        let is_shown = self.request.interval_ms.is_some();
        match (self.is_json, is_shown) {
            (true, true) => {}
            (true, false) => writeln!(out, "{:#}", self.counts().to_json())?,
            (false, _) => {
                if !is_shown {
                    self.counts().write_text(&mut out)?;
                }
                out.flush()?;
                say!("{}", ledger.to_text(""));
            }
        }
        Ok(())
    }
}

/// The error without a place in a program that the user did not write.
fn explain(error: &ProgramError) -> anyhow::Error {
    match error {
        ProgramError::Compile(messages) => {
            let text = |m: &SourceMessage| match &m.hint {
                // Settings are for the text of a program, which `kymo run` takes.
                Some(hint) if !hint.contains("config =") => format!("{}; {hint}", m.text),
                _ => m.text.clone(),
            };
            let texts: Vec<String> = messages.iter().map(text).collect();
            anyhow::anyhow!("{}", texts.join("; "))
        }
        other => anyhow::anyhow!("{other}"),
    }
}

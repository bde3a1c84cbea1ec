//! `kymo sched timehist`: each run of a task and the wait before it.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use kymo_analysis::losses::{LossWindows, select_events};
use kymo_analysis::tasks::{
    EXIT_EVENT, RuntimeSummary, RuntimeTable, SCHED_EVENTS, SchedRead, SchedReader, SchedSelection,
    SchedStep, TaskMachine, Transition, read_sched,
};
use kymo_events::ReadOptions;
use kymo_kernel::cpus;
use kymo_model::NoteKind;
use kymo_view::Ledger;
use kymo_view::sched::{TimehistColumns, TimehistSummary, TimehistWriter};

use super::super::live::{LiveArgs, WatchArgs};
use super::AnalysisArgs;
use super::live::{LiveOutcome, LiveStep, watch};
use crate::args::symbols::SymbolArgs;
use crate::exit;

/// Rows on a screen of each of the two tables of the summary.
const SCREEN_ROWS: usize = 10;

/// Flags of `kymo sched timehist`.
#[derive(clap::Args)]
#[command(after_help = "\
Prints a line each time a task leaves a CPU: the wait before this run, the part of it after the
wake-up (sch delay), and the run time. `-`: not in the recording. States are those of ftrace; R+
means preempted in the kernel. !lost: events were lost during this interval.

EXAMPLES
  kymo sched timehist -i perf.data --state -n
  kymo sched timehist -p 4711 -w -M        a process, its wakers and migrations
  kymo sched timehist -s                   the summary only
  kymo sched timehist --live -g -- ./program
  kymo sched timehist --json | jq 'select(.cause == \"preempted\" and .delay_ns > 5e6)'")]
pub(super) struct Args {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    finding: SymbolArgs,
    /// Only these processes
    #[arg(short = 'p', long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(short = 't', long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Show recorded call chains [default]; with --live, capture them with frame pointers
    #[arg(short = 'g', long, overrides_with = "no_call_graph")]
    call_graph: bool,
    /// Show no call chains
    #[arg(short = 'G', long)]
    no_call_graph: bool,
    /// Maximum number of functions per call chain
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_stack: usize,
    /// Show idle times only
    #[arg(short = 'I', long)]
    idle_hist: bool,
    /// Show migrations
    #[arg(short = 'M', long)]
    migrations: bool,
    /// Show the next task
    #[arg(short = 'n', long)]
    next: bool,
    /// Show the summary only
    #[arg(short = 's', long)]
    summary: bool,
    /// Also show a summary
    #[arg(short = 'S', long)]
    with_summary: bool,
    /// Show a column for each CPU
    #[arg(short = 'V', long)]
    cpu_visual: bool,
    /// Show wake-ups
    #[arg(short = 'w', long)]
    wakeups: bool,
    /// Show the state of the task when it leaves the CPU; in the summary, wait times
    #[arg(long)]
    state: bool,
    /// Show how long a task waited on another run queue before its migration
    #[arg(short = 'P', long)]
    pre_migrations: bool,
    /// Only tasks of these kernel priorities: 0-99 real time, 100-139 nice
    #[arg(long, value_name = "PRIOS")]
    prio: Option<String>,
    /// Show the priorities of tasks
    #[arg(long)]
    show_prio: bool,
}

/// Totals that are counted next to the lines.
#[derive(Default)]
struct Summing {
    table: RuntimeTable,
    span: Option<(u64, u64)>,
}

impl Summing {
    fn step(&mut self, step: &SchedStep<'_, '_>, machine: &TaskMachine, of: &SchedSelection) {
        if let Transition::Switch { out, .. } = step.transition
            && of.wants_cpu(step.cpu)
        {
            if of.wants_time(step.time) {
                let (first, last) = self.span.unwrap_or((step.time, step.time));
                self.span = Some((first.min(step.time), last.max(step.time)));
            }
            let task = machine.tasks.get(out.task).filter(|t| of.wants_task(t));
            let ran = out.since.and_then(|since| of.cut(since, step.time));
            if let (Some(task), Some(ran)) = (task, ran) {
                self.table.add(out, task, step.cpu, ran);
            }
        }
        if !machine.ended().is_empty() {
            self.table.keep_ended(machine);
        }
    }

    fn finish(
        self,
        args: &Args,
        read: &SchedRead,
        of: &SchedSelection,
        l: &mut Ledger,
    ) -> RuntimeSummary {
        if self.table.crowded > 0 {
            let fact = format!("{} ended tasks have no row", self.table.crowded);
            l.note(NoteKind::Entries, fact, None);
        }
        let (mut rows, mut idle) = self.table.finish(&read.machine);
        if args.idle_hist {
            rows.clear();
        }
        // Of some tasks it is not known what the CPUs did else.
        if of.chooses_tasks() {
            idle.clear();
        }
        RuntimeSummary {
            rows,
            idle,
            span: self.span.map_or(0, |(first, last)| last - first),
            cpus: read.machine.cpu_count(),
        }
    }
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    if args.summary && (args.wakeups || args.next || args.migrations) {
        bail!("-s shows no lines: -w, -n and -M are for lines (-S shows both)");
    }
    let Some(live) = args.live.take() else { return show(&args) };
    args.read.watch(&live, &args.pid, &args.tid)?;
    run_live(&mut args, &live)
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let source = args.read.open(&args.finding)?;
    let selection = SchedSelection { events: args.read.selection(&source, &args.pid, &args.tid)? };
    let mut out = super::stdout();
    let mut summing = Summing::default();
    let mut failed = Ok(());
    let columns = columns_of(args, !args.no_call_graph, source.cpu_count().unwrap_or(0))?;
    // Those of a trace.dat; LTTng's are fields.
    let stacks_follow = columns.stack > 0 && source.timeline().is_some();
    let columns = TimehistColumns { stacks_follow, ..columns };
    let mut writer = TimehistWriter::new(&mut out, columns, &selection);
    let lines = !args.summary;
    if lines && !args.read.json {
        writer.write_head()?;
    }
    let mut take = |writer: &mut TimehistWriter<'_>, step: &SchedStep<'_, '_>, machine: &_| {
        take_step((writer, lines), &mut summing, &selection, (step, machine))
    };
    let flow = |failed: &io::Result<()>| match failed {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let read = if stacks_follow {
        let select =
            select_events(&[&SCHED_EVENTS[..], &[EXIT_EVENT, "ftrace:kernel_stack"]].concat());
        let mut reader = SchedReader::new(source.losses());
        let summary = source.for_each(&select, ReadOptions::default(), &mut |event| {
            if event.class.is_stack {
                failed = writer.stack_event(event);
                return flow(&failed);
            }
            reader.event(event, &mut |step, machine| {
                failed = take(&mut writer, step, machine);
                flow(&failed)
            })
        })?;
        failed = failed.and_then(|()| writer.write_complete(true));
        reader.finish(summary)
    } else {
        read_sched(&source, ReadOptions::default(), |step, machine| {
            failed = take(&mut writer, step, machine);
            flow(&failed)
        })?
    };
    failed?;
    let mut ledger = super::ledger(&source, &read);
    write_end(args, (summing, &read, &selection), &mut ledger, &mut out)?;
    args.read.close(out, &source, &read.summary, &ledger)
}

/// Shows what happens until the end.
fn run_live(args: &mut Args, live: &WatchArgs) -> anyhow::Result<ExitCode> {
    let events = args.read.live_selection(&args.pid, &args.tid)?;
    let (args, selection) = (&*args, SchedSelection { events });
    let mut out = super::stdout();
    let mut summing = Summing::default();
    let mut failed = Ok(());
    let cpus = cpus::online().last().map_or(0, |last| *last as usize + 1);
    let mut writer =
        TimehistWriter::new(&mut out, columns_of(args, args.call_graph, cpus)?, &selection);
    let lines = !args.summary;
    if lines && !args.read.json {
        writer.write_head()?;
    }
    let mut reader = SchedReader::new(LossWindows::default());
    let mut outcome = LiveOutcome::of(&selection, args.read.chosen());
    let symbols = args.call_graph.then(|| args.finding.options(Path::new("")));
    let summary = watch(live, symbols.as_ref(), &mut outcome, &mut |step| {
        match step {
            LiveStep::RoundEnd => failed = writer.flush(),
            LiveStep::Event(event) => {
                let _ = reader.event(event, &mut |step, machine| {
                    let to = (&mut writer, lines);
                    failed = take_step(to, &mut summing, &selection, (step, machine));
                    ControlFlow::Continue(())
                });
            }
        }
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed?;
    let read = reader.finish(summary);
    outcome.notes.extend(args.read.live_notes(&selection.events));
    let exit = outcome.exit;
    let mut ledger = super::live_ledger(&read, outcome);
    write_end(args, (summing, &read, &selection), &mut ledger, &mut out)?;
    out.flush()?;
    Ok(exit::of_command(exit, &ledger, args.read.strict))
}

/// Sums a transition, and writes its line if there are `lines`.
fn take_step(
    (writer, lines): (&mut TimehistWriter<'_>, bool),
    summing: &mut Summing,
    selection: &SchedSelection,
    (step, machine): (&SchedStep<'_, '_>, &TaskMachine),
) -> io::Result<()> {
    if writer.wants_priority(step, machine) {
        summing.step(step, machine, selection);
    }
    let written = if lines { writer.step(step, machine) } else { Ok(()) };
    writer.follow(step, machine);
    written
}

/// Writes what comes after the lines.
fn write_end(
    args: &Args,
    (summing, read, selection): (Summing, &SchedRead, &SchedSelection),
    ledger: &mut Ledger,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let summary = summing.finish(args, read, selection, ledger);
    let answer = (args.summary || args.with_summary).then(|| summary.answer());
    if args.read.json {
        if let Some(answer) = answer {
            writeln!(out, "{}", answer.to_json())?;
        }
        return Ok(());
    }
    if let Some(answer) = &answer {
        let summary = TimehistSummary {
            answer,
            waits: args.state,
            columns: args.read.screen_columns(),
            most: args.read.screen_rows().map_or(usize::MAX, |_| SCREEN_ROWS),
            units: args.read.units(),
        };
        summary.write_text(out)?;
    }
    if !ledger.is_empty() {
        write!(out, "\n{}", ledger.to_text(""))?;
    }
    Ok(())
}

fn columns_of(args: &Args, stacks: bool, cpus: usize) -> anyhow::Result<TimehistColumns> {
    let prios = args.prio.as_deref().map(cpus::parse_list).transpose();
    Ok(TimehistColumns {
        show_prio: args.show_prio,
        prios: prios
            .map_err(|_| anyhow!("--prio: a list of priorities is such as 0,120-129"))?
            .unwrap_or_default(),
        pre_migrations: args.pre_migrations,
        wakeups: args.wakeups,
        migrations: args.migrations,
        next: args.next,
        state: args.state,
        cpu_visual: args.cpu_visual.then_some(cpus),
        stack: if stacks { args.max_stack } else { 0 },
        stacks_follow: false,
        idle_only: args.idle_hist,
        json: args.read.json,
        units: args.read.units(),
    })
}

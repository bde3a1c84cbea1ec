//! The time of tasks as stacks: what ran, by samples, and what was waited for, and where.

use kymo_analysis::offcpu::{OffCpuCause, StackNode, TaskTime, TaskTimes, count_task_times};
use kymo_analysis::oncpu::OnCpu;
use kymo_analysis::profile::{LoadOptions, Profile, has_chains};
use kymo_events::EventSource;
use rustc_hash::FxHashMap;

use super::builder::StackBuilder;
use super::plan::{StackPlan, TimePart};
use super::profile::{ProfilePart, RunningShares, add_profile, time_event};
use super::{RecordingStacks, StackError};

/// Stands for running where there are no samples of it.
const RUNNING: &str = "[running]";

/// Adds the time of tasks of a source.
pub(super) fn add(
    source: &EventSource,
    plan: &StackPlan<'_>,
    part: TimePart,
    (builder, read): (&mut StackBuilder, &mut RecordingStacks),
) -> Result<(), StackError> {
    let mut profiles = Vec::new();
    let mut accounts: Option<OnCpu> = None;
    // That is an error, which comes soon.
    let count = if source.is_piped() { 0 } else { source.perf_count() };
    for number in 0..count {
        let Some(mut data) = source.perf(number) else { continue };
        let options = LoadOptions {
            symbols: source.symbols().clone(),
            merge_threads: false,
            by_address: plan.addresses,
            inlines: plan.inlines && data.events().iter().any(has_chains),
            lines: plan.inlines && plan.addresses,
            selection: Some(plan.selection),
            ..LoadOptions::default()
        };
        let mut profile = Profile::read(&mut data, options)?;
        accounts.get_or_insert(std::mem::take(&mut profile.on_cpu));
        if builder.made.title.is_empty() {
            builder.made.title = data.features().cmdline.join(" ");
        }
        profiles.push(profile);
    }
    let times = count_task_times(source, plan.selection, accounts)?;
    builder.begin_recording();
    if let Some(span) = times.span {
        builder.cover(span);
    }
    let event = builder.shared_event(part.name(), "nanoseconds");
    if part != TimePart::Off {
        add_running(plan, &profiles, &times, (event, builder));
    }
    if part != TimePart::On {
        for task in &times.tasks {
            add_waits(task, &times, (event, builder));
        }
    }
    times.notes.into_iter().for_each(|note| read.ledger.push(note));
    if times.damaged {
        read.damage.get_or_insert("damaged; what can be read is converted".to_owned());
    }
    Ok(())
}

/// Each thread's time on the CPUs is shared out among its samples.
fn add_running(
    plan: &StackPlan<'_>,
    profiles: &[Profile],
    times: &TaskTimes,
    (event, builder): (u32, &mut StackBuilder),
) {
    let mut running = RunningShares::default();
    for task in &times.tasks {
        running.entry(task.tid).or_default().0 += task.running;
    }
    let mut sampled: FxHashMap<u32, u64> = FxHashMap::default();
    for event in profiles.iter().filter_map(time_event) {
        for (stack, _) in event.stacks() {
            *sampled.entry(stack.tid).or_default() += stack.period;
        }
    }
    running.retain(|tid, (_, periods)| {
        *periods = sampled.get(tid).copied().unwrap_or(0);
        *periods > 0
    });
    for profile in profiles {
        add_profile(
            &ProfilePart { profile, plan, weights: None, running: Some(&running) },
            builder,
        );
    }
    let unsampled = |t: &&TaskTime| t.running > 0 && !running.contains_key(&t.tid);
    for task in times.tasks.iter().filter(unsampled) {
        let number = builder.task(|| task.comm.clone(), task.pid, task.tid);
        let frame = builder.event_frame(RUNNING);
        let node = builder.made.node(None, frame);
        let stack = builder.stack(event, number, Some(node));
        builder.count(stack, 1, task.running);
    }
}

fn add_waits(task: &TaskTime, times: &TaskTimes, (event, builder): (u32, &mut StackBuilder)) {
    let number = builder.task(|| task.comm.clone(), task.pid, task.tid);
    let mut waits: Vec<_> = task.waits.iter().collect();
    // The order of a hash table is not that of the next run.
    waits.sort_by_key(|((cause, stack), _)| (*cause, *stack));
    for ((cause, stack), cell) in waits {
        let node = wait_node(*cause, *stack, times, builder);
        let stack = builder.stack(event, number, Some(node));
        builder.count(stack, cell.count, cell.total);
    }
}

/// The frames of a wait, with its cause as the innermost one.
fn wait_node(
    cause: OffCpuCause,
    stack: Option<StackNode>,
    times: &TaskTimes,
    builder: &mut StackBuilder,
) -> u32 {
    let mut frames: Vec<_> = stack.map(|s| times.stacks.frames(s).collect()).unwrap_or_default();
    frames.reverse();
    let mut node = None;
    for frame in frames {
        let name = times.stacks.frame_name(frame);
        let frame = builder.named_frame(name, times.stacks.is_kernel(frame));
        node = Some(builder.made.node(node, frame));
    }
    let frame = builder.event_frame(&format!("[{}]", cause.text()));
    builder.made.node(node, frame)
}

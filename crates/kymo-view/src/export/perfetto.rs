//! Perfetto's trace format: the process tree, switches and wake-ups as events of ftrace, system
//! calls and spans of programs as slices, samples with their stacks, all other events as instants, the wall clock. Numbers of fields are those of
//! `protos/perfetto/trace/trace_packet.proto` and the files that it names.

use std::io::{self, Write};

use kymo_analysis::tracks::{
    OPEN, RUNNABLE, RUNNING, SLEEPING, TraceTracks, TrackSpan, TrackTask, UNINTERRUPTIBLE,
    span_state,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::instants::Instants;
use super::proto::Message;
use crate::stacks::{StackEvent, Stacks};

/// The one sequence of packets.
const SEQUENCE: u64 = 1;
/// Flags of a packet: the state of the sequence is cleared; the packet needs the state.
const CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
/// Events of a bundle.
const BUNDLE: usize = 4096;
/// States of a task that leaves its CPU, as the kernel's events have them.
const EXIT_DEAD: u64 = 16;
const STOPPED: u64 = 4;

/// Kind of an event of a track that has no end.
const INSTANT: u64 = 3;
/// Track of instants whose task is not known; tasks have smaller numbers.
const NO_TASK: u64 = 1 << 63;
/// Events that are written as events of ftrace.
const WAKEUPS: [&str; 6] = [
    "sched:sched_waking",
    "sched:sched_wakeup",
    "sched:sched_wakeup_new",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
];

/// Clocks by Perfetto's numbers: 1 is the wall clock. Times without another one are of the
/// clock since boot, as which the recording's stands here.
const REALTIME: u64 = 1;
const BOOTTIME: u64 = 6;
/// Units of what samples weigh.
const NANOSECONDS: u64 = 1;
const COUNT: u64 = 9;

/// Writes the file. `wall`: what the wall clock shows more than the recording's, where known.
///
/// # Errors
/// If `out` fails.
pub fn write(
    tracks: &TraceTracks,
    stacks: &Stacks,
    wall: Option<u64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    packet(out, |p| {
        p.number(13, CLEARED);
        p.message(2, |tree| process_tree(tracks, tree));
        p.message(12, |interned| intern(stacks, interned));
    })?;
    if let Some(wall) = wall {
        let now = tracks.span.0;
        packet(out, |p| {
            p.number(8, now);
            p.message(6, |snapshot| {
                for (clock, time) in [(BOOTTIME, now), (REALTIME, now.wrapping_add(wall))] {
                    snapshot.message(1, |c| {
                        c.number(1, clock);
                        c.number(2, time);
                    });
                }
                snapshot.number(2, BOOTTIME);
            });
        })?;
    }
    for bundle in ftrace_events(tracks).chunks(BUNDLE) {
        // A bundle is of one CPU.
        for events in bundle.chunk_by(|a, b| a.0 == b.0) {
            packet(out, |p| {
                p.message(1, |b| {
                    b.number(1, events.first().map_or(0, |e| e.0.into()));
                    events.iter().for_each(|e| b.bytes(2, &e.2.0));
                });
            })?;
        }
    }
    let instants = Instants::new(tracks, |name| {
        WAKEUPS.contains(&name) || stacks.events.iter().any(|event| event.name == name)
    });
    let with_instants: FxHashSet<u32> = instants.iter().filter_map(|(_, e)| e.task).collect();
    for (number, task) in tracks.tasks.iter().enumerate().filter(|(_, t)| is_shown(t)) {
        let has_instants = with_instants.contains(&(number as u32));
        task_slices(tracks, number as u64 + 1, (task, has_instants), out)?;
    }
    instant_events(tracks, &instants, out)?;
    for moment in &stacks.moments {
        let Some(stack) = stacks.stacks.get(moment.stack as usize) else { continue };
        let Some(task) = stacks.tasks.get(stack.task as usize) else { continue };
        packet(out, |p| {
            p.number(8, moment.time);
            p.number(13, NEEDS_STATE);
            p.message(135, |sample| {
                sample.message(1, |context| {
                    context.number(2, task.pid.or(task.tid).unwrap_or(0).into());
                    context.number(3, task.tid.unwrap_or(0).into());
                });
                sample.number(6, stack.node.map_or(0, |n| u64::from(n) + 1));
                sample.number(10, u64::from(stack.event) + 1);
                sample.number(11, moment.weight);
            });
        })?;
    }
    Ok(())
}

fn packet(out: &mut dyn Write, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
    let mut trace = Message::default();
    trace.message(1, |p| {
        p.number(10, SEQUENCE);
        fill(p);
    });
    out.write_all(&trace.0)
}

fn is_shown(task: &TrackTask) -> bool {
    task.tid != 0 && task.tid != u32::MAX
}

fn comm(task: &TrackTask) -> Vec<u8> {
    String::from_utf8_lossy(&task.comm).into_owned().into_bytes()
}

fn process_tree(tracks: &TraceTracks, tree: &mut Message) {
    let mut processes = FxHashSet::default();
    for task in tracks.tasks.iter().filter(|t| is_shown(t)) {
        let pid = task.pid.unwrap_or(task.tid);
        if pid == task.tid && processes.insert(pid) {
            tree.message(1, |p| {
                p.number(1, pid.into());
                p.bytes(3, &comm(task));
            });
        }
        tree.message(2, |t| {
            t.number(1, task.tid.into());
            t.bytes(2, &comm(task));
            t.number(3, pid.into());
        });
    }
}

/// Functions, frames and stacks; the number of each is one more than kymo's.
fn intern(stacks: &Stacks, interned: &mut Message) {
    let text = |interned: &mut Message, field, number: usize, text: &str| {
        interned.message(field, |s| {
            s.number(1, number as u64 + 1);
            s.bytes(2, text.as_bytes());
        });
    };
    for (number, function) in stacks.functions.iter().enumerate() {
        text(interned, 5, number, &function.name);
    }
    for (number, binary) in stacks.binaries.iter().enumerate() {
        text(interned, 17, number, &binary.path);
        interned.message(19, |m| {
            m.number(1, number as u64 + 1);
            m.number(7, number as u64 + 1);
        });
    }
    for (number, frame) in stacks.frames.iter().enumerate() {
        let function = stacks.functions.get(frame.function as usize);
        interned.message(6, |f| {
            f.number(1, number as u64 + 1);
            f.number(2, u64::from(frame.function) + 1);
            if let Some(binary) = function.and_then(|f| f.binary) {
                f.number(3, u64::from(binary) + 1);
                f.number(4, frame.addr);
            }
        });
    }
    for (number, event) in stacks.events.iter().enumerate() {
        interned.message(50, |counter| describe_counter(event, number as u64 + 1, counter));
    }
    let used: FxHashSet<u32> = stacks.stacks.iter().filter_map(|s| s.node).collect();
    let mut used: Vec<u32> = used.into_iter().collect();
    used.sort_unstable();
    for node in used {
        interned.message(7, |stack| {
            stack.number(1, u64::from(node) + 1);
            let mut frames = Vec::new();
            let mut at = stacks.nodes.get(node as usize);
            while let Some(node) = at {
                frames.push(u64::from(node.frame) + 1);
                at = node.parent.and_then(|p| stacks.nodes.get(p as usize));
            }
            // The outermost comes first.
            frames.iter().rev().for_each(|frame| stack.number(2, *frame));
        });
    }
}

/// Describes the weight of an event's samples.
fn describe_counter(event: &StackEvent, number: u64, counter: &mut Message) {
    counter.number(1, number);
    counter.bytes(2, event.name.as_bytes());
    match event.unit {
        "nanoseconds" => counter.number(3, NANOSECONDS),
        "count" => counter.number(3, COUNT),
        unit => counter.bytes(4, unit.as_bytes()),
    }
}

/// Switches and wake-ups by CPU and time.
fn ftrace_events(tracks: &TraceTracks) -> Vec<(u32, u64, Message)> {
    let base = tracks.span.0;
    // What a task does behind a run, by its number and the end of that.
    let mut after: FxHashMap<(usize, u64), u32> = FxHashMap::default();
    let mut goes_on: FxHashSet<(usize, u64)> = FxHashSet::default();
    for (number, task) in tracks.tasks.iter().enumerate() {
        let mut run_end = None;
        for span in task.states.spans() {
            if run_end == Some(span.from) {
                after.insert((number, span.from), span.code);
            }
            let runs = span_state(span.code) == RUNNING;
            run_end = runs.then_some(span.to);
            if runs && span.code & OPEN != 0 {
                goes_on.insert((number, span.to));
            }
        }
    }
    let mut events = Vec::new();
    let name = |task: Option<&TrackTask>, time: u64| match task {
        Some(task) => String::from_utf8_lossy(task.name_at(time)).into_owned().into_bytes(),
        None => b"swapper".to_vec(),
    };
    let tid = |task: Option<&TrackTask>| task.map_or(0, |t| u64::from(t.tid));
    let mut runs: Vec<Vec<(u64, u64, usize)>> = Vec::new();
    for (cpu, track) in tracks.cpus.iter().enumerate() {
        let mut before: Option<(u64, usize)> = None;
        let mut switch = |time: u64, prev: Option<(u64, usize)>, next: Option<usize>| {
            let prev_task = prev.and_then(|p| tracks.tasks.get(p.1));
            let next_task = next.and_then(|n| tracks.tasks.get(n));
            let state = prev.map_or(0, |(end, task)| match after.get(&(task, end)) {
                None => EXIT_DEAD,
                Some(code) => match span_state(*code) {
                    RUNNABLE => 0,
                    SLEEPING => 1,
                    UNINTERRUPTIBLE => 2,
                    _ => STOPPED,
                },
            });
            let mut event = Message::default();
            event.number(1, base + time);
            event.number(2, tid(prev_task));
            event.message(4, |s| {
                s.bytes(1, &name(prev_task, time.saturating_sub(1)));
                s.number(2, tid(prev_task));
                s.number(4, state);
                s.bytes(5, &name(next_task, time));
                s.number(6, tid(next_task));
            });
            events.push((cpu as u32, base + time, event));
        };
        let mut own = Vec::new();
        for span in track.spans() {
            let task = span.code as usize;
            own.push((span.from, span.to, task));
            if let Some(left) = before.filter(|(end, _)| *end < span.from) {
                switch(left.0, Some(left), None);
                before = None;
            }
            switch(span.from, before, Some(task));
            before = Some((span.to, task));
        }
        if let Some(left) = before.filter(|(end, task)| !goes_on.contains(&(*task, *end))) {
            switch(left.0, Some(left), None);
        }
        runs.push(own);
    }
    for wakeup in tracks.wakeups.iter() {
        let waker = wakeup.by.and_then(|by| tracks.tasks.get(by as usize));
        let woken = tracks.tasks.get(wakeup.task as usize);
        // It happened where the waker ran; of one that was not seen to run, CPU 0 stands for it.
        let is_there = |list: &Vec<(u64, u64, usize)>| {
            let at = list.partition_point(|r| r.1 < wakeup.time);
            list.get(at).is_some_and(|r| r.0 <= wakeup.time && Some(r.2 as u32) == wakeup.by)
        };
        let cpu = runs.iter().position(is_there).unwrap_or(0);
        let mut event = Message::default();
        event.number(1, base + wakeup.time);
        event.number(2, tid(waker));
        event.message(20, |w| {
            w.bytes(1, &name(woken, wakeup.time));
            w.number(2, tid(woken));
            w.number(4, 1);
        });
        events.push((cpu as u32, base + wakeup.time, event));
    }
    events.sort_by_key(|e| (e.0, e.1));
    events
}

/// System calls of a thread, and below them the spans that its program marks: these may begin in a
/// call and end behind it, so each depth of them is a track of its own.
fn task_slices(
    tracks: &TraceTracks,
    uuid: u64,
    (task, has_instants): (&TrackTask, bool),
    out: &mut dyn Write,
) -> io::Result<()> {
    if task.calls.count == 0 && task.spans.tracks.is_empty() && !has_instants {
        return Ok(());
    }
    packet(out, |p| {
        p.message(60, |track| {
            track.number(1, uuid);
            track.message(4, |thread| {
                thread.number(1, task.pid.unwrap_or(task.tid).into());
                thread.number(2, task.tid.into());
                thread.bytes(5, &comm(task));
            });
        });
    })?;
    let base = tracks.span.0;
    let call = |code: u32| tracks.calls.get(code as usize).map_or("?", |c| &*c.name);
    slices(base, uuid, task.calls.spans(), "syscall", &call, out)?;
    let name = |code: u32| tracks.span_names.get(code as usize).map_or("?", |name| &**name);
    for (spans, depth) in task.spans.tracks.iter().zip(1u64..) {
        // Tasks are fewer than that.
        let own = uuid | depth << 32;
        packet(out, |p| {
            p.message(60, |track| {
                track.number(1, own);
                track.number(5, uuid);
                track.bytes(2, b"program");
            });
        })?;
        slices(base, own, spans.spans(), "program", &name, out)?;
    }
    Ok(())
}

/// Instants on the tracks of their tasks; those of no known task are on a track of their own.
fn instant_events(
    tracks: &TraceTracks,
    instants: &Instants<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut has_own_track = false;
    for (name, event) in instants.iter() {
        let is_there = |n: &u32| tracks.tasks.get(*n as usize).is_some_and(is_shown);
        let track = event.task.filter(is_there).map_or(NO_TASK, |n| u64::from(n) + 1);
        if track == NO_TASK && !std::mem::replace(&mut has_own_track, true) {
            packet(out, |p| {
                p.message(60, |own| {
                    own.number(1, NO_TASK);
                    own.bytes(2, b"events of no known task");
                });
            })?;
        }
        packet(out, |p| {
            p.number(8, tracks.span.0 + event.time);
            p.message(11, |instant| {
                instant.number(9, INSTANT);
                instant.number(11, track);
                instant.bytes(22, b"event");
                instant.bytes(23, name.as_bytes());
            });
        })?;
    }
    Ok(())
}

/// Slices of a track.
fn slices<'a>(
    base: u64,
    track: u64,
    spans: impl Iterator<Item = TrackSpan>,
    category: &str,
    name: &dyn Fn(u32) -> &'a str,
    out: &mut dyn Write,
) -> io::Result<()> {
    for span in spans {
        packet(out, |p| {
            p.number(8, base + span.from);
            p.message(11, |event| {
                event.number(9, 1);
                event.number(11, track);
                event.bytes(22, category.as_bytes());
                event.bytes(23, name(span.code).as_bytes());
            });
        })?;
        packet(out, |p| {
            p.number(8, base + span.to);
            p.message(11, |event| {
                event.number(9, 2);
                event.number(11, track);
            });
        })?;
    }
    Ok(())
}

//! Perfetto's trace format: the process tree, switches and wake-ups as events of ftrace, system
//! calls and spans of programs as slices, samples with their stacks, all other events as instants, the wall clock. Numbers of fields are those of
//! `protos/perfetto/trace/trace_packet.proto` and the files that it names.

use std::io::{self, Write};

use kymo_analysis::tasks::{SwitchOutState, WakeupKind};
use kymo_analysis::tracks::{ListedChange, ListedSwitch, TraceTracks, TrackSpan, TrackTask};
use rustc_hash::FxHashSet;

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
/// Fields of an event of ftrace, by its kind.
const SCHED_SWITCH: u32 = 4;
const SCHED_WAKEUP: u32 = 17;
const SCHED_WAKING: u32 = 20;
const SCHED_WAKEUP_NEW: u32 = 114;

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
    let of = |number: Option<u32>| tracks.tasks.get(number? as usize).filter(|t| t.tid != 0);
    let name = |task: Option<&TrackTask>, time: u64| match task {
        Some(task) => String::from_utf8_lossy(task.name_at(time)).into_owned().into_bytes(),
        None => b"swapper".to_vec(),
    };
    let tid = |task: Option<&TrackTask>| task.map_or(0, |t| u64::from(t.tid));
    let switch = |time: u64, out: Option<&TrackTask>, state: u64, next: Option<&TrackTask>| {
        let mut event = Message::default();
        event.number(1, base + time);
        event.number(2, tid(out));
        event.message(SCHED_SWITCH, |s| {
            s.bytes(1, &name(out, time.saturating_sub(1)));
            s.number(2, tid(out));
            s.number(4, state);
            s.bytes(5, &name(next, time));
            s.number(6, tid(next));
        });
        event
    };
    let mut events = Vec::new();
    // What runs at the start of a part of a recording was switched to before it.
    for (cpu, track) in (0u32..).zip(&tracks.cpus) {
        let first = track.spans().next().filter(|span| span.from == 0);
        let is_same = |e: &ListedSwitch| {
            let runs = first.map(|span| span.code);
            e.cpu == cpu && matches!(e.change, ListedChange::Switch { next, .. } if next == runs)
        };
        let at_start = tracks.switches.iter().take_while(|e| e.time == 0);
        if let Some(first) = first
            && !at_start.into_iter().any(|e| is_same(&e))
        {
            events.push((cpu, base, switch(0, None, 0, of(Some(first.code)))));
        }
    }
    for ListedSwitch { time, cpu, change } in tracks.switches.iter() {
        let event = match change {
            ListedChange::Switch { out, state, next, .. } => {
                switch(time, of(out), state_number(state), of(next))
            }
            ListedChange::Wakeup { kind, task, by } => {
                let field = match kind {
                    WakeupKind::Waking => SCHED_WAKING,
                    WakeupKind::Wakeup => SCHED_WAKEUP,
                    WakeupKind::New => SCHED_WAKEUP_NEW,
                };
                let mut event = Message::default();
                event.number(1, base + time);
                event.number(2, tid(of(by)));
                event.message(field, |w| {
                    w.bytes(1, &name(of(task), time));
                    w.number(2, tid(of(task)));
                    w.number(4, 1);
                });
                event
            }
        };
        events.push((cpu, base + time, event));
    }
    events.sort_by_key(|e| (e.0, e.1));
    events
}

/// `prev_state` of a switch, by the numbers that are the same in all kernels.
fn state_number(state: SwitchOutState) -> u64 {
    match state {
        SwitchOutState::Runnable | SwitchOutState::Preempted => 0,
        SwitchOutState::Blocked(letter) | SwitchOutState::Dead(letter) => match letter {
            b'S' => 1,
            // An idle kernel thread cannot be interrupted, either.
            b'D' | b'I' => 2,
            b't' => 8,
            b'X' => 16,
            b'Z' => 32,
            _ => 4,
        },
    }
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

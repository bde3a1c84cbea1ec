//! The description of a page's data: small lists as JSON, and where the packed columns are.

use std::io;

use kymo_analysis::offcpu::OffCpuCause;
use kymo_analysis::tracks::{RUNNING, SpanTrack, build_pyramid, push_number, span_state};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::TracePage;
use super::pieces::PieceWriter;
use crate::stacks::Stacks;

/// Parts of the overview.
const OVERVIEW: usize = 1024;

/// Adds all columns to the pieces, and says where they are.
pub(super) fn describe(page: &TracePage<'_>, pieces: &mut PieceWriter<'_>) -> io::Result<Value> {
    let tracks = page.tracks;
    let mut leaves: Vec<&[u8]> = Vec::new();
    let mut cpus = Vec::new();
    for (track, known) in tracks.cpus.iter().zip(&tracks.known) {
        let runs = track_levels(track, false, pieces)?;
        cpus.push(json!({"runs": runs, "known": track_levels(known, false, pieces)?}));
        leaves.extend([&*track.bytes, &*known.bytes]);
    }
    let mut work = Vec::new();
    for (cpu, of) in tracks.work.iter().enumerate() {
        for (kind, track) in [("interrupts", &of.interrupts), ("softirqs", &of.softirqs)] {
            if track.count > 0 {
                let levels = track_levels(track, false, pieces)?;
                work.push(json!({"cpu": cpu, "kind": kind, "spans": levels}));
                leaves.push(&track.bytes);
            }
        }
    }
    let mut tasks = Vec::new();
    for task in &tracks.tasks {
        let mut spans = Vec::new();
        for track in &task.spans.tracks {
            spans.push(track_levels(track, false, pieces)?);
        }
        tasks.push(json!({
            "tid": task.tid,
            "pid": task.pid,
            "comm": String::from_utf8_lossy(&task.comm),
            "names": task.old_names.iter().map(|(until, name)| json!([until, String::from_utf8_lossy(name)])).collect::<Vec<Value>>(),
            "events": task.events,
            "run": run_time(&task.states),
            "states": track_levels(&task.states, true, pieces)?,
            "calls": track_levels(&task.calls, false, pieces)?,
            "spans": spans,
        }));
        leaves.extend([&*task.states.bytes, &*task.calls.bytes]);
        leaves.extend(task.spans.tracks.iter().map(|t| &*t.bytes));
    }
    let samples = samples(page, pieces)?;
    // The leaves come behind what is drawn first.
    let mut places = leaves.into_iter().map(|bytes| pieces.add_columns(bytes, 3));
    for cpu in &mut cpus {
        cpu["runs"]["leaf"] = places.next().transpose()?.unwrap_or_default();
        cpu["known"]["leaf"] = places.next().transpose()?.unwrap_or_default();
    }
    for of in &mut work {
        of["spans"]["leaf"] = places.next().transpose()?.unwrap_or_default();
    }
    for task in &mut tasks {
        task["states"]["leaf"] = places.next().transpose()?.unwrap_or_default();
        task["calls"]["leaf"] = places.next().transpose()?.unwrap_or_default();
        for span in task["spans"].as_array_mut().into_iter().flatten() {
            span["leaf"] = places.next().transpose()?.unwrap_or_default();
        }
    }
    drop(places);
    let wakeups = pieces.add_columns(&tracks.wakeups.bytes, 3)?;
    let mut chunks = Vec::new();
    for chunk in &tracks.events.chunks {
        let heads = pieces.add_columns(&chunk.heads, 4)?;
        let times = [chunk.start, chunk.first, chunk.last];
        chunks.push(json!({"times": times, "count": chunk.count, "heads": heads}));
    }
    for (chunk, described) in tracks.events.chunks.iter().zip(&mut chunks) {
        described["texts"] = pieces.add(&chunk.texts)?;
    }
    let overview = tracks.overview(OVERVIEW);
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "title": page.title,
        "recordings": page.recordings,
        "command": page.command,
        "clock": page.clock,
        "base": tracks.span.0.to_string(),
        "length": tracks.span.1 - tracks.span.0,
        "overview": {
            "events": overview.iter().map(|b| b.events).collect::<Vec<u64>>(),
            "busy": overview.iter().map(|b| b.busy).collect::<Vec<u64>>(),
        },
        "path": page.path,
        "chosenTimes": page.chosen_times,
        "causes": OffCpuCause::ALL.map(OffCpuCause::text),
        "cpus": cpus,
        "work": work,
        "workNames": tracks.work_names,
        "spanNames": tracks.span_names,
        "tasks": tasks,
        "calls": tracks.calls.iter().map(|c| &*c.name).collect::<Vec<&str>>(),
        "classes": tracks.events.classes,
        "classFields": tracks.events.class_fields,
        "classCounts": tracks.events.class_counts,
        "events": tracks.events.count,
        "textless": tracks.events.textless,
        "chunks": chunks,
        "wakeups": {"count": tracks.wakeups.count, "leaf": wakeups},
        "losses": tracks.losses,
        "samples": samples,
        "notes": page.ledger.to_json(),
    }))
}

/// Nanoseconds in which a task ran.
fn run_time(states: &SpanTrack) -> u64 {
    let runs = states.spans().filter(|s| span_state(s.code) == RUNNING);
    runs.map(|s| s.to - s.from).sum()
}

fn track_levels(track: &SpanTrack, waits: bool, pieces: &mut PieceWriter<'_>) -> io::Result<Value> {
    let mut levels = Vec::new();
    for level in build_pyramid(track, waits) {
        levels.push(json!([level.shift, level.count, pieces.add_columns(&level.bytes, 5)?]));
    }
    Ok(json!({"count": track.count, "busy": track.busy, "levels": levels}))
}

/// Samples and their stacks.
fn samples(page: &TracePage<'_>, pieces: &mut PieceWriter<'_>) -> io::Result<Value> {
    let stacks: &Stacks = page.stacks;
    // Of threads with one number the first is taken that has a sample's name.
    let mut by_name: FxHashMap<(u32, &[u8]), usize> = FxHashMap::default();
    let mut by_tid: FxHashMap<u32, usize> = FxHashMap::default();
    for (number, task) in page.tracks.tasks.iter().enumerate() {
        by_name.entry((task.tid, &task.comm)).or_insert(number);
        by_tid.entry(task.tid).or_insert(number);
    }
    let task_number = |number: u32| {
        let task = stacks.tasks.get(number as usize)?;
        let tid = task.tid?;
        by_name.get(&(tid, task.comm.as_bytes())).or_else(|| by_tid.get(&tid)).copied()
    };
    let mut defined = Vec::new();
    for stack in &stacks.stacks {
        push_number(&mut defined, task_number(stack.task).map_or(0, |t| t as u64 + 1));
        push_number(&mut defined, stack.event.into());
        push_number(&mut defined, stack.node.map_or(0, |n| u64::from(n) + 1));
    }
    let mut nodes = Vec::new();
    for node in &stacks.nodes {
        let function = stacks.frames.get(node.frame as usize).map_or(0, |f| f.function);
        push_number(&mut nodes, node.parent.map_or(0, |p| u64::from(p) + 1));
        push_number(&mut nodes, function.into());
    }
    let (mut moments, mut before) = (Vec::new(), 0);
    let mut outside = 0u64;
    let mut count = 0u64;
    for moment in &stacks.moments {
        let (from, to) = page.tracks.span;
        if moment.time < from || moment.time > to {
            outside += 1;
            continue;
        }
        let time = moment.time - from;
        push_number(&mut moments, time.saturating_sub(before));
        push_number(&mut moments, moment.stack.into());
        push_number(&mut moments, moment.weight);
        before = time.max(before);
        count += 1;
    }
    let functions = stacks.functions.iter().map(|f| {
        let binary = f.binary.and_then(|b| stacks.binaries.get(b as usize));
        json!([f.name, binary.map_or("", |b| &*b.name), u8::from(f.kernel)])
    });
    Ok(json!({
        "count": count,
        "outside": outside,
        "events": stacks.events.iter().map(|e| [&*e.name, e.unit]).collect::<Vec<_>>(),
        "functions": functions.collect::<Vec<Value>>(),
        "stackCount": stacks.stacks.len(),
        "nodeCount": stacks.nodes.len(),
        "stacks": pieces.add(&defined)?,
        "nodes": pieces.add(&nodes)?,
        "leaf": pieces.add_columns(&moments, 3)?,
    }))
}

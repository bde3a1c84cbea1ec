//! The description of a page's data: small lists as JSON, and where the packed columns are.

use std::io;

use kymo_analysis::offcpu::OffCpuCause;
use kymo_analysis::tracks::{
    Columns, CounterOwner, PyramidLevel, RUNNING, SpanTrack, push_number, span_state,
};
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
    let all = tracks.span_tracks();
    let mut described = Vec::with_capacity(all.len());
    for (track, levels) in all.iter().zip(page.pyramids) {
        described.push(track_levels(track, levels, pieces)?);
    }
    let samples = samples(page, pieces)?;
    // The leaves come behind what is drawn first.
    for (track, described) in all.iter().zip(&mut described) {
        described["leaf"] = chunks_of(track, pieces)?;
    }
    let mut described = described.into_iter();
    let mut next = || described.next().unwrap_or_default();
    let cpus: Vec<Value> =
        tracks.cpus.iter().map(|_| json!({"runs": next(), "known": next()})).collect();
    let mut work = Vec::new();
    for (cpu, of) in tracks.work.iter().enumerate() {
        for (kind, track) in [("interrupts", &of.interrupts), ("softirqs", &of.softirqs)] {
            if track.count > 0 {
                work.push(json!({"cpu": cpu, "kind": kind, "spans": next()}));
            }
        }
    }
    let mut tasks = Vec::new();
    for task in &tracks.tasks {
        tasks.push(json!({
            "tid": task.tid,
            "pid": task.pid,
            "comm": String::from_utf8_lossy(&task.comm),
            "names": task.old_names.iter().map(|(until, name)| json!([until, String::from_utf8_lossy(name)])).collect::<Vec<Value>>(),
            "events": task.events,
            "run": run_time(&task.states),
            "states": next(),
            "calls": next(),
            "spans": task.spans.tracks.iter().map(|_| next()).collect::<Vec<Value>>(),
        }));
    }
    let mut counters = Vec::new();
    for track in &tracks.counters {
        let (cpu, pid) = match track.owner {
            CounterOwner::Cpu(cpu) => (Some(cpu), None),
            CounterOwner::Process(pid) => (None, Some(pid)),
        };
        counters.push(json!({
            "name": track.name, "cpu": cpu, "pid": pid, "count": track.count, "end": track.end,
            "float": track.is_float, "leaf": pieces.add_columns(&track.columns)?,
        }));
    }
    let base = match page.baseline {
        Some((stacks, recording)) => baseline(stacks, recording, pieces)?,
        None => Value::Null,
    };
    let wakeups = pieces.add_columns(&tracks.wakeups.columns)?;
    let mut chunks = Vec::new();
    for chunk in &tracks.events.chunks {
        let heads = pieces.add_deflated(&chunk.heads)?;
        let times = [chunk.start, chunk.first, chunk.last];
        chunks.push(json!({"times": times, "count": chunk.count, "heads": heads}));
    }
    for (chunk, described) in tracks.events.chunks.iter().zip(&mut chunks) {
        described["texts"] = pieces.add_deflated(&chunk.texts)?;
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
        "fragment": page.fragment,
        "chosenTimes": page.chosen_times,
        "causes": OffCpuCause::ALL.map(OffCpuCause::text),
        "cpus": cpus,
        "work": work,
        "workNames": tracks.work_names,
        "spanNames": tracks.span_names,
        "tasks": tasks,
        "counters": counters,
        "parents": tracks.parents.iter().collect::<Vec<_>>(),
        "before": base,
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

fn track_levels(
    track: &SpanTrack,
    levels: &[PyramidLevel],
    pieces: &mut PieceWriter<'_>,
) -> io::Result<Value> {
    let mut places = Vec::new();
    for level in levels {
        places.push(json!([level.shift, level.count, pieces.add_columns(&level.columns)?]));
    }
    Ok(json!({"count": track.count, "busy": track.busy, "levels": places}))
}

/// Chunks of a track's spans: their number, the end of the last, where they are.
fn chunks_of(track: &SpanTrack, pieces: &mut PieceWriter<'_>) -> io::Result<Value> {
    let mut chunks = Vec::new();
    for chunk in track.chunks() {
        let mut described = vec![json!(chunk.count), json!(chunk.to)];
        described.extend(
            pieces.add(&chunk.bytes)?.as_array_mut().map(std::mem::take).unwrap_or_default(),
        );
        chunks.push(Value::Array(described));
    }
    Ok(Value::Array(chunks))
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
    let nodes = nodes(stacks);
    let (mut moments, mut before) = (Columns::<3>::default(), 0);
    let mut outside = 0u64;
    let mut count = 0u64;
    for moment in &stacks.moments {
        let (from, to) = page.tracks.span;
        if moment.time < from || moment.time > to {
            outside += 1;
            continue;
        }
        let time = moment.time - from;
        moments.push([time.saturating_sub(before), moment.stack.into(), moment.weight]);
        before = time.max(before);
        count += 1;
    }
    Ok(json!({
        "count": count,
        "outside": outside,
        "events": stacks.events.iter().map(|e| [&*e.name, e.unit]).collect::<Vec<_>>(),
        "functions": functions(stacks),
        "stackCount": stacks.stacks.len(),
        "nodeCount": stacks.nodes.len(),
        "stacks": pieces.add(&defined)?,
        "nodes": pieces.add(&nodes)?,
        "leaf": pieces.add_columns(&moments)?,
    }))
}

/// The tree of frames, each with its function, and whether it is inlined (the lowest bit).
fn nodes(stacks: &Stacks) -> Vec<u8> {
    let mut nodes = Vec::new();
    for node in &stacks.nodes {
        let frame = stacks.frames.get(node.frame as usize);
        let function = frame.map_or(0, |f| u64::from(f.function) << 1 | u64::from(f.inlined));
        push_number(&mut nodes, node.parent.map_or(0, |p| u64::from(p) + 1));
        push_number(&mut nodes, function);
    }
    nodes
}

fn functions(stacks: &Stacks) -> Vec<Value> {
    let functions = stacks.functions.iter().map(|f| {
        let binary = f.binary.and_then(|b| stacks.binaries.get(b as usize));
        json!([f.name, binary.map_or("", |b| &*b.name), u8::from(f.kernel)])
    });
    functions.collect()
}

/// Stacks of the recording that another one is compared with.
fn baseline(stacks: &Stacks, recording: &str, pieces: &mut PieceWriter<'_>) -> io::Result<Value> {
    let mut weights = Vec::new();
    for stack in &stacks.stacks {
        push_number(&mut weights, stack.event.into());
        push_number(&mut weights, stack.node.map_or(0, |n| u64::from(n) + 1));
        push_number(&mut weights, stack.weight);
    }
    Ok(json!({
        "recording": recording,
        "events": stacks.events.iter().map(|e| [&*e.name, e.unit]).collect::<Vec<_>>(),
        "functions": functions(stacks),
        "nodes": pieces.add(&nodes(stacks))?,
        "stacks": pieces.add(&weights)?,
    }))
}

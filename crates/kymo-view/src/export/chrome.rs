//! The trace event format of Chrome, which Perfetto's and other viewers read: who ran on each
//! CPU, system calls of threads, their waits as asynchronous spans, samples with their stacks, all
//! other events, and ends of runs whose start is not recorded, as instants.

use std::io::{self, Write};

use kymo_analysis::offcpu::OffCpuCause;
use kymo_analysis::tracks::{
    DETAIL_SHIFT, ListedChange, ListedSwitch, OPEN, RUNNING, TraceTracks, TrackTask, UNCERTAIN,
    span_state,
};

use super::instants::Instants;
use super::json::text;
use crate::stacks::Stacks;

/// The process under which CPUs are shown: no process has this number.
const CPUS: u32 = i32::MAX as u32;

/// Writes the file: one JSON object.
///
/// # Errors
/// If `out` fails.
pub fn write(tracks: &TraceTracks, stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
    let base = tracks.span.0;
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    write!(out, "{}", metadata("process_name", CPUS, 0, "CPUs"))?;
    for cpu in 0..tracks.cpus.len() as u32 {
        write!(out, ",\n{}", metadata("thread_name", CPUS, cpu, &format!("CPU {cpu}")))?;
    }
    for task in tracks.tasks.iter().filter(|t| is_shown(t)) {
        let (pid, name) = (process(task), String::from_utf8_lossy(&task.comm));
        if pid == task.tid {
            write!(out, ",\n{}", metadata("process_name", pid, pid, &name))?;
        }
        write!(out, ",\n{}", metadata("thread_name", pid, task.tid, &name))?;
    }
    for (cpu, track) in tracks.cpus.iter().enumerate() {
        for span in track.spans() {
            let Some(task) = tracks.tasks.get(span.code as usize) else { continue };
            let name = text_of(task.name_at(span.from));
            let (ts, dur) = (Micros(base + span.from), Micros(span.to - span.from));
            write!(
                out,
                ",\n{{\"ph\":\"X\",\"cat\":\"sched\",\"name\":{},\"pid\":{CPUS},\"tid\":{cpu},\
                 \"ts\":{ts},\"dur\":{dur},\"args\":{{\"tid\":{},\"pid\":{}}}}}",
                text(&name),
                task.tid,
                process(task)
            )?;
        }
    }
    runs_without_start(tracks, out)?;
    for (number, task) in tracks.tasks.iter().enumerate().filter(|(_, t)| is_shown(t)) {
        spans_of(tracks, task, number, out)?;
    }
    // Samples have their stacks below.
    let is_sample = |name: &str| stacks.events.iter().any(|event| event.name == name);
    for (name, event) in Instants::new(tracks, is_sample).iter() {
        let task = event.task.and_then(|n| tracks.tasks.get(n as usize)).filter(|t| is_shown(t));
        let (pid, tid) = match (task, event.cpu) {
            (Some(task), _) => (process(task), task.tid),
            (None, cpu) => (CPUS, cpu.unwrap_or(0)),
        };
        write!(
            out,
            ",\n{{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"event\",\"name\":{},\"pid\":{pid},\"tid\":{tid},\
             \"ts\":{}",
            text(name),
            Micros(base + event.time)
        )?;
        match event.cpu {
            Some(cpu) => write!(out, ",\"args\":{{\"cpu\":{cpu}}}}}")?,
            None => write!(out, "}}")?,
        }
    }
    write!(out, "],\n\"stackFrames\":{{")?;
    for (number, node) in stacks.nodes.iter().enumerate() {
        let function = stacks.frames.get(node.frame as usize);
        let function = function.and_then(|f| stacks.functions.get(f.function as usize));
        let binary = function.and_then(|f| stacks.binaries.get(f.binary? as usize));
        let comma = if number == 0 { "" } else { ",\n" };
        let name = text(function.map_or("", |f| &f.name)).to_string();
        let category = text(binary.map_or("", |b| &b.name)).to_string();
        write!(out, "{comma}\"{number}\":{{\"name\":{name},\"category\":{category}")?;
        if let Some(parent) = node.parent {
            write!(out, ",\"parent\":\"{parent}\"")?;
        }
        write!(out, "}}")?;
    }
    write!(out, "}},\n\"samples\":[")?;
    let mut comma = "";
    for moment in &stacks.moments {
        let Some(stack) = stacks.stacks.get(moment.stack as usize) else { continue };
        let task = stacks.tasks.get(stack.task as usize);
        let event = stacks.events.get(stack.event as usize);
        let Some(tid) = task.and_then(|t| t.tid) else { continue };
        write!(
            out,
            "{comma}{{\"name\":{},\"tid\":{tid},\"ts\":{},\"weight\":{}",
            text(event.map_or("", |e| &e.name)),
            Micros(moment.time),
            moment.weight
        )?;
        if let Some(node) = stack.node {
            write!(out, ",\"sf\":\"{node}\"")?;
        }
        write!(out, "}}")?;
        comma = ",\n";
    }
    writeln!(out, "]}}")
}

/// Ends of runs whose start is not recorded, as instants: they have no length.
fn runs_without_start(tracks: &TraceTracks, out: &mut dyn Write) -> io::Result<()> {
    for ListedSwitch { time, cpu, change } in tracks.switches.iter() {
        let ListedChange::Switch { out: Some(task), has_start: false, .. } = change else {
            continue;
        };
        let Some(task) = tracks.tasks.get(task as usize).filter(|t| t.tid != 0) else { continue };
        let name =
            format!("{} (start not recorded)", text_of(task.name_at(time.saturating_sub(1))));
        write!(
            out,
            ",\n{{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"event\",\"name\":{},\"pid\":{CPUS},\"tid\":{cpu},\
             \"ts\":{},\"args\":{{\"tid\":{},\"pid\":{}}}}}",
            text(&name),
            Micros(tracks.span.0 + time),
            task.tid,
            process(task)
        )?;
    }
    Ok(())
}

/// System calls and waits of a thread. Waits lie across system calls, and are spans of their own.
fn spans_of(
    tracks: &TraceTracks,
    task: &TrackTask,
    number: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (base, pid, tid) = (tracks.span.0, process(task), task.tid);
    for span in task.calls.spans() {
        let name = tracks.calls.get(span.code as usize).map_or("?", |c| &*c.name);
        let (ts, dur) = (Micros(base + span.from), Micros(span.to - span.from));
        write!(
            out,
            ",\n{{\"ph\":\"X\",\"cat\":\"syscall\",\"name\":{},\"pid\":{pid},\"tid\":{tid},\
             \"ts\":{ts},\"dur\":{dur}}}",
            text(name)
        )?;
    }
    for span in task.states.spans().filter(|s| span_state(s.code) != RUNNING) {
        let cause = OffCpuCause::ALL.get((span.code >> DETAIL_SHIFT) as usize);
        let cause = cause.map_or("waiting", |c| c.text());
        let doubt = match (span.code & UNCERTAIN != 0, span.code & OPEN != 0) {
            (true, _) => " (uncertain)",
            (_, true) => " (without an end)",
            _ => "",
        };
        let name = text(&format!("{cause}{doubt}")).to_string();
        for (phase, time) in [("b", span.from), ("e", span.to)] {
            write!(
                out,
                ",\n{{\"ph\":\"{phase}\",\"cat\":\"wait\",\"name\":{name},\"id\":{number},\
                 \"pid\":{pid},\"tid\":{tid},\"ts\":{}}}",
                Micros(base + time)
            )?;
        }
    }
    Ok(())
}

fn is_shown(task: &TrackTask) -> bool {
    task.tid != 0 && task.tid != u32::MAX
}

fn process(task: &TrackTask) -> u32 {
    task.pid.unwrap_or(task.tid)
}

fn text_of(comm: &[u8]) -> String {
    String::from_utf8_lossy(comm).into_owned()
}

fn metadata(what: &str, pid: u32, tid: u32, name: &str) -> String {
    format!(
        "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{}}}}}",
        text(name)
    )
}

/// Nanoseconds as microseconds with all their digits.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

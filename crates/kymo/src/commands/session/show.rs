//! What `kymo session show` and `list` print.

use std::io::Write as _;

use kymo_record::ftrace::{Listed, Mode, SessionState};
use serde_json::{Value, json};

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Overwrite => "overwrite",
        Mode::Discard => "discard",
    }
}

fn sum(state: &SessionState, of: fn(&kymo_kernel::ftrace::CpuStats) -> u64) -> u64 {
    state.stats.iter().map(|(_, s)| of(s)).sum()
}

/// Seconds from the oldest event to now, of the CPU whose ring reaches back least.
fn reach(state: &SessionState) -> Option<f64> {
    let of = |s: &kymo_kernel::ftrace::CpuStats| {
        let age = s.now_ns?.checked_sub(s.oldest_ns?)?;
        (s.entries > 0).then_some(age as f64 / 1e9)
    };
    state.stats.iter().filter_map(|(_, s)| of(s)).min_by(f64::total_cmp)
}

fn as_json(state: &SessionState) -> Value {
    let cpus: Vec<Value> = state
        .stats
        .iter()
        .map(|(cpu, s)| {
            json!({ "cpu": cpu, "entries": s.entries, "bytes": s.bytes, "overwritten": s.overrun,
                    "dropped": s.dropped, "read": s.read })
        })
        .collect();
    let events: Vec<Value> = state
        .events
        .iter()
        .map(|(event, filter)| json!({ "event": event.to_string(), "filter": filter }))
        .collect();
    json!({ "name": state.name, "tracing": state.tracing, "mode": mode(state.mode),
            "buffer_kb": state.buffer_kb, "clock": state.clock, "pids": state.pids,
            "made": state.made, "events": events, "cpus": cpus })
}

pub(super) fn show(state: &SessionState, as_json_text: bool) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    if as_json_text {
        writeln!(out, "{}", as_json(state))?;
        return Ok(());
    }
    writeln!(out, "session {}: {}", state.name, if state.tracing { "tracing" } else { "stopped" })?;
    let size = state.buffer_kb.map_or("differing".into(), |kb| format!("{kb} KiB"));
    writeln!(out, "  ring: {size} for each CPU, {}, clock {}", mode(state.mode), state.clock)?;
    if !state.pids.is_empty() {
        let pids: Vec<String> = state.pids.iter().map(u32::to_string).collect();
        writeln!(out, "  only tasks: {}", pids.join(" "))?;
    }
    for (event, filter) in &state.events {
        match filter {
            Some(filter) => writeln!(out, "  {event} if {filter}")?,
            None => writeln!(out, "  {event}")?,
        }
    }
    for (cpu, s) in &state.stats {
        writeln!(
            out,
            "  CPU {cpu}: {} events, {} bytes; {} overwritten, {} dropped, {} taken",
            s.entries, s.bytes, s.overrun, s.dropped, s.read
        )?;
    }
    if let Some(seconds) = reach(state) {
        writeln!(out, "  reaches back {seconds:.3} s")?;
    }
    Ok(())
}

pub(super) fn list(all: &[Listed], as_json_text: bool) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    if as_json_text {
        let values: Vec<Value> = all
            .iter()
            .map(|l| match l {
                Listed::There(state) => as_json(state),
                Listed::Gone { name, rebooted } => {
                    json!({ "name": name, "gone": true, "rebooted": rebooted })
                }
            })
            .collect();
        writeln!(out, "{}", Value::from(values))?;
        return Ok(());
    }
    for l in all {
        match l {
            Listed::There(s) => writeln!(
                out,
                "{}: {}, {} events on, {} in the ring, {}",
                s.name,
                if s.tracing { "tracing" } else { "stopped" },
                s.events.len(),
                sum(s, |c| c.entries),
                mode(s.mode)
            )?,
            Listed::Gone { name, rebooted } => writeln!(
                out,
                "{name}: lost: {}; `kymo session destroy {name}` clears up",
                match rebooted {
                    true => "the machine was started again",
                    false => "its trace instance was removed",
                }
            )?,
        }
    }
    Ok(())
}

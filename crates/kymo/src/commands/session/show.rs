//! Output of `kymo session show` and `list`.

use std::io::Write as _;

use kymo_kernel::ftrace::CpuStats;
use kymo_model::counted;
use kymo_record::ftrace::{BufferMode, SessionState};
use kymo_record::sessions::{ListedSession, Session, SessionSummary};
use kymo_record::ust::{
    ChannelState, Doing, MAX_LEVEL, ProgramState, ProgramsState, RuleState, level_name,
};
use kymo_ust::Pids;
use serde_json::{Value, json};

fn mode(mode: BufferMode) -> &'static str {
    match mode {
        BufferMode::Overwrite => "overwrite",
        BufferMode::Discard => "discard",
    }
}

fn overwrites(overwrite: bool) -> &'static str {
    mode(if overwrite { BufferMode::Overwrite } else { BufferMode::Discard })
}

fn sum(state: &SessionState, of: fn(&CpuStats) -> u64) -> u64 {
    state.stats.iter().map(|(_, s)| of(s)).sum()
}

/// Seconds from the oldest event to now, of the CPU whose ring reaches back least.
fn reach(state: &SessionState) -> Option<f64> {
    let of = |s: &CpuStats| {
        let age = s.now_ns?.checked_sub(s.oldest_ns?)?;
        (s.entries > 0).then_some(age as f64 / 1e9)
    };
    state.stats.iter().filter_map(|(_, s)| of(s)).min_by(f64::total_cmp)
}

fn is_tracing(state: &SessionSummary) -> bool {
    state.kernel.as_ref().is_some_and(|k| k.tracing)
        || state.programs.as_ref().is_some_and(|p| p.started)
}

fn as_json(state: &SessionSummary) -> Value {
    let mut value = match &state.kernel {
        Some(kernel) => kernel_json(kernel),
        None => json!({ "name": state.name, "made": state.programs.as_ref().and_then(|p| p.made) }),
    };
    value["tracing"] = is_tracing(state).into();
    if let Some(programs) = &state.programs {
        value["programs"] = programs_json(programs);
    }
    if let Some(lost) = &state.lost {
        value["lost"] = lost.as_str().into();
    }
    value
}

fn kernel_json(state: &SessionState) -> Value {
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
    json!({ "name": state.name, "mode": mode(state.mode),
            "buffer_kb": state.buffer_kb, "clock": state.clock, "pids": state.pids,
            "made": state.made, "events": events, "cpus": cpus })
}

fn programs_json(state: &ProgramsState) -> Value {
    let rule = |r: &RuleState| {
        json!({ "events": r.pattern, "enabled": !r.exclude, "filter": r.filter,
                "level": (!r.exclude).then(|| level_name(r.max_level)) })
    };
    let channel = |c: &ChannelState| {
        json!({ "name": c.name, "mode": overwrites(c.overwrite), "buffer_size": c.room,
                "pids": pids(&c.pids),
                "rules": c.rules.iter().map(rule).collect::<Vec<_>>() })
    };
    let program = |p: &ProgramState| {
        let unfit = p.unfit.iter().map(|u| {
            json!({ "event": u.event, "field": u.mismatch.field, "reason": u.mismatch.to_string() })
        });
        json!({ "channel": p.channel, "pid": p.pid, "uid": p.uid, "comm": p.comm,
                "state": doing(p.doing), "events_on": p.events,
                "written": p.counts.written, "discarded": p.counts.discarded,
                "overwritten": p.counts.overwritten, "waiting_bytes": p.counts.waiting,
                "cpus_without_memory": p.counts.failed, "rejected": p.rejected, "lost": p.lost, "unfit": unfit.collect::<Vec<_>>() })
    };
    json!({ "started": state.started,
            "channels": state.channels.iter().map(channel).collect::<Vec<_>>(),
            "programs": state.programs.iter().map(program).collect::<Vec<_>>(),
            "notes": state.notes.as_slice() })
}

/// Describes the state of a program in a word or two.
fn doing(doing: Doing) -> String {
    match doing {
        Doing::Recording => "recording".into(),
        Doing::Waiting => "no event yet".into(),
        Doing::Stopped => "stopped".into(),
        Doing::Ended => "ended".into(),
        Doing::Failed(0) => "cannot read its order".into(),
        Doing::Failed(errno) => {
            let error = std::io::Error::from_raw_os_error(errno.cast_signed());
            format!("cannot make its ring: {error}")
        }
        Doing::Cut => "its ring was cut short by another process: start the session again".into(),
        Doing::NoSlot => "not recording: its eight slots are taken".into(),
        Doing::Missed => "not recording: start the session again".into(),
    }
}

pub(super) fn show(state: &SessionSummary, as_json_text: bool) -> anyhow::Result<()> {
    let mut out = crate::streams::styled_stdout();
    if as_json_text {
        writeln!(out, "{}", as_json(state))?;
        return Ok(());
    }
    let tracing = if is_tracing(state) { "tracing" } else { "stopped" };
    writeln!(out, "session {}: {tracing}", state.name)?;
    if let Some(kernel) = &state.kernel {
        kernel_text(&mut out, kernel)?;
    }
    if let Some(programs) = &state.programs {
        programs_text(&mut out, programs)?;
    }
    if let Some(lost) = &state.lost {
        writeln!(out, "  a part is lost: {lost}")?;
    }
    Ok(())
}

fn kernel_text(out: &mut impl std::io::Write, state: &SessionState) -> std::io::Result<()> {
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
            "  CPU {cpu}: {}, {} bytes; {} overwritten, {} dropped, {} taken",
            counted(s.entries, "event", "events"),
            s.bytes,
            s.overrun,
            s.dropped,
            s.read
        )?;
    }
    if let Some(seconds) = reach(state) {
        writeln!(out, "  reaches back {seconds:.3} s")?;
    }
    Ok(())
}

fn programs_text(out: &mut impl std::io::Write, state: &ProgramsState) -> std::io::Result<()> {
    for channel in &state.channels {
        writeln!(
            out,
            "  programs, {}: {} KiB for each CPU of each, {}",
            channel.name,
            channel.room / 1024,
            overwrites(channel.overwrite)
        )?;
        match &*pids(&channel.pids) {
            [] => {}
            [pid] => writeln!(out, "    only process {pid} and its children")?,
            pids => {
                let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                writeln!(out, "    only processes {} and their children", pids.join(", "))?;
            }
        }
        for rule in &channel.rules {
            writeln!(out, "    {}", rule_text(rule))?;
        }
        let of = |p: &&ProgramState| p.channel == channel.name;
        for program in state.programs.iter().filter(of) {
            program_text(out, program)?;
        }
    }
    if state.programs.is_empty() {
        writeln!(out, "  no program that runs has such events")?;
    }
    for note in state.notes.as_slice() {
        writeln!(out, "  passed over: {note}")?;
    }
    Ok(())
}

fn rule_text(rule: &RuleState) -> String {
    let mut text = rule.pattern.clone();
    if rule.exclude {
        text += " off";
        return text;
    }
    if rule.max_level < MAX_LEVEL {
        text += &format!(" up to {}", level_name(rule.max_level));
    }
    if let Some(filter) = &rule.filter {
        text += &format!(" if {filter}");
    }
    text
}

fn program_text(out: &mut impl std::io::Write, p: &ProgramState) -> std::io::Result<()> {
    let comm: String = p.comm.chars().flat_map(char::escape_default).collect();
    write!(out, "    {comm} (pid {}, user {}): {}", p.pid, p.uid, doing(p.doing))?;
    if p.events > 0 {
        write!(out, ", {} on", counted(p.events as u64, "event", "events"))?;
    }
    let counts = &p.counts;
    write!(
        out,
        "; {} written, {} discarded, {} overwritten, {} bytes waiting",
        counts.written, counts.discarded, counts.overwritten, counts.waiting
    )?;
    if p.rejected > 0 {
        write!(out, "; about {} rejected by filters", p.rejected)?;
    }
    if p.lost > 0 {
        write!(out, "; {} lost without a ring", p.lost)?;
    }
    if counts.failed > 0 {
        let cpus = counted(counts.failed, "CPU", "CPUs");
        write!(out, "; no memory on {cpus}: make room and start the session again")?;
    }
    writeln!(out)?;
    for unfit in &p.unfit {
        writeln!(out, "      {unfit}")?;
    }
    Ok(())
}

/// Says of which programs that run a filter does not fit an event.
pub(super) fn unfit(session: &Session) {
    let mut said = std::collections::BTreeSet::new();
    for unfit in session.unfit() {
        let text = unfit.to_string();
        if said.insert(text.clone()) {
            sayln!("kymo: {text}");
        }
    }
}

pub(super) fn list(all: &[ListedSession], as_json_text: bool) -> anyhow::Result<()> {
    let mut out = crate::streams::styled_stdout();
    if as_json_text {
        let values: Vec<Value> = all
            .iter()
            .map(|l| match l {
                ListedSession::There(state) => as_json(state),
                ListedSession::Gone { name, rebooted, what } => {
                    json!({ "name": name, "gone": true, "rebooted": rebooted, "what": what })
                }
            })
            .collect();
        writeln!(out, "{}", Value::from(values))?;
        return Ok(());
    }
    for l in all {
        match l {
            ListedSession::There(state) => writeln!(out, "{}", line(state))?,
            ListedSession::Gone { name, what, .. } => {
                writeln!(out, "{name}: lost: {what}; `kymo session destroy {name}` clears up")?;
            }
        }
    }
    Ok(())
}

/// A session in a line.
fn line(state: &SessionSummary) -> String {
    let tracing = if is_tracing(state) { "tracing" } else { "stopped" };
    let mut text = format!("{}: {tracing}", state.name);
    if let Some(s) = &state.kernel {
        let on = counted(s.events.len() as u64, "event", "events");
        let held = sum(s, |c| c.entries);
        text += &format!(", {on} on, {held} in the ring, {}", mode(s.mode));
    }
    if let Some(p) = &state.programs {
        let rules: Vec<String> = p.channels.iter().flat_map(|c| &c.rules).map(rule_text).collect();
        let rules = if rules.is_empty() { "nothing".to_owned() } else { rules.join(", ") };
        let ended = p.programs.iter().filter(|p| p.doing == Doing::Ended).count();
        let written: u64 = p.programs.iter().map(|p| p.counts.written).sum();
        text += &format!(
            ", of programs {rules}: {} ({ended} ended), {} written",
            counted(p.programs.len() as u64, "program", "programs"),
            counted(written, "event", "events")
        );
        if let Some(c) = p.channels.first() {
            text += &format!(", {}", overwrites(c.overwrite));
        }
    }
    if let Some(lost) = &state.lost {
        text += &format!("; a part is lost: {lost}");
    }
    text
}

/// The processes that a channel is for; none: for all.
fn pids(of: &Pids) -> Vec<u32> {
    of.iter().copied().filter(|pid| *pid != 0).collect()
}

//! `kymo event show`: what is on, in the top instance and in all others.

use std::io::Write;

use kymo_kernel::ftrace::{EventName, TraceDir};
use kymo_kernel::tracefs::Tracefs;
use kymo_model::format_width;
use serde_json::{Value, json};

use super::list::rules;
use crate::commands::tracing::called;

/// Settings of one directory that differ from those of a fresh kernel.
struct ChangedSettings {
    name: String,
    tracing: bool,
    tracer: String,
    clock: String,
    pids: Vec<u32>,
    events: Vec<Entry>,
}

/// An event that is on or has rules.
struct Entry {
    event: EventName,
    on: bool,
    filter: Option<String>,
    triggers: Vec<String>,
}

/// The top and every instance.
pub(super) fn all(tracefs: &Tracefs) -> anyhow::Result<Vec<TraceDir>> {
    let names = TraceDir::instances(tracefs).unwrap_or_default();
    let mut dirs = vec![TraceDir::top(tracefs)];
    dirs.extend(names.iter().map(|name| TraceDir::named(tracefs, name)));
    Ok(dirs)
}

pub(super) fn run(dirs: &[TraceDir], as_json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for dir in dirs {
        match facts(dir) {
            Ok(facts) => found.push(facts),
            // An instance that was removed while this looked is not there.
            Err(_) if dir.name().is_some() && !dir.root().exists() => {}
            Err(e) => return Err(e),
        }
    }
    if as_json {
        let all: Vec<Value> = found.iter().map(ChangedSettings::json).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(());
    }
    found.iter().try_for_each(|f| f.print(out))
}

fn facts(dir: &TraceDir) -> anyhow::Result<ChangedSettings> {
    let enabled = dir.enabled()?;
    let mut events = Vec::new();
    for system in dir.tree().systems()?.into_iter().filter(|s| s != "ftrace") {
        for name in dir.tree().events(&system).unwrap_or_default() {
            let event = EventName { system: system.clone(), name };
            let on = enabled.binary_search(&event).is_ok();
            // Of an event that goes away meanwhile nothing is left to show.
            let filter = dir.filter(&event).unwrap_or(None);
            let triggers = dir.triggers(&event).unwrap_or_default();
            if on || filter.is_some() || !triggers.is_empty() {
                events.push(Entry { event, on, filter, triggers });
            }
        }
    }
    Ok(ChangedSettings {
        name: called(dir),
        tracing: dir.tracing()?,
        tracer: dir.tracer()?,
        clock: dir.clocks()?.current,
        pids: dir.pids().unwrap_or_default(),
        events,
    })
}

impl ChangedSettings {
    fn print(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let on = self.events.iter().filter(|e| e.on).count();
        let mut line =
            format!("{}: {on} {} on", self.name, if on == 1 { "event" } else { "events" });
        if !self.tracing {
            line.push_str(", not recording (tracing_on is 0)");
        }
        if self.tracer != "nop" {
            line.push_str(&format!(", tracer {}", self.tracer));
        }
        line.push_str(&format!(", clock {}", self.clock));
        if !self.pids.is_empty() {
            let pids: Vec<String> = self.pids.iter().map(u32::to_string).collect();
            line.push_str(&format!(", only of {}", pids.join(",")));
        }
        writeln!(out, "{line}")?;
        let width = self.events.iter().map(|e| e.event.to_string().len()).max().unwrap_or(0);
        let width = format_width(width);
        for e in &self.events {
            let state = if e.on { "on" } else { "off" };
            let rules = rules(e.filter.as_deref(), &e.triggers);
            let line = format!("  {state:<4}  {:<width$}  {rules}", e.event.to_string());
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let events: Vec<Value> = self
            .events
            .iter()
            .map(|e| {
                json!({"event": e.event.to_string(), "on": e.on, "filter": e.filter,
                       "triggers": e.triggers})
            })
            .collect();
        json!({"instance": self.name, "tracing": self.tracing, "tracer": self.tracer,
               "clock": self.clock, "pids": self.pids, "events": events})
    }
}

//! `kymo event list` and `format`: one level of the hierarchy, as `ls` of its
//! directory shows it, with state.

use std::io::Write;

use anyhow::bail;
use kymo_format::EventFormat;
use kymo_kernel::ftrace::{EventName, EventState, Selection, TraceDir};
use kymo_model::format_width;
use serde_json::{Value, json};

/// One line.
struct Row {
    name: String,
    state: Option<EventState>,
    filter: Option<String>,
    triggers: Vec<String>,
    /// Number of events, of a group.
    events: Option<usize>,
}

pub(super) fn run(
    dir: &TraceDir,
    event: Option<&str>,
    as_json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let rows = match event {
        None => groups(dir)?,
        Some(text) => match dir.select(&Selection::parse(text)?)?.as_slice() {
            [one] if !as_json && text.contains([':', '/']) && !text.contains('*') => {
                return one_event(dir, one, out);
            }
            many => many.iter().map(|e| row(dir, e, text)).collect::<anyhow::Result<_>>()?,
        },
    };
    if as_json {
        let all: Vec<Value> = rows.iter().map(Row::json).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(());
    }
    let width = rows.iter().map(|r| r.name.len()).max().unwrap_or(0);
    rows.iter().try_for_each(|r| r.print(width, out))
}

fn groups(dir: &TraceDir) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for system in dir.tree().systems()? {
        let events = dir.tree().events(&system).unwrap_or_default().len();
        let state = dir.group_state(&system).unwrap_or(None);
        let name = format!("{system}/");
        rows.push(Row { name, state, filter: None, triggers: Vec::new(), events: Some(events) });
    }
    Ok(rows)
}

/// Within a group the events have short names.
fn row(dir: &TraceDir, event: &EventName, text: &str) -> anyhow::Result<Row> {
    let group = text.trim_end_matches('*').trim_end_matches([':', '/']);
    let name = if group == event.system { event.name.clone() } else { event.to_string() };
    Ok(Row {
        name,
        state: dir.event_state(event).ok(),
        filter: dir.filter(event)?,
        triggers: dir.triggers(event)?,
        events: None,
    })
}

impl Row {
    fn state(&self) -> &'static str {
        match self.state {
            Some(EventState::On) => "on",
            Some(EventState::Off) => "off",
            Some(EventState::Mixed) => "some",
            None => "-",
        }
    }

    fn print(&self, width: usize, out: &mut dyn Write) -> anyhow::Result<()> {
        let width = format_width(width);
        let style = match self.state {
            Some(EventState::On | EventState::Mixed) => anstyle::AnsiColor::Green.on_default(),
            _ => anstyle::Style::new(),
        };
        let more = match (self.events, self.filter.is_some() || !self.triggers.is_empty()) {
            (Some(1), _) => "1 event".to_owned(),
            (Some(n), _) => format!("{n} events"),
            (None, false) => String::new(),
            (None, true) => rules(self.filter.as_deref(), &self.triggers),
        };
        let line = format!("{style}{:<4}{style:#}  {:<width$}  {more}", self.state(), self.name);
        writeln!(out, "{}", line.trim_end())?;
        Ok(())
    }

    fn json(&self) -> Value {
        let mut v = json!({"name": self.name.trim_end_matches('/'), "state": self.state()});
        if let Some(events) = self.events {
            v["events"] = json!(events);
        } else {
            v["filter"] = json!(self.filter);
            v["triggers"] = json!(self.triggers);
        }
        v
    }
}

/// An event's filter and triggers in one line.
pub(super) fn rules(filter: Option<&str>, triggers: &[String]) -> String {
    let filter = filter.map(|f| format!("if {f}"));
    let triggers = triggers.iter().map(|t| format!("-> {t}"));
    filter.into_iter().chain(triggers).collect::<Vec<_>>().join("  ")
}

/// The level below an event: its files, and its fields.
fn one_event(dir: &TraceDir, event: &EventName, out: &mut dyn Write) -> anyhow::Result<()> {
    let row = row(dir, event, "")?;
    row.print(0, out)?;
    let format = EventFormat::parse(&dir.tree().event_format(&event.system, &event.name)?)?;
    for field in format.own_fields() {
        writeln!(out, "      {} {}", field.type_text, field.name)?;
    }
    Ok(())
}

/// The kernel's own text.
pub(super) fn format(dir: &TraceDir, event: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    // The formats of `ftrace` (function, print, stacks) can be read, though not switched.
    let ftrace = event.split_once([':', '/']).filter(|(system, _)| *system == "ftrace");
    let events = match ftrace {
        Some((system, name)) => {
            vec![EventName { system: system.to_owned(), name: name.to_owned() }]
        }
        None => dir.select(&Selection::parse(event)?)?,
    };
    let [event] = events.as_slice() else {
        bail!("{event} names {} events; a format belongs to one", events.len());
    };
    write!(out, "{}", dir.tree().event_format(&event.system, &event.name)?)?;
    Ok(())
}

//! The part of `kymo event` that changes the machine, and reports the changes.

use std::io::Write;

use anyhow::{Context as _, bail};
use kymo_kernel::ftrace::{EventName, FtraceError, Selection, TraceDir, Trigger};

use crate::commands::tracing::called;

/// Names listed before the rest is only counted.
const LISTED: usize = 20;

/// Requested change of a filter or a trigger.
pub(super) enum Wish {
    Show,
    Set(String),
    Clear,
}

impl Wish {
    pub(super) fn new(text: Option<String>, clear: bool) -> Wish {
        match (text, clear) {
            (_, true) => Wish::Clear,
            (Some(text), false) => Wish::Set(text),
            (None, false) => Wish::Show,
        }
    }
}

/// `enable` and `disable`.
pub(super) fn switch(dir: &TraceDir, events: &[String], all: bool, on: bool) -> anyhow::Result<()> {
    let mut selections: Vec<Selection> =
        events.iter().map(|e| Selection::parse(e)).collect::<Result<_, _>>()?;
    if all {
        selections.push(Selection::All);
    }
    // A wrong name among several changes nothing.
    for s in &selections {
        dir.select(s)?;
    }
    let (mut changed, mut meant) = (Vec::new(), 0);
    for s in &selections {
        meant += dir.select(s)?.len();
        changed.extend(if on { dir.enable(s)? } else { dir.disable(s)? });
    }
    let word = if on { "on" } else { "off" };
    tell(&changed, &format!("switched {word} in {}", called(dir)));
    let same = meant.saturating_sub(changed.len());
    if same > 0 {
        sayln!("kymo event: {same} {} {word} already", were(same));
    }
    if on && !dir.tracing()? {
        sayln!(
            "kymo event: {} does not record: tracing_on is 0 (it can be switched on by writing 1)",
            called(dir)
        );
    }
    Ok(())
}

fn were(n: usize) -> &'static str {
    if n == 1 { "was" } else { "were" }
}

/// Reports an action on events.
fn tell(events: &[EventName], what: &str) {
    for event in events.iter().take(LISTED) {
        sayln!("kymo event: {event} {what}");
    }
    if events.len() > LISTED {
        sayln!("kymo event: {} more {what}", events.len() - LISTED);
    }
}

pub(super) fn filter(
    dir: &TraceDir,
    event: &str,
    wish: Wish,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let events = dir.select(&Selection::parse(event)?)?;
    match wish {
        Wish::Show => {
            for event in &events {
                match dir.filter(event)? {
                    Some(filter) => writeln!(out, "{event}: {filter}")?,
                    None if events.len() == 1 => writeln!(out, "{event}: none")?,
                    None => {}
                }
            }
            Ok(())
        }
        Wish::Clear => {
            let mut had = Vec::new();
            for event in events {
                if dir.filter(&event)?.is_some() {
                    dir.clear_filter(&event)?;
                    had.push(event);
                }
            }
            if had.is_empty() {
                sayln!("kymo event: there was no filter");
            }
            tell(&had, &format!("has no filter any more in {}", called(dir)));
            Ok(())
        }
        Wish::Set(expression) => set_filter(dir, events, &expression),
    }
}

/// As the kernel does it for a group: events that lack the fields are left out,
/// unless all do.
fn set_filter(dir: &TraceDir, events: Vec<EventName>, expression: &str) -> anyhow::Result<()> {
    if expression.trim().is_empty() || expression.trim() == "0" {
        bail!("an expression is needed; --clear removes the filter");
    }
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for event in events {
        let before = dir.filter(&event)?;
        match dir.set_filter(&event, expression) {
            Ok(()) => taken.push(event),
            Err(e @ FtraceError::Refused(_)) => {
                // A refused filter takes the old one with it: put that back.
                if let Some(before) = before {
                    dir.set_filter(&event, &before)
                        .with_context(|| format!("{event} lost its filter `{before}`"))?;
                }
                refused.push((event, e));
            }
            Err(e) => return Err(e.into()),
        }
    }
    let denied = refused.iter().any(|(_, e)| e.is_denied());
    if (taken.is_empty() || denied)
        && let Some((_, e)) = refused.pop()
    {
        return Err(e.into());
    }
    tell(&taken, &format!("passes only if {expression} in {}", called(dir)));
    for (event, e) in &refused {
        let why = match e {
            FtraceError::Refused(r) => r.complaint.as_ref().map(|c| c.what.clone()),
            _ => None,
        };
        let why = why.unwrap_or_else(|| e.to_string());
        sayln!("kymo event: {event} is as it was: {why}");
    }
    Ok(())
}

pub(super) fn trigger(
    dir: &TraceDir,
    event: &str,
    wish: Wish,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let events = dir.select(&Selection::parse(event)?)?;
    match wish {
        Wish::Show => {
            for event in &events {
                show_triggers(dir, event, events.len() == 1, out)?;
            }
        }
        Wish::Clear => {
            for event in &events {
                let had = dir.triggers(event)?;
                if !had.is_empty() {
                    dir.clear_triggers(event)?;
                }
                for trigger in had {
                    sayln!("kymo event: {event} lost its trigger {trigger}");
                }
            }
        }
        Wish::Set(text) => {
            let trigger = Trigger::parse(&text)?;
            let [event] = events.as_slice() else {
                bail!("a trigger belongs to one event; {event} names {}", events.len());
            };
            dir.set_trigger(event, &trigger)?;
            let (does, text) = (if trigger.remove { "lost" } else { "has" }, &trigger.text);
            sayln!("kymo event: {event} {does} the trigger {text} in {}", called(dir));
        }
    }
    Ok(())
}

fn show_triggers(
    dir: &TraceDir,
    event: &EventName,
    alone: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let triggers = dir.triggers(event)?;
    if triggers.is_empty() && alone {
        writeln!(out, "{event}: none")?;
    }
    for trigger in &triggers {
        writeln!(out, "{event}: {trigger}")?;
    }
    if triggers.iter().any(|t| t.starts_with("hist:")) {
        write!(out, "{}", dir.read(&format!("{}/hist", event.directory()))?)?;
    }
    Ok(())
}

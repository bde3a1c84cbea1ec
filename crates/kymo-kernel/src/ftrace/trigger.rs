//! Filters and triggers of events: what the kernel does when an event fires.
//!
//! Both are text in the kernel's own language; the kernel reads it, and what it finds wrong comes
//! back as a [`super::Complaint`]. Here only the kind of a trigger is parsed, to name the option
//! that a kernel without that kind lacks.

use super::dir::TraceDir;
use super::error::FtraceError;
use super::events::EventName;

/// The kinds of triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the kernel's")]
pub enum TriggerKind {
    TraceOn,
    TraceOff,
    Snapshot,
    StackTrace,
    EnableEvent,
    DisableEvent,
    EnableHist,
    DisableHist,
    Hist,
}

impl TriggerKind {
    const ALL: [(&str, TriggerKind); 9] = [
        ("traceon", TriggerKind::TraceOn),
        ("traceoff", TriggerKind::TraceOff),
        ("snapshot", TriggerKind::Snapshot),
        ("stacktrace", TriggerKind::StackTrace),
        ("enable_event", TriggerKind::EnableEvent),
        ("disable_event", TriggerKind::DisableEvent),
        ("enable_hist", TriggerKind::EnableHist),
        ("disable_hist", TriggerKind::DisableHist),
        ("hist", TriggerKind::Hist),
    ];

    /// Build option that the kernel needs, beyond tracing.
    pub fn needs(self) -> Option<&'static str> {
        match self {
            TriggerKind::Snapshot => Some("CONFIG_TRACER_SNAPSHOT"),
            TriggerKind::Hist | TriggerKind::EnableHist | TriggerKind::DisableHist => {
                Some("CONFIG_HIST_TRIGGERS")
            }
            TriggerKind::StackTrace => Some("CONFIG_STACKTRACE"),
            _ => None,
        }
    }

    /// The kernel's word for it.
    pub fn word(self) -> &'static str {
        TriggerKind::ALL.iter().find(|(_, k)| *k == self).map_or("", |(w, _)| w)
    }
}

/// A trigger as it is written: `KIND[:ARGUMENTS][ if FILTER]`, with a `!` before it
/// to take it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The text without `!`.
    pub text: String,
    /// Its kind.
    pub kind: TriggerKind,
    /// Whether it is to be taken away.
    pub remove: bool,
}

impl Trigger {
    /// Reads a trigger as typed.
    pub fn parse(text: &str) -> Result<Trigger, FtraceError> {
        let text = text.trim();
        let (remove, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, text),
        };
        let word = rest.split([':', ' ']).next().unwrap_or("");
        let kind = TriggerKind::ALL.iter().find(|(w, _)| *w == word).map(|(_, k)| *k);
        match kind {
            Some(kind) if !rest.contains('\n') => {
                let text = match kind {
                    TriggerKind::Hist => rest.trim_end_matches(" [active]").to_owned(),
                    _ => given(rest),
                };
                Ok(Trigger { text, kind, remove })
            }
            _ => Err(FtraceError::BadName {
                text: text.to_owned(),
                why: "a trigger starts with traceon, traceoff, snapshot, stacktrace, \
                      enable_event, disable_event, enable_hist, disable_hist or hist",
            }),
        }
    }
}

/// The kernel shows `stacktrace:unlimited` and `traceoff:count=2 if x == 1` for
/// what is given as `stacktrace` and `traceoff:2 if x == 1`.
fn given(shown: &str) -> String {
    let (head, condition) = match shown.split_once(" if ") {
        Some((head, condition)) => (head, Some(condition)),
        None => (shown, None),
    };
    let head = head.trim_end().trim_end_matches(":unlimited").replace(":count=", ":");
    condition.map_or(head.clone(), |c| format!("{head} if {c}"))
}

impl TraceDir {
    /// An event's filter; `None` if it has none.
    pub fn filter(&self, event: &EventName) -> Result<Option<String>, FtraceError> {
        let text = self.read(&format!("{}/filter", event.directory()))?;
        let text = text.trim();
        Ok((text != "none" && !text.is_empty()).then(|| text.to_owned()))
    }

    /// Lets only events pass for which `expression` holds.
    pub fn set_filter(&self, event: &EventName, expression: &str) -> Result<(), FtraceError> {
        let file = format!("{}/filter", event.directory());
        let result = self.set(&file, expression);
        if result.is_err() {
            // A wrong filter replaces the old one all the same: the kernel keeps its
            // text in the file and lets everything pass.
            let _ = self.set(&file, "0");
        }
        result
    }

    /// Lets all events pass.
    pub fn clear_filter(&self, event: &EventName) -> Result<(), FtraceError> {
        self.set(&format!("{}/filter", event.directory()), "0")
    }

    /// An event's triggers, as the kernel writes them.
    pub fn triggers(&self, event: &EventName) -> Result<Vec<String>, FtraceError> {
        let text = self.read(&format!("{}/trigger", event.directory()))?;
        let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        Ok(lines.map(str::to_owned).collect())
    }

    /// Takes all of an event's triggers away.
    pub fn clear_triggers(&self, event: &EventName) -> Result<(), FtraceError> {
        // Only histograms go when the file is opened with O_TRUNC.
        for shown in self.triggers(event)? {
            let trigger = Trigger { remove: true, ..Trigger::parse(&shown)? };
            self.set_trigger(event, &trigger)?;
        }
        Ok(())
    }

    /// Adds a trigger or takes it away.
    pub fn set_trigger(&self, event: &EventName, trigger: &Trigger) -> Result<(), FtraceError> {
        let file = format!("{}/trigger", event.directory());
        let value =
            if trigger.remove { format!("!{}", trigger.text) } else { trigger.text.clone() };
        self.add(&file, &value).map_err(|e| self.explain(event, trigger, e))
    }

    /// The kernel says only EINVAL to a kind that it was not built with; such a
    /// kernel lacks the files that go with it.
    fn explain(&self, event: &EventName, trigger: &Trigger, error: FtraceError) -> FtraceError {
        let FtraceError::Refused(mut refusal) = error else { return error };
        if refusal.fact.is_some() {
            return FtraceError::Refused(refusal);
        }
        let missing = match trigger.kind {
            TriggerKind::Snapshot => !self.has("snapshot"),
            TriggerKind::StackTrace => false,
            _ => !self.has(&format!("{}/hist", event.directory())),
        };
        let word = trigger.kind.word();
        refusal.fact = match (refusal.source.raw_os_error(), trigger.kind.needs()) {
            (Some(libc::EINVAL), Some(needs)) if missing => {
                Some(format!("this kernel has no {word} triggers (it needs {needs})"))
            }
            (Some(libc::EEXIST), _) => Some("the event already has such a trigger".to_owned()),
            (Some(libc::ENOENT), _) if trigger.remove => {
                Some("the event has no such trigger".to_owned())
            }
            (Some(libc::EINVAL), _)
                if refusal.complaint.is_none() && word.ends_with("able_event") =>
            {
                Some(format!("expected {word}:GROUP:EVENT[:COUNT] with an existing event"))
            }
            _ => None,
        };
        FtraceError::Refused(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_the_first_word() {
        let t = Trigger::parse("!enable_event:sched:sched_switch:3 if prev_pid == 1").unwrap();
        assert_eq!((t.kind, t.remove), (TriggerKind::EnableEvent, true));
        assert_eq!(t.text, "enable_event:sched:sched_switch:3 if prev_pid == 1");
        assert_eq!(Trigger::parse(" traceoff if x == 1 ").unwrap().kind, TriggerKind::TraceOff);
        assert_eq!(
            Trigger::parse("hist:keys=pid").unwrap().kind.needs(),
            Some("CONFIG_HIST_TRIGGERS")
        );
        let shown = Trigger::parse("!traceoff:count=2 if x == 1").unwrap();
        assert_eq!(shown.text, "traceoff:2 if x == 1");
        assert_eq!(Trigger::parse("stacktrace:unlimited").unwrap().text, "stacktrace");
        for bad in ["", "!", "explode", "histogram:keys=x", "traceon\ntraceoff"] {
            assert!(Trigger::parse(bad).is_err(), "{bad:?}");
        }
    }
}

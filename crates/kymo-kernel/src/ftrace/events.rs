//! Names of events, at any level of the hierarchy, and switching them.
//!
//! A [`Selection`] is what a user types: one event, a group, a pattern,
//! everything. Groups and everything are switched by their own `enable` file, as
//! the kernel has it, patterns event by event.

use globset::{Glob, GlobMatcher};

use super::dir::TraceDir;
use super::error::FtraceError;

/// An event's full name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventName {
    /// Its group.
    pub system: String,
    /// Its name there.
    pub name: String,
}

impl EventName {
    /// The event's directory within a trace directory.
    pub fn directory(&self) -> String {
        format!("events/{}/{}", self.system, self.name)
    }
}

impl std::fmt::Display for EventName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.system, self.name)
    }
}

/// Which events.
#[derive(Clone, Debug)]
pub enum Selection {
    /// Every event of the kernel.
    All,
    /// `sched:switch*`, `*:foo`, `sched_*`: both parts are patterns; without a
    /// colon the pattern may match the group or the event.
    Pattern {
        /// As it was typed.
        text: String,
        /// Pattern of the group.
        system: Option<GlobMatcher>,
        /// Pattern of the event.
        name: GlobMatcher,
    },
    /// `sched`, `sched:`, `sched:*`, `sched_switch`: a word that is a group's
    /// name or, failing that, an event's.
    Word(String),
    /// `sched:sched_switch`.
    Event(EventName),
}

impl Selection {
    /// Reads a name as typed; `/` stands for `:` too.
    pub fn parse(text: &str) -> Result<Selection, FtraceError> {
        let bad = |why| FtraceError::BadName { text: text.to_owned(), why };
        let glob = |part: &str| {
            Glob::new(part).map(|g| g.compile_matcher()).map_err(|_| bad("invalid pattern"))
        };
        let is_pattern = |s: &str| s.contains(['*', '?', '[']);
        let (system, name) = match text.split_once([':', '/']) {
            Some((system, name)) => (Some(system), name),
            None => (None, text),
        };
        if text.is_empty() || name.contains([':', '/', '\0']) || text.contains(char::is_whitespace)
        {
            return Err(bad("expected GROUP:EVENT, GROUP, EVENT or a pattern"));
        }
        match (system, name) {
            (Some("*" | "") | None, "*") | (Some("*"), "") => Ok(Selection::All),
            (Some(system), "" | "*") if !is_pattern(system) => {
                Ok(Selection::Word(format!("{system}:")))
            }
            (None, word) if !is_pattern(word) => Ok(Selection::Word(word.to_owned())),
            (Some(system), name) if !is_pattern(system) && !is_pattern(name) => {
                if matches!(system, "." | ".." | "") || matches!(name, "." | "..") {
                    return Err(bad("expected GROUP:EVENT"));
                }
                Ok(Selection::Event(EventName { system: system.to_owned(), name: name.to_owned() }))
            }
            (system, name) => Ok(Selection::Pattern {
                text: text.to_owned(),
                system: system.filter(|s| !s.is_empty()).map(glob).transpose()?,
                name: glob(if name.is_empty() { "*" } else { name })?,
            }),
        }
    }

    /// As it was typed, or an equivalent.
    pub fn text(&self) -> String {
        match self {
            Selection::All => "*:*".to_owned(),
            Selection::Pattern { text, .. } => text.clone(),
            Selection::Word(word) => word.clone(),
            Selection::Event(event) => event.to_string(),
        }
    }
}

/// State in an `enable` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventState {
    /// Off.
    Off,
    /// On.
    On,
    /// Some events of the group are on, some off.
    Mixed,
}

impl EventState {
    fn parse(text: &str) -> Option<EventState> {
        // A star marks an event that a trigger holds without recording it.
        match text.trim().trim_end_matches('*') {
            "0" => Some(EventState::Off),
            "1" => Some(EventState::On),
            "X" => Some(EventState::Mixed),
            _ => None,
        }
    }
}

/// Groups that hold no events that could be switched.
fn is_switchable(system: &str) -> bool {
    system != "ftrace"
}

impl TraceDir {
    /// The events a selection names, sorted.
    ///
    /// # Errors
    /// If it names none; the error lists names that are near.
    pub fn select(&self, selection: &Selection) -> Result<Vec<EventName>, FtraceError> {
        let found = match selection {
            Selection::All => self.matching(|_| true, |_, _| true)?,
            Selection::Pattern { system: Some(system), name, .. } => {
                self.matching(|s| system.is_match(s), |_, n| name.is_match(n))?
            }
            Selection::Pattern { system: None, name, .. } => {
                self.matching(|_| true, |s, n| name.is_match(n) || name.is_match(s))?
            }
            Selection::Word(word) => self.word(word)?,
            Selection::Event(event) => {
                if self.has(&event.directory()) {
                    vec![event.clone()]
                } else {
                    Vec::new()
                }
            }
        };
        if found.is_empty() {
            let wanted = selection.text();
            let hint = self.near(&wanted);
            return Err(FtraceError::NoEvent { wanted, root: self.root().to_owned(), hint });
        }
        Ok(found)
    }

    /// The group of this name, or the events of this name in any group.
    fn word(&self, word: &str) -> Result<Vec<EventName>, FtraceError> {
        let group = word.trim_end_matches(':');
        let whole = self.matching(|s| s == group, |_, _| true)?;
        if !whole.is_empty() || group.len() != word.len() {
            return Ok(whole);
        }
        self.matching(|_| true, |_, n| n == word)
    }

    fn matching(
        &self,
        system: impl Fn(&str) -> bool,
        event: impl Fn(&str, &str) -> bool,
    ) -> Result<Vec<EventName>, FtraceError> {
        let mut found = Vec::new();
        for s in self.tree().systems()?.into_iter().filter(|s| is_switchable(s) && system(s)) {
            // A group that went away meanwhile has no events.
            let Ok(names) = self.tree().events(&s) else { continue };
            found.extend(
                names
                    .into_iter()
                    .filter(|n| event(&s, n))
                    .map(|name| EventName { system: s.clone(), name }),
            );
        }
        Ok(found)
    }

    /// Words about names that share a part with `wanted`.
    fn near(&self, wanted: &str) -> String {
        let part = wanted.rsplit([':', '/']).next().unwrap_or(wanted);
        let part = part.trim_matches(['*', '?']);
        if part.len() < 3 {
            return String::new();
        }
        let all = self.matching(|_| true, |_, n| n.contains(part)).unwrap_or_default();
        let names: Vec<String> = all.iter().take(4).map(EventName::to_string).collect();
        if names.is_empty() {
            "; kymo list tracepoint shows all".to_owned()
        } else {
            format!("; there is {}", names.join(", "))
        }
    }

    /// Switches events on: which ones were off before.
    pub fn enable(&self, selection: &Selection) -> Result<Vec<EventName>, FtraceError> {
        self.switch(selection, true)
    }

    /// Switches events off: which ones were on before.
    pub fn disable(&self, selection: &Selection) -> Result<Vec<EventName>, FtraceError> {
        self.switch(selection, false)
    }

    fn switch(&self, selection: &Selection, on: bool) -> Result<Vec<EventName>, FtraceError> {
        let found = self.select(selection)?;
        let enabled: std::collections::HashSet<EventName> = self.enabled()?.into_iter().collect();
        let changed: Vec<EventName> =
            found.into_iter().filter(|e| enabled.contains(e) != on).collect();
        let value = if on { "1" } else { "0" };
        match selection {
            _ if changed.is_empty() => {}
            Selection::All => self.set("events/enable", value)?,
            Selection::Word(_) | Selection::Pattern { .. } | Selection::Event(_) => {
                for event in &changed {
                    match self.set(&format!("{}/enable", event.directory()), value) {
                        // Gone between the look and the switch: it is off.
                        Err(FtraceError::Lacking { .. }) if !on => {}
                        result => result?,
                    }
                }
            }
        }
        Ok(changed)
    }

    /// The events that are on, sorted.
    pub fn enabled(&self) -> Result<Vec<EventName>, FtraceError> {
        let text = self.read("set_event")?;
        let mut events: Vec<EventName> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(s, n)| EventName { system: s.to_owned(), name: n.trim().to_owned() })
            .collect();
        events.sort_unstable();
        Ok(events)
    }

    /// Whether an event is on.
    pub fn event_state(&self, event: &EventName) -> Result<EventState, FtraceError> {
        self.state_of(&format!("{}/enable", event.directory()))
    }

    /// Whether a group's events are on; `None` for a group that has no switch.
    pub fn group_state(&self, system: &str) -> Result<Option<EventState>, FtraceError> {
        let file = format!("events/{system}/enable");
        if !is_switchable(system) || !self.has(&file) {
            return Ok(None);
        }
        self.state_of(&file).map(Some)
    }

    fn state_of(&self, file: &str) -> Result<EventState, FtraceError> {
        let text = self.read(file)?;
        EventState::parse(&text).ok_or_else(|| FtraceError::Unexpected {
            path: self.path(file),
            text: text.trim().chars().take(40).collect(),
            expected: "0, 1 or X",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracefs::Tracefs;

    fn tree() -> (tempfile::TempDir, TraceDir) {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("set_event"), "").unwrap();
        for (system, events) in [
            ("sched", &["sched_switch", "sched_waking"][..]),
            ("irq", &["softirq_entry", "softirq_exit"]),
            ("ftrace", &["print"]),
            ("timer", &["timer_start"]),
        ] {
            for event in events {
                let directory = root.path().join("events").join(system).join(event);
                std::fs::create_dir_all(&directory).unwrap();
                std::fs::write(directory.join("enable"), "0\n").unwrap();
            }
        }
        let dir = TraceDir::top(&Tracefs::at(root.path()));
        (root, dir)
    }

    #[track_caller]
    fn check(dir: &TraceDir, text: &str, expected: &str) {
        let names = match Selection::parse(text).and_then(|s| dir.select(&s)) {
            Ok(events) => events.iter().map(EventName::to_string).collect::<Vec<_>>().join(" "),
            Err(e) => e.to_string().replace(&dir.root().display().to_string(), "ROOT"),
        };
        assert_eq!(names, expected, "{text}");
    }

    #[test]
    fn every_level_of_the_hierarchy_can_be_named() {
        let (_root, dir) = tree();
        check(&dir, "sched:sched_switch", "sched:sched_switch");
        check(&dir, "sched/sched_switch", "sched:sched_switch");
        for group in ["sched", "sched:", "sched:*", "sched/"] {
            check(&dir, group, "sched:sched_switch sched:sched_waking");
        }
        check(&dir, "softirq_exit", "irq:softirq_exit");
        check(&dir, "softirq_*", "irq:softirq_entry irq:softirq_exit");
        check(&dir, "s*:*switch", "sched:sched_switch");
        check(&dir, "i*", "irq:softirq_entry irq:softirq_exit");
        let all = "irq:softirq_entry irq:softirq_exit sched:sched_switch sched:sched_waking \
                   timer:timer_start";
        for text in ["*:*", "*", "*:"] {
            check(&dir, text, all);
        }
    }

    #[test]
    fn what_is_not_there_names_its_neighbours() {
        let (_root, dir) = tree();
        check(
            &dir,
            "irq:softirq",
            "no event \"irq:softirq\" in ROOT; there is irq:softirq_entry, irq:softirq_exit",
        );
        check(&dir, "xyzzy", "no event \"xyzzy\" in ROOT; kymo list tracepoint shows all");
        check(
            &dir,
            "../x:y",
            "\"../x:y\" is not an event: expected GROUP:EVENT, GROUP, EVENT or a pattern",
        );
        check(&dir, "..:y", "\"..:y\" is not an event: expected GROUP:EVENT");
        check(&dir, "a:[", "\"a:[\" is not an event: invalid pattern");
        // `ftrace` holds formats only.
        check(&dir, "ftrace:", "no group of events \"ftrace\" in ROOT");
    }

    #[test]
    fn only_what_changes_is_switched() {
        let (root, dir) = tree();
        std::fs::write(root.path().join("set_event"), "sched:sched_switch\n").unwrap();
        let changed = dir.enable(&Selection::parse("sched").unwrap()).unwrap();
        assert_eq!(changed.len(), 1);
        let state = |name: &str| {
            let event = EventName { system: "sched".into(), name: name.into() };
            dir.event_state(&event).unwrap()
        };
        assert_eq!(state("sched_waking"), EventState::On);
        // Was on by its list; its file was not touched.
        assert_eq!(state("sched_switch"), EventState::Off);
        assert_eq!(EventState::parse("1*\n"), Some(EventState::On));
        assert_eq!(EventState::parse("X"), Some(EventState::Mixed));
    }
}

//! Samples between two events: those from one event on, until another one.

use kymo_files::perfdata::PerfData;

/// The events that switch: `--switch-on` and `--switch-off` of perf's.
#[derive(Clone, Debug, Default)]
pub struct EventSwitch {
    /// Nothing counts before this event.
    pub on: Option<String>,
    /// Nothing counts from this event on, until the next that switches on.
    pub off: Option<String>,
    /// The events that switch count themselves.
    pub is_inclusive: bool,
}

impl EventSwitch {
    /// Whether anything switches.
    #[inline]
    pub fn is_given(&self) -> bool {
        self.on.is_some() || self.off.is_some()
    }

    /// Checks that a recording has the events. A pipe defines its events while it is read.
    ///
    /// # Errors
    /// Names the event that it lacks.
    pub(crate) fn check(&self, data: &PerfData) -> Result<(), String> {
        let given = [("--switch-on", &self.on), ("--switch-off", &self.off)];
        let given = given.into_iter().filter_map(|(flag, name)| Some((flag, name.as_ref()?)));
        for (flag, name) in given.filter(|_| !data.is_pipe()) {
            if !data.events().iter().any(|event| event.name == *name) {
                return Err(format!("{flag} {name}: {} has no such event", data.name()));
            }
        }
        Ok(())
    }
}

/// State of a reader between the two events.
#[derive(Debug)]
pub struct SwitchState {
    is_on: bool,
}

impl SwitchState {
    /// Before the first event.
    pub fn new(switch: &EventSwitch) -> SwitchState {
        SwitchState { is_on: switch.on.is_none() }
    }

    /// Takes the next sample, of an event of this name; returns whether it counts.
    pub fn wants(&mut self, switch: &EventSwitch, event: &str) -> bool {
        if !self.is_on {
            self.is_on = switch.on.as_deref() == Some(event);
            return self.is_on && switch.is_inclusive;
        }
        if switch.off.as_deref() == Some(event) {
            self.is_on = false;
            return switch.is_inclusive;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(on: Option<&str>, off: Option<&str>, is_inclusive: bool, events: &str) -> String {
        let switch =
            EventSwitch { on: on.map(str::to_owned), off: off.map(str::to_owned), is_inclusive };
        let mut state = SwitchState::new(&switch);
        events.split(' ').filter(|e| state.wants(&switch, e)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn events_between_two_others_count() {
        let events = "1 a 2 a 3 b 4 a 5";
        assert_eq!(wanted(Some("a"), Some("b"), false, events), "2 a 3 5");
        assert_eq!(wanted(Some("a"), Some("b"), true, events), "a 2 a 3 b a 5");
        assert_eq!(wanted(Some("a"), None, false, events), "2 a 3 b 4 a 5");
        assert_eq!(wanted(None, Some("b"), false, events), "1 a 2 a 3");
    }
}

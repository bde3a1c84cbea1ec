//! Which calls and signals are shown: strace's `-e`, `-z`, `-Z`, `-P`.

use std::collections::BTreeSet;

use regex_automata::meta::Regex;

use super::signals::signal_text;
use crate::syscalls::syscall_name;

/// Why a filter was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFilterError {
    /// No system call has this name.
    #[error("no system call, class or pattern {0:?}")]
    Call(String),
    /// It is not a regular expression.
    #[error("{0:?} is not a regular expression: {1}")]
    Expression(String, String),
    /// No signal has this name.
    #[error("no signal {0:?}")]
    Signal(String),
    /// No status has this name.
    #[error("no status {0:?}; there are successful, failed, unfinished, unavailable, detached")]
    Status(String),
}

/// Status of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallStatus {
    /// With a result.
    Successful,
    /// With an error.
    Failed,
    /// Not at all: its task ended.
    Unfinished,
    /// Without a result that could be read.
    Unavailable,
    /// Tracing ended before.
    Detached,
}

/// Selection of calls to show.
#[derive(Clone, Debug, Default)]
pub struct CallFilter {
    calls: Option<BTreeSet<i64>>,
    signals: Option<BTreeSet<String>>,
    statuses: Option<BTreeSet<CallStatus>>,
    /// Only calls that name one of these paths, if there are any.
    pub paths: Vec<Vec<u8>>,
}

/// Words separated by commas, and whether all others are meant (`!` before them).
fn words(list: &str) -> (bool, impl Iterator<Item = &str>) {
    let (are_others, list) = match list.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, list),
    };
    (are_others, list.split(',').filter(|word| !word.is_empty()))
}

/// Calls whose names have a match of the expression after `/`.
fn matching(word: &str) -> Result<Vec<i64>, CallFilterError> {
    let expression = word.trim_start_matches('/');
    let regex = Regex::new(expression).map_err(|e| {
        // The last of several lines has the error.
        let error = e.syntax_error().map_or_else(|| e.to_string(), ToString::to_string);
        let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        CallFilterError::Expression(expression.to_owned(), reason.to_owned())
    })?;
    let fits = |number: &i64| syscall_name(*number).is_some_and(|name| regex.is_match(name));
    Ok(super::super::all_syscalls().into_iter().filter(fits).collect())
}

impl CallFilter {
    /// `trace=LIST`: names, classes with `%`, regular expressions after `/`, patterns with `*`,
    /// `all`, `none`.
    ///
    /// # Errors
    /// If a word names no call; `?` before a word allows that.
    pub fn set_calls(&mut self, list: &str) -> Result<(), CallFilterError> {
        let (are_others, words) = words(list);
        let mut calls = BTreeSet::new();
        for word in words {
            let (is_optional, name) = match word.strip_prefix('?') {
                Some(name) => (true, name),
                None => (false, word),
            };
            let found: Vec<i64> = match name {
                "all" => super::super::all_syscalls(),
                "none" => continue,
                _ => match name.strip_prefix('%') {
                    Some(class) => super::super::syscall_class(class).unwrap_or_default(),
                    None if name.starts_with('/') => matching(name)?,
                    None if name.contains(['*', '?']) => super::super::syscalls_matching(name),
                    None => match super::super::syscall_number(name) {
                        Some(number) => vec![number],
                        None => super::super::syscall_class(name).unwrap_or_default(),
                    },
                },
            };
            if found.is_empty() && !is_optional {
                return Err(CallFilterError::Call(word.to_owned()));
            }
            calls.extend(found);
        }
        if are_others {
            let without = calls;
            calls = super::super::all_syscalls().into_iter().collect();
            calls.retain(|call| !without.contains(call));
        }
        self.calls = Some(calls);
        Ok(())
    }

    /// `signal=LIST`: names with or without SIG, numbers, `all`, `none`.
    ///
    /// # Errors
    /// If a word names no signal.
    pub fn set_signals(&mut self, list: &str) -> Result<(), CallFilterError> {
        let (are_others, words) = words(list);
        let all: BTreeSet<String> = (1..=64).map(signal_text).collect();
        let mut signals = BTreeSet::new();
        for word in words {
            match word {
                "all" => signals.extend(all.clone()),
                "none" => {}
                _ => {
                    let number = word.parse().ok().map(signal_text);
                    let upper = word.to_uppercase();
                    let name = number.unwrap_or_else(|| {
                        if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") }
                    });
                    if !all.contains(&name) {
                        return Err(CallFilterError::Signal(word.to_owned()));
                    }
                    signals.insert(name);
                }
            }
        }
        self.signals =
            Some(if are_others { all.difference(&signals).cloned().collect() } else { signals });
        Ok(())
    }

    /// `status=LIST`.
    ///
    /// # Errors
    /// If a word names no status.
    pub fn set_statuses(&mut self, list: &str) -> Result<(), CallFilterError> {
        use CallStatus::{Detached, Failed, Successful, Unavailable, Unfinished};
        let all = [Successful, Failed, Unfinished, Unavailable, Detached];
        let (are_others, words) = words(list);
        let mut statuses = BTreeSet::new();
        for word in words {
            match word {
                "all" => statuses.extend(all),
                "none" => {}
                "successful" => drop(statuses.insert(Successful)),
                "failed" => drop(statuses.insert(Failed)),
                "unfinished" => drop(statuses.insert(Unfinished)),
                "unavailable" => drop(statuses.insert(Unavailable)),
                "detached" => drop(statuses.insert(Detached)),
                _ => return Err(CallFilterError::Status(word.to_owned())),
            }
        }
        self.statuses = Some(if are_others {
            all.into_iter().filter(|status| !statuses.contains(status)).collect()
        } else {
            statuses
        });
        Ok(())
    }

    /// Whether a call of this machine's ABI is shown; of others by its name.
    pub(super) fn has_call(&self, call: &super::BegunCall) -> bool {
        let Some(calls) = &self.calls else { return true };
        if call.is_compat {
            super::super::syscall_number(&call.name).is_none_or(|n| calls.contains(&n))
        } else {
            calls.contains(&call.number)
        }
    }

    /// Whether lines wait for the end of a call, which decides.
    pub(super) fn waits_for_end(&self) -> bool {
        self.statuses.is_some() || !self.paths.is_empty()
    }

    pub(super) fn has_status(&self, status: CallStatus) -> bool {
        self.statuses.as_ref().is_none_or(|statuses| statuses.contains(&status))
    }

    pub(super) fn has_paths(&self, named: &[Vec<u8>]) -> bool {
        self.paths.is_empty() || named.iter().any(|path| self.paths.contains(path))
    }

    pub(super) fn has_signal(&self, signal: i32) -> bool {
        let name = signal_text(signal.cast_unsigned());
        self.signals.as_ref().is_none_or(|signals| signals.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: i64) -> super::super::BegunCall {
        super::super::BegunCall::new(0xc000_003e, number, [0; 6], 0)
    }

    #[test]
    fn calls_are_named_by_words_classes_and_patterns() {
        let mut filter = CallFilter::default();
        assert!(filter.has_call(&call(libc::SYS_read)));
        filter.set_calls("open,openat").unwrap();
        assert!(filter.has_call(&call(libc::SYS_openat)));
        assert!(!filter.has_call(&call(libc::SYS_read)));
        filter.set_calls("!%file").unwrap();
        assert!(!filter.has_call(&call(libc::SYS_openat)));
        assert!(filter.has_call(&call(libc::SYS_read)));
        filter.set_calls("none").unwrap();
        assert!(!filter.has_call(&call(libc::SYS_read)));
        assert_eq!(filter.set_calls("opne"), Err(CallFilterError::Call("opne".into())));
        let error = filter.set_calls("/[").unwrap_err().to_string();
        assert_eq!(error, "\"[\" is not a regular expression: unclosed character class");
        filter.set_calls("?opne,read").unwrap();
        assert!(filter.has_call(&call(libc::SYS_read)));
    }

    #[test]
    fn signals_are_named_with_or_without_their_prefix() {
        let mut filter = CallFilter::default();
        assert!(filter.has_signal(libc::SIGCHLD));
        filter.set_signals("chld,SIGTERM,1").unwrap();
        assert!(filter.has_signal(libc::SIGCHLD) && filter.has_signal(libc::SIGHUP));
        assert!(!filter.has_signal(libc::SIGINT));
        filter.set_signals("!SIGCHLD").unwrap();
        assert!(!filter.has_signal(libc::SIGCHLD) && filter.has_signal(libc::SIGINT));
        filter.set_signals("none").unwrap();
        assert!(!filter.has_signal(libc::SIGINT));
        assert!(filter.set_signals("SIGNOT").is_err());
    }
}

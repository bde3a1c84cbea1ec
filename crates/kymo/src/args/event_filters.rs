//! `-e` and `--filter`, whose order matters: a filter belongs to the events of
//! the `-e` before it, or to those of the `-u` before it where a command has that.

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches, Command};
use kymo_kernel::events::{Catalog, EventSpec};

/// One `-e` or `--filter`, as typed.
#[derive(Clone, Debug)]
enum Typed {
    Event(String),
    Filter(String),
    /// A `-u`; its events are known elsewhere.
    Programs,
}

/// The name of `-u` where there is one.
const PROGRAMS: &str = "user_events";

/// All of them, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventArgs(Vec<Typed>);

impl EventArgs {
    /// Tracepoints as they were typed, each with the filter that belongs to it.
    pub(crate) fn with_filters(&self) -> anyhow::Result<Vec<(String, Option<String>)>> {
        let mut all: Vec<(String, Option<String>)> = Vec::new();
        let (mut last, mut programs) = (0, false);
        for typed in &self.0 {
            match typed {
                Typed::Event(text) => {
                    (last, programs) = (all.len(), false);
                    all.extend(text.split(',').map(|e| (e.trim().to_owned(), None)));
                }
                Typed::Programs => programs = true,
                Typed::Filter(_) if programs => {}
                Typed::Filter(filter) => {
                    if all.is_empty() {
                        bail!("--filter {filter:?} needs an -e before it");
                    }
                    for (_, f) in all.iter_mut().skip(last) {
                        *f = Some(match f.take() {
                            Some(before) => format!("({before}) && ({filter})"),
                            None => filter.clone(),
                        });
                    }
                }
            }
        }
        Ok(all)
    }

    /// The filters of programs' events as one: those behind a `-u`; all if there is no `-e`.
    pub(crate) fn for_programs(&self) -> Option<String> {
        let mut programs = !self.0.iter().any(|t| matches!(t, Typed::Event(_)));
        let filters = self.0.iter().filter_map(|t| {
            match t {
                Typed::Filter(f) => return Some(f.as_str()).filter(|_| programs),
                Typed::Event(_) => programs = false,
                Typed::Programs => programs = true,
            }
            None
        });
        let filters: Vec<&str> = filters.collect();
        match filters[..] {
            [] => None,
            [one] => Some(one.to_owned()),
            _ => Some(filters.iter().map(|f| format!("({f})")).collect::<Vec<_>>().join(" && ")),
        }
    }

    /// Whether nothing was typed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more event behind those that were typed.
    pub(crate) fn push(&mut self, event: String) {
        self.0.push(Typed::Event(event));
    }

    /// The selected events.
    pub(crate) fn specs(&self, catalog: &Catalog) -> anyhow::Result<Vec<EventSpec>> {
        let mut specs: Vec<EventSpec> = Vec::new();
        let (mut last, mut groups) = (0, 0);
        for typed in &self.0 {
            match typed {
                Typed::Event(text) => {
                    last = specs.len();
                    specs.extend(catalog.parse(text)?);
                    // Groups are numbered within one text.
                    let base = groups;
                    for s in specs.iter_mut().skip(last) {
                        s.group = s.group.map(|g| g + base);
                        groups = groups.max(s.group.map_or(0, |g| g + 1));
                    }
                }
                Typed::Programs => {}
                Typed::Filter(filter) => {
                    if specs.is_empty() {
                        bail!("--filter {filter:?} needs an -e before it");
                    }
                    for s in specs.iter_mut().skip(last) {
                        if !s.is_tracepoint() {
                            bail!("--filter {filter:?} needs a tracepoint, and {} is none", s.name);
                        }
                        s.filter = Some(match s.filter.take() {
                            Some(before) => format!("({before}) && ({filter})"),
                            None => filter.clone(),
                        });
                    }
                }
            }
        }
        Ok(specs)
    }
}

impl clap::FromArgMatches for EventArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let all = |id: &str, make: fn(String) -> Typed| -> Vec<(usize, Typed)> {
            let values = matches.get_many::<String>(id).into_iter().flatten().cloned().map(make);
            matches.indices_of(id).into_iter().flatten().zip(values).collect()
        };
        let mut typed = all("event", Typed::Event);
        typed.extend(all("filter", Typed::Filter));
        if matches.try_contains_id(PROGRAMS).is_ok() {
            let places = matches.indices_of(PROGRAMS).into_iter().flatten();
            typed.extend(places.map(|at| (at, Typed::Programs)));
        }
        typed.sort_by_key(|(at, _)| *at);
        Ok(EventArgs(typed.into_iter().map(|(_, t)| t).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for EventArgs {
    fn augment_args(command: Command) -> Command {
        let event = Arg::new("event").short('e').long("event").alias("expr").value_name("EVENTS");
        let filter = Arg::new("filter").long("filter").value_name("FILTER");
        command
            .arg(
                event
                    .action(ArgAction::Append)
                    .help("Events, named as in `kymo list`: a,b or {group,of,events}:u"),
            )
            .arg(
                filter
                    .action(ArgAction::Append)
                    .help("Filter for the events of the -e (or -u) before it"),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;
    use clap::{Args as _, FromArgMatches as _};

    fn parse(words: &[&str]) -> EventArgs {
        let command = EventArgs::augment_args(Command::new("x"));
        EventArgs::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn a_filter_belongs_to_the_event_before_it() {
        let args = parse(&[
            "x",
            "-e",
            "sched:sched_switch",
            "--filter",
            "prev_pid > 3",
            "-e",
            "cpu-clock",
        ]);
        let kinds: Vec<bool> = args.0.iter().map(|t| matches!(t, Typed::Filter(_))).collect();
        assert_eq!(kinds, [false, true, false]);
        let error = |words: &[&str]| {
            parse(words).specs(&Catalog::open()).context("x").unwrap_err().to_string()
        };
        // A command that has -u, too.
        let command = EventArgs::augment_args(Command::new("x"))
            .arg(Arg::new(PROGRAMS).short('u').action(ArgAction::Append));
        let words = "x -u a:* --filter 1 -e s --filter 2 --filter 3 -u b:* --filter 4";
        let both = command.get_matches_from(words.split(' '));
        let both = EventArgs::from_arg_matches(&both).unwrap();
        assert_eq!(both.for_programs().unwrap(), "(1) && (4)");
        assert_eq!(both.with_filters().unwrap(), [("s".into(), Some("(2) && (3)".into()))]);
        assert_eq!(parse(&["x", "--filter", "a"]).for_programs().unwrap(), "a");
        assert!(!error(&["x", "--filter", "a"]).is_empty());
        assert!(!error(&["x", "-e", "cpu-clock", "--filter", "a"]).is_empty());
    }
}

//! Completion of a command line: commands, options and their values, among them the current ones of
//! this machine: events, their fields, probes, sessions, processes.

use std::collections::BTreeSet;

use clap::{Arg, Command, ValueEnum};
use kymo_format::EventFormat;
use kymo_kernel::events::{Catalog, names};
use kymo_kernel::{proc_maps, target};

/// Shells that completions are made for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Shell {
    Bash,
    Fish,
    Zsh,
}

impl Shell {
    /// Returns the shell's script, which calls this program for each completion.
    pub(super) fn script(self) -> &'static str {
        match self {
            Shell::Bash => include_str!("kymo.bash"),
            Shell::Fish => include_str!("kymo.fish"),
            Shell::Zsh => include_str!("kymo.zsh"),
        }
    }
}

/// Candidates for the last of the words behind the program's name, each with what it is behind a
/// tabulator.
pub(super) fn candidates(cli: &Command, words: &[String]) -> Vec<String> {
    let Some((last, before)) = words.split_last() else { return Vec::new() };
    let (mut command, mut is_of_session) = (cli, false);
    // The option whose value comes next, and values of options so far.
    let (mut open, mut typed, mut positionals) = (None, Vec::new(), 0);
    for word in before {
        if let Some(arg) = open.take() {
            typed.push((arg, word.as_str()));
        } else if word.starts_with('-') {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), None),
            };
            let arg = option(cli, command, name).filter(|arg| takes_value(arg));
            match (arg, value) {
                (Some(arg), Some(value)) => typed.push((arg, value)),
                (arg, _) => open = arg,
            }
        } else if let Some(within) = command.find_subcommand(word) {
            // Its commands name sessions, but one does that first.
            is_of_session = command.get_name() == "session" && word != "create";
            command = within;
        } else {
            positionals += 1;
        }
    }
    let found = match (open, last.split_once('=')) {
        (Some(arg), _) => values(arg, is_of_session, &typed, last),
        (None, Some((name, value))) if name.starts_with('-') => {
            let arg = option(cli, command, name);
            let of = arg.map(|arg| values(arg, is_of_session, &typed, value)).unwrap_or_default();
            of.into_iter().map(|value| format!("{name}={value}")).collect()
        }
        _ if last.starts_with('-') => options(cli, command),
        _ => {
            let place = command.get_positionals().nth(positionals);
            let place = place.or_else(|| command.get_positionals().last());
            let mut found = match place {
                Some(arg) => values(arg, is_of_session, &typed, last),
                None => Vec::new(),
            };
            let within = command.get_subcommands().filter(|within| !within.is_hide_set());
            found.extend(within.map(|c| described(c.get_name(), c.get_about())));
            found
        }
    };
    found.into_iter().filter(|candidate| candidate.starts_with(last.as_str())).collect()
}

fn described(name: &str, about: Option<&clap::builder::StyledStr>) -> String {
    let about = about.map(ToString::to_string).unwrap_or_default();
    format!("{name}\t{}", about.lines().next().unwrap_or_default())
}

fn takes_value(arg: &Arg) -> bool {
    // A value that may be left out stands behind `=`.
    let is_optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
    arg.get_action().takes_values() && !is_optional
}

fn all_options<'a>(cli: &'a Command, command: &'a Command) -> impl Iterator<Item = &'a Arg> {
    let global = cli.get_arguments().filter(|arg| arg.is_global_set());
    let own = command.get_arguments().filter(|arg| !arg.is_positional());
    own.chain(global).filter(|arg| !arg.is_hide_set())
}

fn option<'a>(cli: &'a Command, command: &'a Command, name: &str) -> Option<&'a Arg> {
    let long = name.strip_prefix("--");
    let short = name.strip_prefix('-').filter(|_| long.is_none());
    all_options(cli, command).find(|arg| match long {
        Some(long) => arg.get_long_and_visible_aliases().unwrap_or_default().contains(&long),
        None => arg.get_short().is_some_and(|c| short.is_some_and(|short| short.ends_with(c))),
    })
}

fn options(cli: &Command, command: &Command) -> Vec<String> {
    let named = |arg: &Arg| Some(described(&format!("--{}", arg.get_long()?), arg.get_help()));
    all_options(cli, command).filter_map(named).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Values of an argument that are known; of a list, the last one.
fn values(arg: &Arg, is_of_session: bool, typed: &[(&Arg, &str)], text: &str) -> Vec<String> {
    let stated = arg.get_possible_values();
    if !stated.is_empty() {
        return stated.iter().map(|value| value.get_name().to_owned()).collect();
    }
    // Lists of events are taken apart by their own grammar.
    let (head, last) = match text.rsplit_once(',') {
        Some((head, last)) => (format!("{head},"), last),
        None => (String::new(), text),
    };
    let name = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name);
    let found = match (name, arg.get_id().as_str()) {
        (_, "del") => probes(),
        ("EVENT" | "EVENTS" | "GLOB", _) | (_, "event" | "events") => events(last),
        (_, "filter" | "by") | ("FIELD", _) => fields(typed),
        ("PID" | "PIDS" | "TID" | "TIDS", _) | (_, "pid" | "tid") => processes(),
        (_, "name") if is_of_session => crate::commands::session::names(),
        _ => Vec::new(),
    };
    found.into_iter().map(|value| format!("{head}{value}")).collect()
}

/// Names of events; groups of tracepoints until one is named.
fn events(text: &str) -> Vec<String> {
    let catalog = Catalog::open();
    let tables = [names::HARDWARE.as_slice(), names::SOFTWARE.as_slice()];
    let fixed = tables.into_iter().flatten().map(|event| event.name.to_owned());
    let points = catalog.tracepoints().unwrap_or_default();
    let points = points.into_iter().map(|(group, event)| {
        if text.contains(':') { format!("{group}:{event}") } else { format!("{group}:") }
    });
    fixed.chain(points).collect::<BTreeSet<_>>().into_iter().collect()
}

fn probes() -> Vec<String> {
    let catalog = Catalog::open();
    let found = catalog.tracefs().and_then(|tracefs| tracefs.dynamic_events()).unwrap_or_default();
    found.iter().map(|probe| format!("{}:{}", probe.system, probe.name)).collect()
}

/// Fields of the event that was named last.
fn fields(typed: &[(&Arg, &str)]) -> Vec<String> {
    let is_event = |arg: &Arg| arg.get_id() == "event" || arg.get_id() == "events";
    let event = typed.iter().rev().find(|(arg, _)| is_event(arg)).map(|(_, text)| *text);
    let event = event.and_then(|text| text.rsplit(',').next()?.split_once(':'));
    let Some((group, name)) = event else { return Vec::new() };
    let catalog = Catalog::open();
    let text = catalog.tracefs().and_then(|tracefs| tracefs.event_format(group, name));
    let format = text.ok().and_then(|text| EventFormat::parse(&text).ok());
    let fields = format.map(|format| format.fields).unwrap_or_default();
    let own = |name: &&str| !name.starts_with("common_");
    fields.iter().map(|field| field.name.as_str()).filter(own).map(str::to_owned).collect()
}

fn processes() -> Vec<String> {
    let pids = proc_maps::processes().unwrap_or_default();
    let comm = |pid: u32| Some((pid, target::comm(pid)?));
    pids.into_iter().filter_map(comm).map(|(pid, comm)| format!("{pid}\t{}", comm.trim())).collect()
}

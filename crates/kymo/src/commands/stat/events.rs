//! `-e` and `--filter`, whose order on the command line matters: a filter is
//! for the tracepoints of the `-e` before it.

use clap::{Arg, ArgAction, ArgMatches, Command};

/// One `-e` with the filters that follow it.
#[derive(Clone, Debug, Default)]
pub(super) struct EventArg {
    pub(super) events: String,
    pub(super) filters: Vec<String>,
}

/// All of them in order.
#[derive(Clone, Debug, Default)]
pub(super) struct EventArgs {
    pub(super) list: Vec<EventArg>,
    /// A filter with no event before it.
    pub(super) orphan: Option<String>,
}

impl clap::Args for EventArgs {
    fn augment_args(command: Command) -> Command {
        command
            .arg(
                Arg::new("event")
                    .short('e')
                    .long("event")
                    .value_name("EVENTS")
                    .action(ArgAction::Append)
                    .help("Events to count, as `kymo list` names them: a,b or {group,of,them}:u"),
            )
            .arg(
                Arg::new("filter")
                    .long("filter")
                    .value_name("FILTER")
                    .action(ArgAction::Append)
                    .help("Count only what passes, for the tracepoints of the -e before it"),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for EventArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = |name: &str| -> Vec<(usize, String)> {
            let indices = matches.indices_of(name).into_iter().flatten();
            let values = matches.get_many::<String>(name).into_iter().flatten();
            indices.zip(values.cloned()).collect()
        };
        let events = values("event");
        let mut list: Vec<(usize, EventArg)> = events
            .into_iter()
            .map(|(at, events)| (at, EventArg { events, filters: Vec::new() }))
            .collect();
        let mut orphan = None;
        for (at, filter) in values("filter") {
            match list.iter_mut().rev().find(|(e, _)| *e < at) {
                Some((_, event)) => event.filters.push(filter),
                None => orphan = Some(filter),
            }
        }
        Ok(EventArgs { list: list.into_iter().map(|(_, e)| e).collect(), orphan })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

//! `kymo event`: the static tracepoints of the running kernel, at any level of
//! the hierarchy: looked at (`list.rs`, `show.rs`) and switched, filtered and
//! given triggers (`change.rs`).

mod change;
mod list;
mod show;

use std::process::ExitCode;

use clap::Subcommand;

use super::tracing;

/// Flags of `kymo event`.
#[derive(clap::Args)]
#[command(after_long_help = "\
EVENTS
  sched:sched_switch   one event (sched/sched_switch is the same)
  sched                a group
  sched_switch         an event of this name in any group
  'sched:*wak*'        a pattern; without a colon it may match groups or events
  --all                everything

What is changed here stays changed: in the kernel's top instance, or in the one
named with --instance. `kymo event show` tells what is on.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// Work in this trace instance (a directory of tracefs' instances/) instead of the top
    #[arg(long, value_name = "NAME", global = true)]
    instance: Option<String>,
}

#[derive(Subcommand)]
enum What {
    /// One level of the hierarchy with its state: the groups, a group's events, an event's fields
    List {
        /// A group, an event or a pattern; without one the groups
        event: Option<String>,
        /// One array of JSON objects (name, state, filter, triggers)
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Switch events on
    Enable(Choice),
    /// Switch events off
    Disable(Choice),
    /// Set the filter of an event: an expression over its fields
    #[command(after_long_help = "\
EXPRESSIONS
  prev_pid == 1 && next_comm ~ \"kworker*\"     == != < <= > >= & on numbers,
  call_site.function == do_page_fault         == != ~ on strings (~ takes a pattern),
  CPU & CPUS{0-3}                             && || ! and parentheses; common_pid,
                                              CPU and comm exist for every event")]
    Filter {
        /// A group, an event or a pattern
        event: String,
        /// The expression; without one the filters are shown
        expression: Option<String>,
        /// Let everything pass again
        #[arg(long, conflicts_with = "expression")]
        clear: bool,
    },
    /// Set a trigger: an action of the kernel when the event fires
    #[command(after_long_help = "\
TRIGGERS
  traceon, traceoff            switch the ring on or off
  stacktrace                   record the kernel's call stack
  snapshot                     swap the ring with its spare
  enable_event:GROUP:EVENT     switch another event on (disable_event: off)
  hist:keys=FIELD[,FIELD][:vals=…][:sort=…][:size=…]   count in the kernel
  enable_hist, disable_hist    pause and go on with a histogram
Each may end in :COUNT and in ` if EXPRESSION`. With a ! before it, as it was given
or as it is shown, it is taken away. Not every kernel has all of them.")]
    Trigger {
        /// The event
        event: String,
        /// The trigger, or `!` and the trigger to take it away; without one they are shown,
        /// with their histograms
        #[arg(allow_hyphen_values = true)]
        trigger: Option<String>,
        /// Take all triggers away
        #[arg(long, conflicts_with = "trigger")]
        clear: bool,
    },
    /// The kernel's description of an event's fields and text
    Format {
        /// The event
        event: String,
    },
    /// What is on now, in the top instance and in all others
    Show {
        /// JSON
        #[arg(short = 'j', long)]
        json: bool,
    },
}

/// Which events.
#[derive(clap::Args)]
struct Choice {
    /// Events, groups or patterns
    #[arg(value_name = "EVENT", required_unless_present = "all")]
    events: Vec<String>,
    /// All events
    #[arg(long, conflicts_with = "events")]
    all: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let tracefs = tracing::open()?;
    let instance = args.instance.as_deref();
    let dir = tracing::directory(&tracefs, instance)?;
    let mut out = std::io::BufWriter::new(crate::streams::styled_stdout());
    match args.what {
        What::List { event, json } => list::run(&dir, event.as_deref(), json, &mut out)?,
        What::Enable(choice) => change::switch(&dir, &choice.events, choice.all, true)?,
        What::Disable(choice) => change::switch(&dir, &choice.events, choice.all, false)?,
        What::Filter { event, expression, clear } => {
            let wish = change::Wish::new(expression, clear);
            change::filter(&dir, &event, wish, &mut out)?;
        }
        What::Trigger { event, trigger, clear } => {
            let wish = change::Wish::new(trigger, clear);
            change::trigger(&dir, &event, wish, &mut out)?;
        }
        What::Format { event } => list::format(&dir, &event, &mut out)?,
        What::Show { json } => match instance {
            Some(_) => show::run(&[dir], json, &mut out)?,
            None => show::run(&show::all(&tracefs)?, json, &mut out)?,
        },
    }
    std::io::Write::flush(&mut out)?;
    Ok(ExitCode::SUCCESS)
}

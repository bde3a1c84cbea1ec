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

Changes persist in the kernel's top instance, or in the one given with --instance. `kymo event show`
lists the enabled events.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// Use this trace instance (a directory in tracefs instances/) instead of the top one
    #[arg(long, value_name = "NAME", global = true)]
    instance: Option<String>,
}

#[derive(Subcommand)]
enum What {
    /// Show groups, the events of a group, or an event's fields, with their state
    List {
        /// Group, event or pattern [default: list groups]
        event: Option<String>,
        /// Print a JSON array of objects (name, state, filter, triggers)
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Enable events
    Enable(Choice),
    /// Disable events
    Disable(Choice),
    /// Set the filter of an event: an expression over its fields
    #[command(after_long_help = "\
EXPRESSIONS
  prev_pid == 1 && next_comm ~ \"kworker*\"     == != < <= > >= & on numbers,
  call_site.function == do_page_fault         == != ~ on strings (~ takes a pattern),
  CPU & CPUS{0-3}                             && || ! and parentheses; common_pid,
                                              CPU and comm exist for every event")]
    Filter {
        /// Group, event or pattern
        event: String,
        /// Filter expression [default: show the current filters]
        expression: Option<String>,
        /// Remove the filter
        #[arg(long, conflicts_with = "expression")]
        clear: bool,
    },
    /// Set a trigger: an action of the kernel when the event fires
    #[command(after_long_help = "\
TRIGGERS
  traceon, traceoff            enable or disable recording
  stacktrace                   record the kernel's call stack
  snapshot                     swap the ring buffer with the snapshot buffer
  enable_event:GROUP:EVENT     enable another event (disable_event: disable it)
  hist:keys=FIELD[,FIELD][:vals=…][:sort=…][:size=…]   count in the kernel
  enable_hist, disable_hist    resume or pause a histogram
Each may end in :COUNT and ` if EXPRESSION`. A leading ! removes a trigger, written as it was set or
as it is shown. Not every kernel has all of them.")]
    Trigger {
        /// Event
        event: String,
        /// Trigger to set, or `!` and the trigger to remove it [default: show triggers and
        /// histograms]
        #[arg(allow_hyphen_values = true)]
        trigger: Option<String>,
        /// Remove all triggers
        #[arg(long, conflicts_with = "trigger")]
        clear: bool,
    },
    /// Show the format file of an event: fields and print format
    Format {
        /// Event
        event: String,
    },
    /// Show the enabled events of all instances
    Show {
        /// JSON
        #[arg(short = 'j', long)]
        json: bool,
    },
}

/// Selection of events.
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

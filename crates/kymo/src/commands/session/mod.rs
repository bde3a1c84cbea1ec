//! `kymo session`: named trace sessions that run on by themselves, and snapshots
//! of them.

mod recover;
mod show;
mod snapshot;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use kymo_files::tracedat::write::Format;
use kymo_kernel::ftrace::Selection;
use kymo_kernel::target;
use kymo_record::ftrace::{Mode, Session, SessionOptions, TraceEvent};

use super::record::values::bytes;
use super::tracing;

/// Flags of `kymo session`.
#[derive(clap::Args)]
#[command(after_long_help = "\
A session lives in the kernel, in the trace instance kymo-session-NAME, until it is destroyed or
the machine is started again. A snapshot or rotation takes the events out of the ring: the next
file begins where this one ends. Where the kernel has a snapshot buffer it is used, and all CPUs
are taken at one moment; else the rings are read one after the other. What was done is said.

CONDITIONS
  EVENT [if FILTER]                                  snapshot --on
  A [if FILTER] -> B [if FILTER] > TIME [by KEY]     snapshot --on-latency
The command stays and watches, in user space, in an instance of its own; nothing watches after it
ended. KEY is a field of both events (by pid), or of each (by pid=next_pid); pid and cpu are the
task and the CPU where the event has no field of that name. Of several A the last one counts. An A
without B is not reported. Files get the time into their names.

A flight recorder for the scheduler, and its last seconds when something took too long:
  kymo session create box -e sched
  kymo session start box
  kymo session snapshot box --on-latency \\
      'sched:sched_waking -> sched:sched_switch > 50ms by pid=next_pid'
  kymo session destroy box")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make a session; it traces from `start` on
    Create(Create),
    /// Switch events of a session on
    Enable(Enable),
    /// Switch events of a session off
    Disable {
        /// The session
        name: String,
        /// Events
        #[arg(
            short = 'e',
            long = "event",
            value_name = "EVENT",
            required = true,
            value_delimiter = ','
        )]
        events: Vec<String>,
    },
    /// Let the session's ring take events
    Start {
        /// The session
        name: String,
    },
    /// Let it take no more; what is in it stays
    Stop {
        /// The session
        name: String,
    },
    /// Write the last seconds to a trace.dat, now or when a condition is met
    Snapshot(snapshot::Snapshot),
    /// Write what came since the last rotation to FILE.TIME, while tracing goes on
    Rotate(Rotate),
    /// Write what programs that ended or were killed have left in the rings of their
    /// tracepoints, up to their last event, and remove it
    Recover(recover::Recover),
    /// Say all about a session
    Show {
        /// The session
        name: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// List the sessions
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a session
    Destroy {
        /// The sessions
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Create {
    /// Its name
    name: String,
    /// Events: GROUP:EVENT, GROUP, EVENT or a pattern
    #[arg(short = 'e', long = "event", value_name = "EVENT", value_delimiter = ',')]
    events: Vec<String>,
    /// What a full ring does: overwrite the oldest events (flight recorder) or discard new ones
    #[arg(long, value_name = "MODE", default_value = "overwrite", value_parser = mode)]
    mode: Mode,
    /// Room in the ring for each CPU (4M)
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    buffer_size: Option<u64>,
    /// Clock of the timestamps
    #[arg(long, value_name = "CLOCK", default_value = "mono")]
    clock: String,
    /// Only these processes and their children
    #[arg(short = 'p', long, value_name = "PID,…")]
    pid: Option<String>,
}

#[derive(clap::Args)]
struct Enable {
    /// The session
    name: String,
    /// Events: GROUP:EVENT, GROUP, EVENT or a pattern
    #[arg(
        short = 'e',
        long = "event",
        value_name = "EVENT",
        required = true,
        value_delimiter = ','
    )]
    events: Vec<String>,
    /// Only those for which this holds, as the kernel writes filters
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
}

#[derive(clap::Args)]
struct Rotate {
    /// The session
    name: String,
    /// The file; the time is added to its name
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "overwrite" => Ok(Mode::Overwrite),
        "discard" => Ok(Mode::Discard),
        _ => Err("there are overwrite and discard".into()),
    }
}

fn wanted(events: &[String], filter: Option<&String>) -> anyhow::Result<Vec<TraceEvent>> {
    let parse =
        |e: &String| Ok(TraceEvent { selection: Selection::parse(e)?, filter: filter.cloned() });
    events.iter().filter(|e| !e.is_empty()).map(parse).collect()
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Action::Recover(args) = &args.action {
        return recover::run(args);
    }
    let tracefs = tracing::open()?;
    match args.action {
        Action::Recover(_) => {}
        Action::Create(create) => {
            let events = wanted(&create.events, None)?;
            let pids = create.pid.as_deref().map(target::parse_ids).transpose()?;
            let options = SessionOptions {
                mode: create.mode,
                buffer_kb: create.buffer_size.map(|b| b.div_ceil(1024)),
                clock: create.clock,
                pids: pids.unwrap_or_default(),
            };
            let session = Session::create(&tracefs, &create.name, &options)?;
            if let Err(e) = session.enable(&events) {
                // Half a session is none.
                Session::destroy(&tracefs, &create.name)?;
                return Err(e.into());
            }
        }
        Action::Enable(enable) => {
            let session = Session::open(&tracefs, &enable.name)?;
            session.enable(&wanted(&enable.events, enable.filter.as_ref())?)?;
        }
        Action::Disable { name, events } => {
            let session = Session::open(&tracefs, &name)?;
            for event in &events {
                session.disable(&Selection::parse(event)?)?;
            }
        }
        Action::Start { name } => {
            let session = Session::open(&tracefs, &name)?;
            if session.state()?.events.is_empty() {
                bail!("session {name} has no events; kymo session enable {name} -e EVENT");
            }
            session.set_tracing(true)?;
        }
        Action::Stop { name } => Session::open(&tracefs, &name)?.set_tracing(false)?,
        Action::Snapshot(args) => return snapshot::run(&tracefs, &args),
        Action::Rotate(rotate) => {
            let session = Session::open(&tracefs, &rotate.name)?;
            let path = rotate.output.unwrap_or_else(|| format!("{}.dat", rotate.name).into());
            let taken = session.take_stamped(&path, false, Format::default(), false)?;
            snapshot::tell(&taken, None);
        }
        Action::Show { name, json } => {
            show::show(&Session::open(&tracefs, &name)?.state()?, json)?;
        }
        Action::List { json } => show::list(&Session::list(&tracefs)?, json)?,
        Action::Destroy { names } => {
            for name in names {
                if !Session::destroy(&tracefs, &name)? {
                    bail!("there is no session {name}");
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

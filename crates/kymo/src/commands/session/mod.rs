//! `kymo session`: named trace sessions over the kernel, programs or both that run on by
//! themselves, and snapshots of them.

mod program_condition;
mod recover;
mod show;
mod snapshot;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use kymo_files::ctf::types::CtfVersion;
use kymo_files::tracedat::write::Format;
use kymo_kernel::ftrace::Selection;
use kymo_kernel::target;
use kymo_record::ftrace::{BufferMode, SessionOptions, TraceEvent};
use kymo_record::sessions::{CreateOptions, ListedSession, Session, Sessions, TakeOptions};
use kymo_record::ust::{
    DEFAULT_CHANNEL, Notes, RingOptions, parse_level, parse_rules, sub_buffers,
};
use kymo_ust::{EventRule, Pids};

use super::tracing;
use crate::args::values::{bytes, ctf_version};

/// Flags of `kymo session`.
#[derive(clap::Args)]
#[command(after_long_help = "\
A session records kernel events (-e), events of programs with their own tracepoints (-u), or both.
The kernel part is the trace instance kymo-session-NAME and needs root. The user-space part consists
of control files in /dev/shm/kymo-UID and needs no privileges: programs, also those that start
later, write to their own ring buffers. A session lasts until it is destroyed or the machine
reboots; no kymo process keeps running. A session of root covers the programs of all users, also in
containers; users who log in later are included from the next start, enable, snapshot or rotate.

A snapshot or rotation removes the events from the ring buffers, so that the next one starts where
this one ends. For kernel events alone the result is a trace.dat. With user-space events it is a
directory: kernel/ has the trace.dat, ust/ a CTF trace for each program, including those that have
ended or were killed. If the kernel has a snapshot buffer, all CPUs are read at the same instant;
otherwise one after another. A note states which.

CHANNELS
Each channel has its own ring buffers in every program, and its own list of rules. `enable -u`
inserts a rule at the front (replacing one with the same pattern), `disable -u` a rule that disables
events; the first rule with a matching pattern applies. A program supports eight channels for all
sessions together.

CONDITIONS
  EVENT [if FILTER]                                  snapshot --on
  A [if FILTER] -> B [if FILTER] > TIME [by KEY]     snapshot --on-latency
The command watches the events in user space, in its own trace instance, until it ends. KEY is a
field of both events (by pid) or one field of each (by pid=next_pid); without a field of that name,
pid and tid are the thread and cpu is the CPU. Of several A, the last one counts. An A without B is
not reported. File names include the time. Both events are kernel events, or both are user-space
events (ust:PROVIDER:NAME), which programs filter themselves, as with `enable -u`, and write to
separate ring buffers.

A flight recorder for the scheduler that writes a snapshot on high latency:
  kymo session create box -e sched
  kymo session start box
  kymo session snapshot box --on-latency \\
      'sched:sched_waking -> sched:sched_switch > 50ms by pid=next_pid'
  kymo session destroy box

Scheduler and program events together (without -e, this needs no root):
  kymo session create both -u 'shop:*' -e sched:sched_switch
  kymo session start both
  kymo session snapshot both -o now
  babeltrace2 now/ust")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create a session; `start` starts it
    Create(Create),
    /// Enable events of a session
    Enable(Enable),
    /// Disable events of a session
    Disable(Disable),
    /// Start recording into the session's ring buffers
    Start {
        /// Name of the session
        name: String,
    },
    /// Stop recording; recorded events stay in the ring buffers
    Stop {
        /// Name of the session
        name: String,
    },
    /// Write the last seconds to a trace.dat or a directory, now or on a condition
    Snapshot(snapshot::Snapshot),
    /// Write the events since the last rotation to FILE.TIME or DIR.TIME, without stopping
    Rotate(Rotate),
    /// Write the last events of dead programs, and remove their ring buffers
    Recover(recover::Recover),
    /// Show the details of a session
    Show {
        /// Name of the session
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the sessions
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a session
    Destroy {
        /// Names of the sessions
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Create {
    /// Name of the session
    name: String,
    #[command(flatten)]
    events: Events,
    /// When a ring buffer is full: overwrite the oldest events (flight recorder) or discard new
    /// ones
    #[arg(long, value_name = "MODE", default_value = "overwrite", value_parser = mode)]
    mode: BufferMode,
    /// Buffer size per CPU, for the kernel and for each program [default: 4M]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    buffer_size: Option<u64>,
    /// Clock of the kernel's timestamps (programs support only mono)
    #[arg(long, value_name = "CLOCK", default_value = "mono")]
    clock: String,
    /// Only these processes and their children (repeatable; at most four for user-space events)
    #[arg(short = 'p', long, value_name = "PID,…")]
    pid: Vec<String>,
}

/// Kernel events and of programs.
#[derive(clap::Args)]
struct Events {
    /// Kernel events: GROUP:EVENT, GROUP, EVENT or a pattern
    #[arg(short = 'e', long = "event", value_name = "EVENT", value_delimiter = ',')]
    kernel: Vec<String>,
    /// User-space events: PROVIDER:NAME with * and ?
    #[arg(short = 'u', long = "user-event", value_name = "PROVIDER:NAME", value_delimiter = ',')]
    programs: Vec<String>,
    /// User-space events up to this log level: emerg … debug, or 0 … 14
    #[arg(long, value_name = "LEVEL", requires = "programs", value_parser = parse_level)]
    level: Option<u8>,
    /// Filter in the kernel's syntax; for user-space events such as 'cents > 1000 && name == "a*"'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Channel for the user-space events [default: channel0]
    #[arg(long, value_name = "CHANNEL", requires = "programs")]
    channel: Option<String>,
}

impl Events {
    fn of_kernel(&self) -> anyhow::Result<Vec<TraceEvent>> {
        if self.filter.is_some() && !self.kernel.is_empty() && !self.programs.is_empty() {
            bail!("--filter means other things for -e and -u: enable one after the other");
        }
        wanted(&self.kernel, self.filter.as_ref())
    }

    fn of_programs(&self) -> anyhow::Result<Vec<EventRule>> {
        if self.programs.is_empty() {
            Ok(Vec::new())
        } else {
            Ok(parse_rules(&self.programs, self.level, self.filter.as_deref())?)
        }
    }

    fn channel(&self) -> &str {
        self.channel.as_deref().unwrap_or(DEFAULT_CHANNEL)
    }
}

#[derive(clap::Args)]
struct Enable {
    /// Name of the session
    name: String,
    #[command(flatten)]
    events: Events,
    /// When a new channel's ring buffer is full: overwrite or discard [default: as the first
    /// channel]
    #[arg(long, value_name = "MODE", requires = "channel", value_parser = mode)]
    mode: Option<BufferMode>,
    /// Buffer size of a new channel per CPU and program [default: as the first channel]
    #[arg(long, value_name = "SIZE", requires = "channel", value_parser = bytes)]
    buffer_size: Option<u64>,
}

#[derive(clap::Args)]
struct Disable {
    /// Name of the session
    name: String,
    /// Kernel events
    #[arg(
        short = 'e',
        long = "event",
        value_name = "EVENT",
        required_unless_present = "programs",
        value_delimiter = ','
    )]
    kernel: Vec<String>,
    /// User-space events
    #[arg(short = 'u', long = "user-event", value_name = "PROVIDER:NAME", value_delimiter = ',')]
    programs: Vec<String>,
    /// Only in this channel
    #[arg(long, value_name = "CHANNEL", requires = "programs")]
    channel: Option<String>,
}

#[derive(clap::Args)]
struct Rotate {
    /// Name of the session
    name: String,
    /// File [default: NAME.dat], or directory with user-space events [default: NAME]; the time is
    /// appended
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// CTF version for user-space events: 1.8 or 2
    #[arg(long, value_name = "VERSION", default_value = "1.8", value_parser = ctf_version)]
    ctf: CtfVersion,
    /// Exit with status 3 if there are warnings
    #[arg(long)]
    strict: bool,
    /// Print only errors
    #[arg(short = 'q', long)]
    quiet: bool,
}

fn mode(text: &str) -> Result<BufferMode, String> {
    match text {
        "overwrite" => Ok(BufferMode::Overwrite),
        "discard" => Ok(BufferMode::Discard),
        _ => Err("there are overwrite and discard".into()),
    }
}

fn wanted(events: &[String], filter: Option<&String>) -> anyhow::Result<Vec<TraceEvent>> {
    let parse =
        |e: &String| Ok(TraceEvent { selection: Selection::parse(e)?, filter: filter.cloned() });
    events.iter().filter(|e| !e.is_empty()).map(parse).collect()
}

/// Sessions of this machine: the kernel's too, where its tracefs can be opened.
fn sessions() -> Sessions {
    Sessions::new(tracing::open().map_err(|e| format!("{e:#}")))
}

/// Names of the sessions there are.
pub(crate) fn names() -> Vec<String> {
    let found = sessions().list().map(|(sessions, _)| sessions).unwrap_or_default();
    let name = |listed| match listed {
        ListedSession::There(summary) => summary.name,
        ListedSession::Gone { name, .. } => name,
    };
    found.into_iter().map(name).collect()
}

/// The ring of a channel of programs.
fn ring(mode: BufferMode, room: Option<u64>, pids: Pids) -> RingOptions {
    let (sub_buffer, sub_buffers) = sub_buffers(room);
    RingOptions { overwrite: mode == BufferMode::Overwrite, sub_buffer, sub_buffers, pids }
}

/// Prints notes on ignored input.
fn passed_over(notes: &Notes) {
    for note in notes.as_slice() {
        sayln!("kymo: {note}");
    }
}

/// Returns the output path of a session: the given one or the default.
fn output(session: &Session, given: Option<&PathBuf>) -> PathBuf {
    match (given, session.has_programs()) {
        (Some(path), _) => path.clone(),
        (None, true) => session.name().into(),
        (None, false) => format!("{}.dat", session.name()).into(),
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Action::Recover(args) = &args.action {
        return recover::run(args);
    }
    let sessions = sessions();
    match args.action {
        Action::Recover(_) => {}
        Action::Create(args) => create(&sessions, &args)?,
        Action::Enable(args) => enable(&sessions, &args)?,
        Action::Disable(args) => disable(&sessions, &args)?,
        Action::Start { name } => passed_over(&sessions.open(&name)?.start()?),
        Action::Stop { name } => passed_over(&sessions.open(&name)?.stop()?),
        Action::Snapshot(args) => return snapshot::run(&sessions, &args),
        Action::Rotate(args) => return rotate(&sessions, &args),
        Action::Show { name, json } => show::show(&sessions.open(&name)?.state()?, json)?,
        Action::List { json } => {
            let (listed, notes) = sessions.list()?;
            show::list(&listed, json)?;
            passed_over(&notes);
        }
        Action::Destroy { names } => {
            for name in names {
                if !sessions.destroy(&name)? {
                    // Says why it is not seen, if that is so.
                    sessions.open(&name)?;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn create(sessions: &Sessions, args: &Create) -> anyhow::Result<()> {
    let lists: Result<Vec<Vec<u32>>, _> = args.pid.iter().map(|p| target::parse_ids(p)).collect();
    let mut pids = lists?.concat();
    pids.sort_unstable();
    pids.dedup();
    let rules = args.events.of_programs()?;
    let mut of_programs = Pids::default();
    match of_programs.get_mut(..pids.len()) {
        Some(some) => some.copy_from_slice(&pids),
        None if rules.is_empty() => {}
        None => bail!(
            "-p: a session with events of programs is of all or of at most {} processes (and \
             their children)",
            of_programs.len()
        ),
    }
    let session = sessions.create(
        &args.name,
        &CreateOptions {
            kernel: SessionOptions {
                mode: args.mode,
                buffer_kb: args.buffer_size.map(|b| b.div_ceil(1024)),
                clock: args.clock.clone(),
                pids,
            },
            events: args.events.of_kernel()?,
            rules,
            channel: args.events.channel().to_owned(),
            ring: ring(args.mode, args.buffer_size, of_programs),
        },
    )?;
    show::unfit(&session);
    Ok(())
}

fn enable(sessions: &Sessions, args: &Enable) -> anyhow::Result<()> {
    let (kernel, rules) = (args.events.of_kernel()?, args.events.of_programs()?);
    if kernel.is_empty() && rules.is_empty() {
        bail!("no event is named: -e EVENT, or -u PROVIDER:NAME");
    }
    let mut session = sessions.open(&args.name)?;
    if !kernel.is_empty() {
        session.enable_kernel(sessions, &kernel)?;
    }
    if !rules.is_empty() {
        let otherwise =
            ring(args.mode.unwrap_or(BufferMode::Overwrite), args.buffer_size, Pids::default());
        let given = args.mode.is_some() || args.buffer_size.is_some();
        let ring = given.then_some(otherwise);
        passed_over(&session.enable_programs(args.events.channel(), ring, otherwise, rules)?);
        show::unfit(&session);
    }
    Ok(())
}

fn disable(sessions: &Sessions, args: &Disable) -> anyhow::Result<()> {
    let mut session = sessions.open(&args.name)?;
    for event in &args.kernel {
        session.disable_kernel(&Selection::parse(event)?)?;
    }
    if !args.programs.is_empty() {
        let rules = parse_rules(&args.programs, None, None)?;
        let patterns: Vec<String> = rules.into_iter().map(|r| r.pattern).collect();
        passed_over(&session.disable_programs(&patterns, args.channel.as_deref())?);
    }
    Ok(())
}

fn rotate(sessions: &Sessions, args: &Rotate) -> anyhow::Result<ExitCode> {
    let mut session = sessions.open(&args.name)?;
    let path = output(&session, args.output.as_ref());
    let options = TakeOptions {
        force: false,
        format: Format::default(),
        by_kernel: false,
        stamped: true,
        ctf: args.ctf,
    };
    let taken = session.take(&path, options)?;
    Ok(snapshot::tell(&taken, None, args.quiet, args.strict))
}

//! `kymo session snapshot`: now, or by itself when something happens or takes too
//! long. The command stays and waits; nothing waits without it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_files::tracedat::Compression;
use kymo_files::tracedat::write::Format;
use kymo_kernel::process::{Signal, Signals};
use kymo_kernel::tracefs::Tracefs;
use kymo_record::ftrace::{Condition, Met, On, OnLatency, Session, Taken, TakenBy, Watch};

use super::super::record::values::millis;

#[derive(clap::Args)]
pub(super) struct Snapshot {
    /// The session
    name: String,
    /// The file (NAME.dat); with a condition the time is added to its name
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite a file that is not a recording
    #[arg(short = 'f', long)]
    force: bool,
    /// Wait, and take one each time this event happens: 'EVENT' or 'EVENT if FILTER'
    #[arg(long, value_name = "CONDITION", conflicts_with = "on_latency")]
    on: Option<String>,
    /// Wait, and take one each time it takes too long: 'A -> B > 5ms by pid'
    #[arg(long, value_name = "CONDITION")]
    on_latency: Option<String>,
    /// End after so many snapshots
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// Take it so many milliseconds after the condition was met
    #[arg(long, value_name = "MS", default_value = "0", value_parser = millis)]
    after: Duration,
    /// End after so many milliseconds without the condition
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<Duration>,
    /// Version of the file: 6 or 7
    #[arg(long, value_name = "N", default_value = "7",
          value_parser = clap::value_parser!(u32).range(6..=7))]
    file_version: u32,
    /// Say nothing but errors
    #[arg(short = 'q', long)]
    quiet: bool,
}

pub(super) fn run(tracefs: &Tracefs, args: &Snapshot) -> anyhow::Result<ExitCode> {
    let session = Session::open(tracefs, &args.name)?;
    let path = args.output.clone().unwrap_or_else(|| format!("{}.dat", args.name).into());
    let format = Format { version: args.file_version, compression: Compression::None };
    let condition = match (&args.on, &args.on_latency) {
        (Some(on), _) => Condition::On(On::parse(on)?),
        (_, Some(on)) => Condition::OnLatency(OnLatency::parse(on)?),
        _ => {
            let taken = session.take(&path, args.force, format, true)?;
            if !args.quiet {
                tell(&taken, None);
            }
            return Ok(ExitCode::SUCCESS);
        }
    };
    let state = session.state()?;
    if state.clock != "mono" {
        bail!(
            "session {} has the clock {}; a condition needs mono, to compare times with",
            args.name,
            state.clock
        );
    }
    let ends = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];
    let signals = Signals::listen(&ends).context("cannot listen for signals")?;
    let mut watch = Watch::start(tracefs, &condition)?;
    if !args.quiet {
        say(&format!("watching in user space, in the instance {}", watch.instance()));
    }
    let mut taken = 0;
    let until = args.timeout.map(|t| Instant::now() + t);
    let mut lost = 0;
    loop {
        let met = watch.wait(&signals, until)?;
        if watch.lost > lost {
            lost = watch.lost;
            say(&format!(
                "events of the condition were lost {lost} times: it may have been missed"
            ));
        }
        let Some(met) = met else { break };
        if !args.after.is_zero() {
            signals.wait(Some(args.after))?;
        }
        let snapshot = session.take_stamped(&path, args.force, format, true)?;
        watch.told();
        taken += 1;
        tell(&snapshot, Some(met));
        if args.count.is_some_and(|n| taken >= n) {
            return Ok(ExitCode::SUCCESS);
        }
    }
    // Whoever asked for a number and did not get it hears so.
    Ok(if args.count.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn say(text: &str) {
    // Nobody may be there to read it; the snapshots matter more.
    let _ = writeln!(anstream::stderr(), "[ kymo session: {text} ]");
}

/// Says what was written, how, and why.
pub(super) fn tell(taken: &Taken, met: Option<Met>) {
    let seconds = |ns: u64| format!("{:.6}", ns as f64 / 1e9);
    let how = match taken.by {
        TakenBy::Kernel => "taken by the kernel at one moment",
        TakenBy::Reading => "read from the rings while tracing went on",
    };
    let mut text = match met {
        None => String::new(),
        Some(Met::Event(time)) => format!("event at {}: ", seconds(time)),
        Some(Met::TooLong(l)) => format!(
            "{:.3} ms from {} to {}, key {}: ",
            (l.to - l.from) as f64 / 1e6,
            seconds(l.from),
            seconds(l.to),
            l.key
        ),
    };
    text += &format!("{}, {} bytes of events, {how}", taken.path.display(), taken.stored);
    if taken.stored == 0 {
        text += "; there were no events";
    }
    if let (Some(met), Some(oldest)) = (met, taken.oldest_ns) {
        let begin = match met {
            Met::Event(time) => time,
            Met::TooLong(l) => l.from,
        };
        if oldest > begin {
            text += "; the ring no longer held the beginning: a larger --buffer-size";
        }
    }
    say(&text);
}

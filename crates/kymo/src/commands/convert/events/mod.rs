//! Recordings of events that are no samples: trace.dat and CTF. Each event is the
//! innermost frame of the stack that was recorded with it; where there is none, it
//! stands below its task alone. So all events can be in one result: they count alike.

mod ctf;
mod gather;
mod graph;
mod tracedat;
mod waiting;

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use kymo_files::RecordingFormat;
use kymo_model::NoteKind;
use kymo_view::Ledger;
use kymo_view::stacks::Stacks;

use super::model::{Split, Weight};
use super::{Args, Format};
use gather::Gather;

/// How events are taken.
struct Taking<'a> {
    args: &'a Args,
    split: Split,
    /// Each event with its time.
    moments: bool,
    /// One unit in the result.
    single: bool,
}

impl Taking<'_> {
    fn gather(&self) -> Gather {
        let unit = match &self.args.weight {
            Weight::Field { name, .. } if name.contains("bytes") => "bytes",
            _ => "count",
        };
        Gather::new(self.split, self.moments, unit)
    }
}

/// What a recording is as stacks.
struct Taken {
    stacks: Stacks,
    ledger: Ledger,
    damaged: bool,
}

/// How often what was asked for was there.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Events in the result.
    events: u64,
    /// Those with a stack of the kernel, or of the program.
    kernel: u64,
    user: u64,
    /// Those that are functions, with their callers.
    calls: u64,
    /// Events left out for they do not have the field that weighs.
    weightless: u64,
    /// Events whose weight is negative.
    negative: u64,
}

pub(super) fn run(
    args: &Args,
    path: &Path,
    kind: RecordingFormat,
    format: Format,
) -> anyhow::Result<ExitCode> {
    refuse(args)?;
    let taking = Taking {
        args,
        split: args.split.unwrap_or_else(|| format.split()),
        moments: format.is_timeline(),
        single: !format.has_events(),
    };
    let mut taken = match kind {
        RecordingFormat::Ctf => ctf::take(&taking, path)?,
        _ => tracedat::take(&taking, path)?,
    };
    taken.stacks.title = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into();
    taken.stacks.recorded = super::recorded(path, taken.stacks.span);
    super::export(args, format, &taken.stacks, &mut taken.ledger)?;
    let damage = taken.damaged.then_some("damaged; what can be read is converted");
    super::finish(args, path, damage, &taken.ledger)
}

/// Flags that mean nothing here.
fn refuse(args: &Args) -> anyhow::Result<()> {
    let finding = &args.source.finding;
    for (given, flag) in [
        (args.chosen.names_binaries(), "--dsos"),
        (args.inline, "--inline"),
        (finding.symfs.is_some(), "--symfs"),
        (finding.bundle.is_some(), "--bundle"),
    ] {
        if given {
            bail!("{flag} is for perf.data: what is recorded here has no code of programs");
        }
    }
    Ok(())
}

/// Notes what the result was made of. `more` is how stacks come with the events.
fn note(counts: &Counts, args: &Args, more: Option<&str>, ledger: &mut Ledger) {
    let Counts { events, kernel, user, calls, .. } = *counts;
    if events == calls {
        // What the function tracer recorded is as it should be.
    } else if kernel == 0 && user == 0 {
        let fact = "no event has a stack: each is one frame under its task";
        ledger.tell(NoteKind::Stacks, fact, more.map(str::to_owned));
    } else {
        let user = if user > 0 { format!(", {user} one of the program") } else { String::new() };
        let fact = format!("{kernel} of {events} events have a stack of the kernel{user}");
        ledger.tell(NoteKind::Stacks, fact, None);
    }
    let Weight::Field { name, .. } = &args.weight else { return };
    if counts.weightless > 0 {
        let fact = format!("{} events have no field {name} and are left out", counts.weightless);
        ledger.tell(NoteKind::Weight, fact, Some("-e names those that have it".into()));
    }
    if counts.negative > 0 {
        let fact = format!("{} events with a negative {name} are left out", counts.negative);
        ledger.note(NoteKind::Weight, fact, None);
    }
}

/// Ends the gathering, and tells of what is not in the result.
fn settle(gather: Gather, taking: &Taking<'_>, ledger: &mut Ledger) -> Stacks {
    let (stacks, left_out) = gather.done(taking.single);
    if left_out > 0 {
        let fact =
            format!("time in functions alone is in the result; {left_out} events count otherwise");
        ledger.tell(
            NoteKind::Events,
            fact,
            Some("-e names them, pprof and speedscope hold both".into()),
        );
    }
    stacks
}

//! `kymo trace -u`: events of programs with tracepoints of their own, live or into a
//! directory of CTF traces. No root, no kernel: files that the programs share.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_events::live::LiveEvents;
use kymo_files::ctf::types::CtfVersion;
use kymo_kernel::ftrace::own_name;
use kymo_kernel::process::{GatedChild, Signal, Signals};
use kymo_model::{NoteKind, counted};
use kymo_record::ust::{
    ChannelOptions, ChannelWatch, Drain, DrainStats, Draining, LivePrograms, MountNamespace,
    ProgramNews, ProgramRuleError, RING_ROOM, UstError, WatchOptions, check_new_directory,
    parse_level, parse_rules, sub_buffers,
};
use kymo_ust::EventRule;
use kymo_view::Ledger;

use super::live_output::{LiveKinds, LiveOutput};
use super::{Args, close};
use crate::args::values::ctf_version;

/// Flags of `kymo trace` for events of programs.
#[derive(clap::Args)]
pub(super) struct UstArgs {
    /// User-space tracepoints, PROVIDER:NAME with * and ?
    #[arg(short = 'u', long = "user-event", value_name = "PROVIDER:NAME", value_delimiter = ',',
          conflicts_with_all = ["cpu", "instance"])]
    user_events: Vec<String>,
    /// User-space events up to this log level: emerg … debug, or 0 … 14
    #[arg(long, value_name = "LEVEL", requires = "user_events", value_parser = parse_level)]
    level: Option<u8>,
    /// With -o: version of CTF that events of programs are written in: 1.8 or 2
    #[arg(long, value_name = "VERSION", default_value = "1.8", value_parser = ctf_version,
          requires = "user_events")]
    ctf: CtfVersion,
}

/// The clock of events of the kernel beside which those of programs can be put.
pub(super) const CLOCK: &str = "mono";
/// Time between two polls.
pub(super) const ROUND: Duration = Duration::from_millis(50);
/// Time to wait for a program's last events.
pub(super) const FORGET: Duration = Duration::from_millis(20);

impl UstArgs {
    /// Whether it is about programs at all.
    pub(super) fn given(&self) -> bool {
        !self.user_events.is_empty()
    }
}

/// Parses the rules for program events, as far as no process needs to exist.
pub(super) fn asked(args: &Args) -> anyhow::Result<Vec<EventRule>> {
    let filter = args.events.for_programs();
    Ok(parse_rules(&args.ust.user_events, args.ust.level, filter.as_deref())?)
}

/// Switches the events on; `command`: the process of a command that is alone meant.
pub(super) fn watch(
    args: &Args,
    rules: Vec<EventRule>,
    pids: Vec<u32>,
    command: Option<u32>,
) -> Result<ChannelWatch, UstError> {
    let (sub_buffer, sub_buffers) = sub_buffers(args.buffer_size);
    let options = WatchOptions {
        channel: ChannelOptions {
            session: own_name("trace"),
            channel: "channel0".into(),
            rules,
            overwrite: false,
            sub_buffer,
            sub_buffers,
            pids: [command.unwrap_or(0), 0, 0, 0],
        },
        running: command.is_none() || !pids.is_empty(),
        pids,
    };
    let namespaces =
        if command.is_some() { vec![MountNamespace::here()] } else { MountNamespace::all() };
    let watch = ChannelWatch::start(&namespaces, &options)?;
    if watch.fits_none()
        && let (Some(unfit), Some(text)) = (watch.unfit().first(), args.events.for_programs())
    {
        return Err(ProgramRuleError::Unfit { text, unfit: unfit.clone() }.into());
    }
    if options.running && command.is_none() && watch.programs() == 0 && !args.quiet {
        sayln!("kymo: no program that runs has such events; waiting for one that starts");
    }
    Ok(watch)
}

/// Takes what comes into a directory.
pub(super) fn drain(
    args: &Args,
    watch: ChannelWatch,
    directory: &Path,
) -> Result<Draining, UstError> {
    let drain = Drain::new(directory, own_name("trace")).with_version(args.ust.ctf);
    // Rings that filled by a quarter since the last look are looked at sooner.
    Draining::start(watch, drain, RING_ROOM / 4)
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.stacks || args.clock != CLOCK {
        bail!("-T and --clock are for events of the kernel: name some with -e");
    }
    let rules = asked(args)?;
    let signals = Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup, Signal::Quit])
        .context("cannot listen for signals")?;
    let mut child =
        if args.command.is_empty() { None } else { Some(GatedChild::spawn(&args.command)?) };
    let command = child.as_ref().filter(|_| args.command_alone()).map(GatedChild::pid);
    let output = args.out.directory()?;
    if let Some(directory) = output {
        check_new_directory(directory)?;
    }
    let mut watch = watch(args, rules, args.pids()?, command)?;
    if let Some(child) = &mut child {
        child.release()?;
    }
    let mut run = Run { args, signals, child, started: Instant::now(), exit: None };
    match output {
        Some(directory) => {
            let draining = drain(args, watch, directory)?;
            while !run.wait(ROUND)? && !draining.failed() {}
            run.end_child()?;
            let (notes, stats) = draining.finish()?;
            run.end(&notes, &stats, Some(directory))
        }
        None => {
            let mut programs = LivePrograms::default();
            run.follow(&mut watch, &mut programs)?;
            let notes = [&watch.notes(), programs.passed_over()].concat();
            drop(watch);
            run.end(&notes, &programs.stats(), None)
        }
    }
}

struct Run<'a> {
    args: &'a Args,
    signals: Signals,
    child: Option<GatedChild>,
    started: Instant,
    exit: Option<u8>,
}

impl Run<'_> {
    /// Waits for the next round; true if there is none.
    fn wait(&mut self, pause: Duration) -> anyhow::Result<bool> {
        let left = self.args.timeout.map(|t| t.saturating_sub(self.started.elapsed()));
        if left == Some(Duration::ZERO) {
            return Ok(true);
        }
        let most = left.map_or(pause, |l| l.min(pause));
        self.signals.wait(self.child.as_ref(), Some(most))?;
        if self.signals.next()?.is_some() {
            return Ok(true);
        }
        if let Some(child) = &mut self.child
            && let Some(exit) = child.try_wait()?
        {
            self.exit = Some(exit.code());
            return Ok(true);
        }
        Ok(false)
    }

    fn follow(
        &mut self,
        watch: &mut ChannelWatch,
        programs: &mut LivePrograms,
    ) -> anyhow::Result<()> {
        let selection = self.args.selection()?;
        let mut live = LiveEvents::new(&selection, None);
        let mut output = LiveOutput::new(self.args, LiveKinds::Programs, None)?;
        let quiet = self.args.quiet;
        let mut told = 0;
        let mut round = |watch: &mut ChannelWatch, is_last: bool| -> anyhow::Result<bool> {
            programs.begin_round();
            watch.round(|channel, program| {
                let news =
                    &mut |number, news: ProgramNews<'_>| output.news(&mut live, number, news);
                programs.take(channel, program, news)
            })?;
            // Programs that have come; the user waits for their events now.
            for unfit in watch.unfit().iter().skip(told).filter(|_| !quiet && !is_last) {
                sayln!("kymo: --filter: {unfit}");
            }
            told = watch.unfit().len();
            let until = if is_last { u64::MAX } else { programs.horizon() };
            let _ = live.hand_out(until, &mut |item| output.item(item));
            output.flush()?;
            Ok(output.is_full())
        };
        while !round(watch, false)? && !self.wait(ROUND)? {}
        self.end_child()?;
        watch.stop();
        std::thread::sleep(FORGET);
        round(watch, true)?;
        Ok(())
    }

    /// A command that is still there when tracing ends has been asked to end with it.
    fn end_child(&mut self) -> anyhow::Result<()> {
        if let Some(child) = &mut self.child
            && self.exit.is_none()
        {
            self.exit = Some(self.signals.end_command(child)?.code());
        }
        Ok(())
    }

    fn end(
        &self,
        notes: &[String],
        stats: &DrainStats,
        directory: Option<&Path>,
    ) -> anyhow::Result<ExitCode> {
        let mut ledger = Ledger::from_notes(stats.notes(notes));
        if stats.programs == 0 && stats.cut == 0 {
            ledger.tell(NoteKind::Programs, "no program had such events", None);
        }
        if let Some(directory) = directory.filter(|_| !self.args.quiet) {
            let mb = stats.bytes as f64 / (1024.0 * 1024.0);
            let directory = directory.display();
            let programs = counted(stats.programs, "program", "programs");
            sayln!("[ kymo trace: wrote {mb:.3} MB {directory} ({programs}) ]");
        }
        Ok(close(self.args, &ledger, self.exit))
    }
}

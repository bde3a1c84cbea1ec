//! Answers about what happens now: events go from the recorder through a pipe to who reads
//! recordings, and nothing is kept. The end is that of a command, of the chosen tasks, of a
//! time, or Ctrl-C.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kymo_events::TaskTree;
use kymo_kernel::descriptors;
use kymo_kernel::process::{Signal, Signals, own_usage};
use kymo_record::{CallGraph, ChosenTasks, Output, RecordError, RecordOptions, Target, record};

use super::event_recording::{CALLS, READER, RecordedEvents};
use crate::args::values::{Ring, millis, ring};

/// Flags of watching, where `--live` is free.
#[derive(clap::Args, Default)]
pub(crate) struct LiveArgs {
    /// Analyze the running system; nothing is recorded
    ///
    /// System-wide, until COMMAND or the chosen tasks end, --timeout expires or Ctrl-C. Implied by a
    /// command, -a, -m and --timeout.
    #[arg(long, conflicts_with_all = ["input", "files", "time"])]
    live: bool,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Flags that say what is waited for; any of them means that events are taken while they happen.
#[derive(clap::Args, Default)]
pub(crate) struct WatchArgs {
    /// Analyze the whole machine, even with a command
    #[arg(short = 'a', long, conflicts_with_all = ["input", "files", "time"])]
    all_cpus: bool,
    /// Size of each ring buffer, in pages or with a suffix B, K, M, G (live)
    #[arg(short = 'm', long, value_name = "PAGES|SIZE", value_parser = ring,
          conflicts_with_all = ["input", "files", "time"])]
    mmap_pages: Option<Ring>,
    /// Stop after MS milliseconds, and stop the command (live)
    #[arg(long, value_name = "MS", value_parser = millis,
          conflicts_with_all = ["input", "files", "time"])]
    timeout: Option<Duration>,
    /// Command to run and analyze
    ///
    /// Shows only its tasks, unless -a, -p or a similar option selects others.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["input", "files", "time"])]
    command: Vec<OsString>,
    #[arg(skip)]
    tree: TaskTree,
}

/// Systems whose events are left out where they are of kymo itself: the calls that wait for what
/// happens, and the memory that it is read into.
const WITHOUT_OWN: [&str; 3] = [CALLS[0], CALLS[1], "kmem"];
/// Pages of a ring if nothing else is asked for.
const PAGES: usize = 1024;
/// Bytes of the pipe: a reader that is busy for a moment does not stop the recorder.
const PIPE: usize = 1 << 20;

impl LiveArgs {
    /// Chooses what `--live` does.
    pub(crate) fn choose(&mut self) {
        self.live = true;
    }

    /// Removes and returns the options of a live capture, unless a recording is read.
    pub(crate) fn take(&mut self) -> Option<WatchArgs> {
        (self.live || self.watch.is_given()).then(|| std::mem::take(&mut self.watch))
    }
}

impl WatchArgs {
    fn is_given(&self) -> bool {
        let WatchArgs { all_cpus, mmap_pages, timeout, command, tree: _ } = self;
        *all_cpus || mmap_pages.is_some() || timeout.is_some() || !command.is_empty()
    }

    /// Removes and returns the options of a live capture, unless a recording is read.
    pub(crate) fn take(&mut self) -> Option<WatchArgs> {
        self.is_given().then(|| std::mem::take(self))
    }

    /// The tasks of the command, unless those of the machine are wanted.
    pub(crate) fn tree(&self) -> Option<TaskTree> {
        (!self.all_cpus && !self.command.is_empty()).then(|| self.tree.clone())
    }

    /// Flags of a recording that ends with what is watched.
    pub(crate) fn recording_flags(&self) -> Vec<OsString> {
        let pages = self.mmap_pages.as_ref().map(|ring| format!("-m{}", ring.0));
        let timeout = self.timeout.map(|t| format!("--timeout={}", t.as_millis()));
        let flags = pages.into_iter().chain(timeout).map(OsString::from);
        flags.chain(["--".into()]).chain(self.command.iter().cloned()).collect()
    }

    /// Whether there is a command.
    pub(crate) fn has_command(&self) -> bool {
        !self.command.is_empty()
    }

    /// Whether the tasks of all of the machine are wanted.
    pub(crate) fn is_of_machine(&self) -> bool {
        self.all_cpus
    }

    /// Returns options that record these events on all CPUs. `cgroups`: with the cgroup of each
    /// event.
    pub(crate) fn options(
        &self,
        events: &RecordedEvents,
        chains: bool,
        cgroups: bool,
    ) -> anyhow::Result<RecordOptions> {
        Ok(RecordOptions {
            events: events.specs(&WITHOUT_OWN)?,
            target: Target::System,
            command: self.command.clone(),
            spawned: Some(self.tree.root()),
            period: Some(1),
            call_graph: chains.then_some(CallGraph::FramePointers),
            pages: Some(self.mmap_pages.as_ref().map_or(PAGES, |ring| ring.0)),
            timeout: self.timeout,
            cgroup_records: cgroups,
            ..RecordOptions::default()
        })
    }

    /// Records events, and has `read` take them out of the file that it is given, until the end.
    /// `chosen`: tasks that the answer is about.
    pub(crate) fn pass_on(
        &self,
        events: &RecordedEvents,
        (chains, cgroups): (bool, bool),
        chosen: ChosenTasks,
        read: impl FnOnce(PathBuf) -> anyhow::Result<ExitCode> + Send,
    ) -> anyhow::Result<ExitCode> {
        let (from, to) = descriptors::pipe().context("cannot make a pipe")?;
        // A smaller one works, too.
        let _ = descriptors::set_pipe_size(&to, PIPE);
        let output = Output::File { path: descriptors::own_path(&to), force: false };
        let options = RecordOptions { output, chosen, ..self.options(events, chains, cgroups)? };
        // The reader's thread inherits that they do not end the program: the recorder does.
        let ends = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];
        let signals = Signals::listen(&ends).context("cannot listen for signals")?;
        let (began, used) = (Instant::now(), own_usage());
        let path = descriptors::own_path(&from);
        let (recorded, shown) = std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().name(READER.to_owned());
            let reader = reader.spawn_scoped(scope, move || {
                let shown = read(path);
                // Who gives up early does not keep the recorder waiting for room.
                drop(from);
                shown
            });
            let reader = reader.context("cannot start a thread")?;
            let recorded = record(&options);
            // Now the pipe has an end.
            drop(to);
            anyhow::Ok((recorded, reader.join()))
        })?;
        drop(signals);
        let shown = shown.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let mut summary = match recorded {
            Ok(summary) => summary,
            // The pipe was closed by the reader.
            Err(RecordError::Write { .. }) if shown.is_err() => return shown,
            Err(error) => return Err(error.into()),
        };
        let shown = shown?;
        if let Some(running) = summary.running.take() {
            summary.exit = Some(running.wait().context("cannot wait for the command")?);
        }
        let spent = own_usage();
        let cpu = (spent.user + spent.system).saturating_sub(used.user + used.system);
        tell(events.command, cpu, began.elapsed());
        // Doubts weigh more than how the command ended.
        Ok(match summary.exit {
            Some(status) if shown == ExitCode::SUCCESS => ExitCode::from(status),
            _ => shown,
        })
    }
}

fn tell(command: &str, used: Duration, elapsed: Duration) {
    let (used, elapsed) = (used.as_secs_f64(), elapsed.as_secs_f64());
    let share = if elapsed > 0.0 { used * 100.0 / elapsed } else { 0.0 };
    let name = command.trim_end_matches(" record");
    let text =
        format!("[ {name}: used {share:.1}% of one CPU itself: {used:.3} s in {elapsed:.3} s ]\n");
    // The message may have no reader.
    let _ = crate::streams::stderr().write_all(text.as_bytes());
}

//! Reading recordings for the commands that answer a question (`kymo sched`, `kymo kmem` and
//! the like): which files, which of their events, and how the command ends.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use kymo_events::{
    EventSelection, EventSource, ReadSummary, RecordedExtent, TaskTree, note_blocked, parse_times,
};
use kymo_kernel::blocked::{BlockedAtStart, BlockedThreads};
use kymo_kernel::target;
use kymo_kernel::terminal_output::{output_columns, output_is_terminal};
use kymo_model::{Note, NoteKind};
use kymo_record::ChosenTasks;
use kymo_view::Ledger;
use kymo_view::units::TimeUnits;

use super::default_recording;
use super::event_recording::RecordedEvents;
use super::live::WatchArgs;
use crate::args::symbols::SymbolArgs;
use crate::args::targets::{kernel_numbers, note_kernel_numbers};
use crate::exit;
use crate::streams::StdoutTextLock;

/// Flags that these commands share.
#[derive(clap::Args)]
pub(crate) struct AnalysisArgs {
    /// Recording to read
    ///
    /// A perf.data, a trace.dat, or a directory of CTF traces or of a session; `-`: standard input.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Recordings to read; several of one machine are merged by time
    #[arg(value_name = "FILE", conflicts_with = "input")]
    pub(crate) files: Vec<PathBuf>,
    /// Only this time range: START,STOP in seconds, or a share (10%-20%)
    ///
    /// START or STOP may be omitted; several ranges are separated by spaces. Shares of the
    /// recording: 0%-10%, or 10%/2 for the second tenth. Earlier events are read for the state at
    /// START.
    #[arg(long, value_name = "START,STOP", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,
    /// Only these CPUs (`0,2-3`)
    #[arg(short = 'C', long, visible_alias = "CPU", alias = "cpus", value_name = "LIST")]
    pub(crate) cpu: Option<String>,
    /// Only tasks with these names
    #[arg(long, visible_alias = "comms", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) comm: Vec<String>,
    /// Only tasks in these cgroups (paths or globs) and their descendants
    ///
    /// Works live, or with a perf.data recorded with --all-cgroups.
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    pub(crate) cgroup: Vec<String>,
    /// Print JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
    /// Show times in nanoseconds
    #[arg(long)]
    pub(crate) ns: bool,
    /// Ignore the owner of the file [always on]
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    pub(crate) strict: bool,
    /// The recording cannot be read again
    #[arg(skip)]
    is_live: bool,
    /// The tasks of a command that are wanted, unless others are chosen
    #[arg(skip)]
    tree: Option<TaskTree>,
    /// Chosen threads that are blocked when the capture starts
    #[arg(skip)]
    blocked: BlockedThreads,
    /// Tasks that a live capture is about
    #[arg(skip)]
    chosen: ChosenTasks,
    /// All tasks are wanted, although there is a command
    #[arg(skip)]
    is_beside_command: bool,
}

impl AnalysisArgs {
    /// Events come from the recorder, through this pipe, or a file that is not kept.
    pub(crate) fn set_live(&mut self, pipe: PathBuf) -> anyhow::Result<()> {
        (self.input, self.is_live) = (Some(pipe), true);
        crate::screen::set_live();
        self.choose_cgroups()
    }

    /// Whether cgroups were named.
    pub(crate) fn names_cgroups(&self) -> bool {
        !self.cgroup.is_empty()
    }

    /// Restricts a live capture to the tasks of the cgroups, as samples see them.
    fn choose_cgroups(&mut self) -> anyhow::Result<()> {
        if self.names_cgroups() {
            self.tree = Some(TaskTree::of_cgroups(&self.cgroup).map_err(anyhow::Error::msg)?);
        }
        Ok(())
    }

    /// Selects live events: of the tasks of the command, unless flags choose others. `pids`,
    /// `tids`: the chosen ones.
    ///
    /// # Errors If there are no such tasks, or events cannot be separated by task.
    pub(crate) fn watch(
        &mut self,
        live: &WatchArgs,
        pids: &[u32],
        tids: &[u32],
    ) -> anyhow::Result<()> {
        self.tree = live.tree();
        self.watch_tasks(live, pids, tids)
    }

    /// Selects live events as [`Self::watch`] does, for reports that are system-wide unless flags
    /// choose tasks.
    ///
    /// # Errors If there are no such tasks, or events cannot be separated by task.
    pub(crate) fn watch_machine(
        &mut self,
        live: &WatchArgs,
        pids: &[u32],
        tids: &[u32],
    ) -> anyhow::Result<()> {
        let chooses = !pids.is_empty() || !tids.is_empty() || !self.comm.is_empty();
        self.is_beside_command = live.has_command() && !chooses && !self.names_cgroups();
        self.watch_tasks(live, pids, tids)
    }

    /// Selects live events as [`Self::watch`] does, for reports that choose the tasks themselves if
    /// none is named.
    ///
    /// # Errors If there are no such tasks, or events cannot be separated by task.
    pub(crate) fn watch_tasks(
        &mut self,
        live: &WatchArgs,
        pids: &[u32],
        tids: &[u32],
    ) -> anyhow::Result<()> {
        let names_tasks = !pids.is_empty() || !tids.is_empty();
        let is_of_tree = self.tree.is_some() && self.comm.is_empty() && !self.names_cgroups();
        if names_tasks || is_of_tree {
            let way_out =
                if live.has_command() { "take all tasks (-a)" } else { "leave -p and -t away" };
            kernel_numbers(Some(way_out))?;
        }
        let mut threads = target::threads_of_all(pids)?;
        tids.iter().try_for_each(|tid| target::check_thread(*tid))?;
        threads.extend(tids);
        self.blocked = BlockedThreads::of(&threads);
        let at_start = BlockedAtStart::of(threads);
        self.chosen = ChosenTasks { processes: pids.to_vec(), threads: tids.to_vec(), at_start };
        Ok(())
    }

    /// Notes on what events that were counted while they happened cannot tell: chosen threads that
    /// were blocked all the time, and names that no task had.
    pub(crate) fn live_notes(&self, selection: &EventSelection) -> Vec<Note> {
        let unmet = selection.unmet_notes(RecordedExtent::default).into_iter();
        note_blocked(&self.blocked, false)
            .into_iter()
            .chain(note_kernel_numbers())
            .chain(unmet.filter(|_| !self.comm.is_empty()))
            .collect()
    }

    /// Tasks that a live capture is about, whose end is its own.
    pub(crate) fn chosen(&self) -> ChosenTasks {
        self.chosen.clone()
    }

    /// Whether events come from a recorder of this process.
    pub(crate) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Opens the recordings that were named, or the default one.
    pub(crate) fn open(&self, symbols: &SymbolArgs) -> anyhow::Result<EventSource> {
        let mut paths = self.files.clone();
        paths.extend(self.input.clone());
        if paths.is_empty() {
            paths.push(default_recording());
        }
        let first = paths.first().cloned().unwrap_or_default();
        if !self.is_live {
            crate::progress::begin(first.display());
        }
        let source = EventSource::open(&paths, symbols.options(&first))?.in_nanoseconds()?;
        let source = source.following(self.tree.clone());
        let source = source.beside(self.blocked.clone(), self.chosen.at_start.clone());
        if self.is_beside_command {
            source.tell(note_machine());
        }
        if self.is_live {
            note_kernel_numbers().into_iter().for_each(|note| source.tell(note));
        }
        Ok(match (self.is_live, &self.time) {
            (true, _) => source.unnamed(),
            (false, None) => source.beginning_together(),
            (false, Some(_)) => source,
        })
    }

    /// The conditions, with those on tasks that each command has flags of its own for.
    pub(crate) fn selection(
        &self,
        source: &EventSource,
        pids: &[u32],
        tids: &[u32],
    ) -> anyhow::Result<EventSelection> {
        let mut events = self.untimed_selection(pids, tids)?;
        if events.tree.as_ref().is_some_and(|tree| !tree.is_of_cgroups()) {
            source.tell(note_scope());
        }
        if let Some(text) = &self.time {
            let span = if text.contains('%') { source.span()? } else { None };
            events.times = parse_times(text, span)?;
        }
        if self.names_cgroups() && !self.is_live {
            events.members = Some(source.tasks_of_cgroups(&self.cgroup)?);
        }
        // Of what happens now, tasks that did nothing are named by their numbers.
        if !self.is_live || !self.comm.is_empty() {
            source.explain(&events);
        }
        Ok(events)
    }

    /// Returns the selection for live events, without conditions on time.
    pub(crate) fn live_selection(
        &mut self,
        pids: &[u32],
        tids: &[u32],
    ) -> anyhow::Result<EventSelection> {
        self.choose_cgroups()?;
        self.untimed_selection(pids, tids)
    }

    fn untimed_selection(&self, pids: &[u32], tids: &[u32]) -> anyhow::Result<EventSelection> {
        let mut events = EventSelection::of_tasks(self.comm.clone(), pids.to_vec(), tids.to_vec());
        if let Some(cpus) = &self.cpu {
            events.set_cpus(cpus)?;
        }
        let is_of_cgroups = self.tree.as_ref().is_some_and(TaskTree::is_of_cgroups);
        if is_of_cgroups || (!events.has_task_conditions() && !self.names_cgroups()) {
            events.tree.clone_from(&self.tree);
        }
        Ok(events)
    }

    /// Rows of a table that fit on a screen, if there is one: files and pipes get all.
    pub(crate) fn screen_rows(&self) -> Option<usize> {
        (!self.json && output_is_terminal()).then_some(20)
    }

    /// Columns of the screen that the text goes to, if there is one.
    pub(crate) fn screen_columns(&self) -> Option<usize> {
        output_columns().filter(|_| !self.json)
    }

    /// Units of times.
    pub(crate) fn units(&self) -> TimeUnits {
        TimeUnits { nanos: self.ns }
    }

    /// Exit status, after everything was written.
    pub(crate) fn close(
        &self,
        mut out: BufWriter<StdoutTextLock>,
        source: &EventSource,
        summary: &ReadSummary,
        ledger: &Ledger,
    ) -> anyhow::Result<ExitCode> {
        out.flush()?;
        let damage = summary.is_damaged(source).then_some("damaged; what can be read is counted");
        Ok(exit::status(source.name(), damage, ledger, self.strict))
    }
}

/// Records events and shows them while they come, by `show`, which reads them as it reads a
/// recording. `read_of`: the flags that name the recording.
pub(crate) fn show_live<A: Send>(
    live: &WatchArgs,
    events: &RecordedEvents,
    chains: bool,
    mut args: A,
    read_of: fn(&mut A) -> &mut AnalysisArgs,
    show: impl FnOnce(&A) -> anyhow::Result<ExitCode> + Send,
) -> anyhow::Result<ExitCode> {
    let (cgroups, chosen) = (read_of(&mut args).names_cgroups(), read_of(&mut args).chosen());
    live.pass_on(events, (chains, cgroups), chosen, move |pipe| {
        read_of(&mut args).set_live(pipe)?;
        show(&args)
    })
}

/// Note that a result is of the tasks of a command.
pub(crate) fn note_scope() -> Note {
    let fact = "only tasks of the command and its children";
    Note::choice(NoteKind::Scope, fact.to_owned(), Some("-a shows all tasks of the machine".into()))
}

/// Note that a result is system-wide counters of a command.
fn note_machine() -> Note {
    let fact = "all tasks of the machine, while the command ran";
    Note::choice(NoteKind::Scope, fact.to_owned(), Some("-p and --comm choose some".into()))
}

/// Standard output for tables, with a buffer.
pub(crate) fn stdout() -> BufWriter<StdoutTextLock> {
    crate::screen::page_tables();
    BufWriter::with_capacity(64 << 10, crate::streams::stdout().lock())
}

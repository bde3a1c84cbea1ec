//! A run: BEGIN, attaching, records until the end, END, the maps.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use kymo_bpf::{
    AttachPoint, AttachTarget, BpfProgramType, CompileOptions, CompiledProbe, CompiledProgram,
    SourceMessage, compile, is_watchpoint_setup,
};
use kymo_kernel::bpf::{BpfError, BpfLink, BpfMap, BpfPerfRings, BpfProgram, BpfRing, ProgramInfo};
use kymo_kernel::clock::KernelClock;
use kymo_kernel::proc_maps::replaced_binary;
use kymo_kernel::system::{KernelName, SystemRoot};
use kymo_kernel::target::has_kernel_pids;
use kymo_model::{Note, NoteKind};

use crate::actions::{ActionRunner, ProgramSinks};
use crate::attach::ProbeAttacher;
use crate::budget::RunBudget;
use crate::child_watch::ChildWatch;
use crate::error::ProgramError;
use crate::facts::MachineFacts;
use crate::load::{LoadedMaps, MissingProbes, ProgramLoader, create_maps};
use crate::losses::{loss_notes, ring_drops};
use crate::mapping_watch::MappingWatch;
use crate::maps::ProgramMaps;
use crate::output::{OutputForm, ProgramOutput};
use crate::packets::PacketCapture;
use crate::runtime_errors::{RuntimeErrors, WarningLevel, missing_note};
use crate::watchpoints::Watchpoints;

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct ProgramOptions {
    /// Name of the program in its messages.
    pub name: String,
    /// Text of the program, for messages while it runs.
    pub text: String,
    /// Positional parameters.
    pub parameters: Vec<String>,
    /// Process of `-p`, which user probes are limited to.
    pub pid: Option<u32>,
    /// Whether all probes but BEGIN, END and intervals are limited to it.
    pub is_limited: bool,
    /// Process of `-c`.
    pub child_pid: Option<u32>,
    /// Form of the output.
    pub form: OutputForm,
    /// The output is a terminal: texts that were read are escaped.
    pub is_for_terminal: bool,
    /// Whether the verifier's log is wanted.
    pub wants_log: bool,
    /// Headers that are included before the program's own.
    pub includes: Vec<String>,
    /// Whether it is to run in user space, on events out of rings.
    pub in_user_space: bool,
    /// Probes that run: those of events, or `test:` or `bench:` probes.
    pub mode: ProgramMode,
    /// Warnings of the run that are printed.
    pub warnings: WarningLevel,
    /// Whether it is only loaded and attached: neither BEGIN nor an iterator runs.
    pub is_dry: bool,
}

/// Probes that a run is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgramMode {
    /// Those of events.
    #[default]
    Events,
    /// `test:` probes, once each.
    Tests,
    /// `bench:` probes, until their time is known.
    Benchmarks,
}

impl ProgramMode {
    fn runs(self, point: &AttachPoint) -> bool {
        match self {
            ProgramMode::Events => false,
            ProgramMode::Tests => point.name.starts_with("test"),
            ProgramMode::Benchmarks => point.name.starts_with("bench"),
        }
    }
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It continues; there may be more records.
    Busy,
    /// It does; nothing waits.
    Idle,
    /// The program called `exit()`.
    Ended,
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct ProgramSummary {
    /// Status of `exit()`.
    pub status: u8,
    /// Notes about losses.
    pub notes: Vec<Note>,
}

/// Bytes of records that are handled before signals are looked at again.
const CHUNK: u64 = 8 << 20;

/// Bytes before a record in the ring.
const RECORD_HEADER: u64 = 8;

/// Compiles a program for this machine.
///
/// # Errors
/// All that is wrong with it.
pub fn compile_program(
    text: &str,
    options: &ProgramOptions,
    facts: &MachineFacts,
) -> Result<CompiledProgram, ProgramError> {
    if options.in_user_space {
        return compile_with(text, options, facts, false);
    }
    let compiled = compile_with(text, options, facts, true)?;
    if compiled.probes.iter().any(is_raw_syscall) || has_mixed_tracepoint(&compiled) {
        compile_with(text, options, facts, false)
    } else {
        Ok(compiled)
    }
}

/// Category and event of the tracepoints of a probe.
fn tracepoints(probe: &CompiledProbe) -> impl Iterator<Item = (&str, &str)> {
    probe.points.iter().filter_map(|point| match &point.target {
        AttachTarget::Tracepoint { category, event } => Some((category.as_str(), event.as_str())),
        _ => None,
    })
}

/// System calls' tracepoints are made by the kernel of one raw tracepoint.
fn is_raw_syscall(probe: &CompiledProbe) -> bool {
    probe.program_type == BpfProgramType::RawTracepoint
        && tracepoints(probe).any(|(category, _)| category == "syscalls")
}

/// Whether programs of one tracepoint are of both kinds. The kernel calls those of perf events
/// together, before raw ones or behind them: that depends on whether another process has a perf
/// event on the tracepoint already, and is not the order of the source.
fn has_mixed_tracepoint(compiled: &CompiledProgram) -> bool {
    let mut kinds: BTreeMap<(&str, &str), BpfProgramType> = BTreeMap::new();
    compiled.probes.iter().any(|probe| {
        tracepoints(probe)
            .any(|name| *kinds.entry(name).or_insert(probe.program_type) != probe.program_type)
    })
}

fn compile_with(
    text: &str,
    options: &ProgramOptions,
    facts: &MachineFacts,
    raw_tracepoints: bool,
) -> Result<CompiledProgram, ProgramError> {
    compile(text, &compile_options(options, raw_tracepoints), facts).map_err(ProgramError::Compile)
}

/// Settings of a compilation for this machine.
pub(crate) fn compile_options(options: &ProgramOptions, raw_tracepoints: bool) -> CompileOptions {
    let (major, minor, _) = KernelName::running().numbers();
    CompileOptions {
        parameters: options.parameters.clone(),
        pid: options.pid,
        filter_pid: options.pid.filter(|_| options.is_limited),
        child_pid: options.child_pid,
        pid_namespace: if has_kernel_pids() { None } else { SystemRoot::machine().pid_namespace() },
        start_ns: KernelClock::Boottime.now().unwrap_or(0),
        // Maps of user space have one value for all.
        cpus: if options.in_user_space { 1 } else { possible_cpus() },
        raw_tracepoints,
        in_user_space: options.in_user_space,
        kernel: (major, minor),
        arch: std::env::consts::ARCH.to_owned(),
        includes: options.includes.clone(),
        config: environment_settings(),
    }
}

/// Settings of the environment (`BPFTRACE_MAX_STRLEN`), which stand above the program's; also by
/// the names that bpftrace gave them before 0.21.
fn environment_settings() -> Vec<(String, String)> {
    const OLD: [(&str, &str); 3] = [
        ("strlen", "max_strlen"),
        ("cat_bytes_max", "max_cat_bytes"),
        ("map_keys_max", "max_map_keys"),
    ];
    let settings = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str()?.strip_prefix("BPFTRACE_")?.to_ascii_lowercase();
        let new = OLD.iter().find(|(old, _)| *old == name).map(|(_, new)| (*new).to_owned());
        Some((new.unwrap_or(name), value.into_string().ok()?))
    });
    settings.collect()
}

/// Creates the maps and loads each probe's instructions for its first point; nothing is
/// attached or run, and all is gone afterwards. Says how many were loaded.
///
/// # Errors
/// The first that the kernel refuses.
pub fn verify_program(
    program: &CompiledProgram,
    facts: &MachineFacts,
) -> Result<usize, ProgramError> {
    let loaded = create_maps(program, possible_cpus())?;
    let loader = ProgramLoader::new(program, &loaded.maps, facts, false);
    let points = program.probes.iter().filter_map(|probe| Some((probe, probe.points.first()?)));
    points
        .map(|(probe, point)| loader.load(probe, point, 0))
        .try_fold(0, |count, program| program.map(|_| count + 1))
}

fn possible_cpus() -> u32 {
    SystemRoot::machine().possible_cpus().len().max(1) as u32
}

/// Whether the kernel runs programs at one place in the reverse order of their attachment: those
/// of functions, of user space and of software events. (Returns of `kretprobe` are undone from the last to the first.)
fn runs_newest_first(probe: &CompiledProbe) -> bool {
    use AttachTarget::{Fentry, Kprobe, Software, Uprobe, Usdt};
    match probe.points.first().map(|point| &point.target) {
        Some(Kprobe { at_return, .. }) => !at_return,
        Some(Fentry { .. } | Uprobe { .. } | Usdt { .. }) => true,
        // Each clock is a timer of its own.
        Some(Software { event, .. }) => !event.ends_with("clock") && event != "cpu",
        _ => false,
    }
}

/// Whether the first frame of a stack at a point is the probed place, if it is of user space.
fn has_probed_address(point: &AttachPoint) -> bool {
    use AttachTarget::{Begin, End, Interval, Uprobe, Usdt};
    match &point.target {
        Uprobe { at_return, .. } => !at_return,
        target => matches!(target, Begin | End | Interval { .. } | Usdt { .. }),
    }
}

/// A program that is attached.
pub struct RunningProgram {
    pub(crate) actions: ActionRunner,
    ring: Option<BpfRing>,
    packets: Option<PacketCapture>,
    links: Vec<BpfLink>,
    pub(crate) loaded: Vec<(String, BpfProgram)>,
    end: Vec<usize>,
    on_signal: Vec<usize>,
    /// Verifier's logs, by point.
    pub logs: Vec<(String, String)>,
    /// Attach points.
    pub attached: usize,
    /// Time at which the last of them was attached.
    pub attached_at: Option<Instant>,
    /// Probes that could not be attached, where the program continues without them.
    pub warnings: Vec<SourceMessage>,
    notes: Vec<Note>,
    errors: RuntimeErrors,
    /// Mappings of the command and its children.
    mappings: Option<MappingWatch>,
    /// Children of the process that probes are limited to.
    children: Option<ChildWatch>,
    reported_drops: u64,
    shows_user_code: bool,
    budget: Option<RunBudget>,
    /// Whether the budget was exceeded: nothing is attached any more.
    pub is_detached: bool,
    /// Whether a probe may still fire: not of programs that have only BEGIN, END and iterators.
    pub awaits_events: bool,
    is_dry: bool,
    mode: ProgramMode,
    /// `test:` or `bench:` probes with the numbers of their programs.
    pub(crate) tests: Vec<(String, usize)>,
    watchpoints: Watchpoints,
    ring_was_empty_after_exit: bool,
}

impl RunningProgram {
    /// Creates the maps, loads, runs BEGIN and attaches.
    ///
    /// # Errors
    /// The first that the kernel refuses; nothing is attached then.
    pub fn start(
        program: CompiledProgram,
        options: &ProgramOptions,
        facts: &MachineFacts,
    ) -> Result<RunningProgram, ProgramError> {
        let LoadedMaps { maps, ring, packets } = create_maps(&program, possible_cpus())?;
        let rings = packets.and_then(|(map, pages)| Some((maps.get(map)?, pages)));
        let rings = rings.map(|(map, pages)| BpfPerfRings::open(map, pages)).transpose()?;
        let mut run = RunningProgram {
            actions: ActionRunner::new(
                program,
                ProgramMaps::default(),
                &options.name,
                options.form,
            ),
            ring,
            packets: None,
            links: Vec::new(),
            loaded: Vec::new(),
            end: Vec::new(),
            on_signal: Vec::new(),
            logs: Vec::new(),
            attached: 0,
            attached_at: None,
            warnings: Vec::new(),
            notes: Vec::new(),
            errors: RuntimeErrors::new(options.warnings),
            mappings: None,
            children: None,
            reported_drops: 0,
            shows_user_code: false,
            budget: None,
            is_detached: false,
            awaits_events: false,
            is_dry: options.is_dry,
            mode: options.mode,
            tests: Vec::new(),
            watchpoints: Watchpoints::of_process(options.pid.or(options.child_pid)),
            ring_was_empty_after_exit: false,
        };
        run.shows_user_code = run.actions.shows_user_code();
        if let (Some(pid), true) = (options.child_pid, run.shows_user_code) {
            run.mappings = MappingWatch::open(pid);
        }
        run.errors.watch(&run.actions.program);
        run.actions.is_silent = options.warnings == WarningLevel::None;
        run.actions.is_for_terminal = options.is_for_terminal;
        run.actions.text.clone_from(&options.text);
        run.notes.extend(missing_note(&run.actions.program.missing_probes));
        let probed = run.load_and_attach(maps, facts, options.wants_log)?;
        if let (Some(pid), false) = (facts.user_process(), probed.is_empty()) {
            run.children = Some(ChildWatch::start(pid, options.child_pid == Some(pid), &probed));
        }
        if run.attached == 0 {
            let probes = run.actions.program.probes.iter().flat_map(|probe| &probe.points);
            let tests = probes.filter(|p| matches!(p.target, AttachTarget::Test(_)));
            return Err(match tests.map(|point| point.name.starts_with("test")).next() {
                Some(true) => ProgramError::OnlyTests("--test to run test probes"),
                Some(false) => ProgramError::OnlyTests("--bench to run benchmark probes"),
                None => ProgramError::NothingAttached,
            });
        }
        // Last, so that a program that is refused leaves no file: packets wait in the rings.
        if let Some(rings) = rings {
            run.packets = Some(PacketCapture::create(&run.actions.program, rings)?);
        }
        Ok(run)
    }

    fn load_and_attach(
        &mut self,
        maps: Vec<BpfMap>,
        facts: &MachineFacts,
        wants_log: bool,
    ) -> Result<Vec<PathBuf>, ProgramError> {
        let program = std::mem::take(&mut self.actions.program);
        let done = {
            let loader = ProgramLoader::new(&program, &maps, facts, wants_log);
            let attacher = ProbeAttacher::new(facts);
            let is_begin = |probe: &&CompiledProbe| {
                probe.points.iter().any(|p| p.target == AttachTarget::Begin)
            };
            let probes = || program.probes.iter();
            let is_first_last =
                |probe: &&CompiledProbe| !is_begin(probe) && runs_newest_first(probe);
            let begins = probes().filter(is_begin);
            let others = probes().filter(|probe| !is_begin(probe) && !runs_newest_first(probe));
            let ordered = begins.chain(others).chain(probes().filter(is_first_last).rev());
            let done = ordered
                .into_iter()
                .try_for_each(|probe| self.start_probe(&loader, &attacher, probe));
            self.attached_at = Some(Instant::now());
            let mut binaries: Vec<_> =
                attacher.places.borrow().iter().map(|place| place.path.clone()).collect();
            binaries.sort_unstable();
            binaries.dedup();
            let among: Vec<u32> = facts.user_process().into_iter().collect();
            for fact in binaries.iter().filter_map(|path| replaced_binary(path, &among)) {
                let advice = Some("restart these processes".to_owned());
                self.notes.push(Note::doubt(NoteKind::Program, fact, advice));
            }
            if program.probes.iter().flat_map(|probe| &probe.points).all(has_probed_address) {
                let places = attacher.places.take().into_iter();
                self.actions.names.probed = places.map(|p| (p.path, p.offset)).collect();
            }
            done.map(|()| binaries)
        };
        self.actions.maps = ProgramMaps::of_kernel(maps, &program);
        self.actions.program = program;
        done
    }

    fn start_probe(
        &mut self,
        loader: &ProgramLoader<'_>,
        attacher: &ProbeAttacher<'_>,
        probe: &CompiledProbe,
    ) -> Result<(), ProgramError> {
        let is_special = |point: &AttachPoint| {
            use AttachTarget::{Begin, End, Test};
            matches!(point.target, Begin | End | Test(_))
        };
        if self.mode != ProgramMode::Events && !probe.points.iter().any(is_special) {
            return Ok(());
        }
        if self.attach_together(loader, attacher, probe) {
            return Ok(());
        }
        // Tracing programs are loaded for one function each; others once for all points.
        let is_tracing = probe.program_type == BpfProgramType::Tracing;
        let mut current: Option<usize> = None;
        let (mut failures, mut previous) = (Vec::new(), None);
        for point in &probe.points {
            if matches!(point.target, AttachTarget::Test(_)) && !self.mode.runs(point)
                || !is_special(point) && self.mode != ProgramMode::Events
            {
                continue;
            }
            let index = match current.filter(|_| !is_tracing) {
                Some(index) => index,
                None => self.keep(point.name.clone(), loader.load(probe, point, 0)?),
            };
            current = Some(index);
            let Some((_, program)) = self.loaded.get(index) else { continue };
            match &point.target {
                AttachTarget::Begin | AttachTarget::Iter { .. } if self.is_dry => {}
                AttachTarget::Begin => _ = program.run_once()?,
                AttachTarget::End => self.end.push(index),
                AttachTarget::Test(name) => self.tests.push((name.clone(), index)),
                AttachTarget::SelfSignal(_) => {
                    self.on_signal.push(index);
                    self.awaits_events = true;
                }
                AttachTarget::Watchpoint { function, .. } if !function.is_empty() => {
                    self.watchpoints.points.push((point.clone(), index));
                    self.awaits_events = true;
                }
                _ => match attacher.attach(program, probe.program_type, point) {
                    Ok(links) => {
                        // bpftrace 0.17 counts each place of a USDT probe.
                        if self.is_old() && matches!(point.target, AttachTarget::Usdt { .. }) {
                            self.attached += links.len().saturating_sub(1);
                        }
                        self.awaits_events |= !matches!(point.target, AttachTarget::Iter { .. });
                        self.links.extend(links);
                    }
                    Err(reason) => {
                        failures.push((point.name.clone(), reason));
                        continue;
                    }
                },
            }
            // Places of one USDT probe are one.
            let is_next = matches!(point.target, AttachTarget::Usdt { site: Some(_), .. })
                && previous == Some(&point.name);
            previous = Some(&point.name);
            self.attached += usize::from(!is_next && !is_watchpoint_setup(point));
        }
        self.judge_failures(loader.missing, probe, failures)
    }

    /// One that was named must be there, unless the program continues without it; of those that a
    /// pattern stands for, some may refuse.
    fn judge_failures(
        &mut self,
        missing: MissingProbes,
        probe: &CompiledProbe,
        failures: Vec<(String, String)>,
    ) -> Result<(), ProgramError> {
        let all = failures.len() == probe.points.len();
        let count = failures.len();
        let Some((point, reason)) = failures.into_iter().next() else { return Ok(()) };
        match missing {
            MissingProbes::Error if all => {
                return Err(ProgramError::Attach { point, position: probe.position, reason });
            }
            MissingProbes::Error => {}
            MissingProbes::Warn => {
                let text = format!("Unable to attach probe: {point}: {reason}. Skipping.");
                self.warnings.push(SourceMessage {
                    position: probe.position,
                    text,
                    hint: None,
                    needs_kernel: false,
                    warnings: Vec::new(),
                });
                return Ok(());
            }
            MissingProbes::Ignore => {
                let more =
                    if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
                let fact =
                    format!("not attached: {point}{more}: {reason} (missing_probes = ignore)");
                self.notes.push(Note::choice(NoteKind::Scope, fact, None));
                return Ok(());
            }
        }
        let fact =
            format!("{count} of {} probes are not attached: {point}: {reason}", probe.points.len());
        self.notes.push(Note::doubt(NoteKind::Scope, fact, None));
        Ok(())
    }

    /// Attaches to all points by one link, where points are many and the kernel can.
    fn attach_together(
        &mut self,
        loader: &ProgramLoader<'_>,
        attacher: &ProbeAttacher<'_>,
        probe: &CompiledProbe,
    ) -> bool {
        const KPROBE_MULTI: u32 = 42;
        const UPROBE_MULTI: u32 = 48;
        let Some(first) = probe.points.first().filter(|_| probe.points.len() > 1) else {
            return false;
        };
        let pid = loader.facts.user_process();
        let attached = match &first.target {
            AttachTarget::Kprobe { .. } => {
                attacher.addresses_of_kprobes(&probe.points).and_then(|(addresses, returns)| {
                    let program = loader.load(probe, first, KPROBE_MULTI).ok()?;
                    let link = BpfLink::to_kprobes(&program, &addresses, returns).ok()?;
                    Some((program, link))
                })
            }
            AttachTarget::Uprobe { .. } => {
                attacher.offsets_of_uprobes(&probe.points).and_then(|(path, offsets, returns)| {
                    let program = loader.load(probe, first, UPROBE_MULTI).ok()?;
                    let link = BpfLink::to_uprobes(&program, &path, &offsets, returns, pid).ok()?;
                    Some((program, link))
                })
            }
            _ => None,
        };
        let Some((program, link)) = attached else { return false };
        self.keep(first.name.clone(), program);
        self.links.push(link);
        self.awaits_events = true;
        self.attached += probe.points.iter().filter(|point| !is_watchpoint_setup(point)).count();
        true
    }

    fn keep(&mut self, name: String, mut program: BpfProgram) -> usize {
        let log = std::mem::take(&mut program.log);
        if !log.is_empty() {
            self.logs.push((name.clone(), log));
        }
        self.loaded.push((name, program));
        self.loaded.len() - 1
    }

    /// Number of runs of its programs, while run time is measured.
    pub(crate) fn run_count(&self) -> u64 {
        self.loaded.iter().map(|(_, p)| ProgramInfo::of(p).map_or(0, |i| i.run_count)).sum()
    }

    /// Detaches when the programs take more than a share of a CPU, in percent.
    ///
    /// # Errors
    /// If the kernel does not measure run times.
    pub fn set_budget(&mut self, percent: f64) -> io::Result<()> {
        self.budget = Some(RunBudget::new(percent)?);
        Ok(())
    }

    /// Detaches if the budget is exceeded.
    fn keep_budget(&mut self) {
        let excess = self.budget.as_mut().and_then(|budget| budget.excess(&self.loaded));
        if let Some(fact) = excess {
            self.links.clear();
            self.notes.extend(self.watchpoints.end());
            self.notes.extend(self.children.take().and_then(ChildWatch::note));
            self.budget = None;
            self.is_detached = true;
            self.notes.push(Note::doubt(
                NoteKind::Scope,
                fact,
                Some("raise --budget, or filter more".into()),
            ));
        }
    }

    /// Whether output is that of bpftrace 0.17.
    pub fn is_old(&self) -> bool {
        self.actions.form == OutputForm::OldText
    }

    /// Says how many probes are attached, in JSON.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn announce(&self, sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        self.output(sinks).attached(self.attached)
    }

    fn output<'s>(&self, sinks: &'s mut ProgramSinks<'_>) -> ProgramOutput<'s> {
        ProgramOutput { form: self.actions.form, sink: sinks.output }
    }

    /// Handles the records that are there, a bounded number of them.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn poll(&mut self, sinks: &mut ProgramSinks<'_>) -> io::Result<RunState> {
        self.keep_budget();
        // Before the ring: what a program puts out before `exit()` is there when that is read.
        let packets = self.read_packets();
        let bytes = self.read_ring(sinks)?;
        self.warn(sinks)?;
        if bytes > 0 {
            sinks.output.flush()?;
        }
        for request in std::mem::take(&mut self.actions.watches) {
            self.watchpoints.serve(&request, &self.loaded);
        }
        if self.has_lost_exit(bytes) {
            return Ok(RunState::Ended);
        }
        Ok(match (self.actions.exit, bytes + packets) {
            (Some(_), _) => RunState::Ended,
            (None, 0) => RunState::Idle,
            _ => RunState::Busy,
        })
    }

    /// Whether `exit()` was called and its record did not fit the ring. The record comes right after
    /// the flag is set, so that the ring must be found empty twice.
    fn has_lost_exit(&mut self, bytes: u64) -> bool {
        let status = match bytes {
            0 if self.actions.exit.is_none() => self.actions.maps.exit_status(),
            _ => None,
        };
        let was_empty = std::mem::replace(&mut self.ring_was_empty_after_exit, status.is_some());
        if was_empty && status.is_some() {
            self.actions.exit = status;
        }
        was_empty && status.is_some()
    }

    fn read_packets(&mut self) -> u64 {
        let (Some(packets), actions) = (&mut self.packets, &self.actions) else { return 0 };
        packets.read(&actions.program.actions)
    }

    pub(crate) fn read_ring(&mut self, sinks: &mut ProgramSinks<'_>) -> io::Result<u64> {
        if let Some(watch) = &mut self.mappings {
            self.actions.names.take_mappings(watch);
        }
        if let Some(children) = &mut self.children {
            children.read();
        }
        let (Some(ring), actions) = (&mut self.ring, &mut self.actions) else { return Ok(0) };
        let mut result = Ok(());
        let mut behind = ring.pending();
        let bytes = ring.read(CHUNK, |record| {
            behind = behind.saturating_sub(record.len() as u64 + RECORD_HEADER);
            actions.is_behind = behind > 0;
            result = actions.run(record, sinks);
            // A command may take its time: signals are looked at after each.
            let goes_on = actions.exit.is_none() && !std::mem::take(&mut actions.last_command);
            result.is_ok() && goes_on
        });
        result.map(|()| bytes)
    }

    /// Reads the mappings of a process whose addresses may be printed: it may be gone when
    /// they are.
    pub fn remember_process(&mut self, pid: u32) {
        if self.shows_user_code && self.mappings.is_none() {
            self.actions.names.renew_process(pid);
        }
    }

    /// Prints all maps as they are now.
    fn print_maps(&mut self, sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        self.actions.print_maps(sinks)?;
        sinks.output.flush()
    }

    /// The user ended the run: commands of `system()` that wait are not run any more.
    pub fn interrupt(&mut self) {
        self.actions.is_ending = true;
    }

    /// Detaches, handles what is left, runs END and prints the maps.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(mut self, sinks: &mut ProgramSinks<'_>) -> Result<ProgramSummary, ProgramError> {
        self.links.clear();
        self.notes.extend(self.watchpoints.end());
        self.notes.extend(self.children.take().and_then(ChildWatch::note));
        self.actions.maps.settle()?;
        self.read_packets();
        let status = self.actions.exit;
        match status {
            // Records behind `exit()` are not wanted.
            Some(_) => {
                if let Some(ring) = &mut self.ring {
                    while ring.read(CHUNK, |_| true) > 0 {}
                }
            }
            None => while self.read_ring(sinks)? > 0 && self.actions.exit.is_none() {},
        }
        self.actions.exit = None;
        self.actions.is_ending = false;
        self.run_end()?;
        while self.read_ring(sinks)? > 0 && self.actions.exit.is_none() {}
        // That of END comes last and stands above the others, as in bpftrace.
        let status = self.actions.exit.or(status);
        self.warn(sinks)?;
        self.report_drops(sinks)?;
        if self.mode == ProgramMode::Events {
            self.actions.print_last_maps(sinks)?;
        }
        sinks.output.flush()?;
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(loss_notes(&self.actions.program, &self.actions.maps, &self.loaded));
        notes.extend(self.actions.notes());
        notes.extend(self.packets.iter().flat_map(PacketCapture::notes));
        Ok(ProgramSummary { status: status.unwrap_or(0) as u8, notes })
    }

    /// SIGUSR1 came: runs `self:signal:SIGUSR1` probes; prints all maps if there are none.
    ///
    /// # Errors
    /// If the kernel does not run them, or the output cannot be written.
    pub fn handle_signal(&mut self, sinks: &mut ProgramSinks<'_>) -> Result<(), ProgramError> {
        if self.on_signal.is_empty() {
            return Ok(self.print_maps(sinks)?);
        }
        let programs = self.on_signal.iter().filter_map(|index| self.loaded.get(*index));
        Ok(programs.into_iter().try_for_each(|(_, program)| program.run_once().map(drop))?)
    }

    /// Prints the errors of programs that happened since the last time.
    fn warn(&mut self, sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        let RunningProgram { errors, actions, .. } = self;
        errors.print(actions, sinks)
    }

    fn run_end(&self) -> Result<(), BpfError> {
        let programs = self.end.iter().filter_map(|index| self.loaded.get(*index));
        programs.into_iter().try_for_each(|(_, program)| program.run_once().map(drop))
    }

    fn report_drops(&mut self, sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        let drops = ring_drops(&self.actions.program, &self.actions.maps);
        let new = drops - self.reported_drops;
        self.reported_drops = drops;
        match new {
            0 => Ok(()),
            new => self.output(sinks).lost(new),
        }
    }
}

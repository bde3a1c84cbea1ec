//! A run in user space: the same program, whose probes are events that the caller takes out of
//! rings and hands over in the order of time (`take`). Intervals follow the time of events, BEGIN
//! and END are of this process, as they are in the kernel.

use std::io;

use kymo_bpf::{
    AttachTarget, BpfInstruction, BpfMapType, BpfProgramType, ClockOffsets, CompiledProgram,
    ProgramEvent, ProgramInterpreter, ProgramNeeds, ProgramRecords,
};
use kymo_kernel::bpf::{BpfError, BpfMap, BpfProgram, MapSpec, ProgramSpec};
use kymo_kernel::clock::{KernelClock, monotonic_ns};
use kymo_kernel::proc_maps;
use kymo_kernel::target::own_cgroup_id;
use kymo_model::{Attr, EventType, Note, NoteKind, counted, sw};
use rustc_hash::FxHashMap;

use crate::actions::{ActionRunner, ProgramSinks};
use crate::attach::{hardware_event, software_event};
use crate::error::ProgramError;
use crate::losses::loss_notes;
use crate::maps::ProgramMaps;
use crate::output::{OutputForm, ProgramOutput};
use crate::running::{ProgramOptions, ProgramSummary, RunState};

/// An event that probes of a program are about.
#[derive(Clone, Debug)]
pub struct EventPoint {
    /// Name as in the program: `tracepoint:sched:sched_switch`.
    pub name: String,
    /// Target of the probe.
    pub target: AttachTarget,
    /// Attributes for opening; of tracepoints by name.
    pub attr: Attr,
    /// Condition of the kernel's event filter, which drops other events early.
    pub condition: Option<String>,
    /// Numbers of the probes, in order.
    probes: Vec<usize>,
}

/// A probe of an interval.
#[derive(Clone, Copy, Debug)]
struct IntervalTimer {
    probe: usize,
    period: u64,
    due: u64,
}

/// Owners of tasks that are remembered.
const MOST_OWNERS: usize = 1 << 16;
/// The shortest interval, as the kernel has it.
const SHORTEST: u64 = 10_000;
/// An interval that was missed more often is not made up for.
const MOST_MISSED: u64 = 1000;

/// A program that runs in user space.
pub struct InterpretedProgram {
    actions: ActionRunner,
    records: ProgramRecords,
    needs: ProgramNeeds,
    points: Vec<EventPoint>,
    timers: Vec<IntervalTimer>,
    begin: Vec<usize>,
    end: Vec<usize>,
    /// Probes.
    pub attached: usize,
    own: OwnTask,
    owners: FxHashMap<u32, (u32, u32)>,
    root_owner: Option<(u32, u32)>,
    unowned: u64,
    shows_user_code: bool,
}

/// The process that BEGIN, END and intervals are of.
struct OwnTask {
    pid: u32,
    comm: Vec<u8>,
    owner: (u32, u32),
    cgroup: u64,
}

impl OwnTask {
    fn event(&self, time: u64) -> ProgramEvent<'_> {
        ProgramEvent {
            time,
            pid: self.pid,
            tid: self.pid,
            comm: &self.comm,
            owner: self.owner,
            cgroup: self.cgroup,
            ..ProgramEvent::default()
        }
    }
}

impl InterpretedProgram {
    /// A program that was compiled for user space.
    ///
    /// # Errors
    /// If an event is not known.
    pub fn new(
        program: CompiledProgram,
        options: &ProgramOptions,
    ) -> Result<InterpretedProgram, ProgramError> {
        let ahead =
            |clock: KernelClock| clock.now().map_or(0, |now| now.wrapping_sub(monotonic_ns()));
        let clocks =
            ClockOffsets { boot: ahead(KernelClock::Boottime), tai: ahead(KernelClock::Tai) };
        let interpreter = ProgramInterpreter::new(&program, clocks);
        let needs = interpreter.needs();
        let status = proc_maps::status(std::process::id()).unwrap_or_default();
        let own = OwnTask {
            pid: std::process::id(),
            comm: status.comm,
            owner: status.owner,
            cgroup: needs.cgroup.then(own_cgroup_id).flatten().unwrap_or(0),
        };
        let mut run = InterpretedProgram {
            actions: ActionRunner::new(
                program,
                ProgramMaps::default(),
                &options.name,
                options.form,
            ),
            records: ProgramRecords::default(),
            needs,
            points: Vec::new(),
            timers: Vec::new(),
            begin: Vec::new(),
            end: Vec::new(),
            attached: 0,
            own,
            owners: FxHashMap::default(),
            root_owner: None,
            unowned: 0,
            shows_user_code: false,
        };
        run.actions.text.clone_from(&options.text);
        run.place_probes()?;
        run.shows_user_code = run.actions.shows_user_code();
        run.actions.maps = ProgramMaps::UserSpace(Box::new(interpreter));
        Ok(run)
    }

    fn place_probes(&mut self) -> Result<(), ProgramError> {
        let probes = &self.actions.program.probes;
        let mut by_name: FxHashMap<&str, usize> = FxHashMap::default();
        for (number, probe) in probes.iter().enumerate() {
            for point in &probe.points {
                self.attached += 1;
                match &point.target {
                    AttachTarget::Begin => self.begin.push(number),
                    AttachTarget::End => self.end.push(number),
                    AttachTarget::Interval { period_ns, hertz } => {
                        let period = clock_period(*period_ns, *hertz);
                        self.timers.push(IntervalTimer { probe: number, period, due: u64::MAX });
                    }
                    target => {
                        let known = *by_name.entry(&point.name).or_insert(self.points.len());
                        match self.points.get_mut(known) {
                            Some(event) => {
                                event.probes.push(number);
                                // Each of them wants other events.
                                event.condition = None;
                            }
                            None => self.points.push(EventPoint {
                                name: point.name.clone(),
                                target: target.clone(),
                                attr: event_attr(target).ok_or_else(|| ProgramError::Attach {
                                    point: point.name.clone(),
                                    position: probe.position,
                                    reason: "no such event".into(),
                                })?,
                                condition: probe.condition.clone(),
                                probes: vec![number],
                            }),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The events to be handed over, numbered as [`Self::take`] takes them.
    pub fn points(&self) -> &[EventPoint] {
        &self.points
    }

    /// Whether a probe may still fire: not of programs that have only BEGIN and END.
    pub fn awaits_events(&self) -> bool {
        !self.points.is_empty() || !self.timers.is_empty()
    }

    /// Requirements of the programs on their events.
    pub fn needs(&self) -> ProgramNeeds {
        self.needs
    }

    /// Whether output is that of bpftrace 0.17.
    pub fn is_old(&self) -> bool {
        self.actions.form == OutputForm::OldText
    }

    /// Says how many probes there are, in JSON.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn announce(&self, sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        let form = self.actions.form;
        ProgramOutput { form, sink: sinks.output }.attached(self.attached)
    }

    /// Runs BEGIN and starts the intervals.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn begin(&mut self, sinks: &mut ProgramSinks<'_>) -> io::Result<RunState> {
        let now = monotonic_ns();
        for timer in &mut self.timers {
            timer.due = now.saturating_add(timer.period);
        }
        for probe in self.begin.clone() {
            self.run_own(probe, now, sinks)?;
        }
        sinks.output.flush()?;
        Ok(self.state())
    }

    fn state(&self) -> RunState {
        if self.actions.exit.is_some() { RunState::Ended } else { RunState::Busy }
    }

    fn interpreter(&mut self) -> Option<&mut ProgramInterpreter> {
        match &mut self.actions.maps {
            ProgramMaps::UserSpace(interpreter) => Some(interpreter),
            ProgramMaps::Kernel(_) => None,
        }
    }

    fn run_own(&mut self, probe: usize, time: u64, sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        let own = self.own.event(time);
        if let ProgramMaps::UserSpace(interpreter) = &mut self.actions.maps {
            interpreter.run(probe, &own);
        }
        self.act(sinks)
    }

    /// Does what the records of the last run ask for.
    fn act(&mut self, sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        if !self.interpreter().is_some_and(|interpreter| interpreter.has_records()) {
            return Ok(());
        }
        let mut records = std::mem::take(&mut self.records);
        if let Some(interpreter) = self.interpreter() {
            interpreter.swap_records(&mut records);
        }
        // Records behind `exit()` are not wanted.
        let actions = &mut self.actions;
        let done = records.iter().try_for_each(|record| match actions.exit {
            Some(_) => Ok(()),
            None => actions.run(record, sinks),
        });
        self.records = records;
        done
    }

    /// Takes an event of a point, the oldest that was not taken yet.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn take(
        &mut self,
        point: usize,
        event: &ProgramEvent<'_>,
        sinks: &mut ProgramSinks<'_>,
    ) -> io::Result<RunState> {
        self.pass_time(event.time, sinks)?;
        let owner = if self.needs.owner { self.owner_of(event.pid, event.tid) } else { (0, 0) };
        let event = ProgramEvent { owner, ..*event };
        let mut next = 0;
        while let Some(probe) = self.points.get(point).and_then(|p| p.probes.get(next).copied()) {
            if self.actions.exit.is_some() {
                break;
            }
            if let ProgramMaps::UserSpace(interpreter) = &mut self.actions.maps {
                interpreter.run(probe, &event);
            }
            self.act(sinks)?;
            next += 1;
        }
        Ok(self.state())
    }

    /// Runs the intervals that are due: all events before `time` were taken.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn pass_time(&mut self, time: u64, sinks: &mut ProgramSinks<'_>) -> io::Result<RunState> {
        while let Some(timer) =
            self.timers.iter_mut().min_by_key(|t| t.due).filter(|t| t.due <= time)
        {
            if self.actions.exit.is_some() {
                break;
            }
            let IntervalTimer { probe, period, due } = *timer;
            let missed = (time - due) / period;
            timer.due = if missed > MOST_MISSED {
                time.saturating_add(period)
            } else {
                due.saturating_add(period)
            };
            self.run_own(probe, due, sinks)?;
            sinks.output.flush()?;
        }
        Ok(self.state())
    }

    /// Reads the user of a task that may be gone when its events come. `is_root`: all others are
    /// its children.
    pub fn remember_owner(&mut self, tid: u32, is_root: bool) {
        if self.needs.owner
            && let Ok(status) = proc_maps::status(tid)
        {
            self.owners.insert(tid, status.owner);
            self.root_owner = is_root.then_some(status.owner);
        }
    }

    /// The user that a task runs for. It is read once: what a task changes later is not seen.
    /// Of a thread that is gone, its process's.
    fn owner_of(&mut self, pid: u32, tid: u32) -> (u32, u32) {
        if let Some(owner) = self.owners.get(&tid) {
            return *owner;
        }
        if self.owners.len() >= MOST_OWNERS {
            self.owners.clear();
        }
        let known = match proc_maps::status(tid) {
            Ok(status) => Some(status.owner),
            // The idle tasks are nobody's.
            Err(_) if tid == 0 => Some((0, 0)),
            Err(_) => self.owners.get(&pid).copied(),
        };
        match known {
            Some(owner) => {
                self.owners.insert(tid, owner);
                owner
            }
            None => {
                self.unowned += 1;
                self.root_owner.unwrap_or((u32::MAX, u32::MAX))
            }
        }
    }

    /// Reads the mappings of a process whose addresses may be printed: it may be gone when
    /// they are.
    pub fn remember_process(&mut self, pid: u32) {
        if self.shows_user_code {
            self.actions.names.renew_process(pid);
        }
    }

    /// Runs END and prints the maps.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(mut self, sinks: &mut ProgramSinks<'_>) -> Result<ProgramSummary, ProgramError> {
        let status = self.actions.exit.take();
        let now = monotonic_ns();
        for probe in self.end.clone() {
            self.run_own(probe, now, sinks)?;
        }
        let status = self.actions.exit.or(status);
        self.actions.print_last_maps(sinks)?;
        let mut notes = loss_notes(&self.actions.program, &self.actions.maps, &[]);
        notes.extend(self.actions.notes());
        let (_, cut) = self.interpreter().map_or((0, 0), |interpreter| interpreter.runs());
        if cut > 0 {
            let fact = counted(
                cut,
                "run of the program was ended: too long, or a bad address",
                "runs of the program were ended: too long, or a bad address",
            );
            notes.push(Note::doubt(NoteKind::Cut, fact, None));
        }
        let stackless = self.interpreter().map_or(0, |interpreter| interpreter.stackless());
        if stackless > 0 {
            let fact = format!("{stackless} kernel stacks are empty: perf gives none here");
            let advice = "count raw_syscalls, which has them, in place of syscalls";
            notes.push(Note::doubt(NoteKind::Missing, fact, Some(advice.into())));
        }
        if self.unowned > 0 {
            let stands = match self.root_owner {
                Some(_) => "their user is taken for that of the first",
                None => "no user is known",
            };
            let fact = format!("{} events of tasks that had ended: {stands}", self.unowned);
            notes.push(Note::doubt(NoteKind::Missing, fact, None));
        }
        Ok(ProgramSummary { status: status.unwrap_or(0) as u8, notes })
    }
}

/// Nanoseconds of a period, or of a rate.
fn clock_period(period_ns: u64, hertz: u64) -> u64 {
    let period = 1_000_000_000u64.checked_div(hertz).unwrap_or(period_ns);
    period.max(SHORTEST)
}

/// Type, `config` and period of an event.
fn event_attr(target: &AttachTarget) -> Option<Attr> {
    let ((kind, config, usual), period) = match target {
        AttachTarget::Software { event, period } => {
            let (config, usual) = software_event(event)?;
            ((EventType::SOFTWARE, config, usual), *period)
        }
        AttachTarget::Profile { period_ns, hertz } => {
            ((EventType::SOFTWARE, sw::CPU_CLOCK, SHORTEST), clock_period(*period_ns, *hertz))
        }
        AttachTarget::Hardware { event, period } => (hardware_event(event)?, *period),
        _ => ((EventType::TRACEPOINT, 0, 1), 1),
    };
    let sample_period = if period == 0 { usual } else { period };
    Some(Attr { kind, config, sample_period, ..Attr::default() })
}

/// Reason why the kernel runs no programs for this process, if so: the common needs of all programs
/// are tried.
pub fn bpf_refusal() -> Option<BpfError> {
    const EPERM: i32 = 1;
    const EACCES: i32 = 13;
    const EINVAL: i32 = 22;
    const ENOSYS: i32 = 38;
    const EOPNOTSUPP: i32 = 95;
    let ring = MapSpec {
        inner: None,
        name: "ring",
        map_type: BpfMapType::RingBuffer as u32,
        key_size: 0,
        value_size: 0,
        max_entries: 1 << 16,
        flags: 0,
        values: 1,
    };
    let instruction = |code| BpfInstruction { code, ..BpfInstruction::default() };
    let instructions: Vec<u8> =
        [instruction(0xb7), instruction(0x95)].into_iter().flat_map(|i| i.to_bytes()).collect();
    let nothing = ProgramSpec {
        name: "nothing",
        program_type: BpfProgramType::Tracepoint as u32,
        attach_type: 0,
        attach_btf_id: 0,
        attach_btf: None,
        instructions: &instructions,
        btf: None,
        functions: &[],
        lines: &[],
        wants_log: false,
        kernel_version: 0,
    };
    let refusal = match BpfMap::create(&ring) {
        Err(refusal) => refusal,
        Ok(_) => BpfProgram::load(&nothing).err()?,
    };
    let error = refusal.error.raw_os_error()?;
    [EPERM, EACCES, EINVAL, ENOSYS, EOPNOTSUPP].contains(&error).then_some(refusal)
}

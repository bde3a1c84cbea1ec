//! From the tree to instructions: types are found while instructions are emitted, again and
//! again until those of maps and variables no longer change; the last pass counts.

mod access;
mod aggregates;
mod builder;
mod calls;
mod debug_print;
mod expressions;
pub(crate) mod finish;
mod folding;
mod kernel_only;
mod maps;
mod memory;
mod names;
mod output;
mod packets;
mod points;
mod records;
mod statements;
mod strings;
mod types;
mod user_variables;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::ast::{Expression, MacroParameter, ProbeTree, ProgramTree};
use crate::code::{
    AddressBase, CodeFunction, CodeLabel, CompareOperation, EncodedProgram, Instruction, Operand,
    Register, encode_program,
};
use crate::facts::{CompileOptions, TypeFacts};
use crate::lexer::error_at;
use crate::object::{
    AttachPoint, AttachTarget, BpfProgramType, ErrorKind, ErrorSite, ProgramOption,
    ProgramPosition, RingAction, SourceMessage,
};
pub(crate) use builder::helper;
use builder::{MAX_SCRATCH, MemoryPlace};
pub(crate) use folding::fold_constant;
use records::TypeTable;
use types::Type;

/// The most passes until types are settled.
const MAX_PASSES: u32 = 12;
/// The most programs, if the program does not say otherwise.
const MAX_PROBES: usize = 1024;
/// Words of the main function's frame that callbacks find: the context, the scratch area, and
/// whether the probe is to end.
pub(crate) const CONTEXT_AT: i32 = -8;
pub(crate) const SCRATCH_AT: i32 = -16;
pub(crate) const LEFT_AT: i32 = -24;
/// Value there if that was a test, and it failed.
const LEFT_FAILED: i32 = 2;
/// Scratch entries of a program that may run on a CPU while it is interrupted there.
const NESTED_SLOTS: i32 = 4;

pub(crate) type Lowered<T> = Result<T, SourceMessage>;

/// A value of an expression.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) ty: Type,
    pub(crate) home: ValueHome,
}

/// Location of a value.
#[derive(Clone, Debug)]
pub(crate) enum ValueHome {
    None,
    Constant(i64),
    Register(Register),
    Memory(MemoryPlace),
    Literal(String),
    /// Not read yet: address of kernel or user memory, and bytes from there.
    Remote(Register, u32, types::AddressSpace),
}

/// A map of the program.
#[derive(Clone, Debug)]
pub(crate) struct UserMap {
    pub(crate) name: String,
    /// `None` until its first use.
    pub(crate) has_key: Option<bool>,
    pub(crate) key: Type,
    pub(crate) value: Type,
    pub(crate) declared: Option<(String, u64)>,
    /// Its first use.
    pub(crate) used: Option<ProgramPosition>,
    /// Whether it is printed and emptied at one moment: it is reached through a holder then.
    pub(crate) is_taken: bool,
}

/// Maps of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceMap {
    Scratch,
    Ring,
    Errors,
    Zeros,
    Stacks(u32),
    PacketRings,
    /// Map that holds a map of the program, by number.
    Holder(u32),
    /// Flag of `exit()`.
    Exit,
}

#[derive(Clone, Debug)]
pub(crate) enum MapSlot {
    User(Box<UserMap>),
    Service(ServiceMap),
}

/// Facts about a variable from earlier passes.
#[derive(Clone, Debug, PartialEq)]
struct VariableFacts {
    ty: Type,
    /// Used in a callback too: lives in the main function's frame.
    captured: bool,
    function: usize,
}

#[derive(Clone, Copy, Debug)]
enum VariableHome {
    Register(Register),
    /// Memory of the main function: offset in its frame or in the scratch area.
    Frame(i32),
    Scratch(i32),
}

/// Facts about a program from earlier passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ProgramNotes {
    scratch: bool,
    callbacks: bool,
    typed_arguments: bool,
}

/// Labels of a loop.
#[derive(Clone, Copy, Debug)]
struct LoopLabels {
    next: CodeLabel,
    end: CodeLabel,
}

/// Bindings of a macro's parameters.
#[derive(Clone, Debug)]
struct MacroScope {
    /// Prefix of its variables.
    prefix: String,
    bindings: HashMap<String, MacroBinding>,
}

#[derive(Clone, Debug)]
enum MacroBinding {
    /// Resolved name.
    Variable(String),
    Map(String),
    /// Expression and the scope it is meant in.
    Expression(Expression, usize),
}

/// A program while it is emitted.
#[derive(Default)]
pub(crate) struct ProgramState {
    pub(crate) functions: Vec<CodeFunction>,
    pub(crate) frame_used: Vec<u32>,
    pub(crate) scratch_base: Vec<Register>,
    pub(crate) scratch_used: u32,
    pub(crate) scratch_most: u32,
    pub(crate) current: usize,
    pub(crate) labels: CodeLabel,
    context: Vec<Register>,
    /// Register of each function that holds the main function's frame.
    main_frame: Vec<Option<Register>>,
    key: (usize, usize),
    end: CodeLabel,
    loops: Vec<LoopLabels>,
    /// Whether the callback that is being emitted may end the probe.
    leaves: bool,
    homes: HashMap<String, VariableHome>,
    /// Whether what was asked depends on the attach point.
    specific: bool,
    uses_context: bool,
    /// Address that `uaddr()` took the probe to have, and where.
    probed: Option<(u64, ProgramPosition)>,
    /// Address that the probe moves to for the variables that are read.
    moved: Option<u64>,
    /// Error about the first feature that only the kernel has, in a program for user space.
    refusal: Option<SourceMessage>,
    /// Position of a read of `arg0` and its like, which are valid at a function's entry alone.
    entry_argument: Option<ProgramPosition>,
    needs_raw: Option<bool>,
    /// Whether the verifier has to know the types of what arguments point to.
    typed_arguments: bool,
}

/// A program that was lowered.
struct LoweredProgram {
    points: Vec<AttachPoint>,
    program_type: BpfProgramType,
    encoded: EncodedProgram,
    /// See [`crate::CompiledProbe::condition`].
    condition: Option<String>,
    position: ProgramPosition,
    nested: bool,
}

/// The compiler.
pub(crate) struct Lowering<'c> {
    tree: &'c ProgramTree,
    options: &'c CompileOptions,
    facts: &'c dyn TypeFacts,
    types: TypeTable<'c>,
    maps: Vec<MapSlot>,
    map_index: HashMap<String, u32>,
    variables: HashMap<(usize, usize, String), VariableFacts>,
    /// Variables that are of a whole probe, though a block assigns them first.
    wide_names: HashSet<(usize, usize, String)>,
    scope_warnings: Vec<SourceMessage>,
    /// Whether stacks are stored with their lengths.
    stack_lengths: bool,
    /// Types that several branches of an expression agree on.
    joined: HashMap<(usize, usize, usize, ProgramPosition), Type>,
    notes: HashMap<(usize, usize), ProgramNotes>,
    changed: bool,
    last_pass: bool,
    passes: u32,
    zero_bytes: u32,
    scratch_bytes: u32,
    slots: i32,
    actions: Vec<RingAction>,
    error_sites: Vec<ErrorSite>,
    probe_names: Vec<String>,
    program_options: Vec<ProgramOption>,
    missing_probes: Vec<String>,
    warnings: Vec<SourceMessage>,
    unsafe_call: Option<(String, ProgramPosition)>,
    /// Whether a probe calls `exit()`, after which no event counts.
    exits: bool,
    config: HashMap<String, String>,
    position: ProgramPosition,
    scopes: Vec<MacroScope>,
    scope: usize,
    scope_count: usize,
    depth: u32,
    program: ProgramState,
    point: AttachPoint,
    /// Whether the next text that is read needs no zeros after its NUL, and what was read so.
    text_unpadded: bool,
    text_read: Option<output::TextRead>,
    /// Whether what `print()` shows of a map is emptied behind it.
    print_takes: bool,
    /// Functions that callbacks being emitted return to.
    callers: Vec<usize>,
    text: &'c str,
}

/// Attach points of each probe, wildcards expanded.
type ExpandedProbes = Vec<Vec<AttachPoint>>;

impl<'c> Lowering<'c> {
    pub(crate) fn new(
        text: &'c str,
        tree: &'c ProgramTree,
        options: &'c CompileOptions,
        facts: &'c dyn TypeFacts,
    ) -> Lowered<Lowering<'c>> {
        let start = ProgramPosition { line: 1, column: 1 };
        let types = TypeTable::new(tree, facts).map_err(|what| error_at(start, what))?;
        let mut config = HashMap::new();
        for (key, value, position) in &tree.config {
            if !finish::is_setting(key) {
                return Err(error_at(*position, finish::unknown_setting(key)));
            }
            if let Some(what) = finish::setting_problem(key, value) {
                return Err(error_at(*position, what));
            }
            config.insert(key.clone(), value.clone());
        }
        let problem = options.config.iter().find_map(|(k, v)| finish::setting_problem(k, v));
        if let Some(what) = problem {
            return Err(error_at(start, what));
        }
        config.extend(options.config.iter().cloned());
        let mut lowering = Lowering {
            tree,
            options,
            facts,
            types,
            maps: Vec::new(),
            map_index: HashMap::new(),
            variables: HashMap::new(),
            wide_names: HashSet::new(),
            scope_warnings: Vec::new(),
            stack_lengths: false,
            joined: HashMap::new(),
            notes: HashMap::new(),
            changed: false,
            last_pass: false,
            passes: 0,
            zero_bytes: 0,
            scratch_bytes: 0,
            slots: 0,
            actions: Vec::new(),
            error_sites: Vec::new(),
            probe_names: Vec::new(),
            program_options: Vec::new(),
            missing_probes: Vec::new(),
            warnings: Vec::new(),
            unsafe_call: None,
            exits: false,
            config,
            position: start,
            scopes: Vec::new(),
            scope: 0,
            scope_count: 0,
            depth: 0,
            program: ProgramState::default(),
            point: AttachPoint { name: String::new(), target: AttachTarget::Begin },
            text_unpadded: false,
            text_read: None,
            print_takes: false,
            callers: Vec::new(),
            text,
        };
        for declared in &tree.map_declarations {
            let at = lowering.map_number(&declared.name);
            if let MapSlot::User(map) = &mut lowering.maps[at as usize] {
                const KINDS: [&str; 5] =
                    ["hash", "lruhash", "percpuhash", "percpulruhash", "percpuarray"];
                if !KINDS.contains(&declared.kind.as_str()) {
                    let what = format!(
                        "no such map type {:?}; types are {}",
                        declared.kind,
                        KINDS.join(", ")
                    );
                    return Err(error_at(declared.position, what));
                }
                if declared.entries == 0 || declared.entries > 1 << 26 {
                    return Err(error_at(
                        declared.position,
                        "number of map entries must be 1 to \
                                                            67108864",
                    ));
                }
                map.declared = Some((declared.kind.clone(), declared.entries));
            }
        }
        Ok(lowering)
    }

    /// A number of the `config` block.
    fn setting(&self, key: &str, default: u64) -> u64 {
        self.config.get(key).and_then(|v| v.parse().ok()).unwrap_or(default)
    }

    fn error<T>(&self, text: impl Into<String>) -> Lowered<T> {
        Err(error_at(self.position, text))
    }

    /// Lowers everything.
    pub(crate) fn run(mut self) -> Lowered<crate::object::CompiledProgram> {
        match self.programs() {
            Ok(programs) => self.finish(programs),
            Err(mut message) => {
                message.warnings = self.warnings;
                Err(message)
            }
        }
    }

    fn programs(&mut self) -> Lowered<Vec<LoweredProgram>> {
        if self.tree.probes.is_empty() {
            return self.error("program has no probe");
        }
        self.warnings.extend(self.tree.warnings.iter().cloned());
        let expanded = self.expand()?;
        let warned = self.warnings.len();
        for pass in 0.. {
            self.changed = false;
            self.last_pass = pass > 0;
            self.passes = pass;
            self.actions.clear();
            self.error_sites.clear();
            self.probe_names.clear();
            self.program_options.clear();
            self.warnings.truncate(warned);
            self.slots = 0;
            let programs = self.pass(&expanded)?;
            if !self.changed && self.last_pass {
                let undefined = self.maps.iter().find_map(|slot| match slot {
                    MapSlot::User(map) if map.value == Type::Unknown => {
                        map.used.map(|used| (&map.name, used))
                    }
                    _ => None,
                });
                return match undefined {
                    Some((name, used)) => Err(error_at(used, format!("Undefined map: {name}"))),
                    None => Ok(programs),
                };
            }
            if pass >= MAX_PASSES {
                return self.error("cannot infer the types of maps");
            }
        }
        self.error("cannot infer the types of maps")
    }

    fn pass(&mut self, expanded: &ExpandedProbes) -> Lowered<Vec<LoweredProgram>> {
        let mut programs: Vec<LoweredProgram> = Vec::new();
        for (n, (probe, points)) in self.tree.probes.iter().zip(expanded).enumerate() {
            let first = programs.len();
            // Class of a point: all of one class may share instructions.
            let mut shared: Vec<(PointClass, usize)> = Vec::new();
            for (p, point) in points.iter().enumerate() {
                let class = class_of(point);
                let same = shared.iter().find(|(c, _)| *c == class);
                if let Some((_, at)) = same {
                    programs[*at].points.push(point.clone());
                    continue;
                }
                let (lowered, specific) = self.lower_probe(probe, point, (n, p))?;
                let equal = programs[first..].iter_mut().find(|other| {
                    other.program_type == lowered.program_type
                        && other.encoded.instructions == lowered.encoded.instructions
                        && other.encoded.relocations == lowered.encoded.relocations
                        && other.encoded.slot_stores == lowered.encoded.slot_stores
                        && class_of(&other.points[0]) == class
                });
                if let Some(other) = equal {
                    other.points.extend(lowered.points);
                    continue;
                }
                if !specific {
                    shared.push((class, programs.len()));
                }
                programs.push(lowered);
            }
        }
        for program in &mut programs {
            let first = self.slots;
            let encoded = &mut program.encoded;
            for at in &encoded.slot_stores {
                encoded.instructions[*at].imm += first;
            }
            if !encoded.slot_stores.is_empty() {
                self.slots += if program.nested { NESTED_SLOTS } else { 1 };
            }
        }
        Ok(programs)
    }

    fn lower_probe(
        &mut self,
        probe: &ProbeTree,
        point: &AttachPoint,
        key: (usize, usize),
    ) -> Lowered<(LoweredProgram, bool)> {
        let raw_wanted = self.options.raw_tracepoints;
        // First as a raw tracepoint, where that is possible; its features decide.
        let mut raw = raw_wanted;
        loop {
            self.point = point.clone();
            self.program = ProgramState { key, needs_raw: Some(raw), ..ProgramState::default() };
            self.lower_body(probe)?;
            if let Some(refusal) = self.program.refusal.take() {
                return Err(refusal);
            }
            let uses_context = self.program.uses_context;
            if raw && uses_context && matches!(point.target, AttachTarget::Tracepoint { .. }) {
                raw = false;
                continue;
            }
            break;
        }
        let mut point = point.clone();
        self.move_point(&mut point)?;
        let note = self.notes.entry(key).or_default();
        let needs_scratch = self.program.scratch_most > 8;
        let callbacks = self.program.functions.len() > 1;
        let seen = ProgramNotes {
            scratch: note.scratch || needs_scratch,
            callbacks: note.callbacks || callbacks,
            typed_arguments: note.typed_arguments || self.program.typed_arguments,
        };
        if *note != seen {
            *note = seen;
            self.changed = true;
        }
        if self.program.scratch_most > MAX_SCRATCH {
            self.position = probe.position;
            return self.error(format!("needs more than {MAX_SCRATCH} bytes of working memory"));
        }
        self.scratch_bytes = self.scratch_bytes.max(self.program.scratch_most);
        let encoded = if self.last_pass {
            let mut functions = std::mem::take(&mut self.program.functions);
            encode_program(&mut functions).map_err(|what| {
                error_at(probe.position, format!("program of {}: {what}", point.name))
            })?
        } else {
            EncodedProgram::default()
        };
        let program = LoweredProgram {
            points: vec![point],
            program_type: self.program_type(raw),
            encoded,
            condition: self.kernel_condition(probe),
            position: probe.position,
            nested: self.may_nest(),
        };
        Ok((program, self.program.specific))
    }

    fn program_type(&self, raw: bool) -> BpfProgramType {
        use AttachTarget as T;
        match &self.point.target {
            T::Tracepoint { category, .. } if raw && category != "syscalls" => {
                BpfProgramType::RawTracepoint
            }
            T::Tracepoint { .. } => BpfProgramType::Tracepoint,
            T::Begin | T::End | T::SelfSignal(_) | T::Test(_) => BpfProgramType::RawTracepoint,
            T::RawTracepoint { .. } if self.has_typed_arguments() => BpfProgramType::Tracing,
            T::RawTracepoint { .. } => BpfProgramType::RawTracepoint,
            T::Kprobe { .. } | T::Uprobe { .. } | T::Usdt { .. } => BpfProgramType::Kprobe,
            T::Fentry { .. } | T::Iter { .. } => BpfProgramType::Tracing,
            _ => BpfProgramType::PerfEvent,
        }
    }

    /// Whether the program may be interrupted by itself on one CPU. The kernel keeps a program of
    /// its own events from that (`prog->active`, `bpf_prog_active`), but those of user-space probes
    /// run preemptible and without that guard, and those at the start and end of functions are
    /// loaded once for each function: an interrupt may hit one of the others.
    fn may_nest(&self) -> bool {
        use AttachTarget::{Fentry, RawTracepoint, Uprobe, Usdt};
        match self.point.target {
            Uprobe { .. } | Usdt { .. } | Fentry { .. } => true,
            // Loaded for each tracepoint, too.
            RawTracepoint { .. } => self.has_typed_arguments(),
            _ => false,
        }
    }

    /// Whether the point fires in any process, also where one was named.
    fn is_of_all_processes(&self) -> bool {
        use AttachTarget as T;
        match self.point.target {
            T::Tracepoint { .. }
            | T::RawTracepoint { .. }
            | T::Kprobe { .. }
            | T::Fentry { .. } => true,
            // Out of rings come those of its children and of later ones, too.
            T::Profile { .. } | T::Software { .. } | T::Hardware { .. } => {
                self.options.in_user_space
            }
            _ => false,
        }
    }

    /// Whether a raw tracepoint's program is loaded with the types of the arguments.
    fn has_typed_arguments(&self) -> bool {
        self.notes.get(&self.program.key).is_some_and(|notes| notes.typed_arguments)
    }

    fn lower_body(&mut self, probe: &ProbeTree) -> Lowered<()> {
        let key = self.program.key;
        let notes = self.notes.get(&key).copied().unwrap_or_default();
        self.scopes = vec![MacroScope { prefix: String::new(), bindings: HashMap::new() }];
        (self.scope, self.scope_count, self.depth) = (0, 0, 0);
        self.position = probe.position;
        self.begin_function();
        let context = self.register();
        self.emit(Instruction::Parameter(context, 0));
        self.program.context.push(context);
        self.program.main_frame.push(None);
        self.emit(Instruction::Position(probe.position));
        self.program.end = self.label();
        let exit = self.label();
        // The first words of the scratch area: its owner's flag.
        self.program.scratch_used = 8;
        let base = self.register();
        self.program.scratch_base.push(base);
        if notes.callbacks {
            // Found by callbacks at fixed places of the frame.
            let room = self.room(24);
            let context = Operand::Register(context);
            self.store(room.at(16), 8, context);
            self.store(room, 8, Operand::Immediate(0));
            debug_assert_eq!(room.offset, LEFT_AT);
        }
        self.skip_after_exit(exit);
        if notes.scratch {
            self.claim_scratch(base, exit);
            if notes.callbacks {
                let saved = MemoryPlace { base: AddressBase::Frame, offset: SCRATCH_AT };
                self.store(saved, 8, Operand::Register(base));
            }
        } else if notes.callbacks {
            let saved = MemoryPlace { base: AddressBase::Frame, offset: SCRATCH_AT };
            self.store(saved, 8, Operand::Immediate(0));
        }
        self.place_variables();
        let end = self.program.end;
        if let Some(pid) = self.options.filter_pid.filter(|_| self.is_of_all_processes()) {
            let mark = self.mark();
            if let Some(own) = self.builtin("pid")? {
                let own = self.operand(&own)?;
                let own = self.copy_of(own);
                let wanted = Operand::Immediate(pid.cast_signed());
                self.branch(CompareOperation::NotEqual, own, wanted, end);
            }
            self.release(mark);
        }
        if let Some(filter) = &probe.filter {
            self.position = filter.position;
            let mark = self.mark();
            self.jump_if(filter, false, end)?;
            self.release(mark);
        }
        self.block(&probe.body)?;
        self.place_label(end);
        if notes.scratch && self.may_nest() {
            let flag = MemoryPlace { base: AddressBase::Register(base), offset: 0 };
            self.store(flag, 8, Operand::Immediate(0));
        }
        self.place_label(exit);
        // Of a tracepoint's program, 0 would keep the event from all perf events.
        let keeps = matches!(self.point.target, AttachTarget::Tracepoint { .. });
        self.emit(Instruction::Exit(Operand::Immediate(keeps.into())));
        Ok(())
    }

    /// Ends a probe of an event if the program has called `exit()`. END and the probes that this
    /// process runs (BEGIN, iterators, tests) run after it, too, as in bpftrace.
    fn skip_after_exit(&mut self, exit: CodeLabel) {
        if !self.exits || !self.is_of_event() {
            return;
        }
        let flag = self.service_map(ServiceMap::Exit);
        let flag = self.lookup_index(flag, Operand::Immediate(0));
        self.branch(CompareOperation::Equal, flag, Operand::Immediate(0), exit);
        let place = MemoryPlace { base: AddressBase::Register(flag), offset: 0 };
        let called = self.load(place, 4);
        self.branch(CompareOperation::NotEqual, called, Operand::Immediate(0), exit);
    }

    /// Ends the run for all probes of events: sets the flag that [`Self::skip_after_exit`] checks.
    /// User space reads it, too, in case the record of `exit()` does not fit the ring.
    pub(crate) fn set_exit_flag(&mut self, status: Operand) {
        use AttachTarget::{End, Test};
        if self.options.in_user_space || matches!(self.point.target, End | Test(_)) {
            return;
        }
        self.changed |= !std::mem::replace(&mut self.exits, true);
        let done = self.label();
        let flag = self.service_map(ServiceMap::Exit);
        let flag = self.lookup_index(flag, Operand::Immediate(0));
        self.branch(CompareOperation::Equal, flag, Operand::Immediate(0), done);
        let place = MemoryPlace { base: AddressBase::Register(flag), offset: 0 };
        self.store(place.at(4), 4, status);
        self.store(place, 4, Operand::Immediate(1));
        self.place_label(done);
    }

    /// Whether the kernel runs the program at events.
    fn is_of_event(&self) -> bool {
        use AttachTarget::{Iter, Test};
        !is_special(&self.point) && !matches!(self.point.target, Iter { .. } | Test(_))
    }

    /// Takes the scratch area, one entry per CPU. It is this run's alone: a program that the
    /// kernel guards against itself has an entry of its own; one that may be interrupted by
    /// itself takes the first of its entries whose flag it can set (an atomic exchange, so
    /// any order of preemption and interrupts is fine) and clears the flag at its end.
    fn claim_scratch(&mut self, base: Register, exit: CodeLabel) {
        let map = self.service_map(ServiceMap::Scratch);
        if !self.may_nest() {
            let found = self.lookup_slot(map, 0);
            self.emit(Instruction::Move(base, Operand::Register(found)));
            self.branch(CompareOperation::Equal, base, Operand::Immediate(0), exit);
            return;
        }
        let claimed = self.label();
        for n in 0..NESTED_SLOTS {
            let found = self.lookup_slot(map, n);
            self.emit(Instruction::Move(base, Operand::Register(found)));
            self.branch(CompareOperation::Equal, base, Operand::Immediate(0), exit);
            let flag = self.copy_of(Operand::Immediate(1));
            self.emit(Instruction::Exchange(AddressBase::Register(base), 0, flag));
            self.branch(CompareOperation::Equal, flag, Operand::Immediate(0), claimed);
        }
        self.count_error(ErrorKind::ScratchBusy);
        self.jump(exit);
        self.place_label(claimed);
    }

    fn begin_function(&mut self) {
        self.program.current = self.program.functions.len();
        self.program.functions.push(CodeFunction::default());
        self.program.frame_used.push(0);
    }

    /// Gives variables that live in memory their places, for the whole program.
    fn place_variables(&mut self) {
        let key = self.program.key;
        let mut names: Vec<(String, VariableFacts)> = self
            .variables
            .iter()
            .filter(|((probe, point, _), _)| (*probe, *point) == key)
            .map(|((.., name), facts)| (name.clone(), facts.clone()))
            .collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, facts) in names {
            // Registers are those of the main function.
            let home = if facts.ty.is_scalar() && !facts.captured && facts.function == 0 {
                VariableHome::Register(self.register())
            } else {
                let size = self.types.storage(&facts.ty).max(8);
                let place = self.room(size);
                self.zero_memory(place, size);
                match place.base {
                    AddressBase::Frame => VariableHome::Frame(place.offset),
                    AddressBase::Register(_) => VariableHome::Scratch(place.offset),
                }
            };
            self.program.homes.insert(name, home);
        }
    }

    fn context(&self) -> Register {
        self.program.context[self.program.current]
    }

    /// Number of a map of our own.
    fn service_map(&mut self, wanted: ServiceMap) -> u32 {
        let known = self.maps.iter().position(|m| matches!(m, MapSlot::Service(s) if *s == wanted));
        match known {
            Some(at) => at as u32,
            None => {
                self.maps.push(MapSlot::Service(wanted));
                self.maps.len() as u32 - 1
            }
        }
    }

    /// Number of a map of the program.
    fn map_number(&mut self, name: &str) -> u32 {
        if let Some(at) = self.map_index.get(name) {
            return *at;
        }
        let at = self.maps.len() as u32;
        self.maps.push(MapSlot::User(Box::new(UserMap {
            name: name.to_owned(),
            has_key: None,
            key: Type::Unknown,
            value: Type::Unknown,
            declared: None,
            used: None,
            is_taken: false,
        })));
        self.map_index.insert(name.to_owned(), at);
        at
    }

    fn user_map(&mut self, number: u32) -> &mut UserMap {
        match &mut self.maps[number as usize] {
            MapSlot::User(map) => map,
            MapSlot::Service(_) => unreachable!("numbers of user maps come from map_number"),
        }
    }

    /// Type that the branches of an expression at a place agree on.
    fn join(&mut self, place: ProgramPosition, ty: &Type) -> Lowered<Type> {
        let key = (self.program.key.0, self.program.key.1, self.scope, place);
        let old = self.joined.get(&key).cloned().unwrap_or(Type::Unknown);
        let Some(both) = types::unify(&old, ty) else {
            return self.error(format!("incompatible types {} and {}", old.name(), ty.name()));
        };
        if both != old {
            self.changed = true;
            self.joined.insert(key, both.clone());
        }
        Ok(both)
    }

    /// Expands a macro: runs `lower` in its scope.
    fn in_macro<T>(
        &mut self,
        name: &str,
        arguments: &[Expression],
        lower: impl FnOnce(&mut Self, &Rc<crate::ast::MacroTree>) -> Lowered<T>,
    ) -> Lowered<T> {
        let Some(tree) = self.tree.macros.get(name).cloned() else {
            return self.error(format!("no such macro: {name}"));
        };
        if arguments.len() != tree.parameters.len() {
            let (wants, has) = (tree.parameters.len(), arguments.len());
            return self.error(format!("macro {name} takes {wants} arguments, got {has}"));
        }
        if self.depth >= 40 {
            return self.error("macro calls are nested too deeply");
        }
        let mut bindings = HashMap::new();
        for (parameter, argument) in tree.parameters.iter().zip(arguments) {
            use crate::ast::ExpressionKind as Kind;
            let (name, binding) = match (parameter, &*argument.kind) {
                (MacroParameter::Variable(p), Kind::Variable(v)) => {
                    (&format!("${p}"), MacroBinding::Variable(self.assigned_name(v)))
                }
                (MacroParameter::Variable(p), _) => {
                    return self.error(format!("macro {name} takes a variable for ${p}"));
                }
                (MacroParameter::Map(p), Kind::Map(m, key)) if key.is_empty() => {
                    (p, MacroBinding::Map(self.map_name(m)))
                }
                (MacroParameter::Map(p), _) => {
                    return self.error(format!("macro {name} takes a map for {p}"));
                }
                (MacroParameter::Expression(p), _) => {
                    (p, MacroBinding::Expression(argument.clone(), self.scope))
                }
            };
            bindings.insert(name.clone(), binding);
        }
        let outer = self.scope;
        self.scope_count += 1;
        let prefix = format!("{name}#{}:", self.scope_count);
        self.scopes.push(MacroScope { prefix, bindings });
        self.scope = self.scopes.len() - 1;
        self.depth += 1;
        let lowered = lower(self, &tree);
        self.depth -= 1;
        self.scope = outer;
        lowered
    }

    /// Name of the variable that is meant here, if one is declared: macros and blocks resolved.
    /// Releases before blocks had scopes have one variable of a name in a probe.
    fn variable_name(&self, name: &str) -> Option<String> {
        let scope = &self.scopes[self.scope];
        match scope.bindings.get(&format!("${name}")) {
            Some(MacroBinding::Variable(inner)) => Some(inner.clone()),
            _ => {
                let own = format!("{}{name}", scope.prefix);
                let is_wide = self.is_old() || self.wide_names.contains(&self.wide_name(&own));
                is_wide.then_some(own)
            }
        }
    }

    fn wide_name(&self, own: &str) -> (usize, usize, String) {
        (self.program.key.0, self.program.key.1, own.to_owned())
    }

    /// Makes a variable that is used behind the block that assigned it one of the whole probe, as
    /// all were before bpftrace 0.22; `false` if no block assigned it.
    fn widen_variable(&mut self, name: &str) -> bool {
        let own = format!("{}{name}", self.scopes[self.scope].prefix);
        let of_block = format!("{own}@");
        let (probe, point) = self.program.key;
        let is_assigned = |(key, _): (&(usize, usize, String), &VariableFacts)| {
            (key.0, key.1) == (probe, point) && key.2.starts_with(&of_block)
        };
        if !self.variables.iter().any(is_assigned) {
            return false;
        }
        let wide = self.wide_name(&own);
        self.wide_names.insert(wide);
        self.changed = true;
        let what = format!("${name} is used outside the block that assigns it");
        let mut message = error_at(self.position, what);
        message.hint = Some(format!("declare it before that block: `let ${name};`"));
        self.scope_warnings.push(message);
        true
    }

    /// Declares a variable in the innermost block.
    fn bind_variable(&mut self, name: &str) -> String {
        let scope = &mut self.scopes[self.scope];
        let ProgramPosition { line, column } = self.position;
        let own = format!("{}{name}@{line}:{column}", scope.prefix);
        scope.bindings.insert(format!("${name}"), MacroBinding::Variable(own.clone()));
        own
    }

    /// Name of the variable that is assigned to; its first assignment declares it.
    fn assigned_name(&mut self, name: &str) -> String {
        match self.variable_name(name) {
            Some(own) => own,
            None => self.bind_variable(name),
        }
    }

    /// Begins a block, at whose end the names declared in it end; returns the outer scope.
    fn enter_block(&mut self) -> usize {
        let scope = self.scopes[self.scope].clone();
        self.scopes.push(scope);
        std::mem::replace(&mut self.scope, self.scopes.len() - 1)
    }

    /// Gives a loop's variable a name of its own within the loop; returns the outer scope.
    fn enter_loop(&mut self, name: &str) -> Lowered<usize> {
        if !self.is_old() && self.variable_name(name).is_some() {
            return self.error(format!("Loop declaration shadows existing variable: ${name}"));
        }
        let outer = self.enter_block();
        self.bind_variable(name);
        Ok(outer)
    }

    /// Ends the probe, from within callbacks too.
    fn leave(&mut self) {
        match self.program.main_frame[self.program.current] {
            None => {
                let end = self.program.end;
                self.jump(end);
            }
            Some(frame) => {
                self.program.leaves = true;
                let base = AddressBase::Register(frame);
                let left = MemoryPlace { base, offset: LEFT_AT };
                self.store(left, 8, Operand::Immediate(1));
                self.emit(Instruction::Exit(Operand::Immediate(1)));
            }
        }
    }

    /// Ends a test with a value, from within callbacks too: it fails unless that is 0.
    fn leave_test(&mut self, value: &Expression) -> Lowered<()> {
        let value = self.number(value)?;
        match self.program.main_frame[self.program.current] {
            None => self.emit(Instruction::Exit(value)),
            Some(frame) => {
                self.program.leaves = true;
                let left = MemoryPlace { base: AddressBase::Register(frame), offset: LEFT_AT };
                let (value, passed) = (self.copy_of(value), self.label());
                self.store(left, 8, Operand::Immediate(1));
                self.branch(CompareOperation::Equal, value, Operand::Immediate(0), passed);
                self.store(left, 8, Operand::Immediate(LEFT_FAILED));
                self.place_label(passed);
                self.emit(Instruction::Exit(Operand::Immediate(1)));
            }
        }
        Ok(())
    }

    /// After the call of a callback that may end the probe.
    fn leave_if_left(&mut self) {
        let base = match self.program.main_frame[self.program.current] {
            Some(frame) => AddressBase::Register(frame),
            None => AddressBase::Frame,
        };
        let (left, on) = (self.load(MemoryPlace { base, offset: LEFT_AT }, 8), self.label());
        self.branch(CompareOperation::Equal, left, Operand::Immediate(0), on);
        match self.program.main_frame[self.program.current] {
            Some(_) => self.emit(Instruction::Exit(Operand::Immediate(1))),
            None => {
                let (end, failed) = (self.program.end, Operand::Immediate(LEFT_FAILED));
                self.branch(CompareOperation::NotEqual, left, failed, end);
                self.emit(Instruction::Exit(Operand::Immediate(1)));
            }
        }
        self.place_label(on);
    }

    /// A map's name, macros resolved.
    fn map_name(&self, name: &str) -> String {
        match self.scopes[self.scope].bindings.get(name) {
            Some(MacroBinding::Map(outer)) => outer.clone(),
            _ => name.to_owned(),
        }
    }
}

/// Whether a point is not of an event: it runs at the start, the end, or by a signal.
fn is_special(point: &AttachPoint) -> bool {
    use AttachTarget::{Begin, End, SelfSignal};
    matches!(point.target, Begin | End | SelfSignal(_))
}

#[derive(PartialEq)]
struct PointClass {
    discriminant: std::mem::Discriminant<AttachTarget>,
    at_return: bool,
}

fn class_of(point: &AttachPoint) -> PointClass {
    use AttachTarget as T;
    let at_return = match &point.target {
        T::Kprobe { at_return, .. } | T::Uprobe { at_return, .. } => *at_return,
        T::Fentry { at_exit, .. } => *at_exit,
        T::Tracepoint { category, .. } => category == "syscalls",
        _ => false,
    };
    PointClass { discriminant: std::mem::discriminant(&point.target), at_return }
}

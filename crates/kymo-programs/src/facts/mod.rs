//! Answers about this machine for the compiler: formats of tracepoints, types of the kernel,
//! functions and USDT probes of binaries. Each is read when it is asked for: a program of
//! tracepoints alone touches neither BTF nor symbols.

mod binaries;
mod choices;
mod expand;
mod headers;
mod kernel_types;
mod user_types;
mod user_variables;

pub(crate) use binaries::{BinaryPlace, place_of};
pub use choices::{FunctionList, ProbeFilter};
pub(crate) use expand::PointCatalog;
pub(crate) use kernel_types::{KernelTypes, PrototypeText, TypeSpace};

use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use kymo_bpf::{
    AttachPoint, AttachTarget, CType, EnumerationFacts, FunctionFacts, HeaderFile, NamedConstant,
    RecordLayout, TypeFacts, UserVariable,
};
use kymo_format::EventFormat;
use kymo_kernel::bpf::{BpfMap, MapSpec, ProbeEvent};
use kymo_kernel::kallsyms::per_cpu_offset;
use kymo_kernel::target;
use kymo_kernel::tracefs::{Tracefs, TracefsError};
use kymo_model::{Note, NoteKind, counted};
use kymo_probe::ProbeHazard;
use kymo_symbols::{Kallsyms, NameChoice, running_symbols};
use rustc_hash::FxHashMap;
use user_types::{USER_TYPES, UserTypes};

/// This machine, as the compiler asks about it.
#[derive(Default)]
pub struct MachineFacts {
    tracefs: OnceCell<Result<Tracefs, TracefsError>>,
    types: OnceCell<Option<KernelTypes>>,
    symbols: OnceCell<Kallsyms>,
    formats: RefCell<FxHashMap<(String, String), Rc<EventFormat>>>,
    user_types: RefCell<UserTypes>,
    /// Types of binaries by path and name; `None` of those that have none of that name.
    program_types: RefCell<FxHashMap<(String, String), Option<CType>>>,
    variables: RefCell<FxHashMap<(AttachPoint, String), Result<UserVariable, String>>>,
    /// Cautions that were given, each once.
    cautions: RefCell<Vec<Note>>,
    /// Numbers of further places of source lines, by the first point of each.
    partial_lines: RefCell<FxHashMap<AttachPoint, usize>>,
    /// Types that functions of programs return.
    returns: RefCell<FxHashMap<AttachPoint, Result<Rc<FunctionFacts>, String>>>,
    /// Process of `-p`.
    pub pid: Option<u32>,
    /// Process that sampled events, watchpoints and probes of user space are limited to, of `-p`
    /// or `-c`. Without, only the latter are, to that of `-p`.
    pub target: Option<u32>,
    /// Whether files of code that are no ELF may be probed.
    pub is_unsafe: bool,
    /// Program of the command of `-c`.
    pub command: Option<String>,
    /// Directories that headers are looked for in before those of the machine.
    pub header_directories: Vec<PathBuf>,
    /// Probes that are attached; without, all.
    pub probe_filter: Option<ProbeFilter>,
    /// Functions of the kernel that may be probed; without, those that the kernel says.
    pub traceable: Option<FunctionList>,
}

impl MachineFacts {
    /// The machine, and the process that probes without a path are of.
    pub fn new(pid: Option<u32>) -> MachineFacts {
        MachineFacts { pid, ..MachineFacts::default() }
    }

    /// Process that probes of user space are limited to.
    pub(crate) fn user_process(&self) -> Option<u32> {
        self.target.or(self.pid)
    }

    /// Features of this kernel for programs.
    pub fn features(&self) -> Vec<(&'static str, bool)> {
        let pmu = |name| ProbeEvent::of_pmu(name).is_some();
        let map = |map_type, key_size, value_size| {
            let spec = MapSpec {
                name: "probe",
                map_type,
                key_size,
                value_size,
                max_entries: 4096,
                flags: 0,
                values: 1,
                inner: None,
            };
            BpfMap::create(&spec).is_ok()
        };
        // Each function that programs may call is a name of this enumeration.
        let helpers = match self.find_type("enum bpf_func_id") {
            Some(CType::Enumeration { id, .. }) => self.enumerators(id),
            _ => None,
        };
        let has_helper = |name: &str| {
            let name = format!("BPF_FUNC_{name}");
            helpers.as_ref().is_some_and(|h| h.variants.iter().any(|(_, variant)| *variant == name))
        };
        let links = match self.find_type("enum bpf_attach_type") {
            Some(CType::Enumeration { id, .. }) => self.enumerators(id),
            _ => None,
        };
        let has_link = |name: &str| {
            let name = format!("BPF_{name}");
            links.as_ref().is_some_and(|l| l.variants.iter().any(|(_, variant)| *variant == name))
        };
        let has_iterator = |name: &str| {
            let space = self.types().and_then(|types| types.space(""));
            space.is_some_and(|space| space.function_id(&format!("bpf_iter_{name}")).is_some())
        };
        vec![
            ("tracefs", self.tracefs().is_ok()),
            ("btf", self.types().is_some()),
            ("libdw (DWARF support)", true),
            ("kprobe", self.has_kprobes()),
            ("kprobe_multi", self.has_kprobes() && has_link("TRACE_KPROBE_MULTI")),
            ("kprobe_session", self.has_kprobes() && has_link("TRACE_KPROBE_SESSION")),
            ("uprobe", pmu("uprobe")),
            ("uprobe_multi", pmu("uprobe") && has_link("TRACE_UPROBE_MULTI")),
            ("iter:task", has_iterator("task")),
            ("iter:task_file", has_iterator("task_file")),
            ("hash", map(1, 8, 8)),
            ("percpu array", map(6, 4, 8)),
            ("stack_trace", map(7, 4, 1016)),
            ("perf_event_array", map(4, 4, 4)),
            ("ringbuf", map(27, 0, 0)),
            ("probe_read_kernel", has_helper("probe_read_kernel")),
            ("send_signal", has_helper("send_signal")),
            ("dpath", has_helper("d_path")),
            ("skboutput", has_helper("skb_output")),
            ("lookup_percpu_elem", has_helper("map_lookup_percpu_elem")),
            ("jiffies64", has_helper("jiffies64")),
            ("get_func_ip", has_helper("get_func_ip")),
            ("get_tai_ns", has_helper("ktime_get_tai_ns")),
            ("Loop support", has_helper("loop") || has_helper("for_each_map_elem")),
        ]
    }

    /// Types and names of the parameters of a function of a program.
    pub(crate) fn user_parameters(&self, target: &AttachTarget) -> Vec<(String, String)> {
        let AttachTarget::Uprobe { path, function, at_return: false, .. } = target else {
            return Vec::new();
        };
        user_variables::parameters(path, function, self.pid).unwrap_or_default()
    }

    /// Reasons why probes of the compiled programs may not count what their names suggest.
    pub fn cautions(&self) -> Vec<Note> {
        self.cautions.borrow().clone()
    }

    fn find_caution(&self, points: &[AttachPoint]) -> Option<Note> {
        if let Some(ProbeHazard { what, advice }) = binaries::return_hazard(points, self.pid) {
            return Some(Note::doubt(NoteKind::Hazard, what, Some(advice)));
        }
        let unlike = self.unlike_its_name(points);
        unlike
            .map(|text| Note::doubt(NoteKind::Program, text, None))
            .or_else(|| binaries::unwinding_hazard(points, self.pid).map(ProbeHazard::into_note))
    }

    /// Reason why a probe may not count what its name suggests.
    fn unlike_its_name(&self, points: &[AttachPoint]) -> Option<String> {
        let first = points.first()?;
        match &first.target {
            AttachTarget::Uprobe { path, function, address: None, .. } if points.len() == 1 => {
                binaries::indirect_function(path, function, self.pid)
                    .or_else(|| user_variables::inlined_copies(path, function, self.pid))
            }
            AttachTarget::Uprobe { function, address: Some(_), .. } => {
                let others = *self.partial_lines.borrow().get(first)? as u64;
                let what = counted(others, "more place", "more places");
                Some(format!(
                    "{function} has code at {what}, as lines of loops have; the probe is at the \
                     first in each function and inlined copy (kymo probe -D lists them)"
                ))
            }
            _ => None,
        }
    }

    /// Whether functions of the kernel can be probed.
    pub(crate) fn has_kprobes(&self) -> bool {
        ProbeEvent::of_pmu("kprobe").is_some()
    }

    pub(crate) fn tracefs(&self) -> Result<&Tracefs, String> {
        self.tracefs.get_or_init(Tracefs::open).as_ref().map_err(ToString::to_string)
    }

    /// Types of the kernel; none if it has no BTF.
    pub(crate) fn types(&self) -> Option<&KernelTypes> {
        self.types.get_or_init(KernelTypes::running).as_ref()
    }

    /// Types with a function of the kernel, or of a module; without its name, of the one that
    /// the symbol table says.
    pub(crate) fn types_of_function(&self, module: &str, name: &str) -> Option<Rc<TypeSpace>> {
        let types = self.types()?;
        let space = types.space(module)?;
        if !module.is_empty() || space.function_id(name).is_some() {
            return Some(space);
        }
        let mut symbols = self.symbols().iter();
        let (.., module) =
            symbols.find(|(_, _, symbol, module)| *symbol == name && module.is_some())?;
        types.space(module?)
    }

    /// Address of a function of the module that a probe names; none if it names no module, or
    /// addresses are hidden.
    pub(crate) fn function_of_module(&self, module: &str, name: &str) -> Option<u64> {
        let wanted = own_module(module)?;
        let mut symbols = self.symbols().iter();
        let found = symbols.find(|(_, _, symbol, module)| *symbol == name && *module == wanted);
        found.map(|(address, ..)| address).filter(|address| *address != 0)
    }

    pub(crate) fn symbols(&self) -> &Kallsyms {
        self.symbols.get_or_init(|| running_symbols(NameChoice::First))
    }
}

/// The module that a probe names, as symbols have it (`vmlinux` is the kernel itself, which has
/// none); `None` if the probe names none.
pub(crate) fn own_module(module: &str) -> Option<Option<&str>> {
    match module {
        "" => None,
        "vmlinux" => Some(None),
        module => Some(Some(module)),
    }
}

impl TypeFacts for MachineFacts {
    fn expand(&self, point: &AttachPoint) -> Result<Vec<AttachPoint>, String> {
        let points = PointCatalog { facts: self }.expand(point)?;
        match binaries::return_hazard(&points, self.pid).filter(|_| !self.is_unsafe) {
            None => Ok(points),
            Some(ProbeHazard { what, advice }) => {
                Err(format!("{what}; {advice} (kymo run --unsafe attaches it anyway)"))
            }
        }
    }

    fn instead_of(&self, missing: &AttachPoint) -> Option<String> {
        PointCatalog { facts: self }.instead_of(missing)
    }

    fn is_loaded(&self, module: &str) -> bool {
        module == "vmlinux" || self.symbols().iter().any(|(_, _, _, of)| of == Some(module))
    }

    fn caution(&self, points: &[AttachPoint]) -> Option<String> {
        let caution = self.find_caution(points)?;
        let text = match &caution.advice {
            Some(advice) => format!("{}; {advice}", caution.fact),
            None => caution.fact.clone(),
        };
        let mut given = self.cautions.borrow_mut();
        if !given.contains(&caution) {
            given.push(caution);
        }
        Some(text)
    }

    fn is_wanted(&self, point: &AttachPoint) -> bool {
        self.probe_filter.as_ref().is_none_or(|filter| filter.is_match(&point.name))
    }

    fn tracepoint_format(&self, category: &str, event: &str) -> Result<Rc<EventFormat>, String> {
        let key = (category.to_owned(), event.to_owned());
        if let Some(known) = self.formats.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let text = self.tracefs()?.event_format(category, event).map_err(|e| e.to_string())?;
        let format = EventFormat::parse(&text).map_err(|e| e.to_string())?;
        let format = Rc::new(format.with_system(category));
        self.formats.borrow_mut().insert(key, Rc::clone(&format));
        Ok(format)
    }

    fn find_type(&self, name: &str) -> Option<CType> {
        self.types()?.find(name)
    }

    fn record_layout(&self, id: u32) -> Option<Rc<RecordLayout>> {
        match id & USER_TYPES {
            0 => self.types()?.record(id),
            _ => self.user_types.borrow().record(id),
        }
    }

    fn enumerators(&self, id: u32) -> Option<Rc<EnumerationFacts>> {
        match id & USER_TYPES {
            0 => self.types()?.enumeration(id),
            _ => self.user_types.borrow().enumeration(id),
        }
    }

    fn constant(&self, name: &str) -> Option<NamedConstant> {
        let of_program = self.user_types.borrow().constant(name);
        of_program.or_else(|| self.types()?.constant(name))
    }

    fn function(&self, point: &AttachPoint) -> Result<Rc<FunctionFacts>, String> {
        let lacking = || match self.types() {
            Some(_) => "its module has no BTF (/sys/kernel/btf)".to_owned(),
            None => "this kernel has no BTF (/sys/kernel/btf/vmlinux)".to_owned(),
        };
        match &point.target {
            AttachTarget::Fentry { module, function, .. }
            | AttachTarget::Kprobe { module, function, .. } => {
                let space = self.types_of_function(module, function);
                // A symbol that is nowhere is none of BTF's functions either.
                let space = space.or_else(|| self.types()?.space(""));
                space.ok_or_else(lacking)?.function(function)
            }
            AttachTarget::RawTracepoint { module, event } => {
                let space = self.types().and_then(|types| types.space(module));
                space.ok_or_else(lacking)?.tracepoint(event)
            }
            AttachTarget::Usdt { .. } => binaries::usdt_arguments(&point.target, self.pid),
            AttachTarget::Uprobe { path, function, at_return: true, .. } => {
                let mut known = self.returns.borrow_mut();
                let found = known.entry(point.clone()).or_insert_with(|| {
                    let returns = user_variables::returned(path, function, self.pid)?;
                    Ok(Rc::new(FunctionFacts { arguments: Vec::new(), returns }))
                });
                found.clone()
            }
            _ => Err("it has none by name".into()),
        }
    }

    fn variable(&self, point: &AttachPoint, name: &str) -> Result<UserVariable, String> {
        let key = (point.clone(), name.to_owned());
        if let Some(known) = self.variables.borrow().get(&key) {
            return known.clone();
        }
        let mut types = self.user_types.borrow_mut();
        let found = user_variables::variable(&point.target, name, self.pid, &mut types);
        self.variables.borrow_mut().insert(key, found.clone());
        found
    }

    fn parameters(&self, point: &AttachPoint) -> Vec<String> {
        match &point.target {
            AttachTarget::Uprobe { .. } => {
                self.user_parameters(&point.target).into_iter().map(|(_, name)| name).collect()
            }
            _ => self.function(point).map_or_else(
                |_| Vec::new(),
                |f| f.arguments.iter().map(|argument| argument.name.clone()).collect(),
            ),
        }
    }

    fn program_type(&self, point: &AttachPoint, name: &str) -> Option<CType> {
        let (AttachTarget::Uprobe { path, .. } | AttachTarget::Usdt { path, .. }) = &point.target
        else {
            return None;
        };
        let key = (path.clone(), name.to_owned());
        if let Some(known) = self.program_types.borrow().get(&key) {
            return known.clone();
        }
        let mut types = self.user_types.borrow_mut();
        let found = user_variables::program_type(path, name, self.pid, &mut types);
        self.program_types.borrow_mut().insert(key, found.clone());
        found
    }

    fn kernel_symbol(&self, name: &str) -> Option<u64> {
        self.symbols().iter().find(|(_, _, symbol, _)| *symbol == name).map(|(addr, ..)| addr)
    }

    fn per_cpu_symbol(&self, name: &str) -> Option<u64> {
        self.kernel_symbol(name).or_else(|| per_cpu_offset(name))
    }

    fn user_symbol(&self, path: &str, name: &str) -> Option<(u64, u64)> {
        binaries::symbol(path, name, self.pid)
    }

    fn moved_place(&self, point: &AttachPoint) -> Option<u64> {
        binaries::moved_place(&point.target, self.pid)
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        target::cgroup_id(path)
    }

    fn header(&self, name: &str, from: Option<&str>) -> Result<Option<HeaderFile>, String> {
        headers::find_header(name, from, &self.header_directories)
    }

    fn included_text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(name).ok()
    }
}

//! Attach points that exist: what one with wildcards stands for, and lists for `-l`.

use globset::{GlobBuilder, GlobMatcher};
use kymo_bpf::{AttachPoint, AttachTarget, TypeFacts as _};

use super::user_variables::is_source_line;
use super::{MachineFacts, binaries, user_variables};

/// Points that one may stand for: more is a mistake.
const MOST: usize = 100_000;

/// Functions whose return probes may lock up the system: the probe's own handler takes the locks.
const LOCKING_UP: [&str; 4] = [
    "_raw_spin_lock",
    "_raw_spin_lock_irqsave",
    "_raw_spin_unlock_irqrestore",
    "queued_spin_lock_slowpath",
];

/// The attach points of this machine.
pub(crate) struct PointCatalog<'f> {
    pub facts: &'f MachineFacts,
}

/// A name that may have wildcards.
enum NamePattern {
    Plain(String),
    Glob(Box<GlobMatcher>),
}

impl NamePattern {
    fn new(text: &str) -> Result<NamePattern, String> {
        if !has_wildcard(text) {
            return Ok(NamePattern::Plain(text.to_owned()));
        }
        let glob = GlobBuilder::new(text).build().map_err(|e| format!("{text}: {e}"))?;
        Ok(NamePattern::Glob(Box::new(glob.compile_matcher())))
    }

    fn is_match(&self, name: &str) -> bool {
        match self {
            NamePattern::Plain(text) => text == name,
            NamePattern::Glob(glob) => glob.is_match(name),
        }
    }
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

impl PointCatalog<'_> {
    /// Points that one stands for; none if there is none.
    pub(crate) fn expand(&self, point: &AttachPoint) -> Result<Vec<AttachPoint>, String> {
        let points = self.existing(point)?;
        let points: Vec<_> = points.into_iter().flat_map(|point| self.by_site(point)).collect();
        if points.len() > MOST {
            Err(format!("{} stands for {} points, more than {MOST}", point.name, points.len()))
        } else {
            Ok(points)
        }
    }

    /// A USDT probe as its places, where each has arguments of its own.
    fn by_site(&self, point: AttachPoint) -> Vec<AttachPoint> {
        let mut sites = binaries::usdt_sites(&point.target, self.facts.pid);
        sites.dedup();
        let at = |to: &u64| {
            let mut point = point.clone();
            if let AttachTarget::Usdt { site, .. } = &mut point.target {
                *site = Some(*to);
            }
            point
        };
        if sites.is_empty() { vec![point] } else { sites.iter().map(at).collect() }
    }

    /// Returns the existing attach points of a pattern, without a limit.
    pub(crate) fn existing(&self, point: &AttachPoint) -> Result<Vec<AttachPoint>, String> {
        let point = &self.in_process(point);
        match &point.target {
            AttachTarget::Uprobe { path, .. } | AttachTarget::Usdt { path, .. }
                if has_wildcard(path) && !binaries::is_path(path, self.facts.pid) =>
            {
                self.in_binaries(&point.target, path)
            }
            _ => self.existing_in(point),
        }
    }

    /// A point without a path as one of the process of `-p`, or of the command of `-c`: functions
    /// are those of its program, USDT probes those of all files that the process has mapped.
    fn in_process(&self, point: &AttachPoint) -> AttachPoint {
        let mut point = point.clone();
        let has_process = self.facts.pid.is_some();
        match &mut point.target {
            // `uprobe:cpp:FUNCTION` of a process names a language.
            AttachTarget::Uprobe { path, language, .. } if path == "cpp" && has_process => {
                *language = std::mem::take(path);
            }
            AttachTarget::Usdt { path, .. } if path.is_empty() && has_process => {
                path.push('*');
            }
            AttachTarget::Uprobe { path, .. } | AttachTarget::Usdt { path, .. }
                if path.is_empty() && !has_process =>
            {
                path.push_str(self.facts.command.as_deref().unwrap_or(""));
            }
            _ => {}
        }
        point
    }

    /// Finds a point that the program of the process lacks in its other files.
    pub(crate) fn instead_of(&self, missing: &AttachPoint) -> Option<String> {
        let pid = self.facts.pid?;
        let AttachTarget::Uprobe { path, function, .. } = &missing.target else { return None };
        if !path.is_empty() || function.is_empty() {
            return None;
        }
        let mut elsewhere = self.in_binaries(&missing.target, "*").ok()?;
        let AttachTarget::Uprobe { path, .. } = elsewhere.pop()?.target else { return None };
        let (kind, function) = missing.name.split_once(':')?;
        Some(format!("`{kind}:*:{function}` finds it in {path}, which process {pid} has mapped"))
    }

    /// Existing attach points of a pattern whose path, if any, names one file.
    fn existing_in(&self, point: &AttachPoint) -> Result<Vec<AttachPoint>, String> {
        Ok(match &point.target {
            AttachTarget::Tracepoint { category, event } => self.tracepoints(category, event)?,
            AttachTarget::RawTracepoint { module, event } => self.raw_tracepoints(module, event)?,
            AttachTarget::Kprobe { module, function, address: None, .. }
                if has_wildcard(function) || has_wildcard(module) =>
            {
                self.kprobes(&point.target, module, function)?
            }
            AttachTarget::Kprobe { function, at_return: true, .. }
                if LOCKING_UP.contains(&function.as_str()) =>
            {
                return Err("it can't be used as it might lock up your system".into());
            }
            AttachTarget::Kprobe { function, address: None, .. } if self.is_excluded(function) => {
                Vec::new()
            }
            // Where functions are probed by name the kernel itself decides.
            AttachTarget::Kprobe { module, function, address: None, .. }
                if module.is_empty() && !self.facts.has_kprobes() =>
            {
                let mut symbols = self.facts.symbols().iter();
                let is_there = symbols.any(|(_, _, name, _)| name == function);
                is_there.then(|| point.clone()).into_iter().collect()
            }
            AttachTarget::Kprobe { module, function, address: None, .. } if !module.is_empty() => {
                let is_there = self.facts.function_of_module(module, function).is_some();
                // Without addresses the kernel itself decides.
                let may_be = is_there || self.facts.symbols().iter().all(|(a, ..)| a == 0);
                may_be.then(|| point.clone()).into_iter().collect()
            }
            AttachTarget::Fentry { module, function, .. } => {
                self.fentries(&point.target, module, function)?
            }
            AttachTarget::Uprobe { function, address, language, .. } => {
                let is_exact = !has_wildcard(function) && language.is_empty();
                if is_source_line(function) {
                    return self.places(&point.target);
                }
                if address.is_some() && is_exact {
                    vec![point.clone()]
                } else {
                    self.uprobes(&point.target, function, language)?
                }
            }
            AttachTarget::Usdt { path, provider, name, .. } => self.usdt(path, provider, name)?,
            AttachTarget::Watchpoint { function, path, .. } if !function.is_empty() => {
                match path.is_empty() {
                    true => self.watchpoints(point)?,
                    // It was looked up.
                    false => vec![point.clone()],
                }
            }
            AttachTarget::Iter { object, pin } if has_wildcard(object) => {
                self.iterators(object, pin)?
            }
            _ => vec![point.clone()],
        })
    }

    /// Whether a function that is named is none that may be probed.
    fn is_excluded(&self, function: &str) -> bool {
        let list = self.facts.traceable.as_ref();
        list.is_some_and(|list| list.is_binding && !list.has(function))
    }

    /// Points of all binaries that a path stands for.
    fn in_binaries(&self, target: &AttachTarget, path: &str) -> Result<Vec<AttachPoint>, String> {
        let mut points = Vec::new();
        for found in binaries::matching_binaries(path, self.facts.pid)? {
            let mut target = target.clone();
            if let AttachTarget::Uprobe { path, .. } | AttachTarget::Usdt { path, .. } = &mut target
            {
                *path = found;
            }
            // Some have no symbols, or no such ones.
            points.extend(self.existing_in(&named(target)).unwrap_or_default());
        }
        Ok(points)
    }

    fn iterators(&self, object: &str, pin: &str) -> Result<Vec<AttachPoint>, String> {
        let types = self.facts.types().ok_or("iterators need BTF, which this kernel lacks")?;
        let space = types.space("").ok_or("the kernel has no BTF")?;
        let pattern = NamePattern::new(object)?;
        let objects = space.function_names().filter_map(|name| name.strip_prefix("bpf_iter_"));
        let mut objects: Vec<&str> = objects
            .filter(|object| pattern.is_match(object))
            .filter(|object| self.facts.find_type(&format!("struct bpf_iter__{object}")).is_some())
            .collect();
        objects.sort_unstable();
        let made =
            |object: &str| named(AttachTarget::Iter { object: object.into(), pin: pin.into() });
        Ok(objects.into_iter().map(made).collect())
    }

    fn tracepoints(&self, category: &str, event: &str) -> Result<Vec<AttachPoint>, String> {
        let tracefs = self.facts.tracefs()?;
        let error = |e: kymo_kernel::tracefs::TracefsError| e.to_string();
        let made = |system: &str, event: &str| {
            named(AttachTarget::Tracepoint { category: system.into(), event: event.into() })
        };
        if !has_wildcard(category) && !has_wildcard(event) {
            let is_there = tracefs.event_id(category, event).is_ok();
            return Ok(is_there.then(|| made(category, event)).into_iter().collect());
        }
        let (systems, events) = (NamePattern::new(category)?, NamePattern::new(event)?);
        let mut found = Vec::new();
        for system in tracefs.systems().map_err(error)? {
            // Events of ftrace itself cannot be attached to.
            if systems.is_match(&system) && system != "ftrace" {
                let names = tracefs.events(&system).map_err(error)?;
                let names = names.iter().filter(|name| events.is_match(name));
                found.extend(names.map(|name| made(&system, name)));
            }
        }
        Ok(found)
    }

    fn raw_tracepoints(&self, module: &str, event: &str) -> Result<Vec<AttachPoint>, String> {
        let made = |module: &str, event: &str| {
            named(AttachTarget::RawTracepoint { module: module.into(), event: event.into() })
        };
        if !has_wildcard(event) && !has_wildcard(module) {
            // Without its types only the kernel itself decides whether a tracepoint exists.
            let Some(types) = self.facts.types() else { return Ok(vec![made(module, event)]) };
            let has_it = |module: &str| {
                types.space(module).is_some_and(|space| space.tracepoint_id(event).is_some())
            };
            let is_there = match module {
                // Modules may have no types.
                "" => {
                    let function = format!("__traceiter_{event}");
                    has_it("") || self.facts.kernel_symbol(&function).is_some()
                }
                module => has_it(module),
            };
            return Ok(is_there.then(|| made(module, event)).into_iter().collect());
        }
        let types = self
            .facts
            .types()
            .ok_or("a list of raw tracepoints needs BTF, which this kernel lacks")?;
        let pattern = NamePattern::new(event)?;
        let modules = NamePattern::new(if module.is_empty() { "*" } else { module })?;
        let mut modules: Vec<String> =
            types.module_names().into_iter().filter(|name| modules.is_match(name)).collect();
        // Without a module named: of the kernel itself first.
        modules.sort_by_key(|name| (name != "vmlinux", name.clone()));
        let mut points = Vec::new();
        for module in &modules {
            let Some(space) = types.space(module) else { continue };
            let mut names: Vec<&str> =
                space.tracepoint_names().filter(|n| pattern.is_match(n)).collect();
            names.sort_unstable();
            points.extend(names.into_iter().map(|name| made(module, name)));
        }
        Ok(points)
    }

    /// Functions by name, of a module if one is named: then each is of its module alone.
    fn kprobes(
        &self,
        target: &AttachTarget,
        module: &str,
        function: &str,
    ) -> Result<Vec<AttachPoint>, String> {
        let modules = match module {
            "" => None,
            module => Some(NamePattern::new(module)?),
        };
        let mut names = self.traceable_functions(&NamePattern::new(function)?, modules.as_ref());
        let is_return = matches!(target, AttachTarget::Kprobe { at_return: true, .. });
        names.retain(|(_, name)| !is_return || !LOCKING_UP.contains(&name.as_str()));
        names.sort_unstable();
        names.dedup();
        let made = |(of, name): (String, String)| {
            let mut target = target.clone();
            if let AttachTarget::Kprobe { module, function, .. } = &mut target {
                (*module, *function) = (of, name);
            }
            named(target)
        };
        Ok(names.into_iter().map(made).collect())
    }

    /// Functions that the function tracer knows; without it, those of the symbol table.
    /// Each with its module, where modules are chosen.
    fn traceable_functions(
        &self,
        functions: &NamePattern,
        modules: Option<&NamePattern>,
    ) -> Vec<(String, String)> {
        let list = match &self.facts.traceable {
            Some(list) => Some(list.text().to_owned()),
            None => {
                self.facts.tracefs().ok().and_then(|t| t.read("available_filter_functions").ok())
            }
        };
        let wanted = |name: &str, module: Option<&str>| {
            let module = module.unwrap_or("vmlinux");
            let is_it = functions.is_match(name) && modules.is_none_or(|m| m.is_match(module));
            let module = if modules.is_some() { module } else { "" };
            is_it.then(|| (module.to_owned(), name.to_owned()))
        };
        match list {
            Some(text) => {
                // `function [module]`
                let lines = text.lines().filter_map(|line| {
                    let mut words = line.split_ascii_whitespace();
                    let (name, module) = (words.next()?, words.next());
                    let module = module.and_then(|m| m.strip_prefix('[')?.strip_suffix(']'));
                    wanted(name, module)
                });
                lines.collect()
            }
            None => {
                let symbols = self.facts.symbols().iter();
                symbols.filter_map(|(_, _, name, module)| wanted(name, module)).collect()
            }
        }
    }

    fn fentries(
        &self,
        target: &AttachTarget,
        module: &str,
        function: &str,
    ) -> Result<Vec<AttachPoint>, String> {
        let types =
            self.facts.types().ok_or("fentry and fexit need BTF, which this kernel lacks")?;
        if !has_wildcard(function) {
            let space = self.facts.types_of_function(module, function);
            let space = space.filter(|space| space.function_id(function).is_some());
            return Ok(space
                .map(|space| in_module(target, &space.module, function))
                .into_iter()
                .collect());
        }
        let pattern = NamePattern::new(function)?;
        let space = types.space(module).ok_or_else(|| format!("{module} has no BTF"))?;
        let mut names: Vec<&str> = space.function_names().filter(|n| pattern.is_match(n)).collect();
        names.retain(|name| self.facts.traceable.as_ref().is_none_or(|list| list.has(name)));
        names.sort_unstable();
        names.dedup();
        Ok(names.into_iter().map(|name| in_module(target, &space.module, name)).collect())
    }

    fn uprobes(
        &self,
        target: &AttachTarget,
        function: &str,
        language: &str,
    ) -> Result<Vec<AttachPoint>, String> {
        let AttachTarget::Uprobe { path, .. } = target else { return Ok(Vec::new()) };
        let pattern = NamePattern::new(function)?;
        let is_wanted = |name: &str| pattern.is_match(name);
        let by_readable_name = !language.is_empty() || function.contains("::");
        let (found, names) =
            binaries::functions(path, self.facts.pid, &is_wanted, by_readable_name)?;
        let is_plain = matches!(&pattern, NamePattern::Plain(_));
        if names.is_empty() && is_plain && !function.is_empty() {
            // Inlined everywhere, or named by the source alone: of the debugging information.
            return Ok(self.places(target).unwrap_or_default());
        }
        let made = |name: String| {
            let mut target = target.clone();
            if let AttachTarget::Uprobe { path, function, language, .. } = &mut target {
                *path = found.to_string_lossy().into_owned();
                *function = name;
                language.clear();
            }
            named(target)
        };
        Ok(names.into_iter().map(made).collect())
    }

    /// Places of a source line or of inlined copies.
    fn places(&self, target: &AttachTarget) -> Result<Vec<AttachPoint>, String> {
        let AttachTarget::Uprobe { path, function, at_return, .. } = target else {
            return Ok(Vec::new());
        };
        if *at_return {
            return Err("a line or an inlined copy has no return".into());
        }
        let found = user_variables::places(path, function, self.facts.pid)?;
        let made = |to: u64| {
            let mut target = target.clone();
            if let AttachTarget::Uprobe { path, address, language, .. } = &mut target {
                *path = found.path.to_string_lossy().into_owned();
                *address = Some(to);
                language.clear();
            }
            named(target)
        };
        let points: Vec<AttachPoint> = found.addresses.into_iter().map(made).collect();
        if let Some(first) = points.first().filter(|_| found.others > 0) {
            self.facts.partial_lines.borrow_mut().insert(first.clone(), found.others);
        }
        Ok(points)
    }

    /// Watchpoints of the functions of the process that a name stands for.
    fn watchpoints(&self, point: &AttachPoint) -> Result<Vec<AttachPoint>, String> {
        let AttachTarget::Watchpoint { function: wanted, .. } = &point.target else {
            return Ok(Vec::new());
        };
        let pattern = NamePattern::new(wanted)?;
        let binary = self.facts.command.as_deref().unwrap_or("");
        let is_wanted = |name: &str| pattern.is_match(name);
        let (found, names) = binaries::functions(binary, self.facts.pid, &is_wanted, false)?;
        let made = |name: String| {
            let mut point = point.clone();
            point.name = point.name.replacen(wanted.as_str(), &name, 1);
            if let AttachTarget::Watchpoint { path, function, .. } = &mut point.target {
                *path = found.to_string_lossy().into_owned();
                *function = name;
            }
            point
        };
        Ok(names.into_iter().map(made).collect())
    }

    fn usdt(&self, path: &str, provider: &str, name: &str) -> Result<Vec<AttachPoint>, String> {
        let (providers, names) = (NamePattern::new(provider)?, NamePattern::new(name)?);
        let is_wanted = |note: &kymo_debuginfo::sdt::UsdtNote| {
            (provider.is_empty() || providers.is_match(&note.provider))
                && names.is_match(&note.name)
        };
        let (found, notes) = binaries::usdt_probes(path, self.facts.pid, &is_wanted)?;
        let mut pairs: Vec<(String, String)> =
            notes.into_iter().map(|note| (note.provider, note.name)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let path = found.to_string_lossy().into_owned();
        let made = |(provider, name)| {
            let (path, site) = (path.clone(), None);
            named(AttachTarget::Usdt { path, provider, name, site })
        };
        Ok(pairs.into_iter().map(made).collect())
    }
}

/// A function of the kernel, whose types have no name of a module, or of a module.
fn in_module(target: &AttachTarget, module_name: &str, name: &str) -> AttachPoint {
    let mut target = target.clone();
    if let AttachTarget::Fentry { function, module, .. } = &mut target {
        *function = name.to_owned();
        *module = if module_name.is_empty() { "vmlinux" } else { module_name }.to_owned();
    }
    named(target)
}

fn named(target: AttachTarget) -> AttachPoint {
    AttachPoint { name: display_name(&target), target }
}

/// A point as it stands in programs.
fn display_name(target: &AttachTarget) -> String {
    let with = |kind: &str, parts: &[&str]| {
        let parts = parts.iter().filter(|part| !part.is_empty());
        parts.fold(kind.to_owned(), |name, part| format!("{name}:{part}"))
    };
    let plus = |offset: u64| if offset == 0 { String::new() } else { format!("+{offset}") };
    match target {
        AttachTarget::Tracepoint { category, event } => with("tracepoint", &[category, event]),
        AttachTarget::RawTracepoint { module, event } => with("rawtracepoint", &[module, event]),
        AttachTarget::Kprobe { module, function, offset, address, at_return } => {
            let kind = if *at_return { "kretprobe" } else { "kprobe" };
            let place = match address {
                Some(address) => format!("{address:#x}"),
                None => format!("{function}{}", plus(*offset)),
            };
            with(kind, &[module, &place])
        }
        AttachTarget::Fentry { module, function, at_exit } => {
            with(if *at_exit { "fexit" } else { "fentry" }, &[module, function])
        }
        AttachTarget::Uprobe { path, function, offset, address, at_return, .. } => {
            let kind = if *at_return { "uretprobe" } else { "uprobe" };
            let place = match address {
                Some(address) if function.is_empty() => format!("{address:#x}"),
                _ => format!("{function}{}", plus(*offset)),
            };
            with(kind, &[path, &place])
        }
        AttachTarget::Usdt { path, provider, name, .. } => with("usdt", &[path, provider, name]),
        AttachTarget::Iter { object, pin } => with("iter", &[object, pin]),
        _ => String::new(),
    }
}

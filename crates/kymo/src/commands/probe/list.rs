//! `--list`: probes of the running kernel in the words of the source, and with
//! `--verbose` how often each was hit, how it works and who uses it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

use kymo_debuginfo::demangle;
use kymo_kernel::kprobes::{Kprobe, ProbeMechanism, jump_optimization};
use kymo_kernel::probe_events::{ListedProbe, ProbeFile};
use kymo_kernel::probe_notes::ProbeNotes;
use kymo_kernel::system::SystemRoot;
use kymo_model::probe::{FetchArg, ProbeTarget};
use kymo_probe::ProbedBinary;
use kymo_symbols::debug_files::BinaryFiles;

use super::Args;
use super::delete::means;
use super::users::users;
use crate::commands::tracing;

/// Binary that a probe is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProbedHome {
    Kernel,
    Module(String),
    User(String),
}

/// Target of a probe whose binary can be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ListedTarget {
    home: ProbedHome,
    /// Symbol that the offset counts from; empty for the start of the file.
    symbol: String,
    offset: u64,
}

impl ListedTarget {
    /// An address of the kernel, which the kernel hides, is of no use.
    fn from_target(target: &ProbeTarget) -> Option<ListedTarget> {
        match target {
            ProbeTarget::File { path, offset, .. } => {
                let home = ProbedHome::User(path.clone());
                Some(ListedTarget { home, symbol: String::new(), offset: *offset })
            }
            ProbeTarget::Symbol { module, symbol, offset } => {
                let home = module.clone().map_or(ProbedHome::Kernel, ProbedHome::Module);
                Some(ListedTarget { home, symbol: symbol.clone(), offset: offset.unwrap_or(0) })
            }
            ProbeTarget::Address(_) | ProbeTarget::Verbatim(_) => None,
        }
    }
}

/// `--list`.
pub(super) fn list(args: &Args, glob: Option<&str>) -> anyhow::Result<ExitCode> {
    let tracefs = tracing::open()?;
    let mut probes = tracefs.probes()?;
    probes.retain(|p| glob.is_none_or(|g| means(g, p)));
    let targets: Vec<Option<ListedTarget>> =
        probes.iter().map(|p| ListedTarget::from_target(&p.definition.target)).collect();
    let mut opened: BTreeMap<ProbedHome, Option<BinaryFiles>> = BTreeMap::new();
    for target in targets.iter().flatten() {
        opened.entry(target.home.clone()).or_insert_with(|| match &target.home {
            ProbedHome::Kernel => BinaryFiles::running_kernel(args.vmlinux.as_deref()).ok(),
            ProbedHome::Module(name) => BinaryFiles::module(name).ok(),
            ProbedHome::User(path) => BinaryFiles::user(path.as_ref()).ok(),
        });
    }
    let known: BTreeMap<&ProbedHome, ProbedBinary<'_>> = opened
        .iter()
        .filter_map(|(home, files)| Some((home, ProbedBinary::load(files.as_ref()?).ok()?)))
        .collect();
    let notes = ProbeNotes::load();
    let kernel = RunningKernel::look(&targets, &known, args.verbose);
    crate::screen::page();
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    for (probe, target) in probes.iter().zip(&targets) {
        let binary = target.as_ref().and_then(|t| known.get(&t.home));
        let text = target.as_ref().and_then(|t| source_text(probe, t, binary, &kernel));
        writeln!(out, "  {:20} (on {})", probe.definition.full_name(), with_names(probe, text))?;
        if notes.replaced(probe) == Some(true) {
            writeln!(
                out,
                "    the file was replaced since: what is started now is not probed; remove the probe and add it again"
            )?;
        }
        if args.verbose {
            let by = users(&tracefs, probe);
            let used = !by.is_empty();
            let how = target.as_ref().and_then(|t| how(probe, t, binary, (&kernel, used)));
            writeln!(out, "    {}", details(probe, how, &by))?;
            writeln!(out, "    {}", probe.line)?;
        }
    }
    out.flush()?;
    drop(out);
    if args.verbose && probes.iter().any(|p| p.file == ProbeFile::Kernel) {
        tell_switch();
    }
    Ok(ExitCode::SUCCESS)
}

/// State of the probes of the running kernel.
#[derive(Default)]
struct RunningKernel {
    /// Addresses of the symbols that targets count from.
    symbols: BTreeMap<(Option<String>, String), u64>,
    /// All symbols, where the kernel's binary is not there.
    names: Option<kymo_kernel::kallsyms::Kallsyms>,
    armed: Vec<Kprobe>,
}

impl RunningKernel {
    fn look(
        targets: &[Option<ListedTarget>],
        known: &BTreeMap<&ProbedHome, ProbedBinary<'_>>,
        verbose: bool,
    ) -> RunningKernel {
        let of_kernel = |t: &&ListedTarget| !matches!(t.home, ProbedHome::User(_));
        let mut wanted = targets.iter().flatten().filter(of_kernel).peekable();
        let unknown = wanted.clone().any(|p| !known.contains_key(&p.home));
        if wanted.peek().is_none() || (!verbose && !unknown) {
            return RunningKernel::default();
        }
        let text = SystemRoot::machine().kallsyms_text().unwrap_or_default();
        let mut symbols: BTreeMap<(Option<String>, String), u64> = BTreeMap::new();
        let keys: Vec<(Option<&str>, &str)> =
            wanted.map(|p| (module_of(p), p.symbol.as_str())).collect();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(addr), Some(_), Some(name)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let module = words.next().map(|m| m.trim_matches(['[', ']']));
            if keys.contains(&(module, name))
                && let Ok(addr) = u64::from_str_radix(addr, 16)
                && addr > 0
            {
                symbols.entry((module.map(str::to_owned), name.to_owned())).or_insert(addr);
            }
        }
        RunningKernel {
            symbols,
            names: unknown
                .then(|| kymo_kernel::kallsyms::Kallsyms::parse_as_kernel(text.into_bytes())),
            armed: if verbose { Kprobe::all() } else { Vec::new() },
        }
    }

    fn addr(&self, target: &ListedTarget) -> Option<u64> {
        let key = (module_of(target).map(str::to_owned), target.symbol.clone());
        self.symbols.get(&key)?.checked_add(target.offset)
    }
}

fn module_of(target: &ListedTarget) -> Option<&str> {
    if let ProbedHome::Module(name) = &target.home { Some(name) } else { None }
}

/// The address of a target as its binary states it.
fn stated_address(target: &ListedTarget, binary: &ProbedBinary<'_>) -> Option<u64> {
    if matches!(target.home, ProbedHome::User(_)) {
        return binary.symbols.address(target.offset);
    }
    let symbol = binary.symbols.named(&target.symbol, false)?;
    symbol.addr.checked_add(target.offset)
}

/// `work@/src/a.c in /bin/a`, `vfs_read:6@fs/read_write.c`.
fn source_text(
    probe: &ListedProbe,
    target: &ListedTarget,
    binary: Option<&ProbedBinary<'_>>,
    kernel: &RunningKernel,
) -> Option<String> {
    let ret = return_suffix(probe);
    let within = match &target.home {
        ProbedHome::Kernel => String::new(),
        ProbedHome::Module(name) => format!(" in {name}"),
        ProbedHome::User(path) => format!(" in {path}"),
    };
    let Some(binary) = binary else {
        let (start, _, name, _) = kernel.names.as_ref()?.lookup(kernel.addr(target)?)?;
        let offset = kernel.addr(target)?.checked_sub(start)?;
        return Some(format!("{}{ret}{within}", plus(&demangle(name), offset)));
    };
    let addr = stated_address(target, binary)?;
    let (symbol, start) = binary.symbols.function_at(addr)?;
    let name = demangle(symbol);
    Some(match binary.line_at(addr) {
        Some(line) => {
            let file = match &target.home {
                ProbedHome::User(_) => line.file.as_str(),
                // The directory it was compiled in is of another machine.
                _ => line
                    .file
                    .strip_prefix(line.comp_dir.as_str())
                    .map_or(line.file.as_str(), |f| f.trim_start_matches(['/', '.'])),
            };
            match line.relative {
                _ if line.is_entry => format!("{name}{ret}@{file}{within}"),
                Some(n) => format!("{}:{n}@{file}{within}", line.function),
                None => format!("{}@{file}:{}{within}", plus(&name, addr - start), line.line),
            }
        }
        None => format!("{}{ret}{within}", plus(&name, addr - start)),
    })
}

fn plus(name: &str, offset: u64) -> String {
    if offset == 0 { name.to_owned() } else { format!("{name}+{offset}") }
}

fn return_suffix(probe: &ListedProbe) -> &'static str {
    if probe.definition.kind.is_return() { "%return" } else { "" }
}

/// A probe point with the names of the arguments.
fn with_names(probe: &ListedProbe, text: Option<String>) -> String {
    let definition = &probe.definition;
    let mut text = text.unwrap_or_else(|| format!("{}{}", definition.target, return_suffix(probe)));
    let name = |arg: &FetchArg| arg.name.clone().unwrap_or_else(|| arg.to_string());
    let names: Vec<String> = definition.args.iter().map(name).collect();
    if !names.is_empty() {
        text.push_str(&format!(" with {}", names.join(" ")));
    }
    text
}

/// Describes how a hit is caught, or its cost.
fn how(
    probe: &ListedProbe,
    target: &ListedTarget,
    binary: Option<&ProbedBinary<'_>>,
    (kernel, used): (&RunningKernel, bool),
) -> Option<String> {
    if probe.file == ProbeFile::User {
        let binary = binary?;
        let Some(addr) = stated_address(target, binary) else {
            return Some("no code is there: the file has changed".into());
        };
        return Some(if binary.judge_at(addr).cheap? {
            "the instruction is emulated: a hit is cheap".into()
        } else {
            "the instruction is single-stepped: a hit is expensive".into()
        });
    }
    let addr = kernel.addr(target)?;
    // The kernel puts it behind the mark that indirect jumps may arrive at.
    const ENDBR: u64 = 4;
    let is_return = probe.definition.kind.is_return();
    let is_it =
        |k: &&Kprobe| k.is_return == is_return && (k.addr == addr || k.addr == addr + ENDBR);
    // Several events may be at one point, which the kernel's list does not tell apart.
    let fits = |k: &&Kprobe| k.disabled != used;
    let mut here = kernel.armed.iter().filter(is_it);
    let armed = here.clone().find(fits).or_else(|| here.next())?;
    Some(
        match (armed.gone, armed.disabled, armed.mechanism) {
            (true, ..) => "its module was unloaded",
            (_, true, ProbeMechanism::Ftrace) => {
                "not switched on; will use the function tracer's call"
            }
            (_, true, _) => "not switched on",
            (.., ProbeMechanism::Ftrace) => "uses the function tracer's call",
            (.., ProbeMechanism::Jump) => "optimized: a jump",
            (.., ProbeMechanism::Breakpoint) => "a breakpoint",
        }
        .into(),
    )
}

fn details(probe: &ListedProbe, how: Option<String>, by: &[String]) -> String {
    let mut parts = Vec::new();
    if let Some(hits) = probe.hits {
        parts.push(format!("{} hits", hits.hits));
        parts.extend(hits.missed.map(|m| format!("{m} missed")));
    }
    parts.extend(how);
    if !by.is_empty() {
        parts.push(format!("in use by {}", by.join(", ")));
    }
    parts.join(", ")
}

/// Whether breakpoints may become jumps.
fn tell_switch() {
    match jump_optimization() {
        Some(true) => outln!(
            "Breakpoints inside of functions become jumps where the code allows it (debug.kprobes-optimization = 1)."
        ),
        Some(false) => outln!(
            "Breakpoints stay breakpoints: debug.kprobes-optimization = 0; sysctl -w debug.kprobes-optimization=1 lets the kernel replace them by jumps."
        ),
        None => outln!("This kernel cannot replace breakpoints by jumps."),
    }
}

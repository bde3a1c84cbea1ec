//! `--list`: probes of the running kernel in the words of the source, and with
//! `--verbose` how often each was hit, how it works and who uses it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

use kymo_debuginfo::demangle;
use kymo_kernel::kprobes::{Kprobe, Means, jump_optimization};
use kymo_kernel::probe_events::{Probe, ProbeFile};
use kymo_kernel::probe_notes::ProbeNotes;
use kymo_kernel::tracefs::DynamicEvent;
use kymo_symbols::probe::{Facts, ProbeFiles};

use super::Args;
use super::live::means;
use super::users::users;
use crate::commands::tracing;

/// Whose code a probe is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    Kernel,
    Module(String),
    User(String),
}

/// A place as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    home: Home,
    /// What the offset counts from; empty for the file's beginning.
    symbol: String,
    offset: u64,
}

impl Listed {
    /// `/bin/a:0x1234(0x10)`, `mod:symbol+12`, `symbol`.
    fn parse(file: ProbeFile, place: &str) -> Option<Listed> {
        if file == ProbeFile::User {
            let (path, offset) = place.rsplit_once(':')?;
            let offset = offset.split('(').next()?.trim_start_matches("0x");
            let offset = u64::from_str_radix(offset, 16).ok()?;
            return Some(Listed { home: Home::User(path.into()), symbol: String::new(), offset });
        }
        let (home, rest) = match place.split_once(':') {
            Some((module, rest)) => (Home::Module(module.to_owned()), rest),
            None => (Home::Kernel, place),
        };
        // An address that the kernel hides is of no use.
        if rest.starts_with("0x") {
            return None;
        }
        let (symbol, offset) = rest.split_once('+').unwrap_or((rest, "0"));
        Some(Listed { home, symbol: symbol.to_owned(), offset: offset.parse().ok()? })
    }
}

/// `--list`.
pub(super) fn list(args: &Args, glob: Option<&str>) -> anyhow::Result<ExitCode> {
    let tracefs = tracing::open()?;
    let mut probes = tracefs.probes()?;
    probes.retain(|p| glob.is_none_or(|g| means(g, &p.event)));
    let places: Vec<Option<Listed>> = probes
        .iter()
        .map(|p| Listed::parse(p.file, p.event.definition.split_ascii_whitespace().next()?))
        .collect();
    let mut opened: BTreeMap<Home, Option<ProbeFiles>> = BTreeMap::new();
    for place in places.iter().flatten() {
        opened.entry(place.home.clone()).or_insert_with(|| match &place.home {
            Home::Kernel => ProbeFiles::running_kernel(args.vmlinux.as_deref()).ok(),
            Home::Module(name) => ProbeFiles::module(name).ok(),
            Home::User(path) => ProbeFiles::user(path.as_ref()).ok(),
        });
    }
    let known: BTreeMap<&Home, Facts<'_>> = opened
        .iter()
        .filter_map(|(home, files)| Some((home, Facts::load(files.as_ref()?).ok()?)))
        .collect();
    let notes = ProbeNotes::load();
    let kernel = Running::look(&places, &known, args.verbose);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (probe, place) in probes.iter().zip(&places) {
        let facts = place.as_ref().and_then(|p| known.get(&p.home));
        let text = place.as_ref().and_then(|p| in_words(&probe.event, p, facts, &kernel));
        let name = format!("{}:{}", probe.event.system, probe.event.name);
        writeln!(out, "  {name:20} (on {})", with_names(&probe.event, text))?;
        if notes.replaced(&probe.event) == Some(true) {
            writeln!(
                out,
                "    the file was replaced since: what is started now is not probed; remove the probe and add it again"
            )?;
        }
        if args.verbose {
            let by = users(&tracefs, &probe.event);
            let how = place.as_ref().and_then(|p| how(probe, p, facts, (&kernel, !by.is_empty())));
            writeln!(out, "    {}", details(probe, how, &by))?;
            writeln!(out, "    {}", definition(&probe.event))?;
        }
    }
    out.flush()?;
    drop(out);
    if args.verbose && probes.iter().any(|p| p.file == ProbeFile::Kernel) {
        tell_switch();
    }
    Ok(ExitCode::SUCCESS)
}

/// What a probe of the running kernel is called and how it works.
#[derive(Default)]
struct Running {
    /// Addresses of the symbols that places count from.
    symbols: BTreeMap<(Option<String>, String), u64>,
    /// All symbols, where the kernel's binary is not there.
    names: Option<kymo_kernel::kallsyms::Kallsyms>,
    armed: Vec<Kprobe>,
}

impl Running {
    fn look(
        places: &[Option<Listed>],
        known: &BTreeMap<&Home, Facts<'_>>,
        verbose: bool,
    ) -> Running {
        let of_kernel = |p: &&Listed| !matches!(p.home, Home::User(_));
        let mut wanted = places.iter().flatten().filter(of_kernel).peekable();
        let unknown = wanted.clone().any(|p| !known.contains_key(&p.home));
        if wanted.peek().is_none() || (!verbose && !unknown) {
            return Running::default();
        }
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
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
        Running {
            symbols,
            names: unknown
                .then(|| kymo_kernel::kallsyms::Kallsyms::parse_as_kernel(text.into_bytes())),
            armed: if verbose { Kprobe::all() } else { Vec::new() },
        }
    }

    fn addr(&self, place: &Listed) -> Option<u64> {
        let key = (module_of(place).map(str::to_owned), place.symbol.clone());
        self.symbols.get(&key)?.checked_add(place.offset)
    }
}

fn module_of(place: &Listed) -> Option<&str> {
    if let Home::Module(name) = &place.home { Some(name) } else { None }
}

/// The address of a place as its binary states it.
fn stated(place: &Listed, facts: &Facts<'_>) -> Option<u64> {
    if matches!(place.home, Home::User(_)) {
        return facts.symbols.address(place.offset);
    }
    let symbol = facts.symbols.named(&place.symbol, false)?;
    symbol.addr.checked_add(place.offset)
}

/// `work@/src/a.c in /bin/a`, `vfs_read:6@fs/read_write.c`.
fn in_words(
    event: &DynamicEvent,
    place: &Listed,
    facts: Option<&Facts<'_>>,
    kernel: &Running,
) -> Option<String> {
    let ret = if event.kind == 'r' { "%return" } else { "" };
    let within = match &place.home {
        Home::Kernel => String::new(),
        Home::Module(name) => format!(" in {name}"),
        Home::User(path) => format!(" in {path}"),
    };
    let Some(facts) = facts else {
        let (start, _, name, _) = kernel.names.as_ref()?.lookup(kernel.addr(place)?)?;
        let offset = kernel.addr(place)?.checked_sub(start)?;
        return Some(format!("{}{ret}{within}", plus(&demangle(name), offset)));
    };
    let addr = stated(place, facts)?;
    let (symbol, start) = facts.symbols.function_at(addr)?;
    let name = demangle(symbol);
    Some(match facts.line_at(addr) {
        Some(line) => {
            let file = match &place.home {
                Home::User(_) => line.file.as_str(),
                // The folder it was compiled in is of another machine.
                _ => line
                    .file
                    .strip_prefix(line.folder.as_str())
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

/// A place with the names of the arguments.
fn with_names(event: &DynamicEvent, text: Option<String>) -> String {
    let mut words = event.definition.split_ascii_whitespace();
    let place = words.next().unwrap_or_default();
    let ret = if event.kind == 'r' { "%return" } else { "" };
    let mut text = text.unwrap_or_else(|| format!("{place}{ret}"));
    let names: Vec<&str> =
        words.map(|arg| arg.split_once('=').map_or(arg, |(name, _)| name)).collect();
    if !names.is_empty() {
        text.push_str(&format!(" with {}", names.join(" ")));
    }
    text
}

fn definition(event: &DynamicEvent) -> String {
    format!("{}:{}/{} {}", event.kind, event.system, event.name, event.definition)
}

/// How a hit is caught, or what it costs.
fn how(
    probe: &Probe,
    place: &Listed,
    facts: Option<&Facts<'_>>,
    (kernel, used): (&Running, bool),
) -> Option<String> {
    if probe.file == ProbeFile::User {
        let facts = facts?;
        let Some(addr) = stated(place, facts) else {
            return Some("no code is there: the file has changed".into());
        };
        return Some(match facts.judge_at(addr).cheap? {
            true => "the instruction is emulated: a hit is cheap".into(),
            false => "the instruction is single-stepped: a hit is dear".into(),
        });
    }
    let addr = kernel.addr(place)?;
    // The kernel puts it behind the mark that indirect jumps may arrive at.
    const ENDBR: u64 = 4;
    let ret = probe.event.kind == 'r';
    let is_it = |k: &&Kprobe| k.ret == ret && (k.addr == addr || k.addr == addr + ENDBR);
    // Several events may be at one place, which the kernel's list does not tell apart.
    let fits = |k: &&Kprobe| k.disabled != used;
    let mut here = kernel.armed.iter().filter(is_it);
    let armed = here.clone().find(fits).or_else(|| here.next())?;
    Some(
        match (armed.gone, armed.disabled, armed.means) {
            (true, ..) => "its module is gone",
            (_, true, Means::Ftrace) => "not switched on; will use the function tracer's call",
            (_, true, _) => "not switched on",
            (.., Means::Ftrace) => "uses the function tracer's call",
            (.., Means::Jump) => "optimized: a jump",
            (.., Means::Breakpoint) => "a breakpoint",
        }
        .into(),
    )
}

fn details(probe: &Probe, how: Option<String>, by: &[String]) -> String {
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
        Some(true) => anstream::println!(
            "Breakpoints inside of functions become jumps where the code allows it (debug.kprobes-optimization = 1)."
        ),
        Some(false) => anstream::println!(
            "Breakpoints stay breakpoints: debug.kprobes-optimization = 0; sysctl -w debug.kprobes-optimization=1 lets the kernel replace them by jumps."
        ),
        None => anstream::println!("This kernel cannot replace breakpoints by jumps."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_as_the_kernel_lists_them() {
        let check = |file, place: &str, home: Home, symbol: &str, offset| {
            let expected = Listed { home, symbol: symbol.into(), offset };
            assert_eq!(Listed::parse(file, place), Some(expected), "{place}");
        };
        check(ProbeFile::Kernel, "_text+3460176", Home::Kernel, "_text", 3_460_176);
        check(ProbeFile::Kernel, "vfs_read", Home::Kernel, "vfs_read", 0);
        check(ProbeFile::Kernel, "m:f+4", Home::Module("m".into()), "f", 4);
        let user = Home::User("/opt/a:b".into());
        check(ProbeFile::User, "/opt/a:b:0x0000000000001139(0x4010)", user, "", 0x1139);
        assert_eq!(Listed::parse(ProbeFile::Kernel, "0xffffffff81000000"), None);
        assert_eq!(Listed::parse(ProbeFile::User, "nothing"), None);
    }
}

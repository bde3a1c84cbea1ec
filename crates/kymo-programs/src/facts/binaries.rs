//! Programs and libraries: where they are, their functions and USDT probes.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kymo_bpf::{ArgumentPlace, AttachPoint, AttachTarget, CType, FunctionArgument, FunctionFacts};
use kymo_debuginfo::sdt::{UsdtNote, usdt_notes};
use kymo_debuginfo::{CodeSymbols, NamedSymbol, demangle};
use kymo_kernel::proc_maps;
use kymo_kernel::system::SystemRoot;
use kymo_model::probe::{FetchBase, FetchType, IntegerFormat};
use kymo_probe::{ProbeHazard, ProbedBinary};
use kymo_symbols::debug_files::{BinaryFiles, find_on_search_path, is_elf, path_in_process};

use super::MachineFacts;
use crate::address_names::MAPS_TIMEOUT;

/// A place in a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BinaryPlace {
    /// Path that the kernel opens.
    pub path: PathBuf,
    /// Offset in the file.
    pub offset: u64,
    /// Offset of a semaphore, or 0.
    pub semaphore: u64,
}

/// Finds a binary: a path, a program on the search path, a library by its name (`libc`), or
/// the program of a process if the name is empty. Of a process of another mount namespace names
/// are looked up there. A file that was replaced while the process has it mapped is the mapped one.
fn find_binary(name: &str, pid: Option<u32>) -> Result<PathBuf, String> {
    let found = find_named_binary(name, pid)?;
    Ok(pid.and_then(|pid| replaced_file(&found, pid)).unwrap_or(found))
}

/// The file that a process has mapped as code by a path which another file has now.
fn replaced_file(path: &Path, pid: u32) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut deleted = std::fs::canonicalize(path).ok()?.as_os_str().as_bytes().to_vec();
    deleted.extend(b" (deleted)");
    let maps = proc_maps::maps(pid, MAPS_TIMEOUT).ok()?;
    let mut mappings = maps.mappings.iter();
    let mapping = mappings.find(|m| m.executable() && m.path == deleted)?;
    Some(SystemRoot::machine().mapped_file(pid, (mapping.start, mapping.end)))
}

fn find_named_binary(name: &str, pid: Option<u32>) -> Result<PathBuf, String> {
    if name.is_empty() {
        let pid = pid.ok_or(
            "write the path of a program or library before the name, or probe the program of a \
             process with -p PID",
        )?;
        return SystemRoot::machine().executable_of(pid).map_err(|e| format!("process {pid}: {e}"));
    }
    let pid = pid.filter(|pid| is_elsewhere(*pid));
    let here = |path: &Path| match pid {
        None => Ok(path.to_owned()),
        Some(pid) => path_in_process(pid, path),
    };
    if name.contains('/') {
        // As it was typed, which is how points are named.
        let found = here(Path::new(name)).and_then(|path| path.metadata().map(|_| path));
        return found.map_err(|e| match pid {
            None => format!("{name}: {e}"),
            Some(pid) => format!("{name} as process {pid} sees it: {e}"),
        });
    }
    let found = find_on_search_path(name, &here);
    let path =
        found.ok_or_else(|| format!("no program or library {name} is on the search path"))?;
    match pid {
        None => std::fs::canonicalize(&path).map_err(|e| format!("{}: {e}", path.display())),
        // Without links already.
        Some(_) => Ok(path),
    }
}

/// Whether a process has another mount namespace, or another root directory.
fn is_elsewhere(pid: u32) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let machine = SystemRoot::machine();
    let root = |path: PathBuf| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let own = std::process::id();
    let namespace = machine.mount_namespace(pid);
    let root_of = root(machine.root_of(pid));
    (namespace.is_some() && namespace != machine.mount_namespace(own))
        || (root_of.is_some() && root_of != root(machine.root_of(own)))
}

/// Whether a name is the path of a file as it is, even if it has wildcards.
pub(super) fn is_path(name: &str, pid: Option<u32>) -> bool {
    name.contains('/') && find_named_binary(name, pid).is_ok_and(|path| path.is_file())
}

/// Binaries that a path with wildcards in its last part stands for; `*` of a process are those that
/// it has mapped.
pub(super) fn matching_binaries(pattern: &str, pid: Option<u32>) -> Result<Vec<String>, String> {
    if let (Some(pid), "*") = (pid, pattern) {
        let maps = proc_maps::maps(pid, MAPS_TIMEOUT).map_err(|e| format!("process {pid}: {e}"))?;
        let code = maps.mappings.into_iter().filter(|m| m.executable() && m.path.starts_with(b"/"));
        let mut paths: Vec<String> = code.filter_map(|m| String::from_utf8(m.path).ok()).collect();
        paths.sort();
        paths.dedup();
        return Ok(paths);
    }
    let (directory, name) = pattern.rsplit_once('/').unwrap_or((".", pattern));
    let glob = globset::Glob::new(name).map_err(|e| format!("{pattern}: {e}"))?.compile_matcher();
    let from = if directory.is_empty() { "/" } else { directory };
    let entries = std::fs::read_dir(from).map_err(|e| format!("{from}: {e}"))?;
    let names = entries.flatten().filter(|e| is_elf(&e.path()));
    let names = names.filter_map(|e| e.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| glob.is_match(name)).collect();
    names.sort();
    Ok(names.into_iter().map(|name| format!("{directory}/{name}")).collect())
}

pub(super) fn open(name: &str, pid: Option<u32>) -> Result<BinaryFiles, String> {
    let path = find_binary(name, pid)?;
    BinaryFiles::user(&path).map_err(|e| e.to_string())
}

/// Address and size of a symbol.
pub(super) fn symbol(path: &str, name: &str, pid: Option<u32>) -> Option<(u64, u64)> {
    let files = open(path, pid).ok()?;
    let symbols = CodeSymbols::load(files.binary(), files.debug()).ok()?;
    let found = symbols.named(name, false)?;
    Some((found.addr, found.size))
}

/// Reason why a probe on an indirect function is seldom intended, with the functions that may be.
pub(super) fn indirect_function(path: &str, name: &str, pid: Option<u32>) -> Option<String> {
    let files = open(path, pid).ok()?;
    let symbols = CodeSymbols::load(files.binary(), files.debug()).ok()?;
    symbols.indirect_caution(name)
}

/// Reason why the first of some return probes that does so ends the program that it is in.
pub(super) fn return_hazard(points: &[AttachPoint], pid: Option<u32>) -> Option<ProbeHazard> {
    return_probes(
        points,
        pid,
        |symbols| symbols.has_go(),
        |binary, addresses| addresses.iter().find_map(|address| binary.judge_return(*address)),
    )
}

/// Reason why some return probes may end the program that they are in, of the first binary with
/// exceptions.
pub(super) fn unwinding_hazard(points: &[AttachPoint], pid: Option<u32>) -> Option<ProbeHazard> {
    return_probes(
        points,
        pid,
        |symbols| symbols.raises_exceptions(),
        |binary, addresses| {
            let (first, others) = addresses.split_first()?;
            binary.judge_unwinding(*first, others.len())
        },
    )
}

/// Judges return probes by binary, of binaries that are of interest.
fn return_probes(
    points: &[AttachPoint],
    pid: Option<u32>,
    is_of_interest: impl Fn(&CodeSymbols<'_>) -> bool,
    judge: impl Fn(&ProbedBinary<'_>, &[u64]) -> Option<ProbeHazard>,
) -> Option<ProbeHazard> {
    let mut by_path: BTreeMap<&str, Vec<(&str, Option<u64>)>> = BTreeMap::new();
    for point in points {
        if let AttachTarget::Uprobe { path, function, address, at_return: true, .. } = &point.target
        {
            by_path.entry(path).or_default().push((function, *address));
        }
    }
    by_path.into_iter().find_map(|(path, functions)| {
        let files = open(path, pid).ok()?;
        let symbols = CodeSymbols::load(files.binary(), files.debug()).ok()?;
        if !is_of_interest(&symbols) {
            return None;
        }
        let binary = ProbedBinary::load(&files).ok()?;
        let addresses: Vec<u64> = match functions.as_slice() {
            [(function, address)] => {
                let named = || symbols.named(function, true).map(|symbol| symbol.addr);
                address.or_else(named).into_iter().collect()
            }
            // One pass for all names.
            _ => {
                let named = symbols.all().filter(|symbol| symbol.code);
                let named: HashMap<&str, u64> =
                    named.map(|symbol| (symbol.plain_name(), symbol.addr)).collect();
                let address = |(function, address): (&str, Option<u64>)| {
                    address.or(named.get(function).copied())
                };
                functions.into_iter().filter_map(address).collect()
            }
        };
        judge(&binary, &addresses)
    })
}

/// Address in its file of a probe of a position independent program or library.
pub(super) fn moved_place(target: &AttachTarget, pid: Option<u32>) -> Option<u64> {
    let (AttachTarget::Uprobe { path, .. } | AttachTarget::Usdt { path, .. }) = target else {
        return None;
    };
    let files = open(path, pid).ok()?;
    let symbols = CodeSymbols::load(files.binary(), files.debug()).ok()?;
    if !symbols.is_position_independent() {
        return None;
    }
    match target {
        AttachTarget::Uprobe { function, offset, address, .. } => {
            let at = address.or_else(|| symbols.named(function, true).map(|s| s.addr))?;
            Some(at.wrapping_add(*offset))
        }
        AttachTarget::Usdt { provider, name, site, .. } => {
            let notes = usdt_notes(files.binary()).ok()?;
            let mut notes = notes.iter().filter(|note| is_note_of(note, provider, name, *site));
            // Of several places none is the one.
            notes.next().filter(|_| notes.next().is_none()).map(|note| note.addr)
        }
        _ => None,
    }
}

/// Path of a binary and the names of its functions that match, mangled.
pub(super) fn functions(
    path: &str,
    pid: Option<u32>,
    is_wanted: &dyn Fn(&str) -> bool,
    by_readable_name: bool,
) -> Result<(PathBuf, Vec<String>), String> {
    let files = open(path, pid)?;
    let symbols =
        CodeSymbols::load(files.binary(), files.debug()).map_err(|e| format!("{path}: {e}"))?;
    let matches = |name: &str| {
        if by_readable_name {
            let readable = demangle(name);
            is_wanted(&readable) || is_wanted(without_parameters(&readable))
        } else {
            is_wanted(name)
        }
    };
    // Debug files name each version of a function (`f@@LIB_1.2`, the default one, `f@LIB_1.1`).
    let is_plain = |s: &NamedSymbol<'_>| {
        (!s.is_versioned() || s.is_default_version()) && matches(s.plain_name())
    };
    // Each function is probed once, whatever names it has.
    let mut found = symbols.functions(|s| is_plain(s) || matches(s.name));
    if found.is_empty() {
        found = symbols.functions(|s| matches(s.plain_name()));
    }
    found.sort_by_key(|s| s.addr);
    let name = |s: &NamedSymbol<'_>| if is_plain(s) { s.plain_name() } else { s.name }.to_owned();
    Ok((typed_path(path, &files.path), found.iter().map(name).collect()))
}

/// A binary as points name it: as it was typed, if that was a path.
fn typed_path(typed: &str, found: &Path) -> PathBuf {
    if typed.contains('/') { PathBuf::from(typed) } else { found.to_owned() }
}

/// `ns::f(int)` → `ns::f`.
fn without_parameters(name: &str) -> &str {
    name.split('(').next().unwrap_or(name)
}

/// USDT probes of a binary that match.
pub(super) fn usdt_probes(
    path: &str,
    pid: Option<u32>,
    is_wanted: &dyn Fn(&UsdtNote) -> bool,
) -> Result<(PathBuf, Vec<UsdtNote>), String> {
    let files = open(path, pid)?;
    let notes = usdt_notes(files.binary()).map_err(|e| format!("{path}: {e}"))?;
    Ok((typed_path(path, &files.path), notes.into_iter().filter(is_wanted).collect()))
}

/// Whether a note is of a USDT probe, at one of its places if that is named.
fn is_note_of(note: &UsdtNote, provider: &str, name: &str, site: Option<u64>) -> bool {
    note.name == name
        && (provider.is_empty() || note.provider == provider)
        && site.is_none_or(|site| site == note.addr)
}

/// Arguments of a USDT probe.
pub(super) fn usdt_arguments(
    target: &AttachTarget,
    pid: Option<u32>,
) -> Result<Rc<FunctionFacts>, String> {
    let AttachTarget::Usdt { path, provider, name, site } = target else {
        return Err("it is not a USDT probe".into());
    };
    let is_it = |note: &UsdtNote| is_note_of(note, provider, name, *site);
    let files = open(path, pid)?;
    let notes = usdt_notes(files.binary()).map_err(|e| format!("{path}: {e}"))?;
    let note = notes.iter().find(|note| is_it(note));
    let note = note.ok_or_else(|| format!("{path} has no USDT probe {name}"))?;
    let symbols = CodeSymbols::load(files.binary(), files.debug()).ok();
    let distance = |name: &str| {
        let address = symbols.as_ref()?.address_of_data(name)?;
        Some(address.wrapping_sub(note.addr).cast_signed())
    };
    let arguments = note.args.iter().enumerate();
    let arguments = arguments.map(|(i, text)| usdt_argument(i, text, &distance)).collect();
    Ok(Rc::new(FunctionFacts { arguments, returns: CType::Void }))
}

/// Places of a USDT probe, where each has arguments of its own; none where all are alike.
pub(super) fn usdt_sites(target: &AttachTarget, pid: Option<u32>) -> Vec<u64> {
    let AttachTarget::Usdt { path, provider, name, site: None } = target else {
        return Vec::new();
    };
    let is_it = |note: &UsdtNote| is_note_of(note, provider, name, None);
    let notes = usdt_probes(path, pid, &is_it).map_or_else(|_| Vec::new(), |(_, notes)| notes);
    // A global variable has another distance from each place.
    let is_relative =
        |note: &UsdtNote| note.args.iter().any(|s| s.contains("(%rip)") || s.contains("(,"));
    let differ = notes.windows(2).any(|pair| pair[0].args != pair[1].args || is_relative(&pair[0]));
    notes.iter().filter(|_| differ).map(|note| note.addr).collect()
}

/// `8(%rsp,%rax,4)` → `8(%rsp)`, the index register and its scale; `x(,%rax,4)` → `x(%rip)`.
fn without_index(text: &str) -> Option<(String, &str, u8)> {
    let (before, inner) = text.strip_suffix(')')?.split_once('(')?;
    let (base, index) = inner.split_once(',')?;
    let (index, scale) = index.split_once(',').unwrap_or((index, "1"));
    let base = Some(base.trim()).filter(|base| !base.is_empty()).unwrap_or("%rip");
    Some((format!("{before}({base})"), index.trim(), scale.trim().parse().ok()?))
}

fn usdt_argument(i: usize, text: &str, distance: &dyn Fn(&str) -> Option<i64>) -> FunctionArgument {
    let name = format!("arg{i}");
    let (ctype, place) = match usdt_place(&name, text, distance) {
        Ok(found) => found,
        Err(why) => {
            let word = CType::Integer { size: 8, signed: false, is_char: false };
            (word, ArgumentPlace::Unreadable(why))
        }
    };
    FunctionArgument { name, ctype, place }
}

/// Type and place of an argument, or why it cannot be read.
fn usdt_place(
    name: &str,
    text: &str,
    distance: &dyn Fn(&str) -> Option<i64>,
) -> Result<(CType, ArgumentPlace), String> {
    let indexed = without_index(text);
    let without = indexed.as_ref().map_or(text, |(without, ..)| without);
    let fetch = kymo_probe::usdt_fetch_arg(name, without, distance)?;
    let no_place = || format!("is {text}, a location that is not supported");
    let index = match &indexed {
        Some((_, register, scale)) => {
            match kymo_probe::usdt_fetch_arg(name, register, distance)?.expr.base {
                FetchBase::Register(name) => Some((bare(&name), *scale)),
                _ => return Err(no_place()),
            }
        }
        None => None,
    };
    let ctype = match fetch.fetch_type {
        Some(FetchType::Integer { format, bits }) => CType::Integer {
            size: (bits / 8) as u8,
            signed: format == IntegerFormat::Signed,
            is_char: false,
        },
        _ => CType::Integer { size: 8, signed: false, is_char: false },
    };
    let offset = fetch.expr.dereferences.first().map(|d| d.offset);
    let place = match (fetch.expr.base, offset) {
        (FetchBase::Immediate(value), _) => ArgumentPlace::Constant(match ctype {
            // The assembler writes constants with a sign.
            CType::Integer { size: size @ 1..8, signed: false, .. } => {
                value & ((1 << (8 * size)) - 1)
            }
            _ => value,
        }),
        (FetchBase::Register(name), None) => ArgumentPlace::Register(bare(&name)),
        (FetchBase::Register(name), Some(offset)) => {
            ArgumentPlace::Memory { register: bare(&name), offset, index }
        }
        _ => return Err(no_place()),
    };
    Ok((ctype, place))
}

fn bare(register: &str) -> String {
    register.trim_start_matches('%').to_owned()
}

/// Whether a file is not ELF: code whose addresses are offsets in the file.
fn is_flat(path: &str, pid: Option<u32>) -> bool {
    find_binary(path, pid).is_ok_and(|path| path.is_file() && !is_elf(&path))
}

/// Refuses addresses where a probe would harm the program, or is no code.
fn judge(
    files: &BinaryFiles,
    symbols: &CodeSymbols<'_>,
    path: &str,
    at: u64,
) -> Result<(), String> {
    if !symbols.is_code(at) {
        return Err(format!("Could not resolve address: {path}:{at:#x} is no code"));
    }
    let binary = ProbedBinary::load(files).map_err(|e| e.to_string())?;
    match binary.judge_at(at).hazard {
        Some(ProbeHazard { what, advice }) => Err(format!("{what}; {advice}")),
        None => Ok(()),
    }
}

/// Places of a uprobe or USDT probe.
pub(crate) fn place_of(
    target: &AttachTarget,
    facts: &MachineFacts,
) -> Result<Vec<BinaryPlace>, String> {
    let pid = facts.pid;
    match target {
        AttachTarget::Uprobe { path, function, offset, address: Some(address), .. }
            if function.is_empty() && facts.is_unsafe && is_flat(path, pid) =>
        {
            let path = find_binary(path, pid)?;
            Ok(vec![BinaryPlace { path, offset: address.wrapping_add(*offset), semaphore: 0 }])
        }
        AttachTarget::Uprobe { path, function, offset, address, .. } => {
            let files = open(path, pid)?;
            let symbols = CodeSymbols::load(files.binary(), files.debug())
                .map_err(|e| format!("{path}: {e}"))?;
            let at = match address {
                Some(address) => *address,
                None => {
                    let found = symbols.named(function, true);
                    let found =
                        found.ok_or_else(|| format!("{path} has no function {function}"))?;
                    if *offset > 0 && found.size > 0 && *offset >= found.size {
                        return Err(format!(
                            "Offset outside the function bounds ('{function}' size is {})",
                            found.size
                        ));
                    }
                    found.addr
                }
            };
            let at = at.wrapping_add(*offset);
            // What the debugging information names is judged there.
            if (address.is_some() && function.is_empty()) || *offset > 0 {
                judge(&files, &symbols, path, at)?;
            }
            let offset = symbols
                .file_offset(at)
                .ok_or_else(|| format!("{path} has no code at address {at:#x}"))?;
            Ok(vec![BinaryPlace { path: files.path.clone(), offset, semaphore: 0 }])
        }
        AttachTarget::Usdt { path, provider, name, site } => {
            let files = open(path, pid)?;
            let symbols = CodeSymbols::load(files.binary(), files.debug())
                .map_err(|e| format!("{path}: {e}"))?;
            let notes = usdt_notes(files.binary()).map_err(|e| format!("{path}: {e}"))?;
            let wanted = notes.iter().filter(|note| is_note_of(note, provider, name, *site));
            let place = |note: &UsdtNote| {
                let offset = symbols.file_offset(note.addr)?;
                let semaphore = note.semaphore.and_then(|at| symbols.file_offset(at)).unwrap_or(0);
                Some(BinaryPlace { path: files.path.clone(), offset, semaphore })
            };
            Ok(wanted.filter_map(place).collect())
        }
        _ => Ok(Vec::new()),
    }
}

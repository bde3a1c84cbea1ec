//! `-l`: the attach points of this machine that match, and with `-v` their arguments.

use std::io::{self, Write};

use kymo_bpf::{AttachPoint, AttachTarget, TypeFacts, attach_points};

use crate::attach::{HARDWARE_EVENTS, SOFTWARE_EVENTS};
use crate::error::ProgramError;
use crate::facts::{MachineFacts, PointCatalog, PrototypeText};
use crate::running::{ProgramOptions, compile_options};

/// Kinds of attach points with their short and older names, as patterns name them.
const KINDS: [(&str, &[&str]); 14] = [
    ("tracepoint", &["t"]),
    ("rawtracepoint", &["rt"]),
    ("kprobe", &["k"]),
    ("kretprobe", &["kr"]),
    ("fentry", &["f", "kfunc"]),
    ("fexit", &["fr", "kretfunc"]),
    ("iter", &["it"]),
    ("software", &["s"]),
    ("hardware", &["h"]),
    ("interval", &["i"]),
    ("profile", &["p"]),
    ("uprobe", &["u"]),
    ("uretprobe", &["ur"]),
    ("usdt", &["U"]),
];

/// Kinds that a pattern without a kind leaves out: they repeat others, or are of no place.
const REPEATED: [&str; 5] = ["kretprobe", "fentry", "fexit", "interval", "profile"];

/// Units of intervals and profiles.
const UNITS: [&str; 4] = ["hz", "ms", "s", "us"];

/// Lists the attach points that match a pattern: `KIND:NAMES`, where the kind may have wildcards,
/// or a part of names. An empty one stands for those of the kernel, each once. `struct NAME` and its
/// like are types of the kernel.
///
/// # Errors
/// If the output cannot be written, or the machine cannot tell.
pub fn list_points(
    pattern: &str,
    with_arguments: bool,
    facts: &MachineFacts,
    out: &mut dyn Write,
) -> io::Result<Result<usize, String>> {
    let (mut count, mut failure) = (0, None);
    for pattern in pattern.split(',') {
        let pattern = pattern.split_whitespace().collect::<Vec<_>>().join(" ");
        match list_pattern(&pattern, with_arguments, facts, out)? {
            Ok(more) => count += more,
            Err(e) => failure = Some(e),
        }
    }
    Ok(match (count, failure) {
        (0, Some(failure)) => Err(failure),
        (count, _) => Ok(count),
    })
}

/// Lists the attach points of a program that exist, as they are found by their patterns.
///
/// # Errors
/// If the output cannot be written, or the program is wrong.
pub fn list_program(
    text: &str,
    options: &ProgramOptions,
    with_arguments: bool,
    facts: &MachineFacts,
    out: &mut dyn Write,
) -> Result<(), ProgramError> {
    let catalog = PointCatalog { facts };
    let points = attach_points(text, &compile_options(options, false), facts);
    for point in points.map_err(ProgramError::Compile)? {
        for found in catalog.existing(&point).unwrap_or_default() {
            match &found.target {
                AttachTarget::Begin | AttachTarget::End => continue,
                AttachTarget::Interval { .. }
                | AttachTarget::Profile { .. }
                | AttachTarget::Software { .. }
                | AttachTarget::Hardware { .. } => {
                    // As lists without a program have them.
                    let parts: Vec<&str> = found.name.splitn(3, ':').take(2).collect();
                    writeln!(out, "{}:", parts.join(":"))?;
                }
                _ => writeln!(out, "{}", found.name)?,
            }
            if with_arguments {
                write_arguments(out, facts, &found)?;
            }
        }
    }
    Ok(())
}

/// The points of one pattern.
fn list_pattern(
    pattern: &str,
    with_arguments: bool,
    facts: &MachineFacts,
    out: &mut dyn Write,
) -> io::Result<Result<usize, String>> {
    if let Some(c) = pattern.chars().find(|c| *c == '\\' || c.is_control()) {
        return Ok(Err(format!("invalid character {c:?}")));
    }
    if let Some(listed) = list_types(pattern, with_arguments, facts, out)? {
        return Ok(listed);
    }
    let catalog = PointCatalog { facts };
    let mut count = 0;
    let mut failure = None;
    let mut kinds = wanted(pattern);
    if facts.pid.is_some() && pattern.trim_matches('*').is_empty() {
        kinds.extend(["uprobe", "usdt"].map(|kind| (kind, vec!["*", "*"])));
    }
    for (kind, rest) in kinds {
        if let Some(names) = fixed_names(kind, &rest) {
            count += names.len();
            names.iter().try_for_each(|name| writeln!(out, "{kind}:{name}:"))?;
            continue;
        }
        if kind.ends_with("probe") && kind.starts_with('k') && !facts.has_kprobes() {
            // Not reported if other probes were requested, too.
            if pattern.starts_with('k') {
                failure = Some("this kernel has no kprobes".to_owned());
            }
            continue;
        }
        let target = target(kind, &rest);
        let point = AttachPoint { name: pattern.to_owned(), target };
        let points = match catalog.existing(&point) {
            Ok(points) => points,
            Err(e) => {
                failure = Some(e);
                continue;
            }
        };
        count += points.len();
        for point in &points {
            writeln!(out, "{}", point.name)?;
            if with_arguments {
                write_arguments(out, facts, point)?;
            }
        }
    }
    Ok(match (count, failure) {
        (0, Some(failure)) => Err(failure),
        (count, _) => Ok(count),
    })
}

/// Kinds that a pattern asks for, and what it says of their names.
fn wanted(pattern: &str) -> Vec<(&'static str, Vec<&str>)> {
    let Some((kind, rest)) = pattern.split_once(':') else { return of_the_kernel(pattern) };
    let glob = globset::Glob::new(kind).ok().map(|glob| glob.compile_matcher());
    let rest: Vec<&str> = rest.split(':').collect();
    let is_named = |(name, short): &&(&str, &[&str])| *name == kind || short.contains(&kind);
    if let Some((name, _)) = KINDS.iter().find(is_named) {
        return vec![(name, rest)];
    }
    let matching = |kind: &str| {
        kind.starts_with('u') == rest[0].contains('/')
            && glob.as_ref().is_some_and(|g| g.is_match(kind))
    };
    let found: Vec<_> = KINDS.iter().filter(|(kind, _)| matching(kind)).collect();
    match found.as_slice() {
        // `sched:sched_switch`: a tracepoint without its kind.
        [] => of_the_kernel(rest.last().copied().unwrap_or("*")),
        found => found.iter().map(|(kind, _)| (*kind, rest.clone())).collect(),
    }
}

/// Kinds of the kernel's points, each of which has one kind.
fn of_the_kernel(name: &str) -> Vec<(&'static str, Vec<&str>)> {
    let kinds = KINDS.iter().map(|(kind, _)| *kind);
    let kinds = kinds.filter(|kind| !REPEATED.contains(kind) && !kind.starts_with('u'));
    kinds.map(|kind| (kind, vec![name])).collect()
}

/// Names of kinds that are the same on each machine; none for other kinds.
fn fixed_names(kind: &str, rest: &[&str]) -> Option<Vec<&'static str>> {
    let names: &[&str] = match kind {
        "software" => &SOFTWARE_EVENTS,
        "hardware" => &HARDWARE_EVENTS,
        "interval" | "profile" => &UNITS,
        _ => return None,
    };
    let pattern = rest.first().copied().filter(|name| !name.is_empty()).unwrap_or("*");
    let glob = globset::Glob::new(pattern).ok()?.compile_matcher();
    Some(names.iter().copied().filter(|name| glob.is_match(name)).collect())
}

/// Points of a kind.
fn target(kind: &str, rest: &[&str]) -> AttachTarget {
    let name = rest.first().copied().filter(|name| !name.is_empty()).unwrap_or("*");
    let module = String::new();
    match (kind, rest) {
        ("tracepoint", [category, event, ..]) => {
            AttachTarget::Tracepoint { category: (*category).into(), event: (*event).into() }
        }
        ("tracepoint", _) => AttachTarget::Tracepoint { category: "*".into(), event: wild(name) },
        ("rawtracepoint", [module, event, ..]) => {
            AttachTarget::RawTracepoint { module: wild(module), event: wild(event) }
        }
        ("rawtracepoint", _) => AttachTarget::RawTracepoint { module, event: wild(name) },
        ("fentry" | "fexit", [module, function, ..]) => AttachTarget::Fentry {
            module: (*module).into(),
            function: wild(function),
            at_exit: kind == "fexit",
        },
        ("fentry" | "fexit", _) => {
            AttachTarget::Fentry { module, function: wild(name), at_exit: kind == "fexit" }
        }
        ("iter", _) => AttachTarget::Iter { object: name.into(), pin: String::new() },
        ("uprobe" | "uretprobe", [path, function @ ..]) => AttachTarget::Uprobe {
            path: (*path).into(),
            function: names(function).to_owned(),
            offset: 0,
            address: None,
            language: String::new(),
            at_return: kind == "uretprobe",
        },
        ("usdt", [path, rest @ ..]) => {
            let (provider, name) = match rest {
                [provider, name] => (*provider, *name),
                [name] => ("*", *name),
                _ => ("*", "*"),
            };
            AttachTarget::Usdt {
                path: (*path).into(),
                provider: provider.into(),
                name: name.into(),
                site: None,
            }
        }
        _ => AttachTarget::Kprobe {
            module: if rest.len() > 1 { name.to_owned() } else { module },
            function: wild(rest.last().copied().unwrap_or("*")),
            offset: 0,
            address: None,
            at_return: kind == "kretprobe",
        },
    }
}

/// The list, which is searched by patterns, shows whether a function exists: a name becomes one
/// that stands for itself.
fn wild(name: &str) -> String {
    match (name.contains(['*', '?', '[']), name.chars().next()) {
        (false, Some(first)) => format!("[{first}]{}", &name[first.len_utf8()..]),
        _ => name.to_owned(),
    }
}

fn names<'p>(rest: &[&'p str]) -> &'p str {
    rest.first().copied().unwrap_or("*")
}

/// Fields of a tracepoint, arguments of a function: a line each.
fn write_arguments(
    out: &mut dyn Write,
    facts: &MachineFacts,
    point: &AttachPoint,
) -> io::Result<()> {
    if let AttachTarget::Tracepoint { category, event } = &point.target {
        let Ok(format) = facts.tracepoint_format(category, event) else { return Ok(()) };
        return format.own_fields().try_for_each(|field| {
            let (of, count) = field
                .type_text
                .split_at(field.type_text.find('[').unwrap_or(field.type_text.len()));
            writeln!(out, "    {} {}{count}", of.trim_end(), field.name)
        });
    }
    let parameters = facts.user_parameters(&point.target);
    parameters.iter().try_for_each(|(of, name)| writeln!(out, "    {of} {name}"))?;
    if let AttachTarget::Usdt { .. } = &point.target {
        let Ok(function) = facts.function(point) else { return Ok(()) };
        let mut arguments = function.arguments.iter();
        return arguments.try_for_each(|argument| {
            writeln!(out, "    {} {}", c_name(facts, &argument.ctype), argument.name)
        });
    }
    let Some(function) = prototype(facts, &point.target) else { return Ok(()) };
    for (n, (of, name)) in function.arguments.iter().enumerate() {
        match &point.target {
            AttachTarget::Kprobe { at_return: true, .. } => {}
            // Their programs know arguments by number.
            AttachTarget::Kprobe { .. } => writeln!(out, "    {of} arg{n}")?,
            _ if name.is_empty() => writeln!(out, "    {of}")?,
            _ => writeln!(out, "    {of} {name}")?,
        }
    }
    if function.returns == "void" {
        return Ok(());
    }
    match &point.target {
        AttachTarget::Fentry { at_exit: true, .. }
        | AttachTarget::Kprobe { at_return: true, .. } => {
            writeln!(out, "    {} retval", function.returns)
        }
        _ => Ok(()),
    }
}

/// Arguments of a function or a raw tracepoint of the kernel.
fn prototype(facts: &MachineFacts, target: &AttachTarget) -> Option<PrototypeText> {
    match target {
        AttachTarget::Fentry { module, function, .. }
        | AttachTarget::Kprobe { module, function, .. } => {
            facts.types_of_function(module, function)?.function_text(function)
        }
        AttachTarget::RawTracepoint { module, event } => {
            facts.types()?.space(module)?.tracepoint_text(event)
        }
        _ => None,
    }
}

/// Structures, unions and enumerations of the kernel that match `struct PATTERN` and its like; with
/// `-v` their members. None if the pattern is of something else.
fn list_types(
    pattern: &str,
    with_members: bool,
    facts: &MachineFacts,
    out: &mut dyn Write,
) -> io::Result<Option<Result<usize, String>>> {
    let Some((keyword, names)) = pattern.trim().split_once(char::is_whitespace) else {
        return Ok(None);
    };
    if !["struct", "union", "enum"].contains(&keyword) {
        return Ok(None);
    }
    let Some(types) = facts.types().and_then(|types| types.space("")) else {
        return Ok(Some(Err("this kernel has no BTF (/sys/kernel/btf/vmlinux)".into())));
    };
    let glob = match globset::Glob::new(names.trim()) {
        Ok(glob) => glob.compile_matcher(),
        Err(e) => return Ok(Some(Err(e.to_string()))),
    };
    let found = types.named_types(keyword, &|name| glob.is_match(name));
    for (name, id) in &found {
        match types.definition(*id).filter(|_| with_members) {
            Some(definition) => writeln!(out, "vmlinux: {definition};\n")?,
            None => writeln!(out, "{keyword} {name}")?,
        }
    }
    Ok(Some(Ok(found.len())))
}

/// A type as C has it.
fn c_name(facts: &MachineFacts, of: &kymo_bpf::CType) -> String {
    use kymo_bpf::CType;
    match of {
        CType::Void => "void".into(),
        CType::Text { .. } => "string".into(),
        CType::Boolean => "bool".into(),
        CType::Wide { signed } => if *signed { "int128" } else { "uint128" }.into(),
        CType::Float { size: 4 } => "float".into(),
        CType::Float { size: 8 } => "double".into(),
        CType::Float { .. } => "long double".into(),
        CType::Integer { is_char: true, .. } => "char".into(),
        CType::Integer { size, signed, .. } => {
            format!("{}int{}", if *signed { "" } else { "u" }, u32::from(*size) * 8)
        }
        CType::Enumeration { id, .. } => {
            let name = facts.enumerators(*id).map(|e| e.name.clone()).unwrap_or_default();
            format!("enum {name}")
        }
        CType::Pointer { target, .. } => format!("{} *", c_name(facts, target).trim_end()),
        CType::Array { element, count } => format!("{}[{count}]", c_name(facts, element)),
        CType::Record { id } => {
            let layout = facts.record_layout(*id);
            let keyword =
                if layout.as_ref().is_some_and(|l| l.is_union) { "union" } else { "struct" };
            format!("{keyword} {}", layout.map(|l| l.name.clone()).unwrap_or_default())
        }
    }
}

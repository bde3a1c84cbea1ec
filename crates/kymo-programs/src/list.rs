//! `-l`: the attach points of this machine that match, and with `-v` their arguments.

use std::io::{self, Write};

use kymo_bpf::{AttachPoint, AttachTarget, TypeFacts};

use crate::facts::{MachineFacts, PointCatalog};

/// Lists the attach points that match a pattern: `KIND:NAMES` or a part of names. Without one
/// the kernel's tracepoints and functions.
///
/// # Errors
/// If the output cannot be written, or the machine cannot tell.
pub fn list_points(
    pattern: &str,
    with_arguments: bool,
    facts: &MachineFacts,
    out: &mut dyn Write,
) -> io::Result<Result<usize, String>> {
    let catalog = PointCatalog { facts };
    let mut count = 0;
    let mut failure = None;
    for target in targets(pattern) {
        let point = AttachPoint { name: pattern.to_owned(), target };
        let points = match catalog.expand(&point) {
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

/// What a pattern asks for.
fn targets(pattern: &str) -> Vec<AttachTarget> {
    let tracepoint = |category: &str, event: &str| AttachTarget::Tracepoint {
        category: category.to_owned(),
        event: event.to_owned(),
    };
    let raw = |event: &str| AttachTarget::RawTracepoint {
        module: String::new(),
        event: event.to_owned(),
    };
    let kprobe = |function: &str, at_return| AttachTarget::Kprobe {
        module: String::new(),
        function: function.to_owned(),
        offset: 0,
        address: None,
        at_return,
    };
    let fentry = |function: &str, at_exit| AttachTarget::Fentry {
        module: String::new(),
        function: function.to_owned(),
        at_exit,
    };
    let uprobe = |path: &str, function: &str, at_return| AttachTarget::Uprobe {
        path: path.to_owned(),
        function: function.to_owned(),
        offset: 0,
        address: None,
        language: String::new(),
        at_return,
    };
    let software = |event: &str| AttachTarget::Software { event: event.to_owned(), period: 0 };
    let parts: Vec<&str> = pattern.split(':').collect();
    match parts.as_slice() {
        [""] | ["*"] => vec![tracepoint("*", "*"), raw("*"), kprobe("*", false)],
        ["tracepoint" | "t", category] => vec![tracepoint(category, "*")],
        ["tracepoint" | "t", category, event] => vec![tracepoint(category, event)],
        ["rawtracepoint" | "rt", event] => vec![raw(event)],
        ["kprobe" | "k", function] => vec![kprobe(&wild(function), false)],
        ["kretprobe" | "kr", function] => vec![kprobe(&wild(function), true)],
        ["fentry" | "f" | "kfunc", function] => vec![fentry(function, false)],
        ["fexit" | "fr" | "kretfunc", function] => vec![fentry(function, true)],
        ["uprobe" | "u", path, rest @ ..] => vec![uprobe(path, names(rest), false)],
        ["uretprobe" | "ur", path, rest @ ..] => vec![uprobe(path, names(rest), true)],
        ["usdt" | "U", path, rest @ ..] => {
            let (provider, name) = match rest {
                [provider, name] => (*provider, *name),
                [name] => ("*", *name),
                _ => ("*", "*"),
            };
            let (path, provider) = ((*path).to_owned(), provider.to_owned());
            vec![AttachTarget::Usdt { path, provider, name: name.to_owned() }]
        }
        ["software" | "s", event] => vec![software(event)],
        // A part of names, of any kind.
        _ => {
            let event = parts.last().copied().unwrap_or("*");
            vec![tracepoint("*", &wild(event)), kprobe(&wild(event), false)]
        }
    }
}

/// Whether a function exists is told by the list, which is searched by patterns: a name
/// becomes one that stands for itself.
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
    let Ok(function) = facts.function(point) else { return Ok(()) };
    for argument in &function.arguments {
        writeln!(out, "    {} {}", c_name(facts, &argument.ctype), argument.name)?;
    }
    match &point.target {
        AttachTarget::Fentry { at_exit: true, .. } => {
            writeln!(out, "    {} retval", c_name(facts, &function.returns))
        }
        _ => Ok(()),
    }
}

/// A type as C has it.
fn c_name(facts: &MachineFacts, of: &kymo_bpf::CType) -> String {
    use kymo_bpf::CType;
    match of {
        CType::Void => "void".into(),
        CType::Text { .. } => "string".into(),
        CType::Boolean => "bool".into(),
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

//! Attach points: `kprobe:vfs_read+8` to what it means.

use crate::lexer::{duration_unit, integer_value};
use crate::object::{AttachPoint, AttachTarget};

/// Replaces `$1` … by the program's parameters.
pub(super) fn with_parameters(spec: &str, parameters: &[String]) -> String {
    let mut out = String::new();
    let mut rest = spec;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match after[..digits].parse::<usize>() {
            Ok(n) => {
                let value = n.checked_sub(1).and_then(|n| parameters.get(n));
                out.push_str(value.map_or("", String::as_str));
            }
            Err(_) => out.push('$'),
        }
        rest = &after[digits..];
    }
    out + rest
}

/// Reads an attach point.
pub(crate) fn parse_point(spec: &str) -> Result<AttachPoint, String> {
    // `name=probe` gives the point a name of its own.
    let spec = match spec.split_once('=') {
        Some((name, rest)) if name.chars().all(|c| c.is_alphanumeric() || c == '_') => rest,
        _ => spec,
    };
    let (kind, rest) = spec.split_once(':').unwrap_or((spec, ""));
    let parts: Vec<&str> = if rest.is_empty() { Vec::new() } else { rest.split(':').collect() };
    let (kind, target) = parse_target(kind, &parts).map_err(|what| format!("{spec}: {what}"))?;
    let name = if rest.is_empty() { kind.to_owned() } else { format!("{kind}:{rest}") };
    Ok(AttachPoint { name, target })
}

fn parse_target(kind: &str, parts: &[&str]) -> Result<(&'static str, AttachTarget), String> {
    Ok(match kind {
        "BEGIN" | "begin" if parts.is_empty() => {
            (if kind == "BEGIN" { "BEGIN" } else { "begin" }, AttachTarget::Begin)
        }
        "END" | "end" if parts.is_empty() => {
            (if kind == "END" { "END" } else { "end" }, AttachTarget::End)
        }
        "self" => match parts {
            ["signal", name @ "SIGUSR1"] => ("self", AttachTarget::SelfSignal((*name).to_owned())),
            _ => return Err("the only one is self:signal:SIGUSR1".into()),
        },
        "test" => ("test", AttachTarget::Test(parts.join(":"))),
        "bench" => ("bench", AttachTarget::Test(parts.join(":"))),
        "tracepoint" | "t" => match parts {
            [category, event] => {
                let (category, event) = ((*category).to_owned(), (*event).to_owned());
                ("tracepoint", AttachTarget::Tracepoint { category, event })
            }
            _ => return Err("write tracepoint:CATEGORY:EVENT".into()),
        },
        "rawtracepoint" | "rt" => {
            let (module, event) = match parts {
                [event] => ("", *event),
                [module, event] => (*module, *event),
                _ => return Err("write rawtracepoint:EVENT".into()),
            };
            let (module, event) = (module.to_owned(), event.to_owned());
            ("rawtracepoint", AttachTarget::RawTracepoint { module, event })
        }
        "kprobe" | "k" => ("kprobe", kernel_probe(parts, false)?),
        "kretprobe" | "kr" => ("kretprobe", kernel_probe(parts, true)?),
        "fentry" | "f" | "kfunc" => ("fentry", function_probe(parts, false)?),
        "fexit" | "fr" | "kretfunc" => ("fexit", function_probe(parts, true)?),
        "uprobe" | "u" => ("uprobe", user_probe(parts, false)?),
        "uretprobe" | "ur" => ("uretprobe", user_probe(parts, true)?),
        "usdt" | "U" => {
            let (path, provider, name) = match parts {
                [path, name] => (*path, "", *name),
                [path, provider, name] => (*path, *provider, *name),
                [name] => ("", "", *name),
                _ => return Err("write usdt:PATH:[PROVIDER:]NAME".into()),
            };
            let [path, provider, name] = [path, provider, name].map(str::to_owned);
            ("usdt", AttachTarget::Usdt { path, provider, name, site: None })
        }
        "profile" | "p" => {
            let (period_ns, hertz) = rate(parts)?;
            ("profile", AttachTarget::Profile { period_ns, hertz })
        }
        "interval" | "i" => {
            let (period_ns, hertz) = rate(parts)?;
            ("interval", AttachTarget::Interval { period_ns, hertz })
        }
        "software" | "s" => {
            let (event, period) = counted(parts)?;
            ("software", AttachTarget::Software { event, period })
        }
        "hardware" | "h" => {
            let (event, period) = counted(parts)?;
            ("hardware", AttachTarget::Hardware { event, period })
        }
        "watchpoint" | "w" => ("watchpoint", watchpoint(parts, false)?),
        "asyncwatchpoint" | "aw" => ("asyncwatchpoint", watchpoint(parts, true)?),
        "iter" | "it" => {
            let object = parts.first().ok_or("write iter:task or iter:task_file")?;
            let pin = parts.get(1..).unwrap_or_default().join(":");
            ("iter", AttachTarget::Iter { object: (*object).to_owned(), pin })
        }
        _ => return Err(unknown_kind(kind)),
    })
}

fn unknown_kind(kind: &str) -> String {
    const KINDS: &[&str] = &[
        "BEGIN",
        "END",
        "tracepoint",
        "rawtracepoint",
        "kprobe",
        "kretprobe",
        "fentry",
        "fexit",
        "uprobe",
        "uretprobe",
        "usdt",
        "profile",
        "interval",
        "software",
        "hardware",
        "watchpoint",
        "iter",
    ];
    format!("no such probe type {kind:?}; probe types are {}", KINDS.join(", "))
}

/// `name+0x10` → name, offset; a number alone is an address.
fn place(text: &str) -> Result<(String, u64, Option<u64>), String> {
    if text.starts_with(|c: char| c.is_ascii_digit())
        && let Some(address) = integer_value(text)
    {
        return Ok((String::new(), 0, Some(address)));
    }
    match text.split_once('+') {
        Some((name, offset)) => {
            let offset =
                integer_value(offset).ok_or_else(|| format!("not an offset: {offset:?}"))?;
            Ok((name.to_owned(), offset, None))
        }
        None => Ok((text.to_owned(), 0, None)),
    }
}

fn kernel_probe(parts: &[&str], at_return: bool) -> Result<AttachTarget, String> {
    let (module, function) = match parts {
        [function] => ("", *function),
        [module, function] => (*module, *function),
        _ => return Err("write kprobe:[MODULE:]FUNCTION[+OFFSET]".into()),
    };
    let (function, offset, address) = place(function)?;
    if at_return && offset != 0 {
        return Err("return probes cannot have an offset".into());
    }
    if function.is_empty() && address.is_none() {
        return Err("function has no name".into());
    }
    let module = module.to_owned();
    Ok(AttachTarget::Kprobe { module, function, offset, address, at_return })
}

fn function_probe(parts: &[&str], at_exit: bool) -> Result<AttachTarget, String> {
    let (module, function) = match parts {
        [function] => (String::new(), *function),
        [module, function] => ((*module).to_owned(), *function),
        ["bpf", id, function] => (format!("bpf:{id}"), *function),
        _ => return Err("write fentry:[MODULE:]FUNCTION".into()),
    };
    Ok(AttachTarget::Fentry { module, function: function.to_owned(), at_exit })
}

fn user_probe(parts: &[&str], at_return: bool) -> Result<AttachTarget, String> {
    let (path, language, function) = match parts {
        [path, "cpp", function @ ..] if !function.is_empty() => (*path, "cpp", function.join(":")),
        // C++ names hold colons.
        [path, function @ ..] if !function.is_empty() => (*path, "", function.join(":")),
        // Of the program of `-p` or `-c`.
        [function] if !function.is_empty() => ("", "", (*function).to_owned()),
        _ => return Err("write uprobe:PATH:FUNCTION[+OFFSET]".into()),
    };
    // `BINARY@FILE:LINE`
    if let Some((binary, file)) = path.rsplit_once('@')
        && function.parse::<u32>().is_ok_and(|line| line > 0)
        && file.contains('.')
        && !file.contains('/')
    {
        let function = format!("{file}:{function}");
        let (path, language) = (binary.to_owned(), String::new());
        return Ok(AttachTarget::Uprobe {
            path,
            function,
            offset: 0,
            address: None,
            language,
            at_return,
        });
    }
    let (function, offset, address) = place(&function)?;
    if at_return && offset != 0 {
        return Err("return probes cannot have an offset".into());
    }
    let (path, language) = (path.to_owned(), language.to_owned());
    Ok(AttachTarget::Uprobe { path, function, offset, address, language, at_return })
}

/// `hz:99`, `ms:10`, `1s`, `100` (microseconds are `us`): period in ns or hertz.
fn rate(parts: &[&str]) -> Result<(u64, u64), String> {
    let wrong = || "write a rate as hz:99, ms:100, s:1 or 10ms".to_owned();
    let (unit, count) = match parts {
        [unit, count] => (*unit, integer_value(count).ok_or_else(wrong)?),
        [count] => ("ns", integer_value(count).ok_or_else(wrong)?),
        _ => return Err(wrong()),
    };
    if count == 0 {
        return Err("rate must not be 0".into());
    }
    if unit == "hz" {
        return Ok((0, count));
    }
    let period = duration_unit(unit).ok_or_else(wrong)?.checked_mul(count).ok_or_else(wrong)?;
    Ok((period, 0))
}

fn counted(parts: &[&str]) -> Result<(String, u64), String> {
    match parts {
        [event] => Ok(((*event).to_owned(), 0)),
        [event, count] => {
            let count = integer_value(count).ok_or_else(|| format!("not a count: {count:?}"))?;
            Ok(((*event).to_owned(), count))
        }
        _ => Err("write software:EVENT[:COUNT]".into()),
    }
}

fn watchpoint(parts: &[&str], asynchronous: bool) -> Result<AttachTarget, String> {
    let [place, length, mode] = parts else {
        return Err("write watchpoint:ADDRESS:LENGTH:MODE".into());
    };
    let (address, function, argument) = match integer_value(place) {
        Some(address) => (address, String::new(), 0),
        None => {
            let parts = place.rsplit_once("+arg").and_then(|(function, n)| {
                Some((function, n.parse::<u8>().ok().filter(|n| *n < 6)?))
            });
            let (function, argument) = parts.ok_or(
                "location of a watchpoint must be an address or FUNCTION+argN, in a \
                             process",
            )?;
            (0, function.to_owned(), argument)
        }
    };
    let length = match *length {
        "1" => 1,
        "2" => 2,
        "4" => 4,
        "8" => 8,
        _ => return Err("length of a watchpoint must be 1, 2, 4 or 8".into()),
    };
    if mode.is_empty() || !mode.chars().all(|c| "rwx".contains(c)) {
        return Err("mode of a watchpoint must consist of r, w and x".into());
    }
    let mode = (*mode).to_owned();
    let path = String::new();
    Ok(AttachTarget::Watchpoint { address, function, argument, path, length, mode, asynchronous })
}

//! Names of events and groups: from functions, binaries and USDT probes; a number where
//! probe points of one description record different arguments, or where a name is taken.
//! The kernel takes letters, digits and `_`; names of Rust and C++ functions have more,
//! so they are made safe.

use kymo_model::glob::is_glob;
use kymo_model::probe::{FetchType, ProbeDefinition};

use crate::grammar::ProbeDescription;
use crate::point_finder::ProbePoint;

/// Group of the kernel's probes, as perf has it.
pub const KERNEL_GROUP: &str = "probe";

/// Names longer than this are refused by the kernel.
const LONGEST: usize = 63;

/// The name of an event on a function: without the suffixes that compilers and
/// versions add; of a path like `a::<T as B>::f` the last name; other
/// characters become `_`.
pub fn event_name(function: &str, ret: bool) -> String {
    let last = last_component(function);
    let stem = last.strip_prefix('.').unwrap_or(last);
    let stem = match stem.find(['.', '@']) {
        Some(at) if at > 0 => &stem[..at],
        _ => stem,
    };
    let mut name = String::with_capacity(stem.len());
    for c in stem.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
        // Runs of foreign characters give one underscore.
        if !(c == '_' && name.ends_with('_') && !stem.contains("__")) {
            name.push(c);
        }
    }
    let mut name = name.trim_end_matches('_').to_owned();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    let suffix = if ret { "__return" } else { "" };
    name.truncate(LONGEST - suffix.len());
    name + suffix
}

/// Returns the part after the last `::` that is outside of `<…>`, without generic arguments. A
/// closure is named with the function that holds it.
fn last_component(path: &str) -> &str {
    let mut depth = 0i32;
    let mut starts = vec![0];
    let mut generics = path.len();
    let bytes = path.as_bytes();
    for (i, b) in bytes.iter().enumerate() {
        match b {
            b'<' => {
                if depth == 0 {
                    generics = i;
                }
                depth += 1;
            }
            b'>' if i > 0 && bytes.get(i - 1) != Some(&b'-') => depth -= 1,
            b':' if depth == 0 && i > 0 && bytes.get(i - 1) == Some(&b':') => {
                starts.push(i + 1);
                generics = path.len();
            }
            _ => {}
        }
    }
    let mut start = starts.pop().unwrap_or(0);
    if path.get(start..).is_some_and(|s| s.starts_with("{closure")) {
        start = starts.pop().unwrap_or(start);
        generics = path.len();
    }
    let end = if generics > start { generics } else { path.len() };
    path.get(start..end).unwrap_or(path)
}

/// perf's group for probes of a binary: `probe_` and the file's name up to the
/// first character that a group cannot have.
pub fn group_of_binary(path: &str) -> String {
    let base = path.rsplit('/').find(|p| !p.is_empty()).unwrap_or(path);
    let end = base.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(base.len());
    let mut group = format!("probe_{}", &base[..end]);
    group.truncate(LONGEST);
    group
}

/// The event's name: given, or of the function that the description means.
pub(crate) fn event_of_point(d: &ProbeDescription, point: &ProbePoint) -> String {
    if let Some(event) = &d.event {
        return if d.point.ret { format!("{event}__return") } else { event.clone() };
    }
    let function = d.point.function.as_deref().filter(|f| d.point.address.is_none() && !is_glob(f));
    let base = event_name(function.unwrap_or(&point.function), d.point.ret);
    match d.point.line {
        Some(line) if line > 0 && function.is_some() => format!("{base}_L{line}"),
        _ => base,
    }
}

/// Group and name of a USDT probe's event: given, or perf's `sdt_PROVIDER:NAME`.
pub(crate) fn usdt_event(d: &ProbeDescription, provider: &str, name: &str) -> (String, String) {
    let group = d.group.clone().unwrap_or_else(|| format!("sdt_{}", event_name(provider, false)));
    (group, d.event.clone().unwrap_or_else(|| event_name(name, false)))
}

/// Probe points of one event must record the same names and types. Where they do not
/// (instances of a generic function), they become events with a number.
pub(crate) fn split_by_signature(definitions: &mut [ProbeDefinition]) {
    type Signature = (Option<String>, Vec<(Option<String>, Option<FetchType>)>);
    let mut seen: Vec<Signature> = Vec::new();
    for d in definitions {
        let args = d.args.iter().map(|a| (a.name.clone(), a.fetch_type.clone())).collect();
        let signature = (d.event.clone(), args);
        let number = seen.iter().filter(|s| s.0 == d.event).position(|s| *s == signature);
        let number = number.unwrap_or_else(|| {
            let n = seen.iter().filter(|s| s.0 == d.event).count();
            seen.push(signature);
            n
        });
        if number > 0 {
            d.event = d.event.as_ref().map(|event| format!("{event}_{number}"));
        }
    }
}

/// Most events of one name that get a number.
const MOST_NUMBERED: usize = 1024;

/// Handling of a name that an event of the running kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenName {
    /// The new event is refused.
    Refuse,
    /// The new event gets a number.
    Number,
}

/// Reason why an event gets no name.
#[derive(Debug, thiserror::Error)]
pub enum NamingError {
    /// The name is taken.
    #[error(
        "an event {group}:{event} exists; remove it with kymo probe --del {group}:{event}, or add this one under another name with --force"
    )]
    Taken {
        /// Its group.
        group: String,
        /// Its name.
        event: String,
    },
    /// All numbers are taken.
    #[error("too many events named {group}:{event}_N")]
    TooMany {
        /// Their group.
        group: String,
        /// Their name.
        event: String,
    },
}

/// Names of events that are taken, and what happens with those.
#[derive(Debug)]
pub struct EventNames {
    taken: Vec<(String, String)>,
    policy: TakenName,
}

impl EventNames {
    /// Names beside events that exist: group and name of each.
    pub fn new(existing: impl IntoIterator<Item = (String, String)>, policy: TakenName) -> Self {
        EventNames { taken: existing.into_iter().collect(), policy }
    }

    /// Gives each event a name that is free; probe points of one event share it.
    pub fn assign(&mut self, definitions: &mut [ProbeDefinition]) -> Result<(), NamingError> {
        let mut assigned: Vec<(String, String)> = Vec::new();
        for d in definitions.iter_mut() {
            // Without a name the kernel chooses one that is free.
            let Some(base) = d.event.clone() else { continue };
            if let Some((_, name)) = assigned.iter().find(|(known, _)| *known == base) {
                d.event = Some(name.clone());
                continue;
            }
            let name = self.free_name(&d.group, &base)?;
            d.event = Some(name.clone());
            self.taken.push((d.group.clone(), name.clone()));
            assigned.push((base, name));
        }
        Ok(())
    }

    fn free_name(&self, group: &str, base: &str) -> Result<String, NamingError> {
        let is_taken = |name: &str| self.taken.iter().any(|(g, e)| g == group && e == name);
        if !is_taken(base) {
            return Ok(base.to_owned());
        }
        if self.policy == TakenName::Refuse {
            return Err(NamingError::Taken { group: group.to_owned(), event: base.to_owned() });
        }
        (1..MOST_NUMBERED)
            .map(|n| format!("{base}_{n}"))
            .find(|name| !is_taken(name))
            .ok_or_else(|| NamingError::TooMany { group: group.to_owned(), event: base.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::is_symbol;

    #[test]
    fn names_are_safe() {
        for (function, event) in [
            ("vfs_read", "vfs_read"),
            ("__x64_sys_read", "__x64_sys_read"),
            ("foo.isra.0", "foo"),
            ("malloc@@GLIBC_2.2.5", "malloc"),
            (".hidden", "hidden"),
            ("mycrate::module::func", "func"),
            ("<rp::P as rp::Area>::area", "area"),
            ("rp::generic<i32>", "generic"),
            ("rp::main::{closure#0}", "main_closure_0"),
            ("operator==", "operator"),
            ("ns::Foo<int>::bar", "bar"),
        ] {
            assert_eq!(event_name(function, false), event, "{function}");
            assert!(is_symbol(&event_name(function, true)));
        }
        assert_eq!(event_name("vfs_read", true), "vfs_read__return");
        assert_eq!(event_name(&"x".repeat(90), true).len(), 63);
        assert_eq!(group_of_binary("/usr/lib/libc.so.6"), "probe_libc");
        assert_eq!(group_of_binary("./a.out"), "probe_a");
    }
    #[test]
    fn taken_names_get_a_number_or_are_refused() {
        let definitions = || -> Vec<ProbeDefinition> {
            ["p:g/a /b:0x1", "p:g/a /b:0x2 n=%di:u8", "p:g/c /b:0x3", "p:g/a /b:0x4"]
                .iter()
                .filter_map(|line| ProbeDefinition::parse(line))
                .collect()
        };
        let names = |all: &[ProbeDefinition]| -> Vec<String> {
            all.iter().map(ProbeDefinition::full_name).collect()
        };
        let mut split = definitions();
        split_by_signature(&mut split);
        assert_eq!(names(&split), ["g:a", "g:a_1", "g:c", "g:a"]);
        let existing = || [("g".to_owned(), "a".to_owned()), ("g".to_owned(), "a_1".to_owned())];
        let mut numbered = definitions();
        EventNames::new(existing(), TakenName::Number).assign(&mut numbered).unwrap();
        assert_eq!(names(&numbered), ["g:a_2", "g:a_2", "g:c", "g:a_2"]);
        let refused = EventNames::new(existing(), TakenName::Refuse).assign(&mut definitions());
        assert!(refused.unwrap_err().to_string().contains("--del g:a"));
    }
}

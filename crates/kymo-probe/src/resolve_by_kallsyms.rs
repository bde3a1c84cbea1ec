//! Resolving without the kernel's binary: the running kernel's own list of symbols
//! (`/proc/kallsyms`) is enough for functions, offsets and returns.

use kymo_model::glob::{glob_match, is_glob};
use kymo_model::probe::{ProbeDefinition, ProbeKind, ProbeTarget};

use crate::grammar::ProbeDescription;
use crate::naming;
use crate::point_finder::{PointError, ProbePoint};
use crate::resolve::{ResolveError, ResolveOptions, ResolvedProbe, verbatim_arg};

/// Definitions for `d`, by the text of `/proc/kallsyms`; of
/// one module only, if that is given.
pub fn resolve_by_kallsyms(
    d: &ProbeDescription,
    options: &ResolveOptions,
    kallsyms: &str,
    module: Option<&str>,
) -> Result<ResolvedProbe, ResolveError> {
    let wanted = d.point.function.as_deref().unwrap_or_default();
    let glob = is_glob(wanted);
    let mut resolved = ResolvedProbe::default();
    if let Some(addr) = d.point.address {
        let point = ProbePoint { function: format!("abs_{addr:x}"), ..located(d, addr) };
        resolved.push(d, point, ProbeTarget::Address(addr));
        return Ok(resolved);
    }
    for symbol in functions(kallsyms) {
        let hit = symbol.name == wanted || (glob && glob_match(wanted, symbol.name));
        if !hit || module.is_some_and(|m| symbol.module != Some(m)) {
            continue;
        }
        if resolved.points.len() >= options.max_probes {
            return Err(PointError::TooMany { limit: options.max_probes }.into());
        }
        let point = ProbePoint { function: symbol.name.to_owned(), ..located(d, symbol.addr) };
        let target = ProbeTarget::Symbol {
            module: symbol.module.map(str::to_owned),
            symbol: symbol.name.to_owned(),
            offset: Some(d.point.offset),
        };
        resolved.push(d, point, target);
    }
    if resolved.definitions.is_empty() {
        return Err(ResolveError::NoSymbol {
            name: wanted.to_owned(),
            path: module.map_or_else(|| "the running kernel".to_owned(), |m| format!("module {m}")),
            near: near(kallsyms, wanted),
        });
    }
    // A name that several functions have means none of them for the kernel.
    if !glob && resolved.definitions.len() > 1 {
        return Err(PointError::Refused(format!(
            "{} functions of the running kernel are named {wanted}; selecting one needs its \
             vmlinux (-k)",
            resolved.definitions.len()
        ))
        .into());
    }
    Ok(resolved)
}

/// Names of functions in the text of `/proc/kallsyms`.
pub fn kallsyms_functions<'a>(
    kallsyms: &'a str,
    module: Option<&'a str>,
) -> impl Iterator<Item = &'a str> {
    functions(kallsyms).filter(move |s| module.is_none_or(|m| s.module == Some(m))).map(|s| s.name)
}

struct Symbol<'a> {
    addr: u64,
    name: &'a str,
    module: Option<&'a str>,
}

fn functions(kallsyms: &str) -> impl Iterator<Item = Symbol<'_>> {
    kallsyms.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let addr = u64::from_str_radix(words.next()?, 16).ok()?;
        if !matches!(words.next()?, "t" | "T" | "w" | "W") {
            return None;
        }
        let name = words.next()?;
        let module = words.next().map(|m| m.trim_matches(['[', ']']));
        Some(Symbol { addr, name, module })
    })
}

fn located(d: &ProbeDescription, addr: u64) -> ProbePoint {
    ProbePoint {
        addr: addr.wrapping_add(d.point.offset),
        entry: Some(addr),
        owner: None,
        function: String::new(),
        args: d.args.iter().filter_map(verbatim_arg).collect(),
        line: None,
    }
}

fn near(kallsyms: &str, wanted: &str) -> String {
    let mut names: Vec<&str> =
        functions(kallsyms).map(|s| s.name).filter(|n| n.contains(wanted)).take(4).collect();
    names.dedup();
    if names.is_empty() || wanted.is_empty() {
        String::new()
    } else {
        format!("; there are {}", names.join(", "))
    }
}

impl ResolvedProbe {
    fn push(&mut self, d: &ProbeDescription, point: ProbePoint, target: ProbeTarget) {
        self.definitions.push(ProbeDefinition {
            kind: ProbeKind::from_return(d.point.ret),
            group: d.group.clone().unwrap_or_else(|| naming::KERNEL_GROUP.to_owned()),
            event: Some(naming::event_of_point(d, &point)),
            target,
            args: point.args.clone(),
        });
        self.points.push(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_symbols::debug_files::SourceDirectories;

    const TEXT: &str = "ffffffff81000000 T vfs_read\nffffffff81000100 T vfs_readv\n\
                        ffffffff81000200 t twin\nffffffff81000300 t twin\nffffffff81000400 D data\n\
                        ffffffffc0000000 t mod_fn\t[my_mod]\n";

    fn resolve(text: &str, module: Option<&str>) -> Result<Vec<String>, String> {
        let sources = SourceDirectories::default();
        let options = ResolveOptions { no_inlines: false, max_probes: 8, sources };
        let d = ProbeDescription::parse(text).unwrap();
        let resolved =
            resolve_by_kallsyms(&d, &options, TEXT, module).map_err(|e| e.to_string())?;
        Ok(resolved.definitions.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn functions_by_name() {
        assert_eq!(resolve("vfs_read %di", None).unwrap(), ["p:probe/vfs_read vfs_read+0 %di"]);
        assert_eq!(
            resolve("vfs_read%return $retval", None).unwrap(),
            ["r:probe/vfs_read__return vfs_read+0 $retval"]
        );
        assert_eq!(resolve("vfs_*+8", None).unwrap().len(), 2);
        assert_eq!(resolve("mod_fn", Some("my_mod")).unwrap(), ["p:probe/mod_fn my_mod:mod_fn+0"]);
        assert!(resolve("twin", None).unwrap_err().contains("2 functions"));
        assert!(resolve("data", None).is_err());
        assert!(resolve("vfs", None).unwrap_err().contains("vfs_read"));
        assert_eq!(
            resolve("0xffffffff81000010", None).unwrap(),
            ["p:probe/abs_ffffffff81000010 0xffffffff81000010"]
        );
    }
}

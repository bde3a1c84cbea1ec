//! Planning without the kernel's binary: the running kernel's own list of
//! symbols is enough for functions, offsets and returns.

use kymo_debuginfo::dwarf::{FindError, Located};
use kymo_debuginfo::probe::{Definition, Description, Place, glob_match, is_glob};

use super::plan::{Plan, PlanError, Settings, name_of, raw_arg};

/// What the kernel is to be told for `d`, by the text of `/proc/kallsyms`; of
/// one module only, if that is given.
pub fn plan_by_kallsyms(
    d: &Description,
    settings: &Settings,
    kallsyms: &str,
    module: Option<&str>,
) -> Result<Plan, PlanError> {
    let wanted = d.point.function.as_deref().unwrap_or_default();
    let glob = is_glob(wanted);
    let mut plan = Plan { definitions: Vec::new(), places: Vec::new(), notes: Vec::new() };
    if let Some(addr) = d.point.address {
        let place = Located { function: format!("abs_{addr:x}"), ..located(d, addr) };
        plan.push(d, place, Place::Address(addr));
        return Ok(plan);
    }
    for symbol in functions(kallsyms) {
        let hit = symbol.name == wanted || (glob && glob_match(wanted, symbol.name));
        if !hit || module.is_some_and(|m| symbol.module != Some(m)) {
            continue;
        }
        if plan.places.len() >= settings.max_probes {
            return Err(FindError::TooMany { limit: settings.max_probes }.into());
        }
        let place = Located { function: symbol.name.to_owned(), ..located(d, symbol.addr) };
        let at = Place::Kernel {
            module: symbol.module.map(str::to_owned),
            symbol: symbol.name.to_owned(),
            offset: d.point.offset,
        };
        plan.push(d, place, at);
    }
    if plan.definitions.is_empty() {
        return Err(PlanError::NoSymbol {
            name: wanted.to_owned(),
            path: module.map_or_else(|| "the running kernel".to_owned(), |m| format!("module {m}")),
            near: near(kallsyms, wanted),
        });
    }
    // A name that several functions have means none of them for the kernel.
    if !glob && plan.definitions.len() > 1 {
        return Err(FindError::Refused(format!(
            "{} functions of the running kernel are called {wanted}; the kernel cannot be told which one without its vmlinux (-k)",
            plan.definitions.len()
        ))
        .into());
    }
    Ok(plan)
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

fn located(d: &Description, addr: u64) -> Located {
    Located {
        addr: addr.wrapping_add(d.point.offset),
        entry: Some(addr),
        owner: None,
        function: String::new(),
        args: d.args.iter().filter_map(raw_arg).collect(),
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

impl Plan {
    fn push(&mut self, d: &Description, place: Located, at: Place) {
        self.definitions.push(Definition {
            ret: d.point.ret,
            group: d.group.clone().unwrap_or_else(|| "probe".to_owned()),
            event: name_of(d, &place),
            place: at,
            args: place.args.clone(),
        });
        self.places.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::SourceFolders;

    const TEXT: &str = "ffffffff81000000 T vfs_read\nffffffff81000100 T vfs_readv\n\
                        ffffffff81000200 t twin\nffffffff81000300 t twin\nffffffff81000400 D data\n\
                        ffffffffc0000000 t mod_fn\t[my_mod]\n";

    fn plan(text: &str, module: Option<&str>) -> Result<Vec<String>, String> {
        let settings =
            Settings { no_inlines: false, max_probes: 8, sources: SourceFolders::default() };
        let d = Description::parse(text).unwrap();
        let plan = plan_by_kallsyms(&d, &settings, TEXT, module).map_err(|e| e.to_string())?;
        Ok(plan.definitions.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn functions_by_name() {
        assert_eq!(plan("vfs_read %di", None).unwrap(), ["p:probe/vfs_read vfs_read+0 %di"]);
        assert_eq!(
            plan("vfs_read%return $retval", None).unwrap(),
            ["r:probe/vfs_read__return vfs_read+0 $retval"]
        );
        assert_eq!(plan("vfs_*+8", None).unwrap().len(), 2);
        assert_eq!(plan("mod_fn", Some("my_mod")).unwrap(), ["p:probe/mod_fn my_mod:mod_fn+0"]);
        assert!(plan("twin", None).unwrap_err().contains("2 functions"));
        assert!(plan("data", None).is_err());
        assert!(plan("vfs", None).unwrap_err().contains("vfs_read"));
        assert_eq!(
            plan("0xffffffff81000010", None).unwrap(),
            ["p:probe/abs_ffffffff81000010 0xffffffff81000010"]
        );
    }
}

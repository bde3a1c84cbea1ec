//! Cycles of files inside a crate that span modules: two modules that need each other are
//! one module in two places. A cycle that is meant has its reason beside it, in a line
//! `// tidy: cycle with MODULE: reason` of the file whose arrow closes it; those that were
//! there before the rule are listed in `cycles.txt` and may only become fewer.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Checkout, TextFile, code};

/// Modules whose children count as modules of the crate: (package, module).
const TRANSPARENT: &[(&str, &str)] = &[("kymo", "commands")];

const LIST: &str = "xtask/src/tidy/cycles.txt";

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let list = checkout.texts.iter().find(|file| file.name == LIST);
    let allowed = list.map(|file| allowed(&file.text)).unwrap_or_default();
    let mut packages: BTreeMap<&str, Vec<&TextFile>> = BTreeMap::new();
    for file in checkout.sources() {
        let in_crate = file.name.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
        if let Some((package, _)) = in_crate {
            packages.entry(package).or_default().push(file);
        }
    }
    let mut found = Vec::new();
    for (package, files) in packages {
        for modules in Graph::build(package, &files).cycles() {
            let is_allowed =
                allowed.iter().any(|(p, known)| *p == package && modules.is_subset(known));
            if !is_allowed {
                let names: Vec<_> = modules.iter().map(String::as_str).collect();
                found.push(format!(
                    "{package}: files of these modules need each other: {}; part them, or say \
                     why in a line `// tidy: cycle with MODULE: reason`",
                    names.join(" ")
                ));
            }
        }
    }
    found
}

/// Lines `package: module module …`; `#` begins a comment.
fn allowed(list: &str) -> Vec<(&str, BTreeSet<String>)> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(package, rest)| (package, rest.split_whitespace().map(str::to_owned).collect()))
        .collect()
}

/// The files of a crate and which needs which.
struct Graph {
    /// The module of the crate that a file belongs to; none for a table of contents.
    modules: Vec<Option<String>>,
    needs: Vec<BTreeSet<usize>>,
}

impl Graph {
    fn build(package: &str, files: &[&TextFile]) -> Graph {
        let paths: Vec<Vec<&str>> = files.iter().map(|file| module_path(&file.name)).collect();
        let by_path: HashMap<&[&str], usize> =
            paths.iter().enumerate().map(|(i, path)| (path.as_slice(), i)).collect();
        let modules: Vec<Option<String>> =
            paths.iter().map(|path| module_of_crate(package, path)).collect();
        let root = by_path.get(&[][..]);
        let exported = root.map(|i| exports(&files[*i].split.code, &by_path)).unwrap_or_default();
        let mut needs = vec![BTreeSet::new(); files.len()];
        for (i, file) in files.iter().enumerate() {
            let excused: Vec<&str> = file.text.lines().filter_map(excused_module).collect();
            for path in paths_of(code::without_tests(&file.split.code), &paths[i], &by_path) {
                let Some(target) = resolve(&path, &by_path, &exported) else { continue };
                let excuse = modules[target].as_deref().is_some_and(|m| excused.contains(&m));
                if target != i && modules[target].is_some() && !excuse {
                    needs[i].insert(target);
                }
            }
        }
        Graph { modules, needs }
    }

    /// The modules of each cycle that spans more than one.
    fn cycles(&self) -> Vec<BTreeSet<String>> {
        let reached: Vec<BTreeSet<usize>> =
            (0..self.needs.len()).map(|from| self.reached(from)).collect();
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        for i in 0..self.needs.len() {
            let cycle: Vec<usize> =
                reached[i].iter().copied().filter(|j| reached[*j].contains(&i)).collect();
            if cycle.iter().any(|j| !seen.insert(*j)) {
                continue;
            }
            let modules: BTreeSet<String> =
                cycle.iter().filter_map(|j| self.modules[*j].clone()).collect();
            if modules.len() > 1 {
                found.push(modules);
            }
        }
        found
    }

    fn reached(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        // Tables of contents name everything.
        let mut todo = vec![from];
        while let Some(i) = todo.pop().filter(|i| self.modules[*i].is_some()) {
            todo.extend(self.needs[i].iter().filter(|j| reached.insert(**j)));
        }
        reached
    }
}

/// `crates/x/src/a/b.rs` and `crates/x/src/a/b/mod.rs` → a, b.
pub(super) fn module_path(name: &str) -> Vec<&str> {
    let inside = name.split_once("/src/").map_or(name, |(_, rest)| rest);
    let mut path: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    let is_root = path.len() == 1 && matches!(path[0], "lib" | "main");
    if is_root || path.last() == Some(&"mod") {
        path.pop();
    }
    path
}

fn module_of_crate(package: &str, path: &[&str]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    if TRANSPARENT.contains(&(package, first)) {
        return rest.first().map(|name| (*name).to_owned());
    }
    Some((*first).to_owned())
}

/// `// tidy: cycle with MODULE: reason`, if there is a reason.
fn excused_module(line: &str) -> Option<&str> {
    let (module, reason) = line.trim().strip_prefix("// tidy: cycle with ")?.split_once(':')?;
    (!reason.trim().is_empty()).then_some(module)
}

/// Names that the crate's table of contents takes from its modules.
fn exports<'t>(root: &'t str, files: &HashMap<&[&str], usize>) -> HashMap<&'t str, usize> {
    let paths = paths_of(root, &[], files);
    let named = paths.iter().filter(|path| path.len() > 1);
    named.filter_map(|path| Some((*path.last()?, longest(path, files)?))).collect()
}

fn longest(path: &[&str], files: &HashMap<&[&str], usize>) -> Option<usize> {
    (1..=path.len()).rev().find_map(|n| files.get(&path[..n]).copied())
}

fn resolve(
    path: &[&str],
    files: &HashMap<&[&str], usize>,
    exported: &HashMap<&str, usize>,
) -> Option<usize> {
    longest(path, files).or_else(|| exported.get(path.first()?).copied())
}

/// The paths within the crate that code names, from its root.
pub(super) fn paths_of<'t>(
    code: &'t str,
    of: &[&'t str],
    files: &HashMap<&[&str], usize>,
) -> Vec<Vec<&'t str>> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let behind_use = at > 0 && tokens[at - 1] == "use";
        let begin = at;
        at += 1;
        let mut base = of.to_vec();
        match tokens[begin] {
            _ if begin > 0 && tokens[begin - 1] == "::" => continue,
            "crate" => base.clear(),
            "self" => {}
            "super" => {
                base.pop();
                while tokens.get(at..at + 2) == Some(&["::", "super"]) {
                    base.pop();
                    at += 2;
                }
            }
            child if behind_use => {
                base.push(child);
                if !files.contains_key(base.as_slice()) {
                    continue;
                }
            }
            _ => continue,
        }
        if tokens.get(at) == Some(&"::") {
            at = tree(&tokens, at + 1, &base, &mut found);
        }
    }
    found
}

/// Reads the rest of a path or a tree of them, from `at` on; returns where it ends.
fn tree<'t>(
    tokens: &[&'t str],
    mut at: usize,
    base: &[&'t str],
    found: &mut Vec<Vec<&'t str>>,
) -> usize {
    let mut path = base.to_vec();
    loop {
        match tokens.get(at) {
            Some(&"{") => {
                at += 1;
                while let Some(token) = tokens.get(at).filter(|token| **token != "}") {
                    at = if *token == "," { at + 1 } else { tree(tokens, at, &path, found) };
                }
                return at + 1;
            }
            Some(word) if word.starts_with(code::is_word) => {
                if *word != "self" {
                    path.push(word);
                }
                at += 1;
            }
            Some(_) => {
                return {
                    found.push(path);
                    at + 1
                };
            }
            None => {
                return {
                    found.push(path);
                    at
                };
            }
        }
        if tokens.get(at) == Some(&"::") {
            at += 1;
            continue;
        }
        if tokens.get(at) == Some(&"as") {
            at += 2;
        }
        found.push(path);
        return at;
    }
}

/// Identifiers, `::` and single other characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            c if code::is_word(c) => rest.find(|c| !code::is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        found.push(token);
        rest = behind.trim_start();
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::findings;
    use crate::tidy::{Checkout, TextFile};

    #[test]
    fn modules_that_need_each_other_are_found() {
        let check = |files: &[(&str, &str)], expected: &[&str]| {
            let texts =
                files.iter().map(|(name, text)| TextFile::new(name, (*text).to_owned())).collect();
            let checkout = Checkout { root: PathBuf::new(), names: Vec::new(), texts };
            let found: Vec<String> = findings(&checkout)
                .iter()
                .filter_map(|f| Some(f.split_once("each other: ")?.1.split_once(';')?.0.to_owned()))
                .collect();
            assert_eq!(found, expected, "{files:?}");
        };
        let lib = ("crates/x/src/lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::{B, C as D};");
        let b = ("crates/x/src/b.rs", "use std::io;\nuse super::{io2, a::{self, A}};\n");
        // By a name of the table of contents, by a path, through a directory.
        check(&[lib, ("crates/x/src/a.rs", "use crate::B;\n"), b], &["a b"]);
        check(&[lib, ("crates/x/src/a.rs", "fn f() -> crate::b::B {}\n"), b], &["a b"]);
        check(
            &[
                lib,
                ("crates/x/src/a/mod.rs", "mod c;\npub use c::A;\n"),
                ("crates/x/src/a/c.rs", "use super::b;\nuse super::X;\n"),
                b,
            ],
            &[],
        );
        check(
            &[
                lib,
                ("crates/x/src/a/mod.rs", "mod c;\npub use c::A;\n"),
                ("crates/x/src/a/c.rs", "use super::super::b::B;\nuse super::X;\n"),
                b,
            ],
            &["a b"],
        );
        // One way, within a directory, in tests, with a reason.
        check(&[lib, ("crates/x/src/a.rs", ""), b], &[]);
        check(
            &[("crates/x/src/a/mod.rs", "use c::C;\n"), ("crates/x/src/a/c.rs", "use super::D;\n")],
            &[],
        );
        check(&[lib, ("crates/x/src/a.rs", "#[cfg(test)]\nmod tests { use crate::B; }\n"), b], &[]);
        let excused = "use crate::B; // why\n// tidy: cycle with b: each owns half of it\n";
        check(&[lib, ("crates/x/src/a.rs", excused), b], &[]);
        let no_reason = "use crate::B;\n// tidy: cycle with b:\n";
        check(&[lib, ("crates/x/src/a.rs", no_reason), b], &["a b"]);
    }
}

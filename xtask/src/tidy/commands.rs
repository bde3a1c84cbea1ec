//! No command knows another: what two of them need is an engine below, a flag of
//! `src/args/`, or a helper that is no command. A command is a module that `main.rs` runs.

use std::collections::HashMap;

use super::cycles::{module_path, paths_of};
use super::{Checkout, code};

const MAIN: &str = "crates/kymo/src/main.rs";
const COMMANDS: &str = "crates/kymo/src/commands/";

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let Some(main) = checkout.sources().find(|file| file.name == MAIN) else { return Vec::new() };
    let names = commands(&main.split.code);
    let mut found = Vec::new();
    for file in checkout.sources().filter(|file| file.name.starts_with(COMMANDS)) {
        let path = module_path(&file.name);
        let Some(own) = path.get(1) else { continue };
        let used = paths_of(code::without_tests(&file.split.code), &path, &HashMap::new());
        let mut others: Vec<&str> = used
            .iter()
            .filter(|used| used.first() == Some(&"commands"))
            .filter_map(|used| used.get(1).copied())
            .filter(|other| other != own && names.contains(other))
            .collect();
        others.sort_unstable();
        others.dedup();
        found.extend(others.iter().map(|other| {
            format!(
                "{}: the command {own} uses the command {other}; part what both need from it",
                file.name
            )
        }));
    }
    found
}

/// The modules whose `run` is called: `commands::NAME::run`.
fn commands(main: &str) -> Vec<&str> {
    let words: Vec<&str> = code::words(main).collect();
    let run = |w: &[&str]| w.first() == Some(&"commands") && w.get(2) == Some(&"run");
    let mut names: Vec<&str> = words.windows(3).filter(|w| run(w)).map(|w| w[1]).collect();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::tidy::TextFile;

    #[test]
    fn commands_that_use_each_other_are_found() {
        let main = "fn main() { commands::record::run(a); commands::bundle::run(b); \
                    commands::trace::run(c); }";
        let check = |name: &str, text: &str, expected: &[&str]| {
            let texts = [(MAIN, main), (name, text)];
            let texts = texts
                .map(|(name, text)| TextFile::new(name, text.to_owned()))
                .into_iter()
                .collect();
            let checkout = Checkout { root: PathBuf::new(), names: Vec::new(), texts };
            let found: Vec<String> = findings(&checkout)
                .iter()
                .filter_map(|f| {
                    Some(f.split_once("uses the command ")?.1.split_once(';')?.0.into())
                })
                .collect();
            assert_eq!(found, expected, "{text}");
        };
        let record = "crates/kymo/src/commands/record.rs";
        check(record, "use super::bundle;\n", &["bundle"]);
        check(
            record,
            "fn f() { super::bundle::make(); crate::commands::trace::x() }",
            &["bundle", "trace"],
        );
        check(record, "use crate::commands::{bundle::Made, counted};", &["bundle"]);
        // Its own modules, helpers that are no commands, tests.
        check(record, "use super::{counted, tracing};\nuse self::more::X;\n", &[]);
        check(record, "#[cfg(test)]\nmod tests { use super::super::bundle; }", &[]);
        let deep = "crates/kymo/src/commands/trace/ust/mod.rs";
        check(deep, "use super::super::Args;\nuse super::live_output::X;\n", &[]);
        check(deep, "use super::super::record::Args;\n", &["record"]);
        check(deep, "use crate::commands::trace::Args;\n", &[]);
    }
}

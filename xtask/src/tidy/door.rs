//! The one door to the machine: system calls and files of `/proc` and `/sys` are for
//! `kymo-kernel`, so that everything above it can be tried on a directory that only looks
//! like a machine. Constants of `libc` are numbers, no calls.

use super::{Checkout, TextFile, code};

/// Crates that ask the machine themselves.
const DOORS: &[(&str, &str)] = &[
    ("kymo-kernel", "the door"),
    ("kymo-ring", "shared memory and restartable sequences, in traced programs as well"),
    ("kymo-tracepoint", "runs in traced programs, which link no other crate"),
    ("kymo-testkit", "for tests"),
    ("kymo-guest", "the guest of tests"),
];

/// Files of other crates that do, each with the reason. A reason that begins with
/// "to be moved" is a debt.
const ALLOWED: &[(&str, &str)] = &[(
    "crates/kymo-symbols/src/debug_files/process_root.rs",
    "takes a path apart that a user gave",
)];

/// Begins of paths that the kernel makes.
const KERNEL_PATHS: &[&str] = &["/proc", "/sys"];

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let mut found = Vec::new();
    let mut excused = Vec::new();
    for file in checkout.sources().filter(|file| is_product(&file.name)) {
        let hits = hits(file);
        if let (Some(allowed), false) = (reason(&file.name), hits.is_empty()) {
            excused.push(allowed);
            continue;
        }
        let name = &file.name;
        let told = |(line, what): (usize, String)| {
            format!("{name}:{line}: {what} is for kymo-kernel to ask (xtask/src/tidy/door.rs)")
        };
        found.extend(hits.into_iter().map(told));
    }
    for file in checkout.sources().filter(|file| file.name.starts_with("crates/kymo-kernel/src/")) {
        let told = |(line, path): (usize, &str)| {
            format!(
                "{}:{line}: `{path}` is not below the root that a test may set: system_path",
                file.name
            )
        };
        found.extend(fixed_paths(&file.text).into_iter().map(told));
    }
    let is_there = |file: &str| checkout.names.iter().any(|name| name == file);
    let idle = |file: &str| !excused.contains(&file) && is_there(file);
    for (file, _) in ALLOWED.iter().filter(|(file, _)| idle(file)) {
        found.push(format!("xtask/src/tidy/door.rs: {file} needs no exception"));
    }
    found
}

fn reason(name: &str) -> Option<&'static str> {
    ALLOWED.iter().map(|(file, _)| *file).find(|file| *file == name)
}

/// Whether a source is part of a program or library that is not a door.
fn is_product(name: &str) -> bool {
    let Some((package, path)) = name.strip_prefix("crates/").and_then(|n| n.split_once('/')) else {
        return false;
    };
    let is_test = name.ends_with("/tests.rs") || name.ends_with("_tests.rs");
    path.starts_with("src/") && !is_test && !DOORS.iter().any(|(door, _)| *door == package)
}

/// Lines outside of tests that go around the door, and what they use.
fn hits(file: &TextFile) -> Vec<(usize, String)> {
    let lines = file.text.lines().zip(file.split.code.lines());
    // Tests are the last part of a file.
    let product = lines.take_while(|(_, code)| !code.starts_with("#[cfg(test)]"));
    let mut found = Vec::new();
    for (n, (line, code)) in product.enumerate() {
        let path = kernel_path(line).filter(|_| !line.trim_start().starts_with("//"));
        let call = call(code);
        found.extend(path.into_iter().chain(call).map(|what| (n + 1, format!("`{what}`"))));
    }
    found
}

/// Paths of the kernel that the door itself opens as they are. Those of this process are always
/// the real ones; a constant is taken through `system_path` where it is used.
fn fixed_paths(text: &str) -> Vec<(usize, &str)> {
    let product = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let is_free = |line: &str| {
        let line = line.trim_start();
        let through_root = line.contains("system_path(");
        through_root || ["//", "const ", "pub const "].iter().any(|begin| line.starts_with(begin))
    };
    let fixed = product.enumerate().filter(|(_, line)| !is_free(line)).filter_map(|(n, line)| {
        let path = kernel_path(line).filter(|path| !path.starts_with("/proc/self/"))?;
        Some((n + 1, path))
    });
    fixed.collect()
}

/// A literal that is a path of the kernel; a sentence about one is none.
fn kernel_path(line: &str) -> Option<&str> {
    let literals = line.split('"').skip(1).step_by(2);
    literals.into_iter().find(|literal| {
        let rest = KERNEL_PATHS.iter().find_map(|begin| literal.strip_prefix(begin));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) && !literal.contains(' ')
    })
}

/// The crate of a system call.
fn call(text: &str) -> Option<&'static str> {
    if code::words(text).any(|word| word == "rustix") {
        return Some("rustix");
    }
    let behind = text.split("libc::").nth(1)?;
    behind.starts_with(|c: char| c.is_ascii_lowercase() || c == '{').then_some("libc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_around_the_door_are_found() {
        let check = |text: &str, expected: &[usize]| {
            let file = TextFile::new("crates/kymo/src/a.rs", text.to_owned());
            let lines: Vec<usize> = hits(&file).into_iter().map(|hit| hit.0).collect();
            assert_eq!(lines, expected, "{text}");
        };
        check("//! `/proc` is elsewhere.\nfn f() { read(\"/proc/stat\") }\n", &[2]);
        check("const A: &str = \"/sys\";\nuse rustix::fs::openat;\n", &[1, 2]);
        check("let a = (\"a\", format!(\"/proc/{pid}/maps\"));\n", &[1]);
        check("note(\"/proc/kallsyms cannot be read\");\nlet a = libc::ENOENT;\n", &[]);
        check("let a = libc::getpid();\n// \"/proc/stat\" and rustix::io\n", &[1]);
        check("const SYSTEM: &str = \"/system/etc\";\nlet x = \"a/proc/b\";\n", &[]);
        check("fn f() {}\n#[cfg(test)]\nmod tests { fn f() { read(\"/proc/stat\") } }\n", &[]);
    }

    #[test]
    fn the_door_goes_through_the_root() {
        let text = "const A: &str = \"/proc/a\";\nread(\"/proc/stat\");\nread(\"/proc/self/maps\");\n\
                    read(system_path(\"/proc/stat\"));\nPath::new(\"/sys\")\n";
        assert_eq!(fixed_paths(text), [(2, "/proc/stat"), (5, "/sys")]);
    }

    #[test]
    fn tests_and_doors_are_left_alone() {
        let check = |name: &str, expected: bool| assert_eq!(is_product(name), expected, "{name}");
        check("crates/kymo-record/src/facts.rs", true);
        check("crates/kymo-kernel/src/cpus.rs", false);
        check("crates/kymo/tests/cli.rs", false);
        check("crates/kymo-symbols/src/cache/tests.rs", false);
        check("xtask/src/main.rs", false);
    }
}

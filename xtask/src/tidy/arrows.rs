//! Arrows between crates: a crate depends only on crates below it, as the table in
//! ARCHITECTURE.md says.

use super::Checkout;

/// The crates from the words at the bottom to the program at the top. A crate may
/// depend only on crates before it. New crates are entered here.
const ORDER: &[&str] = &[
    "kymo-model",
    "kymo-format",
    "kymo-files",
    "kymo-debuginfo",
    "kymo-unwind",
    "kymo-bpf",
    "kymo-kernel",
    "kymo-debuginfod",
    "kymo-symbols",
    "kymo-probe",
    "kymo-programs",
    "kymo-ring",
    "kymo-ust",
    "kymo-tracepoint-macros",
    "kymo-tracepoint",
    "kymo-record",
    "kymo-events",
    "kymo-live",
    "kymo-table",
    "kymo-parquet",
    "kymo-sqlite",
    "kymo-analysis",
    "kymo-compare",
    "kymo-sql",
    "kymo-render",
    "kymo-view",
    "kymo",
];

/// Crates beside the order: they depend on none of the others, and only tests and
/// tasks depend on them.
const SIDE: &[&str] = &["kymo-testkit", "kymo-guest"];

/// Arrows that would fit the order and are still wrong: capture and analysis meet
/// in `kymo-model` or in a file, and decoders know nothing of each other's formats.
const FORBIDDEN: &[(&str, &str)] = &[
    ("kymo-analysis", "kymo-record"),
    ("kymo-debuginfo", "kymo-files"),
    ("kymo-debuginfo", "kymo-format"),
    ("kymo-kernel", "kymo-files"),
    ("kymo-render", "kymo-kernel"),
    ("kymo-view", "kymo-kernel"),
    ("kymo-view", "kymo-render"),
];

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let manifests = checkout.texts.iter();
    manifests
        .filter_map(|file| Some(arrows(package_of(&file.name)?, &file.text)))
        .flatten()
        .collect()
}

/// `crates/<package>/Cargo.toml` → package.
fn package_of(name: &str) -> Option<&str> {
    name.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")
}

fn arrows(package: &str, manifest: &str) -> Vec<String> {
    let place = |name: &str| ORDER.iter().position(|o| *o == name);
    let side = |name: &str| SIDE.contains(&name);
    let mut found = Vec::new();
    if !side(package) && place(package).is_none() {
        found.push(format!("{package}: not in the order of crates in xtask/src/tidy/arrows.rs"));
    }
    for (section, dependency) in dependencies(manifest) {
        if side(&dependency) {
            if section != "dev-dependencies" {
                found.push(format!("{package}: {dependency} is for tests, not for [{section}]"));
            }
            continue;
        }
        if side(package) {
            found.push(format!("{package} depends on {dependency}; every crate's tests use it"));
        } else if place(&dependency) >= place(package) && section != "dev-dependencies" {
            found.push(format!("{package} depends on {dependency}, which is above it"));
        } else if FORBIDDEN.contains(&(package, dependency.as_str())) {
            found.push(format!("{package} depends on {dependency}; they never see each other"));
        }
    }
    found
}

/// Dependencies on crates of the workspace, each with its section.
fn dependencies(manifest: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if section.ends_with("dependencies") && line.starts_with("kymo") {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            found.push((section.clone(), name.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::arrows;

    #[test]
    fn arrows_that_point_upwards_are_found() {
        let check = |package: &str, manifest: &str, expected: &[&str]| {
            assert_eq!(arrows(package, manifest), expected, "{package}");
        };
        check("kymo-files", "[dependencies]\nkymo-model.workspace = true\n", &[]);
        check(
            "kymo-files",
            "[dependencies]\nkymo-record = { path = \"../kymo-record\" }\n",
            &["kymo-files depends on kymo-record, which is above it"],
        );
        check("kymo-files", "[dev-dependencies]\nkymo-testkit.workspace = true\n", &[]);
        check(
            "kymo-files",
            "[dependencies]\nkymo-testkit.workspace = true\n",
            &["kymo-files: kymo-testkit is for tests, not for [dependencies]"],
        );
        check(
            "kymo-analysis",
            "[dependencies]\nkymo-record.workspace = true\n",
            &["kymo-analysis depends on kymo-record; they never see each other"],
        );
        check(
            "kymo-new",
            "",
            &["kymo-new: not in the order of crates in xtask/src/tidy/arrows.rs"],
        );
    }
}

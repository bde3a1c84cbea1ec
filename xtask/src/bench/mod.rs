//! `cargo xtask bench`: whole commands against the installed perf, on the same
//! input and in one run, so that the ratios mean something on any machine.
//! Prints a table and keeps it in BENCHMARKS.md.

mod addresses;
pub(crate) mod against;
mod analyses;
mod ctf;
pub(crate) mod diff;
mod dwarf;
mod inlines;
mod inputs;
mod measure;
mod page;
mod probe;
pub(crate) mod probes;
mod programs;
mod rows;
mod top;
mod trace;
pub(crate) mod ust;
mod view;

use anyhow::{Context as _, bail};

use crate::steps::Steps;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// The sizes that the goals are stated for; writes BENCHMARKS.md.
    Full,
    /// A tenth of it, to see that everything runs; writes nothing.
    Quick,
}

/// Runs all parts, or one of them, whose rows are renewed in the page.
pub(crate) fn run(effort: Effort, only: Option<&str>) -> anyhow::Result<()> {
    let mut steps = Steps::new();
    steps.step("setup", || crate::setup::run(crate::setup::Mode::Install))?;
    let kymo = steps.step("release program", crate::cargo::build_release)?;
    let inputs = steps.step("inputs", || match only {
        // The other parts' recordings take long to make.
        Some(
            "programs" | "trace" | "probe" | "dwarf" | "inlines" | "addresses" | "ctf" | "start-up"
            | "top" | "view",
        ) => inputs::Inputs::directory(effort),
        _ => inputs::Inputs::prepare(effort),
    })?;
    let bench = rows::Bench::new(&kymo, &inputs, effort)?;
    let mut rows = Vec::new();
    let mut broken = Vec::new();
    let parts: [(&'static str, rows::Part<'_>); 14] = [
        ("script", rows::Bench::script),
        ("report", rows::Bench::report),
        ("dwarf", rows::Bench::dwarf),
        ("inlines", rows::Bench::inlines),
        ("addresses", rows::Bench::addresses),
        ("analyses", rows::Bench::analyses),
        ("record", rows::Bench::record),
        ("trace", rows::Bench::trace),
        ("probe", rows::Bench::probe),
        ("programs", rows::Bench::programs),
        ("top", rows::Bench::top),
        ("view", rows::Bench::view),
        ("ctf", rows::Bench::ctf),
        ("start-up", rows::Bench::start_up),
    ];
    if let Some(only) = only.filter(|only| !parts.iter().any(|(name, _)| name == only)) {
        bail!("there is no part {only:?}");
    }
    for (name, part) in parts {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        match steps.step(name, || part(&bench)) {
            Ok(part) => rows.extend(part),
            Err(e) => {
                println!("{name} is left out: {e:#}");
                broken.push(format!("{name} ({e:#})"));
            }
        }
    }
    let table = page::table(&rows);
    println!("\n{table}\nwhere the time went:\n{}", steps.table());
    let path = crate::root().join("BENCHMARKS.md");
    if effort == Effort::Full && only.is_some() && broken.is_empty() {
        let old = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let new = page::renewed(&old, &rows).context("BENCHMARKS.md has no table")?;
        std::fs::write(&path, new).with_context(|| path.display().to_string())?;
    }
    if effort == Effort::Full && only.is_none() {
        let probes = steps.step("probes", || probes::section(&kymo))?;
        let missing = if broken.is_empty() {
            String::new()
        } else {
            format!("Did not run: {}.\n\n", broken.join(", "))
        };
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        let mut page = page::page(&(table + "\n" + &missing), &inputs, &probes);
        // Two revisions are measured by a run of their own.
        if let Some(against) = page::section(&old, against::HEAD) {
            page = page::with_section(&page, against::HEAD, &format!("{against}\n"));
        }
        std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    }
    if !broken.is_empty() {
        bail!("did not run: {}", broken.join(", "));
    }
    Ok(())
}

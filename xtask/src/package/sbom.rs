//! Bill of materials of the program, in CycloneDX 1.5: every crate that is linked into it, with
//! version, license and package URL, from `cargo metadata`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

/// The program's package in the workspace.
const PROGRAM: &str = "kymo";

pub(super) fn cyclonedx(root: &Path, machine: &str) -> anyhow::Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform"]);
    command.arg(format!("{machine}-unknown-linux-gnu")).current_dir(root);
    let output = command.output().context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    Ok(serde_json::to_string_pretty(&bill(&metadata)?)? + "\n")
}

fn bill(metadata: &Value) -> anyhow::Result<Value> {
    let packages = list(metadata, "packages");
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let program = packages.iter().find(|package| package["name"] == PROGRAM);
    let program = program.context("no package of the program")?;
    let linked = linked(metadata, &text(program, "id"));
    let mut components: Vec<Value> = packages
        .iter()
        .filter(|package| package["id"] != program["id"] && linked.contains(&text(package, "id")))
        .map(|package| component(package, "library"))
        .collect();
    components.sort_by_key(|component| text(component, "bom-ref"));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(program, "application") },
        "components": components,
    }))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn component(package: &Value, kind: &str) -> Value {
    let (name, version) = (&package["name"], &package["version"]);
    let url = format!(
        "pkg:cargo/{}@{}",
        name.as_str().unwrap_or_default(),
        version.as_str().unwrap_or_default()
    );
    json!({
        "type": kind,
        "bom-ref": url,
        "name": name,
        "version": version,
        "licenses": [{ "expression": package["license"] }],
        "purl": url,
    })
}

/// Packages that the one of `from` reaches through normal dependencies, itself included.
fn linked(metadata: &Value, from: &str) -> BTreeSet<String> {
    let nodes = list(&metadata["resolve"], "nodes");
    let mut reached = BTreeSet::from([from.to_owned()]);
    let mut waiting = vec![from.to_owned()];
    while let Some(id) = waiting.pop() {
        let Some(node) = nodes.iter().find(|node| node["id"] == id.as_str()) else { continue };
        for dependency in list(node, "deps") {
            // The kind of a normal dependency is null.
            let normal = list(dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null());
            let Some(id) = dependency["pkg"].as_str().filter(|_| normal) else { continue };
            if reached.insert(id.to_owned()) {
                waiting.push(id.to_owned());
            }
        }
    }
    reached
}

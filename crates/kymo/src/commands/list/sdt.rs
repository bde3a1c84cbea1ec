//! `kymo list sdt`: USDT probes of binaries: of one, of those that processes have mapped.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use kymo_debuginfo::sdt::usdt_notes;
use kymo_kernel::mapped::MappedFile;
use kymo_kernel::proc_maps;
use kymo_kernel::system::SystemRoot;
use kymo_model::counted;
use kymo_symbols::debug_files::path_as_typed;
use serde_json::json;

use super::Args;

/// A probe of a binary: arguments of its first place, and how many places it has.
type UsdtProbes = BTreeMap<(String, String), (Vec<String>, usize)>;

/// Lists probes of the binaries named, or of those that processes run.
pub(super) fn run(args: &Args, binaries: &[String]) -> anyhow::Result<ExitCode> {
    let mut found: BTreeMap<PathBuf, UsdtProbes> = BTreeMap::new();
    for binary in binaries {
        let path = path_as_typed(Path::new(binary));
        let probes = probes(&path).with_context(|| binary.clone())?;
        found.insert(path, probes);
    }
    if binaries.is_empty() {
        let all = || proc_maps::processes().context("cannot list processes");
        let root = SystemRoot::machine();
        let pids = if args.pid.is_empty() { all()? } else { args.pid.clone() };
        for pid in pids {
            let maps = match proc_maps::maps(pid, Duration::from_secs(1)) {
                Ok(maps) => maps,
                Err(e) if !args.pid.is_empty() => {
                    return Err(e).with_context(|| format!("process {pid}"));
                }
                // It ended meanwhile, or belongs to another user.
                Err(_) => continue,
            };
            for mapping in maps.mappings.iter().filter(|m| m.executable()) {
                let name = String::from_utf8_lossy(&mapping.path).into_owned();
                if !name.starts_with('/') || found.contains_key(Path::new(&name)) {
                    continue;
                }
                // As the process sees it, which may be in a container.
                let seen = root.root_of(pid).join(name.trim_start_matches('/'));
                found.insert(PathBuf::from(name), probes(&seen).unwrap_or_default());
            }
        }
    }
    found.retain(|_, probes| !probes.is_empty());
    crate::screen::page();
    let mut out = BufWriter::new(crate::streams::stdout().lock());
    if args.json {
        write_json(&mut out, &found)?
    } else {
        write_text(&mut out, &found, args)?
    }
    out.flush()?;
    if found.is_empty() {
        sayln!("kymo list: no USDT probes there");
    }
    Ok(ExitCode::SUCCESS)
}

fn probes(path: &Path) -> anyhow::Result<UsdtProbes> {
    let file = MappedFile::open(path)?;
    let mut probes = UsdtProbes::new();
    for note in usdt_notes(file.bytes())? {
        let probe = probes.entry((note.provider, note.name)).or_insert((note.args, 0));
        probe.1 += 1;
    }
    Ok(probes)
}

fn write_text(
    out: &mut impl io::Write,
    found: &BTreeMap<PathBuf, UsdtProbes>,
    args: &Args,
) -> io::Result<()> {
    for (number, (path, probes)) in found.iter().enumerate() {
        let is_bare = args.raw_dump;
        if !is_bare {
            writeln!(out, "{}{}:", if number > 0 { "\n" } else { "" }, path.display())?;
        }
        for ((provider, name), (values, places)) in probes {
            let name = format!("%{provider}:{name}");
            if is_bare {
                write!(out, "{name} ")?;
                continue;
            }
            let values_of = counted(values.len() as u64, "argument", "arguments");
            let places = counted(*places as u64, "place", "places");
            writeln!(out, "  {name:<50} [USDT probe] {values_of}, {places}")?;
            if args.verbose && !values.is_empty() {
                writeln!(out, "       {}", values.join(" "))?;
            }
        }
    }
    if args.raw_dump { writeln!(out) } else { Ok(()) }
}

fn write_json(
    out: &mut impl io::Write,
    found: &BTreeMap<PathBuf, UsdtProbes>,
) -> anyhow::Result<()> {
    let mut objects = Vec::new();
    for (path, probes) in found {
        for ((provider, name), (values, places)) in probes {
            objects.push(json!({
                "name": format!("%{provider}:{name}"), "alias": null, "kind": "sdt",
                "label": "USDT probe", "description": "", "support": null, "reason": null,
                "binary": path, "args": values, "places": places,
            }));
        }
    }
    Ok(writeln!(out, "{:#}", serde_json::Value::from(objects))?)
}

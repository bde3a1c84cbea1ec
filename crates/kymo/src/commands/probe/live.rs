//! The verbs that touch the running kernel: `--add`, `--del`, `--list`.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_debuginfo::dwarf::Located;
use kymo_debuginfo::probe::{Definition, Description, Place, RawLine, glob_match, looks_raw};
use kymo_kernel::ftrace::{Instance, Selection};
use kymo_kernel::probe_events::ProbeFile;
use kymo_kernel::tracefs::{DynamicEvent, Tracefs};
use kymo_symbols::probe::{Hazard, Kind, ProbeFiles};
use kymo_view::Ledger;

use super::Args;
use super::place::{Planner, close, facts, files};

/// A line to hand to the kernel.
struct Line {
    file: ProbeFile,
    text: String,
    group: String,
    event: String,
}

/// `--add`: everything or nothing.
pub(super) fn add(args: &Args) -> anyhow::Result<ExitCode> {
    let mut ledger = Ledger::default();
    let tracefs = Tracefs::open()?;
    let described = args.add.iter().any(|d| !looks_raw(d));
    let files = described.then(|| files(args, false));
    let planner = files.as_ref().map(Planner::new).transpose()?;
    let mut taken: Vec<(String, String)> =
        tracefs.dynamic_events()?.into_iter().map(|e| (e.system, e.name)).collect();
    let mut lines: Vec<Line> = Vec::new();
    let mut shown: Vec<String> = Vec::new();
    let mut dear = false;
    for text in &args.add {
        if looks_raw(text) {
            let raw = RawLine::parse(text)?;
            shown.push(format!("{} ({})", raw.event.as_deref().unwrap_or("?"), raw.place));
            lines.push(raw_line(raw, &probes(&tracefs)?));
            continue;
        }
        let d = Description::parse(text)?;
        let Some(planner) = &planner else { continue };
        let plan = planner.plan(args, &d)?;
        plan.notes.iter().cloned().for_each(|n| ledger.push(n));
        dear |= judge(args, planner, &d, &plan.places, &mut ledger)?;
        let mut definitions = plan.definitions;
        name_events(&mut definitions, &mut taken, args.force)?;
        for definition in &definitions {
            lines.push(line_of(definition));
        }
        let mut names: Vec<String> =
            definitions.iter().map(|d| format!("{}:{}", d.group, d.event)).collect();
        names.dedup();
        shown.extend(names.iter().map(|n| format!("{n:20} (on {})", in_words(&d, planner))));
    }
    if !args.dry_run {
        write_all(&tracefs, &lines)?;
        if let Some(seconds) = args.preflight {
            preflight(&tracefs, &lines, dear, seconds)?;
        }
    }
    let mut out = std::io::stdout().lock();
    if args.verbose || args.dry_run {
        for line in &lines {
            writeln!(out, "{}", line.text)?;
        }
    }
    if !args.quiet {
        let what = if args.dry_run { "Would add" } else { "Added" };
        writeln!(out, "{what} new event{}:", if shown.len() == 1 { "" } else { "s" })?;
        for one in &shown {
            writeln!(out, "  {one}")?;
        }
        if let Some(Line { group, event, .. }) = lines.last().filter(|_| !args.dry_run) {
            writeln!(
                out,
                "\nYou can now use it, as in:\n\n\tkymo record -e {group}:{event} -a -- sleep 1\n"
            )?;
        }
    }
    drop(out);
    Ok(close(args, &ledger))
}

/// Refuses places where a probe does harm, unless `--force` insists; says with
/// `--verbose` where a hit is dear.
///
/// Gives whether any of them is.
fn judge(
    args: &Args,
    planner: &Planner<'_>,
    d: &Description,
    places: &[Located],
    ledger: &mut Ledger,
) -> anyhow::Result<bool> {
    let Planner::Binary(facts) = planner else { return Ok(false) };
    let mut dear = false;
    for place in places {
        let site = facts.judge(place);
        if let Some(Hazard { what, advice }) = site.hazard {
            if !args.force {
                bail!("{}: {what}; {advice} (--force adds it anyway)", d.point);
            }
            ledger.note("hazard", what, Some(advice));
        }
        dear |= site.cheap == Some(false);
        if args.verbose && site.cheap == Some(false) {
            ledger.tell(
                "cost",
                format!(
                    "at {:#x} the instruction is single-stepped: some 15 us a hit instead of 1",
                    place.addr
                ),
                None,
            );
        }
    }
    Ok(dear)
}

fn in_words(d: &Description, planner: &Planner<'_>) -> String {
    let mut text = d.point.to_string();
    if let Planner::Binary(facts) = planner
        && facts.files.kind == Kind::User
    {
        text.push_str(&format!(" in {}", facts.files.path.display()));
    }
    if !d.args.is_empty() {
        let args: Vec<String> = d.args.iter().map(ToString::to_string).collect();
        text.push_str(&format!(" with {}", args.join(" ")));
    }
    text
}

/// A line in the kernel's own syntax; one that removes an event goes to the file
/// that the event is of.
fn raw_line(raw: RawLine, known: &[(ProbeFile, DynamicEvent)]) -> Line {
    let event = raw.event.unwrap_or_default();
    let same =
        |e: &DynamicEvent| e.name == event && raw.group.as_ref().is_none_or(|g| *g == e.system);
    let user = match raw.kind {
        '-' => known.iter().any(|(file, e)| *file == ProbeFile::User && same(e)),
        _ => raw.place.starts_with('/'),
    };
    let (file, group) =
        if user { (ProbeFile::User, "uprobes") } else { (ProbeFile::Kernel, "kprobes") };
    Line { file, text: raw.line, group: raw.group.unwrap_or_else(|| group.into()), event }
}

fn line_of(d: &Definition) -> Line {
    let file =
        if matches!(d.place, Place::File { .. }) { ProbeFile::User } else { ProbeFile::Kernel };
    Line { file, text: d.to_string(), group: d.group.clone(), event: d.event.clone() }
}

/// Gives each event a name that is free; places of one event share it.
fn name_events(
    definitions: &mut [Definition],
    taken: &mut Vec<(String, String)>,
    force: bool,
) -> anyhow::Result<()> {
    let mut names: Vec<(String, String)> = Vec::new();
    for d in definitions.iter_mut() {
        if let Some((_, name)) = names.iter().find(|(base, _)| *base == d.event) {
            d.event.clone_from(name);
            continue;
        }
        let is_taken = |name: &str| taken.iter().any(|(g, e)| *g == d.group && e == name);
        let base = d.event.clone();
        let mut name = base.clone();
        if is_taken(&name) {
            let group = &d.group;
            if !force {
                bail!(
                    "an event {group}:{base} exists; remove it with kymo probe --del {group}:{base}, or add this one under another name with --force"
                );
            }
            name = (1..1024)
                .map(|n| format!("{base}_{n}"))
                .find(|n| !is_taken(n))
                .with_context(|| format!("too many events are called {group}:{base}_N"))?;
        }
        d.event.clone_from(&name);
        taken.push((d.group.clone(), name.clone()));
        names.push((base, name));
    }
    Ok(())
}

/// Hands over all lines. What was taken before one was refused is removed again.
fn write_all(tracefs: &Tracefs, lines: &[Line]) -> anyhow::Result<()> {
    let mut done: Vec<&Line> = Vec::new();
    for line in lines {
        let Err(error) = tracefs.write_probe(line.file, &line.text) else {
            done.push(line);
            continue;
        };
        let mut left: Vec<String> = Vec::new();
        // Removing an event removes all its places.
        let mut removed: Vec<(&str, &str)> = Vec::new();
        for line in done.iter().rev() {
            let key = (line.group.as_str(), line.event.as_str());
            if line.text.starts_with('-') || line.event.is_empty() || removed.contains(&key) {
                continue;
            }
            removed.push(key);
            if tracefs.remove_probe(line.file, &line.group, &line.event).is_err() {
                left.push(format!("{}:{}", line.group, line.event));
            }
        }
        if !left.is_empty() {
            return Err(error)
                .with_context(|| format!("{} could not be removed again", left.join(", ")));
        }
        return Err(error.into());
    }
    Ok(())
}

/// Hits of each event, and misses of those of the kernel, over all its places.
fn hits(tracefs: &Tracefs) -> HashMap<String, (u64, Option<u64>)> {
    let mut all: HashMap<String, (u64, Option<u64>)> = HashMap::new();
    for h in [ProbeFile::Kernel, ProbeFile::User].into_iter().flat_map(|f| tracefs.probe_hits(f)) {
        let known = all.entry(h.event).or_default();
        known.0 += h.hits;
        known.1 = h.missed.map(|m| m + known.1.unwrap_or(0));
    }
    all
}

/// What one hit of a program's probe costs, measured: on an instruction that the
/// kernel emulates, and on one that it must single-step.
const CHEAP_NS: u64 = 1_300;
const DEAR_NS: u64 = 15_000;

/// `--preflight`: lets the new probes run for a while and says how often they are
/// hit and what that costs.
fn preflight(tracefs: &Tracefs, lines: &[Line], dear: bool, seconds: f64) -> anyhow::Result<()> {
    let instance = Instance::create(tracefs, "preflight")?;
    let mut events: Vec<(ProbeFile, String, String)> = lines
        .iter()
        .filter(|l| !l.text.starts_with('-'))
        .map(|l| (l.file, l.group.clone(), l.event.clone()))
        .collect();
    events.dedup();
    let before = hits(tracefs);
    for (_, group, event) in &events {
        // Its ring stays off: hits are counted all the same.
        instance.enable(&Selection::parse(&format!("{group}:{event}"))?)?;
    }
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let after = hits(tracefs);
    instance.remove()?;
    for (file, group, event) in &events {
        let of = |h: &HashMap<String, (u64, Option<u64>)>| h.get(event).map_or(0, |h| h.0);
        let rate = (of(&after).saturating_sub(of(&before))) as f64 / seconds;
        let cost = match file {
            ProbeFile::User => {
                let each = if dear { DEAR_NS } else { CHEAP_NS };
                format!(", about {:.2} ms of every second", rate * each as f64 / 1e6)
            }
            ProbeFile::Kernel => String::new(),
        };
        anstream::println!("Preflight: {group}:{event} is hit {rate:.1} times a second{cost}");
    }
    Ok(())
}

/// Probes among the dynamic events, with the file of each.
fn probes(tracefs: &Tracefs) -> anyhow::Result<Vec<(ProbeFile, DynamicEvent)>> {
    let mut all = Vec::new();
    for file in [ProbeFile::Kernel, ProbeFile::User] {
        for line in tracefs.probe_lines(file)? {
            all.extend(DynamicEvent::parse(&line).map(|e| (file, e)));
        }
    }
    Ok(all)
}

/// Whether `[GROUP:]EVENT` as a glob means an event.
fn means(glob: &str, event: &DynamicEvent) -> bool {
    match glob.split_once(':') {
        Some((group, name)) => glob_match(group, &event.system) && glob_match(name, &event.name),
        None => glob_match(glob, &event.name),
    }
}

/// `--del`.
pub(super) fn delete(args: &Args) -> anyhow::Result<()> {
    let tracefs = Tracefs::open()?;
    let all = probes(&tracefs)?;
    let mut done: Vec<(String, String)> = Vec::new();
    let mut failed = Vec::new();
    for glob in &args.del {
        let glob = glob.replacen('/', ":", 1);
        let mut any = false;
        for (file, event) in all.iter().filter(|(_, e)| means(&glob, e)) {
            any = true;
            let key = (event.system.clone(), event.name.clone());
            if done.contains(&key) {
                continue;
            }
            done.push(key);
            if !args.dry_run
                && let Err(e) = tracefs.remove_probe(*file, &event.system, &event.name)
            {
                failed.push(format!(
                    "{}:{}: {e}{}",
                    event.system,
                    event.name,
                    users(&tracefs, event)
                ));
                continue;
            }
            if !args.quiet {
                let what = if args.dry_run { "Would remove" } else { "Removed" };
                anstream::println!("{what} event: {}:{}", event.system, event.name);
            }
        }
        if !any {
            bail!("{glob} matches no probe; kymo probe --list shows them");
        }
    }
    if !failed.is_empty() {
        bail!("not removed: {}", failed.join("\n"));
    }
    Ok(())
}

/// Who uses an event, as far as tracefs tells.
fn users(tracefs: &Tracefs, event: &DynamicEvent) -> String {
    let enabled = |prefix: &str| {
        let file = format!("{prefix}events/{}/{}/enable", event.system, event.name);
        tracefs.read(&file).is_ok_and(|t| t.starts_with('1'))
    };
    let mut by = Vec::new();
    if enabled("") {
        by.push("tracefs itself (events/…/enable is 1)".to_owned());
    }
    for entry in std::fs::read_dir(tracefs.path("instances")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if enabled(&format!("instances/{name}/")) {
            by.push(format!("trace instance {name}"));
        }
    }
    if by.is_empty() {
        return "; it is in use, by a perf event of some process (a recording?)".into();
    }
    format!("; it is in use by {}", by.join(", "))
}

/// `--list`.
pub(super) fn list(args: &Args, glob: Option<&str>) -> anyhow::Result<ExitCode> {
    let tracefs = Tracefs::open()?;
    let hits = hits(&tracefs);
    let mut binaries: BTreeMap<String, Option<ProbeFiles>> = BTreeMap::new();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (file, event) in probes(&tracefs)? {
        if !glob.is_none_or(|g| means(g, &event)) {
            continue;
        }
        let words: Vec<&str> = event.definition.split_ascii_whitespace().collect();
        let (place, fetched) = words.split_first().map_or(("", &[][..]), |(p, rest)| (*p, rest));
        let names: Vec<&str> =
            fetched.iter().map(|a| a.split_once('=').map_or(*a, |(n, _)| n)).collect();
        let ret = if event.kind == 'r' { "%return" } else { "" };
        let shown = match file {
            ProbeFile::User => user_place(place, ret, &mut binaries),
            ProbeFile::Kernel => None,
        };
        let mut text = shown.unwrap_or_else(|| format!("{place}{ret}"));
        if !names.is_empty() {
            text.push_str(&format!(" with {}", names.join(" ")));
        }
        writeln!(out, "  {:20} (on {text})", format!("{}:{}", event.system, event.name))?;
        if args.verbose {
            let (n, missed) = hits.get(&event.name).copied().unwrap_or((0, None));
            let missed = missed.map(|m| format!(", {m} missed")).unwrap_or_default();
            writeln!(out, "    {n} hits{missed}; {}", event.definition)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// `work@/src/a.c:3 in /bin/a`, for `/bin/a:0x1234`.
fn user_place(
    place: &str,
    ret: &str,
    binaries: &mut BTreeMap<String, Option<ProbeFiles>>,
) -> Option<String> {
    let (path, offset) = place.rsplit_once(':')?;
    let offset = offset.split('(').next()?.trim_start_matches("0x");
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let files = binaries
        .entry(path.to_owned())
        .or_insert_with(|| ProbeFiles::user(path.as_ref()).ok())
        .as_ref()?;
    let facts = facts(files).ok()?;
    let addr = facts.symbols.address(offset)?;
    let (symbol, start) = facts.symbols.function_at(addr)?;
    let name = kymo_debuginfo::demangle(symbol);
    let line = facts.line_at(addr);
    Some(match line {
        Some(line) if line.is_entry => format!("{name}{ret}@{} in {path}", line.file),
        Some(line) => match line.relative {
            Some(n) => format!("{}:{n}@{} in {path}", line.function, line.file),
            None => format!("{name}@{}:{} in {path}", line.file, line.line),
        },
        None if addr == start => format!("{name}{ret} in {path}"),
        None => format!("{name}+{} in {path}", addr - start),
    })
}

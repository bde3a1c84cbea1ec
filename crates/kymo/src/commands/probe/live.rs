//! The verbs that change the running kernel: `--add` and `--del`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_debuginfo::dwarf::Located;
use kymo_debuginfo::probe::{Definition, Description, Place, RawLine, glob_match, looks_raw};
use kymo_kernel::probe_events::{ProbeFile, ProbeLine};
use kymo_kernel::probe_notes::ProbeNotes;
use kymo_kernel::tracefs::{DynamicEvent, Tracefs};
use kymo_model::NoteKind;
use kymo_symbols::probe::{Hazard, KeptProbes, Kind};
use kymo_view::Ledger;

use super::place::{Planner, close, files};
use super::users::keepers;
use super::{Args, kept, preflight, refused};
use crate::commands::tracing;

/// What descriptions come to.
#[derive(Default)]
pub(super) struct Planned {
    /// What the kernel is to be told.
    pub(super) lines: Vec<ProbeLine>,
    /// Events: the first line of each, and its place in words.
    shown: Vec<(usize, String)>,
    /// Descriptions that were searched for, and what they came to.
    found: Vec<(String, Vec<ProbeLine>)>,
    /// Probes that are kept for the binary, with `--cache`.
    known: Option<KeptProbes>,
    /// Whether a hit of any is single-stepped.
    pub(super) dear: bool,
}

/// Plans all of `args.add`; nothing is changed.
pub(super) fn plan(
    args: &Args,
    tracefs: &Tracefs,
    names: &mut Names,
    ledger: &mut Ledger,
) -> anyhow::Result<Planned> {
    let described = args.add.iter().any(|d| !looks_raw(d));
    let files = described.then(|| files(args, false));
    let opened = files.as_ref().and_then(|f| f.as_ref().ok());
    let known = args.cache.then(|| kept::of(args, opened)).transpose()?;
    let path = opened.map(|f| f.path.display().to_string()).unwrap_or_default();
    let mut planner = None;
    let mut planned = Planned::default();
    for text in &args.add {
        if looks_raw(text) {
            let raw = RawLine::parse(text)?;
            let line = raw_line(&raw, tracefs)?;
            planned.shown.push((planned.lines.len(), raw.place));
            planned.lines.push(line);
            continue;
        }
        if let Some(lines) = known.as_ref().and_then(|k| kept::lines(k, text, &path)) {
            planned.shown.push((planned.lines.len(), format!("{text}, as it was kept")));
            for raw in &lines {
                planned.lines.push(raw_line(raw, tracefs)?);
            }
            continue;
        }
        let d = Description::parse(text)?;
        if planner.is_none() {
            planner = files.as_ref().map(Planner::new).transpose()?;
        }
        let Some(planner) = &planner else { continue };
        let first = planned.lines.len();
        let plan = planner.plan(args, &d)?;
        plan.notes.iter().cloned().for_each(|n| ledger.push(n));
        planned.dear |= judge(args, planner, &d, &plan.places, ledger)?;
        let mut definitions = plan.definitions;
        names.give(&mut definitions)?;
        let place = in_words(&d, planner);
        let mut last = None;
        for definition in &definitions {
            let line = line_of(definition);
            if last.as_ref() != Some(&line.event) {
                planned.shown.push((planned.lines.len(), place.clone()));
                last = Some(line.event.clone());
            }
            planned.lines.push(line);
        }
        let lines = planned.lines.get(first..).unwrap_or_default().to_vec();
        planned.found.push((text.clone(), lines));
    }
    planned.known = known;
    Ok(planned)
}

/// `--add`: everything or nothing.
pub(super) fn add(args: &Args) -> anyhow::Result<ExitCode> {
    let mut ledger = Ledger::default();
    let tracefs = tracing::open()?;
    let mut names = Names::of(&tracefs, args.force)?;
    let mut planned = plan(args, &tracefs, &mut names, &mut ledger)?;
    if !args.dry_run {
        tracefs.write_probes(&mut planned.lines).map_err(refused::explain)?;
        ProbeNotes::renew(&tracefs)?;
        if let Some(mut known) = planned.known.take() {
            kept::keep(&mut known, &planned.found)?;
        }
        if let Some(seconds) = args.preflight {
            preflight::run(&tracefs, &planned, seconds)?;
        }
    }
    let mut out = std::io::stdout().lock();
    if args.verbose || args.dry_run {
        for line in &planned.lines {
            writeln!(out, "{}", line.text)?;
        }
    }
    let adds = planned.lines.iter().any(|l| !l.removes());
    if !args.quiet {
        let what = match (args.dry_run, adds) {
            (true, _) => "Would add",
            (false, true) => "Added",
            (false, false) => "Changed",
        };
        let many = if planned.shown.len() == 1 { "" } else { "s" };
        writeln!(out, "{what} {}event{many}:", if adds { "new " } else { "" })?;
        for (line, place) in &planned.shown {
            match planned.lines.get(*line) {
                Some(l) if l.removes() => writeln!(out, "  {} (removed)", full_name(l))?,
                Some(l) => writeln!(out, "  {:20} (on {place})", full_name(l))?,
                None => {}
            }
        }
        let last = planned.lines.iter().rfind(|l| !l.removes());
        if let Some(line) = last.filter(|_| !args.dry_run) {
            let name = full_name(line);
            writeln!(
                out,
                "\nYou can now use it, as in:\n\n\tkymo record -e {name} -a -- sleep 1\n"
            )?;
        }
    }
    drop(out);
    Ok(close(args, &ledger))
}

/// `group:event`; an event that is not named gets its name from the kernel.
fn full_name(line: &ProbeLine) -> String {
    let event = if line.event.is_empty() { "…" } else { &line.event };
    format!("{}:{event}", line.group)
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
                bail!("{}: {what}; {advice} (kymo probe --force adds it anyway)", d.point);
            }
            ledger.note(NoteKind::Hazard, what, Some(advice));
        }
        dear |= site.cheap == Some(false);
        if args.verbose && site.cheap == Some(false) {
            ledger.tell(
                NoteKind::Cost,
                format!(
                    "at {:#x} the instruction is single-stepped: some 15 us a hit instead of 1",
                    place.addr
                ),
                Some("kymo probe bench measures it here".into()),
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
fn raw_line(raw: &RawLine, tracefs: &Tracefs) -> anyhow::Result<ProbeLine> {
    let event = raw.event.clone().unwrap_or_default();
    let same =
        |e: &DynamicEvent| e.name == event && raw.group.as_ref().is_none_or(|g| *g == e.system);
    let user = match raw.kind {
        '-' => tracefs.probes()?.iter().any(|p| p.file == ProbeFile::User && same(&p.event)),
        _ => raw.place.starts_with('/'),
    };
    let (file, group) =
        if user { (ProbeFile::User, "uprobes") } else { (ProbeFile::Kernel, "kprobes") };
    let group = raw.group.clone().unwrap_or_else(|| group.into());
    Ok(ProbeLine { file, text: raw.line.clone(), group, event })
}

fn line_of(d: &Definition) -> ProbeLine {
    let file =
        if matches!(d.place, Place::File { .. }) { ProbeFile::User } else { ProbeFile::Kernel };
    ProbeLine { file, text: d.to_string(), group: d.group.clone(), event: d.event.clone() }
}

/// Names of events.
pub(super) struct Names {
    /// Groups and events that there are.
    taken: Vec<(String, String)>,
    /// A name that is taken gets a number; otherwise it is refused.
    numbered: bool,
}

impl Names {
    fn of(tracefs: &Tracefs, numbered: bool) -> anyhow::Result<Names> {
        let all = tracefs.dynamic_events()?.into_iter();
        Ok(Names { taken: all.map(|e| (e.system, e.name)).collect(), numbered })
    }

    /// Names that are taken get a number.
    pub(super) fn numbered(tracefs: &Tracefs) -> anyhow::Result<Names> {
        Names::of(tracefs, true)
    }

    /// Gives each event a name that is free; places of one event share it.
    fn give(&mut self, definitions: &mut [Definition]) -> anyhow::Result<()> {
        let mut names: Vec<(String, String)> = Vec::new();
        for d in definitions.iter_mut() {
            if let Some((_, name)) = names.iter().find(|(base, _)| *base == d.event) {
                d.event.clone_from(name);
                continue;
            }
            let is_taken = |name: &str| self.taken.iter().any(|(g, e)| *g == d.group && e == name);
            let base = d.event.clone();
            let mut name = base.clone();
            if is_taken(&name) {
                let group = &d.group;
                if !self.numbered {
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
            self.taken.push((d.group.clone(), name.clone()));
            names.push((base, name));
        }
        Ok(())
    }
}

/// Whether `[GROUP:]EVENT` as a glob means an event.
pub(super) fn means(glob: &str, event: &DynamicEvent) -> bool {
    match glob.split_once(':') {
        Some((group, name)) => glob_match(group, &event.system) && glob_match(name, &event.name),
        None => glob_match(glob, &event.name),
    }
}

/// `--del`.
pub(super) fn delete(args: &Args) -> anyhow::Result<()> {
    let tracefs = tracing::open()?;
    let all = tracefs.probes()?;
    let mut done: Vec<(String, String)> = Vec::new();
    let mut failed = Vec::new();
    for glob in &args.del {
        let glob = glob.replacen('/', ":", 1);
        let mut any = false;
        for probe in all.iter().filter(|p| means(&glob, &p.event)) {
            let event = &probe.event;
            any = true;
            let key = (event.system.clone(), event.name.clone());
            if done.contains(&key) {
                continue;
            }
            done.push(key);
            let name = format!("{}:{}", event.system, event.name);
            if !args.dry_run
                && let Err(e) = tracefs.remove_probe(probe.file, &event.system, &event.name)
            {
                failed.push(match refused::is_busy(&e) {
                    true => format!("{name}: {}", keepers(&tracefs, event)),
                    false => format!("{name}: {e}"),
                });
                continue;
            }
            if !args.quiet {
                let what = if args.dry_run { "Would remove" } else { "Removed" };
                anstream::println!("{what} event: {name}");
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

//! `--add`: descriptions are resolved, judged, named and handed to the kernel.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use kymo_kernel::probe_events::{ProbeChange, ProbeFile};
use kymo_kernel::probe_notes::ProbeNotes;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::NoteKind;
use kymo_model::probe::ProbeDefinition;
use kymo_probe::grammar::{KernelLine, ProbeDescription, is_kernel_line};
use kymo_probe::naming::{EventNames, TakenName};
use kymo_probe::{CachedProbes, ProbeHazard, ProbePoint};
use kymo_symbols::debug_files::BinaryKind;
use kymo_view::Ledger;

use super::target::{ProbeResolver, close, files};
use super::{Args, cached, preflight, refused};
use crate::commands::tracing;

/// Changes that the flags ask for, before any is made.
#[derive(Default)]
pub(super) struct PlannedProbes {
    changes: Vec<ProbeChange>,
    /// Events: the first change of each, and its probe point in words.
    shown: Vec<(usize, String)>,
    /// Descriptions that were resolved, with their definitions.
    resolved: Vec<(String, Vec<ProbeDefinition>)>,
    /// The binary's cached probes, with `--cache`.
    cached: Option<CachedProbes>,
    /// Whether the instruction at any probe point is single-stepped.
    pub(super) single_stepped: bool,
}

impl PlannedProbes {
    /// Definitions that are added.
    pub(super) fn added(&self) -> impl Iterator<Item = &ProbeDefinition> {
        self.changes.iter().filter_map(ProbeChange::added)
    }

    /// Adds definitions; a name is shown for each event.
    fn push(&mut self, definitions: Vec<ProbeDefinition>, point: &str) {
        let mut last = None;
        for definition in definitions {
            if last != Some(definition.event.clone()) {
                self.shown.push((self.changes.len(), point.to_owned()));
                last = Some(definition.event.clone());
            }
            self.changes.push(ProbeChange::Add(definition));
        }
    }
}

/// Resolves all of `args.add`; nothing is changed.
pub(super) fn plan(
    args: &Args,
    tracefs: &Tracefs,
    names: &mut EventNames,
    ledger: &mut Ledger,
) -> anyhow::Result<PlannedProbes> {
    let described = args.add.iter().any(|d| !is_kernel_line(d));
    let files = described.then(|| files(args, false));
    let opened = files.as_ref().and_then(|f| f.as_ref().ok());
    let cached = args.cache.then(|| cached::load(args, opened)).transpose()?;
    let path = opened.map(|f| f.path.display().to_string()).unwrap_or_default();
    let mut resolver = None;
    let mut planned = PlannedProbes::default();
    for text in &args.add {
        if is_kernel_line(text) {
            let change = kernel_change(KernelLine::parse(text)?, tracefs)?;
            let point = change.added().map(|d| d.target.to_string()).unwrap_or_default();
            planned.shown.push((planned.changes.len(), point));
            planned.changes.push(change);
            continue;
        }
        if let Some(probe) = cached.as_ref().and_then(|c| c.find(text)) {
            planned.shown.push((planned.changes.len(), format!("{text}, as it was cached")));
            planned.changes.extend(probe.definitions_at(&path).into_iter().map(ProbeChange::Add));
            continue;
        }
        let d = ProbeDescription::parse(text)?;
        if resolver.is_none() {
            resolver = files.as_ref().map(ProbeResolver::new).transpose()?;
        }
        let Some(resolver) = &resolver else { continue };
        let mut resolved = resolver.resolve(args, &d)?;
        resolved.notes.iter().cloned().for_each(|n| ledger.push(n));
        planned.single_stepped |= judge(args, resolver, &d, &resolved.points, ledger)?;
        names.assign(&mut resolved.definitions)?;
        planned.resolved.push((text.clone(), resolved.definitions.clone()));
        planned.push(resolved.definitions, &point_text(&d, resolver));
    }
    planned.cached = cached;
    Ok(planned)
}

/// `--add`: everything or nothing.
pub(super) fn add(args: &Args) -> anyhow::Result<ExitCode> {
    let mut ledger = Ledger::default();
    let tracefs = tracing::open()?;
    let taken = if args.force { TakenName::Number } else { TakenName::Refuse };
    let mut names = event_names(&tracefs, taken)?;
    let mut planned = plan(args, &tracefs, &mut names, &mut ledger)?;
    if !args.dry_run {
        tracefs.write_probes(&mut planned.changes).map_err(refused::explain)?;
        ProbeNotes::renew(&tracefs)?;
        if let Some(mut cached) = planned.cached.take() {
            cached::store(&mut cached, &planned.resolved)?;
        }
        if let Some(seconds) = args.preflight {
            preflight::run(&tracefs, &planned, seconds)?;
        }
    }
    let mut out = std::io::stdout().lock();
    if args.verbose || args.dry_run {
        for change in &planned.changes {
            writeln!(out, "{change}")?;
        }
    }
    if !args.quiet {
        print_events(&mut out, args, &planned)?;
    }
    drop(out);
    Ok(close(args, &ledger))
}

fn print_events(
    out: &mut impl std::io::Write,
    args: &Args,
    planned: &PlannedProbes,
) -> anyhow::Result<()> {
    let last = planned.added().last();
    let what = match (args.dry_run, last) {
        (true, _) => "Would add",
        (false, Some(_)) => "Added",
        (false, None) => "Changed",
    };
    let many = if planned.shown.len() == 1 { "" } else { "s" };
    writeln!(out, "{what} {}event{many}:", if last.is_some() { "new " } else { "" })?;
    for (change, point) in &planned.shown {
        match planned.changes.get(*change) {
            Some(ProbeChange::Add(d)) => writeln!(out, "  {:20} (on {point})", d.full_name())?,
            Some(ProbeChange::Remove { file, group, event }) => {
                let group = group.as_deref().unwrap_or(file.default_group());
                writeln!(out, "  {group}:{} (removed)", event.as_deref().unwrap_or("*"))?;
            }
            None => {}
        }
    }
    if let Some(definition) = last.filter(|_| !args.dry_run) {
        let name = definition.full_name();
        writeln!(out, "\nYou can now use it, as in:\n\n\tkymo record -e {name} -a -- sleep 1\n")?;
    }
    Ok(())
}

/// Refuses points where a probe does harm, unless `--force` insists; says with
/// `--verbose` where a hit is expensive.
///
/// Gives whether any instruction is single-stepped.
fn judge(
    args: &Args,
    resolver: &ProbeResolver<'_>,
    d: &ProbeDescription,
    points: &[ProbePoint],
    ledger: &mut Ledger,
) -> anyhow::Result<bool> {
    let ProbeResolver::Binary(binary) = resolver else { return Ok(false) };
    let mut single_stepped = false;
    for point in points {
        let safety = binary.judge(point);
        if let Some(ProbeHazard { what, advice }) = safety.hazard {
            if !args.force {
                bail!("{}: {what}; {advice} (kymo probe --force adds it anyway)", d.point);
            }
            ledger.note(NoteKind::Hazard, what, Some(advice));
        }
        single_stepped |= safety.cheap == Some(false);
        if args.verbose && safety.cheap == Some(false) {
            ledger.tell(
                NoteKind::Cost,
                format!(
                    "at {:#x} the instruction is single-stepped: some 15 us a hit instead of 1",
                    point.addr
                ),
                Some("kymo probe bench measures it here".into()),
            );
        }
    }
    Ok(single_stepped)
}

fn point_text(d: &ProbeDescription, resolver: &ProbeResolver<'_>) -> String {
    let mut text = d.point.to_string();
    if let ProbeResolver::Binary(binary) = resolver
        && binary.files.kind == BinaryKind::User
    {
        text.push_str(&format!(" in {}", binary.files.path.display()));
    }
    if !d.args.is_empty() {
        let args: Vec<String> = d.args.iter().map(ToString::to_string).collect();
        text.push_str(&format!(" with {}", args.join(" ")));
    }
    text
}

/// The change that a line in the kernel's own syntax asks for; one that removes an event
/// goes to the file that the event is of.
fn kernel_change(line: KernelLine, tracefs: &Tracefs) -> anyhow::Result<ProbeChange> {
    match line {
        KernelLine::Add(definition) => Ok(ProbeChange::Add(definition)),
        KernelLine::Remove { group, event } => {
            let fits = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|w| w == is);
            let user = tracefs.probes()?.iter().any(|p| {
                p.file == ProbeFile::User
                    && fits(&event, p.event())
                    && fits(&group, &p.definition.group)
            });
            let file = if user { ProbeFile::User } else { ProbeFile::Kernel };
            Ok(ProbeChange::Remove { file, group, event })
        }
    }
}

/// Names beside the events of the running kernel.
pub(super) fn event_names(tracefs: &Tracefs, taken: TakenName) -> anyhow::Result<EventNames> {
    let existing = tracefs.dynamic_events()?.into_iter().map(|e| (e.system, e.name));
    Ok(EventNames::new(existing, taken))
}

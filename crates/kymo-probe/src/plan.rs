//! Descriptions as changes of the kernel's probes: resolved, judged, named. Nothing is
//! changed here.

use kymo_kernel::probe_events::{ProbeChange, ProbeFile};
use kymo_kernel::proc_maps::replaced_binary;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::probe::ProbeDefinition;
use kymo_model::{Note, NoteKind};
use kymo_symbols::debug_files::BinaryKind;

use crate::grammar::{KernelLine, ProbeDescription, is_kernel_line};
use crate::naming::{EventNames, TakenName};
use crate::plan_error::PlanError;
use crate::point_finder::ProbePoint;
use crate::probe_cache::CachedProbes;
use crate::resolve::ResolveOptions;
use crate::safety::ProbeHazard;
use crate::target::{ProbeResolver, ProbedTarget};

/// Options of planning changes from descriptions.
pub struct PlanOptions<'p> {
    /// Target of the probes.
    pub target: &'p ProbedTarget,
    /// Options of resolving descriptions.
    pub resolve: ResolveOptions,
    /// Points where a probe does harm are taken all the same, with a note.
    pub force: bool,
    /// Notes say where a hit is expensive.
    pub costs: bool,
    /// Definitions that are known by their descriptions.
    pub cached: Option<&'p CachedProbes>,
}

/// Changes that descriptions ask for, before any is made.
#[derive(Default)]
pub struct PlannedProbes {
    /// All of them, in order.
    pub changes: Vec<ProbeChange>,
    /// Events: the first change of each, and its probe point in words.
    pub shown: Vec<(usize, String)>,
    /// Descriptions that were resolved, with their definitions.
    pub resolved: Vec<(String, Vec<ProbeDefinition>)>,
    /// Whether the instruction at any probe point is single-stepped.
    pub single_stepped: bool,
    /// Notes about the probes.
    pub notes: Vec<Note>,
}

impl PlannedProbes {
    /// Definitions that are added.
    pub fn added(&self) -> impl Iterator<Item = &ProbeDefinition> {
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

/// Names beside the events of the running kernel.
///
/// # Errors
/// If tracefs does not tell them.
pub fn event_names(tracefs: &Tracefs, taken: TakenName) -> Result<EventNames, PlanError> {
    let existing = tracefs.dynamic_events()?.into_iter().map(|e| (e.system, e.name));
    Ok(EventNames::new(existing, taken))
}

/// Resolves all descriptions, or finds their definitions; nothing is changed.
///
/// # Errors
/// If one cannot be resolved, is a hazard, or has no name.
pub fn plan_probes(
    descriptions: &[String],
    options: &PlanOptions<'_>,
    tracefs: &Tracefs,
    names: &mut EventNames,
) -> Result<PlannedProbes, PlanError> {
    let described = descriptions.iter().any(|d| !is_kernel_line(d));
    let files = described.then(|| options.target.files(false));
    let opened = files.as_ref().and_then(|f| f.as_ref().ok());
    let path = opened.map(|f| f.path.display().to_string()).unwrap_or_default();
    let mut resolver = None;
    let mut planned = PlannedProbes::default();
    if let Some(files) = opened.filter(|f| f.kind == BinaryKind::User)
        && let Some(fact) = replaced_binary(&files.path, &[])
    {
        let advice = Some("restart these processes".to_owned());
        planned.notes.push(Note::doubt(NoteKind::Program, fact, advice));
    }
    for text in descriptions {
        if is_kernel_line(text) {
            let change = kernel_change(KernelLine::parse(text)?, tracefs)?;
            let point = change.added().map(|d| d.target.to_string()).unwrap_or_default();
            planned.shown.push((planned.changes.len(), point));
            planned.changes.push(change);
            continue;
        }
        if let Some(probe) = options.cached.and_then(|c| c.find(text)) {
            planned.shown.push((planned.changes.len(), format!("{text}, as it was cached")));
            planned.changes.extend(probe.definitions_at(&path).into_iter().map(ProbeChange::Add));
            continue;
        }
        let d = ProbeDescription::parse(text)?;
        if resolver.is_none() {
            resolver = files.as_ref().map(ProbeResolver::new).transpose()?;
        }
        let Some(resolver) = &resolver else { continue };
        let module = options.target.module.as_deref();
        let mut resolved = resolver.resolve(&d, &options.resolve, module)?;
        planned.notes.append(&mut resolved.notes);
        judge(options, resolver, &d, &resolved.points, &mut planned)?;
        names.assign(&mut resolved.definitions)?;
        planned.resolved.push((text.clone(), resolved.definitions.clone()));
        planned.push(resolved.definitions, &point_text(&d, resolver));
    }
    Ok(planned)
}

/// Refuses points where a probe does harm, unless it is forced; says, if that is asked for,
/// where a hit is expensive.
fn judge(
    options: &PlanOptions<'_>,
    resolver: &ProbeResolver<'_>,
    d: &ProbeDescription,
    points: &[ProbePoint],
    planned: &mut PlannedProbes,
) -> Result<(), PlanError> {
    let ProbeResolver::Binary(binary) = resolver else { return Ok(()) };
    if d.point.ret && binary.files.kind == BinaryKind::User {
        let first = points.first().filter(|point| !binary.symbols.is_go(point.addr));
        let hazard = first.and_then(|p| binary.judge_unwinding(p.addr, points.len() - 1));
        planned.notes.extend(hazard.map(ProbeHazard::into_note));
    }
    for point in points {
        let safety = binary.judge(point);
        let is_user = binary.files.kind == BinaryKind::User;
        let at_return = (d.point.ret && is_user).then(|| binary.judge_return(point.addr)).flatten();
        if let Some(ProbeHazard { what, advice }) = safety.hazard.or(at_return) {
            if !options.force {
                return Err(PlanError::Hazard { point: d.point.to_string(), what, advice });
            }
            planned.notes.push(Note::doubt(NoteKind::Hazard, what, Some(advice)));
        }
        planned.single_stepped |= safety.cheap == Some(false);
        if options.costs && safety.cheap == Some(false) {
            let fact = format!(
                "the instruction at {:#x} is single-stepped: about 15 us per hit instead of 1",
                point.addr
            );
            let advice = "kymo probe bench measures it here".to_owned();
            planned.notes.push(Note::choice(NoteKind::Cost, fact, Some(advice)));
        }
    }
    Ok(())
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
fn kernel_change(line: KernelLine, tracefs: &Tracefs) -> Result<ProbeChange, PlanError> {
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

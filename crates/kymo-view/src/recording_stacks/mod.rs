//! Stacks of recordings of any format, or of several together: the form that other formats are
//! written from.
//!
//! Samples of counters weigh what they stand for. Tracepoints, whichever recording they are in,
//! count as one each, or weigh what a field of them says: each is the innermost frame of the
//! stack that was recorded with it, so that all of them can be in one result.

mod builder;
mod events;
mod function_nesting;
mod plan;
mod profile;
mod task_times;

use kymo_analysis::offcpu::TaskTimesError;
use kymo_analysis::payload_weights::PayloadWeights;
use kymo_analysis::profile::{LoadOptions, Profile, ProfileError, SampleLabels, has_chains};
use kymo_events::{EventSource, SourceError, TeedBatches};
use kymo_files::perfdata::{Entry, PerfData};
use kymo_model::{Note, NoteKind, Sample};

use crate::Ledger;
use crate::stacks::Stacks;
use crate::trust::profile_ledger;
use builder::{EVENTS, FUNCTIONS, StackBuilder};
use events::{EventStacks, WeightCounts};
use profile::{ProfilePart, add_profile};

pub use plan::{SampleWeight, StackPlan, TaskSplit, TimePart};

/// Stacks cannot be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum StackError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    TaskTimes(#[from] TaskTimesError),
    #[error("--weight: no event of the recording has a field {0} that is a number")]
    NoField(String),
    #[error("-e: this format holds one event, and weights cannot be added up: {0}")]
    SeveralEvents(String),
}

/// Stacks of recordings, and how far they can be trusted.
pub struct RecordingStacks {
    /// The stacks.
    pub stacks: Stacks,
    /// What could make them less than the truth.
    pub ledger: Ledger,
    /// What could not be read.
    pub damage: Option<String>,
}

impl RecordingStacks {
    /// Reads recordings.
    ///
    /// # Errors
    /// If they cannot be read, or have nothing of what was named.
    pub fn read(source: &EventSource, plan: &StackPlan<'_>) -> Result<RecordingStacks, StackError> {
        RecordingStacks::read_with(source, plan, None)
    }

    /// The same of one perf.data whose records somebody else reads.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_teed(
        source: &EventSource,
        plan: &StackPlan<'_>,
        batches: TeedBatches,
    ) -> Result<RecordingStacks, StackError> {
        RecordingStacks::read_with(source, plan, Some(batches))
    }

    fn read_with(
        source: &EventSource,
        plan: &StackPlan<'_>,
        mut batches: Option<TeedBatches>,
    ) -> Result<RecordingStacks, StackError> {
        check(source, plan)?;
        let mut builder = StackBuilder::new(plan);
        let mut read =
            RecordingStacks { stacks: Stacks::default(), ledger: Ledger::default(), damage: None };
        if let Some(part) = plan.weight.time_part() {
            task_times::add(source, plan, part, (&mut builder, &mut read))?;
            read.stacks = builder.finish();
            return Ok(read);
        }
        let mut weights = WeightCounts::default();
        for number in 0..source.perf_count() {
            if let Some(mut data) = source.perf(number) {
                let beside = batches.take();
                read.samples(source, (&mut data, beside), plan, (&mut builder, &mut weights))?;
            }
        }
        if source.timeline().is_some() {
            builder.begin_recording();
            let mut events = EventStacks::new(plan, &mut builder);
            let summary = events.read(source)?;
            summary.notes(source).into_iter().for_each(|n| read.ledger.push(n));
            events.note(source, &mut read.ledger);
            weights.add(&events.weights);
            if summary.is_damaged(source) {
                let why = || "damaged; what can be read is converted".to_owned();
                read.damage.get_or_insert_with(why);
            }
        }
        weights.note(plan, &mut read.ledger);
        let unmet = plan.selection.unmet_notes(|| source.extent());
        unmet.into_iter().for_each(|note| read.ledger.push(note));
        read.stacks = builder.finish();
        if plan.one_event {
            read.choose_event(plan)?;
        }
        Ok(read)
    }

    /// The samples of a perf.data.
    fn samples(
        &mut self,
        source: &EventSource,
        (data, batches): (&mut PerfData, Option<TeedBatches>),
        plan: &StackPlan<'_>,
        (builder, counts): (&mut StackBuilder, &mut WeightCounts),
    ) -> Result<(), StackError> {
        let symbols = source.symbols().clone();
        let field = plan.weight.field();
        let mut weights = field.map(|f| PayloadWeights::new(f, symbols.bundle.clone()));
        let mut label = |entry: &Entry<'_>, sample: &Sample<'_>| {
            weights.as_mut().map_or(0, |w| w.label(entry, sample))
        };
        let options = LoadOptions {
            symbols,
            merge_threads: !matches!(plan.split, TaskSplit::Pid | TaskSplit::Tid),
            by_address: plan.addresses,
            inlines: plan.inlines && data.events().iter().any(has_chains),
            lines: plan.inlines && plan.addresses,
            moments: plan.moments,
            selection: Some(plan.selection),
            batches,
            labels: match field.is_some() {
                true => SampleLabels::Numbers(&mut label),
                false => SampleLabels::None,
            },
            ..LoadOptions::default()
        };
        let profile = Profile::read(data, options)?;
        let several = source.perf_count() + usize::from(source.timeline().is_some()) > 1;
        for note in profile_ledger(&profile, data).notes() {
            let fact = match several {
                true => format!("{}: {}", data.name(), note.fact),
                false => note.fact.clone(),
            };
            self.ledger.push(Note { fact, ..note.clone() });
        }
        if let Some(damage) = &profile.stats.damaged {
            self.damage.get_or_insert(format!("{damage}; what came before is converted"));
        }
        builder.begin_recording();
        add_profile(
            &ProfilePart { profile: &profile, plan, weights: weights.as_ref(), running: None },
            builder,
        );
        if let Some(weights) = &weights {
            counts
                .add(&WeightCounts { weightless: weights.weightless, negative: weights.negative });
        }
        if builder.made.title.is_empty() && !several {
            builder.made.title = data.features().cmdline.join(" ");
        }
        Ok(())
    }

    /// Weights of different events cannot be added up: where none is named, the first one with
    /// samples it is.
    fn choose_event(&mut self, plan: &StackPlan<'_>) -> Result<(), StackError> {
        let samples = builder::samples_by_event(&self.stacks);
        let sampled = samples.iter().enumerate().filter(|(_, n)| **n > 0);
        let sampled: Vec<(usize, u64)> = sampled.map(|(event, n)| (event, *n)).collect();
        let [(first, _), others @ ..] = &*sampled else { return Ok(()) };
        let name = |event: usize| self.stacks.events.get(event).map_or("", |e| &e.name).to_owned();
        let names: Vec<String> = sampled.iter().map(|(event, _)| name(*event)).collect();
        match (&*names, others) {
            ([functions, events], [(_, left_out)])
                if functions == FUNCTIONS && events == EVENTS =>
            {
                let fact = format!(
                    "the result has the time in functions only; {left_out} events have another unit"
                );
                let advice = Some("-e names them, pprof and speedscope hold both".into());
                self.ledger.tell(NoteKind::Events, fact, advice);
            }
            ([_], _) => {}
            _ if plan.selection.names_events() => {
                return Err(StackError::SeveralEvents(names.join(", ")));
            }
            ([first, others @ ..], _) => {
                let others = others.join(", ");
                let fact = format!("the result has {first} only; also recorded: {others}");
                self.ledger.tell(NoteKind::Events, fact, Some("-e names another one".into()));
            }
            ([], _) => {}
        }
        if self.stacks.events.len() > 1 {
            let title = std::mem::take(&mut self.stacks.title);
            self.stacks = builder::only_event(&self.stacks, *first as u32);
            self.stacks.title = title;
        }
        Ok(())
    }
}

/// The field that weighs must be one of an event: otherwise it is a slip of the fingers.
fn check(source: &EventSource, plan: &StackPlan<'_>) -> Result<(), StackError> {
    let Some(field) = plan.weight.field().filter(|_| !source.is_piped()) else { return Ok(()) };
    match source.classes().iter().any(|c| plan.weight.field_of(c).is_some()) {
        true => Ok(()),
        false => Err(StackError::NoField(field.name.to_owned())),
    }
}

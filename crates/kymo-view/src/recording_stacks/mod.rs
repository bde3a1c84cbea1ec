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
use kymo_events::{EventPass, EventSource, ReadSummary, RecordedEvent, SourceError, TeedBatches};
use kymo_files::perfdata::{Entry, PerfData};
use kymo_model::{Note, NoteKind, Sample, UntrustedText};

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
    #[error("-e: this format holds one event, and weights cannot be added up: {}", UntrustedText::new(.0).to_text())]
    SeveralEvents(String),
}

/// Stacks of recordings, and how far they can be trusted.
#[derive(Default)]
pub struct RecordingStacks {
    /// The stacks.
    pub stacks: Stacks,
    /// Warnings about what could make them less than the truth.
    pub ledger: Ledger,
    /// Reason why a part could not be read.
    pub damage: Option<String>,
}

impl RecordingStacks {
    /// Reads recordings.
    ///
    /// # Errors
    /// If they cannot be read, or have nothing of what was named.
    pub fn read(source: &EventSource, plan: &StackPlan<'_>) -> Result<RecordingStacks, StackError> {
        check(source, plan)?;
        let mut builder = StackBuilder::new(plan);
        let mut read = RecordingStacks::default();
        if let Some(part) = plan.weight.time_part() {
            task_times::add(source, plan, part, (&mut builder, &mut read))?;
            read.stacks = builder.finish();
            return Ok(read);
        }
        let mut weights = WeightCounts::default();
        for number in 0..source.perf_count() {
            if let Some(mut data) = source.perf(number) {
                read.samples(source, (&mut data, None), plan, (&mut builder, &mut weights))?;
            }
        }
        if source.timeline().is_some() {
            builder.begin_recording();
            let mut events = EventStacks::new(plan, &mut builder);
            let summary = events.read(source)?;
            read.add_events(source, &events, &summary);
            weights.add(&events.weights);
        }
        read.finish(source, plan, (builder, weights))
    }

    /// Reads recordings for `other`, too: out of one reading where they are one perf.data, or
    /// trace.dat and CTF, of which `other` has the pass that it gets take its events.
    ///
    /// # Errors
    /// As [`read`](Self::read), or if `other` fails.
    pub fn read_beside<T>(
        source: &EventSource,
        plan: &StackPlan<'_>,
        other: impl FnOnce(Option<EventPass<'_>>) -> Result<(T, Option<ReadSummary>), SourceError>,
    ) -> Result<(T, RecordingStacks), StackError> {
        check(source, plan)?;
        let (mut builder, mut weights) = (StackBuilder::new(plan), WeightCounts::default());
        let mut read = RecordingStacks::default();
        if source.is_one_perf_data() {
            let mut data = source.reopen(0)?;
            let parts = (&mut builder, &mut weights);
            let (other, samples) = source.read_for_two(
                || other(None),
                |batches| read.samples(source, (&mut data, Some(batches)), plan, parts),
            );
            // A failed reading reports itself.
            let (other, _) = other?;
            samples?;
            return Ok((other, read.finish(source, plan, (builder, weights))?));
        }
        if source.perf_count() > 0 {
            return Ok((other(None)?.0, RecordingStacks::read(source, plan)?));
        }
        builder.begin_recording();
        let mut events = EventStacks::new(plan, &mut builder);
        let sink = &mut |event: &RecordedEvent<'_>| events.event(event);
        let pass = EventPass { selection: plan.selection, options: EventStacks::OPTIONS, sink };
        let (other, summary) = other(Some(pass))?;
        read.add_events(source, &events, &summary.unwrap_or_default());
        weights.add(&events.weights);
        Ok((other, read.finish(source, plan, (builder, weights))?))
    }

    fn add_events(
        &mut self,
        source: &EventSource,
        events: &EventStacks<'_>,
        summary: &ReadSummary,
    ) {
        summary.notes(source).into_iter().for_each(|n| self.ledger.push(n));
        events.note(source, &mut self.ledger);
        if summary.is_damaged(source) {
            let why = || "damaged; what can be read is converted".to_owned();
            self.damage.get_or_insert_with(why);
        }
    }

    fn finish(
        mut self,
        source: &EventSource,
        plan: &StackPlan<'_>,
        (builder, weights): (StackBuilder, WeightCounts),
    ) -> Result<RecordingStacks, StackError> {
        weights.note(plan, &mut self.ledger);
        let unmet = plan.selection.unmet_notes(|| source.extent());
        unmet.into_iter().for_each(|note| self.ledger.push(note));
        self.stacks = builder.finish();
        if plan.one_event {
            self.choose_event(plan)?;
        }
        Ok(self)
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
            labels: if field.is_some() {
                SampleLabels::Numbers(&mut label)
            } else {
                SampleLabels::None
            },
            ..LoadOptions::default()
        };
        let profile = Profile::read(data, options)?;
        let several = source.perf_count() + usize::from(source.timeline().is_some()) > 1;
        for note in profile_ledger(&profile, data).notes() {
            let fact =
                if several { format!("{}: {}", data.name(), note.fact) } else { note.fact.clone() };
            self.ledger.push(Note { fact, ..note.clone() });
        }
        if let Some(damage) = &profile.stats.damaged {
            self.damage.get_or_insert(format!("{damage}; everything before it is converted"));
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
    if source.classes().iter().any(|c| plan.weight.field_of(c).is_some()) {
        Ok(())
    } else {
        Err(StackError::NoField(field.name.to_owned()))
    }
}

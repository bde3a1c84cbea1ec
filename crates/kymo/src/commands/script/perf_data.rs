//! Events of a perf.data file: read and ordered on one thread, rendered on
//! others.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use kymo_events::state::MachineState;
use kymo_events::state_history::StateTracker;
use kymo_events::unwind::Tally;
use kymo_events::worker_pool::worker_count;
use kymo_events::{EventSelection, SampleSelector, notes_on_perf_data};
use kymo_files::perfdata::{Entry, Feature, PerfData, PerfDataReadStats, RecordOrder};
use kymo_model::{NoteKind, RecordKind, SampleType};
use kymo_render::OrderedJob;
use kymo_render::perf_script::{
    FieldSpec, PerfBatch, PerfOutput, PerfRenderer, SampleTextOptions, ShownSideband,
    SourceOptions, perf_notes,
};
use kymo_symbols::Resolver;
use kymo_symbols::bundle::Bundle;
use kymo_view::Ledger;
use kymo_view::recording_header::write_header;
use kymo_view::trust::{note_symbols, note_unwinding};

use super::{Args, frame_addresses, output};
use crate::commands::{captured_on, open_description};
use crate::exit;

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    let fields = FieldSpec::parse(&args.fields)?;
    let mut data = if args.header_only { open_description(path)? } else { PerfData::open(path)? };
    if args.no_merge_callchains {
        data.keep_deferred_chains();
    }
    let selection = args.selection(|| Ok(data.sample_span()?))?;
    if args.header || args.header_only || args.show_info {
        let mut text = Vec::new();
        write_header(&mut text, &data, captured_on(path).as_deref(), args.show_info)?;
        output::write(&text)?;
        if args.header_only {
            return Ok(exit::of_description(&data));
        }
    }
    let order = if args.dump_raw_trace { RecordOrder::File } else { RecordOrder::Time };
    let name = data.name().to_owned();
    let shown = (args.shown_sideband(), args.perf_output());
    let symbols = args.finding.options(Path::new(data.name()));
    let options = args.sample_options(symbols.bundle.clone());
    let tracker = StateTracker::new(Resolver::new(symbols));
    let state = tracker.reader();
    let first = PerfRenderer::new(name, fields, options, selection.clone(), state, shown);
    let n = renderer_count(args, &data);
    let renderers = std::iter::repeat_with(|| first.fork_for_thread()).take(n).collect();
    let filter = filter_of(args, &data, &selection)?;
    let selector = filter.map(|filter| FilteredRecords::new(filter, &data, args));
    let tracker = (order == RecordOrder::Time).then_some(tracker);
    let (stats, machine, renderers) =
        read_and_render(&mut data, (order, selector), tracker, renderers)?;
    let mut ledger = Ledger::from_notes(notes_on_perf_data(&data, &stats));
    note(&renderers, machine.as_ref(), &mut ledger);
    let unmet = selection.unmet_notes_in(&mut data);
    if unmet.is_empty() && !renderers.iter().any(PerfRenderer::has_shown) {
        ledger.tell(NoteKind::Nothing, super::nothing(args), None);
    }
    unmet.into_iter().for_each(|note| ledger.push(note));
    exit::tell(&ledger);
    let damage = stats.damaged.as_ref().map(|d| format!("{d}; everything before it was printed"));
    Ok(exit::status(data.name(), damage.as_deref(), &ledger, args.strict))
}

/// Reads, orders and follows the state on one thread, renders on others. Raw dumps have no
/// state.
fn read_and_render(
    data: &mut PerfData,
    (order, mut filtered): (RecordOrder, Option<FilteredRecords<'_>>),
    mut tracker: Option<StateTracker>,
    renderers: Vec<PerfRenderer>,
) -> anyhow::Result<(PerfDataReadStats, Option<MachineState>, Vec<PerfRenderer>)> {
    let ((stats, machine), renderers) = output::render_in_order(renderers, |give| {
        let stats = data.for_each_batch(order, &mut |mut records| {
            if let Some(filtered) = &mut filtered {
                records.retain(|entry| filtered.wants(entry));
            }
            let state = tracker.as_mut().map(|t| t.apply(&records));
            give(OrderedJob { job: PerfBatch { records, state }, for_all: false })
        });
        (stats, tracker.map(StateTracker::into_machine))
    })?;
    Ok((stats?, machine, renderers))
}

/// Chooses samples if there is a filter.
fn filter_of<'f>(
    args: &Args,
    data: &PerfData,
    selection: &'f EventSelection,
) -> anyhow::Result<Option<SampleSelector<'f>>> {
    // The others are decided where samples are rendered.
    let is_decided_here = selection.names_cgroups() || selection.switch.is_given();
    if selection.filter.is_none() && !is_decided_here {
        return Ok(None);
    }
    let symbols = args.finding.options(Path::new(data.name()));
    Ok(Some(SampleSelector::new(selection, data, &symbols)?))
}

/// Leaves out samples that a filter does not want, by the state at their time.
struct FilteredRecords<'f> {
    selector: SampleSelector<'f>,
    machine: MachineState,
}

impl<'f> FilteredRecords<'f> {
    fn new(selector: SampleSelector<'f>, data: &PerfData, args: &Args) -> FilteredRecords<'f> {
        let symbols = args.finding.options(Path::new(data.name()));
        let mut machine = MachineState::new(Resolver::new(symbols));
        machine.adopt(data.features());
        FilteredRecords { selector, machine }
    }

    fn wants(&mut self, entry: &Entry<'_>) -> bool {
        if entry.raw.kind == RecordKind::SAMPLE {
            return self.selector.wants(entry, &self.machine);
        }
        self.machine.apply(&entry.raw);
        true
    }
}

/// Number of threads that render. A pipe defines binaries bit by bit, for one renderer; a reading
/// of counts is printed when it is complete.
fn renderer_count(args: &Args, data: &PerfData) -> usize {
    let is_of_counts = data.features().section(Feature::STAT, data.endian()).is_some();
    // Counts of groups are differences to the sample before.
    let has_groups = data.events().iter().any(|e| e.attr.sample_type.contains(SampleType::READ));
    let is_ordered = is_of_counts || has_groups || args.reltime || args.deltatime;
    if data.is_pipe() || is_ordered {
        return 1;
    }
    worker_count()
}

impl Args {
    fn shown_sideband(&self) -> ShownSideband {
        ShownSideband {
            tasks: self.show_task_events,
            mmaps: self.show_mmap_events,
            lost: self.show_lost_events,
            switches: self.show_switch_events,
            namespaces: self.show_namespace_events,
            cgroups: self.show_cgroup_events,
            bpf: self.show_bpf_events,
            rounds: self.show_round_events,
            text_pokes: self.show_text_poke_events,
            deferred_chains: self.no_merge_callchains,
        }
    }

    fn perf_output(&self) -> PerfOutput {
        match (self.dump_raw_trace, self.json) {
            (true, _) => PerfOutput::RawDump,
            (false, true) => PerfOutput::Json,
            (false, false) => PerfOutput::Text,
        }
    }

    fn sample_options(&self, bundle: Option<Arc<Bundle>>) -> SampleTextOptions {
        SampleTextOptions {
            chains: !self.hide_call_graph,
            max_stack: self.max_stack,
            addresses: frame_addresses(),
            style: self.style(),
            only: self.symbols.clone(),
            addr_range: self.addr_range,
            dsos: self.dsos.clone(),
            stop_at: self.stop_bt.clone(),
            bundle,
            sources: SourceOptions { inlines: !self.no_inline, full_paths: self.full_source_path },
        }
    }
}

/// Notes what the renderers met.
fn note(renderers: &[PerfRenderer], machine: Option<&MachineState>, ledger: &mut Ledger) {
    perf_notes(renderers).into_iter().for_each(|note| ledger.push(note));
    let mut tally = Tally::default();
    renderers.iter().for_each(|r| tally.merge(r.unwind_tally().clone()));
    if let Some(machine) = machine {
        note_unwinding(&tally, &machine.symbols, ledger);
        note_symbols(&machine.symbols, ledger);
    }
}

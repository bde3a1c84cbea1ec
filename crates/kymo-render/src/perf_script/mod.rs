//! Records of a perf.data file as perf script lays them out, or as JSON lines.
//!
//! `line_start` writes who, where and when, `sample_text` and `sample_json` a sample,
//! `sample_details` what samples may carry besides, `sideband_text` records that are no
//! samples. `recorded_names` names tasks and addresses, `chain_lines` writes call chains,
//! `source_lines` adds inlined functions and lines.

pub(crate) mod chain_lines;
mod data_json;
pub(crate) mod fields;
pub(crate) mod line_start;
mod recorded_names;
mod sample_details;
pub(crate) mod sample_json;
mod sample_text;
mod sideband_text;
mod source_lines;
mod stat_table;

use kymo_analysis::sample_reads::SampleReads;
use kymo_events::EventSelection;
use kymo_events::perf_data;
use kymo_events::state_history::{StateMark, StateReader};
use kymo_events::unwind::Tally;
use kymo_files::perfdata::{Batch, Entry, EventDesc};
use kymo_format::LineWriter;
use kymo_model::{Note, NoteKind, RecordKind, counted};

pub use chain_lines::{ChainLines, ChainOptions, FrameAddresses};
pub use data_json::DataJsonWriter;
pub use fields::{FieldSet, FieldSpec};
pub use line_start::{LineStyle, TimeOrigin};
pub use sample_text::SampleTextOptions;
pub use sideband_text::ShownSideband;
pub use source_lines::SourceOptions;

use sample_text::SampleRenderer;
use stat_table::StatTable;

use crate::error::{FieldSpecError, RenderError};
use crate::ordered_pool::OrderedWorker;

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerfOutput {
    /// Lines of text, as perf script's.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
    /// The bytes of every record.
    RawDump,
}

/// Records that are rendered together, with the state that they begin in.
#[derive(Debug)]
pub struct PerfBatch {
    /// The records.
    pub records: Batch,
    /// The state; raw dumps need none.
    pub state: Option<StateMark>,
}

/// Renders the records of a perf.data file.
pub struct PerfRenderer {
    filter: EventSelection,
    samples: SampleRenderer,
    sideband: ShownSideband,
    output: PerfOutput,
    /// Name of the recording, for raw dumps.
    file: String,
    stats: StatTable,
    /// Whether anything was printed.
    shown: bool,
    /// Number of events that are known.
    events: usize,
    /// Counts of groups of which only the leader is sampled.
    reads: Option<SampleReads>,
}

impl PerfRenderer {
    /// Renders the recording `file`, whose tasks and mappings `state` knows: its samples as
    /// `fields` and `options` say, and the records of `sideband`.
    pub fn new(
        file: String,
        fields: FieldSpec,
        options: SampleTextOptions,
        filter: EventSelection,
        state: StateReader,
        (sideband, output): (ShownSideband, PerfOutput),
    ) -> PerfRenderer {
        let samples = SampleRenderer::new(fields, options, state);
        PerfRenderer {
            filter,
            samples,
            sideband,
            output,
            file,
            stats: StatTable::default(),
            shown: false,
            events: 0,
            reads: None,
        }
    }

    /// Renderer for another thread, which has seen nothing and shares what is read of files.
    pub fn fork_for_thread(&self) -> PerfRenderer {
        PerfRenderer {
            filter: self.filter.clone(),
            samples: self.samples.fork_for_thread(),
            file: self.file.clone(),
            stats: StatTable::default(),
            reads: None,
            events: 0,
            ..*self
        }
    }

    /// Whether anything was printed.
    pub fn has_shown(&self) -> bool {
        self.shown
    }

    /// Counts of how the unwound stacks ended.
    pub fn unwind_tally(&self) -> &Tally {
        self.samples.names.tally()
    }

    #[inline]
    fn write(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> Result<(), FieldSpecError> {
        if self.output == PerfOutput::RawDump {
            sideband_text::dump(entry, &self.file, out);
            return Ok(());
        }
        let json = self.output == PerfOutput::Json;
        if entry.raw.kind != RecordKind::SAMPLE {
            self.samples.pass(entry);
            if !json {
                self.stats.take(entry, out);
            }
            if self.sideband.wants(entry.raw.kind) && !json {
                self.sideband.print(entry, &mut self.samples, out);
            }
            return Ok(());
        }
        self.follow_events(entry.events);
        let Some(members) = self.reads.as_mut().and_then(|reads| reads.member_samples(entry))
        else {
            return self.write_sample(entry, out);
        };
        // A line for each event of the group that counted anything since the sample before.
        for member in members {
            self.samples.part = Some(member.period);
            self.write_sample(&member.entry, out)?;
        }
        self.samples.part = None;
        Ok(())
    }

    fn write_sample(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> Result<(), FieldSpecError> {
        match self.output {
            PerfOutput::Json => sample_json::print(entry, &self.filter, &mut self.samples, out),
            _ => self.samples.print(entry, &self.filter, out),
        }
    }

    /// Takes notice of events whose samples hold counts.
    fn follow_events(&mut self, events: &[EventDesc]) {
        if self.events != events.len() {
            self.events = events.len();
            self.reads = SampleReads::of(events);
        }
    }

    fn write_all(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), FieldSpecError> {
        let is_json = self.output == PerfOutput::Json;
        if let Some(first) = batch.get(0) {
            self.follow_events(first.events);
        }
        let is_usual = self.reads.is_none()
            && if is_json {
                !self.filter.is_restricted() && !self.samples.chooses_places()
            } else {
                self.output == PerfOutput::Text && self.samples.is_usual(&self.filter)
            };
        if !is_usual {
            return batch.entries().try_for_each(|e| self.write(&e, out));
        }
        let mut entries = batch.entries();
        loop {
            let mut line = LineWriter::new(out);
            let other = entries.find(|e| {
                e.raw.kind != RecordKind::SAMPLE
                    || !if is_json {
                        self.samples.print_json(e, &mut line)
                    } else {
                        self.samples.print_plain(e, &mut line)
                    }
            });
            line.finish();
            let Some(other) = other else { return Ok(()) };
            self.write(&other, out)?;
        }
    }
}

impl OrderedWorker<PerfBatch> for PerfRenderer {
    fn render(&mut self, batch: &PerfBatch, out: &mut Vec<u8>) -> Result<(), RenderError> {
        let before = out.len();
        if let Some(state) = &batch.state {
            self.samples.begin_batch(state);
        }
        let printed = self.write_all(&batch.records, out);
        self.samples.end_batch(before, out);
        printed?;
        self.shown |= out.len() > before;
        Ok(())
    }

    /// The state comes with each batch.
    fn pass(&mut self, _: &PerfBatch) {}
}

/// Notes on samples that could not be rendered, or not fully.
pub fn perf_notes(renderers: &[PerfRenderer]) -> Vec<Note> {
    let mut notes = Vec::new();
    let n: u64 = renderers.iter().map(|r| r.samples.malformed).sum();
    if n > 0 {
        let fact = counted(
            n,
            "sample is shorter than its fields",
            "samples are shorter than their fields",
        );
        notes.push(Note::doubt(NoteKind::Malformed, fact, None));
    }
    notes.extend(perf_data::note(renderers.iter().map(|r| &r.samples.trace)));
    notes
}

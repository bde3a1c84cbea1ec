//! A recording written again, record by record: of either form from either form, uncompressed,
//! with records changed, added or left out on the way.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;

use kymo_model::{Attr, Endian, RecordHeader, RecordKind};

use super::write::features::{BuildIdOf, build_id, build_id_record};
use super::write::synth::finished_round;
use super::write::{EventMeta, FeatureSections, PerfDataWriter};
use super::{Entry, EventDesc, Feature, Features, PerfData, PerfDataReadStats, RecordOrder};

/// Destination of the new recording.
pub enum RewriteTarget {
    /// A file, which becomes of the file form.
    File(File),
    /// Stream that is only written to, for the pipe form.
    Pipe(Box<dyn Write + Send>),
}

impl std::fmt::Debug for RewriteTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RewriteTarget::File(_) => "File",
            RewriteTarget::Pipe(_) => "Pipe",
        })
    }
}

/// A recording cannot be written again.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum RewriteError {
    #[error(transparent)]
    Read(#[from] super::PerfDataReadError),
    #[error("cannot write the recording: {0}")]
    Write(#[from] io::Error),
    #[error("a recording of a machine with the other byte order is not written again")]
    ByteOrder,
    #[error("the recording has no events")]
    NoEvents,
}

/// Changes made on the way.
pub trait Rewriting {
    /// Appends what stands in the new recording for this record: [`append`] keeps it.
    fn record(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>);

    /// Whether records are put where their times do not belong: then rounds, which promise that
    /// nothing older comes, are left out.
    fn breaks_rounds(&self) -> bool {
        false
    }

    /// Whether records are read and written in the order of their times.
    fn is_in_order_of_time(&self) -> bool {
        false
    }

    /// Changes what the new recording says of an event whose samples are changed.
    fn change_event(&self, _attr: &mut Attr, _features: &Features) {}

    /// Changes or removes sections of the new recording, whose events are `events`.
    fn change_sections(&self, _sections: &mut FeatureSections, _events: &[EventMeta]) {}

    /// Build-ids of binaries to add to those that the recording has.
    fn build_ids(&mut self) -> Vec<BuildIdOf> {
        Vec::new()
    }
}

/// Appends a record as it is.
pub fn append(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let raw = entry.raw;
    // No record is longer than its header can say, and none becomes longer.
    let size = (RecordHeader::SIZE + raw.body.len()) as u16;
    out.extend(RecordHeader { kind: raw.kind, misc: raw.misc, size }.to_bytes());
    out.extend_from_slice(raw.body);
}

/// Appends the record of a pipe that holds a build-id.
pub fn append_build_id(binary: &BuildIdOf, out: &mut Vec<u8>) {
    out.extend(build_id_record(binary));
}

/// Writes `input` again; of one that is damaged or not finished, a file that is not finished. Trace
/// data of the AUX area is left out. Gives the size of what was
/// written and how the recording was read.
pub fn rewrite(
    input: &mut PerfData,
    target: RewriteTarget,
    rewriting: &mut dyn Rewriting,
) -> Result<(u64, PerfDataReadStats), RewriteError> {
    if input.endian() != Endian::NATIVE {
        return Err(RewriteError::ByteOrder);
    }
    let from_pipe = input.is_pipe();
    // Those that are known stand before the records or in a section.
    let drops_build_ids = input.has_pipe_form() && !from_pipe;
    let mut out =
        Rewriter { target: Some(target), writer: None, bytes: Vec::new(), drops_build_ids };
    if !from_pipe {
        out.begin(input.events(), input.features(), rewriting)?;
    }
    let mut failed = None;
    let order = if rewriting.is_in_order_of_time() { RecordOrder::Time } else { RecordOrder::File };
    let read = input.for_each(order, &mut |entry| match out.take(entry, from_pipe, rewriting) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if out.writer.is_none() {
        out.begin(input.events(), input.features(), rewriting)?;
    }
    let writer = out.writer.ok_or(RewriteError::NoEvents)?;
    let sections = if writer.is_pipe() {
        FeatureSections::new()
    } else {
        let mut sections = sections(input.features(), &rewriting.build_ids());
        let events = described(input.events(), input.features(), rewriting);
        rewriting.change_sections(&mut sections, &events);
        sections
    };
    // What is missing in the one is missing in the other.
    let is_whole =
        !read.unfinished && read.damaged.is_none() && input.description_damage().is_empty();
    let size =
        if is_whole { writer.finish(&sections)? } else { writer.finish_incomplete(&sections)? };
    Ok((size, read))
}

struct Rewriter {
    target: Option<RewriteTarget>,
    writer: Option<PerfDataWriter>,
    bytes: Vec<u8>,
    drops_build_ids: bool,
}

impl Rewriter {
    /// Writes what stands before the records.
    fn begin(
        &mut self,
        events: &[EventDesc],
        features: &Features,
        rewriting: &mut dyn Rewriting,
    ) -> Result<(), RewriteError> {
        let Some(target) = self.target.take() else { return Ok(()) };
        if events.is_empty() {
            return Err(RewriteError::NoEvents);
        }
        let events = described(events, features, rewriting);
        self.writer = Some(match target {
            RewriteTarget::File(file) => {
                let mut early = sections(features, &[]);
                rewriting.change_sections(&mut early, &events);
                // Grows until the end.
                early.remove(&Feature::BUILD_ID);
                PerfDataWriter::file(file, events, &early)?
            }
            RewriteTarget::Pipe(pipe) => {
                let added = rewriting.build_ids();
                let mut early = sections(features, &added);
                rewriting.change_sections(&mut early, &events);
                // A section may be larger than a record.
                early.remove(&Feature::BUILD_ID);
                let tracing = early.remove(&Feature::TRACING_DATA);
                let mut writer = PerfDataWriter::pipe(pipe, events, &early, tracing.as_deref())?;
                let mut records = Vec::new();
                let known = build_ids(features, &added);
                known.iter().for_each(|binary| append_build_id(binary, &mut records));
                writer.record(&records)?;
                writer
            }
        });
        Ok(())
    }

    fn take(
        &mut self,
        entry: &Entry<'_>,
        from_pipe: bool,
        rewriting: &mut dyn Rewriting,
    ) -> Result<(), RewriteError> {
        match entry.raw.kind {
            // The sections and attributes are written from what was read of them.
            RecordKind::HEADER_ATTR
            | RecordKind::HEADER_FEATURE
            | RecordKind::HEADER_TRACING_DATA
            | RecordKind::HEADER_EVENT_TYPE => return Ok(()),
            RecordKind::HEADER_BUILD_ID if self.writer.is_none() || self.drops_build_ids => {
                return Ok(());
            }
            RecordKind::AUXTRACE | RecordKind::AUXTRACE_INFO => return Ok(()),
            _ => {}
        }
        if self.writer.is_none() {
            self.begin(entry.events, entry.features, rewriting)?;
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        self.bytes.clear();
        match entry.raw.kind {
            // In a file they are a section.
            RecordKind::HEADER_BUILD_ID if from_pipe && !writer.is_pipe() => {}
            // Tables that kymo leaves in it for a writer that is killed are of another file.
            RecordKind::FINISHED_ROUND if rewriting.breaks_rounds() => return Ok(()),
            RecordKind::FINISHED_ROUND => self.bytes.extend(finished_round()),
            _ => rewriting.record(entry, &mut self.bytes),
        }
        Ok(writer.record(&self.bytes)?)
    }
}

/// Events as the new recording describes them.
fn described(
    events: &[EventDesc],
    features: &Features,
    rewriting: &dyn Rewriting,
) -> Vec<EventMeta> {
    let meta = |event: &EventDesc| {
        let mut attr = event.attr.clone();
        rewriting.change_event(&mut attr, features);
        let (name, ids) = (event.name.clone(), event.ids.clone());
        EventMeta { name, attr, ids, ..EventMeta::default() }
    };
    events.iter().map(meta).collect()
}

/// The sections of the new recording.
fn sections(features: &Features, added: &[BuildIdOf]) -> FeatureSections {
    let mut sections = features.raw.clone();
    for gone in [Feature::COMPRESSED, Feature::AUXTRACE, Feature::DIR_FORMAT] {
        sections.remove(&gone);
    }
    let known = build_ids(features, added);
    if !known.is_empty() {
        sections.insert(Feature::BUILD_ID, known.iter().flat_map(build_id).collect());
    }
    if let Some(tracing) = &features.tracing_bytes {
        sections.insert(Feature::TRACING_DATA, tracing.to_vec());
    }
    sections
}

/// Build IDs of the recording, and added ones that it lacks.
fn build_ids(features: &Features, added: &[BuildIdOf]) -> Vec<BuildIdOf> {
    let told = features.build_ids.iter().map(|entry| BuildIdOf {
        kernel: entry.misc & kymo_model::Misc::CPUMODE_MASK == kymo_model::Misc::KERNEL,
        name: entry.filename.clone(),
        id: entry.build_id,
    });
    let mut all: Vec<BuildIdOf> = told.collect();
    for binary in added {
        if !all.iter().any(|known| known.name == binary.name && known.id == binary.id) {
            all.push(binary.clone());
        }
    }
    all
}

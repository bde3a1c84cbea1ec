//! Counts on their way into a perf.data (`stat record`), in perf's form.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kymo_files::perfdata::Feature;
use kymo_files::perfdata::stat::{StatConfig, StatRound, StatValue};
use kymo_files::perfdata::write::update::{cpu_map, event_updates, thread_map};
use kymo_files::perfdata::write::{EventMeta, FeatureSections, PerfDataWriter, features};
use kymo_kernel::target;
use kymo_model::{Aggregation, SampleType};

use super::counters::Counters;
use super::rows::unit;
use super::{CountError, CountOptions};
use crate::error::RecordError;
use crate::{facts, output};

/// No CPU, in a CPU map.
const ANY_CPU: u32 = 0xffff;

/// The file that counts are recorded into.
#[derive(Clone, Debug)]
pub struct CountFileOptions {
    /// Path of the file; `-` is the standard output.
    pub path: PathBuf,
    /// A file that is not a recording is overwritten.
    pub force: bool,
    /// Command line as typed.
    pub command_line: Vec<String>,
    /// Version of the recording program.
    pub version: String,
}

/// perf's number of what counts are summed by, up to its version 6.4.
pub(super) fn aggregation_number(by: Aggregation) -> u64 {
    match by {
        Aggregation::Cpu => 0,
        // There were no such yet.
        Aggregation::Cluster | Aggregation::Cache(_) | Aggregation::Global => 1,
        Aggregation::Socket => 2,
        Aggregation::Die => 3,
        Aggregation::Core => 4,
        Aggregation::Thread => 5,
        Aggregation::Node => 7,
    }
}

/// A file that is being written.
pub(super) struct CountRecording {
    path: PathBuf,
    writer: PerfDataWriter,
    sections: FeatureSections,
    /// The threads, as the thread map numbers them.
    tids: Vec<u32>,
}

impl CountRecording {
    /// Begins the file of counters that are open.
    pub(super) fn begin(
        file: &CountFileOptions,
        options: &CountOptions,
        counters: &Counters,
        tids: &[u32],
    ) -> Result<CountRecording, CountError> {
        let out = if file.path.as_os_str() == "-" {
            None
        } else {
            Some(output::create(&file.path, file.force)?)
        };
        let events: Vec<EventMeta> = counters
            .iter()
            .map(|counter| {
                let (unit, scale) = unit(counter.spec);
                let mut attr = counter.attr.clone();
                // Marks for readers that records have an id.
                attr.sample_type |= SampleType::IDENTIFIER;
                let ids = counter.totals().map(|(_, id, _)| id).collect();
                EventMeta { name: counter.spec.name.clone(), attr, ids, unit, scale, cpus: None }
            })
            .collect();
        let mut sections = facts::of_machine();
        sections.insert(Feature::VERSION, features::string(&file.version));
        sections.insert(Feature::CMDLINE, features::strings(&file.command_line));
        sections.insert(Feature::EVENT_DESC, features::event_desc(&events));
        sections.insert(Feature::STAT, Vec::new());
        let write = |source| cannot_write(&file.path, source);
        let is_pipe = out.as_ref().is_none_or(|(_, is_pipe)| *is_pipe);
        let updates: Vec<u8> = events.iter().flat_map(|e| event_updates(e, is_pipe)).collect();
        let mut writer = match out {
            Some((file, false)) => PerfDataWriter::file(file, events, &sections),
            Some((pipe, true)) => PerfDataWriter::pipe(Box::new(pipe), events, &sections, None),
            None => PerfDataWriter::pipe(Box::new(io::stdout()), events, &sections, None),
        }
        .map_err(write)?;
        let named = |tid: &u32| (tid.cast_signed(), target::comm(*tid).unwrap_or_default());
        let threads = if tids.is_empty() {
            vec![(-1, String::new())]
        } else {
            tids.iter().map(named).collect()
        };
        let any = [ANY_CPU];
        let config = StatConfig {
            aggregation: aggregation_number(options.by),
            interval: options.interval.map_or(0, |i| i.as_millis() as u64),
            scale: options.scale,
        };
        for records in [
            updates,
            thread_map(&threads),
            cpu_map(options.cpus.as_deref().unwrap_or(&any)),
            config.to_record(),
        ] {
            writer.record(&records).map_err(write)?;
        }
        Ok(CountRecording { path: file.path.clone(), writer, sections, tids: tids.to_vec() })
    }

    /// Adds what the counters had when they were read last.
    pub(super) fn reading(
        &mut self,
        counters: &Counters,
        elapsed: Duration,
        is_final: bool,
    ) -> Result<(), CountError> {
        let mut records = Vec::new();
        for counter in counters.iter().filter(|counter| counter.supported) {
            for (place, id, count) in counter.totals() {
                let thread = place.tid.and_then(|tid| self.tids.iter().position(|t| *t == tid));
                let value = StatValue {
                    id,
                    cpu: place.cpu(),
                    thread: thread.unwrap_or(0) as u32,
                    value: count.value,
                    enabled: count.enabled,
                    running: count.running,
                };
                records.extend(value.to_record());
            }
        }
        records.extend(StatRound { is_final, time: elapsed.as_nanos() as u64 }.to_record());
        self.writer.record(&records).map_err(|source| cannot_write(&self.path, source))
    }

    /// Ends the file; gives its size.
    pub(super) fn finish(self) -> Result<u64, CountError> {
        self.writer.finish(&self.sections).map_err(|source| cannot_write(&self.path, source))
    }
}

fn cannot_write(path: &Path, source: io::Error) -> CountError {
    RecordError::Write { path: path.to_owned(), source, kept: 0 }.into()
}

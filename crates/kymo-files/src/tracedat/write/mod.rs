//! Writing trace.dat of versions 6 and 7.
//!
//! [`TraceDatWriter`] lays finished runs of pages one after the other, compressed if
//! asked. [`trace_header`] gives all of a file but the pages, for a recorder that
//! places them itself while they come.

mod head;
mod header;
mod machine;
mod options;
mod runs;
mod sink;

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kymo_model::Endian;

use super::ids::SECTION_COMPRESSED;
use super::{Compression, SectionId, TraceDatOptions};
use crate::Machine;
pub use header::{TraceHeader, trace_header};

/// Which of the file format's forms is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// 6 or 7.
    pub version: u32,
    /// Version 6 has none.
    pub compression: Compression,
}

impl Default for Format {
    fn default() -> Self {
        Format { version: 7, compression: Compression::None }
    }
}

/// All that a file says beside the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFacts {
    /// Byte order of the recorded machine.
    pub endian: Endian,
    /// Bytes of a `long` of its programs.
    pub long_size: u8,
    /// Bytes of its pages.
    pub page_size: u32,
    /// Facts about the machine that rendering needs.
    pub machine: Machine,
    /// Further options.
    pub options: TraceDatOptions,
}

impl Default for TraceFacts {
    fn default() -> Self {
        TraceFacts {
            endian: Endian::NATIVE,
            long_size: size_of::<usize>() as u8,
            page_size: 4096,
            machine: Machine::default(),
            options: TraceDatOptions::default(),
        }
    }
}

/// An instance to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferSpec {
    /// Its name; the top instance's is empty, and it comes first.
    pub name: String,
    /// Its clock.
    pub clock: String,
    /// Bytes of a ring page.
    pub page_size: u32,
    /// Its CPUs, in rising order.
    pub cpus: Vec<u32>,
}

/// A recording cannot be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum WriteError {
    #[error("{path}: {what}: {error}")]
    Io { path: String, what: &'static str, error: std::io::Error },
    #[error("trace.dat version {0}: versions 6 and 7 can be written")]
    Version(u32),
    #[error("trace.dat version 6 cannot be compressed")]
    CompressedVersion6,
    #[error("page size {0} is not between 64 and 16777216")]
    PageSize(u32),
    #[error("instance {buffer} has no CPU {cpu}")]
    NoSuchCpu { buffer: usize, cpu: u32 },
    #[error("data of instance {buffer} come after those of instance {last}")]
    Order { buffer: usize, last: usize },
    #[error("data of CPU {cpu} of instance {buffer} were already written")]
    Twice { buffer: usize, cpu: u32 },
    #[error("compress: {0}")]
    Compress(std::io::Error),
}

fn check(format: Format, facts: &TraceFacts, buffers: &[BufferSpec]) -> Result<(), WriteError> {
    if format.version != 6 && format.version != 7 {
        return Err(WriteError::Version(format.version));
    }
    if format.version == 6 && format.compression != Compression::None {
        return Err(WriteError::CompressedVersion6);
    }
    let sizes = buffers.iter().map(|b| b.page_size).chain([facts.page_size]);
    match sizes.into_iter().find(|s| !(64..=16 << 20).contains(s)) {
        Some(size) => Err(WriteError::PageSize(size)),
        None => Ok(()),
    }
}

/// A file that is written from begin to end.
pub struct TraceDatWriter {
    path: PathBuf,
    file: File,
    endian: Endian,
    compression: Compression,
    version: u32,
    buffers: Vec<BufferSpec>,
    places: Vec<head::BufferPlaces>,
    /// Offset of the next byte to write.
    end: u64,
    /// Instance whose section is open, and where that begins.
    open: Option<(usize, u64)>,
    done: Vec<(usize, u32)>,
}

impl TraceDatWriter {
    /// Creates the file, or empties it, and writes all but the events.
    pub fn create(
        path: impl AsRef<Path>,
        format: Format,
        facts: &TraceFacts,
        buffers: Vec<BufferSpec>,
    ) -> Result<TraceDatWriter, WriteError> {
        check(format, facts, &buffers)?;
        let head = head::build(facts, format, &buffers)?;
        let path = path.as_ref().to_owned();
        let opened = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let mut w = TraceDatWriter {
            file: opened.map_err(|source| io(&path, "create", source))?,
            path,
            endian: facts.endian,
            compression: format.compression,
            version: format.version,
            buffers,
            places: head.buffers,
            end: 0,
            open: None,
            done: Vec::new(),
        };
        w.append(&head.bytes)?;
        Ok(w)
    }

    /// Adds all pages of one CPU: `len` bytes of `data` from `start` on.
    /// Instances come in their order; CPUs without data need not come.
    pub fn add_cpu_data(
        &mut self,
        buffer: usize,
        cpu: u32,
        data: &mut File,
        start: u64,
        len: u64,
    ) -> Result<(), WriteError> {
        let (offset_at, size_at) = self.place(buffer, cpu)?;
        self.open_section(buffer)?;
        let page = self.buffers.get(buffer).map_or(4096, |b| u64::from(b.page_size));
        self.pad_to(self.end.next_multiple_of(page))?;
        let begin = self.end;
        data.seek(SeekFrom::Start(start)).map_err(|e| self.io("seek in the pages", e))?;
        let size = match self.compression {
            Compression::None => self.copy(data, len)?,
            _ => self.pack(data, len, page)?,
        };
        self.set(offset_at, begin)?;
        self.set(size_at, size)?;
        self.done.push((buffer, cpu));
        Ok(())
    }

    /// Completes the file.
    pub fn finish(mut self) -> Result<(), WriteError> {
        for buffer in 0..self.buffers.len() {
            if self.open.is_none_or(|(last, _)| last < buffer) {
                self.open_section(buffer)?;
            }
        }
        self.close_section()
    }

    fn place(&self, buffer: usize, cpu: u32) -> Result<(u64, u64), WriteError> {
        let missing = WriteError::NoSuchCpu { buffer, cpu };
        let Some(spec) = self.buffers.get(buffer) else { return Err(missing) };
        let Some(index) = spec.cpus.iter().position(|c| *c == cpu) else { return Err(missing) };
        if let Some((last, _)) = self.open.filter(|(last, _)| *last > buffer) {
            return Err(WriteError::Order { buffer, last });
        }
        if self.done.contains(&(buffer, cpu)) {
            return Err(WriteError::Twice { buffer, cpu });
        }
        self.places.get(buffer).and_then(|p| p.cpus.get(index)).copied().ok_or(missing)
    }

    /// Begins the sections of the instances up to this one.
    fn open_section(&mut self, buffer: usize) -> Result<(), WriteError> {
        let next = self.open.map_or(0, |(last, _)| last + 1);
        for b in next..=buffer {
            self.close_section()?;
            let at = self.end;
            let Some(place) = self.places.get(b) else { continue };
            if let Some(section) = place.section {
                let header = section_header(self.endian, self.compression, place.description, 0);
                self.append(&header)?;
                self.set(section, at)?;
            }
            self.open = Some((b, at));
        }
        Ok(())
    }

    fn close_section(&mut self) -> Result<(), WriteError> {
        let Some((_, at)) = self.open.filter(|_| self.version == 7) else { return Ok(()) };
        self.set(at + 8, self.end - at - 16)
    }

    fn copy(&mut self, data: &mut File, len: u64) -> Result<u64, WriteError> {
        let to = SeekFrom::Start(self.end);
        self.file.seek(to).map_err(|e| self.io("seek", e))?;
        // The kernel copies: between files, this is copy_file_range(2).
        let n = std::io::copy(&mut std::io::Read::take(data, len), &mut self.file)
            .map_err(|e| self.io("copy pages", e))?;
        self.end += n;
        Ok(n)
    }

    fn pack(&mut self, data: &mut File, len: u64, page: u64) -> Result<u64, WriteError> {
        let begin = self.end;
        self.append(&[0; 4])?;
        let mut runs = runs::Runs::new(data, len, page, self.compression);
        let mut count = 0u32;
        while let Some(run) = runs.next_run().map_err(|e| self.io("compress pages", e))? {
            let mut head = sink::Bytes::new(self.endian);
            head.u32(run.packed.len() as u32).u32(run.size);
            self.append(&head.bytes)?;
            self.append(run.packed)?;
            count += 1;
        }
        self.put(begin, &sink::word32(self.endian, count))?;
        // The word that leads the chunks does not count, trace-cmd says.
        Ok(self.end - begin - 4)
    }

    fn pad_to(&mut self, at: u64) -> Result<(), WriteError> {
        let n = at.saturating_sub(self.end) as usize;
        self.append(&vec![0; n])
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.put(self.end, bytes)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn set(&mut self, at: u64, value: u64) -> Result<(), WriteError> {
        self.put(at, &sink::word64(self.endian, value))
    }

    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), WriteError> {
        self.file.write_all_at(bytes, at).map_err(|e| self.io("write", e))
    }

    fn io(&self, what: &'static str, source: std::io::Error) -> WriteError {
        io(&self.path, what, source)
    }
}

/// The header of an instance's section.
fn section_header(endian: Endian, compression: Compression, name: u32, size: u64) -> Vec<u8> {
    let flags = if compression == Compression::None { 0 } else { SECTION_COMPRESSED };
    let mut b = sink::Bytes::new(endian);
    b.u16(SectionId::BUFFER.0).u16(flags).u32(name).u64(size);
    b.bytes
}

fn io(path: &Path, what: &'static str, source: std::io::Error) -> WriteError {
    WriteError::Io { path: path.display().to_string(), what, error: source }
}

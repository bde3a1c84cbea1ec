//! A file that is readable while it is being recorded.
//!
//! trace.dat wants the pages of a CPU in one piece, and nobody knows before
//! the end how large the pieces become. So each CPU gets a region of its own
//! in a sparse file, far from the next; pages are moved there, and the size in
//! the index follows each move. Whoever is killed leaves a file that every
//! reader of trace.dat opens, with all pages of all finished moves.
//! [`Recording::finish`] writes the same pages without the gaps to a second
//! file and renames that over the first; if it fails (a full disk), the
//! first stays as it is.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kymo_model::Endian;

use super::{BufferSpec, Facts, Format, WriteError, Writer, check, head, io, section_header, sink};
use crate::tracedat::Compression;

/// All regions together end before this: ext4 holds 16 TiB in a file.
const SPAN: u64 = 8 << 40;
/// Larger regions serve nobody.
const MAX_REGION: u64 = 256 << 30;
/// Where even a small file system refuses large offsets, regions shrink to this.
const MIN_REGION: u64 = 64 << 20;
/// What the VERSION option says until the file is finished.
const UNFINISHED: &str = "(recording not finished)";

/// A region of a [`Recording`].
#[derive(Clone, Copy, Debug)]
struct Region {
    buffer: usize,
    cpu: u32,
    start: u64,
    /// Where its size is written.
    size_at: u64,
}

/// A recording under way.
pub struct Recording {
    path: PathBuf,
    file: Arc<File>,
    format: Format,
    buffers: Vec<BufferSpec>,
    region_size: u64,
    regions: Vec<(Region, Arc<AtomicU64>)>,
    endian: Endian,
}

/// Where the pages of one CPU go. Each may be used by a thread of its own.
pub struct CpuSink {
    path: PathBuf,
    file: Arc<File>,
    region: Region,
    region_size: u64,
    endian: Endian,
    size: Arc<AtomicU64>,
}

impl Recording {
    /// Creates the file, or empties it, and makes it a trace.dat without
    /// events. `facts` are those of the start; `finish` takes those of the end.
    pub fn create(
        path: impl AsRef<Path>,
        format: Format,
        facts: &Facts,
        buffers: Vec<BufferSpec>,
    ) -> Result<Recording, WriteError> {
        check(format, facts, &buffers)?;
        let path = path.as_ref().to_owned();
        let opened = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = opened.map_err(|source| io(&path, "create", source))?;
        let mut facts = facts.clone();
        let version = facts.options.version.take().unwrap_or_default();
        facts.options.version = Some(format!("{version} {UNFINISHED}").trim_start().to_owned());
        let open = Format { compression: Compression::None, ..format };
        let head = head::build(&facts, open, &buffers)?;
        let count: usize = buffers.iter().map(|b| b.cpus.len()).sum();
        let region_size = largest_region(&file, head.bytes.len() as u64, count as u64)
            .map_err(|e| io(&path, "reserve regions", e))?;
        let mut recording = Recording {
            path,
            file: Arc::new(file),
            format,
            buffers,
            region_size,
            regions: Vec::new(),
            endian: facts.endian,
        };
        recording.lay_out(head)?;
        Ok(recording)
    }

    /// Writes the head with the places of all regions.
    fn lay_out(&mut self, mut head: head::Head) -> Result<(), WriteError> {
        let put = |bytes: &[u8], at: u64| {
            self.file.write_all_at(bytes, at).map_err(|e| io(&self.path, "write", e))
        };
        let mut bytes = sink::Bytes::new(self.endian);
        // The headers of the instances' sections, then the regions.
        let headers_at = head.bytes.len() as u64;
        let headers = headers_at + 16 * head.buffers.len() as u64;
        let mut start = headers.next_multiple_of(1 << 20);
        bytes.raw(&std::mem::take(&mut head.bytes));
        for (buffer, (spec, place)) in self.buffers.iter().zip(&head.buffers).enumerate() {
            if let Some(section) = place.section {
                bytes.set_u64(section, headers_at + 16 * buffer as u64);
            }
            bytes.raw(&section_header(self.endian, Compression::None, place.description, 0));
            for (cpu, (offset_at, size_at)) in spec.cpus.iter().zip(&place.cpus) {
                start = start.next_multiple_of(u64::from(spec.page_size));
                bytes.set_u64(*offset_at, start);
                let region = Region { buffer, cpu: *cpu, start, size_at: *size_at };
                self.regions.push((region, Arc::default()));
                start += self.region_size;
            }
        }
        put(&bytes.bytes, 0)
    }

    /// What the file is called.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The most bytes one CPU can take.
    pub fn region_size(&self) -> u64 {
        self.region_size
    }

    /// Bytes of pages recorded so far, over all CPUs.
    pub fn recorded(&self) -> u64 {
        self.regions.iter().map(|(_, size)| size.load(Ordering::Relaxed)).sum()
    }

    /// Where each CPU's pages go, by instance and CPU.
    pub fn sinks(&self) -> Vec<CpuSink> {
        let sink = |(region, size): &(Region, Arc<AtomicU64>)| CpuSink {
            path: self.path.clone(),
            file: Arc::clone(&self.file),
            region: *region,
            region_size: self.region_size,
            endian: self.endian,
            size: Arc::clone(size),
        };
        self.regions.iter().map(sink).collect()
    }

    /// Writes the finished file, with the facts of the end, in place of the
    /// one under way. The sinks must be done.
    pub fn finish(self, facts: &Facts) -> Result<(), WriteError> {
        let packed = temporary(&self.path);
        match self.pack(&packed, facts) {
            Ok(()) => std::fs::rename(&packed, &self.path)
                .map_err(|source| io(&self.path, "rename the finished file", source)),
            Err(e) => {
                let _ = std::fs::remove_file(&packed);
                Err(e)
            }
        }
    }

    fn pack(&self, to: &Path, facts: &Facts) -> Result<(), WriteError> {
        let mut pages = File::open(&self.path).map_err(|e| io(&self.path, "open", e))?;
        let mut w = Writer::create(to, self.format, facts, self.buffers.clone())?;
        for (r, size) in &self.regions {
            w.add_cpu_data(r.buffer, r.cpu, &mut pages, r.start, size.load(Ordering::Acquire))?;
        }
        w.finish()
    }
}

impl CpuSink {
    /// Index of its instance.
    pub fn buffer(&self) -> usize {
        self.region.buffer
    }

    /// Its CPU.
    pub fn cpu(&self) -> u32 {
        self.region.cpu
    }

    /// The file, to splice(2) to [`offset`](Self::offset).
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Offset in the file of its next page.
    pub fn offset(&self) -> u64 {
        self.region.start + self.size()
    }

    /// Bytes it has.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Bytes it can still take.
    pub fn room(&self) -> u64 {
        self.region_size - self.size()
    }

    /// Says that `bytes` more were moved to the file: from now on readers see
    /// them.
    pub fn commit(&mut self, bytes: u64) -> Result<(), WriteError> {
        if bytes > self.room() {
            let (cpu, size) = (self.region.cpu, self.region_size);
            return Err(WriteError::RegionFull { cpu, size });
        }
        let size = self.size() + bytes;
        self.file
            .write_all_at(&sink::word64(self.endian, size), self.region.size_at)
            .map_err(|e| io(&self.path, "write the index", e))?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// Writes pages that are in memory, and commits them.
    pub fn write(&mut self, pages: &[u8]) -> Result<(), WriteError> {
        if pages.len() as u64 > self.room() {
            let (cpu, size) = (self.region.cpu, self.region_size);
            return Err(WriteError::RegionFull { cpu, size });
        }
        self.file
            .write_all_at(pages, self.offset())
            .map_err(|e| io(&self.path, "write pages", e))?;
        self.commit(pages.len() as u64)
    }
}

/// How large the file system lets the regions be.
fn largest_region(file: &File, head: u64, count: u64) -> std::io::Result<u64> {
    let mut size = (SPAN / count.max(1)).min(MAX_REGION) & !0xf_ffff;
    loop {
        let last = head.next_multiple_of(1 << 20) + size.saturating_mul(count.max(1));
        // A byte at the end shows whether it may be there.
        match file.write_all_at(&[0], last).and_then(|()| file.set_len(head)) {
            Ok(()) => return Ok(size),
            Err(e) if size / 2 < MIN_REGION => return Err(e),
            Err(_) => size = (size / 2) & !0xf_ffff,
        }
    }
}

/// A name beside `path`.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

//! Version 7: a chain of option sections leads to all others.

use super::section_reader::{MAX_TEXT, SectionReader};
use super::{Buffer, CpuData, Damage, MAX_BUFFERS, MAX_CPUS, MAX_OPTIONS, TraceDat};
use crate::RecordingBytes;
use crate::tracedat::ids::{SECTION_COMPRESSED, SECTION_HEADER};
use crate::tracedat::{Compression, OptionId, SectionId};

/// The most option sections; the chain may be a ring, or as good as one.
const MAX_OPTION_SECTIONS: usize = 4096;

/// Reads from behind the page size on.
pub(super) fn read(
    data: &mut TraceDat,
    s: &mut SectionReader<'_>,
    file: &RecordingBytes,
    len: u64,
) -> Result<(), Damage> {
    let name = s.cstr("name of the compression")?;
    let unknown = s.damage(format!("compression {name:?}: none, zlib and zstd can be read"));
    s.cstr("version of the compression")?;
    data.compression = Compression::named(&name).ok_or(unknown)?;
    let mut reader = Reader { data, file, len, place: s.offset(), seen: 0 };
    let mut next = s.u64()?;
    let mut read = Vec::new();
    while next != 0 || read.is_empty() {
        if read.contains(&next) {
            return Err(reader.damage(reader.place, format!("options at {next} were read already")));
        }
        if read.len() >= MAX_OPTION_SECTIONS {
            let what = format!("more than {MAX_OPTION_SECTIONS} option sections");
            return Err(reader.damage(next, what));
        }
        read.push(next);
        next = reader.options(next)?;
    }
    Ok(())
}

struct Header {
    id: SectionId,
    compressed: bool,
    size: u64,
}

struct Reader<'d> {
    data: &'d mut TraceDat,
    file: &'d RecordingBytes,
    len: u64,
    /// Position of the offset that is followed.
    place: u64,
    /// Options so far.
    seen: usize,
}

impl<'d> Reader<'d> {
    fn damage(&self, offset: u64, what: impl Into<String>) -> Damage {
        Damage { offset, what: what.into() }
    }

    fn header(&self, at: u64, expected: SectionId) -> Result<Header, Damage> {
        let name = expected.name().unwrap_or("?");
        if at < SECTION_HEADER || at.saturating_add(SECTION_HEADER) > self.len {
            let what = format!("{name} section at {at} of a file of {} bytes", self.len);
            return Err(self.damage(self.place, what));
        }
        let mut s = SectionReader::file(self.file, at, at + SECTION_HEADER, self.data.endian);
        let (id, flags, _description, size) = (SectionId(s.u16()?), s.u16()?, s.u32()?, s.u64()?);
        if id != expected {
            let found = id.name().map_or_else(|| id.0.to_string(), str::to_owned);
            return Err(self.damage(at, format!("{name} section should be here, not {found}")));
        }
        Ok(Header { id, compressed: flags & SECTION_COMPRESSED != 0, size })
    }

    /// The content of a section, unpacked.
    fn open(&self, at: u64, expected: SectionId) -> Result<SectionReader<'d>, Damage> {
        let header = self.header(at, expected)?;
        let (start, endian) = (at + SECTION_HEADER, self.data.endian);
        let end = start.saturating_add(header.size).min(self.len);
        let mut s = SectionReader::file(self.file, start, end, endian);
        if !header.compressed {
            return Ok(s);
        }
        let (packed, size) = (s.u32()?, s.u32()?);
        if u64::from(size) > MAX_TEXT {
            let what = format!("section unpacks to {size} bytes, at most {MAX_TEXT} are read");
            return Err(self.damage(start, what));
        }
        let mut out = Vec::new();
        let name = header.id.name().unwrap_or("?");
        let bytes = s.take(packed.into(), "compressed section")?;
        match self.data.compression.decompress(bytes, size as usize, &mut out) {
            Ok(()) => Ok(SectionReader::memory(out, start, endian)),
            Err(e) => Err(self.damage(start, format!("{name} section cannot be unpacked: {e}"))),
        }
    }

    /// Reads one section of options; gives where the next is.
    fn options(&mut self, at: u64) -> Result<u64, Damage> {
        let mut s = self.open(at, SectionId::OPTIONS)?;
        loop {
            self.place = s.offset();
            let (id, n) = (OptionId(s.u16()?), s.u32()?);
            self.seen += 1;
            if self.seen > MAX_OPTIONS {
                return Err(self.damage(self.place, format!("more than {MAX_OPTIONS} options")));
            }
            if id == OptionId::DONE {
                return if n >= 8 { s.u64() } else { Ok(0) };
            }
            let option = s.take(n.into(), "option")?.to_vec();
            let result = match id.0 {
                3 => self.buffer(&option),
                16..=21 => self.table(SectionId(id.0), &option),
                22 => self.text(&option),
                _ => {
                    let read = self.data.options.read(id, &option, self.data.endian);
                    read.map_err(|what| self.damage(self.place, what))
                }
            };
            self.data.damage.extend(result.err());
        }
    }

    /// An option that says where a table is.
    fn table(&mut self, id: SectionId, option: &[u8]) -> Result<(), Damage> {
        let at = self.fields(option).u64()?;
        let mut s = self.open(at, id)?;
        self.data.machine.read(id, &mut s)
    }

    fn fields(&self, option: &[u8]) -> SectionReader<'d> {
        // Behind the option's number and size.
        SectionReader::memory(option.to_vec(), self.place + 6, self.data.endian)
    }

    fn buffer(&mut self, option: &[u8]) -> Result<(), Damage> {
        let mut s = self.fields(option);
        let at = s.u64()?;
        let mut b = Buffer::new(s.cstr("instance name")?, self.data.page_size);
        b.clock = s.cstr("clock")?;
        b.page_size = s.u32()?;
        let cpus = s.u32()?;
        let mut result = Ok(());
        if cpus > MAX_CPUS || u64::from(cpus) * 20 > s.left() {
            result = Err(s.damage(format!("{cpus} CPUs in an option of {} bytes", option.len())));
        }
        while s.left() >= 20 && b.cpus.len() < cpus as usize {
            let (cpu, offset, size) = (s.u32()?, s.u64()?, s.u64()?);
            b.cpus.push(CpuData { cpu, offset, size });
        }
        match self.header(at, SectionId::BUFFER) {
            Ok(header) => {
                b.compressed = header.compressed;
                self.data.growing |= header.size > self.len - at;
            }
            // All the rest is known without it.
            Err(e) => {
                b.compressed = self.data.compression != Compression::None;
                result = Err(e);
            }
        }
        self.add(b)?;
        result
    }

    fn text(&mut self, option: &[u8]) -> Result<(), Damage> {
        let mut s = self.fields(option);
        let at = s.u64()?;
        let mut b = Buffer::new(s.cstr("instance name")?, self.data.page_size);
        b.clock = s.cstr("clock")?;
        let header = self.header(at, SectionId::BUFFER_TEXT)?;
        b.compressed = header.compressed;
        let start = at + SECTION_HEADER;
        b.text = Some((start, header.size.min(self.len - start)));
        self.add(b)
    }

    fn add(&mut self, buffer: Buffer) -> Result<(), Damage> {
        if self.data.buffers.len() >= MAX_BUFFERS {
            return Err(self.damage(self.place, format!("more than {MAX_BUFFERS} instances")));
        }
        self.data.buffers.push(buffer);
        Ok(())
    }
}

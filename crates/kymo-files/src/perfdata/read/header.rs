//! Opening: which form, version and byte order a file is of, and the tables
//! its header points to.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kymo_model::{Attr, Cursor, Endian};

use super::input::{Input, InputFile};
use super::{EventDesc, Features, PerfData, PerfDataReadError, names, stream};
use crate::perfdata::{Feature, MAGIC_V1, MAGIC_V2};
use crate::tracedat;

/// Size of the pipe form's header.
const PIPE_HEADER: u64 = 16;
/// Size of the file form's header up to the feature bits, and with them.
const HEADER_WITHOUT_FEATURES: u64 = 72;
const HEADER: u64 = 104;
/// More than any recording has; a bound on what a lying header can cost.
const MAX_EVENTS: u64 = 1 << 16;
const MAX_IDS: u64 = 1 << 24;
const MAX_FEATURE_BYTES: u64 = 512 << 20;

/// Range of the records in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DataRange {
    pub(super) offset: u64,
    /// 0 when the recorder did not come to write it.
    pub(super) size: u64,
}

#[derive(Clone, Copy)]
struct Section {
    offset: u64,
    size: u64,
}

/// The file of the first thread, in a directory that several wrote.
const FIRST_OF_THREADS: &str = "data.0";

/// The file with all records in a directory that perf made as a recording, beside a copy of the
/// kernel's code (`--kcore`). Where several threads recorded there are more of them, which are not
/// read.
pub(crate) fn file_in_directory(path: &Path) -> Option<PathBuf> {
    let file = path.join("data");
    let is_recording = || {
        let mut begin = Vec::new();
        let read = File::open(&file).and_then(|f| f.take(8).read_to_end(&mut begin));
        read.is_ok() && magic(&begin).is_some()
    };
    (path.is_dir() && file.is_file() && !path.join(FIRST_OF_THREADS).exists() && is_recording())
        .then_some(file)
}

pub(super) fn open(path: &Path) -> Result<PerfData, PerfDataReadError> {
    let stdin = path == Path::new("-");
    let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
    let opened = if stdin {
        std::io::stdin().as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::open(file_in_directory(path).as_deref().unwrap_or(path))
    };
    let open_error = |error| PerfDataReadError::Open { path: name.clone(), error };
    let file = opened.map_err(open_error)?;
    if file.metadata().map_err(open_error)?.is_dir() {
        return Err(if path.join(FIRST_OF_THREADS).exists() {
            PerfDataReadError::Threads { path: name }
        } else {
            match crate::ctf::read::why_unreadable(path) {
                Some(why) => PerfDataReadError::BrokenTrace { why },
                None => PerfDataReadError::Directory { path: name },
            }
        });
    }
    read(name, InputFile::File(file))
}

pub(super) fn read(name: String, mut file: InputFile) -> Result<PerfData, PerfDataReadError> {
    let mut begin = Vec::new();
    read_up_to(&mut file, &mut begin, PIPE_HEADER)?;
    if begin.is_empty() {
        return Err(PerfDataReadError::Empty { path: name });
    }
    if begin.starts_with(&tracedat::MAGIC) {
        return Err(PerfDataReadError::TraceDat { path: name });
    }
    let (version, endian) = magic(&begin).ok_or_else(|| PerfDataReadError::NotPerfData {
        path: name.clone(),
        packed: packed_by(&begin).map_or_else(String::new, |tool| {
            format!(", as files packed by {tool} do: unpack it first")
        }),
        begin: begin.get(..8).unwrap_or(&begin).escape_ascii().to_string(),
    })?;
    if (begin.len() as u64) < PIPE_HEADER {
        let (have, need) = (begin.len() as u64, PIPE_HEADER);
        return Err(PerfDataReadError::ShortHeader { path: name, have, need });
    }
    let size_bytes =
        [begin[8], begin[9], begin[10], begin[11], begin[12], begin[13], begin[14], begin[15]];
    // Version 1 has the same magic in both byte orders; its size field shows the order.
    let endian = endian.unwrap_or(if u64::from_le_bytes(size_bytes) <= 1 << 16 {
        Endian::Little
    } else {
        Endian::Big
    });
    let mut data = PerfData {
        name,
        input: Input::new(file),
        endian,
        version,
        pipe: endian.u64(size_bytes) == PIPE_HEADER,
        data: DataRange { offset: PIPE_HEADER, size: 0 },
        events: Arc::default(),
        features: Arc::default(),
        notes: Vec::new(),
        described: false,
        cut_at: None,
        span: None,
        consumed: false,
        table: None,
        keeps_deferred_chains: false,
        losses: None,
    };
    if !data.pipe {
        file_form(&mut data, begin)?;
    } else if is_rereadable(&mut data.input.file) {
        stream::describe(&mut data)?;
    }
    Ok(data)
}

/// Whether records of the pipe form lie in a regular file, of which the header was read.
fn is_rereadable(file: &mut InputFile) -> bool {
    file.is_regular() && file.stream_position().is_ok_and(|at| at == PIPE_HEADER)
}

/// Compressor of a file, by its first bytes.
fn packed_by(begin: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
        (b"PK\x03\x04", "zip"),
    ];
    MAGIC.iter().find(|(magic, _)| begin.starts_with(magic)).map(|(_, tool)| *tool)
}

fn magic(begin: &[u8]) -> Option<(u8, Option<Endian>)> {
    let first: [u8; 8] = *begin.first_chunk()?;
    let mut reversed = MAGIC_V2;
    reversed.reverse();
    match first {
        MAGIC_V1 => Some((1, None)),
        MAGIC_V2 => Some((2, Some(Endian::Little))),
        m if m == reversed => Some((2, Some(Endian::Big))),
        _ => None,
    }
}

fn read_up_to(file: &mut InputFile, into: &mut Vec<u8>, n: u64) -> Result<(), PerfDataReadError> {
    let at = into.len() as u64;
    file.take(n).read_to_end(into).map_err(|error| PerfDataReadError::Io { offset: at, error })?;
    Ok(())
}

fn file_form(data: &mut PerfData, mut head: Vec<u8>) -> Result<(), PerfDataReadError> {
    let path = data.name.clone();
    let file = &mut data.input.file;
    let Ok(len) = file.seek(SeekFrom::End(0)) else {
        return Err(PerfDataReadError::NotSeekable { path });
    };
    let seek_error = |error| PerfDataReadError::Io { offset: PIPE_HEADER, error };
    file.seek(SeekFrom::Start(PIPE_HEADER)).map_err(seek_error)?;
    let stated = data.endian.u64(*head[8..].first_chunk().unwrap_or(&[0; 8]));
    if stated < HEADER_WITHOUT_FEATURES {
        let why = "a header takes 72 or 104 bytes, 16 in a pipe";
        return Err(PerfDataReadError::Header { path, field: "size", value: stated, why });
    }
    let need = stated.min(HEADER);
    read_up_to(file, &mut head, need - PIPE_HEADER)?;
    let have = head.len() as u64;
    let mut c = Cursor::new(&head, data.endian);
    let short = |_| PerfDataReadError::ShortHeader { path: path.clone(), have, need };
    c.skip(16).map_err(short)?;
    let attr_size = c.u64().map_err(short)?;
    let mut sections = [Section { offset: 0, size: 0 }; 3];
    for s in &mut sections {
        *s = Section { offset: c.u64().map_err(short)?, size: c.u64().map_err(short)? };
    }
    let [attrs, records, _event_types] = sections;
    let bits = c.bytes(32).map(|b| feature_bits(b, data.endian)).unwrap_or_default();
    data.data = DataRange { offset: records.offset, size: records.size };
    if !(Attr::SIZE_VER0 as u64 + 16..=4096).contains(&attr_size) {
        let why = "an attribute and its id section take 80 to 4096 bytes";
        return Err(PerfDataReadError::Header { path, field: "attr_size", value: attr_size, why });
    }
    // Readings of the scheduler's counters come without events.
    if attrs.size >= attr_size || !bits.contains(&Feature::CPU_DOMAIN_INFO) {
        read_attrs(data, attrs, attr_size, len)?;
    }
    // A killed recorder leaves the size 0: what follows the records is not there.
    if records.size != 0 {
        read_features(data, records, &bits, len)?;
    }
    // The table is that of a mark in the middle of the data, which continue after it: inside of the
    // mark's record, or of one that had its header before the table.
    let growing = data.features.raw.get(&Feature::UNFINISHED);
    if bits.contains(&Feature::RESERVED) {
        data.data.size = 0;
    } else if growing.is_some_and(|bytes| bytes.starts_with(b"growing")) {
        let end = records.offset.saturating_add(records.size);
        data.table = Some((end, bits.len() * 16));
        data.data.size = 0;
    }
    name_events(Arc::<Vec<EventDesc>>::make_mut(&mut data.events), &data.features);
    data.described = true;
    Ok(())
}

/// The numbers of the bits that are set. The bitmap is an array of `long`,
/// 64-bit or, from a 32-bit big-endian machine, 32-bit words.
fn feature_bits(bytes: &[u8], endian: Endian) -> Vec<Feature> {
    let bits = |word_bytes: usize| -> Vec<Feature> {
        (0..Feature::BITS)
            .filter(|n| {
                let (word, bit) = (*n as usize / (word_bytes * 8), *n as usize % (word_bytes * 8));
                let byte = match endian {
                    Endian::Little => bit / 8,
                    Endian::Big => word_bytes - 1 - bit / 8,
                };
                bytes.get(word * word_bytes + byte).is_some_and(|b| b & (1 << (bit % 8)) != 0)
            })
            .map(Feature)
            .collect()
    };
    let wide = bits(8);
    if endian == Endian::Big && !wide.contains(&Feature::HOSTNAME) {
        let narrow = bits(4);
        if narrow.contains(&Feature::HOSTNAME) {
            return narrow;
        }
    }
    wide
}

/// Reads a section that must lie within the file's `len` bytes.
fn section(data: &mut PerfData, s: Section, len: u64) -> Result<Vec<u8>, String> {
    let end = s.offset.checked_add(s.size).filter(|end| *end <= len);
    if end.is_none() {
        return Err(format!("{} bytes at {} are beyond the file's {len}", s.size, s.offset));
    }
    let file = &mut data.input.file;
    let mut bytes = Vec::new();
    let read = file
        .seek(SeekFrom::Start(s.offset))
        .and_then(|_| file.take(s.size).read_to_end(&mut bytes));
    match read {
        Ok(n) if n as u64 == s.size => Ok(bytes),
        Ok(n) => Err(format!("{} bytes at {}: only {n} are there", s.size, s.offset)),
        Err(e) => Err(format!("{} bytes at {}: {e}", s.size, s.offset)),
    }
}

fn read_attrs(
    data: &mut PerfData,
    attrs: Section,
    attr_size: u64,
    len: u64,
) -> Result<(), PerfDataReadError> {
    let path = data.name.clone();
    let count = attrs.size / attr_size;
    if count == 0 {
        return Err(PerfDataReadError::NoEvents { path });
    }
    if count > MAX_EVENTS {
        let why = "more than 65536 events";
        return Err(PerfDataReadError::Header {
            path,
            field: "attrs.size",
            value: attrs.size,
            why,
        });
    }
    let Ok(table) = section(data, attrs, len) else {
        let why = "the table of events is beyond the end of the file";
        return Err(PerfDataReadError::Header {
            path,
            field: "attrs.offset",
            value: attrs.offset,
            why,
        });
    };
    let (endian, mut ids_left) = (data.endian, MAX_IDS);
    let mut events = Vec::new();
    for entry in table.chunks_exact(attr_size as usize) {
        let (attr, ids) = entry.split_at(entry.len() - 16);
        // The range of `attr_size` was checked: this cannot be too short.
        let Ok(attr) = Attr::parse(attr, endian) else { continue };
        let mut c = Cursor::new(ids, endian);
        let (offset, size) = (c.u64().unwrap_or(0), c.u64().unwrap_or(0));
        let mut event = EventDesc { attr, ..EventDesc::default() };
        if size / 8 > ids_left {
            data.notes.push(format!("event {}: {} ids are too many", events.len(), size / 8));
        } else if size > 0 {
            ids_left -= size / 8;
            match section(data, Section { offset, size }, len) {
                Ok(b) => event.ids = b.as_chunks::<8>().0.iter().map(|b| endian.u64(*b)).collect(),
                Err(e) => data.notes.push(format!("ids of event {}: {e}", events.len())),
            }
        }
        events.push(event);
    }
    data.events = Arc::new(events);
    Ok(())
}

fn read_features(
    data: &mut PerfData,
    records: Section,
    bits: &[Feature],
    len: u64,
) -> Result<(), PerfDataReadError> {
    if bits.is_empty() {
        return Ok(());
    }
    let offset = records.offset.saturating_add(records.size);
    let table = match section(data, Section { offset, size: bits.len() as u64 * 16 }, len) {
        Ok(table) => table,
        Err(e) => {
            data.notes.push(format!("the table of feature sections is missing: {e}"));
            return Ok(());
        }
    };
    let (endian, mut left) = (data.endian, MAX_FEATURE_BYTES);
    let mut features = Features::default();
    for (feature, entry) in bits.iter().zip(table.chunks_exact(16)) {
        if *feature == Feature::RESERVED {
            continue;
        }
        let name = feature.name().map_or_else(|| feature.0.to_string(), str::to_owned);
        let mut c = Cursor::new(entry, endian);
        let s = Section { offset: c.u64().unwrap_or(0), size: c.u64().unwrap_or(0) };
        if s.size > left {
            data.notes.push(format!("feature section {name}: {} bytes are too many", s.size));
            continue;
        }
        left -= s.size;
        match section(data, s, len) {
            Ok(bytes) => features.accept(*feature, bytes, endian),
            Err(e) => data.notes.push(format!("feature section {name}: {e}")),
        }
    }
    data.notes.extend(damaged_sections(&features));
    data.features = Arc::new(features);
    Ok(())
}

/// Descriptions of the sections that could not be decoded.
pub(super) fn damaged_sections(features: &Features) -> impl Iterator<Item = String> + '_ {
    features.damaged.iter().map(|(feature, error)| {
        let name = feature.name().map_or_else(|| feature.0.to_string(), str::to_owned);
        format!("feature section {name}: {error}")
    })
}

/// Gives names to the events that have none.
pub(super) fn name_events(events: &mut [EventDesc], features: &Features) {
    let described = &features.event_desc;
    let by_position = described.len() == events.len();
    for (i, event) in events.iter_mut().enumerate() {
        if !event.name.is_empty() {
            continue;
        }
        let told = if by_position {
            described.get(i)
        } else {
            described.iter().find(|d| !d.ids.is_empty() && d.ids == event.ids)
        };
        event.name = match told {
            Some(d) if !d.name.is_empty() => d.name.clone(),
            _ => names::name_of(&event.attr, features.tracing_data.as_ref()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_bits_of_every_word_size() {
        let mut le = [0u8; 32];
        le[0] = 0b1000;
        le[4] = 1;
        assert_eq!(feature_bits(&le, Endian::Little), [Feature(3), Feature(32)]);
        let mut be64 = [0u8; 32];
        be64[7] = 0b1000;
        assert_eq!(feature_bits(&be64, Endian::Big), [Feature(3)]);
        let mut be32 = [0u8; 32];
        be32[3] = 0b1000;
        assert_eq!(feature_bits(&be32, Endian::Big), [Feature(3)]);
    }

    #[test]
    fn magic_tells_version_and_byte_order() {
        assert_eq!(magic(b"PERFILE2...."), Some((2, Some(Endian::Little))));
        assert_eq!(magic(b"2ELIFREP"), Some((2, Some(Endian::Big))));
        assert_eq!(magic(b"PERFFILE"), Some((1, None)));
        assert_eq!(magic(b"PERFIL"), None);
    }
}

//! Opening: the initial format, and all of version 6 that is not events.

use std::fs::File;
use std::path::Path;

use kymo_model::Endian;

use super::section_reader::SectionReader;
use super::{
    Buffer, CpuData, Damage, MAX_BUFFERS, MAX_CPUS, MAX_OPTIONS, TraceDat, TraceDatReadError,
    machine, sections,
};
use crate::tracedat::{Compression, MAGIC, OptionId, TraceDatOptions};
use crate::{Machine, RecordingBytes};

pub(super) fn open(path: &Path) -> Result<TraceDat, TraceDatReadError> {
    let name = path.display().to_string();
    let open_error = |error| TraceDatReadError::Open { path: name.clone(), error };
    let file = File::open(path).map_err(open_error)?;
    let meta = file.metadata().map_err(open_error)?;
    if meta.is_dir() {
        return Err(TraceDatReadError::Directory { path: name });
    }
    if !meta.is_file() {
        return Err(TraceDatReadError::NotSeekable { path: name });
    }
    read(name, RecordingBytes::from_file(file))
}

pub(super) fn read(name: String, file: RecordingBytes) -> Result<TraceDat, TraceDatReadError> {
    let open_error = |error| TraceDatReadError::Open { path: name.clone(), error };
    let len = file.size().map_err(open_error)?;
    if len == 0 {
        return Err(TraceDatReadError::Empty { path: name });
    }
    let mut begin = [0; MAGIC.len()];
    let have = file.read_at(&mut begin, 0).map_err(open_error)?;
    if begin != MAGIC {
        let begin = begin.get(..have).unwrap_or(&[]).escape_ascii().to_string();
        return Err(TraceDatReadError::NotTraceDat { path: name, begin });
    }
    let mut s = SectionReader::file(&file, MAGIC.len() as u64, len, Endian::Little);
    let mut data = initial(&mut s, &name)?;
    let rest = match data.version {
        6 => version6(&mut data, &mut s, &file, len),
        _ => sections::read(&mut data, &mut s, &file, len),
    };
    data.damage.extend(rest.err());
    data.file = Some(file);
    data.len = len;
    data.settle();
    Ok(data)
}

/// Version, byte order, word and page size; of version 7 the compression.
fn initial(s: &mut SectionReader<'_>, name: &str) -> Result<TraceDat, TraceDatReadError> {
    let bad = |damage| TraceDatReadError::Header { path: name.to_owned(), damage };
    let at = s.offset();
    let version = s.cstr("version").map_err(bad)?;
    let number = match version.as_str() {
        "6" => 6,
        "7" => 7,
        _ => {
            let what = format!("version {version:?}: versions 6 and 7 can be read");
            return Err(bad(Damage { offset: at, what }));
        }
    };
    let endian = match s.u8().map_err(bad)? {
        0 => Endian::Little,
        1 => Endian::Big,
        n => return Err(bad(s.damage(format!("byte order {n}: 0 and 1 are known")))),
    };
    s.set_endian(endian);
    let long_size = s.u8().map_err(bad)?;
    let mut damage = Vec::new();
    if long_size != 4 && long_size != 8 {
        damage.push(s.damage(format!("long of {long_size} bytes: read as 8")));
    }
    let page_size = s.u32().map_err(bad)?;
    Ok(TraceDat {
        name: name.to_owned(),
        file: None,
        len: 0,
        version: number,
        endian,
        long_size: if long_size == 4 { 4 } else { 8 },
        page_size,
        compression: Compression::None,
        machine: Machine::default(),
        options: TraceDatOptions::default(),
        buffers: Vec::new(),
        growing: false,
        damage,
        layout: None,
    })
}

fn version6(
    data: &mut TraceDat,
    s: &mut SectionReader<'_>,
    file: &RecordingBytes,
    len: u64,
) -> Result<(), Damage> {
    for table in machine::ALL {
        data.machine.read(table, s)?;
    }
    let cpus = s.u32()?;
    if cpus > MAX_CPUS {
        return Err(s.damage(format!("{cpus} CPUs, at most {MAX_CPUS} are read")));
    }
    let mut places = Vec::new();
    let mut kind = s.text(10, "kind of data")?;
    if kind == "options  " {
        let mut seen = 0;
        while let id @ 1.. = s.u16()? {
            seen += 1;
            if seen > MAX_OPTIONS || places.len() >= MAX_BUFFERS {
                let what = format!("more than {MAX_OPTIONS} options or {MAX_BUFFERS} instances");
                return Err(s.damage(what));
            }
            let (id, n) = (OptionId(id), s.u32()?);
            let option = s.take(n.into(), "option")?;
            if id == OptionId::BUFFER {
                let (at, name) = option.split_at_checked(8).unwrap_or((&[], &[]));
                let Some(at) = at.first_chunk() else {
                    return Err(s.damage(format!("BUFFER option of {n} bytes")));
                };
                places.push((data.endian.u64(*at), super::options::text(name)));
            } else if let Err(what) = data.options.read(id, option, data.endian) {
                data.damage.push(s.damage(what));
            }
        }
        kind = s.text(10, "kind of data")?;
    }
    let mut top = Buffer::new(String::new(), data.page_size);
    let result = buffer6(&mut top, &kind, s, cpus);
    data.buffers.push(top);
    for (at, name) in places {
        let mut buffer = Buffer::new(name, data.page_size);
        let mut s = SectionReader::file(file, at, len, data.endian);
        let read = s.text(10, "kind of data").and_then(|k| buffer6(&mut buffer, &k, &mut s, cpus));
        data.damage.extend(read.err());
        data.buffers.push(buffer);
    }
    result
}

/// The index of an instance: where the data of each CPU lie.
fn buffer6(b: &mut Buffer, kind: &str, s: &mut SectionReader<'_>, cpus: u32) -> Result<(), Damage> {
    match kind {
        "flyrecord" => {
            for cpu in 0..cpus {
                let (offset, size) = (s.u64()?, s.u64()?);
                b.cpus.push(CpuData { cpu, offset, size });
            }
            Ok(())
        }
        "latency  " => {
            b.text = Some((s.offset(), s.left()));
            Ok(())
        }
        other => Err(s.damage(format!("data of kind {other:?}"))),
    }
}

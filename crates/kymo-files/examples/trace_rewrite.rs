//! Reads a trace.dat and writes it again in another form:
//! `trace_rewrite IN OUT 6|7 none|zlib|zstd [recording]`. With `recording` the
//! pages go through the file that is readable at any moment, and stay in it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use kymo_files::tracedat::{BufferSpec, Compression, Facts, Format, Recording, TraceDat, Writer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, from, to, version, compression, rest @ ..] = args.as_slice() else {
        return Err("trace_rewrite IN OUT 6|7 none|zlib|zstd [recording]".into());
    };
    let data = TraceDat::open(from)?;
    let compression = Compression::named(compression).ok_or("no such compression")?;
    let format = Format { version: version.parse()?, compression };
    let facts = Facts {
        endian: data.endian(),
        long_size: data.long_size(),
        page_size: data.page_size(),
        machine: data.machine().clone(),
        options: data.options().clone(),
    };
    let mut pages = File::open(from)?;
    let buffers = data.buffers();
    if buffers.iter().any(|b| b.compressed) {
        return Err("pages of a compressed file cannot be copied as they are".into());
    }
    let spec = buffers.iter().map(|b| BufferSpec {
        name: b.name.clone(),
        clock: b.clock.clone(),
        page_size: b.page_size,
        cpus: b.cpus.iter().map(|c| c.cpu).collect(),
    });
    if rest.is_empty() {
        let mut writer = Writer::create(to, format, &facts, spec.collect())?;
        for (i, b) in buffers.iter().enumerate() {
            for c in &b.cpus {
                writer.add_cpu_data(i, c.cpu, &mut pages, c.offset, c.size)?;
            }
        }
        writer.finish()?;
        return Ok(());
    }
    let recording = Recording::create(to, format, &facts, spec.collect())?;
    for sink in &mut recording.sinks() {
        let cpus = buffers.get(sink.buffer()).map_or(&[][..], |b| &b.cpus);
        let Some(c) = cpus.iter().find(|c| c.cpu == sink.cpu()) else { continue };
        let mut bytes = Vec::new();
        pages.seek(SeekFrom::Start(c.offset))?;
        Read::by_ref(&mut pages).take(c.size).read_to_end(&mut bytes)?;
        for some in bytes.chunks(64 << 10) {
            sink.write(some)?;
        }
    }
    Ok(())
}

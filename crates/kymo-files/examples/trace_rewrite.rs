//! Reads a trace.dat and writes it again in another form:
//! `trace_rewrite IN OUT 6|7 none|zlib|zstd`.

use std::fs::File;

use kymo_files::tracedat::{BufferSpec, Compression, Format, TraceDat, TraceDatWriter, TraceFacts};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, from, to, version, compression] = args.as_slice() else {
        return Err("trace_rewrite IN OUT 6|7 none|zlib|zstd".into());
    };
    let data = TraceDat::open(from)?;
    let compression = Compression::named(compression).ok_or("no such compression")?;
    let format = Format { version: version.parse()?, compression };
    let facts = TraceFacts {
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
    let mut writer = TraceDatWriter::create(to, format, &facts, spec.collect())?;
    for (i, b) in buffers.iter().enumerate() {
        for c in &b.cpus {
            writer.add_cpu_data(i, c.cpu, &mut pages, c.offset, c.size)?;
        }
    }
    writer.finish()?;
    Ok(())
}

//! The events of a trace.dat as `cpu time id size`: the reader, and nothing else.

use std::io::Write;
use std::ops::ControlFlow;

use kymo_files::tracedat::{TraceDat, TraceDatSelect};
use kymo_format::EventFormat;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("trace_events FILE")?;
    let data = TraceDat::open(path)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let stats = data.for_each(&TraceDatSelect::default(), &mut |e| {
        let id = EventFormat::payload_id(e.payload, data.endian()).unwrap_or(0);
        match writeln!(out, "{} {} {id} {}", e.cpu, e.time, e.payload.len()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    out.flush()?;
    eprintln!("{stats:?} {:?}", data.damage());
    Ok(())
}

//! Header of traces: identity, environment, clock, kinds of streams, files.

use std::fmt::Write as _;

use kymo_files::ctf::read::{Ctf, Times, Trace};
use kymo_model::Endian;

/// The text of `--header`.
pub(super) fn text(ctf: &Ctf) -> String {
    let mut out = String::new();
    line(&mut out, "format", "CTF 1.8");
    let times = match ctf.times() {
        Times::Clock => "of the clock",
        Times::Real => "since 1970",
    };
    line(&mut out, "times", times);
    for (n, trace) in ctf.traces().iter().enumerate() {
        let name = if trace.name().is_empty() { "(this directory)" } else { trace.name() };
        line(&mut out, "trace", name);
        of(&mut out, trace);
        let files = ctf.files().filter(|(_, t)| *t == n);
        for (path, _) in files {
            let bytes = std::fs::metadata(path).map_or(0, |m| m.len());
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            line(&mut out, "  file", &format!("{file}, {bytes} bytes"));
        }
    }
    out
}

fn line(out: &mut String, name: &str, value: &str) {
    let value: String = value.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let _ = writeln!(out, "# {name:<14}: {value}");
}

fn of(out: &mut String, trace: &Trace) {
    let m = trace.metadata();
    if let Some(uuid) = &m.uuid {
        let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
        line(out, "  uuid", &hex);
    }
    line(out, "  byte order", if m.byte_order == Endian::Big { "big" } else { "little" });
    for (name, value) in &m.env {
        line(out, "  environment", &format!("{name} = {value}"));
    }
    for c in &m.clocks {
        let (name, freq, offset_s, offset) = (&c.name, c.freq, c.offset_s, c.offset);
        let clock = format!("{name}, {freq} Hz, 0 is {offset_s} s and {offset} ticks after 1970");
        line(out, "  clock", &clock);
    }
    for s in &m.streams {
        line(out, "  stream", &format!("{}, {} kinds of events", s.id, s.events.len()));
    }
}

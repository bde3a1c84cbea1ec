//! A sample as one JSON object a line: task, time, event, and a tracepoint's
//! fields with their types.

use std::io::Write as _;

use kymo_events::chain::{Origin, Place};
use kymo_files::perfdata::Entry;
use kymo_format::json_string;

use super::filter::Filter;
use super::line::Head;
use super::sources::Form;
use super::symbols::frames;
use super::text::{Text, facts, unwinds};
use kymo_events::payload;
use kymo_events::perf_data::payload_endian;

use super::number;

/// The opening of an object: task, CPU, time, event.
pub(super) fn head(s: &Head<'_>, event: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"comm\":");
    json_string(out, s.comm);
    // -1, the kernel's "none", stays -1.
    let _ = write!(out, ",\"pid\":{},\"tid\":{}", s.pid as i32, s.tid as i32);
    if let Some(cpu) = s.cpu {
        let _ = write!(out, ",\"cpu\":{}", cpu as i32);
    }
    if let Some(time) = s.time {
        out.extend_from_slice(b",\"time\":");
        number::decimal(out, time / 1_000_000_000, 0);
        out.push(b'.');
        number::zeros(out, time % 1_000_000_000, 9);
    }
    out.extend_from_slice(b",\"event\":");
    json_string(out, event.as_bytes());
}

pub(super) fn print(
    entry: &Entry<'_>,
    filter: &Filter,
    text: &mut Text,
    out: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let Some(s) = text.see(entry)? else { return Ok(()) };
    let comm = text.symbols.comm(s.pid, s.tid);
    if filter.any && !filter.wants(&facts(entry, &s, comm)) {
        return Ok(());
    }
    let event = entry.desc().map_or("", |e| &e.name);
    head(&s.head(comm), event, out);
    if let Some(period) = s.period {
        write!(out, ",\"period\":{period}")?;
    }
    let mode = entry.raw.misc.cpumode();
    if let Some(ip) = s.ip {
        out.push(b',');
        frame(entry, s.pid, Place::exact(mode, ip), false, text, out);
    }
    if let Some(addr) = s.addr {
        write!(out, ",\"addr\":\"{addr:#x}\"")?;
    }
    if let (Some(raw), Some(format)) = (s.raw, text.trace.format(entry)) {
        out.extend_from_slice(b",\"fields\":");
        payload::json(format, raw, payload_endian(entry), out);
    }
    let has = entry.desc().map(|d| d.attr.sample_type);
    let user = if has.is_some_and(unwinds) { text.symbols.unwind(entry) } else { Vec::new() };
    let kernel = text.symbols.kernel(entry.features);
    let recorded = frames(s.chain(entry.raw.endian), mode, Origin::Recorded, &kernel);
    let unwound = frames(user.into_iter(), mode, Origin::Unwound, &None);
    let mut chain = recorded.chain(unwound).peekable();
    if chain.peek().is_some() {
        out.extend_from_slice(b",\"callchain\":[");
        for (i, place) in chain.enumerate() {
            out.extend_from_slice(if i > 0 { b",{" } else { b"{" });
            frame(entry, s.pid, place, true, text, out);
            out.push(b'}');
        }
        out.push(b']');
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// `"ip":…,"sym":…,"symoff":…,"dso":…`; addresses as hexadecimal text, since
/// JSON numbers do not hold 64 bits everywhere. File and line come when the batch ends,
/// and in a chain the functions inlined there as objects of their own before.
fn frame(
    entry: &Entry<'_>,
    pid: u32,
    place: Place,
    chain: bool,
    text: &mut Text,
    out: &mut Vec<u8>,
) {
    let (start, symbols) = (out.len(), &mut text.symbols);
    let (at, code) = symbols.frame(entry.features, pid, place);
    out.extend_from_slice(b"\"ip\":\"0x");
    number::hex(out, place.ip, 0);
    out.push(b'"');
    if let Some(symbol) = symbols.symbol(&at) {
        out.extend_from_slice(b",\"sym\":");
        json_string(out, symbol.as_bytes());
        out.extend_from_slice(b",\"symoff\":");
        number::decimal(out, at.offset, 0);
    }
    if at.dso.is_some() {
        out.extend_from_slice(b",\"dso\":");
        json_string(out, symbols.dso(&at).as_bytes());
    }
    text.sources.mark((start, out.len()), (at, code), Form::Json, chain);
}

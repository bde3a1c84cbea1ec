//! A sample as one JSON object a line: task, time, event, and a tracepoint's
//! fields with their types.

use std::io::Write as _;

use kymo_events::chain::{ChainAddress, Origin};
use kymo_events::perf_data::payload_endian;
use kymo_events::{EventHead, EventSelection, payload};
use kymo_files::perfdata::Entry;
use kymo_format::json_string;

use super::recorded_names::frames;
use super::sample_text::{SampleRenderer, event_name, unwinds};
use super::source_lines::FrameForm;
use crate::error::FieldSpecError;
use crate::number;

/// The opening of an object: task, CPU, time, event.
pub(crate) fn write_head(s: &EventHead<'_>, event: &str, out: &mut Vec<u8>) {
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
    filter: &EventSelection,
    text: &mut SampleRenderer,
    out: &mut Vec<u8>,
) -> Result<(), FieldSpecError> {
    let Some(s) = text.see(entry)? else { return Ok(()) };
    let comm = text.names.comm(s.tid);
    let event = event_name(entry);
    if filter.is_restricted() && !filter.wants(&s.head(comm), event) {
        return Ok(());
    }
    write_head(&s.head(comm), event, out);
    if let Some(period) = s.period {
        let _ = write!(out, ",\"period\":{period}");
    }
    let mode = entry.raw.misc.cpumode();
    if let Some(ip) = s.ip {
        out.push(b',');
        frame(s.pid, ChainAddress::exact(mode, ip), false, text, out);
    }
    if let Some(addr) = s.addr {
        let _ = write!(out, ",\"addr\":\"{addr:#x}\"");
    }
    if let (Some(raw), Some(format)) = (s.raw, text.trace.format(entry)) {
        out.extend_from_slice(b",\"fields\":");
        payload::json(format, raw, payload_endian(entry), out);
    }
    let has = entry.desc().map(|d| d.attr.sample_type);
    let user = if has.is_some_and(unwinds) { text.names.unwind(entry) } else { Vec::new() };
    let kernel = text.names.kernel();
    let recorded = frames(s.chain(entry.raw.endian), mode, Origin::Recorded, &kernel);
    let unwound = frames(user.into_iter(), mode, Origin::Unwound, &None);
    let mut chain = recorded.chain(unwound).peekable();
    if chain.peek().is_some() {
        out.extend_from_slice(b",\"callchain\":[");
        for (i, place) in chain.enumerate() {
            out.extend_from_slice(if i > 0 { b",{" } else { b"{" });
            frame(s.pid, place, true, text, out);
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
fn frame(pid: u32, place: ChainAddress, chain: bool, text: &mut SampleRenderer, out: &mut Vec<u8>) {
    let (start, symbols) = (out.len(), &mut text.names);
    let (at, code) = symbols.frame(pid, place);
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
    text.sources.mark((start, out.len()), (at, code), FrameForm::Json, chain);
}

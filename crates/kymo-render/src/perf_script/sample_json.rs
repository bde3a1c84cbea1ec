//! A sample as one JSON object a line: task, time, event, and a tracepoint's
//! fields with their types.

use std::io::Write as _;

use kymo_events::chain::{ChainAddress, Origin};
use kymo_events::perf_data::payload_endian;
use kymo_events::state::Located;
use kymo_events::{EventHead, EventSelection, payload};
use kymo_files::perfdata::Entry;
use kymo_format::{LineWriter, digits, json_string};
use kymo_symbols::Resolver;

use super::recorded_names::{AddressKey, RecordedNames, dso_of, frames};
use super::sample_text::{PrintedSample, SampleRenderer, event_name, unwinds};
use super::source_lines::{FrameForm, SourceLines};
use crate::error::FieldSpecError;
use crate::number;
use crate::start_cache::StartCache;

/// The opening of an object: task, CPU, time, event.
pub(crate) fn write_head(s: &EventHead<'_>, event: &str, out: &mut Vec<u8>) {
    write_thread_head(s, Some(s.pid), event, out);
}

/// [`write_head`] of a thread whose process may not be known.
pub(crate) fn write_thread_head(
    s: &EventHead<'_>,
    pid: Option<u32>,
    event: &str,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"comm\":");
    json_string(out, s.comm);
    // -1, the kernel's "none", stays -1.
    if let Some(pid) = pid {
        let _ = write!(out, ",\"pid\":{}", pid as i32);
    }
    let _ = write!(out, ",\"tid\":{}", s.tid as i32);
    if let Some(cpu) = s.cpu {
        let _ = write!(out, ",\"cpu\":{}", cpu as i32);
    }
    if let Some(time) = s.time {
        out.extend_from_slice(b",\"time\":");
        number::decimal(out, time / 1_000_000_000, 0);
        out.push(b'.');
        out.extend_from_slice(&digits::nanos((time % 1_000_000_000) as u32));
    }
    out.extend_from_slice(b",\"event\":");
    json_string(out, event.as_bytes());
}

/// The opening up to the time.
fn write_task(s: &EventHead<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"comm\":");
    json_string(out, s.comm);
    // -1, the kernel's "none", stays -1.
    let mut id = |name: &[u8], n: u32| {
        out.extend_from_slice(name);
        out.extend_from_slice(itoa::Buffer::new().format(n as i32).as_bytes());
    };
    id(b",\"pid\":", s.pid);
    id(b",\"tid\":", s.tid);
    if let Some(cpu) = s.cpu {
        id(b",\"cpu\":", cpu);
    }
}

/// Bytes of the start of an object that is kept.
const MAX_BEGIN: usize = 128;
/// Frames that are kept, a power of two.
const FRAMES: usize = 1024;
const SECOND: u64 = 1_000_000_000;

/// Parts of objects that were written before.
pub(super) struct JsonParts {
    /// Up to the time, by process, thread and CPU.
    begins: StartCache<(u32, u32, u32), MAX_BEGIN>,
    /// Text of the second that objects are in, with its dot, and when it begins.
    second: (u64, Vec<u8>),
    frames: Vec<Option<KnownFrame>>,
}

/// Members of a frame.
struct KnownFrame {
    key: AddressKey,
    text: Vec<u8>,
    /// File and line may come to it.
    marked: Option<(Located, u64)>,
}

impl Default for JsonParts {
    fn default() -> JsonParts {
        let frames = std::iter::repeat_with(|| None).take(FRAMES).collect();
        JsonParts { begins: StartCache::default(), second: (0, Vec::new()), frames }
    }
}

impl JsonParts {
    /// Tasks may have other names from now on.
    pub(super) fn forget_tasks(&mut self) {
        self.begins.forget(|_| true);
    }

    fn write_begin(
        &mut self,
        s: &PrintedSample<'_>,
        names: &mut RecordedNames,
        line: &mut LineWriter<'_>,
    ) {
        let cpu = s.cpu.unwrap_or(u32::MAX - 1);
        let (key, place) = ((s.pid, s.tid, cpu), (s.tid ^ cpu.wrapping_mul(37)) as usize);
        match self.begins.get(place, |k| *k == key) {
            Some(begin) => line.write_prefix(&begin.text, begin.len),
            None => line.buffered(|out| {
                let head = EventHead { time: None, ..s.head(names.comm(s.tid)) };
                write_task(&head, out);
                self.begins.put(place, key, out);
            }),
        }
        let Some(time) = s.time else { return };
        let rest = time.wrapping_sub(self.second.0);
        let rest = if rest < SECOND && !self.second.1.is_empty() {
            rest
        } else {
            self.second = (time - time % SECOND, format!("{}.", time / SECOND).into());
            time % SECOND
        };
        line.write_prefix(b",\"time\":", 8);
        line.text(&self.second.1);
        line.nanos(rest as u32);
    }

    /// Writes the members of the place that was sampled.
    fn write_frame(
        &mut self,
        place: ChainAddress,
        pid: u32,
        (names, sources): (&mut RecordedNames, &mut SourceLines),
        line: &mut LineWriter<'_>,
    ) {
        let (user, kernel) = names.state.generation(pid);
        let key = (user, kernel, place.ip, place.mode);
        let Some(slot) = self.frames.get_mut((place.ip ^ place.ip >> 10) as usize % FRAMES) else {
            return;
        };
        let start = line.position();
        if let Some(known) = slot.as_mut().filter(|known| known.key == key) {
            line.text(&known.text);
            if let Some((at, code)) = known.marked {
                sources.mark((start, line.position()), (at, code), FrameForm::Json, false);
                known.marked = known.marked.filter(|_| sources.may_add_json(&at, code));
            }
            return;
        }
        let (at, code) = names.frame(pid, place);
        let mut text = Vec::new();
        write_members(&at, place, &names.state.symbols, &mut text);
        line.text(&text);
        sources.mark((start, line.position()), (at, code), FrameForm::Json, false);
        *slot = Some(KnownFrame { key, text, marked: Some((at, code)) });
    }
}

impl SampleRenderer {
    /// Writes the object of a sample without a call chain. `false`: it is none, and nothing
    /// was written.
    #[inline]
    pub(super) fn print_json(&mut self, entry: &Entry<'_>, line: &mut LineWriter<'_>) -> bool {
        if self.plans.len() != entry.events.len() {
            return false;
        }
        let Some(plan) = self.plans.get(entry.event) else { return false };
        let Some(event) = &plan.json_event else { return false };
        let Some(s) = plan.see(entry) else { return false };
        let (parts, names, sources) = (&mut self.json, &mut self.names, &mut self.sources);
        parts.write_begin(&s, names, line);
        event.write(line);
        if let Some(period) = s.period {
            line.write_prefix(b",\"period\":", 10);
            line.decimal(period);
        }
        if let Some(ip) = s.ip {
            line.write_prefix(b",", 1);
            let place = ChainAddress::exact(entry.raw.misc.cpumode(), ip);
            parts.write_frame(place, s.pid, (names, sources), line);
        }
        if let Some(addr) = s.addr {
            line.write_prefix(b",\"addr\":\"0x", 11);
            line.hex(addr, 0);
            line.write_prefix(b"\"", 1);
        }
        if let (Some(raw), Some(format)) = (s.raw, self.trace.format(entry)) {
            line.write_prefix(b",\"fields\":", 10);
            format.write_json(line, raw, payload_endian(entry));
            if format.names_addresses() {
                line.buffered(|out| self.trace.write_json_message(entry, raw, out));
            }
        }
        line.write_prefix(b"}\n", 2);
        true
    }
}

/// Member of an object that names its event.
pub(super) fn event_member(event: &str) -> Vec<u8> {
    let mut text = b",\"event\":".to_vec();
    json_string(&mut text, event.as_bytes());
    text
}

pub(super) fn print(
    entry: &Entry<'_>,
    filter: &EventSelection,
    text: &mut SampleRenderer,
    out: &mut Vec<u8>,
) -> Result<(), FieldSpecError> {
    let Some(mut s) = text.see(entry)? else { return Ok(()) };
    s.period = text.part.or(s.period);
    let comm = text.names.comm(s.tid);
    let event = event_name(entry);
    if filter.is_restricted() && !filter.wants(&s.head(comm), event) {
        return Ok(());
    }
    if !text.is_where_asked(entry, &s) {
        return Ok(());
    }
    let comm = text.names.comm(s.tid);
    write_head(&s.head(comm), event, out);
    if let Some(period) = s.period {
        out.extend_from_slice(b",\"period\":");
        number::decimal(out, period, 0);
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
        text.trace.write_json_message(entry, raw, out);
    }
    let is_unwound = entry.desc().is_some_and(|d| unwinds(&d.attr));
    let user = if is_unwound { text.names.unwind(entry) } else { Vec::new() };
    let kernel = text.names.kernel();
    let recorded = frames(s.chain(entry.raw.endian), mode, Origin::Recorded, &kernel);
    let unwound = frames(user.into_iter(), mode, Origin::Unwound, &None);
    write_chain(recorded.chain(unwound), out, |place, out| frame(s.pid, place, true, text, out));
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// Appends a call chain as a member, unless it is empty; `write` appends a frame's members.
pub(super) fn write_chain<F>(
    chain: impl Iterator<Item = F>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(F, &mut Vec<u8>),
) {
    let mut any = false;
    for frame in chain {
        out.extend_from_slice(if any { b",{" } else { b",\"callchain\":[{" });
        write(frame, out);
        out.push(b'}');
        any = true;
    }
    if any {
        out.push(b']');
    }
}

/// `"ip":…,"sym":…,"symoff":…,"dso":…`; addresses as hexadecimal text, since
/// JSON numbers do not hold 64 bits everywhere. File and line come when the batch ends,
/// and in a chain the functions inlined there as objects of their own before.
fn frame(pid: u32, place: ChainAddress, chain: bool, text: &mut SampleRenderer, out: &mut Vec<u8>) {
    let at = text.names.frame(pid, place);
    let symbols = &text.names.state.symbols;
    write_frame(at, place, (symbols, &mut text.sources), chain, out);
}

/// Appends the members of a frame; `chain`: it is of a call chain.
pub(super) fn write_frame(
    (at, code): (Located, u64),
    place: ChainAddress,
    (symbols, sources): (&Resolver, &mut SourceLines),
    chain: bool,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    write_members(&at, place, symbols, out);
    sources.mark((start, out.len()), (at, code), FrameForm::Json, chain);
}

fn write_members(at: &Located, place: ChainAddress, symbols: &Resolver, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"ip\":\"0x");
    number::hex(out, place.ip, 0);
    out.push(b'"');
    if let Some(symbol) = at.symbol {
        out.extend_from_slice(b",\"sym\":");
        json_string(out, symbols.name(symbol).as_bytes());
        out.extend_from_slice(b",\"symoff\":");
        number::decimal(out, at.offset, 0);
    }
    if at.dso.is_some() {
        out.extend_from_slice(b",\"dso\":");
        json_string(out, dso_of(symbols, at).as_bytes());
    }
}

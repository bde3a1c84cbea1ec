//! A sample as perf script lays it out.

use std::sync::Arc;

use kymo_events::chain::Origin;
use kymo_events::perf_data::TracepointPayloads;
use kymo_events::state_history::{StateMark, StateReader};
use kymo_events::{EventHead, EventSelection};
use kymo_files::perfdata::Entry;
use kymo_format::LineWriter;
use kymo_model::{
    Attr, ChainContext, Endian, EventType, LeadingFields, Misc, RecordKind, Sample, SampleType,
    UntrustedText, is_call_stack, sw, without_user_callers,
};
use kymo_symbols::bundle::Bundle;

use super::chain_lines::{self, FrameAddresses};
use super::fields::{FieldSet, FieldSpec};
use super::line_start::{LineStarts, LineStyle};
use super::recorded_names::{RecordedNames, frames};
use super::sample_details;
use super::sample_json::{JsonParts, event_member};
use super::source_lines::{FrameForm, SourceLines, SourceOptions};
use crate::error::FieldSpecError;
use crate::number;

/// Properties common to all samples of one event.
pub(super) struct SamplePlan {
    fields: FieldSet,
    chain: bool,
    /// The user part of chains is recorded as registers and stack.
    unwinds: bool,
    /// The callers of user code are in the branch entries.
    calls_in_branches: bool,
    /// Right-aligned over all events, with the colon.
    name: EventColumn,
    /// Event member of objects, unless its samples have call chains.
    pub(super) json_event: Option<EventColumn>,
    sample_type: SampleType,
    fixed_period: Option<u64>,
    /// Byte offsets of the fixed part of a sample.
    at: LeadingFields,
    /// Offsets for the common case.
    plain: Option<PlainSample>,
}

/// A tracepoint's sample printed as usual: everything printed of it has a fixed place
/// but the payload, which lies right behind the fixed part.
#[derive(Clone, Copy)]
struct PlainSample {
    tid: usize,
    time: usize,
    cpu: usize,
    raw: usize,
}

impl PlainSample {
    fn of(fields: FieldSet, has: SampleType, at: &LeadingFields) -> Option<PlainSample> {
        let usual = FieldSet::COMMON.with(FieldSet::TRACE);
        let variable = SampleType::READ | SampleType::CALLCHAIN;
        if fields != usual || has.intersects(variable) || !has.contains(SampleType::RAW) {
            return None;
        }
        Some(PlainSample { tid: at.tid?, time: at.time?, cpu: at.cpu?, raw: at.end })
    }

    /// Printed parts of a sample, and its payload.
    #[inline]
    fn see(self, body: &[u8], endian: Endian) -> Option<(EventHead<'static>, &[u8])> {
        let (fixed, rest) = body.split_at_checked(self.raw)?;
        let half = |at: usize| Some(endian.u32(*fixed.get(at..)?.first_chunk()?));
        let head = EventHead {
            comm: b"",
            pid: half(self.tid)?,
            tid: half(self.tid + 4)?,
            cpu: Some(half(self.cpu)?),
            time: Some(endian.u64(*fixed.get(self.time..)?.first_chunk()?)),
        };
        let (size, raw) = rest.split_first_chunk()?;
        Some((head, raw.get(..endian.u32(*size) as usize)?))
    }
}

/// A name of an event; short ones are copied in one go.
pub(super) struct EventColumn {
    short: Option<([u8; 64], usize)>,
    text: Vec<u8>,
}

impl EventColumn {
    fn of(text: Vec<u8>) -> EventColumn {
        let mut short = [0; 64];
        let fits = short.get_mut(..text.len()).map(|place| place.copy_from_slice(&text));
        EventColumn { short: fits.map(|()| (short, text.len())), text }
    }

    #[inline]
    pub(super) fn write(&self, line: &mut LineWriter<'_>) {
        match &self.short {
            Some((name, len)) => line.write_prefix(name, *len),
            None => line.text(&self.text),
        }
    }
}

/// The part of a sample that is printed.
pub(super) struct PrintedSample<'a> {
    pub(super) ip: Option<u64>,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) time: Option<u64>,
    pub(super) addr: Option<u64>,
    pub(super) cpu: Option<u32>,
    pub(super) period: Option<u64>,
    pub(super) misc: (RecordKind, Misc),
    pub(super) chain: &'a [u8],
    pub(super) raw: Option<&'a [u8]>,
}

impl PrintedSample<'_> {
    /// Printed parts of a record that has no others.
    pub(super) fn record(kind: RecordKind, misc: Misc) -> Self {
        PrintedSample {
            ip: None,
            pid: 0,
            tid: 0,
            time: None,
            addr: None,
            cpu: None,
            period: None,
            misc: (kind, misc),
            chain: &[],
            raw: None,
        }
    }

    pub(super) fn head<'h>(&self, comm: &'h [u8]) -> EventHead<'h> {
        let PrintedSample { pid, tid, cpu, time, .. } = *self;
        EventHead { comm, pid, tid, cpu, time }
    }

    pub(super) fn chain(&self, endian: Endian) -> impl Iterator<Item = u64> + '_ {
        self.chain.as_chunks::<8>().0.iter().map(move |b| endian.u64(*b))
    }
}

/// Content and layout of samples beside their fields.
#[derive(Clone, Debug)]
pub struct SampleTextOptions {
    /// Call chains are printed.
    pub chains: bool,
    /// Frames of each, at most.
    pub max_stack: usize,
    /// Addresses of their frames.
    pub addresses: FrameAddresses,
    /// Layout of the starts of lines.
    pub style: LineStyle,
    /// Code that counts behind addresses among them, in bytes.
    pub addr_range: u64,
    /// Functions that call chains end at.
    pub stop_at: Vec<String>,
    /// Only samples in these functions, if any are named.
    pub only: Vec<String>,
    /// Only samples in these binaries, by file name or path, if any are named.
    pub dsos: Vec<String>,
    /// Files that came with the recording.
    pub bundle: Option<Arc<Bundle>>,
    /// Facts of source files that are printed.
    pub sources: SourceOptions,
}

/// Renders samples.
pub(super) struct SampleRenderer {
    pub(super) spec: FieldSpec,
    how: SampleTextOptions,
    pub(super) plans: Vec<SamplePlan>,
    starts: LineStarts,
    pub(super) names: RecordedNames,
    pub(super) sources: SourceLines,
    pub(super) trace: TracepointPayloads,
    pub(super) malformed: u64,
    pub(super) json: JsonParts,
    /// Count of the event since the sample before, in place of the period.
    pub(super) part: Option<u64>,
}

impl SampleRenderer {
    pub(super) fn new(
        spec: FieldSpec,
        how: SampleTextOptions,
        state: StateReader,
    ) -> SampleRenderer {
        SampleRenderer {
            spec,
            sources: SourceLines::new(how.sources),
            trace: TracepointPayloads::new(how.bundle.clone()),
            names: RecordedNames::new(state),
            how,
            plans: Vec::new(),
            starts: LineStarts::default(),
            malformed: 0,
            json: JsonParts::default(),
            part: None,
        }
    }

    /// One that begins with nothing seen.
    pub(super) fn fork_for_thread(&self) -> SampleRenderer {
        SampleRenderer {
            spec: self.spec.clone(),
            how: self.how.clone(),
            plans: Vec::new(),
            starts: LineStarts::default(),
            names: self.names.fork_for_thread(),
            sources: self.sources.fork_for_thread(),
            trace: self.trace.fork_for_thread(),
            malformed: 0,
            json: JsonParts::default(),
            part: None,
        }
    }

    /// Ends a batch, whose text is that of `out` from `from` on.
    pub(super) fn end_batch(&mut self, from: usize, out: &mut Vec<u8>) {
        self.sources.fill(&self.names.state.symbols, from, out);
    }

    /// Moves to the start of a batch.
    pub(super) fn begin_batch(&mut self, mark: &StateMark) {
        if self.names.state.begin(mark) {
            self.forget_tasks();
        }
    }

    /// Goes behind a record that is no sample.
    pub(super) fn pass(&mut self, entry: &Entry<'_>) {
        if self.names.state.pass(entry.raw.kind) {
            self.forget_tasks();
        }
    }

    fn forget_tasks(&mut self) {
        self.starts.forget();
        self.json.forget_tasks();
        self.names.forget_tasks();
    }

    /// Makes the plans again when there are more events than before.
    fn plan(&mut self, entry: &Entry<'_>) -> Result<(), FieldSpecError> {
        let width = entry.events.iter().map(|e| e.name.len()).max().unwrap_or(0);
        self.plans.clear();
        for event in entry.events {
            let has = event.attr.sample_type;
            let mut name = Vec::new();
            number::pad(&mut name, width - event.name.len());
            UntrustedText::new(&event.name).write_escaped(&mut name);
            name.extend_from_slice(b": ");
            let fields = self.spec.of(event, self.how.chains)?;
            let at = LeadingFields::new(has);
            let freq = event.attr.flags.contains(kymo_model::AttrFlags::FREQ);
            self.plans.push(SamplePlan {
                fields,
                chain: self.how.chains
                    && has.contains(SampleType::CALLCHAIN)
                    && fields.has(FieldSet::IP),
                unwinds: unwinds(&event.attr),
                calls_in_branches: is_call_stack(&event.attr),
                name: EventColumn::of(name),
                json_event: (!has.contains(SampleType::CALLCHAIN))
                    .then(|| EventColumn::of(event_member(&event.name))),
                sample_type: has,
                fixed_period: (!freq).then_some(event.attr.sample_period),
                plain: PlainSample::of(fields, has, &at),
                at,
            });
        }
        Ok(())
    }

    /// Decodes what is printed of a sample; `None` when it is too short.
    pub(super) fn see<'a>(
        &mut self,
        entry: &Entry<'a>,
    ) -> Result<Option<PrintedSample<'a>>, FieldSpecError> {
        if self.plans.len() != entry.events.len() {
            self.plan(entry)?;
        }
        let seen = self.plans.get(entry.event).and_then(|plan| plan.see(entry));
        if seen.is_none() {
            self.malformed += 1;
        }
        Ok(seen)
    }

    /// Writes the line of a tracepoint's sample that is printed as usual. `false`: it is
    /// none, and nothing was written.
    #[inline]
    pub(super) fn print_plain(&mut self, entry: &Entry<'_>, line: &mut LineWriter<'_>) -> bool {
        if self.plans.len() == entry.events.len()
            && let Some(plan) = self.plans.get(entry.event)
            && let Some(plain) = plan.plain
            && let Some((head, raw)) = plain.see(entry.raw.body, entry.raw.endian)
        {
            let place = line.position();
            let symbols = &mut self.names;
            let tid = head.tid;
            self.starts.usual(&head, || symbols.comm(tid), line);
            plan.name.write(line);
            if self.trace.write_known(entry, raw, line) {
                line.write_prefix(b"\n", 1);
                return true;
            }
            line.rewind(place);
        }
        false
    }

    /// Whether some samples are printed so.
    pub(super) fn is_usual(&self, filter: &EventSelection) -> bool {
        !filter.is_restricted() && !self.chooses_places() && self.how.style == LineStyle::default()
    }

    pub(super) fn print(
        &mut self,
        entry: &Entry<'_>,
        filter: &EventSelection,
        out: &mut Vec<u8>,
    ) -> Result<(), FieldSpecError> {
        let Some(mut s) = self.see(entry)? else { return Ok(()) };
        s.period = self.part.or(s.period);
        let plan = &self.plans[entry.event];
        let fields = plan.fields;
        if filter.is_restricted() {
            let comm = self.names.comm(s.tid);
            if !filter.wants(&s.head(comm), event_name(entry)) {
                return Ok(());
            }
        }
        if !self.is_where_asked(entry, &s) {
            return Ok(());
        }
        let plan = &self.plans[entry.event];
        let style = LineStyle { ragged: plan.chain, ..self.how.style };
        let (symbols, tid) = (&mut self.names, s.tid);
        self.starts.write(fields, style, (&s.head(b""), s.misc), || symbols.comm(tid), out);
        if fields.has(FieldSet::PERIOD) {
            number::decimal(out, s.period.unwrap_or(1), 10);
            out.push(b' ');
        }
        if fields.has(FieldSet::EVENT) {
            out.extend_from_slice(&plan.name.text);
        }
        if fields.has(FieldSet::TRACE)
            && let Some(raw) = s.raw
        {
            self.trace.write(entry, raw, out);
        }
        let mode = entry.raw.misc.cpumode();
        if fields.has(FieldSet::ADDR) {
            let addr = s.addr.unwrap_or(0);
            number::hex(out, addr, 16);
            if addr_is_code_or_data(entry)
                && fields.any(FieldSet(FieldSet::SYM.0 | FieldSet::DSO.0))
            {
                let at = self.names.locate(s.pid, addr, mode);
                self.names.write(&at, fields, out);
            }
        }
        let full = sample_details::parse(entry, fields);
        if let Some(full) = &full {
            sample_details::before(entry, full, fields, out);
        }
        if plan.chain {
            out.push(b'\n');
            let user = if plan.unwinds { self.names.unwind(entry) } else { Vec::new() };
            let recorded = (s.chain, entry.raw.endian);
            self.write_chain(s.pid, (recorded, user), (mode, fields), out);
        } else if fields.has(FieldSet::IP) {
            let ip = s.ip.unwrap_or(0);
            out.push(b' ');
            number::hex(out, ip, 16);
            if fields.any(FieldSet(FieldSet::SYM.0 | FieldSet::DSO.0 | FieldSet::SRCLINE.0)) {
                let at = self.names.locate(s.pid, ip, mode);
                self.names.write(&at, fields, out);
                let end = (out.len(), out.len());
                self.sources.mark(end, (at, at.addr), FrameForm::Text(fields), false);
            }
        }
        if let Some(full) = &full {
            sample_details::behind(entry, full, fields, &mut self.names, out);
        }
        out.push(b'\n');
        Ok(())
    }

    /// Writes the lines of a chain, recorded and unwound.
    fn write_chain(
        &mut self,
        pid: u32,
        ((recorded, endian), unwound): ((&[u8], Endian), Vec<u64>),
        (mode, fields): (u16, FieldSet),
        out: &mut Vec<u8>,
    ) {
        let most = self.how.max_stack;
        // Bare addresses ask nothing of the kernel's symbols.
        let names = FieldSet(FieldSet::SYM.0 | FieldSet::DSO.0 | FieldSet::SRCLINE.0);
        let kernel = if fields.any(names) { self.names.kernel() } else { None };
        let is_deferred = endian.u64_from_end(recorded, 16) == Some(ChainContext::USER_DEFERRED.0);
        let cookie = endian.u64_from_end(recorded, 8).filter(|_| is_deferred);
        let words = recorded.as_chunks::<8>().0;
        let words = words.iter().take(words.len() - if is_deferred { 2 } else { 0 });
        let recorded =
            frames(words.map(|b| endian.u64(*b)), mode, Origin::Recorded, &kernel).take(most);
        let unwound = frames(unwound.into_iter(), mode, Origin::Unwound, &None).take(most);
        let mut written = 0;
        for place in recorded.chain(unwound) {
            written += 1;
            let at = self.names.frame(pid, place);
            let symbols = &self.names.state.symbols;
            let address = self.how.addresses.of(&at.0, place.ip);
            chain_lines::write_frame(at, address, (symbols, &mut self.sources), fields, out);
            let name = at.0.symbol.map(|symbol| symbols.name(symbol));
            if name.is_some_and(|name| self.how.stop_at.iter().any(|stop| stop == name)) {
                return;
            }
        }
        if let Some(cookie) = cookie.filter(|_| written < most) {
            out.push(b'\t');
            number::hex(out, cookie, 16);
            for (field, text) in [(FieldSet::SYM, " (cookie)"), (FieldSet::DSO, " ([unknown])")] {
                out.extend_from_slice(if fields.has(field) { text.as_bytes() } else { b"" });
            }
            out.push(b'\n');
        }
    }

    /// Writes the user part of call chains that were recorded before.
    pub(super) fn deferred_chain(&mut self, entry: &Entry<'_>, pid: u32, out: &mut Vec<u8>) {
        let mut c = entry.raw.cursor();
        let (Ok(cookie), Ok(count)) = (c.u64(), c.u64()) else { return };
        let Ok(chain) = c.bytes(usize::try_from(count.saturating_mul(8)).unwrap_or(usize::MAX))
        else {
            return;
        };
        let text = format!("DEFERRED CALLCHAIN [cookie: {cookie:x}]");
        out.extend_from_slice(text.as_bytes());
        let fields = self.plans.get(entry.event).filter(|plan| plan.chain).map(|plan| plan.fields);
        if let Some(fields) = fields {
            out.push(b'\n');
            let recorded = (chain, entry.raw.endian);
            self.write_chain(pid, (recorded, Vec::new()), (Misc::USER, fields), out);
        }
    }

    /// Whether functions or binaries are named that samples must be in.
    pub(super) fn chooses_places(&self) -> bool {
        !self.how.only.is_empty() || !self.how.dsos.is_empty()
    }

    /// Whether a sample is in the functions and binaries that were named.
    pub(super) fn is_where_asked(&mut self, entry: &Entry<'_>, s: &PrintedSample<'_>) -> bool {
        if !self.chooses_places() {
            return true;
        }
        let (functions, dsos) = (&self.how.only, &self.how.dsos);
        let ip = s.ip.unwrap_or(0);
        let at = self.names.locate(s.pid, ip, entry.raw.misc.cpumode());
        // As in perf, code is named by its addresses, too.
        let range = self.how.addr_range.max(1);
        let is_near = |o: &String| {
            u64::from_str_radix(o.trim_start_matches("0x"), 16)
                .is_ok_and(|first| ip.checked_sub(first).is_some_and(|n| n < range))
        };
        let in_function = functions.is_empty()
            || functions.iter().any(is_near)
            || self.names.symbol(&at).is_some_and(|name| functions.iter().any(|o| o == name));
        let path = self.names.dso(&at);
        let file = path.rsplit('/').next().unwrap_or(path);
        in_function && (dsos.is_empty() || dsos.iter().any(|dso| dso == path || dso == file))
    }

    /// The start of a line for a record that is no sample.
    pub(super) fn start_of(
        &mut self,
        entry: &Entry<'_>,
        named_tid: u32,
        s: &PrintedSample<'_>,
        out: &mut Vec<u8>,
    ) {
        if self.plans.len() != entry.events.len() && self.plan(entry).is_err() {
            return;
        }
        let Some(plan) = self.plans.get(entry.event) else { return };
        let style = LineStyle { ragged: plan.chain, ..self.how.style };
        // Nothing is remembered: the record may be of another task than the one it names.
        let comm = self.names.comm(named_tid);
        let head = (&s.head(b""), s.misc);
        LineStarts::default().write(plan.fields, style, head, || comm, out);
    }
}

/// Whether the user part of chains is recorded as registers and stack, or as branch entries.
pub(super) fn unwinds(attr: &Attr) -> bool {
    let dwarf = SampleType::CALLCHAIN | SampleType::REGS_USER | SampleType::STACK_USER;
    attr.sample_type.contains(dwarf) || is_call_stack(attr)
}

/// Name of an entry's event.
pub(super) fn event_name<'e>(entry: &Entry<'e>) -> &'e str {
    entry.desc().map_or("", |e| &e.name)
}

impl SamplePlan {
    #[inline]
    pub(super) fn see<'a>(&self, entry: &Entry<'a>) -> Option<PrintedSample<'a>> {
        let (body, endian) = (entry.raw.body, entry.raw.endian);
        if self.sample_type.contains(SampleType::READ) {
            return self.see_all(entry);
        }
        // One check covers the fixed part.
        let fixed = body.get(..self.at.end)?;
        let word = |at: usize| Some(endian.u64(*fixed.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(endian.u32(*fixed.get(at..)?.first_chunk()?));
        let mut s = PrintedSample {
            ip: self.at.ip.and_then(word),
            time: self.at.time.and_then(word),
            addr: self.at.addr.and_then(word),
            cpu: self.at.cpu.and_then(half),
            period: self.at.period.and_then(word).or(self.fixed_period),
            ..PrintedSample::record(entry.raw.kind, entry.raw.misc)
        };
        if let Some(at) = self.at.tid {
            (s.pid, s.tid) = (half(at)?, half(at + 4)?);
        }
        let mut rest = &body[self.at.end..];
        if self.sample_type.contains(SampleType::CALLCHAIN) {
            let count = usize::try_from(endian.u64(*rest.first_chunk()?)).ok()?;
            rest = &rest[8..];
            s.chain = rest.get(..count.checked_mul(8)?)?;
            rest = &rest[s.chain.len()..];
            if self.calls_in_branches {
                s.chain = without_user_callers(s.chain, endian);
            }
        }
        if self.sample_type.contains(SampleType::RAW) {
            let size = endian.u32(*rest.first_chunk()?) as usize;
            s.raw = Some(rest[4..].get(..size)?);
        }
        Some(s)
    }

    /// The slower way for samples whose parts have no fixed place.
    fn see_all<'a>(&self, entry: &Entry<'a>) -> Option<PrintedSample<'a>> {
        let full = Sample::parse(&entry.raw, &entry.desc()?.attr).ok()?;
        let (pid, tid) = full.tid.unwrap_or((0, 0));
        // The chain's words lie together: find them again by their number.
        let words = full.callchain().len() * 8;
        let mut chain = &entry.raw.body[..0];
        if words > 0 {
            let first = full.callchain().next()?;
            let last = entry.raw.body.len().checked_sub(words)?;
            let at = (0..=last).step_by(8).find(|at| {
                let here = &entry.raw.body[*at..*at + words];
                let word = |b: &[u8; 8]| entry.raw.endian.u64(*b);
                here.first_chunk().map(word) == Some(first)
                    && here.as_chunks::<8>().0.iter().map(word).eq(full.callchain())
            })?;
            chain = &entry.raw.body[at..at + words];
        }
        Some(PrintedSample {
            ip: full.ip,
            pid,
            tid,
            time: full.time,
            addr: full.addr,
            cpu: full.cpu,
            period: full.period.or(self.fixed_period),
            misc: (entry.raw.kind, entry.raw.misc),
            chain,
            raw: full.raw,
        })
    }
}

/// Page faults: the address is one a symbol may have.
fn addr_is_code_or_data(entry: &Entry<'_>) -> bool {
    entry.desc().is_some_and(|e| {
        e.attr.kind == EventType::SOFTWARE
            && [sw::PAGE_FAULTS, sw::PAGE_FAULTS_MIN, sw::PAGE_FAULTS_MAJ].contains(&e.attr.config)
    })
}

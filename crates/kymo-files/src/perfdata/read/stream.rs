//! The record loop: which bytes are a record, which records steer the reading
//! (attributes, features, rounds, compression), and which are handed on.

use std::io::{Seek, SeekFrom};
use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_model::{Attr, Cursor, Endian, RecordHeader, RecordKind};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::block::{BLOCK, Block, Origin, Pool, hand_over};
use super::deferred_chains::{self, DeferredChains};
use super::event_ids::EventIds;
use super::header::{damaged_sections, name_events};
use super::input::Input;
use super::loss_watch::LossWatch;
use super::order::{Batch, Queue};
use super::{
    Damage, EventDesc, Features, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder, known,
};
use crate::perfdata::Feature;

/// Bytes read before records are sorted.
const BATCH: usize = 512 << 10;
/// Largest window a compressed stream may ask for: 2^27 bytes, zstd's own limit for what it decodes
/// by default.
const WINDOW_LOG_MAX: u32 = 27;
const MAX_EVENTS: usize = 1 << 16;
const MAX_BUILD_IDS: usize = 1 << 20;
const MAX_TRACING_DATA: u64 = 256 << 20;

type Sink<'s> = dyn FnMut(Batch) -> ControlFlow<()> + 's;

pub(super) fn run(
    data: &mut PerfData,
    order: RecordOrder,
    sink: &mut Sink<'_>,
) -> Result<PerfDataReadStats, PerfDataReadError> {
    if data.is_pipe() && data.consumed {
        return Err(PerfDataReadError::Consumed);
    }
    data.consumed = true;
    let limit = match data.data.size {
        0 => u64::MAX,
        size => data.data.offset.saturating_add(size),
    };
    if !data.is_pipe() {
        let seek = data.input.file.seek(SeekFrom::Start(data.data.offset));
        seek.map_err(|error| PerfDataReadError::Io { offset: data.data.offset, error })?;
    }
    data.input.restart(data.data.offset, limit);
    let mut reading = Reading::new(data, order, sink);
    if let Some(windows) = &data.losses {
        reading.queue.watch_losses(LossWatch::new(windows.clone()));
    }
    reading.stats.unfinished = data.is_unfinished();
    let result = reading.records(&mut data.input, limit);
    let mut stats = std::mem::take(&mut reading.stats);
    if let Ok(ControlFlow::Continue(())) = result {
        reading.seal(&mut data.input);
        let batches = reading.queue.finish();
        // The last: whether the sink wants more no longer matters.
        if reading.deliver(batches).is_continue()
            && let Some(deferred) = &mut reading.deferred
            && let Some(rest) = deferred.finish(reading.endian)
        {
            let _ = (reading.sink)(rest.known(&reading.events, &reading.features));
        }
    }
    if data.input.was_cut() {
        let (offset, what) = (data.input.offset(), "the file was cut short while it was read");
        stats.damaged.get_or_insert(Damage { offset, what: what.to_owned() });
    }
    stats.bytes = data.input.offset() - data.data.offset;
    crate::read_tally::add(stats.bytes);
    stats.out_of_order = reading.queue.out_of_order;
    stats.forced_flushes = reading.queue.forced_flushes;
    stats.missing_user_stacks = reading.deferred.as_ref().map_or(0, |deferred| deferred.missing);
    let (events, features) = (reading.events, reading.features);
    (data.events, data.features) = (events, features);
    result.map(|_| stats)
}

/// Reads what the records of a pipe-form file say of its events and sections; a later reading
/// reports damage.
pub(super) fn describe(data: &mut PerfData) -> Result<(), PerfDataReadError> {
    let mut ignored = |_: Batch| ControlFlow::Continue(());
    data.input.restart(data.data.offset, u64::MAX);
    let mut reading = Reading::new(data, RecordOrder::File, &mut ignored);
    let input = &mut data.input;
    while reading.stats.damaged.is_none() && input.want(RecordHeader::SIZE)? {
        let Ok(header) = RecordHeader::parse(input.window(), reading.endian) else { break };
        let size = usize::from(header.size);
        if size < RecordHeader::SIZE || !input.want(size)? {
            let (offset, what) = (input.offset(), format!("a record of {size} bytes is not whole"));
            reading.damage(offset, what);
            break;
        }
        let body = &input.window()[RecordHeader::SIZE..size];
        match header.kind {
            RecordKind::HEADER_ATTR
            | RecordKind::EVENT_UPDATE
            | RecordKind::HEADER_FEATURE
            | RecordKind::HEADER_BUILD_ID => reading.user_record(header, body),
            RecordKind::HEADER_TRACING_DATA | RecordKind::AUXTRACE => {
                let blob = BlobPlace::new(header.kind, body, reading.endian);
                blob.inside.into_iter().for_each(|b| reading.feature(Feature::TRACING_DATA, b));
                input.consume(size);
                reading.blob(header.kind, blob.follows, input)?;
                continue;
            }
            _ => {}
        }
        input.consume(size);
    }
    let (events, features) = (reading.events, reading.features);
    data.notes.extend(damaged_sections(&features));
    data.cut_at = reading.stats.damaged;
    (data.events, data.features) = (events, features);
    data.described = true;
    Ok(())
}

/// Position of bytes that belong to a record without being part of it.
struct BlobPlace {
    /// Number of bytes that follow the record.
    follows: u64,
    /// The bytes, where simpleperf put them into the record itself.
    inside: Option<Vec<u8>>,
}

impl BlobPlace {
    fn new(kind: RecordKind, body: &[u8], endian: Endian) -> BlobPlace {
        let nowhere = BlobPlace { follows: 0, inside: None };
        if kind == RecordKind::AUXTRACE {
            return BlobPlace { follows: endian.u64_at(body, 0).unwrap_or(0), ..nowhere };
        }
        let mut c = Cursor::new(body, endian);
        let Ok(stated) = c.u32() else { return nowhere };
        match c.bytes(stated as usize) {
            // perf's record ends here, padded at most.
            Ok(bytes) if body.len() > 8 => BlobPlace { inside: Some(bytes.to_vec()), ..nowhere },
            _ => BlobPlace { follows: stated.into(), ..nowhere },
        }
    }
}

struct Reading<'s, 'f> {
    endian: Endian,
    /// Events and sections are described by the records that are read now.
    pipe: bool,
    pipe_form: bool,
    events: Arc<Vec<EventDesc>>,
    features: Arc<Features>,
    ids: EventIds,
    queue: Queue,
    deferred: Option<DeferredChains>,
    pool: Arc<Pool>,
    /// Largest time seen when the last round ended.
    complete: u64,
    stats: PerfDataReadStats,
    /// The first record that is too short for its fields.
    short: Option<Damage>,
    unpacked: Unpacked,
    /// Offset and size of a section table among the records.
    table: Option<(u64, usize)>,
    /// The sink wants no more.
    stopped: bool,
    sink: &'s mut Sink<'f>,
}

/// Name and number of a kind of record, as perf states them.
fn record_name(kind: RecordKind) -> String {
    format!("{} ({})", kind.name().unwrap_or("record of an unknown kind"), kind.0)
}

/// Bytes of the fixed fields of a record that the kernel writes, its header included.
fn least_size(kind: RecordKind) -> usize {
    match kind {
        RecordKind::MMAP => 40,
        RecordKind::MMAP2 => 72,
        RecordKind::EXIT | RecordKind::FORK => 32,
        RecordKind::THROTTLE | RecordKind::UNTHROTTLE | RecordKind::AUX => 32,
        RecordKind::LOST | RecordKind::READ => 24,
        RecordKind::NAMESPACES | RecordKind::KSYMBOL | RecordKind::BPF_EVENT => 24,
        RecordKind::TEXT_POKE => 20,
        RecordKind::COMM | RecordKind::CGROUP | RecordKind::LOST_SAMPLES => 16,
        RecordKind::ITRACE_START | RecordKind::SWITCH_CPU_WIDE => 16,
        _ => RecordHeader::SIZE,
    }
}

/// Contents of compressed records.
#[derive(Default)]
struct Unpacked {
    decoder: Option<Decoder<'static>>,
    bytes: Vec<u8>,
    filled: usize,
}

impl<'s, 'f> Reading<'s, 'f> {
    fn new(data: &PerfData, order: RecordOrder, sink: &'s mut Sink<'f>) -> Reading<'s, 'f> {
        let min_batch = if data.is_pipe() { 0 } else { BATCH };
        Reading {
            endian: data.endian,
            pipe: data.is_pipe(),
            pipe_form: data.pipe,
            events: Arc::clone(&data.events),
            features: Arc::clone(&data.features),
            ids: EventIds::new(&data.events),
            queue: Queue::new(order, data.endian, min_batch),
            deferred: (!data.keeps_deferred_chains).then(DeferredChains::default),
            pool: Arc::default(),
            complete: 0,
            stats: PerfDataReadStats::default(),
            short: None,
            unpacked: Unpacked::default(),
            table: data.table,
            stopped: false,
            sink,
        }
    }

    fn records(
        &mut self,
        input: &mut Input,
        limit: u64,
    ) -> Result<ControlFlow<()>, PerfDataReadError> {
        const GO_ON: Result<ControlFlow<()>, PerfDataReadError> = Ok(ControlFlow::Continue(()));
        while !self.stopped {
            if let Some((_, size)) = self.table.filter(|(at, _)| *at == input.offset()) {
                self.table = None;
                if self.want(input, size)? {
                    input.consume(size);
                }
            }
            let offset = input.offset();
            if !self.want(input, RecordHeader::SIZE)? {
                self.end_of_input(input, limit);
                return GO_ON;
            }
            let Ok(header) = RecordHeader::parse(input.window(), self.endian) else { return GO_ON };
            let size = usize::from(header.size);
            if size < RecordHeader::SIZE {
                let what = format!("{} states a size of {size} bytes", record_name(header.kind));
                self.damage(offset, what);
                return GO_ON;
            }
            if size < least_size(header.kind) {
                self.note_short(offset, header);
            }
            if !self.want(input, size)? {
                let have = input.window().len();
                let name = record_name(header.kind);
                self.cut(offset, format!("{name} of {size} bytes is cut short after {have}"));
                return GO_ON;
            }
            let record = &input.window()[..size];
            match header.kind {
                RecordKind::COMPRESSED | RecordKind::COMPRESSED2 => {
                    if self.queue.open_is_used() {
                        self.seal(input);
                        continue;
                    }
                    let is_second = header.kind == RecordKind::COMPRESSED2;
                    self.stats.compressed[usize::from(is_second)] += 1;
                    self.compressed(header.kind, &record[RecordHeader::SIZE..], offset)?;
                }
                RecordKind::HEADER_TRACING_DATA | RecordKind::AUXTRACE => {
                    self.record_at(header, record, input.position(), offset);
                    let blob =
                        BlobPlace::new(header.kind, &record[RecordHeader::SIZE..], self.endian);
                    let inside = blob.inside.filter(|_| !self.is_described());
                    inside.into_iter().for_each(|b| self.feature(Feature::TRACING_DATA, b));
                    input.consume(size);
                    self.seal(input);
                    self.blob(header.kind, blob.follows, input)?;
                    if self.stats.damaged.is_some() {
                        return GO_ON;
                    }
                    continue;
                }
                _ => self.record_at(header, record, input.position(), offset),
            }
            input.consume(size);
            if self.stats.damaged.is_some() {
                return GO_ON;
            }
        }
        Ok(ControlFlow::Break(()))
    }

    /// Makes the window that large; when that takes reading, lets go first what
    /// can go.
    #[inline]
    fn want(&mut self, input: &mut Input, need: usize) -> Result<bool, PerfDataReadError> {
        if input.window().len() >= need {
            return Ok(true);
        }
        self.seal(input);
        self.flush_if_due();
        input.want(need)
    }

    /// Ends the open block, which does not change any more.
    fn seal(&mut self, input: &mut Input) {
        if self.queue.open_is_used() {
            self.queue.seal(input.hand_over(&self.pool));
        }
    }

    /// A record of the file itself, at `at` in its block. Among compressed ones the
    /// open block is what those unfold to, so it gets a block of its own.
    #[inline]
    fn record_at(&mut self, header: RecordHeader, record: &[u8], at: usize, offset: u64) {
        if self.unpacked.decoder.is_none() {
            self.record(header, record, at);
            return;
        }
        self.record(header, record, 0);
        if self.queue.open_is_used() {
            self.queue.seal(Block::exact(record, Origin::From(offset)));
        }
    }

    fn damage(&mut self, offset: u64, what: String) {
        // After a wrong size whatever follows is misread.
        let first = self.short.take().unwrap_or(Damage { offset, what });
        self.stats.damaged.get_or_insert(first);
    }

    /// Keeps the place of the first record that states a size less than that of its fields: where
    /// the records after it cannot be read, its size is what is wrong.
    fn note_short(&mut self, offset: u64, header: RecordHeader) {
        self.short.get_or_insert_with(|| {
            let (name, least) = (record_name(header.kind), least_size(header.kind));
            let what = format!("{name} states a size of {} bytes, less than {least}", header.size);
            Damage { offset, what }
        });
    }

    /// Notes a record that the file ends in. Where a recorder did not finish the file, that is said
    /// already: it was killed in the middle of a write.
    fn cut(&mut self, offset: u64, what: String) {
        if !self.stats.unfinished {
            self.damage(offset, what);
        }
    }

    fn end_of_input(&mut self, input: &Input, limit: u64) {
        let (left, at) = (input.window().len(), input.offset());
        if left > 0 {
            self.cut(at, format!("a record header is cut short after {left} bytes"));
        } else if limit != u64::MAX && at < limit {
            self.damage(at, format!("the file ends here, its records should go on to {limit}"));
        } else if self.unpacked.filled > 0 {
            // The file is whole: perf 6.1 with -z itself now and then (once in 30
            // recordings of a short command) ends its last compressed record in the
            // middle of a record. perf script passes over it, too.
            self.stats.cut_compressed = self.unpacked.filled as u64;
        }
    }

    /// Bytes that follow their record without being part of it.
    fn blob(
        &mut self,
        kind: RecordKind,
        size: u64,
        input: &mut Input,
    ) -> Result<(), PerfDataReadError> {
        let at = input.offset();
        let have = if kind == RecordKind::AUXTRACE {
            let have = input.skip(size)?;
            self.stats.aux_bytes += have;
            have
        } else if size > MAX_TRACING_DATA {
            self.damage(at, format!("{size} bytes of tracing data are too many"));
            return Ok(());
        } else if self.is_described() || size == 0 {
            input.skip(size)?
        } else {
            let bytes = input.take(size)?;
            let have = bytes.len() as u64;
            self.feature(Feature::TRACING_DATA, bytes);
            have
        };
        if have < size {
            self.damage(at, format!("{size} bytes should follow, {have} are there"));
        }
        Ok(())
    }

    /// One whole record, its header included.
    #[inline]
    fn record(&mut self, header: RecordHeader, record: &[u8], at: usize) {
        self.stats.records += 1;
        let body = &record[RecordHeader::SIZE..];
        if header.kind == RecordKind::SAMPLE {
            self.sample(body, at);
        } else if header.kind.is_user() {
            self.user_record(header, body);
            self.queue.push_other(at, None, 0);
        } else {
            self.sideband(header, body, at);
        }
    }

    #[inline]
    fn sample(&mut self, body: &[u8], at: usize) {
        match self.ids.sample(body, self.endian) {
            Ok((event, time)) => {
                self.stats.samples += 1;
                self.queue.push(at, time, event);
                if let Some((watch, _)) = self.queue.watch()
                    && let Some(time) = time
                {
                    watch.sample(self.ids.sample_cpu(event, body, self.endian), time);
                }
            }
            Err(why) => self.stats.count_unusable(why),
        }
    }

    fn sideband(&mut self, header: RecordHeader, body: &[u8], at: usize) {
        match self.ids.sideband(header.kind, body, self.endian) {
            Ok((event, time)) => {
                self.stats.count_sideband(header, body, (time, self.endian));
                self.stats.malformed += u64::from(self.ids.is_cut(event, body));
                self.queue.push_other(at, time, event);
                self.watch_sideband(header.kind, body, (event, time));
            }
            Err(why) => self.stats.count_unusable(why),
        }
    }

    /// Takes note of losses that a record states.
    fn watch_sideband(&mut self, kind: RecordKind, body: &[u8], (event, time): (u32, Option<u64>)) {
        let states_losses =
            matches!(kind, RecordKind::LOST | RecordKind::THROTTLE | RecordKind::UNTHROTTLE);
        let Some((watch, delivered)) = self.queue.watch().filter(|_| states_losses) else { return };
        let Some(time) = time else { return };
        let cpu = self.ids.sideband_cpu(event, body, self.endian);
        // Those of throttling name their event after the time.
        let id = self.endian.u64_at(body, 8).unwrap_or(0);
        let of = self.ids.named(id).and_then(|event| self.events.get(event as usize));
        watch.sideband(kind, of.map(|desc| (desc, id)), (cpu, time), delivered);
    }

    /// Whether an earlier pass over this file took what its records say of events and sections.
    fn is_described(&self) -> bool {
        self.pipe_form && !self.pipe
    }

    fn user_record(&mut self, header: RecordHeader, body: &[u8]) {
        let taken = match header.kind {
            RecordKind::HEADER_FEATURE | RecordKind::HEADER_BUILD_ID if self.is_described() => {
                Some(())
            }
            RecordKind::FINISHED_ROUND => {
                self.queue.round(&mut self.complete);
                Some(())
            }
            RecordKind::HEADER_ATTR => self.header_attr(body),
            RecordKind::EVENT_UPDATE => self.event_update(body),
            RecordKind::HEADER_FEATURE => {
                let id = self.endian.u64_at(body, 0).filter(|id| *id < u64::from(Feature::BITS));
                id.map(|id| self.feature(Feature(id as u32), body[8..].to_vec()))
            }
            RecordKind::HEADER_BUILD_ID => {
                let features = Arc::make_mut(&mut self.features);
                if features.build_ids.len() < MAX_BUILD_IDS {
                    features.build_id(header.misc.0, body, self.endian).ok()
                } else {
                    None
                }
            }
            RecordKind::AUXTRACE_INFO => {
                self.stats.aux_kind = Cursor::new(body, self.endian).u32().ok();
                self.stats.aux_kind.map(|_| ())
            }
            RecordKind::AUXTRACE_ERROR => {
                self.stats.aux_errors += 1;
                Some(())
            }
            kind if !known(kind) => {
                *self.stats.unknown_kinds.entry(kind.0).or_default() += 1;
                Some(())
            }
            _ => Some(()),
        };
        if taken.is_none() {
            self.stats.malformed += 1;
        }
    }

    fn feature(&mut self, feature: Feature, bytes: Vec<u8>) {
        self.stats.unfinished |= feature == Feature::UNFINISHED;
        let features = Arc::make_mut(&mut self.features);
        features.accept(feature, bytes, self.endian);
        // What the sections tell about events may name those known by now.
        if matches!(feature, Feature::EVENT_DESC | Feature::TRACING_DATA) && self.pipe {
            for event in Arc::make_mut(&mut self.events) {
                if event.name.starts_with("tracepoint:") {
                    event.name.clear();
                }
            }
            name_events(Arc::<Vec<EventDesc>>::make_mut(&mut self.events), &self.features);
        }
    }

    fn header_attr(&mut self, body: &[u8]) -> Option<()> {
        if !self.pipe {
            return Some(());
        }
        let stated = Cursor::new(body.get(4..)?, self.endian).u32().ok()? as usize;
        let size = if stated == 0 { Attr::SIZE_VER0 } else { stated };
        let attr = Attr::parse(body.get(..size)?, self.endian).ok()?;
        let ids = body[size..].as_chunks::<8>().0.iter().map(|b| self.endian.u64(*b)).collect();
        let events = Arc::make_mut(&mut self.events);
        if events.len() >= MAX_EVENTS {
            return None;
        }
        events.push(EventDesc { attr, ids, ..EventDesc::default() });
        let last = events.len() - 1;
        name_events(&mut events[last..], &self.features);
        self.ids.add(last, &events[last]);
        Some(())
    }

    fn event_update(&mut self, body: &[u8]) -> Option<()> {
        const UNIT: u64 = 0;
        const SCALE: u64 = 1;
        const NAME: u64 = 2;
        let mut c = Cursor::new(body, self.endian);
        let (what, id) = (c.u64().ok()?, c.u64().ok()?);
        let event = self.ids.named(id)? as usize;
        let event = Arc::make_mut(&mut self.events).get_mut(event)?;
        match what {
            UNIT => event.unit = String::from_utf8_lossy(c.cstr()).into_owned(),
            SCALE => event.scale = Some(f64::from_bits(c.u64().ok()?)),
            NAME => event.name = String::from_utf8_lossy(c.cstr()).into_owned(),
            _ => {}
        }
        Some(())
    }

    fn flush_if_due(&mut self) {
        if self.queue.is_due() {
            let batches = self.queue.flush();
            self.stopped |= self.deliver(batches).is_break();
        }
    }

    fn deliver(&mut self, batches: Vec<Batch>) -> ControlFlow<()> {
        let (events, features) = (&self.events, &self.features);
        let (sink, deferred) = (&mut self.sink, &mut self.deferred);
        let merges = self.queue.is_by_time() && deferred_chains::are_asked_for(events);
        batches.into_iter().try_for_each(|batch| {
            let batch = batch.known(events, features);
            sink(match deferred {
                Some(deferred) if merges => deferred.merge(batch),
                _ => batch,
            })
        })
    }

    fn compressed(
        &mut self,
        kind: RecordKind,
        body: &[u8],
        offset: u64,
    ) -> Result<(), PerfDataReadError> {
        let packed = if kind == RecordKind::COMPRESSED {
            Some(body)
        } else {
            let size = self.endian.u64_at(body, 0).and_then(|n| usize::try_from(n).ok());
            size.and_then(|n| body.get(8..)?.get(..n))
        };
        let Some(packed) = packed else {
            self.damage(offset, "a compressed record states more bytes than it has".to_owned());
            return Ok(());
        };
        let mut unpacked = std::mem::take(&mut self.unpacked);
        let result = self.unpack(&mut unpacked, packed, offset);
        self.unpacked = unpacked;
        result
    }

    fn unpack(
        &mut self,
        u: &mut Unpacked,
        packed: &[u8],
        offset: u64,
    ) -> Result<(), PerfDataReadError> {
        let decoder = match &mut u.decoder {
            Some(d) => d,
            none => {
                let mut d = Decoder::new().map_err(PerfDataReadError::Zstd)?;
                let window = DParameter::WindowLogMax(WINDOW_LOG_MAX);
                d.set_parameter(window).map_err(PerfDataReadError::Zstd)?;
                none.insert(d)
            }
        };
        let mut input = InBuffer::around(packed);
        while !self.stopped {
            // What is left of the last record is shorter than any block.
            if u.bytes.is_empty() {
                u.bytes = self.pool.take(BLOCK);
            }
            let room = u.bytes.len() - u.filled;
            let mut output = OutBuffer::around(&mut u.bytes[u.filled..]);
            if let Err(e) = decoder.run(&mut input, &mut output) {
                self.damage(offset, format!("compressed data does not decode: {e}"));
                break;
            }
            let produced = output.pos();
            u.filled += produced;
            let at = self.unpacked_records(&u.bytes[..u.filled], offset);
            if self.queue.open_is_used() {
                let origin = Origin::Inside(offset);
                let block = hand_over(&mut u.bytes, at, at..u.filled, origin, &self.pool);
                self.queue.seal(block);
            } else {
                u.bytes.copy_within(at..u.filled, 0);
            }
            u.filled -= at;
            self.flush_if_due();
            let all = input.pos >= packed.len() && produced < room;
            if all || self.stats.damaged.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Takes the whole records at the start of `bytes`; says where they end.
    fn unpacked_records(&mut self, bytes: &[u8], offset: u64) -> usize {
        let mut at = 0;
        while let Ok(header) = RecordHeader::parse(&bytes[at..], self.endian) {
            let size = usize::from(header.size);
            if size < RecordHeader::SIZE {
                self.damage(offset, format!("a record in compressed data states {size} bytes"));
                break;
            }
            let Some(record) = bytes[at..].get(..size) else { break };
            self.record(header, record, at);
            at += size;
        }
        at
    }
}

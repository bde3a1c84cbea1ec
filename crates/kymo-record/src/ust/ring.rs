//! Reading the ring of a program, alive or dead: whole packets, and of the packet that is being
//! written what is committed. `docs/formats/ust.md` describes which data can be trusted when.

use kymo_kernel::shared::{Access, SharedFile};
use kymo_ring::{
    AREA_HEADER, AreaState, CONTEXT_END, Config, Context, Header, LayoutError, Mode, RingCursor,
};
use kymo_ust::{Slot, SlotAnswer};

use super::complete_packets::{CompletePackets, Memory};
use super::error::UstError;
use super::program::Program;
use super::slots::Attached;

/// The ring of one channel of one program.
#[derive(Debug)]
pub struct RingReader {
    file: SharedFile,
    header: Header,
    areas: Vec<Area>,
    /// Whether its writers are gone, so that nothing changes any more.
    dead: bool,
    /// Whether what is read stays to be read.
    peeking: bool,
    /// UUID of the packets that are handed out.
    uuid: [u8; 16],
    /// Bytes read in this pass.
    read: u64,
    memory: Memory,
}

/// Read position in an area. Counts start when the reader was opened.
#[derive(Clone, Debug, Default)]
pub struct Area {
    /// The packet to be read next.
    next: u64,
    /// Bytes of the packet that were read; 0 for none.
    within: u64,
    /// The time up to which it was.
    until: u64,
    /// Number of events before that position, if known.
    count: Option<u64>,
    /// Number of packets that all readers have handed out.
    handed_out: u64,
    /// Cursor noted by the readers; none: not yet read.
    noted: Option<RingCursor>,
    /// Cursor noted when the reader was opened.
    before: RingCursor,
    /// Packets that were overwritten before they were read.
    pub overwritten_packets: u64,
    /// Events in these, as far as that is known.
    pub overwritten_events: u64,
    /// Events discarded.
    pub discarded: u64,
    /// Discarded events that were larger than a sub-buffer.
    pub too_large: u64,
    /// There was no memory for it: that is why events were discarded.
    pub without_memory: bool,
    /// Places that did not hold what they should.
    pub damaged: u64,
}

impl Area {
    /// Continues where the last reader stopped. A writer of the ring can also write the note:
    /// impossible values are ignored.
    fn resume(&mut self, cursor: RingCursor, state: &AreaState, sub_buffer: u64) {
        if self.noted.is_some() {
            return;
        }
        self.noted = Some(cursor);
        let counts = [(cursor.discarded, state.discarded), (cursor.too_large, state.too_large)];
        if cursor.pos > state.pos || counts.iter().any(|(told, now)| told > now) {
            self.damaged += 1;
            return;
        }
        self.before = cursor;
        (self.next, self.within) = (cursor.pos / sub_buffer, cursor.pos % sub_buffer);
        (self.until, self.handed_out) = (cursor.until, cursor.handed_out);
        self.count = Some(cursor.count).filter(|c| *c <= state.count);
    }

    /// The packet to be read next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Bytes of the packet that were read.
    pub(super) fn within(&self) -> u64 {
        self.within
    }

    /// Gives a finished packet the numbers it has as one that is handed out, of which nothing was
    /// before.
    pub(super) fn number(&mut self, context: &mut Context) {
        // Already reported losses are not reported again.
        context.discarded = context.discarded.saturating_sub(self.before.discarded);
        self.count_up(context);
        self.count = None;
    }

    /// Numbers of packets as they are handed out: one more for each, and one more for each that was
    /// overwritten.
    fn count_up(&mut self, context: &mut Context) {
        if let (0, Some(count)) = (self.within, self.count) {
            let lost = context.before.saturating_sub(count);
            self.overwritten_events = self.overwritten_events.saturating_add(lost);
        }
        context.packet = self
            .handed_out
            .saturating_add(self.before.overwritten)
            .saturating_add(self.overwritten_packets);
        self.handed_out = self.handed_out.saturating_add(1);
    }

    fn cursor(&self, sub_buffer: u64) -> RingCursor {
        let before = &self.before;
        RingCursor {
            pos: self.next.saturating_mul(sub_buffer).saturating_add(self.within),
            count: self.count.unwrap_or(u64::MAX),
            until: self.until,
            handed_out: self.handed_out,
            overwritten: before.overwritten.saturating_add(self.overwritten_packets),
            discarded: before.discarded.saturating_add(self.discarded),
            too_large: before.too_large.saturating_add(self.too_large),
        }
    }
}

/// Counters of a ring, whether it was read or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// Events written since ever.
    pub written: u64,
    /// Events discarded since ever.
    pub discarded: u64,
    /// Events overwritten since ever, taken before or not.
    pub overwritten: u64,
    /// Bytes in it that have not been taken.
    pub waiting: u64,
    /// Areas for which there was no memory: their events are discarded.
    pub failed: u64,
}

/// Packet read from an area.
#[derive(Debug)]
pub struct TakenPacket<'a> {
    /// Area.
    pub area: u32,
    /// The context, true for what follows.
    pub context: Context,
    /// The packet with that context: what a stream file holds.
    pub packet: &'a [u8],
}

/// Output of a ring.
#[derive(Debug)]
pub enum Out<'a> {
    /// A packet that was copied.
    Packet(TakenPacket<'a>),
    /// Packets that are still where they were written.
    CompletePackets(CompletePackets<'a>),
}

/// Receiver of the output.
type Sink<'s, E> = dyn FnMut(Out<'_>) -> Result<(), E> + 's;

/// Amount that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Packets that are finished.
    Closed,
    /// Also what is written of the last.
    Open,
}

/// Result of reading a packet.
enum Read {
    Whole(Context),
    /// The writer has been there meanwhile.
    Overwritten,
    Damaged,
}

impl RingReader {
    /// Opens the ring that a program has made for a slot; none if it has not yet.
    ///
    /// # Errors
    /// If it is not what it should be.
    pub fn of(program: &Program, attached: Attached) -> Result<Option<RingReader>, UstError> {
        match RingReader::open(program, std::ffi::OsStr::new(&attached.ring_name())) {
            Err(UstError::Shared(e)) if e.is_missing() => Ok(None),
            other => other,
        }
    }

    /// Opens the ring by the slot's own state: if the program reports its ring as ready and it does
    /// not exist, it was lost.
    pub(super) fn of_slot(
        program: &Program,
        (attached, slot): (Attached, &Slot),
    ) -> Result<Option<RingReader>, UstError> {
        match (RingReader::of(program, attached)?, slot.answer_in_force()) {
            (None, Some(SlotAnswer::Ready)) => Err(UstError::Cut),
            (ring, _) => Ok(ring),
        }
    }

    /// Opens a ring file of a program; none if it is not finished.
    ///
    /// # Errors
    /// If it is not what it should be.
    pub(super) fn open(
        program: &Program,
        name: &std::ffi::OsStr,
    ) -> Result<Option<RingReader>, UstError> {
        let dead = !program.is_alive()?;
        let file = program.dir().file(name, Access::ReadWrite)?;
        let mut head = [0; 128];
        if file.read_some(0, &mut head)? < head.len() || head[..8] == [0; 8] {
            return Ok(None);
        }
        let error = |error| UstError::Ring { path: file.path().to_owned(), error };
        let header = Header::parse(&head, file.size()?).map_err(error)?;
        let areas = vec![Area::default(); header.areas() as usize];
        let uuid = header.config().uuid;
        Ok(Some(RingReader {
            file,
            header,
            areas,
            dead,
            peeking: false,
            uuid,
            read: 0,
            memory: Memory::default(),
        }))
    }

    /// Leaves what is read to other readers.
    pub fn set_peeking(&mut self) {
        self.peeking = true;
    }

    /// Mixes a channel configuration's name into the number of the program's traces: it
    /// distinguishes those of two channels, and one channel's are the same in every file.
    pub(super) fn set_channel(&mut self, config: &str) {
        // FNV-1a of 128 bits: any mixture would do.
        let hash =
            config.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |h, byte| {
                (h ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
            });
        for (to, byte) in self.uuid.iter_mut().zip(hash.to_le_bytes()) {
            *to ^= byte;
        }
        self.uuid[6] = self.uuid[6] & 0x0f | 0x40;
        self.uuid[8] = self.uuid[8] & 0x3f | 0x80;
    }

    /// The number of the trace that the packets make.
    pub(super) fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Returns the counters of the ring.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn counts(&self) -> Result<RingCounts, UstError> {
        let size = u64::from(self.config().sub_buffer);
        let room = size * u64::from(self.config().sub_buffers);
        let mut counts = RingCounts::default();
        for area in 0..self.header.areas() {
            let head = self.head(area)?;
            let state = AreaState::parse(&head).map_err(|e| self.error(e))?;
            counts.discarded = counts.discarded.saturating_add(state.discarded);
            counts.failed += u64::from(state.failed);
            if !state.used {
                continue;
            }
            counts.written = counts.written.saturating_add(state.count);
            let taken = RingCursor::parse(&head).map_err(|e| self.error(e))?.pos;
            let waiting = state.pos.saturating_sub(taken).min(room);
            counts.waiting = counts.waiting.saturating_add(waiting);
            if self.config().mode == Mode::Overwrite {
                let mut context = [0; CONTEXT_END];
                let open = state.pos / size;
                self.file.read_at(self.header.packet_offset(area, open), &mut context)?;
                // The writer may be changing it: then nothing is said this time.
                let overwritten =
                    self.header.check_packet(&context, open).map_or(0, |c| c.overwritten);
                counts.overwritten = counts.overwritten.saturating_add(overwritten);
            }
        }
        Ok(counts)
    }

    /// Whether all that was written into it has been taken, and all losses have been reported.
    ///
    /// # Errors
    /// If it is not what it should be.
    pub(super) fn is_taken(&self) -> Result<bool, UstError> {
        for area in 0..self.header.areas() {
            let head = self.head(area)?;
            let state = AreaState::parse(&head).map_err(|e| self.error(e))?;
            let cursor = RingCursor::parse(&head).map_err(|e| self.error(e))?;
            let waits = state.used && cursor.pos < state.pos;
            if waits || cursor.discarded < state.discarded {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the configuration of the ring.
    pub fn config(&self) -> &Config {
        self.header.config()
    }

    /// Returns the read position of each area.
    pub fn areas(&self) -> &[Area] {
        &self.areas
    }

    /// The program has ended: what is there now is all there will be.
    pub fn set_dead(&mut self) {
        self.dead = true;
    }

    /// Takes the finished packets, oldest first by area, and frees their room.
    ///
    /// # Errors
    /// If the file cannot be read, and whatever `sink` returns.
    pub fn take<E: From<UstError>>(
        &mut self,
        sink: &mut dyn FnMut(TakenPacket<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.copies(Depth::Closed, sink)
    }

    /// Takes the finished packets and what is committed of the last ones.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_all<E: From<UstError>>(
        &mut self,
        sink: &mut dyn FnMut(TakenPacket<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.copies(Depth::Open, sink)
    }

    /// As [`take`](Self::take), or with `all` as [`take_all`](Self::take_all), without copying what
    /// need not be.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_out<E: From<UstError>>(
        &mut self,
        all: bool,
        sink: &mut Sink<'_, E>,
    ) -> Result<(), E> {
        self.pass(if all { Depth::Open } else { Depth::Closed }, true, sink)
    }

    fn copies<E: From<UstError>>(
        &mut self,
        depth: Depth,
        sink: &mut dyn FnMut(TakenPacket<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.pass(depth, false, &mut |out| match out {
            Out::Packet(taken) => sink(taken),
            Out::CompletePackets(_) => Ok(()),
        })
    }

    /// `whole`: what need not be copied is not.
    fn pass<E: From<UstError>>(
        &mut self,
        depth: Depth,
        whole: bool,
        sink: &mut Sink<'_, E>,
    ) -> Result<(), E> {
        let mut buffer = Vec::new();
        let size = u64::from(self.config().sub_buffer);
        self.read = 0;
        for area in 0..self.header.areas() {
            let head = self.head(area)?;
            let state = AreaState::parse(&head).map_err(|e| self.error(e))?;
            let cursor = RingCursor::parse(&head).map_err(|e| self.error(e))?;
            let reader = &mut self.areas[area as usize];
            reader.resume(cursor, &state, size);
            reader.discarded = state.discarded.saturating_sub(reader.before.discarded);
            reader.without_memory |= state.failed;
            reader.too_large = state.too_large.saturating_sub(reader.before.too_large);
            let taken = if state.used {
                self.area(area, &state, (depth, whole), &mut buffer, sink)
            } else {
                Ok(())
            };
            // What was handed out before an error was is not handed out again.
            self.note(area)?;
            taken?;
        }
        Ok(())
    }

    /// Notes in the ring how far an area has been read.
    fn note(&mut self, area: u32) -> Result<(), UstError> {
        let size = u64::from(self.config().sub_buffer);
        let reader = &mut self.areas[area as usize];
        let cursor = reader.cursor(size);
        if self.peeking || reader.noted == Some(cursor) {
            return Ok(());
        }
        reader.noted = Some(cursor);
        Ok(self.file.write_at(self.header.cursor_offset(area), &cursor.encode())?)
    }

    fn head(&self, area: u32) -> Result<[u8; AREA_HEADER], UstError> {
        let mut head = [0; AREA_HEADER];
        self.file.read_at(self.header.area_header_offset(area), &mut head)?;
        Ok(head)
    }

    fn state(&self, area: u32) -> Result<AreaState, UstError> {
        AreaState::parse(&self.head(area)?).map_err(|e| self.error(e))
    }

    fn error(&self, error: LayoutError) -> UstError {
        UstError::Ring { path: self.file.path().to_owned(), error }
    }

    fn area<E: From<UstError>>(
        &mut self,
        area: u32,
        state: &AreaState,
        (depth, whole): (Depth, bool),
        buffer: &mut Vec<u8>,
        sink: &mut Sink<'_, E>,
    ) -> Result<(), E> {
        let size = u64::from(self.config().sub_buffer);
        let (open, written) = (state.pos / size, state.pos % size);
        self.skip_overwritten(area, open);
        while self.areas[area as usize].next < open {
            if whole && self.hand_out_whole(area, open, sink)? {
                continue;
            }
            let packet = self.areas[area as usize].next;
            match self.read(area, packet, size, buffer)? {
                Read::Whole(context) => self.hand_out(area, context, None, buffer, sink)?,
                Read::Overwritten => self.areas[area as usize].overwritten_packets += 1,
                Read::Damaged => self.areas[area as usize].damaged += 1,
            }
            self.taken(area, 1)?;
        }
        if depth == Depth::Closed {
            return Ok(());
        }
        let begun = self.areas[area as usize].within.max(CONTEXT_END as u64);
        if written > begun {
            // The time is read after the place: no event before it is younger.
            let until = self.state(area)?.last;
            let Read::Whole(context) = self.read(area, open, written, buffer)? else {
                self.areas[area as usize].damaged += 1;
                return Ok(());
            };
            self.hand_out(area, context, Some((written, until)), buffer, sink)?;
            let reader = &mut self.areas[area as usize];
            (reader.within, reader.until) = (written, until);
        }
        self.areas[area as usize].count = Some(state.count);
        Ok(())
    }

    /// Hands out packets that need not be copied. Says whether there were any.
    fn hand_out_whole<E: From<UstError>>(
        &mut self,
        area: u32,
        open: u64,
        sink: &mut Sink<'_, E>,
    ) -> Result<bool, E> {
        let reader = &mut self.areas[area as usize];
        let (file, header, before) = (&self.file, &self.header, reader.clone());
        let whole = self.memory.whole(file, header, area, open, reader, &self.uuid)?;
        let Some(whole) = whole else { return Ok(false) };
        let packets = whole.packets;
        if sink(Out::CompletePackets(whole)).is_err() {
            // One by one, up to the room; the next one reports the defect.
            self.areas[area as usize] = before;
            return Ok(false);
        }
        self.taken(area, packets)?;
        Ok(true)
    }

    /// Releases the room of packets that are done with.
    fn taken(&mut self, area: u32, packets: u64) -> Result<(), UstError> {
        let next = self.areas[area as usize].next;
        if self.config().mode == Mode::Discard && !self.peeking {
            for packet in next..next + packets {
                let taken = [self.header.taken_value(packet)];
                self.file.write_at(self.header.taken_offset(area, packet), &taken)?;
            }
        }
        let reader = &mut self.areas[area as usize];
        (reader.next, reader.within, reader.count) = (next + packets, 0, None);
        // After a kill in the middle the rest is left to the next reader.
        self.note(area)
    }

    /// Continues where the oldest whole packet is, if the writer has come round.
    fn skip_overwritten(&mut self, area: u32, open: u64) {
        let room = u64::from(self.config().sub_buffers);
        // Alive, the packet behind the open one may be entered at any time.
        let kept = if self.dead { room - 1 } else { room - 2 };
        let oldest = open.saturating_sub(kept);
        let reader = &mut self.areas[area as usize];
        if reader.next < oldest && self.header.config().mode == Mode::Overwrite {
            reader.overwritten_packets += oldest - reader.next;
            (reader.next, reader.within) = (oldest, 0);
        } else if reader.next.saturating_add(room) < open {
            // In discard mode that cannot be: the writer lies, or another reader has been here.
            reader.damaged += 1;
            (reader.next, reader.within) = (open.saturating_sub(room), 0);
        }
    }

    /// Whether so much more can be in the file: one full of holes may claim any size, and
    /// would fill the reader's disk.
    fn is_there(&self, len: u64) -> Result<bool, UstError> {
        Ok(self.read.saturating_add(len) <= self.file.allocated()?)
    }

    /// The first `len` bytes of a packet and its context, if they are that packet's
    /// and have not changed meanwhile.
    fn read(
        &mut self,
        area: u32,
        packet: u64,
        len: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Read, UstError> {
        let offset = self.header.packet_offset(area, packet);
        // The context first: sub-buffers without one may be as large as they say and be
        // nothing but a hole in the file.
        buffer.resize(CONTEXT_END, 0);
        self.file.read_at(offset, buffer)?;
        let mut read = match self.header.check_packet(buffer, packet) {
            Ok(context) if self.is_there(len)? => {
                self.read += len;
                buffer.resize(len as usize, 0);
                let begun = CONTEXT_END.min(buffer.len());
                self.file.read_at(offset + begun as u64, &mut buffer[begun..])?;
                Read::Whole(context)
            }
            _ => Read::Damaged,
        };
        if self.config().mode == Mode::Overwrite && !self.dead {
            let size = u64::from(self.config().sub_buffer);
            let now = self.state(area)?.pos / size;
            if now >= packet + u64::from(self.config().sub_buffers) - 1 {
                read = Read::Overwritten;
            }
        }
        Ok(read)
    }

    /// Makes what was read a packet of its own, from where the last one ended.
    fn hand_out<E: From<UstError>>(
        &mut self,
        area: u32,
        mut context: Context,
        open: Option<(u64, u64)>,
        buffer: &mut [u8],
        sink: &mut Sink<'_, E>,
    ) -> Result<(), E> {
        let reader = &mut self.areas[area as usize];
        let end = match open {
            Some((written, until)) => {
                context.end = until;
                context.discarded = reader.discarded;
                written
            }
            None => {
                // Already reported losses are not reported again.
                context.discarded = context.discarded.saturating_sub(reader.before.discarded);
                context.content_bits / 8
            }
        };
        let begin = reader.within.max(CONTEXT_END as u64);
        let sound = context.content_bits.is_multiple_of(8) || open.is_some();
        if end < begin || end > buffer.len() as u64 || !sound {
            reader.damaged += 1;
            return Ok(());
        }
        if begin == end && reader.within > 0 {
            return Ok(());
        }
        reader.count_up(&mut context);
        if reader.within > 0 {
            let clock = &self.header.config().clock;
            let passed = reader.until.saturating_sub(context.begin);
            context.monotonic =
                context.monotonic.saturating_add(nanoseconds(passed, clock.frequency));
            // The clocks were not read there.
            context.error_ns = u32::MAX;
            context.begin = reader.until;
        }
        let len = CONTEXT_END as u64 + (end - begin);
        (context.content_bits, context.packet_bits) = (8 * len, 8 * len);
        context.end = context.end.max(context.begin);
        let head = context.encode(&self.uuid);
        let start = (begin as usize) - CONTEXT_END;
        let Some(packet) = buffer.get_mut(start..end as usize) else { return Ok(()) };
        packet[..CONTEXT_END].copy_from_slice(&head);
        sink(Out::Packet(TakenPacket { area, context, packet }))
    }
}

/// Ticks in nanoseconds.
fn nanoseconds(ticks: u64, frequency: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(frequency.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

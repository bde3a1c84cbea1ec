//! Reading the ring of a program, alive or dead: whole packets, and of the packet
//! that is being written what is committed. `docs/formats/ust.md` says what may be
//! believed when.

use kymo_kernel::shared::{Access, SharedFile};
use kymo_ring::{AREA_HEADER, AreaState, CONTEXT_END, Config, Context, Header, LayoutError, Mode};

use super::channel::Attached;
use super::error::UstError;
use super::program::Program;

/// The ring of one channel of one program.
#[derive(Debug)]
pub struct RingReader {
    file: SharedFile,
    header: Header,
    areas: Vec<Area>,
    /// Whether its writers are gone, so that nothing changes any more.
    dead: bool,
}

/// How far an area has been read.
#[derive(Clone, Debug, Default)]
pub struct Area {
    /// The packet to be read next.
    next: u64,
    /// What of it has been read, bytes; 0 for nothing.
    within: u64,
    /// The time up to which it was.
    until: u64,
    /// How many packets have been handed out.
    handed_out: u64,
    /// Packets that were overwritten before they were read.
    pub overwritten_packets: u64,
    /// Events discarded, as the area counts them.
    pub discarded: u64,
    /// Of these, those larger than a sub-buffer.
    pub too_large: u64,
    /// Places that did not hold what they should.
    pub damaged: u64,
}

/// What was taken out of an area.
#[derive(Debug)]
pub struct Taken<'a> {
    /// Which area.
    pub area: u32,
    /// The context, true for what follows.
    pub context: Context,
    /// The packet with that context: what a stream file holds.
    pub packet: &'a [u8],
}

/// How much is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Packets that are finished.
    Closed,
    /// Also what is written of the last.
    Open,
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
        Ok(Some(RingReader { file, header, areas, dead }))
    }

    /// What the ring is.
    pub fn config(&self) -> &Config {
        self.header.config()
    }

    /// How far each area has been read.
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
        sink: &mut dyn FnMut(Taken<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.pass(Depth::Closed, sink)
    }

    /// Takes the finished packets and what is committed of the last ones.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_all<E: From<UstError>>(
        &mut self,
        sink: &mut dyn FnMut(Taken<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.pass(Depth::Open, sink)
    }

    fn pass<E: From<UstError>>(
        &mut self,
        depth: Depth,
        sink: &mut dyn FnMut(Taken<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = Vec::new();
        for area in 0..self.header.areas() {
            let state = self.state(area)?;
            if state.used {
                self.area(area, &state, depth, &mut buffer, sink)?;
            }
        }
        Ok(())
    }

    fn state(&self, area: u32) -> Result<AreaState, UstError> {
        let mut head = [0; AREA_HEADER];
        self.file.read_at(self.header.area_header_offset(area), &mut head)?;
        AreaState::parse(&head).map_err(|e| self.error(e))
    }

    fn error(&self, error: LayoutError) -> UstError {
        UstError::Ring { path: self.file.path().to_owned(), error }
    }

    fn area<E: From<UstError>>(
        &mut self,
        area: u32,
        state: &AreaState,
        depth: Depth,
        buffer: &mut Vec<u8>,
        sink: &mut dyn FnMut(Taken<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let size = u64::from(self.config().sub_buffer);
        let (open, written) = (state.pos / size, state.pos % size);
        self.skip_overwritten(area, open);
        let reader = &mut self.areas[area as usize];
        (reader.discarded, reader.too_large) = (state.discarded, state.too_large);
        while self.areas[area as usize].next < open {
            let packet = self.areas[area as usize].next;
            match self.read(area, packet, size, buffer)? {
                Some(context) => self.hand_out(area, context, None, buffer, sink)?,
                None => self.areas[area as usize].damaged += 1,
            }
            if self.config().mode == Mode::Discard {
                let taken = [self.header.taken_value(packet)];
                self.file
                    .write_at(self.header.taken_offset(area, packet), &taken)
                    .map_err(UstError::from)?;
            }
            let reader = &mut self.areas[area as usize];
            (reader.next, reader.within) = (packet + 1, 0);
        }
        let begun = self.areas[area as usize].within.max(CONTEXT_END as u64);
        if depth == Depth::Open && written > begun {
            // The time is read after the place: no event before it is younger.
            let until = self.state(area)?.last;
            if let Some(context) = self.read(area, open, written, buffer)? {
                self.hand_out(area, context, Some((written, until)), buffer, sink)?;
                let reader = &mut self.areas[area as usize];
                (reader.within, reader.until) = (written, until);
            } else {
                self.areas[area as usize].damaged += 1;
            }
        }
        Ok(())
    }

    /// Goes on where the oldest whole packet is, if the writer has come round.
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

    /// The first `len` bytes of a packet and its context, if they are that packet's
    /// and have not changed meanwhile.
    fn read(
        &self,
        area: u32,
        packet: u64,
        len: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Context>, UstError> {
        buffer.resize(len as usize, 0);
        self.file.read_at(self.header.packet_offset(area, packet), buffer)?;
        let Ok(context) = self.header.check_packet(buffer, packet) else { return Ok(None) };
        if self.config().mode == Mode::Overwrite && !self.dead {
            let size = u64::from(self.config().sub_buffer);
            let now = self.state(area)?.pos / size;
            if now >= packet + u64::from(self.config().sub_buffers) - 1 {
                return Ok(None);
            }
        }
        Ok(Some(context))
    }

    /// Makes what was read a packet of its own, from where the last one ended.
    fn hand_out<E: From<UstError>>(
        &mut self,
        area: u32,
        mut context: Context,
        open: Option<(u64, u64)>,
        buffer: &mut [u8],
        sink: &mut dyn FnMut(Taken<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let reader = &mut self.areas[area as usize];
        let end = match open {
            Some((written, until)) => {
                context.end = until;
                context.discarded = reader.discarded;
                written
            }
            None => context.content_bits / 8,
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
        if reader.within > 0 {
            let clock = &self.header.config().clock;
            let passed = reader.until.saturating_sub(context.begin);
            context.monotonic =
                context.monotonic.saturating_add(nanoseconds(passed, clock.frequency));
            context.begin = reader.until;
        }
        // Numbers of packets as they are handed out: one more for each, and one more
        // for each that was overwritten.
        context.packet = reader.handed_out + reader.overwritten_packets;
        reader.handed_out += 1;
        let len = CONTEXT_END as u64 + (end - begin);
        (context.content_bits, context.packet_bits) = (8 * len, 8 * len);
        context.end = context.end.max(context.begin);
        let head = context.encode(&self.header.config().uuid);
        let start = (begin as usize) - CONTEXT_END;
        let Some(packet) = buffer.get_mut(start..end as usize) else { return Ok(()) };
        packet[..CONTEXT_END].copy_from_slice(&head);
        sink(Taken { area, context, packet })
    }
}

/// So many ticks in nanoseconds.
pub fn nanoseconds(ticks: u64, frequency: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(frequency.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

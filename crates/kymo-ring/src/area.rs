//! Ordering: how an event, and a new packet, come into an area.
//!
//! Everything is decided and made ready outside: the place (`pos`), the time, the bytes. Then a
//! [`Discipline`] commits it, or reports that another writer was faster or that the thread was
//! interrupted, and the caller starts over. Nothing is ever reserved without being committed.

use crate::clock::Clock;
use crate::layout::{CONTEXT_END, Context, HEADROOM, MAX_SUB_BUFFERS, Mode, SLACK};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The memory is not there yet, is being made, is there, cannot be had.
#[cfg(not(loom))]
pub(crate) const EMPTY: u32 = 0;
pub(crate) const BUSY: u32 = 1;
pub(crate) const READY: u32 = 2;

/// Bits of time in a compact header.
const TIME_BITS: u32 = 27;
/// Event numbers from here on are written after the header word.
const WIDE: u32 = 29;
const EXTENDED: u32 = 30;
/// The most that headers, context of the event and slack take.
const MAX_AROUND: u64 = 32;

/// The header of an area, as it lies in the file.
#[repr(C, align(64))]
pub(crate) struct AreaHead {
    /// Bytes produced since ever. Stored by a commit alone, after everything before it.
    pub(crate) pos: AtomicU64,
    pub(crate) count: AtomicU64,
    pub(crate) epoch: AtomicU64,
    pub(crate) last: AtomicU64,
    pub(crate) state: AtomicU32,
    pub(crate) lock: AtomicU32,
    /// The thread that makes the memory.
    pub(crate) provider: AtomicU32,
    pub(crate) _line0: [u32; 5],
    pub(crate) discarded: AtomicU64,
    pub(crate) too_large: AtomicU64,
    pub(crate) _line1: [u64; 6],
    /// The reader's.
    pub(crate) taken: [AtomicU8; MAX_SUB_BUFFERS as usize],
    pub(crate) _line3: [u64; 8],
}

/// Properties that all areas of a ring share.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) mode: Mode,
    pub(crate) sub_buffer: u64,
    pub(crate) sub_buffers: u64,
    /// Bytes of all sub-buffers of an area: a power of two.
    pub(crate) area_size: u64,
    pub(crate) stream: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) clock: Clock,
    pub(crate) frequency: u64,
}

/// An area: its header and its sub-buffers.
#[derive(Clone, Copy)]
pub(crate) struct Area<'a> {
    pub(crate) head: &'a AreaHead,
    pub(crate) data: Data<'a>,
    /// For the packet context.
    pub(crate) cpu: i32,
}

/// The bytes of an area's sub-buffers.
#[cfg(not(loom))]
#[derive(Clone, Copy)]
pub(crate) struct Data<'a> {
    pub(crate) base: *mut u8,
    pub(crate) _memory: std::marker::PhantomData<&'a ()>,
}

/// The bytes of an area's sub-buffers, watched by loom.
#[cfg(loom)]
#[derive(Clone, Copy)]
pub(crate) struct Data<'a> {
    pub(crate) words: &'a [loom::cell::UnsafeCell<u64>],
}

/// Event to be committed.
pub(crate) struct Commit<'r> {
    /// `pos` when place and time were decided.
    pub(crate) expected: u64,
    pub(crate) next_pos: u64,
    pub(crate) next_count: u64,
    pub(crate) time: u64,
    /// Offset of the event in the area's sub-buffers.
    pub(crate) at: u64,
    /// The first eight bytes of the event.
    pub(crate) first: u64,
    /// Rest of the event, rounded up to eight bytes.
    pub(crate) rest: &'r [u8],
}

/// A new packet: the end of the context of the old one, and the whole of the new one.
pub(crate) struct SubBufferSwitch {
    pub(crate) expected: u64,
    pub(crate) next_pos: u64,
    pub(crate) count: u64,
    pub(crate) time: u64,
    /// Offset of the old packet's `timestamp_end`; the new packet's if there is no old one.
    pub(crate) close_at: u64,
    pub(crate) close: [u8; 32],
    pub(crate) open_at: u64,
    pub(crate) open: [u8; CONTEXT_END],
}

/// Exclusion between writers of an area, and the atomic commit of what they have written.
pub(crate) trait Discipline {
    /// `false`: another writer has written, or the thread was interrupted.
    fn commit(&self, area: Area<'_>, commit: &Commit<'_>) -> bool;
    /// `false`: another writer has written, or the thread was interrupted.
    fn publish_switch(&self, area: Area<'_>, switch: &SubBufferSwitch) -> bool;
}

/// Outcome of one try to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Try {
    Written,
    /// The event does not fit into the packet that `pos`, as given, lies in.
    Full(u64),
    Interrupted,
}

/// Outcome of a try to start a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SwitchOutcome {
    Begun,
    /// The reader has not taken the packet that lies there.
    NoRoom,
    Interrupted,
}

impl Area<'_> {
    /// Tries to write an event of `len` bytes that begin at `record[HEADROOM]`, with SLACK bytes
    /// behind them.
    #[inline(always)]
    pub(crate) fn event(
        self,
        shape: &Shape,
        discipline: &impl Discipline,
        id: u32,
        tid: u32,
        record: &mut [u8],
        len: usize,
    ) -> Try {
        // Pairs with nothing: a discipline compares `pos` again when it commits.
        let pos = self.head.pos.load(Ordering::Relaxed);
        // A counter may be read out of order; no event is older than the one before it.
        let time = shape.clock.now().max(self.head.last.load(Ordering::Relaxed));
        let offset = pos & (shape.sub_buffer - 1);
        let rounded = len.next_multiple_of(SLACK) as u64;
        if offset == 0 || offset + rounded + MAX_AROUND >= shape.sub_buffer {
            return Try::Full(pos);
        }
        let epoch = time >> TIME_BITS;
        let known = self.head.epoch.load(Ordering::Relaxed) == epoch;
        let (first, behind) = head_words(id, tid, time, known, record);
        let words = (len + behind).div_ceil(8);
        let (from, to) = (HEADROOM - behind, HEADROOM - behind + words * 8);
        debug_assert!(to <= record.len());
        // SAFETY: callers have room for HEADROOM, `len` and SLACK bytes, and rounding up adds less than SLACK.
        let rest = unsafe { record.get_unchecked(from..to) };
        let commit = Commit {
            expected: pos,
            next_pos: pos + 8 + (len + behind) as u64,
            next_count: self.head.count.load(Ordering::Relaxed) + 1,
            time,
            at: pos & (shape.area_size - 1),
            first,
            rest,
        };
        if !discipline.commit(self, &commit) {
            return Try::Interrupted;
        }
        if !known {
            // Late or lost stores do no harm: an epoch that is not that of the next event only
            // makes that event tell its time in full.
            self.head.epoch.store(epoch, Ordering::Relaxed);
        }
        Try::Written
    }

    /// Writes an event whose payload `fill` makes in its place; `None` if it does not want it.
    #[cfg(not(loom))]
    pub(crate) fn in_place(
        self,
        shape: &Shape,
        held: &Held<'_>,
        id: u32,
        tid: u32,
        len: usize,
        fill: &mut impl FnMut(&mut [u8]) -> bool,
    ) -> Option<Try> {
        let pos = self.head.pos.load(Ordering::Relaxed);
        let time = shape.clock.now().max(self.head.last.load(Ordering::Relaxed));
        let offset = pos & (shape.sub_buffer - 1);
        let rounded = len.next_multiple_of(SLACK) as u64;
        if offset == 0 || offset + rounded + MAX_AROUND >= shape.sub_buffer {
            return Some(Try::Full(pos));
        }
        let at = pos & (shape.area_size - 1);
        let mut rest = [0; HEADROOM];
        let (first, behind) = head_words(id, tid, time, false, &mut rest);
        // SAFETY: the place was checked to lie within the sub-buffer, no reader reads beyond `pos`,
        // and the holder of the area is the only writer.
        let payload = unsafe {
            let start = self.data.base.add(at as usize + 8 + behind);
            std::slice::from_raw_parts_mut(start, len)
        };
        if !fill(payload) {
            return None;
        }
        self.data.put(at, &first.to_le_bytes());
        self.data.put(at + 8, &rest[HEADROOM - behind..]);
        let count = self.head.count.load(Ordering::Relaxed) + 1;
        held.publish(time, pos + (8 + behind + len) as u64, count);
        self.head.epoch.store(time >> TIME_BITS, Ordering::Relaxed);
        Some(Try::Written)
    }

    /// Ends the packet that `pos` lies in and begins the next, unless another writer has done so.
    #[cold]
    pub(crate) fn switch_sub_buffer(
        self,
        shape: &Shape,
        discipline: &impl Discipline,
        pos: u64,
    ) -> SwitchOutcome {
        let head = self.head;
        let count = head.count.load(Ordering::Relaxed);
        let last = head.last.load(Ordering::Relaxed);
        let (size, buffers) = (shape.sub_buffer, shape.sub_buffers);
        let next = if pos == 0 { 0 } else { pos / size + 1 };
        let index = next % buffers;
        let overwritten = match shape.mode {
            Mode::Discard => {
                // Pairs with the reader, who writes it after it has copied the packet.
                let taken = head.taken[index as usize].load(Ordering::Acquire);
                if taken != (next / buffers) as u8 {
                    return SwitchOutcome::NoRoom;
                }
                0
            }
            // All events before the oldest packet that will be left. That one is closed, or
            // the one that is being closed now.
            Mode::Overwrite if next >= buffers => {
                self.data.word((next + 1) % buffers * size + BEFORE)
            }
            Mode::Overwrite => 0,
        };
        let (begin, monotonic, error_ns) = shape.clock.anchor(shape.frequency);
        let discarded = head.discarded.load(Ordering::Relaxed);
        let open = Context {
            stream: shape.stream,
            packet: next,
            begin,
            end: begin,
            content_bits: CONTEXT_END as u64 * 8,
            packet_bits: size * 8,
            discarded,
            before: count,
            overwritten,
            monotonic,
            error_ns,
            cpu: self.cpu,
        };
        let open_at = index * size;
        let (close_at, end, content) = if pos == 0 {
            (open_at, begin, CONTEXT_END as u64)
        } else {
            (pos / size % buffers * size, last, pos % size)
        };
        let mut close = [0; 32];
        for (i, word) in [end, content * 8, size * 8, discarded].iter().enumerate() {
            close[8 * i..8 * i + 8].copy_from_slice(&word.to_le_bytes());
        }
        let switch = SubBufferSwitch {
            expected: pos,
            next_pos: next * size + CONTEXT_END as u64,
            count,
            time: begin,
            close_at: close_at + END,
            close,
            open_at,
            open: open.encode(&shape.uuid),
        };
        if discipline.publish_switch(self, &switch) {
            SwitchOutcome::Begun
        } else {
            SwitchOutcome::Interrupted
        }
    }

    /// Whether the number of packets that wait to be taken reaches the reader's wake-up threshold:
    /// a quarter of the room. For the writer that has just started a packet.
    #[cfg(not(loom))]
    pub(crate) fn is_filled(self, shape: &Shape) -> bool {
        let open = self.head.pos.load(Ordering::Relaxed) / shape.sub_buffer;
        let oldest = open.checked_sub((shape.sub_buffers / 4).max(1));
        let Some(oldest) = oldest.filter(|_| shape.mode == Mode::Discard) else { return false };
        // Pairs with nothing: a writer that finds it not yet taken wakes a reader without effect.
        let taken = &self.head.taken[(oldest % shape.sub_buffers) as usize];
        taken.load(Ordering::Relaxed) == (oldest / shape.sub_buffers) as u8
    }

    /// Counts an event that is not written.
    #[cold]
    pub(crate) fn discard(self, too_large: bool) {
        if too_large {
            self.head.too_large.fetch_add(1, Ordering::Relaxed);
        }
        self.head.discarded.fetch_add(1, Ordering::Relaxed);
    }
}

/// Places in the packet context.
const END: u64 = 40;
const BEFORE: u64 = 72;

/// The first eight bytes of an event, and how many bytes before the payload were written
/// for the rest of its header.
#[inline(always)]
fn head_words(id: u32, tid: u32, time: u64, known: bool, record: &mut [u8]) -> (u64, usize) {
    if known && id < WIDE {
        return (u64::from(id | (time << 5) as u32) | u64::from(tid) << 32, 0);
    }
    long_head(id, tid, time, known, record)
}

/// [`head_words`] of headers that do not fit into eight bytes. Kept out of line, so that the common
/// case has the registers.
#[inline(never)]
fn long_head(id: u32, tid: u32, time: u64, known: bool, record: &mut [u8]) -> (u64, usize) {
    if known && id <= u32::from(u16::MAX) {
        let upper = (tid >> 16) as u16;
        record[HEADROOM - 2..HEADROOM].copy_from_slice(&upper.to_le_bytes());
        let word = u64::from(WIDE | (time << 5) as u32);
        return (word | u64::from(id) << 32 | u64::from(tid) << 48, 2);
    }
    // A byte with the tag, the number, the time: three of its bytes are in the first word.
    record[HEADROOM - 9..HEADROOM - 4].copy_from_slice(&time.to_le_bytes()[3..]);
    record[HEADROOM - 4..HEADROOM].copy_from_slice(&tid.to_le_bytes());
    (u64::from(EXTENDED) | u64::from(id) << 8 | time << 40, 9)
}

/// Exclusive access to an area by its lock, for which no writer waits.
pub(crate) struct Held<'a> {
    pub(crate) head: &'a AreaHead,
}

impl<'a> Held<'a> {
    /// Takes the area if it is free.
    pub(crate) fn take(head: &'a AreaHead, tid: u32) -> Option<Self> {
        // Pairs with the release in `drop`: what the last holder wrote is seen.
        let free = head.lock.compare_exchange(0, tid.max(1), Ordering::Acquire, Ordering::Relaxed);
        // Not `then_some`: a value made and dropped would free a lock that another writer holds.
        free.is_ok().then(|| Self { head })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.head.lock.store(0, Ordering::Release);
    }
}

impl Held<'_> {
    /// Pairs with the reader, who reads `pos` before it copies.
    pub(crate) fn publish(&self, time: u64, pos: u64, count: u64) {
        self.head.last.store(time, Ordering::Relaxed);
        self.head.count.store(count, Ordering::Relaxed);
        self.head.pos.store(pos, Ordering::Release);
    }
}

impl Discipline for Held<'_> {
    fn commit(&self, area: Area<'_>, commit: &Commit<'_>) -> bool {
        area.data.put(commit.at, &commit.first.to_le_bytes());
        area.data.put(commit.at + 8, commit.rest);
        self.publish(commit.time, commit.next_pos, commit.next_count);
        true
    }

    fn publish_switch(&self, area: Area<'_>, switch: &SubBufferSwitch) -> bool {
        area.data.put(switch.close_at, &switch.close);
        area.data.put(switch.open_at, &switch.open);
        self.publish(switch.time, switch.next_pos, switch.count);
        true
    }
}

#[cfg(not(loom))]
impl Data<'_> {
    /// Copies bytes, whose end the caller has checked against the area.
    pub(crate) fn put(self, at: u64, bytes: &[u8]) {
        // SAFETY: `Area::event` and `switch_sub_buffer` place everything within the area, which the
        // memory given to the ring holds; the bytes are not yet committed, so that no reader reads
        // them, and the discipline sees to it that no other writer writes them.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at as usize), bytes.len());
        }
    }

    fn word(self, at: u64) -> u64 {
        // SAFETY: as above; the word lies in the context of a packet that is complete.
        u64::from_le(unsafe { self.base.add(at as usize).cast::<u64>().read_unaligned() })
    }
}

#[cfg(loom)]
impl Data<'_> {
    pub(crate) fn put(self, at: u64, bytes: &[u8]) {
        for (i, word) in bytes.chunks(8).enumerate() {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            // SAFETY: loom checks that no other thread reads or writes at the same time.
            self.words[at as usize / 8 + i]
                .with_mut(|p| unsafe { p.write(u64::from_le_bytes(padded)) });
        }
    }

    pub(crate) fn word(self, at: u64) -> u64 {
        // SAFETY: loom checks that no other thread writes at the same time.
        self.words[at as usize / 8].with(|p| unsafe { p.read() })
    }
}

/// A restartable sequence on a CPU.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
pub(crate) struct OnCpu {
    pub(crate) rseq: crate::rseq::Rseq,
    pub(crate) cpu: u32,
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
impl Discipline for OnCpu {
    #[inline(always)]
    fn commit(&self, area: Area<'_>, commit: &Commit<'_>) -> bool {
        let next = crate::rseq::pair(commit.next_pos, commit.next_count);
        // SAFETY: the header is aligned to 64 bytes; `Area::event` placed the event, with its last
        // word rounded up, before the end of the sub-buffer; no reader reads beyond `pos`.
        unsafe {
            self.rseq.commit(
                self.cpu,
                std::ptr::from_ref(area.head).cast_mut().cast(),
                commit.expected,
                next,
                commit.time,
                area.data.base.add(commit.at as usize),
                commit.first,
                commit.rest.as_ptr(),
                commit.rest.len() / 8,
            )
        }
    }

    fn publish_switch(&self, area: Area<'_>, switch: &SubBufferSwitch) -> bool {
        use crate::rseq::Piece;
        let piece = |at: u64, bytes: &[u8]| Piece {
            to: area.data.base.wrapping_add(at as usize),
            from: bytes.as_ptr(),
            words: bytes.len() / 8,
        };
        let pieces = [piece(switch.close_at, &switch.close), piece(switch.open_at, &switch.open)];
        let next = crate::rseq::pair(switch.next_pos, switch.count);
        // SAFETY: the header is aligned to 64 bytes; both pieces lie at the start of sub-buffers and are
        // whole words. The fields of the old context count only once the packet is closed.
        unsafe {
            self.rseq.commit_two(
                self.cpu,
                std::ptr::from_ref(area.head).cast_mut().cast(),
                switch.expected,
                next,
                switch.time,
                &pieces,
            )
        }
    }
}

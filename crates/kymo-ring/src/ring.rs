//! Memory and sharing: a ring over memory it is given, which area a thread writes into,
//! and by which discipline.

use std::marker::PhantomData;
use std::time::Duration;

use crate::area::{
    Area, AreaHead, BUSY, Data, Discipline, EMPTY, Held, READY, Shape, SwitchOutcome, Try,
};
use crate::clock::{Clock, ClockKind};
use crate::layout::{
    AREA_HEADER, Config, FAILED, HEADROOM, Header, LayoutError, MAX_UNWRITTEN, SLACK,
};
use crate::rseq::Rseq;
use crate::sync::Ordering;

/// After that number of interruptions an event goes to an area without a CPU.
const TRIES: u32 = 100;

/// Outcome of writing an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is in the ring.
    Written,
    /// It is not, and has been counted.
    Discarded,
}

/// Makes memory usable: a context, offset in the ring, length. Says whether it is.
pub type Provide = fn(usize, u64, u64) -> bool;

/// Callback, with a context, for a ring of which a quarter of the packets wait to be taken; perhaps
/// called again with each packet until they are. Called by the writer that has filled them, even in
/// a signal handler.
pub type Filled = fn(usize);

/// Memory for a ring.
pub struct Memory<'m> {
    base: *mut u8,
    size: usize,
    /// `None`: all of it is usable.
    provide: Option<(Provide, usize)>,
    /// Callback for a ring that fills up.
    filled: Option<(Filled, usize)>,
    _memory: PhantomData<&'m mut [u8]>,
}

/// As much memory as lies in one cache line, aligned like one: what slices for rings
/// are made of.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct CacheLine(pub [u8; 64]);

impl<'m> Memory<'m> {
    /// Memory of the caller's; zeroed.
    pub fn from_lines(lines: &'m mut [CacheLine]) -> Self {
        lines.fill(CacheLine([0; 64]));
        let size = std::mem::size_of_val(lines);
        Self {
            base: lines.as_mut_ptr().cast(),
            size,
            provide: None,
            filled: None,
            _memory: PhantomData,
        }
    }

    /// Memory that other threads and processes may share, such as a mapped file.
    ///
    /// # Safety
    /// `base` is aligned to 64 bytes, and `size` bytes from it are valid for reads and writes
    /// for `'m`, zero, and used through rings alone. Where they lie in a file, the file is not
    /// made smaller.
    pub unsafe fn from_raw(base: *mut u8, size: usize) -> Self {
        Self { base, size, provide: None, filled: None, _memory: PhantomData }
    }

    /// The sub-buffers of an area may be touched only after `provide(context, offset, length)` has
    /// returned `true`: it is called once for each area that is used, by the writer of the first
    /// event there, even in a signal handler.
    #[must_use]
    pub fn provided_by(mut self, provide: Provide, context: usize) -> Self {
        self.provide = Some((provide, context));
        self
    }

    /// Sets the callback for a ring in discard mode that fills up.
    #[must_use]
    pub fn told_by(mut self, filled: Filled, context: usize) -> Self {
        self.filled = Some((filled, context));
        self
    }
}

/// A ring that events are written into.
pub struct Ring<'m> {
    memory: Memory<'m>,
    header: Header,
    shape: Shape,
    rseq: Option<Rseq>,
    /// The first area's header and sub-buffers, worked out once.
    heads: *mut u8,
    data: *mut u8,
    /// An area has two to the power of this bytes of sub-buffers.
    area_bits: u32,
}

// SAFETY: all that is shared lies behind atomics or is written by who holds an area, which the
// disciplines see to.
unsafe impl Send for Ring<'_> {}
// SAFETY: as above.
unsafe impl Sync for Ring<'_> {}

impl<'m> Ring<'m> {
    /// Makes a ring. `rseq` is needed for areas of CPUs; without it events go to those
    /// without.
    ///
    /// # Errors
    /// The configuration is out of limits, or the memory is too small.
    pub fn create(
        memory: Memory<'m>,
        config: Config,
        rseq: Option<Rseq>,
    ) -> Result<Self, LayoutError> {
        let clock = match config.clock.kind {
            ClockKind::Tsc => Clock::Tsc,
            ClockKind::Monotonic => Clock::Monotonic,
        };
        Self::create_with_clock(memory, config, rseq, clock)
    }

    /// As [`Ring::create`], with ticks from elsewhere.
    ///
    /// # Errors
    /// As [`Ring::create`].
    pub fn create_with_clock(
        memory: Memory<'m>,
        config: Config,
        rseq: Option<Rseq>,
        clock: Clock,
    ) -> Result<Self, LayoutError> {
        let header = Header::new(config)?;
        let (needed, found) = (header.file_size(), memory.size as u64);
        if found < needed {
            return Err(LayoutError::Short { needed, found });
        }
        let bytes = header.encode();
        let magic = Header::MAGIC;
        // SAFETY: the memory is at least a whole ring long and the ring's alone; the magic number
        // comes last, so that a reader who sees it sees the rest.
        unsafe {
            let (base, rest) = (memory.base, bytes.len() - magic.len());
            std::ptr::copy_nonoverlapping(bytes[8..].as_ptr(), base.add(8), rest);
            std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
            std::ptr::copy_nonoverlapping(magic.as_ptr(), base, magic.len());
        }
        let shape = Shape {
            mode: config.mode,
            sub_buffer: config.sub_buffer.into(),
            sub_buffers: config.sub_buffers.into(),
            area_size: header.area_size(),
            stream: config.stream,
            uuid: config.uuid,
            clock,
            frequency: config.clock.frequency,
        };
        let heads = memory.base.wrapping_add(header.area_header_offset(0) as usize);
        let data = memory.base.wrapping_add(header.area_offset(0) as usize);
        let area_bits = header.area_size().trailing_zeros();
        Ok(Self { memory, header, shape, rseq, heads, data, area_bits })
    }

    /// Header of the ring.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The longest payload an event can have.
    pub fn max_payload(&self) -> usize {
        self.shape.sub_buffer as usize - MAX_UNWRITTEN
    }

    /// Writes event number `id` of thread `tid`, whose payload of `len` bytes begins at
    /// `record[HEADROOM]`. The headroom before it is overwritten; [`SLACK`] bytes behind it are
    /// read. `record` must be as long as all that.
    ///
    /// # Panics
    /// If `record` is shorter.
    #[inline]
    pub fn write(&self, id: u32, tid: u32, record: &mut [u8], len: usize) -> WriteOutcome {
        assert!(record.len() >= HEADROOM + SLACK && record.len() - HEADROOM - SLACK >= len);
        #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
        if let Some(rseq) = self.rseq {
            let cpu = rseq.cpu();
            if cpu < self.header.config().cpu_areas {
                let on = crate::area::OnCpu { rseq, cpu };
                if self.area(cpu).event(&self.shape, &on, id, tid, record, len) == Try::Written {
                    return WriteOutcome::Written;
                }
                return self.write_again(rseq, id, tid, record, len);
            }
        }
        self.write_shared(id, tid, record, len)
    }

    /// The packet is full, or the thread was interrupted.
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri), not(loom)))]
    #[cold]
    fn write_again(
        &self,
        rseq: Rseq,
        id: u32,
        tid: u32,
        record: &mut [u8],
        len: usize,
    ) -> WriteOutcome {
        for _ in 0..TRIES {
            let cpu = rseq.cpu();
            if cpu >= self.header.config().cpu_areas {
                break;
            }
            let (area, on) = (self.area(cpu), crate::area::OnCpu { rseq, cpu });
            match area.event(&self.shape, &on, id, tid, record, len) {
                Try::Written => return WriteOutcome::Written,
                Try::Interrupted => {}
                Try::Full(pos) => {
                    let too_large = len > self.max_payload();
                    let provided = self.provided(cpu, tid);
                    if !too_large && provided == BUSY {
                        break;
                    }
                    if too_large || provided != READY {
                        area.discard(too_large);
                        return WriteOutcome::Discarded;
                    }
                    match self.switch_sub_buffer(area, &on, pos) {
                        SwitchOutcome::Begun | SwitchOutcome::Interrupted => {}
                        SwitchOutcome::NoRoom => {
                            area.discard(false);
                            return WriteOutcome::Discarded;
                        }
                    }
                }
            }
        }
        self.write_shared(id, tid, record, len)
    }

    /// Starts a packet, and returns the callback for a ring that fills up.
    fn switch_sub_buffer(
        &self,
        area: Area<'_>,
        discipline: &impl Discipline,
        pos: u64,
    ) -> SwitchOutcome {
        let turned = area.switch_sub_buffer(&self.shape, discipline, pos);
        if let (SwitchOutcome::Begun, Some((filled, context))) = (turned, self.memory.filled) {
            if area.is_filled(&self.shape) {
                filled(context);
            }
        }
        turned
    }

    /// Into an area without a CPU.
    fn write_shared(&self, id: u32, tid: u32, record: &mut [u8], len: usize) -> WriteOutcome {
        self.in_shared(tid, len, |area, held| area.event(&self.shape, held, id, tid, record, len))
    }

    /// Writes an event of any length up to [`Ring::max_payload`] where it belongs: `fill` is
    /// given `len` bytes of the ring, and returns whether the event is kept. For payloads that
    /// are too long to be made elsewhere first.
    pub fn write_in_place(
        &self,
        id: u32,
        tid: u32,
        len: usize,
        mut fill: impl FnMut(&mut [u8]) -> bool,
    ) -> Option<WriteOutcome> {
        let mut kept = true;
        let outcome = self.in_shared(tid, len, |area, held| {
            kept = true;
            match area.in_place(&self.shape, held, id, tid, len, &mut fill) {
                Some(done) => done,
                None => {
                    kept = false;
                    Try::Written
                }
            }
        });
        kept.then_some(outcome)
    }

    /// Runs `write` in the first free area without a CPU, in a new packet if need be.
    fn in_shared(
        &self,
        tid: u32,
        len: usize,
        mut write: impl FnMut(Area<'_>, &Held<'_>) -> Try,
    ) -> WriteOutcome {
        let config = self.header.config();
        let (first, shared) = (config.cpu_areas, config.shared_areas);
        for i in 0..shared {
            let index = first + (tid.wrapping_add(i)) % shared;
            let area = self.area(index);
            let Some(held) = Held::take(area.head, tid) else { continue };
            if self.provided(index, tid) == BUSY {
                continue;
            }
            let mut done = write(area, &held);
            if let Try::Full(pos) = done {
                if len <= self.max_payload()
                    && self.provided(index, tid) == READY
                    && self.switch_sub_buffer(area, &held, pos) == SwitchOutcome::Begun
                {
                    done = write(area, &held);
                }
            }
            if done == Try::Written {
                return WriteOutcome::Written;
            }
            area.discard(len > self.max_payload());
            return WriteOutcome::Discarded;
        }
        // All are taken, or there are none: any area may count it.
        self.area(if shared > 0 { first } else { 0 }).discard(false);
        WriteOutcome::Discarded
    }

    #[inline(always)]
    fn area(&self, index: u32) -> Area<'_> {
        let config = self.header.config();
        let (head, data) = (index as usize * AREA_HEADER, (index as usize) << self.area_bits);
        let cpu = if index < config.cpu_areas { index as i32 } else { -1 };
        // SAFETY: callers name an area of this ring; the memory is as long as the header says, aligned to 64
        // bytes, and holds zeros or what rings have written, which all is a valid header.
        unsafe {
            Area {
                head: &*self.heads.add(head).cast::<AreaHead>(),
                data: Data { base: self.data.add(data), _memory: PhantomData },
                cpu,
            }
        }
    }

    /// Makes sure of the memory of an area: `READY`, `FAILED`, or `BUSY` while it is in progress:
    /// in code that this signal handler has interrupted, or a thread that takes too long. This is
    /// the one place where a writer may wait, and once for each area.
    fn provided(&self, index: u32, tid: u32) -> u32 {
        let head = self.area(index).head;
        let known = head.state.load(Ordering::Acquire);
        if known == READY {
            return READY;
        }
        let order = Ordering::Acquire;
        if head.state.compare_exchange(EMPTY, BUSY, order, order).is_err() {
            return head.wait_for_memory(tid);
        }
        head.provider.store(tid, Ordering::Relaxed);
        let there = self.memory.provide.is_none_or(|(provide, context)| {
            provide(context, self.header.area_offset(index), self.header.area_size())
        });
        let now = if there { READY } else { FAILED };
        head.state.store(now, Ordering::Release);
        now
    }
}

impl AreaHead {
    fn wait_for_memory(&self, tid: u32) -> u32 {
        for _ in 0..500 {
            let state = self.state.load(Ordering::Acquire);
            if state != BUSY || self.provider.load(Ordering::Relaxed) == tid {
                return state;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        BUSY
    }
}

//! The channels of this process: a ring for each slot in use, with the filters of its
//! events. Made by the first event after a session has switched it on, perhaps in a
//! signal handler: no allocation but fresh mappings.

use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use kymo_ring::{
    Clock, ClockFacts, Config, Generations, Header, Memory, Mode, OfGeneration, Ring, Rseq,
};
use kymo_ust::{ChannelConfigView, Filter, InRange, MAX_CHANNEL_CONFIG, RuleView, SLOTS};

use crate::guard::{self, RingOf};
use crate::process::{self, ProgramDirectory};
use crate::site::Site;
use crate::sys::{self, Fd, Path};

/// A ring and what its events must pass.
pub(crate) struct Channel {
    generation: u8,
    /// `None`: it failed for good.
    pub(crate) ring: Option<Ring<'static>>,
    /// For each event, what it must pass.
    tests: *const Test,
    arena: *mut u8,
    arena_used: AtomicU32,
    path: Path,
    mapping: (*mut u8, usize),
}

/// Filter of an event: in a form that is quick to evaluate, for most filters, else the offset of
/// the linked filter in the channel's arena.
#[repr(C)]
struct Test {
    /// PASS, NEVER, RANGE, or an offset in the arena.
    kind: AtomicU32,
    at: AtomicU16,
    shift: AtomicU8,
    low: AtomicU64,
    span: AtomicU64,
}

/// No filter.
const PASS: u32 = 0;
/// The filter does not fit the event.
const NEVER: u32 = 1;
/// See [`InRange`].
const RANGE: u32 = 2;
/// The first offset in the arena.
const ARENA_START: u32 = 8;
/// Room for linked filters, each with its length before it.
const ARENA: usize = 512 << 10;

static CHANNELS: [Generations<Channel>; SLOTS] = [const { Generations::new() }; SLOTS];

/// Channels of earlier generations: kept for a while, since a thread may have been
/// stopped in the middle of a write.
static RETIRED: [[AtomicPtr<Channel>; KEPT]; SLOTS] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; KEPT] }; SLOTS];
const KEPT: usize = 8;
/// Number of retired channels of each slot. Generations need not be consecutive.
static RETIRED_COUNT: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

/// Ticks and CLOCK_MONOTONIC at the start, to measure the pace of ticks.
static START: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

pub(crate) fn remember_start() {
    let facts = Clock::Monotonic.facts(None);
    START[1].store(facts.monotonic, Ordering::Relaxed);
    START[0].store(Clock::Tsc.now(), Ordering::Relaxed);
}

pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

impl OfGeneration for Channel {
    #[inline(always)]
    fn generation(&self) -> u8 {
        self.generation
    }
}

impl Channel {
    #[inline(always)]
    fn test(&self, id: u32) -> &Test {
        // SAFETY: the number of tests is the capacity, which ids are below.
        unsafe { &*self.tests.add(id as usize) }
    }

    /// Whether an event is rejected by a filter that is quick to answer. The payload has slack
    /// behind it.
    #[inline(always)]
    pub(crate) fn rejects_at_once(&self, id: u32, payload: &[u8]) -> bool {
        let test = self.test(id);
        if test.kind.load(Ordering::Acquire) != RANGE {
            return false;
        }
        let range = test.range();
        let bytes = payload.get(usize::from(range.at)..).and_then(|rest| rest.first_chunk());
        bytes.is_some_and(|bytes| !range.passes(*bytes))
    }

    /// Whether an event passes its filter.
    #[inline(always)]
    pub(crate) fn passes(&self, id: u32, site: &Site, payload: &[u8]) -> Result<(), Stopped> {
        let test = self.test(id);
        match test.kind.load(Ordering::Acquire) {
            PASS => Ok(()),
            kind => self.passes_test(kind, test, site, payload),
        }
    }

    #[inline(never)]
    fn passes_test(
        &self,
        kind: u32,
        test: &Test,
        site: &Site,
        payload: &[u8],
    ) -> Result<(), Stopped> {
        let passes = match kind {
            NEVER => return Err(Stopped::Unfit),
            RANGE => {
                let range = test.range();
                let mut bytes = [0; 8];
                for (to, byte) in bytes.iter_mut().zip(payload.iter().skip(range.at.into())) {
                    *to = *byte;
                }
                range.passes(bytes)
            }
            at => {
                // SAFETY: `link` wrote a filter there, its length before it.
                let linked = unsafe {
                    let start = self.arena.add(at as usize);
                    let len = start.cast::<u32>().read_unaligned() as usize;
                    std::slice::from_raw_parts(start.add(4), len)
                };
                Filter::run_linked(linked, site.event(), payload)
            }
        };
        if passes { Ok(()) } else { Err(Stopped::Rejected) }
    }

    /// Links a filter against an event.
    fn link(&self, id: u32, site: &Site, filter: &[u8]) {
        let at = self.arena_used.load(Ordering::Relaxed) as usize;
        let mut result = (PASS, None);
        if !filter.is_empty() {
            // SAFETY: the arena's unused rest, which only the maker of the channel or the holder of the process's
            // lock, after it was made, touches.
            let room = unsafe {
                std::slice::from_raw_parts_mut(self.arena.add(at), ARENA.saturating_sub(at))
            };
            let linked = match Filter::parse(filter) {
                Ok(parsed) if room.len() > 4 => parsed.link(site.event(), &mut room[4..]),
                _ => Err(kymo_ust::FilterError::Code { at: 0 }),
            };
            result = match linked {
                Ok(len) => match InRange::of(&room[4..4 + len]) {
                    Some(range) => (RANGE, Some(range)),
                    None => {
                        room[..4].copy_from_slice(&(len as u32).to_le_bytes());
                        let end = (at + 4 + len).next_multiple_of(8) as u32;
                        self.arena_used.store(end, Ordering::Relaxed);
                        (at as u32, None)
                    }
                },
                Err(_) => (NEVER, None),
            };
        }
        self.test(id).set(result.0, result.1);
    }
}

impl Test {
    fn set(&self, kind: u32, range: Option<InRange>) {
        if let Some(range) = range {
            self.at.store(range.at, Ordering::Relaxed);
            self.shift.store(range.shift, Ordering::Relaxed);
            self.low.store(range.low, Ordering::Relaxed);
            self.span.store(range.span, Ordering::Relaxed);
        }
        // Pairs with the test of an event, which sees the range, or the filter in the arena.
        self.kind.store(kind, Ordering::Release);
    }

    #[inline(always)]
    fn range(&self) -> InRange {
        InRange {
            at: self.at.load(Ordering::Relaxed),
            shift: self.shift.load(Ordering::Relaxed),
            low: self.low.load(Ordering::Relaxed),
            span: self.span.load(Ordering::Relaxed),
        }
    }
}

/// Why an event is not written.
pub(crate) enum Stopped {
    /// Rejected by its filter.
    Rejected,
    /// Its filter uses fields that it does not have.
    Unfit,
}

/// The channel of a slot, if this generation has one already.
#[inline(always)]
pub(crate) fn known_channel(slot: usize, generation: u8) -> Option<&'static Channel> {
    CHANNELS[slot].known(generation)
}

/// The channel of a slot, made now if this generation has none yet.
#[inline(always)]
pub(crate) fn channel(slot: usize, generation: u8) -> Option<&'static Channel> {
    known_channel(slot, generation).or_else(|| make(slot, generation))
}

#[cold]
fn make(slot: usize, generation: u8) -> Option<&'static Channel> {
    let mut waits = 0;
    let wait = || {
        waits += 1;
        sys::wait_a_little();
        waits < 1000
    };
    let (make, replaced) = (|| make_alone(slot, generation), |old| retire(slot, old));
    // SAFETY: channels stay for eight more generations of their slot.
    unsafe { CHANNELS[slot].make(generation, sys::tid(), wait, make, replaced) }
}

fn make_alone(slot: usize, generation: u8) -> Option<*mut Channel> {
    let page = process::control()?.slot(slot);
    let (head, tests) = (size_of::<Channel>().next_multiple_of(64), tests_size());
    let memory = sys::anonymous(head + tests + ARENA).ok()?;
    // SAFETY: fresh memory, zeroed, large enough for all three parts.
    let channel = unsafe {
        let channel = memory.cast::<Channel>();
        channel.write(Channel {
            generation,
            ring: None,
            tests: memory.add(head).cast(),
            arena: memory.add(head + tests),
            arena_used: AtomicU32::new(ARENA_START),
            path: Path::new(),
            mapping: (std::ptr::null_mut(), 0),
        });
        &mut *channel
    };
    let made = fill(channel, slot, generation);
    page.answer(generation, made);
    page.tell_tool();
    Some(channel)
}

/// Reads the configuration, links the filters and makes the ring.
fn fill(channel: &mut Channel, slot: usize, generation: u8) -> Result<(), i32> {
    const MALFORMED: i32 = 0;
    let ProgramDirectory { user, directory, uuid, .. } = process::place().ok_or(libc::ENOENT)?;
    let page = process::control().ok_or(libc::ENOENT)?.slot(slot);
    let path = page.path();
    let path = until_nul(&path);
    let parts_up = path.split(|b| *b == b'/').any(|part| part == b"..");
    if path.is_empty() || parts_up {
        return Err(MALFORMED);
    }
    let whole = Path::new().add(user.bytes()).add(b"/").add(path);
    let buffer = sys::anonymous(MAX_CHANNEL_CONFIG)?;
    // SAFETY: fresh memory of that length, used until it is unmapped below.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, MAX_CHANNEL_CONFIG) };
    let read = sys::read_file(whole.c(), bytes).and_then(|bytes| {
        let config = ChannelConfigView::parse(bytes).map_err(|_| MALFORMED)?;
        for (id, site) in process::sites() {
            let event = site.event();
            let name = Path::new().add(event.provider.bytes()).add(b":").add(event.name.bytes());
            if let Some(rule) = config.rule_for(name.bytes(), event.level as u8) {
                channel.link(id, site, rule.filter);
            }
        }
        Ok((config.overwrite, config.sub_buffer, config.sub_buffers))
    });
    // SAFETY: nothing points there any more.
    unsafe { sys::unmap(buffer, MAX_CHANNEL_CONFIG) };
    let (overwrite, sub_buffer, sub_buffers) = read?;
    let rseq = Rseq::find();
    let cpus = cpu_count();
    let config = Config {
        mode: if overwrite { Mode::Overwrite } else { Mode::Discard },
        cpu_areas: if rseq.is_some() { cpus } else { 0 },
        shared_areas: if rseq.is_some() { 2 } else { cpus + 6 },
        sub_buffer,
        sub_buffers,
        stream: slot as u32,
        uuid: *uuid,
        clock: clock(),
    };
    process::code_maps::leave();
    channel.path = Path::new().add(directory.bytes()).add(b"/ring-").number(slot as u64);
    channel.path =
        std::mem::replace(&mut channel.path, Path::new()).add(b"-").number(generation.into());
    make_ring(channel, config, rseq, slot)
}

fn make_ring(
    channel: &mut Channel,
    config: Config,
    rseq: Option<Rseq>,
    slot: usize,
) -> Result<(), i32> {
    let header = Header::new(config).map_err(|_| 0)?;
    let size = usize::try_from(header.file_size()).map_err(|_| libc::EFBIG)?;
    let file = Fd::open(channel.path.c(), libc::O_CREAT | libc::O_EXCL | libc::O_RDWR)?;
    let mapped = file
        .set_size(header.file_size())
        .and_then(|()| file.allocate(0, header.data_offset()))
        .and_then(|()| file.map(size, std::ptr::null_mut()));
    let base = match mapped {
        Ok(base) => base,
        Err(errno) => {
            sys::unlink(channel.path.c());
            return Err(errno);
        }
    };
    channel.mapping = (base, size);
    guard::watch(base, size, Some(RingOf { slot, generation: channel.generation }));
    // SAFETY: a mapping of that size, aligned to a page, zero, of a file that only this process and
    // the tool touch; what others cut off is replaced by zeros. Areas are used only after
    // `provide`.
    let memory = unsafe { Memory::from_raw(base, size) };
    let context = std::ptr::from_ref::<Channel>(channel).expose_provenance();
    let memory = memory.provided_by(provide, context).told_by(filled, slot);
    channel.ring = Some(Ring::create(memory, config, rseq).map_err(|_| 0)?);
    Ok(())
}

/// Makes sure of the memory of an area. The file is opened again by its name: programs that
/// close all files they do not know would make a kept one dangerous.
fn provide(channel: usize, offset: u64, size: u64) -> bool {
    let channel = std::ptr::with_exposed_provenance::<Channel>(channel);
    // SAFETY: the channel whose ring calls this; channels stay.
    let (path, (base, _)) = unsafe { (&(*channel).path, (*channel).mapping) };
    let there = Fd::open(path.c(), libc::O_RDWR).and_then(|file| file.allocate(offset, size));
    if there.is_ok() {
        // So that no event has to wait for a page fault. That it fails does not matter.
        sys::populate(base.wrapping_add(offset as usize), size as usize);
    }
    there.is_ok()
}

/// A ring fills up.
fn filled(slot: usize) {
    if let Some(control) = process::control() {
        control.slot(slot).tell_tool();
    }
}

/// Keeps the channels of the last generations; those before go.
fn retire(slot: usize, old: *mut Channel) {
    // One thread at a time makes channels of a slot.
    let count = RETIRED_COUNT[slot].fetch_add(1, Ordering::Relaxed);
    let place = &RETIRED[slot][count as usize % KEPT];
    let oldest = place.swap(old, Ordering::AcqRel);
    // SAFETY: retired eight generations of this slot ago.
    if let Some(channel) = unsafe { oldest.as_ref() } {
        let (base, size) = channel.mapping;
        if !base.is_null() {
            guard::forget(base);
            // SAFETY: its ring has not been written into since eight sessions came and went.
            unsafe { sys::unmap(base, size) };
        }
        let head = size_of::<Channel>().next_multiple_of(64);
        let size = head + tests_size() + ARENA;
        // SAFETY: as above; the memory that `make_alone` got.
        unsafe { sys::unmap(oldest.cast(), size) };
    }
}

/// In a forked child: its parent's channels are not its own.
pub(crate) fn forget_all() {
    for channels in &CHANNELS {
        // The mappings stay: the child may have been forked in the middle of a write.
        channels.forget();
    }
}

/// Links the filter of an event that came after the channel was made.
pub(crate) fn link_late(slot: usize, id: u32, site: &Site, rule: RuleView<'_>) {
    if let Some(channel) = CHANNELS[slot].last() {
        channel.link(id, site, rule.filter);
    }
}

fn clock() -> ClockFacts {
    let mut buffer = [0; 32];
    let source = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = sys::read_file(source, &mut buffer).unwrap_or_default();
    let start = [&START[0], &START[1]].map(|word| word.load(Ordering::Relaxed));
    Clock::best(source.trim_ascii()).facts(Some((start[0], start[1])))
}

/// Bytes of the tests of all events that a channel can meet.
fn tests_size() -> usize {
    process::place().map_or(0, |place| place.capacity as usize) * size_of::<Test>()
}

pub(crate) fn cpu_count() -> u32 {
    // CPUs that may come count as well: numbers go up to the last.
    let mut buffer = [0; 64];
    let text = sys::read_file(c"/sys/devices/system/cpu/possible", &mut buffer);
    let last = text.unwrap_or_default().trim_ascii().rsplit(|b| !b.is_ascii_digit()).next();
    let last = last.and_then(|l| std::str::from_utf8(l).ok()?.parse::<u32>().ok());
    last.map_or(1, |last| last + 1).min(kymo_ring::MAX_AREAS - 6)
}

//! Models, run by `RUSTFLAGS="--cfg loom" cargo test -p kymo-ring --lib loom` (and, with at most
//! three preemptions, by `cargo xtask test`): every interleaving of a few writers and a reader,
//! with the code that ships. A CPU is modelled as what it is to the ring: threads take turns on
//! it, and one that is interrupted before its commit may have copied bytes and has done nothing
//! else.
#![allow(clippy::unwrap_used, reason = "tests")]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::area::{
    Area, AreaHead, Commit, Data, Discipline, Held, Shape, SubBufferSwitch, SwitchOutcome, Try,
};
use crate::clock::Clock;
use crate::futex_word::FutexWord;
use crate::generations::{Generations, OfGeneration};
use crate::layout::{CONTEXT_END, HEADROOM, Mode, SLACK};

/// A "sub-buffer" for the model: the context, and room for two events of 16 bytes.
const SIZE: u64 = 256;

struct Shared {
    head: AreaHead,
    words: Vec<UnsafeCell<u64>>,
    cpu: Mutex<()>,
}

impl Shared {
    fn new() -> Arc<Self> {
        let words = (0..2 * SIZE / 8).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { head: AreaHead::new(), words, cpu: Mutex::new(()) })
    }

    fn area(&self) -> Area<'_> {
        Area { head: &self.head, data: Data { words: &self.words }, cpu: 0 }
    }
}

fn shape(mode: Mode) -> Shape {
    Shape {
        mode,
        sub_buffer: SIZE,
        sub_buffers: 2,
        area_size: 2 * SIZE,
        stream: 0,
        uuid: [0; 16],
        clock: Clock::Custom(|| 1),
        frequency: 1,
    }
}

/// Model of a restartable sequence: whole, alone on its CPU, or not committed.
struct ModelCpu<'a> {
    shared: &'a Shared,
    /// Interrupted after the copy, once.
    interrupt: std::cell::Cell<bool>,
}

impl Discipline for ModelCpu<'_> {
    fn commit(&self, area: Area<'_>, c: &Commit<'_>) -> bool {
        let _guard = self.shared.cpu.lock().unwrap();
        if area.head.pos.load(Ordering::Relaxed) != c.expected {
            return false;
        }
        area.data.put(c.at, &c.first.to_le_bytes());
        area.data.put(c.at + 8, c.rest);
        if self.interrupt.take() {
            return false;
        }
        Held::of(area.head).publish(c.time, c.next_pos, c.next_count);
        true
    }

    fn publish_switch(&self, area: Area<'_>, t: &SubBufferSwitch) -> bool {
        let _guard = self.shared.cpu.lock().unwrap();
        if area.head.pos.load(Ordering::Relaxed) != t.expected {
            return false;
        }
        area.data.put(t.close_at, &t.close);
        area.data.put(t.open_at, &t.open);
        Held::of(area.head).publish(t.time, t.next_pos, t.count);
        true
    }
}

fn write(shape: &Shape, area: Area<'_>, by: &impl Discipline, value: u64) -> bool {
    let mut record = [0; HEADROOM + 8 + SLACK];
    record[HEADROOM..HEADROOM + 8].copy_from_slice(&value.to_le_bytes());
    loop {
        match area.event(shape, by, 1, value as u32, &mut record, 8) {
            Try::Written => return true,
            Try::Interrupted => {}
            Try::Full(pos) => match area.switch_sub_buffer(shape, by, pos) {
                SwitchOutcome::Begun | SwitchOutcome::Interrupted => {}
                SwitchOutcome::NoRoom => {
                    area.discard(false);
                    return false;
                }
            },
        }
    }
}

/// The values of the events that are committed, as a reader of the file sees them.
fn read(shared: &Shared) -> Vec<u64> {
    let pos = shared.head.pos.load(Ordering::Acquire);
    if pos == 0 {
        return Vec::new();
    }
    assert!(pos < SIZE, "the models stay in the first packet");
    let events = (pos - CONTEXT_END as u64) / 16;
    let word = |at: u64| shared.area().data.word(at);
    (0..events)
        .map(|i| {
            let at = CONTEXT_END as u64 + 16 * i;
            let value = word(at + 8);
            assert_eq!(word(at) >> 32, value, "a torn event");
            value
        })
        .collect()
}

#[test]
fn writers_on_one_cpu_lose_nothing_and_a_reader_sees_whole_events() {
    loom::model(|| {
        let shared = Shared::new();
        let writers: Vec<_> = (1..=2u64)
            .map(|value| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let interrupt = std::cell::Cell::new(value == 1);
                    let by = ModelCpu { shared: &shared, interrupt };
                    assert!(write(&shape(Mode::Overwrite), shared.area(), &by, value));
                })
            })
            .collect();
        let early = read(&shared);
        for writer in writers {
            writer.join().unwrap();
        }
        let all = read(&shared);
        assert!(all.starts_with(&early));
        let mut sorted = all;
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 2]);
    });
}

#[test]
fn who_finds_an_area_held_does_not_wait() {
    loom::model(|| {
        let shared = Shared::new();
        let writers: Vec<_> = (1..=2u64)
            .map(|value| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let held = Held::take(&shared.head, value as u32);
                    held.is_some_and(|held| {
                        write(&shape(Mode::Overwrite), shared.area(), &held, value)
                    })
                })
            })
            .collect();
        let early = read(&shared);
        let wrote: Vec<_> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        let all = read(&shared);
        assert!(all.starts_with(&early));
        assert_eq!(all.len(), wrote.iter().filter(|w| **w).count());
        assert!(wrote.contains(&true));
    });
}

#[test]
fn a_packet_is_entered_only_after_the_reader_has_copied_it() {
    loom::model(|| {
        let shared = Shared::new();
        let shape = shape(Mode::Discard);
        // Fill both packets: (256 - 104 - 40) / 16 = 7 events fit into each.
        let held = Held::take(&shared.head, 1).unwrap();
        let mut written = 0;
        while write(&shape, shared.area(), &held, written + 1) {
            written += 1;
        }
        drop(held);
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let held = Held::take(&shared.head, 2).unwrap();
                write(&shape, shared.area(), &held, 99)
            })
        };
        // The reader copies the first packet, then says so: loom finds a write meanwhile.
        let first: Vec<_> = (0..SIZE / 8).map(|i| shared.area().data.word(8 * i)).collect();
        assert_eq!(first[CONTEXT_END / 8 + 1], 1);
        shared.head.taken()[0].store(1, Ordering::Release);
        let more = writer.join().unwrap();
        let discarded = if more { 1 } else { 2 };
        assert_eq!(shared.head.discarded(), discarded);
    });
}

#[test]
fn a_reader_that_sleeps_is_woken_or_has_seen_what_was_written() {
    loom::model(|| {
        let shared = Arc::new((FutexWord::new(), AtomicU64::new(0)));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    shared.0.is_wanted()
                })
            })
            .collect();
        shared.0.arm();
        let seen = shared.1.load(Ordering::Relaxed);
        let sleeps = shared.0.is_armed();
        let woken = writers.into_iter().filter_map(|w| w.join().unwrap().then_some(())).count();
        // Asleep with something unseen, it is woken; and never by two.
        assert!(!sleeps || seen == 2 || woken == 1, "{seen} seen, woken by {woken}");
        assert!(woken <= 1);
    });
}

/// State that a hit site reads: the control page, and the channels of its slot.
struct Slot {
    /// Words that the tool writes before it enables the slot; loom finds a read that comes too
    /// early.
    order: [UnsafeCell<u8>; 2],
    generation: AtomicU8,
    enabled: AtomicU64,
    channels: Generations<Made>,
    makes: AtomicU32,
}

struct Made {
    generation: u8,
    order: UnsafeCell<u8>,
}

impl OfGeneration for Made {
    fn generation(&self) -> u8 {
        self.generation
    }
}

impl Slot {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            order: [UnsafeCell::new(0), UnsafeCell::new(0)],
            generation: AtomicU8::new(0),
            enabled: AtomicU64::new(0),
            channels: Generations::new(),
            makes: AtomicU32::new(0),
        })
    }

    /// As the tool does it: the order, the generation, the enable byte.
    fn switch_on(&self, generation: u8) {
        // SAFETY: loom checks that no other thread reads it yet.
        self.order[usize::from(generation) - 1].with_mut(|o| unsafe { o.write(generation) });
        self.generation.store(generation, Ordering::Release);
        self.enabled.store(1, Ordering::Release);
    }

    /// As a site does it; the order that its event was written under, if it was.
    fn hit(&self, thread: u32) -> Option<u8> {
        if self.enabled.load(Ordering::Acquire) == 0 {
            return None;
        }
        let generation = self.generation.load(Ordering::Acquire);
        let make = || {
            self.makes.fetch_add(1, Ordering::Relaxed);
            // SAFETY: loom checks that no other thread writes at the same time.
            let order = self.order[usize::from(generation) - 1].with(|o| unsafe { o.read() });
            // Stays, as channels do while they may be in use.
            Some(Box::into_raw(Box::new(Made { generation, order: UnsafeCell::new(order) })))
        };
        let wait = || {
            thread::yield_now();
            true
        };
        // SAFETY: what is made stays.
        let made = unsafe { self.channels.make(generation, thread, wait, make, |_| {}) };
        let made = self.channels.known(generation).or(made)?;
        assert_eq!(made.generation, generation);
        // SAFETY: loom checks that its maker has been seen.
        Some(made.order.with(|o| unsafe { o.read() }))
    }
}

#[test]
fn sites_run_while_they_are_switched_on() {
    loom::model(|| {
        let slot = Slot::new();
        let sites: Vec<_> = (1..=2)
            .map(|thread| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || slot.hit(thread))
            })
            .collect();
        slot.switch_on(1);
        let seen: Vec<_> = sites.into_iter().map(|site| site.join().unwrap()).collect();
        // Written under the order, or not at all, and the channel made once.
        assert!(seen.iter().all(|order| matches!(order, None | Some(1))));
        let makes = slot.makes.load(Ordering::Relaxed);
        assert_eq!(makes, u32::from(seen.contains(&Some(1))));
        assert_eq!(slot.hit(3), Some(1));
        assert_eq!(slot.makes.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn sites_run_while_a_slot_changes_session() {
    loom::model(|| {
        let slot = Slot::new();
        slot.switch_on(1);
        let site = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || [slot.hit(1), slot.hit(1)])
        };
        // Off, and on for the next; what a site was about to write may still arrive.
        slot.enabled.store(0, Ordering::Release);
        slot.switch_on(2);
        let seen = site.join().unwrap();
        let order: Vec<u8> = seen.into_iter().flatten().collect();
        assert!(order.is_sorted() && order.iter().all(|o| matches!(o, 1 | 2)), "{order:?}");
        assert_eq!(slot.hit(2), Some(2));
        assert!(slot.makes.load(Ordering::Relaxed) <= 2);
    });
}

impl AreaHead {
    fn new() -> Self {
        let word = || AtomicU64::new(0);
        Self {
            pos: word(),
            count: word(),
            epoch: word(),
            last: word(),
            state: AtomicU32::new(0),
            lock: AtomicU32::new(0),
            provider: AtomicU32::new(0),
            _line0: [0; 5],
            discarded: word(),
            too_large: word(),
            _line1: [0; 6],
            taken: std::array::from_fn(|_| AtomicU8::new(0)),
            _line3: [0; 8],
        }
    }

    fn taken(&self) -> &[AtomicU8] {
        &self.taken
    }

    fn discarded(&self) -> u64 {
        self.discarded.load(Ordering::Relaxed)
    }
}

impl<'a> Held<'a> {
    /// For a model that excludes others by other means; never dropped.
    fn of(head: &'a AreaHead) -> std::mem::ManuallyDrop<Self> {
        std::mem::ManuallyDrop::new(Held { head })
    }
}

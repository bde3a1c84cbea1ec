//! The ring over plain memory: what is written is read, in both modes, with every kind
//! of event header, at every boundary. Small enough for miri.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::cell::Cell;
use std::cell::RefCell;

use common::{Event, RingBytes, drain, state};
use kymo_ring::{
    CacheLine, Clock, ClockFacts, ClockKind, Config, HEADROOM, MAX_UNWRITTEN, Memory, Mode, Ring,
    SLACK, WriteOutcome,
};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(1000) };
    static STEP: Cell<u64> = const { Cell::new(3) };
}

fn now() -> u64 {
    NOW.set(NOW.get() + STEP.get());
    NOW.get()
}

fn config(mode: Mode, sub_buffers: u32) -> Config {
    let clock = ClockFacts {
        kind: ClockKind::Monotonic,
        error_ns: 0,
        frequency: 1_000_000_000,
        ticks: 0,
        monotonic: 0,
        realtime: 0,
    };
    let uuid = *b"0123456789abcdef";
    let (cpu_areas, shared_areas) = (0, 2);
    Config { mode, cpu_areas, shared_areas, sub_buffer: 4096, sub_buffers, stream: 5, uuid, clock }
}

/// A slice that a ring writes into, and a reader reads between the writes.
struct Slice(RefCell<*mut u8>);

impl RingBytes for Slice {
    fn read(&self, offset: u64, bytes: &mut [u8]) {
        // SAFETY: the tests read what the ring's header says, and do not write meanwhile.
        unsafe {
            let from = self.0.borrow().add(offset as usize);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }

    fn take(&self, offset: u64, value: u8) {
        // SAFETY: as above.
        unsafe { self.0.borrow_mut().add(offset as usize).write(value) };
    }
}

/// A ring in memory of its own.
fn with_ring(mode: Mode, sub_buffers: u32, test: impl FnOnce(&Ring<'_>, &Slice)) {
    let mut lines = vec![CacheLine([0; 64]); (8192 + 2 * 4096 * sub_buffers as usize) / 64];
    let base: *mut u8 = lines.as_mut_ptr().cast();
    let size = lines.len() * 64;
    // SAFETY: the vector lives until the end of this function, and only the ring and the
    // reader's copies touch it.
    let memory = unsafe { Memory::from_raw(base, size) };
    let config = config(mode, sub_buffers);
    let ring = Ring::create_with_clock(memory, config, None, Clock::Custom(now)).unwrap();
    test(&ring, &Slice(RefCell::new(base)));
}

/// A payload of `len` bytes (at least 4) that contains its length and differs from others.
fn payload(len: usize, seed: u32) -> Vec<u8> {
    let mut bytes = (len as u32).to_le_bytes().to_vec();
    bytes.extend((4..len).map(|i| (i as u32).wrapping_mul(31).wrapping_add(seed) as u8));
    bytes
}

fn length(payload: &[u8]) -> usize {
    u32::from_le_bytes(payload[..4].try_into().unwrap()) as usize
}

fn write(ring: &Ring<'_>, id: u32, tid: u32, payload: &[u8]) -> WriteOutcome {
    let mut record = vec![0xaa; HEADROOM];
    record.extend_from_slice(payload);
    record.extend_from_slice(&[0xbb; SLACK]);
    ring.write(id, tid, &mut record, payload.len())
}

#[test]
fn every_length_and_header_comes_back() {
    let lengths = if cfg!(miri) { 40 } else { 3000 };
    with_ring(Mode::Discard, 2, |ring, slice| {
        let (mut due, mut got, mut next) = (Vec::new(), Vec::new(), [0; 2]);
        for (i, len) in (4..lengths).enumerate() {
            // Compact, wide and extended numbers, and gaps in time longer than 27 bits.
            let id = [0, 28, 29, 65535, 65536, 7][i % 6];
            STEP.set(if i % 11 == 0 { (1 << 27) + 5 } else { 3 });
            let (tid, payload) = (0x1234_5678 & !1, payload(len, i as u32));
            assert_eq!(write(ring, id, tid, &payload), WriteOutcome::Written);
            due.push((id, tid, payload));
            drain(slice, ring.header(), 0, &mut next[0], false, length, &mut got);
        }
        drain(slice, ring.header(), 0, &mut next[0], true, length, &mut got);
        let got: Vec<_> = got.into_iter().map(|e: Event| (e.id, e.tid, e.payload)).collect();
        assert!(got == due);
    });
}

#[test]
fn time_is_reported_in_full_after_a_gap_of_any_length() {
    with_ring(Mode::Discard, 4, |ring, slice| {
        let mut times = Vec::new();
        for gap in [1, 1 << 26, 1 << 27, (1 << 27) + 1, 1 << 28, 3 << 27, 1 << 40, 7, 1] {
            STEP.set(gap);
            write(ring, 1, 0, &payload(4, 0));
            times.push(NOW.get());
        }
        let mut got = Vec::new();
        drain(slice, ring.header(), 0, &mut 0, true, length, &mut got);
        // The first event needs a packet, whose anchor took a tick of its own.
        assert_eq!(got.iter().map(|e| e.time).collect::<Vec<_>>(), times);
    });
}

#[test]
fn a_full_ring_discards_and_counts_and_goes_on_when_it_is_read() {
    with_ring(Mode::Discard, 2, |ring, slice| {
        let event = payload(1000, 1);
        let written =
            (0..20).filter(|_| write(ring, 1, 0, &event) == WriteOutcome::Written).count();
        // Three fit into a packet; there are two.
        assert_eq!(written, 6);
        let mut got = Vec::new();
        let mut next = 0;
        let contexts = drain(slice, ring.header(), 0, &mut next, false, length, &mut got);
        assert_eq!((contexts.len(), got.len()), (1, 3));
        assert_eq!(write(ring, 1, 0, &event), WriteOutcome::Written);
        let contexts = drain(slice, ring.header(), 0, &mut next, true, length, &mut got);
        assert_eq!(got.len(), 7);
        let counts: Vec<_> = contexts.iter().map(|c| (c.packet, c.before, c.discarded)).collect();
        assert_eq!(counts, [(1, 3, 14), (2, 6, 14)]);
        assert_eq!(state(slice, ring.header(), 0).discarded, 14);
    });
}

#[test]
fn overwriting_keeps_the_newest_and_counts_the_others() {
    with_ring(Mode::Overwrite, 4, |ring, slice| {
        for i in 0..100 {
            assert_eq!(write(ring, 1, 0, &payload(1000, i)), WriteOutcome::Written);
        }
        let state = state(slice, ring.header(), 0);
        let newest = state.pos / 4096;
        assert_eq!((state.count, newest), (100, 33));
        let mut got = Vec::new();
        let contexts = drain(slice, ring.header(), 0, &mut (newest - 3), true, length, &mut got);
        let due: Vec<_> = (90..100).map(|i| payload(1000, i)).collect();
        assert_eq!(got.iter().map(|e| e.payload.clone()).collect::<Vec<_>>(), due);
        let last = contexts.last().unwrap();
        assert_eq!((last.before, last.overwritten), (99, 90));
    });
}

#[test]
fn the_largest_event_fits_and_a_larger_one_is_counted() {
    with_ring(Mode::Discard, 4, |ring, slice| {
        assert_eq!(ring.max_payload(), 4096 - MAX_UNWRITTEN);
        let largest = payload(ring.max_payload(), 9);
        let larger = payload(ring.max_payload() + 1, 9);
        assert_eq!(write(ring, 65536, 0, &largest), WriteOutcome::Written);
        assert_eq!(write(ring, 65536, 0, &larger), WriteOutcome::Discarded);
        let fill = |bytes: &[u8]| {
            let bytes = bytes.to_vec();
            move |to: &mut [u8]| {
                to.copy_from_slice(&bytes);
                true
            }
        };
        let in_place = ring.write_in_place(3, 0, largest.len(), fill(&largest));
        assert_eq!(in_place, Some(WriteOutcome::Written));
        let in_place = ring.write_in_place(3, 0, larger.len(), fill(&larger));
        assert_eq!(in_place, Some(WriteOutcome::Discarded));
        assert_eq!(ring.write_in_place(3, 0, 100, |_| false), None);
        let state = state(slice, ring.header(), 0);
        assert_eq!((state.count, state.discarded, state.too_large), (2, 2, 2));
        let mut got = Vec::new();
        drain(slice, ring.header(), 0, &mut 0, true, length, &mut got);
        assert!(got.iter().all(|e| e.payload == largest) && got.len() == 2);
    });
}

#[test]
fn an_area_that_is_held_sends_writers_to_the_next() {
    with_ring(Mode::Discard, 2, |ring, slice| {
        // As a signal handler that interrupts a writer: nested while the area is held.
        let inner = payload(8, 1);
        let outer = ring.write_in_place(1, 0, 8, |to| {
            assert_eq!(write(ring, 2, 0, &inner), WriteOutcome::Written);
            let third = ring.write_in_place(4, 0, 4, |_| {
                // Both are held now.
                assert_eq!(write(ring, 3, 0, &inner), WriteOutcome::Discarded);
                false
            });
            assert_eq!(third, None);
            to.copy_from_slice(&payload(8, 2));
            true
        });
        assert_eq!(outer, Some(WriteOutcome::Written));
        let counts = |area| {
            let state = state(slice, ring.header(), area);
            (state.count, state.discarded)
        };
        assert_eq!((counts(0), counts(1)), ((1, 1), (1, 0)));
    });
}

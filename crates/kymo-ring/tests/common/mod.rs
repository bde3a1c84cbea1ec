//! A reader for tests that works as the tool does, by copying, and takes every event
//! apart: number, time, thread, payload.

use kymo_ring::{AREA_HEADER, AreaState, CONTEXT_END, Context, Header, Mode};

/// An event as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: u32,
    pub(crate) time: u64,
    pub(crate) tid: u32,
    pub(crate) payload: Vec<u8>,
}

/// Bytes of a ring, from a file or from memory.
pub(crate) trait RingBytes {
    fn read(&self, offset: u64, bytes: &mut [u8]);
    fn take(&self, offset: u64, value: u8);
}

/// Length of a test's payload, from its first bytes.
pub(crate) type Length = fn(&[u8]) -> usize;

pub(crate) fn state(source: &impl RingBytes, header: &Header, area: u32) -> AreaState {
    let mut bytes = [0; AREA_HEADER];
    source.read(header.area_header_offset(area), &mut bytes);
    AreaState::parse(&bytes).expect("whole header")
}

/// Takes the closed packets of an area from number `next` on; all of it if `end`.
pub(crate) fn drain(
    source: &impl RingBytes,
    header: &Header,
    area: u32,
    next: &mut u64,
    end: bool,
    length: Length,
    events: &mut Vec<Event>,
) -> Vec<Context> {
    let state = state(source, header, area);
    let size = u64::from(header.config().sub_buffer);
    let mut contexts = Vec::new();
    let mut packet = vec![0; size as usize];
    while state.pos != 0 && *next <= state.pos / size {
        let open = *next == state.pos / size;
        if open && !end {
            break;
        }
        source.read(header.packet_offset(area, *next), &mut packet);
        let mut context = header.check_packet(&packet, *next).expect("a packet");
        if open {
            context.end = state.last;
            context.content_bits = state.pos % size * 8;
            context.discarded = state.discarded;
        }
        assert!(context.content_bits <= size * 8, "{context:?}");
        let content = &packet[..context.content_bits as usize / 8];
        walk(content, &context, length, events);
        contexts.push(context);
        if header.config().mode == Mode::Discard {
            source.take(header.taken_offset(area, *next), header.taken_value(*next));
        }
        *next += 1;
    }
    contexts
}

fn walk(content: &[u8], context: &Context, length: Length, events: &mut Vec<Event>) {
    let half = |at: usize| u32::from_le_bytes(content[at..at + 4].try_into().expect("4 bytes"));
    let mut time = context.begin;
    let mut at = CONTEXT_END;
    while at < content.len() {
        let word = half(at);
        let low = u64::from(word >> 5);
        let mut compact = time & !((1 << 27) - 1) | low;
        if compact < time {
            compact += 1 << 27;
        }
        let (id, now, head) = match word & 31 {
            29 => (half(at + 4) & 0xffff, compact, 6),
            30 => {
                assert_eq!(word & 0xff, 30);
                (half(at + 1), u64::from(half(at + 5)) | u64::from(half(at + 9)) << 32, 13)
            }
            id => (id, compact, 4),
        };
        assert!(now >= time && now <= context.end, "{time} {now} {context:?}");
        time = now;
        let tid = half(at + head);
        let start = at + head + 4;
        let len = length(&content[start..]);
        let payload = content[start..start + len].to_vec();
        events.push(Event { id, time, tid, payload });
        at = start + len;
    }
    assert_eq!(at, content.len(), "an event reaches over the end of {context:?}");
}

//! Ring pages built by hand, of every record kind, in both byte orders and
//! word sizes; and pages that lie.
#![allow(clippy::unwrap_used, reason = "tests")]

use kymo_format::ring::{Missed, PageLayout, RingError};
use kymo_model::Endian;

const ENDS: [Endian; 2] = [Endian::Little, Endian::Big];

/// A page as the kernel fills it.
struct Builder {
    endian: Endian,
    long: u8,
    time: u64,
    data: Vec<u8>,
}

impl Builder {
    fn new(endian: Endian, long: u8, time: u64) -> Builder {
        Builder { endian, long, time, data: Vec::new() }
    }

    fn u32(&mut self, v: u32) -> &mut Self {
        match self.endian {
            Endian::Little => self.data.extend(v.to_le_bytes()),
            Endian::Big => self.data.extend(v.to_be_bytes()),
        }
        self
    }

    fn head(&mut self, kind: u32, delta: u32) -> &mut Self {
        match self.endian {
            Endian::Little => self.u32(kind | delta << 5),
            Endian::Big => self.u32(kind << 27 | delta),
        }
    }

    fn bytes(&mut self, b: &[u8]) -> &mut Self {
        self.data.extend_from_slice(b);
        self
    }

    fn word(&self, v: u64, size: u8) -> Vec<u8> {
        let mut b = v.to_le_bytes()[..usize::from(size)].to_vec();
        if self.endian == Endian::Big {
            b.reverse();
        }
        b
    }

    /// The page, its commit word with `flags` and `tail` behind the events.
    fn page(&self, flags: u64, tail: &[u8]) -> Vec<u8> {
        let mut page = self.word(self.time, 8);
        page.extend(self.word(self.data.len() as u64 | flags, self.long));
        page.extend_from_slice(&self.data);
        page.extend_from_slice(tail);
        page.resize(page.len().max(4096), 0);
        page
    }
}

/// `(time, payload)` of each event, and the error that ended the walk.
fn walk(layout: &PageLayout, page: &[u8]) -> (Vec<(u64, Vec<u8>)>, Option<RingError>) {
    let mut out = Vec::new();
    for event in layout.page(page).unwrap().events() {
        match event {
            Ok(e) => {
                assert_eq!(&page[e.offset..e.offset + e.payload.len()], e.payload);
                out.push((e.time, e.payload.to_vec()));
            }
            Err(e) => return (out, Some(e)),
        }
    }
    (out, None)
}

#[test]
fn every_record_kind_in_each_endianness_and_word_size() {
    for endian in ENDS {
        for long in [4, 8] {
            let layout = PageLayout::new(endian, long, 4096).unwrap();
            let mut b = Builder::new(endian, long, 1_000);
            b.head(1, 0).bytes(b"aaaa");
            b.head(28, 5).bytes(&[7; 112]);
            // 120 bytes of payload: the length word counts itself.
            b.head(0, 2).u32(124).bytes(&[8; 120]);
            b.head(30, 3).u32(1);
            b.head(2, 1).bytes(b"bbbbbbbb");
            // A discarded event of 8 bytes whose time counts, one whose 1 does not.
            b.head(29, 10).u32(8).bytes(&[0; 4]);
            b.head(29, 1).u32(4);
            b.head(1, 0).bytes(b"cccc");
            b.head(31, 77).u32(2);
            b.head(1, 1).bytes(b"dddd");
            b.head(29, 0);
            b.bytes(&[0xff; 40]);
            let extended = 1_007 + (1 << 27) + 3;
            let expected: Vec<(u64, Vec<u8>)> = vec![
                (1_000, b"aaaa".to_vec()),
                (1_005, vec![7; 112]),
                (1_007, vec![8; 120]),
                (extended + 1, b"bbbbbbbb".to_vec()),
                (extended + 11, b"cccc".to_vec()),
                ((2 << 27) + 78, b"dddd".to_vec()),
            ];
            assert_eq!(walk(&layout, &b.page(0, &[])), (expected, None), "{endian:?} {long}");
        }
    }
}

#[test]
fn a_time_of_its_own_keeps_the_top_bits_of_the_time_before() {
    let layout = PageLayout::new(Endian::Little, 8, 4096).unwrap();
    let top = 0xf8u64 << 56;
    let mut b = Builder::new(Endian::Little, 8, top | 5);
    b.head(31, 9).u32(0).head(1, 0).bytes(b"aaaa");
    assert_eq!(walk(&layout, &b.page(0, &[])).0[0].0, top | 9);
    // The 59 bits ran over since.
    let base = 1u64 << 59;
    let mut b = Builder::new(Endian::Little, 8, base | 500);
    b.head(31, 9).u32(0).head(1, 0).bytes(b"aaaa");
    assert_eq!(walk(&layout, &b.page(0, &[])).0[0].0, 2 * base + 9);
}

#[test]
fn lost_events_are_reported_with_their_number_where_it_stands() {
    for endian in ENDS {
        for long in [4, 8] {
            let layout = PageLayout::new(endian, long, 4096).unwrap();
            let mut b = Builder::new(endian, long, 1);
            b.head(1, 0).bytes(b"aaaa");
            let count = b.word(4711, long);
            let missed = |page: Vec<u8>| layout.page(&page).unwrap().missed;
            assert_eq!(missed(b.page(0, &count)), None);
            assert_eq!(missed(b.page(1 << 31, &count)), Some(Missed::Unknown));
            assert_eq!(missed(b.page(3 << 30, &count)), Some(Missed::Count(4711)));
            // The page ends where the number should be.
            let full = b.page(3 << 30, &[]);
            let cut = &full[..8 + usize::from(long) + 8];
            assert_eq!(layout.page(cut).unwrap().missed, Some(Missed::Unknown));
        }
    }
}

#[test]
fn lengths_that_lie_are_errors_with_their_place() {
    let layout = PageLayout::new(Endian::Little, 8, 4096).unwrap();
    let short = layout.page(&[0; 15]).unwrap_err();
    assert_eq!(short, RingError::ShortPage { have: 15, need: 16 });
    let mut page = vec![0; 4096];
    page[8..12].copy_from_slice(&4081u32.to_le_bytes());
    let e = layout.page(&page).unwrap_err();
    assert_eq!(e, RingError::Commit { commit: 4081, room: 4080 });
    assert_eq!(e.to_string(), "page commits 4081 bytes, 4080 fit");

    // A good event, then one that reaches over the end.
    type Lie = fn(&mut Builder);
    let lies: [(Lie, u8, usize, usize); 5] = [
        (|b| _ = b.head(3, 0).bytes(&[0; 8]), 3, 16, 12),
        (|b| _ = b.head(0, 0).u32(9).bytes(&[0; 4]), 0, 13, 12),
        (|b| _ = b.head(0, 0).u32(0).bytes(&[0; 4]), 0, 4, 12),
        (|b| _ = b.head(29, 2).u32(u32::MAX), 29, 0x1_0000_0003, 8),
        (|b| _ = b.head(30, 2), 30, 8, 4),
    ];
    for (lie, kind, needed, left) in lies {
        let mut b = Builder::new(Endian::Little, 8, 1);
        b.head(1, 0).bytes(b"good");
        lie(&mut b);
        let (events, error) = walk(&layout, &b.page(0, &[]));
        assert_eq!(events, [(1, b"good".to_vec())]);
        assert_eq!(error, Some(RingError::Record { offset: 24, kind, needed, left }));
    }
}

#[test]
fn a_walk_can_be_resumed() {
    let layout = PageLayout::new(Endian::Little, 8, 4096).unwrap();
    let mut b = Builder::new(Endian::Little, 8, 10);
    for i in 0..5 {
        b.head(1, 3).bytes(&[i; 4]);
    }
    let bytes = b.page(0, &[]);
    let page = layout.page(&bytes).unwrap();
    let all: Vec<_> = page.events().map(Result::unwrap).collect();
    let (mut at, mut time, mut again) = (page.start, page.timestamp, Vec::new());
    loop {
        let mut walk = page.events().resume(at, time);
        let Some(event) = walk.next() else { break };
        again.push(event.unwrap());
        (at, time) = (walk.position(), walk.time());
    }
    assert_eq!(again, all);
    assert_eq!(all.len(), 5);
}

#[test]
fn the_layout_is_what_header_page_states() {
    let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                \tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n\
                \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                \tfield: char data;\toffset:12;\tsize:65524;\tsigned:1;\n";
    let layout = PageLayout::parse(text, Endian::Big).unwrap();
    assert_eq!(layout, PageLayout::new(Endian::Big, 4, 65536).unwrap());
    assert_eq!(layout.with_page_size(8192).unwrap().page_size, 8192);
    for (from, to, error) in [
        ("timestamp", "stamp", RingError::Header("timestamp")),
        ("size:4;", "size:3;", RingError::Header("commit")),
        ("size:65524", "size:4294967295", RingError::Header("data")),
        ("size:65524", "size:33554432", RingError::PageSize(33_554_444)),
        ("offset:8;\tsize:4", "offset:70000;\tsize:4", RingError::Header("commit")),
        ("offset:12;", "offset:x;", RingError::Header("data")),
    ] {
        let text = text.replace(from, to);
        assert_eq!(PageLayout::parse(&text, Endian::Big), Err(error), "{from} → {to}");
    }
}

#[test]
fn no_page_makes_the_walk_run_away() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut events = 0;
    for round in 0..2_000 {
        let mut page: Vec<u8> = (0..512).flat_map(|_| random().to_le_bytes()).collect();
        if round % 2 == 0 {
            // Mostly small records, so that walks get far.
            for b in page[16..].chunks_mut(4) {
                b[0] = b[0] & 0xe3 | 1;
            }
        }
        page[8..16].copy_from_slice(&(random() % 4081).to_le_bytes());
        for endian in ENDS {
            let layout = PageLayout::new(endian, 8, 4096).unwrap();
            let Ok(page) = layout.page(&page) else { continue };
            let n = page.events().count();
            assert!(n <= 4096 / 4, "{n} events in a page");
            events += n;
        }
    }
    assert!(events > 50_000, "{events}");
}

//! Metadata and streams that are cut, changed or lie: no panic, no run-away, no
//! memory beyond what is there, and what is whole is delivered.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use kymo_files::RecordingBytes;
use kymo_files::ctf::Metadata;
use kymo_files::ctf::read::{
    Ctf, CtfReadError, CtfReadStats, CtfSelect, CtfTraceBytes, FieldInfo, Group, Visit,
};
use kymo_model::Endian;

use crate::made::{self, Form, Header, Packing};

const FORM: Form =
    Form { endian: Endian::Little, packing: Packing::Bytes, header: Header::Compact };

/// Counts what it is shown.
#[derive(Default)]
struct Count(u64);

impl Visit for Count {
    fn int(&mut self, _: &FieldInfo, _: u64) {
        self.0 += 1;
    }

    fn open(&mut self, _: &FieldInfo, _: Group, _: u64) {
        self.0 += 1;
    }
}

/// The trace of a directory, out of memory.
fn in_memory(directory: &Path) -> Result<Ctf, CtfReadError> {
    let bytes = |path: &Path| RecordingBytes::from_memory(std::fs::read(path).unwrap());
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| !path.ends_with("metadata")).collect();
    files.sort();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let streams = files.iter().filter(|path| std::fs::metadata(path).unwrap().len() > 0);
    let trace = CtfTraceBytes {
        name: String::new(),
        metadata: bytes(&directory.join("metadata")),
        streams: streams.map(|path| (name(path), bytes(path))).collect(),
    };
    Ctf::from_bytes("trace", [trace])
}

/// Reads all there is, and does not hang; out of memory the same comes. `None`: it cannot be
/// opened.
#[track_caller]
fn read(directory: &Path) -> Option<(u64, CtfReadStats, Vec<String>)> {
    let files = Ctf::open(directory).ok().map(read_all);
    if files.is_some() {
        let memory = in_memory(directory).ok().map(read_all);
        assert_eq!(format!("{memory:?}"), format!("{files:?}"));
    }
    files
}

#[track_caller]
fn read_all(ctf: Ctf) -> (u64, CtfReadStats, Vec<String>) {
    let start = Instant::now();
    let (mut reader, mut seen) = (ctf.reader(), Count::default());
    let stats = ctf
        .for_each(&CtfSelect::default(), &mut |e| {
            // What ends early has been shown up to there.
            let _ = reader.see(e.class, &e.body, &mut seen);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    (stats.events, stats, ctf.damage().to_vec())
}

/// A trace with this text and these bytes of a stream.
fn trace(text: &str, stream: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("metadata"), text).unwrap();
    std::fs::write(dir.path().join("stream"), stream).unwrap();
    dir
}

fn made() -> (String, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    made::write(FORM, &path);
    let text = std::fs::read_to_string(path.join("metadata")).unwrap();
    (text, std::fs::read(path.join("stream_0")).unwrap())
}

#[test]
fn a_stream_cut_anywhere_delivers_what_is_whole() {
    let (text, stream) = made();
    let dir = trace(&text, &stream);
    let (all, stats, _) = read(dir.path()).unwrap();
    assert_eq!((all, stats.damaged_places), (138, 0));
    let mut least = all;
    let file = dir.path().join("stream");
    for n in (0..stream.len()).rev().step_by(7) {
        std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(n as u64).unwrap();
        let (events, stats, _) = read(dir.path()).unwrap();
        assert!(events <= least, "cut at {n}: {events} before {least}");
        // Only padding, or whole packets, can be cut without a word.
        let told = stats.damaged_places > 0;
        assert!(told || events.is_multiple_of(23), "cut at {n}: nothing said");
        least = events;
    }
    assert_eq!(least, 0);
}

#[test]
fn of_a_packet_that_is_cut_all_whole_events_are_delivered() {
    let events: Vec<_> = (0..30).map(|n| ([0, 1, 2, 3][n as usize % 4], n, 1000 * n)).collect();
    for form in Form::all().filter(|f| f.packing != Packing::Bits) {
        // Where each event ends: the content size that a packet of that number of events states.
        let packet = |n: usize| {
            let mut stream = made::Stream::new(form, 0);
            stream.packet(&events[..n]);
            stream.bytes
        };
        let content = |bytes: &[u8]| {
            let word = bytes[48..56].try_into().unwrap();
            let bits = if form.endian == Endian::Big {
                u64::from_be_bytes(word)
            } else {
                u64::from_le_bytes(word)
            };
            bits / 8
        };
        let ends: Vec<u64> = (1..=events.len()).map(|n| content(&packet(n))).collect();
        let dir = trace(&form.metadata().to_tsdl(), &packet(events.len()));
        let file = std::fs::File::options().write(true).open(dir.path().join("stream")).unwrap();
        for n in (ends[0]..ends[29]).rev().step_by(5) {
            file.set_len(n).unwrap();
            let (found, stats, _) = read(dir.path()).unwrap();
            let whole = ends.iter().filter(|e| **e <= n).count() as u64;
            assert_eq!(found, whole, "{form:?} cut at {n} of {ends:?}");
            assert!(stats.damaged_places > 0, "{form:?} cut at {n}");
        }
    }
}

#[test]
fn no_changed_byte_of_a_stream_makes_reading_fail_badly() {
    let (text, stream) = made();
    let dir = trace(&text, &stream);
    let file = dir.path().join("stream");
    for at in (0..stream.len().min(3000)).step_by(2) {
        let mut bytes = stream.clone();
        bytes[at] = [bytes[at] ^ 0x80, bytes[at] ^ 1, 0xff, 0][at / 2 % 4];
        std::fs::write(&file, bytes).unwrap();
        let (events, stats, _) = read(dir.path()).unwrap();
        assert!(events < 2000, "byte {at}: {events} events");
        assert_eq!(events, stats.events);
    }
}

#[test]
fn no_changed_byte_of_the_metadata_makes_reading_fail_badly() {
    let (text, stream) = made();
    let dir = trace(&text, &stream);
    let file = dir.path().join("metadata");
    let mut opened = 0;
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = [b'9', b'{', b';', bytes[at] ^ 1, b'"', b'/'][at % 6];
        let start = Instant::now();
        let _ = Metadata::parse(&String::from_utf8_lossy(&bytes));
        assert!(start.elapsed() < Duration::from_secs(60), "byte {at}");
        if at % 5 == 0 {
            std::fs::write(&file, bytes).unwrap();
            opened += usize::from(read(dir.path()).is_some());
        }
    }
    assert!(opened > 200, "{opened}");
    for n in (0..text.len()).step_by(37) {
        std::fs::write(&file, &text[..n]).unwrap();
        if let Some((_, stats, damage)) = read(dir.path()) {
            let whole = n > text.trim_end().len() || stats.damaged_places > 0;
            assert!(whole || !damage.is_empty() || stats.events == 138, "cut at {n}");
        }
    }
}

/// A trace whose only event has these fields.
fn of_fields(before: &str, fields: &str) -> String {
    format!(
        "/* CTF 1.8 */ typealias integer {{ size = 8; align = 8; }} := u8;
         typealias integer {{ size = 64; align = 8; }} := u64; {before}
         trace {{ major = 1; minor = 8; byte_order = le; }};
         stream {{ id = 0; event.header := struct {{ u8 id; }}; }};
         event {{ id = 0; name = \"e\"; fields := struct {{ {fields} }}; }};"
    )
}

#[test]
fn rows_without_end_or_size_end() {
    let mut bytes = vec![0];
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.resize(100, 7);
    for (fields, told) in [
        ("u64 n; u8 a[n];", "extends beyond the end"),
        ("u64 n; struct { } a[n];", "too many elements without a size"),
        ("u64 n; u8 z; u8 a[n][n];", "extends beyond the end"),
        ("u64 n; struct { u8 none[0]; } a[n];", "too many elements without a size"),
        ("u8 a[18446744073709551615];", "extends beyond the end"),
        ("integer { size = 8; encoding = UTF8; } a[4611686018427387904];", "beyond the end"),
        ("string s;", "extends beyond the end"),
        ("struct { u8 a; } align(1048576) s;", "extends beyond the end"),
        ("enum : u8 { a = 3 } t; variant <t> { u8 a; } v;", "no option is chosen"),
    ] {
        let dir = trace(&of_fields("", fields), &bytes);
        let (events, stats, _) = read(dir.path()).unwrap();
        assert_eq!((events, stats.damaged_places), (0, 1), "{fields}");
        let what = &stats.damaged[0].what;
        assert!(what.contains(told), "{fields}: {what}");
    }
}

#[test]
fn events_without_a_size_are_not_counted_for_ever() {
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = be; };
        stream { }; event { name = \"nothing\"; };";
    let dir = trace(text, &[0; 64]);
    let (events, stats, _) = read(dir.path()).unwrap();
    assert_eq!((events, stats.damaged_places), (0, 1));
    assert!(stats.damaged[0].what.contains("takes no bits"));
}

#[test]
fn absurd_losses_add_up_to_no_small_number() {
    let text = "/* CTF 1.8 */ typealias integer { size = 64; align = 8; } := u64;
        trace { major = 1; minor = 8; byte_order = le; };
        stream { packet.context := struct {
            u64 content_size; u64 packet_size; u64 events_discarded; u64 packet_seq_num; }; };
        event { name = \"e\"; fields := struct { u64 a; }; };";
    // Packets with one event each, of these counts of lost events and sequence numbers.
    let stream = |packets: &[(u64, u64)]| -> Vec<u8> {
        let words = packets.iter().flat_map(|(lost, number)| [320, 320, *lost, *number, 7]);
        words.flat_map(u64::to_le_bytes).collect()
    };
    let dir = trace(text, &stream(&[(u64::MAX - 1, 0), (u64::MAX, u64::MAX)]));
    for number in 1..3 {
        let more = stream(&[(5, 0), (u64::MAX, u64::MAX - 9)]);
        std::fs::write(dir.path().join(format!("stream_{number}")), more).unwrap();
    }
    let (events, stats, _) = read(dir.path()).unwrap();
    assert_eq!(events, 6);
    let most = u64::MAX;
    assert_eq!((stats.lost_at_start, stats.lost, stats.lost_packets), (most, most, most));
    assert_eq!((stats.lost_places, stats.lost_packet_places), (3, 3));
}

#[test]
fn types_within_types_cost_no_more_than_their_text() {
    // Each names the one before twice: 2^40 fields.
    let mut doubled = "struct s0 { u8 a; };".to_owned();
    for n in 1..40 {
        doubled += &format!("struct s{n} {{ struct s{0} a; struct s{0} b; }};", n - 1);
    }
    let dir = trace(&of_fields(&doubled, "struct s39 x;"), &[0; 9]);
    let (_, _, damage) = read(dir.path()).unwrap();
    assert!(damage[0].contains("event e: more than 65536 fields"), "{damage:?}");
    // A chain that is too long, by braces and by names.
    let deep = "struct { ".repeat(5000);
    let dir = trace(&of_fields("", &deep), &[]);
    let (_, _, damage) = read(dir.path()).unwrap();
    assert!(damage[0].contains("more than 48 types within types"), "{damage:?}");
    let mut chain = "typedef u8 t0;".to_owned();
    for n in 1..60 {
        chain += &format!("typedef t{} t{n}[2];", n - 1);
    }
    let error = Metadata::parse(&of_fields(&chain, "t59 x;")).unwrap_err().to_string();
    assert!(error.contains("more than 48 types within types"), "{error}");
    // What names itself is not known yet.
    let error = Metadata::parse(&of_fields("", "struct me { struct me x; } y;")).unwrap_err();
    assert!(error.what.contains("no structure `me` is declared before"), "{error}");
    let error = Metadata::parse(&of_fields("typealias a := b; typealias b := a;", "")).unwrap_err();
    assert!(error.what.contains("no type `a` is declared before"), "{error}");
}

#[test]
fn packets_that_lie_about_their_sizes_are_reported() {
    let text = "/* CTF 1.8 */ typealias integer { size = 64; align = 8; } := u64;
        trace { major = 1; minor = 8; byte_order = le; };
        stream { packet.context := struct { u64 content_size; u64 packet_size; }; };
        event { name = \"e\"; fields := struct { u64 n; }; };";
    let packet = |content: u64, size: u64| {
        let mut bytes = [content.to_le_bytes(), size.to_le_bytes()].concat();
        bytes.extend([1; 16]);
        bytes
    };
    for (content, size, told) in [
        (256, 128, "has a content of"),
        (64, 256, "ends in its header"),
        (256, 257, "a packet has 257 bits"),
        (0, 0, "a packet has 0 bits"),
        (u64::MAX, u64::MAX, "a packet has"),
        (u64::MAX - 7, u64::MAX - 7, "the packet is cut"),
        (256, 512, "the file ends in a packet's padding: 32 of 64 bytes are there"),
    ] {
        let dir = trace(text, &packet(content, size));
        let (_, stats, _) = read(dir.path()).unwrap();
        let what = &stats.damaged[0].what;
        assert!(what.contains(told), "{content} {size}: {what}");
    }
    let dir = trace(text, &packet(256, 256));
    let (events, stats, _) = read(dir.path()).unwrap();
    assert_eq!((events, stats.damaged_places), (2, 0));
}

#[test]
fn a_trace_without_a_clock_or_a_stream_block_is_read() {
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = be; };
        event { name = \"e\"; fields := struct { integer { size = 3; align = 1; } n; }; };";
    let dir = trace(text, &[0b0010_1001, 0b1100_1011, 0b1011_1000]);
    let ctf = Ctf::open(dir.path()).unwrap();
    let (mut reader, mut values) = (ctf.reader(), Vec::new());
    struct Values<'v>(&'v mut Vec<u64>);
    impl Visit for Values<'_> {
        fn int(&mut self, _: &FieldInfo, value: u64) {
            self.0.push(value);
        }
    }
    ctf.for_each(&CtfSelect::default(), &mut |e| {
        assert_eq!((e.time, e.cpu), (0, None));
        reader.see(e.class, &e.body, &mut Values(&mut values)).unwrap();
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(values, [1, 2, 3, 4, 5, 6, 7, 0]);
}

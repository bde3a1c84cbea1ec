//! Lengths and tags that lie in another scope than what depends on them.

use kymo_testkit::{Need, require};

use crate::text::{agree, ours};

const TEXT: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := u8;
typealias integer { size = 16; align = 8; } := u16;
typealias integer { size = 32; align = 8; map = clock.c.value; } := time;
trace { major = 1; minor = 8; byte_order = le;
    packet.header := struct { integer { size = 32; align = 8; } magic; u8 of_header; }; };
clock { name = c; freq = 1000000000; };
stream {
    packet.context := struct { u16 content_size; u16 packet_size; u8 cpu_id; };
    event.header := struct {
        enum : u8 { few = 0 ... 3, many = 4 ... 9 } id;
        time timestamp;
        struct { u8 deep; } inner;
    };
    event.context := struct { u8 of_stream; variant <id> { u8 few; u16 many; } by_id; };
};
event { id = 1; name = "one"; context := struct { u8 of_event; };
    fields := struct {
        u8 own;
        u8 a[trace.packet.header.of_header];
        u8 b[stream.packet.context.cpu_id];
        u8 c[stream.event.header.inner.deep];
        u8 d[stream.event.context.of_stream];
        u8 e[event.context.of_event];
        u8 f[event.fields.own];
        struct { struct { u8 g[own]; } y; } x;
        variant <id> { string few; u8 many; } v;
    };
};
event { id = 5; name = "five"; fields := struct {
    variant <id> { string few; u8 many; } v; };
};
"#;

/// Tags in an outer scope, which babeltrace2 2.0.4 does not read.
const TAGS: [&str; 2] = ["variant <id> { u8 few; u16 many; } by_id;", V];
const V: &str = "variant <id> { string few; u8 many; } v;";

/// Three events of the first kind and, `tagged`, of the second.
fn packet(tagged: bool) -> Vec<u8> {
    let mut packet = vec![0xc1, 0x1f, 0xfc, 0xc1, 1, 0, 0, 0, 0, 2];
    for n in 1..4u8 {
        packet.extend([1, n, 0, 0, 0, 3, 4]);
        packet.extend(&[0x77][..usize::from(tagged)]);
        packet.extend([1, 2, 1, 1, 2, 1, 2, 3, 1, 2, 3, 4, 9, 2, 2, 3, 3]);
        if tagged {
            packet.extend(b"few\0");
            packet.extend([5, n, 0, 0, 0, 0, 0, 0x34, 0x12, 0x56]);
        }
    }
    let bits = (8 * packet.len() as u16).to_le_bytes();
    packet[5..7].copy_from_slice(&bits);
    packet[7..9].copy_from_slice(&bits);
    packet
}

fn trace(text: &str, packet: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("metadata"), text).unwrap();
    std::fs::write(dir.path().join("stream"), [packet, packet].concat()).unwrap();
    dir
}

const ONE: &str = "a = [ [0] = 1 ], b = [ [0] = 1, [1] = 2 ], c = [ [0] = 1, [1] = 2, [2] = 3 ], \
                   d = [ [0] = 1, [1] = 2, [2] = 3, [3] = 4 ], e = [ [0] = 9 ], \
                   f = [ [0] = 2, [1] = 2 ], x = { y = { g = [ [0] = 3, [1] = 3 ] } }";

#[test]
fn lengths_are_found_in_other_scopes() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let text = TAGS.iter().fold(TEXT.to_owned(), |text, tag| text.replace(tag, ""));
    let dir = trace(&text, &packet(false));
    // The peer remarks that it shows no fields of headers that it has no use for.
    let (lines, stats, _) = agree(dir.path());
    assert_eq!((lines.len(), stats.damaged_places), (6, 0), "{stats:?}");
    assert_eq!(
        lines[0].1,
        format!(
            "one: {{ cpu_id = 2 }}, {{ of_stream = 4 }}, {{ of_event = 1 }}, {{ own = 2, {ONE} }}"
        )
    );
}

#[test]
fn tags_are_found_in_other_scopes() {
    let dir = trace(TEXT, &packet(true));
    let (lines, stats) = ours(dir.path());
    assert_eq!((lines.len(), stats.damaged_places), (12, 0), "{stats:?}");
    let one = format!(
        "one: {{ cpu_id = 2 }}, {{ of_stream = 4, by_id = {{ 119 }} }}, {{ of_event = 1 }}, \
         {{ own = 2, {ONE}, v = {{ \"few\" }} }}"
    );
    let five = "five: { cpu_id = 2 }, { of_stream = 0, by_id = { 4660 } }, { v = { 86 } }";
    assert_eq!((lines[0].1.as_str(), lines[1].1.as_str()), (one.as_str(), five));
}

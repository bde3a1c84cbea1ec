//! Traces of CTF 2: every field class with values that are known by construction, which
//! babeltrace2 shows, too, where it is new enough; traces of LTTng 2.16; metadata that are wrong.

use std::ops::ControlFlow;
use std::path::Path;

use kymo_files::ctf::read::{Ctf, CtfReadStats, CtfSelect};
use kymo_testkit::{Lttng, LttngSession, Need, peer, require};

use crate::text::{Line, agree_with, ours, theirs_newest};

const PREAMBLE: &str = r#"{"type": "preamble", "version": 2}"#;
const U8: &str = r#"{"type": "field-class-alias", "name": "u8", "field-class":
    {"type": "fixed-length-unsigned-integer", "length": 8, "alignment": 8,
     "byte-order": "little-endian"}}"#;

/// Writes a trace of fragments and one stream.
fn write(path: &Path, fragments: &[&str], stream: &[u8]) {
    let text: String = fragments.iter().map(|f| format!("\u{1e}{f}\n")).collect();
    std::fs::create_dir_all(path).unwrap();
    std::fs::write(path.join("metadata"), text).unwrap();
    std::fs::write(path.join("stream"), stream).unwrap();
}

/// A trace of events of one class with these members, without headers and clocks.
fn write_members(path: &Path, members: &str, stream: &[u8]) {
    let event = format!(
        r#"{{"type": "event-record-class", "name": "e", "payload-field-class":
            {{"type": "structure", "member-classes": [{members}]}}}}"#
    );
    let streams = r#"{"type": "data-stream-class"}"#;
    write(path, &[PREAMBLE, U8, streams, &event], stream);
}

/// A member: its name and its class without the braces.
fn member(name: &str, class: &str) -> String {
    match class {
        "u8" => format!(r#"{{"name": "{name}", "field-class": "u8"}}"#),
        class => format!(r#"{{"name": "{name}", "field-class": {{{class}}}}}"#),
    }
}

/// A class of a fixed number of bits.
fn bits(class: &str, length: u32, more: &str) -> String {
    format!(
        r#""type": "fixed-length-{class}", "length": {length}, "byte-order": "little-endian"{more}"#
    )
}

/// Members with their classes, the bytes of one or more events, and what is shown of each.
type Case = (Vec<(&'static str, String)>, Vec<u8>, &'static [&'static str]);

fn cases() -> Vec<Case> {
    let of = |s: &str| s.to_owned();
    let at_n = r#""length-field-location": {"path": ["n"]}"#;
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let row = format!(r#""type": "dynamic-length-array", {at_n}, "element-field-class": "u8""#);
    let inner = row.replace(r#"["n"]"#, r#"[null, "n"]"#);
    let origin = row.replace(r#""path""#, r#""origin": "event-record-payload", "path""#);
    let own = row.replace(r#"["n"]"#, r#"["k"]"#);
    let select = r#""selector-field-location": {"path": ["n"]}"#;
    let option = |ranges: &str, class: &str| {
        format!(r#"{{"selector-field-ranges": {ranges}, "field-class": {class}}}"#)
    };
    let text = r#"{"type": "null-terminated-string"}"#;
    vec![
        (
            vec![("a", bits("bit-array", 12, "")), ("b", bits("bit-array", 4, ""))],
            vec![0xbc, 0x9a],
            &["{ a = 0xABC, b = 0x9 }"],
        ),
        (
            vec![(
                "m",
                bits(
                    "bit-map",
                    8,
                    r#", "flags": {"A": [[0, 0]], "B": [[1, 2]],
              "C": [[3, 3], [7, 7]], "D": [[0, 0], [3, 3]]}"#,
                ),
            )],
            vec![9],
            &[r#"{ m = 0x9 { "A", "C", "D" } }"#],
        ),
        (
            vec![("no", bits("boolean", 8, "")), ("yes", bits("boolean", 8, ""))],
            vec![0, 4],
            &["{ no = false, yes = true }"],
        ),
        (
            vec![
                ("a", bits("unsigned-integer", 5, r#", "bit-order": "last-to-first""#)),
                ("b", bits("signed-integer", 3, r#", "bit-order": "last-to-first""#)),
            ],
            vec![0x83],
            &["{ a = 24, b = 1 }"],
        ),
        (
            vec![
                (
                    "u",
                    of(
                        r#""type": "variable-length-unsigned-integer", "preferred-display-base": 16"#,
                    ),
                ),
                (
                    "s",
                    of(r#""type": "variable-length-signed-integer", "mappings":
                  {"neg": [[-300000, -1]], "pos": [[0, 5], [7, 9]]}"#),
                ),
            ],
            vec![0xb4, 0xc7, 0x72, 0xb4, 0xc7, 0x72, 0x80, 0x01, 0x06],
            &[
                r#"{ u = 0x1CA3B4, s = ( "neg" : container = -220236 ) }"#,
                "{ u = 0x80, s = ( <unknown> : container = 6 ) }",
            ],
        ),
        (
            vec![
                ("s", of(r#""type": "null-terminated-string", "encoding": "utf-16le""#)),
                (
                    "t",
                    of(r#""type": "static-length-string", "length": 12, "encoding": "utf-32be""#),
                ),
            ],
            [wide("h\u{e9}\u{1f600}\0"), vec![0, 0, 0, b'a', 0, 0, 0, b'b', 0, 0, 0, 0]].concat(),
            &[r#"{ s = "hé😀", t = "ab" }"#],
        ),
        (
            vec![
                ("n", of("u8")),
                ("s", format!(r#""type": "dynamic-length-string", {at_n}"#)),
                (
                    "t",
                    format!(r#""type": "dynamic-length-string", {at_n}, "encoding": "utf-16be""#),
                ),
            ],
            b"\x04ab\0c\0x\0y".to_vec(),
            &[r#"{ n = 4, s = "ab", t = "xy" }"#],
        ),
        (
            vec![
                ("n", of("u8")),
                (
                    "a",
                    of(r#""type": "static-length-array", "length": 2, "minimum-alignment": 32,
                  "element-field-class": "u8""#),
                ),
            ],
            vec![1, 0, 0, 0, 5, 6, 0, 0, 2, 0, 0, 0, 7, 8],
            &["{ n = 1, a = [ [0] = 5, [1] = 6 ] }", "{ n = 2, a = [ [0] = 7, [1] = 8 ] }"],
        ),
        (
            vec![(
                "a",
                format!(
                    r#""type": "static-length-array", "length": 2, "element-field-class":
                  {{"type": "structure", "member-classes": [{}, {}]}}"#,
                    member("k", "u8"),
                    member("row", &own)
                ),
            )],
            vec![1, 5, 2, 6, 7],
            &[
                "{ a = [ [0] = { k = 1, row = [ [0] = 5 ] }, [1] = { k = 2, row = [ [0] = 6, [1] = 7 ] } ] }",
            ],
        ),
        (
            vec![
                ("n", of("u8")),
                (
                    "in",
                    format!(
                        r#""type": "structure", "member-classes": [{}, {}]"#,
                        member("a", &inner),
                        member("b", &origin)
                    ),
                ),
            ],
            vec![2, 7, 8, 9, 10],
            &["{ n = 2, in = { a = [ [0] = 7, [1] = 8 ], b = [ [0] = 9, [1] = 10 ] } }"],
        ),
        (
            vec![
                ("n", of("u8")),
                (
                    "v",
                    format!(
                        r#""type": "variant", {select}, "options": [{}, {}]"#,
                        option("[[10, 19], [30, 30]]", text),
                        option("[[0, 9]]", r#""u8""#)
                    ),
                ),
            ],
            b"\x0aneg\0\x01\x07\x1e\0".to_vec(),
            &[r#"{ n = 10, v = { "neg" } }"#, "{ n = 1, v = { 7 } }", r#"{ n = 30, v = { "" } }"#],
        ),
        // A length that is one of two fields, by what is chosen.
        (
            vec![
                ("s", of("u8")),
                (
                    "n",
                    format!(
                        r#""type": "variant", "selector-field-location": {{"path": ["s"]}},
                  "options": [{}, {}]"#,
                        option("[[0, 0]]", r#""u8""#),
                        option("[[1, 1]]", &format!("{{{}}}", bits("unsigned-integer", 16, "")))
                    ),
                ),
                ("a", row),
            ],
            vec![0, 2, 7, 8, 1, 1, 0, 9],
            &[
                "{ s = 0, n = { 2 }, a = [ [0] = 7, [1] = 8 ] }",
                "{ s = 1, n = { 1 }, a = [ [0] = 9 ] }",
            ],
        ),
    ]
}

#[test]
fn every_field_class_has_the_value_it_was_written_with() {
    let newest = peer("babeltrace2").is_newest();
    for (members, stream, expected) in cases() {
        let dir = tempfile::tempdir().unwrap();
        let members: Vec<String> = members.iter().map(|(n, c)| member(n, c)).collect();
        write_members(dir.path(), &members.join(", "), &stream);
        let (lines, stats) = ours(dir.path());
        let expected: Vec<String> = expected.iter().map(|e| format!("e: {e}")).collect();
        let shown: Vec<&str> = lines.iter().map(|(_, l)| l.as_str()).collect();
        assert_eq!(shown, expected, "{members:?}");
        assert_eq!(stats.damaged_places, 0);
        if newest {
            let (lines, said) = theirs_newest(dir.path());
            let shown: Vec<&str> = lines.iter().map(|(_, l)| l.as_str()).collect();
            assert_eq!(shown, expected, "babeltrace2: {members:?} {said}");
        }
    }
}

/// Field classes that babeltrace2 shows differently, or not at all.
#[test]
fn blobs_optional_fields_and_halves_are_read() {
    let blob = r#""type": "static-length-blob", "length": 3, "media-type": "image/png""#;
    let option = r#""type": "optional", "selector-field-location": {"path": ["yes"]},
        "field-class": "u8""#;
    let members = [
        member("blob", blob),
        member("yes", &bits("boolean", 8, "")),
        member("o", option),
        member(
            "i",
            &option.replace("yes", "n").replace(
                "\"field-class\"",
                "\"selector-field-ranges\": [[5, 7], [9, 9]], \"field-class\"",
            ),
        ),
        member("half", &bits("floating-point-number", 16, "")),
    ];
    let n = member("n", "u8");
    let members = format!("{n}, {}", members.join(", "));
    let dir = tempfile::tempdir().unwrap();
    write_members(
        dir.path(),
        &members,
        &[5, 1, 2, 255, 1, 42, 43, 0, 0x3e, 0, 1, 2, 3, 0, 1, 0x80],
    );
    let shown: Vec<String> = ours(dir.path()).0.into_iter().map(|(_, l)| l).collect();
    let blob = "blob = [ [0] = 0x1, [1] = 0x2, [2] = 0x";
    assert_eq!(
        shown,
        [
            format!("e: {{ n = 5, {blob}FF ], yes = true, o = 42, i = 43, half = 1.5 }}"),
            format!("e: {{ n = 0, {blob}3 ], yes = false, half = -5.96046e-08 }}"),
        ]
    );
}

const HEADER: &str = r#"{"type": "trace-class", "environment": {"vpid": 7, "procname": "p"},
    "packet-header-field-class": {"type": "structure", "member-classes": [
        {"name": "the magic!", "field-class": {"type": "fixed-length-unsigned-integer",
            "length": 32, "byte-order": "little-endian", "roles": ["packet-magic-number"]}},
        {"name": "id", "field-class": {"type": "static-length-blob", "length": 16,
            "roles": ["metadata-stream-uuid"]}}]}}"#;
const STREAM: &str = r#"{"type": "data-stream-class", "default-clock-class-id": "c7",
    "packet-context-field-class": {"type": "structure", "member-classes": [
        {"name": "both", "field-class": {"type": "fixed-length-unsigned-integer", "length": 32,
            "byte-order": "big-endian", "roles": ["packet-content-length", "packet-total-length"]}},
        {"name": "from", "field-class": {"type": "variable-length-unsigned-integer",
            "roles": ["default-clock-timestamp"]}},
        {"name": "gone", "field-class": {"type": "variable-length-unsigned-integer",
            "roles": ["discarded-event-record-counter-snapshot"]}},
        {"name": "cpu_id", "field-class": "u8"}]},
    "event-record-header-field-class": {"type": "structure", "member-classes": [
        {"name": "t", "field-class": {"type": "variable-length-unsigned-integer",
            "roles": ["default-clock-timestamp"]}},
        {"name": "k", "field-class": {"type": "fixed-length-unsigned-integer", "length": 8,
            "byte-order": "little-endian", "roles": ["event-record-class-id"]}}]}}"#;

/// Packets with an identity, losses and times of few bits.
fn packets(uuid: u8) -> Vec<u8> {
    let mut stream = Vec::new();
    for (gone, events) in [(0u8, [[10u8, 3, 1], [5, 3, 2]]), (4, [[6, 3, 3], [7, 3, 4]])] {
        let begin = stream.len();
        stream.extend(0xc1fc_1fc1_u32.to_le_bytes());
        stream.extend([uuid; 16]);
        stream.extend([0; 4]);
        // 1000, and 1255 for the second packet.
        stream.extend(if gone == 0 { [0xe8, 0x07] } else { [0xe7, 0x09] });
        stream.extend([gone, 2]);
        events.iter().for_each(|e| stream.extend(e));
        let bits = 8 * (stream.len() - begin) as u32;
        stream[begin + 20..begin + 24].copy_from_slice(&bits.to_be_bytes());
    }
    stream
}

fn fragments() -> [String; 5] {
    let clock = r#"{"type": "clock-class", "id": "c7", "name": "monotonic",
        "frequency": 1000000000, "origin": "unix-epoch", "offset-from-origin": {"seconds": 5}}"#;
    let event = r#"{"type": "event-record-class", "id": 3, "name": "a:b",
        "attributes": {"lttng.org,2009": {"log-level": "warning"}, "other": [1]},
        "payload-field-class": {"type": "structure", "member-classes": [
            {"name": "_x", "field-class": "u8"}]}}"#;
    let preamble = PREAMBLE.replace('}', &format!(", \"uuid\": {:?}}}", [9; 16]));
    [preamble, HEADER.into(), clock.into(), STREAM.into(), event.into()]
}

fn read(path: &Path) -> (Vec<Line>, CtfReadStats) {
    ours(path)
}

#[test]
fn roles_say_what_packets_and_headers_mean() {
    let dir = tempfile::tempdir().unwrap();
    let [preamble, header, clock, streams, event] = fragments();
    let all: [&str; 6] = [&preamble, U8, &header, &clock, &streams, &event];
    write(dir.path(), &all, &packets(9));
    let (lines, stats) = read(dir.path());
    let line = |time, x| (time, format!("a:b: {{ cpu_id = 2 }}, {{ _x = {x} }}"));
    // Times of seven bits: the first that is not earlier.
    let expected = [line(1034, 1), line(1157, 2), line(1286, 3), line(1287, 4)];
    assert_eq!(lines, expected);
    assert_eq!((stats.lost, stats.lost_places, stats.foreign_packets), (4, 1, 0));
    let ctf = Ctf::open(dir.path()).unwrap();
    let class = ctf.class(0).unwrap();
    assert_eq!((class.event.loglevel, class.fields()[0].name.as_str()), (Some(4), "_x"));
    let clock = ctf.traces()[0].clock().unwrap();
    assert_eq!((clock.name.as_str(), clock.offset_s), ("monotonic", 5));
    // Packets of another identity are read and counted.
    write(dir.path(), &all, &packets(8));
    let (lines, stats) = read(dir.path());
    assert_eq!((lines.len(), stats.foreign_packets, stats.damaged_places), (4, 2, 0));
}

/// The draft CTF2-SPECRC-7.0 has other names for some properties, as Trace Compass's samples of
/// CTF 2 have them. They mean the same.
#[test]
fn metadata_of_the_draft_are_read_as_those_of_the_specification() {
    let dir = tempfile::tempdir().unwrap();
    let [preamble, header, clock, streams, event] = fragments();
    write(dir.path(), &[&preamble, U8, &header, &clock, &streams, &event], &packets(9));
    let (expected, _) = read(dir.path());
    let remarks = |path: &Path| Ctf::open(path).unwrap().remarks().collect::<Vec<_>>().join("; ");
    assert!(!remarks(dir.path()).contains("draft"), "{}", remarks(dir.path()));

    let id = header.replacen('{', &format!("{{\"uuid\": {:?}, ", [9; 16]), 1);
    let clock = r#"{"type": "clock-class", "name": "c7", "frequency": 1000000000}"#;
    let streams = streams.replace("default-clock-class-id", "default-clock-class-name");
    let event = event.replace("\"attributes\"", "\"user-attributes\"");
    write(dir.path(), &[PREAMBLE, U8, &id, clock, &streams, &event], &packets(9));
    let (lines, stats) = read(dir.path());
    assert_eq!(lines, expected);
    assert_eq!((stats.foreign_packets, stats.damaged_places), (0, 0));
    assert!(remarks(dir.path()).contains("draft CTF2-SPECRC-7.0"), "{}", remarks(dir.path()));
    let ctf = Ctf::open(dir.path()).unwrap();
    assert_eq!(ctf.class(0).unwrap().event.loglevel, Some(4));
    assert_eq!(ctf.traces()[0].clock().unwrap().name, "c7");

    let choice = |class: &str, location: &str| {
        let tag = bits(class, 8, r#", "mappings": {"A": [[0, 0]], "B": [[1, 1]]}"#);
        let var = format!(
            r#""type": "variant", "selector-field-location": {location}, "options": [
                {{"name": "A", "field-class": "u8", "selector-field-ranges": [[0, 0]]}},
                {{"name": "B", "field-class": {{"type": "null-terminated-string"}},
                  "selector-field-ranges": [[1, 1]]}}]"#
        );
        write_members(
            dir.path(),
            &[member("t", &tag), member("v", &var)].join(","),
            b"\x00\x07\x01hi\0",
        );
        read(dir.path()).0
    };
    let today = choice("unsigned-integer", r#"{"path": ["t"]}"#);
    assert_eq!(today.len(), 2);
    assert_eq!(choice("unsigned-enumeration", r#"["event-record-payload", "t"]"#), today);
}

#[test]
fn metadata_that_are_wrong_are_refused_or_passed_over_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fragments();
    let with = |n: usize, text: &str| {
        let mut all: Vec<&str> = whole.iter().map(String::as_str).collect();
        all.insert(1, U8);
        all[n] = text;
        write(dir.path(), &all, &packets(9));
        let ctf = Ctf::open(dir.path());
        ctf.map(|c| (c.damage().join("; "), c.class_count())).map_err(|e| e.to_string())
    };
    let refused = with(0, r#"{"type": "preamble", "version": 3}"#).unwrap_err();
    assert!(refused.contains("line 1, column 1: preamble: version 3 is not known"), "{refused}");
    let extended = r#"{"type": "preamble", "version": 2, "extensions": {"my": {"piano": 88}}}"#;
    let refused = with(0, extended).unwrap_err();
    assert!(refused.contains("it needs the extension `my: piano`"), "{refused}");
    let refused = with(0, whole[1].as_str()).unwrap_err();
    assert!(refused.contains("the first fragment is a trace-class, not a preamble"), "{refused}");
    for (bad, why) in [
        ("{\"type\": ", "JSON: EOF while parsing"),
        ("[]", "an object is expected, not an array"),
        (r#"{"type": "event"}"#, "no fragment has the type `event`"),
        (r#"{"type": "event-record-class", "data-stream-class-id": 9}"#, "no stream 9 is declared"),
        (r#"{"type": "event-record-class", "payload-field-class": "u9"}"#, "no alias `u9`"),
        (
            r#"{"type": "event-record-class", "payload-field-class": "u8"}"#,
            "a structure is expected",
        ),
    ] {
        let (damage, classes) = with(5, bad).unwrap();
        assert!(damage.contains(why) && damage.contains("metadata, line 2"), "{bad}: {damage}");
        assert_eq!(classes, 0);
    }
    let member = |class: &str| {
        format!(
            r#"{{"type": "event-record-class", "id": 3, "payload-field-class": {{"type":
            "structure", "member-classes": [{{"name": "x", "field-class": {{{class}}}}}]}}}}"#
        )
    };
    let number = r#""type": "fixed-length-unsigned-integer", "byte-order": "little-endian""#;
    for (class, why) in [
        (format!("{number}, \"length\": 65"), "65 bits are not read: 1 to 64 are"),
        (format!("{number}, \"length\": 8, \"alignment\": 3"), "a power of two up to"),
        (format!("{number}, \"length\": 8, \"mappings\": {{\"a\": [[2, 1]]}}"), "two numbers in order"),
        (format!("{number}, \"length\": 8, \"roles\": [\"x\"]"), "no role is called \"x\""),
        (format!("{number}, \"length\": -8"), "`length` is a number from 0 on, not -8"),
        (r#""type": "null-terminated-string", "encoding": "latin""#.into(), "no encoding"),
        (r#""type": "static-length-blob""#.into(), "`length` is missing"),
        (r#""type": "dynamic-length-blob", "length-field-location": {"path": [null]}"#.into(),
         "`path` names no field"),
        (r#""type": "dynamic-length-blob", "length-field-location": {"path": ["n"]}"#.into(),
         "cannot be the length of `x`"),
        (r#""type": "dynamic-length-blob", "length-field-location": {"path": [null, null, "n"]}"#
             .into(), "cannot be the length of `x`"),
        (r#""type": "optional", "field-class": "u8", "selector-field-location": {"path": ["y"]}"#
             .into(), "does not select for `x`"),
    ] {
        let (damage, _) = with(5, &member(&class)).unwrap();
        assert!(damage.contains(why), "{class}: {damage}");
    }
}

/// Types that are shared can be larger than any memory when they are written out.
#[test]
fn aliases_of_aliases_cost_no_more_than_their_text() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = vec![PREAMBLE.to_owned(), U8.to_owned()];
    for n in 0..40 {
        let of = if n == 0 { "u8".to_owned() } else { format!("a{}", n - 1) };
        all.push(format!(
            r#"{{"type": "field-class-alias", "name": "a{n}", "field-class": {{"type": "structure",
            "member-classes": [{{"name": "l", "field-class": "{of}"}},
            {{"name": "r", "field-class": "{of}"}}]}}}}"#
        ));
    }
    all.push(r#"{"type": "data-stream-class"}"#.to_owned());
    for n in 0..500 {
        all.push(format!(
            r#"{{"type": "event-record-class", "id": {n}, "payload-field-class": "a39"}}"#
        ));
    }
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    write(dir.path(), &all, &[0; 64]);
    let error = Ctf::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("more than 4194304 fields in all"), "{error}");
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    write(dir.path(), &[PREAMBLE, &deep, r#"{"type": "data-stream-class"}"#], &[]);
    let damage = Ctf::open(dir.path()).unwrap().damage().join("; ");
    assert!(damage.contains("recursion limit exceeded"), "{damage}");
}

/// Any part of the metadata and any changed byte of it.
#[test]
fn metadata_that_are_cut_or_changed_are_read_as_far_as_they_go() {
    let dir = tempfile::tempdir().unwrap();
    let [preamble, header, clock, streams, event] = fragments();
    write(dir.path(), &[&preamble, U8, &header, &clock, &streams, &event], &packets(9));
    let text = std::fs::read(dir.path().join("metadata")).unwrap();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for n in 0..2 * text.len() {
        let mut changed = text.clone();
        match n.checked_sub(text.len()) {
            None => changed.truncate(n),
            Some(n) => {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                changed[n] = seed as u8;
            }
        }
        std::fs::write(dir.path().join("metadata"), &changed).unwrap();
        let Ok(ctf) = Ctf::open(dir.path()) else { continue };
        let mut events = 0;
        let stats = ctf.for_each(&CtfSelect::default(), &mut |_| {
            events += 1;
            ControlFlow::Continue(())
        });
        assert!(events <= 100, "{n}: {events} {stats:?}");
    }
}

#[test]
fn traces_of_lttng_in_ctf_2_have_the_values_that_babeltrace2_shows() {
    if !require(&[Need::NewestPeers, Need::Gcc]) {
        return;
    }
    let (lttng, dir) = (Lttng::newest(), tempfile::tempdir().unwrap());
    let program = lttng.program();
    let output = dir.path().join("trace");
    let session = LttngSession {
        output: &output,
        by_process: false,
        sub_buffer: "64k",
        sub_buffers: 4,
        contexts: &["vpid", "vtid", "procname", "perf:thread:page-fault"],
        waits: false,
    };
    let mut command = lttng.command(&program);
    command.arg("200");
    lttng.record(&session, command);
    let (lines, stats, said) = agree_with(&output, theirs_newest(&output));
    assert_eq!((lines.len(), stats.lost, stats.damaged_places), (600, 0, 0), "{said}");
    // Sub-buffers so small that most of the events find no place.
    let output = dir.path().join("small");
    let mut command = lttng.command(&program);
    command.args(["30000", "two"]);
    let small = LttngSession { output: &output, sub_buffer: "4k", sub_buffers: 2, ..session };
    lttng.record(&small, command);
    let (lines, stats, said) = agree_with(&output, theirs_newest(&output));
    assert!(stats.lost > 0, "nothing was discarded");
    assert_eq!(lines.len() as u64 + stats.lost, 30_000, "{said}");
}

#[test]
fn metadata_of_ctf_1_8_need_no_signature() {
    let dir = tempfile::tempdir().unwrap();
    let text = "/* Of a tracer that does not sign. */\n\ntrace {\n\tmajor = 1; minor = 8;
        byte_order = le; };
        event { name = \"e\"; fields := struct { integer { size = 8; } x; }; };";
    std::fs::write(dir.path().join("metadata"), text).unwrap();
    std::fs::write(dir.path().join("stream"), [1, 2]).unwrap();
    let lines = ours(dir.path()).0;
    assert_eq!(lines, [(0, "e: { x = 1 }".to_owned()), (0, "e: { x = 2 }".to_owned())]);
    for other in ["", "tracer {", "trace", "/* trace {", "{\"trace\": 1}", "\u{1e}"] {
        std::fs::write(dir.path().join("metadata"), other).unwrap();
        assert!(Ctf::open(dir.path()).is_err(), "{other}");
    }
}

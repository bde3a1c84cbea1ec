//! Lines of `script` for events of every shape and value at its borders, made by hand: as
//! Rust's own formatting has them, and the same whichever way they are made. Events whose
//! fields always lie at the same places are written by a plan unless a condition is given;
//! with one that always holds they are walked through field by field, as all others are.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use kymo_testkit::{Outcome, run};

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

/// A trace in LTTng's compact form, in a byte order.
const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := u8;
typealias integer { size = 16; align = 8; signed = false; } := u16;
typealias integer { size = 32; align = 8; signed = false; } := u32;
typealias integer { size = 64; align = 8; signed = false; } := u64;
typealias integer { size = 8; align = 8; signed = true; } := i8;
typealias integer { size = 16; align = 8; signed = true; } := i16;
typealias integer { size = 32; align = 8; signed = true; } := i32;
typealias integer { size = 64; align = 8; signed = true; } := i64;
typealias integer { size = 16; align = 8; signed = true; base = hex; } := x16;
typealias integer { size = 64; align = 8; signed = false; base = hex; } := x64;
typealias integer { size = 8; align = 8; encoding = UTF8; } := letter;
trace { major = 1; minor = 8; byte_order = ORDER; packet.header := struct { u32 magic; }; };
clock { name = c; freq = 1000000000; };
typealias integer { size = 27; align = 1; signed = false; map = clock.c.value; } := u27c;
typealias integer { size = 64; align = 8; signed = false; map = clock.c.value; } := u64c;
stream {
    packet.context := struct {
        u64c timestamp_begin; u64c timestamp_end; u64 content_size; u64 packet_size;
        u64 events_discarded; u32 cpu_id; };
    event.header := struct {
        enum : integer { size = 5; align = 1; signed = false; } { compact = 0 ... 30, extended = 31 } id;
        variant <id> {
            struct { u27c timestamp; } compact;
            struct { u32 id; u64c timestamp; } extended; } v; } align(8);
    event.context := struct { i32 vpid; u16 depth; i32 vtid; letter procname[17]; };
};
event { name = "t:unsigned"; id = 0; fields := struct { u8 a; u16 b; u32 c; u64 d; }; };
event { name = "t:signed"; id = 1; fields := struct { i8 a; i16 b; i32 c; i64 d; }; };
event { name = "t:others"; id = 2; fields := struct {
    x16 narrow; x64 a_name_that_is_longer_than_what_is_moved_in_one_go;
    enum : u8 { NONE, SOME = 1 ... 3, OTHER = 3 } e; letter text[5]; }; };
event { name = "t:empty"; id = 3; fields := struct { }; };
event { name = "t:walked"; id = 4; fields := struct { string s; u8 n; u16 row[n]; }; };
event { name = "t:far"; id = 40; fields := struct { u8 a; }; };
"#;

/// Bytes of a packet in the making.
struct Packet {
    big: bool,
    bytes: Vec<u8>,
}

impl Packet {
    fn put(&mut self, n: u64, size: usize) {
        if self.big {
            self.bytes.extend(&n.to_be_bytes()[8 - size..])
        } else {
            self.bytes.extend(&n.to_le_bytes()[..size])
        }
    }

    /// `far`: the short time does not reach from the event before.
    fn header(&mut self, id: u64, time: u64, far: bool) {
        if id < 31 && !far {
            let time = time & ((1 << 27) - 1);
            self.put(if self.big { id << 27 | time } else { time << 5 | id }, 4);
        } else {
            self.bytes.push(if self.big { 31 << 3 } else { 31 });
            self.put(id, 4);
            self.put(time, 8);
        }
    }

    fn chars(&mut self, text: &str, size: usize) {
        let mut chars = text.as_bytes().to_vec();
        chars.resize(size, 0);
        self.bytes.extend(chars);
    }

    /// Its packet header and context, and its end.
    fn done(self, (begin, end): (u64, u64), discarded: u64, cpu: u64) -> Vec<u8> {
        let mut all = Packet { big: self.big, bytes: Vec::new() };
        let bits = 8 * (48 + self.bytes.len() as u64);
        all.put(0xc1fc_1fc1, 4);
        [begin, end, bits, bits, discarded].iter().for_each(|n| all.put(*n, 8));
        all.put(cpu, 4);
        all.bytes.extend(self.bytes);
        all.bytes
    }
}

/// A number at a border, another one with every event.
fn border(index: u64) -> u64 {
    let (power, step) = (index / 3 % 84, index % 3);
    let n = if power < 64 { 1u64 << power } else { 10u64.pow(power as u32 - 64) };
    n.wrapping_add(step).wrapping_sub(1)
}

/// An event and the line it should be. `time`: with that of the event before it.
fn event(p: &mut Packet, index: u64, (time, before): (u64, u64), cpu: u64) -> String {
    let kind = index % 6;
    let (n, m) = (border(index / 6), border(index / 6 * 7 + 5));
    let id = if kind == 5 { 40 } else { kind };
    // Tasks of one number with different names, too.
    let (tid, name) = ((index / 13 % 5) as i32 - 1, ["a", "some task", "sixteen letters!"]);
    let name = name[(index / 29 % 3) as usize];
    p.header(id, time, time - before >= 1 << 27);
    p.put(index / 17 % 3, 4);
    p.put(index % 7, 2);
    p.put(u64::from(tid as u32), 4);
    p.chars(name, 17);
    let values = match kind {
        0 => {
            [1, 2, 4, 8].iter().for_each(|size| p.put(n, *size));
            format!(" a={} b={} c={} d={}", n as u8, n as u16, n as u32, n)
        }
        1 => {
            [1, 2, 4, 8].iter().for_each(|size| p.put(m, *size));
            format!(" a={} b={} c={} d={}", m as i8, m as i16, m as i32, m as i64)
        }
        2 => {
            let text = ["", "a", "\"b\\\"", "\t\x01e", "five!"][(n % 5) as usize];
            let shown = ["", "a", "\\\"b\\\\\\\"", "\\t\\x01e", "five!"][(n % 5) as usize];
            p.put(n, 2);
            p.put(m, 8);
            p.put(m, 1);
            p.chars(text, 5);
            let label = ["NONE(", "SOME(", "SOME(", "SOME|OTHER(", ""][(m as u8).min(4) as usize];
            let close = if m as u8 > 3 { "" } else { ")" };
            format!(
                " narrow={:#x} a_name_that_is_longer_than_what_is_moved_in_one_go={m:#x} \
                 e={label}{}{close} text=\"{shown}\"",
                n as u16, m as u8
            )
        }
        3 => String::new(),
        4 => {
            p.chars("text", 5);
            p.put(index % 3, 1);
            (0..index % 3).for_each(|i| p.put(i, 2));
            let row: Vec<String> = (0..index % 3).map(|i| i.to_string()).collect();
            format!(" s=\"text\" n={} row={{{}}}", index % 3, row.join(","))
        }
        _ => {
            p.put(n, 1);
            format!(" a={}", n as u8)
        }
    };
    let event = ["unsigned", "signed", "others", "empty", "walked", "far"][kind as usize];
    // -1 is the kernel's "none".
    let task = if tid < 0 { format!("{name:>16}") } else { format!("{name:>16} {tid:>5}") };
    let (seconds, micros) = (time / 1_000_000_000, time / 1000 % 1_000_000);
    format!("{task} [{cpu:03}] {seconds:>5}.{micros:06}: t:{event}: [depth={}]{values}", index % 7)
}

/// Writes a trace of two streams, whose events lie between each other's, in turns of one
/// and in runs. Gives the lines that it should be.
fn trace(dir: &Path, big: bool) -> Vec<String> {
    let order = if big { "be" } else { "le" };
    std::fs::write(dir.join("metadata"), METADATA.replace("ORDER", order)).unwrap();
    let mut lines = Vec::new();
    let mut streams = [Vec::new(), Vec::new()];
    let (mut index, mut time) = (0u64, 7_999_000_000u64);
    let mut discarded = [0, 0];
    for packet in 0..6u64 {
        let mut packets = [0, 1].map(|_| Packet { big, bytes: Vec::new() });
        let begin = time + 1;
        let mut before = [begin; 2];
        if packet == 3 {
            discarded[1] = 5;
        }
        let mut first = true;
        while index < (packet + 1) * 1500 {
            let cpu = if packet < 3 { index % 2 } else { index / 700 % 2 };
            // Now and then further apart than the short time reaches.
            time += if index % 400 == 399 { 900_000_000 } else { 1 + index % 3 * 1_000 };
            if packet == 3 && cpu == 1 && std::mem::take(&mut first) {
                lines.push("CPU:1 [5 EVENTS DROPPED]".to_owned());
            }
            let last = std::mem::replace(&mut before[cpu as usize], time);
            lines.push(event(&mut packets[cpu as usize], index, (time, last), cpu));
            index += 1;
        }
        for (cpu, packet) in packets.into_iter().enumerate() {
            let packet = packet.done((begin, time), discarded[cpu], cpu as u64);
            streams[cpu].extend(packet);
        }
    }
    for (cpu, stream) in streams.iter().enumerate() {
        std::fs::write(dir.join(format!("stream_{cpu}")), stream).unwrap();
    }
    lines
}

#[test]
fn every_value_is_written_the_same_whichever_way() {
    for big in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let expected = trace(dir.path(), big);
        let path = dir.path().to_str().unwrap();
        let planned = kymo(&["script", path]).success().stdout;
        for (n, (line, expected)) in planned.lines().zip(&expected).enumerate() {
            assert_eq!(line, expected, "line {n}, big endian: {big}");
        }
        assert_eq!(planned.lines().count(), expected.len());
        let walked = kymo(&["script", "--time", "0,", path]).success().stdout;
        assert!(planned == walked, "not the same when walked");
    }
}

/// Metadata may give one value a hundred thousand names: neither a line nor the memory for many
/// of them grows with that.
#[test]
fn names_of_overlapping_ranges_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let labels: String = (0..100_000).map(|i| format!("NAME{i} = 0 ... 200, ")).collect();
    let metadata = format!(
        "/* CTF 1.8 */\n\
         typealias integer {{ size = 8; align = 8; signed = false; }} := u8;\n\
         trace {{ major = 1; minor = 8; byte_order = le; }};\n\
         stream {{ event.header := struct {{ u8 id; }}; }};\n\
         event {{ name = \"t:e\"; id = 0; fields := struct {{ enum : u8 {{ {labels} }} e; }}; }};\n"
    );
    std::fs::write(dir.path().join("metadata"), metadata).unwrap();
    std::fs::write(dir.path().join("events"), [0, 7].repeat(20_000)).unwrap();
    let (kymo, trace) = (env!("CARGO_BIN_EXE_kymo"), dir.path().to_str().unwrap());
    for more in ["", "--json"] {
        let limited = format!("ulimit -v 2000000; exec {kymo} script {more} {trace}");
        let shown = run("sh", ["-c", &limited]).success().stdout;
        assert_eq!(shown.lines().count(), 20_000);
        assert!(shown.len() < 20_000 * 1024, "{}", shown.len());
        let first = shown.lines().next().unwrap();
        match more {
            "" => assert!(first.contains("e=NAME0|NAME1|") && first.ends_with("|…(7)"), "{first}"),
            _ => {
                assert!(first.contains("{\"label\":\"NAME0|NAME1|"), "{first}");
                assert!(first.contains("|…\",\"value\":7}"), "{first}");
            }
        }
    }
}

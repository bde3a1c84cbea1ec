//! Garbage in, no panic out: texts and payloads changed at random, with a fixed
//! seed and bounded time, and output that stays within its limit.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use kymo_format::{EventFormat, PointerStyle, RenderContext};
use kymo_model::Endian;

const SEEDS: &[&str] = &[
    r#"name: a
ID: 7
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:char comm[16];	offset:8;	size:16;	signed:0;
	field:__data_loc char[] name;	offset:24;	size:4;	signed:0;
	field:__rel_loc u32[] list;	offset:28;	size:4;	signed:0;
	field:u8 saddr[28];	offset:32;	size:28;	signed:0;
	field:u64 flags;	offset:64;	size:8;	signed:0;
	field:void * ptr;	offset:72;	size:8;	signed:0;

print fmt: "%s %-8.3s %pISpc %s %p %pS %*pbl %s", REC->comm, __get_str(name), REC->saddr, __print_flags(REC->flags & ((1ULL << 40) - 1), "|", { 1, "A" }, { 2UL << 3, "B" }, { -1, ((void *)0) }), REC->ptr, (void *)REC->ptr, 28, REC->saddr, REC->flags ? __print_array(__get_rel_dynamic_array(list), __get_rel_dynamic_array_len(list) / sizeof(u32), sizeof(u32)) : "none"
"#,
    r#"name: b
ID: 8
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int x;	offset:8;	size:4;	signed:1;
	field:u16 y[4];	offset:12;	size:8;	signed:0;
	field:__data_loc cpumask_t mask;	offset:20;	size:4;	signed:0;
	field:__u8 uuid[16];	offset:24;	size:16;	signed:0;

print fmt: "%5d %-#10x %+lld %c %pU %pUL %pM %pI6c %pI4 %phC %s %s %s" " %08.3hx %s", REC->x / REC->y[0], ({ int a = (REC->x); int b = (128); ((a) < (b) ? (a) : (b)); }), (s64)REC->x << 40, 'A' + REC->y[3] % 26, REC->uuid, REC->uuid, REC->uuid, REC->uuid, REC->uuid, REC->uuid, __print_symbolic(REC->x, {0, "zero"}, {1, "one"}), __print_hex(REC->uuid, 16), __get_cpumask(mask), !REC->x || ~REC->y[1] > -REC->x, some_call(p, REC->y, REC->x)
"#,
];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

const WORDS: &[&str] = &[
    "(",
    ")",
    "REC->",
    "[",
    "]",
    "{",
    "}",
    "?",
    ":",
    "<<",
    "/",
    "%",
    "0",
    "-1",
    "99999999999",
    "__print_flags(",
    "__get_str(",
    "\"",
    "%*d",
    "%.*s",
    "({",
    "sizeof(",
    "typeof(",
    "\\x",
    "'",
    "size:0;",
    "offset:65535;",
    "signed:1;",
    "u64",
    "*",
    "&",
    "->",
    ".",
    ",",
    "%pISpfsc",
    "~!",
];

fn mutate(seed: &str, r: &mut Random) -> String {
    let mut b = seed.as_bytes().to_vec();
    for _ in 0..1 + r.below(4) {
        let at = r.below(b.len());
        match r.below(6) {
            0 => b[at] = 32 + r.below(95) as u8,
            1 => b.truncate(at),
            2 => {
                let end = (at + r.below(20)).min(b.len());
                b.drain(at..end);
            }
            3 => {
                let end = (at + r.below(60)).min(b.len());
                let piece = b[at..end].to_vec();
                let to = r.below(b.len());
                b.splice(to..to, piece);
            }
            _ => {
                let w = WORDS[r.below(WORDS.len())].bytes();
                b.splice(at..at, w);
            }
        }
        if b.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&b).into_owned()
}

#[test]
fn mutated_texts_and_payloads_never_panic() {
    let start = Instant::now();
    let mut r = Random(0x9e37_79b9_7f4a_7c15);
    let (mut parsed, mut compiled, mut rounds) = (0u32, 0u32, 0u32);
    let mut out = Vec::new();
    let mut payload = [0u8; 160];
    while rounds < 200_000 && start.elapsed() < Duration::from_secs(4) {
        rounds += 1;
        let text = mutate(SEEDS[r.below(SEEDS.len())], &mut r);
        let Ok(f) = EventFormat::parse(&text) else { continue };
        parsed += 1;
        compiled += u32::from(f.fallbacks().is_empty());
        let len = r.below(payload.len());
        for b in &mut payload[..len] {
            *b = if r.below(3) == 0 { 0 } else { r.next() as u8 };
        }
        let endian = if r.below(2) == 0 { Endian::Little } else { Endian::Big };
        let pointers = if r.below(2) == 0 { PointerStyle::Kernel } else { PointerStyle::Short };
        let ctx = RenderContext { endian, pointers, ..Default::default() };
        out.clear();
        f.render(&mut out, &payload[..len], &ctx);
        assert!(out.len() <= 64 << 10, "{} bytes from {text}", out.len());
        for field in &f.fields {
            out.clear();
            f.value(field, &payload[..len], endian).write_json(&mut out, endian);
        }
    }
    assert!(parsed > 1000 && compiled > 500, "{parsed} parsed, {compiled} compiled of {rounds}");
}

#[test]
fn texts_made_to_grow_stay_small() {
    let body = |fmt: String| {
        format!(
            "name: x\nID: 1\nformat:\n\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: {fmt}\n"
        )
    };
    let doubling: String = (0..40).map(|i| format!("int v{} = v{i} + v{i}; ", i + 1)).collect();
    let cases = [
        format!("\"%d\", {}REC->a{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("\"%d\", {}REC->a", "-".repeat(100_000)),
        format!("\"%d\", {}REC->a", "!".repeat(60)),
        format!("\"%d\", {}REC->a", "~*!-".repeat(15)),
        format!("\"%d\", REC->a{}", " + REC->a".repeat(50_000)),
        format!("\"%d\", REC->a{}", "[1]".repeat(50_000)),
        format!("\"%d\", {}REC->a{}", "(".repeat(30), " ?: REC->a)".repeat(30)),
        format!("\"%d\", ({{ int v0 = REC->a; {doubling} v40; }})"),
        format!("\"{}\"", "%4096d".repeat(10_000)),
        format!("\"{}\", {}", "%4096d".repeat(3_000), "REC->a, ".repeat(2_999) + "REC->a"),
        format!("\"{}\"", "x".repeat(900_000)),
    ];
    for case in cases {
        let start = Instant::now();
        let f = EventFormat::parse(&body(case.clone())).unwrap();
        let mut out = Vec::new();
        f.render(&mut out, &[1; 12], &RenderContext::default());
        let head: String = case.chars().take(40).collect();
        assert!(out.len() <= 64 << 10, "{head}: {} bytes", out.len());
        assert!(start.elapsed() < Duration::from_secs(2), "{head}: {:?}", start.elapsed());
    }
}

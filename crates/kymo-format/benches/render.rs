//! Nanoseconds per rendered event, for payloads as they come from a ring.
//! Without arguments each is rendered two million times.
#![allow(clippy::unwrap_used, reason = "a bench stops at what is wrong")]

use std::time::Instant;

use kymo_format::{EventFormat, FormatIndex, RenderContext};

const COMMON: &str = "format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

const SYS_ENTER: &str = "\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;
\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;

print fmt: \"NR %ld (%lx, %lx, %lx, %lx, %lx, %lx)\", REC->id, REC->args[0], REC->args[1], \
REC->args[2], REC->args[3], REC->args[4], REC->args[5]
";

const SYS_EXIT: &str = "\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;
\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;

print fmt: \"NR %ld = %ld\", REC->id, REC->ret
";

const SWITCH: &str = "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;
\tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;

print fmt: \"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d \
next_prio=%d\", REC->prev_comm, REC->prev_pid, REC->prev_prio, (REC->prev_state & ((((0x00000000 | \
0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << \
1) - 1)) ? __print_flags(REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | \
0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1), \"|\", { 0x00000001, \"S\" }, { \
0x00000002, \"D\" }, { 0x00000004, \"T\" }) : \"R\", REC->prev_state & (((0x00000000 | 0x00000001 | \
0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) ? \"+\" : \
\"\", REC->next_comm, REC->next_pid, REC->next_prio
";

fn payload(id: u16, words: &[u64]) -> Vec<u8> {
    let mut p = id.to_le_bytes().to_vec();
    p.extend([0, 0]);
    p.extend(4242u32.to_le_bytes());
    for w in words {
        p.extend(w.to_le_bytes());
    }
    p
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(2_000_000u32);
    let comm = |s: &[u8; 16]| {
        let (a, b) = s.split_at(8);
        [u64::from_le_bytes(a.try_into().unwrap()), u64::from_le_bytes(b.try_into().unwrap())]
    };
    let [a, b] = comm(b"sched-messaging\0");
    let [c, d] = comm(b"swapper/0\0\0\0\0\0\0\0");
    let pids = 4242 | 120 << 32;
    let cases = [
        ("sys_enter", SYS_ENTER, vec![0, 3, 0x7ffd_d2c8_4e40, 0x400, 0, 0x22, 0x7f5e_9c1b_2000]),
        ("sys_exit", SYS_EXIT, vec![202, 0xffff_ffff_ffff_fff5]),
        ("sched_switch", SWITCH, vec![a, b, pids, 1, c, d, pids]),
    ];
    for (i, (name, text, words)) in cases.into_iter().enumerate() {
        let id = i as u16 + 100;
        let mut table = FormatIndex::default();
        let text = format!("name: {name}\nID: {id}\n{COMMON}\n{text}");
        table.insert(EventFormat::parse(&text).unwrap());
        let payload = payload(id, &words);
        let ctx = RenderContext::default();
        let mut out = Vec::with_capacity(1 << 16);
        let mut best = f64::MAX;
        // The quickest of ten parts: other work on the machine only adds.
        let part = rounds.div_ceil(10);
        for _ in 0..10 {
            let start = Instant::now();
            for _ in 0..part {
                if out.len() > 60_000 {
                    out.clear();
                }
                assert!(table.render(&mut out, std::hint::black_box(&payload), &ctx));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / f64::from(part));
        }
        out.clear();
        table.render(&mut out, &payload, &ctx);
        let (ns, mean) = (best, out.len());
        println!(
            "{name:<14} {ns:7.1} ns/event, {mean} bytes each: {}",
            String::from_utf8_lossy(&out)
        );
    }
}

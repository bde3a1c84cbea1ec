//! `kymo session` over programs: sessions outlive the command, reach programs that run
//! and that start later, lose nothing unsaid, and leave nothing. This test binary is
//! started again as the program, in a shared directory of the test's own; it does what its
//! standard input says.
#![allow(clippy::unwrap_used, reason = "tests")]

mod changes;
mod conditions;
mod life;
mod places;
mod stage;

use kymo_tracepoint::{emit, tracepoint};
use stage::ROLE;

tracepoint! {
    work: step(number: u64) {
        fields { number: u64 = number, half: u64 = number / 2 }
        print "step {number}"
        level kymo_tracepoint::Level::Info
    }
}

tracepoint! {
    work: idle(number: u64) {
        fields { number: u64 = number }
        print "{number:x}"
        level kymo_tracepoint::Level::Debug
    }
}

/// The program: `go N` makes N steps more, `idle N` as many of the other event, both say
/// `done`; `abort` and `fault` end it badly, the end of the input ends it well.
#[test]
fn role() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let mut next = 0;
    println!("\nready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (what, count) = line.split_once(' ').unwrap_or((&line, "0"));
        let count: u64 = count.parse().unwrap();
        match what {
            "go" => (next..next + count).for_each(|i| emit!(step(i))),
            "idle" => (0..count).for_each(|i| emit!(idle(i))),
            "abort" => std::process::abort(),
            _ => panic!("{line}"),
        }
        next += if what == "go" { count } else { 0 };
        println!("\ndone");
    }
}

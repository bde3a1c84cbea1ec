//! Programs that are traced, from start to end: this test binary is started again as the
//! program; its rings become CTF, and babeltrace2 says what is in them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Shared, is_role, order};
use kymo_testkit::{Need, require};
use kymo_tracepoint::{Level, Symbol, emit, mark, tracepoint, tracepoint_class, tracepoint_enum};

tracepoint_enum! {
    /// How something is paid for.
    pub enum Payment: i16 { Cash = -1, Card = 2 }
}

tracepoint! {
    /// Every type there is.
    pub test: every(number: u64, text: &str, payment: Payment) {
        fields {
            u8_: u8 = number as u8,
            u16_: u16 = number as u16,
            u32_: u32 = number as u32,
            u64_: u64 = number,
            i8_: i8 = -(number as i8),
            i16_: i16 = -(number as i16),
            i32_: i32 = -(number as i32),
            i64_: i64 = -(number as i64),
            f32_: f32 = number as f32 + 0.5,
            f64_: f64 = number as f64 - 0.25,
            yes: bool = number % 2 == 1,
            text: str = text,
            payment: Payment = payment,
            array: [i16; 3] = &[1, -2, number as i16],
            sequence: [u32] = &[9; 3][..(number % 4) as usize],
            at: Symbol = Symbol(0xabcd),
        }
        print "{u64_}"
        level Level::Warning
    }
}

tracepoint_class! {
    test: class(number: u32) {
        fields { number: u32 = number }
        print "{number}"
        when number != 3
    }
    events {
        /// One.
        class_one;
        class_two;
    }
}

tracepoint! {
    test: large(len: usize) {
        fields { bytes: [u8] = &vec![7; len], text: str = &"x".repeat(len) }
        print ""
    }
}

tracepoint! {
    test: counted(number: u64, other: u64) {
        fields { number: u64 = number, other: u64 = other }
        print "{number}"
    }
}

/// What babeltrace2 says of events, without time and context: `name: { … }, { … }`.
fn payloads(lines: &[String]) -> Vec<String> {
    let name = |line: &str| line.split_once(") ").map(|(_, rest)| rest.to_owned()).unwrap();
    lines
        .iter()
        .map(|line| {
            let line = name(line);
            let event = line.split(": {").next().unwrap().rsplit(' ').next().unwrap();
            format!("{event} {{{}", line.rsplit_once("}, {").unwrap().1)
        })
        .collect()
}

#[test]
fn every_type_reaches_babeltrace() {
    if is_role() {
        for i in 1..=3 {
            let payment = if i == 1 { Payment::Cash } else { Payment::Card };
            emit!(every(i, if i == 2 { "cut\0here" } else { "text" }, payment));
            emit!(class_one(i as u32));
            emit!(class_two(i as u32 + 10));
            mark!(test: mark, "about {what}", what: str = "life", i: u64);
        }
        return;
    }
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let shared = Shared::new();
    shared.want("s", &order("test:*", ""));
    let status = shared.program("every_type_reaches_babeltrace").status().unwrap();
    assert!(status.success());
    let programs = shared.programs();
    assert_eq!(programs.len(), 1);
    let event = programs[0].event("every");
    assert_eq!((event.level, event.doc.as_str()), (4, " Every type there is.\n"));
    assert_eq!(programs[0].slot(0).answer, 1);
    let due = |i: u64, text, payment, sequence| {
        let f = format!(
            "test:every {{ u8_ = {i}, u16_ = {i}, u32_ = {i}, u64_ = {i}, i8_ = -{i}, i16_ = -{i}, \
             i32_ = -{i}, i64_ = -{i}, f32_ = {}.5, f64_ = {}.75, yes = {}, text = \"{text}\", \
             payment = {payment}, array = [ [0] = 1, [1] = -2, [2] = {i} ], \
             _sequence_length = {i}, sequence = [{sequence}], at = 0xABCD }}",
            i,
            i - 1,
            i % 2
        );
        f
    };
    let cash = "( \"Cash\" : container = -1 )";
    let card = "( \"Card\" : container = 2 )";
    let lines = payloads(&programs[0].babeltrace(0, 1));
    let due = [
        due(1, "text", cash, " [0] = 9 "),
        "test:class_one { number = 1 }".into(),
        "test:class_two { number = 11 }".into(),
        "test:mark { what = \"life\", i = 1 }".into(),
        due(2, "cut", card, " [0] = 9, [1] = 9 "),
        "test:class_one { number = 2 }".into(),
        "test:class_two { number = 12 }".into(),
        "test:mark { what = \"life\", i = 2 }".into(),
        due(3, "text", card, " [0] = 9, [1] = 9, [2] = 9 "),
        // class_one(3): its condition is false.
        "test:class_two { number = 13 }".into(),
        "test:mark { what = \"life\", i = 3 }".into(),
    ];
    assert_eq!(lines, due);
}

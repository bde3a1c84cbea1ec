//! `kymo count -e PROVIDER:NAME`: events of programs with tracepoints of their own, by known
//! numbers. This test binary is started again as the program, in a shared directory of its own.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use kymo_testkit::page_with_ledger;
use kymo_tracepoint::{emit, tracepoint, tracepoint_enum};
use serde_json::{Value, json};

tracepoint_enum! {
    pub enum Payment: u8 { Cash = 1, Card = 2 }
}

tracepoint! {
    counted_shop: sale(id: u64, cents: i64, payment: Payment) {
        fields {
            id: u64 = id,
            cents: i64 = cents,
            payment: Payment = payment,
            large: bool = cents > 500,
            euros: f64 = cents as f64 / 100.0,
        }
        print "sale {id}"
    }
}

tracepoint! {
    counted_shop: begin(id: u64) { fields { id: u64 = id } print "begin {id}" }
}

tracepoint! {
    counted_shop: end(number: u64) { fields { number: u64 = number } print "end {number}" }
}

const ROLE: &str = "KYMO_TEST_COUNTED_SHOP";
const SALES: u64 = 1000;

/// The program: as soon as a reader listens, sales of -3, -2, … cents, by card each third time; or
/// requests, of which some are begun twice, never ended, or never begun.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let listens = || if role == "sales" { sale::enabled() } else { end::enabled() };
    while !listens() {
        std::thread::sleep(Duration::from_millis(1));
    }
    if role == "sales" {
        for id in 0..SALES {
            let payment = if id % 3 == 0 { Payment::Card } else { Payment::Cash };
            emit!(sale(id, id as i64 - 3, payment));
        }
        return;
    }
    for id in 0..10 {
        emit!(begin(id));
        std::thread::sleep(Duration::from_millis(if id == 7 { 30 } else { 1 }));
        if id == 4 {
            emit!(begin(id));
        }
        if id != 5 {
            emit!(end(id));
        }
    }
    emit!(end(99));
}

fn count_at(shared: &Path, role: &str, flags: &[&str]) -> Output {
    let program = std::env::current_exe().unwrap();
    Command::new(env!("CARGO_BIN_EXE_kymo"))
        .arg("count")
        .args(flags)
        .arg("--")
        .arg(program)
        .args(["--exact", "role", "--nocapture"])
        .env(ROLE, role)
        .env("KYMO_UST_DIR", shared)
        .output()
        .unwrap()
}

fn count(role: &str, flags: &[&str]) -> Value {
    let shared = tempfile::tempdir().unwrap();
    let output = count_at(shared.path(), role, &[flags, &["--json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{flags:?} {text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    // What the test's harness says of the role comes before.
    let begin = text.find("\n{").map_or(0, |at| at + 1);
    page_with_ledger(&text[begin..], &String::from_utf8_lossy(&output.stderr))
}

/// Returns the value of a member of each row and of its key, in order.
fn by_key(page: &Value, key: &str, member: &str) -> Vec<(Value, Value)> {
    let rows = page["rows"].as_array().unwrap_or_else(|| panic!("{page}")).iter();
    rows.map(|row| (row["key"][key].clone(), row[member].clone())).collect()
}

#[test]
fn events_are_counted_by_their_fields() {
    let page = count("sales", &["-e", "ust:counted_shop:sale", "--by", "payment"]);
    let expected = [(json!("Cash(1)"), json!(666)), (json!("Card(2)"), json!(334))];
    assert_eq!(by_key(&page, "payment", "count"), expected);
    assert_eq!(page["ledger"], json!([]));
    // Several events are counted separately; the kernel has no such system, so that no prefix is
    // needed where its systems are known. All programs are those in the directory of the test.
    let name = match std::fs::read_dir("/sys/kernel/tracing/events") {
        Ok(_) => "counted_shop:*",
        Err(_) => "ust:counted_shop:*",
    };
    let page = count("sales", &["-a", "-e", name]);
    assert_eq!(by_key(&page, "event", "count"), [(json!("counted_shop:sale"), json!(1000))]);
    let filter = ["-e", "ust:counted_shop:sale", "--filter", "cents > 500 && id < 600"];
    let page = count("sales", &[&filter[..], &["--by", "large"]].concat());
    assert_eq!(by_key(&page, "large", "count"), [(json!("true"), json!(96))]);
    let shown = count("sales", &["-e", "ust:counted_shop:sale", "--by", "id", "--top", "3"]);
    assert_eq!((shown["rows"].as_array().unwrap().len(), &shown["left_out"]), (3, &json!(997)));
}

#[test]
fn fields_are_measured_exactly() {
    let sale = "ust:counted_shop:sale";
    let page = count("sales", &["-e", sale, "--stats", "cents", "--by", "large"]);
    assert_eq!(
        by_key(&page, "large", "count"),
        [(json!("true"), json!(496)), (json!("false"), json!(504))]
    );
    // -3 to 500, and 501 to 996.
    let sums = [(json!("true"), json!(371_256)), (json!("false"), json!(125_244))];
    assert_eq!(by_key(&page, "large", "sum"), sums);
    let page = count("sales", &["-e", sale, "--hist", "cents"]);
    let buckets = page["rows"][0]["buckets"].as_array().unwrap();
    let counts: Vec<u64> = buckets.iter().map(|b| b["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [3, 1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 485]);
    let page = count("sales", &["-e", sale, "--lhist", "cents:0:500:250"]);
    let buckets = page["rows"][0]["buckets"].as_array().unwrap();
    let counts: Vec<u64> = buckets.iter().map(|b| b["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [3, 250, 250, 497]);
    for (flag, member, value) in
        [("--min", "min", -3), ("--max", "max", 996), ("--sum", "sum", 496_500)]
    {
        let page = count("sales", &["-e", sale, flag, "cents"]);
        assert_eq!(page["rows"][0][member], json!(value), "{flag} {page}");
    }
    // A field that is no integer is not measured as one.
    let page = count("sales", &["-e", sale, "--hist", "euros"]);
    assert_eq!(page["rows"], json!([]));
    let fact = "1000 events lack a field that is asked for, or it is no integer";
    assert_eq!(page["ledger"][0]["fact"], json!(fact));
}

#[test]
fn latencies_pair_events_by_key() {
    let latency = "ust:counted_shop:begin -> ust:counted_shop:end by id = number";
    let page = count("latency", &["--latency", latency]);
    let row = &page["rows"][0];
    assert_eq!((&row["count"], &page["begun_again"]), (&json!(9), &json!(1)), "{page}");
    assert_eq!((&page["not_ended"], &page["without_beginning"]), (&json!(1), &json!(1)));
    // Each took as long as it slept, or longer.
    assert!(row["max_ns"].as_u64().unwrap() >= 30_000_000, "{page}");
    let slowest = page["slowest"].as_array().unwrap();
    let of_seven = slowest.iter().find(|s| s["keys"] == json!([7])).unwrap();
    assert!(of_seven["latency_ns"].as_u64().unwrap() >= 30_000_000, "{page}");
}

#[test]
fn what_cannot_be_is_refused() {
    let shared = tempfile::tempdir().unwrap();
    let refused = |flags: &[&str]| {
        let output = count_at(shared.path(), "none", flags);
        assert_eq!(output.status.code(), Some(1), "{flags:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let sale = "ust:counted_shop:sale";
    assert!(refused(&["-e", "sched:sched_switch", "-e", sale]).contains("counted apart"));
    assert!(refused(&["-e", sale, "--by", "stack"]).contains("do not have stack"));
    assert!(refused(&["-e", sale, "-i", "100"]).contains("-i"));
    assert!(refused(&["-e", sale, "--show-program"]).contains("--show-program"));
    let latency = "ust:a:* -> ust:a:b by id";
    assert!(refused(&["--latency", latency]).contains("not patterns"));
}

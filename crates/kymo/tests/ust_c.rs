//! The example program in C, as its page (`docs/c.md`) builds it, and what the commands show of
//! it: live, written, listed, filtered, and beside babeltrace2.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kymo_testkit::{Need, require, tracepoint_library};

const NEEDS: &[Need] = &[Need::Gcc, Need::Babeltrace];

struct Shop {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Shop {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("shop");
        let crate_ = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kymo-tracepoint");
        let mut gcc = Command::new("gcc");
        gcc.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-rdynamic"]);
        gcc.arg(crate_.join("examples/shop.c")).arg("-I").arg(crate_.join("include"));
        gcc.arg(tracepoint_library(Path::new(env!("CARGO_TARGET_TMPDIR"))));
        gcc.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
        let output = gcc.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { dir, program }
    }

    /// Returns the output of kymo with these arguments.
    fn kymo(&self, args: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(args).env("KYMO_UST_DIR", self.dir.path());
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The lines of `kymo trace ARGS -- shop 4`, behind the time.
    fn live(&self, args: &[&str]) -> Vec<String> {
        let program = self.program.to_str().unwrap();
        let text = self.kymo(&[&["trace"], args, &["--", program, "4"]].concat());
        let lines = text.lines().filter_map(|line| line.split_once(": shop:"));
        lines.map(|(_, line)| line.to_owned()).collect()
    }
}

#[test]
fn live_text_is_the_print_format_s() {
    if !require(NEEDS) {
        return;
    }
    let shop = Shop::new();
    let lines = shop.live(&["-u", "shop:*"]);
    // Of the sale without a price there is no event.
    // The function has its name also when the program has ended.
    let sale = |id: u32, who: &str, euros: &str, how: &str| {
        format!("sale: sale {id} to {who}: {euros} EUR by {how}, sold by sell+0x0")
    };
    let sales = [
        sale(1, "Alice", "10.01", "Card"),
        sale(2, "(null)", "20.02", "Card"),
        sale(3, "Alice", "30.03", "Voucher"),
    ];
    let mut due = vec!["door_opened: by 0".to_owned(), "door_closed: by 0".into()];
    for (i, sale) in (1..).zip(&sales) {
        due.extend([format!("door_opened: by {i}"), sale.clone(), format!("door_closed: by {i}")]);
    }
    assert_eq!(lines, due);
    // By level, and by fields of each kind.
    let count = |args: &[&str]| shop.live(args).len();
    assert_eq!(count(&["-u", "shop:*", "--level", "notice"]), 4);
    assert_eq!(count(&["-u", "shop:*", "--level", "info"]), 7);
    for (filter, sales) in [
        ("customer == \"Ali*\"", 2),
        ("euros > 15.0", 2),
        ("change == -3", 1),
        ("large", 0),
        ("payment == 10", 1),
        ("code == \"abcd\"", 3),
        ("id >= 2 && payment == 2", 1),
    ] {
        assert_eq!(count(&["-u", "shop:sale", "--filter", filter]), sales, "{filter}");
    }
}

/// Live, addresses of a program that runs have names, which are those of its symbol table.
#[test]
fn addresses_of_a_running_program_are_functions() {
    if !require(NEEDS) {
        return;
    }
    let shop = Shop::new();
    let ask = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(["trace", "-u", "shop:sale", "-n", "3"]).args(more).arg("--");
        command.arg(&shop.program).args(["4", "-"]).env("KYMO_UST_DIR", shop.dir.path());
        // The program stays until its standard input ends.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let text = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
        drop(child.stdin.take());
        let _ = child.wait().unwrap();
        // The program has a line of its own.
        text.lines().filter(|line| line.contains("sale")).map(str::to_owned).collect::<Vec<_>>()
    };
    for (more, end) in
        [(&[][..], ", sold by sell+0x0"), (&["--json"], "EUR by Voucher, sold by sell+0x0\"}")]
    {
        let lines = ask(more);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.last().is_some_and(|line| line.ends_with(end)), "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("sell+0x0")), "{lines:?}");
    }
}

#[test]
fn what_is_written_is_what_babeltrace_reads() {
    if !require(NEEDS) {
        return;
    }
    let shop = Shop::new();
    let out = shop.dir.path().join("out");
    let (out, program) = (out.to_str().unwrap(), shop.program.to_str().unwrap());
    shop.kymo(&["trace", "-u", "shop:*", "-o", out, "--", program, "4"]);
    let theirs = Command::new("babeltrace2").arg(out).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&theirs.stderr), "", "no warning");
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    let ours = shop.kymo(&["script", out]);
    assert_eq!(ours.lines().count(), theirs.lines().count());
    assert_eq!(ours.lines().count(), 11);
    let fields = |line: &str| line.split_once("sale: ").map(|(_, fields)| fields.to_owned());
    let ours: Vec<_> = ours.lines().filter_map(fields).collect();
    let due = [
        "sale 1 to Alice: 10.01 EUR by Card, sold by sell+0x0",
        "sale 2 to (null): 20.02 EUR by Card, sold by sell+0x0",
        "sale 3 to Alice: 30.03 EUR by Voucher, sold by sell+0x0",
    ];
    assert_eq!(ours, due);
    let objects = shop.kymo(&["script", "--json", out]);
    let objects = objects.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
    let sales: Vec<_> = objects.filter(|o| o["event"] == "shop:sale").collect();
    assert_eq!(sales.len(), 3);
    assert_eq!(sales[2]["message"], due[2]);
    let mut fields = sales[2]["fields"].clone();
    let seller = fields.as_object_mut().unwrap().remove("seller").unwrap();
    assert_eq!(seller["label"], "sell+0x0");
    assert!(seller["value"].as_u64().is_some_and(|address| address % 0x1000 != 0), "{seller}");
    assert_eq!(
        fields,
        serde_json::json!({
            "id": 3, "customer": "Alice", "euros": 30.03, "change": -3, "large": false,
            "payment": {"label": "Voucher", "value": 10}, "code": [97, 98, 99, 100],
            "articles_length": 3, "articles": [1, 2, 3],
        })
    );
    let theirs: Vec<_> = theirs.lines().filter(|line| line.contains("shop:sale")).collect();
    let due = [
        "id = 1, customer = \"Alice\", euros = 10.01, change = -1, \
         large = ( \"false\" : container = 0 ), payment = ( \"Card\" : container = 2 )",
        "id = 2, customer = \"(null)\", euros = 20.02, change = -2, \
         large = ( \"false\" : container = 0 ), payment = ( \"Card\" : container = 2 )",
        "id = 3, customer = \"Alice\", euros = 30.03, change = -3, \
         large = ( \"false\" : container = 0 ), payment = ( \"Voucher\" : container = 10 )",
    ];
    for (line, due) in theirs.iter().zip(due) {
        assert!(line.contains(due), "{line}");
    }
}

/// A recording is shown as the program was seen live, field by field: also if no reader ran while
/// the program did, and if its request for events came from a session.
#[test]
fn a_recording_reads_as_live() {
    if !require(NEEDS) {
        return;
    }
    let shop = Shop::new();
    let program = shop.program.to_str().unwrap();
    let path = |name: &str| shop.dir.path().join(name).to_str().unwrap().to_owned();
    let sales = |text: String| -> Vec<String> {
        let payload = |line: &str| line.split_once(": shop:").map(|(_, rest)| rest.to_owned());
        text.lines().filter_map(payload).collect()
    };
    let live = shop.live(&["-u", "shop:*"]);
    assert_eq!(live.len(), 11);
    let drained = path("drained");
    shop.kymo(&["trace", "-u", "shop:*", "-o", &drained, "--", program, "4"]);
    assert_eq!(sales(shop.kymo(&["script", &drained])), live);
    // No reader before the program has ended.
    shop.kymo(&["session", "create", "box", "-u", "shop:*"]);
    shop.kymo(&["session", "start", "box"]);
    let mut ended = Command::new(&shop.program);
    ended.arg("4").env("KYMO_UST_DIR", shop.dir.path()).stdout(Stdio::null());
    assert!(ended.status().unwrap().success());
    let snapshot = path("snapshot");
    shop.kymo(&["session", "snapshot", "box", "-o", &snapshot]);
    assert_eq!(sales(shop.kymo(&["script", &snapshot])), live);
    // A program that is killed, whose session's tool is never seen again.
    let mut killed = Command::new(&shop.program);
    killed.args(["4", "-"]).env("KYMO_UST_DIR", shop.dir.path());
    let mut child = killed.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "6006 cents");
    child.kill().unwrap();
    child.wait().unwrap();
    let recovered = path("recovered");
    shop.kymo(&["session", "snapshot", "box", "-o", &recovered]);
    assert_eq!(sales(shop.kymo(&["script", &recovered])), live);
    shop.kymo(&["session", "destroy", "box"]);
    // A file that was replaced since gives no names.
    let (mut other, old) = (Command::new("gcc"), path("old"));
    std::fs::rename(&shop.program, &old).unwrap();
    other.args(["-x", "c", "-", "-o", program]).stdin(Stdio::piped());
    let mut other = other.spawn().unwrap();
    let source = b"int main(void) { return 0; }";
    std::io::Write::write_all(&mut other.stdin.take().unwrap(), source).unwrap();
    assert!(other.wait().unwrap().success());
    let nameless = sales(shop.kymo(&["script", &drained]));
    assert_eq!(nameless.len(), 11);
    assert!(!nameless.iter().any(|line| line.contains("sell+")), "{nameless:?}");
}

#[test]
fn a_running_program_is_listed() {
    if !require(NEEDS) {
        return;
    }
    let shop = Shop::new();
    let mut command = Command::new(&shop.program);
    command.args(["1", "-"]).env("KYMO_UST_DIR", shop.dir.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "0 cents");
    let text = shop.kymo(&["list", "-v", "ust"]);
    for due in ["shop:sale", "shop:door_opened", "shop:door_closed", "Something has been sold."] {
        assert!(text.contains(due), "{due}: {text}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// Counters of the program and of the library, which is loaded twice.
#[test]
fn counters_are_shown_with_those_of_a_library() {
    if !require(NEEDS) {
        return;
    }
    let shop = Shop::new();
    let library = shop.dir.path().join("libshop.so");
    let crate_ = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kymo-tracepoint");
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC", "-DLIBRARY"]);
    gcc.arg(crate_.join("examples/shop.c")).arg("-I").arg(crate_.join("include"));
    assert!(gcc.arg("-o").arg(&library).status().unwrap().success());
    let (program, library) = (shop.program.to_str().unwrap(), library.to_str().unwrap());
    let text = shop.kymo(&["count", "-u", "shop:*", "--", program, "4", library]);
    let row = |count: &str, words: &str| {
        let is_row = |line: &str| line.starts_with(&format!("{count} ")) && line.ends_with(words);
        assert!(text.lines().any(|line| is_row(line.trim())), "{count} {words} in {text}");
    };
    row("2", "shop:parcels");
    row("2", "shop:payments  card");
    row("2", "shop:payments  voucher");
    assert!(text.contains("shop:basket_cents: 4 values from 0 to 3,003; average 1,501,"), "{text}");
}

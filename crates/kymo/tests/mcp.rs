//! `kymo mcp`: what its tools answer is what the commands say, in pages of a bounded size; whatever
//! a client sends gets a reply of the protocol.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use kymo_testkit::{Need, require, run};
use serde_json::{Value, json};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64");
/// Most bytes of an answer's text.
const MOST: usize = 16_000;

/// A server, and a client of it.
struct Server {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    id: u64,
}

impl Server {
    fn start(args: &[&str]) -> Server {
        let mut child = Command::new(KYMO)
            .arg("mcp")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Server { child, to, from, id: 0 }
    }

    fn send(&mut self, line: &str) {
        let to = self.to.as_mut().unwrap();
        to.write_all(line.as_bytes()).unwrap();
        to.write_all(b"\n").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.from.read_line(&mut line).unwrap() > 0, "the server has ended");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.id += 1;
        let message = json!({
            "jsonrpc": "2.0", "id": self.id, "method": method, "params": parameters,
        });
        self.send(&message.to_string());
        let reply = self.receive();
        assert_eq!((&reply["jsonrpc"], &reply["id"]), (&json!("2.0"), &json!(self.id)));
        reply
    }

    /// Calls a tool: its text, or that of its error.
    fn call(&mut self, name: &str, arguments: &Value) -> Result<Value, String> {
        let reply = self.ask("tools/call", &json!({"name": name, "arguments": arguments}));
        let result = &reply["result"];
        assert!(result.is_object(), "{reply}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.len() <= MOST, "{}", text.len());
        if result["isError"] == true {
            return Err(text.to_owned());
        }
        Ok(serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}")))
    }

    fn end(mut self) {
        drop(self.to.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn tools_answer_what_the_commands_say() {
    let mut server = Server::start(&["--directory", FIXTURES]);
    let hello = json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let hello = server.ask("initialize", &hello);
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(hello["result"]["serverInfo"]["name"], "kymo");
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(server.ask("ping", &json!({}))["result"], json!({}));
    let list = server.ask("tools/list", &json!({}));
    let names: Vec<&str> = list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["recordings", "tables", "query", "report", "why", "diff"]);

    let all = server.call("recordings", &json!({})).unwrap();
    let named = |name: &str| {
        let row = all["rows"].as_array().unwrap().iter().find(|row| row["name"] == name);
        row.cloned().unwrap_or_else(|| panic!("{name}: {all}"))
    };
    let bytes = std::fs::metadata(format!("{FIXTURES}/sched.data")).unwrap().len();
    assert_eq!(named("sched.data")["bytes"], bytes);
    assert_eq!(named("sched.data")["format"], "perf.data");
    assert!(all["rows"].as_array().unwrap().iter().all(|row| row["name"] != "fp.script.txt"));

    // Sessions and traces are recordings, and so is the directory of one; one that has some further
    // below, beside other files, is not.
    let mut formats = |directory: &str| -> Vec<(String, String)> {
        let answer = server.call("recordings", &json!({"directory": directory})).unwrap();
        let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
        let rows = answer["rows"].as_array().unwrap().iter();
        let mut rows: Vec<_> = rows.map(|row| (text(row, "name"), text(row, "format"))).collect();
        rows.sort();
        rows
    };
    let is = |name: &str, format: &str| (name.to_owned(), format.to_owned());
    let sessions =
        [is("kymo-programs", "CTF"), is("kymo-session", "session"), is("lttng-ust", "CTF")];
    assert_eq!(formats("../../ctf/x86_64"), sessions);
    assert_eq!(formats("../../ctf/x86_64/lttng-ust"), [is(".", "CTF")]);
    assert_eq!(formats("../../ctf-2/x86_64/lttng-ust"), [is(".", "CTF")]);
    assert_eq!(formats("../../made/ctf2-origin"), [is(".", "CTF")]);
    for above in ["../../ctf", "../..", "../../../..", "../../../../.."] {
        assert_eq!(formats(above), [], "{above}");
    }

    let columns = server.call("tables", &json!({"table": "sched_slice"})).unwrap();
    let columns = columns["rows"].as_array().unwrap();
    assert!(columns.iter().any(|row| row["column"] == "wakeup_delay"));

    // Pages of a query are the lines of the command.
    let query = "SELECT * FROM sched_slice ORDER BY id";
    let path = format!("{FIXTURES}/sched.data");
    let lines = run(KYMO, ["sql", "--json", &path, query]).success().stdout;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 200, "{}", lines.len());
    let (mut rows, mut offset, mut pages) = (Vec::new(), json!(0), 0);
    while !offset.is_null() {
        let arguments = json!({"recordings": ["sched.data"], "sql": query, "offset": offset});
        let page = server.call("query", &arguments).unwrap();
        assert_eq!(page["total"], lines.len());
        pages += 1;
        rows.extend(page["rows"].as_array().unwrap().clone());
        offset = page["next"].clone();
    }
    assert_eq!(rows, lines);
    assert!(pages > 1, "{pages}");

    let path = format!("{FIXTURES}/fp.data");
    let whole = run(KYMO, ["report", "--json", "-i", &path]).success().stdout;
    let whole: Value = serde_json::from_str(&whole).unwrap();
    let first = &whole["events"][0]["entries"][0];
    let report = server.call("report", &json!({"recording": "fp.data"})).unwrap();
    let tables = report["tables"].as_object().unwrap();
    let (_, entries) = tables.iter().find(|(name, _)| !name.ends_with(')')).unwrap();
    assert_eq!(entries[0]["symbol"], first["symbol"], "{report}");
    assert_eq!(entries[0]["percent"], first["percent"], "{report}");

    // What a recording lacks is in the ledger.
    let why = server.call("why", &json!({"recording": "fp.data"})).unwrap();
    assert!(why["ledger"][0]["fact"].as_str().unwrap().contains("there are no"), "{why}");
    let one = json!({"before": ["fp.data"], "after": ["fp.data"]});
    let diff = server.call("diff", &one);
    assert!(diff.is_ok_and(|diff| diff["tables"].is_object()));
    server.end();
}

#[test]
fn mistakes_are_named() {
    let mut server = Server::start(&["--directory", FIXTURES]);
    let query = |sql: &str| json!({"recordings": ["sched.data"], "sql": sql});
    let mut fails = |name: &str, arguments: &Value, part: &str| {
        let text = server.call(name, arguments).unwrap_err();
        assert!(text.contains(part), "{name} {arguments}: {text}");
    };
    fails("query", &query("SELECT x FROM nowhere"), "no such table: nowhere");
    fails("query", &query("DELETE FROM thread"), "may not be modified");
    fails("query", &json!({"recordings": ["sched.data"]}), "sql is missing");
    fails("query", &json!({"recordings": [], "sql": "SELECT 1"}), "recordings is empty");
    fails("query", &json!({"recordings": ["nowhere"], "sql": "SELECT 1"}), "nowhere");
    fails("query", &json!({"recordings": ["--save"], "sql": "SELECT 1"}), "./--save");
    fails("report", &json!({"recording": "fp.script.txt"}), "fp.script.txt");
    fails("report", &json!({"recording": "fp.data", "offset": -1}), "offset: not a count");
    fails("why", &json!({"recording": "fp.data", "file": 1}), "unknown argument \"file\"");
    fails("tables", &json!({"table": "nowhere"}), "no table \"nowhere\"");
    for (line, code) in [
        ("{", -32700),
        ("[]", -32600),
        (r#"{"id":[],"method":"ping"}"#, -32600),
        (r#"{"id":1}"#, -32600),
        (r#"{"id":1,"method":"resources/list"}"#, -32601),
        (r#"{"id":1,"method":"tools/call","params":{"name":"record"}}"#, -32602),
        (r#"{"id":1,"method":"tools/call"}"#, -32602),
    ] {
        server.send(line);
        assert_eq!(server.receive()["error"]["code"], code, "{line}");
    }
    server.send(&format!("\"{}\"", "x".repeat(2 << 20)));
    assert!(server.receive()["error"]["message"].as_str().unwrap().contains("at most"));
    // Nothing is said of notifications and replies, and it continues.
    server.send(r#"{"method":"notifications/cancelled","params":{}}"#);
    server.send(r#"{"id":7,"result":{}}"#);
    assert_eq!(server.ask("ping", &json!({}))["result"], json!({}));
    server.end();
}

/// Numbers that look random and are the same each time (xorshift64, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

/// 200 calls with arguments of any kind, some of which are right.
#[test]
fn calls_of_any_kind_are_answered_within_the_size() {
    let mut server = Server::start(&["--directory", FIXTURES]);
    let mut numbers = Numbers(0x5eed);
    let tools = ["recordings", "tables", "query", "report", "why", "diff", "record", ""];
    let names = [
        "recordings",
        "recording",
        "table",
        "sql",
        "offset",
        "sort",
        "pid",
        "span",
        "before",
        "after",
        "directory",
        "command",
        "\u{202e}\x1b[2J",
    ];
    let mut answered = 0;
    for _ in 0..200 {
        let tool = tools[numbers.below(tools.len())];
        let mut arguments = serde_json::Map::new();
        for _ in 0..numbers.below(4) {
            let name = names[numbers.below(names.len())];
            let value = match numbers.below(12) {
                0 => Value::Null,
                1 => json!(-1),
                2 => json!(u64::MAX),
                3 => json!(1e300),
                4 => json!("sched.data"),
                5 => json!(["sched.data"]),
                6 => json!("SELECT * FROM ftrace_event"),
                7 => json!("x".repeat(50_000)),
                8 => json!([[], {}, "\0"]),
                9 => json!({"a": {"b": []}}),
                10 => json!("\u{202e}\x1b]0;title\x07"),
                _ => json!("../../../../../etc/passwd"),
            };
            let _ = arguments.insert(name.to_owned(), value);
        }
        let parameters = json!({"name": tool, "arguments": arguments});
        let reply = server.ask("tools/call", &parameters);
        let text = reply["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.len() <= MOST, "{parameters}: {}", text.len());
        let is_error = reply["error"]["code"] == -32602 && !tools[..6].contains(&tool);
        assert!(is_error || !text.is_empty(), "{parameters}: {reply}");
        assert!(!text.contains(['\x1b', '\u{202e}', '\x07']), "{parameters}: {text}");
        answered += u32::from(reply["result"]["isError"] == false);
    }
    assert!(answered > 10, "{answered}");
    server.end();
}

#[test]
fn commands_are_run_only_where_that_is_allowed() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().to_str().unwrap();
    let command = ["sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo out >ran"];
    let arguments = json!({"command": command, "output": "a.data"});
    let mut server = Server::start(&["--directory", directory]);
    let reply = server.ask("tools/call", &json!({"name": "record", "arguments": arguments}));
    assert_eq!(reply["error"]["code"], -32602);
    server.end();
    assert!(!place.path().join("ran").exists());
    let mut server = Server::start(&["--directory", directory, "--allow-record"]);
    let recorded = server.call("record", &arguments).unwrap();
    assert_eq!((&recorded["recording"], &recorded["status"]), (&json!("a.data"), &json!(0)));
    assert!(place.path().join("ran").exists());
    let report = server.call("report", &json!({"recording": "a.data", "sort": "comm"})).unwrap();
    assert!(report["tables"].to_string().contains("\"sh\""), "{report}");
    let again = server.call("record", &arguments).unwrap_err();
    assert!(again.contains("a.data: the file exists"), "{again}");
    server.end();
}

//! Counters inside programs, as `kymo count -u` shows them: this test binary is started again as
//! the program, in a shared directory of the test's own. What was counted is known, and what is
//! shown is exactly that, however programs end.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, ledger_of, page_with_ledger, require, tracepoint_library};
use kymo_tracepoint::{counter, histogram};
use serde_json::{Value, json};

const ROLE: &str = "KYMO_TEST_COUNTERS";

/// The program: follows commands, and with `+` stays until it is killed.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, stays) = match role.strip_suffix('+') {
        Some(role) => (role, true),
        None => (role.as_str(), false),
    };
    let (what, n) = role.split_once(' ').unwrap_or((role, "0"));
    let n: u64 = n.parse().unwrap();
    match what {
        "work" => work(n),
        "threads" => {
            let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(move || work(n))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        "keys" => (0..n).for_each(|i| {
            counter!(work: many, by i);
            histogram!(work: wide, i, by format!("key {i} of a text that is longer than a word"));
        }),
        // Half of its children end in order, the others kill themselves.
        "children" => {
            let children: Vec<Child> = (0..n)
                .map(|i| {
                    let mut child = Command::new(std::env::current_exe().unwrap());
                    child.args(["--exact", "role", "--nocapture"]).stdout(Stdio::null());
                    child.env(ROLE, if i % 2 == 0 { "work 100" } else { "killed 100" });
                    child.spawn().unwrap()
                })
                .collect();
            children.into_iter().for_each(|mut child| _ = child.wait().unwrap());
        }
        "killed" => {
            work(n);
            let me = std::process::id().to_string();
            Command::new("kill").args(["-KILL", &me]).status().unwrap();
        }
        _ => panic!("{what}"),
    }
    if stays {
        println!("\ndone");
        std::io::stdout().flush().unwrap();
        // A failing test sends no signal: its end closes this.
        let _ = std::io::stdin().read(&mut [0]);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn work(n: u64) {
    for i in 0..n {
        counter!(
            /// Steps of the work.
            work: steps
        );
        counter!(work: bytes, i);
        counter!(work: by_kind, by if i % 4 == 0 { "fourth" } else { "other" });
        counter!(work: by_odd, 2, by i % 2 == 1);
        histogram!(work: sizes, i);
        histogram!(work: signed, 5 - i as i64, by i % 3);
    }
}

/// A shared directory.
struct CounterDirectory(tempfile::TempDir);

impl CounterDirectory {
    fn new() -> CounterDirectory {
        CounterDirectory(tempfile::tempdir().unwrap())
    }

    fn program() -> [String; 4] {
        let me = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
        [me, "--exact".into(), "role".into(), "--nocapture".into()]
    }

    fn kymo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(args).env("KYMO_UST_DIR", self.0.path()).stdin(Stdio::null());
        command
    }

    /// `kymo count --json -u ARGS -- PROGRAM`.
    fn count(&self, args: &[&str], role: &str) -> Value {
        let program = CounterDirectory::program();
        let mut all = vec!["count", "--json", "--top", "0", "-u"];
        all.extend(args);
        all.push("--");
        all.extend(program.iter().map(String::as_str));
        json_of(&self.kymo(&all).env(ROLE, role).output().unwrap())
    }

    /// `kymo count --json -u ARGS`.
    fn shown(&self, args: &[&str]) -> Value {
        let all = [&["count", "--json", "--top", "0", "-u"], args].concat();
        let value = json_of(&self.kymo(&all).output().unwrap());
        let schema =
            kymo_testkit::JsonSchema::parse(include_str!("../../../docs/json.schema.json"));
        assert_eq!(schema.errors("count_programs", &value), Vec::<String>::new(), "{value}");
        value
    }

    /// Starts a program, which has counted when this returns.
    fn start(&self, role: &str) -> Child {
        let program = CounterDirectory::program();
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).env("KYMO_UST_DIR", self.0.path()).env(ROLE, role);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "done"), "the program ended");
        child
    }

    fn user(&self) -> PathBuf {
        let names = fs::read_dir(self.0.path()).into_iter().flatten().flatten();
        names.map(|e| e.path()).next().unwrap()
    }

    /// The directories of programs.
    fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.user()).unwrap().flatten().map(|e| e.path());
        entries.filter(|p| p.join("control").exists()).collect()
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn json_of(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {errors}", output.status);
    // Programs write to the same output before.
    let text = String::from_utf8_lossy(&output.stdout);
    let at = text.find("\n{").map_or(0, |at| at + 1);
    page_with_ledger(&text[at..], &errors)
}

/// The count of a counter, under a key if that is not null.
fn count_of(shown: &Value, name: &str, key: &Value) -> u64 {
    let rows = shown["rows"].as_array().unwrap().iter();
    let rows = rows.filter(|row| row["name"] == name && row["key"] == *key);
    rows.map(|row| row["count"].as_u64().unwrap()).sum()
}

fn row_of<'a>(shown: &'a Value, name: &str, key: &Value) -> &'a Value {
    let mut rows = shown["rows"].as_array().unwrap().iter();
    rows.find(|row| row["name"] == name && row["key"] == *key).unwrap()
}

/// Asserts the counts of `times` calls of `work(n)`.
fn check_work(shown: &Value, n: u64, times: u64) {
    let count = |name: &str, key: Value| count_of(shown, name, &key);
    let none = Value::Null;
    assert_eq!(count("work:steps", none.clone()), n * times, "{shown:#}");
    let sum = n * (n - 1) / 2;
    assert_eq!(count("work:bytes", none.clone()), sum * times);
    assert_eq!(count("work:by_kind", json!("fourth")), n.div_ceil(4) * times);
    assert_eq!(count("work:by_kind", json!("other")), (n - n.div_ceil(4)) * times);
    assert_eq!(count("work:by_odd", json!("true")), n / 2 * 2 * times);
    let sizes = row_of(shown, "work:sizes", &none);
    assert_eq!((&sizes["count"], &sizes["sum"]), (&json!(n * times), &json!(sum * times)));
    let buckets = sizes["buckets"].as_array().unwrap();
    let in_buckets: u64 = buckets.iter().map(|b| b["count"].as_u64().unwrap()).sum();
    assert_eq!(in_buckets, n * times);
    assert_eq!(buckets[0], json!({"from": 0, "to": 1, "count": times}));
    let signed: u64 = (0..3).map(|key| count("work:signed", json!(key))).sum();
    assert_eq!(signed, n * times);
    let least = row_of(shown, "work:signed", &json!((n - 1) % 3));
    assert_eq!(least["min"], json!(5 - (n as i64 - 1)), "{least}");
}

#[test]
fn threads_of_a_command_lose_nothing() {
    let place = CounterDirectory::new();
    let shown = place.count(&[], "threads 20000");
    check_work(&shown, 20_000, 8);
    assert_eq!((&shown["programs"], &shown["ledger"]), (&json!(1), &json!([])));
    assert_eq!(place.left(), Vec::<PathBuf>::new(), "nothing is left behind");
    // No tool counts any more: programs that end in order leave nothing.
    let program = CounterDirectory::program();
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).env("KYMO_UST_DIR", place.0.path()).env(ROLE, "work 10");
    assert!(command.output().unwrap().status.success());
    assert_eq!(place.left(), Vec::<PathBuf>::new());
}

#[test]
fn processes_that_come_and_go_are_all_counted() {
    let place = CounterDirectory::new();
    let shown = place.count(&["work:*"], "children 20");
    check_work(&shown, 100, 20);
    // The killed stay, for who comes later; their counts are in no later run.
    assert_eq!(place.left().len(), 10);
    check_work(&place.count(&[], "children 2"), 100, 2);
    let by = place.shown(&["--by", "pid,comm"]);
    let rows = by["rows"].as_array().unwrap().iter();
    let steps: Vec<&Value> = rows.filter(|row| row["name"] == "work:steps").collect();
    assert_eq!(steps.len(), 11);
    assert!(steps.iter().all(|row| row["count"] == 100 && row["pid"].is_u64()), "{steps:?}");
    assert!(steps.iter().all(|row| row["comm"].is_string()));
}

/// Services have mount namespaces of their own, most of which show the machine's `/dev/shm`: a
/// program in there is one program all the same.
#[test]
fn mount_namespaces_that_show_the_same_directory_count_nothing_twice() {
    if !require(&[Need::Root, Need::Tool("unshare")]) {
        return;
    }
    let mut other = Command::new("unshare");
    let other = other.args(["-m", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = other.spawn().unwrap();
    // It is in its namespace when it answers.
    other.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    other.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let program = CounterDirectory::program();
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).env_remove("KYMO_UST_DIR").env(ROLE, "work 100+");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "done"));
    let pid = child.id().to_string();
    let kymo = |args: &[&str]| {
        let mut kymo = Command::new(env!("CARGO_BIN_EXE_kymo"));
        kymo.args(args).env_remove("KYMO_UST_DIR").output().unwrap()
    };
    let shown = json_of(&kymo(&["count", "--json", "--top", "0", "-u", "work:*", "-p", &pid]));
    let listed = kymo(&["list", "--json", "ust"]).stdout;
    // Its end leaves nothing.
    drop(child.stdin.take());
    child.wait().unwrap();
    drop(other.stdin.take());
    other.wait().unwrap();
    check_work(&shown, 100, 1);
    assert_eq!(shown["programs"], 1);
    let listed: Vec<Value> = serde_json::from_slice(&listed).unwrap();
    let steps = listed.iter().find(|event| event["name"] == "work:steps").unwrap();
    let programs = steps["programs"].as_array().unwrap().iter();
    assert_eq!(programs.filter(|p| p["pid"] == child.id()).count(), 1, "{steps}");
}

#[test]
fn counts_of_the_killed_stay_until_they_are_forgotten() {
    let place = CounterDirectory::new();
    let program = place.start("work 1000+");
    let pid = program.id().to_string();
    let alive = place.shown(&[]);
    check_work(&alive, 1000, 1);
    assert_eq!((&alive["programs"], &alive["ended"]), (&json!(1), &json!(0)));
    assert_eq!(row_of(&alive, "work:sizes", &Value::Null)["max"], 999);
    kill(program);
    let dead = place.shown(&["-p", &pid]);
    check_work(&dead, 1000, 1);
    assert_eq!((&dead["programs"], &dead["ended"]), (&json!(1), &json!(1)));
    let mut text = place.kymo(&["count", "-u", "work:b*", "--forget"]);
    let text = String::from_utf8(text.output().unwrap().stdout).unwrap();
    assert!(
        text.starts_with("3 counters of 1 program, which has ended, since it started."),
        "{text}"
    );
    for line in ["250  work:by_kind  fourth", "750  work:by_kind  other", "499,500  work:bytes"] {
        assert!(text.lines().any(|l| l.trim() == line), "{line:?} in {text}");
    }
    assert_eq!(place.shown(&[])["programs"], 0);
    assert_eq!(place.left(), Vec::<PathBuf>::new());
}

#[test]
fn keys_beyond_the_table_are_counted_together_and_told() {
    let place = CounterDirectory::new();
    let shown = place.count(&["work:many,work:wide"], "keys 1000");
    let of = |name: &str| -> Vec<&Value> {
        shown["rows"].as_array().unwrap().iter().filter(|row| row["name"] == name).collect()
    };
    for (name, keys) in [("work:many", 256), ("work:wide", 64)] {
        let rows = of(name);
        assert_eq!(rows.len(), keys + 1, "{name}");
        let others: Vec<&&Value> = rows.iter().filter(|row| row["other_keys"] == true).collect();
        assert_eq!(others.len(), 1);
        assert_eq!(others[0]["count"], 1000 - keys);
        assert!(rows.iter().all(|row| row["count"] == 1 || row["other_keys"] == true));
    }
    let cut = of("work:wide").into_iter().find(|row| row["cut"] == true).unwrap();
    assert_eq!(cut["key"].as_str().unwrap().len(), 40);
    let ledger = shown["ledger"].as_array().unwrap();
    let kinds: Vec<&str> = ledger.iter().map(|note| note["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["keys", "keys"], "{ledger:?}");
    let program = CounterDirectory::program();
    let mut strict = vec!["count", "-u", "--strict", "--"];
    strict.extend(program.iter().map(String::as_str));
    let strict = place.kymo(&strict).env(ROLE, "keys 300").output().unwrap();
    assert_eq!(strict.status.code(), Some(3));
    let text = String::from_utf8_lossy(&strict.stdout);
    assert!(text.contains("(other keys)") && text.contains("(237 others)"), "{text}");
}

#[test]
fn two_readers_see_the_same() {
    let place = CounterDirectory::new();
    let stays = ["count", "-u", "--json", "--top", "0", "-a", "--", "sh", "-c", "read line"];
    let mut first = place.kymo(&stays);
    first.env("KYMO_UST", "off").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut first = first.spawn().unwrap();
    let begin = Instant::now();
    let is_counting = || {
        let users = fs::read_dir(place.0.path()).unwrap().flatten();
        let mut marks = users.flat_map(|e| fs::read_dir(e.path().join("counting")).into_iter());
        let is_mark = |e: fs::DirEntry| !e.file_name().to_string_lossy().starts_with('.');
        marks.any(|dir| dir.flatten().any(is_mark))
    };
    while !is_counting() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(2));
    }
    check_work(&place.count(&[], "children 6"), 100, 6);
    check_work(&place.count(&[], "work 50"), 50, 1);
    let mut stdin = first.stdin.take().unwrap();
    stdin.write_all(b"\n").unwrap();
    let shown = json_of(&first.wait_with_output().unwrap());
    assert_eq!(count_of(&shown, "work:steps", &Value::Null), 650, "{shown:#}");
    assert_eq!(place.left().len(), 3, "the killed");
}

#[test]
fn intervals_show_what_came() {
    let place = CounterDirectory::new();
    let program = CounterDirectory::program();
    let mut args = vec!["count", "-u", "work:steps", "--json", "-i", "1", "--"];
    args.extend(program.iter().map(String::as_str));
    let output = place.kymo(&args).env(ROLE, "children 4").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    assert_eq!(ledger_of(&String::from_utf8_lossy(&output.stderr)), json!([]), "{text}");
    let steps = lines.iter().map(|shown| count_of(shown, "work:steps", &Value::Null));
    assert_eq!(steps.sum::<u64>(), 400, "{text}");
}

#[test]
fn they_are_listed() {
    let place = CounterDirectory::new();
    let program = place.start("work 10+");
    let output = place.kymo(&["list", "ust", "work:*", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = listed.as_array().unwrap().iter().find(|e| e["name"] == "work:steps").unwrap();
    assert_eq!(steps["label"], "User counter");
    assert_eq!(steps["description"], "Steps of the work.");
    assert_eq!(steps["programs"][0]["pid"], program.id());
    let output = place.kymo(&["list", "-v", "work:signed"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("[User histogram]") && text.contains("by key, "), "{text}");
    kill(program);
    let output = place.kymo(&["list", "ust", "work:*", "--json"]).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), json!([]));
}

/// A user without privileges sees the counters of their own programs, and no others.
#[test]
fn nobody_sees_his_own() {
    if !require(&[Need::Root]) {
        return;
    }
    let place = CounterDirectory::new();
    fs::set_permissions(place.0.path(), Permissions::from_mode(0o777)).unwrap();
    let of_root = place.start("work 10+");
    // Copies that he may run, wherever the directory of the build is.
    let copy = |path: &Path, name: &str| {
        let to = place.0.path().join(name);
        // By a process of its own: no other has it open for writing when it is started.
        assert!(Command::new("cp").arg(path).arg(&to).status().unwrap().success());
        fs::set_permissions(&to, Permissions::from_mode(0o755)).unwrap();
        to
    };
    let kymo = copy(Path::new(env!("CARGO_BIN_EXE_kymo")), "kymo");
    let program = copy(&std::env::current_exe().unwrap(), "program");
    let mut command = Command::new(kymo);
    command.args(["count", "-u", "--json", "--top", "0", "--"]).arg(program);
    command.args(["--exact", "role", "--nocapture"]).env(ROLE, "threads 500");
    command.env("KYMO_UST_DIR", place.0.path()).current_dir("/").uid(65534).gid(65534);
    check_work(&json_of(&command.output().unwrap()), 500, 8);
    kill(of_root);
}

#[test]
fn a_program_in_c_with_threads_signals_and_forks() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let place = CounterDirectory::new();
    let program = place.0.path().join("counting");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    gcc.arg(here.join("tests/programs/counting.c"));
    gcc.arg("-I").arg(here.join("../kymo-tracepoint/include"));
    gcc.arg(tracepoint_library(Path::new(env!("CARGO_TARGET_TMPDIR"))));
    gcc.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
    let output = gcc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let program = program.to_str().unwrap();
    let args = ["count", "-u", "counting:*", "--json", "--top", "0", "--", program, "6", "5000"];
    let shown = json_of(&place.kymo(&args).output().unwrap());
    let count = |name: &str, key: Value| count_of(&shown, name, &key);
    assert_eq!(count("counting:hits", Value::Null), 30_000, "{shown:#}");
    let threads = (0..6).map(|n| count("counting:by_thread", json!(n)));
    assert_eq!(threads.collect::<Vec<u64>>(), [5000; 6]);
    let raised = count("counting:raised", Value::Null);
    assert_eq!(raised, 6 * 5);
    assert_eq!(count("counting:handled", Value::Null), raised);
    assert_eq!(count("counting:by_thread", json!(-1)), raised);
    assert_eq!(row_of(&shown, "counting:numbers", &Value::Null)["sum"], 6 * 5000 * 4999 / 2);
    assert_eq!(row_of(&shown, "counting:odd", &json!("odd"))["max"], 4999);
    for end in ["exit", "_exit", "kill", "(null)"] {
        assert_eq!(count("counting:by_end", json!(end)), 5000, "{end}");
    }
}

/// Whatever stands in the file of counters, kymo ends by itself and in bounded memory.
#[test]
fn files_that_cannot_be_right_do_no_harm() {
    let place = CounterDirectory::new();
    kill(place.start("work 100+"));
    let file = place.left()[0].join("counters");
    let honest = fs::read(&file).unwrap();
    let kymo = |args: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["-s", "ABRT", "60", "prlimit", "--as=3221225472"]);
        command.arg(env!("CARGO_BIN_EXE_kymo")).args(args);
        command.env("KYMO_UST_DIR", place.0.path()).env("KYMO_UST", "off");
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.signal().is_none(), "{:?} {errors}", output.status);
        assert!(!matches!(output.status.code(), Some(101 | 124 | 134)), "{errors}");
        String::from_utf8_lossy(&output.stdout).into_owned() + &errors
    };
    let show = || kymo(&["count", "-u"]) + &kymo(&["list", "ust"]);
    let write = |bytes: &[u8]| fs::write(&file, bytes).unwrap();
    assert!(show().contains("work:steps"));
    // Numbers of the head, of records and of the first table, each made absurd.
    let (records, tables) = (4096, 4096 + 512 * 1024);
    let heads = (0..128).step_by(4).map(|at| (at, u32::MAX));
    let records = (0..8).flat_map(|n| (0..5).map(move |word| (records + 512 * n + 4 * word, 3)));
    let keys = (0..40).map(|n| (tables + 64 * n + 12, u32::MAX));
    let mut last = String::new();
    for (n, (at, value)) in heads.chain(records).chain(keys).enumerate() {
        let mut bytes = honest[..tables + (64 << 10)].to_vec();
        let value = if n % 2 == 0 { value } else { value.wrapping_sub(1) };
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        write(&bytes);
        File::options().write(true).open(&file).unwrap().set_len(honest.len() as u64).unwrap();
        last = show();
    }
    assert!(!last.is_empty());
    // What was counted: every word as large as it can be.
    let mut bytes = honest.clone();
    bytes[5 << 20..].fill(0xff);
    write(&bytes);
    assert!(show().contains("work:steps"));
    for cut in [0, 7, 8, 100, 135, 136, 4096, 5000, 5 << 20, honest.len() - 1] {
        write(&honest[..cut]);
        show();
    }
    // Many CPUs, and a file that is as large as that, with holes.
    write(&honest[..8192]);
    let sparse = File::options().write(true).open(&file).unwrap();
    sparse.write_all_at(&8191u32.to_le_bytes(), 24).unwrap();
    sparse.set_len((5 << 20) + (8192 << 21)).unwrap();
    assert!(show().contains("number of CPUs"));
    // While it is cut and grows.
    write(&honest);
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(&file).unwrap();
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                file.set_len(4096).unwrap();
                file.write_all_at(&honest[..1 << 20], 0).unwrap();
                file.set_len(honest.len() as u64).unwrap();
            }
        });
        (0..10).for_each(|_| drop(show()));
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

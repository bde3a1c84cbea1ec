//! Results for programs: what each command prints with `--json` is as docs/json.schema.json says,
//! and its ledger is one object on standard error, or in the file of `--ledger`.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::collections::BTreeSet;
use std::path::Path;

use kymo_testkit::{JsonSchema, Need, Outcome, Workload, ledger_of, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn schema() -> JsonSchema {
    JsonSchema::parse(include_str!("../../../docs/json.schema.json"))
}

/// Checks results, and remembers which definitions they were of.
struct Checked {
    schema: JsonSchema,
    seen: BTreeSet<String>,
}

impl Checked {
    fn new() -> Checked {
        Checked { schema: schema(), seen: BTreeSet::new() }
    }

    /// Each value on the standard output is of one definition; notes are on standard error.
    #[track_caller]
    fn check(&mut self, definition: &str, args: &[&str]) -> Outcome {
        let out = run(KYMO, args);
        let values = serde_json::Deserializer::from_str(&out.stdout).into_iter::<Value>();
        let mut count = 0;
        for value in values {
            let value = value.unwrap_or_else(|e| panic!("{args:?}: {e}: {}", out.stdout));
            let errors = self.schema.errors(definition, &value);
            assert!(errors.is_empty(), "{args:?}: {errors:#?}\n{value}");
            count += 1;
        }
        assert!(count > 0, "{args:?}: {out:?}");
        self.seen.insert(definition.to_owned());
        self.check_ledger(&out);
        out
    }

    #[track_caller]
    fn check_ledger(&self, out: &Outcome) {
        let lines = out.stderr.lines().filter(|l| l.starts_with('{'));
        for line in lines {
            let value: Value = serde_json::from_str(line).unwrap();
            assert_eq!(self.schema.errors("ledger", &value), Vec::<String>::new(), "{line}");
        }
        // No ledger in words beside it.
        assert!(!out.stderr.contains("Trust:") && !out.stderr.contains("Note:"), "{out:?}");
        let _ = ledger_of(&out.stderr);
    }
}

#[test]
fn the_schema_states_its_version() {
    assert_eq!(schema().id(), "kymo-json-2");
    let document = include_str!("../../../docs/json.md");
    assert!(document.contains("Version 2"), "docs/json.md states the version");
}

/// Files of the documentation with the parts that follow from columns of answers: a line for each
/// definition of the schema, and what stands between two comments of the reference.
fn generated(schema: &str, reference: &str) -> (String, String) {
    let (mut schema, mut reference) = (schema.to_owned(), reference.to_owned());
    let mut answers = kymo_analysis::answer_schemas();
    answers.push(kymo_view::diff::answer_schema());
    for answer in answers {
        let start = format!("    \"{}\": ", answer.name);
        let from = schema.find(&start).unwrap_or_else(|| panic!("no definition {}", answer.name));
        let to = from + schema[from..].find('\n').unwrap();
        let comma = if schema[from..to].ends_with(',') { "," } else { "" };
        schema.replace_range(from..to, &format!("{start}{}{comma}", answer.to_json()));
        let start = format!("<!-- generated: {} -->\n", answer.name);
        let from = reference.find(&start).unwrap_or_else(|| panic!("no section {}", answer.name));
        let from = from + start.len();
        let to = from + reference[from..].find("<!-- end -->").unwrap();
        reference.replace_range(from..to, &format!("{}\n", answer.to_markdown()));
    }
    (schema, reference)
}

/// The documentation of answers that are tables is generated: `BLESS=1` renews it.
#[test]
fn the_documentation_follows_from_the_columns() {
    let file = |name: &str| format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let (schema, reference) = (read("json.schema.json"), read("json.md"));
    let (new_schema, new_reference) = generated(&schema, &reference);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(file("json.schema.json"), &new_schema).unwrap();
        std::fs::write(file("json.md"), &new_reference).unwrap();
        return;
    }
    assert_eq!(schema, new_schema, "BLESS=1 renews docs/json.schema.json");
    assert_eq!(reference, new_reference, "BLESS=1 renews docs/json.md");
}

#[test]
fn results_of_recordings_are_as_the_schema_says() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let mut checked = Checked::new();
    let workload = Workload::syscalls();
    let script = format!("{} 2000; sleep 0.05; cat /dev/null", workload.arg());
    let command = ["--", "sh", "-c", &script];
    let record = |args: &[&str], name: &str| {
        let file = path(name);
        let _ = run(KYMO, [args, &["-q", "-o", &file], &command].concat()).success();
        file
    };
    let sched = record(&["sched", "record"], "sched.data");
    checked.check("sched_latency", &["sched", "latency", "--json", "-i", &sched]);
    checked
        .check("sched_timehist", &["sched", "timehist", "-S", "-w", "-M", "--json", "-i", &sched]);
    checked.check("sched_map", &["sched", "map", "--json", "-i", &sched]);
    let classes = run(KYMO, ["list", "--json", "-i", &sched]).success();
    let classes: Value = serde_json::from_str(&classes.stdout).unwrap();
    for class in classes.as_array().unwrap() {
        assert_eq!(checked.schema.errors("class", class), Vec::<String>::new(), "{class}");
    }
    let off = record(&["offcpu", "record"], "off.data");
    checked.check("offcpu", &["offcpu", "report", "--json", "-i", &off]);
    checked.check("why", &["why", "--json", "-i", &off, "--comm", "sh"]);
    let calls = record(&["syscalls", "record"], "calls.data");
    checked.check("syscalls", &["syscalls", "report", "--json", "-i", &calls]);
    let memory = record(&["kmem", "record"], "kmem.data");
    checked.check("kmem_stat", &["kmem", "stat", "--json", "--caller", "--alloc", "-i", &memory]);
    checked.check("kmem_pagealloc", &["kmem", "pagealloc", "--json", "-i", &memory]);
    let work = record(&["kwork", "-k", "irq,softirq,workqueue,sched", "record"], "kwork.data");
    checked.check("kwork_report", &["kwork", "report", "--json", "-i", &work]);
    checked.check("kwork_top", &["kwork", "top", "--json", "-i", &work]);
    checked.check("kwork_timehist", &["kwork", "timehist", "--json", "-i", &work]);
    let locks = record(&["lock", "record"], "lock.data");
    checked.check("lock_contention", &["lock", "contention", "--json", "-i", &locks]);
    checked.check("lock_contention", &["lock", "report", "--json", "-i", &locks]);
    checked.check("lock_info", &["lock", "info", "--json", "-i", &locks]);
    let futex = record(&["lock", "record", "--futex"], "futex.data");
    checked.check("lock_futex", &["lock", "contention", "--futex", "--json", "-i", &futex]);
    let blocks = record(&["io", "record"], "io.data");
    checked.check("io_latency", &["io", "latency", "--json", "-i", &blocks]);
    checked.check("io_top", &["io", "top", "--json", "-i", &blocks]);
    let samples = path("samples.data");
    let what = ["record", "-q", "-g", "-e", "cpu-clock", "-F", "4000", "-o", &samples];
    let _ = run(KYMO, [&what[..], &command].concat()).success();
    checked.check("report", &["report", "--json", "-i", &samples]);
    checked.check("event", &["script", "--json", "-i", &samples]);
    checked.check("event_table", &["report", "--json", "-s", "event,comm", "-i", &sched]);
    checked.check("event", &["script", "--json", "-i", &sched]);
    checked.check("call", &[&["trace", "--json"], &command[..]].concat());
    let faults = ["trace", "--json", "--pf", "all", "--no-syscalls"];
    checked.check("call_beside", &[&faults[..], &command].concat());
    let event = ["count", "--json", "-e", "syscalls:sys_enter_getppid"];
    checked.check("count", &[&event[..], &command].concat());
    let expected = [
        "call",
        "call_beside",
        "count",
        "event",
        "event_table",
        "io_latency",
        "io_top",
        "kmem_pagealloc",
        "kmem_stat",
        "kwork_report",
        "kwork_timehist",
        "kwork_top",
        "lock_contention",
        "lock_futex",
        "lock_info",
        "offcpu",
        "report",
        "sched_latency",
        "sched_map",
        "sched_timehist",
        "syscalls",
        "why",
    ];
    for definition in expected {
        assert!(checked.seen.contains(definition), "{definition}");
    }
}

/// Two recorders of the same programs, into a perf.data and into a trace.dat, and the perf.data as a
/// CTF trace: the same question has the same table.
#[test]
fn formats_of_one_workload_give_one_table() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let _state = kymo_testkit::TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (data, dat, ctf) = (path("x.data"), path("x.dat"), path("ctf"));
    // A name that no other program has.
    let comm = format!("same{}", std::process::id());
    std::os::unix::fs::symlink("/bin/sleep", path(&comm)).unwrap();
    let script = format!("for n in 1 2 3 4 5; do {} 0.01; done", path(&comm));
    let inner = [KYMO, "sched", "record", "-q", "-o", &dat, "--", "sh", "-c", &script];
    let _ =
        run(KYMO, [&["sched", "record", "-q", "-o", &data, "--"], &inner[..]].concat()).success();
    let _ = run(KYMO, ["data", "convert", "--to-ctf", &ctf, "-i", &data]).success();
    let table = |file: &str, columns: &str, more: &[&str]| {
        let what = ["sched", "latency", "-p", "--csv", "-s", "tid", "--columns", columns];
        let out = run(KYMO, [&what[..], more, &["-i", file]].concat()).success().stdout;
        assert!(out.lines().count() > 5, "{out}");
        out
    };
    // Each recorder has read its clock by itself: numbers that do not depend on it.
    let counts = "comm,tid,tasks,switches,migrations,unknown,woken.count,preempted.count,new.count";
    let of_perf = table(&data, counts, &["--comm", &comm]);
    assert_eq!(of_perf.lines().count(), 6, "{of_perf}");
    assert_eq!(of_perf, table(&dat, counts, &["--comm", &comm]));
    // The same events: all columns but names and processes, which perf.data has of records that
    // such a CTF trace lacks.
    let all = "tid,tasks,runtime_ns,on_cpu_ns,switches,migrations,unknown,delay,woken";
    assert_eq!(table(&data, all, &[]), table(&ctf, all, &[]));
}

#[test]
fn results_about_the_machine_are_as_the_schema_says() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let _state = kymo_testkit::TracingState::take();
    let mut checked = Checked::new();
    let each = |checked: &Checked, definition: &str, text: &str| {
        let all: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let all = all.as_array().unwrap();
        for one in all {
            assert_eq!(checked.schema.errors(definition, one), Vec::<String>::new(), "{one}");
        }
        all.len()
    };
    let output = |args: &[&str]| run(KYMO, args).success().stdout;
    let events = output(&["event", "list", "--json", "sched:*"]);
    assert!(each(&checked, "event_list", &events) > 10);
    assert!(each(&checked, "event_list", &output(&["event", "list", "--json"])) > 10);
    assert!(each(&checked, "event_show", &output(&["event", "show", "--json"])) > 0);
    let known = output(&["list", "--json", "sched:*", "cpu-clock"]);
    assert!(each(&checked, "known_event", &known) > 10);
    // A session of both kinds, in a shared directory of its own.
    let directory = tempfile::tempdir().unwrap();
    let name = format!("schema{}", std::process::id());
    let session = |args: &[&str]| {
        let mut command = std::process::Command::new(KYMO);
        command.arg("session").args(args).env("KYMO_UST_DIR", directory.path());
        kymo_testkit::run_command(command).success().stdout
    };
    let _ = session(&["create", &name, "-e", "sched:sched_switch", "-u", "none:*"]);
    let (one, all) = (session(&["show", &name, "--json"]), session(&["list", "--json"]));
    let _ = session(&["destroy", &name]);
    let value: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(checked.schema.errors("session", &value), Vec::<String>::new(), "{value}");
    assert!(value["events"].is_array() && value["programs"]["channels"].is_array(), "{value}");
    assert!(each(&checked, "session", &all) > 0);
    // Of a command it is on standard error.
    let profile = run(KYMO, ["profile", "--json", "--", "sleep", "0.02"]).success();
    let text = profile.stderr.split("\n{\"ledger\"").next().unwrap();
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(checked.schema.errors("profile", &value), Vec::<String>::new(), "{value}");
    checked.check("probe_bench", &["probe", "bench", "--json", "--pairs", "3", "uprobe on nop"]);
    let stats =
        format!("{}/tests/fixtures/sched-stats/perf-7.2-a.data", env!("CARGO_MANIFEST_DIR"));
    checked.check("sched_stats", &["sched", "stats", "report", "--json", "-i", &stats]);
    // Counts are on standard error.
    let counts = run(KYMO, ["stat", "-j", "-e", "page-faults", "--", "true"]).success().stderr;
    for line in counts.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(checked.schema.errors("stat", &value), Vec::<String>::new(), "{value}");
    }
    assert!(!counts.is_empty());
}

/// Each definition is named where a test looks at real results: here, or where the machine has
/// what it takes (boots are in the guest).
#[test]
fn each_definition_is_checked_somewhere() {
    let directory = format!("{}/tests", env!("CARGO_MANIFEST_DIR"));
    let mut tests = String::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "rs") {
            tests.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
    let text = include_str!("../../../docs/json.schema.json");
    let schema: Value = serde_json::from_str(text).unwrap();
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        // Those without a description are parts of others.
        let is_part = definition["description"].is_null();
        assert!(is_part || tests.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn a_ledger_goes_where_it_is_wanted() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (data, file) = (path("x.data"), path("ledger.json"));
    let what = ["record", "-q", "-e", "cpu-clock", "-o", &data, "--", "true"];
    let _ = run(KYMO, what).success();
    // No sample is left, which is reported.
    let none = ["-i", &data, "--comm", "absent"];
    let report = |options: &[&str]| run(KYMO, [&["report"], options, &none].concat()).success();
    let text = report(&[]);
    assert!(text.stdout.contains("no event matches --comm absent"), "{text:?}");
    let json = report(&["--json"]);
    assert!(!json.stdout.contains("no event matches --comm absent"), "{json:?}");
    let kinds = |ledger: &Value| -> Vec<String> {
        let notes = ledger.as_array().unwrap().iter();
        notes.map(|n| n["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert!(kinds(&ledger_of(&json.stderr)).contains(&"empty".to_owned()), "{json:?}");
    let table = report(&["-t", ","]);
    assert!(!table.stdout.contains("no event matches --comm absent"), "{table:?}");
    assert!(kinds(&ledger_of(&table.stderr)).contains(&"empty".to_owned()), "{table:?}");
    for options in [&["--json", "--ledger", &file][..], &["--ledger", &file]] {
        let _ = std::fs::remove_file(&file);
        let out = report(options);
        assert!(!out.stderr.contains("no event matches"), "{out:?}");
        let object: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert!(kinds(&object["ledger"]).contains(&"empty".to_owned()), "{object}");
        assert!(schema().errors("ledger", &object).is_empty(), "{object}");
    }
    // Before the command, too, and of counts.
    let _ = run(KYMO, ["--ledger", &file, "stat", "-e", "page-faults", "--", "true"]).success();
    let object: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(object["ledger"], serde_json::json!([]));
    let counts = run(KYMO, ["stat", "-j", "-e", "page-faults,nothing:here", "--", "true"]);
    assert!(Path::new(&data).exists() && !counts.stderr.contains("\"ledger\""), "{counts:?}");
    // A file that cannot be written is no success.
    let _ =
        run(KYMO, [&["--ledger", "/nonexistent/x", "report"], &none[..]].concat()).expect_status(1);
}

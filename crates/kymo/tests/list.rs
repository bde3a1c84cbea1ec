//! `kymo list`: what it names is what the machine has, and its JSON is what its
//! help says.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_testkit::{Need, Outcome, perf, require, run};
use serde_json::Value;

#[track_caller]
fn list(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), [&["list"], args].concat())
}

#[track_caller]
fn json(args: &[&str]) -> Vec<Value> {
    let text = list(&[&["--json"], args].concat()).success().stdout;
    serde_json::from_str(&text).expect("kymo list --json prints one JSON array")
}

#[test]
fn software_events_are_laid_out_as_perf_does() {
    if !require(&[Need::Perf, Need::Root, Need::PerfEvents]) {
        return;
    }
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()
    };
    // perf puts the tool's own values below `sw` as well.
    let theirs = lines(&perf(["list", "sw"]).success().stdout);
    assert!(theirs.len() >= 12, "{theirs:?}");
    assert_eq!(lines(&list(&["sw"]).success().stdout), theirs);
}

#[test]
fn tracepoints_are_perf_s() {
    if !require(&[Need::Perf, Need::Root, Need::Tracefs]) {
        return;
    }
    for glob in ["sched:*", "kmem:*alloc*", "signal"] {
        let theirs = perf(["list", "--raw-dump", glob]).success().stdout;
        let ours = list(&["--raw-dump", glob]).success().stdout;
        let words = |text: &str| -> Vec<String> {
            let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            // perf also lists USDT probes of what its build-id cache happens to hold.
            words.retain(|w| !w.starts_with("vmstat:") && !w.starts_with("sdt_"));
            words.sort();
            words
        };
        assert_eq!(words(&ours), words(&theirs), "{glob}");
        assert!(!ours.trim().is_empty(), "{glob}");
    }
}

#[test]
fn fields_of_a_tracepoint() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let path = "/sys/kernel/tracing/events/sched/sched_switch/format";
    let format = std::fs::read_to_string(path).unwrap();
    let found = json(&["-v", "sched:sched_switch"]);
    assert_eq!(found.len(), 1);
    let event = &found[0];
    assert_eq!(event["kind"], "tracepoint");
    assert!(format.contains(&format!("ID: {}\n", event["id"])));
    let print = event["print_fmt"].as_str().unwrap();
    assert!(format.contains(&format!("print fmt: {print}")));
    let fields = event["fields"].as_array().unwrap();
    assert_eq!(fields.len(), format.matches("field:").count());
    let field = |name: &str| fields.iter().find(|f| f["name"] == name).unwrap();
    assert_eq!(
        (&field("next_comm")["type"], &field("next_comm")["size"]),
        (&"char[16]".into(), &16.into())
    );
    assert_eq!(field("prev_pid")["signed"], true);
    let text = list(&["-v", "sched:sched_switch"]).success().stdout;
    assert!(text.contains("char[16] next_comm") && text.contains("print fmt: "), "{text}");
}

#[test]
fn every_object_has_the_keys_that_the_help_names() {
    let help = list(&["--help"]).success().stdout;
    let all = json(&[]);
    for key in ["name", "alias", "kind", "label", "description", "support", "reason"] {
        assert!(help.contains(key), "{key} is not in the help");
        assert!(all.iter().all(|e| e.get(key).is_some()), "{key} is missing somewhere");
    }
    for kind in ["hw", "sw", "tool", "cache", "raw", "mem", "vmstat"] {
        assert!(all.iter().any(|e| e["kind"] == kind), "no event of kind {kind}");
        let only = json(&[kind]);
        let tool_too = |e: &Value| kind == "sw" && e["kind"] == "tool";
        assert!(only.iter().all(|e| e["kind"] == kind || tool_too(e)), "{kind}");
    }
}

#[test]
fn what_cannot_be_counted_is_marked() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let support = |name: &str| {
        json(&[name]).into_iter().find(|e| e["name"] == name).unwrap()["support"].clone()
    };
    assert_eq!(support("context-switches"), "yes");
    // Whether there is a cycle counter: the kernel's answer is the same to perf.
    let counts = std::path::Path::new("/sys/bus/event_source/devices/cpu").exists();
    assert_eq!(support("cpu-cycles"), if counts { "yes" } else { "no" });
    let text = list(&["hw"]).success().stdout;
    assert_eq!(text.contains("[not supported here]"), !counts, "{text}");
}

#[test]
fn an_unknown_name_is_an_error_with_a_hint() {
    let out = list(&["cycels"]).failure();
    assert!(out.stderr.contains("unknown event 'cycels'; did you mean cycles?"), "{}", out.stderr);
}

/// Takes a dynamic event away again, also when the test fails.
struct Probe {
    name: String,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = append(&format!("-:{}", self.name));
    }
}

fn append(line: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file =
        std::fs::OpenOptions::new().append(true).open("/sys/kernel/tracing/uprobe_events")?;
    file.write_all(line.as_bytes())
}

#[test]
fn dynamic_events_are_listed_with_their_definition() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    // A probe that is defined and never enabled: the place does not matter.
    let name = format!("kymo_list_{}/here", std::process::id());
    append(&format!("p:{name} /proc/self/exe:0x1000 first=%di")).unwrap();
    let probe = Probe { name };
    let shown = probe.name.replace('/', ":");
    let found = json(&["-v", "probe"]);
    let event = found.iter().find(|e| e["name"] == shown.as_str()).unwrap();
    assert_eq!(event["kind"], "probe");
    assert!(event["definition"].as_str().unwrap().ends_with("first=%di"), "{event}");
    assert!(event["fields"].as_array().unwrap().iter().any(|f| f["name"] == "first"));
    drop(probe);
    assert!(!list(&["--raw-dump", "probe"]).success().stdout.contains(&shown));
}

/// The files of a machine that this one is not: two kinds of core, a PMU of the memory
/// controller, two sockets' worth of nothing else. What the kernel refuses to open stays listed.
#[test]
fn pmus_of_a_machine_below_a_root() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("sys/devices/system/cpu/online", "0-5\n");
    for (pmu, kind, cpus) in [("cpu_core", "4", "0-3"), ("cpu_atom", "10", "4-5")] {
        let device = format!("sys/bus/event_source/devices/{pmu}");
        put(&format!("{device}/type"), kind);
        put(&format!("{device}/cpus"), cpus);
        put(&format!("{device}/format/event"), "config:0-7\n");
        put(&format!("{device}/format/umask"), "config:8-15\n");
        put(&format!("{device}/events/mem-loads"), "event=0xcd,umask=0x1\n");
    }
    let memory = "sys/bus/event_source/devices/uncore_imc_0";
    put(&format!("{memory}/type"), "20");
    put(&format!("{memory}/cpumask"), "0\n");
    put(&format!("{memory}/format/event"), "config:0-7\n");
    put(&format!("{memory}/events/data_reads"), "event=0x01\n");
    put(&format!("{memory}/events/data_reads.scale"), "6.103515625e-5\n");
    put(&format!("{memory}/events/data_reads.unit"), "MiB\n");

    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(["list", "--json", "-v", "pmu"]).env("KYMO_SYSTEM_ROOT", root.path());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let names: Vec<&str> = events.iter().map(|e| e["name"].as_str().unwrap()).collect();
    let expected = ["cpu_atom/mem-loads/", "cpu_core/mem-loads/", "uncore_imc_0/data_reads/"];
    assert_eq!(names, expected);
    let memory = &events[2];
    assert_eq!((memory["unit"].as_str(), &memory["cpus"]), (Some("MiB"), &serde_json::json!([0])));
    assert_eq!(memory["scale"].as_f64(), Some(6.103515625e-5));
    assert_eq!(events[1]["terms"], "event=0xcd,umask=0x1");
    let of_unit = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.arg("list").args(args).env("KYMO_SYSTEM_ROOT", root.path());
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.success())
    };
    let (named, _, fine) = of_unit(&["--raw-dump", "--unit", "cpu_*"]);
    assert!(fine && named.trim() == "cpu_atom/mem-loads/ cpu_core/mem-loads/", "{named}");
    let (none, why, fine) = of_unit(&["--unit", "uncore_cha"]);
    assert!(!fine && none.is_empty(), "{none}");
    assert!(why.contains("no event of a PMU uncore_cha") && why.contains("uncore_imc_0"), "{why}");
}

#[test]
fn events_of_one_pmu_are_those_of_its_kind() {
    let names = |args: &[&str]| -> Vec<Value> {
        json(args).into_iter().map(|event| event["name"].clone()).collect()
    };
    let software = names(&["--unit", "software"]);
    assert!(software.len() >= 10 && software.contains(&"cpu-clock".into()), "{software:?}");
    let all: Vec<Value> = json(&["sw"]).into_iter().filter(|e| e["kind"] == "sw").collect();
    assert_eq!(software, all.iter().map(|event| event["name"].clone()).collect::<Vec<_>>());
    assert_eq!(names(&["--cputype", "tool"]), names(&["tool"]));
}

#[test]
fn usdt_probes_of_binaries_and_of_processes_are_those_of_their_notes() {
    if !require(&[Need::Gcc, Need::Tool("readelf")]) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = directory.path().join("markers");
    let program = program.to_str().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probe_programs/markers.c");
    let _ = run("gcc", ["-O1", "-o", program, source]).success();
    let notes = run("readelf", ["-n", program]).success().stdout;
    let of = |word: &str| -> Vec<String> {
        notes.lines().filter_map(|l| l.trim().strip_prefix(word)).map(str::to_owned).collect()
    };
    let (providers, names) = (of("Provider: "), of("Name: "));
    let stated: std::collections::BTreeSet<String> =
        providers.iter().zip(&names).map(|(p, n)| format!("%{p}:{n}")).collect();
    assert!(stated.len() >= 3, "{notes}");
    let listed = json(&["sdt", program]);
    let found: std::collections::BTreeSet<String> =
        listed.iter().map(|probe| probe["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(found, stated);
    let places: u64 = listed.iter().map(|probe| probe["places"].as_u64().unwrap()).sum();
    assert_eq!(places, names.len() as u64, "{listed:?}");
    let text = list(&["sdt", program]).success().stdout;
    let first = text.lines().next().unwrap();
    assert_eq!(first, format!("{program}:"));
    assert!(text.contains("[USDT probe] "), "{text}");
    let pause = directory.path().join("pause.c");
    std::fs::write(
        &pause,
        "#include <unistd.h>\n__attribute__((constructor)) void wait(void) { pause(); }\n",
    )
    .unwrap();
    let paused = directory.path().join("paused");
    let paused = paused.to_str().unwrap();
    let _ = run("gcc", ["-O1", "-o", paused, source, pause.to_str().unwrap()]).success();
    let mut child = std::process::Command::new(paused).spawn().unwrap();
    let of_process = json(&["sdt", "-p", &child.id().to_string()]);
    child.kill().unwrap();
    child.wait().unwrap();
    // Libraries may have some, too.
    let own: Vec<&Value> = of_process.iter().filter(|probe| probe["binary"] == paused).collect();
    let names =
        |probes: &[&Value]| -> Vec<Value> { probes.iter().map(|p| p["name"].clone()).collect() };
    assert_eq!(names(&own), names(&listed.iter().collect::<Vec<_>>()), "{of_process:?}");
    assert!(list(&["sdt", "/no/such/binary"]).failure().stderr.contains("/no/such/binary"));
    assert!(list(&["-p", "1"]).failure().stderr.contains("kymo list sdt"));
}

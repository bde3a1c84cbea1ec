//! `kymo run`: nothing is lost between printing a map and emptying it, texts that are cut are
//! counted and marked, programs at one place run in the order they are written in, process numbers
//! are those of the namespace that kymo runs in, paths those of the process's mount namespace.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use kymo_testkit::{Need, Outcome, Workload, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn begin() -> bool {
    require(&[Need::Root, Need::Tracefs])
}

fn program(text: &str, args: &[&str]) -> Outcome {
    run(KYMO, [&["run", "-e", text], args].concat())
}

/// Sum of the numbers behind `name: ` and `name[…]: `.
fn sum_of(output: &str, name: &str) -> u64 {
    let lines = output
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([':', '['])));
    lines.filter_map(|line| line.rsplit_once(": ")?.1.parse::<u64>().ok()).sum()
}

#[test]
fn what_is_printed_and_emptied_adds_up_to_all_events() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let command = format!("{} 400000", work.arg());
    for empty in ["clear", "zero"] {
        let text = format!(
            "tracepoint:raw_syscalls:sys_enter /pid == cpid && args.id == 110/ \
             {{ @one = count(); @key[args.id] = count(); @sum[comm] = sum(1); }} \
             interval:ms:20 {{ print(@one); print(@key); print(@sum); \
             {empty}(@one); {empty}(@key); {empty}(@sum); }}"
        );
        let o = program(&text, &["-c", &command]).success();
        for map in ["@one", "@key", "@sum"] {
            assert_eq!(sum_of(&o.stdout, map), 400_000, "{empty} {map}: {}", o.stderr);
        }
        // Of each map more than once, or nothing was emptied while events came.
        let prints = o.stdout.lines().filter(|line| line.starts_with("@one: ")).count();
        assert!(prints > 1, "{}", o.stdout);
        assert!(!o.stderr.contains("missing:"), "{}", o.stderr);
    }
}

#[test]
fn no_event_counts_after_exit() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let command = format!("{} 400000", work.arg());
    let point = "tracepoint:raw_syscalls:sys_enter /pid == cpid && args.id == 110/";
    // The second probe is not run for the event that ends the run.
    let text = format!(
        "{point} {{ @first++; if (@first == 1000) {{ exit(7); }} }} {point} {{ @second++; }} \
         END {{ @end = 1; }}"
    );
    // The result is the same while tasks keep all CPUs busy.
    let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut busy: Vec<Child> = (0..4).map(|_| spin()).collect();
    let outcomes: Vec<Outcome> = (0..3).map(|_| program(&text, &["-c", &command])).collect();
    for child in &mut busy {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for o in outcomes {
        assert_eq!(o.status, 7, "{}", o.stderr);
        let sums = ["@first", "@second", "@end"].map(|map| sum_of(&o.stdout, map));
        assert_eq!(sums, [1000, 999, 1], "{}", o.stderr);
    }
}

#[test]
fn an_exit_whose_record_does_not_fit_ends_the_run() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    // The ring has room for four of the thousand records.
    let text = "config = { perf_rb_pages = 1; max_strlen = 1000 } \
                tracepoint:raw_syscalls:sys_enter /pid == cpid && args.id == 110/ \
                { @++; print(buf(curtask, 900)); if (@ == 1000) { exit(5); } }";
    let o = program(text, &["-c", &format!("{} 40000000", work.arg())]);
    assert_eq!((o.status, sum_of(&o.stdout, "@")), (5, 1000), "{}", o.stderr);
}

/// That of END comes last.
#[test]
fn the_last_status_of_exit_counts() {
    if !begin() {
        return;
    }
    assert_eq!(program("BEGIN { exit(2); }", &[]).status, 2);
    assert_eq!(program("BEGIN { exit(2); } END { @ = 1; }", &[]).status, 2);
    assert_eq!(program("BEGIN { exit(2); } END { exit(3); }", &[]).status, 3);
}

#[test]
fn stacks_of_tracepoints_begin_where_bpftraces_begin() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("bpftrace")]) {
        return;
    }
    for event in ["sched:sched_process_exit", "raw_syscalls:sys_exit", "sched:sched_process_exec"] {
        let only = "pid == cpid && comm == \"true\"";
        let text = format!("tracepoint:{event} /{only}/ {{ @[kstack(4)] = count(); }}");
        let ours = program(&text, &["-c", "/bin/true"]).success().stdout;
        let theirs = run("bpftrace", ["-e", &text, "-c", "/bin/true"]).success().stdout;
        let frames = |text: &str| -> Vec<String> {
            let lines = text.lines().map(str::trim).filter(|line| line.contains('+'));
            let mut lines: Vec<String> = lines.map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(frames(&ours), frames(&theirs), "{event}: {ours}\n{theirs}");
        assert!(frames(&ours).len() >= 3, "{event}: {ours}");
    }
}

#[test]
fn maps_that_are_walked_measured_and_read_are_emptied_at_one_moment_too() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let text = "tracepoint:raw_syscalls:sys_enter /pid == cpid && args.id == 110/ \
                { @k[args.id] = count(); @v[args.id, 1] = 7; @n++; \
                  if (@n % 100 == 0) { for ($kv : @k) { @walked[$kv.0] = count(); } \
                  @len = len(@v); @has = has_key(@v, (args.id, 1)); @c = (uint64)@k[args.id]; } } \
                interval:ms:20 { print(@k); clear(@k); print(@v); clear(@v); }";
    let o = program(text, &["-c", &format!("{} 100000", work.arg())]).success();
    assert_eq!(sum_of(&o.stdout, "@k"), 100_000, "{}\n{}", o.stdout, o.stderr);
    for line in ["@walked[110]: 1000\n", "@len: 1\n", "@has: true\n", "@n: 100000\n"] {
        assert!(o.stdout.contains(line), "{line}: {}", o.stdout);
    }
}

#[test]
fn texts_that_are_cut_are_counted_and_marked() {
    if !begin() {
        return;
    }
    let text = |size: u32, what: &str| {
        let text = format!(
            "config = {{ max_strlen = {size} }}\n\
             tracepoint:syscalls:sys_enter_execve /pid == cpid/ {{ {what} }}"
        );
        program(&text, &["-c", "/usr/bin/true"]).success()
    };
    let printed = "printf(\"%s\\n\", str(args.filename));";
    // 13 letters are more than 8; what is shown is what bpftrace 0.27 shows.
    let o = text(8, printed);
    assert!(o.stdout.lines().any(|line| line == "/usr/bin.."), "{}", o.stdout);
    assert!(o.stderr.contains("line 2: 1 text was longer than its room"), "{}", o.stderr);
    // The same where other values follow, and as key.
    let o = text(8, "printf(\"%s|%s|%d\\n\", str(args.filename), str(args.filename), 5);");
    assert!(o.stdout.lines().any(|line| line == "/usr/bin..|/usr/bin..|5"), "{}", o.stdout);
    let o = text(8, "@[str(args.filename)] = count();");
    assert!(o.stdout.contains("@[/usr/bin..]: 1\n"), "{}", o.stdout);
    // A limit above that of all texts is none.
    let o = text(8, "printf(\"%s|%s\\n\", str(args.filename, 20), str(args.filename, 7));");
    assert!(o.stdout.lines().any(|line| line == "/usr/bin..|/usr/b"), "{}", o.stdout);
    // An explicit limit is part of the request.
    let o = text(64, "printf(\"%s\\n\", str(args.filename, 5));");
    assert!(o.stdout.lines().any(|line| line == "/usr"), "{}", o.stdout);
    assert!(!o.stderr.contains("longer than"), "{}", o.stderr);
    let o = text(64, printed);
    assert!(o.stdout.lines().any(|line| line == "/usr/bin/true"), "{}", o.stdout);
    assert!(!o.stderr.contains("longer than"), "{}", o.stderr);
    // As long as the limit: whole.
    let o = text(13, printed);
    assert!(o.stdout.lines().any(|line| line == "/usr/bin/true"), "{}", o.stdout);
    assert!(!o.stderr.contains("longer than"), "{}", o.stderr);
    let o = text(12, printed);
    assert!(o.stdout.lines().any(|line| line == "/usr/bin/tru.."), "{}", o.stdout);
    assert!(o.stderr.contains("line 2: 1 text was longer than its room"), "{}", o.stderr);
    // Fields of a tracepoint's record, too; and with a trailer of one's own.
    let o = program(
        "config = { max_strlen = 8; str_trunc_trailer = \"~\" }\n\
         tracepoint:sched:sched_process_exec /pid == cpid/ { printf(\"%s\\n\", args.filename); }",
        &["-c", "/usr/bin/true"],
    );
    let o = o.success();
    assert!(o.stdout.lines().any(|line| line == "/usr/bin~"), "{}\n{}", o.stdout, o.stderr);
    assert!(o.stderr.contains("1 text was longer than its room"), "{}", o.stderr);
}

#[test]
fn programs_at_one_place_run_in_the_order_of_the_source() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let command = format!("{} 3", work.arg());
    let check = |probe: &str| {
        let one = |letter: char| format!("{probe} {{ printf(\"{letter}\\n\"); }} ");
        let text: String = ['a', 'b', 'c', 'd'].map(one).concat();
        let o = program(&text, &["-c", &command]).success();
        let letters: String = o.stdout.lines().filter(|line| line.len() == 1).collect();
        assert_eq!(letters, "abcd".repeat(letters.len() / 4), "{probe}");
        assert!(!letters.is_empty(), "{probe}: {}", o.stderr);
    };
    check("tracepoint:syscalls:sys_enter_getppid /pid == cpid/");
    check("rawtracepoint:sys_enter /pid == cpid && arg1 == 110/");
    check(&format!("uprobe:{}:main", work.arg()));
    check(&format!("uretprobe:{}:main", work.arg()));
    check("software:page-faults:1 /pid == cpid/");
}

#[test]
fn a_signal_runs_its_probe() {
    if !begin() {
        return;
    }
    let text = "self:signal:SIGUSR1 { @n++; printf(\"signal %d by %s\\n\", @n, probe); \
                if (@n == 2) { exit(); } }";
    let mut child = Command::new(KYMO)
        .args(["run", "-e", text])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("Attached"));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for n in 1..=2 {
        let status = Command::new("kill").args(["-USR1", &child.id().to_string()]).status();
        assert!(status.unwrap().success());
        let expected = format!("signal {n} by self:signal:SIGUSR1");
        // Before the first line bpftrace's announcement may stand.
        let line = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("signal"));
        assert_eq!(line, Some(expected));
    }
    assert!(child.wait().unwrap().success());
    let o = program("self:signal:SIGTERM { exit(); }", &[]);
    assert!(o.stderr.contains("the only one is self:signal:SIGUSR1"), "{}", o.stderr);
}

#[test]
fn process_numbers_are_those_of_kymos_namespace() {
    if !begin() {
        return;
    }
    let text = "BEGIN { printf(\"begin %d %d\\n\", pid, tid); } \
                tracepoint:syscalls:sys_enter_execve /pid == cpid/ \
                { printf(\"exec %d %d %d\\n\", pid, tid, cpid); } \
                uprobe:libc:getppid { @ = 1; }";
    let args = ["-p", "-f", "--mount-proc", KYMO, "run", "-e", text, "-c", "/usr/bin/true"];
    let o = run("unshare", args).success();
    // unshare's child is the first process of the new namespace.
    assert!(o.stdout.lines().any(|line| line == "begin 1 1"), "{}\n{}", o.stdout, o.stderr);
    let exec = o.stdout.lines().find_map(|line| line.strip_prefix("exec ")).unwrap();
    let numbers: Vec<u32> = exec.split(' ').map(|n| n.parse().unwrap()).collect();
    assert!(numbers[0] == numbers[2] && numbers[1] == numbers[2], "{exec}");
    assert!(numbers[0] < 100, "{exec}");
}

/// A process with a file system of its own at /mnt, on which a copy of a program lies.
fn elsewhere(work: &Workload) -> Child {
    let script = format!(
        "mount -t tmpfs none /mnt && cp {} /mnt/there && echo ready && read -r go && exec /mnt/there 40",
        work.arg()
    );
    Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn paths_are_those_of_the_process() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let mut target = elsewhere(&work);
    let mut ready = String::new();
    BufReader::new(target.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let pid = target.id().to_string();
    let text = "uprobe:/mnt/there:main { printf(\"main of %d\\n\", pid); exit(); }";
    let mut kymo = Command::new(KYMO)
        .args(["run", "-p", &pid, "-e", text])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(kymo.stderr.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    assert!(first.contains("Attached"), "{first}");
    target.stdin.take().unwrap().write_all(b"\n").unwrap();
    let o = kymo.wait_with_output().unwrap();
    let out = String::from_utf8(o.stdout).unwrap();
    assert!(out.contains(&format!("main of {pid}\n")), "{out}");
    assert!(target.wait().unwrap().success());
    // Without the process there is no such file.
    let o = program("uprobe:/mnt/there:main { exit(); }", &[]);
    assert_ne!(o.status, 0, "{}", o.stdout);
}

#[test]
fn long_loops_run_to_their_end_or_say_that_they_did_not() {
    if !begin() {
        return;
    }
    let check = |text: &str, expected: &str| {
        let o = program(&format!("BEGIN {{ {text} exit(); }}"), &[]).success();
        assert!(o.stdout.contains(expected), "{text}: {}\n{}", o.stdout, o.stderr);
        assert!(!o.stderr.contains("loops reached"), "{text}: {}", o.stderr);
    };
    check("for ($i : 0..70000) { @ = count(); }", "@: 70000\n");
    check("for ($i : -5..200000) { @ = sum($i); }", "@: 19999899985\n");
    check("$i = 0; while ($i < 70000) { $i++; @ = count(); }", "@: 70000\n");
    check(
        "$i = 0; $n = 5; while ($i < 100000) { $i += 2; if ($i % 1000 == 0) { $n = $n + 1; } } \
         printf(\"%d %d\\n\", $i, $n);",
        "100000 105\n",
    );
    check("for ($i : 0..70000) { if ($i == 69000) { break; } @ = max($i); }", "@: 68999\n");
    check("for ($i : 0..900) { for ($j : 0..900) { @ = count(); } }", "@: 810000\n");
    let o = program("BEGIN { $i = 0; while ($i < 2000000000) { $i++; } @ = $i; exit(); }", &[]);
    let o = o.success();
    assert!(o.stderr.contains("line 1: 1 loops reached the kernel's limit"), "{}", o.stderr);
}

#[test]
fn what_was_never_counted_is_not_printed() {
    if !begin() {
        return;
    }
    let text = "tracepoint:sched:sched_switch /pid == 4294967295/ { @never = count(); } \
                BEGIN { @y = 1; @z = count(); zero(@z); exit(); }";
    let o = program(text, &[]).success();
    assert_eq!(o.stdout, "\n\n@y: 1\n@z: 0\n", "{}", o.stderr);
}

/// With another process's perf event on a tracepoint, the kernel calls programs of perf events
/// before raw ones: the program that follows the command's tasks would come too late.
#[test]
fn perf_events_of_others_leave_the_order_as_it_is() {
    if !begin() {
        return;
    }
    let event = ["-e", "sched:sched_process_exec"];
    let mut other = Command::new(KYMO)
        .args([&["stat", "-I", "50"], &event[..], &["--", "sleep", "3"]].concat())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // An interval is over: its event is on.
    let mut lines = BufReader::new(other.stderr.take().unwrap()).lines().map(Result::unwrap);
    let is_on = lines.any(|line| line.contains("sched_process_exec"));
    let count = [&["count", "--json"], &event[..], &["--by", "filename", "--", "env", "true"]];
    let counted = run(KYMO, count.concat());
    lines.for_each(drop);
    let _ = other.wait().unwrap();
    assert!(is_on);
    let page: serde_json::Value = serde_json::from_str(&counted.success().stdout).unwrap();
    let rows = page["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{page}");
    assert!(rows.iter().all(|row| row["count"] == 1), "{page}");
}

/// Values of the standard library's functions, with none that differ between two programs.
const FUNCTIONS: &str = r#"BEGIN {
    static_assert(sizeof(uint64) == 8, "words");
    print(pcomm); print(pcomm(curtask)); print(ppid(curtask) == ppid);
    print(leader_tid() == pid); print(leader_tid(curtask) == pid);
    print(leader_comm() == comm); print(leader_comm(curtask) == comm);
    print(is_err((void *)0)); print(is_err(curtask)); $e = (int64)-4096;
    print(is_err((void *)$e)); print(is_err((void *)($e + 1))); print(is_err((void *)($e + 4095)));
    print(str_concat("ab", "cd")); print(str_concat(pcomm, "/x")); $s = str_concat("<", pcomm);
    print($s); print(strlen($s) == strlen(pcomm) + 1); print(str_concat($s, ">"));
    print(default_str_length() >= 1024); print(len(kstack) > 0); print(len(kstack(1)));
    exit();
}"#;

#[test]
fn functions_of_the_standard_library_have_the_values_that_bpftrace_gives() {
    if !begin() || !require(&[Need::NewestPeers]) {
        return;
    }
    let ours = run(env!("CARGO_BIN_EXE_kymo"), ["run", "-q", "-e", FUNCTIONS]).success();
    let theirs = kymo_testkit::peer("bpftrace").run(["-q", "-e", FUNCTIONS]).success();
    assert_eq!(ours.stdout, theirs.stdout);
    assert!(ours.stdout.lines().count() >= 18, "{}", ours.stdout);
    // Of constants bpftrace 0.27 says false, of the same values in variables true.
    let errors = "BEGIN { print((is_err((void *)-1), is_err((void *)-4095))); exit(); }";
    let said = run(env!("CARGO_BIN_EXE_kymo"), ["run", "-q", "-e", errors]).success().stdout;
    assert_eq!(said.trim(), "(true, true)");
    let wrong = "BEGIN { static_assert(sizeof(uint64) == 4, \"four bytes\"); }";
    let refused = run(env!("CARGO_BIN_EXE_kymo"), ["run", "-e", wrong]).failure();
    assert!(refused.stderr.contains("four bytes"), "{}", refused.stderr);
    // A stored stack has its length, too.
    let stored = "BEGIN { $s = kstack; print(len($s)); exit(); }";
    let ours = run(env!("CARGO_BIN_EXE_kymo"), ["run", "-q", "-e", stored]).success();
    let theirs = kymo_testkit::peer("bpftrace").run(["-q", "-e", stored]).success();
    assert_eq!(ours.stdout.trim(), theirs.stdout.trim());
    assert!(ours.stdout.trim().parse::<u32>().is_ok_and(|frames| frames > 0), "{}", ours.stdout);
}

//! `kymo run` on this machine: what programs print beside bpftrace's newest release, counts of a
//! known load, exactly reported losses, and nothing that stays attached.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use kymo_kernel::bpf::{BpfObject, object_ids};
use kymo_testkit::{Need, Outcome, Workload, newest_peers, peer, require, run, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn begin() -> bool {
    require(&[Need::Root, Need::Tracefs])
}

fn program(text: &str, args: &[&str]) -> Outcome {
    run(KYMO, [&["run", "-e", text], args].concat())
}

/// All kinds of values that a program makes of nothing but itself.
const VALUES: &str = r#"
BEGIN {
    @a = 5; @k["x", 1] = -3; @c = count(); @cc[1] = count();
    @s[2] = sum(10); @s[3] = sum(4); @m = min(3); @x[1] = max(9); @av[1] = avg(5); @av[1] = avg(6);
    @st["q"] = stats(4); @st["q"] = stats(8); @l = lhist(5, 0, 100, 10); @l = lhist(-5, 0, 100, 10);
    @h = hist(0); @h = hist(1); @h = hist(5); @h = hist(5000); @h = hist(-4); @h = hist(1500000);
    @hk[1] = hist(10); @hk[2] = hist(20); @hk[2] = hist(20);
    @l = lhist(205, 0, 100, 10); @l = lhist(95, 0, 100, 10); @lk["a"] = lhist(15, 0, 100, 10);
    @str = "hello"; @t[1] = (1, "two", 3); print(@a); print(@k); print(@h); print(@k["x", 1]);
    print((1, "a")); print(3); print("s"); print(@k, 1);
    printf("%d %s %5d|%-5d|%05d %x %p %c %u|%8s|%-8s|\n", 3, "abc", 4, 5, 6, 255, 4096, 65, 7, "r", "l");
    printf("%d %u %lx\n", -1, 3, -1);
    exit();
}
END { printf("end\n"); }
"#;

#[test]
fn values_are_printed_as_bpftrace_prints_them() {
    if !begin() || !require(&[Need::NewestPeers]) || newest_peers().is_none() {
        return;
    }
    for form in ["text", "json"] {
        let ours = program(VALUES, &["-f", form]).success().stdout;
        let theirs = peer("bpftrace").run(["-f", form, "-e", VALUES]).success().stdout;
        assert_eq!(ours, theirs, "{form}");
        // The same of user space, by itself.
        let rings = program(VALUES, &["--no-bpf", "-f", form]).success().stdout;
        assert_eq!(rings, theirs, "{form}");
    }
}

#[test]
fn calls_of_a_command_are_counted_one_by_one() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let command = format!("{} 700", work.arg());
    let by_number = "tracepoint:raw_syscalls:sys_enter /pid == cpid/ { @[args.id] = count(); }";
    let o = program(by_number, &["-c", &command]).success();
    assert!(o.stdout.contains("@[110]: 700\n"), "{}", o.stdout);
    let by_name = "tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @ = count(); }";
    let o = program(by_name, &["-c", &command]).success();
    assert_eq!(o.stdout, "\n\n@: 700\n");
    let by_line = "tracepoint:raw_syscalls:sys_enter /pid == cpid && args.id == 110/ \
                   { @n++; printf(\"%d %s\\n\", @n, comm); }";
    let o = program(by_line, &["-c", &command]).success();
    let lines: Vec<&str> = o.stdout.lines().take(700).collect();
    let expected: Vec<String> = (1..=700).map(|n| format!("{n} syscalls")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn paths_are_those_that_the_program_opened() {
    if !begin() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a file with a name of its own");
    std::fs::write(&path, "x").unwrap();
    let text = "tracepoint:syscalls:sys_enter_openat /pid == cpid/ \
                { printf(\"%s\\n\", str(args.filename)); }";
    let o = program(text, &["-c", &format!("cat '{}'", path.display())]).success();
    assert!(o.stdout.lines().any(|line| line == path.to_str().unwrap()), "{}", o.stdout);
}

#[test]
fn user_stacks_have_names() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let text = "tracepoint:raw_syscalls:sys_enter /pid == cpid && args.id == 110/ \
                { @[ustack] = count(); }";
    let o = program(text, &["-c", &format!("{} 1000000", work.arg())]).success();
    // The C library's function has no frame pointer, so that its caller is not seen.
    assert!(o.stdout.contains("@[\n        syscall+"), "{}\n{}", o.stdout, o.stderr);
    assert!(o.stdout.ends_with("]: 1000000\n"), "{}", o.stdout);
}

#[test]
fn what_a_small_map_loses_is_reported_exactly() {
    if !begin() {
        return;
    }
    let text = "config = { max_map_keys = 8 }\n\
                BEGIN { $i = 0; while ($i < 20) { @[$i] = 1; $i++; } exit(); }";
    let o = program(text, &[]).success();
    assert_eq!(o.stdout.lines().filter(|line| line.starts_with("@[")).count(), 8, "{}", o.stdout);
    assert!(
        o.stderr.contains("line 2: 12 updates of @ did not fit: it holds 8 entries"),
        "{}",
        o.stderr
    );
    let _ = program(text, &["--strict"]).expect_status(3);
}

#[test]
fn what_a_small_ring_loses_is_reported_exactly() {
    if !begin() {
        return;
    }
    let work = Workload::syscalls();
    let text = "config = { perf_rb_pages = 1 }\n\
                tracepoint:raw_syscalls:sys_enter /pid == cpid && args.id == 110/ \
                { @ = count(); printf(\"call\\n\"); }";
    let o = program(text, &["-c", &format!("{} 20000", work.arg())]).success();
    assert!(o.stdout.contains("@: 20000\n"), "{}", o.stdout);
    let printed = o.stdout.lines().filter(|line| *line == "call").count();
    let lost = o.stderr.lines().find_map(|line| line.split_once(" records did not fit the ring"));
    let lost: usize =
        lost.map_or(0, |(before, _)| before.rsplit([' ', ':']).next().unwrap().parse().unwrap());
    assert_eq!(printed + lost, 20000, "{}", o.stderr);
    assert!(lost > 0, "a ring of a page holds 20000 records");
}

#[test]
fn nothing_stays_after_sigkill() {
    if !begin() {
        return;
    }
    let before = |object| object_ids(object).unwrap();
    let (programs, links) = (before(BpfObject::Program), before(BpfObject::Link));
    let text = "BEGIN { printf(\"on\\n\"); } tracepoint:sched:sched_switch { @[comm] = count(); } \
                profile:hz:9 { @p = count(); }";
    let mut child = Command::new(KYMO)
        .args(["run", "-B", "none", "-e", text])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = [0u8; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    let new = |object, before: &[u32]| -> Vec<u32> {
        object_ids(object).unwrap().into_iter().filter(|id| !before.contains(id)).collect()
    };
    let (own_programs, own_links) =
        (new(BpfObject::Program, &programs), new(BpfObject::Link, &links));
    assert!(!own_programs.is_empty() && !own_links.is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    let is_gone = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let (programs, links) =
            (object_ids(BpfObject::Program).unwrap(), object_ids(BpfObject::Link).unwrap());
        !own_programs.iter().any(|id| programs.contains(id))
            && !own_links.iter().any(|id| links.contains(id))
    });
    assert!(is_gone, "programs {own_programs:?} or links {own_links:?} are still there");
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let o = run(KYMO, ["run", "-e", "BEGIN {\n    @a = $b + 1;\n}"]).failure();
    assert!(o.stderr.contains("stdin:2:10: ERROR: "), "{}", o.stderr);
    assert!(o.stderr.contains("\n    @a = $b + 1;\n         ^\n"), "{}", o.stderr);
    let o = run(KYMO, ["run", "-e", "tracepoint:no:such_event { }"]).failure();
    assert!(o.stderr.contains("no:such_event"), "{}", o.stderr);
    let o = run(KYMO, ["run", "/nowhere.bt"]).failure();
    assert!(o.stderr.contains("failed to open file '/nowhere.bt': No such file"), "{}", o.stderr);
    let o = run(KYMO, ["run"]).failure();
    assert!(o.stderr.contains("-e PROGRAM"), "{}", o.stderr);
}

#[test]
fn what_changes_the_system_is_asked_for() {
    if !begin() {
        return;
    }
    let text = "BEGIN { system(\"echo %d\", 42); exit(); }";
    let o = program(text, &[]).failure();
    assert!(o.stderr.contains("--unsafe"), "{}", o.stderr);
    let o = program(text, &["--unsafe"]).success();
    assert!(o.stdout.starts_with("42\n"), "{}", o.stdout);
}

#[test]
fn parameters_statuses_and_names_are_bpftraces() {
    if !begin() {
        return;
    }
    let text = "BEGIN { printf(\"%d %s\\n\", $1, str($2)); exit(3); }";
    let o = program(text, &["7", "seven"]).expect_status(3);
    assert!(o.stdout.starts_with("7 seven\n"), "{}", o.stdout);
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("bpftrace");
    std::os::unix::fs::symlink(KYMO, &link).unwrap();
    let file = dir.path().join("program.bt");
    std::fs::write(&file, "BEGIN { printf(\"%d\\n\", $1 * 2); exit(); }").unwrap();
    let mut command = Command::new(&link);
    command.arg(&file).arg("21");
    let o = run_command(command).success();
    assert!(o.stdout.starts_with("42\n"), "{}", o.stdout);
}

#[test]
fn what_bpftrace_scripts_rely_on_is_there_under_its_name() {
    if !begin() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("bpftrace");
    std::os::unix::fs::symlink(KYMO, &link).unwrap();
    let called = |args: &[&str]| {
        let mut command = Command::new(&link);
        command.args(args).env("BPFTRACE_MAX_CAT_BYTES", "4");
        run_command(command)
    };
    assert!(called(&["--version"]).success().stdout.starts_with("bpftrace v0."));
    assert!(called(&["--help"]).success().stdout.contains("USAGE:"));
    assert!(called(&["--info"]).success().stdout.contains("  perf_event_array: yes\n"));
    for (args, message) in [
        (&["-Z"][..], "USAGE:"),
        (&["-p", "12x", "a.bt"], "ERROR: Failed to parse pid: invalid trailing bytes: 12x\n"),
        (&["-p", "0", "a.bt"], "ERROR: Pid out of range: 0\n"),
        (&["-f", "xml", "-e", "BEGIN { }"], "ERROR: Invalid output format \"xml\"\n"),
        (&["/nowhere.bt"], "ERROR: failed to open file '/nowhere.bt': No such file"),
        (&["-l", "a\\b"], "ERROR: invalid character"),
        (
            &["-e", "BEGIN { print(kaddr(\"no_such\")); }"],
            "Failed to resolve kernel symbol: no_such",
        ),
        (&["-e", "kretprobe:_raw_spin_lock { }"], "might lock up your system"),
        (&["-e", "watchpoint:f+arg1:4:w { }"], "needs a process: -p PID or -c CMD"),
        (&["-e", "tracepoint:sched:nonsense { }"], "No matches for tracepoint sched:nonsense."),
        (&["-e", "config = { release = \"0.1\" } BEGIN { }"], "release is 0.17, not"),
    ] {
        let o = called(args).failure();
        assert!(o.stderr.contains(message), "{args:?}: {}", o.stderr);
    }
    // Options may stand behind the file, as getopt takes them.
    let file = dir.path().join("program.bt");
    std::fs::write(
        &file,
        "BEGIN { cat(\"/proc/self/status\"); print(str($1)); } END { print(cpid > 0); }",
    )
    .unwrap();
    let o = called(&[file.to_str().unwrap(), "-q", "word", "-c", "true"]).success();
    assert_eq!(o.stdout, "Nameword\ntrue\n\n\n", "{}", o.stderr);
}

#[test]
fn commands_that_wait_do_not_keep_a_run_from_ending() {
    if !begin() {
        return;
    }
    // Each command makes more events than one, as its shell is switched to.
    let text = "tracepoint:sched:sched_switch { system(\"true\"); } END { printf(\"end\\n\"); }";
    let mut command = Command::new("timeout");
    command.args(["-s", "INT", "1", KYMO, "run", "--unsafe", "-e", text]);
    let started = std::time::Instant::now();
    let o = run_command(command);
    assert!(o.stdout.contains("end\n"), "{}", o.stderr);
    assert!(o.stderr.contains("commands of system() were not run"), "{}", o.stderr);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn maps_are_printed_when_asked_for() {
    if !begin() {
        return;
    }
    // An event that does not come keeps the program on: one without events ends by itself.
    let text = "BEGIN { @seen = 5; printf(\"on\\n\"); } interval:s:100 { }";
    let mut child =
        Command::new(KYMO).args(["run", "-q", "-e", text]).stdout(Stdio::piped()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out)).map(Result::unwrap);
    assert!(lines.any(|line| line == "on"));
    let pid = child.id().to_string();
    let _ = run("kill", ["-USR1", &pid]).success();
    assert!(lines.any(|line| line == "@seen: 5"));
    let _ = run("kill", ["-INT", &pid]).success();
    assert!(lines.any(|line| line == "@seen: 5"));
    assert!(child.wait().unwrap().success());
}

#[test]
fn attach_points_are_listed() {
    if !begin() {
        return;
    }
    let o = run(KYMO, ["run", "-l", "tracepoint:sched:sched_sw*"]).success();
    assert!(o.stdout.lines().any(|line| line == "tracepoint:sched:sched_switch"), "{}", o.stdout);
    let o = run(KYMO, ["run", "-lv", "tracepoint:sched:sched_switch"]).success();
    assert!(o.stdout.contains("\n    char prev_comm[16]\n"), "{}", o.stdout);
    let o = run(KYMO, ["run", "-l", "*ware:*"]).success();
    for line in ["software:page-faults:", "hardware:cycles:"] {
        assert!(o.stdout.lines().any(|l| l == line), "{}", o.stdout);
    }
    assert!(!o.stdout.contains("tracepoint:"), "{}", o.stdout);
    // A kernel without kprobes has none that match, which is no failure of the others.
    let o = run(KYMO, ["run", "-l", "*no_such_thing_anywhere*"]).success();
    assert_eq!(o.stdout, "");
    let work = Workload::spin();
    let hot = format!("uprobe:{}:hot", work.arg());
    // By a part of its name, of the file's, of the kind's; as it was typed.
    let file = work.arg().strip_suffix('n').unwrap();
    for pattern in [
        &hot,
        &format!("uprobe:{}:*ot", work.arg()),
        &format!("uprobe:{file}*:hot"),
        &format!("u*:{}:hot", work.arg()),
    ] {
        let o = run(KYMO, ["run", "-l", pattern]).success();
        assert!(o.stdout.lines().any(|line| line == hot), "{pattern}: {}", o.stdout);
    }
}

#[test]
fn headers_give_numbers_that_types_do_not() {
    if !begin() {
        return;
    }
    let text = "#include <errno.h>\n#include <sys/socket.h>\n\
                BEGIN { print((EPERM, EHWPOISON, EWOULDBLOCK, PF_INET6)); print(strerror(EPERM)); \
                exit(); }";
    let o = program(text, &["-q"]).success();
    assert_eq!(o.stdout.trim_end(), "(1, 133, 11, 10)\nOperation not permitted", "{}", o.stderr);
    let o = program("BEGIN { print(ENOENT); exit(); }", &["-q", "--include", "errno.h"]).success();
    assert_eq!(o.stdout.trim_end(), "2");
    let o = program("#include <no/such.h>\nBEGIN { print(1); exit(); }", &["-q"]).success();
    assert!(o.stderr.contains("'no/such.h' file not found"), "{}", o.stderr);
    let o = program("BEGIN { print(EPERM); }", &[]).failure();
    assert!(o.stderr.contains("unknown name \"EPERM\""), "{}", o.stderr);
}

#[test]
fn files_that_are_not_there_are_reported_when_they_are_read() {
    if !begin() {
        return;
    }
    let o = program("BEGIN { cat(\"/no/such\"); exit(); }", &["-q"]).success();
    let said = "ERROR: failed to open file '/no/such' (No such file or directory)\n";
    assert!(o.stderr.starts_with(said), "{}", o.stderr);
}

#[test]
fn functions_of_programs_are_probed() {
    if !begin() {
        return;
    }
    let work = Workload::spin();
    let text = format!(
        "uprobe:{0}:hot {{ @hot = count(); }} uretprobe:{0}:warm {{ @warm = count(); }} \
         uprobe:{0}:*o* {{ @[func] = count(); }}",
        work.arg()
    );
    let o = program(&text, &["-c", &format!("{} 5", work.arg())]).success();
    for expected in ["@hot: 5\n", "@warm: 5\n", "@[hot]: 5\n", "@[outer]: 5\n"] {
        assert!(o.stdout.contains(expected), "{expected}: {}\n{}", o.stdout, o.stderr);
    }
}

#[test]
fn costs_are_reported_before_and_limited() {
    if !begin() {
        return;
    }
    let text = "profile:hz:50 { @ = count(); } END { printf(\"end\\n\"); }";
    let o = program(text, &["--preflight", "--dry-run"]).success();
    let line = o.stderr.lines().find(|line| line.ends_with("profile:hz:50")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words[0].parse::<u64>().unwrap() > 0, "{}", o.stderr);
    assert!(o.stderr.contains(" % of a CPU: hits counted for a second"), "{}", o.stderr);
    // The command continues without its probes and ends by itself.
    let work = Workload::syscalls();
    let text = "tracepoint:raw_syscalls:sys_enter /pid == cpid/ { @[args.id] = count(); }";
    let command = format!("{} 20000000", work.arg());
    let o = program(text, &["--budget", "0.01", "-c", &command]).success();
    assert!(
        o.stderr.contains("more than the budget of 0.01 %: they were detached"),
        "{}",
        o.stderr
    );
    let counted = o.stdout.lines().find_map(|line| line.strip_prefix("@[110]: ")).unwrap();
    assert!(counted.parse::<u64>().unwrap() < 20_000_000);
    let o = program(text, &["--budget", "none"]).failure();
    assert!(o.stderr.contains("a share is a number above 0"), "{}", o.stderr);
}

#[test]
fn a_missing_right_is_named() {
    if !begin() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let copy = dir.path().join("kymo");
    std::fs::copy(KYMO, &copy).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
    command.args(["run", "-e", "BEGIN { @ = curtask->pid; exit(); }"]);
    let o = run_command(command).failure();
    assert!(o.stderr.contains("run as root, or with CAP_BPF and CAP_PERFMON"), "{}", o.stderr);
}

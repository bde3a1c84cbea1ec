//! `kymo stat` beside `perf stat` for the same command: the same lines, columns,
//! names and, where the command always does the same, the same counts.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use kymo_testkit::{Need, Outcome, Workload, peer, perf, require, run, run_command};

/// Runs kymo in the locale that `perf` is run in: a command reads locale files
/// of its own in others, and is counted doing it.
fn kymo(args: &[&str]) -> Outcome {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(args).env("LC_ALL", "C");
    run_command(command)
}

/// Both tools' lines on stderr for the same arguments, kymo's without the ledger.
fn both(args: &[&str]) -> (Vec<String>, Vec<String>) {
    let args: Vec<&str> = ["stat"].iter().chain(args).copied().collect();
    let lines = |outcome: Outcome| -> Vec<String> {
        outcome
            .stderr
            .lines()
            .take_while(|l| !["Trust:", "Note:", "# Trust:"].contains(l))
            .filter(|l| !l.is_empty())
            .map(str::to_owned)
            .collect()
    };
    (lines(kymo(&args)), lines(perf(&args)))
}

fn ready() -> bool {
    require(&[Need::Root, Need::PerfEvents, Need::Perf])
}

/// A line with every number made `0`, so that only the layout is left.
fn shape(line: &str) -> String {
    let mut out = String::new();
    for c in line.chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        if !(c == '0' && out.ends_with('0')) {
            out.push(c);
        }
    }
    out.replace("0.0", "0").replace("K/sec", "/sec").replace("M/sec", "/sec")
}

/// With -I a busy machine lets a tool miss an interval: lines of one shape count once.
fn once<T: PartialEq>(args: &[&str], mut lines: Vec<T>) -> Vec<T> {
    if args.contains(&"-I") {
        lines.dedup();
    }
    lines
}

#[track_caller]
fn same_shape(args: &[&str]) {
    let (ours, theirs) = both(args);
    let shapes = |lines: &[String]| once(args, lines.iter().map(|l| shape(l)).collect());
    assert!(!theirs.is_empty(), "perf printed nothing for {args:?}");
    assert_eq!(shapes(&ours), shapes(&theirs), "{args:?}\n{ours:#?}\n{theirs:#?}");
}

/// Text is padded around numbers of any length: the same words in lines of the same length.
#[track_caller]
fn same_text(args: &[&str]) {
    let (ours, theirs) = both(args);
    let words = |l: &String| {
        let words: Vec<String> = l.split_whitespace().map(shape).collect();
        (words.join(" "), l.len())
    };
    let shapes = |lines: &[String]| once(args, lines.iter().map(words).collect());
    assert!(!theirs.is_empty(), "perf printed nothing for {args:?}");
    assert_eq!(shapes(&ours), shapes(&theirs), "{args:?}\n{ours:#?}\n{theirs:#?}");
}

#[test]
fn csv_lines_have_perfs_columns() {
    if !ready() {
        return;
    }
    let clock = "task-clock,page-faults,cycles";
    same_shape(&["-x,", "true"]);
    same_shape(&["-x;", "-e", "{task-clock:u,page-faults:u},cs", "true"]);
    same_shape(&["-x,", "-r", "2", "-e", clock, "true"]);
    same_shape(&["-x,", "-a", "-A", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-x,", "-a", "--per-core", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-x,", "-a", "--per-socket", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-x,", "-a", "--per-die", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-x,", "-a", "--per-node", "-e", clock, "sleep", "0.02"]);
    let intervals = ["-x,", "-a", "-I", "40", "-e", "cpu-clock", "sleep", "0.06"];
    same_shape(&intervals);
    same_shape(&[&["--summary"], &intervals[..]].concat());
    same_shape(&[&["--summary", "--no-csv-summary"], &intervals[..]].concat());
    // For an event that is not supported perf leaves a column that its header lacks.
    let clock = "task-clock,page-faults";
    same_shape(&["-x,", "-a", "--per-core", "--metric-only", "-e", clock, "sleep", "0.02"]);
}

#[test]
fn text_is_laid_out_as_perfs() {
    if !ready() {
        return;
    }
    let clock = "cpu-clock";
    for flag in ["-A", "--per-core", "--per-die", "--per-socket", "--per-node"] {
        same_text(&["-a", flag, "-e", clock, "sleep", "0.02"]);
        same_text(&["-a", flag, "-I", "40", "-e", clock, "sleep", "0.06"]);
        same_text(&["-a", flag, "--metric-only", "-e", clock, "sleep", "0.02"]);
    }
    same_text(&["-a", "-I", "40", "--summary", "-e", clock, "sleep", "0.06"]);
    let table = kymo(&["stat", "--table", "-r", "4", "-e", "task-clock", "true"]).success().stderr;
    let runs: Vec<&str> = table.lines().filter(|l| l.ends_with('#')).collect();
    assert_eq!(runs.len(), 4, "{table}");
    assert!(table.contains("# Table of individual measurements:"), "{table}");
    assert!(table.contains("# Final result:"), "{table}");
}

#[test]
fn a_group_is_counted_at_one_moment() {
    if !ready() || !require(&[Need::Tracefs, Need::Gcc]) {
        return;
    }
    let w = Workload::syscalls();
    let group = "{raw_syscalls:sys_enter,raw_syscalls:sys_exit}";
    let out = kymo(&["stat", "-x,", "-I", "20", "-e", group, w.arg(), "3000000"]).success();
    let (mut entered, mut running, mut readings) = (0, "", 0);
    for line in out.stderr.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let Some(count) = fields.get(1).and_then(|c| c.parse::<i64>().ok()) else { continue };
        if fields[3].ends_with("enter") {
            entered += count;
            running = fields[4];
        } else {
            readings += 1;
            // One read(2) has one time for both. Counts differ by what the task does on its CPU
            // while the kernel copies one after the other.
            assert_eq!(fields[4], running, "{}", out.stderr);
        }
    }
    assert!(readings > 1 && entered > 3_000_000, "{out:?}");
}

#[test]
fn json_lines_have_perfs_keys() {
    if !ready() {
        return;
    }
    let clock = "task-clock,page-faults,cycles";
    same_shape(&["-j", "true"]);
    same_shape(&["-j", "-r", "2", "-e", clock, "true"]);
    same_shape(&["-j", "-a", "-A", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-j", "-a", "--per-core", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-j", "-a", "--per-socket", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-j", "-a", "--per-die", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-j", "-a", "--per-node", "-e", clock, "sleep", "0.02"]);
    same_shape(&["-j", "-a", "-I", "40", "--summary", "-e", "cpu-clock", "sleep", "0.06"]);
}

#[test]
fn a_command_that_does_the_same_gives_the_same_counts() {
    if !ready() || !require(&[Need::Tracefs]) {
        return;
    }
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=2000", "status=none"];
    let events = "syscalls:sys_enter_read,syscalls:sys_enter_write";
    let mut args = vec!["-x,", "-e", events];
    args.extend(dd);
    let (ours, theirs) = both(&args);
    let counts = |lines: &[String]| -> Vec<(String, String)> {
        lines
            .iter()
            .map(|l| {
                let mut fields = l.split(',');
                let count = fields.next().unwrap_or_default().to_owned();
                (count, fields.nth(1).unwrap_or_default().to_owned())
            })
            .collect()
    };
    assert_eq!(counts(&ours), counts(&theirs));
    assert_eq!(counts(&ours).len(), 2, "{ours:?}");

    let mut args = vec!["-x,", "-e", events, "--filter", "count==1"];
    args.extend(dd);
    let (ours, theirs) = both(&args);
    assert_eq!(counts(&ours), counts(&theirs));
    assert_eq!(counts(&ours)[0].0, "2000");
}

/// `msr` counts tasks, but rejects the exclusion of either side of the machine.
#[test]
fn a_pmu_that_cannot_tell_guests_apart_is_counted_as_perf_counts_it() {
    if !ready() {
        return;
    }
    // Its unit is what sysfs says, also of an event that has a name of its own elsewhere.
    same_shape(&["-x,", "-e", "software/config=1/", "true"]);
    if std::path::Path::new("/sys/bus/event_source/devices/msr/events/tsc").exists() {
        let (ours, theirs) = both(&["-x,", "-e", "msr/tsc/", "true"]);
        assert_eq!(shape(&ours[0]), shape(&theirs[0]));
        let counted: u64 = ours[0].split(',').next().unwrap_or_default().parse().unwrap_or(0);
        assert!(counted > 10_000, "{ours:?}");
    }
}

#[test]
fn a_refused_filter_says_which_field_is_missing_and_what_has_it() {
    if !ready() || !require(&[Need::Tracefs]) {
        return;
    }
    let refused =
        |event: &str, filter: &str| kymo(&["stat", "-e", event, "--filter", filter, "true"]);
    let one = refused("sched:sched_switch", "bogus==1").failure().stderr;
    assert!(one.contains("no field bogus; its fields are prev_comm, prev_pid,"), "{one}");
    // Of a glob some events have the field.
    let glob = refused("sched:sched_w*", "target_cpu>=0").failure().stderr;
    assert!(glob.contains("no field target_cpu"), "{glob}");
    assert!(glob.contains("fits -e sched:sched_wakeup,sched:sched_wakeup_new"), "{glob}");
    let form = refused("sched:sched_switch", "prev_pid==").failure().stderr;
    assert!(form.contains("malformed"), "{form}");
    let alone = kymo(&["stat", "--filter", "a==1", "true"]).failure().stderr;
    assert!(alone.contains("needs an -e"), "{alone}");
}

#[test]
fn repeating_for_ever_ends_with_a_signal() {
    if !ready() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let said = directory.path().join("said");
    // It is ended when it has reported three runs.
    let script = format!(
        "{} stat -r 0 -e page-faults -- sleep 0.05 2>{said} & \
         until [ $(grep -c elapsed {said}) -gt 2 ]; do sleep 0.05; done; \
         kill -INT $!; wait $!; status=$?; cat {said} >&2; exit $status",
        env!("CARGO_BIN_EXE_kymo"),
        said = said.display()
    );
    let began = std::time::Instant::now();
    // An interactive shell's child: SIGINT is not ignored.
    let outcome = run("bash", ["-c", &format!("set -m; {script}")]);
    assert_eq!(outcome.status, 130, "{outcome:?}");
    let runs = outcome.stderr.matches("seconds time elapsed").count();
    // Each takes the time of its command, but for the last, which is interrupted.
    let most = (began.elapsed().as_millis() / 50) as usize + 1;
    assert!((3..=most).contains(&runs), "{runs}: {outcome:?}");
    assert_eq!(outcome.stderr.matches("Performance counter stats").count(), runs);
}

#[test]
fn lines_for_programs_are_alone_on_their_stream() {
    if !ready() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lines");
    let events = ["-e", "vmstat:pgfault,vmstat:pgfree", "true"];
    for form in ["-x,", "-j"] {
        let stat = |flags: &[&str]| kymo(&[&["stat", form], flags, &events].concat()).success();
        let alone = stat(&[]).stderr;
        assert_eq!(alone.lines().count(), 2, "{alone}");
        assert!(alone.lines().all(|l| l.contains("vmstat:pg")), "{alone}");
        // Where the lines go to a file, standard error describes their scope.
        let said = stat(&["-o", file.to_str().unwrap()]).stderr;
        let both = "vmstat:pgfault, vmstat:pgfree are of the whole machine";
        assert!(said.contains(both), "{said}");
        let lines = std::fs::read_to_string(&file).unwrap();
        let lines = lines.lines().filter(|l| !l.is_empty() && !l.starts_with("# started on"));
        assert_eq!(lines.filter(|l| l.contains("vmstat:pg")).count(), 2);
    }
}

#[test]
fn values_out_of_range_are_named() {
    for (args, part) in [
        (["-r", "-1"], "invalid value '-1' for '--repeat <N>'"),
        (["-I", "-5"], "invalid value '-5' for '--interval-print <MS>'"),
    ] {
        let out = kymo(&["stat", args[0], args[1], "true"]).expect_status(2);
        assert!(out.stderr.contains(part), "{out:?}");
    }
}

#[test]
fn how_the_command_ended_is_passed_on() {
    if !ready() {
        return;
    }
    let quiet = ["stat", "-e", "task-clock", "--"];
    let status = |command: &[&str]| kymo(&[&quiet[..], command].concat()).status;
    assert_eq!(status(&["true"]), 0);
    assert_eq!(status(&["sh", "-c", "exit 5"]), 5);
    assert_eq!(status(&["sh", "-c", "kill -9 $$"]), 137);
    assert_eq!(status(&["no-such-program-here"]), 127);
}

#[test]
fn an_interrupt_prints_what_was_counted() {
    if !ready() {
        return;
    }
    // It is interrupted when its command runs.
    let script = format!(
        "{} stat -e task-clock -- sleep 300 & \
         comms() {{ sed 's,[0-9][0-9]*,/proc/&/comm,g' /proc/$1/task/$1/children; }}; \
         until cat $(comms $!) </dev/null | grep -q sleep; do sleep 0.05; done; \
         kill -TERM $!; wait $!",
        env!("CARGO_BIN_EXE_kymo")
    );
    let outcome = run("sh", ["-c", script.as_str()]);
    assert_eq!(outcome.status, 143, "{outcome:?}");
    assert_eq!(outcome.stderr.matches("task-clock").count(), 1, "{outcome:?}");
    assert!(outcome.stderr.contains("seconds time elapsed"), "{outcome:?}");
}

/// A process that sleeps runs none of its events: they are named in one note.
#[test]
fn events_of_a_process_that_sleeps_share_a_note() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let mut sleeper = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let events = "syscalls:sys_enter_get*";
    let text = kymo(&["stat", "-e", events, "-p", &pid, "--timeout", "100"]).success().stderr;
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let counted = text.matches("<not counted>").count();
    assert!(counted > 4, "{text}");
    let notes: Vec<&str> = text.lines().filter(|line| line.contains("never ran")).collect();
    let [note] = notes.as_slice() else { panic!("{notes:?} {text}") };
    assert!(
        note.contains(&format!("{counted} events never ran while they were counted:")),
        "{text}"
    );
    assert!(note.ends_with(&format!("and {} more", counted - 4)), "{text}");
}

#[test]
fn metrics_are_derived_of_the_events_that_perf_counts_for_them() {
    if !require(&[Need::Root, Need::PerfEvents, Need::NewestPeers]) {
        return;
    }
    let work = Workload::spin();
    let metrics = "cs_per_second,migrations_per_second,page_faults_per_second,CPUs_utilized";
    let args = ["stat", "-x,", "-M", metrics, work.arg(), "20"];
    let rows = |text: &str| -> Vec<Vec<String>> {
        let fields = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        text.lines().map(fields).filter(|fields| fields.len() > 6).collect()
    };
    let names = |rows: &[Vec<String>]| -> BTreeSet<String> {
        let events = rows.iter().map(|row| row[2].trim_start_matches("cpu-").to_owned());
        events.filter(|name| name != "duration_time").collect()
    };
    let (ours, theirs) =
        (rows(&kymo(&args).success().stderr), rows(&peer("perf").run(args).success().stderr));
    assert_eq!(names(&ours), names(&theirs), "{ours:?} {theirs:?}");
    assert_eq!(ours.len(), 4, "{ours:?}");
    let of = |name: &str| ours.iter().find(|row| row[2] == name).unwrap();
    let number = |text: &str| text.parse::<f64>().unwrap();
    let seconds = number(&of("task-clock")[0]) / 1e3;
    let (faults, rate) = (number(&of("page-faults")[0]), &of("page-faults")[5..7]);
    let scale = match &*rate[1] {
        "K/sec" => 1e3,
        "M/sec" => 1e6,
        unit => {
            assert_eq!(unit, "/sec");
            1.0
        }
    };
    let derived = number(&rate[0]) * scale;
    assert!((derived - faults / seconds).abs() <= derived / 100.0, "{ours:?}");
    assert_eq!(of("task-clock")[6], "CPUs utilized");
    // Beside other events, each counted once.
    let more = ["stat", "-x,", "-e", "task-clock,minor-faults", "-M", "CPUs_utilized", work.arg()];
    let more = rows(&kymo(&more).success().stderr);
    let counted: Vec<&str> = more.iter().map(|row| &*row[2]).collect();
    assert_eq!(counted, ["task-clock", "minor-faults"]);
    let refused = kymo(&["stat", "-M", "tma_retiring", "true"]).failure();
    assert!(refused.stderr.contains("insn_per_cycle"), "{refused:?}");
    let topdown = kymo(&["stat", "--topdown", "true"]).failure();
    assert!(topdown.stderr.contains("has no --topdown: top-down levels"), "{topdown:?}");
}

#[test]
fn clusters_and_caches_sum_the_cpus_that_perf_sums() {
    if !require(&[Need::Root, Need::PerfEvents, Need::NewestPeers]) {
        return;
    }
    for by in ["--per-cluster", "--per-cache", "--per-cache=L1", "--per-cache=l2"] {
        for format in [&["-x,"][..], &[]] {
            let args =
                [&["stat", "-a", by, "-e", "cpu-clock"], format, &["sleep", "0.02"]].concat();
            let keys = |text: &str| -> Vec<String> {
                let rows = text.lines().filter(|line| line.contains("cpu-clock"));
                // The key, how many CPUs, and where the value ends.
                rows.map(|row| match row.split_once(" msec ") {
                    None => row.split(',').take(2).collect::<Vec<_>>().join(","),
                    Some((before, _)) => {
                        let words: Vec<&str> = before.split_whitespace().take(2).collect();
                        format!("{} {}", words.join(" "), before.len())
                    }
                })
                .collect()
            };
            let ours = kymo(&args).success().stderr;
            let theirs = peer("perf").run(&args).success().stderr;
            assert_eq!(keys(&ours), keys(&theirs), "{by}\n{ours}\n{theirs}");
            assert!(!keys(&ours).is_empty(), "{ours}");
        }
    }
    let json = kymo(&["stat", "-a", "--per-cache", "-j", "-e", "cpu-clock", "true"]).success();
    assert!(json.stderr.starts_with("{\"cache\" : \"S0-D0-L"), "{json:?}");
    let refused = kymo(&["stat", "-a", "--per-cache=L7", "true"]).failure();
    assert!(refused.stderr.contains("L1 to L4"), "{refused:?}");
    let commands = kymo(&["stat", "--per-cluster", "true"]).failure();
    assert!(commands.stderr.contains("need -a or -C"), "{commands:?}");
}

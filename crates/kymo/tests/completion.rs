//! Completions of a shell, driven through bash as a tabulator key would.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::Write as _;
use std::process::Command;

use kymo_testkit::{Need, TracingState, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Returns bash's completions of this line.
fn offered(line: &str) -> Vec<String> {
    let script = run(KYMO, ["manual", "--completions", "bash"]).success().stdout;
    // Words as readline splits them.
    let ask = r#"
eval "$SCRIPT"
COMP_LINE=$LINE COMP_POINT=${#LINE}
read -ra COMP_WORDS <<< "${LINE//:/ : }"
[[ $LINE == *[[:space:]:] ]] && COMP_WORDS+=("")
COMP_WORDS[0]=$KYMO
words=("$KYMO")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_kymo
printf '%s\n' "${COMPREPLY[@]}"
"#;
    let mut bash = Command::new("bash");
    let line = line.replacen("kymo", KYMO, 1);
    bash.args(["-c", ask]).env("SCRIPT", script).env("LINE", line).env("KYMO", KYMO);
    let out = bash.output().unwrap();
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[track_caller]
fn check(line: &str, offers: &[&str], not: &[&str]) {
    let all = offered(line);
    for one in offers {
        assert!(all.iter().any(|offer| offer == one), "{line}: no {one} in {all:?}");
    }
    for one in not {
        assert!(!all.iter().any(|offer| offer == one), "{line}: {one} in {all:?}");
    }
}

#[test]
fn commands_options_and_stated_values() {
    assert_eq!(offered("kymo prof"), ["profile"]);
    check("kymo sched ", &["latency", "timehist", "record"], &["profile"]);
    check("kymo report --so", &["--sort"], &["--children"]);
    check("kymo report --no-p", &["--no-pager"], &[]);
    assert_eq!(offered("kymo report --stdio-color=al"), ["always"]);
    // Files are the shell's own.
    assert_eq!(offered("kymo report -i "), [""]);
    for broken in ["kymo", "kymo --", "kymo nothing ", "kymo report --nothing ", "kymo -e"] {
        let _ = offered(broken);
    }
}

#[test]
fn events_and_their_fields() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    check("kymo record -e sch", &["sched:"], &["sched:sched_switch"]);
    // As bash wants it: without what is before the colon.
    check("kymo record -e sched:sched_sw", &["sched_switch"], &["sched_wakeup"]);
    check("kymo stat -e task-clock,page-f", &["task-clock,page-faults"], &[]);
    check("kymo count -e sched:sched_switch --by prev", &["prev_comm", "prev_pid"], &["next_pid"]);
    check("kymo count -e sched:sched_switch --hist ", &["prev_state"], &["common_pid"]);
    check("kymo record -e sched:sched_switch --filter next", &["next_pid"], &[]);
}

#[test]
fn processes_probes_and_sessions() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let own = std::process::id().to_string();
    check(&format!("kymo record -p {own}"), &[&own], &[]);
    let _state = TracingState::take();
    let (probe, path) = ("kymotestcomplete:point", "kymotestcomplete/point");
    let define = |text: String| {
        let probes = "/sys/kernel/tracing/uprobe_events";
        let file = std::fs::OpenOptions::new().append(true).open(probes);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    };
    define(format!("p:{path} {KYMO}:0x1000"));
    let found = offered("kymo probe --del kymotestcomp");
    define(format!("-:{path}"));
    assert_eq!(found, [probe]);
    let session = "test-completion";
    let _ = run(KYMO, ["session", "create", session]).success();
    let (started, created) =
        (offered("kymo session start test-comp"), offered("kymo session create test-comp"));
    let _ = run(KYMO, ["session", "destroy", session]).success();
    assert_eq!(started, [session]);
    assert!(!created.contains(&session.to_owned()), "{created:?}");
}

//! Beside the kernel, without root, for other users, in containers, where there is no room, and
//! among names and directories that are not to be trusted.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kymo_testkit::{Need, TracingState, UNPRIVILEGED_UID, require};

use crate::stage::{Program, ROLE, Stage, names, range, text, told};

#[test]
fn a_session_of_both_writes_both_of_the_same_seconds() {
    if !require(&[Need::Root, Need::Tracefs, Need::Babeltrace, Need::TraceCmd]) {
        return;
    }
    let _state = TracingState::take();
    let stage = Stage::new();
    let name = format!("both-{}", std::process::id());
    let mut program = stage.program();
    let args = ["create", &name, "-u", "work:step", "-e", "syscalls:sys_enter_write"];
    stage.ok(&args);
    let again = stage.refused(&["create", &name, "-u", "work:*"]);
    assert!(again.contains("there is a session"), "{again}");
    stage.ok(&["start", &name]);
    // Each answer is a write, after its event.
    for _ in 0..20 {
        program.ask("go 1");
    }
    let said = stage.ok(&["snapshot", &name, "-o", "now"]);
    assert!(said.contains("bytes of events of 1 program"), "{said}");
    assert_eq!(stage.steps("now"), range(0, 20));
    let dat = stage.path("now/kernel/trace.dat");
    let report = Command::new("trace-cmd").args(["report", "-t", "-i"]).arg(&dat).output().unwrap();
    let report = text(&report.stdout);
    // The harness runs the role in a thread.
    let tasks = names(Path::new(&format!("/proc/{}/task", program.pid())));
    let of = |l: &&str| tasks.iter().any(|t| l.contains(&format!("-{t} ")));
    let mine: Vec<&str> = report.lines().filter(of).collect();
    assert_eq!(mine.len(), 20, "{report}");
    let seconds = |line: &str| -> f64 {
        let (_, behind) = line.split_once("] ").unwrap();
        behind.trim().split(": ").next().unwrap().trim_end_matches(':').parse().unwrap()
    };
    // Both are CLOCK_MONOTONIC: step, write, step, write …
    let shown = stage.command(env!("CARGO_BIN_EXE_kymo")).args(["script", "now/ust"]).output();
    let shown = text(&shown.unwrap().stdout);
    let time = |line: &str| -> f64 {
        let word = line.split_whitespace().find(|w| w.ends_with(':') && w.contains('.')).unwrap();
        word.trim_end_matches(':').parse().unwrap()
    };
    let steps: Vec<f64> = shown.lines().filter(|l| l.contains("work:step")).map(time).collect();
    assert_eq!(steps.len(), 20, "{shown}");
    for (i, (step, write)) in steps.iter().zip(&mine).enumerate() {
        let write = seconds(write);
        assert!(*step < write + 2e-6, "step {i} at {step}, written at {write}");
        if let Some(next) = steps.get(i + 1) {
            assert!(write < *next + 2e-6, "written at {write}, step {} at {next}", i + 1);
        }
    }
    // A part may come later, a clock that is not theirs is refused.
    stage.ok(&["destroy", &name]);
    stage.ok(&["create", &name, "-e", "syscalls:sys_enter_write", "--clock", "global"]);
    assert!(stage.refused(&["enable", &name, "-u", "work:*"]).contains("must be mono"));
    stage.ok(&["destroy", &name]);
    stage.ok(&["create", &name, "-u", "work:*"]);
    stage.ok(&["start", &name]);
    stage.ok(&["enable", &name, "-e", "syscalls:sys_enter_write"]);
    program.ask("go 1");
    stage.ok(&["snapshot", &name, "-o", "late"]);
    assert!(stage.path("late/kernel/trace.dat").exists());
    // One part is lost: this is reported, and the other continues.
    let instance = format!("/sys/kernel/tracing/instances/kymo-session-{name}");
    std::fs::remove_dir(instance).unwrap();
    let shown = stage.ok(&["show", &name]);
    assert!(shown.contains("a part is lost: its trace instance was removed"), "{shown}");
    stage.ok(&["destroy", &name]);
    program.end();
    assert_eq!(stage.left(), [""; 0]);
}

/// Runs the command as an unprivileged user.
fn unprivileged(mut command: Command) -> Command {
    command.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID).env_remove("XDG_RUNTIME_DIR");
    command
}

#[test]
fn a_session_of_programs_needs_no_root_and_roots_covers_all_users() {
    if !require(&[Need::Root, Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    // Directory without access.
    let copy = |from: &Path, to: &str| {
        let to = stage.path(to);
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(&to, PermissionsExt::from_mode(0o755)).unwrap();
        to
    };
    let kymo = copy(Path::new(env!("CARGO_BIN_EXE_kymo")), "kymo");
    let me = copy(&std::env::current_exe().unwrap(), "program");
    let session = |args: &[&str]| {
        let mut command = unprivileged(stage.command(&kymo));
        command.arg("session").args(args).output().unwrap()
    };
    let role = || {
        let mut command = unprivileged(stage.command(&me));
        command.args(["--exact", "role", "--nocapture"]).env(ROLE, "1");
        Program::start(command)
    };
    let fine = |output: Output| {
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout) + &text(&output.stderr)
    };
    fine(session(&["create", "mine"]));
    let nothing = session(&["start", "mine"]);
    assert!(text(&nothing.stderr).contains("has no events"), "{}", text(&nothing.stderr));
    fine(session(&["enable", "mine", "-u", "work:step"]));
    fine(session(&["start", "mine"]));
    let mut program = role();
    program.ask("go 10");
    // Root's session of the same name is another.
    stage.ok(&["create", "mine", "-u", "work:step", "--filter", "half == 6"]);
    stage.ok(&["start", "mine"]);
    let mut own = stage.program();
    own.ask("go 20");
    program.ask("go 10");
    let mut later = role();
    later.ask("go 20");
    fine(session(&["snapshot", "mine", "-o", "nobodys"]));
    assert_eq!(stage.steps("nobodys").len(), 40);
    stage.ok(&["snapshot", "mine", "-o", "roots"]);
    let mut roots = stage.steps("roots");
    roots.sort_unstable();
    assert_eq!(roots, [12, 12, 12, 13, 13, 13]);
    let users = names(&stage.path("roots/ust"));
    assert_eq!(users.len(), 2, "{users:?}");
    stage.ok(&["destroy", "mine"]);
    program.ask("go 1");
    fine(session(&["snapshot", "mine", "-o", "continued"]));
    assert_eq!(stage.steps("continued"), [20]);
    let kernels = session(&["create", "k", "-e", "sched:sched_switch"]);
    assert!(!kernels.status.success() && !kernels.stderr.is_empty());
    fine(session(&["destroy", "mine"]));
    for p in [program, own, later] {
        p.end();
    }
    assert_eq!(stage.left(), [""; 0]);
}

#[test]
fn programs_in_other_mount_namespaces_are_reached() {
    if !require(&[Need::Root, Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    let name = format!("cont-{}", std::process::id());
    // A container's /dev/shm: what is mounted there is seen through /proc/PID/root alone.
    let inside = |stage: &Stage| {
        let me = std::env::current_exe().unwrap();
        let mut command = Command::new("unshare");
        let script = "mount -t tmpfs none /dev/shm && exec \"$0\" --exact role --nocapture";
        command.args(["-m", "sh", "-c", script]).arg(me).env(ROLE, "1");
        command.env_remove("KYMO_UST_DIR").current_dir(stage.top.path());
        Program::start(command)
    };
    let mut program = inside(&stage);
    stage.ok(&["create", &name, "-u", "work:step"]);
    stage.ok(&["start", &name]);
    program.ask("go 10");
    let shown = stage.ok(&["show", &name]);
    assert!(shown.contains("10 written"), "{shown}");
    stage.ok(&["snapshot", &name, "-o", "one"]);
    assert_eq!(stage.steps("one"), range(0, 10));
    // A container that comes later is joined by the next command.
    let mut later = inside(&stage);
    stage.ok(&["start", &name]);
    later.ask("go 5");
    program.ask("go 2");
    stage.ok(&["snapshot", &name, "-o", "two"]);
    assert_eq!(stage.steps("two").len(), 7);
    stage.ok(&["destroy", &name]);
    let process = Path::new("/proc").join(program.pid().to_string());
    let shm = process.join("root").join("dev/shm/kymo-0");
    assert_eq!(names(&shm.join("wanted")), [""; 0]);
    let directory = names(&shm).into_iter().find(|n| n != "wanted").unwrap();
    assert_eq!(names(&shm.join(directory)), ["control"], "no ring is left");
    program.end();
    later.end();
}

fn mount(at: &Path, options: &str) {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", options, "none"]).arg(at);
    assert!(command.status().unwrap().success());
}

struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: &Path, options: &str) -> Mounted {
        mount(at, options);
        Mounted(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn what_a_full_disk_does_not_take_stays_in_the_rings() {
    if !require(&[Need::Root, Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    let small = stage.path("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = Mounted::tmpfs(&small, "size=200k");
    stage.ok(&["create", "disk", "-u", "work:step", "--mode", "discard", "--buffer-size", "512K"]);
    stage.ok(&["start", "disk"]);
    let mut program = stage.program();
    program.ask("go 16000");
    let said = stage.refused(&["snapshot", "disk", "-o", "small/part"]);
    assert!(said.contains("No space left"), "{said}");
    let mut steps = stage.steps("small/part");
    assert!(!steps.is_empty() && steps.len() < 16_000);
    stage.ok(&["snapshot", "disk", "-o", "rest"]);
    steps.extend(stage.steps("rest"));
    steps.sort_unstable();
    assert_eq!(steps, range(0, 16_000));
    stage.ok(&["destroy", "disk"]);
    drop(mounted);
}

#[test]
fn a_full_shared_directory_is_reported_and_gets_over() {
    if !require(&[Need::Root, Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    let _mounted = Mounted::tmpfs(&stage.shared, "size=400k,mode=1777");
    stage.ok(&["create", "full", "-u", "work:step"]);
    stage.ok(&["start", "full"]);
    let mut program = stage.program();
    program.ask("go 100");
    let said = stage.ok(&["snapshot", "full", "-o", "one"]);
    let discarded = told(&said, " events discarded") + told(&said, " events lost: ");
    assert_eq!(discarded, 100, "{said}");
    let shown = stage.ok(&["show", "full"]);
    assert!(shown.contains("no memory on 1 CPU:") || shown.contains("No space left"), "{shown}");
    mount(&stage.shared, "remount,size=64M,mode=1777");
    stage.ok(&["start", "full"]);
    program.ask("go 10");
    let said = stage.ok(&["snapshot", "full", "-o", "two"]);
    assert_eq!(stage.steps("two"), range(100, 110), "{said}");
    stage.ok(&["destroy", "full"]);
    program.end();
}

#[test]
fn names_that_cannot_be_and_sessions_that_are_not() {
    if !require(&[]) {
        return;
    }
    let stage = Stage::new();
    for name in ["../x", "a/b", "..", ".x", "", "a b", "ä"] {
        let said = stage.refused(&["create", name, "-u", "work:*"]);
        assert!(said.contains("cannot be a session's name"), "{name}: {said}");
        for action in ["start", "stop", "show", "destroy", "snapshot"] {
            let said = stage.refused(&[action, name]);
            assert!(said.contains("cannot be a session's name"), "{action} {name}: {said}");
        }
    }
    let long = "x".repeat(41);
    let said = stage.refused(&["create", &long, "-u", "work:*"]);
    assert!(said.contains("at most 40"), "{said}");
    let said = stage.refused(&["create", "x", "-u", "work:*", "--channel", "a.b"]);
    assert!(said.contains("cannot be a channel's name"), "{said}");
    for action in ["start", "stop", "show", "destroy", "snapshot", "rotate"] {
        let said = stage.refused(&[action, "nosuch"]);
        assert!(said.contains("there is no session nosuch"), "{action}: {said}");
    }
    assert!(stage.refused(&["enable", "nosuch", "-u", "a:b"]).contains("there is no session"));
    stage.ok(&["create", "x", "-u", "work:*"]);
    assert!(stage.refused(&["create", "x", "-u", "work:*"]).contains("there is a session x"));
    assert!(stage.refused(&["enable", "x"]).contains("no event is named"));
    assert!(stage.refused(&["disable", "x", "-e", "sched"]).contains("no events of the kernel"));
    // The shared directory was emptied, as a reboot or the end of a login does.
    stage.ok(&["start", "x"]);
    for user in names(&stage.shared) {
        std::fs::remove_dir_all(stage.shared.join(user)).unwrap();
    }
    let said = stage.refused(&["snapshot", "x"]);
    assert!(said.contains("there is no session x"), "{said}");
    if is_root() {
        assert!(said.contains("it was lost: its channel configurations in"), "{said}");
        assert!(stage.ok(&["list"]).contains("x: lost: its channel configurations in"));
        stage.ok(&["destroy", "x"]);
    }
    assert!(!stage.ok(&["list"]).contains("x: lost"));
}

#[test]
fn somebody_elses_directory_in_the_place_of_ones_own_is_refused_and_hides_nothing() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    let stage = Stage::new();
    let own = stage.shared.join("kymo-0");
    std::fs::create_dir(&own).unwrap();
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o700)).unwrap();
    std::os::unix::fs::lchown(&own, Some(12345), Some(12345)).unwrap();
    let name = format!("host-{}", std::process::id());
    let said = stage.refused(&["create", &name, "-u", "work:*"]);
    assert!(said.contains("kymo-0 is of user 12345"), "{said}");
    stage.ok(&["create", &name, "-e", "sched:sched_process_exit"]);
    let listed = stage.ok(&["list"]);
    assert!(listed.contains(&format!("{name}: stopped")), "{listed}");
    assert!(listed.contains("kymo-0 is of user 12345"), "{listed}");
    stage.ok(&["start", &name]);
    stage.ok(&["snapshot", &name, "-o", "x.dat"]);
    stage.ok(&["destroy", &name]);
    assert!(!stage.ok(&["list"]).contains(&name));
}

#[test]
fn a_session_of_before_the_last_boot_is_reported_and_cleared_up() {
    if !require(&[Need::Root]) {
        return;
    }
    let stage = Stage::new();
    let name = format!("old-{}", std::process::id());
    let note = Path::new("/run/kymo/sessions").join(&name);
    std::fs::create_dir_all(note.parent().unwrap()).unwrap();
    let shared = stage.shared.display();
    std::fs::write(&note, format!("boot another\nmade 1\nprograms {shared}\n")).unwrap();
    let lost = format!("{name}: lost: the machine was started again");
    assert!(stage.ok(&["list"]).contains(&lost));
    let said = stage.refused(&["start", &name]);
    assert!(said.contains("the machine was started again"), "{said}");
    stage.ok(&["destroy", &name]);
    assert!(!note.exists());
}

#[test]
fn a_snapshot_by_itself_has_both_parts() {
    if !require(&[Need::Root, Need::Tracefs, Need::Babeltrace, Need::TraceCmd]) {
        return;
    }
    let _state = TracingState::take();
    let stage = Stage::new();
    let name = format!("cond-{}", std::process::id());
    let mut program = stage.program();
    let pid = program.pid().to_string();
    let args = ["create", &name, "-u", "work:step", "-e", "sched:sched_process_exit", "-p", &pid];
    stage.ok(&args);
    stage.ok(&["start", &name]);
    // Program of another command, which -p leaves out.
    let mut other = stage.program();
    other.ask("go 7");
    program.ask("go 3");
    let mut command = stage.command(env!("CARGO_BIN_EXE_kymo"));
    let condition = format!("sched:sched_process_exit if pid == {pid}");
    command.args(["session", "snapshot", &name, "-o", "it", "-n", "1", "--on", &condition]);
    let mut watcher = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(watcher.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert!(line.contains("watching in user space"), "{line}");
    program.end();
    assert!(watcher.wait().unwrap().success());
    let it = names(stage.top.path()).into_iter().find(|n| n.starts_with("it.")).unwrap();
    assert_eq!(stage.steps(&it), range(0, 3));
    let dat = stage.path(&it).join("kernel/trace.dat");
    let report = Command::new("trace-cmd").args(["report", "-i"]).arg(&dat).output().unwrap();
    let report = text(&report.stdout);
    let exits = report.lines().filter(|l| l.contains(&format!("-{pid} "))).count();
    assert_eq!(exits, 1, "{report}");
    stage.ok(&["destroy", &name]);
    other.end();
    assert_eq!(stage.left(), [""; 0]);
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

#[test]
fn a_hostile_directory_is_passed_over_and_said() {
    if !require(&[Need::Root, Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    let mut program = stage.program();
    stage.ok(&["create", "h", "-u", "work:step"]);
    // Another user's: its channel configurations are a link to where root could write.
    let evil = stage.shared.join("kymo-12345");
    let target = stage.path("target");
    std::fs::create_dir(&evil).unwrap();
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, evil.join("wanted")).unwrap();
    std::fs::set_permissions(&evil, PermissionsExt::from_mode(0o700)).unwrap();
    // A directory that claims to be a third one's.
    std::fs::create_dir(stage.shared.join("kymo-777")).unwrap();
    // A program whose files are something else.
    for (name, file) in [("1-1-0", "control"), ("2-2-0", "ring-0-1")] {
        let dir = evil.join(name);
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.join(file)).unwrap();
        std::os::unix::fs::lchown(&dir, Some(12345), Some(12345)).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700)).unwrap();
    }
    std::os::unix::fs::lchown(&evil, Some(12345), Some(12345)).unwrap();
    let said = stage.ok(&["start", "h"]);
    assert!(said.contains("kymo-12345/wanted") && said.contains("kymo-777 is of user 0"), "{said}");
    program.ask("go 10");
    let said = stage.ok(&["snapshot", "h", "-o", "out"]);
    assert_eq!(stage.steps("out"), range(0, 10), "{said}");
    stage.ok(&["destroy", "h"]);
    assert_eq!(names(&target), [""; 0]);
    program.end();
}

#[test]
fn several_processes_and_their_children() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let stage = Stage::new();
    let name = format!("some-{}", std::process::id());
    let mut running = stage.program();
    // Its child begins later.
    let mut command = stage.command("sh");
    command.args(["-c", "echo ready; read go; \"$0\" --exact role --nocapture; :"]);
    command.arg(std::env::current_exe().unwrap()).env(ROLE, "1");
    let mut parent = Program::start(command);
    let mut other = stage.program();
    let mut pids = [running.pid(), parent.pid()];
    let [one, two] = pids.map(|pid| pid.to_string());
    pids.sort_unstable();
    let only = format!("only processes {}, {} and their children", pids[0], pids[1]);
    let create = ["create", &name, "-u", "work:step", "-p"];
    stage.ok(&[&create[..], &[&format!("{one},{two}")]].concat());
    assert!(stage.ok(&["show", &name]).contains(&only));
    stage.ok(&["start", &name]);
    parent.say("go");
    parent.hear("ready");
    running.ask("go 3");
    parent.ask("go 5");
    other.ask("go 7");
    stage.ok(&["snapshot", &name, "-o", "now"]);
    let mut steps = stage.steps("now");
    steps.sort_unstable();
    assert_eq!(steps, [0, 0, 1, 1, 2, 2, 3, 4]);
    // A second one into the same directory is refused, with what to do instead.
    let again = stage.refused(&["snapshot", &name, "-o", "now"]);
    assert!(again.contains("now is not empty") && again.contains("session rotate"), "{again}");
    stage.ok(&["destroy", &name]);
    stage.ok(&[&create[..], &[&one, "-p", &two]].concat());
    assert!(stage.ok(&["show", &name]).contains(&only));
    stage.ok(&["destroy", &name]);
    let many = stage.refused(&[&create[..], &["1,2,3,4,5"]].concat());
    assert!(many.contains("at most 4 processes"), "{many}");
    [running, parent, other].into_iter().for_each(Program::end);
    assert_eq!(stage.left(), [""; 0]);
}

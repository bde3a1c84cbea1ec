//! The talk of 2010 that `kymo probe` is built after ("Dynamic Event Tracing in Linux
//! Kernel"), page by page, with `kymo` for `perf`: on a kernel with kprobes, its
//! `vmlinux` and its sources. The commands are run by a shell as they are printed,
//! in the directory of the sources. perf's own probe is asked the same where it can.
//!
//! What is not as printed, because kernels changed: `schedule` has no line `cpu = …`
//! any more, and what was `perf trace` then is `perf script` now.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use kymo_testkit::{
    Need, Outcome, TracingState, Workload, kernel_debug, load_module, require, run_command,
};

const NEEDS: &[Need] =
    &[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf, Need::KernelDebug];

/// A shell in the directory of the sources.
struct Shell {
    sources: PathBuf,
    /// With `kymo` in it.
    bin: tempfile::TempDir,
}

impl Shell {
    fn new() -> Shell {
        let bin = tempfile::tempdir().unwrap();
        symlink(env!("CARGO_BIN_EXE_kymo"), bin.path().join("kymo")).unwrap();
        Shell { sources: kernel_debug().unwrap().sources, bin }
    }

    #[track_caller]
    fn try_run(&self, line: &str) -> Outcome {
        let mut sh = Command::new("sh");
        let path = std::env::var("PATH").unwrap();
        sh.arg("-c").arg(line).current_dir(&self.sources);
        sh.env("PATH", format!("{}:{path}", self.bin.path().display()));
        run_command(sh)
    }

    #[track_caller]
    fn run(&self, line: &str) -> String {
        self.try_run(line).success().stdout
    }

    /// Returns the error message of a command that must fail.
    #[track_caller]
    fn refused(&self, line: &str) -> String {
        self.try_run(line).failure().stderr
    }

    /// Asserts that perf prints the same, and returns it.
    #[track_caller]
    fn same(&self, line: &str) -> String {
        let (ours, theirs) = (self.run(line), self.run(&line.replacen("kymo", "perf", 1)));
        assert_eq!(ours, theirs, "{line}");
        ours
    }

    /// A path for a file.
    fn file(&self, name: &str) -> String {
        self.bin.path().join(name).to_str().unwrap().to_owned()
    }
}

#[track_caller]
fn has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in\n{text}");
}

fn count(text: &str, parts: &[&str]) -> usize {
    text.lines().filter(|l| parts.iter().all(|p| l.contains(p))).count()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn which_lines_can_be_probed() {
    if !require(NEEDS) {
        return;
    }
    let sh = Shell::new();
    // Page "--line shows which source code lines can be probed".
    let lines = sh.same("kymo probe --line vfs_read:0+7");
    has(
        &lines,
        "      0  ssize_t vfs_read(struct file *file, char __user *buf, size_t count, loff_t",
    );
    has(&lines, "if (!(file->f_mode & FMODE_READ))");
    let source = sh.run("kymo probe --line read_write.c:468+6");
    has(&source, "    468  \t\tret = file->f_op->read(file, buf, count, pos);\n");
    let schedule = sh.run("kymo probe --line schedule");
    has(&schedule, "      2  \tstruct task_struct *tsk = current;");
    let vars = sh.same("kymo probe --vars vfs_read");
    has(&vars, "\t\tstruct file*\tfile\n");
}

#[test]
fn a_session_on_vfs_read() {
    if !require(NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let sh = Shell::new();
    let program = Workload::compile("reads", include_str!("guest_programs/reads.c"));
    // Page "Probe setting and tracing on vfs_read".
    let added = sh.run("kymo probe --add 'vfs_read file file->f_mode'");
    has(&added, "Added new event:\n  probe:vfs_read       (on vfs_read with file file->f_mode)\n");
    has(&added, "kymo record -e probe:vfs_read");
    // Page "--list shows current events with source code line numbers".
    let list = sh.run("kymo probe --list");
    assert_eq!(list, "  probe:vfs_read       (on vfs_read@fs/read_write.c with file f_mode)\n");
    assert_eq!(list, sh.run("perf probe --list"));
    assert_eq!(count(&sh.run("kymo list"), &["probe:vfs_read", "[Dynamic event]"]), 1);
    let data = sh.file("perf.data");
    let _ = sh.run(&format!("kymo record -e probe:vfs_read -aRf -o {data} ls -l"));
    let script = sh.run(&format!("kymo script -i {data}"));
    assert!(
        count(&script, &[" ls ", "probe:vfs_read:", " file=0xff", " f_mode=0x"]) > 3,
        "{script}"
    );
    assert_eq!(script, sh.run(&format!("perf script -i {data}")));
    let report = sh.run(&format!("kymo report -i {data}"));
    has(&report, "of event 'probe:vfs_read'");
    // The mode has FMODE_READ and not FMODE_WRITE for a file that is read, in every hit
    // of a program that makes five reads.
    let live = sh.run(&format!("kymo trace -q -e 'probe:vfs_read' -- {}", program.arg()));
    let modes: Vec<&str> =
        live.lines().filter_map(|l| l.split_once("f_mode=0x")).map(|(_, m)| m).collect();
    assert_eq!(modes.len(), 5, "{live}");
    assert!(modes.iter().all(|m| u32::from_str_radix(m, 16).unwrap() & 3 == 1), "{live}");
    // Page "--force", "--dry-run", "--verbose": "-fnv is recommended".
    let dry = sh.run("kymo probe -fnv 'vfs_read file file->f_mode'");
    has(&dry, "Would add new event:\n  probe:vfs_read_1 ");
    has(&sh.refused("kymo probe vfs_read"), "an event probe:vfs_read exists");
    has(&sh.run("kymo probe --force vfs_read"), "probe:vfs_read_1");
    // Page "--del deletes events matching a given glob pattern".
    let removed = sh.run("kymo probe --del 'vfs*_1'");
    assert_eq!(removed, "Removed event: probe:vfs_read_1\n");
    assert_eq!(sh.run("kymo probe --del '*'"), "Removed event: probe:vfs_read\n");
    assert_eq!(sh.run("kymo probe --list"), "");
}

#[test]
fn every_kind_of_place() {
    if !require(NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let sh = Shell::new();
    // Page "Lazy matching". What the talk matches is gone from the kernel.
    has(&sh.refused("kymo probe --add 'schedule;cpu=*'"), "schedule;cpu=*");
    let lazy = sh.run("kymo probe -v --add 'schedule;sched_*'");
    has(&lazy, "probe:schedule       (on schedule;sched_*)");
    let definitions = lazy.lines().filter(|l| l.starts_with("p:probe/schedule _text+")).count();
    assert!(definitions >= 2, "{lazy}");
    // Pages "Probe point specifies where new event happens" and what follows it; the
    // function sched_submit_work exists only as inlined copies.
    let _ = sh.run(
        "kymo probe --add 'wrote=vfs_write%return $retval:s64' \
         --add 'vfs_read:6%next count' \
         --add 'inside=fs/read_write.c:473 ret' \
         --add 'reads=fs/read_write.c;ret=vfs_read(*' \
         --add 'five=vfs_write@read_write.c+5 count' \
         --add 'sched_submit_work tsk->pid' \
         --add 'vfs_fsync*'",
    );
    let list = sh.run("kymo probe --list");
    for line in [
        "  probe:schedule       (on schedule:4@kernel/sched/core.c)",
        "  probe:wrote__return  (on vfs_write%return@fs/read_write.c with arg1)",
        "@fs/read_write.c with count)",
        "  probe:inside         (on vfs_read:23@fs/read_write.c with ret)",
        "  probe:reads          (on ksys_read:",
        "  probe:five           (on vfs_write",
        "  probe:sched_submit_work (on schedule:4@kernel/sched/core.c with pid)",
        "  probe:vfs_fsync_range (on vfs_fsync_range@fs/sync.c)",
        "  probe:vfs_fsync      (on vfs_fsync@fs/sync.c)",
    ] {
        has(&list, line);
    }
    let program = Workload::compile("reads", include_str!("guest_programs/reads.c"));
    let events = "probe:schedule,probe:wrote__return,probe:vfs_read_L6,probe:inside,probe:five,probe:sched_submit_work";
    let live = sh.run(&format!("kymo trace -q -e {events} -- {} 2", program.arg()));
    // Before its first write it was not yet the program.
    let live = live.split_once(" five: ").unwrap().1;
    assert_eq!(count(live, &["wrote__return:", " <- ", "arg1=10"]), 1, "{live}");
    // Twice four reads of three bytes and one of a length of its own.
    assert_eq!(count(live, &[" vfs_read_L6:", "count=0x3"]), 8, "{live}");
    assert_eq!(count(live, &[" vfs_read_L6:", "count=0x2a"]), 1, "{live}");
    assert_eq!(count(live, &[" vfs_read_L6:", "count=0x29"]), 1, "{live}");
    // 3 + 3 + 3 + 1 bytes and the end.
    for (ret, n) in [("ret=3", 6), ("ret=1", 2), ("ret=0", 2)] {
        let found = live.lines().filter(|l| l.contains(" inside:") && l.ends_with(ret)).count();
        assert_eq!(found, n, "{ret}\n{live}");
    }
    let _ = sh.run("kymo probe -q --del '*'");
    assert_eq!(sh.run("kymo probe --list"), "");
}

#[test]
fn the_tracers_own_syntax() {
    if !require(NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let sh = Shell::new();
    // Pages "Interface" and "Event arguments can access registers/memory/stack".
    let added = sh.run("kymo probe 'p vfs_read+0 %di +0x3c(%di):u32'");
    has(&added, "kprobes:p_vfs_read_0 (on vfs_read+0)");
    let _ = sh.run("kymo probe --add 'p:mine/known vfs_read foo=+10(%bp):u32 bar=@tick_usec %ax $stack $stack2 +8(+0(%si))'");
    let _ = sh.run("kymo probe --add 'r:mine/left vfs_read+0 $retval'");
    let list = sh.run("kymo probe --list");
    has(
        &list,
        "  mine:known           (on vfs_read@fs/read_write.c with foo bar arg3 arg4 arg5 arg6)\n",
    );
    has(&list, "  mine:left            (on vfs_read%return@fs/read_write.c with arg1)\n");
    let program = Workload::compile("reads", include_str!("guest_programs/reads.c"));
    let live = sh.run(&format!("kymo trace -q -e 'mine:*' -- {}", program.arg()));
    // A tick takes 10000 us, whatever CONFIG_HZ is.
    assert_eq!(count(&live, &[" known:", "foo=", "bar=0x2710 "]), 5, "{live}");
    assert_eq!(count(&live, &[" left:", "arg1=0x3"]), 3, "{live}");
    // Page "kprobes now checks instruction boundary".
    let inside = sh.refused("kymo probe 'p vfs_read+1'");
    has(&inside, "middle of an instruction");
    has(&inside, "not an instruction boundary");
    let _ = sh.run("kymo probe --add '-:mine/known'");
    assert_eq!(sh.run("kymo probe --del 'mine:*'"), "Removed event: mine:left\n");
    let _ = sh.run("kymo probe -q --del '*'");
}

#[test]
fn the_page_of_open_todos() {
    if !require(NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let sh = Shell::new();
    let program = Workload::compile("reads", include_str!("guest_programs/reads.c"));
    // "String allows us to trace pathname etc".
    let _ = sh.run(
        "kymo probe --add 'named=do_sys_openat2 filename:ustring how->flags' \
         --add 'opened=vfs_open path->dentry->d_name.name:string'",
    );
    let live =
        sh.run(&format!("kymo trace -q -e 'probe:named,probe:opened' -- {} 3", program.arg()));
    assert_eq!(count(&live, &["named:", "filename_ustring=\"/tmp/kymo-ten-bytes\""]), 4, "{live}");
    assert_eq!(count(&live, &["named:", "flags=0x8242"]), 1, "{live}");
    assert_eq!(count(&live, &["opened:", " name=\"kymo-ten-bytes\""]), 4, "{live}");
    // "Kernel modules are not supported yet".
    load_module("scsi_debug", "dev_size_mb=8");
    let _ = sh.same("kymo probe -m scsi_debug --line delay_show");
    let _ = sh.run(
        "kymo probe -m scsi_debug --add 'delay_show ddp buf' --add 'delay_show%return $retval:s32'",
    );
    let list = sh.run("kymo probe --list");
    has(&list, "(on delay_show@drivers/scsi/scsi_debug.c in scsi_debug with ddp buf)");
    assert_eq!(sorted(&list), sorted(&sh.run("perf probe --list")));
    let shown = "cat /sys/bus/pseudo/drivers/scsi_debug/delay";
    let live = sh.run(&format!("kymo trace -q -e 'probe:delay_show*' -- {shown}"));
    assert_eq!(count(&live, &[" delay_show:", "ddp=0xff", "buf=0xff"]), 1, "{live}");
    // "1\n" is what it writes.
    assert_eq!(count(&live, &[" delay_show__return:", "arg1=2"]), 1, "{live}");
    // "array[i] is commonly used in loops": not with fetch arguments, and it is said.
    let index = sh.refused("kymo probe 'alloc_pid set_tid[i]'");
    has(&index, "alloc_pid set_tid[i]\n                    ^");
    has(&index, "an index that is a variable");
    // "%next: Probe the next step line".
    let next = sh.run("kymo probe -n 'vfs_read:6%next'");
    has(&next, "p:probe/vfs_read_L6 _text+");
    // Page "Uprobes: under development".
    let _ = sh.run(&format!(
        "kymo probe -x {} --add 'turn number path:string' --add 'turn%return $retval:s64'",
        program.arg()
    ));
    let live = sh.run(&format!("kymo trace -q -e 'probe_reads:*' -- {} 2", program.arg()));
    for part in ["number=2", "number=1"] {
        assert_eq!(count(&live, &[part, "path_string=\"/tmp/kymo-ten-bytes\""]), 1, "{live}");
    }
    assert_eq!(count(&live, &[" turn__return:", "arg1=10"]), 2, "{live}");
    let _ = sh.run("kymo probe -q --del '*'");
}

#[test]
fn how_a_probe_works_is_said() {
    if !require(NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let sh = Shell::new();
    let switch = "/proc/sys/debug/kprobes-optimization";
    let _ = sh.run("kymo probe -q --add 'vfs_read' --add 'vfs_read:6'");
    let idle = sh.run("kymo probe -l -v");
    has(&idle, "    0 hits, 0 missed, not switched on; will use the function tracer's call\n");
    has(&idle, "    0 hits, 0 missed, not switched on\n");
    has(&idle, "debug.kprobes-optimization = 1");
    // Page "Sysctl interface". The kernel optimizes a moment after it is asked to.
    let enable = "echo 1 > /sys/kernel/tracing/events/probe/enable";
    let until = |word: &str| {
        format!(
            "n=0; until kymo probe -l -v | grep -q '{word}' || [ $n -gt 60 ]; do \
             cat /etc/passwd >/dev/null; sleep 0.2; n=$((n+1)); done; kymo probe -l -v"
        )
    };
    let jump = sh.run(&format!("{enable}; {}", until("optimized: a jump")));
    has(&jump, "hits, 0 missed, optimized: a jump, in use by tracefs itself");
    has(&jump, "hits, 0 missed, uses the function tracer's call, in use by tracefs itself");
    std::fs::write(switch, "0").unwrap();
    let slow = sh.run(&until("a breakpoint"));
    std::fs::write(switch, "1").unwrap();
    has(&slow, "hits, 0 missed, a breakpoint, in use by tracefs itself");
    has(&slow, "sysctl -w debug.kprobes-optimization=1");
    let busy = sh.refused("kymo probe --del 'vfs_*'");
    has(&busy, "probe:vfs_read: it is in use by tracefs itself");
    let _ = sh.run("echo 0 > /sys/kernel/tracing/events/probe/enable");
    // A perf process holds one.
    let [data, begun, done] = ["held.data", "begun", "done"].map(|name| sh.file(name));
    let command = format!("touch {begun}; until [ -e {done} ]; do sleep 0.1; done");
    let busy = sh.refused(&format!(
        "perf record -q -e probe:vfs_read -o {data} -- sh -c '{command}' & \
         until [ -e {begun} ]; do sleep 0.1; done; \
         kymo probe --del 'vfs_*'; status=$?; touch {done}; wait; exit $status"
    ));
    has(&busy, "probe:vfs_read: it is in use as a perf event");
    has(&busy, "perf (process ");
    let _ = sh.run("kymo probe -q --del '*'");
}

#[test]
fn a_kernel_that_is_not_this_one_is_refused() {
    if !require(NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let sh = Shell::new();
    let wrong = sh.refused("kymo probe -k /bin/sh vfs_read");
    has(&wrong, "/bin/sh is of another kernel: its build-id is ");
    let id = wrong.split("the running kernel's ").nth(1).unwrap().trim().to_owned();
    let own = sh.run("od -An -v -tx1 /sys/kernel/notes | tr -d ' \\n'");
    assert!(id.len() == 40 && own.contains(&id), "{id} {own}");
    // Sources that are not there: named, with what to do.
    let missing = sh.try_run("cd /; kymo probe --line vfs_read").failure().stderr;
    has(&missing, "fs/read_write.c is not here");
    has(&missing, "-s says where sources are");
    // A pattern wants the source, too.
    has(&sh.refused("cd /; kymo probe 'schedule;sched_*'"), "source");
    has(&sh.refused("kymo probe --max-probes 2 'vfs_*'"), "more than 2 probe points");
    assert_eq!(sh.run("kymo probe --list"), "");
}

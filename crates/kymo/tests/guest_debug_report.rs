//! Lines and inlined functions of the running kernel and of a module in reports: with
//! their debug files where Debian's package has them, and the sources as the judge. A
//! frame's line is that of a call, so the source there names the frame above.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use kymo_testkit::{
    Need, Outcome, Workload, kernel_debug, load_module, perf, require, run_command,
};

const NEEDS: &[Need] = &[Need::Root, Need::PerfEvents, Need::Perf, Need::KernelDebug];

#[track_caller]
fn kymo(args: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(args);
    run_command(command).success()
}

/// A frame of script: function with its offset, and `file:line`.
struct Frame {
    function: String,
    offset: String,
    line: String,
    inlined: bool,
    kernel: bool,
}

fn stacks(text: &str) -> Vec<Vec<Frame>> {
    let stack = |part: &str| -> Vec<Frame> {
        let lines: Vec<&str> = part.lines().filter(|l| l.starts_with([' ', '\t'])).collect();
        let frame = |pair: &[&str]| {
            let (ip, name) = pair[0].trim().split_once(' ').unwrap();
            let (function, offset) = name.rsplit_once('+').unwrap_or((name, ""));
            let line = pair[1].trim();
            Frame {
                function: function.into(),
                offset: offset.into(),
                line: line.trim_end_matches(" (inlined)").into(),
                inlined: line.ends_with(" (inlined)"),
                kernel: ip.starts_with("ffffffff"),
            }
        };
        lines.chunks_exact(2).map(frame).collect()
    };
    text.split("\n\n").map(stack).collect()
}

/// Counts frames in a source file whose line names the function above, and the others.
/// Calls through `pfp`, scsi_debug's pointer to a command's function, are neither, nor are those
/// of `scsi_done`, which jumps on to others and leaves no frame of its own.
fn named_there(stacks: &[Vec<Frame>], source: &Path) -> (usize, Vec<String>) {
    let file = source.file_name().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(source).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (mut good, mut other) = (0, Vec::new());
    for pair in stacks.iter().flat_map(|s| s.windows(2)) {
        let [above, frame] = pair else { continue };
        let Some((name, line)) = frame.line.split_once(':') else { continue };
        if name != file {
            continue;
        }
        let at = line.parse::<usize>().unwrap() - 1;
        let rest = lines[at..].iter().position(|l| l.trim_end().ends_with([';', '{']));
        let statement = lines[at..=at + rest.unwrap_or(0).min(3)].concat();
        // `read_lock` is a macro that calls `_raw_read_lock`.
        let called = above.function.split('.').next().unwrap().trim_start_matches("_raw_");
        match statement.contains(called) {
            true => good += 1,
            false if ["pfp(", "scsi_done("].iter().any(|call| statement.contains(call)) => {}
            false => other.push(format!("{called} from {}: {statement}", frame.line)),
        }
    }
    (good, other)
}

#[test]
fn the_kernels_lines_name_what_they_call() {
    if !require(NEEDS) {
        return;
    }
    let w = Workload::compile("reads", include_str!("guest_programs/reads.c"));
    let file = w.file("perf.data");
    let program = w.arg();
    let args =
        ["record", "-q", "-e", "cpu-clock:k", "-F", "999", "-g", "-o", &file, program, "20000"];
    let _ = perf(args).success();
    let script = ["script", "-i", &file, "-F", "ip,sym,symoff,srcline"];
    let text = kymo(&script).stdout;
    let stacks = stacks(&text);
    let sources = kernel_debug().unwrap().sources;
    let (good, other) = named_there(&stacks, &sources.join("fs/read_write.c"));
    // Some are called through pointers or are made by macros.
    assert!(good > 20 && other.len() * 4 < good, "{good} {other:#?}");
    assert!(stacks.iter().flatten().any(|f| f.inlined && f.function == "new_sync_read"), "{text}");
    let of_kernel = || stacks.iter().flatten().filter(|f| f.kernel);
    let lacking = of_kernel().filter(|f| f.line.contains(['?', '[']));
    let lacking: Vec<&str> = lacking.map(|f| &*f.function).collect();
    assert!(lacking.len() * 50 < of_kernel().count(), "{lacking:?}");
    // What an interrupt came upon stands beneath its entry; perf has the same names
    // and offsets of all frames, as it looks nothing up one byte before.
    let theirs = perf(["script", "-i", &file, "-F", "ip,sym,symoff"]).success().stdout;
    let name = |l: &str| Some(l.trim().split_once(' ')?.1.to_owned());
    let theirs: Vec<String> = theirs.lines().filter_map(name).collect();
    let beneath = theirs.windows(2).filter(|p| p[0].starts_with("asm_"));
    let ours: Vec<String> = stacks
        .iter()
        .flatten()
        .filter(|f| !f.inlined)
        .map(|f| format!("{}+{}", f.function, f.offset))
        .collect();
    // But of several names of one place (`__x86_indirect_thunk_rax` and `…_array`).
    let list = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let mut named: HashMap<&str, Vec<&str>> = HashMap::new();
    for words in list.lines().map(|l| l.split_whitespace().collect::<Vec<_>>()) {
        named.entry(words[2]).or_default().push(words[0]);
    }
    let same = |ours: &str, theirs: &str| {
        let parts = |frame: &str| -> Option<(Vec<&str>, String)> {
            let (name, offset) = frame.rsplit_once('+')?;
            Some((named.get(name)?.clone(), offset.to_owned()))
        };
        let (Some(ours), Some(theirs)) = (parts(ours), parts(theirs)) else { return false };
        ours.1 == theirs.1 && ours.0.iter().any(|place| theirs.0.contains(place))
    };
    for pair in beneath {
        let found = ours.windows(2).any(|p| p == pair)
            || ours.windows(2).any(|p| p[0] == pair[0] && same(&p[1], &pair[1]));
        assert!(found, "{pair:?}");
    }
    let report =
        kymo(&["report", "-i", &file, "--stdio", "--no-children", "-g", "caller,srcline"]).stdout;
    assert!(report.contains("read_write.c:") && report.contains("(inlined)"), "{report}");
    let sorted =
        kymo(&["report", "-i", &file, "--stdio", "-g", "none", "-s", "srcfile,srcline"]).stdout;
    assert!(
        sorted.lines().filter(|l| l.contains(".c ") || l.contains(".h ")).count() > 5,
        "{sorted}"
    );
    // A bundle has all of it, also where nothing else is.
    let _ = kymo(&["bundle", "-i", &file]);
    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_kymo"));
    let empty = w.file("empty");
    std::fs::create_dir(&empty).unwrap();
    elsewhere.args(script).args(["--symfs", &empty]).env("KYMO_CACHE", "off");
    assert_eq!(run_command(elsewhere).success().stdout, text);
}

#[test]
fn a_modules_lines_name_what_they_call() {
    if !require(NEEDS) {
        return;
    }
    load_module("sd_mod", "");
    // Answers immediately: with its delay the machine would be idle, mostly.
    load_module("scsi_debug", "dev_size_mb=8 delay=0");
    let w = Workload::compile("reads", include_str!("guest_programs/reads.c"));
    let file = w.file("perf.data");
    let sources = kernel_debug().unwrap().sources;
    let shell = "for i in $(seq $0); do for d in /dev/sd?; do dd if=$d of=/dev/null bs=4096 count=500 iflag=direct; done; done";
    let first = ["record", "-q", "-a", "-e", "cpu-clock:k", "-F", "999", "-g", "-o", &file];
    let sampled = |rounds: &str| {
        let _ = perf([&first[..], &["sh", "-c", shell, rounds]].concat()).success();
        let text = kymo(&["script", "-i", &file, "-F", "ip,sym,symoff,srcline"]).stdout;
        let found = named_there(&stacks(&text), &sources.join("drivers/scsi/scsi_debug.c"));
        (text, found)
    };
    // The number that this machine needs.
    let mut rounds = ["4", "16", "64"].iter();
    let (text, good, other) = loop {
        let (text, (good, other)) = sampled(rounds.next().unwrap());
        if good >= 20 || rounds.len() == 0 {
            break (text, good, other);
        }
    };
    assert!(good >= 20 && other.len() * 5 < good, "{good} {other:#?}");
    // Without the module's names in the kernel's list, its file has them.
    let list = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let kernel: String =
        list.lines().filter(|l| !l.contains("[scsi_debug]")).map(|l| format!("{l}\n")).collect();
    let kallsyms = w.file("kallsyms");
    std::fs::write(&kallsyms, kernel).unwrap();
    let again =
        kymo(&["script", "-i", &file, "-F", "ip,sym,symoff,srcline", "--kallsyms", &kallsyms]);
    assert_eq!(again.stdout, text);
    // The code is the kernel's own, with lines of the module's file.
    let shown = kymo(&["annotate", "-i", &file, "-d", "[scsi_debug]", "--top", "1", "-l"]).stdout;
    assert!(shown.contains("scsi_debug.c:") && !shown.contains("boundary:"), "{shown}");
}

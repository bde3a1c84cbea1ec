//! User stacks of `--call-graph dwarf` recordings, frame by frame: what gdb shows
//! at the same system call of the same program is right.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_testkit::{Need, Outcome, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: &[Need] = &[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc, Need::Tool("gdb")];

struct Program {
    directory: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    #[track_caller]
    fn compile(compiler: &str, source: &str, text: &str, flags: &[&str]) -> Program {
        let directory = tempfile::tempdir().unwrap();
        let (source, path) = (directory.path().join(source), directory.path().join("program"));
        std::fs::write(&source, text).unwrap();
        let made =
            Command::new(compiler).args(flags).arg("-o").arg(&path).arg(&source).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Program { directory, path }
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Records its getppid calls with copies of that number of bytes; gives the recording.
    #[track_caller]
    fn record(&self, size: u32, args: &[&str]) -> String {
        let data = self.file("perf.data");
        let graph = format!("dwarf,{size}");
        let path = self.path.to_str().unwrap();
        let event = "syscalls:sys_enter_getppid";
        let first = ["record", "-q", "-e", event, "--call-graph", &graph, "-o", &data, "--", path];
        let _ = run(KYMO, [&first[..], args].concat()).success();
        data
    }

    /// Returns gdb's stack at each getppid call.
    #[track_caller]
    fn in_gdb(&self, args: &[&str], calls: usize) -> Vec<Vec<String>> {
        let mut gdb = Command::new("gdb");
        gdb.args(["-batch", "-nx", "-iex", "set debuginfod enabled off"]);
        gdb.args(["-iex", "set debug-file-directory /nonexistent"]);
        let settings = [
            "width 0",
            "print demangle off",
            "print asm-demangle off",
            "backtrace past-main on",
            "backtrace limit 10000",
        ];
        for setting in settings {
            gdb.args(["-ex", &format!("set {setting}")]);
        }
        gdb.args([
            "-ex",
            "handle SIGILL nostop noprint",
            "-ex",
            "catch syscall getppid",
            "-ex",
            "run",
        ]);
        for _ in 0..calls {
            gdb.args(["-ex", "echo STACK\\n", "-ex", "bt", "-ex", "continue", "-ex", "continue"]);
        }
        gdb.arg("--args").arg(&self.path).args(args).env_remove("DEBUGINFOD_URLS");
        let text = kymo_testkit::run_command(gdb).success().stdout;
        let stacks = text.split("STACK\n").skip(1);
        stacks.map(|s| s.lines().filter_map(gdb_frame).collect()).collect()
    }
}

/// The function of a frame, or the library when it is not of the program.
fn gdb_frame(line: &str) -> Option<String> {
    let (_, rest) = line.strip_prefix('#')?.split_once(' ')?;
    let rest = rest.trim_start();
    if rest.starts_with("<signal handler") {
        return Some("signal".into());
    }
    if let Some((_, library)) = rest.rsplit_once(" from ") {
        return Some(Path::new(library).file_name()?.to_str()?.to_owned());
    }
    let name = rest.split_once(" in ").filter(|(a, _)| a.starts_with("0x")).map_or(rest, |r| r.1);
    Some(one_name(name.strip_suffix(" ()").unwrap_or(name)))
}

/// One name of those that a function has.
fn one_name(name: &str) -> String {
    // The complete destructor is the base's where nothing is virtual.
    name.replace("D1Ev", "D2Ev")
}

/// Returns the stacks of a recording.
#[track_caller]
fn in_script(shown: &Outcome, program: &Path) -> Vec<Vec<String>> {
    let samples = shown.stdout.split("\n\n").map(|sample| {
        let frames = sample.lines().filter_map(|line| {
            let (_, place) = line.strip_prefix('\t')?.trim_start().split_once(' ')?;
            let (name, dso) = place.rsplit_once(" (")?;
            let dso = Path::new(dso.strip_suffix(')')?);
            let library = || dso.file_name().unwrap().to_str().unwrap().to_owned();
            Some(match name {
                "__restore_rt" => "signal".to_owned(),
                name if dso == program => one_name(name),
                _ => library(),
            })
        });
        frames.collect::<Vec<_>>()
    });
    samples.filter(|s| !s.is_empty()).collect()
}

fn script(data: &str) -> Outcome {
    run(KYMO, ["script", "--no-inline", "--no-demangle", "-F", "ip,sym,dso", "-i", data])
}

/// Compiled by `compiler`, the program's stacks at its getppid calls are gdb's.
#[track_caller]
fn as_gdb(program: &Program, args: &[&str], calls: usize) -> Outcome {
    let data = program.record(65528, args);
    let shown = script(&data);
    let ours = in_script(&shown, &program.path);
    let theirs = program.in_gdb(args, calls);
    assert_eq!((ours.len(), theirs.len()), (calls, calls), "{}", shown.stdout);
    for (call, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours, theirs, "call {call} of {}", program.path.display());
        assert!(ours.len() > 3);
    }
    shown
}

const PLAIN: &[&str] = &["-O2", "-fomit-frame-pointer", "-pthread"];
const STATIC: &[&str] = &["-O2", "-fomit-frame-pointer", "-pthread", "-static"];

#[test]
fn through_a_signal() {
    if !require(NEEDS) {
        return;
    }
    for flags in [PLAIN, STATIC] {
        let program =
            Program::compile("gcc", "signal.c", include_str!("unwind_programs/signal.c"), flags);
        let shown = as_gdb(&program, &[], 1);
        assert!(
            shown.stderr.contains("1 (100.0%) of 1 user stacks are complete"),
            "{}",
            shown.stderr
        );
    }
}

/// In a chain of frame pointers through a signal handler, the trampoline's address is the handler's
/// return address: at its start, not one byte before.
#[test]
fn frame_pointers_through_a_signal() {
    if !require(NEEDS) {
        return;
    }
    let text = include_str!("unwind_programs/signal.c");
    let flags = ["-O1", "-g", "-static", "-fno-omit-frame-pointer"];
    let program = Program::compile("gcc", "signal.c", text, &flags);
    let (data, path) = (program.file("perf.data"), program.path.to_str().unwrap());
    let event = "syscalls:sys_enter_getppid";
    let _ = run(KYMO, ["record", "-q", "-e", event, "-g", "-o", &data, "--", path]).success();
    let shown = run(KYMO, ["script", "-i", &data, "-F", "ip,sym,symoff"]).success().stdout;
    let names: Vec<&str> =
        shown.lines().filter_map(|l| l.trim().split_once(' ')).map(|l| l.1).collect();
    let at = names.iter().position(|n| *n == "__restore_rt+0x0");
    let at = at.unwrap_or_else(|| panic!("{shown}"));
    let is = |n: &str, function: &str| n.split('+').next() == Some(function);
    assert!(is(names[at - 1], "handler") && is(names[at + 1], "deep"), "{shown}");
    let json = run(KYMO, ["script", "-i", &data, "--json"]).success().stdout;
    assert!(json.contains(r#""sym":"__restore_rt","symoff":0"#), "{json}");
    let report = run(KYMO, ["report", "-i", &data, "-g"]).success().stdout;
    assert!(report.contains("__restore_rt"), "{report}");
}

#[test]
fn exceptions_templates_and_realigned_stacks() {
    if !require(NEEDS) {
        return;
    }
    let text = include_str!("unwind_programs/exceptions.cpp");
    for flags in [PLAIN, STATIC] {
        let program = Program::compile("g++", "exceptions.cpp", text, flags);
        as_gdb(&program, &[], 7);
    }
}

#[test]
fn closures_panics_and_threads_of_rust() {
    if !require(&[NEEDS, &[Need::Tool("rustc")]].concat()) {
        return;
    }
    let text = include_str!("unwind_programs/rusty.rs");
    let flags = ["-O", "-C", "strip=debuginfo", "--edition", "2024"];
    let program = Program::compile("rustc", "rusty.rs", text, &flags);
    as_gdb(&program, &[], 9);
}

/// Returns for each sample its depth as the program states it, and its frames.
fn depths(data: &str) -> Vec<(u64, Vec<String>)> {
    let shown =
        run(KYMO, ["script", "--no-inline", "-F", "trace,ip,sym,dso", "-i", data]).success();
    let samples = shown.stdout.split("\n\n").filter_map(|sample| {
        // NR 110 (12c, …: the first argument is the depth.
        let (_, arguments) = sample.split_once("NR 110 (")?;
        let (depth, _) = arguments.split_once(',')?;
        let depth = u64::from_str_radix(depth, 16).unwrap();
        let name = |l: &str| Some(l.strip_prefix('\t')?.trim_start().split(' ').nth(1)?.to_owned());
        Some((depth, sample.lines().filter_map(name).collect()))
    });
    samples.collect()
}

#[track_caller]
fn record_calls(program: &Program, size: &str, thread: bool, args: &[&str]) -> (String, String) {
    let data = program.file("perf.data");
    let graph = format!("dwarf,{size}");
    let (event, only) = ("raw_syscalls:sys_enter", "id == 110");
    let first = ["record", "-q", "-e", event, "--filter", only, "--call-graph", &graph];
    let path = program.path.to_str().unwrap();
    let mut record = Command::new(KYMO);
    record.args(first).args(["-o", &data, "--", path]).args(args);
    if thread {
        record.env("IN_THREAD", "1");
    }
    let _ = kymo_testkit::run_command(record).success();
    let report = run(KYMO, ["report", "--stdio", "-g", "caller", "-i", &data]).success();
    let trust = report.stdout.split("# Trust:").nth(1).unwrap_or_default().to_owned();
    (data, trust)
}

/// The program says how deep each of its stacks is, so that it is known which are
/// cut, and how large a copy must be.
#[test]
fn the_share_of_cut_stacks_and_the_size_that_would_do() {
    if !require(NEEDS) {
        return;
    }
    let text = include_str!("unwind_programs/recursion.c");
    let program = Program::compile("gcc", "recursion.c", text, PLAIN);
    let args = ["1", "5", "40", "10", "41", "42", "100", "3", "60"];
    for thread in [false, true] {
        let outermost = if thread { "clone3" } else { "_start" };
        let (data, trust) = record_calls(&program, "8192", thread, &args);
        let stacks = depths(&data);
        assert_eq!(stacks.len(), args.len());
        let mut cut = 0;
        for (depth, frames) in &stacks {
            let descents = frames.iter().filter(|f| *f == "descend").count() as u64;
            let complete = frames.last().is_some_and(|f| f == outermost);
            assert_eq!(complete, descents == *depth, "{frames:?}");
            cut += usize::from(!complete);
        }
        // A frame of `descend` has 176 bytes: 8192 hold at most 46 of them.
        assert_eq!(cut, 2, "{stacks:#?}");
        assert!(
            trust.contains("7 (77.8%) of 9 user stacks are complete, 2 (22.2%) cut"),
            "{trust}"
        );
        let (_, size) = trust.split_once("--call-graph dwarf,32768: ").unwrap();
        let (size, rest) = size.split_once(" bytes are enough for ").unwrap();
        assert!(rest.starts_with("2 of them"), "{trust}");
        assert!(trust.contains("--call-graph dwarf,32768"), "{trust}");
        // That size does it, and not much less.
        let (_, trust) = record_calls(&program, size, thread, &args);
        assert_eq!(trust, "");
        let less = (size.parse::<u64>().unwrap() - 256 - 176).to_string();
        let (_, trust) = record_calls(&program, &less, thread, &args);
        assert!(
            trust.contains("8 (88.9%) of 9 user stacks are complete, 1 (11.1%) cut"),
            "{trust}"
        );
    }
}

#[test]
fn code_made_at_run_time() {
    if !require(NEEDS) {
        return;
    }
    let text = include_str!("unwind_programs/jit.c");
    let program = Program::compile("gcc", "jit.c", text, PLAIN);
    let shown = script(&program.record(8192, &[]));
    let stacks = in_script(&shown, &program.path);
    let [stack] = &stacks[..] else { panic!("{stacks:?}") };
    assert_eq!(stack[1..2], ["back"]);
    assert!(stack[2].starts_with("perf-") && stack[2].ends_with(".map"), "{stack:?}");
    assert_eq!(stack[3..], ["enter", "main", "libc.so.6", "libc.so.6", "_start"]);
    assert!(shown.stderr.contains("1 (100.0%) of 1 user stacks are complete"), "{}", shown.stderr);
    // Without a frame pointer nothing is made up, and the ledger names the place.
    let shown = script(&program.record(8192, &["bare"]));
    let stacks = in_script(&shown, &program.path);
    assert_eq!((stacks[0].len(), stacks[0][1].as_str()), (3, "back"), "{stacks:?}");
    assert!(shown.stderr.contains("1 (100.0%) stopped at unknown code"), "{}", shown.stderr);
    assert!(shown.stderr.contains("JIT code"), "{}", shown.stderr);
    // Unless the compiler's file has its unwind information and its name.
    let directory = program.directory.path().to_str().unwrap();
    let shown = script(&program.record(8192, &["bare", directory]));
    let names = run(KYMO, ["script", "-F", "ip,sym", "-i", &program.file("perf.data")]).success();
    let stacks = in_script(&shown, &program.path);
    assert_eq!(stacks[0][3..], ["enter", "main", "libc.so.6", "libc.so.6", "_start"]);
    assert!(names.stdout.contains(" made\n"), "{}", names.stdout);
    assert!(shown.stderr.contains("1 (100.0%) of 1 user stacks are complete"), "{}", shown.stderr);
}

/// Known defects of perf 6.1 with libunwind: where the copy ends it adds a frame that is none
/// (`ffffffffffffffff`); on a signal's own stack it adds one, too; it gives up on programs that are
/// statically linked or, like gcc's cc1, lie at fixed addresses, and where a function is about to
/// return. Only stacks in which it reached the beginning of the program are compared.
#[test]
fn where_perf_reaches_the_end_it_has_the_same_frames() {
    if !require(&[NEEDS, &[Need::Perf, Need::Tool("git")]].concat()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data").display().to_string();
    let work = "git init -q $0; cd $0; for i in $(seq 150); do seq $i >$i; done; git add .; \
                git -c user.name=a -c user.email=a commit -qm a; git gc -q; git log --stat; \
                git fsck";
    let repository = directory.path().join("repository").display().to_string();
    let record = ["record", "-q", "-e", "cpu-clock", "-F", "12000", "--call-graph", "dwarf,32768"];
    let rest = ["-o", &data, "--", "sh", "-c", work, &repository];
    let _ = kymo_testkit::perf([&record[..], &rest].concat()).success();
    let shown = |program: &str| -> Vec<String> {
        let args = ["script", "--no-inline", "-F", "ip,sym,symoff,dso", "-i", &data];
        let text = run(program, args).success().stdout;
        text.split("\n\n").map(|s| s.trim().to_owned()).collect()
    };
    let (theirs, ours) = (shown("perf"), shown(KYMO));
    assert_eq!(theirs.len(), ours.len());
    // The dynamic linker's start is left out: perf shows no `_dl_start` there, which
    // calls what it shows and is called by `_start`.
    let whole = |stack: &str| {
        let mut lines = stack.lines().rev();
        lines.nth(1).is_some_and(|l| l.contains(" __libc_start_main"))
    };
    // Of a signal's trampoline perf shows the byte before, which belongs to no function: the kernel
    // put its first byte there as the handler's return address. gdb has it as kymo.
    let signal = |stack: &str| stack.contains("__restore_rt");
    let mut compared = 0;
    let both = theirs.iter().zip(&ours);
    for (theirs, ours) in both.filter(|(t, o)| whole(t) && !signal(o)) {
        // The kernel's part is the kernel's own chain, and is compared elsewhere.
        let user = |stack: &str| -> Vec<String> {
            let lines = stack.lines().filter(|l| !l.contains("([kernel.kallsyms])"));
            lines.map(|l| l.trim().to_owned()).collect()
        };
        assert_eq!(user(ours), user(theirs));
        compared += 1;
    }
    assert!(compared > 20, "{compared} of {}", theirs.len());
    // And kymo has every one that perf has, and more.
    let count = |stacks: &[String]| stacks.iter().filter(|s| whole(s)).count();
    assert!(count(&ours) >= count(&theirs));
}

/// Debian's own compiler, at its calls of openat: gdb is right.
#[test]
fn a_stripped_program_of_debian() {
    if !require(NEEDS) {
        return;
    }
    let found = run("gcc", ["-print-prog-name=cc1"]).success().stdout;
    let source = "#include <stdio.h>\nint main(void) { return printf(\"\"); }\n";
    let directory = tempfile::tempdir().unwrap();
    let (data, c) = (directory.path().join("perf.data"), directory.path().join("a.c"));
    std::fs::write(&c, source).unwrap();
    let (data, c) = (data.to_str().unwrap(), c.to_str().unwrap());
    let cc1 = found.trim();
    let args = ["-quiet", "-imultiarch", "x86_64-linux-gnu", c, "-o", "/dev/null"];
    let event = "syscalls:sys_enter_openat";
    let first = ["record", "-q", "-e", event, "--call-graph", "dwarf,65528", "-o", data, "--", cc1];
    let mut record = Command::new(KYMO);
    // cargo's has many directories, each of which is looked into.
    record.args(first).args(args).env_remove("LD_LIBRARY_PATH");
    let _ = kymo_testkit::run_command(record).success();
    let shown = run(KYMO, ["script", "--no-inline", "-F", "ip,sym,dso", "-i", data]).success();
    let depth = |s: &str| s.lines().filter(|l| l.starts_with('\t')).count();
    let ours: Vec<usize> = shown.stdout.split("\n\n").map(depth).filter(|n| *n > 0).collect();
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-iex", "set debuginfod enabled off"]);
    gdb.args(["-iex", "set debug-file-directory /nonexistent", "-ex", "set width 0"]);
    gdb.args(["-ex", "set backtrace past-main on", "-ex", "catch syscall openat", "-ex", "run"]);
    for _ in &ours {
        gdb.args(["-ex", "echo STACK\\n", "-ex", "bt", "-ex", "continue", "-ex", "continue"]);
    }
    gdb.arg("--args").arg(cc1).args(args).env_remove("DEBUGINFOD_URLS");
    gdb.env_remove("LD_LIBRARY_PATH");
    let text = kymo_testkit::run_command(gdb).success().stdout;
    // Calls of the dynamic linker are left out: behind its `_start`, which has no caller and no
    // call frame information, gdb continues with words of the stack.
    let frames = |s: &str| {
        let of_main = s.lines().any(|l| l.contains(" in main "));
        of_main.then(|| s.lines().filter(|l| l.starts_with('#')).count())
    };
    let theirs: Vec<Option<usize>> = text.split("STACK\n").skip(1).map(frames).collect();
    assert_eq!(ours.len(), theirs.len());
    let mut compared = 0;
    for (ours, theirs) in ours.iter().zip(theirs) {
        compared += usize::from(theirs.is_some());
        assert_eq!(*ours, theirs.unwrap_or(*ours));
    }
    assert!(compared > 20, "{text}");
    assert!(shown.stderr.contains("(100.0%)"), "{}", shown.stderr);
}

/// The number in front of a share in the ledger's line about stacks.
fn count(ledger: &str, what: &str) -> u64 {
    let part = ledger.split(", ").flat_map(|p| p.split(": ")).find(|p| p.contains(what));
    part.map_or(0, |p| p.trim().split(' ').next().unwrap().parse().unwrap())
}

/// Rust's standard library has call frame information that ends before the
/// functions do: at their last instructions perf and the tables alone lose callers.
#[test]
fn samples_at_any_instruction_lead_to_the_beginning() {
    if !require(&[NEEDS, &[Need::Tool("rustc")]].concat()) {
        return;
    }
    let text = include_str!("unwind_programs/formats.rs");
    let program = Program::compile("rustc", "formats.rs", text, &["-O", "-g", "--edition", "2024"]);
    let (data, path) = (program.file("perf.data"), program.path.to_str().unwrap());
    let first = ["record", "-q", "-e", "cpu-clock:u", "-F", "10000", "--call-graph", "dwarf,8192"];
    // As many rounds as it takes on this machine.
    let sampled = |rounds: &str| {
        let _ = run(KYMO, [&first[..], &["-o", &data, "--", path, rounds]].concat()).success();
        let shown = script(&data);
        let all = in_script(&shown, &program.path);
        (shown, all)
    };
    let (mut shown, mut all) = sampled("20000");
    if all.len() < 1000 {
        (shown, all) = sampled("200000");
    }
    let ends = |s: &&Vec<String>| s.last().is_some_and(|f| f == "_start");
    let others: Vec<_> = all.iter().filter(|s| !ends(s)).collect();
    assert!(all.len() > 300, "{}", all.len());
    // The dynamic linker's start has no names when its debug package is missing.
    let of_linker = |s: &&&Vec<String>| s.last().is_some_and(|f| f.starts_with("ld-linux"));
    let lost = others.iter().filter(|s| !of_linker(s)).count();
    assert!(lost * 200 <= all.len(), "{lost} of {}: {others:#?}", all.len());
    let complete = count(&shown.stderr, "user stacks are complete");
    assert!(complete + 3 >= (all.len() - lost) as u64, "{}", shown.stderr);
    // Whatever bytes a recording has, a report of it ends, and not by a panic.
    let bytes = std::fs::read(&data).unwrap();
    let broken = program.file("broken.data");
    let mut state = 99u64;
    for _ in 0..12 {
        let mut changed = bytes.clone();
        for _ in 0..400 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = 1024 + (state >> 24) as usize % (bytes.len() - 1024);
            changed[at] = (state >> 16) as u8;
        }
        std::fs::write(&broken, changed).unwrap();
        let report = run(KYMO, ["report", "--stdio", "--no-inline", "-i", &broken]);
        assert!([0, 1].contains(&report.status), "{}", report.stderr);
    }
}

/// With frame pointers a stack leads to `main`; without them it does not, and the
/// ledger names where it ends.
#[test]
fn how_far_frame_pointers_lead() {
    if !require(NEEDS) {
        return;
    }
    let text = include_str!("unwind_programs/recursion.c");
    for (flag, kept) in [("-fno-omit-frame-pointer", true), ("-fomit-frame-pointer", false)] {
        let flags = ["-O1", "-fno-optimize-sibling-calls", "-pthread", flag];
        let program = Program::compile("gcc", "recursion.c", text, &flags);
        let (data, path) = (program.file("perf.data"), program.path.to_str().unwrap());
        // libc's `syscall` makes no frame: its caller is not seen, but that one's is.
        let first = ["record", "-q", "-e", "syscalls:sys_enter_getppid", "-g", "-o", &data, "--"];
        // It is said before the command runs, where a reader listens.
        let loud: Vec<&str> = first.iter().copied().filter(|arg| *arg != "-q").collect();
        let said = run(KYMO, [&loud[..], &[path, "5", "9", "2"]].concat()).success().stderr;
        let warned = format!("kymo record: {path} keeps no frame pointers: ");
        assert_eq!(said.starts_with(&warned), !kept, "{said}");
        let of_kernel = ["--kernel-callchains"];
        let said = [&loud[..1], &of_kernel, &loud[1..], &[path, "5", "9", "2"]].concat();
        let said = run(KYMO, said).success().stderr;
        assert!(!said.contains("keeps no frame pointers"), "{said}");
        let _ = run(KYMO, [&first[..], &[path, "5", "9", "2"]].concat()).success();
        let report = run(KYMO, ["report", "--stdio", "-i", &data]).success().stdout;
        assert_eq!(report.contains("3 (100.0%) of 3 user stacks do not lead"), !kept, "{report}");
        assert_eq!(report.contains("frame-pointers: "), !kept, "{report}");
    }
}

//! Options of `kymo run` that choose what is probed, where headers and debug files are looked for, and
//! lists of types: beside bpftrace's newest release, where that has them.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;

use kymo_testkit::{Need, Outcome, Workload, newest_peers, peer, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn kymo(arguments: &[&str]) -> Outcome {
    run(KYMO, [&["run"], arguments].concat())
}

/// Functions that kernels of the last years have, whose arguments have many kinds of types.
const FUNCTIONS: [&str; 9] = [
    "do_sys_openat2",
    "fget",
    "filp_close",
    "ip_local_out",
    "kallsyms_lookup_name",
    "sort",
    "tcp_sendmsg",
    "timer_delete",
    "vfs_read",
];

fn has_newest() -> bool {
    require(&[Need::Root, Need::Tracefs, Need::NewestPeers]) && newest_peers().is_some()
}

#[test]
fn types_are_listed_as_bpftrace_lists_them() {
    if !has_newest() {
        return;
    }
    // It says where bytes are that no member has, which C leaves out.
    let is_gap = |line: &str| {
        let line = line.trim();
        ["char: ", "short: ", "int: ", "long: "].iter().any(|word| line.starts_with(word))
    };
    let patterns = [
        "struct css_task_iter",
        "enum cpu_usage_stat",
        "union bpf_attr",
        "struct file_operations",
        "struct task_struct",
        "struct sk_buff",
        "struct ethhdr",
        "struct css_s*",
        "union bpf_i*",
        "enum bpf_*_type",
    ];
    for pattern in patterns {
        for flags in ["-l", "-lv"] {
            let ours = kymo(&[flags, pattern]).success().stdout;
            let theirs = peer("bpftrace").run([flags, pattern]).success().stdout;
            let kept: Vec<&str> = theirs.lines().filter(|line| !is_gap(line)).collect();
            assert_eq!(ours.lines().collect::<Vec<_>>(), kept, "{flags} {pattern}");
            assert!(!ours.is_empty(), "{pattern}");
        }
    }
    assert_eq!(kymo(&["-lv", "struct no_such_type"]).success().stdout, "");
}

#[test]
fn arguments_of_functions_are_listed_as_bpftrace_lists_them() {
    if !has_newest() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("functions");
    std::fs::write(&list, FUNCTIONS.join("\n")).unwrap();
    let list = list.to_str().unwrap();
    for kind in ["fentry", "fexit"] {
        let flags = ["--traceable-functions", list, "-lv", &format!("{kind}:*")];
        let ours = kymo(&flags).success().stdout;
        let theirs = peer("bpftrace").run(flags).success().stdout;
        assert_eq!(ours, theirs, "{kind}");
        let points = ours.lines().filter(|line| line.starts_with(kind)).count();
        assert_eq!(points, FUNCTIONS.len(), "{ours}");
    }
    let none = kymo(&["--traceable-functions", "/no/such/file", "-l", "fentry:vfs_*"]).failure();
    assert!(none.stderr.contains("Could not read functions from /no/such/file"), "{}", none.stderr);
}

#[test]
fn probes_are_chosen_by_a_regular_expression() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let two = "BEGIN { printf(\"begin\\n\"); } interval:ms:100 { printf(\"bad\\n\"); exit(); } \
               interval:ms:200 { printf(\"hit\\n\"); exit(); } END { printf(\"end\\n\"); }";
    let o = kymo(&["--probe-filter", ":200", "-e", two]).success();
    assert_eq!(o.stdout.trim(), "begin\nhit\nend");
    assert_eq!(o.stderr.trim(), "Attached 3 probes");
    if newest_peers().is_some() {
        let theirs = peer("bpftrace").run(["--probe-filter", ":200", "-e", two]).success();
        assert_eq!(theirs.stdout.trim(), o.stdout.trim());
    }
    let o = kymo(&["--probe-filter", "nonexistent", "-e", two]).failure();
    assert!(o.stderr.contains("No probes to attach"), "{}", o.stderr);
    let o = kymo(&["--probe-filter", "[invalid", "-e", two]).failure();
    assert!(o.stderr.contains("Invalid --probe-filter regex"), "{}", o.stderr);
    // Of those that a pattern stands for, too.
    let text = "tracepoint:sched:sched_p* { @[probe] = count(); }";
    let o = kymo(&["--dry-run", "--probe-filter", "process_(exec|fork)$", "-e", text]).success();
    assert_eq!(o.stderr.trim(), "Attached 2 probes");
}

const HEADER: &str = "#ifndef SHOP_H\n#define SHOP_H\n#include \"kinds.h\"\n#define LIMIT 42\n\
                      struct order { char kind; struct item { int id; short parts[COUNT]; } item; };\n\
                      #endif\n";
const KINDS: &str = "enum kind { BOOK = 7, PEN };\n#define COUNT 3\n";

#[test]
fn headers_of_ones_own_declare_types_and_numbers() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("shop.h"), HEADER).unwrap();
    std::fs::write(dir.path().join("kinds.h"), KINDS).unwrap();
    let directory = dir.path().to_str().unwrap();
    let text = "BEGIN { printf(\"%d %d %d %d %d\\n\", LIMIT, PEN, COUNT, sizeof(struct order), \
                offsetof(struct item, parts)); exit(); }";
    let included = format!("#include <shop.h>\n{text}");
    let path = dir.path().join("shop.h");
    let ways: [&[&str]; 3] = [
        &["-I", directory, "-e", &included],
        &["-I", directory, "--include", "shop.h", "-e", text],
        &["--include", path.to_str().unwrap(), "-e", text],
    ];
    for way in ways {
        let o = kymo(way).success();
        assert_eq!(o.stdout.trim(), "42 8 3 16 4", "{way:?}: {}", o.stderr);
        assert_eq!(o.stderr.trim(), "Attached 1 probe", "{way:?}");
        if newest_peers().is_some() {
            let theirs = peer("bpftrace").run(way).success();
            assert_eq!(theirs.stdout.trim(), o.stdout.trim(), "{way:?}");
        }
    }
    let o = kymo(&["-e", &included]).failure();
    assert!(o.stderr.contains("'shop.h' file not found"), "{}", o.stderr);
}

#[test]
fn debug_files_are_found_in_directories_of_ones_own() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc, Need::Tool("objcopy")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let source = "int twice(int amount) { return amount * 2; }\n\
                  int main(void) { return twice(21) != 42; }\n";
    std::fs::write(at("prog.c"), source).unwrap();
    std::fs::create_dir_all(at("debug/other")).unwrap();
    let (prog, debug) = (at("prog"), at("debug/prog.debug"));
    let gcc = ["-g", "-O0", "-fno-inline", "-Wl,--build-id", "-o", &prog, &at("prog.c")];
    let _ = run("gcc", gcc).success();
    let _ = run("objcopy", ["--only-keep-debug", &prog, &debug]).success();
    let _ = run("objcopy", ["--strip-debug", &prog]).success();
    let text = format!("uprobe:{prog}:twice {{ printf(\"amount %d\\n\", args.amount); }}");
    let with = |directories: &[&str]| {
        let flags = directories.iter().flat_map(|directory| ["--debuginfo", directory]);
        let flags: Vec<&str> = flags.chain(["-e", &text, "-c", &prog]).collect();
        kymo(&flags)
    };
    let o = with(&[]).failure();
    assert!(o.stderr.contains("ERROR: "), "{}", o.stderr);
    let (own, other) = (at("debug"), at("debug/other"));
    let both = format!("{other}:{own}");
    let ways: [&[&str]; 5] =
        [&[&own], &["debug"], &["+debug"], &[&both], &["none", &other, "./debug/"]];
    for way in ways {
        let o = with(way).success();
        assert!(o.stdout.contains("amount 21\n"), "{way:?}: {}\n{}", o.stdout, o.stderr);
    }
    // One of another build is none.
    let _ = run("gcc", [&gcc[..], &["-DOTHER", "-O1"]].concat()).success();
    let _ = run("objcopy", ["--strip-debug", &prog]).success();
    let o = with(&[&own]).failure();
    assert!(o.stderr.contains("ERROR: "), "{}", o.stderr);
    assert!(Path::new(&debug).exists());
}

/// Ends by itself what a run would wait for.
fn limited(arguments: &[&str]) -> Outcome {
    run("timeout", [&["60", KYMO, "run"], arguments].concat())
}

#[test]
fn a_program_without_events_ends_by_itself() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let text = "BEGIN { printf(\"hello\\n\"); @a = 3; } END { printf(\"bye\\n\"); }";
    for flags in [&["-e", text][..], &["--no-bpf", "-e", text]] {
        let o = limited(flags).success();
        assert_eq!(o.stdout, "hello\nbye\n\n\n@a: 3\n", "{flags:?}: {}", o.stderr);
    }
    let o = limited(&["-e", "BEGIN { @a = 1; clear(@a); exit(7); }"]).expect_status(7);
    assert_eq!(o.stdout.trim(), "");
}

#[test]
fn a_dry_run_runs_nothing() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("made");
    let text = format!(
        "BEGIN {{ system(\"touch {}\"); @a = 1; }} END {{ printf(\"end\"); }}",
        file.display()
    );
    for more in [&["--unsafe"][..], &["--unsafe", "--no-bpf"]] {
        let o = limited(&[&["--dry-run", "-e", &text], more].concat());
        assert!(o.stdout.is_empty() && !file.exists(), "{more:?}: {}", o.stdout);
    }
    let touch = format!("touch {}", file.display());
    let _ = limited(&["--dry-run", "-e", "interval:s:1 { exit(); }", "-c", &touch]).success();
    assert!(!file.exists());
}

/// The first thread sleeps; the second, which is there before the program is watched, computes and
/// makes system calls.
const TWO_THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/syscall.h>
static void *work(void *none) { volatile long n = 0; for (;;) { for (int i = 0; i < 100000; i++) n++; syscall(SYS_getppid); } }
int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); puts("ready"); fflush(stdout); for (;;) pause(); }
"#;

/// A child that is ended with the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program and waits for its first line.
fn start(program: &Path) -> Running {
    use std::io::BufRead as _;
    let mut child = std::process::Command::new(program);
    let mut child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Running(child)
}

#[test]
fn all_probes_are_limited_to_the_process() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let work = Workload::compile("two_threads_run", TWO_THREADS);
    let (target, _other) = (start(work.program()), start(work.program()));
    let pid = target.0.id().to_string();
    let text = "profile:hz:199 { @profile[pid] = count(); } \
                software:cpu-clock:5000000 { @software[pid] = count(); } \
                tracepoint:raw_syscalls:sys_enter { @tracepoint[pid] = count(); } \
                rawtracepoint:sys_exit { @raw[pid] = count(); } \
                interval:s:1 { printf(\"own interval\\n\"); exit(); }";
    for more in [&[][..], &["--no-bpf"]] {
        let text = if more.is_empty() {
            text
        } else {
            &text.replace("rawtracepoint:sys_exit", "tracepoint:raw_syscalls:sys_exit")
        };
        let o = limited(&[&["-p", &pid, "-e", text], more].concat()).success();
        assert!(o.stdout.contains("own interval"), "{more:?}: {}", o.stdout);
        for map in ["profile", "software", "tracepoint", "raw"] {
            let start = format!("@{map}[");
            let lines: Vec<&str> = o.stdout.lines().filter(|l| l.starts_with(&start)).collect();
            let wanted = format!("@{map}[{pid}]: ");
            assert!(
                lines.len() == 1 && lines[0].starts_with(&wanted),
                "{more:?} @{map}: {}\n{}",
                o.stdout,
                o.stderr
            );
        }
    }
}

/// Calls JIT code in a thread of its own; a map names it.
const MADE: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *code;
/* mov rcx, 0x1000000; dec rcx; jnz; ret */
static const unsigned char loop[] = {
    0x48, 0xc7, 0xc1, 0x00, 0x00, 0x00, 0x01, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0xc3,
};
static void *work(void *unused) {
    for (;;) ((void (*)(void))code)();
    return unused;
}
int main(void) {
    pthread_t thread;
    char path[64];
    code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, loop, sizeof loop);
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    fprintf(map, "%lx 40 jit_function\n", (long)code);
    fclose(map);
    pthread_create(&thread, 0, work, 0);
    puts("ready");
    fflush(stdout);
    pthread_join(thread, 0);
}
"#;

#[test]
fn jit_code_has_names_in_a_process_that_was_there_before() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) || !cfg!(target_arch = "x86_64") {
        return;
    }
    let work = Workload::compile("made", MADE);
    let child = start(work.program());
    let pid = child.0.id().to_string();
    let program = "profile:hz:499 { @[ustack(1)] = count(); @f[usym(reg(\"ip\"))] = count(); } \
                   interval:ms:300 { exit(); }";
    let o = limited(&["-p", &pid, "-e", program]);
    std::fs::remove_file(format!("/tmp/perf-{pid}.map")).unwrap();
    let text = o.success().stdout;
    assert!(text.contains("jit_function+"), "{text}");
    assert!(text.contains("@f[jit_function]: "), "{text}");
}

#[test]
fn a_run_ends_with_a_process_that_nobody_waits_for() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let child = std::process::Command::new("sleep").arg("2").spawn().unwrap();
    let child = Running(child);
    let pid = child.0.id().to_string();
    // It is a zombie until the end of the test.
    let o =
        limited(&["-p", &pid, "-e", "tracepoint:syscalls:sys_enter_exit_group { @ = count(); }"]);
    assert_eq!(o.success().stdout.trim(), "@: 1");
}

#[test]
fn functions_with_versions_are_found_by_their_plain_names() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc, Need::Tool("objcopy")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let source = "__asm__(\".symver old_f,f@LIB_1\"); __asm__(\".symver new_f,f@@LIB_2\");\n\
                  int old_f(void) { return 1; } int new_f(void) { return 2; } int g(void) { return 3; }\n";
    std::fs::write(at("lib.c"), source).unwrap();
    std::fs::write(at("map"), "LIB_1 { global: g; local: *; }; LIB_2 { } LIB_1;\n").unwrap();
    std::fs::write(
        at("main.c"),
        "int f(void); int g(void); int main(void) { return f() + g() != 5; }\n",
    )
    .unwrap();
    let (library, debug) = (at("libversions.so"), at("libversions.so.debug"));
    let script = format!("-Wl,--version-script={}", at("map"));
    let _ = run(
        "gcc",
        ["-shared", "-fPIC", "-O0", "-Wl,--build-id", &script, "-o", &library, &at("lib.c")],
    )
    .success();
    let rpath = format!("-Wl,-rpath,{}", dir.path().display());
    let _ = run("gcc", ["-o", &at("main"), &at("main.c"), &library, &rpath]).success();
    // As in Debian's packages: the symbol table is in the debug file alone.
    let _ = run("objcopy", ["--only-keep-debug", &library, &debug]).success();
    let _ = run("objcopy", ["--strip-all", &format!("--add-gnu-debuglink={debug}"), &library])
        .success();
    let text = format!(
        "uprobe:{library}:f {{ @f = count(); }} uretprobe:{library}:f {{ @ret = retval; }} \
         uprobe:{library}:g {{ @g = count(); }}"
    );
    let o = limited(&["-e", &text, "-c", &at("main")]).success();
    // The default version is the one that the program calls.
    assert_eq!(o.stdout.trim(), "@f: 1\n@g: 1\n@ret: 2", "{}", o.stderr);
    let missing = format!(
        "config = {{ missing_probes = \"ignore\" }} BEGIN {{ }} uprobe:{library}:nowhere {{ }}"
    );
    let o = limited(&["-e", &missing]).success();
    assert!(
        o.stderr.contains(&format!("missing_probes = ignore: uprobe:{library}:nowhere")),
        "{}",
        o.stderr
    );
}

#[test]
fn probes_of_programs_are_listed() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("list.bt");
    let text = "BEGIN { } tracepoint:raw_syscalls:sys_e* { } interval:s:7 { }";
    std::fs::write(&file, text).unwrap();
    let expected =
        "tracepoint:raw_syscalls:sys_enter\ntracepoint:raw_syscalls:sys_exit\ninterval:s:\n";
    assert_eq!(kymo(&["-l", file.to_str().unwrap()]).success().stdout, expected);
    assert_eq!(kymo(&["-l", "-e", text]).success().stdout, expected);
    let two = "tracepoint:raw_syscalls:sys_enter,tracepoint:raw_syscalls:sys_exit";
    assert_eq!(kymo(&["-l", two]).success().stdout, expected.replace("interval:s:\n", ""));
    let all = kymo(&["-l"]).success().stdout;
    assert!(all.lines().any(|line| line == "rawtracepoint:vmlinux:sys_enter"), "{all}");
    let o = kymo(&["-lv", "struct list_head, union bpf_attr"]).success();
    assert!(o.stdout.contains("struct list_head {") && o.stdout.contains("union bpf_attr {"));
    let o = kymo(&["-l", "no_such_file.bt"]);
    assert!(o.stderr.contains("the file does not exist"), "{}", o.stderr);
    let o = kymo(&["-e", "rawtracepoint:nonsense:sys_exit { exit(); }"]).failure();
    assert!(o.stderr.contains("No matches for rawtracepoint nonsense:sys_exit"), "{}", o.stderr);
}

#[test]
fn tests_and_benchmarks_of_a_program_are_run() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let text = "test:good { @a = 1; } test:bad { errorf(\"wrong\"); } bench:fast { @b++; } interval:s:1 { exit(); }";
    let o = limited(&["--test", "-e", text]).expect_status(1);
    for line in
        ["[       OK ] good (", "[  FAILED  ] bad (", "[  PASSED  ] 1 test.", ": ERROR: wrong"]
    {
        assert!(o.stdout.contains(line), "{line}: {}", o.stdout);
    }
    // 0 passes, also out of a loop over a map, which is a function of its own.
    let text = "test:zero { return 0; } test:one { return 1; } test:minus { return -1; } \
        test:first { @m[7] = 1; for ($e : @m) { return $e.0 - 7; } return 1; } \
        test:last { @m[7] = 1; for ($e : @m) { return $e.0; } }";
    let o = limited(&["--test", "-e", text]).expect_status(1);
    for line in [
        "[       OK ] zero (",
        "[  FAILED  ] one (",
        "[  FAILED  ] minus (",
        "[       OK ] first (",
        "[  FAILED  ] last (",
        "[  PASSED  ] 2 tests.",
    ] {
        assert!(o.stdout.contains(line), "{line}: {}", o.stdout);
    }
    let text = "test:good { @a = 1; } bench:fast { @b++; } interval:s:1 { exit(); }";
    let o = limited(&["--mode", "bench", "-f", "json", "-e", text]).success();
    let start = "{\"type\": \"benchmark_result\", \"data\": {\"fast\": {\"average\": ";
    assert!(o.stdout.trim().starts_with(start) && o.stdout.lines().count() == 1, "{}", o.stdout);
    let o = limited(&["-e", "test:good { }"]).failure();
    assert!(o.stderr.contains("use --test to run test probes"), "{}", o.stderr);
}

#[test]
fn settings_have_values_of_their_kind() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    for (setting, reason) in [
        ("missing_probes = maybe", "missing_probes is error, warn, ignore, not \"maybe\""),
        ("stack_mode = foo", "stack_mode is bpftrace, perf, raw, build_id, not \"foo\""),
        ("print_maps_on_exit = 7", "print_maps_on_exit is 0, 1, false, true, not \"7\""),
        ("max_strlen = abc", "max_strlen is a number above 0, not \"abc\""),
        ("max_map_keys = 0", "max_map_keys is a number above 0, not \"0\""),
    ] {
        let text = format!("config = {{ {setting} }} BEGIN {{ exit(); }}");
        let o = limited(&["-e", &text]).failure();
        assert!(o.stderr.contains(reason), "{setting}: {}", o.stderr);
    }
    for setting in ["missing_probes = warn", "stack_mode = perf", "print_maps_on_exit = false"] {
        let text = format!("config = {{ {setting}; max_strlen = 64 }} BEGIN {{ exit(); }}");
        let _ = limited(&["-e", &text]).success();
    }
}

#[test]
fn an_iterator_of_a_process_has_its_tasks() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id().to_string();
    let text = "iter:task { print((ctx.task.tgid, ctx.task.pid)); }";
    let o = limited(&["-p", &pid, "-e", text]);
    let vmas = limited(&["-p", &pid, "-e", "iter:task_vma { @[ctx.task.tgid] = count(); }"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(o.success().stdout.trim(), format!("({pid}, {pid})"));
    let vmas = vmas.success().stdout;
    assert!(vmas.trim().starts_with(&format!("@[{pid}]: ")), "{vmas}");
    assert_eq!(vmas.trim().lines().count(), 1, "{vmas}");
}

#[test]
fn options_of_a_program_are_checked() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let text = "BEGIN { print((getopt(\"aa\", 20, \"an amount\"), getopt(\"cc\", true))); }";
    let with = |options: &[&str]| limited(&[&["-e", text, "--"], options].concat());
    let o = with(&["--aa=0xffffffffffffffff", "--cc=False"]).success();
    assert_eq!(o.stdout.trim(), "(18446744073709551615, false)");
    let o = with(&["--dd=1"]).failure();
    assert!(o.stderr.contains("unexpected program command line options: --dd"), "{}", o.stderr);
    let o = with(&["--aa=False"]).failure();
    assert!(o.stderr.contains("--aa invalid integer"), "{}", o.stderr);
    let o = with(&["--help"]).failure();
    assert!(o.stderr.contains("--aa: an amount\n"), "{}", o.stderr);
    // A parameter that is missing, or empty, is 0 and a warning; as text it may be.
    let text = "BEGIN { for ($i : 0..2) { print(($1, str($2), $3)); } }";
    let o = limited(&["-e", text, "", "", "-7"]).success();
    assert_eq!(o.stdout.trim(), "(0, , -7)\n(0, , -7)");
    let warned = |n| format!("WARNING: Positional parameter ${n} is empty or not provided.");
    assert_eq!(o.stderr.matches(&warned(1)).count(), 1, "{}", o.stderr);
    assert!(!o.stderr.contains(&warned(2)) && !o.stderr.contains(&warned(3)), "{}", o.stderr);
    let o = limited(&["-e", text]).success();
    assert!(o.stderr.contains(&warned(1)) && o.stderr.contains(&warned(3)), "{}", o.stderr);
    let text = "BEGIN { @[0] = lhist(1, 0, 100, 10); @[1] = lhist(1, 0, 100, 50); }";
    let o = limited(&["-e", text]).failure();
    assert!(o.stderr.contains("@ holds lhist() with other bounds"), "{}", o.stderr);
    // Of two programs the last.
    let o = limited(&["-e", "BEGIN { print(1); }", "-e", "BEGIN { print(2); }"]).success();
    assert_eq!(o.stdout.trim(), "2");
}

#[test]
fn errors_of_a_running_program_are_printed() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let text = "BEGIN { @n = 0; @x = 5 / @n; warnf(\"a warning\"); @a = str(1); @b = str(2); @c = str(3); }";
    let o = limited(&["-e", text]).success();
    assert!(o.stderr.contains("WARNING: Divide or modulo by 0 detected."), "{}", o.stderr);
    assert!(o.stderr.contains("WARNING: a warning\n"), "{}", o.stderr);
    // The ledger adds up what the three places of the line lost.
    assert!(o.stderr.contains("line 1: 3 reads of memory failed"), "{}", o.stderr);
    assert!(!o.stderr.contains("WARNING: 1 read of memory failed"), "{}", o.stderr);
    let o = limited(&["-k", "-e", text]).success();
    let reads = o.stderr.lines().filter(|l| l.contains("WARNING: 1 read of memory failed"));
    assert_eq!(reads.count(), 3, "{}", o.stderr);
    let o = limited(&["--no-warnings", "-e", text]).success();
    assert!(!o.stderr.contains("WARNING"), "{}", o.stderr);
}

/// Its functions are called once; the program ends immediately. `inner` returns into `outer`.
const SHORT: &str = "#include <stdlib.h>\nint amount = 42;\n\
    __attribute__((noinline)) int inner(int *p) {\n    return *p;\n}\n\
    __attribute__((noinline)) int outer(void) { return inner(&amount) + 1; }\n\
    int main(void) { exit(outer() != 43); }\n";

#[test]
fn functions_of_a_program_that_ends_at_once_have_names() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("short.c"), SHORT).unwrap();
    let program = at("short");
    let _ = run(
        "gcc",
        [
            "-g",
            "-O0",
            "-pie",
            "-fPIE",
            "-fno-omit-frame-pointer",
            "-Wl,--build-id",
            "-o",
            &program,
            &at("short.c"),
        ],
    )
    .success();
    let text = format!(
        "uprobe:{program}:inner {{ printf(\"in %s %d %s\\n\", func, *uaddr(\"amount\"), ustack); }} \
         uretprobe:{program}:inner {{ printf(\"out %s\\n\", func); }} \
         uprobe:{program}@short.c:4 {{ printf(\"line %d\\n\", *args.p); }}"
    );
    for _ in 0..5 {
        let o = limited(&["-e", &text, "-c", &program]).success();
        assert!(o.stdout.starts_with("in inner 42 \n"), "{}\n{}", o.stdout, o.stderr);
        assert!(
            o.stdout.contains("        outer+") && o.stdout.contains("        main+"),
            "{}",
            o.stdout
        );
        assert!(o.stdout.contains("out inner\n") && o.stdout.contains("line 42\n"), "{}", o.stdout);
        assert!(!o.stderr.contains("no symbol"), "{}", o.stderr);
    }
    let id = run("readelf", ["-n", &program]).stdout;
    let id = id.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
    let text = format!("uprobe:{program}:inner {{ print(ustack(build_id)); }}");
    let o = limited(&["-e", &text, "-c", &program]).success();
    assert!(o.stdout.lines().any(|line| line.starts_with(&format!("{id} 0x"))), "{}", o.stdout);
}

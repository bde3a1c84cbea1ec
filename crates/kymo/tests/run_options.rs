//! Options of `kymo run` that choose what is probed, where headers and debug files are looked for, and
//! lists of types: beside bpftrace's newest release, where that has them.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;

use kymo_testkit::{Need, Outcome, newest_peers, peer, require, run};

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
        let theirs = peer("bpftrace").run(flags).success().stdout.replace(":vmlinux:", ":");
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

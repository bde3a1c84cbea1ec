//! perf's configuration files: `kymo config` reads them as perf does and writes what perf reads;
//! other commands take them for options that were not typed.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_testkit::{Need, Outcome, Workload, require, run_command};

/// A home directory with a configuration.
struct Home(tempfile::TempDir);

impl Home {
    fn new(text: &str) -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        fs::write(home.file(), text).unwrap();
        home
    }

    fn file(&self) -> PathBuf {
        self.0.path().join(".perfconfig")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env("HOME", self.0.path()).env("LC_ALL", "C");
        // What the machine has for all users is not looked at.
        command.env_remove("PERF_CONFIG").env("PERF_CONFIG_NOSYSTEM", "1");
        command
    }

    fn perf(&self, args: &[&str]) -> Outcome {
        run_command(self.command("perf", args))
    }

    fn kymo(&self, args: &[&str]) -> Outcome {
        run_command(self.command(env!("CARGO_BIN_EXE_kymo"), args))
    }
}

const FP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/fp.data");

#[test]
fn variables_are_those_that_perf_lists() {
    if !require(&[Need::Perf]) {
        return;
    }
    let texts = [
        "",
        "[report] children = true\n",
        "# c\n;d\n[report]\n\tk = \"v w\" z\\tq ; e\n",
        "[a \"Sub.x\"]\n\tk = 1\n[a.B]\nk=2\n[A-b]\nK_x=3\n[a_b]\nk=4\n[1a]\nk=5\n",
        "[a]\n k=\\\n  cont   in  ued   \n",
        "[a]\n k=x\\\\y\\\"z\\nq\n l=\n",
        "[a]\r\n k=1\r\n",
        "\u{feff}[a]\n k=1",
        "[a]\n k=1\n k=2\n[b]\nc=3\n[a]\nd=4\nk=5\n",
        "[a] b=1 c=2\n[a \"x y\"]\nk = \"  x  \"  \n",
        "[a \"x\\\"y\\n\"]\nk = a\t\tb\\bc\nl = a\" b # c\"d#e\n",
        "[a]\n\x0bk=1 ;\n\n\n  l  =2\n",
        "[a]\nk=1\n[b]\nl\n[c]\nm=1\n",
        "[a]\nk=1\nl = \"open\nm=2\n",
        "[a]\nk=1\nl = \\q\n",
        "[a]\nk=1\n[]\nl=2\n",
        "[a]\nk=1\n[ b ]\nl=2\n",
        "[a]\nk=1\n[b",
        "[a]\nk=1\n1l = 2\n",
        "[a]\nk=1\nl : 2\n",
        "k=1\n",
    ];
    for text in texts {
        let home = Home::new(text);
        let ours = home.kymo(&["config", "-l"]);
        let theirs = home.perf(&["config", "-l"]);
        assert_eq!(ours.stdout, theirs.stdout, "{text:?}");
        let line = theirs.stderr.strip_prefix("bad config file line ");
        let line = line.map(|rest| rest.split(' ').next().unwrap().to_owned());
        match &line {
            Some(line) => {
                let ours = ours.expect_status(1);
                let said = format!("{}: line {line}: ", home.file().display());
                assert!(ours.stderr.contains(&said), "{text:?}: {}", ours.stderr);
            }
            None => drop(ours.success()),
        }
        // Each by itself.
        for key in ["a.k", "a.l", "report.children", "nosuch.key"] {
            let args = ["config", key];
            assert_eq!(home.kymo(&args).stdout, home.perf(&args).stdout, "{text:?} {key}");
        }
    }
}

#[test]
fn what_is_set_is_read_by_perf_and_all_else_stays() {
    if !require(&[Need::Perf]) {
        return;
    }
    let home = Home::new("# mine\n[report]\n  children = true # yes\n\n[b]\n  k = 1\n");
    let values = ["false", "a b", "a#b", "x;y", "\"q\"", "back\\slash", " blanks  ", "tab\there"];
    for value in values {
        let variable = format!("report.children={value}");
        let _ = home.kymo(&["config", &variable]).success();
        let theirs = home.perf(&["config", "report.children"]).success().stdout;
        assert_eq!(theirs, format!("{variable}\n"));
        assert_eq!(home.kymo(&["config", "report.children"]).success().stdout, theirs);
    }
    let _ =
        home.kymo(&["config", "report.children=no", "b.l=2", "new.x=3", "b.Sub X.k=4"]).success();
    assert_eq!(
        home.text(),
        "# mine\n[report]\n  children = no # yes\n\n[b]\n  k = 1\n\tl = 2\n[new]\n\tx = 3\n\
         [b \"Sub X\"]\n\tk = 4\n"
    );
    let list = home.kymo(&["config", "-l"]).success();
    assert_eq!(list.stdout, home.perf(&["config", "--list"]).success().stdout);
    assert_eq!(list.stderr, "no command of kymo reads b.k, b.l, b.Sub X.k, new.x\n");
    assert_eq!(home.kymo(&["config", "--user"]).success().stdout, list.stdout);
    // The mode stays, and a link stays a link.
    let kept = home.0.path().join("kept");
    fs::rename(home.file(), &kept).unwrap();
    std::os::unix::fs::symlink(&kept, home.file()).unwrap();
    let _ = home.kymo(&["config", "new.x=5"]).success();
    assert!(fs::symlink_metadata(home.file()).unwrap().is_symlink());
    assert!(fs::read_to_string(&kept).unwrap().contains("x = 5"));
    // PERF_CONFIG names another file.
    let other = home.0.path().join("other");
    let mut named = home.command(env!("CARGO_BIN_EXE_kymo"), &["config", "a.k=1", "a.k", "new.x"]);
    named.env("PERF_CONFIG", &other);
    assert_eq!(run_command(named).success().stdout, "a.k=1\n");
    assert_eq!(fs::read_to_string(other).unwrap(), "[a]\n\tk = 1\n");
}

#[test]
fn what_cannot_be_set_is_refused_and_nothing_is_changed() {
    let home = Home::new("[a]\nk = 1\n");
    for (variable, why) in [
        ("nosection=1", "section.name"),
        (".k=1", "section.name"),
        ("a.=1", "section.name"),
        ("a.k=", "no value"),
        ("a.1k=2", "characters"),
    ] {
        let outcome = home.kymo(&["config", "a.k=2", variable]).failure();
        assert!(outcome.stderr.contains(why), "{variable}: {}", outcome.stderr);
        assert_eq!(home.text(), "[a]\nk = 1\n", "{variable}");
    }
    for args in [["-l", "a.k"], ["--user", "--system"]] {
        let _ = home.kymo(&[&["config"], &args[..]].concat()).expect_status(2);
    }
    let damaged = Home::new("[a]\nk\n");
    let outcome = damaged.kymo(&["config", "a.l=2"]).failure();
    assert!(outcome.stderr.contains("line 2: "), "{}", outcome.stderr);
    assert_eq!(damaged.text(), "[a]\nk\n");
    let mut none = home.command(env!("CARGO_BIN_EXE_kymo"), &["config", "a.k=2"]);
    none.env("PERF_CONFIG", "/dev/null");
    assert!(run_command(none).failure().stderr.contains("PERF_CONFIG is /dev/null"));
}

/// A configuration and what it stands for give the same report.
#[test]
fn a_report_takes_variables_for_options_that_were_not_typed() {
    let plain = Home::new("");
    let report = |home: &Home, options: &[&str]| {
        // Binaries of the recording that happen to be on this machine are left alone.
        let nothing = tempfile::tempdir().unwrap();
        let there = ["report", "--stdio", "-i", FP, "--symfs", nothing.path().to_str().unwrap()];
        let args = [&there[..], options].concat();
        let outcome = home.kymo(&args).success();
        assert_eq!(outcome.stderr, "", "{options:?}");
        outcome.stdout
    };
    for (text, options) in [
        ("[report]\nchildren = false\n", &["--no-children"][..]),
        ("[report]\nchildren = true\n", &["--children"]),
        ("[report]\nsort_order = dso,sym\n", &["-s", "dso,sym"]),
        ("[report]\npercent-limit = 20\n", &["--percent-limit", "20"]),
        ("[call-graph]\nprint-type = flat\norder = callee\n", &["-g", "flat,callee"]),
        (
            "[call-graph]\nprint-type = none\n[report]\nchildren = 0\n",
            &["--no-children", "-g", "none"],
        ),
    ] {
        let home = Home::new(text);
        let expected = report(&plain, options);
        assert_eq!(report(&home, &[]), expected, "{text}");
        let changes = expected != report(&plain, &[]);
        assert_eq!(changes, text != "[report]\nchildren = true\n", "{text}");
        // What is typed counts more.
        let typed = ["--children", "-s", "comm", "--percent-limit", "0", "-g", "graph,caller"];
        assert_eq!(report(&home, &typed), report(&plain, &typed), "{text}");
        let nothing = tempfile::tempdir().unwrap();
        let there = ["report", "--stdio", "-i", FP, "--symfs", nothing.path().to_str().unwrap()];
        let mut off = home.command(env!("CARGO_BIN_EXE_kymo"), &there);
        off.env("PERF_CONFIG", "/dev/null");
        assert_eq!(run_command(off).success().stdout, report(&plain, &[]), "{text}");
    }
}

#[test]
fn recordings_are_made_as_perf_makes_them() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::spin();
    let (ours, theirs) = (w.file("ours.data"), w.file("theirs.data"));
    for (text, options) in [
        ("[call-graph]\nrecord-mode = dwarf\ndump-size = 4096\n", &["-g"][..]),
        ("[call-graph]\nrecord-mode = dwarf\ndump-size = 4096\n", &[]),
        ("[call-graph]\nrecord-mode = dwarf\n", &["-g", "--call-graph", "fp"]),
        ("[record]\ncall-graph = dwarf\n", &["-g"]),
    ] {
        let home = Home::new(text);
        let run = |program: &str, file: &str| {
            let first = ["record", "-q", "-e", "cpu-clock:u", "-o", file];
            let args = [&first, options, &["--", w.arg(), "20"]].concat();
            let _ = run_command(home.command(program, &args)).success();
        };
        run(env!("CARGO_BIN_EXE_kymo"), &ours);
        run("perf", &theirs);
        let stack = |file: &str| {
            let line = home.kymo(&["evlist", "-v", "-i", file]).success().stdout;
            let field = line.split(", ").find(|field| field.starts_with("sample_stack_user"));
            field.map(str::trim).map(str::to_owned)
        };
        assert_eq!(stack(&ours), stack(&theirs), "{text} {options:?}");
        let dwarf = options == ["-g"];
        assert_eq!(stack(&ours).is_some(), dwarf, "{text} {options:?}");
    }
}

#[test]
fn a_mistake_and_a_value_without_meaning_are_warnings_of_commands() {
    let report = ["report", "--stdio", "--no-children", "-i", FP];
    let expected = Home::new("").kymo(&report).success().stdout;
    for (text, why) in [
        ("[a]\nk\n", "line 2: "),
        ("[report]\npercent-limit = much\n", "report.percent-limit = much: "),
        ("[report]\npercent-limit = 101x\n[call-graph]\nprint-type=\n", "report.percent-limit"),
    ] {
        let home = Home::new(text);
        let outcome = home.kymo(&report).success();
        assert_eq!(outcome.stdout, expected, "{text}");
        let file = home.file().display().to_string();
        assert!(outcome.stderr.starts_with(&format!("kymo: {file}: ")), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{text}: {}", outcome.stderr);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
    let home = Home::new("[report]\nchildren = perhaps\n");
    let outcome = home.kymo(&report[..3]);
    assert!(!outcome.stderr.contains("perhaps"), "typed: {}", outcome.stderr);
    let outcome = home.kymo(&["report", "--stdio", "-i", FP]).success();
    assert!(outcome.stderr.contains("neither true nor false"), "{}", outcome.stderr);
}

#[test]
fn a_file_of_somebody_else_is_not_read() {
    if !require(&[Need::Root, Need::Perf]) {
        return;
    }
    let home = Home::new("[a]\nk = 1\n");
    std::os::unix::fs::chown(home.file(), Some(kymo_testkit::UNPRIVILEGED_UID), None).unwrap();
    let ours = home.kymo(&["config", "-l"]).expect_status(1);
    assert_eq!(ours.stdout, home.perf(&["config", "-l"]).success().stdout);
    assert!(ours.stdout.is_empty() && ours.stderr.contains("belongs"), "{}", ours.stderr);
}

/// A user without access to the home directory has no configuration, and gets no message about it.
#[test]
fn a_home_directory_of_somebody_else_has_no_configuration() {
    if !require(&[Need::Root]) {
        return;
    }
    let home = Home::new("[a]\nk = 1\n");
    fs::set_permissions(home.0.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let program = kymo_testkit::Unprivileged::new(Path::new(env!("CARGO_BIN_EXE_kymo")));
    let run = |named: bool| {
        let copy = program.dir().join("kymo");
        let mut command = home.command(copy.to_str().unwrap(), &["config", "-l"]);
        command.uid(kymo_testkit::UNPRIVILEGED_UID).current_dir(program.dir());
        if named {
            command.env("PERF_CONFIG", home.file());
        }
        run_command(command)
    };
    let outcome = run(false).success();
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
    assert!(run(true).failure().stderr.contains("ermission denied"));
}

#[test]
fn the_build_id_cache_is_where_the_configuration_says() {
    if !require(&[Need::Perf, Need::Gcc]) {
        return;
    }
    let home = Home::new("[buildid]\ndir = ~/cache\n");
    let w = Workload::spin();
    let _ = home.kymo(&["buildid-cache", "-a", w.arg()]).success();
    assert!(home.0.path().join("cache/.build-id").is_dir());
    assert!(!home.0.path().join(".debug").exists());
    let cache = home.0.path().join("cache");
    let list = ["--buildid-dir", cache.to_str().unwrap(), "buildid-cache", "-l"];
    let expected = home.perf(&list).success().stdout;
    assert!(expected.contains(w.arg()), "{expected}");
    assert_eq!(home.kymo(&["buildid-cache", "-l"]).success().stdout, expected);
    let other = home.0.path().join("other");
    let typed = ["--buildid-dir", other.to_str().unwrap(), "buildid-cache", "-l"];
    assert_eq!(home.kymo(&typed).success().stdout, "");
    fs::write(home.file(), "[buildid]\ndir = /dev/null\n").unwrap();
    let none = home.kymo(&["buildid-cache", "-l"]).failure();
    assert!(none.stderr.contains("no build-id cache"), "{}", none.stderr);
}

//! The outside of the program: help, refusals, exit statuses. What a command does
//! with good input is in the file named after it.

use kymo_testkit::{Outcome, run};

const COMMANDS: &[&str] = &["list", "stat", "record", "report", "script", "probe", "profile"];

#[track_caller]
fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

#[test]
fn help_names_every_command() {
    let help = kymo(&["--help"]).success().stdout;
    for command in COMMANDS {
        let line = help.lines().find(|l| l.trim_start().starts_with(command));
        // A name without a sentence is no help.
        assert!(line.is_some_and(|l| l.split_whitespace().count() > 2), "{command}:\n{help}");
    }
}

#[test]
fn every_command_explains_every_flag() {
    for command in COMMANDS {
        let help = kymo(&[command, "--help"]).success().stdout;
        assert!(help.contains(&format!("Usage: kymo {command}")), "{command}:\n{help}");
        // With --help clap puts the sentence on the line below or beside the flag.
        let lines: Vec<&str> = help.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let flag = line.trim_start();
            if !(flag.starts_with("--") || flag.starts_with('-') && flag.contains("--")) {
                continue;
            }
            let beside = flag.split_once("  ").is_some_and(|(_, text)| !text.trim().is_empty());
            let below = lines
                .get(i + 1)
                .is_some_and(|next| !next.trim().is_empty() && !next.trim_start().starts_with('-'));
            assert!(beside || below, "kymo {command}: no word about `{flag}`");
        }
    }
}

#[test]
fn without_arguments_it_begins_with_questions() {
    let outcome = kymo(&[]).expect_status(2);
    assert!(outcome.stderr.starts_with("Why is my program slow?"), "{}", outcome.stderr);
    for line in outcome.stderr.lines().take_while(|line| !line.is_empty()) {
        let commands = line.split("kymo ").skip(1).map(|c| c.split([' ', ',']).next().unwrap());
        for command in commands {
            let _ = kymo(&[command, "-h"]).success();
        }
    }
}

#[test]
fn the_version_is_the_package_version() {
    let expected = format!("kymo {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(kymo(&["--version"]).success().stdout, expected);
}

#[test]
fn what_was_typed_wrong_is_named_with_status_2() {
    let check = |args: &[&str], named: &str| {
        let outcome = kymo(args).expect_status(2);
        assert!(outcome.stderr.contains(named), "`{named}` not in:\n{}", outcome.stderr);
        assert_eq!(outcome.stdout, "");
    };
    check(&["frobnicate"], "frobnicate");
    check(&["--frobnicate"], "--frobnicate");
    for command in COMMANDS {
        check(&[command, "--frobnicate"], "--frobnicate");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut command = std::process::Command::new("bash");
    command.args(["-c", "set -o pipefail; \"$0\" list | head -1"]);
    command.arg(env!("CARGO_BIN_EXE_kymo"));
    let outcome = kymo_testkit::run_command(command).success();
    assert_eq!(outcome.stderr, "");
}

/// A message that cannot be written does not change the exit status.
#[test]
fn a_full_standard_error_is_no_crash() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"));
        let command = command.args(args).stderr(full()).stdout(std::process::Stdio::null());
        command.status().unwrap().code()
    };
    assert_eq!(status(&["report", "-i", "/nonexistent"]), Some(1));
    // It has notes to say beside its result.
    assert_eq!(
        status(&["probe", "-x", env!("CARGO_BIN_EXE_kymo"), "--funcs", "no_such_name"]),
        Some(0)
    );
}

/// Options of perf's that cannot be are refused by name, with what to use.
#[test]
fn options_that_cannot_be_say_why() {
    for (args, reason) in [
        (&["report", "--itrace=i"][..], "kymo report has no --itrace: hardware traces"),
        (&["script", "--gen-script", "python"], "use `kymo script --json`"),
        (&["record", "--kcore", "--", "true"], "kernel code is read during analysis"),
    ] {
        let refused = kymo(args);
        assert_eq!(refused.status, 2, "{refused:?}");
        assert!(refused.stderr.contains(reason), "{refused:?}");
    }
    let unknown = kymo(&["report", "--no-such-option"]);
    assert!(unknown.stderr.contains("unexpected argument '--no-such-option'"), "{unknown:?}");
}

/// Every command in the help has examples, with options that it has.
#[test]
fn every_command_has_examples_that_hold() {
    let help = kymo(&["--help"]).success().stdout;
    let names = listed_commands(&help);
    assert!(names.len() > 30, "{names:?}");
    for name in &names {
        let help = kymo(&[name.as_str(), "--help"]).success().stdout;
        let mark = ["EXAMPLES\n", "Examples:\n"].into_iter().find(|mark| help.contains(mark));
        assert!(mark.is_some(), "kymo {name} has no examples");
        let examples = help.split(mark.unwrap()).nth(1).unwrap();
        let prefix = format!("kymo {name} ");
        for line in examples.lines().filter_map(|line| line.trim().strip_prefix(&prefix)) {
            let words: Vec<&str> = line.split_whitespace().take_while(|w| *w != "--").collect();
            let sub = words.first().filter(|word| help.contains(&format!("\n  {word}  ")));
            let help = match sub {
                Some(sub) => kymo(&[name, sub, "--help"]).success().stdout,
                None => help.clone(),
            };
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let flag = flag.split('=').next().unwrap();
                assert!(help.contains(flag), "kymo {name} {line}: no {flag}\n{help}");
            }
        }
    }
}

#[test]
fn what_is_missing_is_said_with_the_way_out() {
    let directory = tempfile::tempdir().unwrap();
    for (command, recorder) in [
        ("report", "kymo record"),
        ("annotate", "kymo record"),
        ("script", "kymo record"),
        ("convert", "kymo record"),
        ("lock contention", "kymo lock record"),
        ("sched latency", "kymo sched record"),
        ("syscalls report", "kymo syscalls record"),
        ("why", "kymo why record"),
    ] {
        let mut kymo = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"));
        kymo.args(command.split(' ')).current_dir(&directory).stdin(std::process::Stdio::null());
        if command == "convert" {
            kymo.args(["-o", "x.svg"]);
        }
        let said = kymo_testkit::run_command(kymo).failure().stderr;
        assert!(said.contains("perf.data: No such file"), "{command}: {said}");
        let advice = format!("`{recorder}` makes it, and -i names another");
        assert!(said.contains(&advice), "{command}: {said}");
    }
    let said = kymo(&["record", "-p", "redis-server", "--", "true"]).failure().stderr;
    assert!(said.contains("`pgrep -d, NAME`"), "{said}");
}

/// Scripts parse the version from the third word: `perf version 6.1`.
#[test]
fn under_the_name_perf_the_version_is_where_scripts_look_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let perf = directory.path().join("perf");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kymo"), &perf).expect("a link");
    let perf = perf.to_str().expect("a path");
    for args in [&["--version"][..], &["version"]] {
        let text = run(perf, args).success().stdout;
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[..2], ["perf", "version"], "{text}");
        assert!(words[2].split('.').all(|n| n.parse::<u32>().is_ok()), "{text}");
        assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
    }
    // As scripts ask for what is built in.
    let text = run(perf, ["version", "--build-options"]).success().stdout;
    let line = text.lines().find(|line| line.contains("HAVE_ZSTD_SUPPORT"));
    assert!(line.is_some_and(|line| line.contains(": [ on  ]  # ")), "{text}");
}

#[test]
fn binaries_are_found_by_their_names() {
    let by = |name: &str| kymo(&["probe", "-x", name, "-D", "malloc"]).success().stdout;
    let definition = by("libc.so.6");
    assert!(definition.contains("/libc.so.6:0x"), "{definition}");
    let path = definition.split_whitespace().nth(1).and_then(|w| w.split(':').next());
    assert_eq!(by(path.expect("a path")), definition);
    let listed = kymo(&["list", "sdt", "libstdc++.so.6"]).success().stdout;
    assert!(listed.contains("%libstdcxx:throw"), "{listed}");
    let refused = kymo(&["probe", "-x", "no-such-program-here", "-D", "main"]).failure();
    assert!(refused.stderr.contains("cannot read no-such-program-here: "), "{}", refused.stderr);
}

/// perf's -p is a flag there.
#[test]
fn a_number_behind_p_of_sched_latency_is_explained() {
    let refused = kymo(&["sched", "latency", "-p", "1"]).failure();
    assert!(refused.stderr.contains("--pid 1 chooses it"), "{}", refused.stderr);
}

/// Subcommands in the list of a help text.
fn listed_commands(help: &str) -> Vec<String> {
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(ToOwned::to_owned).collect()
}

/// `-h` of each command and subcommand fits a screen of 100 columns and 40 lines, and names no
/// option that `--help` lacks.
#[test]
fn short_help_fits_one_screen() {
    let help = |words: &[&str], flag| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(words).arg(flag).env("COLUMNS", "100");
        let output = command.output().unwrap();
        assert!(output.status.success(), "kymo {words:?} {flag}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut paths = vec![String::new()];
    let mut checked = 0;
    while let Some(path) = paths.pop() {
        let words: Vec<&str> = path.split_whitespace().collect();
        let (short, long) = (help(&words, "-h"), help(&words, "--help"));
        let lines = short.lines().count();
        assert!(lines <= 40, "kymo {path} -h has {lines} lines:\n{short}");
        for line in short.lines().filter(|line| line.trim_start().starts_with('-')) {
            let option = line.split_whitespace().find(|word| word.starts_with("--"));
            let option = option.map_or("", |word| word.split(['[', '=', '.']).next().unwrap());
            assert!(long.contains(option), "kymo {path} --help lacks {option}");
        }
        paths.extend(listed_commands(&long).iter().map(|name| format!("{path} {name}")));
        checked += 1;
    }
    assert!(checked > 80, "{checked}");
}

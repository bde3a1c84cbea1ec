//! Catalog of programs with a known cause (`catalog.txt`), and whether the first sentence of
//! `kymo profile` names it: a rotating third of them, all by `cargo xtask verdicts`.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use kymo_testkit::require;

use crate::{KYMO, NEEDS};

/// Parts in which the catalog is tried, one each day.
const PARTS: u64 = 3;

struct Case {
    name: &'static str,
    language: &'static str,
    command: String,
    causes: Vec<&'static str>,
    forbidden: Vec<&'static str>,
}

/// Loops that keep both CPUs busy, until dropped.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start(count: usize) -> BusyLoops {
        let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        BusyLoops((0..count).map(|_| spin()).collect())
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Cgroup whose tasks may run for a twenty-fifth of the time, until dropped.
struct QuotaGroup(PathBuf);

impl QuotaGroup {
    /// None where no cgroup with a quota can be made.
    fn new() -> Option<QuotaGroup> {
        let name = format!("kymo-verdict-{}", std::process::id());
        let roots = [("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "4000")];
        let roots = roots.into_iter().chain([("/sys/fs/cgroup", "cpu.max", "4000 100000")]);
        roots.into_iter().find_map(|(root, file, value)| {
            let group = QuotaGroup(Path::new(root).join(&name));
            std::fs::create_dir(&group.0).ok()?;
            // What cannot be set is removed again.
            std::fs::OpenOptions::new().write(true).open(group.0.join(file)).ok()?;
            std::fs::write(group.0.join(file), value).ok().map(|()| group)
        })
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        // A task that has just ended may be in it for a moment.
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Programs of the catalog and what they need.
struct Programs<'a> {
    directory: &'a Path,
    quota: Option<QuotaGroup>,
}

fn catalog() -> Vec<Case> {
    let words = |list: &'static str| list.split(',').filter(|w| !w.is_empty()).collect();
    let lines = include_str!("catalog.txt").lines().filter(|l| !l.starts_with('#'));
    let case = |line: &'static str| {
        // A pipe in a command is quoted.
        let fields: Vec<&str> = line.split(" |").map(str::trim).collect();
        let n = fields.len();
        assert!(n >= 5, "{line}");
        Case {
            name: fields[0],
            language: fields[1],
            command: line
                .split_once(&format!("| {} |", fields[1]))
                .and_then(|(_, rest)| rest.split(" | ").next())
                .unwrap()
                .trim()
                .replace("\\|", "|"),
            // "poll, select" has a comma of its own.
            causes: match fields[n - 2] {
                whole @ "mostly blocked on poll, select" => vec![whole],
                whole if whole.contains(", in ") => vec![whole],
                list => words(list),
            },
            forbidden: words(fields[n - 1]),
        }
    };
    lines.map(case).collect()
}

/// Command line of a case; none where the machine has no interpreter for it.
fn command_line(case: &Case, programs: &mut Programs<'_>) -> Option<Vec<String>> {
    let directory = programs.directory;
    let source = |name: &str| format!("{}/tests/verdicts/{name}", env!("CARGO_MANIFEST_DIR"));
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let has = |program: &str| {
        Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    let (cases, file) = (path("cases"), path("file"));
    let command = case.command.replace("$CASES", &cases).replace("FILE", &file);
    let command = command.replace("$NULL", "/dev/null");
    let words = |first: &[&str]| {
        let all = first.iter().copied().chain(command.split(' '));
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    let program = match case.language {
        "c" | "attach" => return Some(words(&[&cases])),
        "rust" => {
            let program = path("cases-rust");
            if !Path::new(&program).exists() {
                let args =
                    ["-O", "-g", "--edition", "2024", "-C", "force-frame-pointers=yes", "-o"];
                let mut rustc = Command::new("rustc");
                rustc.args(args).args([&program, &source("cases.rs")]);
                rustc.status().ok().filter(std::process::ExitStatus::success)?;
            }
            return Some(words(&[&program]));
        }
        "go" => {
            let program = path("cases-go");
            if !Path::new(&program).exists() {
                let mut go = Command::new("go");
                go.args(["build", "-o", &program, &source("cases.go")]).current_dir(directory);
                go.status().ok().filter(std::process::ExitStatus::success)?;
            }
            return Some(words(&[&program]));
        }
        "java" => {
            if !directory.join("Cases.class").exists() {
                let mut javac = Command::new("javac");
                javac.args(["-d", directory.to_str().unwrap(), &source("Cases.java")]);
                javac.status().ok().filter(std::process::ExitStatus::success)?;
            }
            return Some(words(&["java", "-cp", directory.to_str().unwrap(), "Cases"]));
        }
        "sh" => return Some(vec!["sh".into(), "-c".into(), command]),
        "quota" => {
            if programs.quota.is_none() {
                programs.quota = QuotaGroup::new();
            }
            let group = programs.quota.as_ref()?.0.to_str().unwrap();
            let line = format!("echo $$ > {group}/cgroup.procs; {command}");
            return Some(vec!["sh".into(), "-c".into(), line]);
        }
        "make" => {
            let file = path("Makefile");
            std::fs::write(&file, &command).unwrap();
            return has("make").then(|| vec!["make".into(), "-s".into(), "-f".into(), file]);
        }
        // The interpreter itself, not a script that looks for it.
        "python" => ("/usr/bin/python3", vec![source("cases.py"), command]),
        "node" => ("node", vec!["-e".to_owned(), command]),
        language => panic!("{language}"),
    };
    has(program.0).then(|| std::iter::once(program.0.to_owned()).chain(program.1).collect())
}

/// The first sentence about a command.
fn sentence(case: &Case, command: &[String]) -> String {
    if case.language == "attach" {
        return sentence_of_process(command);
    }
    let out = Command::new(KYMO)
        .args(["profile", "--"])
        .args(command)
        .env("KYMO_CACHE", "off")
        .stdout(Stdio::null())
        .output()
        .unwrap();
    first_sentence(&out.stderr)
}

/// The first sentence about a process that was there before: it prints a line when it is ready.
fn sentence_of_process(command: &[String]) -> String {
    let mut process =
        Command::new(&command[0]).args(&command[1..]).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let out = Command::new(KYMO)
        .args(["profile", "--timeout", "800", "-p", &process.id().to_string()])
        .env("KYMO_CACHE", "off")
        .output()
        .unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(ready, "ready\n", "{command:?}");
    first_sentence(&out.stdout)
}

fn first_sentence(page: &[u8]) -> String {
    let text = String::from_utf8_lossy(page).into_owned();
    let line = text.lines().find_map(|l| l.strip_prefix("  In short  "));
    line.map_or_else(|| format!("no sentence: {text}"), str::to_owned)
}

/// Ticks of all CPUs, and how many of them they were idle.
fn cpu_times() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let words = stat.lines().next().unwrap().split_whitespace().skip(1).take(8);
    let ticks: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    (ticks.iter().sum(), ticks[3] + ticks[4])
}

/// Whether the CPUs were idle for less than half of the time between: others ran, too.
fn was_busy(before: (u64, u64), after: (u64, u64)) -> bool {
    2 * (after.1 - before.1) < after.0 - before.0
}

/// Whether a sentence names one of the causes and none of those that are wrong.
fn is_right(case: &Case, said: &str, is_loaded: bool) -> bool {
    let starved = ["waits for a CPU", "wait for CPUs"].iter().any(|s| said.contains(s));
    let cpu = starved || said.contains("it is busy") || said.contains(" CPUs busy");
    let names = |cause: &&str| match cause.strip_prefix('~') {
        Some(cause) => said.contains(cause) || (is_loaded && cpu),
        None if *cause == "cpu" => cpu,
        None => said.contains(*cause),
    };
    case.causes.iter().any(names) && !case.forbidden.iter().any(|word| said.contains(word))
}

#[test]
fn the_first_sentence_is_right() {
    if !require(&NEEDS) {
        return;
    }
    let set = |name: &str| std::env::var(name).ok();
    let (wanted, loaded) = (set("KYMO_VERDICTS"), set("KYMO_VERDICTS_LOADED").is_some());
    let rounds: u32 = set("KYMO_VERDICTS_ROUNDS").and_then(|n| n.parse().ok()).unwrap_or(1);
    let days = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86400;
    let all = catalog();
    assert!(all.len() >= 60, "{}", all.len());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = directory.path().join("cases").to_str().unwrap().to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verdicts/cases.c");
    let flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-o", &program, source];
    let flags = [&flags[..], &["-lresolv"]].concat();
    assert!(Command::new("gcc").args(flags).status().unwrap().success());
    let mut programs = Programs { directory: directory.path(), quota: None };
    let mut wrong = Vec::new();
    println!("{:<26} {:>5} {:>5}  last sentence", "case", "right", "wrong");
    for (n, case) in all.iter().enumerate() {
        let is_chosen = match wanted.as_deref() {
            Some("all") => true,
            Some(name) => name == case.name,
            None => n as u64 % PARTS == days % PARTS,
        };
        if !is_chosen {
            continue;
        }
        let Some(command) = command_line(case, &mut programs) else {
            println!("SKIPPED: {}: no {}", case.name, case.language);
            continue;
        };
        let _loops = BusyLoops::start(if loaded { 2 } else { 0 });
        let mut right = 0;
        let mut last = String::new();
        for _ in 0..rounds {
            let before = cpu_times();
            last = sentence(case, &command);
            // Other work may run on the machine: then it is as busy as beside the loops.
            let is_right_now = is_right(case, &last, loaded || was_busy(before, cpu_times()));
            right += u32::from(is_right_now);
            if !is_right_now {
                wrong.push(format!("{}: {last}", case.name));
            }
        }
        println!("{:<26} {right:>5} {:>5}  {last}", case.name, rounds - right);
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

//! `cargo xtask bpftrace-cases DIR`: the runtime cases of bpftrace's source tree, run by its own
//! engine with the installed bpftrace, the newest one where it is there, and kymo under that name.
//! Nothing of that tree is kept here: `apt-get source bpftrace`
//! gets it, or a clone of its repository, whose newest cases go with the newest bpftrace.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use kymo_testkit::{newest_peers, peer};

use crate::cargo;

pub(crate) const USAGE: &str = "\
\x20 bpftrace-cases DIR [--filter GLOB] [--program KYMO] [--release 0.17]
                      the runtime cases of bpftrace's source tree DIR with bpftrace and with kymo
                      in its place, which may have to behave as that release; GLOB is SUITE.CASE.
                      Results of bpftrace are kept in target
";

/// Result of one case by the engine.
#[derive(Clone, Debug, Default)]
struct Outcome {
    passed: bool,
    /// Actual output in place of the expected one.
    reason: String,
}

type Outcomes = BTreeMap<String, Outcome>;

pub(crate) fn main(args: &[&str]) -> anyhow::Result<()> {
    let (mut directory, mut filter, mut program, mut release) = (None, None, None, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value\n\n{USAGE}"));
        match *arg {
            "--filter" => filter = Some(*value()?),
            "--release" => release = Some(*value()?),
            "--program" => program = Some(PathBuf::from(value()?)),
            other if directory.is_none() => directory = Some(Path::new(other)),
            other => bail!("bpftrace-cases has no option {other}\n\n{USAGE}"),
        }
    }
    let directory = directory.with_context(|| format!("no DIR\n\n{USAGE}"))?;
    let directory = directory.canonicalize().with_context(|| directory.display().to_string())?;
    let tests = directory.join("tests");
    let kymo = program.map_or_else(cargo::build_release, Ok)?;
    let kymo = kymo.canonicalize().with_context(|| kymo.display().to_string())?;
    let place = tempfile::tempdir().context("a directory for the cases")?;
    let place = place.path();
    build(&tests, place)?;
    // Each tree has other cases.
    let kept =
        crate::target().join("bpftrace-cases").join(directory.file_name().unwrap_or_default());
    std::fs::create_dir_all(&kept).with_context(|| kept.display().to_string())?;
    // The engine waits forever for one that does not end on SIGTERM.
    let named = |name: &str, words: &str| -> anyhow::Result<PathBuf> {
        let script = place.join(name).join("bpftrace");
        std::fs::create_dir(place.join(name))?;
        // Newer engines add an option that builds for distributions lack.
        let text = format!(
            "#!/bin/bash\n\
             a=()\n\
             for x in \"$@\"; do [ \"$x\" = --verify-llvm-ir ] || a+=(\"$x\"); done\n\
             exec timeout --foreground -s KILL 30 {words} \"${{a[@]}}\"\n"
        );
        std::fs::write(&script, text)?;
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
        Ok(script)
    };
    let link = place.join("bpftrace");
    symlink(kymo, &link)?;
    let setting = release.map_or(String::new(), |r| format!("env BPFTRACE_RELEASE={r} "));
    let ours = named("kymo", &format!("{setting}{}", link.display()))?;
    let mut peers = vec![("installed", named("installed", "/usr/bin/bpftrace")?)];
    if newest_peers().is_some() {
        let words = format!("env {:?}", peer("bpftrace").command());
        peers.push(("newest", named("newest", &words)?));
    }
    let mut theirs: Vec<Outcomes> = Vec::new();
    for (name, path) in peers {
        let file = kept.join(name);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(_) => {
                let text = run(place, &path, None)?;
                std::fs::write(&file, &text).with_context(|| file.display().to_string())?;
                text
            }
        };
        theirs.push(outcomes(&text));
    }
    let text = run(place, &ours, filter)?;
    print!("{}", table(&outcomes(&text), &theirs));
    Ok(())
}

/// The test programs and libraries compiled, the cases beside them, as bpftrace's build does it.
fn build(tests: &Path, place: &Path) -> anyhow::Result<()> {
    let copied = Command::new("cp").arg("-r").arg(tests.join("runtime")).arg(place).status()?;
    if !copied.success() {
        bail!("{} has no runtime cases", tests.display());
    }
    let settings = "LIBBCC_BPF_CONTAINS_RUNTIME = False\n";
    std::fs::write(place.join("runtime/engine/cmake_vars.py"), settings)?;
    // The engine compares versions with a package that need not be installed.
    let versions = "from distutils.version import LooseVersion\n";
    std::fs::write(place.join("runtime/engine/looseversion.py"), versions)?;
    let libraries = place.join("testlibs");
    for (directory, flags) in [("testlibs", &["-fPIC", "-shared"][..]), ("testprogs", &["-no-pie"])]
    {
        std::fs::create_dir(place.join(directory))?;
        for entry in std::fs::read_dir(tests.join(directory))? {
            let source = entry?.path();
            let extension = source.extension().and_then(|e| e.to_str()).unwrap_or_default();
            let Some(name) = source.file_stem().filter(|_| matches!(extension, "c" | "cpp")) else {
                continue;
            };
            let is_library = directory == "testlibs";
            let name = name.to_string_lossy();
            let (plain, independent) = if is_library {
                (format!("lib{name}.so"), None)
            } else {
                (name.clone().into_owned(), Some(format!("{name}-pie")))
            };
            let pie = ["-fpie", "-pie"];
            let forms = [(Some(plain), flags), (independent, &pie[..])];
            for (name, flags) in forms.into_iter().filter_map(|(name, flags)| Some((name?, flags)))
            {
                let output = place.join(directory).join(&name);
                let mut command = Command::new(if extension == "c" { "gcc" } else { "g++" });
                let kept: &[&str] = if name.starts_with("uprobe_nofp") {
                    &["-O1", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]
                } else {
                    &["-O0", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"]
                };
                command.args(["-w", "-g"]).args(kept).args(flags);
                command.arg("-DHAVE_SYSTEMTAP_SYS_SDT_H").arg("-I").arg(tests.join("testlibs"));
                command.arg("-I").arg(tests.join("include")).arg("-o").arg(&output).arg(&source);
                if !is_library {
                    let rpath = format!("-Wl,--as-needed,-rpath,{}", libraries.display());
                    command.arg(rpath).arg("-L").arg(&libraries).arg("-lusdt_tp");
                }
                // What does not compile is missed by its cases, with bpftrace as with kymo.
                if !command.status().context("gcc")?.success() {
                    println!("{} does not compile", source.display());
                } else if is_library {
                    std::fs::set_permissions(&output, PermissionsExt::from_mode(0o644))?;
                }
            }
        }
    }
    build_debug_files(&tests.join("testprogs/uprobe_test.c"), &place.join("testprogs"))
}

/// Programs whose debugging information is in files of its own, and an archive.
fn build_debug_files(source: &Path, place: &Path) -> anyhow::Result<()> {
    let source = source.canonicalize().with_context(|| source.display().to_string())?;
    let script = format!(
        "mkdir -p external_debug/dwo external_debug/dwp .debug
        objcopy --only-keep-debug uprobe_test external_debug/uprobe_test-stripped.debug
        objcopy --strip-debug uprobe_test uprobe_test-stripped
        objcopy --only-keep-debug uprobe_separate_debug .debug/uprobe_separate_debug-stripped.debug
        objcopy --strip-debug uprobe_separate_debug uprobe_separate_debug-stripped
        objcopy --add-gnu-debuglink=.debug/uprobe_separate_debug-stripped.debug \
            uprobe_separate_debug-stripped
        zip -q -0 -j archive.zip true
        rustc -C symbol_mangling_version=v0 -o hello_rust {1}/hello_rust.rs
        go build -o hello_go {1}/hello_go.go
        gcc -c {1}/false.c -o false.o
        llvm-objcopy -S --only-section=.text --keep-symbol=main -O binary false.o false.bin
        rm -f false.o
        (cd external_debug/dwo && gcc -g -O0 -gsplit-dwarf {0} -o uprobe_test-split)
        cd external_debug/dwp && gcc -g -O0 -gsplit-dwarf {0} -o uprobe_test-split
        llvm-dwp -e uprobe_test-split -o uprobe_test-split.dwp; rm -f *.dwo",
        source.display(),
        source.parent().unwrap_or(place).display()
    );
    // What a missing tool does not make is missed by its cases.
    Command::new("sh").arg("-c").arg(script).current_dir(place).status().context("sh")?;
    Ok(())
}

/// Output of the engine with a program named `bpftrace`.
fn run(place: &Path, program: &Path, filter: Option<&str>) -> anyhow::Result<String> {
    println!("==> {}", program.display());
    let mut command = Command::new("python3");
    command.arg("runtime/engine/main.py").current_dir(place);
    command.args(filter.iter().flat_map(|glob| ["--filter", glob]));
    // Engines of releases since 0.18 name the program, the older one its directory.
    let engine = std::fs::read_to_string(place.join("runtime/engine/runner.py"))?;
    let program =
        if engine.contains("BPFTRACE_BIN") { program } else { program.parent().unwrap_or(place) };
    command.env("BPFTRACE_RUNTIME_TEST_EXECUTABLE", program);
    command.stderr(std::process::Stdio::inherit());
    let output = command.output().context("python3")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The engine's lines as outcomes by `SUITE.CASE`.
fn outcomes(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let mut last = None;
    for line in text.lines() {
        let words = line.strip_prefix('[').and_then(|rest| rest.split_once("] "));
        if let Some((state, name)) = words {
            let state = state.trim();
            // A summary follows.
            if state == "==========" && name.contains(" ran.") {
                break;
            }
            if matches!(state, "OK" | "FAILED" | "TIMEOUT" | "SKIP") {
                let reason = if state == "SKIP" { " | not tried" } else { "" }.to_owned();
                // Newer engines add the time.
                let name = match name.rsplit_once(" (") {
                    Some((name, time)) if time.ends_with(" ms)") => name,
                    _ => name,
                };
                outcomes.insert(name.to_owned(), Outcome { passed: state == "OK", reason });
                last = Some(name.to_owned());
            }
        } else if let Some(outcome) = last.as_ref().and_then(|name| outcomes.get_mut(name)) {
            let found = ["\tFound: ", "\tOutput: ", "\tCurrent output: ", "\tExpected: "];
            if let Some(part) = found.iter().find_map(|start| line.strip_prefix(start)) {
                let part = part.replace("__BPFTRACE_NOTIFY_PROBES_ATTACHED\\n", "");
                outcome.reason = format!("{} | {part}", outcome.reason);
            }
        }
    }
    outcomes
}

/// Table of the cases that each bpftrace passes: the number that kymo passes, and the others.
fn table(ours: &Outcomes, theirs: &[Outcomes]) -> String {
    let mut text = String::new();
    let passed = |outcomes: &Outcomes, name: &str| outcomes.get(name).is_some_and(|o| o.passed);
    if theirs.is_empty() {
        return text;
    }
    for (name, peer) in ["installed", "newest"].iter().zip(theirs) {
        let all: Vec<&String> = ours.keys().filter(|n| passed(peer, n)).collect();
        let same = all.iter().filter(|n| passed(ours, n)).count();
        let share = 100.0 * same as f64 / all.len().max(1) as f64;
        text += &format!("{name}: kymo passes {same} of {} ({share:.1} %)\n", all.len());
    }
    let both = |n: &str| theirs.iter().all(|peer| passed(peer, n));
    let all: Vec<&String> = ours.keys().filter(|n| both(n)).collect();
    let same = all.iter().filter(|n| passed(ours, n)).count();
    let share = 100.0 * same as f64 / all.len().max(1) as f64;
    text += &format!("both: kymo passes {same} of {} ({share:.1} %)\n", all.len());
    // Where the newest release fails an older one's case, the two contradict each other, and kymo
    // follows the newest.
    if let [installed, newest] = theirs {
        let excused: Vec<&String> =
            ours.keys().filter(|n| passed(installed, n) && !passed(newest, n)).collect();
        let same = excused.iter().filter(|n| passed(ours, n)).count();
        text += &format!(
            "excused, since the newest does not pass them: {} of the installed one's cases (kymo \
             passes {same})\n",
            excused.len()
        );
    }
    text.push('\n');
    let is_missed = |name: &str| theirs.iter().any(|peer| passed(peer, name));
    for (name, outcome) in ours.iter().filter(|(n, o)| !o.passed && is_missed(n)) {
        let by: Vec<&str> = ["installed", "newest"]
            .iter()
            .zip(theirs)
            .filter(|(_, peer)| passed(peer, name))
            .map(|(name, _)| *name)
            .collect();
        let by = if both(name) { String::new() } else { format!(" (of the {})", by.join(", ")) };
        let reason: String = outcome.reason.chars().take(400).collect();
        text += &format!("{name}{by}{reason}\n");
    }
    text
}

//! Inputs that fuzz targets begin with: real files of each format, small ones,
//! made here by the programs that make such files. A target whose files cannot be
//! made here begins with nothing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Puts inputs for `target` into its corpus.
pub(super) fn make(target: &str, corpus: &Path) -> anyhow::Result<()> {
    let put = |name: &str, bytes: &[u8]| -> anyhow::Result<()> {
        let path = corpus.join(format!("seed-{name}"));
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())
    };
    let work = corpus.with_extension("work");
    std::fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let seeds = match target {
        "format" => formats(),
        "print_fmt" => print_formats(),
        "perfdata" => recordings(&work),
        "tracedat" => fixture().into_iter().collect(),
        "ring" => {
            fixture().iter().flat_map(|whole| whole.chunks(4096).map(<[u8]>::to_vec)).collect()
        }
        "lines" | "elf" | "probe" => programs(&work),
        "cfi" => programs(&work).iter().map(|program| frames(&work, program)).collect(),
        "ctf" => ctf(&work),
        _ => Vec::new(),
    };
    for (number, seed) in seeds.iter().enumerate() {
        put(&number.to_string(), seed)?;
    }
    let by_hand = crate::root().join("fuzz/seeds").join(target);
    for entry in std::fs::read_dir(by_hand).into_iter().flatten().flatten() {
        put(&entry.file_name().to_string_lossy(), &std::fs::read(entry.path())?)?;
    }
    std::fs::remove_dir_all(&work).with_context(|| work.display().to_string())
}

/// Runs a program in a directory; whether it succeeded.
fn tool(directory: &Path, name: &str, args: &[impl AsRef<OsStr>]) -> bool {
    let mut command = Command::new(name);
    command.args(args).current_dir(directory).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn read(path: PathBuf) -> Option<Vec<u8>> {
    std::fs::read(path).ok().filter(|bytes| !bytes.is_empty())
}

/// Texts of some hundred events, of all subsystems.
fn formats() -> Vec<Vec<u8>> {
    let events = Path::new("/sys/kernel/tracing/events");
    let below = |directory: PathBuf| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let systems = below(events.to_owned());
    let some = systems.flat_map(|system| below(system.path()).take(4));
    some.filter_map(|event| read(event.path().join("format"))).collect()
}

/// Print formats, each with a payload.
fn print_formats() -> Vec<Vec<u8>> {
    let cut = |text: Vec<u8>| -> Option<Vec<u8>> {
        let text = String::from_utf8(text).ok()?;
        let (_, print) = text.split_once("print fmt: ")?;
        // The fields that the target has are called otherwise.
        let mut print = print.to_owned();
        for (number, field) in fields(&text).iter().enumerate() {
            let ours = ["a", "b", "c", "d", "e", "f", "g"];
            print = print.replace(&format!("REC->{field}"), &format!("REC->{}", ours[number % 7]));
        }
        Some([print.as_bytes(), b"\0", &[7; 96]].concat())
    };
    formats().into_iter().filter_map(cut).collect()
}

fn fields(format: &str) -> Vec<String> {
    let lines = format.lines().filter_map(|line| line.trim().strip_prefix("field:"));
    let name = |line: &str| {
        let declared = line.split(';').next()?.split('[').next()?;
        declared.rsplit(' ').next().map(str::to_owned)
    };
    lines.filter(|line| !line.contains("common_")).filter_map(name).collect()
}

fn recordings(work: &Path) -> Vec<Vec<u8>> {
    let ways: [&[&str]; 5] = [
        &["-e", "cpu-clock", "-g"],
        &["-e", "cpu-clock", "--call-graph", "dwarf,256"],
        &["-e", "sched:sched_process_exec,sched:sched_process_exit"],
        &["-e", "cpu-clock", "-z", "--per-thread"],
        &["-e", "{page-faults,task-clock}:S", "-d", "-W"],
    ];
    let one = |way: &&[&str]| {
        let args = [&["record", "-o", "perf.data"], *way, &["--", "true"]].concat();
        tool(work, "perf", &args).then(|| read(work.join("perf.data")))?
    };
    ways.iter().filter_map(one).collect()
}

fn fixture() -> Option<Vec<u8>> {
    read(crate::root().join("crates/kymo/tests/fixtures/trace-dat/x86_64/ring.dat"))
}

/// Small programs with debugging information of all kinds.
fn programs(work: &Path) -> Vec<Vec<u8>> {
    let ways: [&[&str]; 10] = [
        &["-g", "-O2"],
        &["-g", "-O1", "-gdwarf-4"],
        &["-gdwarf-3", "-O0"],
        &["-g", "-gz", "-O2"],
        &["-g", "-O2", "-c"],
        &["-g", "-O2", "-xc++", "-fdebug-types-section"],
        &["-g", "-O2", "-xc++", "-fdebug-types-section", "-gdwarf-4"],
        &["-g", "-O2", "-gsplit-dwarf"],
        &["-g", "-gdwarf64", "-O2"],
        &["-O2", "-fasynchronous-unwind-tables"],
    ];
    let source = work.join("program.c");
    let fields = crate::root().join("crates/kymo-probe/tests/programs/fields.c");
    if std::fs::copy(fields, &source).is_err() {
        return Vec::new();
    }
    let one = |way: &&[&str]| {
        let fixed = ["-nostdlib", "-shared", "-fPIC", "-o", "program", "program.c"];
        let way: Vec<&str> = way.iter().copied().chain(fixed).collect();
        let way: Vec<&str> =
            way.iter().copied().filter(|f| *f != "-shared" || !way.contains(&"-c")).collect();
        tool(work, "gcc", &way).then(|| read(work.join("program")))?
    };
    ways.iter().filter_map(one).collect()
}

/// Call frame information of a program as the target takes it: three parts with
/// their sizes, and a stack.
fn frames(work: &Path, program: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let whole = work.join("whole");
    for section in [".eh_frame", ".eh_frame_hdr", ".debug_frame"] {
        let only = format!("--dump-section={section}=part");
        let _ = std::fs::remove_file(work.join("part"));
        let dumped = std::fs::write(&whole, program).is_ok()
            && tool(work, "objcopy", &[only.as_str(), "whole", "/dev/null"]);
        let part = if dumped { read(work.join("part")) } else { None };
        let part = part.filter(|p| p.len() < 8192).unwrap_or_default();
        out.extend((part.len() as u16).to_le_bytes());
        out.extend(part);
    }
    out.extend((0..64u64).flat_map(|word| (0x1000 + 16 * word).to_le_bytes()));
    out
}

/// A trace that babeltrace2 wrote, as the target takes it.
fn ctf(work: &Path) -> Vec<Vec<u8>> {
    let text = "[    1.500000] first line\n[    2.250000] second line\n";
    if std::fs::write(work.join("log"), text).is_err() {
        return Vec::new();
    }
    let args = [
        "--component=source.text.dmesg",
        "--params=path=\"log\"",
        "--component=sink.ctf.fs",
        "--params=path=\"trace\"",
    ];
    if !tool(work, "babeltrace2", &args) {
        return Vec::new();
    }
    let mut traces = vec![work.join("trace")];
    // Metadata in JSON.
    traces.push(crate::root().join("crates/kymo/tests/fixtures/ctf-2/x86_64/lttng-ust"));
    let below = std::fs::read_dir(work.join("trace")).into_iter().flatten().flatten();
    traces.extend(below.map(|entry| entry.path()));
    let one = |trace: &PathBuf| {
        let metadata = read(trace.join("metadata"))?;
        let streams = std::fs::read_dir(trace).ok()?.flatten();
        let stream = streams.map(|e| e.path()).find(|p| !p.ends_with("metadata"))?;
        Some([&metadata[..], b"\0", &read(stream)?].concat())
    };
    traces.iter().filter_map(one).collect()
}

//! Inlined functions and lines in `kymo report` and `kymo script`, against perf's
//! own chains frame by frame; and the cache that a second run uses.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

use kymo_testkit::{Need, require};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

const SOURCE: &str = "
static volatile unsigned long sink;
static inline __attribute__((always_inline)) unsigned long inner(unsigned long x)
{
	unsigned long r = 0;
	for (int i = 0; i < 50; i++)
		r += (x * 2654435761u) ^ (r >> 3);
	return r;
}
static inline __attribute__((always_inline)) unsigned long middle(unsigned long x)
{
	return inner(x) + inner(x + 1);
}
__attribute__((noinline)) void outer(unsigned long x)
{
	sink += middle(x);
	__asm__ volatile(\"\");
}
int main(void)
{
	for (unsigned long i = 0; i < 3000000; i++)
		outer(i);
	return 0;
}
";

struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    /// A program built with `flags`, sampled with `graph`.
    fn new(flags: &[&str], graph: &str) -> Case {
        let case = Case { dir: tempfile::tempdir().unwrap() };
        let source = case.path("inlined.c");
        std::fs::write(&source, SOURCE).unwrap();
        let program = case.path("inlined");
        let gcc = Command::new("gcc").args(flags).arg("-o").args([&program, &source]).status();
        assert!(gcc.unwrap().success());
        let record =
            ["record", "-q", "-e", "cpu-clock:u", "-F", "999", "--call-graph", graph, "-o"];
        let file = case.path("perf.data");
        let perf = Command::new("perf").args(record).arg(&file).arg("--").arg(&program).output();
        assert!(perf.unwrap().status.success());
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a tool's output for the recording: text, and notes.
    fn ask(&self, tool: &str, args: &[&str]) -> (String, String) {
        let file = self.path("perf.data");
        let mut command = Command::new(tool);
        command.args(args).arg("-i").arg(file).env("KYMO_CACHE", self.path("cache"));
        let out = command.env_remove("DEBUGINFOD_URLS").output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (text(&out.stdout), text(&out.stderr))
    }
}

/// A frame line of script: address, function, offset and whether it is inlined.
fn frame(line: &str) -> Option<(String, String, bool)> {
    let (address, rest) = line.strip_prefix('\t')?.trim_start().split_once(' ')?;
    let inlined = rest.ends_with(" (inlined)");
    let function = rest.split(" (").next()?.to_owned();
    Some((address.to_owned(), function, inlined))
}

/// The frames of samples in `main` and what it calls, those of one address together. In the
/// loader, before that, perf marks inlined recursion as none and adds a frame at -1 to stacks
/// that end early; those belong to the tests beside gdb.
fn frames(text: &str) -> Vec<Vec<(String, String, bool)>> {
    let mut all = Vec::new();
    for sample in text.split("\n\n") {
        let mut runs: Vec<Vec<(String, String, bool)>> = Vec::new();
        for f in sample.lines().filter_map(frame) {
            match runs.last_mut() {
                Some(run) if run[0].0 == f.0 => run.push(f),
                _ => runs.push(vec![f]),
            }
        }
        if runs.iter().flatten().any(|f| f.1.starts_with("main+")) {
            all.extend(runs);
        }
    }
    all
}

#[test]
fn unwound_chains_are_perfs_frame_by_frame() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let case = Case::new(&["-O2", version, "-fomit-frame-pointer"], "dwarf,4096");
        let (perf, _) = case.ask("perf", &["script"]);
        let (kymo, _) = case.ask(KYMO, &["script"]);
        let (theirs, ours) = (frames(&perf), frames(&kymo));
        assert_eq!(ours.len(), theirs.len());
        let mut inlined = 0;
        for (mut theirs, ours) in theirs.into_iter().zip(ours) {
            // Where DWARF and the symbol table have two names for one function, perf
            // prints that of DWARF and takes the function for one that was inlined.
            if let (Some(t), Some(o)) = (theirs.last_mut(), ours.last())
                && t.2
                && !o.2
            {
                t.clone_from(o);
            }
            assert_eq!(ours, theirs);
            inlined += usize::from(ours.len() == 3);
        }
        assert!(inlined > 0, "{inlined}");
    }
}

#[test]
fn lines_of_chains_are_addr2lines() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("addr2line")]) {
        return;
    }
    let case = Case::new(&["-O2", "-g", "-fno-omit-frame-pointer", "-no-pie"], "fp");
    let (text, _) = case.ask(KYMO, &["script", "-F", "ip,sym,srcline", "--full-source-path"]);
    let mut lines = text.lines().peekable();
    let (mut asked, mut found): (Vec<String>, Vec<Vec<String>>) = (Vec::new(), Vec::new());
    // Where the sample is, once its first frame was read, and whether none was asked for yet.
    let (mut sampled, mut begins) = (None, true);
    while let Some(line) = lines.next() {
        let Some((address, ..)) = frame(line) else {
            (sampled, begins) = (None, true);
            continue;
        };
        let is_caller = *sampled.get_or_insert_with(|| address.clone()) != address;
        let place = lines.next().unwrap().trim().trim_end_matches(" (inlined)").to_owned();
        if !place.contains("inlined.c:") {
            continue;
        }
        // Callers are looked up in the call, before the address that is printed.
        let address = u64::from_str_radix(&address, 16).unwrap() - u64::from(is_caller);
        let address = format!("{:#x}", address + if address < 0x40_0000 { 0x40_0000 } else { 0 });
        if asked.last() == Some(&address) && !std::mem::take(&mut begins) {
            found.last_mut().unwrap().push(place);
        } else {
            begins = false;
            asked.push(address);
            found.push(vec![place]);
        }
    }
    assert!(!asked.is_empty(), "{text}");
    for (address, found) in asked.iter().zip(found).take(200) {
        let mut tool = Command::new("addr2line");
        let out = tool.args(["-i", "-e"]).arg(case.path("inlined")).arg(address).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let theirs: Vec<&str> = text.lines().map(|l| l.split(" (disc").next().unwrap()).collect();
        assert_eq!(found, theirs, "{address}");
    }
}

#[test]
fn a_report_counts_inlined_functions_as_perf_does() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let case = Case::new(&["-O2", "-g", "-fomit-frame-pointer"], "dwarf,4096");
    for options in [
        &["report", "--stdio", "--children", "-g", "none", "-s", "sym"][..],
        &["report", "--stdio", "--no-children", "-g", "none", "-s", "sym"],
        &["report", "--stdio", "--no-children", "-g", "none", "-s", "srcline,sym"],
        &["report", "--stdio", "--children", "-g", "none", "-s", "srcline,sym"],
        &["report", "--stdio", "--no-children", "-g", "folded,caller", "-s", "sym"],
    ] {
        // Rows of the program itself: the C library has two names for some functions, and
        // there are samples of its start, which has a `dl_main`.
        let own = ["inner", "middle", "outer", "main"];
        let is_own = |l: &str| {
            let mut words = l.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.any(|w| own.contains(&w)) && !l.contains("__libc") && !l.contains("dl_main")
        };
        let rows = |text: &str| -> Vec<String> {
            let shown = text.lines().filter(|l| !l.starts_with('#'));
            let mut rows: Vec<String> = shown
                .filter(|l| is_own(l))
                .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            rows.sort();
            rows
        };
        let (perf, _) = case.ask("perf", options);
        let (kymo, _) = case.ask(KYMO, options);
        let (theirs, ours) = (rows(&perf), rows(&kymo));
        assert_eq!(ours, theirs, "{options:?}");
        let folded = options.contains(&"folded,caller");
        assert!(folded || !theirs.is_empty(), "{options:?}: {perf}");
    }
}

#[test]
fn a_second_run_takes_lines_from_the_cache() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let case = Case::new(&["-O2", "-g", "-fno-omit-frame-pointer"], "fp");
    let options = ["report", "--no-children", "-g", "caller", "-s", "sym", "--json"];
    let graphs = |text: &str| -> serde_json::Value {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        value["events"].clone()
    };
    let (first, _) = case.ask(KYMO, &options);
    assert!(first.contains("inner (inlined)"), "{first}");
    let list = || {
        let mut kymo = Command::new(KYMO);
        let out = kymo.args(["cache", "list"]).env("KYMO_CACHE", case.path("cache")).output();
        String::from_utf8_lossy(&out.unwrap().stdout).into_owned()
    };
    let program = case.path("inlined").display().to_string();
    assert!(list().lines().any(|l| l.contains("lines") && l.ends_with(&program)), "{}", list());
    // A damaged file is reported and rebuilt.
    let file = |case: &Case| {
        let all = std::fs::read_dir(case.path("cache")).unwrap().flatten();
        let mut own: Vec<PathBuf> = all.map(|e| e.path()).collect();
        own.retain(|p| String::from_utf8_lossy(&std::fs::read(p).unwrap()).contains(&program));
        own.pop().unwrap()
    };
    let path = file(&case);
    let whole = std::fs::read(&path).unwrap();
    let mut broken = whole.clone();
    *broken.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &broken).unwrap();
    let (second, said) = case.ask(KYMO, &options);
    assert_eq!(graphs(&second), graphs(&first));
    assert!(said.contains("\"cache\"") && said.contains("is damaged"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    // So is one that another version of kymo wrote, and one that is cut short.
    let mut other = whole.clone();
    other[8] ^= 0x40;
    for (bytes, what) in [(&other[..], "version"), (&whole[..whole.len() / 2], "is damaged")] {
        std::fs::write(&path, bytes).unwrap();
        let (again, said) = case.ask(KYMO, &options);
        assert_eq!(graphs(&again), graphs(&first));
        assert!(said.contains("\"cache\"") && said.contains(what), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }
    // Without its debugging information the program keeps its build-id.
    let strip = Command::new("strip").arg("-g").arg(case.path("inlined")).status();
    assert!(strip.unwrap().success());
    let (third, _) = case.ask(KYMO, &options);
    assert_eq!(graphs(&third), graphs(&first));
    let cleared = Command::new(KYMO)
        .args(["cache", "clear", "inlined"])
        .env("KYMO_CACHE", case.path("cache"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&cleared.stdout).starts_with("1 file removed"));
    assert!(!path.exists());
    let (fourth, said) = case.ask(KYMO, &options);
    assert!(!fourth.contains("inlined)"), "{fourth}");
    assert!(said.contains("have a source line") && said.contains("install the debug package"));
}

#[test]
fn a_program_that_is_cut_short_costs_its_lines_only() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let case = Case::new(&["-O2", "-g", "-fno-omit-frame-pointer"], "fp");
    let program = case.path("inlined");
    let bytes = std::fs::read(&program).unwrap();
    let debug = find(&bytes, b"inlined.c");
    // Garbage where the debugging information is; headers and symbols stay.
    let mut broken = bytes.clone();
    for (i, byte) in broken.iter_mut().enumerate().skip(debug - 2000).take(1500) {
        *byte ^= (i * 31) as u8;
    }
    std::fs::write(&program, &broken).unwrap();
    let options = ["report", "--no-children", "-g", "caller", "-s", "sym"];
    let (text, _) = case.ask(KYMO, &options);
    assert!(text.contains("outer"), "{text}");
}

fn find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|w| w == what).unwrap()
}

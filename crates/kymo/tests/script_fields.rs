//! Fields and selections of `kymo script` beside those of the installed perf,
//! on recordings made on the spot. What this machine's processor cannot sample
//! (branches, memory accesses) is added to the samples of a real recording, so
//! that both read the same bytes.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kymo_testkit::{Need, Outcome, Workload, perf, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

const WORK: &str = "for i in $(seq $0); do ls -lR /etc >/dev/null; cat /etc/passwd | wc -l; done";

/// Records some work, as much as it takes on this machine until there are a hundred samples.
fn record(dir: &Path, args: &[&str]) -> PathBuf {
    let file = dir.join("perf.data");
    for rounds in ["3", "20", "200"] {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q"]).args(args).arg("-o").arg(&file);
        perf.args(["--", "sh", "-c", WORK, rounds]);
        let status = perf.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(status.success(), "perf record {args:?}: {status}");
        if lines(KYMO, &file, &["-F", "event"]).len() >= 100 {
            break;
        }
    }
    file
}

fn lines(program: &str, file: &Path, args: &[&str]) -> Vec<String> {
    let output = Command::new(program)
        .args(["script", "-i"])
        .arg(file)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} script {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[track_caller]
fn same(file: &Path, args: &[&str]) -> Vec<String> {
    let (perf, kymo) = (lines("perf", file, args), lines(KYMO, file, args));
    assert!(!perf.is_empty(), "{args:?}: perf printed nothing");
    for (n, (p, k)) in perf.iter().zip(&kymo).enumerate() {
        assert_eq!(k, p, "{args:?}: line {}", n + 1);
    }
    assert_eq!(kymo.len(), perf.len(), "{args:?}: number of lines");
    kymo
}

#[test]
fn registers_pages_and_modes() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Root]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let asked = ["-e", "cpu-clock,page-faults", "-d", "--user-regs=ip,sp,ax,r12", "-W"];
    let more = ["--intr-regs=ip,sp,flags", "--phys-data", "--data-page-size", "--code-page-size"];
    let file = record(dir.path(), &[&asked[..], &more].concat());
    let fields = ["misc", "iregs", "uregs", "phys_addr", "data_page_size", "code_page_size"];
    for field in fields.into_iter().chain(["weight", "misc,iregs,uregs,phys_addr"]) {
        let lines = same(&file, &["-F", &format!("comm,tid,time,event,ip,{field}")]);
        // Something else than blanks and zeros is seen at least once.
        let seen = match field {
            "misc" => " U ",
            "iregs" | "uregs" => "ABI:2",
            "code_page_size" => "K",
            _ => continue,
        };
        assert!(lines.iter().any(|l| l.contains(seen)), "{field}: {}", lines[0]);
    }
}

#[test]
fn cgroups_have_their_paths() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Root]) {
        return;
    }
    // perf 6.1 records cgroups and cannot print them, so the kernel's paths are the judge.
    let dir = tempfile::tempdir().unwrap();
    let file = record(dir.path(), &["-e", "cpu-clock", "--all-cgroups"]);
    let lines = lines(KYMO, &file, &["-F", "comm,cgroup"]);
    assert!(!lines.is_empty());
    for line in lines {
        let path = line.split_whitespace().nth(1).unwrap_or("");
        assert!(path.starts_with('/'), "{line}");
    }
}

/// Adds fields to each sample of a recording of one event, behind all others.
fn with(file: &Path, bit: u64, branch_type: u64, extra: impl Fn(u64, u64) -> Vec<u8>) -> PathBuf {
    let old = std::fs::read(file).unwrap();
    let word = |at: usize| u64::from_le_bytes(old[at..at + 8].try_into().unwrap());
    let (attr, data, size) = (word(24) as usize, word(40) as usize, word(48) as usize);
    let mut new = old[..data].to_vec();
    let mut put = |at: usize, v: u64| new[at..at + 8].copy_from_slice(&v.to_le_bytes());
    assert_eq!(word(attr + 24) & bit, 0, "perf recorded the field itself");
    put(attr + 24, word(attr + 24) | bit);
    put(attr + 72, branch_type);
    // The feature sections would have to move: there are none then.
    (0..4).for_each(|n| put(72 + 8 * n, 0));
    let (mut at, mut n) = (data, 0);
    while at < data + size {
        let record = usize::from(u16::from_le_bytes([old[at + 6], old[at + 7]]));
        let start = new.len();
        new.extend_from_slice(&old[at..at + record]);
        if old[at] == 9 {
            new.extend(extra(n, word(at + 8)));
            let length = (new.len() - start) as u16;
            new[start + 6..start + 8].copy_from_slice(&length.to_le_bytes());
            n += 1;
        }
        at += record;
    }
    let length = (new.len() - data) as u64;
    new[48..56].copy_from_slice(&length.to_le_bytes());
    let file = file.with_extension("more");
    std::fs::write(&file, new).unwrap();
    file
}

fn words(values: impl IntoIterator<Item = u64>) -> Vec<u8> {
    values.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// perf writes some parts twice apart by blanks, and fills up to the longest so far.
fn squeezed(lines: &[String]) -> Vec<String> {
    lines.iter().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn branch_stacks() {
    if !require(&[Need::Perf, Need::PerfEvents]) {
        return;
    }
    const BRANCH_STACK: u64 = 1 << 11;
    const ANY: u64 = 8;
    let dir = tempfile::tempdir().unwrap();
    let plain = record(dir.path(), &["-e", "cpu-clock", "-F", "3000"]);
    let file = with(&plain, BRANCH_STACK, ANY, |n, ip| {
        // Every type, every flag, some cycles; addresses around the sampled one.
        let flags = |k: u64| ((n + k) % 16) | ((n * 7 % 65536) << 4) | (((n + k) % 16) << 20);
        let entry = |k: u64| [ip.wrapping_sub(16 * k), ip.wrapping_add(k), flags(k)];
        words([3].into_iter().chain((0..3).flat_map(entry)))
    });
    let seen = same(&file, &["-F", "comm,time,ip,brstack"]);
    assert!(seen.iter().any(|l| l.contains("/COND ")), "{}", seen[0]);
    same(&file, &["-F", "comm,time,ip,brstack,dso"]);
    let args = ["-F", "comm,time,brstacksym"];
    let perf = lines("perf", &file, &args);
    // Without the header's sections nothing identifies the kernel: perf assumes the running one,
    // kymo needs an option.
    let told = [&args[..], &["--kallsyms", "/proc/kallsyms"]].concat();
    let kymo = lines(KYMO, &file, &told);
    let differ = perf.iter().zip(&kymo).filter(|(p, k)| p != k).count();
    // Names of one place with several names may differ.
    assert!(differ * 10 < perf.len(), "{differ} of {}: {} {}", perf.len(), perf[0], kymo[0]);
}

#[test]
fn data_sources_in_words() {
    if !require(&[Need::Perf, Need::PerfEvents]) {
        return;
    }
    const DATA_SRC: u64 = 1 << 15;
    let dir = tempfile::tempdir().unwrap();
    let plain = record(dir.path(), &["-e", "cpu-clock", "-F", "3000"]);
    // Each bit alone, then a few that occur together: load, L1 hit, no snoop, TLB hit.
    let together = [0x6810_0142_u64, 0x1e_0508_0021, 0x0510_0142, 0x2_6808_0842];
    let file = with(&plain, DATA_SRC, 0, |n, _| {
        words([if n < 46 { 1 << n } else { together[n as usize % together.len()] }])
    });
    let args = ["-F", "data_src"];
    let (perf, kymo) = (lines("perf", &file, &args), lines(KYMO, &file, &args));
    assert!(perf.len() > 50, "{} samples are too few for all bits", perf.len());
    assert_eq!(squeezed(&kymo), squeezed(&perf));
}

#[test]
fn latencies_of_instructions() {
    if !require(&[Need::Perf, Need::PerfEvents]) {
        return;
    }
    // Weight in the low 32 bits, then two latencies of 16 (perf_event_open(2)).
    const WEIGHT_STRUCT: u64 = 1 << 24;
    let dir = tempfile::tempdir().unwrap();
    let plain = record(dir.path(), &["-e", "cpu-clock"]);
    let file = with(&plain, WEIGHT_STRUCT, 0, |n, _| words([(n + 7) | (n + 1000) << 32]));
    let seen = same(&file, &["-F", "comm,time,weight,ins_lat"]);
    // The samples are numbered as they lie in the file and printed in the order of time.
    for line in &seen {
        let numbers: Vec<u64> =
            line.split_whitespace().rev().take(2).map(|w| w.parse().unwrap()).collect();
        assert!(numbers[0] >= 1000, "{line}");
        assert_eq!(numbers[0] - numbers[1], 1000 - 7, "{line}");
    }
}

/// A program whose one busy function has the name that a C++ compiler would give it.
#[test]
fn names_as_the_compiler_mangled_them() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("m.c"), dir.path().join("mangled"));
    let text = "long work(long) __asm__(\"_ZN4deep4workEl\");\n\
                long work(long n) { volatile long s = 0; for (; n; n--) s += n; return s; }\n\
                int main(void) { return (int)work(60000000) & 0; }\n";
    std::fs::write(&source, text).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-fno-inline", "-o"]).args([&program, &source]);
    assert!(gcc.status().unwrap().success());
    let file = dir.path().join("perf.data");
    let perf = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock:u", "-o"])
        .args([&file, &program])
        .status();
    assert!(perf.unwrap().success());
    let plain = same(&file, &["-F", "comm,time,ip,sym"]);
    assert!(plain.iter().any(|l| l.ends_with(" deep::work")), "{}", plain[0]);
    let mangled = same(&file, &["-F", "comm,time,ip,sym", "--no-demangle"]);
    assert!(mangled.iter().any(|l| l.ends_with(" _ZN4deep4workEl")), "{}", mangled[0]);
    assert!(!mangled.iter().any(|l| l.contains("::")), "{}", mangled[0]);
}

#[test]
fn a_selection_of_nothing_says_so() {
    if !require(&[Need::Perf, Need::PerfEvents]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = record(dir.path(), &["-e", "page-faults", "-c", "1"]);
    let said = |args: &[&str]| {
        let mut kymo = Command::new(KYMO);
        let out = kymo.arg("script").args(args).arg("-i").arg(&file).output().unwrap();
        (out.stdout.is_empty(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    for (args, fact) in [
        (["--comm", "absent"], "no event matches --comm absent; the recording has "),
        (["--event", "cycles"], "no event matches --event cycles; the recording has page-faults"),
        (["-C", "999"], "no event is on --cpu 999; the "),
        (["-S", "no_such"], "no events of the recording match"),
    ] {
        let (empty, text) = said(&args);
        assert!(empty && text.contains(fact), "{args:?}: {text}");
    }
    assert!(!said(&["--comm", "ls"]).1.contains("passes"), "{:?}", said(&["--comm", "ls"]));
    assert!(said(&["-C", "x"]).1.contains("not a list of CPUs"), "{:?}", said(&["-C", "x"]));
}

#[test]
fn shares_and_several_ranges_of_time() {
    if !require(&[Need::Perf, Need::PerfEvents]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = record(dir.path(), &["-e", "cpu-clock", "-F", "3000"]);
    let all = lines(KYMO, &file, &["-F", "time", "--ns"]);
    let whole = same(&file, &["-F", "comm,time,ip", "--time", "100%/1"]);
    assert_eq!(whole.len(), all.len());
    // The program may have waited for a processor throughout one of these.
    let mut found = 0;
    for time in ["10%/2", "0%-10%", "10%/1,10%/3", "0%-10%,30%-40%", "50%-100%"] {
        let args = ["-F", "comm,time,ip", "--time", time];
        let (perf, kymo) = (lines("perf", &file, &args), lines(KYMO, &file, &args));
        assert_eq!(kymo, perf, "{time}");
        assert!(kymo.len() < all.len(), "{time}");
        found += kymo.len();
    }
    assert!(found > 0);
    let at = |n: usize| all[all.len() * n / 10].trim().trim_end_matches(':').to_owned();
    let ranges = format!("{},{} {},{}", at(1), at(2), at(5), at(7));
    same(&file, &["-F", "comm,time,ip", "--time", &ranges]);
}

#[test]
fn times_since_the_first_or_the_last_event() {
    if !require(&[Need::Perf, Need::PerfEvents]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = record(dir.path(), &["-e", "cpu-clock", "-F", "3000"]);
    for args in [&["--reltime"][..], &["--deltatime"], &["--deltatime", "--ns"]] {
        same(&file, &[&["-F", "comm,time,ip"], args].concat());
    }
}

#[test]
fn chosen_functions_and_short_stacks() {
    if !require(&[Need::Perf, Need::PerfEvents]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = record(dir.path(), &["-e", "cpu-clock", "-F", "4000", "-g"]);
    for depth in ["1", "4"] {
        same(&file, &["-F", "comm,time,event,ip", "--max-stack", depth]);
    }
    let symbols = lines(KYMO, &file, &["-G", "-F", "ip,sym"]);
    let name = symbols.iter().find_map(|l| Some(l.split_whitespace().nth(1)?.to_owned()));
    let name = name.filter(|n| n != "[unknown]").unwrap_or("do_syscall_64".to_owned());
    let chosen = lines(KYMO, &file, &["-G", "-F", "ip,sym", "-S", &name]);
    let expected: Vec<&String> =
        symbols.iter().filter(|l| l.split_whitespace().nth(1) == Some(&name)).collect();
    assert!(!chosen.is_empty() && chosen.iter().eq(expected), "{name}");
}

#[test]
fn fields_that_are_not_there_say_why() {
    let refused = |field: &str| {
        let output = Command::new(KYMO).args(["script", "-i", "none", "-F", field]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused("ip,srccode").contains("srcline"), "{}", refused("ip,srccode"));
    assert!(refused("insn").contains("instruction traces"), "{}", refused("insn"));
    assert!(refused("colour").contains("no field colour"), "{}", refused("colour"));
    assert!(refused("").contains("names no field"), "{}", refused(""));
}

const INLINED: &str = include_str!("programs/inlined.c");

/// Name, whether inlined, file and line of each frame of each chain.
type Frames = Vec<Vec<(String, bool, String)>>;

#[test]
fn json_has_the_inlined_frames_and_lines_of_the_text() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("script_inlined", INLINED);
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let event = "cpu-clock:u";
    let _ = perf(["record", "-q", "-F", "1000", "-g", "-e", event, "-o", &file, &program]);
    let text = kymo(&["script", "-i", &file, "-F", "comm,ip,sym,srcline"]).success().stdout;
    let mut expected = Frames::new();
    for sample in text.split("\n\n").filter(|s| !s.trim().is_empty()) {
        let mut frames = Vec::new();
        let mut lines = sample.trim_start_matches('\n').lines().skip(1);
        while let (Some(frame), Some(line)) = (lines.next(), lines.next()) {
            let (line, inlined) = match line.strip_suffix(" (inlined)") {
                Some(line) => (line, true),
                None => (line, false),
            };
            let name = frame.trim().split_once(' ').unwrap().1;
            // Other names stand for memory that is no file.
            let line = Some(line.trim()).filter(|l| *l != "??:0" && !l.starts_with('['));
            frames.push((name.to_owned(), inlined, line.unwrap_or("").to_owned()));
        }
        expected.push(frames);
    }
    let json = kymo(&["script", "-i", &file, "--json"]).success().stdout;
    let mut found = Frames::new();
    for line in json.lines() {
        let sample: serde_json::Value = serde_json::from_str(line).unwrap();
        let frames = sample["callchain"].as_array().unwrap();
        let frame = |f: &serde_json::Value| {
            let name = f["sym"].as_str().unwrap_or("[unknown]").to_owned();
            let path = f["file"].as_str().unwrap_or("");
            let line = f["line"].as_u64().unwrap_or(0);
            let base = path.rsplit('/').next().unwrap();
            let place = if path.is_empty() { String::new() } else { format!("{base}:{line}") };
            (name, f["inlined"] == true, place)
        };
        found.push(frames.iter().map(frame).collect());
        // The sample itself is where the innermost function is.
        assert_eq!((&sample["file"], &sample["line"]), (&frames[0]["file"], &frames[0]["line"]));
    }
    assert_eq!(found, expected);
    let line = INLINED.lines().position(|l| l.contains("sink += i * i")).unwrap() + 1;
    let inner = ("inner".to_owned(), true, format!("script_inlined.c:{line}"));
    let with = found.iter().filter(|f| f[0] == inner && f[1].0 == "between" && f[2].0 == "outer");
    assert!(with.count() * 10 > found.len() * 9, "{found:#?}");
    let without = kymo(&["script", "-i", &file, "--json", "--no-inline"]).success().stdout;
    assert!(!without.contains("inlined\":") && !without.contains("\"file\""), "{without}");
}

/// perf 6.1 refuses it: "sample IP is not selected".
#[test]
fn stacks_of_tracepoints_have_source_lines() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let work = Workload::syscalls();
    let file = work.file("perf.data");
    let event = "syscalls:sys_enter_getppid";
    let _ = kymo(
        &[
            &["record", "-q", "--call-graph", "dwarf", "-e", event, "-o", &file, "--"][..],
            &[work.arg(), "3"],
        ]
        .concat(),
    )
    .success();
    let plain = lines(KYMO, Path::new(&file), &[]);
    let with = lines(KYMO, Path::new(&file), &["-F", "+srcline"]);
    let is_frame = |line: &&String| line.starts_with('\t');
    let frames: Vec<&String> = with.iter().filter(is_frame).collect();
    let expected: Vec<&String> = plain.iter().filter(is_frame).collect();
    assert!(frames.len() >= 3, "{with:?}");
    assert_eq!(frames, expected, "{with:?}");
    assert!(
        with.iter().any(|line| line.starts_with("  ") && line.contains("syscalls.c:")),
        "{with:?}"
    );
}

/// Fields hold functions as numbers; the member `message` has the text with their names.
#[test]
fn json_has_the_names_of_functions() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let file = path.to_str().unwrap();
    let events = ["-e", "kmem:kmem_cache_free", "-e", "sched:sched_process_exec"];
    for chains in [&[][..], &["-g"]] {
        let args = [&["record", "-q", "-f", "-o", file][..], &events, chains, &["--", "true"]];
        let _ = kymo(&args.concat()).success();
        let text = lines(KYMO, &path, &["-F", "trace"]);
        let text: Vec<&str> = text.iter().map(|l| l.trim()).filter(|l| l.contains('=')).collect();
        let json = lines(KYMO, &path, &["--json"]);
        assert_eq!(text.len(), json.len());
        let mut named = 0;
        for (text, json) in text.iter().zip(&json) {
            let event: serde_json::Value = serde_json::from_str(json).unwrap();
            if event["event"] == "kmem:kmem_cache_free" {
                assert_eq!(event["message"], *text, "{json}");
                assert!(text.starts_with("call_site=") && text.contains("+0x"), "{text}");
                assert!(event["fields"]["call_site"].is_number(), "{json}");
                named += 1;
            } else {
                assert!(event.get("message").is_none(), "{json}");
            }
        }
        assert!(named > 0 && named < json.len(), "{json:?}");
    }
}

//! Functions, inlined copies, lines and code of a kernel that does not run here, out
//! of its `vmlinux` and its modules' files: recordings are made of addresses that are
//! chosen, with the kernel and a module moved as at a boot; `addr2line`, `nm` and
//! `objdump` on the files are the judges.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_files::perfdata::Feature;
use kymo_files::perfdata::write::features::{BuildIdOf, build_ids, string};
use kymo_files::perfdata::write::synth::{Synth, record};
use kymo_files::perfdata::write::{EventMeta, FeatureSections, PerfDataWriter};
use kymo_model::{Attr, AttrFlags, BuildId, ChainContext, EventType, Misc, RecordKind, SampleType};
use kymo_testkit::{KernelDebug, Need, kernel_debug, require};

const NEEDS: [Need; 5] = [
    Need::KernelDebug,
    Need::Tool("addr2line"),
    Need::Tool("llvm-addr2line"),
    Need::Tool("xz"),
    Need::Tool("zstd"),
];
/// Address of the module, and offset by which the kernel was moved.
const BASE: u64 = 0xffff_ffff_c0a4_1000;
const MOVED: u64 = 0x0cc0_0000;

fn tool(name: &str, args: &[&str]) -> String {
    let out = Command::new(name).args(args).output().unwrap();
    assert!(out.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn build_id(path: &Path) -> BuildId {
    let notes = tool("readelf", &["-n", path.to_str().unwrap()]);
    let hex = notes.lines().find_map(|l| l.trim().strip_prefix("Build ID: ")).unwrap();
    let bytes: Vec<u8> = (0..hex.len() / 2)
        .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap())
        .collect();
    BuildId::new(&bytes)
}

/// Functions by address, of symbols that `nm` calls code.
fn functions(path: &Path) -> BTreeMap<u64, String> {
    let mut all = BTreeMap::new();
    for line in tool("nm", &["--defined-only", path.to_str().unwrap()]).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [addr, "t" | "T", name] = words[..] {
            all.insert(u64::from_str_radix(addr, 16).unwrap(), name.to_owned());
        }
    }
    all
}

/// A kernel, the directory of a test, and what it is asked with.
struct Case {
    debug: KernelDebug,
    release: String,
    id: BuildId,
    module: PathBuf,
    dir: tempfile::TempDir,
}

impl Case {
    fn new() -> Case {
        let debug = kernel_debug().unwrap();
        let name = debug.vmlinux.file_name().unwrap().to_str().unwrap();
        let release = name.strip_prefix("vmlinux-").unwrap().to_owned();
        let module = debug.modules.join("kernel/drivers/scsi/scsi_debug.ko");
        let (id, dir) = (build_id(&debug.vmlinux), tempfile::tempdir().unwrap());
        Case { debug, release, id, module, dir }
    }

    fn vmlinux(&self) -> &str {
        self.debug.vmlinux.to_str().unwrap()
    }

    /// A recording of one sample for each chain, of the kernel of this build, moved.
    fn recording(&self, name: &str, id: BuildId, moved: u64, chains: &[Vec<u64>]) -> String {
        let attr = Attr {
            kind: EventType::SOFTWARE,
            sample_period: 1,
            sample_type: SampleType::IP
                | SampleType::TID
                | SampleType::TIME
                | SampleType::CALLCHAIN,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        let module = (build_id(&self.module), b"[scsi_debug]".to_vec());
        let ids = [(id, b"[kernel.kallsyms]".to_vec()), module];
        let ids = ids.map(|(id, name)| BuildIdOf { kernel: true, name, id });
        let mut features = FeatureSections::new();
        features.insert(Feature::OSRELEASE, string(&self.release));
        features.insert(Feature::ARCH, string("x86_64"));
        features.insert(Feature::BUILD_ID, build_ids(&ids));
        let path = self.dir.path().join(name);
        let meta = EventMeta {
            name: "cpu-clock".into(),
            attr: attr.clone(),
            ids: vec![7],
            ..EventMeta::default()
        };
        let mut writer =
            PerfDataWriter::file(File::create(&path).unwrap(), vec![meta], &features).unwrap();
        let mut synth = Synth::new(&attr, 7);
        let text = 0xffff_ffff_8100_0000 + moved;
        writer
            .record(synth.kernel_mmap(text, 0x200_0000, text, b"[kernel.kallsyms]_text"))
            .unwrap();
        writer.record(synth.kernel_mmap(BASE, 0x2_0000, 0, b"[scsi_debug]")).unwrap();
        writer.record(synth.comm(1, 1, b"made")).unwrap();
        for (time, chain) in (1u64..).zip(chains) {
            let chain = [&[ChainContext::KERNEL.0], &chain[..]].concat();
            let words = [chain[1], 1 << 32 | 1, time, chain.len() as u64];
            let body: Vec<u8> = words.iter().chain(&chain).flat_map(|w| w.to_ne_bytes()).collect();
            writer.record(&record(RecordKind::SAMPLE, Misc::KERNEL, &body).unwrap()).unwrap();
        }
        writer.finish(&features).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(args).env("KYMO_CACHE", "off").env("HOME", self.dir.path());
        command.env_remove("DEBUGINFOD_URLS");
        command
    }

    /// Output and notes.
    fn kymo(&self, args: &[&str]) -> (String, String) {
        let out = self.command(args).output().unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        (text(&out.stdout), text(&out.stderr))
    }

    /// Returns the frames of each sample: functions with offset and lines.
    fn frames(&self, file: &str, args: &[&str]) -> Vec<Vec<Shown>> {
        let fixed = ["script", "-i", file, "-F", "ip,sym,symoff,srcline"];
        shown(&self.kymo(&[&fixed, args].concat()).0)
    }
}

/// A frame: address, function, offset in it, file and line, and whether it is inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    ip: u64,
    function: String,
    offset: u64,
    line: String,
    inlined: bool,
}

fn shown(text: &str) -> Vec<Vec<Shown>> {
    let mut all: Vec<Vec<Shown>> = Vec::new();
    for part in text.split("\n\n").filter(|p| !p.trim().is_empty()) {
        let lines: Vec<&str> = part.lines().filter(|l| !l.is_empty()).collect();
        let frames = lines.chunks(2).map(|pair| {
            let (ip, name) = pair[0].trim().split_once(' ').unwrap();
            let (function, offset) = name.rsplit_once("+0x").unwrap_or((name, "0"));
            let (line, inlined) = match pair[1].trim().strip_suffix(" (inlined)") {
                Some(line) => (line, true),
                None => (pair[1].trim(), false),
            };
            Shown {
                ip: u64::from_str_radix(ip, 16).unwrap(),
                function: function.to_owned(),
                offset: u64::from_str_radix(offset, 16).unwrap(),
                line: line.to_owned(),
                inlined,
            }
        });
        all.push(frames.collect());
    }
    all
}

/// Returns functions and lines of addresses by `addr2line`, innermost first.
fn addr2line(
    tool: &str,
    dir: &Path,
    file: &Path,
    section: Option<&str>,
    addresses: &[u64],
) -> Vec<Vec<(String, String)>> {
    let list: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    let asked = dir.join("addresses");
    std::fs::write(&asked, list).unwrap();
    let mut command = Command::new(tool);
    command.arg("-fia").arg("-e").arg(file).args(section.map(|s| format!("--section={s}")));
    let out = command.stdin(File::open(&asked).unwrap()).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let mut all: Vec<Vec<(String, String)>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let at = lines.next().unwrap().split(" (disc").next().unwrap();
        let at = at.rsplit('/').next().unwrap().to_owned();
        all.last_mut().unwrap().push((line.to_owned(), at));
    }
    assert_eq!(all.len(), addresses.len());
    all
}

/// Compares frames of samples, one for each address, with addr2line's; returns the number of
/// inlined frames, and where the files alone differ: binutils names the unit's own file for some
/// lines of headers.
fn compare(ours: &[Vec<Shown>], theirs: &[Vec<(String, String)>]) -> (usize, Vec<usize>) {
    assert_eq!(ours.len(), theirs.len());
    let (mut inlined, mut unknown, mut files) = (0, 0, Vec::new());
    for (number, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        if theirs.iter().any(|(_, at)| at.contains('?')) {
            unknown += 1;
            continue;
        }
        let ours_lines: Vec<&str> = ours.iter().map(|f| &*f.line).collect();
        let wanted: Vec<&str> = theirs.iter().map(|f| &*f.1).collect();
        if ours_lines != wanted {
            let lines = |all: &[&str]| {
                all.iter().map(|l| l.rsplit(':').next().unwrap().to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(lines(&ours_lines), lines(&wanted), "{ours:#x?} {theirs:?}");
            files.push(number);
        }
        let (_, inner) = ours.split_last().unwrap();
        for (ours, (name, _)) in inner.iter().zip(theirs) {
            assert!(ours.inlined);
            assert_eq!(&ours.function, name);
            inlined += 1;
        }
    }
    assert!(unknown * 20 < ours.len(), "{unknown} of {} are not known", ours.len());
    (inlined, files)
}

#[test]
fn a_moved_kernels_lines_are_addr2lines() {
    if !require(&NEEDS) {
        return;
    }
    let case = Case::new();
    let functions = functions(&case.debug.vmlinux);
    let (start, end) = (0xffff_ffff_8100_0000, 0xffff_ffff_8180_0000);
    // A place in the middle of every 90th function: mostly no beginning of anything.
    let places: Vec<(u64, &String)> =
        functions.range(start..end).step_by(90).map(|(a, n)| (*a, n)).collect();
    let inside = |a: u64| {
        let next = functions.range(a + 1..).next().unwrap().0;
        a + (next - a) / 2
    };
    let addresses: Vec<u64> = places.iter().map(|(a, _)| inside(*a)).collect();
    let chains: Vec<Vec<u64>> = addresses.iter().map(|a| vec![a + MOVED]).collect();
    let file = case.recording("moved", case.id, MOVED, &chains);
    let ours = case.frames(&file, &["-k", case.vmlinux()]);
    let theirs = addr2line("addr2line", case.dir.path(), &case.debug.vmlinux, None, &addresses);
    let (inlined, files) = compare(&ours, &theirs);
    assert!(ours.len() > 200 && inlined > 100, "{inlined} of {}", ours.len());
    assert!(files.len() * 10 < ours.len(), "{} files differ", files.len());
    let disputed: Vec<u64> = files.iter().map(|n| addresses[*n]).collect();
    let judge = addr2line("llvm-addr2line", case.dir.path(), &case.debug.vmlinux, None, &disputed);
    for (number, judge) in files.iter().zip(judge) {
        let ours: Vec<&str> = ours[*number].iter().map(|f| &*f.line).collect();
        let judge: Vec<&str> = judge.iter().map(|f| &*f.1).collect();
        assert_eq!(ours, judge);
    }
    for ((ours, (start, _)), addr) in ours.iter().zip(&places).zip(&addresses) {
        let frame = ours.last().unwrap();
        assert_eq!((frame.ip, frame.offset), (addr + MOVED, addr - start), "{frame:?}");
    }
    // The same wherever the image lies.
    let id = case.id.to_string();
    let (head, tail) = id.split_at(2);
    let root = case.dir.path().join("root");
    let links = root.join("usr/lib/debug/.build-id").join(head);
    let release = &case.release;
    let of = |directory: String, name: String| (root.join(directory), name);
    let versioned = || format!("vmlinux-{release}");
    let cached = case.dir.path().join("fetched").join(case.id.to_string());
    for (directory, name) in [
        (links, format!("{tail}.debug")),
        of("usr/lib/debug/boot".into(), versioned()),
        of("boot".into(), versioned()),
        of(format!("usr/lib/debug/lib/modules/{release}"), "vmlinux".into()),
        of(format!("lib/modules/{release}/build"), "vmlinux".into()),
        of(format!("usr/lib/modules/{release}"), "vmlinux".into()),
        (cached, "debuginfo".into()),
    ] {
        std::fs::create_dir_all(&directory).unwrap();
        let place = directory.join(name);
        symlink(&case.debug.vmlinux, &place).unwrap();
        let root = root.to_str().unwrap();
        let mut command = case.command(&["script", "-i", &file, "-F", "ip,sym,symoff,srcline"]);
        command.args(["--symfs", root]).env("DEBUGINFOD_URLS", "http://127.0.0.1:1");
        command.env("DEBUGINFOD_CACHE_PATH", case.dir.path().join("fetched"));
        let out = command.output().unwrap();
        assert_eq!(shown(&String::from_utf8_lossy(&out.stdout)), ours, "{}", place.display());
        std::fs::remove_file(&place).unwrap();
    }
    // In the right place the image of another kernel, here a program, is not used, and named.
    let place = root.join("boot").join(versioned());
    symlink(env!("CARGO_BIN_EXE_kymo"), &place).unwrap();
    let args = ["script", "-i", &file, "-F", "ip,sym,srcline", "--symfs", root.to_str().unwrap()];
    let (text, notes) = case.kymo(&args);
    assert!(!text.contains(".c:"), "{text}");
    let refused = format!("refused: {}", place.display());
    assert!(notes.contains(&refused) && notes.contains("wanted is"), "{notes}");
}

#[test]
fn a_kernel_of_a_different_build_is_refused_and_named() {
    if !require(&NEEDS) {
        return;
    }
    let case = Case::new();
    let chains = [vec![0xffff_ffff_8120_0000 + MOVED]];
    let file = case.recording("other", BuildId::new(&[9; 20]), MOVED, &chains);
    for args in [&["-k", case.vmlinux()][..], &["-k", case.vmlinux(), "--kallsyms", "/dev/null"]] {
        let fixed = ["script", "-i", &file, "-F", "ip,sym,srcline"];
        let (text, notes) = case.kymo(&[&fixed, args].concat());
        assert!(text.contains("[unknown]") && !text.contains(".c:"), "{text}");
        let named = format!(
            "{}: is of another kernel: build-id {}, recorded 0909",
            case.vmlinux(),
            case.id
        );
        assert_eq!(notes.matches(&named).count(), 1, "{notes}");
    }
}

#[test]
fn a_modules_names_and_lines_come_from_its_file() {
    if !require(&NEEDS) {
        return;
    }
    let case = Case::new();
    let headers = tool("readelf", &["-SW", case.module.to_str().unwrap()]);
    // Sections as the kernel lays them out: code that stays, in the file's order.
    let mut base = BASE;
    let root = case.dir.path().join("root/usr/lib/debug/lib/modules").join(&case.release);
    std::fs::create_dir_all(root.join("kernel/drivers")).unwrap();
    symlink(&case.module, root.join("kernel/drivers/scsi_debug.ko")).unwrap();
    let symfs = case.dir.path().join("root");
    let mut all = 0;
    for name in [".text", ".text.unlikely", ".exit.text"] {
        let row = headers.lines().find(|l| l.contains(&format!("] {name} "))).unwrap();
        let words: Vec<&str> = row.split_once(']').unwrap().1.split_whitespace().collect();
        let size = u64::from_str_radix(words[4], 16).unwrap();
        base = base.next_multiple_of(words.last().unwrap().parse().unwrap());
        let addresses: Vec<u64> = (1..size).step_by((size as usize / 60).max(1)).collect();
        let chains: Vec<Vec<u64>> = addresses.iter().map(|a| vec![base + a]).collect();
        let file = case.recording("module", case.id, MOVED, &chains);
        let ours = case.frames(&file, &["--symfs", symfs.to_str().unwrap()]);
        let theirs = addr2line("addr2line", case.dir.path(), &case.module, Some(name), &addresses);
        let _ = compare(&ours, &theirs);
        if name == ".text" {
            packed_modules_say_the_same(&case, &file, &ours);
        }
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let (ours, (name, at)) = (ours.last().unwrap(), theirs.last().unwrap());
            let function = ours.function.split('.').next().unwrap();
            // The function that removes the module has this name, too.
            let same =
                function == name || (function == "cleanup_module" && name == "scsi_debug_exit");
            assert!(at.contains('?') || same, "{ours:?} {theirs:?}");
        }
        all += ours.len();
        base += size;
    }
    assert!(all > 100, "{all}");
}

/// The module as other distributions ship it gives the same as the plain one; a damaged one gives
/// nothing, and is named.
fn packed_modules_say_the_same(case: &Case, file: &str, plain: &[Vec<Shown>]) {
    let root = case.dir.path().join("packed");
    let directory = root.join("lib/modules").join(&case.release);
    std::fs::create_dir_all(&directory).unwrap();
    let symfs = ["--symfs", root.to_str().unwrap()];
    for (tool, end) in [("xz", "xz"), ("zstd", "zst"), ("gzip", "gz")] {
        let mut pack = Command::new(tool);
        pack.arg("-1c").arg(std::fs::canonicalize(&case.module).unwrap());
        let packed = pack.output().unwrap().stdout;
        let place = directory.join("scsi-debug.ko.".to_owned() + end);
        std::fs::write(&place, &packed).unwrap();
        assert_eq!(case.frames(file, &symfs), plain, "{end}");
        std::fs::write(&place, &packed[..packed.len() / 2]).unwrap();
        let args = ["script", "-i", file, "-F", "ip,sym,srcline"];
        let (text, notes) = case.kymo(&[&args[..], &symfs].concat());
        assert!(!text.contains(".c:"), "{text}");
        let path = place.to_str().unwrap();
        assert!(notes.contains(path) && notes.contains("cannot be unpacked"), "{notes}");
        std::fs::remove_file(&place).unwrap();
    }
}

/// Returns the text of each instruction, without the annotation of its target.
fn code(text: &str, separator: &str) -> BTreeMap<u64, String> {
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let line =
            if separator.is_empty() { Some(line) } else { line.split_once(separator).map(|l| l.1) };
        let Some((addr, text)) = line.and_then(|l| l.trim_start().split_once(':')) else {
            continue;
        };
        let Ok(addr) = u64::from_str_radix(addr, 16) else { continue };
        let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let text = text.split(['<', '#']).next().unwrap().replace(",pn", "").replace(",pt", "");
        rows.insert(addr, text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    rows
}

#[test]
fn code_out_of_the_image_is_objdumps() {
    if !require(&NEEDS) {
        return;
    }
    let case = Case::new();
    let functions = functions(&case.debug.vmlinux);
    let mut compared = 0;
    for name in ["vfs_read", "do_sys_openat2", "kfree", "__schedule"] {
        let (start, _) = functions.iter().find(|(_, n)| *n == name).unwrap();
        let (end, _) = functions.range(start + 1..).next().unwrap();
        // Where the kernel is not moved addresses are those of the file.
        let file = case.recording(name, case.id, 0, &[vec![*start], vec![*start]]);
        let args = ["annotate", "-i", &file, "-k", case.vmlinux(), "-n", name];
        let (text, _) = case.kymo(&args);
        let range = [format!("--start-address={start:#x}"), format!("--stop-address={end:#x}")];
        let theirs =
            tool("objdump", &["-d", "--no-show-raw-insn", &range[0], &range[1], case.vmlinux()]);
        let (ours, theirs) = (code(&text, " :  "), code(&theirs, ""));
        for (addr, text) in &ours {
            assert_eq!(Some(text), theirs.get(addr), "{name} {addr:x}");
        }
        assert!(ours.len() > 20 && ours.contains_key(start), "{text}");
        assert!(text.contains(".c") && text.contains("the code is that of"), "{text}");
        compared += ours.len();
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn code_out_of_a_modules_file_is_linked() {
    if !require(&NEEDS) {
        return;
    }
    let case = Case::new();
    let root = case.dir.path().join("root/lib/modules").join(&case.release);
    std::fs::create_dir_all(&root).unwrap();
    symlink(&case.module, root.join("scsi_debug.ko")).unwrap();
    let symfs = case.dir.path().join("root");
    let listing = tool(
        "objdump",
        &["-dr", "--no-show-raw-insn", "-j", ".text", case.module.to_str().unwrap()],
    );
    let (at, rest) = listing.split_once(" <scsi_debug_queuecommand>:").unwrap();
    let start = u64::from_str_radix(at.rsplit('\n').next().unwrap(), 16).unwrap();
    let theirs = rest.split("\n\n").next().unwrap();
    let file = case.recording("module", case.id, MOVED, &[vec![BASE + start]]);
    let fixed = ["annotate", "-i", &file, "--symfs", symfs.to_str().unwrap(), "-k", case.vmlinux()];
    let (text, _) = case.kymo(&[&fixed[..], &["scsi_debug_queuecommand"]].concat());
    let ours = code(&text, ":  ");
    let mnemonics = |rows: &BTreeMap<u64, String>, moved: u64| -> Vec<(u64, String)> {
        let word = |t: &String| t.split(' ').next().unwrap().to_owned();
        rows.iter().map(|(a, t)| (a - moved, word(t))).collect()
    };
    let plain: Vec<&str> = theirs.lines().filter(|l| !l.contains("R_X86_64_")).collect();
    let theirs_code = code(&plain.join("\n"), "");
    assert_eq!(mnemonics(&ours, BASE), mnemonics(&theirs_code, 0), "{text}");
    // Each call of a function of the kernel goes where that was.
    let (mut calls, kernel) = (0, functions(&case.debug.vmlinux));
    let known = |name: &str| kernel.values().any(|n| n == name);
    for pair in theirs.lines().zip(theirs.lines().skip(1)) {
        let Some((_, target)) = pair.1.split_once("R_X86_64_PLT32\t") else { continue };
        let Some(name) = target.strip_suffix("-0x4") else { continue };
        if !pair.0.contains("call") || !known(name) {
            continue;
        }
        let addr = u64::from_str_radix(pair.0.trim().split(':').next().unwrap(), 16).unwrap();
        let line = text.lines().find(|l| l.contains(&format!("{:x}: ", BASE + addr))).unwrap();
        assert!(line.trim_end().ends_with(&format!("<{name}>")), "{line}\n{}", pair.1);
        calls += 1;
    }
    assert!(calls > 3, "{text}");
}

/// The kernel's symbols are kept until the next boot: reports are the same with them, with
/// a file that is damaged, and without, and nothing is kept where nothing is to be.
#[test]
fn kept_symbols_of_the_kernel_change_no_report() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, directory) = (dir.path().join("perf.data"), dir.path().join("cache"));
    // One sample each, in the kernel, whatever the machine's speed.
    let record = ["record", "-q", "-e", "sched:sched_process_exec", "-e", "raw_syscalls:sys_exit"];
    let mut perf = Command::new("perf");
    let made = perf.args(record).args(["-g", "-o"]).arg(&file).args(["--", "true"]).output();
    assert!(made.unwrap().status.success());
    let kymo = |args: &[&str], cache: &Path| {
        let mut kymo = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let out = kymo.args(args).env("KYMO_CACHE", cache).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let report = ["report", "--stdio", "-g", "-i", file.to_str().unwrap()];
    let script = ["script", "-i", file.to_str().unwrap()];
    let off = Path::new("off");
    let wanted = [kymo(&report, off), kymo(&script, off)];
    assert!(wanted.iter().all(|text| text.contains("do_syscall_64")), "{}", wanted[1]);
    assert!(!directory.exists());
    // The first run keeps them, the second uses them.
    for _ in 0..2 {
        assert_eq!([kymo(&report, &directory), kymo(&script, &directory)], wanted);
        let list = kymo(&["cache", "list", "[[]kernel.kallsyms]"], &directory);
        assert_eq!(list.lines().filter(|l| l.contains("kallsyms  ")).count(), 1, "{list}");
    }
    let mut files = std::fs::read_dir(&directory).unwrap().flatten().map(|e| e.path());
    let path = files.find(|p| p.extension().is_some_and(|e| e == "kallsyms")).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut broken = whole.clone();
    *broken.last_mut().unwrap() ^= 1;
    std::fs::write(&path, broken).unwrap();
    let reported = kymo(&report, &directory);
    assert!(reported.contains("is damaged") && reported.contains("do_syscall_64"), "{reported}");
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    assert_eq!(kymo(&report, &directory), wanted[0]);
}

//! Debugging information that is damaged, lies, runs in circles, or is being written
//! while it is read: the report comes, has the functions of the symbol table, and its
//! ledger names what was wrong. The damage is made in the compiler's own assembly, or
//! in sections of the finished program; the code stays as it was recorded.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use kymo_testkit::{Need, Outcome, require, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: &[Need] = &[Need::PerfEvents, Need::Gcc];

const SOURCE: &str = "
struct item { struct item *next; long value; };
static volatile unsigned long sink;
static inline __attribute__((always_inline)) unsigned long innermost(unsigned long x)
{
	unsigned long r = 0;
	for (int i = 0; i < 50; i++)
		r += (x * 2654435761u) ^ (r >> 3);
	return r;
}
static inline __attribute__((always_inline)) unsigned long middle(unsigned long x)
{
	return innermost(x) + innermost(x + 1);
}
__attribute__((noinline)) void outer(struct item *item)
{
	sink += middle(item->value) + item->next->value;
	__asm__ volatile(\"\");
}
int main(void)
{
	struct item item = {&item, 1};
	for (unsigned long i = 0; i < 1500000; i++)
		outer(&item);
	return 0;
}
";

/// A recorded program and its assembly.
struct Case {
    directory: tempfile::TempDir,
    assembly: String,
}

impl Case {
    fn new(more: &[&str]) -> Case {
        let case = Case { directory: tempfile::tempdir().unwrap(), assembly: String::new() };
        std::fs::write(case.path("a.c"), SOURCE).unwrap();
        let flags = ["-O2", "-g", "-dA", "-fomit-frame-pointer", "-S", "a.c"];
        case.tool("gcc", &[&flags[..], more].concat());
        let assembly = std::fs::read_to_string(case.path("a.s")).unwrap();
        let case = Case { assembly, ..case };
        case.assemble(&case.assembly);
        let mut record = Command::new(KYMO);
        record.args(["record", "-q", "-e", "cpu-clock:u", "-F", "499", "-o", "perf.data"]);
        record.args(["--call-graph", "dwarf,2048", "--", "./program"]);
        let _ = run_command(case.inside(record)).success();
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn inside(&self, mut command: Command) -> Command {
        command.current_dir(self.directory.path()).env("KYMO_CACHE", "off");
        command.env_remove("DEBUGINFOD_URLS").env("HOME", self.directory.path());
        command
    }

    #[track_caller]
    fn tool(&self, name: &str, args: &[&str]) {
        let mut command = Command::new(name);
        command.args(args);
        let _ = run_command(self.inside(command)).success();
    }

    /// Makes the program of this assembly: always of the same build, says its note.
    #[track_caller]
    fn assemble(&self, text: &str) {
        std::fs::write(self.path("b.s"), text).unwrap();
        self.tool("gcc", &["-Wl,--build-id=0x0123456789abcdef", "-o", "program", "b.s"]);
    }

    /// A section's bytes.
    fn section(&self, name: &str) -> Vec<u8> {
        let dump = format!("--dump-section={name}=part");
        self.tool("objcopy", &[&dump, "program", "/dev/null"]);
        std::fs::read(self.path("part")).unwrap()
    }

    fn put_section(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path("part"), bytes).unwrap();
        self.tool("objcopy", &[&format!("--update-section={name}=part"), "program"]);
    }

    #[track_caller]
    fn kymo(&self, args: &[&str]) -> Outcome {
        let begin = Instant::now();
        let mut command = Command::new(KYMO);
        command.args(args);
        let outcome = run_command(self.inside(command));
        assert!(begin.elapsed() < Duration::from_secs(20), "{args:?}: {:?}", begin.elapsed());
        assert!(outcome.status < 101 && !outcome.stderr.contains("panicked"), "{outcome:?}");
        outcome
    }

    #[track_caller]
    fn report(&self) -> String {
        let args = ["report", "--stdio", "--no-children", "-g", "caller", "-s", "sym,srcline"];
        self.kymo(&[&args[..], &["-i", "perf.data"]].concat()).success().stdout
    }

    /// The report comes, its ledger has a line with all of `words`, and no other command panics or
    /// hangs on the same program.
    #[track_caller]
    fn named(&self, what: &str, words: &[&str]) -> String {
        let text = self.report();
        assert!(text.contains("[.] outer"), "{what}: {text}");
        let (_, ledger) = text.split_once("# Trust:").unwrap_or_else(|| panic!("{what}: {text}"));
        let found = ledger.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "{what}: {words:?} not in: {ledger}");
        for args in [
            &["script", "-F", "ip,sym,srcline", "-i", "perf.data"][..],
            &["annotate", "outer", "-i", "perf.data"],
            &["probe", "-q", "-x", "./program", "-D", "outer item->next->next->value"],
            &["probe", "-q", "-x", "./program", "-D", "innermost x"],
            &["probe", "-q", "-x", "./program", "-L", "outer"],
            &["probe", "-q", "-x", "./program", "-V", "outer"],
        ] {
            let _ = self.kymo(args);
        }
        text
    }
}

/// The assembly with `change` applied to the lines whose comment has `mark`; `change`
/// is given the offset of the entry that they are in.
fn edited(text: &str, mark: &str, change: impl Fn(&str, &str) -> String) -> String {
    let mut entry = String::new();
    let mut changed = 0;
    let lines = text.lines().map(|line| {
        if let Some((_, rest)) = line.split_once("# (DIE (") {
            entry = rest.split(')').next().unwrap().to_owned();
        }
        let comment = line.split_once("# ").map_or("", |l| l.1);
        if !comment.contains(mark) || comment.starts_with("(DW") {
            return line.to_owned();
        }
        changed += 1;
        change(line, &entry)
    });
    let lines: Vec<String> = lines.collect();
    assert!(changed > 0, "nothing is marked {mark}");
    lines.join("\n") + "\n"
}

/// A line of assembly with another value.
fn value(line: &str, new: &str) -> String {
    let (directive, _) = line.trim_start().split_once('\t').unwrap();
    format!("\t{directive}\t{new}")
}

#[test]
fn entries_that_lead_in_circles() {
    if !require(NEEDS) {
        return;
    }
    let case = Case::new(&[]);
    let whole = case.report();
    assert!(whole.contains("innermost (inlined)") && !whole.contains("# Trust:"), "{whole}");
    // Each copy is a copy of itself.
    let circle = |line: &str, entry: &str| value(line, entry);
    case.assemble(&edited(&case.assembly, "DW_AT_abstract_origin", circle));
    let text = case.named("origins", &["debuginfo: ", "program: ", "more steps"]);
    assert!(!text.contains("innermost"), "{text}");
    // Types are of themselves: nothing of that is shown, and nothing of it hangs.
    case.assemble(&edited(&case.assembly, "DW_AT_type", circle));
    assert!(case.report().contains("innermost (inlined)"));
    let asked = ["probe", "-q", "-x", "./program", "-D", "outer item->next->value"];
    let refused = case.kymo(&asked).failure();
    assert!(refused.stderr.contains("item"), "{}", refused.stderr);
    // The next entry is the one before.
    case.assemble(&edited(&case.assembly, "DW_AT_sibling", |line, _| value(line, "0xc")));
    let _ = case.kymo(&["probe", "-q", "-x", "./program", "-D", "outer"]);
    assert!(case.report().contains("[.] outer"));
}

#[test]
fn counts_and_sizes_that_are_absurd() {
    if !require(NEEDS) {
        return;
    }
    let case = Case::new(&[]);
    let damaged = ["debuginfo: ", "program: ", "damaged debugging information"];
    for (what, mark, new) in [
        ("version", "DWARF version number", "0x4d"),
        ("abbreviations", "Offset Into Abbrev. Section", "0x7fffffff"),
        ("size of an address", "Pointer Size (in bytes)", "0x33"),
        ("line table", "DW_AT_stmt_list", "0x7fffffff"),
        ("name", "DW_AT_name", "0x7fffffff"),
    ] {
        // Only those in four bytes are places of names.
        let change = |line: &str, _: &str| {
            if mark == "DW_AT_name" && !line.contains(".long") {
                line.to_owned()
            } else {
                value(line, new)
            }
        };
        case.assemble(&edited(&case.assembly, mark, change));
        case.named(what, &damaged);
    }
    // The length of the unit reaches far behind the section; then it is cut.
    case.assemble(&case.assembly);
    let info = case.section(".debug_info");
    case.put_section(".debug_info", &[&[0xf0, 0xff, 0xff, 0x7f], &info[4..]].concat());
    case.named("a unit's length", &damaged);
    case.put_section(".debug_info", &info[..info.len() / 2]);
    case.named("half of the entries", &damaged);
    case.put_section(".debug_info", &info);
    // A line table with as many files as there are numbers, and one of no step.
    let lines = case.section(".debug_line");
    let program = usize::from(u16::from_le_bytes([lines[8], lines[9]]));
    assert!(program < lines.len() && lines[4] == 5, "a line table of version 5");
    let mut many = lines.clone();
    // Behind the lengths of the standard instructions: formats of directories, then how many.
    let formats = 18 + usize::from(lines[17]) - 1;
    let directories = formats + 1 + 2 * usize::from(lines[formats]);
    many[directories..directories + 4].fill(0xff);
    case.put_section(".debug_line", &many);
    case.named("directories without number", &damaged);
    let mut steps = lines.clone();
    // Steps of at most no lines, in a range of none.
    steps[16] = 0;
    case.put_section(".debug_line", &steps);
    let text = case.report();
    assert!(text.contains("[.] outer"), "{text}");
    case.put_section(".debug_line", &lines);
    assert!(!case.report().contains("# Trust:"));
}

#[test]
fn sections_that_are_missing_or_packed_wrongly() {
    if !require(NEEDS) {
        return;
    }
    let case = Case::new(&[]);
    std::fs::copy(case.path("program"), case.path("whole")).unwrap();
    let damaged = ["debuginfo: ", "program: ", "damaged debugging information"];
    for (section, words) in [
        (".debug_abbrev", &damaged[..]),
        (".debug_line", &damaged),
        (".debug_str", &damaged),
        (".debug_line_str", &damaged),
        (".eh_frame", &["stopped: ", "program", "no call frame information there"]),
    ] {
        case.tool("objcopy", &[&format!("--remove-section={section}"), "whole", "program"]);
        let text = case.named(section, words);
        // What another section says is there.
        assert!(section != ".debug_line_str" || text.contains("innermost (inlined)"), "{text}");
        assert!(section != ".debug_str" || text.contains("[unknown] (inlined)"), "{text}");
    }
    // A packed section that claims to be terabytes, and one that is no packed data.
    case.tool("objcopy", &["--compress-debug-sections=zlib", "whole", "program"]);
    let bytes = std::fs::read(case.path("program")).unwrap();
    let (at, size) = place_of(&bytes, ".debug_info");
    // Kind, four bytes unused, size, alignment; then the packed bytes.
    let mut claims = bytes.clone();
    claims[at + 8..at + 16].copy_from_slice(&(1u64 << 44).to_le_bytes());
    std::fs::write(case.path("program"), &claims).unwrap();
    case.named("terabytes", &["debuginfo: ", ".debug_info claims to unpack to"]);
    let mut garbage = bytes;
    garbage[at + 24..at + size].fill(0x5a);
    std::fs::write(case.path("program"), &garbage).unwrap();
    case.named("garbage", &["debuginfo: ", "program: "]);
}

/// Tables for unwinding that cannot be read cost the stacks that need them, and
/// nothing else: `addr2line` does not need them either.
#[test]
fn tables_for_unwinding_that_cannot_be_read() {
    if !require(NEEDS) || !require(&[Need::Tool("addr2line")]) {
        return;
    }
    let case = Case::new(&[]);
    let whole = case.report();
    let bytes = std::fs::read(case.path("program")).unwrap();
    let header = header_of(&bytes, ".eh_frame");
    let mut damaged = bytes.clone();
    // Its offset: behind the end of the file.
    damaged[header + 24..header + 32].copy_from_slice(&(1u64 << 40).to_le_bytes());
    std::fs::write(case.path("program"), &damaged).unwrap();
    let text =
        case.named(".eh_frame", &["stopped: ", "program", "the call frame information is damaged"]);
    assert!(text.contains("innermost (inlined)") && text.contains("a.c:"), "{text}");
    // The lines are those of before, and those that addr2line finds.
    let ask = ["script", "-F", "ip,sym,srcline", "-G", "-i", "perf.data"];
    let ours = case.kymo(&ask).success().stdout;
    std::fs::write(case.path("program"), &bytes).unwrap();
    assert_eq!(ours, case.kymo(&ask).success().stdout);
    assert!(!whole.contains("damaged"), "{whole}");
    std::fs::write(case.path("program"), &damaged).unwrap();
    let found = case.kymo(&["probe", "-q", "-x", "./program", "-D", "outer:2"]).success().stdout;
    let at = found.lines().next().unwrap().split(":0x").nth(1).unwrap().split(' ').next().unwrap();
    let mut judge = Command::new("addr2line");
    judge.args(["-i", "-e", "program", at]);
    let judge = run_command(case.inside(judge)).success().stdout;
    let line = SOURCE.lines().position(|l| l.contains("sink += middle")).unwrap() + 1;
    assert!(judge.trim_end().ends_with(&format!("a.c:{line}")), "{judge} {found}");
}

/// Offset and size of a section in a file.
fn place_of(elf: &[u8], name: &str) -> (usize, usize) {
    let header = header_of(elf, name);
    (word(elf, header + 24), word(elf, header + 32))
}

/// Offset of a section's header.
fn header_of(elf: &[u8], name: &str) -> usize {
    let half = |at: usize| usize::from(u16::from_le_bytes([elf[at], elf[at + 1]]));
    let header = |n: usize| word(elf, 40) + 64 * n;
    let texts = word(elf, header(half(62)) + 24);
    let is_named = |header: &usize| {
        let at = texts + word(elf, *header) % (1 << 32);
        elf[at..].starts_with(&[name.as_bytes(), b"\0"].concat())
    };
    (0..half(60)).map(header).find(is_named).unwrap()
}

fn word(elf: &[u8], at: usize) -> usize {
    u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize
}

/// A debug file that is written while it is read: it grows piece by piece, holes first, and is cut
/// again. Each report comes, and is right or reports the defect.
#[test]
fn a_debug_file_that_is_being_written() {
    if !require(NEEDS) {
        return;
    }
    let case = Case::new(&[]);
    case.tool("objcopy", &["--only-keep-debug", "program", "program.debug"]);
    case.tool("strip", &["program"]);
    let directory = case.path(".debug/.build-id/01/23456789abcdef");
    std::fs::create_dir_all(&directory).unwrap();
    let (debug, bytes) =
        (directory.join("debug"), std::fs::read(case.path("program.debug")).unwrap());
    for parts in [1, 3, 6, 9, 10] {
        std::fs::write(&debug, &bytes[..bytes.len() * parts / 10]).unwrap();
        let text = case.report();
        let whole = text.contains("innermost (inlined)") && text.contains("a.c:");
        assert_eq!(whole, parts == 10, "{parts}: {text}");
        assert!(whole || text.contains("refused: ") && text.contains("debug for "), "{text}");
        // As large as it will be, and zeroes where nothing was written yet.
        let file = std::fs::OpenOptions::new().write(true).open(&debug).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        let text = case.report();
        let whole = text.contains("innermost (inlined)") && text.contains("a.c:");
        assert_eq!(whole, parts == 10, "{parts}: {text}");
        assert!(whole || text.contains("# Trust:"), "{parts}: {text}");
    }
    // Written and cut all the time.
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut attempt = 0usize;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                attempt += 1;
                std::fs::write(&debug, &bytes[..bytes.len() * (attempt % 11) / 10]).unwrap();
            }
        });
        for _ in 0..12 {
            let _ = case.report();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    std::fs::write(&debug, &bytes).unwrap();
    assert!(case.report().contains("innermost (inlined)"));
}

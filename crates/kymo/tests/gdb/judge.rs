//! One stack as gdb shows it and as kymo does, in the same words: of each frame
//! whether it is inlined, its function, how far into it, its source line.

use std::path::Path;
use std::process::Command;

use kymo_testkit::{Outcome, run, run_command};

pub(crate) const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// A frame, innermost first in a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) inlined: bool,
    /// As the linker calls it.
    pub(crate) function: String,
    /// Bytes into the function of the symbol table: of a caller, of its call.
    pub(crate) offset: u64,
    /// `file:line`, empty if unknown.
    pub(crate) line: String,
    /// Address in the program, if gdb shows it.
    pub(crate) address: Option<u64>,
}

pub(crate) type Stack = Vec<Frame>;

/// gdb's own words for a stack: it is asked through its Python, which returns the kind of a frame
/// and the linker name of its function.
const ASK: &str = "
import gdb
def stack():
    print('STACK|')
    frame, called = gdb.newest_frame(), 0
    while frame is not None:
        # A call that left no frame is made up from its call site: nothing of it is
        # on the stack, so that no unwinder can see it.
        if frame.type() != gdb.TAILCALL_FRAME:
            function, place = frame.function(), frame.find_sal()
            inlined = frame.type() == gdb.INLINE_FRAME
            # A signal handler returns to the first byte of the trampoline, and behind
            # that comes the place that was interrupted: no calls.
            trampoline = frame.type() == gdb.SIGTRAMP_FRAME
            called = 0 if trampoline else called
            name = function.linkage_name if function is not None else frame.name()
            where = gdb.execute('info symbol %#x' % (frame.pc() - called), False, True)
            symbol = where.split(' in section')[0].strip()
            file = place.symtab.filename if place.symtab else ''
            own = '' if gdb.solib_name(frame.pc()) else '%x' % (frame.pc() - called)
            kind = '1' if inlined else '0'
            print('|'.join(['FRAME', kind, name or '', symbol, file, str(place.line), own]))
            if not inlined:
                called = 0 if trampoline else 1
        frame = frame.older()
";

/// Condition at which gdb stops.
pub(crate) enum Stop<'a> {
    /// At each of a number of calls.
    Syscall(&'a str, usize),
    /// Each time that one of these instructions is reached.
    Places(&'a [u64]),
}

/// Returns the stack at each stop, as gdb shows it.
#[track_caller]
pub(crate) fn in_gdb(program: &Path, args: &[&str], stop: &Stop<'_>) -> Vec<Stack> {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("ask.py");
    let mut text = ASK.to_owned();
    match stop {
        Stop::Syscall(name, calls) => {
            text.push_str(&format!("gdb.execute('catch syscall {name}')\ngdb.execute('run')\n"));
            text.push_str(&format!("for call in range({calls}):\n    stack()\n"));
            text.push_str("    gdb.execute('continue')\n    gdb.execute('continue')\n");
        }
        Stop::Places(places) => {
            for place in *places {
                text.push_str(&format!("gdb.execute('break *{place:#x}')\n"));
            }
            // An inlined function that begins at a place where gdb stops is not shown
            // until it is stepped into, unless all frames are made anew.
            text.push_str("gdb.execute('run')\nwhile gdb.selected_inferior().pid:\n");
            text.push_str("    gdb.execute('maint flush register-cache', False, True)\n");
            text.push_str("    stack()\n    gdb.execute('continue')\n");
        }
    }
    std::fs::write(&script, text).unwrap();
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-batch",
        "-nx",
        "-iex",
        "set debuginfod enabled off",
        "-iex",
        "set print asm-demangle off",
        "-iex",
        "set print demangle off",
        "-iex",
        "set width 0",
    ]);
    gdb.args(["-ex", "set backtrace past-main on", "-ex", "handle SIGILL nostop noprint"]);
    gdb.arg("-x").arg(&script).arg("--args").arg(program).args(args);
    gdb.env_remove("DEBUGINFOD_URLS").env_remove("LD_LIBRARY_PATH").env("LC_ALL", "C");
    let shown = run_command(gdb);
    assert!(!shown.stderr.contains("Python Exception"), "{}", shown.stderr);
    let stacks = shown.stdout.split("STACK|\n").skip(1);
    stacks.map(|text| text.lines().filter_map(gdb_frame).collect()).collect()
}

fn gdb_frame(line: &str) -> Option<Frame> {
    let rest = line.strip_prefix("FRAME|")?;
    let [inlined, name, symbol, file, line, address] = rest.split('|').collect::<Vec<_>>()[..]
    else {
        panic!("{rest}");
    };
    let symbol = if symbol.starts_with("No symbol") { "[unknown]" } else { symbol };
    let (symbol, offset) = symbol.split_once(" + ").unwrap_or((symbol, "0"));
    let inlined = inlined == "1";
    Some(Frame {
        inlined,
        function: if inlined { one_copy(name) } else { one_name(symbol) },
        offset: offset.parse().unwrap_or_else(|_| panic!("{rest}")),
        line: place(file, line),
        address: u64::from_str_radix(address, 16).ok(),
    })
}

/// A file's path without parts that lead nowhere, and the line.
fn place(file: &str, line: &str) -> String {
    if file.is_empty() || file == "??" || line == "0" || line.is_empty() {
        return String::new();
    }
    let parts: Vec<&str> = file.split('/').filter(|part| *part != ".").collect();
    format!("{}:{line}", parts.join("/"))
}

/// The complete constructor or destructor is the base's where nothing is virtual.
fn one_copy(name: &str) -> String {
    name.replace("D1Ev", "D2Ev").replace("C1E", "C2E")
}

/// One name of those that the symbol table has for a function: without versions, and
/// without marks of the C library's and the vdso's inner names.
fn one_name(name: &str) -> String {
    let name = name.split('@').next().unwrap_or_default();
    let name = ["__GI_", "__vdso_"].iter().find_map(|mark| name.strip_prefix(mark)).unwrap_or(name);
    one_copy(name.trim_start_matches('_'))
}

/// Records a program with copies of the stack that are large enough for those here.
#[track_caller]
pub(crate) fn record(program: &Path, args: &[&str], event: &[&str], data: &Path) {
    let mut record = Command::new(KYMO);
    record
        .args(["record", "-q", "-m", "2048", "--call-graph", "dwarf,16384", "-o"])
        .arg(data)
        .args(event);
    record.arg("--").arg(program).args(args).env_remove("LD_LIBRARY_PATH");
    let _ = run_command(record).success();
}

/// Returns the stacks of all samples of a recording, with a separate home directory if one is
/// given.
#[track_caller]
pub(crate) fn in_kymo(data: &Path, home: Option<&Path>) -> (Vec<Stack>, Outcome) {
    let args =
        ["script", "--no-demangle", "--full-source-path", "-F", "ip,sym,symoff,srcline", "-i"];
    let data = data.to_str().unwrap();
    let mut kymo = Command::new(KYMO);
    kymo.args(args).arg(data).env_remove("DEBUGINFOD_URLS");
    if let Some(home) = home {
        kymo.env("HOME", home);
    }
    let shown = run_command(kymo).success();
    assert!(!shown.stderr.contains("lost"), "{}", shown.stderr);
    let stacks: Vec<Stack> = shown.stdout.split("\n\n").map(kymo_stack).collect();
    (stacks.into_iter().filter(|s| !s.is_empty()).collect(), shown)
}

fn kymo_stack(text: &str) -> Stack {
    let mut lines = text.lines();
    let mut stack = Stack::new();
    while let Some(line) = lines.next() {
        let Some(frame) = line.strip_prefix('\t') else { continue };
        let (_, name) = frame.trim_start().split_once(' ').unwrap();
        let (name, offset) = name.rsplit_once('+').unwrap_or((name, "0"));
        let offset = offset.split(' ').next().unwrap_or_default().trim_start_matches("0x");
        let below = lines.next().unwrap().trim();
        let inlined = below.ends_with(" (inlined)");
        let (file, line) =
            below.trim_end_matches(" (inlined)").rsplit_once(':').unwrap_or((below, "0"));
        stack.push(Frame {
            inlined,
            function: if inlined { one_copy(name) } else { one_name(name) },
            offset: u64::from_str_radix(offset, 16).unwrap_or_else(|_| panic!("{frame}")),
            line: place(file, line),
            address: None,
        });
    }
    stack
}

/// Asserts that the stacks are equal, frame by frame; returns the number of frames for which gdb
/// has another line.
///
/// Line tables may have several rows for one address. gdb takes the last of those at which a
/// statement begins, or the row before one with "no line"; kymo takes the last one, as addr2line
/// and perf do. So where gdb has another line, addr2line must have kymo's.
#[track_caller]
pub(crate) fn same(program: &Path, ours: &[Stack], theirs: &[Stack]) -> usize {
    let mut other_lines = 0;
    for (number, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        for (frame, (one, other)) in ours.iter().zip(theirs).enumerate() {
            let what = format!("frame {frame} of stack {number}: {one:?}, gdb has {other:?}");
            assert_eq!((one.inlined, one.offset), (other.inlined, other.offset), "{what}");
            assert!(same_function(one, other), "{what}");
            if !same_line(&one.line, &other.line) {
                let address = other.address.unwrap_or_else(|| panic!("{what}"));
                // Frames of one address follow one another.
                let depth = theirs[..frame].iter().rev().take_while(|f| f.inlined).count();
                let judged = addr2line(program, address, depth);
                assert_eq!(one.line, judged, "{what}: addr2line");
                other_lines += 1;
            }
        }
        assert_eq!(ours.len(), theirs.len(), "stack {number}: {ours:#?}, gdb has {theirs:#?}");
    }
    assert_eq!(ours.len(), theirs.len());
    other_lines
}

/// Functions of types that have no name for the linker (lambdas, and templates of
/// them) are called by their own names in DWARF. gdb writes the names of what they
/// are in before that; kymo does not, and neither do perf and addr2line.
fn same_function(ours: &Frame, theirs: &Frame) -> bool {
    let tail = || theirs.function.strip_suffix(&*ours.function).is_some_and(|s| s.ends_with("::"));
    ours.function == theirs.function || (ours.inlined && tail())
}

/// gdb has a file's name as the line table has it, which counts from the directory
/// that the program was compiled in.
fn same_line(ours: &str, theirs: &str) -> bool {
    ours.strip_suffix(theirs)
        .is_some_and(|directory| directory.is_empty() || directory.ends_with('/'))
        && (theirs.is_empty() == ours.is_empty())
}

/// The line that binutils has for a frame of an address of a program.
fn addr2line(program: &Path, address: u64, depth: usize) -> String {
    let args = ["-i", "-e", program.to_str().unwrap(), &format!("{address:#x}")];
    let text = run("addr2line", args).success().stdout;
    let line = text.lines().nth(depth).unwrap_or_default();
    let (file, line) = line.rsplit_once(':').unwrap_or_default();
    place(file, line.split(" (disc").next().unwrap().trim_end_matches('?'))
}

/// Compiles a program.
#[track_caller]
pub(crate) fn compile(directory: &Path, compiler: &str, source: &str, text: &str, flags: &[&str]) {
    std::fs::write(directory.join(source), text).unwrap();
    let mut command = Command::new(compiler);
    // By its whole path, so that everybody states the same one.
    command.args(flags).args(["-o", "program"]).arg(directory.join(source)).current_dir(directory);
    let _ = run_command(command).success();
}

/// A tool of binutils in a directory.
#[track_caller]
pub(crate) fn tool(directory: &Path, name: &str, args: &[&str]) -> String {
    let mut command = Command::new(name);
    command.args(args).current_dir(directory);
    run_command(command).success().stdout
}

/// The addresses of a program's instructions in some of its functions, but for system
/// calls: the kernel executes the instruction behind one in the same step, and passes
/// over a uprobe there; and for long nops, on which kymo sets no probes.
#[track_caller]
pub(crate) fn instructions(program: &Path, functions: &[&str]) -> Vec<u64> {
    let mut found = Vec::new();
    for function in functions {
        let only = format!("--disassemble={function}");
        let args = ["--no-show-raw-insn", only.as_str(), program.to_str().unwrap()];
        let text = run("objdump", args).success().stdout;
        let others = ["syscall", "nopw", "nopl", "xchg   %ax,%ax"];
        let lines = text.lines().filter(|l| !others.iter().any(|o| l.contains(o)));
        let lines = lines.filter_map(|l| l.strip_prefix("  "));
        let before = found.len();
        found.extend(lines.filter_map(|l| u64::from_str_radix(l.split_once(':')?.0, 16).ok()));
        assert!(found.len() > before, "{function}: {text}");
    }
    found
}

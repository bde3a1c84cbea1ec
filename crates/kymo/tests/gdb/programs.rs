//! Programs at their system calls: C, C++ and Rust with debugging information, as
//! they are, stripped with it in a file of its own, and Debian's own with theirs.

use std::path::{Path, PathBuf};

use kymo_testkit::{Need, require};

use crate::judge::{Stack, Stop, compile, in_gdb, in_kymo, record, same, tool};

pub(crate) const NEEDS: &[Need] =
    &[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc, Need::Tool("gdb")];

/// A program that was recorded at its getppid calls, and what gdb showed of it.
struct Case {
    directory: tempfile::TempDir,
    program: PathBuf,
    theirs: Vec<Stack>,
}

impl Case {
    #[track_caller]
    fn new(compiler: &str, source: &str, text: &str, flags: &[&str], calls: usize) -> Case {
        let directory = tempfile::tempdir().unwrap();
        compile(directory.path(), compiler, source, text, flags);
        let program = directory.path().join("program");
        let event = ["-e", "syscalls:sys_enter_getppid"];
        record(&program, &[], &event, &directory.path().join("perf.data"));
        let theirs = in_gdb(&program, &[], &Stop::Syscall("getppid", calls));
        assert_eq!(theirs.len(), calls);
        Case { directory, program, theirs }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The recording's stacks are gdb's; gives how many frames are inlined.
    #[track_caller]
    fn same(&self) -> usize {
        let (ours, shown) = in_kymo(&self.path("perf.data"), None);
        let other_lines = same(&self.program, &ours, &self.theirs);
        // Only behind the instruction of the system call, where rows meet.
        assert!(other_lines <= ours.len(), "{other_lines}");
        let complete = format!("{0} (100.0%) of {0} user stacks are complete", ours.len());
        assert!(shown.stderr.contains(&complete), "{}", shown.stderr);
        ours.iter().flatten().filter(|f| f.inlined).count()
    }
}

const C: &str = include_str!("inlined.c");
const CPP: &str = include_str!("inlined.cpp");
const RUST: &str = include_str!("inlined.rs");

#[test]
fn c_without_frame_pointers() {
    if !require(NEEDS) {
        return;
    }
    for (level, version) in [("-O2", "-gdwarf-5"), ("-O1", "-gdwarf-4"), ("-O3", "-gdwarf-5")] {
        let flags = [level, version, "-fomit-frame-pointer", "-no-pie"];
        let case = Case::new("gcc", "inlined.c", C, &flags, 6);
        let inlined = case.same();
        assert!(inlined >= 12, "{inlined}");
    }
}

#[test]
fn cpp_with_exceptions_and_templates() {
    if !require(NEEDS) {
        return;
    }
    for flags in [
        &["-O2", "-g", "-no-pie"][..],
        &["-O1", "-gdwarf-4", "-no-pie"],
        &["-O2", "-gdwarf-4", "-fdebug-types-section", "-no-pie"],
    ] {
        let case = Case::new("g++", "inlined.cpp", CPP, flags, 8);
        let inlined = case.same();
        assert!(inlined >= 14, "{inlined}");
    }
}

#[test]
fn rust_with_full_debugging_information() {
    if !require(&[NEEDS, &[Need::Tool("rustc")]].concat()) {
        return;
    }
    let fixed = ["-C", "relocation-model=static"];
    let flags = [&["-O", "-C", "debuginfo=2", "--edition", "2024"][..], &fixed].concat();
    let case = Case::new("rustc", "inlined.rs", RUST, &flags, 7);
    let inlined = case.same();
    assert!(inlined >= 30, "{inlined}");
}

/// Frames and lines are the same when the program has no symbols and its debugging information lies
/// elsewhere, found by a link with a checksum or by the build-id.
#[test]
fn stripped_with_a_separate_debug_file() {
    if !require(NEEDS) {
        return;
    }
    let case = Case::new("g++", "inlined.cpp", CPP, &["-O2", "-g", "-no-pie"], 8);
    let (directory, whole) = (case.directory.path(), case.path("whole"));
    std::fs::rename(&case.program, &whole).unwrap();
    tool(directory, "objcopy", &["--only-keep-debug", "whole", "own.debug"]);
    tool(directory, "objcopy", &["--strip-all", "whole", "program"]);
    let (bare, shown) = in_kymo(&case.path("perf.data"), None);
    let own = |s: &Stack| s.iter().any(|f| f.function.contains("caught"));
    assert!(!bare.iter().any(own), "{}", shown.stdout);
    let same_as_gdb = |home| {
        let (ours, shown) = in_kymo(&case.path("perf.data"), home);
        // What gdb saw is the program as it was.
        assert!(same(&whole, &ours, &case.theirs) <= ours.len());
        assert!(!shown.stderr.contains("refused"), "{}", shown.stderr);
    };
    tool(directory, "objcopy", &["--add-gnu-debuglink=own.debug", "program"]);
    same_as_gdb(None);
    std::fs::create_dir(directory.join(".debug")).unwrap();
    std::fs::rename(directory.join("own.debug"), directory.join(".debug/own.debug")).unwrap();
    same_as_gdb(None);
    // By the build-id alone, where perf keeps such files.
    let notes = tool(directory, "readelf", &["-n", "whole"]);
    let id = notes.lines().find_map(|l| l.trim().strip_prefix("Build ID: ")).unwrap();
    let kept = directory.join(".debug/.build-id").join(&id[..2]).join(&id[2..]);
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::rename(directory.join(".debug/own.debug"), kept.join("debug")).unwrap();
    tool(directory, "objcopy", &["--remove-section=.gnu_debuglink", "program"]);
    same_as_gdb(Some(directory));
}

/// Debian's Lua with its debug package, which shares a part with others (dwz), below
/// the C library with its own: a sort whose comparison calls Lua again, substitution,
/// a coroutine with its own stack of Lua, an index function.
#[test]
fn debians_programs_with_their_debug_packages() {
    if !require(&[NEEDS, &[Need::Tool("lua5.4")]].concat()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (source, data) = (directory.path().join("calls.lua"), directory.path().join("perf.data"));
    std::fs::write(&source, include_str!("calls.lua")).unwrap();
    let (program, args) = (Path::new("/usr/bin/lua5.4"), [source.to_str().unwrap()]);
    record(program, &args, &["-e", "syscalls:sys_enter_unlink"], &data);
    let (ours, shown) = in_kymo(&data, None);
    let theirs = in_gdb(program, &args, &Stop::Syscall("unlink", ours.len()));
    assert!(ours.len() >= 10, "{}", shown.stdout);
    // Also no line of the C library, which gdb has the debug package of, too, differs.
    assert_eq!(same(program, &ours, &theirs), 0);
    let inlined = ours.iter().flatten().filter(|f| f.inlined).count();
    let lines = ours.iter().flatten().filter(|f| !f.line.is_empty()).count();
    assert!(inlined > 60 && lines > 300, "{inlined} {lines}: are the debug packages installed?");
    assert!(shown.stderr.contains("(100.0%) of"), "{}", shown.stderr);
}

/// Its debug package says of each of libc's functions what is inlined there.
#[test]
fn functions_of_the_c_library_call_back() {
    if !require(NEEDS) {
        return;
    }
    let case =
        Case::new("gcc", "library.c", include_str!("library.c"), &["-O2", "-g", "-no-pie"], 5);
    case.same();
    let libc = case.theirs.iter().flatten().filter(|f| f.address.is_none() && !f.line.is_empty());
    assert!(libc.count() > 15, "{:#?}: is libc6-dbg installed?", case.theirs);
}

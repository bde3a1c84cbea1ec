//! `kymo probe` where debugging information is spread over files or packed: split
//! units (`.dwo`, `.dwp`), what dwz shares, compressed sections. The code is the
//! same each time, so the answers have to be those for the plain file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_testkit::{Need, require, run};

const C: &str = include_str!("probe_programs/plain.c");
const RUST: &str = include_str!("probe_programs/rusty.rs");

const ABOUT_C: &[&[&str]] = &[
    &["-D", "work o n msg:string o->in.x"],
    &["-D", "work o->ptr->bits o->arr[2] counter global"],
    &["-D", "work $vars"],
    &["-D", "other a b c"],
    &["-D", "inl v o"],
    &["-D", "inl"],
    &["-D", "plain.c:20"],
    &["-D", "work:3 sum"],
    &["-D", "work%return $retval"],
    &["-D", "[wo]*"],
    &["-V", "work"],
    &["-V", "other", "--externs"],
    &["-L", "work"],
    &["-L", "plain.c:9-14"],
];

const ABOUT_RUST: &[&[&str]] = &[
    &["-D", "main"],
    &["-D", "*::{closure#0}"],
    &["-D", "*::main $vars"],
    &["-V", "rusty::main"],
    &["-L", "rusty::main"],
];

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        let scratch = Scratch(tempfile::tempdir().unwrap());
        std::fs::write(scratch.path("plain.c"), C).unwrap();
        std::fs::write(scratch.path("rusty.rs"), RUST).unwrap();
        scratch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a tool in the directory.
    fn tool(&self, program: &str, args: &[&str]) {
        let done = Command::new(program).args(args).current_dir(self.0.path()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{program} {args:?}: {said}");
    }

    fn copy(&self, from: &str, to: &str) -> PathBuf {
        std::fs::create_dir_all(self.path(to).parent().unwrap()).unwrap();
        std::fs::copy(self.path(from), self.path(to)).unwrap();
        self.path(to)
    }
}

fn kymo(program: &Path, words: &[&str]) -> (String, String) {
    let name = program.to_str().unwrap();
    let outcome = run(env!("CARGO_BIN_EXE_kymo"), [&["probe", "-q", "-x", name], words].concat());
    // Groups are named after the program up to a dash.
    let stem = program.file_name().unwrap().to_str().unwrap().split('-').next().unwrap();
    let text = outcome.stdout.replace(name, "PROG").replace(&format!("probe_{stem}/"), "probe/");
    if words.first() != Some(&"-D") {
        return (text, outcome.stderr);
    }
    // Places are in the order of the file, which dwz changes.
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    (lines.join("\n"), outcome.stderr)
}

/// The answers about `other` are those about `plain`.
fn same(plain: &Path, other: &Path, about: &[&[&str]]) {
    let mut answered = 0;
    for words in about {
        let (expected, why) = kymo(plain, words);
        let (found, error) = kymo(other, words);
        assert_eq!(found, expected, "{words:?} {}: {error}", other.display());
        assert_eq!(error, why, "{words:?} {}", other.display());
        answered += usize::from(!expected.is_empty());
    }
    assert!(answered + 2 >= about.len(), "{answered} answers");
}

fn sections(program: &Path) -> String {
    let done = Command::new("readelf").args(["-SW"]).arg(program).output().unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn units_split_off_by_gcc() {
    if !require(&[Need::Gcc]) {
        return;
    }
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let s = Scratch::new();
        s.tool("gcc", &["-g", version, "-O2", "-o", "whole", "plain.c"]);
        s.tool("gcc", &["-g", version, "-gsplit-dwarf", "-O2", "-o", "split", "plain.c"]);
        let split = s.path("split");
        assert!(s.path("split-plain.dwo").exists(), "{version}");
        same(&s.path("whole"), &split, ABOUT_C);
        // The files may have come along with a program that was moved.
        let moved = s.copy("split", "moved/split");
        std::fs::rename(s.path("split-plain.dwo"), s.path("moved/split-plain.dwo")).unwrap();
        same(&s.path("whole"), &moved, ABOUT_C);
        // Without them it is said, and symbols are still there.
        let (found, error) = kymo(&split, &["-D", "work o"]);
        assert!(found.is_empty() && error.contains("split-plain.dwo"), "{found} {error}");
        let (found, _) = kymo(&split, &["-D", "work"]);
        assert!(found.starts_with("p:probe/work PROG:0x"), "{found}");
        // One of another build is not taken.
        s.tool("gcc", &["-g", version, "-gsplit-dwarf", "-O1", "-o", "split-other", "plain.c"]);
        std::fs::rename(s.path("split-other-plain.dwo"), s.path("split-plain.dwo")).unwrap();
        let (found, error) = kymo(&split, &["-D", "work o"]);
        assert!(found.is_empty() && error.contains("of another build"), "{found} {error}");
    }
}

#[test]
fn a_package_of_split_units() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let s = Scratch::new();
    s.tool("gcc", &["-g", "-gdwarf-4", "-O2", "-o", "whole", "plain.c"]);
    s.tool("gcc", &["-g", "-gdwarf-4", "-gsplit-dwarf", "-O2", "-o", "split", "plain.c"]);
    s.tool("dwp", &["-e", "split", "-o", "split.dwp"]);
    std::fs::remove_file(s.path("split-plain.dwo")).unwrap();
    same(&s.path("whole"), &s.path("split"), ABOUT_C);
}

#[test]
fn units_split_off_by_rustc() {
    if !require(&[Need::Gcc]) {
        return;
    }
    for version in ["dwarf-version=4", "dwarf-version=5"] {
        let s = Scratch::new();
        for form in ["off", "unpacked", "packed"] {
            let split = format!("split-debuginfo={form}");
            let flags = ["-g", "-C", version, "-C", &split, "-C", "opt-level=1"];
            let rest = ["-C", "codegen-units=4", "-o", form, "rusty.rs"];
            s.tool("rustc", &[&flags[..], &rest].concat());
        }
        assert!(s.path("packed.dwp").exists());
        same(&s.path("off"), &s.path("unpacked"), ABOUT_RUST);
        same(&s.path("off"), &s.path("packed"), ABOUT_RUST);
    }
}

#[test]
fn what_dwz_moved_elsewhere() {
    if !require(&[Need::Gcc, Need::Tool("dwz")]) {
        return;
    }
    for (version, dwz, names) in [
        ("-gdwarf-4", "--quiet", ".gnu_debugaltlink"),
        ("-gdwarf-5", "--quiet", ".gnu_debugaltlink"),
        ("-gdwarf-5", "--dwarf-5", ".debug_sup"),
    ] {
        let s = Scratch::new();
        s.tool("gcc", &["-g", version, "-O2", "-o", "whole", "plain.c"]);
        let programs = ["one", "two", "three"];
        for to in programs {
            s.copy("whole", to);
        }
        s.tool("dwz", &[&[dwz, "-m", "shared"], &programs[..]].concat());
        assert!(sections(&s.path("one")).contains(names));
        same(&s.path("whole"), &s.path("one"), ABOUT_C);
        std::fs::remove_file(s.path("shared")).unwrap();
        let (found, error) = kymo(&s.path("one"), &["-D", "work o"]);
        assert!(found.is_empty() && error.contains("shared debug file"), "{found} {error}");
        // Another one of that name.
        s.copy("whole", "shared");
        let (found, error) = kymo(&s.path("one"), &["-D", "work o"]);
        assert!(found.is_empty() && error.contains("shared debug file"), "{found} {error}");
    }
}

#[test]
fn compressed_sections() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let s = Scratch::new();
    s.tool("gcc", &["-g", "-O2", "-o", "whole", "plain.c"]);
    for (form, name) in [("zlib", " C "), ("zstd", " C "), ("zlib-gnu", ".zdebug_info")] {
        s.tool("objcopy", &[&format!("--compress-debug-sections={form}"), "whole", form]);
        assert!(sections(&s.path(form)).contains(name), "{form}");
        same(&s.path("whole"), &s.path(form), ABOUT_C);
    }
}

/// Types of a C++ program: base classes, members of members, templates.
const ABOUT_CPP: &[&[&str]] = &[
    &["-D", "shapes::Point::area this->x this->y this->id r scale"],
    &["-D", "shapes::deep::bump p->x p->id up counter"],
    &["-D", "Point::area $vars"],
    &["-D", "main p.x p.id"],
    &["-D", "twice v"],
    &["-V", "shapes::Point::area"],
    &["-V", "main"],
    &["-L", "shapes::Point::area"],
    &["-D", "shapes.cpp:9"],
];

#[test]
fn types_in_units_of_their_own() {
    if !require(&[Need::Gcc, Need::Tool("dwp"), Need::Tool("llvm-dwp")]) {
        return;
    }
    let own = "-fdebug-types-section";
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let s = Scratch::new();
        std::fs::write(s.path("shapes.cpp"), include_str!("probe_programs/shapes.cpp")).unwrap();
        let make = |more: &[&str], out: &str, source: &str| {
            let compiler = if source.ends_with("cpp") { "g++" } else { "gcc" };
            let flags = ["-g", version, "-O1", "-o", out, source];
            s.tool(compiler, &[&flags[..], more].concat());
        };
        for (code, about) in [("plain.c", ABOUT_C), ("shapes.cpp", ABOUT_CPP)] {
            make(&[], "whole", code);
            make(&[own], "types", code);
            let dump = ["--debug-dump=info", "-W", "types"];
            let text = Command::new("readelf").args(dump).current_dir(s.0.path()).output();
            let text = String::from_utf8_lossy(&text.unwrap().stdout).to_lowercase();
            assert!(text.contains("signature: "), "{version} {code}");
            same(&s.path("whole"), &s.path("types"), about);
            make(&[own, "-gsplit-dwarf"], "split", code);
            same(&s.path("whole"), &s.path("split"), about);
            let packer = if version == "-gdwarf-4" { "dwp" } else { "llvm-dwp" };
            s.tool(packer, &["-e", "split", "-o", "split.dwp"]);
            let stem = code.split('.').next().unwrap();
            std::fs::remove_file(s.path(&format!("split-{stem}.dwo"))).unwrap();
            same(&s.path("whole"), &s.path("split"), about);
            std::fs::remove_file(s.path("split.dwp")).unwrap();
        }
    }
}

/// Names stored by index, as LLVM does since version 5, cannot be searched for; the answers are the
/// same.
#[test]
fn names_by_index() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let s = Scratch::new();
    for version in ["4", "5"] {
        let dwarf = format!("dwarf-version={version}");
        let flags = ["-g", "-C", &dwarf, "-C", "opt-level=1", "-C", "codegen-units=4"];
        s.tool("rustc", &[&flags[..], &["-o", version, "rusty.rs"]].concat());
    }
    assert!(sections(&s.path("5")).contains(".debug_str_offsets"));
    assert!(!sections(&s.path("4")).contains(".debug_str_offsets"));
    same(&s.path("4"), &s.path("5"), ABOUT_RUST);
    let symbols = Command::new("nm").arg(s.path("4")).output().unwrap().stdout;
    let symbols = String::from_utf8_lossy(&symbols).into_owned();
    let linkage = symbols.lines().filter_map(|l| l.split(' ').nth(2));
    let linkage = linkage.filter(|name| name.starts_with("_ZN5rusty")).take(5);
    let asked: Vec<[&str; 2]> = linkage.map(|name| ["-D", name]).collect();
    assert!(!asked.is_empty());
    let asked: Vec<&[&str]> = asked.iter().map(|a| &a[..]).collect();
    same(&s.path("4"), &s.path("5"), &asked);
}

//! Debugging information that is split off, packed, compressed or shared says the
//! same of every address as when it stands in the program itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_symbols::{Resolver, ResolverOptions};
use kymo_testkit::{Need, require};

type Frames = Vec<(String, String, u32)>;

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Directory {
        Directory(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, program: &str, args: &[&str]) {
        let out = Command::new(program).args(args).current_dir(self.0.path()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{program} {args:?}: {said}");
    }

    /// Builds a program of the tests of kymo-debuginfo in the directory.
    fn build(&self, compiler: &str, flags: &[&str], source: &str, to: &str) {
        let programs =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../kymo-debuginfo/tests/programs");
        std::fs::copy(programs.join(source), self.path(source)).unwrap();
        let mut args = flags.to_vec();
        args.extend(["-o", to, source]);
        self.run(compiler, &args);
    }

    /// Source positions of every address of the code; the whole text is at the same offset in the
    /// file and in memory.
    fn sources(&self, program: &str) -> Vec<Frames> {
        let path = self.path(program).display().to_string();
        let mut resolver = Resolver::new(ResolverOptions::default());
        let dso = resolver.dso(&path, None, 1);
        let addresses: Vec<u64> = (0x1000..0x4000).collect();
        let found = resolver.sources_of(&[(dso, addresses.clone())]);
        assert_eq!(resolver.problems(), [], "{program}");
        let frames = |place| {
            let frames = found.frames(0, place).iter();
            frames.map(|f| (found.function(f.function).into(), found.file(f.file).into(), f.line))
        };
        (0..addresses.len()).map(|p| frames(p).collect()).collect()
    }
}

#[track_caller]
fn same(ours: &[Frames], whole: &[Frames], what: &str) {
    let known = whole.iter().filter(|f| !f.is_empty()).count();
    let inlined = whole.iter().filter(|f| f.len() > 1).count();
    assert!(known > 200 && inlined > 50, "{what}: {known} {inlined}");
    for (place, (ours, whole)) in ours.iter().zip(whole).enumerate() {
        assert_eq!(ours, whole, "{what}: {:#x}", 0x1000 + place);
    }
}

/// No other test of this file reads the variable, and each is a process of its own.
fn without_a_cache() {
    assert!(std::env::var_os("KYMO_CACHE").is_some_and(|v| v == "off"), "run with KYMO_CACHE=off");
}

#[test]
fn split_units() {
    if !require(&[Need::Gcc]) || std::env::var_os("KYMO_CACHE").is_none() {
        return again_without_a_cache("split_units");
    }
    without_a_cache();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let f = Directory::new();
        f.build("gcc", &["-O2", version], "inlined.c", "whole");
        f.build("gcc", &["-O2", version, "-gsplit-dwarf"], "inlined.c", "split");
        same(&f.sources("split"), &f.sources("whole"), version);
    }
}

#[test]
fn compressed_separate_and_shared() {
    let tools = [Need::Gcc, Need::Tool("objcopy"), Need::Tool("dwz")];
    if !require(&tools) || std::env::var_os("KYMO_CACHE").is_none() {
        return again_without_a_cache("compressed_separate_and_shared");
    }
    without_a_cache();
    let f = Directory::new();
    f.build("g++", &["-O2", "-gdwarf-5"], "templates.cpp", "whole");
    let whole = f.sources("whole");
    for kind in ["zlib-gnu", "zlib-gabi"] {
        let flag = format!("--compress-debug-sections={kind}");
        f.run("objcopy", &[&flag, "whole", "packed"]);
        same(&f.sources("packed"), &whole, kind);
    }
    f.run("objcopy", &["--only-keep-debug", "whole", "apart.debug"]);
    f.run("objcopy", &["--strip-debug", "--add-gnu-debuglink=apart.debug", "whole", "apart"]);
    same(&f.sources("apart"), &whole, "debug link");
    // Two programs with much in common share it.
    f.build("g++", &["-O2", "-gdwarf-4"], "templates.cpp", "one");
    let one = f.sources("one");
    f.run("cp", &["one", "two"]);
    f.run("dwz", &["-m", "shared.debug", "one", "two"]);
    same(&f.sources("one"), &one, "dwz");
}

/// Runs a test again in a process without a cache.
fn again_without_a_cache(test: &str) {
    if std::env::var_os("KYMO_CACHE").is_some() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let out = Command::new(own).args(["--exact", test]).env("KYMO_CACHE", "off").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}\n{}", String::from_utf8_lossy(&out.stderr));
}

//! What `cargo xtask release` hands out beside the program: a tar and a Debian package, here of the
//! program that tests use.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

#[path = "../../../xtask/src/package.rs"]
mod package;

use std::collections::BTreeSet;
use std::path::Path;

use kymo_testkit::{Need, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

#[test]
fn the_packages_hold_the_program_its_pages_and_completions() {
    if !require(&[Need::Tool("dpkg-deb"), Need::Tool("objcopy")]) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let here = directory.path();
    let path = |name: &str| here.join(name).to_str().unwrap().to_owned();
    // Debugging information would only be copied.
    let program = path("kymo");
    let _ = run("objcopy", ["--strip-all", KYMO, &program]).success();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let [tar, deb] = package::make(Path::new(&program), &root, here).unwrap();
    let (tar, deb) = (tar.to_str().unwrap(), deb.to_str().unwrap());

    let control = run("dpkg-deb", ["-f", deb]).success().stdout;
    let version = env!("CARGO_PKG_VERSION");
    for line in ["Package: kymo".to_owned(), format!("Version: {version}")] {
        assert!(control.lines().any(|l| l == line), "{control}");
    }
    let contents = run("dpkg", ["-c", deb]).success().stdout;
    let files: BTreeSet<&str> = contents
        .lines()
        .filter(|line| line.starts_with('-'))
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    for file in [
        "./usr/bin/kymo",
        "./usr/share/man/man1/kymo.1.gz",
        "./usr/share/man/man1/kymo-record.1.gz",
        "./usr/share/bash-completion/completions/kymo",
        "./usr/share/zsh/vendor-completions/_kymo",
        "./usr/share/fish/vendor_completions.d/kymo.fish",
        "./usr/share/doc/kymo/LICENSE-MIT",
        "./usr/share/doc/kymo/copyright",
    ] {
        assert!(files.contains(file), "{file} in {contents}");
    }
    assert!(contents.lines().all(|line| line.contains(" root/root ")), "{contents}");

    let listed = run("tar", ["-tf", tar]).success().stdout;
    let (name, _) = listed.split_once('/').unwrap();
    let tarred: BTreeSet<&str> = listed
        .lines()
        .filter(|line| !line.ends_with('/'))
        .map(|line| line.strip_prefix(&format!("{name}/")).unwrap())
        .collect();
    assert_eq!(tarred, files.iter().map(|file| file.trim_start_matches("./")).collect());

    let (unpacked, untarred) = (path("deb"), path("tar"));
    std::fs::create_dir(&untarred).unwrap();
    let _ = run("dpkg-deb", ["-x", deb, &unpacked]).success();
    let _ = run("tar", ["-xf", tar, "-C", &untarred]).success();
    let expected = format!("kymo {version}\n");
    for root in [unpacked, format!("{untarred}/{name}")] {
        let printed = run(format!("{root}/usr/bin/kymo"), ["--version"]).success().stdout;
        assert_eq!(printed, expected);
        let page = format!("{root}/usr/share/man/man1/kymo-record.1.gz");
        let page = run("gzip", ["-dc", &page]).success().stdout;
        assert!(page.contains(".TH kymo-record 1"), "{page}");
        let script = format!("{root}/usr/share/bash-completion/completions/kymo");
        let _ = run("bash", ["-n", &script]).success();
    }
}

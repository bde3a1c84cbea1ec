//! Packages that `cargo xtask release` makes, here of the program that tests use: contents, tools of
//! others that read them, and identical bytes on a second run.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

#[path = "../../../xtask/src/package/mod.rs"]
mod package;

use std::collections::BTreeSet;
use std::path::Path;

use kymo_testkit::{Need, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

#[test]
fn packages_hold_the_program_its_pages_and_completions() {
    if !require(&["dpkg-deb", "objcopy", "rpm", "rpmbuild", "skopeo"].map(Need::Tool)) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let here = directory.path();
    let path = |name: &str| here.join(name).to_str().unwrap().to_owned();
    // Debugging information would only be copied.
    let program = path("kymo");
    let _ = run("objcopy", ["--strip-all", KYMO, &program]).success();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = package::make(Path::new(&program), &root, here).unwrap();
    let ending = |end: &str| {
        let path = made.iter().find(|path| path.to_str().unwrap().ends_with(end));
        path.unwrap_or_else(|| panic!("no package {end}: {made:?}")).to_str().unwrap()
    };
    let (tar, deb) = (ending(".tar.gz"), ending(".deb"));

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
        "./usr/share/man/man7/kymo-run.7.gz",
        "./usr/lib/systemd/system/kymo-listen.service",
        "./usr/lib/systemd/system/kymo-session@.service",
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

    let rpm_files = run("rpm", ["-qpl", ending(".rpm")]).success().stdout;
    let rpm_files: BTreeSet<String> = rpm_files
        .lines()
        .filter(|file| *file != "/usr/share/doc/kymo")
        .map(|file| format!(".{file}"))
        .collect();
    assert_eq!(rpm_files, files.iter().map(|file| (*file).to_owned()).collect());
    let needs = run("rpm", ["-qpR", ending(".rpm")]).success().stdout;
    assert!(needs.lines().all(|need| need.starts_with("rpmlib(")), "{needs}");

    let image = format!("oci-archive:{}", ending(".oci.tar"));
    let inspected = run("skopeo", ["inspect", &image]).success().stdout;
    assert!(inspected.contains("\"Os\": \"linux\""), "{inspected}");
    let index = run("tar", ["-xOf", ending(".oci.tar"), "index.json"]).success().stdout;
    let named = format!("\"org.opencontainers.image.ref.name\":\"localhost/kymo:{version}\"");
    assert!(index.contains(&named), "{index}");
    let layout = format!("dir:{}", path("image"));
    let _ = run("skopeo", ["copy", "--insecure-policy", "-q", &image, &layout]).success();

    // The largest part is the layer. Commands that record and report in one run need /tmp in it.
    let parts = std::fs::read_dir(path("image")).unwrap().map(|entry| entry.unwrap());
    let layer = parts.max_by_key(|part| part.metadata().unwrap().len()).unwrap().path();
    let listed = run("tar", ["-tvf", layer.to_str().unwrap()]).success().stdout;
    assert!(
        listed.lines().any(|l| l.starts_with("drwxrwxrwt") && l.ends_with(" tmp/")),
        "{listed}"
    );

    let bill = std::fs::read_to_string(ending(".cdx.json")).unwrap();
    for linked in ["pkg:cargo/gimli@", "pkg:cargo/kymo-kernel@"] {
        assert!(bill.contains(linked), "{linked}");
    }
    assert!(!bill.contains("pkg:cargo/kymo-testkit@"), "tests are not in the program");

    let sums = ending("SHA256SUMS");
    let before = std::fs::read(sums).unwrap();
    let again = package::make(Path::new(&program), &root, here).unwrap();
    assert_eq!(again, made);
    assert_eq!(String::from_utf8(std::fs::read(sums).unwrap()), String::from_utf8(before));
    let checked = std::process::Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(here)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

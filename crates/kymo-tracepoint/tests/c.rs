//! A program in C, and a library that it loads twice, with the header and the static
//! library of this crate.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Shared, order};
use kymo_testkit::{Need, require};

#[test]
fn a_program_in_c_and_a_library_it_loads_twice() {
    if !require(&[Need::Gcc, Need::Babeltrace]) {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = (dir.path().join("shop"), dir.path().join("libshop.so"));
    let gcc = |args: &[&str], out: &Path, link: &[&Path]| {
        let mut gcc = Command::new("gcc");
        gcc.args(["-Wall", "-Wextra", "-Werror", "-O2"]).args(args);
        gcc.arg(here.join("examples/shop.c")).arg("-I").arg(here.join("include"));
        gcc.arg("-o").arg(out).args(link).args(["-lpthread", "-ldl", "-lm"]);
        let output = gcc.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    gcc(&["-rdynamic"], &program, &[&common::static_library()]);
    gcc(&["-shared", "-fPIC", "-DLIBRARY"], &library, &[]);
    let shared = Shared::new();
    shared.want("s", &order("shop:*", "number != 7"));
    shared.want("t", &order("shop:*", ""));
    let mut command = Command::new(&program);
    command.arg("3").arg(&library).env("KYMO_UST_DIR", shared.user().parent().unwrap());
    assert!(command.status().unwrap().success());
    let programs = shared.programs();
    let lines: Vec<_> = programs[0]
        .babeltrace(1, 1)
        .iter()
        .map(|line| line.split_once("shop:").unwrap().1.to_owned())
        .map(|line| {
            format!("{} {}", line.split(':').next().unwrap(), line.rsplit_once('{').unwrap().1)
        })
        .collect();
    let sale = |i: i32, who: &str| {
        format!(
            "sale  id = {i}, customer = \"{who}\", euros = {i}.25, change = {}, card = {}, colour = 0x{:X} }}",
            -i,
            i % 2,
            0xff00 + i
        )
    };
    let parcel = |i: u32| format!("parcel  number = {i}, where = \"nowhere\" }}");
    let due = [sale(0, "(null)"), sale(1, "somebody"), sale(2, "(null)"), parcel(0), parcel(1)];
    assert_eq!(lines[..5], due);
    assert_eq!(lines.len(), 6);
    assert_eq!(programs[0].events.len(), 3);
    assert_eq!(programs[0].event("parcel").level, 5);
    // Only the library's event has what this order's filter asks for.
    assert_eq!(programs[0].ring(0, 1).counts().0, 2);
}

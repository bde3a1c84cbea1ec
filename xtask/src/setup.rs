//! `cargo xtask setup`: the Debian packages that tests and benches need. Reports what it would
//! install when it lacks permission, and does nothing when all is there.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::cargo;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Install,
    Say,
}

/// A package, and how to see that what it brings is there.
struct Package {
    name: &'static str,
    why: &'static str,
    present: fn() -> bool,
}

const PACKAGES: &[Package] = &[
    Package {
        name: "linux-perf",
        why: "the peer that results are compared with",
        present: || cargo::has("perf", &["--version"]),
    },
    Package {
        name: "trace-cmd",
        why: "the peer that kernel traces are compared with",
        // It answers every question about itself with a status of failure.
        present: || Path::new("/usr/bin/trace-cmd").exists(),
    },
    Package {
        name: "babeltrace2",
        why: "the peer that CTF traces are compared with",
        present: || cargo::has("babeltrace2", &["--version"]),
    },
    Package {
        name: "lttng-tools",
        why: "records traces of programs in CTF",
        present: || Path::new("/usr/bin/lttng-sessiond").exists(),
    },
    Package {
        name: "liblttng-ust-dev",
        why: "programs that LTTng can trace",
        present: || Path::new("/usr/include/x86_64-linux-gnu/lttng/tracepoint.h").exists(),
    },
    Package {
        name: "qemu-system-x86",
        why: "boots the guest that has what this kernel lacks",
        present: || cargo::has("qemu-system-x86_64", &["--version"]),
    },
    Package {
        name: "qemu-user",
        why: "runs the program for AArch64",
        present: || cargo::has("qemu-aarch64", &["--version"]),
    },
    Package {
        name: "mmdebstrap",
        why: "unpacks the newest peers and compilers for other machines",
        present: || cargo::has("mmdebstrap", &["--version"]),
    },
    Package {
        name: "dbench",
        why: "tbench, a network load for the benches",
        present: || Path::new("/usr/bin/tbench").exists(),
    },
    Package {
        name: "chromium",
        why: "the browser that the pages of kymo view are tested in",
        present: || Path::new("/usr/bin/chromium").exists(),
    },
    Package {
        name: "firefox-esr",
        why: "the other browser that the pages of kymo view are tested in",
        present: || Path::new("/usr/bin/firefox-esr").exists(),
    },
    Package {
        name: "e2fsprogs",
        why: "filefrag, which lists the blocks of a file",
        present: || cargo::has("filefrag", &["-V"]),
    },
    Package {
        name: "rpm",
        why: "builds the RPM and reads it back",
        present: || cargo::has("rpmbuild", &["--version"]),
    },
    Package {
        name: "skopeo",
        why: "reads the container image",
        present: || cargo::has("skopeo", &["--version"]),
    },
    Package {
        name: "gcc",
        why: "compiles the small programs that tests watch",
        present: || cargo::has("gcc", &["--version"]),
    },
    Package {
        name: "g++",
        why: "compiles a program with C++ names",
        present: || cargo::has("g++", &["--version"]),
    },
    Package {
        name: "pkg-config",
        why: "links the C example as docs/c.md does",
        present: || cargo::has("pkg-config", &["--version"]),
    },
    Package {
        name: "less",
        why: "the pager of long texts",
        present: || cargo::has("less", &["--version"]),
    },
    Package {
        name: "binutils",
        why: "addr2line, which lines are compared with",
        present: || cargo::has("addr2line", &["--version"]),
    },
    Package {
        name: "llvm",
        why: "llvm-addr2line, asked where that of binutils is wrong",
        present: || cargo::has("llvm-addr2line", &["--version"]),
    },
    Package {
        name: "dwz",
        why: "moves debugging information into a file that several share",
        present: || cargo::has("dwz", &["--version"]),
    },
    Package {
        name: "libc6-dbg",
        why: "what is inlined in the C library, compared with gdb",
        present: || installed("libc6-dbg"),
    },
    Package {
        name: "lua5.4",
        why: "a program of Debian's with a debug package",
        present: || Path::new("/usr/bin/lua5.4").exists(),
    },
    Package {
        name: "liblua5.4-0-dbg",
        why: "that debug package, a part of which others share",
        present: || installed("liblua5.4-0-dbg"),
    },
    Package {
        name: "gdb",
        why: "a second opinion on stacks and lines",
        present: || cargo::has("gdb", &["--version"]),
    },
    Package {
        name: "libc6-dev",
        why: "the static C library and its headers",
        present: || Path::new("/usr/include/stdio.h").exists(),
    },
    Package {
        name: "xz-utils",
        why: "packs the names of functions into the program, and tests do the same",
        present: || cargo::has("xz", &["--version"]),
    },
    Package {
        name: "bzip2",
        why: "unpacks what kymo archive packs, in tests",
        present: || cargo::has("bzip2", &["--version"]),
    },
    Package {
        name: "debuginfod",
        why: "the server that debug files are fetched from in tests",
        present: || cargo::has("debuginfod-find", &["--version"]),
    },
    Package {
        name: "openssl",
        why: "certificates and a secure server for tests",
        present: || cargo::has("openssl", &["version"]),
    },
    Package {
        name: "systemtap-sdt-dev",
        why: "sys/sdt.h, the markers that probe finds in programs",
        present: || Path::new("/usr/include/x86_64-linux-gnu/sys/sdt.h").exists(),
    },
    Package {
        name: "golang-go",
        why: "pprof, which opens exported profiles",
        present: || cargo::has("go", &["tool", "-n", "pprof"]),
    },
    Package {
        name: "python3-jsonschema",
        why: "checks exported profiles with the schema of their format",
        present: || cargo::has("/usr/bin/python3", &["-m", "jsonschema", "--version"]),
    },
    Package {
        name: "librsvg2-bin",
        why: "draws exported flame graphs",
        present: || cargo::has("rsvg-convert", &["--version"]),
    },
    Package {
        name: "bpftrace",
        why: "a tracer that attaches to the markers of programs",
        present: || cargo::has("bpftrace", &["--version"]),
    },
    Package {
        name: "strace",
        why: "the tracer of system calls whose texts are right",
        present: || cargo::has("strace", &["--version"]),
    },
    Package {
        name: "valgrind",
        why: "counts the instructions of a tracepoint",
        present: || cargo::has("valgrind", &["--version"]),
    },
    Package {
        name: "mount",
        why: "mounts tracefs where it is not mounted",
        present: || cargo::has("mount", &["--version"]),
    },
    Package {
        name: "git",
        why: "a program worth profiling in the benches",
        present: || cargo::has("git", &["--version"]),
    },
];

pub(crate) fn run(mode: Mode) -> anyhow::Result<()> {
    components()?;
    let missing: Vec<&Package> = PACKAGES.iter().filter(|p| !(p.present)()).collect();
    if missing.is_empty() {
        println!("setup: everything is there");
        return Ok(());
    }
    for package in &missing {
        println!("setup: missing {}: {}", package.name, package.why);
    }
    let names: Vec<&str> = missing.iter().map(|p| p.name).collect();
    let line = format!("apt-get install -y --no-install-recommends {}", names.join(" "));
    if mode == Mode::Say {
        println!("setup: would run: apt-get update && {line}");
        return Ok(());
    }
    if !cargo::has("apt-get", &["--version"]) {
        bail!("no apt-get here; install what Debian calls {}", names.join(", "));
    }
    if !is_root() {
        bail!("only root may install packages; run as root: apt-get update && {line}");
    }
    apt(&["update"])?;
    let mut args = vec!["install", "-y", "--no-install-recommends"];
    args.extend(&names);
    apt(&args)?;
    match missing.iter().find(|p| !(p.present)()) {
        Some(still) => bail!("{} is installed, and still {}: not found", still.name, still.why),
        None => Ok(()),
    }
}

/// Whether a Debian package is there that brings no program.
fn installed(package: &str) -> bool {
    cargo::has("dpkg", &["-s", package])
}

/// rustfmt and clippy, which a minimal toolchain lacks.
fn components() -> anyhow::Result<()> {
    for (name, subcommand) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if cargo::command(&[subcommand, "--version"]).output().is_ok_and(|o| o.status.success()) {
            continue;
        }
        let mut rustup = Command::new("rustup");
        rustup.args(["component", "add", name]);
        cargo::run_command(rustup)?;
    }
    Ok(())
}

pub(crate) fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|o| o.stdout.trim_ascii() == b"0")
}

fn apt(args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    cargo::run_command(command)
}

//! Architectures that a guest can have: how its machine is emulated, and what builds for it.

use std::path::PathBuf;
use std::process::Command;

use crate::{arm64, cargo};

/// An architecture that Debian has a cloud kernel for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Architecture {
    /// The host's.
    #[default]
    Amd64,
    Arm64,
}

impl Architecture {
    /// Debian's name of it.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Architecture::Amd64 => "amd64",
            Architecture::Arm64 => "arm64",
        }
    }

    /// The emulator, the package that it is in, and its options for the machine.
    pub(super) fn emulator(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Architecture::Amd64 => ("qemu-system-x86_64", "qemu-system-x86", &["-cpu", "max"]),
            // The architecture's own algorithm for signing pointers is slow to emulate.
            Architecture::Arm64 => (
                "qemu-system-aarch64",
                "qemu-system-arm",
                &["-machine", "virt", "-cpu", "max,pauth-impdef=on"],
            ),
        }
    }

    /// Its first serial port.
    pub(super) fn console(self) -> &'static str {
        match self {
            Architecture::Amd64 => "ttyS0",
            Architecture::Arm64 => "ttyAMA0",
        }
    }

    /// `cargo ARGS` that builds for it.
    pub(super) fn cargo(self, args: &[&str]) -> anyhow::Result<Command> {
        match self {
            Architecture::Amd64 => Ok(cargo::command(args)),
            Architecture::Arm64 => arm64::cargo(args),
        }
    }

    /// Builds one program for it and says where it is.
    pub(super) fn build(self, args: &[&str]) -> anyhow::Result<PathBuf> {
        cargo::build_by(self.cargo(args)?)
    }

    /// Builds the program that is handed out and says where it is.
    pub(super) fn build_release(self) -> anyhow::Result<PathBuf> {
        match self {
            Architecture::Amd64 => cargo::build_release(),
            Architecture::Arm64 => arm64::release(),
        }
    }

    /// The C compiler for it.
    pub(super) fn c_compiler(self) -> anyhow::Result<Command> {
        match self {
            Architecture::Amd64 => Ok(Command::new("gcc")),
            Architecture::Arm64 => arm64::c_compiler(),
        }
    }
}

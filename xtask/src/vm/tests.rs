//! `cargo xtask vm test`.
use std::process::ExitCode;
pub(crate) fn main(_args: &[&str]) -> anyhow::Result<ExitCode> {
    anyhow::bail!("soon")
}

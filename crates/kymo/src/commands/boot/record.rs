//! `kymo boot record`: what the kernel traced of its boot, its messages, and systemd's times.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use kymo_files::tracedat::Compression;
use kymo_files::tracedat::write::Format;
use kymo_kernel::kernel_log;
use kymo_kernel::system::SystemRoot;
use kymo_record::ftrace::KernelSession;

use super::super::tracing;

/// Properties of units that are saved.
const PROPERTIES: &str =
    "--property=Id,InactiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic,ExecMainPID";

/// Flags of `kymo boot record`.
#[derive(clap::Args)]
#[command(after_help = "\
Stops the boot trace and saves it as DIR/trace.dat, the kernel messages as DIR/dmesg, and, with
systemd, unit times as DIR/units.

EXAMPLES
  kymo boot record -o boot")]
pub(super) struct Args {
    /// Directory to create
    #[arg(short = 'o', long, value_name = "DIR", default_value = "boot")]
    output: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let line = SystemRoot::machine().kernel_command_line().unwrap_or_default();
    if !line.split_whitespace().any(|word| word.starts_with("trace_event=")) {
        bail!(
            "the kernel did not trace its boot: /proc/cmdline has no trace_event=; `kymo boot \
             prepare` prints what to add"
        );
    }
    let tracefs = tracing::open()?;
    let session = KernelSession::of_boot(&tracefs);
    let directory = &args.output;
    let name = directory.display();
    std::fs::create_dir(directory).with_context(|| name.to_string())?;
    session.set_tracing(false)?;
    let format = Format { version: 7, compression: Compression::None };
    let taken = session.take(&directory.join("trace.dat"), false, format, false)?;
    let mut missing = Vec::new();
    match kernel_log::read() {
        Ok(text) => std::fs::write(directory.join("dmesg"), text).context("dmesg")?,
        Err(e) => missing.push(format!("the kernel's messages ({e})")),
    }
    match units() {
        Ok(Some(text)) => std::fs::write(directory.join("units"), text).context("units")?,
        Ok(None) => {}
        Err(e) => missing.push(format!("systemd's units ({e})")),
    }
    sayln!("[ kymo boot record: wrote {name}/trace.dat, {} bytes; the trace is off ]", taken.bytes);
    for what in &missing {
        sayln!("kymo: without {what}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns systemd's data about its units, if it runs.
fn units() -> anyhow::Result<Option<Vec<u8>>> {
    if !SystemRoot::machine().has_systemd() {
        return Ok(None);
    }
    let output = Command::new("systemctl")
        .args(["show", "--no-pager", PROPERTIES, "*"])
        .stdin(Stdio::null())
        .output()
        .context("systemctl")?;
    if !output.status.success() {
        bail!("systemctl: {}", output.status);
    }
    Ok(Some(output.stdout))
}

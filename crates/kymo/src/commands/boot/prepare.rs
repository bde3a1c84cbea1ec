//! `kymo boot prepare`: the kernel parameters that trace a boot.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_analysis::boot::BOOT_EVENTS;

use super::super::event_recording::has_event;
use crate::args::values::bytes;

/// Flags of `kymo boot prepare`.
#[derive(clap::Args)]
#[command(after_help = "\
Events that this kernel lacks are omitted. Events of modules do not exist until the module is loaded
and cannot be set on the command line; with a modular scsi_mod, disks are identified by their block
requests instead. initcall_debug and dyndbg make the kernel log device probes and asynchronous
calls, also into the trace.

EXAMPLES
  kymo boot prepare
  kymo boot prepare --apply && update-grub && reboot")]
pub(super) struct Args {
    /// Add the parameters to GRUB_CMDLINE_LINUX (backup: FILE.kymo-copy)
    #[arg(long)]
    apply: bool,
    /// GRUB's configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/default/grub", requires = "apply")]
    file: PathBuf,
    /// Size of each CPU's ring buffer
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "64M")]
    buffer_size: u64,
    /// Also record kernel stacks, which show causes of waits but need most of the buffer
    #[arg(short = 'g', long)]
    stacks: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let parameters = parameters(args);
    if args.apply {
        return apply(&args.file, &parameters);
    }
    let mut out = crate::streams::stdout().lock();
    writeln!(out, "{parameters}")?;
    sayln!(
        "kymo: add these to the kernel's command line (GRUB: GRUB_CMDLINE_LINUX in \
         /etc/default/grub, then update-grub; --apply does the first), boot, then `kymo boot \
         record`, and take them away again: the ring keeps its memory"
    );
    Ok(ExitCode::SUCCESS)
}

fn parameters(args: &Args) -> String {
    let all = BOOT_EVENTS.to_vec();
    let known: Vec<&str> = all.iter().copied().filter(|e| has_event(e)).collect();
    // Who may not read tracefs learns nothing of its events.
    let events = if known.is_empty() { all } else { known };
    let kilobytes = args.buffer_size.div_ceil(1024);
    let stacks = if args.stacks { ",stacktrace" } else { "" };
    format!(
        "trace_event={} trace_buf_size={kilobytes}k trace_clock=mono \
         trace_options=nooverwrite{stacks} initcall_debug async.dyndbg=+p dd.dyndbg=+p \
         log_buf_len=4M",
        events.join(",")
    )
}

fn apply(file: &Path, parameters: &str) -> anyhow::Result<ExitCode> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| name.to_string())?;
    let new = with_parameters(&text, parameters).with_context(|| name.to_string())?;
    let mut copy = file.as_os_str().to_owned();
    copy.push(".kymo-copy");
    let copy = PathBuf::from(copy);
    if copy.exists() {
        bail!("{} is there already: put it back or remove it first", copy.display());
    }
    std::fs::copy(file, &copy).with_context(|| copy.display().to_string())?;
    let temporary = file.with_extension("kymo-new");
    let replace = std::fs::copy(file, &temporary)
        .and_then(|_| std::fs::write(&temporary, new))
        .and_then(|()| std::fs::rename(&temporary, file));
    if let Err(e) = replace {
        let _ = std::fs::remove_file(&temporary);
        let _ = std::fs::remove_file(&copy);
        return Err(e).with_context(|| name.to_string());
    }
    sayln!(
        "kymo: added to GRUB_CMDLINE_LINUX in {name}; run update-grub (or grub2-mkconfig), boot, \
         then `kymo boot record`; `mv {} {name}` takes it back",
        copy.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// The file with the parameters behind those that it has.
fn with_parameters(text: &str, parameters: &str) -> anyhow::Result<String> {
    const VARIABLE: &str = "GRUB_CMDLINE_LINUX=";
    let at = text.lines().position(|l| l.trim_start().starts_with(VARIABLE));
    let at = at.context("it has no GRUB_CMDLINE_LINUX")?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let Some(line) = lines.get_mut(at) else { bail!("it has no GRUB_CMDLINE_LINUX") };
    if line.contains("trace_event=") {
        bail!("its GRUB_CMDLINE_LINUX has trace_event= already");
    }
    let value = line.trim_start().trim_start_matches(VARIABLE).trim();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let inner = match quote {
        Some(quote) => value.strip_prefix(quote).and_then(|v| v.strip_suffix(quote)),
        None => (!value.contains([' ', '#', '\\', '$'])).then_some(value),
    };
    let inner = inner.context("its GRUB_CMDLINE_LINUX is not plain text: add them manually")?;
    let quote = quote.unwrap_or('"');
    *line = format!("{VARIABLE}{quote}{}{quote}", format!("{inner} {parameters}").trim());
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_added_to_those_that_are_there() {
        let new = |text: &str| with_parameters(text, "a=b c").map_err(|e| e.to_string());
        let file = "# x\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"ro\"\nY=1\n";
        let expected =
            "# x\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"ro a=b c\"\nY=1\n";
        assert_eq!(new(file).unwrap(), expected);
        assert_eq!(new("GRUB_CMDLINE_LINUX=\n").unwrap(), "GRUB_CMDLINE_LINUX=\"a=b c\"\n");
        assert_eq!(new("GRUB_CMDLINE_LINUX='x'").unwrap(), "GRUB_CMDLINE_LINUX='x a=b c'\n");
        assert!(new("X=1\n").unwrap_err().contains("no GRUB_CMDLINE_LINUX"));
        assert!(new("GRUB_CMDLINE_LINUX=\"trace_event=x\"").unwrap_err().contains("already"));
        assert!(new("GRUB_CMDLINE_LINUX=\"x\" # y").unwrap_err().contains("not plain text"));
    }
}

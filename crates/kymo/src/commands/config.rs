//! `kymo config`: shows and changes variables of perf's configuration files.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_files::perf_config::set_variable;
use kymo_kernel::output_file::{self, Existing, PRIVATE};

use crate::perf_config::{ConfigScope, PerfConfig, key_of, settings};

/// Flags of `kymo config`.
#[derive(clap::Args)]
#[command(after_long_help = "\
FILES
kymo reads /etc/perfconfig and ~/.perfconfig, which takes precedence, or only the file in
PERF_CONFIG (/dev/null: none). PERF_CONFIG_NOSYSTEM=1 skips the former and PERF_CONFIG_NOGLOBAL=1
the latter. Files that belong neither to you nor to root are ignored. Parsing stops at the first
error, with a warning.

  # a comment
  [report]
      children = false
      sort_order = \"sym,dso\"

VARIABLES
Variables set defaults of options; options on the command line take precedence:
  record.call-graph, top.call-graph, call-graph.record-mode, call-graph.dump-size: mode of -g of
      record and top: fp, dwarf
  record.build-id: `skip` means -B; no value adds binaries to the build-id cache
  core.proc-map-timeout: --proc-map-timeout of record and top
  report.children, top.children: `false` means --no-children
  report.percent-limit, report.sort_order, hist.percentage: --percent-limit, --sort and --percentage
      of report (sort order only for a perf.data)
  call-graph.print-type, call-graph.order, call-graph.threshold: -g of report, for a perf.data
  annotate.disassembler_style, annotate.hide_src_code, annotate.show_linenr,
      annotate.show_nr_samples, annotate.show_total_period, annotate.demangle: -M, --no-source, -l,
      -n, --show-total-period, --no-demangle of annotate
  stat.big-num: `false` means --no-big-num
  kmem.default: slab, page: these options of kmem stat
  trace.no_inherit: -i of trace
  buildid.dir: perf's build-id cache [default: ~/.debug]; /dev/null: none
  buildid-cache.debuginfod: --debuginfod of buildid-cache
-l marks variables that no command reads.

DIFFERENCES FROM PERF
Setting a variable keeps comments and the order of the file. Errors make the exit status 1.")]
pub(crate) struct Args {
    /// List all variables
    #[arg(short, long, conflicts_with = "variables")]
    list: bool,
    /// Use only the user's file, ~/.perfconfig
    #[arg(long, conflicts_with = "system")]
    user: bool,
    /// Use only the system's file, /etc/perfconfig
    #[arg(long)]
    system: bool,
    /// Variables to show, or to set
    #[arg(value_name = "SECTION.NAME[=VALUE]")]
    variables: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let scope = match (args.user, args.system) {
        (true, _) => ConfigScope::User,
        (_, true) => ConfigScope::System,
        _ => ConfigScope::All,
    };
    // What is wrong with one is said before any is changed.
    for variable in &args.variables {
        let (key, value) = split(variable);
        if value == Some("") {
            bail!("`{variable}` has no value");
        }
        // The text of no file: what is tried is whether it can be written at all.
        set_variable(b"", key, value.unwrap_or_default())?;
    }
    if args.list || args.variables.is_empty() {
        let config = PerfConfig::read(scope);
        list(&config)?;
        return Ok(tell_problems(&config));
    }
    let mut status = ExitCode::SUCCESS;
    for variable in &args.variables {
        let (key, value) = split(variable);
        match value {
            Some(value) => set(scope, key, value)?,
            None => {
                let config = PerfConfig::read(scope);
                if let Some(value) = config.get(&key_of(key)) {
                    writeln!(crate::streams::users_stdout(), "{key}={value}")?;
                }
                if !config.problems.is_empty() {
                    status = tell_problems(&config);
                }
            }
        }
    }
    Ok(status)
}

fn split(variable: &str) -> (&str, Option<&str>) {
    match variable.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (variable, None),
    }
}

fn list(config: &PerfConfig) -> std::io::Result<()> {
    crate::screen::page();
    let mut out = std::io::BufWriter::new(crate::streams::users_stdout());
    let mut unread = Vec::new();
    for variable in config.variables() {
        writeln!(out, "{}={}", variable.key, variable.value)?;
        if !settings::is_read(&variable.key) {
            unread.push(variable.key.as_str());
        }
    }
    out.flush()?;
    if !unread.is_empty() {
        sayln!("no command of kymo reads {}", unread.join(", "));
    }
    Ok(())
}

fn tell_problems(config: &PerfConfig) -> ExitCode {
    for problem in &config.problems {
        sayln!("kymo: {problem}");
    }
    if config.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn set(scope: ConfigScope, key: &str, value: &str) -> anyhow::Result<()> {
    let file = scope
        .written_file()
        .context("there is no file to write to: PERF_CONFIG is /dev/null, or HOME is not set")?;
    let failed = || format!("cannot write {}", file.display());
    // A link to a file that is kept elsewhere stays a link.
    let file = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
    let (text, mode) = match fs::metadata(&file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => (Vec::new(), 0o644),
        Ok(meta) if !meta.is_file() => bail!("{}: not a file", failed()),
        meta => {
            let mode = meta.with_context(failed)?.permissions().mode() & 0o777;
            (fs::read(&file).with_context(failed)?, mode)
        }
    };
    let text = set_variable(&text, key, value).with_context(|| file.display().to_string())?;
    replace(&file, &text, mode).with_context(failed)
}

fn replace(file: &Path, text: &[u8], mode: u32) -> std::io::Result<()> {
    output_file::write_whole(file, PRIVATE, Existing::Replace, |new| {
        new.write_all(text)?;
        new.set_permissions(Permissions::from_mode(mode))
    })
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    /// The help names each variable that is read.
    #[test]
    fn all_variables_are_explained() {
        let mut command = Args::augment_args(clap::Command::new("config"));
        let help = command.render_long_help().to_string();
        for key in settings::SETTINGS.iter().flat_map(|setting| setting.keys) {
            assert!(help.contains(key), "{key}");
        }
        assert!(help.contains(settings::BUILD_ID_DIRECTORY));
    }
}

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
/etc/perfconfig, and ~/.perfconfig, which counts more; or only the file that PERF_CONFIG names
(/dev/null: none). PERF_CONFIG_NOSYSTEM=1 and PERF_CONFIG_NOGLOBAL=1 leave one of the two out. A
file that belongs neither to you nor to root is not read, nor is what follows a mistake, of which
commands warn.

  # a comment
  [report]
      children = false
      sort_order = \"sym,dso\"

VARIABLES
They stand for options, which count more when they are typed:
  record.call-graph, top.call-graph, call-graph.record-mode, call-graph.dump-size: what -g of
      record and top means: fp, dwarf
  record.build-id: skip is -B; the cache of `kymo buildid-cache` is left alone in any case
  core.proc-map-timeout: --proc-map-timeout of record and top
  report.children, top.children: false is --no-children
  report.percent-limit, report.sort_order, hist.percentage: --percent-limit, --sort and --percentage
      of report; the sort order is that of a perf.data
  call-graph.print-type, call-graph.order, call-graph.threshold: -g of report, of a perf.data
  annotate.disassembler_style, annotate.hide_src_code, annotate.show_linenr,
      annotate.show_nr_samples, annotate.show_total_period, annotate.demangle: -M, --no-source, -l,
      -n, --show-total-period, --no-demangle of annotate
  stat.big-num: false is --no-big-num
  kmem.default: slab, page: these options of kmem stat
  trace.no_inherit: -i of trace
  buildid.dir: perf's build-id cache, in place of ~/.debug; /dev/null: none
  buildid-cache.debuginfod: --debuginfod of buildid-cache
-l says which variables no command reads.

DIFFERENCES FROM PERF
A variable is changed in its place; comments and all else stay. A mistake makes the status 1.")]
pub(crate) struct Args {
    /// List all variables
    #[arg(short, long, conflicts_with = "variables")]
    list: bool,
    /// Only the user's file, ~/.perfconfig
    #[arg(long, conflicts_with = "system")]
    user: bool,
    /// Only the system's file, /etc/perfconfig
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
        Ok(meta) if !meta.is_file() => bail!("{}: it is no file", failed()),
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

//! `kymo probe`: new events anywhere, named as the source names them.
//!
//! Here are the flags and which verb they mean; the verbs are in `probe/`.

mod add;
mod bench;
mod cached;
mod delete;
mod list;
mod preflight;
mod show;
mod target;
mod users;

use std::borrow::Cow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use kymo_probe::grammar::{LineRange, NameFilter};

/// Flags of `kymo probe`.
#[derive(clap::Args)]
#[command(
    override_usage = "kymo probe [OPTIONS] 'PROBE'\n       kymo probe [OPTIONS] --add 'PROBE'… | --definition 'PROBE'…\n       kymo probe --del '[GROUP:]EVENT'… | --list\n       kymo probe [OPTIONS] --line 'RANGE' | --vars 'PLACE' | --funcs\n       kymo probe bench [ROW]…",
    after_long_help = "\
PROBE
  [[GROUP:]EVENT=]PLACE [ARGUMENT…], quoted for the shell.
  Lines in the kernel's own syntax (p:…, r:…, -:…) are passed on unchanged.

PLACE
  FUNC[@SRC][+OFFSET | :LINE | %return | ;PATTERN]   lines relative to the function
  SRC:LINE, SRC;PATTERN                             lines relative to the file
  …:LINE%next                                       the next line that has code
  0xADDRESS                                         an address of the binary
  FUNC may be a glob (vfs_*) and, in Rust and C++, a path (mycrate::module::func,
  <T as Trait>::f, main::{closure#0}); without generic arguments it matches every
  instance. SRC matches the end of a path, by whole components. PATTERN is a glob on
  source lines with blanks removed.

ARGUMENT
  [NAME=]VALUE[:TYPE][@user]
  VALUE  a variable with member access (file->f_mode, o.in.x, arr[2]); $vars, $params;
         the kernel's: $retval, $stack, $stackN, $argN, $comm, %REG, @SYMBOL[+OFFSET],
         +OFFSET(VALUE), \\NUMBER
  TYPE   u8…u64, s8…s64, x8…x64; u, s, x (size from the variable); string, ustring, char,
         symbol, bWIDTH@OFFSET/SIZE; TYPE[N] and [N] for arrays
  Rust: a &str or String yields its text and NAME_len, an enum its discriminant; fields
  are dereferenced automatically (self.field), fields of variants go by name (opt.Some.0).

RANGE
  FUNC[@SRC][:FIRST[+COUNT|-LAST]] or SRC[:FIRST[+COUNT|-LAST]]

FILTER
  Globs with !, &, | and parentheses: '!_* & *lock*'."
)]
#[command(args_conflicts_with_subcommands = true, disable_version_flag = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Option<Task>,

    /// Probe to add (words are joined; a leading absolute path is the binary)
    #[arg(value_name = "PROBE")]
    probe: Vec<String>,

    /// Add a probe
    #[arg(short = 'a', long, value_name = "PROBE", allow_hyphen_values = true)]
    add: Vec<String>,

    /// Show the kernel's definition of the probe without adding it
    #[arg(short = 'D', long, value_name = "PROBE", allow_hyphen_values = true)]
    definition: Vec<String>,

    /// With --definition: print bootconfig lines, for kernel probes active from boot
    #[arg(long, requires = "definition")]
    bootconfig: bool,

    /// Remove probes matching this glob
    #[arg(short = 'd', long, value_name = "[GROUP:]EVENT")]
    del: Vec<String>,

    /// List probes, with source lines and argument names
    #[arg(short = 'l', long, value_name = "[GROUP:]EVENT", num_args = 0..=1, require_equals = true)]
    list: Option<Option<String>>,

    /// Show source lines; numbered lines can be probed
    #[arg(short = 'L', long, value_name = "RANGE")]
    line: Option<String>,

    /// Show the variables that can be read at a probe point
    #[arg(short = 'V', long, value_name = "PLACE")]
    vars: Option<String>,

    /// Show functions that can be probed, including functions that are only inlined
    #[arg(short = 'F', long, value_name = "FILTER", num_args = 0..=1)]
    funcs: Option<Option<String>>,

    /// Also show file-scope variables (with --vars)
    #[arg(long)]
    externs: bool,

    /// Exclude inlined copies of functions
    #[arg(long)]
    no_inlines: bool,

    /// Show the live range of each variable (with --vars)
    #[arg(long)]
    range: bool,

    /// Show only names matching these globs (with --vars and --funcs)
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,

    /// Program or library to probe
    #[arg(short = 'x', long, value_name = "BINARY", conflicts_with_all = ["module", "vmlinux"])]
    exec: Option<PathBuf>,

    /// Resolve the program's path in the mount namespace of this process
    #[arg(long, value_name = "PID", requires = "exec")]
    target_ns: Option<u32>,

    /// Find the program's debugging information at its path below this directory
    #[arg(long, value_name = "DIRECTORY", requires = "exec")]
    symfs: Option<PathBuf>,

    /// Kernel module to probe: a name or a path
    #[arg(short = 'm', long, value_name = "MODULE")]
    module: Option<String>,

    /// Kernel image with debugging information; with --definition of any kernel
    #[arg(short = 'k', long, value_name = "VMLINUX")]
    vmlinux: Option<PathBuf>,

    /// Source directory
    #[arg(short = 's', long, value_name = "DIRECTORY")]
    source: Option<PathBuf>,

    /// Add the probe even if an event of that name exists (a number is appended)
    #[arg(short = 'f', long)]
    force: bool,

    /// Show changes without making them (with --add and --del)
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Count hits of the added probes for SECONDS, and report their cost
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    preflight: Option<f64>,

    /// Maximum number of probe points per probe; up to 65536
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    max_probes: u32,

    /// Also show hits and definitions
    #[arg(short = 'v', long, conflicts_with = "quiet")]
    verbose: bool,

    /// Cache the probes by the build-id of their binary
    ///
    /// Cached probes can be added later without debugging information, with the same text or as
    /// %GROUP:EVENT. --list shows and --del removes them. --definition, --vars and --line build the
    /// index of the binary's debugging information for later use.
    #[arg(long)]
    cache: bool,

    /// Demangle names [default]
    #[arg(long, alias = "demangle-kernel", overrides_with = "no_demangle")]
    demangle: bool,

    /// Show mangled names (with --funcs, --vars and --list)
    #[arg(long, alias = "no-demangle-kernel", overrides_with = "demangle")]
    no_demangle: bool,

    /// Print only results and errors
    #[arg(short = 'q', long)]
    quiet: bool,

    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

impl Args {
    /// A symbol's name as it is to be shown.
    fn readable<'n>(&self, name: &'n str) -> Cow<'n, str> {
        if self.no_demangle { Cow::Borrowed(name) } else { kymo_debuginfo::demangle(name) }
    }
}

/// Task that perf probe has no verb for.
#[derive(clap::Subcommand)]
enum Task {
    /// Measure the cost per hit of each kind of probe on this machine
    #[command(disable_version_flag = true)]
    Bench(bench::BenchArgs),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut args = args;
    if let Some(Task::Bench(bench)) = &args.task {
        return bench::run(bench);
    }
    take_words(&mut args);
    let verbs = [
        !args.add.is_empty(),
        !args.definition.is_empty(),
        !args.del.is_empty(),
        args.list.is_some(),
        args.line.is_some(),
        args.vars.is_some(),
        args.funcs.is_some(),
    ];
    match verbs.iter().filter(|v| **v).count() {
        0 => bail!("nothing to do: give a probe, or --list, --line, --vars, --funcs (see --help)"),
        1 => {}
        // perf lets old probes be removed and new ones added in one go.
        2 if !args.add.is_empty() && !args.del.is_empty() => {}
        _ => bail!(
            "only one of --add, --del, --definition, --list, --line, --vars, --funcs at a time"
        ),
    }
    let filter = args.filter.as_deref().map(NameFilter::parse).transpose()?;
    if let Some(range) = &args.line {
        return show::lines(&args, &LineRange::parse(range)?);
    }
    if let Some(place) = &args.vars {
        return show::variables(&args, place, filter.as_ref());
    }
    if let Some(own) = &args.funcs {
        let own = own.as_deref().map(NameFilter::parse).transpose()?;
        return show::functions(&args, own.or(filter).as_ref());
    }
    if let Some(glob) = &args.list {
        return if args.cache {
            cached::list(&args, glob.as_deref())
        } else {
            list::list(&args, glob.as_deref())
        };
    }
    if !args.definition.is_empty() {
        return show::definitions(&args);
    }
    if !args.del.is_empty() {
        if args.cache { cached::delete(&args)? } else { delete::delete(&args)? }
    }
    if args.add.is_empty() { Ok(ExitCode::SUCCESS) } else { add::add(&args) }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.01..=3600.0).contains(&s) => Ok(s),
        _ => Err("a number of seconds from 0.01 to 3600".into()),
    }
}

/// Words without an option: the binary, if the first is an absolute path and none
/// is named, and one probe.
fn take_words(args: &mut Args) {
    let mut words = std::mem::take(&mut args.probe);
    let no_target = args.exec.is_none() && args.module.is_none();
    if no_target && words.first().is_some_and(|w| w.starts_with('/')) {
        args.exec = Some(PathBuf::from(words.remove(0)));
    }
    if !words.is_empty() {
        args.add.push(words.join(" "));
    }
}

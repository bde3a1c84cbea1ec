//! `kymo run`: programs of bpftrace's language in the kernel. Called as `bpftrace` the
//! program is this command.

mod messages;

use std::cell::Cell;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use kymo_bpf::CompiledProgram;
use kymo_kernel::output_file::{self, SHARED};
use kymo_kernel::process::{Signal, Signals};
use kymo_model::counted;
use kymo_programs::{
    FunctionList, InterpretedProgram, MachineFacts, OutputForm, ProbeFilter, ProgramMode,
    ProgramOptions, ProgramSinks, RunningProgram, WarningLevel, compile_program, list_points,
    list_program, measure_costs,
};
use kymo_record::Target;
use kymo_symbols::choose_debug_directories;
use kymo_view::Ledger;

use super::program_run::ring_run::{RingRun, RingScope, UserSpaceReason};
use super::program_run::{RunTarget, follow_program, percent, program_of, say_costs};
use crate::args::values::ring;
use crate::called_name::CalledName;
use messages::ProgramText;

/// Flags of `kymo run`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Programs are written in bpftrace's language (`man bpftrace`, `kymo manual run.7`). kymo compiles
them itself; it needs neither clang nor kernel headers.

EXAMPLES
  kymo run -e 'tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }'
  kymo run -e 'profile:hz:99 { @[kstack] = count(); }' -c 'make -j2'
  kymo run opensnoop.bt
  kymo run -l 'tracepoint:sched:*' -v")]
pub(crate) struct Args {
    /// Program text
    #[arg(
        short = 'e',
        value_name = "PROGRAM",
        allow_hyphen_values = true,
        overrides_with = "program"
    )]
    program: Option<String>,
    /// File with the program (`-`: standard input), then its parameters ($1, …)
    #[arg(value_name = "FILE", allow_negative_numbers = true)]
    words: Vec<String>,
    /// List matching attach points, or those of a program; -v: with arguments
    #[arg(short = 'l', long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "*")]
    list: Option<String>,
    /// Attach all probes but BEGIN, END and intervals to this process
    #[arg(short = 'p', long, value_name = "PID")]
    pid: Option<String>,
    /// Run this command, and exit when it ends
    #[arg(short = 'c', long = "cmd", value_name = "CMD")]
    command: Option<String>,
    /// Form of the output
    #[arg(
        short = 'f',
        value_name = "FORMAT",
        default_value = "text",
        help = "Output format: text or json"
    )]
    form: String,
    /// Write the output to a file
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print only the output and losses
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Show the log of the BPF verifier
    #[arg(short = 'v', long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Buffering of the output
    #[arg(short = 'B', value_name = "MODE", default_value = "line", value_parser = ["line", "full", "none"])]
    buffering: String,
    /// Load and attach the program, then exit
    #[arg(long)]
    dry_run: bool,
    /// Report the current rate and the estimated cost of each probe before attaching
    #[arg(long)]
    preflight: bool,
    /// Detach if the BPF programs use more than PERCENT of a CPU
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    budget: Option<f64>,
    /// Allow functions that change the system: system(), signal(), override()
    #[arg(long = "unsafe")]
    is_unsafe: bool,
    /// Run in user space, without BPF (tracepoints, software and hardware events, profile,
    /// interval, BEGIN and END)
    #[arg(long)]
    no_bpf: bool,
    /// Show the BPF features of this kernel
    #[arg(long)]
    info: bool,
    /// Show the BPF instructions without running the program
    #[arg(long)]
    show_program: bool,
    /// Suppress warnings about the program
    #[arg(long)]
    no_warnings: bool,
    /// Warn about failed reads and map updates while the program runs
    #[arg(short = 'k', long = "warnings", conflicts_with = "no_warnings")]
    #[arg(action = clap::ArgAction::Count)]
    all_warnings: u8,
    /// Accepted for compatibility: no LLVM makes the instructions
    #[arg(long, hide = true)]
    verify_llvm_ir: bool,
    /// Accepted for compatibility: the kernel counts those who use semaphores
    #[arg(long, hide = true)]
    usdt_file_activation: bool,
    /// Add a directory to the search path of headers
    #[arg(short = 'I', value_name = "DIR")]
    include_directories: Vec<PathBuf>,
    /// Include a header, like #include
    #[arg(long, value_name = "FILE")]
    include: Vec<String>,
    /// Also search these directories for debug files; relative paths start at the binary
    #[arg(long, value_name = "DIR[:DIR]", value_delimiter = ':')]
    debuginfo: Vec<PathBuf>,
    /// Attach only probes that match this regular expression, and BEGIN and END
    #[arg(long, value_name = "REGEX")]
    probe_filter: Option<String>,
    /// Read the traceable kernel functions from a file like available_filter_functions
    #[arg(long, value_name = "FILE")]
    traceable_functions: Option<PathBuf>,
    /// Run only the program's test: or bench: probes
    #[arg(long, value_name = "MODE", value_parser = ["test", "bench"], conflicts_with_all = ["test", "bench"])]
    mode: Option<String>,
    /// Run the program's test: probes; status 1 if one fails
    #[arg(long, conflicts_with = "bench")]
    test: bool,
    /// Run the program's bench: probes
    #[arg(long)]
    bench: bool,
    /// Exit with status 3 if anything was lost
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.info {
        messages::write_info(&mut crate::streams::stdout())?;
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::ensure!(
        matches!(args.form.as_str(), "text" | "json"),
        "Invalid output format {:?}",
        args.form
    );
    let pid = args.pid.as_deref().map(messages::process_id).transpose()?;
    let mut facts = machine_facts(&args, pid)?;
    if let Some(pattern) = &args.list {
        // `-lv PATTERN` is how bpftrace's users type it.
        let (pattern, is_verbose) = match (pattern.as_str(), args.words.first()) {
            ("v", word) => (word.map_or("*", String::as_str), true),
            (pattern, _) => (pattern, args.verbose > 0),
        };
        let file = std::path::Path::new(pattern);
        if args.program.is_some() || file.is_file() {
            let words = [&[pattern.to_owned()][..], &args.words].concat();
            let (text, parameters) = ProgramText::read(args.program.as_deref(), &words)?;
            let options = ProgramOptions { parameters, pid, ..ProgramOptions::default() };
            let mut out = BufWriter::with_capacity(1 << 16, crate::streams::stdout().lock());
            let listed = list_program(&text.text, &options, is_verbose, &facts, &mut out);
            out.flush()?;
            return match listed {
                Ok(()) => Ok(ExitCode::SUCCESS),
                Err(e) => text.fail(&e),
            };
        }
        anyhow::ensure!(
            !pattern.contains('{'),
            "-l takes a pattern such as 'tracepoint:sched:*'; `-l -e PROGRAM` lists the probes of \
             a program"
        );
        if pattern.contains('.') && !pattern.contains([':', '*']) {
            sayln!(
                "WARNING: It appears that '{pattern}' is a filename but the file does not exist. \
                 Treating '{pattern}' as a search pattern."
            );
        }
        return list(pattern, is_verbose, &facts);
    }
    let (text, parameters) = ProgramText::read(args.program.as_deref(), &args.words)?;
    let mut target = RunTarget::new(pid, args.command.as_deref())?;
    facts.target = target.child_pid().or(pid);
    let options = ProgramOptions {
        name: text.name.clone(),
        text: text.text.clone(),
        parameters,
        pid,
        is_limited: true,
        child_pid: target.child_pid(),
        form: if args.form == "json" { OutputForm::Json } else { OutputForm::Text },
        is_for_terminal: args.output.is_none() && crate::streams::stdout().is_terminal(),
        wants_log: args.verbose > 0,
        // As in quotes: where it runs comes first.
        includes: args.include.iter().map(|name| header_of_flag(name)).collect(),
        in_user_space: args.no_bpf,
        is_dry: args.dry_run,
        mode: args.mode(),
        warnings: match (args.no_warnings, args.all_warnings) {
            (true, _) => WarningLevel::None,
            (_, 1..) => WarningLevel::All,
            _ => WarningLevel::Usual,
        },
    };
    let program = match compile_program(&text.text, &options, &facts) {
        Ok(program) => program,
        Err(e) => return text.fail(&e),
    };
    if let Some(status) = text.refuse_options(&program, &options.parameters) {
        return Ok(status);
    }
    if !args.no_warnings {
        program.warnings.iter().for_each(|warning| text.say("WARNING", warning));
    }
    if args.show_program {
        messages::write_program(&mut crate::streams::stdout().lock(), &program, &text.text)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some((call, position)), false) = (&program.unsafe_call, args.is_unsafe) {
        return text.refuse_unsafe(call, *position);
    }
    if args.no_bpf {
        return run_in_rings(&args, &text, (program, &options), target, &UserSpaceReason::wanted());
    }
    let heard = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit, Signal::Usr1];
    let signals = Signals::listen(&heard).context("cannot listen for signals")?;
    if args.preflight {
        match measure_costs(&program, &options, &facts, Duration::from_secs(1)) {
            Ok(costs) => say_costs(&costs, args.budget),
            Err(e) => return text.fail_verbosely(&e, args.verbose > 0),
        }
    }
    let mut running = match RunningProgram::start(program, &options, &facts) {
        Ok(running) => running,
        Err(e) => {
            let Some(reason) = UserSpaceReason::of_refusal() else {
                return text.fail_verbosely(&e, args.verbose > 0);
            };
            drop(signals);
            let options = ProgramOptions { in_user_space: true, ..options };
            return match compile_program(&text.text, &options, &facts) {
                Ok(program) => run_in_rings(&args, &text, (program, &options), target, &reason),
                Err(e) => {
                    let status = text.fail(&e);
                    reason
                        .refusal()
                        .into_iter()
                        .for_each(|why| sayln!("HINT: no BPF program can run here: {why}"));
                    status
                }
            };
        }
    };
    if let Some(percent) = args.budget {
        running.set_budget(percent).context("this kernel does not measure programs (--budget)")?;
    }
    if !args.no_warnings {
        running.warnings.iter().for_each(|warning| text.say("WARNING", warning));
    }
    for (point, log) in &running.logs {
        sayln!("{point}: verifier:\n{log}");
    }
    if args.dry_run {
        say_dry(&args, running.attached, running.is_old());
        return Ok(ExitCode::SUCCESS);
    }
    let mut output = open_output(&args)?;
    let mut diagnostics = crate::streams::stderr();
    let mut sinks = ProgramSinks { output: &mut output, diagnostics: &mut diagnostics, maps: None };
    let is_events = options.mode == ProgramMode::Events;
    if is_events {
        say_attached(&args, running.attached, running.is_old());
    }
    if !args.quiet && is_events {
        running.announce(&mut sinks)?;
    }
    messages::notify_attached();
    let mut all_passed = true;
    if options.mode != ProgramMode::Events {
        all_passed = match running.run_tests(options.mode, &mut sinks) {
            Ok(passed) => passed,
            Err(e) => return text.fail(&e),
        };
    }
    let running = follow_program(running, &mut target, &signals, &mut sinks)?;
    // From here on a second Ctrl-C ends immediately.
    drop(signals);
    let summary = running.finish(&mut sinks)?;
    let _ = target.end();
    let ledger = Ledger::from_notes(summary.notes);
    say!("{}", ledger.to_text(""));
    let status = if all_passed { summary.status } else { 1 };
    Ok(crate::exit::of_command(Some(status), &ledger, args.strict))
}

impl Args {
    fn mode(&self) -> ProgramMode {
        match (self.mode.as_deref(), self.test, self.bench) {
            (Some("test"), ..) | (_, true, _) => ProgramMode::Tests,
            (Some(_), ..) | (.., true) => ProgramMode::Benchmarks,
            _ => ProgramMode::Events,
        }
    }
}

fn header_of_flag(name: &str) -> String {
    if name.starts_with(['/', '.']) { name.to_owned() } else { format!("./{name}") }
}

/// The machine, as far as the flags let it be seen.
fn machine_facts(args: &Args, pid: Option<u32>) -> anyhow::Result<MachineFacts> {
    let mut facts = MachineFacts::new(pid);
    facts.command = args.command.as_deref().and_then(program_of);
    facts.is_unsafe = args.is_unsafe;
    facts.header_directories = args.include_directories.clone();
    if let Some(expression) = &args.probe_filter {
        let filter = ProbeFilter::new(expression);
        let refused = |e| anyhow::anyhow!("Invalid --probe-filter regex {expression:?}: {e}");
        facts.probe_filter = Some(filter.map_err(refused)?);
    }
    if let Some(path) = &args.traceable_functions {
        let list = FunctionList::read(path);
        let mut list =
            list.with_context(|| format!("Could not read functions from {}", path.display()))?;
        list.is_binding = !args.is_unsafe;
        facts.traceable = Some(list);
    }
    if !args.debuginfo.is_empty() {
        // Debug files are judged by build-id or checksum in any case, which is what a `+` asks for.
        let plain = |path: &PathBuf| match path.to_str().and_then(|path| path.strip_prefix('+')) {
            Some(path) => PathBuf::from(path),
            None => path.clone(),
        };
        choose_debug_directories(args.debuginfo.iter().map(plain).collect());
    }
    Ok(facts)
}

/// Runs a program, compiled for it, in user space.
fn run_in_rings(
    args: &Args,
    text: &ProgramText,
    (program, options): (CompiledProgram, &ProgramOptions),
    mut target: RunTarget,
    reason: &UserSpaceReason,
) -> anyhow::Result<ExitCode> {
    if args.preflight || args.budget.is_some() {
        anyhow::bail!("--preflight and --budget are for programs that run in the kernel");
    }
    let wanted = program.config.iter().find(|(key, _)| key == "perf_rb_pages");
    let pages = wanted.and_then(|(_, pages)| ring(pages).ok()).map(|ring| ring.0);
    let program = match InterpretedProgram::new(program, options) {
        Ok(program) => program,
        Err(e) => return text.fail(&e),
    };
    let scope = RingScope {
        pages,
        at_least: target.pid(),
        // A program says itself how large its rings are.
        larger: Some("raise perf_rb_pages in the config block"),
        ..RingScope::of(Target::System)
    };
    let run = RingRun::open(program, scope)?;
    if args.dry_run {
        say_dry(args, run.probes(), run.is_old());
        return Ok(ExitCode::SUCCESS);
    }
    let mut output = open_output(args)?;
    let mut diagnostics = crate::streams::stderr();
    let mut sinks = ProgramSinks { output: &mut output, diagnostics: &mut diagnostics, maps: None };
    say_attached(args, run.probes(), run.is_old());
    if !args.quiet {
        run.announce(&mut sinks)?;
    }
    messages::notify_attached();
    let end = Cell::new(None);
    let summary = run.follow(&mut target, reason, &mut sinks, &end)?;
    let _ = target.end();
    let ledger = Ledger::from_notes(summary.notes);
    say!("{}", ledger.to_text(""));
    Ok(crate::exit::of_command(Some(summary.status), &ledger, args.strict))
}

/// Says how many probes were attached by `--dry-run`, where bpftrace prints nothing.
fn say_dry(args: &Args, probes: usize, is_old: bool) {
    if CalledName::get() != CalledName::Bpftrace {
        say_attached(args, probes, is_old);
    }
}

/// Says how many probes are attached; bpftrace 0.17 did on standard output.
fn say_attached(args: &Args, probes: usize, is_old: bool) {
    if !args.quiet && !is_old && args.form != "json" {
        sayln!("Attached {}", counted(probes as u64, "probe", "probes"));
    }
}

fn list(pattern: &str, with_arguments: bool, facts: &MachineFacts) -> anyhow::Result<ExitCode> {
    crate::screen::page();
    let mut out = BufWriter::with_capacity(1 << 16, crate::streams::stdout().lock());
    let listed = list_points(pattern, with_arguments, facts, &mut out)?;
    out.flush()?;
    match listed {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(e) => anyhow::bail!("{e}"),
    }
}

fn open_output(args: &Args) -> anyhow::Result<Box<dyn Write>> {
    let sink: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(
            output_file::open(path, SHARED)
                .with_context(|| format!("cannot write {}", path.display()))?,
        ),
        // Files and pipes get the bytes that bpftrace writes.
        None => crate::streams::users_stdout(),
    };
    // Without buffering each message is a write; else they are collected until the ring is empty.
    Ok(match args.buffering.as_str() {
        "none" => sink,
        _ => Box::new(BufWriter::with_capacity(1 << 16, sink)),
    })
}

//! `kymo count`: events counted and measured in the kernel, by flags. The flags become a
//! program of `kymo run`'s language, which `--show-program` shows.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_bpf::{CountMeasure, CountRequest, write_count_program};
use kymo_kernel::process::{Signal, Signals};
use kymo_programs::{
    MachineFacts, OutputForm, ProgramError, ProgramOptions, ProgramSinks, RunningProgram,
    compile_program,
};
use kymo_view::Ledger;

use super::program_run::{RunTarget, follow_program};

/// Flags of `kymo count`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Fields are those of the event (kymo list -v EVENT shows them); comm, pid, tid, cpu, uid, cgroup, stack,
ustack and event are known of each. Text behind a pointer is written str(FIELD).

EXAMPLES
  kymo count -e raw_syscalls:sys_enter --by comm --top 10
  kymo count -e sched:sched_switch --by stack -i 1000
  kymo count -e block:block_rq_issue --hist bytes --by comm
  kymo count --latency 'sched:sched_wakeup -> sched:sched_switch by args.pid = next_pid'
  kymo count -e syscalls:sys_exit_read --sum ret --filter 'ret > 0' -- cat /etc/hosts")]
pub(crate) struct Args {
    /// Events: SYSTEM:NAME with wildcards, software events, or probes (kprobe:vfs_read)
    #[arg(short = 'e', long, value_name = "EVENT", value_delimiter = ',')]
    event: Vec<String>,
    /// Count only events whose fields fit
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Count by these fields
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    by: Vec<String>,
    #[command(flatten)]
    measure: Measure,
    /// Show only so many entries, largest first
    #[arg(long, value_name = "N", default_value = "0")]
    top: u32,
    /// Show and begin anew every so many milliseconds
    #[arg(short = 'i', long, value_name = "MS")]
    interval: Option<u64>,
    /// Count events of this process
    #[arg(short = 'p', long, value_name = "PID")]
    pid: Option<u32>,
    /// Count events of all processes while the command runs
    #[arg(short = 'a', long)]
    all: bool,
    /// Form of the output
    #[arg(short = 'f', value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    form: String,
    /// Show the program that the flags become, and do not run it
    #[arg(long)]
    show_program: bool,
    /// Exit with status 3 if anything was lost
    #[arg(long)]
    strict: bool,
    /// Command to run; its own events are counted, not those of its children (-a: all)
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What is measured, if not how many.
#[derive(clap::Args)]
#[group(multiple = false)]
struct Measure {
    /// Histogram of a field by powers of two
    #[arg(long, value_name = "FIELD")]
    hist: Option<String>,
    /// Histogram of a field in equal steps
    #[arg(long, value_name = "FIELD:FROM:TO:STEP")]
    lhist: Option<String>,
    /// Sum of a field
    #[arg(long, value_name = "FIELD")]
    sum: Option<String>,
    /// Average of a field
    #[arg(long, value_name = "FIELD")]
    avg: Option<String>,
    /// Smallest value of a field
    #[arg(long, value_name = "FIELD")]
    min: Option<String>,
    /// Largest value of a field
    #[arg(long, value_name = "FIELD")]
    max: Option<String>,
    /// Count, average and sum of a field
    #[arg(long, value_name = "FIELD")]
    stats: Option<String>,
    /// Time between two events: 'A -> B by KEY' or 'A -> B by KEY = KEY'
    #[arg(long, value_name = "A -> B by KEY")]
    latency: Option<String>,
}

impl Measure {
    fn meant(self) -> anyhow::Result<CountMeasure> {
        use CountMeasure as M;
        if let Some(text) = self.lhist {
            let parts: Vec<&str> = text.split(':').collect();
            let [field, from, to, step] = parts.as_slice() else {
                bail!("--lhist takes FIELD:FROM:TO:STEP, not {text:?}");
            };
            let number = |text: &str| {
                text.parse::<i64>().with_context(|| format!("--lhist: not a number: {text:?}"))
            };
            return Ok(M::LinearHistogram(
                (*field).to_owned(),
                number(from)?,
                number(to)?,
                number(step)?,
            ));
        }
        let choices = [
            self.hist.map(M::Histogram),
            self.sum.map(M::Sum),
            self.avg.map(M::Average),
            self.min.map(M::Minimum),
            self.max.map(M::Maximum),
            self.stats.map(M::Statistics),
            self.latency.map(M::Latency),
        ];
        Ok(choices.into_iter().flatten().next().unwrap_or_default())
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut target = RunTarget::of_words(args.pid, &args.command)?;
    let pid = if args.all { args.pid } else { target.pid() };
    let request = CountRequest {
        events: args.event,
        filter: args.filter,
        by: args.by,
        measure: args.measure.meant()?,
        pid,
        interval_ms: args.interval,
        top: args.top,
    };
    let text = write_count_program(&request).map_err(anyhow::Error::msg)?;
    if args.show_program {
        io::stdout().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let facts = MachineFacts::new(args.pid);
    let options = ProgramOptions {
        pid,
        child_pid: target.child_pid(),
        form: if args.form == "json" { OutputForm::Json } else { OutputForm::Text },
        ..ProgramOptions::default()
    };
    let program = compile_program(&text, &options, &facts).map_err(|e| explain(&e))?;
    let ends = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];
    let signals = Signals::listen(&ends).context("cannot listen for signals")?;
    let running = RunningProgram::start(program, &options, &facts).map_err(|e| explain(&e))?;
    let (mut output, mut diagnostics) = (io::stdout(), anstream::stderr());
    let mut sinks = ProgramSinks { output: &mut output, diagnostics: &mut diagnostics };
    let running = follow_program(running, &mut target, &signals, &mut sinks)?;
    // From here on a second Ctrl-C ends at once.
    drop(signals);
    let summary = running.finish(&mut sinks)?;
    target.end();
    let ledger = Ledger::from_notes(summary.notes);
    say!("{}", ledger.to_text(""));
    Ok(crate::exit::of_command(Some(summary.status), &ledger, args.strict))
}

/// The error without a place in a program that the user did not write.
fn explain(error: &ProgramError) -> anyhow::Error {
    match error {
        ProgramError::Compile(messages) => {
            let texts: Vec<&str> = messages.iter().map(|m| m.text.as_str()).collect();
            anyhow::anyhow!("{}", texts.join("; "))
        }
        other => anyhow::anyhow!("{other}"),
    }
}

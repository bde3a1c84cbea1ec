//! `--tracer`: functions as the kernel runs them, in the text of the kernel's own
//! `trace_pipe`.
//!
//! The function tracer works in an instance. The function-graph tracer of most
//! kernels does so only in the top one, which belongs to the user: then what is
//! changed there is put back, and an empty instance stands for the change, so that
//! the next kymo puts it back if this one is killed.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_kernel::descriptors;
use kymo_kernel::ftrace::{Instance, TraceDir, wait_readable};
use kymo_kernel::process::{GatedChild, Signal, Signals};
use kymo_kernel::target;
use kymo_kernel::task_ends::TaskEnds;
use kymo_kernel::tracefs::Tracefs;

use super::Args;
use crate::commands::tracing::{self, TOP_IN_USE};

/// Flags for tracers.
#[derive(clap::Args)]
pub(super) struct TracerArgs {
    /// Kernel tracer: function, function_graph, …
    ///
    /// Traces functions instead of events. One of tracefs' available_tracers; the kernel formats
    /// the text.
    #[arg(long, value_name = "TRACER", conflicts_with_all = ["event", "output", "json", "instance"])]
    tracer: Option<String>,
    /// Only these functions (name or pattern; repeatable)
    #[arg(short = 'l', long = "function", value_name = "FUNC", requires = "tracer")]
    functions: Vec<String>,
    /// Exclude these functions
    #[arg(short = 'N', long = "no-function", value_name = "FUNC", requires = "tracer")]
    not: Vec<String>,
    /// Only these functions and their callees (function_graph)
    #[arg(short = 'G', long = "graph-function", value_name = "FUNC", requires = "tracer")]
    graph: Vec<String>,
    /// Maximum depth of calls (function_graph)
    #[arg(long, value_name = "N", requires = "tracer")]
    max_depth: Option<u32>,
}

impl TracerArgs {
    pub(super) fn given(&self) -> bool {
        self.tracer.is_some()
    }
}

/// Between two reads.
const TICK: Duration = Duration::from_millis(20);

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let tracer = args.tracer.tracer.as_deref().unwrap_or("function");
    let signals = Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup])?;
    let tracefs = tracing::open()?;
    let place = TracerDirectory::choose(&tracefs, tracer)?;
    place.configure(args)?;
    let mut child =
        if args.command.is_empty() { None } else { Some(GatedChild::spawn(&args.command)?) };
    let mut tids = target::threads_of_all(&args.pids()?)?;
    if args.command_alone() {
        tids.extend(child.as_ref().map(GatedChild::pid));
    }
    place.only(&tids, !args.no_inherit)?;
    place.dir().set_tracer(tracer)?;
    crate::streams::stdout().write_all(header(place.dir())?.as_bytes())?;
    let path = place.dir().path("trace_pipe");
    let mut pipe =
        descriptors::open_nonblocking(&path).with_context(|| path.display().to_string())?;
    place.dir().set_tracing(true)?;
    if let Some(child) = &mut child {
        child.release()?;
    }
    let result = copy(args, &signals, &place, &mut pipe, child.as_mut());
    drop(pipe);
    drop(place);
    let signalled = result?;
    let code = match &mut child {
        Some(child) => {
            let exit = if signalled { signals.end_command(child)? } else { child.wait()? };
            exit.code()
        }
        None => 0,
    };
    Ok(ExitCode::from(code))
}

/// Copies the kernel's text until the end; returns whether a signal ended it.
fn copy(
    args: &Args,
    signals: &Signals,
    place: &TracerDirectory,
    pipe: &mut std::fs::File,
    mut child: Option<&mut GatedChild>,
) -> anyhow::Result<bool> {
    let until = args.timeout.and_then(|t| Instant::now().checked_add(t));
    let mut ends = TaskEnds::of_processes(&args.pids()?);
    let (mut left, mut over, mut signalled) = (args.count, false, false);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let n = match pipe.read(&mut buffer) {
            Ok(n) => n,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(e) => return Err(e).context("trace_pipe"),
        };
        let text = buffer.get(..n).unwrap_or_default();
        let text = first_lines(text, &mut left);
        let mut out = crate::streams::stdout().lock();
        out.write_all(text).and_then(|()| out.flush())?;
        if left == Some(0) {
            return Ok(signalled);
        }
        if n > 0 {
            continue;
        }
        if over {
            return Ok(signalled);
        }
        wait_readable(&[signals.as_fd(), pipe.as_fd()], Some(TICK))?;
        signalled = signals.next()?.is_some();
        let ended = match &mut child {
            Some(child) => child.try_wait()?.is_some(),
            None => ends.all_ended()?,
        };
        over = signalled || ended || until.is_some_and(|u| u <= Instant::now());
        if over {
            place.dir().set_tracing(false)?;
        }
    }
}

/// As many lines as may still be shown.
fn first_lines<'t>(text: &'t [u8], left: &mut Option<u64>) -> &'t [u8] {
    let Some(left) = left else { return text };
    for (at, _) in text.iter().enumerate().filter(|(_, b)| **b == b'\n') {
        *left = left.saturating_sub(1);
        if *left == 0 {
            return text.get(..=at).unwrap_or(text);
        }
    }
    text
}

/// Trace directory in which the tracer runs. Dropping it disables the tracer.
enum TracerDirectory {
    Own(Instance),
    /// The top one; the instance says so to others.
    Top {
        top: TraceDir,
        /// Whether it recorded before.
        tracing: bool,
        #[expect(dead_code, reason = "held for its drop")]
        mark: Instance,
    },
}

impl TracerDirectory {
    fn choose(tracefs: &Tracefs, tracer: &str) -> anyhow::Result<TracerDirectory> {
        let top = TraceDir::top(tracefs);
        if !top.tracers()?.iter().any(|t| t == tracer) {
            bail!(
                "this kernel has no tracer {tracer:?}; available_tracers: {}",
                top.tracers()?.join(" ")
            );
        }
        let instance = Instance::create(tracefs, "tracer")?;
        if instance.tracers()?.iter().any(|t| t == tracer) {
            return Ok(TracerDirectory::Own(instance));
        }
        drop(instance);
        let used = top.tracer()?;
        if used != "nop" {
            bail!(
                "{tracer} runs only in the top instance, which is in use with the tracer {used}; \
                 writing nop to {} ends that",
                top.path("current_tracer").display()
            );
        }
        for file in
            ["set_ftrace_filter", "set_ftrace_notrace", "set_ftrace_pid", "set_graph_function"]
        {
            // Nothing set reads as a comment, or as the words `no pid`.
            let text = top.read(file).unwrap_or_default();
            let mine = |l: &&str| !l.is_empty() && !l.starts_with('#') && *l != "no pid";
            if text.lines().any(|l| mine(&l)) {
                let path = top.path(file);
                bail!(
                    "{tracer} runs only in the top instance, and somebody's {} is set there",
                    path.display()
                );
            }
        }
        let tracing = top.tracing()?;
        let mark = Instance::create(tracefs, TOP_IN_USE)?;
        top.set_tracing(false)?;
        Ok(TracerDirectory::Top { top, tracing, mark })
    }

    fn dir(&self) -> &TraceDir {
        match self {
            TracerDirectory::Own(instance) => instance,
            TracerDirectory::Top { top, .. } => top,
        }
    }

    fn configure(&self, args: &Args) -> anyhow::Result<()> {
        let dir = self.dir();
        let lists = [
            ("set_ftrace_filter", &args.tracer.functions),
            ("set_ftrace_notrace", &args.tracer.not),
            ("set_graph_function", &args.tracer.graph),
        ];
        for (file, functions) in lists {
            for function in functions.iter().flat_map(|f| f.split(',')) {
                // Some kernels report an unknown function only when the file is closed, where the
                // error is lost: a function that is not in the list was not accepted.
                let before = dir.read(file).unwrap_or_default();
                dir.add(file, function).with_context(|| format!("function {function:?}"))?;
                let after = dir.read(file)?;
                if after == before && !after.lines().any(|l| l.trim() == function) {
                    bail!("no function that can be traced is called {function:?}");
                }
            }
        }
        if let Some(depth) = args.tracer.max_depth {
            dir.set("max_graph_depth", &depth.to_string()).context("--max-depth")?;
        }
        let cpus = args.cpus()?;
        if let TracerDirectory::Top { .. } = self {
            if args.buffer_size.is_some() || !cpus.is_empty() {
                bail!("this tracer runs only in the top instance, where -C and -m are the user's");
            }
            return Ok(());
        }
        if let Err(e) = dir.set_clock(&args.clock)
            && args.clock != "mono"
        {
            return Err(e).context("--clock");
        }
        if let Some(size) = args.buffer_size {
            dir.set_buffer_size_kb(size.div_ceil(1024)).context("--buffer-size")?;
        }
        if !cpus.is_empty() {
            dir.set_cpus(&cpus).context("-C")?;
        }
        Ok(())
    }

    /// Only these tasks' functions, and what they start.
    fn only(&self, tids: &[u32], follow: bool) -> anyhow::Result<()> {
        if tids.is_empty() {
            return Ok(());
        }
        if follow && self.dir().option("function-fork").is_some() {
            self.dir().set_option("function-fork", true)?;
        }
        for tid in tids {
            self.dir().add("set_ftrace_pid", &tid.to_string())?;
        }
        Ok(())
    }
}

impl Drop for TracerDirectory {
    fn drop(&mut self) {
        match self {
            // Its own guard does the rest.
            TracerDirectory::Own(instance) => drop(instance.set_tracer("nop")),
            TracerDirectory::Top { top, tracing, .. } => {
                tracing::reset_tracer(top);
                let _ = top.set_tracing(*tracing);
            }
        }
    }
}

/// The lines that begin the directory's own `trace` file.
fn header(dir: &TraceDir) -> anyhow::Result<String> {
    use std::io::{BufRead as _, BufReader};
    let path = dir.path("trace");
    let file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
    let mut header = String::new();
    for line in BufReader::new(file).lines() {
        let line = line.with_context(|| path.display().to_string())?;
        if !line.starts_with('#') {
            break;
        }
        header.push_str(&line);
        header.push('\n');
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_lines_are_shown() {
        let mut left = Some(3);
        assert_eq!(first_lines(b"a\nb\n", &mut left), b"a\nb\n");
        assert_eq!(first_lines(b"c\nd\n", &mut left), b"c\n");
        assert_eq!(left, Some(0));
        assert_eq!(first_lines(b"x\n", &mut None), b"x\n");
    }
}

//! Readings of `/proc/schedstat` before and after a command, or some time.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use kymo_files::perfdata::Feature;
use kymo_files::perfdata::schedstat::{domain_info, schedstat_records};
use kymo_files::perfdata::write::PerfDataWriter;
use kymo_files::perfdata::write::features;
use kymo_kernel::cpus;
use kymo_kernel::process::{GatedChild, Signal, Signals};
use kymo_kernel::schedstat::{SchedStatsSwitch, read_schedstat};
use kymo_kernel::system::SystemRoot;
use kymo_model::schedstat::SchedStats;

use crate::error::RecordError;
use crate::{facts, output};

/// Options of reading scheduler statistics.
#[derive(Clone, Debug, Default)]
pub struct SchedStatsOptions {
    /// The command that is waited for; empty: until Ctrl-C.
    pub command: Vec<OsString>,
    /// Only these CPUs; empty: all.
    pub cpus: Vec<u32>,
    /// The longest time; the command is ended with it.
    pub timeout: Option<Duration>,
}

/// Scheduler statistics before and after.
#[derive(Clone, Debug)]
pub struct SchedStatsReading {
    /// The counters before.
    pub before: SchedStats,
    /// The counters after.
    pub after: SchedStats,
    /// The command's exit status.
    pub exit: Option<u8>,
}

/// Reads the scheduler's counters, waits, reads them again. Counting is switched on for that
/// time if it was off.
pub fn measure(options: &SchedStatsOptions) -> Result<SchedStatsReading, RecordError> {
    let wanted = [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit];
    let signals = Signals::listen(&wanted).map_err(system("cannot listen for signals"))?;
    reading(&options.cpus)?;
    let mut child =
        if options.command.is_empty() { None } else { Some(GatedChild::spawn(&options.command)?) };
    let switch = SchedStatsSwitch::on().map_err(RecordError::SchedStatsSwitch)?;
    let before = reading(&options.cpus)?;
    if let Some(child) = &mut child {
        child.release()?;
    }
    wait(&signals, child.as_mut(), options.timeout)?;
    let after = reading(&options.cpus)?;
    drop(switch);
    let exit = match &mut child {
        Some(child) => {
            Some(signals.end_command(child).map_err(system("the command's end"))?.code())
        }
        None => None,
    };
    Ok(SchedStatsReading { before, after, exit })
}

fn system(what: &'static str) -> impl Fn(io::Error) -> RecordError {
    move |source| RecordError::System { what, source }
}

fn reading(cpus: &[u32]) -> Result<SchedStats, RecordError> {
    let text = read_schedstat().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => RecordError::NoSchedStats,
        _ => RecordError::System { what: "cannot read /proc/schedstat", source: e },
    })?;
    let mut stats = SchedStats::parse(&text)?;
    let online: Vec<u32> = stats.cpus.iter().map(|c| c.cpu).collect();
    if let Some(absent) = cpus.iter().find(|cpu| !online.contains(cpu)) {
        return Err(RecordError::Cpu(*absent));
    }
    if !cpus.is_empty() {
        stats.cpus.retain(|c| cpus.contains(&c.cpu));
    }
    Ok(stats)
}

/// Waits until the command ended, the time is over or the user has enough of it.
fn wait(
    signals: &Signals,
    mut child: Option<&mut GatedChild>,
    timeout: Option<Duration>,
) -> Result<(), RecordError> {
    let end = timeout.map(|t| Instant::now() + t);
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        signals.wait(child.as_deref(), left).map_err(system("cannot wait for signals"))?;
        let mut over = left.is_some_and(|left| left.is_zero());
        while let Some(signal) = signals.next().map_err(system("cannot read signals"))? {
            over |= signal.is_end();
        }
        if let Some(child) = &mut child {
            over |= child.try_wait().map_err(system("the command's end"))?.is_some();
        }
        if over {
            return Ok(());
        }
    }
}

/// Writes readings into a perf.data that `perf sched stats report` reads, too. Gives its size.
pub fn write_file(
    path: &Path,
    force: bool,
    readings: &[&SchedStats],
    command_line: &[String],
    version: &str,
) -> Result<u64, RecordError> {
    let (file, is_pipe) = output::create(path, force)?;
    write((file, is_pipe), readings, command_line, version).map_err(|source| RecordError::Write {
        path: path.to_owned(),
        source,
        kept: 0,
    })
}

fn write(
    (file, is_pipe): (File, bool),
    readings: &[&SchedStats],
    command_line: &[String],
    version: &str,
) -> io::Result<u64> {
    let mut sections = facts::of_kernel();
    let online = cpus::online().len();
    let available = SystemRoot::machine().possible_cpus().len().max(online);
    sections.insert(Feature::VERSION, features::string(version));
    sections.insert(Feature::NRCPUS, features::nr_cpus(available as u32, online as u32));
    sections.insert(Feature::CMDLINE, features::strings(command_line));
    if let Some(last) = readings.last() {
        sections.insert(Feature::CPU_DOMAIN_INFO, domain_info(last));
    }
    let mut writer = if is_pipe {
        PerfDataWriter::pipe(Box::new(file), Vec::new(), &sections, None)?
    } else {
        PerfDataWriter::file(file, Vec::new(), &sections)?
    };
    for reading in readings {
        writer.record(&schedstat_records(reading))?;
    }
    writer.finish(&sections)
}

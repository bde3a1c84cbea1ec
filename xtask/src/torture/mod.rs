//! `cargo xtask torture`: recorders under faults, drawn from a seed. After each round the recording
//! opens, what is seen and what is stated as lost make up the truth where the recorder lived, and
//! nothing is left behind in the machine after the next start.

mod fault;
mod leftovers;
mod recorder;

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use kymo_testkit::{Workload, tracepoint_library};

use crate::cargo;
use crate::chance::Chance;
use fault::Fault;
use leftovers::Leftovers;
use recorder::{Recorder, Round};

pub(crate) const USAGE: &str = "\
\x20 torture [--rounds N] [--seed S] [--round K] [--program KYMO]
                      recorders under faults; prints the seed. --round runs one round of it
";

/// A recorder that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Processes or threads beside the calls.
const STORM: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void *body(void *unused) { return unused; }
int main(int argc, char **argv) {
    int calls = atoi(argv[1]), n = atoi(argv[3]);
    for (int i = 0; i < calls; i++) syscall(SYS_getppid);
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        if (!strcmp(argv[2], "threads")) {
            if (!pthread_create(&thread, 0, body, 0)) pthread_detach(thread);
        } else if (!fork()) _exit(0);
        else wait(0);
    }
    return 0;
}
"#;

/// Steps with a tracepoint of its own, and processes or threads behind them.
const STEPS: &str = r#"
#include "kymo_tracepoint.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define CALL_FIELDS(F) F(u64, number)
KYMO_TRACEPOINT(torture, call, KYMO_INFO, "{number}", CALL_FIELDS)
__attribute__((noinline)) static void step(uint64_t number) {
    kymo_emit(torture, call, number);
    __asm__ volatile("");
}
static void *body(void *unused) { return unused; }
int main(int argc, char **argv) {
    uint64_t steps = strtoull(argv[1], 0, 10);
    int n = argc > 3 ? atoi(argv[3]) : 0;
    for (uint64_t i = 0; i < steps; i++) step(i);
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        if (!strcmp(argv[2], "threads")) {
            if (!pthread_create(&thread, 0, body, 0)) pthread_detach(thread);
        } else if (!fork()) _exit(0);
        else wait(0);
    }
    return 0;
}
"#;

/// State that all rounds share.
struct Ground {
    kymo: PathBuf,
    calls: Workload,
    storm: Workload,
    steps: String,
    /// Directory of `steps`.
    _programs: tempfile::TempDir,
    directory: tempfile::TempDir,
}

pub(crate) fn main(args: &[&str]) -> anyhow::Result<()> {
    let (mut rounds, mut only, mut program) = (200, None, None);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut seed = now.as_nanos() as u64;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = args.next().with_context(|| format!("{arg} wants a value\n\n{USAGE}"))?;
        let number = || value.parse().with_context(|| format!("{arg} {value}"));
        match *arg {
            "--rounds" => rounds = number()?,
            "--seed" => seed = number()?,
            "--round" => only = Some(number()?),
            "--program" => program = Some(PathBuf::from(value)),
            other => bail!("torture has no option {other}\n\n{USAGE}"),
        }
    }
    run(seed, only.map_or(0..rounds, |round| round..round + 1), program)
}

fn run(seed: u64, rounds: std::ops::Range<u64>, program: Option<PathBuf>) -> anyhow::Result<()> {
    println!("torture: --seed {seed}");
    let kymo = program.map_or_else(cargo::build_release, Ok)?;
    let programs = tempfile::tempdir().context("a directory for programs")?;
    let ground = Ground {
        kymo,
        steps: steps(programs.path())?,
        _programs: programs,
        calls: Workload::syscalls(),
        storm: Workload::compile("storm", STORM),
        directory: tempfile::tempdir().context("a directory for recordings")?,
    };
    let (mut kept, mut lossy) = (0, 0);
    for round in rounds {
        let mut chance = Chance::of_round(seed, round);
        let recorder = *chance.pick(&Recorder::ALL);
        let fault = Fault::draw(&mut chance);
        let what = format!("--seed {seed} --round {round}: {recorder:?} under {fault:?}");
        let outcome = one(&ground, recorder, fault, &mut chance).with_context(|| what.clone())?;
        kept += u64::from(outcome.is_whole);
        lossy += u64::from(outcome.lost > 0);
    }
    println!(
        "torture: all rounds held; {kept} results complete, {lossy} of them with stated losses"
    );
    Ok(())
}

/// Compiles [`STEPS`]; gives its path.
fn steps(directory: &Path) -> anyhow::Result<String> {
    let (source, program) = (directory.join("steps.c"), directory.join("steps"));
    std::fs::write(&source, STEPS).with_context(|| source.display().to_string())?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O1", "-rdynamic", "-I"]);
    gcc.arg(crate::root().join("crates/kymo-tracepoint/include")).arg(source);
    gcc.arg(tracepoint_library(&crate::target().join("torture")));
    gcc.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
    cargo::run_command(gcc)?;
    Ok(program.display().to_string())
}

/// Result of a round.
#[derive(Default)]
struct RoundOutcome {
    /// Whether the sum of seen and lost events is right.
    is_whole: bool,
    lost: u64,
}

/// A recorder that runs, with where its words go.
struct Running {
    child: Child,
    directory: PathBuf,
    name: String,
}

fn one(
    ground: &Ground,
    recorder: Recorder,
    fault: Fault,
    chance: &mut Chance,
) -> anyhow::Result<RoundOutcome> {
    let before = Leftovers::take();
    let small_ring = chance.between(0, 1) == 0;
    let truth = chance.between(1, 200_000);
    let storm = if recorder.wants_steps() { &ground.steps } else { ground.storm.arg() };
    let program = match fault {
        Fault::Processes(n) => program(storm, &[truth, 0, n], "processes"),
        Fault::Threads(n) => program(storm, &[truth, 0, n], "threads"),
        _ if recorder.wants_steps() => vec![ground.steps.clone(), truth.to_string()],
        _ => vec![ground.calls.arg().to_owned(), truth.to_string()],
    };
    let copies = if let Fault::Together(n) = fault { n } else { 1 };
    let disk =
        if let Fault::FullDisk(kb) = fault { Some(SmallDisk::mount(ground, kb)?) } else { None };
    let mut running = Vec::new();
    for copy in 0..copies {
        let directory = match &disk {
            Some(disk) => disk.0.clone(),
            None => ground.directory.path().join(copy.to_string()),
        };
        std::fs::create_dir_all(&directory).context("directory")?;
        // No process has the number 0: what is left of a session has an owner that is gone.
        let own = format!("t{}c{copy}", std::process::id());
        let name = if recorder == Recorder::Probe { own } else { format!("0-{own}") };
        let round = Round {
            kymo: &ground.kymo,
            directory: &directory,
            small_ring,
            program: &program,
            name: &name,
        };
        let mut command = limited(recorder.command(&round), &fault.limits());
        if recorder.is_script() {
            command.process_group(0);
        }
        // Messages go to files outside the small disk, so that no reader is needed while it runs.
        let words =
            |name: &str| File::create(ground.directory.path().join(format!("{name}-{copy}")));
        command.stdin(Stdio::null()).stdout(words("out")?).stderr(words("err")?);
        let child = command.spawn();
        match child {
            Ok(child) => running.push(Running { child, directory, name }),
            // A limit that is too small for any program.
            Err(_) if fault.may_fail() => return Ok(RoundOutcome::default()),
            Err(e) => return Err(e).context("cannot start kymo"),
        }
    }
    for (wait, signal) in fault.signals(chance) {
        std::thread::sleep(wait);
        // The child has not been reaped, so its number is its own. It may have ended, which changes
        // nothing.
        for first in running.iter().take(1) {
            let group = if recorder.is_script() { "-" } else { "" };
            let to = format!("{group}{}", first.child.id());
            let _ = Command::new("kill").args([signal, "--", &to]).output();
        }
    }
    let mut outcome = RoundOutcome { is_whole: true, lost: 0 };
    for (copy, mut run) in running.into_iter().enumerate() {
        let status = wait(&mut run.child)?;
        if recorder.is_script() {
            wait_for_group(run.child.id())?;
        }
        let words = |name: &str| text(&ground.directory.path().join(format!("{name}-{copy}")));
        let (out, err) = (words("out")?, words("err")?);
        ensure!(!err.contains("panicked"), "a panic: {err}");
        let found = judge(ground, recorder, fault, &run.directory, status, (&out, &err), truth);
        recorder.remove(&ground.kymo, &run.directory, &run.name);
        let found = found?;
        outcome.is_whole &= found.is_whole;
        outcome.lost += found.lost;
    }
    drop(disk);
    clear(ground.directory.path())?;
    // The next start that traces removes what a killed one left.
    let next = ["trace", "-e", "sched:sched_process_exit", "--", "true"];
    let next = Command::new(&ground.kymo).args(next).output().context("cannot run kymo")?;
    ensure!(
        next.status.success(),
        "the next start fails: {}",
        String::from_utf8_lossy(&next.stderr)
    );
    let own: Vec<&str> = vec![ground.calls.arg(), ground.storm.arg(), &ground.steps];
    if let Some(left) = before.left_behind(&own) {
        bail!("left behind: {left}");
    }
    Ok(outcome)
}

fn program(work: &str, numbers: &[u64; 3], kind: &str) -> Vec<String> {
    vec![work.to_owned(), numbers[0].to_string(), kind.to_owned(), numbers[2].to_string()]
}

/// The command behind the words that set its limits.
fn limited(command: Command, limits: &[String]) -> Command {
    let Some((program, arguments)) = limits.split_first() else { return command };
    let mut limited = Command::new(program);
    limited.args(arguments).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited
}

/// Whether the result is what it may be.
fn judge(
    ground: &Ground,
    recorder: Recorder,
    fault: Fault,
    directory: &Path,
    status: ExitStatus,
    (out, err): (&str, &str),
    truth: u64,
) -> anyhow::Result<RoundOutcome> {
    let file = recorder.file(directory);
    if status.success() && !matches!(fault, Fault::Terminate | Fault::Interrupt) {
        let held = recorder.held(&ground.kymo, directory, out, err)?;
        // A ring that could not be opened is named; how much is in it is not known then.
        // A program without memory for a page of its own cannot say what it had no memory for.
        let is_excused = match fault {
            Fault::Memory(_) => err.contains("no program had such events"),
            _ => false,
        };
        let is_named = fault.may_fail() && err.contains("  program: cannot ");
        if (is_named || is_excused) && held.seen <= truth {
            return Ok(RoundOutcome::default());
        }
        ensure!(
            recorder.agrees(held, truth, fault.tasks()),
            "{held:?} of {truth} calls: {out}\n{err}"
        );
        return Ok(RoundOutcome { is_whole: true, lost: held.lost });
    }
    ensure!(fault.may_fail(), "{status}: {err}");
    // A signal may come before kymo listens to it.
    let by_signal = status.code().is_none();
    ensure!(by_signal || status.success() || !err.is_empty(), "{status} in silence");
    let sent = matches!(fault, Fault::Kill | Fault::Terminate | Fault::Interrupt);
    ensure!(!by_signal || sent, "{status}: {err}");
    if recorder.writes() && file.exists() && std::fs::metadata(&file)?.len() > 0 {
        let seen = recorder.calls(&ground.kymo, &file)?;
        ensure!(seen <= truth, "{seen} of {truth} calls");
    }
    Ok(RoundOutcome::default())
}

/// Waits for the end; who does not come to it is ended, and it is a failure.
fn wait(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().context("waiting for kymo")? {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // It is a child of ours that still runs.
    let _ = child.kill();
    let _ = child.wait();
    bail!("it does not end")
}

/// Waits until the commands of a shell that was ended have ended, too.
fn wait_for_group(group: u32) -> anyhow::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let there = Command::new("kill").args(["-0", "--", &format!("-{group}")]).output();
        if !there.context("cannot run kill")?.status.success() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("its commands do not end")
}

fn text(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Removes what the rounds wrote.
fn clear(directory: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// A file system in memory that holds little, gone when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(ground: &Ground, kilobytes: u64) -> anyhow::Result<SmallDisk> {
        let place = ground.directory.path().join("disk");
        std::fs::create_dir_all(&place).context("disk")?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kilobytes}k"), "tmpfs"]).arg(&place);
        cargo::run_command(mount)?;
        Ok(SmallDisk(place))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A directory that stays mounted makes the next round fail, which shows it.
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

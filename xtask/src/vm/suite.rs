//! `cargo xtask vm test`: the integration tests in `crates/*/tests/guest_*.rs`, in one
//! guest, or a second for those with debugging information, one for a kernel in lockdown, and some
//! for one whose kernel traces its boot, one after the other (they change what the whole kernel does). C
//! programs that they watch are compiled here, because the guest has no compiler. What fails
//! is tried once more in a guest of its own, and if it passes there named as flaky.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_guest::{Command, Job, OutputStream};

use super::apt::Apt;
use super::architecture::Architecture;
use super::initrd::{self, Contents, GuestRoot};
use super::machine::{Ended, Machine};
use super::modules::Modules;
use super::{Scratch, disk, fetch};
use crate::cargo;
use crate::test::{Counts, parse_counts};

/// The peers, beside the programs of every guest.
const PEERS: [&str; 2] = ["perf", "trace-cmd"];

/// Modules that a test can load with `kymo_testkit::load_module`.
pub(super) const READY: [&str; 7] =
    ["scsi_mod", "scsi_debug", "sd_mod", "nbd", "null_blk", "loop", "virtio_blk"];

/// Files of tests that want the kernel's DWARF and sources begin so.
const WITH_DISK: &str = "guest_debug_";

/// The test program that says what works on a kernel.
const MATRIX: &str = "guest_matrix";

/// The test program that compares with bpftrace, which needs 200 MB of libraries and time to
/// compile: its guest is the only one that has them.
const BESIDE_BPFTRACE: &str = "guest_bpftrace";

/// The test program that looks at the boot of its guest, each of [`BOOTS`] in a guest of its own.
const OF_BOOTS: &str = "guest_traced_boot";

/// The test program that wants a kernel in lockdown, and how the kernel is told.
const LOCKED: (&str, &str) = ("guest_lockdown", "lockdown=confidentiality");

/// How the kernel is told to trace its boot: as `kymo boot prepare` says, which the test compares.
const TRACED: &str = "trace_event=printk:console,initcall:initcall_start,initcall:initcall_finish,\
    module:module_load,sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,\
    sched:sched_process_fork,sched:sched_process_exec,sched:sched_process_exit,\
    workqueue:workqueue_queue_work,workqueue:workqueue_execute_start,\
    workqueue:workqueue_execute_end,block:block_rq_issue,block:block_rq_requeue,\
    block:block_rq_complete trace_buf_size=32768k trace_clock=mono trace_options=nooverwrite \
    initcall_debug async.dyndbg=+p dd.dyndbg=+p log_buf_len=4M";

/// Boots with six slow disks, by name: how adapters are scanned, and adapters and their disks, with
/// a queue that these share.
const BOOTS: [(&str, &str, &str); 3] = [
    ("serial", "scan=sync", "add_host=2 num_tgts=3"),
    ("shared", "scan=async", "add_host=1 num_tgts=6 host_max_queue=1"),
    ("parallel", "scan=async", "add_host=2 num_tgts=3"),
];

/// Where the test puts its boot's recording, and finds those of the boots before as `NAME.dat`.
const RECORDED: &str = "/vm/boots/recorded.dat";

/// Where `kymo_testkit::Workload` looks for programs.
const PROGRAMS: &str = "/vm/programs";
/// Where tests find bpftrace's tools.
const TOOLS: &str = "/vm/bpftrace-tools";

/// Where skips are written down, as on the host.
const SKIPS: &str = "/vm/skipped-tests";

/// Where a test writes down what works on the guest's kernel.
const CAPABILITIES: &str = "/vm/capabilities";

const MEMORY_MB: u32 = 1024;
/// A tenth of these seconds is enough where nobody else wants the processors.
const LIMIT_OF_ONE: u32 = 400;
const LIMIT_OF_ALL: u32 = 1500;

/// Which tests to run, and with which kymo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    packages: Vec<String>,
    filters: Vec<String>,
    /// The release program instead of the development build.
    release: bool,
    /// Shows what passing tests print as well.
    verbose: bool,
    /// Whose kernel the guest has.
    kernel: Apt,
    architecture: Architecture,
}

/// What came of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    pub(crate) counts: Counts,
    /// One line for each test that the guest lacks something for.
    pub(crate) skips: Vec<String>,
    /// What `guest_matrix` found: a line for each capability.
    pub(crate) capabilities: Vec<String>,
    /// Tests that passed only when they were tried again.
    pub(crate) flaky: Vec<String>,
    /// Release of the guest's kernel.
    pub(crate) release: String,
}

/// What a guest has beside its tests.
#[derive(Clone, Debug, Default)]
struct Setup {
    /// Parameters for the kernel.
    append: String,
    /// Modules to load at the start.
    load: Vec<String>,
    files: Vec<(PathBuf, String)>,
    /// Programs beside the peers, if the host has them.
    programs: Vec<String>,
    /// Memory beyond that of every guest.
    more_memory_mb: u32,
    /// Where [`RECORDED`] is put.
    recorded: Option<PathBuf>,
}

/// What a boot brought.
struct Booted {
    /// One for each target.
    found: Vec<OfTarget>,
    skips: Vec<String>,
    capabilities: Vec<String>,
}

/// A test program.
struct Target {
    name: String,
    program: PathBuf,
}

/// A test program to be run, with what it is told.
struct Run<'a> {
    target: &'a Target,
    arguments: Vec<String>,
}

/// What came of a test program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfTarget {
    counts: Counts,
    /// The failed tests. Without any a program with failures ended badly as a whole.
    failed: Vec<String>,
}

impl OfTarget {
    /// What is told the program that is to be tried again.
    fn again(&self) -> Vec<String> {
        let exact = (!self.failed.is_empty()).then(|| "--exact".to_owned());
        self.failed.iter().cloned().chain(exact).collect()
    }

    /// What comes of it with the second try of what failed.
    fn with(self, second: &OfTarget) -> OfTarget {
        let kept = match self.failed.is_empty() {
            true => Counts::default(),
            false => Counts { failed: 0, ..self.counts },
        };
        OfTarget { counts: kept.plus(second.counts), failed: second.failed.clone() }
    }
}

impl Selection {
    /// All of them, with the program that is handed out: what CI runs.
    pub(crate) fn all() -> Selection {
        Selection { release: true, ..Selection::default() }
    }

    /// What works on a kernel, as [`super::matrix`] shows it.
    pub(crate) fn matrix(kernel: Apt, architecture: Architecture, release: bool) -> Selection {
        let filters = vec![MATRIX.to_owned()];
        Selection { filters, release, kernel, architecture, ..Selection::default() }
    }

    fn parse(args: &[&str]) -> anyhow::Result<Selection> {
        let mut selection = Selection::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "-p" | "--package" => {
                    let name = args.next().context("-p wants a package")?;
                    selection.packages.push((*name).to_owned());
                }
                "--arm64" => selection.architecture = Architecture::Arm64,
                "--release" => selection.release = true,
                "--kernel" => {
                    let name = args.next().context("--kernel wants a release of Debian")?;
                    selection.kernel = Apt::of_suite(name)?;
                }
                "-v" | "--verbose" => selection.verbose = true,
                other if other.starts_with('-') => bail!("vm test has no option {other}"),
                other => selection.filters.push(other.to_owned()),
            }
        }
        Ok(selection)
    }
}

pub(crate) fn main(args: &[&str]) -> anyhow::Result<ExitCode> {
    let Results { counts, skips, .. } = run(&Selection::parse(args)?)?;
    skips.iter().for_each(|line| println!("{line}"));
    println!("{} passed, {} failed in the guest", counts.passed, counts.failed);
    Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the tests and runs them: those that want the kernel's DWARF in a guest with
/// a disk that has it, all others in one without, where its absence is told.
pub(crate) fn run(selection: &Selection) -> anyhow::Result<Results> {
    let apt = selection.kernel.clone().for_architecture(selection.architecture)?;
    let kernel = fetch::kernel(&apt)?;
    let (mut targets, kymo) = build(selection)?;
    let (names, filters): (Vec<_>, Vec<_>) =
        selection.filters.iter().partition(|f| targets.iter().any(|t| t.name.contains(*f)));
    if !names.is_empty() {
        targets.retain(|t| names.iter().any(|f| t.name.contains(*f)));
    }
    let (of_boots, targets): (Vec<Target>, Vec<Target>) =
        targets.into_iter().partition(|t| t.name == OF_BOOTS);
    let (beside_bpftrace, targets): (Vec<Target>, Vec<Target>) =
        targets.into_iter().partition(|t| t.name == BESIDE_BPFTRACE);
    let (locked, targets): (Vec<Target>, Vec<Target>) =
        targets.into_iter().partition(|t| t.name == LOCKED.0);
    let (with, without): (Vec<Target>, Vec<Target>) =
        targets.into_iter().partition(|t| t.name.starts_with(WITH_DISK));
    let mut all = Results { release: kernel.release.clone(), ..Results::default() };
    // Each boot has a directory of its own, which goes with it.
    let scratch = Scratch::named("boots")?;
    let bpftrace = vec!["bpftrace".to_owned()];
    let bpftrace = Setup { programs: bpftrace, more_memory_mb: 1024, ..Setup::default() };
    let lockdown = Setup { append: LOCKED.1.to_owned(), ..Setup::default() };
    let mut groups = vec![
        (&without, Setup::default()),
        (&with, Setup::default()),
        (&beside_bpftrace, bpftrace),
        (&locked, lockdown),
    ];
    let mut files = Vec::new();
    for (name, scan, adapters) in BOOTS {
        let recorded = scratch.path().join(name);
        let disks = "max_luns=1 dev_size_mb=8 delay=10";
        let load = vec![
            format!("scsi_mod {scan}"),
            "sd_mod".to_owned(),
            format!("scsi_debug {disks} {adapters}"),
        ];
        let append = format!("{TRACED} kymo_boot={name}");
        let setup = Setup {
            append,
            load,
            files: files.clone(),
            recorded: Some(recorded.clone()),
            ..Setup::default()
        };
        groups.push((&of_boots, setup));
        files.push((recorded, format!("/vm/boots/{name}.dat")));
    }
    for (targets, setup) in groups.iter().filter(|(targets, _)| !targets.is_empty()) {
        let arguments: Vec<String> = filters.iter().map(|f| (*f).clone()).collect();
        let run = |target| Run { target, arguments: arguments.clone() };
        let runs: Vec<Run<'_>> = targets.iter().map(run).collect();
        let booted = boot(selection, &kernel, (&runs, setup), kymo.as_deref())?;
        let mut first = booted.found;
        all.skips.extend(booted.skips);
        all.capabilities.extend(booted.capabilities);
        let bad: Vec<usize> = (0..first.len()).filter(|i| first[*i].counts.failed > 0).collect();
        if !bad.is_empty() {
            let again = |i: &usize| Run { target: &targets[*i], arguments: first[*i].again() };
            let runs: Vec<Run<'_>> = bad.iter().map(again).collect();
            println!("\nguest: what failed is tried again");
            let Booted { found: second, capabilities, .. } =
                boot(selection, &kernel, (&runs, setup), kymo.as_deref())?;
            if !capabilities.is_empty() {
                all.capabilities = capabilities;
            }
            for (i, second) in bad.into_iter().zip(&second) {
                let tests = flaky(&targets[i], &first[i], second);
                tests.iter().for_each(|test| println!("FLAKY: {test} (passed at the second try)"));
                all.flaky.extend(tests);
                first[i] = std::mem::take(&mut first[i]).with(second);
            }
        }
        all.counts = first.iter().fold(all.counts, |sum, of| sum.plus(of.counts));
    }
    Ok(all)
}

/// Tests that passed only when tried again, each with its program: defects to be mended.
fn flaky(target: &Target, first: &OfTarget, second: &OfTarget) -> Vec<String> {
    let line = |test: &str| format!("{} {test}", target.name);
    if first.failed.is_empty() {
        return (second.counts.failed == 0).then(|| line("as a whole")).into_iter().collect();
    }
    if second.counts.failed > 0 && second.failed.is_empty() {
        return Vec::new();
    }
    let mended = first.failed.iter().filter(|test| !second.failed.contains(test));
    mended.map(|test| line(test)).collect()
}

/// Boots a guest and runs these tests in it; gives what came of each, and the skips.
fn boot(
    selection: &Selection,
    kernel: &fetch::Kernel,
    (runs, setup): (&[Run<'_>], &Setup),
    kymo: Option<&Path>,
) -> anyhow::Result<Booted> {
    let modules = Modules::of(kernel)?;
    let scratch = Scratch::new()?;
    let architecture = selection.architecture;
    let apt = selection.kernel.clone().for_architecture(architecture)?;
    let mut contents = Contents {
        guest: GuestRoot::of(&apt)?,
        init: super::init(architecture)?,
        programs: PEERS.map(String::from).into(),
        load: setup.load.clone(),
        files: setup.files.iter().filter(|(file, _)| file.exists()).cloned().collect(),
        ready: READY.into_iter().filter(|name| modules.has(name)).map(String::from).collect(),
        links: Vec::new(),
    };
    if let Some(place) = kymo {
        let program = match selection.release {
            true => architecture.build(&["build", "--release", "--bin", "kymo"])?,
            false => place.to_owned(),
        };
        let place = place.to_string_lossy().into_owned();
        contents.links.push(("/vm/bin/kymo".into(), place.clone()));
        contents.files.push((program, place));
    }
    let more = setup.programs.iter().filter(|name| contents.guest.which(name).is_some());
    contents.programs.extend(more.cloned());
    let programs = compile_programs(architecture, scratch.path())?;
    contents.files.extend(programs);
    contents.files.extend(bpftrace_tools());
    let programs = runs.iter().map(|run| &run.target.program);
    contents.files.extend(programs.map(|p| (p.clone(), p.to_string_lossy().into_owned())));
    let empty = scratch.path().join("empty");
    std::fs::write(&empty, "").with_context(|| empty.display().to_string())?;
    contents.files.extend([SKIPS, CAPABILITIES].map(|name| (empty.clone(), name.into())));
    let disk = debug_disk(runs, kernel);
    contents.load.extend(disk.is_some().then(|| disk::DRIVER.to_owned()));
    let job = Job {
        commands: runs.iter().map(|run| command(run, selection.verbose)).collect(),
        get: [SKIPS, CAPABILITIES]
            .into_iter()
            .chain(setup.recorded.as_ref().map(|_| RECORDED))
            .map(String::from)
            .collect(),
        limit_seconds: LIMIT_OF_ALL,
        disk: disk.as_ref().map_or_else(String::new, |_| disk::PLACE.into()),
        ..Job::default()
    };
    let initrd = scratch.path().join("initrd");
    initrd::write(&initrd, &contents, &modules, job)?;
    let machine = Machine {
        architecture,
        image: kernel.image()?,
        initrd,
        disk,
        append: setup.append.clone(),
        memory_mb: MEMORY_MB + setup.more_memory_mb,
        limit: Duration::from_secs(u64::from(LIMIT_OF_ALL)),
        // The guest ends a test program that takes too long, and says so.
        silence: Duration::from_secs(u64::from(2 * LIMIT_OF_ONE) + 30),
        show_console: false,
    };
    let mut tally = Tally::new(runs.iter().map(|run| run.target).collect());
    let outcome = machine
        .run(scratch.path(), &mut |place, stream, bytes| tally.hear(place, stream, bytes))?;
    println!(
        "guest: Linux {}, up after {:.1} s, {:.1} s in all",
        kernel.release,
        outcome.boot.as_secs_f64(),
        outcome.total.as_secs_f64()
    );
    if outcome.ended.iter().any(|ended| ended.status != 0) {
        println!("guest: {}", outcome.console);
    }
    if let Some(to) = &setup.recorded {
        let file = outcome.files.iter().find(|(path, _)| path == RECORDED);
        // Without it this test has failed, and the next one says so.
        if let Some((_, from)) = file {
            std::fs::copy(from, to).with_context(|| to.display().to_string())?;
        }
    }
    let lines = |name: &str| -> Vec<String> {
        let file = outcome.files.iter().find(|(path, _)| path == name);
        let text = file.map(|(_, copy)| std::fs::read_to_string(copy).unwrap_or_default());
        text.unwrap_or_default().lines().map(str::to_owned).collect()
    };
    let (skips, capabilities) = (lines(SKIPS), lines(CAPABILITIES));
    Ok(Booted { found: tally.results(&outcome.ended), skips, capabilities })
}

/// The disk with the kernel's DWARF, if a test may want it. It takes 420 MB of
/// downloads, so where it cannot be made its tests are skipped.
fn debug_disk(runs: &[Run<'_>], kernel: &fetch::Kernel) -> Option<PathBuf> {
    if !runs.iter().any(|run| run.target.name.starts_with(WITH_DISK)) {
        return None;
    }
    let image = disk::image(kernel);
    image.map_err(|e| println!("vm: no disk with debugging information: {e:#}")).ok()
}

/// Searching the kernel's DWARF takes seconds under emulation.
fn limit_of(target: &Target) -> u32 {
    if target.name.starts_with(WITH_DISK) { 2 * LIMIT_OF_ONE } else { LIMIT_OF_ONE }
}

fn command(Run { target, arguments: told }: &Run<'_>, verbose: bool) -> Command {
    let mut arguments =
        vec![target.program.to_string_lossy().into_owned(), "--test-threads=1".into()];
    arguments.extend(verbose.then(|| "--show-output".into()));
    arguments.extend(told.iter().cloned());
    Command {
        arguments,
        // The guest has what its tests need, or something is wrong with it.
        environment: vec![
            "CI=true".into(),
            format!("KYMO_SKIP_LOG={SKIPS}"),
            format!("KYMO_CAPABILITIES={CAPABILITIES}"),
        ],
        limit_seconds: limit_of(target),
    }
}

/// The development build of kymo that tests run.
pub(super) fn dev_program(architecture: Architecture) -> anyhow::Result<PathBuf> {
    let cargo = architecture.cargo(&["test", "--no-run", "--workspace", "--test", MATRIX])?;
    let is_kymo =
        |target: &serde_json::Value| target["name"] == "kymo" && target["kind"][0] == "bin";
    cargo::program_in(&cargo::messages_of(cargo)?, is_kymo)
}

/// Builds the test programs; also says where they expect kymo.
fn build(selection: &Selection) -> anyhow::Result<(Vec<Target>, Option<PathBuf>)> {
    let mut args = vec!["test", "--no-run", "--test", "guest_*"];
    if selection.packages.is_empty() {
        args.push("--workspace");
    }
    args.extend(selection.packages.iter().flat_map(|p| ["--package", p]));
    let (mut targets, mut kymo) = (Vec::new(), None);
    for message in cargo::messages_of(selection.architecture.cargo(&args)?)? {
        let Some(program) = message["executable"].as_str().map(PathBuf::from) else { continue };
        let name = message["target"]["name"].as_str().unwrap_or_default().to_owned();
        match message["target"]["kind"][0].as_str() {
            Some("test") if name.starts_with("guest_") => targets.push(Target { name, program }),
            Some("bin") if name == "kymo" => kymo = Some(program),
            _ => {}
        }
    }
    if targets.is_empty() {
        bail!("cargo built no test named guest_*");
    }
    targets.sort_by(|a, b| (&a.name, &a.program).cmp(&(&b.name, &b.program)));
    Ok((targets, kymo))
}

/// The tools that the installed and the newest bpftrace ship.
fn bpftrace_tools() -> Vec<(PathBuf, String)> {
    let newest = crate::target().join("peers/usr/sbin");
    let places = [("installed", PathBuf::from("/usr/sbin")), ("newest", newest)];
    let files = places.into_iter().flat_map(|(name, place)| {
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        let tools = entries.map(|entry| entry.path());
        let tools = tools.filter(|path| path.extension().is_some_and(|e| e == "bt"));
        tools.map(move |path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (path, format!("{TOOLS}/{name}-{file}"))
        })
    });
    files.collect()
}

/// Compiles the programs of the testkit and those in `tests/guest_programs/*.c` of
/// the crates. Each comes with its source, so that a test knows its program.
fn compile_programs(
    architecture: Architecture,
    directory: &Path,
) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut sources: Vec<(String, String)> = kymo_testkit::Workload::SOURCES
        .iter()
        .map(|(name, source)| ((*name).to_owned(), (*source).to_owned()))
        .collect();
    for file in own_programs()? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let source = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        if sources.iter().any(|(known, _)| *known == name) {
            bail!("{}: there is a program of this name already", file.display());
        }
        sources.push((name, source));
    }
    let mut files = Vec::new();
    for (name, source) in &sources {
        let (code, program) = (directory.join(format!("{name}.c")), directory.join(name));
        std::fs::write(&code, source).with_context(|| code.display().to_string())?;
        let mut gcc = architecture.c_compiler()?;
        gcc.args(kymo_testkit::Workload::FLAGS).arg("-static").arg("-o").args([&program, &code]);
        cargo::run_command(gcc)?;
        files.push((code, format!("{PROGRAMS}/{name}.c")));
        files.push((program, format!("{PROGRAMS}/{name}")));
    }
    Ok(files)
}

fn own_programs() -> anyhow::Result<Vec<PathBuf>> {
    let crates = crate::root().join("crates");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&crates).with_context(|| crates.display().to_string())? {
        let directory = entry?.path().join("tests/guest_programs");
        // Most crates have none.
        let Ok(files) = std::fs::read_dir(directory) else { continue };
        let files = files.flatten().map(|e| e.path());
        found.extend(files.filter(|p| p.extension().is_some_and(|e| e == "c")));
    }
    found.sort();
    Ok(found)
}

/// Shows the output of the tests and counts.
struct Tally<'a> {
    targets: Vec<&'a Target>,
    /// The target whose output is shown.
    shown: Option<usize>,
    line: Vec<u8>,
    /// Of each target.
    found: Vec<OfTarget>,
}

impl<'a> Tally<'a> {
    fn new(targets: Vec<&'a Target>) -> Self {
        let found = vec![OfTarget::default(); targets.len()];
        Tally { targets, shown: None, line: Vec::new(), found }
    }

    fn hear(&mut self, place: usize, stream: OutputStream, bytes: &[u8]) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.shown != Some(place) {
            let name = self.targets.get(place).map_or("?", |t| t.name.as_str());
            writeln!(out, "\n--- {name} (in the guest)").context("stdout")?;
            self.shown = Some(place);
        }
        out.write_all(bytes).and_then(|()| out.flush()).context("stdout")?;
        if stream == OutputStream::Err {
            return Ok(());
        }
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if let Some(found) = self.found.get_mut(place) {
                take_line(found, &String::from_utf8_lossy(&line));
            }
        }
        Ok(())
    }

    /// A test program that ended badly without a failed test (a crash, a time limit)
    /// is itself a failed test.
    fn results(mut self, ended: &[Ended]) -> Vec<OfTarget> {
        for (place, (target, found)) in self.targets.iter().zip(&mut self.found).enumerate() {
            let end = ended.get(place).copied();
            if end == Some(Ended { status: 0, late: false }) || found.counts.failed > 0 {
                continue;
            }
            found.counts.failed += 1;
            found.failed.clear();
            match end {
                Some(Ended { late: true, .. }) => {
                    println!("FAILED: {} took longer than {} s", target.name, limit_of(target));
                }
                Some(Ended { status, .. }) => {
                    println!("FAILED: {} ended with status {status}", target.name);
                }
                None => println!("FAILED: {} never ended", target.name),
            }
        }
        self.found
    }
}

/// Looks at a line of a test program: before its counts it names what failed, twice; the
/// second list has names alone.
fn take_line(found: &mut OfTarget, line: &str) {
    if line == "failures:" {
        found.failed.clear();
    } else if let Some(counts) = parse_counts(line) {
        found.counts = found.counts.plus(counts);
        // Also of a program that is not as it should be no test is passed over.
        if found.failed.len() as u64 != found.counts.failed {
            found.failed.clear();
        }
    } else if let Some(name) = line.strip_prefix("    ") {
        found.failed.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line() {
        let selection = Selection::parse(&["-p", "kymo", "--release", "function_graph"]).unwrap();
        let expected = Selection {
            packages: vec!["kymo".into()],
            filters: vec!["function_graph".into()],
            release: true,
            verbose: false,
            kernel: Apt::of_machine(),
            architecture: Architecture::Amd64,
        };
        assert_eq!(selection, expected);
        assert!(Selection::parse(&["--no-such"]).is_err());
        assert!(Selection::parse(&["-p"]).is_err());
    }

    #[test]
    fn a_crash_and_a_time_limit_count_as_failures() {
        let target = |name: &str| Target { name: name.into(), program: name.into() };
        let targets = ["guest_a", "guest_b", "guest_c", "guest_d"].map(target);
        let counts = |passed, failed| Counts { passed, failed, skipped: 0 };
        let end = |status, late| Ended { status, late };
        let ended = [end(0, false), end(101, false), end(139, false), end(137, true)];
        for told in [4, 2] {
            let mut tally = Tally::new(targets.iter().collect());
            let text = b"test result: ok. 2 passed; 0 failed; 0 ignored\n";
            // Output arrives in any pieces.
            for byte in text {
                tally.hear(0, OutputStream::Out, &[*byte]).unwrap();
            }
            let failed = b"failures:\n    of its output\n\nfailures:\n    one\n    two\n\n\
                           test result: FAILED. 1 passed; 2 failed; 0 ignored\n";
            tally.hear(1, OutputStream::Out, failed).unwrap();
            let results = tally.results(&ended[..told]);
            let all: Vec<Counts> = results.iter().map(|r| r.counts).collect();
            assert_eq!(all, [counts(2, 0), counts(1, 2), counts(0, 1), counts(0, 1)]);
            assert_eq!(results[1].again(), ["one", "two", "--exact"]);
            assert_eq!(results[2].again(), [""; 0]);
        }
    }

    #[test]
    fn what_passes_at_the_second_try_is_passed_and_named() {
        let target = Target { name: "guest_a".into(), program: "guest_a".into() };
        let of = |passed, failed: &[&str], bad: u64| OfTarget {
            counts: Counts { passed, failed: failed.len() as u64 + bad, skipped: 0 },
            failed: failed.iter().map(|f| (*f).to_owned()).collect(),
        };
        let check = |first: OfTarget, second: OfTarget, lines: usize, sum: (u64, u64)| {
            let told = flaky(&target, &first, &second);
            assert_eq!(told.len(), lines, "{told:?}");
            let counts = first.with(&second).counts;
            assert_eq!((counts.passed, counts.failed), sum);
        };
        check(of(5, &["one", "two"], 0), of(2, &[], 0), 2, (7, 0));
        check(of(5, &["one", "two"], 0), of(1, &["two"], 0), 1, (6, 1));
        check(of(5, &["one", "two"], 0), of(0, &["one", "two"], 0), 0, (5, 2));
        // It crashed: all of it is run again.
        check(of(0, &[], 1), of(7, &[], 0), 1, (7, 0));
        check(of(0, &[], 1), of(6, &["one"], 0), 0, (6, 1));
        check(of(5, &["one"], 0), of(0, &[], 1), 0, (5, 1));
    }
}

//! `cargo xtask vm test`: the integration tests in `crates/*/tests/guest_*.rs`, in one
//! guest, or a second for those with debugging information, one for a kernel in lockdown, and some
//! for one whose kernel traces its boot. In a guest they run one after the other (they change what
//! the whole kernel does); there are as many guests at a time as CPUs, since one keeps about one
//! busy. C programs that they watch are compiled here, because the guest has no compiler. What fails
//! is tried once more in a guest of its own, and if it passes there named as flaky.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_guest::{Command, Job};

use super::apt::Apt;
use super::architecture::Architecture;
use super::initrd::{self, Contents, GuestRoot};
use super::machine::Machine;
use super::modules::Modules;
use super::tally::{Log, OfTarget, Tally, TargetName, flaky};
use super::{Scratch, disk, fetch};
use crate::cargo;
use crate::test::Counts;
use crate::workers;

/// The peers, beside the programs of every guest.
const PEERS: [&str; 2] = ["perf", "trace-cmd"];

/// Modules that a test can load with `kymo_testkit::load_module`.
pub(super) const READY: [&str; 7] =
    ["scsi_mod", "scsi_debug", "sd_mod", "nbd", "null_blk", "loop", "virtio_blk"];

/// Files of tests that want the kernel's DWARF and sources begin so.
const WITH_DISK: &str = "guest_debug_";

/// The test program that reports the capabilities of a kernel.
const MATRIX: &str = "guest_matrix";

/// The test program that compares with bpftrace, which needs 200 MB of libraries and time to
/// compile: its guest is the only one that has them.
const BESIDE_BPFTRACE: &str = "guest_bpftrace";

/// The test program that looks at the boot of its guest, each of [`BOOTS`] in a guest of its own.
const OF_BOOTS: &str = "guest_traced_boot";

/// The test program that needs a kernel in lockdown, and the kernel parameter.
const LOCKED: (&str, &str) = ("guest_lockdown", "lockdown=confidentiality");

/// Kernel parameters to trace its boot: those of `kymo boot prepare`, which the test compares.
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

/// Path to which the test writes its boot's recording, and in whose directory it finds those of the
/// boots before as `NAME.dat`.
const RECORDED: &str = "/vm/boots/recorded.dat";

/// Directory in which `kymo_testkit::Workload` looks for programs.
const PROGRAMS: &str = "/vm/programs";
/// Directory of bpftrace's tools for tests.
const TOOLS: &str = "/vm/bpftrace-tools";

/// File that lists skipped tests, as on the host.
const SKIPS: &str = "/vm/skipped-tests";

/// File in which a test writes the capabilities of the guest's kernel.
const CAPABILITIES: &str = "/vm/capabilities";

const MEMORY_MB: u32 = 1024;
/// A tenth of these seconds is enough where no other task uses the processors.
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
    /// Source of the guest's kernel.
    kernel: Apt,
    architecture: Architecture,
}

/// Results of the tests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    pub(crate) counts: Counts,
    /// One line for each test that the guest lacks something for.
    pub(crate) skips: Vec<String>,
    /// Findings of `guest_matrix`: a line for each capability.
    pub(crate) capabilities: Vec<String>,
    /// Tests that passed only when they were tried again.
    pub(crate) flaky: Vec<String>,
    /// Release of the guest's kernel.
    pub(crate) release: String,
}

/// Setup of a guest beside its tests.
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
    /// Path for [`RECORDED`].
    recorded: Option<PathBuf>,
}

/// Result of a boot.
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

/// A test program to be run, with its arguments.
struct Run<'a> {
    target: &'a Target,
    arguments: Vec<String>,
}

impl Selection {
    /// All of them, with the program that is handed out: what CI runs.
    pub(crate) fn all() -> Selection {
        Selection { release: true, ..Selection::default() }
    }

    /// Capabilities of a kernel, as [`super::matrix`] shows them.
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

/// Builds the tests and runs them: those that need the kernel's DWARF in a guest with a disk that
/// has it, all others in one without, where its absence is reported.
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
    // Each boot has a directory of its own, which goes with it.
    let scratch = Scratch::named("suite")?;
    let bpftrace = vec!["bpftrace".to_owned()];
    let bpftrace = Setup { programs: bpftrace, more_memory_mb: 1024, ..Setup::default() };
    let lockdown = Setup { append: LOCKED.1.to_owned(), ..Setup::default() };
    // The longest first.
    let chains: Vec<Vec<(&[Target], Setup)>> = vec![
        vec![(&without, Setup::default())],
        vec![(&with, Setup::default())],
        vec![(&beside_bpftrace, bpftrace)],
        boots(scratch.path()).into_iter().map(|setup| (&of_boots[..], setup)).collect(),
        vec![(&locked, lockdown)],
    ];
    let wanted = |chain: &Vec<(&[Target], Setup)>| chain.iter().any(|(t, _)| !t.is_empty());
    let chains: Vec<_> = chains.into_iter().filter(wanted).collect();
    let suite = Suite {
        selection,
        kernel: &kernel,
        kymo: kymo.as_deref(),
        programs: compile_programs(selection.architecture, scratch.path())?,
        arguments: filters.iter().map(|f| (*f).clone()).collect(),
    };
    let next = AtomicUsize::new(0);
    let ran = workers::run(|_| {
        let mut results = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(chain) = chains.get(number) else { return Ok(results) };
            // Of guests beside each other each shows its output when it ends.
            let mut log = Log::new(chains.len() == 1);
            for (targets, setup) in chain {
                let result = suite.group(targets, setup, &mut log);
                log.show()?;
                results.push((number, result?));
            }
        }
    })?;
    let mut results: Vec<(usize, Results)> = ran.into_iter().flatten().collect();
    results.sort_by_key(|(number, _)| *number);
    let all = Results { release: kernel.release.clone(), ..Results::default() };
    Ok(results.into_iter().fold(all, |all, (_, group)| all.plus(group)))
}

/// The boots that are traced, in this order: each has the recordings of those before.
fn boots(recordings: &Path) -> Vec<Setup> {
    let mut files = Vec::new();
    let setup = |(name, scan, adapters): (&str, &str, &str)| {
        let recorded = recordings.join(name);
        let disks = "max_luns=1 dev_size_mb=8 delay=10";
        let load = vec![
            format!("scsi_mod {scan}"),
            "sd_mod".to_owned(),
            format!("scsi_debug {disks} {adapters}"),
        ];
        let append = format!("{TRACED} kymo_boot={name}");
        let before = files.clone();
        files.push((recorded.clone(), format!("/vm/boots/{name}.dat")));
        Setup { append, load, files: before, recorded: Some(recorded), ..Setup::default() }
    };
    BOOTS.into_iter().map(setup).collect()
}

impl Results {
    fn plus(mut self, more: Results) -> Results {
        self.counts = self.counts.plus(more.counts);
        self.skips.extend(more.skips);
        self.capabilities.extend(more.capabilities);
        self.flaky.extend(more.flaky);
        self
    }
}

/// Parts that all guests of a run share.
struct Suite<'a> {
    selection: &'a Selection,
    kernel: &'a fetch::Kernel,
    kymo: Option<&'a Path>,
    /// Programs that tests watch, compiled.
    programs: Vec<(PathBuf, String)>,
    /// For the test programs.
    arguments: Vec<String>,
}

impl Suite<'_> {
    /// Boots a guest for these tests, and one more for what failed.
    fn group(&self, targets: &[Target], setup: &Setup, log: &mut Log) -> anyhow::Result<Results> {
        let mut all = Results::default();
        let run = |target| Run { target, arguments: self.arguments.clone() };
        let runs: Vec<Run<'_>> = targets.iter().map(run).collect();
        let booted = self.boot(&runs, setup, log)?;
        let mut first = booted.found;
        all.skips = booted.skips;
        all.capabilities = booted.capabilities;
        let bad: Vec<usize> = (0..first.len()).filter(|i| first[*i].counts.failed > 0).collect();
        if !bad.is_empty() {
            let again = |i: &usize| Run { target: &targets[*i], arguments: first[*i].again() };
            let runs: Vec<Run<'_>> = bad.iter().map(again).collect();
            log.line("\nguest: what failed is tried again")?;
            let Booted { found: second, capabilities, .. } = self.boot(&runs, setup, log)?;
            if !capabilities.is_empty() {
                all.capabilities = capabilities;
            }
            for (i, second) in bad.into_iter().zip(&second) {
                let tests = flaky(&targets[i].name, &first[i], second);
                for test in &tests {
                    log.line(&format!("FLAKY: {test} (passed at the second try)"))?;
                }
                all.flaky.extend(tests);
                first[i] = std::mem::take(&mut first[i]).with(second);
            }
        }
        all.counts = first.iter().fold(all.counts, |sum, of| sum.plus(of.counts));
        Ok(all)
    }

    /// Boots a guest and runs these tests in it; gives what came of each, and the skips.
    fn boot(&self, runs: &[Run<'_>], setup: &Setup, log: &mut Log) -> anyhow::Result<Booted> {
        let Suite { selection, kernel, kymo, .. } = *self;
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
            let program =
                if selection.release { architecture.build_release()? } else { place.to_owned() };
            let place = place.to_string_lossy().into_owned();
            contents.links.push(("/vm/bin/kymo".into(), place.clone()));
            contents.files.push((program, place));
        }
        let more = setup.programs.iter().filter(|name| contents.guest.which(name).is_some());
        contents.programs.extend(more.cloned());
        contents.files.extend(self.programs.iter().cloned());
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
        let names = runs
            .iter()
            .map(|run| TargetName { name: &run.target.name, limit_seconds: limit_of(run.target) });
        let mut tally = Tally::new(names.collect(), log);
        let outcome = machine
            .run(scratch.path(), &mut |place, stream, bytes| tally.hear(place, stream, bytes))?;
        let found = tally.results(&outcome.ended)?;
        log.line(&format!(
            "guest: Linux {}, up after {:.1} s, {:.1} s in all",
            kernel.release,
            outcome.boot.as_secs_f64(),
            outcome.total.as_secs_f64()
        ))?;
        if outcome.ended.iter().any(|ended| ended.status != 0) {
            log.line(&format!("guest: {}", outcome.console))?;
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
        Ok(Booted { found, skips, capabilities })
    }
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
pub(crate) fn dev_program(architecture: Architecture) -> anyhow::Result<PathBuf> {
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
}

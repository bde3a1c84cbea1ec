//! `cargo xtask hostile`: files of each format, damaged by chance out of a seed, given to the
//! commands that read them. None may panic, take longer than ten seconds or a gigabyte.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};

use crate::chance::Chance;
use crate::{cargo, workers};

pub(crate) const USAGE: &str = "\
\x20 hostile [--rounds N] [--seed S] [--round K] [--program KYMO]
                      damaged files given to the commands that read them; prints the seed
";

/// A command that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Sets the limit of memory, in KiB, and starts the rest.
const LIMITED: &str = "ulimit -d 1048576; exec \"$@\"";
const DEFAULT_ROUNDS: u64 = 10_000;

/// A format with undamaged files, and how they are read.
struct HostileFormat {
    name: &'static str,
    /// A directory is damaged in one of its files.
    samples: Vec<PathBuf>,
    /// The file stands for `@`.
    commands: &'static [&'static [&'static str]],
}

const RECORDING: &[&[&str]] = &[
    &["report", "--stdio", "-i", "@"],
    &["report", "--stdio", "--no-children", "-s", "comm,dso,sym,srcline", "-g", "-i", "@"],
    &["report", "--header-only", "-I", "-i", "@"],
    &["script", "-i", "@"],
    &["script", "--json", "-i", "@"],
    &["annotate", "--stdio", "-i", "@"],
    &["evlist", "-v", "-i", "@"],
    &["buildid-list", "-i", "@"],
    &["inject", "-b", "-i", "@", "-o", "/dev/null"],
    &["sched", "latency", "-i", "@"],
    &["sched", "timehist", "-i", "@"],
    &["sched", "map", "-i", "@"],
    &["kmem", "stat", "-i", "@"],
    &["kwork", "report", "-i", "@"],
    &["lock", "contention", "-i", "@"],
    &["offcpu", "report", "-i", "@"],
    &["syscalls", "report", "-i", "@"],
    &["io", "latency", "-i", "@"],
    &["why", "--pid", "1", "-i", "@"],
    &["profile", "-i", "@"],
    &["convert", "-f", "folded", "-i", "@"],
    &["diff", "@", "@"],
    &["diff", "-c", "ratio", "@", "@"],
    &["convert", "--to", "perfetto", "-i", "@", "-o", "/dev/null"],
    &["list", "-i", "@"],
];

const BINARY: &[&[&str]] = &[
    &["probe", "-x", "@", "--funcs"],
    &["probe", "-x", "@", "--line", "main"],
    &["probe", "-x", "@", "--vars", "main"],
    &["probe", "-x", "@", "--definition", "main"],
    &["probe", "-x", "@", "--definition", "*"],
    &["probe", "-x", "@", "--definition", "work%return $retval"],
    &["run", "--dry-run", "-e", "uprobe:@:main { printf(\"%d\\n\", arg0); }"],
    &["run", "-l", "uprobe:@:*"],
    &["run", "-l", "usdt:@:*"],
];

const PROGRAM: &[&[&str]] =
    &[&["run", "--dry-run", "@"], &["run", "--dry-run", "--show-program", "@"]];

const PROGRAMS: [&str; 4] = [
    "tracepoint:sched:sched_switch { @[args.prev_comm, kstack(3)] = count(); }\n\
     interval:s:1 { print(@); clear(@); }\nEND { clear(@) }\n",
    "struct pair { int a; char name[16]; struct pair *next; };\n\
     uprobe:/bin/sh:main { $p = (struct pair *)arg0; printf(\"%s %d\\n\", $p->name, $p->a); }\n",
    "BEGIN { $i = 0; while ($i < 10) { $i++; if ($i % 2) { continue; } @h = lhist($i, 0, 10, 1); } \
     unroll(3) { @x[1, \"a\"] = sum($i); } @t = (1, \"two\", 3); exit(); }\n",
    "profile:hz:99 /pid == 1 && comm != \"x\"/ { @[ustack, tid >> 2 ? 1 : 0] = hist(nsecs - 5); }\n",
];

pub(crate) fn main(args: &[&str]) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (mut rounds, mut seed, mut program) = (0..DEFAULT_ROUNDS, now.as_nanos() as u64, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = args.next().with_context(|| format!("{arg} wants a value"))?;
        match *arg {
            "--rounds" => rounds = 0..value.parse().context("--rounds")?,
            "--seed" => seed = value.parse().context("--seed")?,
            "--round" => {
                let one = value.parse().context("--round")?;
                rounds = one..one + 1;
            }
            "--program" => program = Some(PathBuf::from(value)),
            other => bail!("hostile has no option {other}"),
        }
    }
    println!("hostile: --seed {seed}");
    let kymo = program.map_or_else(cargo::build_release, Ok)?;
    let directory = tempfile::tempdir().context("a directory for damaged files")?;
    let formats = formats(&kymo, directory.path())?;
    let workers = workers::count();
    let run = |worker: u64| -> anyhow::Result<Vec<u64>> {
        let mut counts = vec![0; formats.len()];
        let own = directory.path().join(worker.to_string());
        std::fs::create_dir(&own).with_context(|| own.display().to_string())?;
        for round in rounds.clone().filter(|round| round % workers == worker) {
            let mut chance = Chance::of_round(seed, round);
            let at = chance.between(0, formats.len() as u64 - 1) as usize;
            one(&kymo, &formats[at], &own, &mut chance)
                .with_context(|| format!("--seed {seed} --round {round}"))?;
            counts[at] += 1;
        }
        Ok(counts)
    };
    let counts = workers::run(run)?;
    let mut sums = vec![0; formats.len()];
    for counts in counts {
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let words: Vec<String> =
        formats.iter().zip(&sums).map(|(format, n)| format!("{n} of {}", format.name)).collect();
    println!("hostile: {}; no panic, none over 10 s or 1 GiB", words.join(", "));
    Ok(())
}

fn formats(kymo: &Path, directory: &Path) -> anyhow::Result<Vec<HostileFormat>> {
    let fixtures = crate::root().join("crates/kymo/tests/fixtures");
    let made = directory.join("made");
    std::fs::create_dir(&made).with_context(|| made.display().to_string())?;
    let source = crate::root().join("crates/kymo-probe/tests/programs/fields.c");
    let mut binaries = Vec::new();
    for (name, options) in [("dwarf5", ["-O2", "-g"]), ("dwarf4", ["-O0", "-gdwarf-4"])] {
        let binary = made.join(name);
        let mut gcc = Command::new("gcc");
        gcc.args(options).args(["-shared", "-fPIC", "-o"]).args([&binary, &source]);
        cargo::run_command(gcc)?;
        binaries.push(binary);
    }
    let recording = fixtures.join("perf-data/x86_64/fp.data");
    let bundle = made.join("bundle.kymo");
    let mut packed = Command::new(kymo);
    packed.args(["bundle", "-i"]).arg(&recording).arg("-o").arg(&bundle);
    packed.stdout(Stdio::null()).stderr(Stdio::null());
    cargo::run_command(packed)?;
    let mut programs = Vec::new();
    for (number, text) in PROGRAMS.iter().enumerate() {
        let program = made.join(format!("{number}.bt"));
        std::fs::write(&program, text).with_context(|| program.display().to_string())?;
        programs.push(program);
    }
    let format = |name, samples, commands| HostileFormat { name, samples, commands };
    Ok(vec![
        format("perf.data", with_end(&fixtures.join("perf-data/x86_64"), "data")?, RECORDING),
        format("trace.dat", with_end(&fixtures.join("trace-dat/x86_64"), "dat")?, RECORDING),
        format("CTF", vec![fixtures.join("ctf-2/x86_64/lttng-ust")], RECORDING),
        format("bundles", vec![bundle], &[&["report", "--stdio", "--bundle", "@", "-i", "%"]]),
        format("ELF and DWARF", binaries, BINARY),
        format("programs", programs, PROGRAM),
    ])
}

fn with_end(directory: &Path, end: &str) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == end));
    found.sort();
    ensure!(!found.is_empty(), "{}: no file ends in .{end}", directory.display());
    Ok(found)
}

/// Damages one file of a format and gives it to one command.
fn one(
    kymo: &Path,
    format: &HostileFormat,
    directory: &Path,
    chance: &mut Chance,
) -> anyhow::Result<()> {
    let sample = chance.pick(&format.samples);
    let copy = directory.join(if sample.is_dir() { "trace" } else { "file" });
    let damaged = if sample.is_dir() {
        let files = files_of(sample)?;
        std::fs::create_dir_all(&copy).with_context(|| copy.display().to_string())?;
        for file in &files {
            let to = copy.join(file.file_name().unwrap_or_default());
            std::fs::copy(file, &to).with_context(|| to.display().to_string())?;
        }
        copy.join(chance.pick(&files).file_name().unwrap_or_default())
    } else {
        std::fs::copy(sample, &copy).with_context(|| copy.display().to_string())?;
        copy.clone()
    };
    let mut bytes = std::fs::read(&damaged).with_context(|| damaged.display().to_string())?;
    damage(&mut bytes, chance);
    std::fs::write(&damaged, &bytes).with_context(|| damaged.display().to_string())?;
    let told = chance.pick(format.commands);
    let recording = crate::root().join("crates/kymo/tests/fixtures/perf-data/x86_64/fp.data");
    let arguments: Vec<String> = told
        .iter()
        .map(|word| match *word {
            "%" => recording.display().to_string(),
            word => word.replace('@', &copy.display().to_string()),
        })
        .collect();
    let result = run(kymo, &arguments, directory);
    let result = result.with_context(|| format!("{}: kymo {}", sample.display(), told.join(" ")));
    if sample.is_dir() {
        std::fs::remove_dir_all(&copy).with_context(|| copy.display().to_string())?;
    }
    result
}

fn files_of(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|path| path.is_file()).collect();
    files.sort();
    Ok(files)
}

/// Changes bytes as disks, cut transfers and people do.
fn damage(bytes: &mut Vec<u8>, chance: &mut Chance) {
    const NUMBERS: [u64; 8] =
        [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];
    for _ in 0..chance.between(1, 6) {
        let Some(last) = bytes.len().checked_sub(1) else { return };
        // Headers lie at the start, and are few.
        let reach = if chance.between(0, 2) == 0 { last.min(511) } else { last };
        let at = chance.between(0, reach as u64) as usize;
        let long = chance.between(1, 64).min((bytes.len() - at) as u64) as usize;
        match chance.between(0, 7) {
            0 | 1 => bytes[at] ^= 1 << chance.between(0, 7),
            2 | 3 => {
                let number = chance.pick(&NUMBERS).to_le_bytes();
                let wide = (*chance.pick(&[1, 2, 4, 8])).min(bytes.len() - at);
                bytes[at..at + wide].copy_from_slice(&number[..wide]);
            }
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..at + long)),
            6 => {
                let again = bytes[at..at + long].to_vec();
                let to = chance.between(0, last as u64) as usize;
                bytes.splice(to..to, again);
            }
            _ => bytes[at..at + long].fill(0),
        }
    }
}

/// Runs a command with what it writes into a file; an end that no input may cause is an error.
fn run(kymo: &Path, arguments: &[String], directory: &Path) -> anyhow::Result<()> {
    let said = directory.join("said");
    let err = std::fs::File::create(&said).with_context(|| said.display().to_string())?;
    let mut command = Command::new("sh");
    command.args(["-c", LIMITED, "sh"]).arg(kymo).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(err);
    command.env("KYMO_CACHE", "off").current_dir(directory);
    let begin = Instant::now();
    let mut child = command.spawn().context("cannot run kymo")?;
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for kymo")? {
            break status;
        }
        if begin.elapsed() > PATIENCE {
            // It is a child of ours that still runs.
            let _ = child.kill();
            let _ = child.wait();
            bail!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let text = std::fs::read(&said).with_context(|| said.display().to_string())?;
    let text = String::from_utf8_lossy(&text);
    let words: String = text.chars().take(2000).collect();
    // 2 is a command line that is wrong: no input was read.
    ensure!(status.code().is_some_and(|code| code != 2 && code < 100), "{status}: {words}");
    ensure!(!text.contains("panicked at") && !text.contains("internal error"), "{words}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_the_same_again() {
        let mut whole = Vec::new();
        for seed in 0..200 {
            let damaged = || {
                let mut bytes: Vec<u8> = (0..=255).collect();
                damage(&mut bytes, &mut Chance::of_round(seed, 7));
                bytes
            };
            assert_eq!(damaged(), damaged());
            whole.extend((damaged() == (0..=255).collect::<Vec<u8>>()).then_some(seed));
        }
        // A bit that is flipped twice, zeros for a zero.
        assert!(whole.len() < 10, "{whole:?} are not damaged");
    }
}

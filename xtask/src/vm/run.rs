//! `cargo xtask vm run`: one command in the guest, for people.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_guest::{Command, Job, OutputStream};

use super::apt::Apt;
use super::architecture::Architecture;
use super::initrd::{self, Contents, GuestRoot};
use super::machine::Machine;
use super::modules::Modules;
use super::{Scratch, disk, fetch};

/// The command line.
#[derive(Debug)]
struct Options {
    programs: Vec<String>,
    modules: Vec<String>,
    put: Vec<String>,
    get: Vec<String>,
    debug: bool,
    dev: bool,
    console: bool,
    append: String,
    memory_mb: u32,
    limit_seconds: u32,
    apt: Apt,
    architecture: Architecture,
    command: Vec<String>,
}

impl Options {
    fn parse(args: &[&str]) -> anyhow::Result<Options> {
        let mut options = Options {
            programs: Vec::new(),
            modules: Vec::new(),
            put: Vec::new(),
            get: Vec::new(),
            debug: false,
            dev: false,
            console: false,
            append: String::new(),
            memory_mb: 1024,
            limit_seconds: 300,
            apt: Apt::of_machine(),
            architecture: Architecture::default(),
            command: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || {
                let value = args.next().with_context(|| format!("{arg} wants a value"))?;
                anyhow::Ok((*value).to_owned())
            };
            match *arg {
                "--program" => options.programs.push(value()?),
                "--module" => options.modules.push(value()?),
                "--put" => options.put.push(value()?),
                "--get" => options.get.push(value()?),
                "--memory" => options.memory_mb = value()?.parse().context("--memory")?,
                "--limit" => options.limit_seconds = value()?.parse().context("--limit")?,
                "--kernel" => options.apt = Apt::of_suite(&value()?)?,
                "--arm64" => options.architecture = Architecture::Arm64,
                "--debug" => options.debug = true,
                "--dev" => options.dev = true,
                "--console" => options.console = true,
                "--append" => options.append = value()?,
                "--" => {
                    options.command.extend(args.by_ref().map(|a| (*a).to_owned()));
                }
                other if other.starts_with('-') => bail!("vm run has no option {other}"),
                _ => {
                    options.command.push((*arg).to_owned());
                    options.command.extend(args.by_ref().map(|a| (*a).to_owned()));
                }
            }
        }
        if options.command.is_empty() {
            bail!("vm run wants a command, such as: cargo xtask vm run -- kymo list");
        }
        Ok(options)
    }
}

pub(crate) fn main(args: &[&str]) -> anyhow::Result<ExitCode> {
    let mut options = Options::parse(args)?;
    options.apt = options.apt.for_architecture(options.architecture)?;
    let architecture = options.architecture;
    let kernel = fetch::kernel(&options.apt)?;
    let modules = Modules::of(&kernel)?;
    let kymo = if options.dev {
        // As the tests have it: nothing is compiled anew for other features.
        super::suite::dev_program(architecture)?
    } else {
        architecture.build_release()?
    };
    let mut contents = Contents {
        guest: GuestRoot::of(&options.apt)?,
        init: super::init(architecture)?,
        files: vec![(kymo, "/vm/bin/kymo".into())],
        programs: options.programs,
        load: options.modules,
        ready: super::suite::READY
            .into_iter()
            .filter(|name| modules.has(name))
            .map(String::from)
            .collect(),
        links: Vec::new(),
    };
    // A command that is not of the host is one of the guest's (kymo) or a mistake
    // that the guest reports.
    let program = options.command.first().filter(|p| contents.guest.which(p).is_some());
    contents.programs.extend(program.cloned());
    for put in &options.put {
        let (from, to) = pair(put);
        let place = std::path::absolute(to.unwrap_or(from)).context("--put")?;
        contents.files.push((PathBuf::from(from), place.to_string_lossy().into_owned()));
    }
    let disk = options.debug.then(|| disk::image(&kernel)).transpose()?;
    contents.load.extend(disk.is_some().then(|| disk::DRIVER.to_owned()));
    let job = Job {
        commands: vec![Command {
            arguments: options.command,
            environment: Vec::new(),
            limit_seconds: options.limit_seconds,
        }],
        get: options.get.iter().map(|get| pair(get).0.to_owned()).collect(),
        limit_seconds: options.limit_seconds + 60,
        disk: disk.as_ref().map_or_else(String::new, |_| disk::PLACE.into()),
        ..Job::default()
    };
    let scratch = Scratch::new()?;
    let initrd = scratch.path().join("initrd");
    initrd::write(&initrd, &contents, &modules, job)?;
    let machine = Machine {
        architecture,
        image: kernel.image()?,
        initrd,
        disk,
        append: options.append,
        memory_mb: options.memory_mb,
        limit: Duration::from_secs(u64::from(options.limit_seconds) + 60),
        silence: Duration::from_secs(u64::from(options.limit_seconds) + 30),
        show_console: options.console,
    };
    let outcome = machine.run(scratch.path(), &mut |_, stream, bytes| {
        match stream {
            OutputStream::Out => std::io::stdout().write_all(bytes),
            OutputStream::Err => std::io::stderr().write_all(bytes),
        }
        .context("passing on the guest's output")
    })?;
    eprintln!(
        "vm: up after {:.1} s, {:.1} s in all",
        outcome.boot.as_secs_f64(),
        outcome.total.as_secs_f64()
    );
    let mut all_back = true;
    for get in &options.get {
        let (from, to) = pair(get);
        let Some((_, copy)) = outcome.files.iter().find(|(path, _)| path == from) else {
            all_back = false;
            continue;
        };
        let name = Path::new(from).file_name().unwrap_or_default();
        let to = to.map_or_else(|| PathBuf::from(name), PathBuf::from);
        std::fs::copy(copy, &to).with_context(|| to.display().to_string())?;
        eprintln!("vm: {}", to.display());
    }
    let ended = outcome.ended.first().context("the command never ended")?;
    // Killed: the kernel may have said why.
    if ended.status >= 128 {
        eprintln!("vm: status {}; {}", ended.status, outcome.console);
    }
    if ended.late {
        bail!("the command took longer than {} s", options.limit_seconds);
    }
    if ended.status == 0 && !all_back {
        bail!("a file did not come back");
    }
    Ok(ExitCode::from(u8::try_from(ended.status).unwrap_or(u8::MAX)))
}

/// `A:B` → A and B.
fn pair(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((from, to)) => (from, Some(to)),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_end_where_the_command_begins() {
        let args = ["--module", "scsi_debug dev_size_mb=8", "--get", "/tmp/a:b", "ls", "--get"];
        let options = Options::parse(&args).unwrap();
        assert_eq!(options.command, ["ls", "--get"]);
        assert_eq!(options.modules, ["scsi_debug dev_size_mb=8"]);
        assert_eq!(pair(&options.get[0]), ("/tmp/a", Some("b")));
        let error = |args: &[&str]| Options::parse(args).unwrap_err().to_string();
        assert_eq!(error(&["--nonsense", "x"]), "vm run has no option --nonsense");
        assert!(error(&["--dev"]).starts_with("vm run wants a command"));
        assert_eq!(error(&["--put"]), "--put wants a value");
        assert_eq!(Options::parse(&["--dev", "--", "--x"]).unwrap().command, ["--x"]);
    }
}

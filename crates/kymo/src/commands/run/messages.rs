//! Programs as text: where they come from, messages at their lines, instructions shown.

use std::io::{self, Read as _, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use kymo_bpf::{CompiledProgram, ProgramPosition, SourceMessage};
use kymo_kernel::system::KernelName;
use kymo_programs::{MachineFacts, ProgramError, end_of_call};

use crate::called_name::CalledName;

/// A program's text and its name in messages.
pub(super) struct ProgramText {
    pub(super) name: String,
    pub(super) text: String,
}

/// Longest program.
const LONGEST: u64 = 16 << 20;

impl ProgramText {
    /// The program of `-e`, or of the file that the first word names, and the parameters.
    pub(super) fn read(
        program: Option<&str>,
        words: &[String],
    ) -> anyhow::Result<(ProgramText, Vec<String>)> {
        if let Some(text) = program {
            let own = ProgramText { name: "stdin".into(), text: text.to_owned() };
            return Ok((own, words.to_vec()));
        }
        let (file, parameters) =
            words.split_first().context("name a file with a program, or use -e PROGRAM")?;
        let mut text = String::new();
        let (name, read) = match file.as_str() {
            "-" => ("stdin", io::stdin().take(LONGEST).read_to_string(&mut text)),
            path => {
                let file = std::fs::File::open(path);
                (path, file.and_then(|file| file.take(LONGEST).read_to_string(&mut text)))
            }
        };
        read.map_err(|error| {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            anyhow::anyhow!("failed to open file '{name}': {text}")
        })?;
        Ok((ProgramText { name: name.to_owned(), text }, parameters.to_vec()))
    }

    /// Prints a message with the line it is about.
    pub(super) fn say(&self, severity: &str, message: &SourceMessage) {
        self.say_at(severity, message.position, &message.text);
        if let Some(hint) = &message.hint {
            sayln!("HINT: {hint}");
        }
    }

    fn say_at(&self, severity: &str, at: ProgramPosition, text: &str) {
        let name = &self.name;
        if at.line == 0 {
            sayln!("{severity}: {text}");
            return;
        }
        let end = end_of_call(&self.text, at);
        let to = end.map_or(String::new(), |end| format!("-{end}"));
        sayln!("{name}:{}:{}{to}: {severity}: {text}", at.line, at.column);
        if let Some(line) = self.text.lines().nth(at.line as usize - 1) {
            // A line may be megabytes long.
            let line: String = line.chars().take(400).collect();
            let before = line.chars().take((at.column as usize).saturating_sub(1));
            let blanks: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let mark = match end {
                Some(end) => "~".repeat((end - at.column) as usize),
                None => "^".to_owned(),
            };
            sayln!("{line}\n{blanks}{mark}");
        }
    }

    /// Prints why the program does not run, and gives the status.
    pub(super) fn fail(&self, error: &ProgramError) -> anyhow::Result<ExitCode> {
        self.fail_verbosely(error, false)
    }

    /// Prints why the program does not run, with the verifier's log if requested, and returns the
    /// status.
    pub(super) fn fail_verbosely(
        &self,
        error: &ProgramError,
        wants_log: bool,
    ) -> anyhow::Result<ExitCode> {
        match error {
            ProgramError::Compile(messages) => {
                for message in messages.iter().take(20) {
                    message.warnings.iter().for_each(|warning| self.say("WARNING", warning));
                    self.say("ERROR", message);
                }
            }
            ProgramError::Refused { position, log, .. } => {
                self.say_at(
                    "ERROR",
                    *position,
                    &format!("the kernel refuses the program: {error}"),
                );
                if wants_log {
                    sayln!("{log}")
                } else {
                    sayln!("HINT: -v shows the verifier's log")
                }
            }
            ProgramError::PacketFile { position, .. } => {
                self.say_at("ERROR", *position, &error.to_string());
            }
            ProgramError::Attach { position, .. } => {
                self.say_at("ERROR", *position, &format!("cannot attach {error}"));
            }
            error => sayln!("ERROR: {error}"),
        }
        Ok(ExitCode::FAILURE)
    }

    /// Options of the program that it does not declare, or `--help`: prints those that it does, and
    /// gives the status.
    pub(super) fn refuse_options(
        &self,
        program: &CompiledProgram,
        parameters: &[String],
    ) -> Option<ExitCode> {
        let given = parameters.iter().filter_map(|parameter| parameter.strip_prefix("--"));
        let names = given.map(|option| option.split('=').next().unwrap_or(option));
        let is_known = |name: &&str| program.options.iter().any(|option| option.name == *name);
        let unknown: Vec<&str> = names.filter(|name| !is_known(name)).collect();
        if unknown.is_empty() {
            return None;
        }
        let listed = |names: &[&str]| {
            names.iter().map(|name| format!("--{name}")).collect::<Vec<_>>().join(", ")
        };
        if unknown != ["help"] {
            sayln!("ERROR: unexpected program command line options: {}", listed(&unknown));
            let names: Vec<&str> = program.options.iter().map(|o| o.name.as_str()).collect();
            sayln!("HINT: expected program options: {}", listed(&names));
            return Some(ExitCode::FAILURE);
        }
        sayln!("HINT: expected program options:");
        for option in &program.options {
            match option.description.as_str() {
                "" => sayln!("--{}", option.name),
                about => sayln!("--{}: {about}", option.name),
            }
        }
        Some(ExitCode::FAILURE)
    }

    /// The program changes the system and was not allowed to.
    pub(super) fn refuse_unsafe(
        &self,
        call: &str,
        position: ProgramPosition,
    ) -> anyhow::Result<ExitCode> {
        let text = format!("{call}() is unsafe. To use you need the --unsafe flag");
        self.say_at("ERROR", position, &text);
        sayln!("HINT: --unsafe allows it");
        Ok(ExitCode::FAILURE)
    }
}

/// Instructions of all probes.
pub(super) fn write_program(
    out: &mut dyn Write,
    program: &CompiledProgram,
    source: &str,
) -> io::Result<()> {
    for map in &program.maps {
        writeln!(
            out,
            "map {} {:?} key {} value {} entries {}",
            map.name, map.map_type, map.key_size, map.value_size, map.max_entries
        )?;
    }
    for probe in &program.probes {
        for point in &probe.points {
            writeln!(out, "{}", point.name)?;
        }
        out.write_all(kymo_bpf::disassemble(program, probe, source).as_bytes())?;
    }
    Ok(())
}

/// Writes the capabilities of this kernel for BPF programs.
pub(super) fn write_info(out: &mut dyn Write) -> io::Result<()> {
    let kernel = KernelName::running();
    writeln!(
        out,
        "System\n  OS: {} {} {}\n  Arch: {}",
        kernel.system, kernel.release, kernel.version, kernel.machine
    )?;
    let facts = MachineFacts::new(None);
    writeln!(out, "\nKernel features")?;
    let yes = |there| if there { "yes" } else { "no" };
    for (name, there) in facts.features() {
        writeln!(out, "  {name}: {}", yes(there))?;
    }
    Ok(())
}

/// The process of `-p`.
pub(super) fn process_id(text: &str) -> anyhow::Result<u32> {
    const MOST: u32 = 1 << 22;
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_cut = text.starts_with(|c: char| c.is_ascii_digit());
    anyhow::ensure!(is_number || !is_cut, "Failed to parse pid: invalid trailing bytes: {text}");
    anyhow::ensure!(is_number, "Failed to parse pid: invalid integer: {text}");
    let pid = text.parse().ok().filter(|pid| (1..=MOST).contains(pid));
    pid.with_context(|| format!("Pid out of range: {text}"))
}

/// Says that all is attached, as bpftrace does for tests that wait for it.
pub(super) fn notify_attached() {
    const NOTIFY: &str = "__BPFTRACE_NOTIFY_PROBES_ATTACHED";
    if CalledName::get() == CalledName::Bpftrace && std::env::var_os(NOTIFY).is_some() {
        let _ = writeln!(crate::streams::raw_stdout(), "{NOTIFY}");
    }
}

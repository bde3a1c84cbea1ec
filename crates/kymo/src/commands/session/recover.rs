//! `kymo session recover`: programs with tracepoints of their own write into files, so
//! the last events of one that was killed are still there.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use kymo_files::ctf::types::CtfVersion;
use kymo_kernel::ftrace::{is_left_behind, is_owned};
use kymo_model::counted;
use kymo_record::ust::{Drain, MountNamespace, Peek, Program, check_new_directory};
use kymo_view::Ledger;

use crate::args::values::ctf_version;

#[derive(clap::Args)]
pub(super) struct Recover {
    /// Directory for the traces, one per program
    #[arg(short = 'o', long, value_name = "DIR", default_value = "recovered")]
    output: PathBuf,
    /// Only this process
    #[arg(short = 'p', long, value_name = "PID")]
    pid: Option<u32>,
    /// CTF version for user-space events: 1.8 or 2
    #[arg(long, value_name = "VERSION", default_value = "1.8", value_parser = ctf_version)]
    ctf: CtfVersion,
    /// Keep the ring buffers
    #[arg(long)]
    keep: bool,
    /// Print only errors
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// Rings that another process owns: a running `kymo trace -u`.
fn is_busy(order: &str) -> bool {
    is_owned(order) && !is_left_behind(order)
}

pub(super) fn run(args: &Recover) -> anyhow::Result<ExitCode> {
    check_new_directory(&args.output)?;
    let mut drain = Drain::new(&args.output, "").with_version(args.ctf);
    let (mut notes, mut rings) = (Vec::new(), 0);
    for namespace in MountNamespace::all() {
        let (users, refused) = namespace.users();
        notes.extend(refused.iter().map(ToString::to_string));
        for user in users {
            let (programs, refused) = Program::all(&user);
            notes.extend(refused.iter().map(ToString::to_string));
            for program in programs {
                let other = args.pid.is_some_and(|pid| pid != program.id().pid);
                if other || program.is_alive()? {
                    continue;
                }
                let peek = if args.keep { Peek::Yes } else { Peek::No };
                let recovered = drain.recover(&program, peek, is_busy)?;
                rings += recovered;
                if !args.keep {
                    program.remove_rings(|order| !is_busy(order))?;
                    program.remove_if_empty(&user)?;
                }
            }
        }
    }
    let stats = drain.stats();
    let mut ledger = Ledger::default();
    if rings > 0 {
        stats.notes(&notes).into_iter().for_each(|note| ledger.push(note));
    }
    if !args.quiet {
        let mut out = crate::streams::stderr();
        let _ = match rings {
            0 => writeln!(out, "[ kymo session: no program has left anything ]"),
            _ => writeln!(
                out,
                "[ kymo session: {}, {} bytes of events of {} ]",
                args.output.display(),
                stats.bytes,
                counted(stats.programs, "program", "programs")
            ),
        };
        let _ = write!(out, "{}", ledger.to_text(""));
    }
    Ok(ExitCode::SUCCESS)
}

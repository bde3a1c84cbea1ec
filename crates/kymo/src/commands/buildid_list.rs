//! `kymo buildid-list`: build-ids of the binaries of a perf.data, or of the running kernel.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use kymo_files::perfdata::PerfData;
use kymo_kernel::proc_maps;
use kymo_kernel::system::SystemRoot;
use kymo_model::{BuildId, UntrustedText};

use super::hit_binaries::{hit_binaries, stated_build_ids};
use crate::exit;

/// Flags of `kymo buildid-list`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Recording (perf.data); `-`: standard input
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Ignore the owner of the file [always on]
    #[arg(short, long)]
    force: bool,
    /// Only binaries with samples
    #[arg(short = 'H', long)]
    with_hits: bool,
    /// Show the build-id of the running kernel
    #[arg(short, long)]
    kernel: bool,
    /// Show build-ids, addresses and names of the running kernel and its modules
    #[arg(short = 'm', long)]
    kernel_maps: bool,
    /// No effect (accepted for compatibility)
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    crate::screen::page();
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    let system = SystemRoot::machine();
    if args.kernel {
        let id = system.kernel_build_id().context("the running kernel states no build-id")?;
        writeln!(out, "{id}")?;
    } else if args.kernel_maps {
        if let Some(text) = proc_maps::kernel_text()? {
            let id = text_of(system.kernel_build_id());
            writeln!(out, "{id} {:16x} {:16x} [kernel.kallsyms]", text.start, text.end)?;
        }
        for module in proc_maps::modules() {
            let (id, end) = (system.module_build_id(&module.name), module.start + module.size);
            writeln!(out, "{} {:16x} {end:16x} [{}]", text_of(id), module.start, module.name)?;
        }
    } else {
        let path = args.input.clone().unwrap_or_else(super::default_recording);
        let (mut file, hit) = if args.with_hits {
            let mut file = PerfData::open(&path)?;
            let hit = hit_binaries(&mut file, &path)?;
            (file, Some(hit))
        } else {
            (super::open_description(&path)?, None)
        };
        for entry in &stated_build_ids(&mut file)? {
            if hit.as_ref().is_none_or(|hit| hit.contains(entry.path())) {
                let path = UntrustedText::new(&entry.filename).to_text();
                writeln!(out, "{} {path}", entry.build_id)?;
            }
        }
        out.flush()?;
        return Ok(exit::of_description(&file));
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn text_of(id: Option<BuildId>) -> String {
    id.map_or_else(|| "0".repeat(40), |id| id.to_string())
}

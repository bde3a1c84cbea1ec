//! `kymo bundle`: what resolves the addresses of a recording, in a file beside
//! it, so that another machine shows the same.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use kymo_analysis::bundle::write_bundle;
use kymo_files::RecordingFormat;
use kymo_symbols::bundle_writer::Contents;
use kymo_view::bundle::{bundle_ledger, bundle_text};

use crate::args::symbols::SymbolArgs;
use crate::exit;

/// Flags of `kymo bundle`.
#[derive(clap::Args)]
#[command(after_help = "A bundle is a tar archive with the layout of perf's build-id cache: `tar \
                        xf perf.data.bundle -C ~/.debug` gives perf the same symbols. Other kymo \
                        commands use FILE.bundle automatically.")]
pub(crate) struct Args {
    /// The recording
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The recording
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    input: Option<PathBuf>,
    /// Bundle to write [default: FILE.bundle, where other commands look for it]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Include complete binaries and debug files, not only the needed parts
    #[arg(long)]
    binaries: bool,
    /// Include sources and complete binaries, for `kymo annotate` on other machines
    #[arg(long)]
    sources: bool,
    #[command(flatten)]
    finding: SymbolArgs,
    /// Exit with status 3 if symbols could not be resolved on this machine either
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let path = args.input.or(args.file).unwrap_or_else(super::default_recording);
    if path == Path::new("-") {
        bail!("a bundle is written beside a file: name the recording");
    }
    if args.output.as_deref() == Some(Path::new("-")) {
        bail!("a bundle is written to a file: name it with -o");
    }
    if RecordingFormat::of(&path) == Some(RecordingFormat::TraceDat) {
        bail!("{}: a trace.dat needs no bundle, it has the names of its addresses", path.display());
    }
    if matches!(RecordingFormat::of(&path), Some(RecordingFormat::Ctf | RecordingFormat::Session)) {
        bail!("{}: a directory of traces needs no bundle, it can be copied", path.display());
    }
    let contents = match (args.sources, args.binaries) {
        (true, _) => {
            let meta = std::fs::metadata(&path).with_context(|| path.display().to_string())?;
            Contents::Sources { recorded_by: meta.uid() }
        }
        (_, true) => Contents::Binaries,
        _ => Contents::Seen,
    };
    crate::progress::begin(path.display());
    let mut options = args.finding.options(&path);
    if args.finding.bundle.is_none() {
        // The one that may lie there is to be replaced, not repeated.
        (options.bundle, options.no_bundle) = (None, None);
    }
    let bundle = write_bundle(&path, options, args.output.as_deref(), contents)?;
    crate::progress::end();
    let ledger = bundle_ledger(&bundle);
    say!("{}{}", bundle_text(&bundle), ledger.to_text(""));
    Ok(exit::status(path.display(), bundle.damage.as_deref(), &ledger, args.strict))
}

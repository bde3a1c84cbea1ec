//! `kymo bundle`: what resolves the addresses of a recording, in a file beside
//! it, so that another machine shows the same.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use kymo_files::RecordingFormat;
use kymo_files::perfdata::PerfData;
use kymo_model::NoteKind;
use kymo_symbols::bundle::{Bundle, Recording};
use kymo_symbols::bundle_writer::{self, BundleSummary, Contents};
use kymo_view::Ledger;
use kymo_view::trust::{byte_size, note_symbols};

use super::counted;
use crate::args::symbols::SymbolArgs;
use crate::exit;

/// Flags of `kymo bundle`.
#[derive(clap::Args)]
#[command(after_help = "The bundle is a tar archive of the form of perf's build-id cache: where \
there is no kymo, `tar xf perf.data.bundle -C ~/.debug` gives perf the same symbols. Other \
commands find a bundle beside the recording (FILE.bundle) by themselves.")]
pub(crate) struct Args {
    /// The recording
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The recording
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    input: Option<PathBuf>,
    /// The bundle to write; FILE.bundle is where other commands look for it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Put whole binaries and debug files into it, not only what the recording needs of them
    #[arg(long)]
    binaries: bool,
    /// Put the source files of the functions seen into it, too, and whole binaries, so that
    /// `kymo annotate` shows all of it elsewhere
    #[arg(long)]
    sources: bool,
    #[command(flatten)]
    finding: SymbolArgs,
    /// Exit with status 3 if anything could not be resolved here either
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let path = args.input.or(args.file).unwrap_or_else(super::default_recording);
    if path == Path::new("-") {
        bail!("a bundle lies beside a file: name the recording");
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
    let made = make(&path, &args.finding, args.output.as_deref(), contents)?;
    made.tell();
    Ok(exit::status(path.display(), made.damage.as_deref(), &made.ledger, args.strict))
}

/// A bundle that was made.
pub(crate) struct Made {
    path: PathBuf,
    summary: BundleSummary,
    ledger: Ledger,
    damage: Option<String>,
}

impl Made {
    /// Says what was made, and what is missing in it.
    pub(crate) fn tell(&self) {
        let BundleSummary { binaries, symbols, ref sources, bytes, .. } = self.summary;
        let path = self.path.display();
        let size = byte_size(bytes);
        let source_count = match sources.len() as u64 {
            0 => String::new(),
            n => format!(", {}", counted(n, "source", "sources")),
        };
        let binaries = counted(binaries as u64, "binary", "binaries");
        let symbols = counted(symbols as u64, "symbol", "symbols");
        sayln!("[ kymo bundle: Wrote {size} {path} ({binaries}, {symbols}{source_count}) ]");
        // What leaves the machine is for its user to see.
        for source in sources {
            sayln!("  {}", plain(source));
        }
        say!("{}", self.ledger.to_text(""));
    }
}

/// Makes the bundle of a recording.
pub(crate) fn make(
    path: &Path,
    finding: &SymbolArgs,
    output: Option<&Path>,
    contents: Contents,
) -> anyhow::Result<Made> {
    let out = output.map_or_else(|| Bundle::beside(path), Path::to_owned);
    let mut options = finding.options(path);
    if finding.bundle.is_none() {
        // The one that may lie there is to be replaced, not repeated.
        (options.bundle, options.no_bundle) = (None, None);
    }
    let recording = Recording::of(path).with_context(|| path.display().to_string())?;
    let mut file = PerfData::open(path)?;
    let mut seen = kymo_analysis::seen::seen(&mut file, options).context("bundle")?;
    seen.places.constants = kymo_events::perf_data::recorded_constants(&file);
    let mut ledger = Ledger::default();
    let damage = seen.stats.damaged.as_ref();
    let damage = damage.map(|d| format!("{d}; what came before is in the bundle"));
    if let Some(damage) = &damage {
        ledger.note(NoteKind::Damaged, damage.clone(), None);
    }
    let symbols = &mut seen.machine.symbols;
    let summary = bundle_writer::write(symbols, seen.places, recording, contents, &out)
        .with_context(|| format!("cannot write {}", out.display()))?;
    note_symbols(symbols, &mut ledger);
    if summary.sources_missing > 0 {
        let (missing, there) = (summary.sources_missing, summary.sources.len());
        let fact = format!(
            "{missing} source files are not in the bundle, {there} are: they are not here, too \
             large, no sources by their names or contents, or not for everybody to read"
        );
        ledger.tell(NoteKind::Sources, fact, None);
    }
    if summary.missing > 0 {
        let fact = format!("{} binaries were not found here either", summary.missing);
        ledger.note(NoteKind::Missing, fact, None);
    }
    Ok(Made { path: out, summary, ledger, damage })
}

/// A path on one line: names of files may hold anything.
fn plain(path: &Path) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    path.to_string_lossy().chars().map(shown).collect()
}

//! `kymo annotate`: what each instruction and each line of a function cost.

mod source;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use kymo_analysis::binary_filter::BinaryFilter;
use kymo_analysis::code_listing::list_function;
use kymo_analysis::function_cost::{CostSum, FunctionCost, FunctionCosts, PercentType};
use kymo_analysis::profile::{LoadOptions, Profile};
use kymo_debuginfo::disasm::Syntax;
use kymo_events::EventSource;
use kymo_model::NoteKind;
use kymo_symbols::{DsoId, Resolver};
use kymo_view::Ledger;
use kymo_view::annotate::{
    CostColumn, HiddenFunctions, LineTexts, ListingStyle, ListingWriter, note_listing,
};
use kymo_view::trust::profile_ledger;

use crate::args::samples::{RecordingArgs, SampleArgs};
use crate::exit;
use source::SourceTexts;

/// Flags of `kymo annotate`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
kymo annotate                     the three hottest functions\n  \
kymo annotate memcpy -M intel     one function, destination operand first\n  \
kymo annotate -d libc.so.6 'str*' all functions with that prefix")]
pub(crate) struct Args {
    #[command(flatten)]
    source: RecordingArgs,
    /// Functions to show (names or globs) [default: the hottest]
    #[arg(value_name = "SYMBOL")]
    symbols: Vec<String>,
    /// Function to show
    #[arg(short, long, value_name = "SYMBOL", visible_short_alias = 'S')]
    symbol: Vec<String>,
    #[command(flatten)]
    chosen: SampleArgs,
    /// Number of functions to show if none is named
    #[arg(long, value_name = "N", default_value_t = 3)]
    top: usize,
    /// Plain text (the only output mode)
    #[arg(long)]
    stdio: bool,
    /// Syntax of operands: att or intel
    #[arg(short = 'M', long, value_name = "STYLE", default_value = "att")]
    disassembler_style: Style,
    /// Do not show source lines
    #[arg(long)]
    no_source: bool,
    /// Show file and line of each source block
    #[arg(short = 'l', long)]
    print_line: bool,
    /// Show full paths of source files
    #[arg(short = 'P', long)]
    full_paths: bool,
    /// Prepend this path to absolute source paths
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Strip the first N directories of source paths before adding --prefix
    #[arg(long, value_name = "N", default_value_t = 0, requires = "prefix")]
    prefix_strip: usize,
    /// Show instruction bytes
    #[arg(short = 'A', long)]
    asm_raw: bool,
    /// Base of the percentages
    #[arg(long, value_name = "TYPE", default_value = "local-period")]
    percent_type: PercentOf,
    /// Hide functions below this percentage of all samples
    ///
    /// Also hides summary lines below this percentage of their function [default: 0.5 for the
    /// summary].
    #[arg(long, value_name = "PERCENT")]
    percent_limit: Option<f64>,
    /// Show the number of samples
    #[arg(short = 'n', long)]
    show_nr_samples: bool,
    /// Show the sum of periods
    #[arg(long, conflicts_with = "show_nr_samples")]
    show_total_period: bool,
    /// Skip functions whose code is missing
    #[arg(long)]
    skip_missing: bool,
    /// Show events side by side (always on; accepted for compatibility)
    #[arg(long)]
    group: bool,
    /// Ignore the owner of the file [always on]
    #[arg(short, long)]
    force: bool,
    /// Exit with status 3 if anything could make the result wrong
    #[arg(long)]
    strict: bool,
}

/// The value of --percent-type.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PercentOf {
    /// Share of the function's weight
    LocalPeriod,
    /// Share of the weight of all samples
    GlobalPeriod,
    /// Share of the function's samples
    LocalHits,
    /// Share of all samples
    GlobalHits,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Style {
    /// Source operand first
    #[value(alias = "att-mnemonic")]
    Att,
    /// Destination operand first
    #[value(alias = "intel-mnemonic")]
    Intel,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let path = args.source.input.clone().unwrap_or_else(super::default_recording);
    crate::progress::begin(path.display());
    let source = EventSource::open(std::slice::from_ref(&path), args.source.symbols(&path))?;
    let selection = args.chosen.selection(&source)?;
    let mut file = source.samples()?;
    let file = &mut *file;
    if let Some(arch) = &file.features().arch
        && arch != "x86_64"
    {
        bail!("{}: recorded on {arch}; kymo disassembles x86_64 only", path.display());
    }
    let options = LoadOptions {
        symbols: source.symbols().clone(),
        merge_threads: true,
        no_chains: true,
        by_address: true,
        selection: Some(&selection),
        ..LoadOptions::default()
    };
    let profile = Profile::read(file, options).context("annotate")?;
    let costs = FunctionCosts::new(&profile, BinaryFilter(&args.chosen.dsos));
    let mut ledger = profile_ledger(&profile, file);
    selection.unmet_notes_in(file).into_iter().for_each(|note| ledger.push(note));
    let chosen = choose(&args, &profile, &costs).inspect_err(|_| {
        say!("{}", ledger.to_text(""));
    })?;
    crate::screen::page();
    let mut out = std::io::BufWriter::with_capacity(64 << 10, crate::streams::stdout().lock());
    let most = if args.names().is_empty() { args.top } else { chosen.len() };
    let mut shown = 0;
    let mut hidden = HiddenFunctions::default();
    let has_enough = |hot: &FunctionCost| {
        let sum = |sums: &[CostSum]| sums.iter().map(|sum| sum.samples).sum::<u64>() as f64;
        let limit = args.percent_limit.filter(|_| args.names().is_empty()).unwrap_or(0.0);
        sum(&hot.sums) * 100.0 >= sum(&costs.whole) * limit
    };
    for hot in chosen.iter().filter(|hot| has_enough(hot)) {
        match show(&args, &profile, &costs, hot, &mut out, &mut ledger) {
            Ok(()) => shown += 1,
            Err(Shown::Output(e)) => return Err(e.into()),
            Err(Shown::Not(why)) => {
                hidden.add(profile.machine.symbols.name(hot.symbol), hot, why);
            }
        }
        if shown == most {
            break;
        }
    }
    hidden.note(&costs, args.skip_missing, &mut ledger);
    if shown < costs.hot.len() && args.names().is_empty() {
        let fact = format!("{shown} of {} functions with samples are shown", costs.hot.len());
        ledger.tell(
            NoteKind::Scope,
            fact,
            Some("name a function, or say how many with --top".into()),
        );
    }
    if !ledger.is_empty() {
        write!(out, "{}", ledger.to_text("# "))?;
    }
    out.flush()?;
    let damage = profile.stats.damaged.as_ref();
    let damage = damage.map(|d| format!("{d}; everything before it is counted"));
    let status = exit::status(path.display(), damage.as_deref(), &ledger, args.strict);
    Ok(if shown == 0 { ExitCode::FAILURE } else { status })
}

impl Args {
    fn names(&self) -> Vec<&String> {
        self.symbols.iter().chain(&self.symbol).collect()
    }

    fn style(&self) -> ListingStyle {
        ListingStyle {
            percent: match self.percent_type {
                PercentOf::LocalPeriod => PercentType::LocalPeriod,
                PercentOf::GlobalPeriod => PercentType::GlobalPeriod,
                PercentOf::LocalHits => PercentType::LocalHits,
                PercentOf::GlobalHits => PercentType::GlobalHits,
            },
            least: self.percent_limit.unwrap_or(0.5),
            source: !self.no_source,
            lines: self.print_line,
            full_paths: self.full_paths,
            raw: self.asm_raw,
            count: match (self.show_nr_samples, self.show_total_period) {
                (true, _) => CostColumn::Samples,
                (_, true) => CostColumn::Period,
                _ => CostColumn::Percent,
            },
            color: crate::streams::is_colored(),
        }
    }
}

/// Functions without code that are passed over on the way to those with some.
const TRIED: usize = 50;

/// The functions that are named, or the hottest ones.
fn choose<'a>(
    args: &Args,
    profile: &Profile,
    costs: &'a FunctionCosts,
) -> anyhow::Result<Vec<&'a FunctionCost>> {
    let names = args.names();
    if costs.hot.is_empty() {
        bail!("no sample is in a function that has a name");
    }
    if names.is_empty() {
        return Ok(costs.hot.iter().take(args.top.saturating_add(TRIED)).collect());
    }
    let mut found: Vec<&FunctionCost> = Vec::new();
    for name in names {
        let is = |hot: &&FunctionCost| profile.machine.symbols.name(hot.symbol) == name;
        let mut all: Vec<&FunctionCost> = costs.hot.iter().filter(is).collect();
        if all.is_empty() {
            // What is not a glob can still be the start of a name: `operator[`.
            let glob = globset::Glob::new(name).ok().map(|glob| glob.compile_matcher());
            let fits = |hot: &&FunctionCost| {
                glob.as_ref().is_some_and(|g| g.is_match(profile.machine.symbols.name(hot.symbol)))
            };
            all = costs.hot.iter().filter(fits).collect();
        }
        if all.is_empty() {
            let hottest = costs.hot.iter().take(3).map(|h| profile.machine.symbols.name(h.symbol));
            let hottest = hottest.collect::<Vec<_>>().join(", ");
            let file = if Path::new(name).is_file() { " (-i names a recording)" } else { "" };
            bail!("no sample is in a function {name}{file}; most are in {hottest}");
        }
        found.extend(all);
    }
    Ok(found)
}

/// Reason why a function is not shown.
enum Shown {
    Output(std::io::Error),
    Not(String),
}

fn show(
    args: &Args,
    profile: &Profile,
    costs: &FunctionCosts,
    hot: &FunctionCost,
    out: &mut dyn Write,
    ledger: &mut Ledger,
) -> Result<(), Shown> {
    let symbols = &profile.machine.symbols;
    let name = symbols.name(hot.symbol);
    let syntax = match args.disassembler_style {
        Style::Att => Syntax::Att,
        Style::Intel => Syntax::Intel,
    };
    let plain = args.source.finding.no_demangle;
    let listing = list_function(symbols, hot, syntax, plain).map_err(Shown::Not)?;
    let made = listing.file.as_ref().and_then(|path| std::fs::metadata(path).ok()?.modified().ok());
    let mut sources = SourceTexts::of(made, args.finder(symbols, hot.dso));
    let style = args.style();
    let mut text = ListingWriter { out, style: &style, costs, sources: &mut sources };
    let dso = symbols.dso_name(Some(hot.dso));
    text.write_function(hot, name, dso, &listing).map_err(Shown::Output)?;
    note_listing(name, &listing, ledger);
    note_sources(&sources, ledger);
    Ok(())
}

impl LineTexts for SourceTexts {
    fn line(&mut self, path: &str, line: u32) -> Option<&str> {
        SourceTexts::line(self, path, line)
    }
}

impl Args {
    /// Finds sources of a binary wherever its files are looked for.
    fn finder(&self, symbols: &Resolver, dso: DsoId) -> source::Find {
        let files = Arc::clone(symbols.files());
        let (prefix, strip) = (self.prefix.clone(), self.prefix_strip);
        let Some(dso) = symbols.get(dso) else { return Box::new(|_| None) };
        let (path, facts) = (dso.path.clone(), dso.binary());
        let (build_id, pid) = (facts.build_id, facts.pid);
        Box::new(move |source| {
            let moved = prefix.as_ref().and_then(|prefix| moved(source, prefix, strip));
            moved.filter(|path| path.is_file()).or_else(|| {
                files.source(&kymo_symbols::Binary { path: &path, build_id, pid }, source)
            })
        })
    }
}

/// An absolute path without its first `strip` directories, as far as it has them, behind a prefix.
fn moved(path: &str, prefix: &str, strip: usize) -> Option<PathBuf> {
    let mut rest = path.strip_prefix('/')?;
    for _ in 0..strip {
        let Some((_, below)) = rest.split_once('/') else { break };
        rest = below;
    }
    Some(PathBuf::from(format!("{prefix}/{rest}")))
}

fn note_sources(sources: &SourceTexts, ledger: &mut Ledger) {
    for path in &sources.younger {
        let fact = format!("{path} is younger than the binary: its lines may be other ones");
        ledger.note(NoteKind::Source, fact, None);
    }
    if !sources.missing.is_empty() {
        ledger.tell(NoteKind::Source, format!("not found: {}", sources.missing.join(", ")), None);
    }
}

//! `kymo diff --save` and `--against`: runs of one side kept as sums, and runs compared with them.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_compare::{
    CompareOptions, Comparison, Measure, RunSums, baseline_to_parquet, read_baseline,
};
use kymo_model::NoteKind;
use kymo_view::Ledger;
use kymo_view::diff::DiffReport;

use super::read::{self, Sides};
use super::{Args, Per, judge, note_comparison, show};
use crate::commands::output;
use crate::exit;

/// Largest baseline that is read, in bytes.
const LARGEST: u64 = 64 << 20;

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.files.len() < 2 {
        bail!("{} recordings: a baseline needs several runs, each in a file", args.files.len());
    }
    let known = match &args.against {
        Some(path) => {
            let name = path.display().to_string();
            let bytes = read_file(path).with_context(|| name.clone())?;
            Some(read_baseline(&bytes, &name).with_context(|| name)?)
        }
        None => None,
    };
    let per = match (&args.per, &known) {
        (Some(per), Some((saved, _))) if per.word() != saved => {
            bail!("--per {}: the baseline has amounts per {saved}", per.word())
        }
        (Some(per), _) => per.clone(),
        (None, Some((saved, _))) => saved.parse().map_err(anyhow::Error::msg)?,
        (None, None) => Per::Run,
    };
    crate::progress::begin(args.files.first().map_or("", |p| p.to_str().unwrap_or_default()));
    let after = read::read_all(args, &args.files, &per, false)?;
    let sides = Sides { before: Vec::new(), after };
    let mut ledger = Ledger::default();
    sides.notes(true, &mut ledger);
    let quantities = sides.quantities_after()?;
    let Some((_, saved)) = known else {
        let Some(path) = &args.save else { bail!("no baseline is named") };
        let all: Vec<_> = quantities
            .iter()
            .map(|(kind, name, unit, runs)| (*kind, &**name, *unit, &**runs))
            .collect();
        let baseline = baseline_to_parquet(per.word(), &all)
            .with_context(|| format!("cannot save {}", path.display()))?;
        output::write(Some(path), args.force, &mut |out| out.write_all(&baseline))?;
        exit::tell(&ledger);
        let (name, damage) = sides.damage().unzip();
        return Ok(exit::status(name.unwrap_or_default(), damage.as_deref(), &ledger, args.strict));
    };
    let mut measures = Vec::new();
    for (kind, name, unit, before) in saved {
        let found = quantities.iter().find(|(k, n, u, _)| *k == kind && *n == name && *u == unit);
        if let Some((.., after)) = found {
            measures.push(Measure { kind, name, unit, before, after: after.clone() });
        }
    }
    let is_empty = |runs: &[RunSums]| runs.is_empty();
    if measures.iter().all(|m| is_empty(&m.before) || is_empty(&m.after)) {
        let names: Vec<&str> = quantities.iter().map(|(_, name, ..)| &**name).collect();
        bail!("the baseline has nothing of {}", names.join(", "));
    }
    let advice = "kymo diff --run compares two programs in turns";
    let fact = "a baseline was recorded before: what else changed on the machine since then looks \
                like a change of the program";
    ledger.note(NoteKind::Sequential, fact, Some(advice.to_owned()));
    let options = CompareOptions { margin: args.margin / 100.0, ..CompareOptions::default() };
    let comparison = Comparison::new(&measures, &options)?;
    note_comparison(&comparison, &mut ledger);
    let base = args.against.iter().map(|p| p.display().to_string()).collect();
    let report = DiffReport {
        gates: judge(args, &comparison, &ledger),
        comparison,
        sides: [base, args.files.iter().map(|p| p.display().to_string()).collect()],
        per: per.word().to_owned(),
        run_word: "run",
        trees: Vec::new(),
    };
    show(args, report, &ledger, sides.damage())
}

/// Reads a file up to the limit: its size is not known of a pipe.
fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        bail!("more than {LARGEST} bytes are too many for a baseline");
    }
    Ok(bytes)
}

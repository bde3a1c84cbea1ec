//! The verbs that only look: `--definition`, `--line`, `--vars`, `--funcs`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use kymo_debuginfo::dwarf::{PlaceVariables, Sources as _, Variable, source_lines};
use kymo_debuginfo::probe::{Description, Filter, LineRange, RawLine, looks_raw};
use kymo_symbols::probe::{Facts, PlanError, kallsyms_functions};
use kymo_view::Ledger;

use super::Args;
use super::place::{Planner, close, facts, files, settings};

/// `--definition`.
pub(super) fn definitions(args: &Args) -> anyhow::Result<ExitCode> {
    let mut ledger = Ledger::default();
    let mut lines = Vec::new();
    let described: Vec<&String> = args.definition.iter().filter(|d| !looks_raw(d)).collect();
    let files = (!described.is_empty()).then(|| files(args, true));
    let planner = files.as_ref().map(Planner::new).transpose()?;
    for text in &args.definition {
        if looks_raw(text) {
            lines.push(RawLine::parse(text)?.line);
            continue;
        }
        let d = Description::parse(text)?;
        let Some(planner) = &planner else { continue };
        let plan = planner.plan(args, &d)?;
        lines.extend(plan.definitions.iter().map(ToString::to_string));
        plan.notes.into_iter().for_each(|n| ledger.push(n));
    }
    let mut out = std::io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    drop(out);
    if let Some(planner) = &planner {
        planner.learn(args).into_iter().for_each(|n| ledger.push(n));
    }
    Ok(close(args, &ledger))
}

/// Lines shown behind the last one that can be probed.
const MORE: u32 = 2;

/// `--line`.
pub(super) fn lines(args: &Args, range: &LineRange) -> anyhow::Result<ExitCode> {
    let files = files(args, true)?;
    let settings = settings(args);
    let what = args.line.as_deref().unwrap_or_default();
    let facts = facts(&files)?;
    let found = facts.with_finder(&settings, what, |finder| -> Result<_, PlanError> {
        Ok(source_lines(finder, range)?)
    })?;
    let path = settings.sources.find(&found.path, &found.comp_dir).with_context(|| {
        format!(
            "the source file {} is not here (built in {}); -s says where sources are",
            found.path, found.comp_dir
        )
    })?;
    let text = settings
        .sources
        .clone()
        .read(&found.path, &found.comp_dir)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match &range.function {
        Some(function) => {
            writeln!(out, "<{function}@{}:{}>", path.display(), found.start - found.base)?
        }
        None => writeln!(out, "<{}:{}>", path.display(), found.start)?,
    }
    let last_code = found.lines.iter().next_back().copied().unwrap_or(found.start);
    let last = found.end.unwrap_or(last_code.saturating_add(MORE + 1));
    let source = text.split(|b| *b == b'\n');
    for (line, n) in source.zip(1u32..).filter(|(_, n)| (found.start..=last).contains(n)) {
        // Behind the last newline there is no line.
        if line.is_empty() && n > last_code && text.ends_with(b"\n") && is_last(&text, n) {
            break;
        }
        if found.lines.contains(&n) {
            write!(out, "{:7}  ", n - found.base)?;
        } else {
            out.write_all(b"         ")?;
        }
        out.write_all(line)?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    drop(out);
    Ok(close(args, &learned(args, &facts)))
}

/// What there is to say of an index that was made or not used.
fn learned(args: &Args, facts: &Facts<'_>) -> Ledger {
    let mut ledger = Ledger::default();
    facts.learn(args.cache).into_iter().for_each(|n| ledger.push(n));
    ledger
}

fn is_last(text: &[u8], n: u32) -> bool {
    text.iter().filter(|b| **b == b'\n').count() < n as usize
}

/// `--vars`.
pub(super) fn variables(
    args: &Args,
    place: &str,
    filter: Option<&Filter>,
) -> anyhow::Result<ExitCode> {
    let d = Description::parse_point(place)?;
    let files = files(args, true)?;
    let settings = settings(args);
    let facts = facts(&files)?;
    let found = facts.with_finder(&settings, place, |finder| -> Result<_, PlanError> {
        Ok(finder.variables(&d, args.externs)?)
    })?;
    let default = Filter::parse("!__k???tab_* & !__crc_*")?;
    let filter = filter.unwrap_or(&default);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    // perf writes a place without a function so.
    let at = if d.point.function.is_none() && d.point.file.is_some() { "@" } else { "" };
    writeln!(out, "Available variables at {at}{}", d.point)?;
    for at in &found {
        let symbol = facts.symbols.function_at(at.place.addr);
        let (name, start) = match (at.place.entry, symbol) {
            (Some(entry), Some((name, _))) => (args.readable(name).into_owned(), entry),
            (_, Some((name, start))) => (args.readable(name).into_owned(), start),
            _ => (at.place.function.clone(), at.place.entry.unwrap_or(0)),
        };
        writeln!(out, "\t@<{name}+{}>", at.place.addr.wrapping_sub(start))?;
        let shown = variable_lines(args, at, &name, filter);
        for line in &shown {
            writeln!(out, "\t\t{line}")?;
        }
        if shown.is_empty() {
            writeln!(out, "\t\t(No matched variables)")?;
        }
    }
    out.flush()?;
    drop(out);
    Ok(close(args, &learned(args, &facts)))
}

fn variable_lines(
    args: &Args,
    at: &PlaceVariables,
    function: &str,
    filter: &Filter,
) -> BTreeSet<String> {
    let passes = |v: &&Variable| filter.matches(&v.name);
    let text =
        |v: &Variable| format!("{}\t{}", v.kind.as_deref().unwrap_or("(unknown_type)"), v.name);
    let mut lines = BTreeSet::new();
    for v in at.locals.iter().filter(passes) {
        if !args.range {
            if v.accessible {
                lines.insert(text(v));
            }
            continue;
        }
        let mark = if v.accessible { "[VAL]" } else { "[INV]" };
        let spans: Vec<String> = v.alive.iter().map(|(a, b)| format!("{a}-{b}")).collect();
        let alive = if spans.is_empty() {
            String::new()
        } else {
            format!("@<{function}+[{}]>", spans.join(","))
        };
        lines.insert(format!("{mark}\t{}\t{alive}", text(v)));
    }
    for v in at.externs.iter().filter(passes) {
        let mark = if args.range { "[EXT]\t" } else { "" };
        lines.insert(format!("{mark}{}", text(v)));
    }
    lines
}

/// `--funcs`.
pub(super) fn functions(args: &Args, filter: Option<&Filter>) -> anyhow::Result<ExitCode> {
    let default = Filter::parse("!_* & !*@plt")?;
    let filter = filter.unwrap_or(&default);
    let mut names = BTreeSet::new();
    match Planner::new(&files(args, true))? {
        Planner::Binary(facts) => {
            let functions = facts.symbols.all().filter(|s| s.code);
            let readable = functions.map(|s| args.readable(s.name));
            names.extend(readable.filter(|n| filter.matches(n)).map(Cow::into_owned));
        }
        Planner::Symbols(text, _) => {
            let functions = kallsyms_functions(&text, args.module.as_deref());
            names.extend(functions.filter(|n| filter.matches(n)).map(str::to_owned));
        }
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for name in &names {
        writeln!(out, "{name}")?;
    }
    out.flush()?;
    if names.is_empty() && !args.quiet {
        sayln!("kymo probe: no function passes the filter");
    }
    Ok(ExitCode::SUCCESS)
}

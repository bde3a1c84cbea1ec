//! The verbs that only look: `--definition`, `--line`, `--vars`, `--funcs`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_model::NoteKind;
use kymo_model::probe::bootconfig_lines;
use kymo_probe::grammar::{KernelLine, LineRange, NameFilter, ProbeDescription, is_kernel_line};
use kymo_probe::{
    PointVariables, ProbeResolver, ProbedBinary, ResolveError, SourceVariable, kallsyms_functions,
    source_lines,
};
use kymo_view::Ledger;

use super::Args;
use super::target::{close, options, target};
use crate::called_name::CalledName;

/// `--definition`.
pub(super) fn definitions(args: &Args) -> anyhow::Result<ExitCode> {
    let mut ledger = Ledger::default();
    let mut lines = Vec::new();
    let mut probes = Vec::new();
    let described: Vec<&String> = args.definition.iter().filter(|d| !is_kernel_line(d)).collect();
    let files = (!described.is_empty()).then(|| target(args).files(true));
    let resolver = files.as_ref().map(ProbeResolver::new).transpose()?;
    for text in &args.definition {
        if is_kernel_line(text) {
            match KernelLine::parse(text)? {
                KernelLine::Add(definition) if args.bootconfig => probes.push(definition),
                KernelLine::Remove { .. } if args.bootconfig => {
                    bail!("{text}: a boot configuration removes no probe")
                }
                line => lines.push(kernel_line(&line)),
            }
            continue;
        }
        let d = ProbeDescription::parse(text)?;
        let Some(resolver) = &resolver else { continue };
        let resolved = resolver.resolve(&d, &options(args), args.module.as_deref())?;
        if args.bootconfig {
            probes.extend(resolved.definitions);
        } else {
            lines.extend(resolved.definitions.iter().map(ToString::to_string));
        }
        resolved.notes.into_iter().for_each(|n| ledger.push(n));
    }
    lines.extend(bootconfig_lines(&probes)?);
    let own_group = |group: &str| group != "probe" && group != "kprobes";
    for probe in probes.iter().filter(|p| own_group(&p.group) && !args.quiet) {
        sayln!("kymo probe: {} is in the group kprobes at boot", probe.full_name());
    }
    let mut out = crate::streams::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    drop(out);
    if let Some(resolver) = &resolver {
        resolver.learn(args.cache).into_iter().for_each(|n| ledger.push(n));
    }
    Ok(close(args, &ledger))
}

fn kernel_line(line: &KernelLine) -> String {
    match line {
        KernelLine::Add(definition) => definition.to_string(),
        KernelLine::Remove { group, event } => {
            let event = event.as_deref().unwrap_or_default();
            group.as_ref().map_or_else(|| format!("-:{event}"), |g| format!("-:{g}/{event}"))
        }
    }
}

/// Lines shown behind the last one that can be probed.
const MORE: u32 = 2;

/// `--line`.
pub(super) fn lines(args: &Args, range: &LineRange) -> anyhow::Result<ExitCode> {
    let files = target(args).files(true)?;
    let options = options(args);
    let what = args.line.as_deref().unwrap_or_default();
    let binary = ProbedBinary::load(&files)?;
    let found = binary.with_finder(&options, what, |finder| -> Result<_, ResolveError> {
        Ok(source_lines(finder, range)?)
    })?;
    let path = options.sources.find(&found.path, &found.comp_dir).with_context(|| {
        format!(
            "the source file {} is not here (built in {}); -s says where sources are",
            found.path, found.comp_dir
        )
    })?;
    let text = options
        .sources
        .read(&found.path, &found.comp_dir)
        .with_context(|| format!("cannot read {}", path.display()))?;
    crate::screen::page();
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
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
    Ok(close(args, &learned(args, &binary)))
}

/// Builds the ledger from the notes about an index that was made or not used.
fn learned(args: &Args, binary: &ProbedBinary<'_>) -> Ledger {
    let mut ledger = Ledger::default();
    binary.learn(args.cache).into_iter().for_each(|n| ledger.push(n));
    ledger
}

fn is_last(text: &[u8], n: u32) -> bool {
    text.iter().filter(|b| **b == b'\n').count() < n as usize
}

/// `--vars`.
pub(super) fn variables(
    args: &Args,
    place: &str,
    filter: Option<&NameFilter>,
) -> anyhow::Result<ExitCode> {
    let d = ProbeDescription::parse_point(place)?;
    let files = target(args).files(true)?;
    let options = options(args);
    let binary = ProbedBinary::load(&files)?;
    let found = binary.with_finder(&options, place, |finder| -> Result<_, ResolveError> {
        Ok(finder.variables(&d, args.externs)?)
    })?;
    let default = NameFilter::parse("!__k???tab_* & !__crc_*")?;
    let filter = filter.unwrap_or(&default);
    crate::screen::page();
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    // perf writes a point without a function so.
    let at = if d.point.function.is_none() && d.point.file.is_some() { "@" } else { "" };
    writeln!(out, "Available variables at {at}{}", d.point)?;
    for at in &found {
        let symbol = binary.symbols.function_at(at.point.addr);
        let (name, start) = match (at.point.entry, symbol) {
            (Some(entry), Some((name, _))) => (args.readable(name).into_owned(), entry),
            (_, Some((name, start))) => (args.readable(name).into_owned(), start),
            _ => (at.point.function.clone(), at.point.entry.unwrap_or(0)),
        };
        writeln!(out, "\t@<{name}+{}>", at.point.addr.wrapping_sub(start))?;
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
    Ok(close(args, &learned(args, &binary)))
}

fn variable_lines(
    args: &Args,
    at: &PointVariables,
    function: &str,
    filter: &NameFilter,
) -> BTreeSet<String> {
    let passes = |v: &&SourceVariable| filter.matches(&v.name);
    let text = |v: &SourceVariable| {
        format!("{}\t{}", v.kind.as_deref().unwrap_or("(unknown_type)"), v.name)
    };
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
pub(super) fn functions(args: &Args, filter: Option<&NameFilter>) -> anyhow::Result<ExitCode> {
    let default = NameFilter::parse("!_* & !*@plt")?;
    let filter = filter.unwrap_or(&default);
    let mut names = BTreeSet::new();
    let mut ledger = Ledger::default();
    let mut nothing = "no function passes the filter";
    match ProbeResolver::new(&target(args).files(true))? {
        ProbeResolver::Binary(binary) => {
            if binary.has_no_functions() {
                nothing = "there are no symbols of functions: it is stripped, and its debug package \
                           is not installed; a probe takes an address (0x…)";
            }
            let functions = binary.symbols.all().filter(|s| s.code);
            let readable = functions.map(|s| args.readable(s.name));
            names.extend(readable.filter(|n| filter.matches(n)).map(Cow::into_owned));
            // perf lists symbols alone.
            if !args.no_inlines && CalledName::get() != CalledName::Perf {
                match binary.inlined_functions() {
                    Ok(inlined) => {
                        let readable = inlined.iter().map(|name| args.readable(name));
                        let passing = readable.filter(|n| filter.matches(n));
                        names.extend(passing.map(Cow::into_owned));
                    }
                    Err(e) => ledger.note(
                        NoteKind::Lines,
                        format!("functions that exist as inlined copies only are missing: {e}"),
                        None,
                    ),
                }
            }
        }
        ProbeResolver::Symbols(text, _) => {
            let functions = kallsyms_functions(&text, args.module.as_deref());
            names.extend(functions.filter(|n| filter.matches(n)).map(str::to_owned));
        }
    }
    crate::screen::page();
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    for name in &names {
        writeln!(out, "{name}")?;
    }
    out.flush()?;
    if names.is_empty() && !args.quiet {
        sayln!("kymo probe: {nothing}");
    }
    Ok(close(args, &ledger))
}

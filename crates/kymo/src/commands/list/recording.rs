//! `kymo list -i FILE`: the events of a recording of any format, how many of each there are,
//! and what they look like.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use globset::{Glob, GlobSet, GlobSetBuilder};
use kymo_events::{ClassCounts, EventSource};
use kymo_model::counted;
use kymo_symbols::ResolverOptions;
use kymo_view::Ledger;
use kymo_view::class_list::ClassList;

use super::Args;
use crate::exit;

pub(super) fn run(args: &Args, path: PathBuf) -> anyhow::Result<ExitCode> {
    let source = EventSource::open(&[path], ResolverOptions::default())?;
    let globs = globs(&args.globs)?;
    let ClassCounts { classes, summary } = source.count_classes()?;
    let ledger = Ledger::from_notes(summary.notes(&source));
    let is_named = globs.as_ref().map(|set| |name: &str| set.is_match(name));
    let list = ClassList::new(classes, is_named.as_ref().map(|f| f as &dyn Fn(&str) -> bool));
    crate::screen::page();
    let mut out = io::BufWriter::new(crate::streams::stdout().lock());
    if args.json {
        list.write_json(&mut out)?;
    } else if args.raw_dump {
        list.write_names(&mut out)?;
    } else {
        list.write_text(&mut out, args.verbose)?;
        if globs.is_none() && list.others > 0 {
            let others = counted(list.others, "more event", "more events");
            writeln!(out, "\n  and {others} that did not happen: name them, or '*'")?;
        }
    }
    out.flush()?;
    exit::tell(&ledger);
    let damage = summary.is_damaged(&source).then_some("damaged; what can be read is counted");
    Ok(exit::status(source.name(), damage, &ledger, false))
}

fn globs(patterns: &[String]) -> anyhow::Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for p in patterns {
        set.add(Glob::new(p).with_context(|| format!("event {p}"))?);
    }
    Ok(Some(set.build()?))
}

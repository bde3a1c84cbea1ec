//! `kymo top` as pages of text.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use kymo_analysis::live_profile::LiveQuery;
use kymo_view::top::{StdioColumns, TopPage, TopShape, build_page, top_ledger, write_stdio};

use super::Args;
use super::session::TopSession;
use crate::exit;

/// Prints pages; a terminal is cleared before each, as perf does.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut query = args.query()?;
    let mut session = TopSession::start(args, &query)?;
    let mut next = Instant::now() + args.delay();
    let mut shown = 0;
    loop {
        let left = next.saturating_duration_since(Instant::now());
        if session.step(left, &[])?.is_some() {
            break;
        }
        if Instant::now() >= next {
            next += args.delay();
            show(args, &mut session, &mut query, &mut shown)?;
        }
    }
    // The end is about samples whose names are all known.
    session.profile.wait_for_names();
    let page = show(args, &mut session, &mut query, &mut shown)?;
    if let Some(path) = &args.output {
        let times = session.profile.span().unwrap_or((0, 0));
        let saved = session.capture.save(path, times)?;
        sayln!("[ kymo top: Saved {} samples to {} ]", saved.samples, path.display());
    }
    let (profile, notes) = session.finish();
    let ledger = top_ledger(&profile, &page.sums, notes);
    if !ledger.is_empty() {
        write!(crate::streams::styled_stdout(), "\n{}", ledger.to_text("# "))
            .context("standard output")?;
    }
    Ok(exit::of_command(None, &ledger, args.strict))
}

/// Writes a page about the window, or about the time since the page before.
fn show(
    args: &Args,
    session: &mut TopSession,
    query: &mut LiveQuery,
    shown: &mut u64,
) -> anyhow::Result<TopPage> {
    query.times = session.last(args.window);
    if args.zero {
        query.times.0 = query.times.0.max(*shown);
    }
    *shown = query.times.1;
    let shape = TopShape {
        children: args.weighs_children(),
        relative: args.percentage == "relative",
        least: args.percent_limit,
        least_samples: args.count_filter,
        most: args.entries,
        ..TopShape::default()
    };
    let page = build_page(&session.profile, query, &shape);
    let header = session.header(page.sums.samples, query.times);
    let columns = StdioColumns {
        children: args.weighs_children(),
        samples: args.show_nr_samples,
        period: args.show_total_period,
    };
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    if out.get_ref().is_terminal() {
        crate::streams::control_stdout(crate::streams::CLEAR)?;
    }
    write_stdio(&mut out, &header, &page, columns).context("standard output")?;
    Ok(page)
}

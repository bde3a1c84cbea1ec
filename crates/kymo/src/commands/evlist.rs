//! `kymo evlist`: the events of a perf.data, with how they were opened.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use kymo_files::perfdata::{EventDesc, Features};
use kymo_format::EventFormat;
use kymo_model::{AttrFlags, EventType, UntrustedText};
use kymo_view::attribute_text::attribute_text;

use crate::exit;

/// Flags of `kymo evlist`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Recording (perf.data); `-`: standard input
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Ignore the owner of the file [always on]
    #[arg(short, long)]
    force: bool,
    /// Also show the frequency or period of samples
    #[arg(short = 'F', long)]
    freq: bool,
    /// Show groups in braces
    #[arg(short, long)]
    group: bool,
    /// Show all attributes of the events
    #[arg(short, long)]
    verbose: bool,
    /// Show field names of tracepoints
    #[arg(long)]
    trace_fields: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let path = args.input.clone().unwrap_or_else(super::default_recording);
    let file = super::open_description(&path)?;
    crate::screen::page();
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    if args.group {
        for line in grouped_names(file.events(), file.features()) {
            writeln!(out, "{}", UntrustedText::new(&line).to_text())?;
        }
    } else {
        for event in file.events() {
            let line = args.line(event, file.features());
            writeln!(out, "{}", UntrustedText::new(&line).to_text())?;
        }
    }
    out.flush()?;
    Ok(exit::of_description(&file))
}

impl Args {
    fn line(&self, event: &EventDesc, features: &Features) -> String {
        let mut line = event.name.clone();
        if self.verbose {
            line.push_str(": ");
            line.push_str(&attribute_text(&event.attr, ": "));
        } else if self.freq && event.attr.sample_period > 0 {
            let by_frequency = event.attr.flags.contains(AttrFlags::FREQ);
            let what = if by_frequency { "sample_freq" } else { "sample_period" };
            line.push_str(&format!(": {what}={}", event.attr.sample_period));
        }
        if self.trace_fields && event.attr.kind == EventType::TRACEPOINT {
            let names = field_names(event, features).unwrap_or_else(|| "not recorded".to_owned());
            line.push_str(": trace_fields: ");
            line.push_str(&names);
        }
        line
    }
}

fn field_names(event: &EventDesc, features: &Features) -> Option<String> {
    let (_, text) = features.tracing_data.as_ref()?.format(event.attr.config)?;
    let format = EventFormat::parse(text).ok()?;
    let own = format.fields.iter().filter(|field| !field.common);
    let names = own.map(|field| field.name.as_str());
    Some(names.collect::<Vec<_>>().join(","))
}

/// Names of the events, those of a group together.
fn grouped_names(events: &[EventDesc], features: &Features) -> Vec<String> {
    let mut lines = Vec::new();
    let mut number = 0;
    while let Some(event) = events.get(number) {
        let group = features.groups.iter().find(|g| g.leader as usize == number);
        let members = group.map_or(1, |g| (g.members as usize).max(1));
        let names = events.iter().skip(number).take(members).map(|e| e.name.as_str());
        lines.push(match group {
            Some(_) => format!("{{{}}}", names.collect::<Vec<_>>().join(",")),
            None => event.name.clone(),
        });
        number = number.saturating_add(members);
    }
    lines
}

//! The report as text, laid out like perf's `--stdio`.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use kymo_analysis::chain_tree::{Branch, Limit, Viewer, WholeChain};
use kymo_analysis::histogram::{HistEntry, Histogram, Key};
use kymo_analysis::payload_labels::PayloadLabels;
use kymo_analysis::profile::{EventProfile, FrameId, Profile};
use kymo_analysis::report_config::{ChainStyle, EventLayout, ReportColumn, ReportConfig};

use super::columns::{CellSource, cell_width, column, separated, write_cell};
use crate::units::visible;
use crate::{
    GraphStyle, Ledger, PerfTable, TreeNode, percent, write_flat, write_folded, write_graph,
};

/// Writer of a report.
pub struct ReportWriter<'a> {
    /// Output.
    pub out: &'a mut dyn Write,
    /// Samples that are shown.
    pub profile: &'a Profile,
    /// Configuration of the report.
    pub config: &'a ReportConfig,
    /// Values of payloads.
    pub labels: &'a PayloadLabels,
    /// Colors, for a terminal.
    pub color: bool,
    /// Rows alone.
    pub quiet: bool,
}

impl ReportWriter<'_> {
    /// Writes what stands before all events.
    pub fn write_prologue(&mut self) -> io::Result<()> {
        writeln!(
            self.out,
            "# To display the perf.data header info, please use --header/--header-only options.\n#"
        )?;
        let lists = [
            ("comm", &self.config.comms),
            ("dso", &self.config.dsos),
            ("symbol", &self.config.symbols),
        ];
        for (what, list) in lists {
            if let Some([only]) = list.as_deref() {
                writeln!(self.out, "# {what}: {}", visible(only))?;
            }
        }
        writeln!(self.out, "#")?;
        let lost = self.profile.stats.lost_events();
        writeln!(self.out, "# Total Lost Samples: {lost}\n#")
    }

    /// Writes the ledger.
    pub fn write_epilogue(&mut self, ledger: &Ledger) -> io::Result<()> {
        if !ledger.is_empty() {
            write!(self.out, "#\n{}", ledger.to_text("# "))?;
        }
        Ok(())
    }

    /// Writes the entries of an event, or of several beside each other, which `title` names.
    pub fn write_events(
        &mut self,
        (title, events): (&str, &[&EventProfile]),
        layout: &EventLayout,
        histogram: &Histogram,
    ) -> io::Result<()> {
        let all = self.config.wholes(self.profile, events, histogram);
        let whole = all.first().map_or(0, |first| first.weight);
        if !self.quiet {
            let (count, unit) = scaled(all.iter().map(|one| one.samples).sum());
            let period = all.iter().fold(0u64, |sum, one| sum.saturating_add(one.period));
            let title = visible(title);
            writeln!(self.out, "# Samples: {count}{unit} of {title}")?;
            writeln!(self.out, "# Event count (approx.): {period}\n#")?;
        }
        let separator = self.config.separator.as_deref();
        let source = CellSource {
            profile: self.profile,
            labels: self.labels,
            event: layout.event,
            events: events.len(),
            full_paths: self.config.full_paths,
            latency: self.config.latency,
        };
        let mut table = PerfTable::new(layout.columns.iter().map(|f| column(*f, source)).collect());
        let rank = |f| self.profile.rank(f);
        let same = |f| self.config.merge_key(self.profile, f);
        let mut viewer = Viewer::new(&histogram.tree, &rank, &same);
        if self.config.hierarchy {
            self.write_hierarchy((source, &all), layout, histogram, &mut viewer)?;
            return writeln!(self.out, "\n");
        }
        for entry in &histogram.entries {
            let widths = layout.columns.iter().map(|f| cell_width(*f, source, entry));
            table.fit(widths);
            self.widen(&mut table, layout, entry);
        }
        if !self.quiet {
            table.write_head(self.out, separator)?;
        }
        let mut cells: Vec<String> = vec![String::new(); layout.columns.len()];
        for entry in &histogram.entries {
            let weight = if layout.histogram.children { entry.total } else { entry.own };
            if percent(weight, whole) < self.config.percent_limit {
                // Heaviest first, unless another event decides.
                continue;
            }
            for (cell, field) in cells.iter_mut().zip(&layout.columns) {
                cell.clear();
                write_cell(*field, cell, source, entry, &all);
                if let Some(sep) = separator {
                    *cell = separated(*field, &cell.replace(sep, "."), events.len());
                }
            }
            let color = self.color;
            let paint = |i: usize, cell: &str| heat(color, layout.columns.get(i).copied(), cell);
            table.write_row(self.out, &cells, separator, &paint)?;
            if weight > 0 {
                self.chains(whole, layout, entry, weight, &mut viewer)?;
            }
        }
        writeln!(self.out, "\n")
    }

    /// Addresses without a symbol make their binary's column wider, as in perf.
    fn widen(&self, table: &mut PerfTable, layout: &EventLayout, entry: &HistEntry) {
        if self.profile.frame(entry.frame).symbol.is_some()
            || self.config.separator.is_some()
            || self.config.dsos.is_some()
        {
            return;
        }
        for (field, width) in layout.columns.iter().zip(&mut table.widths) {
            match field {
                ReportColumn::Key(Key::Dso) => *width = (*width).max(16),
                ReportColumn::Key(Key::Symbol) => *width = (*width).max(22),
                _ => {}
            }
        }
    }

    pub(super) fn chains(
        &mut self,
        whole: u64,
        layout: &EventLayout,
        entry: &HistEntry,
        weight: u64,
        viewer: &mut Viewer<'_>,
    ) -> io::Result<()> {
        let least = (whole as f64 * (layout.least / 100.0)) as u64;
        if weight < least && layout.drawing != ChainStyle::Fractal {
            return Ok(());
        }
        let names = |frames: &[FrameId]| -> Vec<String> {
            let name = |f: &FrameId| self.config.frame_name(self.profile, *f);
            frames.iter().map(|f| visible(&name(f)).into_owned()).collect()
        };
        match layout.drawing {
            ChainStyle::None => Ok(()),
            ChainStyle::Graph | ChainStyle::Fractal => {
                let relative = layout.drawing == ChainStyle::Fractal;
                let limit = if relative {
                    Limit::Share(layout.least / 100.0)
                } else {
                    Limit::Period(least)
                };
                let branches = viewer.branches(&entry.chains, limit);
                let roots: Vec<TreeNode> = branches.iter().map(|b| node(b, &names)).collect();
                let style = GraphStyle {
                    whole,
                    entry: weight,
                    relative,
                    skip_first: self.config.symbol_first,
                };
                write_graph(self.out, &roots, style)
            }
            ChainStyle::Flat | ChainStyle::Folded => {
                let chains = viewer.chains(&entry.chains, least);
                // As perf does: a flat graph shows what passes, a folded one what ends.
                let flat = layout.drawing == ChainStyle::Flat;
                let weighed =
                    |c: &WholeChain| (names(&c.frames), if flat { c.total } else { c.own });
                let chains: Vec<(Vec<String>, u64)> = chains.iter().map(weighed).collect();
                if flat {
                    write_flat(self.out, &chains, whole)
                } else {
                    write_folded(self.out, &chains, whole)
                }
            }
        }
    }
}

fn node(branch: &Branch, names: &dyn Fn(&[FrameId]) -> Vec<String>) -> TreeNode {
    TreeNode {
        labels: names(&branch.frames),
        total: branch.total,
        below: branch.total - branch.own.min(branch.total),
        children: branch.children.iter().map(|b| node(b, names)).collect(),
    }
}

/// perf's short form of a count: `417 `, `12K`, `3M`.
fn scaled(mut n: u64) -> (u64, char) {
    for unit in [' ', 'K', 'M', 'G'] {
        if n < 1000 {
            return (n, unit);
        }
        n /= 1000;
    }
    (n, 'T')
}

/// perf's colours: 5 % and more is red, from half a percent on green.
fn heat(color: bool, field: Option<ReportColumn>, cell: &str) -> Option<Style> {
    if !color || !field.is_some_and(ReportColumn::is_share) {
        return None;
    }
    let share: f64 = cell.trim().trim_end_matches('%').parse().ok()?;
    let color = match share {
        s if s >= 5.0 => AnsiColor::Red,
        s if s >= 0.5 => AnsiColor::Green,
        _ => return None,
    };
    Some(Style::new().fg_color(Some(color.into())))
}

//! The report as text, laid out like perf's `--stdio`.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use kymo_analysis::chain_tree::{Branch, Limit, Viewer, WholeChain};
use kymo_analysis::histogram::{HistEntry, Histogram, Key};
use kymo_analysis::profile::{EventProfile, FrameId, Profile};
use kymo_view::{
    GraphStyle, Ledger, Table, TreeNode, percent, write_flat, write_folded, write_graph,
};

use super::fields::{Field, Source};
use super::meaning::{Drawing, Meaning, Shape};
use super::trace::Labels;

/// Writes a report.
pub(crate) struct Text<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) profile: &'a Profile,
    pub(crate) meant: &'a Meaning,
    pub(crate) labels: &'a Labels,
    pub(crate) color: bool,
}

impl Text<'_> {
    pub(crate) fn prologue(&mut self) -> io::Result<()> {
        writeln!(
            self.out,
            "# To display the perf.data header info, please use --header/--header-only options.\n#"
        )?;
        let lists = [
            ("comm", &self.meant.comms),
            ("dso", &self.meant.dsos),
            ("symbol", &self.meant.symbols),
        ];
        for (what, list) in lists {
            if let Some([only]) = list.as_deref() {
                writeln!(self.out, "# {what}: {only}")?;
            }
        }
        writeln!(self.out, "#")?;
        let lost = self.profile.stats.lost_events();
        writeln!(self.out, "# Total Lost Samples: {lost}\n#")
    }

    pub(crate) fn epilogue(&mut self, ledger: &Ledger) -> io::Result<()> {
        if !ledger.is_empty() {
            write!(self.out, "#\n{}", ledger.to_text("# "))?;
        }
        Ok(())
    }

    pub(crate) fn event(
        &mut self,
        event: &EventProfile,
        shape: &Shape,
        histogram: &Histogram,
    ) -> io::Result<()> {
        let (count, unit) = scaled(event.samples);
        let name = &event.desc.name;
        writeln!(self.out, "# Samples: {count}{unit} of event '{name}'")?;
        writeln!(self.out, "# Event count (approx.): {}\n#", event.period)?;
        let separator = self.meant.separator.as_deref();
        let source = Source {
            profile: self.profile,
            labels: self.labels,
            event: shape.event,
            full_paths: self.meant.full_paths,
        };
        let mut table = Table::new(shape.fields.iter().map(|f| f.column(source)).collect());
        let rank = |f| self.profile.rank(f);
        let same = |f| self.meant.same(self.profile, f);
        let mut viewer = Viewer::new(&histogram.tree, &rank, &same);
        for entry in &histogram.entries {
            let widths = shape.fields.iter().map(|f| f.width(source, entry));
            table.fit(widths);
            self.widen(&mut table, shape, entry);
        }
        table.write_head(self.out, separator)?;
        let mut cells: Vec<String> = vec![String::new(); shape.fields.len()];
        for entry in &histogram.entries {
            let weight = if shape.histogram.children { entry.total } else { entry.own };
            if percent(weight, event.period) < self.meant.percent_limit {
                // Heaviest first.
                break;
            }
            for (cell, field) in cells.iter_mut().zip(&shape.fields) {
                cell.clear();
                field.cell(cell, source, entry, event.period);
                if let Some(sep) = separator {
                    *cell = cell.replace(sep, ".");
                    if field.is_share() {
                        *cell = format!(" {cell:<7}");
                    }
                }
            }
            let color = self.color;
            let paint = |i: usize, cell: &str| heat(color, shape.fields.get(i).copied(), cell);
            table.write_row(self.out, &cells, separator, &paint)?;
            if weight > 0 {
                self.chains(event, shape, entry, weight, &mut viewer)?;
            }
        }
        writeln!(self.out, "\n")
    }

    /// Addresses without a symbol make their binary's column wider, as in perf.
    fn widen(&self, table: &mut Table, shape: &Shape, entry: &HistEntry) {
        if self.profile.frame(entry.frame).symbol.is_some()
            || self.meant.separator.is_some()
            || self.meant.dsos.is_some()
        {
            return;
        }
        for (field, width) in shape.fields.iter().zip(&mut table.widths) {
            match field {
                Field::Key(Key::Dso) => *width = (*width).max(16),
                Field::Key(Key::Symbol) => *width = (*width).max(22),
                _ => {}
            }
        }
    }

    fn chains(
        &mut self,
        event: &EventProfile,
        shape: &Shape,
        entry: &HistEntry,
        weight: u64,
        viewer: &mut Viewer<'_>,
    ) -> io::Result<()> {
        let least = (event.period as f64 * (shape.least / 100.0)) as u64;
        if weight < least && shape.drawing != Drawing::Fractal {
            return Ok(());
        }
        let names = |frames: &[FrameId]| -> Vec<String> {
            frames.iter().map(|f| self.meant.frame_name(self.profile, *f)).collect()
        };
        match shape.drawing {
            Drawing::None => Ok(()),
            Drawing::Graph | Drawing::Fractal => {
                let relative = shape.drawing == Drawing::Fractal;
                let limit = match relative {
                    true => Limit::Share(shape.least / 100.0),
                    false => Limit::Period(least),
                };
                let branches = viewer.branches(&entry.chains, limit);
                let roots: Vec<TreeNode> = branches.iter().map(|b| node(b, &names)).collect();
                let style = GraphStyle {
                    whole: event.period,
                    entry: weight,
                    relative,
                    skip_first: self.meant.symbol_first,
                };
                write_graph(self.out, &roots, style)
            }
            Drawing::Flat | Drawing::Folded => {
                let chains = viewer.chains(&entry.chains, least);
                // As perf does: a flat graph shows what passes, a folded one what ends.
                let flat = shape.drawing == Drawing::Flat;
                let weighed =
                    |c: &WholeChain| (names(&c.frames), if flat { c.total } else { c.own });
                let chains: Vec<(Vec<String>, u64)> = chains.iter().map(weighed).collect();
                match flat {
                    true => write_flat(self.out, &chains, event.period),
                    false => write_folded(self.out, &chains, event.period),
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
fn heat(color: bool, field: Option<Field>, cell: &str) -> Option<Style> {
    if !color || !field.is_some_and(Field::is_share) {
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

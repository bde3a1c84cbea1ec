//! Counted events as a table, with the stacks of each entry below it, or as JSON.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::units::visible;
use crate::{
    GraphStyle, Ledger, PerfColumn, PerfTable, TreeNode, percent, write_flat, write_folded,
    write_graph,
};

/// Branches below this share of all events are not drawn, as in perf.
const LEAST_PERCENT: f64 = 0.5;

/// Drawing style of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackDrawing {
    /// Not at all.
    None,
    /// As a tree.
    Graph,
    /// Each stack by itself.
    Flat,
    /// Each stack as a line.
    Folded,
}

/// An entry of the table.
#[derive(Clone, Debug, Default)]
pub struct EventRow {
    /// A cell for each key.
    pub cells: Vec<String>,
    /// Events.
    pub events: u64,
    /// Distinct stacks, innermost function first, and how often each was.
    pub stacks: Vec<(Vec<String>, u64)>,
}

/// A table of counted events.
#[derive(Clone, Debug)]
pub struct EventTableView {
    /// Headings of the keys, and their names in JSON.
    pub keys: Vec<(String, String)>,
    /// Entries, most events first.
    pub rows: Vec<EventRow>,
    /// All events.
    pub events: u64,
    /// Name of the clock.
    pub clock: String,
    /// Drawing style of stacks.
    pub stacks: StackDrawing,
    /// Stands between columns that are not aligned then.
    pub separator: Option<String>,
    /// Entries with a smaller share are left out.
    pub percent_limit: f64,
}

impl EventTableView {
    fn shown(&self) -> impl Iterator<Item = &EventRow> {
        self.rows.iter().filter(|r| percent(r.events, self.events) >= self.percent_limit)
    }

    /// Writes the table and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        writeln!(out, "# Events: {}", self.events)?;
        writeln!(out, "# Clock: {}\n#", self.clock)?;
        let column = |title: String, right| PerfColumn { title, right, ragged: !right };
        let mut columns =
            vec![column("Overhead".into(), true), column("      Events".into(), true)];
        columns.extend(self.keys.iter().map(|(title, _)| column(title.clone(), false)));
        let mut table = PerfTable::new(columns);
        let separator = self.separator.as_deref();
        for row in self.shown() {
            table.fit(self.cells(row).iter().map(|c| visible(c).chars().count()));
        }
        table.write_head(out, separator)?;
        for row in self.shown() {
            let mut cells = self.cells(row);
            if let Some(sep) = separator {
                for cell in &mut cells {
                    *cell = cell.replace(sep, ".");
                    // A name is no formula of a spreadsheet.
                    if cell.starts_with(['=', '+', '-', '@']) {
                        cell.insert(0, '\'');
                    }
                }
            }
            table.write_row(out, &cells, separator, &|_, _| None)?;
            if !row.stacks.is_empty() {
                self.write_stacks(out, row)?;
            }
        }
        writeln!(out)?;
        if !ledger.is_empty() {
            write!(out, "#\n{}", ledger.to_text("# "))?;
        }
        Ok(())
    }

    fn cells(&self, row: &EventRow) -> Vec<String> {
        let share = format!("{:.2}%", percent(row.events, self.events));
        let mut cells = vec![share, row.events.to_string()];
        cells.extend(row.cells.iter().cloned());
        cells
    }

    fn write_stacks(&self, out: &mut dyn Write, row: &EventRow) -> io::Result<()> {
        let visible = |(names, n): &(Vec<String>, u64)| {
            (names.iter().map(|name| visible(name).into_owned()).collect(), *n)
        };
        let row = &EventRow { stacks: row.stacks.iter().map(visible).collect(), ..row.clone() };
        let whole = self.events;
        let least = (whole as f64 * (LEAST_PERCENT / 100.0)) as u64;
        let often = || {
            let mut stacks: Vec<_> =
                row.stacks.iter().filter(|(_, n)| *n >= least).cloned().collect();
            stacks.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            stacks
        };
        match self.stacks {
            StackDrawing::None => Ok(()),
            StackDrawing::Flat => write_flat(out, &often(), whole),
            StackDrawing::Folded => write_folded(out, &often(), whole),
            StackDrawing::Graph => {
                let mut stacks: Vec<(&[String], u64)> =
                    row.stacks.iter().map(|(s, n)| (&**s, *n)).collect();
                stacks.sort();
                let roots = tree(&stacks, 0, least);
                let style =
                    GraphStyle { whole, entry: row.events, relative: false, skip_first: false };
                write_graph(out, &roots, style)
            }
        }
    }

    /// Writes the table and the ledger as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let entry = |row: &EventRow| {
            let mut o = Map::new();
            o.insert("overhead".into(), json!(percent(row.events, self.events)));
            o.insert("events".into(), json!(row.events));
            for ((_, name), cell) in self.keys.iter().zip(&row.cells) {
                o.insert(name.clone(), json!(cell));
            }
            if !row.stacks.is_empty() {
                let mut stacks = row.stacks.clone();
                stacks.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
                let stack = |(names, n): &(Vec<String>, u64)| json!({"events": n, "stack": names});
                o.insert("stacks".into(), stacks.iter().map(stack).collect());
            }
            Value::Object(o)
        };
        let entries: Vec<Value> = self.shown().map(entry).collect();
        let page = json!({"events": self.events, "entries": entries});
        writeln!(out, "{page:#}")
    }
}

/// The forest of sorted stacks that agree in their first `depth` functions.
fn tree(stacks: &[(&[String], u64)], depth: usize, least: u64) -> Vec<TreeNode> {
    let groups = stacks.chunk_by(|a, b| a.0.get(depth) == b.0.get(depth));
    let longer = groups.filter(|g| g.iter().any(|(s, _)| s.len() > depth));
    let mut nodes: Vec<TreeNode> =
        longer.map(|g| branch(g, depth, least)).filter(|n| n.total >= least).collect();
    nodes.sort_by_key(|n| std::cmp::Reverse(n.total));
    nodes
}

/// One branch: functions up to where the stacks part or the first ends.
fn branch(group: &[(&[String], u64)], depth: usize, least: u64) -> TreeNode {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return TreeNode::default();
    };
    // Sorted, so that what the outermost two share all share.
    let common = first.0.iter().zip(last.0).take_while(|(a, b)| a == b).count();
    let total = group.iter().map(|(_, n)| n).sum();
    let own: u64 = group.iter().filter(|(s, _)| s.len() == common).map(|(_, n)| n).sum();
    let labels = first.0.iter().take(common).skip(depth).cloned().collect();
    let children = tree(group, common, least);
    TreeNode { labels, total, below: total - own, children }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(stacks: StackDrawing) -> EventTableView {
        let stack = |s: &str, n| (s.split(' ').map(str::to_owned).collect(), n);
        let row = EventRow {
            cells: vec!["shop:sale".into(), "a,b".into()],
            events: 3,
            stacks: vec![stack("f g main", 2), stack("f h main", 1)],
        };
        let rest = EventRow { cells: vec!["x".into(), "y".into()], events: 1, stacks: Vec::new() };
        EventTableView {
            keys: vec![("Event".into(), "event".into()), ("Command".into(), "comm".into())],
            rows: vec![row, rest],
            events: 4,
            clock: "mono".into(),
            stacks,
            separator: None,
            percent_limit: 0.0,
        }
    }

    fn text(view: &EventTableView) -> String {
        let mut out = Vec::new();
        view.write_text(&mut out, &Ledger::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn entries_have_shares_of_all_events_and_their_stacks_below_them() {
        let shown = text(&table(StackDrawing::Graph));
        assert!(shown.starts_with("# Events: 4\n# Clock: mono\n#\n"), "{shown}");
        assert!(shown.contains("75.00%             3  shop:sale  a,b"), "{shown}");
        assert!(shown.contains("---f") && shown.contains("--50.00%--g"), "{shown}");
        assert!(!text(&table(StackDrawing::None)).contains("main"));
    }

    #[test]
    fn separated_columns_keep_the_separator_for_themselves() {
        let view = EventTableView {
            separator: Some(",".into()),
            percent_limit: 50.0,
            ..table(StackDrawing::None)
        };
        let shown = text(&view);
        assert!(shown.contains(",shop:sale,a.b\n") && !shown.contains(",x,"), "{shown}");
    }
}

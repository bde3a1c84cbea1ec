//! The counts as a table with stacks below each entry, or as JSON.

use std::io::{self, Write};

use anyhow::bail;
use kymo_view::{
    Column, GraphStyle, Ledger, Table, TreeNode, percent, write_flat, write_folded, write_graph,
};
use serde_json::{Map, Value, json};

use super::Args;
use super::entries::{Entry, Found, SEPARATOR};
use super::keys::Key;

/// Branches below this share of all events are not drawn, as in perf.
const LEAST: f64 = 0.5;

/// How stacks are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stacks {
    None,
    Graph,
    Flat,
    Folded,
}

impl Stacks {
    /// Reads `-g`.
    pub(super) fn parse(text: Option<&str>) -> anyhow::Result<Stacks> {
        let mut stacks = Stacks::Graph;
        // A bare -g, whose order of callers is that of samples.
        let text = text.filter(|t| *t != "graph,caller");
        for word in text.unwrap_or("graph").split(',') {
            stacks = match word {
                "none" => Stacks::None,
                "graph" | "callee" => Stacks::Graph,
                "flat" => Stacks::Flat,
                "folded" => Stacks::Folded,
                _ => bail!("-g {word}: of a trace there are graph, flat, folded, none"),
            };
        }
        Ok(stacks)
    }

    pub(super) fn wanted(self) -> bool {
        self != Stacks::None
    }
}

/// A report under way.
pub(super) struct Page<'a> {
    pub(super) args: &'a Args,
    pub(super) keys: &'a [Key],
    pub(super) found: &'a Found,
    /// What times are counted by.
    pub(super) clock: String,
    pub(super) stacks: Stacks,
}

impl Page<'_> {
    fn shown(&self) -> impl Iterator<Item = &(Box<[u8]>, Entry)> {
        let share = |n: u64| percent(n, self.found.events);
        self.found
            .entries
            .iter()
            .filter(move |(_, e)| share(e.events) >= self.args.percent_limit.unwrap_or(0.0))
    }

    pub(super) fn text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        writeln!(out, "# Events: {}", self.found.events)?;
        writeln!(out, "# Clock: {}\n#", self.clock)?;
        let column = |title: String, right| Column { title, right, ragged: !right };
        let mut columns =
            vec![column("Overhead".into(), true), column("      Events".into(), true)];
        columns.extend(self.keys.iter().map(|k| column(k.title(), false)));
        let mut table = Table::new(columns);
        let separator = self.args.field_separator.as_deref();
        for (key, e) in self.shown() {
            table.fit(self.cells(key, e).iter().map(|c| c.chars().count()));
        }
        table.write_head(out, separator)?;
        for (key, e) in self.shown() {
            let mut cells = self.cells(key, e);
            if let Some(sep) = separator {
                cells.iter_mut().for_each(|c| *c = c.replace(sep, "."));
            }
            table.write_row(out, &cells, separator, &|_, _| None)?;
            if !e.stacks.is_empty() {
                self.tree(out, e)?;
            }
        }
        writeln!(out)?;
        if !ledger.is_empty() {
            write!(out, "#\n{}", ledger.to_text("# "))?;
        }
        Ok(())
    }

    fn cells(&self, key: &[u8], e: &Entry) -> Vec<String> {
        let share = format!("{:.2}%", percent(e.events, self.found.events));
        let mut cells = vec![share, e.events.to_string()];
        cells.extend(texts(key));
        cells
    }

    fn name(&self, frame: u32) -> String {
        self.found.frames.get(frame as usize).cloned().unwrap_or_default()
    }

    /// The stacks of an entry: names and how often, most first.
    fn chains(&self, e: &Entry) -> Vec<(Vec<String>, u64)> {
        let mut chains: Vec<_> = e
            .stacks
            .iter()
            .map(|(s, n)| (s.iter().map(|f| self.name(*f)).collect::<Vec<_>>(), *n))
            .collect();
        chains.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        chains
    }

    fn tree(&self, out: &mut dyn Write, e: &Entry) -> io::Result<()> {
        let whole = self.found.events;
        let least = (whole as f64 * (LEAST / 100.0)) as u64;
        let chains = || self.chains(e).into_iter().filter(|c| c.1 >= least).collect::<Vec<_>>();
        match self.stacks {
            Stacks::None => Ok(()),
            Stacks::Flat => write_flat(out, &chains(), whole),
            Stacks::Folded => write_folded(out, &chains(), whole),
            Stacks::Graph => {
                let mut stacks: Vec<(&[u32], u64)> =
                    e.stacks.iter().map(|(s, n)| (&**s, *n)).collect();
                stacks.sort();
                let roots = self.nodes(&stacks, 0, least);
                let style =
                    GraphStyle { whole, entry: e.events, relative: false, skip_first: false };
                write_graph(out, &roots, style)
            }
        }
    }

    /// The forest of sorted stacks that agree in their first `depth` functions.
    fn nodes(&self, stacks: &[(&[u32], u64)], depth: usize, least: u64) -> Vec<TreeNode> {
        let groups = stacks.chunk_by(|a, b| a.0.get(depth) == b.0.get(depth));
        let longer = groups.filter(|g| g.iter().any(|(s, _)| s.len() > depth));
        let mut nodes: Vec<TreeNode> =
            longer.map(|g| self.node(g, depth, least)).filter(|n| n.total >= least).collect();
        nodes.sort_by_key(|n| std::cmp::Reverse(n.total));
        nodes
    }

    /// One branch: functions up to where the stacks part or the first ends.
    fn node(&self, group: &[(&[u32], u64)], depth: usize, least: u64) -> TreeNode {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            return TreeNode::default();
        };
        // Sorted, so that what the outermost two share all share.
        let common = first.0.iter().zip(last.0).take_while(|(a, b)| a == b).count();
        let total = group.iter().map(|(_, n)| n).sum();
        let own: u64 = group.iter().filter(|(s, _)| s.len() == common).map(|(_, n)| n).sum();
        let labels = first.0.iter().take(common).skip(depth).map(|f| self.name(*f)).collect();
        let children = self.nodes(group, common, least);
        TreeNode { labels, total, below: total - own, children }
    }

    pub(super) fn json(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let entries: Vec<Value> = self
            .shown()
            .map(|(key, e)| {
                let mut o = Map::new();
                o.insert("overhead".into(), json!(percent(e.events, self.found.events)));
                o.insert("events".into(), json!(e.events));
                for (key, cell) in self.keys.iter().zip(texts(key)) {
                    o.insert(key.name(), json!(cell));
                }
                if !e.stacks.is_empty() {
                    let chains = self.chains(e);
                    let stack =
                        |(names, n): &(Vec<String>, u64)| json!({"events": n, "stack": names});
                    o.insert("stacks".into(), chains.iter().map(stack).collect());
                }
                Value::Object(o)
            })
            .collect();
        let page = json!({
            "events": self.found.events, "entries": entries, "ledger": ledger.to_json(),
        });
        writeln!(out, "{page:#}")
    }
}

fn texts(key: &[u8]) -> impl Iterator<Item = String> {
    key.split(|b| *b == SEPARATOR).map(|c| String::from_utf8_lossy(c).into_owned())
}

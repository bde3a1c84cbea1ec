//! Call trees of both sides with the differences of their branches.

use std::fmt::Write as _;

use kymo_compare::{StackTree, TreeBranch};

use super::DiffReport;
use super::words::{amount, heading};
use crate::units::visible;

/// Share of the whole by which a branch must differ to be shown.
const LEAST_CHANGE: f64 = 0.01;
/// Levels that are shown.
const DEEPEST: usize = 40;

impl DiffReport {
    pub(super) fn write_trees(&self, out: &mut String) {
        for tree in &self.trees {
            self.write_tree(tree, out);
        }
    }

    fn write_tree(&self, tree: &StackTree, out: &mut String) {
        let whole = tree.root.before.max(tree.root.after);
        if whole <= 0.0 {
            return;
        }
        let heading = heading((tree.kind, &tree.name, tree.unit), &self.per);
        let _ = writeln!(
            out,
            "\nCall tree. {heading}: means, without a test; branches that differ by 1 % or more of it"
        );
        let mut lines = vec![["Before".into(), "After".into(), "Change".into(), String::new()]];
        write_branches(&tree.root.branches, 0, (whole, tree.unit), &mut lines);
        if lines.len() == 1 {
            out.push_str("  none\n");
            return;
        }
        let width = |at: usize| {
            let cells = lines.iter().filter_map(|line| line.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let (one, two, three) = (width(0), width(1), width(2));
        for [before, after, change, name] in &lines {
            let line = format!("  {before:>one$}  {after:>two$}  {change:>three$}  {name}");
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

fn write_branches(
    branches: &[TreeBranch],
    depth: usize,
    (whole, unit): (f64, &str),
    lines: &mut Vec<[String; 4]>,
) {
    let differs = |b: &&TreeBranch| (b.after - b.before).abs() >= LEAST_CHANGE * whole;
    for branch in branches.iter().filter(differs) {
        let change = branch.after - branch.before;
        let sign = if change < 0.0 { '-' } else { '+' };
        lines.push([
            amount(branch.before, unit),
            amount(branch.after, unit),
            format!("{sign}{}", amount(change.abs(), unit)),
            format!("{:1$}{2}", "", 2 * depth, visible(&branch.key.name)),
        ]);
        if depth < DEEPEST {
            write_branches(&branch.branches, depth + 1, (whole, unit), lines);
        }
    }
}

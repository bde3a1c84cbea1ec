//! Waits as a tree of calls below their causes.

use std::cmp::Reverse;
use std::io::{self, Write};

use kymo_analysis::chain_tree::{Branch, ChainTree, Chains, Limit, Viewer};
use kymo_analysis::offcpu::StackStore;
use kymo_analysis::profile::FrameId;
use rustc_hash::FxHashMap;

use super::OffCpuView;
use crate::units::{Millis, write_more};
use crate::{GraphStyle, TreeNode, write_graph};

impl OffCpuView<'_> {
    /// Writes the tree; `whole` is what 100 % is. Threads without work are in it unless they are
    /// to be left out.
    pub(super) fn write_tree(
        &mut self,
        out: &mut dyn Write,
        whole: u64,
        leave_idle: bool,
    ) -> io::Result<()> {
        let mut tree = ChainTree::default();
        let mut roots = FxHashMap::default();
        let table = &mut *self.table;
        for ((cause, stack, _), cell) in &table.cells {
            if cause.is_idle() && leave_idle {
                continue;
            }
            let stacks = &mut table.stacks;
            let root =
                *roots.entry(*cause).or_insert_with(|| tree.trunk(stacks.label(cause.text()).0));
            let mut chain: Vec<FrameId> =
                stack.map_or_else(Vec::new, |s| table.stacks.frames(s).collect());
            if !self.inverted {
                chain.reverse();
            }
            tree.add(root, chain.into_iter(), cell.total);
        }
        let rank = |frame: FrameId| (0, u64::from(frame.0));
        let same = |frame: FrameId| (u64::from(frame.0), 0);
        let mut viewer = Viewer::new(&tree, &rank, &same);
        let least = (whole as f64 * self.percent_limit / 100.0) as u64;
        let chains = Chains { whole: Vec::new(), below: roots.into_values().collect() };
        let branches = viewer.branches(&chains, Limit::Period(least.max(1)));
        let roots: Vec<TreeNode> = branches.iter().map(|b| node(b, &table.stacks)).collect();
        let style = GraphStyle { whole, entry: u64::MAX, relative: false, skip_first: false };
        let Some(most) = self.lines else { return write_graph(out, &roots, style) };
        let mut tree = Vec::new();
        write_graph(&mut tree, &roots, style)?;
        let lines: Vec<&[u8]> = tree.split_inclusive(|byte| *byte == b'\n').collect();
        for line in lines.iter().take(most) {
            out.write_all(line)?;
        }
        write_more(out, lines.len(), most)
    }

    /// Writes the stacks with the longest waits, in a line each.
    pub(super) fn write_stack_lines(
        &self,
        out: &mut dyn Write,
        most: usize,
        leave_idle: bool,
    ) -> io::Result<()> {
        let mut sums: FxHashMap<_, u64> = FxHashMap::default();
        for ((cause, stack, _), cell) in &self.table.cells {
            if stack.is_some() && !(cause.is_idle() && leave_idle) {
                *sums.entry((*cause, *stack)).or_default() += cell.total;
            }
        }
        let mut rows: Vec<_> = sums.into_iter().collect();
        rows.sort_by_key(|((cause, stack), total)| (Reverse(*total), *cause, *stack));
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(out, " Stacks with the longest waits, innermost function first\n")?;
        let width = self.columns.unwrap_or(usize::MAX);
        for ((cause, stack), total) in rows.iter().take(most) {
            let names = stack.iter().flat_map(|stack| self.table.stacks.frames(*stack));
            let names: Vec<&str> = names.map(|f| self.table.stacks.frame_name(f)).collect();
            let total = Millis(*total, self.units).to_string();
            let line = format!("  {total:>12} ms  {}, in {}", cause.text(), names.join(" < "));
            match line.char_indices().nth(width.saturating_sub(1)) {
                Some((end, _)) => writeln!(out, "{}…", line.get(..end).unwrap_or_default())?,
                None => writeln!(out, "{line}")?,
            }
        }
        write_more(out, rows.len(), most)
    }
}

fn node(branch: &Branch, stacks: &StackStore) -> TreeNode {
    TreeNode {
        labels: branch.frames.iter().map(|f| stacks.frame_name(*f).to_owned()).collect(),
        total: branch.total,
        below: branch.total - branch.own.min(branch.total),
        children: branch.children.iter().map(|b| node(b, stacks)).collect(),
    }
}

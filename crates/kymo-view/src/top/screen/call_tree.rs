//! The call tree, line by line: what is heavy is open, keys open and close the rest.

use kymo_analysis::live_profile::{LiveNodeId, LiveProfile, LiveTree, NodeKind};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use rustc_hash::FxHashSet;

use super::TopScreen;
use super::draw::{ScreenStyle, write};
use crate::percent;
use crate::top::page::function_name;
use crate::units::shown;

/// Nodes of this share are open by themselves.
const OPEN: f64 = 10.0;
/// Nodes below this share are not shown.
const LEAST: f64 = 0.1;
/// Rows beyond which nothing is made: too far to scroll.
const MOST: usize = 10_000;

/// A row.
#[derive(Clone, Debug)]
pub(super) struct TreeRow {
    pub(super) kind: NodeKind,
    pub(super) path: Vec<NodeKind>,
    text: String,
    total: f64,
    own: f64,
}

/// Name of a node.
pub(super) fn node_name(profile: &LiveProfile, kind: NodeKind) -> String {
    match kind {
        NodeKind::Root => "all".to_owned(),
        NodeKind::Comm(comm) => shown(profile.machine().comm(comm).as_bytes()),
        NodeKind::Function(function) => function_name(profile, function),
    }
}

/// Rows of a tree; with a filter those beneath which a name has it are open.
pub(super) fn rows(
    profile: &LiveProfile,
    tree: &LiveTree,
    toggled: &FxHashSet<Vec<NodeKind>>,
    filter: &str,
) -> Vec<TreeRow> {
    let whole = tree.node(LiveNodeId::ROOT).map_or(0, |n| n.total);
    let filter = filter.to_lowercase();
    let matching =
        if filter.is_empty() { None } else { Some(with_matches(profile, tree, &filter)) };
    let mut rows = Vec::new();
    let mut open: Vec<LiveNodeId> = tree.children(LiveNodeId::ROOT).iter().rev().copied().collect();
    while let Some(id) = open.pop() {
        let Some(node) = tree.node(id).filter(|_| rows.len() < MOST) else { break };
        let total = percent(node.total, whole);
        if total < LEAST || matching.as_ref().is_some_and(|m| !m.contains(&id)) {
            continue;
        }
        let path = tree.path(id);
        let is_open = matching.is_some() || (total >= OPEN) != toggled.contains(&path);
        let mark = match (node.children.is_empty(), is_open) {
            (true, _) => ' ',
            (false, true) => '-',
            (false, false) => '+',
        };
        let indent = " ".repeat((path.len() - 1).min(200));
        let text = format!("{indent}{mark} {}", node_name(profile, node.kind));
        rows.push(TreeRow { kind: node.kind, path, text, total, own: percent(node.own, whole) });
        if is_open {
            open.extend(node.children.iter().rev());
        }
    }
    rows
}

/// Nodes whose name has the text, and those that lead there.
fn with_matches(profile: &LiveProfile, tree: &LiveTree, filter: &str) -> FxHashSet<LiveNodeId> {
    let mut found = FxHashSet::default();
    for number in 0.. {
        let Some(node) = tree.node(LiveNodeId(number)) else { break };
        if !node_name(profile, node.kind).to_lowercase().contains(filter) {
            continue;
        }
        let mut at = LiveNodeId(number);
        while at != LiveNodeId::ROOT && found.insert(at) {
            at = tree.node(at).map_or(LiveNodeId::ROOT, |n| n.parent);
        }
    }
    found
}

impl TopScreen {
    pub(super) fn draw_tree(&mut self, buffer: &mut Buffer, area: Rect) {
        let titles = u16::from(area.height >= 3);
        if titles > 0 {
            write(buffer, area, (0, 0), "  Total    Self   Function", ScreenStyle::TITLE);
        }
        self.room = usize::from(area.height - titles);
        self.keep_cursor(self.tree_rows.len());
        for (n, row) in self.tree_rows.iter().skip(self.first).take(self.room).enumerate() {
            let y = titles + n as u16;
            let text = format!("{:6.2}% ", row.total);
            write(buffer, area, (0, y), &text, ScreenStyle::share(row.total));
            let text = format!("{:6.2}% ", row.own);
            write(buffer, area, (8, y), &text, ScreenStyle::share(row.own));
            write(buffer, area, (17, y), &row.text, ScreenStyle::PLAIN);
            if self.first + n == self.cursor {
                let row = Rect::new(area.x, area.y + y, area.width, 1);
                buffer.set_style(row, ScreenStyle::CHOSEN);
            }
        }
        if self.tree_rows.is_empty() {
            write(buffer, area, (1, titles), "no samples yet", ScreenStyle::FAINT);
        }
    }
}

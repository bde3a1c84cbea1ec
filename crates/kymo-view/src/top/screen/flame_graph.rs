//! The flame graph: callers above, what they call beneath them, as wide as it weighs. What is
//! narrower than a character is left out.

use kymo_analysis::live_profile::{LiveNodeId, LiveProfile, LiveTree, NodeKind};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::TopScreen;
use super::call_tree::node_name;
use super::draw::{ScreenStyle, write};
use crate::percent;

/// A node with its place.
struct FlameBox {
    id: LiveNodeId,
    depth: u16,
    from: f64,
    width: f64,
    /// Its place among what lies beside it.
    number: usize,
}

impl TopScreen {
    pub(super) fn draw_flames(&mut self, profile: &LiveProfile, buffer: &mut Buffer, area: Rect) {
        // One line shows the chosen node.
        let lines = area.height.saturating_sub(1);
        self.room = usize::from(lines);
        let Some((tree, root, at)) = self.flame_nodes() else { return };
        let whole = tree.node(LiveNodeId::ROOT).map_or(0, |n| n.total);
        if whole == 0 {
            return write(buffer, area, (1, 0), "no samples yet", ScreenStyle::FAINT);
        }
        let depth_of = |id: LiveNodeId| tree.path(id).len();
        // The chosen one stays on the screen.
        let chosen_depth = depth_of(at).saturating_sub(depth_of(root));
        let hidden = (chosen_depth + 1).saturating_sub(usize::from(lines)) as u16;
        let filter = self.filter.to_lowercase();
        for b in boxes(tree, root, area.width) {
            let Some(y) = b.depth.checked_sub(hidden).filter(|y| *y < lines) else { continue };
            let Some(node) = tree.node(b.id) else { continue };
            let (x, end) = (b.from.round() as u16, (b.from + b.width).round() as u16);
            let width = usize::from(end.saturating_sub(x));
            if width == 0 {
                continue;
            }
            let name = node_name(profile, node.kind);
            let matches = !filter.is_empty() && name.to_lowercase().contains(&filter);
            let text: String = std::iter::once('|').chain(name.chars()).take(width).collect();
            let style = match (b.id == at, matches) {
                (true, _) => ScreenStyle::CHOSEN,
                (false, true) => Style::new().fg(Color::Black).bg(Color::Cyan),
                (false, false) => flame_style(node.kind, b.number),
            };
            let text = format!("{text:<width$}");
            write(buffer, area, (x, y), &text, style);
        }
        if let Some(node) = tree.node(at) {
            let text = format!(
                "{:.2}% ({:.2}% self, {} samples)  {}",
                percent(node.total, whole),
                percent(node.own, whole),
                node.samples,
                node_name(profile, node.kind)
            );
            write(buffer, area, (0, lines), &text, ScreenStyle::TITLE);
        }
    }
}

/// Boxes of a node, of those that lead there, and of what it calls.
fn boxes(tree: &LiveTree, root: LiveNodeId, width: u16) -> Vec<FlameBox> {
    let whole = tree.node(root).map_or(0, |n| n.total);
    let mut boxes = Vec::new();
    let scale = |weight: u64| f64::from(width) * weight as f64 / whole.max(1) as f64;
    let mut left =
        vec![FlameBox { id: root, depth: 0, from: 0.0, width: f64::from(width), number: 0 }];
    while let Some(b) = left.pop() {
        let mut from = b.from;
        for (number, id) in tree.children(b.id).iter().enumerate() {
            let width = scale(tree.node(*id).map_or(0, |n| n.total));
            // The next ones are narrower still.
            if width < 0.5 {
                break;
            }
            left.push(FlameBox { id: *id, depth: b.depth.saturating_add(1), from, width, number });
            from += width;
        }
        boxes.push(b);
    }
    boxes
}

/// Boxes beside each other differ, also without colours.
fn flame_style(kind: NodeKind, number: usize) -> Style {
    let style = match kind {
        NodeKind::Root => Style::new().fg(Color::Black).bg(Color::Gray),
        NodeKind::Comm(_) => Style::new().fg(Color::Black).bg(Color::Green),
        NodeKind::Function(_) if number.is_multiple_of(2) => {
            Style::new().fg(Color::Black).bg(Color::Yellow)
        }
        NodeKind::Function(_) => Style::new().fg(Color::Black).bg(Color::LightRed),
    };
    match number % 2 {
        0 => style,
        _ => style.add_modifier(Modifier::BOLD),
    }
}

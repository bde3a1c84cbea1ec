//! Differential flame graph: the stacks of two recordings in one picture. A frame is as wide as
//! the larger side, so that what vanished stays visible; its color states which side that is.

use std::fmt::Write as _;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{Drawn, Look, Picture, Rect, Xml, amount, layout};
use crate::export::folded::{ByName, FoldedLabel, NamedNode};
use crate::percent;

/// Stacks of two recordings by name, joined.
struct Joined {
    /// Own weights are those of the larger side.
    larger: ByName,
    /// Weights of nodes and of what is below them, before and after.
    totals: Vec<(u64, u64)>,
}

impl Joined {
    fn new(before: &ByName, after: &ByName) -> Joined {
        let mut joined = Joined { larger: ByName::default(), totals: Vec::new() };
        let mut labels: FxHashMap<FoldedLabel, u32> = FxHashMap::default();
        let mut nodes: FxHashMap<(Option<u32>, u32), u32> = FxHashMap::default();
        let mut own: Vec<(u64, u64)> = Vec::new();
        for (stacks, is_after) in [(before, false), (after, true)] {
            // Parents come before their children.
            let mut numbers: Vec<u32> = Vec::with_capacity(stacks.nodes.len());
            for node in &stacks.nodes {
                let Some(label) = stacks.labels.get(node.label as usize) else { continue };
                let next = labels.len() as u32;
                let label = *labels.entry(label.clone()).or_insert_with(|| {
                    joined.larger.labels.push(label.clone());
                    next
                });
                let parent = node.parent.and_then(|p| numbers.get(p as usize)).copied();
                let next = joined.larger.nodes.len() as u32;
                let number = *nodes.entry((parent, label)).or_insert(next);
                if number == next {
                    joined.larger.nodes.push(NamedNode { parent, label, own: 0 });
                    own.push((0, 0));
                }
                numbers.push(number);
                if let Some(own) = own.get_mut(number as usize) {
                    let side = if is_after { &mut own.1 } else { &mut own.0 };
                    *side = side.saturating_add(node.own);
                }
            }
        }
        for (node, (before, after)) in joined.larger.nodes.iter_mut().zip(&own) {
            node.own = (*before).max(*after);
        }
        joined.totals = own;
        for number in (0..joined.larger.nodes.len()).rev() {
            let (before, after) = joined.totals.get(number).copied().unwrap_or_default();
            let parent = joined.larger.nodes.get(number).and_then(|n| n.parent);
            if let Some(total) = parent.and_then(|p| joined.totals.get_mut(p as usize)) {
                *total = (total.0.saturating_add(before), total.1.saturating_add(after));
            }
        }
        joined
    }
}

/// Draws the stacks of two recordings.
///
/// # Errors
/// If it cannot be written.
pub fn write_differential(
    before: &ByName,
    after: &ByName,
    look: &Look,
    out: &mut dyn Write,
) -> io::Result<Drawn> {
    let joined = Joined::new(before, after);
    let widths = joined.larger.totals();
    let is_root = |(node, _): &(&NamedNode, &u64)| node.parent.is_none();
    let roots = joined.larger.nodes.iter().zip(&widths).filter(is_root);
    let whole = roots.fold(0_u64, |sum, (_, width)| sum.saturating_add(*width));
    let sums = joined.larger.nodes.iter().zip(&joined.totals).filter(|(n, _)| n.parent.is_none());
    let all = sums.fold((0_u64, 0_u64), |sum, (_, one)| {
        (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
    });
    let (rects, drawn) = layout(&joined.larger, &widths, whole, look.least);
    let mut picture = Picture::begin(look, &rects, whole, out)?;
    let mut text = String::new();
    for rect in &rects {
        text.clear();
        frame(&joined, rect, (whole, all), look.unit, picture.y(rect), &mut text);
        picture.add(&text)?;
    }
    picture.end()?;
    Ok(drawn)
}

fn frame(
    joined: &Joined,
    rect: &Rect,
    (whole, all): (u64, (u64, u64)),
    unit: &str,
    y: u64,
    out: &mut String,
) {
    let node = rect.node.and_then(|n| joined.larger.nodes.get(n as usize));
    let name = node.and_then(|n| joined.larger.labels.get(n.label as usize));
    let name = name.map_or("all", |label| &*label.text);
    let (before, after) = match rect.node {
        Some(node) => joined.totals.get(node as usize).copied().unwrap_or_default(),
        None => all,
    };
    let (x, width) = (percent(rect.start, whole), percent(rect.weight, whole));
    let (start, weight, depth) = (rect.start, rect.weight, rect.depth);
    let (r, g, b) = color(before, after);
    let change = match (before, after) {
        (0, _) => "new".to_owned(),
        (_, 0) => "vanished".to_owned(),
        (before, after) => format!("{:+.1}%", (after as f64 / before as f64 - 1.0) * 100.0),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<svg class=\"f\" x=\"{x:.4}%\" y=\"{y}\" width=\"{width:.4}%\" height=\"{}\" \
         data-s=\"{start}\" data-w=\"{weight}\" data-d=\"{depth}\">\
         <title>{name} ({} before, {} after, {change})</title>\
         <rect width=\"100%\" height=\"{}\" fill=\"rgb({r},{g},{b})\"/>\
         <text x=\"3\" y=\"12\">{name}</text></svg>",
        super::ROW,
        amount(before, unit),
        amount(after, unit),
        super::ROW - 1,
        name = Xml(name),
    );
}

/// Orange where there is more after, blue where there is less, gray where both are alike; the
/// stronger, the larger the change.
fn color(before: u64, after: u64) -> (u8, u8, u8) {
    let larger = before.max(after).max(1) as f64;
    let change = (after as f64 - before as f64) / larger;
    let part = |from: f64, to: f64| (from + (to - from) * change.abs().min(1.0)) as u8;
    if change >= 0.0 {
        (part(225.0, 240.0), part(225.0, 110.0), part(220.0, 40.0))
    } else {
        (part(225.0, 60.0), part(225.0, 130.0), part(220.0, 230.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::folded::FrameKind;

    fn stacks(functions: &[(&str, u64)]) -> ByName {
        let label = |text: &str| FoldedLabel { text: text.to_owned(), kind: FrameKind::User };
        let mut stacks = ByName { labels: vec![label("main")], nodes: Vec::new() };
        stacks.nodes.push(NamedNode { parent: None, label: 0, own: 0 });
        for (n, (name, own)) in (1..).zip(functions) {
            stacks.labels.push(label(name));
            stacks.nodes.push(NamedNode { parent: Some(0), label: n, own: *own });
        }
        stacks
    }

    #[test]
    fn what_vanished_is_drawn() {
        let before = stacks(&[("gone", 300), ("same", 500)]);
        let after = stacks(&[("same", 500), ("new", 200)]);
        let look = Look { title: "t".into(), unit: "samples", least: 0.0 };
        let mut out = Vec::new();
        let drawn = write_differential(&before, &after, &look, &mut out).unwrap();
        assert_eq!(drawn, Drawn { frames: 4, left_out: 0 });
        let text = String::from_utf8(out).unwrap();
        for title in [
            "<title>all (800 samples before, 700 samples after, -12.5%)</title>",
            "<title>gone (300 samples before, 0 samples after, vanished)</title>",
            "<title>new (0 samples before, 200 samples after, new)</title>",
            "<title>same (500 samples before, 500 samples after, +0.0%)</title>",
        ] {
            assert!(text.contains(title), "{title}: {text}");
        }
        // Side by side: 300, 200 and 500 of 1,000.
        assert!(text.contains("x=\"0.0000%\" y=\"60\" width=\"30.0000%\""), "{text}");
        assert!(text.contains("x=\"50.0000%\" y=\"60\" width=\"50.0000%\""), "{text}");
        assert_eq!(color(5, 5), (225, 225, 220));
    }
}

//! A flame graph as one SVG file: without a script it is a picture, in a browser
//! it can be zoomed into and searched. Each frame is as wide as what passed
//! through it; the order from left to right is that of names, not of time.

mod differential;

use std::fmt::Write as _;
use std::io::{self, Write};

use super::folded::{ByName, FrameKind};
use crate::percent;

pub use differential::write_differential;

/// Appearance of the picture.
#[derive(Clone, Debug)]
pub struct Look {
    /// Title.
    pub title: String,
    /// Unit of the weights, in words: `samples`, `nanoseconds`.
    pub unit: &'static str,
    /// Frames of less than this share of the width are left out.
    pub least: f64,
}

/// Counts of drawn and omitted frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Frames in the picture.
    pub frames: usize,
    /// Frames that were too narrow.
    pub left_out: usize,
}

const WIDTH: u64 = 1200;
const ROW: u64 = 17;
/// Room above and below the frames.
const TOP: u64 = 60;
const BOTTOM: u64 = 34;
const MARGIN: u64 = 10;
/// Deeper frames are not drawn: no browser shows pictures of any height.
const DEEPEST: u64 = 1800;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// A frame in its place.
struct Rect {
    node: Option<u32>,
    start: u64,
    weight: u64,
    depth: u64,
}

/// Draws it.
pub fn write(stacks: &ByName, look: &Look, out: &mut dyn Write) -> io::Result<Drawn> {
    let totals = stacks.totals();
    let total_of = |n: u32| totals.get(n as usize).copied().unwrap_or(0);
    let roots = stacks.nodes.iter().zip(0..).filter(|(n, _)| n.parent.is_none());
    let whole = roots.fold(0u64, |sum, (_, n)| sum.saturating_add(total_of(n)));
    let (rects, drawn) = layout(stacks, &totals, whole, look.least);
    let mut picture = Picture::begin(look, &rects, whole, out)?;
    let mut text = String::new();
    for rect in &rects {
        text.clear();
        frame(stacks, rect, whole, look.unit, picture.y(rect), &mut text);
        picture.add(&text)?;
    }
    picture.end()?;
    Ok(drawn)
}

/// The file around the frames.
struct Picture<'a> {
    out: &'a mut dyn Write,
    height: u64,
}

impl<'a> Picture<'a> {
    fn begin(
        look: &Look,
        rects: &[Rect],
        whole: u64,
        out: &'a mut dyn Write,
    ) -> io::Result<Picture<'a>> {
        let deepest = rects.iter().map(|r| r.depth).max().unwrap_or(0);
        let height = TOP + (deepest + 1) * ROW + BOTTOM;
        let inner = WIDTH - 2 * MARGIN;
        writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">"
        )?;
        writeln!(out, "<style>{STYLE}</style>")?;
        writeln!(out, "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>")?;
        writeln!(
            out,
            "<text class=\"title\" x=\"{}\" y=\"26\">{}</text>",
            WIDTH / 2,
            Xml(&look.title)
        )?;
        writeln!(
            out,
            "<text id=\"reset\" class=\"button\" x=\"{MARGIN}\" y=\"46\">Reset zoom</text>"
        )?;
        writeln!(
            out,
            "<text id=\"search\" class=\"button\" x=\"{}\" y=\"46\">Search</text>",
            WIDTH - MARGIN
        )?;
        let below = height - 12;
        writeln!(out, "<text id=\"detail\" x=\"{MARGIN}\" y=\"{below}\"> </text>")?;
        writeln!(out, "<text id=\"found\" x=\"{}\" y=\"{below}\"> </text>", WIDTH - MARGIN)?;
        writeln!(
            out,
            "<svg id=\"frames\" x=\"{MARGIN}\" width=\"{inner}\" data-whole=\"{whole}\">"
        )?;
        Ok(Picture { out, height })
    }

    /// Vertical position of a frame.
    fn y(&self, rect: &Rect) -> u64 {
        self.height - BOTTOM - (rect.depth + 1) * ROW
    }

    fn add(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }

    fn end(self) -> io::Result<()> {
        writeln!(self.out, "</svg>")?;
        // No `]]>` is in it.
        writeln!(self.out, "<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>")
    }
}

/// The frames that are wide enough, each behind the one around it.
fn layout(stacks: &ByName, totals: &[u64], whole: u64, least: f64) -> (Vec<Rect>, Drawn) {
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); stacks.nodes.len()];
    let mut roots: Vec<u32> = Vec::new();
    for (node, number) in stacks.nodes.iter().zip(0..) {
        match node.parent.and_then(|p| children.get_mut(p as usize)) {
            Some(list) => list.push(number),
            None => roots.push(number),
        }
    }
    let total_of = |n: u32| totals.get(n as usize).copied().unwrap_or(0);
    let name = |n: &u32| {
        let node = stacks.nodes.get(*n as usize);
        node.and_then(|n| stacks.labels.get(n.label as usize)).map_or("", |l| &*l.text)
    };
    let mut drawn = Drawn::default();
    let mut rects = vec![Rect { node: None, start: 0, weight: whole, depth: 0 }];
    let mut todo: Vec<(u32, u64, u64)> = Vec::new();
    let push = |todo: &mut Vec<(u32, u64, u64)>, mut list: Vec<u32>, mut start: u64, depth: u64| {
        list.sort_by(|a, b| name(a).cmp(name(b)));
        for node in list {
            todo.push((node, start, depth));
            start = start.saturating_add(total_of(node));
        }
    };
    push(&mut todo, roots, 0, 1);
    while let Some((node, start, depth)) = todo.pop() {
        let weight = total_of(node);
        if percent(weight, whole) < least || depth > DEEPEST {
            drawn.left_out += 1;
            continue;
        }
        drawn.frames += 1;
        rects.push(Rect { node: Some(node), start, weight, depth });
        let below = children.get_mut(node as usize).map(std::mem::take).unwrap_or_default();
        push(&mut todo, below, start, depth + 1);
    }
    (rects, drawn)
}

fn frame(stacks: &ByName, rect: &Rect, whole: u64, unit: &str, y: u64, out: &mut String) {
    let label = rect
        .node
        .and_then(|n| stacks.nodes.get(n as usize))
        .and_then(|n| stacks.labels.get(n.label as usize));
    let (name, kind) = label.map_or(("all", FrameKind::Task), |l| (&*l.text, l.kind));
    let (x, width) = (percent(rect.start, whole), percent(rect.weight, whole));
    let (start, weight, depth) = (rect.start, rect.weight, rect.depth);
    let (r, g, b) = color(name, kind);
    let amount = amount(weight, unit);
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<svg class=\"f\" x=\"{x:.4}%\" y=\"{y}\" width=\"{width:.4}%\" height=\"{ROW}\" \
         data-s=\"{start}\" data-w=\"{weight}\" data-d=\"{depth}\">\
         <title>{name} ({amount}, {width:.2}%)</title>\
         <rect width=\"100%\" height=\"{}\" fill=\"rgb({r},{g},{b})\"/>\
         <text x=\"3\" y=\"12\">{name}</text></svg>",
        ROW - 1,
        name = Xml(name),
    );
}

/// A weight in words.
fn amount(weight: u64, unit: &str) -> String {
    match (unit, weight) {
        ("nanoseconds", w) if w >= 1_000_000_000 => format!("{:.2} s", w as f64 / 1e9),
        ("nanoseconds", w) => format!("{:.3} ms", w as f64 / 1e6),
        (unit, w) => {
            let digits = w.to_string();
            let mut grouped = String::new();
            for (n, digit) in digits.chars().enumerate() {
                if n > 0 && (digits.len() - n).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            format!("{grouped} {unit}")
        }
    }
}

/// One kind, one hue; one name, one shade of it.
fn color(name: &str, kind: FrameKind) -> (u8, u8, u8) {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    let part = |shift: u32, range: u32| ((hash >> shift & 0xff) * range / 255) as u8;
    match kind {
        FrameKind::Task => (200 + part(0, 20), 205 + part(0, 20), 190 + part(8, 20)),
        FrameKind::User => (230 + part(0, 25), 100 + part(8, 95), 50 + part(16, 30)),
        FrameKind::Kernel => (95 + part(0, 40), 165 + part(8, 40), 215 + part(16, 25)),
        FrameKind::Inlined => (235 + part(0, 15), 190 + part(8, 35), 105 + part(16, 40)),
        FrameKind::Unknown => (170 + part(0, 25), 165 + part(0, 25), 165 + part(0, 25)),
    }
}

/// Text as it may stand in XML.
struct Xml<'a>(&'a str);

impl std::fmt::Display for Xml<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                // What XML cannot hold at all.
                c if (c < ' ' && c != '\t') || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                    f.write_char('\u{fffd}')?;
                }
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::folded::{FoldedLabel, NamedNode};

    fn stacks() -> ByName {
        let label = |text: &str, kind| FoldedLabel { text: text.to_string(), kind };
        let node = |parent, label, own| NamedNode { parent, label, own };
        ByName {
            labels: vec![
                label("cat", FrameKind::Task),
                label("operator<<\u{1}\"&", FrameKind::User),
                label("a_first", FrameKind::Kernel),
            ],
            nodes: vec![
                node(None, 0, 0),
                node(Some(0), 1, 750),
                node(Some(0), 2, 249),
                node(Some(2), 1, 1),
            ],
        }
    }

    #[test]
    fn frames_are_as_wide_as_their_weight_and_names_cannot_break_the_file() {
        let look = Look { title: "t & t".into(), unit: "samples", least: 0.5 };
        let mut out = Vec::new();
        let drawn = write(&stacks(), &look, &mut out).unwrap();
        assert_eq!(drawn, Drawn { frames: 3, left_out: 1 });
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("<title>operator&lt;&lt;\u{fffd}&quot;&amp; (750 samples, 75.00%)"));
        // The first name is to the left, whatever it weighs.
        assert!(text.contains("x=\"0.0000%\" y=\"60\" width=\"25.0000%\""), "{text}");
        assert!(text.contains("x=\"25.0000%\" y=\"60\" width=\"75.0000%\""), "{text}");
        assert!(text.contains(">t &amp; t<") && !SCRIPT.contains("]]>"));
        assert_eq!(amount(1_234_567, "samples"), "1,234,567 samples");
        assert_eq!(amount(2_500_000_000, "nanoseconds"), "2.50 s");
    }
}

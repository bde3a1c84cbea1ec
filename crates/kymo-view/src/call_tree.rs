//! Call trees as text, in the four shapes that perf draws.

use kymo_analysis::percent;
use std::io::{self, Write};

/// A stretch of a call tree without a fork in it.
#[derive(Clone, Debug, Default)]
pub struct TreeNode {
    /// Names, from the root's side on.
    pub labels: Vec<String>,
    /// Weight of all chains that pass.
    pub total: u64,
    /// Weight of what hangs below, shown or not.
    pub below: u64,
    /// Heaviest first.
    pub children: Vec<TreeNode>,
}

/// Drawing style of a tree.
#[derive(Clone, Copy, Debug)]
pub struct GraphStyle {
    /// Weight of 100 %; with `relative`, only of the first fork.
    pub whole: u64,
    /// Weight of the entry that the tree belongs to.
    pub entry: u64,
    /// Each fork is 100 % of its own (perf's fractal mode).
    pub relative: bool,
    /// The entry already shows the first name.
    pub skip_first: bool,
}

const MARGIN: usize = 12;

/// Draws a forest as a graph, with an empty line behind it.
pub fn write_graph(out: &mut dyn Write, roots: &[TreeNode], style: GraphStyle) -> io::Result<()> {
    let (mut margin, mut level) = (MARGIN, roots);
    let mut printed = false;
    let whole = if style.relative { style.entry } else { style.whole };
    if let [only] = roots
        && only.total == style.entry
    {
        for label in only.labels.iter().skip(usize::from(style.skip_first)) {
            if printed {
                writeln!(out, "{:margin$}{label}", "")?;
            } else {
                writeln!(out, "{:margin$}|", "")?;
                writeln!(out, "{:margin$}---{label}", "")?;
                margin += 3;
                printed = true;
            }
        }
        level = &only.children;
    }
    let mut bars = vec![true];
    let drawn = write_level(out, level, whole, style.relative, margin, &mut bars)?;
    if printed || drawn {
        writeln!(out)?;
    }
    Ok(())
}

/// `bars` holds, for each fork on the way, whether its line continues.
fn write_level(
    out: &mut dyn Write,
    nodes: &[TreeNode],
    whole: u64,
    relative: bool,
    margin: usize,
    bars: &mut Vec<bool>,
) -> io::Result<bool> {
    let mut remaining = whole;
    for (i, node) in nodes.iter().enumerate() {
        remaining = remaining.saturating_sub(node.total);
        let last = i + 1 == nodes.len() && !(relative && remaining > 0);
        write!(out, "{:margin$}", "")?;
        for bar in bars.iter() {
            write!(out, "{}          ", if *bar { '|' } else { ' ' })?;
        }
        writeln!(out)?;
        if let Some(bar) = bars.last_mut() {
            *bar = !last;
        }
        for (n, label) in node.labels.iter().enumerate() {
            let share = (n == 0).then(|| percent(node.total, whole));
            write_line(out, margin, bars, share, label)?;
        }
        bars.push(true);
        let inner = if relative { node.below } else { whole };
        write_level(out, &node.children, inner, relative, margin, bars)?;
        bars.pop();
        if let Some(bar) = bars.last_mut() {
            *bar = true;
        }
    }
    if relative && remaining > 0 && remaining != whole {
        if let Some(bar) = bars.last_mut() {
            *bar = false;
        }
        write_line(out, margin, bars, Some(percent(remaining, whole)), "[...]")?;
        if let Some(bar) = bars.last_mut() {
            *bar = true;
        }
    }
    Ok(!nodes.is_empty())
}

fn write_line(
    out: &mut dyn Write,
    margin: usize,
    bars: &[bool],
    share: Option<f64>,
    label: &str,
) -> io::Result<()> {
    write!(out, "{:margin$}", "")?;
    for (i, bar) in bars.iter().enumerate() {
        write!(out, "{}", if *bar { '|' } else { ' ' })?;
        match share {
            Some(share) if i + 1 == bars.len() => write!(out, "--{share:.2}%--")?,
            _ => write!(out, "          ")?,
        }
    }
    writeln!(out, "{label}")
}

/// Whole chains below each other.
pub fn write_flat(
    out: &mut dyn Write,
    chains: &[(Vec<String>, u64)],
    whole: u64,
) -> io::Result<()> {
    for (names, weight) in chains {
        writeln!(out, "           {:.2}%", percent(*weight, whole))?;
        for name in names {
            writeln!(out, "                {name}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// One line for each chain.
pub fn write_folded(
    out: &mut dyn Write,
    chains: &[(Vec<String>, u64)],
    whole: u64,
) -> io::Result<()> {
    for (names, weight) in chains {
        writeln!(out, "{:.2}% {}", percent(*weight, whole), names.join(";"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[&str], total: u64, children: Vec<TreeNode>) -> TreeNode {
        let below = children.iter().map(|c| c.total).sum();
        TreeNode { labels: labels.iter().map(|l| l.to_string()).collect(), total, below, children }
    }

    #[test]
    fn a_graph_has_bars_down_to_its_last_branch() {
        let roots =
            [node(&["leaf"], 80, vec![node(&["a", "main"], 50, vec![]), node(&["b"], 30, vec![])])];
        let mut out = Vec::new();
        let style = GraphStyle { whole: 100, entry: 80, relative: false, skip_first: false };
        write_graph(&mut out, &roots, style).unwrap();
        let expected = "            |
            ---leaf
               |          
               |--50.00%--a
               |          main
               |          
                --30.00%--b

";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn chains_are_folded_to_lines() {
        let mut out = Vec::new();
        let chains = [(vec!["a".to_string(), "b".to_string()], 1)];
        write_folded(&mut out, &chains, 3).unwrap();
        assert_eq!(out, b"33.33% a;b\n");
    }
}

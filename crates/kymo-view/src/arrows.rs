//! Jumps between the rows of a listing, drawn beside it:
//!
//! ```text
//!   ┌──  jmp  2
//!   │┌─▸ add  …
//!   └┼─▸ cmp  …
//!    └─  jne  1
//! ```
//!
//! Jumps to one row share a line. The shortest are nearest to the rows; what does
//! not fit is left out.

/// A line beside the rows, and who uses it.
#[derive(Clone, Debug)]
struct Way {
    top: usize,
    bottom: usize,
    target: usize,
    /// Ascending.
    sources: Vec<usize>,
    /// 0 is nearest to the rows.
    lane: usize,
}

/// The lines beside a listing.
#[derive(Clone, Debug)]
pub struct Arrows {
    /// By lane.
    ways: Vec<Vec<Way>>,
    /// Jumps that are not drawn.
    pub left_out: usize,
}

impl Arrows {
    /// Lays out jumps, each from a row to a row, in at most `lanes` lanes.
    pub fn new(jumps: impl IntoIterator<Item = (usize, usize)>, lanes: usize) -> Arrows {
        let mut jumps: Vec<(usize, usize)> =
            jumps.into_iter().filter(|(from, to)| from != to).map(|(f, t)| (t, f)).collect();
        jumps.sort_unstable();
        jumps.dedup();
        let mut ways: Vec<Way> = jumps
            .chunk_by(|a, b| a.0 == b.0)
            .filter_map(|run| {
                let (target, first) = *run.first()?;
                let last = run.last()?.1;
                let (top, bottom) = (first.min(target), last.max(target));
                let sources = run.iter().map(|j| j.1).collect();
                Some(Way { top, bottom, target, sources, lane: 0 })
            })
            .collect();
        ways.sort_by_key(|w| (w.bottom - w.top, w.top));
        let mut placed: Vec<Vec<Way>> = Vec::new();
        let mut left_out = 0;
        for mut way in ways {
            let free = |lane: &Vec<Way>| {
                // By their tops, and none overlaps another.
                let at = lane.partition_point(|w| w.bottom < way.top);
                lane.get(at).is_none_or(|w| w.top > way.bottom)
            };
            way.lane = placed.iter().position(free).unwrap_or(placed.len());
            if way.lane == lanes {
                left_out += way.sources.len();
                continue;
            }
            if way.lane == placed.len() {
                placed.push(Vec::new());
            }
            if let Some(lane) = placed.get_mut(way.lane) {
                let at = lane.partition_point(|w| w.top < way.top);
                lane.insert(at, way);
            }
        }
        Arrows { ways: placed, left_out }
    }

    /// Characters that each row takes.
    pub fn width(&self) -> usize {
        if self.ways.is_empty() { 0 } else { self.ways.len() + 2 }
    }

    fn at(&self, lane: usize, row: usize) -> Option<&Way> {
        let lane = self.ways.get(lane)?;
        let at = lane.partition_point(|w| w.bottom < row);
        lane.get(at).filter(|w| w.top <= row)
    }

    /// Returns the arrows next to a row.
    pub fn row(&self, row: usize) -> String {
        let mut text = String::new();
        let mut across = false;
        let mut arrives = false;
        for lane in (0..self.ways.len()).rev() {
            let way = self.at(lane, row);
            let ends = way.filter(|w| w.target == row || w.sources.binary_search(&row).is_ok());
            text.push(match (way, ends) {
                (None, _) if across => '─',
                (None, _) => ' ',
                (Some(_), None) if across => '┼',
                (Some(_), None) => '│',
                (Some(w), Some(_)) => match (w.top == row, w.bottom == row) {
                    (true, _) if across => '┬',
                    (true, _) => '┌',
                    (_, true) if across => '┴',
                    (_, true) => '└',
                    _ if across => '┼',
                    _ => '├',
                },
            });
            across |= ends.is_some();
            arrives |= ends.is_some_and(|w| w.target == row);
        }
        if !self.ways.is_empty() {
            text.push_str(match (across, arrives) {
                (false, _) => "  ",
                (true, true) => "─▸",
                (true, false) => "─ ",
            });
        }
        text
    }

    /// Returns the arrows next to a line between a row and the one before it.
    pub fn above(&self, row: usize) -> String {
        let mut text: String = (0..self.ways.len())
            .rev()
            .map(|lane| match self.at(lane, row) {
                Some(w) if w.top < row => '│',
                _ => ' ',
            })
            .collect();
        if !text.is_empty() {
            text.push_str("  ");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Arrows;

    #[test]
    fn jumps_to_one_row_share_a_line_and_short_ones_are_inside() {
        let a = Arrows::new([(0, 5), (1, 3), (4, 2), (3, 5)], 4);
        let rows: Vec<String> = (0..7).map(|r| a.row(r)).collect();
        let expected = ["┌─── ", "│ ┌─ ", "│┌┼─▸", "├┼┴─▸", "│└── ", "└───▸", "     "];
        assert_eq!(rows, expected, "\n{}", rows.join("\n"));
        assert_eq!((a.above(0).as_str(), a.above(3).as_str()), ("     ", "│││  "));
        assert_eq!((a.width(), a.left_out), (5, 0));
        let narrow = Arrows::new([(0, 5), (1, 3), (4, 2), (3, 5)], 1);
        assert_eq!((narrow.width(), narrow.left_out), (3, 3));
        assert_eq!(Arrows::new([(3, 3)], 4).row(3), "");
    }
}

//! The listing as text, laid out like perf's `--stdio`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use kymo_debuginfo::disasm::Flow;

use super::cost::{Costs, Hot, PercentType, Sum, Sums, add};
use super::listing::{Listing, Place, Row};
use super::source::SourceTexts;

/// What is shown.
pub(super) struct Look {
    pub(super) percent: PercentType,
    /// Least share in the summary.
    pub(super) least: f64,
    /// Source text between the instructions.
    pub(super) source: bool,
    /// File and line in front of each run of instructions.
    pub(super) lines: bool,
    pub(super) full_paths: bool,
    pub(super) raw: bool,
    pub(super) count: Count,
    pub(super) color: bool,
}

/// What the columns on the left hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Percent,
    Samples,
    Period,
}

/// Lines of the summary.
const HOTTEST: usize = 10;

/// Writes functions.
pub(super) struct Text<'a> {
    pub(super) out: &'a mut dyn Write,
    pub(super) look: &'a Look,
    pub(super) costs: &'a Costs,
    pub(super) sources: &'a mut SourceTexts,
}

impl Text<'_> {
    /// Writes a function: what is hottest in it, then all of it.
    pub(super) fn function(
        &mut self,
        hot: &Hot,
        name: &str,
        dso: &str,
        listing: &Listing,
    ) -> io::Result<()> {
        let samples: u64 = hot.sums.iter().map(|s| s.samples).sum();
        let events = self.costs.events.join(", ");
        let global = hot.sums.iter().zip(&self.costs.whole);
        let of_all = global.map(|(s, w)| format!("{:.2}%", kymo_view::percent(s.period, w.period)));
        let of_all = of_all.collect::<Vec<_>>().join(", ");
        let head = format!(
            " {}|  {name} in {dso}: {events} ({samples} samples, {of_all} of all, percent: {})",
            self.titles(),
            self.look.percent.words()
        );
        writeln!(self.out, "{head}\n{}", "-".repeat(head.chars().count()))?;
        self.summary(hot, listing)?;
        let digits = listing.rows.last().map_or(4, |r| format!("{:x}", r.line.addr).len());
        let mut before: Option<&Row> = None;
        for (number, row) in listing.rows.iter().enumerate() {
            if before.is_none_or(|b| b.source != row.source) {
                let beside = listing.arrows.above(number);
                self.source(before, row, digits, &beside)?;
            }
            self.instruction(hot, row, digits, &listing.arrows.row(number))?;
            before = Some(row);
        }
        writeln!(self.out)
    }

    fn width(&self) -> usize {
        match self.look.count {
            Count::Percent => 8,
            _ => 11,
        }
    }

    fn titles(&self) -> String {
        let (width, word) = match self.look.count {
            Count::Percent => (self.width(), "Percent"),
            Count::Samples => (self.width(), "Samples"),
            Count::Period => (self.width(), "Period"),
        };
        self.costs.events.iter().map(|_| format!("{word:>0$} ", width - 1)).collect()
    }

    fn blank(&self) -> String {
        format!(" {}:", " ".repeat(self.width() * self.costs.events.len()))
    }

    /// The columns of costs.
    fn cells(&self, hot: &Hot, cost: Option<&Sums>) -> String {
        let width = self.width() - 1;
        let mut cells = String::from(" ");
        for (column, whole) in self.costs.whole.iter().enumerate() {
            let local = hot.sums.get(column).copied().unwrap_or_default();
            let sum = cost.and_then(|c| c.get(column)).copied().unwrap_or_default();
            if sum == Sum::default() {
                cells.push_str(&" ".repeat(width + 1));
                continue;
            }
            let share = self.look.percent.of(sum, local, *whole);
            let cell = match self.look.count {
                Count::Percent => format!("{share:>width$.2} "),
                Count::Samples => format!("{:>width$} ", sum.samples),
                Count::Period => format!("{:>width$} ", sum.period),
            };
            match heat(self.look.color, share) {
                Some(style) => cells.push_str(&format!("{style}{cell}{style:#}")),
                None => cells.push_str(&cell),
            }
        }
        cells
    }

    fn instruction(&mut self, hot: &Hot, row: &Row, digits: usize, beside: &str) -> io::Result<()> {
        let cells = self.cells(hot, row.cost.as_ref());
        write!(self.out, "{cells}:  {:>digits$x}:  {beside}", row.line.addr)?;
        if self.look.raw {
            let bytes: Vec<String> = row.bytes.iter().map(|b| format!("{b:02x}")).collect();
            write!(self.out, "{:<32}", bytes.join(" "))?;
        }
        let style = match row.line.flow {
            Flow::Call(_) if self.look.color => Style::new().fg_color(Some(AnsiColor::Blue.into())),
            _ => Style::new(),
        };
        writeln!(self.out, "{style}{}{style:#}", row.line.text)
    }

    /// What stands between two instructions of different places in the source.
    fn source(
        &mut self,
        before: Option<&Row>,
        row: &Row,
        digits: usize,
        beside: &str,
    ) -> io::Result<()> {
        let Some(place) = row.source.first() else { return Ok(()) };
        if !self.look.source && !self.look.lines {
            return Ok(());
        }
        let last = before.and_then(|b| b.source.first());
        let indent = format!("{}  {:digits$}   {beside}", self.blank(), "");
        if last.is_none_or(|l| l.function != place.function || l.file != place.file) {
            let file = self.path(&place.file);
            match &*row.source {
                [_, outer, ..] => writeln!(
                    self.out,
                    "{indent}{}  {file}  (inlined into {})",
                    place.function, outer.function
                )?,
                _ => writeln!(self.out, "{indent}{}  {file}", place.function)?,
            }
        }
        if last.is_some_and(|l| l == place) {
            return Ok(());
        }
        if self.look.lines {
            let file = self.path(&place.file);
            writeln!(self.out, "{indent}{}", Text::at(&file, place.line))?;
        }
        match self.sources.line(&place.file, place.line).filter(|_| self.look.source) {
            Some(text) => writeln!(self.out, "{indent}{:>5}  {text}", place.line),
            None => Ok(()),
        }
    }

    fn path(&self, path: &str) -> String {
        let short = || path.rsplit('/').next().unwrap_or(path).to_string();
        match path {
            "" => "??".to_string(),
            _ if self.look.full_paths => path.to_string(),
            _ => short(),
        }
    }

    /// A place. Line 0 is the compiler's word for code of no line.
    fn at(file: &str, line: u32) -> String {
        match line {
            0 => format!("{file}:?"),
            line => format!("{file}:{line}"),
        }
    }

    /// The hottest lines and instructions.
    fn summary(&mut self, hot: &Hot, listing: &Listing) -> io::Result<()> {
        let mut by_line: BTreeMap<&Place, Sums> = BTreeMap::new();
        for row in &listing.rows {
            if let (Some(cost), Some(place)) = (&row.cost, row.source.first()) {
                add(by_line.entry(place).or_default(), cost);
            }
        }
        let lines: Vec<(String, Sums)> = by_line
            .into_iter()
            .map(|(p, sums)| {
                let place = Text::at(&self.path(&p.file), p.line);
                // Where the source is not here, the function says what it is about.
                let text = match self.sources.line(&p.file, p.line) {
                    Some(text) => text.trim().to_owned(),
                    None if p.function.is_empty() => String::new(),
                    None => format!("(in {})", p.function),
                };
                (format!("{place}  {text}").trim_end().to_string(), sums)
            })
            .collect();
        let instructions: Vec<(String, Sums)> = listing
            .rows
            .iter()
            .filter_map(|r| Some((format!("{:x}  {}", r.line.addr, r.line.text), r.cost.clone()?)))
            .collect();
        self.hottest(hot, "lines", &lines)?;
        self.hottest(hot, "instructions", &instructions)
    }

    fn hottest(&mut self, hot: &Hot, what: &str, all: &[(String, Sums)]) -> io::Result<()> {
        let share = |sums: &Sums| -> f64 {
            let of = |(column, sum): (usize, &Sum)| {
                let local = hot.sums.get(column).copied().unwrap_or_default();
                let whole = self.costs.whole.get(column).copied().unwrap_or_default();
                self.look.percent.of(*sum, local, whole)
            };
            sums.iter().enumerate().map(of).fold(0.0, f64::max)
        };
        let mut ranked: Vec<(f64, usize)> =
            all.iter().enumerate().map(|(i, (_, sums))| (share(sums), i)).collect();
        ranked.retain(|(share, _)| *share >= self.look.least);
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.truncate(HOTTEST);
        if ranked.is_empty() {
            return Ok(());
        }
        writeln!(self.out, "{}  Hottest {what}:", self.blank())?;
        for (_, number) in ranked {
            let Some((text, sums)) = all.get(number) else { continue };
            let cells = self.cells(hot, Some(sums));
            writeln!(self.out, "{cells}:    {text}")?;
        }
        writeln!(self.out, "{}", self.blank())
    }
}

/// perf's colours: 5 % and more is red, from half a percent on green.
fn heat(color: bool, share: f64) -> Option<Style> {
    let color = match share {
        _ if !color => return None,
        s if s >= 5.0 => AnsiColor::Red,
        s if s >= 0.5 => AnsiColor::Green,
        _ => return None,
    };
    Some(Style::new().fg_color(Some(color.into())))
}

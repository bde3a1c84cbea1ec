//! Listing of a function as text, laid out like perf's `--stdio`, and the ledger notes
//! of listings.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use kymo_analysis::code_listing::{CodeListing, CodeRow, SourcePosition};
use kymo_analysis::function_cost::{
    CostSum, CostSums, FunctionCost, FunctionCosts, PercentType, add_columns,
};
use kymo_debuginfo::disasm::Flow;
use kymo_model::{NoteKind, counted};

use crate::arrows::Arrows;
use crate::units::visible;
use crate::{Ledger, percent};

/// Jumps drawn side by side.
const LANES: usize = 6;

/// Texts of source lines.
pub trait LineTexts {
    /// Text of a line of the file that had this path when it was compiled.
    fn line(&mut self, path: &str, line: u32) -> Option<&str>;
}

/// Parts of a listing that are shown.
#[derive(Debug)]
pub struct ListingStyle {
    /// Whole that percentages are of.
    pub percent: PercentType,
    /// Least share in the summary.
    pub least: f64,
    /// Source text between the instructions.
    pub source: bool,
    /// File and line in front of each run of instructions.
    pub lines: bool,
    /// Whole paths of source files.
    pub full_paths: bool,
    /// Bytes of instructions.
    pub raw: bool,
    /// Columns on the left.
    pub count: CostColumn,
    /// Colors, for a terminal.
    pub color: bool,
}

/// Content of the columns on the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "variants are named like the columns")]
pub enum CostColumn {
    Percent,
    Samples,
    Period,
}

/// Lines of the summary.
const HOTTEST: usize = 10;

/// Writer of listings.
pub struct ListingWriter<'a> {
    /// Output.
    pub out: &'a mut dyn Write,
    /// Style of the listing.
    pub style: &'a ListingStyle,
    /// All functions, for their sums.
    pub costs: &'a FunctionCosts,
    /// Source files.
    pub sources: &'a mut dyn LineTexts,
}

impl ListingWriter<'_> {
    /// Writes a function: what is hottest in it, then all of it.
    pub fn write_function(
        &mut self,
        hot: &FunctionCost,
        name: &str,
        dso: &str,
        listing: &CodeListing,
    ) -> io::Result<()> {
        let samples: u64 = hot.sums.iter().map(|s| s.samples).sum();
        let events = self.costs.events.join(", ");
        let global = hot.sums.iter().zip(&self.costs.whole);
        let of_all = global.map(|(s, w)| format!("{:.2}%", percent(s.period, w.period)));
        let of_all = of_all.collect::<Vec<_>>().join(", ");
        let (name, dso, events) = (visible(name), visible(dso), visible(&events));
        let head = format!(
            " {}|  {name} in {dso}: {events} ({samples} samples, {of_all} of all, percent: {})",
            self.titles(),
            self.style.percent.words()
        );
        writeln!(self.out, "{head}\n{}", "-".repeat(head.chars().count()))?;
        self.summary(hot, listing)?;
        let digits = listing.rows.last().map_or(4, |r| format!("{:x}", r.line.addr).len());
        let arrows = Arrows::new(listing.jumps(), LANES);
        let mut before: Option<&CodeRow> = None;
        for (number, row) in listing.rows.iter().enumerate() {
            if before.is_none_or(|b| b.source != row.source) {
                let beside = arrows.above(number);
                self.source(before, row, digits, &beside)?;
            }
            self.instruction(hot, row, digits, &arrows.row(number))?;
            before = Some(row);
        }
        writeln!(self.out)
    }

    fn width(&self) -> usize {
        match self.style.count {
            CostColumn::Percent => 8,
            _ => 11,
        }
    }

    fn titles(&self) -> String {
        let (width, word) = match self.style.count {
            CostColumn::Percent => (self.width(), "Percent"),
            CostColumn::Samples => (self.width(), "Samples"),
            CostColumn::Period => (self.width(), "Period"),
        };
        self.costs.events.iter().map(|_| format!("{word:>0$} ", width - 1)).collect()
    }

    fn blank(&self) -> String {
        format!(" {}:", " ".repeat(self.width() * self.costs.events.len()))
    }

    /// The columns of costs.
    fn cells(&self, hot: &FunctionCost, cost: Option<&CostSums>) -> String {
        let width = self.width() - 1;
        let mut cells = String::from(" ");
        for (column, whole) in self.costs.whole.iter().enumerate() {
            let local = hot.sums.get(column).copied().unwrap_or_default();
            let sum = cost.and_then(|c| c.get(column)).copied().unwrap_or_default();
            if sum == CostSum::default() {
                cells.push_str(&" ".repeat(width + 1));
                continue;
            }
            let share = self.style.percent.share(sum, local, *whole);
            let cell = match self.style.count {
                CostColumn::Percent => format!("{share:>width$.2} "),
                CostColumn::Samples => format!("{:>width$} ", sum.samples),
                CostColumn::Period => format!("{:>width$} ", sum.period),
            };
            match heat(self.style.color, share) {
                Some(style) => cells.push_str(&format!("{style}{cell}{style:#}")),
                None => cells.push_str(&cell),
            }
        }
        cells
    }

    fn instruction(
        &mut self,
        hot: &FunctionCost,
        row: &CodeRow,
        digits: usize,
        beside: &str,
    ) -> io::Result<()> {
        let cells = self.cells(hot, row.cost.as_ref());
        write!(self.out, "{cells}:  {:>digits$x}:  {beside}", row.line.addr)?;
        if self.style.raw {
            let bytes: Vec<String> = row.bytes.iter().map(|b| format!("{b:02x}")).collect();
            write!(self.out, "{:<32}", bytes.join(" "))?;
        }
        let style = match row.line.flow {
            Flow::Call(_) if self.style.color => {
                Style::new().fg_color(Some(AnsiColor::Blue.into()))
            }
            _ => Style::new(),
        };
        writeln!(self.out, "{style}{}{style:#}", visible(&row.line.text))
    }

    /// Writes the source lines between two instructions of different source positions.
    fn source(
        &mut self,
        before: Option<&CodeRow>,
        row: &CodeRow,
        digits: usize,
        beside: &str,
    ) -> io::Result<()> {
        let Some(place) = row.source.first() else { return Ok(()) };
        if !self.style.source && !self.style.lines {
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
                    visible(&place.function),
                    visible(&outer.function)
                )?,
                _ => writeln!(self.out, "{indent}{}  {file}", visible(&place.function))?,
            }
        }
        if last.is_some_and(|l| l == place) {
            return Ok(());
        }
        if self.style.lines {
            let file = self.path(&place.file);
            writeln!(self.out, "{indent}{}", ListingWriter::at(&file, place.line))?;
        }
        match self.sources.line(&place.file, place.line).filter(|_| self.style.source) {
            Some(text) => writeln!(self.out, "{indent}{:>5}  {}", place.line, visible(text)),
            None => Ok(()),
        }
    }

    fn path(&self, path: &str) -> String {
        let short = || path.rsplit('/').next().unwrap_or(path).to_string();
        match path {
            "" => "??".to_string(),
            _ if self.style.full_paths => visible(path).into_owned(),
            _ => visible(&short()).into_owned(),
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
    fn summary(&mut self, hot: &FunctionCost, listing: &CodeListing) -> io::Result<()> {
        let mut by_line: BTreeMap<&SourcePosition, CostSums> = BTreeMap::new();
        for row in &listing.rows {
            if let (Some(cost), Some(place)) = (&row.cost, row.source.first()) {
                add_columns(by_line.entry(place).or_default(), cost);
            }
        }
        let lines: Vec<(String, CostSums)> = by_line
            .into_iter()
            .map(|(p, sums)| {
                let place = ListingWriter::at(&self.path(&p.file), p.line);
                // Where the source is not here, the function identifies it.
                let text = match self.sources.line(&p.file, p.line) {
                    Some(text) => text.trim().to_owned(),
                    None if p.function.is_empty() => String::new(),
                    None => format!("(in {})", p.function),
                };
                (format!("{place}  {text}").trim_end().to_string(), sums)
            })
            .collect();
        let instructions: Vec<(String, CostSums)> = listing
            .rows
            .iter()
            .filter_map(|r| Some((format!("{:x}  {}", r.line.addr, r.line.text), r.cost.clone()?)))
            .collect();
        self.hottest(hot, "lines", &lines)?;
        self.hottest(hot, "instructions", &instructions)
    }

    fn hottest(
        &mut self,
        hot: &FunctionCost,
        what: &str,
        all: &[(String, CostSums)],
    ) -> io::Result<()> {
        let share = |sums: &CostSums| -> f64 {
            let of = |(column, sum): (usize, &CostSum)| {
                let local = hot.sums.get(column).copied().unwrap_or_default();
                let whole = self.costs.whole.get(column).copied().unwrap_or_default();
                self.style.percent.share(*sum, local, whole)
            };
            sums.iter().enumerate().map(of).fold(0.0, f64::max)
        };
        let mut ranked: Vec<(f64, usize)> =
            all.iter().enumerate().map(|(i, (_, sums))| (share(sums), i)).collect();
        ranked.retain(|(share, _)| *share >= self.style.least);
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.truncate(HOTTEST);
        if ranked.is_empty() {
            return Ok(());
        }
        writeln!(self.out, "{}  Hottest {what}:", self.blank())?;
        for (_, number) in ranked {
            let Some((text, sums)) = all.get(number) else { continue };
            let cells = self.cells(hot, Some(sums));
            writeln!(self.out, "{cells}:    {}", visible(text))?;
        }
        writeln!(self.out, "{}", self.blank())
    }
}

/// Notes what limits the trust in a listing of the function `name`.
pub fn note_listing(name: &str, listing: &CodeListing, ledger: &mut Ledger) {
    for fact in &listing.debug_notes {
        ledger.note(NoteKind::Debug, fact.clone(), None);
    }
    if listing.off > 0 {
        let fact = format!(
            "{name}: {} not where an instruction begins",
            counted(listing.off, "sample is", "samples are")
        );
        let advice = Some("the code changed while it ran, or is data".into());
        ledger.note(NoteKind::Boundary, fact, advice);
    }
    if let Some(file) = &listing.unlike {
        let fact = format!(
            "{name}: the code is that of {file}; the kernel that ran had patched some of its own"
        );
        ledger.tell(NoteKind::File, fact, None);
    }
    if listing.cut > 0 {
        let fact = format!("{name}: the last {} bytes are not shown", listing.cut);
        ledger.note(NoteKind::Cut, fact, None);
    }
    for damage in &listing.damage {
        ledger.note(NoteKind::Debug, format!("{name}: {damage}"), None);
    }
}

/// Functions that are not shown, by the reason: names and samples.
#[derive(Debug, Default)]
pub struct HiddenFunctions(BTreeMap<String, (Vec<String>, u64)>);

impl HiddenFunctions {
    /// Adds a function.
    pub fn add(&mut self, name: &str, cost: &FunctionCost, why: String) {
        let (names, samples) = self.0.entry(why).or_default();
        names.push(name.to_owned());
        *samples += cost.sums.iter().map(|s| s.samples).sum::<u64>();
    }

    /// Notes them; that is no doubt where the user accepts it.
    pub fn note(self, costs: &FunctionCosts, accepted: bool, ledger: &mut Ledger) {
        let all: u64 = costs.whole.iter().map(|s| s.samples).sum();
        for (why, (names, samples)) in self.0 {
            let share = percent(samples, all);
            let fact = match &*names {
                [name] => format!("{name}: {samples} samples ({share:.1}%), not shown: {why}"),
                [name, others @ ..] => format!(
                    "{name} and {} others: {samples} samples ({share:.1}%), not shown: {why}",
                    others.len()
                ),
                [] => continue,
            };
            if accepted {
                ledger.tell(NoteKind::Code, fact, None)
            } else {
                ledger.note(NoteKind::Code, fact, None)
            }
        }
    }
}

/// perf's colors: 5 % and more is red, from half a percent on green.
fn heat(color: bool, share: f64) -> Option<Style> {
    let color = match share {
        _ if !color => return None,
        s if s >= 5.0 => AnsiColor::Red,
        s if s >= 0.5 => AnsiColor::Green,
        _ => return None,
    };
    Some(Style::new().fg_color(Some(color.into())))
}

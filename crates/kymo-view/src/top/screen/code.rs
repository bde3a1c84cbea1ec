//! Code of a function with what its instructions cost.

use kymo_analysis::live_profile::{LiveCode, LiveProfile, LiveQuery};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::TopScreen;
use super::draw::{ScreenStyle, write};
use crate::percent;
use crate::top::page::function_name;
use crate::units::shown;

/// A line of the listing.
#[derive(Clone, Debug)]
pub struct CodeLine {
    /// Address; none of a line that says where the code below is from.
    pub address: Option<u64>,
    /// The instruction, or the place in the source.
    pub text: String,
    /// Share of the function's weight, in percent.
    pub share: f64,
}

/// Code of a function.
#[derive(Debug)]
pub struct CodeScreen {
    /// Name of the function.
    pub title: String,
    /// The lines.
    pub lines: Vec<CodeLine>,
    code: LiveCode,
}

impl CodeScreen {
    /// The listing of a function, with a line wherever another line of source begins.
    pub fn new(code: LiveCode, profile: &LiveProfile) -> CodeScreen {
        let mut lines = Vec::with_capacity(code.listing.rows.len());
        let mut before = None;
        for row in &code.listing.rows {
            let source = row.source.first().filter(|s| s.line > 0);
            if let Some(source) = source
                && before != Some(source)
            {
                let file = source.file.rsplit('/').next().unwrap_or(&source.file);
                let text = format!("{}:{}", shown(file.as_bytes()), source.line);
                lines.push(CodeLine { address: None, text, share: 0.0 });
                before = Some(source);
            }
            let text = shown(row.line.text.as_bytes());
            lines.push(CodeLine { address: Some(row.line.addr), text, share: 0.0 });
        }
        let title = format!("code of {}", function_name(profile, code.function));
        CodeScreen { title, lines, code }
    }

    /// Counts what the instructions cost in the samples that are shown.
    pub(super) fn count(&mut self, profile: &LiveProfile, query: &LiveQuery) {
        let places = profile.places_of(query, self.code.function);
        let whole: u64 = places.values().fold(0, |sum, p| sum.saturating_add(p.period));
        self.lines.iter_mut().for_each(|line| line.share = 0.0);
        let mut places = places.iter().peekable();
        // Both ascend.
        for line in &mut self.lines {
            let Some(address) = line.address else { continue };
            while let Some((at, sum)) = places.peek() {
                let at = self.code.address(**at);
                if at > address {
                    break;
                }
                if at == address {
                    line.share += percent(sum.period, whole);
                }
                places.next();
            }
        }
    }

    /// The line that costs most.
    pub fn hottest(&self) -> usize {
        let shares = self.lines.iter().enumerate();
        shares.max_by(|a, b| a.1.share.total_cmp(&b.1.share).then(b.0.cmp(&a.0))).map_or(0, |l| l.0)
    }
}

impl TopScreen {
    /// Goes to the line that costs most.
    pub fn show_hottest_line(&mut self) {
        if let Some(code) = &self.code {
            self.cursor = code.hottest();
            self.first = self.cursor.saturating_sub(self.room / 2);
        }
    }

    pub(super) fn draw_code(&mut self, buffer: &mut Buffer, area: Rect) {
        self.room = usize::from(area.height);
        let Some(code) = &self.code else { return };
        for (n, line) in code.lines.iter().skip(self.first).take(self.room).enumerate() {
            let y = n as u16;
            let style = match line.address {
                None => ScreenStyle::FAINT,
                Some(_) => ScreenStyle::PLAIN,
            };
            let text = match line.address {
                None => format!("         {}", line.text),
                Some(address) => {
                    if line.share > 0.0 {
                        let share: Style = ScreenStyle::share(line.share);
                        write(buffer, area, (0, y), &format!("{:6.2}%", line.share), share);
                    }
                    format!("{address:>8x}: {}", line.text)
                }
            };
            write(buffer, area, (8, y), &text, style);
            if self.first + n == self.cursor {
                let row = Rect::new(area.x, area.y + y, area.width, 1);
                buffer.set_style(row, ScreenStyle::CHOSEN);
            }
        }
        if code.lines.is_empty() {
            write(buffer, area, (1, 0), "no code", ScreenStyle::FAINT);
        }
    }
}

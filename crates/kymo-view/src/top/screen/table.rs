//! The table: shares and names.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use super::draw::{ScreenStyle, write};
use super::{RowSubject, TopScreen};

impl TopScreen {
    pub(super) fn draw_table(&mut self, buffer: &mut Buffer, area: Rect) {
        let children = self.weighs_children();
        // The titles go first where there is no room.
        let titles = u16::from(area.height >= 3);
        self.room = usize::from(area.height - titles);
        let mut widths: Vec<usize> = self.page.titles.iter().map(|t| t.chars().count()).collect();
        for line in &self.page.lines {
            for (width, cell) in widths.iter_mut().zip(&line.cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        // Binaries may have long names; those of functions matter more. No column goes beyond the
        // screen: names are as long as a binary says.
        widths.iter_mut().for_each(|w| *w = (*w).min(area.width.into()));
        let most = usize::from(area.width) / 3;
        let all_but_last = widths.len().saturating_sub(1);
        widths.iter_mut().take(all_but_last).for_each(|w| *w = (*w).min(most));
        if titles > 0 {
            let mut text = String::new();
            if children {
                text.push_str("  Total ");
            }
            text.push_str("   Self ");
            if self.page.has_off_cpu {
                text.push_str(" Off-CPU  ");
            }
            for (title, width) in self.page.titles.iter().zip(&widths) {
                text.push_str(&format!(" {title:<width$}"));
            }
            write(buffer, area, (0, 0), &text, ScreenStyle::TITLE);
        }
        for (n, line) in self.page.lines.iter().take(self.room).enumerate() {
            let y = titles + n as u16;
            let mut x = 0;
            let shares = [children.then_some(line.total), Some(line.own)];
            for share in shares.into_iter().flatten() {
                let style = ScreenStyle::share(share);
                write(buffer, area, (x, y), &format!("{share:6.2}% "), style);
                x += 8;
            }
            if self.page.has_off_cpu {
                let time = format!("{:>8}  ", line.off_cpu_text());
                write(buffer, area, (x, y), &time, ScreenStyle::PLAIN);
                x += 10;
            }
            for ((cell, width), last) in
                line.cells.iter().zip(&widths).zip((0..widths.len()).map(|n| n == all_but_last))
            {
                let text: String =
                    if last { cell.clone() } else { cell.chars().take(*width).collect() };
                let is_kernel = cell.starts_with("[k]");
                let style = if is_kernel { ScreenStyle::KERNEL } else { ScreenStyle::PLAIN };
                write(buffer, area, (x + 1, y), &text, style);
                x = x.saturating_add(*width as u16 + 1);
            }
            if self.first + n == self.cursor {
                let row = Rect::new(area.x, area.y + y, area.width, 1);
                buffer.set_style(row, ScreenStyle::CHOSEN);
            }
        }
        if self.page.lines.is_empty() {
            let text = match self.subject {
                _ if !self.filter.is_empty() => "no row has this",
                RowSubject::Lines => "no samples, or no lines yet",
                _ => "no samples yet",
            };
            write(buffer, area, (1, titles), text, ScreenStyle::FAINT);
        }
    }
}

//! The frame of all screens: the first line shows the sampled event and target, the second the
//! current view, the last one is the ledger.

use kymo_analysis::live_profile::LiveProfile;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::{ScreenView, TopScreen};
use crate::percent;
use crate::top::trust::top_status;

/// Constant parts of the first line.
#[derive(Clone, Debug, Default)]
pub struct ScreenHead {
    /// The sampling frequency and the event.
    pub event: String,
    /// Target of the samples.
    pub target: String,
}

/// Styles of cells. Who has a terminal without colours leaves these out.
#[derive(Clone, Copy, Debug)]
pub struct ScreenStyle;

impl ScreenStyle {
    pub(super) const BAR: Style = Style::new().add_modifier(Modifier::REVERSED);
    pub(super) const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
    pub(super) const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
    pub(super) const PLAIN: Style = Style::new();
    pub(super) const KERNEL: Style = Style::new().fg(Color::Yellow);
    pub(super) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

    /// Style of a share in percent, in perf's colors.
    pub(super) fn share(share: f64) -> Style {
        match share {
            s if s >= 5.0 => Style::new().fg(Color::Red),
            s if s >= 0.5 => Style::new().fg(Color::Green),
            _ => ScreenStyle::PLAIN,
        }
    }
}

/// Writes text from a place on, as far as the area goes.
pub(super) fn write(buffer: &mut Buffer, area: Rect, (x, y): (u16, u16), text: &str, style: Style) {
    if x < area.width && y < area.height {
        let room = usize::from(area.width - x);
        buffer.set_stringn(area.x + x, area.y + y, text, room, style);
    }
}

/// A line in one style over the whole width.
fn write_bar(buffer: &mut Buffer, area: Rect, y: u16, text: &str, style: Style) {
    if y < area.height {
        buffer.set_style(Rect::new(area.x, area.y + y, area.width, 1), style);
        write(buffer, area, (0, y), text, style);
    }
}

impl TopScreen {
    /// Draws everything.
    pub fn draw(&mut self, profile: &LiveProfile, head: &ScreenHead, buffer: &mut Buffer) {
        let area = buffer.area;
        if area.width == 0 || area.height == 0 {
            return;
        }
        if self.help {
            return super::help::draw(buffer, area);
        }
        write_bar(buffer, area, 0, &self.head_line(profile, head), ScreenStyle::BAR);
        // Small terminals have no room for the current view.
        let mut top = 1;
        if area.height >= 6 {
            write(buffer, area, (0, 1), &self.place_line(), ScreenStyle::FAINT);
            top = 2;
        }
        let last = area.height - 1;
        if last > top {
            let body = Rect::new(area.x, area.y + top, area.width, last - top);
            match self.view {
                ScreenView::Table => self.draw_table(buffer, body),
                ScreenView::Tree => self.draw_tree(buffer, body),
                ScreenView::Flames => self.draw_flames(profile, buffer, body),
                ScreenView::Code => self.draw_code(buffer, body),
            }
        }
        if last > 0 {
            let status = match &self.message {
                _ if self.is_typing => format!("/{}_", self.filter),
                Some(message) => message.clone(),
                None => top_status(profile, self.sums()),
            };
            write_bar(buffer, area, last, &status, ScreenStyle::BAR);
        }
    }

    fn head_line(&self, profile: &LiveProfile, head: &ScreenHead) -> String {
        let (from, to) = self.times(profile);
        let seconds = to.saturating_sub(from) as f64 / 1e9;
        let sums = self.sums();
        let rate = if seconds > 0.0 { sums.samples as f64 / seconds } else { 0.0 };
        let kernel = percent(sums.kernel, sums.samples);
        let when = match self.frozen {
            Some(_) => {
                let end = profile.span().map_or(to, |s| s.1);
                let ago = end.saturating_sub(to) as f64 / 1e9;
                format!("FROZEN {seconds:.1} s, {ago:.0} s ago")
            }
            None => format!("last {seconds:.1} s"),
        };
        let event = match profile.events().len() {
            0 | 1 => head.event.clone(),
            n => {
                let name = profile.events().get(self.query.event).map_or("", |e| &e.name);
                format!("{name} ({} of {n})", self.query.event + 1)
            }
        };
        format!("{when}  {rate:.0}/s  kernel {kernel:.1}%  {event}  {}", head.target)
    }

    /// Line with the current view, subject, zoom and filter.
    fn place_line(&self) -> String {
        let mut text = match self.view {
            ScreenView::Table => self.subject.name().to_owned(),
            ScreenView::Tree => "call tree".to_owned(),
            ScreenView::Flames => "flame graph".to_owned(),
            ScreenView::Code => self.code.as_ref().map_or_else(String::new, |c| c.title.clone()),
        };
        if let Some((_, name)) = &self.zoom {
            text.push_str(&format!(" of {name}"));
        }
        if self.query.hide_kernel {
            text.push_str(", without the kernel");
        }
        if self.query.hide_user {
            text.push_str(", the kernel alone");
        }
        if self.by_off_cpu && self.view != ScreenView::Code {
            text.push_str(", by time off the CPU");
        }
        if !self.filter.is_empty() {
            text.push_str(&format!(", with \"{}\"", self.filter));
        }
        if !self.has_chains && matches!(self.view, ScreenView::Tree | ScreenView::Flames) {
            text.push_str(" (no call chains: start with -g)");
        }
        text.push_str("   ? keys");
        text
    }
}

//! Cells on the terminal: what ratatui's buffers differ in, as escape sequences. Terminals
//! without colours or without UTF-8 get less.

use std::fmt::Write as _;
use std::io;

use kymo_kernel::terminal::RawTerminal;
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};

/// A terminal that is drawn on.
pub(super) struct TerminalBackend {
    pub(super) terminal: RawTerminal,
    colors: bool,
    utf8: bool,
    out: String,
}

impl TerminalBackend {
    pub(super) fn new(terminal: RawTerminal) -> TerminalBackend {
        TerminalBackend { terminal, colors: has_colors(), utf8: has_utf8(), out: String::new() }
    }

    fn style(&mut self, cell: &Cell) {
        self.out.push_str("\x1b[0");
        let modes = [(Modifier::BOLD, ";1"), (Modifier::DIM, ";2"), (Modifier::REVERSED, ";7")];
        for (mode, code) in modes {
            if cell.modifier.contains(mode) {
                self.out.push_str(code);
            }
        }
        if self.colors {
            for (color, base) in [(cell.fg, 30), (cell.bg, 40)] {
                if let Some(number) = number_of(color) {
                    let _ = write!(self.out, ";{}", base + number);
                }
            }
        }
        self.out.push('m');
    }

    fn symbol(&mut self, symbol: &str) {
        // Names come without control characters; what would be one all the same is not sent.
        for c in symbol.chars() {
            match c {
                c if c.is_control() => self.out.push('?'),
                c if !c.is_ascii() && !self.utf8 => self.out.push('?'),
                c => self.out.push(c),
            }
        }
    }
}

/// Number of a color in SGR 30 to 37 and 90 to 97.
fn number_of(color: Color) -> Option<u8> {
    Some(match color {
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::LightRed => 61,
        _ => return None,
    })
}

/// Whether colors are wanted, by the usual words of the environment.
fn has_colors() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let term = std::env::var("TERM").unwrap_or_default();
    !no_color && !term.starts_with("vt1") && !term.starts_with("vt2")
}

/// Whether the terminal is set to UTF-8.
fn has_utf8() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let set = names.iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    let set = set.unwrap_or_default().to_lowercase();
    set.contains("utf-8") || set.contains("utf8")
}

impl Backend for TerminalBackend {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut last: Option<&Cell> = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                let _ = write!(self.out, "\x1b[{};{}H", y + 1, x + 1);
            }
            let same =
                last.is_some_and(|l| (l.fg, l.bg, l.modifier) == (cell.fg, cell.bg, cell.modifier));
            if !same {
                self.style(cell);
            }
            self.symbol(cell.symbol());
            last = Some(cell);
            // A wide character leaves the cursor elsewhere.
            next = cell.symbol().is_ascii().then(|| (x.saturating_add(1), y));
        }
        if last.is_some() {
            self.out.push_str("\x1b[0m");
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.out.push_str("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.out.push_str("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        let _ = write!(self.out, "\x1b[{};{}H", y.saturating_add(1), x.saturating_add(1));
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.out.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _region: ClearType) -> io::Result<()> {
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        let (width, height) = self.terminal.size()?;
        Ok(Size { width, height })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.terminal.write(self.out.as_bytes())?;
        self.out.clear();
        Ok(())
    }
}

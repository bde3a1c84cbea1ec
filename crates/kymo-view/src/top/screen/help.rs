//! The page of keys.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use super::draw::{ScreenStyle, write};

const KEYS: [(&str, &str); 20] = [
    ("q", "quit"),
    ("up down PgUp PgDn", "choose a row; k j too"),
    ("/", "only rows with a text; Enter keeps it, Esc drops it"),
    ("Enter", "go into it: task, code, open, zoom"),
    ("Esc", "back"),
    ("1", "functions"),
    ("2", "threads"),
    ("3", "processes"),
    ("4", "lines of source"),
    ("5", "binaries"),
    ("t", "call tree (-g)"),
    ("f", "flame graph (-g)"),
    ("a", "code of the chosen function"),
    ("s", "weigh functions with or without callees"),
    ("o", "order and trees by time off the CPU (--off-cpu)"),
    ("K U", "leave out the kernel, programs"),
    ("space", "freeze, go on"),
    ("[ ]", "step back and on in time; , . too"),
    ("+ -", "longer, shorter time"),
    ("w e", "save what is shown as perf.data; next event"),
];

pub(super) fn draw(buffer: &mut Buffer, area: Rect) {
    write(buffer, area, (0, 0), "kymo top: keys (any key closes this)", ScreenStyle::TITLE);
    // Two columns where one is too short.
    let rows = usize::from(area.height.saturating_sub(1)).max(1);
    let columns = KEYS.len().div_ceil(rows).min(3);
    let width = usize::from(area.width) / columns.max(1);
    for (n, (key, text)) in KEYS.iter().enumerate() {
        let (column, row) = (n / rows, n % rows);
        if column >= columns {
            break;
        }
        let line: String = format!("{key:<18} {text}").chars().take(width.max(1)).collect();
        let x = (column * width) as u16;
        write(buffer, area, (x, row as u16 + 1), &line, ScreenStyle::PLAIN);
    }
}

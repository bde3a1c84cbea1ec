//! Lines as the kernel's own `trace` file has them, in colour on a terminal.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use kymo_format::{EntryHead, EntryStyle, RenderContext, flag_letters};
use kymo_kernel::ftrace::TraceDir;
use kymo_kernel::system::SystemRoot;

use super::names::{Formats, Tasks, kernel};
use kymo_events::payload::KernelNames;

/// Renders events to text.
pub(super) struct Text {
    style: EntryStyle,
    /// How many flag letters the header announces.
    flags: usize,
    nanoseconds: bool,
    colour: bool,
    names: KernelNames,
}

const TASK: Style = AnsiColor::Cyan.on_default();
const EVENT: Style = AnsiColor::Yellow.on_default().bold();
const LOST: Style = AnsiColor::Red.on_default().bold();

impl Text {
    pub(super) fn new(dir: &TraceDir, header: &str, colour: bool) -> anyhow::Result<Text> {
        let release = SystemRoot::machine().kernel_release().unwrap_or_default();
        let clock = dir.clocks()?.current;
        Ok(Text {
            style: EntryStyle::of_release(&release),
            flags: flag_columns(header),
            // These two count something else than time.
            nanoseconds: !matches!(clock.as_str(), "counter" | "x86-tsc"),
            colour,
            names: kernel(dir),
        })
    }

    /// Letters between CPU and time.
    pub(super) fn flags(&self) -> usize {
        self.flags
    }

    /// Appends an event; false if its format is not known any more.
    pub(super) fn event(
        &self,
        tasks: &mut Tasks,
        formats: &mut Formats,
        (cpu, time, payload): (u32, u64, &[u8]),
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(format) = formats.of(payload) else { return false };
        let [_, _, flags, preempt, a, b, c, d, ..] = *payload else { return false };
        let tid = i32::from_ne_bytes([a, b, c, d]);
        let letters = flag_letters(flags, preempt);
        let start = out.len();
        let head = EntryHead {
            tid,
            tgid: tasks.tgid(tid),
            comm: tasks.comm(tid),
            cpu,
            flags: letters.get(..self.flags).filter(|f| !f.is_empty()),
            time,
            nanoseconds: self.nanoseconds,
        };
        head.write(out);
        let middle = out.len();
        let ctx = RenderContext { symbols: &self.names, ..RenderContext::default() };
        format.write_entry(out, payload, &ctx, self.style);
        if self.colour {
            paint(out, start, middle);
        }
        true
    }

    /// The line that stands where events are missing, as `trace_pipe` has it.
    pub(super) fn lost(&self, cpu: u32, count: Option<u64>, out: &mut Vec<u8>) {
        let style = if self.colour { LOST } else { Style::new() };
        let _ = match count {
            Some(n) => writeln!(out, "{style}CPU:{cpu} [LOST {n} EVENTS]{style:#}"),
            None => writeln!(out, "{style}CPU:{cpu} [LOST EVENTS]{style:#}"),
        };
    }
}

/// The header has one bar for each flag letter: `CPU#  |||||  TIMESTAMP`.
fn flag_columns(header: &str) -> usize {
    let line = header.lines().find(|l| l.contains("CPU#") && l.contains("TIMESTAMP"));
    line.map_or(0, |l| l.bytes().filter(|b| *b == b'|').count()).min(5)
}

/// Colours the task before `middle` and the event's name behind it.
fn paint(out: &mut Vec<u8>, start: usize, middle: usize) {
    let line = out.split_off(start);
    let (head, rest) = line.split_at_checked(middle - start).unwrap_or((&line, &[]));
    let task = head.windows(2).position(|w| w == b" [").unwrap_or(0);
    let (task, head) = head.split_at_checked(task).unwrap_or((head, &[]));
    let name = memchr::memchr2(b':', b'(', rest).unwrap_or(0);
    let (name, rest) = rest.split_at_checked(name).unwrap_or((&[], rest));
    for (style, part) in [(TASK, task), (Style::new(), head), (EVENT, name), (Style::new(), rest)] {
        let _ = write!(out, "{style}");
        out.extend_from_slice(part);
        let _ = write!(out, "{style:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_says_how_many_letters_there_are() {
        let new = "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n";
        let old = "#           TASK-PID   CPU#  ||||    TIMESTAMP  FUNCTION\n";
        let none = "#           TASK-PID    CPU#    TIMESTAMP  FUNCTION\n";
        assert_eq!([new, old, none].map(flag_columns), [5, 4, 0]);
    }

    #[test]
    fn colours_change_no_letter() {
        let line = b"   ls-1     [000] d..1. 1.2: sched_switch: a=1\n";
        let mut out = line.to_vec();
        paint(&mut out, 0, 29);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("\u{1b}[1m\u{1b}[33msched_switch\u{1b}[0m: a=1"), "{text:?}");
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(plain.as_bytes(), line);
    }
}

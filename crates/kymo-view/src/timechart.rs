//! CPUs and tasks over time as one SVG, with a title on each span.

use std::io::{self, Write};

use kymo_analysis::timechart::{Lane, LaneState, Timechart};

/// Height of a lane, and from one to the next.
const HEIGHT: f64 = 16.0;
const STEP: f64 = 20.0;
/// Width of the names beside the lanes.
const NAMES: f64 = 190.0;
/// Lines that mark the time.
const MARKS: u32 = 10;

const STYLE: &str = "text{font:11px sans-serif}.run{fill:#4078c0}.other{fill:#9ab6d9}\
    .runnable{fill:#e8a33d}.blocked{fill:#eceff3}.lane{fill:#f7f8fa}\
    .wake{stroke:#2f8f4e;stroke-width:0.6}.mark{stroke:#d0d4da;stroke-width:0.5}";

/// Drawing of a chart of this width.
pub struct TimechartDrawing<'a> {
    /// Chart to draw.
    pub chart: &'a Timechart,
    /// Width of the lanes, in pixels.
    pub width: f64,
    /// Name of the recording.
    pub recording: &'a str,
}

impl TimechartDrawing<'_> {
    /// Writes the SVG.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let chart = self.chart;
        let cpus = chart.cpus.len() as f64;
        let height = (cpus + chart.tasks.len() as f64 + 4.0) * STEP;
        let width = NAMES + self.width + 20.0;
        writeln!(
            out,
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" \
             width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n\
             <style>{STYLE}</style>"
        )?;
        let (from, to) = chart.span;
        let length = milliseconds(to.saturating_sub(from));
        let title = format!("{}: {length} from {}", self.recording, seconds(from));
        writeln!(out, "<text x=\"4\" y=\"14\">{}</text>", xml_text(&title))?;
        for mark in 0..=MARKS {
            let share = f64::from(mark) / f64::from(MARKS);
            let x = NAMES + self.width * share;
            let time = milliseconds((to.saturating_sub(from) as f64 * share) as u64);
            writeln!(
                out,
                "<line class=\"mark\" x1=\"{x:.1}\" y1=\"20\" x2=\"{x:.1}\" y2=\"{height:.0}\"/>\
                 <text x=\"{x:.1}\" y=\"32\">{time}</text>"
            )?;
        }
        for (cpu, lane) in chart.cpus.iter().enumerate() {
            self.lane(out, lane, 2.0 + cpu as f64, &format!("CPU {cpu}"))?;
        }
        for (place, task) in chart.tasks.iter().enumerate() {
            let name = format!("{} {}", String::from_utf8_lossy(&task.comm), task.tid);
            self.lane(out, &task.lane, 3.0 + cpus + place as f64, &name)?;
        }
        for wakeup in &chart.wakeups {
            let y = |lane: usize| (3.0 + cpus + lane as f64) * STEP + HEIGHT / 2.0;
            let x = self.x(wakeup.time);
            writeln!(
                out,
                "<line class=\"wake\" x1=\"{x:.2}\" y1=\"{:.1}\" x2=\"{x:.2}\" y2=\"{:.1}\"/>",
                y(wakeup.from),
                y(wakeup.to)
            )?;
        }
        writeln!(out, "</svg>")
    }

    /// Horizontal position of a time.
    fn x(&self, time: u64) -> f64 {
        let (from, to) = self.chart.span;
        let whole = to.saturating_sub(from).max(1) as f64;
        NAMES + time.saturating_sub(from) as f64 / whole * self.width
    }

    fn lane(&self, out: &mut dyn Write, lane: &Lane, row: f64, name: &str) -> io::Result<()> {
        let (y, (from, to)) = (row * STEP, self.chart.span);
        let whole = to.saturating_sub(from).max(1);
        let busy = lane.runtime as f64 * 100.0 / whole as f64;
        writeln!(
            out,
            "<text x=\"4\" y=\"{:.0}\">{}</text><rect class=\"lane\" x=\"{NAMES}\" y=\"{y:.0}\" \
             width=\"{:.0}\" height=\"{HEIGHT}\"><title>{} ran {busy:.1} %</title></rect>",
            y + 12.0,
            xml_text(name),
            self.width,
            xml_text(name)
        )?;
        for span in &lane.spans {
            let (class, what) = match span.state {
                LaneState::Running(Some(place)) => ("run", self.task_name(place)),
                LaneState::Running(None) => ("other", "another task".to_owned()),
                LaneState::Runnable => ("runnable", "waits for a CPU".to_owned()),
                LaneState::Blocked => ("blocked", "blocked".to_owned()),
            };
            let (x, end) = (self.x(span.from), self.x(span.to));
            writeln!(
                out,
                "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.0}\" width=\"{:.2}\" \
                 height=\"{HEIGHT}\"><title>{}: {} at {}</title></rect>",
                end - x,
                xml_text(&what),
                milliseconds(span.to - span.from),
                seconds(span.from)
            )?;
        }
        let parts = lane.short.len().max(1);
        let part = (whole / parts as u64).max(1);
        let width = self.width / parts as f64;
        for (place, sum) in lane.short.iter().enumerate().filter(|(_, sum)| **sum > 0) {
            // As high as the share of the time.
            let high = (HEIGHT * *sum as f64 / part as f64).clamp(1.0, HEIGHT);
            writeln!(
                out,
                "<rect class=\"run\" x=\"{:.2}\" y=\"{:.1}\" width=\"{width:.2}\" \
                 height=\"{high:.1}\"/>",
                NAMES + place as f64 * width,
                y + HEIGHT - high
            )?;
        }
        Ok(())
    }

    fn task_name(&self, place: usize) -> String {
        self.chart.tasks.get(place).map_or_else(String::new, |task| {
            format!("{} {}", String::from_utf8_lossy(&task.comm), task.tid)
        })
    }
}

fn milliseconds(nanos: u64) -> String {
    format!("{:.3} ms", nanos as f64 / 1e6)
}

fn seconds(nanos: u64) -> String {
    format!("{}.{:06} s", nanos / 1_000_000_000, nanos % 1_000_000_000 / 1000)
}

/// Text between tags; XML has no place for control characters.
fn xml_text(text: &str) -> String {
    let text = text.replace(char::is_control, "?");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_text() {
        assert_eq!(xml_text("<a>&\"\u{1b}"), "&lt;a&gt;&amp;&quot;?");
    }
}

//! Warnings about a recording: losses, pauses of the kernel, no samples at all.

use kymo_model::{Note, NoteKind, counted};

use crate::ftrace::TraceSummary;
use crate::options::RecordOptions;
use crate::session::RecordSummary;

/// Largest ring that is recommended, in bytes.
const MAX_RING: u64 = 1 << 30;

impl TraceSummary {
    /// Notes for the ledger: those of the recording, and what was lost.
    pub fn ledger_notes(&self) -> Vec<Note> {
        let mut notes = self.notes.clone();
        if self.lost > 0 {
            let all = self.events + self.lost;
            let share = self.lost as f64 * 100.0 / all as f64;
            let fact =
                format!("{} of {all} events lost ({share:.1}%): the ring was full", self.lost);
            let advice = format!("a larger ring: --buffer-size {}K", self.buffer_kb * 4);
            notes.push(Note::doubt(NoteKind::Lost, fact, Some(advice)));
        }
        notes
    }
}

impl RecordSummary {
    /// Notes for the ledger: those of the session, and what the figures say.
    pub fn ledger_notes(&self, options: &RecordOptions) -> Vec<Note> {
        let mut notes = self.notes.clone();
        if self.lost > 0 {
            let all = self.recorded.saturating_add(self.lost);
            let share = self.lost as f64 * 100.0 / all as f64;
            let ring = larger_ring(self.ring as u64, self.recorded, self.lost);
            notes.push(Note::doubt(
                NoteKind::Lost,
                format!("{} of {all} events lost ({share:.1}%): the ring was full", self.lost),
                Some(format!("a larger ring: -m {ring}")),
            ));
        }
        if self.lost_samples > 0 {
            notes.push(Note::doubt(
                NoteKind::LostSamples,
                format!("{} samples lost before they reached the ring", self.lost_samples),
                None,
            ));
        }
        if self.throttled > 0 {
            notes.push(Note::doubt(
                NoteKind::Throttled,
                format!(
                    "the kernel paused sampling {}: too many interrupts",
                    counted(self.throttled, "time", "times")
                ),
                Some("a lower -F or a larger -c".into()),
            ));
        }
        if self.recorded == 0 && self.lost == 0 {
            notes.push(Note::choice(NoteKind::Empty, self.why_empty(options), None));
        }
        notes
    }

    /// Reason why a recording has no samples.
    fn why_empty(&self, options: &RecordOptions) -> String {
        match options.delay {
            Some(delay) if self.elapsed < delay => {
                format!("no samples: it was over before the {} ms of -D were", delay.as_millis())
            }
            // The kernel opens them and delivers nothing; functions are the exception.
            _ if options
                .events
                .iter()
                .any(|e| e.name.starts_with("ftrace:") && e.name != "ftrace:function") =>
            {
                "no samples: ftrace events reach the ftrace ring only (kymo trace)".into()
            }
            _ => "no samples: none of the events happened".into(),
        }
    }
}

/// A ring that would have held what was lost beside what was not, as -m takes it.
fn larger_ring(ring: u64, recorded: u64, lost: u64) -> String {
    let times = recorded.saturating_add(lost).div_ceil(recorded.max(1)).max(2);
    let bytes = ring.saturating_mul(times).clamp(1 << 12, MAX_RING).next_power_of_two();
    match bytes {
        b if b >= 1 << 20 => format!("{}M", b >> 20),
        b => format!("{}K", b >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_to_try_next_comes_from_the_loss() {
        assert_eq!(larger_ring(4096, 1000, 10), "8K");
        assert_eq!(larger_ring(2 << 20, 1000, 9000), "32M");
        assert_eq!(larger_ring(2 << 20, 0, 9000), "1024M");
    }
}

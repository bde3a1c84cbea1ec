//! Work of CPUs outside tasks: interrupt handlers and softirqs, as spans of each CPU.

use kymo_events::{LayoutId, RecordedEvent};
use rustc_hash::FxHashMap;

use super::span_track::{SpanTrack, TrackSpan};
use crate::kwork::{KworkDecoder, KworkKind, KworkPhase};

/// Most names that are distinguished; the rest is merged.
const MOST_NAMES: usize = 4096;

/// Interrupts and softirqs of one CPU; an interrupt may come upon a softirq.
#[derive(Clone, Debug, Default)]
pub struct CpuWork {
    /// Handlers of interrupts, by number of their name.
    pub interrupts: SpanTrack,
    /// Softirqs, by number of their name.
    pub softirqs: SpanTrack,
    /// Open interrupt handler and softirq: start, its number, number of its name.
    begun: [Option<(u64, u64, u32)>; 2],
}

/// The work of all CPUs while it is read.
#[derive(Debug, Default)]
pub(super) struct WorkTracks {
    pub(super) cpus: Vec<CpuWork>,
    pub(super) names: Vec<String>,
    numbers: FxHashMap<String, u32>,
    decoder: KworkDecoder,
}

impl WorkTracks {
    /// Takes an event of a CPU at a time relative to the start.
    pub(super) fn event(&mut self, event: &RecordedEvent<'_>, now: u64, cpu: u32) {
        let at = cpu as usize;
        if event.lost.is_some()
            && let Some(work) = self.cpus.get_mut(at)
        {
            // The end of what had begun may be lost, and the start of what ends.
            work.begun = [None; 2];
        }
        let Some(decoded) = self.decoder.decode(event) else { return };
        let which = match decoded.kind {
            KworkKind::Irq => 0,
            KworkKind::Softirq => 1,
            KworkKind::Workqueue => return,
        };
        if self.cpus.len() <= at {
            self.cpus.resize_with(at + 1, CpuWork::default);
        }
        let id = decoded.id;
        if decoded.phase == KworkPhase::Entry {
            let name = match decoded.name.is_empty() {
                false => String::from_utf8_lossy(&decoded.name).into_owned(),
                true if which == 1 && self.decoder.softirq_names.is_known() => {
                    self.decoder.softirq_names.text(id)
                }
                true => format!("{} {id}", decoded.kind.name()),
            };
            let name = self.number(name);
            if let Some(work) = self.cpus.get_mut(at) {
                work.begun[which] = Some((now, id, name));
            }
            return;
        }
        let Some(work) = self.cpus.get_mut(at).filter(|_| decoded.phase == KworkPhase::Exit) else {
            return;
        };
        if let Some((from, _, code)) = work.begun[which].take().filter(|b| b.1 == id) {
            let track = if which == 0 { &mut work.interrupts } else { &mut work.softirqs };
            track.push(TrackSpan { from, to: now, code });
        }
    }

    /// Whether events of a layout are of this, if one came before.
    pub(super) fn takes(&self, layout: LayoutId) -> Option<bool> {
        self.decoder.takes(layout)
    }

    fn number(&mut self, name: String) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        if self.names.len() >= MOST_NAMES {
            return MOST_NAMES as u32 - 1;
        }
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }
}

//! Notes for the ledger on what was read: each kind of fact in one place, for all commands.

use std::sync::Arc;

use kymo_files::ctf::read::{Ctf, Times};
use kymo_files::ctf::{ClockOrigin, UNFINISHED};
use kymo_files::perfdata::{PerfData, PerfDataReadStats};
use kymo_files::tracedat::{self, TraceDat};
use kymo_files::{Stats, Timeline, ctf};
use kymo_model::{Note, NoteKind, NoteList, by_number, counted, sampled_tracepoints};

use super::EventSource;
use crate::chain_frames::ChainFacts;
use crate::losses;

/// Statistics of a perf.data.
#[derive(Clone, Debug)]
pub struct PerfSummary {
    /// Its name in messages.
    pub name: String,
    /// Figures of its reader.
    pub stats: PerfDataReadStats,
    notes: Vec<Note>,
}

impl PerfSummary {
    pub(super) fn new(data: &PerfData, stats: PerfDataReadStats) -> PerfSummary {
        let notes = notes_on_perf_data(data, &stats);
        PerfSummary { name: data.name().to_owned(), stats, notes }
    }

    /// Summary of rings that were read while they were written.
    pub(crate) fn of_rings(stats: PerfDataReadStats) -> PerfSummary {
        let mut notes: Vec<Note> = losses::note_live(&stats).into_iter().collect();
        notes.extend(notes_on_records(&stats));
        PerfSummary { name: "perf rings".to_owned(), stats, notes }
    }
}

/// Statistics of all recordings.
#[derive(Clone, Debug, Default)]
pub struct ReadSummary {
    /// Statistics of each perf.data.
    pub perf: Vec<PerfSummary>,
    /// Statistics of trace.dat and CTF.
    pub timeline: Option<Stats>,
    /// Facts about the resolution of each perf.data's call chains.
    pub chains: Vec<Arc<ChainFacts>>,
    pub(super) notes: Vec<Note>,
}

impl ReadSummary {
    pub(crate) fn add_samples(&mut self, (notes, chains): (Vec<Note>, ChainFacts)) {
        self.notes.extend(notes);
        self.chains.push(Arc::new(chains));
    }

    pub(super) fn add(&mut self, notes: Vec<Note>) {
        self.notes.extend(notes);
    }

    /// Whether anything could not be read.
    pub fn is_damaged(&self, source: &EventSource) -> bool {
        self.perf.iter().any(|p| p.stats.damaged.is_some())
            || source
                .timeline()
                .zip(self.timeline.as_ref())
                .is_some_and(|(timeline, stats)| is_damaged(timeline, stats))
    }

    /// The notes on what was read; where there are several recordings, each with the name
    /// of its own.
    pub fn notes(&self, source: &EventSource) -> Vec<Note> {
        self.notes_of(Some(source))
    }

    /// The notes on what was read of rings while they were written.
    pub fn live_notes(&self) -> Vec<Note> {
        self.notes_of(None)
    }

    fn notes_of(&self, source: Option<&EventSource>) -> Vec<Note> {
        let perf_count = source.map_or(0, EventSource::perf_count);
        let timeline = source.and_then(EventSource::timeline);
        let several = perf_count + usize::from(timeline.is_some()) > 1;
        let mut notes: Vec<Note> = Vec::new();
        let mut add = |note: Note| {
            if !notes.contains(&note) {
                notes.push(note);
            }
        };
        for p in &self.perf {
            for note in &p.notes {
                add(named(note.clone(), &p.name, several));
            }
            if let Some(damage) = &p.stats.damaged {
                let note = Note::doubt(NoteKind::Damaged, damage.to_string(), None);
                add(named(note, &p.name, several));
            }
        }
        if let Some((timeline, stats)) = timeline.zip(self.timeline.as_ref()) {
            notes_on_timeline(timeline, stats).into_iter().for_each(&mut add);
        }
        let late = source.map_or(0, |source| source.losses.late());
        if late > 0 {
            let fact = format!(
                "{} of events became known after later events of other CPUs were counted: times across them may count as complete",
                counted(late, "loss", "losses")
            );
            add(Note::doubt(NoteKind::Lost, fact, None));
        }
        self.notes.iter().cloned().for_each(&mut add);
        source.into_iter().flat_map(EventSource::found_notes).for_each(&mut add);
        if several && perf_count > 0 {
            let fact = "the recordings are assumed to be from one boot of the machine";
            add(Note::choice(NoteKind::Clock, fact, None));
        }
        notes
    }
}

fn named(note: Note, name: &str, several: bool) -> Note {
    if several { Note { fact: format!("{name}: {}", note.fact), ..note } } else { note }
}

/// Notes on what can make a result of a perf.data wrong, without damage, which the commands report
/// as they end.
pub fn notes_on_perf_data(data: &PerfData, s: &PerfDataReadStats) -> Vec<Note> {
    let mut notes = Vec::new();
    notes.extend(losses::note(s, &data.features().cmdline));
    notes.extend(sampled_tracepoints(data.events().iter().map(|e| (&*e.name, &e.attr))));
    notes.extend(notes_on_records(s));
    let damaged = |note: &String| Note::doubt(NoteKind::Damaged, note.clone(), None);
    notes.extend(data.notes().iter().map(damaged));
    notes
}

/// Notes on records from any source, without losses.
fn notes_on_records(s: &PerfDataReadStats) -> Vec<Note> {
    let mut notes = NoteList::default();
    if s.throttled > 0 {
        let fact = format!("sampling was throttled {}", counted(s.throttled, "time", "times"));
        notes.doubt(NoteKind::Throttled, fact, Some("record at a lower frequency: -F"));
    }
    for (kind, n) in &s.unknown_kinds {
        let fact =
            format!("{} of unknown kind {kind} passed over", counted(*n, "record", "records"));
        notes.doubt(NoteKind::Unknown, fact, None);
    }
    notes.counted(
        s.unknown_ids,
        NoteKind::Unknown,
        "sample of no known event",
        "samples of no known event",
    );
    notes.counted(s.malformed, NoteKind::Malformed, "record is too short", "records are too short");
    if s.cut_compressed > 0 {
        let n = s.cut_compressed;
        let fact = format!(
            "the compressed data ends {n} bytes into a record, as perf record -z at times \
             leaves it: the last event is missing, those before are complete"
        );
        notes.doubt(NoteKind::Cut, fact, None);
    }
    notes.counted(
        s.out_of_order,
        NoteKind::Order,
        "event is out of order",
        "events are out of order",
    );
    if s.forced_flushes > 0 {
        let fact =
            format!("the reorder window overflowed {}", counted(s.forced_flushes, "time", "times"));
        notes.doubt(NoteKind::Order, fact, None);
    }
    notes.counted(s.missing_user_stacks, NoteKind::Stacks, "sample lacks the user part of its stack: the kernel did not record it on the return to user space", "samples lack the user part of their stack: the kernel did not record it on the return to user space");
    if s.unfinished {
        notes.0.push(note_unfinished());
    }
    notes.extend(notes_on_trace_data(s));
    notes.0
}

/// Note on a perf.data that its recorder did not finish.
pub fn note_unfinished() -> Note {
    let fact = "the recorder did not finish the file: its end is missing";
    Note::doubt(NoteKind::Unfinished, fact, None)
}

/// Notes on the trace data of hardware (AUX area), which are not decoded.
pub fn notes_on_trace_data(s: &PerfDataReadStats) -> Vec<Note> {
    let mut notes = Vec::new();
    let what = s.aux_name();
    if s.aux_bytes > 0 || s.aux_records > 0 {
        let fact = format!(
            "{} bytes of {what} are not decoded: their contents are not shown",
            s.aux_bytes
        );
        let advice = Some("perf script --itrace decodes them".to_owned());
        notes.push(Note::doubt(NoteKind::NotCounted, fact, advice));
    }
    if s.aux_truncated > 0 {
        let records = counted(s.aux_records, "piece", "pieces");
        let fact = format!(
            "{} of {records} of {what} were truncated: the buffer was full",
            s.aux_truncated
        );
        let advice = Some("record with a larger buffer: -m ,PAGES".to_owned());
        notes.push(Note::doubt(NoteKind::Lost, fact, advice));
    }
    if s.aux_errors > 0 {
        let fact = counted(
            s.aux_errors,
            "error in trace data was met while recording",
            "errors in trace data were met while recording",
        );
        notes.push(Note::doubt(NoteKind::NotCounted, fact, None));
    }
    notes
}

/// Notes that grow; the same one twice is kept once.
#[derive(Default)]
struct DistinctNotes(Vec<Note>);

impl DistinctNotes {
    fn note(&mut self, kind: NoteKind, fact: impl Into<String>, advice: Option<String>) {
        self.push(Note::doubt(kind, fact, advice));
    }

    fn tell(&mut self, kind: NoteKind, fact: impl Into<String>, advice: Option<String>) {
        self.push(Note::choice(kind, fact, advice));
    }

    fn push(&mut self, note: Note) {
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }
}

/// Notes on what can make a result of the recordings wrong.
pub fn notes_on_timeline(timeline: &Timeline, stats: &Stats) -> Vec<Note> {
    let mut all = DistinctNotes::default();
    let several = timeline.kernels().len() + usize::from(timeline.programs().is_some()) > 1;
    let mut add = |name: &str, notes: Vec<Note>| {
        for note in &notes {
            let fact = if several { format!("{name}: {}", note.fact) } else { note.fact.clone() };
            all.push(Note { fact, ..note.clone() });
        }
    };
    for (data, stats) in timeline.kernels().iter().zip(&stats.kernels) {
        add(data.name(), notes_on_trace_dat(data, stats));
    }
    if let (Some(programs), Some(stats)) = (timeline.programs(), &stats.programs) {
        add(programs.name(), notes_on_ctf(programs, stats));
    }
    for what in timeline.left_out() {
        all.note(NoteKind::Damaged, format!("left out: {what}"), None);
    }
    agreement(timeline, &mut all);
    if timeline.undoes_corrections() {
        let fact = "times of a trace.dat that asks for corrections are shown without them";
        all.tell(NoteKind::Clock, fact, None);
    }
    if timeline.kernels().len() > 1 {
        let fact = "several kernel recordings are assumed to be from one boot of the machine: a trace.dat does not identify it";
        all.tell(NoteKind::Clock, fact, None);
    }
    if stats.apart {
        let fact = "the kernel's events and those of programs do not overlap in time: are they of \
                    one run and one start of the machine?";
        all.note(NoteKind::Clock, fact, None);
    }
    all.0
}

/// Notes on the precision of the order between events of the kernel and of programs.
fn agreement(timeline: &Timeline, ledger: &mut DistinctNotes) {
    let Some(a) = timeline.agreement() else { return };
    if a.readings == 0 {
        let fact = "times of programs are those of CLOCK_MONOTONIC, as their traces call it; the \
                    kernel's are, too";
        return ledger.tell(NoteKind::Clock, fact, None);
    }
    // Both clocks count whole nanoseconds.
    let error = a.error.saturating_add(1);
    let checked = match a.checked {
        0 => "by more if the kernel corrected its clock meanwhile".to_owned(),
        n => format!("{n} of them extrapolated from the others"),
    };
    let readings = counted(a.readings as u64, "reading", "readings");
    let fact = format!(
        "times of programs and of the kernel agree within {error} ns ({readings} of both clocks, \
         {checked})"
    );
    ledger.tell(NoteKind::Clock, fact, None);
    if a.ignored > 0 {
        let fact = counted(
            a.ignored,
            "reading of the clocks was of others, and left out",
            "readings of the clocks were of others, and left out",
        );
        ledger.tell(NoteKind::Clock, fact, None);
    }
}

/// Whether anything could not be read.
pub fn is_damaged(timeline: &Timeline, stats: &Stats) -> bool {
    let mut kernels = timeline.kernels().iter().zip(&stats.kernels);
    let mut programs = timeline.programs().into_iter().zip(&stats.programs);
    kernels.any(|(data, s)| is_trace_dat_damaged(data, s))
        || programs.any(|(traces, s)| is_ctf_damaged(traces, s))
        || !timeline.left_out().is_empty()
}

/// Notes on what can make a result of the recording wrong.
pub fn notes_on_trace_dat(data: &TraceDat, s: &tracedat::TraceDatReadStats) -> Vec<Note> {
    let mut l = DistinctNotes::default();
    let more = || Some("record with larger rings: kymo trace --buffer-size".to_owned());
    // Pages may say no more than that something is missing before them; the kernel's counters,
    // where the recorder kept them, know how much it was in all.
    let total = data.options().lost_by_counters().filter(|total| *total > s.lost);
    let is_flight_recorder = data.options().is_flight_recorder();
    let dropped = data.options().dropped_by_counters().unwrap_or(0);
    if is_flight_recorder && s.lost_before > 0 && s.lost_before == s.lost_places {
        // The counters go on while the ring is read.
        let fact = "events before the first ones of a CPU were overwritten";
        let advice = "to keep more: kymo session create --buffer-size".to_owned();
        l.tell(NoteKind::Overwritten, fact, Some(advice));
    } else if let Some(total) = total.filter(|_| s.lost_unknown > 0) {
        let fact = lost_in(total, s.lost_places);
        l.note(NoteKind::Lost, fact, more());
    } else {
        if s.lost > 0 {
            let places = s.lost_places - s.lost_unknown;
            l.note(NoteKind::Lost, lost_in(s.lost, places), more());
        }
        if s.lost_unknown > 0 {
            let n = s.lost_unknown;
            let fact = format!("events lost in {}, number unknown", counted(n, "place", "places"));
            l.note(NoteKind::Lost, fact, more());
        }
        if dropped > 0 && s.lost_places == 0 {
            let fact = counted(
                dropped,
                "event found the ring full, which keeps the oldest",
                "events found the ring full, which keeps the oldest",
            );
            l.note(NoteKind::Lost, fact, more());
        }
    }
    for d in data.damage() {
        l.note(NoteKind::Damaged, d.to_string(), None);
    }
    for d in &s.damaged {
        l.note(NoteKind::Damaged, d.to_string(), None);
    }
    let more = s.damaged_places.saturating_sub(s.damaged.len() as u64);
    if more > 0 {
        l.note(NoteKind::Damaged, counted(more, "more place", "more places"), None);
    }
    if data.is_growing() {
        let fact = "the recorder did not finish the file: it is at work or was killed";
        l.note(NoteKind::Unfinished, fact, None);
    }
    if data.options().time_shift.is_some() {
        let fact = "this is a guest's recording: its times are the guest's, not the host's";
        l.tell(NoteKind::Clock, fact, None);
    }
    l.0
}

fn lost_in(events: u64, places: u64) -> String {
    let places = counted(places, "place", "places");
    format!("{} lost in {places}", counted(events, "event", "events"))
}

/// Whether anything of the file could not be read.
pub fn is_trace_dat_damaged(data: &TraceDat, s: &tracedat::TraceDatReadStats) -> bool {
    s.damaged_places > 0 || !data.damage().is_empty()
}

/// Notes on what can make a result of the traces wrong.
pub fn notes_on_ctf(ctf: &Ctf, s: &ctf::read::CtfReadStats) -> Vec<Note> {
    let mut l = DistinctNotes::default();
    let more = || Some("record with larger or more sub-buffers".to_owned());
    let unfinished = ctf.traces().iter().filter(|t| t.metadata().env(UNFINISHED).is_some()).count();
    if unfinished > 0 {
        let what = counted(unfinished as u64, "trace", "traces");
        let fact = format!(
            "the recorder did not finish {what}: it is at work, was killed, or its disk was full"
        );
        l.note(NoteKind::Unfinished, fact, None);
    }
    if s.lost > 0 {
        let (n, places) = (s.lost, s.lost_places);
        l.note(
            NoteKind::Lost,
            format!(
                "{} discarded by the tracer in {}",
                counted(n, "event", "events"),
                counted(places, "place", "places")
            ),
            more(),
        );
    }
    if s.lost_at_start > 0 {
        let fact = counted(
            s.lost_at_start,
            "event had been discarded when the first packets ended, perhaps before the trace begins",
            "events had been discarded when the first packets ended, perhaps before the trace begins",
        );
        l.note(NoteKind::Lost, fact, more());
    }
    if s.lost_packets > 0 {
        let (n, places) = (s.lost_packets, s.lost_packet_places);
        let fact = format!(
            "{} missing in {}, with all {} events",
            counted(n, "packet is", "packets are"),
            counted(places, "place", "places"),
            by_number(n, "its", "their")
        );
        l.note(NoteKind::Lost, fact, more());
    }
    if s.out_of_order > 0 {
        let fact = counted(
            s.out_of_order,
            "event is older than the one before it",
            "events are older than the one before them",
        );
        l.note(NoteKind::Order, fact, None);
    }
    for d in ctf.damage() {
        l.note(NoteKind::Damaged, d.clone(), None);
    }
    for d in &s.damaged {
        l.note(NoteKind::Damaged, d.to_string(), None);
    }
    let more = s.damaged_places.saturating_sub(s.damaged.len() as u64);
    if more > 0 {
        l.note(NoteKind::Damaged, counted(more, "more place", "more places"), None);
    }
    if s.foreign_packets > 0 {
        let fact = counted(
            s.foreign_packets,
            "packet has a different uuid than the metadata, which are used anyway",
            "packets have a different uuid than the metadata, which are used anyway",
        );
        l.tell(NoteKind::Metadata, fact, None);
    }
    for remark in ctf.remarks() {
        l.tell(NoteKind::Metadata, remark, None);
    }
    if ctf.times() == Times::Real && ctf.traces().len() > 1 {
        let clocks = || ctf.traces().iter().filter_map(|t| t.clock());
        let times = if clocks().all(|clock| clock.origin == ClockOrigin::UnixEpoch) {
            "real time"
        } else {
            "counted from the origin of their clocks"
        };
        let fact = format!(
            "the traces have clocks of their own: times are {times}, as good as each clock's offset"
        );
        l.tell(NoteKind::Clock, fact, None);
    }
    if ctf.traces().iter().any(|t| t.clock().is_none()) {
        let fact = "a trace has no clock: its times are the numbers in it, if any";
        l.tell(NoteKind::Clock, fact, None);
    }
    l.0
}

/// Whether anything of the traces could not be read.
pub fn is_ctf_damaged(ctf: &Ctf, s: &ctf::read::CtfReadStats) -> bool {
    s.damaged_places > 0 || !ctf.damage().is_empty()
}

//! Losses of a run: entries, records, reads, texts, each with the line that lost it.

use kymo_bpf::{CompiledProgram, ErrorKind, MapDefinition, MapPurpose};
use kymo_kernel::bpf::{BpfProgram, ProgramInfo};
use kymo_model::{Note, NoteKind, counted};

use crate::bytes::u64_at;
use crate::maps::ProgramMaps;

/// Records that did not fit the ring, and packets that did not fit theirs.
pub(crate) fn ring_drops(program: &CompiledProgram, maps: &ProgramMaps) -> u64 {
    let counts = site_counts(program, maps);
    let sites = program.error_sites.iter().zip(counts);
    let is_full =
        |kind: &ErrorKind| matches!(kind, ErrorKind::RingFull | ErrorKind::PacketRingFull);
    sites.filter(|(site, _)| is_full(&site.kind)).map(|(_, count)| count).sum()
}

/// Notes for the ledger.
pub(crate) fn loss_notes(
    program: &CompiledProgram,
    maps: &ProgramMaps,
    loaded: &[(String, BpfProgram)],
) -> Vec<Note> {
    let counts = site_counts(program, maps);
    // A line may lose in several places, which the notes do not distinguish.
    let mut lines: Vec<(u32, &ErrorKind, u64)> = Vec::new();
    for (site, count) in program.error_sites.iter().zip(counts).filter(|(_, count)| *count > 0) {
        let line = site.position.line;
        match lines.iter_mut().find(|(at, kind, _)| *at == line && **kind == site.kind) {
            Some((.., sum)) => *sum += count,
            None => lines.push((line, &site.kind, count)),
        }
    }
    let note = |(line, kind, count)| {
        let (kind, fact, advice) = describe(program, kind, count);
        let place = if line > 0 { format!("line {line}: ") } else { String::new() };
        Note::doubt(kind, format!("{place}{fact}"), advice)
    };
    let mut notes: Vec<Note> = lines.into_iter().map(note).collect();
    for (name, program) in loaded {
        let missed = ProgramInfo::of(program).map_or(0, |info| info.recursion_misses);
        if missed > 0 {
            let fact = format!("{name}: {missed} events while the program ran on the same CPU");
            notes.push(Note::doubt(NoteKind::Lost, fact, None));
        }
    }
    notes
}

pub(crate) fn site_counts(program: &CompiledProgram, maps: &ProgramMaps) -> Vec<u64> {
    let is_counters = |map: &MapDefinition| map.purpose == MapPurpose::ErrorCounters;
    let mut counts = vec![0u64; program.error_sites.len()];
    let Some(map) = program.maps.iter().position(is_counters) else { return counts };
    for (key, value) in maps.entries(map).unwrap_or_default() {
        let sum = value.chunks_exact(8).map(|cpu| u64_at(cpu, 0)).sum();
        if let Some(count) = counts.get_mut(u64_at(&key, 0) as usize) {
            *count = sum;
        }
    }
    counts
}

pub(crate) fn describe(
    program: &CompiledProgram,
    kind: &ErrorKind,
    count: u64,
) -> (NoteKind, String, Option<String>) {
    let map_of = |map: &usize| program.maps.get(*map);
    let name = |map: &usize| map_of(map).map_or("?", |map| map.name.as_str());
    match kind {
        ErrorKind::MapFull { map } => {
            let most = map_of(map).map_or(0, |map| map.max_entries);
            let fact = format!(
                "{} of {} did not fit: it holds {}",
                counted(count, "update", "updates"),
                name(map),
                counted(most.into(), "entry", "entries")
            );
            (NoteKind::Lost, fact, Some("raise max_map_keys in the config block".into()))
        }
        ErrorKind::RingFull => (
            NoteKind::Lost,
            counted(count, "record did not fit the ring", "records did not fit the ring"),
            Some("raise perf_rb_pages in the config block, or print less".into()),
        ),
        ErrorKind::PacketRingFull => (
            NoteKind::Lost,
            counted(
                count,
                "packet did not fit the ring of its CPU",
                "packets did not fit the ring of their CPU",
            ),
            Some("raise perf_rb_pages in the config block".into()),
        ),
        ErrorKind::PacketCut => (
            NoteKind::Cut,
            counted(
                count,
                "packet was cut: a record of a perf ring has no room for it",
                "packets were cut: a record of a perf ring has no room for them",
            ),
            None,
        ),
        ErrorKind::ReadFailed => (
            NoteKind::Unread,
            counted(
                count,
                "read of memory failed: 0 or empty",
                "reads of memory failed: 0 or empty",
            ),
            None,
        ),
        ErrorKind::StackLost => (
            NoteKind::Chains,
            counted(count, "stack was not stored", "stacks were not stored"),
            None,
        ),
        ErrorKind::TextCut => (
            NoteKind::Cut,
            counted(count, "text was longer than its room", "texts were longer than their room"),
            Some("raise max_strlen in the config block".into()),
        ),
        ErrorKind::NoSuchKey { map } => (
            NoteKind::Unmatched,
            format!(
                "{} that {} has not",
                counted(count, "delete of a key", "deletes of keys"),
                name(map)
            ),
            None,
        ),
        ErrorKind::ScratchBusy => (
            NoteKind::Lost,
            counted(
                count,
                "event came while the working memory of its CPU was in use",
                "events came while the working memory of their CPU was in use",
            ),
            None,
        ),
        ErrorKind::DivisionByZero => (
            NoteKind::Malformed,
            counted(count, "division by zero gave 1", "divisions by zero gave 1"),
            None,
        ),
        ErrorKind::IndexOutOfBounds => (
            NoteKind::Malformed,
            counted(
                count,
                "index was out of the bounds of its array; the element is shown as 0",
                "indices were out of the bounds of their array; the elements are shown as 0",
            ),
            None,
        ),
        ErrorKind::HelperFailed(helper) => {
            (NoteKind::Refused, format!("{helper} failed {count} times"), None)
        }
        ErrorKind::LoopCut => {
            (NoteKind::Cut, format!("{count} loops reached the kernel's limit"), None)
        }
    }
}

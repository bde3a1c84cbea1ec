//! Wake-ups of recorded tasks by other tasks, and switches from other tasks to recorded ones. They
//! are events of the whole machine in rings of their own (`Terms::system_wide`), without copies of
//! stacks. Events in recorded tasks are left out: their own events have them, with stacks.

use kymo_files::perfdata::write::TracingBlob;
use kymo_format::{EventFormat, Field};
use kymo_model::{Endian, LeadingFields, RawRecord, RecordHeader, RecordKind, Sideband};
use rustc_hash::FxHashMap;

use crate::open::RingSet;

/// Chooses among the records of the rings apart.
#[derive(Debug)]
pub(super) struct ForeignWakeups {
    fields: LeadingFields,
    /// Number of each event, and the field of its payload that names the task that counts.
    task_fields: Vec<(u16, Field)>,
    /// Threads that are recorded, with the times from and to which their own events tell.
    tasks: FxHashMap<u32, (u64, u64)>,
    /// Records that wait until the births before them were seen.
    held: Vec<u8>,
}

impl ForeignWakeups {
    /// For a recording of `tids`; none where no ring is apart.
    pub(super) fn new(
        rings: &RingSet,
        tracing: Option<&TracingBlob>,
        tids: &[u32],
    ) -> Option<ForeignWakeups> {
        let apart = rings.set.events.iter().filter(|e| e.planned.spec.terms.system_wide);
        let mut sample_type = None;
        let mut task_fields = Vec::new();
        for event in apart {
            sample_type.get_or_insert(event.planned.attr.sample_type);
            let (system, name) = event.planned.spec.tracepoint.as_ref()?;
            let (_, formats) = tracing?.systems.iter().find(|(s, _)| s == system)?;
            let mut formats = formats.iter().filter_map(|text| std::str::from_utf8(text).ok());
            let format =
                formats.find_map(|f| EventFormat::parse(f).ok().filter(|f| f.name == *name))?;
            let field = if name == "sched_switch" { "next_pid" } else { "pid" };
            task_fields.push((u16::try_from(format.id).ok()?, format.field(field)?.clone()));
        }
        Some(ForeignWakeups {
            fields: LeadingFields::new(sample_type?),
            task_fields,
            tasks: tids.iter().map(|tid| (*tid, (0, u64::MAX))).collect(),
            held: Vec::new(),
        })
    }

    /// Takes what a ring apart holds, before the other rings are read.
    pub(super) fn hold(&mut self, first: &[u8], second: &[u8]) {
        self.held.extend_from_slice(first);
        self.held.extend_from_slice(second);
    }

    /// Sees births and ends of recorded tasks in what another ring holds.
    pub(super) fn follow(&mut self, first: &[u8], second: &[u8]) {
        let rest = self.follow_records(first);
        if rest.is_empty() {
            self.follow_records(second);
            return;
        }
        // A record lies across both.
        let mut across = rest.to_vec();
        across.extend_from_slice(
            second.get(..second.len().min(usize::from(u16::MAX))).unwrap_or(second),
        );
        let Some(size) = size_of(&across) else { return };
        self.follow_records(across.get(..size).unwrap_or(&[]));
        self.follow_records(second.get(size - rest.len()..).unwrap_or(&[]));
    }

    /// Gives what is left when no record is complete any more.
    fn follow_records<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut rest = bytes;
        while let Some((header, body, next)) = split_record(rest) {
            rest = next;
            if !matches!(header.kind, RecordKind::FORK | RecordKind::EXIT) {
                continue;
            }
            let raw =
                RawRecord { kind: header.kind, misc: header.misc, body, endian: Endian::NATIVE };
            match Sideband::parse(&raw) {
                Ok(Some(Sideband::Fork(task))) => self.born(task.tid, task.time),
                Ok(Some(Sideband::Exit(task))) => self.ended(task.tid, task.time),
                _ => {}
            }
        }
        rest
    }

    /// The rings of CPUs are read one after the other: the end of a thread may be seen before its
    /// birth on another CPU.
    fn born(&mut self, tid: u32, time: u64) {
        let task = self.tasks.entry(tid).or_insert((time, u64::MAX));
        let is_end_known = task.1 != u64::MAX && task.1 > time;
        *task = (time, if is_end_known { task.1 } else { u64::MAX });
    }

    /// The kernel ends a thread's events before it wakes who waits for its end.
    fn ended(&mut self, tid: u32, time: u64) {
        let task = self.tasks.entry(tid).or_insert((0, time));
        if task.0 <= time {
            task.1 = time;
        }
    }

    /// Hands over the held records that count.
    pub(super) fn release<E>(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_slice();
        while let Some((header, body, next)) = split_record(rest) {
            let record = rest.get(..rest.len() - next.len()).unwrap_or(rest);
            rest = next;
            if header.kind != RecordKind::SAMPLE || self.counts(body).unwrap_or(true) {
                write(record)?;
            }
        }
        self.held = held;
        self.held.clear();
        Ok(())
    }

    /// Whether a recorded task is woken by, or follows, a task that is not recorded.
    fn counts(&self, body: &[u8]) -> Option<bool> {
        let endian = Endian::NATIVE;
        let by = endian.u32_at(body, self.fields.tid? + 4)?;
        let time = endian.u64_at(body, self.fields.time?)?;
        let chain = endian.u64_at(body, self.fields.end)?;
        let raw = self.fields.end + 8 + usize::try_from(chain).ok()?.checked_mul(8)?;
        let payload = body.get(raw.checked_add(4)?..)?;
        let id = endian.u16(*payload.first_chunk()?);
        let (_, field) = self.task_fields.iter().find(|(known, _)| *known == id)?;
        let task = field.int(payload, endian)?;
        if !self.tasks.contains_key(&(task as u32)) {
            return Some(false);
        }
        Some(!self.has_own_events(by, time))
    }

    fn has_own_events(&self, tid: u32, time: u64) -> bool {
        self.tasks.get(&tid).is_some_and(|(from, to)| (*from..*to).contains(&time))
    }
}

fn size_of(bytes: &[u8]) -> Option<usize> {
    let header = RecordHeader::parse(bytes, Endian::NATIVE).ok()?;
    Some(usize::from(header.size)).filter(|size| *size >= RecordHeader::SIZE)
}

/// The first record, and what is behind it.
fn split_record(bytes: &[u8]) -> Option<(RecordHeader, &[u8], &[u8])> {
    let header = RecordHeader::parse(bytes, Endian::NATIVE).ok()?;
    let (record, rest) = bytes.split_at_checked(size_of(bytes)?)?;
    Some((header, record.get(RecordHeader::SIZE..)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Record of a birth or an end, as the kernel writes it.
    fn task_record(kind: RecordKind, tid: u32, time: u64) -> Vec<u8> {
        let mut bytes = kind.0.to_ne_bytes().to_vec();
        bytes.extend([0, 0, 32, 0]);
        for word in [7, 1, tid, 1] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(time.to_ne_bytes());
        bytes
    }

    #[test]
    fn an_end_that_is_read_before_the_birth_counts() {
        let format = "name: sched_waking\nID: 1\nformat:\n\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";
        let format = EventFormat::parse(format).unwrap();
        let mut wakeups = ForeignWakeups {
            fields: LeadingFields::new(kymo_model::SampleType::TID),
            task_fields: vec![(1, format.field("pid").unwrap().clone())],
            tasks: FxHashMap::default(),
            held: Vec::new(),
        };
        // A thread ends on the CPU that is read first, and was made on the other one.
        wakeups.follow(&task_record(RecordKind::EXIT, 8, 90), &[]);
        wakeups.follow(&task_record(RecordKind::FORK, 8, 10), &[]);
        let own = [9, 10, 89, 90].map(|time| wakeups.has_own_events(8, time));
        assert_eq!(own, [false, true, true, false]);
        // Its number is used again.
        wakeups.follow(&task_record(RecordKind::FORK, 8, 120), &[]);
        assert_eq!([119, 120].map(|time| wakeups.has_own_events(8, time)), [false, true]);
        wakeups.follow(&[], &task_record(RecordKind::EXIT, 8, 130));
        assert!(!wakeups.has_own_events(8, 130));
    }
}

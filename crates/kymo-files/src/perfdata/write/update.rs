//! Records about the recording itself that are not the kernel's: what an event
//! is called and measured in, which threads and CPUs were asked for.

use kymo_model::RecordKind;

use super::EventMeta;
use super::synth::record;

/// Kinds of EVENT_UPDATE records, by perf's numbers.
const UNIT: u64 = 0;
const SCALE: u64 = 1;
const NAME: u64 = 2;
const CPUS: u64 = 3;
/// A list of CPU numbers, the form of a CPU map that all readers know.
const CPU_LIST: u16 = 0;

/// EVENT_UPDATE records of `event`. Its name is written in pipes only: there EVENT_DESC may be too
/// large for a record.
pub fn event_updates(event: &EventMeta, name: bool) -> Vec<u8> {
    let Some(id) = event.ids.first() else { return Vec::new() };
    let mut out = Vec::new();
    let mut tell = |what: u64, data: &[u8]| {
        let body = [&what.to_ne_bytes()[..], &id.to_ne_bytes(), data].concat();
        out.extend(record(RecordKind::EVENT_UPDATE, 0, &body).unwrap_or_default());
    };
    // Texts end in a zero.
    let text = |t: &str| [t.as_bytes(), b"\0"].concat();
    if !event.unit.is_empty() {
        tell(UNIT, &text(&event.unit));
    }
    if event.scale != 1.0 {
        tell(SCALE, &event.scale.to_ne_bytes());
    }
    if let Some(cpus) = &event.cpus {
        tell(CPUS, &cpu_list(cpus));
    }
    if name {
        tell(NAME, &text(&event.name));
    }
    out
}

/// THREAD_MAP: the threads asked for, -1 for all, with their names. More than a
/// record can hold are left out.
pub fn thread_map(threads: &[(i32, String)]) -> Vec<u8> {
    let threads = &threads[..threads.len().min(2000)];
    let mut body = (threads.len() as u64).to_ne_bytes().to_vec();
    for (tid, comm) in threads {
        body.extend(i64::from(*tid).to_ne_bytes());
        let mut name = comm.as_bytes()[..comm.len().min(15)].to_vec();
        name.resize(16, 0);
        body.extend(name);
    }
    record(RecordKind::THREAD_MAP, 0, &body).unwrap_or_default()
}

/// CPU and task of an event's instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdPlace {
    /// The instance.
    pub id: u64,
    /// The ring that it writes into, counted from 0.
    pub ring: u64,
    /// Its CPU.
    pub cpu: u32,
    /// Its thread, -1 for all.
    pub tid: i32,
}

/// ID_INDEX records: where the instances were opened.
pub fn id_index(places: &[IdPlace]) -> Vec<u8> {
    /// Number that fits into a record.
    const MOST: usize = 2000;
    let mut out = Vec::new();
    for some in places.chunks(MOST) {
        let mut body = (some.len() as u64).to_ne_bytes().to_vec();
        for p in some {
            let words = [p.id, p.ring, p.cpu.into(), i64::from(p.tid).cast_unsigned()];
            body.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
        }
        out.extend(record(RecordKind::ID_INDEX, 0, &body).unwrap_or_default());
    }
    out
}

/// CPU_MAP: the CPUs recorded on.
pub fn cpu_map(cpus: &[u32]) -> Vec<u8> {
    record(RecordKind::CPU_MAP, 0, &cpu_list(cpus)).unwrap_or_default()
}

fn cpu_list(cpus: &[u32]) -> Vec<u8> {
    let numbers: Vec<u16> = cpus.iter().filter_map(|&c| u16::try_from(c).ok()).collect();
    let numbers = &numbers[..numbers.len().min(30_000)];
    let head = [CPU_LIST, numbers.len() as u16];
    head.iter().chain(numbers).flat_map(|n| n.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_as_perf_lays_them_out() {
        let event = EventMeta {
            name: "cpu-clock".into(),
            ids: vec![9, 10],
            cpus: Some(vec![0, 2]),
            ..EventMeta::default()
        };
        let b = event_updates(&event, true);
        let size = |at: usize| usize::from(u16::from_ne_bytes([b[at + 6], b[at + 7]]));
        assert_eq!((b[0], b[8], b[16], size(0)), (78, 3, 9, 32));
        assert_eq!(b[24..32], [0, 0, 2, 0, 0, 0, 2, 0]);
        assert_eq!((b[32 + 8], &b[32 + 24..32 + 34]), (2, &b"cpu-clock\0"[..]));
        let map = thread_map(&[(7, "a name that is too long".into())]);
        assert_eq!((map[8], map[16], &map[24..40]), (1, 7, &b"a name that is \0"[..]));
    }
}

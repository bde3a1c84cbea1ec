//! Names of events whose recording does not tell them: old files, pipes
//! without event updates, files whose recorder was killed.

use kymo_model::{Attr, AttrFlags, EventType};

use super::TracingData;

const HARDWARE: [&str; 10] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
];

const SOFTWARE: [&str; 12] = [
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
];

/// A name for `attr` as perf would make one.
pub(super) fn name_of(attr: &Attr, tracing: Option<&TracingData>) -> String {
    let table = |names: &[&str]| {
        let index = usize::try_from(attr.config & 0xffff_ffff).ok();
        index.and_then(|i| names.get(i)).map(|n| format!("{n}{}", modifiers(attr.flags)))
    };
    let known = match attr.kind {
        EventType::HARDWARE => table(&HARDWARE),
        EventType::SOFTWARE => table(&SOFTWARE),
        EventType::TRACEPOINT => tracing.and_then(|t| t.event_name(attr.config)),
        EventType::RAW => Some(format!("raw {:#x}", attr.config)),
        EventType::BREAKPOINT => Some(format!("mem:{:#x}", attr.config1)),
        _ => None,
    };
    known.unwrap_or_else(|| match attr.kind {
        EventType::TRACEPOINT => format!("tracepoint:{}", attr.config),
        kind => format!("unknown attr type: {}", kind.0),
    })
}

fn modifiers(flags: AttrFlags) -> String {
    let mut m = String::new();
    let (user, kernel) = (AttrFlags::EXCLUDE_USER, AttrFlags::EXCLUDE_KERNEL);
    if flags.intersects(user | kernel) {
        m.push(':');
        if !flags.contains(kernel) {
            m.push('k');
        }
        if !flags.contains(user) {
            m.push('u');
        }
    }
    m
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_say_what_is_counted() {
        let attr = Attr {
            kind: EventType::SOFTWARE,
            flags: AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV,
            ..Attr::default()
        };
        assert_eq!(name_of(&attr, None), "cpu-clock:u");
        let attr = Attr { kind: EventType::TRACEPOINT, config: 7, ..Attr::default() };
        assert_eq!(name_of(&attr, None), "tracepoint:7");
    }
}

//! The `-F` grammar: which fields are printed for which type of event.

use kymo_files::perfdata::EventDesc;
use kymo_model::{AttrFlags, EventType, SampleType};

use crate::error::FieldSpecError;

/// Returns an error with a text.
macro_rules! fail {
    ($($text:tt)*) => { return Err(FieldSpecError(format!($($text)*))) };
}

/// A set of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(pub(crate) u32);

const NAMES: [&str; 26] = [
    "comm",
    "tid",
    "pid",
    "time",
    "cpu",
    "event",
    "trace",
    "ip",
    "sym",
    "dso",
    "addr",
    "symoff",
    "period",
    "weight",
    "data_src",
    "phys_addr",
    "misc",
    "iregs",
    "uregs",
    "brstack",
    "brstacksym",
    "data_page_size",
    "code_page_size",
    "ins_lat",
    "cgroup",
    "srcline",
];

/// FieldSet that perf knows, and why they are not here.
const ABSENT: [(&[&str], &str); 4] = [
    (&["srccode"], "source files are not printed; srcline prints file and line"),
    (
        &[
            "flags",
            "callindent",
            "insn",
            "insnlen",
            "brstackinsn",
            "brstackinsnlen",
            "ipc",
            "synth",
        ],
        "instruction traces (intel_pt, arm_spe) are not decoded",
    ),
    (&["metric"], "metrics are not computed from samples; see kymo stat"),
    (&["tod", "bpf-output", "brstackoff", "machine_pid", "vcpu"], "it is not supported"),
];

impl FieldSet {
    pub(crate) const COMM: FieldSet = FieldSet(1);
    pub(crate) const TID: FieldSet = FieldSet(1 << 1);
    pub(crate) const PID: FieldSet = FieldSet(1 << 2);
    pub(crate) const TIME: FieldSet = FieldSet(1 << 3);
    pub(crate) const CPU: FieldSet = FieldSet(1 << 4);
    pub(crate) const EVENT: FieldSet = FieldSet(1 << 5);
    pub(crate) const TRACE: FieldSet = FieldSet(1 << 6);
    pub(crate) const IP: FieldSet = FieldSet(1 << 7);
    pub(crate) const SYM: FieldSet = FieldSet(1 << 8);
    pub(crate) const DSO: FieldSet = FieldSet(1 << 9);
    pub(crate) const ADDR: FieldSet = FieldSet(1 << 10);
    pub(crate) const SYMOFF: FieldSet = FieldSet(1 << 11);
    pub(crate) const SRCLINE: FieldSet = FieldSet(1 << 25);
    pub(crate) const PERIOD: FieldSet = FieldSet(1 << 12);
    pub(crate) const WEIGHT: FieldSet = FieldSet(1 << 13);
    pub(crate) const DATA_SRC: FieldSet = FieldSet(1 << 14);
    pub(crate) const PHYS_ADDR: FieldSet = FieldSet(1 << 15);
    pub(crate) const MISC: FieldSet = FieldSet(1 << 16);
    pub(crate) const IREGS: FieldSet = FieldSet(1 << 17);
    pub(crate) const UREGS: FieldSet = FieldSet(1 << 18);
    pub(crate) const BRSTACK: FieldSet = FieldSet(1 << 19);
    pub(crate) const BRSTACKSYM: FieldSet = FieldSet(1 << 20);
    pub(crate) const DATA_PAGE_SIZE: FieldSet = FieldSet(1 << 21);
    pub(crate) const CODE_PAGE_SIZE: FieldSet = FieldSet(1 << 22);
    pub(crate) const INS_LAT: FieldSet = FieldSet(1 << 23);
    pub(crate) const CGROUP: FieldSet = FieldSet(1 << 24);

    pub(crate) const COMMON: FieldSet =
        FieldSet(Self::COMM.0 | Self::TID.0 | Self::TIME.0 | Self::CPU.0 | Self::EVENT.0);
    /// Fields of a place in code.
    pub(crate) const WHERE: FieldSet =
        FieldSet(Self::IP.0 | Self::SYM.0 | Self::SYMOFF.0 | Self::DSO.0);
    /// Fields that describe an address.
    pub(crate) const OF_ADDRESSES: FieldSet =
        FieldSet(Self::SYM.0 | Self::DSO.0 | Self::SYMOFF.0 | Self::SRCLINE.0);

    #[inline]
    pub(crate) fn has(self, other: FieldSet) -> bool {
        self.0 & other.0 == other.0
    }

    #[inline]
    pub(crate) fn any(self, other: FieldSet) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn with(self, other: FieldSet) -> FieldSet {
        FieldSet(self.0 | other.0)
    }

    pub(crate) fn without(self, other: FieldSet) -> FieldSet {
        FieldSet(self.0 & !other.0)
    }

    fn named(name: &str) -> Result<FieldSet, FieldSpecError> {
        match NAMES.iter().position(|n| *n == name) {
            Some(bit) => Ok(FieldSet(1 << bit)),
            None => {
                if let Some((_, why)) = ABSENT.iter().find(|(names, _)| names.contains(&name)) {
                    fail!("-F: {name} cannot be printed: {why}; there are {}", NAMES.join(" "));
                }
                fail!("-F: no field {name}; there are {}", NAMES.join(" "))
            }
        }
    }
}

/// Classes of events with fields of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventClass {
    Hardware,
    Software,
    Tracepoint,
    Raw,
    Breakpoint,
    Other,
}

const CLASSES: [EventClass; 6] = [
    EventClass::Hardware,
    EventClass::Software,
    EventClass::Tracepoint,
    EventClass::Raw,
    EventClass::Breakpoint,
    EventClass::Other,
];

impl EventClass {
    fn of(kind: EventType) -> EventClass {
        match kind {
            EventType::HARDWARE | EventType::HW_CACHE => EventClass::Hardware,
            EventType::SOFTWARE => EventClass::Software,
            EventType::TRACEPOINT => EventClass::Tracepoint,
            EventType::RAW => EventClass::Raw,
            EventType::BREAKPOINT => EventClass::Breakpoint,
            _ => EventClass::Other,
        }
    }

    fn default_fields(self) -> FieldSet {
        let rest = match self {
            EventClass::Tracepoint => FieldSet::TRACE,
            EventClass::Raw | EventClass::Other => FieldSet(
                FieldSet::WHERE.0
                    | FieldSet::PERIOD.0
                    | FieldSet::ADDR.0
                    | FieldSet::DATA_SRC.0
                    | FieldSet::WEIGHT.0
                    | FieldSet::PHYS_ADDR.0,
            ),
            EventClass::Hardware | EventClass::Software => FieldSet::WHERE.with(FieldSet::PERIOD),
            EventClass::Breakpoint => FieldSet::WHERE,
        };
        FieldSet::COMMON.with(rest)
    }
}

/// Fields to print for each type of event, as `-F` states them.
#[derive(Clone, Debug)]
pub struct FieldSpec {
    /// For each class what is printed, and what of it was asked for by name.
    fields: [(FieldSet, FieldSet); 6],
}

impl FieldSpec {
    /// Applies each `-F` in turn to the defaults.
    pub fn parse(specs: &[String]) -> Result<FieldSpec, FieldSpecError> {
        let mut s =
            FieldSpec { fields: CLASSES.map(|c| (c.default_fields(), FieldSet::default())) };
        for spec in specs {
            s.apply(spec)?;
        }
        Ok(s)
    }

    fn apply(&mut self, spec: &str) -> Result<(), FieldSpecError> {
        let (classes, list): (&[EventClass], &str) = match spec.split_once(':') {
            None => (&CLASSES, spec),
            Some(("hw", l)) => (&[EventClass::Hardware], l),
            Some(("sw", l)) => (&[EventClass::Software], l),
            Some(("trace", l)) => (&[EventClass::Tracepoint], l),
            Some(("raw", l)) => (&[EventClass::Raw], l),
            Some(("break", l)) => (&[EventClass::Breakpoint], l),
            Some((t, _)) => fail!("-F: no type {t}; there are hw sw trace raw break"),
        };
        if list.split(',').all(str::is_empty) {
            fail!("-F {spec:?} names no field; there are {}", NAMES.join(" "));
        }
        let relative = list.starts_with(['+', '-']);
        let mut sign = b'+';
        let (mut add, mut remove) = (FieldSet::default(), FieldSet::default());
        for name in list.split(',').filter(|n| !n.is_empty()) {
            let bare = name.trim_start_matches(['+', '-']);
            if bare.len() != name.len() {
                if !relative {
                    fail!("-F {spec}: +field and -field do not go with plain fields");
                }
                sign = name.as_bytes()[0];
            }
            let field = FieldSet::named(bare)?;
            if sign == b'+' { add = add.with(field) } else { remove = remove.with(field) }
        }
        for class in classes {
            let slot = &mut self.fields[*class as usize];
            let base = if relative { slot.0 } else { FieldSet::default() };
            *slot = (base.with(add).without(remove), slot.1.with(add).without(remove));
        }
        let needs = FieldSet::OF_ADDRESSES;
        for (fields, asked) in &mut self.fields {
            if fields.any(needs)
                && !fields.any(FieldSet(
                    FieldSet::IP.0
                        | FieldSet::ADDR.0
                        | FieldSet::BRSTACK.0
                        | FieldSet::BRSTACKSYM.0,
                ))
            {
                // What is added to the usual fields is for events that have addresses.
                if asked.any(needs) && !relative {
                    fail!("-F {spec}: symbols and dsos are those of an address: add ip or addr");
                }
                *fields = fields.without(needs);
            }
        }
        Ok(())
    }

    /// The fields of tracepoints of recordings other than perf's: what is printed, and
    /// what of it was asked for by name.
    pub(crate) fn of_tracepoints(&self) -> (FieldSet, FieldSet) {
        self.fields[EventClass::Tracepoint as usize]
    }

    /// Fields of one event: those requested that its samples have.
    pub(crate) fn of(&self, event: &EventDesc, chains: bool) -> Result<FieldSet, FieldSpecError> {
        let class = EventClass::of(event.attr.kind);
        let (mut fields, asked) = self.fields[class as usize];
        let has = event.attr.sample_type;
        let chain = chains && has.contains(SampleType::CALLCHAIN);
        // What is said of addresses beside the usual fields leaves the stacks there.
        if class == EventClass::Tracepoint && chain && asked.without(FieldSet::OF_ADDRESSES).0 == 0
        {
            fields = fields.with(FieldSet::WHERE).with(asked);
        }
        if class != EventClass::Tracepoint {
            fields = fields.without(FieldSet::TRACE);
        }
        for (field, needs, name) in [
            (FieldSet::IP, SampleType::IP, "IP"),
            (FieldSet::ADDR, SampleType::ADDR, "ADDR"),
            (FieldSet::PID, SampleType::TID, "TID"),
            (FieldSet::TID, SampleType::TID, "TID"),
            (FieldSet::TIME, SampleType::TIME, "TIME"),
            (FieldSet::CPU, SampleType::CPU, "CPU"),
            (FieldSet::PERIOD, SampleType::PERIOD, "PERIOD"),
            (FieldSet::WEIGHT, SampleType::WEIGHT | SampleType::WEIGHT_STRUCT, "WEIGHT"),
            (FieldSet::DATA_SRC, SampleType::DATA_SRC, "DATA_SRC"),
            (FieldSet::PHYS_ADDR, SampleType::PHYS_ADDR, "PHYS_ADDR"),
            (FieldSet::IREGS, SampleType::REGS_INTR, "REGS_INTR"),
            (FieldSet::UREGS, SampleType::REGS_USER, "REGS_USER"),
            (FieldSet::BRSTACK, SampleType::BRANCH_STACK, "BRANCH_STACK"),
            (FieldSet::BRSTACKSYM, SampleType::BRANCH_STACK, "BRANCH_STACK"),
            (FieldSet::DATA_PAGE_SIZE, SampleType::DATA_PAGE_SIZE, "DATA_PAGE_SIZE"),
            (FieldSet::CODE_PAGE_SIZE, SampleType::CODE_PAGE_SIZE, "CODE_PAGE_SIZE"),
            (FieldSet::INS_LAT, SampleType::WEIGHT_STRUCT, "WEIGHT_STRUCT"),
            (FieldSet::CGROUP, SampleType::CGROUP, "CGROUP"),
        ] {
            if !fields.has(field) || has.intersects(needs) {
                continue;
            }
            // Periods are known without being in the sample when they are fixed.
            if field == FieldSet::PERIOD && !event.attr.flags.contains(AttrFlags::FREQ) {
                continue;
            }
            if asked.has(field) {
                fail!("samples of {} carry no {name}: that field cannot be printed", event.name);
            }
            fields = fields.without(field);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spec: &[&str], class: EventClass) -> FieldSet {
        let specs: Vec<String> = spec.iter().map(|s| (*s).to_owned()).collect();
        FieldSpec::parse(&specs).unwrap().fields[class as usize].0
    }

    #[test]
    fn plain_lists_replace_and_signed_ones_change() {
        assert_eq!(of(&["comm,pid"], EventClass::Software), FieldSet::COMM.with(FieldSet::PID));
        assert!(of(&["+pid"], EventClass::Software).has(FieldSet::PID.with(FieldSet::COMM)));
        assert!(!of(&["-comm"], EventClass::Software).has(FieldSet::COMM));
        assert!(of(&["trace:comm"], EventClass::Software).has(FieldSet::PERIOD));
        assert_eq!(of(&["trace:comm"], EventClass::Tracepoint), FieldSet::COMM);
    }

    #[test]
    fn what_is_not_a_field_is_named() {
        let e = FieldSpec::parse(&["comm,colour".to_owned()]).unwrap_err().to_string();
        assert!(e.contains("colour") && e.contains("symoff"), "{e}");
        assert!(FieldSpec::parse(&["comm,sym".to_owned()]).is_err());
    }
}

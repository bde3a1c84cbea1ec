//! The `-F` grammar: which fields are printed for which type of event.

use anyhow::bail;
use kymo_files::perfdata::EventDesc;
use kymo_model::{AttrFlags, EventType, SampleType};

/// A set of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(pub(super) u32);

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

/// Fields that perf knows, and why they are not here.
const ABSENT: [(&[&str], &str); 4] = [
    (&["srccode"], "source files are not printed; srcline tells where it is"),
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

impl Fields {
    pub(super) const COMM: Fields = Fields(1);
    pub(super) const TID: Fields = Fields(1 << 1);
    pub(super) const PID: Fields = Fields(1 << 2);
    pub(super) const TIME: Fields = Fields(1 << 3);
    pub(super) const CPU: Fields = Fields(1 << 4);
    pub(super) const EVENT: Fields = Fields(1 << 5);
    pub(super) const TRACE: Fields = Fields(1 << 6);
    pub(super) const IP: Fields = Fields(1 << 7);
    pub(super) const SYM: Fields = Fields(1 << 8);
    pub(super) const DSO: Fields = Fields(1 << 9);
    pub(super) const ADDR: Fields = Fields(1 << 10);
    pub(super) const SYMOFF: Fields = Fields(1 << 11);
    pub(super) const SRCLINE: Fields = Fields(1 << 25);
    pub(super) const PERIOD: Fields = Fields(1 << 12);
    pub(super) const WEIGHT: Fields = Fields(1 << 13);
    pub(super) const DATA_SRC: Fields = Fields(1 << 14);
    pub(super) const PHYS_ADDR: Fields = Fields(1 << 15);
    pub(super) const MISC: Fields = Fields(1 << 16);
    pub(super) const IREGS: Fields = Fields(1 << 17);
    pub(super) const UREGS: Fields = Fields(1 << 18);
    pub(super) const BRSTACK: Fields = Fields(1 << 19);
    pub(super) const BRSTACKSYM: Fields = Fields(1 << 20);
    pub(super) const DATA_PAGE_SIZE: Fields = Fields(1 << 21);
    pub(super) const CODE_PAGE_SIZE: Fields = Fields(1 << 22);
    pub(super) const INS_LAT: Fields = Fields(1 << 23);
    pub(super) const CGROUP: Fields = Fields(1 << 24);

    pub(super) const COMMON: Fields =
        Fields(Self::COMM.0 | Self::TID.0 | Self::TIME.0 | Self::CPU.0 | Self::EVENT.0);
    const WHERE: Fields = Fields(Self::IP.0 | Self::SYM.0 | Self::SYMOFF.0 | Self::DSO.0);

    #[inline]
    pub(super) fn has(self, other: Fields) -> bool {
        self.0 & other.0 == other.0
    }

    #[inline]
    pub(super) fn any(self, other: Fields) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn with(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }

    pub(super) fn without(self, other: Fields) -> Fields {
        Fields(self.0 & !other.0)
    }

    fn named(name: &str) -> anyhow::Result<Fields> {
        match NAMES.iter().position(|n| *n == name) {
            Some(bit) => Ok(Fields(1 << bit)),
            None => {
                if let Some((_, why)) = ABSENT.iter().find(|(names, _)| names.contains(&name)) {
                    bail!("-F: {name} cannot be printed: {why}; there are {}", NAMES.join(" "));
                }
                bail!("-F: no field {name}; there are {}", NAMES.join(" "))
            }
        }
    }
}

/// Classes of events with fields of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Hardware,
    Software,
    Tracepoint,
    Raw,
    Breakpoint,
    Other,
}

const CLASSES: [Class; 6] = [
    Class::Hardware,
    Class::Software,
    Class::Tracepoint,
    Class::Raw,
    Class::Breakpoint,
    Class::Other,
];

impl Class {
    fn of(kind: EventType) -> Class {
        match kind {
            EventType::HARDWARE | EventType::HW_CACHE => Class::Hardware,
            EventType::SOFTWARE => Class::Software,
            EventType::TRACEPOINT => Class::Tracepoint,
            EventType::RAW => Class::Raw,
            EventType::BREAKPOINT => Class::Breakpoint,
            _ => Class::Other,
        }
    }

    fn default_fields(self) -> Fields {
        let rest = match self {
            Class::Tracepoint => Fields::TRACE,
            Class::Raw | Class::Other => Fields(
                Fields::WHERE.0
                    | Fields::PERIOD.0
                    | Fields::ADDR.0
                    | Fields::DATA_SRC.0
                    | Fields::WEIGHT.0
                    | Fields::PHYS_ADDR.0,
            ),
            Class::Hardware | Class::Software => Fields::WHERE.with(Fields::PERIOD),
            Class::Breakpoint => Fields::WHERE,
        };
        Fields::COMMON.with(rest)
    }
}

/// What `-F` said.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    /// For each class what is printed, and what of it was asked for by name.
    fields: [(Fields, Fields); 6],
}

impl Spec {
    /// Applies each `-F` in turn to the defaults.
    pub(super) fn parse(specs: &[String]) -> anyhow::Result<Spec> {
        let mut s = Spec { fields: CLASSES.map(|c| (c.default_fields(), Fields::default())) };
        for spec in specs {
            s.apply(spec)?;
        }
        Ok(s)
    }

    fn apply(&mut self, spec: &str) -> anyhow::Result<()> {
        let (classes, list): (&[Class], &str) = match spec.split_once(':') {
            None => (&CLASSES, spec),
            Some(("hw", l)) => (&[Class::Hardware], l),
            Some(("sw", l)) => (&[Class::Software], l),
            Some(("trace", l)) => (&[Class::Tracepoint], l),
            Some(("raw", l)) => (&[Class::Raw], l),
            Some(("break", l)) => (&[Class::Breakpoint], l),
            Some((t, _)) => bail!("-F: no type {t}; there are hw sw trace raw break"),
        };
        if list.split(',').all(str::is_empty) {
            bail!("-F {spec:?} names no field; there are {}", NAMES.join(" "));
        }
        let relative = list.starts_with(['+', '-']);
        let mut sign = b'+';
        let (mut add, mut remove) = (Fields::default(), Fields::default());
        for name in list.split(',').filter(|n| !n.is_empty()) {
            let bare = name.trim_start_matches(['+', '-']);
            if bare.len() != name.len() {
                if !relative {
                    bail!("-F {spec}: +field and -field do not go with plain fields");
                }
                sign = name.as_bytes()[0];
            }
            let field = Fields::named(bare)?;
            if sign == b'+' { add = add.with(field) } else { remove = remove.with(field) }
        }
        for class in classes {
            let slot = &mut self.fields[*class as usize];
            let base = if relative { slot.0 } else { Fields::default() };
            *slot = (base.with(add).without(remove), slot.1.with(add).without(remove));
        }
        let needs = Fields(Fields::SYM.0 | Fields::DSO.0 | Fields::SYMOFF.0 | Fields::SRCLINE.0);
        for (fields, asked) in &mut self.fields {
            if fields.any(needs)
                && !fields.any(Fields(
                    Fields::IP.0 | Fields::ADDR.0 | Fields::BRSTACK.0 | Fields::BRSTACKSYM.0,
                ))
            {
                // What is added to the usual fields is for events that have addresses.
                if asked.any(needs) && !relative {
                    bail!("-F {spec}: symbols and dsos are those of an address: add ip or addr");
                }
                *fields = fields.without(needs);
            }
        }
        Ok(())
    }

    /// The fields of tracepoints of recordings other than perf's: what is printed, and
    /// what of it was asked for by name.
    pub(super) fn of_tracepoints(&self) -> (Fields, Fields) {
        self.fields[Class::Tracepoint as usize]
    }

    /// The fields of one event: what was asked for and its samples have.
    pub(super) fn of(&self, event: &EventDesc, chains: bool) -> anyhow::Result<Fields> {
        let class = Class::of(event.attr.kind);
        let (mut fields, asked) = self.fields[class as usize];
        let has = event.attr.sample_type;
        let chain = chains && has.contains(SampleType::CALLCHAIN);
        if class == Class::Tracepoint && chain && asked == Fields::default() {
            fields = fields.with(Fields::WHERE);
        }
        if class != Class::Tracepoint {
            fields = fields.without(Fields::TRACE);
        }
        for (field, needs, name) in [
            (Fields::IP, SampleType::IP, "IP"),
            (Fields::ADDR, SampleType::ADDR, "ADDR"),
            (Fields::PID, SampleType::TID, "TID"),
            (Fields::TID, SampleType::TID, "TID"),
            (Fields::TIME, SampleType::TIME, "TIME"),
            (Fields::CPU, SampleType::CPU, "CPU"),
            (Fields::PERIOD, SampleType::PERIOD, "PERIOD"),
            (Fields::WEIGHT, SampleType::WEIGHT | SampleType::WEIGHT_STRUCT, "WEIGHT"),
            (Fields::DATA_SRC, SampleType::DATA_SRC, "DATA_SRC"),
            (Fields::PHYS_ADDR, SampleType::PHYS_ADDR, "PHYS_ADDR"),
            (Fields::IREGS, SampleType::REGS_INTR, "REGS_INTR"),
            (Fields::UREGS, SampleType::REGS_USER, "REGS_USER"),
            (Fields::BRSTACK, SampleType::BRANCH_STACK, "BRANCH_STACK"),
            (Fields::BRSTACKSYM, SampleType::BRANCH_STACK, "BRANCH_STACK"),
            (Fields::DATA_PAGE_SIZE, SampleType::DATA_PAGE_SIZE, "DATA_PAGE_SIZE"),
            (Fields::CODE_PAGE_SIZE, SampleType::CODE_PAGE_SIZE, "CODE_PAGE_SIZE"),
            (Fields::INS_LAT, SampleType::WEIGHT_STRUCT, "WEIGHT_STRUCT"),
            (Fields::CGROUP, SampleType::CGROUP, "CGROUP"),
        ] {
            if !fields.has(field) || has.intersects(needs) {
                continue;
            }
            // Periods are known without being in the sample when they are fixed.
            if field == Fields::PERIOD && !event.attr.flags.contains(AttrFlags::FREQ) {
                continue;
            }
            if asked.has(field) {
                bail!("samples of {} carry no {name}: that field cannot be printed", event.name);
            }
            fields = fields.without(field);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spec: &[&str], class: Class) -> Fields {
        let specs: Vec<String> = spec.iter().map(|s| (*s).to_owned()).collect();
        Spec::parse(&specs).unwrap().fields[class as usize].0
    }

    #[test]
    fn plain_lists_replace_and_signed_ones_change() {
        assert_eq!(of(&["comm,pid"], Class::Software), Fields::COMM.with(Fields::PID));
        assert!(of(&["+pid"], Class::Software).has(Fields::PID.with(Fields::COMM)));
        assert!(!of(&["-comm"], Class::Software).has(Fields::COMM));
        assert!(of(&["trace:comm"], Class::Software).has(Fields::PERIOD));
        assert_eq!(of(&["trace:comm"], Class::Tracepoint), Fields::COMM);
    }

    #[test]
    fn what_is_not_a_field_is_named() {
        let e = Spec::parse(&["comm,colour".to_owned()]).unwrap_err().to_string();
        assert!(e.contains("colour") && e.contains("symoff"), "{e}");
        assert!(Spec::parse(&["comm,sym".to_owned()]).is_err());
    }
}

//! The bit sets of `struct perf_event_attr`, under the kernel's names
//! (`include/uapi/linux/perf_event.h`). Unknown bits are kept.
#![allow(missing_docs, reason = "the constants carry the kernel's names and are documented there")]

bitflags::bitflags! {
    /// `PERF_SAMPLE_*`: what each sample carries.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SampleType: u64 {
        const IP = 1 << 0;
        const TID = 1 << 1;
        const TIME = 1 << 2;
        const ADDR = 1 << 3;
        const READ = 1 << 4;
        const CALLCHAIN = 1 << 5;
        const ID = 1 << 6;
        const CPU = 1 << 7;
        const PERIOD = 1 << 8;
        const STREAM_ID = 1 << 9;
        const RAW = 1 << 10;
        const BRANCH_STACK = 1 << 11;
        const REGS_USER = 1 << 12;
        const STACK_USER = 1 << 13;
        const WEIGHT = 1 << 14;
        const DATA_SRC = 1 << 15;
        const IDENTIFIER = 1 << 16;
        const TRANSACTION = 1 << 17;
        const REGS_INTR = 1 << 18;
        const PHYS_ADDR = 1 << 19;
        const AUX = 1 << 20;
        const CGROUP = 1 << 21;
        const DATA_PAGE_SIZE = 1 << 22;
        const CODE_PAGE_SIZE = 1 << 23;
        const WEIGHT_STRUCT = 1 << 24;
        const _ = !0;
    }

    /// `PERF_FORMAT_*`: what read(2) and `PERF_SAMPLE_READ` carry.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadFormat: u64 {
        const TOTAL_TIME_ENABLED = 1 << 0;
        const TOTAL_TIME_RUNNING = 1 << 1;
        const ID = 1 << 2;
        const GROUP = 1 << 3;
        const LOST = 1 << 4;
        const _ = !0;
    }

    /// The bit fields of `perf_event_attr`, lowest bit first.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AttrFlags: u64 {
        const DISABLED = 1 << 0;
        const INHERIT = 1 << 1;
        const PINNED = 1 << 2;
        const EXCLUSIVE = 1 << 3;
        const EXCLUDE_USER = 1 << 4;
        const EXCLUDE_KERNEL = 1 << 5;
        const EXCLUDE_HV = 1 << 6;
        const EXCLUDE_IDLE = 1 << 7;
        const MMAP = 1 << 8;
        const COMM = 1 << 9;
        const FREQ = 1 << 10;
        const INHERIT_STAT = 1 << 11;
        const ENABLE_ON_EXEC = 1 << 12;
        const TASK = 1 << 13;
        const WATERMARK = 1 << 14;
        /// The two bits of `precise_ip`.
        const PRECISE_IP = 3 << 15;
        const MMAP_DATA = 1 << 17;
        const SAMPLE_ID_ALL = 1 << 18;
        const EXCLUDE_HOST = 1 << 19;
        const EXCLUDE_GUEST = 1 << 20;
        const EXCLUDE_CALLCHAIN_KERNEL = 1 << 21;
        const EXCLUDE_CALLCHAIN_USER = 1 << 22;
        const MMAP2 = 1 << 23;
        const COMM_EXEC = 1 << 24;
        const USE_CLOCKID = 1 << 25;
        const CONTEXT_SWITCH = 1 << 26;
        const WRITE_BACKWARD = 1 << 27;
        const NAMESPACES = 1 << 28;
        const KSYMBOL = 1 << 29;
        const BPF_EVENT = 1 << 30;
        const AUX_OUTPUT = 1 << 31;
        const CGROUP = 1 << 32;
        const TEXT_POKE = 1 << 33;
        const BUILD_ID = 1 << 34;
        const INHERIT_THREAD = 1 << 35;
        const REMOVE_ON_EXEC = 1 << 36;
        const SIGTRAP = 1 << 37;
        const DEFER_CALLCHAIN = 1 << 38;
        const DEFER_OUTPUT = 1 << 39;
        const _ = !0;
    }

    /// `PERF_SAMPLE_BRANCH_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BranchType: u64 {
        const USER = 1 << 0;
        const KERNEL = 1 << 1;
        const HV = 1 << 2;
        const ANY = 1 << 3;
        const ANY_CALL = 1 << 4;
        const ANY_RETURN = 1 << 5;
        const IND_CALL = 1 << 6;
        const ABORT_TX = 1 << 7;
        const IN_TX = 1 << 8;
        const NO_TX = 1 << 9;
        const COND = 1 << 10;
        const CALL_STACK = 1 << 11;
        const IND_JUMP = 1 << 12;
        const CALL = 1 << 13;
        const NO_FLAGS = 1 << 14;
        const NO_CYCLES = 1 << 15;
        const TYPE_SAVE = 1 << 16;
        const HW_INDEX = 1 << 17;
        const PRIV_SAVE = 1 << 18;
        const COUNTERS = 1 << 19;
        const _ = !0;
    }
}

impl BranchType {
    /// Names of `perf record -j` (manual page perf-record(1)).
    pub const NAMES: [(&str, BranchType); 20] = [
        ("u", BranchType::USER),
        ("k", BranchType::KERNEL),
        ("hv", BranchType::HV),
        ("any", BranchType::ANY),
        ("any_call", BranchType::ANY_CALL),
        ("any_ret", BranchType::ANY_RETURN),
        ("ind_call", BranchType::IND_CALL),
        ("ind_jmp", BranchType::IND_JUMP),
        ("call", BranchType::CALL),
        ("abort_tx", BranchType::ABORT_TX),
        ("in_tx", BranchType::IN_TX),
        ("no_tx", BranchType::NO_TX),
        ("cond", BranchType::COND),
        ("stack", BranchType::CALL_STACK),
        ("no_flags", BranchType::NO_FLAGS),
        ("no_cycles", BranchType::NO_CYCLES),
        ("save_type", BranchType::TYPE_SAVE),
        ("hw_index", BranchType::HW_INDEX),
        ("priv", BranchType::PRIV_SAVE),
        ("counter", BranchType::COUNTERS),
    ];

    /// The branches of a list of names; sides alone are of any branch.
    ///
    /// # Errors
    /// Gives the first name that is none.
    pub fn parse(list: &str) -> Result<BranchType, String> {
        let mut branches = BranchType::empty();
        for name in list.split(',').map(str::trim) {
            let (_, one) = (Self::NAMES.iter().find(|(known, _)| *known == name))
                .ok_or_else(|| name.to_owned())?;
            branches |= *one;
        }
        if (branches - (BranchType::USER | BranchType::KERNEL | BranchType::HV)).is_empty() {
            branches |= BranchType::ANY;
        }
        Ok(branches)
    }
}

impl AttrFlags {
    /// The `precise_ip` level, 0 to 3.
    pub fn precise_ip(self) -> u8 {
        ((self.bits() >> 15) & 3) as u8
    }

    /// Flags with another `precise_ip` level.
    pub fn with_precise_ip(self, level: u8) -> Self {
        AttrFlags::from_bits_retain((self.bits() & !(3 << 15)) | (u64::from(level & 3) << 15))
    }
}

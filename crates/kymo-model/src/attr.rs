//! `struct perf_event_attr`: what an event is and what its samples carry.
//!
//! The structure has grown over the years and states its own size; here it is
//! plain fields, read from and written to bytes of any known size.

use crate::cursor::{Cursor, Endian, Truncated};
use crate::flags::{AttrFlags, BranchType, ReadFormat, SampleType};

/// The `type` of an event: which PMU it belongs to. Values above 5 are dynamic
/// PMUs listed in `/sys/bus/event_source/devices/*/type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventType(pub u32);

impl EventType {
    /// `PERF_TYPE_HARDWARE`.
    pub const HARDWARE: EventType = EventType(0);
    /// `PERF_TYPE_SOFTWARE`.
    pub const SOFTWARE: EventType = EventType(1);
    /// `PERF_TYPE_TRACEPOINT`.
    pub const TRACEPOINT: EventType = EventType(2);
    /// `PERF_TYPE_HW_CACHE`.
    pub const HW_CACHE: EventType = EventType(3);
    /// `PERF_TYPE_RAW`.
    pub const RAW: EventType = EventType(4);
    /// `PERF_TYPE_BREAKPOINT`.
    pub const BREAKPOINT: EventType = EventType(5);
}

/// `config` values of hardware events (`PERF_COUNT_HW_*`).
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod hw {
    pub const CPU_CYCLES: u64 = 0;
    pub const INSTRUCTIONS: u64 = 1;
    pub const CACHE_REFERENCES: u64 = 2;
    pub const CACHE_MISSES: u64 = 3;
    pub const BRANCH_INSTRUCTIONS: u64 = 4;
    pub const BRANCH_MISSES: u64 = 5;
    pub const BUS_CYCLES: u64 = 6;
    pub const STALLED_CYCLES_FRONTEND: u64 = 7;
    pub const STALLED_CYCLES_BACKEND: u64 = 8;
    pub const REF_CPU_CYCLES: u64 = 9;
}

/// `config` values of software events (`PERF_COUNT_SW_*`).
#[allow(missing_docs, reason = "the names are the kernel's")]
pub mod sw {
    pub const CPU_CLOCK: u64 = 0;
    pub const TASK_CLOCK: u64 = 1;
    pub const PAGE_FAULTS: u64 = 2;
    pub const CONTEXT_SWITCHES: u64 = 3;
    pub const CPU_MIGRATIONS: u64 = 4;
    pub const PAGE_FAULTS_MIN: u64 = 5;
    pub const PAGE_FAULTS_MAJ: u64 = 6;
    pub const ALIGNMENT_FAULTS: u64 = 7;
    pub const EMULATION_FAULTS: u64 = 8;
    pub const DUMMY: u64 = 9;
    pub const BPF_OUTPUT: u64 = 10;
    pub const CGROUP_SWITCHES: u64 = 11;
}

/// `config` of cache events is `cache | op << 8 | result << 16`.
pub mod hw_cache {
    /// Builds the `config` value.
    pub const fn config(cache: u64, op: u64, result: u64) -> u64 {
        cache | (op << 8) | (result << 16)
    }
}

/// Configuration of an event, to be opened or as recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attr {
    /// The PMU.
    pub kind: EventType,
    /// The event within the PMU; for a tracepoint its id.
    pub config: u64,
    /// Period, or frequency in Hz when [`AttrFlags::FREQ`] is set.
    pub sample_period: u64,
    /// Fields of samples.
    pub sample_type: SampleType,
    /// Fields of reads.
    pub read_format: ReadFormat,
    /// The bit fields.
    pub flags: AttrFlags,
    /// Events, or bytes when [`AttrFlags::WATERMARK`] is set, between wake-ups.
    pub wakeup: u32,
    /// `HW_BREAKPOINT_R|W|X` for breakpoints.
    pub bp_type: u32,
    /// `config1`, `bp_addr`, `uprobe_path` or `kprobe_func`.
    pub config1: u64,
    /// `config2`, `bp_len`, `probe_offset` or `kprobe_addr`.
    pub config2: u64,
    /// `config3`.
    pub config3: u64,
    /// Which branches are sampled.
    pub branch_sample_type: BranchType,
    /// Mask of user registers in samples.
    pub sample_regs_user: u64,
    /// Bytes of user stack in samples.
    pub sample_stack_user: u32,
    /// Clock of timestamps when [`AttrFlags::USE_CLOCKID`] is set.
    pub clockid: i32,
    /// Mask of registers at the interrupt.
    pub sample_regs_intr: u64,
    /// AUX bytes before a wake-up.
    pub aux_watermark: u32,
    /// Longest call chain.
    pub sample_max_stack: u16,
    /// AUX bytes in a sample.
    pub aux_sample_size: u32,
    /// User data of a `sigtrap` event.
    pub sig_data: u64,
}

impl Attr {
    /// Size of the structure this code knows (`PERF_ATTR_SIZE_VER8`).
    pub const SIZE: usize = 136;
    /// Size of the first published version; nothing smaller is valid.
    pub const SIZE_VER0: usize = 64;

    /// The structure as the running kernel takes it.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut b = [0u8; Self::SIZE];
        let mut at = 0;
        let mut put = |v: &[u8]| {
            b[at..at + v.len()].copy_from_slice(v);
            at += v.len();
        };
        put(&self.kind.0.to_ne_bytes());
        put(&(Self::SIZE as u32).to_ne_bytes());
        put(&self.config.to_ne_bytes());
        put(&self.sample_period.to_ne_bytes());
        put(&self.sample_type.bits().to_ne_bytes());
        put(&self.read_format.bits().to_ne_bytes());
        let flags = self.flags.bits();
        put(&if cfg!(target_endian = "big") { flags.reverse_bits() } else { flags }.to_ne_bytes());
        put(&self.wakeup.to_ne_bytes());
        put(&self.bp_type.to_ne_bytes());
        put(&self.config1.to_ne_bytes());
        put(&self.config2.to_ne_bytes());
        put(&self.branch_sample_type.bits().to_ne_bytes());
        put(&self.sample_regs_user.to_ne_bytes());
        put(&self.sample_stack_user.to_ne_bytes());
        put(&self.clockid.to_ne_bytes());
        put(&self.sample_regs_intr.to_ne_bytes());
        put(&self.aux_watermark.to_ne_bytes());
        put(&self.sample_max_stack.to_ne_bytes());
        put(&0u16.to_ne_bytes());
        put(&self.aux_sample_size.to_ne_bytes());
        put(&0u32.to_ne_bytes());
        put(&self.sig_data.to_ne_bytes());
        put(&self.config3.to_ne_bytes());
        b
    }

    /// Reads the structure from `bytes`, which is one attribute of whatever
    /// size its writer knew: fields beyond the end are zero, bytes beyond the
    /// known fields are ignored. The `size` field inside is not consulted.
    pub fn parse(bytes: &[u8], endian: Endian) -> Result<Attr, Truncated> {
        if bytes.len() < Self::SIZE_VER0 {
            return Err(Truncated { offset: 0, needed: Self::SIZE_VER0, left: bytes.len() });
        }
        let mut padded = [0u8; Self::SIZE];
        let known = bytes.len().min(Self::SIZE);
        padded[..known].copy_from_slice(&bytes[..known]);
        let mut c = Cursor::new(&padded, endian);
        let kind = EventType(c.u32()?);
        c.skip(4)?;
        let config = c.u64()?;
        let sample_period = c.u64()?;
        let sample_type = SampleType::from_bits_retain(c.u64()?);
        let read_format = ReadFormat::from_bits_retain(c.u64()?);
        let flags = c.u64()?;
        // Compilers lay bit fields out from the most significant bit on big-endian machines.
        let flags = if endian == Endian::Big { flags.reverse_bits() } else { flags };
        let wakeup = c.u32()?;
        let bp_type = c.u32()?;
        let config1 = c.u64()?;
        let config2 = c.u64()?;
        let branch_sample_type = BranchType::from_bits_retain(c.u64()?);
        let sample_regs_user = c.u64()?;
        let sample_stack_user = c.u32()?;
        let clockid = c.u32()? as i32;
        let sample_regs_intr = c.u64()?;
        let aux_watermark = c.u32()?;
        let sample_max_stack = c.u16()?;
        c.skip(2)?;
        let aux_sample_size = c.u32()?;
        c.skip(4)?;
        let sig_data = c.u64()?;
        let config3 = c.u64()?;
        let mut flags = AttrFlags::from_bits_retain(flags);
        if endian == Endian::Big {
            // `precise_ip` is a two-bit number: reversing the word reversed it too.
            let level = flags.precise_ip();
            flags = flags.with_precise_ip(((level & 1) << 1) | (level >> 1));
        }
        Ok(Attr {
            kind,
            config,
            sample_period,
            sample_type,
            read_format,
            flags,
            wakeup,
            bp_type,
            config1,
            config2,
            config3,
            branch_sample_type,
            sample_regs_user,
            sample_stack_user,
            clockid,
            sample_regs_intr,
            aux_watermark,
            sample_max_stack,
            aux_sample_size,
            sig_data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let attr = Attr {
            kind: EventType::TRACEPOINT,
            config: 0x1234,
            sample_period: 1,
            sample_type: SampleType::IP | SampleType::RAW,
            flags: (AttrFlags::DISABLED | AttrFlags::BUILD_ID).with_precise_ip(2),
            clockid: 1,
            sample_max_stack: 127,
            config3: 9,
            ..Attr::default()
        };
        assert_eq!(Attr::parse(&attr.to_bytes(), Endian::NATIVE), Ok(attr));
    }

    #[test]
    fn an_old_short_attribute_has_zeros_behind_its_end() {
        let attr = Attr { config2: 7, wakeup: 3, ..Attr::default() };
        let old = Attr::parse(&attr.to_bytes()[..64], Endian::NATIVE).unwrap();
        assert_eq!((old.config2, old.wakeup), (0, 3));
        assert!(Attr::parse(&[0; 63], Endian::NATIVE).is_err());
    }

    #[test]
    fn big_endian_bit_fields_start_at_the_top() {
        let mut bytes = [0u8; 64];
        // disabled = 1, precise_ip = 2 as a big-endian compiler stores them.
        bytes[40] = 0x80;
        bytes[41] = 0x01;
        let attr = Attr::parse(&bytes, Endian::Big).unwrap();
        assert!(attr.flags.contains(AttrFlags::DISABLED));
        assert_eq!(attr.flags.precise_ip(), 2);
    }
}

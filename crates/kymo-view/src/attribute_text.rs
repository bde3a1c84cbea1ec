//! The attribute of an event as text, laid out like that of `perf evlist -v` and of the header
//! of `perf report --header`.

use std::fmt::Write as _;

use kymo_model::{Attr, AttrFlags, BranchType, ReadFormat, SampleType};

/// Fields of samples in the order in which perf names them.
const SAMPLE_FIELDS: [(SampleType, &str); 25] = [
    (SampleType::IP, "IP"),
    (SampleType::TID, "TID"),
    (SampleType::TIME, "TIME"),
    (SampleType::ADDR, "ADDR"),
    (SampleType::READ, "READ"),
    (SampleType::CALLCHAIN, "CALLCHAIN"),
    (SampleType::ID, "ID"),
    (SampleType::CPU, "CPU"),
    (SampleType::PERIOD, "PERIOD"),
    (SampleType::STREAM_ID, "STREAM_ID"),
    (SampleType::RAW, "RAW"),
    (SampleType::BRANCH_STACK, "BRANCH_STACK"),
    (SampleType::REGS_USER, "REGS_USER"),
    (SampleType::STACK_USER, "STACK_USER"),
    (SampleType::IDENTIFIER, "IDENTIFIER"),
    (SampleType::REGS_INTR, "REGS_INTR"),
    (SampleType::DATA_SRC, "DATA_SRC"),
    (SampleType::WEIGHT, "WEIGHT"),
    (SampleType::PHYS_ADDR, "PHYS_ADDR"),
    (SampleType::AUX, "AUX"),
    (SampleType::CGROUP, "CGROUP"),
    (SampleType::DATA_PAGE_SIZE, "DATA_PAGE_SIZE"),
    (SampleType::CODE_PAGE_SIZE, "CODE_PAGE_SIZE"),
    (SampleType::WEIGHT_STRUCT, "WEIGHT_STRUCT"),
    (SampleType::TRANSACTION, "TRANSACTION"),
];

const READ_FIELDS: [(ReadFormat, &str); 5] = [
    (ReadFormat::TOTAL_TIME_ENABLED, "TOTAL_TIME_ENABLED"),
    (ReadFormat::TOTAL_TIME_RUNNING, "TOTAL_TIME_RUNNING"),
    (ReadFormat::ID, "ID"),
    (ReadFormat::GROUP, "GROUP"),
    (ReadFormat::LOST, "LOST"),
];

/// Bit fields by the names of `struct perf_event_attr`; the level of precision is no bit.
const FLAGS: [(AttrFlags, &str); 37] = [
    (AttrFlags::DISABLED, "disabled"),
    (AttrFlags::INHERIT, "inherit"),
    (AttrFlags::PINNED, "pinned"),
    (AttrFlags::EXCLUSIVE, "exclusive"),
    (AttrFlags::EXCLUDE_USER, "exclude_user"),
    (AttrFlags::EXCLUDE_KERNEL, "exclude_kernel"),
    (AttrFlags::EXCLUDE_HV, "exclude_hv"),
    (AttrFlags::EXCLUDE_IDLE, "exclude_idle"),
    (AttrFlags::MMAP, "mmap"),
    (AttrFlags::COMM, "comm"),
    (AttrFlags::FREQ, "freq"),
    (AttrFlags::INHERIT_STAT, "inherit_stat"),
    (AttrFlags::ENABLE_ON_EXEC, "enable_on_exec"),
    (AttrFlags::TASK, "task"),
    (AttrFlags::WATERMARK, "watermark"),
    (AttrFlags::PRECISE_IP, "precise_ip"),
    (AttrFlags::MMAP_DATA, "mmap_data"),
    (AttrFlags::SAMPLE_ID_ALL, "sample_id_all"),
    (AttrFlags::EXCLUDE_HOST, "exclude_host"),
    (AttrFlags::EXCLUDE_GUEST, "exclude_guest"),
    (AttrFlags::EXCLUDE_CALLCHAIN_KERNEL, "exclude_callchain_kernel"),
    (AttrFlags::EXCLUDE_CALLCHAIN_USER, "exclude_callchain_user"),
    (AttrFlags::MMAP2, "mmap2"),
    (AttrFlags::COMM_EXEC, "comm_exec"),
    (AttrFlags::USE_CLOCKID, "use_clockid"),
    (AttrFlags::CONTEXT_SWITCH, "context_switch"),
    (AttrFlags::WRITE_BACKWARD, "write_backward"),
    (AttrFlags::NAMESPACES, "namespaces"),
    (AttrFlags::KSYMBOL, "ksymbol"),
    (AttrFlags::BPF_EVENT, "bpf_event"),
    (AttrFlags::AUX_OUTPUT, "aux_output"),
    (AttrFlags::CGROUP, "cgroup"),
    (AttrFlags::TEXT_POKE, "text_poke"),
    (AttrFlags::BUILD_ID, "build_id"),
    (AttrFlags::INHERIT_THREAD, "inherit_thread"),
    (AttrFlags::REMOVE_ON_EXEC, "remove_on_exec"),
    (AttrFlags::SIGTRAP, "sigtrap"),
];

/// The fields of an attribute that are not 0, as `name: value` or `name = value`, by commas.
pub fn attribute_text(attr: &Attr, equals: &str) -> String {
    let mut text = String::new();
    let mut put = |name: &str, value: &str| {
        let gap = if text.is_empty() { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{gap}{name}{equals}{value}");
    };
    put("type", &attr.kind.0.to_string());
    number(&mut put, "config", hexadecimal(attr.config));
    number(&mut put, "{ sample_period, sample_freq }", decimal(attr.sample_period));
    let fields = SAMPLE_FIELDS.iter().filter(|(bit, _)| attr.sample_type.contains(*bit));
    names(&mut put, "sample_type", fields.map(|(_, name)| *name));
    let fields = READ_FIELDS.iter().filter(|(bit, _)| attr.read_format.contains(*bit));
    names(&mut put, "read_format", fields.map(|(_, name)| *name));
    for (flag, name) in FLAGS {
        match flag == AttrFlags::PRECISE_IP {
            true => number(&mut put, name, decimal(attr.flags.precise_ip().into())),
            false if attr.flags.contains(flag) => put(name, "1"),
            false => {}
        }
    }
    let wakeup = if attr.flags.contains(AttrFlags::WATERMARK) {
        "wakeup_watermark"
    } else {
        "wakeup_events"
    };
    number(&mut put, wakeup, decimal(attr.wakeup.into()));
    number(&mut put, "bp_type", decimal(attr.bp_type.into()));
    number(&mut put, "{ bp_addr, config1 }", hexadecimal(attr.config1));
    number(&mut put, "{ bp_len, config2 }", hexadecimal(attr.config2));
    let branches =
        BranchType::NAMES.iter().filter(|(_, bit)| attr.branch_sample_type.contains(*bit));
    names(&mut put, "branch_sample_type", branches.map(|(name, _)| *name));
    number(&mut put, "sample_regs_user", hexadecimal(attr.sample_regs_user));
    number(&mut put, "sample_stack_user", decimal(attr.sample_stack_user.into()));
    if attr.clockid != 0 {
        put("clockid", &attr.clockid.to_string());
    }
    number(&mut put, "sample_regs_intr", hexadecimal(attr.sample_regs_intr));
    number(&mut put, "aux_watermark", decimal(attr.aux_watermark.into()));
    number(&mut put, "sample_max_stack", decimal(attr.sample_max_stack.into()));
    number(&mut put, "aux_sample_size", decimal(attr.aux_sample_size.into()));
    number(&mut put, "sig_data", decimal(attr.sig_data));
    text
}

fn decimal(value: u64) -> Option<String> {
    (value != 0).then(|| value.to_string())
}

fn hexadecimal(value: u64) -> Option<String> {
    (value != 0).then(|| format!("{value:#x}"))
}

fn number(put: &mut impl FnMut(&str, &str), name: &str, value: Option<String>) {
    if let Some(value) = value {
        put(name, &value);
    }
}

fn names<'a>(put: &mut impl FnMut(&str, &str), name: &str, set: impl Iterator<Item = &'a str>) {
    let set = set.collect::<Vec<_>>().join("|");
    if !set.is_empty() {
        put(name, &set);
    }
}

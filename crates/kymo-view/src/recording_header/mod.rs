//! The header of a recording as `#` lines: where and how it was made.

mod sections;

use std::io::{self, Write};

use kymo_files::perfdata::{Feature, PerfData};

use crate::attribute_text::attribute_text;
use crate::units::{visible, write_line};

/// Writes the header; `captured_on` is when, in words, and `all` adds what is long.
pub fn write_header(
    out: &mut dyn Write,
    file: &PerfData,
    captured_on: Option<&str>,
    all: bool,
) -> io::Result<()> {
    let more = |out: &mut dyn Write, features: &[Feature]| {
        features.iter().try_for_each(|f| sections::write(out, file, *f, all))
    };
    let f = file.features();
    let (offset, size) = file.data_range();
    writeln!(out, "# ========")?;
    if let Some(when) = captured_on {
        write_line(out, format_args!("# captured on    : {when}"))?;
    }
    writeln!(out, "# header version : {}", file.version())?;
    writeln!(out, "# data offset    : {offset}")?;
    writeln!(out, "# data size      : {size}")?;
    if !file.has_pipe_form() {
        writeln!(out, "# feat offset    : {}", offset.saturating_add(size))?;
    }
    let texts = [
        ("hostname", &f.hostname),
        ("os release", &f.osrelease),
        ("perf version", &f.version),
        ("arch", &f.arch),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            write_line(out, format_args!("# {name} : {value}"))?;
        }
    }
    if let Some((available, online)) = f.nrcpus {
        writeln!(out, "# nrcpus online : {online}\n# nrcpus avail : {available}")?;
    }
    for (name, value) in [("cpudesc", &f.cpudesc), ("cpuid", &f.cpuid)] {
        if let Some(value) = value {
            write_line(out, format_args!("# {name} : {value}"))?;
        }
    }
    if let Some(kib) = f.total_mem {
        writeln!(out, "# total memory : {kib} kB")?;
    }
    if !f.cmdline.is_empty() {
        write_line(out, format_args!("# cmdline : {} ", f.cmdline.join(" ")))?;
    }
    for e in file.events() {
        write!(out, "# event : name = {}, , id = {{", visible(&e.name))?;
        for (i, id) in e.ids.iter().enumerate() {
            write!(out, "{}{id}", if i == 0 { " " } else { ", " })?;
        }
        writeln!(out, " }}, {}", attribute_text(&e.attr, " = "))?;
    }
    more(out, &[Feature::CPU_TOPOLOGY, Feature::NUMA_TOPOLOGY, Feature::BRANCH_STACK])?;
    if !f.pmu_mappings.is_empty() {
        let pairs = f.pmu_mappings.iter().map(|(kind, name)| format!("{name} = {kind}"));
        write_line(out, format_args!("# pmu mappings: {}", pairs.collect::<Vec<_>>().join(", ")))?;
    }
    groups(out, file)?;
    more(out, &[Feature::AUXTRACE, Feature::STAT, Feature::CACHE])?;
    if let Some((first, last)) = f.sample_time {
        let seconds = |t: u64| format!("{}.{:06}", t / 1_000_000_000, t % 1_000_000_000 / 1000);
        writeln!(out, "# time of first sample : {}", seconds(first))?;
        writeln!(out, "# time of last sample : {}", seconds(last))?;
        let ms = last.saturating_sub(first) as f64 / 1e6;
        writeln!(out, "# sample duration : {ms:10.3} ms")?;
    }
    more(out, &BEHIND_TIMES)?;
    let missing: Vec<&str> = (1..Feature::BITS)
        .map(Feature)
        .filter(|n| !f.raw.contains_key(n))
        .filter(|n| *n != Feature::TRACING_DATA || f.tracing_data.is_none())
        .filter_map(Feature::name)
        .collect();
    if !missing.is_empty() {
        writeln!(out, "# missing features: {} ", missing.join(" "))?;
    }
    writeln!(out, "# ========\n#")
}

/// Sections in the order of their numbers.
const BEHIND_TIMES: [Feature; 10] = [
    Feature::MEM_TOPOLOGY,
    Feature::CLOCKID,
    Feature::DIR_FORMAT,
    Feature::BPF_PROG_INFO,
    Feature::BPF_BTF,
    Feature::COMPRESSED,
    Feature::CPU_PMU_CAPS,
    Feature::CLOCK_DATA,
    Feature::HYBRID_TOPOLOGY,
    Feature::PMU_CAPS,
];

/// Groups of events, by the names of their members.
fn groups(out: &mut dyn Write, file: &PerfData) -> io::Result<()> {
    for group in &file.features().groups {
        let events = file.events().iter().skip(group.leader as usize);
        let members = events.take(group.members as usize).map(|e| &*e.name);
        // A group without a name has this one.
        let name = if group.name == "{anon_group}" { "" } else { &group.name };
        write_line(
            out,
            format_args!("# group: {name}{{{}}}", members.collect::<Vec<_>>().join(",")),
        )?;
    }
    Ok(())
}

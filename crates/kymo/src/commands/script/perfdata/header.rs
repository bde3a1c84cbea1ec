//! What the feature sections say of the machine, as perf's `--header` lays it
//! out.

use std::io::Write;
use std::path::Path;

use kymo_files::perfdata::{Feature, PerfData};

use crate::commands::report::header::captured;

/// Appends it.
pub(super) fn write(data: &PerfData, path: &Path, out: &mut Vec<u8>) {
    let f = data.features();
    let mut line = |text: std::fmt::Arguments<'_>| {
        let _ = writeln!(out, "# {text}");
    };
    line(format_args!("========"));
    if let Some(when) = captured(path) {
        line(format_args!("captured on    : {when}"));
    }
    line(format_args!("header version : {}", data.version()));
    let (offset, size) = data.data_range();
    line(format_args!("data offset    : {offset}"));
    line(format_args!("data size      : {size}"));
    line(format_args!("feat offset    : {}", offset + size));
    for (name, value) in [
        ("hostname", &f.hostname),
        ("os release", &f.osrelease),
        ("perf version", &f.version),
        ("arch", &f.arch),
    ] {
        if let Some(value) = value {
            line(format_args!("{name} : {value}"));
        }
    }
    if let Some((available, online)) = f.nrcpus {
        line(format_args!("nrcpus online : {online}"));
        line(format_args!("nrcpus avail : {available}"));
    }
    if let Some(v) = &f.cpudesc {
        line(format_args!("cpudesc : {v}"));
    }
    if let Some(v) = &f.cpuid {
        line(format_args!("cpuid : {v}"));
    }
    if let Some(v) = f.total_mem {
        line(format_args!("total memory : {v} kB"));
    }
    if !f.cmdline.is_empty() {
        line(format_args!("cmdline : {} ", f.cmdline.join(" ")));
    }
    for e in data.events() {
        let a = &e.attr;
        line(format_args!(
            "event : name = {}, type = {}, size = {}, config = {:#x}, {{ sample_period, \
             sample_freq }} = {}, sample_type = {:#x}",
            e.name,
            a.kind.0,
            kymo_model::Attr::SIZE,
            a.config,
            a.sample_period,
            a.sample_type.bits()
        ));
    }
    if let Some((first, last)) = f.sample_time {
        let seconds = |t: u64| format!("{}.{:06}", t / 1_000_000_000, t % 1_000_000_000 / 1000);
        line(format_args!("time of first sample : {}", seconds(first)));
        line(format_args!("time of last sample : {}", seconds(last)));
        let ms = last.saturating_sub(first) as f64 / 1e6;
        line(format_args!("sample duration : {ms:10.3} ms"));
    }
    let others: Vec<String> = f
        .raw
        .keys()
        .filter(|k| **k > Feature::SAMPLE_TIME)
        .map(|k| k.name().map_or_else(|| k.0.to_string(), str::to_owned))
        .collect();
    if !others.is_empty() {
        line(format_args!("other sections : {}", others.join(" ")));
    }
    line(format_args!("========"));
    line(format_args!(""));
}

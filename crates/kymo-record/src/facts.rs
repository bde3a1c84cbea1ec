//! The feature sections that describe the machine and the recording.

use std::fs;
use std::path::Path;

use kymo_files::perfdata::Feature;
use kymo_files::perfdata::write::features::{self, BuildIdOf};
use kymo_files::perfdata::write::{EventMeta, FeatureSections, TracingBlob};
use kymo_kernel::cpus;
use kymo_kernel::events::EventSpec;
use kymo_kernel::tracefs::Tracefs;

use crate::build_id;
use crate::error::RecordError;
use crate::hardware;
use crate::options::{Clock, Options};
use crate::scan::Scan;

const PMUS: &str = "/sys/bus/event_source/devices";

/// What is known when the recording begins.
pub(crate) fn at_start(
    options: &Options,
    events: &[EventMeta],
    specs: &[EventSpec],
) -> FeatureSections {
    let mut f = FeatureSections::new();
    let name = rustix::system::uname();
    let text = |s: &std::ffi::CStr| features::string(&s.to_string_lossy());
    f.insert(Feature::HOSTNAME, text(name.nodename()));
    f.insert(Feature::OSRELEASE, text(name.release()));
    f.insert(Feature::ARCH, text(name.machine()));
    f.insert(Feature::VERSION, features::string(&options.version));
    let online = cpus::online();
    let possible = hardware::cpu_list("/sys/devices/system/cpu/possible");
    let available = possible.len().max(online.len()) as u32;
    f.insert(Feature::NRCPUS, features::nr_cpus(available, online.len() as u32));
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if let Some(model) = cpuinfo(&info, &["model name", "Processor", "cpu"]) {
        f.insert(Feature::CPUDESC, features::string(model));
    }
    if let Some(id) = cpuid(&info) {
        f.insert(Feature::CPUID, features::string(&id));
    }
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    if let Some(kb) = hardware::kb_of(&memory, "MemTotal:") {
        f.insert(Feature::TOTAL_MEM, features::number(kb));
    }
    f.insert(Feature::CMDLINE, features::strings(&options.command_line));
    f.insert(Feature::EVENT_DESC, features::event_desc(events));
    f.insert(Feature::CPU_TOPOLOGY, hardware::topology(available));
    let nodes = hardware::numa();
    if !nodes.is_empty() {
        f.insert(Feature::NUMA_TOPOLOGY, features::numa_topology(&nodes));
    }
    let caches = hardware::caches(&online);
    if !caches.is_empty() {
        f.insert(Feature::CACHE, features::caches(&caches));
    }
    if let Some((block, nodes)) = hardware::memory() {
        f.insert(Feature::MEM_TOPOLOGY, features::mem_topology(block, &nodes));
    }
    f.insert(Feature::PMU_MAPPINGS, features::pmu_mappings(&pmus()));
    let mut abilities = hardware::abilities(Path::new(PMUS));
    if let Some(at) = abilities.iter().position(|(name, _)| name == "cpu") {
        f.insert(Feature::CPU_PMU_CAPS, features::pmu_caps(&abilities.remove(at).1));
    }
    if !abilities.is_empty() {
        f.insert(Feature::PMU_CAPS, features::caps_of_pmus(&abilities));
    }
    let groups = groups(specs);
    if !groups.is_empty() {
        f.insert(Feature::GROUP_DESC, features::group_desc(&groups));
    }
    clock(options.clock, &mut f);
    f
}

/// What is known at its end, from a pass over what was written.
pub(crate) fn at_end(scan: &Scan, build_ids: bool, f: &mut FeatureSections) {
    if scan.samples > 0 {
        f.insert(Feature::SAMPLE_TIME, features::sample_time(scan.first_time, scan.last_time));
    }
    if build_ids {
        f.insert(Feature::BUILD_ID, features::build_ids(&build_id_list(scan)));
    }
}

/// The build-ids of the kernel, its modules and all mapped binaries.
pub(crate) fn build_id_list(scan: &Scan) -> Vec<BuildIdOf> {
    let mut list = Vec::new();
    if let Some(id) = build_id::of_kernel() {
        list.push(BuildIdOf { kernel: true, name: b"[kernel.kallsyms]".to_vec(), id });
    }
    for module in kymo_kernel::proc_maps::modules() {
        if let Some(id) = build_id::of_module(&module.name) {
            list.push(BuildIdOf { kernel: true, name: format!("[{}]", module.name).into(), id });
        }
    }
    for (name, id) in &scan.binaries {
        use std::os::unix::ffi::OsStrExt;
        let id = id.or_else(|| build_id::of_file(Path::new(std::ffi::OsStr::from_bytes(name))));
        if let Some(id) = id {
            list.push(BuildIdOf { kernel: false, name: name.clone(), id });
        }
    }
    list
}

/// The formats of the tracepoints among `specs`; none if there are no tracepoints.
pub(crate) fn tracing(specs: &[EventSpec]) -> Result<Option<TracingBlob>, RecordError> {
    let mut systems: Vec<(String, Vec<Vec<u8>>)> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut fs = None;
    for (system, name) in specs.iter().filter_map(|s| s.tracepoint.as_ref()) {
        if !seen.insert((system, name)) {
            continue;
        }
        let event = || format!("{system}:{name}");
        let error = |source| RecordError::Format { event: event(), source };
        let fs = match &fs {
            Some(fs) => fs,
            None => fs.insert(Tracefs::open().map_err(error)?),
        };
        let text = fs.event_format(system, name).map_err(error)?.into_bytes();
        match systems.iter_mut().find(|(s, _)| s == system) {
            Some((_, formats)) => formats.push(text),
            None => systems.push((system.clone(), vec![text])),
        }
    }
    let Some(fs) = fs else { return Ok(None) };
    Ok(Some(TracingBlob {
        header_page: in_one_read(&fs.path("events/header_page")),
        header_event: in_one_read(&fs.path("events/header_event")),
        systems,
        kallsyms: Vec::new(),
        printk_formats: fs.printk_formats().unwrap_or_default().into(),
        cmdlines: fs.saved_cmdlines().unwrap_or_default().into(),
        page_size: rustix::param::page_size() as u32,
    }))
}

/// The kernel gives these files to the first read(2) only: a small one cuts them.
fn in_one_read(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 14];
    let n = fs::File::open(path).and_then(|mut f| std::io::Read::read(&mut f, &mut bytes));
    bytes.truncate(n.unwrap_or(0));
    bytes
}

fn cpuinfo<'a>(info: &'a str, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| {
        info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == *name).then(|| value.trim())
        })
    })
}

/// As perf writes it: vendor, family, model, stepping on x86; the MIDR on ARM.
fn cpuid(info: &str) -> Option<String> {
    if let Ok(midr) =
        fs::read_to_string("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1")
    {
        return Some(midr.trim().to_owned());
    }
    let get = |name| cpuinfo(info, &[name]);
    Some(format!(
        "{},{},{},{}",
        get("vendor_id")?,
        get("cpu family")?,
        get("model")?,
        get("stepping")?
    ))
}

fn pmus() -> Vec<(u32, String)> {
    let Ok(dir) = fs::read_dir(PMUS) else { return Vec::new() };
    let mut found: Vec<(u32, String)> = dir
        .filter_map(Result::ok)
        .filter_map(|e| {
            let kind = fs::read_to_string(e.path().join("type")).ok()?.trim().parse().ok()?;
            Some((kind, e.file_name().into_string().ok()?))
        })
        .collect();
    found.sort();
    found
}

/// `(name, leader, members)` of each group.
fn groups(specs: &[EventSpec]) -> Vec<(String, u32, u32)> {
    let mut groups: Vec<(u32, u32, u32)> = Vec::new();
    for (i, number) in specs.iter().enumerate().filter_map(|(i, s)| Some((i, s.group?))) {
        match groups.iter_mut().find(|g| g.0 == number) {
            Some(g) => g.2 += 1,
            None => groups.push((number, i as u32, 1)),
        }
    }
    // perf's stand-in for a group without a name of its own.
    groups.into_iter().map(|(_, leader, n)| ("{anon_group}".into(), leader, n)).collect()
}

fn clock(clock: Clock, f: &mut FeatureSections) {
    use rustix::time::{
        ClockId, DynamicClockId, clock_getres, clock_gettime, clock_gettime_dynamic,
    };
    let Some(id) = clock.id() else { return };
    let which = match clock {
        Clock::Monotonic | Clock::Perf => ClockId::Monotonic,
        Clock::MonotonicRaw => ClockId::MonotonicRaw,
        // CLOCK_TAI is CLOCK_REALTIME without leap seconds.
        Clock::Realtime | Clock::Tai => ClockId::Realtime,
        Clock::Boottime => ClockId::Boottime,
    };
    let ns = |t: rustix::time::Timespec| t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64;
    f.insert(Feature::CLOCKID, features::number(ns(clock_getres(which))));
    let now = match clock {
        Clock::Tai => match clock_gettime_dynamic(DynamicClockId::Tai) {
            Ok(now) => now,
            Err(_) => return,
        },
        _ => clock_gettime(which),
    };
    let (wall, then) = (ns(clock_gettime(ClockId::Realtime)), ns(now));
    f.insert(Feature::CLOCK_DATA, features::clock_data(id, wall, then));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_in_the_texts() {
        let info =
            "vendor_id\t: A\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: B C\nstepping\t: 1\n";
        assert_eq!(cpuinfo(info, &["model name"]), Some("B C"));
        if cfg!(target_arch = "x86_64") {
            assert_eq!(cpuid(info).as_deref(), Some("A,26,2,1"));
        }
    }
}

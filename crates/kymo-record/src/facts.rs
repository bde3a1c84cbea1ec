//! The feature sections that describe the machine and the recording.

use std::fs;
use std::path::Path;

use kymo_files::perfdata::Feature;
use kymo_files::perfdata::write::features::{self, BuildIdOf};
use kymo_files::perfdata::write::{EventMeta, FeatureSections, TracingBlob};
use kymo_kernel::clock::KernelClock;
use kymo_kernel::cpus;
use kymo_kernel::events::EventSpec;
use kymo_kernel::system::{self, KernelName, SystemRoot};
use kymo_kernel::tracefs::Tracefs;

use crate::build_id;
use crate::error::RecordError;
use crate::hardware;
use crate::options::{RecordClock, RecordOptions};
use crate::scan::Scan;

/// Sections on the kernel that runs.
pub(crate) fn of_kernel() -> FeatureSections {
    let mut f = FeatureSections::new();
    let name = KernelName::running();
    f.insert(Feature::HOSTNAME, features::string(&name.node));
    f.insert(Feature::OSRELEASE, features::string(&name.release));
    f.insert(Feature::ARCH, features::string(&name.machine));
    f
}

/// Sections on the machine.
pub(crate) fn of_machine() -> FeatureSections {
    let (mut f, system) = (of_kernel(), SystemRoot::machine());
    let online = cpus::online();
    let available = system.possible_cpus().len().max(online.len()) as u32;
    f.insert(Feature::NRCPUS, features::nr_cpus(available, online.len() as u32));
    if let Some(model) = system.cpu_description() {
        f.insert(Feature::CPUDESC, features::string(&model));
    }
    if let Some(id) = system.cpu_id() {
        f.insert(Feature::CPUID, features::string(&id));
    }
    if let Some(kb) = system.total_memory_kb() {
        f.insert(Feature::TOTAL_MEM, features::number(kb));
    }
    f.insert(Feature::CPU_TOPOLOGY, hardware::topology(&system, available));
    let nodes = hardware::numa(&system);
    if !nodes.is_empty() {
        f.insert(Feature::NUMA_TOPOLOGY, features::numa_topology(&nodes));
    }
    let caches = hardware::caches(&system, &online);
    if !caches.is_empty() {
        f.insert(Feature::CACHE, features::caches(&caches));
    }
    if let Some((block, nodes)) = hardware::memory(&system) {
        f.insert(Feature::MEM_TOPOLOGY, features::mem_topology(block, &nodes));
    }
    f.insert(Feature::PMU_MAPPINGS, features::pmu_mappings(&system.pmu_types()));
    let mut capabilities = system.pmu_capabilities();
    if let Some(own) = capabilities.remove("cpu") {
        f.insert(Feature::CPU_PMU_CAPS, features::pmu_caps(&own));
    }
    if !capabilities.is_empty() {
        let others: Vec<_> = capabilities.into_iter().collect();
        f.insert(Feature::PMU_CAPS, features::caps_of_pmus(&others));
    }
    f
}

/// Collects the facts that are known when the recording starts.
pub(crate) fn at_start(
    options: &RecordOptions,
    events: &[EventMeta],
    specs: &[EventSpec],
) -> FeatureSections {
    let mut f = of_machine();
    f.insert(Feature::VERSION, features::string(&options.version));
    f.insert(Feature::CMDLINE, features::strings(&options.command_line));
    f.insert(Feature::EVENT_DESC, features::event_desc(events));
    let groups = groups(specs);
    if !groups.is_empty() {
        f.insert(Feature::GROUP_DESC, features::group_desc(&groups));
    }
    clock(options.clock, &mut f);
    f
}

/// Collects the facts that are known at its end, from a pass over the written records.
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
    let (system, mut list) = (SystemRoot::machine(), Vec::new());
    if let Some(id) = system.kernel_build_id() {
        list.push(BuildIdOf { kernel: true, name: b"[kernel.kallsyms]".to_vec(), id });
    }
    for module in kymo_kernel::proc_maps::modules() {
        if let Some(id) = system.module_build_id(&module.name) {
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
        page_size: system::page_size() as u32,
    }))
}

/// The kernel gives these files to the first read(2) only: a small one cuts them.
fn in_one_read(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 14];
    let n = fs::File::open(path).and_then(|mut f| std::io::Read::read(&mut f, &mut bytes));
    bytes.truncate(n.unwrap_or(0));
    bytes
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

fn clock(clock: RecordClock, f: &mut FeatureSections) {
    let Some(id) = clock.id() else { return };
    let which = match clock {
        RecordClock::Monotonic | RecordClock::Perf => KernelClock::Monotonic,
        RecordClock::MonotonicRaw => KernelClock::MonotonicRaw,
        RecordClock::Realtime => KernelClock::Realtime,
        RecordClock::Tai => KernelClock::Tai,
        RecordClock::Boottime => KernelClock::Boottime,
    };
    f.insert(Feature::CLOCKID, features::number(which.resolution()));
    if let (Some(then), Some(wall)) = (which.now(), KernelClock::Realtime.now()) {
        f.insert(Feature::CLOCK_DATA, features::clock_data(id, wall, then));
    }
}

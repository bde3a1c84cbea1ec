//! Sections of the header as text: the machine's processors, memory and caches,
//! which are long and shown with `-I`, capabilities of its PMUs, the clock, and
//! the kinds of data.

use std::io::{self, Write};

use kymo_debuginfo::BtfTypes;
use kymo_files::perfdata::read::{
    BpfFunction, Capabilities, CompressionInfo, CpuTopology, FeatureSection, RecordedBpfProgram,
};
use kymo_files::perfdata::{Feature, PerfData};

use crate::units::write_line;

/// Sections that are shown with `-I` only.
const LONG: [Feature; 5] = [
    Feature::CPU_TOPOLOGY,
    Feature::NUMA_TOPOLOGY,
    Feature::CACHE,
    Feature::MEM_TOPOLOGY,
    Feature::HYBRID_TOPOLOGY,
];

/// Writes the lines of a section, as far as it can be read; of a long one that it is
/// there unless `all` is wanted.
pub(super) fn write(
    out: &mut dyn Write,
    file: &PerfData,
    feature: Feature,
    all: bool,
) -> io::Result<()> {
    if !file.features().raw.contains_key(&feature) {
        return Ok(());
    }
    if let (Some(name), true) = (feature.name(), !all && LONG.contains(&feature)) {
        return writeln!(out, "# {name} info available, use -I to display");
    }
    let Some((section, damage)) = file.features().section(feature, file.endian()) else {
        return Ok(());
    };
    // A section of one value that could not be read has nothing to show.
    if damage.is_none() || is_list(&section) {
        lines(&section, file)
            .iter()
            .try_for_each(|line| write_line(out, format_args!("# {line}")))?;
    }
    if let (Some(e), Some(name)) = (damage, feature.name()) {
        write_line(out, format_args!("# {name}: {e}"))?;
    }
    Ok(())
}

fn is_list(section: &FeatureSection) -> bool {
    !matches!(
        section,
        FeatureSection::ClockId(_)
            | FeatureSection::ClockData(_)
            | FeatureSection::DirFormat(_)
            | FeatureSection::Compressed(_)
            | FeatureSection::CpuPmuCaps(_)
    )
}

fn lines(section: &FeatureSection, file: &PerfData) -> Vec<String> {
    match section {
        FeatureSection::CpuTopology(topology) => cpu_topology(topology),
        FeatureSection::NumaTopology(nodes) => nodes
            .iter()
            .flat_map(|n| {
                let (node, total, free) = (n.node, n.total_kib, n.free_kib);
                [
                    format!("node{node} meminfo  : total = {total} kB, free = {free} kB"),
                    format!("node{node} cpu list : {}", n.cpus),
                ]
            })
            .collect(),
        FeatureSection::Cache(caches) => {
            let line = |c: &kymo_files::perfdata::read::CpuCache| {
                format!(" L{} {:<15} {:>8} [{}]", c.level, c.cache_type, c.size, c.cpus)
            };
            std::iter::once("CPU cache info:".to_owned()).chain(caches.iter().map(line)).collect()
        }
        FeatureSection::MemTopology(memory) => {
            let (count, block) = (memory.stated, memory.block_size);
            let line = |(node, blocks): &(u64, Vec<u64>)| {
                let size = unit((blocks.len() as u64).saturating_mul(block));
                format!("   {node} [{size}]: {}", ranges(blocks))
            };
            let heading = format!("memory nodes (nr {count}, block size {block:#x}):");
            std::iter::once(heading).chain(memory.nodes.iter().map(line)).collect()
        }
        FeatureSection::ClockId(resolution) => {
            vec![format!("clockid frequency: {} MHz", 1000 / (*resolution).max(1))]
        }
        FeatureSection::ClockData(data) => {
            clock_data(data.clock_id, data.time_of_day, data.clock_time)
        }
        FeatureSection::BranchStack => vec!["contains samples with branch stack".into()],
        FeatureSection::Auxtrace => {
            vec!["contains AUX area data (e.g. instruction trace)".into()]
        }
        FeatureSection::Stat => vec!["contains stat data".into()],
        FeatureSection::DirFormat(version) => vec![format!("directory data version : {version}")],
        FeatureSection::Compressed(info) => {
            let kind = match info.algorithm {
                CompressionInfo::ZSTD => "Zstd",
                _ => "Unknown",
            };
            vec![format!("compressed : {kind}, level = {}, ratio = {}", info.level, info.ratio)]
        }
        FeatureSection::CpuPmuCaps(all) => vec![capabilities("cpu", all)],
        FeatureSection::PmuCaps(pmus) => {
            pmus.iter().map(|(pmu, all)| capabilities(pmu, all)).collect()
        }
        FeatureSection::HybridTopology(pmus) => {
            let line = |p: &kymo_files::perfdata::read::HybridPmu| {
                format!("{} cpu list : {}", p.pmu, p.cpus)
            };
            std::iter::once("hybrid cpu system:".to_owned()).chain(pmus.iter().map(line)).collect()
        }
        FeatureSection::BpfProgInfo(programs) => {
            programs.iter().flat_map(|program| bpf_program(program, file)).collect()
        }
        FeatureSection::BpfBtf(objects) => {
            objects.iter().map(|(id, _)| format!("btf info of id {id}")).collect()
        }
    }
}

/// A program's functions, by the names that the kernel gives them among its symbols.
fn bpf_program(program: &RecordedBpfProgram, file: &PerfData) -> Vec<String> {
    let id = program.id;
    let objects = match file.features().section(Feature::BPF_BTF, file.endian()) {
        Some((FeatureSection::BpfBtf(objects), _)) => objects,
        _ => Vec::new(),
    };
    let btf = objects.into_iter().find(|(of, _)| *of == program.btf && program.btf != 0);
    let types = btf.and_then(|(_, bytes)| BtfTypes::parse(bytes, None).ok());
    let function = |(n, f): (usize, &BpfFunction)| {
        let tag: String = f.tag.iter().map(|byte| format!("{byte:02x}")).collect();
        let own = f.type_id.zip(types.as_ref()).and_then(|(id, types)| Some(types.get(id)?.name));
        let name = match own {
            Some(name) => name,
            None if n == 0 && !program.name.is_empty() => &program.name,
            None => "F",
        };
        format!("bpf_prog_{tag}_{name} addr {:#x} size {}", f.address, f.size)
    };
    let mut functions = program.functions.iter().enumerate().map(function);
    match program.functions.len() {
        0 => vec![format!("bpf_prog_info of id {id}")],
        1 => vec![format!("bpf_prog_info {id}: {}", functions.next().unwrap_or_default())],
        _ => std::iter::once(format!("bpf_prog_info {id}:"))
            .chain(functions.enumerate().map(|(n, line)| format!("\tsub_prog {n}: {line}")))
            .collect(),
    }
}

fn cpu_topology(topology: &CpuTopology) -> Vec<String> {
    let siblings = [
        ("sibling sockets ", &topology.sockets),
        ("sibling dies    ", &topology.dies),
        ("sibling threads ", &topology.threads),
    ];
    let mut lines: Vec<String> = siblings
        .iter()
        .flat_map(|(heading, lists)| lists.iter().map(move |l| format!("{heading}: {l}")))
        .collect();
    lines.extend(topology.cpus.iter().enumerate().map(|(n, cpu)| {
        let die = cpu.die.map_or(String::new(), |die| format!("Die ID {die}, "));
        format!("CPU {n}: Core ID {}, {die}Socket ID {}", cpu.core, cpu.socket)
    }));
    lines
}

fn clock_data(clock_id: u32, time_of_day: u64, clock_time: u64) -> Vec<String> {
    let name = match clock_id {
        0 => "realtime",
        1 => "monotonic",
        4 => "monotonic_raw",
        7 => "boottime",
        11 => "tai",
        _ => "unknown",
    };
    let seconds = |t: u64| (t / 1_000_000_000, t % 1_000_000_000);
    let ((s, n), (cs, cn)) = (seconds(time_of_day), seconds(clock_time));
    let micros = n / 1000;
    vec![
        format!("clockid: {name} ({clock_id})"),
        format!("reference time: {s}.{micros:06} (TOD) = {cs}.{cn:09} ({name})"),
    ]
}

fn capabilities(pmu: &str, all: &Capabilities) -> String {
    let pairs: Vec<String> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let text = if pairs.is_empty() { "not available".into() } else { pairs.join(", ") };
    format!("{pmu} pmu capabilities: {text}")
}

/// A size in the largest unit that leaves a whole number: `24G`.
fn unit(size: u64) -> String {
    let (mut size, mut unit) = (size, "B");
    for next in ["K", "M", "G"] {
        if size < 1024 {
            break;
        }
        size /= 1024;
        unit = next;
    }
    format!("{size}{unit}")
}

/// Ascending numbers as `0-3,5`.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[u64]| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

//! The bytes of each feature section, from plain facts.

use kymo_model::{BuildId, RecordKind};

use super::{EventMeta, attr_bytes, attr_size};

/// Strings are padded to a multiple of this.
const NAME_ALIGN: usize = 64;
/// On build-id records: the id's size is stated behind it.
const MISC_BUILD_ID_SIZE: u16 = 1 << 15;

/// A string: padded length, text, NUL, padding.
pub fn string(text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let len = (text.len() + 1).next_multiple_of(NAME_ALIGN);
    let mut b = (len as u32).to_ne_bytes().to_vec();
    b.extend_from_slice(text);
    b.resize(4 + len, 0);
    b
}

/// A count, then as many strings: CMDLINE.
pub fn strings(texts: &[String]) -> Vec<u8> {
    let mut b = (texts.len() as u32).to_ne_bytes().to_vec();
    texts.iter().for_each(|t| b.extend(string(t)));
    b
}

/// NRCPUS: available, then online.
pub fn nr_cpus(available: u32, online: u32) -> Vec<u8> {
    [available, online].iter().flat_map(|n| n.to_ne_bytes()).collect()
}

/// A 64-bit number: TOTAL_MEM in kB, CLOCKID's resolution.
pub fn number(n: u64) -> Vec<u8> {
    n.to_ne_bytes().to_vec()
}

/// EVENT_DESC: every event with its attribute, name and ids.
pub fn event_desc(events: &[EventMeta]) -> Vec<u8> {
    let mut b = (events.len() as u32).to_ne_bytes().to_vec();
    let size = attr_size(events);
    b.extend((size as u32).to_ne_bytes());
    for e in events {
        b.extend(attr_bytes(&e.attr, size));
        b.extend((e.ids.len() as u32).to_ne_bytes());
        b.extend(string(&e.name));
        e.ids.iter().for_each(|id| b.extend(id.to_ne_bytes()));
    }
    b
}

/// CPU_TOPOLOGY: lists of those that share a socket and a core, then core and socket of each CPU,
/// and the same of dies where the kernel reports them.
pub fn cpu_topology(
    cores: &[String],
    threads: &[String],
    dies: &[String],
    cpus: &[(u32, u32, u32)],
) -> Vec<u8> {
    let mut b = strings(cores);
    b.extend(strings(threads));
    cpus.iter().for_each(|(core, socket, _)| {
        b.extend(core.to_ne_bytes());
        b.extend(socket.to_ne_bytes());
    });
    if !dies.is_empty() {
        b.extend(strings(dies));
        cpus.iter().for_each(|(_, _, die)| b.extend(die.to_ne_bytes()));
    }
    b
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is nearest to the CPU.
    pub level: u32,
    /// Bytes of a line.
    pub line_size: u32,
    /// Sets of lines.
    pub sets: u32,
    /// Lines of a set.
    pub ways: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// As the kernel writes it: `32K`.
    pub size: String,
    /// The CPUs that share it, as a list.
    pub cpus: String,
}

/// CACHE.
pub fn caches(caches: &[Cache]) -> Vec<u8> {
    const VERSION: u32 = 1;
    let mut b = VERSION.to_ne_bytes().to_vec();
    b.extend((caches.len() as u32).to_ne_bytes());
    for c in caches {
        [c.level, c.line_size, c.sets, c.ways].iter().for_each(|n| b.extend(n.to_ne_bytes()));
        [&c.kind, &c.size, &c.cpus].iter().for_each(|t| b.extend(string(t)));
    }
    b
}

/// The memory blocks of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNode {
    /// Its number.
    pub node: u64,
    /// The numbers of its blocks, in order.
    pub blocks: Vec<u64>,
}

/// MEM_TOPOLOGY: the size of a block, and a bitmap of blocks for each node.
pub fn mem_topology(block: u64, nodes: &[MemoryNode]) -> Vec<u8> {
    const VERSION: u64 = 1;
    let words = [VERSION, block, nodes.len() as u64];
    let mut b: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    for n in nodes {
        let bits = n.blocks.last().map_or(0, |last| last + 1);
        let mut map = vec![0u64; (bits as usize).div_ceil(64)];
        for block in &n.blocks {
            if let Some(word) = map.get_mut((block / 64) as usize) {
                *word |= 1 << (block % 64);
            }
        }
        // The size stands twice: the node's, and the bitmap's own.
        [n.node, bits, bits].iter().chain(&map).for_each(|w| b.extend(w.to_ne_bytes()));
    }
    b
}

/// A NUMA node.
#[derive(Clone, Debug)]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its memory.
    pub total_kb: u64,
    /// Free memory of the node, in KiB.
    pub free_kb: u64,
    /// Its CPUs, as a list.
    pub cpus: String,
}

/// NUMA_TOPOLOGY.
pub fn numa_topology(nodes: &[NumaNode]) -> Vec<u8> {
    let mut b = (nodes.len() as u32).to_ne_bytes().to_vec();
    for n in nodes {
        b.extend(n.node.to_ne_bytes());
        b.extend(n.total_kb.to_ne_bytes());
        b.extend(n.free_kb.to_ne_bytes());
        b.extend(string(&n.cpus));
    }
    b
}

/// PMU_MAPPINGS: the type number of each PMU.
pub fn pmu_mappings(pmus: &[(u32, String)]) -> Vec<u8> {
    let mut b = (pmus.len() as u32).to_ne_bytes().to_vec();
    for (kind, name) in pmus {
        b.extend(kind.to_ne_bytes());
        b.extend(string(name));
    }
    b
}

/// Names and values of what a PMU can do: CPU_PMU_CAPS.
pub fn pmu_caps(caps: &[(String, String)]) -> Vec<u8> {
    let mut b = (caps.len() as u32).to_ne_bytes().to_vec();
    for (name, value) in caps {
        b.extend(string(name));
        b.extend(string(value));
    }
    b
}

/// PMU_CAPS: the same of other PMUs, each before its name.
pub fn caps_of_pmus(pmus: &[(String, Vec<(String, String)>)]) -> Vec<u8> {
    let mut b = (pmus.len() as u32).to_ne_bytes().to_vec();
    for (name, caps) in pmus {
        b.extend(pmu_caps(caps));
        b.extend(string(name));
    }
    b
}

/// GROUP_DESC: name, index of the leader, members.
pub fn group_desc(groups: &[(String, u32, u32)]) -> Vec<u8> {
    let mut b = (groups.len() as u32).to_ne_bytes().to_vec();
    for (name, leader, members) in groups {
        b.extend(string(name));
        b.extend(leader.to_ne_bytes());
        b.extend(members.to_ne_bytes());
    }
    b
}

/// SAMPLE_TIME: of the first and of the last sample.
pub fn sample_time(first: u64, last: u64) -> Vec<u8> {
    [first, last].iter().flat_map(|t| t.to_ne_bytes()).collect()
}

/// CLOCK_DATA: the same moment on the recording's clock and on the wall's.
pub fn clock_data(clockid: i32, wall_ns: u64, clock_ns: u64) -> Vec<u8> {
    let mut b = 1u32.to_ne_bytes().to_vec();
    b.extend(clockid.to_ne_bytes());
    b.extend(wall_ns.to_ne_bytes());
    b.extend(clock_ns.to_ne_bytes());
    b
}

/// COMPRESSED: zstd at `level`; no record expands to more than `chunk` bytes.
pub fn compressed(level: u32, ratio: u32, chunk: u32) -> Vec<u8> {
    [1u32, 1, level, ratio, chunk].iter().flat_map(|t| t.to_ne_bytes()).collect()
}

/// A binary and its build-id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BuildIdOf {
    /// The kernel or a module.
    pub kernel: bool,
    /// File name, `[kernel.kallsyms]`, `[module]`.
    pub name: Vec<u8>,
    /// The id.
    pub id: BuildId,
}

/// The build-id record of one binary in a pipe, where records are multiples of eight bytes long.
pub fn build_id_record(entry: &BuildIdOf) -> Vec<u8> {
    let mut b = build_id(entry);
    b.resize(b.len().next_multiple_of(8), 0);
    let size = (b.len() as u16).to_ne_bytes();
    b[..4].copy_from_slice(&RecordKind::HEADER_BUILD_ID.0.to_ne_bytes());
    b[6..8].copy_from_slice(&size);
    b
}

/// The build-id record of one binary in the section BUILD_ID.
pub fn build_id(entry: &BuildIdOf) -> Vec<u8> {
    let name_len = (entry.name.len() + 1).next_multiple_of(NAME_ALIGN);
    let misc = MISC_BUILD_ID_SIZE | if entry.kernel { 1 } else { 2 };
    let mut b = Vec::with_capacity(36 + name_len);
    b.extend([0; 4]);
    b.extend(misc.to_ne_bytes());
    b.extend((36 + name_len as u16).to_ne_bytes());
    b.extend((-1i32).to_ne_bytes());
    let id = entry.id.as_bytes();
    b.extend_from_slice(id);
    b.resize(32, 0);
    b.push(id.len() as u8);
    b.resize(36, 0);
    b.extend_from_slice(&entry.name);
    b.resize(36 + name_len, 0);
    b
}

/// BUILD_ID.
pub fn build_ids(entries: &[BuildIdOf]) -> Vec<u8> {
    entries.iter().flat_map(build_id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_id_records_are_as_perf_lays_them_out() {
        let entry =
            BuildIdOf { kernel: false, name: b"/bin/true".to_vec(), id: BuildId::new(&[0xab; 20]) };
        let b = build_id(&entry);
        assert_eq!(&b[..8], &[0, 0, 0, 0, 2, 0x80, 100, 0]);
        assert_eq!((b[8], b[12], b[31], b[32], b[36], b.len()), (255, 0xab, 0xab, 20, b'/', 100));
        let record = build_id_record(&entry);
        assert_eq!(&record[..8], &[67, 0, 0, 0, 2, 0x80, 104, 0]);
        assert_eq!((record.len(), &record[8..100]), (104, &b[8..]));
    }

    #[test]
    fn strings_are_padded() {
        assert_eq!(string("").len(), 68);
        assert_eq!(string(&"x".repeat(64))[..4], 128u32.to_ne_bytes());
    }
}

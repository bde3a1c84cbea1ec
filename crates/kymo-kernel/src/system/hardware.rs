//! Hardware of the machine: processors, caches, memory nodes, PMUs.

use std::collections::BTreeMap;

use super::SystemRoot;
use crate::cpus;

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";
const PMUS: &str = "sys/bus/event_source/devices";

/// Blocks of memory with higher numbers are not believed, whatever sysfs says.
const MOST_BLOCKS: u64 = 1 << 22;
/// Levels and kinds of caches that a CPU has.
const MOST_CACHES: u32 = 10;

/// CPUs that share something, as lists such as `0-3,8`, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSiblings {
    /// CPUs of each socket.
    pub sockets: Vec<String>,
    /// CPUs of each core.
    pub cores: Vec<String>,
    /// CPUs of each die.
    pub dies: Vec<String>,
}

/// A cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCache {
    /// 1 is the nearest.
    pub level: u32,
    /// Bytes of a line.
    pub line_size: u32,
    /// Sets.
    pub sets: u32,
    /// Ways of associativity.
    pub ways: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Its size as sysfs words it (`32K`).
    pub size: String,
    /// The CPUs that share it.
    pub cpus: String,
}

/// The memory and the CPUs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// The node's number.
    pub node: u32,
    /// KiB of memory.
    pub total_kb: u64,
    /// KiB of memory that are free.
    pub free_kb: u64,
    /// The CPUs, as a list such as `0-3`.
    pub cpus: String,
}

/// The blocks of memory that can be plugged, by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryBlocks {
    /// Bytes of a block.
    pub block_size: u64,
    /// Numbers of blocks, ascending.
    pub of_nodes: Vec<(u32, Vec<u64>)>,
}

impl SystemRoot {
    /// Name of a block device, such as `vda`, by its numbers.
    pub fn block_device_name(&self, major: u32, minor: u32) -> Option<String> {
        let text = self.text(format!("sys/dev/block/{major}:{minor}/uevent"))?;
        text.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(str::to_owned)
    }

    /// The CPUs that there may be.
    pub fn possible_cpus(&self) -> Vec<u32> {
        self.list(&format!("{CPUS}/possible"))
    }

    /// The CPUs (or nodes) that a file of sysfs lists.
    fn list(&self, path: &str) -> Vec<u32> {
        let text = self.word(path).unwrap_or_default();
        cpus::parse_list(&text).unwrap_or_default()
    }

    /// The processor's name.
    pub fn cpu_description(&self) -> Option<String> {
        let info = self.text("proc/cpuinfo")?;
        Some(cpuinfo(&info, &["model name", "Processor", "cpu"])?.to_owned())
    }

    /// The processor's kind as perf writes it: vendor, family, model and stepping on
    /// x86; the MIDR on ARM.
    pub fn cpu_id(&self) -> Option<String> {
        if let Some(midr) = self.word(format!("{CPUS}/cpu0/regs/identification/midr_el1")) {
            return Some(midr);
        }
        let info = self.text("proc/cpuinfo")?;
        let get = |name| cpuinfo(&info, &[name]);
        Some(format!(
            "{},{},{},{}",
            get("vendor_id")?,
            get("cpu family")?,
            get("model")?,
            get("stepping")?
        ))
    }

    /// KiB of memory that the kernel manages.
    pub fn total_memory_kb(&self) -> Option<u64> {
        kb_of(&self.text("proc/meminfo")?, "MemTotal:")
    }

    /// Which of the first `count` CPUs share a socket, a core or a die.
    pub fn cpu_siblings(&self, count: u32) -> CpuSiblings {
        let mut found = CpuSiblings::default();
        for cpu in 0..count {
            let topology = format!("{CPUS}/cpu{cpu}/topology");
            let add = |lists: &mut Vec<String>, file: &str| {
                let list = self.word(format!("{topology}/{file}"));
                lists.extend(list.filter(|list| !lists.contains(list)));
            };
            add(&mut found.sockets, "core_siblings_list");
            add(&mut found.cores, "thread_siblings_list");
            add(&mut found.dies, "die_cpus_list");
        }
        found
    }

    /// The caches of these CPUs, each once, the nearest first.
    pub fn cpu_caches(&self, cpus: &[u32]) -> Vec<CpuCache> {
        let mut found: Vec<CpuCache> = Vec::new();
        for cpu in cpus {
            for index in 0..MOST_CACHES {
                let directory = format!("{CPUS}/cpu{cpu}/cache/index{index}");
                let word = |name: &str| self.word(format!("{directory}/{name}"));
                let number = |name: &str| word(name).and_then(|t| t.parse().ok()).unwrap_or(0);
                let Some(level) = word("level").and_then(|t| t.parse().ok()) else { break };
                let cache = CpuCache {
                    level,
                    line_size: number("coherency_line_size"),
                    sets: number("number_of_sets"),
                    ways: number("ways_of_associativity"),
                    kind: word("type").unwrap_or_default(),
                    size: word("size").unwrap_or_default(),
                    cpus: word("shared_cpu_list").unwrap_or_default(),
                };
                if !found.contains(&cache) {
                    found.push(cache);
                }
            }
        }
        found.sort_by_key(|cache| cache.level);
        found
    }

    /// The nodes of memory that are online.
    pub fn memory_nodes(&self) -> Vec<NodeMemory> {
        let nodes = self.list(&format!("{NODES}/online")).into_iter();
        let node = |node: u32| {
            let directory = format!("{NODES}/node{node}");
            let memory = self.text(format!("{directory}/meminfo"))?;
            Some(NodeMemory {
                node,
                total_kb: kb_of(&memory, "MemTotal:")?,
                free_kb: kb_of(&memory, "MemFree:")?,
                cpus: self.word(format!("{directory}/cpulist"))?,
            })
        };
        nodes.filter_map(node).collect()
    }

    /// The blocks of memory; none where the kernel cannot plug memory in.
    pub fn memory_blocks(&self) -> Option<MemoryBlocks> {
        let block_size = self.word("sys/devices/system/memory/block_size_bytes")?;
        let block_size = u64::from_str_radix(&block_size, 16).ok()?;
        let mut of_nodes = Vec::new();
        for node in self.list(&format!("{NODES}/online")) {
            let names = self.names(format!("{NODES}/node{node}"));
            let number = |name: &String| name.strip_prefix("memory")?.parse().ok();
            let mut blocks: Vec<u64> = names.iter().filter_map(number).collect();
            blocks.sort_unstable();
            blocks.retain(|block| *block < MOST_BLOCKS);
            if !blocks.is_empty() {
                of_nodes.push((node, blocks));
            }
        }
        (!of_nodes.is_empty()).then_some(MemoryBlocks { block_size, of_nodes })
    }

    /// The type and the name of each PMU, ascending.
    pub fn pmu_types(&self) -> Vec<(u32, String)> {
        let names = self.names(PMUS).into_iter();
        let typed = |name: String| Some((self.number(format!("{PMUS}/{name}/type"))?, name));
        let mut found: Vec<(u32, String)> = names.filter_map(typed).collect();
        found.sort();
        found
    }

    /// The capabilities of each PMU that states some: the files in its directory `caps`.
    pub fn pmu_capabilities(&self) -> BTreeMap<String, Vec<(String, String)>> {
        let of = |pmu: &String| -> Vec<(String, String)> {
            let directory = format!("{PMUS}/{pmu}/caps");
            let names = self.names(&directory).into_iter();
            names
                .filter_map(|name| {
                    let value = self.word(format!("{directory}/{name}"))?;
                    Some((name, value))
                })
                .collect()
        };
        let all = self.names(PMUS).into_iter().map(|pmu| (of(&pmu), pmu));
        all.filter(|(held, _)| !held.is_empty()).map(|(held, pmu)| (pmu, held)).collect()
    }
}

fn cpuinfo<'a>(info: &'a str, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| {
        info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == *name).then(|| value.trim())
        })
    })
}

/// The number behind `key`.
fn kb_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once(key))?.1;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with these files.
    fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, SystemRoot) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let system = SystemRoot::below(dir.path());
        (dir, system)
    }

    #[test]
    fn processors_are_read() {
        let info =
            "vendor_id\t: A\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: B C\nstepping\t: 1\n";
        let (_dir, system) = system(&[
            ("proc/cpuinfo", info),
            ("proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\n"),
            ("sys/devices/system/cpu/possible", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/topology/core_siblings_list", "0-1\n"),
            ("sys/devices/system/cpu/cpu1/topology/core_siblings_list", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0\n"),
            ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/level", "2\n"),
            ("sys/devices/system/cpu/cpu0/cache/index0/size", "1024K\n"),
            ("sys/devices/system/cpu/cpu1/cache/index0/level", "1\n"),
        ]);
        assert_eq!(system.cpu_description().as_deref(), Some("B C"));
        assert_eq!(system.cpu_id().as_deref(), Some("A,26,2,1"));
        assert_eq!(system.total_memory_kb(), Some(1024));
        assert_eq!(system.possible_cpus(), [0, 1]);
        let siblings = system.cpu_siblings(2);
        assert_eq!((siblings.sockets, siblings.dies), (vec!["0-1".to_owned()], vec![]));
        assert_eq!(siblings.cores, ["0", "1"]);
        let caches = system.cpu_caches(&[0, 1]);
        let shown: Vec<_> = caches.iter().map(|c| (c.level, c.size.as_str(), c.sets)).collect();
        assert_eq!(shown, [(1, "", 0), (2, "1024K", 0)]);
    }

    #[test]
    fn memory_is_read_by_node() {
        let (dir, system) = system(&[
            ("sys/devices/system/node/online", "0-1\n"),
            (
                "sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal: 64 kB\nNode 0 MemFree:  12 kB\n",
            ),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/memory/block_size_bytes", "8000000\n"),
        ]);
        let node = NodeMemory { node: 0, total_kb: 64, free_kb: 12, cpus: "0-3".into() };
        assert_eq!(system.memory_nodes(), [node]);
        assert_eq!(system.memory_blocks(), None);
        for block in ["memory2", "memory10", "memory99999999999", "memory_x", "cpu0"] {
            std::fs::create_dir(dir.path().join("sys/devices/system/node/node0").join(block))
                .unwrap();
        }
        let blocks = MemoryBlocks { block_size: 0x800_0000, of_nodes: vec![(0, vec![2, 10])] };
        assert_eq!(system.memory_blocks(), Some(blocks));
    }

    #[test]
    fn capabilities_are_read_by_pmu() {
        let (_dir, system) = system(&[
            ("sys/bus/event_source/devices/cpu/caps/max_precise", "3\n"),
            ("sys/bus/event_source/devices/cpu/caps/branches", "32\n"),
            ("sys/bus/event_source/devices/cpu/type", "4\n"),
            ("sys/bus/event_source/devices/cpu/events/cycles", "event=0x3c\n"),
            ("sys/bus/event_source/devices/software/type", "1\n"),
            ("sys/bus/event_source/devices/ibs_op/caps/zen4_ibs_extensions", "1\n"),
        ]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            ("cpu".to_owned(), vec![pair("branches", "32"), pair("max_precise", "3")]),
            ("ibs_op".to_owned(), vec![pair("zen4_ibs_extensions", "1")]),
        ];
        assert_eq!(system.pmu_capabilities(), BTreeMap::from(expected));
        assert_eq!(system.pmu_types(), [(1, "software".to_owned()), (4, "cpu".to_owned())]);
    }
}

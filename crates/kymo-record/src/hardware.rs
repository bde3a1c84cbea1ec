//! What the machine is made of, as sysfs tells: CPUs, caches, nodes, memory.

use std::fs;
use std::path::Path;

use kymo_files::perfdata::write::features::{self, Cache, MemoryNode, NumaNode};
use kymo_kernel::cpus;

/// The bitmap of a node's memory is not made larger, whatever sysfs says.
const MOST_BLOCKS: u64 = 1 << 22;

/// What each PMU can do, by its name: the files in its folder `caps`.
pub(crate) fn abilities(pmus: &Path) -> Vec<(String, Vec<(String, String)>)> {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let abilities = |pmu: &str| {
        let folder = pmus.join(pmu).join("caps");
        let value = |name: &String| Some(fs::read_to_string(folder.join(name)).ok()?.trim().into());
        let all = names(&folder).into_iter();
        all.filter_map(|name| Some((name.clone(), value(&name)?))).collect::<Vec<_>>()
    };
    let all = names(pmus).into_iter().map(|pmu| (abilities(&pmu), pmu));
    all.filter(|(held, _)| !held.is_empty()).map(|(held, pmu)| (pmu, held)).collect()
}

/// The CPUs (or nodes) that a file of sysfs lists.
pub(crate) fn cpu_list(path: &str) -> Vec<u32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    cpus::parse_list(text.trim()).unwrap_or_default()
}

/// The number behind `key`.
pub(crate) fn kb_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let at = line.find(key)?;
        line[at + key.len()..].split_ascii_whitespace().next()?.parse().ok()
    })
}

/// CPU_TOPOLOGY: who shares a socket, a core and a die with whom.
pub(crate) fn topology(available: u32) -> Vec<u8> {
    let mut lists = [Vec::new(), Vec::new(), Vec::new()];
    let files = ["core_siblings_list", "thread_siblings_list", "die_cpus_list"];
    let mut places = Vec::new();
    for cpu in 0..available {
        let dir = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        for (list, file) in lists.iter_mut().zip(files) {
            if let Ok(text) = fs::read_to_string(format!("{dir}/{file}")) {
                let text = text.trim().to_owned();
                if !list.contains(&text) {
                    list.push(text);
                }
            }
        }
        places.push(cpus::topology(cpu));
    }
    let [cores, threads, dies] = lists;
    let places: Vec<_> = places.iter().map(|p| (p.core, p.socket, p.die)).collect();
    features::cpu_topology(&cores, &threads, &dies, &places)
}

/// The memory and the CPUs of each node.
pub(crate) fn numa() -> Vec<NumaNode> {
    let nodes = cpu_list("/sys/devices/system/node/online");
    nodes
        .into_iter()
        .filter_map(|node| {
            let dir = format!("/sys/devices/system/node/node{node}");
            let memory = fs::read_to_string(format!("{dir}/meminfo")).ok()?;
            Some(NumaNode {
                node,
                total_kb: kb_of(&memory, "MemTotal:")?,
                free_kb: kb_of(&memory, "MemFree:")?,
                cpus: fs::read_to_string(format!("{dir}/cpulist")).ok()?.trim().to_owned(),
            })
        })
        .collect()
}

/// The caches, each once.
pub(crate) fn caches(online: &[u32]) -> Vec<Cache> {
    let mut found: Vec<Cache> = Vec::new();
    for cpu in online {
        for index in 0..10 {
            let dir = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
            let text = |name: &str| {
                let text = fs::read_to_string(format!("{dir}/{name}")).ok()?;
                Some(text.trim().to_owned())
            };
            let number = |name: &str| text(name).and_then(|t| t.parse().ok()).unwrap_or(0);
            let Some(level) = text("level").and_then(|t| t.parse().ok()) else { break };
            let cache = Cache {
                level,
                line_size: number("coherency_line_size"),
                sets: number("number_of_sets"),
                ways: number("ways_of_associativity"),
                kind: text("type").unwrap_or_default(),
                size: text("size").unwrap_or_default(),
                cpus: text("shared_cpu_list").unwrap_or_default(),
            };
            if !found.contains(&cache) {
                found.push(cache);
            }
        }
    }
    found.sort_by_key(|c| c.level);
    found
}

/// The size of a memory block, and which blocks belong to which node; none
/// where the kernel cannot plug memory in.
pub(crate) fn memory() -> Option<(u64, Vec<MemoryNode>)> {
    let block = fs::read_to_string("/sys/devices/system/memory/block_size_bytes").ok()?;
    let block = u64::from_str_radix(block.trim(), 16).ok()?;
    let mut nodes = Vec::new();
    for node in cpu_list("/sys/devices/system/node/online") {
        let dir = fs::read_dir(format!("/sys/devices/system/node/node{node}")).ok()?;
        let mut blocks: Vec<u64> = dir
            .filter_map(|e| e.ok()?.file_name().to_str()?.strip_prefix("memory")?.parse().ok())
            .collect();
        blocks.sort_unstable();
        blocks.retain(|b| *b < MOST_BLOCKS);
        if !blocks.is_empty() {
            nodes.push(MemoryNode { node: node.into(), blocks });
        }
    }
    (!nodes.is_empty()).then_some((block, nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_are_read_by_pmu() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("cpu/caps/max_precise", "3\n");
        file("cpu/caps/branches", "32\n");
        file("cpu/type", "4\n");
        file("software/type", "1\n");
        file("ibs_op/caps/zen4_ibs_extensions", "1\n");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [
            ("cpu".to_owned(), vec![pair("branches", "32"), pair("max_precise", "3")]),
            ("ibs_op".to_owned(), vec![pair("zen4_ibs_extensions", "1")]),
        ];
        assert_eq!(abilities(dir.path()), expected);
        assert_eq!(abilities(&dir.path().join("nowhere")), []);
    }

    #[test]
    fn sizes_are_found_in_the_texts() {
        assert_eq!(kb_of("Node 0 MemFree:  12 kB\n", "MemFree:"), Some(12));
    }
}

//! Hardware of the machine (CPUs, caches, nodes, memory), as in perf.data.

use kymo_files::perfdata::write::features::{self, Cache, MemoryNode, NumaNode};
use kymo_kernel::cpus;
use kymo_kernel::system::SystemRoot;

/// CPU_TOPOLOGY: who shares a socket, a core and a die with whom.
pub(crate) fn topology(system: &SystemRoot, available: u32) -> Vec<u8> {
    let siblings = system.cpu_siblings(available);
    let places = (0..available).map(cpus::topology);
    let places: Vec<_> = places.map(|p| (p.core, p.socket, p.die)).collect();
    features::cpu_topology(&siblings.sockets, &siblings.cores, &siblings.dies, &places)
}

/// NUMA_TOPOLOGY: the memory and the CPUs of each node.
pub(crate) fn numa(system: &SystemRoot) -> Vec<NumaNode> {
    let node = |node: kymo_kernel::system::NodeMemory| NumaNode {
        node: node.node,
        total_kb: node.total_kb,
        free_kb: node.free_kb,
        cpus: node.cpus,
    };
    system.memory_nodes().into_iter().map(node).collect()
}

/// CACHE: the caches, each once.
pub(crate) fn caches(system: &SystemRoot, online: &[u32]) -> Vec<Cache> {
    let cache = |cache: kymo_kernel::system::CpuCache| Cache {
        level: cache.level,
        line_size: cache.line_size,
        sets: cache.sets,
        ways: cache.ways,
        kind: cache.kind,
        size: cache.size,
        cpus: cache.cpus,
    };
    system.cpu_caches(online).into_iter().map(cache).collect()
}

/// MEM_TOPOLOGY: the size of a memory block, and which blocks belong to which node;
/// none where the kernel cannot plug memory in.
pub(crate) fn memory(system: &SystemRoot) -> Option<(u64, Vec<MemoryNode>)> {
    let blocks = system.memory_blocks()?;
    let node = |(node, blocks): (u32, Vec<u64>)| MemoryNode { node: node.into(), blocks };
    Some((blocks.block_size, blocks.of_nodes.into_iter().map(node).collect()))
}

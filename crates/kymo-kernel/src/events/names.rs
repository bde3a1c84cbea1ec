//! The fixed names: hardware, software and cache events of perf's grammar with
//! their numbers in `perf_event.h`, and a sentence on what each one counts.

use kymo_model::{hw, hw_cache, sw};

use super::Tool;

/// A named event with a fixed number.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// First name.
    pub name: &'static str,
    /// Other name, or empty.
    pub alias: &'static str,
    /// `config`.
    pub config: u64,
    /// Description of the count.
    pub about: &'static str,
}

const fn named(name: &'static str, alias: &'static str, config: u64, about: &'static str) -> Named {
    Named { name, alias, config, about }
}

/// Hardware events, by name.
pub const HARDWARE: [Named; 10] = [
    named(
        "branch-instructions",
        "branches",
        hw::BRANCH_INSTRUCTIONS,
        "Retired branch instructions, taken or not",
    ),
    named("branch-misses", "", hw::BRANCH_MISSES, "Mispredicted branches"),
    named("bus-cycles", "", hw::BUS_CYCLES, "Bus clock cycles, independent of the core frequency"),
    named(
        "cache-misses",
        "",
        hw::CACHE_MISSES,
        "Accesses that the last cache level could not serve",
    ),
    named(
        "cache-references",
        "",
        hw::CACHE_REFERENCES,
        "Accesses to the last cache level, on most processors including prefetches",
    ),
    named(
        "cpu-cycles",
        "cycles",
        hw::CPU_CYCLES,
        "Core clock cycles while not halted; changes with the frequency",
    ),
    named("instructions", "", hw::INSTRUCTIONS, "Retired instructions"),
    named(
        "ref-cycles",
        "",
        hw::REF_CPU_CYCLES,
        "Cycles while not halted, at the nominal frequency",
    ),
    named(
        "stalled-cycles-backend",
        "idle-cycles-backend",
        hw::STALLED_CYCLES_BACKEND,
        "Cycles in which nothing retires because of execution units or data",
    ),
    named(
        "stalled-cycles-frontend",
        "idle-cycles-frontend",
        hw::STALLED_CYCLES_FRONTEND,
        "Cycles in which no instruction is issued because of the frontend",
    ),
];

/// Software events, by name.
pub const SOFTWARE: [Named; 12] = [
    named(
        "alignment-faults",
        "",
        sw::ALIGNMENT_FAULTS,
        "Unaligned accesses that the kernel had to handle (never on x86)",
    ),
    named(
        "bpf-output",
        "",
        sw::BPF_OUTPUT,
        "Records written by BPF programs through bpf_perf_event_output",
    ),
    named(
        "cgroup-switches",
        "",
        sw::CGROUP_SWITCHES,
        "Context switches to a task of another cgroup",
    ),
    named("context-switches", "cs", sw::CONTEXT_SWITCHES, "Switches from one task to another"),
    named(
        "cpu-clock",
        "",
        sw::CPU_CLOCK,
        "Time on the CPU in nanoseconds, from a high-resolution timer per CPU",
    ),
    named("cpu-migrations", "migrations", sw::CPU_MIGRATIONS, "Moves of a task to another CPU"),
    named("dummy", "", sw::DUMMY, "Counts nothing; records side events such as mappings and forks"),
    named(
        "emulation-faults",
        "",
        sw::EMULATION_FAULTS,
        "Instructions that the kernel had to emulate",
    ),
    named("major-faults", "", sw::PAGE_FAULTS_MAJ, "Page faults that needed disk I/O"),
    named("minor-faults", "", sw::PAGE_FAULTS_MIN, "Page faults served without disk I/O"),
    named("page-faults", "faults", sw::PAGE_FAULTS, "Page faults, minor and major"),
    named("task-clock", "", sw::TASK_CLOCK, "Time the task ran, in nanoseconds"),
];

/// Values that the tool itself knows.
pub const TOOL: [(&str, Tool, &str); 3] = [
    ("duration_time", Tool::DurationTime, "Wall-clock time in nanoseconds"),
    ("user_time", Tool::UserTime, "Time the command spent in user mode, in nanoseconds"),
    ("system_time", Tool::SystemTime, "Time the command spent in the kernel, in nanoseconds"),
];

/// Looks a hardware or software name up; names are case-sensitive.
pub fn find(table: &'static [Named], name: &str) -> Option<&'static Named> {
    table.iter().find(|n| n.name == name || !n.alias.is_empty() && n.alias == name)
}

/// A cache: its spellings, the first of which is the canonical one, and which
/// operations it has (read, write, prefetch).
struct Cache {
    spellings: &'static [&'static str],
    ops: [bool; 3],
}

const CACHES: [Cache; 7] = [
    Cache { spellings: &["L1-dcache", "l1-d", "l1d", "L1-data"], ops: [true, true, true] },
    Cache { spellings: &["L1-icache", "l1-i", "l1i", "L1-instruction"], ops: [true, false, true] },
    Cache { spellings: &["LLC", "L2"], ops: [true, true, true] },
    Cache { spellings: &["dTLB", "d-tlb", "Data-TLB"], ops: [true, true, true] },
    Cache { spellings: &["iTLB", "i-tlb", "Instruction-TLB"], ops: [true, false, false] },
    Cache { spellings: &["branch", "branches", "bpu", "btb", "bpc"], ops: [true, false, false] },
    Cache { spellings: &["node"], ops: [true, true, true] },
];

const OPS: [&[&str]; 3] = [
    &["load", "loads", "read"],
    &["store", "stores", "write"],
    &["prefetch", "prefetches", "speculative-read", "speculative-load"],
];

const RESULTS: [&[&str]; 2] = [&["refs", "Reference", "ops", "access"], &["misses", "miss"]];

/// Whether a text that starts like a cache event is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheName {
    /// A cache event with this `config`.
    Config(u64),
    /// A cache that has no such operation: cache and operation in canonical words.
    NoSuchOperation(&'static str, &'static str),
}

/// Reads `CACHE[-OP][-RESULT]` (the last two in either order) in any of perf's
/// spellings and any case.
pub fn cache(text: &str) -> Option<CacheName> {
    let mut best: Option<(usize, &str)> = None;
    for (index, cache) in CACHES.iter().enumerate() {
        for spelling in cache.spellings {
            let Some(rest) = strip(text, spelling) else { continue };
            let longer = best.is_none_or(|(_, r)| rest.len() < r.len());
            if (rest.is_empty() || rest.starts_with('-')) && longer {
                best = Some((index, rest));
            }
        }
    }
    let (index, mut rest) = best?;
    let (mut op, mut result) = (None, None);
    while !rest.is_empty() {
        rest = rest.strip_prefix('-')?;
        let words = OPS.iter().enumerate().map(|(i, w)| (true, i, *w));
        let words = words.chain(RESULTS.iter().enumerate().map(|(i, w)| (false, i, *w)));
        let (is_op, i, left) = words
            .flat_map(|(is_op, i, spellings)| spellings.iter().map(move |s| (is_op, i, *s)))
            .filter_map(|(is_op, i, s)| Some((is_op, i, strip(rest, s)?)))
            .filter(|(_, _, left)| left.is_empty() || left.starts_with('-'))
            .min_by_key(|(_, _, left)| left.len())?;
        let place = if is_op { &mut op } else { &mut result };
        if place.replace(i).is_some() {
            return None;
        }
        rest = left;
    }
    let (op, result) = (op.unwrap_or(0), result.unwrap_or(0));
    let entry = CACHES.get(index)?;
    if !*entry.ops.get(op)? {
        return Some(CacheName::NoSuchOperation(entry.spellings.first()?, OPS.get(op)?.get(1)?));
    }
    Some(CacheName::Config(hw_cache::config(index as u64, op as u64, result as u64)))
}

/// Removes `prefix` in any case.
fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| text.get(prefix.len()..)).flatten()
}

/// All cache events under their canonical names, as perf lists them.
pub fn caches() -> Vec<(String, u64)> {
    let mut list = Vec::with_capacity(30);
    for (index, cache) in CACHES.iter().enumerate() {
        let name = cache.spellings[0];
        for (op, _) in cache.ops.iter().enumerate().filter(|(_, has)| **has) {
            let config = |result| hw_cache::config(index as u64, op as u64, result);
            list.push((format!("{name}-{}", OPS[op][1]), config(0)));
            list.push((format!("{name}-{}-misses", OPS[op][0]), config(1)));
        }
    }
    list
}

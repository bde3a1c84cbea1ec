//! Metrics by name (`-M`): the events whose counts they are derived of. What is derived of them is
//! printed beside the counts.

use anyhow::bail;

/// Name, what it is, and its events; `CLOCK` is the time that was counted on CPUs.
const METRICS: [(&str, &str, &[&str]); 14] = [
    ("backend_cycles_idle", "cycles stalled behind decoding, of all", &["cycles", BACKEND]),
    ("branch_frequency", "branches per second on a CPU", &["branches", CLOCK]),
    ("branch_miss_rate", "mispredicted branches, of all", &["branches", "branch-misses"]),
    ("CPUs_utilized", "CPUs that were busy", &[CLOCK]),
    ("cs_per_second", "context switches per second on a CPU", &["context-switches", CLOCK]),
    ("cycles_frequency", "cycles per second on a CPU", &["cycles", CLOCK]),
    ("dtlb_miss_rate", "misses of the data TLB, of loads", &["dTLB-loads", "dTLB-load-misses"]),
    ("frontend_cycles_idle", "cycles stalled before decoding, of all", &["cycles", FRONTEND]),
    ("insn_per_cycle", "instructions per cycle", &["cycles", "instructions"]),
    ("itlb_miss_rate", "misses of the TLB for code, of loads", &["iTLB-loads", "iTLB-load-misses"]),
    ("l1d_miss_rate", "misses of loads of the first cache", &["L1-dcache-loads", L1D_MISSES]),
    ("llc_miss_rate", "misses of loads of the last cache", &["LLC-loads", "LLC-load-misses"]),
    ("migrations_per_second", "moves to another CPU per second on one", &["migrations", CLOCK]),
    ("page_faults_per_second", "page faults per second on a CPU", &["page-faults", CLOCK]),
];

const CLOCK: &str = "task-clock";
const BACKEND: &str = "stalled-cycles-backend";
const FRONTEND: &str = "stalled-cycles-frontend";
const L1D_MISSES: &str = "L1-dcache-load-misses";

/// Events of metrics, each once. `machine`: whatever runs on CPUs is counted.
///
/// # Errors
/// If there is no such metric; names those there are.
pub(super) fn events_of(names: &[String], machine: bool) -> anyhow::Result<Vec<&'static str>> {
    let mut events = Vec::new();
    for name in names {
        let Some((.., of)) = METRICS.iter().find(|(own, ..)| own.eq_ignore_ascii_case(name)) else {
            let known: Vec<String> =
                METRICS.iter().map(|(name, what, _)| format!("\n  {name:<24}{what}")).collect();
            bail!(
                "unknown metric {name:?}; metrics of single CPU models are not supported. Known are{}",
                known.concat()
            );
        };
        for event in *of {
            let event = if machine && *event == CLOCK { "cpu-clock" } else { event };
            if !events.contains(&event) {
                events.push(event);
            }
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_several_metrics_is_counted_once() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let two = names(&["cs_per_second", "cpus_utilized"]);
        assert_eq!(events_of(&two, false).unwrap(), ["context-switches", "task-clock"]);
        assert_eq!(events_of(&two, true).unwrap(), ["context-switches", "cpu-clock"]);
        let unknown = events_of(&names(&["tma_retiring"]), false).unwrap_err().to_string();
        assert!(METRICS.iter().all(|(name, ..)| unknown.contains(name)), "{unknown}");
        let sorted = METRICS.map(|(name, ..)| name.to_ascii_lowercase());
        assert!(sorted.is_sorted());
    }
}

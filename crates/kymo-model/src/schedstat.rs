//! The scheduler's own counters: `/proc/schedstat` of versions 15 to 17 as numbers, and the
//! difference of two readings (Documentation/scheduler/sched-stats.rst of the kernel).

/// A counter that is shown as a share of another one.
#[derive(Clone, Copy, Debug)]
pub struct SchedCounter {
    /// Its name in the kernel's documentation.
    pub name: &'static str,
    /// Meaning of the counter.
    pub meaning: &'static str,
    /// The counter that it is a part of, or is compared with.
    pub base: Option<usize>,
}

const fn counter(name: &'static str, meaning: &'static str, base: Option<usize>) -> SchedCounter {
    SchedCounter { name, meaning, base }
}

/// Number of counters of a CPU.
pub const CPU_COUNTERS: usize = 9;
/// Index of the time that tasks ran, in nanoseconds.
pub const CPU_TIME: usize = 6;
/// Index of the time that tasks waited for the CPU, in nanoseconds.
pub const RUN_DELAY: usize = 7;

/// Counters of a CPU, in the order of the file.
pub const CPU_FIELDS: [SchedCounter; CPU_COUNTERS] = [
    counter("yld_count", "calls of sched_yield()", None),
    counter("array_exp", "always 0", None),
    counter("sched_count", "calls of schedule()", None),
    counter("sched_goidle", "of these, nothing was left to run", Some(2)),
    counter("ttwu_count", "wake-ups", None),
    counter("ttwu_local", "of these, to the CPU that woke", Some(4)),
    counter("rq_cpu_time", "time that tasks ran (ns)", None),
    counter("run_delay", "time that runnable tasks waited (ns)", Some(CPU_TIME)),
    counter("pcount", "time slices that began", None),
];

/// State of a CPU when it balanced its load with others of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceKind {
    /// Idle.
    Idle,
    /// Busy.
    Busy,
    /// About to become idle.
    NewIdle,
}

impl BalanceKind {
    /// The word before its counters.
    pub fn name(self) -> &'static str {
        match self {
            BalanceKind::Idle => "idle",
            BalanceKind::Busy => "busy",
            BalanceKind::NewIdle => "newidle",
        }
    }

    /// The order of the file, which changed with version 16.
    pub fn in_order(version: u16) -> [BalanceKind; 3] {
        match version {
            ..=15 => [BalanceKind::Idle, BalanceKind::Busy, BalanceKind::NewIdle],
            _ => [BalanceKind::Busy, BalanceKind::Idle, BalanceKind::NewIdle],
        }
    }
}

const COUNT: SchedCounter = counter("lb_count", "load balancing was tried", None);
const BALANCED: SchedCounter = counter("lb_balanced", "the load was balanced already", None);
const FAILED: SchedCounter = counter("lb_failed", "no task could be moved", None);
const GAINED: SchedCounter = counter("lb_gained", "tasks moved here", None);
const HOT: SchedCounter = counter("lb_hot_gained", "of these, cache-hot ones", None);
const NO_QUEUE: SchedCounter = counter("lb_nobusyq", "no busier queue was found", None);
const NO_GROUP: SchedCounter = counter("lb_nobusyg", "no busier group was found", None);

const BALANCE_15: [SchedCounter; 8] = [
    COUNT,
    BALANCED,
    FAILED,
    counter("lb_imbalance", "sum of imbalances", None),
    GAINED,
    HOT,
    NO_QUEUE,
    NO_GROUP,
];

const BALANCE_17: [SchedCounter; 11] = [
    COUNT,
    BALANCED,
    FAILED,
    counter("lb_imbalance_load", "sum of imbalances of load", None),
    counter("lb_imbalance_util", "sum of imbalances of utilization", None),
    counter("lb_imbalance_task", "sum of imbalances of numbers of tasks", None),
    counter("lb_imbalance_misfit", "sum of imbalances by tasks too large for their CPU", None),
    GAINED,
    HOT,
    NO_QUEUE,
    NO_GROUP,
];

/// Counters of one kind of load balancing, in the order of the file.
pub fn balance_fields(version: u16) -> &'static [SchedCounter] {
    if version >= 17 { &BALANCE_17 } else { &BALANCE_15 }
}

/// Counters of a domain behind those of load balancing, by what they are of.
pub const DOMAIN_GROUPS: [(&str, [SchedCounter; 3]); 4] = [
    (
        "active_load_balance()",
        [
            counter("alb_count", "the running task of a busy CPU was to be moved", None),
            counter("alb_failed", "it was not moved", None),
            counter("alb_pushed", "it was moved", None),
        ],
    ),
    (
        "sched_balance_exec()",
        [
            counter("sbe_count", "not used by the kernel", None),
            counter("sbe_balanced", "not used by the kernel", None),
            counter("sbe_pushed", "not used by the kernel", None),
        ],
    ),
    (
        "sched_balance_fork()",
        [
            counter("sbf_count", "not used by the kernel", None),
            counter("sbf_balanced", "not used by the kernel", None),
            counter("sbf_pushed", "not used by the kernel", None),
        ],
    ),
    (
        "wake-ups",
        [
            counter("ttwu_wake_remote", "woken task last ran on a CPU of another queue", None),
            counter("ttwu_move_affine", "woken task moved to the CPU that woke it", None),
            counter("ttwu_move_balance", "woken task moved to balance the load", None),
        ],
    ),
];

/// Number of counters of a domain.
pub fn domain_counters(version: u16) -> usize {
    3 * balance_fields(version).len() + 12
}

/// Counters of one level of load balancing of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainSchedStats {
    /// Number of the level; 0 is the smallest.
    pub number: u16,
    /// Its name, as of version 17.
    pub name: Option<String>,
    /// Its CPUs as the kernel's mask.
    pub mask: String,
    /// The counters: three times [`balance_fields`], then [`DOMAIN_GROUPS`].
    pub counters: Vec<u32>,
}

impl DomainSchedStats {
    /// Its CPUs as `0-3,5`.
    pub fn cpu_list(&self) -> String {
        let digits: Vec<u32> =
            self.mask.chars().filter(|c| *c != ',').filter_map(|c| c.to_digit(16)).collect();
        let cpus: Vec<usize> = digits
            .iter()
            .rev()
            .enumerate()
            .flat_map(|(at, digit)| {
                (0..4).filter(move |b| digit >> b & 1 == 1).map(move |b| at * 4 + b)
            })
            .collect();
        let runs = cpus.chunk_by(|a, b| a + 1 == *b);
        let run = |run: &[usize]| match run {
            [only] => only.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        };
        runs.map(run).collect::<Vec<_>>().join(",")
    }

    /// Counters of one kind of load balancing.
    pub fn balance(&self, version: u16, kind: BalanceKind) -> &[u32] {
        let width = balance_fields(version).len();
        let at = BalanceKind::in_order(version).iter().position(|k| *k == kind).unwrap_or(0);
        self.counters.get(at * width..(at + 1) * width).unwrap_or_default()
    }

    /// Counters of the group `index` of [`DOMAIN_GROUPS`].
    pub fn group(&self, version: u16, index: usize) -> &[u32] {
        let at = 3 * balance_fields(version).len() + 3 * index;
        self.counters.get(at..at + 3).unwrap_or_default()
    }
}

/// Counters of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSchedStats {
    /// Its number.
    pub cpu: u32,
    /// [`CPU_FIELDS`].
    pub counters: [u64; CPU_COUNTERS],
    /// Its domains, the smallest first.
    pub domains: Vec<DomainSchedStats>,
}

/// A reading of `/proc/schedstat`, or the difference of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedStats {
    /// Version of the file's layout.
    pub version: u16,
    /// The time in jiffies; in a difference, how many passed.
    pub jiffies: u64,
    /// Counters of each CPU.
    pub cpus: Vec<CpuSchedStats>,
}

/// The text is none that is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SchedStatsError {
    #[error("schedstat has version {0}; versions 15 to 17 are known")]
    Version(u16),
    #[error("schedstat has no version line")]
    NoVersion,
    #[error("line {0} of schedstat has another form than its version says")]
    Line(usize),
    #[error("{0} readings of schedstat cannot be compared: their versions are {1} and {2}")]
    Versions(&'static str, u16, u16),
}

/// Versions whose layout is known.
pub const KNOWN_VERSIONS: std::ops::RangeInclusive<u16> = 15..=17;

impl SchedStats {
    /// Reads the text of `/proc/schedstat`.
    pub fn parse(text: &str) -> Result<SchedStats, SchedStatsError> {
        let mut stats = SchedStats::default();
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split_ascii_whitespace();
            let Some(key) = words.next() else { continue };
            let known = match key {
                "version" => stats.take_version(words.next())?,
                "timestamp" => words.next().and_then(|w| w.parse().ok()).map(|n| stats.jiffies = n),
                _ if stats.version == 0 => return Err(SchedStatsError::NoVersion),
                _ => stats.take_counters(key, words),
            };
            known.ok_or(SchedStatsError::Line(index + 1))?;
        }
        if stats.version == 0 { Err(SchedStatsError::NoVersion) } else { Ok(stats) }
    }

    fn take_version(&mut self, word: Option<&str>) -> Result<Option<()>, SchedStatsError> {
        let Some(version) = word.and_then(|w| w.parse().ok()) else { return Ok(None) };
        if !KNOWN_VERSIONS.contains(&version) {
            return Err(SchedStatsError::Version(version));
        }
        self.version = version;
        Ok(Some(()))
    }

    fn take_counters<'a>(
        &mut self,
        key: &str,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Option<()> {
        if let Some(cpu) = key.strip_prefix("cpu") {
            let counters: Vec<u64> = words.map(|w| w.parse().ok()).collect::<Option<_>>()?;
            let (cpu, counters) = (cpu.parse().ok()?, counters.try_into().ok()?);
            self.cpus.push(CpuSchedStats { cpu, counters, domains: Vec::new() });
            return Some(());
        }
        let number = key.strip_prefix("domain")?.parse().ok()?;
        let name = if self.version >= 17 { Some(words.next()?.to_owned()) } else { None };
        let mask = words.next()?.to_owned();
        // Counters are 32 bits wide in the kernel, and printed so.
        let counters: Vec<u32> = words.map(|w| w.parse().ok()).collect::<Option<_>>()?;
        (counters.len() == domain_counters(self.version)).then_some(())?;
        self.cpus.last_mut()?.domains.push(DomainSchedStats { number, name, mask, counters });
        Some(())
    }

    /// Difference from `before`, for the CPUs and domains that are in both; and the CPUs that are
    /// in one only, or whose domains changed.
    pub fn since(&self, before: &SchedStats) -> Result<(SchedStats, Vec<u32>), SchedStatsError> {
        if self.version != before.version {
            return Err(SchedStatsError::Versions("two", before.version, self.version));
        }
        let mut changed: Vec<u32> = before
            .cpus
            .iter()
            .map(|c| c.cpu)
            .filter(|cpu| !self.cpus.iter().any(|c| c.cpu == *cpu))
            .collect();
        let mut cpus = Vec::new();
        for now in &self.cpus {
            match before.cpus.iter().find(|c| c.cpu == now.cpu).and_then(|then| now.since(then)) {
                Some(difference) => cpus.push(difference),
                None => changed.push(now.cpu),
            }
        }
        changed.sort_unstable();
        let jiffies = self.jiffies.wrapping_sub(before.jiffies);
        Ok((SchedStats { version: self.version, jiffies, cpus }, changed))
    }

    /// The mean of all CPUs, each counter by itself and rounded down; its domains are those of
    /// the same number.
    pub fn mean(&self) -> Option<CpuSchedStats> {
        let count = u64::try_from(self.cpus.len()).ok().filter(|n| *n > 0)?;
        let counters = std::array::from_fn(|i| {
            let sum: u128 = self.cpus.iter().map(|c| u128::from(c.counters[i])).sum();
            (sum / u128::from(count)) as u64
        });
        let deepest = self.cpus.iter().map(|c| c.domains.len()).max().unwrap_or(0);
        let domains = (0..deepest).filter_map(|level| self.mean_of_domain(level)).collect();
        Some(CpuSchedStats { cpu: 0, counters, domains })
    }

    fn mean_of_domain(&self, level: usize) -> Option<DomainSchedStats> {
        let all: Vec<&DomainSchedStats> =
            self.cpus.iter().filter_map(|c| c.domains.get(level)).collect();
        let first = *all.first()?;
        let width = all.iter().map(|d| d.counters.len()).min()?;
        let mean = |i: usize| {
            let sum: u64 = all.iter().map(|d| u64::from(d.counters[i])).sum();
            (sum / all.len() as u64) as u32
        };
        Some(DomainSchedStats { counters: (0..width).map(mean).collect(), ..first.clone() })
    }
}

impl CpuSchedStats {
    /// The difference to an earlier reading, if the domains are the same.
    fn since(&self, before: &CpuSchedStats) -> Option<CpuSchedStats> {
        let counters = std::array::from_fn(|i| {
            let (now, then) = (self.counters[i], before.counters[i]);
            match i {
                CPU_TIME | RUN_DELAY => now.wrapping_sub(then),
                // 32 bits wide in the kernel, but for pcount.
                8 => now.wrapping_sub(then),
                _ => u64::from((now as u32).wrapping_sub(then as u32)),
            }
        });
        (self.domains.len() == before.domains.len()).then_some(())?;
        let domains = self.domains.iter().zip(&before.domains).map(|(now, then)| {
            let same = now.number == then.number
                && now.mask == then.mask
                && now.counters.len() == then.counters.len();
            same.then(|| DomainSchedStats {
                counters: std::iter::zip(&now.counters, &then.counters)
                    .map(|(now, then)| now.wrapping_sub(*then))
                    .collect(),
                ..now.clone()
            })
        });
        Some(CpuSchedStats { cpu: self.cpu, counters, domains: domains.collect::<Option<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(version: u16, cpu: [u64; 9], first: u32) -> String {
        let cpu = cpu.map(|n| n.to_string()).join(" ");
        let counters: Vec<String> =
            (0..domain_counters(version) as u32).map(|i| (first + i).to_string()).collect();
        let name = if version >= 17 { "MC " } else { "" };
        format!(
            "version {version}\ntimestamp 4294900000\ncpu0 {cpu}\ndomain0 {name}00000003 {}\n",
            counters.join(" ")
        )
    }

    #[test]
    fn versions_differ_in_names_and_order() {
        for version in KNOWN_VERSIONS {
            let stats = SchedStats::parse(&text(version, [1; 9], 100)).unwrap();
            assert_eq!((stats.version, stats.jiffies), (version, 4294900000));
            let domain = &stats.cpus[0].domains[0];
            assert_eq!(domain.name.as_deref(), (version >= 17).then_some("MC"));
            assert_eq!((&*domain.mask, &*domain.cpu_list()), ("00000003", "0-1"));
            let width = balance_fields(version).len() as u32;
            let idle = if version == 15 { 100 } else { 100 + width };
            assert_eq!(domain.balance(version, BalanceKind::Idle)[0], idle);
            assert_eq!(domain.balance(version, BalanceKind::NewIdle)[0], 100 + 2 * width);
            assert_eq!(domain.group(version, 3)[2], 100 + 3 * width + 11);
        }
    }

    #[test]
    fn differences_pass_the_end_of_32_bits() {
        let before = SchedStats::parse(&text(15, [u64::from(u32::MAX); 9], u32::MAX - 60)).unwrap();
        let mut after = before.clone();
        after.jiffies += 250;
        after.cpus[0].counters = [4; 9];
        after.cpus[0].counters[CPU_TIME] = (1 << 40) + u64::from(u32::MAX);
        after.cpus[0].domains[0].counters[0] = 2;
        let (difference, changed) = after.since(&before).unwrap();
        assert!(changed.is_empty());
        assert_eq!(difference.jiffies, 250);
        assert_eq!(difference.cpus[0].counters[0], 5);
        assert_eq!(difference.cpus[0].counters[CPU_TIME], 1 << 40);
        assert_eq!(difference.cpus[0].domains[0].counters[0], 63);
    }

    #[test]
    fn cpus_that_come_or_change_are_said() {
        let before = SchedStats::parse(&text(16, [0; 9], 0)).unwrap();
        let mut after = before.clone();
        after.cpus[0].domains[0].mask = "00000007".into();
        after.cpus.push(CpuSchedStats { cpu: 1, ..CpuSchedStats::default() });
        let (difference, changed) = after.since(&before).unwrap();
        assert_eq!((difference.cpus.len(), changed), (0, vec![0, 1]));
    }

    #[test]
    fn masks_become_lists() {
        let list =
            |mask: &str| DomainSchedStats { mask: mask.into(), ..Default::default() }.cpu_list();
        assert_eq!(list("00000001,80000009"), "0,3,31-32");
        assert_eq!(list(""), "");
    }

    #[test]
    fn other_forms_are_refused() {
        assert_eq!(SchedStats::parse(""), Err(SchedStatsError::NoVersion));
        assert_eq!(SchedStats::parse("version 18\n"), Err(SchedStatsError::Version(18)));
        let short = text(17, [0; 9], 0).replace("domain0 MC", "domain0");
        assert_eq!(SchedStats::parse(&short), Err(SchedStatsError::Line(4)));
        let cpu = "version 15\ncpu0 1 2 3\n";
        assert_eq!(SchedStats::parse(cpu), Err(SchedStatsError::Line(2)));
    }
}

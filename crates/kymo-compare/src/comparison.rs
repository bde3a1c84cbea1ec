//! Two sets of runs compared: one test over all functions and quantities, then for each function
//! its effect, its verdict and the callers of what changed.

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::binaries::BinaryPairs;
use crate::effect::{RatioEstimate, Z_INTERVAL, Z_POWER, median};
use crate::max_t::{LEVEL, TestColumn, max_t};
use crate::sums::{FunctionKey, FunctionSum, RunSums};

/// Fewest runs of a side for a verdict.
pub(crate) const FEWEST_RUNS: usize = 4;
/// Most functions of a quantity that are tested, by weight.
const MOST_FUNCTIONS: usize = 20_000;
/// Functions whose intervals are computed: those with the most weight, and all that changed.
const MOST_ESTIMATES: usize = 200;
/// Callers shown of a function that changed.
const MOST_CALLERS: usize = 5;
/// A run with this number of times the weight of the median run of its side is named as stalled.
const STALLED: f64 = 3.0;

/// Quantity that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MeasureKind {
    /// Samples of code: time on the CPU, or an event that was sampled.
    Samples,
    /// Time off the CPUs.
    OffCpu,
    /// A number for each run, without functions.
    Count,
}

/// Runs of both sides with the sums of one quantity.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Kind.
    pub kind: MeasureKind,
    /// Name of the event, or of the count.
    pub name: String,
    /// Unit of the weights: `nanoseconds`, `count`.
    pub unit: &'static str,
    /// Runs before.
    pub before: Vec<RunSums>,
    /// Runs after.
    pub after: Vec<RunSums>,
}

/// Choices of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct CompareOptions {
    /// Largest relative change that counts as none.
    pub margin: f64,
    /// Seed of permutations and resamples.
    pub seed: u64,
    /// Samples of both sides together that a function needs to be tested; by default half the
    /// number of runs, and at least 10.
    pub floor: Option<u64>,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions { margin: 0.05, seed: 1, floor: None }
    }
}

/// Two sets of runs cannot be compared.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CompareError {
    /// A side has no runs.
    #[error("{before} runs before and {after} after: a side has none")]
    NoRuns {
        /// Runs before.
        before: usize,
        /// Runs after.
        after: usize,
    },
    /// Quantities are not of the same runs.
    #[error("{0} has another number of runs than the other quantities")]
    OtherRuns(String),
    /// A side has no samples.
    #[error("no samples {0}")]
    NoSamples(&'static str),
}

/// Verdict on a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// More than before.
    More,
    /// Less than before.
    Less,
    /// Nothing of it before.
    New,
    /// Nothing of it after.
    Vanished,
    /// No larger change, relative to before.
    NoChange {
        /// Bound of the change.
        within: f64,
    },
    /// Neither a change nor its absence is shown.
    Undecided {
        /// Further runs of each side that would decide it, if that can be estimated.
        more_runs: Option<u64>,
    },
}

impl Verdict {
    /// Whether a change is shown.
    pub fn is_change(self) -> bool {
        matches!(self, Verdict::More | Verdict::Less | Verdict::New | Verdict::Vanished)
    }
}

/// A quantity before and after, per unit of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Median of the runs before.
    pub before: f64,
    /// Median of the runs after.
    pub after: f64,
    /// Both are means: most runs of a side have nothing, and others have.
    pub is_mean: bool,
    /// Samples of all runs before and after.
    pub samples: (u64, u64),
    /// Ratio with its interval.
    pub estimate: Option<RatioEstimate>,
    /// p-value, adjusted for all functions and quantities.
    pub p: f64,
    /// Verdict.
    pub verdict: Verdict,
}

/// A caller of a function that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct CallerChange {
    /// Name of the caller.
    pub name: String,
    /// Mean weight of the function under this caller before, per unit of work.
    pub before: f64,
    /// Value after.
    pub after: f64,
}

/// A function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionRow {
    /// Name and binary.
    pub key: FunctionKey,
    /// In the function itself; `None` below the floor.
    pub own: Option<Change>,
    /// In it and in all that it called; `None` below the floor.
    pub total: Option<Change>,
    /// Callers, the largest difference first, of a function that changed.
    pub callers: Vec<CallerChange>,
    /// Inlined on one side only.
    pub inlined_on_one_side: bool,
}

/// Result of a quantity.
#[derive(Clone, Debug)]
pub struct MeasureChanges {
    /// Kind.
    pub kind: MeasureKind,
    /// Name of the event, or of the count.
    pub name: String,
    /// Unit of the weights.
    pub unit: &'static str,
    /// All of it.
    pub whole: Change,
    /// Functions: those that changed first, by the size of the change, then by weight.
    pub rows: Vec<FunctionRow>,
    /// Functions below the floor.
    pub below_floor: usize,
    /// Their share of the weight of both sides.
    pub below_floor_share: f64,
}

/// A run with far more weight than its side's median.
#[derive(Clone, Debug, PartialEq)]
pub struct StalledRun {
    /// File or block.
    pub name: String,
    /// Name of the event or count.
    pub measure: String,
    /// Multiple of the median.
    pub times: f64,
}

/// Result.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// By quantity.
    pub measures: Vec<MeasureChanges>,
    /// Runs before and after.
    pub runs: (usize, usize),
    /// Columns that were tested together.
    pub tested: usize,
    /// Smallest p-value that this number of runs can give.
    pub smallest_p: f64,
    /// Binaries whose names differ: before and after.
    pub renamed: Vec<(String, String)>,
    /// Binaries whose functions have names on one side only.
    pub nameless: Vec<String>,
    /// Runs that stand out.
    pub stalled: Vec<StalledRun>,
}

/// A column of the test on its way to a [`Change`].
struct Column {
    values: Vec<f64>,
    samples: (u64, u64),
}

/// Functions of a quantity, joined over the runs.
struct Joined {
    keys: Vec<FunctionKey>,
    own: Vec<Column>,
    total: Vec<Column>,
    inlined: Vec<(u64, u64)>,
    callers: FxHashMap<(u32, u32), (f64, f64)>,
}

impl Comparison {
    /// Compares the runs of both sides; all quantities are of the same runs.
    ///
    /// # Errors
    /// If a side has no runs, or no samples at all. A side of one run shows no spread: nothing is
    /// decided then.
    pub fn new(measures: &[Measure], options: &CompareOptions) -> Result<Comparison, CompareError> {
        let Some(first) = measures.first() else {
            return Err(CompareError::NoSamples("on either side"));
        };
        let (before, after) = (first.before.len(), first.after.len());
        if before == 0 || after == 0 {
            return Err(CompareError::NoRuns { before, after });
        }
        let is_other = |m: &&Measure| (m.before.len(), m.after.len()) != (before, after);
        if let Some(other) = measures.iter().find(is_other) {
            return Err(CompareError::OtherRuns(other.name.clone()));
        }
        for (side, runs) in [
            ("before", measures.iter().flat_map(|m| &m.before).collect::<Vec<_>>()),
            ("after", measures.iter().flat_map(|m| &m.after).collect()),
        ] {
            if runs.iter().all(|r| r.samples == 0 && r.whole == 0.0) {
                return Err(CompareError::NoSamples(side));
            }
        }
        let sampled = measures.iter().filter(|m| m.kind == MeasureKind::Samples);
        let (old, new): (Vec<_>, Vec<_>) = sampled.map(|m| (&m.before, &m.after)).unzip();
        let old: Vec<&RunSums> = old.into_iter().flatten().collect();
        let pairs = BinaryPairs::find(&old, &new.into_iter().flatten().collect::<Vec<_>>());
        let joined: Vec<Joined> = measures.iter().map(|m| join(m, &pairs)).collect();
        let floor = options.floor.unwrap_or(((before + after) as u64 / 2).max(10));
        Ok(Comparison::of_joined(measures, (joined, &pairs), options, floor))
    }

    fn of_joined(
        measures: &[Measure],
        (joined, pairs): (Vec<Joined>, &BinaryPairs),
        options: &CompareOptions,
        floor: u64,
    ) -> Comparison {
        let runs = measures.first().map_or((0, 0), |m| (m.before.len(), m.after.len()));
        let wholes: Vec<Column> = measures.iter().map(whole_column).collect();
        let kept: Vec<KeptColumns> = joined.iter().map(|j| KeptColumns::above(j, floor)).collect();
        let mut columns: Vec<TestColumn> = Vec::new();
        for ((whole, joined), kept) in wholes.iter().zip(&joined).zip(&kept) {
            let all: f64 = whole.values.iter().sum();
            let column = |column: &Column| TestColumn {
                values: column.values.clone(),
                share: column.values.iter().sum::<f64>() / all.max(f64::MIN_POSITIVE),
            };
            columns.push(TestColumn { share: 1.0, ..column(whole) });
            columns.extend(kept.own.iter().map(|f| column(&joined.own[*f])));
            columns.extend(kept.total.iter().map(|f| column(&joined.total[*f])));
        }
        let tested = max_t(&columns, runs.0, options.seed);
        let judge = Judge { runs, options };
        let mut results = tested.p.iter().copied().zip(tested.critical.iter().copied());
        let mut next = || results.next().unwrap_or((1.0, f64::INFINITY));
        let mut changes = Vec::new();
        for (((measure, whole), joined), kept) in
            measures.iter().zip(&wholes).zip(&joined).zip(&kept)
        {
            let of_samples = measure.kind == MeasureKind::Samples;
            let whole = judge.change(whole, next(), true, of_samples);
            let own_p: Vec<(f64, f64)> = kept.own.iter().map(|_| next()).collect();
            let total_p: Vec<(f64, f64)> = kept.total.iter().map(|_| next()).collect();
            let own = judge.changes(&joined.own, (&kept.own, &own_p), of_samples);
            let total = judge.changes(&joined.total, (&kept.total, &total_p), of_samples);
            changes.push(measure_changes((measure, whole), joined, kept, (own, total)));
        }
        let mut nameless: Vec<String> = pairs.nameless.iter().cloned().collect();
        nameless.sort();
        let renamed = pairs.renamed.iter().map(|(new, old)| (old.clone(), new.clone()));
        let mut renamed: Vec<(String, String)> = renamed.collect();
        renamed.sort();
        Comparison {
            measures: changes,
            runs,
            tested: columns.len(),
            smallest_p: tested.smallest,
            renamed,
            nameless,
            stalled: measures.iter().flat_map(stalled_runs).collect(),
        }
    }
}

/// Functions with enough samples.
struct KeptColumns {
    own: Vec<usize>,
    total: Vec<usize>,
}

impl KeptColumns {
    /// The floor is on the samples of both sides together, so that it favors neither.
    fn above(joined: &Joined, floor: u64) -> KeptColumns {
        let kept = |columns: &[Column]| {
            let enough = |c: &Column| c.samples.0 + c.samples.1 >= floor;
            let mut kept: Vec<usize> =
                (0..columns.len()).filter(|f| enough(&columns[*f])).collect();
            let weight = |f: &usize| columns[*f].values.iter().sum::<f64>();
            kept.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
            kept.truncate(MOST_FUNCTIONS);
            kept
        };
        KeptColumns { own: kept(&joined.own), total: kept(&joined.total) }
    }
}

struct Judge<'a> {
    runs: (usize, usize),
    options: &'a CompareOptions,
}

impl Judge<'_> {
    /// Changes by number of function. Intervals of functions with little weight that did not
    /// change are left out.
    fn changes(
        &self,
        columns: &[Column],
        (kept, tested): (&[usize], &[(f64, f64)]),
        of_samples: bool,
    ) -> FxHashMap<usize, Change> {
        let numbered: Vec<(usize, usize, (f64, f64))> =
            kept.iter().zip(tested).enumerate().map(|(at, (f, p))| (at, *f, *p)).collect();
        let judged = numbered.par_iter().map(|(at, function, tested)| {
            let estimates = *at < MOST_ESTIMATES || tested.0 <= LEVEL;
            (*function, self.change(&columns[*function], *tested, estimates, of_samples))
        });
        judged.collect::<Vec<_>>().into_iter().collect()
    }

    /// `of_samples`: the values are made of samples, whose number determines their precision.
    /// `critical`: standardized statistic that the column must reach.
    fn change(
        &self,
        column: &Column,
        (p, critical): (f64, f64),
        estimates: bool,
        of_samples: bool,
    ) -> Change {
        let (before, after) = column.values.split_at(self.runs.0.min(column.values.len()));
        let medians = (median(&mut before.to_vec()), median(&mut after.to_vec()));
        // The median of what comes in bursts is nothing, and so would be a change of it.
        let is_of_few = |values: &[f64], median: f64| median == 0.0 && mean(values) > 0.0;
        let is_mean = is_of_few(before, medians.0) || is_of_few(after, medians.1);
        let amounts = if is_mean { (mean(before), mean(after)) } else { medians };
        let has_spread = before.len() > 1 && after.len() > 1;
        // A ratio to runs of which most have nothing means nothing.
        let estimate = (estimates && has_spread && medians.0 > 0.0 && medians.1 > 0.0)
            .then(|| RatioEstimate::new(before, after, critical, self.options.seed))
            .flatten()
            .map(|e| if of_samples { e.of_samples(column.samples, critical) } else { e });
        Change {
            before: amounts.0,
            after: amounts.1,
            is_mean,
            samples: column.samples,
            estimate,
            p,
            verdict: self.verdict((before, after), estimate.as_ref(), (p, critical)),
        }
    }

    fn verdict(
        &self,
        (before, after): (&[f64], &[f64]),
        estimate: Option<&RatioEstimate>,
        (p, critical): (f64, f64),
    ) -> Verdict {
        let is_nothing = |side: &[f64]| side.iter().all(|v| *v == 0.0);
        let fewest = before.len().min(after.len());
        // Ranks can differ by less than samples can tell: a clock that begins with the program gives
        // all runs the same number of samples.
        let is_resolved = estimate.is_none_or(|e| e.low > 1.0 || e.high < 1.0);
        if p <= LEVEL && fewest > 1 && is_resolved {
            return match (is_nothing(before), is_nothing(after)) {
                (true, false) => Verdict::New,
                (false, true) => Verdict::Vanished,
                _ if rank_sum_is_larger(before, after) => Verdict::More,
                _ => Verdict::Less,
            };
        }
        let missing = FEWEST_RUNS.saturating_sub(fewest) as u64;
        let Some(estimate) = estimate else {
            return Verdict::Undecided { more_runs: (missing > 0).then_some(missing) };
        };
        let within = (estimate.low - 1.0).abs().max((estimate.high - 1.0).abs());
        if missing > 0 {
            return Verdict::Undecided { more_runs: Some(missing) };
        }
        if within <= self.options.margin {
            return Verdict::NoChange { within };
        }
        let shift = estimate.ratio.ln().abs();
        let error = estimate.error();
        // Either the change is shown, or its absence.
        let shown = (critical.max(Z_INTERVAL) + Z_POWER) * error / shift;
        let room = self.options.margin.ln_1p() - shift;
        let absent = if room > 0.0 { Z_INTERVAL * error / room } else { f64::INFINITY };
        Verdict::Undecided { more_runs: more_runs(fewest, shown.min(absent)) }
    }
}

/// Further runs where the error must shrink by a factor.
pub(crate) fn more_runs(runs: usize, factor: f64) -> Option<u64> {
    let wanted = runs as f64 * factor * factor;
    wanted.is_finite().then(|| ((wanted.ceil() - runs as f64).max(1.0)) as u64)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Whether the values after are larger by rank: pairs won against pairs lost.
fn rank_sum_is_larger(before: &[f64], after: &[f64]) -> bool {
    let mut sorted = before.to_vec();
    sorted.sort_by(f64::total_cmp);
    let won: i64 = after
        .iter()
        .map(|v| {
            let below = sorted.partition_point(|b| b < v) as i64;
            let up_to = sorted.partition_point(|b| b <= v) as i64;
            below - (sorted.len() as i64 - up_to)
        })
        .sum();
    won > 0
}

fn whole_column(measure: &Measure) -> Column {
    let all = measure.before.iter().chain(&measure.after);
    let samples = |runs: &[RunSums]| runs.iter().map(|r| r.samples).sum();
    Column {
        values: all.map(|run| run.whole / run.work).collect(),
        samples: (samples(&measure.before), samples(&measure.after)),
    }
}

fn join(measure: &Measure, pairs: &BinaryPairs) -> Joined {
    let runs = measure.before.len() + measure.after.len();
    let mut joined = Joined {
        keys: Vec::new(),
        own: Vec::new(),
        total: Vec::new(),
        inlined: Vec::new(),
        callers: FxHashMap::default(),
    };
    let mut numbers: FxHashMap<FunctionKey, u32> = FxHashMap::default();
    let sides = [(&measure.before, false), (&measure.after, true)];
    let all = sides.iter().flat_map(|(runs, is_after)| runs.iter().map(|run| (run, *is_after)));
    for (at, (run, is_after)) in all.enumerate() {
        let side_runs = if is_after { measure.after.len() } else { measure.before.len() } as f64;
        let mut of_run = Vec::with_capacity(run.keys.len());
        for (key, sum) in run.functions() {
            // A binary that was renamed is one after.
            let key = if is_after { pairs.common_key(key) } else { pairs.common_key_before(key) };
            let next = numbers.len() as u32;
            let number = *numbers.entry(key.clone()).or_insert(next);
            if number == next {
                joined.keys.push(key);
                joined.inlined.push((0, 0));
                for columns in [&mut joined.own, &mut joined.total] {
                    columns.push(Column { values: vec![0.0; runs], samples: (0, 0) });
                }
            }
            joined.add(number as usize, at, is_after, (sum, run.work));
            of_run.push(number);
        }
        for ((callee, caller), weight) in &run.callers {
            let number = |of: &u32| of_run.get(*of as usize).copied();
            let (Some(callee), Some(caller)) = (number(callee), number(caller)) else { continue };
            let sums = joined.callers.entry((callee, caller)).or_default();
            let mean = weight / run.work / side_runs;
            if is_after { sums.1 += mean } else { sums.0 += mean }
        }
    }
    // A side without any caller has none recorded: a baseline, or a recording without call chains.
    let has_callers = |side: fn(&(f64, f64)) -> f64| joined.callers.values().any(|c| side(c) > 0.0);
    if !has_callers(|c| c.0) || !has_callers(|c| c.1) {
        joined.callers.clear();
    }
    joined
}

impl Joined {
    fn add(
        &mut self,
        function: usize,
        run: usize,
        is_after: bool,
        (sum, work): (&FunctionSum, f64),
    ) {
        let parts = [
            (&mut self.own[function], sum.own, sum.own_samples),
            (&mut self.total[function], sum.total, sum.total_samples),
        ];
        for (column, weight, samples) in parts {
            column.values[run] += weight / work;
            if is_after { column.samples.1 += samples } else { column.samples.0 += samples }
        }
        let inlined = &mut self.inlined[function];
        if is_after { inlined.1 += sum.inlined_samples } else { inlined.0 += sum.inlined_samples }
    }

    /// Whether samples of a function are of inlined copies on one side, and of calls on the other.
    fn is_inlined_on_one_side(&self, function: usize) -> bool {
        let (before, after) = self.inlined[function];
        let total = self.total[function].samples;
        let share =
            |part: u64, whole: u64| if whole == 0 { 0.5 } else { part as f64 / whole as f64 };
        let (one, two) = (share(before, total.0), share(after, total.1));
        one.min(two) < 0.1 && one.max(two) > 0.9
    }

    fn callers_of(&self, function: usize) -> Vec<CallerChange> {
        let of_function =
            self.callers.iter().filter(|((callee, _), _)| *callee as usize == function);
        let mut callers: Vec<CallerChange> = of_function
            .map(|((_, caller), (before, after))| CallerChange {
                name: self.keys[*caller as usize].name.clone(),
                before: *before,
                after: *after,
            })
            .collect();
        let size = |c: &CallerChange| (c.after - c.before).abs();
        callers.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.name.cmp(&b.name)));
        callers.truncate(MOST_CALLERS);
        callers
    }
}

fn measure_changes(
    (measure, whole): (&Measure, Change),
    joined: &Joined,
    kept: &KeptColumns,
    (own, total): (FxHashMap<usize, Change>, FxHashMap<usize, Change>),
) -> MeasureChanges {
    let mut numbers: Vec<usize> = own.keys().chain(total.keys()).copied().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut rows: Vec<FunctionRow> = numbers
        .iter()
        .map(|f| {
            let own = own.get(f).copied();
            let changed = own.is_some_and(|c| c.verdict.is_change());
            FunctionRow {
                key: joined.keys[*f].clone(),
                own,
                total: total.get(f).copied(),
                callers: if changed { joined.callers_of(*f) } else { Vec::new() },
                inlined_on_one_side: joined.is_inlined_on_one_side(*f),
            }
        })
        .collect();
    let fewest = measure.before.len().min(measure.after.len());
    let rank = |row: &FunctionRow| {
        let change = row.own.or(row.total);
        let is_change = row.own.is_some_and(|c| c.verdict.is_change());
        let size = change.map_or(0.0, |c| {
            // Of runs that can show nothing, what differs most is looked for.
            if is_change || fewest < FEWEST_RUNS {
                (c.after - c.before).abs()
            } else {
                c.before + c.after
            }
        });
        (is_change, row.own.is_some(), size)
    };
    rows.sort_by(|a, b| {
        let (one, two) = (rank(a), rank(b));
        let order = (two.0, two.1).cmp(&(one.0, one.1)).then(two.2.total_cmp(&one.2));
        order.then_with(|| a.key.cmp(&b.key))
    });
    let kept_own: FxHashSet<usize> = kept.own.iter().copied().collect();
    let below = (0..joined.own.len()).filter(|f| !kept_own.contains(f));
    let below: Vec<usize> = below.filter(|f| joined.own[*f].samples != (0, 0)).collect();
    let weight = |f: &usize| joined.own[*f].values.iter().sum::<f64>();
    let all: f64 = (0..joined.own.len()).map(|f| weight(&f)).sum();
    MeasureChanges {
        kind: measure.kind,
        name: measure.name.clone(),
        unit: measure.unit,
        whole,
        rows,
        below_floor: below.len(),
        below_floor_share: if all > 0.0 {
            below.iter().map(weight).sum::<f64>() / all
        } else {
            0.0
        },
    }
}

fn stalled_runs(measure: &Measure) -> Vec<StalledRun> {
    let mut stalled = Vec::new();
    for side in [&measure.before, &measure.after] {
        let mut values: Vec<f64> = side.iter().map(|r| r.whole / r.work).collect();
        let middle = median(&mut values);
        for run in side.iter().filter(|r| middle > 0.0 && r.whole / r.work > STALLED * middle) {
            let times = run.whole / run.work / middle;
            let (name, measure) = (run.name.clone(), measure.name.clone());
            stalled.push(StalledRun { name, measure, times });
        }
    }
    stalled
}

#[cfg(test)]
mod tests;

//! Cost of each address of each function: samples and their weight, by event.

use std::collections::BTreeMap;

use kymo_symbols::{DsoId, SymId};
use rustc_hash::FxHashMap;

use crate::binary_filter::BinaryFilter;
use crate::percent;
use crate::profile::Profile;

/// Samples and their weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostSum {
    /// Number of samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
}

impl CostSum {
    /// Adds another sum.
    pub fn add(&mut self, other: CostSum) {
        self.samples += other.samples;
        self.period = self.period.saturating_add(other.period);
    }
}

/// CostSums by column of events.
pub type CostSums = Vec<CostSum>;

/// Adds sums up, column by column.
pub fn add_columns(to: &mut CostSums, other: &[CostSum]) {
    to.resize(to.len().max(other.len()), CostSum::default());
    to.iter_mut().zip(other).for_each(|(to, other)| to.add(*other));
}

/// Whole that percentages are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PercentType {
    /// The function's weight.
    LocalPeriod,
    /// The weight of all samples.
    GlobalPeriod,
    /// The function's samples.
    LocalHits,
    /// All samples.
    GlobalHits,
}

impl PercentType {
    /// Name, in perf's words.
    pub fn words(self) -> &'static str {
        match self {
            PercentType::LocalPeriod => "local period",
            PercentType::GlobalPeriod => "global period",
            PercentType::LocalHits => "local hits",
            PercentType::GlobalHits => "global hits",
        }
    }

    /// Share of a cost in percent.
    pub fn share(self, cost: CostSum, local: CostSum, global: CostSum) -> f64 {
        match self {
            PercentType::LocalPeriod => percent(cost.period, local.period),
            PercentType::GlobalPeriod => percent(cost.period, global.period),
            PercentType::LocalHits => percent(cost.samples, local.samples),
            PercentType::GlobalHits => percent(cost.samples, global.samples),
        }
    }
}

/// A function with samples in it.
#[derive(Debug)]
pub struct FunctionCost {
    /// Binary.
    pub dso: DsoId,
    /// Symbol.
    pub symbol: SymId,
    /// All of it, by event.
    pub sums: CostSums,
    /// By address, as the binary states it.
    pub places: BTreeMap<u64, CostSums>,
}

/// All functions, those that cost most first.
#[derive(Debug, Default)]
pub struct FunctionCosts {
    /// Names of the events, by column.
    pub events: Vec<String>,
    /// All samples of each event.
    pub whole: CostSums,
    /// Functions, most expensive first.
    pub hot: Vec<FunctionCost>,
    /// Samples that are in no function that has a name.
    pub nameless: u64,
}

impl FunctionCosts {
    /// Puts the samples to the functions they are in.
    pub fn new(profile: &Profile, binaries: BinaryFilter<'_>) -> FunctionCosts {
        let mut costs = FunctionCosts::default();
        let mut known: FxHashMap<SymId, usize> = FxHashMap::default();
        for event in profile.events.iter().filter(|e| e.samples > 0) {
            let column = costs.events.len();
            costs.events.push(event.desc.name.clone());
            costs.whole.push(CostSum::default());
            for (stack, _) in event.stacks().filter(|(s, _)| binaries.wants(profile, s)) {
                let sum = CostSum { samples: stack.samples, period: stack.period };
                costs.whole.last_mut().into_iter().for_each(|w| w.add(sum));
                let frame = profile.frame(stack.leaf);
                let (Some(symbol), Some(dso)) = (frame.symbol, frame.dso) else {
                    costs.nameless += stack.samples;
                    continue;
                };
                let hot = &mut costs.hot;
                let at = *known.entry(symbol).or_insert_with(|| {
                    hot.push(FunctionCost {
                        dso,
                        symbol,
                        sums: CostSums::new(),
                        places: BTreeMap::new(),
                    });
                    hot.len() - 1
                });
                let Some(hot) = hot.get_mut(at) else { continue };
                let mut row = vec![CostSum::default(); column];
                row.push(sum);
                add_columns(&mut hot.sums, &row);
                add_columns(hot.places.entry(frame.addr).or_default(), &row);
            }
        }
        let columns = costs.events.len();
        for hot in &mut costs.hot {
            hot.sums.resize(columns, CostSum::default());
            hot.places.values_mut().for_each(|s| s.resize(columns, CostSum::default()));
        }
        let share = |hot: &FunctionCost| -> f64 {
            hot.sums.iter().zip(&costs.whole).map(|(s, w)| percent(s.period, w.period)).sum()
        };
        let mut ranked: Vec<(f64, FunctionCost)> =
            std::mem::take(&mut costs.hot).into_iter().map(|hot| (share(&hot), hot)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.symbol.cmp(&b.1.symbol)));
        costs.hot = ranked.into_iter().map(|(_, hot)| hot).collect();
        costs
    }
}

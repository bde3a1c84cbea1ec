//! What each address of each function cost.

use std::collections::BTreeMap;

use kymo_analysis::profile::Profile;
use kymo_symbols::{DsoId, SymId};
use kymo_view::percent;
use rustc_hash::FxHashMap;

use crate::commands::chosen::Chosen;

/// Samples and what they weigh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) samples: u64,
    pub(super) period: u64,
}

impl Sum {
    pub(super) fn add(&mut self, other: Sum) {
        self.samples += other.samples;
        self.period = self.period.saturating_add(other.period);
    }
}

/// Sums by column of events.
pub(super) type Sums = Vec<Sum>;

/// Adds sums up, column by column.
pub(super) fn add(to: &mut Sums, other: &[Sum]) {
    to.resize(to.len().max(other.len()), Sum::default());
    to.iter_mut().zip(other).for_each(|(to, other)| to.add(*other));
}

/// What percentages are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum PercentType {
    /// Of the function's weight
    LocalPeriod,
    /// Of the weight of all samples
    GlobalPeriod,
    /// Of the function's samples
    LocalHits,
    /// Of all samples
    GlobalHits,
}

impl PercentType {
    /// perf's words for it.
    pub(super) fn words(self) -> &'static str {
        match self {
            PercentType::LocalPeriod => "local period",
            PercentType::GlobalPeriod => "global period",
            PercentType::LocalHits => "local hits",
            PercentType::GlobalHits => "global hits",
        }
    }

    /// A share in percent.
    pub(super) fn of(self, cost: Sum, local: Sum, global: Sum) -> f64 {
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
pub(super) struct Hot {
    pub(super) dso: DsoId,
    pub(super) symbol: SymId,
    /// All of it, by event.
    pub(super) sums: Sums,
    /// By address in the binary's terms.
    pub(super) places: BTreeMap<u64, Sums>,
}

/// All functions, those that cost most first.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// Names of the events, by column.
    pub(super) events: Vec<String>,
    /// All samples of each event.
    pub(super) whole: Sums,
    pub(super) hot: Vec<Hot>,
    /// Samples that are in no function that has a name.
    pub(super) nameless: u64,
}

impl Costs {
    /// Puts the samples of the wanted events to the functions they are in.
    pub(super) fn of(profile: &Profile, wanted: &[bool], chosen: &Chosen) -> Costs {
        let mut costs = Costs::default();
        let mut known: FxHashMap<SymId, usize> = FxHashMap::default();
        let events = profile.events.iter().zip(wanted).filter(|(e, w)| **w && e.samples > 0);
        for (event, _) in events {
            let column = costs.events.len();
            costs.events.push(event.desc.name.clone());
            costs.whole.push(Sum::default());
            for (stack, _) in event.stacks().filter(|(s, _)| chosen.wants(profile, s)) {
                let sum = Sum { samples: stack.samples, period: stack.period };
                costs.whole.last_mut().into_iter().for_each(|w| w.add(sum));
                let frame = profile.frame(stack.leaf);
                let (Some(symbol), Some(dso)) = (frame.symbol, frame.dso) else {
                    costs.nameless += stack.samples;
                    continue;
                };
                let hot = &mut costs.hot;
                let at = *known.entry(symbol).or_insert_with(|| {
                    hot.push(Hot { dso, symbol, sums: Sums::new(), places: BTreeMap::new() });
                    hot.len() - 1
                });
                let Some(hot) = hot.get_mut(at) else { continue };
                let mut row = vec![Sum::default(); column];
                row.push(sum);
                add(&mut hot.sums, &row);
                add(hot.places.entry(frame.addr).or_default(), &row);
            }
        }
        let columns = costs.events.len();
        for hot in &mut costs.hot {
            hot.sums.resize(columns, Sum::default());
            hot.places.values_mut().for_each(|s| s.resize(columns, Sum::default()));
        }
        let share = |hot: &Hot| -> f64 {
            hot.sums.iter().zip(&costs.whole).map(|(s, w)| percent(s.period, w.period)).sum()
        };
        let mut ranked: Vec<(f64, Hot)> =
            std::mem::take(&mut costs.hot).into_iter().map(|hot| (share(&hot), hot)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.symbol.cmp(&b.1.symbol)));
        costs.hot = ranked.into_iter().map(|(_, hot)| hot).collect();
        costs
    }
}

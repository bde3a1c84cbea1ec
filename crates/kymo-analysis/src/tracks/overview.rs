//! The whole recording at a glance: events and load of the CPUs by equal parts of its time.

use super::read::TraceTracks;

/// A part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverviewBin {
    /// Events in it; those at its ends may count for the part beside it.
    pub events: u64,
    /// Nanoseconds that CPUs ran tasks.
    pub busy: u64,
}

impl TraceTracks {
    /// The overview in `count` parts.
    pub fn overview(&self, count: usize) -> Vec<OverviewBin> {
        let mut bins = vec![OverviewBin::default(); count.max(1)];
        let length = u128::from((self.span.1 - self.span.0).max(1));
        let width = length.div_ceil(bins.len() as u128).max(1) as u64;
        let last = bins.len() - 1;
        for (time, count) in self.events.density.bins() {
            let at = ((time / width) as usize).min(last);
            bins.get_mut(at).into_iter().for_each(|b| b.events += count);
        }
        for span in self.cpus.iter().flat_map(|c| c.spans()) {
            for at in span.from / width..=(span.to - 1) / width {
                let Some(bin) = bins.get_mut(at as usize) else { break };
                let from = span.from.max(at * width);
                bin.busy += span.to.min((at + 1).saturating_mul(width)) - from;
            }
        }
        bins
    }
}

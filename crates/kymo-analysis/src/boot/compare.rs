//! Two boots beside each other: what became faster or slower.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::activity::BootActivity;
use super::report::BootReport;

/// Time of one activity in two boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootDifference {
    /// Activity of the tasks.
    pub activity: BootActivity,
    /// Kind of the path segments, in words.
    pub kind: String,
    /// Device whose commands were waited for.
    pub device: Option<String>,
    /// Nanoseconds in the first boot, and in the second.
    pub nanos: [u64; 2],
}

impl BootDifference {
    /// Nanoseconds by which the second took longer.
    pub fn change(&self) -> i64 {
        let [a, b] = self.nanos.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        b.saturating_sub(a)
    }
}

/// Compares the paths of two boots; the largest differences first.
pub fn compare_boots(reports: [&BootReport; 2]) -> Vec<BootDifference> {
    let mut all: BTreeMap<(String, String, Option<String>), BootDifference> = BTreeMap::new();
    for (number, report) in reports.into_iter().enumerate() {
        for row in &report.rows {
            let Some(activity) = report.activity(row.activity) else { continue };
            let (kind, device) = (row.kind.text(), row.device.map(|d| d.to_string()));
            let key = (
                format!("{} {}", activity.kind.name(), activity.name),
                kind.clone(),
                device.clone(),
            );
            let activity = activity.clone();
            let new = BootDifference { activity, kind, device, nanos: [0; 2] };
            let entry = all.entry(key).or_insert(new);
            if let Some(slot) = entry.nanos.get_mut(number) {
                *slot += row.total;
            }
        }
    }
    let mut rows: Vec<BootDifference> = all.into_values().collect();
    rows.sort_by_key(|r| Reverse(r.change().unsigned_abs()));
    rows
}

//! Output of `kymo sched`: text, partly laid out as perf's, and JSON (docs/json.md).

mod latency;
mod map;
mod perf_latency;
mod stats;
mod timehist;
mod timehist_summary;

pub use latency::LatencyView;
pub use map::{MapWriter, MappedTasks};
pub use stats::SchedStatsView;
pub use timehist::{TimehistColumns, TimehistWriter};
pub use timehist_summary::TimehistSummary;

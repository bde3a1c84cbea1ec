//! Flags that say which events of a recording count, alike for every command and format.

use std::str::FromStr;

use kymo_events::{EventSelection, FilterExpr, parse_times};

/// Selection of events.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct EventSelectionArgs {
    /// Only this time range: START,STOP in seconds, or a share (10%-20%)
    ///
    /// START or STOP may be omitted; several ranges are separated by spaces. Shares of the
    /// recording: 0%-10%,30%-40%, or 10%/2 for the second tenth.
    #[arg(long, value_name = "START,STOP", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,
    /// Only events of these CPUs (`0,2-3`)
    #[arg(short = 'C', long, value_name = "LIST")]
    pub(crate) cpu: Option<String>,
    /// Only events of these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Only events of these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    pub(crate) tid: Vec<u32>,
    /// Only samples in these cgroups (paths or globs), or below them
    ///
    /// Paths as for `record -G`; needs a perf.data with recorded cgroups.
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    pub(crate) cgroup: Vec<String>,
    /// Only these events (names or globs)
    #[arg(short = 'e', long = "event", value_name = "NAMES", value_delimiter = ',')]
    pub(crate) events: Vec<String>,
    /// Only events with matching fields: `prev_prio < 100`
    ///
    /// The syntax of the kernel's event filters: `prev_prio < 100 && next_comm ~ "kworker*"`; also
    /// comm, pid, tid, cpu, event.
    #[arg(long, value_name = "EXPR", value_parser = FilterExprArg::from_str)]
    pub(crate) filter: Option<FilterExprArg>,
}

/// A filter as a flag.
#[derive(Clone, Debug)]
pub(crate) struct FilterExprArg(FilterExpr);

impl FromStr for FilterExprArg {
    type Err = kymo_events::FilterExprError;

    fn from_str(text: &str) -> Result<FilterExprArg, Self::Err> {
        FilterExpr::parse(text).map(FilterExprArg)
    }
}

impl EventSelectionArgs {
    /// Whether every event counts.
    pub(crate) fn is_everything(&self) -> bool {
        self.time.is_none()
            && self.cpu.is_none()
            && self.filter.is_none()
            && self.pid.is_empty()
            && self.tid.is_empty()
            && self.cgroup.is_empty()
            && self.events.is_empty()
    }

    /// The selection that the flags mean. `comms`: names of tasks, for which commands have
    /// flags of their own; `span`: when the recording begins and ends, asked for where shares
    /// of it are selected.
    pub(crate) fn selection(
        &self,
        comms: Vec<String>,
        span: impl FnOnce() -> anyhow::Result<Option<(u64, u64)>>,
    ) -> anyhow::Result<EventSelection> {
        let mut selection = EventSelection::of_tasks(comms, self.pid.clone(), self.tid.clone());
        selection.filter = self.filter.as_ref().map(|f| f.0.clone());
        if let Some(text) = &self.time {
            let span = if text.contains('%') { span()? } else { None };
            selection.times = parse_times(text, span)?;
        }
        if let Some(cpus) = &self.cpu {
            selection.set_cpus(cpus)?;
        }
        selection.set_cgroups(&self.cgroup)?;
        selection.set_events(&self.events)?;
        Ok(selection)
    }
}

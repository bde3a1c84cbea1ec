//! `/proc/schedstat`, and the switch that makes the scheduler count.

use std::fs;
use std::io;

use crate::system_root::system_path;

const SWITCH: &str = "/proc/sys/kernel/sched_schedstats";

/// The text of `/proc/schedstat`. The kernel has none without `CONFIG_SCHEDSTATS`.
pub fn read_schedstat() -> io::Result<String> {
    fs::read_to_string(system_path("/proc/schedstat"))
}

/// The scheduler's counting, switched on; what was before is put back at the end.
#[derive(Debug)]
pub struct SchedStatsSwitch {
    /// The text to put back, if the switch was off.
    before: Option<String>,
}

impl SchedStatsSwitch {
    /// Switches counting on, if it is off.
    pub fn on() -> io::Result<SchedStatsSwitch> {
        let path = system_path(SWITCH);
        let now = fs::read_to_string(&path)?;
        if now.trim() != "0" {
            return Ok(SchedStatsSwitch { before: None });
        }
        fs::write(&path, "1")?;
        Ok(SchedStatsSwitch { before: Some(now) })
    }
}

impl Drop for SchedStatsSwitch {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The error cannot be reported.
            let _ = fs::write(system_path(SWITCH), before);
        }
    }
}

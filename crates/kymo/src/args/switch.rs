//! Flags that switch on and off which samples of a perf.data count, by events within it.

use kymo_events::EventSwitch;

/// Events that switch.
#[derive(clap::Args, Default)]
pub(crate) struct SwitchArgs {
    /// Only samples behind one of this event, until one that switches off (of perf.data)
    #[arg(long, value_name = "EVENT")]
    switch_on: Option<String>,
    /// Only samples before one of this event, and behind one that switches on (of perf.data)
    #[arg(long, value_name = "EVENT")]
    switch_off: Option<String>,
    /// Count the samples that switch as well
    #[arg(long)]
    show_on_off_events: bool,
}

impl SwitchArgs {
    /// What they mean.
    pub(crate) fn switch(&self) -> EventSwitch {
        EventSwitch {
            on: self.switch_on.clone(),
            off: self.switch_off.clone(),
            is_inclusive: self.show_on_off_events,
        }
    }

    /// Whether an event switches.
    pub(crate) fn is_given(&self) -> bool {
        self.switch_on.is_some() || self.switch_off.is_some()
    }
}

//! Flags that switch on and off which samples of a perf.data count, by events within it.

use kymo_events::EventSwitch;

/// Events that switch.
#[derive(clap::Args, Default)]
pub(crate) struct SwitchArgs {
    /// Only samples after this event, until a --switch-off event (perf.data only)
    #[arg(long, value_name = "EVENT")]
    switch_on: Option<String>,
    /// Only samples before this event, and after a --switch-on event (perf.data only)
    #[arg(long, value_name = "EVENT")]
    switch_off: Option<String>,
    /// Also include the --switch-on and --switch-off events
    #[arg(long)]
    show_on_off_events: bool,
}

impl SwitchArgs {
    /// Returns the event switch of these options.
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

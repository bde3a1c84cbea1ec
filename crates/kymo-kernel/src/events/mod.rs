//! Events: from the text of `-e` to what the kernel opens.
//!
//! [`Catalog`] knows what the machine offers and reads perf's event grammar;
//! [`EventSpec`] is one event ready to be opened. The grammar itself is in
//! `parse.rs` (lists, groups, which kind of name it is), `modifiers.rs` (what
//! follows the colon), `terms.rs` (what stands between slashes) and
//! `names.rs` (the fixed names of hardware, software and cache events);
//! `filter.rs` finds out what is wrong with a refused filter.

mod catalog;
mod error;
mod filter_refusal;
mod modifiers;
pub mod names;
mod paranoid;
mod parse;
mod support;
mod terms;

#[cfg(test)]
mod tests;

pub use catalog::Catalog;
pub use error::{ParseError, Reason};
pub use filter_refusal::explain_refusal;
pub use paranoid::{Paranoid, paranoid};
pub use support::Support;

use kymo_model::{Attr, AttrFlags, EventType};

/// One event as the user asked for it.
///
/// `attr` holds what the event *is* (`kind`, `config*`, breakpoint fields) and
/// what the modifiers chose (`exclude_*`, `precise_ip`, `pinned`, `exclusive`).
/// What samples and reads carry is the command's business and left at zero,
/// except `sample_period = 1` of tracepoints and breakpoints, whose every hit
/// is a sample unless a period or frequency is given (counting sets it to 0).
#[derive(Clone, Debug, PartialEq)]
pub struct EventSpec {
    /// The name perf prints: the text as typed, `sys:name` of a tracepoint, or
    /// the `name=` term.
    pub name: String,
    /// Attributes to open; meaningless unless `source` is [`CounterSource::Perf`].
    pub attr: Attr,
    /// Source of the values.
    pub source: CounterSource,
    /// Unit of the scaled count, empty if none.
    pub unit: String,
    /// Factor from the count to `unit`.
    pub scale: f64,
    /// The value is a level, not a count since the last read.
    pub snapshot: bool,
    /// One CPU of each package gives the value for the whole package.
    pub per_package: bool,
    /// The CPUs to open it on (the PMU's cpumask), if not all.
    pub cpus: Option<Vec<u32>>,
    /// The PMU, for events written or found as PMU events.
    pub pmu: Option<String>,
    /// System and name of a tracepoint.
    pub tracepoint: Option<(String, String)>,
    /// The kernel-side filter, set by `--filter`.
    pub filter: Option<String>,
    /// Events with the same number are one `{group}`; the first one leads.
    pub group: Option<u32>,
    /// `:W`: if the group cannot be scheduled, open its events one by one.
    pub weak_group: bool,
    /// `:S`: the leader's samples carry the counts of the group.
    pub sample_read: bool,
    /// `:P`: the highest `precise_ip` that the kernel takes.
    pub precise_max: bool,
    /// Terms of this event that override the command's options.
    pub terms: Terms,
    /// `:G` or `:H` was given, so that group modifiers leave it alone.
    guest_or_host_chosen: bool,
}

/// Source of an event's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterSource {
    /// perf_event_open(2).
    Perf,
    /// The named counter of `/proc/vmstat`.
    Vmstat(String),
    /// The tool's own clock and the command's resource usage.
    Tool(Tool),
}

/// Values that the tool itself knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `duration_time`: wall-clock nanoseconds.
    DurationTime,
    /// `user_time`: nanoseconds in user mode.
    UserTime,
    /// `system_time`: nanoseconds in the kernel.
    SystemTime,
}

/// Terms that concern sampling and opening, not the event itself. `None`
/// means the command's option counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// It is opened for whatever runs on the CPUs, also where the others follow tasks.
    pub system_wide: bool,
    /// `period=N`: a sample every N events.
    pub period: Option<u64>,
    /// `freq=N`: about N samples a second.
    pub freq: Option<u64>,
    /// `time` or `time=0`: timestamps in samples.
    pub time: Option<bool>,
    /// `call-graph=fp|dwarf|lbr|no`.
    pub call_graph: Option<String>,
    /// `stack-size=N`: bytes of stack with `call-graph=dwarf`.
    pub stack_size: Option<u64>,
    /// `max-stack=N`: frames.
    pub max_stack: Option<u16>,
    /// `inherit` or `no-inherit`.
    pub inherit: Option<bool>,
    /// `overwrite` or `no-overwrite`.
    pub overwrite: Option<bool>,
    /// `branch_type=any,u…`, as typed.
    pub branch_type: Option<String>,
    /// `percore`: sum over the threads of a core.
    pub percore: bool,
    /// `nr=N`: stop the event after N occurrences.
    pub max_events: Option<u64>,
    /// `aux-output`.
    pub aux_output: bool,
    /// `aux-sample-size=N`.
    pub aux_sample_size: Option<u32>,
}

impl EventSpec {
    /// An event with nothing chosen about it.
    pub fn new(name: impl Into<String>, attr: Attr) -> EventSpec {
        EventSpec {
            name: name.into(),
            attr,
            source: CounterSource::Perf,
            unit: String::new(),
            scale: 1.0,
            snapshot: false,
            per_package: false,
            cpus: None,
            pmu: None,
            tracepoint: None,
            filter: None,
            group: None,
            weak_group: false,
            sample_read: false,
            precise_max: false,
            terms: Terms::default(),
            guest_or_host_chosen: false,
        }
    }

    /// An event of the given PMU. Without modifiers perf counts the host only,
    /// hence `exclude_guest`.
    fn legacy(name: &str, kind: EventType, config: u64) -> EventSpec {
        let flags = AttrFlags::EXCLUDE_GUEST;
        EventSpec::new(name, Attr { kind, config, flags, ..Attr::default() })
    }

    /// A value that does not come from perf_event_open(2).
    fn other(name: &str, source: CounterSource) -> EventSpec {
        EventSpec { source, ..EventSpec::new(name, Attr::default()) }
    }

    /// Whether it is a tracepoint (static or dynamic).
    pub fn is_tracepoint(&self) -> bool {
        self.source == CounterSource::Perf && self.attr.kind == EventType::TRACEPOINT
    }

    /// Limits the event to user mode, as perf does when the kernel refuses an
    /// unprivileged user the rest, and says so in the name with perf's `:u`.
    pub fn restrict_to_user(&mut self) {
        if self.source != CounterSource::Perf || self.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL)
        {
            return;
        }
        self.attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        let has_modifiers = self.name.ends_with('/')
            || !self.is_tracepoint()
                && self
                    .name
                    .rsplit_once([':', '/'])
                    .is_some_and(|(_, tail)| modifiers::is_modifier_text(tail));
        self.name.push_str(if has_modifiers { "u" } else { ":u" });
    }

    /// Whether leaving the kernel out still matches the request: not where its side was named
    /// (`:k`), and there is nothing to leave out where it was not (`:u`).
    pub fn may_be_user_only(&self) -> bool {
        self.source == CounterSource::Perf
            && !self.attr.flags.intersects(AttrFlags::EXCLUDE_USER | AttrFlags::EXCLUDE_KERNEL)
    }

    /// Whether the event may count in guests as well, because a PMU that cannot
    /// tell them from the host refused the default of leaving them out.
    pub fn may_count_guests(&self) -> bool {
        !self.guest_or_host_chosen
            && self.attr.flags.intersects(AttrFlags::EXCLUDE_GUEST | AttrFlags::EXCLUDE_HOST)
    }
}

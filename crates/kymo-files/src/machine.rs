//! Facts about the recorded machine that rendering needs, which both perf.data and trace.dat state
//! in texts of tracefs. Each format stores them in its own section.

use std::sync::Arc;

/// Facts about the recorded machine that rendering needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Text of `events/header_page`.
    pub header_page: String,
    /// Text of `events/header_event`.
    pub header_event: String,
    /// Formats of ftrace's own entries (`function`, `kernel_stack`, `print`, …).
    pub ftrace_formats: Vec<String>,
    /// `(system, format text)` of each event.
    pub formats: Vec<(String, String)>,
    /// `/proc/kallsyms`.
    pub kallsyms: Arc<String>,
    /// `printk_formats`: address and string.
    pub printk_formats: String,
    /// `saved_cmdlines`: pid and name.
    pub saved_cmdlines: String,
}

//! A probe definition: one line of `kprobe_events` or `uprobe_events`, written as perf
//! writes it, so that the two can be compared as text.

use std::fmt;

use super::FetchArg;

/// An event as the kernel defines it: one probe point of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeDefinition {
    /// `p` or `r`.
    pub kind: ProbeKind,
    /// Group of the event.
    pub group: String,
    /// Name of the event; none where the kernel is to choose it.
    pub event: Option<String>,
    /// Probed code.
    pub target: ProbeTarget,
    /// Values that are recorded.
    pub args: Vec<FetchArg>,
}

/// Moment at which a probe fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// `p`: before the instruction at the target.
    Probe,
    /// `r`: after the function at the target has returned.
    Return {
        /// `rN`: most calls of the function that are watched at a time.
        max_active: Option<u32>,
    },
}

/// Probed code in the words of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeTarget {
    /// In the kernel: `[MODULE:]SYMBOL[+OFFSET]`.
    Symbol {
        /// Module; none for the kernel itself.
        module: Option<String>,
        /// Symbol.
        symbol: String,
        /// Bytes from it; none where the text states none.
        offset: Option<u64>,
    },
    /// In the kernel: an address.
    Address(u64),
    /// In a file: `PATH:OFFSET[(REF_CTR_OFFSET)]`.
    File {
        /// The binary.
        path: String,
        /// Bytes from its beginning.
        offset: u64,
        /// Offset in the file of the reference counter (the semaphore of an SDT probe).
        ref_ctr_offset: Option<u64>,
    },
    /// Text in the kernel's syntax that is none of the above (`SYMBOL%return`).
    Verbatim(String),
}

impl ProbeKind {
    /// A return probe without a stated limit.
    pub const RETURN: ProbeKind = ProbeKind::Return { max_active: None };

    /// The kind for a `%return` that is given or not.
    pub fn from_return(is_return: bool) -> ProbeKind {
        if is_return { ProbeKind::RETURN } else { ProbeKind::Probe }
    }

    /// Whether the probe fires at a return.
    pub fn is_return(self) -> bool {
        matches!(self, ProbeKind::Return { .. })
    }
}

impl ProbeTarget {
    /// Whether the target is in a file, and not in the kernel.
    pub fn is_user(&self) -> bool {
        match self {
            ProbeTarget::File { .. } => true,
            ProbeTarget::Verbatim(text) => text.starts_with('/'),
            ProbeTarget::Symbol { .. } | ProbeTarget::Address(_) => false,
        }
    }

    /// Group that the kernel gives to events without one.
    pub fn default_group(&self) -> &'static str {
        if self.is_user() { "uprobes" } else { "kprobes" }
    }
}

impl ProbeDefinition {
    /// `group:event`, as perf and `-e` have it; an event without a name is `…`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.group, self.event.as_deref().unwrap_or("…"))
    }

    /// Whether this is a probe point of the event.
    pub fn is_of(&self, group: &str, event: &str) -> bool {
        self.group == group && self.event.as_deref() == Some(event)
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeKind::Probe => f.write_str("p"),
            ProbeKind::Return { max_active: None } => f.write_str("r"),
            ProbeKind::Return { max_active: Some(most) } => write!(f, "r{most}"),
        }
    }
}

impl fmt::Display for ProbeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeTarget::Symbol { module, symbol, offset } => {
                if let Some(module) = module {
                    write!(f, "{module}:")?;
                }
                f.write_str(symbol)?;
                match offset {
                    Some(offset) => write!(f, "+{offset}"),
                    None => Ok(()),
                }
            }
            ProbeTarget::Address(at) => write!(f, "0x{at:x}"),
            ProbeTarget::File { path, offset, ref_ctr_offset } => {
                write!(f, "{path}:0x{offset:x}")?;
                match ref_ctr_offset {
                    Some(at) => write!(f, "(0x{at:x})"),
                    None => Ok(()),
                }
            }
            ProbeTarget::Verbatim(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for ProbeDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match &self.event {
            Some(event) => write!(f, ":{}/{event}", self.group)?,
            // The kernel chooses the name, in its own group or in this one.
            None if self.group == self.target.default_group() => {}
            None => write!(f, ":{}/", self.group)?,
        }
        write!(f, " {}", self.target)?;
        for arg in &self.args {
            write!(f, " {arg}")?;
        }
        Ok(())
    }
}

//! Causes of the kernel's refusals that are reported only as "invalid argument".

use kymo_kernel::kprobes::forbidden;
use kymo_kernel::probe_events::{ProbeError, ProbeFile};
use kymo_kernel::system::SystemRoot;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::probe::ProbeTarget;

/// A refusal with its reason, if that can be seen.
#[derive(Debug, thiserror::Error)]
#[error("{}{error}", why.as_ref().map(|why| format!("{why}\n")).unwrap_or_default())]
pub struct ExplainedRefusal {
    why: Option<String>,
    error: ProbeError,
}

/// Adds the reason, if it can be seen.
pub fn explain_refusal(error: ProbeError) -> ExplainedRefusal {
    let inner = match &error {
        ProbeError::Left { error, .. } => error,
        other => other,
    };
    let why = match inner {
        ProbeError::Refused { change, error, .. } => {
            change.added().and_then(|definition| why(&definition.target, error))
        }
        _ => None,
    };
    ExplainedRefusal { why, error }
}

fn why(target: &ProbeTarget, error: &std::io::Error) -> Option<String> {
    /// EILSEQ, for which the system has only words about characters.
    const NO_INSTRUCTION: i32 = 84;
    if error.raw_os_error() == Some(NO_INSTRUCTION) {
        return Some(format!("{target} is in the middle of an instruction"));
    }
    if let ProbeTarget::File { path, .. } = target
        && path.contains(char::is_whitespace)
    {
        return Some(format!(
            "{path} contains a space, which ends a path for the kernel: probe it through a \
             symbolic link without spaces (ln -s)"
        ));
    }
    let ProbeTarget::Symbol { symbol, offset, .. } = target else { return None };
    let tracefs = Tracefs::open().ok().filter(|t| t.takes(ProbeFile::Kernel))?;
    let names = kymo_kernel::kallsyms::Kallsyms::running();
    let addr = address_of(symbol)?.checked_add(offset.unwrap_or(0))?;
    if let Some(name) = forbidden(addr) {
        return Some(format!(
            "{name} is on the kernel's kprobe blacklist because it handles probes; probe a caller"
        ));
    }
    let (_, _, name, _) = names.lookup(addr)?;
    let traced = tracefs.read("available_filter_functions").ok()?;
    let is_it = |line: &str| line.split_ascii_whitespace().next() == Some(name);
    if !traced.is_empty() && !traced.lines().any(is_it) {
        return Some(format!(
            "{name} is notrace: this kernel accepts no probes on functions hidden from the \
             function tracer (CONFIG_KPROBE_EVENTS_ON_NOTRACE); probe a caller or a callee"
        ));
    }
    None
}

fn address_of(symbol: &str) -> Option<u64> {
    let text = SystemRoot::machine().kallsyms_text().ok()?;
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let addr = u64::from_str_radix(words.next()?, 16).ok()?;
        (words.nth(1)? == symbol && addr > 0).then_some(addr)
    })
}

//! Names of the kernel's functions in stacks of CTF traces, which carry no symbols: out of a
//! file that was named, or of the running kernel if the trace was made under it since it was
//! booted.

use std::cell::{OnceCell, RefCell};

use kymo_files::ctf::Metadata;
use kymo_files::ctf::read::Ctf;
use kymo_files::ctf::types::EnvValue;
use kymo_kernel::system::SystemRoot;
use kymo_model::{Note, NoteKind, counted};
use kymo_symbols::{Resolver, ResolverOptions};
use rustc_hash::FxHashSet;

/// Source of kernel function names; read when the first is requested.
pub(crate) struct KernelFunctions<'s> {
    ctf: &'s Ctf,
    symbols: &'s ResolverOptions,
    resolver: OnceCell<Option<Resolver>>,
    /// Addresses that were asked for and have no name.
    nameless: RefCell<FxHashSet<u64>>,
}

impl<'s> KernelFunctions<'s> {
    pub(crate) fn new(ctf: &'s Ctf, symbols: &'s ResolverOptions) -> KernelFunctions<'s> {
        KernelFunctions { ctf, symbols, resolver: OnceCell::new(), nameless: RefCell::default() }
    }

    fn resolver(&self) -> Option<&Resolver> {
        let resolver = self.resolver.get_or_init(|| {
            let named = self.symbols.kallsyms.is_some() || self.symbols.vmlinux.is_some();
            let usable = named || self.ctf.traces().iter().all(|t| is_of_this_boot(t.metadata()));
            usable.then(|| Resolver::new(self.symbols.clone()))
        });
        resolver.as_ref()
    }

    /// Name of the function at an address.
    pub(crate) fn name(&self, addr: u64) -> Option<String> {
        self.symbol(addr).map(|(name, _)| name)
    }

    /// Name of the function at an address, and the distance from its start.
    pub(crate) fn symbol(&self, addr: u64) -> Option<(String, u64)> {
        let span = self.resolver().and_then(|r| r.kernel_span(addr));
        if span.is_none() {
            self.nameless.borrow_mut().insert(addr);
        }
        span.map(|(start, _, name, _)| (name.to_owned(), addr.saturating_sub(start)))
    }

    /// Notes on names that were asked for.
    pub(crate) fn notes(&self) -> Option<Note> {
        let nameless = self.nameless.borrow().len();
        let fact = counted(
            nameless as u64,
            "address of the kernel has no name",
            "addresses of the kernel have no name",
        );
        let advice = match self.resolver() {
            _ if nameless == 0 => return None,
            Some(_) => None,
            None => Some(
                "the trace is not of the kernel that runs here: --kallsyms FILE names its symbols"
                    .to_owned(),
            ),
        };
        Some(Note::doubt(NoteKind::Unresolved, fact, advice))
    }
}

/// Kernels move at each boot: the same machine and release are not enough.
fn is_of_this_boot(metadata: &Metadata) -> bool {
    let text = |name: &str| match metadata.env(name) {
        Some(EnvValue::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let system = SystemRoot::machine();
    let is = |name: &str, here: Option<String>| text(name).zip(here).is_some_and(|(t, h)| t == h);
    is("hostname", system.hostname())
        && is("kernel_release", system.kernel_release())
        && text("trace_creation_datetime")
            .and_then(seconds)
            .zip(system.boot_time())
            .is_some_and(|(t, b)| t > b)
}

/// `20261121T223000+0100` as seconds since 1970.
fn seconds(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
    // Days since 1970 of a year that begins in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day
            - 719_469;
    let zone = match (text.get(15..16), number(16, 18), number(18, 20)) {
        (Some("-"), Some(h), Some(m)) => -(h * 60 + m),
        (Some("+"), Some(h), Some(m)) => h * 60 + m,
        _ => 0,
    };
    Some(((days * 24 + hour) * 60 + minute - zone) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn dates_are_counted_from_1970() {
        // What `date -u -d … +%s` says.
        assert_eq!(seconds("19700101T000000+0000"), Some(0));
        assert_eq!(seconds("20261121T223000+0100"), Some(1_795_296_600));
        assert_eq!(seconds("20240229T120000-0530"), Some(1_709_227_800));
        assert_eq!(seconds("yesterday"), None);
    }
}

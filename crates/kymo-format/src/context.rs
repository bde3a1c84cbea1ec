//! Context of rendering, beside the payload.

use kymo_model::Endian;

/// A kernel symbol that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// The address's distance from its start.
    pub offset: u64,
    /// Its size, as kallsyms counts it: up to the next symbol.
    pub size: u64,
    /// The module it belongs to.
    pub module: Option<&'a str>,
}

/// Lookup of addresses in payloads.
pub trait Symbols {
    /// The kernel symbol that holds `address`.
    fn kernel(&self, address: u64) -> Option<KernelSymbol<'_>>;

    /// The constant string at `address` (tracefs `printk_formats`).
    fn printk_string(&self, address: u64) -> Option<&str> {
        let _ = address;
        None
    }
}

/// No symbols: addresses stay numbers, as the kernel prints them then.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn kernel(&self, _: u64) -> Option<KernelSymbol<'_>> {
        None
    }
}

/// Format of a plain `%p`.
///
/// The kernel's `trace` file shows pointers hashed with a secret of that boot unless the option
/// `hash-ptr` is 0, so its default text cannot be had from a recording. Both styles here show the
/// real value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PointerStyle {
    /// 16 digits, as `trace` prints with `hash-ptr` 0.
    #[default]
    Kernel,
    /// `0x` and as many digits as needed, `(nil)` for none, as perf script and
    /// trace-cmd report print.
    Short,
}

/// Context of rendering, beside the payload.
#[derive(Clone, Copy)]
pub struct RenderContext<'a> {
    /// Byte order of the payload.
    pub endian: Endian,
    /// Kernel symbols for `%pS` and its kin.
    pub symbols: &'a dyn Symbols,
    /// Format of a plain `%p`.
    pub pointers: PointerStyle,
    /// Whether `%pS` prints the size of the symbol, as the kernel does and trace-cmd does not.
    pub symbol_sizes: bool,
    /// Ticks a second of the recorded kernel, for `jiffies_to_msecs()`.
    pub hz: u32,
}

impl Default for RenderContext<'_> {
    fn default() -> Self {
        Self {
            endian: Endian::NATIVE,
            symbols: &NoSymbols,
            pointers: PointerStyle::Kernel,
            symbol_sizes: true,
            hz: 250,
        }
    }
}

//! Options of a search for probe points, and how data of the binary is named in fetch
//! arguments.

/// A symbol and the bytes from its beginning, for an address.
pub type SymbolLookup<'a> = dyn Fn(u64) -> Option<(String, u64)> + 'a;

/// Base of addresses of the binary's data in fetch arguments.
pub enum DataNaming<'a> {
    /// By symbol: the kernel and its modules.
    Kernel(&'a SymbolLookup<'a>),
    /// By offset in the file.
    File {
        /// Stated address minus file offset of the code.
        bias: u64,
    },
}

/// Options of the search.
pub struct FinderOptions<'a> {
    /// Base of data addresses; distinguishes probes of the kernel from those of programs.
    pub data: DataNaming<'a>,
    /// Leave out inlined copies.
    pub no_inlines: bool,
    /// The most places one description may give.
    pub max_probes: usize,
    /// The address of a function by its name, if the symbol table has one.
    pub entry: &'a dyn Fn(&str) -> Option<u64>,
}

//! Numbers of binaries (dso, in perf's word) and of symbols, and the kinds of binaries.

use kymo_model::impl_vec_index;

/// Number of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DsoId(pub u32);
impl_vec_index!(DsoId, "binary");

/// Number of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymId(pub u32);
impl_vec_index!(SymId, "symbol");

/// Kind of code behind a name in a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DsoKind {
    /// `[kernel.kallsyms]`.
    Kernel,
    /// `[name]` of a kernel module, or its file.
    Module,
    /// A BPF program; it has one symbol, its own name.
    Bpf,
    /// `[vdso]`.
    Vdso,
    /// Anonymous executable memory: `/tmp/perf-PID.map`.
    PerfMap,
    /// A file.
    File,
    /// Memory without symbols: `[stack]`, `[vsyscall]`.
    Other,
}

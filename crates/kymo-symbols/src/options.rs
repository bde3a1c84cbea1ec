//! Options of a resolver.

use std::path::PathBuf;
use std::sync::Arc;

use kymo_debuginfod::Client;

use crate::bundle::Bundle;
use crate::problem::BundleError;

/// Search path and output options.
#[derive(Clone, Debug, Default)]
pub struct ResolverOptions {
    /// Look for files under this directory.
    pub symfs: Option<PathBuf>,
    /// Kernel symbols from this file.
    pub kallsyms: Option<PathBuf>,
    /// Kernel symbols from this uncompressed kernel image.
    pub vmlinux: Option<PathBuf>,
    /// Leave names as the compiler mangled them.
    pub no_demangle: bool,
    /// Servers to ask for what is not on this machine.
    pub debuginfod: Option<Arc<Client>>,
    /// Bundle of the recording; it takes precedence for the binaries it contains.
    pub bundle: Option<Arc<Bundle>>,
    /// Why a bundle that is there is not used.
    pub no_bundle: Option<BundleError>,
}

//! Writing traces: `Metadata::to_text` prints what is declared, as TSDL (CTF 1.8) or as
//! fragments of JSON (CTF 2), [`Directory`] makes the directory, and packets are copied into its streams as they are.

mod directory;
mod json;
mod tsdl;

pub use directory::Directory;
use tsdl::uuid;

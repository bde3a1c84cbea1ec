//! Writing traces in CTF 1.8: [`Metadata::to_tsdl`] prints what is declared,
//! [`Directory`] makes the directory, and packets are copied into its streams as they are.

mod directory;
mod tsdl;

pub use directory::Directory;

//! Writing traces in CTF 1.8: [`Metadata::to_tsdl`] prints what is declared,
//! [`Folder`] makes the folder, and packets are copied into its streams as they are.

mod folder;
mod tsdl;

pub use folder::Folder;

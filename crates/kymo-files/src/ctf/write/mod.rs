//! Writing traces in CTF 1.8: [`Metadata::to_tsdl`] prints what is declared,
//! [`Folder`] makes the folder, and packets are copied into its streams as they
//! are or made event by event with [`PacketWriter`].

mod folder;
mod packet;
mod tsdl;

pub use folder::Folder;
pub use packet::{Missing, PacketWriter, Value};

//! Recordings over the network: `kymo trace -o tcp://HOST:PORT` sends ring pages as they are, `kymo
//! listen` writes them to a trace.dat. One connection carries all CPUs of a recording. The manual
//! describes the bytes; `frame` has them.

mod auth;
mod frame;
mod listen;
mod receive;
mod send;
#[cfg(test)]
mod tests;

pub use auth::{HandshakeError, Secret, SecretError};
pub use frame::ProtocolError;
pub use listen::{ListenError, ListenEvent, ListenOptions, Listened, listen};
pub use receive::ReceiveError;
pub use send::{Remote, SendError};

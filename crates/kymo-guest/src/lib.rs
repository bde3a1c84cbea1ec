//! Protocol between the host and the guest's init: the [`Job`] in the initrd, and the frames that
//! come back through a virtio-serial port. The console stays free for the kernel's own messages.
//! The init itself is `main.rs`, QEMU is driven by `cargo xtask vm`.
#![forbid(unsafe_code)]

mod bytes;
mod frame;
mod job;

pub use frame::{GuestMessage, OutputStream};
pub use job::{Command, GuestModule, Job};

/// Path of the [`Job`] in the guest.
pub const JOB: &str = "/vm/job";

/// Modules that can be loaded on demand: one line each, name and then the paths to
/// load, in order.
pub const MODULES: &str = "/vm/modules";

/// The port's device in the guest.
pub const PORT: &str = "/dev/vport0p1";

//! Numbers of errors that callers tell apart.

pub use libc::{EEXIST, EINVAL, ENODEV, ENOENT, ENOMEM, EPIPE};

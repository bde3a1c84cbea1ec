//! Recording through the ftrace ring: pages move from the kernel to a trace.dat
//! here or at a listener, and nobody looks into them.

mod front;
mod growing;
mod pump;
pub mod stream;

pub use front::{Front, Layout, LayoutError, MAX_STREAMS};

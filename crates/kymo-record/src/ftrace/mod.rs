//! Recording through the ftrace ring: pages move from the kernel to a trace.dat
//! here or at a listener, and nobody looks into them.

mod capture;
mod error;
mod facts;
mod front;
mod growing;
mod movers;
mod pack;
mod pump;
pub mod stream;

pub use capture::{TraceEvent, TraceOptions, TraceOutput, TraceSummary, record_trace};
pub use error::TraceError;
pub use front::{Front, Layout, LayoutError, MAX_STREAMS};

//! Recording through the ftrace ring: pages move from the kernel to a trace.dat here or at a
//! listener, without being parsed; `live` reads them as they come.

mod capture;
mod condition;
mod error;
mod facts;
mod growing;
mod live;
mod movers;
mod pack;
mod pump;
mod session;
mod setup;
pub mod stream;
mod trace_header;
mod watch;

pub use capture::{TraceOptions, TraceOutput, TraceSummary, record_trace, record_trace_beside};
pub use condition::{ConditionError, ConditionSide, LatencyMatcher, On, OnLatency, TooLong};
pub use error::TraceError;
pub use facts::KernelSymbols;
pub use live::{LiveCapture, LiveEnd, LiveOptions, LivePace, LostByCpu, RENAME};
pub use session::{
    BufferMode, KernelSession, KernelSnapshot, SessionOptions, SessionState, TakenBy,
};
pub use setup::{TraceEvent, TraceSetup};
pub use trace_header::{GrowingHeader, HeaderLayoutError, Layout, MAX_STREAMS};
pub use watch::{Condition, ConditionWatch, Met};

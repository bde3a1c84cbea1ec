//! Recording sessions: opens events, drains their rings into a perf.data, and reports losses.
//! [`record`] does a whole recording by its [`RecordOptions`]; [`PerfCapture`] hands the contents
//! of the rings to a live consumer.
//!
//! Nothing here looks into records while recording: spans of the rings go to
//! the file as they lie. What the recording holds (samples, losses, which
//! binaries) is found by one pass over the written file at its end.
#![forbid(unsafe_code)]

mod attrs;
mod build_id;
mod container_files;
mod control;
pub mod count;
mod error;
mod facts;
pub mod ftrace;
mod hardware;
mod history;
mod live;
mod open;
mod opened_events;
mod options;
mod output;
mod reported_losses;
mod scan;
pub mod schedstat;
mod selection;
mod session;
pub mod sessions;
mod synthesize;
mod trust;
pub mod ust;

pub use container_files::ContainerFile;
pub use control::ControlSource;
pub use error::RecordError;
pub use live::{CaptureEnd, CaptureSummary, PerfCapture, SavedRecording};
pub use options::{
    CallGraph, ChosenTasks, Output, RecordClock, RecordOptions, SampleContents, SwitchOn,
    Synthesis, Target,
};
pub use output::create as create_recording;
pub use session::{RecordSummary, Running, record};

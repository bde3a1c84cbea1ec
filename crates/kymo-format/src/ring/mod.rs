//! The pages of the ftrace ring buffer: what `trace_pipe_raw` gives and what
//! trace.dat stores, page by page → events with their times.
//!
//! [`PageLayout`] comes from the text of `events/header_page`;
//! [`PageLayout::page`] opens one page (the kernel calls it a sub-buffer),
//! [`Page::events`] walks it. Nothing is copied, every length is checked, and
//! what comes before a broken record is delivered.

mod layout;
mod walk;

pub use layout::{Missed, Page, PageLayout, RingError};
pub use walk::{Events, RingEvent};

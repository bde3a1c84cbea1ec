//! The memory-mapped ring of a perf event.

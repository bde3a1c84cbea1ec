//! Readers and writers of perf.data.

//! Recording sessions: perf rings to perf.data.

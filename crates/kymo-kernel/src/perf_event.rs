//! perf_event_open(2): opening, controlling and reading counters.

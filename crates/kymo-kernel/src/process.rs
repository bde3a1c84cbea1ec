//! Children that wait before exec, and signals.

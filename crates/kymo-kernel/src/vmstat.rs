//! vmstat

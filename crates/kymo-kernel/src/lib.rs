//! The one door to the machine: perf events, tracefs, sysfs, /proc.

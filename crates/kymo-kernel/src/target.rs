//! What to watch: threads of processes, cgroups, users.

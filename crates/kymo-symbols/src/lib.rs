//! What is at this address: finds binaries, kallsyms, maps and caches answers.

//! ELF facts: symbols, build-ids, demangling; opens no files.

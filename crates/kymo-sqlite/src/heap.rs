//! Limit on the memory of SQLite, which has no safe wrapper.

/// Limits the memory that SQLite takes, in this process; more fails with `SQLITE_NOMEM`.
pub(crate) fn limit_heap(bytes: u64) {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    // SAFETY: the function takes a number and may be called at any time by any thread; SQLite is
    // built with its default of accounting for memory, which the limit needs.
    unsafe { rusqlite::ffi::sqlite3_hard_heap_limit64(bytes) };
}

//! What the readers of all formats say of a damaged place.

/// Where something in a file is wrong, and what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset:#x}: {what}")]
pub struct Damage {
    /// Offset in the file, shown as `script -D` and hex dumps show it.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

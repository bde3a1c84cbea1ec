//! Damage of files, for the readers of all formats.

/// Damage in a file, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset:#x}: {what}")]
pub struct Damage {
    /// Offset in the file, shown as `script -D` and hex dumps show it.
    pub offset: u64,
    /// Description of the damage.
    pub what: String,
}

//! Type and role of a field: what its values are, and what they stand for.

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// An integer.
    Integer {
        /// Whether it is signed.
        signed: bool,
    },
    /// A truth value.
    Bool,
    /// An address.
    Address,
    /// A floating-point number.
    Float,
    /// Text.
    Text,
    /// An integer whose values have names.
    Enumeration,
    /// Several values: an array, a structure, a variant, a bit map, plain bytes.
    Compound,
}

impl FieldType {
    /// Whether a value is a number that can be compared and added.
    pub fn is_number(self) -> bool {
        !matches!(self, FieldType::Text | FieldType::Compound)
    }
}

/// Meaning of a value, beyond its type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldRole {
    /// Nothing more is known.
    #[default]
    Plain,
    /// Address of code of the kernel.
    KernelCode,
    /// Address of code of a program.
    UserCode,
    /// Address of data.
    DataAddress,
    /// Number of a task.
    TaskId,
    /// Name of a task.
    TaskName,
    /// Number of a CPU.
    Cpu,
    /// Nanoseconds.
    Duration,
    /// Bytes.
    Size,
    /// A result that is a negative error number if it is below zero.
    Errno,
    /// Text of a program.
    UserText,
}

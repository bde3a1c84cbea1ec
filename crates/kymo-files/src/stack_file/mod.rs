//! Profiles without times that other tools write: stacks with their weights, as `profile.proto` of
//! pprof (packed by gzip or not) or as folded stacks (a line for each stack).

mod folded;
mod pprof;

/// Stacks of a file with their weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackFile {
    /// Name of what the weights measure: `cpu`, `samples`.
    pub value: String,
    /// Unit of the weights, as the file states it: `nanoseconds`, `count`.
    pub unit: String,
    /// Functions that frames refer to.
    pub functions: Vec<StackFileFunction>,
    /// Stacks.
    pub stacks: Vec<FileStack>,
}

/// A function of a [`StackFile`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackFileFunction {
    /// Name; `[unknown]` where the file has none.
    pub name: String,
    /// File name of its binary; empty where the file names none.
    pub binary: String,
}

/// A stack with its weight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileStack {
    /// Frames, the innermost first.
    pub frames: Vec<FileFrame>,
    /// Weight in the unit of the file.
    pub weight: f64,
    /// Samples that the weight stands for.
    pub samples: u64,
}

/// A frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileFrame {
    /// Number of its function in the file.
    pub function: u32,
    /// The function was inlined into the one that the next frame names.
    pub is_inlined: bool,
}

/// A file that cannot be read as stacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StackFileError {
    /// It is packed by gzip and cannot be unpacked.
    #[error("not a whole gzip file: {0}")]
    Gzip(String),
    /// Unpacked, it would be larger than is read.
    #[error("it unpacks to more than {0} bytes")]
    TooLarge(u64),
    /// It is not a `profile.proto`.
    #[error("not a profile of pprof: {0}")]
    Pprof(String),
    /// A line is not `FRAME;FRAME;... WEIGHT`.
    #[error("line {0} is not a folded stack (FRAME;FRAME;... WEIGHT)")]
    Folded(usize),
    /// A value that was asked for is not in the profile.
    #[error("no value {wanted}; there are {known}")]
    NoValue {
        /// The value that was asked for.
        wanted: String,
        /// Values of the profile.
        known: String,
    },
    /// It has no stacks.
    #[error("no stacks in it")]
    Empty,
}

impl StackFile {
    /// Reads a file by its content; `value` chooses one of several values of a profile of pprof.
    ///
    /// # Errors
    /// If it is neither a profile of pprof nor folded stacks, is damaged, or has no such value.
    pub fn parse(bytes: &[u8], value: Option<&str>) -> Result<StackFile, StackFileError> {
        if pprof::is_profile(bytes) {
            return pprof::parse(bytes, value);
        }
        // The members of a profile may come in another order.
        folded::parse(bytes).or_else(|error| pprof::parse(bytes, value).map_err(|_| error))
    }
}

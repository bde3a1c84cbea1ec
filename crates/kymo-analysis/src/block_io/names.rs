//! Names of devices and files, as far as they are known.

use super::{BlockDevice, BlockFile};

/// Names devices.
pub type DeviceNames<'a> = &'a dyn Fn(BlockDevice) -> Option<String>;

/// Facts about a file's name.
#[derive(Clone, Debug, Default)]
pub struct FileName {
    /// A path that is certainly the file's.
    pub path: Option<String>,
    /// It was deleted.
    pub is_deleted: bool,
    /// Mount point of its file system.
    pub mount: Option<String>,
}

/// Names files.
pub type FileNames<'a> = &'a dyn Fn(BlockFile) -> FileName;

/// Names devices and files.
#[derive(Clone, Copy)]
pub struct BlockNames<'a> {
    /// Names devices.
    pub devices: DeviceNames<'a>,
    /// Names files.
    pub files: FileNames<'a>,
}

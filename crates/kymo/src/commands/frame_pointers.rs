//! Whether the programs that are recorded keep frame pointers, which is known before they are.

use std::ffi::OsString;
use std::path::PathBuf;

use kymo_kernel::process::program_of;
use kymo_kernel::system::SystemRoot;
use kymo_record::Target;
use kymo_symbols::unwind::keeps_frame_pointers;

/// A program of those that are recorded whose code keeps no frame pointers, if there is one.
pub(super) fn without_frame_pointers(target: &Target, command: &[OsString]) -> Option<PathBuf> {
    let system = SystemRoot::machine();
    let programs: Vec<PathBuf> = match target {
        Target::Command => program_of(command.first()?).into_iter().collect(),
        Target::Processes(ids) | Target::Threads(ids) => {
            ids.iter().filter_map(|id| system.executable_of(*id).ok()).collect()
        }
        _ => Vec::new(),
    };
    let mut programs = programs.into_iter();
    programs.find(|program| keeps_frame_pointers(program) == Some(false))
}

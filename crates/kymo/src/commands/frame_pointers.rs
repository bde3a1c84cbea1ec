//! Whether the programs that are recorded keep frame pointers, which is known before they are.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kymo_kernel::proc_maps;
use kymo_kernel::process::program_of;
use kymo_kernel::system::SystemRoot;
use kymo_record::Target;
use kymo_symbols::unwind::{frame_pointers, library_directories, needed_libraries};

/// Share of functions that keep them, from which stacks are complete: of a Rust program nine in
/// ten are of the standard library, which keeps them, and the others are what is recorded.
const NEARLY_ALL: f64 = 0.95;
/// Functions without them that every program has: those that start it.
const OF_START: usize = 3;
/// Directories in which libraries are looked for.
const DIRECTORIES: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];
/// Libraries of every program, by the beginnings of their names: programs spend time in them, and
/// their work is elsewhere.
const OF_ALL: [&str; 10] = [
    "libc.",
    "libc-",
    "ld-",
    "libm.",
    "libm-",
    "libpthread",
    "libdl",
    "librt",
    "libgcc_s",
    "libstdc++",
];
/// Longest time for the mappings of a process.
const QUICK: Duration = Duration::from_millis(100);

/// A program of those that are recorded whose code keeps no frame pointers, if there is one.
pub(super) fn without_frame_pointers(target: &Target, command: &[OsString]) -> Option<PathBuf> {
    let system = SystemRoot::machine();
    match target {
        Target::Command => {
            let program = program_of(command.first()?)?;
            let lacks = lacks_them(&program, || libraries_of(&program));
            lacks.then_some(program)
        }
        Target::Processes(ids) | Target::Threads(ids) => ids.iter().find_map(|id| {
            let program = system.executable_of(*id).ok()?;
            lacks_them(&program, || mapped_libraries(*id)).then_some(program)
        }),
        _ => None,
    }
}

/// Whether a program's functions, or where it has none, those of its libraries, keep none.
fn lacks_them(program: &Path, libraries: impl FnOnce() -> Vec<PathBuf>) -> bool {
    let (mut with, mut all) = frame_pointers(program).unwrap_or_default();
    if all == 0 {
        for library in libraries() {
            let counts = frame_pointers(&library).unwrap_or_default();
            (with, all) = (with + counts.0, all + counts.1);
        }
    }
    let without = all - with;
    (with as f64) < NEARLY_ALL * all as f64 && (without > OF_START || without * 2 > all)
}

fn is_of_all(library: &Path) -> bool {
    let name = library.file_name().unwrap_or_default().as_bytes();
    OF_ALL.iter().any(|known| name.starts_with(known.as_bytes()))
}

/// Libraries that a program is linked with, where they are found.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let own = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&own)
        .chain(library_directories(program))
        .chain(DIRECTORIES.map(PathBuf::from))
        .collect();
    let find = |name: &OsStr| directories.iter().map(|d| d.join(name)).find(|path| path.is_file());
    let names = needed_libraries(program).into_iter();
    names.filter_map(|name| find(&name)).filter(|path| !is_of_all(path)).collect()
}

/// Libraries whose code a process has mapped.
fn mapped_libraries(pid: u32) -> Vec<PathBuf> {
    const EXECUTABLE: u32 = 4;
    let maps = proc_maps::maps(pid, QUICK).unwrap_or_default();
    let code = maps.mappings.into_iter().filter(|m| m.prot & EXECUTABLE != 0);
    let mut paths: Vec<PathBuf> = code
        .filter(|m| m.path.starts_with(b"/"))
        .map(|m| PathBuf::from(OsStr::from_bytes(&m.path)))
        .filter(|path| !is_of_all(path))
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_all_programs_are_left_out() {
        let linked = libraries_of(Path::new("/usr/bin/env"));
        assert_eq!(linked, Vec::<PathBuf>::new(), "env is linked with the C library");
        assert!(needed_libraries(Path::new("/usr/bin/env")).contains(&"libc.so.6".into()));
        assert!(!is_of_all(Path::new("/usr/lib/libpython3.11.so.1.0")));
        // A test is a Rust program, whose own code keeps none.
        let own = std::env::current_exe().unwrap();
        assert!(lacks_them(&own, Vec::new));
    }
}

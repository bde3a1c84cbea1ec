//! Binaries by their names alone: programs on the search path, libraries in the usual directories.

use std::io;
use std::path::{Path, PathBuf};

/// Search path of libraries.
const LIBRARY_DIRECTORIES: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// A program on the search path, or a library by its name with or without `lib` and version:
/// `libc`, `libssl.so.3`, `c`. `here` makes a path that works here of a candidate.
pub fn find_on_search_path(
    name: &str,
    here: &dyn Fn(&Path) -> io::Result<PathBuf>,
) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let on_path = std::env::split_paths(&search).map(|dir| dir.join(name));
    let program = on_path.filter_map(|path| here(&path).ok()).find(|path| path.is_file());
    program.or_else(|| library(name, here))
}

/// The path of a binary that was typed: of a name without directories that is no file here, what
/// the search path has under it.
pub fn path_as_typed(path: &Path) -> PathBuf {
    let name = path.to_str().filter(|name| !name.is_empty() && !name.contains('/'));
    let found = name
        .filter(|_| !path.exists())
        .and_then(|name| find_on_search_path(name, &|path| Ok(path.to_owned())));
    found.unwrap_or_else(|| path.to_owned())
}

fn library(name: &str, here: &dyn Fn(&Path) -> io::Result<PathBuf>) -> Option<PathBuf> {
    let stem = if name.starts_with("lib") { name.to_owned() } else { format!("lib{name}") };
    let mut found = Vec::new();
    for dir in LIBRARY_DIRECTORIES {
        let Ok(dir) = here(Path::new(dir)) else { continue };
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let is_it = file == stem
                || file.strip_prefix(&stem).is_some_and(|rest| rest.starts_with(".so"));
            // `libc.so` may be a linker's script.
            if is_it && is_elf(&entry.path()) {
                found.push(entry.path());
            }
        }
        if !found.is_empty() {
            break;
        }
    }
    found.sort();
    found.into_iter().min_by_key(|path| path.as_os_str().len())
}

/// Whether a file begins as ELF does.
pub fn is_elf(path: &Path) -> bool {
    let mut begin = [0u8; 4];
    let read = std::fs::File::open(path).and_then(|mut f| io::Read::read_exact(&mut f, &mut begin));
    read.is_ok() && begin == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_directories_are_looked_up() {
        let sh = path_as_typed(Path::new("sh"));
        assert!(sh.is_absolute() && sh.ends_with("sh"), "{sh:?}");
        let libc = path_as_typed(Path::new("libc.so.6"));
        assert!(libc.is_absolute() && libc.ends_with("libc.so.6"), "{libc:?}");
        for same in ["./sh", "/no/such/file", "no-such-program-there", ""] {
            assert_eq!(path_as_typed(Path::new(same)), Path::new(same));
        }
    }
}

//! Headers of C: where they are found. Their numbers and types are those that a compiler would see.

use std::path::{Path, PathBuf};

use kymo_bpf::HeaderFile;
use kymo_kernel::regular_file;

/// The longest header.
const LARGEST: u64 = 1 << 20;
/// Headers of the kernel: BTF has their types, and answers for them where they are not installed.
const OF_THE_KERNEL: [&str; 9] =
    ["linux/", "net/", "asm/", "asm-generic/", "uapi/", "kernel/", "fs/", "block/", "drivers/"];

/// A header by its name and the path of the one that includes it: beside that file, if the name
/// begins with `./`, or where the program runs; then in the user's directories and the machine's.
pub(super) fn find_header(
    name: &str,
    from: Option<&str>,
    directories: &[PathBuf],
) -> Result<Option<HeaderFile>, String> {
    let plain = name.strip_prefix("./").unwrap_or(name);
    let is_quoted = plain.len() != name.len();
    let beside = match from {
        Some(from) => Path::new(from).parent(),
        None => Some(Path::new(".")),
    };
    let beside = beside.filter(|_| is_quoted || name.starts_with('/'));
    let of_machine = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let of_machine = ["/usr/include", &of_machine].map(Path::new);
    // `join` gives absolute names as they are.
    let own = beside.into_iter().chain(directories.iter().map(PathBuf::as_path));
    let found = own.chain(of_machine).map(|directory| directory.join(plain));
    let is_kernel = OF_THE_KERNEL.iter().any(|start| plain.starts_with(start));
    let Some(path) = found.into_iter().find(|path| path.is_file()) else {
        return if is_kernel {
            Ok(None)
        } else {
            Err(format!("'{plain}' file not found: what it declares is taken from BTF"))
        };
    };
    let bytes = regular_file::read(&path, LARGEST)
        .map_err(|e| format!("'{plain}' cannot be read: {}: {e}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // What a kernel's configuration chooses in its headers is not known here; BTF knows it.
    const OF_KERNEL_TREES: [&str; 3] = ["/usr/src", "/lib/modules", "/usr/lib/modules"];
    let is_kernel = is_kernel || OF_KERNEL_TREES.iter().any(|place| path.starts_with(place));
    Ok(Some(HeaderFile { path: path.to_string_lossy().into_owned(), text, is_kernel }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_beside_the_one_that_names_it_and_in_directories() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("linux")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("a.h", "struct a { int x; };\n");
        write("linux/types.h", "// ours\n");
        let own = [dir.path().to_owned()];
        let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let found = find_header("a.h", None, &own).unwrap().unwrap();
        assert_eq!((found.path, found.is_kernel), (path("a.h"), false));
        assert_eq!(found.text, "struct a { int x; };\n");
        let found = find_header("./types.h", Some(&path("linux/b.h")), &[]).unwrap().unwrap();
        assert_eq!((found.text.as_str(), found.is_kernel), ("// ours\n", false));
        assert!(find_header("types.h", Some(&path("linux/b.h")), &[]).is_err());
        assert!(find_header("linux/types.h", None, &own).unwrap().unwrap().is_kernel);
        let missing = find_header("no-such.h", None, &[]).unwrap_err();
        assert!(missing.starts_with("'no-such.h' file not found"), "{missing}");
        assert_eq!(find_header("linux/no-such.h", None, &[]), Ok(None));
        let absolute = find_header(&path("a.h"), None, &[]).unwrap().unwrap();
        assert_eq!(absolute.path, path("a.h"));
    }
}

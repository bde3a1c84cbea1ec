//! Headers of C: numbers that they define by macros, which no debugging information has (`EPERM`), and
//! the texts of those that are the user's own, for their types.

use std::path::{Path, PathBuf};

use kymo_kernel::regular_file;

/// Headers that are read for a name.
const MOST_FILES: usize = 512;
/// The longest header, and the longest text of one with those that it includes.
const LARGEST: u64 = 1 << 20;
/// Macros that stand for one another; headers within one another.
const DEPTH: u32 = 8;
/// Headers of the kernel: BTF answers for them where they are not installed.
const OF_THE_KERNEL: [&str; 8] =
    ["linux/", "net/", "asm/", "uapi/", "kernel/", "fs/", "block/", "drivers/"];

/// Value of a macro of a header, or of one that it includes.
pub(super) fn constant(
    header: &str,
    name: &str,
    directories: &[PathBuf],
) -> Result<Option<i64>, String> {
    let Some(first) = find(header, None, directories) else {
        if is_of_the_kernel(header) {
            return Ok(None);
        }
        let header = header.strip_prefix("./").unwrap_or(header);
        return Err(format!("'{header}' file not found: what it declares is taken from BTF"));
    };
    if name.is_empty() {
        return Ok(None);
    }
    let mut files = vec![first];
    let mut texts: Vec<String> = Vec::new();
    while let Some(file) = files.get(texts.len()).filter(|_| texts.len() < MOST_FILES) {
        let (text, here) = (read(file).unwrap_or_default(), file.clone());
        let included = text.lines().filter_map(included);
        let included: Vec<PathBuf> = included
            .filter_map(|name| find(name, here.parent(), directories))
            .filter(|path| !files.contains(path))
            .collect();
        files.extend(included);
        texts.push(text);
    }
    Ok(value(&texts, name, 0))
}

/// Text of a header of the user's, with those of them that it includes in their places. Others leave
/// nothing: their types are known by themselves.
pub(super) fn text(header: &str, directories: &[PathBuf]) -> Option<String> {
    let file = find_own(header, None, directories)?;
    let (mut out, mut seen) = (String::new(), Vec::new());
    append(&mut out, file, directories, &mut seen, 0);
    Some(out)
}

/// Adds a header to a text, unless it is in it.
fn append(
    out: &mut String,
    file: PathBuf,
    directories: &[PathBuf],
    seen: &mut Vec<PathBuf>,
    depth: u32,
) {
    if seen.contains(&file) || seen.len() >= MOST_FILES || depth > DEPTH {
        return;
    }
    let text = read(&file).unwrap_or_default();
    seen.push(file.clone());
    for line in text.lines() {
        if out.len() as u64 > LARGEST {
            return;
        }
        match included(line) {
            Some(name) => {
                if let Some(found) = find_own(name, file.parent(), directories) {
                    append(out, found, directories, seen, depth + 1);
                }
            }
            None => out.extend([line, "\n"]),
        }
    }
}

fn read(file: &Path) -> Option<String> {
    let bytes = regular_file::read(file, LARGEST).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn value(texts: &[String], name: &str, depth: u32) -> Option<i64> {
    let lines = texts.iter().flat_map(|text| text.lines());
    let mut defined = lines.filter_map(|line| {
        let (own, value) = directive(line, "define")?.split_once([' ', '\t'])?;
        (own == name).then_some(value)
    });
    let text = defined.next()?.split("/*").next()?.trim();
    let text = text.trim_matches(['(', ')']).trim_end_matches(['u', 'U', 'l', 'L']);
    let number = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => i64::from_str_radix(digits, 16).ok(),
        (_, Some(digits)) if !digits.is_empty() => i64::from_str_radix(digits, 8).ok(),
        _ => text.parse().ok(),
    };
    number.or_else(|| (depth < DEPTH).then(|| value(texts, text, depth + 1))?)
}

/// What stands behind a directive.
fn directive<'l>(line: &'l str, word: &str) -> Option<&'l str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix(word)?;
    rest.starts_with([' ', '\t', '<', '"']).then(|| rest.trim())
}

/// The header that a line includes.
fn included(line: &str) -> Option<&str> {
    let rest = directive(line, "include")?;
    let end = if rest.starts_with('<') { '>' } else { '"' };
    rest.get(1..)?.split(end).next()
}

fn is_of_the_kernel(header: &str) -> bool {
    let name = header.strip_prefix("./").unwrap_or(header);
    OF_THE_KERNEL.iter().any(|start| name.starts_with(start))
}

/// Beside the file that names it, where the program runs if it is in quotes, in the user's
/// directories, then in those of the machine.
fn find(name: &str, beside: Option<&Path>, directories: &[PathBuf]) -> Option<PathBuf> {
    let of_machine = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let places = ["/usr/include", &of_machine].map(Path::new);
    let mut found = own_places(name, beside, directories).chain(places).map(|dir| dir.join(name));
    found.find(|path| path.is_file())
}

/// The same of the user's alone: no header of the kernel or of the C library.
fn find_own(name: &str, beside: Option<&Path>, directories: &[PathBuf]) -> Option<PathBuf> {
    // What a kernel's configuration chooses in its headers is not known here; BTF knows it.
    const OF_THE_MACHINE: [&str; 4] =
        ["/usr/include", "/usr/src", "/lib/modules", "/usr/lib/modules"];
    let is_own = |path: &PathBuf| {
        path.is_file() && !OF_THE_MACHINE.iter().any(|place| path.starts_with(place))
    };
    let mut found = own_places(name, beside, directories).map(|dir| dir.join(name));
    found.find(is_own).filter(|_| !is_of_the_kernel(name))
}

fn own_places<'p>(
    name: &str,
    beside: Option<&'p Path>,
    directories: &'p [PathBuf],
) -> impl Iterator<Item = &'p Path> {
    // `join` gives absolute names as they are.
    let here = (name.starts_with("./") || name.starts_with('/')).then_some(Path::new("."));
    beside.into_iter().chain(here).chain(directories.iter().map(PathBuf::as_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_ones_own_are_put_together() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("a.h", "#include <stdint.h>\n#include \"b.h\"\nstruct a { struct b b; };\n");
        write(
            "b.h",
            "#include \"a.h\"\n#define B 7\n# include <linux/types.h>\nstruct b { int x; };",
        );
        let own = [dir.path().to_owned()];
        let together = "#define B 7\nstruct b { int x; };\nstruct a { struct b b; };\n";
        assert_eq!(text("a.h", &own).as_deref(), Some(together));
        assert_eq!(constant("a.h", "B", &own), Ok(Some(7)));
        assert_eq!(text("a.h", &[]), None);
        assert!(constant("a.h", "B", &[]).is_err());
        // Of the machine: numbers, but no types.
        assert_eq!(text("linux/types.h", &own), None);
        assert_eq!(text("/usr/include/errno.h", &own), None);
        let path = dir.path().join("a.h");
        assert_eq!(text(path.to_str().unwrap(), &[]).as_deref(), Some(together));
    }
}

//! Numbers that C's headers define by macros, which no debugging information has (`EPERM`).

use std::path::{Path, PathBuf};

/// Headers that are read for a name.
const MOST_FILES: usize = 512;
/// Macros that stand for one another.
const DEPTH: u32 = 8;
/// Headers of the kernel: BTF answers for them where they are not installed.
const OF_THE_KERNEL: [&str; 8] =
    ["linux/", "net/", "asm/", "uapi/", "kernel/", "fs/", "block/", "drivers/"];

/// Value of a macro of a header, or of one that it includes.
pub(super) fn constant(header: &str, name: &str) -> Result<Option<i64>, String> {
    let Some(first) = find(header, None) else {
        if OF_THE_KERNEL.iter().any(|start| header.starts_with(start)) {
            return Ok(None);
        }
        return Err(format!("'{header}' file not found: what it declares is taken from BTF"));
    };
    if name.is_empty() {
        return Ok(None);
    }
    let mut files = vec![first];
    let mut texts: Vec<String> = Vec::new();
    while let Some(file) = files.get(texts.len()).filter(|_| texts.len() < MOST_FILES) {
        let (text, here) = (std::fs::read_to_string(file).unwrap_or_default(), file.clone());
        let included = text.lines().filter_map(|line| directive(line, "include"));
        let included: Vec<PathBuf> = included
            .filter_map(|rest| find(rest.trim_matches(['<', '>', '"']), here.parent()))
            .filter(|path| !files.contains(path))
            .collect();
        files.extend(included);
        texts.push(text);
    }
    Ok(value(&texts, name, 0))
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

fn find(name: &str, beside: Option<&Path>) -> Option<PathBuf> {
    let of_machine = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let places = [Path::new("/usr/include"), Path::new(&of_machine)];
    let mut found = beside.into_iter().chain(places).map(|place| place.join(name));
    found.find(|path| path.is_file())
}

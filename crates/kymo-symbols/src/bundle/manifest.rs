//! The first member of a bundle: what it is of and what is in it, as lines of
//! fields with tabs between them.

use kymo_model::BuildId;

use crate::dso::DsoKind;
use crate::problem::Problem;

/// Version of the layout; another one is not read.
const VERSION: &str = "1";
pub(crate) const NAME: &str = "kymo-bundle";

/// Which recording a bundle is of: copies of it are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Bytes of the file.
    pub size: u64,
    /// Checksum of its ends.
    pub checksum: u32,
}

/// A binary of the recording, and what was found of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: String,
    pub(crate) path: String,
    pub(crate) build_id: Option<BuildId>,
    /// Name of its directory among the members, if anything was found.
    pub(crate) directory: Option<String>,
    pub(crate) problems: Vec<Problem>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) recording: Recording,
    pub(crate) entries: Vec<Entry>,
    /// Checksums of the members.
    pub(crate) members: Vec<(u32, String)>,
}

pub(crate) fn word_of(kind: DsoKind) -> &'static str {
    match kind {
        DsoKind::Kernel | DsoKind::Module => "kernel",
        DsoKind::Vdso => "vdso",
        DsoKind::PerfMap => "perf-map",
        DsoKind::Bpf | DsoKind::Other => "none",
        DsoKind::File => "file",
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, false) => out.push(c),
            (_, true) => match chars.next() {
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some(other) => out.push(other),
                None => {}
            },
        }
    }
    out
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

fn fields(problem: &Problem) -> Option<Vec<String>> {
    let word = |w: &str, rest: &[&String]| {
        let rest = rest.iter().map(|s| (*s).clone());
        Some(std::iter::once(w.to_owned()).chain(rest).collect())
    };
    match problem {
        Problem::Changed { path, found, recorded } => {
            let (found, recorded) = (or_dash(found.map(|f| f.to_string())), recorded.to_string());
            word("changed", &[path, &found, &recorded])
        }
        Problem::Refused { path, of, why } => word("refused", &[path, of, why]),
        Problem::Unusable { path, why } => word("unusable", &[path, why]),
        Problem::KernelHidden { kptr_restrict, paranoid } => {
            let (k, p) = (or_dash(kptr_restrict.clone()), or_dash(paranoid.clone()));
            word("kernel-hidden", &[&k, &p])
        }
        Problem::OtherKernel { recorded, running } => {
            let (a, b) = (or_dash(recorded.clone()), or_dash(running.clone()));
            word("other-kernel", &[&a, &b])
        }
        Problem::DebugInfo { path, why } => word("debuginfo", &[path, why]),
        Problem::UnknownKernel => word("unknown-kernel", &[]),
        Problem::NoKernelSymbols => word("no-kernel-symbols", &[]),
        Problem::Cache { .. } | Problem::Bundle(_) | Problem::OtherMachine { .. } => None,
    }
}

fn problem(fields: &[String]) -> Option<Problem> {
    let known = |s: &String| (s != "-").then(|| s.clone());
    let (word, rest) = fields.split_first()?;
    Some(match (word.as_str(), rest) {
        ("changed", [path, found, recorded]) => Problem::Changed {
            path: path.clone(),
            found: BuildId::parse(found),
            recorded: BuildId::parse(recorded)?,
        },
        ("refused", [path, of, why]) => {
            Problem::Refused { path: path.clone(), of: of.clone(), why: why.clone() }
        }
        ("unusable", [path, why]) => Problem::Unusable { path: path.clone(), why: why.clone() },
        ("kernel-hidden", [k, p]) => {
            Problem::KernelHidden { kptr_restrict: known(k), paranoid: known(p) }
        }
        ("other-kernel", [a, b]) => Problem::OtherKernel { recorded: known(a), running: known(b) },
        ("debuginfo", [path, why]) => Problem::DebugInfo { path: path.clone(), why: why.clone() },
        ("unknown-kernel", []) => Problem::UnknownKernel,
        ("no-kernel-symbols", []) => Problem::NoKernelSymbols,
        _ => return None,
    })
}

impl Manifest {
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{NAME}\t{VERSION}\n");
        let mut line = |fields: &[String]| {
            let fields: Vec<String> = fields.iter().map(|f| escaped(f)).collect();
            text.push_str(&fields.join("\t"));
            text.push('\n');
        };
        let Recording { size, checksum } = self.recording;
        line(&["recording".into(), size.to_string(), format!("{checksum:08x}")]);
        for e in &self.entries {
            let id = or_dash(e.build_id.map(|id| id.to_string()));
            let directory = or_dash(e.directory.clone());
            line(&["dso".into(), e.kind.clone(), id, directory, e.path.clone()]);
            for fields in e.problems.iter().filter_map(fields) {
                line(&[&["problem".to_owned()], &fields[..]].concat());
            }
        }
        for (checksum, name) in &self.members {
            line(&["member".into(), format!("{checksum:08x}"), name.clone()]);
        }
        line(&["end".into()]);
        text
    }

    pub(crate) fn parse(text: &str) -> Result<Manifest, String> {
        let mut lines = text.lines().enumerate();
        let first = lines.next().map(|l| l.1).unwrap_or_default();
        match first.split_once('\t') {
            Some((NAME, VERSION)) => {}
            Some((NAME, other)) => return Err(format!("it is of version {other}, not {VERSION}")),
            _ => return Err("invalid bundle".into()),
        }
        let mut recording = None;
        let (mut entries, mut members) = (Vec::<Entry>::new(), Vec::new());
        for (number, line) in lines {
            let wrong = || format!("invalid manifest, line {}", number + 1);
            let fields: Vec<String> = line.split('\t').map(plain).collect();
            let known = |s: &String| (s != "-").then(|| s.clone());
            let hex = |s: &String| u32::from_str_radix(s, 16).ok();
            let (word, rest) = fields.split_first().ok_or_else(wrong)?;
            match (word.as_str(), rest) {
                ("recording", [size, checksum]) => {
                    let size = size.parse().ok();
                    let both = size.zip(hex(checksum)).ok_or_else(wrong)?;
                    recording = Some(Recording { size: both.0, checksum: both.1 });
                }
                ("dso", [kind, id, directory, path]) => entries.push(Entry {
                    kind: kind.clone(),
                    path: path.clone(),
                    build_id: BuildId::parse(id),
                    directory: known(directory),
                    problems: Vec::new(),
                }),
                ("problem", fields) => {
                    let entry = entries.last_mut().ok_or_else(wrong)?;
                    entry.problems.push(problem(fields).ok_or_else(wrong)?);
                }
                ("member", [checksum, name]) => {
                    members.push((hex(checksum).ok_or_else(wrong)?, name.clone()));
                }
                ("end", []) => {
                    let recording = recording.ok_or_else(wrong)?;
                    return Ok(Manifest { recording, entries, members });
                }
                _ => return Err(wrong()),
            }
        }
        Err("its manifest is cut short".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_comes_back() {
        let id = BuildId::new(&[0xab; 20]);
        let why = "a\ttab, a \\ and\na line".to_owned();
        let problems = vec![
            Problem::Changed { path: "/p".into(), found: None, recorded: id },
            Problem::Refused { path: "/p".into(), of: "/q".into(), why: why.clone() },
            Problem::Unusable { path: "/p".into(), why: why.clone() },
            Problem::DebugInfo { path: "/p".into(), why },
            Problem::KernelHidden { kptr_restrict: Some("1".into()), paranoid: None },
            Problem::OtherKernel { recorded: None, running: Some("6".into()) },
            Problem::NoKernelSymbols,
        ];
        let entry = Entry {
            kind: "file".into(),
            path: "/usr/bin/a b".into(),
            build_id: Some(id),
            directory: Some("usr/bin/a b/abab".into()),
            problems,
        };
        let bare = Entry { kind: "kernel".into(), path: "[k]".into(), ..Entry::default() };
        let manifest = Manifest {
            recording: Recording { size: 12, checksum: 0xdead_beef },
            entries: vec![entry, bare],
            members: vec![(7, "usr/bin/a b/abab/elf".into())],
        };
        let text = manifest.to_text();
        assert_eq!(Manifest::parse(&text), Ok(manifest));
        for cut in 0..text.len() - 1 {
            assert!(text.is_char_boundary(cut) && Manifest::parse(&text[..cut]).is_err(), "{cut}");
        }
        let other = text.replacen("\t1\n", "\t2\n", 1);
        assert_eq!(Manifest::parse(&other).unwrap_err(), "it is of version 2, not 1");
    }
}

//! PMUs as sysfs describes them: their number, which bits of `config` a term
//! sets, the events they name, the CPUs they are to be opened on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::system_root::system_path;

/// All PMUs of a machine.
#[derive(Clone, Debug, Default)]
pub struct Pmus {
    list: Vec<Pmu>,
}

/// One PMU. Its formats and events are read when asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmu {
    /// Name of its directory.
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    path: PathBuf,
}

/// One of the four words a format can put bits into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the attribute's fields")]
pub enum ConfigWord {
    Config,
    Config1,
    Config2,
    Config3,
}

/// Bits that hold the value of a term: `config:0-7,32-35`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmuFormat {
    /// The word.
    pub word: ConfigWord,
    /// First and last bit of each piece, the value's low bits first.
    pub bits: Vec<(u8, u8)>,
}

/// An event that a PMU names.
#[derive(Clone, Debug, PartialEq)]
pub struct Alias {
    /// File name under `events/`.
    pub name: String,
    /// Terms of the alias: `event=0x3c,umask=0x01`.
    pub terms: String,
    /// Factor from counts to `unit`.
    pub scale: f64,
    /// Unit of the scaled value, empty if none.
    pub unit: String,
    /// The value is a level, not a count.
    pub snapshot: bool,
    /// One CPU of each package gives the value for the whole package.
    pub per_package: bool,
}

const DEVICES: &str = "/sys/bus/event_source/devices";

/// Whether sysfs names this event of the processor's PMU.
pub fn cpu_has_event(name: &str) -> bool {
    system_path(DEVICES).join("cpu/events").join(name).exists()
}

impl Pmus {
    /// The machine's PMUs; none if sysfs cannot be read.
    pub fn open() -> Pmus {
        Self::at(&system_path(DEVICES))
    }

    /// The PMUs of a directory that looks like `/sys/bus/event_source/devices`.
    pub fn at(devices: &Path) -> Pmus {
        let mut list: Vec<Pmu> = std::fs::read_dir(devices)
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let path = entry.path();
                let kind = word(&path.join("type"))?.parse().ok()?;
                Some(Pmu { name: entry.file_name().into_string().ok()?, kind, path })
            })
            .collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        Pmus { list }
    }

    /// All of them, sorted by name.
    pub fn iter(&self) -> std::slice::Iter<'_, Pmu> {
        self.list.iter()
    }

    /// The PMU of that name.
    pub fn get(&self, name: &str) -> Option<&Pmu> {
        self.list.iter().find(|p| p.name == name)
    }

    /// The PMUs of machines with several kinds of core (`cpu_core`, `cpu_atom`),
    /// each of which counts the hardware events of its own CPUs only; none on
    /// machines with one kind.
    pub fn hybrid(&self) -> Vec<&Pmu> {
        let kinds: Vec<&Pmu> = self
            .list
            .iter()
            .filter(|p| p.name.starts_with("cpu_") && p.path.join("cpus").exists())
            .collect();
        if kinds.len() > 1 { kinds } else { Vec::new() }
    }

    /// The PMUs meant by `name` before a slash: that name itself; else, as in
    /// perf, its numbered siblings (`uncore_imc` for `uncore_imc_0`, …), also
    /// with `uncore_` left out, or those that match it as a glob.
    pub fn matching(&self, name: &str) -> Vec<&Pmu> {
        if let Some(pmu) = self.get(name) {
            return vec![pmu];
        }
        let glob = name
            .contains(['*', '?', '['])
            .then(|| globset::Glob::new(name).ok().map(|g| g.compile_matcher()))
            .flatten();
        self.list
            .iter()
            .filter(|p| {
                let full = p.name.as_str();
                let short = full.strip_prefix("uncore_").unwrap_or(full);
                if let Some(glob) = &glob {
                    return glob.is_match(full) || glob.is_match(short);
                }
                [full, short].iter().any(|n| {
                    n.strip_prefix(name).is_some_and(|rest| {
                        let digits = rest.strip_prefix('_').unwrap_or(rest);
                        digits.bytes().all(|b| b.is_ascii_digit())
                    })
                })
            })
            .collect()
    }
}

impl Pmu {
    /// The format of one term.
    pub fn format(&self, term: &str) -> Option<PmuFormat> {
        if term.is_empty() || term.contains('/') || term.starts_with('.') {
            return None;
        }
        PmuFormat::parse(&word(&self.path.join("format").join(term))?)
    }

    /// All terms with their formats.
    pub fn formats(&self) -> BTreeMap<String, PmuFormat> {
        names(&self.path.join("format"))
            .into_iter()
            .filter_map(|n| self.format(&n).map(|f| (n, f)))
            .collect()
    }

    /// Names of the events it describes, sorted.
    pub fn alias_names(&self) -> Vec<String> {
        let mut list = names(&self.path.join("events"));
        list.retain(|n| !is_attribute_of_alias(n));
        list
    }

    /// One of its events.
    pub fn alias(&self, name: &str) -> Option<Alias> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return None;
        }
        if is_attribute_of_alias(name) {
            return None;
        }
        let events = self.path.join("events");
        let terms = word(&events.join(name))?;
        let side = |suffix: &str| word(&events.join(format!("{name}{suffix}")));
        Some(Alias {
            name: name.to_owned(),
            terms,
            scale: side(".scale").and_then(|s| s.parse().ok()).unwrap_or(1.0),
            unit: side(".unit").unwrap_or_default(),
            snapshot: side(".snapshot").is_some_and(|s| s == "1"),
            per_package: side(".per-pkg").is_some_and(|s| s == "1"),
        })
    }

    /// The CPUs it is to be opened on: `cpumask` of uncore PMUs, `cpus` of the
    /// core PMUs of machines with several kinds of core.
    pub fn cpus(&self) -> Option<Vec<u32>> {
        ["cpumask", "cpus"].iter().find_map(|f| parse_cpu_list(&word(&self.path.join(f))?))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl PmuFormat {
    /// Reads `config1:0-7,32-35`.
    pub fn parse(text: &str) -> Option<PmuFormat> {
        let (word, ranges) = text.trim().split_once(':')?;
        let word = match word {
            "config" => ConfigWord::Config,
            "config1" => ConfigWord::Config1,
            "config2" => ConfigWord::Config2,
            "config3" => ConfigWord::Config3,
            _ => return None,
        };
        let mut bits = Vec::new();
        for range in ranges.split(',') {
            let (a, b) = range.split_once('-').unwrap_or((range, range));
            let (a, b): (u8, u8) = (a.trim().parse().ok()?, b.trim().parse().ok()?);
            let (a, b) = (a.min(b), a.max(b));
            if b > 63 || bits.len() > 64 {
                return None;
            }
            bits.push((a, b));
        }
        Some(PmuFormat { word, bits })
    }

    /// Number of bits of a value.
    pub fn width(&self) -> u32 {
        self.bits.iter().map(|(a, b)| u32::from(b - a) + 1).sum::<u32>().min(64)
    }

    /// The largest value that fits.
    pub fn max(&self) -> u64 {
        if self.width() >= 64 { u64::MAX } else { (1 << self.width()) - 1 }
    }

    /// Puts `value` into `word`, replacing what those bits held.
    pub fn put(&self, word: u64, value: u64) -> u64 {
        let (mut word, mut value) = (word, value);
        for &(a, b) in &self.bits {
            let width = u32::from(b - a) + 1;
            let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
            word = (word & !(mask << a)) | ((value & mask) << a);
            value = value.checked_shr(width).unwrap_or(0);
        }
        word
    }
}

impl std::fmt::Display for PmuFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.word {
            ConfigWord::Config => "config:",
            ConfigWord::Config1 => "config1:",
            ConfigWord::Config2 => "config2:",
            ConfigWord::Config3 => "config3:",
        })?;
        for (i, (a, b)) in self.bits.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            if a == b { write!(f, "{comma}{a}")? } else { write!(f, "{comma}{a}-{b}")? }
        }
        Ok(())
    }
}

fn is_attribute_of_alias(name: &str) -> bool {
    [".scale", ".unit", ".snapshot", ".per-pkg"].iter().any(|s| name.ends_with(s))
}

/// A small file's text without the white space around it.
fn word(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|s| s.trim().to_owned())
}

fn names(directory: &Path) -> Vec<String> {
    let mut list: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .collect();
    list.sort_unstable();
    list
}

/// `0-3,8`; `None` for an empty or odd list.
fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (a, b) = range.split_once('-').unwrap_or((range, range));
        let (a, b): (u32, u32) = (a.trim().parse().ok()?, b.trim().parse().ok()?);
        if b.checked_sub(a)? > 1 << 16 {
            return None;
        }
        cpus.extend(a..=b);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_bit_ranges_take_the_low_bits_first() {
        let f = PmuFormat::parse("config:0-7,32-35").unwrap();
        assert_eq!((f.width(), f.max()), (12, 0xfff));
        assert_eq!(f.put(0, 0xabc), 0xa_0000_00bc);
        assert_eq!(f.put(u64::MAX, 0), !0xf_0000_00ff);
        assert_eq!(f.to_string(), "config:0-7,32-35");
        let all = PmuFormat::parse("config1:0-63\n").unwrap();
        assert_eq!((all.put(1, u64::MAX), all.max()), (u64::MAX, u64::MAX));
        for bad in ["", "config", "config:", "config:0-64", "conf:1", "config:a"] {
            assert_eq!(PmuFormat::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_cpu_list(""), None);
        assert_eq!(parse_cpu_list("3-1"), None);
        assert_eq!(parse_cpu_list("0-4294967295"), None);
    }
}

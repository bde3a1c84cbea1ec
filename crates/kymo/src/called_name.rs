//! The name that kymo is called under: a link `perf`, `bpftrace` or `strace` takes the place of
//! that program, and behaves as it does where the two choices differ.

use std::path::Path;

use kymo_view::TableStyle;

/// Name under which the program was called, which selects the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CalledName {
    Kymo,
    Perf,
    Bpftrace,
    Strace,
}

impl CalledName {
    /// The name of this run.
    pub(crate) fn get() -> CalledName {
        std::env::args_os().next().map_or(CalledName::Kymo, |path| CalledName::of(Path::new(&path)))
    }

    fn of(path: &Path) -> CalledName {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("perf") => CalledName::Perf,
            Some("bpftrace") => CalledName::Bpftrace,
            Some("strace") => CalledName::Strace,
            _ => CalledName::Kymo,
        }
    }

    /// The name in messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            CalledName::Perf => "perf",
            CalledName::Strace => "strace",
            _ => "kymo",
        }
    }

    /// Layout of tables that perf prints, too.
    pub(crate) fn table_style(self) -> TableStyle {
        if self == CalledName::Perf { TableStyle::Perf } else { TableStyle::Kymo }
    }

    /// The line that names the version, as scripts look for it in that program's output: a
    /// release of it whose command line this is, and the version of kymo.
    pub(crate) fn version_line(self) -> String {
        let kymo = concat!("kymo ", env!("CARGO_PKG_VERSION"));
        match self {
            CalledName::Kymo => kymo.to_owned(),
            CalledName::Perf => format!("perf version 7.2 ({kymo})"),
            CalledName::Bpftrace => format!("bpftrace v0.27.0 ({kymo})"),
            CalledName::Strace => format!("strace -- version 6.1 ({kymo})"),
        }
    }

    /// The exit status for what cannot be typed.
    pub(crate) fn usage_status(self) -> i32 {
        match self {
            CalledName::Perf => 129,
            CalledName::Strace => 1,
            _ => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_the_path_counts() {
        assert_eq!(CalledName::of(Path::new("/usr/local/bin/perf")), CalledName::Perf);
        assert_eq!(CalledName::of(Path::new("bpftrace")), CalledName::Bpftrace);
        assert_eq!(CalledName::of(Path::new("/usr/bin/strace")), CalledName::Strace);
        assert_eq!(CalledName::of(Path::new("perf/kymo")), CalledName::Kymo);
    }

    #[test]
    fn the_third_word_of_perfs_version_is_a_release() {
        let line = CalledName::Perf.version_line();
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..2], ["perf", "version"]);
        assert!(words[2].split('.').all(|number| number.parse::<u32>().is_ok()), "{line}");
    }
}

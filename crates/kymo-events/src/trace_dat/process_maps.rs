//! Mappings of processes in a trace.dat (`trace-cmd record --proc-map`): `PID COUNT NAME`, and a
//! line `START END PATH` for each mapping.

use rustc_hash::FxHashMap;

/// Mappings by process.
#[derive(Debug, Default)]
pub(crate) struct ProcessMaps(FxHashMap<i32, Vec<(u64, u64, String)>>);

impl ProcessMaps {
    pub(crate) fn parse(texts: &[String]) -> ProcessMaps {
        let mut maps = ProcessMaps::default();
        for text in texts {
            let mut lines = text.lines();
            let pid = lines.next().and_then(|l| l.split_whitespace().next());
            let Some(pid) = pid.and_then(|p| i32::from_str_radix(p, 16).ok()) else { continue };
            let mapping = |line: &str| {
                let mut words = line.splitn(3, ' ');
                let mut hex = || u64::from_str_radix(words.next()?, 16).ok();
                let (start, end) = (hex()?, hex()?);
                Some((start, end, words.next()?.trim().to_owned()))
            };
            maps.0.entry(pid).or_default().extend(lines.filter_map(mapping));
        }
        maps
    }

    /// Path of what is mapped at an address.
    pub(crate) fn binary(&self, process: i32, addr: u64) -> Option<&str> {
        let of = |(start, end, _): &&(u64, u64, String)| (*start..*end).contains(&addr);
        self.0.get(&process)?.iter().find(of).map(|m| m.2.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::ProcessMaps;

    #[test]
    fn mappings_are_read_as_trace_cmd_writes_them() {
        let text = "1f 2 /usr/bin/some thing\n400000 401000 /usr/bin/some thing\n\
                    7f0000000000 7f0000100000 /usr/lib/libc.so.6\nrubbish\n";
        let maps = ProcessMaps::parse(&[text.to_owned(), "nonsense".to_owned()]);
        assert_eq!(maps.binary(0x1f, 0x400fff), Some("/usr/bin/some thing"));
        assert_eq!(maps.binary(0x1f, 0x401000), None);
        assert_eq!(maps.binary(0x1f, 0x7f00000fffff), Some("/usr/lib/libc.so.6"));
        assert_eq!(maps.binary(31 + 1, 0x400000), None);
    }
}

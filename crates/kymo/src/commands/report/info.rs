//! Sections of the header that are read only to be shown, as the recording states
//! them: the machine's processors, memory and caches, which are long and shown with
//! `-I`, what its counters can do, the clock, and what kind of data there is.

use std::io::{self, Write};

use kymo_files::perfdata::{Feature, PerfData};
use kymo_model::{Cursor, Truncated};

/// Lists longer than that are no machine's.
const MOST: u32 = 1 << 16;

/// What is shown with `-I` only.
const LONG: [Feature; 5] = [
    Feature::CPU_TOPOLOGY,
    Feature::NUMA_TOPOLOGY,
    Feature::CACHE,
    Feature::MEM_TOPOLOGY,
    Feature::HYBRID_TOPOLOGY,
];

/// Writes the lines of a section, as far as it can be read; of a long one that it is
/// there unless `all` is wanted.
pub(super) fn write(
    out: &mut dyn Write,
    file: &PerfData,
    feature: Feature,
    all: bool,
) -> io::Result<()> {
    let Some(bytes) = file.features().raw.get(&feature) else { return Ok(()) };
    if let (Some(name), true) = (feature.name(), !all && LONG.contains(&feature)) {
        return writeln!(out, "# {name} info available, use -I to display");
    }
    let mut section = Section { at: Cursor::new(bytes, file.endian()), lines: Vec::new() };
    let cpus = file.features().nrcpus.map_or(0, |(available, _)| available);
    let read = match feature {
        Feature::CPU_TOPOLOGY => section.processors(cpus),
        Feature::NUMA_TOPOLOGY => section.nodes(),
        Feature::CACHE => section.caches(),
        Feature::MEM_TOPOLOGY => section.memory(),
        Feature::CLOCKID => section.clock(),
        Feature::CLOCK_DATA => section.clock_data(),
        Feature::BRANCH_STACK => section.says("contains samples with branch stack"),
        Feature::AUXTRACE => section.says("contains AUX area data (e.g. instruction trace)"),
        Feature::STAT => section.says("contains stat data"),
        Feature::DIR_FORMAT => section.folder(),
        Feature::COMPRESSED => section.compressed(),
        Feature::CPU_PMU_CAPS => section.abilities("cpu"),
        Feature::PMU_CAPS => section.abilities_of_all(),
        Feature::HYBRID_TOPOLOGY => section.kinds_of_processors(),
        Feature::BPF_PROG_INFO => section.programs(),
        Feature::BPF_BTF => section.types(),
        _ => Ok(()),
    };
    section.lines.iter().try_for_each(|line| writeln!(out, "# {line}"))?;
    if let (Err(e), Some(name)) = (read, feature.name()) {
        writeln!(out, "# {name}: {e}")?;
    }
    Ok(())
}

struct Section<'a> {
    at: Cursor<'a>,
    lines: Vec<String>,
}

impl Section<'_> {
    fn text(&mut self) -> Result<String, Truncated> {
        let length = self.at.u32()? as usize;
        let bytes = self.at.bytes(length)?;
        let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn count(&mut self) -> Result<u32, Truncated> {
        Ok(self.at.u32()?.min(MOST))
    }

    fn texts(&mut self, heading: &str) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            let text = self.text()?;
            self.lines.push(format!("{heading}: {text}"));
        }
        Ok(())
    }

    fn processors(&mut self, cpus: u32) -> Result<(), Truncated> {
        self.texts("sibling sockets ")?;
        let before_threads = self.lines.len();
        self.texts("sibling threads ")?;
        let mut places = Vec::new();
        for _ in 0..cpus.min(MOST) {
            places.push((self.at.u32()?, self.at.u32()?));
        }
        if self.at.remaining() == 0 {
            let line = |(n, (core, socket)): (usize, &(u32, u32))| {
                format!("CPU {n}: Core ID {core}, Socket ID {socket}")
            };
            self.lines.extend(places.iter().enumerate().map(line));
            return Ok(());
        }
        // Dies stand last, and are shown between the two.
        let threads = self.lines.split_off(before_threads);
        self.texts("sibling dies    ")?;
        self.lines.extend(threads);
        for (n, (core, socket)) in places.into_iter().enumerate() {
            let die = self.at.u32()?;
            self.lines.push(format!("CPU {n}: Core ID {core}, Die ID {die}, Socket ID {socket}"));
        }
        Ok(())
    }

    fn nodes(&mut self) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            let (node, total, free) = (self.at.u32()?, self.at.u64()?, self.at.u64()?);
            self.lines.push(format!("node{node} meminfo  : total = {total} kB, free = {free} kB"));
            let cpus = self.text()?;
            self.lines.push(format!("node{node} cpu list : {cpus}"));
        }
        Ok(())
    }

    fn caches(&mut self) -> Result<(), Truncated> {
        let _version = self.at.u32()?;
        self.lines.push("CPU cache info:".into());
        for _ in 0..self.count()? {
            let level = self.at.u32()?;
            // Line size, sets, ways.
            self.at.skip(12)?;
            let (kind, size, cpus) = (self.text()?, self.text()?, self.text()?);
            self.lines.push(format!(" L{level} {kind:<15} {size:>8} [{cpus}]"));
        }
        Ok(())
    }

    fn memory(&mut self) -> Result<(), Truncated> {
        let _version = self.at.u64()?;
        let (block, count) = (self.at.u64()?, self.at.u64()?);
        self.lines.push(format!("memory nodes (nr {count}, block size {block:#x}):"));
        for _ in 0..count.min(u64::from(MOST)) {
            let (node, _, bits) = (self.at.u64()?, self.at.u64()?, self.at.u64()?);
            let mut blocks = Vec::new();
            for word in 0..bits.div_ceil(64) {
                let held = self.at.u64()?;
                blocks.extend((0..64).filter(|b| held >> b & 1 == 1).map(|b| word * 64 + b));
            }
            let size = unit((blocks.len() as u64).saturating_mul(block));
            self.lines.push(format!("   {node} [{size}]: {}", ranges(&blocks)));
        }
        Ok(())
    }

    fn clock(&mut self) -> Result<(), Truncated> {
        let resolution = self.at.u64()?.max(1);
        self.lines.push(format!("clockid frequency: {} MHz", 1000 / resolution));
        Ok(())
    }

    fn clock_data(&mut self) -> Result<(), Truncated> {
        let _version = self.at.u32()?;
        let clock = self.at.u32()?;
        let name = match clock {
            0 => "realtime",
            1 => "monotonic",
            4 => "monotonic_raw",
            7 => "boottime",
            11 => "tai",
            _ => "unknown",
        };
        let (day, time) = (self.at.u64()?, self.at.u64()?);
        let seconds = |t: u64| (t / 1_000_000_000, t % 1_000_000_000);
        let ((s, n), (cs, cn)) = (seconds(day), seconds(time));
        self.lines.push(format!("clockid: {name} ({clock})"));
        let micros = n / 1000;
        self.lines.push(format!("reference time: {s}.{micros:06} (TOD) = {cs}.{cn:09} ({name})"));
        Ok(())
    }
}

/// Sections of perf 5 and 6.
impl Section<'_> {
    fn says(&mut self, fact: &str) -> Result<(), Truncated> {
        self.lines.push(fact.into());
        Ok(())
    }

    fn folder(&mut self) -> Result<(), Truncated> {
        let version = self.at.u64()?;
        self.lines.push(format!("directory data version : {version}"));
        Ok(())
    }

    fn compressed(&mut self) -> Result<(), Truncated> {
        const ZSTD: u32 = 1;
        let _version = self.at.u32()?;
        let kind = match self.at.u32()? {
            ZSTD => "Zstd",
            _ => "Unknown",
        };
        let (level, ratio) = (self.at.u32()?, self.at.u32()?);
        self.lines.push(format!("compressed : {kind}, level = {level}, ratio = {ratio}"));
        Ok(())
    }

    /// What a PMU can do: names and values.
    fn pairs(&mut self) -> Result<Vec<String>, Truncated> {
        let mut pairs = Vec::new();
        for _ in 0..self.count()? {
            pairs.push(format!("{}={}", self.text()?, self.text()?));
        }
        Ok(pairs)
    }

    fn tell(&mut self, pmu: &str, pairs: &[String]) {
        let all = if pairs.is_empty() { "not available".into() } else { pairs.join(", ") };
        self.lines.push(format!("{pmu} pmu capabilities: {all}"));
    }

    fn abilities(&mut self, pmu: &str) -> Result<(), Truncated> {
        let pairs = self.pairs()?;
        self.tell(pmu, &pairs);
        Ok(())
    }

    fn abilities_of_all(&mut self) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            // The PMU's name stands behind them.
            let (pairs, pmu) = (self.pairs()?, self.text()?);
            self.tell(&pmu, &pairs);
        }
        Ok(())
    }

    fn kinds_of_processors(&mut self) -> Result<(), Truncated> {
        let count = self.count()?;
        self.lines.push("hybrid cpu system:".into());
        for _ in 0..count {
            let (pmu, cpus) = (self.text()?, self.text()?);
            self.lines.push(format!("{pmu} cpu list : {cpus}"));
        }
        Ok(())
    }

    fn programs(&mut self) -> Result<(), Truncated> {
        /// The kernel's `struct bpf_prog_info` begins with the kind and the number.
        const ID_AT: usize = 4;
        for _ in 0..self.count()? {
            let (info, data) = (self.at.u32()? as usize, self.at.u32()? as usize);
            // Which of its arrays follow.
            self.at.skip(8)?;
            let info = self.at.bytes(info)?;
            self.at.skip(data)?;
            let mut info = Cursor::new(info, self.at.endian());
            info.skip(ID_AT)?;
            self.lines.push(format!("bpf_prog_info of id {}", info.u32()?));
        }
        Ok(())
    }

    fn types(&mut self) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            let (id, size) = (self.at.u32()?, self.at.u32()? as usize);
            self.at.skip(size)?;
            self.lines.push(format!("btf info of id {id}"));
        }
        Ok(())
    }
}

/// A size in the largest unit that leaves a whole number: `24G`.
fn unit(size: u64) -> String {
    let (mut size, mut unit) = (size, "B");
    for next in ["K", "M", "G"] {
        if size < 1024 {
            break;
        }
        size /= 1024;
        unit = next;
    }
    format!("{size}{unit}")
}

/// Ascending numbers as `0-3,5`.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[u64]| match run {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

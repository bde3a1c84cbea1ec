//! Feature sections that are decoded on demand: processors, memory and caches of the machine,
//! capabilities of PMUs, the clock, the kinds of data. Nothing of a reader's work depends on them.

use kymo_model::{Cursor, Endian, Truncated};

use crate::perfdata::Feature;

use super::Features;

/// Greatest number of elements of a list. Longer ones are no machine's.
const MOST: u32 = 1 << 16;

/// A decoded section of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "variants carry the sections' names")]
pub enum FeatureSection {
    CpuTopology(CpuTopology),
    NumaTopology(Vec<NumaNodeMemory>),
    BranchStack,
    Auxtrace,
    Stat,
    Cache(Vec<CpuCache>),
    MemTopology(MemTopology),
    /// Resolution of the clock in nanoseconds.
    ClockId(u64),
    /// Version of the directory format.
    DirFormat(u64),
    /// The BPF programs that were loaded.
    BpfProgInfo(Vec<RecordedBpfProgram>),
    /// Ids of the BTF objects that were loaded.
    BpfBtf(Vec<(u32, Vec<u8>)>),
    Compressed(CompressionInfo),
    /// Capabilities of the PMU `cpu`.
    CpuPmuCaps(Capabilities),
    ClockData(ClockData),
    HybridTopology(Vec<HybridPmu>),
    /// Capabilities by name of the PMU.
    PmuCaps(Vec<(String, Capabilities)>),
}

/// Names and values of a PMU's capabilities.
pub type Capabilities = Vec<(String, String)>;

/// Section CPU_TOPOLOGY.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// Lists of the CPUs that share a socket, as `0-3`.
    pub sockets: Vec<String>,
    /// Lists of the CPUs that share a die; none before perf 5.3.
    pub dies: Vec<String>,
    /// Lists of the CPUs that share a core.
    pub threads: Vec<String>,
    /// Place of each CPU, by number.
    pub cpus: Vec<CpuPlace>,
}

/// Place of a CPU in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields carry the section's names")]
pub struct CpuPlace {
    pub core: u32,
    /// None where the section states no dies.
    pub die: Option<u32>,
    pub socket: u32,
}

/// A node of section NUMA_TOPOLOGY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNodeMemory {
    /// Number of the node.
    pub node: u32,
    /// Memory in KiB.
    pub total_kib: u64,
    /// Free memory in KiB.
    pub free_kib: u64,
    /// CPUs, as `0-3`.
    pub cpus: String,
}

/// A cache of section CACHE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuCache {
    /// 1 for L1.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub cache_type: String,
    /// Size, as `32K`.
    pub size: String,
    /// CPUs that share it, as `0-3`.
    pub cpus: String,
}

/// Section MEM_TOPOLOGY.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemTopology {
    /// Size of a block in bytes.
    pub block_size: u64,
    /// Number of nodes that the section states.
    pub stated: u64,
    /// Number of each node and its blocks.
    pub nodes: Vec<(u64, Vec<u64>)>,
}

/// Section COMPRESSED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionInfo {
    /// Kind of compression; 1 is zstd.
    pub algorithm: u32,
    /// Level that was asked for.
    pub level: u32,
    /// Ratio that was reached.
    pub ratio: u32,
}

impl CompressionInfo {
    /// PERF_COMP_ZSTD.
    pub const ZSTD: u32 = 1;
}

/// Section CLOCK_DATA: one moment in two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockData {
    /// Number of the clock, as in clock_gettime(2).
    pub clock_id: u32,
    /// Time of day, in nanoseconds since 1970.
    pub time_of_day: u64,
    /// Time of the clock, in nanoseconds.
    pub clock_time: u64,
}

/// A PMU of section HYBRID_TOPOLOGY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HybridPmu {
    /// Name of the PMU.
    pub pmu: String,
    /// Its CPUs, as `0-3`.
    pub cpus: String,
}

impl Features {
    /// One moment in two clocks, of a recording that states it whole.
    pub fn clock_data(&self, endian: Endian) -> Option<ClockData> {
        match self.section(Feature::CLOCK_DATA, endian)? {
            (FeatureSection::ClockData(data), None) => Some(data),
            _ => None,
        }
    }

    /// Decodes a section that no field of this type holds. `None`: it is absent or
    /// of another kind. Lists of a damaged section have what could be read, and the
    /// damage comes with them.
    pub fn section(
        &self,
        feature: Feature,
        endian: Endian,
    ) -> Option<(FeatureSection, Option<Truncated>)> {
        let mut reader = SectionReader(Cursor::new(self.raw.get(&feature)?, endian));
        let cpus = self.nrcpus.map_or(0, |(available, _)| available);
        Some(match feature {
            Feature::CPU_TOPOLOGY => list(
                CpuTopology::default(),
                |topology| reader.cpu_topology(cpus, topology),
                FeatureSection::CpuTopology,
            ),
            Feature::NUMA_TOPOLOGY => {
                list(Vec::new(), |nodes| reader.numa_nodes(nodes), FeatureSection::NumaTopology)
            }
            Feature::BRANCH_STACK => (FeatureSection::BranchStack, None),
            Feature::AUXTRACE => (FeatureSection::Auxtrace, None),
            Feature::STAT => (FeatureSection::Stat, None),
            Feature::CACHE => {
                list(Vec::new(), |caches| reader.caches(caches), FeatureSection::Cache)
            }
            Feature::MEM_TOPOLOGY => list(
                MemTopology::default(),
                |topology| reader.mem_topology(topology),
                FeatureSection::MemTopology,
            ),
            Feature::CLOCKID => list(0, |r| reader.value(r), FeatureSection::ClockId),
            Feature::DIR_FORMAT => list(0, |v| reader.value(v), FeatureSection::DirFormat),
            Feature::BPF_PROG_INFO => {
                list(Vec::new(), |ids| reader.bpf_programs(ids), FeatureSection::BpfProgInfo)
            }
            Feature::BPF_BTF => {
                list(Vec::new(), |ids| reader.btf_objects(ids), FeatureSection::BpfBtf)
            }
            Feature::COMPRESSED => list(
                CompressionInfo { algorithm: 0, level: 0, ratio: 0 },
                |info| reader.compression(info),
                FeatureSection::Compressed,
            ),
            Feature::CPU_PMU_CAPS => {
                list(Vec::new(), |caps| reader.capabilities(caps), FeatureSection::CpuPmuCaps)
            }
            Feature::CLOCK_DATA => list(
                ClockData { clock_id: 0, time_of_day: 0, clock_time: 0 },
                |data| reader.clock_data(data),
                FeatureSection::ClockData,
            ),
            Feature::HYBRID_TOPOLOGY => {
                list(Vec::new(), |pmus| reader.hybrid_pmus(pmus), FeatureSection::HybridTopology)
            }
            Feature::PMU_CAPS => {
                list(Vec::new(), |pmus| reader.pmu_capabilities(pmus), FeatureSection::PmuCaps)
            }
            _ => return None,
        })
    }
}

/// Fills a value in as far as it can be read.
fn list<T>(
    mut value: T,
    fill: impl FnOnce(&mut T) -> Result<(), Truncated>,
    section: impl FnOnce(T) -> FeatureSection,
) -> (FeatureSection, Option<Truncated>) {
    let damage = fill(&mut value).err();
    (section(value), damage)
}

struct SectionReader<'a>(Cursor<'a>);

impl SectionReader<'_> {
    /// A string with its length before it, ended by zeros.
    fn text(&mut self) -> Result<String, Truncated> {
        let length = self.0.u32()? as usize;
        let bytes = self.0.bytes(length)?;
        let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn count(&mut self) -> Result<u32, Truncated> {
        Ok(self.0.u32()?.min(MOST))
    }

    fn texts(&mut self, texts: &mut Vec<String>) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            texts.push(self.text()?);
        }
        Ok(())
    }

    fn value(&mut self, value: &mut u64) -> Result<(), Truncated> {
        *value = self.0.u64()?;
        Ok(())
    }

    fn cpu_topology(&mut self, cpus: u32, topology: &mut CpuTopology) -> Result<(), Truncated> {
        self.texts(&mut topology.sockets)?;
        self.texts(&mut topology.threads)?;
        for _ in 0..cpus.min(MOST) {
            let (core, socket) = (self.0.u32()?, self.0.u32()?);
            topology.cpus.push(CpuPlace { core, die: None, socket });
        }
        // Dies were added at the end.
        if self.0.remaining() > 0 {
            self.texts(&mut topology.dies)?;
            for cpu in &mut topology.cpus {
                cpu.die = Some(self.0.u32()?);
            }
        }
        Ok(())
    }

    fn numa_nodes(&mut self, nodes: &mut Vec<NumaNodeMemory>) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            let (node, total_kib, free_kib) = (self.0.u32()?, self.0.u64()?, self.0.u64()?);
            nodes.push(NumaNodeMemory { node, total_kib, free_kib, cpus: self.text()? });
        }
        Ok(())
    }

    fn caches(&mut self, caches: &mut Vec<CpuCache>) -> Result<(), Truncated> {
        let _version = self.0.u32()?;
        for _ in 0..self.count()? {
            let level = self.0.u32()?;
            // Line size, sets, ways.
            self.0.skip(12)?;
            let (cache_type, size, cpus) = (self.text()?, self.text()?, self.text()?);
            caches.push(CpuCache { level, cache_type, size, cpus });
        }
        Ok(())
    }

    fn mem_topology(&mut self, topology: &mut MemTopology) -> Result<(), Truncated> {
        let _version = self.0.u64()?;
        (topology.block_size, topology.stated) = (self.0.u64()?, self.0.u64()?);
        for _ in 0..topology.stated.min(u64::from(MOST)) {
            let (node, _, bits) = (self.0.u64()?, self.0.u64()?, self.0.u64()?);
            let mut blocks = Vec::new();
            for word in 0..bits.div_ceil(64) {
                let held = self.0.u64()?;
                blocks.extend((0..64).filter(|b| held >> b & 1 == 1).map(|b| word * 64 + b));
            }
            topology.nodes.push((node, blocks));
        }
        Ok(())
    }

    fn clock_data(&mut self, data: &mut ClockData) -> Result<(), Truncated> {
        let _version = self.0.u32()?;
        data.clock_id = self.0.u32()?;
        (data.time_of_day, data.clock_time) = (self.0.u64()?, self.0.u64()?);
        Ok(())
    }

    fn compression(&mut self, info: &mut CompressionInfo) -> Result<(), Truncated> {
        let _version = self.0.u32()?;
        (info.algorithm, info.level, info.ratio) = (self.0.u32()?, self.0.u32()?, self.0.u32()?);
        Ok(())
    }

    fn capabilities(&mut self, all: &mut Capabilities) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            all.push((self.text()?, self.text()?));
        }
        Ok(())
    }

    fn pmu_capabilities(
        &mut self,
        pmus: &mut Vec<(String, Capabilities)>,
    ) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            let mut all = Capabilities::new();
            self.capabilities(&mut all)?;
            // The PMU's name stands behind them.
            pmus.push((self.text()?, all));
        }
        Ok(())
    }

    fn hybrid_pmus(&mut self, pmus: &mut Vec<HybridPmu>) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            pmus.push(HybridPmu { pmu: self.text()?, cpus: self.text()? });
        }
        Ok(())
    }

    fn bpf_programs(&mut self, programs: &mut Vec<RecordedBpfProgram>) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            let (info, data) = (self.0.u32()? as usize, self.0.u32()? as usize);
            // Which of its arrays follow.
            self.0.skip(8)?;
            let (info, data) = (self.0.bytes(info)?, self.0.bytes(data)?);
            let endian = self.0.endian();
            // Behind the kind.
            let mut id = Cursor::new(info, endian);
            id.skip(4)?;
            let program = RecordedBpfProgram::parse(info, data, endian);
            programs.push(
                program.unwrap_or(RecordedBpfProgram { id: id.u32()?, ..Default::default() }),
            );
        }
        Ok(())
    }

    fn btf_objects(&mut self, objects: &mut Vec<(u32, Vec<u8>)>) -> Result<(), Truncated> {
        for _ in 0..self.count()? {
            let (id, size) = (self.0.u32()?, self.0.u32()? as usize);
            objects.push((id, self.0.bytes(size)?.to_vec()));
        }
        Ok(())
    }
}

/// A BPF program, of the kernel's `struct bpf_prog_info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedBpfProgram {
    /// Its number.
    pub id: u32,
    /// Its name, which may be cut.
    pub name: String,
    /// The number of its BTF; 0 if it has none.
    pub btf: u32,
    /// Its functions; none where the kernel did not say where they are.
    pub functions: Vec<BpfFunction>,
}

/// A function of a BPF program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BpfFunction {
    /// Hash of its instructions.
    pub tag: [u8; 8],
    /// Number of its type in the program's BTF.
    pub type_id: Option<u32>,
    /// Address of its machine code.
    pub address: u64,
    /// Bytes of it.
    pub size: u32,
}

impl RecordedBpfProgram {
    /// `data` has the arrays, to which numbers in `info` point from its begin on.
    fn parse(info: &[u8], data: &[u8], endian: Endian) -> Option<RecordedBpfProgram> {
        let number = |at| endian.u32_at(info, at);
        let array = |at| data.get(usize::try_from(endian.u64_at(info, at)?).ok()?..);
        let name = info.get(64..80)?.split(|b| *b == 0).next()?;
        let mut functions = Vec::new();
        let count = number(104)?;
        // Where they are not as many of each kind the kernel kept some to itself.
        if number(108)? == count && number(180) == Some(count) {
            let (addresses, sizes, tags) = (array(112)?, array(120)?, array(184)?);
            let types = array(136).filter(|_| number(144) == Some(count));
            for n in 0..count as usize {
                let of_type = |types| {
                    endian.u32_at(types, n.checked_mul(number(132)? as usize)?.checked_add(4)?)
                };
                functions.push(BpfFunction {
                    tag: *tags.get(n * 8..)?.first_chunk()?,
                    type_id: types.and_then(of_type),
                    address: endian.u64_at(addresses, n * 8)?,
                    size: endian.u32_at(sizes, n * 4)?,
                });
            }
        }
        let name = String::from_utf8_lossy(name).into_owned();
        Some(RecordedBpfProgram { id: number(4)?, name, btf: number(128)?, functions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(feature: Feature, bytes: &[u8]) -> Features {
        let raw = [(feature, bytes.to_vec())].into();
        Features { nrcpus: Some((2, 2)), raw, ..Features::default() }
    }

    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u32 + 1).to_le_bytes());
        out.extend(text.as_bytes());
        out.push(0);
    }

    #[test]
    fn processors_with_and_without_dies() {
        let mut bytes = 1u32.to_le_bytes().to_vec();
        text(&mut bytes, "0-1");
        bytes.extend(2u32.to_le_bytes());
        text(&mut bytes, "0");
        text(&mut bytes, "1");
        [0u32, 0, 1, 0].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        let read = |bytes: &[u8]| {
            features(Feature::CPU_TOPOLOGY, bytes).section(Feature::CPU_TOPOLOGY, Endian::Little)
        };
        let place = |core, die| CpuPlace { core, die, socket: 0 };
        let mut wanted = CpuTopology {
            sockets: vec!["0-1".into()],
            threads: vec!["0".into(), "1".into()],
            dies: Vec::new(),
            cpus: vec![place(0, None), place(1, None)],
        };
        let section = FeatureSection::CpuTopology(wanted.clone());
        assert_eq!(read(&bytes), Some((section, None)));
        bytes.extend(1u32.to_le_bytes());
        text(&mut bytes, "0-1");
        [3u32, 4].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        wanted.dies = vec!["0-1".into()];
        wanted.cpus = vec![place(0, Some(3)), place(1, Some(4))];
        let section = FeatureSection::CpuTopology(wanted);
        assert_eq!(read(&bytes), Some((section, None)));
    }

    #[test]
    fn a_lie_about_a_length_leaves_what_was_read() {
        let mut bytes = 2u32.to_le_bytes().to_vec();
        text(&mut bytes, "max_precise");
        text(&mut bytes, "3");
        bytes.extend(u32::MAX.to_le_bytes());
        let read =
            features(Feature::CPU_PMU_CAPS, &bytes).section(Feature::CPU_PMU_CAPS, Endian::Little);
        let Some((FeatureSection::CpuPmuCaps(caps), Some(_))) = read else { panic!("{read:?}") };
        assert_eq!(caps, [("max_precise".to_owned(), "3".to_owned())]);
        // A bitmap that claims more than there is takes no memory for it.
        let mut bytes = 1u64.to_le_bytes().to_vec();
        [4096u64, 1, 0, 0, u64::MAX, 5].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        let read =
            features(Feature::MEM_TOPOLOGY, &bytes).section(Feature::MEM_TOPOLOGY, Endian::Little);
        let Some((FeatureSection::MemTopology(memory), Some(_))) = read else { panic!("{read:?}") };
        assert_eq!((memory.block_size, memory.stated, memory.nodes.len()), (4096, 1, 0));
    }
}

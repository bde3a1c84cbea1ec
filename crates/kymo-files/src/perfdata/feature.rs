//! The numbers of perf.data's feature sections, under the specification's
//! names (`tools/perf/Documentation/perf.data-file-format.txt`).

/// A feature section's number: its bit in the header and its `HEADER_FEATURE` id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Feature(pub u32);

macro_rules! features {
    ($($name:ident = $value:literal),* $(,)?) => {
        #[allow(missing_docs, reason = "the names are the specification's")]
        impl Feature {
            $(pub const $name: Feature = Feature($value);)*

            /// The specification's name without its `HEADER_` prefix.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

features! {
    RESERVED = 0, TRACING_DATA = 1, BUILD_ID = 2, HOSTNAME = 3, OSRELEASE = 4, VERSION = 5, ARCH = 6,
    NRCPUS = 7, CPUDESC = 8, CPUID = 9, TOTAL_MEM = 10, CMDLINE = 11, EVENT_DESC = 12,
    CPU_TOPOLOGY = 13, NUMA_TOPOLOGY = 14, BRANCH_STACK = 15, PMU_MAPPINGS = 16, GROUP_DESC = 17,
    AUXTRACE = 18, STAT = 19, CACHE = 20, SAMPLE_TIME = 21, MEM_TOPOLOGY = 22, CLOCKID = 23,
    DIR_FORMAT = 24, BPF_PROG_INFO = 25, BPF_BTF = 26, COMPRESSED = 27, CPU_PMU_CAPS = 28,
    CLOCK_DATA = 29, HYBRID_TOPOLOGY = 30, PMU_CAPS = 31, CPU_DOMAIN_INFO = 32,
}

impl Feature {
    /// Bits in the header's feature bitmap.
    pub const BITS: u32 = 256;
    /// The recording is incomplete: kymo's own, which perf passes over as unknown.
    pub const UNFINISHED: Feature = Feature(250);
}

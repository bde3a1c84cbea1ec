//! Feature sections: who recorded where and how. Each is decoded when it is
//! read; a section that lies about its size costs only itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use kymo_model::{Attr, BuildId, Cursor, Endian, Truncated};

use super::tracing::TracingData;
use crate::perfdata::Feature;

/// A binary the recording touched, with its build-id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildIdEntry {
    /// The `misc` word: its processor mode distinguishes kernel from user binaries.
    pub misc: u16,
    /// Process, or -1.
    pub pid: i32,
    /// The id.
    pub build_id: BuildId,
    /// Path, `[kernel.kallsyms]` or `[vdso]`.
    pub filename: Vec<u8>,
}

impl BuildIdEntry {
    /// The name as a path.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.filename))
    }
}

/// Event of the EVENT_DESC section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedEvent {
    /// Its attribute.
    pub attr: Attr,
    /// Its name, modifiers included.
    pub name: String,
    /// Its ids.
    pub ids: Vec<u64>,
}

/// A group of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    /// Name given by the user, often empty.
    pub name: String,
    /// Index of the leader among the events.
    pub leader: u32,
    /// Number of events, the leader included.
    pub members: u32,
}

/// Feature sections of a recording. Absent sections are `None` or empty; sections without a field
/// here are in `raw`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields carry the sections' names")]
pub struct Features {
    pub hostname: Option<String>,
    pub osrelease: Option<String>,
    /// Version of the recording program.
    pub version: Option<String>,
    pub arch: Option<String>,
    /// `(available, online)`.
    pub nrcpus: Option<(u32, u32)>,
    pub cpudesc: Option<String>,
    pub cpuid: Option<String>,
    /// In KiB.
    pub total_mem: Option<u64>,
    pub cmdline: Vec<String>,
    pub event_desc: Vec<DescribedEvent>,
    pub build_ids: Vec<BuildIdEntry>,
    pub groups: Vec<GroupDesc>,
    /// First and last sample's time.
    pub sample_time: Option<(u64, u64)>,
    /// Resolution in nanoseconds of the clock asked for with `-k`.
    pub clockid_res: Option<u64>,
    pub tracing_data: Option<TracingData>,
    pub branch_stack: bool,
    /// `(type, name)` of each PMU.
    pub pmu_mappings: Vec<(u32, String)>,
    /// Every section as it was, by number, the tracing data excepted.
    pub raw: BTreeMap<Feature, Vec<u8>>,
    /// The tracing data as it was.
    pub tracing_bytes: Option<Arc<[u8]>>,
    /// Sections that could not be decoded, with the reason.
    pub damaged: Vec<(Feature, String)>,
}

impl Features {
    /// Parses the sections of a recording made here.
    pub fn from_sections(sections: BTreeMap<Feature, Vec<u8>>) -> Features {
        let mut features = Features::default();
        for (feature, bytes) in sections {
            features.accept(feature, bytes, Endian::NATIVE);
        }
        features
    }

    /// Takes a section's bytes; what cannot be decoded is noted in `damaged`.
    pub(super) fn accept(&mut self, feature: Feature, bytes: Vec<u8>, endian: Endian) {
        if let Err(e) = self.decode(feature, &bytes, endian) {
            self.damaged.push((feature, e.to_string()));
        }
        match feature {
            Feature::TRACING_DATA => self.tracing_bytes = Some(bytes.into()),
            _ => _ = self.raw.insert(feature, bytes),
        }
    }

    fn decode(&mut self, f: Feature, bytes: &[u8], endian: Endian) -> Result<(), Truncated> {
        let mut c = Cursor::new(bytes, endian);
        match f {
            Feature::TRACING_DATA => {
                let (data, error) = TracingData::parse(bytes);
                if let Some(e) = error {
                    self.damaged.push((f, e));
                }
                self.tracing_data = Some(data);
            }
            Feature::BUILD_ID => self.build_ids(bytes, endian)?,
            Feature::HOSTNAME => self.hostname = Some(string(&mut c)?),
            Feature::OSRELEASE => self.osrelease = Some(string(&mut c)?),
            Feature::VERSION => self.version = Some(string(&mut c)?),
            Feature::ARCH => self.arch = Some(string(&mut c)?),
            Feature::NRCPUS => self.nrcpus = Some((c.u32()?, c.u32()?)),
            Feature::CPUDESC => self.cpudesc = Some(string(&mut c)?),
            Feature::CPUID => self.cpuid = Some(string(&mut c)?),
            Feature::TOTAL_MEM => self.total_mem = Some(c.u64()?),
            Feature::CMDLINE => {
                self.cmdline.clear();
                for _ in 0..c.u32()? {
                    self.cmdline.push(string(&mut c)?);
                }
            }
            Feature::EVENT_DESC => self.events(&mut c)?,
            Feature::BRANCH_STACK => self.branch_stack = true,
            Feature::PMU_MAPPINGS => {
                for _ in 0..c.u32()? {
                    self.pmu_mappings.push((c.u32()?, string(&mut c)?));
                }
            }
            Feature::GROUP_DESC => {
                for _ in 0..c.u32()? {
                    let name = string(&mut c)?;
                    self.groups.push(GroupDesc { name, leader: c.u32()?, members: c.u32()? });
                }
            }
            Feature::SAMPLE_TIME => self.sample_time = Some((c.u64()?, c.u64()?)),
            Feature::CLOCKID => self.clockid_res = Some(c.u64()?),
            _ => {}
        }
        Ok(())
    }

    fn events(&mut self, c: &mut Cursor<'_>) -> Result<(), Truncated> {
        let (count, attr_size) = (c.u32()?, c.u32()? as usize);
        for _ in 0..count {
            let attr = Attr::parse(c.bytes(attr_size)?, c.endian())?;
            let ids = c.u32()?;
            let name = string(c)?;
            let mut event = DescribedEvent { attr, name, ids: Vec::new() };
            for _ in 0..ids {
                event.ids.push(c.u64()?);
            }
            self.event_desc.push(event);
        }
        Ok(())
    }

    fn build_ids(&mut self, bytes: &[u8], endian: Endian) -> Result<(), Truncated> {
        let mut c = Cursor::new(bytes, endian);
        while c.remaining() >= 8 {
            let (at, _kind, misc, size) = (c.position(), c.u32()?, c.u16()?, c.u16()?);
            let Some(body) = usize::from(size).checked_sub(8).filter(|n| *n >= 28) else {
                return Err(Truncated { offset: at, needed: 36, left: usize::from(size) });
            };
            self.build_id(misc, c.bytes(body)?, endian)?;
        }
        Ok(())
    }

    /// Takes the body of one build-id record, from the section or a pipe.
    pub(super) fn build_id(
        &mut self,
        misc: u16,
        body: &[u8],
        endian: Endian,
    ) -> Result<(), Truncated> {
        /// The size byte behind the id is meant.
        const SIZE_IS_STATED: u16 = 1 << 15;
        let mut c = Cursor::new(body, endian);
        let pid = c.u32()? as i32;
        let id = c.bytes(24)?;
        let len = if misc & SIZE_IS_STATED != 0 { usize::from(id[20]).min(20) } else { 20 };
        let build_id = BuildId::new(&id[..len]);
        let filename = c.cstr().to_vec();
        self.build_ids.push(BuildIdEntry { misc, pid, build_id, filename });
        Ok(())
    }
}

/// A counted string, padded with NULs.
fn string(c: &mut Cursor<'_>) -> Result<String, Truncated> {
    let len = c.u32()? as usize;
    let bytes = c.bytes(len)?;
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(len);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_that_lies_costs_only_itself() {
        let mut f = Features::default();
        f.accept(Feature::HOSTNAME, [&64u32.to_le_bytes()[..], b"box\0"].concat(), Endian::Little);
        f.accept(Feature::ARCH, [&4u32.to_le_bytes()[..], b"arm\0"].concat(), Endian::Little);
        assert_eq!((f.hostname, f.arch.as_deref()), (None, Some("arm")));
        assert_eq!(f.damaged.len(), 1);
        assert_eq!(f.damaged[0].0, Feature::HOSTNAME);
    }

    #[test]
    fn a_count_without_content_allocates_nothing() {
        let mut f = Features::default();
        f.accept(Feature::CMDLINE, u32::MAX.to_be_bytes().to_vec(), Endian::Big);
        assert!(f.cmdline.is_empty() && f.damaged.len() == 1);
    }
}

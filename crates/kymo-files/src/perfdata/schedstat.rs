//! Readings of `/proc/schedstat` in a perf.data, as `perf sched stats record` writes them:
//! `SCHEDSTAT_CPU` and `SCHEDSTAT_DOMAIN` records, and what the domains are in the feature
//! section `CPU_DOMAIN_INFO`. Seen in files of perf 7.2.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use kymo_model::schedstat::{
    CPU_COUNTERS, CPU_TIME, CpuSchedStats, DomainSchedStats, KNOWN_VERSIONS, SchedStats,
    domain_counters,
};
use kymo_model::{Cursor, RawRecord, RecordKind, Truncated};

use super::read::{PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder};
use super::write::features::string;
use super::write::synth;

/// Bytes of a domain's counters, of whatever version: those of the largest.
const DOMAIN_BYTES: usize = 184;
/// Most readings, CPUs and domains that are taken from a file.
const MOST: usize = 1 << 16;

/// The records of a reading.
pub fn schedstat_records(stats: &SchedStats) -> Vec<u8> {
    let mut all = Vec::new();
    let head = |cpu: u32, domain: u16| {
        let mut b = stats.jiffies.to_ne_bytes().to_vec();
        b.extend(cpu.to_ne_bytes());
        b.extend(stats.version.to_ne_bytes());
        b.extend(domain.to_ne_bytes());
        b
    };
    for cpu in &stats.cpus {
        let mut body = head(cpu.cpu, 0);
        cpu.counters[..CPU_TIME].iter().for_each(|n| body.extend((*n as u32).to_ne_bytes()));
        cpu.counters[CPU_TIME..CPU_COUNTERS - 1].iter().for_each(|n| body.extend(n.to_ne_bytes()));
        body.extend((cpu.counters[CPU_COUNTERS - 1] as u32).to_ne_bytes());
        all.extend(synth::record(RecordKind::SCHEDSTAT_CPU, 0, &body).unwrap_or_default());
        for domain in &cpu.domains {
            let mut body = head(cpu.cpu, domain.number);
            let size = body.len() + DOMAIN_BYTES;
            domain.counters.iter().for_each(|n| body.extend(n.to_ne_bytes()));
            body.resize(size, 0);
            all.extend(synth::record(RecordKind::SCHEDSTAT_DOMAIN, 0, &body).unwrap_or_default());
        }
    }
    all
}

/// CPU_DOMAIN_INFO: which CPUs the domains of each CPU hold.
pub fn domain_info(stats: &SchedStats) -> Vec<u8> {
    let deepest = stats.cpus.iter().map(|c| c.domains.len()).max().unwrap_or(0);
    let mut b = u32::from(stats.version).to_ne_bytes().to_vec();
    b.extend((deepest as u32).to_ne_bytes());
    for cpu in &stats.cpus {
        b.extend(cpu.cpu.to_ne_bytes());
        b.extend((cpu.domains.len() as u32).to_ne_bytes());
        for domain in &cpu.domains {
            b.extend(u32::from(domain.number).to_ne_bytes());
            if stats.version >= 17 {
                b.extend(string(domain.name.as_deref().unwrap_or("")));
            }
            b.extend(string(&domain.mask));
            b.extend(string(&domain.cpu_list()));
        }
    }
    b
}

/// Readings of a recording, in its order, and how its records were read.
pub fn read_schedstats(
    data: &mut PerfData,
) -> Result<(Vec<SchedStats>, PerfDataReadStats), PerfDataReadError> {
    let info = |data: &PerfData| {
        let bytes = data.features().raw.get(&super::Feature::CPU_DOMAIN_INFO)?;
        parse_domains(Cursor::new(bytes, data.endian())).ok()
    };
    let domains = info(data).unwrap_or_default();
    let mut readings = Readings::default();
    let read = data.for_each(RecordOrder::File, &mut |entry| match entry.raw.kind {
        RecordKind::SCHEDSTAT_CPU | RecordKind::SCHEDSTAT_DOMAIN => {
            match readings.take(&entry.raw, &domains) {
                Some(()) => ControlFlow::Continue(()),
                None => ControlFlow::Break(()),
            }
        }
        _ => ControlFlow::Continue(()),
    })?;
    Ok((readings.all, read))
}

/// Names, masks and lists of domains, by CPU and number.
type DomainNames = BTreeMap<(u32, u16), (Option<String>, String)>;

fn parse_domains(mut cursor: Cursor<'_>) -> Result<DomainNames, Truncated> {
    let mut names = DomainNames::new();
    let version = cursor.u32()?;
    let _deepest = cursor.u32()?;
    while cursor.remaining() >= 8 {
        let (cpu, count) = (cursor.u32()?, cursor.u32()?);
        for _ in 0..count {
            let number = cursor.u32()? as u16;
            let name = if version >= 17 { Some(text(&mut cursor)?) } else { None };
            let mask = text(&mut cursor)?;
            let _list = text(&mut cursor)?;
            names.insert((cpu, number), (name, mask));
        }
    }
    Ok(names)
}

fn text(cursor: &mut Cursor<'_>) -> Result<String, Truncated> {
    let len = cursor.u32()? as usize;
    let bytes = cursor.bytes(len)?;
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

#[derive(Default)]
struct Readings {
    all: Vec<SchedStats>,
    taken: usize,
}

impl Readings {
    /// Takes a record; `None` if the file has more of them than anybody makes, or one that
    /// cannot be understood.
    fn take(&mut self, raw: &RawRecord<'_>, names: &DomainNames) -> Option<()> {
        self.taken += 1;
        (self.taken <= MOST).then_some(())?;
        let mut cursor = raw.cursor();
        let (jiffies, cpu) = (cursor.u64().ok()?, cursor.u32().ok()?);
        let (version, number) = (cursor.u16().ok()?, cursor.u16().ok()?);
        KNOWN_VERSIONS.contains(&version).then_some(())?;
        if raw.kind == RecordKind::SCHEDSTAT_CPU {
            // A CPU that comes once more begins the next reading.
            let same = |s: &&mut SchedStats| !s.cpus.iter().any(|c| c.cpu == cpu);
            if self.all.last_mut().filter(same).is_none() {
                self.all.push(SchedStats { version, jiffies, cpus: Vec::new() });
            }
            let counters = cpu_counters(&mut cursor).ok()?;
            let cpus = &mut self.all.last_mut()?.cpus;
            cpus.push(CpuSchedStats { cpu, counters, domains: Vec::new() });
            return Some(());
        }
        let counters = (0..domain_counters(version)).map(|_| cursor.u32());
        let counters = counters.collect::<Result<_, _>>().ok()?;
        let (name, mask) = names.get(&(cpu, number)).cloned().unwrap_or_default();
        let last = self.all.last_mut()?.cpus.last_mut().filter(|c| c.cpu == cpu)?;
        last.domains.push(DomainSchedStats { number, name, mask, counters });
        Some(())
    }
}

fn cpu_counters(cursor: &mut Cursor<'_>) -> Result<[u64; CPU_COUNTERS], Truncated> {
    let mut counters = [0; CPU_COUNTERS];
    for (index, counter) in counters.iter_mut().enumerate() {
        *counter = match index {
            CPU_TIME..8 => cursor.u64()?,
            _ => cursor.u32()?.into(),
        };
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use kymo_model::Endian;

    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        for version in KNOWN_VERSIONS {
            let counters = (0..domain_counters(version) as u32).map(|i| i * 3 + 1).collect();
            let name = (version >= 17).then(|| "SMT".to_owned());
            let domain = DomainSchedStats { number: 0, name, mask: "5".into(), counters };
            let cpu = |cpu| CpuSchedStats {
                cpu,
                counters: std::array::from_fn(|i| 1000 + i as u64),
                domains: vec![domain.clone()],
            };
            let stats = SchedStats { version, jiffies: 77, cpus: vec![cpu(0), cpu(2)] };
            let names = domain_info(&stats);
            let names = parse_domains(Cursor::new(&names, Endian::NATIVE)).unwrap();
            let bytes = schedstat_records(&stats).repeat(2);
            let (mut readings, mut at) = (Readings::default(), 0);
            while at < bytes.len() {
                let header: [u8; 8] = bytes[at..at + 8].try_into().unwrap();
                let kind = RecordKind(Endian::NATIVE.u32_at(&header, 0).unwrap());
                let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
                let body = &bytes[at + 8..at + size];
                let raw =
                    RawRecord { kind, misc: Default::default(), body, endian: Endian::NATIVE };
                readings.take(&raw, &names).unwrap();
                at += size;
            }
            assert_eq!(readings.all, [stats.clone(), stats]);
        }
    }
}

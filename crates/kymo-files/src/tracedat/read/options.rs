//! Options: numbered, sized pieces. Both versions have them, version 7 uses
//! them also as its table of contents.

use kymo_model::{Cursor, Endian, Truncated};

use crate::tracedat::{CpuShift, Guest, OptionId, TimeShift, TraceDatOptions, TscToNsec};

impl TraceDatOptions {
    /// Takes in an option that is not a place in the file.
    pub(super) fn read(&mut self, id: OptionId, data: &[u8], endian: Endian) -> Result<(), String> {
        let mut c = Cursor::new(data, endian);
        self.decode(id, data, &mut c).map_err(|e: Truncated| {
            format!("option {} of {} bytes {e}", id.name().unwrap_or("?"), data.len())
        })
    }

    fn decode(&mut self, id: OptionId, data: &[u8], c: &mut Cursor<'_>) -> Result<(), Truncated> {
        match id {
            OptionId::DATE => self.date = Some(text(data)),
            OptionId::CPUSTAT => self.cpustat.push(text(data)),
            OptionId::TRACECLOCK => self.trace_clock = Some(text(data)),
            OptionId::UNAME => self.uname = Some(text(data)),
            OptionId::HOOK => self.hooks.push(text(data)),
            OptionId::OFFSET => self.offset = Some(text(data)),
            OptionId::CPUCOUNT => self.cpu_count = Some(c.u32()?),
            OptionId::VERSION => self.version = Some(text(data)),
            OptionId::PROCMAPS => self.procmaps.push(text(data)),
            OptionId::TRACEID => self.trace_id = Some(c.u64()?),
            OptionId::TIME_SHIFT => self.time_shift = Some(time_shift(c)?),
            OptionId::GUEST => self.guests.push(guest(c)?),
            OptionId::TSC2NSEC => {
                let (mult, shift, offset) = (c.u32()?, c.u32()?, c.u64()?);
                self.tsc2nsec = Some(TscToNsec { mult, shift, offset });
            }
            _ => self.unknown.push((id.0, data.to_vec())),
        }
        Ok(())
    }
}

fn time_shift(c: &mut Cursor<'_>) -> Result<TimeShift, Truncated> {
    let mut shift = TimeShift { peer: c.u64()?, flags: c.u32()?, cpus: Vec::new() };
    for _ in 0..c.u32()? {
        let n = c.u32()? as usize;
        let mut row = || -> Result<Vec<u64>, Truncated> {
            let bytes = c.bytes(n.saturating_mul(8))?;
            let endian = c.endian();
            Ok(bytes.chunks_exact(8).filter_map(|b| Some(endian.u64(*b.first_chunk()?))).collect())
        };
        let (times, offsets, scalings) = (row()?, row()?, row()?);
        let offsets = offsets.into_iter().map(|o| o as i64).collect();
        shift.cpus.push(CpuShift { times, offsets, scalings });
    }
    Ok(shift)
}

fn guest(c: &mut Cursor<'_>) -> Result<Guest, Truncated> {
    let name = text(c.cstr());
    let mut guest = Guest { name, trace_id: c.u64()?, vcpus: Vec::new() };
    for _ in 0..c.u32()? {
        guest.vcpus.push((c.u32()?, c.u32()?));
    }
    Ok(guest)
}

pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(&[])).into_owned()
}

//! Options, as `read/options.rs` reads them.

use kymo_model::Endian;

use super::sink::Bytes;
use crate::tracedat::{Guest, OptionId, TimeShift, TraceDatOptions};

impl TraceDatOptions {
    /// Writes all options that are not places in the file.
    pub(super) fn write(&self, out: &mut Bytes, endian: Endian) {
        let mut text = |id: OptionId, text: &str| {
            out.option(id.0, &[text.as_bytes(), b"\0"].concat());
        };
        for (id, value) in [
            (OptionId::DATE, &self.date),
            (OptionId::OFFSET, &self.offset),
            (OptionId::TRACECLOCK, &self.trace_clock),
            (OptionId::UNAME, &self.uname),
            (OptionId::VERSION, &self.version),
        ] {
            if let Some(value) = value {
                text(id, value);
            }
        }
        for (id, values) in [
            (OptionId::HOOK, &self.hooks),
            (OptionId::PROCMAPS, &self.procmaps),
            (OptionId::CPUSTAT, &self.cpustat),
        ] {
            values.iter().for_each(|v| text(id, v));
        }
        let mut fields = |id: OptionId, fill: &dyn Fn(&mut Bytes)| {
            let mut b = Bytes::new(endian);
            fill(&mut b);
            out.option(id.0, &b.bytes);
        };
        if let Some(id) = self.trace_id {
            fields(OptionId::TRACEID, &|b| _ = b.u64(id));
        }
        if let Some(n) = self.cpu_count {
            fields(OptionId::CPUCOUNT, &|b| _ = b.u32(n));
        }
        if let Some(t) = self.tsc2nsec {
            fields(OptionId::TSC2NSEC, &|b| _ = b.u32(t.mult).u32(t.shift).u64(t.offset));
        }
        if let Some(shift) = &self.time_shift {
            fields(OptionId::TIME_SHIFT, &|b| time_shift(shift, b));
        }
        for g in &self.guests {
            fields(OptionId::GUEST, &|b| guest(g, b));
        }
        for (id, data) in &self.unknown {
            out.option(*id, data);
        }
    }
}

fn time_shift(shift: &TimeShift, b: &mut Bytes) {
    b.u64(shift.peer).u32(shift.flags).u32(shift.cpus.len() as u32);
    for cpu in &shift.cpus {
        // The three rows have one length.
        let n = cpu.times.len().min(cpu.offsets.len()).min(cpu.scalings.len());
        b.u32(n as u32);
        cpu.times.iter().take(n).for_each(|v| _ = b.u64(*v));
        cpu.offsets.iter().take(n).for_each(|v| _ = b.u64(*v as u64));
        cpu.scalings.iter().take(n).for_each(|v| _ = b.u64(*v));
    }
}

fn guest(guest: &Guest, b: &mut Bytes) {
    b.cstr(&guest.name).u64(guest.trace_id).u32(guest.vcpus.len() as u32);
    for (vcpu, pid) in &guest.vcpus {
        b.u32(*vcpu).u32(*pid);
    }
}

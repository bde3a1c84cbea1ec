//! Every place that something could ask the name of: instruction pointers, call
//! chains, data addresses, branches, and whatever in a tracepoint's payload looks
//! like an address of the kernel. It is what a bundle must be able to answer for.

use std::ops::ControlFlow;

use kymo_files::perfdata::{
    Batch, Entry, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder,
};
use kymo_model::{CALLCHAIN_CONTEXT_MIN, Misc, RecordKind, Sample};
use kymo_symbols::bundle_writer::RecordedAddresses;
use kymo_symbols::{Resolver, ResolverOptions};
use rustc_hash::FxHashSet;

use kymo_events::CodeAddress;
use kymo_events::state::MachineState;
use kymo_events::unwind::Unwinder;

/// From here on addresses are the kernel's.
const KERNEL: u64 = 1 << 63;

/// The places of a recording, and the machine that knows the binaries.
pub struct Seen {
    /// Names of tasks, binaries and symbols.
    pub machine: MachineState,
    /// The places.
    pub places: RecordedAddresses,
    /// Counts of the records that were read.
    pub stats: PerfDataReadStats,
}

/// Reads all of a recording.
pub fn seen(file: &mut PerfData, symbols: ResolverOptions) -> Result<Seen, PerfDataReadError> {
    let resolver = Resolver::new(symbols);
    let unwinder = Unwinder::new(resolver.binaries());
    let mut machine = MachineState::new(resolver);
    machine.adopt(file.features());
    let (places, kernel) = (FxHashSet::default(), FxHashSet::default());
    let mut reading = Reading { machine, unwinder, places, kernel };
    let stats = file.for_each_batch(RecordOrder::Time, &mut |batch: Batch| {
        batch.entries().for_each(|entry| reading.entry(&entry));
        ControlFlow::Continue(())
    })?;
    let Reading { machine, places, kernel, .. } = reading;
    let mut by_dso =
        RecordedAddresses { kernel: kernel.into_iter().collect(), ..RecordedAddresses::default() };
    for (dso, address) in places {
        by_dso.of.entry(dso).or_default().push(address);
    }
    Ok(Seen { machine, places: by_dso, stats })
}

struct Reading {
    machine: MachineState,
    unwinder: Unwinder,
    places: FxHashSet<(kymo_symbols::DsoId, u64)>,
    kernel: FxHashSet<u64>,
}

impl Reading {
    fn entry(&mut self, entry: &Entry<'_>) {
        match entry.raw.kind {
            RecordKind::SAMPLE => {
                let sample = entry.desc().and_then(|d| Sample::parse(&entry.raw, &d.attr).ok());
                if let Some(sample) = sample {
                    self.sample(entry, &sample);
                }
            }
            RecordKind::HEADER_BUILD_ID | RecordKind::HEADER_FEATURE => {
                self.machine.adopt(entry.features);
            }
            _ => _ = self.machine.apply(&entry.raw),
        }
    }

    fn sample(&mut self, entry: &Entry<'_>, sample: &Sample<'_>) {
        let pid = sample.tid.map_or(0, |t| t.0);
        let space = self.machine.space(pid);
        let kernel = self.machine.kernel();
        let (places, of_kernel) = (&mut self.places, &mut self.kernel);
        let mut add = |address: u64| {
            let maps = if address >= KERNEL { &kernel } else { &space };
            // Callers are asked for by their calls, which end before the address.
            for at in [CodeAddress::exact(address), CodeAddress::of_return(address)] {
                if let Some(m) = maps.find(at) {
                    places.insert((m.dso, m.to_dso(at).get()));
                }
            }
        };
        sample.ip.into_iter().chain(sample.addr).for_each(&mut add);
        let chain = sample.callchain().filter(|ip| *ip < CALLCHAIN_CONTEXT_MIN);
        chain.for_each(&mut add);
        let arch = entry.features.arch.as_deref();
        let unwound = self.unwinder.chain(sample, arch, entry.raw.endian, &space);
        unwound.iter().filter(|ip| **ip < CALLCHAIN_CONTEXT_MIN).for_each(|ip| add(*ip));
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |b| entry.raw.endian.u64(*b));
        for branch in sample.branches.chunks_exact(24) {
            // From and to; the third word is flags.
            branch.chunks_exact(8).take(2).for_each(|b| add(word(b)));
        }
        let payload = sample.raw.unwrap_or_default();
        let pointers = payload.windows(8).step_by(4).map(word).filter(|a| *a >= KERNEL);
        of_kernel.extend(pointers.filter(|a| *a < CALLCHAIN_CONTEXT_MIN));
        // A program interrupted in the kernel without a map of it.
        if entry.raw.misc.cpumode() == Misc::KERNEL {
            of_kernel.extend(sample.ip);
        }
    }
}

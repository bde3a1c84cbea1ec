//! Maps of a program, where they are: in the kernel, or in this process.

use std::io;
use std::time::{Duration, Instant};

use kymo_bpf::{CompiledProgram, MapDefinition, MapPurpose, ProgramInterpreter};
use kymo_kernel::bpf::BpfMap;

/// Maps, by number.
pub(crate) enum ProgramMaps {
    Kernel(KernelMaps),
    /// With the programs that use them.
    UserSpace(Box<ProgramInterpreter>),
}

/// Maps in the kernel.
#[derive(Default)]
pub(crate) struct KernelMaps {
    maps: Vec<BpfMap>,
    /// Number of the map through which programs reach each, if there is one.
    holders: Vec<Option<usize>>,
    /// Number of the map of the exit flag, in programs that call `exit()`.
    exit_flag: Option<usize>,
    /// No program writes to the maps any more.
    is_quiet: bool,
    pace: ExchangePace,
    /// Maps emptied entry by entry while programs wrote to them.
    hasty: u64,
}

/// The longest time that exchanges make a reader late: the kernel waits some 10 ms in each, more on
/// a busy machine, and a program may ask for a thousand a second.
const MOST_LATE: Duration = Duration::from_secs(1);

/// An exchange that takes longer is slow: on a machine whose CPUs are all busy the kernel may wait for
/// seconds, while the ring fills and records are lost, `exit()` among them.
const SLOW: Duration = Duration::from_millis(200);

/// Decides whether a map may be exchanged, which takes long, or is emptied entry by entry.
#[derive(Debug, Default)]
struct ExchangePace {
    /// Since when records have waited at each exchange, and time spent in exchanges since.
    behind: Option<(Instant, Duration)>,
    /// Exchanges made it too late: there are none until no record waits.
    is_late: bool,
    /// When the last exchange ended, if it was slow, and its time.
    slow: Option<(Instant, Duration)>,
}

impl ExchangePace {
    /// Whether there is time for an exchange; `is_behind`: records wait.
    fn allows(&mut self, is_behind: bool, now: Instant) -> bool {
        // The reader must have time for records in between, most of it where they wait.
        let share = if is_behind { 9 } else { 1 };
        let rest = |(end, time): (Instant, Duration)| {
            now.saturating_duration_since(end) < time.saturating_mul(share)
        };
        if self.slow.is_some_and(rest) {
            return false;
        }
        if !is_behind {
            *self = ExchangePace { slow: self.slow, ..ExchangePace::default() };
            return true;
        }
        let (since, spent) = *self.behind.get_or_insert((now, Duration::ZERO));
        let late = now.saturating_duration_since(since);
        // Other records that wait do not count: exchanges take most of the time.
        self.is_late |= late > MOST_LATE && spent * 2 > late;
        !self.is_late
    }

    /// Takes note of the time that an exchange took, which ended `now`.
    fn exchanged(&mut self, time: Duration, now: Instant) {
        self.slow = (time > SLOW).then_some((now, time));
        if let Some((_, spent)) = &mut self.behind {
            *spent = spent.saturating_add(time);
        }
    }
}

/// Keys and values, those of all CPUs one after the other.
pub(crate) type MapEntries = Vec<(Vec<u8>, Vec<u8>)>;

impl Default for ProgramMaps {
    fn default() -> Self {
        ProgramMaps::Kernel(KernelMaps::default())
    }
}

impl KernelMaps {
    /// Status of `exit()`, if the program has called it.
    fn exit_status(&self) -> Option<i32> {
        let flag = self.maps.get(self.exit_flag?)?.lookup(&0u32.to_ne_bytes()).ok()??;
        let (called, status) = flag.split_first_chunk()?;
        let status = i32::from_ne_bytes(*status.first_chunk()?);
        (u32::from_ne_bytes(*called) != 0).then_some(status)
    }

    /// Waits for the programs that still run, if there are maps that are printed and emptied at one
    /// moment.
    fn settle(&mut self) -> io::Result<()> {
        let pairs = self.holders.iter().zip(&self.maps);
        let mut pairs = pairs.filter_map(|(holder, map)| Some((self.maps.get((*holder)?)?, map)));
        if let Some((holder, map)) = pairs.next() {
            holder.hold(map).map_err(|e| e.error)?;
        }
        self.is_quiet = true;
        Ok(())
    }

    /// Puts an empty map in the place of one that has a holder; gives the old one, which no
    /// program uses any more. None where that cannot be, or would make a reader that is behind
    /// later and later.
    fn exchange(&mut self, number: usize, is_behind: bool) -> io::Result<Option<BpfMap>> {
        let holder = self.holders.get(number).copied().flatten().filter(|_| !self.is_quiet);
        let Some(holder) = holder.and_then(|holder| self.maps.get(holder)) else {
            return Ok(None);
        };
        if self.exit_status().is_some() {
            // Programs that still run are waited for once; no other starts.
            self.settle()?;
            return Ok(None);
        }
        let Some(map) = self.maps.get(number) else { return Ok(None) };
        let start = Instant::now();
        if !self.pace.allows(is_behind, start) {
            self.hasty += 1;
            return Ok(None);
        }
        let new = map.create_alike()?;
        holder.hold(&new).map_err(|e| e.error)?;
        self.pace.exchanged(start.elapsed(), Instant::now());
        Ok(self.maps.get_mut(number).map(|map| std::mem::replace(map, new)))
    }

    /// Empties a map that no other map can stand in for, entry by entry.
    fn empty_entries(&self, number: usize, deletes: bool) -> io::Result<MapEntries> {
        let Some(map) = self.maps.get(number) else { return Ok(Vec::new()) };
        let entries = map.entries()?;
        let zero = vec![0u8; map.value_size()];
        entries.iter().try_for_each(|(key, _)| {
            if deletes { map.delete(key) } else { map.update(key, &zero) }
        })?;
        Ok(entries)
    }
}

impl ProgramMaps {
    /// Maps as they were created for a program.
    pub(crate) fn of_kernel(maps: Vec<BpfMap>, program: &CompiledProgram) -> ProgramMaps {
        let mut holders = vec![None; maps.len()];
        for (number, definition) in program.maps.iter().enumerate() {
            if let MapPurpose::Holder { map } = definition.purpose
                && let Some(holder) = holders.get_mut(map)
            {
                *holder = Some(number);
            }
        }
        let is_flag = |map: &MapDefinition| map.purpose == MapPurpose::ExitFlag;
        let exit_flag = program.maps.iter().position(is_flag);
        ProgramMaps::Kernel(KernelMaps { maps, holders, exit_flag, ..KernelMaps::default() })
    }

    /// All programs are detached: waits for those that still run, for the sake of maps that are
    /// printed and emptied at one moment. Emptying them is cheap then.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        match self {
            ProgramMaps::Kernel(kernel) => kernel.settle(),
            ProgramMaps::UserSpace(_) => Ok(()),
        }
    }

    /// Status of `exit()`, if a program in the kernel has called it.
    pub(crate) fn exit_status(&self) -> Option<i32> {
        match self {
            ProgramMaps::Kernel(kernel) => kernel.exit_status(),
            ProgramMaps::UserSpace(_) => None,
        }
    }

    pub(crate) fn entries(&self, map: usize) -> io::Result<MapEntries> {
        match self {
            ProgramMaps::Kernel(kernel) => {
                kernel.maps.get(map).map_or(Ok(Vec::new()), BpfMap::entries)
            }
            ProgramMaps::UserSpace(interpreter) => Ok(interpreter.entries(map)),
        }
    }

    pub(crate) fn lookup(&self, map: usize, key: &[u8]) -> Option<Vec<u8>> {
        match self {
            ProgramMaps::Kernel(kernel) => kernel.maps.get(map)?.lookup(key).ok()?,
            ProgramMaps::UserSpace(interpreter) => interpreter.lookup(map, key),
        }
    }

    /// Number of maps that were emptied entry by entry while programs wrote to them.
    pub(crate) fn hasty(&self) -> Option<u64> {
        match self {
            ProgramMaps::Kernel(kernel) => Some(kernel.hasty),
            ProgramMaps::UserSpace(_) => None,
        }
    }

    /// Takes all entries out of a map, at one moment: each event is counted in them or in what
    /// comes after. `is_behind`: records wait, for which that may be given up.
    pub(crate) fn take(
        &mut self,
        number: usize,
        deletes: bool,
        is_behind: bool,
    ) -> io::Result<MapEntries> {
        match self {
            ProgramMaps::Kernel(kernel) => match kernel.exchange(number, is_behind)? {
                Some(old) => old.entries(),
                None => kernel.empty_entries(number, deletes),
            },
            ProgramMaps::UserSpace(interpreter) => {
                let entries = interpreter.entries(number);
                let zero = vec![0u8; interpreter.value_size(number)];
                let done = entries.iter().all(|(key, _)| {
                    if deletes {
                        interpreter.delete(number, key)
                    } else {
                        interpreter.update(number, key, &zero)
                    }
                });
                done.then_some(entries).ok_or_else(|| io::ErrorKind::NotFound.into())
            }
        }
    }

    /// Puts keys back whose values were taken, with zeros; what came meanwhile stays.
    pub(crate) fn put_zeros(&mut self, number: usize, taken: &MapEntries) -> io::Result<()> {
        let ProgramMaps::Kernel(kernel) = self else { return Ok(()) };
        let Some(map) = kernel.maps.get(number) else { return Ok(()) };
        let zero = vec![0u8; map.value_size()];
        taken.iter().try_for_each(|(key, _)| map.insert(key, &zero))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time after which a record that is written in the second `asked` is handled, where each asks
    /// for an exchange, of which there are `a_second` and each takes `cost`.
    fn handled(asked: u64, a_second: u64, cost: Duration) -> Duration {
        let mut pace = ExchangePace::default();
        let begin = Instant::now();
        let mut now = begin;
        for n in 0..asked * a_second {
            let written = begin + Duration::from_secs(1) * n as u32 / a_second as u32;
            now = now.max(written);
            let next = written + Duration::from_secs(1) / a_second as u32;
            if pace.allows(now >= next, now) {
                now += cost;
                pace.exchanged(cost, now);
            } else {
                now += Duration::from_micros(20);
            }
        }
        now - begin
    }

    #[test]
    fn exchanges_do_not_make_a_reader_later_and_later() {
        let slow = Duration::from_millis(30);
        for a_second in [100, 1000, 3000] {
            for asked in [1, 5, 30] {
                let late =
                    handled(asked, a_second, slow).saturating_sub(Duration::from_secs(asked));
                assert!(late < MOST_LATE * 2, "{a_second} {asked}: {late:?}");
            }
        }
        // Where an exchange takes seconds, the reader has half of the time for other records.
        let (mut pace, begin) = (ExchangePace::default(), Instant::now());
        let (mut now, mut spent) = (begin, Duration::ZERO);
        let cost = Duration::from_secs(2);
        while now < begin + Duration::from_secs(40) {
            if pace.allows(false, now) {
                (now, spent) = (now + cost, spent + cost);
                pace.exchanged(cost, now);
            } else {
                now += Duration::from_millis(1);
            }
        }
        assert!(spent <= Duration::from_secs(22), "{spent:?}");
        // Where there is time, each map is exchanged.
        let time = handled(5, 20, slow);
        assert!(time < Duration::from_millis(5100), "{time:?}");
    }
}

//! The rings of a channel into a folder: a CTF trace for each program, a stream for
//! each area of its ring. Packets are copied as they are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use kymo_files::ctf::write::Folder;
use kymo_ring::{Clock, ClockFacts, ClockKind};

use super::channel::{Attached, Channel};
use super::error::UstError;
use super::metadata::metadata;
use super::program::{Program, ProgramId, RingFile};
use super::ring::{RingReader, Taken};

/// What was written, and what was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainStats {
    /// Programs with a trace.
    pub programs: u64,
    /// Packets written.
    pub packets: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Events that programs discarded because their rings were full.
    pub discarded: u64,
    /// Of these, those larger than a sub-buffer.
    pub too_large: u64,
    /// Packets that were overwritten before they were taken.
    pub overwritten: u64,
    /// Places in rings that did not hold what they should.
    pub damaged: u64,
    /// Events lost because a program could not make its ring.
    pub without_ring: u64,
}

impl DrainStats {
    /// Adds what a ring's reader has counted.
    pub fn count(&mut self, ring: &RingReader) {
        for area in ring.areas() {
            self.discarded += area.discarded;
            self.too_large += area.too_large;
            self.overwritten += area.overwritten_packets;
            self.damaged += area.damaged;
        }
    }
}

/// The folder that one channel is drained into.
#[derive(Debug)]
pub struct Drain {
    folder: PathBuf,
    session: String,
    traces: BTreeMap<(u32, ProgramId), Trace>,
    gone: DrainStats,
}

#[derive(Debug)]
struct Trace {
    ring: RingReader,
    attached: Attached,
    folder: Folder,
    streams: BTreeMap<u32, File>,
    clock: ClockFacts,
    without_ring: u64,
    packets: u64,
    bytes: u64,
}

impl Drain {
    /// Will make a folder for each program below this one.
    pub fn new(folder: impl Into<PathBuf>, session: impl Into<String>) -> Drain {
        Drain {
            folder: folder.into(),
            session: session.into(),
            traces: BTreeMap::new(),
            gone: DrainStats::default(),
        }
    }

    /// Where it writes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes the finished packets of a program.
    ///
    /// # Errors
    /// If its files are not what they should be, or the trace cannot be written.
    pub fn take(&mut self, channel: &Channel, program: &mut Program) -> Result<(), UstError> {
        self.pass(channel, program, false)
    }

    /// Takes all there is of a program.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_all(&mut self, channel: &Channel, program: &mut Program) -> Result<(), UstError> {
        self.pass(channel, program, true)
    }

    fn pass(
        &mut self,
        channel: &Channel,
        program: &mut Program,
        all: bool,
    ) -> Result<(), UstError> {
        let Some((attached, slot)) = channel.slot_of(program)? else { return Ok(()) };
        let key = (program.uid(), program.id().clone());
        let same = self.traces.get(&key).is_some_and(|t| t.attached == attached);
        if !same {
            self.finish(&key);
            let Some(ring) = RingReader::of(program, attached)? else {
                self.gone.without_ring = self.gone.without_ring.max(slot.lost);
                return Ok(());
            };
            let trace = Trace::new(&self.folder, program, attached, ring, &self.session)?;
            self.traces.insert(key.clone(), trace);
        }
        let Some(trace) = self.traces.get_mut(&key) else { return Ok(()) };
        trace.without_ring = slot.lost;
        if !program.is_alive()? {
            trace.ring.set_dead();
        }
        trace.pass(all)?;
        let more = program.refresh()?;
        if all {
            trace.measure_again();
        }
        if more || all {
            trace.describe(program, &self.session)?;
        }
        Ok(())
    }

    /// Takes all that is left in the rings of a dead program, and says of how many.
    /// `skip` is asked with the name of each ring's order, as far as it is known.
    ///
    /// # Errors
    /// If the trace cannot be written. Rings that are none are counted as damaged.
    pub fn recover(
        &mut self,
        program: &Program,
        skip: impl Fn(&str) -> bool,
    ) -> Result<u64, UstError> {
        let mut recovered = 0;
        for RingFile { attached, name, order } in program.rings()? {
            if skip(&order) {
                continue;
            }
            let ring = match RingReader::open(program, &name) {
                Ok(Some(ring)) => ring,
                // It was killed while it made the ring: nothing was in it yet.
                Ok(None) => continue,
                Err(UstError::Ring { .. }) => {
                    self.gone.damaged += 1;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let session = order.rsplit_once('.').map_or(&*order, |(session, _)| session);
            let mut trace = Trace::new(&self.folder, program, attached, ring, session)?;
            trace.pass(true)?;
            trace.measure_again();
            trace.describe(program, session)?;
            trace.count(&mut self.gone);
            recovered += 1;
        }
        Ok(recovered)
    }

    /// Forgets a program that will write no more; what it was counts on.
    fn finish(&mut self, key: &(u32, ProgramId)) {
        if let Some(trace) = self.traces.remove(key) {
            trace.count(&mut self.gone);
        }
    }

    /// What was written, and what was not.
    pub fn stats(&self) -> DrainStats {
        let mut stats = self.gone;
        for trace in self.traces.values() {
            trace.count(&mut stats);
        }
        stats
    }
}

impl Trace {
    fn new(
        top: &Path,
        program: &Program,
        attached: Attached,
        ring: RingReader,
        session: &str,
    ) -> Result<Trace, UstError> {
        let clock = ring.config().clock;
        let name = format!("{}-{}", plain(&program.comm()), program.id());
        let mut path = top.join("ust").join(format!("uid-{}", program.uid())).join(&name);
        // The same program with another ring is another trace.
        for again in 1..=u32::from(u8::MAX) {
            if !path.join("metadata").exists() {
                break;
            }
            path.set_file_name(format!("{name}.{again}"));
        }
        let words = metadata(program, ring.config(), &clock, session);
        let folder =
            Folder::create(&path, &words).map_err(|error| UstError::Write { path, error })?;
        let streams = BTreeMap::new();
        Ok(Trace { ring, attached, folder, streams, clock, without_ring: 0, packets: 0, bytes: 0 })
    }

    fn pass(&mut self, all: bool) -> Result<(), UstError> {
        let Trace { ring, folder, streams, packets, bytes, .. } = self;
        let mut sink = |taken: Taken<'_>| {
            let path = || folder.path().join(stream_name(taken.area));
            let failed = |error| UstError::Write { path: path(), error };
            let file = match streams.entry(taken.area) {
                std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
                std::collections::btree_map::Entry::Vacant(e) => {
                    e.insert(folder.stream(&stream_name(taken.area)).map_err(failed)?)
                }
            };
            file.write_all(taken.packet).map_err(failed)?;
            *packets += 1;
            *bytes += taken.packet.len() as u64;
            Ok(())
        };
        if all { ring.take_all(&mut sink) } else { ring.take(&mut sink) }
    }

    /// The program measured the pace of its ticks over two milliseconds; since then more
    /// time has passed. A pace that is quite another is that of another clock (a time
    /// namespace), and is not taken.
    fn measure_again(&mut self) {
        let Some(earlier) = Some(self.clock).filter(|c| c.kind == ClockKind::Tsc) else { return };
        let now = Clock::Tsc.facts(Some((earlier.ticks, earlier.monotonic)));
        if now.frequency.abs_diff(earlier.frequency) < earlier.frequency / 1000 {
            self.clock.frequency = now.frequency;
        }
    }

    /// Writes the metadata again: there are more events, or more is known of the clock.
    fn describe(&mut self, program: &Program, session: &str) -> Result<(), UstError> {
        let text = metadata(program, self.ring.config(), &self.clock, session).to_tsdl();
        let path = self.folder.path().join("metadata");
        let new = self.folder.path().join(".metadata");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| UstError::Write { path, error })
    }

    fn count(&self, stats: &mut DrainStats) {
        stats.programs += 1;
        stats.packets += self.packets;
        stats.bytes += self.bytes;
        stats.without_ring += self.without_ring;
        stats.count(&self.ring);
    }
}

fn stream_name(area: u32) -> String {
    format!("stream_{area}")
}

/// A name that is a file's.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    if name.is_empty() || name.starts_with('.') { format!("program{name}") } else { name }
}

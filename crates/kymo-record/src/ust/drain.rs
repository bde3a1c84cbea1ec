//! The rings of a channel into a directory: a CTF trace for each program, a stream for
//! each area of its ring. Packets are copied as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kymo_files::ctf::types::{CtfVersion, Metadata};
use kymo_files::ctf::write::Directory;
use kymo_files::ctf::{Anchor, UNFINISHED};
use kymo_ring::{ClockFacts, Config, LayoutError};
use kymo_ust::SlotAnswer;

use super::channel::{Channel, DEFAULT_CHANNEL};
use super::clock::Counter;
use super::code_maps::CodeMaps;
use super::error::UstError;
use super::metadata::metadata;
use super::program::{Program, ProgramId, RingFile};
use super::ring::{Out, RingReader};
use super::ringless::RinglessPrograms;
use super::slots::Attached;
use super::stream::Stream;
use super::unreadable::UnreadablePrograms;

/// Counts of written and lost events.
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
    /// Discarded events that were larger than a sub-buffer.
    pub too_large: u64,
    /// Discarded events for which the shared directory had no memory.
    pub without_memory: u64,
    /// Packets that were overwritten before they were taken.
    pub overwritten: u64,
    /// Events in these, as far as that is known.
    pub overwritten_events: u64,
    /// Places in rings that did not hold what they should.
    pub damaged: u64,
    /// Events lost because a program could not make its ring.
    pub without_ring: u64,
    /// Events without memory of programs at their address space limit.
    pub without_address_space: u64,
    /// Programs whose files other processes have cut short: what was in their rings, and what came
    /// since, is lost, and its number is not known.
    pub cut: u64,
}

impl DrainStats {
    /// Adds what a ring's reader has counted.
    pub fn count(&mut self, ring: &RingReader) {
        for area in ring.areas() {
            // The program says these numbers: they add up to no small one.
            let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
            add(&mut self.discarded, area.discarded);
            add(&mut self.too_large, area.too_large);
            add(&mut self.without_memory, if area.without_memory { area.discarded } else { 0 });
            add(&mut self.overwritten, area.overwritten_packets);
            add(&mut self.overwritten_events, area.overwritten_events);
            add(&mut self.damaged, area.damaged);
        }
    }
}

/// Checks a directory that is to become a trace: it is not there, or empty.
///
/// # Errors
/// If there is something in it, or it cannot be looked at.
pub fn check_new_directory(directory: &Path) -> Result<(), UstError> {
    let path = directory.to_owned();
    let mut entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(UstError::Directory { path, error }),
    };
    match entries.next() {
        Some(_) => Err(UstError::NotEmpty { path }),
        None => Ok(()),
    }
}

/// Whether what is taken stays to be taken again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// It is taken once.
    No,
    /// It stays.
    Yes,
}

/// The directory that one channel is drained into.
#[derive(Debug)]
pub struct Drain {
    directory: PathBuf,
    session: String,
    version: CtfVersion,
    /// Begun with the first program.
    counter: Option<Counter>,
    traces: BTreeMap<(u32, ProgramId), Trace>,
    gone: DrainStats,
    ringless: RinglessPrograms,
    /// The programs of traces that are finished.
    gone_programs: BTreeSet<(u32, ProgramId)>,
    unreadable: UnreadablePrograms,
}

/// The trace of one ring; its directory is made with its first packet.
#[derive(Debug)]
struct Trace {
    ring: RingReader,
    attached: Attached,
    path: PathBuf,
    session: String,
    version: CtfVersion,
    directory: Option<Directory>,
    /// The metadata in it.
    words: Option<Metadata>,
    streams: BTreeMap<u32, Stream>,
    /// Facts about the clock, with its readings next to the kernel's clock.
    clock: (ClockFacts, Vec<Anchor>),
    code: CodeMaps,
    packets: u64,
    bytes: u64,
}

impl Drain {
    /// Will make a directory for each program below this one.
    pub fn new(directory: impl Into<PathBuf>, session: impl Into<String>) -> Drain {
        Drain {
            directory: directory.into(),
            session: session.into(),
            version: CtfVersion::V1_8,
            counter: None,
            traces: BTreeMap::new(),
            gone: DrainStats::default(),
            ringless: RinglessPrograms::default(),
            gone_programs: BTreeSet::new(),
            unreadable: UnreadablePrograms::default(),
        }
    }

    /// Writes traces in this version of CTF.
    pub fn with_version(self, version: CtfVersion) -> Drain {
        Drain { version, ..self }
    }

    /// Returns the directory below which it writes.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Takes the finished packets of a program.
    ///
    /// # Errors
    /// If the trace cannot be written. A program whose files are not what they should be is
    /// passed over from then on.
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
        if self.unreadable.has(program) {
            return Ok(());
        }
        let read = self.pass_readable(channel, program, all);
        self.unreadable.sort_out(program, read)
    }

    fn pass_readable(
        &mut self,
        channel: &Channel,
        program: &mut Program,
        all: bool,
    ) -> Result<(), UstError> {
        let Some((attached, slot)) = channel.slot_of(program)? else { return Ok(()) };
        if slot.answer_in_force() == Some(SlotAnswer::Cut) {
            return Err(UstError::Cut);
        }
        let key = (program.uid(), program.id().clone());
        let same = self.traces.get(&key).is_some_and(|t| t.attached == attached);
        self.look();
        if !same {
            self.finish(&key)?;
            let Some(ring) = RingReader::of_slot(program, (attached, &slot))? else {
                self.ringless.note(&key, &slot);
                return Ok(());
            };
            let config = channel.name().to_string_lossy();
            let new = Trace::new(&self.directory, program, attached, ring, &config, &self.session);
            let trace = new.with(self.counter.as_ref(), false).in_version(self.version);
            self.traces.insert(key.clone(), trace);
        }
        let (Some(trace), Some(counter)) = (self.traces.get_mut(&key), &self.counter) else {
            return Ok(());
        };
        self.ringless.note(&key, &slot);
        if !program.is_alive()? {
            trace.ring.set_dead();
        }
        trace.pass(program, all)?;
        // While it lives: what it has mapped is gone with it.
        trace.code.look_at_times(program);
        let more = program.refresh()?;
        if more || all {
            trace.clock = counter.of(trace.ring.config().clock, false);
            trace.describe(program)?;
        }
        Ok(())
    }

    /// Takes all that is in the rings of a program's channel, those of earlier generations
    /// included. Says of how many rings.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_rings(&mut self, channel: &Channel, program: &Program) -> Result<u64, UstError> {
        let Some((attached, slot)) = channel.slot_of(program)? else { return Ok(0) };
        let mut rings = program.rings()?;
        rings.retain(|r| r.attached.slot == attached.slot);
        // Turns count up and begin again; the longest ago is the oldest.
        rings.sort_by_key(|r| {
            std::cmp::Reverse(attached.generation.wrapping_sub(r.attached.generation))
        });
        let (session, config) = (self.session.clone(), channel.name().to_string_lossy());
        let mut taken = 0;
        for ring in rings {
            taken += u64::from(self.whole(program, &ring, &config, &session, Peek::No)?);
        }
        self.gone.without_ring = self.gone.without_ring.saturating_add(slot.lost);
        if slot.answer_in_force() == Some(SlotAnswer::Cut) {
            self.unreadable.sort_out(program, Err(UstError::Cut))?;
        }
        Ok(taken)
    }

    /// Takes all that is left in the rings of a dead program, and says of how many.
    /// `skip` is asked with the name of each ring's order, as far as it is known.
    ///
    /// # Errors
    /// If the trace cannot be written. Rings that are none are counted as damaged.
    pub fn recover(
        &mut self,
        program: &Program,
        peek: Peek,
        skip: impl Fn(&str) -> bool,
    ) -> Result<u64, UstError> {
        let mut recovered = 0;
        for ring in program.rings()? {
            if skip(&ring.config) {
                continue;
            }
            let session =
                ring.config.rsplit_once('.').map_or(&*ring.config, |(session, _)| session);
            recovered += u64::from(self.whole(program, &ring, &ring.config, session, peek)?);
        }
        Ok(recovered)
    }

    /// Takes all that is in a ring. Says whether it is one.
    fn whole(
        &mut self,
        program: &Program,
        ring: &RingFile,
        config: &str,
        session: &str,
        peek: Peek,
    ) -> Result<bool, UstError> {
        let mut reader = match RingReader::open(program, &ring.name) {
            Ok(Some(reader)) => reader,
            // It was killed while it made the ring: nothing was in it yet.
            Ok(None) => return Ok(false),
            Err(e @ UstError::Ring { error: LayoutError::Short { .. }, .. }) => {
                return self.unreadable.sort_out(program, Err(e)).map(|()| false);
            }
            Err(UstError::Ring { .. }) => {
                self.gone.damaged += 1;
                return Ok(false);
            }
            Err(e) => return Err(e),
        };
        if peek == Peek::Yes {
            reader.set_peeking();
        }
        self.look();
        let trace = Trace::new(&self.directory, program, ring.attached, reader, config, session);
        let trace = trace.with(self.counter.as_ref(), !program.is_alive()?);
        let mut trace = trace.in_version(self.version);
        let taken = trace.pass(program, true);
        let described = trace.describe(program).and_then(|()| trace.seal());
        self.count((program.uid(), program.id().clone()), &trace);
        taken.and(described).map(|()| true)
    }

    /// Reads the clocks; the first time that takes two milliseconds.
    fn look(&mut self) {
        self.counter.get_or_insert_with(Counter::start).look();
    }

    /// Forgets a program that will write no more; what it was counts on.
    fn finish(&mut self, key: &(u32, ProgramId)) -> Result<(), UstError> {
        let Some(mut trace) = self.traces.remove(key) else { return Ok(()) };
        self.count(key.clone(), &trace);
        trace.seal()
    }

    /// Marks all traces as finished: nothing more is written.
    ///
    /// # Errors
    /// If the metadata of one cannot be written.
    pub fn seal(&mut self) -> Result<(), UstError> {
        self.traces.values_mut().try_for_each(Trace::seal)
    }

    fn count(&mut self, key: (u32, ProgramId), trace: &Trace) {
        trace.count(&mut self.gone);
        if trace.packets > 0 {
            self.gone_programs.insert(key);
        }
    }

    /// Returns the counts of written and lost events.
    pub fn stats(&self) -> DrainStats {
        let mut stats = self.gone;
        self.ringless.add_to(&mut stats);
        let mut programs = self.gone_programs.len();
        for (key, trace) in &self.traces {
            trace.count(&mut stats);
            programs += usize::from(trace.packets > 0 && !self.gone_programs.contains(key));
        }
        stats.programs = programs as u64;
        stats.cut = self.unreadable.cut();
        stats
    }

    /// Programs that were ignored, with the reason.
    pub fn passed_over(&self) -> &[String] {
        self.unreadable.notes().as_slice()
    }
}

impl Trace {
    fn new(
        top: &Path,
        program: &Program,
        attached: Attached,
        mut ring: RingReader,
        config: &str,
        session: &str,
    ) -> Trace {
        let clock = ring.config().clock;
        // Another user's copy of an order is that order.
        let config = config.split_once('@').map_or(config, |(config, _)| config);
        ring.set_channel(config);
        let channel = config.rsplit_once('.').map_or("", |(_, channel)| channel);
        let mut name = format!("{}-{}", plain(&program.comm()), program.id());
        if !channel.is_empty() && channel != DEFAULT_CHANNEL {
            name = format!("{name}.{}", plain(channel));
        }
        let path = top.join("ust").join(format!("uid-{}", program.uid())).join(&name);
        Trace {
            ring,
            attached,
            path,
            session: session.to_owned(),
            version: CtfVersion::V1_8,
            directory: None,
            words: None,
            streams: BTreeMap::new(),
            clock: (clock, Vec::new()),
            code: CodeMaps::default(),
            packets: 0,
            bytes: 0,
        }
    }

    fn pass(&mut self, program: &Program, all: bool) -> Result<(), UstError> {
        let Trace {
            ring,
            path,
            session,
            version,
            directory,
            words,
            streams,
            clock,
            packets,
            bytes,
            ..
        } = self;
        let (config, uuid) = (*ring.config(), ring.uuid());
        let mut sink = |out: Out<'_>| {
            let directory = match directory {
                Some(directory) => directory,
                None => {
                    *path = free(path);
                    let first =
                        metadata(program, &facts(&config, uuid), clock, (session, *version));
                    let made = Directory::create(path.clone(), &first)
                        .map_err(|error| UstError::Write { path: path.clone(), error })?;
                    *words = Some(first);
                    directory.insert(made)
                }
            };
            let area = match &out {
                Out::Packet(taken) => taken.area,
                Out::CompletePackets(whole) => whole.area,
            };
            let path = || directory.path().join(stream_name(area));
            let failed = |error| UstError::Write { path: path(), error };
            let stream = match streams.entry(area) {
                std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
                std::collections::btree_map::Entry::Vacant(e) => {
                    let file = directory.stream(&stream_name(area)).map_err(failed)?;
                    e.insert(Stream::new(file, &path()))
                }
            };
            let (more, long) = match out {
                Out::Packet(taken) => {
                    stream.packet(taken.packet).map_err(failed)?;
                    (1, taken.packet.len() as u64)
                }
                Out::CompletePackets(whole) => {
                    stream.whole(&whole).map_err(failed)?;
                    (whole.packets, whole.bytes)
                }
            };
            (*packets, *bytes) = (*packets + more, *bytes + long);
            Ok(())
        };
        ring.take_out(all, &mut sink)
    }

    /// Knows what the tool has read of the clocks. `gone`: the program may have run before
    /// the machine was started anew.
    fn with(mut self, counter: Option<&Counter>, gone: bool) -> Trace {
        if let Some(counter) = counter {
            self.clock = counter.of(self.ring.config().clock, gone);
        }
        self
    }

    fn in_version(self, version: CtfVersion) -> Trace {
        Trace { version, ..self }
    }

    /// Writes the metadata again: there are more events, or more is known of the clock.
    fn describe(&mut self, program: &Program) -> Result<(), UstError> {
        if self.directory.is_none() {
            return Ok(());
        }
        self.code.look(program);
        let facts = facts(self.ring.config(), self.ring.uuid());
        let mut words = metadata(program, &facts, &self.clock, (&self.session, self.version));
        words.mappings = self.code.mappings();
        self.words = Some(words);
        self.write_words()
    }

    /// Marks the trace as finished.
    fn seal(&mut self) -> Result<(), UstError> {
        let Some(words) = &mut self.words else { return Ok(()) };
        words.env.retain(|(name, _)| name != UNFINISHED);
        self.write_words()
    }

    fn write_words(&self) -> Result<(), UstError> {
        let (Some(directory), Some(words)) = (&self.directory, &self.words) else { return Ok(()) };
        let text = words.to_text();
        let path = directory.path().join("metadata");
        let new = directory.path().join(".metadata");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| UstError::Write { path, error })
    }

    fn count(&self, stats: &mut DrainStats) {
        stats.packets += self.packets;
        stats.bytes += self.bytes;
        stats.count(&self.ring);
    }
}

/// Returns the configuration of a ring with the UUID of its trace.
fn facts(config: &Config, uuid: [u8; 16]) -> Config {
    Config { uuid, ..*config }
}

/// Returns a path that no trace has: with another ring the program gets another trace.
fn free(path: &Path) -> PathBuf {
    let again = |n: u32| match n {
        0 => path.to_owned(),
        n => {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{n}"));
            name.into()
        }
    };
    (0..).map(again).find(|p| !p.join("metadata").exists()).unwrap_or_else(|| path.to_owned())
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

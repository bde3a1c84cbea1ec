//! The rings of programs for those who watch: what is written of them is read as packets that
//! readers of files know, each event with its time on the kernel's clock.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kymo_files::ctf::CodeMapping;
use kymo_files::ctf::read::{Ctf, PacketEvent, PacketReader};
use kymo_files::ctf::types::CtfVersion;
use kymo_ust::SlotAnswer;

use super::channel::Channel;
use super::clock::Counter;
use super::code_maps::CodeMaps;
use super::drain::DrainStats;
use super::error::UstError;
use super::metadata::metadata;
use super::program::{Program, ProgramId};
use super::ring::RingReader;
use super::ringless::RinglessPrograms;
use super::slots::Attached;
use super::unreadable::UnreadablePrograms;

/// News of a program; programs are numbered.
pub enum ProgramNews<'n> {
    /// Current description of its events. Numbers of classes are stable.
    Trace(Arc<Ctf>),
    /// The code that it has mapped now, and its root directory if that is another than here.
    Mappings {
        /// Its process.
        pid: u32,
        /// Its root directory.
        root: Option<&'n Path>,
        /// The mappings.
        mappings: Vec<CodeMapping>,
    },
    /// An event.
    Event {
        /// `CLOCK_MONOTONIC`, nanoseconds.
        time: u64,
        /// Its class and bytes.
        event: &'n PacketEvent<'n>,
    },
}

/// The rings of programs, read while they are written.
pub struct LivePrograms {
    rings: BTreeMap<(u32, ProgramId), LiveRing>,
    numbers: u32,
    horizon: u64,
    counter: Counter,
    undecodable: u64,
    ringless: RinglessPrograms,
    unreadable: UnreadablePrograms,
}

struct LiveRing {
    number: u32,
    ring: RingReader,
    attached: Attached,
    packets: PacketReader,
    trace: Arc<Ctf>,
    code: CodeMaps,
}

impl LiveRing {
    fn news_of_code(&self, program: &Program) -> ProgramNews<'_> {
        let (pid, root) = (program.id().pid, self.code.root());
        ProgramNews::Mappings { pid, root, mappings: self.code.mappings() }
    }
}

impl Default for LivePrograms {
    fn default() -> Self {
        LivePrograms {
            rings: BTreeMap::new(),
            numbers: 0,
            horizon: 0,
            counter: Counter::start(),
            undecodable: 0,
            ringless: RinglessPrograms::default(),
            unreadable: UnreadablePrograms::default(),
        }
    }
}

impl LivePrograms {
    /// Starts a round, at whose end all events before now have been read.
    pub fn begin_round(&mut self) {
        self.counter.look();
        self.horizon = kymo_kernel::clock::monotonic_ns();
    }

    /// Start of the round.
    pub fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Largest error of the programs' times, in nanoseconds.
    pub fn error(&self) -> u64 {
        self.counter.error()
    }

    /// Reads what a program has written since. Events of one CPU come by time. A program whose
    /// files are not what they should be is passed over from then on.
    ///
    /// # Errors
    /// If there is no reading of any.
    pub fn take(
        &mut self,
        channel: &Channel,
        program: &mut Program,
        sink: &mut dyn FnMut(u32, ProgramNews<'_>),
    ) -> Result<(), UstError> {
        if self.unreadable.has(program) {
            return Ok(());
        }
        let read = self.take_readable(channel, program, sink);
        self.unreadable.sort_out(program, read)
    }

    fn take_readable(
        &mut self,
        channel: &Channel,
        program: &mut Program,
        sink: &mut dyn FnMut(u32, ProgramNews<'_>),
    ) -> Result<(), UstError> {
        let Some((attached, slot)) = channel.slot_of(program)? else { return Ok(()) };
        let key = (program.uid(), program.id().clone());
        self.ringless.note(&key, &slot);
        if slot.answer_in_force() == Some(SlotAnswer::Cut) {
            return Err(UstError::Cut);
        }
        if self.rings.get(&key).is_none_or(|r| r.attached != attached) {
            let Some(ring) = RingReader::of_slot(program, (attached, &slot))? else {
                return Ok(());
            };
            let live = self.attach(program, ring, attached)?;
            sink(live.number, ProgramNews::Trace(Arc::clone(&live.trace)));
            sink(live.number, live.news_of_code(program));
            self.rings.insert(key.clone(), live);
        }
        let Some(live) = self.rings.get_mut(&key) else { return Ok(()) };
        if program.refresh()? {
            live.trace = Arc::new(live_trace(program, &live.ring)?);
            sink(live.number, ProgramNews::Trace(Arc::clone(&live.trace)));
        }
        if !program.is_alive()? {
            live.ring.set_dead();
        }
        let (counter, clock) = (&self.counter, live.ring.config().clock);
        let undecodable = &mut self.undecodable;
        let LiveRing { number, ring, packets, trace, code, .. } = live;
        let mut looked = false;
        ring.take_all(&mut |taken| {
            // The program may have loaded or unloaded a library since the last round.
            if !std::mem::replace(&mut looked, true) && code.look(program) {
                let (pid, root, mappings) = (program.id().pid, code.root(), code.mappings());
                sink(*number, ProgramNews::Mappings { pid, root, mappings });
            }
            let whole = packets.for_each(trace, taken.packet, |event| {
                let time = counter.monotonic(&clock, event.ticks);
                sink(*number, ProgramNews::Event { time, event: &event });
            });
            *undecodable += u64::from(!whole);
            Ok::<(), UstError>(())
        })
    }

    fn attach(
        &mut self,
        program: &Program,
        ring: RingReader,
        attached: Attached,
    ) -> Result<LiveRing, UstError> {
        let mut code = CodeMaps::default();
        code.look(program);
        let trace = Arc::new(live_trace(program, &ring)?);
        let number = self.numbers;
        self.numbers += 1;
        Ok(LiveRing { number, ring, attached, packets: PacketReader::default(), trace, code })
    }

    /// Programs that were ignored, with the reason.
    pub fn passed_over(&self) -> &[String] {
        self.unreadable.notes().as_slice()
    }

    /// Returns the counts of read and lost events.
    pub fn stats(&self) -> DrainStats {
        let mut stats = DrainStats {
            programs: self.rings.len() as u64,
            damaged: self.undecodable,
            cut: self.unreadable.cut(),
            ..DrainStats::default()
        };
        self.ringless.add_to(&mut stats);
        self.rings.values().for_each(|r| stats.count(&r.ring));
        stats
    }
}

/// Returns the trace description that a reader needs for a program's packets, as far as the program
/// has written it: the one that [`Drain`](super::Drain) writes into a trace's metadata.
fn live_trace(program: &Program, ring: &RingReader) -> Result<Ctf, UstError> {
    let config = kymo_ring::Config { uuid: ring.uuid(), ..*ring.config() };
    let clock = (config.clock, Vec::new());
    let words = metadata(program, &config, &clock, ("", CtfVersion::V1_8));
    Ctf::in_memory(&program.comm(), words).map_err(|e| UstError::Events(e.to_string()))
}

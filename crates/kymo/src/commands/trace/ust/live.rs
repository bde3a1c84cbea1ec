//! Events of programs as they happen: what a round saw is put in order by time, and
//! what is younger than the round waits for the next.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::path::Path;

use kymo_files::ctf::read::PacketReader;
use kymo_record::ust::{
    Attached, Channel, CodeMaps, Counter, DrainStats, Program, ProgramId, RingReader, UstError,
    live_trace, monotonic_now,
};
use kymo_render::program_event::CodeNames;

use super::super::Args;
use super::RoundResult;
use super::text::{EventOrigin, LineStyle, ProgramEvents};

/// The programs, what is to be shown, and how.
pub(in crate::commands::trace) struct Live {
    programs: BTreeMap<(u32, ProgramId), Source>,
    waiting: Vec<(u64, Vec<u8>)>,
    style: LineStyle,
    left: Option<u64>,
    horizon: u64,
    counter: Counter,
    undecodable: u64,
    lost_without_ring: BTreeMap<(u32, ProgramId), u64>,
}

struct Source {
    ring: RingReader,
    attached: Attached,
    packets: PacketReader,
    events: ProgramEvents,
    code: CodeMaps,
}

impl Source {
    fn new(program: &Program, ring: RingReader, attached: Attached) -> Result<Source, UstError> {
        let mut code = CodeMaps::default();
        code.look(program);
        let mut names = CodeNames::running(program.id().pid, code.root().map(Path::to_owned));
        names.set_mappings(code.mappings());
        let events = ProgramEvents::new(live_trace(program, &ring)?, names);
        Ok(Source { ring, attached, packets: PacketReader::default(), events, code })
    }
}

impl Live {
    /// `flags`: how many letters stand between CPU and time, beside events of the kernel.
    pub(in crate::commands::trace) fn new(args: &Args, flags: usize) -> Live {
        let colour = stdout().is_terminal()
            && anstream::AutoStream::choice(&stdout()) != anstream::ColorChoice::Never;
        Live {
            programs: BTreeMap::new(),
            waiting: Vec::new(),
            style: LineStyle { json: args.json, colour, flags },
            left: args.count,
            horizon: 0,
            counter: Counter::start(),
            undecodable: 0,
            lost_without_ring: BTreeMap::new(),
        }
    }

    /// What happened before now will have been seen when the round is over.
    pub(in crate::commands::trace) fn begin_round(&mut self) {
        self.counter.look();
        self.horizon = monotonic_now();
    }

    /// `names`: what the kernel calls tasks, beside its events.
    pub(in crate::commands::trace) fn take(
        &mut self,
        channel: &Channel,
        program: &mut Program,
        names: Names<'_>,
    ) -> RoundResult {
        let Some((attached, slot)) = channel.slot_of(program)? else { return Ok(()) };
        let key = (program.uid(), program.id().clone());
        if slot.lost > 0 {
            self.lost_without_ring.insert(key.clone(), slot.lost);
        }
        if self.programs.get(&key).is_none_or(|s| s.attached != attached) {
            let Some(ring) = RingReader::of(program, attached)? else { return Ok(()) };
            let source = Source::new(program, ring, attached)?;
            self.programs.insert(key.clone(), source);
        }
        let Some(source) = self.programs.get_mut(&key) else { return Ok(()) };
        if program.refresh()? {
            source.events.set_trace(live_trace(program, &source.ring)?);
        }
        if !program.is_alive()? {
            source.ring.set_dead();
        }
        let (style, waiting, undecodable) = (&self.style, &mut self.waiting, &mut self.undecodable);
        let comm = program.comm();
        let process = (program.id().pid, &*comm);
        let thread = |tid| thread(names, process, tid);
        let (counter, clock) = (&self.counter, source.ring.config().clock);
        let Source { ring, packets, events, code, .. } = source;
        let mut looked = false;
        ring.take_all(&mut |taken| {
            // The program may have loaded or unloaded a library since the last round.
            if !std::mem::replace(&mut looked, true) && code.look(program) {
                events.code.set_mappings(code.mappings());
            }
            let whole = events.for_each_in(packets, taken.packet, |events, reader, event| {
                let time = counter.monotonic(&clock, event.ticks);
                let mut line = Vec::with_capacity(128);
                let origin = EventOrigin { process, thread: &thread, time };
                events.write(style, reader, event, origin, &mut line);
                waiting.push((time, line));
            });
            *undecodable += u64::from(!whole);
            Ok::<(), UstError>(())
        })
    }

    /// A line of somebody else's.
    pub(in crate::commands::trace) fn put(&mut self, time: u64, line: Vec<u8>) {
        self.waiting.push((time, line));
    }

    /// When the round began.
    pub(in crate::commands::trace) fn horizon(&self) -> u64 {
        self.horizon
    }

    /// What times of programs were wrong by at most, in nanoseconds.
    pub(in crate::commands::trace) fn error(&self) -> u64 {
        self.counter.error()
    }

    /// Shows what happened before `until`; true if nothing more is to be shown.
    pub(in crate::commands::trace) fn end_round(&mut self, until: u64) -> anyhow::Result<bool> {
        self.waiting.sort_by_key(|(time, _)| *time);
        let ready = self.waiting.partition_point(|(time, _)| *time < until);
        let show =
            self.left.map_or(ready, |left| ready.min(usize::try_from(left).unwrap_or(ready)));
        let mut out = Vec::new();
        for (_, line) in self.waiting.drain(..ready).take(show) {
            out.extend_from_slice(&line);
        }
        self.left = self.left.map(|left| left - show as u64);
        let mut stdout = stdout().lock();
        stdout.write_all(&out).and_then(|()| stdout.flush())?;
        Ok(self.left == Some(0))
    }

    pub(in crate::commands::trace) fn stats(&self) -> DrainStats {
        let mut stats = DrainStats {
            programs: self.programs.len() as u64,
            damaged: self.undecodable,
            without_ring: self.lost_without_ring.values().sum(),
            ..DrainStats::default()
        };
        self.programs.values().for_each(|p| stats.count(&p.ring));
        stats
    }
}

/// What the kernel calls a task.
pub(in crate::commands::trace) type Names<'n> = &'n dyn Fn(i32) -> Option<&'n str>;

/// What a thread of a program is called. The numbers of another pid namespace are others'
/// here: the process must have its name.
fn thread<'n>(names: Names<'n>, (pid, comm): (u32, &str), tid: i32) -> Option<&'n str> {
    let process = names(i32::try_from(pid).ok()?)?;
    if process == comm { names(tid) } else { None }
}

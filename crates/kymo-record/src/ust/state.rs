//! State of the program part of a session: its channels, the programs that record for it, and what
//! they have written.

use kymo_ust::{ChannelConfigView, Pids, SLOTS, Slot, SlotAnswer, SlotState};

use super::channel::Channel;
use super::error::{Notes, UstError};
use super::program::Program;
use super::ring::{RingCounts, RingReader};
use super::session::{ProgramSession, SessionDirectory, all, places};
use super::slots::UnfitEvent;

/// State of the program part of a session.
#[derive(Clone, Debug)]
pub struct ProgramsState {
    /// Programs record for it.
    pub started: bool,
    /// Time of creation or of the last change of its first channel configuration, in seconds since
    /// 1970.
    pub made: Option<u64>,
    /// Its channels.
    pub channels: Vec<ChannelState>,
    /// The programs with such events, those that ended included as long as they have
    /// left events: one entry for each channel.
    pub programs: Vec<ProgramState>,
    /// Notes on ignored input, with the reason.
    pub notes: Notes,
}

/// A channel.
#[derive(Clone, Debug)]
pub struct ChannelState {
    /// Its name.
    pub name: String,
    /// Overwrite the oldest events instead of discarding new ones.
    pub overwrite: bool,
    /// Room for each CPU of each program, in bytes.
    pub room: u64,
    /// Only for these processes and their descendants; zeroes alone: for all.
    pub pids: Pids,
    /// Selection of events; the first matching rule decides.
    pub rules: Vec<RuleState>,
}

/// A rule of a channel.
#[derive(Clone, Debug)]
pub struct RuleState {
    /// Pattern of `provider:name`.
    pub pattern: String,
    /// Events of a higher level do not match.
    pub max_level: u8,
    /// Whether matching events are disabled.
    pub exclude: bool,
    /// The filter as text.
    pub filter: Option<String>,
}

/// State of a program with respect to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Its events are on and it has a ring.
    Recording,
    /// Its events are on, and none has happened.
    Waiting,
    /// Its events are off.
    Stopped,
    /// It has ended; what it left can be taken.
    Ended,
    /// It could not make its ring: the error number, 0 for a malformed order.
    Failed(u32),
    /// Another process has cut its ring's file short: what it writes is lost.
    Cut,
    /// All its slots are taken.
    NoSlot,
    /// It was not there when the session was started.
    Missed,
}

/// A program and a channel.
#[derive(Clone, Debug)]
pub struct ProgramState {
    /// The channel.
    pub channel: String,
    /// Its process, as its own pid namespace has it.
    pub pid: u32,
    /// Its user, as it knows it.
    pub uid: u32,
    /// Its name.
    pub comm: String,
    /// State of the program.
    pub doing: Doing,
    /// Number of its events that the channel selects.
    pub events: usize,
    /// Counters of its rings.
    pub counts: RingCounts,
    /// Events that filters rejected, roughly.
    pub rejected: u64,
    /// Events lost because there is no ring.
    pub lost: u64,
    /// Events whose filter does not fit them.
    pub unfit: Vec<UnfitEvent>,
}

impl ProgramSession {
    /// Returns the current state. Nothing is taken or changed.
    ///
    /// # Errors
    /// If its channel configurations cannot be read.
    pub fn state(&self) -> Result<ProgramsState, UstError> {
        let started = self.is_started()?;
        let (places, mut notes) = places();
        let mut programs = Vec::new();
        for place in &places {
            for program in all(&place.user, &mut notes) {
                let of = |c: &Channel| of_program(place, c, &program, started);
                for channel in self.channels() {
                    programs.extend(notes.of(of(channel)).flatten());
                }
            }
        }
        let channels = self.channels().iter().filter_map(|c| c.view().ok());
        Ok(ProgramsState {
            started,
            made: self.made(),
            channels: channels.map(of_channel).collect(),
            programs,
            notes,
        })
    }
}

impl ProgramSession {
    /// The events of programs that run whose filter does not fit them. Whether the session is
    /// started does not matter.
    pub fn unfit(&self) -> Vec<UnfitEvent> {
        let (places, mut notes) = places();
        let mut unfit = Vec::new();
        for place in &places {
            for program in all(&place.user, &mut notes) {
                if program.is_alive().unwrap_or(false) {
                    unfit.extend(self.channels().iter().flat_map(|c| c.unfit(&program)));
                }
            }
        }
        unfit
    }
}

fn of_channel(view: ChannelConfigView<'_>) -> ChannelState {
    let config = view.to_config();
    let rules = config.rules.into_iter().map(|rule| RuleState {
        filter: if rule.filter.is_empty() {
            None
        } else {
            Some(kymo_ust::decompile(&rule.filter).unwrap_or_else(|| "?".into()))
        },
        pattern: rule.pattern,
        max_level: rule.max_level,
        exclude: rule.exclude,
    });
    ChannelState {
        name: config.channel,
        overwrite: config.overwrite,
        room: u64::from(config.sub_buffer) * u64::from(config.sub_buffers),
        pids: config.pids,
        rules: rules.collect(),
    }
}

/// Returns a program's state with respect to a channel; none if it has no part in it.
fn of_program(
    place: &SessionDirectory,
    channel: &Channel,
    program: &Program,
    started: bool,
) -> Result<Option<ProgramState>, UstError> {
    let channel = place.channel(channel);
    let alive = program.is_alive()?;
    let slot = channel.slot_of(program)?;
    let wants = channel.wants(program);
    if slot.is_none() && !(alive && wants && started) {
        return Ok(None);
    }
    let (counts, rings) = match &slot {
        Some((attached, _)) => counts(program, attached.slot)?,
        None => (RingCounts::default(), 0),
    };
    if !alive && rings == 0 {
        return Ok(None);
    }
    let used = program.slots()?.iter().filter(|s| s.state != SlotState::Free).count();
    let doing = match &slot {
        None if used == SLOTS => Doing::NoSlot,
        None => Doing::Missed,
        Some(_) if !alive => Doing::Ended,
        Some((_, slot)) => doing(slot),
    };
    let (rejected, lost) = slot.map_or((0, 0), |(_, s)| (s.rejected, s.lost));
    Ok(Some(ProgramState {
        channel: String::from_utf8_lossy(channel.view()?.channel()).into_owned(),
        pid: program.id().pid,
        uid: program.uid(),
        comm: program.comm(),
        doing,
        events: channel.events(program).count(),
        counts,
        rejected,
        lost,
        unfit: channel.unfit(program),
    }))
}

fn doing(slot: &Slot) -> Doing {
    match (slot.state, slot.answer_in_force()) {
        (SlotState::Stopped, _) => Doing::Stopped,
        (_, Some(SlotAnswer::Failed)) => Doing::Failed(slot.errno),
        (_, Some(SlotAnswer::Cut)) => Doing::Cut,
        _ if slot.answered == slot.generation => Doing::Recording,
        _ => Doing::Waiting,
    }
}

/// Returns the sums over all rings of a slot, and the number of rings.
fn counts(program: &Program, slot: usize) -> Result<(RingCounts, usize), UstError> {
    let (mut sum, mut rings) = (RingCounts::default(), 0);
    for ring in program.rings()?.into_iter().filter(|r| r.attached.slot == slot) {
        rings += 1;
        let Some(reader) = RingReader::of(program, ring.attached)? else { continue };
        let of = reader.counts()?;
        sum.written = sum.written.saturating_add(of.written);
        sum.discarded = sum.discarded.saturating_add(of.discarded);
        sum.overwritten = sum.overwritten.saturating_add(of.overwritten);
        sum.waiting = sum.waiting.saturating_add(of.waiting);
        sum.failed += of.failed;
    }
    Ok((sum, rings))
}

//! Slots of running programs: a channel takes one, switches events on and off in it,
//! and gives it back. Tools lock the slots among themselves; the program looks on, so
//! every step leaves something it can live with.

use std::collections::BTreeSet;

use kymo_ust::{
    ChannelConfigView, Control, EventRecord, FieldRecord, Fields, Filter, FilterMismatch,
    MismatchReason, SLOT_PATH, SLOTS, SLOTS_AT, Shape, Slot, SlotAnswer, SlotState, enable_at,
    slot_at,
};

use super::channel::Channel;
use super::error::UstError;
use super::program::Program;
use super::ring::RingReader;

/// A program that records for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// In this slot.
    pub slot: usize,
    /// In this generation of it.
    pub generation: u8,
}

impl Attached {
    /// The file of its ring, in the program's directory.
    pub(super) fn ring_name(self) -> String {
        format!("ring-{}-{}", self.slot, self.generation)
    }
}

/// Range that tools lock against each other.
const LOCKED: (u64, u64) = (SLOTS_AT as u64, 2048);
/// Counters of the program in a slot, and the futex word.
const COUNTS: std::ops::Range<u64> = 8..36;

impl Channel {
    /// The slot of a program that has this channel.
    ///
    /// # Errors
    /// If the slots cannot be read.
    pub fn slot_of(&self, program: &Program) -> Result<Option<(Attached, Slot)>, UstError> {
        let path = self.path();
        let slots = program.slots()?.into_iter().enumerate();
        let mut mine = slots.filter(|(_, s)| s.path == path && s.state != SlotState::Free);
        Ok(mine.next().map(|(slot, s)| (Attached { slot, generation: s.generation }, s)))
    }

    /// Lets a program that runs already record for the channel.
    ///
    /// # Errors
    /// If all its slots are taken, or its control file cannot be written.
    pub fn attach(&self, program: &Program) -> Result<Option<Attached>, UstError> {
        if !self.wants(program) {
            return Ok(None);
        }
        let _lock = program.file().lock(LOCKED.0, LOCKED.1)?;
        let (attached, given_up) = match self.slot_of(program)? {
            Some((attached, slot)) => self.take_up(program, attached, &slot)?,
            None => (self.claim(program)?, 0),
        };
        self.switch_on(program, attached.slot)?;
        check_given_up(program, given_up)?;
        Ok(Some(attached))
    }

    /// Continues with a slot that the channel has. The ring is another one if there was no memory
    /// for it before, or if libraries may have been loaded while their filters were not linked.
    fn take_up(
        &self,
        program: &Program,
        attached: Attached,
        slot: &Slot,
    ) -> Result<(Attached, u64), UstError> {
        let stopped = slot.state == SlotState::Stopped;
        let failed = match slot.answer_in_force() {
            Some(SlotAnswer::Failed | SlotAnswer::Cut) => true,
            _ => slot.answered == slot.generation && lacks(program, attached)?,
        };
        let filters = self.view()?.rules().any(|rule| !rule.filter.is_empty());
        let (generation, given_up) = if failed || (stopped && filters) {
            next_generation(program, attached, slot.answered)?
        } else {
            (attached.generation, 0)
        };
        set_state(program, attached.slot, SlotState::Active)?;
        Ok((Attached { generation, ..attached }, given_up))
    }

    /// Takes a free slot.
    fn claim(&self, program: &Program) -> Result<Attached, UstError> {
        let slots = program.slots()?;
        let Some(slot) = slots.iter().position(|s| s.state == SlotState::Free) else {
            return Err(UstError::NoSlot { pid: program.id().pid });
        };
        let attached = Attached { slot, generation: slots[slot].generation };
        let at = slot_at(slot) as u64;
        set_state(program, slot, SlotState::Claimed)?;
        // A ring that was being made when the slot was given back is nobody's.
        remove_rings(program, slot)?;
        let zeros = vec![0; (COUNTS.end - COUNTS.start) as usize];
        program.file().write_at(at + COUNTS.start, &zeros)?;
        let mut path = self.path();
        path.resize(SLOT_PATH, 0);
        program.file().write_at(at + Slot::PATH_AT as u64, &path)?;
        // Of the rings of this slot none is left.
        let (generation, _) = next_generation(program, attached, slots[slot].answered)?;
        set_state(program, slot, SlotState::Active)?;
        Ok(Attached { slot, generation })
    }

    /// Switches the events off; what is in the ring stays. Says in which slot.
    ///
    /// # Errors
    /// If the control file cannot be written.
    pub fn stop(&self, program: &Program) -> Result<Option<Attached>, UstError> {
        let _lock = program.file().lock(LOCKED.0, LOCKED.1)?;
        let Some((attached, _)) = self.slot_of(program)? else { return Ok(None) };
        stop_slot(program, attached.slot)?;
        Ok(Some(attached))
    }

    /// Frees the slot and removes its rings: what was not taken out of them is gone.
    ///
    /// # Errors
    /// If the control file cannot be written.
    pub fn detach(&self, program: &Program) -> Result<(), UstError> {
        let _lock = program.file().lock(LOCKED.0, LOCKED.1)?;
        match self.slot_of(program)? {
            Some((attached, _)) => free_slot(program, attached.slot),
            None => Ok(()),
        }
    }

    /// The channel's order, which has this one's name, has become `new`: a program that
    /// has it follows. Filters are linked when a ring is made, so others need another ring.
    pub(super) fn change_to(&self, new: &Channel, program: &Program) -> Result<(), UstError> {
        let _lock = program.file().lock(LOCKED.0, LOCKED.1)?;
        let Some((attached, slot)) = self.slot_of(program)? else { return Ok(()) };
        let (before, after) = (self.view()?, new.view()?);
        let wanted = new.fitting(program);
        all_off(program, attached.slot, |id| !wanted.contains(&id))?;
        let other = |e: &EventRecord| {
            let name = format!("{}:{}", e.provider, e.name);
            let filter = |view: ChannelConfigView<'_>| {
                let rule = view.rule_for(name.as_bytes(), e.level);
                rule.map_or(Vec::new(), |rule| rule.filter.to_vec())
            };
            filter(before) != filter(after)
        };
        let mut given_up = 0;
        if program.present().any(other) {
            given_up = next_generation(program, attached, slot.answered)?.1;
        }
        if slot.state == SlotState::Active {
            new.switch_on(program, attached.slot)?;
        }
        check_given_up(program, given_up)
    }

    fn switch_on(&self, program: &Program, slot: usize) -> Result<(), UstError> {
        for event in self.fitting(program) {
            program.file().write_at(enable_at(program.control(), event, slot), &[1])?;
        }
        Ok(())
    }

    /// The events that the configuration wants of a program but whose filter does not fit them.
    pub(super) fn unfit(&self, program: &Program) -> Vec<UnfitEvent> {
        let unfit = |(event, mismatch): (&EventRecord, FilterMismatch)| UnfitEvent {
            event: format!("{}:{}", event.provider, event.name),
            mismatch,
            fields: event.fields.iter().map(|f| f.name.clone()).collect(),
        };
        self.mismatches(program).map(unfit).collect()
    }

    /// Numbers of the events that are wanted and may pass their filter.
    fn fitting(&self, program: &Program) -> BTreeSet<u32> {
        let mut fitting: BTreeSet<u32> = self.events(program).collect();
        self.mismatches(program).for_each(|(event, _)| _ = fitting.remove(&event.id));
        fitting
    }

    fn mismatches<'a>(
        &'a self,
        program: &'a Program,
    ) -> impl Iterator<Item = (&'a EventRecord, FilterMismatch)> {
        let view = self.view().ok();
        program.present().filter_map(move |event| {
            let name = format!("{}:{}", event.provider, event.name);
            let rule = view?.rule_for(name.as_bytes(), event.level)?;
            let filter = Filter::parse(rule.filter).ok().filter(|_| !rule.filter.is_empty())?;
            Some((event, filter.mismatch(&RecordedFields(&event.fields))?))
        })
    }
}

/// An event that is wanted, but whose filter does not fit it: it stays off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfitEvent {
    /// Provider and name.
    pub event: String,
    /// Cause.
    pub mismatch: FilterMismatch,
    /// The fields that it has.
    pub fields: Vec<String>,
}

impl std::fmt::Display for UnfitEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plain = |text: &str| text.chars().flat_map(char::escape_default).collect::<String>();
        let UnfitEvent { event, mismatch, fields } = self;
        // Values of other kinds are unequal: that is an answer, though none that was meant.
        let consequence = match mismatch.reason {
            MismatchReason::Missing | MismatchReason::NotComparable => "stays off",
            _ => "has another type than in its filter",
        };
        write!(f, "{} {consequence}: {mismatch}", plain(event))?;
        if fields.is_empty() {
            f.write_str(" (it has no fields)")
        } else {
            write!(f, " (fields: {})", plain(&fields.join(", ")))
        }
    }
}

struct RecordedFields<'a>(&'a [FieldRecord]);

impl Fields for RecordedFields<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn shape(&self, index: usize) -> Shape {
        self.0[index].shape
    }

    fn name(&self, index: usize) -> &[u8] {
        self.0[index].name.as_bytes()
    }
}

/// Whether there was no memory for a part of the ring.
fn lacks(program: &Program, attached: Attached) -> Result<bool, UstError> {
    match RingReader::of(program, attached)? {
        Some(ring) => Ok(ring.counts()?.failed > 0),
        None => Ok(false),
    }
}

/// Stops whatever is on in the slots whose order's path `which` chooses.
pub(super) fn stop_all(program: &Program, which: impl Fn(&[u8]) -> bool) -> Result<bool, UstError> {
    each_slot(program, which, stop_slot)
}

/// Gives the slots back whose order's path `which` chooses, with their rings.
pub(super) fn free_all(program: &Program, which: impl Fn(&[u8]) -> bool) -> Result<bool, UstError> {
    each_slot(program, which, free_slot)
}

/// Says whether there was any.
fn each_slot(
    program: &Program,
    which: impl Fn(&[u8]) -> bool,
    act: fn(&Program, usize) -> Result<(), UstError>,
) -> Result<bool, UstError> {
    let _lock = program.file().lock(LOCKED.0, LOCKED.1)?;
    let mut any = false;
    for (slot, of) in program.slots()?.iter().enumerate() {
        if of.state != SlotState::Free && which(&of.path) {
            act(program, slot)?;
            any = true;
        }
    }
    Ok(any)
}

fn stop_slot(program: &Program, slot: usize) -> Result<(), UstError> {
    all_off(program, slot, |_| true)?;
    set_state(program, slot, SlotState::Stopped)
}

fn free_slot(program: &Program, slot: usize) -> Result<(), UstError> {
    stop_slot(program, slot)?;
    remove_rings(program, slot)?;
    set_state(program, slot, SlotState::Free)
}

fn remove_rings(program: &Program, slot: usize) -> Result<(), UstError> {
    for ring in program.rings()? {
        if ring.attached.slot == slot {
            program.remove_ring(&ring)?;
        }
    }
    Ok(())
}

fn set_state(program: &Program, slot: usize, state: SlotState) -> Result<(), UstError> {
    Ok(program.file().write_at(slot_at(slot) as u64 + 1, &[state as u8])?)
}

/// From now on the program writes into another ring, which has the next number. `answered` is the
/// number that the program has made a ring for last. Returns it, and how many bytes of events were
/// in a ring that had it before: numbers begin again after 255, and that ring is the oldest one.
fn next_generation(
    program: &Program,
    attached: Attached,
    answered: u8,
) -> Result<(u8, u64), UstError> {
    let slot = attached.slot;
    remove_taken_rings(program, attached)?;
    let (mut generation, mut given_up) = (attached.generation, 0);
    loop {
        generation = match generation.wrapping_add(1) {
            0 => 1,
            generation => generation,
        };
        given_up += give_up_ring(program, Attached { slot, generation })?;
        // The program takes the number of the ring it has for that ring: its filters would stay.
        if generation != answered {
            break;
        }
    }
    program.file().write_at(slot_at(slot) as u64, &[generation])?;
    Ok((generation, given_up))
}

/// Removes the rings of a slot out of which everything was taken, but for those that may still have
/// writers: the program's ring and the one before it.
fn remove_taken_rings(program: &Program, attached: Attached) -> Result<(), UstError> {
    let before = match attached.generation {
        0 | 1 => u8::MAX,
        generation => generation - 1,
    };
    for ring in program.rings()? {
        let Attached { slot, generation } = ring.attached;
        if slot != attached.slot || generation == attached.generation || generation == before {
            continue;
        }
        // What is no ring stays until its slot is given back.
        if let Ok(Some(reader)) = RingReader::of(program, ring.attached)
            && matches!(reader.is_taken(), Ok(true))
        {
            program.remove_ring(&ring)?;
        }
    }
    Ok(())
}

/// Removes a ring if it is there. Returns how many bytes of events were in it.
fn give_up_ring(program: &Program, attached: Attached) -> Result<u64, UstError> {
    let Some(ring) = program.rings()?.into_iter().find(|r| r.attached == attached) else {
        return Ok(0);
    };
    let reader = RingReader::of(program, attached).ok().flatten();
    let waiting = reader.and_then(|r| r.counts().ok()).map_or(0, |c| c.waiting);
    program.remove_ring(&ring)?;
    Ok(waiting)
}

/// Says so if events were given up; everything else was done.
fn check_given_up(program: &Program, bytes: u64) -> Result<(), UstError> {
    match bytes {
        0 => Ok(()),
        bytes => Err(UstError::GivenUp { pid: program.id().pid, bytes }),
    }
}

/// Disables the events of a slot that `which` selects, regardless of who enabled them.
fn all_off(program: &Program, slot: usize, which: impl Fn(u32) -> bool) -> Result<(), UstError> {
    let control: &Control = program.control();
    let mut words = vec![0; 8 * control.capacity as usize];
    program.file().read_at(u64::from(control.enable), &mut words)?;
    for event in 0..control.capacity {
        let on = words.get(8 * event as usize + slot % SLOTS).is_some_and(|b| *b != 0);
        if on && which(event) {
            program.file().write_at(enable_at(control, event, slot), &[0])?;
        }
    }
    Ok(())
}

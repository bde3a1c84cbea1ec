//! Channels: an order says what is wanted of which events; a slot of each program
//! takes it. Programs that start later find the order in `wanted/`.

use std::ffi::{OsStr, OsString};

use kymo_ust::{
    Control, Order, OrderView, Rule, SLOT_PATH, SLOTS, SLOTS_AT, Slot, SlotState, enable_at,
    slot_at,
};

use super::error::UstError;
use super::program::Program;
use super::space::UserFolder;

/// What a channel is to be.
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// Name of the session, also of the order.
    pub session: String,
    /// Name of the channel.
    pub channel: String,
    /// Which events, the first that matches decides.
    pub rules: Vec<Rule>,
    /// Overwrite the oldest events instead of discarding new ones.
    pub overwrite: bool,
    /// Bytes of a sub-buffer: a power of two.
    pub sub_buffer: u32,
    /// Sub-buffers of a CPU: a power of two.
    pub sub_buffers: u32,
    /// Only for this process and its descendants; 0: for all.
    pub pid: u32,
}

/// The order of a channel in the folder of a user.
#[derive(Clone, Debug)]
pub struct Channel {
    name: OsString,
    order: Vec<u8>,
}

/// A program that records for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// In this slot.
    pub slot: usize,
    /// In this turn of it.
    pub turn: u8,
}

impl Attached {
    /// The file of its ring, in the program's folder.
    pub(super) fn ring_name(self) -> String {
        format!("ring-{}-{}", self.slot, self.turn)
    }
}

const WANTED: &str = "wanted";
/// Where the tools lock among themselves.
const LOCKED: (u64, u64) = (SLOTS_AT as u64, 2048);

impl Channel {
    /// The order of a channel, `SESSION.CHANNEL`.
    ///
    /// # Errors
    /// If its names or rules are too long.
    pub fn new(options: &ChannelOptions) -> Result<Channel, UstError> {
        for name in [&options.session, &options.channel] {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if name.is_empty()
                || name.len() > 40
                || !name.bytes().all(plain)
                || name.starts_with('.')
            {
                return Err(UstError::Name(name.clone()));
            }
        }
        let mut uuid = [0; 16];
        let _ = rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty());
        let order = Order {
            overwrite: options.overwrite,
            sub_buffer: options.sub_buffer,
            sub_buffers: options.sub_buffers,
            uuid,
            pid: options.pid,
            session: options.session.clone(),
            channel: options.channel.clone(),
            rules: options.rules.clone(),
        };
        let order = order.encode().map_err(UstError::Order)?;
        Ok(Channel { name: format!("{}.{}", options.session, options.channel).into(), order })
    }

    /// The channels of a user that programs will find when they start.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn wanted(user: &UserFolder) -> Result<Vec<Channel>, UstError> {
        let dir = match user.dir.dir(OsStr::new(WANTED)) {
            Ok(dir) => dir,
            Err(e) if e.is_missing() => return Ok(Vec::new()),
            Err(e) => return Err(e.into()),
        };
        let mut channels = Vec::new();
        for name in dir.names(1024)?.0 {
            if name.to_string_lossy().starts_with('.') {
                continue;
            }
            let file = dir.file(&name, kymo_kernel::shared::Access::Read)?;
            let mut order = vec![0; kymo_ust::MAX_ORDER];
            let len = file.read_some(0, &mut order)?;
            order.truncate(len);
            if OrderView::parse(&order).is_ok() {
                channels.push(Channel { name, order });
            }
        }
        Ok(channels)
    }

    /// What the order says.
    ///
    /// # Errors
    /// Never for an order that was made or read here.
    pub fn view(&self) -> Result<OrderView<'_>, UstError> {
        OrderView::parse(&self.order).map_err(UstError::Order)
    }

    /// The name of the order.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Puts the order where programs find it that start from now on.
    ///
    /// # Errors
    /// If it is there already, or cannot be written.
    pub fn publish(&self, user: &UserFolder) -> Result<(), UstError> {
        let dir = user.dir.make_dir(OsStr::new(WANTED))?;
        let there = dir.file(&self.name, kymo_kernel::shared::Access::Read);
        match there {
            Err(e) if e.is_missing() => Ok(dir.put(&self.name, &self.order)?),
            Err(e) => Err(e.into()),
            Ok(file) => Err(UstError::Exists { path: file.path().to_owned() }),
        }
    }

    /// Takes the order away; programs that have it keep it.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn withdraw(&self, user: &UserFolder) -> Result<(), UstError> {
        match user.dir.dir(OsStr::new(WANTED)) {
            Ok(dir) => Ok(dir.remove(&self.name)?),
            Err(e) if e.is_missing() => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The order's path as slots name it.
    fn path(&self) -> Vec<u8> {
        let mut path = WANTED.as_bytes().to_vec();
        path.push(b'/');
        path.extend_from_slice(self.name.as_encoded_bytes());
        path.truncate(SLOT_PATH - 1);
        path
    }

    /// The slot of a program that has this channel.
    ///
    /// # Errors
    /// If the slots cannot be read.
    pub fn slot_of(&self, program: &Program) -> Result<Option<(Attached, Slot)>, UstError> {
        let path = self.path();
        let slots = program.slots()?.into_iter().enumerate();
        let mut mine = slots.filter(|(_, s)| s.path == path && s.state != SlotState::Free);
        Ok(mine.next().map(|(slot, s)| (Attached { slot, turn: s.turn }, s)))
    }

    /// Whether the order wants anything of this program.
    pub fn wants(&self, program: &Program) -> bool {
        self.events(program).next().is_some()
    }

    /// The numbers of the events that the order wants.
    fn events<'a>(&'a self, program: &'a Program) -> impl Iterator<Item = u32> + use<'a> {
        let view = self.view().ok();
        program.present().filter_map(move |e| {
            let name = format!("{}:{}", e.provider, e.name);
            view?.rule_for(name.as_bytes(), e.level).map(|_| e.id)
        })
    }

    /// Lets a program that runs already record for the channel.
    ///
    /// # Errors
    /// If all its slots are taken, or its control file cannot be written.
    pub fn attach(&self, program: &Program) -> Result<Option<Attached>, UstError> {
        if !self.wants(program) {
            return Ok(None);
        }
        let file = program.file();
        let _lock = file.lock(LOCKED.0, LOCKED.1)?;
        if let Some((attached, slot)) = self.slot_of(program)? {
            if slot.state == SlotState::Stopped {
                file.write_at(slot_at(attached.slot) as u64 + 1, &[SlotState::Active as u8])?;
            }
            self.switch(program, attached.slot, 1)?;
            return Ok(Some(attached));
        }
        let slots = program.slots()?;
        let Some(slot) = slots.iter().position(|s| s.state == SlotState::Free) else {
            return Err(UstError::NoSlot { pid: program.id().pid });
        };
        let at = slot_at(slot) as u64;
        let turn = match slots[slot].turn.wrapping_add(1) {
            0 => 1,
            turn => turn,
        };
        file.write_at(at + 1, &[SlotState::Claimed as u8])?;
        let mut path = self.path();
        path.resize(SLOT_PATH, 0);
        file.write_at(at + Slot::PATH_AT as u64, &path)?;
        file.write_at(at, &[turn])?;
        file.write_at(at + 1, &[SlotState::Active as u8])?;
        self.switch(program, slot, 1)?;
        Ok(Some(Attached { slot, turn }))
    }

    /// Switches the events off; what is in the ring stays. Says in which slot.
    ///
    /// # Errors
    /// If the control file cannot be written.
    pub fn stop(&self, program: &Program) -> Result<Option<Attached>, UstError> {
        let file = program.file();
        let _lock = file.lock(LOCKED.0, LOCKED.1)?;
        let Some((attached, _)) = self.slot_of(program)? else { return Ok(None) };
        all_off(program, attached.slot)?;
        file.write_at(slot_at(attached.slot) as u64 + 1, &[SlotState::Stopped as u8])?;
        Ok(Some(attached))
    }

    /// Frees the slot and removes its ring: what was not taken out of it is gone.
    ///
    /// # Errors
    /// If the control file cannot be written.
    pub fn detach(&self, program: &Program) -> Result<(), UstError> {
        let Some(attached) = self.stop(program)? else { return Ok(()) };
        let _lock = program.file().lock(LOCKED.0, LOCKED.1)?;
        for ring in program.rings()? {
            if ring.attached.slot == attached.slot {
                program.dir().remove(&ring.name)?;
            }
        }
        let at = slot_at(attached.slot) as u64;
        program.file().write_at(at + 1, &[SlotState::Free as u8])?;
        Ok(())
    }

    fn switch(&self, program: &Program, slot: usize, to: u8) -> Result<(), UstError> {
        for event in self.events(program) {
            program.file().write_at(enable_at(program.control(), event, slot), &[to])?;
        }
        Ok(())
    }
}

/// Nothing is on for a slot afterwards, whoever switched it on.
fn all_off(program: &Program, slot: usize) -> Result<(), UstError> {
    let control: &Control = program.control();
    let mut words = vec![0; 8 * control.capacity as usize];
    program.file().read_at(u64::from(control.enable), &mut words)?;
    for event in 0..control.capacity {
        let on = words.get(8 * event as usize + slot % SLOTS).is_some_and(|b| *b != 0);
        if on {
            program.file().write_at(enable_at(control, event, slot), &[0])?;
        }
    }
    Ok(())
}

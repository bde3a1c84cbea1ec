//! Channels: a channel configuration selects events with their conditions. Programs that start find
//! it in `wanted/`; those that run get it into a slot (`slots`).

use std::ffi::{OsStr, OsString};

use kymo_kernel::shared::{Access, SharedDir};
use kymo_ust::{ChannelConfig, ChannelConfigView, EventRule, Pids, SLOT_PATH, is_for};

use super::error::UstError;
use super::mount_namespace::{UserDirectory, me};
use super::program::Program;

/// Options of a channel.
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// Name of the session, also of the configuration.
    pub session: String,
    /// Name of the channel.
    pub channel: String,
    /// Selection of events; the first matching rule decides.
    pub rules: Vec<EventRule>,
    /// Overwrite the oldest events instead of discarding new ones.
    pub overwrite: bool,
    /// Bytes of a sub-buffer: a power of two.
    pub sub_buffer: u32,
    /// Sub-buffers of a CPU: a power of two.
    pub sub_buffers: u32,
    /// Only for these processes and their descendants; zeroes alone: for all.
    pub pids: Pids,
}

/// The channel that is meant where none is named.
pub const DEFAULT_CHANNEL: &str = "channel0";

/// The order of a channel, under the name it has in one user's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    name: OsString,
    config: Vec<u8>,
}

const WANTED: &str = "wanted";

impl Channel {
    /// The order of a channel, `SESSION.CHANNEL`.
    ///
    /// # Errors
    /// If its names or rules are too long.
    pub fn new(options: &ChannelOptions) -> Result<Channel, UstError> {
        let mut uuid = [0; 16];
        let _ = kymo_kernel::system::random(&mut uuid);
        Channel::of(&ChannelConfig {
            overwrite: options.overwrite,
            sub_buffer: options.sub_buffer,
            sub_buffers: options.sub_buffers,
            uuid,
            pids: options.pids,
            session: options.session.clone(),
            channel: options.channel.clone(),
            rules: options.rules.clone(),
        })
    }

    /// The channel of a channel configuration.
    pub(super) fn of(config: &ChannelConfig) -> Result<Channel, UstError> {
        check_name(&config.session)?;
        // The last dot of a channel configuration's name stands before the channel.
        if check_name(&config.channel).is_err() || config.channel.contains('.') {
            return Err(UstError::Channel(config.channel.clone()));
        }
        let name = format!("{}.{}", config.session, config.channel).into();
        Ok(Channel { name, config: config.encode().map_err(UstError::ChannelConfig)? })
    }

    /// The channels of a user that programs will find when they start.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn wanted(user: &UserDirectory) -> Result<Vec<Channel>, UstError> {
        match user.dir.dir(OsStr::new(WANTED)) {
            Ok(dir) => Channel::all(&dir),
            Err(e) if e.is_missing() => Ok(Vec::new()),
            Err(e) => Err(e.into()),
        }
    }

    /// The channel configurations in a directory; what is none is passed over.
    pub(super) fn all(dir: &SharedDir) -> Result<Vec<Channel>, UstError> {
        let mut channels = Vec::new();
        for name in dir.names(1024)?.0 {
            if !name.to_string_lossy().starts_with('.') {
                channels.extend(Channel::read(dir, name)?);
            }
        }
        Ok(channels)
    }

    /// The order of this name in a directory, if there is one.
    fn read(dir: &SharedDir, name: OsString) -> Result<Option<Channel>, UstError> {
        let file = match dir.file(&name, Access::Read) {
            Ok(file) => file,
            Err(e) if e.is_missing() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let mut config = vec![0; kymo_ust::MAX_CHANNEL_CONFIG];
        let len = file.read_some(0, &mut config)?;
        config.truncate(len);
        Ok(ChannelConfigView::parse(&config).is_ok().then_some(Channel { name, config }))
    }

    /// Parses the configuration.
    ///
    /// # Errors
    /// Never for a channel configuration that was made or read here.
    pub fn view(&self) -> Result<ChannelConfigView<'_>, UstError> {
        ChannelConfigView::parse(&self.config).map_err(UstError::ChannelConfig)
    }

    /// The name of the configuration.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The configuration under its name in the directory of another user than the session's
    /// creator: so it cannot be mistaken for one of their own.
    pub(super) fn for_others(&self) -> Channel {
        let mut name = self.name.clone();
        name.push(format!("@{}", me()));
        Channel { name, config: self.config.clone() }
    }

    /// Whether it is an order of the same session, perhaps changed since.
    pub(super) fn same_order(&self, other: &Channel) -> bool {
        let uuid = |c: &Channel| c.view().map(|v| v.uuid).ok();
        uuid(self) == uuid(other)
    }

    /// Writes the configuration into a directory.
    pub(super) fn put(&self, dir: &SharedDir) -> Result<(), UstError> {
        Ok(dir.put(&self.name, &self.config)?)
    }

    /// Puts the configuration where programs find it that start from now on.
    ///
    /// # Errors
    /// If it is there already, or cannot be written.
    pub fn publish(&self, user: &UserDirectory) -> Result<(), UstError> {
        let dir = user.dir.make_dir(OsStr::new(WANTED))?;
        match dir.file(&self.name, Access::Read) {
            Err(e) if e.is_missing() => self.put(&dir),
            Err(e) => Err(e.into()),
            Ok(file) => Err(UstError::Exists { path: file.path().to_owned() }),
        }
    }

    /// Writes the configuration; replaces an earlier one of the same channel.
    pub(super) fn renew(&self, user: &UserDirectory) -> Result<(), UstError> {
        let dir = user.dir.make_dir(OsStr::new(WANTED))?;
        match Channel::read(&dir, self.name.clone())? {
            Some(there) if there.config == self.config => Ok(()),
            Some(there) if there.view()?.uuid != self.view()?.uuid => {
                Err(UstError::Exists { path: dir.path().join(&self.name) })
            }
            _ => self.put(&dir),
        }
    }

    /// Takes the configuration away; programs that have it keep it.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn withdraw(&self, user: &UserDirectory) -> Result<(), UstError> {
        match user.dir.dir(OsStr::new(WANTED)) {
            Ok(dir) => Ok(dir.remove(&self.name)?),
            Err(e) if e.is_missing() => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The configuration's path as slots name it.
    pub(super) fn path(&self) -> Vec<u8> {
        let mut path = WANTED.as_bytes().to_vec();
        path.push(b'/');
        path.extend_from_slice(self.name.as_encoded_bytes());
        path.truncate(SLOT_PATH - 1);
        path
    }

    /// Whether the configuration wants anything of this program.
    pub fn wants(&self, program: &Program) -> bool {
        self.is_for(program) && self.events(program).next().is_some()
    }

    /// The numbers of the events that the configuration wants.
    pub(super) fn events<'a>(
        &'a self,
        program: &'a Program,
    ) -> impl Iterator<Item = u32> + use<'a> {
        let view = self.view().ok();
        program.present().filter_map(move |e| {
            let name = format!("{}:{}", e.provider, e.name);
            view?.rule_for(name.as_bytes(), e.level).map(|_| e.id)
        })
    }

    /// Whether the order is for all, or for this program or one it descends from.
    fn is_for(&self, program: &Program) -> bool {
        let wanted = self.view().map_or([0; 4], |view| view.pids);
        let mut pid = program.id().pid;
        for _ in 0..64 {
            if is_for(&wanted, pid) {
                return true;
            }
            match kymo_kernel::target::parent(pid) {
                Some(parent) if parent > 1 => pid = parent,
                _ => return false,
            }
        }
        false
    }
}

/// Names of sessions and channels are parts of names of files.
pub(super) fn check_name(name: &str) -> Result<(), UstError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 40 || !name.bytes().all(plain) || name.starts_with('.') {
        return Err(UstError::Name(name.to_owned()));
    }
    Ok(())
}

//! The program part of a session: channel configurations in the user's directory, which outlive every
//! command. `sessions/` holds the order of each channel from the session's making to its
//! end; while it is started `wanted/` has copies, where programs look that start. Nothing
//! else remembers anything: a command that dies leaves channel configurations that the next one finds.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use kymo_files::ctf::types::CtfVersion;
use kymo_kernel::ftrace::is_owned;
use kymo_kernel::shared::{DirLock, SharedDir};
use kymo_ust::{ChannelConfig, EventRule, Pids};

use super::channel::{Channel, ChannelOptions, DEFAULT_CHANNEL, check_name};
use super::drain::{Drain, DrainStats};
use super::error::{Notes, UstError};
use super::mount_namespace::{MountNamespace, UserDirectory, me};
use super::program::Program;
use super::slots::{free_all, stop_all};

/// Directory of channel configurations.
const STORE: &str = "sessions";
/// Time to wait for another command that changes sessions.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time to wait for events that threads are still writing after they were disabled.
const FORGET: Duration = Duration::from_millis(20);

/// Options of the ring of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Overwrite the oldest events instead of discarding new ones.
    pub overwrite: bool,
    /// Bytes of a sub-buffer: a power of two.
    pub sub_buffer: u32,
    /// Sub-buffers of a CPU: a power of two.
    pub sub_buffers: u32,
    /// Only for these processes and their descendants; zeroes alone: for all.
    pub pids: Pids,
}

/// The program part of a session.
#[derive(Debug)]
pub struct ProgramSession {
    name: String,
    home: UserDirectory,
    channels: Vec<Channel>,
}

/// A directory that a session reaches into.
pub(super) struct SessionDirectory {
    pub(super) user: UserDirectory,
    /// The session's maker's own.
    home: bool,
}

impl SessionDirectory {
    /// A channel as it is called there.
    pub(super) fn channel(&self, channel: &Channel) -> Channel {
        if self.home { channel.clone() } else { channel.for_others() }
    }

    /// Whether a channel configuration's path is of a session, as it is called there.
    fn is_of(&self, session: &str, path: &[u8]) -> bool {
        let of = || {
            let name = std::str::from_utf8(path.strip_prefix(b"wanted/")?).ok()?;
            let name = if self.home { name } else { name.strip_suffix(&format!("@{}", me()))? };
            let (of, channel) = name.rsplit_once('.')?;
            Some(of == session && !channel.contains('@'))
        };
        of() == Some(true)
    }
}

impl ProgramSession {
    /// Makes a session with one channel; nothing is on yet.
    ///
    /// # Errors
    /// If there is one of that name, or its channel configurations cannot be written.
    pub fn create(
        name: &str,
        channel: &str,
        ring: RingOptions,
        rules: Vec<EventRule>,
    ) -> Result<ProgramSession, UstError> {
        check_name(name)?;
        if is_owned(name) {
            return Err(UstError::Session(format!("{name} is a name reserved by kymo")));
        }
        let home = MountNamespace::here().own()?;
        let store = home.dir.make_dir(OsStr::new(STORE))?;
        let _lock = lock(&store)?;
        if !channels_of(&store, name)?.is_empty() {
            return Err(UstError::Session(format!("there is a session {name} already")));
        }
        // Whatever an earlier one left whose channel configurations were lost.
        clear(name, &[])?;
        let channel = made(name, channel, ring, rules)?;
        channel.put(&store)?;
        Ok(ProgramSession { name: name.to_owned(), home, channels: vec![channel] })
    }

    /// A session that was made before.
    ///
    /// # Errors
    /// If its channel configurations cannot be read.
    pub fn open(name: &str) -> Result<Option<ProgramSession>, UstError> {
        check_name(name)?;
        let Some(home) = MountNamespace::here().mine()? else { return Ok(None) };
        let channels = match home.dir.dir(OsStr::new(STORE)) {
            Ok(store) => channels_of(&store, name)?,
            Err(e) if e.is_missing() => Vec::new(),
            Err(e) => return Err(e.into()),
        };
        let session = ProgramSession { name: name.to_owned(), home, channels };
        Ok(Some(session).filter(|s| !s.channels.is_empty()))
    }

    /// The names of all sessions of this user.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn names() -> Result<Vec<String>, UstError> {
        let Some(home) = MountNamespace::here().mine()? else { return Ok(Vec::new()) };
        let channels = match home.dir.dir(OsStr::new(STORE)) {
            Ok(store) => Channel::all(&store)?,
            Err(e) if e.is_missing() => Vec::new(),
            Err(e) => return Err(e.into()),
        };
        let mut names: Vec<String> = channels.iter().filter_map(session_of).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Removes a session, also what is left of one whose channel configurations are gone: all that it
    /// switched on is off afterwards, its rings are gone. Says whether there was anything.
    ///
    /// # Errors
    /// If its channel configurations cannot be removed.
    pub fn destroy(name: &str) -> Result<bool, UstError> {
        check_name(name)?;
        let Some(home) = MountNamespace::here().mine()? else { return Ok(false) };
        let store = home.dir.make_dir(OsStr::new(STORE))?;
        let _lock = lock(&store)?;
        let channels = channels_of(&store, name)?;
        let left = clear(name, &channels)?;
        // At last, so that a command that dies here can be repeated.
        for channel in &channels {
            store.remove(channel.name())?;
        }
        Ok(left || !channels.is_empty())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its channels.
    pub(super) fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// Whether programs that start record for it.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn is_started(&self) -> Result<bool, UstError> {
        let wanted = Channel::wanted(&self.home)?;
        Ok(wanted.iter().any(|w| self.channels.iter().any(|c| c.name() == w.name())))
    }

    /// Whether any of its channels wants anything.
    pub fn has_events(&self) -> bool {
        let wants = |c: &Channel| c.view().is_ok_and(|v| v.rules().any(|r| !r.exclude));
        self.channels.iter().any(wants)
    }

    /// Time of creation or of the last change of its first channel configuration, in seconds since
    /// 1970.
    pub(super) fn made(&self) -> Option<u64> {
        use kymo_kernel::shared::Access;
        let store = self.home.dir.dir(OsStr::new(STORE)).ok()?;
        let time = |c: &Channel| store.file(c.name(), Access::Read).ok()?.modified();
        self.channels.iter().filter_map(time).min()
    }

    /// Adds rules to a channel, before those it has; a channel that is not there is made, with this
    /// ring or the first channel's. Programs follow immediately if it is started.
    ///
    /// # Errors
    /// If the channel has another ring, or its order cannot be written.
    pub fn enable(
        &mut self,
        channel: &str,
        ring: Option<RingOptions>,
        rules: Vec<EventRule>,
    ) -> Result<Notes, UstError> {
        let (store, _lock) = self.locked()?;
        let old = self.channel(channel).cloned();
        let new = match &old {
            None => {
                let first = self.channels.first().map(ring_of).transpose()?;
                let ring = ring.or(first).ok_or_else(|| self.gone())?;
                made(&self.name, channel, ring, rules)?
            }
            Some(old) => {
                if ring.is_some_and(|r| ring_of(old).is_ok_and(|of| of != r)) {
                    return Err(UstError::Session(format!(
                        "channel {channel} of session {} has another ring already; name another --channel",
                        self.name
                    )));
                }
                let mut config = old.view()?.to_config();
                let same = |r: &EventRule| rules.iter().any(|new| new.pattern == r.pattern);
                config.rules.retain(|r| !same(r));
                config.rules.splice(0..0, rules);
                channel_with(config)?
            }
        };
        self.change(&store, old, new)
    }

    /// Takes events out of a channel, or out of all. Programs follow immediately.
    ///
    /// # Errors
    /// If there is no such channel, or its order cannot be written.
    pub fn disable(
        &mut self,
        patterns: &[String],
        channel: Option<&str>,
    ) -> Result<Notes, UstError> {
        let (store, _lock) = self.locked()?;
        if let Some(name) = channel
            && self.channel(name).is_none()
        {
            return Err(UstError::Session(format!("session {} has no channel {name}", self.name)));
        }
        let mut notes = Notes::default();
        for old in self.channels.clone() {
            let mut config = old.view()?.to_config();
            if channel.is_some_and(|name| name != config.channel) {
                continue;
            }
            config.rules.retain(|r| !patterns.contains(&r.pattern));
            let exclude = |pattern: &String| EventRule {
                pattern: pattern.clone(),
                max_level: u8::MAX,
                exclude: true,
                filter: Vec::new(),
            };
            config.rules.splice(0..0, patterns.iter().map(exclude));
            notes.extend(self.change(&store, Some(old), channel_with(config)?)?);
        }
        Ok(notes)
    }

    /// Puts a channel configuration in the place of another, everywhere.
    fn change(
        &mut self,
        store: &SharedDir,
        old: Option<Channel>,
        new: Channel,
    ) -> Result<Notes, UstError> {
        let started = self.is_started()?;
        new.put(store)?;
        self.channels.retain(|c| c.name() != new.name());
        self.channels.push(new.clone());
        self.channels.sort_by(|a, b| a.name().cmp(b.name()));
        let (places, mut notes) = places();
        for place in &places {
            let here = place.channel(&new);
            if started {
                notes.of(here.renew(&place.user));
            }
            let old = old.as_ref().map(|old| place.channel(old));
            for program in living(&place.user, &mut notes) {
                if let Some(old) = &old {
                    notes.of(old.change_to(&here, &program));
                }
                if started {
                    notes.of(here.attach(&program));
                }
            }
        }
        Ok(notes)
    }

    /// Switches its events on, in programs that run and in those that start.
    ///
    /// # Errors
    /// If it has none, or its channel configurations cannot be put where programs find them.
    pub fn start(&mut self) -> Result<Notes, UstError> {
        let (_, _lock) = self.locked()?;
        if !self.has_events() {
            return Err(UstError::Session(format!(
                "session {0} has no events of programs; kymo session enable {0} -u PROVIDER:NAME",
                self.name
            )));
        }
        for channel in &self.channels {
            channel.renew(&self.home)?;
        }
        Ok(self.reach(|channel, program| channel.attach(program).map(|_| ())))
    }

    /// Puts its channel configurations into directories that have come since, and lets `act` see each program
    /// that lives with each channel.
    fn reach(&self, act: impl Fn(&Channel, &Program) -> Result<(), UstError>) -> Notes {
        let (places, mut notes) = places();
        for place in &places {
            let channels: Vec<Channel> = self.channels.iter().map(|c| place.channel(c)).collect();
            let mut published = Vec::new();
            for channel in &channels {
                if notes.of(channel.renew(&place.user)).is_some() {
                    published.push(channel);
                }
            }
            for program in living(&place.user, &mut notes) {
                for channel in &published {
                    notes.of(act(channel, &program));
                }
            }
        }
        notes
    }

    /// Switches its events off. What is in the rings stays.
    ///
    /// # Errors
    /// If its channel configurations cannot be taken back.
    pub fn stop(&mut self) -> Result<Notes, UstError> {
        let (_, _lock) = self.locked()?;
        for channel in &self.channels {
            channel.withdraw(&self.home)?;
        }
        let (places, mut notes) = places();
        for place in &places {
            for channel in &self.channels {
                notes.of(place.channel(channel).withdraw(&place.user));
            }
        }
        stop_everywhere(&self.name, &places, &mut notes);
        // A program that was starting may have found the channel configurations just before.
        std::thread::sleep(FORGET);
        stop_everywhere(&self.name, &places, &mut notes);
        Ok(notes)
    }

    /// Takes what is in the rings, into a directory of CTF traces, while tracing continues. Of
    /// programs that have ended the rings are removed.
    ///
    /// # Errors
    /// If the traces cannot be written: what was not stays in the rings.
    pub fn take(
        &mut self,
        directory: &Path,
        version: CtfVersion,
    ) -> Result<(DrainStats, Notes), UstError> {
        let (_, _lock) = self.locked()?;
        let mut notes = Notes::default();
        if self.is_started()? {
            // Of users whose first program started after the session.
            notes.extend(self.reach(|channel, program| match channel.slot_of(program)? {
                Some(_) => Ok(()),
                None => channel.attach(program).map(|_| ()),
            }));
        }
        let mut drain = Drain::new(directory, &self.name).with_version(version);
        let (places, refused) = places();
        notes.extend(refused);
        for place in &places {
            let channels: Vec<Channel> = self.channels.iter().map(|c| place.channel(c)).collect();
            for program in all(&place.user, &mut notes) {
                for channel in &channels {
                    match take_channel(&mut drain, channel, &program, &place.user) {
                        Err(e @ UstError::Write { .. }) => return Err(e),
                        Err(e) => notes.push(e.to_string()),
                        Ok(()) => {}
                    }
                }
            }
        }
        drain.seal()?;
        Ok((drain.stats(), notes))
    }

    fn channel(&self, name: &str) -> Option<&Channel> {
        let is = |c: &&Channel| c.view().is_ok_and(|v| v.channel() == name.as_bytes());
        self.channels.iter().find(is)
    }

    /// Waits for other commands at work with sessions, and reads the channel configurations again.
    fn locked(&mut self) -> Result<(SharedDir, DirLock), UstError> {
        let store = self.home.dir.make_dir(OsStr::new(STORE))?;
        let lock = lock(&store)?;
        self.channels = channels_of(&store, &self.name)?;
        if self.channels.is_empty() {
            return Err(self.gone());
        }
        Ok((store, lock))
    }

    fn gone(&self) -> UstError {
        UstError::Session(format!("session {} has been destroyed", self.name))
    }
}

/// Drains a program's packets of a channel. A dead program's files are removed afterwards.
fn take_channel(
    drain: &mut Drain,
    channel: &Channel,
    program: &Program,
    user: &UserDirectory,
) -> Result<(), UstError> {
    // Asked before: what it wrote until it died is in the rings then.
    let alive = program.is_alive()?;
    let Some((attached, _)) = channel.slot_of(program)? else { return Ok(()) };
    drain.take_rings(channel, program)?;
    for ring in program.rings()? {
        if ring.attached.slot == attached.slot && (!alive || ring.attached != attached) {
            program.remove_ring(&ring)?;
        }
    }
    program.remove_if_empty(user).map(|_| ())
}

/// Takes back all that was switched on for a session, in every directory.
fn clear(name: &str, channels: &[Channel]) -> Result<bool, UstError> {
    let mut left = false;
    let (places, mut notes) = places();
    for place in &places {
        let wanted = Channel::wanted(&place.user).unwrap_or_default();
        let of = |c: &&Channel| {
            place.is_of(name, &c.path())
                && (place.home || channels.iter().any(|own| own.same_order(c)))
        };
        for channel in wanted.iter().filter(of) {
            left |= notes.of(channel.withdraw(&place.user)).is_some();
        }
    }
    // The second look finds a program that was starting and found the channel configurations before.
    left |= stop_everywhere(name, &places, &mut notes);
    if left {
        std::thread::sleep(FORGET);
        stop_everywhere(name, &places, &mut notes);
    }
    for place in &places {
        for program in all(&place.user, &mut notes) {
            notes.of(free_all(&program, |path| place.is_of(name, path)));
            notes.of(program.remove_if_empty(&place.user));
        }
    }
    Ok(left)
}

/// Switches off what is on for a session. Says whether anything was.
fn stop_everywhere(name: &str, places: &[SessionDirectory], notes: &mut Notes) -> bool {
    let mut any = false;
    for place in places {
        for program in all(&place.user, notes) {
            let stopped = stop_all(&program, |path| place.is_of(name, path));
            any |= notes.of(stopped).unwrap_or(false);
        }
    }
    any
}

/// The directories of all users that this one may reach, of all mount namespaces.
pub(super) fn places() -> (Vec<SessionDirectory>, Notes) {
    let (mut places, mut notes) = (Vec::new(), Notes::default());
    for namespace in MountNamespace::all() {
        let (users, refused) = namespace.users();
        refused.iter().for_each(|e| notes.push(e.to_string()));
        for user in users {
            let home = namespace.is_here() && user.uid == me();
            places.push(SessionDirectory { user, home });
        }
    }
    (places, notes)
}

/// The programs of a user, the living and the dead.
pub(super) fn all(user: &UserDirectory, notes: &mut Notes) -> Vec<Program> {
    let (programs, refused) = Program::all(user);
    refused.iter().for_each(|e| notes.push(e.to_string()));
    programs
}

fn living(user: &UserDirectory, notes: &mut Notes) -> Vec<Program> {
    let mut programs = all(user, notes);
    programs.retain(|p| p.is_alive().unwrap_or(false));
    programs
}

fn lock(store: &SharedDir) -> Result<DirLock, UstError> {
    store.lock(PATIENCE).map_err(|e| {
        UstError::Session(format!(
            "another kymo has held the lock of sessions for a long time: {e}"
        ))
    })
}

fn session_of(channel: &Channel) -> Option<String> {
    let view = channel.view().ok()?;
    let (session, name) = (view.session(), view.channel());
    // A channel configuration under another name is none of ours.
    let named = [session, b".", name].concat();
    let same = channel.name().as_encoded_bytes() == named;
    String::from_utf8(session.to_vec()).ok().filter(|s| same && check_name(s).is_ok())
}

fn channels_of(store: &SharedDir, session: &str) -> Result<Vec<Channel>, UstError> {
    let mut channels = Channel::all(store)?;
    channels.retain(|c| session_of(c).as_deref() == Some(session));
    Ok(channels)
}

fn made(
    session: &str,
    channel: &str,
    ring: RingOptions,
    rules: Vec<EventRule>,
) -> Result<Channel, UstError> {
    Channel::new(&ChannelOptions {
        session: session.to_owned(),
        channel: if channel.is_empty() { DEFAULT_CHANNEL } else { channel }.to_owned(),
        rules,
        overwrite: ring.overwrite,
        sub_buffer: ring.sub_buffer,
        sub_buffers: ring.sub_buffers,
        pids: ring.pids,
    })
}

/// The channel of a changed order: rules that decide nothing are left out.
fn channel_with(mut config: ChannelConfig) -> Result<Channel, UstError> {
    while config.rules.last().is_some_and(|r| r.exclude) {
        config.rules.pop();
    }
    Channel::of(&config)
}

fn ring_of(channel: &Channel) -> Result<RingOptions, UstError> {
    let view = channel.view()?;
    Ok(RingOptions {
        overwrite: view.overwrite,
        sub_buffer: view.sub_buffer,
        sub_buffers: view.sub_buffers,
        pids: view.pids,
    })
}

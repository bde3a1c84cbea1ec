//! A channel over all programs there are and those that come: for as long as the
//! command runs that watches, or for a session that was started before.

use std::collections::BTreeMap;
use std::time::Duration;

use kymo_kernel::ftrace::is_left_behind;
use kymo_kernel::opaque_mapping::Alarm;

use super::channel::{Channel, ChannelOptions};
use super::error::UstError;
use super::futex_waiters::ProgramWaiter;
use super::mount_namespace::{MountNamespace, UserDirectory};
use super::program::{Program, ProgramId};
use super::slots::UnfitEvent;

/// Options of a watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Options of the channel.
    pub channel: ChannelOptions,
    /// Only these processes of those that run already; empty for all. Processes that
    /// start later come by the configuration's own pid.
    pub pids: Vec<u32>,
    /// Whether processes that run already are taken at all.
    pub running: bool,
}

/// A channel that lives as long as this value: what it switched on is switched off
/// and removed when it is dropped.
#[derive(Debug)]
pub struct ChannelWatch {
    channel: Channel,
    directories: Vec<Directory>,
    /// Notes on ignored input, without duplicates.
    notes: Vec<String>,
    fit: FilterFit,
    /// Whether programs are asked to say when there is something to take.
    listens: bool,
}

/// Compatibility of filters with the events of the programs seen.
#[derive(Debug, Default)]
struct FilterFit {
    /// Once each.
    unfit: Vec<UnfitEvent>,
    /// Events that are wanted, and those of them that a filter does not fit.
    wanted: usize,
    misfits: usize,
}

impl FilterFit {
    fn add(&mut self, channel: &Channel, program: &Program) {
        const MOST: usize = 64;
        self.wanted += channel.events(program).count();
        for unfit in channel.unfit(program) {
            self.misfits += 1;
            if self.unfit.len() < MOST && !self.unfit.contains(&unfit) {
                self.unfit.push(unfit);
            }
        }
    }
}

#[derive(Debug)]
struct Directory {
    user: UserDirectory,
    programs: BTreeMap<ProgramId, Program>,
    /// Waiters of those of them that have taken a slot.
    waiters: BTreeMap<ProgramId, ProgramWaiter>,
}

impl Directory {
    fn new(user: UserDirectory) -> Directory {
        Directory { user, programs: BTreeMap::new(), waiters: BTreeMap::new() }
    }
}

impl ChannelWatch {
    /// Switches the channel on in all programs that run, and for those that start.
    ///
    /// # Errors
    /// If no directory can be written to.
    pub fn start(
        namespaces: &[MountNamespace],
        options: &WatchOptions,
    ) -> Result<ChannelWatch, UstError> {
        let channel = Channel::new(&options.channel)?;
        let mut watch = ChannelWatch {
            channel,
            directories: Vec::new(),
            notes: Vec::new(),
            fit: FilterFit::default(),
            listens: false,
        };
        for namespace in namespaces {
            // Programs find channel configurations only where a directory is, and ours may be the first.
            if namespace.is_here() {
                namespace.own()?;
            }
            let (users, refused) = namespace.users();
            watch.note_all(refused);
            for user in users {
                remove_left_behind(&user);
                match watch.channel.publish(&user) {
                    Ok(()) => watch.directories.push(Directory::new(user)),
                    Err(e) => watch.note(&e),
                }
            }
        }
        if options.running {
            watch.attach_running(&options.pids);
        }
        Ok(watch)
    }

    fn attach_running(&mut self, pids: &[u32]) {
        let mut failed = Vec::new();
        for directory in &mut self.directories {
            let (programs, refused) = Program::all(&directory.user);
            failed.extend(refused);
            for program in programs {
                let wanted = pids.is_empty() || pids.contains(&program.id().pid);
                if !wanted || !program.is_alive().unwrap_or(false) {
                    continue;
                }
                match self.channel.attach(&program) {
                    Ok(Some(_)) => {
                        self.fit.add(&self.channel, &program);
                        directory.programs.insert(program.id().clone(), program);
                    }
                    Ok(None) => {}
                    Err(e) => failed.push(e),
                }
            }
        }
        self.note_all(failed);
    }

    /// The events of programs that came whose filter does not fit them, each once.
    pub fn unfit(&self) -> &[UnfitEvent] {
        &self.fit.unfit
    }

    /// Whether programs with such events came, and the filter fits none of the events.
    pub fn fits_none(&self) -> bool {
        self.fit.wanted > 0 && self.fit.misfits == self.fit.wanted
    }

    /// The channel.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Looks for programs that have come, and hands out all that record for the channel,
    /// the dead included.
    ///
    /// # Errors
    /// What `each` returns.
    pub fn round<E>(
        &mut self,
        mut each: impl FnMut(&Channel, &mut Program) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut failed = Vec::new();
        for directory in &mut self.directories {
            let names = directory.user.dir.names(4096).map(|(names, _)| names).unwrap_or_default();
            for id in names.iter().filter_map(|n| ProgramId::parse(n)) {
                if directory.programs.contains_key(&id) {
                    continue;
                }
                match Program::open(&directory.user, id) {
                    Ok(Some(program)) => match self.channel.slot_of(&program) {
                        Ok(Some(_)) => {
                            self.fit.add(&self.channel, &program);
                            directory.programs.insert(program.id().clone(), program);
                        }
                        Ok(None) => {}
                        Err(e) => failed.push(e),
                    },
                    Ok(None) => {}
                    Err(UstError::Shared(e)) if e.is_missing() => {}
                    Err(e) => failed.push(e),
                }
            }
            for program in directory.programs.values_mut() {
                if self.listens {
                    // Before it is read: later events are announced.
                    arm_waiter(&mut directory.waiters, &self.channel, program);
                }
                each(&self.channel, program)?;
            }
        }
        self.note_all(failed);
        Ok(())
    }

    /// From the next round on programs say when their rings fill up.
    pub fn listen(&mut self) {
        self.listens = true;
    }

    /// Sleeps until a program says so, at most so long or until the alarm rings. Says whether all
    /// programs were listened to.
    pub fn sleep(&self, alarm: &Alarm, most: Duration) -> bool {
        let waiters =
            self.directories.iter().flat_map(|f| f.waiters.values().map(ProgramWaiter::waiter));
        alarm.sleep(waiters, most)
    }

    /// Hands out the programs that have said so since they were last handed out.
    ///
    /// # Errors
    /// What `each` returns.
    pub fn signalled<E>(
        &mut self,
        mut each: impl FnMut(&Channel, &mut Program) -> Result<(), E>,
    ) -> Result<(), E> {
        for directory in &mut self.directories {
            for (id, waiter) in &directory.waiters {
                let Some(program) = directory.programs.get_mut(id) else { continue };
                if waiter.is_signalled(program) {
                    waiter.arm(program);
                    each(&self.channel, program)?;
                }
            }
        }
        Ok(())
    }

    /// Number of programs that record or recorded for it.
    pub fn programs(&self) -> usize {
        self.directories.iter().map(|f| f.programs.len()).sum()
    }

    /// Switches the events off, for programs that start, too. What is in the rings can
    /// still be taken.
    pub fn stop(&mut self) {
        for directory in &self.directories {
            let _ = self.channel.withdraw(&directory.user);
            for program in directory.programs.values() {
                let _ = self.channel.stop(program);
            }
        }
    }

    /// Notes on ignored input, and on filters that do not fit, with the reason.
    pub fn notes(&self) -> Vec<String> {
        let unfit = self.fit.unfit.iter().map(UnfitEvent::to_string);
        self.notes.iter().cloned().chain(unfit).collect()
    }

    fn note_all(&mut self, errors: Vec<UstError>) {
        errors.iter().for_each(|e| self.note(e));
    }

    fn note(&mut self, error: &UstError) {
        let text = error.to_string();
        if self.notes.len() < 16 && !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

impl Drop for ChannelWatch {
    fn drop(&mut self) {
        for directory in &self.directories {
            let _ = self.channel.withdraw(&directory.user);
            release(&self.channel, &directory.user, directory.programs.values());
            // Programs that started since the last round.
            let (others, _) = Program::all(&directory.user);
            let mine = |p: &&Program| matches!(self.channel.slot_of(p), Ok(Some(_)));
            release(&self.channel, &directory.user, others.iter().filter(mine));
        }
    }
}

/// Arms the waiter of a program that lives, so that it wakes the tool when there is something to take.
fn arm_waiter(
    waiters: &mut BTreeMap<ProgramId, ProgramWaiter>,
    channel: &Channel,
    program: &Program,
) {
    if !program.is_alive().unwrap_or(false) {
        waiters.remove(program.id());
        return;
    }
    if !waiters.contains_key(program.id())
        && let Some(waiter) = ProgramWaiter::of(channel, program)
    {
        waiters.insert(program.id().clone(), waiter);
    }
    if let Some(waiter) = waiters.get(program.id()) {
        waiter.arm(program);
    }
}

/// Takes a channel's slots and rings away.
fn release<'a>(
    channel: &Channel,
    user: &UserDirectory,
    programs: impl Iterator<Item = &'a Program>,
) {
    for program in programs {
        let _ = channel.detach(program);
        let _ = program.remove_if_empty(user);
    }
}

/// Removes the channel configurations, slots and rings that a killed tool has left.
fn remove_left_behind(user: &UserDirectory) {
    for channel in Channel::wanted(user).unwrap_or_default() {
        if !is_left_behind(&channel.name().to_string_lossy()) {
            continue;
        }
        let _ = channel.withdraw(user);
        let (programs, _) = Program::all(user);
        let mine = |p: &&Program| matches!(channel.slot_of(p), Ok(Some(_)));
        release(&channel, user, programs.iter().filter(mine));
    }
}

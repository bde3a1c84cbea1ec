//! Named sessions that outlive the command that made them. A session is a part in the
//! kernel (a trace instance: [`crate::ftrace::KernelSession`]), a part in programs (channel configurations in
//! shared memory: [`crate::ust::ProgramSession`]), or both under one name; what is asked of it
//! is asked of each. The kernel's part needs root and tracefs, the other needs neither.

mod error;
pub(crate) mod note;

use std::path::{Path, PathBuf};

use kymo_files::ctf::types::CtfVersion;
use kymo_files::tracedat::write::Format;
use kymo_kernel::ftrace::Selection;
use kymo_kernel::tracefs::Tracefs;
use kymo_ust::EventRule;

use crate::ftrace::{self, BufferMode, SessionOptions, SessionState, TraceEvent};
use crate::output;
use crate::ust::{self, DrainStats, MountNamespace, Notes, ProgramsState, RingOptions, UstError};

pub use error::SessionError;
use note::Part;

/// Access to the sessions of this machine.
#[derive(Debug)]
pub struct Sessions {
    /// Or why there is none.
    tracefs: Result<Tracefs, String>,
}

/// Options of a new session.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The kernel's part, if it is to have one.
    pub kernel: SessionOptions,
    /// Events of the kernel.
    pub events: Vec<TraceEvent>,
    /// Events of programs.
    pub rules: Vec<EventRule>,
    /// The channel that these go into, and its ring.
    pub channel: String,
    /// Its ring.
    pub ring: RingOptions,
}

/// A session that is there.
#[derive(Debug)]
pub struct Session {
    name: String,
    kernel: Option<ftrace::KernelSession>,
    programs: Option<ust::ProgramSession>,
}

/// Current state of a session.
#[derive(Clone, Debug)]
pub struct SessionSummary {
    /// Its name.
    pub name: String,
    /// Its part in the kernel.
    pub kernel: Option<SessionState>,
    /// Its part in programs.
    pub programs: Option<ProgramsState>,
    /// It had another part that was lost.
    pub lost: Option<String>,
}

/// A session in a list.
#[derive(Clone, Debug)]
pub enum ListedSession {
    /// It is there.
    There(Box<SessionSummary>),
    /// It was made, and is not there any more.
    Gone {
        /// Its name.
        name: String,
        /// The machine was started again since.
        rebooted: bool,
        /// Missing part.
        what: String,
    },
}

/// Written snapshot with its parts.
#[derive(Clone, Debug)]
pub struct SessionSnapshot {
    /// The file, or the directory of one that has events of programs.
    pub path: PathBuf,
    /// Snapshot of the kernel's events.
    pub kernel: Option<ftrace::KernelSnapshot>,
    /// Statistics of the program events, and notes.
    pub programs: Option<(DrainStats, Notes)>,
}

/// Options of writing a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct TakeOptions {
    /// Over a file that is not a recording.
    pub force: bool,
    /// The trace.dat's.
    pub format: Format,
    /// With the kernel's own snapshot, where it has one.
    pub by_kernel: bool,
    /// With the time behind its name.
    pub stamped: bool,
    /// Version of the traces of programs.
    pub ctf: CtfVersion,
}

/// Longest name of a session with a part in programs.
const MAX_NAME: usize = 40;

impl Sessions {
    /// With the machine's tracefs, or the reason why it cannot be used.
    pub fn new(tracefs: Result<Tracefs, String>) -> Sessions {
        Sessions { tracefs }
    }

    /// The machine's tracefs.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn tracefs(&self) -> Result<&Tracefs, SessionError> {
        self.tracefs.as_ref().map_err(|e| SessionError::Session(e.clone()))
    }

    /// Makes a session; nothing is traced yet. One that is to have no events is the
    /// kernel's where that is possible.
    ///
    /// # Errors
    /// If there is one of that name, or a part of it cannot be made.
    pub fn create(&self, name: &str, options: &CreateOptions) -> Result<Session, SessionError> {
        let kernel =
            !options.events.is_empty() || (options.rules.is_empty() && self.tracefs.is_ok());
        let there = match self.find(name) {
            // A directory of programs that cannot be trusted is the kernel's part all one.
            Err(SessionError::Programs(_)) if kernel && options.rules.is_empty() => None,
            there => there?,
        };
        if there.is_some() {
            return Err(SessionError::Session(format!("there is a session {name} already")));
        }
        let programs = if options.rules.is_empty() && kernel {
            None
        } else {
            if kernel {
                one_clock(name, &options.kernel.clock)?;
            }
            let rules = options.rules.clone();
            Some(make_programs(name, &options.channel, options.ring, rules)?)
        };
        let mut session = Session { name: name.to_owned(), kernel: None, programs };
        if kernel {
            let made = self
                .tracefs()
                .and_then(|tracefs| session.make_kernel(tracefs, &options.kernel, &options.events));
            if let Err(e) = made {
                // Half a session is none.
                if session.programs.is_some() {
                    destroy_programs(name)?;
                }
                return Err(e);
            }
        }
        Ok(session)
    }

    /// A session that was made before.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(&self, name: &str) -> Result<Session, SessionError> {
        if let Some(session) = self.find(name)? {
            return Ok(session);
        }
        let gone = gone(name).map(|(what, _)| {
            format!(
                "there is no session {name}; it was lost: {what}; `kymo session destroy` clears up"
            )
        });
        let unseen = || match &self.tracefs {
            Ok(_) => format!("there is no session {name}"),
            Err(e) => {
                format!(
                    "there is no session {name} of programs, and those of the kernel cannot be looked for: {e}"
                )
            }
        };
        Err(SessionError::Session(gone.unwrap_or_else(unseen)))
    }

    fn find(&self, name: &str) -> Result<Option<Session>, SessionError> {
        ftrace::KernelSession::check_name(name)?;
        let kernel = match &self.tracefs {
            Ok(tracefs) => ftrace::KernelSession::find(tracefs, name)?,
            Err(_) => None,
        };
        let programs =
            if name.len() <= MAX_NAME { ust::ProgramSession::open(name) } else { Ok(None) };
        let programs = match (programs, &kernel) {
            // Another user's directory in the place of our own must not hide the kernel's.
            (Err(_), Some(_)) => None,
            (programs, _) => programs?,
        };
        let there = kernel.is_some() || programs.is_some();
        Ok(there.then(|| Session { name: name.to_owned(), kernel, programs }))
    }

    /// All sessions, also those that were lost, and what was passed over.
    ///
    /// # Errors
    /// If their state cannot be read.
    pub fn list(&self) -> Result<(Vec<ListedSession>, Notes), SessionError> {
        let mut notes = Notes::default();
        let mut names = ust::ProgramSession::names().unwrap_or_else(|e| {
            notes.push(e.to_string());
            Vec::new()
        });
        if let Ok(tracefs) = &self.tracefs {
            names.extend(ftrace::KernelSession::names(tracefs)?);
        }
        names.extend(note::names());
        names.sort();
        names.dedup();
        let mut listed = Vec::new();
        for name in names {
            match self.find(&name) {
                Ok(Some(session)) => match session.state() {
                    Ok(state) => listed.push(ListedSession::There(Box::new(state))),
                    // Destroyed just now.
                    Err(e) if e.is_missing() => {}
                    Err(e) => return Err(e),
                },
                Ok(None) => {
                    listed.extend(gone(&name).map(|(what, rebooted)| ListedSession::Gone {
                        name,
                        rebooted,
                        what,
                    }))
                }
                // A file that is no note.
                Err(_) => {}
            }
        }
        Ok((listed, notes))
    }

    /// Removes a session: what it switched on is off, what was in its rings is gone. Returns
    /// whether there was one.
    ///
    /// # Errors
    /// If a part of it cannot be removed.
    pub fn destroy(&self, name: &str) -> Result<bool, SessionError> {
        ftrace::KernelSession::check_name(name)?;
        // Programs first: they can be removed by their creator.
        let programs = if name.len() <= MAX_NAME { destroy_programs(name) } else { Ok(false) };
        let kernel = match &self.tracefs {
            Ok(tracefs) => ftrace::KernelSession::destroy(tracefs, name)?,
            Err(_) => false,
        };
        Ok(kernel || programs?)
    }
}

impl Session {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its part in the kernel.
    pub fn kernel(&self) -> Option<&ftrace::KernelSession> {
        self.kernel.as_ref()
    }

    /// Whether it has a part in programs, so that it is written into a directory.
    pub fn has_programs(&self) -> bool {
        self.programs.is_some()
    }

    fn make_kernel(
        &mut self,
        tracefs: &Tracefs,
        options: &SessionOptions,
        events: &[TraceEvent],
    ) -> Result<(), SessionError> {
        let kernel = ftrace::KernelSession::create(tracefs, &self.name, options)?;
        if let Err(e) = kernel.enable(events) {
            ftrace::KernelSession::destroy(tracefs, &self.name)?;
            return Err(e.into());
        }
        self.kernel = Some(kernel);
        Ok(())
    }

    /// Switches events of the kernel on; a session without such a part gets one.
    ///
    /// # Errors
    /// If there are no such events.
    pub fn enable_kernel(
        &mut self,
        sessions: &Sessions,
        events: &[TraceEvent],
    ) -> Result<(), SessionError> {
        if let Some(kernel) = &self.kernel {
            kernel.enable(events)?;
            return Ok(());
        }
        let state = self.programs.as_ref().map(ust::ProgramSession::state).transpose()?;
        let overwrite = state.as_ref().is_none_or(|s| s.channels.iter().any(|c| c.overwrite));
        let options = SessionOptions {
            mode: if overwrite { BufferMode::Overwrite } else { BufferMode::Discard },
            buffer_kb: None,
            clock: "mono".into(),
            pids: Vec::new(),
        };
        self.make_kernel(sessions.tracefs()?, &options, events)?;
        if let (Some(kernel), Some(true)) = (&self.kernel, state.map(|s| s.started)) {
            kernel.set_tracing(true)?;
        }
        Ok(())
    }

    /// Switches events of programs on, in one of its channels; a session without such a
    /// part gets one.
    ///
    /// # Errors
    /// If the channel configurations cannot be written.
    pub fn enable_programs(
        &mut self,
        channel: &str,
        ring: Option<RingOptions>,
        otherwise: RingOptions,
        rules: Vec<EventRule>,
    ) -> Result<Notes, SessionError> {
        if let Some(programs) = &mut self.programs {
            return Ok(programs.enable(channel, ring, rules)?);
        }
        let Some(kernel) = &self.kernel else { return Ok(Notes::default()) };
        let state = kernel.state()?;
        one_clock(&self.name, &state.clock)?;
        let otherwise = RingOptions { overwrite: state.mode == BufferMode::Overwrite, ..otherwise };
        let ring = ring.unwrap_or(otherwise);
        let programs = self.programs.insert(make_programs(&self.name, channel, ring, rules)?);
        if state.tracing { Ok(programs.start()?) } else { Ok(Notes::default()) }
    }

    /// The events of programs that run whose filter does not fit them.
    pub fn unfit(&self) -> Vec<ust::UnfitEvent> {
        self.programs.as_ref().map(ust::ProgramSession::unfit).unwrap_or_default()
    }

    /// Switches events of the kernel off.
    ///
    /// # Errors
    /// If there are no such events.
    pub fn disable_kernel(&self, selection: &Selection) -> Result<(), SessionError> {
        match &self.kernel {
            Some(kernel) => kernel.disable(selection).map(|_| ()).map_err(Into::into),
            None => Err(self.without("events of the kernel")),
        }
    }

    /// Switches events of programs off, in one channel or in all.
    ///
    /// # Errors
    /// If the channel configurations cannot be written.
    pub fn disable_programs(
        &mut self,
        patterns: &[String],
        channel: Option<&str>,
    ) -> Result<Notes, SessionError> {
        match &mut self.programs {
            Some(programs) => Ok(programs.disable(patterns, channel)?),
            None => Err(self.without("events of programs")),
        }
    }

    fn without(&self, what: &str) -> SessionError {
        SessionError::Session(format!("session {} has no {what}", self.name))
    }

    /// Lets events be traced.
    ///
    /// # Errors
    /// If it has none.
    pub fn start(&mut self) -> Result<Notes, SessionError> {
        let kernel = self.kernel.as_ref().filter(|k| k.has_events().unwrap_or(true));
        let programs = self.programs.as_ref().is_some_and(ust::ProgramSession::has_events);
        if kernel.is_none() && !programs {
            return Err(SessionError::Session(format!(
                "session {0} has no events; kymo session enable {0} -e EVENT, or -u PROVIDER:NAME",
                self.name
            )));
        }
        if let Some(kernel) = kernel {
            kernel.set_tracing(true)?;
        }
        match &mut self.programs {
            Some(part) if programs => Ok(part.start()?),
            _ => Ok(Notes::default()),
        }
    }

    /// Lets no more events be traced; what there is stays.
    ///
    /// # Errors
    /// If a part cannot be stopped.
    pub fn stop(&mut self) -> Result<Notes, SessionError> {
        let notes = match &mut self.programs {
            Some(programs) => programs.stop(),
            None => Ok(Notes::default()),
        };
        if let Some(kernel) = &self.kernel {
            kernel.set_tracing(false)?;
        }
        Ok(notes?)
    }

    /// Returns the current state.
    ///
    /// # Errors
    /// If a part cannot be read.
    pub fn state(&self) -> Result<SessionSummary, SessionError> {
        let lost = note::read(&self.name).and_then(|note| {
            let kernel = note.kernel && self.kernel.is_none();
            let programs = is_here(&note) && self.programs.is_none();
            lost_part(kernel && kymo_kernel::system::is_root(), programs)
        });
        Ok(SessionSummary {
            name: self.name.clone(),
            kernel: self.kernel.as_ref().map(ftrace::KernelSession::state).transpose()?,
            programs: self.programs.as_ref().map(ust::ProgramSession::state).transpose()?,
            lost,
        })
    }

    /// Writes what is in the rings while tracing continues: a trace.dat, or where there are events
    /// of programs a directory with `kernel/trace.dat` and `ust/`. The events leave the rings: what
    /// is taken next begins where this ends.
    ///
    /// # Errors
    /// If it cannot be written, or the directory holds something.
    pub fn take(
        &mut self,
        path: &Path,
        options: TakeOptions,
    ) -> Result<SessionSnapshot, SessionError> {
        let mut taken = match (&self.kernel, &mut self.programs) {
            (Some(kernel), None) => {
                let kernel = kernel.take(path, options.force, options.format, options.by_kernel)?;
                SessionSnapshot { path: path.to_owned(), kernel: Some(kernel), programs: None }
            }
            (kernel, Some(programs)) => take_both(kernel.as_ref(), programs, path, options)?,
            (None, None) => return Err(self.without("part")),
        };
        if options.stamped {
            taken.path = output::set_aside(path).map_err(crate::ftrace::TraceError::from)?;
        }
        Ok(taken)
    }
}

/// Both parts at the same time, so that they tell of the same seconds.
fn take_both(
    kernel: Option<&ftrace::KernelSession>,
    programs: &mut ust::ProgramSession,
    path: &Path,
    options: TakeOptions,
) -> Result<SessionSnapshot, SessionError> {
    let failed = |error| UstError::Write { path: path.to_owned(), error };
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries.count(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
        Err(e) => return Err(failed(e).into()),
    };
    if entries > 0 {
        return Err(SessionError::Session(format!(
            "{} is not empty: snapshots of a session with events of programs are directories; name another one with -o, or use `kymo session rotate`, which adds the time to the name",
            path.display()
        )));
    }
    let ust = path.join("ust");
    std::fs::create_dir_all(&ust).map_err(failed)?;
    let kernel = match kernel {
        Some(kernel) if kernel.has_events()? => Some(kernel),
        _ => None,
    };
    std::thread::scope(|scope| {
        let of_programs = scope.spawn(|| programs.take(path, options.ctf));
        let of_kernel = kernel.map(|kernel| -> Result<ftrace::KernelSnapshot, SessionError> {
            let directory = path.join("kernel");
            std::fs::create_dir_all(&directory).map_err(failed)?;
            let file = directory.join("trace.dat");
            Ok(kernel.take(&file, options.force, options.format, options.by_kernel)?)
        });
        let of_programs =
            of_programs.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(SessionSnapshot {
            path: path.to_owned(),
            kernel: of_kernel.transpose()?,
            programs: Some(of_programs?),
        })
    })
}

fn one_clock(name: &str, clock: &str) -> Result<(), SessionError> {
    match clock {
        "mono" => Ok(()),
        _ => Err(SessionError::Session(format!(
            "session {name} has the clock {clock}; with events of programs it must be mono, which is theirs"
        ))),
    }
}

fn make_programs(
    name: &str,
    channel: &str,
    ring: RingOptions,
    rules: Vec<EventRule>,
) -> Result<ust::ProgramSession, SessionError> {
    let session = ust::ProgramSession::create(name, channel, ring, rules)?;
    // Without a directory for notes one that is lost is just gone.
    let _ = note::add(name, Part::Programs(MountNamespace::here().base()));
    Ok(session)
}

fn destroy_programs(name: &str) -> Result<bool, SessionError> {
    let there = ust::ProgramSession::destroy(name)?;
    Ok(note::remove(name, Part::Programs(MountNamespace::here().base())) || there)
}

/// Returns the missing part of a session that is noted and does not exist, and whether the machine
/// was rebooted.
fn gone(name: &str) -> Option<(String, bool)> {
    let note = note::read(name)?;
    let rebooted = note.is_of_earlier_boot();
    let programs = is_here(&note);
    if rebooted && (note.kernel || programs) {
        return Some(("the machine was started again".into(), true));
    }
    // Notes of before there were programs tell of no part.
    let kernel = note.kernel || note.programs.is_none();
    lost_part(kernel, programs).map(|what| (what, false))
}

/// Orders elsewhere ($KYMO_UST_DIR) may well be there.
fn is_here(note: &note::SessionNote) -> bool {
    note.programs.as_deref() == Some(MountNamespace::here().base())
}

fn lost_part(kernel: bool, programs: bool) -> Option<String> {
    let removed = || {
        format!(
            "its channel configurations in {} were removed",
            MountNamespace::here().base().display()
        )
    };
    match (kernel, programs) {
        (false, false) => None,
        (true, false) => Some("its trace instance was removed".into()),
        (false, true) => Some(removed()),
        (true, true) => Some(format!("its trace instance was removed, {}", removed())),
    }
}

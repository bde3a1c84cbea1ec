//! Fetching a file: from the cache, or from the first server that has it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::cache::{self, Arriving, Held};
use crate::env::ClientConfig;
use crate::error::FetchError;
use crate::request::{self, Response};

/// Requested file of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Artifact<'a> {
    /// Its debug file.
    Debuginfo,
    /// The binary itself.
    Executable,
    /// A source file, by its absolute path when it was compiled.
    Source(&'a str),
}

impl Artifact<'_> {
    fn request(self) -> String {
        match self {
            Artifact::Debuginfo => "debuginfo".into(),
            Artifact::Executable => "executable".into(),
            Artifact::Source(path) => format!("source{}", escaped(path)),
        }
    }

    fn file_name(self) -> String {
        match self {
            Artifact::Debuginfo => "debuginfo".into(),
            Artifact::Executable => "executable".into(),
            Artifact::Source(path) => format!("source{}", cache::flat(path)),
        }
    }
}

/// Progress of a download, for a progress bar. Called from the threads that fetch.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The server.
    pub server: &'a str,
    /// Build-id of the file.
    pub build_id: &'a str,
    /// Bytes that came.
    pub got: u64,
    /// Bytes announced.
    pub expected: Option<u64>,
    /// It is over, well or not.
    pub done: bool,
}

/// Hears of progress.
pub type OnProgress = Box<dyn Fn(Progress<'_>) + Send + Sync>;
/// Says why a file that came is not what it should be.
pub type Check<'a> = &'a dyn Fn(&Path) -> Result<(), String>;

/// Asks servers.
pub struct Client {
    config: ClientConfig,
    progress: Option<OnProgress>,
    files: AtomicU64,
    bytes: AtomicU64,
    misses: AtomicU64,
    failures: Mutex<Vec<Failure>>,
}

#[derive(Clone, Debug)]
struct Failure {
    server: String,
    what: String,
    condemned: bool,
}

/// Fetched files and errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files that came from servers.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that no server had.
    pub misses: u64,
    /// Server and what happened, each once.
    pub failures: Vec<(String, String)>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Client {
    /// A client; `progress` hears what comes.
    pub fn new(config: ClientConfig, progress: Option<OnProgress>) -> Client {
        Client {
            config,
            progress,
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            failures: Mutex::default(),
        }
    }

    /// Finds a file: its path in the cache, or nothing. `check` must accept it
    /// before it is kept. May be called by several threads.
    pub fn find(&self, build_id: &str, what: Artifact<'_>, check: Check<'_>) -> Option<PathBuf> {
        if build_id.is_empty() || !build_id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let place = self.config.cache.join(build_id).join(what.file_name());
        match cache::look(&place, self.config.misses) {
            Held::File => return Some(place),
            Held::Miss => return None,
            Held::Nothing => {}
        }
        let mut all_answered = true;
        for server in &self.config.servers {
            if self.condemned(server) {
                all_answered = false;
                continue;
            }
            let came = self.fetch(server, build_id, what, &place, check);
            self.show(server, build_id, 0, None, true);
            match came {
                Ok(bytes) => {
                    self.files.fetch_add(1, Ordering::Relaxed);
                    self.bytes.fetch_add(bytes, Ordering::Relaxed);
                    return Some(place);
                }
                Err(FetchError::NotFound) => {}
                Err(e) => {
                    all_answered = false;
                    let what = match e {
                        // A fault of this file says which one.
                        ref e if !e.condemns() => format!("{build_id}/{}: {e}", what.request()),
                        ref e => e.to_string(),
                    };
                    self.fail(server, what, e.condemns());
                }
            }
        }
        if all_answered {
            self.misses.fetch_add(1, Ordering::Relaxed);
            // Without the note it is asked for again next time, which is no harm.
            let _ = cache::miss(&place);
        }
        None
    }

    /// Fetched files and errors so far.
    pub fn report(&self) -> Report {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        Report {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            failures: failures.iter().map(|f| (f.server.clone(), f.what.clone())).collect(),
        }
    }

    /// A server that failed is not asked again: it costs its time-out once.
    fn condemned(&self, server: &str) -> bool {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.iter().any(|f| f.condemned && f.server == server)
    }

    fn fail(&self, server: &str, what: String, condemned: bool) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        // Several threads may meet the same fault concurrently.
        let same =
            |f: &Failure| f.server == server && (f.what == what || (condemned && f.condemned));
        if !failures.iter().any(same) {
            failures.push(Failure { server: server.to_owned(), what, condemned });
        }
    }

    fn show(&self, server: &str, build_id: &str, got: u64, expected: Option<u64>, done: bool) {
        if let Some(progress) = &self.progress {
            progress(Progress { server, build_id, got, expected, done });
        }
    }

    /// Gives the number of bytes that came.
    fn fetch(
        &self,
        server: &str,
        build_id: &str,
        what: Artifact<'_>,
        place: &Path,
        check: Check<'_>,
    ) -> Result<u64, FetchError> {
        let url = format!("{server}/buildid/{build_id}/{}", what.request());
        let mut response = request::get(&url, self.config.largest, self.config.timeout)?;
        let limit = self.config.largest;
        if let Some(size) = response.length.filter(|size| *size > limit) {
            return Err(FetchError::TooLarge { size, limit });
        }
        let mut arriving = Arriving::beside(place)?;
        self.receive(server, build_id, &mut response, &mut arriving)?;
        if response.got == 0 {
            return Err(FetchError::Refused("it is empty".into()));
        }
        check(arriving.path()).map_err(FetchError::Refused)?;
        arriving.keep(place)?;
        Ok(response.got)
    }

    fn receive(
        &self,
        server: &str,
        build_id: &str,
        response: &mut Response,
        arriving: &mut Arriving,
    ) -> Result<(), FetchError> {
        let ClientConfig { timeout, longest, largest, .. } = self.config;
        let begin = Instant::now();
        let end = longest.map(|l| begin + l);
        let mut buf = vec![0; 64 << 10];
        // Within each stretch of the time-out a least number of bytes must come.
        let (mut stretch, mut before) = (begin + timeout, 0);
        loop {
            let now = Instant::now();
            let slow = |after| FetchError::Slow { got: response.got, after };
            if end.is_some_and(|end| now >= end) {
                return Err(slow(now - begin));
            }
            if now >= stretch {
                if response.got - before < ClientConfig::LEAST_BYTES {
                    return Err(slow(now - begin));
                }
                (stretch, before) = (now + timeout, response.got);
            }
            response.set_deadline(end.map_or(stretch, |end| end.min(stretch)));
            let got = match response.read(&mut buf)? {
                Some(0) => return Ok(()),
                Some(got) => got,
                // Whether that is too slow is decided above.
                None => continue,
            };
            if response.got > largest {
                return Err(FetchError::TooLarge { size: response.got, limit: largest });
            }
            arriving
                .file
                .write_all(buf.get(..got).unwrap_or_default())
                .map_err(|error| FetchError::Cache { path: arriving.path().to_owned(), error })?;
            self.show(server, build_id, response.got, response.length, false);
        }
    }
}

/// A path as part of an address.
fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for b in path.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(b));
            }
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_are_escaped() {
        assert_eq!(super::escaped("/a b/c++.h"), "/a%20b/c%2B%2B.h");
    }
}

//! The page of `kymo view`, served to a browser on this machine: HTTP/1.1, GET alone, one request
//! a connection. Addresses begin with a token that only who reads this terminal knows, and name
//! the page or the number of a piece: no path of a request reaches the file system.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use kymo_analysis::tracks::TrackProgress;
use kymo_view::trace_page::{ServedPage, reading_page};
use serde_json::Value;

use super::door::Door;

/// Longest head of a request.
const MOST_HEAD: usize = 8 << 10;
/// Time in which a head must have come, and within which a part of the answer must be taken.
const PATIENCE: Duration = Duration::from_secs(10);
const TEXT: &str = "text/plain; charset=utf-8";
/// Time in which a recording may become a page before it is said that it is being read.
const A_MOMENT: Duration = Duration::from_millis(300);
/// Connections at a time.
const MOST_CONNECTIONS: usize = 32;

/// A file of a recording as it was when the page was made.
#[derive(PartialEq)]
struct FileMark {
    size: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

/// Finds the critical path of a thread between two times.
pub(super) type FindPath = Box<dyn Fn(u32, (u64, u64)) -> anyhow::Result<Value> + Send + Sync>;

/// A recording that is being read.
pub(super) struct Reading {
    pub(super) title: String,
    /// Its first and last time, where known before.
    pub(super) span: Option<(u64, u64)>,
    pub(super) progress: Arc<TrackProgress>,
}

struct PageServer {
    reading: Reading,
    /// Once all is read.
    made: Mutex<Option<Arc<(ServedPage, FindPath)>>>,
    is_made: Condvar,
    /// One path is looked for at a time.
    looks: Mutex<()>,
    token: String,
    port: u16,
    recordings: Vec<(PathBuf, Option<FileMark>)>,
    connections: AtomicUsize,
}

/// A server that answers while the recording is read.
pub(super) struct Serving {
    server: Arc<PageServer>,
    accepting: JoinHandle<()>,
    file: File,
}

impl Serving {
    /// Returns the file for the page's data.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Shows the page, until the process is interrupted.
    pub(super) fn show(self, made: (ServedPage, FindPath)) -> anyhow::Result<()> {
        *self.server.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(made));
        self.server.is_made.notify_all();
        self.accepting.join().map_err(|_| anyhow::anyhow!("the server ended"))
    }
}

/// Begins to serve the page of a recording, and prints its address.
pub(super) fn serve(
    reading: Reading,
    recordings: &[PathBuf],
    port: u16,
) -> anyhow::Result<Serving> {
    let mut door = Door::take(port)?;
    let mark = |path: &PathBuf| (path.clone(), mark_of(path));
    let recordings = recordings.iter().map(mark).collect();
    let address = door.address();
    let server = Arc::new(PageServer::new(reading, recordings, (door.token.clone(), door.port)));
    let served = Arc::clone(&server);
    let thread = std::thread::Builder::new().name("serve".into());
    sayln!("[ kymo view: {address} (Ctrl-C ends it) ]");
    door.open_browser();
    let Door { listener, file, .. } = door;
    let accepting = thread.spawn(move || accept(&listener, &served))?;
    Ok(Serving { server, accepting, file })
}

fn accept(listener: &TcpListener, server: &Arc<PageServer>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Descriptors ran out, or the peer is gone.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        if server.connections.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
            server.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let answer = Arc::clone(server);
        let started = std::thread::Builder::new().name("answer".into()).spawn(move || {
            let _counted = CountedConnection(&answer.connections);
            // The client is gone: the error has no receiver.
            let _ = answer.answer(stream);
        });
        if started.is_err() {
            server.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A connection that counts until it is dropped, also by a panic of its thread.
struct CountedConnection<'a>(&'a AtomicUsize);

impl Drop for CountedConnection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn mark_of(path: &Path) -> Option<FileMark> {
    use std::os::unix::fs::MetadataExt as _;
    let facts = std::fs::metadata(path).ok()?;
    Some(FileMark { size: facts.len(), modified: facts.modified().ok(), inode: facts.ino() })
}

/// An answer: status with its words, type, body.
type Answer<'a> = (&'static str, &'static str, Cow<'a, [u8]>);

impl PageServer {
    fn new(
        reading: Reading,
        recordings: Vec<(PathBuf, Option<FileMark>)>,
        (token, port): (String, u16),
    ) -> PageServer {
        let (made, is_made) = (Mutex::new(None), Condvar::new());
        let (looks, connections) = (Mutex::new(()), AtomicUsize::new(0));
        PageServer { reading, made, is_made, looks, token, port, recordings, connections }
    }

    /// Returns the page of the recording; waits a moment for it.
    fn made(&self) -> Option<Arc<(ServedPage, FindPath)>> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let made = self.is_made.wait_timeout_while(made, A_MOMENT, |made| made.is_none());
        made.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let head = read_head(&mut stream)?;
        let (status, kind, body) = match &head {
            None => {
                ("431 Request Header Fields Too Large", "text/plain", Cow::from(&b"too long\n"[..]))
            }
            Some(head) => self.find(head),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: close\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(&body)?;
        stream.shutdown(Shutdown::Write)?;
        // Who still sends would get no answer if the connection were closed now.
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut rest = [0u8; 4096];
        for _ in 0..16 {
            if stream.read(&mut rest)? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn find(&self, head: &str) -> Answer<'_> {
        let refuse = |status, why: &'static str| (status, TEXT, Cow::from(why.as_bytes()));
        let mut lines = head.split("\r\n");
        let mut request = lines.next().unwrap_or("").split(' ');
        let (method, path) = (request.next().unwrap_or(""), request.next().unwrap_or(""));
        let version = request.next().unwrap_or("");
        if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || request.next().is_some() {
            return refuse("400 Bad Request", "not HTTP/1.1\n");
        }
        if method != "GET" {
            return refuse("405 Method Not Allowed", "GET alone\n");
        }
        // A name that another user let point here is not this server's.
        let hosts = lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host").then(|| value.trim())
        });
        let hosts: Vec<&str> = hosts.collect();
        let own = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        if !matches!(&*hosts, [host] if own.iter().any(|o| o == host)) {
            return refuse("403 Forbidden", "not this host\n");
        }
        let Some((token, name)) = path.strip_prefix('/').and_then(|p| p.split_once('/')) else {
            return refuse("404 Not Found", "not here\n");
        };
        if !is_same(token.as_bytes(), self.token.as_bytes()) {
            return refuse("403 Forbidden", "wrong token\n");
        }
        let made = self.made();
        let Some((page, find_path)) = made.as_deref() else {
            if !name.is_empty() {
                return refuse("503 Service Unavailable", "the recording is being read\n");
            }
            let Reading { title, span, progress } = &self.reading;
            let page = reading_page(title, *span, &progress.so_far());
            return ("200 OK", "text/html; charset=utf-8", Cow::from(page));
        };
        if name.is_empty() {
            return ("200 OK", "text/html; charset=utf-8", Cow::from(page.html.clone()));
        }
        let number = name.strip_prefix("p/").and_then(|n| n.parse::<usize>().ok());
        let piece = number.and_then(|n| page.pieces.get(n)).copied();
        let path = name.strip_prefix("why/").and_then(path_request);
        if piece.is_none() && path.is_none() {
            return refuse("404 Not Found", "not here\n");
        }
        if self.recordings.iter().any(|(path, mark)| mark_of(path) != *mark) {
            return refuse("410 Gone", "the recording was moved or changed\n");
        }
        if let Some((at, length)) = piece {
            let mut bytes = vec![0; length];
            return match page.file.read_exact_at(&mut bytes, at) {
                Ok(()) => ("200 OK", "application/octet-stream", Cow::from(bytes)),
                Err(_) => refuse("500 Internal Server Error", "the piece cannot be read\n"),
            };
        }
        let Some((tid, times)) = path else { return refuse("404 Not Found", "not here\n") };
        let _one = self.looks.lock();
        match find_path(tid, times) {
            Ok(path) => ("200 OK", "application/json", Cow::from(path.to_string().into_bytes())),
            Err(e) => {
                ("422 Unprocessable Content", TEXT, Cow::from(format!("{e:#}\n").into_bytes()))
            }
        }
    }
}

/// Thread and times of a request for a path: `TID/FROM/TO`.
fn path_request(words: &str) -> Option<(u32, (u64, u64))> {
    let (tid, times) = words.split_once('/')?;
    let (from, to) = times.split_once('/')?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from <= to).then_some((tid.parse().ok()?, (from, to)))
}

/// The head of a request; none if it is too long or no text.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let end = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut part = [0u8; 1024];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let got = stream.read(&mut part)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The end may have come in two parts.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(part.get(..got).unwrap_or(&[]));
        if head.len() > MOST_HEAD {
            return Ok(None);
        }
        let tail = head.get(from..).unwrap_or(&[]);
        if let Some(at) = tail.windows(4).position(|w| w == b"\r\n\r\n") {
            head.truncate(from + at);
            return Ok(String::from_utf8(head).ok());
        }
    }
}

/// Compares in a time that does not tell how much is the same.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test is a panic")]
mod tests {
    use super::super::door::unnamed_file;
    use super::*;

    fn server(token: &str, port: u16) -> PageServer {
        let progress = Arc::default();
        let reading = Reading { title: "perf.data".into(), span: None, progress };
        let recordings = vec![(PathBuf::from("/nowhere"), None)];
        PageServer::new(reading, recordings, (token.into(), port))
    }

    #[test]
    fn what_is_being_read_is_shown_until_it_is() {
        let server = server("t", 1);
        let ask = |name: &str| {
            let (status, _, body) =
                server.find(&format!("GET /t/{name} HTTP/1.1\r\nHost: 127.0.0.1:1"));
            (status, String::from_utf8_lossy(&body).into_owned())
        };
        server.reading.progress.note_times(5, &[0, 1, 2]);
        let (status, page) = ask("");
        assert!(status.starts_with("200") && page.contains("3 events so far"), "{page}");
        assert!(ask("p/0").0.starts_with("503"));
        assert!(server.find("GET /x/ HTTP/1.1\r\nHost: 127.0.0.1:1").0.starts_with("403"));
    }

    #[test]
    fn only_who_has_host_and_token_gets_an_answer() {
        let mut file = unnamed_file().unwrap();
        file.write_all(b"a piece").unwrap();
        let server = server("abc", 8080);
        let page = ServedPage { html: b"page".to_vec(), file, pieces: vec![(2, 5)] };
        let find_path: FindPath = Box::new(|tid, _| anyhow::bail!("no thread {tid}"));
        *server.made.lock().unwrap() = Some(Arc::new((page, find_path)));
        let host = "Host: 127.0.0.1:8080";
        let check = |request: &str, headers: &str, status: &str| {
            let (got, ..) = server.find(&format!("{request}\r\n{headers}"));
            assert!(got.starts_with(status), "{request} {headers}: {got}");
        };
        check("GET /abc/ HTTP/1.1", host, "200");
        check("GET /abc/ HTTP/1.1", "hOST:localhost:8080", "200");
        check("GET /abc/p/0 HTTP/1.1", host, "200");
        assert_eq!(server.find(&format!("GET /abc/p/0 HTTP/1.1\r\n{host}")).2, &b"piece"[..]);
        check("GET /abc/why/1/0/18446744073709551616 HTTP/1.1", host, "404");
        check("GET /abc/why/1/5/4 HTTP/1.1", host, "404");
        for path in ["/abc/p/1", "/abc/p/-1", "/abc/p/0/", "/abc/../etc/passwd", "/abc", "/", ""] {
            check(&format!("GET {path} HTTP/1.1"), host, "404");
        }
        for path in ["/abd/", "/ab/", "//", "/abc%2f/"] {
            check(&format!("GET {path} HTTP/1.1"), host, "403");
        }
        check("GET /abc/ HTTP/1.1", "Host: evil.example:8080", "403");
        check("GET /abc/ HTTP/1.1", "", "403");
        check("GET /abc/ HTTP/1.1", &format!("{host}\r\n{host}"), "403");
        check("POST /abc/ HTTP/1.1", host, "405");
        check("HEAD /abc/ HTTP/1.1", host, "405");
        for request in ["GET /abc/ HTTP/2", "GET /abc/ HTTP/1.1 x", "", "GET  /abc/ HTTP/1.1"] {
            check(request, host, "400");
        }
    }

    #[test]
    fn a_recording_that_changed_is_gone() {
        let server = server("t", 1);
        let (html, file) = (Vec::new(), unnamed_file().unwrap());
        let find_path: FindPath = Box::new(|_, _| Ok(Value::Null));
        let page = ServedPage { html, file, pieces: vec![(0, 0)] };
        *server.made.lock().unwrap() = Some(Arc::new((page, find_path)));
        let server = PageServer { recordings: vec![(PathBuf::from("/dev/null"), None)], ..server };
        assert!(server.find("GET /t/p/0 HTTP/1.1\r\nHost: 127.0.0.1:1").0.starts_with("410"));
    }
}

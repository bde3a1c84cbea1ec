//! Servers of every kind, on loopback: a good one, and those that hang, trickle,
//! lie about lengths, redirect in circles, answer with pages or with nonsense.
//! What is checked: a good file arrives whole and where libdebuginfod looks for
//! it; anything else leaves nothing behind, says why, and in time.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kymo_debuginfod::{Artifact, Client, ClientConfig};

const ID: &str = "00112233445566778899aabbccddeeff00112233";
const TIMEOUT: Duration = Duration::from_millis(1500);

/// A server that hands each request's path and connection to `answer`.
struct Server {
    url: String,
    asked: Arc<AtomicUsize>,
}

fn server(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let (answer, count) = (Arc::new(answer), Arc::clone(&asked));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, count) = (Arc::clone(&answer), Arc::clone(&count));
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                    request.push(byte[0]);
                }
                let request = String::from_utf8(request).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                answer(&path, &mut stream);
            });
        }
    });
    Server { url, asked }
}

fn ok(stream: &mut TcpStream, body: &[u8]) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
}

fn say(stream: &mut TcpStream, text: &str) {
    let _ = stream.write_all(text.as_bytes());
}

fn client(servers: &[&str], cache: &Path) -> Client {
    let config = ClientConfig {
        servers: servers.iter().map(|s| (*s).to_owned()).collect(),
        cache: cache.to_owned(),
        timeout: TIMEOUT,
        longest: None,
        largest: 1 << 20,
        misses: Duration::from_secs(600),
    };
    Client::new(config, None)
}

/// Accepts what begins as ELF does.
fn elf(path: &Path) -> Result<(), String> {
    let bytes = std::fs::read(path).unwrap();
    if bytes.starts_with(b"\x7fELF") { Ok(()) } else { Err("it is no ELF file".into()) }
}

fn all_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut all = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() { all.extend(all_below(&path)) } else { all.push(path) }
    }
    all
}

fn body() -> Vec<u8> {
    let mut body = b"\x7fELF".to_vec();
    body.extend((0..300_000u32).map(|i| (i * 7 % 251) as u8));
    body
}

#[test]
fn a_file_arrives_whole_by_length_in_chunks_and_to_the_end() {
    let s = server(|path, stream| match path {
        p if p == format!("/buildid/{ID}/debuginfo") => ok(stream, &body()),
        p if p == format!("/buildid/{ID}/executable") => {
            say(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for part in body().chunks(70_001) {
                say(stream, &format!("{:x};ext=1\r\n", part.len()));
                let _ = stream.write_all(part);
                say(stream, "\r\n");
            }
            say(stream, "0\r\n\r\n");
        }
        p if p == format!("/buildid/{ID}/source/usr/src/a%20b.c") => {
            say(stream, "HTTP/1.0 200 OK\r\n\r\nint main;\n");
        }
        _ => say(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    });
    let dir = tempfile::tempdir().unwrap();
    let c = client(&[&s.url], dir.path());
    let directory = dir.path().join(ID);
    let debug = c.find(ID, Artifact::Debuginfo, &elf).unwrap();
    assert_eq!((&debug, std::fs::read(&debug).unwrap()), (&directory.join("debuginfo"), body()));
    let program = c.find(ID, Artifact::Executable, &elf).unwrap();
    assert_eq!(std::fs::read(&program).unwrap(), body());
    let source = c.find(ID, Artifact::Source("/usr/src/a b.c"), &|_| Ok(())).unwrap();
    assert_eq!(source, directory.join("source##usr##src##a b.c"));
    assert_eq!(std::fs::read(&source).unwrap(), b"int main;\n");
    // From now on the cache answers.
    assert_eq!(s.asked.load(Ordering::Relaxed), 3);
    assert_eq!(c.find(ID, Artifact::Debuginfo, &elf), Some(debug));
    assert_eq!(s.asked.load(Ordering::Relaxed), 3);
    let report = c.report();
    assert_eq!((report.files, report.bytes), (3, 2 * body().len() as u64 + 10));
    assert_eq!(report.failures, []);
}

#[test]
fn what_no_server_has_is_not_asked_for_twice() {
    let s = server(|_, stream| say(stream, "HTTP/1.1 404 Not Found\r\n\r\n"));
    let dir = tempfile::tempdir().unwrap();
    let c = client(&[&s.url], dir.path());
    for _ in 0..3 {
        assert_eq!(c.find(ID, Artifact::Debuginfo, &elf), None);
    }
    assert_eq!(s.asked.load(Ordering::Relaxed), 1);
    let left = all_below(dir.path());
    assert_eq!(left, [dir.path().join(ID).join("debuginfo")]);
    assert_eq!(std::fs::metadata(&left[0]).unwrap().len(), 0);
    assert_eq!((c.report().misses, c.report().failures), (1, vec![]));
}

#[test]
fn redirections_are_followed_and_circles_are_left() {
    let good = server(|_, stream| ok(stream, &body()));
    let to = good.url.clone();
    let s = server(move |path, stream| match path {
        "/away" => say(stream, &format!("HTTP/1.1 302 F\r\nLocation: {to}/x\r\n\r\n")),
        "/circle" => say(stream, "HTTP/1.1 307 T\r\nLocation: /circle\r\n\r\n"),
        p if p == format!("/buildid/{ID}/near") => {
            say(stream, "HTTP/1.1 308 P\r\nLocation: /away\r\n\r\n");
        }
        p if p.ends_with("debuginfo") => say(stream, "HTTP/1.1 301 M\r\nLocation: near\r\n\r\n"),
        _ => say(stream, "HTTP/1.1 301 M\r\nLocation: /circle\r\n\r\n"),
    });
    let dir = tempfile::tempdir().unwrap();
    let c = client(&[&s.url], dir.path());
    assert!(c.find(ID, Artifact::Debuginfo, &elf).is_some());
    assert_eq!(c.find(ID, Artifact::Executable, &elf), None);
    assert_eq!(c.report().failures, [(s.url, "too many redirections".to_owned())]);
}

/// Each answer, and a piece of what is said about it.
#[test]
fn bad_answers_are_named_in_time_and_leave_nothing() {
    type Answer = fn(&mut TcpStream);
    let cases: &[(&str, Answer, &str)] = &[
        ("silence", |_| std::thread::sleep(TIMEOUT * 20), "no answer within 1.5 s"),
        ("a closed door", |_| {}, "the connection broke"),
        ("garbage", |s| say(s, "SSH-2.0-OpenSSH_9\r\n\r\n"), "makes no sense"),
        ("bytes", |s| drop(s.write_all(&[0xff; 100_000])), "makes no sense"),
        ("an error", |s| say(s, "HTTP/1.1 500 No\r\n\r\nsorry"), "answered 500"),
        ("refused", |s| say(s, "HTTP/1.1 403 No\r\n\r\nsorry"), "answered 403"),
        ("a page", |s| ok(s, b"<html>log in first</html>"), "no ELF file"),
        ("nothing", |s| ok(s, b""), "it is empty"),
        (
            "too much",
            |s| say(s, "HTTP/1.1 200 O\r\nContent-Length: 9999999999999\r\n\r\n"),
            "9999999999999 bytes",
        ),
        (
            "no number",
            |s| say(s, "HTTP/1.1 200 O\r\nContent-Length: 1e9\r\n\r\n"),
            "content-length header not a number",
        ),
        (
            "unasked packing",
            |s| say(s, "HTTP/1.1 200 O\r\nContent-Encoding: gzip\r\n\r\nx"),
            "encoded",
        ),
        (
            "a cut",
            |s| say(s, "HTTP/1.1 200 O\r\nContent-Length: 1000\r\n\r\n\x7fELF"),
            "4 of 1000 bytes",
        ),
        (
            "a cut chunk",
            |s| say(s, "HTTP/1.1 200 O\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nab"),
            "was cut",
        ),
        (
            "a bad chunk",
            |s| say(s, "HTTP/1.1 200 O\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab"),
            "chunk length",
        ),
        (
            "endless headers",
            |s| {
                say(s, "HTTP/1.1 200 OK\r\n");
                while s.write_all(b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n").is_ok() {}
            },
            "headers",
        ),
        (
            "endless data",
            |s| {
                say(s, "HTTP/1.1 200 OK\r\n\r\n\x7fELF");
                while s.write_all(&[0; 65536]).is_ok() {}
            },
            "at most 1048576",
        ),
        (
            "a trickle",
            |s| {
                say(s, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
                while s.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            },
            "too slow",
        ),
        (
            "a trickle within the size of a chunk",
            |s| {
                say(s, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf;");
                while s.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            },
            "too slow: 0 bytes",
        ),
        (
            "a trickle behind a redirection",
            |s| {
                say(s, "HTTP/1.1 302 F\r\nLocation: /x\r\nContent-Length: 100000\r\n\r\n");
                while s.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            },
            "no answer within 1.5 s",
        ),
        (
            "another scheme",
            |s| say(s, "HTTP/1.1 302 F\r\nLocation: ftp://localhost/x\r\n\r\n"),
            "unknown scheme",
        ),
        (
            "a trickle of headers",
            |s| {
                say(s, "HTTP/1.1 200 OK\r\n");
                while s.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            },
            "no answer within",
        ),
        (
            "a stop in the middle",
            |s| {
                say(s, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n\x7fELF");
                std::thread::sleep(TIMEOUT * 20);
            },
            "too slow: 4 bytes",
        ),
    ];
    for (name, answer, said) in cases {
        let answer = *answer;
        let s = server(move |_, stream| answer(stream));
        let dir = tempfile::tempdir().unwrap();
        let c = client(&[&s.url], dir.path());
        let begin = Instant::now();
        assert_eq!(c.find(ID, Artifact::Debuginfo, &elf), None, "{name}");
        // Loaded machines are slow; a hang would be twice as long and more.
        assert!(begin.elapsed() < TIMEOUT * 10, "{name}: {:?}", begin.elapsed());
        let report = c.report();
        let [(server, what)] = &report.failures[..] else { panic!("{name}: {report:?}") };
        assert!(server == &s.url && what.contains(said), "{name}: {what}");
        assert_eq!(all_below(dir.path()), [""; 0].map(PathBuf::from), "{name}");
        assert_eq!(report.bytes, 0, "{name}");
    }
}

#[test]
fn a_server_that_hangs_costs_its_time_once_and_others_are_asked() {
    let hung = server(|_, _| std::thread::sleep(TIMEOUT * 20));
    let good = server(|_, stream| ok(stream, &body()));
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let dir = tempfile::tempdir().unwrap();
    let c = client(&[&hung.url, &gone, &good.url], dir.path());
    let begin = Instant::now();
    for n in 0..8 {
        let id = format!("{n:040x}");
        assert!(c.find(&id, Artifact::Debuginfo, &elf).is_some());
    }
    assert!(begin.elapsed() < TIMEOUT * 5, "{:?}", begin.elapsed());
    assert_eq!(hung.asked.load(Ordering::Relaxed), 1);
    let report = c.report();
    assert_eq!((report.files, report.failures.len()), (8, 2), "{report:?}");
    assert!(report.failures[1].1.contains("cannot connect"), "{report:?}");
}

#[test]
fn a_secure_server_without_a_trusted_certificate_is_refused() {
    // It answers the greeting of TLS with words.
    let s = server(|_, _| {});
    let url = s.url.replace("http://", "https://");
    let words = server(|_, stream| say(stream, "HTTP/1.1 400 Bad Request\r\n\r\n"));
    let other = words.url.replace("http://", "https://");
    let dir = tempfile::tempdir().unwrap();
    let c = client(&[&url, &other], dir.path());
    assert_eq!(c.find(ID, Artifact::Debuginfo, &elf), None);
    let report = c.report();
    assert_eq!(report.failures.len(), 2, "{report:?}");
    for (_, what) in report.failures {
        assert!(what.contains("no secure connection") || what.contains("no answer"), "{what}");
    }
}

#[test]
fn names_that_are_no_build_ids_are_never_asked_for() {
    let s = server(|_, stream| ok(stream, &body()));
    let dir = tempfile::tempdir().unwrap();
    let c = client(&[&s.url, "ftp://x", "nonsense"], dir.path());
    for bad in ["", "../../etc", "00/11", "xyz"] {
        assert_eq!(c.find(bad, Artifact::Debuginfo, &elf), None, "{bad}");
    }
    assert_eq!(s.asked.load(Ordering::Relaxed), 0);
}

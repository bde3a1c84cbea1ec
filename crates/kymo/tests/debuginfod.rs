//! Debug files that come from a debuginfod server: Debian's own server on loopback,
//! the cache shared with its client, a secure server, and a server that hangs.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, Outcome, Workload, perf, require, run_command};

const NEEDS: [Need; 4] = [Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("debuginfod-find")];

/// A process that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A recorded program without symbols, whose debug file lies elsewhere.
struct Stripped {
    w: Workload,
    home: tempfile::TempDir,
    build_id: String,
}

impl Stripped {
    #[track_caller]
    fn new() -> Stripped {
        let (w, home) = (Workload::spin(), tempfile::tempdir().unwrap());
        let tool = |name: &str, args: &[&str]| {
            let mut command = Command::new(name);
            command.args(args).current_dir(w.dir());
            run_command(command).success().stdout
        };
        let file = w.file("perf.data");
        let args = ["record", "-q", "-e", "cpu-clock:u", "-N", "-o", &file, w.arg(), "20"];
        let _ = perf(args).success();
        std::fs::create_dir(w.dir().join("served")).unwrap();
        tool("objcopy", &["--only-keep-debug", "spin", "served/spin.debug"]);
        tool("strip", &["spin"]);
        let notes = tool("readelf", &["-n", "spin"]);
        let id =
            notes.lines().find_map(|l| l.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
        Stripped { w, home, build_id: id }
    }

    #[track_caller]
    fn report(&self, urls: &str, more: &[&str], env: &[(&str, &str)]) -> Outcome {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let file = self.w.file("perf.data");
        command.args(["report", "--stdio", "--no-children", "-s", "dso,sym", "-i", &file]);
        command.args(more).env("HOME", self.home.path()).env("DEBUGINFOD_URLS", urls);
        command.env_remove("DEBUGINFOD_CACHE_PATH").env_remove("XDG_CACHE_HOME");
        command.envs(env.iter().copied());
        run_command(command).success()
    }

    fn debug_file(&self) -> Vec<u8> {
        std::fs::read(self.w.dir().join("served/spin.debug")).unwrap()
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until somebody answers there.
fn wait_for(port: u16) {
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(30), "nobody answers on port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn find(s: &Stripped, urls: &str) -> Outcome {
    let mut command = Command::new("debuginfod-find");
    command.args(["debuginfo", &s.build_id]).env("HOME", s.home.path());
    command.env("DEBUGINFOD_URLS", urls).env_remove("XDG_CACHE_HOME");
    command.env_remove("DEBUGINFOD_CACHE_PATH");
    run_command(command)
}

#[test]
fn debians_server_and_client_agree() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new();
    let port = free_port();
    let child = Command::new("debuginfod")
        .args(["-d", ":memory:", "-p", &port.to_string(), "-F"])
        .arg(s.w.dir().join("served"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let server = Server(child.unwrap());
    wait_for(port);
    let url = format!("http://127.0.0.1:{port}");
    let offline = s.report("", &[], &[]).stdout;
    assert!(!offline.contains("[.] hot") && !offline.contains("debuginfod"), "{offline}");
    let refused = s.report(&url, &["--no-debuginfod"], &[]).stdout;
    assert_eq!(refused, offline);
    // The server looks through its folder in its own time; what it does not have yet
    // is not asked for again, so each try has an empty cache.
    let begin = Instant::now();
    let fetched = loop {
        let text = s.report(&url, &[], &[]).stdout;
        if text.contains("[.] hot") || begin.elapsed() > Duration::from_secs(30) {
            break text;
        }
        std::fs::remove_dir_all(s.home.path().join(".cache")).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(fetched.contains("[.] hot") && fetched.contains("debuginfod: "), "{fetched}");
    let kept = s.home.path().join(".cache/debuginfod_client").join(&s.build_id).join("debuginfo");
    assert_eq!(std::fs::read(&kept).unwrap(), s.debug_file());
    drop(server);
    // From now on both programs find it in the cache.
    let again = s.report(&url, &[], &[]).stdout;
    assert!(again.contains("[.] hot") && !again.contains("debuginfod:"), "{again}");
    let theirs = find(&s, "http://127.0.0.1:1").success();
    assert_eq!(Path::new(theirs.stdout.trim()), kept);
}

#[test]
fn what_debians_client_fetched_is_used() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new();
    let served = s.debug_file();
    let (url, _) = serve(move |stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", served.len());
        let _ = stream.write_all(&[head.as_bytes(), &served].concat());
    });
    let _ = find(&s, &url).success();
    let text = s.report("http://127.0.0.1:1", &[], &[]).stdout;
    assert!(text.contains("[.] hot") && !text.contains("cannot connect"), "{text}");
}

/// A server that says the same to everybody.
fn serve(answer: impl Fn(&mut TcpStream) + Send + 'static) -> (String, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
                request.push(byte[0]);
            }
            answer(&mut stream);
        }
    });
    (format!("http://127.0.0.1:{port}"), port)
}

#[test]
fn bad_servers_are_named_and_the_report_comes_in_time() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new();
    let (hung, _) = serve(|_| std::thread::sleep(Duration::from_secs(600)));
    let (page, _) = serve(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n<html>please log in</html>");
    });
    // Of another build: a debug file, but not this one.
    let other = std::fs::read("/bin/true").unwrap();
    let (wrong, _) = serve(move |stream| {
        let _ = stream.write_all(&[&b"HTTP/1.1 200 OK\r\n\r\n"[..], &other].concat());
    });
    let begin = Instant::now();
    let urls = format!("{hung} {page} {wrong} gopher://x/");
    let text = s.report(&urls, &[], &[("DEBUGINFOD_TIMEOUT", "1")]).stdout;
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert!(!text.contains("[.] hot"), "{text}");
    for (server, what) in [
        (hung, "no answer within 1 s"),
        (page, "what came was refused: not a usable ELF file"),
        (wrong, "what came was refused: its build-id is "),
        ("gopher://x".into(), "is no http or https address"),
    ] {
        let note = text.lines().find(|l| l.contains(&format!("{server}: ")));
        assert!(note.is_some_and(|l| l.contains(what)), "{server} {what}: {text}");
    }
}

#[test]
fn a_secure_server_is_trusted_by_its_certificate() {
    if !require(&[&NEEDS[..], &[Need::Tool("openssl")]].concat()) {
        return;
    }
    let s = Stripped::new();
    let dir = s.w.dir();
    let openssl = |args: &str| {
        let mut command = Command::new("openssl");
        command.args(args.split(' ')).current_dir(dir);
        run_command(command).success()
    };
    let subject = "-subj /CN=localhost -addext subjectAltName=DNS:localhost \
                   -addext basicConstraints=critical,CA:FALSE";
    let files = "-keyout key.pem -out cert.pem";
    let _ = openssl(&format!("req -x509 -newkey rsa:2048 -nodes -days 2 {files} {subject}"));
    // It serves files below its folder as they are.
    let place = dir.join("buildid").join(&s.build_id);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("debuginfo"), s.debug_file()).unwrap();
    let port = free_port();
    let mut server = Command::new("openssl");
    server.args(["s_server", "-quiet", "-WWW", "-cert", "cert.pem", "-key", "key.pem"]);
    server.args(["-accept", &port.to_string()]).current_dir(dir);
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Server(server.spawn().unwrap());
    wait_for(port);
    let url = format!("https://localhost:{port}");
    let stranger = s.report(&url, &[], &[]).stdout;
    assert!(!stranger.contains("[.] hot"), "{stranger}");
    assert!(stranger.contains("no secure connection: "), "{stranger}");
    let trusted = [("SSL_CERT_FILE", s.w.file("cert.pem"))];
    let trusted = [(trusted[0].0, trusted[0].1.as_str())];
    let text = s.report(&url, &[], &trusted).stdout;
    assert!(text.contains("[.] hot") && text.contains("1 file fetched"), "{text}");
}

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
        let args = ["record", "-q", "-e", "cpu-clock:u", "-N", "-o", &file, w.arg(), "100"];
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
        for proxy in ["all_proxy", "https_proxy", "http_proxy"] {
            command.env_remove(proxy).env_remove(proxy.to_uppercase());
        }
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

/// `kymo profile` asks for debug files as `kymo report` does.
#[test]
fn a_profile_has_the_names_that_a_report_has() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new();
    let kept = s.home.path().join(".cache/debuginfod_client").join(&s.build_id);
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::write(kept.join("debuginfo"), s.debug_file()).unwrap();
    let profile = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.arg("profile").args(more).args(["--", s.w.arg(), "50"]);
        command.env("HOME", s.home.path()).env("DEBUGINFOD_URLS", "http://127.0.0.1:1");
        command.env_remove("DEBUGINFOD_CACHE_PATH").env_remove("XDG_CACHE_HOME");
        run_command(command).success().stderr
    };
    let (asked, silent) = (profile(&[]), profile(&["--no-debuginfod"]));
    assert!(asked.contains("  hot  [") && !silent.contains("  hot  ["), "{asked}{silent}");
}

/// Waits until a server answers there.
fn wait_for(port: u16) {
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(30), "no answer on port {port}");
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
    // The server looks through its directory in its own time; what it does not have yet
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
    serve_paths(move |_, stream| answer(stream))
}

/// Server that calls `answer` with the requested path.
fn serve_paths(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> (String, u16) {
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
            let request = String::from_utf8_lossy(&request).into_owned();
            answer(request.split(' ').nth(1).unwrap_or_default(), &mut stream);
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
    let (circle, _) = serve(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: /again\r\n\r\n");
    });
    let (drip, _) = serve(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n\x7fELF");
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let (garbage, _) = serve(|stream| {
        let _ = stream.write_all(b"220 mail.example.org ESMTP\r\n\r\n");
    });
    let begin = Instant::now();
    let urls = format!("{hung} {page} {wrong} {circle} {drip} {garbage} gopher://x/");
    let text = s.report(&urls, &[], &[("DEBUGINFOD_TIMEOUT", "1")]).stdout;
    assert!(begin.elapsed() < Duration::from_secs(100), "{:?}", begin.elapsed());
    assert!(!text.contains("[.] hot"), "{text}");
    for (server, what) in [
        (hung, "no answer within 1 s"),
        (page, "what came was refused: not a usable ELF file"),
        (wrong, "what came was refused: its build-id is "),
        (circle, "too many redirections"),
        (drip, "too slow"),
        (garbage, "makes no sense"),
        ("gopher://x".into(), "is no http or https address"),
    ] {
        let note = text.lines().find(|l| l.contains(&format!("{server}: ")));
        assert!(note.is_some_and(|l| l.contains(what)), "{server} {what}: {text}");
    }
}

#[test]
fn a_proxy_of_the_environment_is_asked_for_a_way() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new();
    let (served, path) = (s.debug_file(), format!("/buildid/{}/debuginfo", s.build_id));
    let (proxy, _) = serve_paths(move |to, stream| {
        if to != "debug.invalid:8002" {
            return;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
            request.push(byte[0]);
        }
        let request = String::from_utf8_lossy(&request);
        assert!(request.to_lowercase().contains("host: debug.invalid:8002"), "{request}");
        let (status, body) = if request.split(' ').nth(1) == Some(&path) {
            ("200 OK", &served[..])
        } else {
            ("404 Not Found", &[][..])
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
    });
    let url = "http://debug.invalid:8002";
    let without = s.report(url, &[], &[]).stdout;
    assert!(!without.contains("[.] hot"), "{without}");
    assert!(without.contains("cannot find the host debug.invalid: "), "{without}");
    let text = s.report(url, &[], &[("http_proxy", &proxy)]).stdout;
    assert!(text.contains("[.] hot") && text.contains("1 file fetched"), "{text}");
    // What the environment excepts is asked directly.
    let (s, except) = (Stripped::new(), [("http_proxy", &*proxy), ("no_proxy", "debug.invalid")]);
    let direct = s.report(url, &[], &except).stdout;
    assert!(direct.contains("cannot find the host debug.invalid: "), "{direct}");
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
    // It serves files below its directory as they are.
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

const INLINED: &str = "
static volatile unsigned long sink;
static inline __attribute__((always_inline)) unsigned long innermost(unsigned long x)
{
	unsigned long r = 0;
	for (int i = 0; i < 50; i++)
		r += (x * 2654435761u) ^ (r >> 3);
	return r;
}
__attribute__((noinline)) void outer(unsigned long x)
{
	sink += innermost(x);
	__asm__ volatile(\"\");
}
int main(void)
{
	for (unsigned long i = 0; i < 2000000; i++)
		outer(i);
	return 0;
}
";

/// The debug file, the part of it that dwz put into a file that others share, and the
/// text of the source: each comes from the server, and from the cache afterwards.
#[test]
fn sources_and_shared_debug_files() {
    if !require(&[&NEEDS[..], &[Need::Tool("dwz")]].concat()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let inside = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).current_dir(directory.path());
        command.env("HOME", path("home")).env("KYMO_CACHE", "off").env("LC_ALL", "C");
        command.env_remove("DEBUGINFOD_CACHE_PATH").env_remove("XDG_CACHE_HOME");
        command.env_remove("DEBUGINFOD_URLS");
        command
    };
    let tool = |program: &str, args: &[&str]| run_command(inside(program, args)).success().stdout;
    std::fs::write(path("a.c"), INLINED).unwrap();
    tool("gcc", &["-O2", "-g", "-fno-omit-frame-pointer", "-o", "spin", "a.c"]);
    tool("perf", &["record", "-q", "-e", "cpu-clock:u", "-g", "-o", "perf.data", "./spin"]);
    std::fs::copy(path("spin"), path("two")).unwrap();
    tool("dwz", &["-m", "shared", "spin", "two"]);
    tool("objcopy", &["--only-keep-debug", "spin", "spin.debug"]);
    tool("strip", &["spin"]);
    let id = |file: &str| {
        let notes = tool("readelf", &["-n", file]);
        notes.lines().find_map(|l| l.trim().strip_prefix("Build ID: ").map(str::to_owned)).unwrap()
    };
    let (own, shared) = (id("spin"), id("shared"));
    let text_of = path("a.c").canonicalize().unwrap().display().to_string();
    let served = [
        (format!("/buildid/{own}/debuginfo"), std::fs::read(path("spin.debug")).unwrap()),
        (format!("/buildid/{shared}/debuginfo"), std::fs::read(path("shared")).unwrap()),
        (format!("/buildid/{own}/source{text_of}"), INLINED.into()),
    ];
    for gone in ["spin.debug", "shared", "two", "a.c"] {
        std::fs::remove_file(path(gone)).unwrap();
    }
    let (url, _) = serve_paths(move |asked, stream| {
        let found = served.iter().find(|(path, _)| path == asked);
        let _ = match found {
            Some((_, body)) => {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(&[head.as_bytes(), body].concat())
            }
            None => stream.write_all(b"HTTP/1.1 404 Not Found\r\n\r\n"),
        };
    });
    let kymo = |urls: &str, args: &[&str]| {
        let mut command = inside(env!("CARGO_BIN_EXE_kymo"), args);
        command.args(["-i", "perf.data"]).env("DEBUGINFOD_URLS", urls);
        run_command(command).success().stdout
    };
    let report = ["report", "--stdio", "--no-children", "-g", "caller", "-s", "sym,srcline"];
    let annotate = ["annotate", "outer"];
    let line = "r += (x * 2654435761u) ^ (r >> 3);";
    // Without a server: names of nothing.
    let bare = kymo("", &report);
    assert!(!bare.contains("outer") && !bare.contains("a.c:"), "{bare}");
    for urls in [url.as_str(), "http://127.0.0.1:1"] {
        let text = kymo(urls, &report);
        assert!(text.contains("innermost (inlined)") && text.contains("a.c:"), "{urls}: {text}");
        assert_eq!(text.contains("2 files fetched"), urls == url, "{urls}: {text}");
        let text = kymo(urls, &annotate);
        assert!(text.contains(line), "{urls}: {text}");
        assert!(!text.contains("cannot connect"), "{text}");
    }
    // Debian's client has them under the same names.
    let mut find = inside("debuginfod-find", &["source", &own, &text_of]);
    let found = run_command({
        find.env("DEBUGINFOD_URLS", "http://127.0.0.1:1");
        find
    });
    let kept = found.success().stdout;
    assert_eq!(std::fs::read_to_string(kept.trim()).unwrap(), INLINED);
    // A server that has the file without its shared part: lines, and it is said.
    std::fs::remove_dir_all(path("home/.cache/debuginfod_client").join(&shared)).unwrap();
    let text = kymo("http://127.0.0.1:1", &report);
    assert!(text.contains("[.] outer") && text.contains("shared debug file"), "{text}");
    // No name is made up of what happens to be at the same place of another file.
    assert_eq!(text.matches("(inlined)").count(), text.matches("[unknown] (inlined)").count());
    assert!(text.contains("[unknown] (inlined)"), "{text}");
}

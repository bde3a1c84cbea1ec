//! Sender and listener over loopback: whole recordings, broken ones, hostile ones.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use kymo_kernel::process::Signals;
use rustix::pipe::{PipeFlags, pipe_with};

use super::super::pump::Sink as _;
use super::super::trace_header::{GrowingHeader, Layout};
use super::frame::{self, Begin, FrameKind, Header};
use super::{ListenEvent, ListenOptions, Listened, ReceiveError, Remote, SendError, auth, listen};

const LIMIT: Duration = Duration::from_secs(60);
const SLOTS: u64 = 64;

fn trace_header(streams: usize, text: u8) -> GrowingHeader {
    let len = SLOTS as usize + 16 * streams;
    let slots = (0..streams).map(|s| SLOTS + 16 * s as u64).collect();
    let layout = Layout { len: len as u64, slots, page_size: 4096, ..Layout::default() };
    GrowingHeader { bytes: vec![text; len], layout }
}

fn page(of: u8) -> Vec<u8> {
    vec![of; 4096]
}

/// Returns the contents of the file by its table.
fn contents(path: &Path, streams: usize) -> Vec<Vec<u8>> {
    let file = std::fs::File::open(path).unwrap();
    let number = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    };
    (0..streams as u64)
        .map(|s| {
            let mut bytes = vec![0; number(SLOTS + 16 * s + 8) as usize];
            file.read_exact_at(&mut bytes, number(SLOTS + 16 * s)).unwrap();
            bytes
        })
        .collect()
}

struct Listener {
    dir: tempfile::TempDir,
    address: SocketAddr,
    events: Receiver<ListenEvent>,
    thread: std::thread::JoinHandle<Listened>,
}

impl Listener {
    fn start(count: u64, change: impl FnOnce(&mut ListenOptions)) -> Listener {
        let dir = tempfile::tempdir().unwrap();
        let mut options = ListenOptions {
            dir: dir.path().to_owned(),
            bind: "127.0.0.1:0".parse().unwrap(),
            secret: None,
            allow_unauthenticated: false,
            max_size: None,
            max_senders: 4,
            count: Some(count),
            sync: false,
        };
        change(&mut options);
        let (send, events) = channel();
        let thread = std::thread::spawn(move || {
            let signals = Signals::listen(&[]).unwrap();
            let send = std::sync::Mutex::new(send);
            // The test may have seen enough and be gone.
            listen(&options, &signals, &|e| drop(send.lock().unwrap().send(e))).unwrap()
        });
        let ListenEvent::Listening { address } = events.recv_timeout(LIMIT).unwrap() else {
            panic!("it listens first")
        };
        Listener { dir, address, events, thread }
    }

    fn event(&self) -> ListenEvent {
        self.events.recv_timeout(LIMIT).unwrap()
    }

    fn connect(&self, name: &str, trace_header: &GrowingHeader) -> Result<Remote, SendError> {
        let ending = Arc::new(AtomicBool::new(false));
        Remote::connect(&self.address.to_string(), name, trace_header, None, ending)
    }

    fn file(&self, directory: &str) -> std::path::PathBuf {
        self.dir.path().join(directory).join("trace.dat")
    }
}

fn send_by_pipe(remote: &mut Remote, stream: usize, pages: &[u8]) {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    rustix::io::write(&write, pages).unwrap();
    remote.pipe(stream, &read, pages.len()).unwrap();
}

#[test]
fn senders_at_the_same_time_have_directories_of_their_own() {
    let listener = Listener::start(2, |_| {});
    let mut a = listener.connect("host", &trace_header(2, b'a')).unwrap();
    let mut b = listener.connect("host", &trace_header(3, b'b')).unwrap();
    assert_eq!((a.directory(), b.directory()), ("host", "host.2"));
    for n in 0..200 {
        send_by_pipe(&mut a, usize::from(n % 2), &[page(n), page(n)].concat());
        b.bytes(usize::from(n % 3), &page(n)).unwrap();
    }
    let mut last = trace_header(2, b'A');
    last.bytes.extend_from_slice(&[b'+'; 2_500_000][..900_000]);
    last.layout.len = last.bytes.len() as u64;
    a.finish(Some(&last)).unwrap();
    b.finish(None).unwrap();
    assert_eq!((a.sent(), a.acknowledged()), (400 * 4096, 400 * 4096));
    let expected = |streams: u8, copies: usize| -> Vec<Vec<u8>> {
        (0..streams)
            .map(|s| {
                (0..200).filter(|n| n % streams == s).flat_map(|n| page(n).repeat(copies)).collect()
            })
            .collect()
    };
    assert_eq!(contents(&listener.file("host"), 2), expected(2, 2));
    assert_eq!(contents(&listener.file("host.2"), 3), expected(3, 1));
    let bytes = std::fs::read(listener.file("host")).unwrap();
    assert_eq!((bytes[0], bytes[900_000]), (b'A', b'+'));
    assert_eq!(listener.thread.join().unwrap(), Listened { complete: 2, broken: 0 });
}

#[test]
fn what_was_acknowledged_outlives_the_sender() {
    let listener = Listener::start(1, |_| {});
    let mut remote = listener.connect("h", &trace_header(1, b'x')).unwrap();
    for n in 0..50 {
        remote.bytes(0, &page(n)).unwrap();
    }
    let start = Instant::now();
    while remote.acknowledged() < 10 * 4096 {
        assert!(start.elapsed() < LIMIT);
        remote.attend().unwrap();
        // Readable while it grows.
        assert!(contents(&listener.file("h"), 1)[0].len() as u64 >= remote.acknowledged());
        std::thread::sleep(Duration::from_millis(10));
    }
    let acknowledged = remote.acknowledged();
    drop(remote);
    assert!(matches!(listener.event(), ListenEvent::Started { .. }));
    let ListenEvent::Broken { stored, error, .. } = listener.event() else { panic!() };
    assert!(matches!(error, ReceiveError::Closed), "{error}");
    assert!(stored >= acknowledged);
    let got = contents(&listener.file("h"), 1);
    let sent: Vec<u8> = (0..50).flat_map(page).collect();
    assert_eq!(got[0], sent[..stored as usize]);
    assert_eq!(listener.thread.join().unwrap(), Listened { complete: 0, broken: 1 });
}

#[test]
fn the_limit_of_a_listener_is_reported_to_the_sender() {
    let listener = Listener::start(1, |o| o.max_size = Some(8 * 4096));
    let mut remote = listener.connect("h", &trace_header(1, b'x')).unwrap();
    let start = Instant::now();
    let error = loop {
        assert!(start.elapsed() < LIMIT);
        if let Err(e) = remote.bytes(0, &page(1)).and_then(|()| Ok(remote.attend()?)) {
            break e.to_string();
        }
    };
    assert!(error.contains("larger than 32768 bytes"), "{error}");
    assert!(matches!(listener.event(), ListenEvent::Started { .. }));
    let ListenEvent::Broken { stored, .. } = listener.event() else { panic!() };
    assert_eq!(stored, 8 * 4096);
}

#[test]
fn hostile_senders_get_nothing() {
    let listener = Listener::start(100, |_| {});
    let begin = |streams: usize| {
        let f = trace_header(streams, b'x');
        let begin = Begin { name: "../../evil".into(), layout: f.layout.clone() };
        let mut bytes = frame::frame(FrameKind::Begin, &begin.encode());
        bytes.extend(frame::frame(FrameKind::TraceHeader, &f.bytes));
        bytes
    };
    let raw = |kind: u8, stream: u16, len: u32, position: u64| {
        let mut h = Header { kind: FrameKind::Pages, stream, len, position }.encode();
        h[0] = kind;
        h.to_vec()
    };
    let pages = FrameKind::Pages as u8;
    let mut lying_header = begin(1);
    let at = lying_header.len() - trace_header(1, 0).bytes.len() - 1;
    lying_header[at] = 1;
    let huge =
        Begin { name: "x".into(), layout: Layout { len: u64::MAX, ..trace_header(1, 0).layout } };
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"GET / HTTP/1.1\r\n\r\n".repeat(3), "unknown frame kind 71"),
        (raw(pages, 0, 4096, 0), "a frame of kind 3 is out of place"),
        (frame::frame(FrameKind::Begin, &huge.encode()), "a header of 18446744073709551615 bytes"),
        (frame::frame(FrameKind::Begin, &[]), "is cut short"),
        (lying_header, "a piece of the header for byte"),
        ([begin(2), raw(pages, 2, 4096, 0)].concat(), "pages for stream 2 of 2"),
        ([begin(2), raw(pages, 1, 4095, 0)].concat(), "4095 bytes for byte 0 of stream 1"),
        ([begin(2), raw(pages, 1, 0, 0)].concat(), "0 bytes for byte 0 of stream 1"),
        ([begin(2), raw(pages, 1, 4096, 1 << 50)].concat(), "for byte 1125899906842624"),
        ([begin(2), raw(pages, 1, u32::MAX, 0)].concat(), "with 4294967295 bytes, more than"),
        ([begin(2), raw(FrameKind::Ready as u8, 0, 0, 0)].concat(), "kind 16 is out of place"),
        (
            [begin(2), frame::frame(FrameKind::End, &[0; 15])].concat(),
            "a list of totals of 15 bytes",
        ),
        (
            [begin(1), frame::frame(FrameKind::End, &[1; 8])].concat(),
            "claims to have sent 72340172838076673 bytes",
        ),
        ([begin(2), begin(1)].concat(), "kind 1 is out of place"),
    ];
    for (bytes, expected) in cases {
        let mut socket = TcpStream::connect(listener.address).unwrap();
        auth::greet(&mut socket, None).unwrap();
        socket.write_all(&bytes).unwrap();
        // The listener closes the connection; it says why unless it is gone first.
        let _ = socket.read_to_end(&mut Vec::new());
        let error = loop {
            match listener.event() {
                ListenEvent::Started { .. } => {}
                ListenEvent::Refused { error, .. } => break error,
                ListenEvent::Broken { error, stored: 0, .. } => break error,
                other => panic!("{expected}: {other:?}"),
            }
        };
        assert!(error.to_string().contains(expected), "{error}: {expected}");
    }
    // Not even a greeting.
    TcpStream::connect(listener.address).unwrap().write_all(&[0xff; 100]).unwrap();
    let ListenEvent::Refused { error, .. } = listener.event() else { panic!() };
    assert!(error.to_string().contains("does not speak this protocol"), "{error}");
    for entry in std::fs::read_dir(listener.dir.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with("_.._evil"), "{name}");
    }
    assert!(!listener.dir.path().parent().unwrap().join("evil").exists());
    // It still serves who behaves.
    let mut good = listener.connect("good", &trace_header(1, b'x')).unwrap();
    good.bytes(0, &page(3)).unwrap();
    good.finish(None).unwrap();
    assert_eq!(contents(&listener.file("good"), 1), [page(3)]);
}

/// A listener that greets and then does what the test wants.
fn odd_listener(
    then: impl FnOnce(TcpStream) + Send + 'static,
) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        auth::receive(&mut socket, None).unwrap();
        // What the recording is: the description and the trace header.
        let (begin, trace_header) =
            (Begin { name: "h".into(), layout: trace_header(1, b'x').layout }, trace_header(1, 0));
        let words = begin.encode().len() + trace_header.bytes.len() + 2 * frame::HEADER;
        socket.read_exact(&mut vec![0; words]).unwrap();
        then(socket);
    });
    (address, thread)
}

fn connect(address: SocketAddr, ending: &Arc<AtomicBool>) -> Result<Remote, SendError> {
    Remote::connect(&address.to_string(), "h", &trace_header(1, b'x'), None, ending.clone())
}

#[test]
fn a_stalled_listener_costs_no_memory_and_does_not_hold_the_end_up() {
    let (done, wait) = channel::<()>();
    let (address, thread) = odd_listener(move |mut socket| {
        socket.write_all(&frame::frame(FrameKind::Ready, b"f")).unwrap();
        let _ = wait.recv();
    });
    let ending = Arc::new(AtomicBool::new(false));
    let mut remote = connect(address, &ending).unwrap();
    let (start, flag) = (Instant::now(), ending.clone());
    let timer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        flag.store(true, Ordering::Relaxed);
    });
    // Pages are taken only while the system's own buffers have room; one that
    // was begun is waited for until the end.
    while remote.ready().unwrap() {
        assert!(start.elapsed() < LIMIT);
        if remote.bytes(0, &page(1)).is_err() {
            assert!(ending.load(Ordering::Relaxed));
            break;
        }
    }
    timer.join().unwrap();
    assert!(remote.sent() < 64 << 20, "{}", remote.sent());
    assert_eq!(remote.acknowledged(), 0);
    let start = Instant::now();
    let error = remote.finish(None).unwrap_err();
    assert!(matches!(error, SendError::Stalled(_)), "{error}");
    assert!(start.elapsed() < LIMIT);
    assert!(remote.missing().starts_with("0 of "), "{}", remote.missing());
    drop(done);
    thread.join().unwrap();
}

#[test]
fn a_listener_that_dies_is_noticed() {
    let (address, thread) = odd_listener(|mut socket| {
        socket.write_all(&frame::frame(FrameKind::Ready, b"f")).unwrap();
        socket.write_all(&frame::frame(FrameKind::Ack, &frame::totals([0]))).unwrap();
        // Dies in the middle of the first page.
        socket.read_exact(&mut [0; 100]).unwrap();
    });
    let mut remote = connect(address, &Arc::default()).unwrap();
    let start = Instant::now();
    let error = loop {
        assert!(start.elapsed() < LIMIT);
        if let Err(e) = remote.bytes(0, &page(1)) {
            break e;
        }
    };
    thread.join().unwrap();
    let error = error.downcast::<SendError>().unwrap();
    assert!(matches!(error, SendError::Gone(_)), "{error}");
}

#[test]
fn hostile_listeners_are_found_out() {
    for (word, expected) in [
        (frame::frame(FrameKind::Ack, &frame::totals([1 << 60])), "1152921504606846976 arrived"),
        (frame::frame(FrameKind::Ack, &[0; 7]), "cut short"),
        (frame::frame(FrameKind::Pages, &[0; 16]), "kind 3 is out of place"),
        (
            vec![FrameKind::Ack as u8, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0],
            "more than",
        ),
        (
            frame::frame(FrameKind::Refused, b"go\x1b[31m away"),
            "the listener gave up: go?[31m away",
        ),
    ] {
        let (address, thread) = odd_listener(move |mut socket| {
            socket.write_all(&word).unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let error = connect(address, &Arc::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        thread.join().unwrap();
    }
}

#[test]
fn nobody_listens_to_the_world_by_accident() {
    let options = ListenOptions {
        dir: "/nonexistent".into(),
        bind: "0.0.0.0:0".parse().unwrap(),
        secret: None,
        allow_unauthenticated: false,
        max_size: None,
        max_senders: 1,
        count: None,
        sync: false,
    };
    let signals = Signals::listen(&[]).unwrap();
    let error = listen(&options, &signals, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("--no-secret"), "{error}");
}

#[test]
fn silent_peers_keep_no_sender_out() {
    let listener = Listener::start(1, |_| {});
    let connect = |_| TcpStream::connect(listener.address).unwrap();
    let silent: Vec<TcpStream> = (0..200).map(connect).collect();
    let mut sender = listener.connect("host", &trace_header(1, b'a')).unwrap();
    send_by_pipe(&mut sender, 0, &page(1));
    sender.finish(None).unwrap();
    assert_eq!(contents(&listener.file("host"), 1), [page(1)]);
    drop(silent);
}

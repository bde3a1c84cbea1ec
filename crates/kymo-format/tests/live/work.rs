//! Something of everything: files, processes, signals, timers, sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) fn everything() {
    files();
    shell();
    tcp("127.0.0.1:0");
    tcp("[::1]:0");
    udp("127.0.0.1:0");
    udp("[::1]:0");
    threads();
}

fn files() {
    let path = std::env::temp_dir().join(format!("kymo-format-{}", std::process::id()));
    let mut f = std::fs::File::create(&path).unwrap();
    for _ in 0..64 {
        f.write_all(&[7; 4096]).unwrap();
    }
    f.sync_all().unwrap();
    drop(f);
    let _ = std::fs::read(&path).unwrap();
    let big = vec![1u8; 8 << 20];
    assert_eq!(big.iter().map(|b| u64::from(*b)).sum::<u64>(), 8 << 20);
    std::fs::rename(&path, path.with_extension("moved")).unwrap();
    std::fs::remove_file(path.with_extension("moved")).unwrap();
    let _ = std::fs::metadata("/nonexistent/kymo");
}

fn shell() {
    let script = "ls -l /etc >/dev/null; for i in 1 2 3; do (exit $i); done; \
        sleep 0.05 & sleep 0.01; kill -USR1 $! ; wait; cat /proc/self/maps | sort | head -3; \
        dd if=/dev/zero of=/dev/null bs=64k count=50; nice -n 5 true; sh -c 'kill -SEGV $$'; true";
    let status = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

fn tcp(address: &str) {
    // A machine without IPv6 has less to compare, no less to pass.
    let Ok(listener) = TcpListener::bind(address) else { return };
    let at = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut s, _) = listener.accept().unwrap();
        let mut got = Vec::new();
        s.read_to_end(&mut got).unwrap();
        got.len()
    });
    let mut client = TcpStream::connect(at).unwrap();
    for _ in 0..50 {
        client.write_all(&[3; 3000]).unwrap();
    }
    drop(client);
    assert_eq!(server.join().unwrap(), 150_000);
    // The server has stopped listening.
    let _ = TcpStream::connect(at);
}

fn udp(address: &str) {
    let Ok(a) = UdpSocket::bind(address) else { return };
    a.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    a.send_to(&[9; 700], a.local_addr().unwrap()).unwrap();
    let mut buf = [0; 1000];
    assert_eq!(a.recv_from(&mut buf).unwrap().0, 700);
}

fn threads() {
    let (tx, rx) = std::sync::mpsc::channel();
    let t = std::thread::spawn(move || {
        for i in 0..200 {
            tx.send(i).unwrap();
            if i % 20 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    assert_eq!(rx.iter().count(), 200);
    t.join().unwrap();
}

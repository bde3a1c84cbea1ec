//! `skboutput()` on this machine: packets of a program that sends known ones, by raw tracepoints. The
//! peers that Debian has are built without libpcap and refuse it; the file is read by the format's
//! specification. `guest_packets.rs` does it with functions.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod pcap;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use kymo_testkit::{Need, Outcome, Workload, require, run};
use pcap::{HEADERS, datagram, read_packets};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
/// Bytes of the header of Ethernet, which the loopback has, too.
const ETHERNET: usize = 14;

fn begin() -> bool {
    require(&[Need::Root, Need::Tracefs, Need::Gcc])
}

fn datagrams() -> Workload {
    Workload::compile("datagrams", include_str!("guest_programs/datagrams.c"))
}

fn program(text: &str, args: &[&str]) -> Outcome {
    run(KYMO, [&["run", "-e", text], args].concat())
}

/// A probe where the kernel sends packets, with a body for those of the command.
fn sends(body: &str) -> String {
    format!("rawtracepoint:net_dev_queue /pid == cpid/ {{ {body} }}")
}

fn microseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

#[test]
fn each_packet_is_in_the_file_as_it_was_sent() {
    if !begin() {
        return;
    }
    let (dir, work) = (tempfile::tempdir().unwrap(), datagrams());
    let path = dir.path().join("sent.pcap");
    let name = path.display();
    let begin = microseconds();
    let text = sends(&format!("@[skboutput(\"{name}\", args.skb, args.skb.len, {ETHERNET})]++;"));
    let o = program(&text, &["-c", &format!("{} 300 777", work.arg())]).success();
    assert!(o.stdout.contains("@[0]: 300\n"), "{}\n{}", o.stdout, o.stderr);
    assert_eq!(o.stderr.trim(), "Attached 1 probe");
    let packets = read_packets(&path);
    let numbers: Vec<u32> = packets.iter().map(|packet| datagram(packet, 777)).collect();
    assert_eq!(numbers, (0..300).collect::<Vec<u32>>());
    // As long as they are, in order, within the run.
    assert!(packets.iter().all(|p| p.bytes.len() == p.length));
    assert!(packets.is_sorted_by_key(|p| p.time));
    // The clock may be set while it runs, by less than that.
    let (first, last) = (packets[0].time, packets[299].time);
    assert!(
        first + 1_000_000 > begin && last < microseconds() + 1_000_000,
        "{begin} {first} {last}"
    );
    // Other users cannot read the packets.
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_part_of_a_packet_is_what_was_asked_for() {
    if !begin() {
        return;
    }
    let (dir, work) = (tempfile::tempdir().unwrap(), datagrams());
    let at = |name: &str| dir.path().join(name);
    let [head, nothing, whole] = ["head", "nothing", "whole"].map(at);
    let text = sends(&format!(
        "$skb = (struct sk_buff *)arg0; $first = (uint64)80; \
         $a = skboutput(\"{}\", $skb, $first, {ETHERNET}); \
         $b = skboutput(\"{}\", $skb, 10, {ETHERNET}); \
         $c = skboutput(\"{}\", $skb, $skb.len, {ETHERNET}); \
         $d = skboutput(\"{}\", $skb, $skb.len + 1, {ETHERNET}); \
         printf(\"%d %d %d %d %d\\n\", $a, $b, $c, $d, $d < 0);",
        head.display(),
        nothing.display(),
        whole.display(),
        whole.display(),
    ));
    let o = program(&text, &["-c", &format!("{} 2 200", work.arg())]).success();
    // EFAULT: there is no such byte.
    assert_eq!(o.stdout.lines().filter(|l| *l == "0 0 0 -14 1").count(), 2, "{}", o.stdout);
    assert!(o.stderr.contains("line 1: skb_output failed 2 times"), "{}", o.stderr);
    let heads = read_packets(&head);
    assert_eq!(heads.len(), 2);
    for packet in &heads {
        assert_eq!((packet.bytes.len(), packet.length), (80 - ETHERNET, 80 - ETHERNET));
        assert_eq!((packet.bytes[0], packet.bytes[9]), (0x45, 17));
    }
    // Shorter than the part left out at the start.
    assert!(read_packets(&nothing).is_empty());
    let numbers: Vec<u32> = read_packets(&whole).iter().map(|p| datagram(p, 200)).collect();
    assert_eq!(numbers, [0, 1]);
}

#[test]
fn packets_longer_than_a_record_are_cut_and_counted() {
    if !begin() {
        return;
    }
    let (dir, work) = (tempfile::tempdir().unwrap(), datagrams());
    let path = dir.path().join("long.pcap");
    let name = path.display();
    let text = sends(&format!(
        "@[skboutput(\"{name}\", args.skb, args.skb.len, {ETHERNET})]++; \
         @more[skboutput(\"{name}\", args.skb, args.skb.len + 1, {ETHERNET})]++;"
    ));
    // The longest there is: IPv4 has 16 bits for its length.
    let o = program(&text, &["-c", &format!("{} 3 65507", work.arg())]).success();
    assert!(o.stdout.contains("@[0]: 3\n"), "{}\n{}", o.stdout, o.stderr);
    assert!(o.stdout.contains("@more[-14]: 3\n"), "{}\n{}", o.stdout, o.stderr);
    assert!(o.stderr.contains("line 1: 3 packets were cut"), "{}", o.stderr);
    let packets = read_packets(&path);
    let numbers: Vec<u32> = packets.iter().map(|packet| datagram(packet, 65507)).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert!(
        packets.iter().all(|p| p.bytes.len() == 65480 - ETHERNET),
        "{}",
        packets[0].bytes.len()
    );
    // One that just fits is whole.
    let size = 65480 - ETHERNET - HEADERS;
    let o = program(&text, &["-c", &format!("{} 1 {size}", work.arg())]).success();
    assert!(!o.stderr.contains("cut"), "{}", o.stderr);
    let packets = read_packets(&path);
    assert_eq!((packets.len(), packets[0].bytes.len()), (1, HEADERS + size));
    assert_eq!(datagram(&packets[0], size), 0);
}

#[test]
fn what_a_ring_that_is_too_small_loses_is_what_is_missing() {
    if !begin() {
        return;
    }
    const SENT: usize = 400;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lost.pcap");
    let text = format!(
        "config = {{ perf_rb_pages = 1 }} rawtracepoint:net_dev_queue /pid == {}/ \
         {{ skboutput(\"{}\", args.skb, args.skb.len, {ETHERNET}); @ = count(); }}",
        std::process::id(),
        path.display(),
    );
    let mut kymo = Command::new(KYMO);
    kymo.args(["run", "-e", &text]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = kymo.spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert_eq!(line, "Attached 1 probe\n");
    let signal = |name: &str| {
        let _ = run("sh", ["-c", &format!("kill -{name} {}", child.id())]).success();
    };
    // The rings are not emptied meanwhile.
    signal("STOP");
    let (to, from) =
        (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    for _ in 0..SENT {
        from.send_to(&[7; 500], to.local_addr().unwrap()).unwrap();
    }
    signal("CONT");
    signal("INT");
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(output.contains(&format!("@: {SENT}\n")), "{output}");
    let written = read_packets(&path).len();
    let lost = SENT - written;
    assert!(lost > 0 && written > 0, "{written}");
    let told = format!("line 1: {lost} packets did not fit the ring of their CPU");
    assert!(rest.contains(&told), "{written} written: {rest}");
}

#[test]
fn only_a_file_of_packets_of_ones_own_is_replaced() {
    if !begin() {
        return;
    }
    let (dir, work) = (tempfile::tempdir().unwrap(), datagrams());
    let at = |name: &str| dir.path().join(name);
    let send = |path: &Path, count: u32| {
        let name = path.display();
        let text = sends(&format!("skboutput(\"{name}\", args.skb, args.skb.len, {ETHERNET});"));
        program(&text, &["-c", &format!("{} {count} 100", work.arg())])
    };
    let _ = send(&at("a"), 5).success();
    let _ = send(&at("a"), 2).success();
    assert_eq!(read_packets(&at("a")).len(), 2);
    std::fs::write(at("notes"), "not a recording").unwrap();
    std::os::unix::fs::symlink(at("a"), at("link")).unwrap();
    std::os::unix::fs::symlink("/dev/null", at("null")).unwrap();
    let reasons = [
        ("notes", "a file of another kind exists there"),
        ("link", "a symbolic link exists there"),
        ("null", "a symbolic link exists there"),
        ("none/a", "No such file or directory"),
    ];
    for (name, reason) in reasons {
        let o = send(&at(name), 1).failure();
        let place = ": ERROR: cannot write ";
        assert!(o.stderr.starts_with("stdin:1:45-"), "{name}: {}", o.stderr);
        assert!(o.stderr.contains(place) && o.stderr.contains(reason), "{name}: {}", o.stderr);
    }
    assert_eq!(std::fs::read(at("notes")).unwrap(), b"not a recording");
    assert_eq!(read_packets(&at("a")).len(), 2);
}

#[test]
fn what_is_refused_is_reported_with_its_place() {
    if !begin() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no.pcap");
    let refused = |probe: &str, call: &str, column: usize, reason: &str| {
        let call = call.replace("FILE", path.to_str().unwrap());
        let text = format!("{probe} {{ {call} }}");
        let o = program(&text, &["-c", "/bin/true"]).failure();
        // A call is marked up to its end, as in bpftrace 0.27, an argument where it begins.
        let place = if text.chars().skip(column - 1).take(9).eq("skboutput".chars()) {
            format!("{column}-{}", column + call.len() - 1)
        } else {
            column.to_string()
        };
        let message = format!("stdin:1:{place}: ERROR: {reason}");
        assert!(o.stderr.starts_with(&message), "{message}: {}", o.stderr);
        assert!(!path.exists(), "{text}");
    };
    let good = "skboutput(\"FILE\", (struct sk_buff *)arg0, 10, 0);";
    refused(
        "uprobe:/bin/true:0x100",
        good,
        26,
        "skboutput() can not be used with \"uprobe\" probes",
    );
    refused(
        "BEGIN",
        "skboutput(\"FILE\", 0, 1, 0);",
        9,
        "skboutput() can not be used with \"BEGIN\"",
    );
    let sent = "rawtracepoint:net_dev_queue";
    refused(
        sent,
        "skboutput(\"FILE\", args.skb);",
        31,
        "skboutput() takes 4 arguments, 2 are given",
    );
    refused(
        sent,
        "skboutput(\"\", args.skb, 1, 0);",
        41,
        "path of skboutput() is the name of a file",
    );
    let column = 41 + path.to_str().unwrap().len() + 4;
    refused(
        sent,
        "skboutput(\"FILE\", arg0, 1, 0);",
        column,
        "skboutput() takes a struct sk_buff *",
    );
    let text = "skboutput(\"FILE\", args.skb, 1, -1);";
    refused(sent, text, column + 13, "offset of skboutput() is a number of bytes");
    // A pointer that the kernel did not hand over: the verifier says so.
    let text = "skboutput(\"FILE\", (struct sk_buff *)1234, 1, 0);";
    refused(sent, text, 31, "the kernel refuses the program");
}

#[test]
fn cookies_of_sockets_are_asked_for_at_raw_tracepoints() {
    if !begin() {
        return;
    }
    let work = datagrams();
    let text = sends("@[socket_cookie(args.skb.sk) > 0] = count();");
    let o = program(&text, &["-c", &format!("{} 5 50", work.arg())]);
    // The pointer is read out of the packet, and not one that the kernel handed over.
    assert!(o.stderr.contains("the kernel refuses the program"), "{}", o.stderr);
    let text =
        "rawtracepoint:inet_sock_set_state { @[socket_cookie(args.sk) > 0] = count(); exit(); }";
    let o = program(text, &["--dry-run"]).success();
    assert!(o.stderr.contains("Attached 1 probe"), "{}", o.stderr);
    let o =
        program("tracepoint:net:net_dev_queue { @ = socket_cookie(args.skbaddr); }", &[]).failure();
    let told = "stdin:1:36-63: ERROR: socket_cookie() can not be used with \"tracepoint\" probes";
    assert!(o.stderr.contains(told), "{}", o.stderr);
}

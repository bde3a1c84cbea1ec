//! `skboutput()` in the guest, whose kernel lets functions be traced: packets of a program that sends
//! known ones. (`run_packets.rs` does it by raw tracepoints, and with what is refused.)
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod pcap;

use kymo_testkit::{Need, Workload, require, run};
use pcap::{datagram, read_packets};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

#[test]
fn packets_are_taken_at_functions_that_send_and_receive() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let work = Workload::compile("datagrams", include_str!("guest_programs/datagrams.c"));
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let [sent, received] = ["sent.pcap", "received.pcap"].map(at);
    // Who handles what is received may be another task.
    let text = format!(
        "fentry:__dev_queue_xmit /pid == cpid/ \
         {{ @sent[skboutput(\"{}\", args.skb, args.skb.len, 14)] = count(); }} \
         fentry:udp_rcv /args.skb.len == 508/ \
         {{ @received[skboutput(\"{}\", args.skb, args.skb.len, 0)] = count(); }} \
         fexit:__dev_queue_xmit /pid == cpid/ {{ @returns = count(); }}",
        sent.display(),
        received.display(),
    );
    let o = run(KYMO, ["run", "-e", &text, "-c", &format!("{} 40 500", work.arg())]).success();
    let out = format!("{}\n{}", o.stdout, o.stderr);
    for line in ["@sent[0]: 40\n", "@received[0]: 40\n", "@returns: 40\n"] {
        assert!(o.stdout.contains(line), "{out}");
    }
    let numbers: Vec<u32> = read_packets(&sent).iter().map(|p| datagram(p, 500)).collect();
    assert_eq!(numbers, (0..40).collect::<Vec<u32>>(), "{out}");
    // The IP header is behind; what is left begins with that of UDP.
    let packets = read_packets(&received);
    assert_eq!(packets.len(), 40, "{out}");
    for (number, packet) in packets.iter().enumerate() {
        assert_eq!((packet.length, packet.bytes.len()), (508, 508));
        assert_eq!(packet.bytes[8..12], (number as u32).to_ne_bytes());
    }
    let o = run(KYMO, ["run", "-e", "kprobe:__dev_queue_xmit { skboutput(\"a\", arg0, 1, 0); }"]);
    let told = "stdin:1:27-53: ERROR: skboutput() can not be used with \"kprobe\" probes";
    assert!(o.status != 0 && o.stderr.contains(told), "{}", o.stderr);
}

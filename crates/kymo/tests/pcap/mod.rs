//! Packets in a pcap file, read by its specification, and what of `datagrams.c` they have.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]
#![allow(dead_code, reason = "the tests that have this module use parts of it")]
#![allow(unreachable_pub, reason = "a module of tests")]

use std::path::Path;

/// A packet of a file.
pub struct Packet {
    /// Microseconds since 1970.
    pub time: u64,
    /// Bytes that it had.
    pub length: usize,
    /// Those that were taken.
    pub bytes: Vec<u8>,
}

/// Reads a file of this machine's byte order, with times in microseconds and packets that begin with
/// an IP header, which is all that `skboutput()` writes.
pub fn read_packets(path: &Path) -> Vec<Packet> {
    let file = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(*file[at..].first_chunk().unwrap());
    let half = |at: usize| u16::from_ne_bytes(*file[at..].first_chunk().unwrap());
    assert_eq!((word(0), half(4), half(6)), (0xa1b2_c3d4, 2, 4), "{}", path.display());
    // Accuracy and zone; the longest packet; raw IP.
    assert_eq!((word(8), word(12), word(16), word(20)), (0, 0, 65535, 101));
    let (mut packets, mut at) = (Vec::new(), 24);
    while at < file.len() {
        let time = u64::from(word(at)) * 1_000_000 + u64::from(word(at + 4));
        let (taken, length) = (word(at + 8) as usize, word(at + 12) as usize);
        assert!(word(at + 4) < 1_000_000 && taken <= length, "{taken} {length}");
        let bytes = file[at + 16..at + 16 + taken].to_vec();
        packets.push(Packet { time, length, bytes });
        at += 16 + taken;
    }
    packets
}

/// Bytes before those of a datagram: of IPv4 without options, and UDP.
pub const HEADERS: usize = 28;

/// Number of a datagram of `size` bytes of `datagrams.c`, of which all that was taken is as it was sent.
pub fn datagram(packet: &Packet, size: usize) -> u32 {
    assert_eq!(packet.length, HEADERS + size);
    let big =
        |at: usize| usize::from(u16::from_be_bytes(*packet.bytes[at..].first_chunk().unwrap()));
    // IPv4 of that length, UDP, from the loopback to it.
    assert_eq!((packet.bytes[0], big(2), packet.bytes[9]), (0x45, HEADERS + size, 17));
    assert_eq!(
        (&packet.bytes[12..16], &packet.bytes[16..20]),
        (&[127, 0, 0, 1][..], &[127, 0, 0, 1][..])
    );
    assert_eq!(big(24), 8 + size);
    let sent = &packet.bytes[HEADERS..];
    let number = u32::from_ne_bytes(*sent.first_chunk().unwrap());
    let is_as_sent = |(place, byte): (usize, &u8)| *byte == (number as usize + place) as u8;
    assert!(sent.iter().enumerate().skip(4).all(is_as_sent), "{number}");
    number
}

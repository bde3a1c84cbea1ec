//! Sockets: addresses, messages, options.

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::files;
use super::printer::{CallPrinter, i32_in, u16_in, u32_in, u64_in};
use super::words::{CMSG_TYPE, FAMILY, LEVEL, MSG};

type P<'a> = CallPrinter<'a>;

/// Bytes of an address at most.
const MAX_ADDRESS: u64 = 128;
/// Bytes of control messages that are looked at.
const MAX_CONTROL: u64 = 4096;

/// The address of a socket of this size.
pub(super) fn address(p: &mut P<'_>, address: u64, size: u64) {
    let bytes = match size {
        2.. => p.bytes(address, size.min(MAX_ADDRESS) as usize),
        _ => None,
    };
    let Some(bytes) = bytes.filter(|bytes| is_known(bytes)) else { return p.address(address) };
    let family = u16_in(&bytes, 0);
    p.text("{sa_family=");
    p.word(FAMILY, family.into(), "AF_???");
    let port = bytes.get(2..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b));
    match i32::from(family) {
        libc::AF_UNIX if bytes.len() > 2 => {
            let rest = bytes.get(2..).unwrap_or_default();
            p.text(", sun_path=");
            match rest.split_first() {
                Some((0, name)) if rest.len() > 1 => {
                    p.text("@");
                    p.quote(name, true);
                }
                _ => {
                    let path = rest.split(|b| *b == 0).next().unwrap_or_default().to_vec();
                    p.quote(&path, true);
                    p.paths.push(path);
                }
            }
        }
        libc::AF_INET => {
            let ip = bytes.get(4..).and_then(|b| b.first_chunk::<4>()).copied().unwrap_or_default();
            let ip = Ipv4Addr::from(ip);
            let _ = write!(p.out, ", sin_port=htons({port}), sin_addr=inet_addr(\"{ip}\")");
        }
        libc::AF_INET6 => {
            let ip =
                bytes.get(8..).and_then(|b| b.first_chunk::<16>()).copied().unwrap_or_default();
            let (ip, flow) = (Ipv6Addr::from(ip), u32::from_be(u32_in(&bytes, 4)));
            let scope = u32_in(&bytes, 24);
            let _ = write!(
                p.out,
                ", sin6_port=htons({port}), sin6_flowinfo=htonl({flow}), inet_pton(AF_INET6, \
                 \"{ip}\", &sin6_addr), sin6_scope_id={scope}"
            );
        }
        libc::AF_NETLINK => {
            let (pid, groups) = (i32_in(&bytes, 4), u32_in(&bytes, 8));
            let _ = write!(p.out, ", nl_pid={pid}, nl_groups={groups:08x}");
        }
        libc::AF_UNSPEC => {
            p.text(", sa_data=");
            p.quote(bytes.get(2..).unwrap_or_default(), true);
        }
        _ => {}
    }
    p.text("}");
}

/// Whether the form of an address is known here.
fn is_known(bytes: &[u8]) -> bool {
    match i32::from(u16_in(bytes, 0)) {
        libc::AF_UNIX | libc::AF_UNSPEC => true,
        libc::AF_INET => bytes.len() >= 16,
        // Names of interfaces are not read.
        libc::AF_INET6 => bytes.len() >= 28 && u32_in(bytes, 24) == 0,
        libc::AF_NETLINK => bytes.len() >= 12,
        _ => false,
    }
}

/// An address that the kernel wrote, whose size stands at the argument of this place.
pub(super) fn written_address(p: &mut P<'_>, at: u64, place: usize) {
    let size = p.args.get(place).copied().and_then(|size| p.u32_at(size));
    match size {
        Some(size) => {
            let size = u64::from(size).min(p.saved);
            address(p, at, size);
        }
        None => p.address(at),
    }
}

/// A size that the kernel overwrote: `[before => after]`.
pub(super) fn written_size(p: &mut P<'_>, at: u64) {
    let Some(now) = p.u32_at(at) else { return p.address(at) };
    let _ = match p.saved {
        before if before == u64::from(now) || p.failed() => write!(p.out, "[{now}]"),
        before => write!(p.out, "[{before} => {now}]"),
    };
}

/// `struct msghdr` with the bytes that it describes; `left`: those that were moved.
pub(super) fn message(p: &mut P<'_>, at: u64, left: Option<u64>) {
    match p.bytes(at, 56) {
        Some(header) => message_in(p, &header, left, true),
        None => p.address(at),
    }
}

/// `struct msghdr` of a received message.
pub(super) fn received(p: &mut P<'_>, at: u64) {
    if p.failed() {
        let _ = write!(p.out, "{{msg_namelen={}}}", p.saved);
        return;
    }
    let left = p.returned();
    match p.bytes(at, 56) {
        Some(header) => message_in(p, &header, Some(left), false),
        None => p.address(at),
    }
}

fn message_in(p: &mut P<'_>, header: &[u8], left: Option<u64>, is_sent: bool) {
    let (name, size) = (u64_in(header, 0), u32_in(header, 8));
    p.text("{msg_name=");
    address(p, name, size.into());
    p.text(", msg_namelen=");
    if !is_sent && p.saved != u64::from(size) && p.saved != u64::MAX {
        let _ = write!(p.out, "{} => ", p.saved);
    }
    let _ = write!(p.out, "{size}, msg_iov=");
    let count = u64_in(header, 24);
    files::vector(p, u64_in(header, 16), count, left);
    let _ = write!(p.out, ", msg_iovlen={count}");
    let (control, control_size) = (u64_in(header, 32), u64_in(header, 40));
    if control_size > 0 {
        p.text(", msg_control=");
        control_messages(p, control, control_size);
    }
    let _ = write!(p.out, ", msg_controllen={control_size}, msg_flags=");
    p.bits(MSG, u32_in(header, 48).into(), "MSG_???");
    p.text("}");
}

fn control_messages(p: &mut P<'_>, at: u64, size: u64) {
    const HEADER: usize = 16;
    let bytes = match size {
        0..=MAX_CONTROL => p.bytes(at, size as usize),
        _ => None,
    };
    let Some(bytes) = bytes.filter(|bytes| bytes.len() >= HEADER) else { return p.address(at) };
    let mut rest = &bytes[..];
    p.text("[");
    let mut is_first = true;
    while rest.len() >= HEADER {
        let length = u64_in(rest, 0);
        let (level, kind) = (u32_in(rest, 8), u32_in(rest, 12));
        let data = usize::try_from(length).ok().and_then(|length| rest.get(HEADER..length));
        p.text(if std::mem::take(&mut is_first) { "{cmsg_len=" } else { ", {cmsg_len=" });
        let _ = write!(p.out, "{length}, cmsg_level=");
        p.word(LEVEL, level.into(), "SOL_???");
        p.text(", cmsg_type=");
        if level as i32 == libc::SOL_SOCKET {
            p.word(CMSG_TYPE, kind.into(), "SCM_???");
        } else {
            p.hex(kind.into());
        }
        let Some(data) = data else {
            p.text("}");
            break;
        };
        if !data.is_empty() {
            p.text(", cmsg_data=");
            match (level as i32, kind as i32) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    p.array(data.len() / 4, |p, n| p.descriptor(i32_in(data, 4 * n)));
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if data.len() >= 12 => {
                    credentials(p, data);
                }
                _ => p.quote(data, true),
            }
        }
        p.text("}");
        let next = (length as usize).next_multiple_of(8);
        rest = rest.get(next..).unwrap_or_default();
    }
    p.text("]");
}

fn credentials(p: &mut P<'_>, data: &[u8]) {
    let _ = write!(
        p.out,
        "{{pid={}, uid={}, gid={}}}",
        i32_in(data, 0),
        u32_in(data, 4),
        u32_in(data, 8)
    );
}

/// `struct mmsghdr`s: those passed, or those received.
pub(super) fn messages(p: &mut P<'_>, at: u64) {
    const SIZE: usize = 64;
    if p.failed() {
        return p.address(at);
    }
    let count = usize::try_from(p.returned()).unwrap_or(0).min(1024);
    p.saved = u64::MAX;
    p.text("[");
    for n in 0..count {
        let Some(header) = p.bytes(at.wrapping_add((n * SIZE) as u64), SIZE) else { break };
        p.text(if n > 0 { ", {msg_hdr=" } else { "{msg_hdr=" });
        let moved = u64::from(u32_in(&header, 56));
        message_in(p, &header, Some(moved), false);
        let _ = write!(p.out, ", msg_len={moved}}}");
    }
    p.text("]");
}

const IP_MEMBERSHIP: [i32; 2] = [libc::IP_ADD_MEMBERSHIP, libc::IP_DROP_MEMBERSHIP];

/// The value of an option that is set.
pub(super) fn option(p: &mut P<'_>, at: u64) {
    let (level, name, size) = (p.args[1] as i32, p.args[2] as i32, p.args[4] as i32);
    let Ok(size) = u64::try_from(size) else { return p.address(at) };
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) if size >= 8 => linger(p, at),
        (libc::SOL_IP, name) if IP_MEMBERSHIP.contains(&name) && size >= 8 => {
            let Some(bytes) = p.bytes(at, 8) else { return p.address(at) };
            let ip = |at: usize| Ipv4Addr::from(u32::from_be(u32_in(&bytes, at)));
            let _ = write!(
                p.out,
                "{{imr_multiaddr=inet_addr(\"{}\"), imr_interface=inet_addr(\"{}\")}}",
                ip(0),
                ip(4)
            );
        }
        _ if size == 4 => number(p, at),
        _ => p.buffer(at, size),
    }
}

/// The value of an option that was read.
pub(super) fn option_read(p: &mut P<'_>, at: u64) {
    let (level, name) = (p.args[1] as i32, p.args[2] as i32);
    let size = p.u32_at(p.args[4]).unwrap_or(0);
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) if size >= 8 => linger(p, at),
        (libc::SOL_SOCKET, libc::SO_PEERCRED) if size >= 12 => match p.bytes(at, 12) {
            Some(bytes) => credentials(p, &bytes),
            None => p.address(at),
        },
        _ if size == 4 => number(p, at),
        _ => p.buffer(at, size.into()),
    }
}

fn number(p: &mut P<'_>, at: u64) {
    match p.u32_at(at) {
        Some(value) => drop(write!(p.out, "[{}]", value.cast_signed())),
        None => p.address(at),
    }
}

fn linger(p: &mut P<'_>, at: u64) {
    let Some(bytes) = p.bytes(at, 8) else { return p.address(at) };
    let _ = write!(p.out, "{{l_onoff={}, l_linger={}}}", i32_in(&bytes, 0), i32_in(&bytes, 4));
}

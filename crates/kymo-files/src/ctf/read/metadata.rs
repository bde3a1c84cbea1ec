//! The `metadata` file: plain text, or packets of text in either byte order; TSDL or JSON.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use kymo_model::{Cursor, Endian};

use super::json::RECORD_SEPARATOR;
use crate::RecordingBytes;

/// First four bytes of metadata in packets, as a number.
pub(crate) const MAGIC: u32 = 0x75d1_1d57;
/// First bytes of metadata in plain TSDL; some tracers leave them out.
const SIGNATURE: &[u8] = b"/* CTF 1.8";
/// First four bytes of a packet of events, as a number.
const PACKET_MAGIC: u32 = 0xc1fc_1fc1;
/// Entries of a directory that are inspected for streams.
const MAX_PROBED: usize = 64;
/// First words of the blocks and types of TSDL.
const WORDS: [&[u8]; 11] = [
    b"trace",
    b"env",
    b"clock",
    b"stream",
    b"event",
    b"callsite",
    b"typealias",
    b"typedef",
    b"struct",
    b"variant",
    b"enum",
];
/// Bytes within which text is distinguished from anything else.
const BEGIN: u64 = 64 << 10;
/// The most text that is read.
const MAX_TEXT: u64 = 256 << 20;
/// Bytes of a packet's header.
const HEADER: u64 = 37;

/// The text of a `metadata` file.
#[derive(Debug, Default)]
pub(crate) struct MetadataText {
    pub(crate) text: Vec<u8>,
    /// Damage of the packets, at which the text ends.
    pub(crate) damage: Option<(u64, String)>,
}

/// Whether a file begins as metadata does.
pub(crate) fn is_metadata(begin: &[u8]) -> bool {
    begin.starts_with(SIGNATURE)
        || is_fragment(begin)
        || begin.starts_with(&MAGIC.to_le_bytes())
        || begin.starts_with(&MAGIC.to_be_bytes())
}

/// Whether a text begins with a fragment of JSON, as metadata of CTF 2 do.
fn is_fragment(begin: &[u8]) -> bool {
    begin.strip_prefix(&[RECORD_SEPARATOR]).is_some_and(|b| b.trim_ascii_start().starts_with(b"{"))
}

/// Whether a text begins with a block or type of TSDL, behind comments.
fn is_tsdl(begin: &[u8]) -> bool {
    let mut rest = begin.trim_ascii_start();
    while let Some(comment) = rest.strip_prefix(b"/*") {
        let Some(end) = memchr::memmem::find(comment, b"*/") else { return false };
        rest = comment.get(end + 2..).unwrap_or(&[]).trim_ascii_start();
    }
    let behind = WORDS.iter().find_map(|word| rest.strip_prefix(*word));
    behind.is_some_and(|b| matches!(b.first(), Some(b'{' | b' ' | b'\t' | b'\r' | b'\n')))
}

/// Whether a file is called `metadata` and has the text of one.
pub(crate) fn is_metadata_file(path: &Path) -> bool {
    if path.file_name().is_none_or(|name| name != "metadata") {
        return false;
    }
    let mut begin = Vec::new();
    let read = File::open(path).and_then(|f| f.take(BEGIN).read_to_end(&mut begin));
    read.is_ok() && (is_metadata(&begin) || is_tsdl(&begin))
}

/// Whether a `metadata` file in this directory makes it a trace.
pub(crate) fn is_trace(directory: &Path) -> bool {
    let path = directory.join("metadata");
    // Files that the kernel makes while they are read have no size: reading a link to one
    // (`/proc/kmsg`) might wait.
    if !std::fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() > 0) {
        return false;
    }
    is_metadata_file(&path)
}

/// Why a directory that was meant to be a trace is not one; nothing if it is one, or has neither
/// `metadata` nor streams.
pub(crate) fn why_unreadable(directory: &Path) -> Option<&'static str> {
    let path = directory.join("metadata");
    match std::fs::metadata(&path) {
        Ok(m) if m.is_file() && m.len() == 0 => {
            Some("its metadata file is empty, as a killed tracer leaves it")
        }
        Ok(m) if m.is_file() && File::open(&path).is_err() => {
            Some("its metadata file cannot be opened")
        }
        Ok(m) if m.is_file() && !is_metadata_file(&path) => {
            Some("its metadata file does not begin as metadata of CTF do")
        }
        // Other things have directories of that name, too.
        Ok(m) if m.is_dir() => {
            has_streams(directory).then_some("its metadata is a directory, not a file")
        }
        Ok(m) if !m.is_file() => {
            has_streams(directory).then_some("its metadata is not a regular file")
        }
        Ok(_) => None,
        Err(_) if std::fs::symlink_metadata(&path).is_ok() => {
            Some("its metadata is a link that leads to no file")
        }
        Err(_) => has_streams(directory).then_some("it has streams of events, but no metadata"),
    }
}

/// Whether one of the first files of a directory begins as a packet of events.
fn has_streams(directory: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    let is_stream = |path: &Path| {
        // Reading something else than a file might wait.
        let is_file = std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() > 0);
        let mut begin = [0; 4];
        let read = |mut file: File| file.read_exact(&mut begin);
        is_file
            && File::open(path).and_then(read).is_ok()
            && [begin, [begin[3], begin[2], begin[1], begin[0]]]
                .contains(&PACKET_MAGIC.to_le_bytes())
    };
    entries.flatten().take(MAX_PROBED).any(|entry| is_stream(&entry.path()))
}

/// Reads the file.
pub(crate) fn read(file: &RecordingBytes) -> std::io::Result<MetadataText> {
    let len = file.size()?;
    let mut bytes = vec![0; len.min(MAX_TEXT) as usize];
    let have = file.read_at(&mut bytes, 0)?;
    bytes.truncate(have);
    let mut text = unpack(&bytes);
    if len > MAX_TEXT {
        text.damage = Some((MAX_TEXT, format!("the metadata of {len} bytes is not read further")));
    }
    Ok(text)
}

/// Takes the text out of its packets, if it is in any.
pub(crate) fn unpack(bytes: &[u8]) -> MetadataText {
    let endian = match bytes.first_chunk() {
        Some(magic) if *magic == MAGIC.to_le_bytes() => Endian::Little,
        Some(magic) if *magic == MAGIC.to_be_bytes() => Endian::Big,
        _ => {
            // Nothing but text comes before a NUL.
            let end = memchr::memchr(0, bytes);
            let text = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(&[]).to_vec();
            let damage = end.map(|at| (at as u64, "the text has a NUL".to_owned()));
            return MetadataText { text, damage };
        }
    };
    let mut out = MetadataText::default();
    let mut at = 0u64;
    while at < bytes.len() as u64 {
        let rest = bytes.get(at as usize..).unwrap_or(&[]);
        match packet(rest, endian) {
            Ok((content, size)) => {
                out.text.extend_from_slice(content);
                at += size;
            }
            Err(what) => {
                out.damage = Some((at, what));
                break;
            }
        }
    }
    out
}

/// The text of the first packet and its size in bytes.
fn packet(bytes: &[u8], endian: Endian) -> Result<(&[u8], u64), String> {
    let short = |_| "the metadata end within a packet's header".to_owned();
    let mut c = Cursor::new(bytes, endian);
    let magic = c.u32().map_err(short)?;
    if magic != MAGIC {
        return Err(format!("a metadata packet begins with {magic:#x}"));
    }
    c.skip(16 + 4).map_err(short)?;
    let content = u64::from(c.u32().map_err(short)?);
    let size = u64::from(c.u32().map_err(short)?);
    let schemes = c.bytes(3).map_err(short)?;
    let version = (c.u8().map_err(short)?, c.u8().map_err(short)?);
    if schemes != [0, 0, 0] {
        return Err("the metadata are compressed, encrypted or have a checksum".to_owned());
    }
    if !matches!(version, (1, 8) | (2, 0)) {
        return Err(format!("the metadata are of version {}.{}", version.0, version.1));
    }
    let (content, size) = (content / 8, size / 8);
    if content < HEADER || content > size {
        return Err(format!("a metadata packet of {size} bytes has a content of {content}"));
    }
    match bytes.get(HEADER as usize..content as usize) {
        Some(text) => Ok((text, size)),
        None => Err(format!("a metadata packet of {size} bytes is cut to {}", bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(text: &str, endian: Endian, padding: u32) -> Vec<u8> {
        let word = |n: u32| match endian {
            Endian::Little => n.to_le_bytes(),
            Endian::Big => n.to_be_bytes(),
        };
        let content = 8 * (37 + text.len() as u32);
        let mut out = word(MAGIC).to_vec();
        out.extend([7; 16]);
        out.extend([word(0), word(content), word(content + 8 * padding)].concat());
        out.extend([0, 0, 0, 1, 8]);
        out.extend(text.as_bytes());
        out.resize(out.len() + padding as usize, 0);
        out
    }

    #[test]
    fn packets_of_either_order_are_joined() {
        for endian in [Endian::Little, Endian::Big] {
            let both = [packed("/* CTF", endian, 5), packed(" 1.8 */", endian, 0)].concat();
            let text = unpack(&both);
            assert_eq!((text.text, text.damage), (b"/* CTF 1.8 */".to_vec(), None));
            for cut in 1..both.len() {
                let text = unpack(&both[..cut]).text;
                assert!(b"/* CTF 1.8 */".starts_with(&text) || cut < 4, "{cut}");
            }
        }
        let mut lying = packed("x", Endian::Little, 0);
        lying[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(unpack(&lying).damage.unwrap().1.contains("has a content of 536870911"));
        assert_eq!(unpack(b"/* CTF 1.8 */ trace").text, b"/* CTF 1.8 */ trace");
        assert_eq!(unpack(b"/* CTF\0 1.8").damage.unwrap().0, 6);
    }
}

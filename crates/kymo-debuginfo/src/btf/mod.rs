//! BTF, the types of a kernel (`/sys/kernel/btf/vmlinux`, laid out as
//! `Documentation/bpf/btf.rst` of the kernel says). Here are its enumerators: print
//! formats name some of them without giving their value. Types by name are in `types`, their texts in
//! `c_text`.

mod c_text;
mod types;

pub use types::{BtfKind, BtfMember, BtfType, BtfTypes};

use kymo_model::{Cursor, Endian, Truncated};
use rustc_hash::FxHashMap;

/// The bytes are no BTF that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// It does not begin as BTF does.
    #[error("no BTF: begins with {begin:#06x}")]
    Magic {
        /// The first two bytes.
        begin: u16,
    },
    /// A part lies outside of the bytes.
    #[error("BTF ends early: {0}")]
    Short(#[from] Truncated),
    /// A kind of type that came after this code was written, so that what follows
    /// has no known place.
    #[error("type {number} is of unknown kind {kind}")]
    Kind {
        /// Number of the type.
        number: u32,
        /// Its kind.
        kind: u32,
    },
}

/// The named constants of all enumerations.
#[derive(Clone, Debug, Default)]
pub struct Enumerators {
    /// `None`: the name stands for several values.
    values: FxHashMap<Box<str>, Option<i64>>,
}

const MAGIC: u16 = 0xeb9f;

impl Enumerators {
    /// Reads all of them.
    pub fn parse(btf: &[u8]) -> Result<Enumerators, BtfError> {
        let endian = match btf.first_chunk().map(|b| u16::from_le_bytes(*b)) {
            Some(begin) if begin == MAGIC.swap_bytes() => Endian::Big,
            _ => Endian::Little,
        };
        let mut c = Cursor::new(btf, endian);
        let begin = c.u16()?;
        if begin != MAGIC {
            return Err(BtfError::Magic { begin });
        }
        c.skip(2)?;
        let header = c.u32()? as usize;
        let parts = [c.u32()?, c.u32()?, c.u32()?, c.u32()?].map(|n| n as usize);
        let part = |at: usize, len: usize| {
            let mut c = Cursor::new(btf, endian);
            c.skip(header.saturating_add(at))?;
            c.bytes(len)
        };
        let mut types = Cursor::new(part(parts[0], parts[1])?, endian);
        let names = part(parts[2], parts[3])?;
        let mut found = Enumerators::default();
        let mut number = 0;
        while types.remaining() > 0 {
            number += 1;
            found.one_type(&mut types, names, number)?;
        }
        Ok(found)
    }

    fn one_type(&mut self, c: &mut Cursor<'_>, names: &[u8], number: u32) -> Result<(), BtfError> {
        c.skip(4)?;
        let info = c.u32()?;
        c.skip(4)?;
        let (members, kind, signed) = (info as usize & 0xffff, info >> 24 & 31, info >> 31 == 1);
        let skip = match kind {
            6 => {
                for _ in 0..members {
                    let (name, value) = (c.u32()?, c.u32()?);
                    let value = if signed { i64::from(value as i32) } else { i64::from(value) };
                    self.add(names, name, value);
                }
                0
            }
            19 => {
                for _ in 0..members {
                    let (name, low, high) = (c.u32()?, c.u32()?, c.u32()?);
                    self.add(names, name, (u64::from(high) << 32 | u64::from(low)) as i64);
                }
                0
            }
            kind => types::data_len(info).ok_or(BtfError::Kind { number, kind })?,
        };
        Ok(c.skip(skip)?)
    }

    fn add(&mut self, names: &[u8], at: u32, value: i64) {
        let rest = names.get(at as usize..).unwrap_or(&[]);
        let end = rest.iter().position(|b| *b == 0).unwrap_or(0);
        let Ok(name) = std::str::from_utf8(&rest[..end]) else { return };
        if name.is_empty() {
            return;
        }
        match self.values.get_mut(name) {
            Some(known) if *known != Some(value) => *known = None,
            Some(_) => {}
            None => {
                self.values.insert(name.into(), Some(value));
            }
        }
    }

    /// The value of a name that stands for one only.
    pub fn value(&self, name: &str) -> Option<i64> {
        *self.values.get(name)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn btf(types: &[u32], names: &[u8]) -> Vec<u8> {
        let size = types.len() as u32 * 4;
        let header = [0x0001_eb9f, 24, 0, size, size, names.len() as u32];
        let words = header.iter().chain(types).flat_map(|w| w.to_le_bytes());
        words.chain(names.iter().copied()).collect()
    }

    const NAMES: &[u8] = b"\0A\0MINUS\0WIDE\0TWICE\0";

    fn types() -> Vec<u32> {
        let kind = |kind: u32, members: u32| kind << 24 | members;
        let int = [0, kind(1, 0), 4, 32];
        let unsigned = [0, kind(6, 2), 4, 1, u32::MAX, 14, 1];
        let signed = [0, kind(6, 2) | 1 << 31, 4, 3, u32::MAX, 14, 2];
        let wide = [0, kind(19, 1), 8, 9, 1, 1];
        [&int[..], &unsigned, &signed, &wide].concat()
    }

    #[test]
    fn names_of_every_width_have_their_value() {
        let e = Enumerators::parse(&btf(&types(), NAMES)).unwrap();
        assert_eq!(e.value("A"), Some(0xffff_ffff));
        assert_eq!(e.value("MINUS"), Some(-1));
        assert_eq!(e.value("WIDE"), Some(0x1_0000_0001));
        assert_eq!(e.value("TWICE"), None, "two enumerations say different things");
        assert_eq!(e.value("NONE"), None);
    }

    #[test]
    fn cut_anywhere_it_is_an_error_and_no_panic() {
        let whole = btf(&types(), NAMES);
        for n in 0..whole.len() {
            assert!(Enumerators::parse(&whole[..n]).is_err(), "{n}");
        }
        let odd = btf(&[0, 31 << 24, 0], NAMES);
        let error = Enumerators::parse(&odd).unwrap_err();
        assert_eq!(error, BtfError::Kind { number: 1, kind: 31 });
    }

    #[test]
    fn the_running_kernel_tells_its_own() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else { return };
        let e = Enumerators::parse(&bytes).unwrap();
        // Numbers that are part of the interface to user space.
        assert_eq!(e.value("PERF_TYPE_TRACEPOINT"), Some(2));
        assert_eq!(e.value("BPF_MAP_TYPE_HASH"), Some(1));
    }
}

//! Numbers and texts in the file's byte order, into memory.

use kymo_model::Endian;

/// Bytes under construction.
pub(super) struct Bytes {
    pub(super) bytes: Vec<u8>,
    endian: Endian,
}

impl Bytes {
    pub(super) fn new(endian: Endian) -> Bytes {
        Bytes { bytes: Vec::new(), endian }
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn u16(&mut self, v: u16) -> &mut Self {
        self.raw(&word16(self.endian, v))
    }

    pub(super) fn u32(&mut self, v: u32) -> &mut Self {
        self.raw(&word32(self.endian, v))
    }

    pub(super) fn u64(&mut self, v: u64) -> &mut Self {
        self.raw(&word64(self.endian, v))
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Text and a NUL.
    pub(super) fn cstr(&mut self, text: &str) -> &mut Self {
        self.raw(text.as_bytes()).raw(&[0])
    }

    /// A 64-bit size and text.
    pub(super) fn sized(&mut self, text: &str) -> &mut Self {
        self.u64(text.len() as u64).raw(text.as_bytes())
    }

    /// An option: number, size, content.
    pub(super) fn option(&mut self, id: u16, data: &[u8]) -> &mut Self {
        self.u16(id).u32(data.len() as u32).raw(data)
    }

    /// Replaces eight bytes that were left for it.
    pub(super) fn set_u64(&mut self, at: u64, v: u64) {
        let word = word64(self.endian, v);
        if let Some(place) = self.bytes.get_mut(at as usize..at as usize + 8) {
            place.copy_from_slice(&word);
        }
    }
}

pub(super) fn word16(endian: Endian, v: u16) -> [u8; 2] {
    match endian {
        Endian::Little => v.to_le_bytes(),
        Endian::Big => v.to_be_bytes(),
    }
}

pub(super) fn word32(endian: Endian, v: u32) -> [u8; 4] {
    match endian {
        Endian::Little => v.to_le_bytes(),
        Endian::Big => v.to_be_bytes(),
    }
}

pub(super) fn word64(endian: Endian, v: u64) -> [u8; 8] {
    match endian {
        Endian::Little => v.to_le_bytes(),
        Endian::Big => v.to_be_bytes(),
    }
}

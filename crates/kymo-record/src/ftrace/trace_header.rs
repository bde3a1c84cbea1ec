//! The header of a trace.dat while it grows: the bytes before the ring pages, and
//! the places in them where each CPU's offset and size are entered. What the
//! bytes mean is the writer's business (`kymo_files::tracedat`); knowing only the
//! places is what lets a recording, a snapshot and a listener share one way of
//! growing a file.

/// The most streams (CPUs of all buffers) of one file.
pub const MAX_STREAMS: usize = 8192;

/// Offsets in a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Length of the header in bytes.
    pub len: u64,
    /// For each stream the position of its `offset: u64, size: u64` pair.
    pub slots: Vec<u64>,
    /// Position of the size of the section that the pages are in, a `u64` that the
    /// section begins after.
    pub section_size: Option<u64>,
    /// Numbers are big endian.
    pub big_endian: bool,
    /// Size of a ring page (sub-buffer), a power of two.
    pub page_size: u32,
}

/// A header with its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowingHeader {
    /// The bytes, with zeros where the slots are.
    pub bytes: Vec<u8>,
    /// Its places; `len` is that of `bytes`.
    pub layout: Layout,
}

/// A layout that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum HeaderLayoutError {
    #[error("{0} streams; there are between 1 and {MAX_STREAMS}")]
    Streams(usize),
    #[error("a page size of {0}; it is a power of two between 4 KiB and 1 MiB")]
    PageSize(u32),
    #[error("the place of stream {stream} at {at:#x} does not fit into {len:#x} bytes")]
    Slot { stream: usize, at: u64, len: u64 },
    #[error("the place of the section's size at {at:#x} does not fit into {len:#x} bytes")]
    Section { at: u64, len: u64 },
}

impl Layout {
    /// Checks that it can be: a layout may come from another machine.
    pub fn check(&self) -> Result<(), HeaderLayoutError> {
        if self.slots.is_empty() || self.slots.len() > MAX_STREAMS {
            return Err(HeaderLayoutError::Streams(self.slots.len()));
        }
        if !self.page_size.is_power_of_two() || !(4096..=1 << 20).contains(&self.page_size) {
            return Err(HeaderLayoutError::PageSize(self.page_size));
        }
        for (stream, &at) in self.slots.iter().enumerate() {
            if at.checked_add(16).is_none_or(|end| end > self.len) {
                return Err(HeaderLayoutError::Slot { stream, at, len: self.len });
            }
        }
        match self.section_size {
            Some(at) if at.checked_add(8).is_none_or(|end| end > self.len) => {
                Err(HeaderLayoutError::Section { at, len: self.len })
            }
            _ => Ok(()),
        }
    }

    /// A number as it is stored.
    pub(crate) fn number(&self, n: u64) -> [u8; 8] {
        if self.big_endian { n.to_be_bytes() } else { n.to_le_bytes() }
    }

    /// A pair as it is stored.
    pub(crate) fn pair(&self, offset: u64, size: u64) -> [u8; 16] {
        let mut pair = [0; 16];
        pair[..8].copy_from_slice(&self.number(offset));
        pair[8..].copy_from_slice(&self.number(size));
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_layouts_that_can_be() {
        let good = Layout { len: 64, slots: vec![0, 48], page_size: 4096, ..Layout::default() };
        assert_eq!(good.check(), Ok(()));
        let bad = |change: fn(&mut Layout)| {
            let mut l = good.clone();
            change(&mut l);
            l.check().unwrap_err()
        };
        assert_eq!(bad(|l| l.slots.clear()), HeaderLayoutError::Streams(0));
        assert_eq!(bad(|l| l.slots = vec![0; 8193]), HeaderLayoutError::Streams(8193));
        assert_eq!(bad(|l| l.page_size = 4095), HeaderLayoutError::PageSize(4095));
        assert_eq!(bad(|l| l.page_size = 1 << 21), HeaderLayoutError::PageSize(1 << 21));
        assert_eq!(
            bad(|l| l.slots[1] = 49),
            HeaderLayoutError::Slot { stream: 1, at: 49, len: 64 }
        );
        assert_eq!(
            bad(|l| l.section_size = Some(57)),
            HeaderLayoutError::Section { at: 57, len: 64 }
        );
        let at = u64::MAX - 7;
        assert!(
            matches!(bad(|l| l.slots[0] = u64::MAX - 7), HeaderLayoutError::Slot { at: a, .. } if a == at)
        );
    }

    #[test]
    fn pairs_have_the_files_order() {
        let mut l = Layout::default();
        assert_eq!(l.pair(1, 2), [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        l.big_endian = true;
        assert_eq!(l.pair(1, 2), [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
    }
}

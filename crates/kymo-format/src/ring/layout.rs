//! Offsets of the parts of a page, and the page's own header.

use kymo_model::Endian;

use super::walk::Events;

/// Set in the commit word when events were lost before the page.
const MISSED_EVENTS: u64 = 1 << 31;
/// Set beside it when their number stands behind the events.
const MISSED_STORED: u64 = 1 << 30;
/// The bits of the commit word that are a length.
const COMMIT: u64 = (1 << 27) - 1;
/// No kernel makes larger sub-buffers (its order is at most 7 of 64 KiB pages).
const MAX_PAGE: u32 = 16 << 20;

/// Errors of a page or its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The text of `header_page` lacks a field that is needed.
    #[error("header_page has no usable field {0:?}")]
    Header(&'static str),
    /// A page size no kernel uses.
    #[error("page size {0} is not between 64 and 16777216")]
    PageSize(u32),
    /// There are fewer bytes than a page header takes.
    #[error("page of {have} bytes has no room for its header of {need}")]
    ShortPage {
        /// Bytes there are.
        have: usize,
        /// Bytes the header takes.
        need: usize,
    },
    /// The page says it holds more than it can.
    #[error("page commits {commit} bytes, {room} fit")]
    Commit {
        /// Bytes of events it claims.
        commit: u64,
        /// Bytes that can be there.
        room: usize,
    },
    /// A record reaches over the end of the events.
    #[error(
        "record of type {kind} at byte {offset} of the page takes {needed} bytes, {left} are left"
    )]
    Record {
        /// Offset in the page.
        offset: usize,
        /// Its `type_len`.
        kind: u8,
        /// Bytes it takes.
        needed: usize,
        /// Bytes up to the end of the events.
        left: usize,
    },
}

/// Events that were lost before a page's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Some, the page had no room to say how many.
    Unknown,
    /// This many.
    Count(u64),
}

/// Offsets of the parts of a ring page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// Byte order of the pages.
    pub endian: Endian,
    /// Bytes of a whole page.
    pub page_size: u32,
    /// Offset of the time of the first event.
    pub timestamp: u32,
    /// Offset of the commit word.
    pub commit: u32,
    /// Bytes of the commit word, the `long` of the kernel: 8 or 4.
    pub long_size: u8,
    /// Offset of the first record.
    pub data: u32,
}

impl PageLayout {
    /// Pages of a kernel with `long`s of `long_size` bytes, as all kernels
    /// since 2.6.30 have laid them out.
    pub fn new(endian: Endian, long_size: u8, page_size: u32) -> Result<PageLayout, RingError> {
        let data = 8 + u32::from(long_size);
        PageLayout { endian, page_size, timestamp: 0, commit: 8, long_size, data }.checked()
    }

    /// Reads the text of `events/header_page`. Its `data` field states the
    /// size of a page; sub-buffers of another size than the machine's pages
    /// are given to [`with_page_size`](Self::with_page_size).
    pub fn parse(header_page: &str, endian: Endian) -> Result<PageLayout, RingError> {
        let field = |name: &'static str| field_of(header_page, name).ok_or(RingError::Header(name));
        let (timestamp, _) = field("timestamp")?;
        let (commit, long) = field("commit")?;
        let (data, data_size) = field("data")?;
        let long_size = match long {
            4 => 4,
            8 => 8,
            _ => return Err(RingError::Header("commit")),
        };
        let page_size = data.checked_add(data_size).ok_or(RingError::Header("data"))?;
        PageLayout { endian, page_size, timestamp, commit, long_size, data }.checked()
    }

    /// Returns this layout with another page size.
    pub fn with_page_size(self, page_size: u32) -> Result<PageLayout, RingError> {
        PageLayout { page_size, ..self }.checked()
    }

    fn checked(self) -> Result<PageLayout, RingError> {
        if self.page_size < 64 || self.page_size > MAX_PAGE {
            return Err(RingError::PageSize(self.page_size));
        }
        let fits = |at: u32, size: u32| at.checked_add(size).is_some_and(|e| e <= self.page_size);
        if !fits(self.timestamp, 8) {
            return Err(RingError::Header("timestamp"));
        }
        if !fits(self.commit, u32::from(self.long_size)) {
            return Err(RingError::Header("commit"));
        }
        if !fits(self.data, 4) {
            return Err(RingError::Header("data"));
        }
        Ok(self)
    }

    /// Opens a page. `bytes` may be shorter than a page when its end was cut.
    #[inline]
    pub fn page<'a>(&self, bytes: &'a [u8]) -> Result<Page<'a>, RingError> {
        let need = self.data as usize;
        let short = RingError::ShortPage { have: bytes.len(), need };
        let time = bytes.get(self.timestamp as usize..).and_then(|b| b.first_chunk());
        let timestamp = self.endian.u64(*time.ok_or(short)?);
        let word = bytes.get(self.commit as usize..).ok_or(short)?;
        let commit = self.long(word).ok_or(short)?;
        let rest = bytes.get(need..).ok_or(short)?;
        let len = (commit & COMMIT) as usize;
        let data = rest
            .get(..len)
            .ok_or(RingError::Commit { commit: commit & COMMIT, room: rest.len() })?;
        let missed = if commit & MISSED_EVENTS == 0 {
            None
        } else if commit & MISSED_STORED == 0 {
            Some(Missed::Unknown)
        } else {
            let count = rest.get(len..).and_then(|b| self.long(b));
            Some(count.map_or(Missed::Unknown, Missed::Count))
        };
        Ok(Page { timestamp, missed, data, start: need, endian: self.endian })
    }

    /// Page with an invalid commit word or a missing end, as far as it can be walked: all present
    /// bytes.
    pub fn damaged_page<'a>(&self, bytes: &'a [u8]) -> Option<Page<'a>> {
        let at = bytes.get(self.timestamp as usize..)?;
        let timestamp = self.endian.u64(*at.first_chunk()?);
        let start = self.data as usize;
        let data = bytes.get(start..)?;
        Some(Page { timestamp, missed: None, data, start, endian: self.endian })
    }

    #[inline]
    fn long(&self, bytes: &[u8]) -> Option<u64> {
        match self.long_size {
            4 => Some(u64::from(self.endian.u32(*bytes.first_chunk()?))),
            _ => Some(self.endian.u64(*bytes.first_chunk()?)),
        }
    }
}

/// Offset and size in the line that declares `name`.
fn field_of(text: &str, name: &str) -> Option<(u32, u32)> {
    let line = text.lines().find(|line| {
        let declared = line.split(';').next().unwrap_or("");
        declared.split_whitespace().next_back() == Some(name)
    })?;
    let value = |key: &str| {
        let part = line.split(';').find_map(|p| p.trim().strip_prefix(key))?;
        part.trim().parse::<u32>().ok()
    };
    Some((value("offset:")?, value("size:")?))
}

/// One page of the ring.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Time the deltas count from.
    pub timestamp: u64,
    /// Events lost before it.
    pub missed: Option<Missed>,
    /// The records.
    pub data: &'a [u8],
    /// Offset of `data` in the page.
    pub start: usize,
    endian: Endian,
}

impl<'a> Page<'a> {
    /// Walks its events, in the order of their times.
    #[inline]
    pub fn events(&self) -> Events<'a> {
        Events::new(self.data, self.start, self.timestamp, self.endian)
    }
}

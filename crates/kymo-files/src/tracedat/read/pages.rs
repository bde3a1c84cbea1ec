//! The events of one CPU: its pages, through a window of bounded size.

use kymo_format::ring::{Missed, PageLayout};
use kymo_model::Endian;

use super::{Buffer, CpuData, TraceDatReadError, TraceDatReadStats};
use crate::RecordingBytes;
use crate::tracedat::Compression;

/// The largest chunk of a compressed run that is unpacked.
pub(super) const MAX_CHUNK: u32 = 16 << 20;

/// Limits of a run, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// Bytes per read of the file.
    pub(super) ask: usize,
    /// The largest chunk that is unpacked.
    pub(super) most: u64,
}

/// An event of the window.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) time: u64,
    at: u32,
    len: u32,
}

/// Source of the next pages.
#[derive(Clone)]
enum Supply {
    Plain { at: u64 },
    Chunks { at: u64, left: u32, compression: Compression, packed: Vec<u8> },
}

/// The events of one CPU of one instance, in their order.
pub(super) struct Stream {
    pub(super) buffer: usize,
    pub(super) cpu: u32,
    layout: PageLayout,
    supply: Supply,
    end: u64,
    sizes: Sizes,
    window: Vec<u8>,
    /// Offset in the file of the window, or of the chunk it was unpacked from.
    window_at: u64,
    /// Offset of the next page in the window.
    page: usize,
    slots: Vec<Slot>,
    next: usize,
    /// Lost before the next event.
    missed: Option<Missed>,
    /// Whether a page was read or passed over.
    begun: bool,
}

impl Stream {
    /// `None`: there is nothing.
    pub(super) fn open(
        buffer: (usize, &Buffer),
        data: &CpuData,
        layout: PageLayout,
        compression: Compression,
        sizes: Sizes,
    ) -> Option<Stream> {
        if data.size == 0 {
            return None;
        }
        let supply = if buffer.1.compressed {
            // The number of chunks is read with the first of them.
            Supply::Chunks { at: data.offset, left: u32::MAX, compression, packed: Vec::new() }
        } else {
            Supply::Plain { at: data.offset }
        };
        // trace-cmd does not count the word that leads the chunks.
        let lead = if buffer.1.compressed { 4 } else { 0 };
        let page = layout.page_size as usize;
        Some(Stream {
            buffer: buffer.0,
            cpu: data.cpu,
            layout,
            supply,
            end: data.offset.saturating_add(data.size).saturating_add(lead),
            sizes: Sizes { ask: sizes.ask.next_multiple_of(page), ..sizes },
            window: Vec::new(),
            window_at: data.offset,
            page: 0,
            slots: Vec::new(),
            next: 0,
            missed: None,
            begun: false,
        })
    }

    /// One that begins where this one began, of which nothing was read yet.
    pub(super) fn clone_unread(&self) -> Stream {
        let supply = self.supply.clone();
        Stream { supply, window: Vec::new(), slots: Vec::new(), ..*self }
    }

    /// Passes over all but the last few pages, of which nothing was read yet.
    pub(super) fn skip_to_tail(&mut self, file: &RecordingBytes) -> Result<(), TraceDatReadError> {
        let page = u64::from(self.layout.page_size);
        match &mut self.supply {
            Supply::Plain { at } => {
                let len =
                    file.size().map_or(self.end, |size| size.min(self.end)).saturating_sub(*at);
                *at += (len / page).saturating_sub(4) * page;
            }
            Supply::Chunks { at, left, .. } => {
                let endian = self.layout.endian;
                let Some([n]) = words::<1>(file, *at, endian)? else { return Ok(()) };
                (*at, *left) = (*at + 4, n.min(u32::MAX - 1));
                while *left > 1 {
                    let Some([size]) = words::<1>(file, *at, endian)? else { break };
                    *at = at.saturating_add(8 + u64::from(size));
                    *left -= 1;
                }
            }
        }
        Ok(())
    }

    /// Passes over pages that end before `time`, of which nothing was read yet.
    /// Pages are in order of time; where one seems not to be, nothing is passed
    /// over. Compressed ones are not either: unpacking shows their times.
    pub(super) fn skip_to_time(
        &mut self,
        file: &RecordingBytes,
        time: u64,
    ) -> Result<(), TraceDatReadError> {
        let Supply::Plain { at } = &mut self.supply else { return Ok(()) };
        let page = u64::from(self.layout.page_size);
        let begins = |n: u64| -> Result<Option<u64>, TraceDatReadError> {
            let offset = *at + n * page + u64::from(self.layout.timestamp);
            let mut word = [0; 8];
            let got = file
                .read_at(&mut word, offset)
                .map_err(|error| TraceDatReadError::Io { offset, error })?;
            Ok((got == 8).then(|| self.layout.endian.u64(word)).filter(|t| *t != 0))
        };
        // The page before the first that begins at `time` or later may reach into it.
        let (mut low, mut high) = (0, self.end.saturating_sub(*at) / page);
        let mut bounds = (0, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(t) = begins(middle)?.filter(|t| (bounds.0..=bounds.1).contains(t)) else {
                return Ok(());
            };
            if t < time {
                (low, bounds.0) = (middle + 1, t);
            } else {
                (high, bounds.1) = (middle, t);
            }
        }
        *at += low.saturating_sub(1) * page;
        self.begun = low > 1;
        Ok(())
    }

    /// Time of the last event of the page that is open.
    pub(super) fn last_time(&self) -> Option<u64> {
        self.slots.last().map(|s| s.time)
    }

    /// Time of the event that is next.
    #[inline]
    pub(super) fn time(&self) -> Option<u64> {
        self.slots.get(self.next).map(|s| s.time)
    }

    /// The event that is next and what was lost before it.
    #[inline]
    pub(super) fn event(&self) -> Option<(Slot, &[u8], Option<Missed>)> {
        let slot = *self.slots.get(self.next)?;
        let at = slot.at as usize;
        let payload = self.window.get(at..at + slot.len as usize)?;
        Some((slot, payload, self.missed))
    }

    /// Whether events were lost before the one that is next.
    pub(super) fn is_after_loss(&self) -> bool {
        self.missed.is_some()
    }

    /// Offset in the file of the next event, or of its chunk.
    pub(super) fn offset(&self) -> u64 {
        match (&self.supply, self.slots.get(self.next)) {
            (Supply::Plain { .. }, Some(slot)) => self.window_at + u64::from(slot.at),
            _ => self.window_at,
        }
    }

    /// Steps over the event that is next, if there is one. `true`: another is there.
    #[inline]
    pub(super) fn step(&mut self) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        self.missed = None;
        self.next += 1;
        self.next < self.slots.len()
    }

    /// Walks pages until one has events. `false`: that was all.
    pub(super) fn fill(
        &mut self,
        file: &RecordingBytes,
        stats: &mut TraceDatReadStats,
    ) -> Result<bool, TraceDatReadError> {
        loop {
            self.slots.clear();
            self.next = 0;
            if self.page >= self.window.len() && !self.more(file, stats)? {
                return Ok(false);
            }
            self.walk(stats);
            if !self.slots.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Finds the events of one page.
    fn walk(&mut self, stats: &mut TraceDatReadStats) {
        let size = self.layout.page_size as usize;
        let rest = self.window.get(self.page..).unwrap_or(&[]);
        let bytes = rest.get(..size).unwrap_or(rest);
        let start = self.page;
        self.page += size;
        stats.pages += 1;
        let place = match self.supply {
            Supply::Plain { .. } => self.window_at + start as u64,
            Supply::Chunks { .. } => self.window_at,
        };
        let page = match self.layout.page(bytes) {
            Ok(page) => page,
            Err(e) => {
                stats.damage(place, format!("CPU {}: {e}", self.cpu));
                let Some(page) = self.layout.damaged_page(bytes) else { return };
                page
            }
        };
        if page.missed.is_some() {
            self.missed = page.missed;
            stats.lost_places += 1;
            stats.lost_before += u64::from(!self.begun);
            match page.missed {
                Some(Missed::Count(n)) => stats.lost = stats.lost.saturating_add(n),
                _ => stats.lost_unknown += 1,
            }
        }
        self.begun = true;
        for event in page.events() {
            match event {
                Ok(e) => self.slots.push(Slot {
                    time: e.time,
                    at: (start + e.offset) as u32,
                    len: e.payload.len() as u32,
                }),
                Err(e) => stats.damage(place, format!("CPU {}: {e}", self.cpu)),
            }
        }
    }

    /// Moves the window on.
    fn more(
        &mut self,
        file: &RecordingBytes,
        stats: &mut TraceDatReadStats,
    ) -> Result<bool, TraceDatReadError> {
        self.page = 0;
        match &mut self.supply {
            Supply::Plain { at } => {
                let left = self.end.saturating_sub(*at);
                let take = left.min(self.sizes.ask as u64) as usize;
                self.window.resize(take, 0);
                let got = file
                    .read_at(&mut self.window, *at)
                    .map_err(|error| TraceDatReadError::Io { offset: *at, error })?;
                self.window.truncate(got);
                self.window_at = *at;
                *at += got as u64;
                if got < take {
                    let what = format!(
                        "CPU {}: the file ends early, {} bytes of its data are missing",
                        self.cpu,
                        left - got as u64
                    );
                    stats.damage(*at, what);
                    self.end = *at;
                }
                Ok(got > 0)
            }
            Supply::Chunks { .. } => {
                // A chunk that gives nothing is not the end.
                while self.chunk(file, stats)? {
                    if !self.window.is_empty() {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    /// Unpacks the next chunk; the first is led by the number of them. `false`:
    /// there is none.
    fn chunk(
        &mut self,
        file: &RecordingBytes,
        stats: &mut TraceDatReadStats,
    ) -> Result<bool, TraceDatReadError> {
        let endian = self.layout.endian;
        let Supply::Chunks { at, left, compression, packed } = &mut self.supply else {
            return Ok(false);
        };
        self.window.clear();
        if *left == u32::MAX {
            match words::<1>(file, *at, endian)? {
                Some([n]) => (*at, *left) = (*at + 4, n.min(u32::MAX - 1)),
                None => {
                    stats.damage(*at, format!("CPU {}: the file ends", self.cpu));
                    *left = 0;
                }
            }
        }
        if *left == 0 {
            return Ok(false);
        }
        *left -= 1;
        self.window_at = *at;
        let (cpu, last) = (self.cpu, *left);
        let mut give_up = |what: String| {
            stats.damage(self.window_at, format!("CPU {cpu}: {what}; {last} chunks follow"));
        };
        let Some([size, unpacked]) = words::<2>(file, *at, endian)? else {
            give_up("the file ends".to_owned());
            *left = 0;
            return Ok(false);
        };
        let next = *at + 8 + u64::from(size);
        let most = self.sizes.most.min(MAX_CHUNK.into());
        // Nothing grows much by being compressed.
        let plausible = u64::from(unpacked) * 9 / 8 + (64 << 10);
        if next > self.end || u64::from(unpacked) > most || u64::from(size) > plausible {
            let room = self.end.saturating_sub(*at);
            give_up(format!("chunk of {size} bytes that unpacks to {unpacked}, {room} are left"));
            *left = 0;
            return Ok(false);
        }
        packed.resize(size as usize, 0);
        let got = file
            .read_at(packed, *at + 8)
            .map_err(|error| TraceDatReadError::Io { offset: *at + 8, error })?;
        packed.truncate(got);
        if let Err(e) = compression.decompress(packed, unpacked as usize, &mut self.window) {
            give_up(format!("chunk cannot be unpacked: {e}"));
        }
        *at = next;
        Ok(true)
    }
}

/// `N` 32-bit words at `at`; `None` where the file ends.
fn words<const N: usize>(
    file: &RecordingBytes,
    at: u64,
    endian: Endian,
) -> Result<Option<[u32; N]>, TraceDatReadError> {
    let mut bytes = [[0; 4]; N];
    let got = file
        .read_at(bytes.as_flattened_mut(), at)
        .map_err(|error| TraceDatReadError::Io { offset: at, error })?;
    Ok((got == N * 4).then(|| bytes.map(|b| endian.u32(b))))
}

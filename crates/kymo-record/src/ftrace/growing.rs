//! A trace.dat that grows: pages of several CPUs arrive at the same time, and a reader wants each
//! CPU's pages in one piece. Every CPU gets a far-apart region of a sparse file; the table at its
//! start is kept up to date, so that the file can be read at any time, also after the writer was
//! killed. At the end the holes are taken out.
//!
//! ```text
//! growing:  header | slack | cpu 0 pages … hole … | cpu 1 pages … hole … |
//! finished: header | slack | cpu 0 pages | cpu 1 pages |
//! ```

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

use kymo_kernel::descriptors::{self, SpliceMode, Spliced};
use kymo_kernel::file_space;

use super::trace_header::{GrowingHeader, Layout};

/// Room for a header that is longer at the end than at the beginning: names of
/// tasks are known only then.
const SLACK: u64 = 1 << 20;
/// Room for a header of unknown length. It is a hole, and taken out at the end.
const ROOM: u64 = 256 << 20;
/// Alignment of regions: a multiple of every block and page size.
const ALIGN: u64 = 1 << 20;
/// The largest file counted on: half of what ext4 allows.
const LARGEST: u64 = 8 << 40;
/// The largest region of one CPU.
const REGION: u64 = 1 << 40;
/// Up to this much is moved by copying within the page cache. More is moved by
/// the file system, which writes to the disk first.
const COPY_UP_TO: u64 = 256 << 20;
/// Copied at a time.
const CHUNK: usize = 1 << 20;

/// The file and how far it has come. Streams may grow from different threads.
#[derive(Debug)]
pub(crate) struct Growing {
    file: File,
    layout: Layout,
    data_start: u64,
    region: u64,
    /// Bytes of each stream that were written; only whole pages of them count.
    written: Vec<AtomicU64>,
    /// The table is filled in.
    begun: bool,
}

fn round_up(n: u64, to: u64) -> u64 {
    n.div_ceil(to) * to
}

impl Growing {
    /// Makes an empty file ready for a header of this layout.
    pub(crate) fn new(file: File, layout: Layout) -> io::Result<Growing> {
        let data_start = round_up(layout.len + SLACK, ALIGN);
        Growing::at(file, layout, data_start)
    }

    /// Makes an empty file whose header is not known yet: pages first, then
    /// [`replace_header`](Self::replace_header).
    pub(crate) fn without_front(file: File, streams: usize, page_size: u32) -> io::Result<Growing> {
        let slots: Vec<u64> = (0..streams as u64).map(|s| s * 16).collect();
        let layout = Layout { len: slots.len() as u64 * 16, slots, page_size, ..Layout::default() };
        Growing::at(file, layout, ROOM)
    }

    fn at(file: File, layout: Layout, data_start: u64) -> io::Result<Growing> {
        refuse_without_holes(&file)?;
        let streams = layout.slots.len().max(1) as u64;
        let mut total = LARGEST.min(file_space::file_size_limit());
        let region = loop {
            let region = (total.saturating_sub(data_start) / streams).min(REGION) / ALIGN * ALIGN;
            if region == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    "the file system allows no file that is large enough",
                ));
            }
            // Asks how large a file may be; holes cost nothing.
            match file.set_len(data_start + region * streams) {
                Ok(()) => break region,
                Err(e)
                    if e.kind() == io::ErrorKind::FileTooLarge
                        || e.kind() == io::ErrorKind::InvalidInput =>
                {
                    total /= 2
                }
                Err(e) => return Err(e),
            }
        };
        file.set_len(0)?;
        let written = layout.slots.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Growing { file, layout, data_start, region, written, begun: false })
    }

    /// Creates the file and writes the header.
    pub(crate) fn with_header(file: File, header: &GrowingHeader) -> io::Result<Growing> {
        let mut growing = Growing::new(file, header.layout.clone())?;
        growing.header_bytes(0, &header.bytes)?;
        growing.begin()?;
        Ok(growing)
    }

    /// Writes a piece of the header. Once the file has begun, the places in it
    /// keep what they say.
    pub(crate) fn header_bytes(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let end = at.checked_add(bytes.len() as u64).filter(|end| *end <= self.layout.len);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        if !self.begun {
            return self.file.write_all_at(bytes, at);
        }
        let mut bytes = bytes.to_vec();
        for (stream, &slot) in self.layout.slots.iter().enumerate() {
            let pair = self.layout.pair(self.offset(stream), self.stored(stream));
            for (place, value) in (slot..slot + 16).zip(pair) {
                if (at..end).contains(&place)
                    && let Some(byte) = bytes.get_mut((place - at) as usize)
                {
                    *byte = value;
                }
            }
        }
        if let Some(slot) = self.layout.section_size {
            let size = self.layout.number(LARGEST.saturating_sub(slot + 8));
            for (place, value) in (slot..slot + 8).zip(size) {
                if (at..end).contains(&place)
                    && let Some(byte) = bytes.get_mut((place - at) as usize)
                {
                    *byte = value;
                }
            }
        }
        self.file.write_all_at(&bytes, at)
    }

    /// Enters the regions, once the whole header is written. From here on the
    /// file can be read.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        // A reader that maps the file wants it to reach the data.
        if self.file.metadata()?.len() < self.data_start {
            self.file.set_len(self.data_start)?;
        }
        self.begun = true;
        // Until the end the section is as large as the file can become.
        self.section(LARGEST)?;
        (0..self.streams()).try_for_each(|stream| self.enter(stream))
    }

    /// The longest header that fits in place of the first one.
    pub(crate) fn room_for_header(&self) -> u64 {
        self.data_start
    }

    /// Puts another header in place of the first, which it must fit.
    pub(crate) fn replace_layout(&mut self, layout: Layout) -> io::Result<()> {
        let same = layout.slots.len() == self.layout.slots.len()
            && layout.page_size == self.layout.page_size
            && layout.len <= self.data_start;
        if !same || layout.check().is_err() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.layout = layout;
        Ok(())
    }

    /// [`replace_layout`](Self::replace_layout) and its bytes. Where a disk is full the new ones may
    /// not fit, and a part of them would leave sections that lead nowhere: the old ones come back,
    /// whose place is there.
    pub(crate) fn replace_header(&mut self, header: &GrowingHeader) -> io::Result<()> {
        let mut old = vec![0; usize::try_from(self.layout.len).unwrap_or(0)];
        let layout = self.layout.clone();
        if self.begun {
            self.file.read_exact_at(&mut old, 0)?;
        }
        self.replace_layout(header.layout.clone())?;
        let written = self.header_bytes(0, &header.bytes);
        if written.is_err() && self.begun {
            self.layout = layout;
            self.header_bytes(0, &old)?;
        }
        written
    }

    /// Streams.
    pub(crate) fn streams(&self) -> usize {
        self.written.len()
    }

    /// Length of the header.
    pub(crate) fn front_len(&self) -> u64 {
        self.layout.len
    }

    /// Size of a ring page.
    pub(crate) fn page_size(&self) -> usize {
        self.layout.page_size as usize
    }

    fn offset(&self, stream: usize) -> u64 {
        self.data_start + self.region * stream as u64
    }

    /// Bytes of a stream that are in the file.
    pub(crate) fn stored(&self, stream: usize) -> u64 {
        let page = u64::from(self.layout.page_size);
        self.written.get(stream).map_or(0, |w| w.load(Ordering::Acquire) / page * page)
    }

    /// Bytes of all streams.
    pub(crate) fn total(&self) -> u64 {
        (0..self.streams()).map(|s| self.stored(s)).sum()
    }

    /// Offset of the next bytes of a stream, if they fit.
    fn place(&self, stream: usize, len: usize) -> io::Result<u64> {
        let written = self.written.get(stream).ok_or(io::ErrorKind::InvalidInput)?;
        let written = written.load(Ordering::Relaxed);
        if written + len as u64 > self.region {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("the pages of one CPU fill their region of {} bytes", self.region),
            ));
        }
        Ok(self.offset(stream) + written)
    }

    /// Moves `len` bytes from a pipe to the end of a stream. Each stream has one
    /// mover at a time. Whole pages that arrived are counted, also after an error.
    pub(crate) fn append_pipe(&self, stream: usize, pipe: &OwnedFd, len: usize) -> io::Result<()> {
        let mut at = self.place(stream, len)?;
        let begin = at;
        let mut left = len;
        let result = loop {
            if left == 0 {
                break Ok(());
            }
            let mode = SpliceMode::default();
            match descriptors::splice(pipe, &self.file, Some(&mut at), left, mode) {
                Ok(Spliced::Moved(0)) => break Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(Spliced::Moved(n)) => left = left.saturating_sub(n),
                Ok(Spliced::Interrupted) => {}
                Ok(Spliced::WouldBlock) => break Err(io::ErrorKind::WouldBlock.into()),
                Err(e) => break Err(e),
            }
        };
        self.advance(stream, at - begin).and(result)
    }

    /// Appends whole pages from memory.
    pub(crate) fn append(&self, stream: usize, pages: &[u8]) -> io::Result<()> {
        let at = self.place(stream, pages.len())?;
        self.file.write_all_at(pages, at)?;
        self.advance(stream, pages.len() as u64)
    }

    /// Counts bytes that are in the file and enters them in the table: what is
    /// counted survives the end of this process.
    fn advance(&self, stream: usize, by: u64) -> io::Result<()> {
        let before = self.stored(stream);
        if let Some(written) = self.written.get(stream) {
            written.fetch_add(by, Ordering::Release);
        }
        if self.stored(stream) > before { self.enter(stream) } else { Ok(()) }
    }

    /// Enters that the section ends at `end`.
    fn section(&self, end: u64) -> io::Result<()> {
        let Some(at) = self.layout.section_size else { return Ok(()) };
        self.file.write_all_at(&self.layout.number(end.saturating_sub(at + 8)), at)
    }

    fn enter(&self, stream: usize) -> io::Result<()> {
        self.enter_at(stream, self.offset(stream))
    }

    fn enter_at(&self, stream: usize, offset: u64) -> io::Result<()> {
        let at = *self.layout.slots.get(stream).ok_or(io::ErrorKind::InvalidInput)?;
        self.file.write_all_at(&self.layout.pair(offset, self.stored(stream)), at)
    }

    /// Writes everything to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Offset and size of a stream's pages.
    pub(crate) fn region(&self, stream: usize) -> (u64, u64) {
        (self.offset(stream), self.stored(stream))
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Takes the holes out and gives the file with its final size. If that
    /// fails the file is still readable, only sparse. Nothing is freed before
    /// the table says where its copy is.
    pub(crate) fn finish(self, is_whole: bool) -> io::Result<(File, u64)> {
        let streams = self.streams();
        // The slack of the header may stay, a large hole not.
        let header = round_up(self.layout.len, u64::from(self.layout.page_size));
        let (first, mut end) = if self.data_start - header > 2 * ALIGN {
            (0, header)
        } else {
            (1, self.data_start + self.stored(0))
        };
        let to_move: u64 = (first..streams).map(|s| self.stored(s)).sum();
        let mut copying = to_move <= COPY_UP_TO;
        // How far what is still to come has moved already.
        let mut moved = 0;
        for stream in first..streams {
            let mut size = self.stored(stream);
            let from = self.offset(stream) - moved;
            if size == 0 {
                self.enter_at(stream, end)?;
                continue;
            }
            if copying && self.copy_down(from, end, size).is_err() {
                // No room for a copy: the file system may need none.
                copying = false;
            } else if copying {
                self.enter_at(stream, end)?;
            }
            if !copying {
                let gap = from - end;
                match file_space::collapse_range(&self.file, end, gap) {
                    Ok(()) => {
                        moved += gap;
                        (stream..streams)
                            .try_for_each(|s| self.enter_at(s, self.offset(s) - moved))?;
                    }
                    Err(_) => {
                        size = self.move_down(stream, (from, end, size), is_whole)?;
                        self.enter_at(stream, end)?;
                    }
                }
            }
            end += size;
        }
        self.file.set_len(end)?;
        // A section size beyond the end of the file marks it as unfinished.
        if is_whole {
            self.section(end)?;
        }
        Ok((self.file, end))
    }

    /// Moves a stream's pages down piece by piece, each freed before the next is written: a full
    /// disk has room for no more. Where it has none at all, the last pages make room, of a recording
    /// that is incomplete anyway. Gives the bytes that are left.
    fn move_down(
        &self,
        stream: usize,
        (from, to, mut size): (u64, u64, u64),
        is_whole: bool,
    ) -> io::Result<u64> {
        let page = u64::from(self.layout.page_size);
        let mut done = 0;
        let mut piece = CHUNK as u64;
        while done < size {
            let n = piece.min(size - done);
            match self.copy_down(from + done, to + done, n) {
                Ok(()) => {
                    done += n;
                    // What lies below the next piece and is not written again.
                    let keep = (to + done).max(from);
                    if from + done > keep {
                        let _ = file_space::punch_hole(&self.file, keep, from + done - keep);
                    }
                }
                Err(_) if piece > page => piece = page,
                Err(error) if is_whole || size < done + 2 * page => return Err(error),
                Err(_) => {
                    size -= page;
                    if let Some(written) = self.written.get(stream) {
                        written.store(size, Ordering::Release);
                    }
                    file_space::punch_hole(&self.file, from + size, page)?;
                }
            }
        }
        Ok(size)
    }

    /// Copies within the file; the source stays unless they overlap, which they
    /// do only where a region is smaller than what lies before it.
    fn copy_down(&self, from: u64, to: u64, size: u64) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK];
        let mut done = 0;
        while done < size {
            let n = usize::try_from(size - done).unwrap_or(CHUNK).min(CHUNK);
            let piece = buffer.get_mut(..n).unwrap_or_default();
            self.file.read_exact_at(piece, from + done)?;
            self.file.write_all_at(piece, to + done)?;
            done += n as u64;
        }
        Ok(())
    }
}

/// File systems that would fill the space between the regions with zeros.
fn refuse_without_holes(file: &File) -> io::Result<()> {
    if file_space::is_without_holes(file)? {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this file system has no sparse files; record to another one and copy the result",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(streams: usize) -> GrowingHeader {
        let len = 32 + 16 * streams;
        let slots = (0..streams).map(|s| 32 + 16 * s as u64).collect();
        GrowingHeader {
            bytes: vec![b'f'; len],
            layout: Layout { len: len as u64, slots, page_size: 4096, ..Layout::default() },
        }
    }

    fn page(of: u8) -> Vec<u8> {
        vec![of; 4096]
    }

    /// Returns the bytes of each stream by the table of the file.
    fn contents(file: &File, streams: usize) -> Vec<Vec<u8>> {
        (0..streams)
            .map(|s| {
                let mut pair = [0; 16];
                file.read_exact_at(&mut pair, 32 + 16 * s as u64).unwrap();
                let offset = u64::from_le_bytes(pair[..8].try_into().unwrap());
                let size = u64::from_le_bytes(pair[8..].try_into().unwrap());
                assert_eq!(offset % 4096, 0);
                let mut bytes = vec![0; size as usize];
                file.read_exact_at(&mut bytes, offset).unwrap();
                bytes
            })
            .collect()
    }

    #[test]
    fn readable_at_every_moment_and_dense_at_the_end() {
        let file = tempfile::tempfile().unwrap();
        let seen = file.try_clone().unwrap();
        let growing = Growing::with_header(file, &header(4)).unwrap();
        assert_eq!(contents(&seen, 4), vec![Vec::<u8>::new(); 4]);
        growing.append(0, &page(1)).unwrap();
        growing.append(3, &page(2)).unwrap();
        growing.append(1, &page(3)).unwrap();
        assert_eq!(contents(&seen, 4), [page(1), page(3), vec![], page(2)]);
        growing.append(0, &page(4)).unwrap();
        let expected = [[page(1), page(4)].concat(), page(3), vec![], page(2)];
        assert_eq!(contents(&seen, 4), expected);
        let (file, size) = growing.finish(true).unwrap();
        assert_eq!(contents(&file, 4), expected);
        // The header with its slack, and four pages.
        assert_eq!(size, (2 << 20) + 4 * 4096);
        assert_eq!(file.metadata().unwrap().len(), size);
    }

    #[test]
    fn large_streams_are_moved_by_the_file_system() {
        let file = tempfile::tempfile().unwrap();
        let growing = Growing::with_header(file, &header(3)).unwrap();
        let mib = vec![7; 1 << 20];
        for n in 0..130 {
            growing.append(1, &mib).unwrap();
            growing.append(2, &[page(n).as_slice(), &mib[4096..]].concat()).unwrap();
        }
        growing.append(0, &page(9)).unwrap();
        let (file, size) = growing.finish(true).unwrap();
        assert_eq!(size, (2 << 20) + 4096 + (260 << 20));
        let all = contents(&file, 3);
        assert_eq!(all[0], page(9));
        assert!(all[1].iter().all(|b| *b == 7) && all[1].len() == 130 << 20);
        assert!((0..130u8).all(|n| all[2][usize::from(n) << 20] == n));
    }

    #[test]
    fn pages_through_a_pipe() {
        let growing = Growing::with_header(tempfile::tempfile().unwrap(), &header(1)).unwrap();
        let (read, write) = descriptors::pipe().unwrap();
        let mut write = File::from(write);
        io::Write::write_all(&mut write, &[page(5), page(6)].concat()).unwrap();
        growing.append_pipe(0, &read, 8192).unwrap();
        assert_eq!(growing.total(), 8192);
        // A page and a half come before the writer is gone: one page counts.
        io::Write::write_all(&mut write, &[page(7), page(8)].concat()[..6000]).unwrap();
        drop(write);
        assert!(growing.append_pipe(0, &read, 8192).is_err());
        let (file, _) = growing.finish(true).unwrap();
        assert_eq!(contents(&file, 1), [[page(5), page(6), page(7)].concat()]);
    }

    #[test]
    fn pages_before_the_front() {
        let file = tempfile::tempfile().unwrap();
        let mut growing = Growing::without_front(file, 2, 4096).unwrap();
        growing.append(0, &page(5)).unwrap();
        growing.append(1, &page(6)).unwrap();
        growing.replace_header(&header(2)).unwrap();
        growing.begin().unwrap();
        let (file, size) = growing.finish(true).unwrap();
        assert_eq!(contents(&file, 2), [page(5), page(6)]);
        assert_eq!(size, 3 * 4096);
    }

    #[test]
    fn a_longer_front_at_the_end() {
        let mut growing = Growing::with_header(tempfile::tempfile().unwrap(), &header(2)).unwrap();
        growing.append(1, &page(5)).unwrap();
        let mut longer = header(2);
        longer.bytes.extend_from_slice(&[b'n'; 100_000]);
        longer.layout.len += 100_000;
        growing.replace_header(&longer).unwrap();
        let mut too_long = longer.clone();
        too_long.layout.len = growing.room_for_header() + 1;
        assert!(growing.replace_header(&too_long).is_err());
        assert!(growing.replace_header(&header(3)).is_err());
        let (file, _) = growing.finish(true).unwrap();
        assert_eq!(contents(&file, 2), [vec![], page(5)]);
        let mut n = [0; 1];
        file.read_exact_at(&mut n, 100_063).unwrap();
        assert_eq!(&n, b"n");
    }
}

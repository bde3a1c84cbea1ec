//! The BPF ring buffer: mapped, and read without being woken for each record.
//!
//! The first page has the consumer's position, which we write; the next one the
//! producers' position, and then the data follow. They follow twice, so that no record wraps, but
//! only the first half is mapped: what is mapped counts as memory of this process.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{BpfError, BpfMap};

/// Bits of a record's length: it is being written; it was discarded.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER: u64 = 8;

/// A ring buffer that this process reads.
#[derive(Debug)]
pub struct BpfRing {
    consumer: NonNull<u8>,
    producer: NonNull<u8>,
    page: usize,
    size: usize,
    /// A record that wraps.
    wrapped: Vec<u8>,
}

// SAFETY: the mapped memory belongs to the process, not to a thread; there is one reader, by
// `&mut self`.
unsafe impl Send for BpfRing {}

impl BpfRing {
    /// Maps the ring of a map of type `BPF_MAP_TYPE_RINGBUF` with `size` bytes of data.
    pub fn map(map: &BpfMap, size: usize) -> Result<BpfRing, BpfError> {
        let page = rustix::param::page_size();
        let consumer = map_part(map, 0, page, libc::PROT_READ | libc::PROT_WRITE)?;
        match map_part(map, page, page + size, libc::PROT_READ) {
            Ok(producer) => Ok(BpfRing { consumer, producer, page, size, wrapped: Vec::new() }),
            Err(error) => {
                unmap(consumer, page);
                Err(error)
            }
        }
    }

    /// Bytes that wait to be read.
    pub fn pending(&self) -> u64 {
        let read = self.consumer_position().load(Ordering::Relaxed);
        self.producer_position().load(Ordering::Acquire).saturating_sub(read)
    }

    /// Hands out the records that are complete, at most `most` bytes of them, in order;
    /// gives the number of bytes read. `sink` says whether to go on.
    pub fn read(&mut self, most: u64, mut sink: impl FnMut(&[u8]) -> bool) -> u64 {
        let begin = self.consumer_position().load(Ordering::Relaxed);
        // Pairs with the release in the kernel's `__bpf_ringbuf_reserve`: what it says is
        // reserved has a header.
        let produced = self.producer_position().load(Ordering::Acquire);
        let mut at = begin;
        let end = produced.min(begin.saturating_add(most));
        while at < end {
            // Pairs with the exchange in `bpf_ringbuf_commit`: a header that is not busy has
            // its data before it.
            let header = self.header(at).load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let len = header & !(BUSY | DISCARDED);
            let goes_on = header & DISCARDED != 0 || sink(self.data(at + HEADER, len as usize));
            at += (HEADER + u64::from(len)).next_multiple_of(8);
            // Pairs with the acquire in `__bpf_ringbuf_reserve`: we are done with the data
            // before the kernel may write there again.
            self.consumer_position().store(at, Ordering::Release);
            if !goes_on {
                break;
            }
        }
        at - begin
    }

    fn consumer_position(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self`, aligned, and shared as atomics only.
        unsafe { &*self.consumer.as_ptr().cast::<AtomicU64>() }
    }

    fn producer_position(&self) -> &AtomicU64 {
        // SAFETY: as above; the page is mapped for reading, and only loads are made.
        unsafe { &*self.producer.as_ptr().cast::<AtomicU64>() }
    }

    fn offset(&self, at: u64) -> usize {
        self.page + (at as usize & (self.size - 1))
    }

    fn header(&self, at: u64) -> &AtomicU32 {
        // SAFETY: the offset is masked by the size, and records begin at multiples of 8, so
        // that the header lies within the mapped data.
        unsafe { &*self.producer.as_ptr().add(self.offset(at)).cast::<AtomicU32>() }
    }

    fn data(&mut self, at: u64, len: usize) -> &[u8] {
        let len = len.min(self.size);
        let before_end = len.min(self.page + self.size - self.offset(at));
        if before_end == len {
            return self.mapped(at, len);
        }
        let mut wrapped = std::mem::take(&mut self.wrapped);
        wrapped.clear();
        wrapped.extend_from_slice(self.mapped(at, before_end));
        wrapped.extend_from_slice(self.mapped(at + before_end as u64, len - before_end));
        self.wrapped = wrapped;
        &self.wrapped
    }

    /// Bytes that end before the mapping does.
    fn mapped(&self, at: u64, len: usize) -> &[u8] {
        let offset = self.offset(at);
        let len = len.min(self.page + self.size - offset);
        // SAFETY: `size` bytes of data are mapped behind the page, and `len` bytes from the masked
        // offset end within; the kernel does not write there until the consumer's position has
        // passed, which happens after the slice is dropped.
        unsafe { std::slice::from_raw_parts(self.producer.as_ptr().add(offset), len) }
    }
}

impl Drop for BpfRing {
    fn drop(&mut self) {
        unmap(self.consumer, self.page);
        unmap(self.producer, self.page + self.size);
    }
}

fn map_part(map: &BpfMap, at: usize, len: usize, access: i32) -> Result<NonNull<u8>, BpfError> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            access,
            libc::MAP_SHARED,
            map.as_fd().as_raw_fd(),
            at as libc::off_t,
        )
    };
    match NonNull::new(base.cast::<u8>()) {
        Some(address) if base != libc::MAP_FAILED => Ok(address),
        _ => Err(BpfError::new("map the ring buffer", io::Error::last_os_error())),
    }
}

fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: `base` and `len` are what `mmap` gave and nothing borrows from it any more. An
    // error would mean that they are not; there is nothing to do about it here.
    let _ = unsafe { libc::munmap(base.as_ptr().cast(), len) };
}
